/*-------------------------------------------------------------------------
 *
 * modify.c
 *	  INSERT, UPDATE, DELETE, COPY FROM and TRUNCATE of strata foreign tables.
 *
 * Translates the executor's rows into puts on the command's memtable
 * (log/memtable.h), after the checks that core leaves to the wrapper: row
 * security of a partitioned parent, NOT NULL, CHECK and partition bounds.
 * Stored generated columns, defaults and domains are core's, and done by then.
 *
 * Rows are put one by one, never in batches: a put is local, so batching
 * would only copy each row twice more, and would hide rows from volatile
 * functions of the same command that read the table.
 *
 * A row to change is known by its key, and by its TID which version of it was
 * read.  Its key is locked and the newest version looked for
 * (log/row_lock.h); under READ COMMITTED a version that another transaction
 * put meanwhile is checked and used by way of EvalPlanQual, as on a heap.  A
 * new version or a tombstone then goes into the memtable, whose flush notices
 * what statements that lock no keys linked in between.  A new version that
 * belongs to another partition is a tombstone here and a row there (move.c).
 *
 * The storage relation is locked RowExclusive, after the foreign table, to the
 * end of the transaction.
 *
 * IDENTIFICATION
 *	  src/fdw/modify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/move.h"
#include "fdw/scan.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/heap.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/nodeModifyTable.h"
#include "log/conflict_check.h"
#include "manifest/lifecycle.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/appendinfo.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * A foreign table being changed; NULL under EXPLAIN.  Rows that an UPDATE moves
 * to one of its own targets are inserted with the target's state.
 */
typedef struct ModifyState
{
	StrataStore *store;
	Relation	storage;
	StrataMemtable *memtable;
	int			uses;			/* 2: target of an UPDATE and of routing */
	CommandId	cid;

	/* inserting */
	StrataOnDuplicate on_duplicate;
	bool		partition;		/* the row may violate the partition's bounds */

	/* what to check on each row */
	bool		constraints;
	bool		nullable_key;	/* a key column is not declared NOT NULL */
	CmdType		operation;		/* the statement that the row comes from */
	ModifyTableState *mtstate;

	/* updating and deleting */
	AttrNumber	key_junk[INDEX_MAX_KEYS];	/* in the plan's rows */
	AttrNumber	tid_junk;
	AttrNumber	row_junk;		/* whole row, if RETURNING wants it */
	bool		locked_by_scan;
	StrataView *view;			/* made by the first row */
	StrataRowLocker *locker;
	StrataPosition seen;		/* of the row that was locked last, */
	ItemPointerData newest;		/* and which version of it is changed */
} ModifyState;

static void refuse_layer_table(Oid relid);
static void refuse_keyless(const StrataStore *store);
static ModifyState *begin_modify(ModifyTableState *mtstate, ResultRelInfo *rinfo);
static void begin_insert(ModifyTableState *mtstate, ResultRelInfo *rinfo);
static void begin_change(ModifyTableState *mtstate, ResultRelInfo *rinfo);
static void end_modify(EState *estate, ResultRelInfo *rinfo);
static StrataRowState lock_row(EState *estate, ModifyState *state, Datum *oldkey, LOCKMODE mode);
static void refuse_changed(void) pg_attribute_noreturn();
static bool lock_target(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *planSlot,
						LOCKMODE mode, Datum *oldkey, TupleTableSlot **epqslot);

/* Tables over one layer of a store are read-only. */
static void
refuse_layer_table(Oid relid)
{
	StrataOptions *options;

	/* only tables with a store of their own have a storage relation */
	if (OidIsValid(strata_store_storage(relid)))
		return;
	options = strata_options_get(relid);
	if (options->layer != STRATA_LAYER_ALL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change foreign table \"%s\"", get_rel_name(relid)),
				 errdetail("It shows one layer of another table's store."),
				 errhint("Change the table that has the store: %s.", options->store)));
}

/* Which row to change is said by its key, so there must be one. */
static void
refuse_keyless(const StrataStore *store)
{
	if (store->key.natts == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot update or delete rows of %s", store->name),
				 errdetail("It has no key, so its rows can only be added to and truncated."),
				 errhint("Create it with OPTIONS (key '...') and copy the rows.")));
}

