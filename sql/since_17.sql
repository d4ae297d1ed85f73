-- What PostgreSQL 17 added: earlier versions leave at once.
SELECT current_setting('server_version_num')::int < 170000 AS too_old \gset
\if :too_old
\quit
\endif
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA since_17;
SET search_path = since_17;

-- another expression of a stored generated column: not for rows that have one
CREATE FOREIGN TABLE f (id int NOT NULL, a int, s int GENERATED ALWAYS AS (a * 3) STORED) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO f (id, a) SELECT g, g FROM generate_series(1, 3) g;
ALTER FOREIGN TABLE f ALTER s SET EXPRESSION AS (a * 30);
CALL strata.drain('f');
ALTER FOREIGN TABLE f ALTER s SET EXPRESSION AS (a * 30);
DELETE FROM f;
ALTER FOREIGN TABLE f ALTER s SET EXPRESSION AS (a * 30);
INSERT INTO f (id, a) VALUES (1, 1) RETURNING *;
CREATE TABLE parent (id int NOT NULL, a int, s int GENERATED ALWAYS AS (a * 3) STORED) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE part PARTITION OF parent FOR VALUES FROM (1) TO (10) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO parent VALUES (1, 1);
ALTER TABLE parent ALTER s SET EXPRESSION AS (a * 30);
SELECT * FROM parent;

-- NOT NULL of a domain, also as a constraint with a name
CREATE DOMAIN number AS int;
CREATE FOREIGN TABLE d (id int NOT NULL, v number) SERVER strata OPTIONS (key 'id', auto_merge 'off');
INSERT INTO d VALUES (1, NULL);
ALTER DOMAIN number ADD CONSTRAINT given NOT NULL;
UPDATE d SET v = 1;
ALTER DOMAIN number ADD CONSTRAINT given NOT NULL;
INSERT INTO d VALUES (2, NULL);

-- COPY that leaves out what it cannot read
COPY d FROM stdin (ON_ERROR ignore);
2	2
3	three
4	4
\.
SELECT * FROM d ORDER BY id;

-- MERGE stays core's to refuse
\set VERBOSITY terse
MERGE INTO d USING (VALUES (2, 20)) n (id, v) ON d.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v RETURNING merge_action();
\set VERBOSITY default

DROP SCHEMA since_17 CASCADE;
