/*-------------------------------------------------------------------------
 *
 * choose.c
 *	  Which generations a pass folds.
 *
 * Every trigger of a merge goes through strata_choose, so that no path is
 * without bounds: a cap on generations, a cap on stored bytes (those of row
 * groups that entries link included) and one on the memory that entries and
 * keys take in the pass.  Any of them ends the choice; lifting one leaves the
 * others.  A generation is indivisible and the first one is always taken, so
 * a pass always makes progress.
 *
 * Within a shard generations are taken strictly by number, because position
 * decides which version of a key wins; across shards in the order in which
 * they were sealed, so that no shard starves.
 *
 * A generation is taken only when its last page was seen CLOSED under a share
 * lock, hence nothing can be added to it any more, and when the transaction
 * of every entry is known to have ended: a page that is closed can still
 * hold entries of running transactions, which must stay in the log because
 * only there they carry the xid that decides whether they count.  A shard
 * with such a generation is passed over from there on.
 *
 * Locks: the caller holds the pass lock, which keeps merged_through where it
 * is, and a lock on the storage relation.  Page locks are held one at a time.
 *
 * IDENTIFICATION
 *	  src/merge/choose.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "log/append.h"
#include "merge/budget.h"

#include "access/subtrans.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

/* What a pass keeps in memory of an entry, slack of the growing array included. */
#define CHOOSE_ENTRY_MEMORY		(2 * sizeof(StrataPendingEntry))

/* The share of maintenance_work_mem that entries and keys may take. */
#define CHOOSE_MEMORY_SHARE		4

/* Where the pages of a generation start. */
void
strata_generation_point(const StrataGeneration *generation, StrataLogPoint *point)
{
	memset(point, 0, sizeof(*point));
	point->page = generation->first;
	point->generation = generation->number;
	point->ordinal = 0;
	point->offset = STRATA_LOG_PAGE_START;
}

/*
 * The top-level transaction of a (sub)transaction that is still running: what
 * a person finds in pg_stat_activity or pg_prepared_xacts.
 */
static FullTransactionId
choose_top_xid(uint64 fxid, StrataOutcome outcome)
{
	TransactionId xid = (TransactionId) fxid;
	TransactionId top;

	if (outcome == STRATA_XID_OWN)
		return GetTopFullTransactionId();

	/*
	 * It was running a moment ago.  If that is over, pg_subtrans may not go
	 * back that far any more.
	 */
	if (!TransactionIdIsValid(TransactionXmin) ||
		TransactionIdPrecedes(xid, TransactionXmin))
		return FullTransactionIdFromU64(fxid);
	top = SubTransGetTopmostTransaction(xid);
	return FullTransactionIdFromU64(fxid - (uint64) (uint32) (xid - top));
}

/*
 * The oldest running xid among the entries of a generation.
 */
FullTransactionId
strata_generation_blocked_by(StrataStore *store, Relation storage,
							 const StrataGeneration *generation,
							 StrataGenerationCounts *counts)
{
	FullTransactionId blocked_by = InvalidFullTransactionId;
	StrataLogPoint point;
	StrataLogWalk *walk;
	StrataLogEntry entry;

	if (counts != NULL)
		memset(counts, 0, sizeof(*counts));

	strata_generation_point(generation, &point);
	walk = strata_log_walk_begin(store, storage, generation->shard, &point,
								 generation->number);
	while (strata_log_walk_next(walk, &entry))
	{
		StrataOutcome outcome;

		CHECK_FOR_INTERRUPTS();

		outcome = strata_xid_outcome(entry.header->fxid, entry.header->flags);
		if (outcome == STRATA_XID_RUNNING || outcome == STRATA_XID_OWN)
		{
			FullTransactionId top = choose_top_xid(entry.header->fxid, outcome);

			if (!FullTransactionIdIsValid(blocked_by) ||
				FullTransactionIdPrecedes(top, blocked_by))
				blocked_by = top;
		}

		if (counts != NULL && (entry.header->type == STRATA_ENTRY_ROWS ||
							   entry.header->type == STRATA_ENTRY_ROW_GROUP))
		{
			counts->entries++;
			counts->keys += (uint64) entry.header->rows + entry.header->tombstones;
		}
	}
	strata_log_walk_end(walk);

	return blocked_by;
}

/*
 * Was the last page of the generation closed?  The summary on its first page
 * was written by the record that closed the last one, but only the page
 * itself, looked at under its lock, says that no appender is in between.
 */
