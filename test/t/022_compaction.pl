# Compaction: fewer, fuller row groups and the same answers (L13, L46, L52, L53),
# for snapshots from before it too, bounded by bytes (P49), exact index; kill -9,
# SIGSEGV, termination and DDL at each of its steps (P47, L54, L58).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('compaction', restart_after_crash => 'on', autovacuum => 'off');
sub q1 { return $node->safe_psql('postgres', $_[0]); }
my ($ret, $out, $err);
sub groups { return q1("SELECT count(*) FROM strata.row_groups WHERE store = '$_[0]'::regclass"); }

# Every key by index lookup, against a scan that cannot use it.
sub index_exact
{
	my ($name, $what) = @_;
	is(q1(<<SQL), 0, "$what: lookups and scans agree on every key");
SET enable_nestloop = on; SET enable_hashjoin = off; SET enable_mergejoin = off;
SELECT count(*) FROM ${name}_heap h LEFT JOIN $name t ON t.id = h.id
WHERE t.id IS NULL OR t.reward IS DISTINCT FROM h.reward OR t.payload IS DISTINCT FROM h.payload
SQL
}

# ---- many small row groups become one ----
create_pair($node, 'small', "auto_merge 'off'");
for my $g (1 .. 20) { q1(send_rows('small', $g * 50, $g * 50 + 80, $g) . "CALL strata.drain('small')"); }
is(groups('small'), 20, 'twenty small row groups');

my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $before = $old->query_safe("SELECT count(*) || ' ' || sum(hashtextextended(t::text, 0)::numeric) FROM small t");
$old->query_safe("DECLARE c CURSOR FOR SELECT id FROM small");
$old->query_safe('FETCH 100 FROM c');

is(q1("SELECT row_groups_read, row_groups_left, row_groups_written, rows_moved > 900, rows_dropped > 400, bytes_written > 0 FROM strata.compact('small')"),
	'20|0|1|t|t|t', 'compacted in one pass');
is(groups('small'), 1, 'one is left');
same_rows($node, 'small', 'small: rows');
index_exact('small', 'small');
verify_clean($node, 'small', 'small');
is(q1("SELECT row_groups_read FROM strata.compact('small')"), 0, 'nothing more to gain');
is(q1("SELECT count(*) FROM strata.merges WHERE store = 'small'::regclass AND what = 'compact' AND rows_read > 900"), 1, 'on record');

# Newer rows, more passes, sweeps: the old snapshot still reads what it did.
q1(send_rows('small', 1, 600, 99) . "CALL strata.drain('small'); SELECT * FROM strata.sweep('small')");
q1("SELECT * FROM strata.compact('small'); SELECT * FROM strata.sweep('small')");
is($old->query_safe("SELECT count(*) || ' ' || sum(hashtextextended(t::text, 0)::numeric) FROM small t"),
	$before, 'a snapshot from before it reads the same');
is($old->query_safe("SELECT count(*) FROM small WHERE id = 'k500'"), 1, 'and looks up the same');
my $rest = $old->query_safe('FETCH ALL FROM c');
is(100 + split(/\n/, $rest), (split / /, $before)[0], 'an open cursor goes on');
$old->query_safe('COMMIT');
$old->quit;
same_rows($node, 'small', 'small: rows after more');

# Dead index entries and old row groups' space go with a sweep.
q1("VACUUM strata.row_group, strata.deletes, strata.shard");
my $freed = q1("SELECT blocks_freed > 0 AND index_tids_removed > 0 FROM strata.sweep('small')");
is($freed, 't', 'sweep reclaims what compaction left');
is(q1("SELECT count(*) FROM strata.verify('small', swept => true)"), 0, 'nothing leaked');
same_rows($node, 'small', 'small: rows after sweep');
index_exact('small', 'small after sweep');

