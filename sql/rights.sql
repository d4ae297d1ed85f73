-- Rights: what others may not do, see or find out (P10, P45), security-barrier
-- views as row security (C6), owners that change or go.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA rights;
CREATE ROLE rights_owner;
CREATE ROLE rights_reader;
CREATE ROLE rights_stranger;
RESET client_min_messages;
GRANT ALL ON SCHEMA rights TO PUBLIC;
GRANT USAGE ON FOREIGN SERVER strata TO rights_owner;
SET search_path = rights;

-- ---- what there is to call ----
SELECT p.oid::regprocedure AS function, prosecdef AS definer, proconfig AS settings, has_function_privilege('rights_stranger', p.oid, 'EXECUTE') AS public
	FROM pg_proc p WHERE pronamespace = 'strata'::regnamespace ORDER BY proname;
SELECT relname, relkind FROM pg_class WHERE relnamespace = 'strata'::regnamespace AND has_table_privilege('rights_stranger', oid, 'SELECT') ORDER BY 1;
SELECT relname, relkind FROM pg_class WHERE relnamespace = 'strata'::regnamespace AND relkind <> 'i'
	AND has_table_privilege('rights_stranger', oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') ORDER BY 1;
SELECT has_schema_privilege('rights_stranger', 'strata', 'CREATE'), has_server_privilege('rights_stranger', 'strata', 'USAGE'),
	   has_foreign_data_wrapper_privilege('rights_stranger', 'strata', 'USAGE');

-- ---- a stranger ----
SET ROLE rights_owner;
CREATE FOREIGN TABLE t (id int NOT NULL, owner name, n numeric, secret text) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '50');
INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'rights_reader' ELSE 'rights_owner' END, i, 'secret ' || i FROM generate_series(1, 200) i;
SELECT count(*) FROM strata.seal('t');
SELECT generations_merged FROM strata.merge('t');
INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'rights_reader' ELSE 'rights_owner' END, i, 'secret ' || i FROM generate_series(190, 210) i;
SELECT store, pending_rows, base_rows FROM strata.stores;

-- every function that is given a table refuses
SET ROLE rights_stranger;
\set ECHO queries
SELECT format(CASE prokind WHEN 'p' THEN 'CALL strata.%I(%s)' ELSE 'SELECT * FROM strata.%I(%s)' END, proname,
		(SELECT string_agg(CASE WHEN t = 'regclass'::regtype THEN '''rights.t''' ELSE '''1''' END, ', ' ORDER BY n)
		 FROM unnest(proargtypes) WITH ORDINALITY u (t, n) WHERE n <= pronargs - pronargdefaults))
	FROM pg_proc WHERE pronamespace = 'strata'::regnamespace AND 'regclass'::regtype = ANY (proargtypes) ORDER BY proname
\gexec
\set ECHO all
SELECT * FROM strata.drop_orphans();
SELECT strata.on_sql_drop();
SELECT strata.on_ddl_command_end();
SELECT strata.manifest_guard();
-- no view shows anything of it
SELECT (SELECT count(*) FROM strata.stores) AS stores, (SELECT count(*) FROM strata.generations) AS generations, (SELECT count(*) FROM strata.row_groups) AS row_groups,
	   (SELECT count(*) FROM strata.merges) AS merges, (SELECT count(*) FROM strata.stat) AS stat, (SELECT count(*) FROM strata.health() WHERE store IS NOT NULL) AS health;
SELECT count(*) FROM pg_stats WHERE schemaname IN ('rights', 'strata');
SELECT * FROM strata.row_group;
EXPLAIN SELECT * FROM t;
TRUNCATE t;
ALTER FOREIGN TABLE t OPTIONS (ADD merge_interval '1s');
CREATE FOREIGN TABLE mine (id int) SERVER strata;
CREATE FOREIGN TABLE layer (id int) SERVER strata OPTIONS (store 't', layer 'base');
CREATE SERVER mine FOREIGN DATA WRAPPER strata;
IMPORT FOREIGN SCHEMA base FROM SERVER strata INTO rights;
RESET ROLE;

