-- Tables over one layer of a store: they follow it to other names, and IMPORT
-- FOREIGN SCHEMA makes them.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA layers;
CREATE SCHEMA "Layers 2";
SET search_path = layers, public;
\set SHOW_CONTEXT never

CREATE VIEW tied AS
    SELECT objid::regclass AS layer_table, refobjid::regclass AS store
    FROM pg_depend JOIN pg_foreign_table ON ftrelid = refobjid
    WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass AND objsubid = 0 AND refobjsubid = 0 AND deptype = 'n'
        AND objid IN (SELECT oid FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname ~* '^layers'))
        AND objid IN (SELECT ftrelid FROM pg_foreign_table)
    ORDER BY 1, 2;
CREATE FUNCTION options(regclass) RETURNS text LANGUAGE sql AS $$ SELECT ftoptions::text FROM pg_foreign_table WHERE ftrelid = $1 $$;

CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO t VALUES (1, 'base'), (2, 'base');
CALL strata.drain('t');
INSERT INTO t VALUES (2, 'wal'), (3, 'wal');
CREATE FOREIGN TABLE t_wal (id int, v text) SERVER strata OPTIONS (store 't', layer 'wal');
CREATE FOREIGN TABLE t_base (v text) SERVER strata OPTIONS (store 'layers.t', layer 'base');
SELECT * FROM tied;
PREPARE wal AS SELECT * FROM t_wal ORDER BY id;
PREPARE base AS SELECT * FROM t_base ORDER BY v;
EXECUTE wal;
EXECUTE base;

-- ---- RENAME, SET SCHEMA, RENAME of the schema ----
ALTER FOREIGN TABLE t RENAME TO "T 1";
EXECUTE wal;
EXECUTE base;
SELECT options('t_wal'), options('t_base');
-- somebody else takes the name
CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id');
INSERT INTO t VALUES (9, 'other');
EXECUTE wal;
ALTER TABLE "T 1" SET SCHEMA "Layers 2";
EXECUTE wal;
SELECT options('t_wal'), options('t_base');
ALTER SCHEMA "Layers 2" RENAME TO "Layers 3";
EXECUTE wal;
EXECUTE base;
SELECT options('t_wal'), options('t_base');
BEGIN;
ALTER SCHEMA "Layers 3" RENAME TO layers2;
ALTER TABLE layers2."T 1" RENAME TO u;
EXECUTE wal;
SELECT options('t_wal');
ROLLBACK;
EXECUTE wal;
SELECT options('t_wal');
ALTER FOREIGN TABLE t_wal SET SCHEMA "Layers 3";
ALTER FOREIGN TABLE "Layers 3".t_wal RENAME TO wal;
SELECT * FROM "Layers 3".wal ORDER BY id;
ALTER FOREIGN TABLE "Layers 3".wal RENAME TO t_wal;
ALTER FOREIGN TABLE "Layers 3".t_wal SET SCHEMA layers;
-- columns are matched by name
ALTER FOREIGN TABLE "Layers 3"."T 1" RENAME v TO w;
EXECUTE wal;
ALTER FOREIGN TABLE t_wal RENAME v TO w;
SELECT * FROM t_wal ORDER BY id;
ALTER FOREIGN TABLE "Layers 3"."T 1" RENAME w TO v;
ALTER FOREIGN TABLE t_wal RENAME w TO v;

-- ---- another store, by option ----
ALTER FOREIGN TABLE t_wal OPTIONS (SET store 't');
SELECT * FROM tied;
EXECUTE wal;
ALTER FOREIGN TABLE t_wal OPTIONS (SET layer 'base');
EXECUTE wal;
ALTER FOREIGN TABLE t_wal OPTIONS (SET store 'nosuch');
ALTER FOREIGN TABLE t_wal OPTIONS (SET store 't_base');
ALTER FOREIGN TABLE t_wal OPTIONS (ADD key 'id');
DROP FOREIGN TABLE t;
DROP FOREIGN TABLE t CASCADE;
SELECT * FROM tied;
-- one that gets a store of its own is tied no more
CREATE FOREIGN TABLE own (id int, v text) SERVER strata OPTIONS (store '"Layers 3"."T 1"', layer 'wal');
ALTER FOREIGN TABLE own OPTIONS (DROP store, DROP layer);
SELECT * FROM tied;
INSERT INTO own VALUES (1, 'mine');
SELECT * FROM own;

