/*-------------------------------------------------------------------------
 *
 * scan_range.c
 *	  Executing scans in key order, or of a range of keys.
 *
 * The plan says which key columns are bounded by which operators; their values
 * are evaluated when the scan (re)starts.  With a null, or an array that holds
 * nothing else, no row compares.  The clauses stay with the executor, but for
 * those of arrays, which are checked again when a newer version is met only.
 *
 * IDENTIFICATION
 *	  src/fdw/scan_range.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/scan.h"

#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "utils/lsyscache.h"

void
strata_range_begin(StrataScanState *state, List *private, List *exprs, PlanState *parent)
{
	List	   *columns = list_nth(private, STRATA_SCAN_RANGE_COLUMNS);
	List	   *ops = list_nth(private, STRATA_SCAN_RANGE_OPS);
	List	   *arrays = list_nth(private, STRATA_SCAN_RANGE_ARRAYS);
	int			direction = intVal(list_nth(private, STRATA_SCAN_RANGE_DIRECTION));
	const StrataKey *key = &state->store->key;
	ListCell   *lc;
	ListCell   *lc2;
	int			i = 0;

	state->is_range = true;
	state->backward = direction < 0;
	state->nbounds = list_length(columns);
	state->bounds = palloc0(Max(state->nbounds, 1) * sizeof(StrataBound));
	state->key_values = palloc(Max(state->nbounds, 1) * sizeof(StrataValue));
	state->element_cmp = palloc0(Max(state->nbounds, 1) * sizeof(FmgrInfo));
	forboth(lc, columns, lc2, ops)
	{
		StrataBound *bound = &state->bounds[i];
		Oid			op = lfirst_oid(lc2);
		Oid			lefttype;

		bound->column = lfirst_int(lc);
		if (bound->column >= key->natts)
			elog(ERROR, "bound on column %d of a key with %d", bound->column, key->natts);
		get_op_opfamily_properties(op, key->btree_opfamily[bound->column], false,
								   &bound->strategy, &lefttype, &bound->subtype);
		bound->proc = get_opcode(op);
		if (list_member_int(arrays, i))
			fmgr_info(get_opfamily_proc(key->btree_opfamily[bound->column], bound->subtype,
										bound->subtype, BTORDER_PROC),
					  &state->element_cmp[i]);
		strata_value_begin(&state->key_values[i], list_nth(exprs, i), parent);
		i++;
	}
}

/* (Re)start: evaluate the bounds. */
void
strata_range_start(StrataScanState *state, ExprContext *econtext)
{
	MemoryContext oldcxt;

	for (int i = 0; i < state->nbounds; i++)
	{
		StrataBound *bound = &state->bounds[i];

		if (!strata_value_evaluate(&state->key_values[i], econtext, state->restart_mcxt,
								   &bound->value))
			return;
		if (OidIsValid(state->element_cmp[i].fn_oid))
		{
			bound->elements = strata_array_elements(DatumGetArrayTypeP(bound->value),
													&state->element_cmp[i],
													state->store->key.collation[bound->column],
													state->restart_mcxt, &bound->nelements);
			if (bound->nelements == 0)
				return;
		}
	}

	oldcxt = MemoryContextSwitchTo(state->mcxt);
	state->ordered = strata_ordered_begin(state->view, state->needed, state->bounds,
										  state->nbounds, state->backward);
	MemoryContextSwitchTo(oldcxt);
}

bool
strata_range_next(StrataScanState *state, Datum *values, bool *isnull, ItemPointer tid)
{
	return state->ordered != NULL &&
		strata_ordered_next(state->ordered, values, isnull, tid);
}

void
strata_range_stop(StrataScanState *state)
{
	if (state->ordered != NULL)
		strata_ordered_end(state->ordered);
	state->ordered = NULL;
}

/* The bounds as clauses, for EXPLAIN. */
List *
strata_range_describe(ForeignScan *plan, TupleDesc desc)
{
	List	   *arrays = list_nth(plan->fdw_private, STRATA_SCAN_RANGE_ARRAYS);
	List	   *result = NIL;
	ListCell   *attr;
	ListCell   *op;
	ListCell   *expr;

	forthree(attr, list_nth(plan->fdw_private, STRATA_SCAN_RANGE_ATTRS),
			 op, list_nth(plan->fdw_private, STRATA_SCAN_RANGE_OPS),
			 expr, plan->fdw_exprs)
	{
		Form_pg_attribute att = TupleDescAttr(desc, lfirst_int(attr) - 1);
		Var		   *var = makeVar(plan->scan.scanrelid, att->attnum, att->atttypid,
								  att->atttypmod, att->attcollation, 0);

		result = lappend(result,
						 list_member_int(arrays, list_length(result)) ?
							 strata_array_clause(lfirst_oid(op), true, var, lfirst(expr)) :
							 make_opclause(lfirst_oid(op), BOOLOID, false, (Expr *) var,
										   lfirst(expr), InvalidOid, att->attcollation));
	}
	return result;
}
