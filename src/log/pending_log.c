/*-------------------------------------------------------------------------
 *
 * pending_log.c
 *	  The decoded entries of a store's pending generations, as a backend
 *	  keeps them from query to query.
 *
 * An array of entries and a table of their keys, which follow the log as it
 * grows: each shard's walk goes on where it stopped (pending_entries.c).  What
 * is kept starts after a generation of each shard (start); it serves every view
 * whose manifest has merged at least that much.  Entries merged meanwhile stay
 * until they are more than half of it.  A view whose manifest is older than
 * start gets another one, kept likewise.
 *
 * A log that is in use never goes on behind generations that it has not read
 * (pending_entries.c): a newer view that would have it do so gets another one.
 *
 * The tables of keys are bounded by strata.cache_size, over all stores (the
 * cache of footers and vectors has as much for itself); what was used longest
 * ago goes first.  A store whose keys do not fit keeps its entries only, and
 * the rule (pending.c, pending_resolve.c) reads key hashes as it needs them.
 *
 * Users hold a reference through a handle that belongs to a memory context.
 * While there is one, entries and keys are only added, never moved to other
 * numbers; an array may be reallocated, so nobody keeps pointers into it.  A
 * log that cannot stay as it is (invalidated, an error in the middle of
 * reading, over the limit) is taken out of the registry and goes with its last
 * user.
 *
 * Invalidation: an entry's flags are those it had when it was read.  VACUUM of
 * the storage relation sets them before the server forgets old transactions,
 * and invalidates the relation; a log is read anew after that.  So it also
 * cannot outlive the file whose name it bears.
 *
 * No lock protects any of this, it is the backend's own; the walk locks pages.
 *
 * IDENTIFICATION
 *	  src/log/pending_log.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "manifest/options.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* Logs kept at most; beyond them those used longest ago go. */
#define MAX_LOGS	256

static dlist_head logs = DLIST_STATIC_INIT(logs);	/* used last first */
static int	nlogs = 0;
static bool callback_registered = false;

/* ---- registry ---- */

static Size
key_limit(void)
{
	return (Size) strata_cache_size * 1024;
}

static Size
log_memory(const StrataPendingLog *log)
{
	return (Size) log->maxentries * sizeof(StrataPendingEntry) +
		(log->keys ? strata_key_table_memory(log->keys) : 0);
}

static void
log_free(StrataPendingLog *log)
{
	Assert(log->refcount == 0 && !log->registered);
	MemoryContextDelete(log->mcxt);
}

/* Nobody new gets it; freed now or by its last user. */
static void
log_retire(StrataPendingLog *log)
{
	if (log->registered)
	{
		dlist_delete(&log->lru);
		nlogs--;
		log->registered = false;
	}
	if (log->refcount == 0)
		log_free(log);
}

/* Make room for log: others without users go, used longest ago first. */
static void
evict_others(StrataPendingLog *log, Size limit)
{
	Size		total = 0;
	dlist_iter	iter;
	dlist_mutable_iter miter;

	dlist_foreach(iter, &logs)
		total += log_memory(dlist_container(StrataPendingLog, lru, iter.cur));
	if (total <= limit && nlogs <= MAX_LOGS)
		return;
	for (;;)
	{
		StrataPendingLog *victim = NULL;

		dlist_foreach_modify(miter, &logs)
		{
			StrataPendingLog *candidate = dlist_container(StrataPendingLog, lru, miter.cur);

			if (candidate != log && candidate->refcount == 0)
				victim = candidate;
		}
		if (victim == NULL)
			break;
		total -= log_memory(victim);
		log_retire(victim);
		if (total <= limit && nlogs <= MAX_LOGS)
			break;
	}
}

static void
relcache_callback(Datum arg, Oid relid)
{
	dlist_iter	iter;

	dlist_foreach(iter, &logs)
	{
		StrataPendingLog *log = dlist_container(StrataPendingLog, lru, iter.cur);

		if (relid == InvalidOid || log->relid == relid)
			log->stale = true;
	}
}

static StrataPendingLog *
log_create(StrataStore *store, Relation storage, MemoryContext parent)
{
	MemoryContext mcxt = AllocSetContextCreate(parent, "strata pending entries",
											   ALLOCSET_SMALL_SIZES);
	StrataPendingLog *log = MemoryContextAllocZero(mcxt, sizeof(StrataPendingLog));

	log->mcxt = mcxt;
	log->file = strata_file_id(storage);
	log->relid = RelationGetRelid(storage);
	log->nshards = store->nshards;
	log->keyed = store->key.natts > 0;
	if (log->keyed)
		log->keys = strata_key_table_create(mcxt, 0);
	return log;
}

