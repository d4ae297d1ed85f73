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
 * count of a constant.  (Not count of a column that is NOT NULL now: a snapshot
 * may be older than that.)  Beside a count, min and max of the key's first
 * column are the ends of its order (log/ordered.c), and HAVING is for the
 * executor to judge.  A table over one layer is counted likewise.
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
#include "fdw/aggregate.h"
#include "fdw/plan.h"
#include "fdw/scan.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "catalog/pg_aggregate.h"
#include "executor/tuptable.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

typedef enum CountKind
{
	COUNT_ROWS,
	COUNT_LEAST,				/* of the key's first column */
	COUNT_GREATEST
} CountKind;

/* The column of ours that node is, or 0. */
static AttrNumber
own_column(Node *node, Index relid)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return IsA(node, Var) && ((Var *) node)->varno == (int) relid ? ((Var *) node)->varattno : 0;
}

/* Does an aggregate return what comes first by an operator of the key's order? */
static bool
is_end_of_key(const Aggref *aggref, const StrataKey *key, CountKind *kind)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Oid			op;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	op = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop;
	ReleaseSysCache(tuple);
	if (!OidIsValid(op) ||
		(OidIsValid(key->collation[0]) && aggref->inputcollid != key->collation[0]))
		return false;

	switch (get_op_opfamily_strategy(op, key->btree_opfamily[0]))
	{
		case BTLessStrategyNumber:
			*kind = COUNT_LEAST;
			return true;
		case BTGreaterStrategyNumber:
			*kind = COUNT_GREATEST;
			return true;
	}
	return false;
}

/* Is this aggregate known without the rows, and what is it? */
static bool
classify(const Aggref *aggref, Index relid, const StrataKey *key, CountKind *kind)
{
	Node	   *arg;
	AttrNumber	attnum;

	*kind = COUNT_ROWS;
	if (aggref->aggfilter != NULL || aggref->aggdistinct != NIL || aggref->agglevelsup != 0)
		return false;
	if (aggref->aggfnoid == F_COUNT_)
		return true;
	if (list_length(aggref->args) != 1)
		return false;

	arg = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	attnum = own_column(arg, relid);
	if (aggref->aggfnoid != F_COUNT_ANY)
		return attnum != 0 && key->natts > 0 && attnum == key->attnum[0] &&
			aggref->aggorder == NIL && is_end_of_key(aggref, key, kind);

	while (IsA(arg, RelabelType))
		arg = (Node *) ((RelabelType *) arg)->arg;
	if (IsA(arg, Const))
		return !((Const *) arg)->constisnull;
	for (int i = 0; i < key->natts; i++)
	{
		if (attnum != 0 && key->attnum[i] == attnum)
			return true;
	}
	return false;
}

/* The different aggregates, and whatever else is no expression of them. */
static List *
find_aggregates(Node *exprs)
{
	return pull_var_clause(exprs, PVC_INCLUDE_AGGREGATES | PVC_INCLUDE_WINDOWFUNCS |
									  PVC_INCLUDE_PLACEHOLDERS);
}

/*
 * Is all that exprs use of rel its number of rows and ends of its key?  Counts
 * the latter.
 */
static bool
counts_rows(List *exprs, const RelOptInfo *rel, const StrataPlanInfo *info, int *nends)
{
	List	   *nodes = find_aggregates((Node *) exprs);
	bool		rows = false;
	ListCell   *lc;

	*nends = 0;
	foreach (lc, nodes)
	{
		CountKind	kind;

		if (!IsA(lfirst(lc), Aggref) ||
			!classify(lfirst_node(Aggref, lc), rel->relid, &info->key, &kind))
			return false;
		if (kind == COUNT_ROWS)
			rows = true;
		else
			(*nends)++;
	}
	/* ends alone are better left to the planner's own way with them */
	return rows && (*nends == 0 || info->has_index);
}

static void
add_count_path(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
			   RelOptInfo *output_rel, GroupPathExtraData *group)
{
	StrataPlanInfo *info = (StrataPlanInfo *) input_rel->fdw_private;
	RangeTblEntry *rte;
	List	   *having = NIL;
	int			nends;
	Cost		startup_cost;
	Cost		total_cost;
	double		rows = 1;

	/* partial counts are wanted of partitions only */
	if (stage == UPPERREL_GROUP_AGG ? input_rel->reloptkind != RELOPT_BASEREL :
									  stage != UPPERREL_PARTIAL_GROUP_AGG ||
										  input_rel->reloptkind != RELOPT_OTHER_MEMBER_REL)
		return;

	/* the whole of one table: no children, no clauses, no groups */
	rte = planner_rt_fetch(input_rel->relid, root);
	if (info == NULL || rte->inh || IS_DUMMY_REL(input_rel) || input_rel->baserestrictinfo != NIL ||
		root->hasPseudoConstantQuals || root->parse->groupClause != NIL ||
		root->parse->groupingSets != NIL || root->parse->hasTargetSRFs)
		return;
	if (input_rel->reloptkind == RELOPT_BASEREL &&
		!bms_equal(root->all_baserels, input_rel->relids))
		return;
	/* of partial counts, the sum is judged */
	if (stage == UPPERREL_GROUP_AGG)
		having = castNode(List, group->havingQual);
	if (!counts_rows(list_concat_copy(output_rel->reltarget->exprs, having), input_rel, info,
					 &nends))
		return;

	strata_cost_count(info, nends, &startup_cost, &total_cost);
	if (having != NIL)
	{
		QualCost	qual;

		cost_qual_eval(&qual, having, root);
		startup_cost += qual.startup;
		total_cost += qual.startup + qual.per_tuple;
		rows = clamp_row_est(clauselist_selectivity(root, having, 0, JOIN_INNER, NULL));
	}
	startup_cost += output_rel->reltarget->cost.startup;
	total_cost += output_rel->reltarget->cost.startup + output_rel->reltarget->cost.per_tuple;
	add_path(output_rel, (Path *)
			 strata_foreign_upper_path(root, output_rel, output_rel->reltarget, rows, startup_cost,
									   total_cost,
									   list_make3(makeInteger(input_rel->relid),
												  makeInteger(rte->relid), having)));
}

