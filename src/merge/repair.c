/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  strata.repair: tell what of a store cannot be read, and set it aside.
 *
 * One row per loss, found by the checks that verify uses:
 *
 *	log				log/repair.c: entries, pages, links between them
 *	pending row group	of the log: its entry names a new row group that holds
 *				the rows which can be read
 *	row group		of the base: rows that can be read go into new row groups,
 *				as in a compaction, and the old one out of the manifest
 *	dictionary		goes out of the manifest; rows compressed with it are lost
 *				with their row groups
 *
 * A row is lost when a column of it is: it is never given back with another
 * value in its place.  Nor does the version before it come back: deletes stay,
 * and for rows of a pending row group whose keys can be read, tombstones are
 * appended unless a newer version is there.  Only where the key is not known (a
 * damaged entry, page or key column in the log) the version before counts
 * again.
 *
 * What cannot be repaired is told, too, with action 'none': the fixed pages and
 * the manifest itself.
 *
 * Locks: a dry run has those of verify.  Else nobody is let in:
 * AccessExclusiveLock on the foreign table, the pass lock, AccessExclusiveLock
 * on the storage relation, in this order.
 *
 * Crash windows: the base changes as in a compaction, with the commit.  The log
 * is changed page by page after that, whatever becomes of the transaction, so
 * every loss is in the server log as well.  A reader keeps copies of entries
 * until the commit tells it that they changed; hence no transaction block.
 *
 * IDENTIFICATION
 *	  src/merge/repair.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "base/cache.h"
#include "base/dictionary.h"
#include "log/append.h"
#include "log/repair.h"
#include "merge/budget.h"
#include "merge/output.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"
#include "storage/salvage.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(strata_repair);

/* Compression of rewritten pending row groups: as loads. */
#define REPAIR_MIN_LEVEL	1

typedef struct Repair
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
	bool		dry_run;
	bool		pass_begun;		/* logged as M */
	Bitmapset  *columns;		/* all of the table's */
	Bitmapset  *key_columns;
	List	   *pending;		/* of StrataLogGroup *, as the log has them */
	List	   *lost_keys;		/* of LostKey *, of pending row groups */
	StrataPassRecord record;
	MemoryContext mcxt;

	ReturnSetInfo *result;
	uint64		nlosses;
} Repair;

/* The key of a lost version in the log. */
typedef struct LostKey
{
	int			shard;
	StrataPosition position;
	uint32		hash;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} LostKey;

/* Entries of a tombstone batch; fewer when they are too long. */
#define MAX_TOMBSTONES	512

/* One row of the result; what is not known is null. */
typedef struct Loss
{
	const char *kind;
	BlockNumber block;			/* InvalidBlockNumber: none */
	int			shard;			/* -1: of no log */
	uint32		generation;
	int64		page;			/* -1: none */
	int64		entry;			/* offset on the page, -1: none */
	uint32		row_group;		/* 0: none */
	int64		rows;			/* -1: not known */
	const char *first_key;
	const char *last_key;
	int64		bytes;			/* -1: not known */
	const char *problem;
	const char *action;
} Loss;

#define NO_LOSS \
	{ \
		.block = InvalidBlockNumber, .shard = -1, .page = -1, .entry = -1, .rows = -1, .bytes = -1 \
	}

enum
{
	LOSS_KIND,
	LOSS_STORAGE,
	LOSS_BLOCK,
	LOSS_SHARD,
	LOSS_GENERATION,
	LOSS_PAGE,
	LOSS_ENTRY,
	LOSS_ROW_GROUP,
	LOSS_ROWS,
	LOSS_FIRST_KEY,
	LOSS_LAST_KEY,
	LOSS_BYTES,
	LOSS_PROBLEM,
	LOSS_ACTION,
	LOSS_NCOLUMNS
};

static void
set_int(Datum *values, bool *isnull, int column, bool known, int64 value)
{
	isnull[column] = !known;
	values[column] = column == LOSS_SHARD || column == LOSS_ENTRY ?
		Int32GetDatum((int32) value) :
		Int64GetDatum(value);
}

