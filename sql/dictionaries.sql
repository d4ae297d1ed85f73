-- zstd dictionaries: what the vectors of a wide column have in common is kept
-- once, for the row groups of later passes; no answer depends on it.
SET client_min_messages TO warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA dictionaries;
SET search_path = dictionaries;

SELECT $$id int NOT NULL, body text, doc jsonb, narrow text, big text$$ AS columns \gset
CREATE TABLE heap (:columns);
CREATE FOREIGN TABLE t (:columns)
	SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_bytes '64MB');

-- texts that share their words, not whole lines, so that only what many have in
-- common can be told once
CREATE FUNCTION words(seed int, kind text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT string_agg(md5(kind || hashint4(seed * 31 + i) % 400), ' ') FROM generate_series(1, 20) i
$$;
CREATE FUNCTION fill(first int, last int, kind text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO heap
	SELECT i, words(i, kind), jsonb_build_object('n', i, 'text', words(-i, kind)), 'n' || i,
		   CASE WHEN i % 500 = 0 THEN repeat(md5(i::text), 10000) END
	  FROM generate_series(first, last) i;
	INSERT INTO t SELECT * FROM heap WHERE id BETWEEN first AND last;
$$;
CREATE FUNCTION differences(OUT missing bigint, OUT extra bigint) LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM (SELECT h::text FROM heap h EXCEPT ALL SELECT s::text FROM t s) m),
		   (SELECT count(*) FROM (SELECT s::text FROM t s EXCEPT ALL SELECT h::text FROM heap h) e)
$$;
-- seal, and one pass
CREATE FUNCTION pass(OUT row_groups bigint, OUT adopted bigint) LANGUAGE sql AS $$
	SELECT count(*) FROM strata.seal('t');
	SELECT row_groups_written, row_groups_adopted FROM strata.merge('t');
$$;
CREATE VIEW dictionaries AS
	SELECT d.* FROM strata.dictionary d WHERE store = 't'::regclass;

-- too little to learn from
SELECT fill(1, 100, 'a');
SELECT * FROM pass();
SELECT count(*) FROM dictionaries;

-- the first large row group makes them, the next one uses them
SELECT fill(1001, 3000, 'a');
SELECT * FROM pass();
SELECT attnum, incarnation, id = owner AS own_id, length BETWEEN 8192 AND 128 * 1024 AS length
  FROM dictionaries ORDER BY attnum;
SELECT fill(3001, 5000, 'a');
SELECT * FROM pass();
SELECT count(*) FROM dictionaries;
SELECT number, rows, stored_bytes < 0.8 * lag(stored_bytes) OVER (ORDER BY number) AS smaller
  FROM strata.row_groups WHERE store = 't'::regclass ORDER BY number;
SELECT * FROM differences();
SELECT * FROM strata.verify('t');

-- every row by its key, with and without a cache
SELECT count(*) FROM heap h, LATERAL (SELECT * FROM t s WHERE s.id = h.id OFFSET 0) s
 WHERE h::text = s::text;
SET strata.cache_size = '64kB';
SELECT count(*) FROM heap h, LATERAL (SELECT s.body FROM t s WHERE s.id = h.id OFFSET 0) s
 WHERE h.body = s.body;
SELECT * FROM differences();
RESET strata.cache_size;

-- other texts: the dictionaries fall behind and are made anew, the old ones stay
SELECT fill(10001, 14000, 'b');
SELECT * FROM pass();
SELECT attnum, count(*) FROM dictionaries GROUP BY attnum ORDER BY attnum;
SELECT fill(14001, 18000, 'b');
SELECT * FROM pass();
SELECT attnum, count(*) FROM dictionaries GROUP BY attnum ORDER BY attnum;
SELECT number, rows, stored_bytes < 0.8 * lag(stored_bytes) OVER (ORDER BY number) AS smaller
  FROM strata.row_groups WHERE store = 't'::regclass ORDER BY number;
SELECT * FROM differences();

-- several passes in a transaction; one that is rolled back leaves nothing
SELECT fill(20001, 22000, 'a');
SELECT count(*) FROM strata.seal('t');
SELECT fill(30001, 34000, 'c');
SELECT count(*) FROM strata.seal('t');
BEGIN;
SELECT row_groups_written, generations_left FROM strata.merge('t', max_generations => 1);
SELECT * FROM differences();
SAVEPOINT s;
SELECT row_groups_written, generations_left FROM strata.merge('t', max_generations => 1);
SELECT * FROM differences();
SELECT attnum, count(*) FROM dictionaries GROUP BY attnum ORDER BY attnum;
ROLLBACK TO s;
SELECT * FROM differences();
COMMIT;
SELECT attnum, count(*) FROM dictionaries GROUP BY attnum ORDER BY attnum;
SELECT * FROM differences();

-- extents: each has its owner, and the space of what was rolled back comes back
SELECT blocks_left FROM strata.sweep('t');
SELECT * FROM strata.verify('t', true);
SELECT * FROM differences();

-- what was rolled back is done anew, under other ids
CREATE TEMP TABLE ids AS SELECT id FROM dictionaries;
SELECT row_groups_written, generations_left FROM strata.merge('t');
SELECT attnum, count(*), bool_and(id > (SELECT max(id) FROM ids)) FROM dictionaries
 WHERE id NOT IN (TABLE ids) GROUP BY attnum ORDER BY attnum;
SELECT * FROM differences();

-- a wide key column is found through the key index, with a dictionary or without
CREATE FOREIGN TABLE wide (id text NOT NULL, n int)
	SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_bytes '64MB');
