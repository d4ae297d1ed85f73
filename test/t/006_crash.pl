# kill -9 of the whole server at random moments under writers and merges, and
# of single backends in mid-append and mid-merge (L54, L60, P57, P76, P80).
# Acknowledged <= visible <= acknowledged + in doubt, one statement a writer.
# Rows that are moved between partitions all the while are there once (C4).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use IPC::Run ();
use Time::HiRes qw(sleep);

seed();
my $rounds = $ENV{STRATA_ROUNDS} // 30;
my $writers = 4;
my $node = strata_node('crash', restart_after_crash => 'on', fsync => 'on', synchronous_commit => 'on',
	checkpoint_timeout => '30s', max_wal_size => '64MB');
create_pair($node, 't', "auto_merge 'off', generation_max_bytes '128kB', shards '2', row_group_rows '500'");

# Partitions, strata and heap, between which two clients move their own rows.
my $movers = $node->basedir . '/movers.sql';
append_to_file($movers, <<'SQL');
\set k random(0, 99)
\set n random(0, 6)
UPDATE moved SET at = (at + 1) % 3, n = n + 1 WHERE id = :k * 2 + :client_id;
UPDATE moved SET at = (at + :n) % 3, n = n + 1 WHERE id % 2 = :client_id AND id / 2 % 7 = :n;
SQL
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE moved (id int NOT NULL, at int, n int) PARTITION BY LIST (at);
CREATE FOREIGN TABLE moved0 PARTITION OF moved FOR VALUES IN (0) SERVER strata OPTIONS (key 'id', auto_merge 'off', generation_max_rows '200');
CREATE FOREIGN TABLE moved1 PARTITION OF moved FOR VALUES IN (1) SERVER strata OPTIONS (key 'id', auto_merge 'off', shards '2');
CREATE TABLE moved2 PARTITION OF moved FOR VALUES IN (2);
INSERT INTO moved SELECT i, i % 3, 0 FROM generate_series(0, 199) i;
SQL

# A writer sends statement s = 1, 2, ...: rows w<writer>-<s>-<0..n> and, again,
# its "last" row, and tells the ledger (a file of ours) when the server said yes.
sub writer
{
	my ($w, $start, $ledger) = @_;
	my $pid = fork // die "fork: $!";
	return $pid if $pid;
	my $s = $start;
	open my $log, '>>', $ledger or die;
	$log->autoflush(1);
	my ($in, $out, $err) = ('', '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-h', $node->host, '-p', $node->port, '-v', 'ON_ERROR_STOP=1', 'postgres' ],
		'<', \$in, '>', \$out, '2>', \$err);
	while (1)
	{
		$s++;
		my $n = $s % 40 == 0 ? 900 : $s % 7;
		my $size = $s % 25 == 0 ? 20000 : 50;
		my $rows = "SELECT 'w$w-$s-' || g, $w, $s, ARRAY[g], NULL, repeat('y', $size) FROM generate_series(0, $n) g"
		  . " UNION ALL SELECT 'w$w-last', $w, $s, NULL, NULL, NULL";
		# Some in savepoints of which one is rolled back, some prepared.
		my $sql = $s % 5 == 0
		  ? "BEGIN; INSERT INTO t VALUES ('ghost-$w-$s'); SAVEPOINT a; INSERT INTO t VALUES ('ghost2-$w-$s'); ROLLBACK TO a; ROLLBACK;"
		  . "BEGIN; SAVEPOINT a; INSERT INTO t $rows; SAVEPOINT b; INSERT INTO t VALUES ('ghost-$w-$s'); ROLLBACK TO b; COMMIT;"
		  : $s % 11 == 0
		  ? "BEGIN; INSERT INTO t $rows; PREPARE TRANSACTION 'p$w'; COMMIT PREPARED 'p$w';"
		  : "INSERT INTO t $rows;";
		$in .= "$sql\n\\echo done-$s\n";
		my $ok = eval { IPC::Run::pump $psql until $out =~ /done-$s\n/ || length $err; 1 };
		last unless $ok && $out =~ /done-$s\n/;
		$out = '';
		print $log "$s\n";
	}
	eval { $psql->kill_kill };
	POSIX::_exit(0);
}
use POSIX ();

my @acked = (0) x $writers;
my @next = (0) x $writers;

