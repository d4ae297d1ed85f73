/*-------------------------------------------------------------------------
 *
 * codec.c
 *	  Decoding vectors; zstd contexts and scratch buffers of the backend.
 *
 * This layer turns stored bytes (format.h) into arrays of Datums.  It knows
 * neither relations nor row groups, takes no locks and reads no pages.
 *
 * The bytes may be anything: a checksum only says that they are what somebody
 * wrote.  Invariants that every decoder keeps:
 *	- nothing is read beyond the raw bytes, except up to 8 zero bytes that
 *	  strata_vector_size and strata_scratch leave room for;
 *	- every length is compared before it is added to anything;
 *	- a vector that decodes without complaint has all its values inside its
 *	  own memory, and no varlena in it is compressed or out of line.
 *
 * By-value values go through a scratch buffer, since their Datums are all that
 * is kept.  Images are decompressed into the vector's own memory and stay
 * there: Datums point to them.
 *
 * There is one compression and one decompression context per backend; zstd
 * resets them by itself, also after an error.
 *
 * IDENTIFICATION
 *	  src/base/codec.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "base/codec.h"

#include "compat.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* A scratch buffer larger than this is not kept. */
#define SCRATCH_KEEP	(1024 * 1024)

/* What unpacking may read beyond the end of packed numbers. */
#define READ_BEYOND		8

/* The first zstd whose calls all have the meaning relied on here. */
#define MIN_ZSTD		10400

#if ZSTD_VERSION_NUMBER < MIN_ZSTD
#error "strata needs zstd 1.4.0 or later"
#endif

static ZSTD_CCtx *compressor = NULL;
static int	compressor_level = 0;
static ZSTD_DCtx *decompressor = NULL;
static Size dictionary_memory = 0;	/* of dictionaries for compression */

static char *scratch_buffer[STRATA_NUM_SCRATCH];
static Size scratch_size[STRATA_NUM_SCRATCH];

void
strata_codec_check_library(void)
{
	if (ZSTD_versionNumber() < MIN_ZSTD)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("strata needs libzstd 1.4.0 or later"),
				 errdetail("The one loaded is version %s.", ZSTD_versionString()),
				 errhint("Install a newer libzstd, and see that no other library brings an old one.")));
}

bool
strata_column_type_valid(const StrataColumnType *type)
{
	if (type->align != TYPALIGN_CHAR && type->align != TYPALIGN_SHORT &&
		type->align != TYPALIGN_INT && type->align != TYPALIGN_DOUBLE)
		return false;
	if (type->byval)
		return type->attlen == 1 || type->attlen == 2 ||
			type->attlen == 4 || type->attlen == 8;
	if (type->attlen == -1)
		return type->align == TYPALIGN_INT || type->align == TYPALIGN_DOUBLE;
	return type->attlen == -2 || type->attlen > 0;
}

char *
strata_scratch(StrataScratch which, Size size)
{
	size += READ_BEYOND;
	if (size > scratch_size[which])
	{
		Size		wanted = Max(size, 64 * 1024);

		if (scratch_buffer[which] != NULL)
			pfree(scratch_buffer[which]);
		scratch_buffer[which] = NULL;
		scratch_size[which] = 0;
		scratch_buffer[which] = MemoryContextAllocHuge(TopMemoryContext, wanted);
		scratch_size[which] = wanted;
	}
	return scratch_buffer[which];
}

void
strata_scratch_trim(void)
{
	for (int i = 0; i < STRATA_NUM_SCRATCH; i++)
	{
		if (scratch_size[i] > SCRATCH_KEEP)
		{
			pfree(scratch_buffer[i]);
			scratch_buffer[i] = NULL;
			scratch_size[i] = 0;
		}
	}
}

Size
strata_codec_memory(void)
{
	Size		total = dictionary_memory;

	if (compressor != NULL)
		total += ZSTD_sizeof_CCtx(compressor);
	if (decompressor != NULL)
		total += ZSTD_sizeof_DCtx(decompressor);
	for (int i = 0; i < STRATA_NUM_SCRATCH; i++)
		total += scratch_size[i];
	return total;
}

static void
out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("zstd could not allocate its context.")));
}

static void
check_parameter(size_t result)
{
	if (ZSTD_isError(result))
		elog(ERROR, "could not set a zstd parameter: %s", ZSTD_getErrorName(result));
}

