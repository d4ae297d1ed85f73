-- Random DDL and DML on a strata table and a heap twin, then on a tree of
-- partitions with strata leaves and one with heap leaves: the same SQLSTATE for
-- each command and the same rows after.  A difference is an error that tells
-- the seed and the last commands; STRATA_SEED in the environment repeats it.
SET client_min_messages = error;
CREATE EXTENSION IF NOT EXISTS strata;
CREATE SCHEMA ddl_random;
SET search_path = ddl_random, public;
SET check_function_bodies = off;
\set seed ''
\getenv seed STRATA_SEED
\set rounds 2
\getenv rounds STRATA_ROUNDS

CREATE FUNCTION run(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE FUNCTION below(n int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT floor(random() * $1)::int';
CREATE FUNCTION one_of(a text[]) RETURNS text LANGUAGE sql VOLATILE AS 'SELECT a[1 + floor(random() * cardinality(a))::int]';
CREATE FUNCTION some_column() RETURNS text LANGUAGE sql VOLATILE AS
    $$ SELECT one_of(array_agg(attname::text)) FROM pg_attribute WHERE attrelid = 'h'::regclass AND attnum > 1 AND NOT attisdropped $$;
CREATE FUNCTION some_constraint() RETURNS text LANGUAGE sql VOLATILE AS
    $$ SELECT one_of(array_agg(conname::text)) FROM pg_constraint WHERE conrelid = 'h'::regclass AND contype = 'c' $$;
CREATE FUNCTION some_value(type text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.25 THEN
        RETURN 'NULL';
    END IF;
    RETURN CASE WHEN type LIKE 'int%[]' THEN format('''{%s,NULL,%s}''::int[]', below(5), below(5))
        WHEN type ~ '^(int|num|bigint)' THEN below(6)::text
        WHEN type ~ '^(text|char|varchar)' THEN quote_literal(repeat(one_of('{a,b,c}'), below(6)))
        WHEN type = 'boolean' THEN one_of('{true,false}')
        WHEN type = 'date' THEN format('''2020-01-%s''::date', 1 + below(9))
        ELSE 'NULL' END;
END $$;
-- columns and constraints of a table; of the twin, when they are the same
CREATE FUNCTION shape(r regclass) RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT string_agg(concat_ws(' ', attnum, attname, format_type(atttypid, atttypmod), attnotnull), ',' ORDER BY attnum)
            FROM pg_attribute WHERE attrelid = r AND attnum > 0 AND NOT attisdropped) || ';' ||
        (SELECT coalesce(string_agg(concat_ws(' ', conname, convalidated, pg_get_constraintdef(oid)), ',' ORDER BY conname), '')
         FROM pg_constraint WHERE conrelid = r AND contype = 'c')
$$;
-- rows, and the leaves they are in, of one and not of the other
CREATE FUNCTION difference() RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    EXECUTE 'WITH hs AS (SELECT substr(tableoid::regclass::text, 2), h::text FROM h), fs AS (SELECT substr(tableoid::regclass::text, 2), f::text FROM f)
        SELECT string_agg(d::text, '' '') FROM ((TABLE hs EXCEPT ALL TABLE fs) UNION ALL (TABLE fs EXCEPT ALL TABLE hs)) d' INTO result;
    RETURN result;
END $$;

-- A command for a single table; @ is its name
CREATE FUNCTION command_for_table(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    col text := some_column();
    type text; typmod int; new_type text; clauses text; con text;
BEGIN
    IF col IS NULL THEN
        RETURN format('ALTER TABLE @ ADD COLUMN x%s int', n);
    END IF;
    SELECT format_type(atttypid, NULL), atttypmod INTO type, typmod FROM pg_attribute WHERE attrelid = 'h'::regclass AND attname = col;
    CASE below(24)
        WHEN 0, 1, 2, 3 THEN RETURN format('INSERT INTO @ (id, %I) VALUES (%s, %s)', col, below(40), some_value(type));
        WHEN 4, 5 THEN RETURN format('UPDATE @ SET %I = %s WHERE id %% %s = 0', col, some_value(type), 1 + below(6));
        WHEN 6 THEN RETURN format('DELETE FROM @ WHERE id %% %s = %s', 3 + below(6), below(3));
        WHEN 7, 8, 9 THEN
            new_type := one_of('{int,bigint,text,varchar(4),varchar,boolean,date,int[],"numeric(8,2)"}');
            clauses := concat_ws(' ', CASE WHEN random() < 0.6 THEN 'DEFAULT ' || some_value(new_type) END,
                one_of(ARRAY['', '', 'NOT NULL', format('CONSTRAINT q%s CHECK (x%1$s IS NOT NULL)', n)]));
            RETURN format('ALTER TABLE @ ADD COLUMN x%s %s %s', n, new_type, clauses) ||
                CASE WHEN random() < 0.3 THEN format(', DROP COLUMN %I', col) ELSE '' END;
        WHEN 10 THEN RETURN format('ALTER TABLE @ DROP COLUMN %I', col);
        WHEN 11 THEN RETURN format('ALTER TABLE @ RENAME %I TO r%s', col, n);
        WHEN 12, 13 THEN RETURN format('ALTER TABLE @ ALTER %I %s NOT NULL', col, one_of('{SET,SET,DROP}'));
        WHEN 14, 15 THEN RETURN format('ALTER TABLE @ ADD CONSTRAINT k%s CHECK (%I IS NULL OR %2$I::text <> %L) %s', n, col, one_of('{a,bb,1,2,0,true}'), one_of('{"",NOT VALID}'));
        WHEN 16 THEN
            con := some_constraint();
            RETURN CASE WHEN con IS NOT NULL THEN format('ALTER TABLE @ %s CONSTRAINT %I', one_of('{VALIDATE,VALIDATE,DROP}'), con) END;
        WHEN 17 THEN
            -- those that need no rewriting
            RETURN format('ALTER TABLE @ ALTER %I TYPE %s', col, CASE WHEN type LIKE 'char%' AND typmod <> -1 THEN one_of('{varchar(8),text,varchar}')
                WHEN type ~ '^(char|text)' THEN one_of('{text,varchar}') ELSE format_type((type)::regtype, typmod) END);
        WHEN 18 THEN RETURN format('ALTER TABLE @ ALTER %I ', col) || CASE WHEN random() < 0.5 THEN 'DROP DEFAULT' ELSE 'SET DEFAULT ' || some_value(type) END;
        WHEN 19 THEN RETURN CASE WHEN random() < 0.2 THEN 'TRUNCATE @' END;
        WHEN 20 THEN RETURN format('UPDATE @ SET id = id + %s WHERE id = %s', 100 + n, below(40));
        ELSE
            PERFORM strata.seal('f');
            PERFORM strata.merge('f');
            PERFORM strata.compact('f');
            RETURN NULL;
    END CASE;
END $$;
-- A command for the tree; LEAF ... KEY ... END make a heap or a strata table
CREATE FUNCTION command_for_tree(n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    col text := some_column();
    leaf text; con text; low int := below(8) * 10; id int := below(90);
    bounds text := CASE WHEN random() < 0.2 THEN 'DEFAULT' ELSE format('FOR VALUES FROM (%s) TO (%s)', low, low + 10 * (1 + below(2))) END;
BEGIN
    IF col IS NULL THEN
        RETURN format('ALTER TABLE @ ADD COLUMN x%s int', n);
    END IF;
    SELECT one_of(array_agg(substr(relname, 2))) INTO leaf FROM pg_class WHERE relnamespace = 'ddl_random'::regnamespace AND relname ~ '^hl' AND relkind = 'r';
    CASE below(22)
        WHEN 0, 1, 2, 3, 4 THEN RETURN format('INSERT INTO @ (id) SELECT %s WHERE NOT EXISTS (SELECT FROM @ WHERE id = %1$s)', id);
        WHEN 5, 6 THEN RETURN CASE WHEN leaf IS NOT NULL THEN format('INSERT INTO @%s (id) SELECT %s WHERE NOT EXISTS (SELECT FROM @%1$s WHERE id = %2$s)', leaf, id) END;
        WHEN 7 THEN RETURN format('UPDATE @ SET %I = %s WHERE id %% %s = 0', col, one_of('{NULL,''1'',''2''}'), 1 + below(5));
        WHEN 8 THEN RETURN format('UPDATE @ SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM @ WHERE id = %1$s)', id, below(90));
        WHEN 9 THEN RETURN format('DELETE FROM @ WHERE id %% %s = %s', 4 + below(5), below(3));
        WHEN 10 THEN RETURN format('CREATE LEAF @l%s PARTITION OF @ KEY %s END', n, bounds);
        WHEN 11 THEN RETURN format('CREATE TABLE @n%s PARTITION OF @ %s', n, bounds);
        WHEN 12, 13 THEN RETURN CASE WHEN leaf IS NULL THEN NULL WHEN random() < 0.7 THEN format('ALTER TABLE @ ATTACH PARTITION @%s %s', leaf, bounds) ELSE format('ALTER TABLE @ DETACH PARTITION @%s', leaf) END;
        WHEN 14 THEN RETURN format('ALTER TABLE @ ADD CONSTRAINT k%s CHECK (%I::text <> %L) %s', n, col, one_of('{1,2}'), one_of('{"",NOT VALID}'));
        WHEN 15 THEN
            con := some_constraint();
            RETURN CASE WHEN con IS NOT NULL THEN format('ALTER TABLE @ %s CONSTRAINT %I', one_of('{VALIDATE,DROP}'), con) END;
        WHEN 16 THEN RETURN format('ALTER TABLE @ ALTER %I %s NOT NULL', col, one_of('{SET,DROP}'));
        WHEN 17 THEN RETURN format('ALTER TABLE @ ADD COLUMN x%s int %s %s', n, one_of('{"",DEFAULT 1,DEFAULT 2}'), one_of(ARRAY['', '', 'NOT NULL', format('CONSTRAINT q%s CHECK (x%1$s < 2)', n)]));
        WHEN 18 THEN RETURN CASE WHEN random() < 0.5 THEN format('ALTER TABLE @ DROP COLUMN %I', col) ELSE format('ALTER TABLE @ RENAME %I TO r%s', col, n) END;
        WHEN 19 THEN RETURN CASE WHEN leaf IS NOT NULL AND random() < 0.3 THEN format('DROP LEAF @%s KEY', leaf) END;
        WHEN 20 THEN RETURN CASE WHEN leaf IS NOT NULL AND random() < 0.3 THEN 'TRUNCATE ' || one_of(ARRAY['@', '@' || leaf]) END;
        ELSE
            IF leaf IS NOT NULL THEN
                PERFORM strata.seal(('f' || leaf)::regclass);
                PERFORM strata.merge(('f' || leaf)::regclass);
            END IF;
            RETURN NULL;
    END CASE;
END $$;

CREATE PROCEDURE steps(what text, n int, seed float8) LANGUAGE plpgsql AS $$
DECLARE
    log text[] := '{}';
    command text; heap text; strata text; gone text;
BEGIN
    PERFORM setseed(seed);
    FOR i IN 1 .. n LOOP
        command := CASE what WHEN 'table' THEN command_for_table(i) ELSE command_for_tree(i) END;
        BEGIN
            heap := run(regexp_replace(regexp_replace(replace(command, '@', 'h'), '\mLEAF (.*) KEY', 'TABLE \1'), ' END', ''));
            strata := run(regexp_replace(regexp_replace(replace(command, '@', 'f'), '\mLEAF (.*) KEY', 'FOREIGN TABLE \1'), ' END', ' SERVER strata OPTIONS (key ''id'', auto_merge ''off'')'));
            -- the one documented exception: rows are not moved out of a strata partition
            IF heap = 'ok' AND what = 'tree' AND command LIKE 'UPDATE @ SET id%' AND strata LIKE '23514 new row for relation % violates partition constraint' THEN
                strata := 'ok';
                RAISE SQLSTATE 'P0099';
            END IF;
            IF random() < 0.1 THEN
                RAISE SQLSTATE 'P0099';
            END IF;
        EXCEPTION WHEN SQLSTATE 'P0099' THEN
            command := command || ' (rolled back)';
        END;
        log := log || (command || ' -- ' || strata);
        IF left(heap, 5) IS DISTINCT FROM left(strata, 5) THEN
            RAISE 'seed %, step %: %, heap: %, strata: %', seed, i, command, heap, strata
                USING DETAIL = array_to_string(log[greatest(1, cardinality(log) - 60):], E';\n');
        END IF;
        IF random() < 0.6 THEN
            COMMIT;
        END IF;
        IF i % 5 = 0 AND (difference() IS NOT NULL OR shape('h') <> shape('f')) THEN
            RAISE 'seed %, step %: differ: %', seed, i, coalesce(difference(), shape('h') || ' and ' || shape('f'))
                USING DETAIL = array_to_string(log[greatest(1, cardinality(log) - 60):], E';\n');
        END IF;
    END LOOP;
    FOR gone IN SELECT format('DROP %sTABLE %s', CASE relkind WHEN 'f' THEN 'FOREIGN ' ELSE '' END, oid::regclass)
        FROM pg_class WHERE relnamespace = 'ddl_random'::regnamespace AND relkind IN ('r', 'f', 'p') ORDER BY relkind = 'p', relispartition LOOP
        EXECUTE gone;
    END LOOP;
END $$;
CREATE PROCEDURE rounds(given text, n int) LANGUAGE plpgsql AS $$
DECLARE seed float8;
BEGIN
    FOR i IN 1 .. n LOOP
        PERFORM setseed(extract(epoch FROM clock_timestamp())::numeric % 1);
        seed := coalesce(nullif(given, '')::float8, random());
        CREATE TABLE ddl_random.h (id int PRIMARY KEY, v int, t text);
        CREATE FOREIGN TABLE ddl_random.f (id int NOT NULL, v int, t text) SERVER strata
            OPTIONS (key 'id', auto_merge 'off', on_duplicate 'error', row_group_rows '7');
        CALL ddl_random.steps('table', 200, seed);
        CREATE TABLE ddl_random.h (id int NOT NULL, v int, t text) PARTITION BY RANGE (id);
        CREATE TABLE ddl_random.f (id int NOT NULL, v int, t text) PARTITION BY RANGE (id);
        CALL ddl_random.steps('tree', 200, seed);
    END LOOP;
END $$;
CALL rounds(:'seed', :rounds);
DROP SCHEMA ddl_random CASCADE;
