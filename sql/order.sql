-- Key order and key ranges: the key index merged with pending rows, compared
-- with a sort of the heap twin (P58, P60, P64).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA order_test;
SET search_path = order_test;

CREATE FOREIGN TABLE s (run int NOT NULL, step int8 NOT NULL, r float8, note text) SERVER strata
  OPTIONS (key 'run,step', row_group_rows '1000', auto_merge 'off');
CREATE TABLE h (run int NOT NULL, step int8 NOT NULL, r float8, note text, PRIMARY KEY (run, step));
CREATE FOREIGN TABLE n (name text COLLATE "C" NOT NULL, v int) SERVER strata OPTIONS (key 'name', shards '3', auto_merge 'off');
CREATE TABLE nh (name text COLLATE "C" NOT NULL, v int, PRIMARY KEY (name));

-- base rows in no order, then changes of all kinds pending
INSERT INTO h SELECT g % 50, g / 50, g, 'row ' || g FROM generate_series(1, 5000) g;
INSERT INTO s SELECT * FROM h ORDER BY md5(note);
INSERT INTO nh SELECT md5(g::text), g FROM generate_series(1, 3000) g;
INSERT INTO n SELECT * FROM nh;
CALL strata.drain('s');
CALL strata.drain('n');
UPDATE s SET r = -1 WHERE step = 17;
UPDATE h SET r = -1 WHERE step = 17;
DELETE FROM s WHERE run % 7 = 3;
DELETE FROM h WHERE run % 7 = 3;
INSERT INTO s SELECT g, -1, 0, 'new' FROM generate_series(-5, 55) g;
INSERT INTO h SELECT g, -1, 0, 'new' FROM generate_series(-5, 55) g;
UPDATE s SET run = run + 100 WHERE run = 4;
UPDATE h SET run = run + 100 WHERE run = 4;
DELETE FROM n WHERE v % 5 = 0;
DELETE FROM nh WHERE v % 5 = 0;
UPDATE n SET name = '~' || name WHERE v < 10;
UPDATE nh SET name = '~' || name WHERE v < 10;
ANALYZE s, h, n, nh;