Size
strata_compress_bound(Size len)
{
	return ZSTD_compressBound(len);
}

Size
strata_compress(int level, const struct ZSTD_CDict_s *dictionary, const void *src, Size len,
				void *dst, Size capacity)
{
	size_t		result;

	if (compressor == NULL)
	{
		compressor = ZSTD_createCCtx();
		if (compressor == NULL)
			out_of_memory();
		compressor_level = 0;
		check_parameter(ZSTD_CCtx_setParameter(compressor, ZSTD_c_checksumFlag, 1));
		/* which dictionary is said once per column, not in every frame */
		check_parameter(ZSTD_CCtx_setParameter(compressor, ZSTD_c_dictIDFlag, 0));
	}
	if (dictionary == NULL && compressor_level != level)
	{
		compressor_level = 0;
		check_parameter(ZSTD_CCtx_setParameter(compressor, ZSTD_c_compressionLevel, level));
		compressor_level = level;
	}

	/* An error leaves a frame begun, and the context outlives dictionaries. */
	if (dictionary != NULL)
	{
		check_parameter(ZSTD_CCtx_reset(compressor, ZSTD_reset_session_only));
		check_parameter(ZSTD_CCtx_refCDict(compressor, dictionary));
	}
	result = ZSTD_compress2(compressor, dst, capacity, src, len);
	if (dictionary != NULL)
	{
		check_parameter(ZSTD_CCtx_reset(compressor, ZSTD_reset_session_only));
		check_parameter(ZSTD_CCtx_refCDict(compressor, NULL));
	}
	if (ZSTD_isError(result))
	{
		switch (ZSTD_getErrorCode(result))
		{
			case ZSTD_error_dstSize_tooSmall:
				return 0;
			case ZSTD_error_memory_allocation:
				out_of_memory();
				break;
			default:
				elog(ERROR, "could not compress: %s", ZSTD_getErrorName(result));
		}
	}
	return result;
}

const char *
strata_decompress(const struct ZSTD_DDict_s *dictionary, const void *src, Size len, void *dst,
				  Size raw_len)
{
	size_t		result;

	if (decompressor == NULL)
	{
		decompressor = ZSTD_createDCtx();
		if (decompressor == NULL)
			out_of_memory();
	}
	if (dictionary != NULL)
		result = ZSTD_decompress_usingDDict(decompressor, dst, raw_len, src, len, dictionary);
	else
		result = ZSTD_decompressDCtx(decompressor, dst, raw_len, src, len);
	if (ZSTD_isError(result))
	{
		if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
			out_of_memory();
		return psprintf("zstd: %s", ZSTD_getErrorName(result));
	}
	if (result != raw_len)
		return "a compressed frame is shorter than recorded";
	return NULL;
}

struct ZSTD_CDict_s *
strata_cdict_create(const void *content, Size len, int level)
{
	ZSTD_CDict *dictionary = ZSTD_createCDict(content, len, level);

	if (dictionary == NULL)
		out_of_memory();
	dictionary_memory += ZSTD_sizeof_CDict(dictionary);
	return dictionary;
}

void
strata_cdict_free(struct ZSTD_CDict_s *dictionary)
{
	dictionary_memory -= ZSTD_sizeof_CDict(dictionary);
	ZSTD_freeCDict(dictionary);
}

struct ZSTD_DDict_s *
strata_ddict_create(const void *content, Size len, Size *size)
{
	ZSTD_DDict *dictionary = ZSTD_createDDict(content, len);

	if (dictionary != NULL)
		*size = ZSTD_sizeof_DDict(dictionary);
	return dictionary;
}

void
strata_ddict_free(struct ZSTD_DDict_s *dictionary)
{
	ZSTD_freeDDict(dictionary);
}

