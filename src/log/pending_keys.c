/*-------------------------------------------------------------------------
 *
 * pending_keys.c
 *	  In-memory structures of pending keys: the table from key hash to
 *	  version, and sets of key hashes and of key values.
 *
 * The table holds no key values, only hashes and where the keys are: 16 bytes
 * a key, its share of the buckets and of the growing arrays apart.  What two
 * keys of one hash mean to each other is decided by reading both.
 *
 * A hash set holds key hashes and nothing else, at most about 11 bytes each.
 *
 * A key set holds copies of key values, for the few questions that compare
 * many keys which lie far apart in the log (pending_resolve.c).  It is bounded
 * by a budget; its users work in hash partitions when one set cannot hold all.
 *
 * All are private to a backend; there is nothing to lock.
 *
 * IDENTIFICATION
 *	  src/log/pending_keys.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#define MIN_KEYS	64
#define LARGE_KEYS	(512 * 1024)	/* from here on arrays grow in small steps */

/* A key array may not be longer: STRATA_NO_KEY is taken. */
#define MAX_KEYS	(PG_UINT32_MAX - 1)

static void *
huge_alloc(MemoryContext mcxt, Size size)
{
	return MemoryContextAllocHuge(mcxt, size);
}

/* ---- key table ---- */

static void
set_buckets(StrataKeyTable *table, uint32 *buckets, uint32 nbuckets)
{
	uint32		i;

	memset(buckets, 0xFF, (Size) nbuckets * sizeof(uint32));
	table->buckets = buckets;
	table->nbuckets = nbuckets;
	table->shift = 32 - pg_leftmost_one_pos32(nbuckets);

	/* in order of adding, so that chains go from newer to older again */
	for (i = 0; i < table->nkeys; i++)
	{
		StrataPendingKey *k = &table->keys[i];
		uint32		b = (k->hash * 2654435769u) >> table->shift;

		k->next = buckets[b];
		buckets[b] = i;
	}
}

StrataKeyTable *
strata_key_table_create(MemoryContext mcxt, uint64 expected)
{
	StrataKeyTable *table = MemoryContextAllocZero(mcxt, sizeof(StrataKeyTable));
	uint32		nbuckets = MIN_KEYS;

	if (expected < MIN_KEYS)
		expected = MIN_KEYS;
	if (expected > MAX_KEYS)
		expected = MAX_KEYS;
	while (nbuckets < expected && nbuckets < ((uint32) 1 << 31))
		nbuckets <<= 1;
	table->mcxt = mcxt;
	table->maxkeys = (uint32) expected;
	table->keys = huge_alloc(mcxt, (Size) expected * sizeof(StrataPendingKey));
	set_buckets(table, huge_alloc(mcxt, (Size) nbuckets * sizeof(uint32)), nbuckets);
	return table;
}

void
strata_key_table_add(StrataKeyTable *table, uint32 hash, uint32 entry, uint32 row)
{
	StrataPendingKey *k;
	uint32		b;
	uint32		older;

	Assert(row <= PG_UINT16_MAX);
	if (table->nkeys == table->maxkeys)
	{
		/* a large array is moved by the page table, and may grow in small steps */
		uint64		want = table->maxkeys < LARGE_KEYS ? (uint64) table->maxkeys * 2 :
			(uint64) table->maxkeys + table->maxkeys / 4;

		if (table->nkeys == MAX_KEYS)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many pending keys in one strata store")));
		if (want > MAX_KEYS)
			want = MAX_KEYS;
		table->keys = repalloc_huge(table->keys, (Size) want * sizeof(StrataPendingKey));
		table->maxkeys = (uint32) want;
	}
	if (table->nkeys >= table->nbuckets && table->nbuckets < ((uint32) 1 << 31))
	{
		uint32	   *old = table->buckets;
		uint32		nbuckets = table->nbuckets << 1;
		uint32	   *buckets = huge_alloc(table->mcxt, (Size) nbuckets * sizeof(uint32));

		set_buckets(table, buckets, nbuckets);
		pfree(old);
	}
	if (table->ndups == table->maxdups)
	{
		uint32		want = table->maxdups == 0 ? MIN_KEYS : table->maxdups * 2;

		/* made before the key is linked: an error here leaves all as it was */
		if (table->dups == NULL)
			table->dups = huge_alloc(table->mcxt, (Size) want * sizeof(uint32));
		else
			table->dups = repalloc_huge(table->dups, (Size) want * sizeof(uint32));
		table->maxdups = want;
	}

	b = (hash * 2654435769u) >> table->shift;
	for (older = table->buckets[b]; older != STRATA_NO_KEY; older = table->keys[older].next)
	{
		if (table->keys[older].hash == hash)
		{
			table->dups[table->ndups++] = table->nkeys;
			break;
		}
	}
	k = &table->keys[table->nkeys];
	k->hash = hash;
	k->entry = entry;
	k->row = (uint16) row;
	k->unused = 0;
	k->next = table->buckets[b];
	table->buckets[b] = table->nkeys++;
}

