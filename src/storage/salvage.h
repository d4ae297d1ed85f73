/*-------------------------------------------------------------------------
 *
 * salvage.h
 *	  Looking at what may be damaged without failing on it.
 *
 * IDENTIFICATION
 *	  src/storage/salvage.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_SALVAGE_H
#define STRATA_SALVAGE_H

#include "storage/page.h"
#include "storage/subtransaction.h"

/*
 * Is an error caught while looking at a store about something else (cancelled,
 * out of resources, lock timeout)?
 */
extern bool strata_error_is_transient(int sqlerrcode);

/*
 * strata_subtransaction that returns the message of the error alone; transient
 * errors are raised again.
 */
extern char *strata_attempt(StrataAction action, void *arg);

typedef enum StrataPageState
{
	STRATA_PAGE_SOUND,			/* PostgreSQL reads it */
	STRATA_PAGE_REFUSED,		/* it does not (checksum, header), but the
								 * bytes are there */
	STRATA_PAGE_UNREADABLE		/* beyond the file, or an I/O error */
} StrataPageState;

/*
 * Copy a page, whatever it holds, to copy (BLCKSZ bytes; zeroes when it cannot
 * be read).  A page that PostgreSQL refuses to read into its buffers is read
 * past them: nobody can have changed it there.  strategy may be NULL.
 */
extern StrataPageState strata_page_salvage(Relation rel, BlockNumber block, char *copy,
										   BufferAccessStrategy strategy);

/*
 * strata_extent_read that goes on: false when a page of these bytes is not the
 * extent's own or cannot be read at all.
 */
extern bool strata_extent_salvage(Relation rel, const StrataExtent *extent, uint64 offset,
								  Size len, void *dst);

/*
 * Can all pages of an extent that hold length bytes be read, and are they its
 * own?  One subtransaction for all of them.
 */
extern bool strata_extent_pages_sound(Relation rel, const StrataExtent *extent, uint64 length,
									  BufferAccessStrategy strategy);

/*
 * The state of a page of an extent of which length bytes are used: UNREADABLE
 * also where it is not the extent's own, or holds too little.
 */
extern StrataPageState strata_extent_page_state(Relation rel, const StrataExtent *extent,
												uint64 length, uint32 page,
												BufferAccessStrategy strategy);

/*
 * Make a spare page anew that cannot be read or is wrong, without free extents:
 * sweep finds them.  owner: the highest owner id that the caller knows of; those
 * on the pages of the file are looked for here.  A file cut short becomes long
 * enough for the fixed pages.  AccessExclusiveLock on rel.
 */
extern void strata_spare_rebuild(Relation rel, int nshards, uint64 owner);

#endif							/* STRATA_SALVAGE_H */
