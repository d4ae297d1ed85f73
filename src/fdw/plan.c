/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Estimates, paths and plans of scans.
 *
 * A scan in key order follows the key index, from one bound of the key to
 * another where clauses say any, through one such range after the other where
 * they say = ANY, and merges the pending rows in.  Otherwise, a scan reads
 * everything (projected to the columns needed, passing over row groups that
 * zone maps exclude) or looks up keys.  Keys are looked up when clauses fix
 * every key column: by values known when the scan starts, by the elements of
 * arrays, or by the rows of outer relations.  enable_seqscan discourages the
 * scan that reads everything, enable_indexscan the other two.
 *
 * Sizes come from the shard pages and the manifest, never from walking the
 * log.  pg_class only says how many live rows there were per stored byte when
 * the table was last analyzed: how many of the pending rows are new versions
 * of a key is known nowhere else.
 *
 * Row groups, pending entries and generations are never planned: what to read
 * is resolved under the query's snapshot when the scan starts.
 *
 * IDENTIFICATION
 *	  src/fdw/plan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "compat.h"
#include "fdw/aggregate.h"
#include "fdw/plan.h"
#include "fdw/scan.h"

#include "access/htup_details.h"
#include "catalog/pg_statistic.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * How much there is, by the manifest this backend would read under its
 * present snapshot and the shard pages.
 */
static void
get_store_size(StrataPlanInfo *info, StrataStore *store)
{
	Relation	storage = strata_storage_open(store, AccessShareLock);
	uint64		rows;
	uint64		bytes;
	uint32		active[STRATA_MAX_SHARDS];
	StrataManifestTotals totals;

	strata_manifest_totals(store, storage, GetActiveSnapshot(), &totals);
	info->base_rows = totals.live_rows;
	info->base_raw = totals.raw_bytes;
	info->base_stored = totals.stored_bytes;
	info->ngroups = totals.groups;

	if (info->layer != STRATA_LAYER_BASE)
	{
		strata_log_totals(storage, store->nshards, &rows, &bytes, active);
		info->pending_rows = rows > totals.merged_rows ? rows - totals.merged_rows : 0;
		info->pending_bytes = bytes > totals.merged_bytes ? bytes - totals.merged_bytes : 0;
	}

	if (info->key.natts > 0 && info->ngroups > 0)
	{
		bool		present;

		info->has_index = OidIsValid(strata_keyindex_find(storage, &present));
	}
	table_close(storage, NoLock);

	if (info->layer == STRATA_LAYER_WAL)
		info->base_rows = info->base_raw = info->base_stored = info->ngroups = 0;
}

/*
 * Live rows.  At most what is stored, at least what is merged; between the
 * two, what the last ANALYZE found per stored page.
 */
static double
estimate_live_rows(const StrataPlanInfo *info, double pages, double analyzed_rows,
				   double analyzed_pages)
{
	double		most = info->base_rows + info->pending_rows;
	double		rows;

	if (info->layer != STRATA_LAYER_ALL || analyzed_rows < 0 || analyzed_pages < 1 ||
		info->key.natts == 0)
		return most;

	rows = analyzed_rows / analyzed_pages * pages;
	return Min(Max(rows, info->base_rows), most);
}

/* Average width of a column, by statistics or type. */
static double
column_width(Oid relid, Form_pg_attribute att)
{
	double		width = get_attavgwidth(relid, att->attnum);

	if (width <= 0)
		width = get_typavgwidth(att->atttypid, att->atttypmod);
	return width;
}

/*
 * Attribute numbers (offset by FirstLowInvalidHeapAttributeNumber) that a
 * scan must produce: those the query uses above it and in its clauses.
 */
static Bitmapset *
needed_attrs(RelOptInfo *rel, List *clauses)
{
	Bitmapset  *attrs = NULL;
	ListCell   *lc;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attrs);
	foreach (lc, clauses)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &attrs);

	return attrs;
}

