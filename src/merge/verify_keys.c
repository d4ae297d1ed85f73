/*-------------------------------------------------------------------------
 *
 * verify_keys.c
 *	  Keys of the base against each other and against the key index.
 *
 * Every live base row's key and TID are sorted in the index's order and gone
 * through side by side with the index, which is read from end to end: the two
 * sequences must be the same but for TIDs that readers ignore (row groups the
 * manifest does not list, deleted rows).  Neighbours of the sorted sequence
 * with equal keys are rows of which one should have been superseded.
 *
 * IDENTIFICATION
 *	  src/merge/verify_keys.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/verify_private.h"

#include "compat.h"
#include "pause.h"

#include "access/stratnum.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

/* Faults of one kind told one by one; a broken index has millions. */
#define VERIFY_MAX_KEY_FAULTS	20

typedef struct VerifyKeys
{
	StrataVerify *verify;
	TupleDesc	desc;			/* key columns, TID */
	Tuplesortstate *sort;
	TupleTableSlot *in;
	TupleTableSlot *out;

	/* of the sorted base rows, the one being looked at */
	bool		have_base;
	uint64		base_tid;
	Datum	   *base_values;	/* in out */

	/* the one before, to find equal neighbours */
	bool		have_last;
	uint64		last_tid;
	Datum		last_values[INDEX_MAX_KEYS];
	MemoryContext last_mcxt;

	uint64		duplicates;
	uint64		missing;
	uint64		extra;
	uint64		wrong_hashes;
} VerifyKeys;

/* Group and row of an encoded TID, for messages. */
#define TID_GROUP(tid)	((uint32) ((tid) >> 16))
#define TID_ROW(tid) ((uint32) ((tid) &0xFFFF))

static void
verify_keys_begin(VerifyKeys *keys)
{
	const StrataKey *key = &keys->verify->store->key;
	AttrNumber	attnums[INDEX_MAX_KEYS + 1];
	Oid			operators[INDEX_MAX_KEYS + 1];
	Oid			collations[INDEX_MAX_KEYS + 1];
	bool		nulls_first[INDEX_MAX_KEYS + 1] = {0};

	keys->desc = CreateTemplateTupleDesc(key->natts + 1);
	for (int i = 0; i < key->natts; i++)
	{
		Oid			input_type = get_opclass_input_type(key->btree_opclass[i]);

		TupleDescCopyEntry(keys->desc, i + 1, key->desc, i + 1);
		attnums[i] = i + 1;
		operators[i] = get_opfamily_member(key->btree_opfamily[i], input_type,
										   input_type, BTLessStrategyNumber);
		collations[i] = key->collation[i];
	}
	TupleDescInitEntry(keys->desc, key->natts + 1, "tid", INT8OID, -1, 0);
	attnums[key->natts] = key->natts + 1;
	operators[key->natts] = Int8LessOperator;
	collations[key->natts] = InvalidOid;

	keys->in = MakeSingleTupleTableSlot(keys->desc, &TTSOpsVirtual);
	keys->out = MakeSingleTupleTableSlot(keys->desc, &TTSOpsMinimalTuple);
	keys->sort = tuplesort_begin_heap(keys->desc, key->natts + 1, attnums, operators,
									  collations, nulls_first, maintenance_work_mem,
									  NULL, TUPLESORT_NONE);
	keys->last_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata verify key",
											ALLOCSET_SMALL_SIZES);
}

/*
 * Sort key and TID of every live row of a row group, and check key hashes.
 */
static void
verify_keys_of_group(VerifyKeys *keys, StrataRowGroup *group, const Bitmapset *needed)
{
	StrataStore *store = keys->verify->store;
	int			natts = store->key.natts;
	StrataGroupReader *reader;
	const uint32 *hashes;

	reader = strata_group_open(store, keys->verify->storage, &group->ref, needed, true);
	hashes = strata_group_hashes(reader);
	for (uint32 row = 0; row < group->ref.rows; row++)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];

		if (row % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (strata_row_deleted(group, row))
			continue;
		strata_group_fetch_key(reader, row, keyvalues);
		if (strata_key_hash(&store->key, keyvalues) != hashes[row] &&
			keys->wrong_hashes++ < VERIFY_MAX_KEY_FAULTS)
		{
			char		object[32];

			snprintf(object, sizeof(object), "row group %u", group->number);
			strata_verify_fault(keys->verify, object, "key hash of row %u is wrong", row);
		}

		ExecClearTuple(keys->in);
		memcpy(keys->in->tts_values, keyvalues, sizeof(Datum) * natts);
		memset(keys->in->tts_isnull, 0, sizeof(bool) * (natts + 1));
		keys->in->tts_values[natts] = Int64GetDatum((int64) group->number << 16 | row);
		ExecStoreVirtualTuple(keys->in);
		tuplesort_puttupleslot(keys->sort, keys->in);
	}
	strata_group_close(reader);
}

/*
 * Go on to the next sorted base row; one with the key of the row before is a
 * fault.
 */
