/*-------------------------------------------------------------------------
 *
 * sweep.c
 *	  Giving back what nothing needs any more: blocks, key index entries, the
 *	  end of the file.
 *
 * Order, and why:
 *
 *	horizon		the oldest xid that some snapshot may still hold for running;
 *				fixed once, everything is judged by it
 *	accounting	blocks.c: what has no reference is nobody's
 *	conflict	one record that cancels standby readers older than the horizon
 *				comes before the first change that takes something from them,
 *				and only when there is one
 *	give		unreferenced runs go on the spare page, in one record; before
 *				that the metapage notes the horizon, lest somebody later take
 *				for referenced what went by it: the horizon can go back
 *	index		TIDs of rows that no snapshot sees leave the key index
 *	truncate	a long free tail is cut off, when the lock for it can be had
 *				at once
 *
 * A reader on this server who looked up a block before it is freed keeps it
 * from being freed: it did so under a snapshot, and what that snapshot sees is
 * a manifest version that is not dead at the horizon.
 *
 * Locks: pass lock and ShareUpdateExclusiveLock on the storage relation, as a
 * pass, to the end of the transaction: the manifest and merged_through hold
 * still.  The extent lock only while the size is read, runs are given back
 * and the file is cut.
 *
 * Crash windows: each step is one record (or the B-tree's own); what was not
 * done is found again by the next sweep.  Nothing here is undone by a
 * rollback, nor need it be.
 *
 * IDENTIFICATION
 *	  src/merge/sweep.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "pause.h"
#include "storage/conflict.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"

#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * A free tail is worth a lock that keeps everybody out when it is long in
 * itself, or long for the file.
 */
#define TRUNCATE_MIN_BLOCKS		128
#define TRUNCATE_LONG_BLOCKS	1024
#define TRUNCATE_FRACTION		16

typedef struct Sweep
{
	StrataStore *store;
	Relation	storage;
	TransactionId horizon;
	bool		conflict_logged;
	StrataSweepResult *result;
} Sweep;

/* Before the first change that takes something from an old reader. */
static void
log_conflict_once(Sweep *sweep)
{
	if (sweep->conflict_logged)
		return;
	STRATA_PAUSE("sweep-before-conflict");
	strata_log_conflict(sweep->storage, sweep->horizon);
	sweep->conflict_logged = true;
	STRATA_PAUSE("sweep-after-conflict");
}

/* The runs of blocks without a bit; sets *nruns and *total. */
static StrataSpareRun *
unreferenced_runs(const uint8 *bits, BlockNumber nblocks, int *nruns, uint64 *total)
{
	Size		max = 64;
	StrataSpareRun *runs = palloc(max * sizeof(StrataSpareRun));

	*nruns = 0;
	*total = 0;
	for (BlockNumber block = 0; block < nblocks;)
	{
		BlockNumber first;

		if (block % 8 == 0 && bits[block / 8] == 0xFF)
		{
			block += 8;
			continue;
		}
		if ((bits[block / 8] & (1 << (block % 8))) != 0)
		{
			block++;
			continue;
		}
		first = block;
		while (block < nblocks && (bits[block / 8] & (1 << (block % 8))) == 0)
			block++;

		if ((Size) *nruns == max)
		{
			CHECK_FOR_INTERRUPTS();
			max *= 2;
			runs = repalloc_huge(runs, max * sizeof(StrataSpareRun));
		}
		runs[*nruns].block = first;
		runs[*nruns].nblocks = block - first;
		(*nruns)++;
		*total += block - first;
	}
	return runs;
}