const char *
strata_vector_entry_check(const StrataVectorEntry *entry)
{
	if (entry->rows == 0)
		return "a vector without rows";
	if (entry->encoding > STRATA_ENCODING_DICTIONARY)
		return "an unknown encoding";
	if ((entry->flags & ~STRATA_VECTOR_FLAGS) != 0)
		return "unknown vector flags";
	if (entry->raw_length > STRATA_VECTOR_MAX_RAW || entry->length > STRATA_VECTOR_MAX_RAW)
		return "a vector longer than possible";
	if ((entry->flags & STRATA_VECTOR_ZSTD) == 0 && entry->length != entry->raw_length)
		return "a vector whose lengths disagree";
	if ((entry->flags & STRATA_VECTOR_SHARED) != 0 && (entry->flags & STRATA_VECTOR_ZSTD) == 0)
		return "a vector with a compression dictionary that is not compressed";
	if (entry->encoding == STRATA_ENCODING_ALL_NULL &&
		(entry->flags != 0 || entry->length != 0))
		return "a vector without values that has bytes";
	if (entry->encoding == STRATA_ENCODING_CONSTANT &&
		(entry->flags & STRATA_VECTOR_NULLS) != 0)
		return "a constant vector with nulls";
	return NULL;
}

/* Vectors whose rows are all alike keep one element. */
static inline bool
is_uniform(const StrataVectorEntry *entry)
{
	return entry->encoding == STRATA_ENCODING_ALL_NULL ||
		entry->encoding == STRATA_ENCODING_CONSTANT;
}

static inline bool
has_nulls(const StrataVectorEntry *entry)
{
	return entry->encoding == STRATA_ENCODING_ALL_NULL ||
		(entry->flags & STRATA_VECTOR_NULLS) != 0;
}

Size
strata_vector_size(const StrataColumnType *type, const StrataVectorEntry *entry)
{
	Size		nelements = is_uniform(entry) ? 1 : entry->rows;
	Size		size = nelements * sizeof(Datum);

	if (has_nulls(entry))
		size += MAXALIGN(nelements * sizeof(bool));
	if (!type->byval)
		size += (Size) entry->raw_length + READ_BEYOND;
	return size;
}

void
strata_vector_layout(StrataVector *vector, char *memory, const StrataColumnType *type,
					 const StrataVectorEntry *entry)
{
	Size		nelements = is_uniform(entry) ? 1 : entry->rows;

	vector->rows = entry->rows;
	vector->mask = is_uniform(entry) ? 0 : PG_UINT32_MAX;
	vector->values = (Datum *) memory;
	memory += nelements * sizeof(Datum);
	vector->nulls = NULL;
	if (has_nulls(entry))
	{
		vector->nulls = (bool *) memory;
		memory += MAXALIGN(nelements * sizeof(bool));
	}
	vector->data = type->byval ? NULL : memory;
}

char *
strata_vector_target(StrataVector *vector, const StrataColumnType *type,
					 const StrataVectorEntry *entry)
{
	if ((entry->flags & STRATA_VECTOR_ZSTD) != 0)
		return strata_scratch(STRATA_SCRATCH_STORED, entry->length);
	if (!type->byval)
		return vector->data;
	return strata_scratch(STRATA_SCRATCH_RAW, entry->raw_length);
}

/*
 * Numbers of width bits from src, which has READ_BEYOND bytes behind it, each
 * plus base.
 */
static void
unpack(const char *src, uint32 n, uint32 width, uint64 base, Datum *values)
{
	uint32		i;

	switch (width)
	{
		case 0:
			for (i = 0; i < n; i++)
				values[i] = base;
			break;
		case 8:
			for (i = 0; i < n; i++)
				values[i] = base + ((const uint8 *) src)[i];
			break;
		case 16:
			for (i = 0; i < n; i++)
			{
				uint16		v;

				memcpy(&v, src + i * sizeof(v), sizeof(v));
				values[i] = base + v;
			}
			break;
		case 32:
			for (i = 0; i < n; i++)
			{
				uint32		v;

				memcpy(&v, src + i * sizeof(v), sizeof(v));
				values[i] = base + v;
			}
			break;
		case 64:
			for (i = 0; i < n; i++)
			{
				uint64		v;

				memcpy(&v, src + i * sizeof(v), sizeof(v));
				values[i] = base + v;
			}
			break;
		default:
			{
				uint64		mask = (UINT64CONST(1) << width) - 1;

				for (i = 0; i < n; i++)
				{
					uint32		bit = i * width;
					uint64		v;

					memcpy(&v, src + (bit >> 3), sizeof(v));
					values[i] = base + ((v >> (bit & 7)) & mask);
				}
				break;
			}
	}
}

static inline bool
width_valid(uint64 width)
{
	return width <= 57 || width == 64;
}

