# pg_upgrade from PostgreSQL 15 to a later major version carries tables (P15).
# test/run builds strata for Debian's 15, too, when it is given a later server
# (STRATA_PG_CONFIG); without one there is nothing to upgrade to.  STRATA_OLD_PG
# names another installation of 15 that has strata.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $old_pg = $ENV{STRATA_OLD_PG} // '';
plan skip_all => 'no other version of PostgreSQL (STRATA_PG_CONFIG)' if $old_pg eq '';

my $conf = "shared_preload_libraries = 'strata'\nstrata.max_workers = 0\n";
my $old = PostgreSQL::Test::Cluster->new('old', install_path => $old_pg);
$old->init(extra => ['-k']);
$old->append_conf('postgresql.conf', $conf);
$old->start;
# A minor version may write into the catalog what the later server's does not know yet.
if ($old->safe_psql('postgres', "SELECT count(*) FROM pg_attribute WHERE attoptions::text LIKE '%pg_attver%'") > 0)
{
	$old->stop;
	plan skip_all => 'pg_upgrade would fail with any table: the earlier server sets a column option of its own (pg_attver)';
}
$old->safe_psql('postgres', <<'SQL');
CREATE EXTENSION strata;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE FOREIGN TABLE t (id text NOT NULL, gone int, n positive, j jsonb, a int[], twice int GENERATED ALWAYS AS (n * 2) STORED, payload text, given text NOT NULL)
    SERVER strata OPTIONS (key 'id', row_group_rows '500');
INSERT INTO t (id, gone, n, j, a, payload, given) SELECT 'k' || i, i, i, jsonb_build_object('i', i), ARRAY[i, NULL], repeat(md5(i::text), i % 50), 'given' FROM generate_series(1, 2000) i;
CALL strata.drain('t');
INSERT INTO t (id, n, payload, given) SELECT 'k' || i, i + 5000, 'new', '' FROM generate_series(1500, 2500) i;
DELETE FROM t WHERE n % 7 = 0;
BEGIN; INSERT INTO t (id, given) VALUES ('aborted', ''); ROLLBACK;
ALTER FOREIGN TABLE t DROP COLUMN gone;
ALTER FOREIGN TABLE t ADD COLUMN added timestamptz DEFAULT '2026-01-01 00:00+00';
CREATE FOREIGN TABLE numbers (run int NOT NULL, step numeric NOT NULL, v bytea) SERVER strata OPTIONS (key 'run,step', shards '3', on_duplicate 'error');
INSERT INTO numbers SELECT i % 7, i, decode(md5(i::text), 'hex') FROM generate_series(1, 300) i;
CREATE FOREIGN TABLE keyless (line text) SERVER strata;
INSERT INTO keyless SELECT 'line ' || i % 10 FROM generate_series(1, 100) i;
CREATE TABLE p (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE TABLE p_heap PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE FOREIGN TABLE p_strata PARTITION OF p FOR VALUES FROM (100) TO (300) SERVER strata OPTIONS (key 'id');
INSERT INTO p SELECT i, 'v' || i FROM generate_series(0, 299) i;
CREATE FOREIGN TABLE empty (id int) SERVER strata OPTIONS (key 'id');
SQL

my @tables = qw(t numbers keyless p empty);
my $at = sub { my ($node) = @_; return join "\n", map { fingerprint($node, $_) } @tables; };
my $columns = "SELECT string_agg(concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, attgenerated), ', ' ORDER BY attrelid::regclass::text, attnum) FROM pg_attribute WHERE attrelid::regclass::text IN ('t', 'numbers', 'keyless', 'p_strata', 'empty') AND attnum > 0 AND NOT attisdropped";
my $rows = $at->($old);
my $definition = $old->safe_psql('postgres', $columns);
my $groups = $old->safe_psql('postgres', 'SELECT count(*), sum(rows) FROM strata.row_groups');
$old->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
$new->init(extra => ['-k']);
$new->append_conf('postgresql.conf', $conf);
chdir PostgreSQL::Test::Utils::tempdir;
my @upgrade = ('pg_upgrade', '--no-sync', '--link', '-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
	'-d', $old->data_dir, '-D', $new->data_dir, '-s', $new->host, '-p', $old->port, '-P', $new->port);
command_ok([ @upgrade, '--check' ], 'pg_upgrade --check');
command_ok(\@upgrade, 'pg_upgrade');

$new->start;
is($at->($new), $rows, 'rows, before any write');
is($new->safe_psql('postgres', $columns), $definition, 'columns');
is($new->safe_psql('postgres', 'SELECT count(*), sum(rows) FROM strata.row_groups'), $groups, 'row groups');
verify_clean($new, $_, $_) for qw(t numbers keyless p_strata empty);
is($new->safe_psql('postgres', "SET enable_seqscan = off; SELECT n, payload, added IS NOT NULL FROM t WHERE id = 'k1501'"), '6501|new|t', 'a row by its key');
$new->safe_psql('postgres', "CALL strata.drain('$_')") for qw(t numbers keyless p_strata);
is($at->($new), $rows, 'rows, after a merge');
verify_clean($new, $_, "$_ merged") for qw(t numbers keyless p_strata);

# It goes on as a table of that version.
my ($rc, $out, $err) = $new->psql('postgres', "UPDATE t SET given = NULL WHERE id = 'k1'");
like($err, qr/null value in column "given" of relation "t" violates not-null constraint/, 'NOT NULL holds');
($rc, $out, $err) = $new->psql('postgres', 'ALTER FOREIGN TABLE t ALTER payload SET NOT NULL, ALTER j SET NOT NULL');
like($err, qr/column "j" of relation "t" contains null values/, 'and is checked when it is new');
$new->safe_psql('postgres', "UPDATE t SET j = '{}' WHERE j IS NULL; ALTER FOREIGN TABLE t ALTER j SET NOT NULL; VACUUM (FREEZE); VACUUM FULL");
$new->safe_psql('postgres', "REINDEX DATABASE postgres");
verify_clean($new, 't', 'rewritten');
$new->safe_psql('postgres', "DROP FOREIGN TABLE keyless; CREATE FOREIGN TABLE after (id int) SERVER strata OPTIONS (key 'id'); INSERT INTO after VALUES (1); DROP EXTENSION strata CASCADE");
is($new->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relname ~ '^s[0-9]+(_key)?\$'"), 0, 'stores still belong to the extension');
$new->stop;
done_testing();
