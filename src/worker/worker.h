/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  Merging without being asked: launcher, workers, triggers.
 *
 * IDENTIFICATION
 *	  src/worker/worker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_WORKER_H
#define STRATA_WORKER_H

#include "worker/shared.h"

#include "merge/merge.h"

#include "postmaster/bgworker.h"
#include "storage/lock.h"

/* ---- launcher.c ---- */

/* From _PG_init, while preloading. */
extern void strata_launcher_register(void);

extern PGDLLEXPORT void strata_launcher_main(Datum arg);

/* ---- attempt.c: what was being done when the server crashed ---- */

/*
 * Note that the worker of a place is about to work on a store that failed so
 * often in a row, and take that back.  One write each; never raises an error.
 */
extern void strata_attempt_begin(int slot, Oid database, Oid store, StrataTask task,
								 int failures);
extern void strata_attempt_end(int place);

/*
 * Make failures of what was noted, once after shared memory was made.  Returns
 * whether there was anything.
 */
extern bool strata_attempt_recover(void);

/* ---- worker.c ---- */

/*
 * Fill in what starts a worker for a database; slot is its place in shared
 * memory, negative: it has none.
 */
extern void strata_worker_describe(BackgroundWorker *worker, Oid database, int slot);

extern PGDLLEXPORT void strata_worker_main(Datum arg);

/* The lock that DROP DATABASE and the like want for themselves. */
extern void strata_database_locktag(LOCKTAG *tag, Oid database);

/* First pause of a store that is blocked or wanted by others; seconds. */
#define STRATA_WORKER_DELAY_SEC		1

/* A store is settled so long after its last merge, or earlier. */
#define STRATA_SETTLE_QUIET_SEC		30

/* ---- look.c: what is due in a store ---- */

typedef struct StrataDebt
{
	Oid			store;
	StrataTrigger trigger;
	int			sealed;			/* pending sealed generations */
	int64		bytes;			/* pending */
	TimestampTz oldest;			/* opening time of the oldest pending, or 0 */
	bool		seal;			/* an active generation is old enough, too */
	TimestampTz due;			/* when the time trigger wants it next, or
								 * STRATA_NEVER */
	int64		fresh_bytes;	/* taken out of use in this turn */
} StrataDebt;

/*
 * Count what is pending, from shard pages, shard rows and the first pages of
 * generations.  The caller holds a lock on the storage and has a snapshot, no
 * matter which.
 */
extern void strata_debt(StrataStore *store, Relation storage, TimestampTz now,
						StrataDebt *debt);

/*
 * Compare with the last look at the store that was at least a minute ago, by
 * whomever; this look may become that.  False, with nothing noted: the store
 * has no shared state and make is false.
 */
typedef struct StrataGrowth
{
	TimestampTz since;			/* 0: the first look */
	int64		bytes;			/* pending now less pending then */
} StrataGrowth;

extern bool strata_debt_growth(const StrataDebt *debt, bool make, StrataGrowth *growth);

/* The number of sealed pending generations alone. */
extern int	strata_debt_sealed(StrataStore *store, Relation storage);

/*
 * Take stock after a pass: which upkeep pays now.  The caller holds a lock on
 * the storage and has an active snapshot.
 */
extern void strata_take_stock(StrataStore *store, Relation storage);

/* Is enough of the base superseded rows in sparse row groups? */
extern bool strata_upkeep_sparse(const StrataManifest *manifest, const StrataCompactNeed *need);

/* The same, or are there many row groups to be compacted? */
extern bool strata_upkeep_compact(const StrataManifest *manifest, const StrataCompactNeed *need);

/* So much of either that it is not to wait for space. */
extern bool strata_upkeep_urgent(const StrataManifest *manifest, const StrataCompactNeed *need);

/* ---- worker.c, for step.c and upkeep.c ---- */

/* This worker's place in shared memory; NULL: it has none, nobody sees it. */
extern StrataSharedWorker *strata_worker_place;

/* Something is due in this database at that time. */
extern void strata_worker_note_due(TimestampTz at);

/* ---- step.c ---- */

/* What a step does, in a transaction of its own. */
typedef void (*StrataWorkerStep)(StrataDebt *debt);

/*
 * Run one step for a store that exists; the memory context is the current one
 * afterwards.  False when it failed or gave way; the error is then noted and
 * the transaction rolled back.
 */
extern bool strata_worker_run_step(StrataTask task, StrataDebt *debt, StrataWorkerStep step);

/*
 * Lock and open the storage of a store that exists, without waiting.  The lock
 * stays to the end of the transaction.
 */
extern bool strata_worker_open_store(Oid ftrelid, LOCKMODE lockmode, StrataStore **store,
									 Relation *storage);

/* Start a transaction at READ COMMITTED. */
extern void strata_worker_begin_transaction(void);

/*
 * A store's qualified name, quoted, in mcxt; NULL: it is gone.  In a
 * transaction.
 */
extern char *strata_worker_store_name(Oid ftrelid, MemoryContext mcxt);

/*
 * A store could not be worked on because of others (blocked_by: by whom, if
 * that is known): leave it alone for a moment.
 */
extern void strata_worker_note_delay(Oid ftrelid, FullTransactionId blocked_by, bool gave_way);

/* Nothing was wrong with a store: forget failures and delays in a row. */
extern void strata_worker_note_success(Oid ftrelid);

/* min * 2^(n - 1) seconds, at most max; microseconds. */
extern TimestampTz strata_worker_backoff(int n, int min, int max);

/* How long a store is left alone after so many failures in a row; microseconds. */
extern TimestampTz strata_worker_failure_pause(int failures);

/* As in "merge of a table". */
extern const char *strata_task_name(StrataTask task);

/* ---- upkeep.c ---- */

/*
 * When a store of which nothing is to be merged wants upkeep; STRATA_NEVER: not
 * at all, as far as is known.
 */
extern TimestampTz strata_upkeep_at(const StrataSharedStore *shared);

/* So much out of use is worth a sweep of a table of which nothing is pending. */
#define STRATA_SWEEP_IDLE_BYTES	(256 * 1024)

/*
 * Bytes of the file that nothing of the manifest, no dictionary, no open extent
 * and no free run has: what sweeps may give back, and what is pending.
 */
extern int64 strata_upkeep_unreferenced(StrataStore *store, Relation storage,
										const StrataManifest *manifest);

/*
 * Have a store of which nothing is pending settled, if that pays and no merge
 * has told so since the server started.  False: the look failed, or did not get
 * its lock; it is due again.
 */
extern bool strata_worker_survey(StrataDebt *debt);

/* After a merge: see what it left to be done.  False: failed. */
extern bool strata_worker_take_stock(StrataDebt *debt);

/*
 * Sweep before a merge or a compaction, if that pays: what the last pass left is
 * no longer seen by anybody, most likely, and this one can use its space.  False:
 * failed.
 */
extern bool strata_sweep_ahead(StrataDebt *debt, const char *name);

/*
 * Compact, sweep and analyze, each when it pays.  idle: nothing is to be
 * merged.  *more: there is more to compact.  False: something failed.
 */
extern bool strata_keep_up(StrataDebt *debt, const char *name, bool idle, bool *more);

/* ---- trigger.c ---- */

extern void strata_trigger_init(void);

#endif							/* STRATA_WORKER_H */
