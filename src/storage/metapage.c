/*-------------------------------------------------------------------------
 *
 * metapage.c
 *	  The metapage and the shard pages; making a store.
 *
 * A store is empty while block 0 is not there or all zeroes.  It is made by
 * the first write:
 *
 *	1. The file is extended, if a lost attempt has not done so already, and a
 *	   record over its last page makes replay extend it, too.  What there is
 *	   now is not reachable.
 *	2. One record with full images of the shard pages, the spare page and the
 *	   metapage makes the store.
 *
 * A crash before the second record leaves an empty store with a file of some
 * length, of which the next first write makes use.  Replay restores the pages
 * of a record one by one, the metapage last, so that a standby's reader who
 * sees a metapage sees the shard pages as well.
 *
 * Locks: making a store happens under the extent lock; everything else is
 * protected by the content lock of the one page it is about.  M and P are
 * changed by passes and by freeze, which exclude each other by the lock on
 * the storage relation; the code here does not rely on that, and re-checks
 * under the page lock what it computed before.
 *
 * IDENTIFICATION
 *	  src/storage/metapage.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"

#include "access/generic_xlog.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/rel.h"

static void meta_damaged(Relation rel) pg_attribute_noreturn();
static void check_metapage(Relation rel, Page page);
static Buffer meta_lock(Relation rel);
static void make_store(Relation rel, int nshards, const StrataMetaData *meta,
					   const StrataShardData *old_shards, uint64 next_owner);
static void fill_shard_page(Page page, int shard, const StrataShardData *old,
							const StrataExtent *tail_extent);
static void log_last_page(Relation rel, BlockNumber block);
static bool pass_committed(FullTransactionId pass);
static bool replace_passes(Relation rel, const StrataMetaData *old, FullTransactionId newest,
						   FullTransactionId committed);

/*
 * What the metapage says is nowhere else.  Nobody is ever given its place, so
 * there is no other reason on a standby either.
 */
static void
meta_damaged(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" does not hold the metapage", STRATA_META_BLOCK,
					RelationGetRelationName(rel)),
			 errdetail("Without it no row of the table can be read, and it cannot be made anew."),
			 errhint("Restore the table from a backup.")));
}

/* Raise the right error unless page is a metapage that this code can read. */
static void
check_metapage(Relation rel, Page page)
{
	StrataMetaData *meta = strata_page_meta(page);

	if (meta->magic == pg_bswap32(STRATA_MAGIC))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" was written on a machine with another byte order",
						RelationGetRelationName(rel))));
	if (meta->magic != STRATA_MAGIC)
		meta_damaged(rel);
	if (meta->version != STRATA_FORMAT_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"%s\" has strata format version %u",
						RelationGetRelationName(rel), meta->version),
				 errdetail("This version of strata reads format version %d.",
						   STRATA_FORMAT_VERSION)));
	if (!strata_page_matches(page, STRATA_PAGE_META, 0) ||
		meta->nshards < 1 || meta->nshards > STRATA_MAX_SHARDS)
		meta_damaged(rel);
}

