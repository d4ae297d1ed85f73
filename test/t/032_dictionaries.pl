# zstd dictionaries: damage is found and named, old snapshots and a standby
# read what was compressed with them, and a crash leaves none behind.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('dictionaries', streaming => 1, restart_after_crash => 'on');
create_pair($node, 't', "auto_merge 'off', row_group_bytes '64MB'");
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION words(seed int, kind text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5(kind || hashint4(seed * 31 + i) % 400), ' ') FROM generate_series(1, 20) i
$$;
CREATE FUNCTION fill(first int, last int, kind text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO t_heap SELECT 'k' || i, i, i, ARRAY[i], jsonb_build_object('w', words(-i, kind)), words(i, kind)
	  FROM generate_series(first, last) i ON CONFLICT (id) DO UPDATE SET meta = EXCLUDED.meta, payload = EXCLUDED.payload;
	INSERT INTO t SELECT * FROM t_heap WHERE run_id BETWEEN first AND last;
$$;
SQL

sub merge_rows
{
	my ($first, $last, $kind) = @_;
	$node->safe_psql('postgres', "SELECT fill($first, $last, '$kind')");
	seal($node, 't');
	$node->safe_psql('postgres', "SELECT * FROM strata.merge('t')");
	return;
}

sub dictionaries { return $node->safe_psql('postgres', "SELECT count(*) FROM strata.dictionary"); }

merge_rows(1, 2000, 'a');
is(dictionaries(), 2, 'the first pass made dictionaries');
merge_rows(2001, 4000, 'a');
same_rows($node, 't', 'rows compressed with them');

# A standby, and snapshots there and here, while others are made.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1\n");
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

my $fp = "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM t";
my $before = fingerprint($node, 't');
my @readers;
for my $server ($node, $standby)
{
	my $reader = $server->background_psql('postgres');
	$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$reader->query('SELECT 1');
	push @readers, $reader;
}
sleep 3;	# the standby's feedback
for my $kind ('b', 'c')
{
	merge_rows(3001, 6000, $kind);
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
}
cmp_ok(dictionaries(), '>', 2, 'other rows, other dictionaries');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($readers[0]->query($fp), $before, 'an old snapshot');
is($readers[1]->query($fp), $before, 'an old snapshot on a standby');
for my $reader (@readers) { $reader->query('COMMIT'); $reader->quit; }
is(fingerprint($standby, 't'), fingerprint($node, 't_heap'), 'a new one on the standby');
same_rows($node, 't', 'and here');
$standby->stop;

# Killed with a dictionary written, or named by the manifest, and no commit.
for my $point ('dictionary-written', 'manifest-dictionary-added')
{
	my $dictionaries = dictionaries();
	my $kind = "kind of $point";
	$node->safe_psql('postgres', "SELECT fill(7001, 10000, '$kind')");
	seal($node, 't');
	pause_arm($node, $point, 'kill');
	my $ret = $node->psql('postgres', "SELECT * FROM strata.merge('t')", timeout => 120);
	isnt($ret, 0, "$point: killed");
	pause_clear($node, $point);
	$node->poll_query_until('postgres', 'SELECT true') or die 'no restart';
	is(dictionaries(), $dictionaries, "$point: no dictionary");
	same_rows($node, 't', "$point: rows");
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	is($node->safe_psql('postgres', "SELECT object || ': ' || problem FROM strata.verify('t', true)"),
		'', "$point: nothing left after a sweep");
	# (a seal has no commit to wait for: the crash may have undone it)
	seal($node, 't');
	$node->safe_psql('postgres', "SELECT * FROM strata.merge('t')");
	cmp_ok(dictionaries(), '>', $dictionaries, "$point: made by the next pass");
	same_rows($node, 't', "$point: rows after it");
	verify_clean($node, 't', $point);
}

# What the manifest says wrong.
sub fails
{
	my ($what, $like, @before) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres',
		join('', map { "$_;" } @before) . "\\set VERBOSITY verbose\nSELECT count(payload), count(meta) FROM t");
	like($stderr, qr/XX001/, "$what: XX001");
	like($stderr, $like, $what);
	return;
}
my ($id, $storage) = split /\|/, $node->safe_psql('postgres',
	"SELECT min(d.id), s.storage::oid::regclass FROM strata.dictionary d, strata.store s GROUP BY 2");
fails('no such dictionary', qr/dictionary $id of relation .* is corrupted/, 'BEGIN',
	"DELETE FROM strata.dictionary WHERE id = $id");
fails('another column', qr/dictionary $id of relation .* is corrupted/, 'BEGIN',
	"UPDATE strata.dictionary SET attnum = 1 WHERE id = $id");
fails('another owner', qr/invalid row: id is not the owner/, 'BEGIN',
	"UPDATE strata.dictionary SET owner = owner + 1 WHERE id = $id");
fails('another length', qr/dictionary $id of relation .* is corrupted/, 'BEGIN',
	"UPDATE strata.dictionary SET length = length - 1 WHERE id = $id");
fails('another place', qr/dictionary $id/, 'BEGIN',
	"UPDATE strata.dictionary SET first_block = first_block + 1 WHERE id = $id");

# A bit of it on disk, in the header or in the content.
my $block = $node->safe_psql('postgres', "SELECT first_block FROM strata.dictionary WHERE id = $id");
my $path = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$storage')");

sub flip
{
	my ($offset) = @_;
	$node->stop;
	open my $f, '+<:raw', $path or die "$path: $!";
	seek $f, $offset, 0;
	read $f, my $byte, 1;
	seek $f, $offset, 0;
	print $f chr(ord($byte) ^ 0x10);
	close $f;
	$node->start;
	return;
}
for my $where ([ 'content', 3 * 8192 + 1000 ], [ 'magic', 24 ], [ 'length', 36 ], [ 'id', 40 ])
{
	my ($name, $at) = @$where;
	flip($block * 8192 + $at);
	fails("$name damaged, with checksums", qr/invalid page in block/);
	fails("$name damaged, without", qr/dictionary $id of relation .* is corrupted/,
		'SET ignore_checksum_failure = on');
	my (undef, $out) = $node->psql('postgres',
		"SET ignore_checksum_failure = on; SELECT object || ': ' || problem FROM strata.verify('t')");
	like($out, qr/^dictionary $id: dictionary $id of relation .* is corrupted$/m, "$name damaged: verify names it");
	like($out, qr/^row group \d+: dictionary $id/m, "$name damaged: and the row groups that need it");
	flip($block * 8192 + $at);
}
same_rows($node, 't', 'repaired');
verify_clean($node, 't', 'repaired');

$node->stop;
done_testing();
