# What went wrong with other extensions and must not here: tables dropped and
# brought back (P2), made again (P3, P86), dropped with others (P4); files and
# messages of databases that go (P5, P6), a server made in template1 (P7), DROP
# wherever the schemas are (P9), output that is nobody's (P18), libraries (P19),
# size functions against the disk (P85, C9), memory that cannot be had (P88).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('incidents');
my $dir = PostgreSQL::Test::Utils::tempdir;
my ($lib) = run_command([ 'pg_config', '--pkglibdir' ]);

# ---- P7: what template1 has works in new databases ----
$node->safe_psql('template1', 'CREATE EXTENSION strata');
$node->safe_psql('postgres', 'CREATE DATABASE made');
$node->safe_psql('made', "CREATE FOREIGN TABLE t (id int, v text) SERVER strata OPTIONS (key 'id'); INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 3000) i; CALL strata.drain('t')");
is($node->safe_psql('made', "SELECT count(*), (SELECT count(*) FROM strata.verify('t')) FROM t"), '3000|0', 'a server made in template1 makes tables');
$node->safe_psql('template1', 'DROP EXTENSION strata');

# ---- P85: sizes are those on disk ----
my $files = sub {
	my $size = 0;
	for my $path (split /\n/, $node->safe_psql('made', "SELECT pg_relation_filepath(c.oid) FROM pg_class c, strata.stores s WHERE s.store = 't'::regclass AND (c.oid = s.storage OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = s.storage))"))
	{
		$size += -s $_ for grep { m{/\Q@{[ $path =~ m{([^/]+)$} ]}\E(_\w+)?(\.\d+)?$} } glob $node->data_dir . "/$path*";
	}
	return $size;
};
is($node->safe_psql('made', "SELECT strata.relation_size('t')"), $files->(), 'strata.relation_size is what the files take');
cmp_ok($files->(), '>', 100000, 'which is something');
is($node->safe_psql('made', "SELECT relation_bytes FROM strata.stores WHERE store = 't'::regclass"), $files->(), 'so does the view');
my $before = $node->safe_psql('made', "SELECT pg_database_size('made')");
$node->safe_psql('made', "INSERT INTO t SELECT i, md5(i::text) || md5((-i)::text) FROM generate_series(10000, 60000) i");
cmp_ok($node->safe_psql('made', "SELECT pg_database_size('made')") - $before, '>', 1000000, 'and the size of the database counts them');

