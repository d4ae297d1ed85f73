# Other users of the same hooks and of the WAL: pg_stat_statements, auto_explain
# and, where it is installed, pgaudit see strata tables as they see heap ones and
# change no answer (P89, P11); logical replication of a database with stores, by
# a publication FOR ALL TABLES too, ships nothing of theirs and goes on (C6);
# databases with stores and slots are dropped (P82); rows move to another wrapper's
# partitions (C4).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my ($share) = run_command([ 'pg_config', '--sharedir' ]);
my ($lib) = run_command([ 'pg_config', '--pkglibdir' ]);
my $pgaudit = -e "$lib/pgaudit.so" && -e "$share/extension/pgaudit.control";
my @libraries = ('pg_stat_statements', 'auto_explain', $pgaudit ? 'pgaudit' : ());
note $pgaudit ? 'with pgaudit' : 'pgaudit is not installed';

my $node = PostgreSQL::Test::Cluster->new('alongside');
$node->init(allows_streaming => 'logical', extra => ['-k']);
$node->append_conf('postgresql.conf', <<'CONF');
strata.max_workers = 2
max_prepared_transactions = 20
shared_buffers = 128MB
pg_stat_statements.track = all
pg_stat_statements.track_planning = on
pg_stat_statements.track_utility = on
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_nested_statements = on
auto_explain.log_triggers = on
CONF
$node->append_conf('postgresql.conf', "pgaudit.log = 'all'\npgaudit.log_relation = on\n") if $pgaudit;

# ---- hooks, whoever was loaded first ----
for my $order ("'strata," . join(',', @libraries) . "'", "'" . join(',', @libraries) . ",strata'")
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = $order");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS strata; CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()');
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pgaudit') if $pgaudit;
	$node->safe_psql('postgres', 'DROP FOREIGN TABLE IF EXISTS t; DROP TABLE IF EXISTS t_heap');
	create_pair($node, 't', "merge_interval '1s', row_group_rows '700'");
	my $log = -s $node->logfile;
	$node->safe_psql('postgres', send_rows('t', 1, 3000, 0));
	drain($node, 't');
	$node->safe_psql('postgres', send_rows('t', 2500, 3200, 1));
	$node->safe_psql('postgres', "UPDATE $_ SET reward = -1 WHERE id IN ('k5', 'k2600'); DELETE FROM $_ WHERE run_id = 3; BEGIN; INSERT INTO $_ (id) VALUES ('p'); PREPARE TRANSACTION 'p$_'; COMMIT PREPARED 'p$_'") for 't', 't_heap';
	$node->safe_psql('postgres', "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET min_parallel_table_scan_size = 0; SELECT count(*), sum(reward) FROM t; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t; FETCH 10 FROM c; CREATE TABLE copied AS SELECT * FROM t WHERE id > 'k2'; DROP TABLE copied");
	same_rows($node, 't', "$order: rows");
	$node->safe_psql('postgres', "ALTER FOREIGN TABLE t ADD COLUMN extra int DEFAULT 1; ALTER FOREIGN TABLE t DROP COLUMN extra; ANALYZE t; TRUNCATE t");
	verify_clean($node, 't', $order);

	my $calls = sub { $node->safe_psql('postgres', "SELECT calls, rows FROM pg_stat_statements WHERE query LIKE '$_[0]'") };
	is($calls->('UPDATE t SET reward%'), '1|2', 'pg_stat_statements counts statements and rows');
	is($calls->('DELETE FROM t WHERE%'), $calls->('DELETE FROM t_heap WHERE%'), 'as for a heap table');
	is($calls->('CALL strata.drain%'), '1|0', 'and utility commands');
	is($node->safe_psql('postgres', "SELECT string_agg(split_part(query, ' ', 1), ' ' ORDER BY query) FROM pg_stat_statements WHERE query ~ '^(INSERT INTO|UPDATE|DELETE FROM) t ' AND NOT (wal_records > 0 AND wal_bytes > 0)"),
		'', 'and what each statement writes');
	$node->stop;
	my $text = slurp_file($node->logfile, $log);
	ok($text =~ /Foreign Scan on t .*actual time.*\n\s+Key Lookup: /, 'auto_explain logs plans with our lines');
	ok($text =~ /AUDIT: SESSION,\d+,\d+,WRITE,UPDATE,FOREIGN TABLE,public\.t,/, 'pgaudit knows the table') if $pgaudit;
	ok($text !~ /(PANIC|ERROR|FATAL): .*|terminated by signal|TRAP/, 'no error, no crash') or diag $&;
}

