/*-------------------------------------------------------------------------
 *
 * versions.c
 *	  What any snapshot may still see of a store's manifest.
 *
 * Sweep, freeze and index builds must not take from any snapshot what it
 * needs, whatever it is: held by a session, a slot, a prepared transaction or
 * a standby that sends feedback.  So they ask here, for row versions instead
 * of for a snapshot's rows, judged by the oldest xid that such a snapshot may
 * hold for running (HeapTupleSatisfiesVacuum).
 *
 * Locks: AccessShareLock on the manifest tables, one page lock at a time.  The
 * caller keeps passes out, so versions only get more dead.  A version that is
 * dead to everybody, though not at the caller's horizon, may vanish under us,
 * its out-of-line values before itself: those are read of live versions only.
 *
 * IDENTIFICATION
 *	  src/manifest/versions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog.h"
#include "manifest/deletes.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * A scan that sees every version of a store's rows that is still there.  Index
 * entries known to be dead are looked at like the others: that they are dead
 * was found with somebody else's horizon.
 */
static void
versions_begin(StrataTableScan *scan, StrataTable table, Oid ftrelid)
{
	strata_table_scan_begin(scan, table, AccessShareLock, ftrelid, SnapshotAny);
	scan->scan->iscan->ignore_killed_tuples = false;
}

/*
 * The next version that is not dead to everybody at horizon, and how things
 * stand with it; *dead (may be NULL) is set when one that is was passed over.
 */
static HeapTuple
versions_next(StrataTableScan *scan, TransactionId horizon, HTSV_Result *result, bool *dead)
{
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = strata_table_scan_next(scan)))
	{
		Buffer		buffer = strata_table_scan_buffer(scan);

		CHECK_FOR_INTERRUPTS();
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		*result = HeapTupleSatisfiesVacuum(tuple, horizon, buffer);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		if (*result != HEAPTUPLE_DEAD)
			return tuple;
		if (dead != NULL)
			*dead = true;
	}
	return NULL;
}

bool
strata_manifest_all_versions(Oid ftrelid, uint32 incarnation, TransactionId horizon,
							 StrataGroupVersionCallback group_callback,
							 StrataShardVersionCallback shard_callback, void *arg)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	HTSV_Result result;
	bool		left_out = false;

	if (group_callback != NULL)
	{
		versions_begin(&scan, STRATA_TABLE_ROW_GROUP, ftrelid);
		while (HeapTupleIsValid(tuple = versions_next(&scan, horizon, &result, &left_out)))
		{
			StrataGroupRow row;

			strata_decode_group(scan.rel, tuple, &row);
			if (row.incarnation == incarnation)
				group_callback(row.number, &row.ref, arg);
		}
		strata_table_scan_end(&scan);

		versions_begin(&scan, STRATA_TABLE_DICTIONARY, ftrelid);
		while (HeapTupleIsValid(tuple = versions_next(&scan, horizon, &result, NULL)))
		{
			StrataDictionaryRow row;
			StrataGroupRef ref = {0};

			strata_decode_dictionary(scan.rel, tuple, &row);
			ref.extent = row.ref.extent;
			ref.length = row.ref.length;
			if (row.incarnation == incarnation)
				group_callback(0, &ref, arg);
		}
		strata_table_scan_end(&scan);
	}

	if (shard_callback != NULL)
	{
		versions_begin(&scan, STRATA_TABLE_SHARD, ftrelid);
		while (HeapTupleIsValid(tuple = versions_next(&scan, horizon, &result, NULL)))
		{
			StrataShardRow row;

			strata_decode_shard(scan.rel, tuple, &row);
			if (row.incarnation == incarnation)
				shard_callback(row.shard, &row.state, arg);
		}
		strata_table_scan_end(&scan);
	}
	return left_out;
}

void
strata_manifest_deleted_for_all(Oid ftrelid, uint32 incarnation, TransactionId horizon,
								StrataDeletedRowCallback callback, void *arg)
{
	MemoryContext work = AllocSetContextCreate(CurrentMemoryContext, "strata deletes",
											   ALLOCSET_DEFAULT_SIZES);
	StrataTableScan scan;
	HeapTuple	tuple;
	HTSV_Result result;

	versions_begin(&scan, STRATA_TABLE_DELETES, ftrelid);
	while (HeapTupleIsValid(tuple = versions_next(&scan, horizon, &result, NULL)))
	{
		StrataDeletesRow row;
		MemoryContext old;

		/*
		 * A deleted row stays deleted: that the deletes row is visible to
		 * everybody is all that matters.  One that was folded into another
		 * meanwhile is passed over, the other will do when it is old enough.
		 */
		if (result != HEAPTUPLE_LIVE ||
			(!HeapTupleHeaderXminFrozen(tuple->t_data) &&
			 !TransactionIdPrecedes(HeapTupleHeaderGetXmin(tuple->t_data), horizon)))
			continue;

		old = MemoryContextSwitchTo(work);
		strata_decode_deletes(scan.rel, tuple, &row);
		if (row.incarnation == incarnation)
			strata_deletes_decode(DatumGetByteaP(PointerGetDatum(row.tids)), row.ntids,
								  callback, arg);
		MemoryContextSwitchTo(old);
		MemoryContextReset(work);
	}
	strata_table_scan_end(&scan);
	MemoryContextDelete(work);
}
