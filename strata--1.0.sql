/* strata--1.0.sql */

-- complain if script is sourced in psql rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION strata" to load this file. \quit

SET LOCAL search_path = pg_catalog, pg_temp;

CREATE SCHEMA strata;

-- ---------------------------------------------------------------------------
-- The manifest: private tables, written by C only (see docs/internals.md)
-- ---------------------------------------------------------------------------

CREATE TABLE strata.store (
    foreign_table oid PRIMARY KEY,
    storage       oid NOT NULL UNIQUE,
    incarnation   int NOT NULL,
    shards        int NOT NULL,
    key           int2[] NOT NULL,      -- attribute numbers, in key order
    columns       bytea NOT NULL,       -- column signature (struct array)
    missing       bytea                 -- missing values of added columns
);

CREATE TABLE strata.shard (
    store         oid NOT NULL,         -- foreign table
    shard         int NOT NULL,
    incarnation   int NOT NULL,
    merged_through bigint NOT NULL,
    first_block   bigint NOT NULL,      -- first pending page and its owner
    first_owner   bigint NOT NULL,
    rows          bigint NOT NULL,      -- totals through merged_through
    bytes         bigint NOT NULL,
    PRIMARY KEY (store, shard)
);

CREATE TABLE strata.row_group (
    store         oid NOT NULL,
    number        bigint NOT NULL,
    incarnation   int NOT NULL,
    first_block   bigint NOT NULL,
    blocks        bigint NOT NULL,
    owner         bigint NOT NULL,
    length        bigint NOT NULL,
    raw_bytes     bigint NOT NULL,
    rows          int NOT NULL,
    zones         bytea,
    PRIMARY KEY (store, number)
);

CREATE TABLE strata.dictionary (
    store         oid NOT NULL,
    id            bigint NOT NULL,
    incarnation   int NOT NULL,
    attnum        int2 NOT NULL,
    first_block   bigint NOT NULL,
    blocks        bigint NOT NULL,
    owner         bigint NOT NULL,
    length        bigint NOT NULL,
    PRIMARY KEY (store, id)
);

CREATE TABLE strata.deletes (
    store         oid NOT NULL,
    id            bigint NOT NULL,      -- top-level full xid of the pass
    seq           int NOT NULL,
    incarnation   int NOT NULL,
    n             bigint NOT NULL,
    tids          bytea NOT NULL,
    PRIMARY KEY (store, id, seq)
);

CREATE TABLE strata.pass (
    store         oid NOT NULL,
    id            bigint NOT NULL,      -- counts the passes of the store
    what          text NOT NULL,
    generations_merged bigint NOT NULL,
    generations_left   bigint NOT NULL,
    rows_read     bigint NOT NULL,
    rows_inserted bigint NOT NULL,
    rows_replaced bigint NOT NULL,
    rows_deleted  bigint NOT NULL,
    rows_aborted  bigint NOT NULL,
    row_groups_written bigint NOT NULL,
    row_groups_adopted bigint NOT NULL,
    index_probes  bigint NOT NULL,
    index_built   boolean NOT NULL,
    base_bytes_read bigint NOT NULL,
    bytes_read    bigint NOT NULL,
    bytes_written bigint NOT NULL,
    peak_memory   bigint NOT NULL,
    incarnation   int NOT NULL,
    base_groups   bigint NOT NULL,      -- row groups of the base table after it,
    base_rows     bigint NOT NULL,      -- their rows minus deletes,
    base_raw_bytes bigint NOT NULL,     -- and bytes
    base_bytes    bigint NOT NULL,
    started       timestamptz NOT NULL,
    ended         timestamptz NOT NULL,
    PRIMARY KEY (store, id)
);

-- Zone maps and deletes are read with their rows: keep them in line.
ALTER TABLE strata.row_group ALTER COLUMN zones SET STORAGE MAIN;