-- ---- others may use the row type of a storage relation: what does goes with CASCADE ----
CREATE SCHEMA strangers AUTHORIZATION rights_stranger;
SET ROLE rights_owner;
CREATE FOREIGN TABLE leaned_on (id int) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE leaned_on2 (id int) SERVER strata OPTIONS (key 'id');
SELECT storage FROM strata.stores WHERE store = 'leaned_on'::regclass \gset
SELECT storage AS storage2 FROM strata.stores WHERE store = 'leaned_on2'::regclass \gset
SET ROLE rights_stranger;
CREATE TABLE strangers.uses (i int, r :storage, r2 :storage2);
SET ROLE rights_owner;
CREATE FOREIGN TABLE leaning (id int, r :storage, rs :storage[], v text) SERVER strata OPTIONS (key 'id');
INSERT INTO leaning (id, v) VALUES (1, 'one');
SET ROLE rights_stranger;
CREATE VIEW strangers.v AS SELECT 1 AS one FROM :storage;
SET ROLE rights_owner;
\set VERBOSITY sqlstate
DROP FOREIGN TABLE leaned_on;
\set VERBOSITY default
SET client_min_messages = warning;
DROP FOREIGN TABLE leaned_on CASCADE;
-- other shards, without rows: a new storage relation
\set VERBOSITY sqlstate
ALTER FOREIGN TABLE leaned_on2 OPTIONS (ADD shards '2');
\set VERBOSITY default
DROP FOREIGN TABLE leaned_on2 CASCADE;
SELECT * FROM leaning;
INSERT INTO leaning VALUES (2, 'two');
CALL strata.drain('leaning');
SELECT * FROM strata.verify('leaning');
DROP FOREIGN TABLE leaning;
RESET client_min_messages;
RESET ROLE;
SELECT attname FROM pg_attribute WHERE attrelid = 'strangers.uses'::regclass AND attnum > 0 AND NOT attisdropped;
SELECT to_regclass('strangers.v');
DROP SCHEMA strangers CASCADE;

-- ---- pg_read_all_data, pg_write_all_data ----
GRANT pg_read_all_data TO rights_stranger;
SET ROLE rights_stranger;
SELECT count(*), max(secret) FROM t;
SELECT store, pending_rows FROM strata.stores;
SELECT strata.relation_size('t') > 0 AS size, strata.has_key_index('t');
INSERT INTO t VALUES (1);
DELETE FROM t;
SELECT * FROM t FOR UPDATE;
SELECT * FROM strata.merge('t');
RESET ROLE;
REVOKE pg_read_all_data FROM rights_stranger;
GRANT pg_write_all_data TO rights_stranger;
SET ROLE rights_stranger;
INSERT INTO t VALUES (1, 'rights_owner', 1, 'secret 1');
SELECT count(*) FROM t;
UPDATE t SET secret = 'x' WHERE id = 1;
TRUNCATE t;
SELECT * FROM strata.merge('t');
-- the manifest is nobody's to write
INSERT INTO strata.store DEFAULT VALUES;
DELETE FROM strata.shard;
UPDATE strata.row_group SET zones = NULL;
INSERT INTO strata.dictionary DEFAULT VALUES;
DELETE FROM strata.deletes;
DELETE FROM strata.pass;
RESET ROLE;
REVOKE pg_write_all_data FROM rights_stranger;

-- ---- pg_monitor: counts and states, no rows and no error's text ----
GRANT pg_monitor TO rights_stranger;
SET ROLE rights_stranger;
SELECT store, pending_rows > 0 AS pending, base_rows, last_error FROM strata.stores;
SELECT (SELECT count(*) > 0 FROM strata.generations) AS generations, (SELECT count(*) > 0 FROM strata.row_groups) AS row_groups, (SELECT count(*) > 0 FROM strata.merges) AS merges;
SELECT strata.relation_size('t') > 0 AS size, strata.has_key_index('t');
SELECT count(*) FROM t;
SELECT * FROM strata.verify('t');
CREATE FOREIGN TABLE layer (id int) SERVER strata OPTIONS (store 't', layer 'base');
RESET ROLE;
REVOKE pg_monitor FROM rights_stranger;

