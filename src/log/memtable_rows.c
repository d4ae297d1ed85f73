/*-------------------------------------------------------------------------
 *
 * memtable_rows.c
 *	  The rows of a memtable in memory, and finding one by its key.
 *
 * Rows are kept as arrays of values and nulls, small values behind the arrays
 * in the same allocation, large ones in allocations of their own: no row is
 * ever one allocation.  A key is held once.
 *
 * Few rows are searched one by one, more of them through a hash table over all
 * shards.
 *
 * IDENTIFICATION
 *	  src/log/memtable_rows.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/memtable_internal.h"

#include "access/detoast.h"
#include "utils/memutils.h"

/* Values up to this size are stored behind their row's arrays. */
#define INLINE_VALUE_MAX	8192

/* Rows of a shard among which a key is searched without a hash table. */
#define LINEAR_SEARCH_MAX	8

typedef struct KeyHashEntry
{
	StrataMemRow *row;
	uint32		hash;
	char		status;
} KeyHashEntry;

static bool key_equals_row(StrataMemtable *memtable, const StrataMemRow *row,
						   const StrataMemRow *looked_for);

#define SH_PREFIX		keyhash
#define SH_ELEMENT_TYPE	KeyHashEntry
#define SH_KEY_TYPE		StrataMemRow *
#define SH_KEY			row
#define SH_SCOPE		static inline
#define SH_HASH_KEY(tb, key)	((key)->hash)
#define SH_EQUAL(tb, a, b)		key_equals_row((StrataMemtable *) (tb)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a)		((a)->hash)
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* The key being looked for stands in probe_key; it is no row yet. */
static bool
key_equals_row(StrataMemtable *memtable, const StrataMemRow *row, const StrataMemRow *looked_for)
{
	Datum		keyvalues[INDEX_MAX_KEYS];

	strata_memrow_key(memtable, row, keyvalues);
	return strata_key_equal(&memtable->store->key, keyvalues, memtable->probe_key);
}

StrataMemRow *
strata_memrow_find(StrataMemtable *memtable, StrataMemShard *shard, uint32 hash,
				   const Datum *keyvalues)
{
	memtable->probe_key = keyvalues;
	if (memtable->hash != NULL)
	{
		KeyHashEntry *entry = keyhash_lookup_hash(memtable->hash, NULL, hash);

		return entry != NULL ? entry->row : NULL;
	}

	for (uint32 i = 0; i < shard->nrows; i++)
	{
		StrataMemRow *row = shard->rows[i];

		if (row->hash == hash && key_equals_row(memtable, row, NULL))
			return row;
	}
	return NULL;
}

StrataMemRow *
strata_memrow_copy(StrataMemtable *memtable, TupleDesc desc, const Datum *values, const bool *isnull)
{
	int			natts = desc->natts;
	Datum	   *work = memtable->work_values;
	Size	   *sizes = memtable->work_sizes;
	Size		header_size = MAXALIGN(offsetof(StrataMemRow, values) +
									   natts * (sizeof(Datum) + sizeof(bool)));
	Size		size = header_size;
	Size		memory = 0;
	Size		raw = 0;
	bool		detoasted = false;
	StrataMemRow *row;
	char	   *data;

	/* How large is it?  Large values are copied, toasted ones fetched. */
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);
		Size		len;

		sizes[i] = 0;
		if (isnull[i] || attr->attisdropped)
			continue;
		work[i] = values[i];
		if (attr->attbyval)
		{
			raw += attr->attlen;
			continue;
		}

		if (attr->attlen == -1)
		{
			struct varlena *value = (struct varlena *) DatumGetPointer(values[i]);

			if (VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value))
			{
				MemoryContext oldcxt;
				bool		large = toast_raw_datum_size(values[i]) > INLINE_VALUE_MAX;

				oldcxt = MemoryContextSwitchTo(large ? memtable->row_mcxt : memtable->temp_mcxt);
				value = detoast_attr(value);
				MemoryContextSwitchTo(oldcxt);
				work[i] = PointerGetDatum(value);
				len = VARSIZE_ANY(value);
				raw += len;
				if (large)
					memory += GetMemoryChunkSpace(value);
				else
				{
					detoasted = true;
					sizes[i] = len;
					size += MAXALIGN(len);
				}
				continue;
			}
			len = VARSIZE_ANY(value);
		}
		else if (attr->attlen == -2)
			len = strlen(DatumGetCString(values[i])) + 1;
		else
			len = attr->attlen;

		raw += len;
		if (len > INLINE_VALUE_MAX)
		{
			char	   *copy = MemoryContextAlloc(memtable->row_mcxt, len);

			memcpy(copy, DatumGetPointer(values[i]), len);
			work[i] = PointerGetDatum(copy);
			memory += GetMemoryChunkSpace(copy);
		}
		else
		{
			sizes[i] = len;
			size += MAXALIGN(len);
		}
	}

	row = MemoryContextAlloc(memtable->row_mcxt, size);
	memset(row, 0, offsetof(StrataMemRow, values));
	row->nvalues = natts;
	row->raw = raw;
	row->memory = memory + GetMemoryChunkSpace(row);
	row->inline_size = size;
	row->isnull = (bool *) &row->values[natts];
	data = (char *) row + header_size;
	for (int i = 0; i < natts; i++)
	{
		row->isnull[i] = isnull[i] || TupleDescAttr(desc, i)->attisdropped;
		if (row->isnull[i])
			row->values[i] = (Datum) 0;
		else if (sizes[i] == 0)
			row->values[i] = work[i];
		else
		{
			memcpy(data, DatumGetPointer(work[i]), sizes[i]);
			row->values[i] = PointerGetDatum(data);
			data += MAXALIGN(sizes[i]);
		}
	}

	if (detoasted)
		MemoryContextReset(memtable->temp_mcxt);
	return row;
}

