# Workers stand in nobody's way: DROP, RENAME and copying of databases, moving
# them, and DDL on stores, all while a worker is in mid-pass (P66, P68); databases
# that lack the extension or refuse connections (P69); worker slots (P72); the
# library without preloading.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $node = strata_node('databases', 'strata.max_workers' => 2);
my $tablespace = PostgreSQL::Test::Utils::tempdir;
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$tablespace'");

# A database whose worker hangs in mid-pass, in a way that lets interrupts through.
my $n = 0;
sub busy_database
{
	my ($point) = @_;
	my $db = 'db' . ++$n;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, "CREATE EXTENSION strata; CREATE FOREIGN TABLE t (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s')");
	pause_arm($node, $point, 'hang');
	$node->safe_psql($db, "INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5000) g");
	pause_wait($node, $point);
	return $db;
}

sub timed
{
	my ($db, $sql, $what) = @_;
	my $start = time;
	my ($ret, $out, $err) = $node->psql($db, $sql, timeout => 60);
	my $took = time - $start;
	is($ret, 0, "$what: succeeds ($err)");
	cmp_ok($took, '<', 5, sprintf('%s: within 5 s (%.1f s)', $what, $took));
	return;
}

for my $point ('pass-group-written', 'pass-index-insert', 'pass-before-commit')
{
	my $db = busy_database($point);
	timed('postgres', "DROP DATABASE $db", "DROP DATABASE at $point");
	pause_clear($node, $point);
}
my $db = busy_database('pass-group-written');
timed('postgres', "ALTER DATABASE $db RENAME TO renamed", 'RENAME');
pause_clear($node, 'pass-group-written');
ok($node->poll_query_until('renamed', "SELECT pending_generations = 0 FROM strata.stores"), 'the renamed one is merged');
is($node->safe_psql('renamed', "SELECT count(*), count(DISTINCT id) FROM t"), '5000|5000', 'all rows');

$db = busy_database('pass-group-written');
timed('postgres', "CREATE DATABASE copied TEMPLATE $db", 'CREATE DATABASE TEMPLATE');
pause_clear($node, 'pass-group-written');
ok($node->poll_query_until('copied', "SELECT pending_generations = 0 FROM strata.stores"), 'a copied database is found and merged');
is($node->safe_psql('copied', "SELECT count(*), count(DISTINCT id) FROM t"), '5000|5000', 'all rows');
is($node->safe_psql('copied', "SELECT count(*) FROM strata.verify('t')"), 0, 'the copy is sound');

$db = busy_database('pass-group-written');
timed('postgres', "ALTER DATABASE $db SET TABLESPACE elsewhere", 'SET TABLESPACE');
pause_clear($node, 'pass-group-written');

# Pause points are of the whole cluster: nobody else shall get to them.
$node->safe_psql('postgres', "DROP DATABASE $db");
$node->safe_psql('postgres', "DROP DATABASE $_") for split /\n/, $node->safe_psql('postgres', "SELECT datname FROM pg_database WHERE datname IN ('copied', 'db5')");

