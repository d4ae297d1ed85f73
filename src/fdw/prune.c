/*-------------------------------------------------------------------------
 *
 * prune.c
 *	  Passing over base row groups whose zone maps exclude a scan's clauses.
 *
 * The clauses stay with the executor; here they only say which row groups
 * cannot hold a row that passes.  Asked about base row groups alone: a
 * pending row must be seen whatever it holds, for it may hide a base row.
 *
 * A comparison counts when its operator belongs to the column's default B-tree
 * family and compares under the column's own collation, a clause when it may be
 * looked at before a security barrier's clauses.  A zone counts when it was
 * recorded with the column's present type and collation.
 *
 * Clauses are kept as terms, AND and OR before their arguments.
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
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* What is known of a term's value in this (re)start of the scan. */
typedef enum PruneValue
{
	PRUNE_NOTHING_PASSES,		/* null: no row passes */
	PRUNE_EVERYTHING_PASSES,	/* ALL of no elements */
	PRUNE_COMPARE				/* with the elements */
} PruneValue;

typedef struct PruneTerm
{
	StrataPruneKind kind;
	int			next;			/* the term behind this one and what is in it */
	AttrNumber	attnum;			/* 0 for AND and OR */
	int			strategy;		/* of the operator */
	Oid			valuetype;		/* on its right */
	Oid			collation;

	/* the value side */
	StrataValue value;			/* expr NULL: there is none */
	FmgrInfo	cmp;			/* column against value */
	FmgrInfo	value_cmp;		/* value against value, of arrays only */

	PruneValue	state;
	Datum	   *elements;		/* of the array, ascending, none null; or the value */
	int			nelements;
} PruneTerm;

struct StrataPrune
{
	int			nterms;
	PruneTerm	terms[FLEXIBLE_ARRAY_MEMBER];
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
	return !array || strata_array_is_sortable(opfamily, lefttype, righttype);
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

/* Put a term behind the others; value NULL: it has none. */
static void
add_term(StrataPruneTerms *terms, StrataPruneKind kind, int attnum, Oid op, Node *value)
{
	terms->attrs = lappend_int(terms->attrs, attnum);
	terms->kinds = lappend_int(terms->kinds, kind);
	terms->ops = lappend_oid(terms->ops, op);
	if (value != NULL)
		terms->exprs = lappend(terms->exprs, value);
}

static void
add_terms(StrataPruneTerms *terms, const StrataPruneTerms *more)
{
	terms->attrs = list_concat(terms->attrs, more->attrs);
	terms->kinds = list_concat(terms->kinds, more->kinds);
	terms->ops = list_concat(terms->ops, more->ops);
	terms->exprs = list_concat(terms->exprs, more->exprs);
}

/* The comparison of a column with a value, or with an array's elements. */
static bool
add_comparison(PlannerInfo *root, const RelOptInfo *rel, StrataPruneKind kind, Node *left, Oid op,
			   Node *right, Oid inputcollid, StrataPruneTerms *terms)
{
	Oid			opfamily;
	Oid			opcintype;
	Oid			collation;
	AttrNumber	attnum = prunable_column(left, rel, &opfamily, &opcintype, &collation);

	if (attnum == InvalidAttrNumber && kind == STRATA_PRUNE_OPERATOR)
	{
		Node	   *swap = left;

		left = right;
		right = swap;
		op = get_commutator(op);
		attnum = prunable_column(left, rel, &opfamily, &opcintype, &collation);
	}
	if (attnum == InvalidAttrNumber || inputcollid != collation ||
		!is_prunable_operator(op, opfamily, opcintype, kind != STRATA_PRUNE_OPERATOR) ||
		!is_prunable_value(root, rel, right))
		return false;
	add_term(terms, kind, attnum, op, right);
	return true;
}

static bool
add_null_test(const RelOptInfo *rel, Node *column, StrataPruneKind kind, StrataPruneTerms *terms)
{
	Oid			opfamily;
	Oid			opcintype;
	Oid			collation;
	AttrNumber	attnum = prunable_column(column, rel, &opfamily, &opcintype, &collation);

	if (attnum == InvalidAttrNumber)
		return false;
	add_term(terms, kind, attnum, InvalidOid, NULL);
	return true;
}

/*
 * A clause that tests a column of type boolean without an operator, which is
 * also what the planner makes of = true and = false.
 */
static bool
add_boolean(PlannerInfo *root, const RelOptInfo *rel, Node *clause, StrataPruneTerms *terms)
{
	bool		value = true;
	bool		or_null = false;

	if (is_notclause(clause))
	{
		value = false;
		clause = (Node *) get_notclausearg(clause);
	}
	else if (IsA(clause, BooleanTest))
	{
		BooleanTest *test = (BooleanTest *) clause;

		clause = (Node *) test->arg;
		switch (test->booltesttype)
		{
			case IS_UNKNOWN:
				return add_null_test(rel, clause, STRATA_PRUNE_NULL, terms);
			case IS_NOT_UNKNOWN:
				return add_null_test(rel, clause, STRATA_PRUNE_NOT_NULL, terms);
			default:
				value = test->booltesttype == IS_TRUE || test->booltesttype == IS_NOT_FALSE;
				or_null = test->booltesttype == IS_NOT_TRUE || test->booltesttype == IS_NOT_FALSE;
		}
	}
	if (exprType(clause) == BOOLOID)
	{
		StrataPruneTerms compared = {0};

		if (!add_comparison(root, rel, STRATA_PRUNE_OPERATOR, clause, BooleanEqualOperator,
							makeBoolConst(value, false), InvalidOid, &compared))
			return false;
		if (or_null)
		{
			add_term(terms, STRATA_PRUNE_OR, 2, InvalidOid, NULL);
			add_null_test(rel, clause, STRATA_PRUNE_NULL, terms);
		}
		add_terms(terms, &compared);
		return true;
	}
	return false;
}

/* May computing a value, or one of a list, fail? */
static bool
may_fail(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_Const:
		case T_Param:
		case T_RelabelType:
		case T_SQLValueFunction:
		case T_ArrayExpr:
			break;
		case T_FuncExpr:
			if (((FuncExpr *) node)->args != NIL && !get_func_leakproof(((FuncExpr *) node)->funcid))
				return true;
			break;
		case T_OpExpr:
			set_opfuncid((OpExpr *) node);
			if (!get_func_leakproof(((OpExpr *) node)->opfuncid))
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, may_fail, context);
}

