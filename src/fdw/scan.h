/*-------------------------------------------------------------------------
 *
 * scan.h
 *	  What the planner hands to the executor for a scan, and the executor's
 *	  state of one.
 *
 * IDENTIFICATION
 *	  src/fdw/scan.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_SCAN_H
#define STRATA_SCAN_H

#include "fdw/fdw.h"

#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "utils/array.h"

/*
 * ForeignScan.fdw_private, by index.  fdw_exprs holds the value side of each
 * lookup clause in key order, that of each bound of a range, or that of each
 * prune term that has one.
 */
typedef enum StrataScanPrivate
{
	/* Integer: StrataLayer */
	STRATA_SCAN_LAYER,
	/* IntList: attribute numbers that must be decoded */
	STRATA_SCAN_ATTRS,
	/* OidList: "key operator value", one per key column; NIL: not a lookup */
	STRATA_SCAN_LOOKUP_OPS,
	/* IntList: key columns from 0, ascending, that are compared with = ANY */
	STRATA_SCAN_LOOKUP_ARRAYS,
	/* StrataPruneTerms, but for its exprs */
	STRATA_SCAN_PRUNE_ATTRS,
	STRATA_SCAN_PRUNE_KINDS,
	STRATA_SCAN_PRUNE_OPS,
	/* Integer: CMD_UPDATE or CMD_DELETE if that is what the rows are read for,
	 * else CMD_SELECT */
	STRATA_SCAN_OPERATION,
	/* Integer: 0 no order, 1 key order, -1 backward */
	STRATA_SCAN_RANGE_DIRECTION,
	/* IntList: bounded key columns from 0, ascending; fdw_exprs has their values */
	STRATA_SCAN_RANGE_COLUMNS,
	/* OidList: their operators, with the key on the left */
	STRATA_SCAN_RANGE_OPS,
	/* IntList: their attribute numbers */
	STRATA_SCAN_RANGE_ATTRS,
	/* IntList: indexes of those bounds whose operator is = ANY */
	STRATA_SCAN_RANGE_ARRAYS,
	/* Integer: table whose rows are counted, 0: rows are returned */
	STRATA_SCAN_COUNT_OF,
	/* IntList: what each column of a count is (count.c) */
	STRATA_SCAN_COUNT_KINDS,
	STRATA_SCAN_PRIVATE_LENGTH
} StrataScanPrivate;

/* ---- clauses that are ours to use (match.c) ---- */

/* "key operator value" or "key operator ANY (value)" */
typedef struct StrataKeyMatch
{
	RestrictInfo *rinfo;
	Oid			op;				/* with the key on its left */
	Expr	   *value;
	bool		array;
	bool		commuted;		/* the clause has the key on its right */
	bool		hashable;		/* op is in the key's hash family too */
} StrataKeyMatch;

typedef struct StrataKeyMatches
{
	StrataKeyMatch column[INDEX_MAX_KEYS];
} StrataKeyMatches;

extern bool strata_match_key_clause(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key,
									int column, RestrictInfo *rinfo, StrataKeyMatch *match);
extern Expr *strata_key_clause(const StrataKeyMatch *match);
extern bool strata_match_key(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key,
							 List *clauses, List *more_clauses, StrataKeyMatches *matches);

/*
 * Clauses that bound the key: = and = ANY of leading columns, then a range.
 */
typedef struct StrataKeyBounds
{
	int			nequal;			/* leading columns with = or = ANY */
	List	   *columns;		/* IntList, ascending */
	List	   *ops;			/* OidList */
	List	   *values;			/* Expr */
	List	   *rinfos;
	List	   *arrays;			/* IntList: which of them are = ANY */
} StrataKeyBounds;

/*
 * False if the clauses of both lists bound nothing.  max_arrays: of so many
 * columns = ANY is taken.  The next such column ends the equalities and is bounded
 * by its other clauses, if any, so that each number of arrays makes wider ranges
 * than one more.
 */
