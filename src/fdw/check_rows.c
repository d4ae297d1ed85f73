/*-------------------------------------------------------------------------
 *
 * check_rows.c
 *	  Do the rows of a table satisfy what ALTER TABLE demands of them?
 *
 * One scan of the columns that the checks name, as of a snapshot taken now, as
 * ALTER TABLE scans a heap: what this transaction wrote counts, and so does
 * what others committed after its own snapshot was taken.  Which checks there
 * are, and what is raised, is manifest/checks.c's business.
 *
 * IDENTIFICATION
 *	  src/fdw/check_rows.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/fdw.h"
#include "manifest/lifecycle.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* What is to be evaluated for a check, over stored columns; NULL: nothing. */
static Node *
check_expression(Relation rel, const StrataRowCheck *check)
{
	Node	   *expr = check->expr;

	if (check->kind == STRATA_CHECK_NOT_NULL)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), check->attnum - 1);
		NullTest   *test;

		if (!strata_column_is_virtual(att))
			return NULL;
		test = makeNode(NullTest);
		test->arg = (Expr *) makeVar(1, check->attnum, att->atttypid, att->atttypmod,
									 att->attcollation, 0);
		test->nulltesttype = IS_NOT_NULL;
		test->location = -1;
		expr = (Node *) test;
	}
	return expr != NULL ? strata_expand_virtual(expr, rel, 1) : NULL;
}

/* The columns that a check looks at, added to needed. */
static Bitmapset *
add_columns(Bitmapset *needed, const StrataRowCheck *check, Node *expr, TupleDesc desc)
{
	Bitmapset  *attrs = NULL;
	int			i = -1;

	if (check->attnum > 0)
		needed = bms_add_member(needed, check->attnum);
	if (expr == NULL)
		return needed;

	pull_varattnos(expr, 1, &attrs);
	while ((i = bms_next_member(attrs, i)) >= 0)
	{
		AttrNumber	attnum = i + FirstLowInvalidHeapAttributeNumber;

		if (attnum > 0)
			needed = bms_add_member(needed, attnum);
		else if (attnum == InvalidAttrNumber)
		{
			for (int column = 0; column < desc->natts; column++)
			{
				if (!TupleDescAttr(desc, column)->attisdropped)
					needed = bms_add_member(needed, column + 1);
			}
		}
	}
	return needed;
}

static bool
satisfied(const StrataRowCheck *check, ExprState *state, ExprContext *econtext,
		  TupleTableSlot *slot)
{
	switch (check->kind)
	{
		case STRATA_CHECK_NOT_NULL:
		case STRATA_CHECK_DOMAIN_NOT_NULL:
			if (state != NULL)
				break;
			return !slot->tts_isnull[check->attnum - 1];
		case STRATA_CHECK_DOMAIN:
			econtext->domainValue_datum = slot->tts_values[check->attnum - 1];
			econtext->domainValue_isNull = slot->tts_isnull[check->attnum - 1];
			break;
		case STRATA_CHECK_CONSTRAINT:
		case STRATA_CHECK_PARTITION:
		case STRATA_CHECK_DEFAULT_PARTITION:
		case STRATA_CHECK_EXPRESSION:
			break;
	}
	return ExecCheck(state, econtext);
}

const StrataRowCheck *
strata_check_rows(Relation rel, List *checks)
{
	StrataStore *store = strata_store_open(RelationGetRelid(rel));
	Relation	storage = strata_storage_open(store, AccessShareLock);
	EState	   *estate = CreateExecutorState();
	ExprContext *econtext = GetPerTupleExprContext(estate);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	ExprState **states = palloc0(list_length(checks) * sizeof(ExprState *));
	const StrataRowCheck *violated = NULL;
	Bitmapset  *needed = NULL;
	Snapshot	snapshot;
	StrataView *view;
	StrataScan *scan;
	ItemPointerData tid;
	MemoryContext oldcxt;
	ListCell   *lc;

	foreach (lc, checks)
	{
		const StrataRowCheck *check = lfirst(lc);
		Node	   *expr = check_expression(rel, check);

		needed = add_columns(needed, check, expr, RelationGetDescr(rel));
		if (expr != NULL)
			states[foreach_current_index(lc)] = ExecPrepareExpr((Expr *) expr, estate);
	}

	strata_memtable_flush(RelationGetRelid(storage), InvalidCommandId);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	PushActiveSnapshot(snapshot);
	view = strata_view_begin(store, storage, snapshot, STRATA_LAYER_ALL);
	scan = strata_scan_begin(view, needed, NULL, NULL, NULL, 0);

	slot->tts_tableOid = RelationGetRelid(rel);
	memset(slot->tts_isnull, true, RelationGetDescr(rel)->natts * sizeof(bool));
	econtext->ecxt_scantuple = slot;

	oldcxt = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	while (violated == NULL && strata_scan_next(scan, slot->tts_values, slot->tts_isnull, &tid))
	{
		CHECK_FOR_INTERRUPTS();
		slot->tts_tid = tid;
		slot->tts_flags &= ~TTS_FLAG_EMPTY;
		slot->tts_nvalid = slot->tts_tupleDescriptor->natts;

		foreach (lc, checks)
		{
			if (!satisfied(lfirst(lc), states[foreach_current_index(lc)], econtext, slot))
			{
				violated = lfirst(lc);
				break;
			}
		}
		MemoryContextReset(CurrentMemoryContext);
	}
	MemoryContextSwitchTo(oldcxt);

	strata_scan_end(scan);
	strata_view_end(view);
	PopActiveSnapshot();
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	FreeExecutorState(estate);
	table_close(storage, NoLock);
	strata_store_close(store);
	return violated;
}
