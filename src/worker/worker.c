/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  A worker: looks at every store of one database, does what is due, goes.
 *
 * In rounds: look at all stores, each in a transaction of its own; then one
 * bounded pass for each that is due, the oldest debt first, and again for those
 * that want more; after a second or so look again.  So a store with a long
 * backlog gets on, and others get their turn between its passes.  Upkeep
 * (compaction, sweep, ANALYZE, each when it pays) follows a store's pass and is
 * bounded like one.  With nothing due the worker tells the launcher when
 * something will be, and ends.
 *
 * Several workers can be at work in a database: the pass lock, never waited
 * for, decides who does what.
 *
 * Standing in nobody's way: a worker holds a session lock on its database, as
 * a connection does not, so that DROP DATABASE and the like wait for it in a
 * lock queue, where they are seen; it then rolls back and leaves.  Of a store
 * it holds what a pass holds.  It is interrupted by the launcher (SIGINT), or
 * finds lock waiters itself, and then leaves the store alone for a while.
 *
 * Failures: an error is rolled back, kept with the store's state, and the
 * store is left alone for a time that doubles up to an hour.  Other stores do
 * not notice.  A failing disk, a corrupt page and type code that raises errors
 * are all the same here, and so is a pass that crashes the server (attempt.c).
 *
 * The session is the bootstrap superuser's, with a fixed search_path; passes
 * run type code as the table's owner (enter.c), ANALYZE does so itself.
 *
 * IDENTIFICATION
 *	  src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "compat.h"
#include "log/append.h"
#include "manifest/lifecycle.h"
#include "pause.h"
#include "storage/locks.h"

#include <signal.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* A worker ends after that long, or sooner when others wait for its place. */
#define WORKER_SLICE_SEC		300
#define WORKER_CROWDED_SEC		5

/* Pause after the first failure in a row; doubled with each, up to an hour. */
#define WORKER_FAILURE_SEC		5
#define WORKER_FAILURE_MAX_SEC	3600

/* The same for stores that are blocked or wanted by others. */
#define WORKER_DELAY_MAX_SEC	60

/* The next look at a database where nothing is due. */
#define WORKER_IDLE_SEC			600
#define WORKER_REFUSED_SEC		60
#define WORKER_REFUSED_MAX_SEC	3600

/*
 * Stores that want more than one pass get it without a look at all the others,
 * for so long, or so many times as long as that look took.
 */
#define WORKER_LOOK_SEC			1
#define WORKER_LOOK_FACTOR		4

/* Caches are emptied after so many stores, lest they hold all of them. */
#define WORKER_CACHED_STORES	256

typedef struct Worker
{
	StrataSharedWorker *place;	/* NULL: not preloaded */
	int			slot;			/* its number */
	StrataSharedDatabase *database; /* NULL likewise */
	TimestampTz started;
	TimestampTz next_due;		/* known so far in this round */
	int			cached;			/* turns of stores since caches were emptied */
	bool		finished;		/* ended in good order */
	MemoryContext mcxt;			/* of a round */
} Worker;

static Worker worker = {0};

void
strata_database_locktag(LOCKTAG *tag, Oid database)
{
	SET_LOCKTAG_OBJECT(*tag, InvalidOid, DatabaseRelationId, database, 0);
}

void
strata_worker_describe(BackgroundWorker *bgworker, Oid database, int slot)
{
	memset(bgworker, 0, sizeof(*bgworker));
	bgworker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgworker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	bgworker->bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(bgworker->bgw_library_name, sizeof(bgworker->bgw_library_name), "strata");
	snprintf(bgworker->bgw_function_name, sizeof(bgworker->bgw_function_name),
			 "strata_worker_main");
	snprintf(bgworker->bgw_name, sizeof(bgworker->bgw_name),
			 "strata worker for database %u", database);
	snprintf(bgworker->bgw_type, sizeof(bgworker->bgw_type), "strata worker");
	memcpy(bgworker->bgw_extra, &database, sizeof(Oid));
	bgworker->bgw_main_arg = Int32GetDatum(slot);
}

/* ---- what others see ---- */

