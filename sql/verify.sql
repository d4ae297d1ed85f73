--
-- strata.verify: what it finds when something is planted (P18).
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
RESET client_min_messages;
CREATE SCHEMA verify_test;
SET search_path = verify_test, public;
CREATE FOREIGN TABLE t (id int NOT NULL, v text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 3000) g;
SET client_min_messages = warning;
CALL strata.drain('t');
INSERT INTO t SELECT g, md5('again' || g) FROM generate_series(1, 30) g;
CALL strata.drain('t');
RESET client_min_messages;
INSERT INTO t VALUES (1, 'pending');

-- faults by kind; numbers differ from machine to machine
CREATE VIEW faults AS
    SELECT object, regexp_replace(problem, '[0-9]+|"s[0-9]+"', 'N', 'g') AS problem, count(*)
    FROM strata.verify('verify_test.t') GROUP BY 1, 2 ORDER BY 1, 2;

SELECT * FROM faults;
SELECT count(*) FROM strata.verify('t', swept => true);
SELECT blocks_freed > 0 AS freed, blocks_left FROM strata.sweep('t');
SELECT * FROM strata.verify('t', swept => true);

-- deletes lost: superseded rows are back
BEGIN;
DELETE FROM strata.deletes WHERE store = 't'::regclass;
SELECT * FROM faults;
ROLLBACK;

-- a row group listed twice
BEGIN;
INSERT INTO strata.row_group
    SELECT store, number + 1, incarnation, first_block, blocks, owner, length, raw_bytes, rows, zones
    FROM strata.row_group WHERE store = 't'::regclass AND number = 2;
SELECT * FROM faults;
ROLLBACK;

-- one that lies elsewhere
BEGIN;
UPDATE strata.row_group SET first_block = 100000 WHERE store = 't'::regclass AND number = 2;
SELECT * FROM faults;
ROLLBACK;

-- a manifest that cannot be read: nothing else can be looked at
BEGIN;
UPDATE strata.deletes SET tids = '\x00' WHERE store = 't'::regclass;
SELECT * FROM faults;
ROLLBACK;

-- zone maps in the manifest that are not those of the footer may hide rows
BEGIN;
CREATE FUNCTION told(bytea) RETURNS SETOF faults LANGUAGE plpgsql SET search_path FROM CURRENT AS $$BEGIN
    UPDATE strata.row_group SET zones = $1 WHERE store = 't'::regclass AND number = 1;
    RETURN QUERY SELECT object, regexp_replace(problem, 'block [0-9]+|"s[0-9]+"', 'N', 'g'), 1::bigint FROM strata.verify('verify_test.t');
END$$;
SELECT zones AS z, length(zones) AS n FROM strata.row_group WHERE store = 't'::regclass AND number = 1 \gset
SELECT * FROM told(set_byte(:'z', 53, 1)); -- the maximum of id
SELECT * FROM told(set_byte(:'z', :n - 1, 0)); -- the maximum of v
SELECT * FROM told(set_byte(:'z', 4 + 20 + 2, 3)); -- all of v is null
SELECT * FROM told(set_byte(:'z', 4 + 20, 1)); -- v's is id's
SELECT * FROM told(substr(:'z'::bytea, 1, :n - 1));
SELECT * FROM told(set_byte(:'z', 2, 1)); -- one column only
SELECT * FROM told(:'z'::bytea || '\x00');
SELECT * FROM told(NULL);
SELECT * FROM told(:'z'::bytea);
ROLLBACK;

-- what is compared, and that it fits: nulls only, some, none; -0, NaN, infinities; equal values that differ
CREATE FOREIGN TABLE zoned (id int NOT NULL, nothing text, few int, f float8, n numeric, u oid, b bool, long text, gone int,
    e name, d date, a int[]) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO zoned SELECT g, NULL, CASE WHEN g % 100 = 0 THEN g END,
    (ARRAY['0', '-0', 'NaN', 'Infinity', '-Infinity', '1e300'])[1 + g % 6]::float8, (g % 7)::numeric * 1.10, 4294967000 + g % 200,
    g % 2 = 0, repeat('x', g % 90), g, 'n' || g, date '2000-01-01' - g, ARRAY[g, NULL]
    FROM generate_series(1, 3000) g;
SELECT * FROM strata.verify('zoned');
SET client_min_messages = warning;
CALL strata.drain('zoned');
RESET client_min_messages;
ALTER FOREIGN TABLE zoned DROP COLUMN gone;
ALTER FOREIGN TABLE zoned ADD COLUMN more int DEFAULT 7;
INSERT INTO zoned (id) SELECT g FROM generate_series(2900, 3100) g;
SET client_min_messages = warning;
CALL strata.drain('zoned');
RESET client_min_messages;
SELECT * FROM strata.verify('zoned');

-- a generation merged that is still counted as pending; views go on
BEGIN;
UPDATE strata.shard SET merged_through = merged_through - 1 WHERE store = 't'::regclass;
SELECT object FROM faults;
\set VERBOSITY sqlstate
CREATE FOREIGN TABLE other (n int) SERVER strata OPTIONS (auto_merge 'off');
SELECT store, pending_generations FROM strata.stores WHERE store IN ('t'::regclass, 'other'::regclass) ORDER BY store::text;
\set VERBOSITY default
ROLLBACK;

-- nothing of it stayed (this backend has cached what it planted)
\c -
SET search_path = verify_test, public;
SELECT * FROM strata.verify('t', swept => true);
SELECT count(*), count(*) FILTER (WHERE v = 'pending') FROM t;

SET client_min_messages = warning;
DROP SCHEMA verify_test CASCADE;

-- what a rolled-back ALTER TABLE shaped is nobody's fault
CREATE FOREIGN TABLE shaped (id int NOT NULL, a text) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO shaped VALUES (1, 'x');
BEGIN;
ALTER FOREIGN TABLE shaped ADD COLUMN b int;
INSERT INTO shaped VALUES (2, 'y', 3);
ROLLBACK;
ALTER FOREIGN TABLE shaped ADD COLUMN b text;
INSERT INTO shaped VALUES (3, 'z', 'w');
SELECT * FROM strata.verify('shaped');
SELECT * FROM shaped ORDER BY id;

-- a cursor over one layer stands in the way of TRUNCATE
CREATE FOREIGN TABLE shaped_wal (id int, a text) SERVER strata OPTIONS (store 'shaped', layer 'wal');
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM shaped_wal;
FETCH 1 FROM c;
\set VERBOSITY sqlstate
TRUNCATE shaped;
\set VERBOSITY default
ROLLBACK;
DROP FOREIGN TABLE shaped CASCADE;

-- ANALYZE of a parent whose statistics look at wide values of a child
CREATE TABLE parted (id int NOT NULL, a text, b text) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (1000) SERVER strata OPTIONS (key 'id');
CREATE STATISTICS parted_stats (ndistinct) ON a, b FROM parted;
INSERT INTO parted SELECT g, repeat(md5(g::text), 3000), 'b' FROM generate_series(1, 30) g;
ANALYZE parted;
DROP TABLE parted;
