/*-------------------------------------------------------------------------
 *
 * manifest.c
 *	  What a snapshot sees as merged, decoded and cached.
 *
 * A snapshot that sees merged_through = g in the rows of strata.shard reads
 * the row groups and deletes it can see, and the generations after g.  All of
 * them change in one transaction, a pass, so any MVCC snapshot sees each row
 * once.  Reading them costs a walk over all of a store's row groups, so a
 * backend keeps what it decoded, and brings it up to date by what passes have
 * added since.
 *
 * Which decoded manifest serves a snapshot is told by the metapage's M (newest
 * pass) and P (last committed pass before it), read after the snapshot was
 * taken:
 *
 *	- A pass logs M before it writes the manifest, under a lock that keeps
 *	  other passes out.  So nothing was written since M by anybody else.
 *	- If the snapshot sees M, it sees what M wrote and all before it.
 *	- Else, if it sees P, it sees what P wrote and all before it; passes
 *	  between P and M rolled back.
 *	- Else the manifest is read under the snapshot and not kept.
 *	- A transaction that is M sees a part of its own writes, depending on the
 *	  command: it reads under the snapshot, too.
 *
 * M and P are full transaction ids, so what is kept under one never goes
 * stale; freezing only adds a bit to them (metapage.h), which is masked here.  A
 * store on which no pass ever committed needs no reading at all.
 *
 * The shard rows carry the incarnation of the file they describe.  A snapshot
 * that sees none of them (it is older than the store) or those of another
 * incarnation (older than a TRUNCATE) sees nothing merged.  For it the log is
 * read from the first pending page of the newest shard rows: nothing it could
 * see is in the log before that, and pages are not reused before that row is
 * dead to it.
 *
 * A session that looks up a few keys reads the rows of the few row groups that
 * hold them, one by one, unless it has a manifest already.  All it keeps then is
 * those and the rows of strata.deletes, where these are short.
 *
 * Pins are released with the memory context they were taken in.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog.h"
#include "manifest/deletes.h"
#include "storage/metapage.h"

#include "access/detoast.h"
#include "access/transam.h"
#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Manifests kept for one store: the one of M and the one of P. */
#define CACHE_PER_STORE		2

/* What the manifest of a store without any pass is kept under. */
#define NO_PASS				UINT64CONST(0)

/* Part of strata.cache_size that decoded manifests may take. */
#define CACHE_SHARE			2

/*
 * What a manifest that is not complete may keep: deletes, in bytes, and row
 * groups.  So often it serves before all is read.
 */
#define PARTIAL_DELETES		(32 * 1024)
#define PARTIAL_GROUPS		64
#define PARTIAL_USES		32

typedef struct PartialDeletes
{
	uint64		ntids;
	bytea	   *tids;
} PartialDeletes;

typedef struct StrataPartial
{
	HTAB	   *groups;			/* StrataRowGroup by number */
	int			uses;
	int			ndeletes;
	int			maxdeletes;
	PartialDeletes *deletes;
} StrataPartial;

typedef struct ManifestPin
{
	dlist_node	link;			/* in the manifest's list; newest first */
	MemoryContext context;
	StrataManifest *manifest;	/* NULL once released */
	MemoryContextCallback callback;
} ManifestPin;

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

/* Cached manifests, most recently used first, and their memory. */
static dlist_head cache = DLIST_STATIC_INIT(cache);
static Size cache_memory = 0;

static bool snapshot_sees(Snapshot snapshot, FullTransactionId pass);
static StrataManifest *manifest_create(Relation storage, int nshards);
static int	read_shards(Oid ftrelid, Snapshot snapshot, uint32 incarnation, int nshards,
						StrataShardState *shards);
static void read_groups(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot);
static void read_deletes(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot);
static bool newest_pass(Oid ftrelid, Snapshot snapshot, StrataPassRow *row);
static bool only_added_since(Oid ftrelid, Snapshot snapshot, int64 since);
static void manifest_fill(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot);
static StrataManifest *manifest_advance(StrataStore *store, Relation storage,
										const StrataMetaData *meta, Snapshot snapshot);
