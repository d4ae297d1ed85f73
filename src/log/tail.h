/*-------------------------------------------------------------------------
 *
 * tail.h
 *	  The end of a shard's log: its pages, and where the next ones come from.
 *
 * Private to append.c, which says what is done under which locks, and to
 * repair.c.
 *
 * IDENTIFICATION
 *	  src/log/tail.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_TAIL_H
#define STRATA_TAIL_H

#include "log/entry.h"
#include "storage/metapage.h"

/* Where the next pages of a log go. */
typedef struct StrataTailPlan
{
	StrataPageRef pages[STRATA_MAX_ENTRY_PAGES];
	StrataExtent tail_extent;	/* the shard page's afterwards */
	StrataExtent next_extent;
} StrataTailPlan;

/* Bytes that still fit the page. */
static inline Size
strata_tail_room(Page page)
{
	return ((PageHeader) page)->pd_upper - ((PageHeader) page)->pd_lower;
}

/* May an entry be appended to this page? */
static inline bool
strata_tail_is_open(const StrataLogPage *header, int shard)
{
	return header->shard == (uint32) shard && header->next.owner == 0 &&
		(header->flags & STRATA_LOG_PAGE_CLOSED) == 0;
}

/* Are the fields of a shard page such that new pages can be planned by them? */
extern bool strata_tail_is_sound(const StrataShardData *data, int shard);

/* The shard page, checked and locked exclusively: the tail stays where it is. */
extern Buffer strata_tail_lock_shard(Relation storage, int shard);

/* The tail page of a locked shard page, locked exclusively. */
extern Buffer strata_tail_lock(Relation storage, const StrataShardData *shard);

/*
 * Raise an error unless page, which a shard page names as its tail, can be
 * one.
 */
extern void strata_tail_check(Relation storage, Page page, BlockNumber block, int shard);

/*
 * Choose the next npages pages of a log.  False when its extents do not have
 * as many.
 */
extern bool strata_tail_plan(const StrataShardData *shard, int npages, StrataTailPlan *plan);

/* The first page of the next extent, what is left of this one given up. */
extern bool strata_tail_plan_over(const StrataShardData *shard, StrataTailPlan *plan);

/* Is it time to prepare the next extent? */
extern bool strata_tail_runs_out(const StrataShardData *shard);

/*
 * See to it that the shard page names a next extent.  No page lock may be
 * held.
 */
extern void strata_tail_prepare(Relation storage, int shard);

/*
 * See to it that the next extent lies before block limit; another one that the
 * shard page named is unreferenced afterwards.  False when there is no room.
 */
extern bool strata_tail_prepare_before(Relation storage, int shard, BlockNumber limit);

/* Make a page, registered as a full image, an empty page of a log. */
extern StrataLogPage *strata_tail_init_page(Page page, uint64 owner, int shard,
											uint32 generation, uint32 ordinal);

#endif							/* STRATA_TAIL_H */
