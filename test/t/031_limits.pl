# Every SQL block of docs/limits.md does what the page says: it runs, or fails
# with the SQLSTATE that its first line names (P65; C1 - C4, C6, C7, C10).  What fails
# "before N" is left out from that major version on.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $page = slurp_file("$ENV{STRATA_TOP}/docs/limits.md");
my $node = strata_node('limits');
my $n = 0;
while ($page =~ /^```sql\n(.*?)^```$/msg)
{
	my $block = $1;
	my ($want, $before) = $block =~ /^-- fails with (\w{5})(?: before (\d+))?$/m;
	next if $before && $node->pg_version->{num}[0] >= $before;
	my ($first) = grep { !/^--/ } split /\n/, $block;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY sqlstate\n$block");
	$n++;
	if ($want) { like($err, qr/ERROR:\s+$want\b/, "fails with $want: $first"); }
	else { is($rc, 0, "runs: $first") or diag $err; }
}
cmp_ok($n, '>', 25, 'blocks were found');
is($node->safe_psql('postgres', 'SELECT id, n FROM counters ORDER BY id'), "a|2\nb|4", 'counters as computed');
is($node->safe_psql('postgres', 'SELECT tableoid::regclass, id FROM events ORDER BY id'), "events_old|500\nevents_new|1600", 'rows moved');
$node->stop;
done_testing();
