/*-------------------------------------------------------------------------
 *
 * functions.c
 *	  Maintenance as SQL functions: merge, drain, seal, sweep, key index.
 *
 * Each checks the caller's rights on the foreign table, then calls the layer
 * that does the work.  What takes long holds no lock on the foreign table
 * meanwhile (enter.c), so as not to stand between a session and its DDL.
 *
 * drain is a procedure that commits after every pass, so that each is bounded
 * in what it keeps from others and in what a crash undoes.  It needs a context
 * in which transactions may be ended (2D000 elsewhere), and pins the
 * search_path in C, pass by pass: a SET clause on it would make CALL atomic.
 *
 * IDENTIFICATION
 *	  src/merge/functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "log/append.h"
#include "storage/locks.h"
#include "storage/metapage.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

StrataPassByHand strata_pass_by_hand_hook = NULL;

PG_FUNCTION_INFO_V1(strata_merge);
PG_FUNCTION_INFO_V1(strata_drain);
PG_FUNCTION_INFO_V1(strata_seal);
PG_FUNCTION_INFO_V1(strata_sweep_table);
PG_FUNCTION_INFO_V1(strata_compact);
PG_FUNCTION_INFO_V1(strata_create_key_index);
PG_FUNCTION_INFO_V1(strata_drop_key_index);
PG_FUNCTION_INFO_V1(strata_has_key_index);
PG_FUNCTION_INFO_V1(strata_relation_size);

/* The counters of a pass, in the order of strata.merge's result. */
enum
{
	MERGE_GENERATIONS_MERGED,
	MERGE_GENERATIONS_LEFT,
	MERGE_ROWS_READ,
	MERGE_ROWS_INSERTED,
	MERGE_ROWS_REPLACED,
	MERGE_ROWS_DELETED,
	MERGE_ROWS_ABORTED,
	MERGE_ROW_GROUPS_WRITTEN,
	MERGE_ROW_GROUPS_ADOPTED,
	MERGE_INDEX_PROBES,
	MERGE_INDEX_BUILT,
	MERGE_BASE_BYTES_READ,
	MERGE_BYTES_READ,
	MERGE_BYTES_WRITTEN,
	MERGE_PEAK_MEMORY,
	MERGE_ELAPSED,
	MERGE_NCOLUMNS
};

static Datum
functions_result_row(FunctionCallInfo fcinfo, Datum *values, int ncolumns)
{
	bool	   *isnull = palloc0(sizeof(bool) * ncolumns);
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE ||
		desc->natts != ncolumns)
		elog(ERROR, "unexpected result type of a strata function");
	desc = BlessTupleDesc(desc);
	return HeapTupleGetDatum(heap_form_tuple(desc, values, isnull));
}

/*
 * strata.merge(regclass, max_generations int, max_bytes bigint): one pass.
 * NULL caps stand for the table's options.
 */
