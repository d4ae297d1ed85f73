/*-------------------------------------------------------------------------
 *
 * conflict_check.c
 *	  Key locks, and judging whether a key that was written was there.
 *
 * Two ways keep writers of the same key apart:
 *
 * Key locks are heavyweight locks on the key's hash.  Whoever locks keys one
 * by one also holds the store lock in RowExclusiveLock, so that a session may
 * lock all keys at once by taking that exclusively.  Key locks are taken
 * before anything is appended and are held to the end of the transaction,
 * unless it turns out that there is nothing to lock or to put.
 *
 * Linking first, then judging, needs no lock: of two versions of a key one is
 * at the earlier position of the shard's log, and the writer of the later one
 * cannot miss it, since it looks after its own version was linked.  If the
 * earlier one's transaction is running, the later writer waits for it, and
 * never the other way round, so only locks on several keys can make a
 * deadlock, which core's detector settles.
 *
 * Neither says when a statement finds out.  So the first new keys of one are
 * also judged before anything is locked or linked, when their rows are put;
 * what was linked after that is then all that is left to be judged.
 *
 * Judging asks for today's commit status, not for what a snapshot sees: a
 * version of a transaction that committed a moment ago counts.  A snapshot is
 * still needed, to know which generations are merged.  Under READ COMMITTED
 * it is a fresh one.  A transaction whose snapshot is fixed uses its own: what
 * was merged since is pending for that one, hence looked at version by version
 * and noticed when the snapshot does not see it; what was merged before it
 * sees.
 *
 * No page is locked while waiting for a transaction.
 *
 * IDENTIFICATION
 *	  src/log/conflict_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "log/conflict_check.h"
#include "log/pending_private.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "manifest/manifest.h"
#include "miscadmin.h"
#include "pause.h"
#include "storage/lmgr.h"
#include "storage/locks.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"

/* Key locks this transaction took, those of aborted savepoints included. */
static int	key_locks = 0;

/* Has it locked any FOR UPDATE? */
static bool locked_for_update = false;

/* The number of key locks at which the store lock is tried next. */
static int	next_escalation = STRATA_MAX_KEY_LOCKS;

typedef struct Judge
{
	StrataStore *store;
	Relation	storage;
	Snapshot	snapshot;
	bool		fixed;			/* snapshot is the transaction's */
	StrataManifest *manifest;
	StrataPending *pending;
	int			end;
	const StrataJudgeKey *key;	/* being judged */
} Judge;

typedef enum Verdict
{
	VERDICT_ROW,				/* the winner is a row */
	VERDICT_NO_ROW,				/* the winner is a tombstone */
	VERDICT_BASE,				/* no pending version: the base decides */
	VERDICT_AGAIN				/* had to wait: look again from the start */
} Verdict;

static int	hash_cmp(const void *a, const void *b);
static int	judge_key_cmp(const void *a, const void *b, void *arg);
static int	judge_hash_cmp(const void *a, const void *b);
static int	key_lock_cap(void);
static bool accept_not_aborted(const StrataPendingEntry *entry, int index, void *arg);
static bool accept_seen(const StrataPendingEntry *entry, int index, void *arg);
static bool snapshot_sees_row(Judge *judge, StrataKeyProbe *probe);
static Verdict judge_pending(Judge *judge);
static const Datum *judge_base(Judge *judge, StrataJudgeKey *keys, int nkeys);
static const Datum *judge_base_by_index(Judge *judge, Oid index,
										StrataJudgeKey *keys, int nkeys);
static const Datum *judge_base_by_scan(Judge *judge, StrataJudgeKey *keys, int nkeys);
static bool base_has_row(StrataManifest *manifest, StrataIndexProbe *probe,
						 const Datum *keyvalues);

/* ----------------------------------------------------------------
 *		Key locks
 * ----------------------------------------------------------------
 */

static int
hash_cmp(const void *a, const void *b)
{
	uint32		left = *(const uint32 *) a;
	uint32		right = *(const uint32 *) b;

	return left < right ? -1 : (left > right ? 1 : 0);
}

