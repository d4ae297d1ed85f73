# Where numbers end (P32), what a table of the manifest may look like (P39), errors
# within subtransactions (P35), and what recovery and shared memory depend on
# (P79).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('bounds');
sub q1 { return $node->safe_psql('postgres', join ';', @_); }

# a statement that must fail: with which SQLSTATE, and what is said
sub fails
{
	my ($sql, $state, $what) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	my ($got) = $err =~ /ERROR:\s+(\w{5}):/;
	is($got, $state, $what) or diag $err;
	return $err;
}

# ---- P32: numbers end with 54000, and nothing is lost ----

# Shortly before the end, as if the table had come so far: by writing its pages
# and the manifest.  What the pages hold is at the offsets of storage/metapage.h
# and storage/extent.h.
use constant { MAX => 0x7FFFFFF0, CONTENTS => 24 };
my @tables = qw(by_generation by_group by_owner by_incarnation);
for my $table (@tables)
{
	q1("CREATE FOREIGN TABLE $table (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')",
		"INSERT INTO $table SELECT g, md5(g::text) FROM generate_series(1, 500) g", "CALL strata.drain('$table')");
}
q1('TRUNCATE by_generation');
my %path = map { $_ => $node->data_dir . '/' . q1("SELECT pg_relation_filepath(storage) FROM strata.store WHERE foreign_table = '$_'::regclass") } @tables;
q1("UPDATE strata.shard SET merged_through = @{[ MAX - 2 ]} WHERE store = 'by_generation'::regclass",
	map { "UPDATE strata.$_ SET incarnation = 2147483647 WHERE @{[ $_ eq 'store' ? 'foreign_table' : 'store' ]} = 'by_incarnation'::regclass" } qw(store shard row_group deletes dictionary pass));
$node->stop;
system_or_bail('pg_checksums', '--disable', '-D', $node->data_dir);
sub poke
{
	my ($table, $block, $offset, $old, $bytes) = @_;
	open my $file, '+<', $path{$table} or die "$path{$table}: $!";
	binmode $file;
	seek $file, $block * 8192 + CONTENTS + $offset, 0;
	read $file, my $there, length $bytes;
	is(unpack('H*', $there), unpack('H*', $old), "$table: the number is where it is looked for") if defined $old;
	seek $file, $block * 8192 + CONTENTS + $offset, 0;
	print $file $bytes;
	close $file;
	return;
}
poke('by_generation', 2, 4, pack('L', 3), pack('L', MAX - 1));
poke('by_group', 0, 16, pack('L', 2), pack('L', MAX - 1));
poke('by_owner', 1, 0, undef, pack('Q', (1 << 62) - 3));
poke('by_incarnation', 0, 8, pack('L', 1), pack('L', 2147483647));
$node->start;

my $all = 'SELECT count(*) || \' \' || sum(id) FROM';
sub holds
{
	my ($table, $n, $what) = @_;
	is(q1("$all $table"), "$n " . $n * ($n + 1) / 2, "$table: $what");
	verify_clean($node, $table, "$table: $what");
	return;
}

# generations: the last one takes rows for good, and is not sealed
q1("INSERT INTO by_generation SELECT g FROM generate_series(1, 1000) g", "CALL strata.drain('by_generation')");
holds('by_generation', 1000, 'the last generation but one is merged');
is(q1("SELECT generation, state FROM strata.generations WHERE store = 'by_generation'::regclass"), '', 'the last one is empty');
q1("INSERT INTO by_generation SELECT g FROM generate_series(1001, 1500) g");
is(q1("SELECT generation, state, rows FROM strata.generations WHERE store = 'by_generation'::regclass"), MAX . '|active|500', 'the last one takes rows');
like(fails("SELECT * FROM strata.seal('by_generation')", '54000', 'sealing it is refused'), qr/used up its generation numbers/, 'it says of what');
fails("CALL strata.drain('by_generation')", '54000', 'and drain');
fails('TRUNCATE by_generation', '54000', 'and TRUNCATE');
holds('by_generation', 1500, 'everything is there');
q1("ALTER FOREIGN TABLE by_generation OPTIONS (ADD generation_max_rows '1')");
fails('INSERT INTO by_generation VALUES (1501)', '54000', 'a writer that would have to seal it');
holds('by_generation', 1500, 'leaves nothing');

