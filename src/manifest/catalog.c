/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  Low-level access to the manifest tables in schema strata.
 *
 * The tables are plain heap tables, so MVCC, crash safety, replication and
 * backup of what they say are PostgreSQL's own.  They are read by scans of
 * their primary keys under the snapshot the caller names, never through SPI.
 * None of this checks privileges: nobody but strata's own code has any on
 * them, and what is read is filtered where it is shown.
 *
 * What is written says nothing to logical decoding: a publication FOR ALL
 * TABLES has these tables, whose rows would tell a subscriber the zone maps of
 * tables that are not published, or break it.  So rows are inserted without
 * their contents for decoding, deleted without a replica identity, and never
 * updated.
 *
 * Locks: readers hold AccessShareLock, writers RowExclusiveLock, to the end of
 * the scan or of the transaction.  Who may write a store's rows is decided by
 * the locks named in manifest.h.
 *
 * What the rows say is catalog_rows.c's business.
 *
 * IDENTIFICATION
 *	  src/manifest/catalog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog_private.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_type_d.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(strata_manifest_guard);

static Oid	relation_oid(const char *name);
static Relation open_table(StrataTable table, LOCKMODE lockmode);

const char *
strata_table_name(StrataTable table)
{
	return strata_table_defs[table].name;
}

void
strata_table_corrupted(StrataTable table, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("table %s.%s holds an invalid row: %s",
					STRATA_SCHEMA, strata_table_defs[table].name, what),
			 errhint("The manifest cannot be made anew: restore the table from a backup.")));
}

/* A relation of ours, by name. */
static Oid
relation_oid(const char *name)
{
	Oid			schema = get_namespace_oid(STRATA_SCHEMA, true);
	Oid			relid = InvalidOid;

	if (OidIsValid(schema))
		relid = get_relname_relid(name, schema);
	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relation %s.%s does not exist", STRATA_SCHEMA, name),
				 errhint("CREATE EXTENSION strata makes it.")));
	return relid;
}

static Relation
open_table(StrataTable table, LOCKMODE lockmode)
{
	const StrataTableDef *def = &strata_table_defs[table];
	Relation	rel = table_open(relation_oid(def->name), lockmode);
	TupleDesc	desc = RelationGetDescr(rel);
	int			natts = 0;
	bool		same = true;

	for (int i = 0; i < desc->natts && same; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		same = natts < def->natts && att->atttypid == def->types[natts];
		natts++;
	}
	if (!same || natts < def->natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table %s.%s does not have the columns that this version of the library expects",
						STRATA_SCHEMA, def->name),
				 errhint("ALTER EXTENSION strata UPDATE may be needed.")));
	return rel;
}

/* ---- scans ---- */

void
strata_table_scan_begin_keys(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
							 ScanKey keys, int nkeys, Snapshot snapshot, const char *index)
{
	scan->table = table;
	scan->lockmode = lockmode;
	scan->direction = ForwardScanDirection;
	scan->rel = open_table(table, lockmode);
	scan->index = index_open(relation_oid(index), AccessShareLock);
	scan->scan = systable_beginscan_ordered(scan->rel, scan->index, snapshot, nkeys, keys);
}

void
strata_table_scan_begin(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
						Oid store, Snapshot snapshot)
{
	ScanKeyData key;

	/* The first column of every table is the store. */
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	strata_table_scan_begin_keys(scan, table, lockmode, &key, 1, snapshot,
								 strata_table_defs[table].index);
}

void
strata_table_scan_begin_at(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
						   Oid store, int64 second, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	if (strata_table_defs[table].types[1] == INT4OID)
		ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ,
					Int32GetDatum((int32) second));
	else
		ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(second));
	strata_table_scan_begin_keys(scan, table, lockmode, keys, 2, snapshot,
								 strata_table_defs[table].index);
}

void
strata_table_scan_begin_after(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
							  Oid store, int64 second, Snapshot snapshot)
{
	ScanKeyData keys[2];

	Assert(strata_table_defs[table].types[1] == INT8OID);
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	ScanKeyInit(&keys[1], 2, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(second));
	strata_table_scan_begin_keys(scan, table, lockmode, keys, 2, snapshot,
								 strata_table_defs[table].index);
}

HeapTuple
strata_table_scan_next(StrataTableScan *scan)
{
	CHECK_FOR_INTERRUPTS();
	return systable_getnext_ordered(scan->scan, scan->direction);
}

/*
 * Rows written or deleted keep their table's lock to the end of the
 * transaction, as rows of a user's table do.
 */
void
strata_table_scan_end(StrataTableScan *scan)
{
	systable_endscan_ordered(scan->scan);
	index_close(scan->index, AccessShareLock);
	table_close(scan->rel, scan->lockmode == AccessShareLock ? AccessShareLock : NoLock);
}

