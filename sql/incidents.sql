--
-- What went wrong in other stores, as far as one session shows it: columns that
-- come and go between generations (L41, L42), payloads (L43), what a lookup
-- reads (L44), views that write nothing (L49).
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA incidents;
SET search_path = incidents, public;

-- a column more in each generation: merged together, none is lost
CREATE FOREIGN TABLE t (id int NOT NULL, a text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO t VALUES (1, 'one'), (2, 'two');
SELECT FROM strata.seal('t');
ALTER FOREIGN TABLE t ADD COLUMN b int DEFAULT 7;
INSERT INTO t VALUES (2, 'two again', NULL), (3, 'three', 3);
SELECT FROM strata.seal('t');
ALTER FOREIGN TABLE t ADD COLUMN c jsonb;
INSERT INTO t VALUES (4, 'four', 4, '{"c": 4}');
INSERT INTO t (id, d) VALUES (5, 'unknown');
SELECT FROM strata.seal('t');
SELECT * FROM t ORDER BY id;
SELECT generations_merged, generations_left FROM strata.merge('t');
SELECT * FROM t ORDER BY id;
-- one goes while rows with it are pending
INSERT INTO t VALUES (5, 'five', 5, '5');
ALTER FOREIGN TABLE t DROP COLUMN a;
INSERT INTO t VALUES (1, 11, '11');
SELECT FROM strata.seal('t');
SELECT generations_merged, generations_left FROM strata.merge('t');
SELECT * FROM t ORDER BY id;
SELECT row_groups_read, row_groups_written FROM strata.compact('t');
SELECT * FROM t ORDER BY id;
-- what would not fit is refused
ALTER FOREIGN TABLE t ALTER COLUMN b TYPE text;
ALTER FOREIGN TABLE t DROP COLUMN id;
SELECT * FROM strata.verify('t');

-- payloads of all sizes: the same pending, merged and compacted
CREATE FOREIGN TABLE payloads (id int NOT NULL, p bytea) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE VIEW digest AS SELECT count(*), sum(length(p)) AS bytes, md5(string_agg(md5(p), '' ORDER BY id)) FROM payloads;
INSERT INTO payloads SELECT g, convert_to(repeat(md5(g::text), (3 ^ (g % 12))::int / 32 + 1), 'UTF8') FROM generate_series(1, 60) g;
INSERT INTO payloads VALUES (61, ''), (62, NULL), (63, decode(repeat('00ff', 300000), 'hex'));
TABLE digest;
SELECT FROM strata.seal('payloads');
BEGIN;
SELECT generations_merged FROM strata.merge('payloads');
TABLE digest;
ROLLBACK;
TABLE digest;
SELECT generations_merged FROM strata.merge('payloads');
TABLE digest;
INSERT INTO payloads SELECT id, p FROM payloads WHERE id % 7 = 0;
SELECT FROM strata.seal('payloads');
SELECT generations_merged FROM strata.merge('payloads');
SELECT row_groups_read FROM strata.compact('payloads');
TABLE digest;

-- a lookup of other columns costs the same beside large payloads
CREATE FUNCTION buffers(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || query INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
END$$;
CREATE FOREIGN TABLE narrow (id int NOT NULL, v int, p text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE FOREIGN TABLE wide (id int NOT NULL, v int, p text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO narrow SELECT g, g, 'x' FROM generate_series(1, 200) g;
INSERT INTO wide SELECT g, g, (SELECT string_agg(md5(random()::text || g || i), '') FROM generate_series(1, 1000) i) FROM generate_series(1, 200) g;
SET client_min_messages = warning;
CALL strata.drain('narrow');
CALL strata.drain('wide');
RESET client_min_messages;
SELECT base_bytes > 3000000 AS wide FROM strata.stores WHERE store = 'wide'::regclass;
SELECT v FROM narrow WHERE id = 150;
SELECT v FROM wide WHERE id = 150;
SELECT buffers('SELECT v FROM wide WHERE id = 77') <= buffers('SELECT v FROM narrow WHERE id = 77') + 8 AS as_cheap;
SELECT buffers('SELECT v, p FROM wide WHERE id = 77') < 60 AS one_value;

-- views and functions that look write nothing
BEGIN;
SELECT count(*) > 0 AS stores FROM strata.stores;
SELECT count(*) >= 0 AS generations FROM strata.generations;
SELECT count(*) > 0 AS row_groups FROM strata.row_groups;
SELECT count(*) > 0 AS merges FROM strata.merges;
SELECT count(*) >= 0 AS workers FROM strata.workers;
SELECT count(*) >= 0 AS stat FROM strata.stat;
SELECT count(*) >= 0 AS health FROM strata.health();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written;
COMMIT;

SET client_min_messages = warning;
DROP SCHEMA incidents CASCADE;
