/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  What launcher, workers, writers and views know of each other.
 *
 * IDENTIFICATION
 *	  src/worker/shared.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_SHARED_H
#define STRATA_SHARED_H

#include "strata.h"

#include "merge/progress.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

/* Most that strata.max_workers can be. */
#define STRATA_MAX_WORKERS		32

/* Databases that can be looked after. */
#define STRATA_MAX_DATABASES	1024

/* Stores whose state is remembered; the least recently used is forgotten. */
#define STRATA_MAX_STORES		4096

#define STRATA_ERROR_SIZE		240

/* Far away: nothing is to be done that is known of. */
#define STRATA_NEVER			((TimestampTz) PG_INT64_MAX)

extern int	strata_max_workers;

typedef enum StrataTask
{
	STRATA_TASK_LOOK,			/* for something to do */
	STRATA_TASK_SEAL,
	STRATA_TASK_MERGE,
	STRATA_TASK_COMPACT,
	STRATA_TASK_SWEEP,
	STRATA_TASK_ANALYZE
} StrataTask;

/*
 * A database.  Only the launcher adds and removes them; everybody may bring
 * the next visit forward.
 */
typedef struct StrataSharedDatabase
{
	pg_atomic_uint32 oid;		/* 0: free place */
	pg_atomic_uint64 next_visit;	/* TimestampTz */
	pg_atomic_uint32 refused;	/* visits in a row without extension */
	pg_atomic_uint32 surveyed;	/* its stores were looked at for upkeep that was
								 * due before shared memory was made */
} StrataSharedDatabase;

/* A worker; filled in by the launcher, then by the worker itself. */
typedef struct StrataSharedWorker
{
	Oid			database;		/* InvalidOid: free place */
	int			pid;			/* 0: not started yet */
	TimestampTz started;
	TimestampTz since;			/* of the task */
	StrataTask	task;
	Oid			store;			/* foreign table, InvalidOid: none */
	Oid			storage;
	StrataProgress progress;
} StrataSharedWorker;

typedef struct StrataStoreKey
{
	Oid			database;
	Oid			store;			/* foreign table */
} StrataStoreKey;

typedef enum StrataTrigger
{
	STRATA_TRIGGER_NONE,
	STRATA_TRIGGER_COUNT,
	STRATA_TRIGGER_TIME
} StrataTrigger;

/* What is remembered of a store since the server started. */
typedef struct StrataSharedStore
{
	StrataStoreKey key;
	TimestampTz used_at;

	/* failures */
	int			failures;		/* in a row */
	int			delays;			/* in a row: blocked or gave way */
	TimestampTz failed_at;		/* 0: never */
	StrataTask	failed_task;
	TimestampTz next_try;		/* 0: any time */
	char		sqlstate[6];
	char		error[STRATA_ERROR_SIZE];
	int			crash_place;	/* of its record in attempt.c; 0: none */
	StrataTrigger wanted;		/* what a worker last found */
	FullTransactionId blocked_by;

	/* counters */
	int64		passes;
	int64		generations;
	int64		rows_read;
	int64		rows_merged;
	int64		bytes_merged;
	int64		bytes_written;
	int64		busy_usec;
	int64		failed;
	int64		gave_way;
	int64		compactions;
	int64		sweeps;
	int64		blocks_freed;
	int64		analyzes;
	TimestampTz last_merge;		/* 0: none */

	/* what upkeep is due */
	bool		survey_due;		/* the look at it when its database was surveyed
								 * failed */
	bool		compact_due;
	TimestampTz settle_at;		/* if nothing is merged before; 0: no need */
	int			vain_settles;	/* in a row: nothing came of it */
	int64		settled_bytes;	/* smallest size of the file since a merge */
	int64		unswept_bytes;	/* taken out of use since the last sweep */
	int64		dead_tids;		/* superseded since the key index was swept */
	int64		changed_rows;	/* since the last ANALYZE */
	TimestampTz next_sweep;
	int			vain_sweeps;	/* in a row: most was still needed */

	/* the last look at the backlog */
	TimestampTz looked_at;
	int64		looked_bytes;
} StrataSharedStore;

typedef struct StrataShared
{
	LWLock	   *lock;			/* workers[], and the hash of stores */
	Latch	   *launcher;		/* NULL: not running */
	int			launcher_pid;
	bool		recovered;		/* attempt.c: by the first launcher */
	TimestampTz started;
	pg_atomic_uint32 crowded;	/* a database waits for a free worker */
	pg_atomic_uint32 refresh;	/* somebody's database is not in the list */
	pg_atomic_uint32 shortage;	/* no free background worker slot */
	StrataSharedDatabase databases[STRATA_MAX_DATABASES];
	StrataSharedWorker workers[STRATA_MAX_WORKERS];
} StrataShared;

/* NULL when the library was not preloaded. */
extern StrataShared *strata_shared;

/* From _PG_init. */
extern void strata_shared_define_gucs(void);
extern void strata_shared_request(void);

/* The place of a database, or NULL. */
extern StrataSharedDatabase *strata_shared_database(Oid oid);

/* See to it that a worker looks after the database at that time or before. */
extern void strata_shared_visit(StrataSharedDatabase *database, TimestampTz at);

/* Wake the launcher up; throws nothing. */
extern void strata_shared_wake(void);

/*
 * The state of a store of this database, in shared memory, or in this process
 * alone when there is none.  Held exclusively until strata_store_unlock.
 * NULL, with nothing locked, when it is not there and make is false.
 */
extern StrataSharedStore *strata_store_lock(Oid store, bool make);
extern void strata_store_unlock(void);

/* The same for any database. */
extern StrataSharedStore *strata_store_lock_of(Oid database, Oid store, bool make);

/* A copy; false when nothing is known. */
extern bool strata_store_look(Oid store, StrataSharedStore *copy);

/*
 * Copies of all that is known of stores of this database (palloc'd); returns
 * how many there are.
 */
extern int	strata_store_list_known(StrataSharedStore **copies);

#endif							/* STRATA_SHARED_H */
