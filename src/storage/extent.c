/*-------------------------------------------------------------------------
 *
 * extent.c
 *	  Who owns which block, and the bytes of extents.
 *
 * The spare page lists the free runs of blocks, sorted, disjoint and never
 * adjacent (coalesced), and the next owner id.  A block is given out by a
 * record that takes it off the spare page and gets back there by one that
 * puts it on; between, exactly one extent with an owner id of its own has it.
 * Blocks that no extent has and the spare page does not list (an aborted
 * load's, an extension's whose record was lost, those that did not fit) are
 * unreferenced until the next sweep.  Nobody may ever conclude from looking
 * at a page that its block is free.
 *
 * Locks: the spare page's content lock protects what it says.  The extent
 * lock (heavyweight) protects the length of the file and stands for "every
 * block of the file is accounted for as far as it ever will be": extension and
 * the record that puts the new blocks on the spare page happen under one hold
 * of it, and sweep reads length and spare page under it.  It is never taken
 * under a page lock.  Taking an extent needs the page lock only.
 *
 * Extending: real zeroes are written, so that a full disk is an error here,
 * where nothing depends on it yet.  They are not logged; the record over the
 * spare page carries the last new page as a full image, so that replay makes
 * the file as long.  This goes in steps of STRATA_EXTEND_MIN blocks, each with
 * its record, so that a full disk or a crash leaves few unreferenced blocks;
 * each step's run coalesces with the one before.
 *
 * Truncating: the free tail leaves the spare page by a record, which reaches
 * the disk before the file is cut.  A crash between leaves unreferenced
 * blocks.
 *
 * IDENTIFICATION
 *	  src/storage/extent.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#define SPARE_OBJECT	"the list of free extents"

static void spare_set_length(Page page, uint32 nruns);
static void spare_check(Relation rel, Page page);
static uint32 spare_find(const StrataSpareData *spare, uint32 nblocks, BlockNumber first,
						 BlockNumber limit);
static bool take_extent(Relation rel, uint32 nblocks, BlockNumber first, BlockNumber limit,
						StrataExtent *out);
static bool spare_take(Page page, uint32 nblocks, BlockNumber first, BlockNumber limit,
					   StrataExtent *out);
static void reserve_extent(Relation rel, uint32 nblocks, BlockNumber first);
static uint32 trailing_run(const StrataSpareData *spare, BlockNumber end);
static void spare_append_run(Page page, BlockNumber block, uint32 nblocks);
static void extend_and_list(Relation rel, uint32 nblocks);
static int	run_cmp_length(const void *a, const void *b);
static int	run_cmp_block(const void *a, const void *b);
static int	keep_longest(StrataSpareRun *runs, int nruns, int limit, uint64 *dropped);
static int	merge_runs(Relation rel, const StrataSpareRun *a, int na,
					   const StrataSpareRun *b, int nb, StrataSpareRun *out);
static void write_run(StrataExtentWriter *writer, const char *data, Size len);

/* ---- the spare page ---- */

static void
spare_set_length(Page page, uint32 nruns)
{
	strata_page_spare(page)->nruns = nruns;
	((PageHeader) page)->pd_lower = MAXALIGN(SizeOfPageHeaderData) +
		offsetof(StrataSpareData, runs) + nruns * sizeof(StrataSpareRun);
}

/*
 * Are the runs what they are said to be in extent.h?  Giving out a block that
 * belongs to somebody is the worst that can happen here, so it is asked each
 * time; it takes about a microsecond when the page is full.
 */
