# A physical standby made with pg_basebackup answers as the primary does, its
# repeatable read queries never see what was reused or frozen under them, and
# it can be promoted (P14, P77, P78).
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('primary', streaming => 1, wal_consistency_checking => "'generic,heap,btree'", max_wal_size => '512MB');
create_pair($node, 't', "auto_merge 'off', row_group_rows '1500'");
$node->safe_psql('postgres', send_rows('t', 1, 4000, 0, 200));
drain($node, 't');

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 2s\nhot_standby_feedback = off\n");
$standby->start;

sub caught_up { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')); }

$node->safe_psql('postgres', send_rows('t', 3500, 5000, 1, 200));
$node->safe_psql('postgres', "BEGIN; INSERT INTO t VALUES ('ghost'); ROLLBACK;");
$node->safe_psql('postgres', "BEGIN; INSERT INTO t VALUES ('k1', 5); PREPARE TRANSACTION 'p'");
caught_up();
is(fingerprint($standby, 't'), fingerprint($node, 't'), 'the standby sees pending rows as the primary does');
is($standby->safe_psql('postgres', "SELECT md5(t::text) FROM t WHERE id = 'k3600'"),
	$node->safe_psql('postgres', "SELECT md5(t::text) FROM t WHERE id = 'k3600'"), 'by key');
my ($ret, $stdout, $stderr) = $standby->psql('postgres', "INSERT INTO t VALUES ('x')");
like($stderr, qr/read-only transaction|recovery/, 'a standby refuses writes clearly');
($ret, $stdout, $stderr) = $standby->psql('postgres', "SELECT * FROM strata.merge('t')");
like($stderr, qr/read-only transaction|recovery/, 'and merges');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'p'");

# A standby reader under REPEATABLE READ while space is reused and entries are
# frozen on the primary: the same answer or a cancellation, never another one.
my $fp = "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM t";
for my $how ('reuse', 'freeze')
{
	caught_up();
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	my $before = $reader->query($fp);
	if ($how eq 'reuse')
	{
		for my $i (1 .. 4)
		{
			$node->safe_psql('postgres', send_rows('t', $i * 700, $i * 700 + 900, 10 + $i, 200) . "SELECT * FROM strata.seal('t')");
			$node->safe_psql('postgres', "SELECT * FROM strata.merge('t')");
			$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
		}
	}
	else
	{
		$node->safe_psql('postgres', send_rows('t', 100, 160, 50, 200));
		my $storage = $node->safe_psql('postgres', "SELECT storage FROM strata.stores WHERE store = 't'::regclass");
		$node->safe_psql('postgres', "VACUUM FREEZE $storage");
	}
	caught_up();
	my $after = eval { $reader->query($fp) } // '';
	ok($after eq $before || $after eq '', "$how: the same answer or none")
	  or diag "before $before, after $after";
	eval { $reader->quit };
}
caught_up();
is(fingerprint($standby, 't'), fingerprint($node, 't'), 'afterwards both agree');
same_rows($node, 't', 'and agree with the heap');
is(fingerprint($standby, 't_heap'), fingerprint($standby, 't'), 'on the standby too');

# An extension whose record was lost leaves blocks that only the primary has;
# when sweep finds them, replay has to make the standby's file as long before
# it gives them out (the new primary's loads would miss them below).
{
	my $files = "SELECT pg_relation_size(storage) FROM strata.stores WHERE store = 't'::regclass";
	pause_arm($node, 'storage-extended', 'error');
	$node->psql('postgres', "INSERT INTO t SELECT 'x' || g, 0, 0, NULL, NULL, repeat(md5(g::text), 100) FROM generate_series(1, 40000) g");
	pause_clear($node, 'storage-extended');
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	caught_up();
	my ($path) = $node->safe_psql('postgres', "SELECT pg_relation_filepath(storage) FROM strata.stores WHERE store = 't'::regclass");
	is(-s $standby->data_dir . "/$path", $node->safe_psql('postgres', $files), 'the standby has every block that sweep listed');
}

# TRUNCATE and reload replicate.
$node->safe_psql('postgres', "BEGIN; TRUNCATE t; TRUNCATE t_heap; COMMIT;" . send_rows('t', 1, 500, 7));
drain($node, 't');
caught_up();
is(fingerprint($standby, 't'), fingerprint($node, 't_heap'), 'TRUNCATE and reload');

$standby->promote;
$standby->safe_psql('postgres', send_rows('t', 400, 900, 8));
drain($standby, 't');
$standby->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
same_rows($standby, 't', 'promoted: writes, merges and sweep work');
verify_clean($standby, 't', 'promoted');
verify_clean($node, 't', 'primary');

unlike(slurp_file($standby->logfile), qr/inconsistent page|PANIC/, 'WAL replay made the same pages');
$standby->stop;
$node->stop;
done_testing();