/* The name under which a plan's rows carry a key column of the row to change. */
static char *
key_junk_name(TupleDesc desc, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);

	/* tables of an inheritance tree share names only for the same column */
	return psprintf("strata_key_%d_%u_%d_%u", attnum, att->atttypid, att->atttypmod,
					att->attcollation);
}

/* Does RETURNING want anything of the target's row? */
static bool
returning_needs_row(PlannerInfo *root)
{
	List	   *vars = pull_var_clause((Node *) root->parse->returningList,
									   PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
									   PVC_RECURSE_PLACEHOLDERS);
	ListCell   *lc;

	foreach (lc, vars)
	{
		if (lfirst_node(Var, lc)->varno == root->parse->resultRelation)
			return true;
	}
	return false;
}

/*
 * The row that core wants of the target for UPDATE and triggers is a Var of
 * type record.  One that the query asks for itself has the table's row type,
 * and above the scan a Var is found by its column alone: let there be only one.
 * (For a table reached through its parent the query's own is converted to the
 * parent's row type, which is found as an expression.)
 */
void
strata_unify_whole_rows(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	List	   *exprs = NIL;
	ListCell   *lc;

	if (root->parse->resultRelation != (int) baserel->relid)
		return;
	foreach (lc, list_concat_copy(get_tlist_exprs(root->processed_tlist, true),
								  baserel->reltarget->exprs))
	{
		Var		   *var = lfirst(lc);

		if (IsA(var, Var) && var->varno == (int) baserel->relid &&
			var->varattno == InvalidAttrNumber && var->vartype == RECORDOID)
			var->vartype = get_rel_type_id(foreigntableid);
	}
	foreach (lc, baserel->reltarget->exprs)
		exprs = list_append_unique(exprs, lfirst(lc));
	baserel->reltarget->exprs = exprs;
}

/*
 * What a plan's rows must say of the row to change: its key, and by the TID
 * which version was read.  (Core adds the whole row for UPDATE and triggers.)
 */
void
strataAddForeignUpdateTargets(PlannerInfo *root, Index rtindex,
							  RangeTblEntry *target_rte, Relation target_relation)
{
	TupleDesc	desc = RelationGetDescr(target_relation);
	StrataStore *store;

	refuse_layer_table(target_rte->relid);
	store = strata_store_open(target_rte->relid);
	refuse_keyless(store);

	for (int i = 0; i < store->key.natts; i++)
	{
		AttrNumber	attnum = store->key.attnum[i];
		Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);

		add_row_identity_var(root,
							 makeVar(rtindex, attnum, att->atttypid, att->atttypmod,
									 att->attcollation, 0),
							 rtindex, key_junk_name(desc, attnum));
	}
	add_row_identity_var(root,
						 makeVar(rtindex, SelfItemPointerAttributeNumber, TIDOID, -1,
								 InvalidOid, 0),
						 rtindex, "ctid");
	if (root->parse->commandType == CMD_DELETE && returning_needs_row(root))
		add_row_identity_var(root,
							 makeVar(rtindex, InvalidAttrNumber, RECORDOID, -1, InvalidOid, 0),
							 rtindex, "wholerow");
	strata_store_close(store);
}

/*
 * RETURNING gets a tuple that core makes of the row's values, with a header
 * that says nothing: refuse the system columns that are read from it.
 */
static void
refuse_system_columns(List *returning, Index varno, Oid relid)
{
	List	   *vars = pull_var_clause((Node *) returning,
									   PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
									   PVC_RECURSE_PLACEHOLDERS);
	ListCell   *lc;

	foreach (lc, vars)
	{
		Var		   *var = lfirst_node(Var, lc);

		if (var->varno == (int) varno && var->varattno < 0 &&
			var->varattno != SelfItemPointerAttributeNumber &&
			var->varattno != TableOidAttributeNumber)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot retrieve system column \"%s\" of foreign table \"%s\"",
							NameStr(SystemAttributeDefinition(var->varattno)->attname),
							get_rel_name(relid))));
	}
}

List *
strataPlanForeignModify(PlannerInfo *root, ModifyTable *plan,
						Index resultRelation, int subplan_index)
{
	Oid			relid = planner_rt_fetch(resultRelation, root)->relid;

	refuse_layer_table(relid);
	if (plan->returningLists != NIL)
		refuse_system_columns(list_nth(plan->returningLists, subplan_index), resultRelation,
							  relid);
	return NIL;
}

