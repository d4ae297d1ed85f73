-- Rows that an UPDATE of the partition key moves out of a strata partition:
-- each command on a tree with strata leaves (f...) and on a twin with heap
-- leaves (h...), its count, what it returns, what triggers saw, what it
-- raised and where the rows are compared.  (C4, P13, P23, P25; concurrency:
-- move_out.spec)
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA move;
SET search_path = move, public;
\set SHOW_CONTEXT never

-- @ stands for h or f; a LEAF is a heap with a unique index or a strata table
CREATE FUNCTION as_heap(command text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(replace(command, '@', 'h'), '^CREATE LEAF (\S+)(.*)$', 'CREATE TABLE \1\2; ALTER TABLE \1 ADD UNIQUE (id)') $$;
CREATE FUNCTION as_strata(command text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(replace(command, '@', 'f'), '^CREATE LEAF (.*)$', 'CREATE FOREIGN TABLE \1 SERVER strata OPTIONS (key ''id'', auto_merge ''off'')') $$;
CREATE TABLE fired (n bigint GENERATED ALWAYS AS IDENTITY, line text);
CREATE FUNCTION run(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    row record; n bigint; result text = '';
BEGIN
    DELETE FROM move.fired;
    ALTER TABLE move.fired ALTER n RESTART;
    IF command ~ 'RETURNING' AND command !~ '-- count' THEN
        FOR row IN EXECUTE command LOOP
            result := result || ' ' || row::text;
        END LOOP;
    ELSE
        EXECUTE command;
        GET DIAGNOSTICS n = ROW_COUNT;
        result := CASE WHEN command ~ '^(CREATE|ALTER|DROP)' THEN ' ok' ELSE ' rows: ' || n END;
    END IF;
    RETURN concat_ws(E'\n', 'ok:' || result, (SELECT string_agg(line, E'\n' ORDER BY fired.n) FROM move.fired));
EXCEPTION WHEN OTHERS THEN
    -- servers differ in what they say would have happened to the row
    RETURN SQLSTATE || ' ' || regexp_replace(SQLERRM, 'updated or deleted|updated|deleted', 'changed');
END $$;
CREATE FUNCTION twin(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    heap text := move.run(move.as_heap(command));
    strata text := move.run(move.as_strata(command));
    renamed text := regexp_replace(strata, '\mf(?=\M|\d|rest|sub|_view|h\M)', 'h', 'g');
BEGIN
    -- a heap's key is an index, of strata it is said by its name
    renamed := regexp_replace(renamed, 'duplicate key value violates .*', 'duplicate key value');
    heap := regexp_replace(heap, 'duplicate key value violates .*', 'duplicate key value');
    heap := replace(heap, 'tuple to be deleted', 'tuple to be updated or deleted');
    IF heap = renamed THEN
        RETURN strata;
    END IF;
    RETURN 'heap: ' || heap || '; strata: ' || strata;
END $$;
CREATE FUNCTION same() RETURNS text LANGUAGE plpgsql AS $$
DECLARE differing text; leaves text;
BEGIN
    WITH hs AS (SELECT regexp_replace(tableoid::regclass::text, '^h', '') AS leaf, h::text AS r FROM h),
        fs AS (SELECT regexp_replace(tableoid::regclass::text, '^f', '') AS leaf, f::text AS r FROM f)
    SELECT string_agg(d::text, ' ') INTO differing FROM ((TABLE hs EXCEPT ALL TABLE fs) UNION ALL (TABLE fs EXCEPT ALL TABLE hs)) d;
    SELECT string_agg(leaf || ':' || n, ' ' ORDER BY leaf) INTO leaves FROM (SELECT tableoid::regclass::text AS leaf, count(*) AS n FROM f GROUP BY 1) c(leaf, n);
    RETURN coalesce('differ: ' || differing, leaves);
END $$;

CREATE TABLE h (id int NOT NULL, v text, w int) PARTITION BY RANGE (id);
CREATE TABLE f (id int NOT NULL, v text, w int) PARTITION BY RANGE (id);
SELECT twin('CREATE LEAF @1 PARTITION OF @ FOR VALUES FROM (0) TO (100)');
SELECT twin('CREATE LEAF @2 PARTITION OF @ FOR VALUES FROM (100) TO (200)');
-- a leaf with a heap twin in both trees, with columns in another order and one dropped
SELECT twin('CREATE TABLE @3 (w int, gone int, v text, id int NOT NULL UNIQUE)');
SELECT twin('ALTER TABLE @3 DROP COLUMN gone');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @3 FOR VALUES FROM (200) TO (300)');
CREATE TABLE h4 (v text, gone int, w int, id int NOT NULL UNIQUE);
CREATE FOREIGN TABLE f4 (v text, gone int, w int, id int NOT NULL) SERVER strata OPTIONS (key 'id', auto_merge 'off', on_duplicate 'error');
SELECT twin('ALTER TABLE @4 DROP COLUMN gone');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @4 FOR VALUES FROM (300) TO (400)');
SELECT twin('INSERT INTO @ SELECT i, ''row '' || i, i % 7 FROM generate_series(0, 390, 10) i');

-- ---- to strata, to heap, to other row types; counts ----
SELECT twin('UPDATE @ SET id = 101 WHERE id = 0');
SELECT twin('UPDATE @ SET id = 201 WHERE id = 10');
SELECT twin('UPDATE @ SET id = 301, v = ''moved'' WHERE id = 20');
SELECT twin('UPDATE @ SET id = id + 104, w = w + 1 WHERE id IN (30, 130, 230)');
SELECT twin('UPDATE @ SET id = id - 299 WHERE id IN (300, 310)');
SELECT twin('UPDATE @ SET id = 999 WHERE id = 40');
SELECT twin('UPDATE @1 SET id = 140 WHERE id = 40');
SELECT twin('UPDATE @ SET id = NULL WHERE id = 40');
SELECT same();
-- of rows in the base, too
CALL strata.drain('f1');
CALL strata.drain('f2');
SELECT twin('UPDATE @ SET id = id + 105 WHERE id IN (50, 60, 150)');
SELECT same();
-- RETURNING: new rows, from where they are
SELECT twin('UPDATE @ SET id = id + 103 WHERE id IN (70, 71, 110) RETURNING *');
SELECT regexp_replace(twin('UPDATE @ SET id = id + 201 WHERE id IN (80, 120) RETURNING id, v || w AS vw, @.*, tableoid::regclass'), 'f', '', 'g');
SELECT twin('UPDATE @ SET id = @.id + 107 FROM (VALUES (90, ''x''), (90, ''x''), (210, ''z'')) AS u (i, t) WHERE id = i RETURNING @.id, t, @');
SELECT same();
-- one statement, several kinds of changes
SELECT twin('UPDATE @ SET id = CASE WHEN w = 1 THEN id + 2 WHEN w = 2 THEN (id + 118) % 400 ELSE id END, v = v || ''!''');
SELECT same();
-- the same command sees none of what it moved; the next one all
SELECT twin('UPDATE @ SET id = id + 106 WHERE id < 290 AND id % 10 < 4');
SELECT same();
SELECT twin('UPDATE @ SET id = id - 106 WHERE id >= 106 AND id % 10 BETWEEN 6 AND 9');
SELECT same();
-- WITH: the rows that moved, and a statement that moves without being asked
SELECT twin('WITH m AS (UPDATE @ SET id = id + 109 WHERE id BETWEEN 120 AND 160 RETURNING *) SELECT sum(id), count(*) FROM m -- RETURNING');
SELECT twin('WITH m AS (UPDATE @ SET id = id + 27 WHERE id BETWEEN 180 AND 190 RETURNING *) UPDATE @ SET w = 0 WHERE id >= 200 -- count');
SELECT same();
-- through views with options, prepared statements
SELECT twin('CREATE VIEW @_view AS SELECT * FROM @ WHERE id < 350 WITH CHECK OPTION');
SELECT twin('UPDATE @_view SET id = 345 WHERE id = 2');
SELECT twin('UPDATE @_view SET id = 355 WHERE id = 11');
SELECT twin('UPDATE @_view SET id = 355 WHERE id = 11 RETURNING *');
SELECT same();
PREPARE move_h(int, int) AS UPDATE h SET id = $2 WHERE id = $1;
PREPARE move_f(int, int) AS UPDATE f SET id = $2 WHERE id = $1;
EXECUTE move_h(11, 111); EXECUTE move_h(111, 211); EXECUTE move_h(211, 11);
EXECUTE move_f(11, 111); EXECUTE move_f(111, 211); EXECUTE move_f(211, 11);
SELECT same();

-- ---- a key that is taken: whatever on_duplicate of the destination says ----
SELECT twin('INSERT INTO @ VALUES (5, ''dup'', 5), (105, ''dup'', 5), (305, ''dup'', 5), (205, ''dup'', 5)');
SELECT twin('UPDATE @ SET id = 105 WHERE id = 5');
SELECT twin('UPDATE @ SET id = 205 WHERE id = 5');
SELECT twin('UPDATE @ SET id = 305 WHERE id = 5');
SELECT twin('UPDATE @ SET id = 5 WHERE id = 205');
SELECT twin('UPDATE @ SET id = 106 WHERE id IN (5, 205)');
ALTER FOREIGN TABLE f2 OPTIONS (ADD on_duplicate 'ignore');
SELECT twin('UPDATE @ SET id = 105 WHERE id = 5');
SELECT twin('UPDATE @ SET id = 105 WHERE id = 205');
ALTER FOREIGN TABLE f2 OPTIONS (DROP on_duplicate);
SELECT same();
-- a key that is free again
SELECT twin('DELETE FROM @ WHERE id = 105');
SELECT twin('UPDATE @ SET id = 105 WHERE id = 5');
SELECT twin('UPDATE @ SET id = 5 WHERE id = 105');
SELECT same();

-- ---- savepoints ----
BEGIN;
SELECT twin('UPDATE @ SET id = 106 WHERE id = 5');
SAVEPOINT a;
SELECT twin('UPDATE @ SET id = id + 100 WHERE id = 106');
SELECT same();
ROLLBACK TO a;
SELECT same();
SELECT twin('UPDATE @ SET id = 6 WHERE id = 106');
SELECT twin('UPDATE @ SET id = 106 WHERE id = 6');
COMMIT;
BEGIN;
SELECT twin('UPDATE @ SET id = 7 WHERE id = 106');
ROLLBACK;
SELECT same();

-- ---- triggers ----
CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO move.fired (line) VALUES (concat_ws(' ', substr(TG_TABLE_NAME, 2), TG_WHEN, TG_OP, TG_LEVEL, OLD, '->', NEW));
    RETURN coalesce(NEW, OLD);
END $$;
SELECT twin('CREATE TRIGGER fire_1 BEFORE INSERT OR UPDATE OR DELETE ON @ FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('CREATE TRIGGER fire_2 AFTER INSERT OR UPDATE OR DELETE ON @ FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('CREATE TRIGGER fire_3 BEFORE INSERT OR UPDATE OR DELETE ON @ FOR EACH STATEMENT EXECUTE FUNCTION fire()');
SELECT twin('CREATE TRIGGER fire_4 AFTER INSERT OR UPDATE OR DELETE ON @ FOR EACH STATEMENT EXECUTE FUNCTION fire()');
SELECT twin('UPDATE @ SET id = 8 WHERE id = 106');
SELECT twin('UPDATE @ SET id = 208, v = ''t'' WHERE id = 8');
SELECT twin('UPDATE @ SET id = 8 WHERE id = 208');
SELECT twin('UPDATE @ SET id = 308 WHERE id = 8 RETURNING *');
SELECT twin('UPDATE @ SET id = CASE id WHEN 305 THEN 306 ELSE 8 END WHERE id IN (305, 308)');
SELECT twin('UPDATE @ SET id = CASE id WHEN 306 THEN 305 ELSE 108 END WHERE id IN (306, 8) RETURNING id');
-- of one leaf: a row that moves, one that stays, one that moves
SELECT twin('INSERT INTO @ VALUES (13, ''a'', 1), (14, ''b'', 2), (15, ''c'', 3)');
SELECT twin('UPDATE @ SET id = CASE id WHEN 14 THEN 14 ELSE id + 233 END, v = v || ''!'' WHERE id BETWEEN 13 AND 15 RETURNING *');
SELECT twin('DELETE FROM @ WHERE id IN (246, 14, 248)');
SELECT same();
SELECT twin('DROP TRIGGER fire_2 ON @');
-- one that wants the row to stay, one that drops it, one that changes it
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.v = 'stay' THEN RETURN NULL; END IF;
        IF OLD.v = 'update me' AND pg_trigger_depth() = 1 THEN EXECUTE format('UPDATE %s SET w = 77 WHERE id = %s', TG_RELID::regclass, OLD.id); END IF;
        IF OLD.v = 'delete me' AND pg_trigger_depth() = 1 THEN EXECUTE format('DELETE FROM %s WHERE id = %s', TG_RELID::regclass, OLD.id); END IF;
        RETURN OLD;
    ELSIF TG_OP = 'INSERT' THEN
        IF NEW.v = 'drop' THEN RETURN NULL; END IF;
        IF NEW.v = 'elsewhere' THEN NEW.id := NEW.id + 100; END IF;
        IF NEW.v = 'change' THEN NEW.w := 88; END IF;
        RETURN NEW;
    END IF;
    IF NEW.v = 'key' THEN NEW.id := NEW.id + 100; END IF;
    RETURN NEW;
END $$;
SELECT twin(format('CREATE TRIGGER meddle BEFORE INSERT OR UPDATE OR DELETE ON @%s FOR EACH ROW EXECUTE FUNCTION meddle()', leaf)) FROM generate_series(1, 4) leaf;
SELECT twin('CREATE TRIGGER tell BEFORE INSERT OR UPDATE OR DELETE ON @1 FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('UPDATE @ SET v = ''stay'' WHERE id IN (108, 305)');
SELECT twin('UPDATE @ SET id = id - 99 WHERE id = 108');
SELECT twin('UPDATE @ SET id = id - 99 WHERE id = 108 RETURNING *');
SELECT twin('UPDATE @ SET v = ''update me'' WHERE id = 108');
SELECT twin('UPDATE @ SET id = id - 99 WHERE id = 108');
SELECT twin('UPDATE @ SET v = ''delete me'' WHERE id = 108');
SELECT twin('UPDATE @ SET id = id - 99 WHERE id = 108');
SELECT same();
SELECT twin('UPDATE @ SET v = ''change'' WHERE id = 108');
SELECT twin('UPDATE @ SET id = 208 WHERE id = 108 RETURNING *');
SELECT twin('UPDATE @ SET id = 308 WHERE id = 208 RETURNING *');
SELECT twin('UPDATE @ SET v = ''elsewhere'' WHERE id = 308');
SELECT twin('UPDATE @ SET id = 208 WHERE id = 308');
SELECT twin('UPDATE @ SET id = 108 WHERE id = 308');
SELECT same();
-- a BEFORE UPDATE trigger that moves it
SELECT twin('UPDATE @ SET v = ''key'' WHERE id = 11 RETURNING *');
SELECT twin('UPDATE @ SET v = ''key'' WHERE id = 111');
SELECT twin('UPDATE @ SET v = ''drop'' WHERE id = 308');
SELECT twin('UPDATE @ SET id = 109 WHERE id = 308');
SELECT same();
SELECT twin(format('DROP TRIGGER meddle ON @%s', leaf)) FROM generate_series(1, 4) leaf;
SELECT twin('DROP TRIGGER tell ON @1');
SELECT twin('DROP TRIGGER fire_1 ON @');
-- transition tables: not of strata partitions, moved or not
SELECT twin('CREATE TRIGGER fire_5 AFTER UPDATE ON @ REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION fire()');
UPDATE f SET id = 95 WHERE id = 305;
UPDATE f SET id = 95 WHERE id = 305 RETURNING id;
UPDATE f SET w = 4 WHERE id = 305;
SELECT twin('DROP TRIGGER fire_5 ON @');
SELECT twin('DROP TRIGGER fire_3 ON @');
SELECT twin('DROP TRIGGER fire_4 ON @');
SELECT same();

-- ---- constraints and generated columns of the destination ----
SELECT twin('ALTER TABLE @2 ADD CONSTRAINT low CHECK (w < 50)');
SELECT twin('ALTER TABLE @3 ALTER v SET NOT NULL, ADD CONSTRAINT lower CHECK (w < 40)');
SELECT twin('UPDATE @ SET id = id - 200, w = 60 WHERE id = 305');
SELECT twin('UPDATE @ SET id = id - 100, w = 45 WHERE id = 305');
SELECT twin('UPDATE @ SET id = id - 100, v = NULL WHERE id = 305');
SELECT twin('UPDATE @ SET id = id - 200, w = 45 WHERE id = 305');
SELECT twin('UPDATE @ SET id = id + 100, w = 45 WHERE id = 105');
SELECT twin('UPDATE @ SET id = id + 200, w = 60 WHERE id = 105');
SELECT same();

-- ---- row security of the parent ----
SELECT twin('ALTER TABLE @ ENABLE ROW LEVEL SECURITY');
SELECT twin('ALTER TABLE @ FORCE ROW LEVEL SECURITY');
SELECT twin('CREATE POLICY reads ON @ USING (true)');
SELECT twin('CREATE POLICY moves ON @ AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (w < 1000)');
SELECT twin('CREATE POLICY inserts ON @ AS RESTRICTIVE FOR INSERT WITH CHECK (w < 100)');
CREATE ROLE move_user;
GRANT USAGE ON SCHEMA move TO move_user;
GRANT ALL ON ALL TABLES IN SCHEMA move TO move_user;
SELECT twin('ALTER TABLE @ OWNER TO move_user');
SET ROLE move_user;
UPDATE h SET id = id - 300, w = 500 WHERE id = 305 RETURNING *;
UPDATE f SET id = id - 300, w = 500 WHERE id = 305 RETURNING *;
UPDATE h SET id = id + 203, w = 1500 WHERE id = 5;
UPDATE f SET id = id + 203, w = 1500 WHERE id = 5;
UPDATE h SET id = id + 303, w = 1500 WHERE id = 5;
UPDATE f SET id = id + 303, w = 1500 WHERE id = 5;
RESET ROLE;
SELECT twin('ALTER TABLE @ OWNER TO current_user');
SELECT twin('ALTER TABLE @ DISABLE ROW LEVEL SECURITY');
SELECT twin('ALTER TABLE @ NO FORCE ROW LEVEL SECURITY');
DROP OWNED BY move_user;
DROP ROLE move_user;
SELECT same();

-- ---- several levels, DEFAULT, LIST ----
SELECT twin('CREATE TABLE @sub (v text, id int NOT NULL, w int) PARTITION BY LIST (w)');
SELECT twin('CREATE LEAF @sub1 PARTITION OF @sub FOR VALUES IN (1, 2)');
SELECT twin('CREATE LEAF @sub2 PARTITION OF @sub FOR VALUES IN (3, NULL)');
SELECT twin('CREATE TABLE @sub3 PARTITION OF @sub FOR VALUES IN (4)');
SELECT twin('ALTER TABLE @ ATTACH PARTITION @sub FOR VALUES FROM (400) TO (500)');
SELECT twin('CREATE LEAF @rest PARTITION OF @ DEFAULT');
SELECT twin('INSERT INTO @ SELECT i, ''sub'', i % 4 + 1 FROM generate_series(400, 420) i');
SELECT twin('UPDATE @ SET w = w % 4 + 1 WHERE id >= 410 RETURNING id, w, v');
SELECT twin('UPDATE @sub SET w = NULL WHERE id IN (400, 404)');
SELECT twin('UPDATE @sub SET w = 4 WHERE id IN (400, 401)');
SELECT twin('UPDATE @sub SET w = 5 WHERE id = 402');
SELECT twin('UPDATE @sub SET id = 1402 WHERE id = 402');
SELECT twin('UPDATE @sub1 SET w = 3 WHERE id = 405');
SELECT twin('UPDATE @ SET id = 1402 WHERE id = 402 RETURNING *');
SELECT twin('UPDATE @ SET id = id + 1000 WHERE id BETWEEN 405 AND 408');
SELECT twin('UPDATE @ SET id = id - 1000, w = 2 WHERE id > 1000');
SELECT twin('UPDATE @ SET id = id - 199 WHERE id IN (406, 407)');
SELECT same();

-- ---- HASH; a generated key column; a key of two columns ----
CREATE TABLE hh (id int NOT NULL, v text, g int GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY HASH (v);
CREATE TABLE fh (id int NOT NULL, v text, g int GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY HASH (v);
SELECT twin('CREATE LEAF @h0 PARTITION OF @h FOR VALUES WITH (MODULUS 3, REMAINDER 0)');
SELECT twin('CREATE LEAF @h1 PARTITION OF @h FOR VALUES WITH (MODULUS 3, REMAINDER 1)');
SELECT twin('CREATE TABLE @h2 PARTITION OF @h FOR VALUES WITH (MODULUS 3, REMAINDER 2)');
SELECT twin('INSERT INTO @h SELECT i, ''v'' || i FROM generate_series(1, 3000) i');
SELECT twin('UPDATE @h SET v = v || ''!''');
SELECT twin('UPDATE @h SET v = v || ''!'', id = id + 10000 WHERE id % 3 = 0');
SELECT twin('WITH u AS (UPDATE @h SET v = v || ''?'', id = -id RETURNING *) SELECT count(*), sum(id), sum(g), sum(hashtext(v)) FROM u -- RETURNING');
SELECT count(*), sum(hashtext(fh::text)), sum(hashtext(tableoid::regclass || fh::text)) = (SELECT sum(hashtext(regexp_replace(tableoid::regclass::text, '^h', 'f') || hh::text)) FROM hh) AS same FROM fh;
-- EXPLAIN ANALYZE counts what is returned
SELECT twin('DELETE FROM @ WHERE id BETWEEN 90 AND 99 OR id BETWEEN 180 AND 189 OR id BETWEEN 290 AND 299');
SELECT twin('CREATE TRIGGER fire_1 BEFORE INSERT OR UPDATE OR DELETE ON @1 FOR EACH ROW EXECUTE FUNCTION fire()');
SELECT twin('INSERT INTO @ VALUES (91, ''x'', 1), (92, ''x'', 2), (93, ''x'', 3)');
CREATE FUNCTION explain(command text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || command LOOP
        IF line ~ 'Update on|Trigger' THEN RETURN NEXT regexp_replace(line, '(?<=rows=\d+)\.00', ''); END IF;
    END LOOP;
END $$;
SELECT explain('UPDATE h SET id = id + 93 WHERE id IN (91, 92) RETURNING *');
SELECT explain('UPDATE f SET id = id + 93 WHERE id IN (91, 92) RETURNING *');
SELECT explain('UPDATE h SET id = id + 202 WHERE id = 93');
SELECT explain('UPDATE f SET id = id + 202 WHERE id = 93');
SELECT same();

SELECT leaf, bad.* FROM unnest(ARRAY['f1', 'f2', 'f4', 'fsub1', 'fsub2', 'frest', 'fh0', 'fh1']) leaf, strata.verify(leaf::regclass) bad;
DROP SCHEMA move CASCADE;
