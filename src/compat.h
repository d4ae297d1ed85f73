/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between PostgreSQL versions; the only place that looks at
 *	  PG_VERSION_NUM.
 *
 * IDENTIFICATION
 *	  src/compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_COMPAT_H
#define STRATA_COMPAT_H

#include "postgres.h"

#include "access/nbtxlog.h"
#include "access/rmgr.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "strata needs PostgreSQL 15 or later"
#endif

/* Has the administrator allowed old snapshots to be invalidated? (gone in 17) */
static inline bool
strata_old_snapshots_expire(void)
{
#if PG_VERSION_NUM < 170000
	return old_snapshot_threshold >= 0;
#else
	return false;
#endif
}

/*
 * The full form of an xid that is at most 2^31 away from the next xid, as
 * every xid in use is.
 */
static inline FullTransactionId
strata_full_xid(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();

	if (!TransactionIdIsNormal(xid))
		return FullTransactionIdFromEpochAndXid(0, xid);
	return FullTransactionIdFromU64(U64FromFullTransactionId(next) +
									(int32) (xid - XidFromFullTransactionId(next)));
}

/*
 * Log a recovery conflict with every snapshot that sees newest as running.
 * From 16 on the record also says whether the relation is a catalog.
 */
static inline void
strata_xlog_conflict(Relation rel, FullTransactionId newest)
{
	xl_btree_reuse_page record;

	memset(&record, 0, sizeof(record));
#if PG_VERSION_NUM < 160000
	record.node = rel->rd_node;
	record.latestRemovedFullXid = newest;
#else
	record.locator = rel->rd_locator;
	record.snapshotConflictHorizon = newest;
	record.isCatalogRel = false;
#endif
	record.block = 0;

	XLogBeginInsert();
	XLogRegisterData((char *) &record, SizeOfBtreeReusePage);
	(void) XLogInsert(RM_BTREE_ID, XLOG_BTREE_REUSE_PAGE);
}

/*
 * The oldest xid whose outcome the server still keeps.  Read without a lock:
 * it moves before clog is cut, and only forward.
 */
static inline TransactionId
strata_oldest_clog_xid(void)
{
#if PG_VERSION_NUM < 170000
	return ShmemVariableCache->oldestClogXid;
#else
	return TransamVariables->oldestClogXid;
#endif
}

/* What identifies a relation's file, the database included. */
#if PG_VERSION_NUM < 160000
typedef RelFileNode StrataFileId;
#define strata_file_id(rel)		((rel)->rd_node)
#define strata_file_id_equal(a, b)	RelFileNodeEquals(a, b)
#else
typedef RelFileLocator StrataFileId;
#define strata_file_id(rel)		((rel)->rd_locator)
#define strata_file_id_equal(a, b)	RelFileLocatorEquals(a, b)
#endif

/*
 * A path of a foreign scan of one relation; a disabled one is taken only when
 * there is no other.  From 17 on a path may say which clauses it takes (ours
 * are matched again when the plan is made); 18 counts disabled nodes, earlier
 * versions add to the cost.
 */
#if PG_VERSION_NUM < 170000
#define strata_foreignscan_path(root, rel, rows, disabled, startup, total, pathkeys, outer, private) \
	create_foreignscan_path(root, rel, NULL, rows, (startup) + ((disabled) ? disable_cost : 0), \
							(total) + ((disabled) ? disable_cost : 0), pathkeys, outer, NULL, private)
#elif PG_VERSION_NUM < 180000
#define strata_foreignscan_path(root, rel, rows, disabled, startup, total, pathkeys, outer, private) \
	create_foreignscan_path(root, rel, NULL, rows, (startup) + ((disabled) ? disable_cost : 0), \
							(total) + ((disabled) ? disable_cost : 0), pathkeys, outer, NULL, NIL, private)
#else
#define strata_foreignscan_path(root, rel, rows, disabled, startup, total, pathkeys, outer, private) \
	create_foreignscan_path(root, rel, NULL, rows, (disabled) ? 1 : 0, startup, total, pathkeys, outer, \
							NULL, NIL, private)
#endif

/* A path that computes the rows of an upper relation. */
#if PG_VERSION_NUM < 170000
#define strata_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, NULL, private)
#elif PG_VERSION_NUM < 180000
#define strata_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, NULL, NIL, private)
#else
#define strata_foreign_upper_path(root, rel, target, rows, startup, total, private) \
	create_foreign_upper_path(root, rel, target, rows, 0, startup, total, NIL, NULL, NIL, private)
