/*-------------------------------------------------------------------------
 *
 * rowgroup_writer.c
 *	  Writing row groups: rows in, the bytes of format.h out.
 *
 * Each column has one open vector.  When it is full it is encoded, compressed
 * if that pays, and appended to the column's chunk in memory; so memory is
 * the compressed row group plus one open vector a column.  Nothing touches
 * the storage relation before strata_group_writer_write, by when the exact
 * length is known: no locks, no crash window in here.
 *
 * Columns close their vectors independently of each other.  A by-reference
 * column keeps a value once per vector (until it shows that its values do not
 * repeat), so that repeating values make long vectors of few bytes.
 *
 * Everything lives in a memory context of its own below the caller's, which
 * frees it on error.
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_writer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/rowgroup_writer.h"

#include "access/detoast.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

/* Hash table of an open vector's distinct images: codes + 1, 0: free. */
#define IMAGE_SLOTS			2048

/* Values of a vector after which one that saw no repetition stops looking. */
#define REPEAT_PATIENCE		128
/* Vectors of a column to pass over after something did not pay. */
#define RETRY_INTERVAL		8

/* zstd pays when it saves at least 1 / this of the bytes. */
#define PAYS_IMAGES			10
#define PAYS_INTEGERS		5
#define TRY_ZSTD_BYTES		96

#define CHUNK_MIN			1024
#define CHUNK_MAX			(64 * 1024)

StaticAssertDecl(IMAGE_SLOTS >= 2 * STRATA_VECTOR_ROWS, "image hash table too small");

StrataGroupWriter *
strata_group_writer_begin(StrataStore *store, int level)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row group writer",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataGroupWriter *writer = palloc0(sizeof(StrataGroupWriter));
	TupleDesc	desc = store->desc;

	writer->mcxt = mcxt;
	writer->store = store;
	writer->level = level;
	writer->keyed = store->key.natts > 0;
	writer->columns = palloc0(Max(desc->natts, 1) * sizeof(StrataColumnWriter));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		StrataColumnWriter *column;

		if (att->attisdropped)
			continue;
		column = &writer->columns[writer->ncolumns++];
		column->type.attlen = att->attlen;
		column->type.byval = att->attbyval;
		column->type.align = att->attalign;
		column->attnum = att->attnum;
		column->typid = att->atttypid;
		column->packable = att->attlen == -1 && att->attstorage != TYPSTORAGE_PLAIN;
		column->zone = palloc(sizeof(StrataZoneBuilder));
		strata_zone_begin(column->zone, att);
		column->look_for_repeats = true;
	}
	MemoryContextSwitchTo(old);
	return writer;
}

void
strata_group_writer_use_dictionary(StrataGroupWriter *writer, AttrNumber attnum, uint64 id,
								   const struct ZSTD_CDict_s *dictionary)
{
	for (int i = 0; i < writer->ncolumns; i++)
	{
		StrataColumnWriter *column = &writer->columns[i];

		if (column->attnum == attnum && column->type.attlen == -1)
		{
			column->dictionary = dictionary;
			column->dictionary_id = id;
		}
	}
}

/* ---- finished vectors ---- */

/* Room for len bytes at the end of the column's chunk. */
static char *
chunk_reserve(StrataGroupWriter *writer, StrataColumnWriter *column, Size len)
{
	StrataChunk	   *chunk = column->last;

	if (chunk == NULL || chunk->size - chunk->used < len)
	{
		Size		size = chunk == NULL ? CHUNK_MIN : Min(chunk->size * 2, CHUNK_MAX);

		size = Max(size, len);
		chunk = MemoryContextAllocHuge(writer->mcxt, offsetof(StrataChunk, data) + size);
		chunk->next = NULL;
		chunk->used = 0;
		chunk->size = size;
		if (column->last == NULL)
			column->first = chunk;
		else
			column->last->next = chunk;
		column->last = chunk;
	}
	return chunk->data + chunk->used;
}

/* Count what was put where chunk_reserve pointed as the next vector. */
static void
add_entry(StrataGroupWriter *writer, StrataColumnWriter *column, StrataEncoding encoding,
		  uint8 flags, uint32 rows, Size raw_length, const char *stored, Size length)
{
	StrataVectorEntry *entry;

	if (column->nentries == column->max_entries)
	{
		column->max_entries = Max(16, column->max_entries * 2);
		if (column->entries == NULL)
			column->entries = MemoryContextAlloc(writer->mcxt,
												 column->max_entries * sizeof(StrataVectorEntry));
		else
			column->entries = repalloc(column->entries,
									   column->max_entries * sizeof(StrataVectorEntry));
	}
	entry = &column->entries[column->nentries++];
	entry->length = (uint32) length;
	entry->raw_length = (uint32) raw_length;
	entry->crc = strata_crc(stored, length);
	entry->rows = (uint16) rows;
	entry->encoding = (uint8) encoding;
	entry->flags = flags;
	if (length > 0)
		column->last->used += length;
	column->length += length;
}

