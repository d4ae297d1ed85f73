/*-------------------------------------------------------------------------
 *
 * aggregate_groups.c
 *	  The groups of an aggregate: a hash table that stays within hash_mem.
 *
 * Values are hashed and compared by the type's own functions under the
 * column's collation, as in PostgreSQL's hash aggregate; where the type says
 * that equal values have equal images and they are passed by value, by the
 * Datum's bits that belong to the type: what a function leaves in the others
 * (hashint4 zeros, int4 the sign) is no part of the value.  Nulls are equal.
 *
 * When memory is used up, rows of further groups wait in temporary files, by
 * some bits of their hashes, until the groups there are have been returned.
 * Then each of the files is a batch of its own.  So all rows of a group are
 * aggregated in the order of the scan, and each group is returned once.
 *
 * Memory: groups and their states, which callers add to, in mcxt; of the rows
 * that wait, work_mem for each time they were split.
 *
 * IDENTIFICATION
 *	  src/fdw/aggregate_groups.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/aggregate.h"

#include "access/nbtree.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"
#include "utils/typcache.h"

#define MIN_SLOTS		256
#define PARTITION_BITS	4
#define PARTITIONS		(1 << PARTITION_BITS)

StaticAssertDecl(lengthof(((StrataGroups *) 0)->partitions) == PARTITIONS,
				 "partitions of waiting rows");

typedef struct StrataWaitingRows
{
	Tuplestorestate *rows;
	int			depth;			/* bits of the hash that all rows share */
} StrataWaitingRows;

/* Do equal values of this type and collation have equal images? */
static bool
equal_image(Oid type, Oid eq_function, Oid collation)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY | TYPECACHE_EQ_OPR);
	Oid			proc;

	if (!OidIsValid(entry->btree_opf) || get_opcode(entry->eq_opr) != eq_function)
		return false;
	proc = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype,
							 BTEQUALIMAGE_PROC);
	return OidIsValid(proc) &&
		DatumGetBool(OidFunctionCall1Coll(proc, collation, ObjectIdGetDatum(entry->btree_opintype)));
}

