/*-------------------------------------------------------------------------
 *
 * inspect.c
 *	  What the views strata.stores, generations, row_groups and merges show.
 *
 * A caller sees the stores whose foreign table he may SELECT from or owns,
 * and of these counts, sizes and places only: never a value, so neither keys
 * nor zone maps.
 *
 * A view must not wait: not for DDL on one of many stores, and not for
 * maintenance.  A storage relation whose AccessShareLock is not to be had at
 * once is passed over; strata.stores shows its row with nulls.  Nor may one
 * damaged store hide the others: each is looked at in a subtransaction, and
 * an error becomes a warning.
 *
 * IDENTIFICATION
 *	  src/merge/inspect.c
 *
 *-------------------------------------------------------------------------
 */
#include "compat.h"
#include "merge/merge.h"
#include "storage/salvage.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(strata_stores_info);
PG_FUNCTION_INFO_V1(strata_generations_info);
PG_FUNCTION_INFO_V1(strata_row_groups_info);
PG_FUNCTION_INFO_V1(strata_merges_info);

enum
{
	STORES_STORE,
	STORES_STORAGE,
	STORES_KEY,
	STORES_SHARDS,
	STORES_PENDING_GENERATIONS,
	STORES_PENDING_ROWS,
	STORES_PENDING_BYTES,
	STORES_OLDEST_PENDING_AGE,
	STORES_BASE_ROWS,
	STORES_ROW_GROUPS,
	STORES_BASE_BYTES,
	STORES_RELATION_BYTES,
	STORES_KEY_INDEX,
	STORES_NCOLUMNS
};

enum
{
	GENERATIONS_STORE,
	GENERATIONS_SHARD,
	GENERATIONS_GENERATION,
	GENERATIONS_STATE,
	GENERATIONS_ROWS,
	GENERATIONS_BYTES,
	GENERATIONS_FIRST_BLOCK,
	GENERATIONS_LAST_BLOCK,
	GENERATIONS_AGE,
	GENERATIONS_BLOCKED_BY,
	GENERATIONS_NCOLUMNS
};

enum
{
	ROW_GROUPS_STORE,
	ROW_GROUPS_NUMBER,
	ROW_GROUPS_ROWS,
	ROW_GROUPS_DELETED,
	ROW_GROUPS_RAW_BYTES,
	ROW_GROUPS_STORED_BYTES,
	ROW_GROUPS_FIRST_BLOCK,
	ROW_GROUPS_BLOCKS,
	ROW_GROUPS_NCOLUMNS
};

/* One store, opened for looking at. */
typedef struct InspectStore
{
	Oid			ftrelid;
	Oid			storage_oid;
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
} InspectStore;

/* Put the rows of one opened store. */
typedef void (*InspectRows)(InspectStore *store, ReturnSetInfo *rsinfo);

/* A manifest table by name. */
static Relation
inspect_open_table(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid(STRATA_SCHEMA, false));

	if (!OidIsValid(relid))
		elog(ERROR, "table %s.%s does not exist", STRATA_SCHEMA, name);
	return table_open(relid, AccessShareLock);
}

/*
 * The stores the caller may see (List of InspectStore, not opened).
 */
static List *
inspect_stores(void)
{
	List	   *stores = NIL;
	Relation	table = inspect_open_table("store");
	AttrNumber	foreign_table = get_attnum(RelationGetRelid(table), "foreign_table");
	AttrNumber	storage = get_attnum(RelationGetRelid(table), "storage");
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false,
										  GetActiveSnapshot(), 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		InspectStore *store = palloc0(sizeof(InspectStore));
		bool		isnull;

		store->ftrelid = DatumGetObjectId(heap_getattr(tuple, foreign_table,
													   RelationGetDescr(table), &isnull));
		store->storage_oid = DatumGetObjectId(heap_getattr(tuple, storage,
														   RelationGetDescr(table), &isnull));
		if (strata_may_watch(store->ftrelid))
			stores = lappend(stores, store);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return stores;
}

