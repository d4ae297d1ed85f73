/*-------------------------------------------------------------------------
 *
 * move.c
 *	  Rows that an UPDATE moves out of a strata partition.
 *
 * Core moves a row that no longer fits its partition when that is a heap; of a
 * foreign one it expects that the wrapper's update is all there is.  So the
 * wrapper does here what core does (ExecCrossPartitionUpdate and what that
 * calls): the row is deleted, with the triggers of a DELETE, and the new one
 * is routed from the table that the UPDATE names and inserted, with the
 * triggers of an INSERT.  Routing's state is the ModifyTable's own, made as
 * core makes it, so that both use it and core cleans it up.
 *
 * Afterwards core must not treat the row as one that was updated where it is:
 * fire AFTER UPDATE triggers, check the partition's view options, and compute
 * RETURNING with the partition's columns and tableoid.  Without RETURNING core
 * is told that there was nothing to do, and the row is counted here.  With it,
 * core gets a row, and finds in the partition's ResultRelInfo neither triggers
 * nor options, and a projection of ours; computing that puts back what was
 * there and computes the one of the partition where the row is now.  Nothing
 * else looks at these fields in between.
 *
 * IDENTIFICATION
 *	  src/fdw/move.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/move.h"

#include "access/tableam.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "foreign/fdwapi.h"
#include "utils/rel.h"

/* RETURNING of one row that was moved. */
typedef struct MovedReturning
{
	ProjectionInfo projection;	/* stands in for the source's */
	ModifyTableState *mtstate;
	ResultRelInfo *source;
	ResultRelInfo *dest;
	TupleTableSlot *row;		/* as inserted */

	/* what the source had */
	TriggerDesc *triggers;
	List	   *check_options;
	ProjectionInfo *own;
} MovedReturning;

/* As core does it, which may move rows of other partitions with it. */
static void
set_up_routing(ModifyTableState *mtstate)
{
	Relation	root = mtstate->rootResultRelInfo->ri_RelationDesc;
	EState	   *estate = mtstate->ps.state;
	MemoryContext oldcxt;

	if (mtstate->mt_partition_tuple_routing != NULL)
		return;
	oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
	mtstate->mt_partition_tuple_routing = ExecSetupPartitionTupleRouting(estate, root);
	Assert(mtstate->mt_root_tuple_slot == NULL);
	mtstate->mt_root_tuple_slot = table_slot_create(root, NULL);
	MemoryContextSwitchTo(oldcxt);
}

/* The old row, for triggers, which see no system columns of foreign tables. */
static void
get_old_row(ResultRelInfo *source, HeapTupleData *row)
{
	bool		should_free;

	*row = *ExecFetchSlotHeapTuple(source->ri_oldTupleSlot, true, &should_free);
	Assert(!should_free);
	row->t_tableOid = RelationGetRelid(source->ri_RelationDesc);
	ItemPointerSetInvalid(&row->t_self);
}

bool
strata_move_begin(ModifyTableState *mtstate, ResultRelInfo *source, TupleTableSlot *slot)
{
	EState	   *estate = mtstate->ps.state;
	const TransitionCaptureState *capture = mtstate->mt_transition_capture;
	HeapTupleData old;

	Assert(mtstate->operation == CMD_UPDATE);
	if (source == mtstate->rootResultRelInfo)
		ExecPartitionCheckEmitError(source, slot, estate);

	/* as core does, in later minor versions, for a row that stays */
	if (capture != NULL && (capture->tcs_update_old_table || capture->tcs_update_new_table))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot collect transition tuples from child foreign tables")));

	set_up_routing(mtstate);
	ExecMaterializeSlot(slot);
	if (source->ri_TrigDesc == NULL || !source->ri_TrigDesc->trig_delete_before_row)
		return true;
	get_old_row(source, &old);
	return strata_before_delete_triggers(estate, &mtstate->mt_epqstate, source, &old);
}

static void
insert_into_table(EState *estate, ResultRelInfo *dest, TupleTableSlot *slot, List **recheck)
{
	Relation	rel = dest->ri_RelationDesc;

	if (dest->ri_WithCheckOptions != NIL)
		ExecWithCheckOptions(WCO_RLS_UPDATE_CHECK, dest, slot, estate);
	if (rel->rd_att->constr != NULL)
		ExecConstraints(dest, slot, estate);

	/* the row was routed here, but a trigger may have changed it since */
	if (dest->ri_TrigDesc != NULL && dest->ri_TrigDesc->trig_insert_before_row)
		ExecPartitionCheck(dest, slot, estate, true);

	table_tuple_insert(rel, slot, estate->es_output_cid, 0, NULL);
	if (dest->ri_NumIndices > 0)
		*recheck = strata_insert_index_entries(dest, slot, estate);
}

/*
 * Insert a row of the root's type into the partition where it belongs.
 * Returns the row as inserted; NULL when a trigger or another wrapper did not
 * want it.
 */
