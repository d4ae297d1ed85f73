/*-------------------------------------------------------------------------
 *
 * blocks.c
 *	  Accounting: which block of a store is referred to by what.
 *
 * Translates the size of the file, the spare page, the shard pages, the
 * pending log and the manifest into a list of references (block, count,
 * owner), checks that no two of them claim a block for different owners, and
 * makes a bitmap of it.  Sweep gives back what has no bit, verify reports
 * faults.
 *
 * The order of the looks is what makes the result safe while others append
 * and load:
 *
 *	1. size and spare page, under the extent lock: the file has no blocks that
 *	   an extension has made but not listed yet
 *	2. shard pages: a tail extent taken before 1 is either still named there,
 *	   or used up, and then its pages are linked into the log by now
 *	3. the log, to its end: its pages, and what EXTENT and ROW_GROUP entries
 *	   name.  A loader's extent left the spare page by the record that appended
 *	   its entry, so one missing at 1 is found here
 *
 *	4. the next owner id once more
 *
 * What leaves the spare page after 1 counts as spare, hence is referred to;
 * its owner id is at least the next owner id read then, and less than that of
 * 4, which tells such a reference from a block that really is in two places.
 * One beyond that of 4 was given out by a spare page that is not the one there
 * is now.  The manifest holds still: the caller keeps passes out.
 *
 * Log and manifest are read for every version of the store's manifest rows
 * that is not dead to everybody at the horizon, so what any snapshot, slot,
 * prepared transaction or (with feedback) standby can still want is referred
 * to.
 *
 * Locks: the extent lock for 1 alone; one page lock at a time.
 *
 * IDENTIFICATION
 *	  src/merge/blocks.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"
#include "storage/salvage.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef enum BlockUse
{
	USE_FIXED,
	USE_SPARE,
	USE_TAIL,					/* detail: shard */
	USE_LOG,					/* detail: shard */
	USE_EXTENT,					/* detail: shard */
	USE_PENDING_GROUP,			/* detail: shard */
	USE_BASE					/* detail: row group number; 0: a dictionary */
} BlockUse;

typedef struct BlockReference
{
	uint64		owner;			/* 0: USE_FIXED, USE_SPARE */
	BlockNumber block;
	uint32		nblocks;
	uint32		detail;
	BlockUse	use;
} BlockReference;

typedef struct Accounting
{
	Relation	storage;
	BlockNumber nblocks;
	uint64		next_owner;		/* owners from here on came after our look, */
	uint64		end_owner;		/* and from here on never */
	BlockReference *references;
	Size		nreferences;
	Size		max_references;
	int			shard;			/* being walked */
	StrataPageRef tails[STRATA_MAX_SHARDS]; /* before the walk; owner 0: none */
	bool		tail_seen;

	/* oldest version of each shard's manifest row */
	StrataShardState oldest[STRATA_MAX_SHARDS];
	bool		found[STRATA_MAX_SHARDS];
	uint32		nshards;

	StrataBlockFaultCallback report;
	void	   *report_arg;
} Accounting;

static void
add_reference(Accounting *accounting, BlockUse use, uint32 detail, uint64 owner,
			  BlockNumber block, uint32 nblocks)
{
	BlockReference *reference;

	if (accounting->nreferences > 0)
	{
		/* The pages of a log extent come one by one. */
		reference = &accounting->references[accounting->nreferences - 1];
		if (reference->use == use && reference->owner == owner &&
			reference->detail == detail &&
			reference->block + reference->nblocks == block && use == USE_LOG)
		{
			reference->nblocks += nblocks;
			return;
		}
	}

	if (accounting->nreferences == accounting->max_references)
	{
		accounting->max_references *= 2;
		accounting->references = repalloc_huge(accounting->references,
											   accounting->max_references * sizeof(BlockReference));
	}
	reference = &accounting->references[accounting->nreferences++];
	reference->owner = owner;
	reference->block = block;
	reference->nblocks = nblocks;
	reference->detail = detail;
	reference->use = use;
}

static void
add_extent(Accounting *accounting, BlockUse use, uint32 detail, const StrataExtent *extent)
{
	if (extent->owner != 0)
		add_reference(accounting, use, detail, extent->owner, extent->block, extent->nblocks);
}