INSERT INTO wide SELECT words(i, 'k'), i FROM generate_series(1, 2000) i ON CONFLICT DO NOTHING;
SELECT count(*) FROM strata.seal('wide');
SELECT row_groups_written FROM strata.merge('wide');
INSERT INTO wide SELECT words(i, 'k'), -i FROM generate_series(1001, 3000) i ON CONFLICT DO NOTHING;
INSERT INTO wide SELECT words(i, 'k'), i FROM generate_series(3001, 5000) i ON CONFLICT DO NOTHING;
SELECT count(*) FROM strata.seal('wide');
SELECT row_groups_written FROM strata.merge('wide');
SELECT count(*) FROM strata.dictionary WHERE store = 'wide'::regclass;
SELECT strata.drop_key_index('wide'), strata.create_key_index('wide');
SELECT count(*), count(DISTINCT id) FROM wide;
SELECT count(*) FROM generate_series(1, 5000) i WHERE EXISTS (SELECT FROM wide WHERE id = words(i, 'k') OFFSET 0);
SELECT * FROM strata.verify('wide');
DROP FOREIGN TABLE wide;

-- copied with the file
SELECT storage::regclass AS storage FROM strata.stores WHERE store = 't'::regclass \gset
VACUUM FULL :storage;
VACUUM FULL strata.dictionary;
SELECT * FROM differences();

-- an added and a dropped column
ALTER FOREIGN TABLE t ADD COLUMN more text, DROP COLUMN doc;
ALTER TABLE heap ADD COLUMN more text, DROP COLUMN doc;
INSERT INTO heap SELECT i, words(i, 'a'), 'n', NULL, words(i, 'm') FROM generate_series(50001, 52000) i;
INSERT INTO t SELECT * FROM heap WHERE id > 50000;
SELECT * FROM pass();
SELECT * FROM differences();
SELECT max(attnum) FROM dictionaries;

-- TRUNCATE begins anew
TRUNCATE t, heap;
SELECT count(*) FROM dictionaries;
SELECT count(*) FROM t;
INSERT INTO heap SELECT i, words(i, 'a'), 'n', NULL, words(i, 'm') FROM generate_series(1, 4000) i;
INSERT INTO t SELECT * FROM heap WHERE id <= 2000;
SELECT * FROM pass();
INSERT INTO t SELECT * FROM heap WHERE id > 2000;
SELECT * FROM pass();
SELECT attnum, incarnation, count(*) FROM dictionaries GROUP BY 1, 2 ORDER BY 1;
SELECT * FROM differences();
SELECT blocks_left FROM strata.sweep('t');
SELECT * FROM strata.verify('t', true);

-- and so does DROP
SELECT 't'::regclass::oid AS oid \gset
DROP VIEW dictionaries;
DROP FOREIGN TABLE t;
SELECT count(*) FROM strata.dictionary WHERE store = :oid;

SET client_min_messages TO warning;
DROP SCHEMA dictionaries CASCADE;