-- ---- inheritance is no tie ----
CREATE FOREIGN TABLE mother (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO mother VALUES (7, 'mother');
CREATE FOREIGN TABLE child () INHERITS (mother) SERVER strata OPTIONS (store '"Layers 3"."T 1"', layer 'base');
SELECT * FROM child ORDER BY id;
ALTER FOREIGN TABLE mother RENAME TO mama;
ALTER FOREIGN TABLE "Layers 3"."T 1" RENAME TO t2;
SELECT options('child');
SELECT * FROM child ORDER BY id;
-- a name without a tie (as pg_upgrade leaves it) is looked up; ALTER ties it again,
-- all of them by what docs/administration.md says
CREATE FOREIGN TABLE untied (id int) SERVER strata OPTIONS (store '"Layers 3".t2', layer 'wal');
DELETE FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = 'untied'::regclass AND refobjid = '"Layers 3".t2'::regclass;
SELECT * FROM untied ORDER BY id;
SELECT format('ALTER FOREIGN TABLE %s OPTIONS (SET store %L)', ftrelid::regclass, option_value)
FROM pg_foreign_table, pg_options_to_table(ftoptions)
WHERE option_name = 'store' AND ftserver IN (SELECT s.oid FROM pg_foreign_server s
    JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw WHERE w.fdwname = 'strata')
    AND ftrelid = 'untied'::regclass \gexec
SELECT * FROM tied WHERE layer_table = 'untied'::regclass;
ALTER FOREIGN TABLE "Layers 3".t2 RENAME TO t3;
SELECT * FROM untied ORDER BY id;
DELETE FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = 'untied'::regclass AND refobjid = '"Layers 3".t3'::regclass;
ALTER FOREIGN TABLE "Layers 3".t3 RENAME TO t4;
SELECT * FROM untied ORDER BY id;
ALTER FOREIGN TABLE untied OPTIONS (SET store '"Layers 3".t4');
SELECT * FROM untied ORDER BY id;
DROP FOREIGN TABLE child, untied, mama, own, t_base;
DROP FOREIGN TABLE "Layers 3".t4;
DROP SCHEMA "Layers 3";

-- ---- IMPORT FOREIGN SCHEMA ----
CREATE SCHEMA stores;
CREATE SCHEMA "More Stores";
CREATE SCHEMA w;
CREATE SCHEMA b;
CREATE TYPE "More Stores"."a type" AS ENUM ('x', 'y');
CREATE COLLATION "More Stores"."a collation" (provider = icu, locale = 'en');
CREATE FOREIGN TABLE stores.one (id int NOT NULL, dropped int, "V 1" varchar(10), n numeric(8, 2)[]) SERVER strata OPTIONS (key 'id', auto_merge 'off');
ALTER FOREIGN TABLE stores.one DROP COLUMN dropped;
CREATE FOREIGN TABLE stores."Two's \ ""quoted""" (id text COLLATE "C" NOT NULL, c text COLLATE "More Stores"."a collation", e "More Stores"."a type", g int GENERATED ALWAYS AS (1) STORED)
    SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE FOREIGN TABLE "More Stores".three (id int) SERVER strata;
CREATE TABLE "More Stores".heap (id int);
INSERT INTO stores.one VALUES (1, 'base', '{1.5}');
CALL strata.drain('stores.one');
INSERT INTO stores.one VALUES (2, 'wal', '{2}');
INSERT INTO stores."Two's \ ""quoted""" VALUES ('k', 'c', 'y');
IMPORT FOREIGN SCHEMA wal EXCEPT (three) FROM SERVER strata INTO w OPTIONS (schema 'stores');
SELECT relname, options(oid) FROM pg_class WHERE relnamespace = 'w'::regnamespace ORDER BY relname;
SELECT * FROM w.one;
SELECT * FROM w."Two's \ ""quoted""";
SELECT attname, format_type(atttypid, atttypmod), collname FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation
    WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'w'::regnamespace) AND attnum > 0 ORDER BY attrelid::regclass::text, attnum;
