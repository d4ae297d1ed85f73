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
	uint64		memory;			/* what their keys will take */
	int			left;			/* sealed generations not chosen */
	FullTransactionId blocked_by;	/* oldest running xid that blocked a shard,
									 * or invalid */
} StrataChoice;

/*
 * Choose what a pass folds.  Caps of 0 are lifted.  key_memory: what the pass
 * keeps in memory of each key.  through (may be NULL): newest generation of
 * each shard that may be chosen; later ones do not count as left.  Allocates
 * in CurrentMemoryContext.
 */
extern StrataChoice *strata_choose(StrataStore *store, Relation storage,
								   const StrataManifest *manifest,
								   int max_generations, int64 max_bytes,
								   Size key_memory, const uint32 *through);

/*
 * The oldest running xid among the entries of a generation, or invalid when
 * every one is known committed or aborted (reads the generation).  counts
 * (may be NULL) receives how many entries and keys it holds.
 */
typedef struct StrataGenerationCounts
{
	uint64		entries;		/* ROWS and ROW_GROUP */
	uint64		keys;			/* rows and tombstones */
} StrataGenerationCounts;

extern FullTransactionId strata_generation_blocked_by(StrataStore *store, Relation storage,
													  const StrataGeneration *generation,
													  StrataGenerationCounts *counts);

/* Where the pages of a generation start. */
extern void strata_generation_point(const StrataGeneration *generation, StrataLogPoint *point);

/* ---- what every pass begins and ends with (enter.c) ---- */

/* Whoever called, while type code runs as the table's owner. */
typedef struct StrataCaller
{
	Oid			userid;
	int			sec_context;
	int			guc_level;
} StrataCaller;

/*
 * Become the owner of a table, in a security-restricted operation with a fixed
 * search_path, and the caller again; an error does that, too.
 */
extern void strata_become_owner(StrataCaller *caller, Oid ftrelid);
extern void strata_become_caller(const StrataCaller *caller);

typedef struct StrataPassEnv
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;	/* what the pass starts from */
	MemoryContext mcxt;			/* current until the end */

	/* private to enter.c */
	const char *command;		/* NULL: a worker's */
	MemoryContext old_mcxt;
	StrataCaller caller;
} StrataPassEnv;

/*
 * Take the pass lock and ShareUpdateExclusiveLock on the storage, both to the
 * end of the transaction, then an active latest snapshot; become the table's
 * owner.  command is for messages: it is refused in read-only transactions, on
 * standbys (25006) and at REPEATABLE READ and above (25001).  False, with
 * nothing done, only with nowait and when a lock is not to be had at once.
 */
extern bool strata_pass_enter(StrataPassEnv *env, Oid ftrelid, const char *command,
							  bool nowait);
/*
 * Undo all of that but the locks; before, unless nowait, lock the foreign table
 * (strata_pass_lock_table).
 */
extern void strata_pass_leave(StrataPassEnv *env);

/* The locks alone; the storage, or InvalidOid as above. */
extern Oid	strata_pass_lock(Oid ftrelid, bool nowait);

/*
 * Where they were waited for: lock the foreign table for the rest of the
 * transaction, 55P03 if that would mean to wait.
 */
extern void strata_pass_lock_table(const StrataStore *store, const char *command);

/* ---- a merge pass (pass.c) ---- */

typedef struct StrataPassRequest
{
	int			max_generations;	/* negative caps: the table's options */
	int64		max_bytes;
	bool		nowait;			/* do not wait for another pass */
	const uint32 *through;		/* as in strata_choose; NULL: no limit */
} StrataPassRequest;

/*
 * Fold a bounded run of sealed generations, with the locks of
 * strata_pass_enter.  out: what it did, and how many generations are left.
 * blocked_by (may be NULL): a running transaction that kept generations from
 * being chosen.  False, with nothing done, only with nowait and when a lock is
 * not to be had at once.
 */
extern bool strata_merge_pass(Oid ftrelid, const StrataPassRequest *request,
							  StrataPassRecord *out, FullTransactionId *blocked_by);

/*
 * Somebody called a pass of the table that did something: what made workers put
 * it off may be over with the commit.  Set by the worker layer.
 */
typedef void (*StrataPassByHand)(Oid ftrelid);
extern StrataPassByHand strata_pass_by_hand_hook;

/* Raise 55P03 when a session waits for AccessExclusiveLock on the storage. */
extern void strata_pass_give_way(StrataStore *store);

/* ---- which base rows a pass supersedes (supersede.c) ---- */

/*
 * Collects the keys a pass puts into the base or takes out of it, in memory
 * of a fixed size (the rest is on disk), and then, in key order, probes the
 * key index for the base rows they supersede and adds the new TIDs.  index is
 * the one that is probed; InvalidOid: none is, the TIDs are only added.
 */
typedef struct StrataSupersede StrataSupersede;

extern StrataSupersede *strata_supersede_begin(StrataStore *store, Relation storage,
											   StrataManifest *manifest, Oid index);
extern void strata_supersede_put(StrataSupersede *supersede, const Datum *keyvalues,
								 uint32 group, uint32 row);
extern void strata_supersede_put_tombstone(StrataSupersede *supersede, const Datum *keyvalues);

/* Called for each superseded base row (and at times to look around). */
typedef void (*StrataSupersededRow)(uint32 group, uint32 row, bool tombstone, void *arg);
typedef void (*StrataPassTick)(void *arg);

/* Counts index_probes and base_bytes_read in record; frees. */
extern void strata_supersede_finish(StrataSupersede *supersede, StrataSupersededRow callback,
									StrataPassTick tick, void *arg,
									StrataPassRecord *record);

/*
 * The same without an index: hash the base's keys against the pass's pending
 * ones.  accept says which entries count.
 */
