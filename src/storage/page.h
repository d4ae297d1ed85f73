/*-------------------------------------------------------------------------
 *
 * page.h
 *	  Pages of the storage relation: kinds, special area, checked access.
 *
 * Every page has PostgreSQL's standard header, its data below pd_lower
 * (GenericXLog zeroes what lies between pd_lower and pd_upper) and a special
 * area with the owner id of the extent it belongs to and its kind.
 *
 *	block 0				metapage
 *	block 1				spare page
 *	block 2 .. 1+shards	shard pages
 *	the rest			extents: log pages, data pages
 *
 * A relation of 0 blocks is an empty store.  All-zero pages (an extension
 * whose transaction was lost) are tolerated by sweep and size only; one met
 * by following a reference is an owner mismatch.
 *
 * IDENTIFICATION
 *	  src/storage/page.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PAGE_H
#define STRATA_PAGE_H

#include "strata.h"

#include "storage/bufmgr.h"
#include "storage/bufpage.h"

typedef enum StrataPageKind
{
	STRATA_PAGE_META = 1,
	STRATA_PAGE_SPARE,
	STRATA_PAGE_SHARD,
	STRATA_PAGE_LOG,
	STRATA_PAGE_DATA,			/* bytes of a row group or dictionary */
	STRATA_PAGE_FREE			/* last page of an extension, not yet used */
} StrataPageKind;

typedef struct StrataPageSpecial
{
	uint64		owner;			/* 0 for the fixed pages and FREE */
	uint16		kind;			/* StrataPageKind */
	uint16		unused1;
	uint32		unused2;
} StrataPageSpecial;

#define STRATA_PAGE_SPECIAL_SIZE	MAXALIGN(sizeof(StrataPageSpecial))
#define STRATA_PAGE_CAPACITY \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - STRATA_PAGE_SPECIAL_SIZE)

#define STRATA_META_BLOCK	((BlockNumber) 0)
#define STRATA_SPARE_BLOCK	((BlockNumber) 1)
#define STRATA_SHARD_BLOCK(shard)	((BlockNumber) (2 + (shard)))
#define STRATA_FIRST_EXTENT_BLOCK(nshards)	((BlockNumber) (2 + (nshards)))

static inline StrataPageSpecial *
strata_page_special(Page page)
{
	return (StrataPageSpecial *) PageGetSpecialPointer(page);
}

/* Initialise page as an empty page of the given kind and owner. */
extern void strata_page_init(Page page, StrataPageKind kind, uint64 owner);

/*
 * True when page is a well-formed strata page of that kind and owner with
 * pd_lower within bounds.  Looks at nothing but the page.
 */
extern bool strata_page_matches(Page page, StrataPageKind kind, uint64 owner);

/*
 * Read and lock a page that a reference names, and check kind and owner.
 * mode is BUFFER_LOCK_SHARE or BUFFER_LOCK_EXCLUSIVE.  object names what the
 * page belongs to, for the message ("row group 12", "generation 3 of shard 0").
 * A mismatch raises 40001 on a standby, 72000 where old_snapshot_threshold is
 * set, else XX001 naming relation, block and object.  Returns the buffer,
 * pinned and locked.
 */
extern Buffer strata_page_read(Relation rel, BlockNumber block,
							   StrataPageKind kind, uint64 owner, int mode,
							   BufferAccessStrategy strategy,
							   const char *object);

/* As above, but returns InvalidBuffer on a mismatch (nothing pinned). */
extern Buffer strata_page_try_read(Relation rel, BlockNumber block,
								   StrataPageKind kind, uint64 owner, int mode,
								   BufferAccessStrategy strategy);

/* Raise the error of strata_page_read for a mismatch found elsewhere. */
extern void strata_page_mismatch(Relation rel, BlockNumber block,
								 const char *object) pg_attribute_noreturn();

/*
 * A new page of an extent just taken: pinned, locked exclusively, content
 * undefined (reuse never reads the old page).  The caller registers it as a
 * full image and calls strata_page_init on the registered copy.
 */
extern Buffer strata_page_new(Relation rel, BlockNumber block,
							  BufferAccessStrategy strategy);

#endif							/* STRATA_PAGE_H */
