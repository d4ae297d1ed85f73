/*-------------------------------------------------------------------------
 *
 * row_lock.c
 *	  Locking a row that was read, and what became of it since.
 *
 * A statement reads rows under its snapshot and then changes or locks some.
 * Here is settled whether the version that was read is still the newest: the
 * key's lock is taken first, then every version of the key that is not known
 * aborted and stands after the one that was read counts, the oldest first.  One
 * of a running transaction is waited for, with no page locked, and then all is
 * looked at again; one of a committed transaction is a conflict, which READ
 * COMMITTED resolves by going on with it and higher levels by an error.
 *
 * As on a heap, a row that was deleted is gone, also when there is another one
 * under its key by now.  A tombstone between the two says so, or a mark
 * (log/entry.h) where one command did both.  When that is known while somebody
 * has the key locked, he is not waited for.  A row that went to another
 * partition is an error at every level: it is still there, but cannot be
 * followed.
 *
 * FOR KEY SHARE only wants the key to stay.  Whoever removes one locks it
 * against that, so with the key's lock held, versions of running transactions
 * are passed over, and as long as there is a row, it is locked as it was read,
 * as on a heap.
 *
 * The key's lock keeps out whoever locks keys.  A statement that locks none
 * (a large insert) may still link a version after the look; whoever writes
 * remembers how far the log was known and has that judged when his own version
 * is linked (conflict_check.c).
 *
 * The look is made with the manifest of the statement's snapshot, so that
 * what was merged since is pending for it, hence found version by version;
 * the registered snapshot keeps those pages.
 *
 * Versions in the log are found by the hash of keys.  Where that was given up
 * for want of memory, looking through the log for each row would take too
 * long; then the entries that the snapshot does not see are listed once, and
 * only those are looked through.  A large command's own entries are not listed:
 * hardly any row is in them that it comes to again, and the hashes of their
 * keys are remembered to say which may be.
 *
 * IDENTIFICATION
 *	  src/log/row_lock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/row_lock.h"

#include "log/conflict_check.h"
#include "log/pending_private.h"
#include "log/view_private.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pause.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

struct StrataRowLocker
{
	StrataView *view;
	CommandId	cid;
	MemoryContext mcxt;
	Bitmapset  *all;			/* attributes */
	StrataPendingReader *reader;	/* of newer versions, made by the first */
	StrataLookup *lookup;		/* rows by TID, made by the first */
	StrataVersion newest;		/* after CHANGED, or what made it GONE */
	bool		key_share;		/* only the key has to stay */

	/* without a hash of keys: entries that the snapshot does not see */
	int			nexamined;		/* entries looked at so far */
	int		   *unseen;
	int			nunseen;
	int			maxunseen;
	StrataHashSet *own;			/* of keys in the command's own, NULL: none */
};

StrataRowLocker *
strata_row_locker_begin(StrataView *view, CommandId cid)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row locker",
											   ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataRowLocker *locker = palloc0(sizeof(StrataRowLocker));
	TupleDesc	desc = view->store->desc;

	locker->view = view;
	locker->cid = cid;
	locker->mcxt = mcxt;
	for (int i = 0; i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped)
			locker->all = bms_add_member(locker->all, i + 1);
	}
	MemoryContextSwitchTo(old);
	return locker;
}

void
strata_row_locker_end(StrataRowLocker *locker)
{
	if (locker->reader)
		strata_pending_reader_end(locker->reader);
	if (locker->lookup)
		strata_lookup_end(locker->lookup);
	MemoryContextDelete(locker->mcxt);
}

/* ---- looking ---- */

static bool
is_pending(const StrataView *view, const StrataPendingEntry *entry)
{
	return entry->position.generation > view->manifest->shards[entry->shard].merged_through;
}

static bool
accept_not_aborted(const StrataPendingEntry *entry, int index, void *arg)
{
	StrataRowLocker *locker = arg;

	return is_pending(locker->view, entry) &&
		strata_pending_outcome(locker->view->pending, index) != STRATA_XID_ABORTED;
}

