# sqlsmith: random queries and changes, made by somebody who has not read the
# code, on strata tables of several shapes beside heap ones, while passes merge.
# No session crashes, and nobody raises an internal error (T9, P44, P87).
# STRATA_SECONDS sets how long, STRATA_SEED which queries; skipped where sqlsmith
# is not installed.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Strata;

my ($sqlsmith) = grep { -x } map { "$_/sqlsmith" } split(/:/, $ENV{PATH}), '/usr/bin';
plan skip_all => 'sqlsmith is not installed (package sqlsmith)' if !$sqlsmith;

$ENV{STRATA_SEED} //= 15;
my $seed = seed();
my $seconds = $ENV{STRATA_SECONDS} // 10;
my $node = strata_node('sqlsmith', fsync => 'off', log_error_verbosity => 'verbose',
	log_line_prefix => "'%p %e '", log_min_error_statement => 'error', work_mem => '1MB', max_connections => 30,
	restart_after_crash => 'off', statement_timeout => '2s');

# An ordinary role: the owner of strata's own tables could write to these.
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE smith LOGIN;
GRANT CREATE ON SCHEMA public TO smith;
GRANT USAGE ON FOREIGN SERVER strata TO smith;
SET ROLE smith;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN small AS int CHECK (VALUE < 1000);

CREATE FOREIGN TABLE rollouts (id text NOT NULL, run_id int, reward float8, tokens int[], meta jsonb, payload text,
    at timestamptz DEFAULT now(), m mood, p pair, r int4range, n numeric)
  SERVER strata OPTIONS (key 'id', shards '2', generation_max_rows '500', row_group_rows '400', auto_merge 'off');
CREATE FOREIGN TABLE numbers (a int NOT NULL, b int8 NOT NULL, v text, s small, d date, u uuid, f bool,
    g int GENERATED ALWAYS AS (a * 2) STORED, CHECK (a >= 0))
  SERVER strata OPTIONS (key 'a,b', on_duplicate 'error', generation_max_rows '200', auto_merge 'off');
