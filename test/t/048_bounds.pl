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

# ---- P35: what ends a subtransaction does not throw ----
# Statements with rows in memory start, end and abort subtransactions by the
# thousand, all with errors of all kinds in the middle of statements; one session
# does all of it and lives, and what it leaves is what heap tables have.
q1(<<'SQL');
CREATE FOREIGN TABLE s (id int, n int, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error', auto_merge 'off', generation_max_rows '500');
CREATE FOREIGN TABLE s_side (id int, n int, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error', auto_merge 'off', shards '3');
CREATE TABLE s_heap (id int PRIMARY KEY, n int, v text);
CREATE TABLE s_side_heap (id int PRIMARY KEY, n int, v text);
-- one subtransaction within the other; in each something is written, and most fail
CREATE FUNCTION nested(heap text, g int, depth int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	side text := 's_side' || heap;
	k int := g * 1000 + depth * 10;
	found int := 0;
	r record;
BEGIN
	IF depth > 0 THEN found := nested(heap, g, depth - 1); END IF;
	EXECUTE format('INSERT INTO %I VALUES (%s, %s)', side, k, depth);
	CASE (g * 7 + depth) % 9
		WHEN 0 THEN RAISE 'own';
		WHEN 1 THEN EXECUTE format('INSERT INTO %I SELECT %s + i, 1 / (3 - i) FROM generate_series(1, 5) i', side, k);
		WHEN 2 THEN EXECUTE format('INSERT INTO %I VALUES (%s), (%s)', side, k + 1, k + 1);
		WHEN 3 THEN EXECUTE format('INSERT INTO %I SELECT %s + i FROM generate_series(0, 5) i', side, k);
		WHEN 4 THEN EXECUTE format('UPDATE %I SET n = n + 1 WHERE id BETWEEN %s AND %s', side, k - 10, k);
		WHEN 5 THEN EXECUTE format('UPDATE %I SET n = 1 / (id - %s) WHERE id BETWEEN %s AND %s', side, k, k - 10, k);
		WHEN 6 THEN
			FOR r IN EXECUTE format('SELECT * FROM %I WHERE id BETWEEN %s AND %s ORDER BY id', side, g * 1000, k) LOOP
				BEGIN
					EXECUTE format('DELETE FROM %I WHERE id = %s', side, r.id);
					IF r.id % 20 = 0 THEN PERFORM 1 / 0; END IF;
				EXCEPTION WHEN division_by_zero THEN found := found + 1;
				END;
			END LOOP;
		ELSE NULL;
	END CASE;
	EXECUTE format('SELECT count(*) FROM %I WHERE id BETWEEN %s AND %s', side, g * 1000, g * 1000 + 999) INTO r;
	RETURN found + r.count;
EXCEPTION WHEN OTHERS THEN
	RETURN found - 1;
END$$;
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		NEW.v := nested(TG_ARGV[0], 5000 + NEW.id, 2);
		IF NEW.id % 3 = 0 THEN RAISE 'own'; END IF;
	EXCEPTION WHEN raise_exception THEN NEW.v := 'refused';
	END;
	RETURN NEW;
END$$;
CREATE TRIGGER noted BEFORE INSERT ON s FOR EACH ROW EXECUTE FUNCTION noted('');
CREATE TRIGGER noted BEFORE INSERT ON s_heap FOR EACH ROW EXECUTE FUNCTION noted('_heap');
INSERT INTO s SELECT g, 0 FROM generate_series(1001, 1010) g;
INSERT INTO s_heap SELECT g, 0 FROM generate_series(1001, 1010) g;
CALL strata.drain('s');
SQL
my $started = q1('SELECT pg_postmaster_start_time()');
my $logged = -s $node->logfile;
my @script = ('SELECT pg_backend_pid() AS pid \gset');
for my $heap ('_heap', '')
{
	push @script, "INSERT INTO s$heap SELECT g, nested('$heap', g, 20) FROM generate_series(1, 40) g;",
		# a duplicate in memory, not known as one, while subtransactions come and go
		"INSERT INTO s$heap SELECT CASE g WHEN 1 THEN 1001 ELSE 40 + g END, nested('$heap', 40 + g, 5) FROM generate_series(1, 20) g;",
		"BEGIN; DECLARE before CURSOR WITH HOLD FOR SELECT * FROM s$heap ORDER BY id; FETCH 2 FROM before;";
	# savepoints within savepoints: an error in every second
	for my $level (1 .. 150)
	{
		push @script, "SAVEPOINT s$level; INSERT INTO s$heap VALUES (" . (2000 + $level) . ", $level); FETCH FROM before;";
		push @script, "DECLARE c$level CURSOR FOR SELECT * FROM s_side$heap ORDER BY id; FETCH c$level;" if $level % 10 == 4;
		push @script, "INSERT INTO s$heap SELECT 3000 + g, 1 / (3 - g) FROM generate_series(1, 5) g; ROLLBACK TO s$level;" if $level % 2;
		push @script, "INSERT INTO s$heap VALUES (1001, 0); ROLLBACK TO s$level; INSERT INTO s$heap VALUES (" . (4000 + $level) . ", 0);" if $level % 5 == 0;
	}
	push @script, 'RELEASE s140; FETCH c134; ROLLBACK TO s100; FETCH c94; FETCH 3 FROM before; SELECT 1 / 0; ROLLBACK TO s60; RELEASE s20;',
		"INSERT INTO s$heap SELECT 5000 + g, nested('$heap', g, 3) FROM generate_series(100, 110) g; COMMIT; FETCH 2 FROM before; CLOSE before;";
}
push @script, "SELECT 'alive', pg_backend_pid() = :pid;";
($rc, $out, $err) = $node->psql('postgres', join("\n", '\set VERBOSITY verbose', @script), on_error_stop => 0);
like($out, qr/^alive\|t$/m, 'the session lives');
my %states;
$states{$1}++ while $err =~ /ERROR:\s+(\w{5}):/g;
is(join(' ', map { "$_ $states{$_}" } sort keys %states), '22012 152 23505 62', 'as many errors as provoked');
my ($on_heap, $on_strata) = map { join ' ', @$_ } do {
	my @fetched = grep { !/alive/ } split /\n/, $out;
	([ @fetched[ 0 .. @fetched / 2 - 1 ] ], [ @fetched[ @fetched / 2 .. $#fetched ] ]);
};
is($on_strata, $on_heap, 'cursors show the same');
same_rows($node, $_, "$_ has the same rows") for qw(s s_side);
cmp_ok(q1('SELECT count(*) FROM s_side'), '>', 50, 'which are many');

# failures that only strata has, anywhere in an append, and no memory
my $before = fingerprint($node, 's_side');
for my $point (qw(log-flush-linked log-append-before-record))
{
	for my $try (1 .. 5)
	{
		pause_arm($node, $point, 'error');
		($rc, $out, $err) = $node->psql('postgres', "SELECT pg_backend_pid() AS pid \\gset\nBEGIN; SAVEPOINT a; INSERT INTO s SELECT 8000 + g, nested('', 200 + g, $try) FROM generate_series(1, 3) g; SAVEPOINT b; ROLLBACK TO a; SELECT nested('', 300, $try); SAVEPOINT c; INSERT INTO s VALUES (8100, 1); ROLLBACK;\nSELECT 'alive', pg_backend_pid() = :pid", on_error_stop => 0);
		pause_clear($node, $point);
		like($out, qr/^alive\|t$/m, "$point fails, $try deep: the session lives");
	}
}
is(fingerprint($node, 's_side'), $before, 'nothing of it is there');
is(q1('SELECT pg_postmaster_start_time()'), $started, 'the server never restarted');
my $log = substr slurp_file($node->logfile), $logged;
unlike($log, qr/PANIC|TRAP|terminated by signal|FATAL/, 'and no session was ended');
$node->stop;
system_or_bail('sh', '-c', 'ulimit -v 900000 && exec pg_ctl -w -s -D "$0" -l "$1" -o "--cluster-name=bounds" start', $node->data_dir, $node->logfile);
$node->_update_pid(1);
$logged = -s $node->logfile;
($rc, $out, $err) = $node->psql('postgres', <<'SQL', on_error_stop => 0);
SELECT pg_backend_pid() AS pid \gset
CREATE FUNCTION large(g int, depth int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF depth > 0 THEN PERFORM large(g, depth - 1); END IF;
	INSERT INTO s_side VALUES (100000000 + g * 100 + depth);
	INSERT INTO s_side SELECT 150000000 + i, 0, repeat(md5(i::text), CASE i WHEN 8 THEN 25000000 ELSE 1000 END) FROM generate_series(1, 8) i;
	RETURN 0;
EXCEPTION WHEN out_of_memory THEN
	RETURN 1;
END$$;
BEGIN;
SAVEPOINT a;
INSERT INTO s SELECT 9000 + g, large(g, 3) FROM generate_series(1, 3) g;
SELECT 'caught', sum(n) FROM s WHERE id > 9000;
SAVEPOINT b;
INSERT INTO s SELECT 9500 + g, 0, repeat('x', 1000000000) FROM generate_series(1, 3) g;
ROLLBACK TO b;
COMMIT;
SELECT 'alive', pg_backend_pid() = :pid;
SQL
like($out, qr/^alive\|t$/m, 'without memory, too') or diag $err;
like($out, qr/^caught\|3$/m, 'which was missing in each') or diag "$out $err";
unlike(substr(slurp_file($node->logfile), $logged), qr/PANIC|TRAP|terminated by signal|FATAL/, 'no session was ended');
is(q1("SELECT count(*) FROM s WHERE id > 9000; SELECT count(*) FROM s_side WHERE id > 100000000"), "3\n0", 'what was rolled back is not there');
$node->restart;
verify_clean($node, $_, "$_ after subtransactions") for qw(s s_side);

# ---- P79: recovery is the server's own, and shared memory has one size ----
# What strata has there is made at the start, however much is stored.
my $sizes = sub { return q1("SELECT name, allocated_size FROM pg_shmem_allocations WHERE name LIKE 'strata%' ORDER BY name"); };
my $shared = $sizes->();
is(join(' ', map { /^(.*)\|/ } split /\n/, $shared), 'strata merge memory strata stores strata workers', 'what is in shared memory');
q1('SET client_min_messages = warning', map { "CREATE FOREIGN TABLE many_$_ (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off', generation_max_rows '100'); INSERT INTO many_$_ SELECT g, 'x' FROM generate_series(1, 50) g; SELECT * FROM strata.seal('many_$_'); INSERT INTO many_$_ VALUES (0)" } 1 .. 200);
q1('CREATE FOREIGN TABLE pending (id int, v text) SERVER strata OPTIONS (key \'id\', auto_merge \'off\', generation_max_rows \'1000\')',
	'CREATE TABLE pending_heap (id int PRIMARY KEY, v text)', 'INSERT INTO pending_heap SELECT g, md5(g::text) || md5(g + 0.1 || $$$$) || md5(g + 0.2 || $$$$) || md5(g + 0.3 || $$$$) FROM generate_series(1, 60000) g',
	map { "INSERT INTO pending SELECT * FROM pending_heap WHERE id % 60 = $_" } 0 .. 59);
is(q1("SELECT pending_generations >= 60, pending_rows FROM strata.stores WHERE store = 'pending'::regclass"), 't|60000', 'a large log waits to be merged');
my $lookups = join ' UNION ALL ', map { "SELECT * FROM pending WHERE id = $_" } 7, 30000, 59999;
is($sizes->(), $shared, 'as much shared memory with 200 tables and a large log');
unlike(join('', map { slurp_file($_) } glob "$ENV{STRATA_TOP}/src/*/*.c"), qr/\b(?:dsa_create|dsm_create|dsm_registry)\b/, 'and none that could grow');

# The pages that the first reads of a session take.
my $reads = sub {
	my ($sql) = @_;
	my $plan = q1("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) $sql");
	my ($hit, $read) = $plan =~ /"Shared Hit Blocks": (\d+),\s+"Shared Read Blocks": (\d+)/;
	return $hit + $read;
};
my %before = map { $_ => $reads->($_) } 'SELECT count(*) FROM pending', $lookups, 'SELECT count(v) FROM pending';

# A crash after a checkpoint replays next to nothing, whatever the log holds.  The
# library is not there while the server recovers: nothing of ours is needed.
q1('CHECKPOINT', 'INSERT INTO pending VALUES (60001)', 'INSERT INTO pending_heap VALUES (60001)');
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$logged = -s $node->logfile;
crash($node);
$node->start;
my ($from, $to) = map { my ($high, $low) = split m{/}; (hex($high) << 32) + hex $low } substr(slurp_file($node->logfile), $logged) =~ m{redo starts at (\S+)\n.*redo done at (\S+) }s;
cmp_ok($to - $from, '<', 1000000, 'recovery replays what was written since the checkpoint');
cmp_ok(q1("SELECT pending_bytes FROM strata.stores WHERE store = 'pending'::regclass"), '>', 3000000, 'and not the log');
is(q1("SELECT count(*) FROM pg_shmem_allocations WHERE name LIKE 'strata%'"), 0, 'the library was not loaded');
same_rows($node, 'pending', 'without the library at the start: same rows');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'strata'");
crash($node);
$node->start;
for my $sql (sort keys %before)
{
	cmp_ok($reads->($sql), '<=', $before{$sql} + 20, 'the first query after a crash reads no more: ' . substr $sql, 0, 40);
}
is($sizes->(), $shared, 'as much shared memory as before');
same_rows($node, 'pending', 'after a crash: same rows');
verify_clean($node, 'pending', 'after a crash');
drain($node, 'pending');
same_rows($node, 'pending', 'merged: same rows');

done_testing();
