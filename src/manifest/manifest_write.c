/*-------------------------------------------------------------------------
 *
 * manifest_write.c
 *	  Changing the manifest: what passes and TRUNCATE write.
 *
 * The caller holds the pass lock, or AccessExclusiveLock on the storage
 * relation, to the end of its transaction, and has logged itself as M in the
 * metapage before it writes anything here.  Rows are found with the catalog
 * snapshot, so the caller's own earlier writes are seen after a
 * CommandCounterIncrement.  A crash or an error at any step leaves what was
 * there before: nothing counts until the transaction commits.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest_write.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pause.h"
#include "manifest/catalog.h"
#include "manifest/deletes.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Passes on record for each store. */
#define PASSES_KEPT		256

void
strata_manifest_set_shard(StrataStore *store, int shard, const StrataShardState *state,
						  uint32 incarnation)
{
	StrataShardRow row = {.shard = shard, .incarnation = incarnation, .state = *state};

	strata_shard_row_update(store->ftrelid, &row);
	STRATA_PAUSE("manifest-shard-set");
}

void
strata_manifest_add_group(StrataStore *store, uint32 incarnation, uint32 number,
						  const StrataGroupRef *ref, bytea *zones, StrataPassRecord *record)
{
	StrataGroupRow row = {
		.number = number,
		.incarnation = incarnation,
		.ref = *ref,
		.zones = zones};

	strata_group_row_insert(store->ftrelid, &row);
	record->base_groups++;
	record->base_raw_bytes += (int64) ref->raw_bytes;
	record->base_bytes += (int64) ref->length;
	STRATA_PAUSE("manifest-group-added");
}

void
strata_manifest_remove_group(StrataStore *store, uint32 number, StrataPassRecord *record)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	StrataGroupRow row;

	strata_table_scan_begin_at(&scan, STRATA_TABLE_ROW_GROUP, RowExclusiveLock,
							   store->ftrelid, number, NULL);
	tuple = strata_table_scan_next(&scan);
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("table %s.%s lacks row group %u of %s", STRATA_SCHEMA,
						strata_table_name(STRATA_TABLE_ROW_GROUP), number, store->name)));
	strata_decode_group(scan.rel, tuple, &row);
	record->base_groups--;
	record->base_raw_bytes -= (int64) row.ref.raw_bytes;
	record->base_bytes -= (int64) row.ref.length;
	CatalogTupleDelete(scan.rel, &tuple->t_self);
	strata_table_scan_end(&scan);
}

/* The base table as a pass finds it. */
void
strata_manifest_start_record(const StrataManifest *manifest, StrataPassRecord *record)
{
	record->incarnation = manifest->incarnation;
	record->base_groups = manifest->ngroups;
	record->base_rows = (int64) manifest->live_rows;
	record->base_raw_bytes = (int64) manifest->raw_bytes;
	record->base_bytes = (int64) manifest->stored_bytes;
}

/*
 * One transaction can be several passes: continue after its rows.
 */
void
strata_manifest_add_deletes(StrataStore *store, uint32 incarnation, const uint64 *tids,
							uint64 ntids)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	StrataDeletesRow row = {0};
	uint64		done = 0;

	row.pass = U64FromFullTransactionId(GetTopFullTransactionId());
	row.incarnation = incarnation;

	CommandCounterIncrement();
	strata_table_scan_begin_at(&scan, STRATA_TABLE_DELETES, RowExclusiveLock,
							   store->ftrelid, (int64) row.pass, NULL);
	scan.direction = BackwardScanDirection;
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
	{
		StrataDeletesRow last;

		strata_decode_deletes(scan.rel, tuple, &last);
		row.seq = last.seq + 1;
	}
	strata_table_scan_end(&scan);

	while (done < ntids)
	{
		row.tids = strata_deletes_encode(tids + done, ntids - done, &row.ntids);
		strata_deletes_row_insert(store->ftrelid, &row);
		pfree(row.tids);
		row.seq++;
		done += row.ntids;
	}
	STRATA_PAUSE("manifest-deletes-added");
}

void
strata_manifest_fold_deletes(StrataStore *store, StrataManifest *manifest, const bool *gone)
{
	uint64		ntids = 0;
	uint64		i = 0;
	uint64	   *tids;

	for (int g = 0; g < manifest->ngroups; g++)
	{
		if (gone == NULL || !gone[g])
			ntids += manifest->groups[g].ndeleted;
	}
	tids = MemoryContextAllocHuge(CurrentMemoryContext, Max(ntids, 1) * sizeof(uint64));
	for (int g = 0; g < manifest->ngroups; g++)
	{
		StrataRowGroup *group = &manifest->groups[g];

		if (gone != NULL && gone[g])
			continue;
		for (uint32 row = 0; group->ndeleted > 0 && row < group->ref.rows; row++)
		{
			if (strata_row_deleted(group, row))
				tids[i++] = (uint64) group->number << 16 | row;
		}
		CHECK_FOR_INTERRUPTS();
	}
	Assert(i == ntids);

	strata_table_delete(STRATA_TABLE_DELETES, store->ftrelid);
	if (ntids > 0)
		strata_manifest_add_deletes(store, manifest->incarnation, tids, ntids);
	pfree(tids);
}

/*
 * Number the passes of a store, and forget the oldest.
 */
void
strata_manifest_add_pass(StrataStore *store, const StrataPassRecord *record)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	int64		id = 1;

	CommandCounterIncrement();
	strata_table_scan_begin(&scan, STRATA_TABLE_PASS, RowExclusiveLock, store->ftrelid, NULL);
	scan.direction = BackwardScanDirection;
	for (int n = 1; HeapTupleIsValid(tuple = strata_table_scan_next(&scan)); n++)
	{
		if (n == 1)
		{
			StrataPassRow row;

			strata_decode_pass(scan.rel, tuple, &row);
			id = row.id + 1;
		}
		if (n >= PASSES_KEPT)
			CatalogTupleDelete(scan.rel, &tuple->t_self);
	}
	strata_table_scan_end(&scan);
	strata_pass_row_insert(store->ftrelid, id, record);
}

/*
 * The file is new and so is its incarnation.  shards say from which generation
 * and totals on rows are pending.
 */
void
strata_manifest_truncate(StrataStore *store, uint32 incarnation,
						 const StrataShardState *shards)
{
	StrataStoreRow row;

	strata_table_delete(STRATA_TABLE_ROW_GROUP, store->ftrelid);
	strata_table_delete(STRATA_TABLE_DICTIONARY, store->ftrelid);
	strata_table_delete(STRATA_TABLE_DELETES, store->ftrelid);
	for (int shard = 0; shard < store->nshards; shard++)
		strata_manifest_set_shard(store, shard, &shards[shard], incarnation);

	if (!strata_store_row_read(store->ftrelid, &row))
		elog(ERROR, "store of %s vanished", store->name);
	row.incarnation = incarnation;
	strata_store_row_update(&row);
}
