/*-------------------------------------------------------------------------
 *
 * repair_pages.c
 *	  Log repair from page to page: damaged links, missing pages.
 *
 * A page is the one that is looked for when it carries the owner, shard,
 * generation and ordinal that led there.  If it does not, the whole file is
 * read once for pages of the log, and the same place is looked for among them
 * (the link was wrong), then the next one there is (pages are missing).
 *
 * What is missing is never written where it should have been: the reference
 * may be what is wrong.  New pages lie in an extent of their own and are
 * written before the record that links them.
 *
 * Locks and crash windows: see repair.c.
 *
 * IDENTIFICATION
 *	  src/log/repair_pages.c
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
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/*
 * Each generation that is pending has all of its pages, and at least one, in
 * the file: numbers cannot be farther on than the file is long.  It may have
 * been longer.
 */
#define LOST_BLOCKS_MAX		8192

/* Blocks of a tail extent that replaces a lost one, beyond its first pages. */
#define NEW_TAIL_BLOCKS	8

void
strata_repair_report(StrataRepairWalk *repair, StrataLogLossKind kind, uint32 generation, uint32 ordinal,
					 BlockNumber block, uint32 offset, int64 rows, int64 bytes, const char *problem)
{
	StrataLogLoss loss = {
		.kind = kind,
		.shard = repair->shard,
		.generation = generation,
		.ordinal = ordinal,
		.block = block,
		.offset = offset,
		.rows = rows,
		.bytes = bytes,
		.problem = problem};

	repair->nlosses++;
	repair->request->loss(&loss, repair->request->arg);
}

/* ---- pages ---- */

/* Can a pending log have this place?  Else filling up to it would not end. */
static bool
is_near(const StrataRepairWalk *repair, uint32 generation, uint32 ordinal)
{
	uint64		nblocks = (uint64) RelationGetNumberOfBlocks(repair->storage) + LOST_BLOCKS_MAX;

	return ordinal < nblocks && generation < repair->first.generation + nblocks;
}

/* Is it a sound page of this log, as far as its header goes? */
static bool
is_log_page(const StrataRepairWalk *repair, Page page, uint64 owner)
{
	StrataLogPage *header = strata_page_log(page);
	uint32		lower = ((PageHeader) page)->pd_lower;

	return strata_page_matches(page, STRATA_PAGE_LOG, owner) &&
		   lower >= STRATA_LOG_PAGE_START && lower == MAXALIGN(lower) &&
		   header->shard == (uint32) repair->shard &&
		   header->generation != 0 &&
		   STRATA_LOG_PAGE_START + MAXALIGN((uint32) header->continuation) <= lower &&
		   (header->ordinal != 0 || header->continuation == 0) &&
		   is_near(repair, header->generation, header->ordinal);
}

/* StrataAction */
static void
read_next_owner(void *arg)
{
	StrataRepairWalk *repair = (StrataRepairWalk *) arg;
	StrataSpareData *spare = strata_spare_read(repair->storage);

	if (spare != NULL)
		repair->next_owner = spare->next_owner;
}

/* Can an extent have this owner id? */
static bool
is_given_out(StrataRepairWalk *repair, uint64 owner)
{
	if (owner >= repair->next_owner && strata_attempt(read_next_owner, repair) != NULL)
		repair->next_owner = STRATA_MAX_OWNER;
	return owner != 0 && owner < repair->next_owner;
}

/* The owner id that a page says it has; 0: not a page of ours. */
static uint64
page_owner(Page page)
{
	if (PageIsNew(page) || ((PageHeader) page)->pd_special != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE)
		return 0;
	return strata_page_special(page)->owner;
}

/*
 * Load the page at ref if it is that page of the log; also if it is but for an
 * owner id that nobody can have.
 */