static void
show_task(StrataTask task, Oid store, Oid storage)
{
	if (worker.place == NULL)
		return;
	if (OidIsValid(store))
	{
		StrataSharedStore known;

		strata_attempt_begin(worker.slot, MyDatabaseId, store, task,
							 strata_store_look(store, &known) ? known.failures : 0);
	}
	else
		strata_attempt_end(worker.slot);
	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	worker.place->task = task;
	worker.place->store = store;
	worker.place->storage = storage;
	worker.place->since = GetCurrentTimestamp();
	LWLockRelease(strata_shared->lock);
}

/* Take the place that the launcher made for us. */
static bool
take_place(int slot, Oid database)
{
	StrataSharedWorker *place = &strata_shared->workers[slot];
	bool		ours;

	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	ours = place->database == database && place->pid == 0;
	if (ours)
	{
		place->pid = MyProcPid;
		place->started = place->since = GetCurrentTimestamp();
	}
	LWLockRelease(strata_shared->lock);
	if (ours)
	{
		worker.place = place;
		worker.slot = slot;
		strata_progress = &place->progress;
	}
	return ours;
}

static void
leave_place(int code, Datum arg)
{
	strata_progress = NULL;

	/* Core lets go of a session's lock only where a transaction aborts. */
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
	if (worker.place == NULL)
		return;

	strata_attempt_end(worker.slot);
	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	worker.place->store = InvalidOid;
	worker.place->storage = InvalidOid;
	worker.place->pid = 0;
	worker.place->database = InvalidOid;
	LWLockRelease(strata_shared->lock);

	/* Terminated, or something went wrong outside any store's work. */
	if (!worker.finished && worker.database != NULL)
		strata_shared_visit(worker.database,
							GetCurrentTimestamp() + WORKER_FAILURE_SEC * USECS_PER_SEC);
	strata_shared_wake();
}

/*
 * Does somebody wait for the database, or have it already?  A transaction that
 * aborts lets go of the session's lock, too: then it is taken again.
 */