sub check
{
	my ($what) = @_;
	$node->safe_psql('postgres', "COMMIT PREPARED '$_'")
	  for split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
	for my $w (0 .. $writers - 1)
	{
		my $ledger = $node->basedir . "/ledger$w";
		my @lines = -e $ledger ? split(/\n/, slurp_file($ledger)) : ();
		$acked[$w] = $lines[-1] if @lines;
		# Statements seen: whole ones, each with all of its rows.
		my ($max, $statements, $broken, $last) = split /\|/, $node->safe_psql('postgres', <<SQL);
SELECT coalesce(max(s), 0), count(*), count(*) FILTER (WHERE n <> CASE WHEN s::int % 40 = 0 THEN 900 ELSE s::int % 7 END + 1),
       (SELECT coalesce(max(reward), 0) FROM t WHERE id = 'w$w-last')
FROM (SELECT reward AS s, count(*) AS n FROM t WHERE run_id = $w AND id <> 'w$w-last' GROUP BY reward) x
SQL
		my $lost = $node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $acked[$w]) s"
			. " WHERE NOT EXISTS (SELECT FROM (SELECT DISTINCT reward FROM t WHERE run_id = $w) r WHERE r.reward = s)"
			. " AND s NOT IN (SELECT s FROM doubt WHERE w = $w)");
		is($lost, 0, "$what: writer $w: every acknowledged statement is there");
		is($broken, 0, "$what: writer $w: no statement is there in part");
		my $doubt = ($acked[$w] > $next[$w] ? $acked[$w] : $next[$w]) + 1;
		cmp_ok($max, '<=', $doubt, "$what: writer $w: at most one in doubt");
		is($last, $max, "$what: writer $w: its newest row is the newest");
		# The statement in doubt, if it did not make it, is a number never used again.
		$node->safe_psql('postgres', "INSERT INTO doubt VALUES ($w, $doubt)") if $max < $doubt;
		$next[$w] = $doubt;
	}
	is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id LIKE 'ghost%'"), 0, "$what: nothing rolled back shows");
	is($node->safe_psql('postgres', "SELECT count(*) - count(DISTINCT id) FROM t"), 0, "$what: no row twice");
	verify_clean($node, 't', $what);
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM moved'), '200|200', "$what: rows that move are there once");
	verify_clean($node, $_, "$what: $_") for 'moved0', 'moved1';
}

$node->safe_psql('postgres', "CREATE TABLE doubt (w int, s int)");
for my $round (1 .. $rounds)
{
	my @pids = map { writer($_, $next[$_], $node->basedir . "/ledger$_") } 0 .. $writers - 1;
	my ($out, $err) = ('', '');
	my $merges = $node->basedir . '/merges.sql';
	append_to_file($merges, "SELECT 1 FROM strata.merge('t');\nSELECT 1 FROM strata.seal('t');\nSELECT 1 FROM strata.sweep('t');\nSELECT 1 FROM strata.merge('moved0');\n") unless -e $merges;
	my $merger = IPC::Run::start(
		[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $merges, '-c', 1, '-T', 60, 'postgres' ],
		'>', \$out, '2>', \$err);
	my ($moves, $complaints) = ('', '');
	my $mover = IPC::Run::start(
		[ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-f', $movers, '-c', 2, '-T', 60, 'postgres' ],
		'>', \$moves, '2>', \$complaints);
	sleep 0.3 + rand 1.5;
	crash($node);
	kill 'KILL', @pids;
	waitpid $_, 0 for @pids;
	$_->kill_kill for $merger, $mover;
	$node->start;
	my ($error) = $complaints =~ /(ERROR: .*)/;
	is($error, undef, "round $round: movers meet no error");
	check("round $round");
	last unless Test::More->builder->is_passing;
}

# One backend dies with SIGSEGV in mid-append and in mid-merge: the postmaster
# restarts everybody, committed data is intact (P57).
for my $point ('log-append-after-record', 'pass-before-manifest', 'pass-before-commit')
{
	my $before = fingerprint($node, 't');
	$node->safe_psql('postgres', "SELECT * FROM strata.seal('t')");
	pause_arm($node, $point, 'segv');
	my $sql = $point =~ /^log-append/ ? "INSERT INTO t VALUES ('ghost-$point')"
	  : "INSERT INTO t VALUES ('$point', 99); SELECT * FROM strata.seal('t'); SELECT * FROM strata.merge('t')";
	my $ret = $node->psql('postgres', $sql, timeout => 60);
	isnt($ret, 0, "$point: the backend died");
	pause_clear($node, $point);
	$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	if ($point =~ /^log-append/) { is(fingerprint($node, 't'), $before, "$point: rows as before"); }
	else { is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE id = '$point'"), 1, "$point: the committed row is there"); }
	verify_clean($node, 't', $point);
}
drain($node, 't');
$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
check('at the end');

$node->stop;
done_testing();