/*
 * Open a store without waiting for anybody and put its rows.  False: not now,
 * or gone.  The lock is let go: a transaction that has looked may lock the
 * foreign table next, which comes before its storage.
 */
static bool
inspect_store(InspectStore *store, InspectRows rows, ReturnSetInfo *rsinfo)
{
	if (!ConditionalLockRelationOid(store->storage_oid, AccessShareLock))
		return false;
	if (strata_store_storage(store->ftrelid) != store->storage_oid ||
		!strata_may_watch(store->ftrelid))
	{
		UnlockRelationOid(store->storage_oid, AccessShareLock);
		return false;
	}
	store->store = strata_store_open(store->ftrelid);
	store->storage = table_open(store->storage_oid, NoLock);
	store->manifest = strata_manifest_get(store->store, store->storage, GetActiveSnapshot());

	rows(store, rsinfo);

	strata_manifest_release(store->manifest);
	table_close(store->storage, AccessShareLock);
	strata_store_close(store->store);
	return true;
}

typedef struct InspectCall
{
	InspectStore *store;
	InspectRows rows;
	ReturnSetInfo *rsinfo;
	bool		done;
} InspectCall;

/* StrataAction */
static void
inspect_call(void *arg)
{
	InspectCall *call = (InspectCall *) arg;

	call->done = inspect_store(call->store, call->rows, call->rsinfo);
}

/* The same in a subtransaction, where an error becomes a warning. */
static bool
inspect_store_guarded(InspectStore *store, InspectRows rows, ReturnSetInfo *rsinfo)
{
	InspectCall call = {store, rows, rsinfo, false};
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata inspect",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_mcxt = MemoryContextSwitchTo(mcxt);
	ErrorData  *error = strata_subtransaction(inspect_call, &call);

	if (error != NULL)
	{
		if (strata_error_is_transient(error->sqlerrcode))
			ReThrowError(error);
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("could not look at the store of foreign table %u: %s",
						store->ftrelid, error->message),
				 errhint("strata.verify() tells more.")));
	}
	MemoryContextSwitchTo(old_mcxt);
	MemoryContextDelete(mcxt);
	return error == NULL && call.done;
}

/*
 * Put the rows of every store the caller may see.
 */
static Datum
inspect_all(FunctionCallInfo fcinfo, InspectRows rows)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach (lc, inspect_stores())
	{
		CHECK_FOR_INTERRUPTS();
		(void) inspect_store_guarded((InspectStore *) lfirst(lc), rows, rsinfo);
	}
	return (Datum) 0;
}

static Datum
inspect_age(TimestampTz since)
{
	return DirectFunctionCall2(timestamp_mi,
							   TimestampTzGetDatum(GetCurrentTimestamp()),
							   TimestampTzGetDatum(since));
}

/* Key columns' names as text[]. */
static Datum
inspect_key(const StrataStore *store)
{
	Datum		names[INDEX_MAX_KEYS];

	for (int i = 0; i < store->key.natts; i++)
		names[i] = CStringGetTextDatum(NameStr(TupleDescAttr(store->desc,
															 store->key.attnum[i] - 1)
												   ->attname));
	return PointerGetDatum(construct_array(names, store->key.natts, TEXTOID,
										   -1, false, TYPALIGN_INT));
}