static bool
database_wanted(void)
{
	LOCKTAG		tag;

	strata_database_locktag(&tag, MyDatabaseId);
	if (!strata_lock_held_by_me(&tag, RowExclusiveLock) &&
		LockAcquire(&tag, RowExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	return LockHasWaiters(&tag, RowExclusiveLock, true);
}

/* Something is due in this database at that time. */
void
strata_worker_note_due(TimestampTz at)
{
	worker.next_due = Min(worker.next_due, at);
}

/* Between two steps. */
static bool
must_leave(void)
{
	TimestampTz age = GetCurrentTimestamp() - worker.started;

	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (strata_max_workers == 0)
		return true;
	if (database_wanted())
	{
		strata_worker_note_due(GetCurrentTimestamp() + WORKER_FAILURE_SEC * USECS_PER_SEC);
		return true;
	}
	if (worker.place == NULL)
		return false;
	if (age > WORKER_SLICE_SEC * USECS_PER_SEC ||
		(age > WORKER_CROWDED_SEC * USECS_PER_SEC &&
		 pg_atomic_read_u32(&strata_shared->crowded) != 0))
	{
		strata_worker_note_due(GetCurrentTimestamp());
		return true;
	}
	return false;
}

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

/* ---- steps and what comes of them ---- */

static void
begin_transaction(void)
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

/*
 * A store could not be worked on because of others: leave it alone for a
 * moment.
 */
static void
note_delay(Oid ftrelid, FullTransactionId blocked_by, bool gave_way)
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

static void
note_success(Oid ftrelid)
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
	volatile bool done = false;
	char	   *volatile name = NULL;

	begin_transaction();
	PG_TRY();
	{
		QueryCancelPending = false;
		RESUME_CANCEL_INTERRUPTS();
		if (store_exists(ftrelid))
		{
			name = MemoryContextStrdup(worker.mcxt,
									   quote_qualified_identifier(get_namespace_name(get_rel_namespace(ftrelid)),
																  get_rel_name(ftrelid)));
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
		MemoryContextSwitchTo(worker.mcxt);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		RESUME_INTERRUPTS();

		gave_way = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
			error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
			error->sqlerrcode == ERRCODE_UNDEFINED_TABLE;
		if (gave_way)
			note_delay(ftrelid, InvalidFullTransactionId, true);
		else if (name != NULL)
		{
			/* Whatever went wrong, caches may be the reason. */
			InvalidateSystemCaches();
			note_failure(ftrelid, name, task, error);
		}
		FreeErrorData(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(worker.mcxt);
	show_task(STRATA_TASK_LOOK, InvalidOid, InvalidOid);
	STRATA_PAUSE("worker-step-done");
	return done;
}

/* ---- looking ---- */

/*
 * Lock the storage of a store that exists without waiting, for a look or a
 * seal.
 */
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

/* StrataWorkerStep */
static void
step_look(StrataDebt *debt)
{
	Oid			ftrelid = debt->store;
	StrataStore *store;
	Relation	storage;

	if (!strata_worker_open_store(ftrelid, AccessShareLock, &store, &storage))
	{
		strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);
		return;
	}

	/* A snapshot keeps sweeps from freeing the pages that are looked at. */
	PushActiveSnapshot(GetTransactionSnapshot());
	strata_debt(store, storage, GetCurrentTimestamp(), debt);
	PopActiveSnapshot();
	table_close(storage, NoLock);
	strata_store_close(store);
}

/* After each look and each turn of a store. */
static void
bound_caches(void)
{
	if (++worker.cached >= WORKER_CACHED_STORES)
	{
		worker.cached = 0;
		InvalidateSystemCaches();
	}
}

static void
look_at(Oid ftrelid, bool survey, List **due)
{
	StrataSharedStore known;
	StrataSharedStore *shared;
	bool		have = strata_store_look(ftrelid, &known);
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz upkeep;
	StrataGrowth growth;
	StrataDebt *debt;

	if (have && known.next_try > now)
	{
		strata_worker_note_due(known.next_try);
		return;
	}

	debt = palloc0(sizeof(StrataDebt));
	debt->store = ftrelid;
	debt->due = STRATA_NEVER;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_look))
		return;

	if (survey && debt->trigger == STRATA_TRIGGER_NONE && debt->oldest == 0)
	{
		strata_worker_survey(debt);
		have = strata_store_look(ftrelid, &known);
	}

	/* Kept for the views, if the store has a state at all. */
	(void) strata_debt_growth(debt, false, &growth);
	shared = strata_store_lock(ftrelid, false);
	if (shared != NULL)
	{
		shared->wanted = debt->trigger;
		strata_store_unlock();
	}
	upkeep = have ? strata_upkeep_at(&known) : STRATA_NEVER;
	if (debt->trigger != STRATA_TRIGGER_NONE || upkeep <= now)
		*due = lappend(*due, debt);
	else
	{
		strata_worker_note_due(Min(debt->due, upkeep));

		/* Somebody else merged what could not be, or it was the look itself. */
		if (have && known.failures > 0 && known.failed_task <= STRATA_TASK_MERGE)
			note_success(ftrelid);
	}
	bound_caches();
}

static int
compare_debts(const ListCell *a, const ListCell *b)
{
	TimestampTz x = ((StrataDebt *) lfirst(a))->oldest;
	TimestampTz y = ((StrataDebt *) lfirst(b))->oldest;

	return x < y ? -1 : x > y;
}

/*
 * The stores of the database; NIL with *missing set when it has no extension.
 * Orphans of tables that were dropped without event triggers go here.
 */
static List *
list_stores(bool *missing)
{
	List	   *stores = NIL;
	MemoryContext old;

	begin_transaction();
	PushActiveSnapshot(GetTransactionSnapshot());
	*missing = !OidIsValid(get_extension_oid(STRATA_SCHEMA, true));
	if (!*missing)
	{
		ListCell   *lc;
		bool		orphans = false;

		stores = strata_store_list();
		foreach (lc, stores)
		{
			if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
				orphans = true;
		}
		if (orphans)
		{
			int			n = strata_store_drop_orphans();

			if (n > 0)
				ereport(LOG,
						(errmsg("strata: dropped %d stores whose foreign table was dropped while event triggers were off", n)));
		}
		old = MemoryContextSwitchTo(worker.mcxt);
		stores = list_copy(stores);
		MemoryContextSwitchTo(old);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(worker.mcxt);
	return stores;
}

/* ---- working ---- */

/* StrataWorkerStep: close generations that are old enough to be merged. */
static void
step_seal(StrataDebt *debt)
{
	StrataStore *store;
	Relation	storage;

	if (!strata_worker_open_store(debt->store, RowExclusiveLock, &store, &storage))
		return;
	for (int shard = 0; shard < store->nshards; shard++)
		(void) strata_log_seal(storage, shard, NULL);
	table_close(storage, NoLock);
	strata_store_close(store);
}

/* Of the pass that just committed; the step's result. */
static StrataPassRecord pass_record;
static FullTransactionId pass_blocked_by;
static bool pass_ran;

/* StrataWorkerStep */
static void
step_merge(StrataDebt *debt)
{
	StrataPassRequest request = {.max_generations = -1, .max_bytes = -1, .nowait = true};

	pass_ran = strata_merge_pass(debt->store, &request, &pass_record, &pass_blocked_by);
}

/* Account for a merge, and tell the log. */
static void
merged(StrataDebt *debt, const char *name)
{
	const StrataPassRecord *record = &pass_record;
	int64		usec = record->ended - record->started;
	int64		gone = record->bytes_merged - record->bytes_adopted;
	StrataSharedStore *shared = strata_store_lock(debt->store, true);

	debt->fresh_bytes += gone;
	if (shared != NULL)
	{
		shared->passes++;
		shared->generations += record->generations_merged;
		shared->rows_read += record->rows_read;
		shared->rows_merged += record->rows_inserted + record->rows_replaced;
		shared->bytes_merged += record->bytes_merged;
		shared->bytes_written += record->bytes_written;
		shared->busy_usec += usec;
		shared->last_merge = record->ended;
		shared->unswept_bytes += gone;
		shared->dead_tids += record->rows_replaced + record->rows_deleted;
		shared->changed_rows += record->rows_inserted + record->rows_replaced +
			record->rows_deleted;
		strata_store_unlock();
	}
	ereport(LOG,
			(errmsg("strata: merged " INT64_FORMAT " generations of %s, " INT64_FORMAT " left: " INT64_FORMAT " rows read, " INT64_FORMAT " inserted, " INT64_FORMAT
					" replaced, " INT64_FORMAT " deleted; " INT64_FORMAT
					" row groups written, " INT64_FORMAT " adopted; " INT64_FORMAT " ms, " INT64_FORMAT " kB",
					record->generations_merged, name, record->generations_left,
					record->rows_read, record->rows_inserted, record->rows_replaced,
					record->rows_deleted, record->row_groups_written,
					record->row_groups_adopted, usec / 1000, record->peak_memory / 1024)));
}

/*
 * One turn for one store.  Returns whether something was merged.
 */
static bool
work_on(StrataDebt *debt)
{
	Oid			ftrelid = debt->store;
	char	   *name;
	bool		progress = false;
	bool		more;
	StrataSharedStore known;

	/* Others may have been faster, or have failed. */
	if (strata_store_look(ftrelid, &known) && known.next_try > GetCurrentTimestamp())
	{
		strata_worker_note_due(known.next_try);
		return false;
	}
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_look))
		return false;

	begin_transaction();
	name = store_exists(ftrelid) ?
		MemoryContextStrdup(worker.mcxt,
							quote_qualified_identifier(get_namespace_name(get_rel_namespace(ftrelid)),
															  get_rel_name(ftrelid))) :
			   NULL;
	CommitTransactionCommand();
	MemoryContextSwitchTo(worker.mcxt);
	if (name == NULL)
		return false;

	if (debt->trigger != STRATA_TRIGGER_NONE)
	{
		if (debt->seal && !strata_worker_run_step(STRATA_TASK_SEAL, debt, step_seal))
			return false;
		if (!strata_sweep_ahead(debt, name))
			return false;
		if (!strata_worker_run_step(STRATA_TASK_MERGE, debt, step_merge))
			return false;
		if (!pass_ran)
		{
			/* Another worker, or a user, is at it. */
			strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);
			return false;
		}
		if (pass_record.generations_merged > 0)
		{
			merged(debt, name);
			progress = true;
			if (!strata_worker_take_stock(debt))
				return progress;
		}
		else if (pass_record.generations_left > 0)
		{
			note_delay(ftrelid, pass_blocked_by, false);
			return false;
		}
	}
	else
		strata_worker_note_due(debt->due);

	if (strata_keep_up(debt, name, debt->trigger == STRATA_TRIGGER_NONE, &more))
		note_success(ftrelid);

	/* A long compaction goes on in the next round. */
	return progress || more;
}