static bool
is_needed(Bitmapset *attrs, AttrNumber attnum)
{
	return bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber, attrs) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, attrs);
}

static void
set_widths(StrataPlanInfo *info, RelOptInfo *rel, Oid relid)
{
	Relation	table = table_open(relid, NoLock);
	TupleDesc	desc = RelationGetDescr(table);
	Bitmapset  *attrs = needed_attrs(rel, rel->baserestrictinfo);

	info->keys_only = true;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		double		width;
		bool		is_key = false;

		if (att->attisdropped)
			continue;
		width = column_width(relid, att);
		info->all_width += width;
		for (int k = 0; k < info->key.natts; k++)
		{
			if (info->key.attnum[k] == att->attnum)
			{
				info->key_width += width;
				is_key = true;
			}
		}
		if (is_needed(attrs, att->attnum))
		{
			info->needed_width += width;
			info->needed_columns++;
			if (!is_key)
				info->keys_only = false;
		}
	}

	bms_free(attrs);
	table_close(table, NoLock);
}

/*
 * Tell the planner that the key is unique, as an index would: selectivities,
 * join sizes and inner_unique then come out right before the first ANALYZE.
 * Marked hypothetical: it belongs to no access method and is never scanned.
 */
static void
add_key_uniqueness(RelOptInfo *rel, const StrataKey *key)
{
	IndexOptInfo *index = makeNode(IndexOptInfo);

	index->rel = rel;
	index->tree_height = -1;
	index->tuples = rel->tuples;
	index->ncolumns = index->nkeycolumns = key->natts;
	index->indexkeys = palloc(key->natts * sizeof(int));
	index->indexcollations = palloc(key->natts * sizeof(Oid));
	index->opfamily = palloc(key->natts * sizeof(Oid));
	index->opcintype = palloc(key->natts * sizeof(Oid));
	index->canreturn = palloc0(key->natts * sizeof(bool));
	for (int i = 0; i < key->natts; i++)
	{
		index->indexkeys[i] = key->attnum[i];
		index->indexcollations[i] = key->collation[i];
		index->opfamily[i] = key->btree_opfamily[i];
		index->opcintype[i] = get_opclass_input_type(key->btree_opclass[i]);
	}
	index->unique = true;
	index->immediate = true;
	index->hypothetical = true;

	rel->indexlist = lappend(rel->indexlist, index);
}

void
strataGetForeignRelSize(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	StrataPlanInfo *info = palloc0(sizeof(StrataPlanInfo));
	StrataOptions *options = strata_options_get(foreigntableid);
	StrataStore *store;
	StrataKeyMatches matches;
	double		pages;

	info->layer = options->layer;
	if (info->layer == STRATA_LAYER_ALL)
	{
		store = strata_store_open(foreigntableid);
		info->key = store->key;
	}
	else
	{
		Oid			layer_store = strata_layer_store(foreigntableid, options);
		Oid			role = strata_plan_role(root, baserel);

		/* EXPLAIN tells how many rows there are, to no one else. */
		strata_layer_check_rights(layer_store, OidIsValid(role) ? role : GetUserId());
		store = strata_store_open(layer_store);
	}
	get_store_size(info, store);
	strata_store_close(store);

	strata_unify_whole_rows(root, baserel, foreigntableid);
	set_widths(info, baserel, foreigntableid);
	baserel->fdw_private = info;

	/* on entry, pages and tuples are what pg_class holds */
	pages = ceil((info->base_stored + info->pending_bytes) / BLCKSZ);
	baserel->tuples = estimate_live_rows(info, pages, baserel->tuples, baserel->pages);
	baserel->pages = (BlockNumber) Min(pages, (double) MaxBlockNumber);

	if (info->key.natts > 0)
		add_key_uniqueness(baserel, &info->key);
	set_baserel_size_estimates(root, baserel);

	/* columns of a composite key are anything but independent */
	if (strata_match_key(root, baserel, &info->key, baserel->baserestrictinfo, NIL, &matches))
		baserel->rows = clamp_row_est(Min(baserel->rows, strata_lookup_keys(root, &info->key, &matches)));
}

