# Random statements on strata tables of many shapes and on heap twins: inserts
# with duplicates, updates (also of keys), deletes, row locks, savepoints, rollbacks, prepared transactions, TRUNCATE, seal,
# merge, sweep, VACUUM, schema changes; after each step queries of many shapes
# must agree, in this session, in one with an old snapshot and after a restart.
# STRATA_STATEMENTS sets how many steps each shape takes.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $seed = seed();
my $steps = $ENV{STRATA_STATEMENTS} // 120;
my $node = strata_node('differential');

# name => [ key columns, options ]
my %shape = (
	plain => [ 'id', '' ],
	tiny => [ 'id', "row_group_rows '50', generation_max_rows '40', generation_max_bytes '16kB'" ],
	shards => [ 'id', "shards '5', row_group_rows '300'" ],
	composite => [ 'a,id', "row_group_rows '200'" ],
	numeric => [ 'n', '' ],
	uuid => [ 'u', "shards '2'" ],
	stamp => [ 'ts', "row_group_rows '1000'" ],
	bytea => [ 'b', '' ],
	int8 => [ 'a8', "generation_max_rows '100'" ],
);

my $columns = 'id text COLLATE "C" NOT NULL, a int NOT NULL, a8 int8 NOT NULL, n numeric NOT NULL, u uuid NOT NULL, '
  . 'ts timestamptz NOT NULL, b bytea NOT NULL, r float8, t text, j jsonb, arr int[], d date, f bool, i interval';
my @names = ($columns =~ /(?:^|, )(\w+) /g);
my $list = join ', ', @names;

# Rows drawn from a small space of keys, so that they collide.
sub rows
{
	my ($n) = @_;
	my $s = int rand 1e9;
	my $space = (10, 100, 1000, 20000)[ rand 4 ];
	my $width = (0, 10, 200, 3000)[ rand 4 ];
	return "SELECT ord, 'k' || k AS id, k % 13 AS a, k::int8 * 1000003 AS a8, k / 8.0 AS n, md5(k::text)::uuid AS u, "
	  . "timestamptz '2026-01-01' + k * interval '1 s' AS ts, decode(md5(k::text), 'hex') AS b, "
	  . "CASE WHEN ord % 11 = 0 THEN NULL WHEN ord % 13 = 0 THEN 'NaN'::float8 ELSE (ord * 7 + $s) % 1000 END::float8 AS r, "
	  . "CASE ord % 5 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE repeat(md5((ord + $s)::text), 1 + $width / 32) END AS t, "
	  . "CASE WHEN ord % 3 = 0 THEN jsonb_build_object('s', $s, 'o', ord) END AS j, "
	  . "CASE WHEN ord % 4 = 0 THEN ARRAY[ord, NULL, k] END::int[] AS arr, date '2026-01-01' + ord % 400 AS d, "
	  . "ord % 2 = 0 AS f, ord * interval '1 min' AS i "
	  . "FROM (SELECT ord, (hashint8(ord * 7919 + $s)::int8 & 2147483647) % $space AS k FROM generate_series(1, $n) ord) s";
}

my $session;
my $bad = 0;
my $checks = 0;

sub run { return $session->query_safe($_[0]); }

# The columns that follow from k, as rows() has them.
sub derived
{
	my ($k) = @_;
	return (id => "'k' || $k", a => "$k % 13", a8 => "${k}::int8 * 1000003", n => "$k / 8.0", u => "md5('$k')::uuid",
		ts => "timestamptz '2026-01-01' + $k * interval '1 s'", b => "decode(md5('$k'), 'hex')");
}