/* Store an encoded vector, compressed if that pays. */
static void
store_vector(StrataGroupWriter *writer, StrataColumnWriter *column, const StrataEncoded *encoded,
			 uint32 rows)
{
	const char *bytes = encoded->raw;
	Size		length = encoded->raw_length;
	Size		raw_length = encoded->raw_length;
	uint8		flags = encoded->flags;
	char	   *dst;

	if (length >= TRY_ZSTD_BYTES && column->skip_zstd > 0 &&
		column->skip_encoding == encoded->encoding)
		column->skip_zstd--;
	else if (length >= TRY_ZSTD_BYTES)
	{
		int			pays = column->type.byval ? PAYS_INTEGERS : PAYS_IMAGES;
		Size		capacity = length - length / pays;
		char	   *compressed = strata_scratch(STRATA_SCRATCH_STORED, capacity);
		const char *src = encoded->raw;
		Size		n;

		if (encoded->alternative != NULL)
		{
			src = encoded->alternative;
			raw_length = encoded->alternative_length;
		}
		n = strata_compress(writer->level, column->dictionary, src, raw_length, compressed,
							capacity);
		if (n > 0)
		{
			flags |= STRATA_VECTOR_ZSTD;
			if (column->dictionary != NULL)
			{
				flags |= STRATA_VECTOR_SHARED;
				column->dictionary_used = true;
			}
			bytes = compressed;
			length = n;
		}
		else
		{
			raw_length = encoded->raw_length;
			if (column->type.byval)
			{
				column->skip_zstd = RETRY_INTERVAL;
				column->skip_encoding = encoded->encoding;
			}
		}
	}

	dst = chunk_reserve(writer, column, length);
	memcpy(dst, bytes, length);
	add_entry(writer, column, encoded->encoding, flags, rows, raw_length, dst, length);
}

void
strata_writer_close_vector(StrataGroupWriter *writer, StrataColumnWriter *column)
{
	StrataEncoded encoded;
	const uint8 *present = NULL;

	if (column->rows == 0)
		return;
	if (column->nvalues < column->rows)
	{
		column->zone->has_null = true;
		present = column->present;
	}

	if (column->nvalues == 0)
		add_entry(writer, column, STRATA_ENCODING_ALL_NULL, 0, column->rows, 0, "", 0);
	else
	{
		column->zone->has_any = true;
		if (column->type.byval)
		{
			strata_zone_add_integers(column->zone, column->integers, column->nvalues);
			strata_encode_integers(column->integers, column->nvalues, present,
								   column->rows, &encoded);
		}
		else
		{
			for (uint32 i = 0; i < column->nimages; i++)
				strata_zone_add_image(column->zone, column->images + column->offsets[i]);
			strata_encode_images(column->images, column->images_used, column->nimages,
								 column->repeats ? column->codes : NULL, column->nvalues,
								 present, column->rows, &encoded);
		}
		store_vector(writer, column, &encoded, column->rows);
	}

	if (column->slots != NULL && column->look_for_repeats && column->nimages > 0)
		memset(column->slots, 0, IMAGE_SLOTS * sizeof(uint16));
	if (!column->type.byval && column->nvalues > 0)
	{
		if (column->repeats)
			column->skip_repeats = 0;
		else if (column->look_for_repeats)
			column->skip_repeats = RETRY_INTERVAL;
		else if (column->skip_repeats > 0)
			column->skip_repeats--;
	}
	column->look_for_repeats = column->skip_repeats == 0;
	column->repeats = false;
	column->rows = 0;
	column->nvalues = 0;
	column->nimages = 0;
	column->images_used = 0;
}

/* ---- adding values ---- */

/* One more row in the open vector, which is closed first if it is full. */
static inline void
begin_row(StrataGroupWriter *writer, StrataColumnWriter *column)
{
	if (column->rows == STRATA_VECTOR_ROWS)
		strata_writer_close_vector(writer, column);
}

static void
add_null(StrataGroupWriter *writer, StrataColumnWriter *column)
{
	begin_row(writer, column);
	if (column->nvalues == column->rows)
	{
		/* the first null: all rows before it have values */
		memset(column->present, 0, sizeof(column->present));
		memset(column->present, 0xFF, column->rows / 8);
		if (column->rows % 8 != 0)
			column->present[column->rows / 8] = (1 << (column->rows % 8)) - 1;
	}
	column->rows++;
}

/* Count a row with a value. */
static inline void
count_value(StrataColumnWriter *column)
{
	if (column->nvalues < column->rows)
		column->present[column->rows / 8] |= 1 << (column->rows % 8);
	column->nvalues++;
	column->rows++;
}

