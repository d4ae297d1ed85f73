/*-------------------------------------------------------------------------
 *
 * lookup.c
 *	  Exact key lookups in a view.
 *
 * The pending keys are asked first: their winner is the answer, a row or, for
 * a tombstone, none.  Else the key index names base rows, of which at most one
 * is live for the view.  Without a usable index the stored key hashes of the
 * base row groups are read, leaving out those whose zone map excludes the key.
 *
 * A lookup keeps its last row groups and pending entries open from one key to
 * the next.
 *
 * IDENTIFICATION
 *	  src/log/lookup.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "log/view_private.h"

#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define GROUP_SLOTS	16
#define PENDING_TID	((BlockNumber) 1 << 31)

/* So many pending TIDs are looked for without an index. */
#define MAX_TIDS_SEARCHED	16

/* The first pending entry whose rows' TIDs name this block. */
typedef struct Place
{
	BlockNumber block;
	int			entry;
} Place;

typedef struct GroupSlot
{
	uint32		number;			/* row group, 0: empty */
	uint64		used;
	MemoryContext mcxt;
	StrataGroupReader *reader;
} GroupSlot;

struct StrataLookup
{
	StrataViewPart part;
	StrataView *view;
	const Bitmapset *needed;
	MemoryContext mcxt;
	StrataPendingReader *reader;	/* made when the log has entries */
	StrataIndexProbe *probe;
	uint64		clock;
	GroupSlot	slots[GROUP_SLOTS];

	/* by TID: first entry of each block, of entries before nplaced */
	HTAB	   *places;
	int			nplaced;
	uint64		ntids;			/* pending ones asked for */

	/* read, and of that already in the view's stats */
	uint64		probes;
	uint64		groups;
	uint64		read;
	uint64		decoded;
	StrataReadStats reported;
};

static void
lookup_report(StrataViewPart *part, StrataReadStats *stats)
{
	StrataLookup *lookup = (StrataLookup *) part;
	uint64		read = lookup->read;
	uint64		decoded = lookup->decoded;
	uint64		r;
	uint64		d;
	int			i;

	for (i = 0; i < GROUP_SLOTS; i++)
	{
		if (lookup->slots[i].number == 0)
			continue;
		r = d = 0;
		strata_group_io(lookup->slots[i].reader, &r, &d);
		read += r;
		decoded += d;
	}
	if (lookup->reader)
	{
		strata_pending_reader_io(lookup->reader, &r, &d);
		read += r;
		decoded += d;
	}
	stats->index_probes += lookup->probes - lookup->reported.index_probes;
	stats->groups_read += lookup->groups - lookup->reported.groups_read;
	stats->bytes_read += read - lookup->reported.bytes_read;
	stats->bytes_decoded += decoded - lookup->reported.bytes_decoded;
	lookup->reported.index_probes = lookup->probes;
	lookup->reported.groups_read = lookup->groups;
	lookup->reported.bytes_read = read;
	lookup->reported.bytes_decoded = decoded;
}

StrataLookup *
strata_lookup_begin(StrataView *view, const Bitmapset *needed)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata lookup",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataLookup *lookup = palloc0(sizeof(StrataLookup));

	lookup->part.report = lookup_report;
	lookup->view = view;
	lookup->needed = bms_copy(needed);
	lookup->mcxt = mcxt;
	strata_view_add_part(view, &lookup->part);
	strata_view_visit_pending(view);
	MemoryContextSwitchTo(old);
	return lookup;
}

void
strata_lookup_end(StrataLookup *lookup)
{
	int			i;

	strata_view_remove_part(lookup->view, &lookup->part);
	strata_pending_lend_reader(lookup->view->pending, NULL);
	if (lookup->reader)
		strata_pending_reader_end(lookup->reader);
	for (i = 0; i < GROUP_SLOTS; i++)
	{
		if (lookup->slots[i].number != 0)
			strata_group_close(lookup->slots[i].reader);
	}
	if (lookup->probe)
		strata_keyindex_probe_end(lookup->probe);
	MemoryContextDelete(lookup->mcxt);
}