/* The keys of an entry, numbered from 0. */
void
strata_key_table_add_all(StrataKeyTable *table, const uint32 *hashes, uint32 n, uint32 entry)
{
	uint32		i;

	for (i = 0; i < n; i++)
	{
		if (i + STRATA_PREFETCH < n)
			strata_key_table_prefetch(table, hashes[i + STRATA_PREFETCH]);
		strata_key_table_add(table, hashes[i], entry, i);
	}
}

Size
strata_key_table_memory(const StrataKeyTable *table)
{
	return (Size) table->maxkeys * sizeof(StrataPendingKey) +
		((Size) table->nbuckets + table->maxdups) * sizeof(uint32);
}

uint64
strata_key_table_estimate(uint64 nkeys)
{
	/* a key, up to two buckets, and a place among the duplicates */
	return nkeys * (sizeof(StrataPendingKey) + 3 * sizeof(uint32));
}

void
strata_key_table_free(StrataKeyTable *table)
{
	pfree(table->keys);
	pfree(table->buckets);
	if (table->dups)
		pfree(table->dups);
	pfree(table);
}

/* ---- hash set ---- */

struct StrataHashSet
{
	MemoryContext mcxt;
	uint32	   *slots;			/* 0: free */
	uint32		nslots;			/* a power of two */
	int			shift;			/* 32 - log2(nslots) */
	uint32		count;
	bool		has_zero;
};

StrataHashSet *
strata_hash_set_create(MemoryContext mcxt)
{
	StrataHashSet *set = MemoryContextAllocZero(mcxt, sizeof(StrataHashSet));

	set->mcxt = mcxt;
	set->nslots = MIN_KEYS;
	set->shift = 32 - pg_leftmost_one_pos32(set->nslots);
	set->slots = MemoryContextAllocZero(mcxt, set->nslots * sizeof(uint32));
	return set;
}

/* Where a hash is, or the free slot where it belongs. */
static uint32 *
hash_set_slot(const StrataHashSet *set, uint32 hash)
{
	uint32		i = (hash * 2654435769u) >> set->shift;

	while (set->slots[i] != 0 && set->slots[i] != hash)
		i = (i + 1) & (set->nslots - 1);
	return &set->slots[i];
}

