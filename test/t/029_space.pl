# Steady upserts of the same 100,000 keys: the file levels off below three times
# the live data, and once writing stops workers alone bring it back below 1.3
# times (L30): space is reused, and what lies at the file's end is moved before
# it.  STRATA_CYCLES=200 for a long run.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $keys = 100_000;
my $cycles = $ENV{STRATA_CYCLES} // 8;
my $node = strata_node('space', 'strata.max_workers' => 2, fsync => 'off', max_wal_size => '2GB',
	autovacuum => 'off', restart_after_crash => 'on');
sub q1 { return $node->safe_psql('postgres', $_[0]); }

my $storage;
my $size = 0;    # of the storage relation, now and at most
my $most = 0;
sub look
{
	$size = q1("SELECT pg_relation_size('$storage')");
	$most = $size if $size > $most;
	return;
}

# Put every $step-th key of a range into the table and its twin.
sub upsert
{
	my ($v, $from, $to, $step) = @_;
	my $noise = join ' || ', map { "md5((g * $_ + $v)::text)" } 1 .. 10;
	return "INSERT INTO steady SELECT g, $v, $noise FROM generate_series($from, $to, $step) g;\n"
	  . "INSERT INTO twin SELECT g, $v FROM generate_series($from, $to, $step) g ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v;\n";
}

# The first cycle writes all rows, a later one rewrites a fifth of them: a range
# in one statement, or scattered ones in ten or many; workers merge them.
sub cycle
{
	my ($v) = @_;
	my $part = $v % 5;
	my @sql;
	if ($v == 1) { @sql = upsert($v, 1, $keys, 1); }
	elsif ($v % 3 == 0) { @sql = upsert($v, $part * $keys / 5 + 1, ($part + 1) * $keys / 5, 1); }
	elsif ($v % 3 == 1) { @sql = map { upsert($v, $_ * $keys / 10 + 1 + $part, ($_ + 1) * $keys / 10, 5) } 0 .. 9; }
	else { @sql = map { upsert($v, $_ * $keys / 500 + 1 + $part, ($_ + 1) * $keys / 500, 5) } 0 .. 499; }
	for (1 .. 10)
	{
		q1(join '', splice @sql, 0, @sql >= 10 ? @sql / (11 - $_) : 1) if @sql;
		look();
	}
	$node->poll_query_until('postgres', "SELECT pending_generations = 0 FROM strata.stores WHERE store = 'steady'::regclass")
	  or die 'not merged';
	look();
	return;
}