# ---- sparse row groups, bounded by bytes ----
create_pair($node, 'sparse', "auto_merge 'off', row_group_rows '500'");
q1(send_rows('sparse', 1, 10000, 1, 300) . "CALL strata.drain('sparse')");
my $full = groups('sparse');
q1("ANALYZE sparse");
# Two thirds of every row group superseded; the new versions are elsewhere.
my $update = send_rows('sparse', 1, 10000, 2, 300);
$update =~ s/FROM generate_series\(1, 10000\) g/FROM generate_series(1, 10000) g WHERE g % 3 > 0/g;
q1("$update; CALL strata.drain('sparse')");
same_rows($node, 'sparse', 'sparse: rows before');
my $size = q1("SELECT max(stored_bytes) FROM strata.row_groups WHERE store = 'sparse'::regclass");
my ($passes, $total) = (0, 0);
while ($passes < 100)
{
	my ($read, $left) = split /\|/, q1("SELECT row_groups_read, row_groups_left, bytes_read <= " . 4 * $size . " FROM strata.compact('sparse', max_bytes => " . 3 * $size . ')');
	last if $read == 0;
	$passes++;
	$total += $read;
	same_rows($node, 'sparse', "sparse: rows after pass $passes") if $passes < 4;
}
cmp_ok($passes, '>', 3, "bounded: $passes passes for $total row groups");
is(q1("SELECT count(*) FROM strata.row_groups WHERE store = 'sparse'::regclass AND deleted * 2 >= rows"), 0, 'no sparse row group is left');
is(q1("SELECT sum(rows - deleted) FROM strata.row_groups WHERE store = 'sparse'::regclass"), 10000, 'each live row once');
same_rows($node, 'sparse', 'sparse: rows');
index_exact('sparse', 'sparse');
verify_clean($node, 'sparse', 'sparse');

# A bound of one byte still gets on.
q1(send_rows('small', $_ * 10, $_ * 10 + 20, $_) . "CALL strata.drain('small')") for 1 .. 6;
is(q1("SELECT row_groups_read FROM strata.compact('small', max_bytes => 1)"), 2, 'a bound of 1 takes two');
same_rows($node, 'small', 'small: rows after that');
is($node->psql('postgres', "SELECT * FROM strata.compact('small', max_bytes => -1)"), 3, 'a negative bound is refused');

q1("CREATE ROLE stranger; GRANT SELECT ON small TO stranger");
($ret, $out, $err) = $node->psql('postgres', "SET ROLE stranger; SELECT * FROM strata.compact('small')");
like($err, qr/must be owner of foreign table small/, 'only the owner may compact');

# ---- wholly superseded ones are dropped unread; deletes go with them ----
create_pair($node, 'dead', "auto_merge 'off'");
for my $v (1 .. 5) { q1(send_rows('dead', 1, 2000, $v) . "CALL strata.drain('dead')"); }
is(q1("SELECT row_groups_read, row_groups_written, bytes_read, rows_dropped FROM strata.compact('dead')"), '4|0|0|8000', 'dead row groups are dropped unread');
is(q1("SELECT count(*) FROM strata.deletes WHERE store = 'dead'::regclass"), 0, 'with their deletes');
same_rows($node, 'dead', 'dead: rows');
verify_clean($node, 'dead', 'dead');

# ---- keyless, added and dropped columns ----
q1("CREATE FOREIGN TABLE plain (a int, b text) SERVER strata OPTIONS (auto_merge 'off')");
q1("INSERT INTO plain SELECT g, 'x' || g FROM generate_series(1, 100) g; CALL strata.drain('plain')") for 1 .. 5;
q1("ALTER FOREIGN TABLE plain ADD COLUMN c int DEFAULT 7; ALTER FOREIGN TABLE plain DROP COLUMN b");
q1("INSERT INTO plain VALUES (0, 8); CALL strata.drain('plain')");
is(q1("SELECT row_groups_read, row_groups_written FROM strata.compact('plain')"), '6|1', 'keyless: compacted');
is(q1("SELECT count(*), sum(a), sum(c), count(c) FROM plain"), '501|25250|3508|501', 'keyless: rows, with the missing value');

# ---- without a key index ----
q1(send_rows('dead', 1, 50, 6) . "CALL strata.drain('dead')");
q1("SELECT strata.drop_key_index('dead')");
q1("SELECT * FROM strata.compact('dead')");
same_rows($node, 'dead', 'no index: rows');
q1("SELECT strata.create_key_index('dead')");
index_exact('dead', 'index built after a compaction');
verify_clean($node, 'dead', 'no index');

# ---- rolled back, in a savepoint, with a merge in one transaction ----
q1(send_rows('small', $_ * 10, $_ * 10 + 20, 50 + $_) . "CALL strata.drain('small')") for 1 .. 6;
q1("BEGIN; SELECT * FROM strata.compact('small'); ROLLBACK");
same_rows($node, 'small', 'rolled back: rows');
q1("BEGIN; SAVEPOINT a; SELECT * FROM strata.compact('small'); ROLLBACK TO a; SELECT * FROM strata.compact('small'); SELECT * FROM strata.merge('small'); COMMIT");
same_rows($node, 'small', 'savepoint: rows');
index_exact('small', 'savepoint');
verify_clean($node, 'small', 'savepoint');
($ret, $out, $err) = $node->psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM strata.compact('small')");
like($err, qr/strata\.compact\(\) cannot run in a transaction of isolation level REPEATABLE READ/, 'REPEATABLE READ is refused');

