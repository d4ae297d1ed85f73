# Appends do not wait for merges (L18, L19, L21, L22): the 99th percentile of their
# latency while a worker merges the same table, compared with that of rounds in
# between with workers off.  Only appends during a pass count: most of the others
# would hide a pass that locks writers out.  One client and no fsync, so that it is appends and
# merges that are compared and not how busy the disk is; and a CPU for the client
# and its backend alone, since a scheduler that puts a worker beside them for a
# moment takes longer than an append does (see docs/benchmarks.md).  The median of
# the rounds' ratios is to stay below 2.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use IPC::Run ();
use Time::HiRes qw(time);

my ($allowed) = slurp_file('/proc/self/status') =~ /^Cpus_allowed_list:\s*(\S+)/m;
my @cpus = map { /(\d+)-(\d+)/ ? $1 .. $2 : $_ } split /,/, $allowed;
plan skip_all => 'needs two CPUs' if @cpus < 2;

# Whatever else runs takes the client's CPU when a worker has the other.
sub busy
{
	my (undef, @t) = split ' ', (split /\n/, slurp_file('/proc/stat'))[0];
	my $idle = $t[3] + $t[4];
	my $all = 0;
	$all += $_ for @t[0 .. 7];
	return ($all - $idle, $all);
}
my @before = busy();
sleep 2;
my @after = busy();
plan skip_all => 'the machine has other work' if $after[0] - $before[0] > 0.1 * ($after[1] - $before[1]);

my $pairs = $ENV{STRATA_ROUNDS} // 10;
my $node = strata_node('latency', fsync => 'off', max_wal_size => '4GB');
sub q1 { return $node->safe_psql('postgres', $_[0]); }

# Small generations, each of which is a reason to merge: a worker is at it all
# the time.
q1("CREATE FOREIGN TABLE t (id text NOT NULL, n int8, v float8, p text) SERVER strata
	OPTIONS (key 'id', generation_max_rows '2000', merge_after_generations '1')");
my $script = $node->basedir . '/append.sql';
append_to_file($script, <<'SQL');
\set n random(1, 1000000000)
INSERT INTO t SELECT 'a' || lpad(g::text, 12, '0'), g, g / 7.0, md5(g::text) FROM generate_series(:n, :n + 19) g;
SQL

sub passes { return q1("SELECT coalesce(max(passes), 0) FROM strata.stat WHERE store = 't'::regclass"); }

# The second CPU is for all processes of the server but the client's backend.
sub pin { my ($cpu, $pid) = @_; return system("taskset -cp $cpus[$cpu] $pid > /dev/null") == 0; }
ok(pin(1, $_), 'a CPU for the server') for split /\n/, q1('SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()');
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
ok(pin(1, $postmaster), 'and for whatever it starts');

# p99 of two seconds' appends in milliseconds, with workers of those that met a
# pass; passes made meanwhile; number of these appends.
sub round
{
	my ($workers) = @_;
	my $prefix = $node->basedir . '/latencies';
	q1("ALTER SYSTEM SET strata.max_workers = $workers");
	q1('SELECT pg_reload_conf()');
	$node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM strata.workers') or die 'a worker stays' if $workers == 0;
	my $before = passes();
	my $began = q1('SELECT clock_timestamp()');
	unlink glob "$prefix.*";
	my $appends = IPC::Run::start([ 'taskset', '-c', $cpus[0], 'pgbench', '-n', '-M', 'prepared', '-l', "--log-prefix=$prefix",
		'-f', $script, '-T', 2, $node->connstr('postgres') . ' application_name=appends' ], '>', \my $out, '2>', \my $err);
	$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'appends'") or die "$out $err";
	ok(pin(0, q1("SELECT pid FROM pg_stat_activity WHERE application_name = 'appends'")), 'a CPU for the client');
	my $from = time + 0.2;
	ok($appends->finish, "appends with $workers workers");
	my @passes = map { [split /\|/] } split /\n/, q1("SELECT extract(epoch FROM started), extract(epoch FROM ended)
		FROM strata.merges WHERE store = 't'::regclass AND ended > '$began'");
	my @us;
	for (split /\n/, slurp_file((glob "$prefix.*")[0]))
	{
		my @f = split;
		my $end = $f[4] + $f[5] / 1e6;
		my $start = $end - $f[2] / 1e6;
		next if $end < $from || ($workers && !grep { $start < $_->[1] && $end > $_->[0] } @passes);
		push @us, $f[2];
	}
	@us = sort { $a <=> $b } @us;
	return (@us ? $us[ int(@us * 0.99) ] / 1000 : 0, passes() - $before, scalar @us);
}

round(2);
my (@ratios, $idle, $merging, $during);
for my $pair (1 .. $pairs)
{
	# Off first, on first, off first, ...
	my @turns = $pair % 2 ? (0, 2) : (2, 0);
	my %p99;
	for my $workers (@turns)
	{
		my ($p99, $passes, $n) = round($workers);
		$p99{$workers} = $p99;
		if ($workers) { $merging++ if $passes > 0; $during += $n; }
		else { $idle++ if $passes == 0; }
		note sprintf('%d workers: p99 %.2f ms of %d appends, %d passes', $workers, $p99, $n, $passes);
	}
	push @ratios, $p99{2} / $p99{0} if $p99{2} > 0;
}
is($idle, $pairs, 'nothing was merged with workers off');
cmp_ok($merging, '>=', $pairs / 2, "passes in $merging of $pairs rounds with workers");
note "$during appends during passes";
my $median = (sort { $a <=> $b } @ratios)[ int(@ratios / 2) ];
cmp_ok($median, '<', 2, sprintf('p99 while merging is %.2f times that without', $median));

q1('ALTER SYSTEM SET strata.max_workers = 2');
q1('SELECT pg_reload_conf()');
verify_clean($node, 't', 'after all');
is(q1("SELECT max(failures) FROM strata.stores"), 0, 'no pass failed');
$node->stop;
done_testing();
