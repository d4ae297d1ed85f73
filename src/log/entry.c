/*-------------------------------------------------------------------------
 *
 * entry.c
 *	  Translates rows and references into the bytes of a log entry, and back.
 *
 * Bytes of an entry: StrataEntryHeader, then by type
 *
 *	ROWS		uint32 key hashes of rows, then of tombstones, padded to
 *				MAXALIGN; then one minimal tuple each in the same order, each
 *				padded to MAXALIGN (of tombstones: of the key columns), the
 *				whole as one zstd frame when that pays.  Tombstones have
 *				STRATA_ROW_... marks in t_infomask2; behind one that is
 *				REKEYED stands another tuple of the key columns, the row's
 *				next key.  Hashes stay uncompressed so that keys can be
 *				indexed without decoding.
 *	EXTENT		StrataExtent
 *	ROW_GROUP	StrataGroupRef
 *	LOST		whatever was there
 *
 * Locks: none; everything here works on memory.
 *
 * Invariants:
 *
 *	- Padding is zero, so equal rows give equal bytes.
 *	- The CRC covers everything but itself and the two flags that freezing
 *	  sets, so an entry can be frozen without being read as a whole.
 *	- Decoding trusts nothing: an entry is checked as a whole first
 *	  (strata_entry_check), and tuples are taken apart within their bounds
 *	  here, since table and entry may disagree about the columns even when the
 *	  CRC is right.
 *
 * IDENTIFICATION
 *	  src/log/entry.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/entry.h"

#include <zstd.h>

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "port/pg_crc32c.h"
#include "utils/memutils.h"

/* Below this a zstd frame costs more time than its bytes are worth. */
#define COMPRESS_MIN_BYTES		512

struct StrataEntryDecoder
{
	const StrataStore *store;
	const StrataEntryHeader *entry;
	char	   *raw;			/* the tuples */
	bool		raw_owned;		/* palloc'd, else inside entry */
	MinimalTuple *tuples;		/* [rows + tombstones] */
	MinimalTuple *next_keys;	/* [tombstones], NULL where there is none; NULL:
								 * there is none at all */
	Datum	   *scratch_values; /* [desc->natts], for keys of rows */
	bool	   *scratch_isnull;
	AttrNumber	last_key_attnum;
};

/* Kept for the backend's life: making one costs more than a small entry. */
static ZSTD_CCtx *entry_cctx = NULL;
static ZSTD_DCtx *entry_dctx = NULL;

static Size
rows_prefix_length(uint32 nkeys)
{
	return MAXALIGN(sizeof(StrataEntryHeader)) + MAXALIGN((Size) nkeys * sizeof(uint32));
}

static pg_crc32c
entry_crc(const StrataEntryHeader *entry)
{
	StrataEntryHeader header = *entry;
	pg_crc32c	crc;

	header.flags &= ~STRATA_ENTRY_FROZEN_MASK;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, (char *) &header + sizeof(header.crc),
				sizeof(header) - sizeof(header.crc));
	COMP_CRC32C(crc, (const char *) entry + sizeof(header),
				entry->length - sizeof(header));
	FIN_CRC32C(crc);
	return crc;
}

void
strata_entry_set_crc(StrataEntryHeader *entry)
{
	entry->crc = entry_crc(entry);
}

void
strata_entry_set_lost(StrataEntryHeader *entry, uint32 length, uint32 rows)
{
	Assert(length >= sizeof(StrataEntryHeader));
	memset(entry, 0, sizeof(*entry));
	entry->length = length;
	entry->fxid = FirstNormalTransactionId;
	entry->type = STRATA_ENTRY_LOST;
	entry->flags = STRATA_ENTRY_FROZEN_ABORTED;
	entry->rows = rows;
	strata_entry_set_crc(entry);
}

/* ---- encoding ---- */