/*
 * Add what zone maps can judge of a clause: of AND one argument will do, of OR
 * it takes all.  False if there is nothing.
 *
 * Values are computed before the rows, but one argument may guard another one
 * against failing, as in v = 1 OR (d <> 0 AND v = 10 / d): below AND and OR
 * only values count that cannot fail.
 */
static bool
add_clause(PlannerInfo *root, const RelOptInfo *rel, Node *clause, StrataPruneTerms *terms)
{
	if (is_orclause(clause) || is_andclause(clause))
	{
		StrataPruneTerms found = {0};
		int			n = 0;
		ListCell   *lc;

		foreach (lc, ((BoolExpr *) clause)->args)
		{
			StrataPruneTerms one = {0};

			if (add_clause(root, rel, lfirst(lc), &one) && !may_fail((Node *) one.exprs, NULL))
			{
				add_terms(&found, &one);
				n++;
			}
			else if (is_orclause(clause))
				return false;
		}
		if (n > 1)
			add_term(terms, is_orclause(clause) ? STRATA_PRUNE_OR : STRATA_PRUNE_AND, n,
					 InvalidOid, NULL);
		add_terms(terms, &found);
		return n > 0;
	}
	if (IsA(clause, NullTest))
	{
		NullTest   *test = (NullTest *) clause;

		/* a row's own IS NULL looks into the row */
		return !test->argisrow &&
			add_null_test(rel, (Node *) test->arg,
						  test->nulltesttype == IS_NULL ? STRATA_PRUNE_NULL : STRATA_PRUNE_NOT_NULL,
						  terms);
	}
	if (IsA(clause, RowCompareExpr))
		clause = (Node *) strata_leading_comparison((RowCompareExpr *) clause);
	if (clause != NULL && is_opclause(clause))
	{
		OpExpr	   *opexpr = (OpExpr *) clause;

		return list_length(opexpr->args) == 2 &&
			add_comparison(root, rel, STRATA_PRUNE_OPERATOR, linitial(opexpr->args), opexpr->opno,
						   lsecond(opexpr->args), opexpr->inputcollid, terms);
	}
	if (clause != NULL && IsA(clause, ScalarArrayOpExpr))
	{
		ScalarArrayOpExpr *opexpr = (ScalarArrayOpExpr *) clause;

		return add_comparison(root, rel, opexpr->useOr ? STRATA_PRUNE_ANY : STRATA_PRUNE_ALL,
							  linitial(opexpr->args), opexpr->opno, lsecond(opexpr->args),
							  opexpr->inputcollid, terms);
	}
	return clause != NULL && add_boolean(root, rel, clause, terms);
}

