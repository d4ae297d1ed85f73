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
 * the other, reading the hashes again for each.  Keys are copied as many as
 * fit, in the order of the log, and all others are held against them, before
 * the next are copied: keys that were sent again are mostly sent in the same
 * order, so that each round decodes a part of the log and of the base.  What
 * remains is a bit per pending version and per row of the row groups that
 * lose rows.
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
 * in key order, a hash looked up, a row group opened for its hashes, a key
 * read and compared.
 */
#define COST_PROBE		6.0
#define COST_HASH		0.04
#define COST_GROUP		50.0
#define COST_KEY		0.2

/* what a copied key takes, about */
#define BYTES_COPY		80

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

static inline void
bit_clear(uint8 *bitmap, uint64 i)
{
	bitmap[i >> 3] &= ~(1 << (i & 7));
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
 * One round over the marked keys, from the entry before high to the oldest.
 * As long as they fit, keys not met yet are copied into set; after that keys
 * are only looked up there.  The first of a key wins.  What is settled, as a
 * loser or by having been in the set, is no longer marked.  Returns where the
 * next round begins, 0 when all is settled.
 */
static uint32
losers_round(Resolve *resolve, uint8 *marked, StrataKeySet *set, uint32 high, uint8 *losers)
{
	StrataKeyTable *table = resolve->table;
	uint32		next = 0;
	bool		full = false;

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

			if (!bit_get(marked, k) || (full && !strata_key_set_has_hash(set, key->hash)))
				continue;
			strata_pending_reader_key(resolve->reader, key->entry, key->row, values);
			item = strata_key_set_find(set, key->hash, values);
			if (item == NULL)
			{
				if (full)
					continue;
				if (!strata_key_set_add(set, key->hash, values, k, 0))
				{
					full = true;
					next = high;
					continue;
				}
			}
			else if (table->keys[item->entry].entry == entry)
			{
				/* twice in one entry: the later row is the newer version */
				bit_set(losers, key_number(resolve, &table->keys[item->entry]));
				item->entry = k;
			}
			else
				bit_set(losers, key_number(resolve, key));
			bit_clear(marked, k);
		}
		high = low;
	}
	return next;
}

static void
find_losers(Resolve *resolve, void *arg)
{
	uint8	   *losers = arg;
	StrataKeyTable *table = resolve->table;
	uint8	   *marked;
	bool		any = false;
	uint32		high;
	uint32		i;
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
		bit_set(marked, k);
		bit_set(marked, older);
		any = true;
	}

	if (any)
	{
		set = strata_key_set_create(&resolve->pending->store->key, resolve->budget);
		for (high = table->nkeys; high > 0;)
		{
			strata_key_set_reset(set);
			high = losers_round(resolve, marked, set, high, losers);
		}
		strata_key_set_free(set);
	}
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

/* Add a pending key to those to be probed with; probe when they are many. */
static void
probe_later(Resolve *resolve, StrataKeySet *set, StrataIndexProbe *probe,
			uint32 entry, uint32 row, StrataSuperseded *result)
{
	Datum		values[INDEX_MAX_KEYS];

	strata_pending_reader_key(resolve->reader, entry, row, values);
	if (!strata_key_set_add(set, 0, values, entry, row))
	{
		probe_set(set, probe, result);
		(void) strata_key_set_add(set, 0, values, entry, row);
	}
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
			if (!pending_bit(losers, first + row))
				probe_later(resolve, set, probe, entry, row, result);
		}
	}
	probe_set(set, probe, result);
	result->index_probes += strata_keyindex_probe_count(probe);
	strata_keyindex_probe_end(probe);
	strata_key_set_free(set);
}

/*
 * Which pending keys share a hash with a base row that is not deleted, and
 * where: the keys of a table are seen as SECTIONS equal runs, and each row
 * group has a bit for every run that it shares a hash with.
 */
#define SECTIONS	64

typedef struct HashSupersede
{
	const uint8 *losers;
	Oid			index;
	StrataSuperseded *result;

	/* of the table at hand */
	uint8	   *hit;			/* by key of the table */
	uint64		nhit;
	uint64	   *sections;		/* [ngroups] */
} HashSupersede;

static inline int
key_section(const StrataKeyTable *table, uint32 k)
{
	return (int) ((uint64) k * SECTIONS / table->nkeys);
}

/* Sections of the keys first to last, as bits. */
static uint64
section_mask(const StrataKeyTable *table, uint32 first, uint32 last)
{
	int			low = key_section(table, first);
	int			high = key_section(table, last);
	uint64		upto = high == SECTIONS - 1 ? ~UINT64CONST(0) : (UINT64CONST(1) << (high + 1)) - 1;

	return upto & ~((UINT64CONST(1) << low) - 1);
}

