/*-------------------------------------------------------------------------
 *
 * tail.c
 *	  The end of a shard's log: its pages, and where the next ones come from.
 *
 * Translates a shard page into the locked tail page, the next new pages, and
 * the extent that the pages after those will come from.  append.c puts what is
 * done with them into records.
 *
 * Locks: a locked shard page keeps its tail where it is, so what is read from
 * it is right until it is let go.  Order: shard page, tail, new pages, spare
 * page.
 *
 * An extent is prepared in a record of its own, over shard page and spare page:
 * it leaves the one with the same record that names it on the other.
 *
 * IDENTIFICATION
 *	  src/log/tail.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/tail.h"

#include "pause.h"
#include "storage/extent.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "utils/rel.h"

#define SHARD_OBJECT	"a shard page"
#define TAIL_OBJECT		"the end of a log"

/* Tail extents grow from what a new store has up to this. */
#define TAIL_EXTENT_MIN_BLOCKS	8
#define TAIL_EXTENT_MAX_BLOCKS	32

static inline bool
is_sound_extent(const StrataExtent *extent, uint32 min_blocks)
{
	return extent->owner != 0 && extent->owner < STRATA_MAX_OWNER && extent->nblocks >= min_blocks &&
		extent->block <= STRATA_MAX_BLOCK &&
		extent->nblocks <= STRATA_MAX_BLOCK - extent->block;
}

/* What planning new pages relies on. */
bool
strata_tail_is_sound(const StrataShardData *data, int shard)
{
	const StrataExtent *extent = &data->tail_extent;

	if (data->shard != (uint32) shard || data->active_generation == 0 ||
		data->active_generation > STRATA_MAX_GENERATION ||
		!is_sound_extent(extent, 1))
		return false;
	if (data->tail.owner != 0 &&
		(data->tail.owner != extent->owner || data->tail.block < extent->block ||
		 data->tail.block - extent->block >= extent->nblocks))
		return false;
	return data->next_extent.owner == 0 ||
		is_sound_extent(&data->next_extent, STRATA_MAX_ENTRY_PAGES);
}

/* The shard page, locked exclusively: the tail stays where it is. */
Buffer
strata_tail_lock_shard(Relation storage, int shard)
{
	BlockNumber block = STRATA_SHARD_BLOCK(shard);
	Buffer		buffer = strata_page_read(storage, block, STRATA_PAGE_SHARD, 0,
										  BUFFER_LOCK_EXCLUSIVE, NULL, SHARD_OBJECT);

	if (!strata_tail_is_sound(strata_page_shard(BufferGetPage(buffer)), shard))
		strata_page_mismatch(storage, block, SHARD_OBJECT);
	return buffer;
}

/*
 * Raise an error unless page, which a locked shard page names as its tail, can
 * be one.
 */
void
strata_tail_check(Relation storage, Page page, BlockNumber block, int shard)
{
	Size		lower = ((PageHeader) page)->pd_lower;

	if (lower < STRATA_LOG_PAGE_START || lower != MAXALIGN(lower) ||
		!strata_tail_is_open(strata_page_log(page), shard))
		strata_page_mismatch(storage, block, TAIL_OBJECT);
}

/* The tail page of a locked shard page, locked exclusively. */
Buffer
strata_tail_lock(Relation storage, const StrataShardData *shard)
{
	Buffer		buffer = strata_page_read(storage, shard->tail.block, STRATA_PAGE_LOG,
										  shard->tail.owner, BUFFER_LOCK_EXCLUSIVE, NULL,
										  TAIL_OBJECT);

	strata_tail_check(storage, BufferGetPage(buffer), shard->tail.block, shard->shard);
	return buffer;
}

/*
 * Choose the next npages pages of a log.  False when its extents do not have
 * as many.
 */