/* StrataGroupVersionCallback */
static void
add_group(uint32 number, const StrataGroupRef *ref, void *arg)
{
	CHECK_FOR_INTERRUPTS();
	add_extent((Accounting *) arg, USE_BASE, number, &ref->extent);
}

/* StrataShardVersionCallback */
static void
note_shard(int shard, const StrataShardState *state, void *arg)
{
	Accounting *accounting = (Accounting *) arg;

	if (shard < 0 || (uint32) shard >= accounting->nshards)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest of relation \"%s\" names shard %d of %u",
						RelationGetRelationName(accounting->storage), shard,
						accounting->nshards)));
	if (!accounting->found[shard] ||
		state->merged_through < accounting->oldest[shard].merged_through)
		accounting->oldest[shard] = *state;
	accounting->found[shard] = true;
}

/* StrataLogPageCallback */
static void
add_log_page(const StrataPageRef *page, const StrataLogPage *header, void *arg)
{
	Accounting *accounting = (Accounting *) arg;
	const StrataPageRef *tail = &accounting->tails[accounting->shard];

	add_reference(accounting, USE_LOG, accounting->shard, page->owner, page->block, 1);
	if (page->owner == tail->owner && page->block == tail->block)
		accounting->tail_seen = true;
}

/* The blocks that a shard page keeps for its log: from the tail page on. */
static void
add_shard_page(Accounting *accounting, int shard)
{
	StrataShardData data;
	BlockNumber first;

	if (!strata_shard_read(accounting->storage, shard, &data))
		strata_page_mismatch(accounting->storage, STRATA_SHARD_BLOCK(shard), "a shard page");

	accounting->tails[shard] = data.tail;
	first = data.tail.owner != 0 ? data.tail.block : data.tail_extent.block;
	if (data.tail_extent.owner == 0 || first < data.tail_extent.block ||
		first - data.tail_extent.block >= data.tail_extent.nblocks)
		strata_page_mismatch(accounting->storage, STRATA_SHARD_BLOCK(shard), "a shard page");
	add_reference(accounting, USE_TAIL, shard, data.tail_extent.owner, first,
				  data.tail_extent.nblocks - (first - data.tail_extent.block));
	add_extent(accounting, USE_TAIL, shard, &data.next_extent);
}

/*
 * The pages of a shard's log that are pending for some version of its manifest
 * row, and what their entries name.
 */
static void
add_log(Accounting *accounting, StrataStore *store, int shard)
{
	StrataLogPoint point;
	StrataLogWalk *walk;
	StrataLogEntry entry;

	if (!strata_log_start(accounting->storage, shard,
						  accounting->found[shard] ? &accounting->oldest[shard] : NULL,
						  &point))
		return;

	accounting->shard = shard;
	accounting->tail_seen = accounting->tails[shard].owner == 0;
	walk = strata_log_walk_begin(store, accounting->storage, shard, &point, 0);
	strata_log_walk_on_page(walk, add_log_page, accounting);
	while (strata_log_walk_next(walk, &entry))
	{
		if (entry.header->type == STRATA_ENTRY_EXTENT)
			add_extent(accounting, USE_EXTENT, shard, strata_entry_extent(entry.header));
		else if (entry.header->type == STRATA_ENTRY_ROW_GROUP)
			add_extent(accounting, USE_PENDING_GROUP, shard,
					   &strata_entry_group(entry.header)->extent);
	}
	strata_log_walk_end(walk);

	/* What lies behind a lost link would look as if nobody wanted it. */
	if (!accounting->tail_seen)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("log of shard %d of relation \"%s\" ends before its tail page %u",
						shard, RelationGetRelationName(accounting->storage),
						accounting->tails[shard].block)));
}

static const char *
describe_use(const BlockReference *reference)
{
	switch (reference->use)
	{
		case USE_FIXED:
			return "the fixed pages";
		case USE_SPARE:
			return "the list of free extents";
		case USE_TAIL:
			return psprintf("the page of shard %u", reference->detail);
		case USE_LOG:
			return psprintf("the log of shard %u", reference->detail);
		case USE_EXTENT:
			return psprintf("an extent entry of shard %u", reference->detail);
		case USE_PENDING_GROUP:
			return psprintf("a pending row group of shard %u", reference->detail);
		case USE_BASE:
			if (reference->detail == 0)
				return "a dictionary";
			return psprintf("row group %u", reference->detail);
	}
	return "";
}

