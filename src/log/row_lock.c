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
 * under its key by now: the first tombstone ends it.  When that is known while
 * somebody has the key locked, he is not waited for.  A row that went to another
 * partition is an error at every level: it is still there, but cannot be
 * followed.
 *
 * The tombstone of a row that got another key names that (log/entry.h), and the
 * same command put the row there: its oldest row of that key.  So the row is
 * looked for there in the same way, with the lock of its new key; that of the
 * old one, if it was taken for this, is given back first, so that nobody waits
 * for one key of a row while he keeps another.
 *
 * FOR KEY SHARE only wants the key to stay.  Whoever removes one locks it
 * against that, so with the key's lock held, versions of running transactions
 * are passed over, and as long as there is a row, it is locked as it was read,
 * as on a heap.  Once the key has changed, it is treated as any other; so is a
 * row that was changed by a transaction which had locked it FOR UPDATE first:
 * as on a heap, it could have been removed.
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
#include "utils/datum.h"
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

	/* the row being locked: where it is looked for */
	StrataKeyProbe probe;		/* its key, */
	const ItemPointerData *tid; /* the version that was read, */
	bool		rekeyed;		/* or, when it has got another key since, */
	StrataVersion came;			/* the version it had then */
	uint64		nkeys;			/* how many keys it has had */
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

/* Does the snapshot see it? */
static bool
is_seen(const StrataView *view, const StrataPendingEntry *entry)
{
	return strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot);
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
			is_seen(view, entry))
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
	bool		any_decides;	/* one committed version is enough */
	StrataVersion *versions;
	int			n;
	int			max;
} Newer;

static bool
add_newer(const StrataVersion *version, void *arg)
{
	Newer	   *newer = arg;
	const StrataRowLocker *locker = newer->locker;
	StrataView *view = locker->view;
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, version->entry);

	/*
	 * A key is in an entry once, and entries of its shard are in order.  The
	 * snapshot may see what a statement that locks no keys put in the row's place
	 * before the transaction that gave it this key had committed.
	 */
	if (locker->rekeyed)
	{
		if (version->entry <= locker->came.entry)
			return false;
	}
	else
	{
		ItemPointerData tid;

		strata_pending_tid(&tid, entry, version->row);
		if (!version->tombstone &&
			ItemPointerEquals(&tid, unconstify(ItemPointerData *, locker->tid)))
			return false;
		if (is_seen(view, entry))
			return false;
	}
	if (newer->n == newer->max)
	{
		newer->max = Max(8, newer->max * 2);
		newer->versions = newer->versions ?
			repalloc_huge(newer->versions, newer->max * sizeof(StrataVersion)) :
			MemoryContextAlloc(locker->mcxt, newer->max * sizeof(StrataVersion));
	}
	newer->versions[newer->n++] = *version;
	return !newer->any_decides ||
		strata_pending_outcome(view->pending, version->entry) != STRATA_XID_COMMITTED;
}

/* Find the versions that count and are newer than the one read. */
static void
find_newer(StrataRowLocker *locker, Newer *newer)
{
	StrataPending *pending = locker->view->pending;
	const StrataKeyProbe *probe = &locker->probe;

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
		strata_pending_reader_moved(get_reader(locker), newest->entry, newest->row))
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

/* What the row's newer versions say. */
typedef enum Fate
{
	FATE_SAME,
	FATE_CHANGED,
	FATE_GONE,
	FATE_REKEYED,
	FATE_RUNNING,				/* a running transaction's comes first */
	FATE_OWN					/* an own one does */
} Fate;

/*
 * Follow the row through its newer versions, from the oldest on, as far as its
 * key leads.  newest is the version to go on with, or that was met.
 */
