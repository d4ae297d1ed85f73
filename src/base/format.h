/*-------------------------------------------------------------------------
 *
 * format.h
 *	  The bytes of a row group.
 *
 *	column chunks	by attribute number; each the vectors of one column in row
 *					order, without gaps
 *	key hashes		uint32 by row; absent in keyless stores
 *	footer			StrataGroupHeader, StrataColumnEntry[], StrataVectorEntry[]
 *					in chunk order, zone maps (zones.h)
 *	trailer			StrataGroupTrailer, the last bytes of the row group
 *
 * Nothing has an offset of its own that could contradict another: chunks
 * follow each other, and the vectors of a chunk too, so positions are sums of
 * lengths and are checked against each other when the footer is read.
 *
 * A vector's bytes, before zstd:
 *
 *	null bitmap		one bit a row, set where the row has a value; only with
 *					STRATA_VECTOR_NULLS; padded to 8 bytes
 *	body			the values that are not null:
 *
 *	ALL_NULL		nothing (no bitmap either)
 *	CONSTANT		one value: int64, or an image
 *	FOR				StrataPackedHeader, then value - base
 *	DELTA			StrataPackedHeader, then value - value before - step, for
 *					all values but the first, which is base
 *	PLAIN			images, each aligned as its type is
 *	DICTIONARY		StrataDictHeader, the distinct values (int64, or images
 *					padded to 8 bytes), then one code a value
 *
 * By-value types are integers of their length, sign extended to 64 bits, as
 * PostgreSQL's own fetch_att makes them; packed numbers take header.width
 * bits each, little end first.  An image of a by-reference type is what the
 * executor may use in place: a varlena with a short or a 4-byte header, never
 * compressed nor out of line; a fixed-length value padded to its alignment; a
 * string with its zero byte.  So decoding a vector copies no value.
 *
 * Every vector has a CRC-32C over its stored bytes; compressed frames have
 * zstd's content checksum besides, which covers what was decoded.
 *
 * IDENTIFICATION
 *	  src/base/format.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_FORMAT_H
#define STRATA_FORMAT_H

#include "strata.h"

#include "utils/memutils.h"

/* "STRG" on a little-endian machine */
#define STRATA_GROUP_MAGIC		0x47525453u

/*
 * Rows of a vector at most, and raw bytes at which it is closed.  Bytes twice
 * as many make wide rows 6 % smaller and take reading a single one of them 1.5
 * times as long.
 */
#define STRATA_VECTOR_ROWS		1024
#define STRATA_VECTOR_BYTES		8192

/* A larger value has a vector of its own. */
#define STRATA_LARGE_VALUE		(256 * 1024)

/* No vector decodes to more: the largest Datum, bitmap and padding. */
#define STRATA_VECTOR_MAX_RAW	((uint32) MaxAllocSize + 1024)

typedef struct StrataGroupHeader
{
	uint64		data_length;	/* of all column chunks */
	uint64		raw_bytes;
	uint32		rows;
	uint32		natts;			/* attributes of the table at that time */
	uint32		ncolumns;		/* of them, those not dropped */
	uint32		nvectors;		/* of all columns */
	uint32		hash_length;	/* 0 or 4 * rows */
	uint32		hash_crc;
	uint32		zones_length;
	uint32		unused;
} StrataGroupHeader;

typedef struct StrataColumnEntry
{
	uint64		length;			/* of the chunk */
	uint64		dictionary;		/* zstd dictionary, 0: none */
	Oid			type;
	uint32		nvectors;
	int16		attnum;
	int16		attlen;
	uint8		byval;
	char		align;			/* TYPALIGN_xxx */
	uint16		unused;
} StrataColumnEntry;

typedef enum StrataEncoding
{
	STRATA_ENCODING_ALL_NULL = 0,
	STRATA_ENCODING_CONSTANT,
	STRATA_ENCODING_FOR,
	STRATA_ENCODING_DELTA,
	STRATA_ENCODING_PLAIN,
	STRATA_ENCODING_DICTIONARY
} StrataEncoding;

#define STRATA_VECTOR_NULLS		0x01	/* has a null bitmap */
#define STRATA_VECTOR_ZSTD		0x02
#define STRATA_VECTOR_FLAGS		0x03

typedef struct StrataVectorEntry
{
	uint32		length;			/* stored */
	uint32		raw_length;		/* = length unless compressed */
	uint32		crc;			/* CRC-32C of the stored bytes */
	uint16		rows;
	uint8		encoding;		/* StrataEncoding */
	uint8		flags;
} StrataVectorEntry;

typedef struct StrataPackedHeader
{
	int64		base;
	int64		step;			/* 0 for FOR */
	uint64		width;			/* bits, 0 .. 57 or 64 */
} StrataPackedHeader;

typedef struct StrataDictHeader
{
	uint32		nvalues;
	uint32		width;			/* of a code, in bits */
	uint64		values_length;	/* padded to 8 bytes */
} StrataDictHeader;

typedef struct StrataGroupTrailer
{
	uint32		footer_length;
	uint32		crc;			/* CRC-32C of the footer and this struct
								 * without crc */
	uint32		version;		/* STRATA_ROW_GROUP_VERSION */
	uint32		magic;
} StrataGroupTrailer;

#endif							/* STRATA_FORMAT_H */
