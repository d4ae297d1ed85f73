/*-------------------------------------------------------------------------
 *
 * rowgroup_reader.c
 *	  Reading row groups: the bytes of format.h in, rows out.
 *
 * A reader has a slot for each column it is asked for, which holds the decoded
 * vector that the current row lies in.  Fetching a row of the same vectors is
 * an array access a column.
 *
 * A sequential reader decodes into buffers of its own and uses them again for
 * the next vector; a scan would only flush the cache.  A reader of single rows
 * finds vectors in the backend's cache (cache.c) or puts them there, and pins
 * what its slots hold, so that what it handed out survives eviction.  Footers
 * are cached in both cases.
 *
 * The reader lives in a memory context of its own below the caller's, whose
 * reset callback lets go of the pins: strata_group_close, the end of the
 * caller's context and an error all do the same.
 *
 * Pages are copied from under a share lock by strata_extent_read, which checks
 * that they still belong to the row group; no lock is held in here.
 *
 * What is wrong with the bytes raises XX001 and names the relation and the row
 * group's first block.  Only a reader of a damaged row group (salvage) goes
 * round what cannot be read: its caller asks for the other rows alone.
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_reader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/dictionary.h"
#include "base/rowgroup_reader.h"
#include "storage/extent.h"
#include "storage/salvage.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Read with the trailer, so that most footers take one read. */
#define FOOTER_GUESS	4096

/* A larger buffer is not kept for the next vector. */
#define BUFFER_KEEP		(1024 * 1024)

struct StrataReaderSlot
{
	int			att;			/* attribute number - 1 */
	const StrataFooterColumn *column;	/* NULL: no such column, all null */

	/* the current vector: rows first .. first + rows - 1 */
	uint32		first;
	uint32		rows;
	uint32		mask;
	const Datum *values;
	const bool *nulls;

	StrataCacheEntry *entry;	/* pinned, if not sequential */
	char	   *buffer;			/* if sequential */
	Size		buffer_size;
	uint32		next;			/* sequential: vector to try first */
};
typedef StrataReaderSlot Slot;

static void corrupt(StrataGroupReader *reader, AttrNumber attnum, uint32 vector,
					const char *what) pg_attribute_noreturn();

static void
corrupt(StrataGroupReader *reader, AttrNumber attnum, uint32 vector, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s of relation \"%s\" is corrupted", reader->object,
					RelationGetRelationName(reader->storage)),
			 attnum == 0 ? errdetail("Found %s.", what) :
			 errdetail("Found %s in vector %u of column %d.", what, vector, attnum)));
}

/* False, in a salvage reader alone, when they cannot be read. */
bool
strata_reader_bytes(StrataGroupReader *reader, uint64 offset, Size len, void *dst)
{
	if (reader->salvage)
		return strata_extent_salvage(reader->storage, &reader->ref.extent, offset, len, dst);
	strata_extent_read(reader->storage, &reader->ref.extent, offset, len, dst,
					   reader->strategy, reader->object);
	return true;
}

static void
release_pins(void *arg)
{
	StrataGroupReader *reader = arg;

	for (int i = 0; i < reader->nslots; i++)
	{
		if (reader->slots[i].entry != NULL)
			strata_cache_unpin(reader->slots[i].entry);
		reader->slots[i].entry = NULL;
	}
	for (uint32 i = 0; reader->dictionaries != NULL && i < reader->footer->ncolumns; i++)
	{
		if (reader->dictionaries[i] != NULL)
			strata_cache_unpin(reader->dictionaries[i]);
	}
	reader->dictionaries = NULL;
	if (reader->footer_entry != NULL)
		strata_cache_unpin(reader->footer_entry);
	reader->footer_entry = NULL;
}

static StrataCacheKey
cache_key(StrataGroupReader *reader, AttrNumber attnum, uint32 vector)
{
	StrataCacheKey key = {
		.relid = RelationGetRelid(reader->storage),
		.filenode = reader->storage->rd_rel->relfilenode,
		.owner = reader->ref.extent.owner,
		.vector = vector,
		.attnum = attnum};

	return key;
}

/*
 * Read, check and decode the footer into a new cache entry.  Returns NULL, or
 * what is wrong.
 */