static StrataManifest *manifest_read(StrataStore *store, Relation storage,
									 const StrataMetaData *meta, Snapshot snapshot);
static void manifest_pin(StrataManifest *manifest);
static void manifest_unpin(ManifestPin *pin);
static void manifest_pin_reset(void *arg);
static StrataManifest *cache_find(Relation storage, uint64 pass, bool complete);
static void cache_add(StrataManifest *manifest, Relation storage, uint64 pass);
static void cache_detach(StrataManifest *manifest);
static void cache_remove(StrataManifest *manifest);

/*
 * Does an MVCC snapshot see what this pass wrote?  Not to be asked about the
 * current transaction.
 */
static bool
snapshot_sees(Snapshot snapshot, FullTransactionId pass)
{
	TransactionId xid;

	if (!FullTransactionIdIsValid(pass))
		return false;
	if (strata_pass_is_settled(pass))
		return true;
	xid = XidFromFullTransactionId(pass);
	return !XidInMVCCSnapshot(xid, snapshot) && TransactionIdDidCommit(xid);
}

/* ---- reading ---- */

/*
 * An empty manifest in a memory context of its own, below the current one
 * until somebody pins it.
 */
static StrataManifest *
manifest_create(Relation storage, int nshards)
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
static int
read_shards(Oid ftrelid, Snapshot snapshot, uint32 incarnation, int nshards,
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
static bool
newest_pass(Oid ftrelid, Snapshot snapshot, StrataPassRow *row)
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
static bool
only_added_since(Oid ftrelid, Snapshot snapshot, int64 since)
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
static void
manifest_fill(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot)
{
	StrataPassRow pass;

	read_groups(manifest, ftrelid, snapshot);
	read_deletes(manifest, ftrelid, snapshot);
	manifest->pass_id = newest_pass(ftrelid, snapshot, &pass) ? pass.id : 0;
}

/*
 * Bring a kept manifest of an earlier pass up to date with what snapshot sees,
 * and take it off the cache.  NULL when there is none that nobody uses, or
 * when row groups were removed since.
 *
 * An error leaves it half done, below the current memory context.
 */
static StrataManifest *
manifest_advance(StrataStore *store, Relation storage, const StrataMetaData *meta,
				 Snapshot snapshot)
{
	StrataManifest *manifest = NULL;
	MemoryContext work;
	MemoryContext oldcontext;
	dlist_iter	iter;

	dlist_foreach(iter, &cache)
	{
		StrataManifest *kept = dlist_container(StrataManifest, link, iter.cur);

		if (kept->storage == RelationGetRelid(storage) &&
			kept->relfilenode == storage->rd_rel->relfilenode &&
			kept->complete && kept->incarnation == meta->incarnation &&
			kept->nshards == store->nshards && kept->refcount == 0 &&
			(manifest == NULL || kept->pass_id > manifest->pass_id))
			manifest = kept;
	}
	if (manifest == NULL)
		return NULL;

	snapshot = RegisterSnapshot(snapshot);
	if (!only_added_since(store->ftrelid, snapshot, manifest->pass_id))
	{
		UnregisterSnapshot(snapshot);
		return NULL;
	}

	cache_detach(manifest);
	MemoryContextSetParent(manifest->mcxt, CurrentMemoryContext);
	work = AllocSetContextCreate(CurrentMemoryContext, "strata manifest rows",
								 ALLOCSET_DEFAULT_SIZES);
	oldcontext = MemoryContextSwitchTo(work);
	if (read_shards(store->ftrelid, snapshot, manifest->incarnation, manifest->nshards,
					manifest->shards) != manifest->nshards)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");
	manifest_fill(manifest, store->ftrelid, snapshot);
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(work);
	UnregisterSnapshot(snapshot);
	return manifest;
}

/*
 * Read the manifest under a snapshot.  What detoasting and decoding leave
 * behind goes with a context of its own.
 */
static StrataManifest *
manifest_read(StrataStore *store, Relation storage, const StrataMetaData *meta,
			  Snapshot snapshot)
{
	StrataManifest *manifest = manifest_create(storage, store->nshards);
	MemoryContext work = AllocSetContextCreate(CurrentMemoryContext, "strata manifest rows",
											   ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcontext = MemoryContextSwitchTo(work);
	int			nfound;

	if (meta->nshards != (uint32) store->nshards)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("storage \"%s\" has %u shards, its store %d",
						RelationGetRelationName(storage), meta->nshards, store->nshards)));

	snapshot = RegisterSnapshot(snapshot);
	manifest->incarnation = meta->incarnation;
	nfound = read_shards(store->ftrelid, snapshot, manifest->incarnation,
						 manifest->nshards, manifest->shards);
	manifest->merged = nfound > 0;
	if (manifest->merged)
		manifest_fill(manifest, store->ftrelid, snapshot);
	else
		nfound = read_shards(store->ftrelid, NULL, manifest->incarnation,
							 manifest->nshards, manifest->shards);
	UnregisterSnapshot(snapshot);

	if (nfound != manifest->nshards)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");

	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(work);
	return manifest;
}

