/*-------------------------------------------------------------------------
 *
 * repair_private.h
 *	  What the files of log repair share.
 *
 *	repair.c		entries of a page; driver
 *	repair_pages.c	from page to page: damaged links, missing pages
 *	repair_shard.c	the shard page
 *
 * IDENTIFICATION
 *	  src/log/repair_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_LOG_REPAIR_PRIVATE_H
#define STRATA_LOG_REPAIR_PRIVATE_H

#include "log/repair.h"
#include "storage/metapage.h"

/* Blocks of a tail extent that replaces a lost one, beyond its first pages. */
#define STRATA_REPAIR_TAIL_BLOCKS		8

/* Pages that an entry can lie on. */
#define STRATA_REPAIR_WINDOW			(STRATA_MAX_ENTRY_PAGES + 1)

typedef struct StrataRepairPage
{
	bool		exists;			/* false: the log ends before it */
	StrataPageRef ref;
	bool		refused;		/* by PostgreSQL */
	bool		dirty;

	/* how it was come to */
	bool		relinked;		/* the page before does not name it */
	bool		closed_wrong;	/* the page before is closed or not, wrongly */
	bool		gap;			/* pages before it are missing */
	BlockNumber lost_block;		/* where the first of them should be */

	PGAlignedBlock copy;
} StrataRepairPage;

/* A log page of the shard, found by reading the whole file. */
typedef struct StrataRepairFound
{
	uint32		generation;
	uint32		ordinal;
	StrataPageRef ref;
	bool		refused;
	XLogRecPtr	lsn;

	/* as its header says */
	bool		closed;
	bool		open;			/* neither closed nor followed by a page */
	uint64		rows_before;
	uint64		rows;
	uint64		bytes_before;
	uint64		bytes;
} StrataRepairFound;

typedef struct StrataRepairWalk
{
	const StrataLogRepair *request;
	Relation	storage;
	int			shard;
	bool		shard_lost;		/* the shard page; shard_data is in its place */
	StrataShardData shard_data;
	uint64		next_owner;		/* when last read */
	StrataLogPoint first;		/* where the log should start */
	bool		moved;			/* it starts at start instead */
	StrataPageRef start;

	StrataRepairPage *window[STRATA_REPAIR_WINDOW]; /* the page being looked at, and the next */
	int			carry;			/* pages that a sound entry goes on over */
	char	   *assembled;

	StrataRepairFound *found;			/* by generation and ordinal; NULL: not read yet */
	Size		nfound;

	/* the generation being walked */
	uint32		generation;
	bool		whole;			/* all of it was seen */
	bool		filled;			/* with new pages */
	StrataPageRef generation_first;
	StrataPageRef last;
	uint64		rows;
	uint64		bytes;
	uint64		rows_before;	/* likewise, without the last page */
	uint64		bytes_before;

	/* what was walked before it */
	uint64		sealed_rows;
	uint64		sealed_bytes;

	uint64		nlosses;		/* told */
	MemoryContext entry_mcxt;
} StrataRepairWalk;

static inline StrataLogPage *
strata_repair_header(StrataRepairPage *page)
{
	return strata_page_log(page->copy.data);
}

static inline uint32
strata_repair_lower(StrataRepairPage *page)
{
	return ((PageHeader) page->copy.data)->pd_lower;
}

static inline bool
strata_repair_closed(StrataRepairPage *page)
{
	return page != NULL && (strata_repair_header(page)->flags & STRATA_LOG_PAGE_CLOSED) != 0;
}

/* ---- repair_pages.c ---- */

/* Tell the caller of a loss. */
extern void strata_repair_report(StrataRepairWalk *repair, StrataLogLossKind kind,
								 uint32 generation, uint32 ordinal, BlockNumber block,
								 uint32 offset, int64 rows, int64 bytes, const char *problem);

/* Find the page after page; NULL: the first. */
extern void strata_repair_next(StrataRepairWalk *repair, StrataRepairPage *page,
							   StrataRepairPage *next);

/* The walk has come to this page; filled: a new one. */
extern void strata_repair_note(StrataRepairWalk *repair, StrataRepairPage *page, bool filled);

/*
 * Pages are missing between before (NULL: from the start) and next (which does
 * not exist if the log's end is missing).  Tell what they held, and unless
 * this is a dry run put new ones in their place.
 */
extern void strata_repair_fill(StrataRepairWalk *repair, StrataRepairPage *before,
							   StrataRepairPage *next);

/* Write a page (may be NULL) anew, and with it the shard page if shard is given. */
extern void strata_repair_write(StrataRepairWalk *repair, StrataRepairPage *page,
								const StrataShardData *shard);

/* Can a pending log have this place?  Else filling up to it would not end. */
extern bool strata_repair_is_near(const StrataRepairWalk *repair, uint32 generation,
								  uint32 ordinal);

/*
 * Load the page at ref if it is that page of the log; also if it is but for an
 * owner id that nobody can have.
 */
extern bool strata_repair_load(StrataRepairWalk *repair, const StrataPageRef *ref,
							   uint32 generation, uint32 ordinal, StrataRepairPage *page);

/*
 * The first page of the log at or after a place; NULL: none.  Reads the file if
 * that was not done yet.
 */
extern const StrataRepairFound *strata_repair_find(StrataRepairWalk *repair, uint32 generation,
												   uint32 ordinal);

/* By generation and ordinal, for qsort. */
extern int	strata_repair_compare(const void *a, const void *b);

/* ---- repair_shard.c ---- */

/*
 * Set where the log starts.  A shard page that cannot be read is made anew from
 * the pages of the log.  False: there is no log.
 */
extern bool strata_repair_start(StrataRepairWalk *repair, const StrataShardState *state);

/*
 * The walk has come to the end of the log: see to it that nothing says that its
 * last generation is sealed, and unless this is a dry run that the shard page
 * names its pages.
 */
extern void strata_repair_finish(StrataRepairWalk *repair, const StrataShardState *state);

/*
 * After all of that: are the shard page's totals right?  Where something was
 * lost they follow from that, and nothing more is told.
 */
extern void strata_repair_totals(StrataRepairWalk *repair, const StrataShardState *state);

/* The shard page, or what is in its place.  False: nothing was written yet. */
extern bool strata_repair_get_shard(StrataRepairWalk *repair, StrataShardData *data);

#endif							/* STRATA_LOG_REPAIR_PRIVATE_H */
