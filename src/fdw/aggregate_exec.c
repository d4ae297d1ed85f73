/*-------------------------------------------------------------------------
 *
 * aggregate_exec.c
 *	  The node that aggregates the rows of a scan below it.
 *
 * It does for each row what PostgreSQL's aggregate node does, in the order of
 * the scan: FILTER, then the transition function unless it is strict and an
 * argument null; a strict one without an initial value takes the first
 * argument for it.  What the functions see is an AggState with the fields that
 * the interface of aggregate functions reads (AggCheckCallContext and the
 * others in nodeAgg.c).  Final functions are called when a group is returned,
 * HAVING and the target list are the executor's.
 *
 * Rows come from the scan's own slot where it would only copy columns from
 * there, else through its ExecProcNode; so do they under EXPLAIN ANALYZE,
 * which counts them.
 *
 * As in PostgreSQL's node, who runs the query needs EXECUTE on the aggregate,
 * whose owner needs it on the functions, and on the equality functions of what
 * is grouped by.
 *
 * Memory: groups and states in the aggregate context, emptied after each
 * batch (callbacks that functions registered run then).  Transition functions
 * run in a context that is reset for each row, final functions in the node's
 * per-tuple context.
 *
 * IDENTIFICATION
 *	  src/fdw/aggregate_exec.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/aggregate.h"
#include "fdw/scan.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "executor/execExpr.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "parser/parse_agg.h"
#include "parser/parse_coerce.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

/* Where an argument comes from. */
typedef struct Argument
{
	int			column;			/* of the input, -1: a constant */
	Datum		value;
	bool		isnull;
} Argument;

/* A transition that aggregates share if arguments and functions are the same. */
typedef struct Transition
{
	AggStatePerTrans pertrans;
	int			filter;			/* column of the input, -1: none */
	int			nargs;
	Argument   *args;
} Transition;

typedef struct AggregateState
{
	AggState   *agg;			/* for the functions */
	int			naggs;
	AggStatePerAgg aggs;		/* in the order of the scan tuple */
	int			ntrans;
	Transition *trans;
	StrataGroups groups;
	bool		grouped;
	StrataGroup *only;			/* if not grouped */
	ForeignScanState *plain;	/* the scan, if its own slot will do */
	bool		read;			/* the rows of this batch */
	uint32		next;			/* slot of the table to return, if it has a group */
} AggregateState;

bool
strata_is_aggregate(const ForeignScan *plan)
{
	return plan->scan.scanrelid == 0 && outerPlan(plan) != NULL;
}

/* ---- start ---- */

