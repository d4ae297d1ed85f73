# Every block of docs/recipes.md runs, in this order, and moves the rows it
# says (P13, P70, C10): JSON lines, CSV, heap tables, another server, dumps,
# templates.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my $page = slurp_file("$ENV{STRATA_TOP}/docs/recipes.md");
my $node = strata_node('recipes');
my $dir = PostgreSQL::Test::Utils::tempdir;
$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;
$ENV{PGDATABASE} = 'postgres';

# The other server's database is one of this cluster.
$node->safe_psql('postgres', 'CREATE DATABASE rollouts');
$node->safe_psql('rollouts', <<'SQL');
CREATE EXTENSION strata;
CREATE FOREIGN TABLE rollouts (id text NOT NULL, run_id text, step int, reward float8, messages jsonb, token_ids int[], payload text) SERVER strata OPTIONS (key 'id');
INSERT INTO rollouts SELECT 'remote/' || i, 'remote', i, 'NaN', jsonb_build_array(i, E'\\'), ARRAY[i, NULL], E'x\\y' FROM generate_series(1, 2500) i;
SQL

my $rows = sub { $node->safe_psql('postgres', "SELECT count(*) FROM rollouts WHERE $_[0]") };
my $n = 0;
while ($page =~ /^```(sql|sh)\n(.*?)^```$/msg)
{
	my ($kind, $block) = ($1, $2);
	my ($first) = split /\n/, $block;
	$n++;
	if ($kind eq 'sql')
	{
		my $address = sprintf "host '%s', port '%s'", $node->host, $node->port;
		$block =~ s/host 'other\.example\.com'/$address/;
		if ($block =~ /o\.step > /)
		{
			$node->safe_psql('rollouts', "INSERT INTO rollouts (id, run_id, step) VALUES ('remote/3000', 'remote', 3000), ('remote/2', 'remote', 2)");
		}
		my ($rc, $out, $err) = $node->psql('postgres', $block, on_error_stop => 1);
		is($rc, 0, "runs: $first") or diag $err;
		is($out, 'unknown', 'an unknown field is found') if $block =~ /jsonb_object_keys/;
	}
	else
	{
		append_to_file("$dir/block$n.sh", $block);
		my ($out, $err) = run_command([ 'sh', '-c', "cd '$dir' && exec sh -e ./block$n.sh" ]);
		is($?, 0, "runs: $first") or diag $err;
		like($out, qr/^3 out.jsonl$/m, 'three lines') if $block =~ /wc -l/;
		is($out, $rows->('true'), 'the restored rows') if $block =~ /pg_restore/;
		is($out, '0', 'the copy is sound') if $block =~ /template/;
	}
	if ($block =~ /\\copy incoming/)
	{
		is($node->safe_psql('postgres', "SELECT messages #>> '{0,content}', token_ids, payload = E'a\\tb\\nc\\\\d' FROM rollouts WHERE id = 'run-1/1'"),
			"say \"hi\"\\now|{1,2,3}|t", 'JSON lines: escapes are JSON\'s own');
		is($node->safe_psql('postgres', "SELECT id, step, reward, token_ids, payload IS NULL FROM rollouts WHERE id <> 'run-1/1' ORDER BY id"),
			"run-1/2|2||{}|f\nrun-1/3||||t", 'nulls, empty values, missing fields');
	}
	if ($block =~ /TO 'out.jsonl'/)
	{
		my @in = split /\n/, slurp_file("$dir/rollouts.jsonl");
		my @out = split /\n/, slurp_file("$dir/out.jsonl");
		for my $i (0 .. 2)
		{
			is($node->safe_psql('postgres', "SELECT jsonb_strip_nulls(\$line\$$out[$i]\$line\$) = jsonb_strip_nulls(\$line\$$in[$i]\$line\$) - 'unknown'"), 't', "line $i comes out as it went in");
		}
		$node->safe_psql('postgres', 'CREATE TABLE before AS SELECT * FROM rollouts');
	}
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT r::text FROM rollouts r EXCEPT SELECT b::text FROM before b) x'), 0, 'CSV: rows are the same')
	  if $block =~ /rollouts\.csv/;
	is($rows->("run_id = 'remote'"), 2500, 'from the other server') if $block =~ /IMPORT/;
	is($rows->("run_id = 'remote' AND step = 3000"), 1, 'what is new there') if $block =~ /o\.step > /;
}
is($n, 13, 'all blocks were run');
is($rows->("run_id = 'old'"), 5000, 'from a heap table');
is(fingerprint($node, 'rollouts'), fingerprint($node, 'rollouts', 'copied'), 'the copy of the restored database has the same rows');
is($node->safe_psql('postgres', "SELECT count(*), (SELECT relkind FROM pg_class WHERE oid = 'old_rollouts'::regclass) FROM old_rollouts"), '5000|f', 'a heap table was replaced');
is($node->safe_psql('postgres', 'SELECT count(*) FROM heap_rollouts'), 5003, 'and back');
$node->stop;
done_testing();