bool
strata_lock_new_key(StrataStore *store, Relation storage, StrataJudgeKey *key)
{
	Oid			relid = RelationGetRelid(storage);
	bool		locked = false;
	bool		acquired = false;
	bool		exists = false;

	if (key->unique)
	{
		locked = strata_lock_key(relid, key->hash, ExclusiveLock, true, &acquired);
		if (!locked || key->skips)
			exists = strata_judge_keys(store, storage, key, 1) != NULL;
	}
	if (!locked && !exists)
	{
		(void) strata_lock_key(relid, key->hash, ExclusiveLock, false, &acquired);
		if (key->skips)
			exists = strata_judge_keys(store, storage, key, 1) != NULL;
	}
	if (exists && acquired)
		strata_unlock_key(relid, key->hash, ExclusiveLock);
	return exists;
}

const Datum *
strata_lock_insert_keys(StrataStore *store, Relation storage, StrataJudgeKey *keys, int nkeys)
{
	Oid			relid = RelationGetRelid(storage);

	if (key_locks + nkeys > STRATA_MAX_KEY_LOCKS)
		return NULL;
	if (strata_lock_held(relid, STRATA_LOCK_STORE, 0, ExclusiveLock) ||
		!strata_lock(relid, STRATA_LOCK_STORE, 0, RowExclusiveLock, true))
		return NULL;

	qsort(keys, nkeys, sizeof(StrataJudgeKey), judge_hash_cmp);
	for (int i = 0; i < nkeys; i++)
	{
		if (strata_lock_new_key(store, storage, &keys[i]))
			return keys[i].values;
	}
	return NULL;
}

/*
 * The number of key locks of a transaction beyond which it would take too
 * much of the shared lock table, which all sessions share.
 */
static int
key_lock_cap(void)
{
	int64		entries = (int64) max_locks_per_xact * (MaxBackends + max_prepared_xacts);

	return (int) Max(STRATA_MAX_KEY_LOCKS, Min(entries / 4, PG_INT32_MAX));
}

/* Do we hold the key's lock in mode, or in one that is stronger? */
static bool
key_lock_held(Oid storage, uint32 hash, LOCKMODE mode)
{
	static const LOCKMODE modes[] = {AccessExclusiveLock, ExclusiveLock, RowShareLock, AccessShareLock};

	for (size_t i = 0; i < lengthof(modes) && modes[i] >= mode; i++)
	{
		if (strata_lock_held(storage, STRATA_LOCK_KEY, hash, modes[i]))
			return true;
	}
	return false;
}

bool
strata_lock_key(Oid storage, uint32 hash, LOCKMODE mode, bool nowait, bool *acquired)
{
	if (acquired != NULL)
		*acquired = false;
	if (strata_lock_held(storage, STRATA_LOCK_STORE, 0, ExclusiveLock) ||
		key_lock_held(storage, hash, mode))
		return true;

	if (key_locks >= key_lock_cap())
		return strata_lock(storage, STRATA_LOCK_STORE, 0, ExclusiveLock, nowait);
	if (key_locks >= next_escalation)
	{
		next_escalation *= 2;
		if (strata_lock(storage, STRATA_LOCK_STORE, 0, ExclusiveLock, true))
			return true;
	}

	if (!strata_lock_held(storage, STRATA_LOCK_STORE, 0, RowExclusiveLock) &&
		!strata_lock(storage, STRATA_LOCK_STORE, 0, RowExclusiveLock, nowait))
		return false;
	if (!strata_lock(storage, STRATA_LOCK_KEY, hash, mode, nowait))
		return false;
	key_locks++;
	if (mode == AccessExclusiveLock)
		locked_for_update = true;
	if (acquired != NULL)
		*acquired = true;
	return true;
}

bool
strata_key_locked_for_update(Oid storage, uint32 hash)
{
	return locked_for_update && strata_lock_held(storage, STRATA_LOCK_KEY, hash, AccessExclusiveLock);
}

bool
strata_lock_key_at_once(Oid storage, uint32 hash, LOCKMODE mode, bool *acquired)
{
	bool		outlived;
	bool		locked;

	do
	{
		/* asked first: what is let go of meanwhile is there to be had */
		outlived = strata_key_lock_outlived(storage, hash, mode);
		locked = strata_lock_key(storage, hash, mode, true, acquired);
		if (!locked && outlived)
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(1000L);
		}
	} while (!locked && outlived);
	return locked;
}

