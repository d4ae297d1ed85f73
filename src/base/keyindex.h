/*-------------------------------------------------------------------------
 *
 * keyindex.h
 *	  The key index: nbtree over the base rows' keys with synthetic TIDs.
 *
 * TID block = row group number, offset = row + 1.  The index holds every live
 * base row once.  TIDs of deleted rows are allowed; TIDs of row groups that
 * the manifest does not list are stale and ignored by readers.
 *
 * Locks: the caller holds a lock on the storage relation; the index is locked
 * AccessShare (probes) or RowExclusive (inserts).
 *
 * IDENTIFICATION
 *	  src/base/keyindex.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_KEYINDEX_H
#define STRATA_KEYINDEX_H

#include "base/rowgroup.h"
#include "manifest/manifest.h"

#include "access/tableam.h"
#include "storage/itemptr.h"

static inline void
strata_base_tid(ItemPointer tid, uint32 group, uint32 row)
{
	ItemPointerSet(tid, (BlockNumber) group, (OffsetNumber) (row + 1));
}

static inline uint32
strata_tid_group(const ItemPointerData *tid)
{
	return (uint32) ItemPointerGetBlockNumberNoCheck(tid);
}

static inline uint32
strata_tid_row(const ItemPointerData *tid)
{
	return (uint32) ItemPointerGetOffsetNumberNoCheck(tid) - 1;
}

/*
 * The index usable for exact answers (valid, ready, collation version as
 * recorded), or InvalidOid.  *present tells whether any key index exists.
 * With a collation version that differs, warns once per session.
 */
extern Oid	strata_keyindex_find(Relation storage, bool *present);

/* Do the collations of an index or a storage relation sort as recorded? */
extern bool strata_keyindex_order_known(Relation rel);

/* A probe keeps index and scan open across many lookups. */
typedef struct StrataIndexProbe StrataIndexProbe;

extern StrataIndexProbe *strata_keyindex_probe_begin(StrataStore *store, Relation storage,
													 Oid index);
/*
 * First TID for the key; further ones by _next; false when no more.  values in
 * key order.  The TIDs may be stale or of deleted rows.
 */
extern bool strata_keyindex_probe(StrataIndexProbe *probe, const Datum *values,
								  ItemPointer tid);
extern bool strata_keyindex_probe_next(StrataIndexProbe *probe, ItemPointer tid);

/*
 * The same for clause values whose operators are in the key's B-tree family
 * but of another right-hand type: fn[] are equality functions' oids, subtypes
 * the right-hand types.  nkeys may be a prefix of the key.
 */
extern bool strata_keyindex_probe_with(StrataIndexProbe *probe, int nkeys,
									   const RegProcedure *eqproc, const Oid *subtype,
									   const Datum *values, ItemPointer tid);
extern uint64 strata_keyindex_probe_count(StrataIndexProbe *probe);
extern void strata_keyindex_probe_end(StrataIndexProbe *probe);

/*
 * "key column operator value" with an operator of the column's B-tree family:
 * its strategy, function and right-hand type.  Or "key column = ANY (value)",
 * where elements is set, value is the detoasted array and subtype the type of
 * its elements.
 */
typedef struct StrataBound
{
	int			column;			/* in key order, from 0 */
	int			strategy;
	RegProcedure proc;
	Oid			subtype;
	Datum		value;			/* never null */
	Datum	   *elements;		/* ascending, distinct, none null; NULL: no array */
	int			nelements;
} StrataBound;

/*
 * Entries within bounds (by column, ascending), in key order or backward.  For
 * the order, a column before one with an array has = or = ANY.  The bounds are
 * copied, but their values stay the caller's, and have to outlive the scan.  The
 * key values are valid until the next call.  TIDs as of a probe.  No page is held
 * between two calls.
 */
typedef struct StrataIndexRange StrataIndexRange;

extern StrataIndexRange *strata_keyindex_range_begin(Relation storage, Oid index,
													 const StrataBound *bounds, int nbounds,
													 bool backward);
extern bool strata_keyindex_range_next(StrataIndexRange *range, Datum *keyvalues,
									   ItemPointer tid);
extern void strata_keyindex_range_end(StrataIndexRange *range);

/* Insert TIDs of new base rows into every index that is ready. */
typedef struct StrataIndexInserter StrataIndexInserter;

extern StrataIndexInserter *strata_keyindex_insert_begin(StrataStore *store, Relation storage);
extern void strata_keyindex_insert(StrataIndexInserter *inserter, const Datum *keyvalues,
								   uint32 group, uint32 row);
extern void strata_keyindex_insert_end(StrataIndexInserter *inserter);

/*
 * Build a usable key index if there is none; true when one was built.  Caller
 * holds at least ShareUpdateExclusiveLock on the storage.  An unusable one is
 * dropped under a conditional AccessExclusiveLock, else left to the next pass.
 */
extern bool strata_keyindex_ensure(StrataStore *store, Relation storage);

/* Drop all key indexes; caller holds AccessExclusiveLock on the storage. */
extern bool strata_keyindex_drop(StrataStore *store, Relation storage);

/*
 * Bytes on disk of a storage relation, all forks, and of its indexes.  Waits
 * for nobody: an index that is being dropped or rebuilt is left out.
 */
extern int64 strata_keyindex_total_size(Relation storage);

/* StrataStorageHooks.index_build */
extern double strata_keyindex_build_scan(Relation storage, Relation index,
										 struct IndexInfo *index_info, Snapshot snapshot,
										 IndexBuildCallback callback, void *state);

/* Remove TIDs of row groups / rows for which dead() says so (sweep). */
typedef bool (*StrataDeadTid)(uint32 group, uint32 row, void *arg);
extern uint64 strata_keyindex_bulk_delete(Relation storage, StrataDeadTid dead, void *arg);

#endif							/* STRATA_KEYINDEX_H */