bool
strata_meta_read(Relation rel, StrataMetaData *out)
{
	Buffer		buffer;
	Page		page;

	if (RelationGetNumberOfBlocks(rel) == 0)
		return false;

	buffer = ReadBuffer(rel, STRATA_META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (PageIsNew(page))
	{
		UnlockReleaseBuffer(buffer);
		return false;
	}
	check_metapage(rel, page);
	*out = *strata_page_meta(page);
	UnlockReleaseBuffer(buffer);
	return true;
}

bool
strata_shard_read(Relation rel, int shard, StrataShardData *out)
{
	BlockNumber block = STRATA_SHARD_BLOCK(shard);
	Buffer		buffer;
	StrataMetaData meta;

	Assert(shard >= 0 && shard < STRATA_MAX_SHARDS);

	buffer = strata_page_try_read(rel, block, STRATA_PAGE_SHARD, 0,
								  BUFFER_LOCK_SHARE, NULL);
	if (!BufferIsValid(buffer))
	{
		/*
		 * No such page: either there is no store, or it was made since we
		 * looked, or the page is damaged.
		 */
		if (!strata_meta_read(rel, &meta))
			return false;
		buffer = strata_page_read(rel, block, STRATA_PAGE_SHARD, 0,
								  BUFFER_LOCK_SHARE, NULL, "a shard page");
	}

	*out = *strata_page_shard(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	if (out->shard != (uint32) shard)
		strata_page_mismatch(rel, block, "a shard page");
	return true;
}

typedef struct NewStore
{
	Relation	rel;
	int			nshards;
} NewStore;

/* Under the extent lock: make the store, if nobody has. */
static void
initialize(void *arg)
{
	NewStore   *store = arg;
	StrataMetaData meta;

	if (strata_meta_read(store->rel, &meta))
		return;
	memset(&meta, 0, sizeof(meta));
	meta.magic = STRATA_MAGIC;
	meta.version = STRATA_FORMAT_VERSION;
	meta.incarnation = 1;
	meta.nshards = store->nshards;
	meta.next_row_group = 1;
	make_store(store->rel, store->nshards, &meta, NULL, 1);
}

void
strata_store_initialize(Relation rel, int nshards)
{
	NewStore	store = {rel, nshards};
	StrataMetaData meta;

	if (nshards < 1 || nshards > STRATA_MAX_SHARDS)
		elog(ERROR, "invalid number of shards: %d", nshards);

	if (!strata_meta_read(rel, &meta))
		strata_with_extent_lock(RelationGetRelid(rel), initialize, &store);
}

void
strata_store_reinitialize(Relation rel, const StrataMetaData *old,
						  const StrataShardData *old_shards, uint64 next_owner,
						  FullTransactionId xid)
{
	StrataMetaData meta = *old;

	Assert(CheckRelationLockedByMe(rel, AccessExclusiveLock, true));

	/* the manifest has it as an int */
	if (old->incarnation >= PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("relation \"%s\" was truncated too often",
						RelationGetRelationName(rel)),
				 errhint("Drop the table and create it again.")));

	meta.magic = STRATA_MAGIC;
	meta.version = STRATA_FORMAT_VERSION;
	meta.incarnation = old->incarnation + 1;
	meta.newest_pass = xid;
	meta.committed_pass = InvalidFullTransactionId;

	(void) strata_lock(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
	make_store(rel, meta.nshards, &meta, old_shards, next_owner);
	strata_unlock(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock);
}

/* A shard page without a log; old is what TRUNCATE continues from, or NULL. */
static void
fill_shard_page(Page page, int shard, const StrataShardData *old,
				const StrataExtent *tail_extent)
{
	StrataShardData *data;

	strata_page_init(page, STRATA_PAGE_SHARD, 0);
	data = strata_page_shard(page);
	data->shard = shard;
	data->active_generation = 1;
	data->tail_extent = *tail_extent;
	if (old != NULL)
	{
		data->active_generation = old->active_generation + 1;
		data->rows = old->rows;
		data->bytes = old->bytes;
	}
	((PageHeader) page)->pd_lower += sizeof(StrataShardData);
}

/*
 * Log the last page of a file without a store as a free page, so that replay
 * makes the file as long as it is.
 */
static void
log_last_page(Relation rel, BlockNumber block)
{
	GenericXLogState *record = GenericXLogStart(rel);
	Buffer		buffer = strata_page_new(rel, block, NULL);
	Page		page = GenericXLogRegisterBuffer(record, buffer, GENERIC_XLOG_FULL_IMAGE);

	strata_page_init(page, STRATA_PAGE_FREE, 0);
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
}

/*
 * Make all pages that a store starts with; the caller holds the extent lock
 * and knows that there is no metapage.
 */
static void
make_store(Relation rel, int nshards, const StrataMetaData *meta,
		   const StrataShardData *old_shards, uint64 next_owner)
{
	BlockNumber first_extent = STRATA_FIRST_EXTENT_BLOCK(nshards);
	BlockNumber first_free = first_extent + nshards * STRATA_FIRST_TAIL_BLOCKS;
	BlockNumber wanted = TYPEALIGN(STRATA_EXTEND_MIN, first_free + 1);
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	Buffer		buffers[STRATA_MAX_SHARDS + 2];
	int			nbuffers = 0;
	Page		page;
	StrataSpareData *spare;
	int			i;

	StaticAssertStmt(STRATA_MAX_SHARDS + 2 <= XLR_MAX_BLOCK_ID + 1,
					 "a store's fixed pages must fit one record");

	if (next_owner >= STRATA_MAX_OWNER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("relation \"%s\" has used up its owner numbers",
						RelationGetRelationName(rel))));
	for (i = 0; old_shards != NULL && i < nshards; i++)
	{
		if (old_shards[i].active_generation >= STRATA_MAX_GENERATION)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("relation \"%s\" has used up its generation numbers",
							RelationGetRelationName(rel))));
	}

	if (nblocks < wanted)
	{
		strata_extend_file(rel, wanted - nblocks);
		nblocks = wanted;
	}
	STRATA_PAUSE("storage-initialize-extended");
	log_last_page(rel, nblocks - 1);
	STRATA_PAUSE("storage-initialize-logged");

	XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID, 0);
	for (i = 0; i < nshards; i++)
		buffers[nbuffers++] = strata_page_new(rel, STRATA_SHARD_BLOCK(i), NULL);
	buffers[nbuffers++] = strata_page_new(rel, STRATA_SPARE_BLOCK, NULL);
	buffers[nbuffers++] = strata_page_new(rel, STRATA_META_BLOCK, NULL);

	START_CRIT_SECTION();

	for (i = 0; i < nshards; i++)
	{
		StrataExtent extent;

		extent.owner = next_owner++;
		extent.block = first_extent + i * STRATA_FIRST_TAIL_BLOCKS;
		extent.nblocks = STRATA_FIRST_TAIL_BLOCKS;
		fill_shard_page(BufferGetPage(buffers[i]), i,
						old_shards != NULL ? &old_shards[i] : NULL, &extent);
	}

	page = BufferGetPage(buffers[nshards]);
	strata_page_init(page, STRATA_PAGE_SPARE, 0);
	spare = strata_page_spare(page);
	spare->next_owner = next_owner;
	spare->nruns = 1;
	spare->runs[0].block = first_free;
	spare->runs[0].nblocks = nblocks - first_free;
	((PageHeader) page)->pd_lower += offsetof(StrataSpareData, runs) + sizeof(StrataSpareRun);

	page = BufferGetPage(buffers[nshards + 1]);
	strata_page_init(page, STRATA_PAGE_META, 0);
	*strata_page_meta(page) = *meta;
	((PageHeader) page)->pd_lower += sizeof(StrataMetaData);

	for (i = 0; i < nbuffers; i++)
		MarkBufferDirty(buffers[i]);

	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	lsn;

		XLogBeginInsert();
		for (i = 0; i < nbuffers; i++)
			XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);
		for (i = 0; i < nbuffers; i++)
			PageSetLSN(BufferGetPage(buffers[i]), lsn);
	}

	END_CRIT_SECTION();

	for (i = nbuffers - 1; i >= 0; i--)
		UnlockReleaseBuffer(buffers[i]);
	STRATA_PAUSE("storage-initialized");
}