static void
add_integer(StrataGroupWriter *writer, StrataColumnWriter *column, Datum value)
{
	int64		v;

	begin_row(writer, column);
	if (column->integers == NULL)
		column->integers = MemoryContextAlloc(writer->mcxt,
											  STRATA_VECTOR_ROWS * sizeof(int64));
	switch (column->type.attlen)
	{
		case 1:
			v = (int8) value;
			break;
		case 2:
			v = (int16) value;
			break;
		case 4:
			v = (int32) value;
			break;
		default:
			v = (int64) value;
			break;
	}
	column->integers[column->nvalues] = v;
	count_value(column);
}

/*
 * A value that has a vector of its own: compressed from where it lies, so that
 * it is in memory once, and its compressed form once.  It is too long to gain
 * from a dictionary.
 */
static void
add_large(StrataGroupWriter *writer, StrataColumnWriter *column, const char *image, Size len)
{
	Size		bound = strata_compress_bound(len);
	char	   *dst;
	Size		n;
	uint8		flags = 0;

	strata_writer_close_vector(writer, column);
	column->zone->has_any = true;
	strata_zone_add_image(column->zone, image);

	dst = chunk_reserve(writer, column, bound);
	n = strata_compress(writer->level, NULL, image, len, dst, bound);
	if (n > 0 && n <= len - len / PAYS_IMAGES)
		flags = STRATA_VECTOR_ZSTD;
	else
	{
		memcpy(dst, image, len);
		n = len;
	}
	add_entry(writer, column, STRATA_ENCODING_CONSTANT, flags, 1, len, dst, n);

	/* such a chunk holds nothing else: give back what was too much */
	if (column->last->used == n && column->last->size > n)
	{
		StrataChunk	   *chunk = column->last;
		StrataChunk	  **link = &column->first;

		while (*link != chunk)
			link = &(*link)->next;
		chunk = repalloc_huge(chunk, offsetof(StrataChunk, data) + n);
		chunk->size = n;
		*link = column->last = chunk;
	}
}

static inline uint32
image_hash(const char *image, Size len)
{
	/* beginning and end of a long value tell enough: equality is checked */
	if (len <= 128)
		return hash_bytes((const unsigned char *) image, (int) len);
	return hash_bytes((const unsigned char *) image, 64) ^
		hash_bytes((const unsigned char *) image + len - 64, 64) ^ (uint32) len;
}

static bool
same_image(const StrataColumnWriter *column, uint32 code, const char *image, Size len)
{
	const char *other = column->images + column->offsets[code];

	/* images tell their own length, which is in the bytes compared first */
	if (column->images_used - column->offsets[code] < len)
		return false;
	if (column->type.attlen == -1 && VARSIZE_ANY(other) != len)
		return false;
	return memcmp(other, image, len) == 0;
}

static void
add_image(StrataGroupWriter *writer, StrataColumnWriter *column, const char *image, Size len,
		  bool aligned)
{
	Size		start;
	uint16	   *slot = NULL;

	if (len > STRATA_LARGE_VALUE)
	{
		add_large(writer, column, image, len);
		return;
	}

	begin_row(writer, column);
	if (column->codes == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(writer->mcxt);

		column->codes = palloc(STRATA_VECTOR_ROWS * sizeof(uint16));
		column->offsets = palloc(STRATA_VECTOR_ROWS * sizeof(uint32));
		column->slots = palloc0(IMAGE_SLOTS * sizeof(uint16));
		column->images_size = 1024;
		column->images = palloc(column->images_size);
		MemoryContextSwitchTo(old);
	}

	if (column->look_for_repeats)
	{
		uint32		i = image_hash(image, len) % IMAGE_SLOTS;

		while (column->slots[i] != 0)
		{
			uint32		code = column->slots[i] - 1;

			if (same_image(column, code, image, len))
			{
				column->repeats = true;
				column->codes[column->nvalues] = (uint16) code;
				count_value(column);
				return;
			}
			i = (i + 1) % IMAGE_SLOTS;
		}
		slot = &column->slots[i];
	}

	/*
	 * Close a vector before it gets too long: a small one rather than putting
	 * a wide value behind narrow ones.
	 */
	if (column->nimages > 0 && column->images_used + len > STRATA_VECTOR_BYTES &&
		(column->images_used >= STRATA_VECTOR_BYTES / 2 || len >= STRATA_VECTOR_BYTES))
	{
		strata_writer_close_vector(writer, column);
		slot = column->look_for_repeats ?
				   &column->slots[image_hash(image, len) % IMAGE_SLOTS] :
				   NULL;
	}

	start = column->images_used;
	if (aligned)
		start = att_align_nominal(start, column->type.align);
	if (start + len > column->images_size)
	{
		column->images_size = Max(start + len, Min(column->images_size * 2,
												   STRATA_VECTOR_BYTES * 2));
		column->images = repalloc(column->images, column->images_size);
	}
	memset(column->images + column->images_used, 0, start - column->images_used);
	memcpy(column->images + start, image, len);
	column->images_used = start + len;
	column->offsets[column->nimages] = (uint32) start;
	column->codes[column->nvalues] = (uint16) column->nimages;
	column->nimages++;
	if (slot != NULL)
	{
		*slot = (uint16) column->nimages;
		if (!column->repeats && column->nimages == REPEAT_PATIENCE)
		{
			memset(column->slots, 0, IMAGE_SLOTS * sizeof(uint16));
			column->look_for_repeats = false;
			column->skip_repeats = RETRY_INTERVAL;
		}
	}
	count_value(column);
}

