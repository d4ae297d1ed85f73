-- Life cycle of a store: made, followed and dropped with its foreign table (P2 - P4, P9, P62, P63, C5, C14).
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA life;
SET search_path = life, public;

-- what there is for a table, and what is there for no table
CREATE VIEW stores AS
    SELECT s.foreign_table::regclass AS ft, c.relnamespace::regnamespace AS schema,
           c.relname = 's' || s.foreign_table AS named, a.amname, s.key, s.shards, s.incarnation,
           (SELECT count(*) FROM strata.shard WHERE store = s.foreign_table) AS shard_rows,
           (SELECT count(*) FROM pg_index WHERE indrelid = c.oid AND indisvalid) AS indexes,
           (SELECT count(*) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid
              AND deptype = 'e') AS member
    FROM strata.store s JOIN pg_class c ON c.oid = s.storage JOIN pg_am a ON a.oid = c.relam
    WHERE s.foreign_table IN (SELECT oid FROM pg_class WHERE relnamespace = 'life'::regnamespace);
CREATE VIEW leaks AS
    SELECT 'store' AS what, foreign_table AS oid FROM strata.store
      WHERE foreign_table NOT IN (SELECT oid FROM pg_class)
    UNION ALL SELECT 'no storage', foreign_table FROM strata.store
      WHERE storage NOT IN (SELECT oid FROM pg_class)
    UNION ALL SELECT 'relation', oid FROM pg_class
      WHERE relam = (SELECT oid FROM pg_am WHERE amname = 'strata_storage')
        AND oid NOT IN (SELECT storage FROM strata.store)
    UNION ALL SELECT 'shard', store FROM strata.shard WHERE store NOT IN (SELECT foreign_table FROM strata.store)
    UNION ALL SELECT 'row_group', store FROM strata.row_group WHERE store NOT IN (SELECT foreign_table FROM strata.store)
    UNION ALL SELECT 'deletes', store FROM strata.deletes WHERE store NOT IN (SELECT foreign_table FROM strata.store)
    UNION ALL SELECT 'pass', store FROM strata.pass WHERE store NOT IN (SELECT foreign_table FROM strata.store);

-- created with the table
CREATE FOREIGN TABLE one (id text NOT NULL, v int) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE keyless (v int) SERVER strata;
CREATE FOREIGN TABLE two ("Second Key" uuid, a bigint, b text COLLATE "C") SERVER strata
    OPTIONS (key 'a, "Second Key"', shards '4');
CREATE FOREIGN TABLE IF NOT EXISTS one (id text) SERVER strata;
SELECT * FROM stores ORDER BY ft::text;
SELECT relname = 's' || 'one'::regclass::oid AS named, reloptions, relpersistence, relowner = (SELECT extowner FROM pg_extension WHERE extname = 'strata') AS ours
    FROM pg_class WHERE oid = (SELECT storage FROM strata.store WHERE foreign_table = 'one'::regclass);

-- a key can be of any built-in type with both operator classes
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN more_positive AS positive CHECK (VALUE > 1);
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['text', 'varchar(10)', 'char(5)', 'name', 'uuid', 'smallint', 'int', 'bigint',
        'numeric(10,2)', 'real', 'double precision', 'boolean', 'date', 'time', 'timetz', 'timestamp', 'timestamptz',
        'interval', 'bytea', 'inet', 'macaddr', 'oid', 'jsonb', 'pg_lsn', 'int[]', 'text[]', 'int4range', '"char"',
        'positive', 'more_positive', 'text COLLATE "C"'] LOOP
        EXECUTE format('CREATE FOREIGN TABLE k (k %s) SERVER strata OPTIONS (key ''k'')', t);
        EXECUTE 'DROP FOREIGN TABLE k';
    END LOOP;