static bool
load_page(StrataRepairWalk *repair, const StrataPageRef *ref, uint32 generation, uint32 ordinal,
		  StrataRepairPage *page)
{
	StrataPageState state;
	uint64		owner;

	if (ref->owner == 0 || ref->block > STRATA_MAX_BLOCK)
		return false;
	state = strata_page_salvage(repair->storage, ref->block, page->copy.data, NULL);
	owner = page_owner(page->copy.data);
	if (state != STRATA_PAGE_UNREADABLE && owner != ref->owner && !is_given_out(repair, owner) &&
		is_given_out(repair, ref->owner))
		state = STRATA_PAGE_REFUSED;
	else
		owner = ref->owner;
	if (state == STRATA_PAGE_UNREADABLE || !is_log_page(repair, page->copy.data, owner) ||
		strata_repair_header(page)->generation != generation || strata_repair_header(page)->ordinal != ordinal)
		return false;

	page->exists = true;
	page->ref = *ref;
	page->refused = page->dirty = state == STRATA_PAGE_REFUSED;
	if (page->refused)
	{
		/* What is wrong may be what only PostgreSQL looks at. */
		PGAlignedBlock raw = page->copy;
		uint32		lower = strata_repair_lower(page);

		strata_page_init(page->copy.data, STRATA_PAGE_LOG, ref->owner);
		memcpy(PageGetContents(page->copy.data), PageGetContents(raw.data),
			   lower - MAXALIGN(SizeOfPageHeaderData));
		((PageHeader) page->copy.data)->pd_lower = lower;
	}
	return true;
}

static int
compare_found(const void *a, const void *b)
{
	const StrataRepairFound *x = a;
	const StrataRepairFound *y = b;

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

/* Of the same place, as after a write that went to another block: the best first. */
static int
compare_copies(const void *a, const void *b)
{
	const StrataRepairFound *x = a;
	const StrataRepairFound *y = b;
	int			cmp = compare_found(a, b);

	if (cmp != 0)
		return cmp;
	if (x->refused != y->refused)
		return x->refused ? 1 : -1;
	return x->lsn > y->lsn ? -1 : x->lsn < y->lsn;
}

/*
 * All pages of the shard's log that the file holds, merged ones left out, and
 * those of which the number alone would make all before them missing.
 */
static void
read_file(StrataRepairWalk *repair)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(repair->storage);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	Size		max = 64;
	PGAlignedBlock copy;

	repair->found = palloc(max * sizeof(StrataRepairFound));
	for (BlockNumber block = STRATA_FIRST_EXTENT_BLOCK(repair->request->store->nshards);
		 block < nblocks; block++)
	{
		StrataLogPage *header = strata_page_log(copy.data);
		StrataPageState state;
		uint64		owner;
		StrataRepairFound *found;

		state = strata_page_salvage(repair->storage, block, copy.data, strategy);
		if (state == STRATA_PAGE_UNREADABLE)
			continue;
		owner = page_owner(copy.data);
		if (!is_log_page(repair, copy.data, owner) || !is_given_out(repair, owner) ||
			header->generation < repair->first.generation)
			continue;
		/* Each page and each generation takes a block: a number that tells of more is wrong. */
		if (header->ordinal >= nblocks ||
			header->generation - repair->first.generation >= nblocks)
			continue;
		if (repair->nfound == max)
		{
			max *= 2;
			repair->found = repalloc_huge(repair->found, max * sizeof(StrataRepairFound));
		}
		found = &repair->found[repair->nfound++];
		found->generation = header->generation;
		found->ordinal = header->ordinal;
		found->ref.owner = owner;
		found->ref.block = block;
		found->ref.unused = 0;
		found->refused = state == STRATA_PAGE_REFUSED;
		found->lsn = PageGetLSN(copy.data);
		found->closed = (header->flags & STRATA_LOG_PAGE_CLOSED) != 0;
		found->open = strata_tail_is_open(header, repair->shard);
		found->rows_before = header->rows_before;
		found->rows = header->rows;
		found->bytes_before = header->bytes_before;
		found->bytes = header->bytes;
	}
	qsort(repair->found, repair->nfound, sizeof(StrataRepairFound), compare_copies);
	FreeAccessStrategy(strategy);
}