# row groups
q1("INSERT INTO by_group SELECT g FROM generate_series(501, 1000) g", "CALL strata.drain('by_group')");
holds('by_group', 1000, 'the last row group is written');
is(q1("SELECT max(number) FROM strata.row_groups WHERE store = 'by_group'::regclass"), MAX - 1, 'with the last number');
q1("INSERT INTO by_group SELECT g FROM generate_series(1001, 1500) g");
for my $pass ("CALL strata.drain('by_group')", "SELECT * FROM strata.merge('by_group')", "SELECT * FROM strata.compact('by_group')")
{
	like(fails($pass, '54000', "$pass is refused"), qr/used up its row group numbers/, 'it says of what');
}
holds('by_group', 1500, 'everything is there');
q1("INSERT INTO by_group SELECT g, 'again' FROM generate_series(1, 1501) g");
holds('by_group', 1501, 'writing goes on');

# owner ids: each extent takes one
my $n = 500;
my ($rc, $out, $err);
do
{
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nINSERT INTO by_owner SELECT g, string_agg(md5(g::text || i), '') FROM generate_series($n + 1, $n + 500) g, generate_series(1, 300) i GROUP BY g");
	$n += 500 if $rc == 0;
} while ($rc == 0 && $n < 20000);
like($err, qr/ERROR:\s+54000: .* has used up its owner numbers/, 'an extent that would take one id too many is refused');
holds('by_owner', $n, 'everything that was acknowledged is there');
fails('TRUNCATE by_owner', '54000', 'and TRUNCATE');

# incarnations
holds('by_incarnation', 500, 'the last incarnation works');
fails('TRUNCATE by_incarnation', '54000', 'TRUNCATE is refused there');
holds('by_incarnation', 500, 'everything is there');
q1("INSERT INTO by_incarnation SELECT g FROM generate_series(501, 600) g", "CALL strata.drain('by_incarnation')");
holds('by_incarnation', 600, 'and can be written');

# what the hint says
crash($node);
$node->start;
my %rows = (by_generation => 1500, by_group => 1501, by_owner => $n, by_incarnation => 600);
for my $table (@tables)
{
	holds($table, $rows{$table}, 'after a crash');
	q1("CREATE FOREIGN TABLE again (id int, v text) SERVER strata OPTIONS (key 'id')", "INSERT INTO again SELECT * FROM $table",
		"DROP FOREIGN TABLE $table", "ALTER FOREIGN TABLE again RENAME TO $table", "CALL strata.drain('$table')");
	holds($table, $rows{$table}, 'in a new table');
	q1("DROP FOREIGN TABLE $table");
}

# ---- P39: columns of own tables that came and went, or are others ----
q1(<<'SQL');
CREATE FUNCTION words(g int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5((hashint4(g * 31 + i) % 400)::text), ' ') FROM generate_series(1, 20) i
$$;
CREATE FOREIGN TABLE t (id int, n int, v text) SERVER strata OPTIONS (key 'id', row_group_rows '1000', auto_merge 'off');
CREATE TABLE t_heap (id int PRIMARY KEY, n int, v text);
CREATE PROCEDURE put(first int, last int, v int) LANGUAGE plpgsql AS $$BEGIN
	INSERT INTO t SELECT g, v, words(g) FROM generate_series(first, last) g;
	INSERT INTO t_heap SELECT g, v, words(g) FROM generate_series(first, last) g ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n;
END$$;
DO $$BEGIN FOR i IN 0 .. 59 LOOP CALL put(i * 100 + 1, i * 100 + 100, 1); END LOOP; END$$;
CALL strata.drain('t');
CALL put(5000, 7000, 2);
CALL strata.drain('t');
CALL put(6500, 7100, 3);
SQL
my @manifest = qw(store shard row_group dictionary deletes pass);
is(q1('SELECT ' . join ', ', map { "EXISTS (TABLE strata.$_)" } @manifest), 't|t|t|t|t|t', 'every table of the manifest has rows');

