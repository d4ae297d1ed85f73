/*-------------------------------------------------------------------------
 *
 * freeze.c
 *	  VACUUM of a storage relation: settling old xids so that clog can forget
 *	  them.
 *
 * Translates "transaction x, older than every snapshot" into a flag on each of
 * its entries, and moves relfrozenxid on.  Walked are the generations that are
 * pending for any version of the shards' manifest rows not dead to everybody;
 * older pages are read by nobody.  M and P on the metapage are settled
 * likewise.
 *
 * VACUUM runs with PROC_IN_VACUUM: others take no notice of its xid.  So none
 * is assigned here: nothing is written but our own pages, by records that need
 * none, and pg_class in place.  Nothing is freed and nothing truncated; that
 * is sweep's work.
 *
 * relfrozenxid: entries are frozen when their xid precedes the horizon, the
 * oldest xid that any snapshot may hold for running.  An entry appended while
 * or after we walk is of a transaction that runs now, hence not older than the
 * horizon.  So the horizon, or the oldest xid left unfrozen should there be
 * an older one, is right for all that is or ever comes on the pages.
 *
 * Standby: a snapshot there may be older than the horizon.  To it a frozen
 * entry would show too early, and for what it alone still reads, pages of
 * merged generations, it may need clog that a newer relfrozenxid lets go.  So
 * the conflict record that cancels it comes first, whether or not there is
 * anything to freeze.
 *
 * Locks: the caller's ShareUpdateExclusiveLock on the storage keeps passes,
 * sweep and TRUNCATE out.  A page is locked exclusively to set its entries'
 * flags, after their outcomes were looked up without a lock: outcomes of ended
 * transactions do not change, entries do not move.
 *
 * IDENTIFICATION
 *	  src/merge/freeze.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "compat.h"
#include "pause.h"
#include "storage/conflict.h"
#include "storage/metapage.h"

#include "access/generic_xlog.h"
#include "access/multixact.h"
#include "access/xact.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/rel.h"

#define MAX_PAGE_ENTRIES	(STRATA_LOG_PAGE_CAPACITY / sizeof(StrataEntryHeader))

typedef struct Freeze
{
	Relation	storage;
	TransactionId horizon;
	uint64		limit;			/* the same as full xid */
	uint64		oldest_left;	/* oldest xid not frozen, or limit */
	bool		frozen;			/* anything */

	/* oldest version of each shard's manifest row */
	StrataShardState oldest[STRATA_MAX_SHARDS];
	bool		found[STRATA_MAX_SHARDS];

	/* entries of one page to be frozen */
	StrataPageRef page;
	int			nentries;
	uint16		offset[MAX_PAGE_ENTRIES];
	uint16		flag[MAX_PAGE_ENTRIES];
} Freeze;

/* StrataShardVersionCallback; row groups hold no xids */
static void
note_shard(int shard, const StrataShardState *state, void *arg)
{
	Freeze	   *freeze = (Freeze *) arg;

	if (shard < 0 || shard >= STRATA_MAX_SHARDS)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("manifest of relation \"%s\" names shard %d",
						RelationGetRelationName(freeze->storage), shard)));
	if (!freeze->found[shard] || state->merged_through < freeze->oldest[shard].merged_through)
		freeze->oldest[shard] = *state;
	freeze->found[shard] = true;
}

/* Set the flags collected for a page. */
static void
freeze_page(Freeze *freeze)
{
	Buffer		buffer;
	GenericXLogState *record;
	Page		page;

	if (freeze->nentries == 0)
		return;

	buffer = strata_page_read(freeze->storage, freeze->page.block, STRATA_PAGE_LOG,
							  freeze->page.owner, BUFFER_LOCK_EXCLUSIVE, NULL,
							  "a page of a log");
	record = GenericXLogStart(freeze->storage);
	page = GenericXLogRegisterBuffer(record, buffer, 0);
	for (int i = 0; i < freeze->nentries; i++)
		((StrataEntryHeader *) (page + freeze->offset[i]))->flags |= freeze->flag[i];
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	STRATA_PAUSE("freeze-after-page");

	freeze->frozen = true;
	freeze->nentries = 0;
	strata_vacuum_delay();
}

