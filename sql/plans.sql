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
-- and how many of the 50 row groups they pass over: OR and AND, arrays, rows,
-- NOT, and what does not exclude anything
CREATE FUNCTION skips(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n json;
BEGIN
  n := node(plan(replace(query, '%t', 's'), 'ANALYZE, COSTS OFF, TIMING OFF'), 'Row Groups Skipped');
  RETURN coalesce(n ->> 'Zone Map Filter', '-') || ': ' || (n ->> 'Row Groups Skipped') || CASE WHEN same(query) THEN '' ELSE ' (different)' END;
END$$;
SET enable_indexscan = off;
SELECT skips('SELECT * FROM %t WHERE ' || c || ' ORDER BY id') FROM unnest(ARRAY[
  'id = 5 OR id = 990', 'id < 21 OR i > 45', 'id < 21 OR i IS NULL', 'i IS NULL OR i IS NOT NULL', 'id < 21 OR i + 1 > 45', 'id < 41 OR (i > 20 AND t < ''t 21'' AND random() >= 0)',
  '(id > 980 AND i + 1 < 0) OR id = 1', 'NOT (id > 40 AND i > 5)', 'NOT (id > 40 OR i > 5)', 'NOT (id BETWEEN 21 AND 980)', 'NOT id IN (5, 6)',
  'id BETWEEN 100 AND 120', 'id BETWEEN SYMMETRIC 120 AND 100', 'id IN (5, 500, 990)', 'id = ANY (''{990,NULL,5,500,5}'')', 'id IN (5, 500, 990) OR id BETWEEN 300 AND 310', 'i = ANY (''{2000,-3}'')',
  'id < ANY (''{20,NULL,10}'')', 'id <= ANY (''{20,21}'')', 'id > ANY (''{990,970}'')', 'id >= ALL (''{961,100}'')', 'id < ALL (''{20,61}'')', 'id > ALL (''{10,NULL}'')', 'id = ALL (''{5,5}'')', 'id = ALL (''{5,6}'')', 'i > ALL (''{}'')', 'i > ANY (''{}'')',
  '(id, i) > (980, 3)', '(id, i) <= (20, NULL)', '(981, 5) < (id, i)', '(i, id) > (NULL, 1)', '(i, id, t) >= (45, 1, ''a'')', '(id, i) = (5, 0)', '(id, i) < (1, 1) OR (id, i) > (999, 1)',
  'b', 'NOT b', 'b IS NOT TRUE', 'b IS NOT FALSE', 'b IS UNKNOWN', 'b = (i > 40)', 'id > 980.5', 'id > 980::int8', 'id::int8 = 5', 'i IS NOT DISTINCT FROM 5', 'id = 5 OR NULL', 'id = ANY (NULL::int[]) OR id = 1']) WITH ORDINALITY u (c, o) ORDER BY o;
-- values that are known when the scan starts: parameters, stable functions,
-- subqueries, outer rows
SET plan_cache_mode = force_generic_plan;
CREATE FUNCTION skipped_by(command text, OUT filter text, OUT skipped text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || command LOOP
    filter := coalesce(substring(line, 'Zone Map Filter: (.*)'), filter);
    skipped := substring(line, 'Row Groups Skipped: (.*)');
    IF skipped IS NOT NULL THEN RETURN NEXT; filter := NULL; END IF;
  END LOOP;
END$$;
PREPARE p (int, int[]) AS SELECT * FROM s WHERE id > $1 OR i = ANY ($2);
SELECT * FROM skipped_by('EXECUTE p (980, ''{3,40}'')');
SELECT * FROM skipped_by('EXECUTE p (NULL, ''{3,40}'')');
SELECT * FROM skipped_by('EXECUTE p (980, NULL)');
RESET plan_cache_mode;
SELECT * FROM skipped_by('SELECT * FROM s WHERE ts > now() - (now() - timestamptz ''2026-02-15 12:00+00'')');
SELECT skipped FROM skipped_by('SELECT * FROM s WHERE id > (SELECT max(id) - 20 FROM h) OR id < (SELECT 3)');
SELECT skipped FROM skipped_by('SELECT * FROM s WHERE id = ANY (ARRAY(SELECT id FROM h WHERE id % 400 = 1))');
SELECT skipped FROM skipped_by('SELECT * FROM s WHERE (id, i) > ((SELECT 960), (SELECT 1))');
SELECT skipped FROM skipped_by('SELECT * FROM (VALUES (10, 40), (500, 530)) v (x, y), LATERAL (SELECT * FROM s WHERE id BETWEEN x AND y OR id = y OFFSET 0) q');
SELECT skipped FROM skipped_by('SELECT (SELECT max(i) FROM s WHERE id < x) FROM (VALUES (10), (500)) v (x)');
-- a value that may fail is not computed before the rows where another argument guards it
PREPARE guarded (int) AS SELECT count(*) FROM s WHERE id = 1 OR ($1 <> 0 AND id = 10 / $1);
SET plan_cache_mode = force_generic_plan;
EXECUTE guarded (0);
EXECUTE guarded (5);
RESET plan_cache_mode;
SELECT x, (SELECT count(*) FROM s WHERE id = 1 OR x <> 0 AND id = 10 / x) FROM (VALUES (0), (5)) v (x);
RESET enable_indexscan;
-- a row comparison is a range of a key, too
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE (id, i) > (500, 3) ORDER BY id, i LIMIT 5;
EXPLAIN (COSTS OFF) SELECT * FROM s WHERE ROW(500, 3) >= ROW(id, i) ORDER BY id DESC LIMIT 5;
SELECT same('SELECT * FROM %t WHERE (id, i) > (500, 3) ORDER BY id, i LIMIT 50'), same('SELECT * FROM %t WHERE ROW(500, 3) >= ROW(id, i) ORDER BY id DESC LIMIT 50');
RESET enable_seqscan;
-- what a security barrier hides is not looked at early, in no part of an OR
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM s WHERE i > 5;
SELECT * FROM skipped_by('SELECT * FROM barrier WHERE id < 10 OR id > 990');
SELECT * FROM skipped_by('SELECT * FROM barrier WHERE f < 10 OR n > 990');
DROP VIEW barrier;

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