/* The row of strata.stores of a store that was opened. */
static void
stores_row(InspectStore *store, ReturnSetInfo *rsinfo)
{
	StrataManifest *manifest = store->manifest;
	Datum		values[STORES_NCOLUMNS] = {0};
	bool		isnull[STORES_NCOLUMNS] = {0};
	int64		generations = 0;
	int64		rows = 0;
	int64		bytes = 0;
	TimestampTz oldest = 0;
	bool		present;

	for (int shard = 0; shard < store->store->nshards; shard++)
	{
		ListCell   *lc;

		foreach (lc, strata_log_generations(store->storage, shard,
										   &manifest->shards[shard], 0))
		{
			StrataGeneration *generation = (StrataGeneration *) lfirst(lc);

			generations++;
			rows += (int64) generation->rows;
			bytes += (int64) generation->bytes;
			if (oldest == 0 || generation->opened_at < oldest)
				oldest = generation->opened_at;
		}
	}

	values[STORES_STORE] = ObjectIdGetDatum(store->ftrelid);
	values[STORES_STORAGE] = ObjectIdGetDatum(store->storage_oid);
	values[STORES_KEY] = inspect_key(store->store);
	isnull[STORES_KEY] = store->store->key.natts == 0;
	values[STORES_SHARDS] = Int32GetDatum(store->store->nshards);
	values[STORES_PENDING_GENERATIONS] = Int64GetDatum(generations);
	values[STORES_PENDING_ROWS] = Int64GetDatum(rows);
	values[STORES_PENDING_BYTES] = Int64GetDatum(bytes);
	isnull[STORES_OLDEST_PENDING_AGE] = oldest == 0;
	if (oldest != 0)
		values[STORES_OLDEST_PENDING_AGE] = inspect_age(oldest);
	values[STORES_BASE_ROWS] = Int64GetDatum((int64) manifest->live_rows);
	values[STORES_ROW_GROUPS] = Int64GetDatum(manifest->ngroups);
	values[STORES_BASE_BYTES] = Int64GetDatum((int64) manifest->stored_bytes);
	values[STORES_RELATION_BYTES] =
		Int64GetDatum(strata_keyindex_total_size(store->storage));
	values[STORES_KEY_INDEX] =
		BoolGetDatum(store->store->key.natts > 0 &&
					 OidIsValid(strata_keyindex_find(store->storage, &present)));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
}

/*
 * strata.stores: a row for every store, in nulls where it cannot be opened.
 */
Datum
strata_stores_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach (lc, inspect_stores())
	{
		InspectStore *store = (InspectStore *) lfirst(lc);
		Datum		values[STORES_NCOLUMNS] = {0};
		bool		isnull[STORES_NCOLUMNS];

		CHECK_FOR_INTERRUPTS();
		if (inspect_store_guarded(store, stores_row, rsinfo))
			continue;
		memset(isnull, true, sizeof(isnull));
		values[STORES_STORE] = ObjectIdGetDatum(store->ftrelid);
		values[STORES_STORAGE] = ObjectIdGetDatum(store->storage_oid);
		isnull[STORES_STORE] = isnull[STORES_STORAGE] = false;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}

/*
 * Who blocks a generation is not written down anywhere: its entries are read.
 */
static void
generations_rows(InspectStore *store, ReturnSetInfo *rsinfo)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata generation",
											   ALLOCSET_DEFAULT_SIZES);

	for (int shard = 0; shard < store->store->nshards; shard++)
	{
		ListCell   *lc;

		foreach (lc, strata_log_generations(store->storage, shard,
										   &store->manifest->shards[shard], 0))
		{
			StrataGeneration *generation = (StrataGeneration *) lfirst(lc);
			FullTransactionId blocked_by;
			Datum		values[GENERATIONS_NCOLUMNS];
			bool		isnull[GENERATIONS_NCOLUMNS] = {0};
			MemoryContext old_mcxt = MemoryContextSwitchTo(mcxt);

			CHECK_FOR_INTERRUPTS();
			blocked_by = strata_generation_blocked_by(store->store, store->storage,
													  generation, NULL);
			values[GENERATIONS_STORE] = ObjectIdGetDatum(store->ftrelid);
			values[GENERATIONS_SHARD] = Int32GetDatum(shard);
			values[GENERATIONS_GENERATION] = Int64GetDatum((int64) generation->number);
			values[GENERATIONS_STATE] =
				CStringGetTextDatum(generation->sealed ? "sealed" : "active");
			values[GENERATIONS_ROWS] = Int64GetDatum((int64) generation->rows);
			values[GENERATIONS_BYTES] = Int64GetDatum((int64) generation->bytes);
			values[GENERATIONS_FIRST_BLOCK] = Int64GetDatum((int64) generation->first.block);
			values[GENERATIONS_LAST_BLOCK] = Int64GetDatum((int64) generation->last.block);
			values[GENERATIONS_AGE] = inspect_age(generation->opened_at);
			values[GENERATIONS_BLOCKED_BY] =
				TransactionIdGetDatum(XidFromFullTransactionId(blocked_by));
			isnull[GENERATIONS_BLOCKED_BY] = !FullTransactionIdIsValid(blocked_by);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);

			MemoryContextSwitchTo(old_mcxt);
			MemoryContextReset(mcxt);
		}
	}
	MemoryContextDelete(mcxt);
}

