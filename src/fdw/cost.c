/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  What reading a store costs, by how it is read.
 *
 * IDENTIFICATION
 *	  src/fdw/cost.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fdw/plan.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"

/*
 * Costs beside the planner's own parameters, in units of a sequential page
 * read.
 */
/* decompressing and decoding a page's worth of raw column data */
#define DECODE_PAGE_COST	2.0
/* the same of a stored page of the log, beside the values needed */
#define DECODE_PENDING_COST 0.6
/* opening a row group: footer and key hashes */
#define OPEN_GROUP_COST		2.0
/* finding out whether a pending row hides a base row, in operator calls */
#define SUPERSEDE_OPERATORS	20
/* descending the key index and the hash of pending keys, in operator calls */
#define PROBE_OPERATORS		150
/* reading the key of a pending row and comparing it, in operator calls */
#define KEY_OPERATORS		3
/* one row of a row group by its number, in operator calls: from where the one
 * before was, and for each column from anywhere */
#define FETCH_OPERATORS		6
#define SCATTER_OPERATORS	40
/* raw bytes of a vector, what is decoded for one column of one row */
#define VECTOR_BYTES		8192
/* fraction of the key index's pages that is filled, and bytes per entry
 * beside the key */
#define INDEX_FILL			0.7
#define INDEX_ENTRY_BYTES	20

/* Share of the stored bytes that the needed columns are. */
double
strata_needed_fraction(const StrataPlanInfo *info)
{
	return info->all_width > 0 ? info->needed_width / info->all_width : 1;
}

/* What it costs to read that share of the log, and the columns needed of so
 * many rows. */
static Cost
pending_cost(const StrataPlanInfo *info, double share, double rows)
{
	return seq_page_cost / BLCKSZ *
		((1 + DECODE_PENDING_COST) * share * info->pending_bytes +
		 DECODE_PAGE_COST * rows * info->needed_width);
}

/* What evaluating the clauses that stay with the executor costs. */
static void
add_qual_cost(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info, double tuples,
			  double rows, Cost *startup, Cost *run)
{
	QualCost	qual = rel->baserestrictcost;

	if (param_info != NULL)
	{
		QualCost	join_qual;

		cost_qual_eval(&join_qual, param_info->ppi_clauses, root);
		qual.startup += join_qual.startup;
		qual.per_tuple += join_qual.per_tuple;
	}

	*startup += qual.startup + rel->reltarget->cost.startup;
	*run += qual.per_tuple * tuples + rel->reltarget->cost.per_tuple * rows;
}

/* How many processes' worth of work each of a parallel scan's does. */
double
strata_parallel_divisor(int workers)
{
	double		leader = parallel_leader_participation ? 1 - 0.3 * workers : 0;

	return workers + Max(leader, 0);
}

void
strata_cost_scan(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info, double rows,
		  int workers, Cost *startup_cost, Cost *total_cost)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	double		fraction = strata_needed_fraction(info);
	double		read = info->zone_share;
	Cost		startup = 0;
	Cost		run = 0;

	run += read * seq_page_cost * info->base_stored * fraction / BLCKSZ;
	run += read * DECODE_PAGE_COST * seq_page_cost * info->base_raw * fraction / BLCKSZ;
	if (info->needed_columns > 0)
		run += read * OPEN_GROUP_COST * seq_page_cost * info->ngroups;
	run += read * info->base_rows * (cpu_tuple_cost + cpu_operator_cost * info->needed_columns);
	add_qual_cost(root, rel, param_info,
				  Max(rel->tuples - (1 - read) * info->base_rows, rows), rows, &startup, &run);
	if (workers > 0)
		run /= strata_parallel_divisor(workers);

	/* one process reads the pending rows, each finds out what they supersede */
	if (info->ngroups > 0)
		startup += info->pending_rows * SUPERSEDE_OPERATORS * cpu_operator_cost;
	run += pending_cost(info, 1, info->pending_rows);
	run += info->pending_rows * (cpu_tuple_cost + cpu_operator_cost * info->needed_columns);

	/* shard pages and the first log page, so that no lookup costs more */
	startup += seq_page_cost;
	*startup_cost = startup;
	*total_cost = startup + run;
}

/* Distinct pages among n random ones of a total of pages. */
static double
pages_touched(double n, double pages)
{
	pages = Max(pages, 1);
	return Min(2 * pages * n / (2 * pages + n), pages);
}