END $$;
CREATE FOREIGN TABLE bad (id int) SERVER strata OPTIONS (key 'nosuch');
CREATE FOREIGN TABLE bad ("Id" int NOT NULL) SERVER strata OPTIONS (key 'Id');
CREATE FOREIGN TABLE bad (id int) SERVER strata OPTIONS (key 'ctid');
CREATE FOREIGN TABLE bad ("Id" int NOT NULL) SERVER strata OPTIONS (key 'Id');
CREATE FOREIGN TABLE bad (id json) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE bad (id point) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE bad (id money) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE bad (id money[]) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE bad (id tsvector) SERVER strata OPTIONS (key 'id');
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE FOREIGN TABLE bad (id mood) SERVER strata OPTIONS (key 'id');
CREATE TYPE pair AS (a int, b int);
CREATE FOREIGN TABLE bad (id pair) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE bad (a int, b int) SERVER strata OPTIONS (key 'a, b, a');
CREATE FOREIGN TABLE pg_temp.bad (id int) SERVER strata OPTIONS (key 'id');
SELECT count(*) FROM leaks;

-- rolled back with the table, also by savepoint
BEGIN;
CREATE FOREIGN TABLE gone (id int, v int) SERVER strata OPTIONS (key 'id');
INSERT INTO gone VALUES (1, 1);
SELECT * FROM gone;
ROLLBACK;
BEGIN;
SAVEPOINT a;
CREATE FOREIGN TABLE gone (id int, v int) SERVER strata OPTIONS (key 'id');
INSERT INTO gone VALUES (1, 1);
ROLLBACK TO a;
CREATE FOREIGN TABLE kept (id int, v int) SERVER strata OPTIONS (key 'id');
INSERT INTO kept VALUES (1, 1);
SAVEPOINT b;
DROP FOREIGN TABLE kept;
ROLLBACK TO b;
INSERT INTO kept VALUES (2, 2);
COMMIT;
SELECT * FROM kept ORDER BY id;
DO $$
BEGIN
    CREATE FOREIGN TABLE life.in_do (id int) SERVER strata OPTIONS (key 'id');
    INSERT INTO life.in_do VALUES (1);
    BEGIN
        CREATE FOREIGN TABLE life.gone (id int) SERVER strata OPTIONS (key 'id');
        DROP FOREIGN TABLE life.in_do;
        RAISE EXCEPTION 'undo';
    EXCEPTION WHEN raise_exception THEN
        INSERT INTO life.in_do VALUES (2);
    END;
END $$;
SELECT * FROM in_do ORDER BY id;
SELECT * FROM leaks;

