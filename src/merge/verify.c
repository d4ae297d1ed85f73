/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  strata.verify: is everything a store consists of sound?
 *
 * One row (object, problem) per fault; no row means that every page, entry,
 * frame and reference was looked at and agrees with the others:
 *
 *	fixed pages		metapage, spare page and shard pages: counters and runs
 *					within bounds, agreeing with the manifest; totals of a shard
 *					page are those of its log
 *	log				every pending entry: chain, CRC, every row decoded, key
 *					hashes and shards right, generation summaries right
 *	row groups		every frame of every row group, pending or base, and the
 *					extents they lie in; zone maps say of each column what its
 *					values are; deletes within bounds
 *	dictionaries	their extents, headers and checksums, whether used or not
 *	keys			verify_keys.c: no key twice in the base, key hashes right,
 *					key index and base agree both ways
 *	blocks			nothing is referred to twice or outside the file
 *
 * Blocks that nothing refers to are what sweep gives back: the log of merged
 * generations, what a failed pass wrote.  They are faults only for a caller
 * who says that the store has just been swept, and only while the spare page
 * has room, because what does not fit there waits for the next sweep.
 *
 * Locks: pass lock and ShareUpdateExclusiveLock on the storage (on a standby
 * AccessShareLock), so that base and deletes hold still; writers go on.  What
 * they change between the looks at size, spare page and log can make a block
 * seem to be referred to twice: such a fault is believed when it shows again.
 *
 * Type code runs as the table's owner (enter.c), whoever verifies.
 *
 * Each check runs in a subtransaction, so that the error raised at a damaged
 * page is reported and the next object is looked at.
 *
 * IDENTIFICATION
 *	  src/merge/verify.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/verify_private.h"

#include "base/dictionary.h"
#include "log/repair.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"
#include "storage/salvage.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(strata_verify);

/* A row group of the log, checked after the walk. */
typedef struct VerifyGroup
{
	StrataGroupRef ref;
	uint32		generation;
	int			shard;
	bool		counts;			/* its transaction was not rolled back */
} VerifyGroup;

typedef struct VerifyShard
{
	int			shard;
	List	   *groups;			/* of VerifyGroup */
	MemoryContext mcxt;			/* where groups is, not the subtransaction's */
} VerifyShard;

/*
 * Report a fault.
 */
void
strata_verify_report(StrataVerify *verify, const char *object, const char *problem)
{
	Datum		values[2];
	bool		isnull[2] = {false, false};

	values[0] = CStringGetTextDatum(object);
	values[1] = CStringGetTextDatum(problem);
	tuplestore_putvalues(verify->result, verify->desc, values, isnull);
	verify->nfaults++;
}

typedef struct VerifyGuard
{
	StrataVerify *verify;
	StrataVerifyCheck check;
	void	   *arg;
	MemoryContext mcxt;			/* the check's own */
} VerifyGuard;

/* StrataAction */
static void
verify_guarded(void *arg)
{
	VerifyGuard *guard = (VerifyGuard *) arg;
	MemoryContext old_mcxt = MemoryContextSwitchTo(guard->mcxt);

	guard->check(guard->verify, guard->arg);
	MemoryContextSwitchTo(old_mcxt);
}

/*
 * Run a check in a subtransaction and a memory context of its own.
 */
void
strata_verify_guard(StrataVerify *verify, const char *object,
					StrataVerifyCheck check, void *arg)
{
	VerifyGuard guard = {.verify = verify, .check = check, .arg = arg};
	char	   *problem;

	CHECK_FOR_INTERRUPTS();
	guard.mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata verify check",
									   ALLOCSET_DEFAULT_SIZES);
	problem = strata_attempt(verify_guarded, &guard);
	if (problem != NULL)
		strata_verify_fault(verify, object, "%s", problem);
	MemoryContextDelete(guard.mcxt);
}

/* ---- fixed pages ---- */

