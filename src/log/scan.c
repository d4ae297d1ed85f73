/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  Reading all of a view, or one layer of it.
 *
 * First the pending rows that count and win, in the order of their entries;
 * then the base rows minus deletes minus those that a pending key supersedes.
 * Who loses is known before the first row comes: as a bit per pending version
 * and, when the scan gets to the base, a bit per row of the row groups that
 * lose rows (pending_resolve.c, pending_superseded.c).  Nothing a query filters
 * by is looked at before that: a pending row that no filter lets through still
 * hides the base row of its key.
 *
 * Only the columns asked for are decoded; of a scan that asks for none, not
 * even the row groups are opened.
 *
 * Memory: one entry or row group at a time, and the bits.
 *
 * Processes that share a scan have views of the same snapshot, hence the same
 * row groups and the same winners.  Each finds out for itself which base rows
 * are superseded.
 *
 * IDENTIFICATION
 *	  src/log/scan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "log/view_private.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

typedef enum ScanPhase
{
	SCAN_START,
	SCAN_PENDING,
	SCAN_BASE,
	SCAN_DONE
} ScanPhase;

struct StrataScan
{
	StrataViewPart part;
	StrataView *view;
	StrataLayer layer;
	StrataAccept accept;		/* which entries count */
	bool		pending_only;
	StrataWantedKey wanted;		/* pending_only: NULL if all are */
	void	   *wanted_arg;
	StrataSharedScan *shared;	/* NULL: all for us */
	const Bitmapset *needed;
	bool		decode;			/* any column needed? */
	int			natts;
	StrataSkipGroup skip;
	void	   *skip_arg;
	MemoryContext mcxt;

	/* rows of the entry or row group being read */
	ScanPhase	phase;
	uint32		row;
	uint32		nrows;

	/* pending part */
	StrataPendingReader *reader;
	int			entry;			/* -1 before the first */
	const uint8 *losers;		/* by first_key + row */
	uint64		first_key;
	StrataPendingEntry current;

	/* base part */
	int			group;			/* -1 before the first */
	uint32		number;
	StrataGroupReader *group_reader;
	MemoryContext group_mcxt;
	const Datum *filled;		/* array that group_reader fetched into */
	const uint8 *dead;			/* by row, or NULL */
	uint8	   *combined;		/* room for deletes and superseded together */
	bool	   *skipped;		/* [ngroups] */
	uint8	  **superseded;		/* [ngroups], NULL: nobody */

	/* read, and of that already in the view's stats */
	StrataReadStats stats;
	StrataReadStats reported;
};

static void
scan_report(StrataViewPart *part, StrataReadStats *stats)
{
	StrataScan *scan = (StrataScan *) part;
	StrataReadStats now = scan->stats;
	uint64		r = 0;
	uint64		d = 0;

	if (scan->group_reader)
		strata_group_io(scan->group_reader, &r, &d);
	now.bytes_read += r;
	now.bytes_decoded += d;
	if (scan->reader)
	{
		strata_pending_reader_io(scan->reader, &r, &d);
		now.bytes_read += r;
		now.bytes_decoded += d;
	}
	stats->groups_read += now.groups_read - scan->reported.groups_read;
	stats->groups_skipped += now.groups_skipped - scan->reported.groups_skipped;
	stats->index_probes += now.index_probes - scan->reported.index_probes;
	stats->superseded += now.superseded - scan->reported.superseded;
	stats->bytes_read += now.bytes_read - scan->reported.bytes_read;
	stats->bytes_decoded += now.bytes_decoded - scan->reported.bytes_decoded;
	scan->reported = now;
}

static StrataScan *
scan_create(StrataView *view, const Bitmapset *needed, StrataLayer layer,
			StrataSkipGroup skip, void *arg, const StrataBound *bounds, int nbounds)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata scan",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataScan *scan = palloc0(sizeof(StrataScan));

	strata_view_complete(view);
	scan->part.report = scan_report;
	scan->view = view;
	scan->layer = layer;
	scan->needed = bms_copy(needed);
	scan->decode = !bms_is_empty(needed);
	scan->natts = view->store->desc->natts;
	scan->skip = skip;
	scan->skip_arg = arg;
	scan->mcxt = mcxt;
	scan->phase = SCAN_START;
	scan->entry = -1;
	scan->group = -1;
	scan->accept = strata_view_read(view, bounds, nbounds);
	strata_view_add_part(view, &scan->part);
	MemoryContextSwitchTo(old);
	return scan;
}