CREATE FOREIGN TABLE lines (at timestamptz, line text, i interval, b bytea) SERVER strata OPTIONS (auto_merge 'off');
CREATE FOREIGN TABLE ignored (k uuid NOT NULL, v int, t text) SERVER strata OPTIONS (key 'k', on_duplicate 'ignore', auto_merge 'off');
CREATE FOREIGN TABLE empty (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id');
CREATE TABLE events (id int NOT NULL, kind text, v float8) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (1000) TO (2000);
CREATE FOREIGN TABLE events_3 PARTITION OF events DEFAULT SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE parent (id int NOT NULL, v text);
CREATE FOREIGN TABLE child () INHERITS (parent) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE heap (id text PRIMARY KEY, n int, reward float8, tokens int[], meta jsonb);
CREATE TABLE heap_numbers (a int, b int8, v text, d date, PRIMARY KEY (a, b));
CREATE VIEW good WITH (security_barrier) AS SELECT * FROM rollouts WHERE reward > 0.5;
CREATE VIEW joined AS SELECT r.id, r.reward, h.n, e.kind FROM rollouts r JOIN heap h USING (id) LEFT JOIN events e ON e.id = r.run_id;
CREATE FOREIGN TABLE rollouts_wal (id text, reward float8) SERVER strata OPTIONS (store 'rollouts', layer 'wal');
CREATE FOREIGN TABLE rollouts_base (id text, reward float8) SERVER strata OPTIONS (store 'rollouts', layer 'base');
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.v = coalesce(NEW.v, '') || '.'; RETURN NEW; END$$;
CREATE TRIGGER note BEFORE INSERT OR UPDATE ON numbers FOR EACH ROW EXECUTE FUNCTION note();

CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO rollouts SELECT 'k' || g % 3000, g % 50, (g * 7 % 100) / 100.0, ARRAY[g, NULL, g % 5], jsonb_build_object('g', g, 'a', ARRAY[g]),
      repeat(md5(g::text), g % 20), timestamptz '2026-01-01' + g * interval '1 min', (ARRAY['sad', 'ok', 'happy', NULL])[1 + g % 4]::mood,
      ROW(g, 'y' || g)::pair, int4range(g, g + 10), g / 7.0
    FROM generate_series(n, n + 1500) g;
  INSERT INTO numbers (a, b, v, s, d, u, f) SELECT g % 100, n * 10000::int8 + g, 'v' || g, g % 900, date '2026-01-01' + g % 300, md5(g::text)::uuid, g % 3 = 0
    FROM generate_series(1, 800) g ON CONFLICT DO NOTHING;
  INSERT INTO lines SELECT timestamptz '2026-01-01' + g * interval '1 s', 'line ' || g, g * interval '1 h', decode(md5(g::text), 'hex')
    FROM generate_series(1, 500) g;
  INSERT INTO ignored SELECT md5((g % 700)::text)::uuid, g, 't' || g FROM generate_series(n, n + 900) g;
  INSERT INTO events SELECT g, 'kind ' || g % 7, g / 3.0 FROM generate_series(n, n + 2500, 3) g;
  INSERT INTO parent SELECT g, 'p' || g FROM generate_series(1, 20) g;
  INSERT INTO child SELECT g, 'c' || g FROM generate_series(n, n + 200) g;
$$;
INSERT INTO heap SELECT 'k' || g, g, g / 10.0, ARRAY[g], jsonb_build_object('h', g) FROM generate_series(1, 1000) g;
INSERT INTO heap_numbers SELECT g % 100, g, 'h' || g, date '2026-01-01' + g FROM generate_series(1, 300) g;
SELECT fill(0);
SELECT count(*) FROM strata.stores s, LATERAL strata.seal(s.store);
SELECT fill(700);
SELECT fill(1);
ANALYZE;
SQL
for my $t (qw(rollouts numbers lines ignored events_1 events_3 child))
{
	$node->safe_psql('postgres', "CALL strata.drain('$t')") if $t ne 'ignored';
}
$node->safe_psql('postgres', 'SET ROLE smith; SELECT fill(300); ANALYZE');

my $target = $node->connstr('postgres') . ' user=smith';
my $out = $node->basedir;
my @smiths = map {
	IPC::Run::start([ $sqlsmith, "--target=$target", '--exclude-catalog', "--seed=" . ($seed + $_), '--verbose' ],
		'>', "$out/smith$_.out", '2>', "$out/smith$_.err")
} 1 .. 2;

# They read the catalog first, function by function.
sub queries
{
	my $queries = 0;
	for (1 .. 2) { my @n = slurp_file("$out/smith$_.err") =~ /queries: (\d+)/g; $queries += $n[-1] if @n; }
	return $queries;
}
for (1 .. 1800) { last if queries(); select undef, undef, undef, 0.1; }

# Beside them the store moves on.
my @steps = (
	"SET ROLE smith; SELECT fill(%d)", "SELECT count(*) FROM strata.stores s, LATERAL strata.seal(s.store)",
	"SELECT count(*) FROM strata.stores s, LATERAL strata.merge(s.store)", "SELECT count(*) FROM strata.stores s, LATERAL strata.compact(s.store)",
	"SELECT count(*) FROM strata.stores s, LATERAL strata.sweep(s.store)", "SET ROLE smith; ANALYZE",
	"SET ROLE smith; DELETE FROM rollouts WHERE run_id = %d; UPDATE numbers SET f = NOT f WHERE a = %d %% 100");
my $end = time + $seconds;
my $n = 0;
while (time < $end)
{
	(my $step = $steps[ $n++ % @steps ]) =~ s/%d/int rand 3000/ge;
	$step =~ s/%%/%/g;
	$node->psql('postgres', "SET statement_timeout = '20s'; $step");
	sleep 1;
}
for my $s (@smiths) { $s->signal('TERM'); $s->finish; }

my $queries = queries();
cmp_ok($queries, '>', 100, "$queries queries ran");
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server is up');

# Core raises internal errors of its own when its functions get nonsense.
my $nonsense = qr/ LOCATION:  \w+, (?:parse_\w+|acl|amapi|timestamp|multirangetypes)\.c:/;
my ($crashes, $internal, $of_core, $pid, $message) = (0, 0, 0, 0, '');
open my $log, '<', $node->logfile or die $!;
while (<$log>)
{
	$crashes++, diag $_ if /terminated by signal/;
	if (/^(\d+) XX\w{3} (?:ERROR|FATAL|PANIC): /) { ($pid, $message) = ($1, $_); }
	elsif ($pid && /^$pid XX\w{3} (?:DETAIL|HINT|CONTEXT): /) { $message .= $_; }
	elsif ($pid && /^$pid XX\w{3} LOCATION: /)
	{
		my $core = $_ =~ $nonsense;
		$core ? $of_core++ : $internal++;
		diag $message . $_ if !$core;
		$pid = 0 if $core;
	}
	elsif ($pid && /^$pid XX\w{3} STATEMENT: |^\t/) { diag $_; }
	else { $pid = 0; }
}
close $log;
is($crashes, 0, 'nothing crashed');
is($internal, 0, 'no internal error');
note "$of_core internal errors of core's functions";
verify_clean($node, $_, $_) for qw(rollouts numbers lines ignored events_1 events_3 child empty);
$node->stop;
done_testing();