/* ---- trimming ---- */

static inline bool
entry_merged(const StrataPendingEntry *entry, const StrataManifest *manifest)
{
	return entry->position.generation <= manifest->shards[entry->shard].merged_through;
}

/*
 * Drop entries that are merged for manifest if they are more than half of all.
 * Only without users.
 */
static void
log_trim(StrataPendingLog *log, const StrataManifest *manifest)
{
	bool		changed = false;
	int			dead = 0;
	uint64		dead_keys = 0;
	uint32	   *renumbered;
	int			n = 0;
	uint64		nkeys = 0;
	int			i;

	Assert(log->refcount == 0);
	for (i = 0; i < log->nshards; i++)
	{
		if (log->trimmed[i] != manifest->shards[i].merged_through)
			changed = true;
		log->trimmed[i] = manifest->shards[i].merged_through;
	}
	if (!changed)
		return;
	for (i = 0; i < log->nentries; i++)
	{
		if (entry_merged(&log->entries[i], manifest))
		{
			dead++;
			dead_keys += strata_pending_entry_keys(&log->entries[i]);
		}
	}
	if (dead <= log->nentries / 2 && dead_keys <= log->nkeys / 2)
		return;

	log->broken = true;
	renumbered = MemoryContextAllocHuge(CurrentMemoryContext,
										(Size) log->nentries * sizeof(uint32));
	for (i = 0; i < log->nentries; i++)
	{
		StrataPendingEntry *entry = &log->entries[i];

		if (entry_merged(entry, manifest))
		{
			renumbered[i] = PG_UINT32_MAX;
			continue;
		}
		renumbered[i] = n;
		log->entries[n] = *entry;
		log->entries[n].first_key = nkeys;
		nkeys += strata_pending_entry_keys(entry);
		n++;
	}
	if (log->keys)
	{
		StrataKeyTable *table = strata_key_table_create(log->mcxt, nkeys);
		uint32		k;

		for (k = 0; k < log->keys->nkeys; k++)
		{
			StrataPendingKey *key = &log->keys->keys[k];

			if (renumbered[key->entry] != PG_UINT32_MAX)
				strata_key_table_add(table, key->hash, renumbered[key->entry], key->row);
		}
		strata_key_table_free(log->keys);
		log->keys = table;
	}
	log->nentries = n;
	log->nkeys = nkeys;
	for (i = 0; i < log->nshards; i++)
		log->start[i] = Max(log->start[i], manifest->shards[i].merged_through);
	pfree(renumbered);
	log->broken = false;
}

/* ---- handles ---- */

static void
handle_release(void *arg)
{
	StrataPendingLog *log = arg;

	Assert(log->refcount > 0);
	if (--log->refcount == 0 && !log->registered)
		log_free(log);
}

/*
 * A handle in a context of its own under parent.  One on a shared log gives
 * its reference back with the context; a pass's log is a child of it.
 */
static StrataPending *
handle_create(StrataStore *store, Relation storage, MemoryContext parent,
			  StrataPendingLog *shared)
{
	MemoryContext mcxt = AllocSetContextCreate(parent, "strata pending", ALLOCSET_SMALL_SIZES);
	StrataPending *pending = MemoryContextAllocZero(mcxt, sizeof(StrataPending));

	pending->store = store;
	pending->storage = storage;
	pending->mcxt = mcxt;
	if (shared)
	{
		pending->log = shared;
		shared->refcount++;
		pending->callback.func = handle_release;
		pending->callback.arg = shared;
		MemoryContextRegisterResetCallback(mcxt, &pending->callback);
	}
	else
		pending->log = log_create(store, storage, mcxt);
	return pending;
}

/*
 * A kept log that serves manifest without taking anything from its users; the
 * one that starts last.
 */
static StrataPendingLog *
registry_find(StrataStore *store, Relation storage, const StrataManifest *manifest)
{
	StrataFileId file = strata_file_id(storage);
	StrataPendingLog *best = NULL;
	uint64		best_start = 0;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &logs)
	{
		StrataPendingLog *log = dlist_container(StrataPendingLog, lru, iter.cur);
		uint64		sum = 0;
		int			shard;

		if (!strata_file_id_equal(log->file, file) || log->relid != RelationGetRelid(storage))
			continue;
		if (log->stale || log->broken || log->nshards != store->nshards ||
			log->keyed != (store->key.natts > 0))
		{
			log_retire(log);
			continue;
		}
		for (shard = 0; shard < log->nshards; shard++)
		{
			const StrataShardState *state = &manifest->shards[shard];

			if (log->start[shard] > state->merged_through)
				break;
			if (log->refcount > 0 && strata_pending_log_skips(log, shard, state))
				break;
			sum += log->start[shard];
		}
		if (shard == log->nshards && (best == NULL || sum > best_start))
		{
			best = log;
			best_start = sum;
		}
	}
	return best;
}