static void
add_varlena(StrataGroupWriter *writer, StrataColumnWriter *column, Datum value)
{
	struct varlena *original = (struct varlena *) DatumGetPointer(value);
	struct varlena *v = original;
	Size		payload;

	if (VARATT_IS_EXTERNAL_EXPANDED(v))
	{
		ExpandedObjectHeader *eoh = DatumGetEOHP(value);
		Size		size = EOH_get_flat_size(eoh);

		v = palloc(size);
		EOH_flatten_into(eoh, v, size);
	}
	else if (VARATT_IS_EXTERNAL(v) || VARATT_IS_COMPRESSED(v))
		v = detoast_attr(v);

	payload = VARSIZE_ANY_EXHDR(v);
	writer->raw_bytes += payload;
	if (column->packable && payload + VARHDRSZ_SHORT <= VARATT_SHORT_MAX)
	{
		char		image[VARATT_SHORT_MAX];

		SET_VARSIZE_SHORT(image, payload + VARHDRSZ_SHORT);
		memcpy(image + VARHDRSZ_SHORT, VARDATA_ANY(v), payload);
		add_image(writer, column, image, payload + VARHDRSZ_SHORT, false);
	}
	else if (VARATT_IS_SHORT(v))
	{
		char		image[VARATT_SHORT_MAX + VARHDRSZ];

		SET_VARSIZE(image, payload + VARHDRSZ);
		memcpy(image + VARHDRSZ, VARDATA_SHORT(v), payload);
		add_image(writer, column, image, payload + VARHDRSZ, true);
	}
	else
		add_image(writer, column, (char *) v, VARSIZE(v), true);

	if (v != original)
		pfree(v);
}

static void
add_fixed(StrataGroupWriter *writer, StrataColumnWriter *column, Datum value)
{
	const char *image = DatumGetPointer(value);
	Size		len = column->type.attlen;

	writer->raw_bytes += Max(len, 8);
	if (strata_stride(&column->type) != len)
	{
		/* pad it, so that every value takes as many bytes */
		char	   *padded = palloc0(strata_stride(&column->type));

		memcpy(padded, image, len);
		add_image(writer, column, padded, strata_stride(&column->type), true);
		pfree(padded);
	}
	else
		add_image(writer, column, image, len, true);
}

void
strata_group_writer_add(StrataGroupWriter *writer, const Datum *values, const bool *isnull,
						uint32 hash)
{
	Assert(!writer->finished);
	if (writer->rows >= STRATA_MAX_GROUP_ROWS)
		elog(ERROR, "row group is full");

	for (int i = 0; i < writer->ncolumns; i++)
	{
		StrataColumnWriter *column = &writer->columns[i];
		int			att = column->attnum - 1;

		if (isnull[att])
			add_null(writer, column);
		else if (column->type.byval)
		{
			writer->raw_bytes += 8;
			add_integer(writer, column, values[att]);
		}
		else if (column->type.attlen == -1)
			add_varlena(writer, column, values[att]);
		else if (column->type.attlen == -2)
		{
			const char *string = DatumGetCString(values[att]);

			writer->raw_bytes += strlen(string) + 1;
			add_image(writer, column, string, strlen(string) + 1, true);
		}
		else
			add_fixed(writer, column, values[att]);
	}

	if (writer->keyed)
	{
		if (writer->rows == writer->max_hashes)
		{
			writer->max_hashes = Max(256, writer->max_hashes * 2);
			if (writer->hashes == NULL)
				writer->hashes = MemoryContextAlloc(writer->mcxt,
													writer->max_hashes * sizeof(uint32));
			else
				writer->hashes = repalloc(writer->hashes, writer->max_hashes * sizeof(uint32));
		}
		writer->hashes[writer->rows] = hash;
	}
	writer->rows++;
}

uint32
strata_group_writer_rows(StrataGroupWriter *writer)
{
	return writer->rows;
}

uint64
strata_group_writer_raw_bytes(StrataGroupWriter *writer)
{
	return writer->raw_bytes;
}