extern void strata_supersede_by_hash(StrataStore *store, Relation storage,
									 StrataManifest *manifest, StrataPending *pending,
									 StrataAccept accept, void *accept_arg,
									 StrataSupersededRow callback, StrataPassTick tick,
									 void *arg, StrataPassRecord *record);

/* ---- sweep (sweep.c): caller is a top-level statement ---- */

typedef struct StrataSweepResult
{
	int64		blocks_total;
	int64		blocks_freed;	/* newly put on the spare page */
	int64		blocks_left;	/* did not fit there */
	int64		blocks_truncated;
	int64		index_tids_removed;
} StrataSweepResult;

/*
 * Give back what nothing refers to, and cut off a free tail of the file; with
 * index, remove dead TIDs, too, which reads the whole key index.  Locks as in
 * strata_pass_enter, then the extent lock.  False, with nothing done, only with
 * nowait and when a lock is not to be had at once.
 */
extern bool strata_sweep(Oid ftrelid, bool index, bool nowait, StrataSweepResult *out);

/* How long a free tail of a file of nblocks must be to be cut off. */
extern BlockNumber strata_sweep_tail_wanted(BlockNumber nblocks);

/* ---- compaction (compact.c) ---- */

typedef struct StrataCompactResult
{
	int64		row_groups_read;	/* and gone */
	int64		row_groups_left;	/* worth it, but beyond the bound */
	int64		row_groups_written;
	int64		rows_moved;
	int64		rows_dropped;	/* deleted ones */
	int64		bytes_read;
	int64		bytes_written;
	int64		blocks_gone;	/* that nothing but old snapshots needs now */
	int64		peak_memory;
	TimestampTz started;
	TimestampTz ended;
} StrataCompactResult;

/* How much a compaction has to gain; from a manifest alone. */
typedef struct StrataCompactNeed
{
	int			small;			/* row groups under a quarter of full size */
	int			sparse;			/* row groups of which half is deleted */
	uint64		dead_bytes;		/* stored, of deleted rows in sparse ones;
								 * thorough: in all that can be copied */
} StrataCompactNeed;

/*
 * thorough: count as sparse what is not worth its rewriting as long as the
 * store is written to.
 */
extern void strata_compact_need(StrataStore *store, const StrataManifest *manifest,
								bool thorough, StrataCompactNeed *need);

typedef struct StrataCompactRequest
{
	int64		max_bytes;		/* read; negative: the table's option; 0: no cap */
	int64		growth;			/* written, lest the file grow; 0: no cap */
	bool		patient;		/* nothing rather than more than growth */
	bool		thorough;
	bool		nowait;			/* do not wait for another pass */
} StrataCompactRequest;

/*
 * One bounded pass: rewrite small and sparse row groups.  If it is not
 * patient the first two are taken whatever max_bytes is, and a sparse one or two
 * small ones whatever growth is.  thorough: also those that are less
 * sparse, and move what keeps the end of the file from being cut off.  False,
 * with nothing done, only with nowait and when another pass holds the lock.
 */
extern bool strata_compact_pass(Oid ftrelid, const StrataCompactRequest *request,
								StrataCompactResult *out);

/* ---- shortening the file (shorten.c) ---- */

typedef struct StrataShorten StrataShorten;

/*
 * What is to be moved so that sweep can cut off the end of the file, or NULL
 * when it could not even then.  gone: row groups, by index in the manifest,
 * that the same pass takes out (may be NULL).  The manifest is the newest, or
 * nothing comes of the plan but an idea.
 */
extern StrataShorten *strata_shorten_plan(StrataStore *store, Relation storage,
										  const StrataManifest *manifest, const bool *gone);

/* How many things that are; 0: the end is free already. */
extern int	strata_shorten_moves(const StrataShorten *plan);

/*
 * Move them, at most max_bytes of row groups (0: no cap; the first thing is
 * always moved), from the end down.  In a pass that has logged itself as M.
 */
extern void strata_shorten_move(StrataShorten *plan, StrataPassEnv *env, int64 max_bytes,
								StrataPassRecord *record, StrataPassTick tick, void *arg,
								StrataCompactResult *result);

/* ---- what refers to which block (blocks.c) ---- */

/*
 * Which blocks are referred to by what, for sweep and verify: one bit a block
 * (palloc_huge'd), computed in the order size and spare page, log, manifest.
 * report (may be NULL) is called for a block referred to twice or outside the
 * file.
 */
typedef struct StrataBlockFault
{
	BlockNumber block;
	const char *what;
	bool		spare;			/* the spare page may be what is wrong */
	int			shard;			/* whose page may be; -1: none's */
} StrataBlockFault;

typedef void (*StrataBlockFaultCallback)(const StrataBlockFault *fault, void *arg);
extern uint8 *strata_referenced_blocks(StrataStore *store, Relation storage,
									   TransactionId horizon, bool include_spare,
									   BlockNumber *nblocks,
									   StrataBlockFaultCallback report, void *arg);

/*
 * The same for the faults alone, going on where a shard page or a log cannot
 * be read: what is found is not all then.
 */
extern void strata_check_blocks(StrataStore *store, Relation storage, TransactionId horizon,
								StrataBlockFaultCallback report, void *arg);

/*
 * How often a block fault must show before it is believed, while others write:
 * what they change between the looks at size, spare page and log can make a
 * block seem to be referred to twice.
 */
#define STRATA_BLOCK_ROUNDS		3

/* ---- freeze (freeze.c): StrataStorageHooks.vacuum ---- */

extern void strata_freeze(Relation storage, VacuumParams *params,
						  BufferAccessStrategy strategy);

#endif							/* STRATA_MERGE_H */
