/*-------------------------------------------------------------------------
 *
 * pending_resolve.c
 *	  All losers among pending versions at once, and all base rows that
 *	  pending keys supersede.
 *
 * Asked version by version (pending.c), the rule compares keys that lie far
 * apart in the log and decodes an entry for each.  Here the hashes come first:
 * they say which versions have anybody to lose to, and only the keys of those
 * are read, entry by entry in the log's order, and compared in memory.
 *
 * Memory is bounded in two dimensions, each by hash_mem.  The table of hashes,
 * where the backend could not keep one, is made for one hash partition after
 * the other, reading the hashes again for each.  Copies of keys are made for
 * one partition of what is to be compared after the other.  What remains is a
 * bit per pending version and per row of the row groups that lose rows.
 *
 * IDENTIFICATION
 *	  src/log/pending_resolve.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/keyindex.h"
#include "log/pending_private.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/*
 * Rough costs in microseconds, for choosing between index and hashes: a probe
 * in key order, a hash looked up, a row group opened for its hashes.
 */
#define COST_PROBE		4.0
#define COST_HASH		0.04
#define COST_GROUP		100.0

typedef struct Resolve
{
	StrataPending *pending;
	StrataAccept accept;
	void	   *arg;
	int			nentries;		/* entries looked at: those there at the start */
	StrataKeyTable *table;		/* of the partition */
	uint32		part;			/* of hashes in the table */
	uint32		nparts;
	StrataPendingReader *reader;	/* keys, in order */
	Size		budget;
} Resolve;

typedef void (*TableCallback) (Resolve *resolve, void *arg);

static inline bool
bit_get(const uint8 *bitmap, uint64 i)
{
	return (bitmap[i >> 3] & (1 << (i & 7))) != 0;
}

static inline void
bit_set(uint8 *bitmap, uint64 i)
{
	bitmap[i >> 3] |= 1 << (i & 7);
}

/* Partitions of copied keys must not follow those of the table. */
static inline uint32
subpart(uint32 hash, uint32 nparts)
{
	return ((hash * 0x85EBCA6Bu) >> 8) % nparts;
}

static inline bool
accepted(Resolve *resolve, uint32 entry)
{
	return (int) entry < resolve->nentries &&
		resolve->accept(&resolve->pending->log->entries[entry], entry, resolve->arg);
}

static inline uint64
key_number(Resolve *resolve, const StrataPendingKey *key)
{
	return resolve->pending->log->entries[key->entry].first_key + key->row;
}

/*
 * Call callback with a table of keys, or with one after the other that
 * together hold every accepted version.
 */
static void
for_each_table(Resolve *resolve, TableCallback callback, void *arg)
{
	StrataPendingLog *log = resolve->pending->log;
	uint64		nkeys = 0;
	uint64		estimate;
	int			entry;

	if (log->keys)
	{
		resolve->table = log->keys;
		resolve->part = 0;
		resolve->nparts = 1;
		callback(resolve, arg);
		resolve->table = NULL;
		return;
	}

	for (entry = 0; entry < resolve->nentries; entry++)
	{
		if (accepted(resolve, entry))
			nkeys += strata_pending_entry_keys(&log->entries[entry]);
	}
	estimate = strata_key_table_estimate(nkeys);
	resolve->nparts = (uint32) Min(estimate / resolve->budget + 1, 65536);
	for (resolve->part = 0; resolve->part < resolve->nparts; resolve->part++)
	{
		MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext,
												   "strata pending partition",
												   ALLOCSET_DEFAULT_SIZES);
		MemoryContext entry_mcxt = AllocSetContextCreate(mcxt, "strata key hashes",
														 ALLOCSET_DEFAULT_SIZES);

		resolve->table = strata_key_table_create(mcxt, nkeys / resolve->nparts);
		for (entry = 0; entry < resolve->nentries; entry++)
		{
			const uint32 *hashes;
			uint32		n;
			uint32		row;
			MemoryContext old;

			CHECK_FOR_INTERRUPTS();
			if (!accepted(resolve, entry))
				continue;
			old = MemoryContextSwitchTo(entry_mcxt);
			hashes = strata_pending_hashes(resolve->pending, entry);
			n = strata_pending_entry_keys(&log->entries[entry]);
			for (row = 0; row < n; row++)
			{
				if (hashes[row] % resolve->nparts == resolve->part)
					strata_key_table_add(resolve->table, hashes[row], entry, row);
			}
			MemoryContextSwitchTo(old);
			MemoryContextReset(entry_mcxt);
		}
		callback(resolve, arg);
		resolve->table = NULL;
		MemoryContextDelete(mcxt);
	}
}

