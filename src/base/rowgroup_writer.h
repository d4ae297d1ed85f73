/*-------------------------------------------------------------------------
 *
 * rowgroup_writer.h
 *	  What the two halves of the row group writer share.
 *
 *	rowgroup_writer.c	rows into vectors, vectors into chunks in memory
 *	rowgroup_finish.c	the footer, and everything to an extent
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_writer.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ROWGROUP_WRITER_H
#define STRATA_ROWGROUP_WRITER_H

#include "base/codec.h"
#include "base/rowgroup.h"
#include "base/zones.h"

#include "lib/stringinfo.h"

/* A piece of what is to be written, in order. */
typedef struct StrataChunk
{
	struct StrataChunk *next;
	Size		used;
	Size		size;
	char		data[FLEXIBLE_ARRAY_MEMBER];
} StrataChunk;

typedef struct StrataColumnWriter
{
	StrataColumnType type;
	AttrNumber	attnum;
	Oid			typid;
	bool		packable;		/* may have a 1-byte varlena header */
	StrataZoneBuilder *zone;

	/* the open vector */
	uint32		rows;
	uint32		nvalues;		/* of them, not null */
	uint8		present[STRATA_VECTOR_ROWS / 8];	/* valid if any is null */
	int64	   *integers;		/* [STRATA_VECTOR_ROWS] of a by-value type */
	char	   *images;			/* of a by-reference type */
	Size		images_used;
	Size		images_size;
	uint32		nimages;
	uint32	   *offsets;		/* [STRATA_VECTOR_ROWS] of the images */
	uint16	   *codes;			/* [STRATA_VECTOR_ROWS] of the values */
	uint16	   *slots;			/* [IMAGE_SLOTS] */
	bool		look_for_repeats;
	bool		repeats;		/* there are fewer images than values */

	int			skip_repeats;	/* vectors still to pass over */
	int			skip_zstd;
	StrataEncoding skip_encoding;	/* that zstd did not pay for */

	/* the chunk: finished vectors */
	StrataChunk	   *first;
	StrataChunk	   *last;
	uint64		length;
	const struct ZSTD_CDict_s *dictionary;	/* to compress with; NULL: none */
	uint64		dictionary_id;
	bool		dictionary_used;
	StrataVectorEntry *entries;
	uint32		nentries;
	uint32		max_entries;
} StrataColumnWriter;

struct StrataGroupWriter
{
	MemoryContext mcxt;
	StrataStore *store;
	int			level;
	uint32		rows;
	uint64		raw_bytes;
	int			ncolumns;
	StrataColumnWriter *columns;
	bool		keyed;
	uint32	   *hashes;
	uint32		max_hashes;
	bool		finished;
	uint64		length;
	StringInfoData footer;		/* with trailer */
	int			zones_offset;	/* in footer */
	uint32		zones_length;
};

/* Encode and store the open vector of a column, if there is any row in it. */
extern void strata_writer_close_vector(StrataGroupWriter *writer, StrataColumnWriter *column);

#endif							/* STRATA_ROWGROUP_WRITER_H */
