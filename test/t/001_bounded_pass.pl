# The first outage (L1, L2, L3, L4): a merge that takes a whole backlog at
# once.  Fails when the caps are taken out of strata_choose().
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $node = strata_node('bounded');

sub backlog
{
	my ($name, $v) = @_;
	for my $g (0 .. 9)
	{
		$node->safe_psql('postgres',
			"BEGIN; " . send_rows($name, $g * 200, $g * 200 + 299, $v + $g) . "COMMIT;");
		is(seal($node, $name), 1, "generation $g sealed");
	}
	is(pending($node, $name), 10, 'ten sealed generations pending');
}

create_pair($node, 'capped', "auto_merge 'off'");
backlog('capped', 0);
my @left;
my $passes = 0;
while (pending($node, 'capped') > 0)
{
	my $row = $node->safe_psql('postgres',
		"SELECT generations_merged || ' ' || generations_left FROM strata.merge('capped', max_generations => 3)");
	push @left, $row;
	same_rows($node, 'capped', "all rows are there after pass " . ++$passes);
	last if $passes > 10;
}
is("@left", '3 7 3 4 3 1 1 0', 'each pass drains exactly three, the last one the rest');
is($node->safe_psql('postgres',
	"SELECT generations_merged, rows_read, bytes_written FROM strata.merge('capped')"),
	'0|0|0', 'zeros when there is nothing to do');
verify_clean($node, 'capped', 'after four passes');

# Freed extents are used again: the relation stops growing.
$node->safe_psql('postgres', "SELECT * FROM strata.sweep('capped')");
verify_clean($node, 'capped', 'after sweep', 1);
my $size = 0;
for my $round (1 .. 6)
{
	backlog('capped', 100 * $round);
	drain($node, 'capped');
	$node->safe_psql('postgres', "SELECT * FROM strata.sweep('capped')");
	my $now = $node->safe_psql('postgres',
		"SELECT pg_relation_size(storage) FROM strata.stores WHERE store = 'capped'::regclass");
	$size = $now if $round == 3;
	cmp_ok($now, '<=', $size * 1.25, "round $round: freed extents are used again") if $round > 3;
}
same_rows($node, 'capped', 'rows after six rounds');
verify_clean($node, 'capped', 'after six rounds', 1);

create_pair($node, 'uncapped', "auto_merge 'off'");
backlog('uncapped', 0);
is($node->safe_psql('postgres',
	"SELECT generations_merged, generations_left FROM strata.merge('uncapped', max_generations => 0)"),
	'10|0', 'cap 0 drains in one pass');
same_rows($node, 'uncapped', 'rows after one pass');

create_pair($node, 'bytes', "auto_merge 'off'");
backlog('bytes', 0);
for my $left (reverse 0 .. 9)
{
	is($node->safe_psql('postgres',
		"SELECT generations_merged, generations_left FROM strata.merge('bytes', max_generations => 0, max_bytes => 1)"),
		"1|$left", 'max_bytes 1 drains one generation a pass');
}
same_rows($node, 'bytes', 'rows after ten passes');
is($node->safe_psql('postgres',
	"SELECT generations_merged FROM strata.merge('bytes', max_bytes => 0)"), '0', 'nothing left');

$node->stop;
done_testing();
