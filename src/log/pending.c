/*-------------------------------------------------------------------------
 *
 * pending.c
 *	  The one rule for who wins among the versions of a key.
 *
 * Within a shard a later position beats an earlier one, pending beats base,
 * and a tombstone hides the key.  Entries are numbered in the order of their
 * positions within each shard, and a key lives in one shard, so of two
 * versions of a key the one with the greater entry number is the newer.
 *
 * Which entries count is the caller's acceptance rule; versions in entries
 * that do not count are as if they were not there.  A hash is a filter only:
 * whether two versions are of the same key is decided by comparing the keys.
 *
 * Where the table of keys was given up (pending_log.c) a lookup reads the
 * hashes of the shard's accepted entries from the newest on, keeping none, and
 * whoever asks about many versions gets all losers computed in partitions
 * (pending_resolve.c).
 *
 * IDENTIFICATION
 *	  src/log/pending.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"

#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"

/* Beyond this many comparisons for strata_pending_wins, all are made at once. */
#define MAX_CONTESTED	64

bool
strata_probe_matches(const StrataKeyProbe *probe, const Datum *stored)
{
	const StrataKey *key = probe->key;
	int			i;

	if (probe->eq == NULL)
	{
		if (probe->nkeys == key->natts)
			return strata_key_equal(key, stored, probe->values);
		for (i = 0; i < probe->nkeys; i++)
		{
			if (DatumGetInt32(FunctionCall2Coll(unconstify(FmgrInfo *, &key->cmp_proc[i]),
												key->collation[i],
												stored[i], probe->values[i])) != 0)
				return false;
		}
		return true;
	}
	for (i = 0; i < probe->nkeys; i++)
	{
		if (!DatumGetBool(FunctionCall2Coll(&probe->eq[i], key->collation[i],
											stored[i], probe->values[i])))
			return false;
	}
	return true;
}

void
strata_pending_lend_reader(StrataPending *pending, StrataPendingReader *reader)
{
	pending->lent = reader;
}

/* The reader of keys; made by the first comparison. */
static StrataPendingReader *
key_reader(StrataPending *pending)
{
	if (pending->lent)
		return pending->lent;
	if (pending->reader == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(pending->mcxt);

		pending->reader = strata_pending_reader_begin(pending, NULL, false);
		MemoryContextSwitchTo(old);
	}
	return pending->reader;
}

static bool
probe_version(StrataPending *pending, const StrataKeyProbe *probe, int entry, uint32 row)
{
	Datum		stored[INDEX_MAX_KEYS];

	strata_pending_reader_key(key_reader(pending), entry, row, stored);
	return strata_probe_matches(probe, stored);
}

/* Is the version of the key, and does visit want to see no more? */
static bool
visited(StrataPending *pending, const StrataKeyProbe *probe, int entry, uint32 row,
		StrataVisit visit, void *visit_arg)
{
	StrataVersion version;

	if (!probe_version(pending, probe, entry, row))
		return false;
	version.entry = entry;
	version.row = row;
	version.tombstone = row >= pending_entry(pending, entry)->rows;
	return !visit(&version, visit_arg);
}

