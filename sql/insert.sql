-- INSERT and COPY: what arrives is what a heap table would hold (P13, P16, P21, C3).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA insert_test;
SET search_path = insert_test;

-- single, multi-row, SELECT, RETURNING, defaults, generated columns, identity
CREATE SEQUENCE seq;
CREATE FOREIGN TABLE t (
    id text NOT NULL,
    n int DEFAULT nextval('seq'),
    twice int GENERATED ALWAYS AS (n * 2) STORED,
    note text
) SERVER strata OPTIONS (key 'id');
INSERT INTO t (id) VALUES ('a') RETURNING *;
INSERT INTO t (id, n, note) VALUES ('b', 10, 'ten'), ('c', 20, NULL) RETURNING tableoid::regclass, id, twice;
INSERT INTO t (id, n) SELECT 's' || i, i FROM generate_series(1, 5) i;
INSERT INTO t DEFAULT VALUES;
SELECT * FROM t ORDER BY id;

-- the newest version of a key wins, in one statement too; the tag counts all
\set QUIET off
INSERT INTO t (id, n) VALUES ('d', 1), ('d', 2), ('d', 3);
\set QUIET on
SELECT id, n, twice FROM t WHERE id = 'd';
INSERT INTO t (id, n) VALUES ('d', 4);
SELECT id, n, twice FROM t WHERE id = 'd';

-- many replacements of few keys in one statement, beyond a linear search
INSERT INTO t (id, n) SELECT 'r' || (i % 100), i FROM generate_series(1, 10000) i;
SELECT count(*), min(n), max(n) FROM t WHERE id LIKE 'r%';

-- constraints
CREATE FOREIGN TABLE checked (
    id int NOT NULL CHECK (id > 0),
    v text NOT NULL,
    CHECK (length(v) < 10)
) SERVER strata OPTIONS (key 'id');
INSERT INTO checked VALUES (1, 'ok');
INSERT INTO checked VALUES (0, 'x');
INSERT INTO checked VALUES (2, NULL);
INSERT INTO checked VALUES (3, 'far too long a text');
INSERT INTO checked VALUES (4, 'ok'), (5, NULL);
COPY checked FROM stdin;
6	ok
7	\N
\.
COPY checked FROM stdin;
6	ok
-1	no
\.
SELECT * FROM checked;

-- a NULL key
CREATE FOREIGN TABLE nullable (id int, sub text, v int) SERVER strata OPTIONS (key 'id, sub');
INSERT INTO nullable VALUES (1, 'x', 1), (1, 'y', 2), (1, 'x', 3);
INSERT INTO nullable VALUES (NULL, 'x', 1);
INSERT INTO nullable VALUES (1, NULL, 1);
SELECT * FROM nullable ORDER BY sub;

-- COPY; a bad line takes all of it back
COPY t (id, n) FROM stdin;
k1	1
k2	2
k1	3
\.
COPY t (id, n) FROM stdin;
k3	1
k4	oops
\.
SELECT id, n FROM t WHERE id LIKE 'k%' ORDER BY id;

-- a statement does not see what it writes
TRUNCATE t;
INSERT INTO t (id, n) VALUES ('x', 1), ('y', 2);
INSERT INTO t (id, n) SELECT id || '+', n + 10 FROM t;
SELECT id, n FROM t ORDER BY id;

-- nor does a modifying WITH, but RETURNING gives the rows
WITH i AS (INSERT INTO t (id, n) VALUES ('w', 7) RETURNING *)
SELECT (SELECT count(*) FROM t WHERE id = 'w') AS seen, i.id, i.n FROM i;
-- two ModifyTables of one command put into one memtable
WITH i AS (INSERT INTO t (id, n) VALUES ('w', 8))
INSERT INTO t (id, n) VALUES ('v', 9);
SELECT id, n FROM t WHERE id IN ('v', 'w') ORDER BY id;

-- a volatile function of the same statement sees the rows put before it ran
CREATE FUNCTION seen() RETURNS bigint LANGUAGE plpgsql VOLATILE AS
    $$BEGIN RETURN (SELECT count(*) FROM insert_test.t WHERE id LIKE 'f%'); END$$;
INSERT INTO t (id, n) SELECT 'f' || i, seen() FROM generate_series(1, 4) i;
SELECT id, n FROM t WHERE id LIKE 'f%' ORDER BY id;

