/*-------------------------------------------------------------------------
 *
 * view_private.h
 *	  What the files of the view share.
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
	uint8	  **memo;			/* [nmemo] chunks, see view.c */
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

/* Does the snapshot not see the entry, and has its writer not been noted for it? */
extern bool strata_view_is_unseen(StrataView *view, int index);

/* ---- view_serializable.c ---- */

/* The key of a hash (NULL: any key) is about to be looked up. */
extern void strata_view_read_key(StrataView *view, const uint32 *hash);

/*
 * Rows within bounds (by key column, ascending) are about to be read, by the rule
 * that is returned.
 */
extern StrataAccept strata_view_read(StrataView *view, const StrataBound *bounds, int nbounds);

/* The snapshot does not see an entry of what is read. */
extern void strata_view_conflict_out(StrataView *view, int index);

/* ---- scan.c ---- */

/* The rule by which a scan reads. */
extern StrataAccept strata_scan_rule(const StrataScan *scan);

#endif							/* STRATA_VIEW_PRIVATE_H */
