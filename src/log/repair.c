/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  Going through a damaged log, and setting aside what cannot be read.
 *
 * Translates a chain of log pages, some of which are damaged, into a list of
 * what is lost, and on demand into a chain that can be read from end to end.
 *
 * An entry is lost when its header, its CRC or its rows are wrong.  The next
 * one starts where its length says, if there is a sound entry there, else at
 * the next place on the page where one is.  What is between becomes one LOST
 * entry: its bytes stay, but for a header in front.  Entries that go on over
 * pages are cut: bytes on later pages are marked ORPHAN there and skipped.
 *
 * A page is lost when it is not the one that led there: of another owner,
 * shard or place.  Pages of a log carry (shard, generation, ordinal), which
 * occurs once in a file, so those behind the damage are found wherever they
 * lie.  New empty pages take the place of what is missing: numbers have no
 * gaps, and nothing that reads a log knows of this.  The lost blocks are left
 * as they are, since the reference may be what was wrong; sweep gives back
 * those that nothing else refers to.  Rows of lost pages are known from the
 * counts of the pages around them; a LOST entry carries their number, so that
 * a generation's sum stays right.
 *
 * A page that PostgreSQL refuses (its checksum) is read past the buffers, and
 * written anew with what is sound of it.
 *
 * Locks: none of ours in a dry run, and writers go on: a page copy that shows
 * an entry shows the link to the rest of it.  Else the caller keeps everybody
 * out.
 *
 * Crash windows: each page is one record.  New pages are written before the
 * record that links them; a crash before leaves an unreferenced extent.  After
 * any of the records the log is as damaged as before or less, and the next
 * repair finds what is left.
 *
 * IDENTIFICATION
 *	  src/log/repair.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "log/repair.h"
#include "log/tail.h"
#include "log/visibility.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/metapage.h"
#include "storage/salvage.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Pages that an entry can lie on. */
#define WINDOW			(STRATA_MAX_ENTRY_PAGES + 1)

/* Blocks of a tail extent that replaces a lost one, beyond its first pages. */
#define NEW_TAIL_BLOCKS	8

typedef struct LogPage
{
	bool		exists;			/* false: the log ends before it */
	StrataPageRef ref;
	bool		refused;		/* by PostgreSQL */
	bool		dirty;

	/* how it was come to */
	bool		relinked;		/* the page before does not name it */
	bool		closed_wrong;	/* the page before is closed or not, wrongly */
	bool		gap;			/* pages before it are missing */
	BlockNumber lost_block;		/* where the first of them should be */

	PGAlignedBlock copy;
} LogPage;

/* A log page of the shard, found by reading the whole file. */
typedef struct FoundPage
{
	uint32		generation;
	uint32		ordinal;
	StrataPageRef ref;
	bool		refused;
	XLogRecPtr	lsn;
} FoundPage;

/* Bytes of a page that hold no sound entry. */
typedef struct Region
{
	uint32		start;
	uint32		end;
	int64		rows;			/* as its header says, -1: it does not */
	const char *problem;
} Region;

typedef struct Repair
{
	const StrataLogRepair *request;
	Relation	storage;
	int			shard;
	StrataLogPoint first;		/* where the log should start */
	bool		moved;			/* it starts at start instead */
	StrataPageRef start;

	LogPage    *window[WINDOW]; /* the page being looked at, and the next */
	int			carry;			/* pages that a sound entry goes on over */
	char	   *assembled;

	FoundPage  *found;			/* by generation and ordinal; NULL: not read yet */
	Size		nfound;

	/* the generation being walked */
	uint32		generation;
	bool		whole;			/* all of it was seen */
	bool		filled;			/* with new pages */
	StrataPageRef generation_first;
	StrataPageRef last;
	uint64		rows;
	uint64		bytes;

	MemoryContext entry_mcxt;
} Repair;

