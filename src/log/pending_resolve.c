/*-------------------------------------------------------------------------
 *
 * pending_resolve.c
 *	  All losers among pending versions at once, and which of some base rows
 *	  pending keys hide.
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

#include "log/pending_resolve.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

void
strata_resolve_each_table(StrataResolve *resolve, StrataTableCallback callback, void *arg)
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
		if (resolve_accepts(resolve, entry))
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
			if (!resolve_accepts(resolve, entry))
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

void
strata_resolve_init(StrataResolve *resolve, StrataPending *pending, StrataAccept accept, void *arg)
{
	memset(resolve, 0, sizeof(*resolve));
	resolve->pending = pending;
	resolve->accept = accept;
	resolve->arg = arg;
	resolve->nentries = pending->log->nentries;
	resolve->budget = pending->budget > 0 ? pending->budget : get_hash_memory_limit();
	resolve->reader = strata_pending_reader_begin(pending, NULL, true);
}

void
strata_resolve_end(StrataResolve *resolve)
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
losers_round(StrataResolve *resolve, uint8 *marked, StrataKeySet *set, uint32 high, uint8 *losers)
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
				bit_set(losers, resolve_key_number(resolve, &table->keys[item->entry]));
				item->entry = k;
			}
			else
				bit_set(losers, resolve_key_number(resolve, key));
			bit_clear(marked, k);
		}
		high = low;
	}
	return next;
}

static void
find_losers(StrataResolve *resolve, void *arg)
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
		if (!resolve_accepts(resolve, table->keys[k].entry))
			continue;
		for (older = table->keys[k].next; older != STRATA_NO_KEY;
			 older = table->keys[older].next)
		{
			if (table->keys[older].hash == hash && resolve_accepts(resolve, table->keys[older].entry))
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
	StrataResolve		resolve;
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
		strata_resolve_init(&resolve, pending, accept, arg);
		strata_resolve_each_table(&resolve, find_losers, losers);
		strata_resolve_end(&resolve);
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
	StrataResolve		resolve;
	MemoryContext mcxt;
	MemoryContext old;
	int			entry;

	memset(hidden, 0, n * sizeof(bool));
	if (!log->keyed || n == 0)
		return 0;
	strata_resolve_init(&resolve, rows->pending, accept, arg);
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata key hashes",
								 ALLOCSET_DEFAULT_SIZES);
	for (entry = 0; entry < resolve.nentries; entry++)
	{
		const uint32 *hashes = NULL;
		uint64		first;
		uint32		nkeys;
		uint32		row;

		CHECK_FOR_INTERRUPTS();
		if (!resolve_accepts(&resolve, entry))
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
	strata_resolve_end(&resolve);
	return nhidden;
}

void
strata_hidden_rows_end(StrataHiddenRows *rows)
{
	strata_key_set_free(rows->set);
	pfree(rows);
}