# ---- every step: error, kill -9, SIGSEGV, cancel, terminate ----
for my $point ('compact-begin', 'pass-group-written', 'compact-written', 'pass-index-insert', 'compact-before-manifest', 'manifest-group-added', 'compact-after-manifest', 'compact-before-commit')
{
	for my $action ('error', 'kill', 'segv', 'terminate')
	{
		q1(send_rows('small', $_ * 20, $_ * 20 + 60, length($point) + $_) . "CALL strata.drain('small')") for 1 .. 3;
		if ($action eq 'terminate')
		{
			pause_arm($node, $point, 'hang');
			my $session = $node->background_psql('postgres', on_error_stop => 0);
			my $pid = $session->query('SELECT pg_backend_pid()');
			$session->{stdin} .= "SELECT * FROM strata.compact('small');\n";
			$session->{run}->pump_nb;
			pause_wait($node, $point);
			q1("SELECT pg_terminate_backend($pid)");
			pause_clear($node, $point);
			$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
			eval { $session->{run}->kill_kill };
		}
		else
		{
			pause_arm($node, $point, $action);
			isnt($node->psql('postgres', "SELECT * FROM strata.compact('small')"), 0, "$point, $action: failed");
			pause_clear($node, $point);
			$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
		}
		same_rows($node, 'small', "$point, $action: rows");
		verify_clean($node, 'small', "$point, $action");
	}
}
q1("SELECT * FROM strata.compact('small'); SELECT * FROM strata.sweep('small')");
same_rows($node, 'small', 'at the end: rows');
index_exact('small', 'at the end');
verify_clean($node, 'small', 'at the end');
crash($node);
$node->start;
same_rows($node, 'small', 'after a crash: rows');
verify_clean($node, 'small', 'after a crash');
q1("SELECT * FROM strata.sweep('small')");
is(q1("SELECT count(*) FROM strata.verify('small', swept => true)"), 0, 'nothing leaked by what failed');

# ---- gives way to DDL ----
q1(send_rows('small', $_ * 20, $_ * 20 + 60, 200 + $_) . "CALL strata.drain('small')") for 1 .. 3;
pause_arm($node, 'compact-written', 'wait');
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->{stdin} .= "SELECT * FROM strata.compact('small');\n";
$session->{run}->pump_nb;
pause_wait($node, 'compact-written');
my $ddl = $node->background_psql('postgres');
$ddl->{stdin} .= "ALTER FOREIGN TABLE small ADD COLUMN more int;\n\\echo added\n";
$ddl->{run}->pump_nb;
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'");
pause_clear($node, 'compact-written');
$ddl->{run}->pump until $ddl->{stdout} =~ /added/;
pass('ALTER went through');
$session->quit;
$ddl->quit;
q1("ALTER TABLE small_heap ADD COLUMN more int");
same_rows($node, 'small', 'after DDL: rows');
verify_clean($node, 'small', 'after DDL');

# Too late for that, in a transaction that may want the table next, which DDL has
# by now: it gives way at the end, in place of a deadlock.
q1(send_rows('small', $_ * 20, $_ * 20 + 60, 300 + $_) . "CALL strata.drain('small')") for 1 .. 3;
pause_arm($node, 'compact-before-commit', 'wait');
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->{stdin} .= "\\set VERBOSITY verbose\nBEGIN;\nSELECT * FROM strata.compact('small');\nSELECT count(*) FROM small;\nCOMMIT;\n\\echo ended\n";
$session->{run}->pump_nb;
pause_wait($node, 'compact-before-commit');
$ddl = $node->background_psql('postgres');
$ddl->{stdin} .= "ALTER FOREIGN TABLE small DROP COLUMN more;\n\\echo dropped\n";
$ddl->{run}->pump_nb;
$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'");
pause_clear($node, 'compact-before-commit');
$session->{run}->pump until $session->{stdout} =~ /ended/;
$ddl->{run}->pump until $ddl->{stdout} =~ /dropped/;
like($session->{stderr}, qr/55P03: strata\.compact\(\) of \S*small gave way to another session/, 'in a transaction block: 55P03');
unlike($session->{stderr}, qr/40P01/, 'no deadlock');
$session->quit;
$ddl->quit;
q1("ALTER TABLE small_heap DROP COLUMN more");
same_rows($node, 'small', 'after it gave way: rows');
verify_clean($node, 'small', 'after it gave way');

$node->stop;
done_testing();
