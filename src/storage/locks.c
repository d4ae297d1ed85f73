/*-------------------------------------------------------------------------
 *
 * locks.c
 *	  Heavyweight locks of a store.
 *
 * Maps the five locks of a store to advisory lock tags whose object
 * subidentifiers core does not use, so that they show in pg_locks, honour
 * lock_timeout, take part in deadlock detection, go with a rolled back
 * savepoint and survive PREPARE TRANSACTION.  pg_advisory_unlock_all leaves
 * them alone: they are held by the transaction, not by the session.
 *
 * Order: foreign table, pass, storage relation, store, keys, extent; then page
 * locks, under which no heavyweight lock is waited for at all.  Small inserts
 * lock their keys in the order of hashes.  Statements that change rows lock
 * them as they come, as on a heap, and leave it to the deadlock detector.
 *
 * IDENTIFICATION
 *	  src/storage/locks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/locks.h"

#include "compat.h"

#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/resowner.h"

static void set_tag(LOCKTAG *tag, Oid storage, StrataLockKind kind, uint32 hash);

static void
set_tag(LOCKTAG *tag, Oid storage, StrataLockKind kind, uint32 hash)
{
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, storage,
						 kind == STRATA_LOCK_KEY ? hash : 0, (uint16) kind);
}

static bool
lock_held_in_any_mode(const LOCKTAG *tag)
{
	for (LOCKMODE mode = AccessShareLock; mode <= AccessExclusiveLock; mode++)
	{
		if (strata_lock_held_by_me(tag, mode))
			return true;
	}
	return false;
}

/* Does anybody whose transaction goes on hold what conflicts? */
static bool
is_contested(const LOCKTAG *tag, LOCKMODE mode)
{
	VirtualTransactionId *holders;
	int			nholders;

	holders = GetLockConflicts(tag, mode, &nholders);
	pfree(holders);
	return nholders > 0;
}

/*
 * Who does not want to wait is refused also for the sake of those who wait,
 * even if that is for a weaker lock of his own.  Where nobody else holds more
 * than AccessShareLock (nothing, if that conflicts), whoever is first in the
 * queue waits for us; then ProcSleep puts us before him, and does not sleep.
 * Only if somebody gets a lock in between will he be waited for.
 */
static bool
goes_first(const LOCKTAG *tag, LOCKMODE mode)
{
	return lock_held_in_any_mode(tag) && !is_contested(tag, Max(mode, ExclusiveLock));
}

/*
 * Who owns locks that stand for row locks: not the portal that runs, whose
 * locks go when it fails in a nested block, but the transaction or nested block
 * that opened it.  What a cursor has locked before stays so, as on a heap.
 */
static ResourceOwner
lock_owner(StrataLockKind kind)
{
	if ((kind == STRATA_LOCK_KEY || kind == STRATA_LOCK_STORE) &&
		ActivePortal != NULL && CurrentResourceOwner == ActivePortal->resowner)
		return ResourceOwnerGetParent(CurrentResourceOwner);
	return CurrentResourceOwner;
}

bool
strata_lock(Oid storage, StrataLockKind kind, uint32 hash, LOCKMODE mode, bool nowait)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;
	volatile bool locked = true;

	set_tag(&tag, storage, kind, hash);
	CurrentResourceOwner = lock_owner(kind);
	PG_TRY();
	{
		if (LockAcquire(&tag, mode, false, nowait) == LOCKACQUIRE_NOT_AVAIL)
		{
			locked = goes_first(&tag, mode);
			if (locked)
				(void) LockAcquire(&tag, mode, false, false);
		}
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
	return locked;
}

/* Is this a holder of the lock, in a mode that conflicts? */
static bool
conflicts(const LockInstanceData *instance, const LOCKTAG *tag, LOCKMODE mode)
{
	if (memcmp(&instance->locktag, tag, sizeof(LOCKTAG)) != 0)
		return false;
	for (LOCKMODE held = AccessShareLock; held <= AccessExclusiveLock; held++)
	{
		if ((instance->holdMask & LOCKBIT_ON(held)) != 0 && DoLockModesConflict(held, mode))
			return true;
	}
	return false;
}

bool
strata_key_lock_outlived(Oid storage, uint32 hash, LOCKMODE mode)
{
	LOCKTAG		key;
	LOCKTAG		store;
	LockData   *locks;
	bool		outlived = false;

	set_tag(&key, storage, STRATA_LOCK_KEY, hash);
	set_tag(&store, storage, STRATA_LOCK_STORE, 0);
	if (is_contested(&key, mode) || is_contested(&store, RowExclusiveLock))
		return false;

	/* Only the whole lock table shows those who are over. */
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements && !outlived; i++)
	{
		LockInstanceData *instance = &locks->locks[i];

		outlived = !LocalTransactionIdIsValid(strata_lock_instance_lxid(instance)) &&
			(conflicts(instance, &key, mode) || conflicts(instance, &store, RowExclusiveLock));
	}
	pfree(locks->locks);
	pfree(locks);
	return outlived;
}

void
strata_unlock(Oid storage, StrataLockKind kind, uint32 hash, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;
	bool		held;

	set_tag(&tag, storage, kind, hash);
	CurrentResourceOwner = lock_owner(kind);
	held = LockRelease(&tag, mode, false);
	CurrentResourceOwner = owner;
	if (!held)
		elog(ERROR, "lock %d of relation %u is not held", (int) kind, storage);
}

void
strata_with_extent_lock(Oid storage, void (*action)(void *arg), void *arg)
{
	ResourceOwner owner = CurrentResourceOwner;

	(void) strata_lock(storage, STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
	PG_TRY();
	{
		action(arg);
	}
	PG_CATCH();
	{
		ResourceOwner current = CurrentResourceOwner;

		CurrentResourceOwner = owner;
		strata_unlock(storage, STRATA_LOCK_EXTENT, 0, ExclusiveLock);
		CurrentResourceOwner = current;
		PG_RE_THROW();
	}
	PG_END_TRY();
	strata_unlock(storage, STRATA_LOCK_EXTENT, 0, ExclusiveLock);
}

bool
strata_lock_held(Oid storage, StrataLockKind kind, uint32 hash, LOCKMODE mode)
{
	LOCKTAG		tag;

	set_tag(&tag, storage, kind, hash);
	return strata_lock_held_by_me(&tag, mode);
}

bool
strata_relation_locked(Oid relid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	return lock_held_in_any_mode(&tag);
}

bool
strata_storage_lock_wanted(Oid storage)
{
	LOCKTAG		tag;
	LockData   *locks;
	bool		wanted = false;

	/*
	 * ShareUpdateExclusiveLock is never taken by the fast path, so asking for
	 * its waiters is safe, and cheap: a look at one lock.
	 */
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, storage);
	if (!LockHasWaiters(&tag, ShareUpdateExclusiveLock, false))
		return false;

	/*
	 * Somebody waits, but a VACUUM or another pass (ShareUpdateExclusiveLock)
	 * is no reason to give up what was done.  Only the whole lock table shows
	 * in which mode somebody waits; this is the rare case.
	 */
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *instance = &locks->locks[i];

		if (instance->waitLockMode == AccessExclusiveLock &&
			memcmp(&instance->locktag, &tag, sizeof(LOCKTAG)) == 0)
		{
			wanted = true;
			break;
		}
	}
	pfree(locks->locks);
	pfree(locks);
	return wanted;
}
