/*-------------------------------------------------------------------------
 *
 * aggregate_plan.c
 *	  Aggregates computed inside a foreign scan: which, and at what cost.
 *
 * Of a scan of narrow rows, most time is the executor's: a slot, expressions
 * and several calls a row, between a scan that has the values in arrays and
 * an aggregate function that wants them as arguments.  So GROUP BY of one
 * table gets a path that is both: a foreign scan without a relation whose
 * outer path is any scan of the table, with all it knows of clauses, zone
 * maps and keys.  That path's columns are what is grouped by and the
 * arguments.
 *
 * The node calls the aggregates' own functions for the rows in the order of
 * the scan (aggregate_exec.c), so that results, those of floating point
 * included, are what PostgreSQL's aggregate node makes of the same scan.
 * Whatever that node does beside is left to it: DISTINCT and ORDER BY of
 * arguments, ordered sets, grouping sets, partial aggregates.
 *
 * An argument is computed before it is known whether FILTER lets the row
 * pass; with FILTER only plain columns and constants will do.
 *
 * IDENTIFICATION
 *	  src/fdw/aggregate_plan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/aggregate.h"

#include "catalog/pg_aggregate.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/selfuncs.h"

/* How much of what an aggregate node costs beside its input is left. */
#define NODE_SHARE		0.5

typedef struct CollectContext
{
	List	   *group_exprs;
	List	   *aggregates;		/* Aggref */
} CollectContext;

/* What an argument is without casts that change nothing. */
static Expr *
bare(Expr *expr)
{
	while (IsA(expr, RelabelType))
		expr = ((RelabelType *) expr)->arg;
	return expr;
}

static bool
is_ours(const Aggref *aggref)
{
	ListCell   *lc;

	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggsplit != AGGSPLIT_SIMPLE ||
		aggref->agglevelsup != 0 || aggref->aggdistinct != NIL || aggref->aggorder != NIL ||
		aggref->aggdirectargs != NIL)
		return false;
	foreach (lc, aggref->args)
	{
		Expr	   *arg = bare(lfirst_node(TargetEntry, lc)->expr);

		if (contain_volatile_functions((Node *) arg) || contain_subplans((Node *) arg))
			return false;
		if (aggref->aggfilter != NULL && !IsA(arg, Var) && !IsA(arg, Const))
			return false;
	}
	return !contain_volatile_functions((Node *) aggref->aggfilter) &&
		!contain_subplans((Node *) aggref->aggfilter);
}

/* Collects aggregates; true if there is anything that groups do not know. */
static bool
collect(Node *node, CollectContext *context)
{
	if (node == NULL || list_member(context->group_exprs, node))
		return false;
	if (IsA(node, Aggref))
	{
		if (!is_ours((Aggref *) node))
			return true;
		context->aggregates = list_append_unique(context->aggregates, node);
		return false;
	}
	if (IsA(node, Var) || IsA(node, PlaceHolderVar) || IsA(node, GroupingFunc))
		return true;
	return expression_tree_walker(node, collect, context);
}

/* The number, from 0, of a column of target. */
static int
add_column(PathTarget *target, Expr *expr)
{
	int			i = 0;

	add_new_column_to_pathtarget(target, expr);
	while (!equal(list_nth(target->exprs, i), expr))
		i++;
	return i;
}

/* The columns that the scan is to have, in target, and what refers to them. */
static List *
plan_columns(CollectContext *context, List *group_clause, List *tlist, PathTarget *target)
{
	List	   *columns = NIL;
	List	   *ops = NIL;
	List	   *collations = NIL;
	List	   *arguments = NIL;
	List	   *filters = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	forboth(lc, group_clause, lc2, context->group_exprs)
	{
		columns = lappend_int(columns, add_column(target, lfirst(lc2)));
		ops = lappend_oid(ops, lfirst_node(SortGroupClause, lc)->eqop);
		collations = lappend_oid(collations, exprCollation(lfirst(lc2)));
	}
	foreach (lc, context->aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		List	   *args = NIL;

		foreach (lc2, aggref->args)
		{
			Expr	   *arg = bare(lfirst_node(TargetEntry, lc2)->expr);

			args = lappend_int(args, IsA(arg, Const) ? -1 : add_column(target, arg));
		}
		arguments = lappend(arguments, args);
		filters = lappend_int(filters, aggref->aggfilter ? add_column(target, aggref->aggfilter) :
														   -1);
	}

	/* in the order of StrataAggregatePrivate */
	return list_make5(columns, ops, collations, arguments, filters);
}

