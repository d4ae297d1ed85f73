-- Row groups: every value comes back as it went in, whatever its type, and
-- what zone maps skip is never an answer.
SET datestyle TO 'ISO, MDY';
SET client_min_messages TO warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA row_groups;
SET search_path = row_groups;

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);

-- the same columns for a heap and a foreign table
SELECT $$id int NOT NULL, b bool, c "char", i2 int2, i4 int4, i8 int8, o oid, f4 float4, f8 float8,
n numeric, d date, ts timestamptz, tm time, tz timetz, iv interval, u uuid, nm name,
t text COLLATE "C", vc varchar(40), bp char(12), by bytea, js jsonb, j json, xs int[],
fs float8[], tx text[], m mood, cp pair, p positive, pt point, bx box, mac macaddr,
mac8 macaddr8, ip inet, bits bit(5), vb varbit, tsv tsvector, tsq tsquery, r int4range,
mon money, lsn pg_lsn, x xid, iva int2vector, nothing text, nothingi int, same text,
samei int8, few float8, run text, rare text, rarei int8, wide text$$ AS columns \gset
CREATE TABLE heap_types (:columns);
CREATE FOREIGN TABLE types (:columns)
	SERVER strata OPTIONS (key 'id', auto_merge 'off', row_group_rows '700');

INSERT INTO heap_types
SELECT i, i % 3 = 0, chr(33 + i % 90)::"char", (i * 7919 % 60001 - 30000)::int2,
	   (i::int8 * 7654321 % 4294967296 - 2147483648)::int4, (i::int8 << 40) * (1 - 2 * (i % 2)),
	   (i::int8 * 104729 % 4294967296)::oid,
	   CASE i % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN '-0' ELSE sin(i) END::float4,
	   CASE i % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-0' ELSE cos(i) END::float8,
	   CASE i % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' ELSE i * 1.10 END::numeric,
	   CASE i % 99 WHEN 0 THEN 'infinity' ELSE '2020-01-01'::date + i END,
	   '2024-01-01 00:00+00'::timestamptz + i * interval '1.5 s', time '00:00' + i * interval '3 s',
	   timetz '00:00+02' + i * interval '1 s', i * interval '1 month 1 day 1 s',
	   md5(i::text)::uuid, 'name' || i % 50, md5(i::text), repeat('v', i % 41), 'bp' || i,
	   CASE i % 10 WHEN 0 THEN '' ELSE decode(md5(i::text), 'hex') END,
	   jsonb_build_object('a', i, 'b', repeat('x', i % 200), 'c', array[i, i + 1]),
	   ('{"a" : ' || i || '}')::json,
	   ARRAY(SELECT k * i FROM generate_series(1, i % 40) k), ARRAY[i / 7.0, NULL, 'NaN'],
	   ARRAY['a', NULL, 'b' || i], (enum_range(NULL::mood))[1 + i % 3], ROW(i, 'y' || i)::pair,
	   i, point(i, -i), box(point(i, i), point(0, 0)), '08:00:2b:01:02:03',
	   '08:00:2b:01:02:03:04:05', '10.0.0.0'::inet + i, (i % 32)::bit(5), (i % 1024)::bit(10),
	   to_tsvector('simple', 'word' || i || ' and another'), ('w' || i)::tsquery,
	   int4range(i, i + i % 5), i::money, '0/0'::pg_lsn + i, i::text::xid, '1 2 3', NULL, NULL,
	   'constant', -7, (ARRAY[0, 0.5, 1, NULL])[1 + i * 7 % 4], 'run ' || i / 700,
	   CASE WHEN i % 31 = 0 THEN 'rare ' || i END, CASE WHEN i % 31 = 0 THEN i END,
	   CASE WHEN i % 500 = 7 THEN repeat(md5(i::text), 20000)
			WHEN i % 97 = 5 THEN repeat(md5(i::text), 600) ELSE md5(i::text) END
  FROM generate_series(1, 2000) i;

-- rows that differ, by everything that can be seen of them
CREATE FUNCTION differences(OUT missing bigint, OUT extra bigint) LANGUAGE sql AS $$
	SELECT (SELECT count(*) FROM (SELECT h::text FROM heap_types h EXCEPT ALL
								  SELECT s::text FROM types s) m),
		   (SELECT count(*) FROM (SELECT s::text FROM types s EXCEPT ALL
								  SELECT h::text FROM heap_types h) e)
$$;

