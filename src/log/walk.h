/*-------------------------------------------------------------------------
 *
 * walk.h
 *	  Reading a shard's log forward, and listing its generations.
 *
 * A walk copies each page under a share lock and parses the copy, so it holds
 * no lock between calls.  Pages are checked for owner, shard, generation and
 * ordinal.
 *
 * IDENTIFICATION
 *	  src/log/walk.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_WALK_H
#define STRATA_WALK_H

#include "log/entry.h"
#include "manifest/manifest.h"

/* Where a walk is, or where a log ends; plain data, may be kept and resumed. */
typedef struct StrataLogPoint
{
	StrataPageRef page;			/* owner 0: at the very start of an empty log */
	uint32		generation;
	uint32		ordinal;
	uint32		offset;			/* first byte on page not yet walked */
} StrataLogPoint;

typedef struct StrataLogWalk StrataLogWalk;

typedef struct StrataLogEntry
{
	StrataPosition position;
	StrataPageRef page;			/* page it starts on */
	const StrataEntryHeader *header;	/* checked; valid until the next call */
} StrataLogEntry;

/*
 * Walk from point on to where the log ends when each page is read.
 * until_generation: stop before a page of a later generation (0: no limit).
 */
extern StrataLogWalk *strata_log_walk_begin(StrataStore *store, Relation storage, int shard,
											const StrataLogPoint *from,
											uint32 until_generation);
extern bool strata_log_walk_next(StrataLogWalk *walk, StrataLogEntry *entry);

/* Where the walk stands; resuming from it yields only what came later. */
extern void strata_log_walk_point(StrataLogWalk *walk, StrataLogPoint *point);

/* Called (if set) for each page walked over: sweep and verify mark it. */
typedef void (*StrataLogPageCallback)(const StrataPageRef *page, const StrataLogPage *header, void *arg);
extern void strata_log_walk_on_page(StrataLogWalk *walk, StrataLogPageCallback callback, void *arg);
extern uint64 strata_log_walk_bytes(StrataLogWalk *walk);	/* page bytes read */
extern void strata_log_walk_end(StrataLogWalk *walk);

/* The first pending point of a shard for a shard state (all of it: NULL). */
extern bool strata_log_start(Relation storage, int shard, const StrataShardState *state,
							 StrataLogPoint *point);

/* Read one entry again by the page it starts on and its offset; palloc'd copy. */
extern StrataEntryHeader *strata_log_read_entry(StrataStore *store, Relation storage, int shard,
												const StrataPageRef *page, uint32 offset);

typedef struct StrataGeneration
{
	int			shard;
	uint32		number;
	bool		sealed;
	uint64		rows;
	uint64		bytes;
	StrataPageRef first;
	StrataPageRef last;			/* the tail page when active */
	StrataPageRef next;			/* first page of the next one; owner 0: none */
	TimestampTz opened_at;
	TimestampTz sealed_at;
} StrataGeneration;

/*
 * The pending generations of a shard, oldest first (List of palloc'd
 * StrataGeneration *), reading one page a generation.  At most max (0: all).
 * The active one is last, left out when it holds nothing.
 */
extern List *strata_log_generations(Relation storage, int shard,
									const StrataShardState *state, int max);

/* Totals appended to all shards so far (cheap: shard pages and tails). */
extern void strata_log_totals(Relation storage, int nshards, uint64 *rows, uint64 *bytes,
							  uint32 *active_generation /* [nshards] */);

#endif							/* STRATA_WALK_H */
