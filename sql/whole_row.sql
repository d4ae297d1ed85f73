-- A changed table's whole row, asked for by the query and for the change (P31, P17).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA whole_row_test;
SET search_path = whole_row_test;

CREATE FOREIGN TABLE t (id int NOT NULL, v int, note text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO t SELECT g, g, 'n' || g FROM generate_series(1, 6) g;
CALL strata.drain('t');
INSERT INTO t SELECT g, g, 'n' || g FROM generate_series(7, 8) g;
CREATE TABLE h (id int, x int);
INSERT INTO h VALUES (1, 10), (2, 20), (7, 70);
CREATE FUNCTION key_of(t) RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN $1.id; END$$;

-- in joins, where the row is passed on from the scan
SET enable_hashjoin = off;
SET enable_mergejoin = off;
WITH c AS (UPDATE t SET v = x + key_of(t) FROM h WHERE key_of(t.*) = h.id RETURNING t, h, key_of(t) AS k) SELECT * FROM c ORDER BY k;
WITH c AS (UPDATE t SET note = t::text FROM h WHERE t.id = h.id AND t IS NOT NULL RETURNING t.*, h) SELECT * FROM c ORDER BY id;
WITH c AS (DELETE FROM t USING h WHERE key_of(t) = h.id AND h.x < 50 RETURNING t, key_of(t) AS k) SELECT * FROM c ORDER BY k;
RESET enable_hashjoin;
RESET enable_mergejoin;
WITH c AS (UPDATE t SET v = (SELECT sum(x) FROM h WHERE key_of(t) = h.id) FROM h h2 WHERE key_of(t) = h2.id RETURNING t) SELECT * FROM c;

-- triggers want the old row too
CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
  NEW.note := OLD.note || '!';
  RETURN NEW;
END$$;
CREATE TRIGGER changed BEFORE UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION changed();
INSERT INTO h VALUES (3, 30), (4, 40);
WITH c AS (UPDATE t SET v = key_of(t) * x FROM h WHERE key_of(t) = h.id RETURNING t, h.x) SELECT * FROM c ORDER BY x;
WITH c AS (DELETE FROM t USING h WHERE key_of(t) = h.id AND x = 30 RETURNING t, t.note) SELECT * FROM c;

-- through a parent, whose row type is another
CREATE TABLE parent (note text, id int NOT NULL, v int);
ALTER FOREIGN TABLE t INHERIT parent;
INSERT INTO parent VALUES ('heap', 5, 0);
CREATE FUNCTION key_of(parent) RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN $1.id; END$$;
WITH c AS (UPDATE parent SET v = key_of(parent) * x FROM h WHERE key_of(parent) = h.id + 1 RETURNING parent, h) SELECT * FROM c ORDER BY 1;
WITH c AS (DELETE FROM parent USING h WHERE key_of(parent) = h.id + 2 RETURNING parent, parent.tableoid::regclass AS of) SELECT * FROM c ORDER BY 1, 2;
SELECT tableoid::regclass AS of, * FROM parent ORDER BY id;

SET client_min_messages = warning;
DROP SCHEMA whole_row_test CASCADE;