# One random UPDATE, DELETE or row lock on both; what it returns must agree.
sub change
{
	my ($name, $key, $trail) = @_;
	my $s = int rand 1e6;
	my $k = int rand((10, 100, 1000, 20000)[ rand 4 ]);
	my %at = derived($k);
	my @keys = split /,/, $key;
	my $where = (
		join(' AND ', map { "x.$_ = $at{$_}" } @keys),
		join(' AND ', map { "x.$_ = $at{$_}" } @keys),
		"x.$keys[0] > $at{$keys[0]} AND x.f",
		"x.a = " . int(rand 13),
		"x.r > " . int(rand 1000),
		"x.t IS NULL",
		"x.d < date '2026-01-01' + " . int(rand 400),
		"x.id LIKE 'k" . int(rand 10) . "%'",
		rand() < 0.2 ? "true" : "false"
	)[ rand 9 ];
	my $what;
	my $sql;
	my $r = rand;
	if ($r < 0.35)
	{
		my $set = ("r = $s", "t = 'u' || $s, f = NOT f", "j = jsonb_build_object('u', x.a), arr = NULL", "t = repeat(md5(x.id), 100)", "d = d + 1, r = -r")[ rand 5 ];
		$sql = "WITH c AS (UPDATE TABLE x SET $set WHERE $where RETURNING $list) SELECT count(*), sum(hashtextextended(c::text, 0)::numeric) FROM c";
		$what = 'update';
	}
	elsif ($r < 0.55)
	{
		$sql = "WITH c AS (DELETE FROM TABLE x WHERE $where RETURNING $list) SELECT count(*), sum(hashtextextended(c::text, 0)::numeric) FROM c";
		$what = 'delete';
	}
	elsif ($r < 0.65)
	{
		my $on = join ' AND ', map { "x.$_ = y.$_" } @keys;
		$sql = "WITH c AS (UPDATE TABLE x SET r = coalesce(y.r, 0) + 1, t = y.t || 'j' FROM TABLE y WHERE $on AND y.a % 3 = 1 RETURNING x.id, x.r, x.t, y.d) SELECT count(*), sum(hashtextextended(c::text, 0)::numeric) FROM c";
		$what = 'update from';
	}
	elsif ($r < 0.75)
	{
		my $keylist = join ', ', map { my %d = derived($_); '(' . join(', ', map { $d{$_} } @keys) . ')' } map { int rand 1000 } 1 .. 5;
		$sql = "WITH c AS (DELETE FROM TABLE x WHERE (" . join(', ', map { "x.$_" } @keys) . ") IN ($keylist) RETURNING id) SELECT count(*), min(id), max(id) FROM c";
		$what = 'delete of keys';
	}
	elsif ($r < 0.9)
	{
		my %to = derived(int rand 1000);
		my $set = join ', ', map { "$_ = $to{$_}" } sort keys %to;
		my $from = join(' AND ', map { "x.$_ = $at{$_}" } @keys);
		$trail->("DO \$\$BEGIN UPDATE ${name}_$_ x SET $set WHERE $from; EXCEPTION WHEN unique_violation THEN NULL; END\$\$") for 's', 'h';
		return 'update of a key';
	}
	else
	{
		$sql = "SELECT count(*), sum(hashtextextended(c::text, 0)::numeric) FROM (SELECT $list FROM TABLE x WHERE $where FOR "
		  . ('UPDATE', 'SHARE')[ rand 2 ] . ") c";
		$what = 'row lock';
	}
	(my $on_s = $sql) =~ s/TABLE/${name}_s/g;
	(my $on_h = $sql) =~ s/TABLE/${name}_h/g;
	my ($got, $want) = ($trail->($on_s), $trail->($on_h));
	$checks++;
	if ($got ne $want)
	{
		$bad++;
		fail("$name: $what");
		diag "$on_s\n got: $got\nwant: $want";
	}
	return $what;
}

sub compare
{
	my ($name, $key, $context) = @_;
	my ($k1) = split /,/, $key;
	my @q = (
		"SELECT count(*), sum(hashtextextended(x::text, 0)::numeric) FROM (SELECT $list FROM TABLE) x",
		"SELECT a, count(*), sum(r), min(d), max(t COLLATE \"C\") FROM TABLE GROUP BY a ORDER BY a",
		"SELECT $key, r, f FROM TABLE ORDER BY $key LIMIT 20",
		"SELECT $key, r, f FROM TABLE ORDER BY " . join(', ', map { "$_ DESC" } split /,/, $key) . " LIMIT 20",
		"SELECT $k1, count(*), sum(r) FROM (SELECT * FROM TABLE WHERE $k1 > (SELECT $k1 FROM ${name}_h ORDER BY $k1 LIMIT 1 OFFSET 5) ORDER BY $key LIMIT 50) x GROUP BY $k1 ORDER BY $k1",
		"SELECT (SELECT ($k1)::text FROM TABLE ORDER BY $k1 LIMIT 1), (SELECT ($k1)::text FROM TABLE ORDER BY $k1 DESC LIMIT 1)",
		"SELECT count(*) FROM TABLE WHERE r > 500",
		"SELECT count(*) FROM TABLE WHERE t IS NULL",
		"SELECT count(*) FROM TABLE WHERE d BETWEEN '2026-02-01' AND '2026-03-01' AND f",
	);
	my @keys = split /,/, $key;
	my $on = join ' AND ', map { "x.$_ = h.$_" } @keys;
	push @q, "SELECT md5(string_agg(md5(x::text), '' ORDER BY " . join(', ', map { "h.$_" } @keys)
	  . ")) FROM (SELECT $key FROM ${name}_h ORDER BY $key LIMIT 30) h, LATERAL (SELECT $list FROM TABLE x WHERE $on OFFSET 0) x";
	if (@keys == 1)
	{
		push @q, "SELECT count(*), sum(hashtextextended(x::text, 0)::numeric) FROM (SELECT $list FROM TABLE WHERE $key = ANY (ARRAY(SELECT $key FROM ${name}_h ORDER BY md5(${key}::text) LIMIT 15))) x";
	}
	for my $q (@q)
	{
		(my $s = $q) =~ s/TABLE/${name}_s/g;
		(my $h = $q) =~ s/TABLE/${name}_h/g;
		my ($got, $want) = (run($s), run($h));
		$checks++;
		next if $got eq $want;
		$bad++;
		fail("$name: $context");
		diag "$s\n got: $got\nwant: $want";
		return;
	}
}