static StrataPendingReader *
pending_reader(StrataLookup *lookup)
{
	if (lookup->reader == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(lookup->mcxt);

		lookup->reader = strata_pending_reader_begin(lookup->view->pending, lookup->needed, false);
		MemoryContextSwitchTo(old);
	}
	return lookup->reader;
}

/* The row group's reader, opened or still open. */
static StrataGroupReader *
group_reader(StrataLookup *lookup, const StrataRowGroup *group)
{
	StrataView *view = lookup->view;
	GroupSlot  *victim = &lookup->slots[0];
	MemoryContext old;
	int			i;

	lookup->clock++;
	for (i = 0; i < GROUP_SLOTS; i++)
	{
		GroupSlot  *slot = &lookup->slots[i];

		if (slot->number == group->number)
		{
			slot->used = lookup->clock;
			return slot->reader;
		}
		if (slot->used < victim->used)
			victim = slot;		/* never used ones have used = 0 */
	}
	if (victim->number != 0)
	{
		uint64		read = 0;
		uint64		decoded = 0;

		strata_group_io(victim->reader, &read, &decoded);
		lookup->read += read;
		lookup->decoded += decoded;
		strata_group_close(victim->reader);
		victim->number = 0;
		victim->used = 0;
	}
	if (victim->mcxt)
		MemoryContextReset(victim->mcxt);
	else
		victim->mcxt = AllocSetContextCreate(lookup->mcxt, "strata lookup row group",
											 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(victim->mcxt);
	victim->reader = strata_group_open(view->store, view->storage, &group->ref,
									   lookup->needed, false);
	MemoryContextSwitchTo(old);
	victim->number = group->number;
	victim->used = lookup->clock;
	lookup->groups++;
	return victim->reader;
}

static void
fetch_base(StrataLookup *lookup, const StrataRowGroup *group, uint32 row,
		   Datum *values, bool *isnull, ItemPointer tid)
{
	if (bms_is_empty(lookup->needed))
		memset(isnull, true, lookup->view->store->desc->natts * sizeof(bool));
	else
		strata_group_fetch(group_reader(lookup, group), row, values, isnull);
	strata_base_tid(tid, group->number, row);
}

static bool
lookup_by_index(StrataLookup *lookup, const StrataKeyProbe *probe, Oid index,
				Datum *values, bool *isnull, ItemPointer tid)
{
	StrataView *view = lookup->view;
	ItemPointerData candidate;
	bool		more;

	if (lookup->probe == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(lookup->mcxt);

		lookup->probe = strata_keyindex_probe_begin(view->store, view->storage, index);
		MemoryContextSwitchTo(old);
	}
	lookup->probes++;
	if (probe->eqproc)
		more = strata_keyindex_probe_with(lookup->probe, probe->nkeys, probe->eqproc,
										  probe->subtype, probe->values, &candidate);
	else
		more = strata_keyindex_probe(lookup->probe, probe->values, &candidate);
	for (; more; more = strata_keyindex_probe_next(lookup->probe, &candidate))
	{
		StrataRowGroup *group = strata_manifest_find_group(view->manifest, view->store,
														   view->snapshot,
														   strata_tid_group(&candidate));
		uint32		row = strata_tid_row(&candidate);

		CHECK_FOR_INTERRUPTS();
		if (group == NULL || row >= group->ref.rows || strata_row_deleted(group, row))
			continue;			/* of another snapshot, or superseded by a merge */
		fetch_base(lookup, group, row, values, isnull, tid);
		return true;
	}
	return false;
}

/* Does the zone map allow the key's first column? */
static bool
zone_allows(StrataLookup *lookup, const StrataRowGroup *group, const StrataKeyProbe *probe)
{
	StrataStore *store = lookup->view->store;
	StrataKey  *key = &store->key;
	StrataZone	zone;

	if (probe->eq != NULL || group->zones == NULL)
		return true;
	strata_zone_get(store, group->zones, key->attnum[0], &zone);
	if (!zone.known || zone.type != key->type[0] || zone.collation != key->collation[0])
		return true;
	if (zone.all_null)
		return false;
	return DatumGetInt32(FunctionCall2Coll(&key->cmp_proc[0], key->collation[0],
										   zone.min, probe->values[0])) <= 0 &&
		DatumGetInt32(FunctionCall2Coll(&key->cmp_proc[0], key->collation[0],
										zone.max, probe->values[0])) >= 0;
}

static bool
lookup_by_hash(StrataLookup *lookup, const StrataKeyProbe *probe,
			   Datum *values, bool *isnull, ItemPointer tid)
{
	StrataManifest *manifest;
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata zone maps",
											   ALLOCSET_DEFAULT_SIZES);
	bool		found = false;
	int			i;

	strata_view_complete(lookup->view);
	manifest = lookup->view->manifest;
	for (i = 0; i < manifest->ngroups && !found; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];
		StrataGroupReader *reader;
		const uint32 *hashes = NULL;
		MemoryContext old;
		bool		allowed;
		uint32		nrows;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(mcxt);
		allowed = zone_allows(lookup, group, probe);
		MemoryContextSwitchTo(old);
		MemoryContextReset(mcxt);
		if (!allowed)
			continue;
		reader = group_reader(lookup, group);
		nrows = Min(strata_group_rows(reader), group->ref.rows);
		if (probe->has_hash)
			hashes = strata_group_hashes(reader);
		for (row = 0; row < nrows; row++)
		{
			Datum		stored[INDEX_MAX_KEYS];

			if ((hashes && hashes[row] != probe->hash) || strata_row_deleted(group, row))
				continue;
			strata_group_fetch_key(reader, row, stored);
			if (strata_probe_matches(probe, stored))
			{
				fetch_base(lookup, group, row, values, isnull, tid);
				found = true;
				break;
			}
		}
	}
	MemoryContextDelete(mcxt);
	return found;
}

