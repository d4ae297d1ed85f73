/*-------------------------------------------------------------------------
 *
 * health.c
 *	  What is wrong, and what to do about it.
 *
 * The rows of strata.health() that need more than SQL: whether somebody looks
 * after this database at all, and for each store the caller may see whether
 * its merges fail, are blocked, or do not keep up, and whether its key index
 * gives exact answers.  Waits for nobody.
 *
 * A backlog is said to grow when it is larger than at the last look at the
 * store, by a worker or by this, at least a minute ago, and beyond what the
 * triggers allow.
 *
 * IDENTIFICATION
 *	  src/worker/health.c
 *
 *-------------------------------------------------------------------------
 */
#include "compat.h"
#include "worker/worker.h"

#include "storage/salvage.h"

#include "access/table.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(strata_health_info);

#define HEALTH_NCOLUMNS			5

/* More than so many times the count trigger is a backlog. */
#define HEALTH_BACKLOG_FACTOR	4
#define HEALTH_BACKLOG_DEFAULT	64

static void
report(ReturnSetInfo *rsinfo, const char *severity, Oid store, const char *what,
	   const char *advice)
{
	Datum		values[HEALTH_NCOLUMNS];
	bool		isnull[HEALTH_NCOLUMNS] = {0};

	values[0] = CStringGetTextDatum(severity);
	values[1] = ObjectIdGetDatum(store);
	isnull[1] = !OidIsValid(store);
	values[2] = CStringGetTextDatum(what);
	values[3] = CStringGetTextDatum(advice);
	values[4] = BoolGetDatum(false);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
}

/* Space that a sweep could not free; strata.health() adds who holds it. */
static void
report_pinned(ReturnSetInfo *rsinfo, Oid store, int64 bytes)
{
	Datum		values[HEALTH_NCOLUMNS];
	bool		isnull[HEALTH_NCOLUMNS] = {0};

	values[0] = CStringGetTextDatum("warning");
	values[1] = ObjectIdGetDatum(store);
	values[2] = CStringGetTextDatum(psprintf("about " INT64_FORMAT " kB cannot be reclaimed: an old snapshot may still see them",
											 bytes / 1024));
	isnull[3] = true;
	values[4] = BoolGetDatum(true);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, isnull);
}

/* What to do about the failures of a store goes by what the last one was. */
static const char *
failure_advice(const StrataSharedStore *known)
{
	const char *advice;

	if (strncmp(known->sqlstate, "53", 2) == 0)
		advice = "Nothing is damaged: make room (disk space, memory).";
	else if (strncmp(known->sqlstate, "XX", 2) == 0 || strncmp(known->sqlstate, "58", 2) == 0)
		advice = "See the server log; strata.verify() names what is damaged, strata.repair() tells what it costs to go on without.";
	else if (strcmp(known->sqlstate, "57P02") == 0)
		advice = "See the server log; with the option auto_merge set to off, workers leave the table alone.";
	else
		advice = "See the server log for what raised it.";
	return psprintf("%s Next try at %s, or when strata.merge() of it has succeeded.", advice,
					timestamptz_to_str(known->next_try));
}

static void
check_server(ReturnSetInfo *rsinfo)
{
	if (RecoveryInProgress())
		return;
	if (strata_shared == NULL)
		report(rsinfo, "warning", InvalidOid,
			   "strata is not in shared_preload_libraries",
			   "Add it and restart: without it nothing is merged by time, only by count.");
	else if (strata_max_workers == 0)
		report(rsinfo, "warning", InvalidOid,
			   "automatic merging is off",
			   "Set strata.max_workers to 1 or more.");
	else if (strata_shared->launcher_pid == 0)
		report(rsinfo, "error", InvalidOid,
			   "the strata launcher is not running",
			   "It starts again within seconds; if it does not, see the server log.");
	else if (strata_shared_database(MyDatabaseId) == NULL)
		report(rsinfo, "warning", InvalidOid,
			   "this database is not looked after",
			   "Templates and databases that refuse connections are not; a new one is within a minute.");
	if (strata_shared != NULL && pg_atomic_read_u32(&strata_shared->shortage) != 0)
		report(rsinfo, "error", InvalidOid,
			   "no background worker slot was free for a strata worker",
			   "Increase max_worker_processes, or set strata.max_workers lower.");
}

