/*-------------------------------------------------------------------------
 *
 * handler.c
 *	  The foreign data wrapper's table of callbacks.
 *
 * What is absent says as much as what is there:
 *
 *	- no ExecForeignBatchInsert: putting a row is local (modify.c);
 *	- no ReparameterizeForeignPathByChild: paths hold no clauses, which are
 *	  matched again when the plan is made.
 *
 * IDENTIFICATION
 *	  src/fdw/handler.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/fdw.h"

#include "fmgr.h"

PG_FUNCTION_INFO_V1(strata_handler);

Datum
strata_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	/* scanning */
	routine->GetForeignRelSize = strataGetForeignRelSize;
	routine->GetForeignPaths = strataGetForeignPaths;
	routine->GetForeignUpperPaths = strataGetForeignUpperPaths;
	routine->GetForeignPlan = strataGetForeignPlan;
	routine->BeginForeignScan = strataBeginForeignScan;
	routine->IterateForeignScan = strataIterateForeignScan;
	routine->ReScanForeignScan = strataReScanForeignScan;
	routine->EndForeignScan = strataEndForeignScan;
	routine->RecheckForeignScan = strataRecheckForeignScan;

	/* scanning in parallel */
	routine->IsForeignScanParallelSafe = strataIsForeignScanParallelSafe;
	routine->EstimateDSMForeignScan = strataEstimateDSMForeignScan;
	routine->InitializeDSMForeignScan = strataInitializeDSMForeignScan;
	routine->ReInitializeDSMForeignScan = strataReInitializeDSMForeignScan;
	routine->InitializeWorkerForeignScan = strataInitializeWorkerForeignScan;
	routine->ShutdownForeignScan = strataShutdownForeignScan;

	/* changing */
	routine->PlanForeignModify = strataPlanForeignModify;
	routine->BeginForeignModify = strataBeginForeignModify;
	routine->ExecForeignInsert = strataExecForeignInsert;
	routine->AddForeignUpdateTargets = strataAddForeignUpdateTargets;
	routine->ExecForeignUpdate = strataExecForeignUpdate;
	routine->ExecForeignDelete = strataExecForeignDelete;
	routine->EndForeignModify = strataEndForeignModify;
	routine->BeginForeignInsert = strataBeginForeignInsert;
	routine->EndForeignInsert = strataEndForeignInsert;
	routine->IsForeignRelUpdatable = strataIsForeignRelUpdatable;
	routine->ExecForeignTruncate = strataExecForeignTruncate;

	/* locking rows */
	routine->GetForeignRowMarkType = strataGetForeignRowMarkType;
	routine->RefetchForeignRow = strataRefetchForeignRow;

	/* tables over one layer of what there is */
	routine->ImportForeignSchema = strataImportForeignSchema;

	/* looking in */
	routine->ExplainForeignScan = strataExplainForeignScan;
	routine->AnalyzeForeignTable = strataAnalyzeForeignTable;

	PG_RETURN_POINTER(routine);
}