void
strataGetForeignUpperPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
						   RelOptInfo *output_rel, void *extra)
{
	add_count_path(root, stage, input_rel, output_rel, extra);
	if (stage == UPPERREL_GROUP_AGG)
		strata_aggregate_path(root, input_rel, output_rel, extra);
}

/* The plan: its scan tuple has a column for each different aggregate. */
ForeignScan *
strata_count_plan(ForeignPath *path, const StrataPlanInfo *info, List *tlist)
{
	Index		relid = intVal(linitial(path->fdw_private));
	List	   *having = (List *) lthird(path->fdw_private);
	List	   *private = NIL;
	List	   *columns;
	List	   *kinds = NIL;
	ListCell   *lc;

	columns = add_to_flat_tlist(NIL, find_aggregates((Node *) tlist));
	columns = add_to_flat_tlist(columns, find_aggregates((Node *) having));
	foreach (lc, columns)
	{
		CountKind	kind;

		if (!classify((Aggref *) lfirst_node(TargetEntry, lc)->expr, relid, &info->key, &kind))
			elog(ERROR, "an aggregate of a count is another one now");
		kinds = lappend_int(kinds, kind);
	}

	for (int i = 0; i < STRATA_SCAN_PRIVATE_LENGTH; i++)
	{
		Node	   *value = NULL;

		/* other lists stay empty */
		if (i == STRATA_SCAN_LAYER)
			value = (Node *) makeInteger(info->layer);
		else if (i == STRATA_SCAN_OPERATION)
			value = (Node *) makeInteger(CMD_SELECT);
		else if (i == STRATA_SCAN_RANGE_DIRECTION)
			value = (Node *) makeInteger(0);
		else if (i == STRATA_SCAN_COUNT_OF)
			value = (Node *) lsecond(path->fdw_private);
		else if (i == STRATA_SCAN_COUNT_KINDS)
			value = (Node *) kinds;
		private = lappend(private, value);
	}

	return make_foreignscan(tlist, having, 0, NIL, private, columns, NIL, NULL);
}

/* The least or greatest value of the key's first column; false if there is no row. */
static bool
find_end(StrataScanState *state, bool greatest, Datum *value)
{
	TupleDesc	desc = state->store->desc;
	int			att = state->store->key.attnum[0] - 1;
	MemoryContext oldcxt = MemoryContextSwitchTo(state->restart_mcxt);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	StrataOrderedScan *ordered;
	ItemPointerData tid;
	bool		found;

	ordered = strata_ordered_begin(state->view, bms_make_singleton(att + 1), NULL, 0, greatest);
	found = strata_ordered_next(ordered, values, isnull, &tid);
	if (found)
	{
		Form_pg_attribute type = TupleDescAttr(desc, att);

		*value = datumCopy(values[att], type->attbyval, type->attlen);
	}
	strata_ordered_end(ordered);
	MemoryContextSwitchTo(oldcxt);
	return found;
}

/* The next row: what was counted, then none. */
void
strata_count_next(StrataScanState *state, TupleTableSlot *slot)
{
	uint64		count;
	ListCell   *lc;
	int			i = 0;

	ExecClearTuple(slot);
	if (state->scan != NULL)
		return;

	state->scan = state->layer == STRATA_LAYER_ALL ?
		strata_scan_begin(state->view, NULL, NULL, NULL, NULL, 0) :
		strata_scan_begin_layer(state->view, NULL, state->layer);
	count = strata_scan_count(state->scan);
	foreach (lc, state->count_kinds)
	{
		CountKind	kind = lfirst_int(lc);

		slot->tts_isnull[i] = false;
		if (kind == COUNT_ROWS)
			slot->tts_values[i] = Int64GetDatum((int64) count);
		else
			slot->tts_isnull[i] = !find_end(state, kind == COUNT_GREATEST, &slot->tts_values[i]);
		i++;
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
