# A value of hundreds of MB goes in, through merges, updates and compaction, and
# comes out as it was; a few copies of it are held while it is written or asked
# for, none while other columns are read or rows are merged (L43, L44, P51).  STRATA_LONG=1 does the same with a value that cannot be compressed.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $mb = 300;
my $node = strata_node('large', max_wal_size => '4GB');
my $file = $node->basedir . '/random';
if ($ENV{STRATA_LONG})
{
	open my $from, '<:raw', '/dev/urandom' or die;
	open my $to, '>:raw', $file or die;
	for (1 .. $mb) { read $from, my $chunk, 1 << 20; print $to $chunk; }
	close $to;
}
for my $kind ('text', $ENV{STRATA_LONG} ? 'bytea' : ())
{
	my $value = $kind eq 'text' ? "repeat(repeat('prompt and answer ', 50) || md5('x') || repeat('z', 92), $mb * 1024)" : "pg_read_binary_file('$file')";
	my $digest = $kind eq 'text' ? $node->safe_psql('postgres', "SELECT md5($value)") : (split / /, `md5sum $file`)[0];
	$node->safe_psql('postgres', "CREATE FOREIGN TABLE $kind (id int, n int, v $kind) SERVER strata OPTIONS (key 'id', auto_merge 'off')");

	# The result of the last statement, and how many MB it took of memory beyond
	# what a session has anyway, in a session of its own.
	my $hwm = "SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 4000), 'VmHWM:\\s+(\\d+)'))[1]::int / 1024";
	my $shared = "SELECT (regexp_match(pg_read_file('/proc/self/status', 0, 4000), 'RssShmem:\\s+(\\d+)'))[1]::int / 1024";
	my $measured = sub {
		my ($what, $most, @statements) = @_;
		my @out = split /\n/, $node->safe_psql('postgres', join ";\n", @statements, $hwm, $shared);
		my $took = $out[-2] - $out[-1];
		cmp_ok($took, '<', $most, "$kind: $what: $took MB");
		return $out[-3];
	};
	my $read = "SELECT length(v), md5(v) FROM $kind WHERE id = 10";
	my $right = $mb * 1048576 . "|$digest";
	$measured->('insert', 4.5 * $mb, "INSERT INTO $kind SELECT i, 0, CASE WHEN i = 10 THEN $value END FROM generate_series(1, 10) i");
	is($measured->('read while pending', 3.5 * $mb, $read), $right, "$kind: pending");
	is($measured->('other columns while pending', 100, "SELECT n FROM $kind WHERE id = 10", "SELECT sum(id) FROM $kind"), 55, "$kind: other columns");
	seal($node, $kind);
	is($measured->('merge', 100, "SELECT rows_read FROM strata.merge('$kind')"), 10, "$kind: merged");
	is($measured->('read', 3.5 * $mb, $read), $right, "$kind: read from the base");
	$measured->('update of another column', 5.5 * $mb, "UPDATE $kind SET n = 1 WHERE id = 10");
	# The old version's row group is left alone until all of it is dead, and then not read.
	$node->safe_psql('postgres', "DELETE FROM $kind WHERE id < 7");
	drain($node, $kind);
	is($measured->('compaction', 100, "SELECT 0", "SELECT rows_dropped, bytes_read FROM strata.compact('$kind', 0)"), '0|0', "$kind: a huge row is not copied");
	$node->safe_psql('postgres', "DELETE FROM $kind WHERE id < 10");
	drain($node, $kind);
	is($measured->('compaction', 100, "SELECT 0", "SELECT rows_dropped, bytes_read < 100000 FROM strata.compact('$kind', 0)"), '10|t', "$kind: but dropped when nothing of its row group is left");
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('$kind')");
	is($node->safe_psql('postgres', $read), $right, "$kind: read after update, compaction and sweep");
	is($node->safe_psql('postgres', "SELECT id, n FROM $kind ORDER BY id"), "10|1", "$kind: one row is left");
	verify_clean($node, $kind, $kind);
	$node->restart;
	is($node->safe_psql('postgres', $read), $right, "$kind: read after a restart");
}
$node->stop;
done_testing();
