/*-------------------------------------------------------------------------
 *
 * plan.h
 *	  What the planner's files share: how much a store holds, and what the ways
 *	  of reading it cost.
 *
 * IDENTIFICATION
 *	  src/fdw/plan.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PLAN_H
#define STRATA_PLAN_H

#include "fdw/scan.h"

#include "nodes/pathnodes.h"

/* RelOptInfo.fdw_private */
typedef struct StrataPlanInfo
{
	StrataLayer layer;
	StrataKey	key;			/* natts 0: no lookups */

	double		base_rows;		/* live */
	double		base_raw;
	double		base_stored;
	double		ngroups;
	double		pending_rows;
	double		pending_bytes;
	bool		has_index;		/* a usable key index */

	double		all_width;		/* of a row */
	double		needed_width;	/* of the columns that will be decoded */
	double		key_width;
	int			needed_columns;
	bool		keys_only;		/* no other columns will be decoded */
	double		correlation;	/* of key and place, squared */
	double		zone_share;		/* of the row groups: what zone maps leave of them */
} StrataPlanInfo;

/* Ranges of the key. */
typedef struct StrataKeyRanges
{
	double		count;
	double		share;			/* of all keys, that they hold */
	List	   *exact;			/* RestrictInfo: not checked again for their rows */
} StrataKeyRanges;

/*
 * ForeignPath.fdw_private: NIL for a scan, one integer for a lookup, two for a
 * scan in key order: the direction, and how many arrays bound it.
 */
#define STRATA_LOOKUP_PATH	list_make1(makeInteger(1))
#define STRATA_RANGE_PATH(direction, arrays) \
	list_make2(makeInteger(direction), makeInteger(arrays))

/* ---- cost.c; all set *startup and *total, in the planner's units ---- */

extern void strata_cost_scan(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info,
							 double rows, int workers, Cost *startup_cost, Cost *total_cost);
extern void strata_cost_lookup(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info,
							   double keys, const StrataKeyRanges *wider, double rows,
							   Cost *startup_cost, Cost *total_cost);
extern void strata_cost_range(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info,
							  const StrataKeyRanges *ranges, const StrataKeyRanges *wider,
							  double rows, Cost *startup_cost, Cost *total_cost);
extern void strata_cost_count(const StrataPlanInfo *info, int nends, Cost *startup_cost,
							  Cost *total_cost);

/* ---- key_paths.c ---- */

extern double strata_lookup_keys(PlannerInfo *root, const StrataKey *key,
								 const StrataKeyMatches *matches);
extern void strata_add_key_paths(PlannerInfo *root, RelOptInfo *rel);

/* ---- count.c ---- */

extern ForeignScan *strata_count_plan(ForeignPath *path, const StrataPlanInfo *info, List *tlist);

/* Share of the stored bytes that the needed columns are. */
extern double strata_needed_fraction(const StrataPlanInfo *info);

/* How many processes' worth of work each of a parallel scan's does. */
extern double strata_parallel_divisor(int workers);

#endif							/* STRATA_PLAN_H */
