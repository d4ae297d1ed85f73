/*-------------------------------------------------------------------------
 *
 * pass.c
 *	  A merge pass: fold a bounded run of sealed generations into the base.
 *
 * One transaction, in this order:
 *
 *	locks		the store's pass lock, then ShareUpdateExclusiveLock on the
 *				storage relation, and only then a registered latest snapshot:
 *				whatever an earlier pass committed is seen.  The foreign table
 *				is never opened, so a pass stands in nobody's way.
 *	choose		choose.c: bounded in generations, bytes and memory.
 *	memory		what the pass will take of the cluster's budget (budget.c), in
 *				one piece; waiting for it gives way to DDL.
 *	index		the key index is built if there is none to probe.
 *	stream		the winning rows of the chosen generations, in log order, into
 *				row groups.  A row group that was loaded in bulk and is large
 *				enough is adopted where it lies: a manifest row names its
 *				extent, its losing rows become deletes.  Entries of aborted
 *				transactions are dropped; a tombstone ends here.
 *	supersede	supersede.c: in key order, find the base rows that lose, add
 *				the new TIDs.
 *	flip		deletes, the shards' merged_through and totals, the pass's own
 *				row.  With the commit readers go over to the new state.
 *
 * Appends go on all the while: they touch pages of later generations only.
 *
 * Memory: one row group being compressed, a few dictionaries to compress it
 * with (dictionary_train.c), the list of the chosen generations'
 * entries (bounded by choose.c), and for keys, deletes and the sort a fixed
 * size each.  Values are read, copied into the writer and forgotten row by
 * row.  Only where there is no index to probe must all keys be kept; then
 * choose.c bounds these, too.
 *
 * Crash windows: until the commit record no snapshot sees anything of a pass.
 * What is left of one that failed are extents no manifest row names (sweep
 * reclaims them), TIDs of row groups that never existed (ignored), row group
 * numbers never used, and M on the metapage naming a transaction that
 * aborted, which is what readers take it for.
 *
 * IDENTIFICATION
 *	  src/merge/pass.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "base/codec.h"
#include "merge/budget.h"
#include "merge/output.h"
#include "merge/progress.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* Fold deletes when more rows than this are visible. */
#define PASS_MAX_DELETES_ROWS	64

/*
 * Memory for keys.  While their table fits, all are kept in it; else the rule
 * works through them in partitions.  Small and fixed, so that a pass's peak
 * does not follow the backlog.
 */
#define PASS_KEY_BUDGET			(2 * 1024 * 1024)

/* What a key takes where the table is needed, its list of deletes included. */
#define PASS_KEY_MEMORY			48

/* Deletes kept in memory before they are written. */
#define PASS_MAX_DELETES		65536

/* Look around every so many rows. */
#define PASS_TICK_ROWS			256

typedef struct StrataPass
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;	/* what the pass started from */
	StrataPassRecord *record;

	/* the chosen generations */
	StrataChoice *choice;
	StrataPending *pending;
	bool	   *committed;		/* by entry */
	const uint8 *losers;		/* by number of key; NULL: none */

	bool		by_hash;		/* no index to probe, now or by then */

	/* streaming */
	Bitmapset  *all_columns;
	Bitmapset  *key_columns;
	Datum	   *values;
	bool	   *isnull;
	StrataPendingReader *reader;
	StrataOutput output;
	uint64		ticks;

	/* what changes in the base */
	StrataSupersede *supersede; /* NULL: no key, or no index at all */
	uint64	   *deletes;		/* row group << 16 | row, not yet written */
	int			ndeletes;
	uint64		winners;		/* rows that went into the base */
	uint32		generation;		/* being streamed */

	MemoryContext mcxt;			/* everything above */
	MemoryContext row_mcxt;		/* one row */
} StrataPass;

/*
 * Give way to DDL: 55P03 when somebody waits for AccessExclusiveLock.
 */
void
strata_pass_give_way(StrataStore *store)
{
	if (strata_storage_lock_wanted(store->storage))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("merge of %s gave way to another session", store->name),
				 errdetail("A command that needs the table for itself is waiting."),
				 errhint("Run the merge again later; nothing has changed.")));
}

static void
pass_sample_memory(StrataPass *pass)
{
	int64		memory = (int64) (MemoryContextMemAllocated(pass->mcxt, true) +
								  strata_codec_memory());

	pass->record->peak_memory = Max(pass->record->peak_memory, memory);
}

