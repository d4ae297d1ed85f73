# Sweep and freeze stopped at each of their steps by an error, kill -9, SIGSEGV
# and termination (P47): nothing is lost, verify is clean, and what was not done
# is done the next time.  Then burnt xids: autovacuum advances relfrozenxid (P40).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('mcrash', restart_after_crash => 'on', autovacuum => 'off', max_wal_size => '1GB');
sub q1 { return $node->safe_psql('postgres', $_[0]); }
create_pair($node, 't', "auto_merge 'off'");
my $storage = q1("SELECT storage FROM strata.stores WHERE store = 't'::regclass");
my $v = 0;

for my $step (
	[ 'sweep-begin', 'sweep' ], [ 'sweep-before-conflict', 'sweep' ], [ 'sweep-after-conflict', 'sweep' ],
	[ 'storage-extents-given', 'sweep' ], [ 'sweep-after-give', 'sweep' ], [ 'sweep-after-index', 'sweep' ],
	[ 'freeze-after-conflict', 'freeze' ], [ 'freeze-after-page', 'freeze' ])
{
	my ($point, $what) = @$step;
	my $sql = $what eq 'sweep' ? "SELECT * FROM strata.sweep('t')" : "VACUUM (FREEZE) $storage";
	for my $action ('error', 'kill', 'segv', 'terminate')
	{
		$v++;
		# Row by row, so that there is a log to freeze, and bulk, so that
		# there is space to give back.
		q1(send_rows('t', 1, 3000, $v, 200) . "CALL strata.drain('t')");
		q1(send_rows('t', $v, $v + 5, $v + 100));
		pause_arm($node, $point, $action eq 'terminate' ? 'hang' : $action);
		if ($action eq 'terminate')
		{
			my $session = $node->background_psql('postgres', on_error_stop => 0);
			my $pid = $session->query('SELECT pg_backend_pid()');
			$session->{stdin} .= "$sql;\n";
			$session->{run}->pump_nb;
			pause_wait($node, $point);
			q1("SELECT pg_terminate_backend($pid)");
			select undef, undef, undef, 0.1;
			pause_clear($node, $point);
			$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
			eval { $session->{run}->kill_kill };
		}
		else
		{
			isnt($node->psql('postgres', $sql), 0, "$point, $action: failed");
			pause_clear($node, $point);
			$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
		}
		same_rows($node, 't', "$point, $action: rows");
		verify_clean($node, 't', "$point, $action");
	}
}
q1("SELECT * FROM strata.sweep('t')");
is(q1("SELECT count(*) FROM strata.verify('t', swept => true)"), 0, 'nothing leaked');
same_rows($node, 't', 'at the end: rows');

# ---- twice autovacuum_freeze_max_age ----
$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_naptime = 1s\nautovacuum_freeze_max_age = 100000\nvacuum_freeze_min_age = 1000\nfsync = off");
$node->restart;
q1(send_rows('t', 5000, 5100, 1));
my $aborted = "BEGIN; INSERT INTO t VALUES ('never'); ROLLBACK;";
$node->psql('postgres', $aborted);
my $before = fingerprint($node, 't');
my $age = q1("SELECT age(relfrozenxid) FROM pg_class WHERE oid = '$storage'::regclass");
for my $round (1 .. 2)
{
	q1("DO \$\$BEGIN FOR i IN 1 .. 120000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END\$\$");
	ok($node->poll_query_until('postgres', "SELECT age(relfrozenxid) < 100000 FROM pg_class WHERE oid = '$storage'::regclass"),
		"round $round: autovacuum advances relfrozenxid of the storage");
	is(fingerprint($node, 't'), $before, "round $round: old entries are right");
	verify_clean($node, 't', "round $round");
}
drain($node, 't');
is(fingerprint($node, 't'), $before, 'and when they are merged');
same_rows($node, 't', 'burnt xids: rows');

$node->stop;
done_testing();
