/*-------------------------------------------------------------------------
 *
 * view.c
 *	  A store as one snapshot sees it.
 *
 * A view is a manifest, the end of each shard's log, and a rule for which
 * entries before that end count: those of generations that the manifest has
 * not merged, and whose transaction the snapshot sees.  The manifest is read
 * before the log, both after the snapshot was taken.  A pass that commits in
 * between changes nothing for this view: the snapshot does not see its shard
 * rows, and sweep leaves the pages that they made obsolete to the snapshot.
 *
 * Entries merged for this view are in its base table and must not count a
 * second time; what the backend keeps of the log may still hold them.
 *
 * Which conflicts of serializable transactions that makes: view_serializable.c.
 *
 * Locks: none of its own.  Everything belongs to the view's memory context;
 * pins on manifest and pending entries go with it on error.
 *
 * IDENTIFICATION
 *	  src/log/view.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "log/pending_private.h"
#include "log/view_private.h"

#include "access/xact.h"
#include "utils/memutils.h"

/* What an entry is to the view; 0: not asked yet. */
#define MEMO_MERGED	1			/* in its base table */
#define MEMO_SEEN	2
#define MEMO_UNSEEN	3
#define MEMO_NOTED	4			/* unseen, and its writer has been noted for it */

static StrataView *
view_begin(StrataStore *store, Relation storage, Snapshot snapshot, StrataLayer layer,
		   bool lookups)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata view",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataView *view = palloc0(sizeof(StrataView));
	StrataViewPrivate *private = palloc0(sizeof(StrataViewPrivate));

	private->mcxt = mcxt;
	dlist_init(&private->parts);
	view->private_data = private;
	view->store = store;
	view->storage = storage;
	view->snapshot = snapshot;
	view->manifest = lookups ? strata_manifest_get_for_lookups(store, storage, snapshot) :
		strata_manifest_get(store, storage, snapshot);
	if (layer == STRATA_LAYER_BASE)
		view->pending = strata_pending_create(store, storage, mcxt, 0);
	else
		view->pending = strata_pending_current(store, storage, view->manifest, &view->end);
	private->nmemo = (view->end + MEMO_CHUNK - 1) / MEMO_CHUNK;
	if (private->nmemo > 0)
		private->memo = palloc0(sizeof(uint8 *) * private->nmemo);
	MemoryContextSwitchTo(old);
	return view;
}

StrataView *
strata_view_begin(StrataStore *store, Relation storage, Snapshot snapshot, StrataLayer layer)
{
	return view_begin(store, storage, snapshot, layer, false);
}

StrataView *
strata_view_begin_lookups(StrataStore *store, Relation storage, Snapshot snapshot,
						  StrataLayer layer)
{
	return view_begin(store, storage, snapshot, layer, true);
}

void
strata_view_complete(StrataView *view)
{
	MemoryContext old;

	if (view->manifest->complete)
		return;

	/* the one there was stays pinned: its row groups may be in use */
	old = MemoryContextSwitchTo(view->private_data->mcxt);
	view->manifest = strata_manifest_get(view->store, view->storage, view->snapshot);
	MemoryContextSwitchTo(old);
}

void
strata_view_end(StrataView *view)
{
	Assert(dlist_is_empty(&view->private_data->parts));
	strata_pending_unpin(view->pending);
	/* the manifest's pin belongs to the context */
	MemoryContextDelete(view->private_data->mcxt);
}

static uint8
judge(StrataView *view, int index)
{
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, index);

	if (entry->position.generation <= view->manifest->shards[entry->shard].merged_through)
		return MEMO_MERGED;
	if ((entry->flags & STRATA_ENTRY_FROZEN_MASK) == 0 &&
		TransactionIdPrecedes(XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid)),
							  strata_oldest_clog_xid()))
	{
		/* read before VACUUM froze it, and VACUUM has gone further since */
		strata_pending_refresh_flags(view->pending, index);
		entry = strata_pending_entry(view->pending, index);
	}
	return strata_entry_visible(entry->fxid, entry->cid, entry->flags, view->snapshot) ?
		MEMO_SEEN :
		MEMO_UNSEEN;
}

/* Where it is kept what an entry before the view's end is. */
static inline uint8 *
memo_of(StrataView *view, int index)
{
	StrataViewPrivate *private = view->private_data;
	uint8	  **chunk = &private->memo[index / MEMO_CHUNK];

	if (unlikely(*chunk == NULL))
		*chunk = MemoryContextAllocZero(private->mcxt, MEMO_CHUNK);
	return &(*chunk)[index % MEMO_CHUNK];
}

bool
strata_view_accepts_silently(const StrataPendingEntry *entry, int index, void *arg)
{
	StrataView *view = arg;
	uint8	   *memo;

	if (unlikely(index >= view->end))
		return false;
	memo = memo_of(view, index);
	if (*memo == 0)
		*memo = judge(view, index);
	return *memo == MEMO_SEEN;
}

bool
strata_view_accepts(const StrataPendingEntry *entry, int index, void *arg)
{
	StrataView *view = arg;
	uint8	   *memo;

	if (unlikely(index >= view->end))
	{
		if (IsolationIsSerializable() && strata_view_is_unseen(view, index))
			strata_view_conflict_out(view, index);
		return false;
	}
	memo = memo_of(view, index);
	if (*memo == 0)
		*memo = judge(view, index);
	if (*memo == MEMO_UNSEEN)
	{
		strata_view_conflict_out(view, index);
		*memo = MEMO_NOTED;
	}
	return *memo == MEMO_SEEN;
}

bool
strata_view_is_unseen(StrataView *view, int index)
{
	uint8	   *memo;

	if (index >= view->end)
		return judge(view, index) == MEMO_UNSEEN;
	memo = memo_of(view, index);
	if (*memo == 0)
		*memo = judge(view, index);
	return *memo == MEMO_UNSEEN;
}

Oid
strata_view_index(StrataView *view)
{
	StrataViewPrivate *private = view->private_data;

	if (!private->index_looked_for)
	{
		bool		present;

		private->index = strata_keyindex_find(view->storage, &present);
		private->index_looked_for = true;
	}
	return private->index;
}

void
strata_view_visit_pending(StrataView *view)
{
	uint64		generations = 0;
	int			shard;

	for (shard = 0; shard < view->store->nshards; shard++)
		generations += strata_pending_generations(view->pending, shard,
												  view->manifest->shards[shard].merged_through);
	view->stats.generations = generations;
	strata_view_report_pending(view);
}

void
strata_view_report_pending(StrataView *view)
{
	StrataViewPrivate *private = view->private_data;
	uint64		read = strata_pending_bytes_read(view->pending);

	view->stats.bytes_read += read - private->pending_reported;
	private->pending_reported = read;
}

void
strata_view_add_part(StrataView *view, StrataViewPart *part)
{
	dlist_push_tail(&view->private_data->parts, &part->node);
}

void
strata_view_remove_part(StrataView *view, StrataViewPart *part)
{
	part->report(part, &view->stats);
	strata_view_report_pending(view);
	dlist_delete(&part->node);
}

const StrataReadStats *
strata_view_stats(StrataView *view)
{
	dlist_iter	iter;

	dlist_foreach(iter, &view->private_data->parts)
	{
		StrataViewPart *part = dlist_container(StrataViewPart, node, iter.cur);

		part->report(part, &view->stats);
	}
	strata_view_report_pending(view);
	return &view->stats;
}
