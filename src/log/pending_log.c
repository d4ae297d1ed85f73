/*-------------------------------------------------------------------------
 *
 * pending_log.c
 *	  The decoded entries of a store's pending generations, as a backend
 *	  keeps them from query to query.
 *
 * Translates log pages into an array of entries and a table of their keys, and
 * follows the log as it grows: each shard's walk goes on where it stopped.
 * What is kept starts after a generation of each shard (start); it serves
 * every view whose manifest has merged at least that much.  Entries merged
 * meanwhile stay until they are more than half of it.  A view whose manifest
 * is older than start gets another one, kept likewise.
 *
 * Where a view's manifest has merged what the walk has not read yet, the walk
 * goes on behind it: the pages in between may be gone.  An older view that
 * uses the log would miss those generations for good, though they are pending
 * for it and its snapshot keeps their pages: a row locker would take what was
 * changed there for unchanged.  So such a log is left to its users, and the
 * newer view gets another one.
 *
 * The tables of keys are bounded by strata.cache_size, over all stores (the
 * cache of footers and vectors has as much for itself); what was used longest
 * ago goes first.  A store whose keys do not fit
 * keeps its entries only, and the rule (pending.c, pending_resolve.c) reads
 * key hashes as it needs them.
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
#include "log/visibility.h"
#include "manifest/options.h"
#include "storage/page.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* Logs kept at most; beyond them those used longest ago go. */
#define MAX_LOGS	256

#define MIN_ENTRIES 32

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

/* ---- reading ---- */

static StrataPendingEntry *
append_entry(StrataPendingLog *log, int shard, const StrataLogEntry *le)
{
	const StrataEntryHeader *header = le->header;
	StrataPendingEntry *entry;
	uint32		before;
	uint32		rows;

	/* what its rows' TIDs count from: all entries count, kept or not */
	rows = header->rows + (header->type == STRATA_ENTRY_ROWS ? header->tombstones : 0);
	if (log->last_page[shard].owner == le->page.owner &&
		log->last_page[shard].block == le->page.block)
		before = log->last_page_rows[shard];
	else
		before = 0;
	if (header->type == STRATA_ENTRY_ROWS)
	{
		log->last_page[shard] = le->page;
		log->last_page_rows[shard] = before + rows;
	}

	if (log->skip_aborted &&
		strata_xid_outcome(header->fxid, header->flags) == STRATA_XID_ABORTED)
		return NULL;

	if (log->nentries == log->maxentries)
	{
		int			want;

		if (log->maxentries > PG_INT32_MAX / 2)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many pending entries in one strata store")));
		want = log->maxentries == 0 ? MIN_ENTRIES : log->maxentries * 2;
		if (log->entries == NULL)
			log->entries = MemoryContextAllocHuge(log->mcxt, want * sizeof(StrataPendingEntry));
		else
			log->entries = repalloc_huge(log->entries,
										 (Size) want * sizeof(StrataPendingEntry));
		log->maxentries = want;
	}
	entry = &log->entries[log->nentries];
	memset(entry, 0, sizeof(StrataPendingEntry));
	entry->fxid = header->fxid;
	entry->cid = header->cid;
	entry->type = header->type;
	entry->flags = header->flags;
	entry->shard = shard;
	entry->position = le->position;
	entry->page = le->page;
	entry->rows = header->rows;
	entry->first_key = log->nkeys;
	if (header->type == STRATA_ENTRY_ROWS)
	{
		/*
		 * Entries before it on its page lie on it as a whole, and each of their
		 * keys has a hash there (checked, entry.c).  So what they count, and the
		 * rows of this one after them, fit the offset of a TID.
		 */
		StaticAssertStmt(STRATA_LOG_PAGE_CAPACITY / sizeof(uint32) + STRATA_MAX_ENTRY_ROWS <
							 PG_UINT16_MAX,
						 "rows of a log page do not fit a TID");
		Assert(before + rows < PG_UINT16_MAX);
		entry->tombstones = header->tombstones;
		entry->tid_first = (uint16) before;
	}
	else
	{
		entry->group = *strata_entry_group(header);
		entry->rows = entry->group.rows;
	}
	return entry;
}

typedef enum ReadResult
{
	READ_DONE,
	READ_OVER_LIMIT				/* stopped behind an entry */
} ReadResult;

/*
 * Read a shard's log from *point on.  limit (0: none) is for the keys: beyond
 * it they are given up, unless others use them.
 */
