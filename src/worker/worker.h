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

/* ---- worker.c ---- */

/*
 * Fill in what starts a worker for a database; slot is its place in shared
 * memory, negative: it has none.
 */
extern void strata_worker_describe(BackgroundWorker *worker, Oid database, int slot);

extern PGDLLEXPORT void strata_worker_main(Datum arg);

/* The lock that DROP DATABASE and the like want for themselves. */
extern void strata_database_locktag(LOCKTAG *tag, Oid database);

/* ---- look.c: what is due in a store ---- */

typedef struct StrataDebt
{
	Oid			store;
	StrataTrigger trigger;
	int			sealed;			/* pending sealed generations */
	TimestampTz oldest;			/* opening time of the oldest pending, or 0 */
	bool		seal;			/* an active generation is old enough, too */
	TimestampTz due;			/* when the time trigger wants it next, or
								 * STRATA_NEVER */
} StrataDebt;

/*
 * Count what is pending, from shard pages and shard rows alone.  The caller
 * holds a lock on the storage.
 */
extern void strata_debt(StrataStore *store, Relation storage, TimestampTz now,
						StrataDebt *debt);

/* The number of sealed pending generations alone. */
extern int	strata_debt_sealed(StrataStore *store, Relation storage);

/*
 * Take stock after a pass: which upkeep pays now.  The caller holds a lock on
 * the storage and has an active snapshot.
 */
extern void strata_take_stock(StrataStore *store, Relation storage);

/* ---- views.c ---- */

/*
 * Call look; when it raises an error, undo what it did and return false with
 * the error's message (palloc'd), so that one damaged store does not make a
 * view of all useless.
 */
typedef void (*StrataLook) (void *arg);
extern bool strata_guard(StrataLook look, void *arg, char **message);

/* ---- trigger.c ---- */

extern void strata_trigger_init(void);

#endif							/* STRATA_WORKER_H */
