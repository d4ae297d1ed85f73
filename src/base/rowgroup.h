/*-------------------------------------------------------------------------
 *
 * rowgroup.h
 *	  Row groups: up to 65,534 rows stored by column, immutable.
 *
 * A row group is a sequence of bytes in one extent: column chunks, each a
 * sequence of independently decodable vectors, the key hashes of its rows,
 * and a footer whose trailer is the last bytes.  Vectors are small (about
 * 8 kB raw, fewer rows when wide; a value over 256 kB has a frame of its
 * own), so that fetching a row decodes kilobytes, not the group.  Every
 * compressed frame carries a checksum; footers have a CRC-32C.  Every length,
 * offset and count read from disk is checked before use (XX001 naming
 * relation, row group's first block and what is wrong).
 *
 * Rows are stored by attribute number; a column added later is absent from
 * the footer and filled from the store's missing values; a dropped one is
 * ignored.
 *
 * IDENTIFICATION
 *	  src/base/rowgroup.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ROWGROUP_H
#define STRATA_ROWGROUP_H

#include "manifest/manifest.h"

#include "nodes/bitmapset.h"

/* ---- writer: streams; memory is the compressed group + open vectors ---- */

typedef struct StrataGroupWriter StrataGroupWriter;

extern StrataGroupWriter *strata_group_writer_begin(StrataStore *store, int level);

/*
 * Compress the vectors of a varlena column with a dictionary from here on; it
 * must live until the writer has been finished.  Others ignore it.
 */
struct ZSTD_CDict_s;
extern void strata_group_writer_use_dictionary(StrataGroupWriter *writer, AttrNumber attnum,
											   uint64 id,
											   const struct ZSTD_CDict_s *dictionary);

/*
 * Add a row (values by attribute number - 1, varlena detoasted or inline; they
 * are copied).  hash is the key hash (0 for keyless stores).
 */
extern void strata_group_writer_add(StrataGroupWriter *writer, const Datum *values,
									const bool *isnull, uint32 hash);
/* So far: rows, and bytes of their data before compression. */
extern uint32 strata_group_writer_rows(StrataGroupWriter *writer);
extern uint64 strata_group_writer_raw_bytes(StrataGroupWriter *writer);

/*
 * Encode what is open and the footer; returns the exact length in bytes.  The
 * group can then be written to an extent of strata_extent_blocks_for(length).
 */
extern uint64 strata_group_writer_finish(StrataGroupWriter *writer);

/* Write to extent; fills ref, and zones (palloc'd; NULL allowed). */
extern void strata_group_writer_write(StrataGroupWriter *writer, Relation storage,
									  const StrataExtent *extent,
									  StrataGroupRef *ref, bytea **zones);

/*
 * A look at a finished group: the vectors of column i (of
 * strata_group_writer_columns, by attribute number), as stored, those without
 * bytes left out.  Returns the attribute number.
 */
struct StrataVectorEntry;
typedef void (*StrataVectorCallback)(const struct StrataVectorEntry *entry,
									  const char *stored, void *arg);
extern int	strata_group_writer_columns(StrataGroupWriter *writer);
extern AttrNumber strata_group_writer_vectors(StrataGroupWriter *writer, int i, int16 *attlen,
											  StrataVectorCallback callback, void *arg);
extern void strata_group_writer_end(StrataGroupWriter *writer);

/* ---- reader: XX001 for whatever is wrong with what it reads ---- */

typedef struct StrataGroupReader StrataGroupReader;

/*
 * Open a row group: footer from the backend's cache or disk.  The reader
 * lives in CurrentMemoryContext and holds no buffer.  needed: attribute
 * numbers (no offset, 1-based) that will be asked for; NULL for none.
 * sequential: rows will be read in order (vectors decoded whole and kept),
 * else single rows (hot vectors come from the cache).
 */
extern StrataGroupReader *strata_group_open(StrataStore *store, Relation storage,
											const StrataGroupRef *ref,
											const Bitmapset *needed, bool sequential);
extern void strata_group_close(StrataGroupReader *reader);
extern uint32 strata_group_rows(StrataGroupReader *reader);

/*
 * Decode the needed columns of a row into values/isnull (attnum - 1; others
 * are set null).  By-reference values point into the reader and stay valid
 * until the next call for another row.
 */
extern void strata_group_fetch(StrataGroupReader *reader, uint32 row,
							   Datum *values, bool *isnull);

/*
 * The same into the arrays that strata_group_fetch filled from this reader
 * before: what is not needed is null there already.  True, for callers that
 * end with this call.
 */
extern bool strata_group_fetch_again(StrataGroupReader *reader, uint32 row,
									 Datum *values, bool *isnull);

/* Key columns of a row only, in key order; same lifetime. */
extern void strata_group_fetch_key(StrataGroupReader *reader, uint32 row, Datum *keyvalues);

/* Key hashes of all rows [rows]; valid as long as the reader. */
extern const uint32 *strata_group_hashes(StrataGroupReader *reader);

/* Bytes read from pages and bytes after decompression so far. */
extern void strata_group_io(StrataGroupReader *reader, uint64 *bytes_read,
							uint64 *bytes_decoded);

/*
 * Check every frame, checksum and bound, and zone maps against values; returns
 * NULL or what is wrong.  base: what the manifest has of it, NULL for one of the
 * log.  counts: false when the transaction that wrote it was rolled back; type
 * code may not know its values then, and is not called.
 */
extern char *strata_group_check(StrataStore *store, Relation storage,
								const StrataGroupRef *ref, const StrataRowGroup *base,
								bool counts);

/*
 * The same, and what that means row by row.  A row is lost when the value of a
 * column that the table still has cannot be read.  Bitmaps are palloc'd.
 */
typedef struct StrataGroupDamage
{
	char	   *problem;		/* the first one; NULL: sound, the rest is unset */
	bool		unreadable;		/* its footer: all rows are lost */
	uint8	   *lost;			/* by row; NULL: none */
	uint8	   *key_lost;		/* those of which the key is, too; NULL: none */
} StrataGroupDamage;

extern void strata_group_examine(StrataStore *store, Relation storage,
								 const StrataGroupRef *ref, const StrataRowGroup *base,
								 bool counts, StrataGroupDamage *out);

/*
 * A sequential reader of a damaged row group, for the rows that are not lost.
 * It also reads pages that PostgreSQL refuses.
 */
extern StrataGroupReader *strata_group_open_damaged(StrataStore *store, Relation storage,
													const StrataGroupRef *ref,
													const Bitmapset *needed);

/* ---- zone maps ---- */

typedef struct StrataZone
{
	bool		known;			/* false: say nothing about the column */
	bool		all_null;
	bool		has_null;
	Oid			type;
	Oid			collation;
	Datum		min;
	Datum		max;
} StrataZone;

/* The zone of one column, decoded from a manifest row's zones (or NULL). */
extern void strata_zone_get(StrataStore *store, const bytea *zones,
							AttrNumber attnum, StrataZone *zone);

/* Zones, palloc'd, of a row group that has no manifest row yet; NULL: none. */
extern bytea *strata_group_zones(StrataGroupReader *reader);

#endif							/* STRATA_ROWGROUP_H */