for my $name (sort keys %shape)
{
	my ($key, $options) = @{ $shape{$name} };
	my $opt = $options ? ", $options" : '';
	$node->safe_psql('postgres', <<SQL);
CREATE FOREIGN TABLE ${name}_s ($columns) SERVER strata OPTIONS (key '$key'$opt, auto_merge 'off');
CREATE TABLE ${name}_h ($columns, PRIMARY KEY ($key));
SQL
	$session = $node->background_psql('postgres');
	run('SET client_min_messages = warning');
	my $set = join ', ', map { "$_ = EXCLUDED.$_" } @names;
	my $depth = 0;    # 0: no transaction block
	my @log;
	my $trail = sub { push @log, $_[0]; run($_[0]); };
	for my $step (1 .. $steps)
	{
		my $r = rand;
		my $what;
		if ($r < 0.40)
		{
			my $n = (1, 1, 3, 30, 300, 3000)[ rand 6 ];
			my $rows = rows($n);
			$what = "insert of $n";
			if (rand() < 0.2)
			{
				$trail->("INSERT INTO ${name}_s SELECT $list FROM (SELECT * FROM ($rows) r ORDER BY ord) s ON CONFLICT DO NOTHING");
				$trail->("INSERT INTO ${name}_h SELECT $list FROM (SELECT * FROM ($rows) r ORDER BY ord) s ON CONFLICT DO NOTHING");
				$what .= ' or nothing';
			}
			else
			{
				$trail->("INSERT INTO ${name}_s SELECT $list FROM (SELECT * FROM ($rows) r ORDER BY ord) s");
				$trail->("INSERT INTO ${name}_h SELECT DISTINCT ON ($key) $list FROM ($rows) r ORDER BY $key, ord DESC ON CONFLICT ($key) DO UPDATE SET $set");
			}
		}
		elsif ($r < 0.62) { $what = change($name, $key, $trail); }
		elsif ($r < 0.68) { if (!$depth) { $trail->('BEGIN'); $depth = 1; } $trail->("SAVEPOINT s$depth"); $depth++; $what = 'savepoint'; }
		elsif ($r < 0.72 && $depth > 1) { $depth--; $trail->("ROLLBACK TO s$depth"); $what = 'rollback to savepoint'; }
		elsif ($r < 0.75 && $depth > 1) { $depth--; $trail->("RELEASE s$depth"); $what = 'release'; }
		elsif ($r < 0.80 && $depth) { $trail->(rand() < 0.3 ? 'ROLLBACK' : 'COMMIT'); $depth = 0; $what = 'end of transaction'; }
		elsif ($r < 0.82 && $depth)
		{
			$trail->("PREPARE TRANSACTION 'p'");
			$trail->(rand() < 0.3 ? "ROLLBACK PREPARED 'p'" : "COMMIT PREPARED 'p'");
			$depth = 0;
			$what = 'two-phase commit';
		}
		elsif ($r < 0.86) { $trail->("SELECT count(*) FROM strata.seal('${name}_s')"); $what = 'seal'; }
		elsif ($r < 0.93) { $trail->("SELECT count(*) FROM strata.merge('${name}_s', " . int(rand 4) . ")"); $what = 'merge'; }
		elsif ($r < 0.945 && !$depth) { $trail->("SELECT count(*) FROM strata.sweep('${name}_s')"); $what = 'sweep'; }
		elsif ($r < 0.953) { $trail->("TRUNCATE ${name}_s"); $trail->("TRUNCATE ${name}_h"); $what = 'truncate'; }
		elsif ($r < 0.963 && !$depth)
		{
			$trail->("CALL strata.drain('${name}_s')");
			$what = 'drain';
		}
		elsif ($r < 0.973 && !$depth)
		{
			my $storage = run("SELECT storage FROM strata.stores WHERE store = '${name}_s'::regclass");
			$trail->("VACUUM " . ('', '(FREEZE) ', '(FULL) ')[ rand 3 ] . $storage);
			$what = 'vacuum';
		}
		elsif ($r < 0.985) { $trail->("ANALYZE ${name}_s"); $what = 'analyze'; }
		else { $what = 'nothing'; }
		compare($name, $key, "step $step: $what");
		last if $bad;
	}
	run('COMMIT') if $depth;
	compare($name, $key, 'after the last commit') unless $bad;
	my $faults = $node->safe_psql('postgres', "SELECT object || ': ' || problem FROM strata.verify('${name}_s')");
	is($faults, '', "$name: verify is clean after $steps steps");
	$session->quit;
	if ($bad)
	{
		diag "seed $seed; the statements were:\n", join(";\n", @log[ ($#log > 40 ? $#log - 40 : 0) .. $#log ]);
		last;
	}
	pass("$name: strata and heap agreed throughout");
}
note "$checks comparisons";

unless ($bad)
{
	$node->restart;
	$session = $node->background_psql('postgres');
	compare($_, $shape{$_}[0], 'after a restart') for sort keys %shape;
	$session->quit;
}
is($bad, 0, 'no difference');
$node->stop;
done_testing();