static void
free_row(StrataMemtable *memtable, StrataMemRow *row)
{
	TupleDesc	desc = row->tombstone ? memtable->store->key.desc : memtable->store->desc;

	if (row->next != NULL)
		free_row(memtable, row->next);
	if (row->before != NULL)
		free_row(memtable, row->before);
	for (int i = 0; i < row->nvalues; i++)
	{
		char	   *value = DatumGetPointer(row->values[i]);

		if (!row->isnull[i] && !TupleDescAttr(desc, i)->attbyval &&
			(value < (char *) row || value >= (char *) row + row->inline_size))
			pfree(value);
	}
	pfree(row);
}

void
strata_memrow_store(StrataMemtable *memtable, StrataMemShard *shard, StrataMemRow *row,
					StrataMemRow *old, const Datum *keyvalues)
{
	if (old != NULL)
	{
		/* what the first of them took the place of was looked at then */
		if (old->changes)
		{
			row->changes = true;
			row->seen = old->seen;
		}
		if (memtable->hash != NULL)
		{
			KeyHashEntry *entry;

			memtable->probe_key = keyvalues;
			entry = keyhash_lookup_hash(memtable->hash, NULL, row->hash);
			entry->row = row;
		}
		row->index = old->index;
		shard->rows[row->index] = row;
		shard->raw -= old->raw;
		memtable->raw -= old->raw;
		memtable->memory -= old->memory;

		/* whoever waits for a row has to find that it was deleted, too */
		if (old->before != NULL)
		{
			row->before = old->before;
			old->before = NULL;
			free_row(memtable, old);
		}
		else if (old->tombstone)
			row->before = old;
		else
			free_row(memtable, old);
		if (row->before != NULL)
		{
			row->raw += row->before->raw;
			row->memory += row->before->memory;
		}
	}
	else
	{
		if (shard->nrows == shard->max_rows)
		{
			uint32		max_rows = Max(LINEAR_SEARCH_MAX, shard->max_rows * 2);

			if (shard->rows == NULL)
				shard->rows = MemoryContextAlloc(memtable->mcxt, max_rows * sizeof(StrataMemRow *));
			else
				shard->rows = repalloc(shard->rows, max_rows * sizeof(StrataMemRow *));
			shard->max_rows = max_rows;
		}
		row->index = shard->nrows;
		shard->rows[shard->nrows++] = row;
		memtable->nrows++;

		if (memtable->store->key.natts > 0)
		{
			KeyHashEntry *entry;
			bool		found;

			if (memtable->hash != NULL)
			{
				memtable->probe_key = keyvalues;
				entry = keyhash_insert_hash(memtable->hash, NULL, row->hash, &found);
				Assert(!found);
				entry->row = row;
			}
			else if (shard->nrows > LINEAR_SEARCH_MAX)
			{
				Datum		key[INDEX_MAX_KEYS];

				memtable->hash = keyhash_create(memtable->mcxt, 64, memtable);
				memtable->probe_key = key;
				for (int s = 0; s < memtable->store->nshards; s++)
				{
					for (uint32 i = 0; i < memtable->shards[s].nrows; i++)
					{
						StrataMemRow *member = memtable->shards[s].rows[i];

						strata_memrow_key(memtable, member, key);
						entry = keyhash_insert_hash(memtable->hash, NULL, member->hash, &found);
						Assert(!found);
						entry->row = member;
					}
				}
			}
		}
	}

	shard->raw += row->raw;
	memtable->raw += row->raw;
	memtable->memory += row->memory;
}

void
strata_memrow_forget_all(StrataMemtable *memtable)
{
	for (int shard = 0; shard < memtable->store->nshards; shard++)
	{
		StrataMemShard *mem = &memtable->shards[shard];

		if (mem->rows != NULL)
			pfree(mem->rows);
		memset(mem, 0, sizeof(StrataMemShard));
	}
	if (memtable->hash != NULL)
	{
		keyhash_destroy(memtable->hash);
		memtable->hash = NULL;
	}
	MemoryContextReset(memtable->row_mcxt);
	memtable->nrows = 0;
	memtable->raw = 0;
	memtable->memory = 0;
}