Datum
strata_merge(PG_FUNCTION_ARGS)
{
	Oid			relid;
	StrataPassRequest request = {.max_generations = -1, .max_bytes = -1};
	StrataPassRecord record;
	Datum		values[MERGE_NCOLUMNS];

	relid = strata_table_argument(fcinfo);
	if (!PG_ARGISNULL(1))
	{
		request.max_generations = PG_GETARG_INT32(1);
		if (request.max_generations < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_generations must not be negative"),
					 errhint("0 lifts the cap.")));
	}
	if (!PG_ARGISNULL(2))
	{
		request.max_bytes = PG_GETARG_INT64(2);
		if (request.max_bytes < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_bytes must not be negative"),
					 errhint("0 lifts the cap.")));
	}

	strata_check_table_argument(relid, true, NoLock);
	(void) strata_merge_pass(relid, &request, &record, NULL);
	if (record.generations_merged > 0 && strata_pass_by_hand_hook != NULL)
		strata_pass_by_hand_hook(relid);

	values[MERGE_GENERATIONS_MERGED] = Int64GetDatum(record.generations_merged);
	values[MERGE_GENERATIONS_LEFT] = Int64GetDatum(record.generations_left);
	values[MERGE_ROWS_READ] = Int64GetDatum(record.rows_read);
	values[MERGE_ROWS_INSERTED] = Int64GetDatum(record.rows_inserted);
	values[MERGE_ROWS_REPLACED] = Int64GetDatum(record.rows_replaced);
	values[MERGE_ROWS_DELETED] = Int64GetDatum(record.rows_deleted);
	values[MERGE_ROWS_ABORTED] = Int64GetDatum(record.rows_aborted);
	values[MERGE_ROW_GROUPS_WRITTEN] = Int64GetDatum(record.row_groups_written);
	values[MERGE_ROW_GROUPS_ADOPTED] = Int64GetDatum(record.row_groups_adopted);
	values[MERGE_INDEX_PROBES] = Int64GetDatum(record.index_probes);
	values[MERGE_INDEX_BUILT] = BoolGetDatum(record.index_built);
	values[MERGE_BASE_BYTES_READ] = Int64GetDatum(record.base_bytes_read);
	values[MERGE_BYTES_READ] = Int64GetDatum(record.bytes_read);
	values[MERGE_BYTES_WRITTEN] = Int64GetDatum(record.bytes_written);
	values[MERGE_PEAK_MEMORY] = Int64GetDatum(record.peak_memory);
	values[MERGE_ELAPSED] = DirectFunctionCall2(timestamp_mi,
												TimestampTzGetDatum(record.ended),
												TimestampTzGetDatum(record.started));
	PG_RETURN_DATUM(functions_result_row(fcinfo, values, MERGE_NCOLUMNS));
}

/*
 * Open the storage of a table that the caller has locked.
 */
static Relation
functions_open_storage(Oid relid, LOCKMODE lockmode, StrataStore **store)
{
	*store = strata_store_open(relid);
	return strata_storage_open(*store, lockmode);
}

/*
 * Close the active generation of each shard.  sealed[shard] receives its
 * number, 0 where nothing was open.
 */
static int
functions_seal(Oid relid, uint32 *sealed)
{
	StrataStore *store;
	Relation	storage;
	int			nshards;

	PreventCommandIfReadOnly("strata.seal()");
	PreventCommandDuringRecovery("strata.seal()");
	strata_check_table_argument(relid, true, AccessShareLock);
	storage = functions_open_storage(relid, RowExclusiveLock, &store);
	nshards = store->nshards;
	for (int shard = 0; shard < nshards; shard++)
	{
		if (!strata_log_seal(storage, shard, &sealed[shard]))
			sealed[shard] = 0;
		else if (strata_log_appended_hook != NULL)
			strata_log_appended_hook(store, true);
	}
	table_close(storage, NoLock);
	strata_store_close(store);
	return nshards;
}

/*
 * strata.seal(regclass): (shard, generation) for each generation closed.
 */