static void
check_execute(Oid function, Oid role, ObjectType type)
{
	AclResult	result = strata_function_aclcheck(function, role, ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, type, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

static Datum
initial_value(HeapTuple tuple, Oid type, bool *isnull)
{
	Datum		literal = SysCacheGetAttr(AGGFNOID, tuple, Anum_pg_aggregate_agginitval, isnull);
	Oid			input;
	Oid			ioparam;

	if (*isnull)
		return (Datum) 0;
	getTypeInputInfo(type, &input, &ioparam);
	return OidInputFunctionCall(input, TextDatumGetCString(literal), ioparam, -1);
}

/* Which of an aggregate's arguments come from where. */
static void
set_arguments(Transition *trans, const Aggref *aggref, List *columns, const int *input_column)
{
	ListCell   *lc;
	ListCell   *lc2;

	trans->args = palloc0(Max(list_length(columns), 1) * sizeof(Argument));
	forboth(lc, aggref->args, lc2, columns)
	{
		Argument   *arg = &trans->args[trans->nargs++];

		arg->column = lfirst_int(lc2);
		if (arg->column >= 0)
			arg->column = input_column[arg->column];
		else
		{
			Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

			while (IsA(expr, RelabelType))
				expr = ((RelabelType *) expr)->arg;
			arg->value = castNode(Const, expr)->constvalue;
			arg->isnull = castNode(Const, expr)->constisnull;
		}
	}
}

static void
begin_transition(AggregateState *state, Transition *trans, Aggref *aggref,
				 Form_pg_aggregate form, HeapTuple tuple, Oid *types, int ntypes)
{
	AggStatePerTrans pertrans = trans->pertrans;
	Expr	   *expr;

	pertrans->aggref = aggref;
	pertrans->transfn_oid = form->aggtransfn;
	pertrans->aggCollation = aggref->inputcollid;
	pertrans->numInputs = pertrans->numTransInputs = ntypes;
	pertrans->initValue = initial_value(tuple, aggref->aggtranstype, &pertrans->initValueIsNull);
	get_typlenbyval(aggref->aggtranstype, &pertrans->transtypeLen, &pertrans->transtypeByVal);

	build_aggregate_transfn_expr(types, ntypes, 0, aggref->aggvariadic, aggref->aggtranstype,
								 aggref->inputcollid, form->aggtransfn, InvalidOid, &expr, NULL);
	fmgr_info(form->aggtransfn, &pertrans->transfn);
	fmgr_info_set_expr((Node *) expr, &pertrans->transfn);
	pertrans->transfn_fcinfo = palloc0(SizeForFunctionCallInfo(ntypes + 1));
	InitFunctionCallInfoData(*pertrans->transfn_fcinfo, &pertrans->transfn, ntypes + 1,
							 aggref->inputcollid, (Node *) state->agg, NULL);

	if (pertrans->transfn.fn_strict && pertrans->initValueIsNull &&
		(ntypes < 1 || !IsBinaryCoercible(types[0], aggref->aggtranstype)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("aggregate %u needs to have compatible input type and transition type",
						aggref->aggfnoid)));
}

static void
begin_aggregate(AggregateState *state, AggStatePerAgg peragg, Aggref *aggref, List *columns,
				int filter, const int *input_column)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	Oid			owner;
	Oid			types[FUNC_MAX_ARGS];
	int			ntypes = get_aggregate_argtypes(aggref, types);
	Transition *trans = NULL;

	if (!HeapTupleIsValid(tuple) || !HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	owner = ((Form_pg_proc) GETSTRUCT(proc))->proowner;
	ReleaseSysCache(proc);

	check_execute(aggref->aggfnoid, GetUserId(), OBJECT_AGGREGATE);
	peragg->aggref = aggref;
	peragg->finalfn_oid = form->aggfinalfn;
	peragg->numFinalArgs = form->aggfinalextra ? ntypes + 1 : 1;
	get_typlenbyval(aggref->aggtype, &peragg->resulttypeLen, &peragg->resulttypeByVal);
	if (OidIsValid(form->aggfinalfn))
	{
		Expr	   *expr;

		check_execute(form->aggfinalfn, owner, OBJECT_FUNCTION);
		build_aggregate_finalfn_expr(types, peragg->numFinalArgs, aggref->aggtranstype,
									 aggref->aggtype, aggref->inputcollid, form->aggfinalfn, &expr);
		fmgr_info(form->aggfinalfn, &peragg->finalfn);
		fmgr_info_set_expr((Node *) expr, &peragg->finalfn);
	}

	/* the planner found out which aggregates can share their states */
	for (int i = 0; i < state->ntrans && trans == NULL; i++)
	{
		if (state->trans[i].pertrans->aggref->aggtransno == aggref->aggtransno)
		{
			trans = &state->trans[i];
			trans->pertrans->aggshared = true;
		}
	}
	if (trans == NULL)
	{
		trans = &state->trans[state->ntrans];
		trans->pertrans = &state->agg->pertrans[state->ntrans++];
		trans->filter = filter >= 0 ? input_column[filter] : -1;
		check_execute(form->aggtransfn, owner, OBJECT_FUNCTION);
		begin_transition(state, trans, aggref, form, tuple, types, ntypes);
		set_arguments(trans, aggref, columns, input_column);
	}
	peragg->transno = trans - state->trans;
	ReleaseSysCache(tuple);
}

/*
 * The column of the input for each column of the outer plan; the input is the
 * scan's own slot if that has them all.  Sets state->plain then.
 */
static int *
map_input(AggregateState *state, PlanState *outer)
{
	List	   *tlist = outer->plan->targetlist;
	int		   *result = palloc(Max(list_length(tlist), 1) * sizeof(int));
	bool		plain = strata_scan_is_plain(outer);
	ListCell   *lc;

	foreach (lc, tlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (!IsA(expr, Var) || ((Var *) expr)->varattno <= 0)
			plain = false;
	}
	foreach (lc, tlist)
	{
		int			i = foreach_current_index(lc);

		result[i] = plain ? ((Var *) lfirst_node(TargetEntry, lc)->expr)->varattno - 1 : i;
	}
	state->plain = plain ? castNode(ForeignScanState, outer) : NULL;
	return result;
}

static FdwRoutine *aggregate_routine(void);

void
strata_aggregate_begin(ForeignScanState *node)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	EState	   *estate = node->ss.ps.state;
	PlanState  *outer = outerPlanState(node);
	List	   *arguments = list_nth(plan->fdw_private, STRATA_AGGREGATE_ARGUMENTS);
	List	   *filters = list_nth(plan->fdw_private, STRATA_AGGREGATE_FILTERS);
	List	   *columns = NIL;
	AggregateState *state = palloc0(sizeof(AggregateState));
	AggState   *agg = makeNode(AggState);
	int		   *input_column = map_input(state, outer);
	int			nkeys;
	ListCell   *lc;
	ListCell   *lc2;
	ListCell   *lc3;

	foreach (lc, list_nth(plan->fdw_private, STRATA_AGGREGATE_COLUMNS))
		columns = lappend_int(columns, input_column[lfirst_int(lc)]);
	foreach (lc, list_nth(plan->fdw_private, STRATA_AGGREGATE_OPS))
		check_execute(get_opcode(lfirst_oid(lc)), GetUserId(), OBJECT_FUNCTION);
	nkeys = list_length(columns);
	state->grouped = nkeys > 0;
	state->naggs = list_length(arguments);
	state->aggs = palloc0(Max(state->naggs, 1) * sizeof(AggStatePerAggData));
	state->trans = palloc0(Max(state->naggs, 1) * sizeof(Transition));

	state->agg = agg;
	agg->ss.ps.state = estate;
	agg->ss.ps.ps_ExprContext = node->ss.ps.ps_ExprContext;
	agg->curaggcontext = CreateWorkExprContext(estate);
	agg->tmpcontext = CreateExprContext(estate);
	agg->peragg = state->aggs;
	agg->pertrans = palloc0(Max(state->naggs, 1) * sizeof(AggStatePerTransData));

	forthree(lc, list_copy_tail(plan->fdw_scan_tlist, nkeys), lc2, arguments, lc3, filters)
		begin_aggregate(state, &state->aggs[foreach_current_index(lc)],
						castNode(Aggref, lfirst_node(TargetEntry, lc)->expr), lfirst(lc2),
						lfirst_int(lc3), input_column);

	state->groups.mcxt = agg->curaggcontext->ecxt_per_tuple_memory;
	state->groups.ntrans = state->ntrans;
	strata_groups_begin(&state->groups, columns,
						list_nth(plan->fdw_private, STRATA_AGGREGATE_OPS),
						list_nth(plan->fdw_private, STRATA_AGGREGATE_COLLATIONS),
						state->plain ?
							state->plain->ss.ss_ScanTupleSlot->tts_tupleDescriptor :
							ExecGetResultType(outer),
						input_column, list_length(outer->plan->targetlist), estate);

	node->fdw_state = state;
	node->fdwroutine = aggregate_routine();
}

/* ---- rows ---- */

static void
init_group(AggregateState *state, StrataGroup *group)
{
	for (int i = 0; i < state->ntrans; i++)
	{
		AggStatePerTrans pertrans = state->trans[i].pertrans;
		AggStatePerGroup pergroup = &group->trans[i];

		pergroup->transValueIsNull = pergroup->noTransValue = pertrans->initValueIsNull;
		pergroup->transValue = pertrans->initValue;
		if (!pertrans->initValueIsNull)
		{
			MemoryContext old = MemoryContextSwitchTo(state->groups.mcxt);

			pergroup->transValue = datumCopy(pertrans->initValue, pertrans->transtypeByVal,
											 pertrans->transtypeLen);
			MemoryContextSwitchTo(old);
		}
	}
}

/*
 * What to call a transition function with; false if a null keeps a strict one
 * from being called.
 */
static inline bool
set_call(const Transition *trans, FunctionCallInfo fcinfo, const Datum *values,
		 const bool *isnull)
{
	bool		anynull = false;

	for (int i = 0; i < trans->nargs; i++)
	{
		const Argument *arg = &trans->args[i];
		NullableDatum *target = &fcinfo->args[i + 1];

		if (arg->column >= 0)
		{
			target->value = values[arg->column];
			target->isnull = isnull[arg->column];
		}
		else
		{
			target->value = arg->value;
			target->isnull = arg->isnull;
		}
		anynull |= target->isnull;
	}
	return !anynull || !fcinfo->flinfo->fn_strict;
}

/* A row of group.  The current context is the one reset for each row. */
static inline void
advance(AggregateState *state, StrataGroup *group, const Datum *values, const bool *isnull)
{
	AggState   *agg = state->agg;

	for (int i = 0; i < state->ntrans; i++)
	{
		const Transition *trans = &state->trans[i];
		AggStatePerTrans pertrans = trans->pertrans;
		AggStatePerGroup pergroup = &group->trans[i];
		FunctionCallInfo fcinfo = pertrans->transfn_fcinfo;
		Datum		value;

		if (trans->filter >= 0 && (isnull[trans->filter] || !DatumGetBool(values[trans->filter])))
			continue;
		if (!set_call(trans, fcinfo, values, isnull))
			continue;
		if (unlikely(pertrans->transfn.fn_strict && pergroup->transValueIsNull))
		{
			/* the first argument, if there was no value yet; else it stays null */
			if (pergroup->noTransValue)
			{
				MemoryContext old = MemoryContextSwitchTo(state->groups.mcxt);

				pergroup->transValue = datumCopy(fcinfo->args[1].value, pertrans->transtypeByVal,
												 pertrans->transtypeLen);
				pergroup->transValueIsNull = pergroup->noTransValue = false;
				MemoryContextSwitchTo(old);
			}
			continue;
		}

		agg->curpertrans = pertrans;
		fcinfo->args[0].value = pergroup->transValue;
		fcinfo->args[0].isnull = pergroup->transValueIsNull;
		fcinfo->isnull = false;
		value = FunctionCallInvoke(fcinfo);
		if (!pertrans->transtypeByVal && value != pergroup->transValue)
		{
			MemoryContext old = CurrentMemoryContext;

			value = strata_copy_trans_value(agg, pertrans, value, fcinfo->isnull,
											pergroup->transValue, pergroup->transValueIsNull);
			MemoryContextSwitchTo(old);
		}
		pergroup->transValue = value;
		pergroup->transValueIsNull = fcinfo->isnull;
	}
}

/* The next row of the input, with all its columns. */
static inline TupleTableSlot *
next_row(AggregateState *state, PlanState *outer)
{
	TupleTableSlot *slot;

	if (state->groups.reading != NULL)
		return strata_groups_next_waiting(&state->groups);
	if (state->plain != NULL)
		return strata_plain_scan_next(state->plain) ? state->plain->ss.ss_ScanTupleSlot : NULL;
	slot = ExecProcNode(outer);
	if (TupIsNull(slot))
		return NULL;
	slot_getallattrs(slot);
	return slot;
}

/* Aggregate all rows of a batch, but for those that must wait. */
static void
read_batch(AggregateState *state, PlanState *outer)
{
	MemoryContext tmp = state->agg->tmpcontext->ecxt_per_tuple_memory;
	MemoryContext query = outer->state->es_query_cxt;
	MemoryContext old = MemoryContextSwitchTo(query);
	TupleTableSlot *slot;

	if (!state->grouped)
	{
		state->only = MemoryContextAlloc(state->groups.mcxt,
										 offsetof(StrataGroup, trans) +
											 state->ntrans * sizeof(AggStatePerGroupData));
		init_group(state, state->only);
	}
	while ((slot = next_row(state, outer)) != NULL)
	{
		StrataGroup *group = state->only;
		bool		created;
		uint32		hash = 0;

		MemoryContextSwitchTo(tmp);
		if (state->grouped)
		{
			group = strata_groups_find(&state->groups, slot->tts_values, slot->tts_isnull, &hash,
									   &created);
			if (unlikely(created))
				init_group(state, group);
		}
		if (likely(group != NULL))
			advance(state, group, slot->tts_values, slot->tts_isnull);
		else
			strata_groups_wait(&state->groups, slot->tts_values, slot->tts_isnull, hash);
		MemoryContextSwitchTo(query);
		if (!tmp->isReset || tmp->firstchild != NULL)
			MemoryContextReset(tmp);
	}
	MemoryContextSwitchTo(old);
}

/* ---- groups ---- */

/* The result of an aggregate; in the current context, or the group's. */
static Datum
finalize(AggState *agg, AggStatePerAgg peragg, const StrataGroup *group, bool *isnull)
{
	AggStatePerTrans pertrans = &agg->pertrans[peragg->transno];
	const AggStatePerGroupData *pergroup = &group->trans[peragg->transno];
	Datum		value = MakeExpandedObjectReadOnly(pergroup->transValue,
												   pergroup->transValueIsNull,
												   pertrans->transtypeLen);
	LOCAL_FCINFO(fcinfo, FUNC_MAX_ARGS);

	*isnull = pergroup->transValueIsNull;
	if (!OidIsValid(peragg->finalfn_oid))
		return value;

	/* arguments beside the state are there for their types only */
	if (peragg->finalfn.fn_strict && (*isnull || peragg->numFinalArgs > 1))
	{
		*isnull = true;
		return (Datum) 0;
	}
	agg->curperagg = peragg;
	InitFunctionCallInfoData(*fcinfo, &peragg->finalfn, peragg->numFinalArgs,
							 pertrans->aggCollation, (Node *) agg, NULL);
	fcinfo->args[0].value = value;
	fcinfo->args[0].isnull = *isnull;
	for (int i = 1; i < peragg->numFinalArgs; i++)
	{
		fcinfo->args[i].value = (Datum) 0;
		fcinfo->args[i].isnull = true;
	}
	value = FunctionCallInvoke(fcinfo);
	*isnull = fcinfo->isnull;
	agg->curperagg = NULL;
	return MakeExpandedObjectReadOnly(value, *isnull, peragg->resulttypeLen);
}

static void
store_group(AggregateState *state, const StrataGroup *group, TupleTableSlot *slot)
{
	int			nkeys = state->groups.ncolumns;

	for (int i = 0; i < nkeys; i++)
	{
		slot->tts_values[i] = group->keys[i];
		slot->tts_isnull[i] = group->nulls[i];
	}
	for (int i = 0; i < state->naggs; i++)
		slot->tts_values[nkeys + i] = finalize(state->agg, &state->aggs[i], group,
											   &slot->tts_isnull[nkeys + i]);
	ExecStoreVirtualTuple(slot);
}

/* The next group that was not returned yet; NULL: none is left of this batch. */
static StrataGroup *
next_group(AggregateState *state)
{
	if (!state->grouped)
		return state->next++ == 0 ? state->only : NULL;
	while (state->next < state->groups.nslots)
	{
		StrataGroup *group = state->groups.slots[state->next++].group;

		if (group != NULL)
			return group;
	}
	return NULL;
}

static TupleTableSlot *
aggregate_iterate(ForeignScanState *node)
{
	AggregateState *state = (AggregateState *) node->fdw_state;
	PlanState  *outer = outerPlanState(node);
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	for (;;)
	{
		StrataGroup *group;

		if (!state->read)
		{
			if (outer->chgParam != NULL)
				ExecReScan(outer);
			read_batch(state, outer);
			state->groups.batches = Max(state->groups.batches, 1);
			state->read = true;
			state->next = 0;
		}
		group = next_group(state);
		if (group != NULL)
		{
			store_group(state, group, slot);
			return slot;
		}
		/* once all is returned, it stays so */
		if (!state->grouped || state->groups.used == 0)
			return slot;
		ReScanExprContext(state->agg->curaggcontext);
		state->read = !strata_groups_next_batch(&state->groups);
	}
}

static bool
aggregate_recheck(ForeignScanState *node, TupleTableSlot *slot)
{
	/* core's loop around iterate has switched to this, the one around recheck has not */
	MemoryContext old = MemoryContextSwitchTo(node->ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	bool		found = !TupIsNull(aggregate_iterate(node));

	MemoryContextSwitchTo(old);
	return found;
}

static void
aggregate_rescan(ForeignScanState *node)
{
	AggregateState *state = (AggregateState *) node->fdw_state;

	ExecClearTuple(node->ss.ss_ScanTupleSlot);
	strata_groups_reset(&state->groups);
	ReScanExprContext(state->agg->curaggcontext);
	state->only = NULL;
	state->read = false;
}

static void
aggregate_end(ForeignScanState *node)
{
	aggregate_rescan(node);
}

/* ---- EXPLAIN ---- */

static void
aggregate_explain(ForeignScanState *node, ExplainState *es)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	AggregateState *state = (AggregateState *) node->fdw_state;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, NIL);
	List	   *keys = NIL;

	for (int i = 0; i < state->groups.ncolumns; i++)
		keys = lappend(keys,
					   deparse_expression((Node *) list_nth_node(TargetEntry, plan->fdw_scan_tlist, i)->expr,
										  context, es->verbose || strata_explain_relations(es) > 1,
										  false));
	ExplainPropertyText("Aggregate", state->grouped ? "hashed" : "plain", es);
	if (keys != NIL)
		ExplainPropertyList("Group Key", keys, es);
	/* none if it never ran here: parallel workers may have run it, but do not tell */
	if (es->analyze && state->grouped && state->groups.batches > 0)
		ExplainPropertyInteger("Batches", NULL, state->groups.batches, es);
}

/* What core calls of a node that has begun. */
static FdwRoutine *
aggregate_routine(void)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->IterateForeignScan = aggregate_iterate;
	routine->RecheckForeignScan = aggregate_recheck;
	routine->ReScanForeignScan = aggregate_rescan;
	routine->EndForeignScan = aggregate_end;
	routine->ExplainForeignScan = aggregate_explain;
	return routine;
}