static void
spare_check(Relation rel, Page page)
{
	const StrataSpareData *spare = strata_page_spare(page);
	uint64		end = STRATA_FIRST_EXTENT_BLOCK(1);

	if (spare->next_owner == 0 || spare->next_owner > STRATA_MAX_OWNER ||
		spare->nruns > STRATA_SPARE_MAX_RUNS)
		strata_page_mismatch(rel, STRATA_SPARE_BLOCK, SPARE_OBJECT);
	for (uint32 i = 0; i < spare->nruns; i++)
	{
		const StrataSpareRun *run = &spare->runs[i];

		if (run->nblocks == 0 || run->block < end ||
			(uint64) run->block + run->nblocks > STRATA_MAX_BLOCK)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("invalid free extent of %u blocks at block %u of relation \"%s\"",
							run->nblocks, run->block, RelationGetRelationName(rel))));
		end = (uint64) run->block + run->nblocks;
	}
}

Buffer
strata_spare_lock(Relation rel)
{
	Buffer		buffer;

	buffer = strata_page_read(rel, STRATA_SPARE_BLOCK, STRATA_PAGE_SPARE, 0,
							  BUFFER_LOCK_EXCLUSIVE, NULL, SPARE_OBJECT);
	spare_check(rel, BufferGetPage(buffer));
	return buffer;
}

StrataSpareData *
strata_spare_read(Relation rel)
{
	StrataMetaData meta;
	StrataSpareData *copy;
	Buffer		buffer;

	if (!strata_meta_read(rel, &meta))
		return NULL;

	copy = palloc(STRATA_PAGE_CAPACITY);
	buffer = strata_page_read(rel, STRATA_SPARE_BLOCK, STRATA_PAGE_SPARE, 0,
							  BUFFER_LOCK_SHARE, NULL, SPARE_OBJECT);
	spare_check(rel, BufferGetPage(buffer));
	memcpy(copy, strata_page_spare(BufferGetPage(buffer)), STRATA_PAGE_CAPACITY);
	UnlockReleaseBuffer(buffer);
	return copy;
}

int64
strata_spare_bytes(Relation rel)
{
	StrataSpareData *spare = strata_spare_read(rel);
	int64		nblocks = 0;

	if (spare == NULL)
		return 0;
	for (uint32 i = 0; i < spare->nruns; i++)
		nblocks += spare->runs[i].nblocks;
	pfree(spare);
	return nblocks * BLCKSZ;
}

int64
strata_spare_room(Relation rel, int64 piece)
{
	StrataSpareData *spare = strata_spare_read(rel);
	uint32		nblocks = Max(strata_extent_blocks_for(piece), 1);
	uint32		longest = 0;
	int64		pieces = 0;

	if (spare == NULL)
		return 0;
	for (uint32 i = 0; i < spare->nruns; i++)
	{
		longest = Max(longest, spare->runs[i].nblocks);
		pieces += spare->runs[i].nblocks / nblocks;
	}
	pfree(spare);
	return Max((int64) longest, pieces * nblocks) * BLCKSZ;
}

/*
 * Index of the first run that has nblocks at block first or later, and nblocks
 * before block limit; nruns when there is none.  The lowest one is taken, so
 * that what is free gathers at the end of the file, where it can be truncated.
 */
static uint32
spare_find(const StrataSpareData *spare, uint32 nblocks, BlockNumber first, BlockNumber limit)
{
	for (uint32 i = 0; i < spare->nruns; i++)
	{
		const StrataSpareRun *run = &spare->runs[i];

		if ((uint64) run->block + nblocks > limit)
			break;
		if ((uint64) run->block + run->nblocks >= (uint64) Max(run->block, first) + nblocks)
			return i;
	}
	return spare->nruns;
}

/* Length of the free run that ends at block end, 0 when there is none. */
static uint32
trailing_run(const StrataSpareData *spare, BlockNumber end)
{
	const StrataSpareRun *last;

	if (spare->nruns == 0)
		return 0;
	last = &spare->runs[spare->nruns - 1];
	return last->block + last->nblocks == end ? last->nblocks : 0;
}

bool
strata_spare_take(Page page, uint32 nblocks, BlockNumber limit, StrataExtent *out)
{
	return spare_take(page, nblocks, 0, limit, out);
}