StrataScan *
strata_scan_begin(StrataView *view, const Bitmapset *needed, StrataSkipGroup skip, void *arg,
				  const StrataBound *bounds, int nbounds)
{
	return scan_create(view, needed, STRATA_LAYER_ALL, skip, arg, bounds, nbounds);
}

StrataScan *
strata_scan_begin_layer(StrataView *view, const Bitmapset *needed, StrataLayer layer)
{
	return scan_create(view, needed, layer, NULL, NULL, NULL, 0);
}

StrataAccept
strata_scan_rule(const StrataScan *scan)
{
	return scan->accept;
}

/* To be called before the first row is asked for. */
void
strata_scan_share(StrataScan *scan, StrataSharedScan *shared)
{
	Assert(scan->phase == SCAN_START);
	scan->shared = shared;
}

StrataScan *
strata_scan_begin_pending(StrataView *view, const Bitmapset *needed, StrataWantedKey wanted,
						  void *arg, const StrataBound *bounds, int nbounds)
{
	StrataScan *scan = scan_create(view, needed, STRATA_LAYER_ALL, NULL, NULL, bounds, nbounds);

	scan->pending_only = true;
	scan->wanted = wanted;
	scan->wanted_arg = arg;
	return scan;
}

/* ---- pending part ---- */

static void
start_pending(StrataScan *scan)
{
	StrataView *view = scan->view;
	MemoryContext old = MemoryContextSwitchTo(scan->mcxt);

	strata_view_visit_pending(view);
	if (view->end > 0)
	{
		if (scan->layer == STRATA_LAYER_ALL)
		{
			scan->losers = strata_pending_losers(view->pending, scan->accept, view);
			scan->stats.superseded += view->pending->nlosers;
		}
		if (scan->decode)
			scan->reader = strata_pending_reader_begin(view->pending, scan->needed, true);
	}
	scan->phase = SCAN_PENDING;
	MemoryContextSwitchTo(old);
}

static bool
is_wanted(StrataScan *scan, uint32 row)
{
	Datum		keyvalues[INDEX_MAX_KEYS];

	strata_pending_reader_key(scan->reader, scan->entry, row, keyvalues);
	return scan->wanted(keyvalues, scan->wanted_arg);
}

/* Go on to the next entry that counts and has rows. */
static bool
next_entry(StrataScan *scan)
{
	StrataView *view = scan->view;

	while (++scan->entry < view->end)
	{
		const StrataPendingEntry *entry = strata_pending_entry(view->pending, scan->entry);

		CHECK_FOR_INTERRUPTS();
		if (entry->rows == 0 || !scan->accept(entry, scan->entry, view))
			continue;
		scan->current = *strata_pending_entry(view->pending, scan->entry);
		scan->row = 0;
		scan->nrows = scan->current.rows;
		scan->first_key = scan->current.first_key;
		return true;
	}
	return false;
}

static void
end_pending(StrataScan *scan)
{
	if (scan->reader)
	{
		uint64		read;
		uint64		decoded;

		strata_pending_reader_io(scan->reader, &read, &decoded);
		scan->stats.bytes_read += read;
		scan->stats.bytes_decoded += decoded;
		strata_pending_reader_end(scan->reader);
		scan->reader = NULL;
	}
}

static bool
next_pending(StrataScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	for (;;)
	{
		while (scan->row < scan->nrows)
		{
			uint32		row = scan->row++;

			if (pending_bit(scan->losers, scan->first_key + row))
				continue;
			if (scan->wanted && !is_wanted(scan, row))
				continue;
			if (scan->decode)
				strata_pending_reader_row(scan->reader, scan->entry, row, values, isnull);
			else
				memset(isnull, true, scan->natts * sizeof(bool));
			strata_pending_tid(tid, &scan->current, row);
			return true;
		}
		if (!next_entry(scan))
			return false;
	}
}

/* ---- base part ---- */

