/*-------------------------------------------------------------------------
 *
 * repair_shard.c
 *	  Log repair of a shard page, by the pages of its log.
 *
 * What a shard page says is where its log starts and ends, and how much is in
 * it.  All of that can be told from the log's pages; where these are damaged at
 * just the places that it names, it stands, and is changed with the page that
 * takes the place.  Totals come last: they follow from what else was repaired.
 *
 * Locks and crash windows: see repair.c.
 *
 * IDENTIFICATION
 *	  src/log/repair_shard.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/repair_private.h"
#include "log/tail.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/salvage.h"

#include "access/generic_xlog.h"
#include "utils/rel.h"

typedef struct ReadShard
{
	StrataRepairWalk *repair;
	const StrataShardState *state;
	StrataShardData *data;
	bool		exists;
	const char *wrong;			/* does not agree with the log */
} ReadShard;

/* StrataAction */
static void
read_shard(void *arg)
{
	ReadShard  *read = (ReadShard *) arg;

	read->exists = strata_shard_read(read->repair->storage, read->repair->shard, read->data);
}

/* StrataAction */
static void
check_shard(void *arg)
{
	ReadShard  *read = (ReadShard *) arg;

	read->wrong = strata_log_check_shard(read->repair->storage, read->repair->shard, read->state);
}

bool
strata_repair_get_shard(StrataRepairWalk *repair, StrataShardData *data)
{
	if (!repair->shard_lost)
		return strata_shard_read(repair->storage, repair->shard, data);
	*data = repair->shard_data;
	return true;
}

/*
 * The shard page as the pages of the log say it was.  Its tail extents are not
 * known any more but for the tail itself: sweep gives them back.
 */
static void
collect_shard(StrataRepairWalk *repair, const StrataShardState *state)
{
	StrataShardData *data = &repair->shard_data;
	const StrataRepairFound *found = strata_repair_find(repair, repair->first.generation, 0);

	memset(data, 0, sizeof(*data));
	data->shard = repair->shard;
	data->active_generation = repair->first.generation;
	data->rows = state->rows;
	data->bytes = state->bytes;
	if (found != NULL && found->generation == repair->first.generation && found->ordinal == 0)
		data->log_start = found->ref;

	for (Size i = 0; i < repair->nfound; i++)
	{
		bool		last = i + 1 == repair->nfound;

		found = &repair->found[i];
		if (!last && found[1].generation == found->generation)
			continue;
		while (found > repair->found && strata_repair_compare(found - 1, found) == 0)
			found--;			/* the best copy */

		/* The last page of its generation, as far as they are there. */
		data->rows += found->rows_before;
		data->bytes += found->bytes_before;
		if (!last || found->closed)
		{
			data->rows += found->rows;
			data->bytes += found->bytes;
		}
		data->active_generation = found->generation + (found->closed ? 1 : 0);
		if (last && !found->closed)
		{
			data->tail = found->ref;
			data->tail_extent.owner = found->ref.owner;
			data->tail_extent.block = found->ref.block;
			data->tail_extent.nblocks = 1;
		}
	}
	found = strata_repair_find(repair, data->active_generation, 0);
	if (found != NULL && found->generation == data->active_generation && found->ordinal == 0)
		data->active_start = found->ref;
}

static bool
same_page(const StrataPageRef *a, const StrataPageRef *b)
{
	return a->owner == b->owner && a->block == b->block;
}

/*
 * A shard page does not agree with the pages that it names: is it wrong, or are
 * they damaged?  It is when the log ends elsewhere, or starts there; where its
 * end or start is missing, what the shard page says stands.  shard_data is what
 * the pages say.
 */
static bool
shard_is_wrong(const StrataRepairWalk *repair, const StrataShardState *state,
			   const StrataShardData *data)
{
	const StrataShardData *log = &repair->shard_data;

	if (!strata_tail_is_sound(data, repair->shard) ||
		!strata_repair_is_near(repair, data->active_generation, 0))
		return true;
	if (repair->nfound == 0)
		return data->tail.owner == 0;
	if (!repair->found[repair->nfound - 1].open)
		return false;
	return log->active_generation != data->active_generation ||
		   !same_page(&log->tail, &data->tail) ||
		   (log->active_start.owner != 0 && !same_page(&log->active_start, &data->active_start)) ||
		   (state->first_pending.owner == 0 && log->log_start.owner != 0 &&
			!same_page(&log->log_start, &data->log_start));
}

