/*-------------------------------------------------------------------------
 *
 * manifest_read.c
 *	  Reading the manifest's tables under a snapshot: all of them, what an
 *	  earlier manifest lacks, or single row groups.
 *
 * What detoasting and decoding leave behind is for the caller's memory context
 * to free.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest_read.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/deletes.h"
#include "manifest/manifest_private.h"

#include "access/detoast.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* What a manifest that is not complete may keep: deletes, in bytes, and row groups. */
#define PARTIAL_DELETES		(32 * 1024)
#define PARTIAL_GROUPS		64

/* A row of strata.deletes; what it says never changes once it is committed. */
typedef struct StrataDeletesId
{
	uint64		pass;
	int			seq;
} StrataDeletesId;

/* State of applying deletes: the row group of the pair before. */
typedef struct ApplyDeletes
{
	StrataManifest *manifest;
	uint32		number;
	StrataRowGroup *group;		/* NULL: not in the manifest */
} ApplyDeletes;

/* ---- reading ---- */

/*
 * An empty manifest in a memory context of its own, below the current one
 * until somebody pins it.
 */
StrataManifest *
strata_manifest_create(Relation storage, int nshards)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata manifest",
											   ALLOCSET_SMALL_SIZES);
	StrataManifest *manifest = MemoryContextAllocZero(mcxt, sizeof(StrataManifest));

	manifest->mcxt = mcxt;
	manifest->storage = RelationGetRelid(storage);
	manifest->nshards = nshards;
	manifest->complete = true;
	dlist_init(&manifest->pins);
	return manifest;
}

/*
 * Read the shard rows that snapshot sees (NULL: the newest).  Returns the
 * number of rows of that incarnation.
 */
int
strata_manifest_read_shards(Oid ftrelid, Snapshot snapshot, uint32 incarnation, int nshards,
							StrataShardState *shards)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	int			nfound = 0;

	strata_table_scan_begin(&scan, STRATA_TABLE_SHARD, AccessShareLock, ftrelid, snapshot);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataShardRow row;

		strata_decode_shard(scan.rel, tuple, &row);
		if (row.incarnation != incarnation)
			continue;
		if (row.shard != nfound || nfound >= nshards)
			strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");
		shards[nfound++] = row.state;
	}
	strata_table_scan_end(&scan);
	return nfound;
}

/*
 * Add the row groups that the manifest does not have yet.  Their numbers are
 * greater than any before: a pass takes them from a counter that only grows,
 * and passes follow one another.
 */
static void
read_groups(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	uint32		last = 0;

	if (manifest->groups == NULL)
	{
		manifest->maxgroups = 64;
		manifest->groups = MemoryContextAlloc(manifest->mcxt,
											  manifest->maxgroups * sizeof(StrataRowGroup));
	}
	if (manifest->ngroups > 0)
		last = manifest->groups[manifest->ngroups - 1].number;
	strata_table_scan_begin_after(&scan, STRATA_TABLE_ROW_GROUP, AccessShareLock, ftrelid,
								  last, snapshot);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataGroupRow row;
		StrataRowGroup *group;

		strata_decode_group(scan.rel, tuple, &row);
		if (row.incarnation != manifest->incarnation)
			continue;
		if (row.number <= last)
			strata_table_corrupted(STRATA_TABLE_ROW_GROUP, "numbers are not in order");
		last = row.number;
		if (manifest->ngroups == manifest->maxgroups)
		{
			manifest->maxgroups *= 2;
			manifest->groups = repalloc_huge(manifest->groups,
											 (Size) manifest->maxgroups * sizeof(StrataRowGroup));
		}

		group = &manifest->groups[manifest->ngroups++];
		memset(group, 0, sizeof(StrataRowGroup));
		group->number = row.number;
		group->ref = row.ref;
		if (row.zones != NULL)
		{
			bytea	   *zones = DatumGetByteaP(PointerGetDatum(row.zones));
			Size		length = VARSIZE(zones);

			group->zones = MemoryContextAlloc(manifest->mcxt, length);
			memcpy(group->zones, zones, length);
		}
		manifest->live_rows += row.ref.rows;
		manifest->raw_bytes += row.ref.raw_bytes;
		manifest->stored_bytes += row.ref.length;
	}
	strata_table_scan_end(&scan);
}