static void
verify_metapage(StrataVerify *verify, void *arg)
{
	StrataManifest *manifest = verify->manifest;
	StrataMetaData meta;

	if (!strata_meta_read(verify->storage, &meta))
	{
		if (manifest->ngroups > 0)
			strata_verify_fault(verify, "metapage",
								"missing, although the manifest has %d row groups",
								manifest->ngroups);
		return;
	}
	if (meta.nshards != (uint32) verify->store->nshards)
		strata_verify_fault(verify, "metapage", "has %u shards, the store has %d",
							meta.nshards, verify->store->nshards);
	if (manifest->merged && meta.incarnation != manifest->incarnation)
		strata_verify_fault(verify, "metapage", "is of incarnation %u, the manifest of %u",
							meta.incarnation, manifest->incarnation);
	if (manifest->ngroups > 0 &&
		manifest->groups[manifest->ngroups - 1].number >= meta.next_row_group)
		strata_verify_fault(verify, "metapage",
							"next row group is %u, although the manifest has number %u",
							meta.next_row_group,
							manifest->groups[manifest->ngroups - 1].number);
}

static void
verify_spare_page(StrataVerify *verify, void *arg)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(verify->storage);
	uint64		end = STRATA_FIRST_EXTENT_BLOCK(verify->store->nshards);
	StrataSpareData *spare = strata_spare_read(verify->storage);

	if (spare == NULL)
		return;
	if (spare->next_owner == 0 || spare->next_owner > STRATA_MAX_OWNER)
		strata_verify_fault(verify, "spare page", "next owner id " UINT64_FORMAT " is out of range",
							spare->next_owner);
	for (int i = 0; i < verify->manifest->ngroups; i++)
	{
		StrataRowGroup *group = &verify->manifest->groups[i];

		if (group->ref.extent.owner >= spare->next_owner)
			strata_verify_fault(verify, "spare page",
								"next owner id is " UINT64_FORMAT ", although row group %u has " UINT64_FORMAT,
								spare->next_owner, group->number, group->ref.extent.owner);
	}
	for (int shard = 0; shard < verify->store->nshards; shard++)
	{
		StrataShardData data;

		if (strata_shard_read(verify->storage, shard, &data) &&
			Max(data.tail_extent.owner, data.next_extent.owner) >= spare->next_owner &&
			Max(data.tail_extent.owner, data.next_extent.owner) >=
			strata_spare_read(verify->storage)->next_owner)
			strata_verify_fault(verify, "spare page",
								"next owner id is " UINT64_FORMAT ", although the log of shard %d has later ones",
								spare->next_owner, shard);
	}
	if (spare->nruns > STRATA_SPARE_MAX_RUNS)
	{
		strata_verify_fault(verify, "spare page", "holds %u runs, more than fit", spare->nruns);
		return;
	}
	for (uint32 i = 0; i < spare->nruns; i++)
	{
		StrataSpareRun *run = &spare->runs[i];

		if (run->nblocks == 0 || run->block < end)
			strata_verify_fault(verify, "spare page",
								"run %u (block %u, %u blocks) is empty, out of order or overlaps",
								i, run->block, run->nblocks);
		end = (uint64) run->block + run->nblocks;

		/*
		 * The relation only grows while writers may extend it, and its size
		 * was read before the spare page.
		 */
		if (end > nblocks && end > RelationGetNumberOfBlocks(verify->storage))
			strata_verify_fault(verify, "spare page",
								"run %u (block %u, %u blocks) lies outside the relation's %u blocks",
								i, run->block, run->nblocks, nblocks);
	}
}

static void
verify_shard_totals(StrataVerify *verify, void *arg)
{
	VerifyShard *state = (VerifyShard *) arg;
	StrataShardState *shard = &verify->manifest->shards[state->shard];
	const char *problem = strata_log_check_totals(verify->storage, state->shard, shard);
	char		object[32];

	snprintf(object, sizeof(object), "shard %d", state->shard);
	if (problem != NULL)
		strata_verify_fault(verify, object, "%s", problem);
}

static void
verify_shard_page(StrataVerify *verify, void *arg)
{
	VerifyShard *state = (VerifyShard *) arg;
	StrataShardState *shard = &verify->manifest->shards[state->shard];
	char		object[32];
	const char *problem;

	snprintf(object, sizeof(object), "shard %d", state->shard);
	problem = strata_log_check_shard(verify->storage, state->shard, shard);
	if (problem != NULL)
		strata_verify_fault(verify, object, "%s", problem);
}

/* ---- log ---- */