static void
hash_set_grow(StrataHashSet *set)
{
	uint32	   *old = set->slots;
	uint32		nold = set->nslots;

	if (nold >= (uint32) 1 << 31)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many pending keys in one strata store")));
	set->slots = MemoryContextAllocExtended(set->mcxt, (Size) nold * 2 * sizeof(uint32),
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	set->nslots = nold * 2;
	set->shift--;
	for (uint32 i = 0; i < nold; i++)
	{
		if (old[i] != 0)
			*hash_set_slot(set, old[i]) = old[i];
	}
	pfree(old);
}

void
strata_hash_set_add(StrataHashSet *set, uint32 hash)
{
	uint32	   *slot;

	if (hash == 0)
	{
		set->has_zero = true;
		return;
	}
	slot = hash_set_slot(set, hash);
	if (*slot == hash)
		return;
	*slot = hash;
	if (++set->count > set->nslots / 4 * 3)
		hash_set_grow(set);
}

bool
strata_hash_set_has(const StrataHashSet *set, uint32 hash)
{
	return hash == 0 ? set->has_zero : *hash_set_slot(set, hash) == hash;
}

/* ---- key set ---- */

#define SET_CHUNK	(64 * 1024)
#define FILTER_BITS 16

struct StrataKeySet
{
	const StrataKey *key;
	int			natts;
	Size		budget;
	MemoryContext mcxt;			/* the set and its arrays */
	MemoryContext values_mcxt;	/* by-reference values */
	StrataKeySetItem *items;
	Datum	   *values;			/* [nitems * natts] */
	uint32		nitems;
	uint32		maxitems;
	uint32	   *buckets;
	uint32		nbuckets;
	int			shift;
	uint8	   *filter;			/* a bit per hash, FILTER_BITS a bucket */
	char	   *chunk;			/* values are cut from here */
	Size		chunk_left;
	Size		used;
	uint32	   *order;			/* after sorting */
	bool		byval[INDEX_MAX_KEYS];
	int16		typlen[INDEX_MAX_KEYS];
};

/*
 * Most hashes that a set is asked for are not in it; a bitmap that stays in
 * the processor's cache says so.
 */
static inline uint32
filter_bit(const StrataKeySet *set, uint32 hash)
{
	return (hash * 0x85EBCA6Bu) & (set->nbuckets * FILTER_BITS - 1);
}

static void
set_rehash(StrataKeySet *set, uint32 nbuckets)
{
	uint32		i;

	if (nbuckets != set->nbuckets)
	{
		if (set->buckets)
			pfree(set->buckets);
		set->buckets = NULL;
		set->buckets = huge_alloc(set->mcxt, (Size) nbuckets * sizeof(uint32));
		if (set->filter)
			pfree(set->filter);
		set->filter = NULL;
		set->filter = huge_alloc(set->mcxt, (Size) nbuckets * FILTER_BITS / 8);
		set->nbuckets = nbuckets;
		set->shift = 32 - pg_leftmost_one_pos32(nbuckets);
	}
	memset(set->buckets, 0xFF, (Size) nbuckets * sizeof(uint32));
	memset(set->filter, 0, (Size) nbuckets * FILTER_BITS / 8);
	for (i = 0; i < set->nitems; i++)
	{
		uint32		b = (set->items[i].hash * 2654435769u) >> set->shift;
		uint32		bit = filter_bit(set, set->items[i].hash);

		set->filter[bit >> 3] |= 1 << (bit & 7);
		set->items[i].next = set->buckets[b];
		set->buckets[b] = i;
	}
}

StrataKeySet *
strata_key_set_create(const StrataKey *key, Size budget)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata key set",
											   ALLOCSET_DEFAULT_SIZES);
	StrataKeySet *set = MemoryContextAllocZero(mcxt, sizeof(StrataKeySet));
	int			i;

	set->key = key;
	set->natts = key->natts;
	set->budget = budget;
	set->mcxt = mcxt;
	set->values_mcxt = AllocSetContextCreate(mcxt, "strata key values", ALLOCSET_DEFAULT_SIZES);
	for (i = 0; i < key->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(key->desc, i);

		set->byval[i] = att->attbyval;
		set->typlen[i] = att->attlen;
	}
	set->maxitems = MIN_KEYS;
	set->items = MemoryContextAlloc(mcxt, set->maxitems * sizeof(StrataKeySetItem));
	set->values = MemoryContextAlloc(mcxt, (Size) set->maxitems * set->natts * sizeof(Datum));
	set_rehash(set, MIN_KEYS);
	return set;
}

/* Room for size bytes of a value; keys are far smaller than a chunk. */
static char *
set_value_space(StrataKeySet *set, Size size)
{
	char	   *p;

	size = MAXALIGN(size);
	if (size > set->chunk_left)
	{
		Size		chunk = Max(size, SET_CHUNK);

		set->chunk = MemoryContextAlloc(set->values_mcxt, chunk);
		set->chunk_left = chunk;
	}
	p = set->chunk;
	set->chunk += size;
	set->chunk_left -= size;
	set->used += size;
	return p;
}