/* ---- pins ---- */

static void
manifest_pin(StrataManifest *manifest)
{
	ManifestPin *pin = palloc(sizeof(ManifestPin));

	pin->context = CurrentMemoryContext;
	pin->manifest = manifest;
	pin->callback.func = manifest_pin_reset;
	pin->callback.arg = pin;
	MemoryContextSetParent(manifest->mcxt, CacheMemoryContext);
	dlist_push_head(&manifest->pins, &pin->link);
	manifest->refcount++;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &pin->callback);
}

StrataManifest *
strata_manifest_pin(StrataManifest *manifest)
{
	Assert(manifest->refcount > 0);
	manifest_pin(manifest);
	return manifest;
}

static void
manifest_unpin(ManifestPin *pin)
{
	StrataManifest *manifest = pin->manifest;

	pin->manifest = NULL;
	dlist_delete(&pin->link);
	Assert(manifest->refcount > 0);
	if (--manifest->refcount == 0 && !manifest->cached)
		MemoryContextDelete(manifest->mcxt);
}

static void
manifest_pin_reset(void *arg)
{
	ManifestPin *pin = arg;

	if (pin->manifest != NULL)
		manifest_unpin(pin);
}

/*
 * The pin to release is the one of the current memory context, if there is
 * one, else the newest.
 */
void
strata_manifest_release(StrataManifest *manifest)
{
	ManifestPin *pin = NULL;
	dlist_iter	iter;

	Assert(!dlist_is_empty(&manifest->pins));
	dlist_foreach(iter, &manifest->pins)
	{
		ManifestPin *candidate = dlist_container(ManifestPin, link, iter.cur);

		if (pin == NULL || candidate->context == CurrentMemoryContext)
			pin = candidate;
		if (candidate->context == CurrentMemoryContext)
			break;
	}
	manifest_unpin(pin);
}

/* ---- the cache ---- */

static StrataManifest *
cache_find(Relation storage, uint64 pass, bool complete)
{
	dlist_iter	iter;

	dlist_foreach(iter, &cache)
	{
		StrataManifest *manifest = dlist_container(StrataManifest, link, iter.cur);

		if (manifest->storage == RelationGetRelid(storage) &&
			manifest->relfilenode == storage->rd_rel->relfilenode &&
			manifest->pass == pass && manifest->complete == complete)
		{
			dlist_move_head(&cache, &manifest->link);
			return manifest;
		}
	}
	return NULL;
}

static void
cache_detach(StrataManifest *manifest)
{
	dlist_delete(&manifest->link);
	manifest->cached = false;
	cache_memory -= manifest->memory;
}