# ---- DDL on the store itself: the worker gives way and comes back ----
create_pair($node, 't', "merge_interval '1s'");
for my $ddl ("ALTER FOREIGN TABLE t ADD COLUMN extra%d int", "ALTER FOREIGN TABLE t OPTIONS (SET merge_interval '1')", 'TRUNCATE t', 'DROP FOREIGN TABLE t')
{
	for my $point ('pass-group-written', 'pass-before-manifest')
	{
		$node->safe_psql('postgres', 'DROP TABLE IF EXISTS t_heap; DROP FOREIGN TABLE IF EXISTS t');
		create_pair($node, 't', "merge_interval '1s'");
		pause_arm($node, $point, 'hang');
		$node->safe_psql('postgres', send_rows('t', 1, 2000, 1));
		pause_wait($node, $point);
		timed('postgres', sprintf($ddl, 1), "$ddl at $point");
		pause_clear($node, $point);
		if ($ddl =~ /^ALTER/)
		{
			ok($node->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores WHERE store = 't'::regclass"), 'merged later');
			is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM t'), '2000|2000', 'all rows');
			# Options are no part of what the storage's lock protects.
			is($node->safe_psql('postgres', "SELECT " . ($ddl =~ /OPTIONS/ ? 'true' : 'gave_way > 0') . " AND failures = 0 FROM strata.stat WHERE store = 't'::regclass"), 't', 'counted as giving way, not as a failure');
			verify_clean($node, 't', $ddl);
		}
	}
}

# ---- databases that a worker cannot or need not enter: no storm ----
$node->safe_psql('postgres', 'CREATE DATABASE plain');
$node->safe_psql('postgres', 'CREATE DATABASE refusing ALLOW_CONNECTIONS false');
$node->safe_psql('postgres', 'CREATE DATABASE template_of_mine IS_TEMPLATE true');
$node->restart;
sleep 8;
my $log = -s $node->logfile;
sleep 5;
my $text = slurp_file($node->logfile, $log);
unlike($text, qr/FATAL|not currently accepting|terminated/, 'no restart storm');
is($node->safe_psql('postgres', 'SELECT count(*) FROM strata.workers'), 0, 'workers have gone');

# A table restored from a dump is merged without any further call (L28, P70).
$node->safe_psql('renamed', "INSERT INTO t SELECT g, 'y' FROM generate_series(5001, 5100) g");
$node->command_ok([ 'pg_dump', '-d', $node->connstr('renamed'), '--include-foreign-data=strata', '-f', $node->basedir . '/dump.sql' ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $node->basedir . '/dump.sql' ], 'restore');
ok($node->poll_query_until('restored', "SELECT pending_generations = 0 AND base_rows = 5100 FROM strata.stores"), 'a restored table is merged');

# ---- no free slot: said once, with a hint ----
$node->append_conf('postgresql.conf', 'max_worker_processes = 2');
$node->restart;
$node->safe_psql('renamed', "INSERT INTO t SELECT g, 'y' FROM generate_series(1, 100) g");
sleep 8;
my @said = grep { /no background worker slot is free for a strata worker/ } split /\n/, slurp_file($node->logfile);
is(scalar @said, 1, 'shortage of worker slots is logged once');
like(slurp_file($node->logfile), qr/HINT:\s+Increase max_worker_processes/, 'with a hint');
my $short = "SELECT count(*) FROM strata.health() WHERE what LIKE 'no background worker slot%'";
is($node->safe_psql('renamed', $short), 1, 'and in strata.health()');

# ---- nor with one slot for several databases, where every other start fails ----
$node->append_conf('postgresql.conf', 'max_worker_processes = 3');
$log = -s $node->logfile;
$node->restart;
for my $round (1 .. 2)
{
	my $merged = "SELECT pending_generations = 0 FROM strata.stores";
	pause_arm($node, 'pass-group-written', 'hang');
	$node->safe_psql('renamed', "INSERT INTO t SELECT g, 'z' FROM generate_series(1, 5000) g");
	pause_wait($node, 'pass-group-written');
	$node->safe_psql('restored', "INSERT INTO t SELECT g, 'z' FROM generate_series(1, 5000) g");
	ok($node->poll_query_until('restored', $short, '1'), "one slot, round $round: strata.health() says so");
	pause_clear($node, 'pass-group-written');
	ok($node->poll_query_until($_, $merged), "round $round: $_ is merged") for 'renamed', 'restored';
	is($node->safe_psql('restored', $short), 1, "round $round: one start that succeeds does not end the shortage");
}
@said = grep { /no background worker slot is free for a strata worker/ } split /\n/, slurp_file($node->logfile, $log);
is(scalar @said, 1, 'that is logged once, too');
$node->append_conf('postgresql.conf', 'strata.max_workers = 1');
$node->reload;
ok($node->poll_query_until('restored', $short, '0'), 'a change of strata.max_workers ends it');

# ---- not preloaded: a commit that reaches the count trigger starts one worker ----
$node->append_conf('postgresql.conf', "max_worker_processes = 8\nshared_preload_libraries = ''");
$node->restart;
$node->safe_psql('postgres', 'DROP FOREIGN TABLE IF EXISTS t; DROP TABLE IF EXISTS t_heap');
create_pair($node, 't', "merge_after_generations '3', merge_interval '1s', generation_max_rows '100'");
$node->safe_psql('postgres', send_rows('t', 1, 50, 1));
sleep 2;
is($node->safe_psql('postgres', "SELECT count(*) FROM strata.merges WHERE store = 't'::regclass"), 0, 'without preloading nothing is merged by time');
$node->safe_psql('postgres', send_rows('t', $_ * 60, $_ * 60 + 140, $_)) for 1 .. 4;
ok($node->poll_query_until('postgres', "SELECT pending_generations < 3 FROM strata.stores WHERE store = 't'::regclass"), 'but by count');
same_rows($node, 't', 'without preloading: rows');
verify_clean($node, 't', 'without preloading');
is($node->safe_psql('postgres', "SELECT count(*) FROM strata.health() WHERE what LIKE '%shared_preload_libraries%'"), 1, 'health recommends it');

# Nobody interrupts such a worker: it looks whether its database is wanted.
$node->safe_psql('postgres', 'CREATE DATABASE backlog');
$node->safe_psql('backlog', "CREATE EXTENSION strata; CREATE FOREIGN TABLE t (id int, v text) SERVER strata OPTIONS (key 'id', merge_after_generations '3', merge_max_generations '1', generation_max_rows '10')");
pause_arm($node, 'pass-begin', 'sleep 500');
$node->safe_psql('backlog', "DO \$\$BEGIN FOR i IN 1 .. 31 LOOP INSERT INTO t SELECT g, 'x' FROM generate_series(1, 10) g; END LOOP; END\$\$");
ok($node->poll_query_until('backlog', 'SELECT pending_generations < 31 FROM strata.stores'), 'a worker is at it');
timed('postgres', 'DROP DATABASE backlog', 'DROP DATABASE with a worker between two passes');
pause_clear($node, 'pass-begin');

# ---- no worker was started for a database that had gone ----
unlike(slurp_file($node->logfile), qr/FATAL:\s+database \d+ does not exist/, 'no worker for a dropped database');

$node->stop;
done_testing();
