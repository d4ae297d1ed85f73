--
-- Merge passes: seal, merge, drain, what they count and whom they let.
--
\set VERBOSITY default
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA merge_test;
SET search_path = merge_test, public;

-- What of a pass is the same on every machine.
CREATE FUNCTION pass(relation regclass, max_generations int DEFAULT NULL, max_bytes bigint DEFAULT NULL,
    OUT merged bigint, OUT "left" bigint, OUT read bigint, OUT inserted bigint, OUT replaced bigint,
    OUT deleted bigint, OUT aborted bigint, OUT written bigint, OUT adopted bigint, OUT probes bigint,
    OUT built boolean)
LANGUAGE sql AS $$
    SELECT generations_merged, generations_left, rows_read, rows_inserted, rows_replaced, rows_deleted,
           rows_aborted, row_groups_written, row_groups_adopted, index_probes, index_built
    FROM strata.merge(relation, max_generations, max_bytes)
$$;

CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');

-- nothing to do: zeros, no transaction id
BEGIN;
SELECT * FROM strata.merge('t');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT * FROM strata.seal('t');
CALL strata.drain('t');
SELECT * FROM strata.verify('t');

-- merge does not seal
INSERT INTO t SELECT g, 'first' FROM generate_series(1, 10) g;
SELECT * FROM pass('t');
SELECT * FROM strata.seal('t');
SELECT * FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT count(*), min(v), max(v) FROM t;

-- sizes and times
INSERT INTO t SELECT g, 'second' FROM generate_series(6, 15) g;
SELECT count(*) FROM strata.seal('t');
SELECT generations_merged, rows_inserted, rows_replaced, index_probes,
       base_bytes_read BETWEEN 10 * 8192 AND 10 * 3 * 8192 AS base_bytes_read,
       bytes_read > 0 AS bytes_read, bytes_written > 0 AS bytes_written,
       peak_memory > 0 AS peak_memory, elapsed > interval '0' AS elapsed
FROM strata.merge('t');
SELECT v, count(*) FROM t GROUP BY v ORDER BY v;
SELECT * FROM strata.verify('t');

-- rows of transactions that failed are dropped
BEGIN;
INSERT INTO t SELECT g, 'rolled back' FROM generate_series(1, 7) g;
ROLLBACK;
BEGIN;
INSERT INTO t VALUES (100, 'kept');
SAVEPOINT s;
INSERT INTO t VALUES (101, 'undone'), (1, 'undone');
ROLLBACK TO s;
INSERT INTO t VALUES (102, 'kept');
COMMIT;
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT v, count(*) FROM t GROUP BY v ORDER BY v;

-- the newest version of a key in a pass wins; one pass, three generations
INSERT INTO t VALUES (1, 'a'), (2, 'a');
SELECT count(*) FROM strata.seal('t');
INSERT INTO t VALUES (2, 'b'), (200, 'b');
SELECT count(*) FROM strata.seal('t');
INSERT INTO t VALUES (200, 'c'), (2, 'c');
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT * FROM t WHERE id IN (1, 2, 200) ORDER BY id;
SELECT * FROM strata.verify('t');

-- a transaction's own generations wait for it to end, and it can merge others
BEGIN;
INSERT INTO t VALUES (1, 'own');
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT v FROM t WHERE id = 1;
COMMIT;
SELECT * FROM pass('t');
SELECT v FROM t WHERE id = 1;

-- a pass rolled back changes nothing, and can be done again
INSERT INTO t SELECT g, 'again' FROM generate_series(1, 5) g;
SELECT count(*) FROM strata.seal('t');
BEGIN;
SELECT * FROM pass('t');
SELECT v, count(*) FROM t WHERE id <= 5 GROUP BY v;
ROLLBACK;
SELECT v, count(*) FROM t WHERE id <= 5 GROUP BY v;
SELECT * FROM strata.verify('t');
SELECT * FROM pass('t');
SELECT v, count(*) FROM t WHERE id <= 5 GROUP BY v;

-- two passes in one transaction see each other
INSERT INTO t VALUES (1, 'p'), (300, 'p');
SELECT count(*) FROM strata.seal('t');
INSERT INTO t VALUES (1, 'q'), (301, 'q');
SELECT count(*) FROM strata.seal('t');
BEGIN;
SELECT * FROM pass('t', 1);
SELECT * FROM pass('t', 1);
SELECT * FROM t WHERE id IN (1, 300, 301) ORDER BY id;
COMMIT;
SELECT * FROM t WHERE id IN (1, 300, 301) ORDER BY id;
SELECT * FROM strata.verify('t');

-- an open cursor keeps its answer
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM t WHERE id IN (1, 2, 300) ORDER BY id;
FETCH 1 FROM c;
INSERT INTO t VALUES (2, 'too late');
FETCH ALL FROM c;
COMMIT;