/* FOR and DELTA */
static const char *
decode_packed(const StrataVectorEntry *entry, const char *body, Size len, uint32 n,
			  Datum *values)
{
	StrataPackedHeader header;
	bool		delta = entry->encoding == STRATA_ENCODING_DELTA;
	uint32		npacked;

	if (n == 0)
		return "a packed vector without values";
	if (len < sizeof(header))
		return "a packed vector without header";
	memcpy(&header, body, sizeof(header));
	npacked = delta ? n - 1 : n;
	if (!width_valid(header.width))
		return "an impossible bit width";
	if (len - sizeof(header) != strata_packed_length(npacked, (int) header.width))
		return "a packed vector of the wrong length";

	body += sizeof(header);
	if (!delta)
	{
		unpack(body, npacked, (uint32) header.width, (uint64) header.base, values);
		return NULL;
	}
	values[0] = (Datum) header.base;
	unpack(body, npacked, (uint32) header.width, (uint64) header.step, values + 1);
	for (uint32 i = 1; i < n; i++)
		values[i] += values[i - 1];
	return NULL;
}

/*
 * Point values to n images, which must fill len bytes exactly, except that
 * less than 8 bytes of padding may follow when padded.
 */
static const char *
decode_images(const StrataColumnType *type, const char *images, Size len, uint32 n,
			  bool padded, Datum *values)
{
	Size		offset = 0;

	if (type->attlen > 0)
	{
		Size		stride = strata_stride(type);

		if (stride != 0 && n > len / stride)
			return "a vector shorter than its values";
		for (uint32 i = 0; i < n; i++)
			values[i] = PointerGetDatum(images + i * stride);
		offset = n * stride;
	}
	else if (type->attlen == -1)
	{
		for (uint32 i = 0; i < n; i++)
		{
			const char *image;
			Size		size;

			if (offset >= len)
				return "a vector shorter than its values";
			offset = att_align_pointer(offset, type->align, -1, images + offset);
			if (offset >= len)
				return "a vector shorter than its values";
			image = images + offset;
			if (VARATT_IS_1B(image))
			{
				if (VARATT_IS_1B_E(image))
					return "a value that is stored out of line";
				size = VARSIZE_1B(image);
			}
			else
			{
				if (offset != att_align_nominal(offset, type->align))
					return "a value that is not aligned";
				if (len - offset < VARHDRSZ)
					return "a value beyond its vector";
				if (!VARATT_IS_4B_U(image))
					return "a value that is compressed by itself";
				size = VARSIZE_4B(image);
				if (size < VARHDRSZ)
					return "a value shorter than its header";
			}
			if (size > len - offset)
				return "a value beyond its vector";
			values[i] = PointerGetDatum(image);
			offset += size;
		}
	}
	else
	{
		for (uint32 i = 0; i < n; i++)
		{
			const char *end;

			offset = att_align_nominal(offset, type->align);
			if (offset >= len)
				return "a vector shorter than its values";
			end = memchr(images + offset, '\0', len - offset);
			if (end == NULL)
				return "a string without end";
			values[i] = PointerGetDatum(images + offset);
			offset = (end - images) + 1;
		}
	}
	if (padded ? (offset > len || len - offset >= 8) : offset != len)
		return "a vector longer than its values";
	return NULL;
}

static const char *
decode_dictionary(const StrataColumnType *type, const char *body, Size len, uint32 n,
				  Datum *values)
{
	StrataDictHeader header;
	const char *what;
	Datum	   *distinct;
	uint32		bad = 0;

	if (len < sizeof(header))
		return "a dictionary vector without header";
	memcpy(&header, body, sizeof(header));
	body += sizeof(header);
	len -= sizeof(header);
	if (header.nvalues == 0 || header.nvalues > PG_UINT16_MAX)
		return "an impossible dictionary size";
	if (header.width > 32 || !width_valid(header.width))
		return "an impossible bit width";
	if (header.values_length > len || header.values_length % 8 != 0)
		return "a dictionary beyond its vector";
	if (len - header.values_length != strata_packed_length(n, (int) header.width))
		return "a dictionary vector of the wrong length";

	distinct = (Datum *) strata_scratch(STRATA_SCRATCH_PACKED,
										header.nvalues * sizeof(Datum));
	if (type->byval)
	{
		if (header.values_length != header.nvalues * sizeof(int64))
			return "a dictionary of the wrong length";
		memcpy(distinct, body, header.values_length);
	}
	else
	{
		what = decode_images(type, body, header.values_length, header.nvalues, true, distinct);
		if (what != NULL)
			return what;
	}

	unpack(body + header.values_length, n, header.width, 0, values);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		code = (uint32) values[i];

		bad |= code >= header.nvalues;
		values[i] = distinct[code < header.nvalues ? code : 0];
	}
	if (bad)
		return "a code beyond its dictionary";
	return NULL;
}

