-- Parallel scans (P29, P36, P37): each row comes once, whoever reads it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA parallel_test;
SET search_path = parallel_test;

CREATE FOREIGN TABLE s (id int NOT NULL, a int, r int8, t text) SERVER strata
  OPTIONS (key 'id', row_group_rows '500', shards '2', auto_merge 'off');
CREATE TABLE h (id int PRIMARY KEY, a int, r int8, t text);
INSERT INTO h SELECT g, g % 100, g, md5(g::text) FROM generate_series(1, 20000) g;
INSERT INTO s SELECT * FROM h;
CALL strata.drain('s');
UPDATE s SET r = -r WHERE a = 5;
UPDATE h SET r = -r WHERE a = 5;
DELETE FROM s WHERE a = 7;
DELETE FROM h WHERE a = 7;
INSERT INTO s SELECT g, g % 100, g, 'new' FROM generate_series(20001, 21000) g;
INSERT INTO h SELECT g, g % 100, g, 'new' FROM generate_series(20001, 21000) g;
ANALYZE s, h;

SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
EXPLAIN (COSTS OFF) SELECT count(*), sum(r), min(t) FROM s WHERE a <> 3;
SELECT count(*), sum(r), min(t) FROM s WHERE a <> 3;
SELECT count(*), sum(r), min(t) FROM h WHERE a <> 3;
SELECT count(*), sum(r) FROM s WHERE id > 15000;
SELECT count(*), sum(r) FROM h WHERE id > 15000;
SELECT count(*) FROM s WHERE t IS NULL;
-- what all processes read adds up; what each of them skips counts once
CREATE FUNCTION read(query text, OUT read int, OUT skipped int, OUT kb bool) LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, FORMAT JSON) ' || query INTO plan;
  plan := plan -> 0 -> 'Plan';
  WHILE plan -> 'Plans' IS NOT NULL LOOP plan := plan -> 'Plans' -> 0; END LOOP;
  read := plan ->> 'Row Groups Read';
  skipped := plan ->> 'Row Groups Skipped';
  kb := (plan ->> 'Bytes Decompressed')::int > 300000;
END$$;
SELECT read.*, (SELECT count(*) FROM strata.row_groups WHERE store = 's'::regclass) AS row_groups FROM read('SELECT sum(r), min(t) FROM s');
SELECT read, skipped > 0 AS skipped, read + skipped = (SELECT count(*) FROM strata.row_groups WHERE store = 's'::regclass) AS all
  FROM read('SELECT sum(r), min(t) FROM s WHERE r > 15000');
SET parallel_leader_participation = off;
SELECT * FROM read('SELECT sum(r), min(t) FROM s');
RESET parallel_leader_participation;
SELECT a, count(*), sum(r) FROM s GROUP BY a ORDER BY a LIMIT 6;
SELECT a, count(*), sum(r) FROM h GROUP BY a ORDER BY a LIMIT 6;

-- started again and again
SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT v.x, (SELECT sum(r) FROM s WHERE a < v.x OFFSET 0) FROM (VALUES (1), (6), (8)) v (x);
SELECT v.x, c.* FROM (VALUES (1), (6), (8)) v (x) LEFT JOIN LATERAL (SELECT count(*), sum(r) FROM s OFFSET 0) c ON true ORDER BY 1;
SELECT count(*), sum(h.r + s.r) FROM h JOIN s USING (id) WHERE h.a < 50;
SELECT count(*), sum(2 * r) FROM h WHERE a < 50;
RESET enable_material; RESET enable_hashjoin; RESET enable_mergejoin;

-- own rows, in the log since the scan began at the latest; rolled-back ones
BEGIN;
INSERT INTO s VALUES (-1, 1, 1, 'own');
SAVEPOINT p;
DELETE FROM s WHERE id = 10000;
SELECT count(*) FROM s;
ROLLBACK TO p;
SELECT count(*) FROM s;
CREATE TABLE made AS SELECT * FROM s;
INSERT INTO s SELECT -id, a, r, t FROM s WHERE id > 0 AND a = 1;
SELECT count(*), (SELECT count(*) FROM made) FROM s;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*), sum(r) FROM s;
COMMIT;

-- everything that can be is done by a worker
SELECT name AS parallel_mode FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel_mode = regress;
SELECT count(*), sum(r) FROM s;
SELECT * FROM s WHERE id = 777;
SELECT id FROM s WHERE id = ANY ('{5,7,20500}') ORDER BY id;
SELECT id FROM s ORDER BY id DESC LIMIT 2;
SELECT count(*) FROM s WHERE id BETWEEN 100 AND 199;
RESET :parallel_mode;

-- a tree of heap and strata partitions
CREATE TABLE p (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (5000);
CREATE FOREIGN TABLE p2 PARTITION OF p FOR VALUES FROM (5000) TO (10000) SERVER strata OPTIONS (key 'id', row_group_rows '500', auto_merge 'off');
INSERT INTO p SELECT g, 'v' || g FROM generate_series(0, 9999) g;
CALL strata.drain('p2');
UPDATE p SET v = 'x' WHERE id % 1000 = 999;
ANALYZE p;
EXPLAIN (COSTS OFF) SELECT count(*), max(v) FROM p;
SELECT count(*), max(v) FROM p;
-- what a command has put is there for a parallel query in it, also where only a
-- function of that query reads the table, and in a block that may not get an xid
CREATE FOREIGN TABLE f (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE big AS SELECT g FROM generate_series(1, 10000) g;
ANALYZE big;
CREATE FUNCTION rows_of_f(int) RETURNS text LANGUAGE plpgsql STABLE PARALLEL SAFE AS
  $$BEGIN RETURN (SELECT count(*) FROM f); END$$;
CREATE FUNCTION seen() RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
  BEGIN
    EXECUTE 'SELECT min(rows_of_f(g)) || '' to '' || max(rows_of_f(g)) FROM big WHERE g % 1000 = 0' INTO result;
  EXCEPTION WHEN division_by_zero THEN NULL;
  END;
  RETURN result;
END$$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT min(rows_of_f(g)) FROM big WHERE g % 1000 = 0;
INSERT INTO f SELECT g, seen() FROM generate_series(1, 3) g;
SET parallel_leader_participation = off;
INSERT INTO f SELECT g, seen() FROM generate_series(4, 6) g;
SELECT * FROM f ORDER BY id;
DROP SCHEMA parallel_test CASCADE;
