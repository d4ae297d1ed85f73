/*-------------------------------------------------------------------------
 *
 * subtransaction.h
 *	  Running something in a subtransaction of its own, and catching its error.
 *
 * IDENTIFICATION
 *	  src/storage/subtransaction.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_SUBTRANSACTION_H
#define STRATA_SUBTRANSACTION_H

/*
 * Run action in a subtransaction, in CurrentMemoryContext: what it allocates
 * there stays.  Returns NULL, or the error that it raised, in the same context;
 * then everything else it did and took is undone.
 */
typedef void (*StrataAction)(void *arg);
extern ErrorData *strata_subtransaction(StrataAction action, void *arg);

#endif							/* STRATA_SUBTRANSACTION_H */
