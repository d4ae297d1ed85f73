# Eight writers, four readers that compare with the heap twin under one snapshot,
# workers with every kind of upkeep, and DDL on other stores (P48, L9, L37, L47):
# no difference, no deadlock, no error.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use IPC::Run ();
use Time::HiRes qw(sleep time);

my $seconds = $ENV{STRATA_SECONDS} // 60;
my $node = strata_node('soak', 'strata.max_workers' => 3, max_worker_processes => 16, fsync => 'off',
	max_wal_size => '2GB', deadlock_timeout => '1s');
sub q1 { return $node->safe_psql('postgres', $_[0]); }
create_pair($node, 't', "generation_max_bytes '128kB', shards '3', merge_interval '1s', merge_after_generations '2', row_group_rows '3000'");

sub pgbench
{
	my ($name, $sql, @args) = @_;
	my $file = $node->basedir . "/$name.sql";
	append_to_file($file, $sql);
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $file, '-T', $seconds, @args, 'postgres' ],
		'>', \$out, '2>', \$err);
	return { name => $name, run => $run, out => \$out, err => \$err };
}

my @running = (
	pgbench('writers', <<'SQL', '-c', 8, '-j', 2),
\set n random(1, 3000)
\set m random(1, 40)
\set v random(1, 1000000)
BEGIN;
INSERT INTO t SELECT 'w' || :client_id || '-' || g, :client_id, :v, ARRAY[g], NULL, repeat('x', g % 300)
  FROM generate_series(:n, :n + :m) g;
INSERT INTO t_heap SELECT 'w' || :client_id || '-' || g, :client_id, :v, ARRAY[g], NULL, repeat('x', g % 300)
  FROM generate_series(:n, :n + :m) g
  ON CONFLICT (id) DO UPDATE SET reward = EXCLUDED.reward, tokens = EXCLUDED.tokens, payload = EXCLUDED.payload;
COMMIT;
SQL
	pgbench('readers', <<'SQL', '-c', 4, '-j', 1),
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1 / (CASE WHEN (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM t)
               = (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM t_heap t) THEN 1 ELSE 0 END);
\set c random(0, 7)
\set n random(1, 3000)
SELECT 1 / (CASE WHEN (SELECT t::text FROM t WHERE id = 'w' || :c || '-' || :n)
               IS NOT DISTINCT FROM (SELECT t::text FROM t_heap t WHERE id = 'w' || :c || '-' || :n) THEN 1 ELSE 0 END);
COMMIT;
\sleep 200 ms
SQL
	pgbench('ddl', <<'SQL', '-c', 2, '-j', 1),
CREATE FOREIGN TABLE other:client_id (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s', merge_after_generations '1', generation_max_rows '200');
INSERT INTO other:client_id SELECT g, 'x' FROM generate_series(1, 1000) g;
\sleep 300 ms
ALTER FOREIGN TABLE other:client_id ADD COLUMN c int DEFAULT 3;
INSERT INTO other:client_id SELECT g, 'x' FROM generate_series(500, 1500) g;
\sleep 300 ms
SELECT 1 / (CASE WHEN (SELECT count(*) FROM other:client_id) = 1500 THEN 1 ELSE 0 END);
TRUNCATE other:client_id;
INSERT INTO other:client_id SELECT g, 'x' FROM generate_series(1, 300) g;
ALTER FOREIGN TABLE other:client_id RENAME TO renamed:client_id;
\sleep 300 ms
DROP FOREIGN TABLE renamed:client_id;
SQL
	pgbench('maintenance', <<'SQL', '-c', 1),
SELECT count(*) FROM strata.compact('t');
SELECT count(*) FROM strata.merge('t');
SELECT count(*) FROM strata.health();
SELECT count(*) FROM strata.stores;
SELECT count(*) FROM strata.stat;
\sleep 400 ms
SQL
);
my $most = 0;
my $end = time + $seconds - 2;
while (time < $end)
{
	my $n = q1("SELECT coalesce(max(pending_generations), 0) FROM strata.stores WHERE store = 't'::regclass");
	$most = $n if $n > $most;
	sleep 0.5;
}
for my $bench (@running)
{
	$bench->{run}->finish;
	is($bench->{run}->full_result(0), 0, "$bench->{name}: no error") or diag(${ $bench->{err} });
	unlike(${ $bench->{err} }, qr/ERROR|aborted/, "$bench->{name}: no client gave up");
	my ($n) = ${ $bench->{out} } =~ /number of transactions actually processed: (\d+)/;
	cmp_ok($n, '>', 0, "$bench->{name}: $n transactions");
}
cmp_ok($most, '<', 200, "pending generations stayed bounded: $most at most");
ok($node->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores WHERE store = 't'::regclass"), 'all merged after it stopped');
same_rows($node, 't', 'rows');
verify_clean($node, 't', 'soak');
my @bad = grep { /deadlock detected|PANIC|FATAL|strata: .* failed/ } split /\n/, slurp_file($node->logfile);
is(join("\n", @bad), '', 'nothing bad in the log');
is(q1("SELECT max(failures) FROM strata.stores"), 0, 'no failure');
is(q1("SELECT count(*) FROM strata.merge_memory() WHERE taken > 0"), 0, 'no memory is held');

$node->stop;
done_testing();