static void
set_text(Datum *values, bool *isnull, int column, const char *value)
{
	isnull[column] = value == NULL;
	values[column] = value != NULL ? CStringGetTextDatum(value) : (Datum) 0;
}

/* Where it is, and how much, for the server log: no keys there. */
static char *
describe_loss(Repair *repair, const Loss *loss)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "Relation \"%s\"", RelationGetRelationName(repair->storage));
	if (loss->block != InvalidBlockNumber)
		appendStringInfo(&buf, ", block %u", loss->block);
	if (loss->shard >= 0)
		appendStringInfo(&buf, ", shard %d, generation %u", loss->shard, loss->generation);
	if (loss->page >= 0)
		appendStringInfo(&buf, ", page " INT64_FORMAT, loss->page);
	if (loss->entry >= 0)
		appendStringInfo(&buf, ", entry " INT64_FORMAT, loss->entry);
	if (loss->row_group > 0)
		appendStringInfo(&buf, ", row group %u", loss->row_group);
	if (loss->rows >= 0)
		appendStringInfo(&buf, "; " INT64_FORMAT " rows lost", loss->rows);
	else
		appendStringInfoString(&buf, "; number of rows lost not known");
	return buf.data;
}

static void
report(Repair *repair, const Loss *loss)
{
	Datum		values[LOSS_NCOLUMNS];
	bool		isnull[LOSS_NCOLUMNS] = {0};

	set_text(values, isnull, LOSS_KIND, loss->kind);
	values[LOSS_STORAGE] = ObjectIdGetDatum(RelationGetRelid(repair->storage));
	set_int(values, isnull, LOSS_BLOCK, loss->block != InvalidBlockNumber, loss->block);
	set_int(values, isnull, LOSS_SHARD, loss->shard >= 0, loss->shard);
	set_int(values, isnull, LOSS_GENERATION, loss->generation > 0, loss->generation);
	set_int(values, isnull, LOSS_PAGE, loss->page >= 0, loss->page);
	set_int(values, isnull, LOSS_ENTRY, loss->entry >= 0, loss->entry);
	set_int(values, isnull, LOSS_ROW_GROUP, loss->row_group > 0, loss->row_group);
	set_int(values, isnull, LOSS_ROWS, loss->rows >= 0, loss->rows);
	set_text(values, isnull, LOSS_FIRST_KEY, loss->first_key);
	set_text(values, isnull, LOSS_LAST_KEY, loss->last_key);
	set_int(values, isnull, LOSS_BYTES, loss->bytes >= 0, loss->bytes);
	set_text(values, isnull, LOSS_PROBLEM, loss->problem);
	set_text(values, isnull, LOSS_ACTION, loss->action);
	tuplestore_putvalues(repair->result->setResult, repair->result->setDesc, values, isnull);
	repair->nlosses++;
	repair->record.rows_deleted += Max(loss->rows, 0);

	if (!repair->dry_run)
		ereport(LOG,
				(errmsg("strata: repair of %s: %s, %s: %s", repair->store->name, loss->kind,
						loss->action, loss->problem),
				 errdetail_internal("%s", describe_loss(repair, loss))));
}

/* Before the manifest is changed for the first time. */
static void
begin_pass(Repair *repair)
{
	if (repair->pass_begun)
		return;
	strata_meta_begin_pass(repair->storage, GetTopFullTransactionId());
	repair->pass_begun = true;
}