static void
make_slots(StrataGroups *groups, uint32 nslots)
{
	groups->slots = MemoryContextAllocExtended(groups->table_mcxt,
											   nslots * sizeof(StrataGroupSlot),
											   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	groups->nslots = nslots;
}

/*
 * mcxt and ntrans are set.  columns, ops, collations: of what rows are grouped
 * by; used: all columns of the input that are looked at.
 */
void
strata_groups_begin(StrataGroups *groups, List *columns, List *ops, List *collations,
					TupleDesc desc, const int *used, int nused, EState *estate)
{
	ListCell   *lc;
	ListCell   *lc2;
	ListCell   *lc3;

	groups->table_mcxt = CurrentMemoryContext;
	groups->limit = get_hash_memory_limit();
	groups->desc = desc;
	groups->unused = palloc(Max(desc->natts, 1) * sizeof(bool));
	groups->kept_nulls = palloc(Max(desc->natts, 1) * sizeof(bool));
	memset(groups->unused, true, desc->natts * sizeof(bool));
	for (int i = 0; i < nused; i++)
		groups->unused[used[i]] = false;
	groups->waiting_slot = ExecInitExtraTupleSlot(estate, desc, &TTSOpsMinimalTuple);
	groups->columns = palloc0(Max(list_length(columns), 1) * sizeof(StrataGroupColumn));
	forthree(lc, columns, lc2, ops, lc3, collations)
	{
		StrataGroupColumn *column = &groups->columns[groups->ncolumns++];
		Oid			eq_function = get_opcode(lfirst_oid(lc2));
		Form_pg_attribute att = TupleDescAttr(desc, lfirst_int(lc));
		Oid			left_hash;
		Oid			right_hash;

		column->column = lfirst_int(lc);
		column->collation = lfirst_oid(lc3);
		column->typlen = att->attlen;
		column->byval = att->attbyval;
		if (!get_op_hash_functions(lfirst_oid(lc2), &left_hash, &right_hash))
			elog(ERROR, "could not find hash function for hash operator %u", lfirst_oid(lc2));
		fmgr_info(eq_function, &column->eq);
		fmgr_info(left_hash, &column->hash);
		if (att->attbyval && equal_image(att->atttypid, eq_function, column->collation))
			column->image = ~(Datum) 0 >> 8 * (sizeof(Datum) - att->attlen);
	}
	make_slots(groups, MIN_SLOTS);
}

static inline bool
same_group(const StrataGroups *groups, const StrataGroup *group, const Datum *values,
		   const bool *isnull)
{
	for (int i = 0; i < groups->ncolumns; i++)
	{
		StrataGroupColumn *column = &groups->columns[i];
		Datum		value = values[column->column];

		if (group->nulls[i] != isnull[column->column])
			return false;
		if (group->nulls[i])
			continue;
		if (column->image ?
				((group->keys[i] ^ value) & column->image) != 0 :
				!DatumGetBool(FunctionCall2Coll(&column->eq, column->collation, group->keys[i], value)))
			return false;
	}
	return true;
}

static inline uint32
hash_row(const StrataGroups *groups, const Datum *values, const bool *isnull)
{
	uint32		hash = 0;

	for (int i = 0; i < groups->ncolumns; i++)
	{
		StrataGroupColumn *column = &groups->columns[i];
		uint32		value = 0;

		if (isnull[column->column])
			/* as 0 */;
		else if (column->image)
		{
			uint64		bits = values[column->column] & column->image;

			value = murmurhash32((uint32) bits ^ (uint32) (bits >> 32));
		}
		else
			value = DatumGetUInt32(FunctionCall1Coll(&column->hash, column->collation,
													 values[column->column]));
		hash = pg_rotate_left32(hash, 1) ^ value;
	}
	return murmurhash32(hash);
}

/* The slot that has a group with this hash, or would have it. */
static inline StrataGroupSlot *
find_slot(const StrataGroups *groups, uint32 hash, const Datum *values, const bool *isnull)
{
	uint32		mask = groups->nslots - 1;

	for (uint32 i = hash & mask;; i = (i + 1) & mask)
	{
		StrataGroupSlot *slot = &groups->slots[i];

		if (slot->group == NULL ||
			(slot->hash == hash && same_group(groups, slot->group, values, isnull)))
			return slot;
	}
}

static Size
memory_used(const StrataGroups *groups)
{
	return MemoryContextMemAllocated(groups->mcxt, true) + groups->nslots * sizeof(StrataGroupSlot);
}

/* Twice the slots, if memory allows. */
static void
grow(StrataGroups *groups)
{
	StrataGroupSlot *old = groups->slots;
	uint32		nold = groups->nslots;

	if (memory_used(groups) + nold * sizeof(StrataGroupSlot) > groups->limit ||
		nold > PG_UINT32_MAX / 4)
	{
		groups->full = true;
		return;
	}
	make_slots(groups, nold * 2);
	for (uint32 i = 0; i < nold; i++)
	{
		uint32		at = old[i].hash & (groups->nslots - 1);

		if (old[i].group == NULL)
			continue;
		while (groups->slots[at].group != NULL)
			at = (at + 1) & (groups->nslots - 1);
		groups->slots[at] = old[i];
	}
	pfree(old);
}

static pg_noinline StrataGroup *
create_group(StrataGroups *groups, StrataGroupSlot *slot, uint32 hash, const Datum *values,
			 const bool *isnull)
{
	int			n = groups->ncolumns;
	MemoryContext old = MemoryContextSwitchTo(groups->mcxt);
	StrataGroup *group;

	group = palloc(offsetof(StrataGroup, trans) + groups->ntrans * sizeof(AggStatePerGroupData) +
				   n * (sizeof(Datum) + sizeof(bool)));
	group->keys = (Datum *) &group->trans[groups->ntrans];
	group->nulls = (bool *) (group->keys + n);
	for (int i = 0; i < n; i++)
	{
		StrataGroupColumn *column = &groups->columns[i];

		group->nulls[i] = isnull[column->column];
		group->keys[i] = group->nulls[i] ? (Datum) 0 :
			datumCopy(values[column->column], column->byval, column->typlen);
	}
	MemoryContextSwitchTo(old);

	slot->group = group;
	slot->hash = hash;
	groups->used++;
	if (memory_used(groups) > groups->limit)
		groups->full = true;
	else if (groups->used > groups->nslots / 2)
		grow(groups);
	return group;
}

StrataGroup *
strata_groups_find(StrataGroups *groups, const Datum *values, const bool *isnull, uint32 *hash,
				   bool *created)
{
	StrataGroupSlot *slot;

	*created = false;
	/* neighbours are often of one group */
	if (groups->last != NULL && same_group(groups, groups->last, values, isnull))
		return groups->last;

	*hash = hash_row(groups, values, isnull);
	slot = find_slot(groups, *hash, values, isnull);
	if (unlikely(slot->group == NULL))
	{
		if (groups->full)
			return NULL;
		*created = true;
		groups->last = create_group(groups, slot, *hash, values, isnull);
		return groups->last;
	}
	groups->last = slot->group;
	return groups->last;
}

/* ---- rows that wait ---- */

/*
 * A row whose group there is no room for.  The scan's own slot may hold columns
 * that only clauses of it looked at; these are not kept.
 */
void
strata_groups_wait(StrataGroups *groups, Datum *values, const bool *isnull, uint32 hash)
{
	int			depth = groups->reading ? groups->reading->depth + PARTITION_BITS : PARTITION_BITS;
	int			at = depth <= 32 ? (hash >> (32 - depth)) & (PARTITIONS - 1) : 0;
	MemoryContext old = MemoryContextSwitchTo(groups->table_mcxt);

	if (groups->partitions[at] == NULL)
	{
		StrataWaitingRows *waiting = palloc(sizeof(StrataWaitingRows));

		waiting->depth = depth;
		waiting->rows = tuplestore_begin_heap(false, false, work_mem / PARTITIONS);
		groups->partitions[at] = waiting;
	}
	for (int i = 0; i < groups->desc->natts; i++)
		groups->kept_nulls[i] = isnull[i] || groups->unused[i];
	tuplestore_putvalues(groups->partitions[at]->rows, groups->desc, values, groups->kept_nulls);
	MemoryContextSwitchTo(old);
}

/* The next row of the batch that is read; NULL: no more. */
TupleTableSlot *
strata_groups_next_waiting(StrataGroups *groups)
{
	CHECK_FOR_INTERRUPTS();
	if (!tuplestore_gettupleslot(groups->reading->rows, true, false, groups->waiting_slot))
		return NULL;
	slot_getallattrs(groups->waiting_slot);
	return groups->waiting_slot;
}

static void
end_rows(StrataWaitingRows *waiting)
{
	tuplestore_end(waiting->rows);
	pfree(waiting);
}

static void
empty(StrataGroups *groups)
{
	if (groups->reading != NULL)
	{
		ExecClearTuple(groups->waiting_slot);
		end_rows(groups->reading);
		groups->reading = NULL;
	}
	if (groups->nslots > MIN_SLOTS)
	{
		pfree(groups->slots);
		make_slots(groups, MIN_SLOTS);
	}
	else
		memset(groups->slots, 0, groups->nslots * sizeof(StrataGroupSlot));
	groups->used = 0;
	groups->full = false;
	groups->last = NULL;
}

bool
strata_groups_next_batch(StrataGroups *groups)
{
	MemoryContext old = MemoryContextSwitchTo(groups->table_mcxt);

	empty(groups);
	for (int i = 0; i < PARTITIONS; i++)
	{
		if (groups->partitions[i] != NULL)
			groups->waiting = lappend(groups->waiting, groups->partitions[i]);
		groups->partitions[i] = NULL;
	}
	if (groups->waiting != NIL)
	{
		/* the last first, so that few are there at a time */
		groups->reading = (StrataWaitingRows *) llast(groups->waiting);
		groups->waiting = list_delete_last(groups->waiting);
		groups->batches++;
	}
	MemoryContextSwitchTo(old);
	return groups->reading != NULL;
}

/* As it was in the beginning. */
void
strata_groups_reset(StrataGroups *groups)
{
	ListCell   *lc;

	empty(groups);
	foreach (lc, groups->waiting)
		end_rows((StrataWaitingRows *) lfirst(lc));
	list_free(groups->waiting);
	groups->waiting = NIL;
	for (int i = 0; i < PARTITIONS; i++)
	{
		if (groups->partitions[i] != NULL)
			end_rows(groups->partitions[i]);
		groups->partitions[i] = NULL;
	}
}
