# strata.set_tablespace(): storage and key index move with the transaction,
# nobody but the owner with CREATE on the tablespace moves them, and a crash or
# a standby finds them where the commit put them (C6).
use strict;
use warnings;
BEGIN { $ENV{PG_TEST_TIMEOUT_DEFAULT} //= 60; }
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('tablespace', streaming => 1, autovacuum => 'off', allow_in_place_tablespaces => 'on');
sub sql { return $node->safe_psql('postgres', @_); }
# The SQLSTATE of what must fail, "" if it does not.
sub state_of
{
	my ($statement, $prefix) = @_;
	my (undef, undef, $stderr) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n" . ($prefix // '') . ";\n$statement");
	return join ' ', $stderr =~ /ERROR:  (\w{5})$/mg;
}
sql("CREATE TABLESPACE $_ LOCATION ''") for 'one', 'two';
create_pair($node, 't', "auto_merge 'off', row_group_rows '500'");
sql(send_rows('t', 1, 1200, 1, 300));
drain($node, 't');
sql(send_rows('t', 1000, 1400, 2, 300));
create_pair($node, 'other', "auto_merge 'off'");
my $storage = sql("SELECT storage::oid FROM strata.stores WHERE store = 't'::regclass");
my $where = "SELECT string_agg(coalesce(spcname, 'pg_default'), ' ' ORDER BY relkind DESC) FROM pg_class c LEFT JOIN pg_tablespace s ON s.oid = reltablespace"
	. " WHERE c.oid = $storage OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $storage)";
sub files
{
	my ($name) = @_;
	my $dir = $node->data_dir . '/pg_tblspc/' . sql("SELECT oid FROM pg_tablespace WHERE spcname = '$name'");
	return scalar grep { -f && -s _ } glob "$dir/PG_*/*/*";
}

# ---- there and back ----
is(sql($where), 'pg_default pg_default', 'a store is made in the database\'s tablespace');
sql("SELECT strata.set_tablespace('t', 'one')");
is(sql($where), 'one one', 'storage and key index are moved');
same_rows($node, 't', 'the rows are the same');
is(sql("SELECT count(*) FROM t WHERE id = (SELECT id FROM t_heap WHERE run_id IS NOT NULL ORDER BY id LIMIT 1)"), 1, 'a key is found');
verify_clean($node, 't', 'moved');
sql(send_rows('t', 1300, 1500, 3, 300));
drain($node, 't');
same_rows($node, 't', 'it is written to and merged');
sql("SELECT strata.drop_key_index('t'); SELECT strata.create_key_index('t')");
is(sql($where), 'one one', 'a new key index goes there, too');
sql("BEGIN; TRUNCATE t; ROLLBACK; VACUUM FULL " . sql("SELECT $storage::regclass"));
is(sql($where), 'one one', 'new files stay there');
same_rows($node, 't', 'with their rows');
sql("SELECT strata.set_tablespace('t', 'one')");
is(sql($where), 'one one', 'a move to where it is does nothing');
is(state_of('DROP TABLESPACE one'), '55000', 'a tablespace in use is not dropped');

# ---- transactions ----
sql("BEGIN; SELECT strata.set_tablespace('t', 'two'); " . send_rows('t', 1, 50, 4) . 'ROLLBACK');
is(sql($where), 'one one', 'rolled back');
same_rows($node, 't', 'as it was');
sql("BEGIN; " . send_rows('t', 1, 50, 5) . "SAVEPOINT a; SELECT strata.set_tablespace('t', 'two'); " . send_rows('t', 51, 100, 6)
	. "ROLLBACK TO a; " . send_rows('t', 101, 150, 7) . "SELECT strata.set_tablespace('t', 'two'); " . send_rows('t', 151, 200, 8) . 'COMMIT');
is(sql($where), 'two two', 'back to a savepoint, then moved');
same_rows($node, 't', 'rows written before and after the move');
verify_clean($node, 't', 'moved among writes');
sql('CHECKPOINT');
is(files('one'), 0, 'nothing is left behind');
sql('DROP TABLESPACE one');
sql("CREATE TABLESPACE one LOCATION ''");
sql("CREATE TABLE in_ddl AS SELECT strata.set_tablespace('t', 'one') IS NULL AS done");
is(sql($where), 'one one', 'called within another command');

# ---- who may, and what not ----
sql("CREATE ROLE owner; CREATE ROLE stranger; ALTER FOREIGN TABLE t OWNER TO owner; GRANT ALL ON t TO stranger; GRANT CREATE ON TABLESPACE two TO stranger");
is(state_of("SELECT strata.set_tablespace('t', 'two')", 'SET ROLE stranger'), '42501', 'only the owner');
is(state_of("SELECT strata.set_tablespace('t', 'two')", 'SET ROLE owner'), '42501', 'with CREATE on the tablespace');
is(state_of("SELECT strata.set_tablespace('t', 'pg_default')", 'SET ROLE owner'), '', 'or to the database\'s own');
is(sql($where), 'pg_default pg_default', 'that went well');
sql('GRANT CREATE ON TABLESPACE two TO owner');
is(state_of("SELECT strata.set_tablespace('t', 'two')", 'SET ROLE owner'), '', 'an owner with CREATE');
is(sql($where), 'two two', 'that too');
is(sql("SET ROLE owner; SELECT strata.set_tablespace('t', 'two'); SELECT current_user"), "\nowner", 'and is who he was');
is(state_of("SELECT strata.set_tablespace('t', 'pg_global')"), '22023', 'not to where shared catalogs are');
is(state_of("SELECT strata.set_tablespace('t', 'nosuch')"), '42704', 'not to nowhere');
is(state_of("SELECT strata.set_tablespace('t_heap', 'two')"), '42809', 'not a heap table');
sql("CREATE FOREIGN TABLE t_wal (id text) SERVER strata OPTIONS (store 't', layer 'wal')");
is(state_of("SELECT strata.set_tablespace('t_wal', 'two')"), '42809', 'not a table over a layer');
is(state_of("SELECT strata.set_tablespace('t', 'one')", 'BEGIN READ ONLY'), '25006', 'not in a read-only transaction');
is(state_of("FETCH 1 FROM c; SELECT strata.set_tablespace('t', 'one')", "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t"), '55006', 'not under a cursor');
is(state_of("FETCH 1 FROM c; SELECT strata.set_tablespace('t', 'one')", "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t_wal"), '55006', 'nor under one over a layer');
is(state_of('ALTER FOREIGN TABLE t SET TABLESPACE one'), '42809', 'core has no command for it');

# ---- other ways ----
sql("SET default_tablespace = two; CREATE FOREIGN TABLE made_there (id int) SERVER strata OPTIONS (key 'id')");
is(sql("SELECT spcname FROM pg_class c JOIN pg_tablespace s ON s.oid = reltablespace WHERE c.oid = (SELECT storage FROM strata.stores WHERE store = 'made_there'::regclass)"),
	'two', 'default_tablespace holds for new tables');
is(state_of("SET default_tablespace = one; CREATE FOREIGN TABLE denied (id int) SERVER strata", 'GRANT USAGE ON FOREIGN SERVER strata TO owner; GRANT CREATE ON SCHEMA public TO owner; SET ROLE owner'),
	'42501', 'with CREATE on it');
sql('ALTER TABLE ALL IN TABLESPACE two SET TABLESPACE one; ALTER INDEX ALL IN TABLESPACE two SET TABLESPACE one');
is(sql($where), 'one one', 'ALTER TABLE ALL IN TABLESPACE, by a superuser');
same_rows($node, 't', 'moved with others');
sql('DROP TABLESPACE two');
sql("CREATE TABLESPACE two LOCATION ''");

# ---- a crash before the commit, and right after it ----
my $before = fingerprint($node, 't');
pause_arm($node, 'manifest-tablespace-moved', 'kill');
$node->psql('postgres', "SELECT strata.set_tablespace('t', 'two')");
pause_clear($node, 'manifest-tablespace-moved');
$node->stop('immediate', fail_ok => 1);
$node->start;
is(sql($where), 'one one', 'a move that a crash cut off did not happen');
is(fingerprint($node, 't'), $before, 'no row was lost by it');
sql("CHECKPOINT; SELECT strata.set_tablespace('t', 'two')");
crash($node);
$node->start;
is(sql($where), 'two two', 'a move that was committed did');
is(fingerprint($node, 't'), $before, 'with all rows');
verify_clean($node, 't', 'after crashes');

# ---- a standby ----
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
sql("SELECT strata.set_tablespace('t', 'pg_default')");
sql(send_rows('t', 1600, 1700, 9, 300));
sql("SELECT strata.set_tablespace('t', 'one')");
drain($node, 't');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', $where), 'one one', 'a standby moves it, too');
is(fingerprint($standby, 't'), fingerprint($node, 't'), 'and has the rows');
same_rows($node, 't', 'all of them');
is($standby->safe_psql('postgres', "SELECT count(*) FROM t WHERE id = (SELECT max(id) FROM t_heap)"), 1, 'a key is found there');
my (undef, undef, $stderr) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT strata.set_tablespace('t', 'two')");
like($stderr, qr/25006/, 'where nothing is moved');

done_testing();