/* ---- TIDs ---- */

static BlockNumber
entry_block(const StrataPendingEntry *entry)
{
	return entry->type == STRATA_ENTRY_ROWS ? entry->page.block : entry->group.extent.block;
}

/* TID of a pending row. */
void
strata_pending_tid(ItemPointer tid, const StrataPendingEntry *entry, uint32 row)
{
	ItemPointerSet(tid, entry_block(entry) | PENDING_TID,
				   (OffsetNumber) (entry->tid_first + row + 1));
}

static bool
is_pending(const StrataView *view, const StrataPendingEntry *entry)
{
	return entry->position.generation > view->manifest->shards[entry->shard].merged_through;
}

static void
row_not_found(StrataLookup *lookup, const ItemPointerData *tid)
{
	elog(ERROR, "relation %u has no row with TID (%u,%u)",
		 RelationGetRelid(lookup->view->storage),
		 ItemPointerGetBlockNumberNoCheck(tid), ItemPointerGetOffsetNumberNoCheck(tid));
}

static bool
entry_has_tid(StrataView *view, int index, BlockNumber block, uint32 ordinal, uint32 *row)
{
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, index);

	/* blocks of what is merged may have been used again */
	if (entry_block(entry) != block || ordinal < entry->tid_first ||
		ordinal - entry->tid_first >= entry->rows || !is_pending(view, entry))
		return false;
	*row = ordinal - entry->tid_first;
	return true;
}