static bool
spare_take(Page page, uint32 nblocks, BlockNumber first, BlockNumber limit, StrataExtent *out)
{
	StrataSpareData *spare = strata_page_spare(page);
	StrataSpareRun *run;
	uint32		i;

	Assert(nblocks > 0);

	i = spare_find(spare, nblocks, first, limit);
	if (i == spare->nruns)
		return false;

	if (spare->next_owner >= STRATA_MAX_OWNER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a strata store has used up its owner numbers"),
				 errhint("Dump the table and restore it into a new one.")));

	run = &spare->runs[i];
	out->owner = spare->next_owner++;
	out->block = run->block;
	out->nblocks = nblocks;

	run->block += nblocks;
	run->nblocks -= nblocks;
	if (run->nblocks == 0)
	{
		memmove(run, run + 1, (spare->nruns - i - 1) * sizeof(StrataSpareRun));
		spare_set_length(page, spare->nruns - 1);
	}
	return true;
}

static bool
take_extent(Relation rel, uint32 nblocks, BlockNumber first, BlockNumber limit,
			StrataExtent *out)
{
	GenericXLogState *record = GenericXLogStart(rel);
	Buffer		buffer = strata_spare_lock(rel);
	Page		page = GenericXLogRegisterBuffer(record, buffer, 0);
	bool		taken = spare_take(page, nblocks, first, limit, out);

	if (taken)
		GenericXLogFinish(record);
	else
		GenericXLogAbort(record);
	UnlockReleaseBuffer(buffer);
	if (taken)
		STRATA_PAUSE("storage-extent-taken");
	return taken;
}

void
strata_extent_take(Relation rel, uint32 nblocks, StrataExtent *out)
{
	strata_extent_take_behind(rel, nblocks, 0, out);
}

bool
strata_extent_take_before(Relation rel, uint32 nblocks, BlockNumber limit, StrataExtent *out)
{
	return take_extent(rel, nblocks, 0, limit, out);
}

void
strata_extent_take_behind(Relation rel, uint32 nblocks, BlockNumber first, StrataExtent *out)
{
	while (!take_extent(rel, nblocks, first, InvalidBlockNumber, out))
	{
		CHECK_FOR_INTERRUPTS();
		reserve_extent(rel, nblocks, first);
	}
}

/* ---- extending ---- */

void
strata_extend_file(Relation rel, uint32 nblocks)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKWRITE);

	Assert(strata_lock_held(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock));

	/* Our extent lock does for us what the relation extension lock is for. */
	for (uint32 i = 0; i < nblocks; i++)
		ReleaseBuffer(ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_NORMAL, strategy));
	FreeAccessStrategy(strategy);
}

/*
 * Put a run behind all others.  When the page is full and the run does not
 * continue the last one, the shortest run makes room; it stays unreferenced
 * until the next sweep.
 */
static void
spare_append_run(Page page, BlockNumber block, uint32 nblocks)
{
	StrataSpareData *spare = strata_page_spare(page);

	if (trailing_run(spare, block) > 0)
	{
		spare->runs[spare->nruns - 1].nblocks += nblocks;
		return;
	}

	if (spare->nruns == STRATA_SPARE_MAX_RUNS)
	{
		uint32		shortest = 0;

		for (uint32 i = 1; i < spare->nruns; i++)
		{
			if (spare->runs[i].nblocks < spare->runs[shortest].nblocks)
				shortest = i;
		}
		memmove(&spare->runs[shortest], &spare->runs[shortest + 1],
				(spare->nruns - shortest - 1) * sizeof(StrataSpareRun));
		spare_set_length(page, spare->nruns - 1);
	}

	spare->runs[spare->nruns].block = block;
	spare->runs[spare->nruns].nblocks = nblocks;
	spare_set_length(page, spare->nruns + 1);
}

/*
 * Extend the file and put the new blocks on the spare page; the caller holds
 * the extent lock.
 */
