/*-------------------------------------------------------------------------
 *
 * key_paths.c
 *	  Paths that find rows by the key: lookups, and scans in key order.
 *
 * Clauses that fix every key column make a lookup, those that say something of
 * leading columns bound a scan in key order.  Either may compare columns with
 * arrays: a lookup asks for the keys of all combinations of elements, a scan
 * goes through a range for each, in the order of the key.
 *
 * IDENTIFICATION
 *	  src/fdw/key_paths.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/plan.h"

#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

/*
 * So many ranges are quick to go through, or keys to look up, while what wider
 * ranges hold is only estimated, and more than was asked for.
 */
#define FEW_RANGES	16

/* How many elements an array has, at least one. */
static double
array_length(PlannerInfo *root, Expr *array)
{
	return Max(strata_array_length(root, (Node *) array), 1);
}

/* Keys that a matched lookup asks for. */
double
strata_lookup_keys(PlannerInfo *root, const StrataKey *key,
				   const StrataKeyMatches *matches)
{
	double		keys = 1;

	for (int i = 0; i < key->natts; i++)
	{
		if (matches->column[i].array)
			keys *= array_length(root, matches->column[i].value);
	}
	return keys;
}

/*
 * What clauses with so many arrays at most say of the leading columns, and of
 * which keys; false if nothing.
 */
static bool
match_ranges(PlannerInfo *root, RelOptInfo *rel, List *more_clauses, int max_arrays,
			 StrataKeyBounds *bounds, StrataKeyRanges *ranges)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	ListCell   *lc;

	ranges->share = ranges->count = 1;
	ranges->exact = NIL;
	if (!strata_match_bounds(root, rel, &info->key, rel->baserestrictinfo, more_clauses,
							 max_arrays, bounds))
		return false;
	ranges->share = clauselist_selectivity(root, bounds->rinfos, rel->relid, JOIN_INNER, NULL);
	foreach (lc, bounds->arrays)
	{
		ranges->count *= array_length(root, list_nth(bounds->values, lfirst_int(lc)));
		ranges->exact = lappend(ranges->exact, list_nth(bounds->rinfos, lfirst_int(lc)));
	}
	return true;
}

/* A lookup with these outer relations, if they fix the key. */
static void
add_lookup_path(PlannerInfo *root, RelOptInfo *rel, Relids outer)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	ParamPathInfo *param_info = get_baserel_parampathinfo(root, rel, outer);
	List	   *more_clauses = param_info ? param_info->ppi_clauses : NIL;
	StrataKeyMatches matches;
	StrataKeyBounds bounds;
	StrataKeyRanges wider;
	bool		within = false;
	int			narrays = 0;
	double		keys;
	double		rows;
	Cost		startup_cost;
	Cost		total_cost;

	if (!strata_match_key(root, rel, &info->key, rel->baserestrictinfo, more_clauses, &matches))
		return;

	keys = strata_lookup_keys(root, &info->key, &matches);
	if (param_info != NULL)
	{
		/* paths with the same outer relations must agree on it */
		param_info->ppi_rows = clamp_row_est(Min(param_info->ppi_rows, keys));
		rows = param_info->ppi_rows;
	}
	else
		rows = rel->rows;

	for (int i = 0; i < info->key.natts; i++)
		narrays += matches.column[i].array;
	if (narrays > 0)
		within = match_ranges(root, rel, more_clauses, narrays - 1, &bounds, &wider);

	strata_cost_lookup(root, rel, param_info, keys, within ? &wider : NULL, rows, &startup_cost,
					   &total_cost);
	add_path(rel, (Path *)
			 strata_foreignscan_path(root, rel, rows, !enable_indexscan, startup_cost, total_cost,
									 NIL, outer, STRATA_LOOKUP_PATH));
}

/* The order of the key as pathkeys; rows have no null in it. */
static List *
key_pathkeys(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, bool backward,
			 bool nulls_first)
{
	IndexOptInfo *index = makeNode(IndexOptInfo);
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);

	index->rel = rel;
	index->ncolumns = index->nkeycolumns = key->natts;
	index->opfamily = palloc(key->natts * sizeof(Oid));
	index->indexkeys = palloc(key->natts * sizeof(int));
	index->sortopfamily = palloc(key->natts * sizeof(Oid));
	index->opcintype = palloc(key->natts * sizeof(Oid));
	index->indexcollations = palloc(key->natts * sizeof(Oid));
	index->reverse_sort = palloc(key->natts * sizeof(bool));
	index->nulls_first = palloc(key->natts * sizeof(bool));
	for (int i = 0; i < key->natts; i++)
	{
		Oid			type;
		int32		typmod;
		Oid			collation;
		Var		   *var;

		get_atttypetypmodcoll(rte->relid, key->attnum[i], &type, &typmod, &collation);
		var = makeVar(rel->relid, key->attnum[i], type, typmod, collation, 0);
		index->indextlist = lappend(index->indextlist,
									makeTargetEntry((Expr *) var, i + 1, NULL, false));
		index->indexkeys[i] = key->attnum[i];
		index->opfamily[i] = index->sortopfamily[i] = key->btree_opfamily[i];
		index->opcintype[i] = get_opclass_input_type(key->btree_opclass[i]);
		index->indexcollations[i] = key->collation[i];
		index->reverse_sort[i] = backward;
		index->nulls_first[i] = nulls_first;
	}
	return truncate_useless_pathkeys(root, rel,
									 build_index_pathkeys(root, index, ForwardScanDirection));
}

