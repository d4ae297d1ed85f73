/*-------------------------------------------------------------------------
 *
 * relation_am.c
 *	  Table access method of storage relations.
 *
 * The access method owns the files of a storage relation and answers core's
 * maintenance commands.  It stores no tuples that core could read: every
 * callback that reads or writes rows refuses.
 *
 * What must work, because refusing would break something bigger:
 *
 *	VACUUM FULL, CLUSTER	an error would end a database-wide VACUUM FULL; the
 *							file is copied block by block, as blocks are
 *							referred to by number
 *	REINDEX [CONCURRENTLY]	the index is filled through
 *							StrataStorageHooks.index_build
 *	VACUUM, ANALYZE			freezing through StrataStorageHooks.vacuum; there is
 *							nothing to sample
 *	pg_upgrade, SET TABLESPACE
 *
 * A scan is refused when its first row is asked for, not when it begins:
 * ANALYZE and index builds begin one that they never read.
 *
 * Callbacks run under whatever lock the command took; VACUUM and REINDEX
 * CONCURRENTLY exclude passes by ShareUpdateExclusiveLock, all others by
 * stronger locks.
 *
 * IDENTIFICATION
 *	  src/storage/relation_am.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/relation_am.h"

#include "compat.h"

#include "access/multixact.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/storage.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "storage/smgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

StrataStorageHooks strata_storage_hooks;
bool		strata_own_ddl = false;

static const TableAmRoutine storage_methods;

PG_FUNCTION_INFO_V1(strata_storage_handler);

static void refuse(Relation rel) pg_attribute_noreturn();
static bool is_rewrite_of_storage(Relation rel);

Datum
strata_storage_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&storage_methods);
}

Oid
strata_storage_am_oid(void)
{
	return get_table_am_oid(STRATA_AM_NAME, false);
}

bool
strata_is_storage_relation(Relation rel)
{
	return rel->rd_tableam == &storage_methods;
}

static void
refuse(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("relation \"%s\" holds the storage of a strata foreign table",
					RelationGetRelationName(rel)),
			 errhint("Use the foreign table instead.")));
}

/* ---- scans: may begin, may not return a row ---- */

static const TupleTableSlotOps *
storage_slot_callbacks(Relation rel)
{
	return &TTSOpsVirtual;
}

static TableScanDesc
storage_scan_begin(Relation rel, Snapshot snapshot, int nkeys, ScanKey key,
				   ParallelTableScanDesc pscan, uint32 flags)
{
	TableScanDesc scan = palloc0(sizeof(TableScanDescData));

	RelationIncrementReferenceCount(rel);
	scan->rs_rd = rel;
	scan->rs_snapshot = snapshot;
	scan->rs_nkeys = nkeys;
	scan->rs_key = key;
	scan->rs_flags = flags;
	scan->rs_parallel = pscan;
	return scan;
}

static void
storage_scan_end(TableScanDesc scan)
{
	RelationDecrementReferenceCount(scan->rs_rd);
	if (scan->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(scan->rs_snapshot);
	pfree(scan);
}

static void
storage_scan_rescan(TableScanDesc scan, ScanKey key, bool set_params,
					bool allow_strat, bool allow_sync, bool allow_pagemode)
{
	/* A scan has no position. */
}

static bool
storage_scan_getnextslot(TableScanDesc scan, ScanDirection direction, TupleTableSlot *slot)
{
	refuse(scan->rs_rd);
}

static bool
storage_scan_sample_next_block(TableScanDesc scan, SampleScanState *scanstate)
{
	refuse(scan->rs_rd);
}

static bool
storage_scan_sample_next_tuple(TableScanDesc scan, SampleScanState *scanstate,
							   TupleTableSlot *slot)
{
	refuse(scan->rs_rd);
}

static bool
storage_scan_analyze_next_block(TableScanDesc scan, STRATA_ANALYZE_BLOCK)
{
	return false;
}

static bool
storage_scan_analyze_next_tuple(TableScanDesc scan, TransactionId OldestXmin,
								double *liverows, double *deadrows, TupleTableSlot *slot)
{
	return false;
}

/* ---- index access: TIDs are ours, rows cannot be fetched by them ---- */

static IndexFetchTableData *
storage_index_fetch_begin(Relation rel)
{
	IndexFetchTableData *fetch = palloc0(sizeof(IndexFetchTableData));

	fetch->rel = rel;
	return fetch;
}

static void
storage_index_fetch_reset(IndexFetchTableData *fetch)
{
	/* Nothing is kept between fetches. */
}

static void
storage_index_fetch_end(IndexFetchTableData *fetch)
{
	pfree(fetch);
}

static bool
storage_index_fetch_tuple(IndexFetchTableData *fetch, ItemPointer tid, Snapshot snapshot,
						  TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	refuse(fetch->rel);
}

/*
 * A B-tree page is full and has TIDs that probes found dead to everybody; they
 * may go, and only they.  What else is offered is left as it came, "not known
 * to be deletable".  The result is for standbys: the newest xid that any
 * snapshot can still need one of the TIDs for.
 */
static TransactionId
storage_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	TransactionId horizon;

	if (delstate->bottomup)
	{
		delstate->ndeltids = 0;
		return InvalidTransactionId;
	}

	horizon = GetOldestNonRemovableTransactionId(rel);
	TransactionIdRetreat(horizon);
	return horizon;
}

