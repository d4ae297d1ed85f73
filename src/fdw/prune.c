/*-------------------------------------------------------------------------
 *
 * prune.c
 *	  Passing over base row groups whose zone maps exclude a scan's clauses.
 *
 * The clauses stay with the executor; here they only say which row groups
 * cannot hold a row that passes.  Asked about base row groups alone: a
 * pending row must be seen whatever it holds, for it may hide a base row.
 *
 * A clause counts when its operator belongs to the column's default B-tree
 * family, compares under the column's own collation, and may be looked at
 * before a security barrier's clauses.  A zone counts when it was recorded
 * with the column's present type and collation.
 *
 * IDENTIFICATION
 *	  src/fdw/prune.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/scan.h"

#include "access/nbtree.h"
#include "access/stratnum.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* What is known of a clause's value in this (re)start of the scan. */
typedef enum PruneValue
{
	PRUNE_NOTHING_PASSES,		/* null: no row passes */
	PRUNE_RANGE					/* rows between low and high may pass */
} PruneValue;

typedef struct PruneClause
{
	AttrNumber	attnum;
	StrataPruneKind kind;
	int			strategy;		/* of the operator */
	Oid			collation;

	/* the value side */
	ExprState  *expr;
	int16		valuelen;		/* of a single value */
	bool		valuebyval;
	FmgrInfo	cmp;			/* column against value */
	FmgrInfo	value_cmp;		/* value against value, ANY only */

	PruneValue	state;
	Datum		low;			/* the value, or the array's least and */
	Datum		high;			/* greatest element */
} PruneClause;

struct StrataPrune
{
	int			nclauses;
	PruneClause clauses[FLEXIBLE_ARRAY_MEMBER];
};

/*
 * The column of ours that node is, with its default B-tree family and input
 * type; 0 when it is none.
 */
