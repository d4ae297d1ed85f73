/*-------------------------------------------------------------------------
 *
 * salvage.c
 *	  Looking at what may be damaged without failing on it.
 *
 * Verify and repair must go on where a query stops.  An error is caught by a
 * subtransaction, so that locks, pins and a half-read buffer are let go; one
 * that says nothing about the store (cancelled, out of memory) is raised
 * again.
 *
 * A page whose checksum is wrong often has one wrong bit, and everything of
 * ours has a checksum of its own.  So its bytes are read from the file, past
 * the buffers: read only, and only after PostgreSQL has refused the page, so
 * there is no newer copy in the buffers.
 *
 * Locks: the content lock of the page being copied.
 *
 * IDENTIFICATION
 *	  src/storage/salvage.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/salvage.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "storage/smgr.h"
#include "utils/rel.h"

/*
 * An owner id may have been given to an extent that was never written and that
 * nobody names: the next one is so far away.
 */
#define OWNER_MARGIN	(UINT64CONST(1) << 20)

typedef struct PageRead
{
	Relation	rel;
	BlockNumber block;
	char	   *copy;
	BufferAccessStrategy strategy;
} PageRead;

bool
strata_error_is_transient(int sqlerrcode)
{
	switch (ERRCODE_TO_CATEGORY(sqlerrcode))
	{
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* standby conflict */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* resources */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* cancelled, shut down */
			return true;
		default:
			return sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	}
}

char *
strata_attempt(StrataAction action, void *arg)
{
	ErrorData  *error = strata_subtransaction(action, arg);
	char	   *message;

	if (error == NULL)
		return NULL;
	if (strata_error_is_transient(error->sqlerrcode))
		ReThrowError(error);
	message = pstrdup(error->message);
	FreeErrorData(error);
	return message;
}