# ---- logical replication ----
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE pub');
$node->safe_psql('pub', <<'SQL');
CREATE TABLE heap (id int PRIMARY KEY, v text);
CREATE PUBLICATION everything FOR ALL TABLES;
CREATE PUBLICATION in_schema FOR TABLES IN SCHEMA public;
SQL
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 'logical');
$subscriber->start;
$subscriber->safe_psql('postgres', 'CREATE TABLE heap (id int PRIMARY KEY, v text)');
(my $connection = $node->connstr('pub')) =~ s/'/''/g;
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '$connection' PUBLICATION everything");
$subscriber->wait_for_subscription_sync($node, 'everything');
$node->safe_psql('pub', "SELECT pg_create_logical_replication_slot('watch', 'pgoutput')");

$node->safe_psql('pub', <<'SQL');
CREATE EXTENSION strata;
CREATE FOREIGN TABLE s (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '200');
INSERT INTO s SELECT i, 'secret ' || i FROM generate_series(1, 1000) i;
INSERT INTO heap VALUES (1, 'shipped');
CALL strata.drain('s');
UPDATE s SET v = 'other secret' WHERE id % 3 = 0;
DELETE FROM s WHERE id % 5 = 0;
CALL strata.drain('s');
SELECT * FROM strata.compact('s');
SELECT * FROM strata.sweep('s');
ALTER FOREIGN TABLE s ADD COLUMN w text DEFAULT 'secret default';
ALTER FOREIGN TABLE s DROP COLUMN v;
TRUNCATE s;
INSERT INTO s SELECT i, 'secret ' || i FROM generate_series(1, 1000) i;
CALL strata.drain('s');
DROP FOREIGN TABLE s;
CREATE FOREIGN TABLE s (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s');
INSERT INTO s SELECT i, 'secret ' || i FROM generate_series(1, 1000) i;
SQL
ok($node->poll_query_until('pub', "SELECT pending_generations = 0 AND base_rows = 1000 FROM strata.stores"), 'merged by a worker, too');
$node->safe_psql('pub', "UPDATE heap SET v = 'shipped, too'; INSERT INTO heap VALUES (2, 'last')");
$node->wait_for_catchup('everything');
is($subscriber->safe_psql('postgres', 'SELECT * FROM heap ORDER BY id'), "1|shipped, too\n2|last", 'the subscriber of a publication FOR ALL TABLES gets on');
my $changes = "pg_logical_slot_peek_binary_changes('watch', NULL, NULL, 'proto_version', '1', 'publication_names', 'everything')";
is($node->safe_psql('pub', "SELECT string_agg(DISTINCT encode(substr(data, 6, 12), 'escape'), ' ') FROM $changes WHERE get_byte(data, 0) = ascii('R')"),
	'public\000heap\000', 'no relation of ours is named in what is decoded');
is($node->safe_psql('pub', "SELECT count(*) FROM $changes WHERE encode(data, 'escape') ~ 'secret'"), 0, 'and no value');
is($node->safe_psql('pub', "SELECT count(*) FROM $changes WHERE chr(get_byte(data, 0)) IN ('I', 'U', 'D', 'T')"), 3, 'only the changes of the heap table');

# As the README has it: the one lists what no subscriber has, the other does not.
my ($rc, $out, $err) = $subscriber->psql('postgres', 'ALTER SUBSCRIPTION everything REFRESH PUBLICATION');
like($err, qr/schema "strata" does not exist/, 'FOR ALL TABLES lists hidden relations');
# Where they exist, what is there says where rows are on the other server.
my $hidden = $node->safe_psql('pub', 'SELECT storage FROM strata.stores');
$subscriber->safe_psql('postgres', "CREATE EXTENSION strata; CREATE TABLE $hidden (id int)");
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION everything REFRESH PUBLICATION');
ok($subscriber->poll_query_until('postgres', 'SELECT sync_error_count >= 6 FROM pg_stat_subscription_stats'), 'copies fail');
like(slurp_file($subscriber->logfile), qr/ERROR:  table row_group cannot be replicated/, 'those of the manifest, too');
is($subscriber->safe_psql('postgres', 'SELECT (SELECT count(*) FROM strata.store) + (SELECT count(*) FROM strata.shard) + (SELECT count(*) FROM strata.row_group) + (SELECT count(*) FROM strata.pass)'), 0, 'another manifest is not copied');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything; TRUNCATE heap');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION in_schema CONNECTION '$connection' PUBLICATION in_schema");
$subscriber->wait_for_subscription_sync($node, 'in_schema');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM heap'), 2, 'FOR TABLES IN SCHEMA passes foreign tables over');
($rc, $out, $err) = $node->psql('pub', 'CREATE PUBLICATION one FOR TABLE s');
like($err, qr/cannot add relation "s" to publication/, 'a strata table cannot be published by name');

# ---- databases with stores and slots go ----
($rc, $out, $err) = $node->psql('postgres', 'DROP DATABASE pub');
like($err, qr/is used by an active logical replication slot/, 'a slot in use keeps its database');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION in_schema');
$node->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput'); SELECT pg_create_physical_replication_slot('physical', true)");
$node->safe_psql('pub', 'INSERT INTO s SELECT i FROM generate_series(1, 5000) i');
is(($node->psql('postgres', 'DROP DATABASE pub'))[0], 0, 'an unused slot goes with it, stores and all');
is($node->safe_psql('postgres', "SELECT string_agg(slot_name, ' ' ORDER BY slot_name) FROM pg_replication_slots"), 'elsewhere physical', 'others stay');
$node->safe_psql('postgres', "CREATE TABLE after (id int PRIMARY KEY); CREATE PUBLICATION after FOR TABLE after; INSERT INTO after VALUES (1)");
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_logical_slot_get_binary_changes('elsewhere', NULL, NULL, 'proto_version', '1', 'publication_names', 'after') WHERE get_byte(data, 0) = ascii('I')"),
	1, 'and decode past the drop');

