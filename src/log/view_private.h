/*-------------------------------------------------------------------------
 *
 * view_private.h
 *	  What view.c, lookup.c and scan.c share.
 *
 * IDENTIFICATION
 *	  src/log/view_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_VIEW_PRIVATE_H
#define STRATA_VIEW_PRIVATE_H

#include "log/view.h"

#include "lib/ilist.h"

#define MEMO_CHUNK	4096		/* entries */

/*
 * A part of the view that reads: reports what it has read so far into the
 * view's stats, each byte once.
 */
typedef struct StrataViewPart
{
	dlist_node	node;
	void (*report)(struct StrataViewPart *part, StrataReadStats *stats);
} StrataViewPart;

typedef struct StrataViewPrivate
{
	MemoryContext mcxt;			/* the view's own */
	uint8	  **memo;			/* [nmemo] chunks: 0 not asked yet, 1 no, 2 yes */
	int			nmemo;
	uint64		pending_reported;	/* of the pending keys' bytes read */
	bool		index_looked_for;
	Oid			index;
	dlist_head	parts;			/* StrataViewPart, open lookups and scans */
} StrataViewPrivate;

/* The key index usable for exact answers, or InvalidOid; looked for once. */
extern Oid	strata_view_index(StrataView *view);

/* See to it that the view's manifest has all row groups. */
extern void strata_view_complete(StrataView *view);

extern void strata_view_add_part(StrataView *view, StrataViewPart *part);
extern void strata_view_remove_part(StrataView *view, StrataViewPart *part);

/* Account for what was read of pending entries since. */
extern void strata_view_report_pending(StrataView *view);

/* The view's pending generations count as visited. */
extern void strata_view_visit_pending(StrataView *view);

/*
 * SERIALIZABLE, after the predicate lock that covers what is read: conflicts
 * with what was appended between the view's making and the lock.  all: with
 * every such entry; else those the rule meets from now on.
 */
extern bool strata_view_serializable(StrataView *view);
extern void strata_view_catch_up(StrataView *view, bool all);

#endif							/* STRATA_VIEW_PRIVATE_H */