void
strataBeginForeignModify(ModifyTableState *mtstate, ResultRelInfo *rinfo,
						 List *fdw_private, int subplan_index, int eflags)
{
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	if (mtstate->operation == CMD_INSERT)
		begin_insert(mtstate, rinfo);
	else
		begin_change(mtstate, rinfo);
}

void
strataEndForeignModify(EState *estate, ResultRelInfo *rinfo)
{
	end_modify(estate, rinfo);
}

/*
 * COPY, or a row is routed here from a partitioned parent (also by an UPDATE
 * that moves it).  Called when the first row arrives, so never for EXPLAIN.
 */
void
strataBeginForeignInsert(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	refuse_layer_table(RelationGetRelid(rinfo->ri_RelationDesc));
	if (rinfo->ri_returningList != NIL)
		refuse_system_columns(rinfo->ri_returningList,
							  mtstate->resultRelInfo[0].ri_RangeTableIndex,
							  RelationGetRelid(rinfo->ri_RelationDesc));
	begin_insert(mtstate, rinfo);
}

void
strataEndForeignInsert(EState *estate, ResultRelInfo *rinfo)
{
	end_modify(estate, rinfo);
}

/* What inserting and changing have in common; in the query's context. */
static ModifyState *
begin_modify(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	EState	   *estate = mtstate->ps.state;
	Relation	rel = rinfo->ri_RelationDesc;
	ModifyState *state = rinfo->ri_FdwState;

	if (state != NULL)
	{
		state->uses++;
		return state;
	}

	state = palloc0(sizeof(ModifyState));
	state->uses = 1;
	state->store = strata_store_open(RelationGetRelid(rel));
	state->storage = strata_storage_open(state->store, RowExclusiveLock);
	strata_manifest_check_made(state->store, state->storage, NULL);
	state->operation = mtstate->operation;
	state->mtstate = mtstate;
	state->constraints = rel->rd_att->constr != NULL;
	for (int i = 0; i < state->store->key.natts; i++)
	{
		AttrNumber	attnum = state->store->key.attnum[i];

		if (!TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attnotnull)
			state->nullable_key = true;
	}

	/* COPY, which has no plan, leaves es_output_cid alone */
	state->cid = mtstate->ps.plan != NULL ? estate->es_output_cid : GetCurrentCommandId(true);
	state->memtable = strata_memtable_begin(state->store, state->storage, state->cid);

	rinfo->ri_FdwState = state;
	return state;
}

static void
begin_insert(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	Relation	rel = rinfo->ri_RelationDesc;
	ModifyTable *plan = (ModifyTable *) mtstate->ps.plan;
	MemoryContext oldcxt = MemoryContextSwitchTo(mtstate->ps.state->es_query_cxt);
	ModifyState *state;

	PreventCommandIfReadOnly("INSERT");
	PreventCommandIfParallelMode("INSERT");

	state = begin_modify(mtstate, rinfo);
	state->on_duplicate = state->store->options->on_duplicate;
	if (plan != NULL && plan->onConflictAction == ONCONFLICT_NOTHING)
		state->on_duplicate = STRATA_ON_DUPLICATE_IGNORE;

	/*
	 * Routing brought the row to the right partition, unless a trigger changed
	 * it since.  COPY, which has no plan, checks that itself.
	 */
	state->partition = plan != NULL && rel->rd_rel->relispartition &&
		(rinfo->ri_RootResultRelInfo == NULL ||
		 (rinfo->ri_TrigDesc != NULL && rinfo->ri_TrigDesc->trig_insert_before_row));
	MemoryContextSwitchTo(oldcxt);
}