void
strata_unlock_key(Oid storage, uint32 hash, LOCKMODE mode)
{
	strata_unlock(storage, STRATA_LOCK_KEY, hash, mode);
	key_locks--;
}

void
strata_lock_all_keys(Oid storage)
{
	/*
	 * Whoever holds key locks already would wait for others that do, as they
	 * may for him.
	 */
	(void) strata_lock(storage, STRATA_LOCK_STORE, 0, ExclusiveLock,
					   strata_lock_held(storage, STRATA_LOCK_STORE, 0, RowExclusiveLock));
}

void
strata_key_locks_reset(void)
{
	key_locks = 0;
	locked_for_update = false;
	next_escalation = STRATA_MAX_KEY_LOCKS;
}

/* ----------------------------------------------------------------
 *		Judging
 * ----------------------------------------------------------------
 */

const Datum *
strata_judge_keys(StrataStore *store, Relation storage, StrataJudgeKey *keys, int nkeys)
{
	const Datum *duplicate = NULL;
	bool		again;

	Assert(nkeys == 1 || keys[0].linked);

	do
	{
		Judge		judge;
		int			nbase = 0;

		again = false;
		judge.store = store;
		judge.storage = storage;
		judge.fixed = IsolationUsesXactSnapshot();
		judge.snapshot = RegisterSnapshot(judge.fixed ? GetTransactionSnapshot() :
										  GetLatestSnapshot());

		/* A look that decides what is written is a read. */
		if (!keys[0].linked)
			PredicateLockPage(storage, keys[0].hash, judge.snapshot);

		judge.manifest = strata_manifest_get(store, storage, judge.snapshot);
		judge.pending = strata_pending_current(store, storage, judge.manifest, &judge.end);

		for (int i = 0; i < nkeys && duplicate == NULL && !again; i++)
		{
			CHECK_FOR_INTERRUPTS();
			judge.key = &keys[i];
			switch (judge_pending(&judge))
			{
				case VERDICT_ROW:
					if (keys[i].unique)
						duplicate = keys[i].values;
					break;
				case VERDICT_NO_ROW:
					break;
				case VERDICT_BASE:
					/* keys that the base decides gather in front */
					if (keys[i].unique)
					{
						StrataJudgeKey key = keys[i];

						keys[i] = keys[nbase];
						keys[nbase++] = key;
					}
					break;
				case VERDICT_AGAIN:
					again = true;
					break;
			}
		}
		if (duplicate == NULL && !again && nbase > 0)
			duplicate = judge_base(&judge, keys, nbase);

		strata_pending_unpin(judge.pending);
		strata_manifest_release(judge.manifest);
		UnregisterSnapshot(judge.snapshot);
	} while (again);

	return duplicate;
}

bool
strata_judge_new_key(StrataStore *store, Relation storage, StrataManifest *manifest,
					 StrataIndexProbe *probe, StrataJudgeKey *key)
{
	Judge		judge = {0};
	Verdict		verdict;
	bool		duplicate;

	Assert(key->unique && !key->linked);
	judge.store = store;
	judge.storage = storage;
	judge.fixed = IsolationUsesXactSnapshot();
	if (judge.fixed)
		judge.snapshot = RegisterSnapshot(GetTransactionSnapshot());
	judge.manifest = manifest;
	judge.key = key;

	do
	{
		judge.pending = strata_pending_current(store, storage, manifest, &judge.end);
		key->seen = strata_pending_known_end(judge.pending,
											 strata_key_shard(key->hash, store->nshards));
		verdict = judge_pending(&judge);
		strata_pending_unpin(judge.pending);
	} while (verdict == VERDICT_AGAIN);

	duplicate = verdict == VERDICT_ROW ||
		(verdict == VERDICT_BASE && probe != NULL &&
		 base_has_row(manifest, probe, key->values));

	if (judge.fixed)
		UnregisterSnapshot(judge.snapshot);
	return duplicate;
}

