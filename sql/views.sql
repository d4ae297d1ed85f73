--
-- Views: what they show, and to whom (P45).
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA views_test;
SET search_path = views_test, public;
CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');

CREATE VIEW my_stores AS
    SELECT store, key, shards, pending_generations, pending_rows, pending_bytes > 0 AS pending_bytes,
           oldest_pending_age >= interval '0' AS oldest_pending_age, base_rows, row_groups,
           base_bytes > 0 AS base_bytes, relation_bytes > 0 AS relation_bytes, key_index
    FROM strata.stores
    WHERE store IN (to_regclass('views_test.t'), to_regclass('views_test.keyless')) ORDER BY store::text;
CREATE VIEW my_generations AS
    SELECT store, shard, generation, state, rows, bytes > 0 AS bytes, first_block > 1 AS first_block,
           last_block > 1 AS last_block, age >= interval '0' AS age, blocked_by
    FROM strata.generations WHERE store = 'views_test.t'::regclass ORDER BY shard, generation;
CREATE VIEW my_row_groups AS
    SELECT store, number, rows, deleted, raw_bytes > 0 AS raw_bytes, stored_bytes > 0 AS stored_bytes,
           first_block > 1 AS first_block, blocks
    FROM strata.row_groups WHERE store = 'views_test.t'::regclass ORDER BY number;
CREATE VIEW my_merges AS
    SELECT store, what, generations_merged, generations_left, rows_read, rows_inserted, rows_replaced,
           row_groups_written, ended >= started AS times
    FROM strata.merges WHERE store = 'views_test.t'::regclass ORDER BY started;

-- empty
SELECT * FROM my_stores;
SELECT * FROM my_generations;
SELECT * FROM my_row_groups;
SELECT * FROM my_merges;

-- one generation sealed, one active
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 20) g;
SELECT * FROM strata.seal('t');
INSERT INTO t SELECT g, 'y' FROM generate_series(11, 25) g;
SELECT * FROM my_stores;
SELECT * FROM my_generations;

-- blocked by the transaction that wrote it
BEGIN;
INSERT INTO t VALUES (1, 'z');
SELECT generation, state, rows, blocked_by::text = (pg_current_xact_id()::text::bigint % 4294967296)::text AS blocked_by_me
FROM strata.generations WHERE store = 't'::regclass ORDER BY generation;
ROLLBACK;
SELECT * FROM my_generations;

-- merged
SELECT generations_merged FROM strata.merge('t');
CALL strata.drain('t');
SELECT * FROM my_stores;
SELECT * FROM my_generations;
SELECT * FROM my_row_groups;
SELECT * FROM my_merges;

-- a merge rolled back is not shown
INSERT INTO t VALUES (1, 'again');
SELECT * FROM strata.seal('t');
BEGIN;
SELECT generations_merged FROM strata.merge('t');
SELECT * FROM my_row_groups;
ROLLBACK;
SELECT count(*) FROM my_row_groups;
SELECT count(*) FROM my_merges;

-- keyless
CREATE FOREIGN TABLE keyless (n int) SERVER strata OPTIONS (auto_merge 'off');
INSERT INTO keyless VALUES (1);
SELECT store, key, key_index, pending_rows FROM my_stores;

-- rights: what one may SELECT or owns
CREATE ROLE strata_views_reader;
CREATE ROLE strata_views_stranger;
GRANT USAGE ON SCHEMA views_test TO strata_views_reader, strata_views_stranger;
GRANT SELECT ON t TO strata_views_reader;
SET ROLE strata_views_reader;
SELECT store, pending_rows FROM strata.stores WHERE store IN ('t'::regclass, 'keyless'::regclass);
SELECT count(*) FROM strata.generations WHERE store = 't'::regclass;
SELECT count(*) FROM strata.row_groups WHERE store = 't'::regclass;
SELECT count(*) FROM strata.merges WHERE store = 't'::regclass;
SET ROLE strata_views_stranger;
SELECT count(*) FROM strata.stores WHERE store IN ('t'::regclass, 'keyless'::regclass);
SELECT count(*) FROM strata.generations WHERE store = 't'::regclass;
SELECT count(*) FROM strata.row_groups WHERE store = 't'::regclass;
SELECT count(*) FROM strata.merges WHERE store = 't'::regclass;
SELECT * FROM strata.store;
SELECT * FROM strata.row_group;
-- a table over one layer tells nothing more of its store, sizes included
RESET ROLE;
CREATE FOREIGN TABLE t_wal (id int) SERVER strata OPTIONS (store 't', layer 'wal');
GRANT SELECT ON t_wal TO strata_views_stranger;
SET ROLE strata_views_stranger;
SELECT count(*) FROM t_wal;
EXPLAIN (COSTS OFF) SELECT * FROM t_wal;
RESET ROLE;
DROP FOREIGN TABLE t_wal;

-- no table
SELECT generations_merged FROM strata.merge(NULL);
CALL strata.drain(NULL);
SELECT * FROM strata.seal(NULL);
SELECT * FROM strata.sweep(NULL);
SELECT * FROM strata.verify(NULL);
SELECT strata.create_key_index(NULL);
SELECT strata.drop_key_index(NULL);
SELECT strata.set_tablespace(NULL, 'pg_default');
SELECT strata.set_tablespace('keyless', NULL);
SELECT strata.record_columns(NULL);
SELECT * FROM strata.health(NULL) WHERE severity = 'error';
SELECT strata.has_key_index(NULL) IS NULL, strata.relation_size(NULL) IS NULL;

-- dropped
DROP FOREIGN TABLE keyless;
SELECT store FROM my_stores;

SET client_min_messages = warning;
DROP SCHEMA views_test CASCADE;
DROP ROLE strata_views_reader, strata_views_stranger;