/* Mark a row of a row group as deleted; false when it was already. */
static bool
mark_deleted(StrataRowGroup *group, uint32 row, MemoryContext mcxt)
{
	if (row >= group->ref.rows)
		strata_table_corrupted(STRATA_TABLE_DELETES,
							   psprintf("row %u of row group %u does not exist", row,
										group->number));
	if (group->deleted == NULL)
		group->deleted = MemoryContextAllocZero(mcxt, (group->ref.rows + 7) / 8);
	if (strata_row_deleted(group, row))
		return false;
	group->deleted[row >> 3] |= (uint8) (1 << (row & 7));
	group->ndeleted++;
	return true;
}

/* Mark one row as deleted; pairs of row groups long gone are ignored. */
static void
apply_delete(uint32 number, uint32 row, void *arg)
{
	ApplyDeletes *apply = arg;
	StrataRowGroup *group;

	if (number != apply->number)
	{
		apply->number = number;
		apply->group = strata_manifest_group(apply->manifest, number);
	}
	group = apply->group;
	if (group != NULL && mark_deleted(group, row, apply->manifest->mcxt))
		apply->manifest->live_rows--;
}

/*
 * Apply the rows of strata.deletes that were not applied yet.  Of those that
 * were, some may have been folded into one since, which says the same again.
 */
static void
read_deletes(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	ApplyDeletes apply = {.manifest = manifest, .number = 0, .group = NULL};
	StrataDeletesId *known = manifest->deletes;
	int			nknown = manifest->ndeletes_rows;
	int			next = 0;

	manifest->deletes = NULL;
	manifest->maxdeletes = 0;
	manifest->ndeletes_rows = 0;
	manifest->deletes_bytes = 0;

	strata_table_scan_begin(&scan, STRATA_TABLE_DELETES, AccessShareLock, ftrelid, snapshot);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataDeletesRow row;
		StrataDeletesId *id;

		strata_decode_deletes(scan.rel, tuple, &row);
		if (row.incarnation != manifest->incarnation)
			continue;
		if (manifest->ndeletes_rows == manifest->maxdeletes)
		{
			manifest->maxdeletes = Max(16, 2 * manifest->maxdeletes);
			if (manifest->deletes == NULL)
				manifest->deletes = MemoryContextAlloc(manifest->mcxt,
													   manifest->maxdeletes *
														   sizeof(StrataDeletesId));
			else
				manifest->deletes = repalloc(manifest->deletes,
											 manifest->maxdeletes * sizeof(StrataDeletesId));
		}
		id = &manifest->deletes[manifest->ndeletes_rows++];
		id->pass = row.pass;
		id->seq = row.seq;
		manifest->deletes_bytes +=
			toast_raw_datum_size(PointerGetDatum(row.tids)) - VARHDRSZ;

		/* both are in the order of the index */
		while (next < nknown && (known[next].pass < id->pass ||
								 (known[next].pass == id->pass && known[next].seq < id->seq)))
			next++;
		if (next < nknown && known[next].pass == id->pass && known[next].seq == id->seq)
			continue;
		strata_deletes_decode(DatumGetByteaP(PointerGetDatum(row.tids)), row.ntids,
							  apply_delete, &apply);
	}
	strata_table_scan_end(&scan);
	if (known != NULL)
		pfree(known);
}

/* The newest pass on record that snapshot sees; false when there is none. */
bool
strata_manifest_newest_pass(Oid ftrelid, Snapshot snapshot, StrataPassRow *row)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin(&scan, STRATA_TABLE_PASS, AccessShareLock, ftrelid, snapshot);
	scan.direction = BackwardScanDirection;
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
		strata_decode_pass(scan.rel, tuple, row);
	strata_table_scan_end(&scan);
	return HeapTupleIsValid(tuple);
}

/*
 * Did passes after the given one (0: all) only add row groups, as far as
 * snapshot sees?  Passes are numbered in the order in which they commit, but
 * the oldest are forgotten: that one and all after it must be on record.  False
 * also when snapshot does not see that one.
 */