/* ---- rows ---- */

static bool
storage_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot,
								TupleTableSlot *slot)
{
	refuse(rel);
}

static bool
storage_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	refuse(scan->rs_rd);
}

static void
storage_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	refuse(scan->rs_rd);
}

static bool
storage_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	refuse(rel);
}

static void
storage_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
					 BulkInsertState bistate)
{
	refuse(rel);
}

static void
storage_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
								 int options, BulkInsertState bistate, uint32 specToken)
{
	refuse(rel);
}

static void
storage_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 specToken,
								   bool succeeded)
{
	refuse(rel);
}

static void
storage_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid,
					 int options, BulkInsertState bistate)
{
	refuse(rel);
}

static TM_Result
storage_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot,
					 Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changingPart)
{
	refuse(rel);
}

static TM_Result
storage_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
					 Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
					 LockTupleMode *lockmode, StrataUpdateIndexes *update_indexes)
{
	refuse(rel);
}

static TM_Result
storage_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				   CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
				   TM_FailureData *tmfd)
{
	refuse(rel);
}

/* ---- files ---- */

/*
 * Is rel the transient relation of a VACUUM FULL, CLUSTER or rewriting ALTER
 * TABLE of a storage relation?  At this point only its name says whose; the
 * command holds the old relation's lock.  Some other table's is one that ALTER
 * TABLE would make a storage relation of.
 */
static bool
is_rewrite_of_storage(Relation rel)
{
	Oid			old;
	int			used = 0;
	LOCKTAG		tag;
	HeapTuple	tuple;
	bool		result;

	if (sscanf(RelationGetRelationName(rel), "pg_temp_%u%n", &old, &used) != 1 ||
		RelationGetRelationName(rel)[used] != '\0')
		return false;
	SET_LOCKTAG_RELATION(tag, MyDatabaseId, old);
	if (!strata_lock_held_by_me(&tag, AccessExclusiveLock))
		return false;

	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(old));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == rel->rd_rel->relam;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Make the file.  It stays empty: a store's pages come with its first write,
 * so that pg_upgrade and TRUNCATE need nothing special.
 */
static void
storage_relation_set_new_filelocator(Relation rel, const StrataFileId *file, char persistence,
									 TransactionId *freezeXid, MultiXactId *minmulti)
{
	if (!strata_own_ddl && !IsBinaryUpgrade && !is_rewrite_of_storage(rel))
	{
		/* An existing relation is being truncated, or a new one created. */
		if (strata_is_storage_relation(rel) &&
			rel->rd_createSubid == InvalidSubTransactionId)
			refuse(rel);
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" is only for the storage of strata foreign tables",
						STRATA_AM_NAME),
				 errhint("Use CREATE FOREIGN TABLE ... SERVER strata.")));
	}
	if (persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the storage of a strata foreign table can only be permanent")));

	/*
	 * Entries carry xids, so the commit log must be kept for them: no xid that
	 * gets into the file can be older than this one.  Multixacts never get in.
	 */
	*freezeXid = RecentXmin;
	*minmulti = InvalidMultiXactId;
	smgrclose(RelationCreateStorage(*file, persistence, true));
}

static void
storage_relation_nontransactional_truncate(Relation rel)
{
	refuse(rel);
}

/* SET TABLESPACE: the file as it is, to another place. */
static void
storage_relation_copy_data(Relation rel, const StrataFileId *file)
{
	SMgrRelation target = smgropen(*file, rel->rd_backend);

	FlushRelationBuffers(rel);
	RelationCreateStorage(*file, rel->rd_rel->relpersistence, true);
	RelationCopyStorage(RelationGetSmgr(rel), target, MAIN_FORKNUM,
						rel->rd_rel->relpersistence);
	RelationDropStorage(rel);
	smgrclose(target);
}

/*
 * VACUUM FULL, CLUSTER: a copy with every block in its place, zero pages
 * included.  It is logged, and synced since it goes around the buffers.
 * Nothing is frozen by it, so the xid limit stays what it was.
 */
static void
storage_relation_copy_for_cluster(Relation OldTable, Relation NewTable, Relation OldIndex,
								  bool use_sort, TransactionId OldestXmin,
								  TransactionId *xid_cutoff, MultiXactId *multi_cutoff,
								  double *num_tuples, double *tups_vacuumed,
								  double *tups_recently_dead)
{
	FlushRelationBuffers(OldTable);
	RelationCopyStorage(RelationGetSmgr(OldTable), RelationGetSmgr(NewTable), MAIN_FORKNUM,
						NewTable->rd_rel->relpersistence);

	*xid_cutoff = OldTable->rd_rel->relfrozenxid;
	*multi_cutoff = InvalidMultiXactId;
	*num_tuples = 0;
	*tups_vacuumed = 0;
	*tups_recently_dead = 0;
}

