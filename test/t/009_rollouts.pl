# Real rollouts, through the quickstart's own loader: every column of every
# row equals a heap table fed the same lines with newest wins.  Skipped where
# the data is not.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my @files = sort glob(($ENV{STRATA_DATA} // '') . '/*.jsonl.zst');
plan skip_all => 'no rollouts beside the checkout' unless @files;

my $node = strata_node('rollouts');
my $top = $ENV{STRATA_TOP};
$node->safe_psql('postgres', slurp_file("$top/test/data/quickstart.sql"));

# The heap twin has its own copy of the loader, with the upsert spelled out.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE rollouts_heap AS SELECT * FROM rollouts;
ALTER TABLE rollouts_heap ADD PRIMARY KEY (id);
CREATE PROCEDURE quickstart.load_heap() LANGUAGE plpgsql AS $$
DECLARE l record; r rollouts_heap;
BEGIN
    FOR l IN SELECT line FROM quickstart.line WHERE line !~ '^x\s*$' ORDER BY n LOOP
        BEGIN
            SELECT * INTO r FROM quickstart.record(l.line);
            DELETE FROM rollouts_heap WHERE id = r.id;
            INSERT INTO rollouts_heap SELECT r.*;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
END $$;
SQL

my $refused = 0;
for my $round (1, 2)
{
	for my $f (@files)
	{
		next if $round == 2 && $f !~ /intercode|nemo/;
		my $lines = $node->basedir . '/lines';
		system("zstd -dcq '$f' | tr '\\000\\002\\003\\r' '\\001\\001\\001 ' | sed 's/^/x/' > '$lines'") == 0 or die;
		$node->safe_psql('postgres', "TRUNCATE quickstart.line");
		$node->safe_psql('postgres', "COPY quickstart.line (line) FROM '$lines' (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x03', ENCODING 'LATIN1')");
		$node->safe_psql('postgres', "SET quickstart.file = '$f'; SET quickstart.run = '2026-01-01'; CALL quickstart.load(); CALL quickstart.load_heap();");
	}
	is(fingerprint($node, 'rollouts'), fingerprint($node, 'rollouts_heap'), "round $round: loaded");
	$node->safe_psql('postgres', "CALL strata.drain('rollouts')");
	is(fingerprint($node, 'rollouts'), fingerprint($node, 'rollouts_heap'), "round $round: drained");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM quickstart.refused'), 7, 'the lines that jsonb cannot hold were refused');
is($node->safe_psql('postgres', "SELECT count(*) FROM quickstart.refused WHERE message !~ 'u0000|Unicode'"), 0, 'for that reason');
is($node->safe_psql('postgres',
	"SELECT count(*) FROM rollouts_heap h WHERE md5(h::text) IS DISTINCT FROM (SELECT md5(r::text) FROM rollouts r WHERE r.id = h.id)"),
	0, 'every single one by key');
# As numeric: the sum of floats depends on the order of rows.
my $aggregate = 'SELECT run_id, avg(reward::numeric), count(*)';
is(fingerprint($node, "($aggregate FROM rollouts GROUP BY 1)"),
	fingerprint($node, "($aggregate FROM rollouts_heap GROUP BY 1)"), 'an aggregate');
verify_clean($node, 'rollouts', 'real data');
$node->stop;
done_testing();
