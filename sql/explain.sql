-- What EXPLAIN shows.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA explain;
SET search_path = explain, public;

CREATE FOREIGN TABLE t (id int NOT NULL, step int, payload text) SERVER strata OPTIONS (key 'id', auto_merge 'off');

-- numbers that depend on page contents are left out, and what versions of PostgreSQL say differently
CREATE FUNCTION show(query text, options text DEFAULT 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
		line := regexp_replace(line, '(Bytes [A-Z][a-z]+"?: )[0-9]+', '\1N');
		line := regexp_replace(line, '\n *"?Disabled"?: false,?', '');
		RETURN NEXT regexp_replace(line, '((rows=|Actual Rows"?: )[0-9]+)\.00', '\1');
	END LOOP;
END $$;

-- nothing stored yet
SELECT show('SELECT * FROM t');
SELECT show('SELECT * FROM t WHERE id = 1');

INSERT INTO t SELECT g, g / 100, repeat('p', 50) FROM generate_series(1, 1000) g;
SELECT count(*) FROM strata.seal('t');
INSERT INTO t SELECT g, g / 100, repeat('p', 50) FROM generate_series(1, 10) g;
SELECT show('SELECT * FROM t');
SELECT show('SELECT * FROM t WHERE id = 5');
CALL strata.drain('t');
SELECT show('SELECT id FROM t');
SELECT show('SELECT * FROM t WHERE id = 5');
SELECT show('SELECT * FROM t WHERE id = ANY (''{5,6,7,5000}'')');

-- zone maps
INSERT INTO t SELECT g, g / 100, repeat('p', 50) FROM generate_series(10001, 11000) g;
CALL strata.drain('t');
SELECT show('SELECT id FROM t WHERE step > 100');
SELECT show('SELECT id FROM t WHERE step < 100 AND payload IS NOT NULL');
SELECT show('SELECT id FROM t WHERE payload IS NULL');
SELECT show('SELECT id FROM t WHERE step = ANY (''{101,102,NULL}'')');
SELECT show('SELECT id FROM t WHERE 100 < step');
SELECT show('SELECT id FROM t WHERE step = NULL::int');
SELECT show('SELECT id FROM t WHERE step + 0 > 100');
-- superseded rows
INSERT INTO t SELECT g, g / 100, 'new' FROM generate_series(10001, 10010) g;
SELECT show('SELECT count(*) FROM t');
SELECT show('SELECT id FROM t WHERE step > 100');

-- no access to anything without ANALYZE
SELECT show('SELECT * FROM t WHERE id = 5', 'COSTS OFF');
SELECT show('SELECT * FROM t WHERE id = 5', 'COSTS OFF, VERBOSE');
SELECT show('SELECT count(*) FROM t', 'COSTS OFF');
SELECT show('SELECT count(*) FROM t', 'COSTS OFF, VERBOSE');
SELECT show('SELECT count(*) FROM t', 'COSTS OFF, VERBOSE, FORMAT YAML');
SELECT show('SELECT * FROM t a JOIN t b ON a.id = b.id WHERE a.step = 1', 'COSTS OFF');
SELECT show('SELECT * FROM t WHERE id = 5', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF, FORMAT JSON');
SELECT show('SELECT id FROM t WHERE step > 100', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF, FORMAT YAML');

-- cost of a lookup stays far below where JIT begins
CREATE FUNCTION cost(query text) RETURNS float LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT cost('SELECT * FROM t WHERE id = 5') < 100;

-- what a statement writes is counted for it and for its node
CREATE TABLE parent (id int NOT NULL) PARTITION BY LIST (id);
CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES IN (1, 2) SERVER strata OPTIONS (key 'id');
CREATE FUNCTION written(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, WAL, BUFFERS, FORMAT JSON) ' || query INTO plan;
	plan := plan -> 0 -> 'Plan';
	IF plan ->> 'Node Type' <> 'ModifyTable' THEN
		plan := plan -> 'Plans' -> 0;
	END IF;
	RETURN format('%s: WAL %s, blocks %s', plan ->> 'Operation', (plan ->> 'WAL Records')::int > 0,
				  (plan ->> 'Shared Hit Blocks')::int + (plan ->> 'Shared Read Blocks')::int > 0);
END $$;
SELECT written('INSERT INTO t VALUES (20000, 1)');
SELECT written('UPDATE t SET step = 2 WHERE id = 20000');
SELECT written('DELETE FROM t WHERE id = 20000');
SELECT written('WITH new AS (INSERT INTO t VALUES (20000, 1) RETURNING id) SELECT id FROM new');
SELECT written('INSERT INTO parent VALUES (1)');
SELECT written('UPDATE parent SET id = 2');

DROP SCHEMA explain CASCADE;