-- Nobody else changes them, not even with pg_write_all_data; and a publication
-- FOR ALL TABLES, which has them, ships nothing of them, nor does a subscription
-- to one copy another server's: see catalog.c.
CREATE FUNCTION strata.manifest_guard() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'strata_manifest_guard';
COMMENT ON FUNCTION strata.manifest_guard() IS 'keeps all but superusers, and subscriptions, from changing the manifest';

CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.store
    EXECUTE FUNCTION strata.manifest_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.shard
    EXECUTE FUNCTION strata.manifest_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.row_group
    EXECUTE FUNCTION strata.manifest_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.dictionary
    EXECUTE FUNCTION strata.manifest_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.deletes
    EXECUTE FUNCTION strata.manifest_guard();
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON strata.pass
    EXECUTE FUNCTION strata.manifest_guard();

ALTER TABLE strata.store ENABLE ALWAYS TRIGGER guard;
ALTER TABLE strata.shard ENABLE ALWAYS TRIGGER guard;
ALTER TABLE strata.row_group ENABLE ALWAYS TRIGGER guard;
ALTER TABLE strata.dictionary ENABLE ALWAYS TRIGGER guard;
ALTER TABLE strata.deletes ENABLE ALWAYS TRIGGER guard;
ALTER TABLE strata.pass ENABLE ALWAYS TRIGGER guard;

ALTER TABLE strata.store REPLICA IDENTITY NOTHING;
ALTER TABLE strata.shard REPLICA IDENTITY NOTHING;
ALTER TABLE strata.row_group REPLICA IDENTITY NOTHING;
ALTER TABLE strata.dictionary REPLICA IDENTITY NOTHING;
ALTER TABLE strata.deletes REPLICA IDENTITY NOTHING;
ALTER TABLE strata.pass REPLICA IDENTITY NOTHING;

REVOKE ALL ON strata.store, strata.shard, strata.row_group, strata.dictionary,
    strata.deletes, strata.pass FROM PUBLIC;
GRANT USAGE ON SCHEMA strata TO PUBLIC;

COMMENT ON SCHEMA strata IS 'functions and views for strata foreign tables, and their storage';
COMMENT ON TABLE strata.store IS 'manifest: one row per strata foreign table (private)';
COMMENT ON TABLE strata.shard IS 'manifest: what is merged of each shard (private)';
COMMENT ON TABLE strata.row_group IS 'manifest: row groups of base tables (private)';
COMMENT ON TABLE strata.dictionary IS 'manifest: compression dictionaries (private)';
COMMENT ON TABLE strata.deletes IS 'manifest: superseded base rows (private)';
COMMENT ON TABLE strata.pass IS 'manifest: history of passes (private)';

-- ---------------------------------------------------------------------------
-- Foreign data wrapper, server, access method of the storage relations
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.strata_handler() RETURNS fdw_handler
    LANGUAGE C STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION strata.strata_handler() IS 'handler of the foreign data wrapper strata';

CREATE FUNCTION strata.strata_validator(text[], oid) RETURNS void
    LANGUAGE C STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION strata.strata_validator(text[], oid) IS 'validator of the options of strata foreign tables';

CREATE FOREIGN DATA WRAPPER strata
    HANDLER strata.strata_handler VALIDATOR strata.strata_validator;
COMMENT ON FOREIGN DATA WRAPPER strata IS 'log-structured tables stored in this database';

CREATE SERVER strata FOREIGN DATA WRAPPER strata;
COMMENT ON SERVER strata IS 'server of strata foreign tables; USAGE on it allows to create them';

CREATE FUNCTION strata.strata_storage_handler(internal) RETURNS table_am_handler
    LANGUAGE C STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION strata.strata_storage_handler(internal) IS 'handler of the access method strata_storage';

CREATE ACCESS METHOD strata_storage TYPE TABLE HANDLER strata.strata_storage_handler;
COMMENT ON ACCESS METHOD strata_storage IS 'storage relations of strata foreign tables; not for use by itself';

