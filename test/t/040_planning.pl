# Planning costs the same at 10,000 row groups as at 10 (P50): it reads totals,
# not row groups, in a new session and after each pass.  And a session that
# stays brings what it knows of the base table up to date by what passes added,
# to the same as one that reads it anew, in whatever order passes come.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $seed = seed();
my $node = strata_node('planning');

# ---- buffers, which do not depend on the machine ----

foreach my $store ('few', 'many')
{
	my $n = $store eq 'few' ? 10 : 10000;
	$node->safe_psql('postgres', <<SQL);
CREATE FOREIGN TABLE $store (id int NOT NULL, v int, t text) SERVER strata
  OPTIONS (key 'id', row_group_rows '1', auto_merge 'off');
INSERT INTO $store SELECT g, g, 'row ' || g FROM generate_series(1, $n) g WHERE g % 2 = 0;
INSERT INTO $store SELECT g, g, 'row ' || g FROM generate_series(1, $n) g WHERE g % 2 = 1;
CALL strata.drain('$store');
ANALYZE $store;
SQL
}
is($node->safe_psql('postgres', q{SELECT string_agg(row_groups::text, ' ' ORDER BY store::text) FROM strata.stores}),
	'10 10000', 'stores of 10 and of 10,000 row groups');

# Pages looked at to plan and to run a query.
sub buffers
{
	my ($text) = @_;
	my ($execution, $planning) = split /Planning:/, $text;
	my @n = map {
		my $n = 0;
		if (($_ // '') =~ /Buffers: shared(.*)/) { my $l = $1; $n += $1 while $l =~ /(?:hit|read)=(\d+)/g; }
		$n;
	} ($planning, $execution);
	return @n;
}

my %query = (
	'point read' => 'SELECT * FROM %s WHERE id = 7',
	'range' => 'SELECT * FROM %s WHERE id BETWEEN 5 AND 7',
	'scan' => 'SELECT * FROM %s WHERE v = 7',
	'join' => 'SELECT * FROM (VALUES (5), (7)) x (i) JOIN %s s ON s.id = x.i',
	'count' => 'SELECT count(*) FROM %s');
my %new;
foreach my $what (sort keys %query)
{
	foreach my $store ('few', 'many')
	{
		my ($planning) = buffers($node->safe_psql('postgres',
				'EXPLAIN (ANALYZE, BUFFERS) ' . sprintf($query{$what}, $store)));
		$new{$store}{$what} = $planning;
	}
	cmp_ok($new{many}{$what}, '<=', $new{few}{$what} + 10,
		"$what: a new session plans with as few pages ($new{many}{$what}, $new{few}{$what})");
}

# A new session that reads one key reads what holds it.
foreach my $what ('point read', 'join')
{
	my ($few, $many) = map {
		(buffers($node->safe_psql('postgres', 'EXPLAIN (ANALYZE, BUFFERS) ' . sprintf($query{$what}, $_))))[1]
	} ('few', 'many');
	cmp_ok($many, '<=', $few + 30, "$what: a new session reads as few pages ($many, $few)");
}

# A session that stays, while passes add to the base table.
my $stays = $node->background_psql('postgres', on_error_stop => 1);
my %query_of_many = map { $_ => sprintf($query{$_}, 'many') } keys %query;
$stays->query_safe($_) foreach values %query_of_many;
foreach my $round (1 .. 3)
{
	$node->safe_psql('postgres', <<SQL);
INSERT INTO many SELECT g, -g, 'new' FROM generate_series(100 * $round, 100 * $round + 9) g;
SELECT strata.seal('many'); SELECT strata.merge('many');
SQL
	my ($planning, $execution) = buffers($stays->query_safe("EXPLAIN (ANALYZE, BUFFERS) $query_of_many{'point read'}"));
	cmp_ok($planning, '<=', 20, "planned after a pass with $planning pages");
	cmp_ok($execution, '<=', 60, "a point read after a pass reads $execution pages, not the manifest");
	is($stays->query_safe("SELECT count(*), sum(v) FROM many WHERE t = 'new'"),
		$node->safe_psql('postgres', "SELECT count(*), sum(v) FROM many WHERE t = 'new'"), 'and the rows are there');
}

# Times, for whoever reads the log.
my @times = map { /Planning Time: ([\d.]+)/ ? $1 : () }
  map { $stays->query_safe("EXPLAIN (SUMMARY) $query_of_many{'point read'}") } 1 .. 20;
note('planning a point read at 10,000 row groups, ms: ', join ' ', (sort { $a <=> $b } @times)[ 0, 10, 19 ]);

# ---- what a session knows, after passes of all kinds ----

create_pair($node, 'r', "row_group_rows '50', shards '2', auto_merge 'off'");
my @reader = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
# One that looks up keys and nothing else, more row groups than it keeps one by one.
my $looker = $node->background_psql('postgres', on_error_stop => 1);
my $fingerprint = "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM %s t";

# What passes put on record for the planner, against the manifest itself.
my $totals = <<SQL;
SELECT (p.base_groups, p.base_rows, p.base_raw_bytes, p.base_bytes) IS NOT DISTINCT FROM
       (g.n, (SELECT count(*) FROM r_base), g.raw, g.bytes),
       p.base_groups, g.n, p.base_rows, (SELECT count(*) FROM r_base), p.base_raw_bytes, g.raw, p.base_bytes, g.bytes
FROM (SELECT * FROM strata.pass WHERE store = 'r'::regclass ORDER BY id DESC LIMIT 1) p JOIN strata.store ON foreign_table = p.store AND store.incarnation = p.incarnation,
     (SELECT count(*) AS n, coalesce(sum(raw_bytes), 0) AS raw, coalesce(sum(length), 0) AS bytes
      FROM strata.row_group WHERE store = 'r'::regclass) g
SQL
$node->safe_psql('postgres', "CREATE FOREIGN TABLE r_base (id text) SERVER strata OPTIONS (store 'public.r', layer 'base')");

my @step = (
	sub { "SELECT strata.seal('r'); SELECT strata.merge('r', max_generations => 1)" },
	sub { "SELECT strata.seal('r'); SELECT strata.merge('r')" },
	sub { "BEGIN; SELECT strata.seal('r'); SELECT strata.merge('r'); ROLLBACK" },
	sub { "BEGIN; SELECT strata.merge('r', max_generations => 1); " . send_rows('r', 1, 20, rand() * 1e6)
		  . "SELECT strata.seal('r'); SELECT strata.merge('r'); COMMIT" },
	sub { "BEGIN; SAVEPOINT a; SELECT strata.merge('r'); ROLLBACK TO a; SELECT strata.merge('r', max_generations => 1); COMMIT" },
	sub { "SELECT strata.compact('r')" },
	sub { my $m = 2 + int rand 9; "DELETE FROM r WHERE run_id = $m % 7 AND reward < 50; DELETE FROM r_heap WHERE run_id = $m % 7 AND reward < 50" },
	sub { "TRUNCATE r, r_heap" });
my @chance = (28, 18, 6, 8, 6, 18, 14, 2);
my ($bad, $bad_totals, $passes) = (0, 0, 0);

# A pass whose transaction got its xid before that of an earlier pass.
my $early = $node->background_psql('postgres', on_error_stop => 1);

for my $i (1 .. 40)
{
	my $from = int rand 400;
	$node->safe_psql('postgres', send_rows('r', $from, $from + int rand 150, $i));
	my $draw = rand 100;
	my $n = 0;
	while (($draw -= $chance[$n]) >= 0) { $n++ }
	my $what = $step[$n]->();
	if ($i % 10 == 0)
	{
		$early->query_safe('BEGIN; SELECT txid_current()');
		$node->safe_psql('postgres', "SELECT strata.seal('r'); SELECT strata.merge('r')");
		$reader[0]->query_safe(sprintf $fingerprint, 'r');
		$node->safe_psql('postgres', send_rows('r', $from, $from + 5, -$i));
		$early->query_safe("SELECT strata.seal('r'); SELECT strata.merge('r'); COMMIT");
		$what = 'a pass of an older transaction';
	}
	else
	{
		$node->safe_psql('postgres', $what);
	}

	my $expected = fingerprint($node, 'r_heap');
	my @got = (fingerprint($node, 'r'), $reader[0]->query_safe(sprintf $fingerprint, 'r'));
	my $some = "SET enable_seqscan = off; SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM %s t "
	  . 'WHERE id = ANY (ARRAY(SELECT \'k\' || (g * 7 + ' . $i . ') %% 560 FROM generate_series(1, ' . ($i % 5 == 0 ? 400 : 9) . ') g))';
	my $some_expected = $node->safe_psql('postgres', sprintf $some, 'r_heap');
	foreach ($node->safe_psql('postgres', sprintf $some, 'r'), $looker->query_safe(sprintf $some, 'r'))
	{
		diag("step $i: $what: lookups give $_, expected $some_expected") if $_ ne $some_expected && $bad++ < 5;
	}
	push @got, $reader[1]->query_safe(sprintf $fingerprint, 'r') if $i % 7 == 0;	# misses some passes
	foreach (@got)
	{
		next if $_ eq $expected;
		diag("step $i: $what: $_, expected $expected") if $bad++ < 5;
	}
	next if $what =~ /TRUNCATE/;
	my $same = $node->safe_psql('postgres', $totals);
	if ($same =~ /^f/)
	{
		diag("step $i: $what: totals on record are wrong: $same") if $bad_totals++ < 5;
	}
	$passes++ if $same ne '';
}
is($bad, 0, "sessions know the same after passes of all kinds (seed $seed)");
is($bad_totals, 0, 'totals on record are those of the base table');
cmp_ok($passes, '>', 20, 'there were passes');
verify_clean($node, 'r');
$_->quit foreach @reader, $early, $stays, $looker;

done_testing();