static void
extend_and_list(Relation rel, uint32 nblocks)
{
	BlockNumber first = RelationGetNumberOfBlocks(rel);
	Buffer		last;
	Buffer		spare;
	GenericXLogState *record;
	Page		page;

	if (first > STRATA_MAX_BLOCK - nblocks)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("relation \"%s\" cannot be extended beyond %u blocks",
						RelationGetRelationName(rel), STRATA_MAX_BLOCK)));

	strata_extend_file(rel, nblocks);
	STRATA_PAUSE("storage-extended");

	record = GenericXLogStart(rel);
	last = strata_page_new(rel, first + nblocks - 1, NULL);
	spare = strata_spare_lock(rel);
	page = GenericXLogRegisterBuffer(record, last, GENERIC_XLOG_FULL_IMAGE);
	strata_page_init(page, STRATA_PAGE_FREE, 0);
	spare_append_run(GenericXLogRegisterBuffer(record, spare, 0), first, nblocks);
	GenericXLogFinish(record);
	UnlockReleaseBuffer(spare);
	UnlockReleaseBuffer(last);
	STRATA_PAUSE("storage-extension-listed");
}

void
strata_extent_reserve(Relation rel, uint32 nblocks)
{
	reserve_extent(rel, nblocks, 0);
}

typedef struct Reservation
{
	Relation	rel;
	uint32		nblocks;
	BlockNumber first;			/* at this block or later */
	bool		found;
} Reservation;