/* Bytes of a minimal tuple, padding included. */
static Size
tuple_length(TupleDesc desc, Datum *values, bool *isnull, Size *data_length, bool *has_null)
{
	Size		length = SizeofMinimalTupleHeader;

	*has_null = false;
	for (int i = 0; i < desc->natts; i++)
	{
		if (isnull[i])
		{
			*has_null = true;
			length += BITMAPLEN(desc->natts);
			break;
		}
	}
	*data_length = heap_compute_data_size(desc, values, isnull);
	return MAXALIGN(MAXALIGN(length) + *data_length);
}

/* Make a minimal tuple in zeroed memory of tuple_length() bytes. */
static void
fill_tuple(MinimalTuple tuple, TupleDesc desc, Datum *values, bool *isnull,
		   Size data_length, bool has_null)
{
	Size		offset = SizeofMinimalTupleHeader;

	if (has_null)
		offset += BITMAPLEN(desc->natts);
	offset = MAXALIGN(offset);
	tuple->t_len = offset + data_length;
	tuple->t_infomask2 = (uint16) desc->natts;
	tuple->t_hoff = offset + MINIMAL_TUPLE_OFFSET;
	heap_fill_tuple(desc, values, isnull, (char *) tuple + offset, data_length,
					&tuple->t_infomask, has_null ? tuple->t_bits : NULL);
}

/*
 * The zstd frame of raw in dst, 0 when it does not fit there.
 */
static Size
compress_tuples(char *dst, Size capacity, const char *raw, Size raw_length, int level)
{
	size_t		size;

	if (entry_cctx == NULL)
	{
		entry_cctx = ZSTD_createCCtx();
		if (entry_cctx == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory"),
					 errdetail("Failed while creating a compression context.")));
	}
	size = ZSTD_compressCCtx(entry_cctx, dst, capacity, raw, raw_length, level);
	return ZSTD_isError(size) ? 0 : size;
}

/* The tuples of an entry being encoded, before compression. */
typedef struct RawTuples
{
	char	   *bytes;
	Size		length;
	Size		capacity;
} RawTuples;

/* Add a tuple; NULL when that would be more than an entry may have. */
static MinimalTuple
add_tuple(RawTuples *raw, TupleDesc desc, Datum *values, bool *isnull)
{
	Size		data_length;
	Size		length;
	bool		has_null;
	MinimalTuple tuple;

	/* Never form a tuple before its size is known to be in bounds. */
	length = tuple_length(desc, values, isnull, &data_length, &has_null);
	if (length > STRATA_MAX_ENTRY_RAW - raw->length)
		return NULL;
	if (raw->length + length > raw->capacity)
	{
		Size		old_capacity = raw->capacity;

		raw->capacity = Min(Max(raw->capacity * 2, raw->length + length), STRATA_MAX_ENTRY_RAW);
		raw->bytes = repalloc(raw->bytes, raw->capacity);
		memset(raw->bytes + old_capacity, 0, raw->capacity - old_capacity);
	}
	tuple = (MinimalTuple) (raw->bytes + raw->length);
	fill_tuple(tuple, desc, values, isnull, data_length, has_null);
	raw->length += length;
	return tuple;
}

/* Add a row, or a tombstone and what belongs to it. */
static bool
add_row(RawTuples *raw, const StrataStore *store, const StrataLogRow *row)
{
	bool		no_nulls[INDEX_MAX_KEYS] = {0};
	MinimalTuple tuple;

	if (!row->tombstone)
		return add_tuple(raw, store->desc, row->values, row->isnull) != NULL;

	tuple = add_tuple(raw, store->key.desc, row->values, no_nulls);
	if (tuple == NULL)
		return false;
	if (row->moved)
		tuple->t_infomask2 |= STRATA_ROW_MOVED;
	if (row->next_key == NULL)
		return true;
	tuple->t_infomask2 |= STRATA_ROW_REKEYED;
	return add_tuple(raw, store->key.desc, row->next_key, no_nulls) != NULL;
}

