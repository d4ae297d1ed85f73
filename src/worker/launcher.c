/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  One process per cluster that starts workers where something is due.
 *
 * It is connected to no database, so it stands in the way of nothing; which
 * databases there are it reads from the shared catalog.  Whether one has the
 * extension only a worker can tell, by connecting: the launcher sends one to
 * each database when it starts, less and less often to one that has nothing
 * for it, and else when the time has come that the last worker or a writer
 * named (shared.h).  Templates and databases that refuse connections are not
 * visited.
 *
 * While workers run, the launcher sees to it that they stand in nobody's way.
 * A lock that it asks for without waiting, in a mode that does not conflict
 * with what the worker holds, is refused when somebody waits in line for a
 * stronger one.  Then it interrupts the worker, which rolls back and finds out
 * why.  So a worker gives way wherever it is, in an index build as well.
 *
 * It runs from the end of recovery on, hence never on a standby.
 *
 * Errors end the process; the postmaster starts it again.  Workers that run
 * meanwhile go on, and their places are found in shared memory.
 *
 * IDENTIFICATION
 *	  src/worker/launcher.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "compat.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* The list of databases is read again so often. */
#define LAUNCHER_REFRESH_SEC	15

/* While workers run: look whether somebody waits for them. */
#define LAUNCHER_POLL_MSEC		500

/* A worker that has not started after this long never will. */
#define LAUNCHER_START_SEC		60

/* A shortage of worker slots is over when there was none for so long. */
#define LAUNCHER_SHORTAGE_SEC	600

/* The launcher itself ended with an error. */
#define LAUNCHER_RESTART_SEC	5

/* After a crash of unknown cause: do not go into the same wall at once. */
#define LAUNCHER_CRASH_SEC		10

typedef struct DatabaseRow
{
	Oid			oid;
	bool		allowed;
} DatabaseRow;

static BackgroundWorkerHandle *handles[STRATA_MAX_WORKERS];
static TimestampTz shortage_at = 0; /* 0: there is none */
static TimestampTz first_visit = 0; /* of databases found */
static bool list_full_logged = false;

void
strata_launcher_register(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = LAUNCHER_RESTART_SEC;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "strata");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "strata_launcher_main");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "strata launcher");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "strata launcher");
	RegisterBackgroundWorker(&worker);
}

/* ---- databases ---- */

static List *
read_databases(void)
{
	List	   *rows = NIL;
	MemoryContext mcxt = CurrentMemoryContext;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(mcxt);
		DatabaseRow *row = palloc(sizeof(DatabaseRow));

		/* A negative limit other than -1 is what a failed DROP leaves. */
		row->oid = form->oid;
		row->allowed = form->datallowconn && !form->datistemplate && form->datconnlimit >= -1;
		rows = lappend(rows, row);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(mcxt);
	return rows;
}

static void
refresh_databases(void)
{
	List	   *rows = read_databases();
	ListCell   *lc;

	for (int i = 0; i < STRATA_MAX_DATABASES; i++)
	{
		StrataSharedDatabase *database = &strata_shared->databases[i];
		Oid			oid = pg_atomic_read_u32(&database->oid);
		bool		found = false;

		foreach (lc, rows)
		{
			DatabaseRow *row = (DatabaseRow *) lfirst(lc);

			if (row->oid == oid)
				found = row->allowed;
		}
		if (OidIsValid(oid) && !found)
			pg_atomic_write_u32(&database->oid, InvalidOid);
	}

	foreach (lc, rows)
	{
		DatabaseRow *row = (DatabaseRow *) lfirst(lc);
		StrataSharedDatabase *place;

		if (!row->allowed || strata_shared_database(row->oid) != NULL)
			continue;
		place = strata_shared_database(InvalidOid);
		if (place == NULL)
		{
			if (!list_full_logged)
				ereport(LOG,
						(errmsg("strata looks after no more than %d databases",
								STRATA_MAX_DATABASES),
						 errhint("Run strata.drain() in the others.")));
			list_full_logged = true;
			break;
		}
		pg_atomic_write_u64(&place->next_visit, (uint64) first_visit);
		pg_atomic_write_u32(&place->refused, 0);
		pg_atomic_write_u32(&place->surveyed, 0);
		pg_write_barrier();
		pg_atomic_write_u32(&place->oid, row->oid);
	}
	list_free_deep(rows);
}

/* ---- workers ---- */

/* Take back the places of workers that ended, or never started. */
static void
reap_workers(TimestampTz now)
{
	for (int i = 0; i < STRATA_MAX_WORKERS; i++)
	{
		StrataSharedWorker *worker = &strata_shared->workers[i];
		pid_t		pid;
		bool		gone = false;

		if (handles[i] != NULL && GetBackgroundWorkerPid(handles[i], &pid) == BGWH_STOPPED)
		{
			pfree(handles[i]);
			handles[i] = NULL;
			gone = true;
		}

		LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
		if (OidIsValid(worker->database) && worker->pid == 0 &&
			(gone || (handles[i] == NULL &&
					  now - worker->started > LAUNCHER_START_SEC * USECS_PER_SEC)))
			worker->database = InvalidOid;
		LWLockRelease(strata_shared->lock);
	}
}

