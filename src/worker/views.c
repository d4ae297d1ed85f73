/*-------------------------------------------------------------------------
 *
 * views.c
 *	  What strata.workers, strata.stat and the state in strata.stores show.
 *
 * Read from shared memory, without touching a store: cheap enough for a
 * monitoring system to ask often, and never in the way of maintenance.  A
 * caller sees the stores whose foreign table he may SELECT from or owns; error
 * messages, which may quote values, only as owner.
 *
 * IDENTIFICATION
 *	  src/worker/views.c
 *
 *-------------------------------------------------------------------------
 */
#include "compat.h"
#include "worker/worker.h"

#include "merge/budget.h"
#include "storage/salvage.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "access/table.h"

PG_FUNCTION_INFO_V1(strata_workers_info);
PG_FUNCTION_INFO_V1(strata_stat_info);
PG_FUNCTION_INFO_V1(strata_store_states_info);
PG_FUNCTION_INFO_V1(strata_merge_memory_info);

#define WORKERS_NCOLUMNS		11
#define STAT_NCOLUMNS			15
#define STATES_NCOLUMNS			10

static const char *const task_names[] = {"look", "seal", "merge", "compact", "sweep", "analyze"};
static const char *const trigger_names[] = {NULL, "count", "time"};
static const char *const phase_names[] = {NULL, "choose", "wait for memory", "read", "write",
										  "index"};

static bool
is_owner(Oid ftrelid)
{
	return pg_class_ownercheck(ftrelid, GetUserId());
}

static void
set_time(Datum *values, bool *isnull, int column, TimestampTz at)
{
	isnull[column] = at == 0;
	if (at != 0)
		values[column] = TimestampTzGetDatum(at);
}

static void
set_name(Datum *values, bool *isnull, int column, const char *text)
{
	isnull[column] = text == NULL;
	if (text != NULL)
		values[column] = DirectFunctionCall1(namein, CStringGetDatum(text));
}

static void
set_text(Datum *values, bool *isnull, int column, const char *text)
{
	isnull[column] = text == NULL;
	if (text != NULL)
		values[column] = CStringGetTextDatum(text);
}

/*
 * strata.workers: of all databases; the store only of one's own.
 */
Datum
strata_workers_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; strata_shared != NULL && i < STRATA_MAX_WORKERS; i++)
	{
		StrataSharedWorker *place = &strata_shared->workers[i];
		Datum		values[WORKERS_NCOLUMNS];
		bool		isnull[WORKERS_NCOLUMNS] = {0};
		Oid			database;
		Oid			store;
		int			pid;
		StrataTask	task;
		TimestampTz since;
		TimestampTz started;

		LWLockAcquire(strata_shared->lock, LW_SHARED);
		database = place->database;
		store = place->store;
		pid = place->pid;
		task = place->task;
		since = place->since;
		started = place->started;
		LWLockRelease(strata_shared->lock);
		if (!OidIsValid(database) || pid == 0)
			continue;

		values[0] = Int32GetDatum(pid);
		set_name(values, isnull, 1, get_database_name(database));
		set_text(values, isnull, 2, task_names[task]);
		isnull[3] = !OidIsValid(store) || database != MyDatabaseId || !strata_may_watch(store);
		values[3] = ObjectIdGetDatum(store);
		set_text(values, isnull, 4, phase_names[pg_atomic_read_u32(&place->progress.phase)]);
		values[5] = Int64GetDatum(pg_atomic_read_u32(&place->progress.planned));
		values[6] = Int64GetDatum(pg_atomic_read_u32(&place->progress.done));
		values[7] = Int64GetDatum((int64) pg_atomic_read_u64(&place->progress.bytes_planned));
		values[8] = Int64GetDatum((int64) pg_atomic_read_u64(&place->progress.bytes_done));
		for (int column = 5; column <= 8; column++)
			isnull[column] = isnull[4];
		set_time(values, isnull, 9, since);
		set_time(values, isnull, 10, started);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}

/*
 * strata.stat: counters since the server started.
 */