StrataEntryHeader *
strata_entry_encode_rows(const StrataStore *store, FullTransactionId fxid, CommandId cid,
						 const StrataLogRow *rows, int nrows, uint16 flags)
{
	uint32		ntombstones = 0;
	Size		prefix;
	Size		room;
	Size		compressed = 0;
	RawTuples	raw;
	char	   *bytes;
	StrataEntryHeader *entry;
	uint32	   *hashes;

	if (nrows <= 0 || nrows > STRATA_MAX_ENTRY_ROWS)
		return NULL;
	prefix = rows_prefix_length(nrows);
	if (prefix >= STRATA_MAX_ENTRY_SIZE)
		return NULL;
	room = STRATA_MAX_ENTRY_SIZE - prefix;

	raw.length = 0;
	raw.capacity = STRATA_LOG_PAGE_CAPACITY;
	raw.bytes = palloc0(raw.capacity);
	for (int i = 0; i < nrows; i++)
	{
		Assert(rows[i].tombstone || ntombstones == 0);
		if (rows[i].tombstone)
			ntombstones++;
		if (!add_row(&raw, store, &rows[i]))
		{
			pfree(raw.bytes);
			return NULL;
		}
	}

	bytes = palloc0(prefix + Min(raw.length, room));
	if (store->options->compression_level != 0 && raw.length >= COMPRESS_MIN_BYTES)
	{
		/*
		 * Where the tuples fit as they are, a frame must save an eighth to be
		 * worth decoding; where they do not, any frame that fits will do.
		 */
		Size		most = raw.length <= room ? raw.length - raw.length / 8 : room;

		compressed = compress_tuples(bytes + prefix, most, raw.bytes, raw.length,
									 store->options->compression_level);
	}
	if (compressed == 0)
	{
		if (raw.length > room)
		{
			pfree(bytes);
			pfree(raw.bytes);
			return NULL;
		}
		memcpy(bytes + prefix, raw.bytes, raw.length);
	}
	pfree(raw.bytes);

	entry = (StrataEntryHeader *) bytes;
	entry->length = prefix + (compressed != 0 ? compressed : raw.length);
	entry->fxid = U64FromFullTransactionId(fxid);
	entry->cid = cid;
	entry->type = STRATA_ENTRY_ROWS;
	entry->flags = flags | (compressed != 0 ? STRATA_ENTRY_COMPRESSED : 0);
	entry->rows = nrows - ntombstones;
	entry->tombstones = ntombstones;
	entry->raw_length = raw.length;
	entry->natts = store->desc->natts;
	hashes = (uint32 *) (bytes + MAXALIGN(sizeof(StrataEntryHeader)));
	for (int i = 0; i < nrows; i++)
		hashes[i] = rows[i].hash;
	strata_entry_set_crc(entry);
	return entry;
}

void
strata_entry_fill_extent(StrataExtentEntry *entry, FullTransactionId fxid, CommandId cid,
						 const StrataExtent *extent)
{
	memset(entry, 0, sizeof(*entry));
	entry->header.length = sizeof(*entry);
	entry->header.fxid = U64FromFullTransactionId(fxid);
	entry->header.cid = cid;
	entry->header.type = STRATA_ENTRY_EXTENT;
	entry->extent = *extent;
	strata_entry_set_crc(&entry->header);
}

StrataEntryHeader *
strata_entry_encode_group(FullTransactionId fxid, CommandId cid, uint16 natts,
						  const StrataGroupRef *ref, uint16 flags)
{
	Size		length = MAXALIGN(sizeof(StrataEntryHeader)) + sizeof(StrataGroupRef);
	StrataEntryHeader *entry = palloc0(length);

	entry->length = length;
	entry->fxid = U64FromFullTransactionId(fxid);
	entry->cid = cid;
	entry->type = STRATA_ENTRY_ROW_GROUP;
	entry->flags = flags;
	entry->rows = ref->rows;
	entry->natts = natts;
	memcpy((char *) entry + MAXALIGN(sizeof(StrataEntryHeader)), ref, sizeof(*ref));
	strata_entry_set_crc(entry);
	return entry;
}

