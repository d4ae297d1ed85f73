/*-------------------------------------------------------------------------
 *
 * metapage.h
 *	  The metapage and shard pages: counters of a store, tails of its log.
 *
 * The metapage's M and P (newest pass, last committed pass) are full xids of
 * top-level transactions; they tell a backend which decoded manifest serves
 * its snapshot (manifest/manifest.h).
 *
 * Locks: page locks only.  Lock order: shard page, log tail, new log pages,
 * spare page, metapage.
 *
 * IDENTIFICATION
 *	  src/storage/metapage.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_METAPAGE_H
#define STRATA_METAPAGE_H

#include "storage/page.h"

#include "datatype/timestamp.h"

typedef struct StrataMetaData
{
	uint32		magic;
	uint32		version;
	uint32		incarnation;	/* +1 by each TRUNCATE; starts at 1 */
	uint32		nshards;
	uint32		next_row_group; /* starts at 1; never reused */
	uint32		unused;
	FullTransactionId newest_pass;		/* M; Invalid: no pass ever */
	FullTransactionId committed_pass;	/* P; Invalid: none */
	FullTransactionId swept;	/* newest horizon that blocks were given back by */
} StrataMetaData;

/*
 * M or P once it is older than every snapshot and clog may forget it: visible
 * to everybody.  Set by freeze.  The xid stays in the value, so that settled
 * passes still differ from each other: what is cached by M or P must compare
 * the whole value, never just "settled".
 */
#define STRATA_PASS_SETTLED_BIT		(UINT64CONST(1) << 63)

static inline bool
strata_pass_is_settled(FullTransactionId pass)
{
	return (U64FromFullTransactionId(pass) & STRATA_PASS_SETTLED_BIT) != 0;
}

/* The pass without its mark, to compare it with one seen before settling. */
static inline FullTransactionId
strata_pass_xid(FullTransactionId pass)
{
	return FullTransactionIdFromU64(U64FromFullTransactionId(pass) &
									~STRATA_PASS_SETTLED_BIT);
}

/* Blocks of the tail extent that each shard of a new store starts with. */
#define STRATA_FIRST_TAIL_BLOCKS	16

/*
 * A shard page.  A new store's shard has a tail extent but no log page:
 * log_start, active_start and tail have owner 0 until the first append, which
 * makes the first page of tail_extent, links it as all three and leaves
 * active_generation as it is.
 */
typedef struct StrataShardData
{
	uint32		shard;
	uint32		active_generation;	/* number of the active generation, from 1 */
	StrataPageRef log_start;	/* very first log page of this file */
	StrataPageRef active_start; /* first page of the active generation */
	StrataPageRef tail;			/* page that takes the next entry */
	StrataExtent tail_extent;	/* the extent tail lies in; its blocks after
								 * tail are still unused */
	StrataExtent next_extent;	/* prepared; owner 0: none yet */
	uint64		rows;			/* rows ever appended, up to the tail page */
	uint64		bytes;			/* stored bytes likewise, row groups included */
} StrataShardData;

static inline StrataMetaData *
strata_page_meta(Page page)
{
	return (StrataMetaData *) PageGetContents(page);
}

static inline StrataShardData *
strata_page_shard(Page page)
{
	return (StrataShardData *) PageGetContents(page);
}

/*
 * Copy the metapage.  False when the relation has no blocks (empty store).
 * Raises XX001 on a page that is not a metapage, 0A000 on another version.
 */
extern bool strata_meta_read(Relation rel, StrataMetaData *out);

/*
 * Copy a shard page.  False when the store has not been made yet (appenders
 * then call strata_store_initialize and read again).
 */
extern bool strata_shard_read(Relation rel, int shard, StrataShardData *out);

/*
 * Make metapage, spare page, shard pages and the first tail extent of each
 * shard, if they are not there: under the extent lock, which is taken and
 * released here.  All of them come to be by one record, so a store is either
 * empty or complete.  Idempotent; two first writers both succeed.
 */
extern void strata_store_initialize(Relation rel, int nshards);

/*
 * The same for a file just made by TRUNCATE (AccessExclusiveLock held):
 * counters continue from old (next owner id is next_owner), incarnation is
 * one higher, M is xid and P none.  old_shards (nshards of them) give the
 * generation numbers and totals to continue from: a shard's active generation
 * is one after the old one, so the manifest's merged_through becomes the old
 * active generation's number.
 */
extern void strata_store_reinitialize(Relation rel, const StrataMetaData *old,
									  const StrataShardData *old_shards,
									  uint64 next_owner, FullTransactionId xid);

/*
 * Log that the pass of transaction xid (top level) is about to write the
 * manifest: M becomes xid; P becomes the old M if that committed.  A
 * transaction that is M already changes nothing.  Caller holds the pass lock.
 */
extern void strata_meta_begin_pass(Relation rel, FullTransactionId xid);

/* Settle M and P that precede horizon (freeze).  Logged. */
extern void strata_meta_settle_passes(Relation rel, TransactionId horizon);

/*
 * The xid that what may be gone is judged by: the oldest one that some snapshot
 * may still hold for running, but nothing older than what a sweep has judged
 * by.  That xid can go back when a standby asks, late, for what is gone.
 */
extern TransactionId strata_meta_horizon(Relation rel);

/*
 * A sweep is about to give away blocks by this horizon (strata_meta_horizon's,
 * under the pass lock).  Logged, before that and after the conflict record.
 */
extern void strata_meta_note_sweep(Relation rel, TransactionId horizon);

/* Give out n consecutive row group numbers; caller holds the pass lock. */
extern uint32 strata_meta_take_row_groups(Relation rel, uint32 n);

#endif							/* STRATA_METAPAGE_H */
