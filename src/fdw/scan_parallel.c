/*-------------------------------------------------------------------------
 *
 * scan_parallel.c
 *	  Scans that several processes share, and what EXPLAIN ANALYZE is told of
 *	  them.
 *
 * Memtables are the leader's.  It flushes them before a parallel query starts,
 * whatever that reads: a function in it may read a strata table in a worker, or
 * in the leader when that may not write any more.  (A scan flushes what it
 * concerns once more, which is not there then.)
 *
 * The cursors that hand out the pending part and the row groups are in the
 * shared memory of the parallel query, and so are the workers' figures, which
 * go with it: the leader adds them up when its node is shut down.
 *
 * IDENTIFICATION
 *	  src/fdw/scan_parallel.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/fdw.h"
#include "fdw/scan.h"

#include "executor/executor.h"
#include "log/memtable.h"
#include "storage/shmem.h"

static ExecutorStart_hook_type previous_start = NULL;

static void
executor_start(QueryDesc *query, int eflags)
{
	if (query->plannedstmt->parallelModeNeeded && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		strata_memtable_flush_all();
	if (previous_start != NULL)
		previous_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
}

void
strata_parallel_init(void)
{
	previous_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}

/* A worker makes a view of its own, of the same snapshot. */
bool
strataIsForeignScanParallelSafe(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	return true;
}

static Size
parallel_scan_size(int nslots)
{
	return add_size(offsetof(StrataParallelScan, slot), mul_size(nslots, sizeof(StrataReadStats)));
}

Size
strataEstimateDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt)
{
	return parallel_scan_size(node->ss.ps.instrument != NULL ? pcxt->nworkers : 0);
}

static void
set_cursors(StrataScanState *state, StrataParallelScan *parallel)
{
	pg_atomic_init_u32(&parallel->scan.pending, 0);
	pg_atomic_init_u32(&parallel->scan.groups, 0);
	state->parallel = parallel;
}

void
strataInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	StrataParallelScan *parallel = (StrataParallelScan *) coordinate;
	int			nslots = node->ss.ps.instrument != NULL ? pcxt->nworkers : 0;

	memset(parallel, 0, parallel_scan_size(nslots));
	parallel->nslots = nslots;
	set_cursors((StrataScanState *) node->fdw_state, parallel);
}

void
strataReInitializeDSMForeignScan(ForeignScanState *node, ParallelContext *pcxt, void *coordinate)
{
	set_cursors((StrataScanState *) node->fdw_state, (StrataParallelScan *) coordinate);
}

void
strataInitializeWorkerForeignScan(ForeignScanState *node, shm_toc *toc, void *coordinate)
{
	StrataScanState *state = (StrataScanState *) node->fdw_state;

	state->parallel = (StrataParallelScan *) coordinate;
	if (ParallelWorkerNumber < state->parallel->nslots)
	{
		state->slot = &state->parallel->slot[ParallelWorkerNumber];
		state->reported = *state->slot;
	}
}

/*
 * Work adds up.  What every process finds for itself and finds the same is
 * not work: generations pending, row groups skipped, rows superseded.
 */
static void
add_stats(StrataReadStats *sum, const StrataReadStats *stats)
{
	sum->generations = Max(sum->generations, stats->generations);
	sum->groups_read += stats->groups_read;
	sum->groups_skipped = Max(sum->groups_skipped, stats->groups_skipped);
	sum->index_probes += stats->index_probes;
	sum->superseded = Max(sum->superseded, stats->superseded);
	sum->bytes_read += stats->bytes_read;
	sum->bytes_decoded += stats->bytes_decoded;
}

/*
 * A worker tells what it has read: when it goes on to another row group, and
 * at its end.  A leader that has had enough rows shuts its nodes down before
 * it stops the workers; it learns what was told by then.
 */
void
strata_scan_tell(StrataScanState *state)
{
	StrataReadStats sum = state->reported;

	add_stats(&sum, strata_view_stats(state->view));
	*state->slot = sum;
}

/* What was read for a node, in all processes. */
StrataReadStats
strata_scan_stats(StrataScanState *state)
{
	StrataReadStats stats = {0};

	/* no view: nothing was fetched */
	if (state->view != NULL)
		stats = *strata_view_stats(state->view);
	add_stats(&stats, &state->workers);
	return stats;
}

/* The last call before the shared memory goes. */
void
strataShutdownForeignScan(ForeignScanState *node)
{
	StrataScanState *state = (StrataScanState *) node->fdw_state;

	if (state == NULL || state->parallel == NULL)
		return;

	if (state->slot != NULL && state->view != NULL)
		strata_scan_tell(state);
	if (!IsParallelWorker())
	{
		for (int i = 0; i < state->parallel->nslots; i++)
			add_stats(&state->workers, &state->parallel->slot[i]);
		state->parallel = NULL;
	}
}
