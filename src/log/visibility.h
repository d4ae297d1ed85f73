/*-------------------------------------------------------------------------
 *
 * visibility.h
 *	  Which entries a snapshot sees, and what became of their transactions.
 *
 * Outcomes of recent xids are cached per backend.
 *
 * IDENTIFICATION
 *	  src/log/visibility.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_VISIBILITY_H
#define STRATA_VISIBILITY_H

#include "log/entry.h"

#include "utils/snapshot.h"

typedef enum StrataOutcome
{
	STRATA_XID_COMMITTED,
	STRATA_XID_ABORTED,
	STRATA_XID_RUNNING,
	STRATA_XID_OWN				/* the current transaction or a live
								 * subtransaction of it */
} StrataOutcome;

/*
 * Asks TransactionIdIsInProgress first, TransactionIdDidCommit second.
 * flags: of the entry (frozen ones ask nobody).
 */
extern StrataOutcome strata_xid_outcome(uint64 fxid, uint16 flags);

/* Own entries: cid < snapshot->curcid; others: MVCC rules. */
extern bool strata_entry_visible(uint64 fxid, CommandId cid, uint16 flags,
								 Snapshot snapshot);

#endif							/* STRATA_VISIBILITY_H */
