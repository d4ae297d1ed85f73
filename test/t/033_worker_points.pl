# At every pause point that a worker passes, and those of freezing, found in the
# sources so that new ones are included: a worker is terminated, another gives
# way to DROP, TRUNCATE or ALTER, and the server is killed or a worker dies of
# SIGSEGV (P47, P57, L32, L35, L54, L58, L60).  Rows are the twin's and
# verify is clean, at once and when all is merged.  STRATA_SCALE=full: both
# kinds of crash at each point, not one or the other; STRATA_POINTS=regex: only
# those points.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use File::Find;
use IPC::Run ();
use Time::HiRes qw(sleep time);

# Users' statements pass these, workers do not (or everybody does: the look at
# outcomes, the end of a commit; or only in a store that has gone quiet); 006,
# 011 to 013, 022, 028, 029 and 041 stop there.
my $elsewhere = qr/^(?:
	log-(?:row|append|link|extent|flush|group|judge|outcome|prepare|commit)-.*|
	manifest-(?:store-created|storage-dropped|tablespace-moved|truncate-.*)|
	repair-.*|shorten-.*|verify-.*|
	storage-(?:initialize.*|run-before-record))$/x;

my %points;
find(
	sub {
		return unless /\.c$/;
		$points{$_} = 1 for slurp_file($_) =~ /STRATA_PAUSE\("([^"]+)"\)/g;
	},
	"$ENV{STRATA_TOP}/src");
my @freeze = sort grep { /^freeze-/ } keys %points;
my @worker = sort grep { !/^freeze-/ && $_ !~ $elsewhere } keys %points;
cmp_ok(scalar @worker, '>=', 30, 'points of workers: ' . scalar @worker);
cmp_ok(scalar @freeze, '>=', 2, 'points of freezing: ' . scalar @freeze);
@worker = grep { /$ENV{STRATA_POINTS}/ } @worker if defined $ENV{STRATA_POINTS};

my $node = strata_node('points', 'strata.max_workers' => 8, restart_after_crash => 'on', fsync => 'off',
	autovacuum => 'off', max_wal_size => '2GB', max_worker_processes => 20);

# What gives each point something to do: base rows to supersede, small row
# groups to compact, text for dictionaries, dead index entries, and space that
# aborted loads left in the middle of the file and, too large to go there, at its
# end.
$node->safe_psql('postgres', 'CREATE DATABASE prepared');
$node->safe_psql('prepared', 'CREATE EXTENSION strata');
$node->safe_psql('prepared', <<'SQL');
CREATE TABLE words AS SELECT i, (SELECT string_agg(md5((hashint4(i * 31 + j) % 400)::text), ' ') FROM generate_series(1, 12) j) AS w
FROM generate_series(1, 2400) i;
CREATE FOREIGN TABLE bell (id int) SERVER strata OPTIONS (key 'id', merge_interval '1h');
SQL
for my $name ('t1', 't2', 't3')
{
	my $both = sub { return "INSERT INTO $name (id, run_id, payload) $_[0]; INSERT INTO ${name}_heap (id, run_id, payload) $_[0] ON CONFLICT (id) DO UPDATE SET run_id = EXCLUDED.run_id, payload = EXCLUDED.payload;" };
	my $bulk = sub { return "BEGIN; INSERT INTO $name (id, payload) SELECT 'never' || g, (SELECT string_agg(md5(random()::text || g || i), '') FROM generate_series(1, $_[0]) i) FROM generate_series(1, 2400) g; ROLLBACK;" };
	$node->safe_psql('prepared', <<SQL);
CREATE FOREIGN TABLE $name (id text NOT NULL, run_id int, payload text) SERVER strata
    OPTIONS (key 'id', auto_merge 'off', merge_after_generations '1', merge_interval '1s', row_group_rows '2500');
CREATE TABLE ${name}_heap (id text PRIMARY KEY, run_id int, payload text);
SQL
	$node->safe_psql('prepared', $bulk->(40) . $both->("SELECT 'k' || g, g, NULL FROM generate_series(1, 10000) g") . "CALL strata.drain('$name')");
	$node->safe_psql('prepared', $both->("SELECT 's' || $_ || g, g, 'x' FROM generate_series(1, 20) g") . "CALL strata.drain('$name')") for 1 .. 8;
	$node->safe_psql('prepared', "SELECT * FROM strata.sweep('$name')");
	$node->safe_psql('prepared', $both->("SELECT 'w' || i, i, w FROM words WHERE i % 6 = $_ ORDER BY i")) for 0 .. 5;
	$node->safe_psql('prepared', $both->("SELECT 'k' || g, -g, NULL FROM generate_series(1, 10000) g") . $bulk->(50) . "SELECT * FROM strata.seal('$name')");
}
# Nobody shall come to life in it.
$node->safe_psql('postgres', 'ALTER DATABASE prepared IS_TEMPLATE true');

