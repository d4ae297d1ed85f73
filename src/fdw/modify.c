/*-------------------------------------------------------------------------
 *
 * modify.c
 *	  INSERT, COPY FROM and TRUNCATE of strata foreign tables.
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
 * The storage relation is locked RowExclusive, after the foreign table, to the
 * end of the transaction.
 *
 * IDENTIFICATION
 *	  src/fdw/modify.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/fdw.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "manifest/lifecycle.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A foreign table being inserted into; NULL under EXPLAIN. */
typedef struct ModifyState
{
	StrataStore *store;
	Relation	storage;
	StrataMemtable *memtable;
	StrataOnDuplicate on_duplicate;

	/* what to check on each row */
	bool		constraints;
	bool		partition;		/* the row may violate the partition's bounds */
	bool		row_security;	/* a partitioned parent has policies */
	CmdType		operation;		/* the statement that the row comes from */
} ModifyState;

static void refuse_layer_table(Oid relid);
static void begin_insert(ModifyTableState *mtstate, ResultRelInfo *rinfo);
static void end_insert(EState *estate, ResultRelInfo *rinfo);

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

List *
strataPlanForeignModify(PlannerInfo *root, ModifyTable *plan,
						Index resultRelation, int subplan_index)
{
	RangeTblEntry *rte = planner_rt_fetch(resultRelation, root);

	refuse_layer_table(rte->relid);
	switch (plan->operation)
	{
		case CMD_INSERT:
			break;
		case CMD_UPDATE:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot update foreign table \"%s\"", get_rel_name(rte->relid)),
					 errdetail("UPDATE of strata tables is not supported yet."),
					 errhint("Insert the row again: with on_duplicate 'replace' the newest version of a key wins.")));
			break;
		case CMD_DELETE:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot delete from foreign table \"%s\"", get_rel_name(rte->relid)),
					 errdetail("DELETE from strata tables is not supported yet.")));
			break;
		default:
			elog(ERROR, "unexpected operation: %d", (int) plan->operation);
			break;
	}
	return NIL;
}

void
strataBeginForeignModify(ModifyTableState *mtstate, ResultRelInfo *rinfo,
						 List *fdw_private, int subplan_index, int eflags)
{
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	begin_insert(mtstate, rinfo);
}

void
strataEndForeignModify(EState *estate, ResultRelInfo *rinfo)
{
	end_insert(estate, rinfo);
}

/*
 * COPY, or a row is routed here from a partitioned parent (also by an UPDATE
 * that moves it).  Called when the first row arrives, so never for EXPLAIN.
 */
void
strataBeginForeignInsert(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	refuse_layer_table(RelationGetRelid(rinfo->ri_RelationDesc));
	begin_insert(mtstate, rinfo);
}

void
strataEndForeignInsert(EState *estate, ResultRelInfo *rinfo)
{
	end_insert(estate, rinfo);
}

static void
begin_insert(ModifyTableState *mtstate, ResultRelInfo *rinfo)
{
	EState	   *estate = mtstate->ps.state;
	Relation	rel = rinfo->ri_RelationDesc;
	ModifyTable *plan = (ModifyTable *) mtstate->ps.plan;
	MemoryContext oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
	ModifyState *state = palloc0(sizeof(ModifyState));
	CommandId	cid;

	PreventCommandIfReadOnly("INSERT");
	PreventCommandIfParallelMode("INSERT");

	state->store = strata_store_open(RelationGetRelid(rel));
	state->storage = strata_storage_open(state->store, RowExclusiveLock);
	state->on_duplicate = state->store->options->on_duplicate;
	if (plan != NULL && plan->onConflictAction == ONCONFLICT_NOTHING)
		state->on_duplicate = STRATA_ON_DUPLICATE_IGNORE;

	state->operation = mtstate->operation;
	state->constraints = rel->rd_att->constr != NULL;
	state->row_security = rinfo->ri_WithCheckOptions != NIL;

	/*
	 * Routing brought the row to the right partition, unless a trigger changed
	 * it since.  COPY, which has no plan, checks that itself.
	 */
	state->partition = plan != NULL && rel->rd_rel->relispartition &&
		(rinfo->ri_RootResultRelInfo == NULL ||
		 (rinfo->ri_TrigDesc != NULL && rinfo->ri_TrigDesc->trig_insert_before_row));

	/* COPY leaves es_output_cid alone */
	cid = plan != NULL ? estate->es_output_cid : GetCurrentCommandId(true);
	state->memtable = strata_memtable_begin(state->store, state->storage, cid);

	rinfo->ri_FdwState = state;
	MemoryContextSwitchTo(oldcxt);
}

static void
end_insert(EState *estate, ResultRelInfo *rinfo)
{
	ModifyState *state = rinfo->ri_FdwState;
	MemoryContext oldcxt;

	if (state == NULL)
		return;
	rinfo->ri_FdwState = NULL;
	strata_memtable_end(state->memtable);
	table_close(state->storage, NoLock);

	/* a store is closed in the context it was opened in */
	oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
	strata_store_close(state->store);
	MemoryContextSwitchTo(oldcxt);
}

TupleTableSlot *
strataExecForeignInsert(EState *estate, ResultRelInfo *rinfo,
						TupleTableSlot *slot, TupleTableSlot *planSlot)
{
	ModifyState *state = rinfo->ri_FdwState;

	if (state->row_security)
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
	if (state->constraints)
		ExecConstraints(rinfo, slot, estate);
	if (state->partition)
		ExecPartitionCheck(rinfo, slot, estate, true);

	slot_getallattrs(slot);
	Assert(slot->tts_tupleDescriptor->natts == state->store->desc->natts);
	if (!strata_memtable_put(state->memtable, state->on_duplicate,
							 slot->tts_values, slot->tts_isnull))
		return NULL;
	return slot;
}

/*
 * Every strata table is reported insertable: for a table over one layer our
 * own refusal says more than core's.
 */
int
strataIsForeignRelUpdatable(Relation rel)
{
	return 1 << CMD_INSERT;
}

/* Core has locked the tables and checked rights and that nobody uses them. */
void
strataExecForeignTruncate(List *rels, DropBehavior behavior, bool restart_seqs)
{
	ListCell   *lc;

	foreach(lc, rels)
		refuse_layer_table(RelationGetRelid((Relation) lfirst(lc)));
	foreach(lc, rels)
		strata_store_truncate(RelationGetRelid((Relation) lfirst(lc)));
}
