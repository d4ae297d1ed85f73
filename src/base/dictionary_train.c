/*-------------------------------------------------------------------------
 *
 * dictionary_train.c
 *	  Dictionaries of a pass: which to use, when to make one.
 *
 * After a pass has finished a row group, while its compressed vectors are
 * still in memory, each wide column without a dictionary gets a chance:
 * about 1 MB of its vectors, evenly spread, is decompressed; pieces of every
 * second one make up the dictionary, the others tell what it is worth.  If it
 * pays, it is written and used from the next row group on.  The same happens
 * when a column's dictionary does clearly worse than when it was made; then the
 * new one must save more than its own size in a row group like the last one.
 * Where row groups keep turning out unlike the last one, that comes to nothing:
 * so all dictionaries of a store, which stay for the old row groups' sake, must
 * be a small part of it.
 *
 * After an attempt that did not pay, the column's next row groups are passed
 * over.
 *
 * Memory is bounded: STRATA_DICTIONARY_COLUMNS dictionaries in the form zstd
 * compresses with (about 470 kB each at level 3, counted by
 * strata_codec_memory), made when a writer first has them to use,
 * their content, and the sample of one column.  All of it goes with the memory context.
 *
 * Crash windows: a dictionary's extent belongs to nobody until the pass
 * commits the manifest row; sweep reclaims it.  Its id is the extent's owner
 * id, which the spare page gives once, so an id of a failed pass never comes
 * back.
 *
 * Locks: the pass's.
 *
 * IDENTIFICATION
 *	  src/base/dictionary_train.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <zdict.h>

#include "pause.h"
#include "base/codec.h"
#include "base/dictionary.h"
#include "storage/extent.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* Columns of a store that have dictionaries. */
#define STRATA_DICTIONARY_COLUMNS	8

/* Raw bytes of vectors to learn from, at least and at most. */
#define LEARN_MIN_BYTES		(256 * 1024)
#define LEARN_MAX_BYTES		(1024 * 1024)

/* Longer vectors gain little and are not looked at. */
#define LEARN_VECTOR_BYTES	(64 * 1024)

/* Bytes a row in those vectors from which on a column counts as wide. */
#define WIDE_ROW_BYTES		100

/* Most bytes taken over from a sample, and room for zstd's tables. */
#define CONTENT_MAX			(64 * 1024)
#define CONTENT_SHARE		4	/* of the bytes learned from */
#define CONTENT_PIECE		1024
#define TABLES_MAX			4096

/* A dictionary pays when it saves at least 1 / this of the bytes. */
#define DICTIONARY_PAYS		16

/* All dictionaries take at most this part of the base, or so many bytes. */
#define DICTIONARIES_SHARE	32
#define DICTIONARIES_MIN	(1024 * 1024)

/* Row groups to pass over after it did not pay to make one. */
#define LEARN_INTERVAL		4

/* One is behind at less than this part of the ratio it was made with. */
#define RATIO_BEHIND		0.8

StaticAssertDecl(CONTENT_MAX + TABLES_MAX <= STRATA_DICTIONARY_MAX,
				 "a dictionary may get longer than readers allow");

typedef struct DictionaryColumn
{
	AttrNumber	attnum;
	uint64		id;				/* 0: none (yet) */
	char	   *content;		/* palloc'd */
	Size		length;
	struct ZSTD_CDict_s *dictionary;
	double		ratio;			/* when made */
	int			skip;			/* row groups to pass over */
} DictionaryColumn;

struct StrataDictionaries
{
	MemoryContext mcxt;
	MemoryContextCallback callback;
	StrataStore *store;
	Relation	storage;
	uint32		incarnation;
	int			level;
	uint64		base_bytes;		/* of all row groups, stored */
	uint64		bytes;			/* of all dictionaries */
	int			ncolumns;
	DictionaryColumn columns[STRATA_DICTIONARY_COLUMNS];

	/* while learning */
	struct ZSTD_CDict_s *candidate;
	struct ZSTD_DDict_s *old;	/* the one that vectors were compressed with */
};

/* What a row group tells of a column's vectors. */
typedef struct VectorTotals
{
	uint64		vectors;		/* that can be learned from */
	uint64		rows;
	uint64		raw;
	uint64		stored;
	uint64		shared_raw;		/* of them, compressed with a dictionary */
	uint64		shared_stored;
} VectorTotals;

/* Vectors of a column, decompressed. */
typedef struct Sample
{
	const struct ZSTD_DDict_s *dictionary;	/* of vectors that need one */
	uint64		vectors;		/* to choose from */
	uint64		wanted;			/* to choose */
	uint64		seen;
	uint64		taken;
	char	   *bytes;
	Size		used;
	Size		size;
	size_t	   *lengths;		/* [wanted] */
	uint64	   *stored;			/* [wanted], in the row group */
} Sample;