const char *
strata_reader_footer(StrataGroupReader *reader)
{
	uint64		length = reader->ref.length;
	Size		guess = Min(length, FOOTER_GUESS);
	char	   *buffer;
	char	   *bytes;
	uint32		footer_length;
	uint32		version;
	Size		size;
	const char *what;

	if (length < sizeof(StrataGroupHeader) + sizeof(StrataGroupTrailer) ||
		length > (uint64) reader->ref.extent.nblocks * STRATA_PAGE_CAPACITY)
		return "a length that does not fit its extent";

	buffer = MemoryContextAlloc(reader->mcxt, guess);
	if (!strata_reader_bytes(reader, length - guess, guess, buffer))
		return "a footer that cannot be read";
	what = strata_trailer_check(buffer + guess - sizeof(StrataGroupTrailer), length,
								&footer_length);
	if (what != NULL)
		return what;
	size = footer_length + sizeof(StrataGroupTrailer);
	if (size <= guess)
		bytes = buffer + guess - size;
	else
	{
		bytes = MemoryContextAlloc(reader->mcxt, size);
		if (!strata_reader_bytes(reader, length - size, size - guess, bytes))
			return "a footer that cannot be read";
		memcpy(bytes + size - guess, buffer, guess);
	}

	what = strata_footer_crc_check(bytes, footer_length, &version);
	if (what != NULL)
		return what;
	if (version != STRATA_ROW_GROUP_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s of relation \"%s\" has format version %u, this version of strata reads version %u",
						reader->object, RelationGetRelationName(reader->storage),
						version, STRATA_ROW_GROUP_VERSION)));

	what = strata_footer_size(bytes, footer_length, length, reader->ref.rows, &size);
	if (what != NULL)
		return what;
	reader->footer_entry = strata_cache_alloc(size);
	reader->footer = (StrataFooter *) STRATA_CACHE_PAYLOAD(reader->footer_entry);
	what = strata_footer_decode(bytes, unconstify(StrataFooter *, reader->footer));
	if (what != NULL)
		return what;

	if (footer_length + sizeof(StrataGroupTrailer) > guess)
		pfree(bytes);
	pfree(buffer);
	return NULL;
}

static void
init_slot(StrataGroupReader *reader, Slot *slot, int att)
{
	Form_pg_attribute attr = TupleDescAttr(reader->store->desc, att);
	const StrataFooterColumn *column;

	memset(slot, 0, sizeof(*slot));
	slot->att = att;
	if (attr->attisdropped || att >= (int) reader->footer->natts)
		return;

	column = strata_footer_column(reader->footer, att + 1);
	if (column == NULL)
		corrupt(reader, 0, 0, psprintf("no column %d", att + 1));

	/*
	 * The type may be another one by now: the store's column signature sees to
	 * it that the bytes mean the same.
	 */
	if (column->type.attlen != attr->attlen || column->type.byval != attr->attbyval ||
		column->type.align != attr->attalign)
		corrupt(reader, 0, 0, psprintf("another layout of the type of column %d", att + 1));
	slot->column = column;
}

/* A reader that knows where its row group is and nothing else. */
StrataGroupReader *
strata_reader_begin(StrataStore *store, Relation storage, const StrataGroupRef *ref, bool sequential)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row group reader",
											   ALLOCSET_SMALL_SIZES);
	StrataGroupReader *reader = MemoryContextAllocZero(mcxt, sizeof(StrataGroupReader));

	reader->mcxt = mcxt;
	reader->store = store;
	reader->storage = storage;
	reader->ref = *ref;
	reader->sequential = sequential;
	snprintf(reader->object, sizeof(reader->object), "row group at block %u",
			 ref->extent.block);
	reader->callback.func = release_pins;
	reader->callback.arg = reader;
	MemoryContextRegisterResetCallback(mcxt, &reader->callback);

	if (sequential && RelationGetNumberOfBlocks(storage) > (BlockNumber) NBuffers / 4)
	{
		MemoryContext old = MemoryContextSwitchTo(mcxt);

		reader->strategy = GetAccessStrategy(BAS_BULKREAD);
		MemoryContextSwitchTo(old);
	}
	return reader;
}