static void
resolve_init(Resolve *resolve, StrataPending *pending, StrataAccept accept, void *arg)
{
	memset(resolve, 0, sizeof(*resolve));
	resolve->pending = pending;
	resolve->accept = accept;
	resolve->arg = arg;
	resolve->nentries = pending->log->nentries;
	resolve->budget = get_hash_memory_limit();
	resolve->reader = strata_pending_reader_begin(pending, NULL, true);
}

static void
resolve_end(Resolve *resolve)
{
	uint64		read;
	uint64		decoded;

	strata_pending_reader_io(resolve->reader, &read, &decoded);
	resolve->pending->bytes_read += read;
	strata_pending_reader_end(resolve->reader);
}

/* ---- losers ---- */

/*
 * Compare the marked keys of one subpartition, from the newest entry to the
 * oldest; the first of a key wins.  False when the copies do not fit.
 */
static bool
compare_marked(Resolve *resolve, const uint8 *marked, StrataKeySet *set,
			   uint32 sub, uint32 nsubs, uint8 *losers)
{
	StrataKeyTable *table = resolve->table;
	uint32		high = table->nkeys;

	while (high > 0)
	{
		uint32		low;
		uint32		entry;
		uint32		k;

		if (!bit_get(marked, high - 1))
		{
			/* most are not: skip by whole bytes */
			high--;
			while (high >= 8 && (high & 7) == 0 && marked[(high >> 3) - 1] == 0)
				high -= 8;
			continue;
		}

		/* all of the entry at once, rows in order */
		entry = table->keys[high - 1].entry;
		for (low = high - 1; low > 0 && table->keys[low - 1].entry == entry; low--)
			;
		CHECK_FOR_INTERRUPTS();
		for (k = low; k < high; k++)
		{
			StrataPendingKey *key = &table->keys[k];
			Datum		values[INDEX_MAX_KEYS];
			StrataKeySetItem *item;

			if (!bit_get(marked, k) || (nsubs > 1 && subpart(key->hash, nsubs) != sub))
				continue;
			strata_pending_reader_key(resolve->reader, key->entry, key->row, values);
			item = strata_key_set_find(set, key->hash, values);
			if (item == NULL)
			{
				if (!strata_key_set_add(set, key->hash, values, k, 0))
					return false;
			}
			else if (table->keys[item->entry].entry == entry)
			{
				/* twice in one entry: the later row is the newer version */
				bit_set(losers, key_number(resolve, &table->keys[item->entry]));
				item->entry = k;
			}
			else
				bit_set(losers, key_number(resolve, key));
		}
		high = low;
	}
	return true;
}

