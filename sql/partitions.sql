-- Partitions: strata tables beside heap ones, each command on a tree with
-- strata leaves (f...) and on a twin with heap leaves (h...).
-- (C3, C4, P13, P23, P25, P30; columns through the parent: lifecycle.sql)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA parts;
SET search_path = parts, public;
\set VERBOSITY default
\set SHOW_CONTEXT never

CREATE FUNCTION run(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    relation text; con text;
BEGIN
    EXECUTE command;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS relation = TABLE_NAME, con = CONSTRAINT_NAME;
    RETURN concat_ws(' ', SQLSTATE, SQLERRM, nullif(concat_ws('.', nullif(relation, ''), nullif(con, '')), ''));
END $$;
-- @ stands for h or f; LEAF ... KEY ... END for a heap or a strata table
CREATE FUNCTION twin(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    heap text := run(regexp_replace(regexp_replace(replace(command, '@', 'h'), '\mLEAF (.*) KEY', 'TABLE \1'), ' END', ''));
    strata text := run(regexp_replace(regexp_replace(replace(command, '@', 'f'), '\mLEAF (.*) KEY', 'FOREIGN TABLE \1'), ' END', ' SERVER strata OPTIONS (key ''id'', auto_merge ''off'')'));
BEGIN
    IF heap = regexp_replace(replace(strata, 'foreign table', 'table'), '\mf(?=\M|_|\d|heap\M|rest\M|sub|tree|h\M|h\d)', 'h', 'g') THEN
        RETURN strata;
    END IF;
    RETURN 'heap: ' || heap || '; strata: ' || strata;
END $$;
-- the rows of both trees and where they are
CREATE FUNCTION same() RETURNS text LANGUAGE plpgsql AS $$
DECLARE differing text; n bigint;
BEGIN
    WITH hs AS (SELECT regexp_replace(tableoid::regclass::text, '^h', '') AS leaf, h::text AS r FROM h),
        fs AS (SELECT regexp_replace(tableoid::regclass::text, '^f', '') AS leaf, f::text AS r FROM f)
    SELECT string_agg(d::text, ' ') INTO differing FROM ((TABLE hs EXCEPT ALL TABLE fs) UNION ALL (TABLE fs EXCEPT ALL TABLE hs)) d;
    SELECT count(*) INTO n FROM f;
    RETURN coalesce('differ: ' || differing, n || ' same rows');
END $$;

CREATE TABLE h (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE TABLE f (id int NOT NULL, v text) PARTITION BY RANGE (id);
SELECT twin('CREATE LEAF @1 PARTITION OF @ KEY FOR VALUES FROM (0) TO (10) END');
SELECT twin('CREATE LEAF @2 PARTITION OF @ KEY FOR VALUES FROM (10) TO (20) END');
SELECT twin('CREATE TABLE @heap PARTITION OF @ FOR VALUES FROM (20) TO (30)');

-- ---- routing: INSERT, COPY, RETURNING; bounds hold on each way in (C3, P13) ----
SELECT twin('INSERT INTO @ SELECT i, ''row '' || i FROM generate_series(0, 29) i');
COPY f FROM stdin;
5	copied over
\.
UPDATE h SET v = 'copied over' WHERE id = 5;
COPY f (v, id) FROM stdin;
outside	35
\.
COPY f1 FROM stdin;
15	wrong leaf
\.
SELECT twin('INSERT INTO @ VALUES (30, ''nowhere'')');
SELECT twin('INSERT INTO @1 VALUES (10, ''wrong leaf'')');
SELECT twin('UPDATE @1 SET id = 11 WHERE id = 1');
INSERT INTO f VALUES (3, 'new 3') RETURNING tableoid::regclass, *;
UPDATE h SET v = 'new 3' WHERE id = 3;
SELECT same();
-- through the parent to strata leaves: UPDATE, DELETE, joins (P23, P25, P30)
SELECT twin('UPDATE @ SET v = v || ''!'' WHERE id % 5 = 0');
SELECT twin('DELETE FROM @ WHERE id % 7 = 0');
SELECT twin('UPDATE @ SET id = id + 1 WHERE id = 13');
SELECT twin('DELETE FROM @ USING @ other WHERE @.id = other.id + 1 AND other.id = 4');
SELECT same();
CALL strata.drain('f1');
SELECT same();
EXPLAIN (COSTS OFF) SELECT * FROM f WHERE id = 12;
EXPLAIN (COSTS OFF) SELECT * FROM f WHERE id > 25;

-- ---- a row that changes its partition (C4) ----
-- heap to strata: moved
SELECT twin('UPDATE @ SET id = 7 WHERE id = 22');
SELECT same();
UPDATE f SET id = 0 WHERE id = 23 RETURNING tableoid::regclass, *;
UPDATE h SET id = 0 WHERE id = 23;
SELECT same();
-- strata to heap, strata to strata (more in move.sql)
SELECT twin('UPDATE @ SET id = 21 WHERE id = 2');
SELECT twin('UPDATE @ SET id = 13 WHERE id = 3');
SELECT same();
SELECT twin('UPDATE @ SET id = id % 10 + 1 WHERE id = 21');
SELECT twin('UPDATE @ SET id = 3 WHERE id = 13');
SELECT twin('UPDATE @1 SET id = 13 WHERE id = 2');
SELECT twin('UPDATE @ SET id = 45 WHERE id = 2');
SELECT same();
-- by hand
SELECT twin('DELETE FROM @ WHERE id IN (10, 11)');
WITH moved AS (DELETE FROM f WHERE id IN (2, 3) RETURNING *)
    INSERT INTO f SELECT id + 8, v || ' moved' FROM moved RETURNING tableoid::regclass, *;
UPDATE h SET id = id + 8, v = v || ' moved' WHERE id IN (2, 3);
WITH moved AS (DELETE FROM f WHERE id = 18 RETURNING *) INSERT INTO f SELECT 28, v FROM moved;
DELETE FROM h WHERE id = 28;
UPDATE h SET id = 28 WHERE id = 18;
SELECT same();

-- ---- ATTACH: rows that exist must lie within the bounds ----
SELECT twin('CREATE LEAF @3 (id int NOT NULL, v text) KEY END');
SELECT twin('INSERT INTO @3 VALUES (30, ''a''), (39, ''b''), (40, ''c'')');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (30) TO (40)');
CALL strata.drain('f3');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (30) TO (40)');
SELECT twin('DELETE FROM @3 WHERE id = 40');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (30) TO (40)');
SELECT twin('INSERT INTO @3 VALUES (40, ''c'')');
SELECT same();
BEGIN;
SELECT twin('ALTER TABLE @ DETACH PARTITION @3');
SELECT twin('INSERT INTO @3 VALUES (40, ''c'')');
SAVEPOINT a;
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (30) TO (40)');
ROLLBACK TO a;
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (30) TO (50)');
SELECT same();
ROLLBACK;
SELECT same();
-- a CHECK that implies the bounds makes looking at the rows unnecessary
SELECT twin('CREATE LEAF @4 (id int NOT NULL, v text, CHECK (id >= 40 AND id < 50)) KEY END');
SELECT twin('INSERT INTO @4 VALUES (44, ''d'')');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @4 FOR VALUES FROM (40) TO (50)');
SELECT same();
-- a plain DETACH, and one that lets readers go on
SELECT twin('ALTER TABLE @ DETACH PARTITION @4');
SELECT twin('INSERT INTO @4 VALUES (51, ''check stays'')');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @4 FOR VALUES FROM (40) TO (50)');
ALTER TABLE h DETACH PARTITION h4 CONCURRENTLY;
ALTER TABLE f DETACH PARTITION f4 CONCURRENTLY;
SELECT same();
SELECT conname, convalidated, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'f4'::regclass AND contype = 'c' ORDER BY 1;
SELECT twin('INSERT INTO @4 VALUES (45, ''e'')');
DROP TABLE h4;
DROP FOREIGN TABLE f4;

-- ---- the parent's constraints ----
SELECT twin('ALTER TABLE @ ALTER v SET NOT NULL');
SELECT twin('ALTER TABLE @ ADD CONSTRAINT short CHECK (length(v) < 8)');
SELECT twin('ALTER TABLE @ ADD CONSTRAINT later CHECK (length(v) < 8) NOT VALID');
SELECT twin('INSERT INTO @ VALUES (1, ''much too long'')');
SELECT twin('ALTER TABLE @ VALIDATE CONSTRAINT later');
SELECT twin('UPDATE @ SET v = ''x'' WHERE length(v) >= 8');
SELECT twin('ALTER TABLE @ VALIDATE CONSTRAINT later');
SELECT conrelid::regclass, conname, convalidated FROM pg_constraint WHERE conname = 'later' ORDER BY conrelid::regclass::text;
SELECT twin('ALTER TABLE @1 ALTER v DROP NOT NULL');
SELECT twin('ALTER TABLE @ ALTER v DROP NOT NULL');
SELECT twin('UPDATE @ SET v = NULL WHERE id = 0');
SELECT twin('ALTER TABLE @ ALTER v SET NOT NULL');
SELECT twin('ALTER TABLE @1 ALTER v SET NOT NULL');
SELECT twin('ALTER TABLE ONLY @ ALTER v SET NOT NULL');
SELECT twin('ALTER TABLE @ ADD COLUMN w int NOT NULL DEFAULT 5 CHECK (w > 4)');
SELECT same();
-- a column's type: through the parent, by the commands of the hint
\set VERBOSITY default
ALTER TABLE f ALTER w TYPE bigint;
ALTER TABLE parts.f ADD COLUMN w_new bigint; UPDATE parts.f SET w_new = w; ALTER TABLE parts.f DROP COLUMN w; ALTER TABLE parts.f RENAME COLUMN w_new TO w;
ALTER TABLE h DROP COLUMN w, ADD COLUMN w bigint;
UPDATE h SET w = 5;
SELECT same();

SELECT twin('ALTER TABLE @ DROP CONSTRAINT later');

-- ---- DEFAULT partition ----
SELECT twin('CREATE LEAF @rest PARTITION OF @ KEY DEFAULT END');
SELECT twin('INSERT INTO @ (id, v) VALUES (100, ''x''), (200, ''y''), (-5, ''z'')');
SELECT same();
SELECT twin('INSERT INTO @rest (id, v) VALUES (5, ''belongs to 1'')');
SET client_min_messages = error;	-- core says that it did not look; we did
SELECT twin('CREATE TABLE @100 PARTITION OF @ FOR VALUES FROM (100) TO (200)');
SELECT twin('CREATE LEAF @100 PARTITION OF @ KEY FOR VALUES FROM (100) TO (200) END');
SELECT twin('CREATE TABLE @100 (id int NOT NULL, v text, w bigint)');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @100 FOR VALUES FROM (100) TO (200)');
SELECT twin('CREATE SCHEMA in_@ CREATE TABLE @100 PARTITION OF parts.@ FOR VALUES FROM (100) TO (200)');
CALL strata.drain('frest');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @100 FOR VALUES FROM (100) TO (200)');
SELECT twin('DELETE FROM @rest WHERE id = 100');
BEGIN;
SELECT twin('INSERT INTO @ (id, v) VALUES (101, ''x'')');
SAVEPOINT a;
SELECT twin('ALTER TABLE @ ATTACH PARTITION @100 FOR VALUES FROM (100) TO (200)');
ROLLBACK TO a;
ROLLBACK;
SELECT twin('ALTER TABLE @ ATTACH PARTITION @100 FOR VALUES FROM (100) TO (200)');
SELECT twin('INSERT INTO @ (id, v) VALUES (101, ''x'')');
SELECT twin('INSERT INTO @rest (id, v) VALUES (102, ''x'')');
SELECT same();
SELECT twin('ALTER TABLE @ DETACH PARTITION @rest');
SELECT twin('INSERT INTO @rest (id, v) VALUES (5, ''x'')');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @rest DEFAULT');
SELECT twin('DELETE FROM @rest WHERE id = 5');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @rest DEFAULT');
SELECT same();
-- a default partition with partitions of its own
SELECT twin('ALTER TABLE @ DETACH PARTITION @rest');
SELECT twin('CREATE TABLE @sub (id int NOT NULL, v text, w bigint) PARTITION BY LIST (w)');
SELECT twin('CREATE LEAF @sub5 PARTITION OF @sub KEY FOR VALUES IN (5, NULL) END');
SELECT twin('CREATE LEAF @sub6 PARTITION OF @sub KEY DEFAULT END');
SELECT twin('INSERT INTO @sub VALUES (300, ''s'', 5), (301, ''s'', 6), (4, ''s'', 7)');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @sub DEFAULT');
SELECT twin('DELETE FROM @sub WHERE id = 4');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @sub DEFAULT');
SELECT same();
-- (this makes the session remember the bounds)
SELECT twin('INSERT INTO @sub6 VALUES (302, ''s'', 6)');
SELECT twin('CREATE TABLE @300 PARTITION OF @ FOR VALUES FROM (301) TO (400)');
SELECT twin('DELETE FROM @ WHERE id IN (301, 302)');
SELECT twin('CREATE TABLE @300 PARTITION OF @ FOR VALUES FROM (301) TO (400)');
-- (core goes on with the bounds that a session remembers of such a heap partition)
INSERT INTO fsub6 VALUES (350, 's', 6);
SELECT twin('INSERT INTO @ VALUES (350, ''s'', 6), (299, ''s'', 5)');
-- bounds that the default partition's own CHECK implies: nobody looks
SELECT twin('ALTER TABLE @sub ADD CONSTRAINT below CHECK (id IS NOT NULL AND id < 1000)');
SELECT twin('CREATE TABLE @1000 (id int NOT NULL, v text, w bigint)');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @1000 FOR VALUES FROM (1000) TO (1001)');
SELECT twin('CREATE TABLE @1001 PARTITION OF @ FOR VALUES FROM (1001) TO (1002)');
SELECT twin('CREATE TABLE @sub7 PARTITION OF @sub FOR VALUES IN (7)');
SELECT twin('INSERT INTO @ VALUES (298, ''s'', 7)');
SELECT same();
SET client_min_messages = warning;

-- ---- sub-partitions attached as a whole; columns in another order ----
SELECT twin('CREATE TABLE @tree (w bigint, v text, id int NOT NULL, dropped int) PARTITION BY RANGE (v)');
SELECT twin('ALTER TABLE @tree DROP COLUMN dropped');
SELECT twin('CREATE LEAF @tree1 (gone int, v text, id int NOT NULL, w bigint) KEY END');
SELECT twin('ALTER TABLE @tree1 DROP COLUMN gone');
SELECT twin('INSERT INTO @tree1 VALUES (''m'', 500, 1), (''n'', 501, 2)');
SELECT twin('ALTER TABLE @tree ATTACH PARTITION @tree1 FOR VALUES FROM (''a'') TO (''n'')');
SELECT twin('ALTER TABLE @tree ATTACH PARTITION @tree1 FOR VALUES FROM (''a'') TO (''z'')');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @tree FOR VALUES FROM (500) TO (501)');
SET client_min_messages = error;
SELECT twin('ALTER TABLE @ ATTACH PARTITION @tree FOR VALUES FROM (500) TO (501)');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @tree FOR VALUES FROM (500) TO (510)');
SET client_min_messages = warning;
SELECT same();
SELECT twin('INSERT INTO @ (id, v) VALUES (505, ''zz'')');
SELECT twin('INSERT INTO @ (id, v) VALUES (505, ''b'')');
SELECT twin('UPDATE @ SET v = ''c'' WHERE id = 505');
SELECT same();

-- ---- hash partitions ----
CREATE TABLE hh (id int NOT NULL, v text) PARTITION BY HASH (id);
CREATE TABLE fh (id int NOT NULL, v text) PARTITION BY HASH (id);
SELECT twin('CREATE LEAF @h0 PARTITION OF @h KEY FOR VALUES WITH (MODULUS 2, REMAINDER 0) END');
SELECT twin('CREATE LEAF @h1 (id int NOT NULL, v text) KEY END');
SELECT twin('INSERT INTO @h1 SELECT i, ''h'' FROM generate_series(1, 10) i');
SELECT twin('ALTER TABLE @h ATTACH PARTITION @h1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)');
SELECT twin('DELETE FROM @h1 WHERE satisfies_hash_partition(''@h''::regclass, 2, 0, id)');
SELECT twin('ALTER TABLE @h ATTACH PARTITION @h1 FOR VALUES WITH (MODULUS 2, REMAINDER 1)');
SELECT twin('INSERT INTO @h SELECT i, ''i'' FROM generate_series(11, 100) i');
SELECT (SELECT array_agg(id ORDER BY id) FROM hh0) = (SELECT array_agg(id ORDER BY id) FROM fh0) AS same0,
       (SELECT array_agg(id ORDER BY id) FROM hh1) = (SELECT array_agg(id ORDER BY id) FROM fh1) AS same1;

-- ---- a leaf's own trigger and defaults, for rows that are routed or moved to it ----
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.v := NEW.v || ' by ' || TG_OP;
    RETURN NEW;
END $$;
SELECT twin('CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON @1 FOR EACH ROW EXECUTE FUNCTION stamp()');
SELECT twin('DELETE FROM @ WHERE id IN (1, 26)');
SELECT twin('INSERT INTO @ (id, v) VALUES (1, ''t''), (26, ''u'')');
SELECT twin('UPDATE @ SET v = ''s'' WHERE id = 0');
SELECT twin('DELETE FROM @ WHERE id = 4');
SELECT twin('UPDATE @ SET id = 4 WHERE id = 26');
SELECT same();
-- one that sends a row elsewhere
CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := NEW.id + 10; RETURN NEW; END $$;
SELECT twin('CREATE TRIGGER elsewhere BEFORE INSERT ON @1 FOR EACH ROW EXECUTE FUNCTION elsewhere()');
SELECT twin('INSERT INTO @ (id, v) VALUES (9, ''t'')');
SELECT twin('INSERT INTO @1 (id, v) VALUES (9, ''t'')');
COPY f (id, v) FROM stdin;
9	t
\.

-- ---- generated columns, identity and row triggers of the parent; no unique index (C1) ----
CREATE TABLE hg (id int NOT NULL, v int, g int GENERATED ALWAYS AS (v * 2) STORED, n int GENERATED BY DEFAULT AS IDENTITY) PARTITION BY RANGE (id);
CREATE TABLE fg (id int NOT NULL, v int, g int GENERATED ALWAYS AS (v * 2) STORED, n int GENERATED BY DEFAULT AS IDENTITY) PARTITION BY RANGE (id);
SELECT twin('CREATE LEAF @g1 PARTITION OF @g KEY FOR VALUES FROM (0) TO (10) END');
SELECT twin('CREATE TABLE @g2 PARTITION OF @g FOR VALUES FROM (10) TO (20)');
CREATE TABLE fired (tree text, line text);
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO parts.fired VALUES (left(TG_TABLE_NAME, 1), concat_ws(' ', substr(TG_TABLE_NAME, 2), TG_WHEN, TG_OP, OLD, NEW));
    RETURN coalesce(NEW, OLD);
END $$;
SELECT twin('CREATE TRIGGER fire_before BEFORE INSERT OR UPDATE OR DELETE ON @g FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('CREATE TRIGGER fire_after AFTER INSERT OR UPDATE OR DELETE ON @g FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('INSERT INTO @g (id, v) VALUES (1, 1), (11, 11), (2, 2)');
SELECT twin('UPDATE @g SET v = v + 1 WHERE id <> 2');
SELECT twin('UPDATE @g SET id = 3 WHERE id = 11');
SELECT twin('DELETE FROM @g WHERE id = 2');
SELECT * FROM fg ORDER BY id;
SELECT count(*) FILTER (WHERE tree = 'f') AS strata, count(*) FILTER (WHERE tree = 'h') AS heap FROM fired;
SELECT line FROM fired WHERE tree = 'f' EXCEPT ALL SELECT line FROM fired WHERE tree = 'h';
CREATE UNIQUE INDEX ON fg (id);
CREATE INDEX ON fg (v);

SELECT * FROM strata.verify('f1');
SELECT * FROM strata.verify('fsub5');
DROP SCHEMA parts CASCADE;
