/*-------------------------------------------------------------------------
 *
 * view.h
 *	  A store as one snapshot sees it: manifest, end of log, lookups, scans.
 *
 * A view fixes the log end of every shard when it is made; for rows and for
 * superseding alike only entries before that end which the snapshot sees
 * count.  The caller holds a lock on the storage relation for the view's life.
 *
 * IDENTIFICATION
 *	  src/log/view.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_VIEW_H
#define STRATA_VIEW_H

#include "base/keyindex.h"
#include "log/pending.h"

#include "port/atomics.h"

/* What EXPLAIN ANALYZE shows. */
typedef struct StrataReadStats
{
	uint64		generations;	/* pending generations visited */
	uint64		groups_read;
	uint64		groups_skipped;
	uint64		index_probes;
	uint64		superseded;		/* rows seen that lost to a newer version */
	uint64		bytes_read;
	uint64		bytes_decoded;
} StrataReadStats;

typedef struct StrataView
{
	StrataStore *store;
	Relation	storage;
	Snapshot	snapshot;
	StrataManifest *manifest;
	StrataPending *pending;
	int			end;			/* entries of pending with a lower index count */
	StrataReadStats stats;
	/* private to view.c */
	struct StrataViewPrivate *private_data;
} StrataView;

/*
 * What snapshot, which stays registered or active as long as the view, sees of
 * a store; the caller has the storage locked.  Lives in CurrentMemoryContext.  A
 * view of the layer BASE does not read the log, which may be damaged.
 */
extern StrataView *strata_view_begin(StrataStore *store, Relation storage, Snapshot snapshot,
									 StrataLayer layer);

/* For lookups alone: its manifest may not be complete. */
extern StrataView *strata_view_begin_lookups(StrataStore *store, Relation storage,
											 Snapshot snapshot, StrataLayer layer);
extern void strata_view_end(StrataView *view);

/* stats, what lookups and scans still open have read included. */
extern const StrataReadStats *strata_view_stats(StrataView *view);

/*
 * Does this entry count for the view (memoised per entry)?  Of a serializable
 * transaction, the first is for what it reads: one that does not count because
 * the snapshot does not see it is a conflict.
 */
extern bool strata_view_accepts(const StrataPendingEntry *entry, int index, void *view);
extern bool strata_view_accepts_silently(const StrataPendingEntry *entry, int index, void *view);

/*
 * TIDs of rows: base (row group number, row + 1); pending: top bit of the
 * block number set, block where its entry starts (row groups: the extent's
 * first block), ordinal among the rows of entries starting there + 1.
 */
extern void strata_pending_tid(ItemPointer tid, const StrataPendingEntry *entry, uint32 row);

/*
 * Exact lookup.  True when the key has a live row; its needed columns go to
 * values/isnull (valid until the next call on the view), tid its TID.
 */
typedef struct StrataLookup StrataLookup;

extern StrataLookup *strata_lookup_begin(StrataView *view, const Bitmapset *needed);
extern bool strata_lookup(StrataLookup *lookup, const StrataKeyProbe *probe,
						  Datum *values, bool *isnull, ItemPointer tid);

/* The row that a TID got from this view names, or its key, in key order. */
extern void strata_lookup_tid(StrataLookup *lookup, const ItemPointerData *tid,
							  Datum *values, bool *isnull);
extern void strata_lookup_tid_key(StrataLookup *lookup, const ItemPointerData *tid,
								  Datum *keyvalues);
extern void strata_lookup_end(StrataLookup *lookup);

/*
 * Full scan: visible winning pending rows, then base rows minus deletes minus
 * those superseded by pending keys.  skip (may be NULL) says which base row
 * groups need not be read; it is never asked about pending rows.  Rows out of
 * bounds (by key column, ascending) may come, but the caller must not use them:
 * a serializable transaction has not read them.
 */
typedef bool (*StrataSkipGroup)(StrataView *view, const StrataRowGroup *group, void *arg);
typedef struct StrataScan StrataScan;

extern StrataScan *strata_scan_begin(StrataView *view, const Bitmapset *needed,
									 StrataSkipGroup skip, void *arg,
									 const StrataBound *bounds, int nbounds);

/*
 * All calls of a scan get the same arrays, in which columns that are not
 * needed stay null as they were set.
 */
extern bool strata_scan_next(StrataScan *scan, Datum *values, bool *isnull, ItemPointer tid);
extern void strata_scan_end(StrataScan *scan);

/*
 * How many rows a scan returns, found out without visiting them; called
 * instead of strata_scan_next.  Not of a scan that several processes share.
 */
extern uint64 strata_scan_count(StrataScan *scan);

/*
 * A scan that several processes share: one of them reads the pending part,
 * each row group is read by one.  In shared memory; all views must be of the
 * same snapshot.
 */
typedef struct StrataSharedScan
{
	pg_atomic_uint32 pending;	/* claims of the pending part */
	pg_atomic_uint32 groups;	/* row groups claimed */
} StrataSharedScan;

extern void strata_scan_share(StrataScan *scan, StrataSharedScan *shared);

/*
 * The visible winning pending rows alone, of those only the ones whose keys
 * wanted lets through: of the others no column but the key's is decoded.
 */
typedef bool (*StrataWantedKey)(const Datum *keyvalues, void *arg);

extern StrataScan *strata_scan_begin_pending(StrataView *view, const Bitmapset *needed,
											 StrataWantedKey wanted, void *arg,
											 const StrataBound *bounds, int nbounds);

/*
 * Rows within bounds (by key column, ascending, = or = ANY before any array) in
 * key order, or backward.  The bounds are copied, but their values and elements
 * stay the caller's, and have to outlive the scan.
 */
typedef struct StrataOrderedScan StrataOrderedScan;

extern StrataOrderedScan *strata_ordered_begin(StrataView *view, const Bitmapset *needed,
											   const StrataBound *bounds, int nbounds,
											   bool backward);
extern bool strata_ordered_next(StrataOrderedScan *scan, Datum *values, bool *isnull,
								ItemPointer tid);
extern void strata_ordered_end(StrataOrderedScan *scan);

/* One layer only (OPTIONS (layer ...)): every visible pending row, losers too,
 * no tombstones; or base rows minus deletes. */
extern StrataScan *strata_scan_begin_layer(StrataView *view, const Bitmapset *needed,
										   StrataLayer layer);

#endif							/* STRATA_VIEW_H */