static inline StrataLogPage *
log_header(LogPage *page)
{
	return strata_page_log(page->copy.data);
}

static inline uint32
page_lower(LogPage *page)
{
	return ((PageHeader) page->copy.data)->pd_lower;
}

static void
report(Repair *repair, StrataLogLossKind kind, uint32 generation, uint32 ordinal,
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

	repair->request->loss(&loss, repair->request->arg);
}

/* ---- pages ---- */

/* Is it a sound page of this log, as far as its header goes? */
static bool
is_log_page(const Repair *repair, Page page, uint64 owner)
{
	StrataLogPage *header = strata_page_log(page);
	uint32		lower = ((PageHeader) page)->pd_lower;

	return owner != 0 && strata_page_matches(page, STRATA_PAGE_LOG, owner) &&
		lower >= STRATA_LOG_PAGE_START && lower == MAXALIGN(lower) &&
		header->shard == (uint32) repair->shard &&
		header->generation != 0 &&
		STRATA_LOG_PAGE_START + MAXALIGN((uint32) header->continuation) <= lower &&
		(header->ordinal != 0 || header->continuation == 0) &&
		((header->flags & STRATA_LOG_PAGE_CLOSED) == 0 || header->next.owner != 0);
}

/* Load the page at ref if it is that page of the log. */
static bool
load_page(Repair *repair, const StrataPageRef *ref, uint32 generation, uint32 ordinal,
		  LogPage *page)
{
	StrataPageState state;

	if (ref->block > STRATA_MAX_BLOCK)
		return false;
	state = strata_page_salvage(repair->storage, ref->block, page->copy.data, NULL);
	if (state == STRATA_PAGE_UNREADABLE || !is_log_page(repair, page->copy.data, ref->owner) ||
		log_header(page)->generation != generation || log_header(page)->ordinal != ordinal)
		return false;

	page->exists = true;
	page->ref = *ref;
	page->refused = page->dirty = state == STRATA_PAGE_REFUSED;
	if (page->refused)
	{
		/* What is wrong may be what only PostgreSQL looks at. */
		PGAlignedBlock raw = page->copy;
		uint32		lower = page_lower(page);

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
	const FoundPage *x = a;
	const FoundPage *y = b;

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

/* Of the same place, as after a write that went to another block: the best first. */
static int
compare_copies(const void *a, const void *b)
{
	const FoundPage *x = a;
	const FoundPage *y = b;
	int			cmp = compare_found(a, b);

	if (cmp != 0)
		return cmp;
	if (x->refused != y->refused)
		return x->refused ? 1 : -1;
	return x->lsn > y->lsn ? -1 : x->lsn < y->lsn;
}

/* All pages of the shard's log that the file holds, merged ones left out. */
static void
read_file(Repair *repair)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(repair->storage);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	Size		max = 64;
	PGAlignedBlock copy;

	repair->found = palloc(max * sizeof(FoundPage));
	for (BlockNumber block = STRATA_FIRST_EXTENT_BLOCK(repair->request->store->nshards);
		 block < nblocks; block++)
	{
		StrataLogPage *header = strata_page_log(copy.data);
		StrataPageState state;
		uint64		owner;
		FoundPage  *found;

		state = strata_page_salvage(repair->storage, block, copy.data, strategy);
		if (state == STRATA_PAGE_UNREADABLE)
			continue;
		owner = PageIsNew(copy.data) ||
						((PageHeader) copy.data)->pd_special != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE ?
					0 :
			strata_page_special(copy.data)->owner;
		if (!is_log_page(repair, copy.data, owner) ||
			header->generation < repair->first.generation)
			continue;
		if (repair->nfound == max)
		{
			max *= 2;
			repair->found = repalloc_huge(repair->found, max * sizeof(FoundPage));
		}
		found = &repair->found[repair->nfound++];
		found->generation = header->generation;
		found->ordinal = header->ordinal;
		found->ref.owner = owner;
		found->ref.block = block;
		found->ref.unused = 0;
		found->refused = state == STRATA_PAGE_REFUSED;
		found->lsn = PageGetLSN(copy.data);
	}
	qsort(repair->found, repair->nfound, sizeof(FoundPage), compare_copies);
	FreeAccessStrategy(strategy);
}

/* The first page of the log at or after a place; NULL: none. */
static const FoundPage *
find_from(Repair *repair, uint32 generation, uint32 ordinal)
{
	FoundPage	wanted = {.generation = generation, .ordinal = ordinal};
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
next_place(Repair *repair, LogPage *page, bool closed, uint32 *generation, uint32 *ordinal)
{
	if (page == NULL)
	{
		*generation = repair->first.generation;
		*ordinal = 0;
		return;
	}
	*generation = log_header(page)->generation + (closed ? 1 : 0);
	*ordinal = closed ? 0 : log_header(page)->ordinal + 1;
}

static bool
is_closed(LogPage *page)
{
	return page != NULL && (log_header(page)->flags & STRATA_LOG_PAGE_CLOSED) != 0;
}

/*
 * Does the log end with a page that names no next one?  Should writers have
 * gone on since it was copied, it is copied again.
 */
static bool
ends_with(Repair *repair, LogPage *page)
{
	StrataShardData data;

	if (!strata_shard_read(repair->storage, repair->shard, &data))
		return true;
	if (data.tail.owner == page->ref.owner && data.tail.block == page->ref.block)
		return true;
	(void) load_page(repair, &page->ref, log_header(page)->generation,
					 log_header(page)->ordinal, page);
	return false;
}

/* Is page the last of its generation, by the generation's summary? */
static bool
last_by_summary(Repair *repair, LogPage *page)
{
	LogPage		first;
	LogPage    *summary = page;

	if (log_header(page)->ordinal != 0)
	{
		const FoundPage *found = find_from(repair, log_header(page)->generation, 0);

		if (found == NULL ||
			!load_page(repair, &found->ref, log_header(page)->generation, 0, &first))
			return false;
		summary = &first;
	}
	return log_header(summary)->sealed_at != 0 &&
		memcmp(&log_header(summary)->last, &page->ref, sizeof(StrataPageRef)) == 0;
}

/* Find the page after page; NULL: the first. */
static void
find_next(Repair *repair, LogPage *page, LogPage *next)
{
	bool		closed = is_closed(page);
	StrataPageRef ref;
	uint32		generation;
	uint32		ordinal;
	const FoundPage *found;

	memset(next, 0, offsetof(LogPage, copy));
	if (page != NULL && !page->exists)
		return;
	ref = page == NULL ? repair->first.page : log_header(page)->next;
	if (page != NULL && ref.owner == 0)
	{
		if (ends_with(repair, page))
			return;
		ref = log_header(page)->next;
		closed = is_closed(page);
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
static void
write_page(Repair *repair, LogPage *page, const StrataShardData *shard)
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
finish_generation(Repair *repair, const StrataPageRef *ref, bool filled)
{
	LogPage		copy;
	LogPage    *page = repair->window[0];
	StrataLogPage *header;
	bool		in_window = memcmp(&page->ref, &repair->generation_first, sizeof(StrataPageRef)) == 0;

	if (!in_window)
		page = &copy;
	if (!repair->whole ||
		(!in_window && !load_page(repair, &repair->generation_first, repair->generation, 0, page)))
		return;
	header = log_header(page);
	if (header->sealed_at != 0 && header->generation_rows == repair->rows &&
		header->generation_bytes == repair->bytes &&
		memcmp(&header->last, &repair->last, sizeof(StrataPageRef)) == 0 &&
		memcmp(&header->next_generation, ref, sizeof(StrataPageRef)) == 0)
		return;

	if (!repair->filled && !filled)
		report(repair, STRATA_LOSS_LINK, repair->generation, 0, page->ref.block, 0, 0, 0,
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
		write_page(repair, page, NULL);
}

/* The walk has come to this page. */
static void
note_page(Repair *repair, LogPage *page, bool filled)
{
	StrataLogPage *header = log_header(page);

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
missing_rows(Repair *repair, uint32 generation, LogPage *before, LogPage *next,
			 uint64 *base_rows, uint64 *base_bytes, int64 *rows, int64 *bytes)
{
	uint64		end_rows;
	uint64		end_bytes;

	*base_rows = *base_bytes = 0;
	*rows = *bytes = 0;
	if (before != NULL && log_header(before)->generation == generation)
	{
		*base_rows = log_header(before)->rows_before + log_header(before)->rows;
		*base_bytes = log_header(before)->bytes_before + log_header(before)->bytes;
	}
	if (next->exists && log_header(next)->generation == generation)
	{
		end_rows = log_header(next)->rows_before;
		end_bytes = log_header(next)->bytes_before;
	}
	else
	{
		LogPage		first;

		if (before == NULL || log_header(before)->generation != generation || !repair->whole ||
			!load_page(repair, &repair->generation_first, generation, 0, &first) ||
			log_header(&first)->sealed_at == 0)
			return false;
		end_rows = log_header(&first)->generation_rows;
		end_bytes = log_header(&first)->generation_bytes;
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
static void
fill_gap(Repair *repair, LogPage *before, LogPage *next)
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

	if (!strata_shard_read(repair->storage, repair->shard, &shard))
		strata_page_mismatch(repair->storage, STRATA_SHARD_BLOCK(repair->shard), "a shard page");
	next_place(repair, before, is_closed(before), &first_generation, &first_ordinal);
	last_generation = next->exists ? log_header(next)->generation :
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
			npages += log_header(next)->ordinal - from;
		if (generation == last_generation && next->exists && log_header(next)->ordinal == 0)
			break;
		known = missing_rows(repair, generation, before, next, &base_rows, &base_bytes,
							 &lost_rows, &lost_bytes) &&
			known;
		rows += lost_rows;
		bytes += lost_bytes;
	}
	report(repair, STRATA_LOSS_PAGES, first_generation, first_ordinal, next->lost_block, 0,
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
		LogPage		page = {.exists = true};
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
		write_page(repair, &page, NULL);
		note_page(repair, &page, true);

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
		log_header(before)->next = first;
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
		write_page(repair, before, shard_changed ? &shard : NULL);
}

/* ---- entries ---- */

typedef struct CheckRows
{
	Repair	   *repair;
	const StrataEntryHeader *entry;
	const char *problem;
} CheckRows;

/* StrataAction */
static void
check_rows(void *arg)
{
	CheckRows  *check = (CheckRows *) arg;

	/* An ALTER TABLE rolled back with it may have shaped its rows. */
	if (strata_xid_outcome(check->entry->fxid, check->entry->flags) != STRATA_XID_ABORTED &&
		check->entry->type == STRATA_ENTRY_ROWS)
		check->problem = strata_entry_check_rows(check->repair->request->store,
												 check->repair->shard, check->entry);
}

/*
 * Collect an entry that goes on over the next pages; NULL if it does not.
 * *npages receives how many these are.
 */
static const StrataEntryHeader *
assemble_entry(Repair *repair, const StrataEntryHeader *entry, uint32 on_page, int *npages)
{
	uint32		length = entry->length;
	uint32		done = on_page;

	if (page_lower(repair->window[0]) != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE)
		return NULL;
	memcpy(repair->assembled, entry, on_page);
	for (*npages = 1; *npages < WINDOW; (*npages)++)
	{
		LogPage    *page = repair->window[*npages];
		uint32		part = Min(length - done, STRATA_LOG_PAGE_CAPACITY);

		if (!page->exists || page->gap || is_closed(repair->window[*npages - 1]) ||
			log_header(page)->continuation != part ||
			(log_header(page)->flags & STRATA_LOG_PAGE_ORPHAN) != 0)
			return NULL;
		memcpy(repair->assembled + done, page->copy.data + STRATA_LOG_PAGE_START, part);
		done += part;
		if (done == length)
			return (const StrataEntryHeader *) repair->assembled;
	}
	return NULL;
}

/*
 * Check the entry at offset of the page, its rows too if asked for.  Returns
 * NULL if it is sound, and then itself, its bytes on this page and the number
 * of pages it goes on over; else what is wrong.
 */
static const char *
check_entry(Repair *repair, uint32 offset, bool rows, const StrataEntryHeader **out,
			uint32 *on_page, int *npages)
{
	LogPage    *page = repair->window[0];
	uint32		left = page_lower(page) - offset;
	StrataEntryHeader *header = (StrataEntryHeader *) (page->copy.data + offset);
	const StrataEntryHeader *entry = header;
	const char *problem;

	if (left < sizeof(StrataEntryHeader))
		return "entry header is cut off";

	/*
	 * Freezing's flags have no checksum but the page's.  While clog knows the
	 * transaction they say nothing that it does not.
	 */
	if (page->refused && header->type != STRATA_ENTRY_LOST &&
		!TransactionIdPrecedes((TransactionId) header->fxid, strata_oldest_clog_xid()))
		header->flags &= ~STRATA_ENTRY_FROZEN_MASK;
	problem = strata_entry_check_header(entry);
	if (problem != NULL)
		return problem;
	*npages = 0;
	*on_page = MAXALIGN(entry->length);
	if (entry->length > left)
	{
		*on_page = left;
		entry = assemble_entry(repair, entry, left, npages);
		if (entry == NULL)
			return "entry does not go on on the next page";
	}
	problem = strata_entry_check(entry, entry->length);
	if (problem != NULL)
		return problem;

	if (rows)
	{
		CheckRows	check = {.repair = repair, .entry = entry};
		MemoryContext old_mcxt = MemoryContextSwitchTo(repair->entry_mcxt);

		problem = strata_attempt(check_rows, &check);
		if (problem == NULL)
			problem = check.problem;
		MemoryContextSwitchTo(old_mcxt);
		if (problem != NULL)
			problem = pstrdup(problem);
		MemoryContextReset(repair->entry_mcxt);
		if (problem != NULL)
			return problem;
	}
	*out = entry;
	return NULL;
}

/* Where the entry after the damaged one at offset starts. */
static uint32
next_entry(Repair *repair, uint32 offset)
{
	LogPage    *page = repair->window[0];
	uint32		lower = page_lower(page);
	const StrataEntryHeader *entry = (const StrataEntryHeader *) (page->copy.data + offset);
	const StrataEntryHeader *next;
	uint32		on_page;
	int			npages;

	if (lower - offset >= sizeof(StrataEntryHeader) &&
		strata_entry_check_header(entry) == NULL && entry->length < lower - offset &&
		check_entry(repair, offset + MAXALIGN(entry->length), false, &next, &on_page, &npages) == NULL)
		return offset + MAXALIGN(entry->length);
	for (offset += MAXALIGN(sizeof(StrataEntryHeader)); offset < lower; offset += MAXIMUM_ALIGNOF)
	{
		if (check_entry(repair, offset, false, &next, &on_page, &npages) == NULL)
			return offset;
	}
	return lower;
}

/* The rows that the header at the start of a region tells of; -1: none. */
static int64
region_rows(LogPage *page, uint32 start)
{
	const StrataEntryHeader *entry = (const StrataEntryHeader *) (page->copy.data + start);

	if (page_lower(page) - start < sizeof(StrataEntryHeader) ||
		strata_entry_check_header(entry) != NULL)
		return -1;
	switch (entry->type)
	{
		case STRATA_ENTRY_ROWS:
			return (int64) entry->rows + entry->tombstones;
		case STRATA_ENTRY_ROW_GROUP:
			return (int64) entry->rows;
		case STRATA_ENTRY_EXTENT:
			return 0;
	}
	return -1;
}

/*
 * Tell of what is damaged on a page, and make it LOST entries.  missing: the
 * rows that the page's header counts and its sound entries do not.
 */
static void
set_aside_regions(Repair *repair, LogPage *page, const Region *regions, int nregions,
				  int64 missing)
{
	StrataLogPage *header = log_header(page);
	int64		told = 0;
	bool		each = true;

	for (int i = 0; i < nregions; i++)
	{
		each = each && regions[i].rows >= 0;
		told += regions[i].rows;
	}
	each = each && told == missing;
	if (missing < 0 || missing > PG_UINT32_MAX)
		missing = -1;

	for (int i = 0; i < nregions; i++)
	{
		const Region *region = &regions[i];
		uint32		length = region->end - region->start;
		int64 rows = each ? region->rows : nregions == 1 ? missing :
														   -1;

		report(repair, STRATA_LOSS_ENTRY, header->generation, header->ordinal, page->ref.block,
			   region->start, rows, length, region->problem);
		page->dirty = true;
		if (length < sizeof(StrataEntryHeader))
			((PageHeader) page->copy.data)->pd_lower = region->start;
		else
			strata_entry_set_lost((StrataEntryHeader *) (page->copy.data + region->start), length,
								  (uint32) (each ? region->rows : i == 0 ? Max(missing, 0) :
																		   0));
	}
}

/*
 * Go through the entries of the first page of the window.
 */
static void
repair_page(Repair *repair)
{
	LogPage    *page = repair->window[0];
	StrataLogPage *header = log_header(page);
	uint32		offset = STRATA_LOG_PAGE_START + MAXALIGN((uint32) header->continuation);
	Region		regions[STRATA_LOG_PAGE_CAPACITY / sizeof(StrataEntryHeader) + 1];
	int			nregions = 0;
	uint64		rows = 0;

	if (repair->carry > 0)
		repair->carry--;
	else if (header->continuation > 0 && (header->flags & STRATA_LOG_PAGE_ORPHAN) == 0)
	{
		header->flags |= STRATA_LOG_PAGE_ORPHAN;
		page->dirty = true;
	}

	while (offset < page_lower(page))
	{
		const StrataEntryHeader *entry;
		uint32		on_page;
		int			npages;
		const char *problem;

		CHECK_FOR_INTERRUPTS();
		problem = check_entry(repair, offset, true, &entry, &on_page, &npages);
		if (problem != NULL)
		{
			Region	   *region = &regions[nregions++];

			region->start = offset;
			region->problem = problem;
			region->rows = region_rows(page, offset);
			offset = region->end = next_entry(repair, offset);
			continue;
		}

		rows += (uint64) entry->rows + entry->tombstones;
		if (entry->type == STRATA_ENTRY_ROW_GROUP)
		{
			StrataLogGroup group = {
				.shard = repair->shard,
				.generation = header->generation,
				.ordinal = header->ordinal,
				.page = page->ref,
				.offset = offset,
				.fxid = entry->fxid,
				.flags = entry->flags,
				.ref = *strata_entry_group(entry)};

			rows += group.ref.lost;
			repair->request->group(&group, repair->request->arg);
		}
		repair->carry = npages;
		offset += on_page;
	}

	if (nregions > 0)
		set_aside_regions(repair, page, regions, nregions, (int64) (header->rows - rows));
	else if (page->refused)
		report(repair, STRATA_LOSS_PAGE, header->generation, header->ordinal, page->ref.block,
			   0, 0, 0, "page is not valid, but all its entries are");
}

/* ---- driver ---- */

/* What is wrong between the first page of the window and the next? */
static void
repair_link(Repair *repair)
{
	LogPage    *page = repair->window[0];
	LogPage    *next = repair->window[1];
	StrataLogPage *header = log_header(page);

	if (next->gap)
	{
		fill_gap(repair, page, next);
		return;
	}
	if (!next->relinked && !next->closed_wrong)
		return;
	report(repair, STRATA_LOSS_LINK, header->generation, header->ordinal, page->ref.block, 0, 0, 0,
		   next->relinked ? psprintf("next page is block %u", next->ref.block) :
							"end of the generation is in the wrong place");
	header->next = next->ref;
	if (next->closed_wrong)
		header->flags ^= STRATA_LOG_PAGE_CLOSED;
	page->dirty = true;
}

bool
strata_log_repair(const StrataLogRepair *request, int shard, const StrataShardState *state,
				  StrataPageRef *start)
{
	Repair		repair = {.request = request, .storage = request->storage, .shard = shard};
	MemoryContext mcxt;
	MemoryContext old_mcxt;

	if (!strata_log_start(request->storage, shard, state, &repair.first))
		return false;

	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata log repair", ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(mcxt);
	repair.entry_mcxt = AllocSetContextCreate(mcxt, "strata log repair entry",
											  ALLOCSET_DEFAULT_SIZES);
	repair.assembled = palloc(STRATA_MAX_ENTRY_SIZE);
	for (int i = 0; i < WINDOW; i++)
		repair.window[i] = palloc(sizeof(LogPage));
	for (int i = 0; i < WINDOW; i++)
		find_next(&repair, i == 0 ? NULL : repair.window[i - 1], repair.window[i]);

	if (repair.window[0]->gap)
		fill_gap(&repair, NULL, repair.window[0]);
	else if (repair.window[0]->relinked)
	{
		report(&repair, STRATA_LOSS_LINK, repair.first.generation, 0,
			   repair.window[0]->ref.block, 0, 0, 0, "log starts in the wrong place");
		repair.moved = true;
		repair.start = repair.window[0]->ref;
	}

	while (repair.window[0]->exists)
	{
		LogPage    *page = repair.window[0];

		note_page(&repair, page, false);
		repair_page(&repair);
		repair_link(&repair);
		if (page->dirty && !request->dry_run)
			write_page(&repair, page, NULL);

		memmove(&repair.window[0], &repair.window[1], (WINDOW - 1) * sizeof(LogPage *));
		repair.window[WINDOW - 1] = page;
		find_next(&repair, repair.window[WINDOW - 2], page);
	}

	*start = repair.start;
	MemoryContextSwitchTo(old_mcxt);
	MemoryContextDelete(mcxt);
	return repair.moved && !request->dry_run;
}

void
strata_log_replace_group(Relation storage, const StrataLogGroup *group, const StrataGroupRef *ref,
						 uint16 natts)
{
	Buffer		buffer = strata_page_read(storage, group->page.block, STRATA_PAGE_LOG,
										  group->page.owner, BUFFER_LOCK_EXCLUSIVE, NULL,
										  "a page of a log");
	GenericXLogState *record = GenericXLogStart(storage);
	Page		page = GenericXLogRegisterBuffer(record, buffer, GENERIC_XLOG_FULL_IMAGE);
	StrataEntryHeader *entry = (StrataEntryHeader *) (page + group->offset);

	Assert(entry->type == STRATA_ENTRY_ROW_GROUP);
	if (ref == NULL)
		strata_entry_set_lost(entry, entry->length, group->ref.rows + group->ref.lost);
	else
	{
		entry->rows = ref->rows;
		entry->natts = natts;
		memcpy((char *) entry + MAXALIGN(sizeof(StrataEntryHeader)), ref, sizeof(*ref));
		strata_entry_set_crc(entry);
	}
	GenericXLogFinish(record);
	UnlockReleaseBuffer(buffer);
	STRATA_PAUSE("repair-after-page");
}
