/*-------------------------------------------------------------------------
 *
 * extent.h
 *	  Who owns which block: the spare page, taking, extending, giving back,
 *	  and reading and writing the bytes of an extent.
 *
 * The spare page (block 1) holds the next owner id and the store's free
 * extents, coalesced and sorted by block.  Every block is at any moment one
 * of: a fixed page; free on the spare page; referred to by the log, a shard
 * page or the manifest; or unreferenced (a lost transaction's), which sweep
 * finds.  A block changes hands only by a record over the spare page.
 *
 * Crash windows: the relation is extended before the record that puts the new
 * blocks on the spare page, so a crash between leaves unreferenced zero pages
 * at the end, never a block owned twice.  What was extended and what the spare
 * page says is the same to anybody who holds the extent lock.
 *
 * IDENTIFICATION
 *	  src/storage/extent.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_EXTENT_H
#define STRATA_EXTENT_H

#include "storage/page.h"

#include "access/generic_xlog.h"

typedef struct StrataSpareRun
{
	BlockNumber block;
	uint32		nblocks;
} StrataSpareRun;

typedef struct StrataSpareData
{
	uint64		next_owner;		/* starts at 1 */
	uint32		nruns;
	uint32		unused;
	StrataSpareRun runs[FLEXIBLE_ARRAY_MEMBER];
} StrataSpareData;

/* Pages that are locked and logged together. */
#define STRATA_WRITE_PAGES		32

/* Smallest extension, and most that is extended under one hold of the lock. */
#define STRATA_EXTEND_MIN		64
#define STRATA_EXTEND_PIECE		(8 * 1024 * 1024 / BLCKSZ)

#define STRATA_SPARE_MAX_RUNS \
	((STRATA_PAGE_CAPACITY - offsetof(StrataSpareData, runs)) / sizeof(StrataSpareRun))

static inline StrataSpareData *
strata_page_spare(Page page)
{
	return (StrataSpareData *) PageGetContents(page);
}

/*
 * The spare page, locked exclusively, for a caller that takes an extent in a
 * record of its own making.
 */
extern Buffer strata_spare_lock(Relation rel);

/*
 * Take nblocks from the spare page image (a page registered with GenericXLog),
 * the lowest ones there are: changes the image and fills out with block, count
 * and a new owner id.  False, image unchanged, when no run has as many before
 * block limit (InvalidBlockNumber: no limit).
 */
extern bool strata_spare_take(Page spare, uint32 nblocks, BlockNumber limit,
							  StrataExtent *out);

/* Take an extent in a record of its own (passes).  Extends when need be. */
extern void strata_extent_take(Relation rel, uint32 nblocks, StrataExtent *out);

/*
 * The same, but only before block limit, or else false, with nothing done; and
 * from a run that has as many at block first or later.
 */
extern bool strata_extent_take_before(Relation rel, uint32 nblocks, BlockNumber limit,
									  StrataExtent *out);
extern void strata_extent_take_behind(Relation rel, uint32 nblocks, BlockNumber first,
									  StrataExtent *out);

/*
 * See to it that the spare page has a run of nblocks at this moment (another
 * session may take it: callers loop).  Extends the relation by at least 64
 * blocks, in pieces of at most 8 MB per hold of the extent lock.  No page
 * lock may be held.
 */
extern void strata_extent_reserve(Relation rel, uint32 nblocks);

/*
 * Put runs (sorted, disjoint) back on the spare page; returns the number of
 * blocks that did not fit and stay unreferenced.  The caller (sweep) holds
 * pass and extent lock and has logged the conflict record.
 */
extern uint64 strata_spare_give(Relation rel, const StrataSpareRun *runs, int nruns);

/*
 * Take a free tail of at least min_blocks off the spare page by a logged
 * record, then truncate the file, under a conditional AccessExclusiveLock.
 * before is called once that lock is held and the file will be cut, before
 * anything is changed.  Returns the number of blocks given back to the file
 * system.  Caller (sweep) holds pass and extent lock.
 */
typedef void (*StrataBeforeTruncation)(void *arg);
extern BlockNumber strata_extent_truncate_tail(Relation rel, BlockNumber min_blocks,
											   StrataBeforeTruncation before, void *arg);

/*
 * Append nblocks zero pages to the file.  The caller holds the extent lock and
 * sees to it that a record makes replay do the same (one over the last page).
 */
extern void strata_extend_file(Relation rel, uint32 nblocks);

/* Copy the spare page; NULL for an empty store.  palloc'd. */
extern StrataSpareData *strata_spare_read(Relation rel);

/* What the free extents on it come to; bytes. */
extern int64 strata_spare_bytes(Relation rel);

/*
 * How much of that can be written in pieces of piece bytes, or as one that is
 * smaller.
 */
extern int64 strata_spare_room(Relation rel, int64 piece);

/* ---- bytes of an extent (STRATA_PAGE_DATA pages) ---- */

static inline uint32
strata_extent_blocks_for(uint64 bytes)
{
	return (uint32) ((bytes + STRATA_PAGE_CAPACITY - 1) / STRATA_PAGE_CAPACITY);
}

/*
 * Sequential writer of an extent just taken.  Pages go through shared buffers
 * with a bulk ring; up to 32 at a time are locked, filled, marked dirty and
 * logged as one XLOG_FPI record before any lock is released.
 */
typedef struct StrataExtentWriter StrataExtentWriter;

extern StrataExtentWriter *strata_extent_write_begin(Relation rel, const StrataExtent *extent);
extern void strata_extent_write(StrataExtentWriter *writer, const void *data, Size len);
extern void strata_extent_write_end(StrataExtentWriter *writer);

/*
 * Copy len bytes from byte offset of the extent into dst, checking owner and
 * bounds.  object is for error messages.
 */
extern void strata_extent_read(Relation rel, const StrataExtent *extent, uint64 offset,
							   Size len, void *dst, BufferAccessStrategy strategy,
							   const char *object);

#endif							/* STRATA_EXTENT_H */