static void
find_losers(Resolve *resolve, void *arg)
{
	uint8	   *losers = arg;
	StrataKeyTable *table = resolve->table;
	uint8	   *marked;
	uint64		nmarked = 0;
	uint32		i;
	uint32		sub;
	uint32		nsubs;
	StrataKeySet *set;

	if (table->ndups == 0)
		return;
	marked = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) table->nkeys + 7) / 8,
										MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	/*
	 * A key in dups is newer than some other of its hash.  With the accepted
	 * one next older to each, these are all that may share a key with another.
	 */
	for (i = 0; i < table->ndups; i++)
	{
		uint32		k = table->dups[i];
		uint32		hash = table->keys[k].hash;
		uint32		older;

		if ((i & 0xFFF) == 0)
			CHECK_FOR_INTERRUPTS();
		if (!accepted(resolve, table->keys[k].entry))
			continue;
		for (older = table->keys[k].next; older != STRATA_NO_KEY;
			 older = table->keys[older].next)
		{
			if (table->keys[older].hash == hash && accepted(resolve, table->keys[older].entry))
				break;
		}
		if (older == STRATA_NO_KEY)
			continue;
		nmarked += !bit_get(marked, k);
		bit_set(marked, k);
		nmarked += !bit_get(marked, older);
		bit_set(marked, older);
	}
	if (nmarked == 0)
	{
		pfree(marked);
		return;
	}

	/* a guess at the size of a key; a wrong one costs a round */
	nsubs = (uint32) (nmarked * 64 / resolve->budget + 1);
	set = strata_key_set_create(&resolve->pending->store->key, resolve->budget);
	for (sub = 0; sub < nsubs; sub++)
	{
		strata_key_set_reset(set);
		if (!compare_marked(resolve, marked, set, sub, nsubs, losers))
		{
			/*
			 * What was found stays true.  When even the finest partition does
			 * not fit, its keys are nearly all of one hash or huge: go on
			 * without a limit rather than for ever.
			 */
			if (nsubs < 65536)
				nsubs *= 2;
			else
				strata_key_set_set_budget(set, SIZE_MAX);
			sub = PG_UINT32_MAX;	/* begin again, at 0 */
		}
	}
	strata_key_set_free(set);
	pfree(marked);
}

