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
 * Reading the tables is manifest_read.c's.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/manifest_private.h"
#include "storage/metapage.h"

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

/* So often a manifest that is not complete serves before all is read. */
#define PARTIAL_USES		32

typedef struct ManifestPin
{
	dlist_node	link;			/* in the manifest's list; newest first */
	MemoryContext context;
	StrataManifest *manifest;	/* NULL once released */
	MemoryContextCallback callback;
} ManifestPin;

/* Cached manifests, most recently used first, and their memory. */
static dlist_head cache = DLIST_STATIC_INIT(cache);
static Size cache_memory = 0;

static bool snapshot_sees(Snapshot snapshot, FullTransactionId pass);
static void manifest_pin(StrataManifest *manifest);
static void manifest_unpin(ManifestPin *pin);
static void manifest_pin_reset(void *arg);
static StrataManifest *cache_find(Relation storage, uint64 pass, bool complete);
static void cache_add(StrataManifest *manifest, Relation storage, uint64 pass);
static StrataManifest *manifest_advance(StrataStore *store, Relation storage,
										const StrataMetaData *meta, Snapshot snapshot);
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
	if (!strata_manifest_only_added_since(store->ftrelid, snapshot, manifest->pass_id))
	{
		UnregisterSnapshot(snapshot);
		return NULL;
	}

	cache_detach(manifest);
	MemoryContextSetParent(manifest->mcxt, CurrentMemoryContext);
	work = AllocSetContextCreate(CurrentMemoryContext, "strata manifest rows",
								 ALLOCSET_DEFAULT_SIZES);
	oldcontext = MemoryContextSwitchTo(work);
	if (strata_manifest_read_shards(store->ftrelid, snapshot, manifest->incarnation, manifest->nshards,
									manifest->shards) != manifest->nshards)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shards do not match the store");
	strata_manifest_fill(manifest, store->ftrelid, snapshot);
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(work);
	UnregisterSnapshot(snapshot);
	return manifest;
}

/*
 * What a kept manifest that serves snapshot would be kept under.  False when
 * none would: the tables must be read.  Sets *meta.
 */
static bool
serving_pass(StrataStore *store, Relation storage, Snapshot snapshot, StrataMetaData *meta,
			 uint64 *key)
{
	FullTransactionId pass = InvalidFullTransactionId;

	Assert(snapshot != NULL && IsMVCCSnapshot(snapshot));

	if (!strata_meta_read(storage, meta))
	{
		/* Nothing was ever written: no rows, whoever looks. */
		strata_manifest_check_made(store, storage, snapshot);
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

	if (!serving_pass(store, storage, snapshot, &meta, &key))
		manifest = strata_manifest_read(store, storage, &meta, snapshot);
	else
	{
		manifest = cache_find(storage, key, true);
		if (manifest == NULL)
		{
			if (key == NO_PASS)
			{
				manifest = strata_manifest_create(storage, store->nshards);
				manifest->merged = true;
				manifest->incarnation = meta.incarnation;
			}
			else
			{
				manifest = manifest_advance(store, storage, &meta, snapshot);
				if (manifest == NULL)
					manifest = strata_manifest_read(store, storage, &meta, snapshot);

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

StrataManifest *
strata_manifest_get_for_lookups(StrataStore *store, Relation storage, Snapshot snapshot)
{
	StrataMetaData meta;
	uint64		key;
	StrataManifest *manifest;

	if (!serving_pass(store, storage, snapshot, &meta, &key) || key == NO_PASS ||
		cache_find(storage, key, true) != NULL)
		return strata_manifest_get(store, storage, snapshot);

	manifest = cache_find(storage, key, false);
	if (manifest == NULL)
	{
		manifest = manifest_advance(store, storage, &meta, snapshot);
		if (manifest == NULL)
			manifest = strata_manifest_read_partial(store, storage, &meta, snapshot);
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
	if (serving_pass(store, storage, snapshot, &meta, &key))
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
		merged = strata_manifest_read_shards(store->ftrelid, snapshot, meta.incarnation, store->nshards,
											 shards) == store->nshards;
		if (merged && strata_manifest_newest_pass(store->ftrelid, snapshot, &pass) &&
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
	manifest = strata_manifest_read(store, storage, &meta, snapshot);
	manifest_pin(manifest);
	return manifest;
}