-- triggers
CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN
        IF NEW.n < 0 THEN RETURN NULL; END IF;
        NEW.note := 'before: ' || (SELECT count(*) FROM insert_test.t WHERE id LIKE 'g%');
        RETURN NEW;
    END$$;
CREATE FUNCTION after_row() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN
        RAISE NOTICE 'after %: % rows', NEW.id, (SELECT count(*) FROM insert_test.t WHERE id LIKE 'g%');
        RETURN NULL;
    END$$;
CREATE TRIGGER before_row BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION before_row();
CREATE TRIGGER after_row AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION after_row();
INSERT INTO t (id, n) VALUES ('g1', 1), ('g2', -1), ('g3', 3);
COPY t (id, n) FROM stdin;
g4	4
g5	-5
g6	6
\.
SELECT id, n, note FROM t WHERE id LIKE 'g%' ORDER BY id;
DROP TRIGGER before_row ON t;
DROP TRIGGER after_row ON t;

-- an AFTER trigger that inserts into its own table
CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN
        IF length(NEW.id) < 4 THEN
            INSERT INTO insert_test.t (id, n) VALUES (NEW.id || '!', NEW.n + 1);
        END IF;
        RETURN NULL;
    END$$;
CREATE TRIGGER echo AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION echo();
INSERT INTO t (id, n) VALUES ('h', 1), ('i', 5);
SELECT id, n FROM t WHERE id LIKE 'h%' OR id LIKE 'i%' ORDER BY id;
DROP TRIGGER echo ON t;

-- transactions and savepoints
TRUNCATE t;
BEGIN;
INSERT INTO t (id, n) VALUES ('a', 1);
SAVEPOINT one;
INSERT INTO t (id, n) VALUES ('a', 2), ('b', 2);
SAVEPOINT two;
INSERT INTO t (id, n) VALUES ('c', 3);
ROLLBACK TO two;
SELECT id, n FROM t ORDER BY id;
ROLLBACK TO one;
SELECT id, n FROM t ORDER BY id;
INSERT INTO t (id, n) VALUES ('d', 4);
RELEASE one;
COMMIT;
SELECT id, n FROM t ORDER BY id;
BEGIN;
INSERT INTO t (id, n) VALUES ('e', 5);
ROLLBACK;
SELECT id, n FROM t ORDER BY id;

-- exception blocks, one of them inside a running INSERT
DO $$
BEGIN
    FOR i IN 1..20 LOOP
        BEGIN
            INSERT INTO insert_test.t (id, n) VALUES ('loop' || i, i);
            IF i % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
