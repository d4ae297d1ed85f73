/*-------------------------------------------------------------------------
 *
 * repair_pending.c
 *	  Repair of row groups of the log.
 *
 * The rows that can be read are written as a new row group, and the entry is
 * changed in place to name it: same position, same transaction.  Lost rows of
 * which the key can be read get a tombstone at the end of the log, unless a
 * newer version is there: better no row than an old one.
 *
 * Locks and crash windows: see repair.c.
 *
 * IDENTIFICATION
 *	  src/merge/repair_pending.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/repair_private.h"

#include "log/append.h"
#include "pause.h"
#include "storage/extent.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* Compression of rewritten pending row groups: as loads. */
#define REPAIR_MIN_LEVEL	1

/* The key of a lost version in the log. */
typedef struct StrataRepairLostKey
{
	int			shard;
	StrataPosition position;
	uint32		hash;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} StrataRepairLostKey;

/* Entries of a tombstone batch; fewer when they are too long. */
#define MAX_TOMBSTONES	512

/* StrataRepairAddRow */
static void
add_to_writer(void *arg, const Datum *values, const bool *isnull, uint32 hash)
{
	strata_group_writer_add((StrataGroupWriter *) arg, values, isnull, hash);
}

/* Have the log name a new row group with the rows that can be read. */
static void
rewrite_pending_group(StrataRepair *repair, const StrataLogGroup *group, const StrataGroupDamage *damage)
{
	StrataGroupWriter *writer;
	StrataExtent extent;
	StrataGroupRef ref;
	uint64		length;

	writer = strata_group_writer_begin(repair->store,
									   Max(repair->store->options->compression_level,
										   REPAIR_MIN_LEVEL));
	strata_repair_salvage(repair, &group->ref, damage, NULL, add_to_writer, writer);
	length = strata_group_writer_finish(writer);
	strata_extent_take(repair->storage, strata_extent_blocks_for(length), &extent);
	strata_group_writer_write(writer, repair->storage, &extent, &ref, NULL);
	strata_group_writer_end(writer);
	ref.lost = group->ref.lost + group->ref.rows - ref.rows;
	STRATA_PAUSE("repair-pending-group-written");
	strata_log_replace_group(repair->storage, group, &ref, repair->store->desc->natts);
}

/* Keep the keys of lost rows that can be read. */
static void
keep_lost_keys(StrataRepair *repair, const StrataLogGroup *group, const StrataGroupDamage *damage)
{
	const StrataKey *key = &repair->store->key;
	StrataGroupReader *reader;

	if (key->natts == 0 || damage->unreadable || damage->lost == NULL)
		return;
	reader = strata_group_open_damaged(repair->store, repair->storage, &group->ref,
									   repair->key_columns);
	for (uint32 row = 0; row < group->ref.rows; row++)
	{
		Datum		values[INDEX_MAX_KEYS];
		MemoryContext old_mcxt;
		StrataRepairLostKey    *lost;

		CHECK_FOR_INTERRUPTS();
		if (!strata_repair_bit(damage->lost, row) || strata_repair_bit(damage->key_lost, row))
			continue;
		strata_group_fetch_key(reader, row, values);

		old_mcxt = MemoryContextSwitchTo(repair->mcxt);
		lost = palloc(offsetof(StrataRepairLostKey, values) + key->natts * sizeof(Datum));
		lost->shard = group->shard;
		lost->position.generation = group->generation;
		lost->position.ordinal = group->ordinal;
		lost->position.offset = group->offset;
		lost->hash = strata_key_hash(key, values);
		for (int i = 0; i < key->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(key->desc, i);

			lost->values[i] = datumCopy(values[i], att->attbyval, att->attlen);
		}
		repair->lost_keys = lappend(repair->lost_keys, lost);
		MemoryContextSwitchTo(old_mcxt);
	}
	strata_group_close(reader);
}

/* StrataAccept: entries after the lost version */
static bool
is_newer(const StrataPendingEntry *entry, int index, void *arg)
{
	const StrataRepairLostKey *lost = (const StrataRepairLostKey *) arg;

	return entry->shard == lost->shard &&
		   strata_position_cmp(&entry->position, &lost->position) > 0;
}