Datum
strata_seal(PG_FUNCTION_ARGS)
{
	uint32		sealed[STRATA_MAX_SHARDS];
	int			nshards;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	nshards = functions_seal(strata_table_argument(fcinfo), sealed);
	for (int shard = 0; shard < nshards; shard++)
	{
		Datum		values[2];
		bool		isnull[2] = {false, false};

		if (sealed[shard] == 0)
			continue;
		values[0] = Int32GetDatum(shard);
		values[1] = Int64GetDatum((int64) sealed[shard]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}

/*
 * The newest sealed generation of each shard.
 */
static void
functions_sealed_through(Oid relid, uint32 *through)
{
	StrataStore *store;
	Relation	storage;

	strata_check_table_argument(relid, true, AccessShareLock);
	storage = functions_open_storage(relid, AccessShareLock, &store);
	for (int shard = 0; shard < store->nshards; shard++)
	{
		StrataShardData data;

		through[shard] = 0;
		if (strata_shard_read(storage, shard, &data))
			through[shard] = data.active_generation - 1;
	}
	table_close(storage, NoLock);
	strata_store_close(store);
}

/*
 * CALL strata.drain(regclass): seal every shard once, then pass after pass,
 * each committed, until what was pending then is merged or blocked.
 */
Datum
strata_drain(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	uint32		through[STRATA_MAX_SHARDS];
	StrataPassRequest request = {.max_generations = -1, .max_bytes = -1, .through = through};
	char	   *name;

	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("strata.drain() cannot be called in a transaction block or function"),
				 errdetail("It commits after each pass."),
				 errhint("Call it by itself, or use strata.merge() for one pass.")));
	PreventCommandIfReadOnly("strata.drain()");
	PreventCommandDuringRecovery("strata.drain()");

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	{
		uint32		sealed[STRATA_MAX_SHARDS];
		StrataStore *store;

		(void) functions_seal(relid, sealed);
		functions_sealed_through(relid, through);
		store = strata_store_open(relid);
		name = pstrdup(store->name);
		strata_store_close(store);
		SPI_commit();
	}

	for (;;)
	{
		StrataPassRecord record;
		FullTransactionId blocked_by;

		CHECK_FOR_INTERRUPTS();

		/*
		 * The transaction is ours and has no snapshot yet: a default of
		 * REPEATABLE READ or above is not meant for it.
		 */
		XactIsoLevel = XACT_READ_COMMITTED;

		strata_check_table_argument(relid, true, NoLock);
		(void) strata_merge_pass(relid, &request, &record, &blocked_by);
		if (record.generations_merged > 0 && strata_pass_by_hand_hook != NULL)
			strata_pass_by_hand_hook(relid);
		SPI_commit();

		if (record.generations_merged > 0)
			ereport(NOTICE,
					(errmsg("%s: merged " INT64_FORMAT " generations, " INT64_FORMAT " left: " INT64_FORMAT " rows read, " INT64_FORMAT " inserted, " INT64_FORMAT " replaced, " INT64_FORMAT " deleted, " INT64_FORMAT " aborted; " INT64_FORMAT " row groups written, " INT64_FORMAT " adopted",
							name, record.generations_merged, record.generations_left,
							record.rows_read, record.rows_inserted,
							record.rows_replaced, record.rows_deleted,
							record.rows_aborted, record.row_groups_written,
							record.row_groups_adopted)));
		if (record.generations_left == 0)
			break;
		if (record.generations_merged == 0)
		{
			if (FullTransactionIdIsValid(blocked_by))
				ereport(NOTICE,
						(errmsg("%s: " INT64_FORMAT " generations cannot be merged while transaction " UINT64_FORMAT " is running",
								name, record.generations_left,
								U64FromFullTransactionId(blocked_by)),
						 errhint("Look for it in pg_stat_activity.backend_xid and pg_prepared_xacts.")));
			break;
		}
	}

	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PG_RETURN_VOID();
}

/*
 * strata.sweep(regclass): give back what nothing refers to.
 */
Datum
strata_sweep_table(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	StrataSweepResult result;
	Datum		values[5];

	PreventCommandIfReadOnly("strata.sweep()");
	PreventCommandDuringRecovery("strata.sweep()");
	strata_check_table_argument(relid, true, NoLock);
	(void) strata_sweep(relid, true, false, &result);

	values[0] = Int64GetDatum(result.blocks_total);
	values[1] = Int64GetDatum(result.blocks_freed);
	values[2] = Int64GetDatum(result.blocks_left);
	values[3] = Int64GetDatum(result.blocks_truncated);
	values[4] = Int64GetDatum(result.index_tids_removed);
	PG_RETURN_DATUM(functions_result_row(fcinfo, values, 5));
}

/*
 * strata.compact(regclass, max_bytes bigint): one bounded compaction.
 */
