/*-------------------------------------------------------------------------
 *
 * keyindex_read.c
 *	  Reading the key index: probes for one key, and ranges in key order.
 *
 * Between two TIDs a scan holds no page: one that does makes sweep, which must
 * have each leaf page to itself, wait as long as a cursor stays idle, and fail
 * when the cursor's own session calls it; on a standby it makes replay wait.
 *
 * A TID may be removed while a reader holds it: row group numbers are never
 * reused, so the reader finds a row group that its snapshot sees, or none.
 *
 * Locks: AccessShareLock on the index, to the end of the transaction; the
 * caller holds one on the storage relation.
 *
 * IDENTIFICATION
 *	  src/base/keyindex_read.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/keyindex.h"

#include "compat.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Nothing of a snapshot matters to an index scan that fetches no rows but its
 * kind: MVCC means that the scan may go on from a page which it let go.
 */
static SnapshotData probe_snapshot = {.snapshot_type = SNAPSHOT_MVCC};

/*
 * The next TID of a scan, which then holds no page.  nbtree copies all that it
 * wants of a page when it gets there, and goes on without the page as well as
 * with it.  It keeps a pin when tuples are asked for, because the usual reader
 * of those believes a visibility map instead of looking at the row, and when
 * there is no WAL, because it then cannot tell whether the page changed before
 * it marks entries as dead.  We ask the manifest, and mark none.
 */
static ItemPointer
next_tid(IndexScanDesc scan, ScanDirection direction)
{
	ItemPointer tid;

	CHECK_FOR_INTERRUPTS();
	tid = index_getnext_tid(scan, direction);
	BTScanPosUnpinIfPinned(((BTScanOpaque) scan->opaque)->currPos);
	/* nbtree asks nothing while it goes from one element of an array to the next */
	CHECK_FOR_INTERRUPTS();
	return tid;
}

/* ---- probing ---- */

struct StrataIndexProbe
{
	Relation	storage;
	Relation	index;
	int			natts;
	RegProcedure eqproc[INDEX_MAX_KEYS];	/* for values of the key's own types */
	Oid			subtype[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];	/* initialised where sk_attno is set */
	IndexScanDesc scans[INDEX_MAX_KEYS];	/* by number of keys - 1 */
	IndexScanDesc current;
	uint64		count;
	MemoryContext mcxt;
};

StrataIndexProbe *
strata_keyindex_probe_begin(StrataStore *store, Relation storage, Oid index)
{
	StrataIndexProbe *probe = palloc0(sizeof(StrataIndexProbe));

	probe->storage = storage;
	probe->index = index_open(index, AccessShareLock);
	probe->natts = IndexRelationGetNumberOfKeyAttributes(probe->index);
	probe->mcxt = CurrentMemoryContext;

	for (int i = 0; i < probe->natts; i++)
	{
		Oid			type = probe->index->rd_opcintype[i];
		Oid			family = probe->index->rd_opfamily[i];
		Oid			equality = get_opfamily_member(family, type, type, BTEqualStrategyNumber);

		if (!OidIsValid(equality))
			elog(ERROR, "no equality operator for type %u in operator family %u", type, family);
		probe->eqproc[i] = get_opcode(equality);
		probe->subtype[i] = type;
	}
	return probe;
}

bool
strata_keyindex_probe(StrataIndexProbe *probe, const Datum *values, ItemPointer tid)
{
	return strata_keyindex_probe_with(probe, probe->natts, probe->eqproc, probe->subtype,
									  values, tid);
}

bool
strata_keyindex_probe_with(StrataIndexProbe *probe, int nkeys, const RegProcedure *eqproc,
						   const Oid *subtype, const Datum *values, ItemPointer tid)
{
	MemoryContext old = MemoryContextSwitchTo(probe->mcxt);

	Assert(nkeys > 0 && nkeys <= probe->natts);

	for (int i = 0; i < nkeys; i++)
	{
		ScanKey		key = &probe->keys[i];

		/* Looking up a function costs more than a probe of a cached page. */
		if (key->sk_attno == 0 || key->sk_func.fn_oid != eqproc[i] ||
			key->sk_subtype != subtype[i])
			ScanKeyEntryInitialize(key, 0, i + 1, BTEqualStrategyNumber, subtype[i],
								   probe->index->rd_indcollation[i], eqproc[i], values[i]);
		else
			key->sk_argument = values[i];
	}

	if (probe->scans[nkeys - 1] == NULL)
		probe->scans[nkeys - 1] = strata_index_beginscan(probe->storage, probe->index,
														 &probe_snapshot, nkeys);
	MemoryContextSwitchTo(old);

	probe->current = probe->scans[nkeys - 1];
	index_rescan(probe->current, probe->keys, nkeys, NULL, 0);
	probe->count++;
	return strata_keyindex_probe_next(probe, tid);
}