static TupleTableSlot *
insert_row(ModifyTableState *mtstate, TupleTableSlot *slot, TupleTableSlot *planSlot,
		   ResultRelInfo **found)
{
	EState	   *estate = mtstate->ps.state;
	ResultRelInfo *dest = ExecFindPartition(mtstate, mtstate->rootResultRelInfo,
											mtstate->mt_partition_tuple_routing, slot, estate);
	Relation	rel = dest->ri_RelationDesc;
	TupleConversionMap *map = strata_root_to_child(dest, estate);
	List	   *recheck = NIL;

	*found = dest;
	if (map != NULL)
		slot = execute_attr_map_slot(map->attrMap, slot, dest->ri_PartitionTupleSlot);
	ExecMaterializeSlot(slot);

	/* of a target of the UPDATE that had no row so far */
	if (rel->rd_rel->relhasindex && dest->ri_IndexRelationDescs == NULL)
		ExecOpenIndices(dest, false);

	if (dest->ri_TrigDesc != NULL && dest->ri_TrigDesc->trig_insert_before_row &&
		!ExecBRInsertTriggers(estate, dest, slot))
		return NULL;

	slot->tts_tableOid = RelationGetRelid(rel);
	if (rel->rd_att->constr != NULL && rel->rd_att->constr->has_generated_stored)
		ExecComputeStoredGenerated(dest, estate, slot, CMD_INSERT);

	if (dest->ri_FdwRoutine != NULL)
	{
		/* one by one, even where core would insert in batches */
		slot = dest->ri_FdwRoutine->ExecForeignInsert(estate, dest, slot, planSlot);
		if (slot == NULL)
			return NULL;
		slot->tts_tableOid = RelationGetRelid(rel);
	}
	else
		insert_into_table(estate, dest, slot, &recheck);

	ExecARInsertTriggers(estate, dest, slot, recheck, NULL);
	list_free(recheck);
	if (dest->ri_WithCheckOptions != NIL)
		ExecWithCheckOptions(WCO_VIEW_CHECK, dest, slot, estate);
	return slot;
}

/* The old row in the type of the partition where the new one is. */
static TupleTableSlot *
convert_old_row(MovedReturning *moved)
{
	EState	   *estate = moved->mtstate->ps.state;
	TupleTableSlot *slot = moved->source->ri_oldTupleSlot;
	TupleConversionMap *map = ExecGetChildToRootMap(moved->source);

	if (map != NULL)
		slot = execute_attr_map_slot(map->attrMap, slot,
									 ExecGetReturningSlot(estate, moved->mtstate->rootResultRelInfo));
	map = strata_root_to_child(moved->dest, estate);
	if (map != NULL)
		slot = execute_attr_map_slot(map->attrMap, slot,
									 ExecGetReturningSlot(estate, moved->dest));
	slot->tts_tableOid = RelationGetRelid(moved->source->ri_RelationDesc);
	return slot;
}

/* Called by core to compute RETURNING of the source. */
static Datum
compute_returning(ExprState *expression, ExprContext *econtext, bool *isnull)
{
	MovedReturning *moved = expression->evalfunc_private;
	ProjectionInfo *projection = moved->dest->ri_projectReturning;
	TupleTableSlot *old = NULL;

	moved->source->ri_TrigDesc = moved->triggers;
	moved->source->ri_WithCheckOptions = moved->check_options;
	moved->source->ri_projectReturning = moved->own;

	/* all projections of a ModifyTable have one context and one result */
	Assert(projection->pi_exprContext == econtext);
	Assert(projection->pi_state.resultslot == expression->resultslot);
	if ((projection->pi_state.flags & STRATA_RETURNING_OLD) != 0)
		old = convert_old_row(moved);
	moved->row->tts_tableOid = RelationGetRelid(moved->dest->ri_RelationDesc);
	strata_set_returning_rows(projection, old, moved->row);
	return ExecEvalExpr(&projection->pi_state, econtext, isnull);
}

/* Have core return the row that was moved, and do nothing else with it. */
static TupleTableSlot *
return_row(ModifyTableState *mtstate, ResultRelInfo *source, ResultRelInfo *dest,
		   TupleTableSlot *row)
{
	MovedReturning *moved = MemoryContextAllocZero(GetPerTupleMemoryContext(mtstate->ps.state),
												   sizeof(MovedReturning));

	moved->mtstate = mtstate;
	moved->source = source;
	moved->dest = dest;
	moved->row = row;
	moved->triggers = source->ri_TrigDesc;
	moved->check_options = source->ri_WithCheckOptions;
	moved->own = source->ri_projectReturning;

	moved->projection = *source->ri_projectReturning;
	moved->projection.pi_state.evalfunc = compute_returning;
	moved->projection.pi_state.evalfunc_private = moved;

	source->ri_TrigDesc = NULL;
	source->ri_WithCheckOptions = NIL;
	source->ri_projectReturning = &moved->projection;
	return row;
}

TupleTableSlot *
strata_move_end(ModifyTableState *mtstate, ResultRelInfo *source,
				TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	EState	   *estate = mtstate->ps.state;
	TupleConversionMap *map;
	ResultRelInfo *dest;

	if (source->ri_TrigDesc != NULL && source->ri_TrigDesc->trig_delete_after_row)
	{
		HeapTupleData old;

		get_old_row(source, &old);
		ExecARDeleteTriggers(estate, source, NULL, &old, NULL, true);
	}

	map = ExecGetChildToRootMap(source);
	if (map != NULL)
		slot = execute_attr_map_slot(map->attrMap, slot, mtstate->mt_root_tuple_slot);
	slot = insert_row(mtstate, slot, planSlot, &dest);
	if (slot == NULL)
		return NULL;

	if (source->ri_projectReturning != NULL)
		return return_row(mtstate, source, dest, slot);
	if (mtstate->canSetTag)
		estate->es_processed++;
	return NULL;
}
