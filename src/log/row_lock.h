/*-------------------------------------------------------------------------
 *
 * row_lock.h
 *	  Locking a row that was read, and what became of it since.
 *
 * IDENTIFICATION
 *	  src/log/row_lock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ROW_LOCK_H
#define STRATA_ROW_LOCK_H

#include "log/view.h"

#include "nodes/lockoptions.h"

typedef enum StrataRowState
{
	STRATA_ROW_SAME,			/* the version that was read is the newest */
	STRATA_ROW_CHANGED,			/* another transaction has put a newer one, maybe
								 * under another key */
	STRATA_ROW_GONE,			/* another transaction has deleted it */
	STRATA_ROW_OWN_COMMAND,		/* this command has put or deleted it */
	STRATA_ROW_OWN_LATER,		/* a command started by this one has */
	STRATA_ROW_NOT_LOCKED		/* somebody is in the way, and not waited for */
} StrataRowState;

typedef struct StrataRowLocker StrataRowLocker;

/*
 * view is of the statement's snapshot, which stays registered as long as the
 * locker is in use.  cid is the statement's, InvalidCommandId if it writes
 * nothing.  Belongs to CurrentMemoryContext.
 */
extern StrataRowLocker *strata_row_locker_begin(StrataView *view, CommandId cid);
extern void strata_row_locker_end(StrataRowLocker *locker);

/*
 * Lock the key of the row that was read with this TID, or the one that it has
 * got since, and say what became of the row.  mode as in strata_lock_key.
 * Waits for other transactions as policy says; LockWaitError raises 55P03.
 * Where the snapshot is fixed, CHANGED and GONE raise 40001; GONE to another
 * partition always does.  seen (for SAME and CHANGED): versions of the row's
 * key that the log holds before this position were considered.  Leaves memory
 * behind in CurrentMemoryContext.
 */
extern StrataRowState strata_row_lock(StrataRowLocker *locker, uint32 hash, Datum *keyvalues,
									  const ItemPointerData *tid, LOCKMODE mode,
									  LockWaitPolicy policy, StrataPosition *seen);

/* The newer version, after CHANGED; valid until the next call. */
extern void strata_row_locker_newest(StrataRowLocker *locker, Datum *values, bool *isnull,
									 ItemPointer tid);
extern void strata_row_locker_newest_key(StrataRowLocker *locker, Datum *keyvalues);

/* The row, or its key, that was read with this TID; valid until the next call. */
extern void strata_row_locker_row(StrataRowLocker *locker, const ItemPointerData *tid,
								  Datum *values, bool *isnull);
extern void strata_row_locker_key(StrataRowLocker *locker, const ItemPointerData *tid,
								  Datum *keyvalues);

#endif							/* STRATA_ROW_LOCK_H */
