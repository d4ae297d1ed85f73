-- Aggregates from the manifest, exact whatever is pending: count(*), min and
-- max of the key (P29, P30, P36, P44, P64).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA aggregates_test;
SET search_path = aggregates_test;

CREATE FOREIGN TABLE s (id int NOT NULL, v int, t text) SERVER strata
  OPTIONS (key 'id', shards '2', row_group_rows '100', auto_merge 'off');
CREATE TABLE h (id int PRIMARY KEY, v int, t text);
CREATE FOREIGN TABLE k (v int) SERVER strata OPTIONS (auto_merge 'off');	-- no key

-- what a count and a scan say, and the heap twin
CREATE FUNCTION counts(OUT strata bigint, OUT scanned bigint, OUT heap bigint,
                       OUT ends bool, OUT plan text) LANGUAGE plpgsql AS $$
DECLARE line text; s_min int; s_max int; b_min int; b_max int; b_count bigint; h_min int; h_max int;
BEGIN
  SELECT count(*) INTO strata FROM s;
  SELECT count(*) INTO scanned FROM (SELECT v FROM s OFFSET 0) q;
  SELECT count(*), min(id), max(id) INTO heap, h_min, h_max FROM h;
  SELECT min(id) INTO s_min FROM s;
  SELECT max(id) INTO s_max FROM s;
  SELECT max(id), count(*), min(id) INTO b_max, b_count, b_min FROM s HAVING count(*) >= 0;
  ends := (s_min, s_max) IS NOT DISTINCT FROM (h_min, h_max) AND
    (b_count, b_min, b_max) IS NOT DISTINCT FROM (heap, h_min, h_max);
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) SELECT count(*) FROM s' LOOP
    plan := CASE WHEN line LIKE '%Count From Manifest%' THEN 'manifest' ELSE coalesce(plan, 'scan') END;
  END LOOP;