/* Cost of touched pages: random ones when few of all, else nearly in order. */
static Cost
touch_cost(double touched, double pages)
{
	pages = Max(pages, 1);
	return touched *
		(random_page_cost - (random_page_cost - seq_page_cost) * sqrt(Min(touched / pages, 1)));
}

/*
 * What decoding costs, each of so many times, when hits rows from anywhere are
 * read: a vector for each column.  A vector that is come back to is decoded
 * again as far as not all fit the cache.  What does fit may be there from
 * before or not: half of the cost is not far from either.
 */
static Cost
scattered_decode_cost(const StrataPlanInfo *info, double hits, double loops)
{
	double		all = Max(info->base_raw * strata_needed_fraction(info), 1);
	double		bytes = hits * loops *
		Max(info->needed_width, (double) info->needed_columns * VECTOR_BYTES);
	double		cached = Min(strata_cache_size * 1024.0 / all, 1);
	double		distinct = Min(2 * all * bytes / (2 * all + bytes), bytes);

	distinct = Min(distinct, all);
	bytes = distinct + (bytes - distinct) * (1 - cached);
	return (1 - cached / 2) * DECODE_PAGE_COST * seq_page_cost * bytes / BLCKSZ / loops;
}

/* How often a path with these outer relations will run: at least so often. */
static double
loop_count(PlannerInfo *root, Relids outer)
{
	double		loops = 0;
	int			relid = -1;

	while ((relid = bms_next_member(outer, relid)) >= 0)
	{
		RelOptInfo *rel;

		if (relid >= root->simple_rel_array_size)
			continue;
		rel = root->simple_rel_array[relid];
		if (rel == NULL || IS_DUMMY_REL(rel) || rel->rows <= 0)
			continue;
		if (loops == 0 || rel->rows < loops)
			loops = rel->rows;
	}
	return Max(loops, 1);
}

static double
index_pages(const StrataPlanInfo *info)
{
	return ceil(info->base_rows * (info->key_width + INDEX_ENTRY_BYTES) / (BLCKSZ * INDEX_FILL));
}

/* Reading so many pages of the key index, each of so many times. */
static Cost
index_cost(const StrataPlanInfo *info, double touched, double loops)
{
	double		pages = index_pages(info);

	return touch_cost(pages_touched(touched * loops, pages), pages) / loops;
}

/* Pages of the key index that ranges take. */
static double
ranges_pages(const StrataPlanInfo *info, const StrataKeyRanges *ranges)
{
	return Max(ceil(ranges->share * index_pages(info)), ranges->count);
}

/* Reading and decoding the columns needed of hits base rows from anywhere. */
static Cost
scattered_cost(const StrataPlanInfo *info, double hits, double loops)
{
	double		pages = ceil(info->base_stored * strata_needed_fraction(info) / BLCKSZ);
	double		touched = pages_touched(hits * loops * Max(1, info->needed_width / BLCKSZ), pages);

	return touch_cost(touched, pages) / loops + scattered_decode_cost(info, hits, loops);
}

/*
 * The same of the base rows within ranges of the key.  Where rows lie in the
 * order of the key, each range is in one place, of which at least one vector is
 * decoded for each column.
 */
static Cost
ranges_cost(const StrataPlanInfo *info, const StrataKeyRanges *ranges, double loops)
{
	double		fraction = strata_needed_fraction(info);
	double		pages = ceil(info->base_stored * fraction / BLCKSZ);
	double		more = ranges->count - 1;
	Cost		spread = scattered_cost(info, Max(ranges->share * info->base_rows, 1), loops);
	Cost		dense = seq_page_cost * ceil(ranges->share * pages) + random_page_cost * more;

	dense += DECODE_PAGE_COST * seq_page_cost / BLCKSZ *
		(ranges->share * info->base_raw * fraction + more * info->needed_columns * VECTOR_BYTES);
	return spread + info->correlation * (Min(dense, spread) - spread);
}

/*
 * Looking up so many keys, which all lie in wider ranges, those that the clauses
 * without one of the arrays leave; NULL: anywhere.
 */
