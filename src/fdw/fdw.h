/*-------------------------------------------------------------------------
 *
 * fdw.h
 *	  The foreign data wrapper's callbacks, by file.
 *
 * IDENTIFICATION
 *	  src/fdw/fdw.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_FDW_H
#define STRATA_FDW_H

#include "log/memtable.h"
#include "log/row_lock.h"
#include "log/view.h"

#include "access/parallel.h"
#include "foreign/fdwapi.h"

/* plan.c */
extern void strataGetForeignRelSize(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid);
extern void strataGetForeignPaths(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid);
extern ForeignScan *strataGetForeignPlan(PlannerInfo *root, RelOptInfo *baserel,
										 Oid foreigntableid, ForeignPath *best_path,
										 List *tlist, List *scan_clauses, Plan *outer_plan);

/* count.c */
extern void strataGetForeignUpperPaths(PlannerInfo *root, UpperRelationKind stage,
									   RelOptInfo *input_rel, RelOptInfo *output_rel,
									   void *extra);
extern bool strataRecheckForeignScan(ForeignScanState *node, TupleTableSlot *slot);

/* scan_exec.c */
extern void strataBeginForeignScan(ForeignScanState *node, int eflags);
extern TupleTableSlot *strataIterateForeignScan(ForeignScanState *node);
extern void strataReScanForeignScan(ForeignScanState *node);
extern void strataEndForeignScan(ForeignScanState *node);

/* scan_parallel.c */
extern void strata_parallel_init(void);
extern bool strataIsForeignScanParallelSafe(PlannerInfo *root, RelOptInfo *rel,
											RangeTblEntry *rte);
extern Size strataEstimateDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt);
extern void strataInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt,
										   void *coordinate);
extern void strataReInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt,
											 void *coordinate);
extern void strataInitializeWorkerForeignScan(ForeignScanState *node, shm_toc *toc,
											  void *coordinate);
extern void strataShutdownForeignScan(ForeignScanState *node);

/* scan_lock.c */
extern RowMarkType strataGetForeignRowMarkType(RangeTblEntry *rte, LockClauseStrength strength);
extern void strataRefetchForeignRow(EState *estate, ExecRowMark *erm, Datum rowid,
									TupleTableSlot *slot, bool *updated);

/* finish.c, from _PG_init */
extern void strata_finish_init(void);

/* modify.c */
extern bool strata_locks_in_scan(Relation rel, CmdType operation);
extern void strata_modify_finish(ResultRelInfo *rinfo);
extern void strataAddForeignUpdateTargets(PlannerInfo *root, Index rtindex,
										  RangeTblEntry *target_rte, Relation target_relation);
extern void strata_unify_whole_rows(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid);
extern List *strataPlanForeignModify(PlannerInfo *root, ModifyTable *plan,
									 Index resultRelation, int subplan_index);
extern void strataBeginForeignModify(ModifyTableState *mtstate, ResultRelInfo *rinfo,
									 List *fdw_private, int subplan_index, int eflags);
extern TupleTableSlot *strataExecForeignInsert(EState *estate, ResultRelInfo *rinfo,
											   TupleTableSlot *slot, TupleTableSlot *planSlot);
extern TupleTableSlot *strataExecForeignUpdate(EState *estate, ResultRelInfo *rinfo,
											   TupleTableSlot *slot, TupleTableSlot *planSlot);
extern TupleTableSlot *strataExecForeignDelete(EState *estate, ResultRelInfo *rinfo,
											   TupleTableSlot *slot, TupleTableSlot *planSlot);
extern void strataEndForeignModify(EState *estate, ResultRelInfo *rinfo);
extern void strataBeginForeignInsert(ModifyTableState *mtstate, ResultRelInfo *rinfo);
extern void strataEndForeignInsert(EState *estate, ResultRelInfo *rinfo);
extern int	strataIsForeignRelUpdatable(Relation rel);
extern void strataExecForeignTruncate(List *rels, DropBehavior behavior, bool restart_seqs);

/* check_rows.c: a StrataCheckRows, see manifest/lifecycle.h */
extern const struct StrataRowCheck *strata_check_rows(Relation rel, List *checks);

/* import.c */
extern List *strataImportForeignSchema(ImportForeignSchemaStmt *stmt, Oid serverOid);

/* explain.c */
extern void strataExplainForeignScan(ForeignScanState *node, struct ExplainState *es);

/* analyze.c */
extern bool strataAnalyzeForeignTable(Relation relation, AcquireSampleRowsFunc *func,
									  BlockNumber *totalpages);

#endif							/* STRATA_FDW_H */