/*
 * One round.  Returns whether anything was merged, so that more may be due.
 */
static bool
work_round(void)
{
	List	   *stores;
	List	   *due = NIL;
	ListCell   *lc;
	bool		missing;
	bool		survey;
	bool		progress = false;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz looked_at;
	TimestampTz look_again;

	worker.next_due = started + WORKER_IDLE_SEC * USECS_PER_SEC;
	stores = list_stores(&missing);
	if (missing)
	{
		int			refused = worker.database != NULL ?
						  (int) pg_atomic_fetch_add_u32(&worker.database->refused, 1) :
						  0;

		worker.next_due = GetCurrentTimestamp() +
			strata_worker_backoff(refused + 1, WORKER_REFUSED_SEC, WORKER_REFUSED_MAX_SEC);
		return false;
	}
	if (worker.database != NULL)
		pg_atomic_write_u32(&worker.database->refused, 0);

	survey = worker.database != NULL && pg_atomic_read_u32(&worker.database->surveyed) == 0;
	foreach (lc, stores)
	{
		if (must_leave())
			return false;
		look_at(lfirst_oid(lc), survey, &due);
	}
	if (survey)
		pg_atomic_write_u32(&worker.database->surveyed, 1);

	looked_at = GetCurrentTimestamp();
	look_again = looked_at + Max(WORKER_LOOK_SEC * USECS_PER_SEC,
								 (looked_at - started) * WORKER_LOOK_FACTOR);
	if (list_length(due) > 1 && worker.database != NULL && strata_max_workers > 1)
		strata_shared_visit(worker.database, looked_at);

	/* With thousands of stores, looking at all costs more than a pass. */
	do
	{
		List	   *again = NIL;

		list_sort(due, compare_debts);
		foreach (lc, due)
		{
			if (must_leave())
				return false;
			if (work_on((StrataDebt *) lfirst(lc)))
				again = lappend(again, lfirst(lc));
			bound_caches();
		}
		progress |= again != NIL;
		due = again;
	} while (due != NIL && GetCurrentTimestamp() < look_again);
	return progress;
}

