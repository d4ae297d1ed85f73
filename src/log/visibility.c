/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  Translates an entry's (full xid, cid, flags) into what a snapshot sees
 *	  and what became of the writer.
 *
 * Locks: none.  Everything asked is PostgreSQL's own: the proc array, the
 * snapshot, clog.
 *
 * Invariants:
 *
 *	- An outcome is kept only once it can no longer change: committed or
 *	  aborted, asked for in the order in progress, then committed.  A running
 *	  xid and an own one are asked for again each time.
 *	- A 32-bit xid is enough to ask with, since VACUUM freezes entries before
 *	  their clog goes (merge/freeze.c); frozen entries ask nobody.
 *	- A frozen entry is older than every snapshot of this server, and standby
 *	  snapshots it is not older than were cancelled before it was frozen.
 *
 * IDENTIFICATION
 *	  src/log/visibility.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/visibility.h"

#include "pause.h"

#include "access/transam.h"
#include "access/xact.h"
#include "storage/procarray.h"
#include "utils/snapmgr.h"

/*
 * Settled outcomes of this backend, direct mapped by the low bits of the full
 * xid: recent transactions have neighbouring xids, so they do not collide.
 */
#define OUTCOME_SLOTS	1024

typedef struct OutcomeSlot
{
	uint64		fxid;			/* 0: empty */
	bool		committed;
} OutcomeSlot;

static OutcomeSlot outcomes[OUTCOME_SLOTS];

static inline OutcomeSlot *
outcome_slot(uint64 fxid)
{
	return &outcomes[fxid % OUTCOME_SLOTS];
}

static void
outcome_keep(uint64 fxid, bool committed)
{
	OutcomeSlot *slot = outcome_slot(fxid);

	slot->fxid = fxid;
	slot->committed = committed;
}

/*
 * Ask clog about a transaction known not to be in progress, and keep the
 * answer.
 *
 * An xid that was never given out would answer "aborted", and would be taken
 * for that even after somebody got it: such an entry is damage, not an abort.
 */
static bool
ask_clog(uint64 fxid)
{
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(fxid));
	bool		committed = TransactionIdDidCommit(xid);

	if (!committed)
	{
		uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

		if (fxid >= next)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("log entry of transaction " UINT64_FORMAT " is from the future", fxid),
					 errdetail("The next transaction is " UINT64_FORMAT ".", next)));
		Assert(next - fxid < PG_INT32_MAX);
	}
	outcome_keep(fxid, committed);
	return committed;
}

StrataOutcome
strata_xid_outcome(uint64 fxid, uint16 flags)
{
	OutcomeSlot *slot = outcome_slot(fxid);
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(fxid));

	if (flags & STRATA_ENTRY_FROZEN_COMMITTED)
		return STRATA_XID_COMMITTED;
	if (flags & STRATA_ENTRY_FROZEN_ABORTED)
		return STRATA_XID_ABORTED;

	if (slot->fxid == fxid)
		return slot->committed ? STRATA_XID_COMMITTED : STRATA_XID_ABORTED;

	if (TransactionIdIsCurrentTransactionId(xid))
		return STRATA_XID_OWN;
	if (TransactionIdIsInProgress(xid))
		return STRATA_XID_RUNNING;
	STRATA_PAUSE("log-outcome-ended");
	return ask_clog(fxid) ? STRATA_XID_COMMITTED : STRATA_XID_ABORTED;
}

bool
strata_entry_visible(uint64 fxid, CommandId cid, uint16 flags, Snapshot snapshot)
{
	OutcomeSlot *slot = outcome_slot(fxid);
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(fxid));

	if (snapshot->snapshot_type != SNAPSHOT_MVCC)
		elog(ERROR, "snapshot type %d cannot read a strata log",
			 (int) snapshot->snapshot_type);

	if (flags & STRATA_ENTRY_FROZEN_COMMITTED)
		return true;
	if (flags & STRATA_ENTRY_FROZEN_ABORTED)
		return false;

	/* What is settled was never of the current transaction. */
	if (slot->fxid == fxid)
		return slot->committed && !XidInMVCCSnapshot(xid, snapshot);

	if (TransactionIdIsCurrentTransactionId(xid))
		return cid < snapshot->curcid;

	/*
	 * What the snapshot does not hold for running had ended when it was taken,
	 * so clog's answer is final.
	 */
	if (XidInMVCCSnapshot(xid, snapshot))
		return false;
	return ask_clog(fxid);
}
