-- What rests on how a collation sorts is not used once that has changed:
-- the key index (a scan answers), zone maps; merges go on without either (P59).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
-- a plan, without what versions of PostgreSQL say differently
CREATE FUNCTION pg_temp.planned(query text, options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
    RETURN NEXT regexp_replace(line, '(?<=rows=\d+)\.00', '');
  END LOOP;
END$$;
CREATE COLLATION sorted (provider = icu, locale = 'en');
CREATE FOREIGN TABLE collated (id text COLLATE pg_catalog."en-x-icu" NOT NULL, v text COLLATE sorted, n int)
    SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO collated SELECT 'k' || g, 'v' || g, g FROM generate_series(1, 1000) g;
SELECT count(*) FROM strata.seal('collated');
SELECT generations_merged FROM strata.merge('collated');
SELECT pg_temp.planned('SELECT n FROM collated WHERE v > ''w''', 'ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF');

BEGIN;
-- as after an upgrade of the operating system
CREATE TEMP TABLE was AS SELECT collname, collversion FROM pg_collation WHERE collname IN ('en-x-icu', 'sorted');
UPDATE pg_collation SET collversion = '0' WHERE collname = 'en-x-icu';
COMMIT;
SET client_min_messages = error;
SELECT strata.has_key_index('collated');
SELECT n FROM collated WHERE id = 'k77';
INSERT INTO collated SELECT 'k' || g, 'again', -g FROM generate_series(1, 2000, 2) g;
SELECT count(*) FROM strata.seal('collated');
SELECT generations_merged, rows_replaced, rows_inserted, index_built FROM strata.merge('collated');
SELECT count(*), sum(n) FROM collated;
SELECT n FROM collated WHERE id IN ('k77', 'k78', 'k1501') ORDER BY n;
SELECT strata.drop_key_index('collated');
INSERT INTO collated SELECT 'k' || g, 'again', 0 FROM generate_series(1, 10) g;
SELECT count(*) FROM strata.seal('collated');
SELECT generations_merged, rows_replaced, index_built FROM strata.merge('collated');
SELECT strata.create_key_index('collated');
UPDATE pg_collation c SET collversion = w.collversion FROM was w WHERE w.collname = c.collname;
SELECT strata.has_key_index('collated');
SELECT count(*), sum(n) FROM collated;
SELECT * FROM strata.verify('collated');
RESET client_min_messages;

DROP FOREIGN TABLE collated;
DROP COLLATION sorted;

-- a jsonb key is ordered by the database's collation
SELECT current_database() AS old_database \gset
CREATE DATABASE strata_icu TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en';
\c strata_icu
SET client_min_messages = error;
CREATE EXTENSION strata;
CREATE FOREIGN TABLE j (k jsonb NOT NULL, n int) SERVER strata OPTIONS (key 'k', auto_merge 'off');
INSERT INTO j SELECT to_jsonb('k' || g), g FROM generate_series(1, 100) g;
CALL strata.drain('j');
SELECT strata.has_key_index('j');
UPDATE pg_database SET datcollversion = '0' WHERE datname = current_database();
SELECT strata.has_key_index('j');
SELECT n FROM j WHERE k = '"k77"';
UPDATE pg_database SET datcollversion = pg_database_collation_actual_version(oid) WHERE datname = current_database();
SELECT strata.has_key_index('j');
\c :old_database
DROP DATABASE strata_icu;
