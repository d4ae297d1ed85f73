/*-------------------------------------------------------------------------
 *
 * budget.c
 *	  strata.merge_memory: what all merges of a cluster may take together.
 *
 * A pass knows what it will take when it has chosen its generations, and takes
 * that from the budget in one piece before it reads them.  So nobody waits for
 * memory while holding some: two passes never wait for each other, however
 * they grow.  What is more than the whole budget stands for the whole, and is
 * given when nobody else has any, so the largest pass finishes, too.
 *
 * Waiting is in line: a request is served when it fits and all that came
 * before it are served, lest small ones keep a large one out for ever.  Who
 * waits holds the pass lock of his own store, which keeps nobody else from
 * giving memory back, and gives way to DDL (the tick).
 *
 * Locks: one spinlock over the few numbers here.  Without preloading there is
 * no shared memory, and each pass is bounded by itself only.
 *
 * IDENTIFICATION
 *	  src/merge/budget.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "merge/budget.h"

#include "base/cache.h"
#include "compat.h"

#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/guc.h"

/* Look around every so often while waiting. */
#define BUDGET_TICK_MSEC		200

/* Who waits in line; those beyond wait until there is a place in it. */
#define BUDGET_PLACES			64

typedef struct BudgetShared
{
	slock_t		mutex;
	uint64		taken;			/* bytes */
	uint64		next_ticket;
	int			waiters;
	uint64		tickets[BUDGET_PLACES]; /* 0: free */
	ConditionVariable released;
} BudgetShared;

int			strata_merge_memory = 256 * 1024;

static BudgetShared *budget = NULL;
static uint64 held = 0;			/* of this backend */
static int	place = -1;			/* in line */
static bool exit_registered = false;

void
strata_budget_define_gucs(void)
{
	DefineCustomIntVariable("strata.merge_memory",
							"Memory that all merges of the cluster may take together.",
							"Takes effect when the library is preloaded.",
							&strata_merge_memory,
							256 * 1024, 8 * 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
}

Size
strata_budget_shmem_size(void)
{
	return MAXALIGN(sizeof(BudgetShared));
}

void
strata_budget_shmem_init(void)
{
	bool		found;

	budget = ShmemInitStruct("strata merge memory", sizeof(BudgetShared), &found);
	if (found)
		return;
	memset(budget, 0, sizeof(BudgetShared));
	SpinLockInit(&budget->mutex);
	budget->next_ticket = 1;
	ConditionVariableInit(&budget->released);
}

/* Leave the line, and give back what is held, if anything. */
static void
budget_release(void)
{
	if (budget == NULL || (held == 0 && place < 0))
		return;

	SpinLockAcquire(&budget->mutex);
	Assert(budget->taken >= held);
	budget->taken -= held;
	if (place >= 0)
	{
		budget->tickets[place] = 0;
		budget->waiters--;
	}
	SpinLockRelease(&budget->mutex);
	held = 0;
	place = -1;
	ConditionVariableBroadcast(&budget->released);
}

static void
budget_leave(int code, Datum arg)
{
	budget_release();
}

/*
 * Take the memory if it is our turn; else get a place in line if we have none.
 */
static bool
budget_try(uint64 bytes)
{
	uint64		limit = (uint64) strata_merge_memory * 1024;
	uint64		first = PG_UINT64_MAX;
	int			free_place = -1;
	bool		mine;
	bool		fits;

	bytes = Min(bytes, limit);
	SpinLockAcquire(&budget->mutex);
	for (int i = 0; i < BUDGET_PLACES; i++)
	{
		if (budget->tickets[i] != 0)
			first = Min(first, budget->tickets[i]);
		else
			free_place = i;
	}
	mine = first == PG_UINT64_MAX || (place >= 0 && budget->tickets[place] == first);
	fits = budget->taken == 0 || budget->taken + bytes <= limit;
	if (mine && fits)
	{
		budget->taken += bytes;
		held = bytes;
		if (place >= 0)
		{
			budget->tickets[place] = 0;
			budget->waiters--;
			place = -1;
		}
	}
	else if (place < 0 && free_place >= 0)
	{
		place = free_place;
		budget->tickets[place] = budget->next_ticket++;
		budget->waiters++;
	}
	SpinLockRelease(&budget->mutex);
	return held > 0;
}

static void
budget_take(uint64 bytes, StrataBudgetAction tick, void *arg)
{
	if (budget == NULL || bytes == 0)
		return;
	Assert(held == 0);

	/* What ends the session is no error. */
	if (!exit_registered)
	{
		before_shmem_exit(budget_leave, (Datum) 0);
		exit_registered = true;
	}

	if (budget_try(bytes))
		return;

	PG_TRY();
	{
		ConditionVariablePrepareToSleep(&budget->released);
		while (!budget_try(bytes))
		{
			(void) ConditionVariableTimedSleep(&budget->released, BUDGET_TICK_MSEC,
											   strata_wait_event("StrataMergeMemory"));
			CHECK_FOR_INTERRUPTS();
			tick(arg);
		}
		ConditionVariableCancelSleep();
	}
	PG_CATCH();
	{
		ConditionVariableCancelSleep();
		budget_release();
		PG_RE_THROW();
	}
	PG_END_TRY();

	/* The next in line may fit beside us. */
	ConditionVariableBroadcast(&budget->released);
}

void
strata_budget_run(uint64 bytes, StrataBudgetAction tick, StrataBudgetAction action, void *arg)
{
	budget_take(bytes, tick, arg);
	PG_TRY();
	{
		strata_cache_closed = true;
		action(arg);
	}
	PG_FINALLY();
	{
		strata_cache_closed = false;
		budget_release();
	}
	PG_END_TRY();
}

void
strata_budget_state(uint64 *taken, int *waiters)
{
	*taken = 0;
	*waiters = 0;
	if (budget == NULL)
		return;
	SpinLockAcquire(&budget->mutex);
	*taken = budget->taken;
	*waiters = budget->waiters;
	SpinLockRelease(&budget->mutex);
}