# ---- P2 - P4, P86: tables that go, come back, and are made again ----
# Files that belong to no relation, once a checkpoint has let go of them.
my $oid = $node->safe_psql('made', "SELECT oid FROM pg_database WHERE datname = 'made'");
my $orphans = sub {
	$node->safe_psql('postgres', 'CHECKPOINT');
	my %known = map { $_ => 1 } split /\n/, $node->safe_psql('made', "SELECT pg_relation_filenode(oid) FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL");
	return join ' ', grep { m{/(\d+)(_\w+)?(\.\d+)?$} && !$known{$1} } glob $node->data_dir . "/base/$oid/*";
};
$node->safe_psql('made', "BEGIN; DROP FOREIGN TABLE t; ROLLBACK; BEGIN; SAVEPOINT s; DROP FOREIGN TABLE t CASCADE; ROLLBACK TO s; COMMIT; CHECKPOINT");
$node->restart;
is($node->safe_psql('made', "SELECT count(*), (SELECT count(*) FROM strata.verify('t')) FROM t"), '53001|0', 'a table whose DROP was rolled back is whole');
my $make = "CREATE FOREIGN TABLE again (id int, v text) SERVER strata OPTIONS (key 'id'); INSERT INTO again SELECT i FROM generate_series(1, 500) i";
my $storage = "SELECT storage FROM strata.stores WHERE store = 'again'::regclass";
$node->safe_psql('made', "$make; CALL strata.drain('again')");
my $first = $node->safe_psql('made', $storage);
is($node->safe_psql('made', "SELECT count(*) FROM pg_class WHERE relname LIKE '%again%'"), 1, 'no other object is named after a table');
$node->safe_psql('made', 'ALTER FOREIGN TABLE again RENAME TO old_one; CREATE SCHEMA aside; CREATE TABLE aside.again (id int); ' . $make);
is($node->safe_psql('made', 'SELECT (SELECT count(*) FROM again), (SELECT count(*) FROM old_one)'), '500|500', 'a name given up can be taken');
$node->safe_psql('made', 'DROP FOREIGN TABLE again, old_one; ' . ($make =~ s/;.*//r));
is($node->safe_psql('made', 'SELECT count(*) FROM again'), 0, 'a table made again is empty');
isnt($node->safe_psql('made', $storage), $first, 'and has another storage');
$node->safe_psql('made', <<'SQL');
CREATE SCHEMA away;
CREATE FOREIGN TABLE away.a (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO away.a SELECT generate_series(1, 100);
CREATE SERVER second FOREIGN DATA WRAPPER strata;
CREATE FOREIGN TABLE on_second (id int) SERVER second OPTIONS (key 'id');
INSERT INTO on_second SELECT generate_series(1, 100);
CREATE TABLE parent (id int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES FROM (0) TO (1000) SERVER strata OPTIONS (key 'id');
INSERT INTO parent SELECT generate_series(1, 100);
CREATE TABLE mother (id int);
CREATE FOREIGN TABLE child () INHERITS (mother) SERVER strata OPTIONS (key 'id');
CALL strata.drain('part');
DROP SCHEMA away CASCADE;
DROP SERVER second CASCADE;
DROP TABLE parent;
DROP TABLE mother CASCADE;
DROP FOREIGN TABLE again;
BEGIN; CREATE FOREIGN TABLE never (id int) SERVER strata OPTIONS (key 'id'); INSERT INTO never SELECT generate_series(1, 1000); ROLLBACK;
TRUNCATE t;
SQL
is($orphans->(), '', 'no way of dropping leaves a file');
is($node->safe_psql('made', 'SELECT count(*) FROM strata.store'), 1, 'or a row of the manifest');

# ---- P5, P6: databases that go ----
ok(-d $node->data_dir . "/base/$oid", 'the database has a directory');
my ($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE made');
is("$rc$out$err", '0', 'DROP DATABASE says nothing');
ok(!-e $node->data_dir . "/base/$oid", 'and leaves nothing');
$node->safe_psql('postgres', 'CREATE DATABASE without');
($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE without');
is("$rc$out$err", '0', 'neither for one that never had the extension');

# ---- P9: no cleanup code that a search path could lead astray ----
$node->safe_psql('postgres', "CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key 'id'); INSERT INTO t VALUES (1); CREATE TABLE unrelated (id int)");
($rc, $out, $err) = $node->psql('postgres', 'ALTER EXTENSION strata SET SCHEMA public');
like($err, qr/ERROR:.*(SET SCHEMA|does not support|is not in)/, 'the extension stays where it is');
$node->safe_psql('postgres', <<'SQL');
CREATE SCHEMA shadow;
CREATE FUNCTION shadow.trap(oid, oid) RETURNS bool LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$;
CREATE OPERATOR shadow.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = shadow.trap);
CREATE FUNCTION shadow.lower(text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$;
SET search_path = shadow, pg_catalog;
SELECT count(*) FROM strata.stores;
SELECT count(*) FROM strata.health();
SELECT count(*) FROM strata.verify('public.t');
ALTER FOREIGN TABLE public.t ADD COLUMN v int DEFAULT 1;
DROP FOREIGN TABLE public.t;
SET search_path = '';
DROP TABLE public.unrelated;
SET search_path = public;
SQL
is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM strata.store), (SELECT count(*) FROM pg_class WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'strata_storage'))"), '0|0', 'dropped, whatever the search path');

# ---- P18: messages go through ereport only ----
my @printing;
for my $file (glob("$ENV{STRATA_TOP}/src/*.c $ENV{STRATA_TOP}/src/*/*.c"))
{
	next if $file =~ m{/pause\.c$};	# in no build for use
	my $text = slurp_file($file);
	$text =~ s{/\*.*?\*/}{}gs;
	push @printing, "$file: $1" while $text =~ /\b((?:f|v|vf)?printf|f?puts|putchar|perror|write_stderr)\s*\(/g;
}
is("@printing", '', 'nothing is printed');

# ---- P19: zstd is the only library, and an old one is refused by name ----
my ($needed) = run_command([ 'ldd', "$lib/strata.so" ]);
is(join(' ', sort grep { !/^(?:linux-vdso|libc|libm|libpthread)\b|ld-linux/ } map { /^\s*(\S+?)\.so/ ? $1 : () } split /\n/, $needed), 'libzstd', 'the only library needed is libzstd');
append_to_file("$dir/old.c", "unsigned ZSTD_versionNumber(void) { return 10308; }\nconst char *ZSTD_versionString(void) { return \"1.3.8\"; }\n");
system_or_bail('gcc', '-shared', '-fPIC', '-o', "$dir/old.so", "$dir/old.c");
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->stop;
{
	local $ENV{LD_PRELOAD} = "$dir/old.so";
	$node->start;
}
($rc, $out, $err) = $node->psql('postgres', 'SELECT * FROM strata.stores');
like($err, qr/ERROR:  strata needs libzstd 1\.4\.0 or later\n.*version 1\.3\.8/s, 'an old libzstd is named');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'strata'");
$node->stop;

# ---- P88: memory that is not there is an error of the statement ----
# The address space of every process is bounded; values grow until some do not fit.
system_or_bail('sh', '-c', 'ulimit -v 900000 && exec pg_ctl -w -s -D "$0" -l "$1" -o "--cluster-name=incidents" start', $node->data_dir, $node->logfile);
$node->_update_pid(1);
$node->safe_psql('postgres', "CREATE FOREIGN TABLE t (id int, n int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off'); INSERT INTO t SELECT i FROM generate_series(1, 100) i");
my %states;
for my $mb (60, 140, 220, 300)
{
	($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nINSERT INTO t VALUES (1000 + $mb, $mb, repeat(md5('x'), $mb * 32768));\nUPDATE t SET n = n + 1 WHERE id = 1000 + $mb;\nSELECT length(v || v) FROM t WHERE id = 1000 + $mb;\nSELECT 'alive', count(*) FROM t WHERE id <= 100", on_error_stop => 0);
	like($out, qr/^alive\|100$/m, "$mb MB: the session lives");
	$states{$1}++ while $err =~ /ERROR:  (\w{5})/g;
}
is(join(' ', keys %states), '53200', 'the only error is out of memory') or diag explain \%states;
$node->safe_psql('postgres', "SELECT * FROM strata.seal('t'); SELECT * FROM strata.merge('t'); SELECT * FROM strata.compact('t'); SELECT * FROM strata.sweep('t')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id <= 100'), 100, 'merges go on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id > 1000 AND n NOT IN (id - 1000, id - 999)'), 0, 'what is there is right');
$node->restart;
verify_clean($node, 't', 'afterwards');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP/, 'nothing crashed');
$node->stop;
done_testing();