/*
 * What zone maps can judge of scan_clauses (RestrictInfo).
 */
void
strata_prune_plan(PlannerInfo *root, RelOptInfo *rel, List *scan_clauses, StrataPruneTerms *terms)
{
	ListCell   *lc;

	memset(terms, 0, sizeof(StrataPruneTerms));
	foreach (lc, scan_clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!rinfo->pseudoconstant && restriction_is_securely_promotable(rinfo, rel))
			add_clause(root, rel, (Node *) rinfo->clause, terms);
	}
}

static void
prepare_comparison(PruneTerm *term, const StrataStore *store, Oid op, Expr *expr, PlanState *parent)
{
	Form_pg_attribute att = TupleDescAttr(store->desc, term->attnum - 1);
	TypeCacheEntry *typentry = lookup_type_cache(getBaseType(att->atttypid),
												 TYPECACHE_BTREE_OPFAMILY);
	Oid			lefttype;

	term->collation = att->attcollation;
	get_op_opfamily_properties(op, typentry->btree_opf, false, &term->strategy, &lefttype,
							   &term->valuetype);
	fmgr_info(get_opfamily_proc(typentry->btree_opf, lefttype, term->valuetype, BTORDER_PROC),
			  &term->cmp);
	if (term->kind != STRATA_PRUNE_OPERATOR)
		fmgr_info(get_opfamily_proc(typentry->btree_opf, term->valuetype, term->valuetype, BTORDER_PROC),
				  &term->value_cmp);

	strata_value_begin(&term->value, expr, parent);
}

/* Take over the term at i, and what is in it; returns the one behind. */
static int
begin_term(StrataPrune *prune, int i, const StrataStore *store, const StrataPruneTerms *terms,
		   ListCell **expr, PlanState *parent)
{
	PruneTerm  *term = &prune->terms[i];
	int			attnum = list_nth_int(terms->attrs, i);

	term->kind = list_nth_int(terms->kinds, i);
	term->next = i + 1;
	switch (term->kind)
	{
		case STRATA_PRUNE_AND:
		case STRATA_PRUNE_OR:
			for (int n = 0; n < attnum; n++)
				term->next = begin_term(prune, term->next, store, terms, expr, parent);
			break;
		case STRATA_PRUNE_NULL:
		case STRATA_PRUNE_NOT_NULL:
			term->attnum = attnum;
			break;
		default:
			term->attnum = attnum;
			prepare_comparison(term, store, list_nth_oid(terms->ops, i), lfirst(*expr), parent);
			*expr = lnext(terms->exprs, *expr);
	}
	return term->next;
}

static void
get_terms(const ForeignScan *plan, StrataPruneTerms *terms)
{
	terms->attrs = list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_ATTRS);
	terms->kinds = list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_KINDS);
	terms->ops = list_nth(plan->fdw_private, STRATA_SCAN_PRUNE_OPS);
	terms->exprs = plan->fdw_exprs;
}

/*
 * Prepare the terms of a scan that is neither a lookup nor a range; NULL when
 * there are none.  Values are initialised with parent, in CurrentMemoryContext.
 */
StrataPrune *
strata_prune_begin(const StrataStore *store, const ForeignScan *plan, PlanState *parent)
{
	StrataPrune *prune;
	StrataPruneTerms terms;
	ListCell   *expr;
	int			i = 0;

	get_terms(plan, &terms);
	if (terms.attrs == NIL)
		return NULL;

	prune = palloc0(offsetof(StrataPrune, terms) + list_length(terms.attrs) * sizeof(PruneTerm));
	prune->nterms = list_length(terms.attrs);
	expr = list_head(terms.exprs);
	while (i < prune->nterms)
		i = begin_term(prune, i, store, &terms, &expr, parent);
	return prune;
}

