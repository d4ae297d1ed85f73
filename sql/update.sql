-- UPDATE and DELETE (P17, P22 - P25, C2 - C4, C7).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA update_test;
SET search_path = update_test;

CREATE FOREIGN TABLE t (id int NOT NULL, v text, n int CHECK (n < 1000), g int GENERATED ALWAYS AS (n * 2) STORED)
  SERVER strata OPTIONS (key 'id', auto_merge 'off');
\set QUIET off
INSERT INTO t (id, v, n) SELECT i, 'v' || i, i FROM generate_series(1, 10) i;

-- one row, many rows, no row; RETURNING old and new values
UPDATE t SET v = 'x' WHERE id = 3 RETURNING *;
UPDATE t SET n = n + 100 WHERE id > 7 RETURNING id, n, g, tableoid::regclass;
UPDATE t SET n = 0 WHERE id = 77;
UPDATE t SET (v, n) = (SELECT 'sub' || t.id, 50) WHERE id = 4 RETURNING t;
DELETE FROM t WHERE id = 1 RETURNING id;
DELETE FROM t WHERE id = 2 RETURNING v, n, g;
DELETE FROM t WHERE id = 2;
DELETE FROM t WHERE id = ANY ('{5,6,99}') RETURNING t.*;
SELECT * FROM t ORDER BY id;

-- over the base table, and over both
CALL strata.drain('t');
UPDATE t SET v = v || '!' WHERE id IN (3, 7, 8) RETURNING id, v;
DELETE FROM t WHERE n > 109;
UPDATE t SET v = v || '?' WHERE v LIKE '%!' RETURNING id, v;
SELECT * FROM t ORDER BY id;
CALL strata.drain('t');
SELECT * FROM t ORDER BY id;

-- constraints, which core leaves to us
UPDATE t SET n = 1000 WHERE id = 3;
UPDATE t SET id = NULL WHERE id = 3;
UPDATE t SET g = 1 WHERE id = 3;

-- joins: each row is changed once; a row that matches more than once, too
UPDATE t SET v = x.v FROM (VALUES (3, 'a'), (3, 'a'), (4, 'b'), (5, 'c')) x (id, v) WHERE t.id = x.id RETURNING t.id, t.v, x.v;
UPDATE t SET v = t2.v FROM t t2 WHERE t2.id = t.id + 1 RETURNING t.id, t.v;
DELETE FROM t USING generate_series(1, 3) s, t t2 WHERE t.id = s AND t2.id = 4 RETURNING t.id, t2.id;
SELECT * FROM t ORDER BY id;

-- the key
UPDATE t SET id = 4 WHERE id = 7;
UPDATE t SET id = 70, v = 'moved' WHERE id = 7 RETURNING *;
UPDATE t SET id = 9 WHERE id < 9;
UPDATE t SET id = id WHERE id = 70 RETURNING id;
UPDATE t SET id = id + 1000 RETURNING id;
INSERT INTO t (id, v, n) VALUES (7, 'again', 7);
SELECT id, v FROM t ORDER BY id;

-- several changes of one row in a command and a transaction
BEGIN;
UPDATE t SET n = 1 WHERE id = 7;
SAVEPOINT s;
DELETE FROM t WHERE id = 7;
SELECT count(*) FROM t WHERE id = 7;
INSERT INTO t (id, v, n) VALUES (7, 'third', 3);
UPDATE t SET n = n + 1 WHERE id = 7 RETURNING *;
ROLLBACK TO s;
UPDATE t SET n = n + 1 WHERE id = 7 RETURNING *;
COMMIT;
SELECT * FROM t WHERE id = 7;
WITH d AS (DELETE FROM t WHERE id = 7 RETURNING *), i AS (INSERT INTO t (id, v, n) SELECT id, 'from d', n FROM d RETURNING id)
  SELECT * FROM i;
SELECT * FROM t WHERE id = 7;
WITH u AS (UPDATE t SET n = 10 WHERE id = 7 RETURNING id) UPDATE t SET n = 20 FROM u WHERE t.id = u.id;
SELECT n FROM t WHERE id = 7;