END$$;
CREATE FUNCTION on_both(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE command;
  EXECUTE replace(command, ' s ', ' h ');
END$$;

SELECT 'nothing' AS state, * FROM counts();
SELECT on_both('INSERT INTO s SELECT g, g, ''one'' FROM generate_series(1, 1000) g');
SELECT 'pending' AS state, * FROM counts();
CALL strata.drain('s');
SELECT 'merged' AS state, * FROM counts();
SELECT on_both('INSERT INTO s SELECT g, -g, ''two'' FROM generate_series(1001, 1100) g');
SELECT on_both('UPDATE s SET v = 0 WHERE id % 10 = 0');
SELECT on_both('DELETE FROM s WHERE id % 7 = 1 OR id = 1100');
SELECT on_both('DELETE FROM s WHERE id = 2');
SELECT on_both('INSERT INTO s VALUES (2, 2, ''back''), (-5, 1, ''first'')');
SELECT 'both' AS state, * FROM counts();
BEGIN;
SELECT on_both('INSERT INTO s VALUES (-6, 1, ''own'')');
SELECT on_both('DELETE FROM s WHERE id < 100');
SELECT 'own' AS state, * FROM counts();
SAVEPOINT p;
SELECT on_both('DELETE FROM s WHERE v > 0');
SELECT 'savepoint' AS state, * FROM counts();
ROLLBACK TO p;
SELECT 'rolled back' AS state, * FROM counts();
ROLLBACK;
SELECT 'as before' AS state, * FROM counts();
-- by hashes, where there is no index to probe
SELECT strata.drop_key_index('s');
SELECT 'no index' AS state, * FROM counts();
SELECT strata.create_key_index('s');
CALL strata.drain('s');
SELECT 'deletes' AS state, * FROM counts();
SELECT on_both('UPDATE s SET v = 1 WHERE id < 300');
DO $$ BEGIN PERFORM strata.compact('s'); END $$;
SELECT 'compacted' AS state, * FROM counts();
SELECT on_both('DELETE FROM s WHERE true');
SELECT 'all gone' AS state, * FROM counts();
CALL strata.drain('s');
SELECT 'merged away' AS state, * FROM counts();
SELECT on_both('INSERT INTO s SELECT g, g, ''three'' FROM generate_series(1, 500) g');
TRUNCATE s, h;
SELECT 'truncated' AS state, * FROM counts();
SELECT on_both('INSERT INTO s SELECT g, g % 10, ''four'' FROM generate_series(1, 500) g');
CALL strata.drain('s');
SELECT on_both('INSERT INTO s SELECT g, g % 10, ''five'' FROM generate_series(401, 600) g ON CONFLICT DO NOTHING');
SELECT 'again' AS state, * FROM counts();

-- without a key every row counts
INSERT INTO k VALUES (1), (1), (NULL);
CALL strata.drain('k');
INSERT INTO k SELECT NULL FROM generate_series(1, 10);
EXPLAIN (COSTS OFF) SELECT count(*) FROM k;
SELECT count(*), count(v) FROM k;

-- a plan, without what versions of PostgreSQL say differently
CREATE FUNCTION planned(query text, options text DEFAULT 'COSTS OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
    IF line !~ 'Filter: .* IS NOT NULL' THEN RETURN NEXT regexp_replace(line, ' \(returns \S+\)|(?<=rows=\d+)\.00', ''); END IF;
  END LOOP;
END$$;
-- min and max of the key, from the index and what is pending
SELECT planned('SELECT min(id), max(id) FROM s');
SELECT min(id), max(id) FROM s;

-- what is the number of rows, however it is said
EXPLAIN (VERBOSE, COSTS OFF) SELECT count(*) + 1, count(id), count(1) FROM s ORDER BY 1 LIMIT 1;
SELECT count(*) + 1, count(id), count(1) FROM s ORDER BY 1 LIMIT 1;
EXPLAIN (COSTS OFF) SELECT x, (SELECT count(*) + x FROM s) FROM (VALUES (1), (2)) v (x);
SELECT x, (SELECT count(*) + x FROM s) FROM (VALUES (1), (2)) v (x);
SELECT (SELECT count(s.id) + x FROM (VALUES (1), (2)) v (x) ORDER BY 1 LIMIT 1) FROM s;
SELECT count(1 ORDER BY v), CASE WHEN count(*) > 5 THEN 'many' END || count(*)::text FROM s;
SELECT x, c FROM (VALUES (1), (2)) v (x), LATERAL (SELECT count(*) * x AS c FROM s) c;
SELECT count(*), count(*) OVER () FROM s;
SELECT planned('SELECT count(*) FROM s WHERE true', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');

-- with the ends of the key, and HAVING
EXPLAIN (VERBOSE, COSTS OFF) SELECT max(id) - min(id), count(*) FROM s HAVING count(*) > 10 AND min(id) < 500;
SELECT max(id) - min(id), count(*) FROM s HAVING count(*) > 10 AND min(id) < (SELECT 500);
SELECT count(*) FROM s HAVING max(id) < 0;
SELECT 'many' FROM s HAVING count(*) > 10 ORDER BY count(*);
SELECT x, (SELECT count(*) FROM s HAVING count(*) > x) FROM (VALUES (1), (10000)) v (x);
CREATE FOREIGN TABLE txt (a text COLLATE "C" NOT NULL, b numeric NOT NULL, v varchar NOT NULL) SERVER strata OPTIONS (key 'a, b', auto_merge 'off');
INSERT INTO txt VALUES ('b', 1, 'x'), ('a', 2.0, 'y'), ('a', 1, 'z'), ('B', 3, 'x');
CALL strata.drain('txt');
INSERT INTO txt SELECT repeat('z', 2000), 1, 'w';
DELETE FROM txt WHERE a = 'B';
SELECT min(a), length(max(a)), count(*) FROM txt;
CREATE FOREIGN TABLE var (v varchar(20) NOT NULL) SERVER strata OPTIONS (key 'v', auto_merge 'off');
SELECT count(*), min(v), max(v) FROM var;
INSERT INTO var VALUES ('one'), ('two');
CALL strata.drain('var');
EXPLAIN (COSTS OFF) SELECT count(v), min(v), max(v) FROM var;
SELECT count(v), min(v), max(v) FROM var;

-- what is not
CREATE FUNCTION counts_by(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line LIKE '%Count From Manifest%' THEN RETURN 'manifest'; END IF;
  END LOOP;
  RETURN 'scan';
END$$;
SELECT counts_by(q), q FROM (VALUES
  ('SELECT count(*) FROM s WHERE v = 1'),
  ('SELECT count(*) FROM s WHERE id > 10'),
  ('SELECT count(v) FROM s'),
  ('SELECT count(NULL) FROM s'),
  ('SELECT count(DISTINCT id) FROM s'),
  ('SELECT count(*) FILTER (WHERE v > 1) FROM s'),
  ('SELECT count(*), sum(v) FROM s'),
  ('SELECT count(*) FROM s HAVING sum(v) > 1'),
  ('SELECT count(*) FROM s HAVING max(v) > 1'),
  ('SELECT count(*), min(id) FROM s WHERE v > 1'),
  ('SELECT count(*), min(id) FILTER (WHERE v > 1) FROM s'),
  ('SELECT count(*), min(v) FROM s'),
  ('SELECT count(*), min(id + 1) FROM s'),
  ('SELECT count(*), sum(id) FROM s'),
  ('SELECT count(*), array_agg(id) FROM s'),
  ('SELECT count(*), min(b) FROM txt'),
  ('SELECT count(*), min(a COLLATE "en-x-icu") FROM txt'),
  ('SELECT count(*), min(id), v FROM s GROUP BY v'),
  ('SELECT v, count(*) FROM s GROUP BY v'),
  ('SELECT count(*) FROM s GROUP BY ()'),
  ('SELECT count(*) FROM s GROUP BY GROUPING SETS ((), ())'),
  ('SELECT count(*) FROM s a, h'),
  ('SELECT count(*), generate_series(1, 2) FROM s'),
  ('SELECT count(*) FROM s WHERE current_setting(''work_mem'') = ''''')) v (q);
SELECT count(*) FROM s WHERE v = 1;
SELECT count(*) FILTER (WHERE v > 1), count(v), count(NULL) FROM s;

-- a plan that is kept counts what is there when it runs
SET plan_cache_mode = force_generic_plan;
PREPARE p AS SELECT count(*) FROM s;
EXECUTE p;
INSERT INTO s VALUES (1001, 0, 'late');
EXECUTE p;
DELETE FROM s WHERE id <= 10;
EXECUTE p;
CALL strata.drain('s');
EXECUTE p;
-- and finds the ends without the index, too
PREPARE e AS SELECT count(*), min(id), max(id) FROM s;
EXECUTE e;
SELECT strata.drop_key_index('s');
EXECUTE e;
DELETE FROM s WHERE id = 11;
EXECUTE e;
SELECT strata.create_key_index('s');
EXECUTE e;
RESET plan_cache_mode;

-- a statement does not count what it writes itself, the next one does
BEGIN;
INSERT INTO s SELECT 2000 + g, (SELECT count(*) FROM s), 'x' FROM generate_series(1, 3) g RETURNING v;
SELECT count(*) FROM s;
WITH w AS (INSERT INTO s VALUES (3000, 0, 'w') RETURNING 1) SELECT (SELECT count(*) FROM s), (SELECT count(*) FROM w);
DECLARE c SCROLL CURSOR FOR SELECT count(*) FROM s;
DELETE FROM s WHERE true;
FETCH c;
FETCH BACKWARD FROM c;
SELECT count(*) FROM s;
ROLLBACK;

-- by a worker
SELECT name AS parallel_mode FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel_mode = regress;
SELECT count(*) FROM s;
SELECT h.id, (SELECT count(*) FROM s) FROM h WHERE id = 20;
RESET :parallel_mode;

-- partitions one by one, and children of a heap table
CREATE TABLE parent (id int, v int, t text) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parent FOR VALUES FROM (0) TO (100);
CREATE FOREIGN TABLE part2 PARTITION OF parent (id NOT NULL) FOR VALUES FROM (100) TO (200) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE part3 PARTITION OF parent (id NOT NULL) FOR VALUES FROM (200) TO (300) SERVER strata OPTIONS (key 'id');
INSERT INTO parent SELECT g, g, 'p' FROM generate_series(0, 299) g;
CALL strata.drain('part2');
DELETE FROM parent WHERE id % 50 = 0;
SET enable_partitionwise_aggregate = on;
EXPLAIN (COSTS OFF) SELECT count(*) FROM parent;
SELECT count(*) FROM parent;
EXPLAIN (COSTS OFF) SELECT count(*), max(id) FROM parent HAVING count(*) > 1;
SELECT count(*), max(id) FROM parent HAVING count(*) > 1;
SELECT count(*), max(id) FROM parent HAVING count(*) > 1000;
SELECT count(*) FROM parent WHERE id >= 100;
SELECT id, count(*) FROM parent GROUP BY id HAVING id IN (99, 101) ORDER BY id;
RESET enable_partitionwise_aggregate;
SELECT count(*) FROM parent;
CREATE TABLE upper (id int NOT NULL, v int, t text);
ALTER TABLE parent DETACH PARTITION part3;
ALTER FOREIGN TABLE part3 INHERIT upper;
INSERT INTO upper VALUES (1, 1, 'u');
SELECT count(*) FROM upper;
SELECT count(*) FROM ONLY upper;
CREATE TABLE lower (x int) INHERITS (part3);
INSERT INTO lower VALUES (1, 1, 'l', 1);
SELECT count(*) FROM part3;
EXPLAIN (COSTS OFF) SELECT count(*) FROM ONLY part3;
SELECT count(*) FROM ONLY part3;

-- one layer: its rows, whether they win or not
CREATE FOREIGN TABLE in_base (id int) SERVER strata OPTIONS (store 'aggregates_test.s', layer 'base');
CREATE FOREIGN TABLE in_wal (id int) SERVER strata OPTIONS (store 'aggregates_test.s', layer 'wal');
EXPLAIN (COSTS OFF) SELECT count(*) FROM in_base HAVING count(*) > 0;
SELECT (SELECT count(*) FROM in_base) AS base, (SELECT count(*) FROM (SELECT id FROM in_base OFFSET 0) q) AS scanned,
       (SELECT count(*) FROM in_wal) AS wal, (SELECT count(*) FROM (SELECT id FROM in_wal OFFSET 0) q) AS scanned;
BEGIN;
INSERT INTO s SELECT g, 0, 'layer' FROM generate_series(100, 120) g;
DELETE FROM s WHERE id = 105;
INSERT INTO s VALUES (100, 1, 'again');
SAVEPOINT p;
INSERT INTO s VALUES (101, 1, 'rolled back');
ROLLBACK TO p;
SELECT (SELECT count(*) FROM in_base) AS base, (SELECT count(*) FROM (SELECT id FROM in_base OFFSET 0) q) AS scanned,
       (SELECT count(*) FROM in_wal) AS wal, (SELECT count(*) FROM (SELECT id FROM in_wal OFFSET 0) q) AS scanned;
ROLLBACK;
SELECT counts_by('SELECT count(*), min(id) FROM in_base'), counts_by('SELECT count(id) FROM in_wal');

-- rights: to any column, and to the table at all; a view's owner's
CREATE ROLE aggregates_reader;
GRANT USAGE ON SCHEMA aggregates_test TO aggregates_reader;
-- a policy on a parent filters its partitions
GRANT SELECT ON parent TO aggregates_reader;
ALTER TABLE parent ENABLE ROW LEVEL SECURITY;
CREATE POLICY odd ON parent USING (v % 2 = 1);
SET enable_partitionwise_aggregate = on;
SET ROLE aggregates_reader;
SELECT count(*) FROM parent;
RESET ROLE;
RESET enable_partitionwise_aggregate;
SELECT count(*) FILTER (WHERE v % 2 = 1) FROM parent;
CREATE VIEW counted AS SELECT count(*) FROM s;
CREATE VIEW counted_base AS SELECT count(*) > 0 AS some FROM in_base;
GRANT SELECT ON counted, counted_base, in_base TO aggregates_reader;
SET ROLE aggregates_reader;
SELECT count(*) FROM s;
SELECT count(*) FROM in_base;
SELECT * FROM counted;
SELECT * FROM counted_base;
RESET ROLE;
GRANT SELECT (t) ON s TO aggregates_reader;
SET ROLE aggregates_reader;
SELECT count(*) FROM s;
SELECT count(id) FROM s;
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA aggregates_test CASCADE;
DROP ROLE aggregates_reader;