/* Take down where each block's entries begin, of entries not yet looked at. */
static void
add_places(StrataLookup *lookup)
{
	StrataView *view = lookup->view;
	int			nentries = strata_pending_nentries(view->pending);

	if (lookup->places == NULL)
	{
		HASHCTL		ctl = {0};

		ctl.keysize = sizeof(BlockNumber);
		ctl.entrysize = sizeof(Place);
		ctl.hcxt = lookup->mcxt;
		lookup->places = hash_create("strata pending blocks", 256, &ctl,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	for (; lookup->nplaced < nentries; lookup->nplaced++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(view->pending, lookup->nplaced);
		BlockNumber block = entry_block(entry);
		Place	   *place;
		bool		found;

		if (!is_pending(view, entry))
			continue;
		place = hash_search(lookup->places, &block, HASH_ENTER, &found);
		if (!found)
			place->entry = lookup->nplaced;
	}
}

/*
 * The entry and row of a pending TID.  The first ones are looked for among all
 * entries, newest first, which is quicker than to index them.
 */
static void
find_pending_tid(StrataLookup *lookup, const ItemPointerData *tid, int *entry, uint32 *row)
{
	StrataView *view = lookup->view;
	int			nentries = strata_pending_nentries(view->pending);
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid) & ~PENDING_TID;
	uint32		ordinal = ItemPointerGetOffsetNumberNoCheck(tid) - 1;

	if (lookup->ntids++ < MAX_TIDS_SEARCHED)
	{
		for (int i = nentries; i-- > 0;)
		{
			if (entry_has_tid(view, i, block, ordinal, row))
			{
				*entry = i;
				return;
			}
		}
	}
	else
	{
		Place	   *place;

		add_places(lookup);
		place = hash_search(lookup->places, &block, HASH_FIND, NULL);
		for (int i = place ? place->entry : nentries; i < nentries; i++)
		{
			if (entry_has_tid(view, i, block, ordinal, row))
			{
				*entry = i;
				return;
			}
		}
	}
	row_not_found(lookup, tid);
}

static StrataGroupReader *
find_base_tid(StrataLookup *lookup, const ItemPointerData *tid, uint32 *row)
{
	StrataView *view = lookup->view;
	StrataRowGroup *group = strata_manifest_find_group(view->manifest, view->store,
													   view->snapshot, strata_tid_group(tid));

	*row = strata_tid_row(tid);
	if (group == NULL || *row >= group->ref.rows)
		row_not_found(lookup, tid);
	return group_reader(lookup, group);
}

void
strata_lookup_tid(StrataLookup *lookup, const ItemPointerData *tid, Datum *values, bool *isnull)
{
	int			entry;
	uint32		row;

	if (ItemPointerGetBlockNumberNoCheck(tid) & PENDING_TID)
	{
		find_pending_tid(lookup, tid, &entry, &row);
		strata_pending_reader_row(pending_reader(lookup), entry, row, values, isnull);
	}
	else
	{
		StrataGroupReader *reader = find_base_tid(lookup, tid, &row);

		strata_group_fetch(reader, row, values, isnull);
	}
}

void
strata_lookup_tid_key(StrataLookup *lookup, const ItemPointerData *tid, Datum *keyvalues)
{
	int			entry;
	uint32		row;

	if (ItemPointerGetBlockNumberNoCheck(tid) & PENDING_TID)
	{
		find_pending_tid(lookup, tid, &entry, &row);
		strata_pending_reader_key(pending_reader(lookup), entry, row, keyvalues);
	}
	else
	{
		StrataGroupReader *reader = find_base_tid(lookup, tid, &row);

		strata_group_fetch_key(reader, row, keyvalues);
	}
}

/* ---- lookups ---- */

static bool
lookup_key(StrataLookup *lookup, const StrataKeyProbe *probe,
		   Datum *values, bool *isnull, ItemPointer tid)
{
	StrataView *view = lookup->view;
	StrataVersion version;
	Oid			index;

	Assert(probe->nkeys == view->store->key.natts);

	strata_view_read_key(view, probe->has_hash ? &probe->hash : NULL);

	if (strata_pending_nentries(view->pending) > 0)
	{
		strata_pending_lend_reader(view->pending, pending_reader(lookup));
		if (strata_pending_find(view->pending, probe, strata_view_accepts, view, &version))
		{
			if (version.tombstone)
				return false;
			if (bms_is_empty(lookup->needed))
				memset(isnull, true, view->store->desc->natts * sizeof(bool));
			else
				strata_pending_reader_row(lookup->reader, version.entry, version.row,
										  values, isnull);
			strata_pending_tid(tid, strata_pending_entry(view->pending, version.entry),
							   version.row);
			return true;
		}
	}

	if (strata_manifest_outgrown(view->manifest))
		strata_view_complete(view);
	if (view->manifest->complete && view->manifest->ngroups == 0)
		return false;
	index = strata_view_index(view);
	if (OidIsValid(index))
		return lookup_by_index(lookup, probe, index, values, isnull, tid);
	return lookup_by_hash(lookup, probe, values, isnull, tid);
}

bool
strata_lookup(StrataLookup *lookup, const StrataKeyProbe *probe,
			  Datum *values, bool *isnull, ItemPointer tid)
{
	bool		result = lookup_key(lookup, probe, values, isnull, tid);

	lookup_report(&lookup->part, &lookup->view->stats);
	return result;
}
