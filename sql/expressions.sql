-- System columns, whole rows, row comparison, generated columns, identity: each
-- statement is run on a strata table and on a heap twin, pending, merged and
-- both (P31, C7).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA expressions;
SET search_path = expressions;

-- Run a statement on s and on h: the number of rows if they give the same, or
-- the SQLSTATE.
CREATE FUNCTION same(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tables text[] := '{s,h}';
	results text[];
	n bigint;
	r text;
BEGIN
	FOR i IN 1 .. 2 LOOP
		BEGIN
			IF statement ~ '^(SELECT|TABLE|WITH)|RETURNING' THEN
				EXECUTE format('WITH q AS (%s) SELECT count(*), string_agg(q::text, E''\n'' ORDER BY q::text COLLATE "C") FROM q',
							   replace(statement, 'TBL', tables[i])) INTO n, r;
				results[i] := n || ' rows' || coalesce(E'\n' || r, '');
			ELSE
				EXECUTE replace(statement, 'TBL', tables[i]);
				results[i] := 'ok';
			END IF;
		EXCEPTION WHEN OTHERS THEN
			results[i] := SQLSTATE;
		END;
	END LOOP;
	IF results[1] <> results[2] THEN
		RETURN format(E'%s\nthe heap: %s', results[1], results[2]);
	END IF;
	RETURN split_part(results[1], E'\n', 1);
END $$;
CREATE TABLE statements (no serial, statement text);

-- ---- system columns and whole rows ----
CREATE FOREIGN TABLE s (a int, b text NOT NULL, gone int, c numeric, j jsonb) SERVER strata OPTIONS (key 'b', auto_merge 'off');
CREATE TABLE h (a int, b text PRIMARY KEY, gone int, c numeric, j jsonb);
INSERT INTO statements (statement) SELECT * FROM unnest(ARRAY[
	'SELECT tableoid::regclass::text = ''TBL'', * FROM TBL',
	'SELECT b FROM TBL WHERE tableoid = ''TBL''::regclass',
	'SELECT b FROM TBL WHERE tableoid <> ''TBL''::regclass',
	'SELECT count(DISTINCT ctid), count(*) FROM TBL',
	'SELECT x.b FROM TBL x JOIN TBL y ON x.ctid = y.ctid AND x.b = y.b',
	'SELECT b FROM TBL WHERE ctid IN (SELECT ctid FROM TBL WHERE a > 2)',
	'SELECT b FROM TBL WHERE ctid = (SELECT ctid FROM TBL WHERE b = ''x'')',
	'SELECT x.b FROM TBL x, LATERAL (SELECT ctid, b FROM TBL y WHERE y.b = x.b) y WHERE x.ctid = y.ctid',
	'UPDATE TBL SET a = a + 1 WHERE ctid = (SELECT ctid FROM TBL WHERE b = ''x'') RETURNING *, tableoid::regclass::text = ''TBL''',
	'DELETE FROM TBL WHERE ctid = ANY (ARRAY(SELECT ctid FROM TBL WHERE a > 4)) RETURNING b, ctid IS NOT NULL, tableoid::regclass::text = ''TBL''',
	'INSERT INTO TBL (b) VALUES (''new'') RETURNING tableoid::regclass::text = ''TBL'', TBL',
	'SELECT TBL FROM TBL',
	'SELECT x.* FROM (SELECT TBL AS r FROM TBL) y, LATERAL (SELECT (y.r).*) x',
	'SELECT (TBL).d, (x).b FROM (SELECT TBL, TBL AS x FROM TBL) y',
	'SELECT row_to_json(TBL), to_jsonb(TBL) FROM TBL',
	'SELECT b FROM TBL ORDER BY TBL DESC LIMIT 3',
	'SELECT TBL, count(*) FROM TBL GROUP BY TBL',
	'SELECT DISTINCT x FROM TBL x',
	'SELECT b FROM TBL x WHERE x IS NULL',
	'SELECT b FROM TBL x WHERE x IS NOT NULL',
	'SELECT b FROM TBL x WHERE NOT x IS NULL',
	'SELECT b FROM TBL x WHERE x = (SELECT y FROM TBL y WHERE y.b = ''x'')',
	'SELECT b FROM TBL x WHERE x IN (SELECT y FROM TBL y WHERE y.a > 1)',
	'SELECT b FROM TBL x WHERE x IS DISTINCT FROM NULL',
	'SELECT b FROM TBL WHERE (a, b) < (2, ''y'')',
	'SELECT b FROM TBL WHERE (b, a) >= (''x'', 1)',
	'SELECT b FROM TBL WHERE (b, a) IN ((''x'', 1), (''y'', 2), (''z'', NULL))',
	'SELECT b FROM TBL WHERE (b, a) = ANY (SELECT b, a FROM TBL)',
	'SELECT b FROM TBL WHERE (a, c) IS NULL',
	'SELECT b FROM TBL WHERE (a, c) IS NOT DISTINCT FROM (NULL, NULL)',
	'SELECT x, y FROM TBL x LEFT JOIN TBL y ON y.b = x.b || ''!''',
	'SELECT x FROM TBL x FULL JOIN TBL y ON x.b = y.b AND y.a > 1',
	'SELECT coalesce(x, y) FROM TBL x RIGHT JOIN TBL y ON x.b = y.b AND x.a = 1',
	'UPDATE TBL SET (a, c) = ROW(11, 12) WHERE b = ''y'' RETURNING TBL',
	'UPDATE TBL SET (a, c) = (SELECT x.a, 5 FROM TBL x WHERE x.b = ''w'') WHERE b = ''y'' RETURNING *',
	'UPDATE TBL x SET d = y::text FROM TBL y WHERE x.b = y.b AND x.a > 2 RETURNING x, y, x.*',
	'SELECT CASE WHEN a > 1 THEN TBL END FROM TBL',
	'SELECT array_agg(TBL ORDER BY b) FROM TBL',
	'SELECT (array_agg(TBL ORDER BY b))[2].b FROM TBL',
	'SELECT sum(length(TBL::text)) OVER (ORDER BY b), rank() OVER (ORDER BY TBL) FROM TBL']) x;
-- each in a transaction that is rolled back, so that all find the same rows
CREATE PROCEDURE run(label text) LANGUAGE plpgsql AS $$
DECLARE
	q record;
	result text;
	good int := 0;
BEGIN
	FOR q IN SELECT * FROM statements ORDER BY no LOOP
		BEGIN
			result := same(q.statement);
			RAISE SQLSTATE 'Z0000';
		EXCEPTION WHEN SQLSTATE 'Z0000' THEN
			IF result ~ 'the heap|^\d[^ ]{4}$' THEN
				RAISE WARNING '%: %: %', label, q.statement, result;
			ELSE
				good := good + 1;
			END IF;
		END;
	END LOOP;
	RAISE WARNING '%: % statements gave the same', label, good;
END $$;
SELECT same('INSERT INTO TBL VALUES (1, ''x'', 1, 1.0, ''{"a": 1}''), (2, ''y'', 2, NULL, NULL), (NULL, ''z'', NULL, NULL, NULL), (3, ''xx'', 3, 1.00, ''[]'')');
ALTER FOREIGN TABLE s DROP COLUMN gone;
ALTER TABLE h DROP COLUMN gone;
ALTER FOREIGN TABLE s ADD COLUMN d text DEFAULT 'dd';
ALTER TABLE h ADD COLUMN d text DEFAULT 'dd';
CALL run('pending');
CALL strata.drain('s');
CALL run('merged');
SELECT same('INSERT INTO TBL VALUES (4, ''w'', 4, ''[]'', ''e''), (5, ''v'', 5, ''[]'', NULL)');
SELECT same('UPDATE TBL SET c = 7 WHERE b IN (''xx'', ''w'')');
CALL run('both');
-- the columns that say nothing of a compressed row
SELECT xmin FROM s;
SELECT b FROM s WHERE xmax::text = '0';
SELECT cmin, cmax FROM s LIMIT 1;
UPDATE s SET a = 1 WHERE xmin::text <> '0';
DELETE FROM s WHERE b = 'x' RETURNING xmin;
UPDATE s SET a = 1 WHERE b = 'x' RETURNING a + cmin::text::int;
INSERT INTO s (b) VALUES ('sys') RETURNING xmax;
CREATE TABLE parent (a int, b text) PARTITION BY LIST (a);
CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES IN (1) SERVER strata OPTIONS (key 'b', auto_merge 'off');
CREATE TABLE part_heap PARTITION OF parent FOR VALUES IN (2);
INSERT INTO parent VALUES (1, 'y') RETURNING xmin;
INSERT INTO parent VALUES (1, 'y'), (2, 'x') RETURNING tableoid::regclass, parent;
UPDATE parent SET b = b || '!' RETURNING xmin;
UPDATE parent SET a = 1 WHERE a = 2 RETURNING xmax;
UPDATE parent SET b = parent.b || '!' FROM h WHERE h.b = parent.b RETURNING h.xmin IS NOT NULL AS xmin, parent.b;
SELECT count(*) FROM s WHERE b = 'sys';

-- ---- generated columns and identity, also as the key ----
DROP FOREIGN TABLE s;
DROP TABLE h;
CREATE FOREIGN TABLE s (id int GENERATED ALWAYS AS IDENTITY, a int, k int GENERATED ALWAYS AS (a * 10) STORED, t text GENERATED ALWAYS AS (lower(coalesce(n, '-') || a::text)) STORED,
	n text DEFAULT 'Default', ser serial) SERVER strata OPTIONS (key 'k', on_duplicate 'error', auto_merge 'off');
CREATE TABLE h (id int GENERATED ALWAYS AS IDENTITY, a int, k int PRIMARY KEY GENERATED ALWAYS AS (a * 10) STORED, t text GENERATED ALWAYS AS (lower(coalesce(n, '-') || a::text)) STORED,
	n text DEFAULT 'Default', ser serial);
SELECT statement, same(statement) FROM unnest(ARRAY[
	'INSERT INTO TBL (a) VALUES (1), (2), (3) RETURNING *', 'INSERT INTO TBL VALUES (DEFAULT, 4) RETURNING *', 'INSERT INTO TBL (id, a) VALUES (100, 5)',
	'INSERT INTO TBL (id, a) OVERRIDING SYSTEM VALUE VALUES (100, 5) RETURNING *', 'INSERT INTO TBL (id, a) OVERRIDING USER VALUE VALUES (200, 6) RETURNING *',
	'INSERT INTO TBL (a, k) VALUES (7, 1)', 'INSERT INTO TBL (a, k) VALUES (7, DEFAULT) RETURNING k', 'INSERT INTO TBL (a) VALUES (NULL)', 'INSERT INTO TBL (a) VALUES (7)',
	'UPDATE TBL SET a = a + 100 WHERE a = 1 RETURNING *', 'SELECT * FROM TBL WHERE k = 10', 'SELECT * FROM TBL WHERE k = 1010', 'UPDATE TBL SET a = 2 WHERE a = 3',
	'UPDATE TBL SET n = ''NN'' WHERE k = 1010 RETURNING *', 'UPDATE TBL SET n = NULL WHERE k = 20 RETURNING *', 'UPDATE TBL SET k = DEFAULT, a = 200 WHERE k = 20 RETURNING *',
	'UPDATE TBL SET k = 5', 'UPDATE TBL SET id = 5', 'UPDATE TBL SET id = DEFAULT WHERE k = 30 RETURNING *', 'UPDATE TBL SET t = ''x''', 'DELETE FROM TBL WHERE k = 40 RETURNING *']) statement;
CALL strata.drain('s');
SELECT statement, same(statement) FROM unnest(ARRAY[
	'UPDATE TBL SET a = a + 1000 RETURNING *', 'TABLE TBL', 'SELECT * FROM TBL WHERE t > ''d'' AND k < 11000']) statement;
\copy s (a, n) FROM stdin
8	COPied
9	\N
\.
\copy h (a, n) FROM stdin
8	COPied
9	\N
\.
-- sequences went apart with the statement that each gave up; the rest is equal
SELECT a, k, t, n FROM s EXCEPT SELECT a, k, t, n FROM h;
ALTER FOREIGN TABLE s ALTER COLUMN t DROP EXPRESSION;
ALTER TABLE h ALTER COLUMN t DROP EXPRESSION;
ALTER FOREIGN TABLE s ALTER COLUMN id DROP IDENTITY, ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START 50);
ALTER TABLE h ALTER COLUMN id DROP IDENTITY, ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (START 50);
SELECT statement, same(statement) FROM unnest(ARRAY[
	'UPDATE TBL SET t = ''free'' WHERE k = 80 RETURNING t, k', 'INSERT INTO TBL (a) VALUES (77) RETURNING id, t', 'INSERT INTO TBL (a, id) VALUES (78, 1) RETURNING id']) statement;
