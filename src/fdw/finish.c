/*-------------------------------------------------------------------------
 *
 * finish.c
 *	  What a statement put is written when it finishes.
 *
 * The executor tells the wrapper of the end of a ModifyTable only when it
 * cleans up.  By then EXPLAIN ANALYZE is printed, and what pg_stat_statements
 * and auto_explain record is read: they would show a statement without its
 * writing, its WAL and its waits for others that have its keys.  So the rows
 * are flushed before, after the AFTER triggers, and counted for the statement
 * and for the ModifyTable.  Cleaning up then finds nothing to flush.
 *
 * IDENTIFICATION
 *	  src/fdw/finish.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/fdw.h"

#include "executor/executor.h"
#include "executor/instrument.h"

static ExecutorFinish_hook_type previous_finish = NULL;

static void
finish_targets(List *targets)
{
	ListCell   *lc;

	foreach (lc, targets)
	{
		ResultRelInfo *rinfo = lfirst(lc);

		if (rinfo->ri_FdwRoutine != NULL && rinfo->ri_FdwState != NULL &&
			rinfo->ri_FdwRoutine->EndForeignModify == strataEndForeignModify)
			strata_modify_finish(rinfo);
	}
}

static void
executor_finish(QueryDesc *queryDesc)
{
	EState	   *estate = queryDesc->estate;

	if (previous_finish != NULL)
		previous_finish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);

	if (estate->es_opened_result_relations == NIL)
		return;
	if (queryDesc->totaltime != NULL)
		InstrStartNode(queryDesc->totaltime);
	finish_targets(estate->es_opened_result_relations);
	finish_targets(estate->es_tuple_routing_result_relations);
	if (queryDesc->totaltime != NULL)
		InstrStopNode(queryDesc->totaltime, 0);
}

void
strata_finish_init(void)
{
	previous_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
}