/* StrataAction: through the buffers */
static void
read_buffer(void *arg)
{
	PageRead   *read = (PageRead *) arg;
	Buffer		buffer = ReadBufferExtended(read->rel, MAIN_FORKNUM, read->block, RBM_NORMAL,
									   read->strategy);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(read->copy, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
}

/* StrataAction: from the file */
static void
read_file(void *arg)
{
	PageRead   *read = (PageRead *) arg;

	smgrread(RelationGetSmgr(read->rel), MAIN_FORKNUM, read->block, read->copy);
}

StrataPageState
strata_page_salvage(Relation rel, BlockNumber block, char *copy, BufferAccessStrategy strategy)
{
	StrataIOBlock page;
	PageRead	read = {.rel = rel, .block = block, .copy = page.data, .strategy = strategy};
	StrataPageState state = STRATA_PAGE_SOUND;

	CHECK_FOR_INTERRUPTS();
	if (block >= RelationGetNumberOfBlocks(rel))
		state = STRATA_PAGE_UNREADABLE;
	else if (strata_attempt(read_buffer, &read) != NULL)
		state = strata_attempt(read_file, &read) == NULL ? STRATA_PAGE_REFUSED :
														   STRATA_PAGE_UNREADABLE;
	if (state == STRATA_PAGE_UNREADABLE)
		memset(copy, 0, BLCKSZ);
	else
		memcpy(copy, page.data, BLCKSZ);
	return state;
}

/* Is this a page of an extent with what is stored of length on it? */
static bool
is_extent_page(Page page, const StrataExtent *extent, uint64 length, uint32 number)
{
	uint64		before = (uint64) number * STRATA_PAGE_CAPACITY;
	Size		used = (Size) Min(length - before, STRATA_PAGE_CAPACITY);

	return strata_page_matches(page, STRATA_PAGE_DATA, extent->owner) &&
		((PageHeader) page)->pd_lower >= MAXALIGN(SizeOfPageHeaderData) + used;
}

/* Pages of an extent to be looked at, for strata_attempt. */
typedef struct ExtentPages
{
	Relation	rel;
	const StrataExtent *extent;
	uint64		length;
	BufferAccessStrategy strategy;
	bool		sound;
} ExtentPages;

/* StrataAction */
static void
look_at_pages(void *arg)
{
	ExtentPages *pages = (ExtentPages *) arg;
	uint32		npages = strata_extent_blocks_for(pages->length);

	pages->sound = true;
	for (uint32 i = 0; i < npages && pages->sound; i++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBufferExtended(pages->rel, MAIN_FORKNUM, pages->extent->block + i,
									RBM_NORMAL, pages->strategy);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		pages->sound = is_extent_page(BufferGetPage(buffer), pages->extent, pages->length, i);
		UnlockReleaseBuffer(buffer);
	}
}

bool
strata_extent_pages_sound(Relation rel, const StrataExtent *extent, uint64 length,
						  BufferAccessStrategy strategy)
{
	ExtentPages pages = {.rel = rel, .extent = extent, .length = length, .strategy = strategy};

	if ((uint64) extent->block + extent->nblocks > RelationGetNumberOfBlocks(rel))
		return false;
	return strata_attempt(look_at_pages, &pages) == NULL && pages.sound;
}

StrataPageState
strata_extent_page_state(Relation rel, const StrataExtent *extent, uint64 length, uint32 page,
						 BufferAccessStrategy strategy)
{
	PGAlignedBlock copy;
	StrataPageState state = strata_page_salvage(rel, extent->block + page, copy.data, strategy);

	if (!is_extent_page(copy.data, extent, length, page))
		return STRATA_PAGE_UNREADABLE;
	return state;
}

bool
strata_extent_salvage(Relation rel, const StrataExtent *extent, uint64 offset, Size len, void *dst)
{
	uint64		capacity = (uint64) extent->nblocks * STRATA_PAGE_CAPACITY;
	char	   *out = dst;

	if (offset > capacity || len > capacity - offset ||
		extent->block > STRATA_MAX_BLOCK || extent->nblocks > STRATA_MAX_BLOCK)
		return false;
	while (len > 0)
	{
		PGAlignedBlock copy;
		Size		start = (Size) (offset % STRATA_PAGE_CAPACITY);
		Size		part = Min(len, STRATA_PAGE_CAPACITY - start);

		(void) strata_page_salvage(rel, extent->block + (BlockNumber) (offset / STRATA_PAGE_CAPACITY),
								   copy.data, NULL);
		if (!strata_page_matches(copy.data, STRATA_PAGE_DATA, extent->owner) ||
			MAXALIGN(SizeOfPageHeaderData) + start + part > ((PageHeader) copy.data)->pd_lower)
			return false;
		memcpy(out, PageGetContents(copy.data) + start, part);
		out += part;
		offset += part;
		len -= part;
	}
	return true;
}

void
strata_spare_rebuild(Relation rel, int nshards, uint64 owner)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	GenericXLogState *record;
	Buffer		buffer;
	Page		page;

	/* What is added to a file must not lie where fixed pages belong. */
	if (nblocks < STRATA_FIRST_EXTENT_BLOCK(nshards))
	{
		(void) strata_lock(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock, false);
		strata_extend_file(rel, STRATA_FIRST_EXTENT_BLOCK(nshards) - nblocks);
		strata_unlock(RelationGetRelid(rel), STRATA_LOCK_EXTENT, 0, ExclusiveLock);
	}

	for (BlockNumber block = STRATA_SPARE_BLOCK + 1; block < nblocks; block++)
	{
		PGAlignedBlock copy;
		StrataPageSpecial *special = (StrataPageSpecial *) (copy.data + BLCKSZ - STRATA_PAGE_SPECIAL_SIZE);

		if (strata_page_salvage(rel, block, copy.data, strategy) != STRATA_PAGE_SOUND ||
			PageIsNew(copy.data) ||
			((PageHeader) copy.data)->pd_special != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE ||
			special->owner >= STRATA_MAX_OWNER)
			continue;
		owner = Max(owner, special->owner);
	}
	FreeAccessStrategy(strategy);

	owner = Min(owner, STRATA_MAX_OWNER - OWNER_MARGIN);
	record = GenericXLogStart(rel);
	buffer = strata_page_new(rel, STRATA_SPARE_BLOCK, NULL);
	page = GenericXLogRegisterBuffer(record, buffer, GENERIC_XLOG_FULL_IMAGE);
	strata_page_init(page, STRATA_PAGE_SPARE, 0);
	strata_page_spare(page)->next_owner = owner + OWNER_MARGIN;
	strata_page_spare(page)->nruns = 0;
	strata_page_spare(page)->unused = 0;
	((PageHeader) page)->pd_lower += offsetof(StrataSpareData, runs);
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
}