static Fate
follow(StrataRowLocker *locker, const Newer *newer)
{
	StrataPending *pending = locker->view->pending;
	Fate		fate = FATE_SAME;

	if (locker->rekeyed)
	{
		locker->newest = locker->came;
		fate = FATE_CHANGED;
	}
	else
		locker->newest.entry = -1;
	for (int i = newer->n; i-- > 0;)
	{
		const StrataVersion *version = &newer->versions[i];
		StrataOutcome outcome = strata_pending_outcome(pending, version->entry);
		Datum		next_key[INDEX_MAX_KEYS];

		CHECK_FOR_INTERRUPTS();
		if (outcome == STRATA_XID_ABORTED)
			continue;			/* just now */
		locker->newest = *version;
		if (outcome == STRATA_XID_RUNNING)
			return FATE_RUNNING;
		if (outcome == STRATA_XID_OWN &&
			!is_seen(locker->view, strata_pending_entry(pending, version->entry)))
			return FATE_OWN;
		if (version->tombstone)
			return strata_pending_reader_next_key(get_reader(locker), version->entry,
												  version->row, next_key) ?
				FATE_REKEYED :
				FATE_GONE;
		if (locker->key_share &&
			(strata_pending_entry(pending, version->entry)->flags & STRATA_ENTRY_LOCKED) == 0)
			continue;
		fate = FATE_CHANGED;
		if (newer->any_decides)
			break;
	}
	return fate;
}

/* The rows of a key that one command put. */
typedef struct Put
{
	StrataRowLocker *locker;
	uint64		fxid;
	CommandId	cid;
	StrataVersion oldest;
} Put;

static bool
accept_put(const StrataPendingEntry *entry, int index, void *arg)
{
	Put		   *put = arg;

	return entry->fxid == put->fxid && entry->cid == put->cid &&
		is_pending(put->locker->view, entry);
}

static bool
take_row(const StrataVersion *version, void *arg)
{
	if (!version->tombstone)
		((Put *) arg)->oldest = *version;
	return true;
}

/*
 * The newest version is the tombstone of a row that got another key: go on with
 * that.  False if the row is not there: what repair could not read.
 */
static bool
go_to_next_key(StrataRowLocker *locker)
{
	StrataView *view = locker->view;
	const StrataKey *key = &view->store->key;
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, locker->newest.entry);
	Datum	   *values = palloc(key->natts * sizeof(Datum));
	Put			put;

	if (!strata_pending_reader_next_key(get_reader(locker), locker->newest.entry,
										locker->newest.row, values))
		elog(ERROR, "tombstone has no next key");
	/* the reader keeps them for a while only */
	for (int i = 0; i < key->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(key->desc, i);

		values[i] = datumCopy(values[i], att->attbyval, att->attlen);
	}
	locker->probe.values = values;
	locker->probe.hash = strata_key_hash(key, values);

	put.locker = locker;
	put.fxid = entry->fxid;
	put.cid = entry->cid;
	put.oldest.entry = -1;

	/* all that the transaction has put is there, but maybe not known yet */
	strata_pending_extend(view->pending, view->manifest);
	strata_pending_versions(view->pending, &locker->probe, accept_put, &put, take_row, &put);
	if (put.oldest.entry < 0)
		return false;

	/* each key is another tombstone's, unless they have been tampered with */
	if (++locker->nkeys > view->pending->log->nkeys)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("log of %s is damaged: the keys of a row lead back to it",
						view->store->name)));
	locker->rekeyed = true;
	locker->came = put.oldest;
	locker->key_share = false;
	return true;
}

/*
 * What became of the row?  False: it has another key now, which the locker is
 * set to.  With its key locked, transactions that change it are waited for as
 * policy says.  Without, NOT_LOCKED means that it depends on who holds the lock.
 */