my $file = $node->data_dir . '/strata.pause/';
sub reached
{
	my ($point) = @_;
	return () unless -e "$file$point.reached";
	my %pids = map { $_ => 1 } split /\n/, slurp_file("$file$point.reached");
	return grep { kill 0, $_ } keys %pids;
}

# Those of the database who wait at the point, $n of them if so many come in
# ten seconds; the first may take longer.
sub wait_reached
{
	my ($db, $point, $n) = @_;
	my $started = time;
	my @pids;
	while (time < $started + (@pids ? 10 : 25))
	{
		sleep 0.02;
		@pids = reached($point);
		next if @pids == 0;
		@pids = split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE datname = '$db' AND pid IN (" . join(',', @pids) . ')');
		last if @pids >= $n;
	}
	return @pids;
}

# Where a snapshot is in the way of the first sweep, what it would have freed may
# be too little for another one: start again then.
sub give_up
{
	my ($db, $point) = @_;
	note "$point: nobody came there in $db";
	pause_clear($node, $point);
	$node->safe_psql('postgres', "DROP DATABASE $db");
	return;
}

sub wait_until
{
	my ($seconds, $condition) = @_;
	my $end = time + $seconds;
	while (time < $end) { return 1 if $condition->(); sleep 0.02; }
	return 0;
}

sub start_sql
{
	my ($db, $sql) = @_;
	my ($out, $err) = ('', '');
	my $run = IPC::Run::start([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db), '-c', $sql ], '<', \undef, '>', \$out, '2>', \$err);
	return { run => $run, err => \$err };
}
sub ended { my ($session) = @_; $session->{run}->pump_nb if $session->{run}->pumpable; return !$session->{run}->pumpable; }

# The server is killed, or the process by SIGSEGV and the server restarts.
sub crash_at
{
	my ($point, $action, $pid) = @_;
	my $log = -s $node->logfile;
	if ($action eq 'kill')
	{
		crash($node);
		pause_clear($node, $point);
		$node->start;
		return;
	}
	kill 'SEGV', $pid;
	pause_clear($node, $point);
	wait_until(60, sub { slurp_file($node->logfile, $log) =~ /terminated by signal 11.*ready to accept connections/s })
	  or die "no restart after SIGSEGV at $point";
	return;
}

sub check
{
	my ($db, $what, @stores) = @_;
	my $sql = join(' UNION ALL ', map { my $n = $_; my $fp = "(SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM %s t)";
			"SELECT '$n: rows' WHERE " . sprintf($fp, $n) . ' <> ' . sprintf($fp, "${n}_heap") . " UNION ALL SELECT '$n: ' || object || ': ' || problem FROM strata.verify('$n')" } @stores);
	is($node->safe_psql($db, $sql), '', $what);
	return;
}

my @ddl = ('DROP FOREIGN TABLE %s', 'TRUNCATE %s', 'ALTER FOREIGN TABLE %s ADD COLUMN extra int DEFAULT 5');
my @twin = ('DROP TABLE %s_heap', 'TRUNCATE %s_heap', 'ALTER TABLE %s_heap ADD COLUMN extra int DEFAULT 5');
my $enable = "INSERT INTO %s_heap VALUES ('new', 1, 'x'); INSERT INTO %s VALUES ('new', 1, 'x'); ALTER FOREIGN TABLE %s OPTIONS (SET auto_merge 'on');";
my ($turn, $previous, @left) = (0);

