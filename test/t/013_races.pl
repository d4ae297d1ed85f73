# Windows between two steps, held open by pause points: extension against
# sweep, an appender that knows an old tail, a transaction that ends while a
# pass looks, a row whose key changes while somebody looks for it, manifests kept
# by backends, index builds for old snapshots, locks of a transaction that is over.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;
use POSIX ':sys_wait_h';

my $node = strata_node('races', autovacuum => 'off');
$node->safe_psql('postgres', 'CREATE EXTENSION pageinspect');

sub sql { return $node->safe_psql('postgres', @_); }

# A session that runs a statement in the background; finish() returns its
# output.
my $jobs = 0;
sub start
{
	my ($statement) = @_;
	my $file = $node->basedir . '/job' . $jobs++;
	my $pid = fork // die "fork: $!";
	return { pid => $pid, file => $file } if $pid;
	open STDOUT, '>', $file or POSIX::_exit(1);
	open STDERR, '>&', \*STDOUT or POSIX::_exit(1);
	exec('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $statement)
	  or POSIX::_exit(1);
}

sub running
{
	my ($job) = @_;
	$job->{done} ||= waitpid($job->{pid}, WNOHANG) == $job->{pid};
	return !$job->{done};
}

sub finish
{
	my ($job) = @_;
	waitpid $job->{pid}, 0 unless $job->{done};
	chomp(my $output = slurp_file($job->{file}));
	return $output;
}

sub eventually
{
	my ($test) = @_;
	for (1 .. 100)
	{
		return 1 if $test->();
		select undef, undef, undef, 0.05;
	}
	return 0;
}

sub reached { my ($point) = @_; return -e $node->data_dir . "/strata.pause/$point.reached"; }

# n rows of a kilobyte that does not compress, from $from on
sub noisy_rows
{
	my ($from, $n) = @_;
	return "SELECT g, (SELECT string_agg(md5(g || ' ' || h), '') FROM generate_series(1, 60) h) FROM generate_series($from, $from + $n - 1) g";
}

# ---- extension and its record, against sweep ----
# The blocks of an extension that are not listed yet look unreferenced.
sql("CREATE FOREIGN TABLE e (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO e VALUES (0, 'first')");
pause_arm($node, 'storage-extended', 'hold');
my $load = start('INSERT INTO e ' . noisy_rows(1, 2000));
pause_wait($node, 'storage-extended');
my $sweep = start("SELECT blocks_left FROM strata.sweep('e')");
ok(eventually(sub {
	sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 10 AND NOT granted") > 0 || !running($sweep)
}), 'sweep waits or is done');
pause_clear($node, 'storage-extended');
is(finish($load), '', 'extension: the load is done');
is(finish($sweep), '0', 'extension: so is sweep');
verify_clean($node, 'e', 'extension: no block is in two places');
sql('INSERT INTO e ' . noisy_rows(10001, 800));
is(sql('SELECT count(*), count(DISTINCT md5(v)) FROM e'), '2801|2801', 'extension: all rows are there');
drain($node, 'e');
sql("SELECT * FROM strata.sweep('e')");
is(sql('SELECT count(*), count(DISTINCT md5(v)) FROM e'), '2801|2801', 'extension: after merges, too');
verify_clean($node, 'e', 'extension');

# ---- an appender that knows the tail of a generation sealed and merged since ----
sql("CREATE FOREIGN TABLE a (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO a VALUES (1, 'old'), (2, 'old')");
pause_arm($node, 'log-append-tail-known', 'hold');
my $writer = start("INSERT INTO a VALUES (1, 'new'), (3, 'new')");
pause_wait($node, 'log-append-tail-known');
sql("SELECT * FROM strata.seal('a')");
is(sql("SELECT generations_merged FROM strata.merge('a')"), 1, 'seal: the generation is merged');
pause_clear($node, 'log-append-tail-known');
is(finish($writer), '', 'seal: the writer goes on');
is(sql('SELECT id, v FROM a ORDER BY id'), "1|new\n2|old\n3|new", 'seal: its rows count');
drain($node, 'a');
is(sql('SELECT id, v FROM a ORDER BY id'), "1|new\n2|old\n3|new", 'seal: merged, too');
verify_clean($node, 'a', 'seal');

# The same with a tail that has a next page since, and room for our small entry:
# versions before it would be newer than ours.
sql("CREATE FOREIGN TABLE n (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO n VALUES (1, 'x')");
my $tail = sql("SELECT last_block FROM strata.generations WHERE store = 'n'::regclass");
my $storage = sql("SELECT storage FROM strata.stores WHERE store = 'n'::regclass");
sub room { return sql("SELECT upper - lower FROM page_header(get_raw_page('$storage', $tail))"); }
my $entry = room();
sql("INSERT INTO n VALUES (1, 'x')");
$entry -= room();
for (1 .. 200)
{
	last if room() < 250;
	my $length = room() > 1000 ? 400 : 20;
	sql("INSERT INTO n SELECT 100, left(string_agg(md5(g::text), ''), $length) FROM generate_series(1, 20) g");
}
my $room = room();
ok($room >= $entry && $room < 256, "next page: $room bytes of room for an entry of $entry");
# a load of many keys does not wait for the lock of one of them
pause_arm($node, 'log-append-tail-known', 'hold');
$writer = start("INSERT INTO n VALUES (7, 'z')");
pause_wait($node, 'log-append-tail-known');
sql("INSERT INTO n SELECT CASE g WHEN 1 THEN 7 ELSE g + 1000 END, md5(g::text) FROM generate_series(1, 100) g");
pause_clear($node, 'log-append-tail-known');
is(finish($writer), '', 'next page: the writer goes on');
is(sql('SELECT v FROM n WHERE id = 7'), 'z', 'next page: the entry appended last wins');
drain($node, 'n');
is(sql('SELECT v FROM n WHERE id = 7'), 'z', 'next page: merged, too');
verify_clean($node, 'n', 'next page');

# ---- pages stay locked until their record is inserted ----
# A checkpoint would write pages of a load that no record describes yet.
sql("CREATE FOREIGN TABLE w (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
pause_arm($node, 'storage-run-before-record', 'hold');
$load = start('INSERT INTO w ' . noisy_rows(1, 200));
pause_wait($node, 'storage-run-before-record');
my $checkpoint = start('CHECKPOINT');
my $waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'BufferContent'";
ok(eventually(sub { sql("$waits AND backend_type = 'checkpointer'") > 0 || !running($checkpoint) }),
	'record of a load: the checkpoint is on its way');
ok(running($checkpoint), 'record of a load: it waits for the pages');
pause_clear($node, 'storage-run-before-record');
is(finish($load), '', 'record of a load: the load goes on');
is(finish($checkpoint), '', 'record of a load: so does the checkpoint');

# The entry of somebody who knew the tail and found it unlocked would be
# overwritten.
sql("CREATE FOREIGN TABLE l (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql('INSERT INTO l ' . noisy_rows(1, 2));
pause_arm($node, 'log-append-tail-known', 'hold');
$writer = start("INSERT INTO l VALUES (100, 'small')");
pause_wait($node, 'log-append-tail-known');
pause_arm($node, 'log-link-before-record', 'hold');
$load = start('INSERT INTO l ' . noisy_rows(3, 8));
pause_wait($node, 'log-link-before-record');
pause_clear($node, 'log-append-tail-known');
ok(eventually(sub { sql("$waits AND backend_type = 'client backend'") > 0 || !running($writer) }),
	'record of a link: the other writer is on its way');
ok(running($writer), 'record of a link: it waits for the tail');
pause_clear($node, 'log-link-before-record');
is(finish($load), '', 'record of a link: the first goes on');
is(finish($writer), '', 'record of a link: so does the other');
is(sql('SELECT count(*), count(*) FILTER (WHERE id = 100) FROM l'), '11|1', 'record of a link: no row is lost');
verify_clean($node, 'l', 'record of a link');

# ---- a transaction that commits while a pass looks at it ----
sql("CREATE FOREIGN TABLE o (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
my $open = $node->background_psql('postgres');
$open->query('BEGIN');
$open->query("INSERT INTO o VALUES (1, 'committed')");
sql("SELECT * FROM strata.seal('o')");
pause_arm($node, 'log-outcome-ended', 'hold');
my $pass = start("SELECT generations_merged FROM strata.merge('o')");
ok(eventually(sub { reached('log-outcome-ended') || !running($pass) }), 'outcome: the pass has looked');
$open->query('COMMIT');
pause_clear($node, 'log-outcome-ended');
finish($pass);
is(sql('SELECT * FROM o'), '1|committed', 'outcome: the row is there');
drain($node, 'o');
is(sql('SELECT * FROM o'), '1|committed', 'outcome: merged, too');

# ---- a row gets a key in another shard while somebody looks for it ----
sql("CREATE FOREIGN TABLE x (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', shards '2', auto_merge 'off')");
my ($from, $to);
my %rows;
for (my $id = 1; !defined $from || !defined $to; $id++)
{
	sql("INSERT INTO x VALUES ($id, 'row $id')");
	for (split /\n/, sql("SELECT shard, sum(rows) FROM strata.generations WHERE store = 'x'::regclass GROUP BY 1"))
	{
		my ($shard, $n) = split /\|/;
		next if $n == ($rows{$shard} // 0);
		$rows{$shard} = $n;
		if ($shard == 0) { $from = $id; } else { $to = $id; }
	}
}
sql("DELETE FROM x WHERE id = $to");
pause_arm($node, 'log-append-after-record', 'hold');
my $changes = start("UPDATE x SET id = $to WHERE id = $from");
ok(eventually(sub { reached('log-append-after-record') || !running($changes) }), 'key: the old one is deleted');
pause_arm($node, 'log-row-known', 'hold');
my $locks = start("SELECT id, v FROM x WHERE v = 'row $from' FOR UPDATE");
ok(eventually(sub { reached('log-row-known') || !running($locks) }), 'key: somebody knows that');
pause_clear($node, 'log-append-after-record');
is(finish($changes), '', 'key: the new one is put');
pause_clear($node, 'log-row-known');
is(finish($locks), "$to|row $from", 'key: the row is found there');

# ---- manifests that a backend keeps ----
create_pair($node, 'm', "auto_merge 'off', row_group_rows '500'");
sql(send_rows('m', 1, 1000, 0));
my $fp = "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM m t";
my $keeps = $node->background_psql('postgres');
is($keeps->query($fp), fingerprint($node, 'm_heap'), 'manifest: nothing merged yet');
for my $round (1 .. 3)
{
	drain($node, 'm');
	sql("SELECT * FROM strata.sweep('m')");
	sql(send_rows('m', 300 * $round, 300 * $round + 500, $round));
	is($keeps->query($fp), fingerprint($node, 'm_heap'), "manifest: round $round, rows as on the heap");
}
# One that looked at its own pass, and rolled it back.
my $rolls_back = $node->background_psql('postgres');
sql("SELECT * FROM strata.seal('m')");
$rolls_back->query("BEGIN; SELECT count(*) FROM strata.merge('m')");
is($rolls_back->query($fp), fingerprint($node, 'm_heap'), 'manifest: a pass sees what it did');
$rolls_back->query('ROLLBACK');
sql("SELECT * FROM strata.sweep('m')");
sql(send_rows('m', 1, 3000, 7, 500));
is($rolls_back->query($fp), fingerprint($node, 'm_heap'), 'manifest: and after rolling back what is there');
drain($node, 'm');
is($_->query($fp), fingerprint($node, 'm_heap'), 'manifest: merged') for $keeps, $rolls_back;
verify_clean($node, 'm', 'manifest');

# ---- an index built while an old snapshot wants superseded rows ----
my $old = $node->background_psql('postgres');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $before = $old->query("SELECT md5(t::text) FROM m_heap t WHERE id = 'k50'");
sql(send_rows('m', 40, 60, 9));
drain($node, 'm');
sql("SELECT strata.drop_key_index('m'), strata.create_key_index('m')");
is($old->query("SELECT md5(t::text) FROM m t WHERE id = 'k50'"), $before, 'index: the old snapshot finds its row');
is($old->query("SELECT count(*) FROM m t WHERE id = ANY (SELECT 'k' || g FROM generate_series(1, 100) g)"), 100,
	'index: and all others');
$old->query('COMMIT');
same_rows($node, 'm', 'index');

# ---- who does not want to wait, and a transaction that is over ----
# Others see what it did before it lets go of its locks.
sql("CREATE FOREIGN TABLE taken (id int NOT NULL, n int) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql('INSERT INTO taken SELECT g, 0 FROM generate_series(1, 2000) g');
my %ends = (
	'its row' => 'UPDATE taken SET n = n + 1 WHERE id = 1',
	'a lock of its row' => 'SELECT FROM taken WHERE id = 1 FOR UPDATE; INSERT INTO taken VALUES (3, 3)',
	'all rows' => 'UPDATE taken SET n = n + 1');
for my $what (sort keys %ends)
{
	pause_arm($node, 'log-commit-over', 'hold');
	my $ends = start("BEGIN; $ends{$what}; COMMIT");
	pause_wait($node, 'log-commit-over');
	my $n = sql('SELECT n FROM taken WHERE id = 1');
	my @asks = map { start("SELECT n FROM taken WHERE id = 1 FOR SHARE $_") } 'SKIP LOCKED', 'NOWAIT';
	select undef, undef, undef, 0.1;
	ok(running($_), "$what is not locked, nor free yet") for @asks;
	pause_clear($node, 'log-commit-over');
	finish($ends);
	is(finish($_), $n, "$what was given back") for @asks;
}
my $holds = $node->background_psql('postgres');
$holds->query('BEGIN; SELECT FROM taken WHERE id = 1 FOR SHARE');
is(sql('SELECT count(*) FROM (SELECT FROM taken WHERE id = 1 FOR UPDATE SKIP LOCKED) t'), 0, 'one that goes on is in the way');
is(sql('SELECT count(*) FROM (SELECT FROM taken WHERE id = 1 FOR SHARE SKIP LOCKED) t'), 1, 'or not');

$_->quit for $holds, $open, $keeps, $rolls_back, $old;
$node->stop;
done_testing();
