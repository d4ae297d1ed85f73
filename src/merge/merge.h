/*-------------------------------------------------------------------------
 *
 * merge.h
 *	  Choosing generations, merge passes, sweep, freeze, verify.
 *
 * IDENTIFICATION
 *	  src/merge/merge.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MERGE_H
#define STRATA_MERGE_H

#include "log/pending.h"
#include "log/view.h"
#include "storage/relation_am.h"

/* ---- choosing (choose.c): the one bounded function ---- */

typedef struct StrataChoice
{
	int			ngenerations;
	StrataGeneration **generations; /* within a shard by number, across shards
									 * by sealing time */
	uint64		bytes;
	int			left;			/* sealed generations not chosen */
	TransactionId blocked_by;	/* a running xid that blocked a shard, or 0 */
} StrataChoice;

extern StrataChoice *strata_choose(StrataStore *store, Relation storage,
								   const StrataManifest *manifest,
								   int max_generations, int64 max_bytes);

/* ---- a merge pass (pass.c) ---- */

/*
 * Fold a bounded run of sealed generations.  Takes the pass lock and
 * ShareUpdateExclusiveLock on the storage, then a registered latest snapshot.
 * Never opens the foreign table.  Negative caps: the table's options.  With
 * nowait, false when another pass holds the lock.
 */
extern bool strata_merge_pass(Oid ftrelid, int max_generations, int64 max_bytes,
							  bool nowait, StrataPassRecord *out);

/* ---- sweep (sweep.c): caller is a top-level statement ---- */

typedef struct StrataSweepResult
{
	int64		blocks_total;
	int64		blocks_freed;	/* newly put on the spare page */
	int64		blocks_left;	/* did not fit there */
	int64		blocks_truncated;
	int64		index_tids_removed;
} StrataSweepResult;

extern void strata_sweep(Oid ftrelid, StrataSweepResult *out);

/*
 * Which blocks are referred to by what, for sweep and verify: one bit a block
 * (palloc_huge'd), computed in the order size and spare page, log, manifest.
 * report (may be NULL) is called for a block referred to twice or outside the
 * file.
 */
typedef void (*StrataBlockFault) (BlockNumber block, const char *what, void *arg);
extern uint8 *strata_referenced_blocks(StrataStore *store, Relation storage,
									   TransactionId horizon, bool include_spare,
									   BlockNumber *nblocks,
									   StrataBlockFault report, void *arg);

/* ---- freeze (freeze.c): StrataStorageHooks.vacuum ---- */

extern void strata_freeze(Relation storage, VacuumParams *params,
						  BufferAccessStrategy strategy);

#endif							/* STRATA_MERGE_H */
