/*-------------------------------------------------------------------------
 *
 * scan_exec.c
 *	  Executing scans and key lookups of foreign tables.  Ranges in key order
 *	  are scan_range.c's, locks on rows scan_lock.c's.
 *
 * When a scan begins, what earlier commands of this transaction hold in
 * memtables is flushed, so that the scan's snapshot finds it in the log; the
 * view itself (end of log, manifest) is made by the first fetch.  Between the
 * two nothing can appear that the snapshot sees: rows of other transactions
 * were in the log before the snapshot was taken, own rows of later commands
 * are not its to see.
 *
 * Locks: AccessShareLock on the storage relation after the foreign table
 * (locked by core), both to the end of the transaction.
 *
 * Memory: the state lives in a child of the query's context, values of lookup
 * and prune clauses in a context that is reset by each restart.  Fetching runs
 * in the executor's per-tuple context.
 *
 * IDENTIFICATION
 *	  src/fdw/scan_exec.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/aggregate.h"
#include "fdw/scan.h"

#include "access/nbtree.h"
#include "access/table.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * The command id of the statement that estate runs, or InvalidCommandId when
 * it cannot write and so has no memtable of its own.  (es_output_cid alone
 * does not tell: it is 0 both in a SELECT and in a first command.)
 */
static CommandId
writing_command(EState *estate)
{
	PlannedStmt *stmt = estate->es_plannedstmt;

	if (stmt != NULL && stmt->commandType == CMD_SELECT && !stmt->hasModifyingCTE)
		return InvalidCommandId;
	return estate->es_output_cid;
}

/*
 * Prepare comparing and hashing of the lookup values.  exprs: the value side
 * of each key column; arrays: which of them are arrays.
 */
static void
prepare_lookup(StrataScanState *state, List *ops, List *arrays, List *exprs, PlanState *parent)
{
	const StrataKey *key = &state->store->key;
	StrataKeyProbe *probe = &state->probe;
	bool		own_types = true;
	ListCell   *lc;
	ListCell   *lc2;
	int			column = 0;

	if (list_length(ops) != key->natts)
		elog(ERROR, "lookup of %d key columns in a store with %d", list_length(ops), key->natts);

	state->is_lookup = true;
	state->arrays = palloc0(Max(list_length(arrays), 1) * sizeof(StrataKeyArray));
	state->key_values = palloc(key->natts * sizeof(StrataValue));

	probe->key = key;
	probe->nkeys = key->natts;
	probe->values = palloc0(key->natts * sizeof(Datum));
	probe->subtype = palloc0(key->natts * sizeof(Oid));
	probe->eq = palloc0(key->natts * sizeof(FmgrInfo));
	probe->eqproc = palloc0(key->natts * sizeof(RegProcedure));
	probe->has_hash = true;

	forboth(lc, ops, lc2, exprs)
	{
		Oid			op = lfirst_oid(lc);
		Oid			lefttype;
		Oid			righttype;
		Oid			hash_proc;

		op_input_types(op, &lefttype, &righttype);
		probe->subtype[column] = righttype;
		probe->eqproc[column] = get_opcode(op);
		fmgr_info(probe->eqproc[column], &probe->eq[column]);
		strata_value_begin(&state->key_values[column], lfirst(lc2), parent);
		if (righttype != get_opclass_input_type(key->btree_opclass[column]))
			own_types = false;

		hash_proc = strata_key_hash_function(key, column, op, righttype);
		if (OidIsValid(hash_proc))
			fmgr_info(hash_proc, &state->hash_fn[column]);
		else
			probe->has_hash = false;

		if (list_member_int(arrays, column))
		{
			StrataKeyArray *array = &state->arrays[state->narrays++];

			array->column = column;
			fmgr_info(get_opfamily_proc(key->btree_opfamily[column], righttype, righttype,
										BTORDER_PROC),
					  &array->cmp);
		}
		column++;
	}

	/* values of the key's own types: the key's own equality serves */
	if (own_types)
	{
		probe->subtype = NULL;
		probe->eq = NULL;
		probe->eqproc = NULL;
	}
}

static TupleTableSlot *exec_plain_scan(PlanState *pstate);