/* How many workers there are, for one database and in all. */
static int
count_workers(Oid database, int *total)
{
	int			count = 0;

	*total = 0;
	LWLockAcquire(strata_shared->lock, LW_SHARED);
	for (int i = 0; i < STRATA_MAX_WORKERS; i++)
	{
		Oid			oid = strata_shared->workers[i].database;

		if (!OidIsValid(oid))
			continue;
		(*total)++;
		if (oid == database)
			count++;
	}
	LWLockRelease(strata_shared->lock);
	return count;
}

static void
end_shortage(void)
{
	shortage_at = 0;
	pg_atomic_write_u32(&strata_shared->shortage, 0);
}

static bool
start_worker(Oid database, TimestampTz now)
{
	BackgroundWorker worker;
	int			slot = -1;

	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < STRATA_MAX_WORKERS && slot < 0; i++)
	{
		StrataSharedWorker *place = &strata_shared->workers[i];

		if (OidIsValid(place->database) || handles[i] != NULL)
			continue;
		slot = i;
		place->database = database;
		place->pid = 0;
		place->started = now;
		place->since = now;
		place->task = STRATA_TASK_LOOK;
		place->store = InvalidOid;
		place->storage = InvalidOid;
	}
	LWLockRelease(strata_shared->lock);
	if (slot < 0)
		return false;

	strata_worker_describe(&worker, database, slot);
	worker.bgw_notify_pid = MyProcPid;
	if (RegisterDynamicBackgroundWorker(&worker, &handles[slot]))
	{
		/* Where there are a few slots, every other start fails. */
		if (shortage_at != 0 && now - shortage_at > LAUNCHER_SHORTAGE_SEC * USECS_PER_SEC)
			end_shortage();
		return true;
	}

	handles[slot] = NULL;
	LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	strata_shared->workers[slot].database = InvalidOid;
	LWLockRelease(strata_shared->lock);
	pg_atomic_write_u32(&strata_shared->shortage, 1);
	if (shortage_at == 0)
		ereport(LOG,
				(errmsg("no background worker slot is free for a strata worker"),
				 errhint("Increase max_worker_processes, or set strata.max_workers lower.")));
	shortage_at = now;
	return false;
}

/* Would the lock be given now?  It is let go at once. */
static bool
lock_is_free(const LOCKTAG *tag, LOCKMODE mode)
{
	LockAcquireResult result = LockAcquire(tag, mode, true, true);

	if (result == LOCKACQUIRE_NOT_AVAIL)
		return false;
	(void) LockRelease(tag, mode, true);
	return true;
}

/*
 * Start a worker for each database whose time has come, those with fewest
 * workers first, then those that have waited longest.  Returns how long there
 * is nothing to do, in milliseconds.
 */
static long
start_workers(TimestampTz now)
{
	bool		refreshed = false;

	for (;;)
	{
		StrataSharedDatabase *next = NULL;
		TimestampTz next_at = STRATA_NEVER;
		TimestampTz earliest = STRATA_NEVER;
		int			fewest = STRATA_MAX_WORKERS;
		int			total = 0;
		LOCKTAG		tag;

		for (int i = 0; i < STRATA_MAX_DATABASES; i++)
		{
			StrataSharedDatabase *database = &strata_shared->databases[i];
			Oid			oid = pg_atomic_read_u32(&database->oid);
			TimestampTz at = (TimestampTz) pg_atomic_read_u64(&database->next_visit);
			int			count;

			if (!OidIsValid(oid))
				continue;
			if (at > now)
			{
				earliest = Min(earliest, at);
				continue;
			}
			count = count_workers(oid, &total);
			if (next == NULL || count < fewest || (count == fewest && at < next_at))
			{
				next = database;
				next_at = at;
				fewest = count;
			}
		}

		if (next == NULL)
		{
			pg_atomic_write_u32(&strata_shared->crowded, 0);
			return earliest == STRATA_NEVER ? LAUNCHER_REFRESH_SEC * 1000L :
				TimestampDifferenceMilliseconds(now, earliest) + 1;
		}
		if (strata_max_workers == 0)
			return LAUNCHER_REFRESH_SEC * 1000L;
		if (total >= strata_max_workers)
		{
			/* A database without any shall not wait for long. */
			pg_atomic_write_u32(&strata_shared->crowded, fewest == 0);
			return LAUNCHER_POLL_MSEC;
		}

		/* Being dropped, renamed or copied: a worker would wait, and may find it gone. */
		strata_database_locktag(&tag, pg_atomic_read_u32(&next->oid));
		if (!lock_is_free(&tag, RowExclusiveLock))
		{
			pg_atomic_write_u64(&next->next_visit,
								(uint64) (now + LAUNCHER_POLL_MSEC * INT64CONST(1000)));
			continue;
		}
		if (!refreshed)
		{
			refresh_databases();
			refreshed = true;
			continue;
		}

		/* The worker, or a writer, says when the next is due. */
		pg_atomic_write_u64(&next->next_visit,
							(uint64) (now + SECS_PER_HOUR * USECS_PER_SEC));
		if (!start_worker(pg_atomic_read_u32(&next->oid), now))
		{
			pg_atomic_write_u64(&next->next_visit, (uint64) now);
			return 5000L;
		}
	}
}