static void
sweep_blocks(Sweep *sweep)
{
	Oid			relid = RelationGetRelid(sweep->storage);
	BlockNumber nblocks;
	uint8	   *bits;
	StrataSpareRun *runs;
	int			nruns;
	uint64		total;
	uint64		left = 0;

	bits = strata_referenced_blocks(sweep->store, sweep->storage, sweep->horizon, true,
									&nblocks, NULL, NULL);
	runs = unreferenced_runs(bits, nblocks, &nruns, &total);
	pfree(bits);
	sweep->result->blocks_total = nblocks;

	if (nruns > 0)
	{
		log_conflict_once(sweep);
		strata_meta_note_sweep(sweep->storage, sweep->horizon);
		(void) strata_lock(relid, STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
		left = strata_spare_give(sweep->storage, runs, nruns);
		strata_unlock(relid, STRATA_LOCK_EXTENT, 0, ExclusiveLock);
		STRATA_PAUSE("sweep-after-give");
	}
	pfree(runs);
	sweep->result->blocks_left = left;

	/* Older free runs may have made way for longer ones. */
	sweep->result->blocks_freed = total > left ? total - left : 0;
}

/* ---- the key index ---- */

/* A row group that some snapshot may want, and its rows that none does. */
typedef struct LiveGroup
{
	uint32		number;
	uint32		rows;
	uint8	   *deleted;		/* bitmap by row, NULL: none */
} LiveGroup;

typedef struct LiveGroups
{
	Sweep	   *sweep;
	LiveGroup  *groups;			/* by number once sorted */
	Size		ngroups;
	Size		max_groups;
	LiveGroup  *last;			/* found last */
} LiveGroups;

/* StrataGroupVersionCallback */
static void
add_live_group(uint32 number, const StrataGroupRef *ref, void *arg)
{
	LiveGroups *live = (LiveGroups *) arg;
	LiveGroup  *group;

	if (number == 0)
		return;					/* a dictionary */
	if (live->ngroups == live->max_groups)
	{
		live->max_groups *= 2;
		live->groups = repalloc_huge(live->groups, live->max_groups * sizeof(LiveGroup));
	}
	group = &live->groups[live->ngroups++];
	group->number = number;
	group->rows = ref->rows;
	group->deleted = NULL;
}

static int
compare_groups(const void *a, const void *b)
{
	const LiveGroup *x = a;
	const LiveGroup *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static LiveGroup *
find_live_group(LiveGroups *live, uint32 number)
{
	LiveGroup	wanted = {.number = number};

	if (live->last == NULL || live->last->number != number)
		live->last = bsearch(&wanted, live->groups, live->ngroups, sizeof(LiveGroup),
							 compare_groups);
	return live->last;
}

/* StrataDeletedRowCallback */
static void
note_deleted_row(uint32 number, uint32 row, void *arg)
{
	LiveGroup  *group = find_live_group((LiveGroups *) arg, number);

	if (group == NULL || row >= group->rows)
		return;
	if (group->deleted == NULL)
		group->deleted = MemoryContextAllocZero(GetMemoryChunkContext(((LiveGroups *) arg)->groups),
												(group->rows + 7) / 8);
	group->deleted[row / 8] |= 1 << (row % 8);
}

/* StrataDeadTid: those said to be dead are removed after this. */
static bool
tid_is_dead(uint32 number, uint32 row, void *arg)
{
	LiveGroup  *group = find_live_group((LiveGroups *) arg, number);

	if (group != NULL && row < group->rows &&
		(group->deleted == NULL || (group->deleted[row / 8] & (1 << (row % 8))) == 0))
		return false;
	log_conflict_once(((LiveGroups *) arg)->sweep);
	return true;
}

/*
 * Remove TIDs that no snapshot can want: of row groups that are in no version
 * of the manifest (a compacted one's, a failed pass's), and of rows whose
 * deletes row every snapshot sees.
 */
static void
sweep_index(Sweep *sweep)
{
	List	   *indexes = RelationGetIndexList(sweep->storage);
	MemoryContext mcxt;
	MemoryContext old;
	StrataMetaData meta;
	LiveGroups	live = {0};

	if (indexes == NIL || !strata_meta_read(sweep->storage, &meta))
		return;
	list_free(indexes);

	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata sweep", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(mcxt);
	live.sweep = sweep;
	live.max_groups = 64;
	live.groups = palloc(live.max_groups * sizeof(LiveGroup));
	(void) strata_manifest_all_versions(sweep->store->ftrelid, meta.incarnation, sweep->horizon,
										add_live_group, NULL, &live);
	qsort(live.groups, live.ngroups, sizeof(LiveGroup), compare_groups);
	strata_manifest_deleted_for_all(sweep->store->ftrelid, meta.incarnation, sweep->horizon,
									note_deleted_row, &live);

	sweep->result->index_tids_removed =
		strata_keyindex_bulk_delete(sweep->storage, tid_is_dead, &live);
	STRATA_PAUSE("sweep-after-index");

	MemoryContextSwitchTo(old);
	MemoryContextDelete(mcxt);
}

/* ---- the end of the file ---- */

BlockNumber
strata_sweep_tail_wanted(BlockNumber nblocks)
{
	return Min(Max(nblocks / TRUNCATE_FRACTION, TRUNCATE_MIN_BLOCKS), TRUNCATE_LONG_BLOCKS);
}

/* StrataBeforeTruncation */
static void
before_truncation(void *arg)
{
	log_conflict_once((Sweep *) arg);
}

static void
sweep_truncate(Sweep *sweep)
{
	Oid			relid = RelationGetRelid(sweep->storage);
	BlockNumber wanted;

	(void) strata_lock(relid, STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
	wanted = strata_sweep_tail_wanted(RelationGetNumberOfBlocks(sweep->storage));
	sweep->result->blocks_truncated =
		strata_extent_truncate_tail(sweep->storage, wanted, before_truncation, sweep);
	strata_unlock(relid, STRATA_LOCK_EXTENT, 0, ExclusiveLock);
}

bool
strata_sweep(Oid ftrelid, bool index, bool nowait, StrataSweepResult *out)
{
	Sweep		sweep;
	Oid			storage;

	memset(out, 0, sizeof(*out));
	memset(&sweep, 0, sizeof(sweep));
	sweep.result = out;

	storage = strata_pass_lock(ftrelid, nowait);
	if (!OidIsValid(storage))
		return false;
	PushActiveSnapshot(GetLatestSnapshot());
	sweep.store = strata_store_open(ftrelid);
	sweep.storage = table_open(storage, NoLock);

	sweep.horizon = strata_meta_horizon(sweep.storage);
	STRATA_PAUSE("sweep-begin");
	sweep_blocks(&sweep);
	if (index)
		sweep_index(&sweep);
	sweep_truncate(&sweep);
	if (!nowait)
		strata_pass_lock_table(sweep.store, "strata.sweep()");

	table_close(sweep.storage, NoLock);
	strata_store_close(sweep.store);
	PopActiveSnapshot();
	return true;
}
