# The second outage (L7, L8, L10, L11, L12): a merge of a few hundred rows that reads
# the whole base because the id index could not give exact answers.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('indexed');

sub resend
{
	my ($name, $n) = @_;
	create_pair($node, $name, "auto_merge 'off'");
	$node->safe_psql('postgres', send_rows($name, 1, $n, 0, 32));
	drain($node, $name);
	my $step = $n / 500;
	$node->safe_psql('postgres', <<SQL);
INSERT INTO $name SELECT id, run_id, 77, tokens, meta, 'again' FROM ${name}_heap
    WHERE substr(id, 2)::int % $step = 0;
UPDATE ${name}_heap SET reward = 77, payload = 'again' WHERE substr(id, 2)::int % $step = 0;
SELECT * FROM strata.seal('$name');
SQL
	my $row = $node->safe_psql('postgres',
		"SELECT rows_replaced, rows_inserted, index_probes, base_bytes_read, index_built::int FROM strata.merge('$name')");
	note "$name: $row";
	my @r = split /\|/, $row;
	is($r[0], 500, "$name: 500 replaced");
	is($r[1], 0, "$name: none inserted");
	is($r[4], 0, "$name: the index was there");
	same_rows($node, $name, "$name: rows");
	verify_clean($node, $name, $name);
	return @r;
}

my @small = resend('small', 10_000);
my @large = resend('large', 1_000_000);
cmp_ok($large[2], '<=', $small[2] + 500, 'probes do not depend on the base');
# One level more is one more page a probe; a key's descent touches a few.
cmp_ok($large[3], '<=', $small[3] + 500 * 3 * 8192, 'base bytes differ by no more than the height of the tree explains');

my $has = "SELECT strata.has_key_index('small')";
is($node->safe_psql('postgres', $has), 't', 'the key index is there');
$node->safe_psql('postgres', "SELECT strata.drop_key_index('small'), strata.drop_key_index('small')");
is($node->safe_psql('postgres', $has), 'f', 'has_key_index is false after the drop');
$node->safe_psql('postgres', send_rows('small', 1, 500, 1) . "SELECT * FROM strata.seal('small')");
same_rows($node, 'small', 'reads are right without an index');
is($node->safe_psql('postgres', "SELECT index_built, rows_replaced FROM strata.merge('small')"),
	't|500', 'a merge builds the index first');
is($node->safe_psql('postgres', $has), 't', 'has_key_index is true after the merge');
$node->safe_psql('postgres', send_rows('small', 1, 500, 2) . "SELECT * FROM strata.seal('small')");
is($node->safe_psql('postgres', "SELECT index_built FROM strata.merge('small')"), 'f',
	'a second merge does not build again');

# An index that exists but is invalid does not count (L8).
$node->safe_psql('postgres', <<'SQL');
SET allow_system_table_mods = on;
UPDATE pg_index SET indisvalid = false
FROM strata.stores s WHERE s.store = 'small'::regclass AND indrelid = s.storage;
SQL
is($node->safe_psql('postgres', $has), 'f', 'has_key_index is false for an invalid index');
$node->safe_psql('postgres', send_rows('small', 400, 900, 3) . "SELECT * FROM strata.seal('small')");
same_rows($node, 'small', 'reads are right with an invalid index');
is($node->safe_psql('postgres', "SELECT index_built, rows_replaced FROM strata.merge('small')"), 't|501',
	'a merge builds a usable one');
is($node->safe_psql('postgres', $has), 't', 'which counts');
same_rows($node, 'small', 'rows after all of it');
verify_clean($node, 'small', 'after all of it');

# L12: without an index and without building one, only the cost differs.
$node->safe_psql('postgres', "SELECT strata.drop_key_index('small')");
$node->safe_psql('postgres', send_rows('small', 100, 300, 4) . "SELECT * FROM strata.seal('small')");
is($node->safe_psql('postgres',
	"SET strata.index_before_merge = off; SELECT index_built, rows_replaced FROM strata.merge('small')"),
	'f|201', 'superseded rows are found by reading keys');
same_rows($node, 'small', 'rows after a merge without an index');
is($node->safe_psql('postgres', "SELECT strata.create_key_index('small'), strata.has_key_index('small')"),
	't|t', 'create_key_index');
verify_clean($node, 'small', 'at the end');

$node->stop;
done_testing();
