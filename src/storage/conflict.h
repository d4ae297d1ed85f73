/*-------------------------------------------------------------------------
 *
 * conflict.h
 *	  The record that cancels standby readers before something is taken from
 *	  them.
 *
 * IDENTIFICATION
 *	  src/storage/conflict.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CONFLICT_H
#define STRATA_CONFLICT_H

#include "strata.h"

/*
 * Log that what was visible only to snapshots that still see horizon - 1 as
 * running is about to go: reuse of blocks, freezing, removal of TIDs,
 * truncation.  horizon is the oldest non-removable xid the step was computed
 * with.  Core's redo resolves the conflict; no page is touched.
 */
extern void strata_log_conflict(Relation rel, TransactionId horizon);

#endif							/* STRATA_CONFLICT_H */
