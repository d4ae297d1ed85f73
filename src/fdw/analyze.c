/*-------------------------------------------------------------------------
 *
 * analyze.c
 *	  Sampling rows for ANALYZE.
 *
 * Base rows are drawn by number, so only the vectors they lie in are decoded.
 * Pending rows are counted from their keys and drawn by reservoir; only those
 * drawn are decoded.  The two samples are then cut to the shares that base and
 * pending live rows have.
 *
 * Memory: a sample of rows with large values is not held.  Values so wide that
 * ANALYZE itself looks only at their size are replaced by a stub of that size,
 * and fewer rows are drawn where rows are large.
 *
 * Rows come from one view under one registered snapshot.
 *
 * IDENTIFICATION
 *	  src/fdw/analyze.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "compat.h"
#include "fdw/scan.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sampling.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* Read about this much at most, unless that gives fewer rows than this. */
#define SAMPLE_BYTES	((double) 512 * 1024 * 1024)
#define SAMPLE_MIN_ROWS	1000

/*
 * Widths from which the analyze functions of core pass values over (their
 * WIDTH_THRESHOLD and ARRAY_WIDTH_THRESHOLD).  Values between the two are
 * kept while memory allows, so that average widths come out right.
 */
#define WIDE_VALUE		1024
#define VERY_WIDE_VALUE	65536

/* How wide a column's values may be before only their size counts. */
typedef enum ColumnWidths
{
	WIDTHS_MATTER,				/* fixed length, or a type's own analyze
								 * function */
	WIDTHS_STANDARD,			/* WIDE_VALUE */
	WIDTHS_ARRAY				/* VERY_WIDE_VALUE */
} ColumnWidths;

typedef struct Sampler
{
	TupleDesc	desc;			/* of the analyzed table */
	StrataStore *store;
	Relation	storage;
	StrataView *view;
	AttrNumber *map;			/* layer tables, else NULL */
	Bitmapset  *needed;			/* store's attribute numbers */
	ColumnWidths *widths;		/* [desc->natts] */

	/* one row of the store, and of the table */
	Datum	   *store_values;
	bool	   *store_isnull;
	Datum	   *values;
	bool	   *isnull;

	HeapTuple  *rows;			/* result */
	int			nrows;
	int			target;
	Size		memory;			/* of rows */
	Size		memory_limit;	/* beyond it only narrow values are kept */
	ReservoirStateData random;
	MemoryContext row_mcxt;		/* reset for each row */
} Sampler;

/* A pending row in the reservoir. */
typedef struct PendingRow
{
	int			entry;
	uint32		row;
} PendingRow;

/*
 * How wide values of a column have to be for ANALYZE to look at their size
 * alone.
 */
static ColumnWidths
column_widths(Relation relation, Form_pg_attribute att)
{
	HeapTuple	tuple;
	Oid			typanalyze;

	/*
	 * Extended statistics compare whatever they are given, and a parent's
	 * look at its children's samples.
	 */
	if (att->attisdropped || att->attlen != -1 || RelationGetStatExtList(relation) != NIL ||
		has_superclass(RelationGetRelid(relation)))
		return WIDTHS_MATTER;

	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(getBaseType(att->atttypid)));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", att->atttypid);
	typanalyze = ((Form_pg_type) GETSTRUCT(tuple))->typanalyze;
	ReleaseSysCache(tuple);

	if (!OidIsValid(typanalyze))
		return WIDTHS_STANDARD;
	if (typanalyze == F_ARRAY_TYPANALYZE)
		return WIDTHS_ARRAY;
	return WIDTHS_MATTER;
}

/*
 * A value in the place of one of size bytes: says that size when asked for
 * its uncompressed size, and is never looked into.
 */
static Datum
size_stub(Size size)
{
	struct varlena *stub = palloc0(VARHDRSZ_COMPRESSED);

	SET_VARSIZE_COMPRESSED(stub, VARHDRSZ_COMPRESSED);
	TOAST_COMPRESS_SET_SIZE_AND_COMPRESS_METHOD(stub, size - VARHDRSZ,
												TOAST_PGLZ_COMPRESSION_ID);
	return PointerGetDatum(stub);
}