/* b may be NULL */
static void
report_fault(Accounting *accounting, BlockNumber block, const char *what,
			 const BlockReference *a, const BlockReference *b)
{
	const BlockReference *tail = a->use == USE_TAIL ? a : b;

	if (accounting->report != NULL)
	{
		StrataBlockFault fault = {.block = block, .what = what, .shard = -1};

		fault.spare = a->use == USE_SPARE || (b != NULL && b->use == USE_SPARE);
		if (!fault.spare && tail != NULL && tail->use == USE_TAIL)
			fault.shard = (int) tail->detail;
		accounting->report(&fault, accounting->report_arg);
	}
	else
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block %u of relation \"%s\" %s", block,
						RelationGetRelationName(accounting->storage), what),
				 errhint("strata.verify lists what is wrong with the store.")));
}

static int
compare_references(const void *a, const void *b)
{
	const BlockReference *x = a;
	const BlockReference *y = b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return (int) x->use - (int) y->use;
}

/* May both refer to the same block? */
static bool
references_agree(const Accounting *accounting, const BlockReference *a, const BlockReference *b)
{
	if (a->use == USE_SPARE || b->use == USE_SPARE)
	{
		const BlockReference *other = a->use == USE_SPARE ? b : a;

		/* Taken after we looked at the spare page. */
		return other->use != USE_SPARE && other->owner >= accounting->next_owner;
	}

	/*
	 * One extent may be named by a shard page and hold pages of the log; by an
	 * EXTENT entry, a ROW_GROUP entry and the manifest.  Two row groups never
	 * share one.
	 */
	if (a->use == USE_FIXED || b->use == USE_FIXED)
		return false;
	if (a->use == USE_BASE && b->use == USE_BASE && a->detail != b->detail)
		return false;
	return a->owner == b->owner;
}

/*
 * Check the references against each other and the file, in block order.
 */
static void
check_references(Accounting *accounting)
{
	const BlockReference *last_spare = NULL;	/* those that reach farthest */
	const BlockReference *last_used = NULL;
	const BlockReference spare = {.use = USE_SPARE};

	for (Size i = 0; i < accounting->nreferences; i++)
	{
		const BlockReference *reference = &accounting->references[i];
		const BlockReference *others[2] = {last_spare, last_used};
		const BlockReference **last = reference->use == USE_SPARE ? &last_spare : &last_used;

		CHECK_FOR_INTERRUPTS();

		if ((uint64) reference->block + reference->nblocks > accounting->nblocks &&
			(reference->owner == 0 || reference->owner < accounting->next_owner))
			report_fault(accounting, Max(reference->block, accounting->nblocks),
						 psprintf("is outside the file, but %s has it", describe_use(reference)),
						 reference, NULL);
		if (reference->owner >= accounting->end_owner)
			report_fault(accounting, reference->block,
						 psprintf("belongs to %s under owner id " UINT64_FORMAT
								  ", which the list of free extents has yet to give out",
								  describe_use(reference), reference->owner),
						 reference, &spare);

		for (int j = 0; j < 2; j++)
		{
			if (others[j] != NULL && others[j]->block + others[j]->nblocks > reference->block &&
				!references_agree(accounting, others[j], reference))
				report_fault(accounting, reference->block,
						 psprintf("belongs to %s and to %s", describe_use(others[j]),
								  describe_use(reference)),
						 others[j], reference);
		}

		if (*last == NULL ||
			(*last)->block + (*last)->nblocks < reference->block + reference->nblocks)
			*last = reference;
	}
}

static void
set_bits(uint8 *bits, BlockNumber end, BlockNumber block, uint32 nblocks)
{
	uint64		limit = Min((uint64) block + nblocks, end);

	for (uint64 i = block; i < limit;)
	{
		if (i % 8 == 0 && limit - i >= 8)
		{
			bits[i / 8] = 0xFF;
			i += 8;
		}
		else
		{
			bits[i / 8] |= 1 << (i % 8);
			i++;
		}
	}
}

/* ---- collecting ---- */

typedef struct AddShard
{
	Accounting *accounting;
	StrataStore *store;
	int			shard;
} AddShard;

/* StrataAction */
static void
add_shard_page_action(void *arg)
{
	AddShard   *add = (AddShard *) arg;

	add_shard_page(add->accounting, add->shard);
}

