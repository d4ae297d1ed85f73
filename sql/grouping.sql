-- Aggregates computed inside the scan: what PostgreSQL's own node makes of the
-- same rows, to the last bit, and what a heap twin gives (P52, P64).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA grouping_test;
SET search_path = grouping_test;
SET max_parallel_workers_per_gather = 0;

RESET client_min_messages;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (x int, y text);
CREATE FUNCTION made(g int, OUT id int, OUT i2 int2, OUT i4 int, OUT i8 int8, OUT f4 float4, OUT f8 float8, OUT n numeric, OUT t text,
	OUT vc varchar(10), OUT c char(5), OUT b bool, OUT d date, OUT ts timestamptz, OUT iv interval, OUT by bytea, OUT u uuid, OUT j jsonb,
	OUT a int[], OUT e mood, OUT dom positive, OUT p pair, OUT nm name, OUT w text)
LANGUAGE sql AS $$ SELECT g, (g % 7)::int2, nullif(g % 11, 3), g::int8 * 1000003, (g / 7.0)::float4,
	CASE g % 23 WHEN 3 THEN 'NaN' WHEN 4 THEN '-0' WHEN 5 THEN '0' WHEN 6 THEN NULL ELSE (sqrt(g % 50) * 1e6)::text END::float8,
	CASE g % 5 WHEN 0 THEN '1.0' WHEN 1 THEN '1.00' WHEN 2 THEN 'NaN' WHEN 3 THEN NULL ELSE (g % 9 / 3.0)::text END::numeric,
	CASE WHEN g % 13 = 5 THEN NULL ELSE CASE g % 2 WHEN 0 THEN 't' ELSE 'T' END || g % 17 END, ('v' || g % 5)::varchar(10), ('c' || g % 4)::char(5), g % 3 = 1, date '2026-01-01' + g % 9,
	timestamptz '2026-01-01 00:00+00' + g % 25 * interval '1 hour', CASE g % 2 WHEN 0 THEN interval '1 mon' ELSE interval '30 days' END,
	decode(md5((g % 6)::text), 'hex'), md5((g % 8)::text)::uuid, to_jsonb((g % 3)::numeric), ARRAY[g % 4, NULL, g % 3],
	(ARRAY['sad', 'ok', 'happy'])[g % 3 + 1]::mood, (g % 10 + 1)::positive, ROW(g % 3, 'y')::pair, ('n' || g % 6)::name,
	CASE g % 4 WHEN 0 THEN NULL ELSE repeat(md5((g % 5)::text), 100) END $$;
CREATE TABLE h AS SELECT m.* FROM generate_series(1, 0) g, made(g) m;
ALTER TABLE h ADD PRIMARY KEY (id);
CREATE FOREIGN TABLE s (id int NOT NULL, i2 int2, i4 int, i8 int8, f4 float4, f8 float8, n numeric, t text, vc varchar(10), c char(5), b bool, d date,
	ts timestamptz, iv interval, by bytea, u uuid, j jsonb, a int[], e mood, dom positive, p pair, nm name, w text)
	SERVER strata OPTIONS (key 'id', row_group_rows '200', auto_merge 'off');