/* Fill the table's row from the store's, with stubs for wide values. */
static void
set_row(Sampler *sampler)
{
	for (int i = 0; i < sampler->desc->natts; i++)
	{
		AttrNumber	attnum = sampler->map ? sampler->map[i] : i + 1;
		Size		limit;
		Size		size;

		if (attnum == InvalidAttrNumber || TupleDescAttr(sampler->desc, i)->attisdropped)
		{
			sampler->values[i] = (Datum) 0;
			sampler->isnull[i] = true;
			continue;
		}
		sampler->values[i] = sampler->store_values[attnum - 1];
		sampler->isnull[i] = sampler->store_isnull[attnum - 1];
		if (sampler->isnull[i] || sampler->widths[i] == WIDTHS_MATTER)
			continue;

		limit = sampler->widths[i] == WIDTHS_STANDARD && sampler->memory > sampler->memory_limit ?
					WIDE_VALUE :
					VERY_WIDE_VALUE;
		size = toast_raw_datum_size(sampler->values[i]);
		if (size > limit)
			sampler->values[i] = size_stub(size);
	}
}

/*
 * Take the store's row in sampler into place i of the result.
 */
static void
keep_row(Sampler *sampler, int i, MemoryContext result_mcxt)
{
	MemoryContext oldcxt;

	if (i < sampler->nrows)
	{
		sampler->memory -= sampler->rows[i]->t_len;
		heap_freetuple(sampler->rows[i]);
	}
	else
		sampler->nrows = i + 1;

	set_row(sampler);
	oldcxt = MemoryContextSwitchTo(result_mcxt);
	sampler->rows[i] = heap_form_tuple(sampler->desc, sampler->values, sampler->isnull);
	sampler->memory += sampler->rows[i]->t_len;
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Layer tables: read everything, keep a reservoir.  Returns the number of
 * rows.
 */
static double
sample_layer(Sampler *sampler, StrataLayer layer)
{
	StrataScan *scan = strata_scan_begin_layer(sampler->view, sampler->needed, layer);
	MemoryContext result_mcxt = MemoryContextSwitchTo(sampler->row_mcxt);
	ItemPointerData tid;
	double		seen = 0;
	double		to_skip = -1;

	while (strata_scan_next(scan, sampler->store_values, sampler->store_isnull, &tid))
	{
		strata_analyze_delay();

		if (sampler->nrows < sampler->target)
			keep_row(sampler, sampler->nrows, result_mcxt);
		else
		{
			if (to_skip < 0)
				to_skip = reservoir_get_next_S(&sampler->random, seen, sampler->target);
			if (to_skip <= 0)
				keep_row(sampler, (int) (sampler->target * sampler_random_fract(&sampler->random.randstate)),
						 result_mcxt);
			to_skip -= 1;
		}
		seen += 1;
		MemoryContextReset(sampler->row_mcxt);
	}

	MemoryContextSwitchTo(result_mcxt);
	strata_scan_end(scan);
	return seen;
}

/*
 * Count the live pending rows and draw up to max of them into picked.
 */
static double
pick_pending(Sampler *sampler, PendingRow *picked, int max, int *npicked)
{
	StrataPending *pending = sampler->view->pending;
	double		seen = 0;
	double		to_skip = -1;

	*npicked = 0;
	for (int i = 0; i < sampler->view->end; i++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(pending, i);

		strata_analyze_delay();
		if (!strata_view_accepts(entry, i, sampler->view))
			continue;

		for (uint32 row = 0; row < entry->rows; row++)
		{
			PendingRow *place = NULL;

			if ((row & 1023) == 1023)
				CHECK_FOR_INTERRUPTS();
			if (sampler->store->key.natts > 0 &&
				!strata_pending_wins(pending, i, row, strata_view_accepts, sampler->view))
				continue;

			if (*npicked < max)
				place = &picked[(*npicked)++];
			else
			{
				if (to_skip < 0)
					to_skip = reservoir_get_next_S(&sampler->random, seen, max);
				if (to_skip <= 0)
					place = &picked[(int) (max * sampler_random_fract(&sampler->random.randstate))];
				to_skip -= 1;
			}
			if (place != NULL)
			{
				place->entry = i;
				place->row = row;
			}
			seen += 1;
		}
	}

	return seen;
}

static int
compare_pending_rows(const void *a, const void *b)
{
	const PendingRow *x = (const PendingRow *) a;
	const PendingRow *y = (const PendingRow *) b;

	if (x->entry != y->entry)
		return x->entry < y->entry ? -1 : 1;
	return x->row < y->row ? -1 : (x->row > y->row);
}

/* Keep n of the rows in the result, in their order (it tells correlations). */
static void
thin_rows(Sampler *sampler, int n)
{
	int			left = sampler->nrows;
	int			kept = 0;

	for (int i = 0; i < sampler->nrows; i++)
	{
		if (left-- * sampler_random_fract(&sampler->random.randstate) < n - kept)
			sampler->rows[kept++] = sampler->rows[i];
		else
		{
			sampler->memory -= sampler->rows[i]->t_len;
			heap_freetuple(sampler->rows[i]);
		}
	}
	sampler->nrows = kept;
}

/* Keep n of the picked rows likewise, ordered by where they are. */
static void
thin_picked(Sampler *sampler, PendingRow *picked, int *npicked, int n)
{
	int			left = *npicked;
	int			kept = 0;

	for (int i = 0; i < *npicked; i++)
	{
		if (left-- * sampler_random_fract(&sampler->random.randstate) < n - kept)
			picked[kept++] = picked[i];
	}
	*npicked = kept;
	qsort(picked, kept, sizeof(PendingRow), compare_pending_rows);
}

/* A base row that was drawn. */
typedef struct BaseRow
{
	int			group;			/* index in the manifest */
	uint32		row;
} BaseRow;

/*
 * Draw about wanted base rows, in order, and leave out deleted ones.  Rows are
 * drawn by their number among all base rows.  The keys of those drawn go to
 * hidden (may be NULL).
 */
static int
pick_base(Sampler *sampler, double total, int wanted, BaseRow *picked, StrataHiddenRows *hidden)
{
	StrataManifest *manifest = sampler->view->manifest;
	MemoryContext group_mcxt;
	double		left = total;
	int			drawn = 0;
	int			npicked = 0;

	group_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata analyze row group",
									   ALLOCSET_DEFAULT_SIZES);
	for (int g = 0; g < manifest->ngroups && drawn < wanted; g++)
	{
		StrataRowGroup *group = &manifest->groups[g];
		StrataGroupReader *reader = NULL;
		const uint32 *hashes = NULL;

		for (uint32 row = 0; row < group->ref.rows && drawn < wanted; row++)
		{
			/* selection sampling: each of the rows left is as likely */
			if (left-- * sampler_random_fract(&sampler->random.randstate) >= wanted - drawn)
				continue;
			drawn++;
			if (strata_row_deleted(group, row))
				continue;

			if (hidden != NULL)
			{
				Datum		keyvalues[INDEX_MAX_KEYS];

				strata_analyze_delay();
				if (reader == NULL)
				{
					MemoryContext oldcxt = MemoryContextSwitchTo(group_mcxt);

					reader = strata_group_open(sampler->store, sampler->storage, &group->ref,
											   NULL, wanted / total > 1.0 / 64);
					hashes = strata_group_hashes(reader);
					MemoryContextSwitchTo(oldcxt);
				}
				strata_group_fetch_key(reader, row, keyvalues);
				strata_hidden_rows_add(hidden, hashes[row], keyvalues);
			}
			picked[npicked].group = g;
			picked[npicked].row = row;
			npicked++;
		}
		if (reader != NULL)
			strata_group_close(reader);
		MemoryContextReset(group_mcxt);
	}
	MemoryContextDelete(group_mcxt);
	return npicked;
}