static void
begin_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	EState	   *estate = node->ss.ps.state;
	Relation	rel = node->ss.ss_currentRelation;
	bool		is_count = intVal(list_nth(plan->fdw_private, STRATA_SCAN_COUNT_OF)) != 0;
	Index		scanrelid = plan->scan.scanrelid;
	List	   *lookup_ops = list_nth(plan->fdw_private, STRATA_SCAN_LOOKUP_OPS);
	StrataScanState *state;
	MemoryContext mcxt;
	MemoryContext oldcxt;
	ListCell   *lc;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;

	/* core opens the relation whose rows are returned, not one that is counted */
	if (is_count)
	{
		scanrelid = bms_singleton_member(strata_scan_relids(plan));
		rel = strata_range_table_relation(estate, scanrelid);
	}

	mcxt = AllocSetContextCreate(estate->es_query_cxt, "strata scan", ALLOCSET_DEFAULT_SIZES);
	oldcxt = MemoryContextSwitchTo(mcxt);
	state = palloc0(sizeof(StrataScanState));
	state->mcxt = mcxt;
	state->restart_mcxt = AllocSetContextCreate(mcxt, "strata scan values",
												ALLOCSET_SMALL_SIZES);
	state->layer = intVal(list_nth(plan->fdw_private, STRATA_SCAN_LAYER));
	state->snapshot = estate->es_snapshot;
	state->relid = RelationGetRelid(rel);
	state->is_count = is_count;
	state->count_kinds = list_nth(plan->fdw_private, STRATA_SCAN_COUNT_KINDS);

	if (state->layer == STRATA_LAYER_ALL)
		state->store = strata_store_open(RelationGetRelid(rel));
	else
	{
		Oid			role = strata_scan_role(plan, scanrelid, estate);
		Oid			store = strata_layer_store(RelationGetRelid(rel),
											   strata_options_get(RelationGetRelid(rel)));

		strata_layer_check_rights(store, OidIsValid(role) ? role : GetUserId());
		state->store = strata_store_open(store);
		state->map = strata_layer_map(rel, state->store);
		state->store_values = palloc0(state->store->desc->natts * sizeof(Datum));
		state->store_isnull = palloc0(state->store->desc->natts * sizeof(bool));
	}
	state->storage = strata_storage_open(state->store, AccessShareLock);

	foreach (lc, list_nth(plan->fdw_private, STRATA_SCAN_ATTRS))
	{
		AttrNumber	attnum = lfirst_int(lc);

		if (state->map != NULL)
			attnum = state->map[attnum - 1];
		state->needed = bms_add_member(state->needed, attnum);
	}

	if (lookup_ops != NIL)
		prepare_lookup(state, lookup_ops,
					   list_nth(plan->fdw_private, STRATA_SCAN_LOOKUP_ARRAYS),
					   plan->fdw_exprs, &node->ss.ps);
	else if (intVal(list_nth(plan->fdw_private, STRATA_SCAN_RANGE_DIRECTION)) != 0)
		strata_range_begin(state, plan->fdw_private, plan->fdw_exprs, &node->ss.ps);
	else
		state->prune = strata_prune_begin(state->store, plan, &node->ss.ps);

	strata_memtable_flush(RelationGetRelid(state->storage), writing_command(estate));

	/* a recheck locks nothing */
	if (estate->es_epq_active == NULL && !is_count)
	{
		strata_scan_prepare_locking(state, node, plan);
		if (!state->is_lookup && !state->is_range && state->map == NULL &&
			state->lock_mode == NoLock)
			node->ss.ps.ExecProcNode = exec_plain_scan;
	}

	node->fdw_state = state;
	MemoryContextSwitchTo(oldcxt);
}

void
strataBeginForeignScan(ForeignScanState *node, int eflags)
{
	if (strata_is_aggregate((ForeignScan *) node->ss.ps.plan))
		strata_aggregate_begin(node);
	else
		begin_scan(node, eflags);
}

/* ---- lookups ---- */

/*
 * Evaluate the lookup values for a (re)start; a null equals nothing.  The keys
 * of arrays are looked up in order, so that neighbours in the key index are
 * probed together.
 */
static void
start_lookup(StrataScanState *state, ExprContext *econtext)
{
	int			narrays = 0;

	state->have_key = false;
	for (int column = 0; column < state->probe.nkeys; column++)
	{
		Datum	   *value = &state->probe.values[column];

		if (!strata_value_evaluate(&state->key_values[column], econtext, state->restart_mcxt,
								   value))
			return;
		if (narrays < state->narrays && state->arrays[narrays].column == column)
		{
			StrataKeyArray *array = &state->arrays[narrays++];

			array->elements = strata_array_elements(DatumGetArrayTypeP(*value), &array->cmp,
													state->store->key.collation[column],
													state->restart_mcxt, &array->nelements);
			array->element = 0;
			if (array->nelements == 0)
				return;
			*value = array->elements[0];
		}
	}
	state->have_key = true;
}