/* A version that counts. */
static bool
accept_candidate(const StrataPendingEntry *entry, int index, void *arg)
{
	StrataRowLocker *locker = arg;

	return accept_not_aborted(entry, index, arg) &&
		!(locker->key_share &&
		  strata_pending_outcome(locker->view->pending, index) == STRATA_XID_RUNNING);
}

static int
index_cmp(const void *a, const void *b)
{
	return *(const int *) a - *(const int *) b;
}

static bool
accept_unseen(const StrataPendingEntry *entry, int index, void *arg)
{
	StrataRowLocker *locker = arg;

	return bsearch(&index, locker->unseen, locker->nunseen, sizeof(int), index_cmp) != NULL &&
		accept_candidate(entry, index, arg);
}

/* Remember which keys an entry of the command's own has. */
static void
note_own(StrataRowLocker *locker, int index)
{
	StrataPending *pending = locker->view->pending;
	uint32		n = strata_pending_entry_keys(strata_pending_entry(pending, index));
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata key hashes",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	const uint32 *hashes = strata_pending_hashes(pending, index);

	if (locker->own == NULL)
		locker->own = strata_hash_set_create(locker->mcxt);
	for (uint32 i = 0; i < n; i++)
		strata_hash_set_add(locker->own, hashes[i]);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(mcxt);
}

/* List the entries that came since and that the snapshot does not see. */
static void
examine_entries(StrataRowLocker *locker)
{
	StrataView *view = locker->view;
	int			nentries = strata_pending_nentries(view->pending);

	for (; locker->nexamined < nentries; locker->nexamined++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(view->pending, locker->nexamined);

		if ((locker->nexamined & 0xFFF) == 0)
			CHECK_FOR_INTERRUPTS();
		if (!accept_not_aborted(entry, locker->nexamined, locker) ||
			strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot))
			continue;
		if (entry->cid == locker->cid &&
			strata_pending_outcome(view->pending, locker->nexamined) == STRATA_XID_OWN)
		{
			note_own(locker, locker->nexamined);
			continue;
		}
		if (locker->nunseen == locker->maxunseen)
		{
			locker->maxunseen = Max(64, locker->maxunseen * 2);
			locker->unseen = locker->unseen ?
				repalloc_huge(locker->unseen, locker->maxunseen * sizeof(int)) :
				MemoryContextAlloc(locker->mcxt, locker->maxunseen * sizeof(int));
		}
		locker->unseen[locker->nunseen++] = locker->nexamined;
	}
}

/* Versions of a key that came after the one that was read, newest first. */
typedef struct Newer
{
	StrataRowLocker *locker;
	const ItemPointerData *tid;
	bool		any_decides;	/* one committed version is enough */
	StrataVersion *versions;
	int			n;
	int			max;
} Newer;

static bool
add_newer(const StrataVersion *version, void *arg)
{
	Newer	   *newer = arg;
	StrataView *view = newer->locker->view;
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, version->entry);

	if (!version->tombstone)
	{
		ItemPointerData tid;

		strata_pending_tid(&tid, entry, version->row);
		if (ItemPointerEquals(&tid, unconstify(ItemPointerData *, newer->tid)))
			return false;
	}
	if (strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot))
		return false;
	if (newer->n == newer->max)
	{
		newer->max = Max(8, newer->max * 2);
		newer->versions = newer->versions ?
			repalloc_huge(newer->versions, newer->max * sizeof(StrataVersion)) :
			MemoryContextAlloc(newer->locker->mcxt, newer->max * sizeof(StrataVersion));
	}
	newer->versions[newer->n++] = *version;
	return !newer->any_decides ||
		strata_pending_outcome(view->pending, version->entry) != STRATA_XID_COMMITTED;
}

/* Find the versions that count and are newer than the one read. */
static void
find_newer(StrataRowLocker *locker, StrataKeyProbe *probe, Newer *newer)
{
	StrataPending *pending = locker->view->pending;

	if (pending->log->keys == NULL)
	{
		StrataVersion any;

		examine_entries(locker);
		if (!(locker->own != NULL && strata_hash_set_has(locker->own, probe->hash)) &&
			(locker->nunseen == 0 ||
			 !strata_pending_find(pending, probe, accept_unseen, locker, &any)))
			return;
	}
	strata_pending_versions(pending, probe, accept_candidate, locker, add_newer, newer);
}