-- ---------------------------------------------------------------------------
-- Maintenance.  Each function checks the caller's rights on the table.
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.merge(
    relation regclass,
    max_generations int DEFAULT NULL,
    max_bytes bigint DEFAULT NULL,
    OUT generations_merged bigint,
    OUT generations_left bigint,
    OUT rows_read bigint,
    OUT rows_inserted bigint,
    OUT rows_replaced bigint,
    OUT rows_deleted bigint,
    OUT rows_aborted bigint,
    OUT row_groups_written bigint,
    OUT row_groups_adopted bigint,
    OUT index_probes bigint,
    OUT index_built boolean,
    OUT base_bytes_read bigint,
    OUT bytes_read bigint,
    OUT bytes_written bigint,
    OUT peak_memory bigint,
    OUT elapsed interval)
RETURNS record
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_merge';
COMMENT ON FUNCTION strata.merge(regclass, int, bigint) IS
    'fold the oldest sealed generations into the base table, in one bounded pass; 0 lifts a cap';

CREATE PROCEDURE strata.drain(relation regclass)
    LANGUAGE C AS 'MODULE_PATHNAME', 'strata_drain';
COMMENT ON PROCEDURE strata.drain(regclass) IS
    'seal, then merge pass after pass, each committed, until nothing is pending';

CREATE FUNCTION strata.seal(
    relation regclass,
    OUT shard int,
    OUT generation bigint)
RETURNS SETOF record
    LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'strata_seal';
COMMENT ON FUNCTION strata.seal(regclass) IS
    'close the active generation of each shard; a row for each that was open';

CREATE FUNCTION strata.sweep(
    relation regclass,
    OUT blocks_total bigint,
    OUT blocks_freed bigint,
    OUT blocks_left bigint,
    OUT blocks_truncated bigint,
    OUT index_tids_removed bigint)
RETURNS record
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_sweep_table';
COMMENT ON FUNCTION strata.sweep(regclass) IS
    'make space that nothing refers to available for reuse';

CREATE FUNCTION strata.compact(
    relation regclass,
    max_bytes bigint DEFAULT NULL,
    OUT row_groups_read bigint,
    OUT row_groups_left bigint,
    OUT row_groups_written bigint,
    OUT rows_moved bigint,
    OUT rows_dropped bigint,
    OUT bytes_read bigint,
    OUT bytes_written bigint,
    OUT peak_memory bigint,
    OUT elapsed interval)
RETURNS record
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_compact';
COMMENT ON FUNCTION strata.compact(regclass, bigint) IS
    'rewrite small and sparse row groups and move what lies at the end of the file ahead, in one bounded pass; 0 lifts the cap';

CREATE FUNCTION strata.verify(
    relation regclass,
    swept boolean DEFAULT false,
    OUT object text,
    OUT problem text)
RETURNS SETOF record
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_verify';
COMMENT ON FUNCTION strata.verify(regclass, boolean) IS
    'check everything stored for a table; a row for each fault; swept: unreferenced blocks are faults';

CREATE FUNCTION strata.repair(
    relation regclass,
    dry_run boolean DEFAULT true,
    OUT kind text,
    OUT storage regclass,
    OUT block bigint,
    OUT shard int,
    OUT generation bigint,
    OUT page bigint,
    OUT entry int,
    OUT row_group bigint,
    OUT rows_lost bigint,
    OUT first_key text,
    OUT last_key text,
    OUT bytes bigint,
    OUT problem text,
    OUT action text)
RETURNS SETOF record
    LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'strata_repair';
COMMENT ON FUNCTION strata.repair(regclass, boolean) IS
    'tell what of a table cannot be read, a row for each loss; with dry_run => false set it aside';

CREATE FUNCTION strata.create_key_index(relation regclass) RETURNS boolean
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_create_key_index';
COMMENT ON FUNCTION strata.create_key_index(regclass) IS
    'build the key index if there is no usable one; true if it was built';