/* Look around: interrupts, DDL that waits, memory. */
static void
pass_tick(void *arg)
{
	StrataPass *pass = (StrataPass *) arg;

	CHECK_FOR_INTERRUPTS();
	strata_pass_give_way(pass->store);
	pass_sample_memory(pass);
}

/* StrataAccept: does an entry count? */
static bool
pass_accepts(const StrataPendingEntry *entry, int index, void *arg)
{
	return ((StrataPass *) arg)->committed[index];
}

/* Does a newer version of its key beat this row or tombstone? */
static inline bool
pass_loses(StrataPass *pass, const StrataPendingEntry *entry, uint32 row)
{
	uint64		key = entry->first_key + row;

	return pass->losers != NULL && (pass->losers[key / 8] & (1 << (key % 8))) != 0;
}

static int
pass_delete_cmp(const void *a, const void *b)
{
	uint64		va = *(const uint64 *) a;
	uint64		vb = *(const uint64 *) b;

	return va < vb ? -1 : va > vb ? 1 :
									0;
}

static void
pass_write_deletes(StrataPass *pass)
{
	if (pass->ndeletes == 0)
		return;
	qsort(pass->deletes, pass->ndeletes, sizeof(uint64), pass_delete_cmp);
	strata_manifest_add_deletes(pass->store, pass->manifest->incarnation,
								pass->deletes, pass->ndeletes);
	pass->ndeletes = 0;
}

static void
pass_add_delete(StrataPass *pass, uint32 group, uint32 row)
{
	if (pass->ndeletes == PASS_MAX_DELETES)
		pass_write_deletes(pass);
	pass->deletes[pass->ndeletes++] = (uint64) group << 16 | row;
}

/* StrataSupersededRow */
static void
pass_superseded(uint32 group, uint32 row, bool tombstone, void *arg)
{
	pass_add_delete((StrataPass *) arg, group, row);
}

/* How many rows of an entry win. */
static uint32
pass_count_winners(StrataPass *pass, const StrataPendingEntry *entry)
{
	uint32		won = 0;

	for (uint32 row = 0; row < entry->rows; row++)
	{
		if (!pass_loses(pass, entry, row))
			won++;
	}
	return won;
}

/*
 * Is what remains of the row group of an entry at least a quarter of a full
 * one?  won: how many rows do.
 */
static bool
pass_is_adoptable(StrataPass *pass, const StrataPendingEntry *entry, uint32 *won)
{
	StrataOptions *options = pass->store->options;
	const StrataGroupRef *ref = &entry->group;

	/* The whole group is too small: no need to look at its rows. */
	*won = 0;
	if (entry->type != STRATA_ENTRY_ROW_GROUP ||
		(ref->rows < (uint32) options->row_group_rows / 4 &&
		 ref->raw_bytes < (uint64) options->row_group_bytes / 4))
		return false;

	*won = pass_count_winners(pass, entry);
	return *won > 0 &&
		(*won >= (uint32) options->row_group_rows / 4 ||
		 (double) ref->raw_bytes * *won / ref->rows >= (double) options->row_group_bytes / 4);
}

/*
 * Adopt the row group of an entry if what remains of it is large enough: then
 * bulk data is written once.
 */
