/*-------------------------------------------------------------------------
 *
 * footer.h
 *	  The checked, decoded footer of a row group.
 *
 * IDENTIFICATION
 *	  src/base/footer.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_FOOTER_H
#define STRATA_FOOTER_H

#include "base/codec.h"

/* One column: vectors first_vector .. first_vector + nvectors - 1. */
typedef struct StrataFooterColumn
{
	StrataColumnType type;
	AttrNumber	attnum;
	Oid			typid;
	uint64		dictionary;		/* id, 0: none */
	uint32		first_vector;
	uint32		nvectors;
} StrataFooterColumn;

typedef struct StrataFooter
{
	uint32		rows;
	uint32		natts;			/* attributes when written */
	uint32		ncolumns;
	uint32		nvectors;
	uint32		length;			/* of footer and trailer, stored */
	uint64		hash_offset;
	uint32		hash_length;
	uint32		hash_crc;
	uint32		zones_length;
	StrataFooterColumn *columns;	/* by attribute number */
	uint64	   *offsets;		/* of each vector, in the row group */
	StrataVectorEntry *entries;
	uint32	   *first_rows;		/* of each vector */
	char	   *zones;
} StrataFooter;

/*
 * Check the trailer; *footer_length receives how many bytes before it the
 * footer takes.
 */
extern const char *strata_trailer_check(const char *trailer, uint64 group_length,
										uint32 *footer_length);

/*
 * bytes are the footer (length bytes) followed by the trailer.  The checksum
 * comes first, then the version, which only a right checksum makes credible,
 * then the rest: a row group of group_length bytes and rows rows.  *size
 * receives the memory that the decoded footer takes, MAXALIGNed.
 */
extern const char *strata_footer_crc_check(const char *bytes, uint32 length, uint32 *version);
extern const char *strata_footer_size(const char *bytes, uint32 length, uint64 group_length,
									  uint32 rows, Size *size);
extern const char *strata_footer_decode(const char *bytes, StrataFooter *footer);

/* The column of an attribute, NULL when it was dropped or added later. */
extern const StrataFooterColumn *strata_footer_column(const StrataFooter *footer,
													  AttrNumber attnum);

#endif							/* STRATA_FOOTER_H */
