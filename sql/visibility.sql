-- Which version of a key counts, for whom, and when: commands, savepoints,
-- cursors, seals and merges in between; every shape of the log; with the keys
-- of pending rows kept, and with too little memory for that.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA visibility;
SET search_path = visibility, public;

CREATE FOREIGN TABLE t (id int NOT NULL, v text, n int)
	SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '1000',
		generation_max_rows '700', generation_max_bytes '64kB');
CREATE TABLE h (id int PRIMARY KEY, v text, n int);

-- both get the same rows, the heap in the same order
CREATE FUNCTION put(lo int, hi int, step int, tag text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t SELECT i, tag || i, i % 7 FROM generate_series(lo, hi, step) i;
	INSERT INTO h SELECT i, tag || i, i % 7 FROM generate_series(lo, hi, step) i
		ON CONFLICT (id) DO UPDATE SET v = excluded.v, n = excluded.n;
END $$;

-- rows of t; how many differ from h by scan, by key lookup, and by aggregate
CREATE FUNCTION differ(OUT n bigint, OUT scan bigint, OUT lookup bigint, OUT counts boolean)
LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	SELECT count(*) INTO n FROM t;
	SELECT count(*) INTO scan FROM
		((TABLE t EXCEPT ALL TABLE h) UNION ALL (TABLE h EXCEPT ALL TABLE t)) d;
	SELECT count(*) INTO lookup FROM h
		WHERE NOT EXISTS (SELECT FROM t WHERE t.id = ANY (ARRAY[h.id]) AND t.v = h.v AND t.n = h.n);
	counts := (SELECT (count(*), sum(t.n), max(t.v)) FROM t) = (SELECT (count(*), sum(h.n), max(h.v)) FROM h);
END $$;

-- ---- commands of one transaction ----
SELECT * FROM t;
SELECT * FROM t WHERE id = 1;
SELECT put(1, 10, 1, 'a');
SELECT * FROM differ();
INSERT INTO t VALUES (1, 'twice', 1), (2, 'x', 2), (1, 'last wins', 1);
SELECT * FROM t WHERE id <= 2 ORDER BY id;
SELECT put(1, 10, 1, 'b');
SELECT * FROM differ();

BEGIN;
INSERT INTO t VALUES (3, 'own', 0);
SELECT v FROM t WHERE id = 3;
SAVEPOINT s1;
INSERT INTO t VALUES (3, 'in s1', 0), (11, 'in s1', 0);
SELECT v FROM t WHERE id = 3;
SAVEPOINT s2;
INSERT INTO t VALUES (3, 'in s2', 0), (12, 'in s2', 0);
SELECT id, v FROM t WHERE id IN (3, 11, 12) ORDER BY id;
ROLLBACK TO s2;
SELECT id, v FROM t WHERE id IN (3, 11, 12) ORDER BY id;
INSERT INTO t VALUES (12, 'in s2 again', 0);
RELEASE s1;
SELECT id, v FROM t WHERE v LIKE '%s1%' OR v LIKE '%s2%' ORDER BY id;
ROLLBACK;
SELECT * FROM differ();

-- a command does not see what it puts
INSERT INTO t SELECT id + 100, v, n FROM t;
INSERT INTO h SELECT id + 100, v, n FROM h;
SELECT * FROM differ();
WITH put AS (INSERT INTO t VALUES (1, 'cte', 1) RETURNING id)
	SELECT (SELECT v FROM t WHERE id = 1), (SELECT id FROM put);
UPDATE h SET v = 'cte', n = 1 WHERE id = 1;
SELECT * FROM differ();

-- ---- cursors: what they see was fixed when they were opened ----
BEGIN;
DECLARE by_scan CURSOR FOR SELECT id, v FROM t WHERE id <= 4;
DECLARE by_lookup CURSOR FOR SELECT id, v FROM t WHERE id = ANY ('{4,3,2,1,1000}');
FETCH 1 FROM by_lookup;
SELECT put(1, 5000, 1, 'c');
SAVEPOINT s;
SELECT put(1, 3, 1, 'd');
ROLLBACK TO s;
SELECT count(*) FROM strata.seal('t');
FETCH 1 FROM by_scan;
FETCH ALL FROM by_scan;
FETCH ALL FROM by_lookup;
COMMIT;
SELECT * FROM differ();

BEGIN;
DECLARE before CURSOR FOR SELECT count(*) FILTER (WHERE v LIKE 'c%'), count(*), sum(n) FROM t;
DECLARE before_lookup CURSOR FOR SELECT id, v FROM t WHERE id = ANY ('{1,2500,5001}');
SELECT put(2000, 5200, 1, 'e');
SELECT generations_merged > 0 AS merged FROM strata.merge('t', max_generations => 2);
SELECT * FROM differ();
FETCH ALL FROM before;
FETCH ALL FROM before_lookup;
COMMIT;
SELECT * FROM differ();

-- ---- merging changes no answer, one pass after the other ----
SELECT put(1, 9000, 3, 'f');
SELECT put(2, 9000, 5, 'g');
SELECT put(7000, 12000, 1, 'h');
SELECT put(7001, 12000, 2, 'i');
SELECT * FROM differ();
SELECT count(*) >= 0 AS sealed FROM strata.seal('t');
SELECT generations_merged > 0 AS merged FROM strata.merge('t', max_generations => 1);
SELECT * FROM differ();
SELECT put(1, 100, 1, 'j');
SELECT generations_merged > 0 AS merged FROM strata.merge('t', max_generations => 1);
SELECT * FROM differ();
SELECT generations_merged > 0 AS merged FROM strata.merge('t', max_generations => 3);
SELECT * FROM differ();
CALL strata.drain('t');
SELECT * FROM differ();

-- everything superseded, by rows of the log and by a row group
SELECT put(1, 12000, 1, 'k');
SELECT * FROM differ();
-- few, by index; then without one
SELECT put(5, 12000, 1000, 'l');
SELECT * FROM differ();
CALL strata.drain('t');
SELECT put(5, 12000, 997, 'm');
SELECT * FROM differ();
SELECT strata.drop_key_index('t');
SELECT * FROM (SELECT id, v FROM t WHERE id IN (5, 6, 11999, 13000)) q ORDER BY id;
SELECT put(5, 12000, 991, 'n');
SELECT count(*), count(*) FILTER (WHERE NOT h.* IS NULL) FROM t LEFT JOIN h USING (id, v, n);

-- ---- too little memory for the keys: hash partitions, and reading ----
SET strata.cache_size = '64kB';
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
SELECT put(1, 12000, 2, 'o');
SELECT put(1, 12000, 4, 'p');
SELECT put(4000, 16000, 1, 'q');
SELECT count(*), count(*) FILTER (WHERE NOT h.* IS NULL) FROM t LEFT JOIN h USING (id, v, n);
SELECT id, v FROM t WHERE id IN (1, 2, 3, 5, 3999, 4000, 15999, 16001) ORDER BY id;
SELECT strata.create_key_index('t');
SELECT count(*), count(*) FILTER (WHERE NOT h.* IS NULL) FROM t LEFT JOIN h USING (id, v, n);
SELECT id, v FROM t WHERE id IN (1, 2, 3, 5, 3999, 4000, 15999, 16001) ORDER BY id;
CALL strata.drain('t');
SELECT * FROM differ();
RESET strata.cache_size;
RESET work_mem;
RESET hash_mem_multiplier;
SELECT put(16000, 16100, 1, 'r');
SELECT * FROM differ();

-- ---- layers ----
CREATE FOREIGN TABLE wal (id int, v text, n int) SERVER strata OPTIONS (store 'visibility.t', layer 'wal');
CREATE FOREIGN TABLE base (id int, v text) SERVER strata OPTIONS (store 'visibility.t', layer 'base');
SELECT put(16000, 16001, 1, 's');
SELECT id, v FROM wal WHERE id <= 16002 ORDER BY id, v;
SELECT count(*) FROM wal;
SELECT id, v FROM base WHERE id = 16000;
SELECT count(*) FROM base;
BEGIN;
INSERT INTO t VALUES (16000, 'not for long', 0);
SELECT count(*) FROM wal;
ROLLBACK;
SELECT count(*) FROM wal;
CALL strata.drain('t');
SELECT count(*) FROM wal;
SELECT count(*) FROM base;
SELECT * FROM differ();

-- ---- TRUNCATE ----
BEGIN;
TRUNCATE t;
SELECT count(*) FROM t;
SELECT count(*) FROM t WHERE id = 16000;
INSERT INTO t VALUES (1, 'after', 1);
SELECT * FROM t;
ROLLBACK;
SELECT * FROM differ();
TRUNCATE t;
TRUNCATE h;
SELECT * FROM differ();
SELECT put(1, 3000, 1, 'a');
SELECT put(1, 3000, 2, 'b');
SELECT * FROM differ();
CALL strata.drain('t');
SELECT * FROM differ();
DROP FOREIGN TABLE wal, base, t;
DROP TABLE h;

-- ---- several shards, a key of two columns ----
CREATE FOREIGN TABLE t (a text NOT NULL, b int NOT NULL, v text)
	SERVER strata OPTIONS (key 'b,a', shards '5', auto_merge 'off', row_group_rows '500',
		generation_max_rows '300');
CREATE TABLE h (a text, b int, v text, PRIMARY KEY (b, a));
CREATE FUNCTION put2(lo int, hi int, step int, tag text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t SELECT 'key ' || i % 10, i / 10, tag || i FROM generate_series(lo, hi, step) i;
	INSERT INTO h SELECT 'key ' || i % 10, i / 10, tag || i FROM generate_series(lo, hi, step) i
		ON CONFLICT (b, a) DO UPDATE SET v = excluded.v;
END $$;
CREATE FUNCTION differ2(OUT n bigint, OUT scan bigint, OUT lookup bigint) LANGUAGE plpgsql AS $$
BEGIN
	SELECT count(*) INTO n FROM t;
	SELECT count(*) INTO scan FROM
		((TABLE t EXCEPT ALL TABLE h) UNION ALL (TABLE h EXCEPT ALL TABLE t)) d;
	SELECT count(*) INTO lookup FROM h
		WHERE NOT EXISTS (SELECT FROM t WHERE t.a = h.a AND t.b = h.b AND t.v = h.v LIMIT 1);
END $$;
SELECT put2(1, 2000, 1, 'a');
SELECT put2(1, 2000, 7, 'b');
SELECT * FROM differ2();
SELECT generations_merged > 0 AS merged FROM strata.merge('t', max_generations => 2);
SELECT * FROM differ2();
SELECT put2(1, 2000, 11, 'c');
SELECT put2(1995, 2005, 1, 'd');
SELECT * FROM differ2();
SELECT generations_merged > 0 AS merged FROM strata.merge('t');
SELECT * FROM differ2();
CALL strata.drain('t');
SELECT * FROM differ2();
SELECT * FROM t WHERE a = 'key 5' AND b = 200;
SELECT * FROM t WHERE a = 'key 5' AND b = 201;
DROP FOREIGN TABLE t;
DROP TABLE h;

-- ---- no key: every row stays ----
CREATE FOREIGN TABLE t (id int, v text)
	SERVER strata OPTIONS (auto_merge 'off', row_group_rows '500', generation_max_rows '300');
INSERT INTO t SELECT i % 10, 'a' || i FROM generate_series(1, 1000) i;
INSERT INTO t VALUES (1, 'b'), (1, 'b'), (NULL, NULL);
SELECT count(*), count(id), count(DISTINCT v) FROM t;
BEGIN;
INSERT INTO t VALUES (1, 'b');
ROLLBACK;
SELECT count(*), sum(id) FROM t WHERE id = 1;
-- a row is in the log or in the base table, also for who still knows the log
INSERT INTO t SELECT i % 10, 'c' || i FROM generate_series(1, 2000) i;
INSERT INTO t SELECT i % 10, 'd' || i FROM generate_series(1, 2000) i;
SELECT count(*) FROM t;
SELECT generations_merged FROM strata.merge('t', max_generations => 1);
SELECT count(*), count(DISTINCT v) FROM t;
SELECT generations_merged FROM strata.merge('t', max_generations => 1);
SELECT count(*), count(DISTINCT v) FROM t;
CALL strata.drain('t');
SELECT count(*), count(id), count(DISTINCT v) FROM t;
INSERT INTO t SELECT * FROM t;
SELECT count(*), count(id), count(DISTINCT v) FROM t;
SELECT count(*), sum(id) FROM t WHERE id = 1;

DROP FOREIGN TABLE t;
RESET search_path;
DROP SCHEMA visibility CASCADE;
