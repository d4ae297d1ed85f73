/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  What EXPLAIN says of a scan: how rows are found, and under ANALYZE what
 *	  was read for them.
 *
 * IDENTIFICATION
 *	  src/fdw/explain.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/scan.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

/*
 * Parameters as $N: what they stand for is in the plan nodes above, which
 * core does not tell us, and deparsing says so of external ones only.
 */
static Node *
number_parameters(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param))
	{
		Param	   *param = copyObject((Param *) node);

		param->paramkind = PARAM_EXTERN;
		return (Node *) param;
	}
	return expression_tree_mutator(node, number_parameters, context);
}

static void
explain_clauses(const char *label, List *clauses, ForeignScanState *node, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, NIL);

	Node	   *clause = number_parameters((Node *) make_ands_explicit(clauses), NULL);

	ExplainPropertyText(label, deparse_expression(clause, context, es->verbose, false), es);
}

/* As core shows the relation of a scan in its text format. */
static const char *
relation_name(Oid relid, ExplainState *es)
{
	return quote_qualified_identifier(es->verbose ? get_namespace_name(get_rel_namespace(relid)) : NULL,
									  get_rel_name(relid));
}

static void
explain_bytes(const char *label, uint64 bytes, ExplainState *es)
{
	if (es->format == EXPLAIN_FORMAT_TEXT)
		ExplainPropertyUInteger(label, "kB", (bytes + 1023) / 1024, es);
	else
		ExplainPropertyUInteger(label, NULL, bytes, es);
}

void
strataExplainForeignScan(ForeignScanState *node, ExplainState *es)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	StrataScanState *state = (StrataScanState *) node->fdw_state;
	StrataLayer layer = intVal(list_nth(plan->fdw_private, STRATA_SCAN_LAYER));

	Oid			count_of = intVal(list_nth(plan->fdw_private, STRATA_SCAN_COUNT_OF));

	if (OidIsValid(count_of))
		ExplainPropertyText("Count From Manifest", relation_name(count_of, es), es);
	else if (list_nth(plan->fdw_private, STRATA_SCAN_LOOKUP_OPS) != NIL)
		explain_clauses("Key Lookup", plan->fdw_recheck_quals, node, es);
	else if (intVal(list_nth(plan->fdw_private, STRATA_SCAN_RANGE_DIRECTION)) != 0)
	{
		List	   *bounds = strata_range_describe(plan, RelationGetDescr(node->ss.ss_currentRelation));

		ExplainPropertyText("Key Order",
							intVal(list_nth(plan->fdw_private, STRATA_SCAN_RANGE_DIRECTION)) < 0 ?
								"backward" :
								"forward",
							es);
		if (bounds != NIL)
			explain_clauses("Key Range", bounds, node, es);
	}
	else
	{
		List	   *prune = strata_prune_describe(plan, RelationGetDescr(node->ss.ss_currentRelation));

		ExplainPropertyText("Scan",
							layer == STRATA_LAYER_WAL ? "wal" :
							layer == STRATA_LAYER_BASE ? "base" :
														 "all",
							es);
		if (prune != NIL)
			explain_clauses("Zone Map Filter", prune, node, es);
	}

	if (es->analyze && state != NULL)
	{
		StrataReadStats stats = strata_scan_stats(state);

		ExplainPropertyUInteger("Generations Visited", NULL, stats.generations, es);
		ExplainPropertyUInteger("Row Groups Read", NULL, stats.groups_read, es);
		ExplainPropertyUInteger("Row Groups Skipped", NULL, stats.groups_skipped, es);
		ExplainPropertyUInteger("Index Probes", NULL, stats.index_probes, es);
		ExplainPropertyUInteger("Superseded Rows", NULL, stats.superseded, es);
		explain_bytes("Bytes Read", stats.bytes_read, es);
		explain_bytes("Bytes Decompressed", stats.bytes_decoded, es);
	}
}