--
-- Caps: generations, bytes; each lifts only itself
--
CREATE FOREIGN TABLE capped (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE PROCEDURE backlog(relation text, n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        EXECUTE format('INSERT INTO %I SELECT g, %L FROM generate_series(1, 100) g', relation, i);
        PERFORM strata.seal(relation::regclass);
        COMMIT;
    END LOOP;
END $$;
CALL backlog('capped', 10);
SELECT merged, "left", read FROM pass('capped', 3);
SELECT merged, "left", read FROM pass('capped', 3);
SELECT merged, "left", read FROM pass('capped', 3);
SELECT merged, "left", read FROM pass('capped', 3);
SELECT merged, "left", read FROM pass('capped', 3);
SELECT count(*), min(v), max(v) FROM capped;
CALL backlog('capped', 10);
SELECT merged, "left" FROM pass('capped');
SELECT merged, "left" FROM pass('capped', 0, 1);
SELECT merged, "left" FROM pass('capped', 0, 1);
CALL backlog('capped', 10);
SELECT merged, "left" FROM pass('capped', 0);
ALTER FOREIGN TABLE capped OPTIONS (ADD merge_max_generations '2');
CALL backlog('capped', 3);
SELECT merged, "left" FROM pass('capped');
SELECT merged, "left" FROM pass('capped', NULL, 0);
SELECT * FROM strata.verify('capped');

--
-- drain
--
CALL backlog('capped', 5);
INSERT INTO capped VALUES (1000, 'active');
CALL strata.drain('capped');
CALL strata.drain('capped');
SELECT count(*), min(v), max(v) FROM capped;
BEGIN;
CALL strata.drain('capped');
ROLLBACK;
DO $$ BEGIN CALL strata.drain('merge_test.capped'); END $$;
INSERT INTO capped VALUES (1001, 'x');
DO $$ BEGIN CALL strata.drain('merge_test.capped'); EXCEPTION WHEN division_by_zero THEN NULL; END $$;
CREATE FUNCTION drains() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL strata.drain('merge_test.capped'); END $$;
SELECT drains();
SET default_transaction_isolation = 'repeatable read';
CALL strata.drain('capped');
RESET default_transaction_isolation;
SELECT * FROM strata.verify('capped');

--
-- Snapshots that stand still: 25001
--
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM strata.merge('t');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM strata.merge('t');
ROLLBACK;
BEGIN READ ONLY;
SELECT * FROM strata.merge('t');
ROLLBACK;

--
-- The key index
--
SELECT strata.has_key_index('t');
SELECT strata.create_key_index('t');
SELECT strata.drop_key_index('t'), strata.drop_key_index('t');
SELECT strata.has_key_index('t');
SELECT v FROM t WHERE id = 300;
INSERT INTO t VALUES (300, 'r'), (400, 'r');
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT strata.has_key_index('t');
INSERT INTO t VALUES (300, 's'), (400, 's'), (401, 's');
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT * FROM strata.verify('t');
-- without it superseded rows are found by reading keys
SELECT strata.drop_key_index('t');
SET strata.index_before_merge = off;
INSERT INTO t VALUES (300, 't'), (402, 't');
SELECT count(*) FROM strata.seal('t');
SELECT * FROM pass('t');
SELECT strata.has_key_index('t');
SELECT * FROM t WHERE id IN (300, 402) ORDER BY id;
SELECT * FROM strata.verify('t');
RESET strata.index_before_merge;
SELECT strata.create_key_index('t'), strata.has_key_index('t');
SELECT * FROM strata.verify('t');

--
-- Bulk rows are adopted where they lie if enough of them is left
--
CREATE FOREIGN TABLE bulk (id int NOT NULL, v text) SERVER strata
    OPTIONS (key 'id', auto_merge 'off', row_group_rows '4000', generation_max_rows '1000000');
INSERT INTO bulk SELECT g, repeat(md5(g::text), 4) FROM generate_series(1, 4000) g;
SELECT count(*) FROM strata.seal('bulk');
SELECT * FROM pass('bulk');
-- 2,000 more than once: the later row group is adopted, of the earlier half is left
INSERT INTO bulk SELECT g, repeat(md5(g::text), 4) FROM generate_series(4001, 8000) g;
INSERT INTO bulk SELECT g, repeat(md5('x' || g), 4) FROM generate_series(6001, 10000) g;
SELECT count(*) FROM strata.seal('bulk');
SELECT * FROM pass('bulk');
-- what loses most of its rows is written anew
INSERT INTO bulk SELECT g, repeat(md5(g::text), 4) FROM generate_series(10001, 13000) g;
INSERT INTO bulk SELECT g, repeat(md5('x' || g), 4) FROM generate_series(10501, 13000) g;
SELECT count(*) FROM strata.seal('bulk');
SELECT * FROM pass('bulk');
-- re-sent against the base
INSERT INTO bulk SELECT g, repeat(md5('y' || g), 4) FROM generate_series(1, 13000, 13) g;
SELECT count(*) FROM strata.seal('bulk');
SELECT * FROM pass('bulk');
SELECT count(*), count(DISTINCT id), sum(id) FROM bulk;
SELECT bool_and(v = repeat(md5(CASE WHEN id % 13 = 1 THEN 'y' || id
                                    WHEN id BETWEEN 6001 AND 10000 OR id > 10500 THEN 'x' || id
                                    ELSE id::text END), 4)) FROM bulk;
SELECT * FROM strata.verify('bulk');

--
-- Shards; composite keys; no key
--
CREATE FOREIGN TABLE sharded (a text NOT NULL, b uuid NOT NULL, n int) SERVER strata
    OPTIONS (key 'a, b', shards '4', auto_merge 'off');
INSERT INTO sharded SELECT g % 10, md5(g::text)::uuid, 1 FROM generate_series(1, 1000) g;
SELECT count(*) FROM strata.seal('sharded');
INSERT INTO sharded SELECT g % 10, md5(g::text)::uuid, 2 FROM generate_series(501, 1500) g;
SELECT count(*) FROM strata.seal('sharded');
-- across shards by time of sealing
SELECT merged, "left" FROM pass('sharded', 4);
SELECT n, count(*) FROM sharded GROUP BY n ORDER BY n;
SELECT merged, "left", read, inserted, replaced FROM pass('sharded', 4);
SELECT n, count(*) FROM sharded GROUP BY n ORDER BY n;
SELECT * FROM strata.verify('sharded');

CREATE FOREIGN TABLE keyless (n int, v text) SERVER strata OPTIONS (auto_merge 'off');
INSERT INTO keyless SELECT 1, 'same' FROM generate_series(1, 5);
SELECT count(*) FROM strata.seal('keyless');
INSERT INTO keyless SELECT 1, 'same' FROM generate_series(1, 5);
SELECT count(*) FROM strata.seal('keyless');
SELECT * FROM pass('keyless');
SELECT count(*) FROM keyless;
SELECT strata.has_key_index('keyless');
SELECT strata.create_key_index('keyless');
SELECT * FROM strata.verify('keyless');

--
-- Columns added and dropped between generations and base
--
CREATE FOREIGN TABLE evolving (id int NOT NULL, a text, b int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO evolving SELECT g, 'a' || g, g FROM generate_series(1, 3) g;
CALL strata.drain('evolving');
INSERT INTO evolving SELECT g, 'a' || g, g FROM generate_series(3, 5) g;
ALTER FOREIGN TABLE evolving ADD COLUMN c int DEFAULT 7;
ALTER FOREIGN TABLE evolving DROP COLUMN b;
INSERT INTO evolving VALUES (5, 'a5', 8), (6, 'a6', NULL);
CALL strata.drain('evolving');
SELECT * FROM evolving ORDER BY id;
SELECT * FROM strata.verify('evolving');

--
-- Sweep gives back what merges left behind
--
SELECT blocks_freed > 0 AS freed, blocks_left FROM strata.sweep('capped');
SELECT blocks_freed, blocks_left, blocks_truncated FROM strata.sweep('capped');
SELECT * FROM strata.verify('capped', swept => true);

--
-- Arguments and rights
--
SELECT * FROM strata.merge('t', -1);
SELECT * FROM strata.merge('t', 0, -1);
SELECT * FROM strata.merge(NULL);
CREATE TABLE parted (id int) PARTITION BY LIST (id);
SELECT * FROM strata.merge('parted');
DROP TABLE parted;
SELECT * FROM strata.merge('pg_class');
SELECT * FROM strata.seal('pg_class');
SELECT * FROM strata.verify('pg_class');
SELECT strata.relation_size('pg_class');
SELECT strata.relation_size('t') > 0 AS relation_size;

CREATE ROLE strata_merge_reader;
CREATE ROLE strata_merge_owner;
GRANT USAGE ON SCHEMA merge_test TO strata_merge_reader, strata_merge_owner;
GRANT SELECT ON t TO strata_merge_reader;
GRANT strata_merge_owner TO CURRENT_USER;
ALTER FOREIGN TABLE capped OWNER TO strata_merge_owner;
SET ROLE strata_merge_reader;
SELECT strata.has_key_index('t'), strata.relation_size('t') > 0 AS relation_size;
SELECT * FROM strata.merge('t');
SELECT * FROM strata.seal('t');
SELECT * FROM strata.sweep('t');
SELECT * FROM strata.verify('t');
SELECT strata.create_key_index('t');
SELECT strata.drop_key_index('t');
CALL strata.drain('t');
SELECT strata.has_key_index('capped');
SELECT strata.relation_size('capped');
SET ROLE strata_merge_owner;
INSERT INTO capped VALUES (1, 'owner');
SELECT count(*) FROM strata.seal('capped');
SELECT generations_merged, rows_replaced FROM strata.merge('capped');
SELECT * FROM strata.verify('capped');
SELECT blocks_left FROM strata.sweep('capped');
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA merge_test CASCADE;
DROP ROLE strata_merge_reader, strata_merge_owner;