/* Every row of a ROWS entry: decodes, key hash and shard are right. */
static void
verify_rows_entry(StrataVerify *verify, int shard, const char *object,
				  const StrataLogEntry *entry)
{
	const char *problem = strata_entry_check_rows(verify->store, shard, entry->header);

	if (problem != NULL)
		strata_verify_fault(verify, object, "entry at page %u, offset %u: %s",
							entry->page.block, entry->position.offset, problem);
}

static void
verify_log(StrataVerify *verify, void *arg)
{
	VerifyShard *state = (VerifyShard *) arg;
	int			shard = state->shard;
	StrataShardState *merged = &verify->manifest->shards[shard];
	List	   *generations;
	ListCell   *lc;
	MemoryContext entry_mcxt;
	MemoryContext old_mcxt;

	entry_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata verify entry",
									   ALLOCSET_DEFAULT_SIZES);
	generations = strata_log_generations(verify->storage, shard, merged, 0);
	foreach (lc, generations)
	{
		StrataGeneration *generation = (StrataGeneration *) lfirst(lc);
		StrataLogPoint point;
		StrataLogWalk *walk;
		StrataLogEntry entry;
		char		object[64];
		uint64		rows = 0;

		snprintf(object, sizeof(object), "generation %u of shard %d",
				 generation->number, shard);
		strata_generation_point(generation, &point);
		walk = strata_log_walk_begin(verify->store, verify->storage, shard, &point,
									 generation->number);
		while (strata_log_walk_next(walk, &entry))
		{
			bool		counts;

			CHECK_FOR_INTERRUPTS();
			rows += (uint64) entry.header->rows + entry.header->tombstones;
			if (entry.header->type == STRATA_ENTRY_ROW_GROUP)
				rows += strata_entry_group(entry.header)->lost;

			/* An ALTER TABLE rolled back with it may have shaped its rows. */
			counts = strata_xid_outcome(entry.header->fxid,
										entry.header->flags) != STRATA_XID_ABORTED;
			if (!counts && entry.header->type == STRATA_ENTRY_ROWS)
				continue;
			if (entry.header->natts > verify->store->desc->natts)
				strata_verify_fault(verify, object,
									"entry at page %u, offset %u has %u attributes, the table has %d",
									entry.page.block, entry.position.offset,
									entry.header->natts, verify->store->desc->natts);

			switch (entry.header->type)
			{
				case STRATA_ENTRY_ROWS:
					old_mcxt = MemoryContextSwitchTo(entry_mcxt);
					verify_rows_entry(verify, shard, object, &entry);
					MemoryContextSwitchTo(old_mcxt);
					MemoryContextReset(entry_mcxt);
					break;
				case STRATA_ENTRY_ROW_GROUP:
					{
						VerifyGroup *group;

						old_mcxt = MemoryContextSwitchTo(state->mcxt);
						group = palloc0(sizeof(VerifyGroup));
						group->ref = *strata_entry_group(entry.header);
						group->generation = generation->number;
						group->shard = shard;
						group->counts = counts;
						state->groups = lappend(state->groups, group);
						MemoryContextSwitchTo(old_mcxt);
					}
					break;
				default:
					break;
			}
		}
		strata_log_walk_end(walk);

		if (generation->sealed && rows != generation->rows)
			strata_verify_fault(verify, object,
								"holds " UINT64_FORMAT " rows, its summary says " UINT64_FORMAT,
								rows, generation->rows);
	}
}

/* ---- row groups ---- */

static void
verify_pending_group(StrataVerify *verify, void *arg)
{
	VerifyGroup *group = (VerifyGroup *) arg;
	char	   *problem = strata_group_check(verify->store, verify->storage, &group->ref, NULL,
										 group->counts);
	char		object[96];

	if (problem == NULL)
		return;
	snprintf(object, sizeof(object), "row group at block %u, generation %u of shard %d",
			 group->ref.extent.block, group->generation, group->shard);
	strata_verify_fault(verify, object, "%s", problem);
}

static void
verify_base_group(StrataVerify *verify, void *arg)
{
	StrataRowGroup *group = (StrataRowGroup *) arg;
	char	   *problem;
	char		object[32];

	snprintf(object, sizeof(object), "row group %u", group->number);
	if (group->deleted != NULL)
	{
		uint64		ndeleted = pg_popcount((const char *) group->deleted,
										   (group->ref.rows + 7) / 8);

		if (ndeleted != group->ndeleted || group->ndeleted > group->ref.rows)
			strata_verify_fault(verify, object,
								"%u rows are deleted, its bitmap says " UINT64_FORMAT " of %u",
								group->ndeleted, ndeleted, group->ref.rows);
	}
	problem = strata_group_check(verify->store, verify->storage, &group->ref, group, true);
	if (problem != NULL)
		strata_verify_fault(verify, object, "%s", problem);
}

