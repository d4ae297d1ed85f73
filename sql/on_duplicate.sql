-- What a second version of a key does: replace, error, ignore (C1, C2, P54).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA dup_test;
SET search_path = dup_test;

CREATE FOREIGN TABLE r (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE e (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error');
CREATE FOREIGN TABLE i (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'ignore');

-- against the log
\set QUIET off
INSERT INTO r VALUES (1, 'one'), (2, 'two');
INSERT INTO r VALUES (2, 'again'), (3, 'three');
INSERT INTO e VALUES (1, 'one'), (2, 'two');
INSERT INTO e VALUES (2, 'again'), (3, 'three');
INSERT INTO i VALUES (1, 'one'), (2, 'two');
INSERT INTO i VALUES (2, 'again'), (3, 'three');
\set QUIET on
SELECT 'r' AS t, * FROM r UNION ALL SELECT 'e', * FROM e UNION ALL SELECT 'i', * FROM i ORDER BY 1, 2;

-- within one statement
\set QUIET off
INSERT INTO r VALUES (4, 'a'), (4, 'b');
INSERT INTO e VALUES (4, 'a'), (4, 'b');
INSERT INTO i VALUES (4, 'a'), (4, 'b');
\set QUIET on
SELECT 'r' AS t, * FROM r WHERE id = 4 UNION ALL SELECT 'e', * FROM e WHERE id = 4 UNION ALL SELECT 'i', * FROM i WHERE id = 4 ORDER BY 1, 2;

-- within one transaction, and across savepoints
BEGIN;
INSERT INTO e VALUES (10, 'x');
SAVEPOINT s;
INSERT INTO e VALUES (10, 'y');
ROLLBACK TO s;
INSERT INTO e VALUES (11, 'x');
ROLLBACK TO s;
INSERT INTO e VALUES (11, 'y');
INSERT INTO i VALUES (10, 'x');
INSERT INTO i VALUES (10, 'y');
COMMIT;
SELECT * FROM e WHERE id >= 10 ORDER BY id;
SELECT * FROM i WHERE id >= 10 ORDER BY id;

-- against the base, with and without a key index
SET client_min_messages = warning;
CALL strata.drain('e');
CALL strata.drain('i');
RESET client_min_messages;
INSERT INTO e VALUES (1, 'again');
INSERT INTO e VALUES (5, 'five');
INSERT INTO i VALUES (1, 'again'), (5, 'five');
SELECT strata.drop_key_index('e'), strata.drop_key_index('i');
INSERT INTO e VALUES (2, 'again');
INSERT INTO e VALUES (6, 'six');
INSERT INTO i VALUES (2, 'again'), (6, 'six');
SELECT 'e' AS t, * FROM e UNION ALL SELECT 'i', * FROM i ORDER BY 1, 2;

-- ON CONFLICT DO NOTHING, whatever the option says
\set QUIET off
INSERT INTO r VALUES (1, 'nothing'), (7, 'seven'), (7, 'nothing') ON CONFLICT DO NOTHING;
INSERT INTO e VALUES (1, 'nothing'), (7, 'seven'), (7, 'nothing') ON CONFLICT DO NOTHING;
\set QUIET on
INSERT INTO r VALUES (1, 'nothing'), (8, 'eight') ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO r VALUES (1, 'no') ON CONFLICT (id) DO NOTHING;
INSERT INTO r VALUES (1, 'no') ON CONFLICT (id) DO UPDATE SET v = 'no';
SELECT * FROM r ORDER BY id;
-- both kinds in one command
WITH a AS (INSERT INTO e VALUES (20, 'first'))
INSERT INTO e VALUES (20, 'second') ON CONFLICT DO NOTHING;
SELECT * FROM e WHERE id = 20;

-- COPY
COPY i FROM stdin;
1	copied
9	nine
9	copied
\.
COPY e FROM stdin;
30	thirty
1	copied
\.
SELECT * FROM i WHERE id IN (1, 9) ORDER BY id;
SELECT * FROM e WHERE id = 30;

-- bulk: more keys than are locked one by one, more than a memtable holds
CREATE FOREIGN TABLE big (id int NOT NULL, v int) SERVER strata
    OPTIONS (key 'id', on_duplicate 'error', row_group_rows '500', shards '2');
INSERT INTO big SELECT g, g FROM generate_series(1, 5000) g;
INSERT INTO big SELECT g, 0 FROM generate_series(5001, 8000) g UNION ALL SELECT 17, 0;
-- the first of two equal keys is flushed long before the second comes
INSERT INTO big SELECT 5000 + g % 2000, 0 FROM generate_series(1, 2001) g;
INSERT INTO big SELECT g, 0 FROM generate_series(4000, 6000) g ON CONFLICT DO NOTHING;
SELECT count(*), sum(v) FROM big;

-- REPEATABLE READ: nothing to see, nothing to complain about
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO r VALUES (1, 'rr');
INSERT INTO e VALUES (1, 'rr');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO r VALUES (1, 'rr'), (100, 'rr');
INSERT INTO e VALUES (100, 'rr');
INSERT INTO i VALUES (100, 'rr'), (1, 'no');
COMMIT;
SELECT 'r' AS t, * FROM r WHERE id IN (1, 100) UNION ALL SELECT 'e', * FROM e WHERE id IN (1, 100)
UNION ALL SELECT 'i', * FROM i WHERE id IN (1, 100) ORDER BY 1, 2;

-- the message shows the key to whom may read it
CREATE FOREIGN TABLE two (a text NOT NULL, b date NOT NULL, c int) SERVER strata
    OPTIONS (key 'a, b', on_duplicate 'error');
INSERT INTO two VALUES ('x', '2024-01-31', 1);
INSERT INTO two VALUES ('x', '2024-01-31', 2);
CREATE ROLE dup_test_user;
GRANT USAGE ON SCHEMA dup_test TO dup_test_user;
GRANT INSERT ON two TO dup_test_user;
SET ROLE dup_test_user;
INSERT INTO two VALUES ('x', '2024-01-31', 2);
RESET ROLE;
GRANT SELECT (a, b) ON two TO dup_test_user;
SET ROLE dup_test_user;
INSERT INTO two VALUES ('x', '2024-01-31', 2);
RESET ROLE;

-- what a client is told besides the message, wherever the other row is
CREATE FUNCTION fields(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE schema_name text; table_name text; constraint_name text; detail text;
BEGIN
	EXECUTE statement;
	RETURN 'nothing';
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS schema_name = SCHEMA_NAME, table_name = TABLE_NAME, constraint_name = CONSTRAINT_NAME,
		detail = PG_EXCEPTION_DETAIL;
	RETURN concat_ws(' | ', schema_name, table_name, constraint_name, detail);
END $$;
CREATE FOREIGN TABLE "Told" (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error');
INSERT INTO "Told" SELECT g FROM generate_series(1, 200) g;
SELECT fields('INSERT INTO "Told" VALUES (1)') AS pending, fields('INSERT INTO "Told" VALUES (1000), (1000)') AS same_command,
	fields('INSERT INTO "Told" SELECT g FROM generate_series(1200, 200, -1) g') AS many, fields('UPDATE "Told" SET id = 2 WHERE id = 1') AS updated;
CALL strata.drain('"Told"');
SELECT fields('INSERT INTO "Told" VALUES (1)') AS merged, fields('UPDATE "Told" SET id = 2 WHERE id = 1') AS updated,
	fields('INSERT INTO "Told" SELECT g FROM generate_series(1200, 200, -1) g') AS many;

-- equal by the operator, not by bytes
CREATE FOREIGN TABLE num (id numeric NOT NULL, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error');
INSERT INTO num VALUES (1.0, 'x');
INSERT INTO num VALUES (1.00, 'y');

SET client_min_messages = warning;
DROP SCHEMA dup_test CASCADE;
DROP ROLE dup_test_user;