static void
begin_change(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	const char *command = mtstate->operation == CMD_UPDATE ? "UPDATE" : "DELETE";
	MemoryContext oldcxt = MemoryContextSwitchTo(mtstate->ps.state->es_query_cxt);
	Plan	   *subplan = outerPlan(mtstate->ps.plan);
	ModifyState *state;
	const StrataKey *key;

	PreventCommandIfReadOnly(command);
	PreventCommandIfParallelMode(command);

	state = begin_modify(mtstate, rinfo);
	refuse_keyless(state->store);
	key = &state->store->key;
	for (int i = 0; i < key->natts; i++)
	{
		state->key_junk[i] =
			ExecFindJunkAttributeInTlist(subplan->targetlist,
										 key_junk_name(state->store->desc, key->attnum[i]));
		if (!AttributeNumberIsValid(state->key_junk[i]))
			elog(ERROR, "could not find the key of the row to change");
	}
	state->tid_junk = ExecFindJunkAttributeInTlist(subplan->targetlist, "ctid");
	if (!AttributeNumberIsValid(state->tid_junk))
		elog(ERROR, "could not find the TID of the row to change");
	state->row_junk = ExecFindJunkAttributeInTlist(subplan->targetlist, "wholerow");
	state->locked_by_scan = strata_locks_in_scan(rinfo->ri_RelationDesc, mtstate->operation);

	if (subplan->plan_rows / mtstate->mt_nrels > STRATA_MAX_KEY_LOCKS)
		strata_lock_all_keys(RelationGetRelid(state->storage));
	MemoryContextSwitchTo(oldcxt);
}

static void
end_modify(EState *estate, ResultRelInfo *rinfo)
{
	ModifyState *state = rinfo->ri_FdwState;
	MemoryContext oldcxt;

	if (state == NULL || --state->uses > 0)
		return;
	rinfo->ri_FdwState = NULL;
	strata_memtable_end(state->memtable);
	if (state->view != NULL)
	{
		strata_row_locker_end(state->locker);
		strata_view_end(state->view);
	}
	table_close(state->storage, NoLock);

	/* a store is closed in the context it was opened in */
	oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
	strata_store_close(state->store);
	MemoryContextSwitchTo(oldcxt);
}

/* Write what was put, on the account of the plan's node. */
void
strata_modify_finish(ResultRelInfo *rinfo)
{
	ModifyState *state = rinfo->ri_FdwState;
	Instrumentation *instrument = state->mtstate->ps.instrument;

	if (instrument != NULL)
		InstrStartNode(instrument);
	strata_memtable_finish(state->memtable);
	if (instrument != NULL)
		InstrStopNode(instrument, 0);
}

/* Lock a key for a row that this command puts or deletes. */
static void
lock_key(EState *estate, ModifyState *state, const Datum *keyvalues, LOCKMODE mode)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));

	(void) strata_lock_key(RelationGetRelid(state->storage),
						   strata_key_hash(&state->store->key, keyvalues), mode, false, NULL);
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Put a row that an UPDATE brings from another partition: the key must be
 * free, whatever inserting would do with one that is not.
 */
static void
put_moved(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	ModifyState *state = rinfo->ri_FdwState;
	const StrataKey *key = &state->store->key;

	if (key->natts > 0)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];

		strata_key_extract(key, slot->tts_values, slot->tts_isnull, keyvalues,
						   RelationGetRelationName(rinfo->ri_RelationDesc), state->store->desc);
		strata_memtable_lock_new_key(state->memtable, keyvalues);
	}
	(void) strata_memtable_put(state->memtable, STRATA_ON_DUPLICATE_ERROR,
							   slot->tts_values, slot->tts_isnull);
}

/* Key columns are NOT NULL, also those not declared so; that comes before CHECK. */
static void
check_constraints(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	ModifyState *state = rinfo->ri_FdwState;

	if (state->nullable_key)
	{
		slot_getallattrs(slot);
		strata_key_check_nulls(&state->store->key, slot->tts_isnull,
							   RelationGetRelationName(rinfo->ri_RelationDesc),
							   state->store->desc);
	}
	if (state->constraints)
		ExecConstraints(rinfo, slot, estate);
}