/* The metapage, checked and locked exclusively. */
static Buffer
meta_lock(Relation rel)
{
	Buffer		buffer;

	if (RelationGetNumberOfBlocks(rel) == 0)
		meta_damaged(rel);
	buffer = ReadBuffer(rel, STRATA_META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (PageIsNew(BufferGetPage(buffer)))
		meta_damaged(rel);
	check_metapage(rel, BufferGetPage(buffer));
	return buffer;
}

/* Did the transaction of a pass commit?  True for settled ones, too. */
static bool
pass_committed(FullTransactionId pass)
{
	if (!FullTransactionIdIsValid(pass))
		return false;
	return strata_pass_is_settled(pass) ||
		TransactionIdDidCommit(XidFromFullTransactionId(pass));
}

/*
 * Change M and P from what *old says to what is given.  False, and nothing
 * done, when somebody else has changed them since.
 */
static bool
replace_passes(Relation rel, const StrataMetaData *old, FullTransactionId newest,
			   FullTransactionId committed)
{
	GenericXLogState *record = GenericXLogStart(rel);
	Buffer		buffer = meta_lock(rel);
	StrataMetaData *meta = strata_page_meta(GenericXLogRegisterBuffer(record, buffer, 0));

	if (!FullTransactionIdEquals(meta->newest_pass, old->newest_pass) ||
		!FullTransactionIdEquals(meta->committed_pass, old->committed_pass))
	{
		GenericXLogAbort(record);
		UnlockReleaseBuffer(buffer);
		return false;
	}

	meta->newest_pass = newest;
	meta->committed_pass = committed;
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	return true;
}

void
strata_meta_begin_pass(Relation rel, FullTransactionId xid)
{
	for (;;)
	{
		StrataMetaData meta;
		FullTransactionId committed;

		if (!strata_meta_read(rel, &meta))
			meta_damaged(rel);
		if (FullTransactionIdEquals(meta.newest_pass, xid))
			return;

		/* The commit log is read without a page lock. */
		committed = meta.committed_pass;
		if (pass_committed(meta.newest_pass))
			committed = meta.newest_pass;
		if (replace_passes(rel, &meta, xid, committed))
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

void
strata_meta_settle_passes(Relation rel, TransactionId horizon)
{
	FullTransactionId limit = strata_full_xid(horizon);

	for (;;)
	{
		StrataMetaData meta;
		FullTransactionId newest;
		FullTransactionId committed;

		if (!strata_meta_read(rel, &meta))
			return;
		newest = meta.newest_pass;
		committed = meta.committed_pass;

		if (FullTransactionIdIsValid(committed) && !strata_pass_is_settled(committed) &&
			FullTransactionIdPrecedes(committed, limit))
			committed = FullTransactionIdFromU64(U64FromFullTransactionId(committed) |
												 STRATA_PASS_SETTLED_BIT);

		/*
		 * A newest pass that rolled back never counted: the last committed
		 * one takes its place.
		 */
		if (FullTransactionIdIsValid(newest) && !strata_pass_is_settled(newest) &&
			FullTransactionIdPrecedes(newest, limit))
		{
			if (pass_committed(newest))
				newest = FullTransactionIdFromU64(U64FromFullTransactionId(newest) |
												  STRATA_PASS_SETTLED_BIT);
			else
				newest = committed;
		}

		if (FullTransactionIdEquals(newest, meta.newest_pass) &&
			FullTransactionIdEquals(committed, meta.committed_pass))
			return;
		if (replace_passes(rel, &meta, newest, committed))
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

TransactionId
strata_meta_horizon(Relation rel)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(rel);
	StrataMetaData meta;

	if (strata_meta_read(rel, &meta) &&
		FullTransactionIdPrecedes(strata_full_xid(horizon), meta.swept))
		horizon = XidFromFullTransactionId(meta.swept);
	return horizon;
}

void
strata_meta_note_sweep(Relation rel, TransactionId horizon)
{
	FullTransactionId swept = strata_full_xid(horizon);
	GenericXLogState *record = GenericXLogStart(rel);
	Buffer		buffer = meta_lock(rel);
	Page		page = GenericXLogRegisterBuffer(record, buffer, 0);

	if (FullTransactionIdPrecedes(strata_page_meta(page)->swept, swept))
	{
		strata_page_meta(page)->swept = swept;
		/* a metapage from before there was this field is shorter */
		((PageHeader) page)->pd_lower = MAXALIGN(SizeOfPageHeaderData) + sizeof(StrataMetaData);
		GenericXLogFinish(record);
	}
	else
		GenericXLogAbort(record);
	UnlockReleaseBuffer(buffer);
}

uint32
strata_meta_take_row_groups(Relation rel, uint32 n)
{
	GenericXLogState *record = GenericXLogStart(rel);
	Buffer		buffer = meta_lock(rel);
	StrataMetaData *meta = strata_page_meta(GenericXLogRegisterBuffer(record, buffer, 0));
	uint32		first = meta->next_row_group;

	if (first > STRATA_MAX_ROW_GROUP || n > STRATA_MAX_ROW_GROUP - first)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("relation \"%s\" has used up its row group numbers",
						RelationGetRelationName(rel)),
				 errhint("Dump the table and restore it into a new one.")));

	meta->next_row_group = first + n;
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	return first;
}