bool
strata_manifest_only_added_since(Oid ftrelid, Snapshot snapshot, int64 since)
{
	StrataTableScan scan;
	HeapTuple	tuple;
	int64		expected = Max(since, 1);
	bool		result = true;

	strata_table_scan_begin_after(&scan, STRATA_TABLE_PASS, AccessShareLock, ftrelid,
								  expected - 1, snapshot);
	while (result && HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataPassRow row;

		strata_decode_pass(scan.rel, tuple, &row);
		result = row.id == expected && (row.id == since || row.merge);
		expected++;
	}
	strata_table_scan_end(&scan);

	/* at least that one must have been there */
	return result && (since == 0 || expected > since);
}

/* Read what the manifest, new or of an earlier pass, does not have yet. */
void
strata_manifest_fill(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot)
{
	StrataPassRow pass;

	read_groups(manifest, ftrelid, snapshot);
	read_deletes(manifest, ftrelid, snapshot);
	manifest->pass_id = strata_manifest_newest_pass(ftrelid, snapshot, &pass) ? pass.id : 0;
}

/*
 * Read the manifest under a snapshot.  What detoasting and decoding leave
 * behind goes with a context of its own.
 */
void
strata_manifest_check_made(StrataStore *store, Relation storage, Snapshot snapshot)
{
	StrataTableScan scan;
	StrataMetaData meta;
	bool		found;

	if (strata_meta_read(storage, &meta))
		return;
	if (snapshot != NULL)
		snapshot = RegisterSnapshot(snapshot);
	strata_table_scan_begin(&scan, STRATA_TABLE_ROW_GROUP, AccessShareLock, store->ftrelid,
							snapshot);
	found = HeapTupleIsValid(strata_table_scan_next(&scan));
	strata_table_scan_end(&scan);
	if (snapshot != NULL)
		UnregisterSnapshot(snapshot);

	/* Another session may have made it, and written a row group, since. */
	if (found && !strata_meta_read(storage, &meta))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" has no metapage, although the manifest of %s has row groups",
						RelationGetRelationName(storage), store->name),
				 errdetail("The file is empty, or its first block is."),
				 errhint("Restore the table from a backup.")));
}

StrataManifest *
strata_manifest_read(StrataStore *store, Relation storage, const StrataMetaData *meta,
					 Snapshot snapshot)
{
	StrataManifest *manifest = strata_manifest_create(storage, store->nshards);
	MemoryContext work = AllocSetContextCreate(CurrentMemoryContext, "strata manifest rows",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(work);
	int			nfound;

	if (meta->nshards != (uint32) store->nshards)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("storage \"%s\" has %u shards, its store %d",
						RelationGetRelationName(storage), meta->nshards, store->nshards),
				 errhint("Restore the table from a backup.")));

	snapshot = RegisterSnapshot(snapshot);
	manifest->incarnation = meta->incarnation;
	nfound = strata_manifest_read_shards(store->ftrelid, snapshot, manifest->incarnation,
										 manifest->nshards, manifest->shards);
	manifest->merged = nfound > 0;
	if (manifest->merged)
		strata_manifest_fill(manifest, store->ftrelid, snapshot);
	else
		nfound = strata_manifest_read_shards(store->ftrelid, NULL, manifest->incarnation,
											 manifest->nshards, manifest->shards);
	UnregisterSnapshot(snapshot);

	if (nfound != manifest->nshards)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");

	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(work);
	return manifest;
}

/* ---- lookups of single row groups ---- */

/*
 * A manifest for lookups, of what snapshot sees; NULL when there are more
 * deletes than it may keep.
 */
