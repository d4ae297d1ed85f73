-- Plans: which are made, that they answer as a heap does, and what they are
-- expected to return and to cost.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA plans_test;
SET search_path = plans_test;

-- what two queries return, in order
CREATE FUNCTION same(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE ours text[]; theirs text[];
BEGIN
  EXECUTE 'SELECT array_agg(q::text) FROM (' || replace(query, '%t', 's') || ') q' INTO ours;
  EXECUTE 'SELECT array_agg(q::text) FROM (' || replace(query, '%t', 'h') || ') q' INTO theirs;
  RETURN ours IS NOT DISTINCT FROM theirs;
END$$;
-- a node of the plan: the first with that property
CREATE FUNCTION node(plan json, property text) RETURNS json LANGUAGE sql AS $$
  WITH RECURSIVE n (node) AS (SELECT plan UNION ALL SELECT json_array_elements(node -> 'Plans') FROM n)
  SELECT node FROM n WHERE node ->> property IS NOT NULL LIMIT 1
$$;
CREATE FUNCTION plan(query text, options text DEFAULT 'COSTS OFF') RETURNS json LANGUAGE plpgsql AS $$
DECLARE result json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON, ' || options || ') ' || query INTO result;
  RETURN result -> 0 -> 'Plan';
END$$;
-- a plan, without what versions of PostgreSQL say differently
CREATE FUNCTION planned(query text, options text DEFAULT 'COSTS OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
    IF line !~ 'Disabled: true' THEN RETURN NEXT regexp_replace(line, '^$', ''); END IF;
  END LOOP;
END$$;

-- ranges that follow from patterns: under C; not under a collation that orders
-- otherwise, but for patterns without a wildcard
CREATE FOREIGN TABLE s (id text COLLATE "C" NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '50');
CREATE TABLE h (id text COLLATE "C" PRIMARY KEY, v int);
CREATE FOREIGN TABLE other (id text COLLATE "en-x-icu" NOT NULL) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO h SELECT p || CASE WHEN g = 0 THEN '' ELSE to_char(g, 'FM000') END, g
  FROM unnest(ARRAY['', 'a', 'ab', 'abc', 'abd', 'aB', 'Ab', 'abb~', 'abc%', 'abc_', 'äb', 'abcü', E'abc\U0010FFFF', 'b', ' abc']) p, generate_series(0, 30) g;
INSERT INTO s SELECT * FROM h WHERE id NOT LIKE '%9';
INSERT INTO other SELECT id FROM h;
CALL strata.drain('s');
CALL strata.drain('other');
INSERT INTO s SELECT * FROM h WHERE id LIKE '%9';
UPDATE s SET v = -v WHERE v = 3;
UPDATE h SET v = -v WHERE v = 3;
DELETE FROM s WHERE v = 4;
DELETE FROM h WHERE v = 4;
ANALYZE s, h, other;
SET enable_seqscan = off; -- small as they are
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE id LIKE 'abc%';
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE id LIKE 'abc';
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE starts_with(id, 'abc') ORDER BY id DESC LIMIT 3;
SELECT planned('SELECT * FROM other WHERE id LIKE ''abc%''');
EXPLAIN (COSTS OFF) SELECT * FROM other WHERE id LIKE 'abc';
SELECT q, same(q), plan(replace(q, '%t', 's')) ->> 'Key Range' AS range FROM (
  SELECT 'SELECT * FROM %t WHERE id ' || p || ' ORDER BY id' AS q FROM unnest(ARRAY[
    'LIKE ''abc%''', 'LIKE ''abc''', 'LIKE ''abc_''', 'LIKE ''abc\%%''', 'LIKE ''%c''', 'LIKE ''''', 'LIKE ''a%b%''', 'LIKE E''abc\U0010FFFF%''',
    'LIKE ''äb%''', 'NOT LIKE ''abc%''', 'ILIKE ''ab%''', 'ILIKE ''0%''', '^@ ''abc''', '^@ ''''', '~ ''^abc''', '~ ''^abc$''', '~ ''abc''', '~ ''^(abc|b)''', '~* ''^abc''',
    'LIKE ''abc%'' AND id > ''abc0''', 'LIKE ''abc%'' AND id = ''abc%''', 'LIKE NULL', 'COLLATE "POSIX" LIKE ''abc%''', 'COLLATE "en-x-icu" LIKE ''abc%''',
    'LIKE ''abc%'' AND v > 5', '= ANY (''{abc,b}'') AND id LIKE ''a%''']) p) q;
SELECT count(*), (SELECT count(*) FROM other WHERE left(id, 3) = 'abc') AS same FROM other WHERE id LIKE 'abc%';
SELECT count(*) FROM other WHERE id LIKE 'abc';
-- subnets alike
CREATE FOREIGN TABLE nets (ip inet NOT NULL) SERVER strata OPTIONS (key 'ip', auto_merge 'off');
INSERT INTO nets SELECT inet '10.0.0.0' + g FROM generate_series(0, 2000) g;
CALL strata.drain('nets');
EXPLAIN (COSTS OFF) SELECT count(*) FROM nets WHERE ip << '10.0.1.0/24';
SELECT count(*) FROM nets WHERE ip << '10.0.1.0/24';
SELECT count(*) FROM nets WHERE inet '10.0.2.0/25' >>= ip;
-- what a security barrier hides is not looked at early by a leaky pattern
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM s WHERE v > 5;
SELECT planned('SELECT * FROM barrier WHERE id LIKE ''abc%''');
DROP VIEW barrier;
RESET enable_seqscan;

-- enable_seqscan and enable_indexscan mean what they mean for a heap
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT v FROM s WHERE id > '';
SET enable_seqscan = on; SET enable_indexscan = off;
EXPLAIN (COSTS OFF) SELECT v FROM s WHERE id = 'abc';
RESET enable_seqscan; RESET enable_indexscan;
DROP FOREIGN TABLE s, other, nets;
DROP TABLE h;

-- zone maps against every comparison with nulls (P61)
CREATE FOREIGN TABLE s (id int NOT NULL, i int, f float8, t text, n numeric, b bool, a int[], ts timestamptz) SERVER strata
  OPTIONS (key 'id', auto_merge 'off', row_group_rows '20');
CREATE TABLE h (id int PRIMARY KEY, i int, f float8, t text, n numeric, b bool, a int[], ts timestamptz);
-- groups without a null, with some, and of nothing else
INSERT INTO h SELECT g, CASE WHEN g % 100 >= 60 OR g % 7 = 0 AND g % 100 >= 20 THEN NULL ELSE g / 20 END FROM generate_series(1, 1000) g;
UPDATE h SET f = CASE i WHEN 3 THEN 'NaN' WHEN 11 THEN 'Infinity' WHEN 12 THEN '-Infinity' ELSE i / 2.0 END, t = 't' || to_char(i, '00'), n = i, b = i > 25,
  a = ARRAY[i, NULL], ts = timestamptz '2026-01-01 00:00+00' + i * interval '1 day';
INSERT INTO s SELECT * FROM h ORDER BY id;
CALL strata.drain('s');
UPDATE s SET i = i + 100 WHERE id % 50 = 1;
UPDATE h SET i = i + 100 WHERE id % 50 = 1;
CREATE TABLE conditions AS
  SELECT c || ' ' || o || ' ' || v AS condition
    FROM (VALUES ('i', ARRAY['10', '0', '49', '-1', '1000', 'NULL::int']), ('f', ARRAY['5', '''NaN''', '''-Infinity''', '''Infinity''', 'NULL::float8']),
                 ('t', ARRAY['''t 10''', '''''', 'NULL::text']), ('n', ARRAY['10.0', '''NaN''', 'NULL::numeric']), ('b', ARRAY['true', 'NULL::bool']),
                 ('a', ARRAY['''{10,NULL}''::int[]', '''{}''::int[]', 'NULL::int[]']), ('ts', ARRAY['timestamptz ''2026-01-11 00:00+00''', 'NULL::timestamptz']),
                 ('id', ARRAY['100', '1000', 'NULL::int'])) x (c, values),
         unnest(values) v, unnest(ARRAY['<', '<=', '=', '>=', '>', '<>']) o
  UNION ALL
  SELECT c || v FROM unnest(ARRAY['i', 'f', 't', 'n', 'b', 'a', 'ts', 'id']) c, unnest(ARRAY[' IS NULL', ' IS NOT NULL']) v
  UNION ALL
  SELECT c || o FROM (VALUES ('i'), ('n'), ('f'), ('id')) x (c), unnest(ARRAY[' = ANY (''{10,NULL,12}'')', ' = ANY (''{NULL}'')', ' = ANY (''{}'')', ' = ANY (NULL)', ' <> ALL (''{10,NULL}'')',
    ' <> ALL (''{10,12}'')', ' < ANY (''{3,NULL,5}'')', ' > ALL (''{3,5}'')', ' IN (10, NULL)', ' NOT IN (10, 12)', ' IS DISTINCT FROM 10', ' BETWEEN 5 AND 7']) o
  UNION ALL
  SELECT o || c FROM (VALUES ('i'), ('n'), ('id')) x (c), unnest(ARRAY['10 < ', '10 = ', 'NULL > ', '30 >= ']) o
  UNION ALL
  VALUES ('t = ANY (''{"t 10",NULL}'')'), ('b'), ('NOT b'), ('b IS NOT TRUE'), ('i = 10 OR i IS NULL'), ('NOT i < 10'), ('(i, id) > (10, 500)'),
    ('i > 10 AND i < 5'), ('i > 40 AND t IS NULL'), ('i = (SELECT max(i) FROM conditions, (VALUES (10)) m (i))');
SET enable_indexscan = off;
SELECT count(*), count(*) FILTER (WHERE NOT same('SELECT * FROM %t WHERE ' || condition || ' ORDER BY id')) AS different,
       count(*) FILTER (WHERE coalesce((node(plan('SELECT * FROM s WHERE ' || condition, 'ANALYZE'), 'Row Groups Skipped') ->> 'Row Groups Skipped')::int, 1) > 0) AS skipped
  FROM conditions;
RESET enable_indexscan;
SELECT condition FROM conditions WHERE NOT same('SELECT * FROM %t WHERE ' || condition || ' ORDER BY id');

-- NULLS FIRST and LAST, ASC and DESC, of the key and other columns, and what is
-- built on that order (P60)
SELECT count(*) AS orders, count(*) FILTER (WHERE NOT same(q)) AS different FROM (
  SELECT format('SELECT * FROM %%t ORDER BY %s %s %s%s %s', c, d, n, CASE c WHEN 'id' THEN '' ELSE ', id' END, l) AS q
    FROM unnest(ARRAY['id', 'i', 't', 'f']) c, unnest(ARRAY['ASC', 'DESC']) d, unnest(ARRAY['NULLS FIRST', 'NULLS LAST']) n, unnest(ARRAY['', 'LIMIT 10 OFFSET 5']) l) x;
SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_hashagg = off; SET enable_material = off; SET enable_seqscan = off;
SELECT count(*) AS joins, count(*) FILTER (WHERE NOT same(q)) AS different,
       count(*) FILTER (WHERE node(plan(replace(q, '%t', 's')), 'Merge Cond') IS NULL) AS without_merge,
       count(*) FILTER (WHERE node(plan(replace(q, '%t', 's')), 'Key Order') IS NULL) AS without_order FROM (
  SELECT format('SELECT x.*, y.id, y.t FROM %%t x %s JOIN (VALUES (5, 1), (10, 2), (NULL, 3), (2000, 4)) y (id, t) ON x.id = y.id ORDER BY x.id %s NULLS %s, y.id, y.t LIMIT 50', j, d, n) AS q
    FROM unnest(ARRAY['', 'LEFT', 'RIGHT', 'FULL']) j, unnest(ARRAY['ASC', 'DESC']) d, unnest(ARRAY['FIRST', 'LAST']) n) x;
EXPLAIN (COSTS OFF) SELECT * FROM s a JOIN s b USING (id) ORDER BY id DESC NULLS LAST;
EXPLAIN (COSTS OFF) SELECT DISTINCT id FROM s;
SELECT planned('SELECT id, max(v) FROM s, unnest(a) v GROUP BY id');
SELECT same('SELECT a.id, b.i FROM %t a JOIN %t b USING (id) ORDER BY id DESC NULLS LAST'), same('SELECT DISTINCT id FROM %t ORDER BY id'),
       same('SELECT id, max(v) FROM %t, unnest(a) v GROUP BY id ORDER BY id');
RESET enable_hashjoin; RESET enable_nestloop; RESET enable_hashagg; RESET enable_material; RESET enable_seqscan;

-- estimates: within 10 times the truth before the first ANALYZE, within 2 after
-- it, whether rows are merged or pending (P28)
CREATE FOREIGN TABLE e (id text COLLATE "C" NOT NULL, part int, r float8, note text) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '2000');
CREATE FUNCTION estimates(what text, factor float8, OUT state text, OUT worst text, OUT good bool) LANGUAGE plpgsql AS $$
DECLARE q text; off float8; n json;
BEGIN
  state := what;
  good := true;
  FOREACH q IN ARRAY ARRAY['SELECT * FROM e', 'SELECT * FROM e WHERE id = ''k00777''', 'SELECT * FROM e WHERE id = ANY (''{k00001,k00002,k00003,k00004}'')',
      'SELECT * FROM (VALUES (''k00001''), (''k00002'')) v (x) JOIN e ON e.id = v.x', 'SELECT a.* FROM e a JOIN e b USING (id)'] ||
      CASE WHEN factor < 5 THEN ARRAY['SELECT * FROM e WHERE part = 3', 'SELECT * FROM e WHERE r > 0.25', 'SELECT * FROM e WHERE id LIKE ''k000%''',
        'SELECT * FROM e WHERE id BETWEEN ''k00100'' AND ''k00199''', 'SELECT * FROM e WHERE note IS NULL', 'SELECT part FROM e GROUP BY part'] END LOOP
    n := plan(q, 'ANALYZE, TIMING OFF');
    off := greatest((n ->> 'Plan Rows')::float8, 1) / greatest((n ->> 'Actual Rows')::float8, 1);
    off := greatest(off, 1 / off);
    IF off > factor THEN
      good := false;
      worst := coalesce(worst || '; ', '') || format('%s: %s rows for %s', q, n ->> 'Plan Rows', n ->> 'Actual Rows');
    END IF;
  END LOOP;
END$$;
CREATE FUNCTION fill(v int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO e SELECT 'k' || to_char(g, 'FM00000'), g % 10, (hashint4(g) & 1023) / 1024.0, CASE WHEN g % 4 > 0 THEN md5((g + v)::text) END FROM generate_series(1, 5000) g
$$;
SELECT fill(1);
SELECT * FROM estimates('pending, not analyzed', 10);
CALL strata.drain('e');
SELECT * FROM estimates('merged, not analyzed', 10);
SELECT fill(2);
SELECT * FROM estimates('sent again, not analyzed', 10);
ANALYZE e;
SELECT * FROM estimates('sent again, analyzed', 2);
CALL strata.drain('e');
SELECT * FROM estimates('drained since', 2);
SELECT fill(3);
SELECT * FROM estimates('sent again since', 2);
ANALYZE e;
DELETE FROM e WHERE part = 4;
SELECT * FROM estimates('analyzed and a tenth deleted since', 2);

-- from one row to all of them: what reads single rows gives way to what reads
-- all, once (P55; test/bench/selectivity measures whether in time)
CREATE FOREIGN TABLE sweep (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '2000');
INSERT INTO sweep SELECT g, g FROM generate_series(1, 20000) g ORDER BY hashint4(g);
CALL strata.drain('sweep');
CREATE TABLE outer_rows AS SELECT g AS id FROM generate_series(1, 20000) g;
ANALYZE sweep, outer_rows;
CREATE FUNCTION kind(query text) RETURNS text LANGUAGE sql AS $$
  SELECT CASE WHEN node(p, 'Scan') IS NOT NULL THEN 'all' WHEN node(p, 'Key Order') IS NOT NULL THEN 'range' WHEN node(p, 'Key Lookup') IS NOT NULL THEN 'lookup' END FROM plan(query) p
$$;
SELECT n, kind(format('SELECT v FROM sweep WHERE id BETWEEN 101 AND %s', 100 + n)) AS range,
       kind(format('SELECT v FROM sweep WHERE id = ANY (ARRAY(SELECT generate_series(1, %s))::int[])', n)) AS any_unknown,
       kind(format('SELECT v FROM sweep WHERE id = ANY (''%s'')', (SELECT array_agg(g) FROM generate_series(1, n) g))) AS any,
       kind(format('SELECT v FROM (SELECT id FROM outer_rows LIMIT %s) o JOIN sweep USING (id)', n)) AS join
  FROM unnest(ARRAY[1, 10, 100, 19000]) n;

-- JIT: lookups cost far less than where it begins, whatever the store's size (P90)
SELECT max((plan(q, 'COSTS ON') ->> 'Total Cost')::float8) < current_setting('jit_above_cost')::float8 / 100 AS cheap,
       count(node(plan(q, 'ANALYZE'), 'JIT')) AS compiled
  FROM unnest(ARRAY['SELECT * FROM e WHERE id = ''k00777''', 'SELECT * FROM e WHERE id = ANY (''{k00001,k00002,k00003,k00004}'')',
                    'SELECT * FROM e WHERE id BETWEEN ''k00100'' AND ''k00109''', 'SELECT * FROM (VALUES (''k00001''), (''k00002'')) v (x) JOIN e ON e.id = v.x']) q;

DROP SCHEMA plans_test CASCADE;