-- a command that changes what another one has read already
CREATE FUNCTION change_too(int) RETURNS int LANGUAGE plpgsql AS $$BEGIN UPDATE update_test.t SET v = 'by function' WHERE id = $1; RETURN 0; END$$;
UPDATE t SET n = change_too(id) WHERE id = 7;
DELETE FROM t WHERE id = 7 AND change_too(id) = 0;
SELECT v FROM t WHERE id = 7;

-- cursors see what they saw; WHERE CURRENT OF is refused
BEGIN;
DECLARE c CURSOR FOR SELECT id, v FROM t ORDER BY id;
FETCH 1 FROM c;
UPDATE t SET v = 'later';
FETCH 1 FROM c;
UPDATE t SET v = 'current' WHERE CURRENT OF c;
ROLLBACK;

-- through views and prepared statements
CREATE VIEW w AS SELECT id, v FROM t WHERE id > 1000 WITH CHECK OPTION;
UPDATE w SET v = 'through view' WHERE id = 1004 RETURNING *;
UPDATE w SET id = 1 WHERE id = 1004;
DELETE FROM w WHERE id = 7;
PREPARE u(int, text) AS UPDATE t SET v = $2 WHERE id = $1 RETURNING id, v;
EXECUTE u(1004, 'p1');
EXECUTE u(7, 'p2');

-- what cannot be changed
CREATE FOREIGN TABLE keyless (a int) SERVER strata;
INSERT INTO keyless VALUES (1);
UPDATE keyless SET a = 2;
DELETE FROM keyless;
SELECT * FROM keyless FOR UPDATE;
CREATE FOREIGN TABLE t_wal (id int, v text) SERVER strata OPTIONS (store 't', layer 'wal');
UPDATE t_wal SET v = 'x';
DELETE FROM t_wal;
SELECT * FROM t_wal FOR SHARE;
INSERT INTO t VALUES (7, 'x', 1) ON CONFLICT (id) DO UPDATE SET v = 'y';
MERGE INTO t USING (VALUES (7)) s (id) ON t.id = s.id WHEN MATCHED THEN DELETE;
SELECT c.relname, pg_relation_is_updatable(c.oid, false) FROM pg_class c WHERE relname IN ('t', 'keyless', 'w') AND relnamespace = 'update_test'::regnamespace ORDER BY 1;

-- rights
CREATE ROLE update_user;
GRANT USAGE ON SCHEMA update_test TO update_user;
GRANT SELECT, UPDATE (v) ON t TO update_user;
SET ROLE update_user;
UPDATE t SET v = 'mine' WHERE id = 7;
UPDATE t SET n = 1 WHERE id = 7;
DELETE FROM t WHERE id = 7;
SELECT id FROM t WHERE id = 7 FOR UPDATE;
RESET ROLE;

-- read-only transactions
BEGIN READ ONLY;
UPDATE t SET v = 'x';
ROLLBACK;