/*
 * Sample base rows into the result, as many as max.  Rows that pending keys
 * supersede are drawn like others and left out.  Returns the estimated number
 * of live base rows.
 */
static double
sample_base(Sampler *sampler, int max)
{
	StrataView *view = sampler->view;
	StrataManifest *manifest = view->manifest;
	MemoryContext result_mcxt = CurrentMemoryContext;
	MemoryContext group_mcxt;
	StrataHiddenRows *hidden = NULL;
	StrataGroupReader *reader = NULL;
	BaseRow    *picked;
	bool	   *is_hidden;
	double		total = 0;
	int			wanted;
	int			npicked;
	int			nhidden = 0;
	int			left;
	int			group = -1;

	for (int g = 0; g < manifest->ngroups; g++)
		total += manifest->groups[g].ref.rows;
	if (total == 0)
		return 0;

	/* dead rows are drawn too: draw more by their known share */
	wanted = (int) Min(total, ceil(max * total / Max((double) manifest->live_rows, 1)));
	wanted = Min(wanted, 4 * max);

	picked = palloc(wanted * sizeof(BaseRow));
	is_hidden = palloc0(wanted * sizeof(bool));
	if (sampler->store->key.natts > 0 && view->end > 0)
		hidden = strata_hidden_rows_begin(view->pending);
	npicked = pick_base(sampler, total, wanted, picked, hidden);
	if (hidden != NULL)
	{
		nhidden = (int) strata_hidden_rows_find(hidden, strata_view_accepts, view, is_hidden);
		strata_hidden_rows_end(hidden);
	}

	group_mcxt = AllocSetContextCreate(result_mcxt, "strata analyze row group",
									   ALLOCSET_DEFAULT_SIZES);
	left = npicked - nhidden;
	for (int i = 0; i < npicked && sampler->nrows < sampler->target; i++)
	{
		if (is_hidden[i])
			continue;
		/* more than fit: each of those left is as likely */
		if (left-- * sampler_random_fract(&sampler->random.randstate) >=
			sampler->target - sampler->nrows)
			continue;

		strata_analyze_delay();
		if (picked[i].group != group)
		{
			if (reader != NULL)
				strata_group_close(reader);
			MemoryContextReset(group_mcxt);
			MemoryContextSwitchTo(group_mcxt);
			group = picked[i].group;
			reader = strata_group_open(sampler->store, sampler->storage,
									   &manifest->groups[group].ref, sampler->needed,
									   wanted / total > 1.0 / 64);
		}
		MemoryContextSwitchTo(sampler->row_mcxt);
		strata_group_fetch(reader, picked[i].row, sampler->store_values, sampler->store_isnull);
		keep_row(sampler, sampler->nrows, result_mcxt);
		MemoryContextSwitchTo(result_mcxt);
		MemoryContextReset(sampler->row_mcxt);
	}
	if (reader != NULL)
		strata_group_close(reader);
	MemoryContextDelete(group_mcxt);
	pfree(is_hidden);
	pfree(picked);

	if (npicked == 0)
		return manifest->live_rows;
	return rint(manifest->live_rows * (1.0 - (double) nhidden / npicked));
}