StrataPending *
strata_pending_current(StrataStore *store, Relation storage,
					   const StrataManifest *manifest, int *end)
{
	StrataPendingLog *log;
	StrataPending *pending;
	uint64		bytes_read = 0;
	Size		limit = key_limit();
	Size		before = 0;

	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
		callback_registered = true;
	}

	log = registry_find(store, storage, manifest);
	if (log && log->refcount == 0)
	{
		log_trim(log, manifest);
		if (log->keys && strata_key_table_memory(log->keys) > limit)
		{
			/* cache_size is smaller than it was */
			strata_key_table_free(log->keys);
			log->keys = NULL;
		}
		if (log->keyed && log->keys == NULL &&
			strata_key_table_estimate(log->nkeys) < limit / 2)
		{
			/* the keys were given up, but would fit now */
			log_retire(log);
			log = NULL;
		}
	}
	if (log)
	{
		before = log_memory(log);
		if (!strata_pending_log_extend(log, store, storage, manifest, limit, &bytes_read))
		{
			log_retire(log);
			log = NULL;
		}
	}
	if (log == NULL)
	{
		int			shard;

		/* kept under the caller's context until it is known to be whole */
		log = log_create(store, storage, CurrentMemoryContext);
		/* on a standby only the snapshot knows what is aborted */
		log->skip_aborted = !RecoveryInProgress();
		for (shard = 0; shard < log->nshards; shard++)
			log->start[shard] = log->trimmed[shard] = manifest->shards[shard].merged_through;
		(void) strata_pending_log_extend(log, store, storage, manifest, limit, &bytes_read);
		MemoryContextSetParent(log->mcxt, TopMemoryContext);
		log->registered = true;
		dlist_push_head(&logs, &log->lru);
		nlogs++;
		before = 0;
	}
	else if (dlist_head_node(&logs) != &log->lru)
		dlist_move_head(&logs, &log->lru);

	if (log_memory(log) != before)
		evict_others(log, limit);

	pending = handle_create(store, storage, CurrentMemoryContext, log);
	pending->bytes_read = bytes_read;
	*end = log->nentries;
	return pending;
}

void
strata_pending_extend(StrataPending *pending, const StrataManifest *manifest)
{
	if (pending->log->broken)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access because reading the log was interrupted")));
	(void) strata_pending_log_extend(pending->log, pending->store, pending->storage, manifest,
									 0, &pending->bytes_read);
}

void
strata_pending_unpin(StrataPending *pending)
{
	if (pending->reader)
		strata_pending_reader_end(pending->reader);
	MemoryContextDelete(pending->mcxt);
}

StrataPending *
strata_pending_create(StrataStore *store, Relation storage, MemoryContext parent, Size budget)
{
	StrataPending *pending = handle_create(store, storage, parent, NULL);

	pending->budget = budget;
	return pending;
}

void
strata_pending_add(StrataPending *pending, int shard, const StrataLogPoint *from, uint32 last)
{
	StrataLogPoint point = *from;

	(void) strata_pending_log_read(pending->log, pending->store, pending->storage, shard,
								   &point, last, pending->budget, &pending->bytes_read);
	pending->log->point[shard] = point;

	/* what was found among fewer entries no longer holds */
	if (pending->losers)
		pfree(pending->losers);
	pending->losers = NULL;
	pending->losers_accept = NULL;
}

void
strata_pending_free(StrataPending *pending)
{
	strata_pending_unpin(pending);
}

int
strata_pending_nentries(const StrataPending *pending)
{
	return pending->log->nentries;
}

const StrataPendingEntry *
strata_pending_entry(const StrataPending *pending, int entry)
{
	Assert(entry >= 0 && entry < pending->log->nentries);
	return &pending->log->entries[entry];
}

uint64
strata_pending_bytes_read(const StrataPending *pending)
{
	return pending->bytes_read;
}

uint32
strata_pending_generations(const StrataPending *pending, int shard, uint32 after)
{
	uint32		last = pending->log->last_generation[shard];

	/* generations are numbered without gaps */
	return last > after ? last - after : 0;
}