/* Under the extent lock: extend the file by a piece, if nobody has. */
static void
reserve_piece(void *arg)
{
	Reservation *wanted = arg;
	BlockNumber end;
	uint32		growth;

	/*
	 * A long-lived relation grows by larger steps than a small one, so that
	 * its writers do not queue here all the time.
	 */
	end = RelationGetNumberOfBlocks(wanted->rel);
	growth = Max(STRATA_EXTEND_MIN, Min(end / 32, STRATA_EXTEND_PIECE / 4));

	/*
	 * Whoever had the lock before us may have done our work, and others may
	 * take from what we add: look before every step.
	 */
	for (uint32 extended = 0; extended < STRATA_EXTEND_PIECE; extended += STRATA_EXTEND_MIN)
	{
		StrataSpareData *spare = strata_spare_read(wanted->rel);

		if (spare == NULL)
			strata_page_mismatch(wanted->rel, STRATA_SPARE_BLOCK, SPARE_OBJECT);
		wanted->found = spare_find(spare, wanted->nblocks, wanted->first,
								   InvalidBlockNumber) < spare->nruns;
		pfree(spare);
		if (wanted->found && (extended == 0 || extended >= growth))
			break;
		extend_and_list(wanted->rel, STRATA_EXTEND_MIN);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The same for runs that have as many at block first or later. */
static void
reserve_extent(Relation rel, uint32 nblocks, BlockNumber first)
{
	Reservation wanted = {.rel = rel, .nblocks = nblocks, .first = first};

	if (nblocks > STRATA_MAX_BLOCK)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("an extent of %u blocks is too large", nblocks)));

	for (;;)
	{
		strata_with_extent_lock(RelationGetRelid(rel), reserve_piece, &wanted);
		if (wanted.found)
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

/* ---- giving back ---- */

static int
run_cmp_length(const void *a, const void *b)
{
	const StrataSpareRun *x = a;
	const StrataSpareRun *y = b;

	/* longest first; of equal ones the lower, to keep the end of the file free */
	if (x->nblocks != y->nblocks)
		return x->nblocks > y->nblocks ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

static int
run_cmp_block(const void *a, const void *b)
{
	const StrataSpareRun *x = a;
	const StrataSpareRun *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

/*
 * Reduce sorted runs to the limit longest ones, sorted again; returns their
 * number and adds the blocks of the others to *dropped.
 */
static int
keep_longest(StrataSpareRun *runs, int nruns, int limit, uint64 *dropped)
{
	if (nruns <= limit)
		return nruns;

	qsort(runs, nruns, sizeof(StrataSpareRun), run_cmp_length);
	for (int i = limit; i < nruns; i++)
		*dropped += runs[i].nblocks;
	qsort(runs, limit, sizeof(StrataSpareRun), run_cmp_block);
	return limit;
}

/*
 * Merge two sorted lists of runs into out, coalescing neighbours.  A block in
 * both is a block owned twice: that must never get on the spare page.
 */
static int
merge_runs(Relation rel, const StrataSpareRun *a, int na,
		   const StrataSpareRun *b, int nb, StrataSpareRun *out)
{
	int			n = 0;

	while (na > 0 || nb > 0)
	{
		StrataSpareRun run;

		if (nb == 0 || (na > 0 && a->block < b->block))
		{
			run = *a++;
			na--;
		}
		else
		{
			run = *b++;
			nb--;
		}

		if (n > 0 && out[n - 1].block + out[n - 1].nblocks > run.block)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("block %u of relation \"%s\" is free already",
							run.block, RelationGetRelationName(rel)),
					 errhint("strata.verify lists what is wrong with the store.")));
		if (n > 0 && out[n - 1].block + out[n - 1].nblocks == run.block)
			out[n - 1].nblocks += run.nblocks;
		else
			out[n++] = run;
	}
	return n;
}

uint64
strata_spare_give(Relation rel, const StrataSpareRun *runs, int nruns)
{
	BlockNumber end = RelationGetNumberOfBlocks(rel);
	StrataSpareRun *given;
	StrataSpareRun *merged;
	StrataMetaData meta;
	Buffer		buffer;
	Buffer		last = InvalidBuffer;
	GenericXLogState *record;
	Page		page;
	StrataSpareData *spare;
	uint64		dropped = 0;
	bool		to_the_end;
	BlockNumber lowest;
	int			n;

	Assert(strata_lock_held(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock));

	if (nruns == 0)
		return 0;
	if (!strata_meta_read(rel, &meta))
		strata_page_mismatch(rel, STRATA_SPARE_BLOCK, SPARE_OBJECT);

	lowest = STRATA_FIRST_EXTENT_BLOCK(meta.nshards);
	for (int i = 0; i < nruns; i++)
	{
		if (runs[i].nblocks == 0 || runs[i].block < lowest ||
			runs[i].block >= end || runs[i].nblocks > end - runs[i].block)
			elog(ERROR, "invalid run of %u blocks at block %u given back to relation \"%s\"",
				 runs[i].nblocks, runs[i].block, RelationGetRelationName(rel));
		lowest = runs[i].block + runs[i].nblocks;
	}
	to_the_end = lowest == end;

	/*
	 * No more than a page full can be kept anyhow, so what is done under the
	 * page lock stays small.
	 */
	given = MemoryContextAllocHuge(CurrentMemoryContext, (Size) nruns * sizeof(StrataSpareRun));
	memcpy(given, runs, (Size) nruns * sizeof(StrataSpareRun));
	nruns = keep_longest(given, nruns, STRATA_SPARE_MAX_RUNS, &dropped);
	merged = palloc(2 * STRATA_SPARE_MAX_RUNS * sizeof(StrataSpareRun));

	record = GenericXLogStart(rel);
	if (to_the_end)
	{
		/*
		 * Nobody may ever have logged these blocks: an extension whose record
		 * was lost.  Replay must make the file as long before it gives them
		 * out.
		 */
		last = strata_page_new(rel, end - 1, NULL);
		strata_page_init(GenericXLogRegisterBuffer(record, last, GENERIC_XLOG_FULL_IMAGE),
						 STRATA_PAGE_FREE, 0);
	}
	buffer = strata_spare_lock(rel);
	page = GenericXLogRegisterBuffer(record, buffer, 0);
	spare = strata_page_spare(page);
	n = merge_runs(rel, spare->runs, spare->nruns, given, nruns, merged);
	n = keep_longest(merged, n, STRATA_SPARE_MAX_RUNS, &dropped);
	memcpy(spare->runs, merged, n * sizeof(StrataSpareRun));
	spare_set_length(page, n);
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	if (BufferIsValid(last))
		UnlockReleaseBuffer(last);
	STRATA_PAUSE("storage-extents-given");

	pfree(merged);
	pfree(given);
	return dropped;
}

BlockNumber
strata_extent_truncate_tail(Relation rel, BlockNumber min_blocks,
							StrataBeforeTruncation before, void *arg)
{
	BlockNumber end;
	Buffer		buffer;
	StrataSpareData *spare;
	BlockNumber free_blocks;
	GenericXLogState *record;
	Page		page;
	XLogRecPtr	lsn;

	Assert(strata_lock_held(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock));

	/* Look before locking readers out for nothing. */
	end = RelationGetNumberOfBlocks(rel);
	spare = strata_spare_read(rel);
	if (spare == NULL)
		return 0;
	free_blocks = trailing_run(spare, end);
	pfree(spare);
	if (free_blocks == 0 || free_blocks < min_blocks)
		return 0;
	if (!ConditionalLockRelation(rel, AccessExclusiveLock))
		return 0;

	/* Nobody else can be at the pages now, but somebody may have been. */
	spare = strata_spare_read(rel);
	free_blocks = trailing_run(spare, end);
	pfree(spare);
	if (free_blocks == 0 || free_blocks < min_blocks)
	{
		UnlockRelation(rel, AccessExclusiveLock);
		return 0;
	}
	before(arg);

	record = GenericXLogStart(rel);
	buffer = strata_spare_lock(rel);
	page = GenericXLogRegisterBuffer(record, buffer, 0);
	spare = strata_page_spare(page);
	spare_set_length(page, spare->nruns - 1);
	lsn = GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	STRATA_PAUSE("storage-truncate-unlisted");

	/*
	 * Were the file cut first, a crash could bring back a spare page that
	 * gives out blocks beyond its end.
	 */
	if (RelationNeedsWAL(rel))
		XLogFlush(lsn);
	RelationTruncate(rel, end - free_blocks);
	STRATA_PAUSE("storage-truncated");

	UnlockRelation(rel, AccessExclusiveLock);
	return free_blocks;
}

/* ---- bytes of an extent ---- */

struct StrataExtentWriter
{
	Relation	rel;
	StrataExtent extent;
	uint32		next;			/* page of the extent that is written next */
	BufferAccessStrategy strategy;
	Size		buffered;
	char	   *buffer;			/* a run of pages' worth of bytes */
};

#define WRITE_BYTES		((Size) STRATA_WRITE_PAGES * STRATA_PAGE_CAPACITY)

StrataExtentWriter *
strata_extent_write_begin(Relation rel, const StrataExtent *extent)
{
	StrataExtentWriter *writer = palloc0(sizeof(StrataExtentWriter));

	writer->rel = rel;
	writer->extent = *extent;
	writer->strategy = GetAccessStrategy(BAS_BULKWRITE);
	writer->buffer = palloc(WRITE_BYTES);
	return writer;
}

/*
 * Write the next run of pages: at most WRITE_BYTES, a whole number of pages
 * except at the end.  All pages are locked until their record is inserted.
 */
static void
write_run(StrataExtentWriter *writer, const char *data, Size len)
{
	Buffer		buffers[STRATA_WRITE_PAGES];
	int			npages = strata_extent_blocks_for(len);

	Assert(npages > 0 && npages <= STRATA_WRITE_PAGES);
	if ((uint32) npages > writer->extent.nblocks - writer->next)
		elog(ERROR, "extent of %u blocks at block %u is too small for what is written to it",
			 writer->extent.nblocks, writer->extent.block);

	CHECK_FOR_INTERRUPTS();
	XLogEnsureRecordSpace(STRATA_WRITE_PAGES - 1, 0);
	for (int i = 0; i < npages; i++)
		buffers[i] = strata_page_new(writer->rel, writer->extent.block + writer->next + i,
									 writer->strategy);

	START_CRIT_SECTION();

	for (int i = 0; i < npages; i++)
	{
		Page		page = BufferGetPage(buffers[i]);
		Size		part = Min(len, STRATA_PAGE_CAPACITY);

		strata_page_init(page, STRATA_PAGE_DATA, writer->extent.owner);
		memcpy(PageGetContents(page), data, part);
		((PageHeader) page)->pd_lower += part;
		data += part;
		len -= part;
		MarkBufferDirty(buffers[i]);
	}

	STRATA_PAUSE("storage-run-before-record");
	if (RelationNeedsWAL(writer->rel))
	{
		XLogRecPtr	lsn;

		XLogBeginInsert();
		for (int i = 0; i < npages; i++)
			XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);
		for (int i = 0; i < npages; i++)
			PageSetLSN(BufferGetPage(buffers[i]), lsn);
	}

	END_CRIT_SECTION();

	for (int i = 0; i < npages; i++)
		UnlockReleaseBuffer(buffers[i]);
	writer->next += npages;
	STRATA_PAUSE("storage-run-written");
}

void
strata_extent_write(StrataExtentWriter *writer, const void *data, Size len)
{
	const char *p = data;

	while (len > 0)
	{
		Size		part;

		if (writer->buffered == 0 && len >= WRITE_BYTES)
		{
			write_run(writer, p, WRITE_BYTES);
			p += WRITE_BYTES;
			len -= WRITE_BYTES;
			continue;
		}

		part = Min(len, WRITE_BYTES - writer->buffered);
		memcpy(writer->buffer + writer->buffered, p, part);
		writer->buffered += part;
		p += part;
		len -= part;
		if (writer->buffered == WRITE_BYTES)
		{
			write_run(writer, writer->buffer, WRITE_BYTES);
			writer->buffered = 0;
		}
	}
}

void
strata_extent_write_end(StrataExtentWriter *writer)
{
	if (writer->buffered > 0)
		write_run(writer, writer->buffer, writer->buffered);
	FreeAccessStrategy(writer->strategy);
	pfree(writer->buffer);
	pfree(writer);
}

void
strata_extent_read(Relation rel, const StrataExtent *extent, uint64 offset,
				   Size len, void *dst, BufferAccessStrategy strategy, const char *object)
{
	uint64		capacity = (uint64) extent->nblocks * STRATA_PAGE_CAPACITY;
	char	   *out = dst;

	if (offset > capacity || len > capacity - offset ||
		extent->block > STRATA_MAX_BLOCK || extent->nblocks > STRATA_MAX_BLOCK)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("%s in relation \"%s\" reaches beyond its extent of %u blocks at block %u",
						object, RelationGetRelationName(rel), extent->nblocks, extent->block)));

	while (len > 0)
	{
		BlockNumber block = extent->block + (BlockNumber) (offset / STRATA_PAGE_CAPACITY);
		Size		start = (Size) (offset % STRATA_PAGE_CAPACITY);
		Size		part = Min(len, STRATA_PAGE_CAPACITY - start);
		Buffer		buffer;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		buffer = strata_page_read(rel, block, STRATA_PAGE_DATA, extent->owner,
								  BUFFER_LOCK_SHARE, strategy, object);
		page = BufferGetPage(buffer);
		if (MAXALIGN(SizeOfPageHeaderData) + start + part > ((PageHeader) page)->pd_lower)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("%s in relation \"%s\" is cut short at block %u",
							object, RelationGetRelationName(rel), block)));
		memcpy(out, PageGetContents(page) + start, part);
		UnlockReleaseBuffer(buffer);
		out += part;
		offset += part;
		len -= part;
	}
}
