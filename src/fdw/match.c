/*-------------------------------------------------------------------------
 *
 * match.c
 *	  Which clauses of a query say what the key is.
 *
 * A clause is ours only if its operator is the equality of the key column's
 * B-tree family (of any right-hand type), its collation is the key's, the
 * other side neither mentions our row nor is volatile, and looking at it
 * early does not show a row that a security barrier hides.  Everything else
 * stays with the executor.
 *
 * IDENTIFICATION
 *	  src/fdw/match.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/scan.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/supportnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "utils/lsyscache.h"

/* More sets of outer relations than this are not worth a plan each. */
#define MAX_OUTER_SETS	24

typedef struct KeyColumn
{
	const StrataKey *key;
	int			column;
} KeyColumn;

static bool
is_key_column(Node *node, const RelOptInfo *rel, const StrataKey *key, int column)
{
	/* a relabelling (varchar as text) does not change what is compared */
	while (node && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;

	return node && IsA(node, Var) &&
		((Var *) node)->varno == (int) rel->relid &&
		((Var *) node)->varlevelsup == 0 &&
		((Var *) node)->varattno == key->attnum[column];
}

/* The side that is not the key: known before our row is looked at? */
static bool
is_known_before(PlannerInfo *root, const RelOptInfo *rel, Node *node)
{
	return !bms_is_member(rel->relid, pull_varnos(root, node)) &&
		!contain_volatile_functions(node);
}

/*
 * Is op, with the key on its left, an equality that the key index and the key
 * hashes understand?  Sets *hashable to whether the latter do.
 */
static bool
is_key_equality(const StrataKey *key, int column, Oid op, bool array, bool *hashable)
{
	Oid			opcintype = get_opclass_input_type(key->btree_opclass[column]);
	int			strategy;
	Oid			lefttype;
	Oid			righttype;

	if (!op_in_opfamily(op, key->btree_opfamily[column]))
		return false;
	get_op_opfamily_properties(op, key->btree_opfamily[column], false,
							   &strategy, &lefttype, &righttype);
	if (strategy != BTEqualStrategyNumber || lefttype != opcintype || !op_strict(op))
		return false;

	/* an array's elements are sorted to find equal ones, and keys among them */
	if (array && !strata_array_is_sortable(key->btree_opfamily[column], lefttype, righttype))
		return false;

	*hashable = OidIsValid(strata_key_hash_function(key, column, op, righttype));
	return true;
}

/*
 * Does this clause fix a key column?  Fills match if so.
 */
bool
strata_match_key_clause(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, int column,
						RestrictInfo *rinfo, StrataKeyMatch *match)
{
	Oid			collation = key->collation[column];

	if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel))
		return false;

	match->rinfo = rinfo;
	match->commuted = false;
	if (is_opclause(rinfo->clause))
	{
		OpExpr	   *clause = (OpExpr *) rinfo->clause;
		Node	   *left;
		Node	   *right;

		if (list_length(clause->args) != 2 ||
			(OidIsValid(collation) && clause->inputcollid != collation))
			return false;
		left = linitial(clause->args);
		right = lsecond(clause->args);

		match->array = false;
		if (is_key_column(left, rel, key, column) && is_known_before(root, rel, right))
		{
			match->op = clause->opno;
			match->value = (Expr *) right;
		}
		else if (is_key_column(right, rel, key, column) && is_known_before(root, rel, left))
		{
			match->op = get_commutator(clause->opno);
			match->value = (Expr *) left;
			match->commuted = true;
		}
		else
			return false;
	}
	else if (IsA(rinfo->clause, ScalarArrayOpExpr))
	{
		ScalarArrayOpExpr *clause = (ScalarArrayOpExpr *) rinfo->clause;

		if (!clause->useOr || (OidIsValid(collation) && clause->inputcollid != collation))
			return false;
		if (!is_key_column(linitial(clause->args), rel, key, column) ||
			!is_known_before(root, rel, lsecond(clause->args)))
			return false;

		match->array = true;
		match->op = clause->opno;
		match->value = lsecond(clause->args);
	}
	else
		return false;

	return OidIsValid(match->op) &&
		is_key_equality(key, column, match->op, match->array, &match->hashable);
}