/* Open a row group for its hashes; the reader belongs to mcxt. */
static StrataGroupReader *
open_for_hashes(Resolve *resolve, const StrataRowGroup *group, MemoryContext mcxt,
				const uint32 **hashes, uint32 *nrows)
{
	StrataPending *pending = resolve->pending;
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	StrataGroupReader *reader;

	reader = strata_group_open(pending->store, pending->storage, &group->ref, NULL, true);
	*hashes = strata_group_hashes(reader);
	*nrows = Min(strata_group_rows(reader), group->ref.rows);
	MemoryContextSwitchTo(old);
	return reader;
}

static void
close_for_hashes(StrataGroupReader *reader, MemoryContext mcxt, StrataSuperseded *result)
{
	uint64		read = 0;
	uint64		decoded = 0;

	strata_group_io(reader, &read, &decoded);
	result->bytes_read += read;
	result->bytes_decoded += decoded;
	strata_group_close(reader);
	MemoryContextReset(mcxt);
}

static void
find_hits(Resolve *resolve, HashSupersede *state, MemoryContext mcxt)
{
	StrataSuperseded *result = state->result;
	StrataManifest *manifest = result->manifest;
	StrataKeyTable *table = resolve->table;
	int			i;

	for (i = 0; i < manifest->ngroups; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];
		StrataGroupReader *reader;
		const uint32 *hashes;
		uint32		nrows;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		if ((result->skip && result->skip[i]) || group->ndeleted == group->ref.rows)
			continue;
		reader = open_for_hashes(resolve, group, mcxt, &hashes, &nrows);
		for (row = 0; row < nrows; row++)
		{
			uint32		hash = hashes[row];
			uint32		k;

			if (row + STRATA_PREFETCH < nrows)
				strata_key_table_prefetch(table, hashes[row + STRATA_PREFETCH]);
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
				if (!bit_get(state->hit, k))
				{
					/* losers have a winner of the same hash: that one counts */
					if (!accepted(resolve, key->entry) ||
						pending_bit(state->losers, key_number(resolve, key)))
						continue;
					bit_set(state->hit, k);
					state->nhit++;
				}
				state->sections[i] |= UINT64CONST(1) << key_section(table, k);
			}
		}
		close_for_hashes(reader, mcxt, result);
	}
}

/*
 * Base rows whose key is in set, in row groups that share a hash with one of
 * the given sections.
 */
static void
supersede_by_set(Resolve *resolve, HashSupersede *state, StrataKeySet *set,
				 uint64 sections, MemoryContext mcxt)
{
	StrataManifest *manifest = state->result->manifest;
	int			i;

	for (i = 0; i < manifest->ngroups; i++)
	{
		StrataRowGroup *group = &manifest->groups[i];
		StrataGroupReader *reader;
		const uint32 *hashes;
		uint32		nrows;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		if ((state->sections[i] & sections) == 0)
			continue;
		reader = open_for_hashes(resolve, group, mcxt, &hashes, &nrows);
		for (row = 0; row < nrows; row++)
		{
			Datum		values[INDEX_MAX_KEYS];

			if (!strata_key_set_has_hash(set, hashes[row]) || strata_row_deleted(group, row))
				continue;
			strata_group_fetch_key(reader, row, values);
			if (strata_key_set_find(set, hashes[row], values) != NULL)
				supersede(state->result, group, row);
		}
		close_for_hashes(reader, mcxt, state->result);
	}
}

/* What comparing the hits with the base rows is expected to cost. */
static double
comparing_cost(Resolve *resolve, HashSupersede *state)
{
	StrataManifest *manifest = state->result->manifest;
	int			rounds = (int) Min(state->nhit * BYTES_COPY / resolve->budget + 1, SECTIONS);
	double		cost = state->nhit * COST_KEY;
	int			i;
	int			round;

	for (round = 0; round < rounds; round++)
	{
		int			low = round * SECTIONS / rounds;
		int			high = (round + 1) * SECTIONS / rounds;
		uint64		mask = 0;

		for (; low < high; low++)
			mask |= UINT64CONST(1) << low;
		for (i = 0; i < manifest->ngroups; i++)
		{
			if (state->sections[i] & mask)
				cost += manifest->groups[i].ref.rows * COST_KEY;
		}
	}
	return cost;
}

/*
 * Superseded base rows by the hashes of one table: first which pending keys
 * share a hash with a live base row at all.  Their keys are then looked for in
 * the index, or copied, as many as fit at a time, in the order of the log, and
 * compared with the base rows.
 */