extern bool strata_match_bounds(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key,
								List *clauses, List *more_clauses, int max_arrays,
								StrataKeyBounds *bounds);
extern Expr *strata_leading_comparison(const RowCompareExpr *clause);
extern List *strata_match_outer_rels(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key);

/* ---- values of clauses (value.c) ---- */

typedef struct StrataValue
{
	ExprState  *expr;
	int16		typlen;			/* of the expression's type */
	bool		typbyval;
} StrataValue;

/* Initialise with parent, in CurrentMemoryContext. */
extern void strata_value_begin(StrataValue *value, Expr *expr, PlanState *parent);

/* Compute it; false when it is null, else *result, detoasted, lives in mcxt. */
extern bool strata_value_evaluate(StrataValue *value, ExprContext *econtext, MemoryContext mcxt,
								  Datum *result);

/*
 * Are elements that ascend in their own type's order ascending for comparisons
 * with a column of type, too?  Of no other array the elements may be taken in
 * order.
 */
extern bool strata_array_is_sortable(Oid opfamily, Oid type, Oid elemtype);

/*
 * Take a detoasted array apart: each element once, nulls left out, ascending by
 * cmp.  The result lives in mcxt, as does what comparing leaves behind; elements
 * that are passed by reference point into the array, which has to stay.
 */
extern Datum *strata_array_elements(ArrayType *array, FmgrInfo *cmp, Oid collation,
									MemoryContext mcxt, int *nelements);

/* "column operator ANY (value)", or ALL, for EXPLAIN. */
extern Expr *strata_array_clause(Oid op, bool any, Var *column, Expr *value);

/* ---- zone maps (prune.c) ---- */

typedef enum StrataPruneKind
{
	STRATA_PRUNE_OPERATOR,		/* column operator value */
	STRATA_PRUNE_ANY,			/* column operator ANY (value) */
	STRATA_PRUNE_ALL,			/* column operator ALL (value) */
	STRATA_PRUNE_NULL,			/* column IS NULL */
	STRATA_PRUNE_NOT_NULL,		/* column IS NOT NULL */
	STRATA_PRUNE_AND,			/* of the terms that follow */
	STRATA_PRUNE_OR
} StrataPruneKind;

/* What zone maps can judge of clauses: terms, AND and OR before their arguments. */
typedef struct StrataPruneTerms
{
	List	   *attrs;			/* IntList: attribute number, or number of arguments */
	List	   *kinds;			/* IntList: StrataPruneKind */
	List	   *ops;			/* OidList: InvalidOid where there is none */
	List	   *exprs;			/* values of those that have one */
} StrataPruneTerms;

typedef struct StrataPrune StrataPrune;

extern void strata_prune_plan(PlannerInfo *root, RelOptInfo *rel, List *scan_clauses,
							  StrataPruneTerms *terms);
extern StrataPrune *strata_prune_begin(const StrataStore *store, const ForeignScan *plan,
									   PlanState *parent);
extern void strata_prune_evaluate(StrataPrune *prune, ExprContext *econtext, MemoryContext mcxt);
extern int	strata_prune_key_bounds(const StrataPrune *prune, const StrataKey *key,
									StrataBound *bounds /* [natts] */);
extern bool strata_prune_skip(StrataView *view, const StrataRowGroup *group, void *prune);
extern List *strata_prune_describe(ForeignScan *plan, TupleDesc desc);

/* ---- layer tables (layer.c) ---- */

extern Oid	strata_layer_store(Oid layer_table, const StrataOptions *options);
extern void strata_layer_check_rights(Oid store, Oid userid);
extern AttrNumber *strata_layer_map(Relation layer_table, const StrataStore *store);

/* ---- executor ---- */

/* A key column of a lookup that is compared with = ANY. */
typedef struct StrataKeyArray
{
	int			column;
	FmgrInfo	cmp;			/* orders elements */
	Datum	   *elements;		/* ascending, distinct, none null */
	int			nelements;
	int			element;		/* of the key to look up next */
} StrataKeyArray;