/*
 * How many rows to draw: the target, fewer where rows are large.
 */
static int
affordable_rows(Sampler *sampler)
{
	StrataManifest *manifest = sampler->view->manifest;
	double		rows = 0;
	double		bytes = manifest->raw_bytes;

	for (int g = 0; g < manifest->ngroups; g++)
		rows += manifest->groups[g].ref.rows;
	for (int i = 0; i < sampler->view->end; i++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(sampler->view->pending, i);

		/* entries without a row group fit two pages: any guess will do */
		rows += entry->rows;
		bytes += entry->type == STRATA_ENTRY_ROW_GROUP ? entry->group.raw_bytes : 2 * BLCKSZ;
	}
	if (rows == 0)
		return sampler->target;

	return (int) Min(sampler->target, Max(SAMPLE_MIN_ROWS, SAMPLE_BYTES / (bytes / rows)));
}

/*
 * Sample an ordinary table.  Returns the number of live rows.
 */
static double
sample_store(Sampler *sampler)
{
	PendingRow *picked;
	int			npicked;
	double		pending_rows;
	double		base_rows;
	int			nbase;
	int			npending;

	sampler->target = affordable_rows(sampler);

	picked = palloc(sampler->target * sizeof(PendingRow));
	pending_rows = pick_pending(sampler, picked, sampler->target, &npicked);
	base_rows = sample_base(sampler, sampler->target);

	/* rows by share; what one side lacks the other does not make up for */
	npending = npicked;
	nbase = sampler->nrows;
	if (pending_rows + base_rows > sampler->target)
	{
		npending = (int) rint(sampler->target * pending_rows / (pending_rows + base_rows));
		npending = Min(npending, npicked);
		nbase = Min(sampler->target - npending, sampler->nrows);
	}
	thin_rows(sampler, nbase);
	thin_picked(sampler, picked, &npicked, npending);

	if (npicked > 0)
	{
		MemoryContext result_mcxt = CurrentMemoryContext;
		StrataPendingReader *reader;

		reader = strata_pending_reader_begin(sampler->view->pending, sampler->needed, false);
		MemoryContextSwitchTo(sampler->row_mcxt);
		for (int i = 0; i < npicked; i++)
		{
			strata_analyze_delay();
			strata_pending_reader_row(reader, picked[i].entry, picked[i].row,
									  sampler->store_values, sampler->store_isnull);
			keep_row(sampler, sampler->nrows, result_mcxt);
			MemoryContextReset(sampler->row_mcxt);
		}
		MemoryContextSwitchTo(result_mcxt);
		strata_pending_reader_end(reader);
	}
	pfree(picked);

	return pending_rows + base_rows;
}