/* Wait for the transaction that wrote an entry; false when that is not wanted. */
static bool
wait_for_writer(const StrataPendingEntry *entry, LockWaitPolicy policy)
{
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid));

	STRATA_PAUSE("log-row-wait");
	if (policy != LockWaitBlock)
		return strata_xact_ended(xid, policy == LockWaitError);
	XactLockTableWait(xid, NULL, NULL, XLTW_None);
	return true;
}

static StrataRowState
not_locked(StrataRowLocker *locker, LockWaitPolicy policy)
{
	if (policy == LockWaitError)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on row in foreign table %s",
						locker->view->store->name)));
	return STRATA_ROW_NOT_LOCKED;
}

static StrataPendingReader *
get_reader(StrataRowLocker *locker)
{
	if (locker->reader == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(locker->mcxt);

		locker->reader = strata_pending_reader_begin(locker->view->pending, locker->all, false);
		MemoryContextSwitchTo(old);
	}
	return locker->reader;
}

/* Core's errors for a row that another transaction has changed or deleted. */
static void
refuse_changed(StrataRowLocker *locker, bool gone)
{
	const StrataVersion *newest = &locker->newest;

	if (newest->tombstone &&
		(strata_pending_reader_marks(get_reader(locker), newest->entry, newest->row) &
		 STRATA_ROW_MOVED))
	{
		if (!IsolationUsesXactSnapshot())
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("tuple to be locked was already moved to another partition due to concurrent update")));
		gone = false;
	}
	if (!IsolationUsesXactSnapshot())
		return;
	if (gone)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent delete")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update")));
}

/*
 * Follow the row that was read through its newer versions, from the oldest on:
 * a tombstone ends it, and a row that comes after that under its key is another
 * one, unless the key was changed and changed back.  SAME, CHANGED and GONE by
 * committed versions, NOT_LOCKED when a running transaction's comes first
 * (*running is its entry).  newest is the version to go on with.
 */
static StrataRowState
follow(StrataRowLocker *locker, const Newer *newer, const StrataPendingEntry **running)
{
	StrataPending *pending = locker->view->pending;
	StrataRowState state = STRATA_ROW_SAME;

	for (int i = newer->n; i-- > 0;)
	{
		const StrataVersion *version = &newer->versions[i];
		StrataOutcome outcome = strata_pending_outcome(pending, version->entry);
		uint16		marks;

		CHECK_FOR_INTERRUPTS();
		if (outcome == STRATA_XID_ABORTED)
			continue;			/* just now */
		marks = strata_pending_reader_marks(get_reader(locker), version->entry, version->row);
		if (!version->tombstone && state == STRATA_ROW_GONE && !(marks & STRATA_ROW_REKEYED))
			return STRATA_ROW_GONE;
		if (outcome == STRATA_XID_RUNNING)
		{
			*running = strata_pending_entry(pending, version->entry);
			return STRATA_ROW_NOT_LOCKED;
		}
		locker->newest = *version;
		if (version->tombstone || (marks & STRATA_ROW_BORN))
			state = STRATA_ROW_GONE;
		else
			state = STRATA_ROW_CHANGED;
		if (newer->any_decides ||
			(state == STRATA_ROW_GONE && !(version->tombstone && (marks & STRATA_ROW_REKEYED))))
			return state;
	}
	return state;
}

/*
 * What became of the row?  With its key locked, transactions that change it
 * are waited for as policy says.  Without, NOT_LOCKED means that it depends on
 * who holds the lock.
 */
