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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/nbtxlog.h"
#include "access/rmgr.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_tablespace.h"
#include "commands/explain.h"
#include "commands/vacuum.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/pathnodes.h"
#include "rewrite/rewriteHandler.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/selfuncs.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#if PG_VERSION_NUM < 150000
#error "strata needs PostgreSQL 15 or later"
#endif

/* What pg_get_loaded_modules() says of the library, from 18 on. */
#if PG_VERSION_NUM < 180000
#define STRATA_MODULE_MAGIC	PG_MODULE_MAGIC
#else
#define STRATA_MODULE_MAGIC	PG_MODULE_MAGIC_EXT(.name = "strata", .version = "1.0")
#endif

/* 18 has pg_noreturn instead, which goes before the declaration. */
#if PG_VERSION_NUM >= 180000
#define pg_attribute_noreturn()	__attribute__((noreturn))
#endif

/* The transaction that a row of the lock table belongs to; invalid once it is over. */
static inline LocalTransactionId
strata_lock_instance_lxid(const LockInstanceData *instance)
{
#if PG_VERSION_NUM < 170000
	return instance->lxid;
#else
	return instance->vxid.localTransactionId;
#endif
}

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

#if PG_VERSION_NUM >= 170000
#define ERRCODE_SNAPSHOT_TOO_OLD	ERRCODE_T_R_SERIALIZATION_FAILURE
#endif

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

/* Memory that a page is read into from a file: aligned for direct I/O, from 16 on. */
#if PG_VERSION_NUM < 160000
typedef PGAlignedBlock StrataIOBlock;
#else
typedef PGIOAlignedBlock StrataIOBlock;
#endif

/* Give a relation a new, empty file. */
#if PG_VERSION_NUM < 160000
#define strata_set_new_file(rel, persistence)	RelationSetNewRelfilenode(rel, persistence)
#else
#define strata_set_new_file(rel, persistence)	RelationSetNewRelfilenumber(rel, persistence)
#endif

/* Of the callbacks of a table access method that changed: */
#if PG_VERSION_NUM < 160000
#define relation_set_new_filelocator	relation_set_new_filenode
typedef bool StrataUpdateIndexes;
#else
typedef TU_UpdateIndexes StrataUpdateIndexes;
#endif

/* what the parameters after the scan of scan_analyze_next_block are */
#if PG_VERSION_NUM < 170000
#define STRATA_ANALYZE_BLOCK	BlockNumber blockno, BufferAccessStrategy bstrategy
#else
#define STRATA_ANALYZE_BLOCK	ReadStream *stream
#endif

/* Does this session hold the very lock? */
static inline bool
strata_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM < 170000
	return LockHeldByMe(tag, mode);
#else
	return LockHeldByMe(tag, mode, false);
#endif
}

/* A B-tree index without predicate or expressions, and not unique. */
static inline IndexInfo *
strata_make_index_info(int natts)
{
#if PG_VERSION_NUM < 160000
	return makeIndexInfo(natts, natts, BTREE_AM_OID, NIL, NIL, false, false, true, false);
#elif PG_VERSION_NUM < 180000
	return makeIndexInfo(natts, natts, BTREE_AM_OID, NIL, NIL, false, false, true, false, false);
#else
	return makeIndexInfo(natts, natts, BTREE_AM_OID, NIL, NIL, false, false, true, false, false,
						 false);
#endif
}

/* Make such an index, an internal one, of a relation. */
static inline Oid
strata_index_create(Relation rel, const char *name, IndexInfo *info, List *columns,
					const Oid *collations, const Oid *opclasses, const int16 *options)
{
#if PG_VERSION_NUM < 170000
	return index_create(rel, name, InvalidOid, InvalidOid, InvalidOid, InvalidOid, info, columns,
						BTREE_AM_OID, rel->rd_rel->reltablespace, (Oid *) collations,
						(Oid *) opclasses, (int16 *) options, (Datum) 0, 0, 0, true, true, NULL);
#else
	return index_create(rel, name, InvalidOid, InvalidOid, InvalidOid, InvalidOid, info, columns,
						BTREE_AM_OID, rel->rd_rel->reltablespace, collations, opclasses, NULL,
						options, NULL, (Datum) 0, 0, 0, true, true, NULL);
#endif
}

static inline void
strata_reindex_relation(Oid relid)
{
	ReindexParams params = {0};

#if PG_VERSION_NUM < 170000
	(void) reindex_relation(relid, 0, &params);
#else
	(void) reindex_relation(NULL, relid, 0, &params);
#endif
}

/* A scan of an index that needs no orderings and feeds no statistics. */
#if PG_VERSION_NUM < 180000
#define strata_index_beginscan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, nkeys, 0)
#else
#define strata_index_beginscan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#endif

/* What an index is vacuumed for; from 16 on with the relation it belongs to. */
static inline void
strata_index_vacuum_info(IndexVacuumInfo *info, Relation rel, Relation index)
{
	memset(info, 0, sizeof(*info));
	info->index = index;
#if PG_VERSION_NUM >= 160000
	info->heaprel = rel;
#endif
	info->estimated_count = true;
	info->message_level = DEBUG2;
	info->num_heap_tuples = index->rd_rel->reltuples;
	info->strategy = GetAccessStrategy(BAS_VACUUM);
}

/* The parts of a qualified name; not a name: an error. */
static inline List *
strata_name_list(const char *name)
{
#if PG_VERSION_NUM < 160000
	return stringToQualifiedNameList(name);
#else
	return stringToQualifiedNameList(name, NULL);
#endif
}