TupleTableSlot *
strataExecForeignInsert(EState *estate, ResultRelInfo *rinfo,
						TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	ModifyState *state = rinfo->ri_FdwState;

	/* policies of a partitioned parent; not yet known when the state is made */
	if (rinfo->ri_WithCheckOptions != NIL)
	{
		/*
		 * Which of MERGE's actions moved the row here is not known, so both
		 * kinds of policies apply.
		 */
		if (state->operation != CMD_UPDATE)
			ExecWithCheckOptions(WCO_RLS_INSERT_CHECK, rinfo, slot, estate);
		if (state->operation != CMD_INSERT)
			ExecWithCheckOptions(WCO_RLS_UPDATE_CHECK, rinfo, slot, estate);
	}
	check_constraints(estate, rinfo, slot);
	if (state->partition)
		ExecPartitionCheck(rinfo, slot, estate, true);

	slot_getallattrs(slot);
	Assert(slot->tts_tupleDescriptor->natts == state->store->desc->natts);
	if (state->operation == CMD_UPDATE)
		put_moved(estate, rinfo, slot);
	else if (!strata_memtable_put(state->memtable, state->on_duplicate,
							 slot->tts_values, slot->tts_isnull))
		return NULL;
	return slot;
}

/*
 * Row triggers get the old row from core, which took it from the scan; so the
 * scan locks the row before it returns it.
 */
bool
strata_locks_in_scan(Relation rel, CmdType operation)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (triggers == NULL)
		return false;
	if (operation == CMD_UPDATE)
		return triggers->trig_update_before_row || triggers->trig_update_after_row;
	return triggers->trig_delete_before_row || triggers->trig_delete_after_row;
}

/* The key of the row to change. */
static void
get_old_key(ModifyState *state, TupleTableSlot *planSlot, Datum *oldkey)
{
	for (int i = 0; i < state->store->key.natts; i++)
	{
		bool		isnull;

		oldkey[i] = ExecGetJunkAttribute(planSlot, state->key_junk[i], &isnull);
		if (isnull)
			elog(ERROR, "key of the row to change is null");
	}
}

/*
 * Lock the row with this key of which state->newest was read or found, and say
 * what became of it.
 */
static StrataRowState
lock_row(EState *estate, ModifyState *state, Datum *oldkey, LOCKMODE mode)
{
	const StrataKey *key = &state->store->key;
	MemoryContext oldcxt;
	StrataRowState found;
	Datum		newkey[INDEX_MAX_KEYS];
	const Datum *nowkey = oldkey;

	if (state->view == NULL)
	{
		oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
		state->view = strata_view_begin(state->store, state->storage, estate->es_snapshot, STRATA_LAYER_ALL);
		state->locker = strata_row_locker_begin(state->view, state->cid);
		MemoryContextSwitchTo(oldcxt);
	}

	oldcxt = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	found = strata_row_lock(state->locker, strata_key_hash(key, oldkey), oldkey, &state->newest,
							mode, LockWaitBlock, &state->seen);

	/*
	 * What this command put under the key that the row has now (and has not
	 * flushed) took the row's place; what it put under the key that was read
	 * may have taken another one's.
	 */
	if (found == STRATA_ROW_CHANGED)
	{
		strata_row_locker_newest_key(state->locker, newkey);
		nowkey = newkey;
	}
	if ((found == STRATA_ROW_SAME || found == STRATA_ROW_CHANGED) &&
		strata_memtable_has_key(state->memtable, strata_key_hash(key, nowkey), nowkey))
		found = STRATA_ROW_OWN_COMMAND;
	MemoryContextSwitchTo(oldcxt);

	if (found == STRATA_ROW_OWN_LATER)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 state->operation == CMD_DELETE ?
				 errmsg("tuple to be deleted was already modified by an operation triggered by the current command") :
				 errmsg("tuple to be updated was already modified by an operation triggered by the current command"),
				 errhint("Consider using an AFTER trigger instead of a BEFORE trigger to propagate changes to other rows.")));
	return found;
}

static void
refuse_changed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update")));
}

/*
 * Lock the row that planSlot says, whose key is oldkey, and see to it that what
 * happens to it happens to its newest version.  False when there is nothing to
 * do any more.
 * When another transaction had changed it, *epqslot becomes the plan's row for
 * the version to change, oldkey that version's key, and the result relation's
 * old tuple slot (if there is one) that version.
 */