# All that can be done, with what goes wrong: statements here change no rows.
my @statements = ('SELECT count(*), sum(n), sum(length(v)) FROM t', 'SELECT v FROM t WHERE id = 5500', 'SELECT * FROM t ORDER BY id LIMIT 3',
	'BEGIN; INSERT INTO t SELECT g, 0 FROM generate_series(1, 300) g', 'SELECT count(*) FROM t; ROLLBACK',
	'CREATE FOREIGN TABLE made (id int, v text) SERVER strata OPTIONS (key \'id\')', 'INSERT INTO made VALUES (1)',
	'ALTER FOREIGN TABLE made ADD COLUMN x int DEFAULT 7', 'CALL strata.drain(\'made\')', 'TRUNCATE made', 'DROP FOREIGN TABLE made',
	'SELECT * FROM strata.merge(\'t\')', 'CALL strata.drain(\'t\')', 'SELECT * FROM strata.compact(\'t\')', 'SELECT * FROM strata.sweep(\'t\')',
	'SELECT * FROM strata.verify(\'t\')', 'SELECT count(*) FROM strata.stores', 'SELECT count(*) FROM strata.row_groups', 'SELECT count(*) FROM strata.merges', 'VACUUM FREEZE');
sub states
{
	my %states;
	my ($rc, $out, $err) = $node->psql('postgres', join(";\n", '\set VERBOSITY verbose' . "\nSELECT 1", @statements, "SELECT 'alive'"), on_error_stop => 0);
	like($out, qr/^alive$/m, 'the session lives');
	$states{$1}++ while $err =~ /ERROR:\s+(\w{5})/g;
	delete @states{qw(25P02 42P01 42P07 42704)};	# after an error before
	return join ' ', sort keys %states;
}
# As in a script of the extension, which its event triggers leave alone.
sub alter
{
	my @triggers = qw(strata_ddl_command_end strata_sql_drop);
	return q1((map { "ALTER EVENT TRIGGER $_ DISABLE" } @triggers), @_, map { "ALTER EVENT TRIGGER $_ ENABLE ALWAYS" } @triggers);
}
my $kept = $node->background_psql('postgres', on_error_stop => 0);	# has things in its caches
my $count = "SELECT count(*) || ' ' || sum(length(v) + n) FROM";
my $step = 3;
sub works
{
	my ($what) = @_;
	q1('DROP FOREIGN TABLE IF EXISTS made');
	same_rows($node, 't', "$what: same rows");
	is($kept->query("$count t"), q1("$count t_heap"), "$what: also in a session that was there before");
	is(states(), '', "$what: everything works");
	$step++;
	q1("CALL put(7000, 7100 + $step, $step)", "UPDATE t SET n = n + 1 WHERE id % 50 = 7", "UPDATE t_heap SET n = n + 1 WHERE id % 50 = 7",
		"CALL strata.drain('t')", "CALL put(7050, 7060, 9)");
	same_rows($node, 't', "$what: same rows after changes");
	verify_clean($node, 't', $what);
	return;
}
works('as made');
for my $table (@manifest)
{
	alter("ALTER TABLE strata.$table ADD COLUMN later int");
	is(states(), '55000', "strata.$table has one more column: refused");
	like($kept->query("$count t") . $kept->{stderr}, qr/^@{[ q1("$count t_heap") ]}$|table strata\.$table does not have the columns/, 'also in a session that was there before');
	$kept->{stderr} = '';
	alter("ALTER TABLE strata.$table DROP COLUMN later");
	works("strata.$table without it again");
}
alter(map { "ALTER TABLE strata.$_ ADD COLUMN later int, ADD COLUMN last text DEFAULT 'x'; ALTER TABLE strata.$_ DROP COLUMN last, DROP COLUMN later" } @manifest);
works('all of them, once more');
alter('ALTER TABLE strata.shard ALTER rows TYPE text');
is(states(), '55000', 'a column of another type: refused');
alter('ALTER TABLE strata.shard ALTER rows TYPE bigint USING rows::bigint');
works('as it was');
alter('ALTER TABLE strata.pass RENAME ended TO aside', 'ALTER TABLE strata.pass ADD ended timestamptz', 'UPDATE strata.pass SET ended = aside', 'ALTER TABLE strata.pass DROP aside', 'ALTER TABLE strata.pass ALTER ended SET NOT NULL');
works('a column that was made anew behind the dropped ones');
$kept->quit;

done_testing();
