# What only a crash shows: an entry flushed where its xid is not the current
# one must not become somebody else's; a file that is synced instead of logged
# is not logged in part.  And a damaged free block does no harm.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('crash_rules', autovacuum => 'off', wal_level => 'minimal', max_wal_senders => 0,
	checkpoint_timeout => '1h', max_wal_size => '1GB', fsync => 'on', wal_skip_threshold => 0);

sub sql { return $node->safe_psql('postgres', @_); }

# ---- the xid of an entry is known after a crash ----
# The outer INSERT's rows are flushed by a look at the table in a block of a
# function, which has no xid of its own; nothing else of the transaction is
# logged.
sql("CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO t VALUES (1, 'there')");
sql(<<'SQL');
CREATE FUNCTION look_and_wait(n int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF n = 11 THEN
		RETURN (SELECT count(*) FROM t);
	ELSIF n = 12 THEN
		PERFORM pg_sleep(300);
	END IF;
	RETURN 'phantom';
EXCEPTION WHEN division_by_zero THEN
	RETURN 'no';
END $$;
SQL
sql('CHECKPOINT');
my $xid = sql('SELECT pg_snapshot_xmax(pg_current_snapshot())');
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_until(qr/go/, "\\echo go\nINSERT INTO t SELECT g, look_and_wait(g) FROM generate_series(10, 12) g;\n");
$node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'") or die;
is(sql('SELECT pg_snapshot_xmin(pg_current_snapshot())'), $xid, 'the transaction has the next xid');
is(sql("SELECT rows > 1 FROM strata.generations WHERE store = 't'::regclass"), 't', 'a row of it is in the log');
sql('SELECT pg_switch_wal()');
crash($node);
eval { $session->quit };
$node->start;
# Whatever xid the lost transaction had, somebody commits under it now.
my $last = 0;
$last = sql('SELECT pg_current_xact_id()') while $last <= $xid;
is(sql('SELECT id, v FROM t ORDER BY id'), '1|there', 'after a crash nothing of it shows');
sql("SELECT * FROM strata.seal('t')");
drain($node, 't');
is(sql('SELECT id, v FROM t ORDER BY id'), '1|there', 'nor after a merge');

# ---- WAL skipped for a new file is skipped for all of it ----
sql(<<'SQL');
BEGIN;
CREATE FOREIGN TABLE m (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO m VALUES (1, 'a');
INSERT INTO m SELECT g, string_agg(md5(g || ' ' || h), '') FROM generate_series(2, 500) g, generate_series(1, 20) h GROUP BY g;
INSERT INTO m VALUES (501, 'z');
COMMIT;
SQL
my $before = fingerprint($node, 'm');
crash($node);
$node->start;
is(fingerprint($node, 'm'), $before, 'wal_level minimal: all rows of a new table are there');
verify_clean($node, 'm', 'wal_level minimal');
sql('BEGIN; TRUNCATE m; INSERT INTO m SELECT g, g FROM generate_series(1, 2000) g; COMMIT');
$before = fingerprint($node, 'm');
crash($node);
$node->start;
is(fingerprint($node, 'm'), $before, 'and of a truncated one');
verify_clean($node, 'm', 'wal_level minimal, TRUNCATE');

# ---- what was on a free block does not matter ----
sql("CREATE FOREIGN TABLE f (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO f VALUES (0, 'x')");
my $path = $node->data_dir . '/'
  . sql("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'f'::regclass");
$node->stop;
{
	# of a new store all blocks from 19 on are free
	open my $file, '+<', $path or die "$path: $!";
	binmode $file;
	cmp_ok(-s $file, '>=', 60 * 8192, 'a new store has free blocks');
	for my $block (19 .. 59)
	{
		seek $file, $block * 8192, 0;
		print $file 'damage! ' x 1024;
	}
	close $file;
}
$node->start;
sql("INSERT INTO f SELECT g, string_agg(md5(g || ' ' || h), '') FROM generate_series(1, 500) g, generate_series(1, 30) h GROUP BY g");
sql("INSERT INTO f SELECT g, g FROM generate_series(1000, 1500) g") for 1 .. 20;
is(sql('SELECT count(*) FROM f'), 1002, 'damaged free blocks are used as if nothing were there');
verify_clean($node, 'f', 'damaged free blocks');
drain($node, 'f');
is(sql('SELECT count(*) FROM f'), 1002, 'merged, too');

# ---- a generation whose last page does not say CLOSED is not folded ----
# Its summary, on the first page, says so in the same record; only damage can
# make the two differ.
sql("CREATE FOREIGN TABLE c (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off')");
sql("INSERT INTO c VALUES (1, 'x')");
sql("SELECT * FROM strata.seal('c')");
$path = $node->data_dir . '/'
  . sql("SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 'c'::regclass");
my $block = sql("SELECT last_block FROM strata.generations WHERE store = 'c'::regclass AND state = 'sealed'");
$node->stop;
command_ok(['pg_checksums', '--disable', '-D', $node->data_dir], 'checksums off');
{
	# log page header, behind 24 bytes of page header: flags at 12, next page at 48
	open my $file, '+<', $path or die "$path: $!";
	binmode $file;
	sysseek $file, $block * 8192 + 24 + 12, 0;
	sysread $file, my $flags, 2;
	is(unpack('S', $flags) & 1, 1, 'the page is closed');
	sysseek $file, $block * 8192 + 24 + 12, 0;
	syswrite $file, pack('S', unpack('S', $flags) & ~1);
	sysseek $file, $block * 8192 + 24 + 48, 0;
	syswrite $file, "\0" x 16;
	close $file;
}
$node->start;
is(sql("SELECT generations_merged, generations_left FROM strata.merge('c')"), '0|1', 'a page that is not closed: not folded');
like(sql("SELECT problem FROM strata.verify('c')"), qr/ends before its tail page/, 'and verify says so');
like(($node->psql('postgres', "SELECT * FROM strata.sweep('c')"))[2], qr/ends before its tail page/, 'sweep takes nothing');

$node->stop;
done_testing();
