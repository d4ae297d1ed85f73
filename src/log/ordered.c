/*-------------------------------------------------------------------------
 *
 * ordered.c
 *	  Reading a view, or ranges of its keys, in key order.
 *
 * Base rows come in the order of the key index, which names them and holds
 * their keys: one that the view's manifest does not have, that is deleted or
 * that a pending key supersedes is passed over before any of its columns is
 * read, and when only key columns are asked for none is read at all.  Pending
 * rows that win are read once, sorted by key and merged in; a key is in one of
 * the two at most.  Of an array, each element is a range of its own to the
 * index, and one search among all to the keys of pending rows.
 *
 * Where there is no usable key index, or where the hash of pending keys was
 * given up for want of memory, everything is read and sorted: a plan that was
 * made for the order gets it.
 *
 * Memory: the sort takes work_mem and spills; of row groups a few are kept
 * open, as in lookups.
 *
 * SERIALIZABLE: as of a scan, equality on leading columns bounds what counts as
 * read (view_serializable.c).
 *
 * IDENTIFICATION
 *	  src/log/ordered.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "log/view_private.h"

#include "access/nbtree.h"
#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

struct StrataOrderedScan
{
	StrataViewPart part;
	StrataView *view;
	MemoryContext mcxt;
	StrataAccept accept;		/* which entries count */
	bool		backward;
	Bitmapset  *needed;
	int			natts;
	bool		keys_only;		/* no column but the key's is asked for */

	int			nbounds;
	StrataBound *bounds;
	FmgrInfo   *bound_fn;		/* the operator's, or what orders key and elements */

	MemoryContext row_mcxt;		/* of the row being sorted */

	/* rows that were sorted; the column behind the last is the TID */
	Tuplesortstate *sort;		/* NULL: none */
	TupleTableSlot *sorted;
	bool		have_sorted;

	/* base rows by the index */
	StrataIndexRange *range;	/* NULL: none */
	StrataLookup *lookup;
	bool		check_pending;
	bool		have_base;
	Datum		base_key[INDEX_MAX_KEYS];
	ItemPointerData base_tid;

	uint64		superseded;
	uint64		reported;
};

static void
ordered_report(StrataViewPart *part, StrataReadStats *stats)
{
	StrataOrderedScan *scan = (StrataOrderedScan *) part;

	stats->superseded += scan->superseded - scan->reported;
	scan->reported = scan->superseded;
}

