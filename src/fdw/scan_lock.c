/*-------------------------------------------------------------------------
 *
 * scan_lock.c
 *	  Locking rows that scans of foreign tables read.
 *
 * Two callers: a scan of rows to update or delete locks each row that
 * qualifies before it returns it, where row triggers get the old row; core
 * locks what a scan returned, for SELECT FOR UPDATE and its like, and reads
 * rows of other relations again for a recheck.  What counts as locked, and
 * whose changes are waited for, is log/row_lock.c's business.
 *
 * Locks: a key lock per row, to the end of the transaction.
 *
 * Memory: the locker lives in the scan's context; what a row read again needs,
 * in a context of its own, until the next one.
 *
 * IDENTIFICATION
 *	  src/fdw/scan_lock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/scan.h"

#include "executor/executor.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * When a scan begins: whether it locks what it returns, and where core finds it
 * when what it returned is to be locked.
 */
void
strata_scan_prepare_locking(StrataScanState *state, ForeignScanState *node, ForeignScan *plan)
{
	CmdType		operation = intVal(list_nth(plan->fdw_private, STRATA_SCAN_OPERATION));
	EState	   *estate = node->ss.ps.state;

	state->lock_mode = NoLock;
	if (operation != CMD_SELECT &&
		strata_locks_in_scan(node->ss.ss_currentRelation, operation))
	{
		state->lock_mode = operation == CMD_UPDATE ? ExclusiveLock : AccessExclusiveLock;
		/* rows that do not qualify are not to be locked */
		state->qual = node->ss.ps.qual;
		node->ss.ps.qual = NULL;
	}

	/* where RefetchForeignRow finds us */
	if (estate->es_rowmarks != NULL)
	{
		ExecRowMark *erm = estate->es_rowmarks[plan->scan.scanrelid - 1];

		if (erm != NULL && erm->markType != ROW_MARK_COPY)
			erm->ermExtra = state;
	}
}

static StrataRowLocker *
get_locker(StrataScanState *state, CommandId cid)
{
	if (state->locker == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(state->mcxt);

		state->locker = strata_row_locker_begin(state->view, cid);
		MemoryContextSwitchTo(oldcxt);
	}
	return state->locker;
}

/* Put the version that the locker found newest into slot. */
static void
store_newest(StrataScanState *state, TupleTableSlot *slot, Oid relid)
{
	ItemPointerData tid;

	ExecClearTuple(slot);
	strata_row_locker_newest(state->locker, slot->tts_values, slot->tts_isnull, &tid);
	ExecStoreVirtualTuple(slot);
	ExecMaterializeSlot(slot);
	slot->tts_tid = tid;
	slot->tts_tableOid = relid;
}

/* Put the version that was read, which has this TID, into slot. */
static void
store_read(StrataRowLocker *locker, TupleTableSlot *slot, Oid relid, const ItemPointerData *tid)
{
	ExecClearTuple(slot);
	strata_row_locker_row(locker, tid, slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	ExecMaterializeSlot(slot);
	slot->tts_tid = *tid;
	slot->tts_tableOid = relid;
}

/*
 * If the row in the node's slot qualifies, lock it; what is in the slot
 * afterwards is its newest version.  False: it does not count.
 */
bool
strata_scan_lock(StrataScanState *state, ForeignScanState *node, TupleTableSlot *slot)
{
	const StrataKey *key = &state->store->key;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	ItemPointerData tid = slot->tts_tid;
	Oid			relid = slot->tts_tableOid;
	Datum		keyvalues[INDEX_MAX_KEYS];
	StrataPosition seen;

	econtext->ecxt_scantuple = slot;
	if (!ExecQual(state->qual, econtext))
	{
		InstrCountFiltered1(node, 1);
		return false;
	}

	/* looking reads other rows, which may take this one's memory */
	ExecMaterializeSlot(slot);
	slot->tts_tid = tid;
	slot->tts_tableOid = relid;
	slot_getallattrs(slot);
	for (int i = 0; i < key->natts; i++)
		keyvalues[i] = slot->tts_values[key->attnum[i] - 1];

	switch (strata_row_lock(get_locker(state, node->ss.ps.state->es_output_cid),
							strata_key_hash(key, keyvalues), keyvalues, &tid,
							state->lock_mode, LockWaitBlock, &seen))
	{
		case STRATA_ROW_CHANGED:
			store_newest(state, slot, relid);
			return ExecQual(node->fdw_recheck_quals, econtext) &&
				ExecQual(state->qual, econtext);
		case STRATA_ROW_GONE:
			return false;
		default:
			/* own changes are for the command that changes the row to judge */
			return true;
	}
}

RowMarkType
strataGetForeignRowMarkType(RangeTblEntry *rte, LockClauseStrength strength)
{
	bool		keyed = false;

	/*
	 * A row that is not locked is read again by its TID when a recheck wants
	 * it.  Carrying it along would mean reading every column of it, and core
	 * takes a partition's row for one of the parent's when it comes back.
	 */
	if (strength == LCS_NONE)
		return OidIsValid(strata_store_storage(rte->relid)) ? ROW_MARK_REFERENCE : ROW_MARK_COPY;

	if (OidIsValid(strata_store_storage(rte->relid)))
	{
		StrataStore *store = strata_store_open(rte->relid);

		keyed = store->key.natts > 0;
		strata_store_close(store);
	}
	if (!keyed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot lock rows in foreign table \"%s\"", get_rel_name(rte->relid)),
				 errdetail("Rows are locked by the key of a table with a store of its own.")));

	switch (strength)
	{
		case LCS_FORKEYSHARE:
			return ROW_MARK_KEYSHARE;
		case LCS_FORSHARE:
			return ROW_MARK_SHARE;
		case LCS_FORNOKEYUPDATE:
			return ROW_MARK_NOKEYEXCLUSIVE;
		default:
			return ROW_MARK_EXCLUSIVE;
	}
}

