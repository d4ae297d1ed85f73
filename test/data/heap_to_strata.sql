-- Makes the tables that a script creates strata tables, as the script creates
-- them: an event trigger puts a foreign table in place of each new heap table.
-- Setting core.keyed adds a column strata_k to tables without a primary key,
-- whether or not they are replaced (core.strata), so that a heap run and a
-- strata run have the same columns.
CREATE SEQUENCE public.strata_k;
CREATE TABLE public.strata_keep (name text PRIMARY KEY);
GRANT USAGE ON SEQUENCE public.strata_k TO PUBLIC;
GRANT SELECT ON public.strata_keep TO PUBLIC;

CREATE FUNCTION public.heap_to_strata(t regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c pg_class;
    parents text;
    bound text;
    options text;
    columns text;
    later text[];
    key text;
    name text;
    keeps_rows bool;
    cmd text;
    seq record;
BEGIN
    SELECT * INTO c FROM pg_class WHERE oid = t;
    -- there are no temporary foreign tables
    name := CASE WHEN c.relpersistence = 't' THEN format('public.%I', c.relname) ELSE t::text END;
    -- what has no place on a foreign table stays a heap table
    IF EXISTS (SELECT FROM pg_constraint WHERE conrelid = t AND contype IN ('f', 'u', 'x'))
       OR EXISTS (SELECT FROM pg_inherits i JOIN pg_index x ON x.indrelid = i.inhparent AND x.indisunique
                  WHERE i.inhrelid = t AND c.relispartition) THEN
        RAISE LOG 'kept: % (constraints)', t;
        RETURN;
    END IF;

    SELECT string_agg(quote_ident(a.attname), ',' ORDER BY array_position(x.indkey, a.attnum)) INTO key
    FROM pg_index x JOIN pg_attribute a ON a.attrelid = t AND a.attnum = ANY (x.indkey)
    WHERE x.indrelid = t AND x.indisprimary;
    IF key IS NULL THEN
        SELECT a.attname INTO key FROM pg_attribute a WHERE a.attrelid = t AND a.attname = 'strata_k';
    END IF;

    SELECT string_agg(i.inhparent::regclass::text, ', ' ORDER BY i.inhseqno) INTO parents
    FROM pg_inherits i WHERE i.inhrelid = t;
    bound := pg_get_expr(c.relpartbound, t);

    SELECT string_agg(CASE WHEN a.attislocal AND NOT c.relispartition THEN
               format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod))
               || CASE WHEN a.attcollation <> y.typcollation THEN ' COLLATE ' || a.attcollation::regcollation ELSE '' END
               || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
               || CASE WHEN a.attgenerated = 's' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, t))
                       WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, t) ELSE '' END
               || CASE WHEN a.attidentity <> '' THEN
                      (SELECT format(' GENERATED %s AS IDENTITY (START %s INCREMENT %s)', CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, seqstart, seqincrement)
                       FROM pg_sequence WHERE seqrelid = pg_get_serial_sequence(t::text, a.attname)::regclass) ELSE '' END
           END, ', ' ORDER BY a.attnum),
           array_agg(format('ALTER FOREIGN TABLE %s ALTER %I SET DEFAULT %s', name, a.attname, pg_get_expr(d.adbin, t)))
               FILTER (WHERE d.adbin IS NOT NULL AND a.attgenerated = '' AND (c.relispartition OR NOT a.attislocal))
           || array_agg(format('ALTER FOREIGN TABLE %s ALTER %I SET NOT NULL', name, a.attname))
               FILTER (WHERE a.attnotnull AND (c.relispartition OR NOT a.attislocal))
    INTO columns, later
    FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_attrdef d ON d.adrelid = t AND d.adnum = a.attnum
    WHERE a.attrelid = t AND a.attnum > 0 AND NOT a.attisdropped;

    SELECT concat_ws(', ', columns, string_agg(format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)), ', ' ORDER BY conname))
    INTO columns FROM pg_constraint WHERE conrelid = t AND contype = 'c' AND conislocal;

    -- a serial column's sequence goes on
    FOR seq IN SELECT d.objid::regclass::text AS s, a.attname FROM pg_depend d JOIN pg_attribute a ON a.attrelid = t AND a.attnum = d.refobjsubid
               WHERE d.classid = 'pg_class'::regclass AND d.refobjid = t AND d.deptype = 'a' AND d.refobjsubid > 0
                 AND EXISTS (SELECT FROM pg_sequence WHERE seqrelid = d.objid) LOOP
        EXECUTE format('ALTER SEQUENCE %s OWNED BY NONE', seq.s);
        later := later || format('ALTER SEQUENCE %s OWNED BY %s.%I', seq.s, name, seq.attname);
    END LOOP;

    EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s)', t) INTO keeps_rows;
    IF keeps_rows THEN
        EXECUTE format('ALTER TABLE %s RENAME TO %I', t, 'strata_old_' || t::oid);
    ELSE
        EXECUTE format('DROP TABLE %s', t);
    END IF;
    options := concat_ws(', ', 'key ' || quote_literal(key), CASE WHEN key IS NOT NULL THEN 'on_duplicate ''error''' END);
    cmd := format('CREATE FOREIGN TABLE %s %s%s%s SERVER strata%s', name,
                  CASE WHEN c.relispartition THEN 'PARTITION OF ' || parents END,
                  CASE WHEN NOT c.relispartition OR columns <> '' THEN format(' (%s)', columns) END,
                  CASE WHEN c.relispartition THEN ' ' || bound WHEN parents IS NOT NULL THEN format(' INHERITS (%s)', parents) END,
                  CASE WHEN options <> '' THEN format(' OPTIONS (%s)', options) END);
    EXECUTE cmd;
    FOREACH cmd IN ARRAY coalesce(later, '{}') LOOP
        EXECUTE cmd;
    END LOOP;
    IF keeps_rows THEN
        EXECUTE format('INSERT INTO %s SELECT * FROM %s', name, t);
        EXECUTE format('DROP TABLE %s', t);
    END IF;
    RAISE LOG 'replaced: %', name;
