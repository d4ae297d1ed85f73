/*-------------------------------------------------------------------------
 *
 * repair_groups.c
 *	  Repair of row groups: what of them is lost; those of the base.
 *
 * Damaged row groups of the base are rewritten as a compaction does it, with
 * the rows of which every column can be read; one without any goes.  Their
 * deletes stay, so nothing that a lost row superseded comes back.
 *
 * Locks and crash windows: see repair.c.
 *
 * IDENTIFICATION
 *	  src/merge/repair_groups.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/repair_private.h"

#include "base/dictionary.h"
#include "merge/budget.h"
#include "merge/output.h"
#include "pause.h"
#include "storage/salvage.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"

/* ---- row groups ---- */

/* A row group to be looked at, for strata_attempt. */
typedef struct Examine
{
	StrataRepair	   *repair;
	const StrataGroupRef *ref;
	const StrataRowGroup *base;
	bool		counts;
	StrataGroupDamage damage;
} Examine;

/* StrataAction */
static void
examine(void *arg)
{
	Examine    *examine = (Examine *) arg;

	strata_group_examine(examine->repair->store, examine->repair->storage, examine->ref,
						 examine->base, examine->counts, &examine->damage);
}

static uint64
lost_rows(const StrataGroupRef *ref, const StrataGroupDamage *damage, const StrataRowGroup *base)
{
	uint64		n = 0;

	for (uint32 row = 0; row < ref->rows; row++)
	{
		if (strata_repair_row_lost(damage, row) && (base == NULL || !strata_row_deleted(base, row)))
			n++;
	}
	return n;
}

/* Bounds of the keys of a base row group, as its manifest row has them. */
static void
zone_key_range(StrataRepair *repair, const StrataRowGroup *base, StrataRepairLoss *loss)
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
lost_key_range(StrataRepair *repair, const StrataGroupRef *ref, const StrataGroupDamage *damage,
			   const StrataRowGroup *base, StrataRepairLoss *loss)
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

		if (!strata_repair_row_lost(damage, row) || (base != NULL && strata_row_deleted(base, row)))
			continue;
		if (strata_repair_bit(damage->key_lost, row))
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

bool
strata_repair_examine(StrataRepair *repair, const StrataGroupRef *ref, const StrataRowGroup *base,
					  bool counts, StrataGroupDamage *damage, StrataRepairLoss *loss)
{
	Examine		state = {.repair = repair, .ref = ref, .base = base, .counts = counts};
	char	   *error = strata_attempt(examine, &state);

	CHECK_FOR_INTERRUPTS();
	loss->block = ref->extent.block;
	loss->bytes = (int64) ref->length;
	if (error != NULL)
	{
		/* Not damage of ours: another format version, say. */
		loss->problem = error;
		loss->action = "none";
		strata_repair_loss(repair, loss);
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

void
strata_repair_salvage(StrataRepair *repair, const StrataGroupRef *ref, const StrataGroupDamage *damage,
					  const StrataRowGroup *base, StrataRepairAddRow add, void *arg)
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
		if (strata_repair_row_lost(damage, row) || (base != NULL && strata_row_deleted(base, row)))
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

/* StrataRepairAddRow */
static void
add_to_output(void *arg, const Datum *values, const bool *isnull, uint32 hash)
{
	StrataRepair	   *repair = (StrataRepair *) ((StrataOutput *) arg)->tick_arg;

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
typedef struct RewriteGroups
{
	StrataRepair *repair;
	List	   *damaged;		/* DamagedGroup */
} RewriteGroups;

/* StrataBudgetAction */
static void
rewrite_groups(void *arg)
{
	StrataRepair *repair = ((RewriteGroups *) arg)->repair;
	List	   *damaged = ((RewriteGroups *) arg)->damaged;
	StrataSupersede *supersede = NULL;
	StrataOutput output;
	bool		present = false;
	int64		rows_read;
	uint64		rows = 0;		/* at most; some are lost */
	ListCell   *lc;

	strata_repair_begin_pass(repair);
	rows_read = repair->record.rows_read;
	if (repair->store->key.natts > 0)
	{
		(void) strata_keyindex_find(repair->storage, &present);
		if (present)
			supersede = strata_supersede_begin(repair->store, repair->storage, repair->manifest,
											   InvalidOid);
	}
	foreach (lc, damaged)
	{
		DamagedGroup *group = (DamagedGroup *) lfirst(lc);

		if (!group->damage.unreadable)
			rows += group->group->ref.rows - group->group->ndeleted;
	}
	strata_output_begin(&output, repair->store, repair->storage, repair->manifest, supersede,
						rows, &repair->record, strata_repair_tick, repair);
	foreach (lc, damaged)
	{
		DamagedGroup *group = (DamagedGroup *) lfirst(lc);
		MemoryContext group_mcxt = AllocSetContextCreate(repair->mcxt, "strata repaired row group",
														 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old_mcxt = MemoryContextSwitchTo(group_mcxt);

		if (!group->damage.unreadable)
			strata_repair_salvage(repair, &group->group->ref, &group->damage, group->group,
								  add_to_output, &output);
		strata_manifest_remove_group(repair->store, group->group->number, &repair->record);
		repair->record.base_rows -= (int64) group->group->ref.rows - group->group->ndeleted;
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextDelete(group_mcxt);
	}
	strata_output_end(&output);
	repair->record.base_rows += repair->record.rows_read - rows_read;
	STRATA_PAUSE("repair-groups-written");
	if (supersede != NULL)
		strata_supersede_finish(supersede, repair_superseded, strata_repair_tick, NULL,
								&repair->record);
	CommandCounterIncrement();
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
repair_dictionaries(StrataRepair *repair)
{
	int			n;
	StrataDictionaryRef *refs = strata_manifest_dictionaries(repair->store->ftrelid,
															 repair->manifest->incarnation, &n);

	for (int i = 0; i < n; i++)
	{
		ReadDictionary read = {.storage = repair->storage, .ref = &refs[i]};
		StrataRepairLoss		loss = STRATA_REPAIR_NO_LOSS;

		loss.problem = strata_attempt(read_dictionary, &read);
		if (loss.problem == NULL)
			continue;
		loss.kind = "dictionary";
		loss.block = refs[i].extent.block;
		loss.rows = 0;
		loss.bytes = (int64) refs[i].length;
		loss.action = "set aside";
		strata_repair_loss(repair, &loss);
		if (repair->dry_run)
			continue;
		strata_repair_begin_pass(repair);
		strata_manifest_remove_dictionary(repair->store, refs[i].extent.owner);
		CommandCounterIncrement();
	}
}

void
strata_repair_base(StrataRepair *repair)
{
	List	   *damaged = NIL;

	for (int i = 0; i < repair->manifest->ngroups; i++)
	{
		StrataRowGroup *group = &repair->manifest->groups[i];
		StrataGroupDamage damage;
		StrataRepairLoss		loss = STRATA_REPAIR_NO_LOSS;

		loss.kind = "row group";
		loss.row_group = group->number;
		if (!strata_repair_examine(repair, &group->ref, group, true, &damage, &loss))
			continue;
		loss.action = damage.unreadable ? "set aside" : "rewritten";
		strata_repair_loss(repair, &loss);
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
	{
		RewriteGroups rewrite = {repair, damaged};

		strata_budget_run(strata_output_memory(repair->store), strata_repair_tick,
						  rewrite_groups, &rewrite);
	}
}
