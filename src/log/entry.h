/*-------------------------------------------------------------------------
 *
 * entry.h
 *	  Log entries and log pages: their bytes, encoding and checking.
 *
 * A shard's log is one chain of pages.  A generation is a run of them; the
 * page after a CLOSED page is the first of the next generation.  Entries
 * start MAXALIGNed after the page's log header and what continues from the
 * page before; an entry's header never crosses a page.
 *
 *	ROWS		hashes of the rows' then the tombstones' keys, then minimal
 *				tuples (of tombstones: the key columns, and after that the
 *				row's next key if it has one), zstd-compressed when that
 *				pays; at most two pages, 8,192 rows and 256 kB of tuples.  A
 *				key occurs once.
 *	EXTENT		a StrataExtent that its (sub)transaction took
 *	ROW_GROUP	a StrataGroupRef: rows written outside the log
 *	LOST		bytes that could not be read and that repair set aside; counts
 *				as aborted, its rows are those that were lost
 *
 * IDENTIFICATION
 *	  src/log/entry.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ENTRY_H
#define STRATA_ENTRY_H

#include "manifest/store.h"
#include "storage/page.h"

#include "datatype/timestamp.h"

typedef enum StrataEntryType
{
	STRATA_ENTRY_ROWS = 1,
	STRATA_ENTRY_EXTENT,
	STRATA_ENTRY_ROW_GROUP,
	STRATA_ENTRY_LOST
} StrataEntryType;

/* flags; the two freezing sets are excluded from the CRC */
#define STRATA_ENTRY_FROZEN_COMMITTED	0x0001
#define STRATA_ENTRY_FROZEN_ABORTED		0x0002
#define STRATA_ENTRY_FROZEN_MASK		0x0003
#define STRATA_ENTRY_COMPRESSED			0x0004
#define STRATA_ENTRY_LOCKED				0x0008	/* the writer had locked the keys of the
												 * rows FOR UPDATE before: who wants
												 * them to stay has to look again */

typedef struct StrataEntryHeader
{
	uint32		crc;			/* CRC-32C of all that follows, frozen flags
								 * taken as 0 */
	uint32		length;			/* header included, alignment not */
	uint64		fxid;			/* full xid of the writing (sub)transaction */
	uint32		cid;
	uint16		type;
	uint16		flags;
	uint32		rows;
	uint32		tombstones;		/* ROWS only */
	uint32		raw_length;		/* ROWS: tuples before compression */
	uint16		natts;			/* attributes the tuples were written with */
	uint16		unused;
} StrataEntryHeader;

#define STRATA_LOG_PAGE_CLOSED	0x0001
#define STRATA_LOG_PAGE_ORPHAN	0x0002	/* the entry that continues here was set
										 * aside: its bytes are skipped */

typedef struct StrataLogPage
{
	uint32		shard;
	uint32		generation;
	uint32		ordinal;		/* in the generation, from 0 */
	uint16		flags;
	uint16		continuation;	/* bytes here of an entry begun before */
	uint64		rows_before;	/* of the generation, on pages before this */
	uint64		bytes_before;	/* stored bytes, row groups' included */
	uint64		rows;			/* of entries that start on this page */
	uint64		bytes;
	StrataPageRef next;			/* next page of the shard's log */

	/* the generation's summary, on its first page (ordinal 0) only */
	TimestampTz opened_at;
	TimestampTz sealed_at;		/* 0: still active */
	uint64		generation_rows;	/* these four are set by sealing */
	uint64		generation_bytes;
	StrataPageRef last;
	StrataPageRef next_generation;
} StrataLogPage;

#define STRATA_LOG_PAGE_START \
	(MAXALIGN(SizeOfPageHeaderData) + MAXALIGN(sizeof(StrataLogPage)))

static inline StrataLogPage *
strata_page_log(Page page)
{
	return (StrataLogPage *) PageGetContents(page);
}

/* bytes a fresh log page has for entries */
#define STRATA_LOG_PAGE_CAPACITY \
	(STRATA_PAGE_CAPACITY - MAXALIGN(sizeof(StrataLogPage)))

/* largest entry, two fresh pages */
#define STRATA_MAX_ENTRY_SIZE	(2 * STRATA_LOG_PAGE_CAPACITY)

/* most bytes of tuples in an entry before compression; bounds its decoding */
#define STRATA_MAX_ENTRY_RAW	((Size) 256 * 1024)

/* an EXTENT entry as it lies on the page */
typedef struct StrataExtentEntry
{
	StrataEntryHeader header;
	StrataExtent extent;
} StrataExtentEntry;

/* ---- encoding ---- */