/* ---- checking ---- */

static const char *
check_extent(const StrataExtent *extent)
{
	if (extent->owner == 0 || extent->owner >= STRATA_MAX_OWNER)
		return "extent has an impossible owner";
	if (extent->nblocks == 0 || extent->block > STRATA_MAX_BLOCK ||
		extent->nblocks > STRATA_MAX_BLOCK - extent->block)
		return "extent has impossible blocks";
	return NULL;
}

static const char *
check_rows(const StrataEntryHeader *entry)
{
	uint64		nkeys = (uint64) entry->rows + entry->tombstones;
	Size		prefix;

	if (nkeys == 0 || nkeys > STRATA_MAX_ENTRY_ROWS)
		return "impossible number of rows";
	prefix = rows_prefix_length((uint32) nkeys);
	if (prefix > entry->length)
		return "key hashes do not fit its length";
	if (entry->raw_length > STRATA_MAX_ENTRY_RAW ||
		entry->raw_length < nkeys * MAXALIGN(SizeofMinimalTupleHeader))
		return "impossible length of rows";
	if (!(entry->flags & STRATA_ENTRY_COMPRESSED) &&
		entry->raw_length != entry->length - prefix)
		return "length of rows differs from its length";
	if (entry->natts > MaxTupleAttributeNumber)
		return "impossible number of columns";
	return NULL;
}

static const char *
check_group(const StrataEntryHeader *entry)
{
	StrataGroupRef ref;
	const char *fault;

	if (entry->length != MAXALIGN(sizeof(StrataEntryHeader)) + sizeof(StrataGroupRef))
		return "wrong length for a row group";
	memcpy(&ref, strata_entry_group(entry), sizeof(ref));
	fault = check_extent(&ref.extent);
	if (fault != NULL)
		return fault;
	if (ref.rows == 0 || ref.rows > STRATA_MAX_GROUP_ROWS || ref.rows != entry->rows ||
		entry->tombstones != 0)
		return "impossible number of rows";
	if (ref.length == 0 ||
		ref.length > (uint64) ref.extent.nblocks * STRATA_PAGE_CAPACITY)
		return "row group is longer than its extent";
	return NULL;
}

const char *
strata_entry_check_header(const StrataEntryHeader *header)
{
	if (header->length < MAXALIGN(sizeof(StrataEntryHeader)) ||
		header->length > STRATA_MAX_ENTRY_SIZE)
		return "impossible entry length";
	if (!TransactionIdIsNormal(XidFromFullTransactionId(FullTransactionIdFromU64(header->fxid))))
		return "impossible transaction number";
	if ((header->flags &
		 ~(STRATA_ENTRY_FROZEN_MASK | STRATA_ENTRY_COMPRESSED | STRATA_ENTRY_LOCKED)) != 0 ||
		(header->flags & STRATA_ENTRY_FROZEN_MASK) == STRATA_ENTRY_FROZEN_MASK)
		return "impossible entry flags";
	return NULL;
}

const char *
strata_entry_check(const StrataEntryHeader *entry, Size available)
{
	const char *fault;

	if (available < sizeof(StrataEntryHeader))
		return "entry header is cut off";
	fault = strata_entry_check_header(entry);
	if (fault != NULL)
		return fault;
	if (entry->length > available)
		return "entry is cut off";
	if (entry->crc != entry_crc(entry))
		return "checksum of entry does not match";

	switch (entry->type)
	{
		case STRATA_ENTRY_ROWS:
			return check_rows(entry);
		case STRATA_ENTRY_EXTENT:
			{
				StrataExtent extent;

				if (entry->length != sizeof(StrataExtentEntry))
					return "wrong length for an extent";
				memcpy(&extent, strata_entry_extent(entry), sizeof(extent));
				return check_extent(&extent);
			}
		case STRATA_ENTRY_ROW_GROUP:
			return check_group(entry);
		case STRATA_ENTRY_LOST:
			return (entry->flags & STRATA_ENTRY_FROZEN_ABORTED) != 0 ? NULL : "lost entry counts";
	}
	return "unknown entry type";
}