EXCEPTION WHEN OTHERS THEN
    RAISE LOG 'kept: % (% in %)', t, SQLERRM, cmd;
END$$;

CREATE FUNCTION public.table_created() RETURNS event_trigger LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT c.oid::regclass AS t, c.relkind
             FROM pg_event_trigger_ddl_commands() d JOIN pg_class c ON c.oid = d.objid
             WHERE d.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'p') AND c.relpersistence <> 'u' AND c.reloftype = 0
               AND d.command_tag IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO') LOOP
        IF current_setting('core.keyed', true) = 'on'
           AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = r.t AND indisprimary)
           AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = r.t AND attname = 'strata_k')
           AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = r.t) THEN
            EXECUTE format('ALTER TABLE %s ADD strata_k int NOT NULL DEFAULT nextval(''public.strata_k'')%s', r.t,
                           -- (a unique index on a partitioned table allows no foreign partition)
                           CASE r.relkind WHEN 'r' THEN ', ADD PRIMARY KEY (strata_k)' END);
        END IF;
        IF current_setting('core.strata', true) = 'on' AND r.relkind = 'r'
           AND NOT EXISTS (SELECT FROM public.strata_keep k JOIN pg_class c ON c.relname LIKE k.name
                           WHERE c.oid = r.t OR c.oid IN (SELECT relid FROM pg_partition_ancestors(r.t))) THEN
            PERFORM public.heap_to_strata(r.t);
        END IF;
    END LOOP;
END$$;

-- DROP TABLE for either kind; names as the command has them.
CREATE PROCEDURE public.drop_tables(names text) LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
    n text;
    may_lack bool := names ~* '^\s*if\s+exists';
    how text := coalesce(substring(names FROM '(?i)\s(cascade|restrict)\s*$'), '');
BEGIN
    names := regexp_replace(regexp_replace(names, '^\s*if\s+exists', '', 'i'), '\s(cascade|restrict)\s*$', '', 'i');
    FOREACH n IN ARRAY string_to_array(names, ',') LOOP
        IF EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(trim(E' \n\t' FROM n)) AND relkind = 'f') THEN
            EXECUTE format('DROP FOREIGN TABLE %s %s', n, how);
        ELSE
            EXECUTE format('DROP TABLE %s %s %s', CASE WHEN may_lack THEN 'IF EXISTS' END, n, how);
        END IF;
    END LOOP;
END$$;