INSERT INTO types SELECT * FROM heap_types;
SELECT * FROM differences();		-- as a load wrote them
SELECT count(*) FROM strata.seal('types');
SET client_min_messages TO warning;
CALL strata.drain('types');
SELECT * FROM differences();		-- as adopted
-- written anew by a pass: single rows, then a merge
UPDATE heap_types SET rare = 'updated' WHERE id % 7 = 0;
DO $$
DECLARE r heap_types;
BEGIN
	FOR r IN SELECT * FROM heap_types WHERE id % 7 = 0 LOOP
		INSERT INTO types SELECT r.*;
	END LOOP;
END $$;
SELECT * FROM differences();
SELECT count(*) FROM strata.seal('types');
CALL strata.drain('types');
RESET client_min_messages;
SELECT * FROM differences();
SELECT * FROM strata.verify('types');

-- every row by its key, the one column or all of them
SELECT count(*) FROM heap_types h, LATERAL (SELECT * FROM types s WHERE s.id = h.id OFFSET 0) s
 WHERE h::text = s::text;
SELECT count(*) FROM heap_types h, LATERAL (SELECT s.wide FROM types s WHERE s.id = h.id OFFSET 0) s
 WHERE h.wide = s.wide;

-- a column of many large values keeps to the memory of one
SELECT id, length(wide), md5(wide) = md5(repeat(md5(id::text), 20000)) AS same
  FROM types WHERE id IN (7, 507, 1007) ORDER BY id;

-- what zone maps say: edges of each order, NaN, infinities, nulls
CREATE FUNCTION disagree(VARIADIC conditions text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	condition text;
	a bigint;
	b bigint;
BEGIN
	FOREACH condition IN ARRAY conditions LOOP
		EXECUTE 'SELECT count(*) FROM heap_types WHERE ' || condition INTO a;
		EXECUTE 'SELECT count(*) FROM types WHERE ' || condition INTO b;
		IF a IS DISTINCT FROM b THEN
			RETURN NEXT format('%s: %s in the heap, %s here', condition, a, b);
		END IF;
	END LOOP;
END $$;
SELECT disagree('id < 1', 'id <= 1', 'id = 2000', 'id > 2000', 'id >= 1999', 'id BETWEEN 695 AND 705',
	'f8 > ''Infinity''', 'f8 = ''NaN''', 'f8 < ''-Infinity''', 'f8 >= ''NaN''', 'f8 = 0', 'f4 = ''-Infinity''',
	'f4 < -1', 'f4 > ''Infinity''', 'n = ''NaN''', 'n > ''Infinity''', 'n < 1.10', 'n = 1100.0',
	'd = ''infinity''', 'd > ''2025-06-20''', 'd < ''2020-01-02''', 'o > 4294000000', 'o < 110000',
	'c > ''x''', 'c < ''"''', 'b', 'NOT b', 'b IS NULL', 'nothing IS NULL', 'nothing IS NOT NULL',
	'nothing = ''x''', 'nothingi > 0', 'samei = -7', 'samei <> -7', 'same > ''constant''', 'same = ''constant''',
	'few IS NULL', 'few > 1', 'few >= 1', 'rarei IS NOT NULL', 'rarei > 1980', 'rare IS NULL', 'm = ''happy''',
	'm > ''happy''', 'u < ''00000000-0000-0000-0000-000000000001''', 'u > ''ff000000-0000-0000-0000-000000000000''',
	't < ''0''', 't >= ''ffff''', 'run = ''run 0''', 'run > ''run 1''', 'run < ''run 0''', 'ts < ''2024-01-01 00:00:01+00''',
	'ts > ''2024-01-01 00:49:59+00''', 'iv > ''190 years''', 'by = ''''', 'wide > ''g''', 'i8 > 2198000000000000',
	'i2 = 30000', 'mon < ''$1''', 'xs = ''{}''', 'x = ''77''', 'bp = ''bp77''', 'p > 2000');

-- added and dropped columns: old row groups know neither
ALTER FOREIGN TABLE types ADD COLUMN added int DEFAULT 42, DROP COLUMN wide, DROP COLUMN b;
SELECT count(*), sum(added), count(DISTINCT t), max(rarei) FROM types;
SELECT count(*) FROM types WHERE added = 42;
SELECT count(*) FROM types WHERE added IS NULL;
INSERT INTO types (id, t, added) VALUES (2001, 'new', 43);
SELECT count(*) FROM strata.seal('types');
SELECT generations_merged, rows_inserted FROM strata.merge('types');
SELECT id, t, added, i2 FROM types WHERE id IN (2000, 2001) ORDER BY id;
SELECT * FROM strata.verify('types');

SET client_min_messages TO warning;
DROP SCHEMA row_groups CASCADE;