/* ---- decoding ---- */

static void entry_damaged(const StrataEntryDecoder *decoder, const char *what) pg_attribute_noreturn();

static void
entry_damaged(const StrataEntryDecoder *decoder, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("log entry of transaction " UINT64_FORMAT " of %s is damaged: %s",
					decoder->entry->fxid, decoder->store->name, what)));
}

static void
decompress_tuples(StrataEntryDecoder *decoder, const char *frame, Size frame_length)
{
	size_t		size;

	if (entry_dctx == NULL)
	{
		entry_dctx = ZSTD_createDCtx();
		if (entry_dctx == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("out of memory"),
					 errdetail("Failed while creating a decompression context.")));
	}
	decoder->raw = palloc(decoder->entry->raw_length);
	decoder->raw_owned = true;
	size = ZSTD_decompressDCtx(entry_dctx, decoder->raw, decoder->entry->raw_length,
							   frame, frame_length);
	if (ZSTD_isError(size))
		entry_damaged(decoder, ZSTD_getErrorName(size));
	if (size != decoder->entry->raw_length)
		entry_damaged(decoder, "rows have another length than recorded");
}

/*
 * Check the tuple at offset of raw and return its length, padding included.
 */
static Size
check_tuple(const StrataEntryDecoder *decoder, Size offset, int natts)
{
	Size		left = decoder->entry->raw_length - offset;
	MinimalTuple tuple = (MinimalTuple) (decoder->raw + offset);
	Size		data;
	Size		header = SizeofMinimalTupleHeader;

	if (left < SizeofMinimalTupleHeader)
		entry_damaged(decoder, "row is cut off");
	if (tuple->t_len < SizeofMinimalTupleHeader || MAXALIGN((Size) tuple->t_len) > left)
		entry_damaged(decoder, "impossible row length");
	if ((tuple->t_infomask2 & HEAP_NATTS_MASK) != natts)
		entry_damaged(decoder, "row has another number of columns than recorded");
	if (tuple->t_infomask & HEAP_HASNULL)
		header += BITMAPLEN(natts);
	if (tuple->t_hoff < MINIMAL_TUPLE_OFFSET)
		entry_damaged(decoder, "impossible row header");
	data = tuple->t_hoff - MINIMAL_TUPLE_OFFSET;
	if (data < header || data > tuple->t_len || data != MAXALIGN(data))
		entry_damaged(decoder, "impossible row header");
	return MAXALIGN((Size) tuple->t_len);
}

StrataEntryDecoder *
strata_entry_decode(const StrataStore *store, const StrataEntryHeader *entry)
{
	StrataEntryDecoder *decoder = palloc0(sizeof(StrataEntryDecoder));
	uint32		nkeys = entry->rows + entry->tombstones;
	Size		prefix = rows_prefix_length(nkeys);
	Size		offset = 0;

	Assert(entry->type == STRATA_ENTRY_ROWS);
	decoder->store = store;
	decoder->entry = entry;
	if (entry->natts > store->desc->natts)
		entry_damaged(decoder, "it has more columns than the table");
	for (int i = 0; i < store->key.natts; i++)
		decoder->last_key_attnum = Max(decoder->last_key_attnum, store->key.attnum[i]);

	if (entry->flags & STRATA_ENTRY_COMPRESSED)
		decompress_tuples(decoder, (const char *) entry + prefix, entry->length - prefix);
	else
		decoder->raw = (char *) entry + prefix;

	decoder->tuples = palloc(sizeof(MinimalTuple) * nkeys);
	for (uint32 i = 0; i < nkeys; i++)
	{
		decoder->tuples[i] = (MinimalTuple) (decoder->raw + offset);
		offset += check_tuple(decoder, offset,
							  i < entry->rows ? entry->natts : store->key.natts);
		if (i < entry->rows || (decoder->tuples[i]->t_infomask2 & STRATA_ROW_REKEYED) == 0)
			continue;
		if (decoder->next_keys == NULL)
			decoder->next_keys = palloc0(sizeof(MinimalTuple) * entry->tombstones);
		decoder->next_keys[i - entry->rows] = (MinimalTuple) (decoder->raw + offset);
		offset += check_tuple(decoder, offset, store->key.natts);
	}
	if (offset != entry->raw_length)
		entry_damaged(decoder, "bytes are left after the last row");
	return decoder;
}