/* The cheapest path that is a scan by one process. */
static Path *
cheapest_scan(RelOptInfo *rel)
{
	Path	   *result = NULL;
	ListCell   *lc;

	foreach (lc, rel->pathlist)
	{
		Path	   *path = (Path *) lfirst(lc);
		Path	   *scan = IsA(path, ProjectionPath) ? ((ProjectionPath *) path)->subpath : path;

		if (IsA(scan, ForeignPath) && path->param_info == NULL &&
			(result == NULL || compare_path_costs(path, result, TOTAL_COST) < 0))
			result = path;
	}
	return result;
}

void
strata_aggregate_path(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel,
					  GroupPathExtraData *extra)
{
	Query	   *parse = root->parse;
	List	   *having = castNode(List, extra->havingQual);
	List	   *group_clause = parse->groupClause;
	Path	   *scan;
	Path	   *input;
	CollectContext context = {NIL};
	PathTarget *target = create_empty_pathtarget();
	double		ngroups = 1;
	AggClauseCosts costs = {0};
	List	   *private;
	AggPath    *agg;
	ForeignPath *path;
	Cost		startup_cost;

	if (input_rel->reloptkind != RELOPT_BASEREL || IS_DUMMY_REL(input_rel) ||
		planner_rt_fetch(input_rel->relid, root)->inh ||
		!bms_equal(root->all_baserels, input_rel->relids) || parse->groupingSets != NIL || parse->hasTargetSRFs ||
		(!parse->hasAggs && group_clause == NIL) || !grouping_is_hashable(group_clause))
		return;

	scan = cheapest_scan(input_rel);
	if (scan == NULL)
		return;
	context.group_exprs = get_sortgrouplist_exprs(group_clause, root->processed_tlist);
	if (contain_volatile_functions((Node *) context.group_exprs) ||
		contain_subplans((Node *) context.group_exprs) ||
		collect((Node *) output_rel->reltarget->exprs, &context) ||
		collect((Node *) having, &context))
		return;

	private = plan_columns(&context, group_clause, root->processed_tlist, target);
	set_pathtarget_cost_width(root, target);
	input = (Path *) create_projection_path(root, input_rel, scan, target);

	if (parse->hasAggs)
		get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	if (group_clause != NIL)
		ngroups = estimate_num_groups(root, context.group_exprs, input->rows, NULL, NULL);

	/* core's own node, to ask what it costs; arguments are computed there, not in the scan */
	agg = create_agg_path(root, output_rel, scan, output_rel->reltarget,
						  group_clause != NIL ? AGG_HASHED : AGG_PLAIN, AGGSPLIT_SIMPLE,
						  group_clause, having, &costs, ngroups);
	startup_cost = input->total_cost + NODE_SHARE * (agg->path.startup_cost - input->total_cost);

	path = strata_foreign_aggregate_path(root, output_rel, output_rel->reltarget, agg->path.rows,
										 &agg->path, startup_cost,
										 startup_cost + agg->path.total_cost -
											 agg->path.startup_cost,
										 input,
										 list_make4(private, having, context.group_exprs,
													context.aggregates));
	path->path.parallel_safe = path->path.parallel_safe && input->parallel_safe;
	add_path(output_rel, (Path *) path);
}

ForeignScan *
strata_aggregate_plan(ForeignPath *path, List *tlist, Plan *outer_plan)
{
	List	   *private = linitial(path->fdw_private);
	List	   *having = lsecond(path->fdw_private);
	List	   *columns = NIL;
	ListCell   *lc;

	foreach (lc, list_concat_copy(lthird(path->fdw_private), lfourth(path->fdw_private)))
		columns = lappend(columns, makeTargetEntry(copyObject(lfirst(lc)), list_length(columns) + 1,
												   NULL, false));
	Assert(list_length(private) == STRATA_AGGREGATE_PRIVATE_LENGTH);
	return make_foreignscan(tlist, having, 0, NIL, private, columns, NIL, outer_plan);
}
