-- Options of foreign tables, and the GUCs that are their defaults.
\set VERBOSITY default
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA options;
SET search_path = options;
\set SHOW_CONTEXT never

-- every option
CREATE FOREIGN TABLE t (id int, b text) SERVER strata OPTIONS (
    key 'id', shards '3', on_duplicate 'ignore', compression_level '5', row_group_rows '1000',
    row_group_bytes '1MB', generation_max_bytes '64kB', generation_max_rows '100', merge_after_generations '0',
    merge_interval '5min', merge_max_generations '0', merge_max_bytes '1.5GB', auto_merge 'off');
SELECT unnest(ftoptions) FROM pg_foreign_table WHERE ftrelid = 't'::regclass;
DROP FOREIGN TABLE t;

-- names
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (shard '2');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (on_duplicat 'error');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (merge_max_generation '1');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS ("KEY" 'id');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (something_else '1');
ALTER SERVER strata OPTIONS (ADD key 'id');
CREATE SERVER nope FOREIGN DATA WRAPPER strata OPTIONS (host 'x');
ALTER FOREIGN DATA WRAPPER strata OPTIONS (ADD shards '1');
CREATE FOREIGN TABLE t (id int OPTIONS (key 'id')) SERVER strata;
CREATE USER MAPPING FOR CURRENT_USER SERVER strata OPTIONS (password 'x');

-- values
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (shards '0');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (shards '32');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (shards 'many');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (shards '2kB');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (row_group_rows '65535');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (row_group_bytes '1 parsec');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (row_group_bytes '2GB');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (merge_max_bytes '-1');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (merge_max_bytes 'nan');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (merge_interval '1MB');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (compression_level '23');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (auto_merge 'maybe');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (on_duplicate 'update');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (on_duplicate 'error');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key '');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key 'id,');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key 'id, ID');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (layer 'wal');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (store 'x');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (store 'x', layer 'middle');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (store 'x.', layer 'wal');
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (store 'x', layer 'wal', key 'id');

-- identifiers in the key are folded unless quoted
CREATE FOREIGN TABLE t (id int, "Id" int, "a,b" int) SERVER strata OPTIONS (key 'ID , "Id","a,b"');
SELECT key FROM strata.stores WHERE store = 't'::regclass;
DROP FOREIGN TABLE t;

-- defaults
SELECT name, setting, unit, vartype, min_val, max_val, context FROM pg_settings WHERE name LIKE 'strata.%' ORDER BY name;
SET strata.merge_max_bytes = '64MB';
SHOW strata.merge_max_bytes;
SET strata.merge_max_bytes = 1234567;
SHOW strata.merge_max_bytes;
RESET strata.merge_max_bytes;
SHOW strata.merge_max_bytes;
\set VERBOSITY sqlstate
SET strata.merge_max_bytes = -1;
\set VERBOSITY default
SELECT min_val, max_val FROM pg_settings WHERE name = 'strata.merge_max_bytes';
SET strata.on_duplicate = 'update';
SET strata.nosuch = 1;
SET strata.shards = 2;
CREATE FOREIGN TABLE two_shards (id int) SERVER strata OPTIONS (key 'id');
RESET strata.shards;
SELECT shards FROM strata.stores WHERE store = 'two_shards'::regclass;
INSERT INTO two_shards SELECT generate_series(1, 10);
SELECT count(*) FROM two_shards;

-- a default that changes is followed at once, an option is stronger
CREATE FOREIGN TABLE dup (id int, v int) SERVER strata OPTIONS (key 'id');
INSERT INTO dup VALUES (1, 1);
SET strata.on_duplicate = 'error';
INSERT INTO dup VALUES (1, 2);
SET strata.on_duplicate = 'ignore';
INSERT INTO dup VALUES (1, 3);
SELECT * FROM dup;
ALTER FOREIGN TABLE dup OPTIONS (ADD on_duplicate 'replace');
INSERT INTO dup VALUES (1, 4);
SELECT * FROM dup;
RESET strata.on_duplicate;
ALTER FOREIGN TABLE dup OPTIONS (SET on_duplicate 'error');
INSERT INTO dup VALUES (1, 5);
ALTER FOREIGN TABLE dup OPTIONS (DROP on_duplicate);
INSERT INTO dup VALUES (1, 6);
SELECT * FROM dup;

-- and is nothing without a key
CREATE FOREIGN TABLE every (id int) SERVER strata;
ALTER FOREIGN TABLE every OPTIONS (ADD on_duplicate 'replace');
ALTER FOREIGN TABLE every OPTIONS (ADD on_duplicate 'error', ADD key 'id');
ALTER FOREIGN TABLE every OPTIONS (DROP key);
ALTER FOREIGN TABLE every OPTIONS (DROP key, DROP on_duplicate);
INSERT INTO every VALUES (1), (1);
SELECT * FROM every;

DROP SCHEMA options CASCADE;