END$$;
SELECT count(*), sum(n) FROM t WHERE id LIKE 'loop%';
CREATE FUNCTION fails_inside(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
    $$BEGIN
        BEGIN
            INSERT INTO insert_test.t (id, n) VALUES ('inner' || $1, (SELECT count(*) FROM insert_test.t WHERE id LIKE 'outer%'));
            IF $1 % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;
        EXCEPTION WHEN raise_exception THEN
            RETURN -1;
        END;
        RETURN $1;
    END$$;
INSERT INTO t (id, n) SELECT 'outer' || i, fails_inside(i) FROM generate_series(1, 5) i;
SELECT id, n FROM t WHERE id LIKE 'inner%' OR id LIKE 'outer%' ORDER BY id;

-- what an inner block causes to be flushed keeps its key locks when that is
-- rolled back: they are the statement's
CREATE FUNCTION peeks_inside() RETURNS int LANGUAGE plpgsql VOLATILE AS
    $$BEGIN
        PERFORM count(*) FROM insert_test.t;
        RAISE EXCEPTION 'no';
    EXCEPTION WHEN raise_exception THEN
        RETURN 0;
    END$$;
BEGIN;
INSERT INTO t (id, n) SELECT 'peek' || i, peeks_inside() FROM generate_series(1, 3) i;
SELECT objsubid, mode, count(*) FROM pg_locks
WHERE pid = pg_backend_pid() AND locktype = 'advisory' GROUP BY 1, 2 ORDER BY 1;
COMMIT;
SELECT id FROM t WHERE id LIKE 'peek%' ORDER BY id;

-- a loop over RETURNING, a function in SQL, a procedure that commits
DO $$
DECLARE r record;
BEGIN
    FOR r IN INSERT INTO insert_test.t (id, n) SELECT 'ret' || i, i FROM generate_series(1, 3) i RETURNING id, n LOOP
        RAISE NOTICE '% % %', r.id, r.n, (SELECT count(*) FROM insert_test.t WHERE id LIKE 'ret%');
    END LOOP;
END$$;
CREATE FUNCTION add_rows(text, int) RETURNS SETOF text LANGUAGE sql AS
    $$INSERT INTO insert_test.t (id, n) SELECT $1 || i, i FROM generate_series(1, $2) i RETURNING id$$;
SELECT add_rows('sql', 3), (SELECT count(*) FROM t WHERE id LIKE 'sql%');
CREATE PROCEDURE add_and_commit() LANGUAGE plpgsql AS
    $$BEGIN
        FOR i IN 1..6 LOOP
            INSERT INTO insert_test.t (id, n) VALUES ('proc' || i, i);
            IF i % 2 = 0 THEN COMMIT; ELSE ROLLBACK; END IF;
        END LOOP;
    END$$;
CALL add_and_commit();
SELECT id FROM t WHERE id LIKE 'sql%' OR id LIKE 'proc%' ORDER BY id;

-- a cursor keeps its answer while its transaction writes
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t WHERE n < 5 ORDER BY id;
FETCH 1 FROM c;
INSERT INTO t (id, n) VALUES ('aaa', 0), ('zzz', 0);
FETCH ALL FROM c;
COMMIT;

-- prepared transactions
BEGIN;
INSERT INTO t (id, n) VALUES ('p1', 1);
PREPARE TRANSACTION 'insert_test_1';
BEGIN;
INSERT INTO t (id, n) VALUES ('p2', 2);
PREPARE TRANSACTION 'insert_test_2';
SELECT id FROM t WHERE id LIKE 'p_';
COMMIT PREPARED 'insert_test_1';
ROLLBACK PREPARED 'insert_test_2';
SELECT id FROM t WHERE id LIKE 'p_';

-- read-only transactions
BEGIN READ ONLY;
INSERT INTO t (id) VALUES ('no');
ROLLBACK;

-- EXPLAIN writes nothing
EXPLAIN (COSTS OFF) INSERT INTO t (id) VALUES ('no');
SELECT count(*) FROM t WHERE id = 'no';

-- partitions: routing, bounds, default partition, moving rows in
CREATE TABLE parent (id int NOT NULL, v text, CHECK (v <> 'bad')) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE part1 PARTITION OF parent FOR VALUES FROM (0) TO (100) SERVER strata OPTIONS (key 'id');
CREATE FOREIGN TABLE part2 PARTITION OF parent FOR VALUES FROM (100) TO (200) SERVER strata OPTIONS (key 'id');
CREATE TABLE part3 PARTITION OF parent FOR VALUES FROM (200) TO (300);
INSERT INTO parent SELECT i, 'v' || i FROM generate_series(0, 299) i;
INSERT INTO parent VALUES (5, 'bad');
INSERT INTO part1 VALUES (150, 'outside');
COPY part1 FROM stdin;
150	outside
\.
COPY parent FROM stdin;
7	again
107	again
207	heap
\.
COPY parent FROM stdin;
8	bad
\.
SELECT tableoid::regclass, count(*), min(id), max(id) FROM parent GROUP BY 1 ORDER BY 1;
SELECT tableoid::regclass, * FROM parent WHERE v = 'again' ORDER BY id;
INSERT INTO parent VALUES (9, 'x'), (109, 'y') RETURNING tableoid::regclass, *;
UPDATE part3 SET v = 'moved' WHERE id = 299;
UPDATE parent SET id = 50 WHERE id = 299;
DELETE FROM parent WHERE id = 50;
UPDATE parent SET id = 50 WHERE id = 299;
CREATE FUNCTION reroute() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN NEW.id := NEW.id + 100; RETURN NEW; END$$;
CREATE TRIGGER reroute BEFORE INSERT ON part1 FOR EACH ROW EXECUTE FUNCTION reroute();
INSERT INTO parent VALUES (1, 'x');
DROP TRIGGER reroute ON part1;

-- row security of the parent
CREATE ROLE insert_test_user;
GRANT USAGE ON SCHEMA insert_test TO insert_test_user;
GRANT INSERT, SELECT ON parent TO insert_test_user;
ALTER TABLE parent ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON parent USING (true) WITH CHECK (id % 2 = 0);
SET ROLE insert_test_user;
INSERT INTO parent VALUES (10, 'even');
INSERT INTO parent VALUES (11, 'odd');
RESET ROLE;
REVOKE ALL ON parent FROM insert_test_user;

-- a view with check option
CREATE VIEW positive AS SELECT id, n FROM t WHERE n > 0 WITH CHECK OPTION;
INSERT INTO positive VALUES ('view1', 1);
INSERT INTO positive VALUES ('view2', -1);
SELECT id FROM t WHERE id LIKE 'view%';

-- toasted, compressed, expanded and large values
CREATE TABLE source (id int, b bytea, a int[]);
ALTER TABLE source ALTER b SET STORAGE EXTERNAL;
INSERT INTO source SELECT i, decode(repeat('ab', i * 1000), 'hex'), array_fill(i, ARRAY[i * 100]) FROM generate_series(1, 20) i;
CREATE FOREIGN TABLE wide (id int NOT NULL, b bytea, a int[]) SERVER strata OPTIONS (key 'id');
INSERT INTO wide SELECT * FROM source;
DROP TABLE source;
DO $$
DECLARE a int[] := ARRAY[1, 2, 3];
BEGIN
    a[5000] := 7;
    INSERT INTO insert_test.wide VALUES (100, decode(repeat('cd', 3000000), 'hex'), a);
END$$;
SELECT id, length(b), md5(b), array_length(a, 1), a[array_length(a, 1)] FROM wide WHERE id IN (1, 7, 20, 100) ORDER BY id;

-- bulk: several row groups in one statement, all of it taken back by an error
CREATE FOREIGN TABLE bulk (id int NOT NULL, v text CHECK (v <> 'fail')) SERVER strata
    OPTIONS (key 'id', row_group_rows '1000', shards '3');
INSERT INTO bulk SELECT i, 'v' || i FROM generate_series(1, 20000) i;
SELECT count(*), sum(id), count(DISTINCT v) FROM bulk;
INSERT INTO bulk SELECT i, CASE WHEN i = 15000 THEN 'fail' ELSE 'w' || i END FROM generate_series(1, 20000) i;
SELECT count(*), sum(id), count(*) FILTER (WHERE v LIKE 'w%') FROM bulk;
INSERT INTO bulk SELECT i, 'w' || i FROM generate_series(10001, 30000) i;
SELECT count(*), sum(id), count(*) FILTER (WHERE v LIKE 'w%') FROM bulk;

-- keyless tables only grow
CREATE FOREIGN TABLE keyless (a int, b text) SERVER strata OPTIONS (shards '4');
INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
INSERT INTO keyless SELECT i, 'y' FROM generate_series(1, 1000) i;
SELECT count(*), count(a), sum(a) FROM keyless;

-- added and dropped columns
ALTER FOREIGN TABLE t ADD COLUMN extra int DEFAULT 42, DROP COLUMN note;
INSERT INTO t (id, n) VALUES ('col1', 1);
INSERT INTO t (id, n, extra) VALUES ('col2', 2, 43);
SELECT id, n, extra FROM t WHERE id LIKE 'col_' OR id = 'view1' ORDER BY id;

-- layer tables refuse
CREATE FOREIGN TABLE layer (id text, n int) SERVER strata OPTIONS (store 't', layer 'wal');
INSERT INTO layer VALUES ('x', 1);
COPY layer FROM stdin;
\.
TRUNCATE layer;

-- TRUNCATE
BEGIN;
TRUNCATE t, bulk;
SELECT count(*) FROM t;
INSERT INTO t (id, n) VALUES ('new', 1);
SELECT id FROM t;
ROLLBACK;
SELECT count(*) FROM bulk;
TRUNCATE t, bulk;
SELECT count(*) FROM t;
SELECT count(*) FROM bulk;

SET client_min_messages = warning;
-- a table without columns holds rows, as a heap does
CREATE FOREIGN TABLE nothing () SERVER strata;
INSERT INTO nothing DEFAULT VALUES;
INSERT INTO nothing SELECT FROM generate_series(1, 1000);
SELECT count(*) FROM nothing;
SELECT count(*) FROM strata.seal('nothing');
SELECT generations_merged, rows_inserted FROM strata.merge('nothing');
INSERT INTO nothing DEFAULT VALUES;
ALTER FOREIGN TABLE nothing ADD COLUMN a int DEFAULT 7;
SELECT count(*), sum(a) FROM nothing;
SELECT * FROM strata.verify('nothing');
DROP FOREIGN TABLE nothing;

DROP SCHEMA insert_test CASCADE;
DROP ROLE insert_test_user;
