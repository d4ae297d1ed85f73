--
-- strata.repair: who may call it, and what it tells when something is planted
-- in the manifest.  Damaged pages are in test/t/028_repair.pl.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA repair_test;
SET search_path = repair_test, public;
CREATE FOREIGN TABLE t (id int NOT NULL, tag text NOT NULL, v text) SERVER strata
    OPTIONS (key 'id, tag', shards '2', auto_merge 'off');
CREATE FOREIGN TABLE keyless (v text) SERVER strata OPTIONS (auto_merge 'off');
CREATE FOREIGN TABLE empty (id int NOT NULL) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE FOREIGN TABLE t_base (id int NOT NULL, tag text NOT NULL) SERVER strata OPTIONS (store 't', layer 'base');
CREATE TABLE plain (id int);
INSERT INTO t SELECT g, 'a', md5(g::text) FROM generate_series(1, 3000) g;
INSERT INTO keyless SELECT md5(g::text) FROM generate_series(1, 3000) g;
SET client_min_messages = warning;
CALL strata.drain('t');
CALL strata.drain('keyless');
INSERT INTO t SELECT g, 'a', md5('again' || g) FROM generate_series(1, 30) g;
CALL strata.drain('t');
RESET client_min_messages;
INSERT INTO t VALUES (1, 'b', 'pending'), (2, 'b', 'pending');
INSERT INTO keyless VALUES ('pending');

-- nothing is wrong
SELECT * FROM strata.repair('t');
SELECT * FROM strata.repair('t', dry_run => NULL);
SELECT * FROM strata.repair('t', dry_run => false);
SELECT * FROM strata.repair('keyless', false);
SELECT * FROM strata.repair('empty', false);
SELECT count(*), sum(id) FROM t;
SELECT what FROM strata.merges WHERE store = 't'::regclass AND what = 'repair';

-- arguments and rights
\set VERBOSITY terse
SELECT * FROM strata.repair(NULL);
SELECT * FROM strata.repair('plain');
SELECT * FROM strata.repair('t_base');
BEGIN;
SELECT * FROM strata.repair('t', dry_run => false);
ROLLBACK;
BEGIN READ ONLY;
SELECT * FROM strata.repair('t');
ROLLBACK;
DO $$BEGIN
    PERFORM strata.repair('repair_test.t', dry_run => false);
EXCEPTION WHEN active_sql_transaction THEN RAISE NOTICE 'not in a subtransaction';
END$$;
SET default_transaction_isolation = 'repeatable read';
SELECT * FROM strata.repair('t', dry_run => false);
RESET default_transaction_isolation;
SET default_transaction_read_only = on;
SELECT * FROM strata.repair('t', dry_run => false);
RESET default_transaction_read_only;
CREATE ROLE repair_reader;
GRANT USAGE ON SCHEMA repair_test TO repair_reader;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO repair_reader;
SET ROLE repair_reader;
SELECT * FROM strata.repair('t');
SELECT * FROM strata.repair('t', dry_run => false);
RESET ROLE;
CREATE ROLE repair_owner;
GRANT CREATE, USAGE ON SCHEMA repair_test TO repair_owner;
ALTER FOREIGN TABLE t OWNER TO repair_owner;
SET ROLE repair_owner;
SELECT * FROM strata.repair('t');
SELECT * FROM strata.repair('t', dry_run => false);
RESET ROLE;
\set VERBOSITY default

-- a row group that lies elsewhere; the numbers differ from machine to machine
CREATE VIEW losses AS
    SELECT kind, row_group, rows_lost, first_key, last_key,
           regexp_replace(problem, 'block [0-9]+|"s[0-9]+"', 'N', 'g') AS problem, action
    FROM strata.repair('repair_test.t');
BEGIN;
UPDATE strata.row_group SET first_block = 100000 WHERE store = 't'::regclass AND number = 1;
SELECT * FROM losses;
ROLLBACK;
-- the manifest itself is not for repair
BEGIN;
UPDATE strata.deletes SET tids = '\x00' WHERE store = 't'::regclass;
SELECT * FROM losses;
ROLLBACK;
-- a row group that is gone: its rows are, and those that they superseded stay so
UPDATE strata.row_group SET first_block = 100000 WHERE store = 't'::regclass AND number = 2;
\c -
SET search_path = repair_test, public;
SELECT kind, row_group, rows_lost, action FROM strata.repair('t', dry_run => false);
SELECT count(*), min(id), max(id) FROM t WHERE tag = 'a';
SELECT id, v FROM t WHERE id <= 2 ORDER BY id;
SELECT * FROM strata.repair('t');
SELECT * FROM strata.verify('t');
SELECT what, rows_deleted FROM strata.merges WHERE store = 't'::regclass AND what = 'repair';
INSERT INTO t VALUES (1, 'a', 'new');
SET client_min_messages = warning;
CALL strata.drain('t');
RESET client_min_messages;
SELECT count(*) FROM strata.sweep('t');
SELECT * FROM strata.verify('t', swept => true);
SELECT count(*), min(id), max(id) FROM t WHERE tag = 'a';

SET client_min_messages = warning;
DROP SCHEMA repair_test CASCADE;
DROP ROLE repair_reader;
DROP ROLE repair_owner;