static bool
pass_adopt_group(StrataPass *pass, const StrataPendingEntry *entry)
{
	const StrataGroupRef *ref = &entry->group;
	bool		keyed = pass->store->key.natts > 0;
	uint32		won;
	uint32		number;
	StrataGroupReader *reader;
	uint64		bytes_read;
	uint64		bytes_decoded;
	MemoryContext group_mcxt;
	MemoryContext old_mcxt;

	if (!pass_is_adoptable(pass, entry, &won))
		return false;

	group_mcxt = AllocSetContextCreate(pass->mcxt, "strata adopted row group",
									   ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(group_mcxt);

	number = strata_meta_take_row_groups(pass->storage, 1);
	reader = strata_group_open(pass->store, pass->storage, ref, pass->key_columns, true);
	if (strata_group_rows(reader) != ref->rows)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("row group at block %u of %s has %u rows where its log entry says %u",
						ref->extent.block, RelationGetRelationName(pass->storage),
						strata_group_rows(reader), ref->rows)));

	for (uint32 row = 0; keyed && row < ref->rows; row++)
	{
		if (pass->ticks++ % PASS_TICK_ROWS == 0)
			pass_tick(pass);

		if (pass_loses(pass, entry, row))
			pass_add_delete(pass, number, row);
		else if (pass->supersede != NULL)
		{
			Datum		keyvalues[INDEX_MAX_KEYS];

			strata_group_fetch_key(reader, row, keyvalues);
			strata_supersede_put(pass->supersede, keyvalues, number, row);
		}
	}
	strata_manifest_add_group(pass->store, pass->manifest->incarnation, number, ref,
							  strata_group_zones(reader), pass->record);
	strata_group_io(reader, &bytes_read, &bytes_decoded);
	strata_group_close(reader);

	pass->winners += won;
	pass->record->row_groups_adopted++;
	pass->record->bytes_adopted += (int64) ref->length;
	pass->record->bytes_read += bytes_read;
	pass_tick(pass);

	MemoryContextSwitchTo(old_mcxt);
	MemoryContextDelete(group_mcxt);
	return true;
}

/*
 * Stream the winning rows and tombstones of one committed entry.
 */
static void
pass_fold_entry(StrataPass *pass, int index, const StrataPendingEntry *entry)
{
	bool		keyed = pass->store->key.natts > 0;
	MemoryContext old_mcxt;

	if (pass_adopt_group(pass, entry))
		return;

	for (uint32 row = 0; row < entry->rows + entry->tombstones; row++)
	{
		if (pass->ticks++ % PASS_TICK_ROWS == 0)
			pass_tick(pass);

		if (pass_loses(pass, entry, row))
			continue;

		MemoryContextReset(pass->row_mcxt);
		old_mcxt = MemoryContextSwitchTo(pass->row_mcxt);
		if (row < entry->rows)
		{
			strata_pending_reader_row(pass->reader, index, row, pass->values, pass->isnull);
			strata_output_add(&pass->output, pass->values, pass->isnull, keyed ? strata_pending_reader_hash(pass->reader, index, row) : 0);
			pass->winners++;
		}
		else if (pass->supersede != NULL)
		{
			Datum		keyvalues[INDEX_MAX_KEYS];

			strata_pending_reader_key(pass->reader, index, row, keyvalues);
			strata_supersede_put_tombstone(pass->supersede, keyvalues);
		}
		MemoryContextSwitchTo(old_mcxt);
	}
}

/*
 * Decode the keys of the chosen generations, and find out once for all which
 * entries count.  None of their transactions is running: choose.c saw to it.
 */
static void
pass_read_keys(StrataPass *pass)
{
	int			nentries;

	pass->pending = strata_pending_create(pass->store, pass->storage, pass->mcxt,
										  pass->by_hash ? 0 : PASS_KEY_BUDGET);
	for (int shard = 0; shard < pass->store->nshards; shard++)
	{
		for (int i = 0; i < pass->choice->ngenerations; i++)
		{
			StrataGeneration *generation = pass->choice->generations[i];
			StrataLogPoint point;

			if (generation->shard != shard)
				continue;
			pass_tick(pass);
			strata_generation_point(generation, &point);
			strata_pending_add(pass->pending, shard, &point, generation->number);
		}
	}

	nentries = strata_pending_nentries(pass->pending);
	pass->committed = palloc_extended(Max(nentries, 1) * sizeof(bool), MCXT_ALLOC_HUGE);
	for (int i = 0; i < nentries; i++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(pass->pending, i);
		int64		rows = (int64) entry->rows + entry->tombstones;

		switch (strata_xid_outcome(entry->fxid, entry->flags))
		{
			case STRATA_XID_COMMITTED:
				pass->committed[i] = true;
				pass->record->rows_read += rows;
				break;
			case STRATA_XID_ABORTED:
				pass->committed[i] = false;
				pass->record->rows_aborted += rows;
				break;
			case STRATA_XID_RUNNING:
			case STRATA_XID_OWN:
				elog(ERROR, "entry of running transaction " UINT64_FORMAT " in a chosen generation",
					 entry->fxid);
		}
	}
	if (pass->store->key.natts > 0)
		pass->losers = strata_pending_losers(pass->pending, pass_accepts, pass);
	pass_sample_memory(pass);
}

