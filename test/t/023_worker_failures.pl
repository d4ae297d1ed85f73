# A store whose merge fails backs off, says why, and stops nobody (L17, L25, L48,
# L56, L57, P67); blocked stores; orphans; upkeep by workers: compaction, sweep,
# ANALYZE (C8).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $node = strata_node('failures', 'strata.max_workers' => 2, checkpoint_timeout => '1h');
sub q1 { return $node->safe_psql('postgres', $_[0]); }
sub state { my ($name, $what) = @_; return q1("SELECT $what FROM strata.stores WHERE store = '$name'::regclass"); }
sub wait_for
{
	my ($sql, $what, $seconds) = @_;
	my $end = time + ($seconds // 30);
	while (time < $end) { if (q1($sql) eq 't') { pass($what); return 1; } sleep 0.1; }
	fail($what);
	note(q1('SELECT string_agg(s::text, chr(10)) FROM strata.stores s'));
	return 0;
}

# ---- a damaged page in the middle of a generation ----
create_pair($node, 'bad', "merge_interval '0', merge_after_generations '0'");
create_pair($node, 'good', "merge_interval '1s'");
# Row by row: rows that are sent together become a row group beside the log.
q1(<<'SQL');
DO $$BEGIN
	FOR g IN 1 .. 300 LOOP
		INSERT INTO bad VALUES ('k' || g, 1, g, NULL, NULL, (SELECT string_agg(md5(g::text || i), '') FROM generate_series(1, 10) i));
	END LOOP;
END$$;
INSERT INTO bad_heap SELECT * FROM bad;
SELECT * FROM strata.seal('bad')
SQL
my ($first, $last) = split /\|/, q1("SELECT first_block, last_block FROM strata.generations WHERE store = 'bad'::regclass AND state = 'sealed'");
my $path = $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'bad'::regclass");
cmp_ok($last, '>', $first + 4, 'a generation of many pages');
my $block = int(($first + $last) / 2);
$node->stop;
open my $file, '+<', $path or die;
binmode $file;
seek $file, $block * 8192 + 3000, 0;
read $file, my $saved, 100;
seek $file, $block * 8192 + 3000, 0;
print $file 'x' x 100;
close $file;
$node->start;

q1("ALTER FOREIGN TABLE bad OPTIONS (SET merge_after_generations '1')");
q1("INSERT INTO good VALUES ('wake'); INSERT INTO good_heap VALUES ('wake')");
wait_for("SELECT failures > 0 FROM strata.stores WHERE store = 'bad'::regclass", 'the failure is seen');
like(state('bad', 'last_error'), qr/invalid page in block $block|could not read/, 'the error names the block');
is(state('bad', "last_sqlstate = 'XX001' AND last_error_at IS NOT NULL AND next_try > last_error_at AND wanted_by = 'count'"), 't', 'with time, SQLSTATE and next try');
is(q1("SELECT count(*) FROM strata.health() WHERE store = 'bad'::regclass AND severity = 'error' AND what LIKE 'the last % tries to merge failed%' AND advice LIKE '%strata.repair()%'"), 1, 'strata.health() reports it');
like(slurp_file($node->logfile), qr/LOG:\s+strata: merge of postgres\.public\.bad failed \(1 in a row\), next try in 5 s/, 'and the log');
# Others go on, again and again; the pause doubles.
for my $v (1 .. 3)
{
	q1(send_rows('good', 1, 300, $v));
	wait_for("SELECT pending_generations = 0 FROM strata.stores WHERE store = 'good'::regclass", "others are merged meanwhile ($v)", 15);
	same_rows($node, 'good', "good: rows ($v)");
}
wait_for("SELECT failures >= 2 AND next_try - last_error_at >= '9 s' FROM strata.stores WHERE store = 'bad'::regclass", 'the pause doubles', 40);
my @tries = (slurp_file($node->logfile) =~ /merge of postgres\.public\.bad failed/g);
cmp_ok(scalar @tries, '<=', 4, 'no storm in the log');
q1("CREATE ROLE reader; GRANT SELECT ON bad TO reader");
is(q1("SET ROLE reader; SELECT count(*) FROM strata.stores WHERE store = 'bad'::regclass AND failures > 0 AND last_error IS NULL"), 1, 'others see that it fails, not the message');

# Repaired: merged by itself, and the failure is history.
$node->stop;
open $file, '+<', $path or die;
binmode $file;
seek $file, $block * 8192 + 3000, 0;
print $file $saved;
close $file;
$node->start;
wait_for("SELECT pending_generations = 0 AND failures = 0 FROM strata.stores WHERE store = 'bad'::regclass", 'repaired: merged');
same_rows($node, 'bad', 'bad: no row was lost');
verify_clean($node, 'bad', 'bad');

# ---- any error of a pass ----
for my $point ('pass-begin', 'pass-before-manifest', 'worker-step')
{
	pause_arm($node, $point, 'error');
	q1(send_rows('good', 1, 200, length $point));
	wait_for("SELECT pending_generations = 0 FROM strata.stores WHERE store = 'good'::regclass", "$point: merged in spite of an error", 40);
	same_rows($node, 'good', "$point: rows");
	like(state('good', 'last_error'), qr/stopped at pause point|^$/, "$point: the error is kept");
}

# ---- blocked by a running transaction: no failure, no spinning ----
create_pair($node, 'blocked', "merge_interval '1s'");
my $writer = $node->background_psql('postgres');
$writer->query_safe("BEGIN; INSERT INTO blocked VALUES ('k1'); INSERT INTO blocked_heap VALUES ('k1')");
q1(send_rows('blocked', 2, 100, 1));
wait_for("SELECT count(*) = 1 FROM strata.health() WHERE store = 'blocked'::regclass AND what LIKE 'transaction % keeps generations%'", 'health names the transaction', 20);
is(state('blocked', 'failures'), 0, 'that is no failure');
same_rows($node, 'blocked', 'blocked: rows');
$writer->query_safe('COMMIT');
$writer->quit;
wait_for("SELECT pending_generations = 0 FROM strata.stores WHERE store = 'blocked'::regclass", 'merged when it has ended', 70);
same_rows($node, 'blocked', 'blocked: rows at the end');

# ---- put off, until somebody does what workers could not ----
create_pair($node, 'put_off', "merge_interval '1s'");
for my $failures (1 .. 3)
{
	pause_arm($node, 'pass-begin', 'error');
	q1(send_rows('put_off', 1, 100, 1)) if $failures == 1;
	wait_for("SELECT failures = $failures FROM strata.stores WHERE store = 'put_off'::regclass", "put off after failure $failures", 40);
}
my $next_try = state('put_off', 'next_try');
drain($node, 'put_off');
wait_for("SELECT failures = 0 AND next_try IS NULL FROM strata.stores WHERE store = 'put_off'::regclass", 'drained by hand: the failure is history');
is(q1("SELECT now() < '$next_try'"), 't', 'and not only at the time of the next try');
same_rows($node, 'put_off', 'put off: rows');

# ---- orphans ----
q1("CREATE FOREIGN TABLE orphan (id int) SERVER strata OPTIONS (key 'id', merge_interval '1s'); INSERT INTO orphan VALUES (1)");
q1("ALTER EVENT TRIGGER strata_sql_drop DISABLE; DROP FOREIGN TABLE orphan; ALTER EVENT TRIGGER strata_sql_drop ENABLE ALWAYS");
q1(send_rows('good', 1, 10, 1));
wait_for("SELECT count(*) = 0 FROM strata.store WHERE foreign_table NOT IN (SELECT oid FROM pg_class)", 'orphaned stores are dropped', 20);

# ---- upkeep: compaction, sweep and ANALYZE come by themselves ----
create_pair($node, 'kept', "merge_interval '1s', merge_after_generations '1', generation_max_rows '1000'");
for my $v (1 .. 40)
{
	q1(send_rows('kept', 1, 3000, $v, 200));
	sleep 0.2;
}
wait_for("SELECT compactions > 0 AND sweeps > 0 AND analyzes > 0 FROM strata.stat WHERE store = 'kept'::regclass", 'compacted, swept and analyzed', 60);
wait_for("SELECT pending_generations = 0 FROM strata.stores WHERE store = 'kept'::regclass", 'all merged', 30);
wait_for("SELECT count(*) < 10 FROM strata.row_groups WHERE store = 'kept'::regclass", 'few row groups remain', 30);
same_rows($node, 'kept', 'kept: rows');
verify_clean($node, 'kept', 'kept');
my $estimate = q1("SELECT reltuples FROM pg_class WHERE relname = 'kept'");
cmp_ok($estimate, '>', 1500, "statistics: $estimate of 3000 rows");
cmp_ok($estimate, '<', 6000, 'within a factor of two');

$node->stop;
done_testing();