Datum
strata_compact(PG_FUNCTION_ARGS)
{
	Oid			relid;
	StrataCompactRequest request = {.max_bytes = -1, .thorough = true};
	StrataCompactResult result;
	Datum		values[9];

	relid = strata_table_argument(fcinfo);
	if (!PG_ARGISNULL(1))
	{
		request.max_bytes = PG_GETARG_INT64(1);
		if (request.max_bytes < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_bytes must not be negative"),
					 errhint("0 lifts the cap.")));
	}

	strata_check_table_argument(relid, true, NoLock);
	(void) strata_compact_pass(relid, &request, &result);
	if (result.row_groups_read > 0 && strata_pass_by_hand_hook != NULL)
		strata_pass_by_hand_hook(relid);

	values[0] = Int64GetDatum(result.row_groups_read);
	values[1] = Int64GetDatum(result.row_groups_left);
	values[2] = Int64GetDatum(result.row_groups_written);
	values[3] = Int64GetDatum(result.rows_moved);
	values[4] = Int64GetDatum(result.rows_dropped);
	values[5] = Int64GetDatum(result.bytes_read);
	values[6] = Int64GetDatum(result.bytes_written);
	values[7] = Int64GetDatum(result.peak_memory);
	values[8] = DirectFunctionCall2(timestamp_mi,
									TimestampTzGetDatum(result.ended),
									TimestampTzGetDatum(result.started));
	PG_RETURN_DATUM(functions_result_row(fcinfo, values, 9));
}

static void
functions_require_key(StrataStore *store)
{
	if (store->key.natts == 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("%s has no key", store->name),
				 errdetail("A store without the option \"key\" is append-only and has no key index.")));
}

/*
 * strata.create_key_index(regclass): true when one was built, false when a
 * usable one was there.
 */
Datum
strata_create_key_index(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	StrataStore *store;
	Relation	storage;
	bool		built;

	PreventCommandIfReadOnly("strata.create_key_index()");
	PreventCommandDuringRecovery("strata.create_key_index()");
	strata_check_table_argument(relid, true, AccessShareLock);
	store = strata_store_open(relid);
	functions_require_key(store);
	(void) strata_lock(store->storage, STRATA_LOCK_PASS, 0, ExclusiveLock, false);
	storage = strata_storage_open(store, ShareUpdateExclusiveLock);
	built = strata_keyindex_ensure(store, storage);
	table_close(storage, NoLock);
	strata_store_close(store);
	PG_RETURN_BOOL(built);
}

/*
 * strata.drop_key_index(regclass): true when there was one.  Passes give way
 * to the lock taken here, so the pass lock is not waited for.
 */
Datum
strata_drop_key_index(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	StrataStore *store;
	Relation	storage;
	bool		dropped;

	PreventCommandIfReadOnly("strata.drop_key_index()");
	PreventCommandDuringRecovery("strata.drop_key_index()");
	strata_check_table_argument(relid, true, AccessShareLock);
	store = strata_store_open(relid);
	functions_require_key(store);
	storage = strata_storage_open(store, AccessExclusiveLock);
	dropped = strata_keyindex_drop(store, storage);
	table_close(storage, NoLock);
	strata_store_close(store);
	PG_RETURN_BOOL(dropped);
}

/*
 * strata.has_key_index(regclass): is there one that can be relied on?
 */
Datum
strata_has_key_index(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	StrataStore *store;
	Relation	storage;
	bool		present;
	bool		usable;

	strata_check_table_argument(relid, false, AccessShareLock);
	storage = functions_open_storage(relid, AccessShareLock, &store);
	usable = store->key.natts > 0 &&
		OidIsValid(strata_keyindex_find(storage, &present));
	table_close(storage, AccessShareLock);
	strata_store_close(store);
	PG_RETURN_BOOL(usable);
}

/*
 * strata.relation_size(regclass): bytes on disk, all forks and the key index.
 */
Datum
strata_relation_size(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	StrataStore *store;
	Relation	storage;
	Datum		size;

	strata_check_table_argument(relid, false, AccessShareLock);
	storage = functions_open_storage(relid, AccessShareLock, &store);
	size = Int64GetDatum(strata_keyindex_total_size(storage));
	table_close(storage, AccessShareLock);
	strata_store_close(store);
	PG_RETURN_DATUM(size);
}
