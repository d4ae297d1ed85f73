/*-------------------------------------------------------------------------
 *
 * locks.h
 *	  Heavyweight locks of a store: advisory tags with (database, storage oid).
 *
 * Their order is in locks.c.  Never a heavyweight wait or an xid wait under a
 * page lock.
 *
 * IDENTIFICATION
 *	  src/storage/locks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_LOCKS_H
#define STRATA_LOCKS_H

#include "strata.h"

#include "storage/lock.h"

/* objsubid of each tag; 1 and 2 are core's advisory locks. */
typedef enum StrataLockKind
{
	STRATA_LOCK_KEY = 7,
	STRATA_LOCK_STORE = 8,
	STRATA_LOCK_PASS = 9,
	STRATA_LOCK_EXTENT = 10,
	STRATA_LOCK_DATABASE = 11	/* of no store: a worker without launcher */
} StrataLockKind;

/*
 * Take a lock until the end of the transaction; hash is used by KEY only.
 * False only when nowait and not available.
 */
extern bool strata_lock(Oid storage, StrataLockKind kind, uint32 hash,
						LOCKMODE mode, bool nowait);

/*
 * True when a key cannot be locked in that mode because of transactions that are
 * over, for all others to see, and just about to let go of their locks; false if
 * one that goes on is in the way, too, and for prepared ones.  Takes a look at
 * two locks; only if nobody who goes on holds either, but somebody may wait for
 * it, at the whole lock table (all of whose partitions are locked meanwhile).
 */
extern bool strata_key_lock_outlived(Oid storage, uint32 hash, LOCKMODE mode);

/* Let go of it before that, once for each time it was taken. */
extern void strata_unlock(Oid storage, StrataLockKind kind, uint32 hash,
						  LOCKMODE mode);

/*
 * Run action(arg) under the extent lock, which is let go also when it fails.
 * That is no matter of course: the flush of a memtable runs under its
 * statement's resource owner, which lives on when a nested block swallows the
 * error.
 */
extern void strata_with_extent_lock(Oid storage, void (*action)(void *arg), void *arg);

/* True when this session holds the lock in that mode. */
extern bool strata_lock_held(Oid storage, StrataLockKind kind, uint32 hash,
							 LOCKMODE mode);

/* True when this session holds a lock on the relation, in whatever mode. */
extern bool strata_relation_locked(Oid relid);

/*
 * True when somebody waits for AccessExclusiveLock on the storage relation,
 * on which the caller holds ShareUpdateExclusiveLock.
 */
extern bool strata_storage_lock_wanted(Oid storage);

#endif							/* STRATA_LOCKS_H */