/* ---- dictionaries ---- */

static void
verify_dictionary(StrataVerify *verify, void *arg)
{
	const StrataDictionaryRef *ref = (const StrataDictionaryRef *) arg;
	StrataSpareData *spare = strata_spare_read(verify->storage);
	StrataDictionaryHeader header;

	(void) strata_dictionary_read(verify->storage, ref, &header);
	if (spare == NULL || ref->extent.owner >= spare->next_owner)
		strata_verify_fault(verify, "spare page",
							"next owner id is not above that of dictionary " UINT64_FORMAT,
							ref->extent.owner);
}

static void
verify_dictionaries(StrataVerify *verify, void *arg)
{
	int			n;
	StrataDictionaryRef *refs = strata_manifest_dictionaries(verify->store->ftrelid,
															 verify->manifest->incarnation, &n);

	for (int i = 0; i < n; i++)
	{
		char		object[48];

		snprintf(object, sizeof(object), "dictionary " UINT64_FORMAT, refs[i].extent.owner);
		strata_verify_guard(verify, object, verify_dictionary, &refs[i]);
	}
}

/* ---- blocks ---- */

typedef struct VerifyBlocks
{
	List	   *faults;			/* of char *, of this round */
	MemoryContext mcxt;
	uint64		unreferenced;
	BlockNumber first_unreferenced;
	bool		room;			/* on the spare page */
} VerifyBlocks;

/* StrataBlockFaultCallback */
static void
verify_block_fault(const StrataBlockFault *fault, void *arg)
{
	VerifyBlocks *blocks = (VerifyBlocks *) arg;
	MemoryContext old_mcxt = MemoryContextSwitchTo(blocks->mcxt);

	blocks->faults = lappend(blocks->faults, psprintf("block %u: %s", fault->block, fault->what));
	MemoryContextSwitchTo(old_mcxt);
}

static void
verify_count_blocks(StrataVerify *verify, void *arg)
{
	VerifyBlocks *blocks = (VerifyBlocks *) arg;
	StrataSpareData *spare;
	BlockNumber nblocks;
	uint8	   *referenced;

	referenced = strata_referenced_blocks(verify->store, verify->storage,
										  strata_meta_horizon(verify->storage),
										  true, &nblocks, verify_block_fault, blocks);
	blocks->unreferenced = 0;
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		if ((referenced[block / 8] & (1 << (block % 8))) != 0)
			continue;
		if (blocks->unreferenced++ == 0)
			blocks->first_unreferenced = block;
	}
	pfree(referenced);

	spare = strata_spare_read(verify->storage);
	blocks->room = spare == NULL || spare->nruns < STRATA_SPARE_MAX_RUNS;
}

static List *
verify_common_faults(List *a, List *b)
{
	List	   *common = NIL;
	ListCell   *la;

	foreach (la, a)
	{
		ListCell   *lb;

		foreach (lb, b)
		{
			if (strcmp((char *) lfirst(la), (char *) lfirst(lb)) == 0)
			{
				common = lappend(common, lfirst(la));
				break;
			}
		}
	}
	return common;
}

static void
verify_blocks(StrataVerify *verify)
{
	VerifyBlocks blocks = {0};
	List	   *faults = NIL;
	ListCell   *lc;
	uint64		unreferenced = 0;

	blocks.mcxt = CurrentMemoryContext;
	for (int round = 0; round < STRATA_BLOCK_ROUNDS; round++)
	{
		uint64		before = verify->nfaults;

		blocks.faults = NIL;
		strata_verify_guard(verify, "blocks", verify_count_blocks, &blocks);
		if (verify->nfaults > before)
			return;				/* it could not be computed */
		faults = round == 0 ? blocks.faults : verify_common_faults(faults, blocks.faults);
		unreferenced = round == 0 ? blocks.unreferenced :
			Min(unreferenced, blocks.unreferenced);
		if (faults == NIL && (!verify->swept || unreferenced == 0))
			break;
		pg_usleep(10000L);
		CHECK_FOR_INTERRUPTS();
	}

	foreach (lc, faults)
		strata_verify_fault(verify, "blocks", "%s", (char *) lfirst(lc));
	if (verify->swept && unreferenced > 0 && blocks.room)
		strata_verify_fault(verify, "blocks",
							UINT64_FORMAT " blocks are referred to by nothing, although the store was swept (the first is %u)",
							unreferenced, blocks.first_unreferenced);
}

