/*-------------------------------------------------------------------------
 *
 * count.c
 *	  count(*) of a whole table, without visiting its rows.
 *
 * What the manifest says the row groups hold, minus deletes, minus what
 * pending keys supersede, plus the pending rows that win: all of it is known
 * to a scan before its first row (log/scan.c), under any snapshot.  So a query
 * that asks for nothing but the number of rows gets a node of one row instead
 * of a scan below an aggregate.  The same serves the partitions of a table
 * that are counted one by one (enable_partitionwise_aggregate).
 *
 * count(key column) is the same number, a key being never null, and so is
 * count of a constant.
 *
 * In a recheck (EvalPlanQual) a node that stands for no single relation may be
 * run by its recheck function instead; older minor releases do so even below
 * a subplan.  Therefore that function counts, too.
 *
 * IDENTIFICATION
 *	  src/fdw/count.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/plan.h"
#include "fdw/scan.h"

#include "executor/tuptable.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Is this aggregate the number of rows? */
static bool
is_row_count(const Aggref *aggref, const RelOptInfo *rel, const StrataKey *key)
{
	Node	   *arg;

	if (aggref->aggfilter != NULL || aggref->aggdistinct != NIL || aggref->agglevelsup != 0)
		return false;
	if (aggref->aggfnoid == F_COUNT_)
		return true;
	if (aggref->aggfnoid != F_COUNT_ANY)
		return false;

	arg = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	while (IsA(arg, RelabelType))
		arg = (Node *) ((RelabelType *) arg)->arg;
	if (IsA(arg, Const))
		return !((Const *) arg)->constisnull;
	if (IsA(arg, Var) && ((Var *) arg)->varno == (int) rel->relid)
	{
		for (int i = 0; i < key->natts; i++)
		{
			if (key->attnum[i] == ((Var *) arg)->varattno)
				return true;
		}
	}
	return false;
}

/*
 * Do all aggregates of a target count the rows of rel, and does it use nothing
 * else of it?
 */
static bool
counts_rows(PathTarget *target, const RelOptInfo *rel, const StrataKey *key)
{
	List	   *nodes = pull_var_clause((Node *) target->exprs,
										PVC_INCLUDE_AGGREGATES | PVC_INCLUDE_WINDOWFUNCS |
											PVC_INCLUDE_PLACEHOLDERS);
	ListCell   *lc;

	if (nodes == NIL)
		return false;
	foreach (lc, nodes)
	{
		Node	   *node = lfirst(lc);

		if (!IsA(node, Aggref) || !is_row_count((Aggref *) node, rel, key))
			return false;
	}
	return true;
}

void
strataGetForeignUpperPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
						   RelOptInfo *output_rel, void *extra)
{
	StrataPlanInfo *info = (StrataPlanInfo *) input_rel->fdw_private;
	GroupPathExtraData *group = (GroupPathExtraData *) extra;
	RangeTblEntry *rte;
	Cost		startup_cost;
	Cost		total_cost;

	/* partial counts are wanted of partitions only */
	if (stage == UPPERREL_GROUP_AGG ? input_rel->reloptkind != RELOPT_BASEREL :
									  stage != UPPERREL_PARTIAL_GROUP_AGG ||
										  input_rel->reloptkind != RELOPT_OTHER_MEMBER_REL)
		return;

	/* the whole of one table: no children, no clauses, no groups */
	rte = planner_rt_fetch(input_rel->relid, root);
	if (info == NULL || rte->inh || info->layer != STRATA_LAYER_ALL ||
		IS_DUMMY_REL(input_rel) ||
		input_rel->baserestrictinfo != NIL || root->hasPseudoConstantQuals ||
		root->parse->groupClause != NIL || root->parse->groupingSets != NIL ||
		root->parse->hasTargetSRFs || group->havingQual != NULL)
		return;
	if (input_rel->reloptkind == RELOPT_BASEREL &&
		!bms_equal(root->all_baserels, input_rel->relids))
		return;
	if (!counts_rows(output_rel->reltarget, input_rel, &info->key))
		return;

	strata_cost_count(info, &startup_cost, &total_cost);
	startup_cost += output_rel->reltarget->cost.startup;
	total_cost += output_rel->reltarget->cost.startup + output_rel->reltarget->cost.per_tuple;
	add_path(output_rel, (Path *)
			 strata_foreign_upper_path(root, output_rel, output_rel->reltarget, 1, startup_cost,
									   total_cost, list_make1(makeInteger(rte->relid))));
}

/* The plan: its scan tuple has a column for each different aggregate. */
ForeignScan *
strata_count_plan(ForeignPath *path, List *tlist)
{
	List	   *aggregates = pull_var_clause((Node *) tlist, PVC_INCLUDE_AGGREGATES |
												PVC_INCLUDE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS);
	List	   *private = NIL;

	for (int i = 0; i < STRATA_SCAN_PRIVATE_LENGTH; i++)
	{
		Node	   *value = NULL;

		/* lists stay empty */
		if (i == STRATA_SCAN_LAYER)
			value = (Node *) makeInteger(STRATA_LAYER_ALL);
		else if (i == STRATA_SCAN_LOOKUP_ARRAY)
			value = (Node *) makeInteger(-1);
		else if (i == STRATA_SCAN_OPERATION)
			value = (Node *) makeInteger(CMD_SELECT);
		else if (i == STRATA_SCAN_RANGE_DIRECTION)
			value = (Node *) makeInteger(0);
		else if (i == STRATA_SCAN_COUNT_OF)
			value = (Node *) linitial(path->fdw_private);
		private = lappend(private, value);
	}

	return make_foreignscan(tlist, NIL, 0, NIL, private,
							add_to_flat_tlist(NIL, aggregates), NIL, NULL);
}

/* The next row: the count, then none. */
void
strata_count_next(StrataScanState *state, TupleTableSlot *slot)
{
	uint64		count;

	ExecClearTuple(slot);
	if (state->scan != NULL)
		return;

	state->scan = strata_scan_begin(state->view, NULL, NULL, NULL);
	count = strata_scan_count(state->scan);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = Int64GetDatum((int64) count);
		slot->tts_isnull[i] = false;
	}
	ExecStoreVirtualTuple(slot);
}

/*
 * RecheckForeignScan.  A plan of one relation's rows needs no more than its
 * fdw_recheck_quals; a count makes its row.
 */
bool
strataRecheckForeignScan(ForeignScanState *node, TupleTableSlot *slot)
{
	if (((ForeignScan *) node->ss.ps.plan)->scan.scanrelid > 0)
		return true;
	return !TupIsNull(strataIterateForeignScan(node));
}