static bool
choose_seen_closed(Relation storage, const StrataGeneration *generation)
{
	char		object[64];
	Buffer		buffer;
	StrataLogPage *header;
	bool		closed;

	snprintf(object, sizeof(object), "generation %u of shard %d",
			 generation->number, generation->shard);
	buffer = strata_page_read(storage, generation->last.block, STRATA_PAGE_LOG,
							  generation->last.owner, BUFFER_LOCK_SHARE, NULL,
							  object);
	header = strata_page_log(BufferGetPage(buffer));
	closed = header->generation == generation->number &&
		header->shard == (uint32) generation->shard &&
		(header->flags & STRATA_LOG_PAGE_CLOSED) != 0;
	UnlockReleaseBuffer(buffer);

	return closed;
}

/*
 * The shard whose next generation was sealed first, or -1.
 */
static int
choose_next_shard(int nshards, List **sealed, const int *next, const bool *over)
{
	int			best = -1;
	TimestampTz best_at = 0;

	for (int shard = 0; shard < nshards; shard++)
	{
		StrataGeneration *generation;

		if (over[shard] || next[shard] >= list_length(sealed[shard]))
			continue;
		generation = (StrataGeneration *) list_nth(sealed[shard], next[shard]);
		if (best < 0 || generation->sealed_at < best_at)
		{
			best = shard;
			best_at = generation->sealed_at;
		}
	}
	return best;
}

/*
 * Choose what a pass folds.
 */
StrataChoice *
strata_choose(StrataStore *store, Relation storage,
			  const StrataManifest *manifest,
			  int max_generations, int64 max_bytes, Size key_memory,
			  const uint32 *through)
{
	StrataChoice *choice = palloc0(sizeof(StrataChoice));
	List	   *sealed[STRATA_MAX_SHARDS];
	int			next[STRATA_MAX_SHARDS] = {0};
	bool		over[STRATA_MAX_SHARDS] = {0};
	uint64		memory_limit = Min((uint64) maintenance_work_mem, (uint64) strata_merge_memory) *
		1024 / CHOOSE_MEMORY_SHARE;
	int			total = 0;
	int			shard;

	choice->blocked_by = InvalidFullTransactionId;

	for (shard = 0; shard < manifest->nshards; shard++)
	{
		List	   *generations = strata_log_generations(storage, shard,
														 &manifest->shards[shard], 0);
		ListCell   *lc;

		sealed[shard] = NIL;
		foreach (lc, generations)
		{
			StrataGeneration *generation = (StrataGeneration *) lfirst(lc);

			if (!generation->sealed ||
				(through != NULL && generation->number > through[shard]))
				break;
			sealed[shard] = lappend(sealed[shard], generation);
		}
		total += list_length(sealed[shard]);
	}
	choice->generations = palloc(sizeof(StrataGeneration *) * Max(total, 1));

	while ((shard = choose_next_shard(manifest->nshards, sealed, next, over)) >= 0)
	{
		StrataGeneration *generation =
		(StrataGeneration *) list_nth(sealed[shard], next[shard]);
		StrataGenerationCounts counts;
		FullTransactionId blocked_by;
		uint64		memory;

		CHECK_FOR_INTERRUPTS();
		strata_pass_give_way(store);

		if (choice->ngenerations > 0)
		{
			if (max_generations > 0 && choice->ngenerations >= max_generations)
				break;
			if (max_bytes > 0 &&
				choice->bytes + generation->bytes > (uint64) max_bytes)
				break;
		}

		if (!choose_seen_closed(storage, generation))
		{
			over[shard] = true;
			continue;
		}
		blocked_by = strata_generation_blocked_by(store, storage, generation, &counts);
		if (FullTransactionIdIsValid(blocked_by))
		{
			over[shard] = true;
			if (!FullTransactionIdIsValid(choice->blocked_by) ||
				FullTransactionIdPrecedes(blocked_by, choice->blocked_by))
				choice->blocked_by = blocked_by;
			continue;
		}

		memory = counts.entries * CHOOSE_ENTRY_MEMORY + counts.keys * key_memory;
		if (choice->ngenerations > 0 && choice->memory + memory > memory_limit)
			break;

		choice->memory += memory;

		choice->generations[choice->ngenerations++] = generation;
		choice->bytes += generation->bytes;
		next[shard]++;
	}

	choice->left = total - choice->ngenerations;
	return choice;
}