static void
set_hash(StrataScanState *state)
{
	StrataKeyProbe *probe = &state->probe;

	if (!probe->has_hash)
		return;
	probe->hash = 0;
	for (int column = 0; column < probe->nkeys; column++)
	{
		uint32		hash;

		hash = DatumGetUInt32(FunctionCall1Coll(&state->hash_fn[column],
												probe->key->collation[column],
												probe->values[column]));
		probe->hash = strata_key_hash_combine(probe->hash, hash);
	}
}

/* Go to the next key, the last array's elements fastest; false behind the last. */
static bool
next_key(StrataScanState *state)
{
	for (int i = state->narrays; i-- > 0;)
	{
		StrataKeyArray *array = &state->arrays[i];
		bool		more = ++array->element < array->nelements;

		if (!more)
			array->element = 0;
		state->probe.values[array->column] = array->elements[array->element];
		if (more)
			return true;
	}
	return false;
}

static bool
next_looked_up(StrataScanState *state, Datum *values, bool *isnull, ItemPointer tid)
{
	while (state->have_key)
	{
		bool		found;

		CHECK_FOR_INTERRUPTS();
		set_hash(state);
		found = strata_lookup(state->lookup, &state->probe, values, isnull, tid);
		state->have_key = next_key(state);
		if (found)
			return true;
	}

	return false;
}

/* ---- scans ---- */

static void
start_scan(StrataScanState *state, ExprContext *econtext)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(state->mcxt);
	StrataBound bounds[INDEX_MAX_KEYS];
	int			nbounds = 0;

	if (state->prune != NULL)
	{
		strata_prune_evaluate(state->prune, econtext, state->restart_mcxt);
		nbounds = strata_prune_key_bounds(state->prune, &state->store->key, bounds);
	}

	if (state->layer == STRATA_LAYER_ALL)
		state->scan = strata_scan_begin(state->view, state->needed,
										state->prune ? strata_prune_skip : NULL, state->prune,
										bounds, nbounds);
	else
		state->scan = strata_scan_begin_layer(state->view, state->needed, state->layer);
	if (state->parallel != NULL)
		strata_scan_share(state->scan, &state->parallel->scan);
	MemoryContextSwitchTo(oldcxt);
}

static bool
next_scanned(StrataScanState *state, TupleTableSlot *slot, ItemPointer tid)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;

	if (state->map == NULL)
		return strata_scan_next(state->scan, slot->tts_values, slot->tts_isnull, tid);

	if (!strata_scan_next(state->scan, state->store_values, state->store_isnull, tid))
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		AttrNumber	attnum = state->map[i];

		slot->tts_values[i] = attnum > 0 ? state->store_values[attnum - 1] : (Datum) 0;
		slot->tts_isnull[i] = attnum > 0 ? state->store_isnull[attnum - 1] : true;
	}
	return true;
}

/* ---- execution ---- */

/* First fetch ever: make the view, and what reads single keys from it. */
static void
begin_reading(StrataScanState *state)
{
	MemoryContext oldcxt;

	if (state->view != NULL)
		return;

	oldcxt = MemoryContextSwitchTo(state->mcxt);
	state->view = state->is_lookup ?
		strata_view_begin_lookups(state->store, state->storage, state->snapshot, state->layer) :
		strata_view_begin(state->store, state->storage, state->snapshot, state->layer);
	if (state->is_lookup)
		state->lookup = strata_lookup_begin(state->view, state->needed);
	MemoryContextSwitchTo(oldcxt);
}

static void
start_reading(StrataScanState *state, ForeignScanState *node)
{
	ExprContext *econtext = node->ss.ps.ps_ExprContext;

	/* a layer table has its columns mapped, any other has the store's */
	if (state->map == NULL && !state->is_count &&
		node->ss.ss_ScanTupleSlot->tts_tupleDescriptor->natts != state->store->desc->natts)
		elog(ERROR, "row type of %s changed during the query", state->store->name);

	begin_reading(state);
	if (state->is_lookup)
		start_lookup(state, econtext);
	else if (state->is_range)
		strata_range_start(state, econtext);
	else if (!state->is_count)
		start_scan(state, econtext);
	state->started = true;
}

/* A worker tells of each row group. */
static inline void
tell_groups(StrataScanState *state)
{
	if (unlikely(state->slot != NULL) && state->view->stats.groups_read != state->told)
	{
		state->told = state->view->stats.groups_read;
		strata_scan_tell(state);
	}
}

/* A row that was put into the arrays of slot, which frees nothing. */
static inline void
store_row(TupleTableSlot *slot, Oid relid)
{
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = slot->tts_tupleDescriptor->natts;
	slot->tts_tableOid = relid;
}

