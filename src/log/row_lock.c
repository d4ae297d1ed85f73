/*-------------------------------------------------------------------------
 *
 * row_lock.c
 *	  Locking a row that was read, and what became of it since.
 *
 * A statement reads rows under its snapshot and then changes or locks some.
 * Here is settled whether the version that was read is still the newest: the
 * key's lock is taken first, then every version of the key that is not known
 * aborted and stands after the one that was read counts.  One of a running
 * transaction is waited for, with no page locked, and then all is looked at
 * again; one of a committed transaction is a conflict, which READ COMMITTED
 * resolves by going on with it and higher levels by an error.
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
	StrataVersion newest;		/* after CHANGED */
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

/* The newest version of the key that counts, if pending. */
static bool
find_newest(StrataRowLocker *locker, StrataKeyProbe *probe, StrataVersion *version)
{
	StrataPending *pending = locker->view->pending;

	if (pending->log->keys == NULL)
	{
		examine_entries(locker);
		if (!(locker->own != NULL && strata_hash_set_has(locker->own, probe->hash)) &&
			(locker->nunseen == 0 ||
			 !strata_pending_find(pending, probe, accept_unseen, locker, version)))
			return false;
	}
	return strata_pending_find(pending, probe, accept_candidate, locker, version);
}

/* Wait for the transaction that wrote an entry; false when that is not wanted. */
static bool
wait_for_writer(const StrataPendingEntry *entry, LockWaitPolicy policy)
{
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid));

	STRATA_PAUSE("log-row-wait");
	if (policy != LockWaitBlock)
		return ConditionalXactLockTableWait(xid);
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

static void
refuse_if_fixed(bool gone)
{
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

StrataRowState
strata_row_lock(StrataRowLocker *locker, uint32 hash, Datum *keyvalues,
				const ItemPointerData *tid, LOCKMODE mode, LockWaitPolicy policy,
				StrataPosition *seen)
{
	StrataView *view = locker->view;
	int			shard = strata_key_shard(hash, view->store->nshards);
	StrataKeyProbe probe = {0};

	probe.key = &view->store->key;
	probe.nkeys = probe.key->natts;
	probe.values = keyvalues;
	probe.has_hash = true;
	probe.hash = hash;

	if (!strata_lock_key(RelationGetRelid(view->storage), hash, mode, policy != LockWaitBlock))
		return not_locked(locker, policy);
	locker->key_share = mode == AccessShareLock;

	for (;;)
	{
		StrataVersion version;
		const StrataPendingEntry *entry;
		ItemPointerData newest;

		CHECK_FOR_INTERRUPTS();
		strata_pending_extend(view->pending, view->manifest);
		*seen = strata_pending_known_end(view->pending, shard);
		if (!find_newest(locker, &probe, &version))
			return STRATA_ROW_SAME;

		entry = strata_pending_entry(view->pending, version.entry);
		if (!version.tombstone)
		{
			strata_pending_tid(&newest, entry, version.row);
			if (ItemPointerEquals(&newest, unconstify(ItemPointerData *, tid)))
				return STRATA_ROW_SAME;
		}
		switch (strata_pending_outcome(view->pending, version.entry))
		{
			case STRATA_XID_ABORTED:
				continue;		/* just now */

			case STRATA_XID_RUNNING:
				if (!wait_for_writer(entry, policy))
					return not_locked(locker, policy);
				continue;

			case STRATA_XID_OWN:
				if (strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot))
					return STRATA_ROW_SAME;
				return entry->cid == locker->cid ? STRATA_ROW_OWN_COMMAND : STRATA_ROW_OWN_LATER;

			case STRATA_XID_COMMITTED:
				if (strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot) ||
					(locker->key_share && !version.tombstone))
					return STRATA_ROW_SAME;
				refuse_if_fixed(version.tombstone);
				locker->newest = version;
				return version.tombstone ? STRATA_ROW_GONE : STRATA_ROW_CHANGED;
		}
	}
}

/* ---- reading ---- */

void
strata_row_locker_newest(StrataRowLocker *locker, Datum *values, bool *isnull, ItemPointer tid)
{
	StrataView *view = locker->view;

	if (locker->reader == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(locker->mcxt);

		locker->reader = strata_pending_reader_begin(view->pending, locker->all, false);
		MemoryContextSwitchTo(old);
	}
	strata_pending_reader_row(locker->reader, locker->newest.entry, locker->newest.row,
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
