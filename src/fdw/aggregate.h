/*-------------------------------------------------------------------------
 *
 * aggregate.h
 *	  What the files that aggregate inside a foreign scan share.
 *
 *	aggregate_plan.c	which queries, at what cost
 *	aggregate_exec.c	the node: transition and final functions
 *	aggregate_groups.c	its groups, and rows that must wait for memory
 *
 * IDENTIFICATION
 *	  src/fdw/aggregate.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_AGGREGATE_H
#define STRATA_AGGREGATE_H

#include "fdw/fdw.h"

#include "executor/nodeAgg.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

/*
 * ForeignScan.fdw_private of an aggregate, by index.  Its outer plan has the
 * columns that are named from 0 here; fdw_scan_tlist has the group's columns,
 * then the aggregates.
 */
typedef enum StrataAggregatePrivate
{
	/* IntList: columns that rows are grouped by */
	STRATA_AGGREGATE_COLUMNS,
	/* OidLists: their equality operators and collations */
	STRATA_AGGREGATE_OPS,
	STRATA_AGGREGATE_COLLATIONS,
	/* list of IntLists: by aggregate, the columns of its arguments, -1: a constant */
	STRATA_AGGREGATE_ARGUMENTS,
	/* IntList: by aggregate, the column of its FILTER, -1: none */
	STRATA_AGGREGATE_FILTERS,
	STRATA_AGGREGATE_PRIVATE_LENGTH
} StrataAggregatePrivate;

/* ---- aggregate_plan.c ---- */

extern void strata_aggregate_path(PlannerInfo *root, RelOptInfo *input_rel,
								  RelOptInfo *output_rel, GroupPathExtraData *extra);
extern ForeignScan *strata_aggregate_plan(ForeignPath *path, List *tlist, Plan *outer_plan);

/* ---- aggregate_exec.c ---- */

/* Is a foreign scan an aggregate?  If so, it has a routine of its own from its begin on. */
extern bool strata_is_aggregate(const ForeignScan *plan);
extern void strata_aggregate_begin(ForeignScanState *node);

/* ---- aggregate_groups.c ---- */

typedef struct StrataGroup
{
	Datum	   *keys;
	bool	   *nulls;
	AggStatePerGroupData trans[FLEXIBLE_ARRAY_MEMBER];
} StrataGroup;

typedef struct StrataGroupSlot
{
	StrataGroup *group;			/* NULL: free */
	uint32		hash;
} StrataGroupSlot;

/* A column that rows are grouped by. */
typedef struct StrataGroupColumn
{
	int			column;			/* of the input, from 0 */
	int16		typlen;
	bool		byval;
	Datum		image;			/* if equal values have equal images: their bits of a Datum; else 0 */
	Oid			collation;
	FmgrInfo	eq;
	FmgrInfo	hash;
} StrataGroupColumn;

typedef struct StrataGroups
{
	int			ncolumns;
	StrataGroupColumn *columns;
	int			ntrans;
	MemoryContext mcxt;			/* groups and their states; emptied by the caller */
	MemoryContext table_mcxt;	/* all else */
	Size		limit;			/* bytes */

	/* open addressing */
	StrataGroupSlot *slots;
	uint32		nslots;			/* a power of two */
	uint32		used;
	bool		full;			/* no more groups for now */
	StrataGroup *last;			/* found */

	/* rows of groups there was no memory for, by bits of their hashes */
	TupleDesc	desc;			/* of the input */
	bool	   *unused;			/* by its columns: need not be kept */
	bool	   *kept_nulls;
	TupleTableSlot *waiting_slot;
	List	   *waiting;		/* of StrataWaitingRows, not read yet */
	struct StrataWaitingRows *partitions[16];	/* written now */
	struct StrataWaitingRows *reading;	/* NULL: rows come from the input */
	int			batches;		/* 0: nothing was read yet */
} StrataGroups;

extern void strata_groups_begin(StrataGroups *groups, List *columns, List *ops, List *collations,
								TupleDesc desc, const int *used, int nused, EState *estate);
/* The group of a row; NULL if it is not there and there is no room for it. */
extern StrataGroup *strata_groups_find(StrataGroups *groups, const Datum *values,
									   const bool *isnull, uint32 *hash, bool *created);
extern void strata_groups_wait(StrataGroups *groups, Datum *values, const bool *isnull,
							   uint32 hash);
extern TupleTableSlot *strata_groups_next_waiting(StrataGroups *groups);
/* All groups of a batch are done: forget them.  False: no rows wait. */
extern bool strata_groups_next_batch(StrataGroups *groups);
extern void strata_groups_reset(StrataGroups *groups);

#endif							/* STRATA_AGGREGATE_H */