/*
 * strata.generations
 */
Datum
strata_generations_info(PG_FUNCTION_ARGS)
{
	return inspect_all(fcinfo, generations_rows);
}

static void
row_groups_rows(InspectStore *store, ReturnSetInfo *rsinfo)
{
	for (int i = 0; i < store->manifest->ngroups; i++)
	{
		StrataRowGroup *group = &store->manifest->groups[i];
		Datum		values[ROW_GROUPS_NCOLUMNS];
		bool		isnull[ROW_GROUPS_NCOLUMNS] = {0};

		CHECK_FOR_INTERRUPTS();
		values[ROW_GROUPS_STORE] = ObjectIdGetDatum(store->ftrelid);
		values[ROW_GROUPS_NUMBER] = Int64GetDatum((int64) group->number);
		values[ROW_GROUPS_ROWS] = Int64GetDatum((int64) group->ref.rows);
		values[ROW_GROUPS_DELETED] = Int64GetDatum((int64) group->ndeleted);
		values[ROW_GROUPS_RAW_BYTES] = Int64GetDatum((int64) group->ref.raw_bytes);
		values[ROW_GROUPS_STORED_BYTES] = Int64GetDatum((int64) group->ref.length);
		values[ROW_GROUPS_FIRST_BLOCK] = Int64GetDatum((int64) group->ref.extent.block);
		values[ROW_GROUPS_BLOCKS] = Int64GetDatum((int64) group->ref.extent.nblocks);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
}

/*
 * strata.row_groups
 */
Datum
strata_row_groups_info(PG_FUNCTION_ARGS)
{
	return inspect_all(fcinfo, row_groups_rows);
}

/*
 * strata.merges: the rows of strata.pass, columns by name.
 */
Datum
strata_merges_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	table;
	AttrNumber	store_attno;
	AttrNumber *attnums;
	Datum	   *values;
	bool	   *isnull;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			ncolumns;

	InitMaterializedSRF(fcinfo, 0);
	table = inspect_open_table("pass");
	store_attno = get_attnum(RelationGetRelid(table), "store");

	ncolumns = rsinfo->setDesc->natts;
	attnums = palloc(sizeof(AttrNumber) * ncolumns);
	values = palloc(sizeof(Datum) * ncolumns);
	isnull = palloc(sizeof(bool) * ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		const char *name = NameStr(TupleDescAttr(rsinfo->setDesc, i)->attname);

		attnums[i] = get_attnum(RelationGetRelid(table), name);
		if (attnums[i] == InvalidAttrNumber)
			elog(ERROR, "table %s.pass has no column %s", STRATA_SCHEMA, name);
	}

	scan = systable_beginscan(table, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		TupleDesc	desc = RelationGetDescr(table);
		bool		store_isnull;

		CHECK_FOR_INTERRUPTS();
		if (!strata_may_watch(DatumGetObjectId(heap_getattr(tuple, store_attno, desc,
														   &store_isnull))))
			continue;
		for (int i = 0; i < ncolumns; i++)
			values[i] = heap_getattr(tuple, attnums[i], desc, &isnull[i]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return (Datum) 0;
}
