/*-------------------------------------------------------------------------
 *
 * pending_entries.c
 *	  Reading pending entries from the log: a shard from where it was left, or
 *	  one entry again.
 *
 * Where a view's manifest has merged what the walk has not read yet, the walk
 * goes on behind it: the pages in between may be gone.  An older view that
 * uses the log would miss those generations for good, though they are pending
 * for it and its snapshot keeps their pages: a row locker would take what was
 * changed there for unchanged.  So such a log is left to its users, and the
 * newer view gets another one (pending_log.c).
 *
 * An entry's flags are those it had when it was read, and may be read again.
 *
 * Locks: the walk locks pages; the entries are the backend's own.
 *
 * IDENTIFICATION
 *	  src/log/pending_entries.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "log/visibility.h"
#include "storage/page.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define MIN_ENTRIES 32

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

bool
strata_pending_log_read(StrataPendingLog *log, StrataStore *store, Relation storage, int shard,
						StrataLogPoint *point, uint32 last, Size limit, uint64 *bytes_read)
{
	MemoryContext walk_mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata log walk",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContext group_mcxt = AllocSetContextCreate(walk_mcxt, "strata log walk row group",
													 ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(walk_mcxt);
	StrataLogWalk *walk = strata_log_walk_begin(store, storage, shard, point, last);
	StrataLogEntry le;
	bool		fits = true;

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
				fits = false;
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
	return fits;
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

bool
strata_pending_log_skips(const StrataPendingLog *log, int shard, const StrataShardState *state)
{
	const StrataLogPoint *point = &log->point[shard];

	return log->start[shard] < state->merged_through &&
		(point->page.owner == 0 || point->generation <= state->merged_through);
}

bool
strata_pending_log_extend(StrataPendingLog *log, StrataStore *store, Relation storage,
						  const StrataManifest *manifest, Size limit, uint64 *bytes_read)
{
	int			shard;

	for (shard = 0; shard < log->nshards; shard++)
	{
		const StrataShardState *state = &manifest->shards[shard];
		StrataLogPoint point = log->point[shard];
		bool		fits;

		if (point.page.owner == 0 || point.generation <= state->merged_through)
		{
			/*
			 * Nothing read yet, or the walk stands where this view's base
			 * begins: the page may be gone.  Generations skipped over are
			 * missing from what is kept, so older views need another one.
			 */
			if (strata_pending_log_skips(log, shard, state))
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
		fits = strata_pending_log_read(log, store, storage, shard, &point, 0, limit, bytes_read);
		/* its users go on from there, without a limit */
		log->point[shard] = point;
		log->broken = false;
		if (!fits)
			return false;
	}
	return true;
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
