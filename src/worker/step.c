/*-------------------------------------------------------------------------
 *
 * step.c
 *	  One step of a worker's for one store, and what is remembered of it.
 *
 * A step is a transaction of its own.  While it runs, views show it, and a note
 * on disk (attempt.c) survives a crash that it causes.
 *
 * Failures: an error is rolled back, kept with the store's state, and the
 * store is left alone for a time that doubles up to an hour.  Other stores do
 * not notice.  A failing disk, a corrupt page and type code that raises errors
 * are all the same here, and so is a pass that crashes the server.  Having given
 * way to others is no failure, and is tried again sooner.
 *
 * Locks: those of what a step calls, never waited for, to its end.
 *
 * IDENTIFICATION
 *	  src/worker/step.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "pause.h"

#include "access/table.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Pause after the first failure in a row; doubled with each, up to an hour. */
#define WORKER_FAILURE_SEC		5
#define WORKER_FAILURE_MAX_SEC	3600

/* The same for stores that are blocked or wanted by others. */
#define WORKER_DELAY_MAX_SEC	60

/* min * 2^(n - 1) seconds, at most max. */
TimestampTz
strata_worker_backoff(int n, int min, int max)
{
	int64		seconds = (int64) min << Min(n - 1, 20);

	return Min(seconds, max) * USECS_PER_SEC;
}

TimestampTz
strata_worker_failure_pause(int failures)
{
	return strata_worker_backoff(failures, WORKER_FAILURE_SEC, WORKER_FAILURE_MAX_SEC);
}

const char *
strata_task_name(StrataTask task)
{
	static const char *const names[] = {"inspection", "seal", "merge", "compaction", "sweep", "ANALYZE"};

	return names[task];
}

/* Who is at work on what, for others: in shared memory, and on disk. */
static void
show_task(StrataTask task, Oid store, Oid storage)
{
	StrataSharedWorker *place = strata_worker_place;
	int			slot;

	if (place == NULL)
		return;
	slot = (int) (place - strata_shared->workers);
	if (OidIsValid(store))
	{
		StrataSharedStore known;

		strata_attempt_begin(slot, MyDatabaseId, store, task,
							 strata_store_look(store, &known) ? known.failures : 0);
	}
	else
		strata_attempt_end(slot);
	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	place->task = task;
	place->store = store;
	place->storage = storage;
	place->since = GetCurrentTimestamp();
	LWLockRelease(strata_shared->lock);
}

void
strata_worker_begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	XactIsoLevel = XACT_READ_COMMITTED;
	XactReadOnly = false;
}

/* Is the store still there?  In a transaction. */
static bool
store_exists(Oid ftrelid)
{
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(ftrelid)) &&
		OidIsValid(strata_store_storage(ftrelid));
}

/* For the log, in which workers of all databases write: with the database. */
char *
strata_worker_store_name(Oid ftrelid, MemoryContext mcxt)
{
	char	   *name;

	if (!store_exists(ftrelid))
		return NULL;
	name = psprintf("%s.%s", quote_identifier(get_database_name(MyDatabaseId)),
					quote_qualified_identifier(get_namespace_name(get_rel_namespace(ftrelid)),
											   get_rel_name(ftrelid)));
	return MemoryContextStrdup(mcxt, name);
}

void
strata_worker_note_delay(Oid ftrelid, FullTransactionId blocked_by, bool gave_way)
{
	StrataSharedStore *shared = strata_store_lock(ftrelid, true);

	if (shared == NULL)
		return;
	shared->delays++;
	shared->blocked_by = blocked_by;
	if (gave_way)
		shared->gave_way++;
	shared->next_try = GetCurrentTimestamp() +
		strata_worker_backoff(shared->delays, STRATA_WORKER_DELAY_SEC, WORKER_DELAY_MAX_SEC);
	strata_worker_note_due(shared->next_try);
	strata_store_unlock();
}