/*
 * The correlation of a column with the order of base rows, squared.  ANALYZE
 * sees pending rows before them: a share p of rows in no order takes the
 * correlation of the others times (1 - p)^2.
 */
static double
column_correlation(PlannerInfo *root, RelOptInfo *rel, const StrataPlanInfo *info,
				   AttrNumber attnum)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	HeapTuple	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
										Int16GetDatum(attnum), BoolGetDatum(rte->inh));
	AttStatsSlot slot;
	double		base = info->base_rows / Max(info->base_rows + info->pending_rows, 1);
	double		result = 0;

	if (!HeapTupleIsValid(tuple))
		return 0;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers == 1)
			result = Min(slot.numbers[0] * slot.numbers[0] / pow(Max(base, 0.5), 4), 1);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return result;
}

/* Clauses that zone maps judge by the same column. */
typedef struct ZoneClauses
{
	AttrNumber	attnum;			/* 0: by several */
	double		correlation;	/* the least */
	double		pieces;			/* places where rows that pass may lie together */
	List	   *clauses;
} ZoneClauses;

/* What zone maps can judge of a clause; false if nothing. */
static bool
zone_clause(PlannerInfo *root, RelOptInfo *rel, const StrataPlanInfo *info, RestrictInfo *rinfo,
			ZoneClauses *result)
{
	StrataPruneTerms terms;
	ListCell   *attr;
	ListCell   *kind;
	ListCell   *expr;

	strata_prune_plan(root, rel, list_make1(rinfo), &terms);
	if (terms.attrs == NIL)
		return false;

	memset(result, 0, sizeof(ZoneClauses));
	result->correlation = 1;
	result->clauses = list_make1(rinfo);
	expr = list_head(terms.exprs);
	forboth(attr, terms.attrs, kind, terms.kinds)
	{
		AttrNumber	attnum = lfirst_int(attr);
		double		pieces = 1;

		switch ((StrataPruneKind) lfirst_int(kind))
		{
			case STRATA_PRUNE_AND:
			case STRATA_PRUNE_OR:
				continue;
			case STRATA_PRUNE_NULL:
			case STRATA_PRUNE_NOT_NULL:
				/* where nulls are is not known */
				result->correlation = 0;
				break;
			case STRATA_PRUNE_ANY:
				pieces = strata_array_length(root, lfirst(expr));
				/* FALLTHROUGH */
			default:
				result->correlation = Min(result->correlation,
										  column_correlation(root, rel, info, attnum));
				expr = lnext(terms.exprs, expr);
		}
		result->attnum = result->pieces == 0 || result->attnum == attnum ? attnum : 0;
		result->pieces += pieces;
	}
	return true;
}

/*
 * The share of the row groups that zone maps leave to read: of a column whose
 * values follow the order of rows, the share that passes and one group more
 * for each place where such rows lie.
 */
static double
zone_share(PlannerInfo *root, RelOptInfo *rel, const StrataPlanInfo *info)
{
	List	   *judged = NIL;	/* ZoneClauses */
	double		result = 1;
	ListCell   *lc;
	ListCell   *lc2;

	if (info->layer != STRATA_LAYER_ALL || info->ngroups < 2)
		return 1;

	foreach (lc, rel->baserestrictinfo)
	{
		ZoneClauses found;
		ZoneClauses *same = NULL;

		if (!zone_clause(root, rel, info, lfirst_node(RestrictInfo, lc), &found))
			continue;
		foreach (lc2, judged)
		{
			ZoneClauses *old = (ZoneClauses *) lfirst(lc2);

			if (old->attnum == found.attnum && found.attnum != 0)
				same = old;
		}
		if (same != NULL)
		{
			same->clauses = list_concat(same->clauses, found.clauses);
			same->correlation = Min(same->correlation, found.correlation);
			same->pieces = Max(same->pieces, found.pieces);
		}
		else
		{
			same = palloc(sizeof(ZoneClauses));
			*same = found;
			judged = lappend(judged, same);
		}
	}
	foreach (lc, judged)
	{
		ZoneClauses *zone = (ZoneClauses *) lfirst(lc);
		double		share = clauselist_selectivity(root, zone->clauses, 0, JOIN_INNER, NULL);

		share = Min(share + zone->pieces / info->ngroups, 1);
		result = Min(result, 1 - zone->correlation * (1 - share));
	}
	return result;
}

