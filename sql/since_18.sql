-- What PostgreSQL 18 added, compared with a heap twin: earlier versions leave at
-- once.
SELECT current_setting('server_version_num')::int < 180000 AS too_old \gset
\if :too_old
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA since_18;
SET search_path = since_18;

-- what a statement returns or raises, of the strata table and of the heap
CREATE FUNCTION run(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	IF statement ~ '^SELECT|RETURNING' THEN
		EXECUTE format('WITH r AS (%s) SELECT string_agg(r::text, '' '' ORDER BY r::text) FROM r', statement) INTO result;
		RETURN coalesce(result, 'no row');
	END IF;
	EXECUTE statement;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION twin(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	heap text := run(replace(statement, '@', 'h'));
	strata text := run(replace(statement, '@', 'f'));
BEGIN
	RETURN CASE WHEN replace(heap, '"h"', '"f"') = strata THEN strata ELSE format('heap: %s; strata: %s', heap, strata) END;
END $$;

-- ---- virtual generated columns ----
CREATE FOREIGN TABLE f (id int NOT NULL, a int, v int GENERATED ALWAYS AS (a * 2), s int GENERATED ALWAYS AS (a * 3) STORED, t text GENERATED ALWAYS AS ('t' || a))
  SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE h (id int PRIMARY KEY, a int, v int GENERATED ALWAYS AS (a * 2), s int GENERATED ALWAYS AS (a * 3) STORED, t text GENERATED ALWAYS AS ('t' || a));
SELECT twin('INSERT INTO @ (id, a) SELECT g, g FROM generate_series(1, 10) g');
CALL strata.drain('f');
SELECT twin(statement) FROM unnest(ARRAY[
	'INSERT INTO @ (id, a) VALUES (11, NULL), (12, 12) RETURNING *, @', 'INSERT INTO @ (id, v) VALUES (13, 1)', 'SELECT * FROM @', 'SELECT @ FROM @', 'SELECT @, v FROM @ WHERE v > 10 AND v < 20',
	'SELECT count(*), count(v), sum(v), min(v), max(t) FROM @', 'SELECT id FROM @ WHERE v IS NULL', 'SELECT id FROM @ WHERE id = 5 AND v = 10', 'SELECT id FROM @ WHERE id = 5 AND v = 11',
	'SELECT x.id, y.v FROM @ x JOIN @ y ON x.v = y.id', 'SELECT x.id, y.v FROM @ x LEFT JOIN @ y ON x.v = y.id', 'UPDATE @ SET a = 100 WHERE v = 8 RETURNING *', 'UPDATE @ SET v = 1', 'DELETE FROM @ WHERE t = ''t9'' RETURNING v']) statement;
SELECT twin(statement) FROM unnest(ARRAY[
	'ALTER TABLE @ ALTER v SET NOT NULL', 'ALTER TABLE @ ADD CONSTRAINT c CHECK (v < 100)', 'ALTER TABLE @ ADD CONSTRAINT n NOT NULL v NOT VALID', 'INSERT INTO @ (id) VALUES (14)', 'ALTER TABLE @ VALIDATE CONSTRAINT n',
	'DELETE FROM @ WHERE a IS NULL', 'ALTER TABLE @ VALIDATE CONSTRAINT n', 'ALTER TABLE @ ALTER v SET EXPRESSION AS (nullif(a, 5))', 'ALTER TABLE @ ALTER v SET EXPRESSION AS (a * 20)', 'SELECT id, v FROM @',
	'ALTER TABLE @ ADD CONSTRAINT c CHECK (v < 2001)', 'UPDATE @ SET a = 101 WHERE id = 1', 'ALTER TABLE @ ADD COLUMN w int GENERATED ALWAYS AS (nullif(a, 5)) NOT NULL', 'ALTER TABLE @ ADD COLUMN w int GENERATED ALWAYS AS (a + 1) NOT NULL',
	'INSERT INTO @ (id, a) VALUES (15, 15)', 'SELECT * FROM @', 'ALTER TABLE @ DROP COLUMN v', 'SELECT * FROM @']) statement;
CALL strata.drain('f');
SELECT twin('SELECT * FROM @');
ANALYZE f;
CREATE FOREIGN TABLE k (id int NOT NULL, v int GENERATED ALWAYS AS (id * 2)) SERVER strata OPTIONS (key 'v');
DROP FOREIGN TABLE f;
DROP TABLE h;

-- ---- RETURNING old and new ----
CREATE FOREIGN TABLE f (id int NOT NULL, a int, p text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE h (id int PRIMARY KEY, a int, p text);
SELECT twin('INSERT INTO @ SELECT g, g, ''p'' || g FROM generate_series(1, 10) g');
CALL strata.drain('f');
SELECT twin('UPDATE @ SET a = -a WHERE id < 4');
SELECT twin(statement) FROM unnest(ARRAY[
	'INSERT INTO @ VALUES (11, 11, ''p11'') RETURNING old.*, new.*', 'UPDATE @ SET a = a * 2 WHERE id IN (1, 5, 11) RETURNING old.*, new.*', 'UPDATE @ SET id = id + 100 WHERE id IN (2, 6) RETURNING old, new',
	'UPDATE @ SET a = @.a + x FROM generate_series(2, 4) x WHERE x = @.id RETURNING x, old.a, new.a, new.a - old.a', 'DELETE FROM @ WHERE id IN (1, 7, 11) RETURNING old.*, new.*', 'DELETE FROM @ WHERE id = 8 RETURNING p, old.p, new.p',
	'UPDATE @ SET p = NULL WHERE id = 9 RETURNING old.p, new.p, old IS NULL, new IS NULL', 'SELECT * FROM @']) statement;
-- a key sent again replaces its row, without having read it
INSERT INTO f VALUES (5, 0, 'again') RETURNING old.*, new.*;

-- ---- NOT NULL as a constraint ----
SELECT twin(statement) FROM unnest(ARRAY[
	'ALTER TABLE @ ADD CONSTRAINT n NOT NULL p', 'ALTER TABLE @ ADD CONSTRAINT n NOT NULL p NOT VALID', 'UPDATE @ SET p = NULL WHERE id = 10', 'SELECT count(*) FROM @ WHERE p IS NULL', 'SELECT count(*) FROM @ WHERE p IS NOT NULL',
	'ALTER TABLE @ ALTER p SET NOT NULL', 'ALTER TABLE @ VALIDATE CONSTRAINT n', 'UPDATE @ SET p = ''p'' WHERE p IS NULL', 'ALTER TABLE @ ALTER p SET NOT NULL',
	'SELECT conname, convalidated FROM pg_constraint WHERE conrelid = ''@''::regclass AND conname = ''n''', 'ALTER TABLE @ DROP CONSTRAINT n', 'UPDATE @ SET p = NULL WHERE id = 10']) statement;
CREATE TABLE parent (id int, v int);
CREATE FOREIGN TABLE child (id int NOT NULL, v int) INHERITS (parent) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO child VALUES (1, NULL);
ALTER TABLE parent ADD PRIMARY KEY (v);
ALTER TABLE parent ADD CONSTRAINT n NOT NULL v NOT VALID;
ALTER TABLE parent VALIDATE CONSTRAINT n;
UPDATE child SET v = 1;
ALTER TABLE parent VALIDATE CONSTRAINT n;
INSERT INTO child VALUES (2, NULL);
ALTER TABLE parent DROP CONSTRAINT n;
ALTER TABLE parent ADD CONSTRAINT n NOT NULL v NO INHERIT;
INSERT INTO child VALUES (2, NULL);
ALTER TABLE parent ALTER CONSTRAINT n INHERIT;
DELETE FROM child WHERE v IS NULL;
ALTER TABLE parent ALTER CONSTRAINT n INHERIT;
INSERT INTO child VALUES (2, NULL);
-- a CHECK that is not enforced
SELECT twin(statement) FROM unnest(ARRAY['ALTER TABLE @ ADD CONSTRAINT c CHECK (id < 0) NOT ENFORCED', 'ALTER TABLE @ VALIDATE CONSTRAINT c', 'INSERT INTO @ VALUES (12)', 'SELECT count(*) FROM @ WHERE id < 0']) statement;
-- an added column, of which earlier rows know nothing
CREATE FOREIGN TABLE added (id int NOT NULL) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO added VALUES (1);
ALTER FOREIGN TABLE added ADD COLUMN x int NOT NULL;
ALTER FOREIGN TABLE added ADD COLUMN x int, ADD CONSTRAINT n NOT NULL x NOT VALID;
SELECT * FROM added;
ALTER FOREIGN TABLE added VALIDATE CONSTRAINT n;

-- ---- a table like another ----
CREATE FOREIGN TABLE alike (LIKE f INCLUDING ALL) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO alike SELECT * FROM f;
SELECT count(*) FROM ((TABLE f EXCEPT TABLE alike) UNION ALL (TABLE alike EXCEPT TABLE f)) d;

DROP SCHEMA since_18 CASCADE;