/* The first page of the log at or after a place; NULL: none. */
static const StrataRepairFound *
find_from(StrataRepairWalk *repair, uint32 generation, uint32 ordinal)
{
	StrataRepairFound	wanted = {.generation = generation, .ordinal = ordinal};
	Size		low = 0;
	Size		high;

	if (repair->found == NULL)
		read_file(repair);
	high = repair->nfound;
	while (low < high)
	{
		Size		middle = low + (high - low) / 2;

		if (compare_found(&repair->found[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < repair->nfound ? &repair->found[low] : NULL;
}

/* The place of the page after page; NULL: of the first. */
static void
next_place(StrataRepairWalk *repair, StrataRepairPage *page, bool closed, uint32 *generation, uint32 *ordinal)
{
	if (page == NULL)
	{
		*generation = repair->first.generation;
		*ordinal = 0;
		return;
	}
	*generation = strata_repair_header(page)->generation + (closed ? 1 : 0);
	*ordinal = closed ? 0 : strata_repair_header(page)->ordinal + 1;
}

/* ---- the shard page ---- */

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

/* The shard page, or what is in its place. */
static bool
get_shard(StrataRepairWalk *repair, StrataShardData *data)
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
	const StrataRepairFound *found = find_from(repair, repair->first.generation, 0);

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
		while (found > repair->found && compare_found(found - 1, found) == 0)
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
	found = find_from(repair, data->active_generation, 0);
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
		!is_near(repair, data->active_generation, 0))
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
		strata_extent_take(repair->storage, NEW_TAIL_BLOCKS, &repair->shard_data.tail_extent);
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
	if (repair->whole && load_page(repair, &repair->generation_first, repair->generation, 0, &first) &&
		header->sealed_at != 0 && get_shard(repair, &data) &&
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

	if (repair->request->dry_run || !repair->whole || !get_shard(repair, &data))
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
	if (!get_shard(repair, &data) ||
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

/* ---- from page to page ---- */

/*
 * Does the log end with a page that names no next one?  Should writers have
 * gone on since it was copied, it is copied again.
 */
static bool
ends_with(StrataRepairWalk *repair, StrataRepairPage *page)
{
	StrataShardData data;

	if (!get_shard(repair, &data))
		return true;
	if (data.tail.owner == page->ref.owner && data.tail.block == page->ref.block &&
		!strata_repair_closed(page))
		return true;
	(void) load_page(repair, &page->ref, strata_repair_header(page)->generation,
					 strata_repair_header(page)->ordinal, page);
	return false;
}

/* Is page the last of its generation, by the generation's summary? */
static bool
last_by_summary(StrataRepairWalk *repair, StrataRepairPage *page)
{
	StrataRepairPage first;
	StrataRepairPage *summary = page;

	if (strata_repair_header(page)->ordinal != 0)
	{
		const StrataRepairFound *found = find_from(repair, strata_repair_header(page)->generation, 0);

		if (found == NULL ||
			!load_page(repair, &found->ref, strata_repair_header(page)->generation, 0, &first))
			return false;
		summary = &first;
	}
	return strata_repair_header(summary)->sealed_at != 0 &&
		   memcmp(&strata_repair_header(summary)->last, &page->ref, sizeof(StrataPageRef)) == 0;
}

/* Find the page after page; NULL: the first. */
void
strata_repair_next(StrataRepairWalk *repair, StrataRepairPage *page, StrataRepairPage *next)
{
	bool		closed = strata_repair_closed(page);
	StrataPageRef ref;
	uint32		generation;
	uint32		ordinal;
	const StrataRepairFound *found;

	memset(next, 0, offsetof(StrataRepairPage, copy));
	if (page != NULL && !page->exists)
		return;
	ref = page == NULL ? repair->first.page : strata_repair_header(page)->next;
	if (page != NULL && ref.owner == 0)
	{
		if (ends_with(repair, page))
			return;
		ref = strata_repair_header(page)->next;
		closed = strata_repair_closed(page);
	}

	next_place(repair, page, closed, &generation, &ordinal);
	if (load_page(repair, &ref, generation, ordinal, next))
		return;
	next->lost_block = ref.owner != 0 ? ref.block : InvalidBlockNumber;
	if (page != NULL)
	{
		uint32		other_generation;
		uint32		other_ordinal;

		next_place(repair, page, !closed, &other_generation, &other_ordinal);
		if (last_by_summary(repair, page) != closed &&
			load_page(repair, &ref, other_generation, other_ordinal, next))
		{
			next->closed_wrong = true;
			return;
		}
	}

	found = find_from(repair, generation, ordinal);
	if (found != NULL && load_page(repair, &found->ref, found->generation, found->ordinal, next))
	{
		next->relinked = true;
		next->gap = found->generation != generation || found->ordinal != ordinal;
	}
	else
		next->gap = true;
}

/*
 * Write a page anew, and with it the shard page if shard is given.
 */
void
strata_repair_write(StrataRepairWalk *repair, StrataRepairPage *page, const StrataShardData *shard)
{
	GenericXLogState *record = GenericXLogStart(repair->storage);
	Buffer		shard_buffer = InvalidBuffer;
	Buffer		buffer = InvalidBuffer;

	if (shard != NULL)
	{
		shard_buffer = strata_page_read(repair->storage, STRATA_SHARD_BLOCK(repair->shard),
										STRATA_PAGE_SHARD, 0, BUFFER_LOCK_EXCLUSIVE, NULL,
										"a shard page");
		*strata_page_shard(GenericXLogRegisterBuffer(record, shard_buffer, 0)) = *shard;
	}
	if (page != NULL)
	{
		buffer = strata_page_new(repair->storage, page->ref.block, NULL);
		memcpy(GenericXLogRegisterBuffer(record, buffer, GENERIC_XLOG_FULL_IMAGE),
			   page->copy.data, BLCKSZ);
	}
	GenericXLogFinish(record);
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	if (BufferIsValid(shard_buffer))
		UnlockReleaseBuffer(shard_buffer);
	if (page != NULL)
		page->dirty = false;
	STRATA_PAUSE("repair-after-page");
}

/* ---- generations ---- */

/*
 * The generation walked ended, with a page of the next at ref: is its summary
 * right?  filled: that page, too, is new.
 */
static void
finish_generation(StrataRepairWalk *repair, const StrataPageRef *ref, bool filled)
{
	StrataRepairPage copy;
	StrataRepairPage *page = repair->window[0];
	StrataLogPage *header;
	bool		in_window = memcmp(&page->ref, &repair->generation_first, sizeof(StrataPageRef)) == 0;

	repair->sealed_rows += repair->rows;
	repair->sealed_bytes += repair->bytes;
	if (!in_window)
		page = &copy;
	if (!repair->whole ||
		(!in_window && !load_page(repair, &repair->generation_first, repair->generation, 0, page)))
		return;
	header = strata_repair_header(page);
	if (header->sealed_at != 0 && header->generation_rows == repair->rows &&
		header->generation_bytes == repair->bytes &&
		memcmp(&header->last, &repair->last, sizeof(StrataPageRef)) == 0 &&
		memcmp(&header->next_generation, ref, sizeof(StrataPageRef)) == 0)
		return;

	if (!repair->filled && !filled)
		strata_repair_report(repair, STRATA_LOSS_LINK, repair->generation, 0, page->ref.block, 0, 0, 0,
							 "summary of the generation is wrong");
	if (repair->request->dry_run)
		return;
	if (header->sealed_at == 0)
		header->sealed_at = GetCurrentTimestamp();
	header->generation_rows = repair->rows;
	header->generation_bytes = repair->bytes;
	header->last = repair->last;
	header->next_generation = *ref;
	/* What is being looked at will be written, with more that changes. */
	if (in_window)
		page->dirty = true;
	else
		strata_repair_write(repair, page, NULL);
}

/* The walk has come to this page. */
void
strata_repair_note(StrataRepairWalk *repair, StrataRepairPage *page, bool filled)
{
	StrataLogPage *header = strata_repair_header(page);

	if (header->generation != repair->generation)
	{
		if (repair->generation != 0)
			finish_generation(repair, &page->ref, filled);
		repair->generation = header->generation;
		repair->whole = header->ordinal == 0;
		repair->filled = false;
		repair->generation_first = page->ref;
	}
	repair->filled = repair->filled || filled;
	repair->last = page->ref;
	repair->rows_before = header->rows_before;
	repair->bytes_before = header->bytes_before;
	repair->rows = header->rows_before + header->rows;
	repair->bytes = header->bytes_before + header->bytes;
}

/* ---- missing pages ---- */

/*
 * What the missing pages of a generation held.  before: the last page before
 * them, next: the first one after them, both maybe of other generations.
 * False: not known.
 */
static bool
missing_rows(StrataRepairWalk *repair, uint32 generation, StrataRepairPage *before, StrataRepairPage *next,
			 uint64 *base_rows, uint64 *base_bytes, int64 *rows, int64 *bytes)
{
	uint64		end_rows;
	uint64		end_bytes;

	*base_rows = *base_bytes = 0;
	*rows = *bytes = 0;
	if (before != NULL && strata_repair_header(before)->generation == generation)
	{
		*base_rows = strata_repair_header(before)->rows_before + strata_repair_header(before)->rows;
		*base_bytes = strata_repair_header(before)->bytes_before + strata_repair_header(before)->bytes;
	}
	if (next->exists && strata_repair_header(next)->generation == generation)
	{
		end_rows = strata_repair_header(next)->rows_before;
		end_bytes = strata_repair_header(next)->bytes_before;
	}
	else
	{
		StrataRepairPage first;

		if (before == NULL || strata_repair_header(before)->generation != generation || !repair->whole ||
			!load_page(repair, &repair->generation_first, generation, 0, &first) ||
			strata_repair_header(&first)->sealed_at == 0)
			return false;
		end_rows = strata_repair_header(&first)->generation_rows;
		end_bytes = strata_repair_header(&first)->generation_bytes;
	}
	if (end_rows < *base_rows || end_rows - *base_rows > PG_UINT32_MAX || end_bytes < *base_bytes)
		return false;
	*rows = (int64) (end_rows - *base_rows);
	*bytes = (int64) (end_bytes - *base_bytes);
	return true;
}

/*
 * Pages are missing between before (NULL: from the start) and next (which does
 * not exist if the log's end is missing).  Put new ones in their place.
 */
void
strata_repair_fill(StrataRepairWalk *repair, StrataRepairPage *before, StrataRepairPage *next)
{
	StrataShardData shard;
	bool		shard_changed = false;
	StrataPageRef first;
	StrataPageRef last;
	uint32		first_generation;
	uint32		first_ordinal;
	uint32		last_generation;
	uint32		generation;
	uint32		ordinal;
	uint32		npages = 0;
	int64		rows = 0;
	int64		bytes = 0;
	bool		known = true;
	StrataExtent extent;
	uint64		base_rows;
	uint64		base_bytes;
	int64		lost_rows;
	int64		lost_bytes;

	if (!get_shard(repair, &shard))
		strata_page_mismatch(repair->storage, STRATA_SHARD_BLOCK(repair->shard), "a shard page");
	next_place(repair, before, strata_repair_closed(before), &first_generation, &first_ordinal);
	last_generation = next->exists ? strata_repair_header(next)->generation :
									 Max(shard.active_generation, first_generation);

	/* Count them, and what they held. */
	for (generation = first_generation; generation <= last_generation; generation++)
	{
		uint32		from = generation == first_generation ? first_ordinal : 0;

		CHECK_FOR_INTERRUPTS();
		if (generation < last_generation)
			npages++;
		else if (!next->exists)
			npages++;
		else
			npages += strata_repair_header(next)->ordinal - from;
		if (generation == last_generation && next->exists && strata_repair_header(next)->ordinal == 0)
			break;
		known = missing_rows(repair, generation, before, next, &base_rows, &base_bytes,
							 &lost_rows, &lost_bytes) &&
				known;
		rows += lost_rows;
		bytes += lost_bytes;
	}
	strata_repair_report(repair, STRATA_LOSS_PAGES, first_generation, first_ordinal, next->lost_block, 0,
						 known ? rows : -1, known ? bytes : -1,
						 npages == 1 ? "page is not one of this log" :
									   psprintf("%u pages or more are not of this log", npages));
	if (repair->request->dry_run)
	{
		repair->whole = false;
		return;
	}

	strata_extent_take(repair->storage, npages + (next->exists ? 0 : NEW_TAIL_BLOCKS), &extent);
	generation = first_generation;
	ordinal = first_ordinal;
	for (uint32 i = 0; i < npages; i++)
	{
		StrataRepairPage page = {.exists = true};
		StrataLogPage *header;
		bool		closes = generation < last_generation;

		page.ref.owner = extent.owner;
		page.ref.block = extent.block + i;
		last = page.ref;
		if (i == 0)
			first = page.ref;
		header = strata_tail_init_page(page.copy.data, extent.owner, repair->shard, generation,
									   ordinal);
		if (i == 0 || ordinal == 0)
		{
			(void) missing_rows(repair, generation, before, next, &base_rows, &base_bytes,
								&lost_rows, &lost_bytes);
			if (lost_rows > 0)
			{
				strata_entry_set_lost((StrataEntryHeader *) (page.copy.data + STRATA_LOG_PAGE_START),
									  sizeof(StrataEntryHeader), (uint32) lost_rows);
				((PageHeader) page.copy.data)->pd_lower += MAXALIGN(sizeof(StrataEntryHeader));
			}
		}
		else
		{
			base_rows += lost_rows;
			base_bytes += lost_bytes;
			lost_rows = lost_bytes = 0;
		}
		header->rows_before = base_rows;
		header->bytes_before = base_bytes;
		header->rows = lost_rows;
		header->bytes = lost_bytes;
		if (i + 1 < npages)
		{
			header->next.owner = extent.owner;
			header->next.block = extent.block + i + 1;
		}
		else if (next->exists)
			header->next = next->ref;
		if (closes)
			header->flags |= STRATA_LOG_PAGE_CLOSED;
		if (ordinal == 0)
			header->opened_at = GetCurrentTimestamp();
		if (ordinal == 0 && generation == shard.active_generation)
		{
			shard.active_start = page.ref;
			shard_changed = true;
		}
		strata_repair_write(repair, &page, NULL);
		strata_repair_note(repair, &page, true);

		generation += closes ? 1 : 0;
		ordinal = closes ? 0 : ordinal + 1;
	}

	if (!next->exists)
	{
		shard.tail = last;
		shard.tail_extent = extent;
		shard_changed = true;
	}
	if (before != NULL)
		strata_repair_header(before)->next = first;
	else
	{
		repair->moved = true;
		repair->start = first;
		if (memcmp(&shard.log_start, &repair->first.page, sizeof(StrataPageRef)) == 0)
		{
			shard.log_start = first;
			shard_changed = true;
		}
	}
	if (before != NULL || shard_changed)
		strata_repair_write(repair, before, shard_changed ? &shard : NULL);
}