/* What learning has in hand and memory contexts do not know of. */
static void
let_go(StrataDictionaries *dictionaries)
{
	if (dictionaries->candidate != NULL)
		strata_cdict_free(dictionaries->candidate);
	dictionaries->candidate = NULL;
	if (dictionaries->old != NULL)
		strata_ddict_free(dictionaries->old);
	dictionaries->old = NULL;
}

static void
free_dictionaries(void *arg)
{
	StrataDictionaries *dictionaries = arg;

	let_go(dictionaries);
	for (int i = 0; i < dictionaries->ncolumns; i++)
	{
		if (dictionaries->columns[i].dictionary != NULL)
			strata_cdict_free(dictionaries->columns[i].dictionary);
		dictionaries->columns[i].dictionary = NULL;
	}
}

static DictionaryColumn *
find_column(StrataDictionaries *dictionaries, AttrNumber attnum, bool add)
{
	DictionaryColumn *column;

	for (int i = 0; i < dictionaries->ncolumns; i++)
	{
		if (dictionaries->columns[i].attnum == attnum)
			return &dictionaries->columns[i];
	}
	if (!add || dictionaries->ncolumns == STRATA_DICTIONARY_COLUMNS)
		return NULL;
	column = &dictionaries->columns[dictionaries->ncolumns++];
	memset(column, 0, sizeof(*column));
	column->attnum = attnum;
	return column;
}

StrataDictionaries *
strata_dictionaries_begin(StrataStore *store, Relation storage, const StrataManifest *manifest,
						  int level)
{
	StrataDictionaries *dictionaries = palloc0(sizeof(StrataDictionaries));
	StrataDictionaryRef *refs;
	int			nrefs;

	dictionaries->mcxt = CurrentMemoryContext;
	dictionaries->store = store;
	dictionaries->storage = storage;
	dictionaries->incarnation = manifest->incarnation;
	dictionaries->level = level;
	dictionaries->base_bytes = manifest->stored_bytes;
	dictionaries->callback.func = free_dictionaries;
	dictionaries->callback.arg = dictionaries;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &dictionaries->callback);

	/* The newest of each column: ids grow. */
	refs = strata_manifest_dictionaries(store->ftrelid, manifest->incarnation, &nrefs);
	for (int i = 0; i < nrefs; i++)
		dictionaries->bytes += refs[i].length;
	for (int i = nrefs - 1; i >= 0; i--)
	{
		AttrNumber	attnum = refs[i].attnum;
		DictionaryColumn *column;
		StrataDictionaryHeader header;

		if (attnum > store->desc->natts || TupleDescAttr(store->desc, attnum - 1)->attisdropped ||
			find_column(dictionaries, attnum, false) != NULL)
			continue;
		column = find_column(dictionaries, attnum, true);
		if (column == NULL)
			break;
		column->content = strata_dictionary_read(storage, &refs[i], &header);
		column->length = header.length;
		column->id = header.id;
		column->ratio = (double) header.raw / Max(header.stored, 1);
	}
	pfree(refs);
	return dictionaries;
}

void
strata_dictionaries_use(StrataDictionaries *dictionaries, StrataGroupWriter *writer)
{
	for (int i = 0; i < dictionaries->ncolumns; i++)
	{
		DictionaryColumn *column = &dictionaries->columns[i];

		if (column->id == 0)
			continue;
		if (column->dictionary == NULL)
			column->dictionary = strata_cdict_create(column->content, column->length,
													 dictionaries->level);
		strata_group_writer_use_dictionary(writer, column->attnum, column->id,
										   column->dictionary);
	}
}

/* ---- learning ---- */

static inline bool
can_learn_from(const StrataVectorEntry *entry)
{
	return (entry->flags & STRATA_VECTOR_ZSTD) != 0 && entry->raw_length <= LEARN_VECTOR_BYTES;
}

/* StrataVectorCallback */
static void
add_totals(const StrataVectorEntry *entry, const char *stored, void *arg)
{
	VectorTotals *totals = arg;

	if (!can_learn_from(entry))
		return;
	totals->vectors++;
	totals->rows += entry->rows;
	totals->raw += entry->raw_length;
	totals->stored += entry->length;
	if ((entry->flags & STRATA_VECTOR_SHARED) != 0)
	{
		totals->shared_raw += entry->raw_length;
		totals->shared_stored += entry->length;
	}
}

