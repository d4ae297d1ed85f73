# Merging that nobody calls: the two triggers, each alone and turned off (L2, L23,
# L24), no registration (L28, L29), no user statement that merges (L20, P75), a
# restart (L27), views while a merge hangs (L48), what is logged, and an idle
# server that does nothing (P69).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $node = strata_node('workers', 'strata.max_workers' => 2, log_min_messages => 'info');

sub q1 { my ($sql, $db) = @_; return $node->safe_psql($db // 'postgres', $sql); }
sub stores { my ($name, $column) = @_; return q1("SELECT $column FROM strata.stores WHERE store = '$name'::regclass"); }

sub wait_for
{
	my ($sql, $what, $seconds) = @_;
	my $end = time + ($seconds // 30);
	while (time < $end)
	{
		if (q1($sql) eq 't') { pass($what); return; }
		sleep 0.1;
	}
	fail("$what (" . q1('SELECT string_agg(s::text, chr(10)) FROM strata.stores s') . ')');
	return;
}
sub merged { my ($name) = @_; return "SELECT pending_generations = 0 FROM strata.stores WHERE store = '$name'::regclass"; }
sub passes { my ($name) = @_; return q1("SELECT count(*) FROM strata.merges WHERE store = '$name'::regclass AND what = 'merge'"); }

# ---- time alone: one pending generation, sealed by the worker (L23) ----
create_pair($node, 'by_time', "merge_after_generations '0', merge_interval '1s'");
q1(send_rows('by_time', 1, 500, 1));
is(stores('by_time', 'wanted_by'), '', 'nothing is wanted at once');
wait_for(merged('by_time'), 'the time trigger alone merges one active generation', 10);
same_rows($node, 'by_time', 'by time: rows');
q1(send_rows('by_time', 300, 700, 2));
wait_for(merged('by_time'), 'and the next', 10);
same_rows($node, 'by_time', 'by time: rows after the second');

# ---- count alone: below the threshold nothing, at it a pass ----
create_pair($node, 'by_count', "merge_after_generations '4', merge_interval '0'");
for my $g (1 .. 3) { q1(send_rows('by_count', $g, $g + 50, $g) . "SELECT * FROM strata.seal('by_count')"); }
sleep 3;
is(passes('by_count'), 0, 'three of four generations are not merged');
q1(send_rows('by_count', 4, 60, 4) . "SELECT * FROM strata.seal('by_count')");
wait_for(merged('by_count'), 'the fourth starts a merge', 10);
same_rows($node, 'by_count', 'by count: rows');

# A writer that fills generations does so without being asked to seal.
create_pair($node, 'filled', "merge_after_generations '2', merge_interval '0', generation_max_rows '200'");
for my $g (1 .. 6) { q1(send_rows('filled', $g * 100, $g * 100 + 250, $g)); }
wait_for("SELECT pending_generations <= 2 FROM strata.stores WHERE store = 'filled'::regclass", 'filled generations start merges', 10);
same_rows($node, 'filled', 'filled: rows');

# ---- everything off ----
create_pair($node, 'neither', "merge_after_generations '0', merge_interval '0'");
create_pair($node, 'off', "auto_merge 'off', merge_after_generations '1', merge_interval '1s'");
for my $name ('neither', 'off')
{
	q1(send_rows($name, 1, 100, 1) . "SELECT * FROM strata.seal('$name')" . ';' . send_rows($name, 50, 150, 2));
}

# ---- nothing to do: no worker, no log line, whatever the options (L24, P69) ----
sleep 3;
is(passes('neither'), 0, 'both triggers off: nothing is merged');
is(passes('off'), 0, 'auto_merge off: nothing is merged');
same_rows($node, $_, "$_: rows are visible all the same") for 'neither', 'off';
my $log = -s $node->logfile;
sleep 3;
is(q1('SELECT count(*) FROM strata.workers'), 0, 'idle: no worker is connected');
unlike(slurp_file($node->logfile, $log), qr/LOG:\s+strata:|ERROR|FATAL/, 'idle: nothing is logged');
is(q1("SELECT count(*) FROM strata.health() WHERE severity = 'error'"), 0, 'health: no error');

# ---- what is said ----
my @lines = grep { /LOG:\s+strata: merged .* of postgres\.public\.by_time/ } split /\n/, slurp_file($node->logfile);
is(scalar @lines, passes('by_time'), 'one log line a pass');
is(q1("SELECT passes = " . passes('by_time') . " AND generations >= passes AND rows_merged > 0 AND bytes_merged > 0 FROM strata.stat WHERE store = 'by_time'::regclass"),
	't', 'strata.stat counts');
is(stores('by_time', 'last_merge IS NOT NULL AND failures = 0 AND last_error IS NULL'), 't', 'strata.stores says when');

# ---- no user statement merges (L20): all passes ran in workers ----
is(q1("SELECT count(*) FROM strata.merges WHERE store = 'filled'::regclass AND what = 'merge'") > 0, 1, 'filled was merged');

# ---- options changed, off and on again ----
q1("INSERT INTO off VALUES ('more'); INSERT INTO off_heap VALUES ('more')");
sleep 2;
q1("ALTER FOREIGN TABLE off OPTIONS (SET auto_merge 'on')");
wait_for(merged('off'), 'auto_merge turned on, though nobody writes', 15);
# So do settings.
create_pair($node, 'by_setting', '');
q1('ALTER SYSTEM SET strata.auto_merge = off; ALTER SYSTEM SET strata.merge_interval = \'1s\'; SELECT pg_reload_conf()');
sleep 1;
q1(send_rows('by_setting', 1, 100, 1));
sleep 3;
is(passes('by_setting'), 0, 'strata.auto_merge off: nothing is merged');
q1('ALTER SYSTEM RESET strata.auto_merge; SELECT pg_reload_conf()');
wait_for(merged('by_setting'), 'on again: it is, though nobody writes', 15);
q1('ALTER SYSTEM RESET strata.merge_interval; SELECT pg_reload_conf()');
same_rows($node, 'off', 'off: rows');

# ---- a restart finds what is pending (L27 to L29); so does a crash ----
create_pair($node, 'restart', "merge_after_generations '2', merge_interval '0'");
q1('ALTER SYSTEM SET strata.max_workers = 0; SELECT pg_reload_conf()');
for my $g (1 .. 5) { q1(send_rows('restart', $g, $g + 100, $g) . "SELECT * FROM strata.seal('restart')"); }
sleep 1;
is(passes('restart'), 0, 'max_workers 0: nothing');
is(q1("SELECT count(*) FROM strata.health() WHERE what = 'automatic merging is off'"), 1, 'health says so');
q1('ALTER SYSTEM RESET strata.max_workers');
$node->restart;
wait_for(merged('restart'), 'found after a restart, though nobody wrote', 15);
q1(send_rows('by_time', 1000, 1200, 3));
crash($node);
$node->start;
wait_for(merged('by_time'), 'found after a crash', 15);
same_rows($node, $_, "$_: rows at the end") for 'restart', 'by_time';

# ---- SIGHUP, SIGTERM, terminate: the loop goes on (P71) ----
my $launcher = q1("SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata launcher'");
ok($launcher, 'there is a launcher');
is(q1("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'strata launcher' AND datid IS NULL"), 1, 'connected to no database');
q1("SELECT pg_terminate_backend($launcher)");
wait_for("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'strata launcher' AND pid <> $launcher", 'a terminated launcher comes back', 20);
q1(send_rows('by_time', 2000, 2200, 4));
wait_for(merged('by_time'), 'and works', 15);

# ---- a worker terminated at its steps leaves all as it was, and another comes (P47) ----
for my $point ('worker-step', 'pass-begin', 'pass-group-written', 'pass-before-manifest', 'pass-before-commit')
{
	pause_arm($node, $point, 'hang');
	q1(send_rows('by_time', 1, 800, length $point));
	pause_wait($node, $point);
	my $pid = q1('SELECT min(pid) FROM strata.workers');
	if ($point eq 'pass-group-written')
	{
		is(q1("SELECT database || ' ' || task || ' ' || store::text || ' ' || phase || ' ' || planned FROM strata.workers WHERE pid = $pid"),
			'postgres merge by_time write 1', 'strata.workers shows what it does');
	}
	same_rows($node, 'by_time', "$point: rows meanwhile");
	# No view waits for maintenance (L48).
	is(q1("SET statement_timeout = '20s'; SELECT (SELECT count(*) FROM strata.stores WHERE store = 'by_time'::regclass AND pending_generations > 0), (SELECT count(*) >= 0 FROM strata.generations), (SELECT count(*) >= 0 FROM strata.row_groups), (SELECT count(*) > 0 FROM strata.merges), (SELECT count(*) > 0 FROM strata.stat), (SELECT count(*) >= 0 FROM strata.health())"),
		'1|t|t|t|t|t', "$point: views meanwhile");
	q1("SELECT pg_terminate_backend(pid) FROM strata.workers");
	pause_clear($node, $point);
	wait_for(merged('by_time'), "$point: another worker merges", 30);
	same_rows($node, 'by_time', "$point: rows");
	verify_clean($node, 'by_time', $point);
}

# ---- an interrupt that comes after the step it was meant for changes nothing ----
pause_arm($node, 'worker-step-done', 'hang');
$log = -s $node->logfile;
q1(send_rows('by_time', 2500, 2600, 5));
pause_wait($node, 'worker-step-done');
my $between = q1('SELECT min(pid) FROM strata.workers');
q1("SELECT pg_cancel_backend($between)");
sleep 0.5;
is(q1("SELECT count(*) FROM strata.workers WHERE pid = $between"), 1, 'a worker cancelled between two steps stays');
pause_clear($node, 'worker-step-done');
wait_for(merged('by_time'), 'and goes on', 15);
is(stores('by_time', 'failures'), 0, 'no failure');
unlike(slurp_file($node->logfile, $log), qr/ERROR/, 'nor is anything said');

# ---- a crash of a worker restarts the cluster, and merging goes on ----
$node->append_conf('postgresql.conf', 'restart_after_crash = on');
$node->reload;
for my $action ('kill', 'segv')
{
	q1(send_rows('by_time', 1, 900, 77));
	pause_arm($node, 'pass-before-commit', $action);
	my $file = $node->data_dir . '/strata.pause/pass-before-commit';
	sleep 4;
	pause_clear($node, 'pass-before-commit');
	$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	wait_for(merged('by_time'), "$action: merged after the restart", 30);
	same_rows($node, 'by_time', "$action: rows");
	verify_clean($node, 'by_time', $action);
}

# ---- what is set for the database does not get at workers ----
q1("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'; ALTER DATABASE postgres SET default_transaction_read_only = on; ALTER DATABASE postgres SET statement_timeout = '1ms'; "
	  . ($node->pg_version->{num}[0] >= 17 ? "ALTER DATABASE postgres SET transaction_timeout = '1ms'" : ''));
# (nor at this test, however slow the machine is)
$ENV{PGOPTIONS} = '-c statement_timeout=0' . ($node->pg_version->{num}[0] >= 17 ? ' -c transaction_timeout=0' : '');
$node->psql('postgres', "SET default_transaction_read_only = off; BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; "
	  . send_rows('by_time', 1, 100, 99) . 'COMMIT');
for (1 .. 100)
{
	my $n = $node->safe_psql('postgres', "SELECT pending_generations FROM strata.stores WHERE store = 'by_time'::regclass");
	last if $n eq '0';
	sleep 0.2;
}
is($node->safe_psql('postgres', "SELECT pending_generations FROM strata.stores WHERE store = 'by_time'::regclass"),
	0, "a database's settings do not keep workers from merging");

$node->stop;
done_testing();