bool
strata_tail_plan(const StrataShardData *shard, int npages, StrataTailPlan *plan)
{
	BlockNumber next;
	BlockNumber end;

	plan->tail_extent = shard->tail_extent;
	plan->next_extent = shard->next_extent;
	next = shard->tail.owner != 0 ? shard->tail.block + 1 : shard->tail_extent.block;
	end = plan->tail_extent.block + plan->tail_extent.nblocks;

	for (int i = 0; i < npages; i++)
	{
		if (next >= end)
		{
			if (plan->next_extent.owner == 0)
				return false;
			plan->tail_extent = plan->next_extent;
			memset(&plan->next_extent, 0, sizeof(plan->next_extent));
			next = plan->tail_extent.block;
			end = next + plan->tail_extent.nblocks;
		}
		plan->pages[i].owner = plan->tail_extent.owner;
		plan->pages[i].block = next++;
		plan->pages[i].unused = 0;
	}
	return true;
}

bool
strata_tail_plan_over(const StrataShardData *shard, StrataTailPlan *plan)
{
	StrataShardData used_up = *shard;

	used_up.tail.owner = used_up.tail_extent.owner;
	used_up.tail.block = used_up.tail_extent.block + used_up.tail_extent.nblocks - 1;
	return strata_tail_plan(&used_up, 1, plan);
}

/* Is it time to prepare the next extent? */
bool
strata_tail_runs_out(const StrataShardData *shard)
{
	BlockNumber end = shard->tail_extent.block + shard->tail_extent.nblocks;

	return shard->next_extent.owner == 0 &&
		end - shard->tail.block <= Max(shard->tail_extent.nblocks / 4, STRATA_MAX_ENTRY_PAGES);
}

/*
 * Take nblocks before block limit as the shard page's next extent.  replace:
 * even if it has one.  False when there is no room.
 */
static bool
prepare_extent(Relation storage, int shard, uint32 nblocks, BlockNumber limit, bool replace)
{
	Buffer		shard_buffer = strata_tail_lock_shard(storage, shard);
	StrataShardData *data = strata_page_shard(BufferGetPage(shard_buffer));
	Buffer		spare_buffer;
	GenericXLogState *record;
	Page		shard_page;
	Page		spare_page;
	StrataExtent extent;
	bool		taken;

	if (data->next_extent.owner != 0 && !replace)
	{
		/* Somebody else was here. */
		UnlockReleaseBuffer(shard_buffer);
		return true;
	}
	if (nblocks == 0)
		nblocks = Min(Max(data->tail_extent.nblocks * 2, TAIL_EXTENT_MIN_BLOCKS),
					  TAIL_EXTENT_MAX_BLOCKS);

	spare_buffer = strata_spare_lock(storage);
	record = GenericXLogStart(storage);
	shard_page = GenericXLogRegisterBuffer(record, shard_buffer, 0);
	spare_page = GenericXLogRegisterBuffer(record, spare_buffer, 0);
	taken = strata_spare_take(spare_page, nblocks, limit, &extent);
	if (taken)
	{
		strata_page_shard(shard_page)->next_extent = extent;
		STRATA_PAUSE("log-prepare-before-record");
		GenericXLogFinish(record);
	}
	else
		GenericXLogAbort(record);
	UnlockReleaseBuffer(spare_buffer);
	UnlockReleaseBuffer(shard_buffer);
	if (taken)
		STRATA_PAUSE("log-prepare-after-record");
	return taken;
}

/*
 * See to it that the shard page names a next extent.  No page lock may be
 * held.
 */
void
strata_tail_prepare(Relation storage, int shard)
{
	CHECK_FOR_INTERRUPTS();
	while (!prepare_extent(storage, shard, 0, InvalidBlockNumber, false))
	{
		strata_extent_reserve(storage, TAIL_EXTENT_MAX_BLOCKS);
		STRATA_PAUSE("log-prepare-reserved");
		CHECK_FOR_INTERRUPTS();
	}
}

bool
strata_tail_prepare_before(Relation storage, int shard, BlockNumber limit)
{
	return prepare_extent(storage, shard, TAIL_EXTENT_MIN_BLOCKS, limit, true);
}

/* Make a page, registered as a full image, an empty page of a log. */
StrataLogPage *
strata_tail_init_page(Page page, uint64 owner, int shard, uint32 generation, uint32 ordinal)
{
	StrataLogPage *header;

	strata_page_init(page, STRATA_PAGE_LOG, owner);
	((PageHeader) page)->pd_lower = STRATA_LOG_PAGE_START;
	header = strata_page_log(page);
	header->shard = shard;
	header->generation = generation;
	header->ordinal = ordinal;
	return header;
}
