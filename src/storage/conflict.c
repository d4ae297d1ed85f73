/*-------------------------------------------------------------------------
 *
 * conflict.c
 *	  The record that cancels standby readers before something is taken from
 *	  them.
 *
 * Replay of generic and full-page-image records resolves no conflict with
 * queries on the standby.  So whoever reuses blocks, freezes entries, removes
 * TIDs from a key index or truncates first logs the B-tree's "page reuse"
 * record, whose replay does nothing but that, and nothing else: it touches no
 * page and needs no library.
 *
 * The record must come before the change in the log, and must name an xid at
 * least as new as any that a reader of what goes could still see as running;
 * horizon - 1 is that xid.
 *
 * IDENTIFICATION
 *	  src/storage/conflict.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "storage/conflict.h"

#include "utils/rel.h"

void
strata_log_conflict(Relation rel, TransactionId horizon)
{
	FullTransactionId newest;

	if (!XLogStandbyInfoActive() || !RelationNeedsWAL(rel))
		return;
	if (!TransactionIdIsNormal(horizon))
		return;

	newest = strata_full_xid(horizon);
	FullTransactionIdRetreat(&newest);
	strata_xlog_conflict(rel, newest);
}