/* The clause of a match, with the key on its left. */
Expr *
strata_key_clause(const StrataKeyMatch *match)
{
	OpExpr	   *clause;

	if (!match->commuted)
		return match->rinfo->clause;

	clause = copyObject((OpExpr *) match->rinfo->clause);
	CommuteOpExpr(clause);
	return (Expr *) clause;
}

/*
 * Single values before arrays, hashable ones before others, short arrays before
 * long ones, else the first.
 */
static bool
is_better(PlannerInfo *root, const StrataKeyMatch *a, const StrataKeyMatch *b)
{
	if (a->array != b->array)
		return !a->array;
	if (a->hashable != b->hashable)
		return a->hashable;
	return a->array && strata_array_length(root, (Node *) a->value) <
		strata_array_length(root, (Node *) b->value);
}

/*
 * The best clause of both lists that fixes a key column; false if there is none.
 */
static bool
match_column(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, int column, List *clauses,
			 List *more_clauses, StrataKeyMatch *best)
{
	bool		found = false;

	for (int i = 0; i < 2; i++)
	{
		ListCell   *lc;

		foreach (lc, i == 0 ? clauses : more_clauses)
		{
			StrataKeyMatch match;

			if (strata_match_key_clause(root, rel, key, column, lfirst_node(RestrictInfo, lc),
										&match) &&
				(!found || is_better(root, &match, best)))
			{
				*best = match;
				found = true;
			}
		}
	}
	return found;
}

/*
 * Do the clauses of both lists fix every key column?  Fills matches if so.
 */
bool
strata_match_key(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, List *clauses,
				 List *more_clauses, StrataKeyMatches *matches)
{
	if (key->natts == 0)
		return false;

	for (int column = 0; column < key->natts; column++)
	{
		if (!match_column(root, rel, key, column, clauses, more_clauses,
						  &matches->column[column]))
			return false;
	}

	return true;
}

/*
 * Does this clause bound a key column?  Sets the operator with the key on its
 * left, its strategy, and the other side.
 */
static bool
match_bound(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, int column,
			RestrictInfo *rinfo, Oid *op, int *strategy, Expr **value)
{
	Oid			collation = key->collation[column];
	OpExpr	   *clause = (OpExpr *) rinfo->clause;
	Oid			lefttype;
	Oid			righttype;
	Node	   *left;
	Node	   *right;

	if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel) ||
		!is_opclause(clause) || list_length(clause->args) != 2 ||
		(OidIsValid(collation) && clause->inputcollid != collation))
		return false;

	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (is_key_column(left, rel, key, column) && is_known_before(root, rel, right))
	{
		*op = clause->opno;
		*value = (Expr *) right;
	}
	else if (is_key_column(right, rel, key, column) && is_known_before(root, rel, left))
	{
		*op = get_commutator(clause->opno);
		*value = (Expr *) left;
	}
	else
		return false;

	if (!OidIsValid(*op) || !op_strict(*op) ||
		!op_in_opfamily(*op, key->btree_opfamily[column]))
		return false;
	get_op_opfamily_properties(*op, key->btree_opfamily[column], false,
							   strategy, &lefttype, &righttype);
	return lefttype == get_opclass_input_type(key->btree_opclass[column]);
}

/*
 * What a row comparison says of its first columns alone: rows that are equal in
 * them may pass, by the others.
 */
Expr *
strata_leading_comparison(const RowCompareExpr *clause)
{
	Oid			opfamily = linitial_oid(clause->opfamilies);
	Oid			op = linitial_oid(clause->opnos);
	int			strategy;
	Oid			lefttype;
	Oid			righttype;

	get_op_opfamily_properties(op, opfamily, false, &strategy, &lefttype, &righttype);
	if (strategy == BTLessStrategyNumber)
		strategy = BTLessEqualStrategyNumber;
	else if (strategy == BTGreaterStrategyNumber)
		strategy = BTGreaterEqualStrategyNumber;
	op = get_opfamily_member(opfamily, lefttype, righttype, strategy);
	if (!OidIsValid(op))
		return NULL;
	return make_opclause(op, BOOLOID, false, linitial(clause->largs), linitial(clause->rargs),
						 InvalidOid, linitial_oid(clause->inputcollids));
}