-- ---- rights on columns, as on a heap table ----
CREATE FUNCTION as_heap(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	tables text[] := '{t,h}';
	results text[];
	result text;
BEGIN
	FOR i IN 1 .. 2 LOOP
		BEGIN
			IF statement ~ '^SELECT|RETURNING' THEN
				EXECUTE replace(statement, 'TABLE', tables[i]) INTO result;
				results[i] := result;
			ELSE
				EXECUTE replace(statement, 'TABLE', tables[i]);
				results[i] := 'ok';
			END IF;
		EXCEPTION WHEN OTHERS THEN
			results[i] := SQLSTATE;
		END;
	END LOOP;
	RETURN CASE WHEN results[1] = results[2] THEN results[1] ELSE format('%s, the heap: %s', results[1], results[2]) END;
END $$;
CREATE TABLE h (LIKE t, PRIMARY KEY (id));
INSERT INTO h SELECT * FROM t;
ALTER TABLE h OWNER TO rights_owner;
SET ROLE rights_owner;
GRANT SELECT (id, owner), INSERT (id, owner), UPDATE (secret) ON t, h TO rights_reader;
SET ROLE rights_reader;
SET client_min_messages = error;	-- ANALYZE warns
SELECT statement, as_heap(statement) FROM unnest(ARRAY[
	'SELECT id FROM TABLE WHERE id = 5', 'SELECT max(owner) FROM TABLE', 'SELECT secret FROM TABLE WHERE id = 5', 'SELECT count(*) FROM TABLE', 'SELECT TABLE FROM TABLE',
	'SELECT id FROM TABLE WHERE secret = ''x''', 'SELECT id FROM TABLE ORDER BY n LIMIT 1', 'SELECT tableoid IS NULL FROM TABLE LIMIT 1', 'SELECT ctid FROM TABLE LIMIT 1',
	'INSERT INTO TABLE (id, owner) VALUES (301, ''x'')', 'INSERT INTO TABLE (id, owner) VALUES (302, ''x'') RETURNING id', 'INSERT INTO TABLE (id, owner) VALUES (303, ''x'') RETURNING secret',
	'INSERT INTO TABLE (id, secret) VALUES (304, ''x'')', 'INSERT INTO TABLE VALUES (305)', 'INSERT INTO TABLE (id) VALUES (5) ON CONFLICT DO NOTHING',
	'UPDATE TABLE SET secret = ''y'' WHERE id = 5', 'UPDATE TABLE SET secret = ''y'' WHERE n = 5', 'UPDATE TABLE SET secret = ''y'' WHERE id = 7 RETURNING id', 'UPDATE TABLE SET secret = ''y'' WHERE id = 7 RETURNING secret',
	'UPDATE TABLE SET n = 1 WHERE id = 5', 'UPDATE TABLE SET id = 1000 WHERE id = 5', 'UPDATE TABLE SET secret = secret || ''!'' WHERE id = 5', 'DELETE FROM TABLE WHERE id = 5', 'TRUNCATE TABLE',
	'SELECT id FROM TABLE WHERE id = 5 FOR UPDATE', 'SELECT id FROM TABLE WHERE id = 5 FOR KEY SHARE', 'ANALYZE TABLE']) statement;
RESET client_min_messages;
RESET ROLE;
SELECT count(*) FROM pg_statistic WHERE starelid = 't'::regclass;
SELECT count(*) FROM (TABLE t EXCEPT TABLE h) x;
-- to change and delete blindly, no right to read is needed
GRANT UPDATE (secret), DELETE, TRUNCATE ON t, h TO rights_stranger;
SET ROLE rights_stranger;
SELECT statement, as_heap(statement) FROM unnest(ARRAY['UPDATE TABLE SET secret = ''blind''', 'UPDATE TABLE SET secret = ''z'' WHERE id = 1', 'UPDATE TABLE SET secret = ''z'' RETURNING 1',
	'UPDATE TABLE SET secret = ''z'' RETURNING id', 'DELETE FROM TABLE WHERE id = 1', 'SELECT 1 FROM TABLE', 'SELECT 1 FROM TABLE FOR UPDATE']) statement;
RESET ROLE;
SELECT count(*), count(*) FILTER (WHERE secret = 'z') FROM t;
SELECT count(*) FROM (TABLE t EXCEPT TABLE h) x;
BEGIN;
SET ROLE rights_stranger;
DELETE FROM t;
RESET ROLE;
SELECT count(*) FROM t;
ROLLBACK;
BEGIN;
SET ROLE rights_stranger;
TRUNCATE t;
RESET ROLE;
SELECT count(*) FROM t;
ROLLBACK;
REVOKE ALL ON t, h FROM rights_stranger;
-- a key that he may not read is not told
SET ROLE rights_owner;
ALTER FOREIGN TABLE t OPTIONS (ADD on_duplicate 'error');
REVOKE SELECT ON t FROM rights_reader;
REVOKE SELECT (id, owner) ON t FROM rights_reader;
GRANT INSERT ON t TO rights_reader;
SET ROLE rights_reader;
INSERT INTO t VALUES (5, 'x', 1, 'y');
RESET ROLE;
GRANT SELECT (id) ON t TO rights_reader;
SET ROLE rights_reader;
INSERT INTO t VALUES (5, 'x', 1, 'y');
SET ROLE rights_owner;
ALTER FOREIGN TABLE t OPTIONS (DROP on_duplicate);
REVOKE ALL ON t FROM rights_reader;

-- ---- row security by a security-barrier view: nothing of a query sees a row
-- that the view hides, whatever plan serves it ----
RESET ROLE;
CREATE FOREIGN TABLE b (k numeric NOT NULL, id int NOT NULL, owner name, secret text) SERVER strata OPTIONS (key 'k', auto_merge 'off', row_group_rows '50');
INSERT INTO b SELECT i, i, CASE WHEN i % 2 = 0 THEN 'rights_reader' ELSE 'other' END, CASE WHEN i % 2 = 0 THEN 'mine' ELSE 'hidden' END FROM generate_series(1, 400) i;
SELECT count(*) FROM strata.seal('b');
SELECT generations_merged FROM strata.merge('b');
INSERT INTO b SELECT i, i, CASE WHEN i % 2 = 0 THEN 'rights_reader' ELSE 'other' END, CASE WHEN i % 2 = 0 THEN 'mine' ELSE 'hidden' END FROM generate_series(390, 420) i;
ANALYZE b;
CREATE VIEW my_t WITH (security_barrier) AS SELECT * FROM t WHERE owner = current_user WITH CHECK OPTION;
CREATE VIEW my_b WITH (security_barrier) AS SELECT * FROM b WHERE owner = current_user WITH CHECK OPTION;
GRANT ALL ON my_t, my_b TO rights_reader;
GRANT SELECT ON t TO CURRENT_USER;
SET ROLE rights_reader;
CREATE FUNCTION leak(text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$BEGIN IF $1 = 'hidden' THEN RAISE EXCEPTION 'saw a hidden row'; END IF; RETURN true; END$$;
CREATE FUNCTION leak(numeric) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$BEGIN IF $1 % 2 = 1 THEN RAISE EXCEPTION 'saw a hidden row'; END IF; RETURN true; END$$;
CREATE FUNCTION leak_equal(numeric, numeric) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$BEGIN IF $1 % 2 = 1 THEN RAISE EXCEPTION 'saw a hidden row'; END IF; RETURN $1 = $2; END$$;
CREATE OPERATOR === (LEFTARG = numeric, RIGHTARG = numeric, FUNCTION = leak_equal, COMMUTATOR = OPERATOR(===), RESTRICT = eqsel, JOIN = eqjoinsel, MERGES, HASHES);
CREATE TABLE ids AS SELECT i::numeric AS k FROM generate_series(1, 20) i;
SELECT count(*) FROM my_b WHERE leak(secret);
SELECT count(*) FROM my_b WHERE leak(k) AND k = 7;
SELECT count(*) FROM my_b WHERE k = 8 AND leak(secret);
SELECT count(*) FROM my_b WHERE k = ANY ('{7,8,9}') AND leak(secret);
SELECT count(*) FROM my_b WHERE k BETWEEN 5 AND 9 AND leak(secret);
SELECT k FROM my_b WHERE leak(secret) ORDER BY k DESC LIMIT 2;
SELECT count(*) FROM my_b WHERE id < 9 AND leak(secret);
SELECT count(*) FROM my_b WHERE secret > 'a' AND leak(k);
SELECT count(*) FROM my_b WHERE k === 7;
SELECT count(*) FROM ids JOIN my_b USING (k) WHERE leak(secret);
SELECT count(*) FROM ids, LATERAL (SELECT * FROM my_b WHERE my_b.k = ids.k AND leak(my_b.secret) OFFSET 0) x;
SELECT count(*) FROM ids JOIN my_b ON leak_equal(my_b.k, ids.k);
SELECT count(*) FROM my_b a JOIN my_b b ON a.k = b.k AND leak(a.secret) AND leak(b.k);
SELECT k FROM my_b WHERE k < 6 AND leak(secret) ORDER BY k FOR UPDATE;
UPDATE my_b SET secret = 'mine too' WHERE leak(secret) AND k < 6 RETURNING k;
UPDATE my_b SET secret = 'mine too' WHERE leak(k) AND k = 7 RETURNING k;
UPDATE my_b SET secret = 'x' FROM ids WHERE ids.k = my_b.k AND leak(my_b.k) AND my_b.k > 16 RETURNING my_b.k;
DELETE FROM my_b WHERE leak(k) AND k IN (19, 20) RETURNING k;
UPDATE my_b SET owner = 'other' WHERE k = 2;
INSERT INTO my_b VALUES (1001, 1, 'other');
INSERT INTO my_b VALUES (1002, 2, 'rights_reader', 'mine');
SELECT count(*) FROM my_b WHERE leak(secret);
-- only what gives nothing away is looked at early: = of int and text, not of numeric
EXPLAIN (COSTS OFF) SELECT * FROM my_b WHERE k = 7;
EXPLAIN (COSTS OFF) SELECT * FROM my_b WHERE k > 7 AND id = 7 AND secret = 'x' AND leak(secret);
EXPLAIN (COSTS OFF) SELECT * FROM my_t WHERE id = 7 AND leak(secret);
EXPLAIN (COSTS OFF) SELECT * FROM ids JOIN my_b USING (k);
EXPLAIN (COSTS OFF) UPDATE my_b SET secret = 'x' WHERE k = 7 AND secret > 'a';
EXPLAIN (COSTS OFF) UPDATE my_t SET secret = 'x' WHERE id = 7 AND n = 7;
SET max_parallel_workers_per_gather = 2;
SELECT name AS parallel_mode FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SET :parallel_mode = on;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*) FROM my_b WHERE leak(secret);
RESET max_parallel_workers_per_gather;
RESET :parallel_mode;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- ---- row security of a partitioned parent ----
RESET ROLE;
CREATE TABLE parent (k numeric NOT NULL, owner name, secret text) PARTITION BY RANGE (k);
CREATE FOREIGN TABLE parent_1 PARTITION OF parent FOR VALUES FROM (0) TO (1000) SERVER strata OPTIONS (key 'k', auto_merge 'off');
INSERT INTO parent SELECT i, CASE WHEN i % 2 = 0 THEN 'rights_reader' ELSE 'other' END, CASE WHEN i % 2 = 0 THEN 'mine' ELSE 'hidden' END FROM generate_series(1, 100) i;
CALL strata.drain('parent_1');
ALTER TABLE parent ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON parent USING (owner = current_user) WITH CHECK (owner = current_user);
GRANT ALL ON parent TO rights_reader;
SET ROLE rights_reader;
SELECT count(*) FROM parent WHERE leak(secret);
SELECT count(*) FROM parent WHERE leak(secret) AND k = 7;
SELECT k FROM parent WHERE leak(k) AND k IN (7, 8);
EXPLAIN (COSTS OFF) SELECT * FROM parent WHERE k = 7 AND secret = 'x' AND leak(secret);
EXPLAIN (COSTS OFF) SELECT * FROM parent WHERE k > 7 ORDER BY k;
EXPLAIN (COSTS OFF) SELECT * FROM ids JOIN parent USING (k);
UPDATE parent SET secret = 'mine too' WHERE leak(secret) AND k < 6 RETURNING k;
UPDATE parent SET owner = 'other' WHERE k = 2;
DELETE FROM parent WHERE leak(k) AND k < 6 RETURNING k;
INSERT INTO parent VALUES (200, 'other', 'x');
INSERT INTO parent VALUES (200, 'rights_reader', 'x') RETURNING k;
WITH moved AS (UPDATE parent SET k = k + 300 WHERE k = 10 RETURNING k) SELECT * FROM moved;
UPDATE parent SET k = k + 1, owner = 'other' FROM generate_series(1, 100) i WHERE k = i;
PREPARE u(name, numeric) AS UPDATE parent SET owner = $1 WHERE k = $2;
EXECUTE u ('other', 12);
DEALLOCATE u;
TRUNCATE parent_1;
RESET ROLE;

-- ---- views that read as their caller, tables over one layer ----
CREATE FOREIGN TABLE t_base (id int, secret text) SERVER strata OPTIONS (store 't', layer 'base');
CREATE VIEW invoker WITH (security_invoker) AS SELECT id, secret FROM t WHERE id < 5;
CREATE VIEW invoker_base WITH (security_invoker) AS SELECT id, secret FROM t_base WHERE id < 5;
CREATE VIEW definer_base AS SELECT id, secret FROM t_base WHERE id < 5;
GRANT ALL ON invoker, invoker_base, definer_base, t_base TO rights_reader;
SET ROLE rights_reader;
SELECT count(*) FROM invoker;
UPDATE invoker SET secret = 'x' WHERE id = 1;
SELECT count(*) FROM invoker_base;
EXPLAIN SELECT * FROM invoker_base;
SELECT count(*) FROM definer_base;
RESET ROLE;
GRANT SELECT, UPDATE (secret) ON t TO rights_reader;
SET ROLE rights_reader;
SELECT count(*) FROM invoker;
UPDATE invoker SET secret = 'x' WHERE id = 1 RETURNING id;
UPDATE invoker SET id = 2 WHERE id = 1;
SELECT count(*) FROM invoker_base;
RESET ROLE;

-- a layer table of one's own shows nothing of a store that one may not read
REVOKE ALL ON t FROM rights_reader;
GRANT USAGE ON FOREIGN SERVER strata TO rights_reader;
SET ROLE rights_reader;
CREATE FOREIGN TABLE spy (id int, secret text) SERVER strata OPTIONS (store 't', layer 'base');
CREATE FOREIGN TABLE spy_wal (id int, secret text) SERVER strata OPTIONS (store 't', layer 'wal');
SELECT count(*) FROM spy;
EXPLAIN SELECT * FROM spy_wal;
ANALYZE spy;
ANALYZE spy_wal;
SELECT relname, reltuples FROM pg_class WHERE relname IN ('spy', 'spy_wal') ORDER BY 1;
SELECT * FROM strata.verify('spy');
SELECT strata.relation_size('spy');
DROP FOREIGN TABLE spy, spy_wal;
RESET ROLE;
REVOKE USAGE ON FOREIGN SERVER strata FROM rights_reader;

-- ---- owners change and go; stores stay the extension's and go with their tables ----
CREATE ROLE rights_new;
GRANT USAGE ON FOREIGN SERVER strata TO rights_new;
SELECT storage AS t_storage FROM strata.stores WHERE store = 't'::regclass \gset
SELECT relowner = (SELECT extowner FROM pg_extension WHERE extname = 'strata') AS extension_owns FROM pg_class WHERE oid = :'t_storage'::regclass;
REASSIGN OWNED BY rights_owner TO rights_new;
SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 't'::regclass;
SELECT relowner = (SELECT extowner FROM pg_extension WHERE extname = 'strata') AS extension_owns FROM pg_class WHERE oid = :'t_storage'::regclass;
SET ROLE rights_owner;
SELECT * FROM strata.seal('t');
SET ROLE rights_new;
SELECT count(*) FROM strata.seal('t');
SELECT generations_merged FROM strata.merge('t');
ALTER FOREIGN TABLE t ADD COLUMN more int DEFAULT 1;
SELECT count(*), sum(more) FROM t;
SELECT * FROM strata.verify('t');
RESET ROLE;
DROP OWNED BY rights_owner;
DROP ROLE rights_owner;
SET client_min_messages = warning;
DROP OWNED BY rights_new CASCADE;
SELECT to_regclass('t'), to_regclass(:'t_storage'), (SELECT count(*) FROM strata.store WHERE storage = to_regclass(:'t_storage'));
DROP ROLE rights_new;
-- only rights given: taken back, nothing dropped
GRANT SELECT ON b TO rights_stranger;
DROP OWNED BY rights_stranger;
SELECT has_table_privilege('rights_stranger', 'b', 'SELECT'), count(*) FROM b;

-- the extension's owner, too
SELECT current_database() AS old_database \gset
CREATE ROLE rights_super SUPERUSER;
CREATE ROLE rights_super2 SUPERUSER;
CREATE DATABASE rights_database;
\c rights_database
SET client_min_messages = warning;
SET ROLE rights_super;
CREATE EXTENSION strata;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER strata TO rights_reader;
CREATE SCHEMA theirs AUTHORIZATION rights_reader;
SET ROLE rights_reader;
CREATE FOREIGN TABLE theirs.t (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO theirs.t SELECT i, 'v' FROM generate_series(1, 100) i;
RESET ROLE;
REASSIGN OWNED BY rights_super TO rights_super2;
SELECT count(*) FROM pg_shdepend WHERE refobjid = 'rights_super'::regrole AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database());
DROP ROLE rights_super;
SET ROLE rights_reader;
CREATE FOREIGN TABLE theirs.t2 (id int, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO theirs.t2 TABLE theirs.t;
CALL strata.drain('theirs.t');
SELECT * FROM strata.verify('theirs.t');
TRUNCATE theirs.t;
INSERT INTO theirs.t SELECT i, 'w' FROM generate_series(1, 10) i;
SELECT count(*) FROM theirs.t JOIN theirs.t2 USING (id);
RESET ROLE;
SELECT count(*), count(DISTINCT relowner) FROM pg_class WHERE relnamespace = 'strata'::regnamespace AND relname ~ '^s\d+$';
DROP OWNED BY rights_reader CASCADE;
SELECT count(*) FROM pg_class WHERE relnamespace = 'strata'::regnamespace AND relname ~ '^s\d+$';
\c :old_database
DROP DATABASE rights_database;
DROP ROLE rights_super2;

SET client_min_messages = warning;
DROP SCHEMA rights CASCADE;
DROP OWNED BY rights_reader, rights_stranger;
DROP ROLE rights_reader, rights_stranger;
