/*-------------------------------------------------------------------------
 *
 * strata.h
 *	  Format constants, limits and the types every layer shares.
 *
 * On-disk formats and their versions are defined here and nowhere else:
 *
 *	STRATA_FORMAT_VERSION	  pages, extents, log entries.  Recorded in the
 *							  metapage; a store with another number is refused
 *							  with both numbers in the message.
 *	STRATA_ROW_GROUP_VERSION  row groups.  Recorded in each row group's footer;
 *							  readers refuse a number they do not know, writers
 *							  always write the newest.
 *
 * Layers, each of which may call only those below it:
 *
 *	fdw, merge, worker  ->  log  ->  base  ->  manifest  ->  storage
 *
 * IDENTIFICATION
 *	  src/strata.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_H
#define STRATA_H

#include "postgres.h"

#include "compat.h"

#include "access/transam.h"
#include "storage/block.h"
#include "utils/relcache.h"

#define STRATA_FORMAT_VERSION		1
#define STRATA_ROW_GROUP_VERSION	1

/* "STRA" on a little-endian machine; byte order is part of the check. */
#define STRATA_MAGIC				0x41525453u

#define STRATA_MAX_SHARDS			31
#define STRATA_MAX_GROUP_ROWS		65534	/* row + 1 is a TID offset */
#define STRATA_MAX_ENTRY_ROWS		8192
#define STRATA_MAX_ENTRY_PAGES		2
#define STRATA_MAX_KEY_SIZE			2704	/* what nbtree can index */

/* Counters and blocks are refused (54000) long before they wrap. */
#define STRATA_MAX_BLOCK			((BlockNumber) 0x7FFFFFF0)
#define STRATA_MAX_GENERATION		((uint32) 0x7FFFFFF0)
#define STRATA_MAX_ROW_GROUP		((uint32) 0x7FFFFFF0)
#define STRATA_MAX_OWNER			((uint64) 1 << 62)

#define STRATA_SCHEMA				"strata"
#define STRATA_FDW_NAME				"strata"
#define STRATA_AM_NAME				"strata_storage"

/*
 * A run of blocks with an owner id of its own.  Whatever refers to an extent
 * repeats the id, and every page of the extent carries it, so that a stale
 * reference is noticed instead of read.  owner 0 means "no extent".
 */
typedef struct StrataExtent
{
	uint64		owner;
	BlockNumber block;
	uint32		nblocks;
} StrataExtent;

/* A page of the log, with the owner id it must carry. */
typedef struct StrataPageRef
{
	uint64		owner;			/* 0: none */
	BlockNumber block;
	uint32		unused;			/* zero; keeps the on-disk layout explicit */
} StrataPageRef;

/*
 * The order of versions within a shard.  Never a block number: blocks are
 * reused.  ordinal counts the pages of the generation from 0, offset is the
 * byte offset of the entry's start on its page.
 */
typedef struct StrataPosition
{
	uint32		generation;
	uint32		ordinal;
	uint32		offset;
} StrataPosition;

static inline int
strata_position_cmp(const StrataPosition *a, const StrataPosition *b)
{
	if (a->generation != b->generation)
		return a->generation < b->generation ? -1 : 1;
	if (a->ordinal != b->ordinal)
		return a->ordinal < b->ordinal ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return 0;
}

/*
 * Where a row group's bytes are.  length is the exact number of bytes, the
 * footer's trailer being the last of them; the extent holds at least as many.
 */
typedef struct StrataGroupRef
{
	StrataExtent extent;
	uint64		length;
	uint64		raw_bytes;		/* before compression */
	uint32		rows;			/* 1 .. STRATA_MAX_GROUP_ROWS */
	uint32		lost;			/* in the log: rows that repair took out; they
								 * still count in its sums */
} StrataGroupRef;

#endif							/* STRATA_H */