/* StrataVectorCallback: take wanted of the vectors, evenly spread. */
static void
add_sample(const StrataVectorEntry *entry, const char *stored, void *arg)
{
	Sample	   *sample = arg;
	uint64		i;
	const char *what;

	if (!can_learn_from(entry))
		return;
	i = sample->seen++;
	if (i * sample->wanted / sample->vectors == (i + 1) * sample->wanted / sample->vectors ||
		sample->size - sample->used < entry->raw_length)
		return;

	CHECK_FOR_INTERRUPTS();
	what = strata_decompress((entry->flags & STRATA_VECTOR_SHARED) != 0 ?
								 sample->dictionary :
								 NULL,
							 stored, entry->length, sample->bytes + sample->used,
							 entry->raw_length);
	if (what != NULL)
		elog(ERROR, "could not decompress a vector just written: %s", what);
	sample->lengths[sample->taken] = entry->raw_length;
	sample->stored[sample->taken] = entry->length;
	sample->used += entry->raw_length;
	sample->taken++;
}

/*
 * Make a dictionary of the even-numbered vectors of a sample: small pieces of
 * all of them, and statistics.  Returns its length, 0 when zstd finds nothing
 * to make one of.
 */
static Size
make_dictionary(const Sample *sample, int level, char *dictionary)
{
	ZDICT_params_t parameters = {.compressionLevel = level};
	size_t	   *lengths = palloc(sample->taken * sizeof(size_t));
	char	   *train = MemoryContextAllocHuge(CurrentMemoryContext, sample->used);
	const char *source = sample->bytes;
	Size		used = 0;
	unsigned	n = 0;
	Size		content_length;
	Size		npieces;
	char	   *content;
	size_t		result;

	for (uint64 i = 0; i < sample->taken; i++)
	{
		if (i % 2 == 0)
		{
			memcpy(train + used, source, sample->lengths[i]);
			used += sample->lengths[i];
			lengths[n++] = sample->lengths[i];
		}
		source += sample->lengths[i];
	}

	npieces = Min(used / CONTENT_SHARE, CONTENT_MAX) / CONTENT_PIECE;
	content_length = npieces * CONTENT_PIECE;
	if (npieces == 0)
		return 0;
	content = palloc(content_length);
	for (Size i = 0; i < npieces; i++)
		memcpy(content + i * CONTENT_PIECE, train + i * (used - CONTENT_PIECE) / npieces,
			   CONTENT_PIECE);

	result = ZDICT_finalizeDictionary(dictionary, content_length + TABLES_MAX,
									  content, content_length, train, lengths, n, parameters);
	pfree(content);
	pfree(train);
	pfree(lengths);
	return ZDICT_isError(result) ? 0 : result;
}

/*
 * Compress the odd-numbered vectors of a sample.  Sets their bytes: raw, as
 * stored in the row group, with the dictionary.
 */
static void
try_dictionary(const Sample *sample, const struct ZSTD_CDict_s *dictionary, uint64 *raw,
			   uint64 *before, uint64 *after)
{
	Size		capacity = strata_compress_bound(LEARN_VECTOR_BYTES);
	char	   *buffer = palloc(capacity);
	const char *source = sample->bytes;

	*raw = *before = *after = 0;
	for (uint64 i = 0; i < sample->taken; i++)
	{
		if (i % 2 == 1)
		{
			CHECK_FOR_INTERRUPTS();
			*raw += sample->lengths[i];
			*before += sample->stored[i];
			*after += strata_compress(0, dictionary, source, sample->lengths[i], buffer,
									  capacity);
		}
		source += sample->lengths[i];
	}
	pfree(buffer);
}

/* Write a dictionary and name it in the manifest; returns the bytes written. */
static uint64
store_dictionary(StrataDictionaries *dictionaries, StrataDictionaryHeader *header,
				 const char *content)
{
	StrataDictionaryRef ref = {.attnum = header->attnum};
	StrataExtentWriter *writer;

	ref.length = sizeof(*header) + header->length;
	strata_extent_take(dictionaries->storage, strata_extent_blocks_for(ref.length), &ref.extent);
	header->magic = STRATA_DICTIONARY_MAGIC;
	header->version = STRATA_ROW_GROUP_VERSION;
	header->id = ref.extent.owner;
	header->crc = strata_dictionary_crc(header, content);
	writer = strata_extent_write_begin(dictionaries->storage, &ref.extent);
	strata_extent_write(writer, header, sizeof(*header));
	strata_extent_write(writer, content, header->length);
	strata_extent_write_end(writer);
	STRATA_PAUSE("dictionary-written");
	strata_manifest_add_dictionary(dictionaries->store, dictionaries->incarnation, &ref);
	dictionaries->bytes += ref.length;
	return ref.length;
}

/*
 * Make a dictionary of column i of a row group, if that pays.  Returns the
 * bytes written.
 */