static bool
lock_target(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *planSlot,
			LOCKMODE mode, Datum *oldkey, TupleTableSlot **epqslot)
{
	ModifyState *state = rinfo->ri_FdwState;
	Relation	rel = rinfo->ri_RelationDesc;
	EPQState   *epqstate = &state->mtstate->mt_epqstate;
	TupleTableSlot *testslot;
	Datum		datum;
	bool		isnull;

	*epqslot = NULL;
	datum = ExecGetJunkAttribute(planSlot, state->tid_junk, &isnull);
	if (isnull)
		elog(ERROR, "TID of the row to change is null");
	state->newest = *(ItemPointer) DatumGetPointer(datum);

	switch (lock_row(estate, state, oldkey, mode))
	{
		case STRATA_ROW_SAME:
			return true;
		case STRATA_ROW_OWN_COMMAND:
		case STRATA_ROW_GONE:
			return false;
		case STRATA_ROW_CHANGED:
			break;
		case STRATA_ROW_OWN_LATER:
		case STRATA_ROW_NOT_LOCKED:
			elog(ERROR, "row was not locked");
	}

	/* after the scan's lock, only a statement that locks no keys gets here */
	if (state->locked_by_scan)
		refuse_changed();

	testslot = EvalPlanQualSlot(epqstate, rel, rinfo->ri_RangeTableIndex);
	ExecClearTuple(testslot);
	strata_row_locker_newest(state->locker, testslot->tts_values, testslot->tts_isnull,
							 &state->newest);
	ExecStoreVirtualTuple(testslot);
	ExecMaterializeSlot(testslot);
	testslot->tts_tid = state->newest;
	testslot->tts_tableOid = RelationGetRelid(rel);

	/* EvalPlanQual empties the slot */
	if (rinfo->ri_oldTupleSlot != NULL)
		ExecCopySlot(rinfo->ri_oldTupleSlot, testslot);
	*epqslot = EvalPlanQual(epqstate, rel, rinfo->ri_RangeTableIndex, testslot);
	if (TupIsNull(*epqslot))
		return false;
	get_old_key(state, *epqslot, oldkey);
	return true;
}

/* A row that was locked leaves the partition. */
static TupleTableSlot *
move_row(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot, TupleTableSlot *planSlot,
		 Datum *oldkey)
{
	ModifyState *state = rinfo->ri_FdwState;
	TriggerDesc *triggers = rinfo->ri_TrigDesc;

	if (!strata_move_begin(state->mtstate, rinfo, slot))
		return NULL;

	/* a trigger may have changed the row; others only if they lock no keys */
	if (triggers != NULL && triggers->trig_delete_before_row)
	{
		StrataRowState found = lock_row(estate, state, oldkey, AccessExclusiveLock);

		if (found == STRATA_ROW_CHANGED)
			refuse_changed();
		if (found != STRATA_ROW_SAME)
			return NULL;
	}
	else
		lock_key(estate, state, oldkey, AccessExclusiveLock);
	strata_memtable_put_tombstone(state->memtable, oldkey, state->view->manifest, &state->seen,
								  true);
	return strata_move_end(state->mtstate, rinfo, slot, planSlot);
}

/* What core leaves to the wrapper to check of a row that an UPDATE makes. */
static void
check_new_row(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	if (rinfo->ri_WithCheckOptions != NIL)
		ExecWithCheckOptions(WCO_RLS_UPDATE_CHECK, rinfo, slot, estate);
	check_constraints(estate, rinfo, slot);
}

/* Does an UPDATE that makes this row change the key? */
static bool
changes_key(ResultRelInfo *rinfo, TupleTableSlot *slot, const Datum *oldkey, Datum *newkey)
{
	StrataStore *store = ((ModifyState *) rinfo->ri_FdwState)->store;

	slot_getallattrs(slot);
	Assert(slot->tts_tupleDescriptor->natts == store->desc->natts);
	strata_key_extract(&store->key, slot->tts_values, slot->tts_isnull, newkey,
					   RelationGetRelationName(rinfo->ri_RelationDesc), store->desc);
	return !strata_key_equal(&store->key, oldkey, newkey);
}

/* Does the row that an UPDATE makes belong elsewhere?  If not, check it. */
static bool
moves_away(EState *estate, ResultRelInfo *rinfo, TupleTableSlot *slot)
{
	if (rinfo->ri_RelationDesc->rd_rel->relispartition &&
		!ExecPartitionCheck(rinfo, slot, estate, false))
		return true;
	check_new_row(estate, rinfo, slot);
	return false;
}