/*
 * Stream the chosen generations into row groups.
 */
static void
pass_stream(StrataPass *pass)
{
	int			nentries = strata_pending_nentries(pass->pending);
	uint64		rows = 0;
	uint64		bytes_read;
	uint64		bytes_decoded;

	for (int i = 0; i < nentries; i++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(pass->pending, i);
		uint32		won;

		CHECK_FOR_INTERRUPTS();
		if (pass->committed[i] && !pass_is_adoptable(pass, entry, &won))
			rows += pass_count_winners(pass, entry);
	}

	pass->values = palloc(sizeof(Datum) * pass->store->desc->natts);
	pass->isnull = palloc(sizeof(bool) * pass->store->desc->natts);
	strata_output_begin(&pass->output, pass->store, pass->storage,
						pass->manifest, pass->supersede, rows, pass->record,
						pass_tick, pass);
	pass->row_mcxt = AllocSetContextCreate(pass->mcxt, "strata merged row",
										   ALLOCSET_DEFAULT_SIZES);
	pass->reader = strata_pending_reader_begin(pass->pending, pass->all_columns, true);

	strata_progress_phase(STRATA_PHASE_WRITE);
	for (int i = 0; i < nentries; i++)
	{
		const StrataPendingEntry *entry = strata_pending_entry(pass->pending, i);

		if (entry->position.generation != pass->generation)
		{
			if (pass->generation != 0)
				strata_progress_done(1, pass->choice->bytes / pass->choice->ngenerations);
			pass->generation = entry->position.generation;
		}
		if (pass->committed[i])
			pass_fold_entry(pass, i, entry);
	}
	strata_output_end(&pass->output);

	strata_pending_reader_io(pass->reader, &bytes_read, &bytes_decoded);
	strata_pending_reader_end(pass->reader);
	pass->record->bytes_read += bytes_read + strata_pending_bytes_read(pass->pending);
}

/*
 * The manifest's side of the flip.
 */
static void
pass_flip(StrataPass *pass)
{
	StrataManifest *manifest = pass->manifest;
	StrataShardState states[STRATA_MAX_SHARDS];
	bool		changed[STRATA_MAX_SHARDS] = {0};

	pass_write_deletes(pass);

	memcpy(states, manifest->shards, sizeof(states));
	for (int i = 0; i < pass->choice->ngenerations; i++)
	{
		StrataGeneration *generation = pass->choice->generations[i];
		StrataShardState *state = &states[generation->shard];

		Assert(generation->number > state->merged_through);
		if (generation->next.owner == 0)
			elog(ERROR, "sealed generation %u of shard %d has no successor",
				 generation->number, generation->shard);
		state->merged_through = generation->number;
		state->first_pending = generation->next;
		state->rows += generation->rows;
		state->bytes += generation->bytes;
		changed[generation->shard] = true;
	}
	for (int shard = 0; shard < manifest->nshards; shard++)
	{
		if (changed[shard])
			strata_manifest_set_shard(pass->store, shard, &states[shard],
									  manifest->incarnation);
	}
}

/*
 * StrataBudgetAction: everything after the choice, in pass->mcxt.
 */