q1("CREATE FOREIGN TABLE steady (id int, v int, p text) SERVER strata OPTIONS (key 'id', merge_interval '1s');
	CREATE TABLE twin (id int PRIMARY KEY, v int)");
$storage = q1("SELECT storage FROM strata.stores WHERE store = 'steady'::regclass");
my $started = time;
for my $v (1 .. $cycles)
{
	cycle($v);
	note sprintf('cycle %d: %.1f MB, %.0f s', $v, $size / 1048576, time - $started) if $v <= 12 || $v % 10 == 0;
}

# Nobody writes any more.  The view has nothing while the store is locked.
my $live = 0;
my $ratio;
$started = time;
do
{
	sleep 1;
	$live = q1("SELECT sum(stored_bytes * (rows - deleted)::numeric / rows)::bigint FROM strata.row_groups WHERE store = 'steady'::regclass") || $live;
	look();
	$ratio = $live ? $size / $live : 99;
	note sprintf('%.0f s after: %.1f MB, %.2f times the live data', time - $started, $size / 1048576, $ratio);
} until $ratio < 1.3 || time - $started > 120;
cmp_ok($most / $live, '<', 3, sprintf('levels off: %.1f MB at most, %.1f MB live', $most / 1048576, $live / 1048576));
cmp_ok($ratio, '<', 1.3, sprintf('comes back: %.1f MB', $size / 1048576))
  or diag(q1("SELECT rows, deleted, stored_bytes FROM strata.row_groups WHERE store = 'steady'::regclass"),
	q1("SELECT * FROM strata.stat WHERE store = 'steady'::regclass"));
my $p = join ' || ', map { "md5((id * $_ + v)::text)" } 1 .. 10;
is(q1("SELECT count(*) FROM steady FULL JOIN twin USING (id, v) WHERE p IS DISTINCT FROM $p"), 0, 'rows');
is(q1("SELECT count(*) FROM steady"), $keys, 'each key once');

# And they come to an end with it.
my ($was, $is) = ('', 'none');
for (1 .. 30)
{
	last if $was eq $is;
	($was, $is) = ($is, q1("SELECT compactions || ' ' || sweeps FROM strata.stat WHERE store = 'steady'::regclass"));
	sleep 2;
}
is($is, $was, "workers have settled after $is compactions and sweeps");
q1("SELECT * FROM strata.sweep('steady')");
verify_clean($node, 'steady', 'space', 1);

# ---- a compaction waits for the space of what went out of use ----
q1("CREATE FOREIGN TABLE waits (id int, v int, p text) SERVER strata OPTIONS (key 'id', merge_interval '0', merge_after_generations '1')");
q1("ALTER SYSTEM SET log_min_messages = 'debug1'");
$node->reload;
my $stat = "FROM strata.stat WHERE store = 'waits'::regclass";
my $noise = join ' || ', map { "md5((g * $_)::text)" } 1 .. 10;

# So many rows from each of these on, in statements too small for row groups of
# their own, merged by one pass.
sub put_and_merge
{
	my ($v, $rows, @from) = @_;
	my $passes = q1("SELECT coalesce(sum(passes), 0) $stat");
	for my $from (@from)
	{
		q1(join ';', map { my $id = $from + $_ * 1000; "INSERT INTO waits SELECT g, $v, $noise FROM generate_series($id, $id + 999) g" } 0 .. $rows / 1000 - 1);
	}
	q1("SELECT * FROM strata.seal('waits')");
	$node->poll_query_until('postgres', "SELECT coalesce(sum(passes), 0) = $passes + 1 $stat") or die 'not merged';
	return;
}
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$holder->query_safe('SELECT count(*) FROM waits');
put_and_merge(1, 20000, $_ * 20000 + 1) for 0 .. 5;
my $offset = -s $node->logfile;
put_and_merge(2, 13000, 1, 20001);    # a sixth of what is stored
ok($node->wait_for_log(qr/strata: compaction of postgres\.public\.waits waits for a sweep/, $offset), 'a compaction waits');
is(q1("SELECT compactions $stat"), 0, 'and none is made');

# But not if there is twice as much to gain.
$offset = -s $node->logfile;
put_and_merge(2, 13000, 40001, 60001);
ok($node->wait_for_log(qr/merged \d+ generations of postgres\.public\.waits(?:(?!waits for a sweep).)*compacted \d+ row groups of postgres\.public\.waits/s, $offset),
	'one that cannot wait is made');
is($holder->query_safe('SELECT count(*) FROM waits'), 0, 'the old snapshot reads what it did');
$holder->query_safe('COMMIT');
$holder->quit;
q1("ALTER SYSTEM RESET log_min_messages");
$node->reload;
ok($node->poll_query_until('postgres', "SELECT pg_relation_size(s.storage) < 1.6 * (SELECT sum(stored_bytes) FROM strata.row_groups WHERE store = s.store)
	FROM strata.stores s WHERE s.store = 'waits'::regclass"), 'without it the file gets small again');
is(q1("SELECT count(*) || ' ' || sum(v) FROM waits"), '120000 172000', 'rows');

# From here on nobody but the test does anything.
q1("ALTER SYSTEM SET strata.max_workers = 0");
$node->reload;
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';

# ---- rows are spread over row groups ----
q1("CREATE FOREIGN TABLE spread (id int) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
q1("INSERT INTO spread SELECT g FROM generate_series($_ * 3000 + 1, $_ * 3000 + 3000) g") for 0 .. 21;
drain($node, 'spread');
is(q1("SELECT string_agg(rows::text, ' ') FROM strata.row_groups WHERE store = 'spread'::regclass"), '33000 33000',
	'66,000 rows of a generation become two row groups alike');

# ---- a few superseded rows in each row group ----
q1("CREATE FOREIGN TABLE thin (id int, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '2000')");
q1('INSERT INTO thin SELECT g, 1 FROM generate_series(1, 8000) g');
drain($node, 'thin');
q1('INSERT INTO thin SELECT g, 2 FROM generate_series(1, 8000, 8) g');
drain($node, 'thin');
my $thin = "SELECT count(*) || ' ' || sum(rows) || ' ' || sum(deleted) FROM strata.row_groups WHERE store = 'thin'::regclass";
is(q1($thin), '5 9000 1000', 'an eighth of each row group is superseded');
q1("SELECT * FROM strata.compact('thin')");
is(q1($thin), '5 8000 0', 'settling gets rid of it');

# ---- a few free blocks in a file ----
my $times = "SELECT round(pg_relation_size(s.storage) / sum(stored_bytes * (rows - deleted)::numeric / rows), 2)
	FROM strata.row_groups g JOIN strata.stores s USING (store) WHERE store = 'rest'::regclass GROUP BY s.storage";
q1("CREATE FOREIGN TABLE rest (id int, p text) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '4000')");
q1("INSERT INTO rest SELECT g, (SELECT string_agg(md5((g * 40 + i)::text), '') FROM generate_series(1, 32) i) FROM generate_series($_) g"),
  drain($node, 'rest') for '-3650, -1', '1, 24000';
q1('DELETE FROM rest WHERE id < 0');
drain($node, 'rest');
cmp_ok(q1($times), '>', 1.15, 'a seventh of the rows go: ' . q1($times) . ' times the live data');
q1("SELECT * FROM strata.compact('rest'); SELECT * FROM strata.sweep('rest')") for 1 .. 4;
cmp_ok(q1($times), '<', 1.1, 'less than a sixteenth is left free, or can be cut off: ' . q1($times));
is(q1('SELECT count(*) FROM rest'), 24000, 'rows');
verify_clean($node, 'rest', 'rest', 1);

# ---- what lies at the end of the file ----
create_pair($node, 'far', "auto_merge 'off', row_group_rows '2000'");
q1(<<'SQL');
CREATE FUNCTION noise(g int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5((g * 40 + i)::text), '') FROM generate_series(1, n) i $$;
CREATE FUNCTION words(g int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5((hashint4(g * 31 + i) % 400)::text), ' ') FROM generate_series(1, 20) i $$;
SQL
my $far = q1("SELECT storage FROM strata.stores WHERE store = 'far'::regclass");
sub both { my ($sql) = @_; return "$sql; " . $sql =~ s/\bfar\b/far_heap/gr . ';'; }
sub blocks { return q1("SELECT pg_relation_size('$far') / 8192"); }
sub tail { return q1("SELECT first_block FROM strata.shard WHERE store = 'far'::regclass"); }

# A psql that is refused while it is written to may be a broken pipe here.
sub wait_for_restart
{
	for (1 .. 600)
	{
		return if eval { $node->psql('postgres', 'SELECT 1') == 0 };
		sleep 0.2;
	}
	die 'no restart';
}

# A new file: many rows; others behind them, whose log takes new extents there
# and whose merge makes a dictionary; then the first ones go.
sub fill
{
	my ($v) = @_;
	q1(both("TRUNCATE far"));
	q1(both("INSERT INTO far (id, run_id, payload) SELECT 'gone' || g, $v, noise(g + $v, 16) FROM generate_series(1, 8000) g"));
	drain($node, 'far');
	q1(join '', map { both("INSERT INTO far (id, run_id, payload) SELECT 'kept' || g, $v, words(g + $v) FROM generate_series($_ * 20 + 1, $_ * 20 + 20) g") } 0 .. 199);
	drain($node, 'far');
	q1(both("DELETE FROM far WHERE id LIKE 'gone%'"));
	drain($node, 'far');
	q1("SELECT * FROM strata.compact('far'); SELECT * FROM strata.sweep('far')");
	q1('CHECKPOINT');    # short recoveries
	return;
}

fill(1);
my ($long, $dictionary, $old_tail) = (blocks(), q1("SELECT max(first_block) FROM strata.dictionary WHERE store = 'far'::regclass"), tail());
cmp_ok($dictionary, '>', 256, "a dictionary lies behind, at block $dictionary of $long");
cmp_ok($old_tail, '>', 256, "so does the log, at block $old_tail");
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $fingerprint = "SELECT count(*) || ' ' || sum(hashtextextended(t::text, 0)::numeric) FROM far t";
my $before = $old->query_safe($fingerprint);
my $numbers = q1("SELECT string_agg(number::text, ' ') FROM strata.row_groups WHERE store = 'far'::regclass AND deleted = 0");
q1("SELECT * FROM strata.compact('far')");
is(q1("SELECT string_agg(number::text, ' ') FROM strata.row_groups WHERE store = 'far'::regclass"), $numbers, 'row groups that moved are the same ones');
q1("SELECT * FROM strata.sweep('far')");
cmp_ok(blocks(), '>=', $long, 'a snapshot from before keeps the file');
is($old->query_safe($fingerprint), $before, 'and reads the same');
same_rows($node, 'far', 'moved: rows');
is(q1("SELECT count(*) FROM far_heap h LEFT JOIN far t USING (id) WHERE t.payload IS DISTINCT FROM h.payload"), 0, 'moved: lookups');
$old->query_safe('COMMIT');
q1("SELECT * FROM strata.sweep('far'); SELECT * FROM strata.compact('far'); SELECT * FROM strata.sweep('far')");
cmp_ok(blocks(), '<', $long / 2, 'then it is cut: ' . blocks() . ' blocks');
cmp_ok(q1("SELECT max(first_block) FROM strata.dictionary WHERE store = 'far'::regclass"), '<', $dictionary, 'the dictionary has moved');
cmp_ok(tail(), '<', $old_tail, 'and the log');
is($old->query_safe($fingerprint), $before, 'a backend that knew the old places');
$old->quit;
same_rows($node, 'far', 'cut: rows');
verify_clean($node, 'far', 'cut', 1);

# A generation with rows in it stays where it is.
fill(2);
q1(both("INSERT INTO far (id) VALUES ('pending')"));
q1("SELECT * FROM strata.compact('far')");
same_rows($node, 'far', 'pending rows: none lost');
is(pending($node, 'far'), 0, 'nor sealed');

# Nor does one that gets a row when the plan is made already.
fill(3);
pause_arm($node, 'log-prepare-after-record', 'hold');
my $compact = $node->background_psql('postgres');
$compact->{stdin} .= "SELECT * FROM strata.compact('far');\n\\echo compacted\n";
$compact->{run}->pump_nb;
pause_wait($node, 'log-prepare-after-record');
q1(both("INSERT INTO far (id) VALUES ('late')"));
pause_clear($node, 'log-prepare-after-record');
$compact->{run}->pump until $compact->{stdout} =~ /compacted/;
$compact->quit;
same_rows($node, 'far', 'a late row is not lost');
verify_clean($node, 'far', 'late row');

for my $step ([ 'shorten-copied', 'kill' ], [ 'manifest-dictionary-added', 'kill' ], [ 'compact-after-manifest', 'kill' ],
	[ 'compact-before-commit', 'error' ], [ 'log-prepare-after-record', 'kill' ], [ 'log-seal-before-record', 'kill' ],
	[ 'shorten-tail-moved', 'kill' ], [ 'shorten-tail-moved', 'error' ])
{
	my ($point, $action) = @$step;
	if ($point =~ /copied|log|tail/) { fill(3); }
	else { q1("SELECT * FROM strata.sweep('far')"); }
	pause_arm($node, $point, $action);
	isnt($node->psql('postgres', "SELECT * FROM strata.compact('far')"), 0, "$point, $action: failed");
	pause_clear($node, $point);
	wait_for_restart();
	same_rows($node, 'far', "$point, $action: rows");
	verify_clean($node, 'far', "$point, $action");
}

# What the last one left is an empty closed generation, which a merge removes.
my $folded = "SELECT generations_merged || ' ' || rows_read || ' ' || generations_left FROM strata.merge('far')";
is(pending($node, 'far'), 1, 'a failed move of the log: one closed generation');
is(q1("SELECT pending_rows FROM strata.stores WHERE store = 'far'::regclass"), 0, 'without rows');
is(q1($folded), '1 0 0', 'a merge folds it');
is(q1($folded), '0 0 0', 'and the next one has nothing to do');
verify_clean($node, 'far', 'a failed move of the log, merged');

# To workers it is due like any other, once.
fill(3);
pause_arm($node, 'shorten-tail-moved', 'error');
isnt($node->psql('postgres', "SELECT * FROM strata.compact('far')"), 0, 'another failed move');
pause_clear($node, 'shorten-tail-moved');
q1("ALTER FOREIGN TABLE far OPTIONS (SET auto_merge 'on', ADD merge_interval '1s', ADD merge_after_generations '0'); INSERT INTO far (id) VALUES ('later')");
q1("INSERT INTO far_heap (id) VALUES ('later'); ALTER SYSTEM SET strata.max_workers = 1");
$node->reload;
ok($node->poll_query_until('postgres', "SELECT pending_generations = 0 AND wanted_by IS NULL FROM strata.stores WHERE store = 'far'::regclass"),
	'workers merge it, and what came after it');
my $cut = "SELECT pg_relation_size('$far') / 8192 < $long / 2";
ok($node->poll_query_until('postgres', $cut), 'and settle the table');
my $merges = "SELECT count(*) FROM strata.merges WHERE store = 'far'::regclass AND what = 'merge'";
my $merged = q1($merges);
sleep 3;
is(q1($merges), $merged, 'then no more merges');
same_rows($node, 'far', 'merged by workers: rows');

# A restart forgets what there was to gain; the first look at quiet tables finds it.
q1("ALTER SYSTEM SET strata.max_workers = 0");
$node->reload;
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';
fill(3);
is(q1($cut), 'f', 'a quiet table with free space before its data');
q1("ALTER SYSTEM SET strata.max_workers = 1");
$node->restart;
ok($node->poll_query_until('postgres', $cut), 'is settled after a restart');
my $upkeep = "SELECT coalesce(string_agg(concat_ws(' ', store::regclass, compactions, sweeps), ', ' ORDER BY store::text), '') FROM strata.stat WHERE compactions + sweeps > 0";
($was, $is) = ('', 'none');
for (1 .. 30)
{
	last if $was eq $is;
	($was, $is) = ($is, q1($upkeep));
	sleep 2;
}
is($is, $was, "which ends ($is)");
unlike($is, qr/steady|spread/, 'and is not done where there is nothing to gain');
same_rows($node, 'far', 'settled after a restart: rows');

# Also when that look fails at first, at either of its steps.
q1('DROP FOREIGN TABLE steady, spread, thin, waits, rest');
for my $step ('look', 'survey')
{
	q1('ALTER SYSTEM SET strata.max_workers = 0');
	$node->reload;
	$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';
	fill(3);
	is(q1($cut), 'f', "failed $step: there is something to gain");
	q1("ALTER SYSTEM SET strata.max_workers = 1");
	pause_arm($node, 'worker-step', 'error') if $step eq 'look';
	pause_arm($node, 'worker-step-done', 'hold') if $step eq 'survey';
	my $offset = -s $node->logfile;
	$node->restart;
	if ($step eq 'survey')
	{
		pause_wait($node, 'worker-step-done');
		pause_arm($node, 'worker-step', 'error');
		pause_clear($node, 'worker-step-done');
	}
	ok($node->poll_query_until('postgres', $cut), "failed $step: settled all the same");
	like(slurp_file($node->logfile, $offset), qr/inspection of postgres\.public\.far failed \(1 in a row\)/, "failed $step: it did fail");
}

# And when the table is locked just when it was to be settled.
q1('ALTER SYSTEM SET strata.max_workers = 0');
$node->reload;
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';
fill(3);
is(q1($cut), 'f', 'locked: there is something to gain');
q1('ALTER SYSTEM SET strata.max_workers = 1');
$node->restart;
sleep 3;
my $locker = $node->background_psql('postgres');
$locker->query_safe("BEGIN; LOCK TABLE $far IN ACCESS EXCLUSIVE MODE");
sleep 8;
$locker->query_safe('COMMIT');
$locker->quit;
ok($node->poll_query_until('postgres', $cut), 'locked: settled later');
same_rows($node, 'far', 'after failed looks: rows');

# And though the turn that merged failed at the ANALYZE after it, as all later ones.
q1('ALTER SYSTEM SET strata.max_workers = 0');
$node->reload;
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';
fill(3);
q1('CREATE STATISTICS never ON (1 / (run_id - 4)), run_id FROM far');
q1(both("INSERT INTO far (id, run_id) SELECT 'new' || g, 4 FROM generate_series(1, 4000) g"));
is(q1($cut), 'f', 'no ANALYZE: there is something to gain');
my $begun = -s $node->logfile;
q1('ALTER SYSTEM SET strata.max_workers = 1');
$node->reload;
ok($node->poll_query_until('postgres', $cut), 'no ANALYZE: settled all the same');
like(slurp_file($node->logfile, $begun), qr/analyze of postgres\.public\.far failed \(1 in a row\)/i, 'no ANALYZE: it did fail');
q1('DROP STATISTICS never');
same_rows($node, 'far', 'after failed turns: rows');

q1("ALTER FOREIGN TABLE far OPTIONS (SET auto_merge 'off'); ALTER SYSTEM SET strata.max_workers = 0");
$node->reload;
$node->poll_query_until('postgres', "SELECT count(*) = 0 FROM strata.workers") or die 'a worker stays';

drain($node, 'far');
q1("SELECT * FROM strata.sweep('far'); SELECT * FROM strata.compact('far'); SELECT * FROM strata.sweep('far')") for 1 .. 2;
cmp_ok(blocks(), '<', $long / 2, 'cut after all: ' . blocks() . ' blocks');
crash($node);
$node->start;
same_rows($node, 'far', 'after a crash: rows');
verify_clean($node, 'far', 'after a crash', 1);

$node->stop;
done_testing();
