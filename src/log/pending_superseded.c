/*-------------------------------------------------------------------------
 *
 * pending_superseded.c
 *	  All base rows that pending keys supersede.
 *
 * Few pending keys are probed for in the key index, in key order.  Many are
 * held against the key hashes of the base rows first; what shares a hash is
 * then probed for, or compared, whichever is expected to cost less.  Memory is
 * bounded as in pending_resolve.c: a table of hashes and as many copies of
 * keys as fit hash_mem at a time, and a bit per row of the row groups that
 * lose rows.
 *
 * IDENTIFICATION
 *	  src/log/pending_superseded.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/keyindex.h"
#include "log/pending_resolve.h"

#include "miscadmin.h"
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
probe_later(StrataResolve *resolve, StrataKeySet *set, StrataIndexProbe *probe,
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
supersede_by_index(StrataResolve *resolve, const uint8 *losers, Oid index, StrataSuperseded *result)
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
		if (!resolve_accepts(resolve, entry))
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
open_for_hashes(StrataResolve *resolve, const StrataRowGroup *group, MemoryContext mcxt,
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
find_hits(StrataResolve *resolve, HashSupersede *state, MemoryContext mcxt)
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
					if (!resolve_accepts(resolve, key->entry) ||
						pending_bit(state->losers, resolve_key_number(resolve, key)))
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
supersede_by_set(StrataResolve *resolve, HashSupersede *state, StrataKeySet *set,
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
comparing_cost(StrataResolve *resolve, HashSupersede *state)
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
supersede_by_hash(StrataResolve *resolve, void *arg)
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
	StrataResolve		resolve;
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
	strata_resolve_init(&resolve, pending, accept, arg);
	for (entry = 0; entry < resolve.nentries; entry++)
	{
		if (resolve_accepts(&resolve, entry))
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

			strata_resolve_each_table(&resolve, supersede_by_hash, &state);
		}
	}
	strata_resolve_end(&resolve);
}