/*
 * Length of the varlena that starts at p, 0 when it is not one that a row may
 * hold or goes beyond the left bytes.
 */
static Size
varlena_length(const char *p, Size left)
{
	Size		length;

	if (left < 1 || VARATT_IS_1B_E(p))
		return 0;
	if (VARATT_IS_1B(p))
		length = VARSIZE_1B(p);
	else if (left < VARHDRSZ)
		return 0;
	else
	{
		length = VARSIZE_4B(p);
		if (length < VARHDRSZ)
			return 0;
	}
	return length <= left ? length : 0;
}

/* Take the first natts columns of a checked tuple apart, within its bounds. */
static void
deform_tuple(const StrataEntryDecoder *decoder, MinimalTuple tuple, TupleDesc desc,
			 int natts, Datum *values, bool *isnull)
{
	bool		has_null = (tuple->t_infomask & HEAP_HASNULL) != 0;
	char	   *data = (char *) tuple + tuple->t_hoff - MINIMAL_TUPLE_OFFSET;
	Size		length = (char *) tuple + tuple->t_len - data;
	Size		offset = 0;

	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Size		size;

		if (has_null && att_isnull(i, tuple->t_bits))
		{
			values[i] = (Datum) 0;
			isnull[i] = true;
			continue;
		}
		isnull[i] = false;

		/* Whether a varlena is aligned shows in its first byte. */
		if (att->attlen != -1)
			offset = att_align_nominal(offset, att->attalign);
		else if (offset < length)
			offset = att_align_pointer(offset, att->attalign, -1, data + offset);
		if (offset > length)
			entry_damaged(decoder, "column lies outside its row");

		if (att->attlen > 0)
			size = att->attlen;
		else if (att->attlen == -1)
		{
			size = varlena_length(data + offset, length - offset);
			if (size == 0)
				entry_damaged(decoder, "column has an impossible length");
		}
		else
			size = strnlen(data + offset, length - offset) + 1;
		if (size > length - offset)
			entry_damaged(decoder, "column lies outside its row");
		values[i] = fetchatt(att, data + offset);
		offset += size;
	}
}

void
strata_entry_row(StrataEntryDecoder *decoder, uint32 row, Datum *values, bool *isnull)
{
	int			natts = decoder->entry->natts;

	if (row >= decoder->entry->rows)
		elog(ERROR, "row %u of a log entry with %u rows", row, decoder->entry->rows);
	deform_tuple(decoder, decoder->tuples[row], decoder->store->desc, natts, values, isnull);
	strata_store_fill_missing(decoder->store, natts, values, isnull);
}

/* Take a checked tuple of the key columns apart. */
static void
deform_key(const StrataEntryDecoder *decoder, MinimalTuple tuple, Datum *keyvalues)
{
	const StrataKey *key = &decoder->store->key;
	bool		isnull[INDEX_MAX_KEYS];

	deform_tuple(decoder, tuple, key->desc, key->natts, keyvalues, isnull);
	for (int i = 0; i < key->natts; i++)
	{
		if (isnull[i])
			entry_damaged(decoder, "key is null");
	}
}