/*
 * Conditions that the B-tree family understands and that follow from this
 * clause on a key column: from a row comparison, and, by the support function
 * of the clause's own function, from LIKE and regular expressions with a fixed
 * prefix, starts_with, subnets.  Whether they follow under the key's collation
 * is for that function to say.  The clause itself stays with the executor.
 */
static List *
derived_conditions(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, int column,
				   RestrictInfo *rinfo)
{
	SupportRequestIndexCondition request = {.type = T_SupportRequestIndexCondition};
	Oid			support;
	List	   *args;
	List	   *result = NIL;
	ListCell   *lc;

	if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel))
		return NIL;
	if (IsA(rinfo->clause, RowCompareExpr))
	{
		Expr	   *leading = strata_leading_comparison((RowCompareExpr *) rinfo->clause);

		return leading ? list_make1(make_simple_restrictinfo(root, leading)) : NIL;
	}
	if (is_opclause(rinfo->clause))
	{
		OpExpr	   *clause = (OpExpr *) rinfo->clause;

		set_opfuncid(clause);
		request.funcid = clause->opfuncid;
		args = clause->args;
	}
	else if (is_funcclause(rinfo->clause))
	{
		request.funcid = ((FuncExpr *) rinfo->clause)->funcid;
		args = ((FuncExpr *) rinfo->clause)->args;
	}
	else
		return NIL;

	support = get_func_support(request.funcid);
	if (!OidIsValid(support) || list_length(args) != 2)
		return NIL;
	if (is_key_column(linitial(args), rel, key, column) &&
		is_known_before(root, rel, lsecond(args)))
		request.indexarg = 0;
	else if (is_key_column(lsecond(args), rel, key, column) &&
			 is_known_before(root, rel, linitial(args)))
		request.indexarg = 1;
	else
		return NIL;

	request.root = root;
	request.node = (Node *) rinfo->clause;
	request.index = linitial_node(IndexOptInfo, rel->indexlist);
	request.indexcol = column;
	request.opfamily = key->btree_opfamily[column];
	request.indexcollation = key->collation[column];
	request.lossy = true;
	foreach (lc, (List *) DatumGetPointer(OidFunctionCall1(support, PointerGetDatum(&request))))
		result = lappend(result, make_simple_restrictinfo(root, (Expr *) lfirst(lc)));
	return result;
}

/*
 * Add "column operator value" to bounds.  An equality takes the place of what
 * was found of the column before.
 */
static void
add_bound(StrataKeyBounds *bounds, int column, Oid op, bool equality, Expr *value,
		  RestrictInfo *rinfo)
{
	while (equality && bounds->columns != NIL && llast_int(bounds->columns) == column)
	{
		bounds->columns = list_delete_last(bounds->columns);
		bounds->ops = list_delete_last(bounds->ops);
		bounds->values = list_delete_last(bounds->values);
		bounds->rinfos = list_delete_last(bounds->rinfos);
	}
	bounds->columns = lappend_int(bounds->columns, column);
	bounds->ops = lappend_oid(bounds->ops, op);
	bounds->values = lappend(bounds->values, value);
	bounds->rinfos = lappend(bounds->rinfos, rinfo);
}

/*
 * Add to bounds what a clause, or what follows from it, says of a key column;
 * true when it is an equality.
 */
static bool
add_bounds(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, int column,
		   RestrictInfo *rinfo, bool derived, StrataKeyBounds *bounds)
{
	int			strategy;
	Oid			op;
	Expr	   *value;

	if (match_bound(root, rel, key, column, rinfo, &op, &strategy, &value))
	{
		add_bound(bounds, column, op, strategy == BTEqualStrategyNumber, value, rinfo);
		return strategy == BTEqualStrategyNumber;
	}

	if (!derived)
	{
		ListCell   *lc;

		foreach (lc, derived_conditions(root, rel, key, column, rinfo))
		{
			if (add_bounds(root, rel, key, column, lfirst_node(RestrictInfo, lc), true, bounds))
				return true;
		}
	}
	return false;
}