-- row triggers: what they change is kept, what they return decides, and they
-- see what the statement has done so far
CREATE FOREIGN TABLE g (id int NOT NULL, v int, note text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO g SELECT i, i FROM generate_series(1, 5) i;
CREATE FUNCTION before_g() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.id = 3 THEN RETURN NULL; END IF;
  IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
  NEW.note = concat_ws(' ', 'was', OLD.v, 'sum', (SELECT sum(v) FROM g));
  RETURN NEW;
END$$;
CREATE FUNCTION after_g() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE NOTICE '% % % -> %', TG_WHEN, TG_OP, OLD, CASE WHEN TG_OP = 'UPDATE' THEN NEW END;
  RETURN NULL;
END$$;
CREATE FUNCTION stmt_g() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE NOTICE '% % sum %', TG_WHEN, TG_OP, (SELECT sum(v) FROM g); RETURN NULL; END$$;
CREATE TRIGGER b BEFORE UPDATE OR DELETE ON g FOR EACH ROW EXECUTE FUNCTION before_g();
CREATE TRIGGER a AFTER UPDATE OR DELETE ON g FOR EACH ROW EXECUTE FUNCTION after_g();
CREATE TRIGGER s BEFORE UPDATE OR DELETE ON g FOR EACH STATEMENT EXECUTE FUNCTION stmt_g();
CREATE TRIGGER s2 AFTER UPDATE OR DELETE ON g FOR EACH STATEMENT EXECUTE FUNCTION stmt_g();
UPDATE g SET v = v * 10 WHERE id < 5 RETURNING *;
UPDATE g SET id = 6 WHERE id = 5 AND v < random() + 100;
DELETE FROM g WHERE id < 4 RETURNING id;
SELECT * FROM g ORDER BY id;
DROP TRIGGER b ON g;
CREATE FUNCTION nested_g() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN UPDATE update_test.g SET v = 0 WHERE id = OLD.id; RETURN NEW; END$$;
CREATE TRIGGER n BEFORE UPDATE ON g FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION nested_g();
UPDATE g SET v = 5 WHERE id = 4;
DROP TRIGGER n ON g;
CREATE TRIGGER n AFTER UPDATE ON g FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION nested_g();
UPDATE g SET v = 5 WHERE id = 4;
SELECT * FROM g WHERE id = 4;

-- partitions: heap and strata ones
CREATE TABLE p (id int NOT NULL, v text) PARTITION BY RANGE (id);
CREATE TABLE p_heap PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE FOREIGN TABLE p_one PARTITION OF p FOR VALUES FROM (100) TO (200) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE FOREIGN TABLE p_two (v text, extra int, id int NOT NULL) SERVER strata OPTIONS (key 'id', auto_merge 'off');
ALTER FOREIGN TABLE p_two DROP COLUMN extra;
ALTER TABLE p ATTACH PARTITION p_two FOR VALUES FROM (200) TO (300);
INSERT INTO p SELECT i, 'v' || i FROM unnest('{1,2,101,102,201,202}'::int[]) i;
EXPLAIN (COSTS OFF) UPDATE p SET v = v || '!' WHERE id > 100;
UPDATE p SET v = v || '!' RETURNING tableoid::regclass, *;
DELETE FROM p WHERE id IN (1, 101, 201) RETURNING tableoid::regclass, *;
-- heap to strata, also to a partition that the same command updates; a row that
-- is there stays, whatever inserting would do
UPDATE p SET id = id + 100 WHERE id = 2;
DELETE FROM p WHERE id = 102;
UPDATE p SET id = id + 100 WHERE id = 2 RETURNING tableoid::regclass, *;
INSERT INTO p VALUES (3, 'three');
UPDATE p SET id = CASE WHEN id = 3 THEN 150 ELSE id END, v = v || '.' RETURNING tableoid::regclass, *;
-- out of a strata partition, if the command names the parent (more in move.sql)
UPDATE p SET id = 50 WHERE id = 102 RETURNING tableoid::regclass, *;
UPDATE p SET id = 102 WHERE id = 50;
UPDATE p_one SET id = 250 WHERE id = 102;
UPDATE p_one SET id = 160 WHERE id = 102 RETURNING *;
WITH d AS (DELETE FROM p WHERE id = 160 RETURNING *) INSERT INTO p SELECT 60, v FROM d RETURNING *;
UPDATE p SET v = 'joined' FROM generate_series(100, 300) s WHERE p.id = s RETURNING tableoid::regclass, p.*;
SELECT tableoid::regclass, * FROM p ORDER BY id;
SELECT * FROM p ORDER BY id FOR UPDATE;

-- inheritance
CREATE TABLE parent (id int NOT NULL, v text);
CREATE FOREIGN TABLE child (more int) INHERITS (parent) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO parent VALUES (1, 'parent');
INSERT INTO child VALUES (1, 'child', 10), (2, 'child', 20);
UPDATE parent SET v = v || ' changed' RETURNING tableoid::regclass, *;
DELETE FROM parent WHERE id = 1 RETURNING tableoid::regclass, *;
SELECT * FROM child;

-- keys that are equal but not the same bytes, and composite ones
CREATE FOREIGN TABLE k (a numeric NOT NULL, b text COLLATE "C" NOT NULL, v int) SERVER strata OPTIONS (key 'a,b', shards '3', auto_merge 'off');
INSERT INTO k VALUES (1.0, 'x', 1), (1, 'y', 2), (2, 'x', 3);
UPDATE k SET a = 1.000 WHERE b = 'x' AND a = 1 RETURNING *;
UPDATE k SET b = 'y' WHERE a = 1;
UPDATE k SET b = b || b RETURNING *;
DELETE FROM k WHERE a = 1.00 RETURNING *;
SELECT * FROM k;

-- on_duplicate 'error' and 'ignore'
CREATE FOREIGN TABLE e (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', on_duplicate 'error', auto_merge 'off');
CREATE FOREIGN TABLE i (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', on_duplicate 'ignore', auto_merge 'off');
INSERT INTO e VALUES (1, 1), (2, 2);
INSERT INTO i VALUES (1, 1), (2, 2);
UPDATE e SET v = 10;
UPDATE i SET v = 10;
UPDATE e SET id = 2 WHERE id = 1;
UPDATE i SET id = 2 WHERE id = 1;
UPDATE e SET id = 3 WHERE id = 1;
UPDATE i SET id = 3 WHERE id = 1;
DELETE FROM e WHERE id = 2;
DELETE FROM i WHERE id = 2;
INSERT INTO e VALUES (2, 20);
INSERT INTO i VALUES (2, 20), (3, 30);
SELECT 'e' AS t, * FROM e UNION ALL SELECT 'i', * FROM i ORDER BY 1, 2;

-- many rows: more than a memtable holds, tombstones and row groups
CREATE FOREIGN TABLE m (id int NOT NULL, v int, w text) SERVER strata OPTIONS (key 'id', row_group_rows '1000', auto_merge 'off');
INSERT INTO m SELECT i, i, md5(i::text) FROM generate_series(1, 20000) i;
UPDATE m SET v = v + 1 WHERE id % 2 = 0;
UPDATE m SET id = id + 100000 WHERE id % 10 = 0;
DELETE FROM m WHERE id % 3 = 0;
SELECT count(*), sum(id), sum(v), min(w), max(w) FROM m;
CALL strata.drain('m');
SELECT count(*), sum(id), sum(v), min(w), max(w) FROM m;
DELETE FROM m;
SELECT count(*) FROM m;
CALL strata.drain('m');
SELECT count(*) FROM m;
CREATE TABLE mh (id int PRIMARY KEY, v int, w text);
INSERT INTO mh SELECT i, i, md5(i::text) FROM generate_series(1, 20000) i;
UPDATE mh SET v = v + 1 WHERE id % 2 = 0;
UPDATE mh SET id = id + 100000 WHERE id % 10 = 0;
DELETE FROM mh WHERE id % 3 = 0;
SELECT count(*), sum(id), sum(v), min(w), max(w) FROM mh;
-- commands within an UPDATE read more of the log than strata.cache_size has room for
SET strata.cache_size = '64kB';
CREATE FOREIGN TABLE more (k int NOT NULL, n int) SERVER strata OPTIONS (key 'k', auto_merge 'off');
INSERT INTO more SELECT i, 0 FROM generate_series(1, 1000) i;
CREATE FUNCTION put_more(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF i % 100 = 50 THEN
		INSERT INTO more SELECT 10000 + i * 1000 + g, 0 FROM generate_series(1, 1000) g;
		PERFORM count(*) FROM more;
	END IF;
	RETURN i;
END$$;
UPDATE more SET n = put_more(k);
SELECT count(*), sum(n) FROM more;
-- nor does it change a row twice that it has put in the log already
CREATE FUNCTION look_at_more(i int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF i % 1000 = 0 THEN
		PERFORM FROM more LIMIT 1;
	END IF;
	RETURN 1;
END$$;
UPDATE more SET n = n + look_at_more(k) FROM generate_series(1, 2) g;
SELECT count(*), sum(n) FROM more;
RESET strata.cache_size;
\set QUIET on
SELECT s.store, v.* FROM strata.stores s, strata.verify(s.store) v WHERE s.store::text NOT LIKE '%wal%';

SET client_min_messages = warning;
DROP SCHEMA update_test CASCADE;
DROP ROLE update_user;
