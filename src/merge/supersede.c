/*-------------------------------------------------------------------------
 *
 * supersede.c
 *	  Which base rows a pass supersedes, and the key index of what it adds.
 *
 * A pass hands over the key and the new TID of every row it puts into the
 * base, and the key of every tombstone.  They are sorted by key (in memory of
 * a fixed size, the rest in temporary files), so that the key index is walked
 * from left to right: neighbouring keys share leaf pages, and what a merge
 * reads of the base is the index pages its own keys lie on, whatever the size
 * of the base.  Superseded rows themselves are never read.
 *
 * A TID found in the index names a superseded row only if its row group is in
 * the manifest the pass started from and the row is not deleted there: TIDs
 * of passes that failed, and of this one, name row groups that are not.
 *
 * Without a usable index the key hashes of every base row are looked up among
 * the pending keys instead; key columns are read on a hit, payloads never.
 *
 * Locks: the caller holds the pass lock and ShareUpdateExclusiveLock on the
 * storage relation, so base, deletes and index hold still but for its own
 * insertions.  A crash leaves TIDs of row groups that never existed; row group
 * numbers are not given out twice.
 *
 * IDENTIFICATION
 *	  src/merge/supersede.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "pause.h"

#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

/* Memory for the sort, kB; small, so that a pass's peak does not depend on it. */
#define SUPERSEDE_SORT_MEMORY	2048

/* Look around (interrupts, lock waiters, memory) every so many keys. */
#define SUPERSEDE_TICK_KEYS		256

struct StrataSupersede
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
	Oid			index;			/* to be probed; InvalidOid: none */
	TupleDesc	desc;			/* key columns, TID, is a tombstone? */
	TupleTableSlot *in;
	TupleTableSlot *out;
	Tuplesortstate *sort;
};

/*
 * Start collecting.  index may be InvalidOid when there is none to probe; TIDs
 * are still added to indexes that are not fit for probing.
 */
StrataSupersede *
strata_supersede_begin(StrataStore *store, Relation storage,
					   StrataManifest *manifest, Oid index)
{
	StrataSupersede *supersede = palloc0(sizeof(StrataSupersede));
	const StrataKey *key = &store->key;
	AttrNumber	attnums[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];
	bool		nulls_first[INDEX_MAX_KEYS];

	supersede->store = store;
	supersede->storage = storage;
	supersede->manifest = manifest;
	supersede->index = index;

	supersede->desc = CreateTemplateTupleDesc(key->natts + 2);
	for (int i = 0; i < key->natts; i++)
	{
		Oid			input_type = get_opclass_input_type(key->btree_opclass[i]);

		TupleDescCopyEntry(supersede->desc, i + 1, key->desc, i + 1);
		attnums[i] = i + 1;
		operators[i] = get_opfamily_member(key->btree_opfamily[i],
										   input_type, input_type,
										   BTLessStrategyNumber);
		if (!OidIsValid(operators[i]))
			elog(ERROR, "missing operator %d(%u,%u) in opfamily %u",
				 BTLessStrategyNumber, input_type, input_type,
				 key->btree_opfamily[i]);
		nulls_first[i] = false;
	}
	TupleDescInitEntry(supersede->desc, key->natts + 1, "tid", INT8OID, -1, 0);
	TupleDescInitEntry(supersede->desc, key->natts + 2, "tombstone", BOOLOID, -1, 0);

	supersede->in = MakeSingleTupleTableSlot(supersede->desc, &TTSOpsVirtual);
	supersede->out = MakeSingleTupleTableSlot(supersede->desc, &TTSOpsMinimalTuple);
	supersede->sort = tuplesort_begin_heap(supersede->desc, key->natts, attnums,
										   operators, (Oid *) key->collation,
										   nulls_first,
										   Min(maintenance_work_mem, SUPERSEDE_SORT_MEMORY),
										   NULL, TUPLESORT_NONE);
	return supersede;
}

static void
supersede_put(StrataSupersede *supersede, const Datum *keyvalues,
			  uint64 tid, bool tombstone)
{
	TupleTableSlot *slot = supersede->in;
	int			natts = supersede->store->key.natts;

	ExecClearTuple(slot);
	memcpy(slot->tts_values, keyvalues, sizeof(Datum) * natts);
	memset(slot->tts_isnull, 0, sizeof(bool) * (natts + 2));
	slot->tts_values[natts] = Int64GetDatum((int64) tid);
	slot->tts_values[natts + 1] = BoolGetDatum(tombstone);
	ExecStoreVirtualTuple(slot);
	tuplesort_puttupleslot(supersede->sort, slot);
}

/* A row that the pass puts into the base. */
void
strata_supersede_put(StrataSupersede *supersede, const Datum *keyvalues,
					 uint32 group, uint32 row)
{
	supersede_put(supersede, keyvalues, (uint64) group << 16 | row, false);
}

/* A key that the pass takes out of the base. */
void
strata_supersede_put_tombstone(StrataSupersede *supersede, const Datum *keyvalues)
{
	supersede_put(supersede, keyvalues, 0, true);
}

/*
 * Report the live base rows with one key.  Returns whether there was any.
 */
