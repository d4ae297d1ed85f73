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

#include "log/pending.h"

/*
 * A statement that ends with at most this many keys locks them; larger ones
 * are blind.
 */
#define STRATA_MAX_LOCKED_INSERT	64

/* Up to here a transaction locks keys one by one without a second thought. */
#define STRATA_MAX_KEY_LOCKS		1000

/*
 * Lock the keys of a small INSERT, in hash order; hashes is sorted in place.
 * False, nothing locked, when the transaction has its share of key locks or
 * when another session has locked the whole store.
 */
extern bool strata_lock_insert_keys(Oid storage, uint32 *hashes, int nhashes);

/*
 * Lock one key whatever it takes: the store lock is waited for, and beyond
 * STRATA_MAX_KEY_LOCKS the whole store is locked as soon as that goes without
 * waiting.  False when nowait and somebody is in the way.
 *
 * Modes are those that heap uses for its rows: AccessShareLock FOR KEY SHARE,
 * RowShareLock FOR SHARE, ExclusiveLock FOR NO KEY UPDATE, for a new version
 * and for an insert, AccessExclusiveLock FOR UPDATE, for a tombstone and for a
 * changed key.
 */
extern bool strata_lock_key(Oid storage, uint32 hash, LOCKMODE mode, bool nowait);

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
	bool		linked;			/* versions before position only */
	StrataPosition position;	/* where our own version of the key is */
	StrataPosition seen;		/* of changes: where the log ended at the look */
	Datum	   *values;			/* in key order */
} StrataJudgeKey;

/*
 * Judge keys by today's commit status: the winner among the versions not known
 * aborted decides; running ones are waited for.  Returns the key values of the
 * first unique one that has a live row, NULL when there is none; sorts keys.
 * In a transaction whose snapshot is fixed, a winner that this does not see
 * raises 40001.  Keys that are not linked are judged alone (nkeys = 1).
 */
extern const Datum *strata_judge_keys(StrataStore *store, Relation storage,
									  StrataJudgeKey *keys, int nkeys);

/*
 * Judge linked new versions and tombstones of rows that were read: a version
 * that another transaction linked from seen on and before ours raises 40001,
 * once that has committed.  manifest is the one the rows were read with.
 */
extern void strata_judge_changes(StrataStore *store, Relation storage, StrataManifest *manifest,
								 StrataJudgeKey *keys, int nkeys);

#endif							/* STRATA_CONFLICT_CHECK_H */