static AttrNumber
prunable_column(Node *node, const RelOptInfo *rel, Oid *opfamily, Oid *opcintype,
				Oid *collation)
{
	TypeCacheEntry *typentry;
	Var		   *var;

	while (node && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (node == NULL || !IsA(node, Var))
		return InvalidAttrNumber;
	var = (Var *) node;
	if (var->varno != (int) rel->relid || var->varlevelsup != 0 || var->varattno <= 0)
		return InvalidAttrNumber;

	typentry = lookup_type_cache(getBaseType(var->vartype), TYPECACHE_BTREE_OPFAMILY);
	*opfamily = typentry->btree_opf;
	*opcintype = typentry->btree_opintype;
	*collation = var->varcollid;
	return var->varattno;
}

/* Can op, with the column on its left, be judged by minimum and maximum? */
static bool
is_prunable_operator(Oid op, Oid opfamily, Oid opcintype, bool array)
{
	int			strategy;
	Oid			lefttype;
	Oid			righttype;

	if (!OidIsValid(op) || !OidIsValid(opfamily) || !op_in_opfamily(op, opfamily))
		return false;
	get_op_opfamily_properties(op, opfamily, false, &strategy, &lefttype, &righttype);

	if (lefttype != opcintype || !op_strict(op) ||
		!OidIsValid(get_opfamily_proc(opfamily, lefttype, righttype, BTORDER_PROC)))
		return false;
	if (array &&
		(strategy != BTEqualStrategyNumber || IsPolymorphicType(righttype) ||
		 !OidIsValid(get_opfamily_proc(opfamily, righttype, righttype, BTORDER_PROC))))
		return false;
	return true;
}

/*
 * A value that costs little and may be computed once more, before the rows.
 */
static bool
is_prunable_value(PlannerInfo *root, const RelOptInfo *rel, Node *value)
{
	return !bms_is_member(rel->relid, pull_varnos(root, value)) &&
		!contain_volatile_functions(value) &&
		!contain_subplans(value);
}

/*
 * The column of a clause that tests one of type boolean without an operator,
 * which is also what the planner makes of = true and = false; NULL if it is
 * none.  value is what the column must be, of kind STRATA_PRUNE_OPERATOR.
 */
static Node *
boolean_column(Node *clause, StrataPruneKind *kind, bool *value)
{
	*kind = STRATA_PRUNE_OPERATOR;
	*value = true;
	if (is_notclause(clause))
	{
		*value = false;
		clause = (Node *) get_notclausearg(clause);
	}
	else if (IsA(clause, BooleanTest))
	{
		BooleanTest *test = (BooleanTest *) clause;

		clause = (Node *) test->arg;
		switch (test->booltesttype)
		{
			case IS_TRUE:
				break;
			case IS_FALSE:
				*value = false;
				break;
			case IS_UNKNOWN:
				*kind = STRATA_PRUNE_NULL;
				break;
			case IS_NOT_UNKNOWN:
				*kind = STRATA_PRUNE_NOT_NULL;
				break;
			default:
				return NULL;
		}
	}
	return exprType(clause) == BOOLOID ? clause : NULL;
}

/*
 * Pick the clauses among scan_clauses (RestrictInfo) that zone maps can
 * judge.
 */
void
strata_prune_plan(PlannerInfo *root, RelOptInfo *rel, List *scan_clauses, List **attrs,
				  List **kinds, List **ops, List **exprs)
{
	ListCell   *lc;

	*attrs = *kinds = *ops = *exprs = NIL;

	foreach (lc, scan_clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		Node	   *clause = (Node *) rinfo->clause;
		AttrNumber	attnum;
		StrataPruneKind kind;
		Oid			op = InvalidOid;
		Node	   *value = NULL;
		Oid			opfamily;
		Oid			opcintype;
		Oid			collation;

		if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel))
			continue;

		if (IsA(clause, NullTest))
		{
			NullTest   *test = (NullTest *) clause;

			/* a row's own IS NULL looks into the row */
			if (test->argisrow)
				continue;
			attnum = prunable_column((Node *) test->arg, rel, &opfamily, &opcintype, &collation);
			if (attnum == InvalidAttrNumber)
				continue;
			kind = test->nulltesttype == IS_NULL ? STRATA_PRUNE_NULL : STRATA_PRUNE_NOT_NULL;
		}
		else if (is_opclause(clause))
		{
			OpExpr	   *opexpr = (OpExpr *) clause;

			if (list_length(opexpr->args) != 2)
				continue;
			kind = STRATA_PRUNE_OPERATOR;
			op = opexpr->opno;
			value = lsecond(opexpr->args);
			attnum = prunable_column(linitial(opexpr->args), rel, &opfamily, &opcintype,
									 &collation);
			if (attnum == InvalidAttrNumber)
			{
				op = get_commutator(op);
				value = linitial(opexpr->args);
				attnum = prunable_column(lsecond(opexpr->args), rel, &opfamily, &opcintype,
										 &collation);
			}
			if (attnum == InvalidAttrNumber || opexpr->inputcollid != collation)
				continue;
		}
		else if (IsA(clause, ScalarArrayOpExpr))
		{
			ScalarArrayOpExpr *opexpr = (ScalarArrayOpExpr *) clause;

			kind = STRATA_PRUNE_ANY;
			op = opexpr->opno;
			value = lsecond(opexpr->args);
			attnum = prunable_column(linitial(opexpr->args), rel, &opfamily, &opcintype,
									 &collation);
			if (attnum == InvalidAttrNumber || !opexpr->useOr || opexpr->inputcollid != collation)
				continue;
		}
		else
		{
			bool		truth;
			Node	   *column = boolean_column(clause, &kind, &truth);

			attnum = prunable_column(column, rel, &opfamily, &opcintype, &collation);
			if (attnum == InvalidAttrNumber)
				continue;
			if (kind == STRATA_PRUNE_OPERATOR)
			{
				op = BooleanEqualOperator;
				value = makeBoolConst(truth, false);
			}
		}

		if (value != NULL &&
			(!is_prunable_operator(op, opfamily, opcintype, kind == STRATA_PRUNE_ANY) ||
			 !is_prunable_value(root, rel, value)))
			continue;

		*attrs = lappend_int(*attrs, attnum);
		*kinds = lappend_int(*kinds, kind);
		*ops = lappend_oid(*ops, op);
		if (value != NULL)
			*exprs = lappend(*exprs, value);
	}
}

/*
 * Prepare the clauses chosen by strata_prune_plan; NULL when there are none.
 * exprs are initialised with parent, in CurrentMemoryContext.
 */