static bool
accept_not_aborted(const StrataPendingEntry *entry, int index, void *arg)
{
	Judge	   *judge = arg;

	/* appended later, or in the base table already */
	if (index >= judge->end ||
		entry->position.generation <= judge->manifest->shards[entry->shard].merged_through)
		return false;
	if (judge->key->linked &&
		strata_position_cmp(&entry->position, &judge->key->position) >= 0)
		return false;
	return strata_pending_outcome(judge->pending, index) != STRATA_XID_ABORTED;
}

static bool
accept_seen(const StrataPendingEntry *entry, int index, void *arg)
{
	Judge	   *judge = arg;

	return accept_not_aborted(entry, index, arg) &&
		strata_entry_visible(entry->fxid, entry->cid, entry->flags, judge->snapshot);
}

/* Does the snapshot see a row of the key being judged? */
static bool
snapshot_sees_row(Judge *judge, StrataKeyProbe *probe)
{
	StrataJudgeKey key = *judge->key;
	StrataVersion version;

	if (strata_pending_find(judge->pending, probe, accept_seen, judge, &version))
		return !version.tombstone;
	return judge_base(judge, &key, 1) != NULL;
}

/*
 * Is it a conflict that the snapshot, which is the transaction's, does not see
 * the winner?  A unique index asks what is there now.  But a row that is gone
 * must be gone for the snapshot, too, lest it see the key twice.
 */
static bool
unseen_conflicts(Judge *judge, StrataKeyProbe *probe, bool tombstone)
{
	if (tombstone)
		return snapshot_sees_row(judge, probe);
	return !judge->key->unique || judge->key->skips;
}

/*
 * Judge one key among its pending versions.
 *
 * Versions before a linked one are all there when we look, so after a wait the
 * same ones are looked at again.  A key not yet linked may have got more
 * versions by then.
 */
static Verdict
judge_pending(Judge *judge)
{
	const StrataJudgeKey *key = judge->key;
	StrataKeyProbe probe = {0};

	probe.key = &judge->store->key;
	probe.nkeys = judge->store->key.natts;
	probe.values = key->values;
	probe.has_hash = true;
	probe.hash = key->hash;

	for (;;)
	{
		StrataVersion version;
		StrataOutcome outcome;
		const StrataPendingEntry *entry;

		CHECK_FOR_INTERRUPTS();
		if (!strata_pending_find(judge->pending, &probe, accept_not_aborted, judge, &version))
			return VERDICT_BASE;

		outcome = strata_pending_outcome(judge->pending, version.entry);
		entry = strata_pending_entry(judge->pending, version.entry);
		switch (outcome)
		{
			case STRATA_XID_ABORTED:
				/* just now; another version wins */
				continue;

			case STRATA_XID_RUNNING:
				STRATA_PAUSE("log-judge-wait");
				XactLockTableWait(XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid)),
								  NULL, NULL, XLTW_None);
				if (!key->linked)
					return VERDICT_AGAIN;
				continue;

			case STRATA_XID_COMMITTED:
				if (judge->fixed &&
					!strata_entry_visible(entry->fxid, entry->cid, entry->flags,
										  judge->snapshot) &&
					unseen_conflicts(judge, &probe, version.tombstone))
					ereport(ERROR,
							(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
							 errmsg("could not serialize access due to concurrent update")));
				/* FALLTHROUGH */

			case STRATA_XID_OWN:
				return version.tombstone ? VERDICT_NO_ROW : VERDICT_ROW;
		}
	}
}

/* ----------------------------------------------------------------
 *		Judging keys that were looked at before
 * ----------------------------------------------------------------
 */

typedef struct Overtaken
{
	StrataPending *pending;
	const StrataManifest *manifest;
	const StrataJudgeKey *key;
	StrataPosition first[STRATA_MAX_SHARDS];	/* least seen, by shard */
} Overtaken;

/* An entry of another transaction, not known aborted, among those pending. */
static bool
is_foreign(Overtaken *judge, int index)
{
	const StrataPendingEntry *entry = strata_pending_entry(judge->pending, index);
	StrataOutcome outcome;

	if (entry->position.generation <= judge->manifest->shards[entry->shard].merged_through)
		return false;
	outcome = strata_pending_outcome(judge->pending, index);
	return outcome == STRATA_XID_RUNNING || outcome == STRATA_XID_COMMITTED;
}