bool
strata_match_bounds(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key, List *clauses,
					List *more_clauses, int max_arrays, StrataKeyBounds *bounds)
{
	StrataKeyMatch match;
	bool		equal = true;

	memset(bounds, 0, sizeof(StrataKeyBounds));
	for (int column = 0; column < key->natts && equal; column++)
	{
		equal = false;
		for (int i = 0; i < 2 && !equal; i++)
		{
			ListCell   *lc;

			foreach (lc, i == 0 ? clauses : more_clauses)
			{
				equal = add_bounds(root, rel, key, column, lfirst_node(RestrictInfo, lc), false,
								   bounds);
				if (equal)
					break;
			}
		}
		if (!equal && list_length(bounds->arrays) < max_arrays &&
			match_column(root, rel, key, column, clauses, more_clauses, &match))
		{
			Assert(match.array);
			add_bound(bounds, column, match.op, true, match.value, match.rinfo);
			bounds->arrays = lappend_int(bounds->arrays, list_length(bounds->columns) - 1);
			equal = true;
		}
		if (equal)
			bounds->nequal++;
	}
	return bounds->columns != NIL;
}

/* generate_implied_equalities_for_column: is em the key column? */
static bool
ec_member_is_key_column(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec,
						EquivalenceMember *em, void *arg)
{
	KeyColumn  *column = (KeyColumn *) arg;
	const StrataKey *key = column->key;

	if (!list_member_oid(ec->ec_opfamilies, key->btree_opfamily[column->column]))
		return false;
	if (OidIsValid(key->collation[column->column]) &&
		ec->ec_collation != key->collation[column->column])
		return false;

	return is_key_column((Node *) em->em_expr, rel, key, column->column);
}

static bool
relids_member(List *sets, Relids relids)
{
	ListCell   *lc;

	foreach (lc, sets)
	{
		if (bms_equal((Relids) lfirst(lc), relids))
			return true;
	}
	return false;
}

/*
 * Add the outer relations of a join clause for a key column, alone and
 * together with what other columns' clauses need.
 */
static List *
add_outer_rels(List *sets, RelOptInfo *rel, const StrataKey *key, RestrictInfo *rinfo)
{
	Relids		relids;
	int			nsets = list_length(sets);

	if (!join_clause_is_movable_to(rinfo, rel))
		return sets;
	relids = bms_difference(rinfo->clause_relids, rel->relids);
	if (bms_is_empty(relids) || relids_member(sets, relids))
		return sets;

	for (int i = 0; key->natts > 1 && i < nsets; i++)
	{
		Relids		both = bms_union(relids, (Relids) list_nth(sets, i));

		if (list_length(sets) < MAX_OUTER_SETS && !relids_member(sets, both))
			sets = lappend(sets, both);
	}
	if (list_length(sets) < MAX_OUTER_SETS && !relids_member(sets, relids))
		sets = lappend(sets, relids);

	return sets;
}

/*
 * The sets of other relations (Relids) whose rows may fix the key by join
 * clauses.  Whether a set really fixes all of it is for the caller to see,
 * from the clauses that a path with those outer relations would get.
 */
List *
strata_match_outer_rels(PlannerInfo *root, RelOptInfo *rel, const StrataKey *key)
{
	List	   *sets = NIL;

	for (int column = 0; column < key->natts; column++)
	{
		ListCell   *lc;

		foreach (lc, rel->joininfo)
		{
			RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
			StrataKeyMatch match;

			if (strata_match_key_clause(root, rel, key, column, rinfo, &match))
				sets = add_outer_rels(sets, rel, key, rinfo);
		}

		/* most equalities live in equivalence classes, not in joininfo */
		if (rel->has_eclass_joins)
		{
			KeyColumn	arg = {key, column};
			List	   *clauses;

			clauses = generate_implied_equalities_for_column(root, rel, ec_member_is_key_column,
															 &arg, rel->lateral_referencers);
			foreach (lc, clauses)
				sets = add_outer_rels(sets, rel, key, lfirst_node(RestrictInfo, lc));
		}
	}

	return sets;
}