/* StrataPassTick */
static void
repair_tick(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

/* ---- row groups ---- */

/* A row group to be looked at, for strata_attempt. */
typedef struct Examine
{
	Repair	   *repair;
	const StrataGroupRef *ref;
	StrataGroupDamage damage;
} Examine;

/* StrataAction */
static void
examine(void *arg)
{
	Examine    *examine = (Examine *) arg;

	strata_group_examine(examine->repair->store, examine->repair->storage, examine->ref,
						 &examine->damage);
}

static inline bool
bit_is_set(const uint8 *bitmap, uint32 row)
{
	return bitmap != NULL && (bitmap[row >> 3] & (1 << (row & 7))) != 0;
}

/* Is a row, which counts, lost? */
static inline bool
row_is_lost(const StrataGroupDamage *damage, uint32 row)
{
	return damage->unreadable || bit_is_set(damage->lost, row);
}

static uint64
lost_rows(const StrataGroupRef *ref, const StrataGroupDamage *damage, const StrataRowGroup *base)
{
	uint64		n = 0;

	for (uint32 row = 0; row < ref->rows; row++)
	{
		if (row_is_lost(damage, row) && (base == NULL || !strata_row_deleted(base, row)))
			n++;
	}
	return n;
}

/* Bounds of the keys of a base row group, as its manifest row has them. */
static void
zone_key_range(Repair *repair, const StrataRowGroup *base, Loss *loss)
{
	const StrataKey *key = &repair->store->key;
	StrataZone	zone;

	if (base == NULL || key->natts != 1)
		return;
	strata_zone_get(repair->store, base->zones, key->attnum[0], &zone);
	if (!zone.known || zone.all_null)
		return;
	loss->first_key = strata_key_describe(key, &zone.min);
	loss->last_key = strata_key_describe(key, &zone.max);
}

/*
 * First and last key of the rows lost, when all of their keys can be read; else
 * what the manifest knows.
 */
static void
lost_key_range(Repair *repair, const StrataGroupRef *ref, const StrataGroupDamage *damage,
			   const StrataRowGroup *base, Loss *loss)
{
	const StrataKey *key = &repair->store->key;
	StrataGroupReader *reader;
	Datum		ends[2][INDEX_MAX_KEYS];	/* first, last */
	bool		have = false;

	if (damage->unreadable)
		zone_key_range(repair, base, loss);
	if (key->natts == 0 || damage->unreadable)
		return;
	reader = strata_group_open_damaged(repair->store, repair->storage, ref, repair->key_columns);
	for (uint32 row = 0; row < ref->rows; row++)
	{
		Datum		values[INDEX_MAX_KEYS];

		if (!row_is_lost(damage, row) || (base != NULL && strata_row_deleted(base, row)))
			continue;
		if (bit_is_set(damage->key_lost, row))
		{
			have = false;
			break;
		}
		strata_group_fetch_key(reader, row, values);
		for (int end = 0; end < 2; end++)
		{
			int			cmp = have ? strata_key_compare(key, values, ends[end]) : 0;

			if (have && (end == 0 ? cmp >= 0 : cmp <= 0))
				continue;
			for (int i = 0; i < key->natts; i++)
			{
				Form_pg_attribute att = TupleDescAttr(key->desc, i);

				if (have && !att->attbyval)
					pfree(DatumGetPointer(ends[end][i]));
				ends[end][i] = datumCopy(values[i], att->attbyval, att->attlen);
			}
		}
		have = true;
	}
	if (have)
	{
		loss->first_key = strata_key_describe(key, ends[0]);
		loss->last_key = strata_key_describe(key, ends[1]);
	}
	else
		zone_key_range(repair, base, loss);
	strata_group_close(reader);
}

/*
 * Look at a row group.  False: it is sound.  Else tell what is lost, unless
 * nothing of it counts; action: what is done about it.
 */
static bool
examine_group(Repair *repair, const StrataGroupRef *ref, const StrataRowGroup *base,
			  bool counts, StrataGroupDamage *damage, Loss *loss)
{
	Examine		state = {.repair = repair, .ref = ref};
	char	   *error = strata_attempt(examine, &state);

	CHECK_FOR_INTERRUPTS();
	loss->block = ref->extent.block;
	loss->bytes = (int64) ref->length;
	if (error != NULL)
	{
		/* Not damage of ours: another format version, say. */
		loss->problem = error;
		loss->action = "none";
		report(repair, loss);
		return false;
	}
	*damage = state.damage;
	if (damage->problem == NULL)
		return false;
	loss->problem = damage->problem;
	loss->rows = counts ? (int64) lost_rows(ref, damage, base) : 0;
	if (loss->rows > 0)
		lost_key_range(repair, ref, damage, base, loss);
	return true;
}

/*
 * Call add with each row of a damaged row group that counts and can be read.
 */
typedef void (*AddRow)(void *arg, const Datum *values, const bool *isnull, uint32 hash);

static void
salvage_rows(Repair *repair, const StrataGroupRef *ref, const StrataGroupDamage *damage,
			 const StrataRowGroup *base, AddRow add, void *arg)
{
	StrataStore *store = repair->store;
	StrataGroupReader *reader = strata_group_open_damaged(store, repair->storage, ref,
														  repair->columns);
	Datum	   *values = palloc(sizeof(Datum) * store->desc->natts);
	bool	   *isnull = palloc(sizeof(bool) * store->desc->natts);

	for (uint32 row = 0; row < ref->rows; row++)
	{
		uint32		hash = 0;

		CHECK_FOR_INTERRUPTS();
		if (row_is_lost(damage, row) || (base != NULL && strata_row_deleted(base, row)))
			continue;
		strata_group_fetch(reader, row, values, isnull);
		if (store->key.natts > 0)
		{
			/* Not from the row group: what is damaged may be just the hashes. */
			Datum		keyvalues[INDEX_MAX_KEYS];

			strata_key_extract(&store->key, values, isnull, keyvalues, store->name, store->desc);
			hash = strata_key_hash(&store->key, keyvalues);
		}
		add(arg, values, isnull, hash);
	}
	strata_group_close(reader);
}

/* ---- the base ---- */

typedef struct DamagedGroup
{
	StrataRowGroup *group;
	StrataGroupDamage damage;
} DamagedGroup;

/* AddRow */
static void
add_to_output(void *arg, const Datum *values, const bool *isnull, uint32 hash)
{
	Repair	   *repair = (Repair *) ((StrataOutput *) arg)->tick_arg;

	strata_output_add((StrataOutput *) arg, values, isnull, hash);
	repair->record.rows_read++;
}

/* StrataSupersededRow: nothing is superseded by moving rows. */
static void
repair_superseded(uint32 group, uint32 row, bool tombstone, void *arg)
{
	elog(ERROR, "a repair superseded row %u of row group %u", row, group);
}

/* Write what can be read of damaged row groups into new ones. */
static void
rewrite_groups(Repair *repair, List *damaged)
{
	StrataSupersede *supersede = NULL;
	StrataOutput output;
	bool		present = false;
	ListCell   *lc;

	begin_pass(repair);
	if (repair->store->key.natts > 0)
	{
		(void) strata_keyindex_find(repair->storage, &present);
		if (present)
			supersede = strata_supersede_begin(repair->store, repair->storage, repair->manifest,
											   InvalidOid);
	}
	strata_output_begin(&output, repair->store, repair->storage, repair->manifest, supersede,
						&repair->record, repair_tick, repair);
	foreach (lc, damaged)
	{
		DamagedGroup *group = (DamagedGroup *) lfirst(lc);
		MemoryContext group_mcxt = AllocSetContextCreate(repair->mcxt, "strata repaired row group",
														 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old_mcxt = MemoryContextSwitchTo(group_mcxt);

		if (!group->damage.unreadable)
			salvage_rows(repair, &group->group->ref, &group->damage, group->group,
						 add_to_output, &output);
		strata_manifest_remove_group(repair->store, group->group->number);
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextDelete(group_mcxt);
	}
	strata_output_end(&output);
	STRATA_PAUSE("repair-groups-written");
	if (supersede != NULL)
		strata_supersede_finish(supersede, repair_superseded, repair_tick, NULL,
								&repair->record);
	CommandCounterIncrement();
}

static void
rewrite_groups_in_budget(Repair *repair, List *damaged)
{
	strata_budget_take(strata_output_memory(repair->store), repair_tick, NULL);
	strata_cache_closed = true;
	PG_TRY();
	{
		rewrite_groups(repair, damaged);
	}
	PG_FINALLY();
	{
		strata_cache_closed = false;
		strata_budget_release();
	}
	PG_END_TRY();
}

/* A dictionary to be read, for strata_attempt. */
typedef struct ReadDictionary
{
	Relation	storage;
	const StrataDictionaryRef *ref;
} ReadDictionary;

/* StrataAction */
static void
read_dictionary(void *arg)
{
	ReadDictionary *read = (ReadDictionary *) arg;
	StrataDictionaryHeader header;

	(void) strata_dictionary_read(read->storage, read->ref, &header);
}

static void
repair_dictionaries(Repair *repair)
{
	int			n;
	StrataDictionaryRef *refs = strata_manifest_dictionaries(repair->store->ftrelid,
															 repair->manifest->incarnation, &n);

	for (int i = 0; i < n; i++)
	{
		ReadDictionary read = {.storage = repair->storage, .ref = &refs[i]};
		Loss		loss = NO_LOSS;

		loss.problem = strata_attempt(read_dictionary, &read);
		if (loss.problem == NULL)
			continue;
		loss.kind = "dictionary";
		loss.block = refs[i].extent.block;
		loss.rows = 0;
		loss.bytes = (int64) refs[i].length;
		loss.action = "set aside";
		report(repair, &loss);
		if (repair->dry_run)
			continue;
		begin_pass(repair);
		strata_manifest_remove_dictionary(repair->store, refs[i].extent.owner);
		CommandCounterIncrement();
	}
}

static void
repair_base(Repair *repair)
{
	List	   *damaged = NIL;

	for (int i = 0; i < repair->manifest->ngroups; i++)
	{
		StrataRowGroup *group = &repair->manifest->groups[i];
		StrataGroupDamage damage;
		Loss		loss = NO_LOSS;

		loss.kind = "row group";
		loss.row_group = group->number;
		if (!examine_group(repair, &group->ref, group, true, &damage, &loss))
			continue;
		loss.action = damage.unreadable ? "set aside" : "rewritten";
		report(repair, &loss);
		if (!repair->dry_run)
		{
			DamagedGroup *entry = palloc(sizeof(DamagedGroup));

			entry->group = group;
			entry->damage = damage;
			damaged = lappend(damaged, entry);
		}
	}
	/* Row groups that are written now must not use them. */
	repair_dictionaries(repair);
	if (damaged != NIL)
		rewrite_groups_in_budget(repair, damaged);
}

/* ---- the log ---- */

/* StrataLogRepair.loss */
static void
report_log_loss(const StrataLogLoss *from, void *arg)
{
	static const char *const kinds[] = {
		[STRATA_LOSS_ENTRY] = "log entry",
		[STRATA_LOSS_PAGES] = "log pages",
		[STRATA_LOSS_PAGE] = "log page",
		[STRATA_LOSS_LINK] = "log link"};
	static const char *const actions[] = {
		[STRATA_LOSS_ENTRY] = "set aside",
		[STRATA_LOSS_PAGES] = "set aside",
		[STRATA_LOSS_PAGE] = "rewritten",
		[STRATA_LOSS_LINK] = "rewritten"};
	Loss		loss = NO_LOSS;

	loss.kind = kinds[from->kind];
	loss.block = from->block;
	loss.shard = from->shard;
	loss.generation = from->generation;
	loss.page = from->ordinal;
	if (from->kind == STRATA_LOSS_ENTRY)
		loss.entry = from->offset;
	loss.rows = from->rows;
	loss.bytes = from->bytes;
	loss.problem = from->problem;
	loss.action = actions[from->kind];
	report((Repair *) arg, &loss);
}

/* StrataLogRepair.group */
static void
note_pending_group(const StrataLogGroup *group, void *arg)
{
	Repair	   *repair = (Repair *) arg;
	MemoryContext old_mcxt = MemoryContextSwitchTo(repair->mcxt);
	StrataLogGroup *copy = palloc(sizeof(StrataLogGroup));

	*copy = *group;
	repair->pending = lappend(repair->pending, copy);
	MemoryContextSwitchTo(old_mcxt);
}

/* AddRow */
static void
add_to_writer(void *arg, const Datum *values, const bool *isnull, uint32 hash)
{
	strata_group_writer_add((StrataGroupWriter *) arg, values, isnull, hash);
}

/* Have the log name a new row group with the rows that can be read. */
static void
rewrite_pending_group(Repair *repair, const StrataLogGroup *group, const StrataGroupDamage *damage)
{
	StrataGroupWriter *writer;
	StrataExtent extent;
	StrataGroupRef ref;
	uint64		length;

	writer = strata_group_writer_begin(repair->store,
									   Max(repair->store->options->compression_level,
										   REPAIR_MIN_LEVEL));
	salvage_rows(repair, &group->ref, damage, NULL, add_to_writer, writer);
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
keep_lost_keys(Repair *repair, const StrataLogGroup *group, const StrataGroupDamage *damage)
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
		LostKey    *lost;

		CHECK_FOR_INTERRUPTS();
		if (!bit_is_set(damage->lost, row) || bit_is_set(damage->key_lost, row))
			continue;
		strata_group_fetch_key(reader, row, values);

		old_mcxt = MemoryContextSwitchTo(repair->mcxt);
		lost = palloc(offsetof(LostKey, values) + key->natts * sizeof(Datum));
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
	const LostKey *lost = (const LostKey *) arg;

	return entry->shard == lost->shard &&
		strata_position_cmp(&entry->position, &lost->position) > 0;
}

static int
compare_lost_keys(const ListCell *a, const ListCell *b)
{
	const LostKey *x = (const LostKey *) lfirst(a);
	const LostKey *y = (const LostKey *) lfirst(b);

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return -strata_position_cmp(&x->position, &y->position);
}

/* Append tombstones, in as many entries as they take. */
static void
append_tombstones(Repair *repair, int shard, const StrataLogRow *rows, int nrows)
{
	StrataEntryHeader *entry;

	if (nrows == 0)
		return;
	entry = strata_entry_encode_rows(repair->store, GetTopFullTransactionId(),
									 GetCurrentCommandId(true), rows, nrows);
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
static void
hide_older_versions(Repair *repair)
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
		LostKey    *lost = (LostKey *) lfirst(lc);
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
		rows[nrows].values = lost->values;
		rows[nrows].isnull = NULL;
		nrows++;
	}
	append_tombstones(repair, shard, rows, nrows);
	strata_pending_unpin(pending);
}

/* One row group of the log. */
static void
repair_pending_group(Repair *repair, const StrataLogGroup *group)
{
	bool		counts = strata_xid_outcome(group->fxid, group->flags) != STRATA_XID_ABORTED;
	StrataGroupDamage damage;
	Loss		loss = NO_LOSS;
	bool		all;

	loss.kind = "pending row group";
	loss.shard = group->shard;
	loss.generation = group->generation;
	loss.page = group->ordinal;
	loss.entry = group->offset;
	if (!examine_group(repair, &group->ref, NULL, counts, &damage, &loss))
		return;
	all = !counts || (uint64) loss.rows == group->ref.rows;
	loss.action = all ? "set aside" : "rewritten";
	report(repair, &loss);
	if (repair->dry_run)
		return;
	if (counts)
		keep_lost_keys(repair, group, &damage);
	if (all)
		strata_log_replace_group(repair->storage, group, NULL, 0);
	else
		rewrite_pending_group(repair, group, &damage);
}

static void
repair_log(Repair *repair)
{
	StrataManifest *manifest = repair->manifest;
	StrataLogRepair request = {
		.store = repair->store,
		.storage = repair->storage,
		.dry_run = repair->dry_run,
		.loss = report_log_loss,
		.group = note_pending_group,
		.arg = repair};
	ListCell   *lc;

	for (int shard = 0; shard < repair->store->nshards; shard++)
	{
		StrataPageRef start;

		if (strata_log_repair(&request, shard, &manifest->shards[shard], &start))
		{
			begin_pass(repair);
			manifest->shards[shard].first_pending = start;
			strata_manifest_set_shard(repair->store, shard, &manifest->shards[shard],
									  manifest->incarnation);
			CommandCounterIncrement();
		}
	}
	foreach (lc, repair->pending)
	{
		MemoryContext group_mcxt = AllocSetContextCreate(repair->mcxt, "strata repaired row group",
														 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old_mcxt = MemoryContextSwitchTo(group_mcxt);

		repair_pending_group(repair, (StrataLogGroup *) lfirst(lc));
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextDelete(group_mcxt);
	}
	hide_older_versions(repair);
}

/* ---- driver ---- */

/* StrataAction: what everything else needs */
static void
read_fixed(void *arg)
{
	Repair	   *repair = (Repair *) arg;
	StrataShardData data;

	repair->manifest = strata_manifest_get_uncached(repair->store, repair->storage,
													GetActiveSnapshot());
	(void) strata_spare_read(repair->storage);
	for (int shard = 0; shard < repair->store->nshards; shard++)
		(void) strata_shard_read(repair->storage, shard, &data);
}

static void
repair_store(Repair *repair)
{
	StrataStore *store = repair->store;
	Loss		loss = NO_LOSS;

	for (int i = 0; i < store->desc->natts; i++)
	{
		if (!TupleDescAttr(store->desc, i)->attisdropped)
			repair->columns = bms_add_member(repair->columns, i + 1);
	}
	for (int i = 0; i < store->key.natts; i++)
		repair->key_columns = bms_add_member(repair->key_columns, store->key.attnum[i]);

	loss.problem = strata_attempt(read_fixed, repair);
	if (loss.problem != NULL)
	{
		loss.kind = "store";
		loss.action = "none";
		report(repair, &loss);
		return;
	}

	repair_base(repair);
	repair_log(repair);
	if (repair->dry_run)
		return;

	if (repair->nlosses > 0)
	{
		begin_pass(repair);
		repair->record.ended = GetCurrentTimestamp();
		strata_manifest_add_pass(store, &repair->record);
	}
	/* Backends keep what they have read of the log. */
	CacheInvalidateRelcache(repair->storage);
	CommandCounterIncrement();
	STRATA_PAUSE("repair-before-commit");
}

/* A look at the store, with the locks of verify. */
static void
repair_look(Repair *repair, Oid relid)
{
	strata_check_table_argument(relid, true, AccessShareLock);
	repair->store = strata_store_open(relid);
	(void) strata_lock(repair->store->storage, STRATA_LOCK_PASS, 0, ExclusiveLock, false);
	repair->storage = strata_storage_open(repair->store, RecoveryInProgress() ?
														   AccessShareLock :
														   ShareUpdateExclusiveLock);
	PushActiveSnapshot(GetLatestSnapshot());
	repair_store(repair);
	PopActiveSnapshot();
	table_close(repair->storage, NoLock);
	strata_store_close(repair->store);
}

/* The same, changing it. */
static void
repair_change(Repair *repair, Oid relid)
{
	StrataPassEnv env;
	Relation	table;

	if (IsTransactionBlock() || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("strata.repair() cannot change a table in a transaction block"),
				 errdetail("Not all of what it does can be rolled back."),
				 errhint("Call it by itself, or with dry_run => true.")));
	PreventCommandIfReadOnly("strata.repair()");
	PreventCommandDuringRecovery("strata.repair()");
	strata_check_table_argument(relid, true, AccessExclusiveLock);
	table = table_open(relid, NoLock);
	CheckTableNotInUse(table, "strata.repair()");
	table_close(table, NoLock);

	(void) strata_pass_enter(&env, relid, "strata.repair()", false);
	LockRelationOid(RelationGetRelid(env.storage), AccessExclusiveLock);
	repair->store = env.store;
	repair->storage = env.storage;
	repair->mcxt = env.mcxt;
	repair_store(repair);
	strata_pass_leave(&env);
}

/*
 * strata.repair(regclass, dry_run boolean): a row per loss.
 */
Datum
strata_repair(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	bool		dry_run = PG_ARGISNULL(1) || PG_GETARG_BOOL(1);
	Repair		repair = {.dry_run = dry_run};
	MemoryContext old_mcxt;

	InitMaterializedSRF(fcinfo, 0);
	repair.result = (ReturnSetInfo *) fcinfo->resultinfo;
	repair.record.what = "repair";
	repair.record.started = GetCurrentTimestamp();
	repair.mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata repair",
										ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(repair.mcxt);
	if (dry_run)
		repair_look(&repair, relid);
	else
		repair_change(&repair, relid);
	MemoryContextSwitchTo(old_mcxt);
	return (Datum) 0;
}