static void
note_failure(Oid ftrelid, const char *name, StrataTask task, const ErrorData *error)
{
	StrataSharedStore *shared = strata_store_lock(ftrelid, true);
	TimestampTz pause = strata_worker_failure_pause(1);
	int			failures = 1;

	if (shared != NULL)
	{
		failures = ++shared->failures;
		shared->failed++;
		shared->failed_at = GetCurrentTimestamp();
		shared->failed_task = task;
		pause = strata_worker_failure_pause(failures);
		shared->next_try = shared->failed_at + pause;
		strlcpy(shared->sqlstate, unpack_sql_state(error->sqlerrcode), sizeof(shared->sqlstate));
		strlcpy(shared->error, error->message != NULL ? error->message : "", STRATA_ERROR_SIZE);
		shared->error[pg_mbcliplen(shared->error, (int) strlen(shared->error),
								   STRATA_ERROR_SIZE - 1)] = '\0';
		strata_worker_note_due(shared->next_try);
		strata_store_unlock();
	}
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("strata: %s of %s failed (%d in a row), next try in %d s: %s",
					strata_task_name(task), name, failures, (int) (pause / USECS_PER_SEC),
					error->message != NULL ? error->message : "unknown error"),
			 error->detail != NULL ? errdetail_internal("%s", error->detail) : 0,
			 error->hint != NULL ? errhint("%s", error->hint) : 0,
			 error->context != NULL ? errcontext("%s", error->context) : 0));
}

void
strata_worker_note_success(Oid ftrelid)
{
	StrataSharedStore *shared = strata_store_lock(ftrelid, false);
	int			crash_place;

	if (shared == NULL)
		return;
	shared->failures = 0;
	shared->delays = 0;
	shared->next_try = 0;
	shared->blocked_by = InvalidFullTransactionId;
	crash_place = shared->crash_place;
	shared->crash_place = 0;
	strata_store_unlock();
	if (crash_place > 0)
		strata_attempt_end(crash_place);
}

/*
 * Run one step for a store in a transaction of its own.  False when it failed
 * or gave way; the error is then noted and the transaction rolled back.
 *
 * Only steps can be cancelled.  An interrupt that comes when its step is over
 * has nothing to cancel: it must neither end the worker nor hit the next step.
 */
bool
strata_worker_run_step(StrataTask task, StrataDebt *debt, StrataWorkerStep step)
{
	Oid			ftrelid = debt->store;
	MemoryContext mcxt = CurrentMemoryContext;
	volatile bool done = false;
	char	   *volatile name = NULL;

	strata_worker_begin_transaction();
	PG_TRY();
	{
		QueryCancelPending = false;
		RESUME_CANCEL_INTERRUPTS();
		name = strata_worker_store_name(ftrelid, mcxt);
		if (name != NULL)
		{
			show_task(task, ftrelid, strata_store_storage(ftrelid));
			STRATA_PAUSE("worker-step");
			step(debt);
		}
		CommitTransactionCommand();
		HOLD_CANCEL_INTERRUPTS();
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;
		bool		gave_way;

		/* The error let go of all holds. */
		HOLD_CANCEL_INTERRUPTS();
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(mcxt);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();

		gave_way = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
			error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
			error->sqlerrcode == ERRCODE_UNDEFINED_TABLE;
		if (gave_way)
			strata_worker_note_delay(ftrelid, InvalidFullTransactionId, true);
		else if (name != NULL)
		{
			/* Whatever went wrong, caches may be the reason. */
			InvalidateSystemCaches();
			note_failure(ftrelid, name, task, error);
		}
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(mcxt);
	show_task(STRATA_TASK_LOOK, InvalidOid, InvalidOid);
	STRATA_PAUSE("worker-step-done");
	return done;
}

bool
strata_worker_open_store(Oid ftrelid, LOCKMODE lockmode, StrataStore **store, Relation *storage)
{
	Oid			oid = strata_store_storage(ftrelid);

	if (!OidIsValid(oid) || !ConditionalLockRelationOid(oid, lockmode))
		return false;
	if (!store_exists(ftrelid) || strata_store_storage(ftrelid) != oid)
	{
		UnlockRelationOid(oid, lockmode);
		return false;
	}
	*store = strata_store_open(ftrelid);
	*storage = table_open(oid, NoLock);
	return true;
}