/*
 * What whoever waited for a row wants to know of its tombstone.  Bits of
 * t_infomask2 that no minimal tuple of ours has otherwise.
 */
#define STRATA_ROW_MOVED	0x0800	/* the row went to another partition */
#define STRATA_ROW_REKEYED	0x2000	/* it goes on under another key, which follows
									 * as a tuple of its own */

/*
 * One row handed to the encoder: values by attribute number - 1 (detoasted),
 * or for a tombstone the key columns in key order.
 */
typedef struct StrataLogRow
{
	uint32		hash;
	bool		tombstone;
	bool		moved;			/* tombstone: the row went to another partition */
	Datum	   *values;
	bool	   *isnull;			/* NULL for a tombstone */
	Datum	   *next_key;		/* tombstone: the key that the row has now, in the
								 * same command; NULL: the row is no more */
} StrataLogRow;

/*
 * Encode rows (rows first, then tombstones, by caller's order) as a complete
 * ROWS entry, palloc'd, crc set.  NULL when it would exceed
 * STRATA_MAX_ENTRY_SIZE.  flags: 0 or STRATA_ENTRY_LOCKED.
 */
extern StrataEntryHeader *strata_entry_encode_rows(const StrataStore *store,
												   FullTransactionId fxid, CommandId cid,
												   const StrataLogRow *rows, int nrows,
												   uint16 flags);
/* An EXTENT entry into given memory, for use under page locks. */
extern void strata_entry_fill_extent(StrataExtentEntry *entry, FullTransactionId fxid,
									 CommandId cid, const StrataExtent *extent);
extern StrataEntryHeader *strata_entry_encode_group(FullTransactionId fxid, CommandId cid,
													uint16 natts, const StrataGroupRef *ref,
													uint16 flags);
extern void strata_entry_set_crc(StrataEntryHeader *entry);
/*
 * Make the length bytes at entry (at least a header's) one LOST entry, of so
 * many rows.  What follows the header stays as it is.
 */
extern void strata_entry_set_lost(StrataEntryHeader *entry, uint32 length, uint32 rows);

/* ---- decoding ---- */

/*
 * Check header and CRC of entry, of which available bytes are in memory.
 * Returns NULL when sound, else what is wrong (palloc'd or constant).
 */
extern const char *strata_entry_check(const StrataEntryHeader *entry, Size available);

/* The same of the header alone: enough to go on to the next entry. */
extern const char *strata_entry_check_header(const StrataEntryHeader *header);

static inline const uint32 *
strata_entry_hashes(const StrataEntryHeader *entry)
{
	return (const uint32 *) ((const char *) entry + MAXALIGN(sizeof(StrataEntryHeader)));
}

static inline const StrataExtent *
strata_entry_extent(const StrataEntryHeader *entry)
{
	return (const StrataExtent *) ((const char *) entry + MAXALIGN(sizeof(StrataEntryHeader)));
}

static inline const StrataGroupRef *
strata_entry_group(const StrataEntryHeader *entry)
{
	return (const StrataGroupRef *) ((const char *) entry + MAXALIGN(sizeof(StrataEntryHeader)));
}

/*
 * Decoder of the tuples of a checked ROWS entry; lives in CurrentMemoryContext
 * and refers to entry.  Rows are numbered 0 .. rows-1, tombstones follow.
 */
typedef struct StrataEntryDecoder StrataEntryDecoder;

extern StrataEntryDecoder *strata_entry_decode(const StrataStore *store,
											   const StrataEntryHeader *entry);
/* Missing columns filled in; values point into the decoder. */
extern void strata_entry_row(StrataEntryDecoder *decoder, uint32 row,
							 Datum *values, bool *isnull);
/* The key of a row or tombstone, in key order. */
extern void strata_entry_key(StrataEntryDecoder *decoder, uint32 row, Datum *keyvalues);
/* Did the row of this tombstone go to another partition? */
extern bool strata_entry_moved(StrataEntryDecoder *decoder, uint32 row);
/* The key under which the row of this tombstone goes on; false: under none. */
extern bool strata_entry_next_key(StrataEntryDecoder *decoder, uint32 row, Datum *keyvalues);
extern void strata_entry_decode_end(StrataEntryDecoder *decoder);

/*
 * Take every row of a checked ROWS entry apart, and compare key hashes and
 * shards.  NULL, or what is wrong; what cannot be decoded raises XX001.
 * Leaves memory behind.
 */
extern const char *strata_entry_check_rows(const StrataStore *store, int shard,
										   const StrataEntryHeader *entry);

#endif							/* STRATA_ENTRY_H */