void
strata_cost_lookup(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info, double keys,
				   const StrataKeyRanges *wider, double rows, Cost *startup_cost,
				   Cost *total_cost)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	double		loops = param_info ? loop_count(root, param_info->ppi_req_outer) : 1;
	double		base_share = info->base_rows / Max(info->base_rows + info->pending_rows, 1);
	Cost		startup = 0;
	Cost		run = 0;

	run += keys * PROBE_OPERATORS * cpu_operator_cost;
	if (info->base_rows > 0)
	{
		double		hits = Min(keys * base_share, info->base_rows);
		double		pages = keys;
		Cost		fetch = scattered_cost(info, hits, loops);

		if (wider != NULL)
		{
			pages = Min(pages, ranges_pages(info, wider));
			fetch = Min(fetch, ranges_cost(info, wider, loops));
		}
		run += index_cost(info, pages, loops) + fetch;
	}
	run += rows * cpu_tuple_cost;

	/* the clauses that say the key are not evaluated: take theirs as nothing */
	add_qual_cost(root, rel, NULL, 0, rows, &startup, &run);
	run += rel->baserestrictcost.per_tuple * rows;

	*startup_cost = startup;
	*total_cost = startup + run;
}

static Cost
sort_cost(double rows)
{
	return rows * cpu_tuple_cost + 2 * cpu_operator_cost * rows * log(Max(rows, 2)) / log(2);
}

/*
 * A scan in key order of ranges, which lie in wider ones as keys looked up do.
 * All pending keys are read first, and the rows within bounds sorted.
 */
void
strata_cost_range(PlannerInfo *root, RelOptInfo *rel, ParamPathInfo *param_info,
				  const StrataKeyRanges *ranges, const StrataKeyRanges *wider, double rows,
				  Cost *startup_cost, Cost *total_cost)
{
	StrataPlanInfo *info = (StrataPlanInfo *) rel->fdw_private;
	double		loops = param_info ? loop_count(root, param_info->ppi_req_outer) : 1;
	double		hits = Max(ranges->share * info->base_rows, 1);
	double		sorted = ranges->share * info->pending_rows;
	double		pages = ranges_pages(info, ranges);
	QualCost	exact;
	Cost		startup = 0;
	Cost		run = 0;

	if (info->pending_rows > 0)
	{
		/* the keys of all, the other columns of those within bounds */
		double		width = info->key_width + ranges->share * info->needed_width;

		startup += pending_cost(info, Min(width / Max(info->all_width, 1), 1), sorted);
		startup += info->pending_rows * cpu_operator_cost *
			(KEY_OPERATORS + log(ranges->count) / log(2));
		startup += sort_cost(sorted);
		run += hits * SUPERSEDE_OPERATORS * cpu_operator_cost;
	}
	startup += PROBE_OPERATORS * cpu_operator_cost;
	run += (ranges->count - 1) * PROBE_OPERATORS * cpu_operator_cost;
	if (wider != NULL)
		pages = Min(pages, ranges_pages(info, wider));
	run += index_cost(info, pages, loops);
	run += hits * cpu_index_tuple_cost;

	if (!info->keys_only)
	{
		Cost		fetch = ranges_cost(info, ranges, loops);

		if (wider != NULL)
			fetch = Min(fetch, ranges_cost(info, wider, loops));
		run += fetch;
		run += hits * cpu_operator_cost *
			(FETCH_OPERATORS +
			 info->needed_columns * (1 + (1 - info->correlation) * SCATTER_OPERATORS));
	}
	run += (hits + sorted) * cpu_tuple_cost;

	add_qual_cost(root, rel, param_info, hits + sorted, rows, &startup, &run);
	cost_qual_eval(&exact, ranges->exact, root);
	startup -= exact.startup;
	run -= exact.per_tuple * (hits + sorted);
	*startup_cost = startup;
	*total_cost = startup + run;
}

/*
 * Counting the rows of a table, and finding so many ends of its key: the keys
 * of pending rows are read, and for each end sorted.
 */
void
strata_cost_count(const StrataPlanInfo *info, int nends, Cost *startup_cost, Cost *total_cost)
{
	Cost		cost = seq_page_cost * (1 + nends);

	if (info->pending_rows > 0)
	{
		cost += seq_page_cost * info->pending_bytes / BLCKSZ;
		if (info->ngroups > 0)
			cost += info->pending_rows * SUPERSEDE_OPERATORS * cpu_operator_cost;
		cost += nends * (pending_cost(info, info->key_width / Max(info->all_width, 1), 0) +
						 sort_cost(info->pending_rows));
	}
	*startup_cost = cost;
	*total_cost = cost + cpu_tuple_cost;
}
