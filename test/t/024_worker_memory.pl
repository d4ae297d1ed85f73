# Memory of merging (L5, L6, L14, L15, L45, L50): four workers on eight stores of
# large rows stay within strata.merge_memory and all finish; a long backlog and
# many passes leave the workers' memory flat (L1, L51).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use Time::HiRes qw(sleep time);

my $MB = 1024 * 1024;
my $budget = 96;
my $node = strata_node('wmemory', 'strata.max_workers' => 4, 'strata.merge_memory' => "'${budget}MB'",
	max_worker_processes => 16, max_wal_size => '4GB', fsync => 'off');
sub q1 { return $node->safe_psql('postgres', $_[0]); }

# RssAnon of all workers together, in bytes.
sub workers_rss
{
	my ($watch) = @_;
	my $sum = 0;
	my $largest = 0;
	for my $pid (split /\n/, $watch->query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata worker'"))
	{
		my $text = eval { slurp_file("/proc/$pid/status") } // '';
		next unless $text =~ /^RssAnon:\s+(\d+)/m;
		$sum += $1 * 1024;
		$largest = $1 * 1024 if $1 * 1024 > $largest;
	}
	return ($sum, $largest);
}

q1("ALTER SYSTEM SET strata.max_workers = 0; SELECT pg_reload_conf()");
for my $s (1 .. 8)
{
	# Random text does not compress: stored as large as it is.
	q1("CREATE FOREIGN TABLE s$s (id int, p text) SERVER strata OPTIONS (key 'id', merge_interval '1s', merge_after_generations '1')");
	# Three rows of 1 MB a statement: too little to be adopted as they lie.
	for my $v (1 .. 4)
	{
		q1("INSERT INTO s$s SELECT $v * 3 + g, (SELECT string_agg(md5(random()::text || i || g), '') FROM generate_series(1, 32768) i) FROM generate_series(1, 3) g");
	}
	q1("SELECT * FROM strata.seal('s$s')");
}
# So that passes overlap for long enough to be seen.
pause_arm($node, 'pass-after-budget', 'sleep 500');
q1("ALTER SYSTEM RESET strata.max_workers; SELECT pg_reload_conf()");
q1("INSERT INTO s1 VALUES (1000, 'x')");
my ($taken, $waiting, $most, $rss) = (0, 0, 0, 0);
my $watch = $node->background_psql('postgres');
my $end = time + 180;
while (time < $end)
{
	my ($t, $w, $n, $left) = split /\|/, $watch->query("SELECT taken, waiting, (SELECT count(*) FROM strata.workers), (SELECT sum(pending_generations) FROM strata.stores) FROM strata.merge_memory()");
	$taken = $t if $t > $taken;
	$waiting = $w if $w > $waiting;
	$most = $n if $n > $most;
	my ($sum) = workers_rss($watch);
	$rss = $sum if $sum > $rss;
	last if $left == 0;
	sleep 0.02;
}
pause_clear($node, 'pass-after-budget');
is(q1('SELECT sum(pending_generations) FROM strata.stores'), 0, 'all eight stores are merged');
cmp_ok($taken, '>', 0, 'memory is taken from the budget');
cmp_ok($taken, '<=', $budget * $MB, sprintf('at most the budget: %.1f MB', $taken / $MB));
cmp_ok($waiting, '>', 0, "workers wait for memory: $waiting");
cmp_ok($most, '>', 1, "several workers at once: $most");
note sprintf 'waiting at most %d, RssAnon of all workers %.1f MB', $waiting, $rss / $MB;
# Beside what passes take, a worker is a backend with its caches.
cmp_ok($rss, '<=', $budget * $MB + 4 * 20 * $MB, sprintf('RSS of all workers %.1f MB', $rss / $MB));
is(q1("SELECT max(peak_memory) <= " . $budget * $MB . " FROM strata.merges"), 't', 'so say the passes');
is(q1("SELECT string_agg(c::text, ' ') FROM (SELECT (SELECT count(*) FROM s2) c UNION ALL SELECT count(DISTINCT length(p)) FROM s2) x"), '12 1', 'rows are there');

# ---- no budget to speak of: one at a time, and all finish ----
$node->append_conf('postgresql.conf', "strata.merge_memory = '8MB'");
$node->reload;
for my $s (1 .. 8) { q1("INSERT INTO s$s SELECT g, 'small' FROM generate_series(1, 5000) g; SELECT * FROM strata.seal('s$s')"); }
ok($node->poll_query_until('postgres', 'SELECT sum(pending_generations) = 0 FROM strata.stores'), 'a tiny budget: all finish');
is(q1("SELECT taken, waiting FROM strata.merge_memory()"), '0|0', 'and all of it is given back');

# Users' merges share it; one that waits can be cancelled and holds nothing then.
q1("ALTER SYSTEM SET strata.max_workers = 0; SELECT pg_reload_conf()");
q1("INSERT INTO s$_ VALUES (1, 'again'); SELECT * FROM strata.seal('s$_')") for 1 .. 2;
pause_arm($node, 'pass-after-budget', 'hold');
my $holder = $node->background_psql('postgres');
$holder->{stdin} .= "SELECT generations_merged FROM strata.merge('s1');\n";
$holder->{run}->pump_nb;
pause_wait($node, 'pass-after-budget');
my ($ret, $out, $err) = $node->psql('postgres', "SET statement_timeout = '1s'; SELECT * FROM strata.merge('s2')");
like($err, qr/statement timeout/, 'a merge that waits for memory can be cancelled');
is(q1("SELECT taken > 0, waiting FROM strata.merge_memory()"), 't|0', 'and waits no more');
pause_clear($node, 'pass-after-budget');
$holder->quit;
is(q1("SELECT generations_merged FROM strata.merge('s2')"), 1, 'then it goes through');
is(q1("SELECT taken FROM strata.merge_memory()"), 0, 'nothing is held');

# ---- a backlog of many generations: flat, pass by pass ----
my $backlog = $ENV{STRATA_BACKLOG} // 1500;
q1("CREATE FOREIGN TABLE backlog (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s', generation_max_rows '20')");
q1("DO \$\$BEGIN FOR i IN 1 .. $backlog LOOP INSERT INTO backlog SELECT g, i FROM generate_series(i, i + 20) g; END LOOP; END\$\$");
is(q1("SELECT pending_generations >= $backlog FROM strata.stores WHERE store = 'backlog'::regclass"), 't', "$backlog generations pending");
q1("CREATE FOREIGN TABLE small (id int, v text) SERVER strata OPTIONS (key 'id', merge_interval '1s')");
is(q1("SELECT count(*), sum(v::int) FROM backlog"), ($backlog + 20) . '|' . q1("SELECT sum(least(g, $backlog)) FROM generate_series(1, $backlog + 20) g"), 'reads are right meanwhile');
pause_arm($node, 'pass-begin', 'sleep 40');
q1("ALTER SYSTEM RESET strata.max_workers; SELECT pg_reload_conf()");
q1("INSERT INTO small VALUES (1, 'x')");
my (@rss, $small_done);
$end = time + 300;
while (time < $end)
{
	my ($sum, $largest) = workers_rss($watch);
	push @rss, $largest if $largest;
	my ($left, $small) = split /\|/, $watch->query("SELECT pending_generations, (SELECT pending_generations FROM strata.stores WHERE store = 'small'::regclass) FROM strata.stores WHERE store = 'backlog'::regclass");
	$small_done //= $left if $small == 0;
	last if $left == 0;
	sleep 0.2;
}
pause_clear($node, 'pass-begin');
$watch->quit;
is(q1("SELECT pending_generations FROM strata.stores WHERE store = 'backlog'::regclass"), 0, 'the backlog is drained');
cmp_ok($small_done // 0, '>', 0, 'a small store did not wait for it');
my @sorted = sort { $a <=> $b } @rss[ @rss / 4 .. $#rss ];
my $half = @rss > 8 ? (sort { $a <=> $b } @rss[ @rss / 4 .. @rss / 2 ])[-1] : 0;
cmp_ok($sorted[-1], '<', ($half || $sorted[-1]) + 6 * $MB, sprintf('flat: %.1f MB in the first half, %.1f MB in all', $half / $MB, $sorted[-1] / $MB)) if @rss > 8;
is(q1("SELECT max(generations_merged) FROM strata.merges WHERE store = 'backlog'::regclass"), 8, 'no pass took more than it may (L2, L3)');
is(q1("SELECT count(*), sum(v::int) FROM backlog"), ($backlog + 20) . '|' . q1("SELECT sum(least(g, $backlog)) FROM generate_series(1, $backlog + 20) g"), 'and right after');
is(q1("SELECT count(*) FROM strata.verify('backlog')"), 0, 'sound');

# ---- many stores with a little each ----
my $stores = $ENV{STRATA_STORES} // 300;
q1("DO \$\$BEGIN FOR i IN 1 .. $stores LOOP EXECUTE format('CREATE FOREIGN TABLE many%s (id int, v text) SERVER strata OPTIONS (key ''id'', merge_interval ''1s'')', i); EXECUTE format('INSERT INTO many%s VALUES (1, ''x'')', i); END LOOP; END\$\$");
ok($node->poll_query_until('postgres', 'SELECT sum(pending_generations) = 0 FROM strata.stores'), "$stores stores are drained");
is(q1("SELECT max(failures) FROM strata.stores"), 0, 'without failures');

$node->stop;
done_testing();