static void
write_shard(StrataRepairWalk *repair)
{
	GenericXLogState *record;
	Buffer		buffer;
	Page		page;

	/* A log without a tail page has an extent for it. */
	if (repair->shard_data.tail_extent.owner == 0)
		strata_extent_take(repair->storage, STRATA_REPAIR_TAIL_BLOCKS, &repair->shard_data.tail_extent);
	record = GenericXLogStart(repair->storage);
	buffer = strata_page_new(repair->storage, STRATA_SHARD_BLOCK(repair->shard), NULL);
	page = GenericXLogRegisterBuffer(record, buffer, GENERIC_XLOG_FULL_IMAGE);
	strata_page_init(page, STRATA_PAGE_SHARD, 0);
	*strata_page_shard(page) = repair->shard_data;
	((PageHeader) page)->pd_lower += sizeof(StrataShardData);
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	repair->shard_lost = false;
	STRATA_PAUSE("repair-after-page");
}

bool
strata_repair_start(StrataRepairWalk *repair, const StrataShardState *state)
{
	StrataShardData data;
	ReadShard	read = {.repair = repair, .state = state, .data = &data};
	const char *problem = strata_attempt(read_shard, &read);

	repair->first.generation = state->merged_through + 1;
	repair->first.offset = STRATA_LOG_PAGE_START;
	if (problem == NULL && read.exists)
	{
		char	   *error = strata_attempt(check_shard, &read);

		if (error != NULL)
			read.wrong = error;
		problem = repair->request->shard_problems[repair->shard];
	}
	if (problem != NULL || read.wrong != NULL)
		collect_shard(repair, state);
	if (problem == NULL && read.wrong != NULL && shard_is_wrong(repair, state, &data))
		problem = read.wrong;
	if (problem == NULL)
		return read.exists && strata_log_start(repair->storage, repair->shard, state, &repair->first);

	repair->shard_lost = true;
	strata_repair_report(repair, STRATA_LOSS_SHARD, 0, 0, STRATA_SHARD_BLOCK(repair->shard), 0, 0,
						 0, problem);
	if (!repair->request->dry_run)
		write_shard(repair);
	repair->first.page = state->first_pending.owner != 0 ? state->first_pending :
														   repair->shard_data.log_start;
	/* Pages, but not the first: it is looked for, and found missing. */
	return repair->first.page.owner != 0 || repair->nfound > 0;
}

void
strata_repair_finish(StrataRepairWalk *repair, const StrataShardState *state)
{
	StrataShardState start = *state;
	StrataShardData data;
	ReadShard	read = {.repair = repair, .state = &start};
	StrataRepairPage first;
	StrataLogPage *header = strata_repair_header(&first);

	if (repair->generation == 0)
		return;

	/* The shard page after the first page: sealing changes both by one record. */
	if (repair->whole && strata_repair_load(repair, &repair->generation_first, repair->generation, 0, &first) &&
		header->sealed_at != 0 && strata_repair_get_shard(repair, &data) &&
		data.active_generation == repair->generation)
	{
		strata_repair_report(repair, STRATA_LOSS_LINK, repair->generation, 0, first.ref.block, 0, 0, 0,
							 "generation is not sealed");
		if (!repair->request->dry_run)
		{
			header->sealed_at = 0;
			header->generation_rows = header->generation_bytes = 0;
			memset(&header->last, 0, sizeof(header->last));
			memset(&header->next_generation, 0, sizeof(header->next_generation));
			strata_repair_write(repair, &first, NULL);
		}
	}

	if (repair->request->dry_run || !repair->whole || !strata_repair_get_shard(repair, &data))
		return;
	if (repair->moved)
		start.first_pending = repair->start;
	if (strata_attempt(check_shard, &read) == NULL && read.wrong == NULL)
		return;

	/* Another page has taken the place of one that it names: that was told. */
	data.active_generation = repair->generation;
	data.active_start = repair->generation_first;
	if (start.first_pending.owner == 0)
		data.log_start = repair->first.page;
	if (!same_page(&data.tail, &repair->last))
	{
		data.tail = repair->last;
		data.tail_extent.owner = repair->last.owner;
		data.tail_extent.block = repair->last.block;
		data.tail_extent.nblocks = 1;
	}
	repair->shard_data = data;
	write_shard(repair);
}

void
strata_repair_totals(StrataRepairWalk *repair, const StrataShardState *state)
{
	uint64		rows = state->rows + repair->sealed_rows + repair->rows_before;
	uint64		bytes = state->bytes + repair->sealed_bytes + repair->bytes_before;
	StrataShardData data;

	/* In a dry run writers may have gone on. */
	if (!strata_repair_get_shard(repair, &data) ||
		(repair->generation == 0 ? data.tail.owner != 0 :
								   (data.active_generation != repair->generation ||
									!same_page(&data.tail, &repair->last))) ||
		(data.rows == rows && data.bytes == bytes))
		return;
	if (repair->nlosses == 0)
		strata_repair_report(repair, STRATA_LOSS_SHARD, 0, 0, STRATA_SHARD_BLOCK(repair->shard), 0,
							 0, 0, "its totals are not those of its log");
	if (repair->request->dry_run)
		return;
	data.rows = rows;
	data.bytes = bytes;
	repair->shard_data = data;
	write_shard(repair);
}