/* Settings that must not depend on the database's or the cluster's. */
static void
pin_settings(void)
{
	static const char *const settings[][2] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"transaction_timeout", "0"},	/* from 17 on */
		{"idle_in_transaction_session_timeout", "0"},
		{"zero_damaged_pages", "off"},
		{"synchronous_commit", "local"},
	};

	for (int i = 0; i < (int) lengthof(settings); i++)
	{
		if (GetConfigOption(settings[i][0], true, false) != NULL)
			SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	}
}

void
strata_worker_main(Datum arg)
{
	int			slot = DatumGetInt32(arg);
	Oid			database;
	LOCKTAG		tag;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	worker.started = GetCurrentTimestamp();
	if (slot >= 0)
	{
		if (strata_shared == NULL || !take_place(slot, database))
			proc_exit(0);
		worker.database = strata_shared_database(database);
	}
	before_shmem_exit(leave_place, (Datum) 0);

	/* First: connecting is a transaction, with the database's settings. */
	pin_settings();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	pgstat_report_activity(STATE_RUNNING, "strata worker");
	HOLD_CANCEL_INTERRUPTS();
	STRATA_PAUSE("worker-connected");

	/* Seen by whoever wants the database for himself. */
	if (database_wanted())
		proc_exit(0);

	/* Without launcher, one at a time. */
	if (worker.place == NULL)
	{
		SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, InvalidOid, 0, STRATA_LOCK_DATABASE);
		if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
			proc_exit(0);
	}

	worker.mcxt = AllocSetContextCreate(TopMemoryContext, "strata worker round",
										ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(worker.mcxt);
	while (work_round() && !must_leave())
	{
		MemoryContextReset(worker.mcxt);
		(void) pgstat_report_stat(true);
	}

	if (worker.database != NULL)
		strata_shared_visit(worker.database, worker.next_due);
	worker.finished = true;
	proc_exit(0);
}