static bool
accept_overtaking(const StrataPendingEntry *entry, int index, void *arg)
{
	Overtaken  *judge = arg;

	return strata_position_cmp(&entry->position, &judge->key->seen) >= 0 &&
		strata_position_cmp(&entry->position, &judge->key->position) < 0 &&
		is_foreign(judge, index);
}

/*
 * Did another transaction append anything from the earliest look on?  Mostly
 * not, and then no key need be looked for.  Entries of a shard are in order,
 * so each shard is done with at the first entry that was known at the look.
 */
static bool
any_overtaking(Overtaken *judge, int nshards)
{
	bool		done[STRATA_MAX_SHARDS] = {0};
	int			left = 0;

	for (int shard = 0; shard < nshards; shard++)
	{
		StrataPosition end = strata_pending_known_end(judge->pending, shard);

		done[shard] = strata_position_cmp(&judge->first[shard], &end) >= 0;
		if (!done[shard])
			left++;
	}

	for (int i = strata_pending_nentries(judge->pending); i-- > 0 && left > 0;)
	{
		const StrataPendingEntry *entry = strata_pending_entry(judge->pending, i);

		if ((i & 0xFFF) == 0)
			CHECK_FOR_INTERRUPTS();
		if (done[entry->shard])
			continue;
		if (strata_position_cmp(&entry->position, &judge->first[entry->shard]) < 0)
		{
			done[entry->shard] = true;
			left--;
		}
		else if (is_foreign(judge, i))
			return true;
	}
	return false;
}

const Datum *
strata_judge_since(StrataStore *store, Relation storage, StrataManifest *manifest,
				   StrataJudgeKey *keys, int nkeys)
{
	Overtaken	judge;
	const Datum *duplicate = NULL;
	int			end;

	judge.manifest = manifest;
	judge.pending = strata_pending_current(store, storage, manifest, &end);
	for (int shard = 0; shard < store->nshards; shard++)
		judge.first[shard] = strata_pending_known_end(judge.pending, shard);
	for (int i = 0; i < nkeys; i++)
	{
		StrataPosition *first = &judge.first[strata_key_shard(keys[i].hash, store->nshards)];

		if (strata_position_cmp(&keys[i].seen, first) < 0)
			*first = keys[i].seen;
	}

	if (!any_overtaking(&judge, store->nshards))
		nkeys = 0;
	for (int i = 0; i < nkeys && duplicate == NULL; i++)
	{
		StrataKeyProbe probe = {0};
		StrataVersion version;
		bool		settled = false;

		probe.key = &store->key;
		probe.nkeys = store->key.natts;
		probe.values = keys[i].values;
		probe.has_hash = true;
		probe.hash = keys[i].hash;
		judge.key = &keys[i];

		CHECK_FOR_INTERRUPTS();
		while (!settled &&
			   strata_pending_find(judge.pending, &probe, accept_overtaking, &judge, &version))
		{
			uint64		fxid = strata_pending_entry(judge.pending, version.entry)->fxid;

			switch (strata_pending_outcome(judge.pending, version.entry))
			{
				case STRATA_XID_RUNNING:
					STRATA_PAUSE("log-judge-wait");
					XactLockTableWait(XidFromFullTransactionId(FullTransactionIdFromU64(fxid)),
									  NULL, NULL, XLTW_None);
					break;
				case STRATA_XID_COMMITTED:
					if (!keys[i].unique)
						ereport(ERROR,
								(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
								 errmsg("could not serialize access due to concurrent update"),
								 errdetail("A statement that locks no keys has written a row of %s while this one was changing it.",
										   store->name)));
					if (!version.tombstone)
						duplicate = keys[i].values;
					settled = true;
					break;
				default:
					break;		/* aborted just now */
			}
		}
	}
	strata_pending_unpin(judge.pending);
	return duplicate;
}

/* ----------------------------------------------------------------
 *		Judging by the base
 * ----------------------------------------------------------------
 */

