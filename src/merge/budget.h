/*-------------------------------------------------------------------------
 *
 * budget.h
 *	  strata.merge_memory: what all merges of a cluster may take together.
 *
 * IDENTIFICATION
 *	  src/merge/budget.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_BUDGET_H
#define STRATA_BUDGET_H

#include "postgres.h"

/* kB */
extern int	strata_merge_memory;

extern void strata_budget_define_gucs(void);

/* Shared memory, when the library is preloaded. */
extern Size strata_budget_shmem_size(void);
extern void strata_budget_shmem_init(void);

/*
 * Run action with bytes of the budget, taken all at once (more than there is
 * stands for all of it), waiting in line.  The caller has nothing of the budget,
 * and nothing is held afterwards, whatever error is raised.  tick is called now
 * and then while waiting, and may raise one.  The action adds nothing to the
 * backend's row group cache.  Both get arg.
 */
typedef void (*StrataBudgetAction)(void *arg);
extern void strata_budget_run(uint64 bytes, StrataBudgetAction tick, StrataBudgetAction action,
							  void *arg);

/* What is taken now (bytes), and how many wait. */
extern void strata_budget_state(uint64 *taken, int *waiters);

#endif							/* STRATA_BUDGET_H */
