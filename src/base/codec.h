/*-------------------------------------------------------------------------
 *
 * codec.h
 *	  Vectors of one column: encoding and decoding, zstd, checksums.
 *
 * Decoding trusts nothing: a function that returns const char * returns NULL,
 * or says what is wrong with the bytes.  The caller raises the error, since
 * only it knows relation and row group.
 *
 * IDENTIFICATION
 *	  src/base/codec.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CODEC_H
#define STRATA_CODEC_H

#include "base/format.h"

#include "access/tupmacs.h"
#include "port/pg_crc32c.h"

struct ZSTD_CDict_s;
struct ZSTD_DDict_s;

typedef struct StrataColumnType
{
	int16		attlen;
	bool		byval;
	char		align;
} StrataColumnType;

static inline uint32
strata_crc(const void *data, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, len);
	FIN_CRC32C(crc);
	return crc;
}

/* Bytes from one fixed-length by-reference value to the next. */
static inline uint32
strata_stride(const StrataColumnType *type)
{
	return (uint32) att_align_nominal(type->attlen, type->align);
}

extern bool strata_column_type_valid(const StrataColumnType *type);

/* ---- backend-wide buffers and zstd contexts ---- */

/* An error (0A000) if the zstd that the process has loaded is too old. */
extern void strata_codec_check_library(void);

typedef enum StrataScratch
{
	STRATA_SCRATCH_STORED,
	STRATA_SCRATCH_RAW,
	STRATA_SCRATCH_PACKED,
	STRATA_NUM_SCRATCH
} StrataScratch;

/*
 * A buffer of at least size bytes (aligned, contents undefined), valid until
 * the same scratch is asked for again.  Large ones are let go by
 * strata_scratch_trim.
 */
extern char *strata_scratch(StrataScratch which, Size size);
extern void strata_scratch_trim(void);

/*
 * Memory of this backend's zstd contexts, scratch buffers and dictionaries for
 * compression.
 */
extern Size strata_codec_memory(void);

extern Size strata_compress_bound(Size len);

/*
 * Length of the frame, or 0 when it would not fit capacity.  With a dictionary
 * (which may be NULL) the level is the dictionary's.
 */
extern Size strata_compress(int level, const struct ZSTD_CDict_s *dictionary,
							const void *src, Size len, void *dst, Size capacity);
/* NULL, or what is wrong: the frame must give raw_len bytes exactly. */
extern const char *strata_decompress(const struct ZSTD_DDict_s *dictionary,
									 const void *src, Size len, void *dst, Size raw_len);

/*
 * Dictionaries in the form zstd works with, allocated by it: whoever makes one
 * frees it.  strata_ddict_create returns NULL for bytes that zstd refuses.
 */
extern struct ZSTD_CDict_s *strata_cdict_create(const void *content, Size len, int level);
extern void strata_cdict_free(struct ZSTD_CDict_s *dictionary);
extern struct ZSTD_DDict_s *strata_ddict_create(const void *content, Size len, Size *size);
extern void strata_ddict_free(struct ZSTD_DDict_s *dictionary);

/* ---- encoding ---- */

/* Bits that value needs, of the widths that packing knows: 0 .. 57, 64. */
extern int	strata_width(uint64 value);
extern Size strata_packed_length(Size n, int width);
extern void strata_pack(const uint64 *values, Size n, int width, char *dst);

/* An encoded vector: entry without crc and lengths, and its raw bytes. */
typedef struct StrataEncoded
{
	StrataEncoding encoding;
	uint8		flags;			/* STRATA_VECTOR_NULLS only */
	char	   *raw;			/* as stored when not compressed */
	Size		raw_length;
	char	   *alternative;	/* NULL, or bytes that mean the same and may
								 * compress better */
	Size		alternative_length;
} StrataEncoded;

/*
 * Encode rows values of a by-value column.  present is the null bitmap (set:
 * a value), or NULL when nvalues = rows.  The result lies in scratch buffers.
 */
extern void strata_encode_integers(const int64 *values, uint32 nvalues,
								   const uint8 *present, uint32 rows,
								   StrataEncoded *out);

/*
 * Encode a by-reference column: nimages distinct images of images_length
 * bytes, laid out as in format.h, and the code of each value (NULL: the
 * images are the values).
 */
extern void strata_encode_images(const char *images, Size images_length, uint32 nimages,
								 const uint16 *codes, uint32 nvalues,
								 const uint8 *present, uint32 rows,
								 StrataEncoded *out);

/* ---- decoding ---- */

/*
 * A decoded vector.  The value of row i (from 0) is values[i & mask], null
 * where nulls is not NULL and nulls[i & mask].
 */
typedef struct StrataVector
{
	uint32		rows;
	uint32		mask;			/* 0 when all rows are alike */
	Datum	   *values;
	bool	   *nulls;
	char	   *data;			/* images; what values point to */
} StrataVector;

/* Check the parts of an entry that can be checked alone. */
extern const char *strata_vector_entry_check(const StrataVectorEntry *entry);

/* Bytes that the arrays and images of a decoded vector take. */
extern Size strata_vector_size(const StrataColumnType *type, const StrataVectorEntry *entry);

/* Lay out vector over memory of strata_vector_size bytes, MAXALIGNed. */
extern void strata_vector_layout(StrataVector *vector, char *memory,
								 const StrataColumnType *type,
								 const StrataVectorEntry *entry);

/*
 * Where the stored bytes are to be read to (entry->length + 8 bytes): in place
 * if that saves a copy.
 */
extern char *strata_vector_target(StrataVector *vector, const StrataColumnType *type,
								  const StrataVectorEntry *entry);

/*
 * Decode stored bytes, just read to strata_vector_target.  dictionary: that of
 * the column, for a vector that needs it.
 */
extern const char *strata_vector_decode(StrataVector *vector, const StrataColumnType *type,
										const StrataVectorEntry *entry,
										const struct ZSTD_DDict_s *dictionary,
										const char *stored);

#endif							/* STRATA_CODEC_H */