/* What names the locale of a provider that is not libc (from 17 on: ICU or builtin). */
#if PG_VERSION_NUM < 170000
#define strata_database_locale	Anum_pg_database_daticulocale
#define strata_collation_locale	Anum_pg_collation_colliculocale
#else
#define strata_database_locale	Anum_pg_database_datlocale
#define strata_collation_locale	Anum_pg_collation_colllocale
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

/* One that aggregates the rows of another path; as disabled as core's is. */
#if PG_VERSION_NUM < 170000
#define strata_foreign_aggregate_path(root, rel, target, rows, core, startup, total, input, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, input, private)
#elif PG_VERSION_NUM < 180000
#define strata_foreign_aggregate_path(root, rel, target, rows, core, startup, total, input, private) \
	create_foreign_upper_path(root, rel, target, rows, startup, total, NIL, input, NIL, private)
#else
#define strata_foreign_aggregate_path(root, rel, target, rows, core, startup, total, input, private) \
	create_foreign_upper_path(root, rel, target, rows, (core)->disabled_nodes, startup, total, NIL, \
							  input, NIL, private)
#endif

/* How many relations EXPLAIN tells apart; 18 has an entry for groups among them. */
#if PG_VERSION_NUM < 180000
#define strata_explain_relations(es)	list_length((es)->rtable)
#else
#define strata_explain_relations(es)	((es)->rtable_size)
#endif

/* A new value of an aggregate's state that is passed by reference. */
#if PG_VERSION_NUM < 160000
#define strata_copy_trans_value		ExecAggTransReparent
#else
#define strata_copy_trans_value		ExecAggCopyTransValue
#endif

/* May role call a function? */
#if PG_VERSION_NUM < 160000
#define strata_function_aclcheck(oid, role, mode)	pg_proc_aclcheck(oid, role, mode)
#else
#define strata_function_aclcheck(oid, role, mode) \
	object_aclcheck(ProcedureRelationId, oid, role, mode)
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

/* The elements that an array expression is expected to have. */
#if PG_VERSION_NUM < 170000
#define strata_array_length(root, expr)	estimate_array_length(expr)
#else
#define strata_array_length(root, expr)	estimate_array_length(root, expr)
#endif

#if PG_VERSION_NUM < 180000
#define strata_analyze_delay()	vacuum_delay_point()
#define strata_vacuum_delay()	vacuum_delay_point()
#else
#define strata_analyze_delay()	vacuum_delay_point(true)
#define strata_vacuum_delay()	vacuum_delay_point(false)
#endif

/*
 * NOT NULL: from 18 on a constraint in pg_constraint, which may be NOT VALID.
 * The column that a constraint is the NOT NULL of, or 0.
 */
static inline AttrNumber
strata_not_null_column(HeapTuple constraint)
{
#if PG_VERSION_NUM >= 180000
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(constraint);

	if (form->contype == CONSTRAINT_NOTNULL && OidIsValid(form->conrelid))
		return extractNotNullColumn(constraint);
#endif
	return InvalidAttrNumber;
}

/* Does the NOT NULL of a column that has one hold for all rows? */
static inline bool
strata_not_null_is_valid(Oid relid, AttrNumber attnum)
{
	bool		valid = true;
#if PG_VERSION_NUM >= 180000
	HeapTuple	tuple = findNotNullConstraintAttnum(relid, attnum);

	if (HeapTupleIsValid(tuple))
	{
		valid = ((Form_pg_constraint) GETSTRUCT(tuple))->convalidated;
		heap_freetuple(tuple);
	}
#endif
	return valid;
}

/* ALTER COLUMN ... SET EXPRESSION, from 17 on. */
#if PG_VERSION_NUM < 170000
#define strata_sets_expression(command)	false
#else
#define strata_sets_expression(command)	((command)->subtype == AT_SetExpression)
#endif

/*
 * Virtual generated columns, from 18 on.  Core puts their expressions into
 * queries, and a row has NULL in their place.
 */
#if PG_VERSION_NUM < 180000
#define strata_column_is_virtual(att)	false
#define strata_expand_virtual(expr, rel, varno)	(expr)
#else
#define strata_column_is_virtual(att)	((att)->attgenerated == ATTRIBUTE_GENERATED_VIRTUAL)
#define strata_expand_virtual(expr, rel, varno)	expand_generated_columns_in_expr(expr, rel, varno)
#endif

/* What VACUUM found out about a relation that has no visibility map. */
static inline void
strata_update_relstats(Relation rel, BlockNumber blocks, TransactionId frozen)
{
#if PG_VERSION_NUM < 180000
	vac_update_relstats(rel, blocks, rel->rd_rel->reltuples, 0, rel->rd_rel->relhasindex, frozen,
						InvalidMultiXactId, NULL, NULL, false);
#else
	vac_update_relstats(rel, blocks, rel->rd_rel->reltuples, 0, 0, rel->rd_rel->relhasindex,
						frozen, InvalidMultiXactId, NULL, NULL, false);
#endif
}

/* Has a transaction ended?  From 18 on the server can log that it has not. */
#if PG_VERSION_NUM < 180000
#define strata_xact_ended(xid, log)	ConditionalXactLockTableWait(xid)
#else
#define strata_xact_ended(xid, log) \
	ConditionalXactLockTableWait(xid, (log) && log_lock_failures)
#endif

/* A relation that a plan reads. */
#if PG_VERSION_NUM < 180000
#define strata_range_table_relation(estate, rti)	ExecGetRangeTableRelation(estate, rti)
#else
#define strata_range_table_relation(estate, rti)	ExecGetRangeTableRelation(estate, rti, false)
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
