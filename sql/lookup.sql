-- Key lookups: which clauses become one, and that their answers are those of
-- a heap table.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA lookup;
SET search_path = lookup, public;

CREATE FOREIGN TABLE t (id text NOT NULL, v int, w text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO t SELECT 'id' || g, g, repeat('w', 100) FROM generate_series(1, 2000) g;
CALL strata.drain('t');
INSERT INTO t SELECT 'id' || g, -g, 'new' FROM generate_series(1900, 2100) g;

-- a plan, without what versions of PostgreSQL say differently
CREATE FUNCTION planned(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line !~ 'Filter: .* IS NOT NULL' THEN RETURN NEXT regexp_replace(line, ' \(returns \S+\)', ''); END IF;
  END LOOP;
END$$;
-- ours
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = 'id5';
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE 'id5' = id;
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = 'id5'::varchar;
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = 'id5'::name COLLATE "default";
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = ANY ('{id5,id6,id5,NULL}') AND v > 0;
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id IN ('id5', 'id6');
SELECT planned('SELECT v FROM t WHERE id = (SELECT max(''id5''))');
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = lower('ID5') AND v = 5;
-- not ours
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = 'id5' COLLATE "C";
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = ('id' || (random() * 0 + 5)::int);
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id > 'id5';
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = 'id5' OR v = 1;
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id <> ALL ('{id5}');
EXPLAIN (COSTS OFF) SELECT v FROM t WHERE id = w;

SELECT id, v FROM t WHERE id = 'id5';
SELECT id, v FROM t WHERE 'id1950' = id;
SELECT id, v FROM t WHERE id = 'id2050';
SELECT id, v FROM t WHERE id = 'nope';
SELECT id, v FROM t WHERE id = 'id5' AND v = 6;
SELECT id, v FROM t WHERE id = NULL;
SELECT id, v FROM t WHERE id = 'id5' AND id = 'id6';
SELECT id, v FROM t WHERE id = 'id5' COLLATE "C";
SELECT id, v FROM t WHERE id = 'id5'::varchar;
SELECT id, v FROM t WHERE id = 'id5'::name COLLATE "default";
SELECT id, v FROM t WHERE id = ANY ('{id5,id1950,id5,NULL,zz,id2100}') ORDER BY id;
SELECT id, v FROM t WHERE id = ANY ('{}');
SELECT id, v FROM t WHERE id = ANY (NULL);
SELECT id, v FROM t WHERE id = ANY ('{NULL}');
SELECT count(*), sum(v) FROM t WHERE id = ANY (SELECT 'id' || g FROM generate_series(1, 3000) g);
SELECT count(*), sum(v) FROM t WHERE id = ANY (ARRAY(SELECT 'id' || g % 100 FROM generate_series(1, 3000) g));
SELECT tableoid::regclass, (t).v FROM t WHERE id = 'id5';

-- prepared: custom and generic plans, null parameters
SET plan_cache_mode = force_generic_plan;
PREPARE one(text) AS SELECT id, v FROM t WHERE id = $1;
EXPLAIN (COSTS OFF) EXECUTE one('id5');
EXECUTE one('id5');
EXECUTE one('id1999');
EXECUTE one(NULL);
PREPARE many(text[]) AS SELECT id, v FROM t WHERE id = ANY ($1) ORDER BY id;
EXPLAIN (COSTS OFF) EXECUTE many('{id5}');
EXECUTE many('{id5,id7,NULL,id5}');
EXECUTE many('{}');
EXECUTE many(NULL);
-- an array of other dimensions and bounds is a set of its elements all the same
EXECUTE many('[3:4][1:2]={{id5,id6},{id5,id8}}');
-- generic plans follow the table
ALTER FOREIGN TABLE t ADD COLUMN x int DEFAULT 7;
PREPARE star(text) AS SELECT * FROM t WHERE id = $1;
EXECUTE one('id5');
EXECUTE star('id5');
RESET plan_cache_mode;

-- nested loops
CREATE TABLE o (n int, tid text);
INSERT INTO o SELECT g, 'id' || g * 100 FROM generate_series(1, 25) g;
INSERT INTO o VALUES (26, NULL), (27, 'id100');
ANALYZE o;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT n, v FROM o JOIN t ON t.id = o.tid;
SELECT n, v FROM o JOIN t ON t.id = o.tid ORDER BY n;
EXPLAIN (COSTS OFF) SELECT n, v FROM o LEFT JOIN t ON t.id = o.tid AND t.v < 0;
SELECT n, v FROM o LEFT JOIN t ON t.id = o.tid AND t.v < 0 ORDER BY n;
SELECT n FROM o WHERE NOT EXISTS (SELECT FROM t WHERE t.id = o.tid) ORDER BY n;
SELECT n FROM o WHERE EXISTS (SELECT FROM t WHERE t.id = o.tid AND t.v < 0) ORDER BY n;
EXPLAIN (COSTS OFF) SELECT n, s.v FROM o, LATERAL (SELECT v FROM t WHERE t.id = o.tid OFFSET 0) s;
SELECT n, s.v FROM o, LATERAL (SELECT v FROM t WHERE t.id = o.tid OFFSET 0) s ORDER BY n LIMIT 5;
SELECT n, (SELECT v FROM t WHERE id = tid) FROM o ORDER BY n LIMIT 3;
EXPLAIN (COSTS OFF) SELECT n, v FROM o JOIN t ON t.id = 'id' || o.n;
SELECT count(*), sum(v) FROM o JOIN t ON t.id = 'id' || o.n;
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT count(*), sum(v) FROM o JOIN t ON t.id = 'id' || o.n;
-- a key is unique: the planner knows
EXPLAIN (COSTS OFF, VERBOSE) SELECT o.n, t.v FROM o JOIN t ON t.id = o.tid;

-- row marks recheck through the lookup clause
BEGIN;
SELECT id, v FROM t WHERE id = 'id5' FOR SHARE;
ROLLBACK;

-- security barriers: a leaky clause above one must not look below it
CREATE FUNCTION leak(text) RETURNS text LANGUAGE plpgsql IMMUTABLE COST 0.1 AS $$ BEGIN RAISE NOTICE 'saw %', $1; RETURN $1; END $$;
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM t WHERE v < 3 AND v > 0;
SELECT id FROM barrier WHERE leak(id) = 'id1';
EXPLAIN (COSTS OFF) SELECT id FROM barrier WHERE id = 'id1';
SELECT id FROM barrier WHERE id = 'id1';
SELECT id FROM barrier WHERE id = 'id100';

-- equality of text is leakproof, that of numeric is not: neither a lookup nor
-- zone maps may use it before the barrier's own clause
CREATE FOREIGN TABLE n (id numeric NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO n SELECT g, g FROM generate_series(1, 10) g;
CREATE VIEW n_barrier WITH (security_barrier) AS SELECT * FROM n WHERE v < 3;
EXPLAIN (COSTS OFF) SELECT * FROM n_barrier WHERE id = 1;
EXPLAIN (COSTS OFF) SELECT * FROM n WHERE id = 1 AND v < 3;

-- types: every row found by its own key, pending and merged, and by values of
-- other types of the family
CREATE FUNCTION make(type text, sample text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE lookup.keys AS SELECT DISTINCT (%s)::%s AS k FROM generate_series(1, 300) g', sample, type);
	EXECUTE format('CREATE FOREIGN TABLE lookup.typed (k %s NOT NULL, v int) SERVER strata OPTIONS (key ''k'', auto_merge ''off'')', type);
	EXECUTE 'INSERT INTO lookup.typed SELECT k, 1 FROM lookup.keys';
END $$;
-- how many keys are found by lookups, and how many lookups it were
CREATE FUNCTION found(type text, OUT keys int, OUT hits int, OUT lookups int) LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int;
	line text;
BEGIN
	keys := 0;
	hits := 0;
	lookups := 0;
	FOR r IN EXECUTE 'SELECT k::text FROM lookup.keys' LOOP
		keys := keys + 1;
		EXECUTE format('SELECT count(*) FROM lookup.typed WHERE k = %L::%s', r.k, type) INTO n;
		hits := hits + n;
		EXECUTE format('EXPLAIN (FORMAT JSON) SELECT count(*) FROM lookup.typed WHERE k = %L::%s', r.k, type) INTO line;
		lookups := lookups + (line LIKE '%Key Lookup%')::int;
	END LOOP;
END $$;

SELECT make('smallint', 'g');
SELECT * FROM found('smallint');
CALL strata.drain('typed');
SELECT * FROM found('smallint');
SELECT count(*) FROM typed WHERE k = 7::int;
SELECT count(*) FROM typed WHERE k = 7::bigint;
SELECT count(*) FROM typed WHERE k = 70000;
SELECT count(*) FROM typed WHERE k = ANY ('{7,8,70000000000,8}'::bigint[]);
EXPLAIN (COSTS OFF) SELECT * FROM typed WHERE k = 7::bigint;
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('bigint', 'g * 10000000000');
SELECT * FROM found('bigint');
CALL strata.drain('typed');
SELECT * FROM found('bigint');
SELECT count(*) FROM typed WHERE k = 7::smallint;
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('numeric', 'g / 3.0');
SELECT * FROM found('numeric');
INSERT INTO typed VALUES (5.50, 2), ('NaN', 3), ('Infinity', 4), (0.00, 5);
SELECT * FROM typed WHERE k = 5.5;
CALL strata.drain('typed');
SELECT * FROM found('numeric');
SELECT * FROM typed WHERE k = 5.5000;
SELECT * FROM typed WHERE k = 'NaN';
SELECT * FROM typed WHERE k = 0;
EXPLAIN (COSTS OFF) SELECT * FROM typed WHERE k = 5::float8;
SELECT * FROM typed WHERE k = 5.5::float8;
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('double precision', 'g / 3.0');
SELECT * FROM found('double precision');
INSERT INTO typed VALUES ('-0', 2), ('NaN', 3), (0.5, 4);
SELECT * FROM typed WHERE k = 0;
CALL strata.drain('typed');
SELECT * FROM found('double precision');
SELECT * FROM typed WHERE k = 'NaN'::float4;
SELECT * FROM typed WHERE k = 0.5::float4;
SELECT * FROM typed WHERE k = '-0'::float8;
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('uuid', 'md5(g::text)');
SELECT * FROM found('uuid');
CALL strata.drain('typed');
SELECT * FROM found('uuid');
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('bytea', $$decode(md5(g::text), 'hex')$$);
SELECT * FROM found('bytea');
CALL strata.drain('typed');
SELECT * FROM found('bytea');
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('varchar(20)', $$'v' || g$$);
SELECT * FROM found('varchar(20)');
CALL strata.drain('typed');
SELECT * FROM found('varchar(20)');
SELECT count(*) FROM typed WHERE k = 'v7'::text;
SELECT count(*) FROM typed WHERE k = ANY ('{v7,v8}'::text[]);
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('char(10)', $$'v' || g$$);
SELECT * FROM found('char(10)');
SELECT count(*) FROM typed WHERE k = 'v7   ';
SELECT count(*) FROM typed WHERE k = 'v7'::text;
CALL strata.drain('typed');
SELECT * FROM found('char(10)');
SELECT count(*) FROM typed WHERE k = 'v7   ';
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('name', $$'v' || g$$);
SELECT * FROM found('name');
SELECT count(*) FROM typed WHERE k = 'v7'::text;
CALL strata.drain('typed');
SELECT * FROM found('name');
SELECT count(*) FROM typed WHERE k = 'v7'::text;
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('text COLLATE "C"', $$'v' || g$$);
SELECT * FROM found('text COLLATE "C"');
CALL strata.drain('typed');
SELECT * FROM found('text COLLATE "C"');
EXPLAIN (COSTS OFF) SELECT * FROM typed WHERE k = 'v7' COLLATE "POSIX";
SELECT count(*) FROM typed WHERE k = 'v7' COLLATE "POSIX";
DROP TABLE keys; DROP FOREIGN TABLE typed;

-- in the B-tree family, but not in the hash family
SELECT make('date', $$'2024-01-01'::date + g$$);
SELECT * FROM found('date');
EXPLAIN (COSTS OFF) SELECT * FROM typed WHERE k = '2024-01-08'::timestamp;
SELECT count(*) FROM typed WHERE k = '2024-01-08'::timestamp;
SELECT count(*) FROM typed WHERE k = '2024-01-08 01:00'::timestamp;
CALL strata.drain('typed');
SELECT * FROM found('date');
SELECT count(*) FROM typed WHERE k = '2024-01-08'::timestamp;
SELECT count(*) FROM typed WHERE k = '2024-01-08'::timestamptz;
SELECT count(*) FROM typed WHERE k = ANY ('{2024-01-08,2024-01-09,2024-01-09,2024-01-09 01:00}'::timestamp[]);
INSERT INTO typed SELECT k, 2 FROM keys WHERE k < '2024-01-10';
SELECT count(*), sum(v) FROM typed WHERE k = ANY ('{2024-01-08,2024-01-09,2024-01-10,2024-01-11}'::timestamp[]);
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('timestamptz', $$'2024-01-01 00:00+00'::timestamptz + g * interval '1 hour'$$);
SELECT * FROM found('timestamptz');
CALL strata.drain('typed');
SELECT * FROM found('timestamptz');
DROP TABLE keys; DROP FOREIGN TABLE typed;

SELECT make('int[]', 'ARRAY[g, g % 7]');
SELECT * FROM found('int[]');
CALL strata.drain('typed');
SELECT * FROM found('int[]');
DROP TABLE keys; DROP FOREIGN TABLE typed;

CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT make('positive', 'g');
SELECT * FROM found('positive');
CALL strata.drain('typed');
SELECT * FROM found('positive');
SELECT count(*) FROM typed WHERE k = 7;
SELECT count(*) FROM typed WHERE k = 7::bigint;
DROP TABLE keys; DROP FOREIGN TABLE typed;

-- composite keys
CREATE FOREIGN TABLE c (a int NOT NULL, b text NOT NULL, v int) SERVER strata OPTIONS (key 'b,a', auto_merge 'off');
CREATE TABLE ch (a int, b text, v int, PRIMARY KEY (b, a));
INSERT INTO ch SELECT g % 500, 'b' || g / 500, g FROM generate_series(0, 24999) g;
INSERT INTO c SELECT * FROM ch;
CALL strata.drain('c');
INSERT INTO c SELECT a, b, -v FROM ch WHERE v % 100 = 0;
UPDATE ch SET v = -v WHERE v % 100 = 0;
EXPLAIN (COSTS OFF) SELECT v FROM c WHERE a = 5 AND b = 'b2';
EXPLAIN (COSTS OFF) SELECT v FROM c WHERE a = 5;
EXPLAIN (COSTS OFF) SELECT v FROM c WHERE a = ANY ('{5,6}') AND b = 'b2' AND v > 0;
EXPLAIN (COSTS OFF) SELECT v FROM c WHERE a = ANY ('{5,6}') AND b = ANY ('{b2}');
SELECT v FROM c WHERE a = 5 AND b = 'b2';
SELECT v FROM c WHERE a = 0 AND b = 'b2';
SELECT v FROM c WHERE a = 5::bigint AND b = 'b2'::varchar;
SELECT v FROM c WHERE a = ANY ('{5,6,5,NULL,99}') AND b = 'b2' ORDER BY v;
SELECT v FROM c WHERE a = 5 AND b = ANY ('{b3,b4,b4}') ORDER BY v;
SELECT v FROM c WHERE a = 5 AND b = NULL;
SELECT v FROM c WHERE a = ANY ('{5,6}') AND b = ANY ('{b2}') ORDER BY v;
CREATE TABLE ca AS SELECT g AS a FROM generate_series(1, 3) g;
CREATE TABLE cb AS SELECT 'b' || g AS b FROM generate_series(1, 3) g;
ANALYZE ca, cb;
EXPLAIN (COSTS OFF) SELECT * FROM ca JOIN c ON c.a = ca.a AND c.b = 'b7';
SELECT * FROM ca JOIN c ON c.a = ca.a AND c.b = 'b7' ORDER BY 1;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
EXPLAIN (COSTS OFF) SELECT * FROM ca CROSS JOIN cb JOIN c ON c.a = ca.a AND c.b = cb.b;
SELECT count(*), sum(v) FROM ca CROSS JOIN cb JOIN c ON c.a = ca.a AND c.b = cb.b;
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT count(*), sum(v) FROM ca CROSS JOIN cb JOIN ch c ON c.a = ca.a AND c.b = cb.b;

-- arrays on any column of a key, against a heap twin: each element, or
-- combination of them, is a range of keys or a lookup
CREATE FOREIGN TABLE k (a int NOT NULL, b int8 NOT NULL, c text NOT NULL, v int, w text) SERVER strata
  OPTIONS (key 'a,b,c', row_group_rows '2000', auto_merge 'off');
CREATE TABLE kh (a int, b int8, c text, v int, w text, PRIMARY KEY (a, b, c));
INSERT INTO kh SELECT g / 100, g / 10 % 10, 'c' || g % 10, g, repeat('w', g % 50) FROM generate_series(0, 19999) g;
INSERT INTO k SELECT * FROM kh ORDER BY v;
CALL strata.drain('k');
-- pending: rows changed, deleted, moved and new
CREATE PROCEDURE twice(command text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE replace(command, '%t', 'k');
	EXECUTE replace(command, '%t', 'kh');
END $$;
CALL twice('UPDATE %t SET v = -v WHERE v % 30 = 7');
CALL twice('DELETE FROM %t WHERE v % 30 = 8');
CALL twice('UPDATE %t SET a = a + 1000 WHERE a = 6');
CALL twice('INSERT INTO %t SELECT a, 77, ''new'', a, ''new'' FROM generate_series(1, 300) a');
ANALYZE k, kh;
-- how the store finds the rows of a query, and whether they are the heap's
CREATE FUNCTION compare(query text, OUT how text, OUT rows bigint, OUT same bool) LANGUAGE plpgsql AS $$
DECLARE
	line text;
	a text[];
	b text[];
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || replace(query, '%t', 'k') LOOP
		how := coalesce(how, substring(line FROM '(?:Key Lookup|Key Range|Scan): .*'));
	END LOOP;
	EXECUTE format('SELECT array_agg(q::text) FROM (%s) q', replace(query, '%t', 'k')) INTO a;
	EXECUTE format('SELECT array_agg(q::text) FROM (%s) q', replace(query, '%t', 'kh')) INTO b;
	rows := cardinality(a);
	same := a IS NOT DISTINCT FROM b;
END $$;
CREATE TABLE outers (x int, xs int[], ys int8[], cs varchar[]);
INSERT INTO outers VALUES (3, '{5,7,5,NULL}', '{3,77}', '{c1,new}'), (5, '{}', '{1}', NULL), (7, NULL, '{2}', '{c2}'), (1, '{NULL}', NULL, '{}'), (4, '{199,1006,-1}', '{4,5}', '{c4,c5,c4}');
ANALYZE outers;
CREATE TABLE queries AS SELECT * FROM unnest(ARRAY[
  'a IN (5, 6, 199)', 'a = ANY (''{7,5,7,NULL,5}'')', 'a = ANY (''{}'')', 'a = ANY (''{NULL,NULL}'')', 'a = ANY (NULL::int[])', 'a IN (-5, 5000)', 'a = ANY (''[3:4][1:2]={{5,9},{5,8}}'')',
  'a = ANY (''{5,9,6000000000}''::int8[])', 'a = ANY (''{5,9}''::int2[])', 'a IN (5, 9) AND b = 3', 'a IN (5, 9, 1006) AND b > 6', 'a IN (5, 9) AND b BETWEEN 3::int2 AND 4', 'a IN (5, 9) AND b IN (77, 3, 3)',
  'a = 5 AND b IN (77, 3)', 'a = 5 AND b = ANY (''{3,NULL,4}''::int2[])', 'a = 5 AND b IN (3, 4) AND c > ''c7''', 'a IN (5, 9) AND b IN (3, 4) AND c = ''c5''', 'a IN (5, 9) AND b IN (77, 4) AND c IN (''c5'', ''new'', ''c5'')',
  'a IN (5, 9) AND b = 3 AND c = ANY (''{c1,c8}''::varchar[])', 'a IN (5, 9) AND b = ANY (''{}'') AND c = ''c1''', 'a IN (5, 9) AND b = ANY (''{NULL}'') AND c = ''c1''', 'a = 5 AND b = 3 AND c IN (''c5'', ''c8'')',
  'a IN (5, 9) AND a > 5', 'a IN (5, 9) AND a = 9', 'a IN (5, 9) AND a IN (9, 10)', 'a IN (5, 9) AND v > 0', 'a = ANY (ARRAY(SELECT x FROM outers))', 'a IN (5, 9) AND c LIKE ''c%''',
  -- not ours
  'b IN (3, 4)', 'a > 190 AND b IN (3, 4)', 'a <> ALL (''{5}'')', 'a = ANY (''{5.0,5.5}''::numeric[])']) WITH ORDINALITY q (condition, n);
SELECT condition, (compare(format('SELECT * FROM %%t WHERE %s ORDER BY a, b, c', condition))).* FROM queries ORDER BY n;
CREATE FUNCTION differing() RETURNS TABLE (q text) LANGUAGE sql AS $$
	SELECT condition FROM queries, unnest(ARRAY['SELECT * FROM %%t WHERE %s ORDER BY a, b, c', 'SELECT * FROM %%t WHERE %s ORDER BY a DESC, b DESC, c DESC LIMIT 7', 'SELECT a, c FROM %%t WHERE %s ORDER BY a, b, c',
		'SELECT * FROM (SELECT * FROM %%t WHERE %s OFFSET 0) q ORDER BY a, b, c', 'SELECT count(*), sum(v) FROM %%t WHERE %s']) f
	WHERE NOT (compare(format(f, condition))).same
$$;
-- the shorter of two arrays, whichever comes first
SELECT condition, (compare('SELECT * FROM %t WHERE ' || condition || ' ORDER BY a, b, c')).* FROM unnest(ARRAY[
  'a IN (5, 6, 9) AND a IN (9, 10)', 'a IN (9, 10) AND a IN (5, 6, 9)', 'a = 5 AND b = 3 AND c IN (''c1'', ''c5'', ''c8'') AND c IN (''c8'', ''c9'')', 'a = 5 AND b = 3 AND c IN (''c8'', ''c9'') AND c IN (''c1'', ''c5'', ''c8'')']) condition;
-- in either order, and in none
SELECT compare('SELECT a, b, v FROM %t WHERE a IN (9, 5) ORDER BY a DESC, b DESC, c DESC LIMIT 3'), planned('SELECT a, b, v FROM k WHERE a IN (9, 5) ORDER BY a DESC, b DESC, c DESC LIMIT 3');
SELECT a, b, v FROM k WHERE a IN (9, 5) AND b < 2 ORDER BY a DESC, b DESC, c DESC LIMIT 3;
SELECT * FROM differing();
-- own rows that are not committed
BEGIN;
CALL twice('UPDATE %t SET v = v + 1000000 WHERE a IN (5, 8, 199) AND b IN (3, 4)');
CALL twice('DELETE FROM %t WHERE a IN (9, 7) AND b = 4');
CALL twice('INSERT INTO %t VALUES (5, 3, ''own'', 0), (8, -1, ''own'', 0)');
SELECT * FROM differing();
SELECT (compare('SELECT * FROM %t WHERE a IN (5, 8, 9) AND b IN (-1, 3, 4) ORDER BY a, b, c')).*;
ROLLBACK;
-- a cursor sees what it saw
BEGIN;
DECLARE cur CURSOR FOR SELECT a, b, v FROM k WHERE a IN (5, 9) AND b = 3 ORDER BY a, b, c;
FETCH 2 FROM cur;
DELETE FROM k WHERE a IN (5, 9);
FETCH 2 FROM cur;
MOVE FORWARD ALL IN cur;
SELECT count(*) FROM k WHERE a IN (5, 9) AND b = 3;
ROLLBACK;
-- rows that are locked, changed and deleted
SELECT planned('UPDATE k SET v = 0 WHERE a IN (5, 9) AND b IN (3, 4) RETURNING *');
BEGIN;
SELECT count(*), sum(v) FROM (SELECT * FROM k WHERE a IN (5, 9) AND b = 3 FOR UPDATE) q;
CALL twice('WITH u AS (UPDATE %t SET v = v * 2, a = a + 2000 WHERE a IN (20, 22) RETURNING *) INSERT INTO outers SELECT a, NULL, array_agg(v::int8 ORDER BY v), NULL FROM u GROUP BY a ORDER BY a');
CALL twice('WITH d AS (DELETE FROM %t WHERE a = ANY (''{30,NULL,31,30}'') AND b IN (1, 2) RETURNING *) INSERT INTO outers SELECT a, NULL, array_agg(v::int8 ORDER BY v), NULL FROM d GROUP BY a ORDER BY a');
SELECT x, count(*), count(DISTINCT ys) FROM outers WHERE x > 20 GROUP BY x ORDER BY x;
SELECT (compare('SELECT * FROM %t WHERE a IN (20, 2020, 2022, 30, 31) ORDER BY a, b, c')).*;
ROLLBACK;
-- parameters, and outer rows: their arrays, too, null and empty ones
SET plan_cache_mode = force_generic_plan;
PREPARE prefixes (int[], int8) AS SELECT count(*), sum(v) FROM k WHERE a = ANY ($1) AND b = $2;
EXPLAIN (COSTS OFF) EXECUTE prefixes('{5,6}', 3);
EXECUTE prefixes('{5,NULL,9,5}', 3);
EXECUTE prefixes('{}', 3);
EXECUTE prefixes(NULL, 3);
EXECUTE prefixes('{5}', NULL);
PREPARE combinations (int[], int8[], text[]) AS SELECT count(*), sum(v) FROM k WHERE a = ANY ($1) AND b = ANY ($2) AND c = ANY ($3);
EXPLAIN (COSTS OFF) EXECUTE combinations('{5,6}', '{3}', '{c1}');
EXECUTE combinations('{5,9,5}', '{3,77,NULL}', '{new,c1}');
EXECUTE combinations('{5,9,5}', '{}', '{new,c1}');
EXECUTE combinations('{5,9,5}', '{3,77,NULL}', NULL);
RESET plan_cache_mode;
-- (17 knows how long arrays are, and looks for all combinations of three)
SELECT q, CASE WHEN q !~ 'cs' THEN how END AS how, rows, same FROM unnest(ARRAY[
  'SELECT x, t.* FROM outers JOIN %t t ON t.a = ANY (xs) ORDER BY x, a, b, c', 'SELECT x, t.* FROM outers LEFT JOIN %t t ON t.a = ANY (xs) AND t.b = x ORDER BY x, a, b, c',
  'SELECT x, t.* FROM outers JOIN %t t ON t.a = ANY (xs) AND t.b = ANY (ys) AND t.c = ANY (cs) ORDER BY x, a, b, c',
  'SELECT x, t.* FROM outers, LATERAL (SELECT * FROM %t WHERE a = ANY (xs) AND b > x ORDER BY a DESC, b DESC, c DESC LIMIT 3) t ORDER BY x, a, b, c',
  'SELECT x, (SELECT sum(v) FROM %t WHERE a = ANY (xs) AND b = ANY (ys)) FROM outers ORDER BY x']) q, compare(q);
-- each element is looked for once, nulls never
CREATE FUNCTION probes(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Index Probes';
END $$;
SELECT probes('SELECT * FROM k WHERE a = ANY (''{7,5,7,NULL,5}'')'), probes('SELECT * FROM k WHERE a IN (5, 9, 5) AND b IN (3, 4, NULL, 3) AND c > ''c5'''),
       probes('SELECT * FROM k WHERE a IN (5, 9, 5) AND b IN (1, 2, NULL) AND c = ''c2'''), probes('SELECT * FROM k WHERE a = ANY (''{NULL}'')');
-- 10,000 elements are as right as two, and no range each when there are fewer rows
SELECT q, (compare(q)).rows, (compare(q)).same FROM unnest(ARRAY[
  'SELECT * FROM %t WHERE a = ANY (ARRAY(SELECT g % 5000 * 3 FROM generate_series(1, 10000) g)) ORDER BY a, b, c',
  'SELECT * FROM %t WHERE a IN (5, 9) AND b = ANY (ARRAY(SELECT generate_series(-5000, 5000))) ORDER BY a, b, c',
  'SELECT * FROM %t WHERE a = 5 AND b = 3 AND c = ANY (ARRAY(SELECT ''c'' || g FROM generate_series(1, 10000) g)) ORDER BY a, b, c']) q;
CREATE FUNCTION long_array(text) RETURNS text LANGUAGE sql AS $$ SELECT format('''{%s}''::%s', string_agg(g::text, ','), $1) FROM generate_series(1, 10000) g $$;
SELECT regexp_replace((compare('SELECT * FROM %t WHERE a = ANY (' || long_array('int[]') || ')')).how, '{.*}', '{...}') AS most,
       (compare('SELECT * FROM %t WHERE a IN (5, 9) AND b = ANY (' || long_array('int8[]') || ')')).how AS fewer;
-- without the index, and when all is merged
SELECT strata.drop_key_index('k');
SELECT * FROM differing();
SELECT (compare('SELECT * FROM %t WHERE a IN (5, 9) ORDER BY a, b, c')).*, (compare('SELECT * FROM %t WHERE a IN (5, 9) AND b IN (3, 4) AND c IN (''c1'', ''c8'') ORDER BY a, b, c')).*;
EXECUTE prefixes('{5,NULL,9,5}', 3);
CALL strata.drain('k');
SELECT strata.has_key_index('k');
SELECT * FROM differing();
EXECUTE prefixes('{5,NULL,9,5}', 3);
-- where clocks are put forward, timestamps of the missing hour are equal to later
-- ones as timestamptz: such arrays are not sorted, for the key or for zone maps
SET TimeZone = 'Europe/Berlin';
CREATE FOREIGN TABLE k_gap (a timestamptz NOT NULL, b int NOT NULL, v timestamptz) SERVER strata OPTIONS (key 'a,b', row_group_rows '10', auto_merge 'off');
CREATE TABLE kh_gap (a timestamptz, b int, v timestamptz);
INSERT INTO kh_gap SELECT a, b, a FROM generate_series(timestamptz '2020-03-29 00:30', '2020-03-29 05:00', '1 minute') a, generate_series(1, 3) b;
INSERT INTO k_gap SELECT * FROM kh_gap WHERE extract(minute FROM a) < 50 ORDER BY a, b;
CALL strata.drain('k_gap');
INSERT INTO k_gap SELECT * FROM kh_gap WHERE extract(minute FROM a) >= 50 ORDER BY a, b;
CREATE TABLE gap_queries AS SELECT replace(condition, '@', '2020-03-29') AS condition, n FROM unnest(ARRAY[
  'a = ANY (''{@ 02:59,@ 03:00,@ 03:10}''::timestamp[])', 'a = ANY (''{@ 02:30,@ 03:00,@ 03:30}''::timestamp[]) AND b > 1', 'b = 2 AND a = ANY (''{@ 02:59,@ 03:59}''::timestamp[])',
  'b IN (2, 3) AND a = ANY (''{@ 02:59,@ 03:00,@ 03:59}''::timestamp[])', 'v = ANY (''{@ 02:59,@ 03:00,@ 03:10}''::timestamp[])', 'v < ANY (''{@ 02:59,@ 03:30}''::timestamp[])', 'v >= ANY (''{@ 02:30,@ 03:10}''::timestamp[])',
  'v <> ALL (''{@ 02:59,@ 03:59}''::timestamp[])', 'v > ALL (''{@ 02:59,@ 03:30}''::timestamp[])',
  -- of the column's own type
  'a = ANY (''{@ 02:59,@ 03:59,@ 03:10}''::timestamptz[])', 'b = 2 AND a = ANY (''{@ 02:59,@ 03:59}''::timestamptz[])', 'v = ANY (''{@ 02:59,@ 03:59,@ 03:10}''::timestamptz[])']) WITH ORDINALITY q (condition, n);
CREATE FUNCTION in_gap() RETURNS TABLE (condition text, rows bigint, same bool, how text, zone_map bool) LANGUAGE sql AS $$
	SELECT condition, c.rows, c.same, left(c.how, strpos(c.how, ':') - 1), EXISTS (SELECT FROM planned('SELECT * FROM k_gap WHERE ' || condition) p WHERE p LIKE '%Zone Map Filter%')
	  FROM gap_queries, compare('SELECT * FROM %t_gap WHERE ' || condition || ' ORDER BY a, b') c ORDER BY n
$$;
SELECT * FROM in_gap();
CALL strata.drain('k_gap');
SELECT * FROM in_gap();
SET enable_indexscan = off;
SELECT * FROM in_gap() WHERE NOT same;
RESET enable_indexscan;
RESET TimeZone;
-- IN of ranges and arrays is a scan, = and a join are lookups
CREATE FOREIGN TABLE spans (r int4range NOT NULL, v int) SERVER strata OPTIONS (key 'r', auto_merge 'off');
CREATE FOREIGN TABLE lists (l int[] NOT NULL, v int) SERVER strata OPTIONS (key 'l', auto_merge 'off');
INSERT INTO spans SELECT int4range(g, g + 5), g FROM generate_series(1, 2000) g;
INSERT INTO lists SELECT ARRAY[g, g + 5], g FROM generate_series(1, 2000) g;
CALL strata.drain('spans');
CALL strata.drain('lists');
SELECT planned('SELECT * FROM spans WHERE r = ''[7,12)''');
SELECT planned('SELECT * FROM spans WHERE r IN (''[7,12)'', ''[8,13)'')');
SELECT planned('SELECT spans.* FROM (VALUES (int4range ''[7,12)''), (''[8,13)'')) x (r) JOIN spans USING (r)');
SELECT planned('SELECT * FROM lists WHERE l = ''{7,12}''');
SELECT planned('SELECT * FROM lists WHERE l IN (''{7,12}'', ''{8,13}'')');
SELECT count(*), sum(v) FROM spans WHERE r IN ('[7,12)', '[8,13)');
SELECT count(*), sum(v) FROM lists WHERE l IN ('{7,12}', '{8,13}');
SELECT spans.* FROM (VALUES (int4range '[7,12)'), ('[8,13)')) x (r) JOIN spans USING (r) ORDER BY r;
-- estimates: one row a key before any ANALYZE, and the table's size
CREATE FUNCTION estimate(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT estimate('SELECT * FROM t WHERE id = ''x'''), estimate('SELECT * FROM c WHERE a = 1 AND b = ''x'''),
	   estimate('SELECT * FROM t WHERE id = ANY (''{a,b,c}'')');
SELECT estimate('SELECT * FROM t') BETWEEN 2100 AND 2300 AS size;
-- and all paths with the same outer rows agree, also on a table never analyzed
CREATE FOREIGN TABLE pq (a int NOT NULL, b int NOT NULL, v int) SERVER strata OPTIONS (key 'a,b', auto_merge 'off');
INSERT INTO pq SELECT g, g, g FROM generate_series(1, 400000) g;
CREATE FUNCTION inner_rows(query text, setting text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	PERFORM set_config(setting, 'off', true);
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	PERFORM set_config(setting, 'on', true);
	plan := plan -> 0 -> 'Plan' -> 'Plans' -> 1;
	RETURN format('%s, %s', CASE WHEN plan ->> 'Key Lookup' IS NULL THEN 'no lookup' ELSE 'lookup' END, plan ->> 'Plan Rows');
END $$;
SELECT s AS off, inner_rows('SELECT * FROM outers o LEFT JOIN LATERAL (SELECT pq.*, o.x + 1 AS z FROM pq WHERE a = o.x AND b = o.x) l ON true', s) FROM unnest('{enable_seqscan,enable_indexscan}'::text[]) s;
-- versions of the same keys are not rows, once analyzed
CREATE FOREIGN TABLE e (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO e SELECT g, 1 FROM generate_series(1, 1000) g;
INSERT INTO e SELECT g, 1 FROM generate_series(1, 1000) g;
INSERT INTO e SELECT g, 1 FROM generate_series(1, 1000) g;
INSERT INTO e SELECT g, 1 FROM generate_series(1, 1000) g;
ANALYZE e;
SELECT reltuples FROM pg_class WHERE oid = 'e'::regclass;
SELECT estimate('SELECT * FROM e') BETWEEN 900 AND 1100 AS size;
CALL strata.drain('e');
SELECT estimate('SELECT * FROM e');
INSERT INTO e SELECT g, 2 FROM generate_series(500, 1500) g;
ANALYZE e;
SELECT reltuples BETWEEN 1400 AND 1600 AS right FROM pg_class WHERE oid = 'e'::regclass;
SELECT n_distinct, null_frac FROM pg_stats WHERE tablename = 'e' AND attname = 'id';

DROP SCHEMA lookup CASCADE;