void
strata_entry_key(StrataEntryDecoder *decoder, uint32 row, Datum *keyvalues)
{
	const StrataKey *key = &decoder->store->key;

	if (row >= decoder->entry->rows + decoder->entry->tombstones)
		elog(ERROR, "row %u of a log entry with %u rows and %u tombstones", row,
			 decoder->entry->rows, decoder->entry->tombstones);

	if (row >= decoder->entry->rows)
	{
		deform_key(decoder, decoder->tuples[row], keyvalues);
		return;
	}

	if (decoder->scratch_values == NULL)
	{
		MemoryContext mcxt = GetMemoryChunkContext(decoder);

		decoder->scratch_values = MemoryContextAlloc(mcxt, sizeof(Datum) * decoder->store->desc->natts);
		decoder->scratch_isnull = MemoryContextAlloc(mcxt, sizeof(bool) * decoder->store->desc->natts);
	}
	if (decoder->last_key_attnum > decoder->entry->natts)
		entry_damaged(decoder, "key column is missing");
	deform_tuple(decoder, decoder->tuples[row], decoder->store->desc, decoder->last_key_attnum,
				 decoder->scratch_values, decoder->scratch_isnull);
	for (int i = 0; i < key->natts; i++)
	{
		if (decoder->scratch_isnull[key->attnum[i] - 1])
			entry_damaged(decoder, "key is null");
		keyvalues[i] = decoder->scratch_values[key->attnum[i] - 1];
	}
}

bool
strata_entry_moved(StrataEntryDecoder *decoder, uint32 row)
{
	Assert(row < decoder->entry->rows + decoder->entry->tombstones);
	return row >= decoder->entry->rows &&
		(decoder->tuples[row]->t_infomask2 & STRATA_ROW_MOVED) != 0;
}

bool
strata_entry_next_key(StrataEntryDecoder *decoder, uint32 row, Datum *keyvalues)
{
	Assert(row < decoder->entry->rows + decoder->entry->tombstones);
	if (row < decoder->entry->rows || decoder->next_keys == NULL ||
		decoder->next_keys[row - decoder->entry->rows] == NULL)
		return false;
	deform_key(decoder, decoder->next_keys[row - decoder->entry->rows], keyvalues);
	return true;
}

void
strata_entry_decode_end(StrataEntryDecoder *decoder)
{
	if (decoder->raw_owned)
		pfree(decoder->raw);
	pfree(decoder->tuples);
	if (decoder->next_keys != NULL)
		pfree(decoder->next_keys);
	if (decoder->scratch_values != NULL)
	{
		pfree(decoder->scratch_values);
		pfree(decoder->scratch_isnull);
	}
	pfree(decoder);
}

const char *
strata_entry_check_rows(const StrataStore *store, int shard, const StrataEntryHeader *entry)
{
	const uint32 *hashes = strata_entry_hashes(entry);
	StrataEntryDecoder *decoder = strata_entry_decode(store, entry);
	Datum	   *values = palloc(sizeof(Datum) * store->desc->natts);
	bool	   *isnull = palloc(sizeof(bool) * store->desc->natts);

	for (uint32 row = 0; row < entry->rows + entry->tombstones; row++)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];

		if (row < entry->rows)
			strata_entry_row(decoder, row, values, isnull);
		if (store->key.natts == 0)
			continue;
		strata_entry_key(decoder, row, keyvalues);
		if (strata_key_hash(&store->key, keyvalues) != hashes[row])
			return psprintf("key hash of row %u is wrong", row);
		if (strata_key_shard(hashes[row], store->nshards) != shard)
			return psprintf("row %u belongs to another shard", row);
		(void) strata_entry_next_key(decoder, row, keyvalues);
	}
	strata_entry_decode_end(decoder);
	return NULL;
}