static ReadResult
read_shard(StrataPendingLog *log, StrataStore *store, Relation storage, int shard,
		   StrataLogPoint *point, uint32 last, Size limit, uint64 *bytes_read)
{
	MemoryContext walk_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata log walk",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContext group_mcxt = AllocSetContextCreate(walk_mcxt, "strata log walk row group",
													 ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(walk_mcxt);
	StrataLogWalk *walk = strata_log_walk_begin(store, storage, shard, point, last);
	StrataLogEntry le;
	ReadResult	result = READ_DONE;

	while (strata_log_walk_next(walk, &le))
	{
		StrataPendingEntry *entry;

		CHECK_FOR_INTERRUPTS();
		if (le.header->type != STRATA_ENTRY_ROWS && le.header->type != STRATA_ENTRY_ROW_GROUP)
			continue;
		entry = append_entry(log, shard, &le);
		if (entry == NULL)
			continue;

		if (log->keys)
		{
			uint32		n = strata_pending_entry_keys(entry);
			const uint32 *hashes;

			if (entry->type == STRATA_ENTRY_ROWS)
				hashes = strata_entry_hashes(le.header);
			else
			{
				StrataGroupReader *reader;
				uint64		group_read = 0;
				uint64		group_decoded = 0;

				MemoryContextSwitchTo(group_mcxt);
				reader = strata_group_open(store, storage, &entry->group, NULL, true);
				if (strata_group_rows(reader) != n)
					strata_page_mismatch(storage, entry->group.extent.block,
										 "pending row group");
				hashes = strata_group_hashes(reader);
				strata_group_io(reader, &group_read, &group_decoded);
				*bytes_read += group_read;
				MemoryContextSwitchTo(walk_mcxt);
			}
			strata_key_table_add_all(log->keys, hashes, n, log->nentries);
			if (entry->type != STRATA_ENTRY_ROWS)
				MemoryContextReset(group_mcxt);
		}
		log->nkeys += strata_pending_entry_keys(entry);
		log->last_generation[shard] = entry->position.generation;
		log->nentries++;

		if (limit > 0 && log->keys && strata_key_table_memory(log->keys) > limit)
		{
			if (log->refcount > 0)
			{
				result = READ_OVER_LIMIT;
				break;
			}
			strata_key_table_free(log->keys);
			log->keys = NULL;
		}
	}
	strata_log_walk_point(walk, point);
	*bytes_read += strata_log_walk_bytes(walk);
	strata_log_walk_end(walk);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(walk_mcxt);
	return result;
}

/*
 * Is the log known to end at point?  Looks at that page alone; this is what
 * every query of a quiet store pays per shard.
 */
static bool
at_end(Relation storage, const StrataLogPoint *point)
{
	Buffer		buffer;
	Page		page;
	StrataLogPage *header;
	bool		result;

	buffer = strata_page_try_read(storage, point->page.block, STRATA_PAGE_LOG,
								  point->page.owner, BUFFER_LOCK_SHARE, NULL);
	if (!BufferIsValid(buffer))
		return false;			/* the walk says what is wrong */
	page = BufferGetPage(buffer);
	header = strata_page_log(page);
	result = header->next.owner == 0 &&
		(header->flags & STRATA_LOG_PAGE_CLOSED) == 0 &&
		header->generation == point->generation &&
		header->ordinal == point->ordinal &&
		((PageHeader) page)->pd_lower <= MAXALIGN(point->offset);
	UnlockReleaseBuffer(buffer);
	return result;
}

/*
 * Would the walk of a shard, for a view of this state, go on behind
 * generations that were never read?
 */
static bool
shard_skips(const StrataPendingLog *log, int shard, const StrataShardState *state)
{
	const StrataLogPoint *point = &log->point[shard];

	return log->start[shard] < state->merged_through &&
		(point->page.owner == 0 || point->generation <= state->merged_through);
}

/*
 * Take in what each shard's log has beyond what is kept.  False when the keys
 * would not fit the limit and others use them: the log is not to be used.
 */