/* ---- driver ---- */

static void
verify_store(StrataVerify *verify)
{
	List	   *groups = NIL;
	ListCell   *lc;

	strata_verify_guard(verify, "metapage", verify_metapage, NULL);
	strata_verify_guard(verify, "spare page", verify_spare_page, NULL);

	for (int shard = 0; shard < verify->store->nshards; shard++)
	{
		VerifyShard state = {.shard = shard, .mcxt = CurrentMemoryContext};
		char		object[32];
		uint64		nfaults;

		snprintf(object, sizeof(object), "shard %d", shard);
		nfaults = verify->nfaults;
		strata_verify_guard(verify, object, verify_shard_page, &state);
		snprintf(object, sizeof(object), "log of shard %d", shard);
		strata_verify_guard(verify, object, verify_log, &state);

		/* They are sums over the log: only where that is sound do they tell more. */
		snprintf(object, sizeof(object), "shard %d", shard);
		if (verify->nfaults == nfaults)
			strata_verify_guard(verify, object, verify_shard_totals, &state);
		groups = list_concat(groups, state.groups);
	}

	foreach (lc, groups)
	{
		VerifyGroup *group = (VerifyGroup *) lfirst(lc);
		char		object[96];

		snprintf(object, sizeof(object), "row group at block %u, generation %u of shard %d",
				 group->ref.extent.block, group->generation, group->shard);
		strata_verify_guard(verify, object, verify_pending_group, group);
	}

	strata_verify_guard(verify, "dictionaries", verify_dictionaries, NULL);

	for (int i = 0; i < verify->manifest->ngroups; i++)
	{
		StrataRowGroup *group = &verify->manifest->groups[i];
		char		object[32];

		snprintf(object, sizeof(object), "row group %u", group->number);
		strata_verify_guard(verify, object, verify_base_group, group);
	}

	if (verify->store->key.natts > 0)
		strata_verify_guard(verify, "keys of the base", strata_verify_keys, NULL);

	verify_blocks(verify);
}

/* StrataAction */
static void
verify_read_manifest(void *arg)
{
	StrataVerify *verify = (StrataVerify *) arg;

	verify->manifest = strata_manifest_get_uncached(verify->store, verify->storage,
													GetActiveSnapshot());
}

/*
 * strata.verify(regclass, swept boolean): (object, problem) per fault.
 */
Datum
strata_verify(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	StrataVerify verify = {0};
	StrataCaller caller;
	char	   *problem;
	MemoryContext mcxt;
	MemoryContext old_mcxt;

	InitMaterializedSRF(fcinfo, 0);
	verify.result = rsinfo->setResult;
	verify.desc = rsinfo->setDesc;
	verify.swept = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);

	strata_check_table_argument(relid, true, AccessShareLock);
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata verify",
								 ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(mcxt);

	verify.store = strata_store_open(relid);
	(void) strata_lock(verify.store->storage, STRATA_LOCK_PASS, 0, ExclusiveLock, false);
	verify.storage = strata_storage_open(verify.store, RecoveryInProgress() ?
														   AccessShareLock :
														   ShareUpdateExclusiveLock);
	PushActiveSnapshot(GetLatestSnapshot());

	/* Everything else is looked for by metapage and manifest. */
	problem = strata_attempt(verify_read_manifest, &verify);
	if (problem != NULL)
		strata_verify_fault(&verify, "store", "%s", problem);
	else
	{
		strata_become_owner(&caller, relid);
		verify_store(&verify);
		strata_become_caller(&caller);
		strata_manifest_release(verify.manifest);
	}
	PopActiveSnapshot();
	table_close(verify.storage, NoLock);
	strata_store_close(verify.store);
	MemoryContextSwitchTo(old_mcxt);
	MemoryContextDelete(mcxt);
	return (Datum) 0;
}