bool
strata_keyindex_probe_next(StrataIndexProbe *probe, ItemPointer tid)
{
	ItemPointer found = next_tid(probe->current, ForwardScanDirection);

	if (found == NULL)
		return false;
	*tid = *found;
	return true;
}

uint64
strata_keyindex_probe_count(StrataIndexProbe *probe)
{
	return probe->count;
}

void
strata_keyindex_probe_end(StrataIndexProbe *probe)
{
	for (int i = 0; i < probe->natts; i++)
	{
		if (probe->scans[i] != NULL)
			index_endscan(probe->scans[i]);
	}
	index_close(probe->index, NoLock);
	pfree(probe);
}

/* ---- ranges ---- */

struct StrataIndexRange
{
	Relation	index;
	IndexScanDesc scan;
	ScanDirection direction;
	ScanKeyData *keys;
	NameData   *names;			/* [natts], NULL: no key column is of type name */
	MemoryContext mcxt;			/* of what nbtree makes with the first entry */
};

/*
 * A value of type name is kept in a B-tree as a C string, without the zeros
 * that fill it up: whoever copied it as a name would take what lies behind.
 */
static bool
is_cut_name(Relation index, int i)
{
	return index->rd_opcintype[i] == NAMEOID &&
		TupleDescAttr(RelationGetDescr(index), i)->atttypid == CSTRINGOID;
}

StrataIndexRange *
strata_keyindex_range_begin(Relation storage, Oid index, const StrataBound *bounds, int nbounds,
							bool backward)
{
	StrataIndexRange *range = palloc0(sizeof(StrataIndexRange));

	range->mcxt = CurrentMemoryContext;
	range->index = index_open(index, AccessShareLock);
	range->direction = backward ? BackwardScanDirection : ForwardScanDirection;
	range->keys = palloc(Max(nbounds, 1) * sizeof(ScanKeyData));
	for (int i = 0; i < nbounds; i++)
		ScanKeyEntryInitialize(&range->keys[i], bounds[i].elements ? SK_SEARCHARRAY : 0,
							   (AttrNumber) (bounds[i].column + 1),
							   (StrategyNumber) bounds[i].strategy, bounds[i].subtype,
							   range->index->rd_indcollation[bounds[i].column],
							   bounds[i].proc, bounds[i].value);
	for (int i = 0; range->names == NULL && i < RelationGetNumberOfAttributes(range->index); i++)
	{
		if (is_cut_name(range->index, i))
			range->names = palloc(RelationGetNumberOfAttributes(range->index) * sizeof(NameData));
	}
	range->scan = strata_index_beginscan(storage, range->index, &probe_snapshot, nbounds);
	range->scan->xs_want_itup = true;
	index_rescan(range->scan, range->keys, nbounds, NULL, 0);
	return range;
}

bool
strata_keyindex_range_next(StrataIndexRange *range, Datum *keyvalues, ItemPointer tid)
{
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old = MemoryContextSwitchTo(range->mcxt);
	ItemPointer found = next_tid(range->scan, range->direction);

	MemoryContextSwitchTo(old);
	if (found == NULL)
		return false;
	*tid = *found;
	index_deform_tuple(range->scan->xs_itup, range->scan->xs_itupdesc, keyvalues, isnull);
	for (int i = 0; range->names != NULL && i < RelationGetNumberOfAttributes(range->index); i++)
	{
		if (!is_cut_name(range->index, i))
			continue;
		namestrcpy(&range->names[i], DatumGetCString(keyvalues[i]));
		keyvalues[i] = NameGetDatum(&range->names[i]);
	}
	return true;
}

void
strata_keyindex_range_end(StrataIndexRange *range)
{
	index_endscan(range->scan);
	index_close(range->index, NoLock);
	pfree(range->keys);
	if (range->names != NULL)
		pfree(range->names);
	pfree(range);
}
