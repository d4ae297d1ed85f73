-- Of several errors that a statement could end with, the same one comes as on a
-- heap: each row is checked, its key judged, and what is made of it computed
-- before the next one is looked at.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA order_test_h;
CREATE SCHEMA order_test_s;
CREATE SCHEMA order_test;
SET search_path = order_test;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$;
CREATE TABLE order_test_h.t (id int PRIMARY KEY, v int CHECK (v < 1000), p positive, w varchar(3));
CREATE FOREIGN TABLE order_test_s.t (id int, v int CHECK (v < 1000), p positive, w varchar(3))
	SERVER strata OPTIONS (key 'id', on_duplicate 'error');
CREATE TABLE order_test_h.pt (id int, v int CHECK (v < 1000)) PARTITION BY RANGE (id);
CREATE TABLE order_test_s.pt (LIKE order_test_h.pt INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE order_test_h.low PARTITION OF order_test_h.pt (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (100);
CREATE TABLE order_test_h.high PARTITION OF order_test_h.pt (PRIMARY KEY (id)) FOR VALUES FROM (100) TO (1000);
CREATE FOREIGN TABLE order_test_s.low PARTITION OF order_test_s.pt FOR VALUES FROM (0) TO (100)
	SERVER strata OPTIONS (key 'id', on_duplicate 'error');
CREATE FOREIGN TABLE order_test_s.high PARTITION OF order_test_s.pt FOR VALUES FROM (100) TO (1000)
	SERVER strata OPTIONS (key 'id', on_duplicate 'error');
DO $$
BEGIN
	FOR i IN 0 .. 1 LOOP
		PERFORM set_config('search_path', (ARRAY['order_test_h', 'order_test_s'])[i + 1] || ', order_test', true);
		CREATE VIEW tv AS SELECT * FROM t WHERE v < 500 WITH CHECK OPTION;
		CREATE VIEW ptv AS SELECT * FROM pt WHERE v < 500 WITH CHECK OPTION;
		INSERT INTO t SELECT g, 5, 1 FROM generate_series(1, 100) g;
		INSERT INTO pt SELECT g, 5 FROM generate_series(1, 200) g;
		CREATE TRIGGER before BEFORE INSERT OR UPDATE ON t FOR EACH ROW WHEN (NEW.v = 66) EXECUTE FUNCTION refuse();
		CREATE TRIGGER after AFTER INSERT OR UPDATE ON t FOR EACH ROW WHEN (NEW.v = 77) EXECUTE FUNCTION refuse();
	END LOOP;
END$$;

-- what a statement ends with; it is undone either way
CREATE FUNCTION outcome(schema text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; path text = current_setting('search_path');
BEGIN
	PERFORM set_config('search_path', schema || ', order_test', true);
	EXECUTE statement;
	RAISE 'done' USING ERRCODE = '00001';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	PERFORM set_config('search_path', path, true);
	RETURN CASE SQLSTATE WHEN '00001' THEN 'succeeds' WHEN '23505' THEN '23505 ' || detail ELSE SQLSTATE END;
END$$;
CREATE TABLE statements (n int GENERATED ALWAYS AS IDENTITY, statement text);
INSERT INTO statements (statement) VALUES
	-- checks of a later row, of an earlier one, and of the row itself
	('INSERT INTO t VALUES (1, 5), (200, 5000)'),
	('INSERT INTO t VALUES (200, 5000), (1, 5)'),
	('INSERT INTO t VALUES (1, 5000)'),
	('INSERT INTO t VALUES (1, 5), (NULL, 5)'),
	('INSERT INTO t VALUES (NULL, 5), (1, 5)'),
	('INSERT INTO t VALUES (NULL, 5000)'),
	('INSERT INTO t SELECT g, 5, 2 - g FROM generate_series(1, 5) g'),
	('INSERT INTO t SELECT g, 5, 103 - g FROM generate_series(99, 105) g ORDER BY g DESC'),
	('INSERT INTO t SELECT g, 5, 1, repeat(''x'', g) FROM generate_series(2, 5) g'),
	('INSERT INTO t SELECT 103 - g, 5, 1, repeat(''x'', g) FROM generate_series(2, 5) g'),
	('INSERT INTO t SELECT g, 1 / (g - 3) FROM generate_series(1, 5) g'),
	('INSERT INTO t SELECT 103 - g, 1 / (g - 2) FROM generate_series(1, 5) g'),
	-- which key
	('INSERT INTO t VALUES (201, 5), (3, 5), (2, 5), (1, 5)'),
	('INSERT INTO t VALUES (201, 5), (201, 5), (1, 5)'),
	('INSERT INTO t VALUES (201, 5), (1, 5), (201, 5)'),
	('INSERT INTO t SELECT g, 5 FROM generate_series(50, 300) g ORDER BY g % 7, g'),
	-- a view's check option, RETURNING, triggers
	('INSERT INTO tv VALUES (1, 600)'),
	('INSERT INTO tv VALUES (200, 600), (1, 5)'),
	('INSERT INTO tv VALUES (1, 5), (200, 600)'),
	('INSERT INTO t VALUES (1, 5) RETURNING 1 / (v - 5)'),
	('INSERT INTO t VALUES (200, 5), (1, 5) RETURNING 1 / (v - 5)'),
	('INSERT INTO t VALUES (1, 77)'),
	('INSERT INTO t VALUES (200, 77), (1, 5)'),
	('INSERT INTO t VALUES (1, 66)'),
	('INSERT INTO t VALUES (1, 5), (200, 66)'),
	-- several parts of one statement
	('WITH a AS (INSERT INTO t VALUES (1, 5) RETURNING id) INSERT INTO t SELECT 200, 5000 FROM a'),
	('WITH a AS (INSERT INTO t VALUES (200, 5) RETURNING id) INSERT INTO t SELECT 1, 5 FROM a RETURNING 1 / (v - 5)'),
	('WITH a AS (DELETE FROM t WHERE id = 1 RETURNING id) INSERT INTO t SELECT id, 5 FROM a'),
	('WITH a AS (DELETE FROM t WHERE id = 1 RETURNING id) INSERT INTO t SELECT id + 1, 5 FROM a RETURNING 1 / (v - 5)'),
	-- changed keys
	('UPDATE t SET id = 2 WHERE id = 1 RETURNING 1 / (v - 5)'),
	('UPDATE t SET id = 2, v = 5000 WHERE id = 1'),
	('UPDATE t SET id = NULL, v = 5000 WHERE id = 1'),
	('UPDATE t SET id = 2, v = 77 WHERE id = 1'),
	('UPDATE t SET id = 2, v = 66 WHERE id = 1'),
	('UPDATE t SET id = 2, v = 1 / (v - 5) WHERE id = 1'),
	('UPDATE t SET id = 200, v = 5 WHERE id = 1 RETURNING 1 / (v - 5)'),
	('UPDATE tv SET id = 2, v = 600 WHERE id = 1'),
	('UPDATE tv SET id = 200, v = 600 WHERE id = 1'),
	('UPDATE t SET id = 1 - id WHERE id = 0 OR id = 1 RETURNING 1 / id'),
	('UPDATE t SET id = id + 1, v = v / (id - 2) WHERE id BETWEEN 1 AND 5'),
	('UPDATE t SET id = 200 WHERE id IN (1, 2) RETURNING 1 / (v - 5)'),
	-- rows that are routed, and those that are moved
	('INSERT INTO pt VALUES (1, 5), (300, 5000)'),
	('INSERT INTO pt VALUES (1, 5), (3000, 5)'),
	('INSERT INTO pt VALUES (300, 5), (1, 5), (150, 5)'),
	('INSERT INTO ptv VALUES (1, 600)'),
	('INSERT INTO low VALUES (1, 5), (100, 5)'),
	('INSERT INTO low VALUES (NULL, 5)'),
	('UPDATE pt SET id = 150 WHERE id = 1 RETURNING 1 / (v - 5)'),
	('UPDATE ptv SET id = 150, v = 600 WHERE id = 1'),
	('UPDATE pt SET id = 150, v = 5000 WHERE id = 1'),
	('UPDATE pt SET id = 300 WHERE id IN (1, 2) RETURNING 1 / (v - 4)'),
	('UPDATE pt SET id = NULL, v = 5000 WHERE id = 1');
RESET client_min_messages;

SELECT statement, h AS "heap", CASE WHEN s IS DISTINCT FROM h THEN s END AS "strata, where it differs"
	FROM statements, outcome('order_test_h', statement) h, outcome('order_test_s', statement) s ORDER BY n;
-- at all levels, and when the rows are merged
CREATE VIEW differing AS SELECT current_setting('transaction_isolation') AS level, statement, h, s
	FROM statements, outcome('order_test_h', statement) h, outcome('order_test_s', statement) s WHERE s <> h;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM differing;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM differing;
COMMIT;
SET client_min_messages = warning;
CALL strata.drain('order_test_s.t');
CALL strata.drain('order_test_s.low');
CALL strata.drain('order_test_s.high');
RESET client_min_messages;
SELECT * FROM differing;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM differing;
COMMIT;

-- COPY says in which line
\set VERBOSITY terse
COPY order_test_h.t (id, v) FROM STDIN;
200	5
1	5
201	5000
\.
COPY order_test_s.t (id, v) FROM STDIN;
200	5
1	5
201	5000
\.
\set VERBOSITY default
COPY order_test_s.t (id, v) FROM STDIN;
200	5
1	5
201	5000
\.

-- beyond 64 keys of a statement, they are judged together
SELECT outcome('order_test_' || w, 'INSERT INTO t SELECT 1000 + g, 5 FROM generate_series(1, 63) g UNION ALL SELECT 1, 5 UNION ALL SELECT 2000, 5000')
	FROM unnest(ARRAY['h', 's']) w;
SELECT outcome('order_test_' || w, 'INSERT INTO t SELECT 1000 + g, 5 FROM generate_series(1, 64) g UNION ALL SELECT 1, 5 UNION ALL SELECT 2000, 5000')
	FROM unnest(ARRAY['h', 's']) w;

SET client_min_messages = warning;
DROP SCHEMA order_test_h, order_test_s, order_test CASCADE;