INSERT INTO w.one VALUES (1);
SELECT layer_table, store FROM (SELECT objid::regclass AS layer_table, refobjid::regclass AS store FROM pg_depend
    WHERE objid = 'w.one'::regclass AND refclassid = 'pg_class'::regclass) d;
-- all schemas; layer tables are no stores
IMPORT FOREIGN SCHEMA base LIMIT TO (one, three, heap, nosuch) FROM SERVER strata INTO b;
SELECT relname, options(oid) FROM pg_class WHERE relnamespace = 'b'::regnamespace ORDER BY relname;
SELECT * FROM b.one;
IMPORT FOREIGN SCHEMA base LIMIT TO (one) FROM SERVER strata INTO b;
IMPORT FOREIGN SCHEMA base LIMIT TO (one) FROM SERVER strata INTO stores;
-- two of a name
CREATE FOREIGN TABLE "More Stores".one (id int) SERVER strata;
DROP FOREIGN TABLE b.one, b.three;
IMPORT FOREIGN SCHEMA base LIMIT TO (one, three) FROM SERVER strata INTO b;
IMPORT FOREIGN SCHEMA base LIMIT TO (three) FROM SERVER strata INTO b;
IMPORT FOREIGN SCHEMA base LIMIT TO (one) FROM SERVER strata INTO b OPTIONS (schema 'More Stores');
SELECT relname, options(oid) FROM pg_class WHERE relnamespace = 'b'::regnamespace ORDER BY relname;
-- a server of their own, on which pg_dump finds no rows
CREATE SERVER layers_only FOREIGN DATA WRAPPER strata;
DROP FOREIGN TABLE b.one, b.three;
IMPORT FOREIGN SCHEMA base FROM SERVER layers_only INTO b OPTIONS (schema 'stores');
SELECT relname, srvname FROM pg_class JOIN pg_foreign_table ON ftrelid = pg_class.oid JOIN pg_foreign_server s ON s.oid = ftserver
    WHERE relnamespace = 'b'::regnamespace ORDER BY relname;
-- what is no layer, option or schema
IMPORT FOREIGN SCHEMA public FROM SERVER strata INTO b;
IMPORT FOREIGN SCHEMA "WAL" FROM SERVER strata INTO b;
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO b OPTIONS (prefix 'x');
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO b OPTIONS (schema 'nosuch');
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO nosuch;
BEGIN;
DROP SCHEMA w CASCADE;
CREATE SCHEMA w;
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO w OPTIONS (schema 'stores');
ROLLBACK;
SELECT id FROM w.one;
-- only what the caller may read
CREATE ROLE strata_layers_reader;
CREATE SCHEMA mine AUTHORIZATION strata_layers_reader;
GRANT USAGE ON SCHEMA stores, layers TO strata_layers_reader;
GRANT SELECT ON stores.one, "More Stores".three TO strata_layers_reader;
GRANT SELECT (id) ON stores."Two's \ ""quoted""" TO strata_layers_reader;
SET ROLE strata_layers_reader;
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO mine;
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER strata TO strata_layers_reader;
SET ROLE strata_layers_reader;
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO w;
IMPORT FOREIGN SCHEMA wal FROM SERVER strata INTO mine;
SELECT relname, options(oid) FROM pg_class WHERE relnamespace = 'mine'::regnamespace ORDER BY relname;
SELECT * FROM mine.one;
RESET ROLE;
REVOKE SELECT ON stores.one FROM strata_layers_reader;
SET ROLE strata_layers_reader;
SELECT * FROM mine.one;
RESET ROLE;
DROP SCHEMA layers, stores, "More Stores", w, b, mine CASCADE;
DROP SERVER layers_only;
DROP OWNED BY strata_layers_reader;
DROP ROLE strata_layers_reader;
