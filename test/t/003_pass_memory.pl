# Peak memory of a pass is flat (L1, L15, L46, P81): when the backlog grows tenfold,
# with default caps and without, and when payloads grow from 1 kB to 1 MB.
# Both what the pass reports and the backend's RssAnon, sampled every 10 ms.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep);

# Small enough settings that a full row group and its keys are the ceiling.
my $node = strata_node('memory', maintenance_work_mem => '16MB');
my $MB = 1024 * 1024;

sub sampler
{
	my ($pid, $file) = @_;
	my $child = fork // die "fork: $!";
	return $child if $child;
	my $max = 0;
	local $SIG{TERM} = sub { open my $f, '>', $file; print $f $max; close $f; POSIX::_exit(0); };
	while (1)
	{
		if (open my $f, '<', "/proc/$pid/status")
		{
			while (<$f>) { $max = $1 if /^RssAnon:\s+(\d+)/ && $1 > $max; }
			close $f;
		}
		sleep 0.01;
	}
}
use POSIX ();

# ($reported, $rss growth), bytes, of one pass over $generations generations.
sub pass
{
	my ($name, $generations, $rows, $size, $args) = @_;
	create_pair($node, $name, "auto_merge 'off', row_group_bytes '8MB', row_group_rows '20000'");
	# A base, so that the pass has something to probe and replace.
	$node->safe_psql('postgres', send_rows($name, 1, $rows, 0, $size) . "CALL strata.drain('$name')");
	for my $g (1 .. $generations)
	{
		my $from = 1 + $g * int($rows / 2);
		$node->safe_psql('postgres',
			send_rows($name, $from, $from + $rows - 1, $g, $size) . "SELECT * FROM strata.seal('$name')");
	}
	my $session = $node->background_psql('postgres');
	my $pid = $session->query('SELECT pg_backend_pid()');
	# The first run of anything loads catalogs and code: do that before.
	$session->query("SELECT count(*) FROM strata.generations");
	my ($before) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
	my $file = $node->basedir . "/$name.rss";
	my $child = sampler($pid, $file);
	sleep 0.05;
	my $out = $session->query("SELECT generations_merged, peak_memory FROM strata.merge('$name'$args)");
	kill 'TERM', $child;
	waitpid $child, 0;
	$session->quit;
	my $rss = (slurp_file($file) - $before) * 1024;
	my ($merged, $peak) = split /\|/, $out;
	note sprintf "%s: %d generations, peak_memory %.1f MB, RssAnon +%.1f MB", $name, $merged, $peak / $MB, $rss / $MB;
	same_rows($node, $name, "$name: rows");
	return ($peak, $rss, $merged);
}

sub flat
{
	my ($what, $small, $large) = @_;
	my $allow = $small * 0.1 > 4 * $MB ? $small * 0.1 : 4 * $MB;
	cmp_ok($large, '<=', $small + $allow,
		sprintf('%s: %.1f MB against %.1f MB', $what, $large / $MB, $small / $MB));
}

my ($p8, $r8) = pass('d8', 8, 4000, 1000, '');
my ($p80, $r80) = pass('d80', 80, 4000, 1000, '');
flat('peak_memory, default caps, 8 to 80 generations', $p8, $p80);
flat('RssAnon, default caps, 8 to 80 generations', $r8, $r80);

my ($u8, $s8) = pass('u8', 8, 4000, 1000, ', max_generations => 0, max_bytes => 0');
my ($u80, $s80, $n) = pass('u80', 80, 4000, 1000, ', max_generations => 0, max_bytes => 0');
flat('peak_memory, no caps, 8 to 80 generations', $u8, $u80);
flat('RssAnon, no caps, 8 to 80 generations', $s8, $s80);

my ($p1k, $r1k) = pass('k1', 8, 8000, 1_000, '');
my ($p1m, $r1m) = pass('m1', 8, 16, 1_000_000, '');
flat('peak_memory, payloads of 1 kB to 1 MB', $p1k, $p1m);
flat('RssAnon, payloads of 1 kB to 1 MB', $r1k, $r1m);

$node->stop;
done_testing();
