/*-------------------------------------------------------------------------
 *
 * page.c
 *	  Pages of the storage relation: initialising, checking, reading.
 *
 * This layer turns "block b, owned by o, of kind k" into a pinned and locked
 * buffer that is known to be just that, or into an error.  References are
 * never trusted: a block may have been given to somebody else since the
 * reference was read (on a standby, or under old_snapshot_threshold), may
 * have been truncated away, or may be damaged.  Whatever is found instead,
 * all zeroes included, is an owner mismatch.
 *
 * Locks: only the content lock of the page asked for; nothing else is taken
 * while it is held.
 *
 * What a match promises the callers: a standard header of our block size, a
 * special area of our size, pd_lower at least as large as the kind's fixed
 * part and not above pd_upper.  Anything variable (log entries, data bytes)
 * is checked by whoever interprets it, against pd_lower.
 *
 * IDENTIFICATION
 *	  src/storage/page.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "storage/extent.h"
#include "storage/metapage.h"
#include "storage/page.h"

#include "access/xlog.h"
#include "storage/smgr.h"
#include "utils/rel.h"

static Size page_fixed_part(StrataPageKind kind);
static bool page_header_sound(Page page);
static bool block_exists(Relation rel, BlockNumber block);

/*
 * Bytes that every page of a kind has in front, as far as this layer defines
 * them.
 */
static Size
page_fixed_part(StrataPageKind kind)
{
	switch (kind)
	{
		case STRATA_PAGE_META:
			return sizeof(StrataMetaData);
		case STRATA_PAGE_SPARE:
			return offsetof(StrataSpareData, runs);
		case STRATA_PAGE_SHARD:
			return sizeof(StrataShardData);
		case STRATA_PAGE_LOG:
		case STRATA_PAGE_DATA:
		case STRATA_PAGE_FREE:
			break;
	}
	return 0;
}

static bool
page_header_sound(Page page)
{
	PageHeader	header = (PageHeader) page;

	return !PageIsNew(page) &&
		PageGetPageSize(page) == BLCKSZ &&
		PageGetPageLayoutVersion(page) == PG_PAGE_LAYOUT_VERSION &&
		header->pd_special == BLCKSZ - STRATA_PAGE_SPECIAL_SIZE &&
		header->pd_upper == header->pd_special &&
		header->pd_lower >= MAXALIGN(SizeOfPageHeaderData) &&
		header->pd_lower <= header->pd_upper;
}

/*
 * Does the file reach as far as block?  A file gets shorter only under
 * AccessExclusiveLock and with an invalidation that closes the smgr entry, so
 * that the length seen before is a lower bound as long as we hold any lock;
 * the file system is asked only when that is not enough.
 */
static bool
block_exists(Relation rel, BlockNumber block)
{
	BlockNumber known = RelationGetSmgr(rel)->smgr_cached_nblocks[MAIN_FORKNUM];

	if (known != InvalidBlockNumber && block < known)
		return true;
	return block < RelationGetNumberOfBlocks(rel);
}

void
strata_page_init(Page page, StrataPageKind kind, uint64 owner)
{
	StrataPageSpecial *special;

	PageInit(page, BLCKSZ, STRATA_PAGE_SPECIAL_SIZE);
	special = strata_page_special(page);
	special->owner = owner;
	special->kind = (uint16) kind;
}

bool
strata_page_matches(Page page, StrataPageKind kind, uint64 owner)
{
	StrataPageSpecial *special;
	Size		used;

	if (!page_header_sound(page))
		return false;

	special = strata_page_special(page);
	if (special->kind != (uint16) kind || special->owner != owner)
		return false;

	used = ((PageHeader) page)->pd_lower - MAXALIGN(SizeOfPageHeaderData);
	if (used < page_fixed_part(kind))
		return false;

	if (kind == STRATA_PAGE_SPARE)
	{
		uint32		nruns = strata_page_spare(page)->nruns;

		if (nruns > STRATA_SPARE_MAX_RUNS ||
			used < offsetof(StrataSpareData, runs) + nruns * sizeof(StrataSpareRun))
			return false;
	}
	return true;
}

Buffer
strata_page_try_read(Relation rel, BlockNumber block, StrataPageKind kind,
					 uint64 owner, int mode, BufferAccessStrategy strategy)
{
	Buffer		buffer;

	if (!block_exists(rel, block))
		return InvalidBuffer;

	buffer = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	LockBuffer(buffer, mode);
	if (!strata_page_matches(BufferGetPage(buffer), kind, owner))
	{
		UnlockReleaseBuffer(buffer);
		return InvalidBuffer;
	}
	return buffer;
}

Buffer
strata_page_read(Relation rel, BlockNumber block, StrataPageKind kind,
				 uint64 owner, int mode, BufferAccessStrategy strategy,
				 const char *object)
{
	Buffer		buffer;

	buffer = strata_page_try_read(rel, block, kind, owner, mode, strategy);
	if (!BufferIsValid(buffer))
		strata_page_mismatch(rel, block, object);
	return buffer;
}

void
strata_page_mismatch(Relation rel, BlockNumber block, const char *object)
{
	/*
	 * On a standby the page may have been given to somebody else by replay
	 * between our looking up the reference and following it, when the
	 * conflict that should have cancelled us has not reached us yet.
	 */
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("block %u of relation \"%s\" no longer holds %s", block,
						RelationGetRelationName(rel), object),
				 errdetail("The primary has given the space to something else."),
				 errhint("Retry the transaction.")));

	if (strata_old_snapshots_expire())
		ereport(ERROR,
				(errcode(ERRCODE_SNAPSHOT_TOO_OLD),
				 errmsg("snapshot too old"),
				 errdetail("Block %u of relation \"%s\" no longer holds %s.", block,
						   RelationGetRelationName(rel), object)));

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" does not hold %s", block,
					RelationGetRelationName(rel), object),
			 errhint("strata.verify lists what is wrong with the store.")));
}

Buffer
strata_page_new(Relation rel, BlockNumber block, BufferAccessStrategy strategy)
{
	/*
	 * Extents are handed out inside the file only.  Beyond its end a page
	 * could be made in the buffers, and would leave a hole when written.
	 */
	if (!block_exists(rel, block))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block %u of relation \"%s\" was given out beyond the end of the file",
						block, RelationGetRelationName(rel))));

	return ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_ZERO_AND_LOCK, strategy);
}