const uint8 *
strata_pending_losers(StrataPending *pending, StrataAccept accept, void *arg)
{
	StrataPendingLog *log = pending->log;
	Resolve		resolve;
	uint8	   *losers;
	Size		size;
	MemoryContext old;
	Size		i;

	if (pending->losers_accept == accept && pending->losers_arg == arg &&
		pending->losers_accept != NULL)
		return pending->losers;

	if (pending->losers)
		pfree(pending->losers);
	pending->losers = NULL;
	pending->nlosers = 0;
	pending->losers_accept = NULL;

	if (log->keyed && !(log->keys && log->keys->ndups == 0))
	{
		old = MemoryContextSwitchTo(pending->mcxt);
		size = (Size) (log->nkeys / 8 + 8);
		size = TYPEALIGN(8, size);
		losers = MemoryContextAllocExtended(pending->mcxt, size,
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
		resolve_init(&resolve, pending, accept, arg);
		for_each_table(&resolve, find_losers, losers);
		resolve_end(&resolve);
		MemoryContextSwitchTo(old);

		for (i = 0; i < size; i += sizeof(uint64))
			pending->nlosers += pg_popcount64(*(uint64 *) (losers + i));
		if (pending->nlosers > 0)
			pending->losers = losers;
		else
			pfree(losers);
	}
	pending->losers_accept = accept;
	pending->losers_arg = arg;
	pending->losers_entries = log->nentries;
	return pending->losers;
}

/* ---- superseded base rows ---- */

static void
supersede(StrataSuperseded *result, StrataRowGroup *group, uint32 row)
{
	int			i = group - result->manifest->groups;

	if (result->rows[i] == NULL)
		result->rows[i] = palloc0((group->ref.rows + 7) / 8);
	if (!bit_get(result->rows[i], row))
	{
		bit_set(result->rows[i], row);
		result->count++;
	}
}

/* Probe the index with the keys of set, in key order. */
static void
probe_set(StrataKeySet *set, StrataIndexProbe *probe, StrataSuperseded *result)
{
	uint32		n = strata_key_set_count(set);
	uint32		i;

	strata_key_set_sort(set);
	for (i = 0; i < n; i++)
	{
		ItemPointerData tid;
		bool		more;

		CHECK_FOR_INTERRUPTS();
		for (more = strata_keyindex_probe(probe, strata_key_set_values(set, i), &tid); more;
			 more = strata_keyindex_probe_next(probe, &tid))
		{
			StrataRowGroup *group = strata_manifest_group(result->manifest,
														  strata_tid_group(&tid));
			uint32		row = strata_tid_row(&tid);

			if (group == NULL || row >= group->ref.rows || strata_row_deleted(group, row))
				continue;
			if (result->skip == NULL || !result->skip[group - result->manifest->groups])
				supersede(result, group, row);
		}
	}
	strata_key_set_reset(set);
}

static void
supersede_by_index(Resolve *resolve, const uint8 *losers, Oid index, StrataSuperseded *result)
{
	StrataPending *pending = resolve->pending;
	StrataPendingLog *log = pending->log;
	StrataKeySet *set = strata_key_set_create(&pending->store->key, resolve->budget);
	StrataIndexProbe *probe = strata_keyindex_probe_begin(pending->store, pending->storage, index);
	int			entry;

	for (entry = 0; entry < resolve->nentries; entry++)
	{
		uint64		first;
		uint32		n;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		if (!accepted(resolve, entry))
			continue;
		first = log->entries[entry].first_key;
		n = strata_pending_entry_keys(&log->entries[entry]);
		for (row = 0; row < n; row++)
		{
			Datum		values[INDEX_MAX_KEYS];

			if (pending_bit(losers, first + row))
				continue;
			strata_pending_reader_key(resolve->reader, entry, row, values);
			if (!strata_key_set_add(set, 0, values, entry, row))
			{
				probe_set(set, probe, result);
				(void) strata_key_set_add(set, 0, values, entry, row);
			}
		}
	}
	probe_set(set, probe, result);
	result->index_probes += strata_keyindex_probe_count(probe);
	strata_keyindex_probe_end(probe);
	strata_key_set_free(set);
}

typedef struct HashSupersede
{
	const uint8 *losers;
	StrataSuperseded *result;
} HashSupersede;

/* Copy the keys of table marked in hit, one subpartition; false: do not fit. */
static bool
copy_hit_keys(Resolve *resolve, const uint8 *hit, StrataKeySet *set, uint32 sub, uint32 nsubs)
{
	StrataKeyTable *table = resolve->table;
	uint32		k;

	for (k = 0; k < table->nkeys; k++)
	{
		StrataPendingKey *key = &table->keys[k];
		Datum		values[INDEX_MAX_KEYS];

		if ((k & 7) == 0 && hit[k >> 3] == 0)
		{
			k += 7;
			continue;
		}
		if (!bit_get(hit, k) || (nsubs > 1 && subpart(key->hash, nsubs) != sub))
			continue;
		if ((k & 0xFF) == 0)
			CHECK_FOR_INTERRUPTS();
		strata_pending_reader_key(resolve->reader, key->entry, key->row, values);
		if (!strata_key_set_add(set, key->hash, values, k, 0))
			return false;
	}
	return true;
}

/*
 * Superseded base rows by the hashes of one table: first which pending keys
 * share a hash with a live base row, then, with copies of those, which rows.
 */
static void
supersede_by_hash(Resolve *resolve, void *arg)
{
	HashSupersede *state = arg;
	StrataSuperseded *result = state->result;
	StrataPending *pending = resolve->pending;
	StrataManifest *manifest = result->manifest;
	StrataKeyTable *table = resolve->table;
	MemoryContext group_mcxt;
	uint8	   *hit;
	bool	   *group_hit;
	uint64		nhit = 0;
	uint32		sub;
	uint32		nsubs;
	StrataKeySet *set;
	int			i;

	if (table->nkeys == 0)
		return;
	hit = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) table->nkeys + 7) / 8,
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	group_hit = palloc0(sizeof(bool) * manifest->ngroups);
	group_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row group hashes",
									   ALLOCSET_DEFAULT_SIZES);
	for (i = 0; i < manifest->ngroups; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];
		StrataGroupReader *reader;
		const uint32 *hashes;
		uint32		nrows;
		uint32		row;
		uint64		read = 0;
		uint64		decoded = 0;
		MemoryContext old;

		CHECK_FOR_INTERRUPTS();
		if ((result->skip && result->skip[i]) || group->ndeleted == group->ref.rows)
			continue;
		old = MemoryContextSwitchTo(group_mcxt);
		reader = strata_group_open(pending->store, pending->storage, &group->ref, NULL, true);
		hashes = strata_group_hashes(reader);
		nrows = Min(strata_group_rows(reader), group->ref.rows);
		for (row = 0; row < nrows; row++)
		{
			uint32		hash = hashes[row];
			uint32		k;

			if (resolve->nparts > 1 && hash % resolve->nparts != resolve->part)
				continue;
			if (strata_row_deleted(group, row))
				continue;
			for (k = strata_key_table_head(table, hash); k != STRATA_NO_KEY;
				 k = table->keys[k].next)
			{
				StrataPendingKey *key = &table->keys[k];

				if (key->hash != hash)
					continue;
				if (bit_get(hit, k))
				{
					group_hit[i] = true;
					continue;
				}
				if (!accepted(resolve, key->entry) ||
					pending_bit(state->losers, key_number(resolve, key)))
					continue;
				bit_set(hit, k);
				nhit++;
				group_hit[i] = true;
			}
		}
		strata_group_io(reader, &read, &decoded);
		result->bytes_read += read;
		result->bytes_decoded += decoded;
		strata_group_close(reader);
		MemoryContextSwitchTo(old);
		MemoryContextReset(group_mcxt);
	}

	nsubs = (uint32) (nhit * 64 / resolve->budget + 1);
	set = strata_key_set_create(&pending->store->key, resolve->budget);
	for (sub = 0; nhit > 0 && sub < nsubs; sub++)
	{
		strata_key_set_reset(set);
		if (!copy_hit_keys(resolve, hit, set, sub, nsubs))
		{
			if (nsubs < 65536)
				nsubs *= 2;
			else
				strata_key_set_set_budget(set, SIZE_MAX);
			sub = PG_UINT32_MAX;	/* begin again, at 0 */
			continue;
		}
		for (i = 0; i < manifest->ngroups; i++)
		{
			StrataRowGroup *group = &manifest->groups[i];
			StrataGroupReader *reader;
			const uint32 *hashes;
			uint32		nrows;
			uint32		row;
			uint64		read = 0;
			uint64		decoded = 0;
			MemoryContext old;

			CHECK_FOR_INTERRUPTS();
			if (!group_hit[i])
				continue;
			old = MemoryContextSwitchTo(group_mcxt);
			reader = strata_group_open(pending->store, pending->storage, &group->ref, NULL, true);
			hashes = strata_group_hashes(reader);
			nrows = Min(strata_group_rows(reader), group->ref.rows);
			MemoryContextSwitchTo(old);
			for (row = 0; row < nrows; row++)
			{
				Datum		values[INDEX_MAX_KEYS];

				if (!strata_key_set_has_hash(set, hashes[row]) ||
					strata_row_deleted(group, row))
					continue;
				strata_group_fetch_key(reader, row, values);
				if (strata_key_set_find(set, hashes[row], values) != NULL)
					supersede(result, group, row);
			}
			strata_group_io(reader, &read, &decoded);
			result->bytes_read += read;
			result->bytes_decoded += decoded;
			strata_group_close(reader);
			MemoryContextReset(group_mcxt);
		}
	}
	strata_key_set_free(set);
	MemoryContextDelete(group_mcxt);
	pfree(group_hit);
	pfree(hit);
}

