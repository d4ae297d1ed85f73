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

bool
strata_repair_is_near(const StrataRepairWalk *repair, uint32 generation, uint32 ordinal)
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
		   strata_repair_is_near(repair, header->generation, header->ordinal);
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

bool
strata_repair_load(StrataRepairWalk *repair, const StrataPageRef *ref, uint32 generation,
				   uint32 ordinal, StrataRepairPage *page)
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

int
strata_repair_compare(const void *a, const void *b)
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
	int			cmp = strata_repair_compare(a, b);

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

const StrataRepairFound *
strata_repair_find(StrataRepairWalk *repair, uint32 generation, uint32 ordinal)
{
	StrataRepairFound wanted = {.generation = generation, .ordinal = ordinal};
	Size		low = 0;
	Size		high;

	if (repair->found == NULL)
		read_file(repair);
	high = repair->nfound;
	while (low < high)
	{
		Size		middle = low + (high - low) / 2;

		if (strata_repair_compare(&repair->found[middle], &wanted) < 0)
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

/* ---- from page to page ---- */

/*
 * Does the log end with a page that names no next one?  Should writers have
 * gone on since it was copied, it is copied again.
 */
static bool
ends_with(StrataRepairWalk *repair, StrataRepairPage *page)
{
	StrataShardData data;

	if (!strata_repair_get_shard(repair, &data))
		return true;
	if (data.tail.owner == page->ref.owner && data.tail.block == page->ref.block &&
		!strata_repair_closed(page))
		return true;
	(void) strata_repair_load(repair, &page->ref, strata_repair_header(page)->generation,
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
		const StrataRepairFound *found =
			strata_repair_find(repair, strata_repair_header(page)->generation, 0);

		if (found == NULL ||
			!strata_repair_load(repair, &found->ref, strata_repair_header(page)->generation, 0,
								&first))
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
	if (strata_repair_load(repair, &ref, generation, ordinal, next))
		return;
	next->lost_block = ref.owner != 0 ? ref.block : InvalidBlockNumber;
	if (page != NULL)
	{
		uint32		other_generation;
		uint32		other_ordinal;

		next_place(repair, page, !closed, &other_generation, &other_ordinal);
		if (last_by_summary(repair, page) != closed &&
			strata_repair_load(repair, &ref, other_generation, other_ordinal, next))
		{
			next->closed_wrong = true;
			return;
		}
	}

	found = strata_repair_find(repair, generation, ordinal);
	if (found != NULL &&
		strata_repair_load(repair, &found->ref, found->generation, found->ordinal, next))
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
		(!in_window &&
		 !strata_repair_load(repair, &repair->generation_first, repair->generation, 0, page)))
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
			!strata_repair_load(repair, &repair->generation_first, generation, 0, &first) ||
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

	if (!strata_repair_get_shard(repair, &shard))
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

	strata_extent_take(repair->storage, npages + (next->exists ? 0 : STRATA_REPAIR_TAIL_BLOCKS),
					   &extent);
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