static LOCKMODE
lock_mode_of(RowMarkType mark)
{
	switch (mark)
	{
		case ROW_MARK_KEYSHARE:
			return AccessShareLock;
		case ROW_MARK_SHARE:
			return RowShareLock;
		case ROW_MARK_NOKEYEXCLUSIVE:
			return ExclusiveLock;
		default:
			return AccessExclusiveLock;
	}
}

/*
 * SELECT FOR UPDATE and its like: lock the row that our scan returned with
 * this TID.  An empty slot: it is not to be returned.  A row that is not to be
 * locked is read again for a recheck.
 */
void
strataRefetchForeignRow(EState *estate, ExecRowMark *erm, Datum rowid,
						TupleTableSlot *slot, bool *updated)
{
	StrataScanState *state = (StrataScanState *) erm->ermExtra;
	ItemPointerData tid = *(ItemPointer) DatumGetPointer(rowid);
	const StrataKey *key;
	StrataRowLocker *locker;
	Datum		keyvalues[INDEX_MAX_KEYS];
	StrataPosition seen;
	StrataRowState found;
	MemoryContext oldcxt;

	if (state == NULL || state->view == NULL)
		elog(ERROR, "row to lock was not returned by a scan of relation %u", erm->relid);
	key = &state->store->key;
	locker = get_locker(state, InvalidCommandId);

	ExecClearTuple(slot);
	if (state->refetch_mcxt == NULL)
		state->refetch_mcxt = AllocSetContextCreate(state->mcxt, "strata refetched row",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContextReset(state->refetch_mcxt);
	oldcxt = MemoryContextSwitchTo(state->refetch_mcxt);

	if (erm->markType == ROW_MARK_REFERENCE)
	{
		store_read(locker, slot, erm->relid, &tid);
		MemoryContextSwitchTo(oldcxt);
		return;
	}

	strata_row_locker_key(locker, &tid, keyvalues);
	found = strata_row_lock(locker, strata_key_hash(key, keyvalues), keyvalues, &tid,
							lock_mode_of(erm->markType), erm->waitPolicy, &seen);
	if (found == STRATA_ROW_CHANGED)
	{
		store_newest(state, slot, erm->relid);
		*updated = true;
	}
	else if (found == STRATA_ROW_SAME)
	{
		/*
		 * The row is for a recheck, which only another relation's row that
		 * changed can bring about: spare reading it when there is none.
		 */
		if (list_length(estate->es_plannedstmt->rowMarks) == 1)
		{
			ExecStoreAllNullTuple(slot);
			slot->tts_tid = tid;
			slot->tts_tableOid = erm->relid;
		}
		else
			store_read(locker, slot, erm->relid, &tid);
	}
	/* what own commands changed since is passed over, as on a heap */
	MemoryContextSwitchTo(oldcxt);
}