void
strata_pending_superseded(StrataPending *pending, StrataAccept accept, void *arg,
						  Oid index, StrataSuperseded *result)
{
	StrataPendingLog *log = pending->log;
	Resolve		resolve;
	const uint8 *losers;
	double		keys = 0;
	double		rows = 0;
	double		groups = 0;
	int			entry;
	int			i;

	if (!log->keyed || log->nentries == 0)
		return;
	for (i = 0; i < result->manifest->ngroups; i++)
	{
		if (result->skip && result->skip[i])
			continue;
		rows += result->manifest->groups[i].ref.rows;
		groups++;
	}
	if (groups == 0)
		return;

	/* losers have a winner of the same key: that one says all */
	losers = strata_pending_losers(pending, accept, arg);
	resolve_init(&resolve, pending, accept, arg);
	for (entry = 0; entry < resolve.nentries; entry++)
	{
		if (accepted(&resolve, entry))
			keys += strata_pending_entry_keys(&log->entries[entry]);
	}
	keys -= Min(keys, (double) pending->nlosers);
	if (keys > 0)
	{
		if (OidIsValid(index) &&
			keys * COST_PROBE < rows * COST_HASH + groups * COST_GROUP)
			supersede_by_index(&resolve, losers, index, result);
		else
		{
			HashSupersede state = {losers, result};

			for_each_table(&resolve, supersede_by_hash, &state);
		}
	}
	resolve_end(&resolve);
}