/*
 * A parallel-aware scan in shared memory.  Under EXPLAIN ANALYZE each worker
 * has a slot for what it read, over all its launches.
 */
typedef struct StrataParallelScan
{
	StrataSharedScan scan;
	int			nslots;			/* 0: nobody asks */
	StrataReadStats slot[FLEXIBLE_ARRAY_MEMBER];
} StrataParallelScan;

typedef struct StrataScanState
{
	/* from the plan */
	StrataLayer layer;
	Bitmapset  *needed;			/* of the store's attribute numbers */
	Oid			relid;			/* the foreign table's */

	/* what is read */
	StrataStore *store;
	Relation	storage;
	Snapshot	snapshot;
	StrataView *view;			/* made by the first fetch */

	/* layer tables: the store's row, and where its columns go */
	AttrNumber *map;			/* [natts of the layer table], 0: dropped */
	Datum	   *store_values;
	bool	   *store_isnull;

	/* scan */
	bool		started;
	StrataParallelScan *parallel;	/* in a parallel-aware scan, while it runs */
	StrataReadStats *slot;		/* a worker's, if it is to report */
	StrataReadStats reported;	/* in slot, of earlier launches */
	uint64		told;			/* row groups when the slot was last set */
	StrataReadStats workers;	/* the leader's: what workers read */
	StrataScan *scan;
	StrataPrune *prune;			/* NULL: nothing to skip by */

	/* count */
	bool		is_count;
	List	   *count_kinds;

	/* key lookup */
	bool		is_lookup;
	StrataLookup *lookup;
	StrataKeyProbe probe;
	StrataValue *key_values;	/* in key order */
	FmgrInfo	hash_fn[INDEX_MAX_KEYS];	/* for the value's type */
	int			narrays;
	StrataKeyArray *arrays;		/* by column */
	bool		have_key;		/* the probe has a key to look up next */

	/* key order and ranges; key_values has the bounds' */
	bool		is_range;
	bool		backward;
	int			nbounds;
	StrataBound *bounds;
	FmgrInfo   *element_cmp;	/* of bounds that are arrays */
	StrataOrderedScan *ordered; /* NULL: not started, or no row can qualify */

	/* locking of rows, by the scan or of what it returned */
	LOCKMODE	lock_mode;		/* NoLock: not by the scan */
	ExprState  *qual;			/* taken from the node by a scan that locks */
	StrataRowLocker *locker;
	MemoryContext refetch_mcxt;

	MemoryContext mcxt;			/* the state's own */
	MemoryContext restart_mcxt; /* values of lookup clauses, bounds and prune terms */
} StrataScanState;

/*
 * scan_exec.c: a scan whose rows, unprojected, can be asked for in its own
 * slot, instead of by ExecProcNode
 */
extern bool strata_scan_is_plain(const PlanState *pstate);
extern bool strata_plain_scan_next(ForeignScanState *node);

/* count.c; state->view is there */
extern void strata_count_next(StrataScanState *state, TupleTableSlot *slot);

/* scan_parallel.c: what was read for a node, in all processes; worker's report of it */
extern StrataReadStats strata_scan_stats(StrataScanState *state);
extern void strata_scan_tell(StrataScanState *state);

/* scan_lock.c; state->view is there when a row is locked */
extern void strata_scan_prepare_locking(StrataScanState *state, ForeignScanState *node,
										ForeignScan *plan);
extern bool strata_scan_lock(StrataScanState *state, ForeignScanState *node,
							 TupleTableSlot *slot);

/* scan_range.c */
extern void strata_range_begin(StrataScanState *state, List *private, List *exprs,
							   PlanState *parent);
extern void strata_range_start(StrataScanState *state, ExprContext *econtext);
extern bool strata_range_next(StrataScanState *state, Datum *values, bool *isnull,
							  ItemPointer tid);
extern void strata_range_stop(StrataScanState *state);
extern List *strata_range_describe(ForeignScan *plan, TupleDesc desc);

#endif							/* STRATA_SCAN_H */