bool
strata_key_set_add(StrataKeySet *set, uint32 hash, const Datum *values,
				   uint32 entry, uint32 row)
{
	StrataKeySetItem *item;
	Datum	   *copy;
	uint32		b;
	uint32		bit;
	int			i;

	if (set->nitems > 0 && set->used >= set->budget)
		return false;
	if (set->nitems == set->maxitems)
	{
		uint32		want;

		if (set->maxitems >= (uint32) 1 << 26)
			return false;		/* the filter's bits are numbered by 32 bits */
		want = set->maxitems * 2;
		set->items = repalloc_huge(set->items, (Size) want * sizeof(StrataKeySetItem));
		set->values = repalloc_huge(set->values, (Size) want * set->natts * sizeof(Datum));
		set->maxitems = want;
		set_rehash(set, want);
	}
	item = &set->items[set->nitems];
	copy = &set->values[(Size) set->nitems * set->natts];
	for (i = 0; i < set->natts; i++)
	{
		if (set->byval[i])
			copy[i] = values[i];
		else
		{
			Size		size = datumGetSize(values[i], false, set->typlen[i]);
			char	   *space = set_value_space(set, size);

			memcpy(space, DatumGetPointer(values[i]), size);
			copy[i] = PointerGetDatum(space);
		}
	}
	set->used += sizeof(StrataKeySetItem) + sizeof(Datum) * set->natts + 2 * sizeof(uint32);
	item->hash = hash;
	item->entry = entry;
	item->row = row;
	bit = filter_bit(set, hash);
	set->filter[bit >> 3] |= 1 << (bit & 7);
	b = (hash * 2654435769u) >> set->shift;
	item->next = set->buckets[b];
	set->buckets[b] = set->nitems++;
	return true;
}

StrataKeySetItem *
strata_key_set_find(StrataKeySet *set, uint32 hash, const Datum *values)
{
	uint32		i = set->buckets[(hash * 2654435769u) >> set->shift];

	for (; i != PG_UINT32_MAX; i = set->items[i].next)
	{
		if (set->items[i].hash == hash &&
			strata_key_equal(set->key, &set->values[(Size) i * set->natts], values))
			return &set->items[i];
	}
	return NULL;
}

bool
strata_key_set_has_hash(StrataKeySet *set, uint32 hash)
{
	uint32		bit = filter_bit(set, hash);
	uint32		i;

	if ((set->filter[bit >> 3] & (1 << (bit & 7))) == 0)
		return false;
	i = set->buckets[(hash * 2654435769u) >> set->shift];

	for (; i != PG_UINT32_MAX; i = set->items[i].next)
	{
		if (set->items[i].hash == hash)
			return true;
	}
	return false;
}

uint32
strata_key_set_count(StrataKeySet *set)
{
	return set->nitems;
}

static int
set_compare(const void *a, const void *b, void *arg)
{
	StrataKeySet *set = arg;

	return strata_key_compare(set->key,
							  &set->values[(Size) * (const uint32 *) a * set->natts],
							  &set->values[(Size) * (const uint32 *) b * set->natts]);
}

void
strata_key_set_sort(StrataKeySet *set)
{
	uint32		i;

	if (set->order)
		pfree(set->order);
	set->order = huge_alloc(set->mcxt, (Size) Max(set->nitems, 1) * sizeof(uint32));
	for (i = 0; i < set->nitems; i++)
		set->order[i] = i;
	qsort_arg(set->order, set->nitems, sizeof(uint32), set_compare, set);
}

/* The i'th key's values: in order once sorted, else as added. */
const Datum *
strata_key_set_values(StrataKeySet *set, uint32 i)
{
	Assert(i < set->nitems);
	return &set->values[(Size) (set->order ? set->order[i] : i) * set->natts];
}

void
strata_key_set_reset(StrataKeySet *set)
{
	MemoryContextReset(set->values_mcxt);
	set->chunk = NULL;
	set->chunk_left = 0;
	set->used = 0;
	set->nitems = 0;
	if (set->order)
		pfree(set->order);
	set->order = NULL;
	memset(set->buckets, 0xFF, (Size) set->nbuckets * sizeof(uint32));
	memset(set->filter, 0, (Size) set->nbuckets * FILTER_BITS / 8);
}

void
strata_key_set_free(StrataKeySet *set)
{
	MemoryContextDelete(set->mcxt);
}
