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
 * Take bytes of the budget, all at once (more than there is stands for all of
 * it), waiting in line.  The caller holds nothing of the budget.  tick (may be
 * NULL) is called now and then while waiting; it and interrupts may raise
 * errors, after which nothing is held.
 */
typedef void (*StrataBudgetTick)(void *arg);
extern void strata_budget_take(uint64 bytes, StrataBudgetTick tick, void *arg);

/* Give back what is held, if anything. */
extern void strata_budget_release(void);

/* What is taken now, and how many wait. */
extern void strata_budget_state(uint64 *taken, int *waiters);

#endif							/* STRATA_BUDGET_H */