# ---- rows that an UPDATE moves to a partition of another wrapper ----
SKIP:
{
	skip 'postgres_fdw is not installed', 2 unless -e "$share/extension/postgres_fdw.control";
	(my $host = $node->host) =~ s/'/''/g;
	$node->safe_psql('postgres', "CREATE EXTENSION postgres_fdw; CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw "
		  . "OPTIONS (host '$host', port '${\$node->port}', dbname 'postgres', batch_size '10'); CREATE USER MAPPING FOR CURRENT_USER SERVER here");
	$node->safe_psql('postgres', <<'SQL');
CREATE TABLE far (id int NOT NULL, v text);
CREATE TABLE p (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (100) SERVER strata OPTIONS (key 'id');
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (100) TO (200);
CREATE FOREIGN TABLE p2 PARTITION OF p FOR VALUES FROM (200) TO (300) SERVER here OPTIONS (table_name 'far');
INSERT INTO p SELECT i, 'v' || i FROM unnest('{1,2,3,101,102}'::int[]) i;
SQL
	is($node->safe_psql('postgres', 'UPDATE p SET id = id + 200 WHERE id = 1 RETURNING tableoid::regclass, *'), 'p2|201|v1', 'a row moves there');
	# those of the heap partition by core, in a batch
	$node->safe_psql('postgres', 'UPDATE p SET id = id % 100 + CASE WHEN id < 100 THEN 200 ELSE 210 END WHERE id IN (2, 3, 101, 102)');
	is($node->safe_psql('postgres', 'SELECT id, v FROM far ORDER BY id'), "201|v1\n202|v2\n203|v3\n211|v101\n212|v102", 'others with those that core moves');
}
is($node->safe_psql('postgres', 'SELECT 1'), 1, 'alive');
$subscriber->stop;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal|TRAP/, 'no crash');
done_testing();