static void
start_base(StrataScan *scan)
{
	StrataView *view = scan->view;
	StrataManifest *manifest = view->manifest;
	MemoryContext old = MemoryContextSwitchTo(scan->mcxt);
	uint32		max_rows = 0;
	int			i;

	scan->phase = SCAN_BASE;
	scan->row = scan->nrows = 0;
	scan->skipped = palloc0(sizeof(bool) * Max(manifest->ngroups, 1));
	for (i = 0; i < manifest->ngroups; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];

		if (group->ndeleted >= group->ref.rows)
			scan->skipped[i] = true;
		else if (scan->skip && scan->skip(view, group, scan->skip_arg))
		{
			scan->skipped[i] = true;
			scan->stats.groups_skipped++;
		}
		else
			max_rows = Max(max_rows, group->ref.rows);
	}

	if (scan->layer == STRATA_LAYER_ALL && view->end > 0 && max_rows > 0)
	{
		StrataSuperseded result = {0};

		scan->superseded = palloc0(sizeof(uint8 *) * manifest->ngroups);
		result.manifest = manifest;
		result.skip = scan->skipped;
		result.rows = scan->superseded;
		strata_pending_superseded(view->pending, scan->accept, view,
								  strata_view_index(view), &result);
		scan->stats.superseded += result.count;
		scan->stats.index_probes += result.index_probes;
		scan->stats.bytes_read += result.bytes_read;
		scan->stats.bytes_decoded += result.bytes_decoded;
		if (result.count > 0)
			scan->combined = palloc((max_rows + 7) / 8);
	}
	scan->group_mcxt = AllocSetContextCreate(scan->mcxt, "strata scan row group",
											 ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(old);
}

static void
close_group(StrataScan *scan)
{
	if (scan->group_reader)
	{
		uint64		read = 0;
		uint64		decoded = 0;

		strata_group_io(scan->group_reader, &read, &decoded);
		scan->stats.bytes_read += read;
		scan->stats.bytes_decoded += decoded;
		strata_group_close(scan->group_reader);
		scan->group_reader = NULL;
	}
	scan->filled = NULL;
}

/* The next row group that is ours to read; as many as there are: none. */
static int
claim_group(StrataScan *scan)
{
	int			ngroups = scan->view->manifest->ngroups;
	uint32		claimed;

	if (scan->shared == NULL || scan->group >= ngroups)
		return Min(scan->group + 1, ngroups);
	claimed = pg_atomic_fetch_add_u32(&scan->shared->groups, 1);
	return (int) Min(claimed, (uint32) ngroups);
}

static bool
next_group(StrataScan *scan)
{
	StrataView *view = scan->view;
	StrataManifest *manifest = view->manifest;

	close_group(scan);
	MemoryContextReset(scan->group_mcxt);
	while ((scan->group = claim_group(scan)) < manifest->ngroups)
	{
		StrataRowGroup *group = &manifest->groups[scan->group];
		const uint8 *superseded = scan->superseded ? scan->superseded[scan->group] : NULL;

		CHECK_FOR_INTERRUPTS();
		if (scan->skipped[scan->group])
			continue;
		if (superseded == NULL)
			scan->dead = group->deleted;
		else if (group->deleted == NULL)
			scan->dead = superseded;
		else
		{
			uint32		n = (group->ref.rows + 7) / 8;
			uint32		i;

			for (i = 0; i < n; i++)
				scan->combined[i] = superseded[i] | group->deleted[i];
			scan->dead = scan->combined;
		}
		if (scan->decode)
		{
			MemoryContext old = MemoryContextSwitchTo(scan->group_mcxt);

			scan->group_reader = strata_group_open(view->store, view->storage, &group->ref,
												   scan->needed, true);
			MemoryContextSwitchTo(old);
			if (strata_group_rows(scan->group_reader) != group->ref.rows)
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("row group %u of relation \"%s\" has %u rows, its manifest row says %u",
								group->number, RelationGetRelationName(view->storage),
								strata_group_rows(scan->group_reader), group->ref.rows)));
		}
		scan->stats.groups_read++;
		scan->number = group->number;
		scan->row = 0;
		scan->nrows = group->ref.rows;
		return true;
	}
	return false;
}

/* ---- next row ---- */

typedef enum ScanStep
{
	STEP_ROW,					/* there is one */
	STEP_GROUP,					/* at the start of a row group */
	STEP_END
} ScanStep;

