/*-------------------------------------------------------------------------
 *
 * shard_check.c
 *	  Does a shard page agree with the log it is about?
 *
 * A shard page names pages of its log: the first one, the first one of the
 * active generation, the tail.  Each of these must be the page it is named
 * for, which its own header says.  What of it lies where (the extents) is
 * checked with everything else that refers to blocks.  Its totals are those of
 * what is merged and of all pages before the tail; they are needed by nothing
 * that has to be right, but by the planner and by the triggers.
 *
 * Locks: one page lock at a time.  Writers may go on: the generation may be
 * sealed and the tail be left behind between our looks, which the shard page
 * itself then tells.
 *
 * IDENTIFICATION
 *	  src/log/shard_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/repair.h"
#include "log/tail.h"
#include "log/walk.h"

#include "miscadmin.h"
#include "utils/rel.h"

/*
 * Is the page at ref that page of the shard's log?  Then copy its header.
 */
static bool
read_header(Relation storage, int shard, const StrataPageRef *ref, StrataLogPage *header)
{
	Buffer		buffer = InvalidBuffer;
	bool		sound;

	if (ref->owner != 0 && ref->block < RelationGetNumberOfBlocks(storage))
		buffer = strata_page_try_read(storage, ref->block, STRATA_PAGE_LOG, ref->owner,
									  BUFFER_LOCK_SHARE, NULL);
	if (!BufferIsValid(buffer))
		return false;
	sound = ((PageHeader) BufferGetPage(buffer))->pd_lower >= STRATA_LOG_PAGE_START;
	*header = *strata_page_log(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return sound && header->shard == (uint32) shard;
}

static bool
is_first_page(Relation storage, int shard, const StrataPageRef *ref, uint32 generation)
{
	StrataLogPage header;

	return read_header(storage, shard, ref, &header) && header.generation == generation &&
		   header.ordinal == 0;
}

const char *
strata_log_check_shard(Relation storage, int shard, const StrataShardState *state)
{
	for (;;)
	{
		StrataShardData data;
		StrataShardData again;
		StrataLogPage tail;

		CHECK_FOR_INTERRUPTS();
		if (!strata_shard_read(storage, shard, &data))
			return NULL;
		if (!strata_tail_is_sound(&data, shard))
			return "its tail or an extent of it cannot be one";
		if (data.active_generation <= state->merged_through)
			return psprintf("generation %u is active, although %u is merged",
							data.active_generation, state->merged_through);
		if (data.tail.owner == 0)
		{
			if (data.active_start.owner != 0 || data.log_start.owner != 0 ||
				state->first_pending.owner != 0)
				return "it has no tail, although there is a log";
			return NULL;
		}
		if (!is_first_page(storage, shard, &data.active_start, data.active_generation))
			return psprintf("block %u is not the start of generation %u, the active one",
							data.active_start.block, data.active_generation);
		if (state->first_pending.owner == 0 &&
			!is_first_page(storage, shard, &data.log_start, state->merged_through + 1))
			return psprintf("block %u is not the start of its log", data.log_start.block);
		if (read_header(storage, shard, &data.tail, &tail) &&
			tail.generation == data.active_generation && strata_tail_is_open(&tail, shard))
			return NULL;

		/* Is it still said to be the tail? */
		if (!strata_shard_read(storage, shard, &again) ||
			memcmp(&again.tail, &data.tail, sizeof(StrataPageRef)) == 0)
			return psprintf("block %u is not the end of its log", data.tail.block);
	}
}

const char *
strata_log_check_totals(Relation storage, int shard, const StrataShardState *state)
{
	StrataShardData data;
	StrataLogPage tail = {0};
	uint64		rows = state->rows;
	uint64		bytes = state->bytes;
	ListCell   *lc;

	if (!strata_shard_read(storage, shard, &data))
		return NULL;
	if (data.tail.owner != 0)
	{
		/* What is before this tail does not change any more. */
		foreach (lc, strata_log_generations(storage, shard, state, 0))
		{
			StrataGeneration *generation = (StrataGeneration *) lfirst(lc);

			if (generation->number >= data.active_generation)
				break;
			rows += generation->rows;
			bytes += generation->bytes;
		}
		if (!read_header(storage, shard, &data.tail, &tail) ||
			tail.generation != data.active_generation)
			return NULL;		/* what else is wrong is told */
	}
	if (data.rows == rows + tail.rows_before && data.bytes == bytes + tail.bytes_before)
		return NULL;
	return psprintf("its totals are " UINT64_FORMAT " rows and " UINT64_FORMAT " bytes, those of its log " UINT64_FORMAT " and " UINT64_FORMAT, data.rows, data.bytes,
					rows + tail.rows_before, bytes + tail.bytes_before);
}