static void
storage_relation_vacuum(Relation rel, VacuumParams *params, BufferAccessStrategy bstrategy)
{
	if (strata_storage_hooks.vacuum != NULL)
		strata_storage_hooks.vacuum(rel, params, bstrategy);
}

/* ---- index builds ---- */

static double
storage_index_build_range_scan(Relation table_rel, Relation index_rel, IndexInfo *index_info,
							   bool allow_sync, bool anyvisible, bool progress,
							   BlockNumber start_blockno, BlockNumber numblocks,
							   IndexBuildCallback callback, void *callback_state,
							   TableScanDesc scan)
{
	Snapshot	snapshot = NULL;
	double		rows = 0;
	bool		ours = true;

	/* Only summarizing indexes ask for a part, and a part means nothing here. */
	if (start_blockno != 0 || numblocks != InvalidBlockNumber)
		refuse(table_rel);

	/*
	 * Parallel builds are avoided (relation_estimate_size), but a reloption
	 * can force one: then one participant does everything.
	 */
	if (scan != NULL && scan->rs_parallel != NULL)
	{
		ParallelBlockTableScanDesc shared = (ParallelBlockTableScanDesc) scan->rs_parallel;

		ours = pg_atomic_fetch_add_u64(&shared->phs_nallocated, 1) == 0;
	}
	else if (scan != NULL)
	{
		/* Nobody builds an index with a scan of his own; this is a check. */
		snapshot = scan->rs_snapshot;
	}

	if (ours && strata_storage_hooks.index_build != NULL &&
		RelationGetNumberOfBlocks(table_rel) > 0)
		rows = strata_storage_hooks.index_build(table_rel, index_rel, index_info, snapshot,
												callback, callback_state);
	if (scan != NULL)
		table_endscan(scan);
	return rows;
}

/*
 * REINDEX CONCURRENTLY looks for rows that came after its build.  There are
 * none: only passes add to a key index, and its lock keeps them out.
 */
static void
storage_index_validate_scan(Relation table_rel, Relation index_rel, IndexInfo *index_info,
							Snapshot snapshot, ValidateIndexState *state)
{
}

/* ---- planning and size ---- */

static bool
storage_relation_needs_toast_table(Relation rel)
{
	return false;
}

/*
 * Nothing plans a scan of a storage relation; what is asked for here decides
 * how many workers an index build gets, and there shall be none.
 */
static void
storage_relation_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages,
							   double *tuples, double *allvisfrac)
{
	*pages = 1;
	*tuples = 0;
	*allvisfrac = 0;
}

static const TableAmRoutine storage_methods = {
	.type = T_TableAmRoutine,

	.slot_callbacks = storage_slot_callbacks,

	.scan_begin = storage_scan_begin,
	.scan_end = storage_scan_end,
	.scan_rescan = storage_scan_rescan,
	.scan_getnextslot = storage_scan_getnextslot,

	.parallelscan_estimate = table_block_parallelscan_estimate,
	.parallelscan_initialize = table_block_parallelscan_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,

	.index_fetch_begin = storage_index_fetch_begin,
	.index_fetch_reset = storage_index_fetch_reset,
	.index_fetch_end = storage_index_fetch_end,
	.index_fetch_tuple = storage_index_fetch_tuple,

	.tuple_fetch_row_version = storage_tuple_fetch_row_version,
	.tuple_tid_valid = storage_tuple_tid_valid,
	.tuple_get_latest_tid = storage_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = storage_tuple_satisfies_snapshot,
	.index_delete_tuples = storage_index_delete_tuples,

	.tuple_insert = storage_tuple_insert,
	.tuple_insert_speculative = storage_tuple_insert_speculative,
	.tuple_complete_speculative = storage_tuple_complete_speculative,
	.multi_insert = storage_multi_insert,
	.tuple_delete = storage_tuple_delete,
	.tuple_update = storage_tuple_update,
	.tuple_lock = storage_tuple_lock,

	.relation_set_new_filelocator = storage_relation_set_new_filelocator,
	.relation_nontransactional_truncate = storage_relation_nontransactional_truncate,
	.relation_copy_data = storage_relation_copy_data,
	.relation_copy_for_cluster = storage_relation_copy_for_cluster,
	.relation_vacuum = storage_relation_vacuum,
	.scan_analyze_next_block = storage_scan_analyze_next_block,
	.scan_analyze_next_tuple = storage_scan_analyze_next_tuple,
	.index_build_range_scan = storage_index_build_range_scan,
	.index_validate_scan = storage_index_validate_scan,

	.relation_size = table_block_relation_size,
	.relation_needs_toast_table = storage_relation_needs_toast_table,
	.relation_estimate_size = storage_relation_estimate_size,

	.scan_sample_next_block = storage_scan_sample_next_block,
	.scan_sample_next_tuple = storage_scan_sample_next_tuple,
};