StrataPrune *
strata_prune_begin(StrataStore *store, List *attrs, List *kinds, List *ops, List *exprs,
				   PlanState *parent)
{
	StrataPrune *prune;
	ListCell   *attr;
	ListCell   *kind;
	ListCell   *op;
	ListCell   *expr = list_head(exprs);

	if (attrs == NIL)
		return NULL;

	prune = palloc0(offsetof(StrataPrune, clauses) + list_length(attrs) * sizeof(PruneClause));

	forthree(attr, attrs, kind, kinds, op, ops)
	{
		PruneClause *clause = &prune->clauses[prune->nclauses++];
		Form_pg_attribute att;
		TypeCacheEntry *typentry;
		Oid			lefttype;
		Oid			valuetype;

		clause->attnum = lfirst_int(attr);
		clause->kind = lfirst_int(kind);
		if (clause->kind == STRATA_PRUNE_NULL || clause->kind == STRATA_PRUNE_NOT_NULL)
			continue;

		att = TupleDescAttr(store->desc, clause->attnum - 1);
		clause->collation = att->attcollation;
		typentry = lookup_type_cache(getBaseType(att->atttypid), TYPECACHE_BTREE_OPFAMILY);
		get_op_opfamily_properties(lfirst_oid(op), typentry->btree_opf, false,
								   &clause->strategy, &lefttype, &valuetype);
		fmgr_info(get_opfamily_proc(typentry->btree_opf, lefttype, valuetype, BTORDER_PROC),
				  &clause->cmp);
		if (clause->kind == STRATA_PRUNE_ANY)
			fmgr_info(get_opfamily_proc(typentry->btree_opf, valuetype, valuetype, BTORDER_PROC),
					  &clause->value_cmp);

		/* a polymorphic operator says nothing of its value's type, the value does */
		if (IsPolymorphicType(valuetype))
			valuetype = exprType((Node *) lfirst(expr));
		get_typlenbyval(valuetype, &clause->valuelen, &clause->valuebyval);

		clause->expr = ExecInitExpr((Expr *) lfirst(expr), parent);
		expr = lnext(exprs, expr);
	}

	return prune;
}

/* The least and greatest of an array's elements that are not null, if any. */
static void
evaluate_array(PruneClause *clause, ArrayType *array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			nelements;
	int16		typlen;
	bool		typbyval;
	char		typalign;

	/* the operator's type may be one that the elements' is coercible to */
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &elements, &nulls, &nelements);

	for (int i = 0; i < nelements; i++)
	{
		if (nulls[i])
			continue;
		if (clause->state == PRUNE_NOTHING_PASSES)
		{
			clause->low = clause->high = elements[i];
			clause->state = PRUNE_RANGE;
			continue;
		}
		if (DatumGetInt32(FunctionCall2Coll(&clause->value_cmp, clause->collation,
											elements[i], clause->low)) < 0)
			clause->low = elements[i];
		if (DatumGetInt32(FunctionCall2Coll(&clause->value_cmp, clause->collation,
											elements[i], clause->high)) > 0)
			clause->high = elements[i];
	}
}

/*
 * Compute the clauses' values for a (re)start of the scan; they live in mcxt.
 */
void
strata_prune_evaluate(StrataPrune *prune, ExprContext *econtext, MemoryContext mcxt)
{
	for (int i = 0; i < prune->nclauses; i++)
	{
		PruneClause *clause = &prune->clauses[i];
		MemoryContext oldcxt;
		Datum		value;
		bool		isnull;

		if (clause->expr == NULL)
			continue;

		clause->state = PRUNE_NOTHING_PASSES;
		value = ExecEvalExprSwitchContext(clause->expr, econtext, &isnull);
		if (isnull)
			continue;

		oldcxt = MemoryContextSwitchTo(mcxt);
		if (clause->kind == STRATA_PRUNE_ANY)
			evaluate_array(clause, DatumGetArrayTypePCopy(value));
		else
		{
			clause->low = datumCopy(value, clause->valuebyval, clause->valuelen);
			clause->high = clause->low;
			clause->state = PRUNE_RANGE;
		}
		MemoryContextSwitchTo(oldcxt);
	}
}