static bool
log_extend(StrataPendingLog *log, StrataStore *store, Relation storage,
		   const StrataManifest *manifest, Size limit, uint64 *bytes_read)
{
	int			shard;

	for (shard = 0; shard < log->nshards; shard++)
	{
		const StrataShardState *state = &manifest->shards[shard];
		StrataLogPoint point = log->point[shard];
		ReadResult	result;

		if (point.page.owner == 0 || point.generation <= state->merged_through)
		{
			/*
			 * Nothing read yet, or the walk stands where this view's base
			 * begins: the page may be gone.  Generations skipped over are
			 * missing from what is kept, so older views need another one.
			 */
			if (shard_skips(log, shard, state))
			{
				if (log->refcount > 0)
					elog(ERROR, "log of shard %d in relation \"%s\" is in use by an older view",
						 shard, RelationGetRelationName(storage));
				log->start[shard] = state->merged_through;
			}
			if (!strata_log_start(storage, shard, state, &point))
				continue;
		}
		else if (at_end(storage, &point))
			continue;

		log->broken = true;
		result = read_shard(log, store, storage, shard, &point, 0, limit, bytes_read);
		/* its users go on from there, without a limit */
		log->point[shard] = point;
		log->broken = false;
		if (result == READ_OVER_LIMIT)
			return false;
	}
	return true;
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
			if (log->refcount > 0 && shard_skips(log, shard, state))
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
		if (!log_extend(log, store, storage, manifest, limit, &bytes_read))
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
		(void) log_extend(log, store, storage, manifest, limit, &bytes_read);
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
	(void) log_extend(pending->log, pending->store, pending->storage, manifest,
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

	(void) read_shard(pending->log, pending->store, pending->storage, shard, &point, last,
					  pending->budget, &pending->bytes_read);
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

/* ---- entries read again ---- */

bool
strata_pending_same_entry(const StrataPendingEntry *known, const StrataEntryHeader *header)
{
	return header->type == known->type && header->fxid == known->fxid &&
		header->cid == known->cid &&
		(known->type != STRATA_ENTRY_ROWS ||
		 (header->rows == known->rows && header->tombstones == known->tombstones));
}

StrataEntryHeader *
strata_pending_read_entry(StrataPending *pending, int entry)
{
	const StrataPendingEntry *known = pending_entry(pending, entry);
	StrataPageRef page = known->page;
	StrataEntryHeader *header;

	header = strata_log_read_entry(pending->store, pending->storage, known->shard,
								   &page, known->position.offset);
	if (!strata_pending_same_entry(known, header))
	{
		/* A repair that was rolled back tells nobody: read the log again. */
		pending->log->stale = true;
		strata_page_mismatch(pending->storage, page.block, "log entry");
	}
	return header;
}

void
strata_pending_refresh_flags(StrataPending *pending, int entry)
{
	StrataEntryHeader *header = strata_pending_read_entry(pending, entry);

	pending->log->entries[entry].flags = header->flags;
	pfree(header);
}

StrataOutcome
strata_pending_outcome(StrataPending *pending, int index)
{
	const StrataPendingEntry *entry = pending_entry(pending, index);

	/* read before VACUUM froze it, and VACUUM has gone further since? */
	if ((entry->flags & STRATA_ENTRY_FROZEN_MASK) == 0 &&
		TransactionIdPrecedes(XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid)),
							  strata_oldest_clog_xid()))
	{
		strata_pending_refresh_flags(pending, index);
		entry = pending_entry(pending, index);
	}
	return strata_xid_outcome(entry->fxid, entry->flags);
}

StrataPosition
strata_pending_known_end(const StrataPending *pending, int shard)
{
	const StrataLogPoint *point = &pending->log->point[shard];
	StrataPosition position = {0};

	if (point->page.owner != 0)
	{
		position.generation = point->generation;
		position.ordinal = point->ordinal;
		position.offset = point->offset;
	}
	return position;
}

const uint32 *
strata_pending_hashes(StrataPending *pending, int entry)
{
	const StrataPendingEntry *known = pending_entry(pending, entry);
	StrataGroupReader *reader;
	uint64		read = 0;
	uint64		decoded = 0;
	const uint32 *hashes;

	if (known->type == STRATA_ENTRY_ROWS)
	{
		StrataEntryHeader *header = strata_pending_read_entry(pending, entry);

		pending->bytes_read += header->length;
		return strata_entry_hashes(header);
	}
	reader = strata_group_open(pending->store, pending->storage, &known->group, NULL, true);
	if (strata_group_rows(reader) != known->rows)
		strata_page_mismatch(pending->storage, known->group.extent.block, "pending row group");
	hashes = strata_group_hashes(reader);
	strata_group_io(reader, &read, &decoded);
	pending->bytes_read += read;
	return hashes;
}