/* An array's elements in order.  A null is equal to nothing: ALL fails by it. */
static void
evaluate_array(PruneTerm *term, ArrayType *array, MemoryContext mcxt)
{
	if (term->kind == STRATA_PRUNE_ALL && array_contains_nulls(array))
		return;
	term->elements = strata_array_elements(array, &term->value_cmp, term->collation, mcxt,
										   &term->nelements);
	if (term->nelements > 0)
		term->state = PRUNE_COMPARE;
	else if (term->kind == STRATA_PRUNE_ALL)
		term->state = PRUNE_EVERYTHING_PASSES;
}

/*
 * Compute the terms' values for a (re)start of the scan; they live in mcxt.
 */
void
strata_prune_evaluate(StrataPrune *prune, ExprContext *econtext, MemoryContext mcxt)
{
	for (int i = 0; i < prune->nterms; i++)
	{
		PruneTerm  *term = &prune->terms[i];
		Datum		value;

		if (term->value.expr == NULL)
			continue;

		term->state = PRUNE_NOTHING_PASSES;
		if (!strata_value_evaluate(&term->value, econtext, mcxt, &value))
			continue;

		if (term->kind != STRATA_PRUNE_OPERATOR)
			evaluate_array(term, DatumGetArrayTypeP(value), mcxt);
		else
		{
			term->elements = MemoryContextAlloc(mcxt, sizeof(Datum));
			term->elements[0] = value;
			term->nelements = 1;
			term->state = PRUNE_COMPARE;
		}
	}
}

/* The term that says which values a column can have in rows that pass; NULL: none does. */
static const PruneTerm *
equality_of(const StrataPrune *prune, AttrNumber attnum)
{
	for (int i = 0; i < prune->nterms; i = prune->terms[i].next)
	{
		const PruneTerm *term = &prune->terms[i];

		if (term->attnum == attnum &&
			(term->kind == STRATA_PRUNE_OPERATOR || term->kind == STRATA_PRUNE_ANY) &&
			term->strategy == BTEqualStrategyNumber && term->state == PRUNE_COMPARE)
			return term;
	}
	return NULL;
}

/*
 * Bounds of the key's leading columns that all rows within have that pass; returns
 * how many.  They live as long as the values.
 */
int
strata_prune_key_bounds(const StrataPrune *prune, const StrataKey *key, StrataBound *bounds)
{
	int			n = 0;

	for (int column = 0; column < key->natts; column++)
	{
		const PruneTerm *term = equality_of(prune, key->attnum[column]);

		if (term == NULL)
			break;
		memset(&bounds[n], 0, sizeof(StrataBound));
		bounds[n].column = column;
		bounds[n].strategy = term->strategy;
		bounds[n].subtype = term->valuetype;
		bounds[n].elements = term->elements;
		bounds[n].nelements = term->nelements;
		n++;
	}
	return n;
}

static int
compare_value(PruneTerm *term, Datum columnvalue, Datum value)
{
	return DatumGetInt32(FunctionCall2Coll(&term->cmp, term->collation, columnvalue, value));
}