Buffer
strata_table_scan_buffer(StrataTableScan *scan)
{
	TupleTableSlot *slot = scan->scan->slot;

	Assert(TTS_IS_BUFFERTUPLE(slot));
	return ((BufferHeapTupleTableSlot *) slot)->buffer;
}

void
strata_table_deform(StrataTable table, Relation rel, HeapTuple tuple, Datum *values,
					bool *isnull, int nullable)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			natts = strata_table_defs[table].natts;

	if (desc->natts == natts)
		heap_deform_tuple(tuple, desc, values, isnull);
	else
	{
		Datum	   *all_values = palloc(desc->natts * sizeof(Datum));
		bool	   *all_isnull = palloc(desc->natts * sizeof(bool));

		heap_deform_tuple(tuple, desc, all_values, all_isnull);
		for (int i = 0, n = 0; n < natts; i++)
		{
			if (TupleDescAttr(desc, i)->attisdropped)
				continue;
			values[n] = all_values[i];
			isnull[n++] = all_isnull[i];
		}
		pfree(all_values);
		pfree(all_isnull);
	}

	for (int i = 0; i < natts; i++)
	{
		if (isnull[i] && i != nullable)
			strata_table_corrupted(table, "a column is null");
	}
}

/* ---- writing ---- */

/* The reverse of strata_table_deform(). */
static HeapTuple
form_tuple(Relation rel, const Datum *values, const bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *all_values = palloc0(desc->natts * sizeof(Datum));
	bool	   *all_isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	for (int i = 0, n = 0; i < desc->natts; i++)
	{
		all_isnull[i] = TupleDescAttr(desc, i)->attisdropped || isnull[n];
		if (!TupleDescAttr(desc, i)->attisdropped)
			all_values[i] = values[n++];
	}
	tuple = heap_form_tuple(desc, all_values, all_isnull);
	pfree(all_values);
	pfree(all_isnull);
	return tuple;
}

/* Insert a tuple and its index entries, as CatalogTupleInsert does. */
static void
insert_tuple(Relation rel, HeapTuple tuple)
{
	CatalogIndexState indexes = CatalogOpenIndexes(rel);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);

	heap_insert(rel, tuple, GetCurrentCommandId(true), HEAP_INSERT_NO_LOGICAL, NULL);
	ExecStoreHeapTuple(tuple, slot, false);
	for (int i = 0; i < indexes->ri_NumIndices; i++)
	{
		Relation	index = indexes->ri_IndexRelationDescs[i];
		IndexInfo  *info = indexes->ri_IndexRelationInfo[i];
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		FormIndexDatum(info, slot, NULL, values, isnull);
		index_insert(index, values, isnull, &tuple->t_self, rel,
					 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
					 false, info);
	}
	ExecDropSingleTupleTableSlot(slot);
	CatalogCloseIndexes(indexes);
}

void
strata_table_update(StrataTableScan *scan, Datum *values, bool *isnull)
{
	HeapTuple	tuple = strata_table_scan_next(scan);

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("table %s.%s lacks a row", STRATA_SCHEMA,
						strata_table_defs[scan->table].name)));
	CatalogTupleDelete(scan->rel, &tuple->t_self);
	tuple = form_tuple(scan->rel, values, isnull);
	insert_tuple(scan->rel, tuple);
	heap_freetuple(tuple);
	strata_table_scan_end(scan);
}

/*
 * Trigger on the manifest tables: who has pg_write_all_data has no business
 * with bytes that this code trusts to be values of their types, and the initial
 * copy of a subscription to another server's with rows of that server's files.
 */
Datum
strata_manifest_guard(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called as a trigger")));
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table %s cannot be replicated",
						RelationGetRelationName(((TriggerData *) fcinfo->context)->tg_relation)),
				 errdetail("It describes files of this server."),
				 errhint("Publish tables by name or by schema instead of FOR ALL TABLES.")));
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s",
						RelationGetRelationName(((TriggerData *) fcinfo->context)->tg_relation)),
				 errdetail("Only strata itself changes its manifest.")));
	return PointerGetDatum(NULL);
}

void
strata_table_insert(StrataTable table, Datum *values, bool *isnull)
{
	Relation	rel = open_table(table, RowExclusiveLock);
	HeapTuple	tuple = form_tuple(rel, values, isnull);

	insert_tuple(rel, tuple);
	heap_freetuple(tuple);
	table_close(rel, NoLock);
}

void
strata_table_delete(StrataTable table, Oid ftrelid)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin(&scan, table, RowExclusiveLock, ftrelid, NULL);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	strata_table_scan_end(&scan);
}