/* strata_pending_versions without a table of keys: from the newest entry on. */
static void
versions_by_reading(StrataPending *pending, const StrataKeyProbe *probe,
					StrataAccept accept, void *arg, StrataVisit visit, void *visit_arg)
{
	StrataPendingLog *log = pending->log;
	int			shard = -1;
	int			entry;
	MemoryContext mcxt;
	MemoryContext old;
	bool		done = false;

	if (probe->has_hash)
		shard = strata_key_shard(probe->hash, log->nshards);
	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata key hashes",
								 ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(mcxt);
	for (entry = log->nentries - 1; entry >= 0 && !done; entry--)
	{
		uint32		n;
		uint32		row;
		const uint32 *hashes = NULL;

		CHECK_FOR_INTERRUPTS();
		if (shard >= 0 && log->entries[entry].shard != shard)
			continue;
		if (!accept(&log->entries[entry], entry, arg))
			continue;
		n = strata_pending_entry_keys(&log->entries[entry]);
		if (probe->has_hash)
			hashes = strata_pending_hashes(pending, entry);
		for (row = n; row-- > 0;)
		{
			if (hashes && hashes[row] != probe->hash)
				continue;
			done = visited(pending, probe, entry, row, visit, visit_arg);
			if (done)
				break;
		}
		MemoryContextReset(mcxt);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(mcxt);
}

void
strata_pending_versions(StrataPending *pending, const StrataKeyProbe *probe,
						StrataAccept accept, void *arg, StrataVisit visit, void *visit_arg)
{
	StrataPendingLog *log = pending->log;
	StrataKeyTable *table = log->keys;
	uint32		k;

	if (!log->keyed || log->nentries == 0)
		return;
	if (table == NULL)
	{
		versions_by_reading(pending, probe, accept, arg, visit, visit_arg);
		return;
	}

	if (probe->has_hash)
	{
		for (k = strata_key_table_head(table, probe->hash); k != STRATA_NO_KEY;
			 k = table->keys[k].next)
		{
			StrataPendingKey *key = &table->keys[k];

			if (key->hash == probe->hash &&
				accept(&log->entries[key->entry], key->entry, arg) &&
				visited(pending, probe, key->entry, key->row, visit, visit_arg))
				return;
		}
		return;
	}

	/* no hash: every key, entry by entry; of one shard the newest comes first */
	for (k = table->nkeys; k-- > 0;)
	{
		StrataPendingKey *key = &table->keys[k];

		if ((k & 0xFFF) == 0)
			CHECK_FOR_INTERRUPTS();
		if (accept(&log->entries[key->entry], key->entry, arg) &&
			visited(pending, probe, key->entry, key->row, visit, visit_arg))
			return;
	}
}

/* Take the first version, and see no more. */
static bool
take(const StrataVersion *version, void *arg)
{
	*(StrataVersion *) arg = *version;
	return false;
}

bool
strata_pending_find(StrataPending *pending, const StrataKeyProbe *probe,
					StrataAccept accept, void *arg, StrataVersion *out)
{
	out->entry = -1;
	strata_pending_versions(pending, probe, accept, arg, take, out);
	return out->entry >= 0;
}

bool
strata_pending_wins(StrataPending *pending, int entry, uint32 row,
					StrataAccept accept, void *arg)
{
	StrataPendingLog *log = pending->log;
	StrataKeyTable *table = log->keys;
	const StrataPendingEntry *known = pending_entry(pending, entry);
	uint64		number;

	if (!accept(known, entry, arg))
		return false;
	if (!log->keyed)
		return true;

	number = known->first_key + row;
	if (table && table->ndups == 0)
		return true;
	if (table && pending->ncontested < MAX_CONTESTED)
	{
		uint32		self = (uint32) number;
		uint32		hash = table->keys[self].hash;
		Datum		own[INDEX_MAX_KEYS];
		StrataKeyProbe probe;
		bool		have_own = false;
		MemoryContext copies = NULL;
		bool		beaten = false;
		uint32		k;

		for (k = strata_key_table_head(table, hash); k != self && !beaten;
			 k = table->keys[k].next)
		{
			StrataPendingKey *key = &table->keys[k];

			if (key->hash != hash ||
				!accept(&log->entries[key->entry], key->entry, arg))
				continue;
			pending->ncontested++;
			if (!have_own)
			{
				/* reading the other key may reuse what this one lies in */
				MemoryContext old;
				int			i;

				copies = AllocSetContextCreate(CurrentMemoryContext, "strata key",
											   ALLOCSET_SMALL_SIZES);
				old = MemoryContextSwitchTo(copies);
				strata_pending_reader_key(key_reader(pending), entry, row, own);
				for (i = 0; i < pending->store->key.natts; i++)
				{
					Form_pg_attribute att = TupleDescAttr(pending->store->key.desc, i);

					own[i] = datumCopy(own[i], att->attbyval, att->attlen);
				}
				MemoryContextSwitchTo(old);
				memset(&probe, 0, sizeof(probe));
				probe.key = &pending->store->key;
				probe.nkeys = probe.key->natts;
				probe.values = own;
				have_own = true;
			}
			beaten = probe_version(pending, &probe, key->entry, key->row);
		}
		if (copies)
			MemoryContextDelete(copies);
		return !beaten;
	}

	if (entry >= pending->losers_entries)
		pending->losers_accept = NULL;	/* found among fewer entries */
	return !pending_bit(strata_pending_losers(pending, accept, arg), number);
}

bool
strata_pending_hides(StrataPending *pending, uint32 hash, StrataGroupReader *reader,
					 uint32 row, StrataAccept accept, void *arg)
{
	StrataPendingLog *log = pending->log;
	StrataKeyTable *table = log->keys;
	StrataKeyProbe probe;
	Datum		base[INDEX_MAX_KEYS];
	bool		fetched = false;
	uint32		k;

	if (!log->keyed || log->nentries == 0)
		return false;
	memset(&probe, 0, sizeof(probe));
	probe.key = &pending->store->key;
	probe.nkeys = probe.key->natts;
	probe.values = base;
	probe.has_hash = true;
	probe.hash = hash;

	if (table == NULL)
	{
		StrataVersion version;

		strata_group_fetch_key(reader, row, base);
		return strata_pending_find(pending, &probe, accept, arg, &version);
	}
	for (k = strata_key_table_head(table, hash); k != STRATA_NO_KEY; k = table->keys[k].next)
	{
		StrataPendingKey *key = &table->keys[k];

		if (key->hash != hash ||
			!accept(&log->entries[key->entry], key->entry, arg))
			continue;
		if (!fetched)
			strata_group_fetch_key(reader, row, base);
		fetched = true;
		if (probe_version(pending, &probe, key->entry, key->row))
			return true;
	}
	return false;
}