static void
pass_fold(void *arg)
{
	StrataPass *pass = (StrataPass *) arg;
	StrataStore *store = pass->store;
	StrataPassRecord *record = pass->record;
	bool		keyed = store->key.natts > 0;
	bool		index_present = false;
	Oid			index = InvalidOid;

	STRATA_PAUSE("pass-after-budget");

	/*
	 * From here on readers that do not see this transaction must know that
	 * the newest manifest is not theirs.
	 */
	strata_meta_begin_pass(pass->storage, GetTopFullTransactionId());
	strata_manifest_start_record(pass->manifest, record);

	/* Before any of this pass's own are there: all that are visible go. */
	if (pass->manifest->ndeletes_rows > PASS_MAX_DELETES_ROWS)
		strata_manifest_fold_deletes(store, pass->manifest, NULL);

	if (keyed)
	{
		if (strata_index_before_merge)
		{
			int64		before = pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read;

			record->index_built = strata_keyindex_ensure(store, pass->storage);
			if (record->index_built)
				record->base_bytes_read += BLCKSZ *
					(pgBufferUsage.shared_blks_hit + pgBufferUsage.shared_blks_read - before);
		}
		index = strata_keyindex_find(pass->storage, &index_present);
		if (!OidIsValid(index) && !pass->by_hash)
			elog(ERROR, "no usable key index on %s after it was built",
				 RelationGetRelationName(pass->storage));
	}

	pass->deletes = palloc(PASS_MAX_DELETES * sizeof(uint64));
	for (int i = 0; i < store->desc->natts; i++)
	{
		if (!TupleDescAttr(store->desc, i)->attisdropped)
			pass->all_columns = bms_add_member(pass->all_columns, i + 1);
	}
	for (int i = 0; i < store->key.natts; i++)
		pass->key_columns = bms_add_member(pass->key_columns, store->key.attnum[i]);
	if (OidIsValid(index) || index_present)
		pass->supersede = strata_supersede_begin(store, pass->storage,
												 pass->manifest, index);

	strata_progress_phase(STRATA_PHASE_READ);
	pass_read_keys(pass);
	pass_stream(pass);

	/* What the manifest had to be decoded from, whether it was or not. */
	record->base_bytes_read += pass->manifest->deletes_bytes;

	if (pass->by_hash)
		strata_supersede_by_hash(store, pass->storage, pass->manifest, pass->pending,
								 pass_accepts, pass, pass_superseded, pass_tick,
								 pass, record);
	strata_pending_free(pass->pending);
	pass->pending = NULL;
	strata_progress_phase(STRATA_PHASE_INDEX);
	if (pass->supersede != NULL)
		strata_supersede_finish(pass->supersede, pass_superseded, pass_tick, pass, record);
	record->rows_inserted = (int64) pass->winners - record->rows_replaced;
	record->base_rows += record->rows_inserted - record->rows_deleted;
	pass_sample_memory(pass);

	STRATA_PAUSE("pass-before-manifest");
	pass_flip(pass);
	STRATA_PAUSE("pass-after-manifest");
}

/*
 * Fold a bounded run of sealed generations.
 */
bool
strata_merge_pass(Oid ftrelid, const StrataPassRequest *request,
				  StrataPassRecord *out, FullTransactionId *blocked_by)
{
	StrataPassEnv env;
	StrataPass *pass;
	StrataOptions *options;
	bool		present;

	memset(out, 0, sizeof(*out));
	out->what = STRATA_PASS_MERGE;
	if (blocked_by != NULL)
		*blocked_by = InvalidFullTransactionId;

	if (!strata_pass_enter(&env, ftrelid, "strata.merge()", request->nowait))
		return false;

	pass = palloc0(sizeof(StrataPass));
	pass->mcxt = env.mcxt;
	pass->record = out;
	out->started = GetCurrentTimestamp();
	pass->store = env.store;
	pass->storage = env.storage;
	pass->manifest = env.manifest;
	STRATA_PAUSE("pass-begin");

	options = pass->store->options;
	pass->by_hash = pass->store->key.natts > 0 &&
		!OidIsValid(strata_keyindex_find(pass->storage, &present)) &&
		(!strata_index_before_merge || !strata_keyindex_order_known(pass->storage));
	pass->choice = strata_choose(pass->store, pass->storage, pass->manifest,
								 request->max_generations < 0 ?
									 options->merge_max_generations :
									 request->max_generations,
								 request->max_bytes < 0 ?
									 options->merge_max_bytes :
									 request->max_bytes,
								 pass->by_hash ? PASS_KEY_MEMORY : 1,
								 request->through);
	out->generations_merged = pass->choice->ngenerations;
	out->generations_left = pass->choice->left;
	out->bytes_merged = (int64) pass->choice->bytes;
	if (blocked_by != NULL)
		*blocked_by = pass->choice->blocked_by;
	STRATA_PAUSE("pass-after-choose");

	if (pass->choice->ngenerations > 0)
	{
		strata_progress_start(STRATA_PHASE_WAIT, pass->choice->ngenerations, pass->choice->bytes);
		strata_budget_run(pass->choice->memory + strata_output_memory(pass->store),
						  pass_tick, pass_fold, pass);
		out->ended = GetCurrentTimestamp();
		strata_manifest_add_pass(pass->store, out);
		CommandCounterIncrement();
		STRATA_PAUSE("pass-before-commit");
	}
	else
		out->ended = out->started;

	strata_pass_leave(&env);
	return true;
}