#endif

/* The range table indexes of the relations that a foreign scan stands for. */
#if PG_VERSION_NUM < 160000
#define strata_scan_relids(plan)	((plan)->fs_relids)
#else
#define strata_scan_relids(plan)	((plan)->fs_base_relids)
#endif

/* The role a scan's rights are checked for, InvalidOid: the current one. */
#if PG_VERSION_NUM < 160000
#define strata_scan_role(plan, relid, estate) \
	(exec_rt_fetch(relid, estate)->checkAsUser)
#define strata_plan_role(root, rel)	(planner_rt_fetch((rel)->relid, root)->checkAsUser)
#else
#define strata_scan_role(plan, relid, estate)	((void) (relid), (plan)->checkAsUser)
#define strata_plan_role(root, rel)		((rel)->userid)
#endif

/* BEFORE ROW DELETE triggers of a foreign table; false when one wants the row to stay. */
#if PG_VERSION_NUM < 160000
#define strata_before_delete_triggers(estate, epqstate, rinfo, row) \
	ExecBRDeleteTriggers(estate, epqstate, rinfo, NULL, row, NULL)
#elif PG_VERSION_NUM < 180000
#define strata_before_delete_triggers(estate, epqstate, rinfo, row) \
	ExecBRDeleteTriggers(estate, epqstate, rinfo, NULL, row, NULL, NULL, NULL)
#else
#define strata_before_delete_triggers(estate, epqstate, rinfo, row) \
	ExecBRDeleteTriggers(estate, epqstate, rinfo, NULL, row, NULL, NULL, NULL, false)
#endif

/* From the row type of the partitioned table that rows are routed from to a partition's. */
#if PG_VERSION_NUM < 160000
#define strata_root_to_child(rinfo, estate)	((rinfo)->ri_RootToPartitionMap)
#define strata_insert_index_entries(rinfo, slot, estate) \
	ExecInsertIndexTuples(rinfo, slot, estate, false, false, NULL, NIL)
#else
#define strata_root_to_child(rinfo, estate)	ExecGetRootToChildMap(rinfo, estate)
#define strata_insert_index_entries(rinfo, slot, estate) \
	ExecInsertIndexTuples(rinfo, slot, estate, false, false, NULL, NIL, false)
#endif

/* What RETURNING is computed from; from 18 on that may be the old row, too. */
#if PG_VERSION_NUM < 180000
#define STRATA_RETURNING_OLD			0
#define strata_set_returning_rows(projection, old, new) \
	((void) (old), (projection)->pi_exprContext->ecxt_scantuple = (new))
#else
#define STRATA_RETURNING_OLD			EEO_FLAG_HAS_OLD
#define strata_set_returning_rows(projection, old, new) \
	((projection)->pi_state.flags &= ~(EEO_FLAG_OLD_IS_NULL | EEO_FLAG_NEW_IS_NULL), \
	 (projection)->pi_exprContext->ecxt_scantuple = (new), \
	 (projection)->pi_exprContext->ecxt_oldtuple = (old), \
	 (projection)->pi_exprContext->ecxt_newtuple = (new))
#endif

#if PG_VERSION_NUM < 180000
#define strata_analyze_delay()	vacuum_delay_point()
#else
#define strata_analyze_delay()	vacuum_delay_point(true)
#endif

/* 16 has one function for all kinds of objects. */
#if PG_VERSION_NUM >= 160000
#define pg_class_ownercheck(oid, role) \
	object_ownercheck(RelationRelationId, oid, role)
#define pg_namespace_aclcheck(oid, role, mode) \
	object_aclcheck(NamespaceRelationId, oid, role, mode)
#define pg_tablespace_aclcheck(oid, role, mode) \
	object_aclcheck(TableSpaceRelationId, oid, role, mode)
#endif

/*
 * The wait event of a name; before 17 all extensions share one.
 */
static inline uint32
strata_wait_event(const char *name)
{
#if PG_VERSION_NUM < 170000
	return PG_WAIT_EXTENSION;
#else
	return WaitEventExtensionNew(name);
#endif
}

#endif							/* STRATA_COMPAT_H */
