--
-- strata.health() and the state in strata.stores (L8, L15, L49).
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA health_test;
SET search_path = health_test, public;
CREATE FOREIGN TABLE t (id int, v text) SERVER strata
    OPTIONS (key 'id', merge_after_generations '1', merge_interval '0');
CREATE VIEW health AS SELECT severity, what, advice FROM strata.health() WHERE store = 'health_test.t'::regclass;

-- nothing is wrong (and this is the first look)
SELECT * FROM health;
SELECT severity, what FROM strata.health() WHERE what LIKE '%automatic merging%';

-- a backlog beyond what the trigger allows, and more than at the last look
SELECT 'INSERT INTO t VALUES (' || g || ', ''x'')', 'SELECT FROM strata.seal(''t'')' FROM generate_series(1, 6) g
\gexec
SELECT pending_generations, wanted_by, pending_growth, growth_since IS NOT NULL AS seen FROM strata.stores WHERE store = 't'::regclass;
SELECT * FROM health;
INSERT INTO t SELECT g, 'y' FROM generate_series(1, 100) g;
SELECT * FROM health;
SELECT pending_growth > 0 AS grows, wanted_by FROM strata.stores WHERE store = 't'::regclass;
ALTER FOREIGN TABLE t OPTIONS (ADD auto_merge 'off');
SELECT * FROM health;
SELECT wanted_by FROM strata.stores WHERE store = 't'::regclass;
SET client_min_messages = warning;
CALL strata.drain('t');
RESET client_min_messages;
SELECT * FROM health;
SELECT pending_growth, wanted_by FROM strata.stores WHERE store = 't'::regclass;

-- the key index: there and usable, there and not, not there
SET allow_system_table_mods = on;
UPDATE pg_index SET indisvalid = false FROM strata.stores s WHERE s.store = 't'::regclass AND indrelid = s.storage;
RESET allow_system_table_mods;
SELECT * FROM health;
SELECT strata.create_key_index('t');
SELECT * FROM health;
SELECT strata.drop_key_index('t');
SELECT * FROM health;
SELECT strata.create_key_index('t');

-- who holds back what can be reclaimed
BEGIN;
INSERT INTO t VALUES (-1, 'prepared');
PREPARE TRANSACTION 'health_test';
SELECT what ~ '^transaction ''health_test'' is prepared since' AS ok, severity, advice
FROM strata.health(interval '0') WHERE what LIKE 'transaction%health_test%';
SELECT count(*) FROM strata.health() WHERE what LIKE 'transaction%health_test%';
ROLLBACK PREPARED 'health_test';

-- as many generations as an int can say are no backlog yet
ALTER FOREIGN TABLE t OPTIONS (SET merge_after_generations '2147483647');
SELECT count(*) FROM strata.health() WHERE store = 't'::regclass AND what LIKE '%generations are pending%';
ALTER FOREIGN TABLE t OPTIONS (SET merge_after_generations '1');

-- messages are for owners
CREATE ROLE strata_health_stranger;
SET ROLE strata_health_stranger;
SELECT count(*) FROM strata.health() WHERE store IS NOT NULL;
RESET ROLE;

-- the history of passes is pruned
\set ECHO none
\o /dev/null
SELECT 'INSERT INTO t VALUES (' || g || ', ''z'')', 'SELECT FROM strata.seal(''t'')', 'SELECT generations_merged FROM strata.merge(''t'')' FROM generate_series(1, 270) g
\gexec
\o
\set ECHO all
SELECT count(*), count(*) FILTER (WHERE generations_merged = 1) FROM strata.merges WHERE store = 't'::regclass;

SET client_min_messages = warning;
DROP SCHEMA health_test CASCADE;
DROP ROLE strata_health_stranger;