/*
 * The number of set bits in the first rows bits; bits behind them must be 0.
 * The bitmap is padded to 8 bytes.
 */
static const char *
count_present(const char *bitmap, uint32 rows, uint32 *present)
{
	uint32		nwords = (rows + 63) / 64;
	uint32		n = 0;

	for (uint32 i = 0; i < nwords; i++)
	{
		uint64		word;

		memcpy(&word, bitmap + i * sizeof(word), sizeof(word));
		if (i == nwords - 1 && rows % 64 != 0 && (word >> (rows % 64)) != 0)
			return "a null bitmap with bits beyond its rows";
		n += pg_popcount64(word);
	}
	*present = n;
	return NULL;
}

/* Spread the first n of values over the rows that bitmap says have one. */
static void
spread(StrataVector *vector, const char *bitmap, uint32 n)
{
	const uint8 *bits = (const uint8 *) bitmap;
	Datum	   *values = vector->values;
	bool	   *nulls = vector->nulls;

	for (uint32 i = vector->rows; i-- > 0;)
	{
		bool		present = (bits[i >> 3] >> (i & 7)) & 1;

		nulls[i] = !present;
		values[i] = present ? values[--n] : (Datum) 0;
	}
}

const char *
strata_vector_decode(StrataVector *vector, const StrataColumnType *type,
					 const StrataVectorEntry *entry, const struct ZSTD_DDict_s *dictionary,
					 const char *stored)
{
	const char *what;
	const char *raw = stored;
	const char *bitmap = NULL;
	const char *body;
	Size		len = entry->raw_length;
	uint32		n = entry->rows;

	if (strata_crc(stored, entry->length) != entry->crc)
		return "checksum mismatch";

	if (entry->encoding == STRATA_ENCODING_ALL_NULL)
	{
		vector->values[0] = (Datum) 0;
		vector->nulls[0] = true;
		return NULL;
	}

	if ((entry->flags & STRATA_VECTOR_ZSTD) != 0)
	{
		char	   *dst = type->byval ?
						strata_scratch(STRATA_SCRATCH_RAW, entry->raw_length) :
						vector->data;

		what = strata_decompress((entry->flags & STRATA_VECTOR_SHARED) != 0 ? dictionary : NULL,
								 stored, entry->length, dst, entry->raw_length);
		if (what != NULL)
			return what;
		raw = dst;
	}
	memset(unconstify(char *, raw) + len, 0, READ_BEYOND);

	body = raw;
	if ((entry->flags & STRATA_VECTOR_NULLS) != 0)
	{
		Size		bitmap_len = TYPEALIGN(8, ((Size) n + 7) / 8);

		if (len < bitmap_len)
			return "a vector shorter than its null bitmap";
		what = count_present(raw, n, &n);
		if (what != NULL)
			return what;
		bitmap = raw;
		body += bitmap_len;
		len -= bitmap_len;
	}

	switch ((StrataEncoding) entry->encoding)
	{
		case STRATA_ENCODING_CONSTANT:
			if (!type->byval)
				what = decode_images(type, body, len, 1, false, vector->values);
			else if (len != sizeof(int64))
				what = "a constant of the wrong length";
			else
			{
				memcpy(vector->values, body, sizeof(int64));
				what = NULL;
			}
			break;
		case STRATA_ENCODING_FOR:
		case STRATA_ENCODING_DELTA:
			if (!type->byval)
				what = "an integer encoding of other values";
			else
				what = decode_packed(entry, body, len, n, vector->values);
			break;
		case STRATA_ENCODING_PLAIN:
			if (type->byval)
				what = "an image encoding of integers";
			else
				what = decode_images(type, body, len, n, false, vector->values);
			break;
		case STRATA_ENCODING_DICTIONARY:
			what = decode_dictionary(type, body, len, n, vector->values);
			break;
		default:
			what = "an unknown encoding";
			break;
	}
	if (what != NULL)
		return what;

	if (bitmap != NULL)
		spread(vector, bitmap, n);
	return NULL;
}
