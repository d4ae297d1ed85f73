# Eight writers that insert, update and delete, four readers that compare with
# the heap twin under one snapshot, workers with every kind of upkeep, and random
# DDL on other stores (P48, L9, L37, L47): no difference, no deadlock, no error.
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
for my $c (0, 1)
{
	q1("CREATE FOREIGN TABLE other$c (id int, v text, c int) SERVER strata OPTIONS (key 'id', merge_interval '1s', merge_after_generations '1', generation_max_rows '200')");
	q1("CREATE TABLE heap$c (id int PRIMARY KEY, v text, c int)");
}

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
	pgbench('writers', pgbench_upserts('t') . <<'SQL', '-c', 8, '-j', 2),
\set k random(1, 3000)
BEGIN;
UPDATE t SET reward = :v + 1 WHERE id IN ('w' || :client_id || '-' || :k, 'w' || :client_id || '-' || :k + 1);
UPDATE t_heap SET reward = :v + 1 WHERE id IN ('w' || :client_id || '-' || :k, 'w' || :client_id || '-' || :k + 1);
DELETE FROM t WHERE id = 'w' || :client_id || '-' || :n;
DELETE FROM t_heap WHERE id = 'w' || :client_id || '-' || :n;
COMMIT;
\set d random(1, 20)
\if :d = 1
BEGIN;
DELETE FROM t WHERE run_id = :client_id AND reward < :v / 8;
DELETE FROM t_heap WHERE run_id = :client_id AND reward < :v / 8;
COMMIT;
\endif
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
\set what random(1, 13)
\set n random(1, 2000)
\if :what = 1
DROP FOREIGN TABLE other:client_id;
CREATE FOREIGN TABLE other:client_id (id int, v text, c int) SERVER strata OPTIONS (key 'id', merge_interval '1s', merge_after_generations '1', generation_max_rows '200');
DROP TABLE heap:client_id;
CREATE TABLE heap:client_id (id int PRIMARY KEY, v text, c int);
\elif :what = 2
ALTER FOREIGN TABLE other:client_id DROP COLUMN c;
ALTER FOREIGN TABLE other:client_id ADD COLUMN c int DEFAULT 3;
ALTER TABLE heap:client_id DROP COLUMN c, ADD COLUMN c int DEFAULT 3;
\elif :what = 3
BEGIN;
TRUNCATE other:client_id;
TRUNCATE heap:client_id;
INSERT INTO other:client_id SELECT g, 'truncated' FROM generate_series(1, 300) g;
INSERT INTO heap:client_id SELECT g, 'truncated' FROM generate_series(1, 300) g;
COMMIT;
\elif :what = 4
BEGIN;
TRUNCATE other:client_id;
INSERT INTO other:client_id VALUES (-1, 'never');
ALTER FOREIGN TABLE other:client_id DROP COLUMN v;
ROLLBACK;
\elif :what = 5
BEGIN;
DROP FOREIGN TABLE other:client_id;
ROLLBACK;
\elif :what = 6
ALTER FOREIGN TABLE other:client_id RENAME TO renamed:client_id;
ALTER FOREIGN TABLE renamed:client_id OPTIONS (SET generation_max_rows '300');
ALTER FOREIGN TABLE renamed:client_id OPTIONS (SET generation_max_rows '200');
ALTER FOREIGN TABLE renamed:client_id RENAME TO other:client_id;
\elif :what = 7
SELECT strata.drop_key_index('other:client_id') WHERE strata.has_key_index('other:client_id');
\elif :what = 8
DELETE FROM other:client_id WHERE id % 7 = :n % 7;
DELETE FROM heap:client_id WHERE id % 7 = :n % 7;
\elif :what = 9
UPDATE other:client_id SET v = v || '+' WHERE id BETWEEN :n AND :n + 300;
UPDATE heap:client_id SET v = v || '+' WHERE id BETWEEN :n AND :n + 300;
\else
INSERT INTO other:client_id SELECT g, 'v' || :n FROM generate_series(:n, :n + 500) g;
INSERT INTO heap:client_id SELECT g, 'v' || :n FROM generate_series(:n, :n + 500) g ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v, c = EXCLUDED.c;
\endif
\sleep 100 ms
SELECT 1 / (CASE WHEN (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(id || v || coalesce(c, -1), 0)::numeric), 0) FROM other:client_id)
               = (SELECT count(*) || ' ' || coalesce(sum(hashtextextended(id || v || coalesce(c, -1), 0)::numeric), 0) FROM heap:client_id) THEN 1 ELSE 0 END);
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
# A worker that DDL finds in its way is cancelled, and says nothing.
my @bad = grep { /ERROR|deadlock|PANIC|FATAL|strata: .* failed/ } split /\n/, slurp_file($node->logfile);
is(join("\n", @bad), '', 'nothing bad in the log');
is(q1("SELECT max(failures) FROM strata.stores"), 0, 'no failure');
is(q1("SELECT count(*) FROM strata.merge_memory() WHERE taken > 0"), 0, 'no memory is held');

$node->stop;
done_testing();
