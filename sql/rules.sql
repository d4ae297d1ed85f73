-- Rules that keep rows from being lost or doubled, each met where it alone
-- decides (docs/internals.md, "Mutations").
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA rules;
SET search_path = rules, public;

-- ---- one memtable a command, in put order ----
CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
-- the outer INSERT puts what the CTE returned, so it comes later
WITH inner_rows AS (INSERT INTO t VALUES (1, 'cte') RETURNING id)
	INSERT INTO t SELECT id, 'outer' FROM inner_rows;
SELECT * FROM t;

-- what a row's function writes comes after the rows before it
CREATE FUNCTION overwrite(int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	INSERT INTO rules.t VALUES ($1, 'function');
	RETURN 'outer';
END $$;
INSERT INTO t SELECT g, CASE g WHEN 2 THEN 'outer' ELSE overwrite(2) END FROM generate_series(2, 3) g;
SELECT * FROM t WHERE id > 1 ORDER BY id;

-- a function sees the rows put before it, and a block that fails does not take
-- with it what it caused to be flushed
CREATE FUNCTION look(int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE seen int;
BEGIN
	SELECT count(*) INTO seen FROM rules.t WHERE id >= 10;
	RAISE EXCEPTION USING message = seen::text;
EXCEPTION WHEN raise_exception THEN
	RETURN SQLERRM;
END $$;
INSERT INTO t SELECT g, look(g) FROM generate_series(10, 13) g;
SELECT * FROM t WHERE id >= 10 ORDER BY id;

-- COPY is a command like others: a cursor opened before does not see it
BEGIN;
INSERT INTO t VALUES (20, 'before');
DECLARE c CURSOR FOR SELECT * FROM t WHERE id >= 20 ORDER BY id;
COPY t FROM stdin;
20	copied
21	copied
\.
FETCH ALL FROM c;
SELECT * FROM t WHERE id >= 20 ORDER BY id;
COMMIT;

-- ---- a scan counts what the log held when it started ----
-- The cursor's snapshot sees row 1 of the outer INSERT, which is not yet in the
-- log when the cursor is read for the first time.
CREATE FOREIGN TABLE s (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO s SELECT g, 'base' FROM generate_series(1, 3) g;
CALL strata.drain('s');
INSERT INTO s VALUES (100, 'pending'), (101, 'pending');
CREATE FUNCTION step(n int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	c refcursor := 'scan';
	r record;
	all_rows text := '';
BEGIN
	IF n = 1 THEN
		OPEN c FOR SELECT * FROM rules.s;
		FETCH c INTO r;
	ELSIF n = 2 THEN
		PERFORM count(*) FROM rules.s;
	ELSE
		LOOP
			FETCH c INTO r;
			EXIT WHEN NOT FOUND;
			all_rows := all_rows || ' ' || r.id || r.v;
		END LOOP;
		CLOSE c;
		RETURN all_rows;
	END IF;
	RETURN 'new';
END $$;
BEGIN;
INSERT INTO s SELECT g, step(g) FROM generate_series(1, 3) g;
SELECT * FROM s WHERE id <= 3 ORDER BY id;
ROLLBACK;

-- ---- nothing filters a pending row before its key counts ----
CREATE FOREIGN TABLE f (id int NOT NULL, v int, w text) SERVER strata
	OPTIONS (key 'id', auto_merge 'off', row_group_rows '1000');
CREATE FUNCTION answers(OUT one bigint, OUT two bigint, OUT n bigint, OUT few bigint, OUT text bigint, OUT page bigint)
LANGUAGE plpgsql AS $$
BEGIN
	SELECT count(*) INTO one FROM rules.f WHERE v = 1;
	SELECT count(*) INTO two FROM rules.f WHERE v = 2;
	SELECT count(*) INTO n FROM rules.f;
	SELECT count(*) INTO few FROM rules.f WHERE id IN (5, 500, 2000) AND v = 1;
	SELECT count(*) INTO text FROM rules.f WHERE w < 'p';
	SELECT count(*) INTO page FROM (SELECT FROM rules.f WHERE v = 1 LIMIT 10) q;
END $$;
-- row groups of the log over such, too large to be rows of the log
INSERT INTO f SELECT g, 1, 'one' || md5(g::text) || md5('x' || g) FROM generate_series(1, 3000) g;
SELECT * FROM answers();
INSERT INTO f SELECT g, 2, 'two' || md5(g::text) || md5('x' || g) FROM generate_series(1, 3000) g;
SELECT * FROM answers();
-- over the base
CALL strata.drain('f');
SELECT * FROM answers();
INSERT INTO f SELECT g, 1, 'one' FROM generate_series(1, 3000) g;
CALL strata.drain('f');
INSERT INTO f SELECT g, 2, NULL FROM generate_series(1, 3000) g;
SELECT * FROM answers();
-- rows of the log over the base
CALL strata.drain('f');
INSERT INTO f SELECT g, 1, 'one' FROM generate_series(1, 100) g;
SELECT * FROM answers();

-- ---- which equality may use the hashes ----
-- date = timestamp is in date's B-tree family, but not in its hash family
CREATE FOREIGN TABLE d (id date NOT NULL, v text) SERVER strata OPTIONS (key 'id', shards '4', auto_merge 'off');
INSERT INTO d SELECT '2020-01-01'::date + g, 'base' FROM generate_series(0, 99) g;
CALL strata.drain('d');
INSERT INTO d SELECT '2020-01-01'::date + g, 'new' FROM generate_series(0, 99, 2) g;
CREATE FUNCTION found(OUT by_timestamp bigint, OUT new bigint, OUT by_date bigint) LANGUAGE plpgsql AS $$
BEGIN
	by_timestamp := 0;
	new := 0;
	by_date := 0;
	FOR i IN 0 .. 99 LOOP
		by_timestamp := by_timestamp + (SELECT count(*) FROM rules.d WHERE id = '2020-01-01'::timestamp + i * interval '1 day');
		new := new + (SELECT count(*) FROM rules.d WHERE id = '2020-01-01'::timestamp + i * interval '1 day' AND v = 'new');
		by_date := by_date + (SELECT count(*) FROM rules.d WHERE id = '2020-01-01'::date + i);
	END LOOP;
END $$;
SELECT * FROM found();
SELECT count(*), min(v) FROM d WHERE id = ANY (ARRAY['2020-01-03', '2020-01-04']::timestamp[]);
SELECT strata.drop_key_index('d');
SELECT * FROM found();

-- float8 = float4 is in the hash family: float4's function, not float8's
CREATE FOREIGN TABLE r (id float8 NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO r SELECT g / 4.0, g FROM generate_series(1, 40) g;
SELECT count(*) FROM r WHERE id = 2.5::float4;
SELECT count(*) FROM r WHERE id = ANY ('{2.5,0.25,7}'::float4[]);
CALL strata.drain('r');
SELECT count(*) FROM r WHERE id = 2.5::float4;

-- equal is what the operator says, not what has the same bytes
CREATE FOREIGN TABLE n (id numeric NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO n VALUES (1, 'a'), (2, 'a'), (3, 'a');
INSERT INTO n VALUES (1.0, 'b');
SELECT * FROM n ORDER BY id;
SELECT * FROM n WHERE id = 1.000;
CALL strata.drain('n');
INSERT INTO n VALUES (2.00, 'c'), (3.0, 'x'), (3.00, 'c');
SELECT * FROM n ORDER BY id;
CALL strata.drain('n');
SELECT * FROM n ORDER BY id;
SELECT * FROM strata.verify('n');

-- under another collation it is another equality
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE FOREIGN TABLE k (id text NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO k VALUES ('a', 1), ('A', 2), ('b', 3);
SELECT * FROM k WHERE id = 'A' COLLATE any_case ORDER BY v;
SELECT * FROM k WHERE id = 'A';
CALL strata.drain('k');
SELECT * FROM k WHERE id = 'A' COLLATE any_case ORDER BY v;

-- an index whose collation has changed since is not asked
CREATE COLLATION moved (provider = icu, locale = 'en');
CREATE FOREIGN TABLE m (id text COLLATE moved NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO m SELECT g, g FROM generate_series(1, 10) g;
CALL strata.drain('m');
SELECT strata.has_key_index('m');
UPDATE pg_collation SET collversion = 'another' WHERE collname = 'moved';
CREATE FUNCTION probes(OUT line text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	FOR line IN EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM rules.m WHERE id = '5' LOOP
		IF line ~ 'Probes|Groups Read' THEN
			RETURN NEXT;
		END IF;
	END LOOP;
END $$;
SET client_min_messages = error;
SELECT strata.has_key_index('m');
SELECT * FROM probes();
SELECT * FROM m WHERE id = '5';
SET client_min_messages = warning;
ALTER COLLATION moved REFRESH VERSION;
SELECT strata.has_key_index('m');

SELECT * FROM probes();

-- ---- what an adopted row group has lost ----
CREATE FOREIGN TABLE a (id int NOT NULL, v text) SERVER strata
	OPTIONS (key 'id', auto_merge 'off', row_group_rows '4000', generation_max_rows '1000000');
INSERT INTO a SELECT g, 'old' FROM generate_series(1, 4000) g;
INSERT INTO a SELECT g, 'new' FROM generate_series(1, 4000, 1000) g;
SELECT count(*) FROM strata.seal('a');
SELECT generations_merged, row_groups_adopted FROM strata.merge('a');
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE v = 'new') FROM a;
SELECT * FROM a WHERE id = 1001;
SELECT * FROM strata.verify('a');

-- ---- a generation that is open is left alone ----
INSERT INTO a SELECT g, 'open' FROM generate_series(1, 10) g;
SELECT generations_merged, generations_left FROM strata.merge('a');
INSERT INTO a VALUES (1, 'last');
SELECT * FROM a WHERE id IN (1, 2) ORDER BY id;

-- ---- numbers go on after TRUNCATE ----
CREATE FUNCTION numbers(OUT generation bigint, OUT row_group bigint) LANGUAGE sql AS $$
	SELECT (SELECT max(generation) FROM strata.generations WHERE store = 'rules.a'::regclass),
		   (SELECT max(number) FROM strata.row_groups WHERE store = 'rules.a'::regclass)
$$;
CALL strata.drain('a');
INSERT INTO a VALUES (1, 'x');
SELECT * FROM numbers() \gset before_
TRUNCATE a;
INSERT INTO a VALUES (1, 'x');
CALL strata.drain('a');
INSERT INTO a VALUES (1, 'x');
SELECT * FROM numbers() \gset after_
SELECT :after_generation > :before_generation AS generations, :after_row_group > :before_row_group AS row_groups;

SET client_min_messages = warning;
DROP SCHEMA rules CASCADE;
