# One store with a very long backlog and many stores with a little each, at the
# same time: memory of launcher and workers stays flat, reads are right
# meanwhile, small debts do not wait for the huge one, no more processes than
# allowed (L1, L15, L16, L29, L50, L51, P73).  STRATA_SCALE=full: 5,000 generations
# in 1,000 passes, and 2,000 stores.  Then what an operator sees of waits and of
# space that an old snapshot holds.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $full = ($ENV{STRATA_SCALE} // '') eq 'full';
my $generations = $full ? 5000 : 1000;
my $stores = $full ? 2000 : 200;
my $MB = 1024 * 1024;

my $node = strata_node('scale', 'strata.max_workers' => 0, fsync => 'off', autovacuum => 'off', max_wal_size => '4GB',
	max_locks_per_transaction => 256);
sub q1 { return $node->safe_psql('postgres', $_[0]); }

# ---- the backlog ----
q1("CREATE FOREIGN TABLE huge (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s', generation_max_rows '20', merge_max_generations '5')");
q1("DO \$\$BEGIN FOR i IN 1 .. $generations LOOP INSERT INTO huge SELECT g, i FROM generate_series(i, i + 20) g; COMMIT; END LOOP; END\$\$");
my $pending = q1("SELECT pending_generations FROM strata.stores WHERE store = 'huge'::regclass");
cmp_ok($pending, '>=', $generations, "$pending generations are pending");
my $right = ($generations + 20) . '|' . q1("SELECT sum(least(g, $generations)) FROM generate_series(1, $generations + 20) g");
is(q1('SELECT count(*), sum(v::int) FROM huge'), $right, 'rows before');
q1("DO \$\$BEGIN FOR i IN 1 .. $stores LOOP EXECUTE format('CREATE FOREIGN TABLE many%s (id int, v text) SERVER strata OPTIONS (key ''id'', merge_interval ''1s'')', i); COMMIT; END LOOP; END\$\$");
for my $v (1 .. 3)
{
	q1("DO \$\$BEGIN FOR i IN 1 .. $stores LOOP EXECUTE format('INSERT INTO many%s SELECT g, %s FROM generate_series($v, $v + 2) g', i, $v); PERFORM strata.seal(('many' || i)::regclass); COMMIT; END LOOP; END\$\$");
}
is(q1("SELECT sum(pending_generations) FROM strata.stores WHERE store <> 'huge'::regclass"), 3 * $stores, "three generations in each of $stores stores");

# ---- drained, watched ----
my $watch = $node->background_psql('postgres');
$watch->set_query_timer_restart;
my $launcher = q1("SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata launcher'");

sub rss
{
	my ($pid) = @_;
	my $text = eval { slurp_file("/proc/$pid/status") } // '';
	return $text =~ /^RssAnon:\s+(\d+)/m ? $1 * 1024 : 0;
}

# A session that looks up and scans takes no more than it may for what is pending.
my $reader = $node->background_psql('postgres');
my $reader_pid = $reader->query_safe("SET strata.cache_size = '8MB'; SET work_mem = '1MB'; SELECT pg_backend_pid()");
my $rss_before = rss($reader_pid);
is($reader->query_safe('SELECT v FROM huge WHERE id = 500'), 500, 'looked up');
is($reader->query_safe('SELECT count(*), sum(v::int) FROM huge'), $right, 'scanned');
my $grown = rss($reader_pid) - $rss_before;
cmp_ok($grown, '<', 24 * $MB, sprintf('a reader grows by %.1f MB', $grown / $MB));
$reader->quit;

# By now all are due, the huge one by count and the others by time.
sleep 1.5;
my $start = time;
q1("ALTER SYSTEM SET strata.max_workers = 2; SELECT pg_reload_conf()");
q1("INSERT INTO many1 VALUES (1, '3')");
my (@samples, $others_done, $huge_left, $most, $wrong, $reads) = ();
$most = $wrong = $reads = 0;
my $end = time + ($full ? 1800 : 180);
while (time < $end)
{
	my @workers = split /\n/, $watch->query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata worker'");
	$most = @workers if @workers > $most;
	my ($largest) = sort { $b <=> $a } map { rss($_) } @workers;
	push @samples, [ time - $start, rss($launcher), $largest ] if $largest;
	$huge_left = $watch->query("SELECT pending_generations FROM strata.stores WHERE store = 'huge'::regclass");
	$others_done ||= $watch->query("SELECT count(*) FROM strata.generations WHERE store <> 'huge'::regclass") == 0;
	$reads++;
	$wrong++ if $watch->query('SELECT count(*), sum(v::int) FROM huge') ne $right;
	last if $huge_left == 0 && $others_done;
	sleep 0.2;
}
$watch->quit;
my $took = time - $start;
is($huge_left, 0, 'the backlog is drained');
my $behind = q1(<<'SQL');
SELECT count(*) FROM strata.merges WHERE store = 'huge'::regclass AND ended > (
	SELECT max(first) FROM (SELECT min(ended) AS first FROM strata.merges WHERE store <> 'huge'::regclass GROUP BY store) f)
