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
 * waiting.
 */
extern void strata_lock_key(Oid storage, uint32 hash);

/* The transaction is over, and its key locks with it. */
extern void strata_key_locks_reset(void);

typedef struct StrataJudgeKey
{
	uint32		hash;
	bool		unique;			/* a live row is a duplicate, else only what
								 * the snapshot cannot see counts */
	bool		linked;			/* versions before position only */
	StrataPosition position;	/* where our own version of the key is */
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

#endif							/* STRATA_CONFLICT_CHECK_H */