static StrataRowState
look(StrataRowLocker *locker, StrataKeyProbe *probe, const ItemPointerData *tid,
	 bool locked, LockWaitPolicy policy, StrataPosition *seen)
{
	StrataView *view = locker->view;
	int			shard = strata_key_shard(probe->hash, view->store->nshards);

	for (;;)
	{
		Newer		newer = {0};
		StrataRowState state;
		const StrataPendingEntry *running = NULL;

		CHECK_FOR_INTERRUPTS();
		strata_pending_extend(view->pending, view->manifest);
		*seen = strata_pending_known_end(view->pending, shard);
		newer.locker = locker;
		newer.tid = tid;
		/* of a row that only has to be there, it matters how it came */
		newer.any_decides = IsolationUsesXactSnapshot() && !locker->key_share;
		find_newer(locker, probe, &newer);
		if (newer.n == 0)
			return STRATA_ROW_SAME;
		if (strata_pending_outcome(view->pending, newer.versions[0].entry) == STRATA_XID_OWN)
		{
			const StrataPendingEntry *own = strata_pending_entry(view->pending,
																 newer.versions[0].entry);

			pfree(newer.versions);
			return own->cid == locker->cid ? STRATA_ROW_OWN_COMMAND : STRATA_ROW_OWN_LATER;
		}

		state = follow(locker, &newer, &running);
		pfree(newer.versions);
		if (running != NULL)
		{
			if (!locked)
				return STRATA_ROW_NOT_LOCKED;
			if (!wait_for_writer(running, policy))
				return not_locked(locker, policy);
			continue;
		}
		if (state == STRATA_ROW_CHANGED && locker->key_share)
			return STRATA_ROW_SAME;
		if (state == STRATA_ROW_CHANGED || state == STRATA_ROW_GONE)
			refuse_changed(locker, state == STRATA_ROW_GONE);
		return state;
	}
}

StrataRowState
strata_row_lock(StrataRowLocker *locker, uint32 hash, Datum *keyvalues,
				const ItemPointerData *tid, LOCKMODE mode, LockWaitPolicy policy,
				StrataPosition *seen)
{
	Oid			storage = RelationGetRelid(locker->view->storage);
	StrataKeyProbe probe = {0};
	StrataRowState state;
	bool		acquired;

	probe.key = &locker->view->store->key;
	probe.nkeys = probe.key->natts;
	probe.values = keyvalues;
	probe.has_hash = true;
	probe.hash = hash;
	locker->key_share = mode == AccessShareLock;

	if (!strata_lock_key(storage, hash, mode, true, &acquired))
	{
		/*
		 * Whoever holds the lock may have nothing to do with the row any more,
		 * or it may be too late already.
		 */
		if ((policy != LockWaitSkip || IsolationUsesXactSnapshot()) &&
			look(locker, &probe, tid, false, policy, seen) == STRATA_ROW_GONE)
			return STRATA_ROW_GONE;
		if (policy != LockWaitBlock)
			return not_locked(locker, policy);
		(void) strata_lock_key(storage, hash, mode, false, &acquired);
	}
	state = look(locker, &probe, tid, true, policy, seen);

	/* without a row of ours, nothing stays locked: the key is free */
	if (acquired && state != STRATA_ROW_SAME && state != STRATA_ROW_CHANGED)
		strata_unlock_key(storage, hash, mode);
	return state;
}

/* ---- reading ---- */

void
strata_row_locker_newest(StrataRowLocker *locker, Datum *values, bool *isnull, ItemPointer tid)
{
	StrataView *view = locker->view;

	strata_pending_reader_row(get_reader(locker), locker->newest.entry, locker->newest.row,
							  values, isnull);
	strata_pending_tid(tid, strata_pending_entry(view->pending, locker->newest.entry),
					   locker->newest.row);
}

static StrataLookup *
get_lookup(StrataRowLocker *locker)
{
	if (locker->lookup == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(locker->mcxt);

		locker->lookup = strata_lookup_begin(locker->view, locker->all);
		MemoryContextSwitchTo(old);
	}
	return locker->lookup;
}

void
strata_row_locker_row(StrataRowLocker *locker, const ItemPointerData *tid,
					  Datum *values, bool *isnull)
{
	strata_lookup_tid(get_lookup(locker), tid, values, isnull);
}

void
strata_row_locker_key(StrataRowLocker *locker, const ItemPointerData *tid, Datum *keyvalues)
{
	strata_lookup_tid_key(get_lookup(locker), tid, keyvalues);
}