/* Interrupt workers that somebody waits for.  Returns whether any runs. */
static bool
give_way(void)
{
	bool		any = false;

	for (int i = 0; i < STRATA_MAX_WORKERS; i++)
	{
		StrataSharedWorker worker;
		LOCKTAG		tag;
		bool		in_the_way;

		LWLockAcquire(strata_shared->lock, LW_SHARED);
		worker.database = strata_shared->workers[i].database;
		worker.pid = strata_shared->workers[i].pid;
		worker.store = strata_shared->workers[i].store;
		worker.storage = strata_shared->workers[i].storage;
		LWLockRelease(strata_shared->lock);
		if (!OidIsValid(worker.database))
			continue;
		any = true;
		if (worker.pid == 0)
			continue;

		strata_database_locktag(&tag, worker.database);
		in_the_way = !lock_is_free(&tag, RowExclusiveLock);
		if (!in_the_way && OidIsValid(worker.storage))
		{
			SET_LOCKTAG_RELATION(tag, worker.database, worker.storage);
			in_the_way = !lock_is_free(&tag, AccessShareLock);
		}
		if (!in_the_way && OidIsValid(worker.store))
		{
			SET_LOCKTAG_RELATION(tag, worker.database, worker.store);
			in_the_way = !lock_is_free(&tag, AccessShareLock);
		}
		if (!in_the_way)
			continue;

		LWLockAcquire(strata_shared->lock, LW_SHARED);
		if (strata_shared->workers[i].pid == worker.pid)
			(void) kill(worker.pid, SIGINT);
		LWLockRelease(strata_shared->lock);
	}
	return any;
}

/* The settings that say what is due, as one string. */
static char *
trigger_settings(void)
{
	static const char *const names[] = {"strata.auto_merge", "strata.merge_interval",
										"strata.merge_after_generations"};
	StringInfoData settings;

	initStringInfo(&settings);
	for (int i = 0; i < (int) lengthof(names); i++)
		appendStringInfo(&settings, "%s ", GetConfigOption(names[i], false, false));
	return settings.data;
}

/* SIGHUP */
static void
reload(TimestampTz now)
{
	int			max_workers = strata_max_workers;
	char	   *before = trigger_settings();
	char	   *after;

	ProcessConfigFile(PGC_SIGHUP);
	if (strata_max_workers != max_workers)
		end_shortage();
	after = trigger_settings();
	for (int i = 0; strcmp(before, after) != 0 && i < STRATA_MAX_DATABASES; i++)
	{
		StrataSharedDatabase *database = &strata_shared->databases[i];

		if (OidIsValid(pg_atomic_read_u32(&database->oid)) &&
			pg_atomic_read_u32(&database->refused) == 0)
			strata_shared_visit(database, now);
	}
	pfree(before);
	pfree(after);
}

static void
launcher_exit(int code, Datum arg)
{
	strata_shared->launcher = NULL;
	strata_shared->launcher_pid = 0;
}

void
strata_launcher_main(Datum arg)
{
	TimestampTz next_refresh = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (strata_shared == NULL)
		proc_exit(0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	before_shmem_exit(launcher_exit, (Datum) 0);

	/*
	 * Shared memory that is much younger than the server was made after a
	 * crash.  Where no worker was at a store, it may have been a worker's
	 * doing elsewhere: leave a moment to turn merging off.
	 */
	if (!strata_shared->recovered)
	{
		bool		known = strata_attempt_recover();

		if (!known && strata_shared->started - PgStartTime > LAUNCHER_CRASH_SEC * USECS_PER_SEC)
			first_visit = strata_shared->started + LAUNCHER_CRASH_SEC * USECS_PER_SEC;
		strata_shared->recovered = true;
	}
	strata_shared->launcher_pid = MyProcPid;
	strata_shared->launcher = MyLatch;

	while (!ShutdownRequestPending)
	{
		TimestampTz now;
		long		timeout;

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload(GetCurrentTimestamp());
		}

		now = GetCurrentTimestamp();
		if (pg_atomic_exchange_u32(&strata_shared->refresh, 0) != 0 || now >= next_refresh)
		{
			refresh_databases();
			next_refresh = now + LAUNCHER_REFRESH_SEC * USECS_PER_SEC;
		}
		reap_workers(now);
		timeout = start_workers(now);
		if (give_way())
			timeout = Min(timeout, LAUNCHER_POLL_MSEC);
		timeout = Min(timeout, TimestampDifferenceMilliseconds(now, next_refresh) + 1);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout, strata_wait_event("StrataLauncherMain"));
	}

	/* 1: start it again, unless the server is going down. */
	proc_exit(1);
}