Datum
strata_stat_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	StrataSharedStore *stores;
	int			nstores;

	InitMaterializedSRF(fcinfo, 0);
	nstores = strata_store_list_known(&stores);
	for (int i = 0; i < nstores; i++)
	{
		StrataSharedStore *store = &stores[i];
		Datum		values[STAT_NCOLUMNS];
		bool		isnull[STAT_NCOLUMNS] = {0};

		if (!strata_may_watch(store->key.store))
			continue;
		values[0] = ObjectIdGetDatum(store->key.store);
		values[1] = Int64GetDatum(store->passes);
		values[2] = Int64GetDatum(store->generations);
		values[3] = Int64GetDatum(store->rows_read);
		values[4] = Int64GetDatum(store->rows_merged);
		values[5] = Int64GetDatum(store->bytes_merged);
		values[6] = Int64GetDatum(store->bytes_written);
		values[7] = Float8GetDatum((double) store->busy_usec / 1000.0);
		values[8] = Int64GetDatum(store->failed);
		values[9] = Int64GetDatum(store->gave_way);
		values[10] = Int64GetDatum(store->compactions);
		values[11] = Int64GetDatum(store->sweeps);
		values[12] = Int64GetDatum(store->blocks_freed);
		values[13] = Int64GetDatum(store->analyzes);
		set_time(values, isnull, 14, strata_shared->started);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}

typedef struct WantedLook
{
	Oid			ftrelid;
	StrataTrigger trigger;
	StrataGrowth growth;
} WantedLook;

/* StrataAction: what is wanted of a store now; waits for nobody. */
static void
wanted_now(void *arg)
{
	WantedLook *look = (WantedLook *) arg;
	Oid			oid = strata_store_storage(look->ftrelid);
	StrataStore *store;
	Relation	storage;
	StrataDebt	debt;

	if (!OidIsValid(oid) || !ConditionalLockRelationOid(oid, AccessShareLock))
		return;
	if (strata_store_storage(look->ftrelid) != oid || !strata_may_watch(look->ftrelid))
	{
		UnlockRelationOid(oid, AccessShareLock);
		return;
	}
	store = strata_store_open(look->ftrelid);
	storage = table_open(oid, NoLock);
	strata_debt(store, storage, GetCurrentTimestamp(), &debt);
	look->trigger = debt.trigger;
	(void) strata_debt_growth(&debt, false, &look->growth);

	/* Not kept: the foreign table, which may be wanted next, comes before it. */
	table_close(storage, AccessShareLock);
	strata_store_close(store);
}

/*
 * The part of strata.stores that is known by workers.
 */
Datum
strata_store_states_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach (lc, strata_store_list())
	{
		Oid			ftrelid = lfirst_oid(lc);
		StrataSharedStore known = {0};
		WantedLook	look = {.ftrelid = ftrelid, .trigger = STRATA_TRIGGER_NONE};
		Datum		values[STATES_NCOLUMNS];
		bool		isnull[STATES_NCOLUMNS] = {0};

		CHECK_FOR_INTERRUPTS();
		if (!strata_may_watch(ftrelid))
			continue;
		if (strata_shared != NULL)
			(void) strata_store_look(ftrelid, &known);
		(void) strata_attempt(wanted_now, &look);

		values[0] = ObjectIdGetDatum(ftrelid);
		set_text(values, isnull, 1, trigger_names[look.trigger]);
		set_time(values, isnull, 2, known.last_merge);
		values[3] = Int32GetDatum(known.failures);
		set_text(values, isnull, 4, known.failed_at != 0 ? known.sqlstate : NULL);
		set_text(values, isnull, 5, known.failed_at != 0 && is_owner(ftrelid) ? known.error : NULL);
		set_time(values, isnull, 6, known.failed_at);
		set_time(values, isnull, 7, known.next_try);
		values[8] = Int64GetDatum(look.growth.bytes);
		isnull[8] = look.growth.since == 0;
		set_time(values, isnull, 9, look.growth.since);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
	}
	return (Datum) 0;
}

/*
 * strata.merge_memory(): what merges take of strata.merge_memory, and how many
 * wait for some.
 */
Datum
strata_merge_memory_info(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	uint64		taken;
	int			waiters;
	Datum		values[3];
	bool		isnull[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "unexpected result type of a strata function");
	strata_budget_state(&taken, &waiters);
	values[0] = Int64GetDatum((int64) taken);
	values[1] = Int64GetDatum((int64) strata_merge_memory * 1024);
	values[2] = Int32GetDatum(waiters);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, isnull)));
}
