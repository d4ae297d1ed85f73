# Writers at full speed and nobody who calls anything (L2, L9, L18, L21): pending
# generations stay bounded while they write, and two intervals after they stop
# everything is merged.  STRATA_SECONDS=300 is the long run, with all options at
# their defaults.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use IPC::Run ();
use Time::HiRes qw(sleep time);

my $seconds = $ENV{STRATA_SECONDS} // 8;
my $long = $seconds >= 120;
my $interval = $long ? 60 : 2;
my $node = strata_node('speed', 'strata.max_workers' => 2, fsync => 'on', max_wal_size => '4GB');
sub q1 { return $node->safe_psql('postgres', $_[0]); }

# The count trigger and the caps of a pass are the defaults in both.
create_pair($node, 't', $long ? '' : "merge_interval '${interval}s', generation_max_rows '3000'");
q1('CREATE SEQUENCE n');
my $count = q1('SHOW strata.merge_after_generations');
is($count, q1('SHOW strata.merge_max_generations'), 'a pass takes what triggers it');

# Three of four transactions append small batches; what they hold follows from
# the number.  The fourth sends rows again that its client owns, to the twin,
# too.
my $append = <<'SQL';
SELECT 'a' || lpad(n::text, 12, '0'), (n % 100)::int, n / 8.0, ARRAY[n::int], NULL, md5(n::text)
SQL
my %scripts = (
	append => "INSERT INTO t $append FROM (SELECT nextval('n') AS n FROM generate_series(1, 50)) x;\n",
	upsert => <<'SQL');
\set n random(1, 2000)
\set v random(1, 1000000)
BEGIN;
INSERT INTO t SELECT 'u' || :client_id || '-' || g, :client_id, :v, NULL, NULL, 'x' FROM generate_series(:n, :n + 10) g;
INSERT INTO t_heap SELECT 'u' || :client_id || '-' || g, :client_id, :v, NULL, NULL, 'x' FROM generate_series(:n, :n + 10) g
  ON CONFLICT (id) DO UPDATE SET reward = EXCLUDED.reward;
COMMIT;
SQL
append_to_file($node->basedir . "/$_.sql", $scripts{$_}) for keys %scripts;
my ($out, $err) = ('', '');
my $bench = IPC::Run::start(
	[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 3, '-T', $seconds,
		'-f', $node->basedir . '/append.sql@3', '-f', $node->basedir . '/upsert.sql@1', 'postgres' ],
	'>', \$out, '2>', \$err);

my $stores = "FROM strata.stores WHERE store = 't'::regclass";
my ($most, @samples) = (0);
my $end = time + $seconds - 1;
while (time < $end)
{
	push @samples, q1("SELECT pending_generations $stores");
	$most = $samples[-1] if $samples[-1] > $most;
	sleep($long ? 1 : 0.2);
}
$bench->finish;
my $stopped = time;
is($bench->result(0), 0, 'the writers met no error') or diag $err;
unlike($err, qr/ERROR|aborted/, 'none gave up');
note $out =~ /(tps = \S+)/ ? $1 : '';
note 'pending generations: ', join ' ', @samples;

# One pass's worth triggers, one is merged, and as many as arrive meanwhile
# wait: twice that for a machine that has other things to do.
cmp_ok($most, '<=', 4 * $count, "pending generations stayed bounded: at most $most of " . (4 * $count));
ok($node->poll_query_until('postgres', "SELECT pending_generations = 0 $stores"), 'all merged after they stopped');
note sprintf('merged %.1f s after they stopped, %.1f intervals', time - $stopped, (time - $stopped) / $interval);
my ($passes, $generations) = split /\|/, q1("SELECT passes, generations FROM strata.stat WHERE store = 't'::regclass");
cmp_ok($passes // 0, '>=', 2, ($generations // 0) . ' generations in ' . ($passes // 0) . ' passes');

my $rows = q1('SELECT last_value FROM n');
q1("INSERT INTO t_heap $append FROM generate_series(1, $rows) n");
same_rows($node, 't', "the rows of both, $rows appended");
verify_clean($node, 't', 'after all');
is(q1("SELECT max(failures) FROM strata.stores"), 0, 'no pass failed');
is(join("\n", grep { /ERROR|FATAL|PANIC|deadlock/ } split /\n/, slurp_file($node->logfile)), '', 'nothing bad in the log');
$node->stop;
done_testing();