/* Does a key's column hold what the bound at i wants? */
static bool
is_within(StrataOrderedScan *scan, int i, Datum value)
{
	StrataBound *bound = &scan->bounds[i];
	Oid			collation = scan->view->store->key.collation[bound->column];
	int			low = 0;
	int			high = bound->nelements;

	if (bound->elements == NULL)
		return DatumGetBool(FunctionCall2Coll(&scan->bound_fn[i], collation, value,
											  bound->value));
	while (low < high)
	{
		int			middle = low + (high - low) / 2;
		int32		cmp = DatumGetInt32(FunctionCall2Coll(&scan->bound_fn[i], collation, value,
														  bound->elements[middle]));

		if (cmp == 0)
			return true;
		if (cmp < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

/* StrataWantedKey: is the key within the bounds? */
static bool
within_bounds(const Datum *keyvalues, void *arg)
{
	StrataOrderedScan *scan = (StrataOrderedScan *) arg;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < scan->nbounds; i++)
	{
		if (!is_within(scan, i, keyvalues[scan->bounds[i].column]))
		{
			/* what comparing took; the keys are the reader's */
			MemoryContextReset(scan->row_mcxt);
			return false;
		}
	}
	return true;
}

static bool
row_within_bounds(StrataOrderedScan *scan, const Datum *values)
{
	const StrataKey *key = &scan->view->store->key;
	Datum		keyvalues[INDEX_MAX_KEYS];

	for (int i = 0; i < key->natts; i++)
		keyvalues[i] = values[key->attnum[i] - 1];
	return within_bounds(keyvalues, scan);
}

/* The store's row with a TID behind it. */
static TupleDesc
sorted_desc(TupleDesc desc)
{
	TupleDesc	result = CreateTemplateTupleDesc(desc->natts + 1);

	for (int i = 0; i < desc->natts; i++)
		TupleDescCopyEntry(result, i + 1, desc, i + 1);
	TupleDescInitEntry(result, desc->natts + 1, "tid", TIDOID, -1, 0);
	return result;
}

static Tuplesortstate *
begin_sort(StrataOrderedScan *scan, TupleDesc desc)
{
	const StrataKey *key = &scan->view->store->key;
	Oid			operators[INDEX_MAX_KEYS];
	AttrNumber	attnums[INDEX_MAX_KEYS];
	Oid			collations[INDEX_MAX_KEYS];
	bool		nulls_first[INDEX_MAX_KEYS] = {0};

	for (int i = 0; i < key->natts; i++)
	{
		Oid			type = get_opclass_input_type(key->btree_opclass[i]);

		operators[i] = get_opfamily_member(key->btree_opfamily[i], type, type,
										   scan->backward ? BTGreaterStrategyNumber :
										   BTLessStrategyNumber);
		if (!OidIsValid(operators[i]))
			elog(ERROR, "no ordering operator for type %u in operator family %u",
				 type, key->btree_opfamily[i]);
		attnums[i] = key->attnum[i];
		collations[i] = key->collation[i];
	}
	return tuplesort_begin_heap(desc, key->natts, attnums, operators, collations, nulls_first,
								work_mem, NULL, TUPLESORT_NONE);
}

/* Sort what source returns, within the bounds. */
static void
sort_rows(StrataOrderedScan *scan, StrataScan *source)
{
	TupleDesc	desc = sorted_desc(scan->view->store->desc);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	MemoryContext old;
	ItemPointerData tid;

	scan->row_mcxt = AllocSetContextCreate(scan->mcxt, "strata sorted row", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(scan->row_mcxt);
	while (strata_scan_next(source, slot->tts_values, slot->tts_isnull, &tid))
	{
		/* a scan of all has not looked at the keys */
		if (row_within_bounds(scan, slot->tts_values))
		{
			if (scan->sort == NULL)
			{
				MemoryContextSwitchTo(scan->mcxt);
				scan->sort = begin_sort(scan, desc);
				MemoryContextSwitchTo(scan->row_mcxt);
			}
			slot->tts_values[scan->natts] = PointerGetDatum(&tid);
			slot->tts_isnull[scan->natts] = false;
			ExecStoreVirtualTuple(slot);
			tuplesort_puttupleslot(scan->sort, slot);
			ExecClearTuple(slot);
		}
		MemoryContextReset(scan->row_mcxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(scan->row_mcxt);
	ExecDropSingleTupleTableSlot(slot);

	if (scan->sort != NULL)
	{
		tuplesort_performsort(scan->sort);
		scan->sorted = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
		scan->have_sorted = tuplesort_gettupleslot(scan->sort, true, false, scan->sorted, NULL);
	}
}

static void
copy_bounds(StrataOrderedScan *scan, const StrataBound *bounds, int nbounds)
{
	const StrataKey *key = &scan->view->store->key;

	scan->nbounds = nbounds;
	scan->bounds = palloc(Max(nbounds, 1) * sizeof(StrataBound));
	scan->bound_fn = palloc(Max(nbounds, 1) * sizeof(FmgrInfo));
	for (int i = 0; i < nbounds; i++)
	{
		int			column = bounds[i].column;

		scan->bounds[i] = bounds[i];
		fmgr_info(bounds[i].elements == NULL ?
					  bounds[i].proc :
					  get_opfamily_proc(key->btree_opfamily[column],
										get_opclass_input_type(key->btree_opclass[column]),
										bounds[i].subtype, BTORDER_PROC),
				  &scan->bound_fn[i]);
	}
}

/*
 * How often the index is descended at most: once for each combination of
 * elements, but for what a LIMIT leaves unread.  More than 4 billion are taken as
 * that many, for the sum over restarts must not wrap.
 */
static uint64
count_probes(const StrataOrderedScan *scan)
{
	uint64		result = 1;

	for (int i = 0; i < scan->nbounds; i++)
	{
		if (scan->bounds[i].elements != NULL)
			result = Min(result * scan->bounds[i].nelements, PG_UINT32_MAX);
	}
	return result;
}

StrataOrderedScan *
strata_ordered_begin(StrataView *view, const Bitmapset *needed, const StrataBound *bounds,
					 int nbounds, bool backward)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata ordered scan",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataOrderedScan *scan = palloc0(sizeof(StrataOrderedScan));
	const StrataKey *key = &view->store->key;
	Oid			index = strata_view_index(view);
	bool		by_index = OidIsValid(index) && (view->end == 0 || view->pending->log->keys != NULL);
	Bitmapset  *keys = NULL;
	StrataScan *source;

	strata_view_complete(view);
	scan->part.report = ordered_report;
	scan->view = view;
	scan->mcxt = mcxt;
	scan->backward = backward;
	scan->needed = bms_copy(needed);
	scan->natts = view->store->desc->natts;
	for (int i = 0; i < key->natts; i++)
		keys = bms_add_member(keys, key->attnum[i]);
	scan->keys_only = bms_is_subset(needed, keys);
	copy_bounds(scan, bounds, nbounds);
	strata_view_add_part(view, &scan->part);

	/* takes the predicate lock, too, whether anything is pending or not */
	source = by_index ? strata_scan_begin_pending(view, bms_union(needed, keys), within_bounds, scan,
												  bounds, nbounds) :
		strata_scan_begin(view, bms_union(needed, keys), NULL, NULL, bounds, nbounds);
	scan->accept = strata_scan_rule(source);
	sort_rows(scan, source);
	strata_scan_end(source);

	if (by_index && view->manifest->ngroups > 0)
	{
		scan->range = strata_keyindex_range_begin(view->storage, index, scan->bounds, nbounds,
												  backward);
		scan->check_pending = view->end > 0;
		view->stats.index_probes += count_probes(scan);
	}
	MemoryContextSwitchTo(old);
	return scan;
}

/* Does a pending version count for this base row's key? */
static bool
is_superseded(StrataOrderedScan *scan)
{
	StrataView *view = scan->view;
	StrataKeyProbe probe = {0};
	StrataVersion version;

	probe.key = &view->store->key;
	probe.nkeys = probe.key->natts;
	probe.values = scan->base_key;
	probe.has_hash = true;
	probe.hash = strata_key_hash(probe.key, scan->base_key);
	return strata_pending_find(view->pending, &probe, scan->accept, view, &version);
}

/* Go to the next base row that counts. */
static void
advance_base(StrataOrderedScan *scan)
{
	while (strata_keyindex_range_next(scan->range, scan->base_key, &scan->base_tid))
	{
		StrataRowGroup *group = strata_manifest_group(scan->view->manifest,
													  strata_tid_group(&scan->base_tid));
		uint32		row = strata_tid_row(&scan->base_tid);

		if (group == NULL || row >= group->ref.rows || strata_row_deleted(group, row))
			continue;			/* of another snapshot, or superseded by a merge */
		if (scan->check_pending && is_superseded(scan))
		{
			scan->superseded++;
			continue;
		}
		scan->have_base = true;
		return;
	}
	strata_keyindex_range_end(scan->range);
	scan->range = NULL;
}

static void
return_base(StrataOrderedScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	const StrataKey *key = &scan->view->store->key;

	*tid = scan->base_tid;
	if (!scan->keys_only)
	{
		strata_lookup_tid(scan->lookup, tid, values, isnull);
		return;
	}
	memset(isnull, true, scan->natts * sizeof(bool));
	for (int i = 0; i < key->natts; i++)
	{
		values[key->attnum[i] - 1] = scan->base_key[i];
		isnull[key->attnum[i] - 1] = false;
	}
}

static void
return_sorted(StrataOrderedScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	slot_getallattrs(scan->sorted);
	memcpy(values, scan->sorted->tts_values, scan->natts * sizeof(Datum));
	memcpy(isnull, scan->sorted->tts_isnull, scan->natts * sizeof(bool));
	*tid = *(ItemPointer) DatumGetPointer(scan->sorted->tts_values[scan->natts]);
}

/* Does the row at hand of those sorted come before the base row at hand? */
static bool
sorted_is_first(StrataOrderedScan *scan)
{
	const StrataKey *key = &scan->view->store->key;
	Datum		values[INDEX_MAX_KEYS];
	int			cmp;

	slot_getallattrs(scan->sorted);
	for (int i = 0; i < key->natts; i++)
		values[i] = scan->sorted->tts_values[key->attnum[i] - 1];
	cmp = strata_key_compare(key, values, scan->base_key);
	return scan->backward ? cmp > 0 : cmp < 0;
}

bool
strata_ordered_next(StrataOrderedScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	/* the row at hand was returned: its memory was the caller's until now */
	if (scan->range != NULL && !scan->have_base)
	{
		if (scan->lookup == NULL && !scan->keys_only)
		{
			MemoryContext old = MemoryContextSwitchTo(scan->mcxt);

			scan->lookup = strata_lookup_begin(scan->view, scan->needed);
			MemoryContextSwitchTo(old);
		}
		advance_base(scan);
	}
	if (scan->sort != NULL && !scan->have_sorted)
		scan->have_sorted = tuplesort_gettupleslot(scan->sort, true, false, scan->sorted, NULL);

	if (scan->have_sorted && (!scan->have_base || sorted_is_first(scan)))
	{
		return_sorted(scan, values, isnull, tid);
		scan->have_sorted = false;
		return true;
	}
	if (scan->have_base)
	{
		return_base(scan, values, isnull, tid);
		scan->have_base = false;
		return true;
	}
	return false;
}

void
strata_ordered_end(StrataOrderedScan *scan)
{
	strata_view_remove_part(scan->view, &scan->part);
	if (scan->range != NULL)
		strata_keyindex_range_end(scan->range);
	if (scan->lookup != NULL)
		strata_lookup_end(scan->lookup);
	if (scan->sorted != NULL)
		ExecDropSingleTupleTableSlot(scan->sorted);
	if (scan->sort != NULL)
		tuplesort_end(scan->sort);
	MemoryContextDelete(scan->mcxt);
}