-- ---- aggregates of our own ----
CREATE FUNCTION more(text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN coalesce($1, ''none'') || coalesce(length($2)::text, ''null''); END';
CREATE AGGREGATE lengths (text) (sfunc = more, stype = text);
CREATE FUNCTION first_of(anyelement, anyelement) RETURNS anyelement LANGUAGE sql STRICT AS 'SELECT $1';
CREATE AGGREGATE first_one (anyelement) (sfunc = first_of, stype = anyelement);
-- a strict function that returns null: null it stays
CREATE FUNCTION until_7(int, int) RETURNS int LANGUAGE plpgsql STRICT AS 'BEGIN RETURN CASE WHEN $2 <> 7 THEN $1 + 1 END; END';
CREATE AGGREGATE until_7 (int) (sfunc = until_7, stype = int, initcond = '0');
-- an expanded array as state, changed in place
CREATE FUNCTION gather(int[], int) RETURNS int[] LANGUAGE plpgsql AS 'BEGIN $1[coalesce(array_length($1, 1), 0) + 1] := $2; RETURN $1; END';
CREATE AGGREGATE gather (int) (sfunc = gather, stype = int[], initcond = '{}');
CREATE FUNCTION ends(int[]) RETURNS int[] LANGUAGE sql STRICT AS 'SELECT ARRAY[$1[1], $1[array_upper($1, 1)], array_length($1, 1)]';
CREATE AGGREGATE ends_of (int) (sfunc = gather, stype = int[], initcond = '{}', finalfunc = ends);
CREATE FUNCTION typed(text, anyelement) RETURNS text LANGUAGE sql AS 'SELECT coalesce($1, ''state'') || pg_typeof($2)';
CREATE FUNCTION more_any(text, anyelement) RETURNS text LANGUAGE sql AS 'SELECT coalesce($1, '''') || ''.''';
CREATE AGGREGATE typed (anyelement) (sfunc = more_any, stype = text, finalfunc = typed, finalfunc_extra);
CREATE FUNCTION largest_of(int, VARIADIC int[]) RETURNS int LANGUAGE sql AS 'SELECT max(v) FROM unnest($2 || $1) v';
CREATE AGGREGATE largest (VARIADIC int[]) (sfunc = largest_of, stype = int);
CREATE FUNCTION refuse(int, int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF $2 = 900 THEN RAISE 'no % here', $2; END IF;
	RETURN coalesce($1, 0) + 1;
END$$;
CREATE AGGREGATE refusing (int) (sfunc = refuse, stype = int);

-- ---- the same everywhere ----
-- @: the table.  ordered: results depend on the order of rows, and heap has another
-- (of equal values that look different, a group shows the first).  not_ours:
-- left to PostgreSQL
CREATE TABLE queries (q text, ordered bool, not_ours bool DEFAULT false);
INSERT INTO queries SELECT format('SELECT %s, count(*), count(i4), sum(i4), sum(i8), sum(i2), avg(n), min(t), max(d), bool_and(b), bool_or(b), bit_xor(i4) FROM @ GROUP BY %1$s', col), col ~ '^(f8|n|iv)\M'
	FROM unnest('{i2,i4,f8,n,t,vc,c,b,d,ts,iv,by,u,j,a,e,dom,p,nm,w,"t, i4","n, iv, b","i4 + 1","date_trunc(''day'', ts)","lower(t), i2 % 2"}'::text[]) col;
INSERT INTO queries VALUES
	('SELECT i4, sum(f8), avg(f8), stddev(f8), var_pop(f4), sum(f4), corr(f8, f4), regr_slope(f4, i4) FROM @ GROUP BY i4', true, false),
	('SELECT sum(f8), avg(f8), stddev(f8), sum(f4) FROM @', true, false),
	('SELECT b, array_agg(i4), string_agg(t, '',''), json_agg(n), jsonb_agg(c), array_agg(a) FILTER (WHERE a IS NOT NULL) FROM @ GROUP BY b', true, false),
	('SELECT i2, lengths(w), first_one(t), first_one(n), until_7(i4), gather(i4), ends_of(i4), ends_of(id), typed(i4), typed(w) FROM @ GROUP BY i2', true, false),
	('SELECT lengths(vc), first_one(i4), until_7(id), ends_of(id), typed(u), largest(i4, id, 5) FROM @', true, false),
	('SELECT count(*) FROM @ WHERE i4 > 3', false, false),
	('SELECT count(*), sum(i4) FROM @', false, false),
	('SELECT sum(i4 * 2 + id), max(length(t) + 1), count(DISTINCT i4) FROM @', false, true),
	('SELECT i2, sum(i4 * 2 + id) + max(length(t)), avg(id) AS x FROM @ WHERE id % 3 > 0 GROUP BY i2 HAVING count(*) > 3 AND sum(i4) > 10', false, false),
	('SELECT i2, sum(i4) FILTER (WHERE b), count(*) FILTER (WHERE t LIKE ''%1'' OR i4 IS NULL), avg(n) FILTER (WHERE NULL) FROM @ GROUP BY i2', false, false),
	('SELECT i4, sum(1 / (i4 - 1)) FILTER (WHERE i4 <> 1) FROM @ GROUP BY i4', false, true),
	('SELECT avg(i4), sum(i4), count(i4), stddev(i4), avg(i4) + sum(i4), avg(i8), sum(i8) FROM @ WHERE id > 10', false, false),
	('SELECT i2, count(t::text), max(vc::text), min(vc), max(c), min(c::text), max(dom), sum(dom) FROM @ GROUP BY i2', false, false),
	('SELECT t COLLATE "C" AS t, max(vc COLLATE "C"), min(vc COLLATE "POSIX") FROM @ GROUP BY 1', false, false),
	('SELECT t COLLATE blind AS t, max(c COLLATE blind), count(*) FROM @ GROUP BY 1', true, false),
	('SELECT b, i2 FROM @ GROUP BY b, i2', false, false),
	('SELECT i2, sum(id + 1) FROM @ WHERE now() > ''2020-01-01'' GROUP BY i2', false, false),
	('SELECT sum(i4), count(*) FROM @ WHERE now() < ''2020-01-01''', false, false),
	('SELECT sum(i4), count(*) FROM @ WHERE false', false, false),
	('SELECT i2, count(*) FROM @ WHERE id < 0 GROUP BY i2', false, false),
	('SELECT count(*) FROM @ HAVING sum(i4) IS NULL', false, false),
	('SELECT 1 FROM @ HAVING max(id) > 5', false, false),
	('SELECT i2, i4, count(*) FROM @ WHERE i2 = i4 GROUP BY i2, i4', false, false),
	('SELECT i2, 5, count(*) FROM @ WHERE i2 = 3 GROUP BY i2', false, false),
	('SELECT i2, sum(count(*)) OVER (ORDER BY i2), rank() OVER (ORDER BY sum(i4), i2) FROM @ GROUP BY i2', false, false),
	('SELECT i2, grouping(i2), count(*) FROM @ GROUP BY ROLLUP (i2)', false, true),
	('SELECT i2, generate_series(1, 2), count(*) FROM @ GROUP BY i2', false, true),
	('SELECT i2, percentile_disc(0.5) WITHIN GROUP (ORDER BY i4), mode() WITHIN GROUP (ORDER BY c) FROM @ GROUP BY i2', false, true),
	('SELECT i2, array_agg(id ORDER BY id DESC), sum(DISTINCT i4) FROM @ GROUP BY i2', false, true),
	('SELECT i2, count(x.*), max(tableoid) IS NOT NULL FROM @ x GROUP BY i2', false, false),
	('SELECT i2, (SELECT max(y.id) FROM @ y WHERE y.i2 = x.i2) AS m, sum((SELECT 3)) FROM @ x GROUP BY i2', false, false),
	('SELECT i2, (SELECT z FROM (VALUES (1), (2)) v (z) WHERE z < count(x.i4) LIMIT 1) FROM @ x GROUP BY i2', false, false),
	('SELECT g, q.* FROM generate_series(0, 7) g, LATERAL (SELECT i4, count(*) + g AS n, sum(id * g) FROM @ WHERE i2 < g GROUP BY i4) q', false, false),
	('SELECT g, (SELECT sum(id) FROM @ WHERE i2 = g) FROM generate_series(0, 8) g', false, false),
	('SELECT d FROM generate_series(1, 3) g, LATERAL (SELECT d, count(*) n FROM @ GROUP BY d OFFSET 0) q WHERE n > g', false, false),
	('SELECT * FROM (SELECT i2, count(*) AS n FROM @ GROUP BY i2) x JOIN (SELECT i2, max(id) AS m FROM @ GROUP BY i2) y USING (i2)', false, false),
	('SELECT i2, max(n) FROM (SELECT i2, i4, count(*) AS n FROM @ GROUP BY i2, i4) q GROUP BY i2', false, false),
	('WITH q AS MATERIALIZED (SELECT i2, sum(i4) AS v FROM @ GROUP BY i2) SELECT * FROM q UNION ALL SELECT i2, count(*) FROM @ GROUP BY i2', false, false),
	('SELECT count(*), i2 FROM @ WHERE id = ANY (''{5,6,7,1500}'') GROUP BY i2', false, false),
	('SELECT count(*), sum(i4) FROM @ WHERE id = 7', false, false),
	('SELECT i2, sum(id) FROM @ WHERE id BETWEEN 100 AND 300 GROUP BY i2', false, false),
	-- the same int4, but for the bits of a Datum that it does not have
	('SELECT CASE WHEN b THEN hashint4(1) ELSE -1905060026 END AS k, count(*), sum(id) FROM @ GROUP BY 1', false, false),
	('SELECT random() < 0, count(*) FROM @ GROUP BY 1', false, true),
	('SELECT i2, count(*) FROM @ GROUP BY i2 ORDER BY 2 DESC, 1 LIMIT 3', false, false);

CREATE FUNCTION result(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE r text[];
BEGIN
	EXECUTE 'SELECT array_agg(q::text ORDER BY q::text COLLATE "C") FROM (' || query || ') q' INTO r;
	RETURN r;
EXCEPTION WHEN OTHERS THEN
	RETURN ARRAY[SQLERRM];
END$$;
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Aggregate: ' THEN RETURN 'scan'; END IF;
	END LOOP;
	RETURN 'above';
END$$;
-- above: the same scan, below PostgreSQL's node
CREATE FUNCTION compare(OUT queries bigint, OUT most_in_scan bool, OUT others bigint, OUT different text[]) LANGUAGE sql AS $$
	SELECT count(*), count(*) FILTER (WHERE plan(replace(q, '@', 's')) = 'scan') > 45,
		count(*) FILTER (WHERE not_ours AND plan(replace(q, '@', 's')) = 'above'),
		array_agg(q) FILTER (WHERE result(replace(q, '@', 's')) IS DISTINCT FROM result(replace(q, '@', '(SELECT * FROM s OFFSET 0)' || CASE WHEN q ~ '@ [xy]\y' THEN '' ELSE ' z' END))
			AND q !~ 'tableoid' OR NOT ordered AND result(replace(q, '@', 's')) IS DISTINCT FROM result(replace(q, '@', 'h')))
	FROM queries $$;
CREATE FUNCTION on_both(command text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE replace(command, '@', 's');
	EXECUTE replace(command, '@', 'h');
END$$;

SELECT 'nothing' AS state, * FROM compare();
SELECT on_both('INSERT INTO @ SELECT m.* FROM generate_series(1, 1000) g, made(g) m');
SELECT 'pending' AS state, * FROM compare();
CALL strata.drain('s');
ANALYZE s;
ANALYZE h;
SELECT 'merged' AS state, * FROM compare();
SELECT on_both('INSERT INTO @ SELECT m.* FROM generate_series(1001, 1100) g, made(g) m');
SELECT on_both('UPDATE @ SET t = ''changed'', n = 5, f8 = id, i4 = i2 WHERE id % 10 = 0');
SELECT on_both('DELETE FROM @ WHERE id % 7 = 1');
SELECT 'both' AS state, * FROM compare();
BEGIN;
SELECT on_both('INSERT INTO @ SELECT m.* FROM generate_series(2001, 2010) g, made(g) m');
SELECT on_both('DELETE FROM @ WHERE id < 100');
SELECT 'own' AS state, * FROM compare();
SAVEPOINT p;
SELECT on_both('UPDATE @ SET i2 = 1');
SELECT 'savepoint' AS state, * FROM compare();
ROLLBACK;
SELECT 'rolled back' AS state, * FROM compare();

-- ---- little memory ----
CREATE FUNCTION batches(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; n int;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line ~ 'Batches: ' THEN n := substring(line FROM 'Batches: (\d+)'); END IF;
	END LOOP;
	RETURN CASE WHEN n > 1 THEN 'several' ELSE n::text END;
END$$;
CREATE FOREIGN TABLE many (k int NOT NULL, g int, t text, f float8) SERVER strata OPTIONS (key 'k', auto_merge 'off');
INSERT INTO many SELECT i, hashint4(i) % 12000, CASE WHEN i % 500 > 0 THEN 'g' || hashint4(i) % 9000 END, 1 / i::float8 FROM generate_series(1, 40000) i;
CALL strata.drain('many');
ANALYZE many;
SET work_mem = '64kB';
SET hash_mem_multiplier = 1;
-- a sort would be cheaper by now
SET enable_sort = off;
SELECT batches('SELECT g, count(*) FROM many GROUP BY g'), batches('SELECT t, sum(f) FROM many GROUP BY t'), batches('SELECT k % 3, sum(f) FROM many GROUP BY 1');
CREATE FUNCTION sums(query text) RETURNS TABLE (rows bigint, digest text) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'SELECT count(*), md5(string_agg(q::text, '' '' ORDER BY q::text COLLATE "C")) FROM (' || query || ') q';
END$$;
SELECT q, s.rows, s = o AS same FROM (VALUES ('SELECT g, count(*), sum(f), array_agg(k) FROM @ GROUP BY g'), ('SELECT t, sum(f), string_agg(t, '','') FROM @ GROUP BY t'),
	('SELECT k, t, sum(f) FROM @ GROUP BY k, t'), ('SELECT k FROM @ GROUP BY k'), ('SELECT k % 3, sum(f), avg(f) FROM @ GROUP BY 1'),
	('SELECT x.* FROM generate_series(1, 3) v, LATERAL (SELECT g, sum(f * v) FROM @ WHERE k % 3 = v GROUP BY g) x')) v (q),
	sums(replace(q, '@', 'many')) s, sums(replace(q, '@', '(SELECT * FROM many OFFSET 0) y')) o;
-- ended while rows wait
BEGIN;
DECLARE c CURSOR FOR SELECT t, count(*) > 0 FROM many GROUP BY t;
MOVE 5 FROM c;
CLOSE c;
ROLLBACK;
SELECT count(*) FROM (SELECT t FROM many GROUP BY t LIMIT 3) q;
-- columns that only WHERE needs do not wait
CREATE FOREIGN TABLE wide (k int NOT NULL, v int, w text) SERVER strata OPTIONS (key 'k', auto_merge 'off');
INSERT INTO wide SELECT i, i, repeat('w', 2000) FROM generate_series(1, 5000) i;
BEGIN;
DECLARE c CURSOR FOR SELECT v, count(*) FROM wide WHERE w <> '' GROUP BY v;
MOVE 1 FROM c;
SELECT count(*) > 0 AND sum(size) < 1000000 AS small FROM pg_ls_tmpdir() WHERE name LIKE 'pgsql\_tmp' || pg_backend_pid() || '.%';
MOVE ALL FROM c;
ROLLBACK;
RESET work_mem;
RESET hash_mem_multiplier;
RESET enable_sort;

-- ---- plans ----
EXPLAIN (COSTS OFF) SELECT i2, avg(f8) FROM s GROUP BY i2;
EXPLAIN (COSTS OFF, VERBOSE) SELECT i2 + 1, avg(f8 * 2), count(*) FILTER (WHERE b) FROM s WHERE id > 500 GROUP BY i2 + 1 HAVING max(i4) > 3;
EXPLAIN (COSTS OFF) SELECT sum(i4), string_agg(t, ',') FROM s;
EXPLAIN (COSTS OFF) SELECT sum(i4) FROM s WHERE id = 5;
SELECT batches('SELECT b, sum(i4) FROM s WHERE i2 > 2 GROUP BY b'), batches('SELECT sum(i4) FROM s'), batches('SELECT b, sum(i4) FROM s GROUP BY b LIMIT 0') AS not_run;
-- arguments that are computed cost no more there than above
SELECT plan('SELECT sum(i4 + 1), max(length(t) + i2) FROM s WHERE i2 = 3');
SET enable_hashagg = off;
SELECT plan('SELECT i2, sum(i4) FROM s GROUP BY i2'), plan('SELECT sum(i4) FROM s');
RESET enable_hashagg;

-- ---- prepared statements, views, cursors ----
PREPARE p(int, int) AS SELECT i2, sum(i4 + $2), count(*) FILTER (WHERE i4 > $1) FROM s WHERE id > $1 GROUP BY i2 HAVING count(*) > $2 ORDER BY 1;
SET plan_cache_mode = force_generic_plan;
EXECUTE p(900, 3);
EXECUTE p(1050, 2);
RESET plan_cache_mode;
CREATE VIEW v WITH (security_barrier) AS SELECT i2, sum(i4) AS total, count(*) AS n FROM s WHERE id > 1000 GROUP BY i2;
SELECT * FROM v ORDER BY 1;
SELECT * FROM v WHERE i2 = 3;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT i2, count(*) FROM s GROUP BY i2 ORDER BY 1;
FETCH 2 FROM c;
DELETE FROM s WHERE i2 = 3;
FETCH BACKWARD 1 FROM c;
FETCH 4 FROM c;
ROLLBACK;
-- in a subplan of a statement that changes the table
BEGIN;
UPDATE s SET i8 = q.n FROM (SELECT i2, count(*) AS n FROM s GROUP BY i2) q WHERE q.i2 = s.i2;
SELECT count(*), count(DISTINCT i8) FROM s;
INSERT INTO s (id, i4, i2) SELECT 5000 + i2, sum(i4), -1 FROM s GROUP BY i2;
SELECT id, i4 FROM s WHERE i2 = -1 ORDER BY 1;
ROLLBACK;

-- ---- errors ----
SELECT i2, refusing(id) FROM s GROUP BY i2;
SELECT refusing(i4) FROM s;
DO $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			PERFORM i2, refusing(id), array_agg(w) FROM s GROUP BY i2;
		EXCEPTION WHEN raise_exception THEN
			RAISE NOTICE '%', SQLERRM;
		END;
	END LOOP;
END$$;
SELECT i2, sum(i8 * 1000000000000::int8) FROM s GROUP BY i2;
SELECT i2, sum(1 / (i4 - 1)) FROM s GROUP BY i2;
SELECT count(*) FROM (SELECT i2, refusing(i4) FROM s GROUP BY i2) q;

-- ---- rights ----
CREATE ROLE grouping_user;
GRANT USAGE ON SCHEMA grouping_test TO grouping_user;
GRANT SELECT (id, i2, i4) ON s TO grouping_user;
CREATE FUNCTION own_add(int, int) RETURNS int LANGUAGE sql AS 'SELECT $1 + $2';
CREATE FUNCTION own_end(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
CREATE AGGREGATE own_sum (int) (sfunc = own_add, stype = int, initcond = '0', finalfunc = own_end);
SET ROLE grouping_user;
SELECT i2, own_sum(id) FROM s GROUP BY i2 ORDER BY 1 LIMIT 1;
SELECT i2, sum(length(t)) FROM s GROUP BY i2;
SELECT i2, count(i8) FROM s GROUP BY i2;
RESET ROLE;
BEGIN;
REVOKE EXECUTE ON FUNCTION int2eq(int2, int2) FROM PUBLIC;
SET ROLE grouping_user;
SELECT sum(i2) > 0 AS not_compared FROM s;
SELECT i2, sum(id) FROM s GROUP BY i2;
ROLLBACK;
REVOKE EXECUTE ON FUNCTION own_sum(int) FROM PUBLIC;
SET ROLE grouping_user;
SELECT i2, own_sum(id) FROM s GROUP BY i2;
EXPLAIN SELECT i2, own_sum(id) FROM s GROUP BY i2;
RESET ROLE;
GRANT EXECUTE ON FUNCTION own_sum(int) TO PUBLIC;
CREATE ROLE grouping_owner;
ALTER AGGREGATE own_sum(int) OWNER TO grouping_owner;
REVOKE EXECUTE ON FUNCTION own_add(int, int) FROM PUBLIC;
SELECT i2, own_sum(id) FROM s GROUP BY i2;
GRANT EXECUTE ON FUNCTION own_add(int, int) TO grouping_owner;
REVOKE EXECUTE ON FUNCTION own_end(int) FROM PUBLIC;
SELECT own_sum(id) FROM s;
ALTER AGGREGATE own_sum(int) OWNER TO CURRENT_USER;
-- a function that became strict although there is nothing to begin with
CREATE FUNCTION nothing(int[], int) RETURNS int[] LANGUAGE sql AS 'SELECT $1';
CREATE AGGREGATE nothing (int) (sfunc = nothing, stype = int[], initcond = '{}');
UPDATE pg_aggregate SET agginitval = NULL WHERE aggfnoid = 'nothing(int)'::regprocedure;
ALTER FUNCTION nothing(int[], int) STRICT;
DO $$
BEGIN
	PERFORM nothing(id) FROM s WHERE i2 > 0;
EXCEPTION WHEN invalid_function_definition THEN
	RAISE NOTICE '%', regexp_replace(SQLERRM, '\d+', 'N');
END$$;

-- ---- layers, tables without a key ----
CREATE FOREIGN TABLE s_base (id int, i2 int2, i4 int) SERVER strata OPTIONS (store 's', layer 'base');
CREATE FOREIGN TABLE s_wal (id int, i2 int2, i4 int) SERVER strata OPTIONS (store 's', layer 'wal');
SELECT plan('SELECT i2, sum(i4) FROM s_base GROUP BY i2'), plan('SELECT sum(i4) FROM s_wal');
SELECT (SELECT sum(i4) FROM s_base) = (SELECT sum(i4) FROM (SELECT * FROM s_base OFFSET 0) x) AS base,
	(SELECT sum(i4) FROM s_wal) = (SELECT sum(i4) FROM (SELECT * FROM s_wal OFFSET 0) x) AS wal;
CREATE FOREIGN TABLE no_key (v int, x text) SERVER strata OPTIONS (auto_merge 'off');
INSERT INTO no_key SELECT i % 3, 'x' FROM generate_series(1, 10) i;
SELECT v, count(*), sum(v), string_agg(x, '-') FROM no_key GROUP BY v ORDER BY v;
ALTER FOREIGN TABLE no_key ADD COLUMN late int DEFAULT 4, DROP COLUMN x;
SELECT late, sum(late), count(*) FROM no_key GROUP BY late;
SELECT late, v, sum(late) FROM no_key GROUP BY v, late ORDER BY 2;

SET client_min_messages = warning;
DROP SCHEMA grouping_test CASCADE;
DROP ROLE grouping_user, grouping_owner;
