# Passes that crash the server, again and again: the store backs off as after any
# failure, across restarts, and the others go on (L34, L54, L56, P67).  A full
# disk: the pass fails and says so, nothing is lost, the rest goes on, and what
# is pending is merged when there is space (L25, L35, L57).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $node = strata_node('crashloop', 'strata.max_workers' => 2, restart_after_crash => 'on', fsync => 'off', autovacuum => 'off');
sub q1 { return $node->safe_psql('postgres', $_[0]); }
sub state { my ($name, $what) = @_; return q1("SELECT $what FROM strata.stores WHERE store = '$name'::regclass"); }

# The server may be down in between.
sub wait_for
{
	my ($sql, $what, $seconds) = @_;
	my $end = time + ($seconds // 30);
	while (time < $end)
	{
		my ($ret, $out) = $node->psql('postgres', $sql);
		if ($ret == 0 && $out eq 't') { pass($what); return 1; }
		sleep 0.1;
	}
	fail($what);
	return 0;
}
sub merged { my ($name) = @_; return "SELECT pending_generations = 0 FROM strata.stores WHERE store = '$name'::regclass"; }

# ---- a crash loop ----
create_pair($node, $_, "merge_interval '1s'") for 'crashing', 'other';
q1(send_rows('crashing', 1, 500, 1));
wait_for(merged('crashing'), 'merged once');
# Only a pass that supersedes rows of the base gets there; the other's does not.
pause_arm($node, 'manifest-deletes-added', 'segv');
q1(send_rows('crashing', 200, 600, 2));
for my $n (1 .. 2)
{
	wait_for("SELECT failures = $n AND next_try - last_error_at = '5 s'::interval * 2 ^ ($n - 1) FROM strata.stores WHERE store = 'crashing'::regclass", "crash $n is counted, the pause doubles");
	is(state('crashing', "last_sqlstate || ' ' || last_error"), '57P02 the server crashed during the merge', "crash $n: error");
	q1(send_rows('other', $n * 100, $n * 100 + 99, 1));
	same_rows($node, 'crashing', "crash $n: rows");
	wait_for(merged('other'), "crash $n: others are merged", 4);
}
like(slurp_file($node->logfile), qr/LOG:\s+strata: the server crashed during the merge of table with OID \d+ in database with OID \d+ \(2 in a row\), next try in 10 s/, 'in the log');
is(q1("SELECT count(*) FROM strata.health() WHERE store = 'crashing'::regclass AND severity = 'error' AND what LIKE '%the server crashed%'"), 1, 'and in strata.health()');

# Another crash, of another cause, while it waits: nothing is forgotten, and it
# is not counted.
my $before = state('crashing', "failures, last_error_at, next_try, last_error");
crash($node);
$node->start;
wait_for("SELECT failures > 0 FROM strata.stores WHERE store = 'crashing'::regclass", 'the launcher is there');
is(state('crashing', "failures, last_error_at, next_try, last_error"), $before, 'the failures survive a crash of another cause');
$node->restart;
wait_for("SELECT failures > 0 FROM strata.stores WHERE store = 'crashing'::regclass", 'the launcher is there again');
is(state('crashing', "failures, last_error_at, next_try, last_error"), $before, 'and a restart');

# Merged by hand, it is no failing store any more.
pause_clear($node, 'manifest-deletes-added');
q1("CALL strata.drain('crashing')");
wait_for("SELECT failures = 0 FROM strata.stores WHERE store = 'crashing'::regclass", 'no failure once it is merged');
same_rows($node, 'crashing', 'crashing: rows');
verify_clean($node, 'crashing', 'crashing');
$node->restart;
q1(send_rows('crashing', 300, 700, 3));
wait_for(merged('crashing'), 'merged at once after a restart', 4);
is(state('crashing', 'failures'), 0, 'and nothing is remembered');

# A file that is damaged is as good as none.
$node->stop;
append_to_file($node->data_dir . '/pg_stat_tmp/strata_attempts.new', 'x' x 5000);
rename $node->data_dir . '/pg_stat_tmp/strata_attempts.new', $node->data_dir . '/pg_stat_tmp/strata_attempts';
$node->start;
q1(send_rows('crashing', 1, 100, 4));
wait_for(merged('crashing'), 'a damaged file stops nothing', 4);
is(q1('SELECT max(failures) FROM strata.stores'), 0, 'and says nothing');

# ---- out of disk ----
my $library = $node->basedir . '/full_disk.so';
system_or_bail('cc', '-shared', '-fPIC', '-O1', '-o', $library, "$ENV{STRATA_TOP}/test/lib/full_disk.c", '-ldl');
my $full = $node->basedir . '/full';
$node->stop;
{
	local $ENV{LD_PRELOAD} = $library;
	local $ENV{STRATA_FULL_DISK} = $full;
	$node->start;
}
for my $name ('full_data', 'full_index')
{
	create_pair($node, $name, "auto_merge 'off'");
	q1(send_rows($name, 1, 1000, 1) . "CALL strata.drain('$name')");
	# Statements too small to be adopted as they lie, of rows that do not
	# compress: together more than what the file has spare.
	q1(<<SQL) for 1 .. 8;
CREATE TEMP TABLE r AS SELECT 'k' || g AS id, $_ AS run_id, (SELECT string_agg(md5(random()::text || i || g), '') FROM generate_series(1, 20) i) AS payload
FROM generate_series($_ * 700, $_ * 700 + 999) g;
INSERT INTO $name (id, run_id, payload) TABLE r;
INSERT INTO ${name}_heap (id, run_id, payload) TABLE r
    ON CONFLICT (id) DO UPDATE SET run_id = EXCLUDED.run_id, reward = NULL, tokens = NULL, meta = NULL, payload = EXCLUDED.payload;
SQL
	q1("SELECT * FROM strata.seal('$name')");
}
my %path = (full_data => q1("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'full_data'::regclass"),
	full_index => q1("SELECT pg_relation_filepath(indexrelid) FROM pg_index, strata.stores WHERE indrelid = storage AND store = 'full_index'::regclass"));
append_to_file("$full.new", join('', map { "$_\n" } values %path));
rename "$full.new", $full or die;
q1("ALTER FOREIGN TABLE $_ OPTIONS (SET auto_merge 'on', merge_interval '1s')") for keys %path;
q1(send_rows('other', 300, 400, 3));
for my $name (sort keys %path)
{
	wait_for("SELECT failures > 0 FROM strata.stores WHERE store = '$name'::regclass", "$name: the failure is seen");
	is(state($name, 'last_sqlstate'), '53100', "$name: disk full");
	is(q1("SELECT count(*) FROM strata.health() WHERE store = '$name'::regclass AND advice LIKE 'Nothing is damaged: make room%'"), 1, "$name: what to do about it");
	like(state($name, 'last_error'), qr/could not extend file "$path{$name}".*No space left on device/, "$name: the error is kept");
	same_rows($node, $name, "$name: rows");
	is(q1("SELECT payload IS NOT DISTINCT FROM (SELECT payload FROM ${name}_heap WHERE id = 'k3000') FROM $name WHERE id = 'k3000'"), 't', "$name: looked up");
}
for my $v (1 .. 3)
{
	q1(send_rows('other', 300, 400, $v));
	wait_for(merged('other'), "others are appended to and merged ($v)", 15);
	same_rows($node, 'other', "other: rows ($v)");
}
# A statement that needs space fails, too, as a whole.
my ($ret, $out, $err) = $node->psql('postgres', 'BEGIN; ' . send_rows('full_data', 1, 20000, 9, 400) . 'COMMIT;');
like($err, qr/could not extend file/, 'a large INSERT has no space');
same_rows($node, 'full_data', 'nothing of it is there');
unlink $full;
for my $name (sort keys %path)
{
	wait_for("SELECT pending_generations = 0 AND failures = 0 FROM strata.stores WHERE store = '$name'::regclass", "$name: merged when there is space", 40);
	same_rows($node, $name, "$name: rows at the end");
	verify_clean($node, $name, $name);
	q1("SELECT * FROM strata.sweep('$name')");
	verify_clean($node, $name, "$name: nothing leaked", 1);
}

$node->stop;
done_testing();
