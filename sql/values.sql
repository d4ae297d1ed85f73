-- Values that come compressed, out of line, expanded or inside others are
-- stored whole: what they came from can go (L43).  Tables of no column and of as many
-- as there can be.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA values_test;
SET search_path = values_test;
CREATE TYPE pair AS (x int, y text, z int[]);
CREATE TYPE deep AS (p pair, ps pair[]);
CREATE TABLE src (id int, big text, ext text, lz text COMPRESSION pglz, arr text[], p pair, d deep, r bytea, j jsonb);
ALTER TABLE src ALTER ext SET STORAGE EXTERNAL, ALTER r SET STORAGE EXTERNAL;
INSERT INTO src SELECT i, (SELECT string_agg(md5((i*g)::text), '') FROM generate_series(1, 3000) g), repeat(md5(i::text), 1000), repeat('x', 100000), ARRAY(SELECT repeat(md5(g::text), 30) FROM generate_series(1, 50) g),
  (i, (SELECT string_agg(md5((i*g)::text), '') FROM generate_series(1, 3000) g), ARRAY(SELECT g FROM generate_series(1, 5000) g))::pair, NULL, decode(repeat(md5(i::text), 2000), 'hex'), jsonb_build_object('a', repeat(md5(i::text), 3000)) FROM generate_series(1, 20) i;
UPDATE src SET d = ROW(p, ARRAY[p, p, NULL])::deep;
CREATE FOREIGN TABLE s (id int, big text, ext text, lz text, arr text[], p pair, d deep, r bytea, j jsonb) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE sums AS SELECT id, md5(src::text) AS m FROM src;
INSERT INTO s SELECT * FROM src;
INSERT INTO s SELECT id + 100, p.y, substr(big, 1, 100), lz, arr[2:3], ROW(1, big, ARRAY[1])::pair, ROW(p, ARRAY[ROW(id, ext, NULL)::pair])::deep, r, j -> 'a' FROM (SELECT id, big, ext, lz, arr, p, r, j FROM src) x, LATERAL (SELECT (x.p).y) p(y) WHERE id < 5;
CREATE TABLE sums2 AS SELECT id, md5(s::text) AS m FROM s WHERE id > 100;
DO $$
DECLARE a text[] := '{}'; q pair; d deep; rec src;
BEGIN
  FOR i IN 1..1000 LOOP a := a || repeat('q', i); END LOOP;
  SELECT (src.p).* INTO q FROM src WHERE id = 3;
  q.x := 77; q.z[3] := 9;
  SELECT * INTO rec FROM src WHERE id = 4;
  INSERT INTO s (id, arr, p) VALUES (200, a, q);
  rec.id := 201; rec.arr := a; rec.p := q; q := rec.p; q.y := q.y || '!'; rec.p := q;
  INSERT INTO s SELECT rec.*;
  INSERT INTO s VALUES (rec.id + 1, rec.big, rec.ext, rec.lz, rec.arr, rec.p, rec.d, rec.r, rec.j);
  UPDATE s SET arr = a || '{z}'::text[], p = rec.p, d = ROW(rec.p, ARRAY[q])::deep WHERE id = 1;
END $$;
CREATE TABLE sums3 AS SELECT id, md5(s::text) AS m FROM s WHERE id IN (1, 200, 201, 202);
DROP TABLE src CASCADE;
SELECT count(*), count(*) FILTER (WHERE md5(s::text) = m) FROM s JOIN sums USING (id) WHERE id <> 1;
CALL strata.drain('s');
SELECT count(*), count(*) FILTER (WHERE md5(s::text) = m) FROM s JOIN sums USING (id) WHERE id <> 1;
SELECT count(*), count(*) FILTER (WHERE md5(s::text) = m) FROM s JOIN sums2 USING (id);
SELECT count(*), count(*) FILTER (WHERE md5(s::text) = m) FROM s JOIN sums3 USING (id);
SELECT * FROM strata.verify('s');
-- no column, and as many as there can be
CREATE FOREIGN TABLE z () SERVER strata OPTIONS (auto_merge 'off');
INSERT INTO z DEFAULT VALUES;
INSERT INTO z DEFAULT VALUES;
SELECT count(*) FROM z;
CALL strata.drain('z');
SELECT count(*) FROM z;
SELECT z FROM z;
ALTER FOREIGN TABLE z ADD COLUMN a int DEFAULT 3;
SELECT * FROM z;
ALTER FOREIGN TABLE z DROP COLUMN a;
SELECT count(*) FROM z;
INSERT INTO z DEFAULT VALUES;
CALL strata.drain('z');
SELECT count(*) FROM z;
SELECT * FROM strata.verify('z');
DO $$ BEGIN EXECUTE 'CREATE FOREIGN TABLE w (' || (SELECT string_agg('c' || i || ' int', ', ') FROM generate_series(1, 1600) i) || ') SERVER strata OPTIONS (key ''c1'', auto_merge ''off'')';
EXECUTE 'INSERT INTO w SELECT ' || (SELECT string_agg('i + ' || i, ', ') FROM generate_series(1, 1600) i) || ' FROM generate_series(1, 200) i'; END$$;
SELECT count(*), sum(c1600), sum(c800) FROM w;
CALL strata.drain('w');
SELECT count(*), sum(c1600), sum(c800) FROM w;
SELECT c1600 FROM w WHERE c1 = 101;
UPDATE w SET c1600 = 0 WHERE c1 = 101;
SELECT c1600, c1599 FROM w WHERE c1 = 101;
 CALL strata.drain('w');
SELECT c1600, c1599 FROM w WHERE c1 = 101;
SELECT * FROM strata.verify('w');
DROP SCHEMA values_test CASCADE;