-- whatever drops the table drops the store
BEGIN; DROP FOREIGN TABLE in_do; SELECT count(*) FROM strata.store WHERE foreign_table NOT IN (SELECT oid FROM pg_class); ROLLBACK;
SELECT * FROM in_do ORDER BY id;
DROP FOREIGN TABLE in_do, kept;
CREATE SCHEMA life2;
CREATE FOREIGN TABLE life2.a (id int) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE life2.b (id int) SERVER strata;
INSERT INTO life2.a VALUES (1);
CALL strata.drain('life2.a');
DROP SCHEMA life2 CASCADE;
CREATE SERVER other_server FOREIGN DATA WRAPPER strata;
CREATE FOREIGN TABLE on_other (id int) SERVER other_server OPTIONS (key 'id');
INSERT INTO on_other VALUES (1);
SELECT * FROM on_other;
DROP SERVER other_server CASCADE;
CREATE TABLE parent (id int NOT NULL, v int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE part1 PARTITION OF parent FOR VALUES FROM (0) TO (10) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE part2 PARTITION OF parent FOR VALUES FROM (10) TO (20) SERVER strata OPTIONS (key 'id');
INSERT INTO parent SELECT i, i FROM generate_series(0, 19) i;
SELECT tableoid::regclass, count(*) FROM parent GROUP BY 1 ORDER BY 1;
INSERT INTO part1 VALUES (10, 0);
DROP TABLE parent;
DO $$ BEGIN EXECUTE 'CREATE FOREIGN TABLE life.x (id int) SERVER strata'; EXECUTE 'DROP FOREIGN TABLE life.x'; END $$;
CREATE FOREIGN TABLE by_type (id int, m mood) SERVER strata OPTIONS (key 'id');
INSERT INTO by_type VALUES (1, 'sad');
DROP TYPE mood CASCADE;
SELECT * FROM by_type;
DROP FOREIGN TABLE by_type;
SELECT * FROM leaks;

-- an ordinary role with USAGE on the server, no search_path, replica role
CREATE ROLE strata_life_plain;
GRANT USAGE ON FOREIGN SERVER strata TO strata_life_plain;
GRANT USAGE ON SCHEMA life TO strata_life_plain;
CREATE SCHEMA plain AUTHORIZATION strata_life_plain;
SET ROLE strata_life_plain;
SET search_path = '';
CREATE FOREIGN TABLE plain.t (id text, v int) SERVER strata OPTIONS (key 'id');
INSERT INTO plain.t VALUES ('a', 1), ('b', 2);
SELECT * FROM plain.t ORDER BY id;
ALTER FOREIGN TABLE plain.t ADD COLUMN w int DEFAULT 5;
SELECT * FROM plain.t ORDER BY id;
CALL strata.drain('plain.t');
SELECT * FROM strata.verify('plain.t');
TRUNCATE plain.t;
SELECT count(*) FROM plain.t;
SELECT * FROM strata.store;
DELETE FROM strata.shard;
SELECT strata.drop_orphans();
SELECT strata.record_columns('life.one');
SELECT * FROM strata.merge('life.one');
CALL strata.drain('life.one');
SELECT * FROM strata.seal('life.one');
SELECT * FROM strata.sweep('life.one');
SELECT * FROM strata.verify('life.one');
SELECT strata.create_key_index('life.one');
SELECT strata.drop_key_index('life.one');
SELECT strata.has_key_index('life.one');
SELECT strata.relation_size('life.one');
SELECT count(*) FROM strata.stores;
SELECT count(*) FROM strata.merges WHERE store <> 'plain.t'::regclass;
RESET ROLE;
SET session_replication_role = replica;
CREATE FOREIGN TABLE plain.r (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO plain.r VALUES (1);
SELECT * FROM plain.r;
DROP FOREIGN TABLE plain.r;
RESET session_replication_role;
DROP OWNED BY strata_life_plain;
DROP ROLE strata_life_plain;
SET search_path = life, public;
SELECT * FROM leaks;

-- owner, schema and names can change
CREATE ROLE strata_life_owner;
CREATE SCHEMA life3;
ALTER FOREIGN TABLE one OWNER TO strata_life_owner;
INSERT INTO one VALUES ('a', 1);
ALTER FOREIGN TABLE one SET SCHEMA life3;
ALTER FOREIGN TABLE life3.one RENAME TO uno;
ALTER FOREIGN TABLE life3.uno RENAME COLUMN id TO "The Id";
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'life3.uno'::regclass;
ALTER TABLE life3.uno RENAME COLUMN v TO w;
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'life3.uno'::regclass;
INSERT INTO life3.uno VALUES ('a', 2);
SELECT * FROM life3.uno WHERE "The Id" = 'a';
ALTER FOREIGN TABLE life3.uno RENAME COLUMN "The Id" TO id;
ALTER FOREIGN TABLE life3.uno RENAME COLUMN w TO v;
REASSIGN OWNED BY strata_life_owner TO CURRENT_USER;
DROP ROLE strata_life_owner;
ALTER FOREIGN TABLE life3.uno SET SCHEMA life;
ALTER FOREIGN TABLE uno RENAME TO one;
DROP SCHEMA life3;
SELECT * FROM one;

-- what the stored rows do not allow
ALTER FOREIGN TABLE one DROP COLUMN id;
ALTER FOREIGN TABLE one DROP COLUMN id CASCADE;
ALTER FOREIGN TABLE one OPTIONS (SET key 'v');
ALTER FOREIGN TABLE one OPTIONS (DROP key);
ALTER FOREIGN TABLE one OPTIONS (SET key 'nosuch');
ALTER FOREIGN TABLE one OPTIONS (ADD shards '2');
ALTER FOREIGN TABLE one OPTIONS (ADD shards '1');
ALTER FOREIGN TABLE keyless OPTIONS (ADD layer 'wal', ADD store 'two');
ALTER FOREIGN TABLE one ALTER COLUMN v TYPE text;
ALTER FOREIGN TABLE one ALTER COLUMN v TYPE bigint;
ALTER FOREIGN TABLE one ALTER COLUMN id TYPE varchar;
ALTER FOREIGN TABLE one ALTER COLUMN id TYPE text COLLATE "C";
ALTER FOREIGN TABLE one ADD COLUMN r float8 DEFAULT random();
ALTER FOREIGN TABLE one ADD COLUMN s int GENERATED ALWAYS AS (v + 1) STORED;
ALTER FOREIGN TABLE one ADD COLUMN s int GENERATED ALWAYS AS IDENTITY;
ALTER FOREIGN TABLE one ADD COLUMN s int NOT NULL;
ALTER FOREIGN TABLE one ADD COLUMN s positive DEFAULT -1;
SELECT * FROM one;
SELECT * FROM leaks;

-- what they do
ALTER FOREIGN TABLE one ADD COLUMN t timestamptz DEFAULT now();
SELECT count(DISTINCT t), bool_and(t = (SELECT max(t) FROM one)) FROM one;
ALTER FOREIGN TABLE one DROP COLUMN t;
ALTER FOREIGN TABLE one ADD COLUMN s varchar(3) DEFAULT 'abc', ADD COLUMN n numeric NOT NULL DEFAULT 1.50, ADD COLUMN x int,
    ADD COLUMN arr text[] DEFAULT '{a,b}', ADD COLUMN big text DEFAULT repeat('x', 3000), ADD COLUMN p positive DEFAULT 7;
INSERT INTO one (id, v, s, x, arr) VALUES ('b', 3, NULL, 4, NULL);
SELECT id, v, s, n, x, arr, length(big) AS big, p FROM one ORDER BY id;
CALL strata.drain('one');
SELECT id, v, s, n, x, arr, length(big) AS big, p FROM one ORDER BY id;
ALTER FOREIGN TABLE one ALTER COLUMN n SET DEFAULT 9, ALTER COLUMN s DROP DEFAULT;
ALTER FOREIGN TABLE one ALTER COLUMN s TYPE varchar(10);
ALTER FOREIGN TABLE one ALTER COLUMN s TYPE text;
ALTER FOREIGN TABLE one ALTER COLUMN s TYPE varchar(10);
INSERT INTO one (id, s) VALUES ('c', 'abcdefghij');
SELECT id, s, n FROM one ORDER BY id;
ALTER FOREIGN TABLE one DROP COLUMN x, ADD COLUMN x text DEFAULT 'new x';
SELECT id, s, n, x FROM one ORDER BY id;
SELECT * FROM strata.verify('one');

-- a change rolled back is as if it had never been
BEGIN;
ALTER FOREIGN TABLE one ADD COLUMN y int DEFAULT 42;
INSERT INTO one (id) VALUES ('d');
SELECT id, y FROM one ORDER BY id;
ROLLBACK;
ALTER FOREIGN TABLE one ADD COLUMN y int DEFAULT 43;
SELECT id, y FROM one ORDER BY id;

-- an empty store can become anything; TRUNCATE makes it empty enough for types
CREATE FOREIGN TABLE blank (id int, v int) SERVER strata OPTIONS (key 'id');
ALTER FOREIGN TABLE blank OPTIONS (SET key 'v', ADD shards '3');
ALTER FOREIGN TABLE blank ALTER COLUMN v TYPE text;
ALTER FOREIGN TABLE blank DROP COLUMN id;
ALTER FOREIGN TABLE blank ADD COLUMN r float8 NOT NULL DEFAULT random();
INSERT INTO blank VALUES ('k', 1);
SELECT * FROM blank;
SELECT * FROM stores WHERE ft = 'blank'::regclass;
ALTER FOREIGN TABLE blank ALTER COLUMN r TYPE text;
TRUNCATE blank;
ALTER FOREIGN TABLE blank ALTER COLUMN r TYPE text;
ALTER FOREIGN TABLE blank OPTIONS (DROP key);
INSERT INTO blank VALUES ('k', 'one');
SELECT * FROM blank;
DROP FOREIGN TABLE blank;
SELECT * FROM leaks;

-- columns of partitions and children, changed through the parent
CREATE TABLE parent (id int NOT NULL, v int) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE part1 PARTITION OF parent FOR VALUES FROM (0) TO (10) SERVER strata OPTIONS (key 'id');
INSERT INTO parent VALUES (1, 1);
ALTER TABLE parent ADD COLUMN w text DEFAULT 'w';
SELECT * FROM parent;
ALTER TABLE parent ADD COLUMN r float8 DEFAULT random();
ALTER TABLE parent ALTER COLUMN v TYPE text;
\set VERBOSITY sqlstate
ALTER TABLE parent ALTER COLUMN id TYPE bigint;
\set VERBOSITY terse
ALTER TABLE parent RENAME COLUMN id TO key;
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'part1'::regclass;
INSERT INTO parent VALUES (2, 2, 'x');
SELECT * FROM parent ORDER BY key;
ALTER TABLE parent DROP COLUMN v;
SELECT * FROM parent ORDER BY key;
ALTER TABLE parent DETACH PARTITION part1;
INSERT INTO part1 VALUES (30, 'detached');
SELECT * FROM part1 ORDER BY key;
DROP TABLE parent;
DROP FOREIGN TABLE part1;
CREATE TABLE mother (id int, v int);
CREATE FOREIGN TABLE child () INHERITS (mother) SERVER strata OPTIONS (key 'id');
INSERT INTO child VALUES (1, 1);
ALTER TABLE mother ADD COLUMN w int DEFAULT 3;
SELECT * FROM mother;
ALTER TABLE mother DROP COLUMN id;
DROP TABLE mother CASCADE;
SELECT * FROM leaks;

-- row types: attributes come and go, but keep their type while values are stored
CREATE DOMAIN pair_domain AS pair;
CREATE TABLE row_type (x int, y text);
CREATE FOREIGN TABLE composite (id int, p pair, a pair[], d pair_domain, r row_type) SERVER strata OPTIONS (key 'id');
INSERT INTO composite VALUES (1, (1,2), ARRAY[(3,4)]::pair[], (5,6)::pair, (7,'y'));
ALTER TYPE pair ADD ATTRIBUTE c text;
-- (newer minor releases refuse this themselves, in other words)
\set VERBOSITY sqlstate
ALTER TYPE pair ALTER ATTRIBUTE a TYPE text;
ALTER TABLE row_type ALTER COLUMN x TYPE bigint;
\set VERBOSITY default
ALTER TYPE pair DROP ATTRIBUTE b;
SELECT * FROM composite;
ALTER FOREIGN TABLE composite DROP COLUMN r;
ALTER TABLE row_type ALTER COLUMN x TYPE bigint;
DROP TYPE pair CASCADE;
SELECT * FROM composite;
DROP FOREIGN TABLE composite;

-- TRUNCATE: a new file, counted in the manifest
SELECT incarnation FROM stores WHERE ft = 'one'::regclass;
SELECT pg_relation_filenode(storage) AS before FROM strata.store WHERE foreign_table = 'one'::regclass \gset
BEGIN;
TRUNCATE one;
SELECT count(*) FROM one;
INSERT INTO one (id) VALUES ('new');
SELECT id FROM one;
SAVEPOINT a;
TRUNCATE one;
SELECT id FROM one;
ROLLBACK TO a;
SELECT id FROM one;
ROLLBACK;
SELECT id FROM one ORDER BY id;
SELECT pg_relation_filenode(storage) = :before AS same FROM strata.store WHERE foreign_table = 'one'::regclass;
TRUNCATE one;
INSERT INTO one (id) VALUES ('new');
SELECT id FROM one;
SELECT incarnation FROM stores WHERE ft = 'one'::regclass;
SELECT pg_relation_filenode(storage) = :before AS same FROM strata.store WHERE foreign_table = 'one'::regclass;
CALL strata.drain('one');
INSERT INTO one (id) VALUES ('newer');
SELECT id FROM one ORDER BY id;
SELECT * FROM strata.verify('one');
SELECT incarnation, merged_through FROM strata.shard WHERE store = 'one'::regclass;

-- the storage is not for direct use; maintenance does no harm
SELECT storage::regclass AS s, storage::regclass || '_key' AS i, 's' || foreign_table || '_key' AS iname FROM strata.store WHERE foreign_table = 'one'::regclass \gset
\set ON_ERROR_STOP off
\set VERBOSITY sqlstate
SELECT * FROM :s;
INSERT INTO :s VALUES ('x');
COPY :s TO stdout;
DELETE FROM :s;
TRUNCATE :s;
ALTER TABLE :s ADD COLUMN x int;
ALTER TABLE :s DROP COLUMN id;
ALTER TABLE :s RENAME TO other;
ALTER TABLE :s RENAME COLUMN id TO other;
ALTER TABLE :s SET (fillfactor = 50);
ALTER TABLE :s SET UNLOGGED;
ALTER TABLE :s SET ACCESS METHOD heap;
ALTER TABLE :s OWNER TO CURRENT_USER;
ALTER TABLE :s SET SCHEMA public;
CREATE TABLE elder (id text);
ALTER TABLE :s INHERIT elder;
ALTER TABLE elder INHERIT :s;
CREATE TABLE heir () INHERITS (:s);
CREATE FOREIGN TABLE heir () INHERITS (:s) SERVER strata;
DROP TABLE elder;
ALTER SCHEMA strata RENAME TO other;
ALTER INDEX :i RENAME TO other;
CREATE INDEX ON :s (id);
DROP INDEX :i;
DROP TABLE :s;
DROP TABLE :s CASCADE;
CREATE TABLE mine (a int) USING strata_storage;
CREATE TABLE mine AS SELECT 1 AS a;
ALTER TABLE mine SET ACCESS METHOD strata_storage;
DROP TABLE mine;
DROP SERVER strata;
DROP FOREIGN DATA WRAPPER strata;
DROP SCHEMA strata CASCADE;
DROP EXTENSION strata;
\set VERBOSITY terse
VACUUM :s;
VACUUM (FREEZE, ANALYZE) :s;
ANALYZE :s;
VACUUM FULL :s;
CLUSTER :s USING :iname;
REINDEX TABLE :s;
REINDEX TABLE CONCURRENTLY :s;
REINDEX INDEX :i;
SELECT id FROM one ORDER BY id;
SELECT id FROM one WHERE id = 'new';
CALL strata.drain('one');
SELECT * FROM strata.verify('one');
SELECT count(*) FROM stores WHERE ft = 'one'::regclass AND member = 1 AND indexes = 1;
SELECT storage::regclass AS s FROM strata.store WHERE foreign_table = 'keyless'::regclass \gset
INSERT INTO keyless VALUES (1), (1);
VACUUM FULL :s;
VACUUM FREEZE :s;
REINDEX TABLE :s;
SELECT * FROM keyless;
CALL strata.drain('keyless');
SELECT * FROM keyless;
SELECT * FROM strata.verify('keyless');

-- event triggers off: noticed, and mended
ALTER EVENT TRIGGER strata_ddl_command_end DISABLE;
ALTER EVENT TRIGGER strata_sql_drop DISABLE;
CREATE FOREIGN TABLE late (id int) SERVER strata OPTIONS (key 'id');
ALTER FOREIGN TABLE two ADD COLUMN c int DEFAULT 3;
CREATE FOREIGN TABLE lost (id int) SERVER strata OPTIONS (key 'id');
DROP FOREIGN TABLE keyless;
ALTER EVENT TRIGGER strata_ddl_command_end ENABLE ALWAYS;
ALTER EVENT TRIGGER strata_sql_drop ENABLE ALWAYS;
SELECT * FROM late;
INSERT INTO two (a) VALUES (1);
SELECT strata.record_columns('late'), strata.record_columns('two');
INSERT INTO late VALUES (1);
SELECT * FROM late;
SELECT * FROM two;
DROP FOREIGN TABLE lost;
SELECT what FROM leaks;
SELECT strata.drop_orphans();
SELECT * FROM leaks;

-- tables over one layer
CREATE FOREIGN TABLE one_wal (id text, v int) SERVER strata OPTIONS (store 'one', layer 'wal');
CREATE FOREIGN TABLE one_base (v int, id text) SERVER strata OPTIONS (store 'one', layer 'base');
SELECT ftrelid::regclass, ftoptions FROM pg_foreign_table WHERE ftrelid::regclass::text LIKE 'one\_%' ORDER BY 1;
INSERT INTO one (id, v) VALUES ('new', 5);
SELECT id, v FROM one_wal;
SELECT id, v FROM one_base ORDER BY id;
CREATE FOREIGN TABLE bad (id text) SERVER strata OPTIONS (store 'nosuch', layer 'wal');
CREATE FOREIGN TABLE bad (id text) SERVER strata OPTIONS (store 'stores', layer 'wal');
CREATE FOREIGN TABLE bad (id text) SERVER strata OPTIONS (store 'one_wal', layer 'wal');
CREATE FOREIGN TABLE bad (id text, nosuch int) SERVER strata OPTIONS (store 'one', layer 'wal');
CREATE FOREIGN TABLE bad (id int) SERVER strata OPTIONS (store 'one', layer 'wal');
ALTER FOREIGN TABLE one_wal OPTIONS (DROP store, DROP layer);
SELECT count(*) FROM strata.store WHERE foreign_table IN ('one_wal'::regclass, 'one_base'::regclass);
SELECT * FROM strata.merge('one_base');
SELECT * FROM strata.merge('stores');
DROP FOREIGN TABLE one;
SET client_min_messages = notice;
DROP FOREIGN TABLE one CASCADE;
SET client_min_messages = warning;
SELECT * FROM leaks;

-- prepared transactions carry it, too, where they are on
SELECT current_setting('max_prepared_transactions')::int > 0 AS can_prepare \gset
\if :can_prepare
BEGIN;
CREATE FOREIGN TABLE prepared (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO prepared VALUES (1);
PREPARE TRANSACTION 'strata_life';
ROLLBACK PREPARED 'strata_life';
BEGIN;
CREATE FOREIGN TABLE prepared (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO prepared VALUES (1);
PREPARE TRANSACTION 'strata_life';
COMMIT PREPARED 'strata_life';
DROP FOREIGN TABLE prepared;
\endif
SELECT * FROM leaks;

-- other extensions' scripts are none of our business; ours goes as a whole
SELECT current_database() AS old_database \gset
CREATE DATABASE strata_life;
\c strata_life
SET client_min_messages = warning;
CREATE EXTENSION strata;
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO t VALUES (1);
CREATE TABLE plain (a int);
ALTER TABLE plain ADD COLUMN b int;
CREATE INDEX ON plain (a);
DROP TABLE plain;
DROP EXTENSION strata;
DROP EXTENSION strata CASCADE;
SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text = 'strata';
SELECT count(*) FROM pg_namespace WHERE nspname = 'strata';
SELECT count(*) FROM pg_event_trigger;
CREATE EXTENSION strata;
CREATE FOREIGN TABLE t (id int) SERVER strata OPTIONS (key 'id');
INSERT INTO t VALUES (1);
SELECT * FROM t;
\c :old_database
SET client_min_messages = warning;
CREATE DATABASE strata_life2 TEMPLATE strata_life;
\c strata_life2
SET client_min_messages = warning;
SELECT * FROM t;
INSERT INTO t VALUES (2);
CALL strata.drain('t');
SELECT * FROM t ORDER BY id;
SELECT * FROM strata.verify('t');
\c :old_database
DROP DATABASE strata_life;
DROP DATABASE strata_life2;

SET client_min_messages = warning;
DROP SCHEMA life CASCADE;
SELECT count(*) FROM strata.store s WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = s.foreign_table);