TupleTableSlot *
strataExecForeignUpdate(EState *estate, ResultRelInfo *rinfo,
						TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	ModifyState *state = rinfo->ri_FdwState;
	Relation	rel = rinfo->ri_RelationDesc;
	TupleTableSlot *epqslot;
	Datum		oldkey[INDEX_MAX_KEYS];
	Datum		newkey[INDEX_MAX_KEYS];
	LOCKMODE	mode = ExclusiveLock;
	bool		moves;

	/* before the row is waited for, as on a heap */
	moves = moves_away(estate, rinfo, slot);

	/* most updates leave the key alone */
	get_old_key(state, planSlot, oldkey);
	if (moves || changes_key(rinfo, slot, oldkey, newkey))
		mode = AccessExclusiveLock;
	if (!lock_target(estate, rinfo, planSlot, mode, oldkey, &epqslot))
		return NULL;
	if (epqslot != NULL)
	{
		slot = ExecGetUpdateNewTuple(rinfo, epqslot, rinfo->ri_oldTupleSlot);
		if (rel->rd_att->constr != NULL && rel->rd_att->constr->has_generated_stored)
			ExecComputeStoredGenerated(rinfo, estate, slot, CMD_UPDATE);
		moves = moves_away(estate, rinfo, slot);
	}
	if (moves)
		return move_row(estate, rinfo, slot, planSlot, oldkey);

	if (!changes_key(rinfo, slot, oldkey, newkey))
		strata_memtable_put_version(state->memtable, slot->tts_values, slot->tts_isnull,
									state->view->manifest, &state->seen);
	else
	{
		/* a changed key is a row deleted and another one inserted */
		lock_key(estate, state, oldkey, AccessExclusiveLock);
		strata_memtable_lock_new_key(state->memtable, newkey);
		strata_memtable_put_rekeyed(state->memtable, oldkey, slot->tts_values, slot->tts_isnull,
									state->view->manifest, &state->seen);
	}
	return slot;
}

TupleTableSlot *
strataExecForeignDelete(EState *estate, ResultRelInfo *rinfo,
						TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	ModifyState *state = rinfo->ri_FdwState;
	TupleTableSlot *epqslot;
	Datum		oldkey[INDEX_MAX_KEYS];

	get_old_key(state, planSlot, oldkey);
	if (!lock_target(estate, rinfo, planSlot, AccessExclusiveLock, oldkey, &epqslot))
		return NULL;
	strata_memtable_put_tombstone(state->memtable, oldkey, state->view->manifest, &state->seen,
								  false);

	/* what RETURNING shows */
	if (AttributeNumberIsValid(state->row_junk))
	{
		bool		isnull;
		Datum		row = ExecGetJunkAttribute(epqslot != NULL ? epqslot : planSlot,
											   state->row_junk, &isnull);
		HeapTupleHeader header;
		HeapTupleData tuple;

		if (isnull)
			elog(ERROR, "row to delete is null");
		header = DatumGetHeapTupleHeader(row);
		tuple.t_len = HeapTupleHeaderGetDatumLength(header);
		tuple.t_data = header;
		tuple.t_tableOid = RelationGetRelid(rinfo->ri_RelationDesc);
		ItemPointerSetInvalid(&tuple.t_self);
		ExecForceStoreHeapTuple(&tuple, slot, false);
		ExecMaterializeSlot(slot);
	}
	return slot;
}

/*
 * Every table with a store is reported insertable, those with a key also
 * updatable.  A table over one layer is reported insertable: our own refusal
 * says more than core's.
 */
int
strataIsForeignRelUpdatable(Relation rel)
{
	int			events = 1 << CMD_INSERT;

	if (OidIsValid(strata_store_storage(RelationGetRelid(rel))))
	{
		StrataStore *store = strata_store_open(RelationGetRelid(rel));

		if (store->key.natts > 0)
			events |= (1 << CMD_UPDATE) | (1 << CMD_DELETE);
		strata_store_close(store);
	}
	return events;
}

/* Core has locked the tables and checked rights and that nobody uses them. */
void
strataExecForeignTruncate(List *rels, DropBehavior behavior, bool restart_seqs)
{
	ListCell   *lc;

	foreach (lc, rels)
		refuse_layer_table(RelationGetRelid((Relation) lfirst(lc)));
	foreach (lc, rels)
		strata_store_truncate(RelationGetRelid((Relation) lfirst(lc)));
}
