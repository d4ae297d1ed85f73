/*-------------------------------------------------------------------------
 *
 * value.c
 *	  Values and arrays that columns are compared with.
 *
 * IDENTIFICATION
 *	  src/fdw/value.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/scan.h"

#include "access/nbtree.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"

void
strata_value_begin(StrataValue *value, Expr *expr, PlanState *parent)
{
	value->expr = ExecInitExpr(expr, parent);
	get_typlenbyval(exprType((Node *) expr), &value->typlen, &value->typbyval);
}

bool
strata_value_evaluate(StrataValue *value, ExprContext *econtext, MemoryContext mcxt, Datum *result)
{
	bool		isnull;
	Datum		computed = ExecEvalExprSwitchContext(value->expr, econtext, &isnull);
	MemoryContext old;

	if (isnull)
		return false;

	/* what was just computed goes with the next tuple */
	old = MemoryContextSwitchTo(mcxt);
	if (value->typlen == -1)
		*result = PointerGetDatum(PG_DETOAST_DATUM_COPY(computed));
	else
		*result = datumCopy(computed, value->typbyval, value->typlen);
	MemoryContextSwitchTo(old);
	return true;
}

/*
 * B-tree families promise that the two orders are one, but cannot keep it where
 * the comparison depends on TimeZone: where clocks are put forward, timestamps
 * of the missing hour change places with later ones, or become equal to them,
 * once they are taken as timestamptz.
 */
bool
strata_array_is_sortable(Oid opfamily, Oid type, Oid elemtype)
{
	Oid			cmp;

	if (IsPolymorphicType(elemtype) ||
		!OidIsValid(get_opfamily_proc(opfamily, elemtype, elemtype, BTORDER_PROC)))
		return false;
	cmp = get_opfamily_proc(opfamily, type, elemtype, BTORDER_PROC);
	return OidIsValid(cmp) && func_volatile(cmp) == PROVOLATILE_IMMUTABLE;
}

typedef struct ElementOrder
{
	FmgrInfo   *cmp;
	Oid			collation;
} ElementOrder;

static int
compare_elements(const void *a, const void *b, void *arg)
{
	ElementOrder *order = (ElementOrder *) arg;

	return DatumGetInt32(FunctionCall2Coll(order->cmp, order->collation, *(const Datum *) a,
										   *(const Datum *) b));
}

Datum *
strata_array_elements(ArrayType *array, FmgrInfo *cmp, Oid collation, MemoryContext mcxt,
					  int *nelements)
{
	ElementOrder order = {cmp, collation};
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Datum	   *elements;
	bool	   *nulls;
	int			nall;
	int			n = 0;

	/* the operator's type may be one that the elements' is coercible to */
	get_typlenbyvalalign(ARR_ELEMTYPE(array), &typlen, &typbyval, &typalign);
	deconstruct_array(array, ARR_ELEMTYPE(array), typlen, typbyval, typalign,
					  &elements, &nulls, &nall);
	for (int i = 0; i < nall; i++)
	{
		if (!nulls[i])
			elements[n++] = elements[i];
	}
	nall = n;

	qsort_arg(elements, nall, sizeof(Datum), compare_elements, &order);
	n = 0;
	for (int i = 0; i < nall; i++)
	{
		if (n == 0 || compare_elements(&elements[n - 1], &elements[i], &order) != 0)
			elements[n++] = elements[i];
	}
	MemoryContextSwitchTo(old);
	*nelements = n;
	return elements;
}

Expr *
strata_array_clause(Oid op, bool any, Var *column, Expr *value)
{
	ScalarArrayOpExpr *clause = makeNode(ScalarArrayOpExpr);

	clause->opno = op;
	clause->useOr = any;
	clause->inputcollid = column->varcollid;
	clause->args = list_make2(column, value);
	clause->location = -1;
	return (Expr *) clause;
}