sub at_point
{
	my ($point, $action, $alone) = @_;
	my $n = $turn++ % 3;
	my $db = "db$turn";
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE prepared STRATEGY file_copy");

	# A pass extends the file only where there is no space in its middle: use it
	# up, by loads that are smaller than what a pass writes.
	$node->safe_psql($db, <<'SQL') if $point =~ /^storage-exten/;
DO $$
DECLARE
	s record;
	n bigint;
	more int;
BEGIN
	FOR s IN SELECT store, storage FROM strata.stores WHERE store <> 'bell'::regclass LOOP
		n := pg_relation_size(s.storage);
		more := 2;
		WHILE more > 0 LOOP
			more := more - (pg_relation_size(s.storage) > n)::int;
			EXECUTE format('INSERT INTO %s (id, payload) SELECT ''never'' || g, md5(random()::text) || md5(random()::text) FROM generate_series(1, 2400) g', s.store);
			ROLLBACK;
		END LOOP;
	END LOOP;
END$$
SQL

	# Two workers stop there: one is terminated, DDL wants the other's store.
	# Where others would keep it away (what they see cannot be swept), it is the
	# one or the other.
	pause_arm($node, $point, 'hang');
	# The row in a table of its own makes the launcher find the database, with
	# nobody's snapshot in the way of the first sweep.
	$node->safe_psql($db, join('', map { sprintf($enable, ($_) x 3) } 't1', $alone ? () : 't2') . 'INSERT INTO bell VALUES (1)');
	my @pids = wait_reached($db, $point, $alone ? 1 : 2) or return give_up($db, $point);
	$alone = 1 if @pids == 1 && !$alone;
	my %at = map { split /\|/ } split /\n/, $node->safe_psql($db, "SELECT pid, coalesce(nullif(store::text, 'bell'), 't2') FROM strata.workers");
	@pids = reverse @pids if $at{ $pids[0] } eq 't2';
	my $terminated = @pids > 1 || $alone == 1 ? $pids[0] : undef;
	my $store = @pids > 1 ? $at{ $pids[1] } : $alone == 2 ? $at{ $pids[0] } : undef;
	my $ddl = defined $store ? start_sql($db, sprintf($ddl[$n], $store)) : undef;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($terminated)") if $terminated;
	my $done = sub { return (!$ddl || ended($ddl)) && !($terminated && kill 0, $terminated) };
	# Where a page is locked, interrupts wait.
	my $interrupted = wait_until(1.5, $done);
	pause_clear($node, $point) if !$interrupted;
	wait_until(30, $done);
	ok($done->(), "$point: " . join(' and ', $terminated ? 'the terminated worker ended' : (), $ddl ? 'DDL went through' : ())) or die;
	if ($ddl)
	{
		$ddl->{run}->finish;
		is(${ $ddl->{err} }, '', "$point: without error");
		$node->safe_psql($db, sprintf($twin[$n], $store));
	}

	# Then everything stops at once.  Others may wait there still.
	my $gave_way = $pids[ @pids > 1 ? 1 : 0 ];
	my @others = grep { $_ ne ($terminated // q()) && $_ ne $gave_way } reached($point);
	if ($interrupted)
	{
		open my $mark, '>', "$file$point.reached";
		print $mark map { "$_\n" } @others;
		close $mark;
	}
	else { pause_arm($node, $point, 'hang'); }
	$node->safe_psql($db, sprintf($enable, ('t3') x 3) . "INSERT INTO t3 VALUES ('new', 2, 'y'); UPDATE t3_heap SET run_id = 2, payload = 'y' WHERE id = 'new'");
	@pids = wait_reached($db, $point, 1) or return give_up($db, $point);
	crash_at($point, $action, $pids[0]);
	my @stores = grep { $n != 0 || $_ ne ($store // '') } 't1', 't2', 't3';
	check($db, "$point: rows and verify after " . join(', ', $ddl ? sprintf($ddl[$n], $store) : (), $terminated ? 'termination' : (), $action), @stores);
	is($node->safe_psql($db, 'SELECT count(*) FROM strata.store WHERE foreign_table NOT IN (SELECT oid FROM pg_class)'), 0, "$point: no orphan");

	# The one before has been merged by now; it goes with nobody in the way.
	if ($previous)
	{
		check($previous, "rows and verify later, $previous", @left);
		$node->safe_psql('postgres', "DROP DATABASE $previous");
	}
	($previous, @left) = ($db, @stores);
	return $alone;
}

# At most three times; returns whether a worker was alone there.
sub visit_point
{
	my ($point, @how) = @_;
	for (1 .. 3)
	{
		my $alone = at_point($point, @how);
		next if !defined $alone;
		pass("$point: workers get there");
		return $alone;
	}
	die "nobody at $point";
}

my $full = ($ENV{STRATA_SCALE} // '') eq 'full';
for my $i (0 .. $#worker)
{
	my $point = $worker[$i];
	my $alone = visit_point($point, $i % 4 ? 'segv' : 'kill', $point =~ /^(?:storage-truncate|worker-)/ ? 1 : 0);
	visit_point($point, $i % 4 ? 'kill' : 'segv', 2 * $alone) if $full || $alone;
}
$node->safe_psql($previous, join '', map { "ALTER FOREIGN TABLE $_ OPTIONS (SET auto_merge 'on'); INSERT INTO $_ VALUES ('end', 1, 'x'); INSERT INTO ${_}_heap VALUES ('end', 1, 'x');" } @left);
ok($node->poll_query_until($previous, "SELECT sum(pending_generations) = 0 AND max(failures) = 0 FROM strata.stores WHERE store <> 'bell'::regclass"), 'at the end all is merged');
check($previous, 'rows and verify at the end', @left);

# ---- freezing: in a session; DDL waits for it ----
$node->safe_psql('postgres', 'ALTER SYSTEM SET strata.max_workers = 0; SELECT pg_reload_conf()');
for my $i (0 .. $#freeze)
{
	my $point = $freeze[$i];
	my $db = "freeze$i";
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE prepared STRATEGY file_copy");
	my $storage = $node->safe_psql($db, "SELECT storage FROM strata.stores WHERE store = 't1'::regclass");
	# A log of single rows.
	$node->safe_psql($db, "INSERT INTO t1 VALUES ('f' || $_, $_, 'f'); INSERT INTO t1_heap VALUES ('f' || $_, $_, 'f')") for 1 .. 3;
	for my $n (0 .. 2)
	{
		pause_arm($node, $point, 'hang');
		my $vacuum = start_sql($db, "VACUUM (FREEZE) $storage");
		my ($pid) = wait_reached($db, $point, 1) or die "nobody at $point";
		if ($n < 2)
		{
			crash_at($point, $n ? 'kill' : 'segv', $pid);
			eval { $vacuum->{run}->finish };
		}
		else
		{
			my $ddl = start_sql($db, sprintf($ddl[2], 't1'));
			$node->poll_query_until($db, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'");
			pause_clear($node, $point);
			$_->{run}->finish for $vacuum, $ddl;
			is(${ $vacuum->{err} } . ${ $ddl->{err} }, '', "$point: both VACUUM and ALTER went through");
			$node->safe_psql($db, sprintf($twin[2], 't1'));
		}
		check($db, "$point: rows and verify ($n)", 't1');
		$node->safe_psql($db, "INSERT INTO t1 VALUES ('g$n', 1, 'g'); INSERT INTO t1_heap VALUES ('g$n', 1, 'g')");
	}
	$node->safe_psql($db, "CALL strata.drain('t1')");
	check($db, "$point: rows and verify when merged", 't1');
}

$node->stop;
done_testing();
