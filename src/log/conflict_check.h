/*-------------------------------------------------------------------------
 *
 * conflict_check.h
 *	  Key locks, and judging whether a key that was written was there.
 *
 * IDENTIFICATION
 *	  src/log/conflict_check.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CONFLICT_CHECK_H
#define STRATA_CONFLICT_CHECK_H

#include "base/keyindex.h"
#include "log/pending.h"

/*
 * A statement that ends with at most this many keys locks them; larger ones
 * are blind.
 */
#define STRATA_MAX_LOCKED_INSERT	64

/*
 * So many new keys of a statement are judged when they are put, so that errors
 * come in the order of rows.  Of a large one, the others are judged when they
 * are linked, many at once, which costs less.
 */
#define STRATA_MAX_JUDGED_AT_ONCE	64

/* Up to here a transaction locks keys one by one without a second thought. */
#define STRATA_MAX_KEY_LOCKS		1000

/*
 * Lock one key whatever it takes: the store lock is waited for, and beyond
 * STRATA_MAX_KEY_LOCKS the whole store is locked as soon as that goes without
 * waiting.  False when nowait and somebody is in the way.  acquired, if not
 * NULL, says whether the key's lock is new, so that strata_unlock_key may give
 * it back.
 *
 * Modes are those that heap uses for its rows: AccessShareLock FOR KEY SHARE,
 * RowShareLock FOR SHARE, ExclusiveLock FOR NO KEY UPDATE, for a new version
 * and for an insert, AccessExclusiveLock FOR UPDATE, for a tombstone and for a
 * changed key.
 */
extern bool strata_lock_key(Oid storage, uint32 hash, LOCKMODE mode, bool nowait,
							bool *acquired);

/*
 * Lock one key for somebody who does not want to wait: false when somebody whose
 * transaction goes on is in the way.  One that is over, but still has its locks,
 * is waited out: it cannot take long.
 */
extern bool strata_lock_key_at_once(Oid storage, uint32 hash, LOCKMODE mode,
									bool *acquired);

/*
 * Has this transaction locked the key FOR UPDATE, by itself?  (While it has all
 * of them locked, that is not known of each.)
 */
extern bool strata_key_locked_for_update(Oid storage, uint32 hash);

/* Give back a lock acquired by strata_lock_key, for which nothing was put. */
extern void strata_unlock_key(Oid storage, uint32 hash, LOCKMODE mode);

/*
 * For a statement that is going to lock many keys: lock all of them, waiting
 * for that if the transaction has locked none yet.
 */
extern void strata_lock_all_keys(Oid storage);

/* The transaction is over, and its key locks with it. */
extern void strata_key_locks_reset(void);

typedef struct StrataJudgeKey
{
	uint32		hash;
	bool		unique;			/* a live row is a duplicate, else only what
								 * the snapshot cannot see counts */
	bool		skips;			/* a duplicate is left out, no error: where the
								 * snapshot is fixed it must see it */
	bool		linked;			/* versions before position only */
	StrataPosition position;	/* where our own version of the key is */
	StrataPosition seen;		/* where the log ended at an earlier look */
	Datum	   *values;			/* in key order */
} StrataJudgeKey;

/*
 * Judge keys by today's commit status: the winner among the versions not known
 * aborted decides; running ones are waited for.  Returns the key values of the
 * first unique one that has a live row, NULL when there is none; sorts keys.
 * Keys that are not linked are judged alone (nkeys = 1).
 *
 * In a transaction whose snapshot is fixed, a winner that this does not see
 * raises 40001, but where a unique index would not mind: a live row is a
 * duplicate whoever sees it (unless the row to be put would be left out), and a
 * deleted one is in nobody's way if the snapshot sees no row of the key
 * either.
 */
extern const Datum *strata_judge_keys(StrataStore *store, Relation storage,
									  StrataJudgeKey *keys, int nkeys);

/*
 * Look at the key of a row that is about to be put, before anything of it is
 * linked: by the same rules, transactions that are putting or deleting the key
 * are waited for.  manifest is one of the statement's snapshot; without a probe
 * of the key index the base table is not looked at.  True when there is a live
 * row, else there was none in what was linked before key->seen.
 */
extern bool strata_judge_new_key(StrataStore *store, Relation storage, StrataManifest *manifest,
								 StrataIndexProbe *probe, StrataJudgeKey *key);

/*
 * Lock the key of a row that is to be put where none is (keys with unique
 * set), or of any other inserted row.  Somebody may hold the key's lock because
 * he locked the row, changes it, or is about to put one.  As with a unique
 * index, a row that is there and that nobody changes is a duplicate at once,
 * whoever has locked it; that is returned (true), and the lock may be missing.
 * A key that was locked without waiting is judged when its row is linked; one
 * with skips set is judged here in any case, and not left locked by this when
 * it has a row.
 */
extern bool strata_lock_new_key(StrataStore *store, Relation storage, StrataJudgeKey *key);

/*
 * The same for the keys of a small INSERT, in hash order; sorts keys.  Returns
 * the key values of a duplicate, NULL if there was none.  Locks nothing when
 * the transaction has its share of key locks or when another session has locked
 * the whole store.
 */
extern const Datum *strata_lock_insert_keys(StrataStore *store, Relation storage,
											StrataJudgeKey *keys, int nkeys);

/*
 * Judge linked versions and tombstones of keys that were looked at before, by
 * what other transactions linked from seen on and before ours, once these have
 * committed.  That of a row that was read raises 40001.  Of a unique key, the
 * values are returned if the last one is a row.  manifest is one of the
 * statement's snapshot, as at the look.
 */
extern const Datum *strata_judge_since(StrataStore *store, Relation storage,
									   StrataManifest *manifest, StrataJudgeKey *keys, int nkeys);

#endif							/* STRATA_CONFLICT_CHECK_H */