/*
 * Scans in key order with these outer relations and bounds: for each order that
 * is of use, and without one unless lookups find the same rows.  Lookups of
 * several keys are not rivalled for the order alone: they read no other pending
 * keys, and lock none, however many they are.
 */
static void
add_bounded_paths(PlannerInfo *root, RelOptInfo *rel, Relids outer, bool joined,
				  const StrataKeyBounds *bounds, const StrataKeyRanges *ranges,
				  const StrataKeyRanges *wider, bool is_lookup)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	ParamPathInfo *param_info = get_baserel_parampathinfo(root, rel, outer);
	int			narrays = list_length(bounds->arrays);
	double		rows = param_info ? param_info->ppi_rows : rel->rows;
	Cost		startup_cost;
	Cost		total_cost;
	bool		added = false;

	if (joined && bounds->nequal == 0)
		return;
	if (is_lookup && (joined || narrays > 0))
		return;
	strata_cost_range(root, rel, param_info, ranges, wider, rows, &startup_cost, &total_cost);

	if (!joined && has_useful_pathkeys(root, rel))
	{
		for (int variant = 0; variant < 4; variant++)
		{
			bool		backward = variant >= 2;
			List	   *pathkeys = key_pathkeys(root, rel, &info->key, backward,
												variant == 1 || variant == 2);

			if (pathkeys == NIL)
				continue;
			add_path(rel, (Path *)
					 strata_foreignscan_path(root, rel, rows, !enable_indexscan, startup_cost,
											 total_cost, pathkeys, outer,
											 STRATA_RANGE_PATH(backward ? -1 : 1, narrays)));
			added = true;
		}
	}
	if (!added && bounds->columns != NIL && !is_lookup)
		add_path(rel, (Path *)
				 strata_foreignscan_path(root, rel, rows, !enable_indexscan, startup_cost,
										 total_cost, NIL, outer, STRATA_RANGE_PATH(1, narrays)));
}

/*
 * Scans in key order with these outer relations.  A range for each element of
 * an array, below each of the arrays before it, may be more than there are rows
 * in the wider ranges without that array: where it is many, those are tried, too.
 */
static void
add_range_paths(PlannerInfo *root, RelOptInfo *rel, Relids outer, bool joined)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	ParamPathInfo *param_info;
	List	   *more_clauses;
	StrataKeyMatches matches;
	StrataKeyBounds bounds;
	StrataKeyRanges ranges;
	bool		is_lookup;
	int			narrays;

	if (info->layer != STRATA_LAYER_ALL || !info->has_index || info->base_rows <= 0)
		return;

	param_info = get_baserel_parampathinfo(root, rel, outer);
	more_clauses = param_info ? param_info->ppi_clauses : NIL;
	is_lookup = strata_match_key(root, rel, &info->key, rel->baserestrictinfo, more_clauses,
								 &matches);
	match_ranges(root, rel, more_clauses, info->key.natts, &bounds, &ranges);
	for (narrays = list_length(bounds.arrays); narrays >= 0; narrays--)
	{
		StrataKeyBounds fewer;
		StrataKeyRanges wider;
		bool		within = narrays > 0 &&
			match_ranges(root, rel, more_clauses, narrays - 1, &fewer, &wider);

		add_bounded_paths(root, rel, outer, joined, &bounds, &ranges, within ? &wider : NULL,
						  is_lookup && bounds.nequal == info->key.natts);
		if (ranges.count <= FEW_RANGES)
			break;
		bounds = fewer;
		ranges = wider;
	}
}

/* All of them, alone and with outer relations. */
void
strata_add_key_paths(PlannerInfo *root, RelOptInfo *rel)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	ListCell   *lc;

	add_lookup_path(root, rel, rel->lateral_relids);
	add_range_paths(root, rel, rel->lateral_relids, false);
	foreach (lc, strata_match_outer_rels(root, rel, &info->key))
	{
		Relids		outer = bms_union((Relids) lfirst(lc), rel->lateral_relids);

		add_lookup_path(root, rel, outer);
		add_range_paths(root, rel, outer, true);
	}
}