/* Take a manifest off the list; free it unless somebody uses it. */
static void
cache_remove(StrataManifest *manifest)
{
	cache_detach(manifest);
	if (manifest->refcount == 0)
		MemoryContextDelete(manifest->mcxt);
}

/*
 * Put a manifest on the list and make room: older ones of the same store
 * first, then whatever was not used for longest.
 */
static void
cache_add(StrataManifest *manifest, Relation storage, uint64 pass)
{
	Size		limit = (Size) strata_cache_size * 1024 / CACHE_SHARE;
	int			same = 0;
	dlist_mutable_iter iter;

	manifest->cached = true;
	manifest->relfilenode = storage->rd_rel->relfilenode;
	manifest->pass = pass;
	manifest->memory = MemoryContextMemAllocated(manifest->mcxt, true);
	MemoryContextSetParent(manifest->mcxt, CacheMemoryContext);
	dlist_push_head(&cache, &manifest->link);
	cache_memory += manifest->memory;

	dlist_foreach_modify(iter, &cache)
	{
		StrataManifest *other = dlist_container(StrataManifest, link, iter.cur);

		if (other->storage != manifest->storage)
			continue;
		if (++same > CACHE_PER_STORE ||
			(other != manifest && other->pass == manifest->pass &&
			 other->relfilenode == manifest->relfilenode))
			cache_remove(other);
	}
	while (cache_memory > limit)
	{
		StrataManifest *last = dlist_tail_element(StrataManifest, link, &cache);

		if (last == manifest)
			break;
		cache_remove(last);
	}
}

/*
 * What a kept manifest that serves snapshot would be kept under.  False when
 * none would: the tables must be read.  Sets *meta.
 */
static bool
serving_pass(Relation storage, Snapshot snapshot, StrataMetaData *meta, uint64 *key)
{
	FullTransactionId pass = InvalidFullTransactionId;

	Assert(snapshot != NULL && IsMVCCSnapshot(snapshot));

	if (!strata_meta_read(storage, meta))
	{
		/* Nothing was ever written: no rows, whoever looks. */
		memset(meta, 0, sizeof(*meta));
		meta->incarnation = 1;
	}

	if (FullTransactionIdIsValid(meta->newest_pass) &&
		!strata_pass_is_settled(meta->newest_pass) &&
		TransactionIdIsCurrentTransactionId(XidFromFullTransactionId(meta->newest_pass)))
		return false;			/* our own: read it */

	if (snapshot_sees(snapshot, meta->newest_pass))
		pass = meta->newest_pass;
	else if (snapshot_sees(snapshot, meta->committed_pass))
		pass = meta->committed_pass;
	else if (!FullTransactionIdIsValid(meta->committed_pass) && meta->incarnation == 1)
	{
		/*
		 * No pass committed before M, if there is an M, and the first file has
		 * no TRUNCATE behind it: the manifest is as the store was created.
		 */
		*key = NO_PASS;
		return true;
	}
	else
		return false;

	*key = U64FromFullTransactionId(strata_pass_xid(pass));
	return true;
}

StrataManifest *
strata_manifest_get(StrataStore *store, Relation storage, Snapshot snapshot)
{
	StrataMetaData meta;
	uint64		key;
	StrataManifest *manifest;

	if (!serving_pass(storage, snapshot, &meta, &key))
		manifest = manifest_read(store, storage, &meta, snapshot);
	else
	{
		manifest = cache_find(storage, key, true);
		if (manifest == NULL)
		{
			if (key == NO_PASS)
			{
				manifest = manifest_create(storage, store->nshards);
				manifest->merged = true;
				manifest->incarnation = meta.incarnation;
			}
			else
			{
				manifest = manifest_advance(store, storage, &meta, snapshot);
				if (manifest == NULL)
					manifest = manifest_read(store, storage, &meta, snapshot);

				/* A snapshot that sees a pass sees the store. */
				if (!manifest->merged)
					strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");
			}
			cache_add(manifest, storage, key);
		}
	}

	manifest_pin(manifest);
	return manifest;
}

