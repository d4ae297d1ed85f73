/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  Writers that have workers come.
 *
 * Preloaded, a writer brings forward the time of the next visit of its
 * database: to an interval from now with an append, to now with the commit
 * that fills so many generations that the count trigger is reached.  Mostly
 * that is a look at one number in shared memory.
 *
 * Not preloaded, there is nobody to tell: the commit that reaches the count
 * trigger starts one worker for the database itself, unless one is there.
 *
 * A table that workers have put off because passes of it failed is tried again
 * at once when somebody has made a pass of it, or repaired it: that it went
 * well mostly means that the cause is gone.
 *
 * ALTER of a table has its database visited: its options say what is due.
 *
 * No user statement merges anything.  What may fail is done before the commit
 * record is written; what is left for after it throws nothing.
 *
 * IDENTIFICATION
 *	  src/worker/trigger.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "log/append.h"
#include "merge/merge.h"
#include "manifest/lifecycle.h"
#include "storage/locks.h"

#include "access/parallel.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Stores of which this transaction sealed a generation; in its context. */
static List *sealed_stores = NIL;

/* Those of which it made a pass; the same. */
static List *passed_stores = NIL;

/* What the commit is to do. */
static bool wake_launcher = false;
static bool start_worker = false;
static BackgroundWorker prepared;

/* The place of this backend's database; its oid is checked at each use. */
static StrataSharedDatabase *my_database = NULL;

static StrataSharedDatabase *
find_my_database(void)
{
	if (my_database == NULL || pg_atomic_read_u32(&my_database->oid) != MyDatabaseId)
		my_database = strata_shared_database(MyDatabaseId);
	return my_database;
}

/* StrataLogAppended */
static void
appended(StrataStore *store, bool sealed)
{
	const StrataOptions *options = store->options;

	if (!options->auto_merge)
		return;

	/*
	 * Preloaded, that there are no workers now is the launcher's affair: when
	 * there are some again, they have to come.
	 */
	if (strata_shared == NULL && strata_max_workers == 0)
		return;

	if (sealed && options->merge_after_generations > 0)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		sealed_stores = list_append_unique_oid(sealed_stores, store->ftrelid);
		MemoryContextSwitchTo(old);
	}

	if (strata_shared != NULL && options->merge_interval > 0)
	{
		TimestampTz interval = (TimestampTz) options->merge_interval * USECS_PER_SEC;
		StrataSharedDatabase *database = find_my_database();

		/* The statement's start is at hand; the time of day is not. */
		if (database == NULL)
		{
			if (pg_atomic_exchange_u32(&strata_shared->refresh, 1) == 0)
				strata_shared_wake();
		}
		else if ((TimestampTz) pg_atomic_read_u64(&database->next_visit) >
				 GetCurrentStatementStartTimestamp() + interval)
			strata_shared_visit(database, GetCurrentTimestamp() + interval);
	}
}

/* Has a store that this transaction wrote to reached its count trigger? */
static bool
count_reached(Oid ftrelid)
{
	Oid			storage_oid = strata_store_storage(ftrelid);
	Relation	storage;
	StrataStore *store;
	bool		reached;

	/* Our own lock on it is held since the append; it may have been dropped. */
	if (!OidIsValid(storage_oid))
		return false;
	storage = try_relation_open(storage_oid, AccessShareLock);
	if (storage == NULL)
		return false;
	store = strata_store_open(ftrelid);
	reached = store->options->auto_merge &&
		store->options->merge_after_generations > 0 &&
		strata_debt_sealed(store, storage) >= store->options->merge_after_generations;
	strata_store_close(store);
	relation_close(storage, NoLock);
	return reached;
}

static void
before_commit(void)
{
	ListCell   *lc;
	bool		reached = false;

	foreach (lc, sealed_stores)
	{
		if (count_reached(lfirst_oid(lc)))
		{
			reached = true;
			break;
		}
	}
	if (!reached)
		return;

	if (strata_shared != NULL)
		wake_launcher = true;
	else if (strata_lock(InvalidOid, STRATA_LOCK_DATABASE, 0, ExclusiveLock, true))
	{
		/* Nobody is at work in this database. */
		strata_unlock(InvalidOid, STRATA_LOCK_DATABASE, 0, ExclusiveLock);
		strata_worker_describe(&prepared, MyDatabaseId, -1);
		start_worker = true;
	}
}

/* StrataPassByHand */
static void
passed_by_hand(Oid ftrelid)
{
	MemoryContext old;

	if (strata_shared == NULL)
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	passed_stores = list_append_unique_oid(passed_stores, ftrelid);
	MemoryContextSwitchTo(old);
}

/* StrataTableAltered */
static void
altered(void)
{
	if (strata_shared != NULL)
		wake_launcher = true;
}

/* After the commit: workers need not wait any longer.  Returns whether any did. */
static bool
end_waits(void)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;
	bool		any = false;

	foreach (lc, passed_stores)
	{
		StrataSharedStore *shared = strata_store_lock(lfirst_oid(lc), false);

		if (shared == NULL)
			continue;
		if (shared->next_try > now)
		{
			shared->next_try = now;
			any = true;
		}
		strata_store_unlock();
	}
	return any;
}

static void
trigger_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (sealed_stores != NIL && !IsInParallelMode())
				before_commit();
			return;

		case XACT_EVENT_COMMIT:
			if (end_waits())
				wake_launcher = true;
			if (wake_launcher)
			{
				StrataSharedDatabase *database = find_my_database();

				if (database != NULL)
					strata_shared_visit(database, GetCurrentTimestamp());
			}
			if (start_worker)
				(void) RegisterDynamicBackgroundWorker(&prepared, NULL);
			break;

		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;

		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			return;
	}
	sealed_stores = NIL;
	passed_stores = NIL;
	wake_launcher = false;
	start_worker = false;
}

void
strata_trigger_init(void)
{
	strata_log_appended_hook = appended;
	strata_pass_by_hand_hook = passed_by_hand;
	strata_table_altered_hook = altered;
	RegisterXactCallback(trigger_xact_callback, NULL);
}
