# What an old snapshot sees does not change (L37, L38, L40, P78): merges, sweep
# and reuse of space, and TRUNCATE with reload, compared with a heap.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('snapshots');
create_pair($node, 't', "auto_merge 'off', row_group_rows '2000'");
$node->safe_psql('postgres', send_rows('t', 1, 5000, 0, 300));
drain($node, 't');
$node->safe_psql('postgres', send_rows('t', 4000, 6000, 1, 300) . "SELECT * FROM strata.seal('t')");
$node->safe_psql('postgres', send_rows('t', 6001, 6500, 2, 300));

my $fp = "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM t";

my $reader = $node->background_psql('postgres');
$reader->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $before = $reader->query($fp);
my $lookup = "SELECT md5(t::text) FROM t WHERE id = 'k4500'";
my $one = $reader->query($lookup);

my $cursor = $node->background_psql('postgres');
$cursor->query("BEGIN; DECLARE c CURSOR FOR SELECT t::text FROM t; ");
my @rows = split /\n/, $cursor->query('FETCH 10 FROM c');

# A snapshot taken before any of what follows, by a session that has not
# touched the table.
my $fresh = $node->background_psql('postgres');
$fresh->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$fresh->query('SELECT 1');

for my $round (1 .. 10)
{
	$node->safe_psql('postgres',
		send_rows('t', $round * 500, $round * 500 + 700, 10 + $round, 300) . "SELECT * FROM strata.seal('t')");
	$node->safe_psql('postgres', "SELECT * FROM strata.merge('t')");
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('t')");
	is($reader->query($fp), $before, "round $round: the old snapshot sees the same rows");
	is($reader->query($lookup), $one, "round $round: and the same single row");
}
is($fresh->query($fp), $before, 'so does one that had not looked before');
push @rows, split /\n/, $cursor->query('FETCH ALL FROM c');
my $seen = 0;
{
	my $file = $node->basedir . '/cursor.txt';
	open my $f, '>', $file or die;
	print $f "$_\n" for @rows;
	close $f;
	$node->safe_psql('postgres', "CREATE TABLE seen (r text); COPY seen FROM '$file' (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02')");
	$seen = $node->safe_psql('postgres',
		"SELECT count(*) || ' ' || coalesce(sum(hashtextextended(r, 0)::numeric), 0) FROM seen");
}
is($seen, $before, 'a cursor held open over it all returns its rows');
$cursor->query('COMMIT');
$fresh->query('COMMIT');
$reader->query('COMMIT');
same_rows($node, 't', 'a new snapshot sees what the heap has');
verify_clean($node, 't', 'after ten rounds');

# TRUNCATE with a reload of the same data, met by a snapshot taken before it.
my $old = $node->background_psql('postgres');
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$old->query('SELECT 1');
my $mid = $node->background_psql('postgres');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE copy AS SELECT * FROM t_heap;
BEGIN;
TRUNCATE t; TRUNCATE t_heap;
INSERT INTO t SELECT * FROM copy; INSERT INTO t_heap SELECT * FROM copy;
COMMIT;
SQL
drain($node, 't');
$mid->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
my $heap = $old->query("SELECT count(*) FROM t_heap");
is($old->query("SELECT count(*) FROM t"), $heap, 'an old snapshot sees of a truncated table what it would of a heap');
is($old->query("SELECT count(*) FROM t WHERE id = 'k77'"), $old->query("SELECT count(*) FROM t_heap WHERE id = 'k77'"),
	'by key as well');
$node->safe_psql('postgres', send_rows('t', 1, 300, 99));
drain($node, 't');
is($old->query("SELECT count(*) FROM t"), $heap, 'and again after more merges');
is($mid->query("SELECT count(*) FROM t"), $mid->query("SELECT count(*) FROM t_heap"), 'a snapshot taken after the reload');
$old->query('COMMIT');
$mid->query('COMMIT');
same_rows($node, 't', 'everybody else sees the reload');
verify_clean($node, 't', 'after TRUNCATE');

$_->quit for ($reader, $cursor, $fresh, $old, $mid);
$node->stop;
done_testing();