static void
supersede_by_hash(Resolve *resolve, void *arg)
{
	HashSupersede *state = arg;
	StrataSuperseded *result = state->result;
	StrataPending *pending = resolve->pending;
	StrataKeyTable *table = resolve->table;
	StrataIndexProbe *probe = NULL;
	StrataKeySet *set;
	MemoryContext mcxt;
	uint32		first = 0;
	uint32		k;

	if (table->nkeys == 0)
		return;
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row group hashes",
								 ALLOCSET_DEFAULT_SIZES);
	state->hit = MemoryContextAllocExtended(CurrentMemoryContext, ((Size) table->nkeys + 7) / 8,
											MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	state->nhit = 0;
	state->sections = palloc0(sizeof(uint64) * result->manifest->ngroups);
	find_hits(resolve, state, mcxt);

	set = strata_key_set_create(&pending->store->key, resolve->budget);
	if (OidIsValid(state->index) && state->nhit > 0 &&
		state->nhit * COST_PROBE < comparing_cost(resolve, state))
		probe = strata_keyindex_probe_begin(pending->store, pending->storage, state->index);

	for (k = 0; state->nhit > 0 && k < table->nkeys; k++)
	{
		StrataPendingKey *key = &table->keys[k];
		Datum		values[INDEX_MAX_KEYS];

		if ((k & 7) == 0 && state->hit[k >> 3] == 0)
		{
			k += 7;
			continue;
		}
		if ((k & 0xFF) == 0)
			CHECK_FOR_INTERRUPTS();
		if (!bit_get(state->hit, k))
			continue;
		if (probe)
		{
			probe_later(resolve, set, probe, key->entry, key->row, result);
			continue;
		}
		strata_pending_reader_key(resolve->reader, key->entry, key->row, values);
		if (!strata_key_set_add(set, key->hash, values, k, 0))
		{
			supersede_by_set(resolve, state, set, section_mask(table, first, k), mcxt);
			strata_key_set_reset(set);
			(void) strata_key_set_add(set, key->hash, values, k, 0);
			first = k;
		}
	}
	if (probe)
	{
		probe_set(set, probe, result);
		result->index_probes += strata_keyindex_probe_count(probe);
		strata_keyindex_probe_end(probe);
	}
	else if (strata_key_set_count(set) > 0)
		supersede_by_set(resolve, state, set, section_mask(table, first, table->nkeys - 1), mcxt);

	strata_key_set_free(set);
	MemoryContextDelete(mcxt);
	pfree(state->sections);
	pfree(state->hit);
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
			HashSupersede state = {.losers = losers, .index = index, .result = result};

			for_each_table(&resolve, supersede_by_hash, &state);
		}
	}
	resolve_end(&resolve);
}

/* ---- some base rows ---- */

struct StrataHiddenRows
{
	StrataPending *pending;
	StrataKeySet *set;			/* entry: number of the row */
};

StrataHiddenRows *
strata_hidden_rows_begin(StrataPending *pending)
{
	StrataHiddenRows *rows = palloc(sizeof(StrataHiddenRows));

	rows->pending = pending;
	rows->set = strata_key_set_create(&pending->store->key, SIZE_MAX);
	return rows;
}

void
strata_hidden_rows_add(StrataHiddenRows *rows, uint32 hash, const Datum *keyvalues)
{
	if (!strata_key_set_add(rows->set, hash, keyvalues, strata_key_set_count(rows->set), 0))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows to look for among pending keys")));
}

uint32
strata_hidden_rows_find(StrataHiddenRows *rows, StrataAccept accept, void *arg, bool *hidden)
{
	StrataKeySet *set = rows->set;
	StrataPendingLog *log = rows->pending->log;
	uint32		n = strata_key_set_count(set);
	uint32		nhidden = 0;
	Resolve		resolve;
	MemoryContext mcxt;
	MemoryContext old;
	int			entry;

	memset(hidden, 0, n * sizeof(bool));
	if (!log->keyed || n == 0)
		return 0;
	resolve_init(&resolve, rows->pending, accept, arg);
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata key hashes",
								 ALLOCSET_DEFAULT_SIZES);
	for (entry = 0; entry < resolve.nentries; entry++)
	{
		const uint32 *hashes = NULL;
		uint64		first;
		uint32		nkeys;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		if (!accepted(&resolve, entry))
			continue;
		first = log->entries[entry].first_key;
		nkeys = strata_pending_entry_keys(&log->entries[entry]);
		if (log->keys == NULL)
		{
			old = MemoryContextSwitchTo(mcxt);
			hashes = strata_pending_hashes(rows->pending, entry);
			MemoryContextSwitchTo(old);
		}
		for (row = 0; row < nkeys; row++)
		{
			uint32		hash = hashes ? hashes[row] : log->keys->keys[first + row].hash;
			Datum		values[INDEX_MAX_KEYS];
			StrataKeySetItem *item;

			if (!strata_key_set_has_hash(set, hash))
				continue;
			strata_pending_reader_key(resolve.reader, entry, row, values);
			item = strata_key_set_find(set, hash, values);
			if (item != NULL && !hidden[item->entry])
			{
				hidden[item->entry] = true;
				nhidden++;
			}
		}
		MemoryContextReset(mcxt);
	}
	MemoryContextDelete(mcxt);
	resolve_end(&resolve);
	return nhidden;
}

void
strata_hidden_rows_end(StrataHiddenRows *rows)
{
	strata_key_set_free(rows->set);
	pfree(rows);
}
