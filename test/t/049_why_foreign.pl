# README says why strata is a foreign table and not a table access method, and
# what that costs (P20).  What it says is so: core refuses what it lists on any
# foreign table, and the reasons hold.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my ($section) = slurp_file("$ENV{STRATA_TOP}/README.md") =~ /^## What it does not do, and why it is a foreign table\n(.*?)^## /ms;
ok($section, 'README has the section');
my ($why) = $section =~ /^(Why not a table access method: .*?)\n\n/ms;
ok($why, 'and the paragraph');

my $node = strata_node('why');
sub q1 { return $node->safe_psql('postgres', join ';', @_); }
sub state_of
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	return $err =~ /ERROR:\s+(\w{5}):/ ? $1 : 'done';
}

# ---- what core refuses, of another wrapper's tables, too ----
q1(<<'SQL');
CREATE FOREIGN DATA WRAPPER any_wrapper;
CREATE SERVER any_server FOREIGN DATA WRAPPER any_wrapper;
CREATE FOREIGN TABLE any_table (id int, v text) SERVER any_server;
CREATE FOREIGN TABLE t (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE heap (id int PRIMARY KEY, v text);
SQL
my %refused = (
	'secondary indexes' => 'CREATE INDEX ON @ (v)',
	'foreign keys' => 'CREATE TABLE r (id int REFERENCES @ (id))',
	'row security' => 'ALTER TABLE @ ENABLE ROW LEVEL SECURITY',
	'TABLESAMPLE' => 'SELECT * FROM @ TABLESAMPLE SYSTEM (1)',
	'MERGE' => 'MERGE INTO @ a USING heap b ON a.id = b.id WHEN MATCHED THEN DELETE',
	'`ON CONFLICT DO UPDATE`' => 'INSERT INTO @ VALUES (1) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v');
my ($list) = $section =~ /^- No ([^:]*):\s+core refuses them on any foreign table/m;
my @listed = split /,\s+(?:or\s+)?|\s+or\s+/, $list =~ s/\s+/ /gr;
is(join(' | ', sort @listed), join(' | ', sort keys %refused), 'what README lists is tried here');
for my $what (sort keys %refused)
{
	my ($heap, $any, $ours) = map { state_of("BEGIN; @{[ $refused{$what} =~ s/\@/$_/gr ]}; ROLLBACK") } qw(heap any_table t);
	is($heap, 'done', "$what: a heap table has it");
	isnt($any, 'done', "$what: no foreign table has it");
	is($ours, $any, "$what: nor has strata's, for the same reason");
}

# ---- a row fetched by a TID that fits a page ----
q1("INSERT INTO t SELECT g, repeat(md5(g::text), 40) FROM generate_series(1, 20000) g", "CALL strata.drain('t')",
	"INSERT INTO heap SELECT * FROM t", 'VACUUM ANALYZE heap', 'ANALYZE t');
like($why, qr/TID that fits its pages/, 'README names TIDs');
cmp_ok(q1('SELECT max((ctid::text::point)[1]) FROM t'), '>', 2048, 'the TIDs here have more rows than a page can have items');

# ---- planning as if reading a column were free ----
like($why, qr/plans for one as if reading a column were free/, 'README names costs');
my $cost = sub { my ($columns, $table) = @_; my ($cost) = q1("SET max_parallel_workers_per_gather = 0; SET enable_indexonlyscan = off; EXPLAIN SELECT $columns FROM $table") =~ /\.\.(\d+\.\d+)/; return $cost; };
is($cost->('id', 'heap'), $cost->('v', 'heap'), 'for a heap each column costs the same');
cmp_ok($cost->('v', 't'), '>', 2 * $cost->('id', 't'), 'here a wide one costs what it has to be read');

# ---- key lookups and single-row writes ----
like($why, qr/index lookups or\s+single-row writes/, 'README names lookups and writes');
like(q1('EXPLAIN SELECT * FROM t WHERE id = 77'), qr/Key Lookup/, 'a key is looked up');
my $wal = sub { my ($sql) = @_; return q1('CREATE TEMP TABLE at AS SELECT pg_current_wal_insert_lsn() AS lsn', $sql, 'SELECT pg_current_wal_insert_lsn() - lsn FROM at'); };
q1("INSERT INTO t VALUES (0, 'first')");	# full page images
cmp_ok($wal->("INSERT INTO t VALUES (-1, 'one row')"), '<', 4000, 'a row is written at the cost of a row');
is(q1('SELECT v FROM t WHERE id IN (-1, 0) ORDER BY id'), "one row\nfirst", 'and read at once');

# ---- every byte is in relations ----
like($why, qr/keep every\s+byte in relations that PostgreSQL manages/, 'README names relations');
q1('CHECKPOINT');
my $database = $node->data_dir . '/base/' . q1("SELECT oid FROM pg_database WHERE datname = 'postgres'");
my %known = map { $_ => 1 } split /\n/, q1('SELECT pg_relation_filenode(oid) FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL');
is(join(' ', grep { m{/(\d+)(?:_\w+)?(?:\.\d+)?$} && !$known{$1} } glob "$database/*"), '', 'no file of the database belongs to no relation');
my ($found) = run_command([ 'find', $node->data_dir, '-name', '*strata*', '-not', '-path', '*/pg_stat_tmp/*' ]);
is($found, '', 'and nothing of strata is anywhere else');
my @kinds = split /\n/, q1("SELECT DISTINCT concat_ws(' ', c.relkind, a.amname) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relnamespace = 'strata'::regnamespace AND c.oid > 16383 ORDER BY 1");
is(join(', ', @kinds), 'i btree, r heap, r strata_storage', 'these are tables and B-trees');
$node->stop;
done_testing();
