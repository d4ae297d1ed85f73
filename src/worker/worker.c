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
 * Each step is a transaction of its own (step.c), so that one store's failures
 * are nothing to the others.
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
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* A worker ends after that long, or sooner when others wait for its place. */
#define WORKER_SLICE_SEC		300
#define WORKER_CROWDED_SEC		5

/* A database that others want, or that a worker left in bad order, is looked at
 * again after that long. */
#define WORKER_AWAY_SEC			5

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
	StrataSharedDatabase *database; /* NULL: not preloaded */
	TimestampTz started;
	TimestampTz next_due;		/* known so far in this round */
	int			cached;			/* turns of stores since caches were emptied */
	bool		finished;		/* ended in good order */
	MemoryContext mcxt;			/* of a round */
} Worker;

static Worker worker = {0};

StrataSharedWorker *strata_worker_place = NULL;

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
		strata_worker_place = place;
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
	if (strata_worker_place == NULL)
		return;

	strata_attempt_end((int) (strata_worker_place - strata_shared->workers));
	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	strata_worker_place->store = InvalidOid;
	strata_worker_place->storage = InvalidOid;
	strata_worker_place->pid = 0;
	strata_worker_place->database = InvalidOid;
	LWLockRelease(strata_shared->lock);

	/* Terminated, or something went wrong outside any store's work. */
	if (!worker.finished && worker.database != NULL)
		strata_shared_visit(worker.database,
							GetCurrentTimestamp() + WORKER_AWAY_SEC * USECS_PER_SEC);
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
		strata_worker_note_due(GetCurrentTimestamp() + WORKER_AWAY_SEC * USECS_PER_SEC);
		return true;
	}
	if (strata_worker_place == NULL)
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

/* ---- looking ---- */

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

/*
 * Is the store still to be surveyed when the round that surveys all is over?
 * What is known of a store is not made for one that has been.
 */
static void
note_survey(Oid ftrelid, bool due)
{
	StrataSharedStore *shared = strata_store_lock(ftrelid, due);

	if (shared == NULL)
		return;
	shared->survey_due = due;
	strata_store_unlock();
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

	survey = survey || (have && known.survey_due);
	if (have && known.next_try > now)
	{
		if (survey)
			note_survey(ftrelid, true);
		strata_worker_note_due(known.next_try);
		return;
	}

	debt = palloc0(sizeof(StrataDebt));
	debt->store = ftrelid;
	debt->due = STRATA_NEVER;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_look))
	{
		if (survey)
			note_survey(ftrelid, true);
		return;
	}

	if (survey)
	{
		bool		pending = debt->trigger != STRATA_TRIGGER_NONE || debt->oldest != 0;
		bool		done = pending || strata_worker_survey(debt);

		note_survey(ftrelid, !done);
		if (!done)
			return;
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
			strata_worker_note_success(ftrelid);
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

	strata_worker_begin_transaction();
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
						(errmsg("strata: dropped %d stores of database %s whose foreign table was dropped while event triggers were off",
								n, quote_identifier(get_database_name(MyDatabaseId)))));
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
		/* Should the rest of this turn fail; else note_settle knows better. */
		shared->settle_at = record->ended + STRATA_SETTLE_QUIET_SEC * USECS_PER_SEC;
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

	strata_worker_begin_transaction();
	name = strata_worker_store_name(ftrelid, worker.mcxt);
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
			strata_worker_note_delay(ftrelid, pass_blocked_by, false);
			return false;
		}
	}
	else
		strata_worker_note_due(debt->due);

	if (strata_keep_up(debt, name, debt->trigger == STRATA_TRIGGER_NONE, &more))
		strata_worker_note_success(ftrelid);

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
	if (strata_worker_place == NULL)
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