TupleTableSlot *
strataIterateForeignScan(ForeignScanState *node)
{
	StrataScanState *state = (StrataScanState *) node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ItemPointerData tid;
	bool		found;

	ExecClearTuple(slot);

	if (!state->started)
		start_reading(state, node);

	if (state->is_count)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(state->mcxt);

		strata_count_next(state, slot);
		MemoryContextSwitchTo(oldcxt);
		return slot;
	}

	for (;;)
	{
		if (state->is_lookup)
			found = next_looked_up(state, slot->tts_values, slot->tts_isnull, &tid);
		else if (state->is_range)
			found = strata_range_next(state, slot->tts_values, slot->tts_isnull, &tid);
		else
			found = next_scanned(state, slot, &tid);
		if (!found)
			break;
		tell_groups(state);
		store_row(slot, state->relid);
		slot->tts_tid = tid;
		if (state->lock_mode == NoLock || strata_scan_lock(state, node, slot))
			break;

		ExecClearTuple(slot);
		ResetExprContext(node->ss.ps.ps_ExprContext);
	}

	return slot;
}

/*
 * The next row that qualifies of a scan that locks nothing, in the scan's slot:
 * what core's ExecScan does around strataIterateForeignScan, without its
 * detours.  A scan of narrow rows spends as much time there as in here.
 */
static inline bool
next_plain_row(ForeignScanState *node)
{
	PlanState  *pstate = &node->ss.ps;
	StrataScanState *state = (StrataScanState *) node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ExprContext *econtext = pstate->ps_ExprContext;
	MemoryContext row_mcxt = econtext->ecxt_per_tuple_memory;

	if (unlikely(!state->started))
		start_reading(state, node);

	for (;;)
	{
		MemoryContext oldcxt;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		if (!row_mcxt->isReset || row_mcxt->firstchild != NULL)
			MemoryContextReset(row_mcxt);
		if (unlikely(TTS_SHOULDFREE(slot)))
			ExecClearTuple(slot);

		oldcxt = MemoryContextSwitchTo(row_mcxt);
		found = strata_scan_next(state->scan, slot->tts_values, slot->tts_isnull,
								 &slot->tts_tid);
		MemoryContextSwitchTo(oldcxt);
		if (unlikely(!found))
		{
			ExecClearTuple(slot);
			return false;
		}
		tell_groups(state);
		store_row(slot, state->relid);

		econtext->ecxt_scantuple = slot;
		if (pstate->qual == NULL || ExecQual(pstate->qual, econtext))
			return true;
		InstrCountFiltered1(node, 1);
	}
}

/* ExecProcNode of such a scan. */
static TupleTableSlot *
exec_plain_scan(PlanState *pstate)
{
	ForeignScanState *node = castNode(ForeignScanState, pstate);
	ProjectionInfo *projection = pstate->ps_ProjInfo;

	if (next_plain_row(node))
		return projection ? ExecProject(projection) : node->ss.ss_ScanTupleSlot;
	return projection ? ExecClearTuple(projection->pi_state.resultslot) :
						node->ss.ss_ScanTupleSlot;
}

/* Is a node such a scan, and does nobody count what it returns? */
bool
strata_scan_is_plain(const PlanState *pstate)
{
	return IsA(pstate, ForeignScanState) && pstate->ExecProcNodeReal == exec_plain_scan &&
		pstate->instrument == NULL;
}

bool
strata_plain_scan_next(ForeignScanState *node)
{
	return next_plain_row(node);
}

/*
 * Start over, with new values where parameters changed.  The view stays: it
 * belongs to the query's snapshot.
 */
void
strataReScanForeignScan(ForeignScanState *node)
{
	StrataScanState *state = (StrataScanState *) node->fdw_state;

	if (state == NULL)
		return;

	if (state->scan != NULL)
		strata_scan_end(state->scan);
	strata_range_stop(state);
	state->scan = NULL;
	MemoryContextReset(state->restart_mcxt);
	state->started = false;
}

void
strataEndForeignScan(ForeignScanState *node)
{
	StrataScanState *state = (StrataScanState *) node->fdw_state;

	if (state == NULL)
		return;

	if (state->scan != NULL)
		strata_scan_end(state->scan);
	strata_range_stop(state);
	if (state->lookup != NULL)
		strata_lookup_end(state->lookup);
	if (state->locker != NULL)
		strata_row_locker_end(state->locker);
	if (state->view != NULL)
		strata_view_end(state->view);
	table_close(state->storage, NoLock);
	/* and with the context goes the pin on the store */
	MemoryContextDelete(state->mcxt);
	node->fdw_state = NULL;
}