CREATE FUNCTION strata.drop_key_index(relation regclass) RETURNS boolean
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_drop_key_index';
COMMENT ON FUNCTION strata.drop_key_index(regclass) IS
    'drop the key index; true if there was one';

CREATE FUNCTION strata.has_key_index(relation regclass) RETURNS boolean
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_has_key_index';
COMMENT ON FUNCTION strata.has_key_index(regclass) IS
    'is there a key index that is usable for exact answers?';

CREATE FUNCTION strata.relation_size(relation regclass) RETURNS bigint
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_relation_size';
COMMENT ON FUNCTION strata.relation_size(regclass) IS
    'disk space of a table: its storage relation and key index';

CREATE FUNCTION strata.set_tablespace(relation regclass, tablespace name) RETURNS void
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_set_tablespace';
COMMENT ON FUNCTION strata.set_tablespace(regclass, name) IS
    'move what is stored for a table, its key index included, to another tablespace';

CREATE FUNCTION strata.record_columns(relation regclass) RETURNS void
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_record_columns';
COMMENT ON FUNCTION strata.record_columns(regclass) IS
    'record columns that were changed while event triggers were off';

CREATE FUNCTION strata.drop_orphans() RETURNS int
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_drop_orphans';
COMMENT ON FUNCTION strata.drop_orphans() IS
    'drop stores whose foreign table was dropped while event triggers were off; how many there were';
REVOKE ALL ON FUNCTION strata.drop_orphans() FROM PUBLIC;

-- ---------------------------------------------------------------------------
-- Looking in.  The functions return only what the caller may see.
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.stores_info(
    OUT store regclass,
    OUT storage regclass,
    OUT key text[],
    OUT shards int,
    OUT pending_generations bigint,
    OUT pending_rows bigint,
    OUT pending_bytes bigint,
    OUT oldest_pending_age interval,
    OUT base_rows bigint,
    OUT row_groups bigint,
    OUT base_bytes bigint,
    OUT relation_bytes bigint,
    OUT key_index boolean)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_stores_info';
COMMENT ON FUNCTION strata.stores_info() IS 'rows of the view strata.stores';

CREATE FUNCTION strata.generations_info(
    OUT store regclass,
    OUT shard int,
    OUT generation bigint,
    OUT state text,
    OUT rows bigint,
    OUT bytes bigint,
    OUT first_block bigint,
    OUT last_block bigint,
    OUT age interval,
    OUT blocked_by xid)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_generations_info';
COMMENT ON FUNCTION strata.generations_info() IS 'rows of the view strata.generations';

CREATE FUNCTION strata.row_groups_info(
    OUT store regclass,
    OUT number bigint,
    OUT rows bigint,
    OUT deleted bigint,
    OUT raw_bytes bigint,
    OUT stored_bytes bigint,
    OUT first_block bigint,
    OUT blocks bigint)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_row_groups_info';
COMMENT ON FUNCTION strata.row_groups_info() IS 'rows of the view strata.row_groups';

CREATE FUNCTION strata.merges_info(
    OUT store regclass,
    OUT what text,
    OUT generations_merged bigint,
    OUT generations_left bigint,
    OUT rows_read bigint,
    OUT rows_inserted bigint,
    OUT rows_replaced bigint,
    OUT rows_deleted bigint,
    OUT rows_aborted bigint,
    OUT row_groups_written bigint,
    OUT row_groups_adopted bigint,
    OUT index_probes bigint,
    OUT index_built boolean,
    OUT base_bytes_read bigint,
    OUT bytes_read bigint,
    OUT bytes_written bigint,
    OUT peak_memory bigint,
    OUT started timestamptz,
    OUT ended timestamptz)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_merges_info';
COMMENT ON FUNCTION strata.merges_info() IS 'rows of the view strata.merges';