static void
verify_keys_next_base(VerifyKeys *keys)
{
	const StrataKey *key = &keys->verify->store->key;
	MemoryContext old_mcxt;

	if (keys->have_base)
	{
		MemoryContextReset(keys->last_mcxt);
		old_mcxt = MemoryContextSwitchTo(keys->last_mcxt);
		for (int i = 0; i < key->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(keys->desc, i);

			keys->last_values[i] = datumCopy(keys->base_values[i], att->attbyval, att->attlen);
		}
		MemoryContextSwitchTo(old_mcxt);
		keys->last_tid = keys->base_tid;
		keys->have_last = true;
	}

	keys->have_base = tuplesort_gettupleslot(keys->sort, true, false, keys->out, NULL);
	if (!keys->have_base)
		return;
	slot_getallattrs(keys->out);
	keys->base_values = keys->out->tts_values;
	keys->base_tid = (uint64) DatumGetInt64(keys->base_values[key->natts]);

	if (keys->have_last &&
		strata_key_compare(key, keys->last_values, keys->base_values) == 0 &&
		keys->duplicates++ < VERIFY_MAX_KEY_FAULTS)
		strata_verify_fault(keys->verify, "keys of the base",
							"row %u of row group %u and row %u of row group %u have the same key",
							TID_ROW(keys->last_tid), TID_GROUP(keys->last_tid),
							TID_ROW(keys->base_tid), TID_GROUP(keys->base_tid));
}

static void
verify_keys_missing(VerifyKeys *keys)
{
	if (keys->missing++ < VERIFY_MAX_KEY_FAULTS)
		strata_verify_fault(keys->verify, "key index",
							"row %u of row group %u is not under its key",
							TID_ROW(keys->base_tid), TID_GROUP(keys->base_tid));
	verify_keys_next_base(keys);
}

/*
 * Compare one live TID of the index with the sorted base rows.
 */
static void
verify_keys_index_tuple(VerifyKeys *keys, const Datum *values, uint64 tid)
{
	const StrataKey *key = &keys->verify->store->key;

	while (keys->have_base)
	{
		int			cmp = strata_key_compare(key, keys->base_values, values);

		if (cmp == 0)
			cmp = keys->base_tid < tid ? -1 : keys->base_tid > tid ? 1 :
																	 0;
		if (cmp == 0)
		{
			verify_keys_next_base(keys);
			return;
		}
		if (cmp > 0)
			break;
		verify_keys_missing(keys);
	}
	if (keys->extra++ < VERIFY_MAX_KEY_FAULTS)
		strata_verify_fault(keys->verify, "key index",
							"row %u of row group %u is under a key it does not have, or twice",
							TID_ROW(tid), TID_GROUP(tid));
}

/*
 * Read the index from end to end, without holding a page between two entries:
 * on a standby replay may want it.
 */
static void
verify_keys_index(VerifyKeys *keys, Oid index)
{
	StrataVerify *verify = keys->verify;
	StrataIndexRange *range = strata_keyindex_range_begin(verify->storage, index, NULL, 0, false);
	Datum		values[INDEX_MAX_KEYS];
	ItemPointerData tid;

	while (strata_keyindex_range_next(range, values, &tid))
	{
		StrataRowGroup *group = strata_manifest_group(verify->manifest, strata_tid_group(&tid));
		uint32		row = strata_tid_row(&tid);

		STRATA_PAUSE("verify-index");
		if (group == NULL || (row < group->ref.rows && strata_row_deleted(group, row)))
			continue;
		if (row >= group->ref.rows)
		{
			if (keys->extra++ < VERIFY_MAX_KEY_FAULTS)
				strata_verify_fault(verify, "key index",
									"names row %u of row group %u, which has %u rows",
									row, group->number, group->ref.rows);
			continue;
		}
		verify_keys_index_tuple(keys, values, (uint64) group->number << 16 | row);
	}
	while (keys->have_base)
		verify_keys_missing(keys);
	strata_keyindex_range_end(range);
}

static void
verify_keys_summary(VerifyKeys *keys, const char *object, uint64 n)
{
	if (n > VERIFY_MAX_KEY_FAULTS)
		strata_verify_fault(keys->verify, object, UINT64_FORMAT " more like these",
							n - VERIFY_MAX_KEY_FAULTS);
}

/*
 * StrataVerifyCheck.
 */
void
strata_verify_keys(StrataVerify *verify, void *arg)
{
	VerifyKeys *keys = palloc0(sizeof(VerifyKeys));
	StrataManifest *manifest = verify->manifest;
	Bitmapset  *needed = NULL;
	MemoryContext group_mcxt;
	MemoryContext old_mcxt;
	Oid			index;
	bool		present;

	keys->verify = verify;
	verify_keys_begin(keys);
	for (int i = 0; i < verify->store->key.natts; i++)
		needed = bms_add_member(needed, verify->store->key.attnum[i]);

	group_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata verify row group",
									   ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < manifest->ngroups; i++)
	{
		old_mcxt = MemoryContextSwitchTo(group_mcxt);
		verify_keys_of_group(keys, &manifest->groups[i], needed);
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextReset(group_mcxt);
	}
	tuplesort_performsort(keys->sort);
	verify_keys_next_base(keys);

	index = strata_keyindex_find(verify->storage, &present);
	if (OidIsValid(index))
		verify_keys_index(keys, index);
	else
	{
		while (keys->have_base)
		{
			CHECK_FOR_INTERRUPTS();
			verify_keys_next_base(keys);
		}
	}

	verify_keys_summary(keys, "keys of the base", keys->duplicates);
	verify_keys_summary(keys, "keys of the base", keys->wrong_hashes);
	verify_keys_summary(keys, "key index", keys->missing);
	verify_keys_summary(keys, "key index", keys->extra);

	tuplesort_end(keys->sort);
	ExecDropSingleTupleTableSlot(keys->in);
	ExecDropSingleTupleTableSlot(keys->out);
}