-- a plan, without what versions of PostgreSQL say differently
CREATE FUNCTION planned(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line !~ 'Filter: .* IS NOT NULL' THEN RETURN NEXT regexp_replace(line, ' \(returns \S+\)', ''); END IF;
  END LOOP;
END$$;
-- what is planned
EXPLAIN (COSTS OFF) SELECT * FROM s ORDER BY run, step LIMIT 5;
EXPLAIN (COSTS OFF) SELECT * FROM s ORDER BY run DESC, step DESC LIMIT 5;
EXPLAIN (COSTS OFF) SELECT * FROM s ORDER BY run DESC NULLS LAST, step DESC NULLS LAST LIMIT 5;
EXPLAIN (COSTS OFF) SELECT * FROM s ORDER BY run, step DESC LIMIT 5;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE run = 7 ORDER BY step;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE run = 7 AND step > 5::int4 AND 9 >= step;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE run BETWEEN 7 AND 8 AND step = 3;
EXPLAIN (COSTS OFF) SELECT * FROM n WHERE name < '02' ORDER BY name;
EXPLAIN (COSTS OFF) SELECT * FROM n WHERE name COLLATE "POSIX" < '02' ORDER BY name COLLATE "POSIX";
SELECT planned('SELECT min(name), max(name) FROM n');
EXPLAIN (COSTS OFF) SELECT s.* FROM (VALUES (3), (7)) v (x), LATERAL (SELECT * FROM s WHERE run = x ORDER BY step DESC LIMIT 2) s;

-- the same answers as heap's, whatever is read how
CREATE FUNCTION compare(query text) RETURNS TABLE (rows bigint, same bool) LANGUAGE plpgsql AS $$
DECLARE a text[]; b text[];
BEGIN
  EXECUTE 'SELECT array_agg(q::text) FROM (' || query || ') q' INTO a;
  EXECUTE 'SELECT array_agg(q::text) FROM (' || replace(replace(query, 'FROM s', 'FROM h'), 'FROM n', 'FROM nh') || ') q' INTO b;
  RETURN QUERY SELECT cardinality(a)::bigint, a IS NOT DISTINCT FROM b;
END$$;
CREATE TABLE queries (q text);
INSERT INTO queries VALUES
  ('SELECT * FROM s ORDER BY run, step'),
  ('SELECT * FROM s ORDER BY run, step LIMIT 25'),
  ('SELECT * FROM s ORDER BY run DESC, step DESC LIMIT 25 OFFSET 30'),
  ('SELECT * FROM s ORDER BY run NULLS FIRST, step NULLS FIRST LIMIT 5'),
  ('SELECT * FROM s ORDER BY run DESC NULLS LAST, step DESC NULLS LAST LIMIT 5'),
  ('SELECT run, step FROM s ORDER BY run, step'),
  ('SELECT step FROM s WHERE run = 7 ORDER BY step DESC'),
  ('SELECT * FROM s WHERE run = 7 AND step > 5::int4 AND 9 >= step ORDER BY step'),
  ('SELECT * FROM s WHERE run = 7 AND step > 5 AND step > 8 AND step < 100 AND r > 0 ORDER BY step'),
  ('SELECT * FROM s WHERE run > 48 ORDER BY run, step'),
  ('SELECT * FROM s WHERE run >= 48 AND run < 104 ORDER BY run DESC, step DESC'),
  ('SELECT * FROM s WHERE run BETWEEN 7 AND 8 AND step = 3 ORDER BY run'),
  ('SELECT * FROM s WHERE run < -100 ORDER BY run, step'),
  ('SELECT * FROM s WHERE run = NULL::int ORDER BY step'),
  ('SELECT * FROM s WHERE run > 10 AND run < 5 ORDER BY run, step'),
  ('SELECT * FROM s WHERE run = 3 ORDER BY step'),
  ('SELECT * FROM s WHERE run = 104 ORDER BY step LIMIT 3'),
  ('SELECT DISTINCT run FROM s ORDER BY run'),
  ('SELECT min(run), max(run) FROM s'),
  ('SELECT run, count(*), sum(r) FROM s WHERE run < 5 GROUP BY run ORDER BY run'),
  ('SELECT * FROM n ORDER BY name'),
  ('SELECT * FROM n ORDER BY name DESC LIMIT 20'),
  ('SELECT * FROM n WHERE name > ''f'' ORDER BY name'),
  ('SELECT * FROM n WHERE name >= ''0'' AND name < ''01'' ORDER BY name DESC'),
  ('SELECT min(name), max(name) FROM n'),
  ('SELECT a.name, b.v FROM (SELECT * FROM n ORDER BY name LIMIT 100) a JOIN (SELECT * FROM n) b USING (name) ORDER BY name');
SELECT c.*, q FROM queries, compare(q) c;
SET enable_sort = off; SET enable_hashjoin = off; SET enable_hashagg = off; SET enable_nestloop = off;
SELECT count(*), bool_and(same) FROM queries, compare(q) c;
EXPLAIN (COSTS OFF) SELECT count(*) FROM n a JOIN n b USING (name);
SELECT count(*), sum(a.v) = sum(b.v) FROM n a JOIN n b USING (name);
RESET enable_sort; RESET enable_hashjoin; RESET enable_hashagg; RESET enable_nestloop;

-- a prepared plan outlives the index it was made for
SET plan_cache_mode = force_generic_plan;
PREPARE p(int) AS SELECT * FROM s WHERE run = $1 ORDER BY step LIMIT 3;
EXECUTE p(7);
SELECT strata.drop_key_index('s');
EXECUTE p(7);
SELECT count(*), bool_and(same) FROM queries, compare(q) c;
SELECT strata.create_key_index('s');
EXECUTE p(7);

-- a cursor in key order sees what it saw
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM s WHERE run = 7 ORDER BY step;
FETCH 2 FROM c;
DELETE FROM s WHERE run = 7;
INSERT INTO s VALUES (7, 2, 2, 'later');
FETCH 2 FROM c;
SELECT * FROM s WHERE run = 7 ORDER BY step LIMIT 2;
SELECT * FROM s WHERE run = 7 ORDER BY step LIMIT 2 FOR UPDATE;
ROLLBACK;

-- of pending rows outside the bounds only the key is decoded
CREATE FOREIGN TABLE w (id int NOT NULL, t text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO w SELECT g, 'base' FROM generate_series(1, 100) g;
CALL strata.drain('w');
INSERT INTO w SELECT g, repeat(md5(g::text), 10) FROM generate_series(51, 10000) g ORDER BY hashint4(g);
SET enable_seqscan = off;
CREATE FUNCTION decoded(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query INTO plan;
  RETURN plan -> 0 -> 'Plan' ->> 'Bytes Decompressed';
END$$;
SELECT count(*), sum(length(t)) FROM (SELECT * FROM w WHERE id BETWEEN 48 AND 52 ORDER BY id) q;
SELECT decoded('SELECT * FROM w WHERE id BETWEEN 48 AND 52 ORDER BY id') < 200000 AS few,
       decoded('SELECT * FROM w WHERE id <= 9000 ORDER BY id') > 2000000 AS most;
RESET enable_seqscan;

-- all merged
CALL strata.drain('s');
CALL strata.drain('n');
SELECT count(*), bool_and(same) FROM queries, compare(q) c;
-- a B-tree keeps names cut off: whole again, to the last byte, when it alone is read
CREATE FOREIGN TABLE c (name name NOT NULL) SERVER strata OPTIONS (key 'name', auto_merge 'off');
CREATE TABLE ch AS SELECT (repeat('x', g % 63) || g)::name AS name FROM generate_series(1, 500) g;
INSERT INTO c SELECT * FROM ch;
CALL strata.drain('c');
SET enable_sort = off;
SELECT planned('SELECT name FROM c ORDER BY name');
CREATE TABLE cc AS SELECT name FROM c ORDER BY name;
RESET enable_sort;
SELECT count(*), bool_and(cc *= ch) FROM cc JOIN ch USING (name);
DROP SCHEMA order_test CASCADE;