/* Collect an entry of a page, if it is to be frozen. */
static void
freeze_entry(Freeze *freeze, const StrataLogEntry *entry)
{
	const StrataEntryHeader *header = entry->header;

	if (header->flags & STRATA_ENTRY_FROZEN_MASK)
		return;
	if (freeze->nentries > 0 && freeze->page.block != entry->page.block)
		freeze_page(freeze);

	if (header->fxid < freeze->limit)
	{
		StrataOutcome outcome = strata_xid_outcome(header->fxid, header->flags);

		if (outcome == STRATA_XID_COMMITTED || outcome == STRATA_XID_ABORTED)
		{
			freeze->page = entry->page;
			freeze->offset[freeze->nentries] = entry->position.offset;
			freeze->flag[freeze->nentries] = outcome == STRATA_XID_COMMITTED ?
												 STRATA_ENTRY_FROZEN_COMMITTED :
												 STRATA_ENTRY_FROZEN_ABORTED;
			freeze->nentries++;
			return;
		}
	}
	freeze->oldest_left = Min(freeze->oldest_left, header->fxid);
}

static void
freeze_shard(Freeze *freeze, int shard)
{
	StrataLogPoint point;
	StrataLogWalk *walk;
	StrataLogEntry entry;

	if (!strata_log_start(freeze->storage, shard,
						  freeze->found[shard] ? &freeze->oldest[shard] : NULL, &point))
		return;
	walk = strata_log_walk_begin(NULL, freeze->storage, shard, &point, 0);
	while (strata_log_walk_next(walk, &entry))
		freeze_entry(freeze, &entry);
	freeze_page(freeze);
	strata_log_walk_end(walk);
}

void
strata_freeze(Relation storage, VacuumParams *params, BufferAccessStrategy strategy)
{
	Freeze	   *freeze = palloc0(sizeof(Freeze));
	StrataMetaData meta;
	TransactionId oldest_left;

	freeze->storage = storage;

	/*
	 * Not the horizon of old_snapshot_threshold: a snapshot that is too old
	 * would not notice that an entry is frozen.
	 */
	freeze->horizon = GetOldestNonRemovableTransactionId(storage);
	freeze->limit = U64FromFullTransactionId(strata_full_xid(freeze->horizon));
	freeze->oldest_left = freeze->limit;

	if (strata_meta_read(storage, &meta))
	{
		Oid			ftrelid = strata_store_of_storage(RelationGetRelid(storage));

		if (!OidIsValid(ftrelid))
		{
			/* Which part of the log is still there, only a manifest knows. */
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("skipping \"%s\" --- no foreign table uses it",
							RelationGetRelationName(storage))));
			pfree(freeze);
			return;
		}
		(void) strata_manifest_all_versions(ftrelid, meta.incarnation,
											strata_meta_horizon(storage), NULL, note_shard,
											freeze);

		strata_log_conflict(storage, freeze->horizon);
		STRATA_PAUSE("freeze-after-conflict");
		for (uint32 shard = 0; shard < meta.nshards; shard++)
			freeze_shard(freeze, shard);
		strata_meta_settle_passes(storage, freeze->horizon);

		/* Backends keep flags of entries that they have read. */
		if (freeze->frozen)
			CacheInvalidateRelcache(storage);
	}

	oldest_left = XidFromFullTransactionId(FullTransactionIdFromU64(freeze->oldest_left));
	strata_update_relstats(storage, RelationGetNumberOfBlocks(storage), oldest_left);
	Assert(!TransactionIdIsValid(GetTopTransactionIdIfAny()));
	pfree(freeze);
}