/* Read the footer and make the slots. */
static StrataGroupReader *
open_reader(StrataGroupReader *reader, const Bitmapset *needed)
{
	StrataStore *store = reader->store;
	StrataCacheKey key = cache_key(reader, 0, 0);
	int			att = -1;

	reader->footer_entry = strata_cache_lookup(&key);
	if (reader->footer_entry != NULL)
		reader->footer = (StrataFooter *) STRATA_CACHE_PAYLOAD(reader->footer_entry);
	else
	{
		const char *what = strata_reader_footer(reader);

		if (what != NULL)
			corrupt(reader, 0, 0, what);
		strata_cache_insert(reader->footer_entry, &key);
	}
	reader->bytes_read += reader->footer->length;

	reader->slots = MemoryContextAlloc(reader->mcxt, (bms_num_members(needed) +
													  store->key.natts + 1) *
														 sizeof(Slot));
	while ((att = bms_next_member(needed, att)) >= 0)
	{
		if (att < 1 || att > store->desc->natts)
			elog(ERROR, "attribute number %d is out of range", att);
		init_slot(reader, &reader->slots[reader->nslots], att - 1);
		reader->nslots++;
		if (att > (int) reader->footer->natts)
			reader->fill_missing = true;
	}
	reader->nneeded = reader->nslots;
	return reader;
}

StrataGroupReader *
strata_group_open(StrataStore *store, Relation storage, const StrataGroupRef *ref,
				  const Bitmapset *needed, bool sequential)
{
	return open_reader(strata_reader_begin(store, storage, ref, sequential), needed);
}

StrataGroupReader *
strata_group_open_damaged(StrataStore *store, Relation storage, const StrataGroupRef *ref,
						  const Bitmapset *needed)
{
	StrataGroupReader *reader = strata_reader_begin(store, storage, ref, true);

	reader->salvage = true;
	return open_reader(reader, needed);
}

void
strata_group_close(StrataGroupReader *reader)
{
	MemoryContextDelete(reader->mcxt);
}

uint32
strata_group_rows(StrataGroupReader *reader)
{
	return reader->footer->rows;
}