CREATE FUNCTION strata.store_states_info(
    OUT store regclass,
    OUT wanted_by text,
    OUT last_merge timestamptz,
    OUT failures int,
    OUT last_sqlstate text,
    OUT last_error text,
    OUT last_error_at timestamptz,
    OUT next_try timestamptz,
    OUT pending_growth bigint,
    OUT growth_since timestamptz)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_store_states_info';
COMMENT ON FUNCTION strata.store_states_info() IS 'what background workers know of stores';

CREATE FUNCTION strata.workers_info(
    OUT pid int,
    OUT database name,
    OUT task text,
    OUT store regclass,
    OUT phase text,
    OUT planned bigint,
    OUT done bigint,
    OUT bytes_planned bigint,
    OUT bytes_done bigint,
    OUT since timestamptz,
    OUT started timestamptz)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_workers_info';
COMMENT ON FUNCTION strata.workers_info() IS 'rows of the view strata.workers';

CREATE FUNCTION strata.stat_info(
    OUT store regclass,
    OUT passes bigint,
    OUT generations bigint,
    OUT rows_read bigint,
    OUT rows_merged bigint,
    OUT bytes_merged bigint,
    OUT bytes_written bigint,
    OUT busy_ms float8,
    OUT failures bigint,
    OUT gave_way bigint,
    OUT compactions bigint,
    OUT sweeps bigint,
    OUT blocks_freed bigint,
    OUT analyzes bigint,
    OUT since timestamptz)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_stat_info';
COMMENT ON FUNCTION strata.stat_info() IS 'rows of the view strata.stat';

CREATE FUNCTION strata.merge_memory(
    OUT taken bigint,
    OUT available bigint,
    OUT waiting int)
RETURNS record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_merge_memory_info';
COMMENT ON FUNCTION strata.merge_memory() IS
    'what running merges take of the setting strata.merge_memory, and how many wait for some';

CREATE FUNCTION strata.health_info(
    OUT severity text,
    OUT store regclass,
    OUT what text,
    OUT advice text,
    OUT pinned boolean)
RETURNS SETOF record
    LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'strata_health_info';
COMMENT ON FUNCTION strata.health_info() IS 'the part of strata.health() that looks at stores and workers';

CREATE FUNCTION strata.health(
    held_for interval DEFAULT '10 minutes',
    OUT severity text,
    OUT store regclass,
    OUT what text,
    OUT advice text)
RETURNS SETOF record
    LANGUAGE SQL VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
    WITH holders AS (
        SELECT format('session %s', pid) AS who, greatest(age(backend_xmin), age(backend_xid)) AS age
        FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND backend_type <> 'walsender'
        UNION ALL
        SELECT format('prepared transaction %L', gid), age(transaction) FROM pg_prepared_xacts
        UNION ALL
        SELECT format('replication slot %s', slot_name), greatest(age(xmin), age(catalog_xmin)) FROM pg_replication_slots
        UNION ALL
        SELECT format('standby %s', coalesce(nullif(application_name, ''), client_addr::text, pid::text)), age(backend_xmin)
        FROM pg_stat_replication),
    oldest AS (SELECT who, age FROM holders WHERE age IS NOT NULL ORDER BY age DESC, who LIMIT 1)
    SELECT severity, store, what,
           CASE WHEN NOT pinned THEN advice
                ELSE coalesce((SELECT format('The oldest snapshot is that of %s, %s transactions old: end it if it is of no use.', who, age) FROM oldest),
                              'Nobody holds one any more: the next sweep frees them.') END
    FROM strata.health_info()
    UNION ALL
    SELECT 'warning', NULL, format('session %s holds a snapshot since %s', pid, xact_start),
           'Space and index entries that it may still see cannot be reclaimed: end it if it is idle.'
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND xact_start < now() - coalesce(held_for, '10 minutes') AND pid <> pg_backend_pid()
        AND backend_type = 'client backend'
    UNION ALL
    SELECT 'warning', NULL, format('transaction %L is prepared since %s', gid, prepared),
           'It keeps generations from being merged and space from being reclaimed: commit it or roll it back.'
    FROM pg_prepared_xacts
    WHERE prepared < now() - coalesce(held_for, '10 minutes') AND database = current_database()
    UNION ALL
    SELECT 'warning', NULL, format('replication slot %s, not in use, holds back what can be reclaimed', slot_name),
           'Drop it if nothing will use it again.'
    FROM pg_replication_slots
    WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
    UNION ALL
    SELECT 'info', NULL, format('standby %s sends no feedback', coalesce(nullif(application_name, ''), client_addr::text, pid::text)),
           'Sweeps may cancel its queries; hot_standby_feedback = on on the standby prevents that.'
    FROM pg_stat_replication
    WHERE state = 'streaming' AND backend_xmin IS NULL
        AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = pg_stat_replication.pid AND s.xmin IS NOT NULL)
    $$;