static void
add_scan_path(PlannerInfo *root, RelOptInfo *rel, Relids outer)
{
	ParamPathInfo *param_info = get_baserel_parampathinfo(root, rel, outer);
	double		rows = param_info ? param_info->ppi_rows : rel->rows;
	Cost		startup_cost;
	Cost		total_cost;

	strata_cost_scan(root, rel, param_info, rows, 0, &startup_cost, &total_cost);
	add_path(rel, (Path *)
			 strata_foreignscan_path(root, rel, rows, !enable_seqscan, startup_cost, total_cost,
									 NIL, outer, NIL));
}

/* A scan that several processes share, by row groups. */
static void
add_partial_scan_path(PlannerInfo *root, RelOptInfo *rel)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	double		pages = Min(ceil(info->base_raw * strata_needed_fraction(info) / BLCKSZ), MaxBlockNumber);
	double		rows;
	Cost		startup_cost;
	Cost		total_cost;
	ForeignPath *path;
	int			workers;

	if (!rel->consider_parallel || !bms_is_empty(rel->lateral_relids) ||
		info->layer != STRATA_LAYER_ALL || info->ngroups < 2)
		return;
	workers = compute_parallel_worker(rel, pages, -1, max_parallel_workers_per_gather);
	workers = Min(workers, (int) info->ngroups - 1);
	if (workers <= 0)
		return;

	rows = clamp_row_est(rel->rows / strata_parallel_divisor(workers));
	strata_cost_scan(root, rel, NULL, rows, workers, &startup_cost, &total_cost);
	path = strata_foreignscan_path(root, rel, rows, !enable_seqscan, startup_cost, total_cost, NIL,
								   NULL, NIL);
	path->path.parallel_aware = true;
	path->path.parallel_workers = workers;
	add_partial_path(rel, (Path *) path);
}

void
strataGetForeignPaths(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	StrataPlanInfo *info = (StrataPlanInfo *) baserel->fdw_private;

	info->zone_share = zone_share(root, baserel, info);
	if (info->has_index)
		info->correlation = column_correlation(root, baserel, info, info->key.attnum[0]);
	/* first those that learn how many rows paths with their outer relations return */
	strata_add_key_paths(root, baserel);
	add_scan_path(root, baserel, baserel->lateral_relids);
	add_partial_scan_path(root, baserel);
}

/*
 * Attribute numbers that must be decoded, as a list for fdw_private.
 */
static List *
decoded_attrs(RelOptInfo *rel, Oid relid, List *quals)
{
	Relation	table = table_open(relid, NoLock);
	TupleDesc	desc = RelationGetDescr(table);
	Bitmapset  *attrs = NULL;
	List	   *result = NIL;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &attrs);
	pull_varattnos((Node *) quals, rel->relid, &attrs);

	for (int i = 0; i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped && is_needed(attrs, i + 1))
			result = lappend_int(result, i + 1);
	}

	table_close(table, NoLock);
	return result;
}

