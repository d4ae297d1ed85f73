# Replay makes the very pages of the primary, so nothing is written outside WAL
# and no page depends on what was on its block before; and it cancels standby
# queries before it takes something from them.
use strict;
use warnings;
# a standby that stumbles over a record never catches up
BEGIN { $ENV{PG_TEST_TIMEOUT_DEFAULT} //= 60; }
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

# Without full_page_writes only what must be an image is one.
my $node = strata_node('primary', streaming => 1, autovacuum => 'off', checkpoint_timeout => '1h', max_wal_size => '1GB',
	full_page_writes => 'off');
$node->safe_psql('postgres', 'CREATE EXTENSION pageinspect');
create_pair($node, 't', "auto_merge 'off', row_group_rows '1500'");
my $storage = $node->safe_psql('postgres', "SELECT storage FROM strata.stores WHERE store = 't'::regclass");

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 500ms\nhot_standby_feedback = off\n");
$standby->start;

sub caught_up { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')); return; }

# Every page, without its checksum: that is only there on disk.
my $pages = <<"SQL";
SELECT string_agg(block || ' ' || md5(overlay(page PLACING '\\x0000' FROM 9 FOR 2)), E'\\n' ORDER BY block)
FROM (SELECT b AS block, get_raw_page('$storage', b) AS page
      FROM generate_series(0, pg_relation_size('$storage') / 8192 - 1) b) p
SQL
sub same_pages
{
	my ($what) = @_;
	caught_up();
	my @here = split /\n/, $node->safe_psql('postgres', $pages);
	my @there = split /\n/, $standby->safe_psql('postgres', $pages);
	is(scalar @there, scalar @here, "$what: the standby's file is as long");
	my @differ = grep { ($here[$_] // '') ne ($there[$_] // '') } 0 .. $#here;
	is("@differ", '', "$what: no page differs");
	return;
}

$node->safe_psql('postgres', send_rows('t', 1, 20, 0));
same_pages('a new store');
$node->safe_psql('postgres', send_rows('t', 1, 3000, 1, 400));
same_pages('a load');
for my $round (1 .. 3)
{
	$node->safe_psql('postgres', send_rows('t', $_ * 40, $_ * 40 + 60, 10 * $round + $_, 300)) for 1 .. 30;
	drain($node, 't');
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	same_pages("reuse $round");
}
$node->safe_psql('postgres', send_rows('t', 1, 100, 50));
$node->safe_psql('postgres', 'BEGIN; ' . send_rows('t', 50, 150, 51) . 'ROLLBACK');
$node->safe_psql('postgres', "VACUUM (FREEZE) $storage");
same_pages('frozen entries');
is($node->safe_psql('postgres', "SELECT get_byte(get_raw_page('$storage', 0), 55) & 128"), 128,
	'the newest pass is settled: nobody asks for its xid again');
$node->safe_psql('postgres', send_rows('t', 1, 10, 52));
same_rows($node, 't', 'frozen entries count');
caught_up();
is(fingerprint($standby, 't'), fingerprint($node, 't'), 'on the standby too');

# A reader on the standby is older than what the primary takes.
for my $how ('reuse', 'freezing', 'index build')
{
	$node->safe_psql('postgres', "SELECT strata.drop_key_index('t')") if $how eq 'index build';
	caught_up();
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$reader->query('SELECT count(*) FROM t');
	my $offset = -s $standby->logfile;
	if ($how eq 'reuse')
	{
		$node->safe_psql('postgres', send_rows('t', 1, 400, 60));
		drain($node, 't');
		$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	}
	elsif ($how eq 'index build')
	{
		# compaction alone takes nothing from the reader, the index does
		cmp_ok($node->safe_psql('postgres', "SELECT row_groups_read FROM strata.compact('t')"), '>', 0, "$how: row groups went");
		$node->safe_psql('postgres', "SELECT strata.create_key_index('t')");
	}
	else
	{
		$node->safe_psql('postgres', "INSERT INTO t VALUES ('frozen'); INSERT INTO t_heap VALUES ('frozen')");
		$node->safe_psql('postgres', "VACUUM (FREEZE) $storage");
	}
	caught_up();
	like(slurp_file($standby->logfile, $offset), qr/due to conflict with recovery/, "$how: the reader was cancelled");
	eval { $reader->quit };
}
same_pages('in the end');

# A reader on the standby who wants nothing of it: an idle cursor holds no page
# of the key index, so that replay of the removal of TIDs need not cancel it.
{
	$node->safe_psql('postgres', "DELETE FROM t WHERE run_id = 6; DELETE FROM t_heap WHERE run_id = 6");
	drain($node, 't');
	caught_up();
	my $reader = $standby->background_psql('postgres');
	$reader->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id');
	my $ids = $reader->query_safe('FETCH 1 FROM c');
	cmp_ok($node->safe_psql('postgres', "SELECT index_tids_removed FROM strata.sweep('t')"), '>', 0, 'idle cursor: TIDs went');
	caught_up();
	$ids .= "\n" . $reader->query_safe('FETCH ALL FROM c');
	is($ids, $standby->safe_psql('postgres', 'SELECT id FROM t_heap ORDER BY id'), 'idle cursor: it goes on');
	$reader->quit;
}

# Nor does verify, while it looks at what it found there.
{
	$node->safe_psql('postgres', "DELETE FROM t WHERE run_id = 5; DELETE FROM t_heap WHERE run_id = 5");
	drain($node, 't');
	caught_up();
	pause_arm($standby, 'verify-index', 'hang');
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	$reader->query_until(qr/started/, "\\echo started\nSELECT 'faults: ' || count(*) FROM strata.verify('t');\n");
	pause_wait($standby, 'verify-index');
	cmp_ok($node->safe_psql('postgres', "SELECT index_tids_removed FROM strata.sweep('t')"), '>', 0, 'verify: TIDs went');
	caught_up();
	pause_clear($standby, 'verify-index');
	is($reader->query('SELECT 1'), "faults: 0\n1", 'verify: it goes on');
	$reader->quit;
}

# TRUNCATE replays as well; owner numbers go on.
sub next_owner { return unpack 'Q<', pack 'H16', $node->safe_psql('postgres', "SELECT encode(substr(get_raw_page('$storage', 1), 25, 8), 'hex')"); }
my $owner = next_owner();
$node->safe_psql('postgres', 'BEGIN; TRUNCATE t; TRUNCATE t_heap; COMMIT; ' . send_rows('t', 1, 50, 70));
same_pages('after TRUNCATE');
is(fingerprint($standby, 't'), fingerprint($node, 't_heap'), 'after TRUNCATE: the same rows');
cmp_ok(next_owner(), '>', $owner, 'after TRUNCATE: no owner number is used twice');
verify_clean($node, 't', 'in the end');

# A standby without a slot can ask, late, for what was given away: what a sweep
# has once taken is gone for whoever looks later.
$node->safe_psql('postgres', send_rows('t', 1, 3000, 80, 400));
drain($node, 't');
caught_up();
$standby->safe_psql('postgres', "ALTER SYSTEM SET $_; SELECT pg_reload_conf()")
  for 'max_standby_streaming_delay = -1', 'wal_receiver_status_interval = 1';
my $reader = $standby->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $count = 'SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM t';
my $seen = $reader->query_safe($count);
$node->safe_psql('postgres', "DELETE FROM t WHERE run_id < 6; DELETE FROM t_heap WHERE run_id < 6");
drain($node, 't');
$node->safe_psql('postgres', "SELECT * FROM strata.compact('t'); SELECT * FROM strata.sweep('t')") for 1 .. 2;
$node->safe_psql('postgres', send_rows('t', 1, 3000, 81, 400));
drain($node, 't');
my $next = $node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
$standby->safe_psql('postgres', 'ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf()');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin::text::int < $next"), 'the horizon goes back');
verify_clean($node, 't', 'horizon gone back');
is($node->safe_psql('postgres', "SELECT r::text FROM strata.repair('t') r"), '', 'horizon gone back: repair finds nothing either');
for my $sql ("SELECT * FROM strata.sweep('t')", "VACUUM (FREEZE) $storage", "SELECT strata.drop_key_index('t'), strata.create_key_index('t')")
{
	my ($status, undef, $error) = $node->psql('postgres', $sql);
	is("$status $error", '0 ', "horizon gone back: $sql");
}
same_rows($node, 't', 'horizon gone back: rows');
is($reader->query_safe($count), $seen, 'the reader has what it saw');
$reader->query_safe('COMMIT');
$reader->quit;
same_pages('horizon gone back');

$standby->stop;
$node->stop;
done_testing();