static uint64
learn_column(StrataDictionaries *dictionaries, DictionaryColumn *column,
			 StrataGroupWriter *writer, int i, const VectorTotals *totals,
			 void (*tick)(void *arg), void *arg)
{
	StrataDictionaryHeader header = {.attnum = column->attnum};
	Sample		sample = {0};
	char	   *content = palloc(CONTENT_MAX + TABLES_MAX);
	uint64		raw = 0;
	uint64		before = 0;
	uint64		after = 0;
	Size		size;
	uint64		written = 0;
	bool		pays = false;
	int16		attlen;

	column->skip = LEARN_INTERVAL;
	sample.vectors = totals->vectors;
	sample.wanted = Max(Min(totals->vectors, LEARN_MAX_BYTES * totals->vectors / totals->raw), 1);
	sample.size = Min(totals->raw, LEARN_MAX_BYTES + LEARN_VECTOR_BYTES);
	sample.bytes = MemoryContextAllocHuge(CurrentMemoryContext, sample.size);
	sample.lengths = palloc(sample.wanted * sizeof(size_t));
	sample.stored = palloc(sample.wanted * sizeof(uint64));

	if (totals->shared_raw > 0)
	{
		dictionaries->old = strata_ddict_create(column->content, column->length, &size);
		if (dictionaries->old == NULL)
			elog(ERROR, "could not decompress with dictionary " UINT64_FORMAT, column->id);
		sample.dictionary = dictionaries->old;
	}
	(void) strata_group_writer_vectors(writer, i, &attlen, add_sample, &sample);

	header.length = make_dictionary(&sample, dictionaries->level, content);
	if (header.length > 0)
	{
		dictionaries->candidate = strata_cdict_create(content, header.length,
													  dictionaries->level);
		try_dictionary(&sample, dictionaries->candidate, &raw, &before, &after);
		header.raw = (uint32) raw;
		header.stored = (uint32) after;
		if (after < before)
			pays = column->id == 0 ? before - after >= before / DICTIONARY_PAYS :
				(double) (before - after) / before * totals->stored >= header.length;
		tick(arg);
	}
	if (pays)
	{
		written = store_dictionary(dictionaries, &header, content);
		if (column->dictionary != NULL)
			strata_cdict_free(column->dictionary);
		column->dictionary = dictionaries->candidate;
		if (column->content != NULL)
			pfree(column->content);
		column->content = MemoryContextAlloc(dictionaries->mcxt, header.length);
		memcpy(column->content, content, header.length);
		column->length = header.length;
		column->id = header.id;
		column->ratio = (double) raw / Max(after, 1);
		column->skip = 0;
		dictionaries->candidate = NULL;
	}
	let_go(dictionaries);
	return written;
}

uint64
strata_dictionaries_learn(StrataDictionaries *dictionaries, StrataGroupWriter *writer,
						  uint64 length, void (*tick)(void *arg), void *arg)
{
	int			ncolumns = strata_group_writer_columns(writer);
	VectorTotals *totals = palloc0(Max(ncolumns, 1) * sizeof(VectorTotals));
	AttrNumber *attnums = palloc0(Max(ncolumns, 1) * sizeof(AttrNumber));
	uint64		written = 0;

	dictionaries->base_bytes += length;
	for (int i = 0; i < ncolumns; i++)
	{
		int16		attlen;

		attnums[i] = strata_group_writer_vectors(writer, i, &attlen, add_totals, &totals[i]);
		if (attlen != -1)
			totals[i].vectors = 0;
	}

	for (;;)
	{
		MemoryContext mcxt;
		MemoryContext old_mcxt;
		DictionaryColumn *column;
		int			best = -1;

		if (dictionaries->bytes + CONTENT_MAX > Max(DICTIONARIES_MIN, dictionaries->base_bytes /
													DICTIONARIES_SHARE))
			break;

		/* The largest first: there may be more columns than dictionaries. */
		for (int i = 0; i < ncolumns; i++)
		{
			if (totals[i].vectors > 1 && totals[i].raw >= LEARN_MIN_BYTES &&
				totals[i].raw / totals[i].rows >= WIDE_ROW_BYTES &&
				(best < 0 || totals[i].stored > totals[best].stored))
				best = i;
		}
		if (best < 0)
			break;
		column = find_column(dictionaries, attnums[best], true);
		if (column != NULL && column->skip > 0)
			column->skip--;
		else if (column != NULL &&
				 (column->id == 0 ||
				  totals[best].shared_raw <
				  RATIO_BEHIND * column->ratio * totals[best].shared_stored))
		{
			mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata dictionary",
										 ALLOCSET_DEFAULT_SIZES);
			old_mcxt = MemoryContextSwitchTo(mcxt);
			written += learn_column(dictionaries, column, writer, best, &totals[best], tick, arg);
			MemoryContextSwitchTo(old_mcxt);
			MemoryContextDelete(mcxt);
		}
		totals[best].vectors = 0;
	}
	pfree(totals);
	pfree(attnums);
	return written;
}