SQL
cmp_ok($behind, '>', 0, "$behind of its passes came after the first of every other");
is($wrong, 0, "$reads reads meanwhile were right");
cmp_ok($most, '<=', 2, "at most $most workers");
my $passes = q1("SELECT passes FROM strata.stat WHERE store = 'huge'::regclass");
cmp_ok($passes, '>=', $pending / 5, "$passes passes of the huge one");
is(q1("SELECT max(generations_merged) FROM strata.merges WHERE store = 'huge'::regclass"), 5, 'none took more than it may');
is(q1('SELECT max(failures), sum(pending_generations) FROM strata.stores'), '0|0', 'no failure, nothing pending');
is(q1('SELECT count(*), sum(v::int) FROM huge'), $right, 'rows after');
is(q1("SELECT count(*) FROM strata.verify('huge')"), 0, 'sound');
is(q1("SELECT string_agg(v || ' ' || id, ',' ORDER BY id) FROM many$stores"), '1 1,2 2,3 3,3 4,3 5', 'rows of another');

# Flat: what the second half of the samples adds to what the first half had.
sub largest { my ($column, @of) = @_; return (sort { $b <=> $a } map { $_->[$column] } @of)[0] // 0; }
for my $who ([ 'launcher', 1, 1 ], [ 'workers', 2, 6 ])
{
	my ($name, $column, $allowed) = @$who;
	my $half = int(@samples / 2);
	my ($early, $late) = (largest($column, @samples[ 0 .. $half ]), largest($column, @samples[ $half .. $#samples ]));
	cmp_ok($late, '<=', $early + $allowed * $MB, sprintf('%s: RssAnon %.1f MB at most in the first half, %.1f MB in the second (%d samples)',
		$name, $early / $MB, $late / $MB, scalar @samples));
}
note sprintf '%d generations in %d passes and %d stores in %.1f s; peak memory of a pass %d kB', $pending, $passes, $stores, $took,
  q1('SELECT max(peak_memory) / 1024 FROM strata.merges');

# ---- waits have names where the server lets extensions name them ----
my $event = q1('SHOW server_version_num') >= 170000 ? 'StrataLauncherMain' : 'Extension';
is(q1("SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity WHERE backend_type = 'strata launcher'"), "Extension $event", 'the launcher waits');

# ---- space that an old snapshot holds: how much, and whose it is ----
create_pair($node, 'held', "merge_interval '1s'");
q1(send_rows('held', 1, 5000, 1, 300));
$node->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores WHERE store = 'held'::regclass");
my $old = $node->background_psql('postgres');
my $pid = $old->query_safe('SELECT pg_backend_pid()');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM held');
q1(send_rows('held', 1, 5000, $_, 300)) for 2 .. 3;
create_pair($node, 'little', "merge_interval '1s'");
q1(send_rows('little', 1, 100, $_)) for 1 .. 2;
my $row = "SELECT count(*) FROM strata.health() WHERE store = 'held'::regclass AND what LIKE 'about % kB cannot be reclaimed%'";
ok($node->poll_query_until('postgres', "$row AND advice LIKE 'The oldest snapshot is that of session $pid, %'", '1'), 'health tells how much space is held, and by whom');
is(q1("SELECT count(*) FROM strata.health('1 day') WHERE what LIKE 'session $pid holds a snapshot since%'"), 0, 'a snapshot is not old before its time');
is(q1("SELECT severity FROM strata.health('0') WHERE what LIKE 'session $pid holds a snapshot since%'"), 'warning', 'it is after that');
ok($node->poll_query_until('postgres', "SELECT sweeps > 0 FROM strata.stat WHERE store = 'little'::regclass"), 'a small table was swept in vain');
is(q1("SELECT count(*) FROM strata.health() WHERE store = 'little'::regclass"), 0, 'which is nothing to tell');

# What TRUNCATE gave back is not held any more.
my $cut = "SELECT count(*) FROM strata.health() WHERE store = 'cut'::regclass";
create_pair($node, 'cut', "merge_interval '1s'");
q1(send_rows('cut', 1, 5000, $_, 300)) for 1 .. 3;
ok($node->poll_query_until('postgres', $cut, '1'), 'space of another table is held');
q1('TRUNCATE cut, cut_heap');
is(q1($cut), 0, 'which is not said after TRUNCATE');
same_rows($node, 'held', 'held: rows');
$old->query_safe('COMMIT');
$old->quit;
ok($node->poll_query_until('postgres', $row, '0'), 'freed when it has ended');
same_rows($node, 'held', 'held: rows at the end');
verify_clean($node, 'held', 'held');

$node->stop;
done_testing();