/* May a value between zone's minimum and maximum pass the clause? */
static bool
may_pass(PruneClause *clause, const StrataZone *zone)
{
	int			min_low;
	int			max_high;

	min_low = DatumGetInt32(FunctionCall2Coll(&clause->cmp, clause->collation,
											  zone->min, clause->high));
	max_high = DatumGetInt32(FunctionCall2Coll(&clause->cmp, clause->collation,
											   zone->max, clause->low));

	switch (clause->strategy)
	{
		case BTLessStrategyNumber:
			return min_low < 0;
		case BTLessEqualStrategyNumber:
			return min_low <= 0;
		case BTEqualStrategyNumber:
			return min_low <= 0 && max_high >= 0;
		case BTGreaterEqualStrategyNumber:
			return max_high >= 0;
		case BTGreaterStrategyNumber:
			return max_high > 0;
	}
	return true;
}

/*
 * StrataSkipGroup: can no row of this base row group pass?
 */
bool
strata_prune_skip(StrataView *view, const StrataRowGroup *group, void *arg)
{
	StrataPrune *prune = (StrataPrune *) arg;

	for (int i = 0; i < prune->nclauses; i++)
	{
		PruneClause *clause = &prune->clauses[i];
		Form_pg_attribute att = TupleDescAttr(view->store->desc, clause->attnum - 1);
		StrataZone	zone;

		if (clause->expr != NULL && clause->state == PRUNE_NOTHING_PASSES)
			return true;

		if (group->zones == NULL)
			continue;
		strata_zone_get(view->store, group->zones, clause->attnum, &zone);
		if (!zone.known || zone.collation != att->attcollation ||
			(zone.type != att->atttypid && zone.type != getBaseType(att->atttypid)))
			continue;

		switch (clause->kind)
		{
			case STRATA_PRUNE_NULL:
				if (!zone.has_null && !zone.all_null)
					return true;
				break;
			case STRATA_PRUNE_NOT_NULL:
				if (zone.all_null)
					return true;
				break;
			case STRATA_PRUNE_OPERATOR:
			case STRATA_PRUNE_ANY:
				if (zone.all_null || !may_pass(clause, &zone))
					return true;
				break;
		}
	}

	return false;
}

/*
 * The prune clauses of a plan as expressions, for EXPLAIN.
 */
List *
strata_prune_describe(ForeignScan *plan, TupleDesc desc)
{
	List	   *result = NIL;
	List	   *exprs;
	ListCell   *attr;
	ListCell   *kind;
	ListCell   *op;
	ListCell   *expr;

	exprs = list_copy_tail(plan->fdw_exprs,
						   list_length(list_nth(plan->fdw_private, STRATA_SCAN_LOOKUP_OPS)));
	expr = list_head(exprs);

	forthree(attr, list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_ATTRS),
			 kind, list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_KINDS),
			 op, list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_OPS))
	{
		Form_pg_attribute att = TupleDescAttr(desc, lfirst_int(attr) - 1);
		Var		   *var = makeVar(plan->scan.scanrelid, att->attnum, att->atttypid,
								  att->atttypmod, att->attcollation, 0);

		switch ((StrataPruneKind) lfirst_int(kind))
		{
			case STRATA_PRUNE_OPERATOR:
				result = lappend(result,
								 make_opclause(lfirst_oid(op), BOOLOID, false, (Expr *) var,
											   lfirst(expr), InvalidOid, att->attcollation));
				expr = lnext(exprs, expr);
				break;
			case STRATA_PRUNE_ANY:
				{
					ScalarArrayOpExpr *any = makeNode(ScalarArrayOpExpr);

					any->opno = lfirst_oid(op);
					any->useOr = true;
					any->inputcollid = att->attcollation;
					any->args = list_make2(var, lfirst(expr));
					any->location = -1;
					result = lappend(result, any);
					expr = lnext(exprs, expr);
					break;
				}
			case STRATA_PRUNE_NULL:
			case STRATA_PRUNE_NOT_NULL:
				{
					NullTest   *test = makeNode(NullTest);

					test->arg = (Expr *) var;
					test->nulltesttype =
						lfirst_int(kind) == STRATA_PRUNE_NULL ? IS_NULL : IS_NOT_NULL;
					test->location = -1;
					result = lappend(result, test);
					break;
				}
		}
	}

	return result;
}