/* Does one of the elements lie between zone's minimum and maximum? */
static bool
has_element(PruneTerm *term, const StrataZone *zone)
{
	int			low = 0;
	int			high = term->nelements;

	/* the first that is not below the minimum */
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (compare_value(term, zone->min, term->elements[middle]) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < term->nelements && compare_value(term, zone->max, term->elements[low]) >= 0;
}

/* May a value between zone's minimum and maximum pass the comparison? */
static bool
may_pass(PruneTerm *term, const StrataZone *zone)
{
	bool		all = term->kind == STRATA_PRUNE_ALL;
	Datum		least = term->elements[0];
	Datum		greatest = term->elements[term->nelements - 1];

	switch (term->strategy)
	{
		case BTLessStrategyNumber:
			return compare_value(term, zone->min, all ? least : greatest) < 0;
		case BTLessEqualStrategyNumber:
			return compare_value(term, zone->min, all ? least : greatest) <= 0;
		case BTEqualStrategyNumber:
			return has_element(term, zone);
		case BTGreaterEqualStrategyNumber:
			return compare_value(term, zone->max, all ? greatest : least) >= 0;
		case BTGreaterStrategyNumber:
			return compare_value(term, zone->max, all ? greatest : least) > 0;
	}
	return true;
}

/* Can no row of the row group pass this term? */
static bool
term_excludes(StrataPrune *prune, int i, StrataView *view, const StrataRowGroup *group)
{
	PruneTerm  *term = &prune->terms[i];
	Form_pg_attribute att;
	StrataZone	zone;

	if (term->kind == STRATA_PRUNE_AND || term->kind == STRATA_PRUNE_OR)
	{
		/* one of AND's arguments excludes, all of OR's */
		bool		enough = term->kind == STRATA_PRUNE_AND;

		for (i++; i < term->next; i = prune->terms[i].next)
		{
			if (term_excludes(prune, i, view, group) == enough)
				return enough;
		}
		return !enough;
	}

	if (term->value.expr != NULL && term->state != PRUNE_COMPARE)
		return term->state == PRUNE_NOTHING_PASSES;

	if (group->zones == NULL)
		return false;
	att = TupleDescAttr(view->store->desc, term->attnum - 1);
	strata_zone_get(view->store, group->zones, term->attnum, &zone);
	if (!zone.known || zone.collation != att->attcollation ||
		(zone.type != att->atttypid && zone.type != getBaseType(att->atttypid)))
		return false;

	if (term->kind == STRATA_PRUNE_NULL)
		return !zone.has_null && !zone.all_null;
	if (term->kind == STRATA_PRUNE_NOT_NULL)
		return zone.all_null;
	return zone.all_null || !may_pass(term, &zone);
}

/*
 * StrataSkipGroup: can no row of this base row group pass?
 */
bool
strata_prune_skip(StrataView *view, const StrataRowGroup *group, void *arg)
{
	StrataPrune *prune = (StrataPrune *) arg;

	for (int i = 0; i < prune->nterms; i = prune->terms[i].next)
	{
		if (term_excludes(prune, i, view, group))
			return true;
	}
	return false;
}

/* The term at *i as an expression; moves *i and *expr on. */
static Expr *
describe_term(const StrataPruneTerms *terms, int *i, ListCell **expr, Index relid, TupleDesc desc)
{
	StrataPruneKind kind = list_nth_int(terms->kinds, *i);
	int			attnum = list_nth_int(terms->attrs, *i);
	Oid			op = list_nth_oid(terms->ops, *i);
	Form_pg_attribute att;
	Var		   *var;
	Expr	   *value;

	(*i)++;
	if (kind == STRATA_PRUNE_AND || kind == STRATA_PRUNE_OR)
	{
		List	   *args = NIL;

		for (int n = 0; n < attnum; n++)
			args = lappend(args, describe_term(terms, i, expr, relid, desc));
		return makeBoolExpr(kind == STRATA_PRUNE_AND ? AND_EXPR : OR_EXPR, args, -1);
	}

	att = TupleDescAttr(desc, attnum - 1);
	var = makeVar(relid, att->attnum, att->atttypid, att->atttypmod, att->attcollation, 0);
	if (kind == STRATA_PRUNE_NULL || kind == STRATA_PRUNE_NOT_NULL)
	{
		NullTest   *test = makeNode(NullTest);

		test->arg = (Expr *) var;
		test->nulltesttype = kind == STRATA_PRUNE_NULL ? IS_NULL : IS_NOT_NULL;
		test->location = -1;
		return (Expr *) test;
	}

	value = lfirst(*expr);
	*expr = lnext(terms->exprs, *expr);
	if (kind == STRATA_PRUNE_OPERATOR)
		return make_opclause(op, BOOLOID, false, (Expr *) var, value, InvalidOid,
							 att->attcollation);
	return strata_array_clause(op, kind == STRATA_PRUNE_ANY, var, value);
}

/*
 * The terms of a plan as expressions, for EXPLAIN.
 */
List *
strata_prune_describe(ForeignScan *plan, TupleDesc desc)
{
	StrataPruneTerms terms;
	List	   *result = NIL;
	ListCell   *expr;
	int			i = 0;

	get_terms(plan, &terms);
	expr = list_head(terms.exprs);
	while (i < list_length(terms.attrs))
		result = lappend(result, describe_term(&terms, &i, &expr, plan->scan.scanrelid, desc));
	return result;
}
