-- Scans give what a heap table fed the same statements gives, whatever is
-- merged, pending or superseded.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA scan;
SET search_path = scan, public;

CREATE FOREIGN TABLE f (id int NOT NULL, grp int, name text, val numeric, d double precision, at timestamptz, doc jsonb, tags int[])
	SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE h (id int PRIMARY KEY, grp int, name text, val numeric, d double precision, at timestamptz, doc jsonb, tags int[]);

-- feed both; the heap is told that the newest wins
CREATE FUNCTION feed(lo int, hi int, step int, gen int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMP TABLE fed ON COMMIT DROP AS
		SELECT i AS id, i % 10 AS grp, 'name ' || (i % 97) || ' ' || gen AS name,
			   CASE WHEN i % 13 = 0 THEN NULL ELSE i * 1.5 + gen END AS val,
			   CASE i % 50 WHEN 7 THEN 'NaN' WHEN 8 THEN 'Infinity' WHEN 9 THEN '-Infinity' ELSE i / 3.0 END::float8 AS d,
			   '2024-01-01 00:00+00'::timestamptz + i * interval '1 minute' AS at,
			   CASE WHEN i % 3 = 0 THEN jsonb_build_object('i', i, 'gen', gen) END AS doc,
			   ARRAY[i, gen] AS tags
		FROM generate_series(lo, hi, step) i;
	INSERT INTO f SELECT * FROM fed;
	INSERT INTO h SELECT * FROM fed ON CONFLICT (id) DO UPDATE SET
		grp = excluded.grp, name = excluded.name, val = excluded.val, d = excluded.d,
		at = excluded.at, doc = excluded.doc, tags = excluded.tags;
	DROP TABLE fed;
END $$;

-- the rows of a query on %t, here and there: number of rows, and of those
-- that only one of the two gives
CREATE FUNCTION same(query text, OUT n bigint, OUT extra bigint, OUT missing bigint) LANGUAGE plpgsql AS $$
DECLARE
	ours text := replace(query, '%t', 'scan.f');
	theirs text := replace(query, '%t', 'scan.h');
BEGIN
	EXECUTE format('SELECT count(*) FROM (%s) q', ours) INTO n;
	EXECUTE format('SELECT count(*) FROM ((SELECT q::text FROM (%s) q) EXCEPT ALL (SELECT q::text FROM (%s) q)) x', ours, theirs) INTO extra;
	EXECUTE format('SELECT count(*) FROM ((SELECT q::text FROM (%s) q) EXCEPT ALL (SELECT q::text FROM (%s) q)) x', theirs, ours) INTO missing;
END $$;

CREATE TABLE queries (no int PRIMARY KEY, query text);
INSERT INTO queries VALUES
	(1, 'SELECT * FROM %t'),
	(2, 'SELECT id FROM %t'),
	(3, 'SELECT count(*) FROM %t'),
	(4, 'SELECT grp, count(*), sum(val) FROM %t GROUP BY grp'),
	(5, 'SELECT name FROM %t WHERE grp = 3'),
	(6, 'SELECT * FROM %t WHERE val IS NULL'),
	(7, 'SELECT * FROM %t WHERE val IS NOT NULL AND id > 900'),
	(8, 'SELECT id FROM %t WHERE at < ''2024-01-01 01:00+00'''),
	(9, 'SELECT id FROM %t WHERE at >= ''2024-01-01 20:00+00'' AND at <= ''2024-01-01 22:00+00'''),
	(10, 'SELECT id, d FROM %t WHERE d > 100'),
	(11, 'SELECT id, d FROM %t WHERE d = ''NaN'''),
	(12, 'SELECT id, d FROM %t WHERE d < -1e300'),
	(13, 'SELECT id, d FROM %t WHERE NOT d < 1e300'),
	(14, 'SELECT id FROM %t WHERE grp = ANY (''{1,NULL,5}'')'),
	(15, 'SELECT id FROM %t WHERE grp = ANY (NULL::int[])'),
	(16, 'SELECT id FROM %t WHERE grp <> ALL (''{1,2}'')'),
	(17, 'SELECT id FROM %t WHERE grp = NULL'),
	(18, 'SELECT id FROM %t WHERE 500 > id'),
	(19, 'SELECT id FROM %t WHERE id BETWEEN 100 AND 200'),
	(20, 'SELECT id FROM %t WHERE id::bigint < 50::bigint'),
	(21, 'SELECT id FROM %t WHERE id < 50::bigint AND id > 20::smallint'),
	(22, 'SELECT id FROM %t WHERE name < ''name 2'''),
	(23, 'SELECT id FROM %t WHERE name < ''name 2'' COLLATE "C"'),
	(24, 'SELECT id FROM %t WHERE doc ->> ''gen'' = ''2'''),
	(25, 'SELECT x.* FROM %t x WHERE x.id = 77'),
	(26, 'SELECT x FROM %t x WHERE x.id % 100 = 1'),
	(27, 'SELECT tags[2], count(*) FROM %t GROUP BY 1'),
	(28, 'SELECT id FROM %t ORDER BY name DESC, id LIMIT 20'),
	(29, 'SELECT max(at), min(at), max(name), min(val) FROM %t'),
	(30, 'SELECT a.id, b.name FROM %t a JOIN %t b ON a.id = b.id + 10 WHERE a.grp = 2'),
	(31, 'SELECT id FROM %t a WHERE EXISTS (SELECT FROM %t b WHERE b.id = a.id * 2 AND b.grp = 4)'),
	(32, 'SELECT id FROM %t WHERE at > (SELECT max(at) - interval ''30 minutes'' FROM %t)'),
	(33, 'SELECT 1 FROM %t WHERE false'),
	(34, 'SELECT ''x'' FROM %t'),
	(35, 'SELECT grp, row_number() OVER (PARTITION BY grp ORDER BY id) FROM %t WHERE id < 300');

CREATE PROCEDURE compare(label text) LANGUAGE plpgsql AS $$
DECLARE
	q record;
	r record;
	bad int := 0;
BEGIN
	FOR q IN SELECT * FROM queries ORDER BY no LOOP
		r := same(q.query);
		IF r.extra > 0 OR r.missing > 0 THEN
			bad := bad + 1;
			RAISE WARNING '%: query % differs: % rows, % extra, % missing', label, q.no, r.n, r.extra, r.missing;
		END IF;
	END LOOP;
	RAISE WARNING '%: % rows, % queries differ', label, (same('SELECT * FROM %t')).n, bad;
END $$;

CALL compare('empty');
SELECT feed(1, 1000, 1, 1);
CALL compare('pending');
SELECT count(*) FROM strata.seal('f');
CALL strata.drain('f');
CALL compare('merged');
SELECT feed(1, 1500, 7, 2);
CALL compare('pending over merged');
SELECT feed(3, 1500, 7, 3);
SELECT feed(1, 2000, 11, 4);
CALL compare('more pending');
CALL strata.drain('f');
CALL compare('all merged');
SELECT feed(5000, 5100, 1, 5);
SELECT feed(1, 100, 1, 6);
CALL compare('disjoint row groups');
CALL strata.drain('f');
SELECT feed(1, 5100, 500, 7);
CALL compare('disjoint row groups merged');

-- within a transaction, own rows included
BEGIN;
SELECT feed(10, 20, 1, 8);
CALL compare('own rows');
SAVEPOINT s;
SELECT feed(10, 30, 2, 9);
CALL compare('own rows in a savepoint');
ROLLBACK TO s;
CALL compare('savepoint rolled back');
ROLLBACK;
CALL compare('rolled back');

-- zone maps never hide a version: the old one matches, the new one does not
INSERT INTO f (id, grp) VALUES (50, 999);
INSERT INTO h (id, grp) VALUES (50, 999) ON CONFLICT (id) DO UPDATE SET (grp, name, val, d, at, doc, tags) = (999, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT id, grp FROM f WHERE id BETWEEN 49 AND 51 AND grp < 10;
SELECT count(*) FROM f WHERE grp = 999;
CALL compare('changed out of a zone');

-- system columns and whole rows
SELECT tableoid::regclass, count(*) FROM f GROUP BY 1;
SELECT count(*) = count(DISTINCT ctid) FROM f;
SELECT count(*) FROM f a JOIN f b ON a.ctid = b.ctid WHERE a.id = b.id;
SELECT xmin FROM f LIMIT 1;
SELECT (x).id FROM (SELECT f AS x FROM f WHERE id = 50) s;
SELECT f FROM f WHERE id = 50;
SELECT count(*) FROM f WHERE f IS NOT NULL;

-- a rescan starts over: nested loop against hash join
SET enable_material = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE TABLE small AS SELECT g AS n FROM generate_series(1, 5) g;
EXPLAIN (COSTS OFF) SELECT count(*), sum(f.id) FROM small LEFT JOIN f ON f.grp > n + 5 AND f.id < 100;
SELECT count(*), sum(f.id) FROM small LEFT JOIN f ON f.grp > n + 5 AND f.id < 100;
SELECT count(*), sum(h.id) FROM small LEFT JOIN h ON h.grp > n + 5 AND h.id < 100;
-- lateral
SELECT n, x.* FROM small, LATERAL (SELECT count(*), min(f.id) FROM f WHERE f.id < n * 10) x ORDER BY n;
SELECT n, x.* FROM small, LATERAL (SELECT count(*), min(h.id) FROM h WHERE h.id < n * 10) x ORDER BY n;
SELECT n, (SELECT max(f.val) FROM f WHERE f.grp = n) AS f, (SELECT max(h.val) FROM h WHERE h.grp = n) AS h FROM small ORDER BY n;
RESET enable_material;
RESET enable_hashjoin;
RESET enable_mergejoin;

-- cursors; core keeps what a backward fetch needs
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM f WHERE id <= 10 ORDER BY id;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH LAST FROM c;
DECLARE u SCROLL CURSOR FOR SELECT id FROM f WHERE grp = 999;
FETCH ALL FROM u;
FETCH BACKWARD ALL FROM u;
-- a cursor does not see what comes after it was opened
DECLARE n CURSOR FOR SELECT count(*), max(grp) FROM f;
INSERT INTO f (id, grp) VALUES (100000, 100000);
FETCH n;
SELECT count(*), max(grp) FROM f;
ROLLBACK;

-- insert from itself
BEGIN;
SELECT count(*) FROM f;
INSERT INTO f SELECT id + 10000, grp FROM f;
SELECT count(*) FROM f;
ROLLBACK;
SELECT count(*) FROM f;

-- what a command's own functions see of it: volatile ones its rows so far
CREATE FOREIGN TABLE o (id int NOT NULL, v int) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE FUNCTION seen() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN (SELECT count(*) FROM o); END $$;
CREATE FUNCTION seen_before() RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT count(*) FROM o); END $$;
CREATE FUNCTION write_more(i int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN INSERT INTO o VALUES (i + 100, 0); RETURN (SELECT count(*) FROM o WHERE id > 100); END $$;
INSERT INTO o SELECT g, seen() FROM generate_series(1, 3) g;
INSERT INTO o SELECT g, seen_before() FROM generate_series(4, 6) g;
SELECT * FROM o ORDER BY id;
SELECT id, write_more(id) FROM o WHERE id < 4 ORDER BY id;
SELECT count(*) FROM o;
WITH i AS (INSERT INTO o VALUES (200, 0), (201, 0) RETURNING id)
SELECT (SELECT count(*) FROM i), count(*), (SELECT count(*) FROM o WHERE id = ANY (SELECT id FROM i)) FROM o;
-- the same in the first command of a transaction, whose command id is 0
BEGIN;
WITH i AS (INSERT INTO o VALUES (202, 0) RETURNING id) SELECT count(*) FROM o JOIN i USING (id);
SELECT count(*) FROM o WHERE id = 202;
COMMIT;
-- a cursor first read in a savepoint that is rolled back
CALL strata.drain('o');
BEGIN;
DECLARE s CURSOR FOR SELECT id FROM o WHERE id = ANY ('{1,2,3}');
SAVEPOINT a;
FETCH s;
INSERT INTO o VALUES (2, 2);
ROLLBACK TO a;
FETCH s;
FETCH ALL s;
COMMIT;

-- columns added and dropped
ALTER FOREIGN TABLE f ADD COLUMN extra text DEFAULT 'old';
ALTER TABLE h ADD COLUMN extra text DEFAULT 'old';
ALTER FOREIGN TABLE f DROP COLUMN doc;
ALTER TABLE h DROP COLUMN doc;
DELETE FROM queries WHERE no = 24;
INSERT INTO queries VALUES (40, 'SELECT * FROM %t WHERE extra = ''old'''), (41, 'SELECT * FROM %t WHERE extra IS NULL');
INSERT INTO f (id, extra) VALUES (1, NULL), (60000, 'new'), (60001, DEFAULT);
INSERT INTO h (id, extra) VALUES (60000, 'new'), (60001, DEFAULT);
UPDATE h SET (grp, name, val, d, at, tags, extra) = (NULL, NULL, NULL, NULL, NULL, NULL, NULL) WHERE id = 1;
CALL compare('columns changed');
CALL strata.drain('f');
CALL compare('columns changed, merged');

-- a partition, an inheritance child
CREATE TABLE p (id int, v text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
INSERT INTO p SELECT g, 'v' || g FROM generate_series(50, 149) g;
SELECT tableoid::regclass, count(*), min(id), max(id) FROM p GROUP BY 1 ORDER BY 1;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE id = 60;
SELECT * FROM p WHERE id IN (60, 140) ORDER BY id;
ANALYZE p;
CREATE TABLE parent (id int NOT NULL, v text);
CREATE FOREIGN TABLE child (extra int) INHERITS (parent) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO child SELECT g, 'c', g FROM generate_series(1, 10) g;
INSERT INTO parent VALUES (5, 'p');
SELECT tableoid::regclass, * FROM parent WHERE id = 5 ORDER BY 1;

-- keyless: append-only, duplicates stay
CREATE FOREIGN TABLE k (a int, b text) SERVER strata OPTIONS (auto_merge 'off');
INSERT INTO k SELECT g % 3, 'x' FROM generate_series(1, 9) g;
CALL strata.drain('k');
INSERT INTO k SELECT g % 3, 'x' FROM generate_series(1, 9) g;
SELECT a, count(*) FROM k GROUP BY a ORDER BY a;
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE a = 1;

-- one layer at a time
CREATE FOREIGN TABLE l (id int NOT NULL, v text, w text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO l SELECT g, 'base' FROM generate_series(1, 5) g;
CALL strata.drain('l');
INSERT INTO l VALUES (2, 'pending'), (7, 'pending');
INSERT INTO l VALUES (2, 'newer');
CREATE FOREIGN TABLE l_wal (v text, id int) SERVER strata OPTIONS (store 'l', layer 'wal');
CREATE FOREIGN TABLE l_base (v text, id int) SERVER strata OPTIONS (store 'l', layer 'base');
SELECT * FROM l_wal ORDER BY id, v;
SELECT id FROM l_wal WHERE v = 'newer';
SELECT * FROM l_base ORDER BY id;
SELECT id, v FROM l ORDER BY id;
EXPLAIN (COSTS OFF) SELECT * FROM l_wal WHERE id = 2;
EXPLAIN (COSTS OFF) SELECT * FROM l_base WHERE id = 2;
ANALYZE l_wal, l_base;
INSERT INTO l_wal VALUES ('x', 1);
-- beside the layer table, whatever the search path
SET search_path = '';
SELECT count(*) FROM scan.l_base;
SET search_path = scan, public;
-- the store changes behind the layer table
CREATE FOREIGN TABLE l_w (w text) SERVER strata OPTIONS (store 'l', layer 'wal');
SELECT count(*) FROM l_w;
ALTER FOREIGN TABLE l DROP COLUMN w;
SELECT count(*) FROM l_w;
ALTER FOREIGN TABLE l ADD COLUMN w int;
SELECT count(*) FROM l_w;
ALTER FOREIGN TABLE l RENAME TO ll;
SELECT count(*) FROM l_w;
ALTER FOREIGN TABLE ll RENAME TO l;
-- rights on the store are needed as well
CREATE ROLE scan_reader;
GRANT USAGE ON SCHEMA scan TO scan_reader;
GRANT SELECT ON l_base TO scan_reader;
SET ROLE scan_reader;
SELECT count(*) FROM l_base;
RESET ROLE;
GRANT SELECT ON l TO scan_reader;
SET ROLE scan_reader;
SELECT count(*) FROM l_base;
RESET ROLE;
-- a view's owner is who reads
REVOKE SELECT ON l, l_base FROM scan_reader;
CREATE VIEW l_view AS SELECT * FROM l_base;
GRANT SELECT ON l_view TO scan_reader;
SET ROLE scan_reader;
SELECT count(*) FROM l_view;
RESET ROLE;

DROP SCHEMA scan CASCADE;
DROP ROLE scan_reader;