static bool
supersede_probe(StrataSupersede *supersede, StrataIndexProbe *probe,
				const Datum *keyvalues, bool tombstone,
				StrataSupersededRow callback, void *arg)
{
	bool		hit = false;
	bool		found;
	ItemPointerData tid;

	found = strata_keyindex_probe(probe, keyvalues, &tid);
	while (found)
	{
		StrataRowGroup *group = strata_manifest_group(supersede->manifest,
													  strata_tid_group(&tid));
		uint32		row = strata_tid_row(&tid);

		if (group != NULL && row < group->ref.rows &&
			!strata_row_deleted(group, row))
		{
			hit = true;
			callback(group->number, row, tombstone, arg);
		}
		found = strata_keyindex_probe_next(probe, &tid);
	}
	return hit;
}

/*
 * Go through the keys in order: probe, then add the new TID.
 */
void
strata_supersede_finish(StrataSupersede *supersede, StrataSupersededRow callback,
						StrataPassTick tick, void *arg,
						StrataPassRecord *record)
{
	StrataStore *store = supersede->store;
	int			natts = store->key.natts;
	StrataIndexProbe *probe = NULL;
	StrataIndexInserter *inserter;
	MemoryContext key_mcxt;
	MemoryContext old_mcxt;
	uint64		nkeys = 0;

	tuplesort_performsort(supersede->sort);

	if (OidIsValid(supersede->index) && supersede->manifest->ngroups > 0)
		probe = strata_keyindex_probe_begin(store, supersede->storage, supersede->index);
	inserter = strata_keyindex_insert_begin(store, supersede->storage);

	key_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata superseding key",
									 ALLOCSET_SMALL_SIZES);
	while (tuplesort_gettupleslot(supersede->sort, true, false, supersede->out, NULL))
	{
		TupleTableSlot *slot = supersede->out;
		uint64		tid;
		bool		tombstone;

		slot_getallattrs(slot);
		tid = (uint64) DatumGetInt64(slot->tts_values[natts]);
		tombstone = DatumGetBool(slot->tts_values[natts + 1]);

		if (nkeys++ % SUPERSEDE_TICK_KEYS == 0)
			tick(arg);

		MemoryContextReset(key_mcxt);
		old_mcxt = MemoryContextSwitchTo(key_mcxt);

		if (probe != NULL)
		{
			int64		before = pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read;

			if (supersede_probe(supersede, probe, slot->tts_values, tombstone,
								callback, arg))
			{
				if (tombstone)
					record->rows_deleted++;
				else
					record->rows_replaced++;
			}
			record->base_bytes_read += BLCKSZ *
				(pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read - before);
		}
		if (!tombstone)
		{
			STRATA_PAUSE("pass-index-insert");
			strata_keyindex_insert(inserter, slot->tts_values,
								   (uint32) (tid >> 16), (uint32) (tid & 0xFFFF));
		}

		MemoryContextSwitchTo(old_mcxt);
	}
	MemoryContextDelete(key_mcxt);

	strata_keyindex_insert_end(inserter);
	if (probe != NULL)
	{
		record->index_probes += strata_keyindex_probe_count(probe);
		strata_keyindex_probe_end(probe);
	}
	tuplesort_end(supersede->sort);
	ExecDropSingleTupleTableSlot(supersede->in);
	ExecDropSingleTupleTableSlot(supersede->out);
	FreeTupleDesc(supersede->desc);
	pfree(supersede);
}

/*
 * Without an index: look up the hash of every live base row among the pending
 * keys.
 */
void
strata_supersede_by_hash(StrataStore *store, Relation storage,
						 StrataManifest *manifest, StrataPending *pending,
						 StrataAccept accept, void *accept_arg,
						 StrataSupersededRow callback, StrataPassTick tick,
						 void *arg, StrataPassRecord *record)
{
	StrataKeyProbe probe = {0};
	Datum		keyvalues[INDEX_MAX_KEYS];
	Bitmapset  *needed = NULL;
	MemoryContext group_mcxt;
	MemoryContext old_mcxt;

	for (int i = 0; i < store->key.natts; i++)
		needed = bms_add_member(needed, store->key.attnum[i]);

	probe.key = &store->key;
	probe.nkeys = store->key.natts;
	probe.values = keyvalues;
	probe.has_hash = true;

	group_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata superseding group",
									   ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < manifest->ngroups; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];
		StrataGroupReader *reader;
		const uint32 *hashes;
		uint64		bytes_read;
		uint64		bytes_decoded;

		tick(arg);
		MemoryContextReset(group_mcxt);
		old_mcxt = MemoryContextSwitchTo(group_mcxt);

		reader = strata_group_open(store, storage, &group->ref, needed, true);
		hashes = strata_group_hashes(reader);
		for (uint32 row = 0; row < group->ref.rows; row++)
		{
			StrataVersion winner;

			if (strata_row_deleted(group, row) ||
				!strata_pending_hides(pending, hashes[row], reader, row,
									  accept, accept_arg))
				continue;

			strata_group_fetch_key(reader, row, keyvalues);
			probe.hash = hashes[row];
			if (!strata_pending_find(pending, &probe, accept, accept_arg, &winner))
				elog(ERROR, "no pending version of a hidden base row's key");
			if (winner.tombstone)
				record->rows_deleted++;
			else
				record->rows_replaced++;
			callback(group->number, row, winner.tombstone, arg);
		}
		strata_group_io(reader, &bytes_read, &bytes_decoded);
		record->base_bytes_read += bytes_read;
		strata_group_close(reader);

		MemoryContextSwitchTo(old_mcxt);
	}
	MemoryContextDelete(group_mcxt);
	bms_free(needed);
}