ForeignScan *
strataGetForeignPlan(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid,
					 ForeignPath *best_path, List *tlist, List *scan_clauses, Plan *outer_plan)
{
	StrataPlanInfo *info = (StrataPlanInfo *) baserel->fdw_private;
	List	   *used_clauses = NIL;
	List	   *local_clauses = NIL;
	List	   *recheck_quals = NIL;
	List	   *lookup_ops = NIL;
	List	   *lookup_arrays = NIL;
	List	   *exprs = NIL;
	StrataPruneTerms prune = {0};
	List	   *private = NIL;
	List	   *quals;
	StrataKeyMatches matches;
	StrataKeyBounds bounds = {0};
	List	   *bound_attrs = NIL;
	int			direction = 0;
	ListCell   *lc;

	if (outer_plan != NULL)
		return strata_aggregate_plan(best_path, tlist, outer_plan);
	if (IS_UPPER_REL(baserel))
	{
		/* the relation that is counted says what is known of it */
		RelOptInfo *counted = find_base_rel(root, intVal(linitial(best_path->fdw_private)));

		return strata_count_plan(best_path, (StrataPlanInfo *) counted->fdw_private, tlist);
	}

	if (list_length(best_path->fdw_private) == 2)
	{
		direction = intVal(linitial(best_path->fdw_private));
		strata_match_bounds(root, baserel, &info->key, scan_clauses, NIL,
							intVal(lsecond(best_path->fdw_private)), &bounds);
		exprs = list_copy(bounds.values);
		foreach (lc, bounds.columns)
			bound_attrs = lappend_int(bound_attrs, info->key.attnum[lfirst_int(lc)]);
		/* looking for each row's key in a long array once more takes long */
		foreach (lc, bounds.arrays)
		{
			RestrictInfo *rinfo = list_nth_node(RestrictInfo, bounds.rinfos, lfirst_int(lc));

			used_clauses = lappend(used_clauses, rinfo);
			recheck_quals = lappend(recheck_quals, rinfo->clause);
		}
	}
	else if (best_path->fdw_private != NIL)
	{
		/* scan_clauses are those the path was matched with, but maybe copies */
		if (!strata_match_key(root, baserel, &info->key, scan_clauses, NIL, &matches))
			elog(ERROR, "key clauses of a lookup are gone");
		for (int i = 0; i < info->key.natts; i++)
		{
			StrataKeyMatch *match = &matches.column[i];

			lookup_ops = lappend_oid(lookup_ops, match->op);
			if (match->array)
				lookup_arrays = lappend_int(lookup_arrays, i);
			exprs = lappend(exprs, match->value);
			used_clauses = lappend(used_clauses, match->rinfo);
			recheck_quals = lappend(recheck_quals, strata_key_clause(match));
		}
	}

	/* a clause that a lookup or an array answers exactly need not be checked again */
	foreach (lc, scan_clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!list_member_ptr(used_clauses, rinfo))
			local_clauses = lappend(local_clauses, rinfo);
	}
	quals = extract_actual_clauses(local_clauses, false);

	if (lookup_ops == NIL && direction == 0 && info->layer == STRATA_LAYER_ALL)
	{
		strata_prune_plan(root, baserel, local_clauses, &prune);
		exprs = prune.exprs;
	}

	/* in the order of StrataScanPrivate */
	private = lappend(private, makeInteger(info->layer));
	private = lappend(private, decoded_attrs(baserel, foreigntableid, quals));
	private = lappend(private, lookup_ops);
	private = lappend(private, lookup_arrays);
	private = lappend(private, prune.attrs);
	private = lappend(private, prune.kinds);
	private = lappend(private, prune.ops);
	private = lappend(private,
					  makeInteger(bms_is_member(baserel->relid, root->all_result_relids) ?
									  root->parse->commandType :
									  CMD_SELECT));
	private = lappend(private, makeInteger(direction));
	private = lappend(private, bounds.columns);
	private = lappend(private, bounds.ops);
	private = lappend(private, bound_attrs);
	private = lappend(private, bounds.arrays);
	private = lappend(private, makeInteger(0));
	private = lappend(private, NIL);
	Assert(list_length(private) == STRATA_SCAN_PRIVATE_LENGTH);

	return make_foreignscan(tlist, quals, baserel->relid, exprs, private, NIL, recheck_quals,
							outer_plan);
}