/* StrataAction */
static void
add_log_action(void *arg)
{
	AddShard   *add = (AddShard *) arg;

	add_log(add->accounting, add->store, add->shard);
}

/*
 * Do it for each shard.  tolerant: what cannot be read is left out.
 */
static void
add_shards(Accounting *accounting, StrataStore *store, StrataAction action, bool tolerant)
{
	for (uint32 shard = 0; shard < accounting->nshards; shard++)
	{
		AddShard	add = {.accounting = accounting, .store = store, .shard = (int) shard};

		if (tolerant)
			(void) strata_attempt(action, &add);
		else
			action(&add);
	}
}

/*
 * Collect all references, in block order, and check them.  False: the store is
 * not made yet.
 */
static bool
account(Accounting *accounting, StrataStore *store, Relation storage, TransactionId horizon,
		bool tolerant, StrataBlockFaultCallback report, void *arg)
{
	StrataMetaData meta;
	StrataSpareData *spare;

	memset(accounting, 0, sizeof(*accounting));
	accounting->storage = storage;
	accounting->report = report;
	accounting->report_arg = arg;

	(void) strata_lock(RelationGetRelid(storage), STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
	accounting->nblocks = RelationGetNumberOfBlocks(storage);
	spare = strata_spare_read(storage);
	strata_unlock(RelationGetRelid(storage), STRATA_LOCK_EXTENT, 0, ExclusiveLock);
	STRATA_PAUSE("blocks-spare-read");

	if (spare == NULL)
		return false;
	if (!strata_meta_read(storage, &meta))
		strata_page_mismatch(storage, STRATA_META_BLOCK, "the metapage");
	accounting->nshards = meta.nshards;
	accounting->next_owner = spare->next_owner;
	accounting->max_references = 1024;
	accounting->references = palloc(accounting->max_references * sizeof(BlockReference));

	add_reference(accounting, USE_FIXED, 0, 0, 0, STRATA_FIRST_EXTENT_BLOCK(meta.nshards));
	for (uint32 i = 0; i < spare->nruns; i++)
		add_reference(accounting, USE_SPARE, 0, 0, spare->runs[i].block,
					  spare->runs[i].nblocks);
	pfree(spare);
	add_shards(accounting, store, add_shard_page_action, tolerant);
	STRATA_PAUSE("blocks-shards-read");
	(void) strata_manifest_all_versions(store->ftrelid, meta.incarnation, horizon, add_group,
										note_shard, accounting);
	add_shards(accounting, store, add_log_action, tolerant);
	STRATA_PAUSE("blocks-log-read");
	spare = strata_spare_read(storage);
	if (spare == NULL)
		strata_page_mismatch(storage, STRATA_META_BLOCK, "the metapage");
	accounting->end_owner = spare->next_owner;
	pfree(spare);

	qsort(accounting->references, accounting->nreferences, sizeof(BlockReference),
		  compare_references);
	check_references(accounting);
	return true;
}

uint8 *
strata_referenced_blocks(StrataStore *store, Relation storage, TransactionId horizon,
						 bool include_spare, BlockNumber *nblocks,
						 StrataBlockFaultCallback report, void *arg)
{
	Accounting	accounting;
	bool		made = account(&accounting, store, storage, horizon, false, report, arg);
	Size		nbytes = (Size) accounting.nblocks / 8 + 1;
	uint8	   *bits = MemoryContextAllocExtended(CurrentMemoryContext, nbytes,
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	*nblocks = accounting.nblocks;
	if (!made)
	{
		/* Blocks of a store that is not made yet are the first write's. */
		memset(bits, 0xFF, nbytes);
		return bits;
	}
	for (Size i = 0; i < accounting.nreferences; i++)
	{
		BlockReference *reference = &accounting.references[i];

		if (reference->use != USE_SPARE || include_spare)
			set_bits(bits, accounting.nblocks, reference->block, reference->nblocks);
	}
	pfree(accounting.references);
	return bits;
}

void
strata_check_blocks(StrataStore *store, Relation storage, TransactionId horizon,
					StrataBlockFaultCallback report, void *arg)
{
	Accounting	accounting;

	if (account(&accounting, store, storage, horizon, true, report, arg))
		pfree(accounting.references);
}