/* ---- lookups of single row groups ---- */

/*
 * A manifest for lookups, of what snapshot sees; NULL when there are more
 * deletes than it may keep.
 */
static StrataManifest *
partial_read(StrataStore *store, Relation storage, const StrataMetaData *meta, Snapshot snapshot)
{
	StrataManifest *manifest = manifest_create(storage, store->nshards);
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
	nfound = read_shards(store->ftrelid, snapshot, manifest->incarnation, manifest->nshards,
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

StrataManifest *
strata_manifest_get_for_lookups(StrataStore *store, Relation storage, Snapshot snapshot)
{
	StrataMetaData meta;
	uint64		key;
	StrataManifest *manifest;

	if (!serving_pass(storage, snapshot, &meta, &key) || key == NO_PASS ||
		cache_find(storage, key, true) != NULL)
		return strata_manifest_get(store, storage, snapshot);

	manifest = cache_find(storage, key, false);
	if (manifest == NULL)
	{
		manifest = manifest_advance(store, storage, &meta, snapshot);
		if (manifest == NULL)
			manifest = partial_read(store, storage, &meta, snapshot);
		if (manifest != NULL)
			cache_add(manifest, storage, key);
	}
	else if (++manifest->partial->uses > PARTIAL_USES || strata_manifest_outgrown(manifest))
		manifest = NULL;

	if (manifest == NULL)
		return strata_manifest_get(store, storage, snapshot);
	manifest_pin(manifest);
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

void
strata_manifest_totals(StrataStore *store, Relation storage, Snapshot snapshot,
					   StrataManifestTotals *totals)
{
	StrataMetaData meta;
	uint64		key;
	StrataManifest *manifest = NULL;
	StrataShardState shards[STRATA_MAX_SHARDS];
	StrataPassRow pass;

	memset(totals, 0, sizeof(*totals));
	if (serving_pass(storage, snapshot, &meta, &key))
	{
		if (key == NO_PASS)
			return;
		manifest = cache_find(storage, key, true);
	}
	if (manifest != NULL)
	{
		memcpy(shards, manifest->shards, sizeof(shards));
		totals->groups = manifest->ngroups;
		totals->live_rows = manifest->live_rows;
		totals->raw_bytes = manifest->raw_bytes;
		totals->stored_bytes = manifest->stored_bytes;
	}
	else
	{
		bool		merged;

		snapshot = RegisterSnapshot(snapshot);
		merged = read_shards(store->ftrelid, snapshot, meta.incarnation, store->nshards,
							 shards) == store->nshards;
		if (merged && newest_pass(store->ftrelid, snapshot, &pass) &&
			pass.incarnation == meta.incarnation)
		{
			totals->groups = pass.base_groups;
			totals->live_rows = pass.base_rows;
			totals->raw_bytes = pass.base_raw_bytes;
			totals->stored_bytes = pass.base_bytes;
		}
		UnregisterSnapshot(snapshot);
		if (!merged)
			return;
	}

	for (int shard = 0; shard < store->nshards; shard++)
	{
		totals->merged_rows += shards[shard].rows;
		totals->merged_bytes += shards[shard].bytes;
	}
}

StrataManifest *
strata_manifest_get_uncached(StrataStore *store, Relation storage, Snapshot snapshot)
{
	StrataMetaData meta;
	StrataManifest *manifest;

	if (!strata_meta_read(storage, &meta))
	{
		memset(&meta, 0, sizeof(meta));
		meta.incarnation = 1;
		meta.nshards = store->nshards;
	}
	manifest = manifest_read(store, storage, &meta, snapshot);
	manifest_pin(manifest);
	return manifest;
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
	return read_shards(store->ftrelid, NULL, incarnation, store->nshards, shards) == store->nshards;
}