/* The store of the analyzed table, or the one its layer belongs to. */
static StrataStore *
open_store(Relation relation, StrataOptions *options)
{
	Oid			store = RelationGetRelid(relation);

	if (options->layer != STRATA_LAYER_ALL)
	{
		store = strata_layer_store(store, options);
		strata_layer_check_rights(store, GetUserId());
	}
	return strata_store_open(store);
}

static int
strata_acquire_sample_rows(Relation relation, int elevel, HeapTuple *rows, int targrows,
						   double *totalrows, double *totaldeadrows)
{
	StrataOptions *options = strata_options_get(RelationGetRelid(relation));
	Sampler		sampler = {0};
	Snapshot	snapshot;

	sampler.desc = RelationGetDescr(relation);
	sampler.rows = rows;
	sampler.target = targrows;
	sampler.memory_limit = (Size) maintenance_work_mem * 1024;
	sampler.row_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata analyze row",
											 ALLOCSET_DEFAULT_SIZES);
	reservoir_init_selection_state(&sampler.random, targrows);

	sampler.store = open_store(relation, options);
	sampler.storage = strata_storage_open(sampler.store, AccessShareLock);
	if (options->layer != STRATA_LAYER_ALL)
		sampler.map = strata_layer_map(relation, sampler.store);

	sampler.values = palloc(sampler.desc->natts * sizeof(Datum));
	sampler.isnull = palloc(sampler.desc->natts * sizeof(bool));
	sampler.widths = palloc(sampler.desc->natts * sizeof(ColumnWidths));
	sampler.store_values = palloc(sampler.store->desc->natts * sizeof(Datum));
	sampler.store_isnull = palloc(sampler.store->desc->natts * sizeof(bool));
	for (int i = 0; i < sampler.desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(sampler.desc, i);

		sampler.widths[i] = column_widths(relation, att);
		if (!att->attisdropped)
			sampler.needed = bms_add_member(sampler.needed, sampler.map ? sampler.map[i] : i + 1);
	}

	strata_memtable_flush(RelationGetRelid(sampler.storage), InvalidCommandId);
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	sampler.view = strata_view_begin(sampler.store, sampler.storage, snapshot, STRATA_LAYER_ALL);

	if (options->layer != STRATA_LAYER_ALL)
		*totalrows = sample_layer(&sampler, options->layer);
	else
		*totalrows = sample_store(&sampler);
	*totaldeadrows = 0;

	ereport(elevel,
			(errmsg("\"%s\": %.0f rows in %d row groups and %d pending entries; %d rows in sample",
					RelationGetRelationName(relation), *totalrows,
					sampler.view->manifest->ngroups, sampler.view->end, sampler.nrows)));

	strata_view_end(sampler.view);
	UnregisterSnapshot(snapshot);
	table_close(sampler.storage, NoLock);
	strata_store_close(sampler.store);
	MemoryContextDelete(sampler.row_mcxt);

	return sampler.nrows;
}

bool
strataAnalyzeForeignTable(Relation relation, AcquireSampleRowsFunc *func, BlockNumber *totalpages)
{
	StrataOptions *options = strata_options_get(RelationGetRelid(relation));
	StrataStore *store = open_store(relation, options);
	Relation	storage = strata_storage_open(store, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	StrataManifest *manifest;
	uint64		rows;
	uint64		bytes;
	uint64		merged = 0;
	uint32		active[STRATA_MAX_SHARDS];
	double		stored;

	/*
	 * Pages of stored bytes, not of the file: the planner relates the live
	 * rows found now to them.  See estimate_live_rows.
	 */
	strata_memtable_flush(RelationGetRelid(storage), InvalidCommandId);
	manifest = strata_manifest_get(store, storage, snapshot);
	for (int shard = 0; manifest->merged && shard < manifest->nshards; shard++)
		merged += manifest->shards[shard].bytes;
	strata_log_totals(storage, store->nshards, &rows, &bytes, active);
	stored = manifest->stored_bytes + (bytes > merged ? (double) (bytes - merged) : 0);
	strata_manifest_release(manifest);
	*totalpages = (BlockNumber) Min(ceil(stored / BLCKSZ), (double) MaxBlockNumber);

	UnregisterSnapshot(snapshot);
	table_close(storage, NoLock);
	strata_store_close(store);

	*func = strata_acquire_sample_rows;
	return true;
}
