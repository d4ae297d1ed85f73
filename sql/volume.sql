-- Many partitions, subtransactions, commits, and large rows: what comes of them
-- and what memory they take (P27, P34, P41 - P43).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA volume_test;
SET search_path = volume_test;

-- The backend's own memory in kB; sampled() keeps the highest it saw.
CREATE FUNCTION memory() RETURNS int LANGUAGE sql VOLATILE AS
  $$SELECT substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\s+(\d+)')::int$$;
CREATE FUNCTION sampled(n int, every int) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF n % every = 0 THEN
    PERFORM set_config('volume.highest', greatest(current_setting('volume.highest')::int, memory())::text, false);
  END IF;
  RETURN true;
END$$;
CREATE FUNCTION start() RETURNS void LANGUAGE sql AS
  $$SELECT set_config('volume.before', memory()::text, false), set_config('volume.highest', '0', false)$$;
CREATE FUNCTION grown() RETURNS int LANGUAGE sql AS
  $$SELECT greatest(current_setting('volume.highest')::int, memory()) - current_setting('volume.before')::int$$;

-- rows for 100 partitions in turn, none of them enough to be written by itself:
-- 180 MB in all (P42)
CREATE TABLE many (p int NOT NULL, id int NOT NULL, v text) PARTITION BY LIST (p);
DO $$BEGIN
  FOR i IN 0 .. 99 LOOP
    EXECUTE format('CREATE FOREIGN TABLE many_%s PARTITION OF many FOR VALUES IN (%s) SERVER strata OPTIONS (key ''p,id'', row_group_bytes ''2MB'', auto_merge ''off'')', i, i);
  END LOOP;
END$$;
SELECT start();
INSERT INTO many SELECT g % 100, g, repeat(md5(g::text), 280) FROM generate_series(1, 20000) g WHERE sampled(g, 500);
SELECT grown() < 120000 AS bounded;
SELECT count(*), count(DISTINCT p), sum(length(v)) FROM many;

-- 10,000 subtransactions, a third of them undone (P34)
CREATE FOREIGN TABLE undone (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', on_duplicate 'error', auto_merge 'off');
CREATE FUNCTION undo(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  caught int := 0;
BEGIN
  FOR i IN 1 .. n LOOP
    BEGIN
      INSERT INTO undone VALUES (i - i % 3, 'v' || i);
      IF i % 7 = 0 THEN RAISE division_by_zero; END IF;
    EXCEPTION WHEN unique_violation OR division_by_zero THEN
      caught := caught + 1;
    END;
    PERFORM sampled(i, 1000);
  END LOOP;
  RETURN caught;
END$$;
SELECT undo(500) AS warm;
TRUNCATE undone;
SELECT start();
SELECT undo(10000) AS caught;
SELECT grown() < 20000 AS bounded;
CREATE TABLE expected AS
  SELECT DISTINCT ON (i - i % 3) i - i % 3 AS id, 'v' || i AS v FROM generate_series(1, 10000) i WHERE i % 7 > 0 ORDER BY i - i % 3, i;
SELECT count(*), count(*) FILTER (WHERE u.v IS DISTINCT FROM e.v) AS different FROM undone u FULL JOIN expected e USING (id);
DO $$BEGIN
  FOR depth IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO undone VALUES (-depth, 'outer');
      BEGIN
        INSERT INTO undone VALUES (-depth, 'twice');
      EXCEPTION WHEN unique_violation THEN
        INSERT INTO undone VALUES (-10 - depth, 'inner');
      END;
      IF depth = 2 THEN RAISE division_by_zero; END IF;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
  END LOOP;
END$$;
SELECT * FROM undone WHERE id < 0 ORDER BY id;

-- 1,000 commits of one row each become one row group (P43)
CREATE FOREIGN TABLE small (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
CREATE PROCEDURE commits(n int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. n LOOP
    INSERT INTO volume_test.small VALUES (i, 'v' || i);
    COMMIT;
  END LOOP;
END$$;
CALL commits(1000);
CALL strata.drain('small');
SELECT count(*), sum(rows) FROM strata.row_groups WHERE store = 'small'::regclass;
SELECT count(*), sum(id) FROM small;

-- 2 MB a row: row groups are cut by bytes, memory holds a few rows (P41)
CREATE FOREIGN TABLE large (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
SELECT start();
INSERT INTO large SELECT g, repeat(md5(g::text), 65536) FROM generate_series(1, 100) g WHERE sampled(g, 10);
SELECT grown() < 120000 AS bounded;
CALL strata.drain('large');
SELECT count(*) > 5 AS several, sum(rows) FROM strata.row_groups WHERE store = 'large'::regclass;
SELECT count(*), count(*) FILTER (WHERE v = repeat(md5(id::text), 65536)) AS same FROM large;
SELECT grown() < 120000 AS bounded;

-- a scan's memory does not grow with its rows (P27)
CREATE FOREIGN TABLE long (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '10000');
INSERT INTO long SELECT g, md5(g::text) FROM generate_series(1, 200000) g;
CALL strata.drain('long');
INSERT INTO long SELECT g, md5(g::text) FROM generate_series(150001, 250000) g;
SET max_parallel_workers_per_gather = 0;
SELECT count(*) FROM (SELECT * FROM long OFFSET 0) s WHERE s.id > 0;
SELECT start();
SELECT count(*) FROM (SELECT id, v FROM long OFFSET 0) s WHERE sampled(s.id, 1000);
SELECT grown() < 8000 AS bounded;

-- nor does what a type's functions leave behind: hash_numeric a copy of each key
CREATE FOREIGN TABLE numbers (n numeric NOT NULL, v int) SERVER strata OPTIONS (key 'n', auto_merge 'off');
CREATE VIEW in_query AS SELECT coalesce(sum(used_bytes), 0) < 2000000 AS bounded
FROM pg_backend_memory_contexts WHERE name IN ('ExecutorState', 'ExprContext', 'PortalContext');
WITH x AS (INSERT INTO numbers SELECT g / 7.0, g FROM generate_series(1, 200000) g RETURNING v)
SELECT count(*)::text FROM x UNION ALL SELECT bounded::text FROM in_query;
WITH x AS (UPDATE numbers SET v = 0 RETURNING v)
SELECT count(*)::text FROM x UNION ALL SELECT bounded::text FROM in_query;
WITH x AS (DELETE FROM numbers RETURNING v)
SELECT count(*)::text FROM x UNION ALL SELECT bounded::text FROM in_query;

SET client_min_messages = warning;
DROP SCHEMA volume_test CASCADE;