static int
compare_lost_keys(const ListCell *a, const ListCell *b)
{
	const StrataRepairLostKey *x = (const StrataRepairLostKey *) lfirst(a);
	const StrataRepairLostKey *y = (const StrataRepairLostKey *) lfirst(b);

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return -strata_position_cmp(&x->position, &y->position);
}

/* Append tombstones, in as many entries as they take. */
static void
append_tombstones(StrataRepair *repair, int shard, const StrataLogRow *rows, int nrows)
{
	StrataEntryHeader *entry;

	if (nrows == 0)
		return;
	entry = strata_entry_encode_rows(repair->store, GetTopFullTransactionId(),
									 GetCurrentCommandId(true), rows, nrows, 0);
	if (entry == NULL)
	{
		append_tombstones(repair, shard, rows, nrows / 2);
		append_tombstones(repair, shard, rows + nrows / 2, nrows - nrows / 2);
		return;
	}
	(void) strata_log_append(repair->store, repair->storage, shard, entry, entry->length);
	pfree(entry);
}

/*
 * See to it that no older version of a lost row counts, where its key is known
 * and no newer version does.
 */
void
strata_repair_hide_older(StrataRepair *repair)
{
	const StrataKey *key = &repair->store->key;
	StrataPending *pending;
	StrataLogRow rows[MAX_TOMBSTONES];
	int			nrows = 0;
	int			shard = -1;
	int			end;
	ListCell   *lc;

	if (repair->lost_keys == NIL)
		return;
	list_sort(repair->lost_keys, compare_lost_keys);

	/* What this backend keeps of the log is from before. */
	CacheInvalidateRelcache(repair->storage);
	CommandCounterIncrement();
	pending = strata_pending_current(repair->store, repair->storage, repair->manifest, &end);
	foreach (lc, repair->lost_keys)
	{
		StrataRepairLostKey    *lost = (StrataRepairLostKey *) lfirst(lc);
		StrataKeyProbe probe = {
			.key = key,
			.nkeys = key->natts,
			.values = lost->values,
			.has_hash = true,
			.hash = lost->hash};
		StrataVersion version;
		bool		seen = false;

		CHECK_FOR_INTERRUPTS();
		if (nrows == MAX_TOMBSTONES || (nrows > 0 && lost->shard != shard))
		{
			append_tombstones(repair, shard, rows, nrows);
			nrows = 0;
		}
		shard = lost->shard;
		for (int i = nrows; i > 0 && rows[i - 1].hash == lost->hash && !seen; i--)
			seen = strata_key_equal(key, rows[i - 1].values, lost->values);
		if (seen || strata_pending_find(pending, &probe, is_newer, lost, &version))
			continue;
		rows[nrows].hash = lost->hash;
		rows[nrows].tombstone = true;
		rows[nrows].moved = false;
		rows[nrows].values = lost->values;
		rows[nrows].isnull = NULL;
		rows[nrows].next_key = NULL;
		nrows++;
	}
	append_tombstones(repair, shard, rows, nrows);
	strata_pending_unpin(pending);
}

/* One row group of the log. */
void
strata_repair_pending_group(StrataRepair *repair, const StrataLogGroup *group)
{
	bool		counts = strata_xid_outcome(group->fxid, group->flags) != STRATA_XID_ABORTED;
	StrataGroupDamage damage;
	StrataRepairLoss		loss = STRATA_REPAIR_NO_LOSS;
	bool		all;

	loss.kind = "pending row group";
	loss.shard = group->shard;
	loss.generation = group->generation;
	loss.page = group->ordinal;
	loss.entry = group->offset;
	if (!strata_repair_examine(repair, &group->ref, NULL, counts, &damage, &loss))
		return;
	all = !counts || (uint64) loss.rows == group->ref.rows;
	loss.action = all ? "set aside" : "rewritten";
	strata_repair_loss(repair, &loss);
	if (repair->dry_run)
		return;
	if (counts)
		keep_lost_keys(repair, group, &damage);
	if (all)
		strata_log_replace_group(repair->storage, group, NULL, 0);
	else
		rewrite_pending_group(repair, group, &damage);
}
