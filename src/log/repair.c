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
 * A shard page is made anew from what the pages of its log say, when it cannot
 * be read, or they say something else, or an extent it names is not its own.
 * Where the page that it names as start or tail is missing, it is right, and
 * names the new page afterwards.
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
#include "log/repair_private.h"
#include "log/visibility.h"
#include "pause.h"
#include "storage/salvage.h"

#include "access/generic_xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Bytes of a page that hold no sound entry. */
typedef struct Region
{
	uint32		start;
	uint32		end;
	int64		rows;			/* as its header says, -1: it does not */
	const char *problem;
} Region;

/* ---- entries ---- */

typedef struct CheckRows
{
	StrataRepairWalk	   *repair;
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
assemble_entry(StrataRepairWalk *repair, const StrataEntryHeader *entry, uint32 on_page, int *npages)
{
	uint32		length = entry->length;
	uint32		done = on_page;

	if (strata_repair_lower(repair->window[0]) != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE)
		return NULL;
	memcpy(repair->assembled, entry, on_page);
	for (*npages = 1; *npages < STRATA_REPAIR_WINDOW; (*npages)++)
	{
		StrataRepairPage *page = repair->window[*npages];
		uint32		part = Min(length - done, STRATA_LOG_PAGE_CAPACITY);

		if (!page->exists || page->gap || strata_repair_closed(repair->window[*npages - 1]) ||
			strata_repair_header(page)->continuation != part ||
			(strata_repair_header(page)->flags & STRATA_LOG_PAGE_ORPHAN) != 0)
			return NULL;
		memcpy(repair->assembled + done, page->copy.data + STRATA_LOG_PAGE_START, part);
		done += part;
		if (done == length)
			return (const StrataEntryHeader *) repair->assembled;
	}
	return NULL;
}

/*
 * Check the entry at offset of the page but for its rows.  Returns NULL if it
 * is sound, and then itself, its bytes on this page and the number of pages it
 * goes on over; else what is wrong.
 */
static const char *
check_bytes(StrataRepairWalk *repair, uint32 offset, const StrataEntryHeader **out,
			uint32 *on_page, int *npages)
{
	uint32		left = strata_repair_lower(repair->window[0]) - offset;
	const StrataEntryHeader *entry =
		(const StrataEntryHeader *) (repair->window[0]->copy.data + offset);
	const char *problem;

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
	*out = entry;
	return NULL;
}

/*
 * Check the entry at offset of the page, its rows too if asked for.  Returns
 * as check_bytes.
 */
static const char *
check_entry(StrataRepairWalk *repair, uint32 offset, bool rows, const StrataEntryHeader **out,
			uint32 *on_page, int *npages)
{
	StrataRepairPage *page = repair->window[0];
	StrataEntryHeader *header = (StrataEntryHeader *) (page->copy.data + offset);
	const StrataEntryHeader *entry;
	uint16		flags;
	const char *problem;

	if (strata_repair_lower(page) - offset < sizeof(StrataEntryHeader))
		return "entry header is cut off";

	/*
	 * Freezing's flags have no checksum but the page's.  While clog knows the
	 * transaction they say nothing that it does not.
	 */
	flags = header->flags;
	if (page->refused && header->type != STRATA_ENTRY_LOST &&
		!TransactionIdPrecedes((TransactionId) header->fxid, strata_oldest_clog_xid()))
		header->flags &= ~STRATA_ENTRY_FROZEN_MASK;
	problem = check_bytes(repair, offset, &entry, on_page, npages);
	if (problem != NULL)
	{
		/* It may be in the middle of another entry, of which this is data. */
		header->flags = flags;
		return problem;
	}
	if (entry->type == STRATA_ENTRY_EXTENT)
	{
		const StrataExtent *extent = strata_entry_extent(entry);
		BlockNumber nblocks = repair->request->dry_run ?
								  RelationGetNumberOfBlocks(repair->storage) :
								  repair->request->nblocks;

		/* Of a file cut short: others get these blocks. */
		if ((uint64) extent->block + extent->nblocks > nblocks)
			return "extent lies beyond the end of the file";
	}

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
next_entry(StrataRepairWalk *repair, uint32 offset)
{
	StrataRepairPage *page = repair->window[0];
	uint32		lower = strata_repair_lower(page);
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
region_rows(StrataRepairPage *page, uint32 start)
{
	const StrataEntryHeader *entry = (const StrataEntryHeader *) (page->copy.data + start);

	if (strata_repair_lower(page) - start < sizeof(StrataEntryHeader) ||
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
 * rows that the page's header counts and its sound entries do not.  Returns the
 * rows that the LOST entries count.
 */
static uint64
set_aside_regions(StrataRepairWalk *repair, StrataRepairPage *page, const Region *regions, int nregions,
				  int64 missing)
{
	StrataLogPage *header = strata_repair_header(page);
	int64		told = 0;
	uint64		counted = 0;
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

		strata_repair_report(repair, STRATA_LOSS_ENTRY, header->generation, header->ordinal, page->ref.block,
							 region->start, rows, length, region->problem);
		page->dirty = true;
		if (length < sizeof(StrataEntryHeader))
			((PageHeader) page->copy.data)->pd_lower = region->start;
		else
		{
			uint32		lost = (uint32) (each ? region->rows : i == 0 ? Max(missing, 0) :
																		0);

			strata_entry_set_lost((StrataEntryHeader *) (page->copy.data + region->start), length,
								  lost);
			counted += lost;
		}
	}
	return counted;
}

/*
 * The counts in the header of a page that PostgreSQL refuses may be what is
 * wrong: they follow from the page before, and from its entries.
 */
static void
correct_rows_before(StrataRepairWalk *repair, StrataRepairPage *page)
{
	StrataLogPage *header = strata_repair_header(page);

	if (!page->refused || repair->filled)
		return;
	if (header->ordinal == 0)
		header->rows_before = header->bytes_before = 0;
	else if (header->generation == repair->generation)
	{
		header->rows_before = repair->rows;
		header->bytes_before = repair->bytes;
	}
}

/*
 * Go through the entries of the first page of the window.
 */
static void
repair_page(StrataRepairWalk *repair)
{
	StrataRepairPage *page = repair->window[0];
	StrataLogPage *header = strata_repair_header(page);
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

	while (offset < strata_repair_lower(page))
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
	{
		header->rows = rows + set_aside_regions(repair, page, regions, nregions,
												(int64) (header->rows - rows));
		strata_repair_note(repair, page, false);
	}
	else if (page->refused || header->rows != rows)
	{
		page->dirty = true;
		header->rows = rows;
		strata_repair_note(repair, page, false);
		strata_repair_report(repair, STRATA_LOSS_PAGE, header->generation, header->ordinal, page->ref.block,
							 0, 0, 0, "page is not valid, but all its entries are");
	}
}

/* ---- driver ---- */

/* What is wrong between the first page of the window and the next? */
static void
repair_link(StrataRepairWalk *repair)
{
	StrataRepairPage *page = repair->window[0];
	StrataRepairPage *next = repair->window[1];
	StrataLogPage *header = strata_repair_header(page);

	if (next->gap)
	{
		strata_repair_fill(repair, page, next);
		return;
	}
	if (!next->relinked && !next->closed_wrong)
		return;
	strata_repair_report(repair, STRATA_LOSS_LINK, header->generation, header->ordinal, page->ref.block, 0, 0, 0,
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
	StrataRepairWalk repair = {.request = request, .storage = request->storage, .shard = shard};
	MemoryContext mcxt;
	MemoryContext old_mcxt;

	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata log repair", ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(mcxt);
	if (!strata_repair_start(&repair, state))
	{
		strata_repair_totals(&repair, state);
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextDelete(mcxt);
		return false;
	}
	repair.entry_mcxt = AllocSetContextCreate(mcxt, "strata log repair entry",
											  ALLOCSET_DEFAULT_SIZES);
	repair.assembled = palloc(STRATA_MAX_ENTRY_SIZE);
	for (int i = 0; i < STRATA_REPAIR_WINDOW; i++)
		repair.window[i] = palloc(sizeof(StrataRepairPage));
	for (int i = 0; i < STRATA_REPAIR_WINDOW; i++)
		strata_repair_next(&repair, i == 0 ? NULL : repair.window[i - 1], repair.window[i]);

	if (repair.window[0]->gap)
		strata_repair_fill(&repair, NULL, repair.window[0]);
	else if (repair.window[0]->relinked)
	{
		strata_repair_report(&repair, STRATA_LOSS_LINK, repair.first.generation, 0,
							 repair.window[0]->ref.block, 0, 0, 0, "log starts in the wrong place");
		repair.moved = true;
		repair.start = repair.window[0]->ref;
	}

	while (repair.window[0]->exists)
	{
		StrataRepairPage *page = repair.window[0];

		correct_rows_before(&repair, page);
		strata_repair_note(&repair, page, false);
		repair_page(&repair);
		repair_link(&repair);
		if (page->dirty && !request->dry_run)
			strata_repair_write(&repair, page, NULL);

		memmove(&repair.window[0], &repair.window[1], (STRATA_REPAIR_WINDOW - 1) * sizeof(StrataRepairPage *));
		repair.window[STRATA_REPAIR_WINDOW - 1] = page;
		strata_repair_next(&repair, repair.window[STRATA_REPAIR_WINDOW - 2], page);
	}

	strata_repair_finish(&repair, state);
	strata_repair_totals(&repair, state);

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