/* What there is to do where no row of a row group is left. */
static ScanStep
scan_advance(StrataScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	if (scan->phase == SCAN_START)
	{
		if (scan->layer == STRATA_LAYER_BASE ||
			(scan->shared && pg_atomic_fetch_add_u32(&scan->shared->pending, 1) > 0))
			start_base(scan);
		else
			start_pending(scan);
	}
	if (scan->phase == SCAN_PENDING)
	{
		if (next_pending(scan, values, isnull, tid))
			return STEP_ROW;
		end_pending(scan);
		if (scan->layer == STRATA_LAYER_WAL || scan->pending_only)
			scan->phase = SCAN_DONE;
		else
			start_base(scan);
	}
	if (scan->phase == SCAN_BASE)
	{
		if (next_group(scan))
			return STEP_GROUP;
		scan->phase = SCAN_DONE;
	}
	return STEP_END;
}

/* strata_scan_next where there is more to do than to fetch a row as before. */
static pg_noinline bool
next_row(StrataScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	for (;;)
	{
		ScanStep	step;

		if (scan->phase == SCAN_BASE)
		{
			const uint8 *dead = scan->dead;

			while (scan->row < scan->nrows && dead && pending_bit(dead, scan->row))
				scan->row++;
			if (scan->row < scan->nrows)
			{
				uint32		row = scan->row++;

				if (scan->group_reader)
				{
					strata_group_fetch(scan->group_reader, row, values, isnull);
					scan->filled = values;
				}
				else
					memset(isnull, true, scan->natts * sizeof(bool));
				strata_base_tid(tid, scan->number, row);
				return true;
			}
		}
		step = scan_advance(scan, values, isnull, tid);
		if (step != STEP_ROW)
			scan_report(&scan->part, &scan->view->stats);
		if (step != STEP_GROUP)
			return step == STEP_ROW;
	}
}

bool
strata_scan_next(StrataScan *scan, Datum *values, bool *isnull, ItemPointer tid)
{
	/* filled: by a row group, hence in the base */
	if (likely(scan->filled == values))
	{
		const uint8 *dead = scan->dead;
		uint32		nrows = scan->nrows;
		uint32		row = scan->row;

		while (row < nrows && dead && (dead[row >> 3] & (1 << (row & 7))) != 0)
			row++;
		if (likely(row < nrows))
		{
			scan->row = row + 1;
			strata_base_tid(tid, scan->number, row);
			return strata_group_fetch_again(scan->group_reader, row, values, isnull);
		}
		scan->row = row;
	}
	return next_row(scan, values, isnull, tid);
}

/* ---- counting ---- */

/* Bits set among n of a bitmap from first on. */
static uint64
count_bits(const uint8 *bitmap, uint64 first, uint32 n)
{
	uint64		end = first + n;
	uint64		count = 0;

	if (bitmap == NULL)
		return 0;
	for (; first < end && first % 8 != 0; first++)
		count += pending_bit(bitmap, first);
	for (; end > first && end % 8 != 0; end--)
		count += pending_bit(bitmap, end - 1);
	return count + pg_popcount((const char *) bitmap + first / 8, (int) ((end - first) / 8));
}

/*
 * The pending rows that win, and the base rows minus deletes minus superseded
 * ones: every number is known before the first row would be visited.
 */
uint64
strata_scan_count(StrataScan *scan)
{
	StrataManifest *manifest = scan->view->manifest;
	uint64		count = 0;

	Assert(scan->phase == SCAN_START && scan->shared == NULL);
	if (scan->layer != STRATA_LAYER_BASE)
	{
		start_pending(scan);
		while (next_entry(scan))
			count += scan->nrows - count_bits(scan->losers, scan->first_key, scan->nrows);
		end_pending(scan);
	}
	if (scan->layer != STRATA_LAYER_WAL && !scan->pending_only)
	{
		uint64		superseded = scan->stats.superseded;

		start_base(scan);
		superseded = scan->stats.superseded - superseded;
		for (int i = 0; i < manifest->ngroups; i++)
		{
			if (!scan->skipped[i])
				count += manifest->groups[i].ref.rows - manifest->groups[i].ndeleted;
		}
		count -= superseded;
	}
	scan->phase = SCAN_DONE;
	scan_report(&scan->part, &scan->view->stats);
	return count;
}

void
strata_scan_end(StrataScan *scan)
{
	strata_view_remove_part(scan->view, &scan->part);
	if (scan->reader)
		strata_pending_reader_end(scan->reader);
	if (scan->group_reader)
		strata_group_close(scan->group_reader);
	MemoryContextDelete(scan->mcxt);
}