/* The first of the keys that has a live base row. */
static const Datum *
judge_base(Judge *judge, StrataJudgeKey *keys, int nkeys)
{
	Oid			index;
	bool		present;

	if (judge->manifest->ngroups == 0)
		return NULL;

	index = strata_keyindex_find(judge->storage, &present);
	if (OidIsValid(index))
		return judge_base_by_index(judge, index, keys, nkeys);
	return judge_base_by_scan(judge, keys, nkeys);
}

static int
judge_key_cmp(const void *a, const void *b, void *arg)
{
	return strata_key_compare((const StrataKey *) arg,
							  ((const StrataJudgeKey *) a)->values,
							  ((const StrataJudgeKey *) b)->values);
}

/* Has the key a row in the base table, by the key index? */
static bool
base_has_row(StrataManifest *manifest, StrataIndexProbe *probe, const Datum *keyvalues)
{
	ItemPointerData tid;
	bool		found;

	for (found = strata_keyindex_probe(probe, keyvalues, &tid);
		 found;
		 found = strata_keyindex_probe_next(probe, &tid))
	{
		StrataRowGroup *group = strata_manifest_group(manifest, strata_tid_group(&tid));

		/* stale, or of a pass later than the snapshot */
		if (group == NULL || strata_tid_row(&tid) >= group->ref.rows)
			continue;
		if (!strata_row_deleted(group, strata_tid_row(&tid)))
			return true;
	}
	return false;
}

static const Datum *
judge_base_by_index(Judge *judge, Oid index, StrataJudgeKey *keys, int nkeys)
{
	StrataIndexProbe *probe;
	const Datum *duplicate = NULL;

	/* in key order, neighbours are found on the same index page */
	qsort_arg(keys, nkeys, sizeof(StrataJudgeKey), judge_key_cmp, &judge->store->key);

	probe = strata_keyindex_probe_begin(judge->store, judge->storage, index);
	for (int i = 0; i < nkeys && duplicate == NULL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (base_has_row(judge->manifest, probe, keys[i].values))
			duplicate = keys[i].values;
	}
	strata_keyindex_probe_end(probe);
	return duplicate;
}

static int
judge_hash_cmp(const void *a, const void *b)
{
	return hash_cmp(&((const StrataJudgeKey *) a)->hash, &((const StrataJudgeKey *) b)->hash);
}

/* Without a usable key index: compare the hashes of all base rows. */
static const Datum *
judge_base_by_scan(Judge *judge, StrataJudgeKey *keys, int nkeys)
{
	const StrataKey *key = &judge->store->key;
	Datum	   *stored = palloc(key->natts * sizeof(Datum));
	Bitmapset  *needed = NULL;
	const Datum *duplicate = NULL;

	for (int i = 0; i < key->natts; i++)
		needed = bms_add_member(needed, key->attnum[i]);
	qsort(keys, nkeys, sizeof(StrataJudgeKey), judge_hash_cmp);

	for (int g = 0; g < judge->manifest->ngroups && duplicate == NULL; g++)
	{
		StrataRowGroup *group = &judge->manifest->groups[g];
		StrataGroupReader *reader = strata_group_open(judge->store, judge->storage,
													  &group->ref, needed, false);
		const uint32 *hashes = strata_group_hashes(reader);

		CHECK_FOR_INTERRUPTS();
		for (uint32 row = 0; row < group->ref.rows && duplicate == NULL; row++)
		{
			int			low = 0;
			int			high = nkeys;

			while (low < high)
			{
				int			middle = low + (high - low) / 2;

				if (keys[middle].hash < hashes[row])
					low = middle + 1;
				else
					high = middle;
			}
			if (low == nkeys || keys[low].hash != hashes[row] ||
				strata_row_deleted(group, row))
				continue;

			strata_group_fetch_key(reader, row, stored);
			for (; low < nkeys && keys[low].hash == hashes[row]; low++)
			{
				if (strata_key_equal(key, stored, keys[low].values))
				{
					duplicate = keys[low].values;
					break;
				}
			}
		}
		strata_group_close(reader);
	}

	bms_free(needed);
	pfree(stored);
	return duplicate;
}