TRUNCATE s RESTART IDENTITY;
TRUNCATE h RESTART IDENTITY;
SELECT same('INSERT INTO TBL (a) VALUES (1) RETURNING *');
-- what would differ from row to row cannot be added where rows are
ALTER FOREIGN TABLE s ADD COLUMN g int GENERATED ALWAYS AS (a + 1) STORED;
ALTER FOREIGN TABLE s ADD COLUMN i int GENERATED BY DEFAULT AS IDENTITY;
TRUNCATE s;
ALTER FOREIGN TABLE s ADD COLUMN g int GENERATED ALWAYS AS (a + 1) STORED, ADD COLUMN i int GENERATED BY DEFAULT AS IDENTITY;
INSERT INTO s (a) VALUES (5) RETURNING a, k, g, i;
-- a trigger changes the key
CREATE FUNCTION shift() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.a := NEW.a + 1; RETURN NEW; END$$;
CREATE TRIGGER shift BEFORE INSERT OR UPDATE ON s FOR EACH ROW EXECUTE FUNCTION shift();
INSERT INTO s (a) VALUES (6) RETURNING a, k;
UPDATE s SET n = 'shifted' WHERE k = 70 RETURNING a, k, g;
UPDATE s SET n = 'shifted' WHERE a IN (5, 8) RETURNING a, k, g;
SELECT a, k, g FROM s ORDER BY k;
SELECT * FROM strata.verify('s');
DROP SCHEMA expressions CASCADE;