static void
check_store(ReturnSetInfo *rsinfo, StrataStore *store, Relation storage)
{
	const StrataOptions *options = store->options;
	StrataManifest *manifest = strata_manifest_get(store, storage, GetActiveSnapshot());
	StrataSharedStore known = {0};
	StrataDebt	debt;
	StrataGrowth growth;
	int64		limit;
	bool		present;

	if (strata_shared != NULL)
		(void) strata_store_look(store->ftrelid, &known);
	if (known.failures > 0)
		report(rsinfo, "error", store->ftrelid,
			   psprintf("the last %d tries to merge failed%s%s", known.failures,
						pg_class_ownercheck(store->ftrelid, GetUserId()) ? ": " : "",
						pg_class_ownercheck(store->ftrelid, GetUserId()) ? known.error : ""),
			   failure_advice(&known));
	if (FullTransactionIdIsValid(known.blocked_by))
		report(rsinfo, "warning", store->ftrelid,
			   psprintf("transaction " UINT64_FORMAT " keeps generations from being merged",
						U64FromFullTransactionId(known.blocked_by)),
			   "Look for it in pg_stat_activity.backend_xid and pg_prepared_xacts, and end it.");

	strata_debt(store, storage, GetCurrentTimestamp(), &debt);
	limit = options->merge_after_generations > 0 ?
				(int64) options->merge_after_generations * HEALTH_BACKLOG_FACTOR :
				HEALTH_BACKLOG_DEFAULT;
	(void) strata_debt_growth(&debt, true, &growth);
	if (debt.sealed > limit && growth.bytes > 0)
		report(rsinfo, "warning", store->ftrelid,
			   psprintf("%d generations are pending, and the backlog grows", debt.sealed),
			   options->auto_merge ?
			   "Increase strata.max_workers or merge_max_bytes, or write less." :
			   "The table's option auto_merge is off: call strata.drain().");
	else if (debt.sealed > limit)
		report(rsinfo, "info", store->ftrelid,
			   psprintf("%d generations are pending", debt.sealed),
			   options->auto_merge ? "They are being merged, pass by pass." :
			   "The table's option auto_merge is off: call strata.drain().");

	if (known.vain_sweeps > 0 && known.unswept_bytes > 0)
	{
		int64		bytes = Min(known.unswept_bytes,
								strata_upkeep_unreferenced(store, storage, manifest));

		/* Somebody else may have given it back, or truncated the table. */
		if (bytes >= STRATA_SWEEP_IDLE_BYTES)
			report_pinned(rsinfo, store->ftrelid, bytes);
	}

	if (store->key.natts > 0 && manifest->ngroups > 0 &&
		!OidIsValid(strata_keyindex_find(storage, &present)))
		report(rsinfo, present ? "error" : "warning", store->ftrelid,
			   present ? "the key index is not usable" : "there is no key index",
			   "Lookups and merges read the whole base: SELECT strata.create_key_index().");
	strata_manifest_release(manifest);
}

typedef struct HealthLook
{
	ReturnSetInfo *rsinfo;
	Oid			ftrelid;
	Oid			storage;
} HealthLook;

/* StrataAction */
static void
look_at_store(void *arg)
{
	HealthLook *look = (HealthLook *) arg;
	StrataStore *store;
	Relation	storage;

	if (!OidIsValid(look->storage) ||
		!ConditionalLockRelationOid(look->storage, AccessShareLock))
		return;
	if (strata_store_storage(look->ftrelid) != look->storage)
	{
		UnlockRelationOid(look->storage, AccessShareLock);
		return;
	}
	store = strata_store_open(look->ftrelid);
	storage = table_open(look->storage, NoLock);
	check_store(look->rsinfo, store, storage);

	/* Not kept: the foreign table, which may be wanted next, comes before it. */
	table_close(storage, AccessShareLock);
	strata_store_close(store);
}

Datum
strata_health_info(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	check_server(rsinfo);
	foreach (lc, strata_store_list())
	{
		Oid			ftrelid = lfirst_oid(lc);
		HealthLook	look = {rsinfo, ftrelid, strata_store_storage(ftrelid)};
		char	   *message;

		CHECK_FOR_INTERRUPTS();
		if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(ftrelid)))
		{
			if (superuser())
				report(rsinfo, "warning", InvalidOid,
					   psprintf("store with OID %u has lost its foreign table", look.storage),
					   "It was dropped without event triggers: SELECT strata.drop_orphans().");
			continue;
		}
		if (!strata_may_watch(ftrelid))
			continue;
		message = strata_attempt(look_at_store, &look);
		if (message != NULL)
			report(rsinfo, "error", ftrelid,
				   psprintf("the store cannot be read%s%s",
							pg_class_ownercheck(ftrelid, GetUserId()) ? ": " : "",
							pg_class_ownercheck(ftrelid, GetUserId()) ? message : ""),
				   "SELECT strata.repair() tells what it would cost to go on without what is damaged; if its action is none, restore the table from a backup.");
	}
	return (Datum) 0;
}