COMMENT ON FUNCTION strata.health(interval) IS
    'what is wrong with stores and workers, and what to do about it; no row: nothing; held_for: how old a snapshot or prepared transaction may be';

CREATE VIEW strata.stores AS
    SELECT s.*, t.wanted_by, t.last_merge, t.failures, t.last_sqlstate, t.last_error,
           t.last_error_at, t.next_try, t.pending_growth, t.growth_since
    FROM strata.stores_info() s LEFT JOIN strata.store_states_info() t ON t.store OPERATOR(pg_catalog.=) s.store;
COMMENT ON VIEW strata.stores IS 'strata foreign tables: what is pending, what is merged, sizes';

CREATE VIEW strata.generations AS SELECT * FROM strata.generations_info();
COMMENT ON VIEW strata.generations IS 'pending generations, and what keeps them from being merged';

CREATE VIEW strata.row_groups AS SELECT * FROM strata.row_groups_info();
COMMENT ON VIEW strata.row_groups IS 'row groups of base tables';

CREATE VIEW strata.merges AS SELECT * FROM strata.merges_info();
COMMENT ON VIEW strata.merges IS 'recent passes and their counters';

CREATE VIEW strata.workers AS SELECT * FROM strata.workers_info();
COMMENT ON VIEW strata.workers IS 'background workers of all databases, and what they do';

CREATE VIEW strata.stat AS SELECT * FROM strata.stat_info();
COMMENT ON VIEW strata.stat IS 'what background workers did for each store since the server started';

GRANT SELECT ON strata.stores, strata.generations, strata.row_groups, strata.merges,
    strata.workers, strata.stat TO PUBLIC;

-- ---------------------------------------------------------------------------
-- Life cycle.  Created last, so that they do not see the script itself.
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.on_ddl_command_end() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'strata_on_ddl_command_end';
COMMENT ON FUNCTION strata.on_ddl_command_end() IS 'creates stores and follows changes of their tables';

CREATE FUNCTION strata.on_sql_drop() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'strata_on_sql_drop';
COMMENT ON FUNCTION strata.on_sql_drop() IS 'drops the store of a dropped table';

CREATE EVENT TRIGGER strata_ddl_command_end ON ddl_command_end
    WHEN TAG IN ('CREATE FOREIGN TABLE', 'IMPORT FOREIGN SCHEMA', 'ALTER FOREIGN TABLE',
                 'CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA', 'ALTER SCHEMA',
                 'ALTER TYPE', 'ALTER DOMAIN', 'CREATE INDEX', 'ALTER INDEX')
    EXECUTE FUNCTION strata.on_ddl_command_end();
ALTER EVENT TRIGGER strata_ddl_command_end ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER strata_ddl_command_end IS 'creates stores and follows changes of their tables';

CREATE EVENT TRIGGER strata_sql_drop ON sql_drop
    EXECUTE FUNCTION strata.on_sql_drop();
ALTER EVENT TRIGGER strata_sql_drop ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER strata_sql_drop IS 'drops the store of a dropped table';