/* The vector of column that row lies in. */
static uint32
find_vector(const StrataFooter *footer, const StrataFooterColumn *column, uint32 row)
{
	const uint32 *first_rows = footer->first_rows + column->first_vector;
	uint32		low = 0;
	uint32		high = column->nvectors;

	/* the last one that begins at row or before */
	while (high - low > 1)
	{
		uint32		middle = (low + high) / 2;

		if (first_rows[middle] <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The zstd dictionary of a column, pinned for as long as the reader lives. */
const struct ZSTD_DDict_s *
strata_reader_dictionary(StrataGroupReader *reader, const StrataFooterColumn *column)
{
	int			i = column - reader->footer->columns;

	if (reader->dictionaries == NULL)
		reader->dictionaries = MemoryContextAllocZero(reader->mcxt, reader->footer->ncolumns *
													  sizeof(StrataCacheEntry *));
	if (reader->dictionaries[i] == NULL)
		reader->dictionaries[i] = strata_dictionary_pin(reader->store, reader->storage,
														column->dictionary, column->attnum);
	return strata_dictionary_get(reader->dictionaries[i]);
}

/*
 * Read and decode a vector into memory of strata_vector_size bytes.  Returns
 * NULL, or what is wrong.
 */
const char *
strata_reader_decode(StrataGroupReader *reader, const StrataFooterColumn *column, uint32 vector,
			  StrataVector *out, char *memory)
{
	const StrataVectorEntry *entry =
		&reader->footer->entries[column->first_vector + vector];
	const struct ZSTD_DDict_s *dictionary = NULL;
	char	   *target;
	const char *what;

	/* before the scratch buffers are ours */
	if ((entry->flags & STRATA_VECTOR_SHARED) != 0)
		dictionary = strata_reader_dictionary(reader, column);

	strata_vector_layout(out, memory, &column->type, entry);
	target = strata_vector_target(out, &column->type, entry);
	if (entry->length > 0 &&
		!strata_reader_bytes(reader, reader->footer->offsets[column->first_vector + vector],
					entry->length, target))
		return "bytes that cannot be read";
	what = strata_vector_decode(out, &column->type, entry, dictionary, target);
	reader->bytes_decoded += entry->raw_length;
	if (entry->length > BUFFER_KEEP || entry->raw_length > BUFFER_KEEP)
		strata_scratch_trim();
	return what;
}

static void
show_vector(Slot *slot, uint32 first, const StrataVector *vector)
{
	slot->first = first;
	slot->rows = vector->rows;
	slot->mask = vector->mask;
	slot->values = vector->values;
	slot->nulls = vector->nulls;
}

/* A vector for a reader of single rows: from the cache, or into it. */
static void
load_cached(StrataGroupReader *reader, Slot *slot, uint32 vector, Size size)
{
	StrataCacheKey key = cache_key(reader, slot->column->attnum, vector);
	uint32		first = reader->footer->first_rows[slot->column->first_vector + vector];
	Size		header = MAXALIGN(sizeof(StrataVector));
	StrataVector *decoded;
	const char *what;

	slot->rows = 0;
	if (slot->entry != NULL)
	{
		StrataCacheEntry *old = slot->entry;

		slot->entry = NULL;
		strata_cache_unpin(old);
	}
	slot->entry = strata_cache_lookup(&key);
	if (slot->entry == NULL)
	{
		slot->entry = strata_cache_alloc(header + size);
		decoded = (StrataVector *) STRATA_CACHE_PAYLOAD(slot->entry);
		what = strata_reader_decode(reader, slot->column, vector, decoded, (char *) decoded + header);
		if (what != NULL)
			corrupt(reader, slot->column->attnum, vector, what);
		strata_cache_insert(slot->entry, &key);
	}
	decoded = (StrataVector *) STRATA_CACHE_PAYLOAD(slot->entry);
	show_vector(slot, first, decoded);
}

/* A vector for a sequential reader: into the slot's buffer. */
static void
load_sequential(StrataGroupReader *reader, Slot *slot, uint32 vector, Size size)
{
	StrataVector decoded;
	const char *what;

	slot->rows = 0;
	if (size > slot->buffer_size || (slot->buffer_size > BUFFER_KEEP && size <= BUFFER_KEEP))
	{
		if (slot->buffer != NULL)
			pfree(slot->buffer);
		slot->buffer = NULL;
		slot->buffer_size = 0;
		slot->buffer = MemoryContextAllocHuge(reader->mcxt, size);
		slot->buffer_size = size;
	}
	what = strata_reader_decode(reader, slot->column, vector, &decoded, slot->buffer);
	if (what != NULL)
		corrupt(reader, slot->column->attnum, vector, what);
	show_vector(slot, reader->footer->first_rows[slot->column->first_vector + vector],
				&decoded);
	slot->next = vector + 1;
}

/* Have slot show the vector that row lies in. */
static pg_noinline void
load_slot(StrataGroupReader *reader, Slot *slot, uint32 row)
{
	static const Datum no_value = (Datum) 0;
	static const bool is_null = true;
	const StrataFooter *footer = reader->footer;
	const StrataFooterColumn *column = slot->column;
	const StrataVectorEntry *entry;
	uint32		vector;
	Size		size;

	if (row >= footer->rows)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("%s of relation \"%s\" has no row %u", reader->object,
						RelationGetRelationName(reader->storage), row),
				 errdetail("It has %u rows.", footer->rows)));
	if (column == NULL)
	{
		slot->first = 0;
		slot->rows = footer->rows;
		slot->mask = 0;
		slot->values = &no_value;
		slot->nulls = &is_null;
		return;
	}

	CHECK_FOR_INTERRUPTS();
	if (slot->next < column->nvectors &&
		footer->first_rows[column->first_vector + slot->next] == row)
		vector = slot->next;
	else
		vector = find_vector(footer, column, row);

	entry = &footer->entries[column->first_vector + vector];
	size = strata_vector_size(&column->type, entry);
	if (reader->sequential)
		load_sequential(reader, slot, vector, size);
	else
		load_cached(reader, slot, vector, size);
	reader->bytes_read += entry->length;
}

static inline Datum
slot_value(StrataGroupReader *reader, Slot *slot, uint32 row, bool *isnull)
{
	uint32		i = row - slot->first;

	if (unlikely(i >= slot->rows))
	{
		load_slot(reader, slot, row);
		i = row - slot->first;
	}
	i &= slot->mask;
	*isnull = slot->nulls != NULL && slot->nulls[i];
	return slot->values[i];
}

void
strata_group_fetch(StrataGroupReader *reader, uint32 row, Datum *values, bool *isnull)
{
	int			natts = reader->store->desc->natts;

	if (reader->nneeded < natts)
	{
		memset(values, 0, natts * sizeof(Datum));
		memset(isnull, true, natts * sizeof(bool));
	}
	strata_group_fetch_again(reader, row, values, isnull);
}

/* What strata_group_fetch_again does where it takes more than an array access. */
static pg_noinline bool
fetch_loading(StrataGroupReader *reader, uint32 row, Datum *values, bool *isnull)
{
	for (int i = 0; i < reader->nneeded; i++)
	{
		Slot	   *slot = &reader->slots[i];

		values[slot->att] = slot_value(reader, slot, row, &isnull[slot->att]);
	}
	if (reader->fill_missing)
		strata_store_fill_missing(reader->store, reader->footer->natts, values, isnull);
	return true;
}

bool
strata_group_fetch_again(StrataGroupReader *reader, uint32 row, Datum *values, bool *isnull)
{
	Slot	   *end = reader->slots + reader->nneeded;

	/* calls at the end alone, so that a row costs no saving of registers */
	for (Slot *slot = reader->slots; slot < end; slot++)
	{
		uint32		i = row - slot->first;

		if (unlikely(i >= slot->rows))
			return fetch_loading(reader, row, values, isnull);
		i &= slot->mask;
		values[slot->att] = slot->values[i];
		isnull[slot->att] = slot->nulls != NULL && slot->nulls[i];
	}
	if (unlikely(reader->fill_missing))
		return fetch_loading(reader, row, values, isnull);
	return true;
}

/* Find or make the slots of the key columns. */
static void
prepare_key(StrataGroupReader *reader)
{
	const StrataKey *key = &reader->store->key;

	for (int i = 0; i < key->natts; i++)
	{
		int			att = key->attnum[i] - 1;
		int			slot = 0;

		while (slot < reader->nslots && reader->slots[slot].att != att)
			slot++;
		if (slot == reader->nslots)
		{
			init_slot(reader, &reader->slots[slot], att);
			reader->nslots++;
		}
		reader->key_slots[i] = slot;
	}
	reader->key_ready = true;
}

void
strata_group_fetch_key(StrataGroupReader *reader, uint32 row, Datum *keyvalues)
{
	int			natts = reader->store->key.natts;

	if (!reader->key_ready)
		prepare_key(reader);
	for (int i = 0; i < natts; i++)
	{
		Slot	   *slot = &reader->slots[reader->key_slots[i]];
		bool		isnull;

		keyvalues[i] = slot_value(reader, slot, row, &isnull);
		if (unlikely(isnull))
			corrupt(reader, 0, 0, psprintf("a null in key column %d", slot->att + 1));
	}
}

const uint32 *
strata_group_hashes(StrataGroupReader *reader)
{
	const StrataFooter *footer = reader->footer;

	if (reader->hashes == NULL)
	{
		uint32	   *hashes = MemoryContextAllocZero(reader->mcxt,
													footer->rows * sizeof(uint32));

		if (footer->hash_length > 0)
		{
			if (!strata_reader_bytes(reader, footer->hash_offset, footer->hash_length, hashes))
				corrupt(reader, 0, 0, "key hashes that cannot be read");
			if (strata_crc(hashes, footer->hash_length) != footer->hash_crc)
				corrupt(reader, 0, 0, "key hashes with the wrong checksum");
			reader->bytes_read += footer->hash_length;
			reader->bytes_decoded += footer->hash_length;
		}
		else if (reader->store->key.natts > 0)
			corrupt(reader, 0, 0, "no key hashes");
		reader->hashes = hashes;
	}
	return reader->hashes;
}

void
strata_group_io(StrataGroupReader *reader, uint64 *bytes_read, uint64 *bytes_decoded)
{
	*bytes_read = reader->bytes_read;
	*bytes_decoded = reader->bytes_decoded;
}

bytea *
strata_group_zones(StrataGroupReader *reader)
{
	const StrataFooter *footer = reader->footer;
	bytea	   *zones;

	if (footer->zones_length == 0)
		return NULL;
	zones = palloc(VARHDRSZ + footer->zones_length);
	SET_VARSIZE(zones, VARHDRSZ + footer->zones_length);
	memcpy(VARDATA(zones), footer->zones, footer->zones_length);
	return zones;
}