static bool
look(StrataRowLocker *locker, bool locked, LockWaitPolicy policy, StrataPosition *seen,
	 StrataRowState *state)
{
	StrataView *view = locker->view;
	int			shard = strata_key_shard(locker->probe.hash, view->store->nshards);

	for (;;)
	{
		Newer		newer = {0};
		const StrataPendingEntry *entry;
		Fate		fate;

		CHECK_FOR_INTERRUPTS();
		strata_pending_extend(view->pending, view->manifest);
		STRATA_PAUSE("log-row-known");
		*seen = strata_pending_known_end(view->pending, shard);
		newer.locker = locker;
		/* of a row that only has to be there, it matters how it came */
		newer.any_decides = IsolationUsesXactSnapshot() && !locker->key_share;
		find_newer(locker, &newer);
		fate = follow(locker, &newer);
		if (newer.versions != NULL)
			pfree(newer.versions);
		switch (fate)
		{
			case FATE_SAME:
				*state = STRATA_ROW_SAME;
				return true;

			case FATE_CHANGED:
				*state = STRATA_ROW_CHANGED;
				refuse_changed(locker, false);
				return true;

			case FATE_GONE:
				refuse_changed(locker, true);
				*state = STRATA_ROW_GONE;
				return true;

			case FATE_REKEYED:
				refuse_changed(locker, false);
				if (go_to_next_key(locker))
					return false;
				*state = STRATA_ROW_GONE;
				return true;

			case FATE_OWN:
				entry = strata_pending_entry(view->pending, locker->newest.entry);
				*state = entry->cid == locker->cid ? STRATA_ROW_OWN_COMMAND :
					STRATA_ROW_OWN_LATER;
				return true;

			case FATE_RUNNING:
				if (!locked)
				{
					*state = STRATA_ROW_NOT_LOCKED;
					return true;
				}
				entry = strata_pending_entry(view->pending, locker->newest.entry);
				if (!wait_for_writer(entry, policy))
				{
					*state = not_locked(locker, policy);
					return true;
				}
		}
	}
}

/* Lock the row by the key it has, as far as is known; false as for look. */
static bool
lock_by_key(StrataRowLocker *locker, LOCKMODE mode, LockWaitPolicy policy,
			StrataPosition *seen, StrataRowState *state)
{
	Oid			storage = RelationGetRelid(locker->view->storage);
	uint32		hash = locker->probe.hash;
	bool		acquired;
	bool		found;

	if (!strata_lock_key(storage, hash, mode, true, &acquired))
	{
		/*
		 * Whoever holds the lock may have nothing to do with the row any more,
		 * or it may be too late already.
		 */
		found = look(locker, false, policy, seen, state);
		if (!found || *state == STRATA_ROW_GONE)
			return found;
		if (policy == LockWaitBlock)
			(void) strata_lock_key(storage, hash, mode, false, &acquired);
		else if (!strata_lock_key_at_once(storage, hash, mode, &acquired))
		{
			*state = not_locked(locker, policy);
			return true;
		}
	}
	found = look(locker, true, policy, seen, state);

	/* without a row of ours, nothing stays locked: the key is free */
	if (acquired && !(found && (*state == STRATA_ROW_SAME || *state == STRATA_ROW_CHANGED)))
		strata_unlock_key(storage, hash, mode);
	return found;
}

StrataRowState
strata_row_lock(StrataRowLocker *locker, uint32 hash, Datum *keyvalues,
				const ItemPointerData *tid, LOCKMODE mode, LockWaitPolicy policy,
				StrataPosition *seen)
{
	StrataKeyProbe probe = {0};
	StrataRowState state;

	probe.key = &locker->view->store->key;
	probe.nkeys = probe.key->natts;
	probe.values = keyvalues;
	probe.has_hash = true;
	probe.hash = hash;
	locker->probe = probe;
	locker->tid = tid;
	locker->rekeyed = false;
	locker->nkeys = 1;
	locker->key_share = mode == AccessShareLock;

	while (!lock_by_key(locker, mode, policy, seen, &state))
		CHECK_FOR_INTERRUPTS();
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

void
strata_row_locker_newest_key(StrataRowLocker *locker, Datum *keyvalues)
{
	strata_pending_reader_key(get_reader(locker), locker->newest.entry, locker->newest.row,
							  keyvalues);
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