StrataManifest *
strata_manifest_read_partial(StrataStore *store, Relation storage, const StrataMetaData *meta, Snapshot snapshot)
{
	StrataManifest *manifest = strata_manifest_create(storage, store->nshards);
	StrataPartial *partial = MemoryContextAllocZero(manifest->mcxt, sizeof(StrataPartial));
	MemoryContext oldcontext = MemoryContextSwitchTo(manifest->mcxt);
	HASHCTL		ctl = {0};
	StrataTableScan scan;
	HeapTuple	tuple;
	Size		bytes = 0;
	int			nfound;

	manifest->complete = false;
	manifest->partial = partial;
	manifest->merged = true;
	manifest->incarnation = meta->incarnation;
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(StrataRowGroup);
	ctl.hcxt = manifest->mcxt;
	partial->groups = hash_create("strata row groups", PARTIAL_GROUPS, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

	snapshot = RegisterSnapshot(snapshot);
	nfound = strata_manifest_read_shards(store->ftrelid, snapshot, manifest->incarnation, manifest->nshards,
										 manifest->shards);
	strata_table_scan_begin(&scan, STRATA_TABLE_DELETES, AccessShareLock, store->ftrelid,
							snapshot);
	while (bytes <= PARTIAL_DELETES && HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataDeletesRow row;

		strata_decode_deletes(scan.rel, tuple, &row);
		if (row.incarnation != manifest->incarnation)
			continue;
		bytes += toast_raw_datum_size(PointerGetDatum(row.tids));
		if (bytes > PARTIAL_DELETES)
			break;
		if (partial->ndeletes == partial->maxdeletes)
		{
			partial->maxdeletes = Max(16, 2 * partial->maxdeletes);
			if (partial->deletes == NULL)
				partial->deletes = palloc(partial->maxdeletes * sizeof(PartialDeletes));
			else
				partial->deletes = repalloc(partial->deletes,
											partial->maxdeletes * sizeof(PartialDeletes));
		}
		partial->deletes[partial->ndeletes].ntids = row.ntids;
		partial->deletes[partial->ndeletes++].tids =
			DatumGetByteaPCopy(PointerGetDatum(row.tids));
	}
	strata_table_scan_end(&scan);
	UnregisterSnapshot(snapshot);
	MemoryContextSwitchTo(oldcontext);

	if (nfound != manifest->nshards)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");
	if (bytes > PARTIAL_DELETES)
	{
		MemoryContextDelete(manifest->mcxt);
		return NULL;
	}
	return manifest;
}

bool
strata_manifest_outgrown(const StrataManifest *manifest)
{
	return !manifest->complete &&
		hash_get_num_entries(manifest->partial->groups) > PARTIAL_GROUPS;
}

/* State of applying the deletes of one row group. */
typedef struct ApplyToGroup
{
	StrataRowGroup *group;
	MemoryContext mcxt;
} ApplyToGroup;

static void
apply_to_group(uint32 number, uint32 row, void *arg)
{
	ApplyToGroup *apply = arg;

	if (number == apply->group->number)
		(void) mark_deleted(apply->group, row, apply->mcxt);
}

StrataRowGroup *
strata_manifest_find_group(StrataManifest *manifest, StrataStore *store, Snapshot snapshot,
						   uint32 number)
{
	StrataPartial *partial = manifest->partial;
	StrataRowGroup group = {0};
	StrataRowGroup *result;
	StrataTableScan scan;
	HeapTuple	tuple;

	if (manifest->complete)
		return strata_manifest_group(manifest, number);
	result = hash_search(partial->groups, &number, HASH_FIND, NULL);
	if (result != NULL)
		return result;

	snapshot = RegisterSnapshot(snapshot);
	strata_table_scan_begin_at(&scan, STRATA_TABLE_ROW_GROUP, AccessShareLock, store->ftrelid,
							   number, snapshot);
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
	{
		StrataGroupRow row;

		strata_decode_group(scan.rel, tuple, &row);
		if (row.incarnation == manifest->incarnation)
		{
			group.number = row.number;
			group.ref = row.ref;
		}
	}
	strata_table_scan_end(&scan);
	UnregisterSnapshot(snapshot);

	if (group.number == 0)
		return NULL;
	for (int i = 0; i < partial->ndeletes; i++)
	{
		ApplyToGroup apply = {.group = &group, .mcxt = manifest->mcxt};

		strata_deletes_decode(partial->deletes[i].tids, partial->deletes[i].ntids,
							  apply_to_group, &apply);
	}

	/* it is whole: from here on nothing fails half way */
	result = hash_search(partial->groups, &number, HASH_ENTER, NULL);
	*result = group;
	return result;
}

StrataRowGroup *
strata_manifest_group(StrataManifest *manifest, uint32 number)
{
	int			low = 0;
	int			high = manifest->ngroups - 1;

	Assert(manifest->complete);

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		StrataRowGroup *group = &manifest->groups[middle];

		if (group->number == number)
			return group;
		if (group->number < number)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return NULL;
}

bool
strata_manifest_shards(StrataStore *store, uint32 incarnation, StrataShardState *shards)
{
	return strata_manifest_read_shards(store->ftrelid, NULL, incarnation, store->nshards, shards) == store->nshards;
}
