/*-------------------------------------------------------------------------
 *
 * walk.c
 *	  Translates the chain of log pages of a shard into entries, and the first
 *	  pages of its generations into a list of them.
 *
 * Locks: one page at a time, share mode, for as long as it takes to copy it.
 * Everything is parsed from the copy.  What keeps the pages from being given
 * to somebody else is not a lock: they are pending for a version of the
 * shard's manifest row that the caller's snapshot still needs, or the caller
 * keeps sweep out.
 *
 * Where a walk ends: an appender changes all pages of a link in one record and
 * under all their locks.  So a copy shows either a page without what was
 * linked to it, and the log ends there for this walk; or the first part of an
 * entry together with the reference to the page that holds the rest, which is
 * complete by the time its lock can be had.  A part without that reference is
 * damage, never a race.  An entry may later begin in bytes that a copy showed
 * unused, so a walk that is resumed reads the page again.
 *
 * Every page is checked against what led there (owner, shard, generation,
 * ordinal), every entry before it is returned.
 *
 * IDENTIFICATION
 *	  src/log/walk.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/walk.h"

#include "miscadmin.h"
#include "storage/metapage.h"
#include "utils/memutils.h"
#include "utils/rel.h"

struct StrataLogWalk
{
	Relation	storage;
	int			shard;
	uint32		until_generation;	/* 0: no limit */
	StrataLogPoint point;		/* generation 0: what the page says */
	uint64		bytes;
	StrataLogPageCallback on_page;
	void	   *on_page_arg;
	StrataPageRef reported;		/* last page that on_page was called for */

	bool		loaded;			/* copy holds point.page */
	uint32		lower;			/* end of the copy's data */
	PGAlignedBlock copy;

	MemoryContext mcxt;
	char	   *assembled;		/* STRATA_MAX_ENTRY_SIZE, made when needed */
};

static void log_damaged(Relation storage, int shard, BlockNumber block, uint32 offset,
						const char *what) pg_attribute_noreturn();
static void walk_damaged(const StrataLogWalk *walk, const char *what) pg_attribute_noreturn();
static Buffer log_page_read(Relation storage, int shard, const StrataPageRef *ref);
static void walk_init(StrataLogWalk *walk, Relation storage, int shard,
					  const StrataLogPoint *from, uint32 until_generation);
static void walk_load(StrataLogWalk *walk);
static void walk_go_on(StrataLogWalk *walk);
static const StrataEntryHeader *walk_parse(StrataLogWalk *walk);
static const StrataEntryHeader *walk_assemble(StrataLogWalk *walk);

static void
log_damaged(Relation storage, int shard, BlockNumber block, uint32 offset, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("log of shard %d in relation \"%s\" is damaged at block %u, offset %u: %s",
					shard, RelationGetRelationName(storage), block, offset, what)));
}

static void
walk_damaged(const StrataLogWalk *walk, const char *what)
{
	log_damaged(walk->storage, walk->shard, walk->point.page.block, walk->point.offset, what);
}

/* A log page, locked in share mode. */
static Buffer
log_page_read(Relation storage, int shard, const StrataPageRef *ref)
{
	Buffer		buffer = strata_page_try_read(storage, ref->block, STRATA_PAGE_LOG, ref->owner,
											  BUFFER_LOCK_SHARE, NULL);

	if (!BufferIsValid(buffer))
	{
		char		object[64];

		snprintf(object, sizeof(object), "a page of the log of shard %d", shard);
		strata_page_mismatch(storage, ref->block, object);
	}
	return buffer;
}

static void
walk_init(StrataLogWalk *walk, Relation storage, int shard, const StrataLogPoint *from,
		  uint32 until_generation)
{
	walk->storage = storage;
	walk->shard = shard;
	walk->until_generation = until_generation;
	walk->point = *from;
	walk->bytes = 0;
	walk->on_page = NULL;
	walk->on_page_arg = NULL;
	memset(&walk->reported, 0, sizeof(walk->reported));
	walk->loaded = false;
	walk->lower = 0;
	walk->mcxt = CurrentMemoryContext;
	walk->assembled = NULL;
}

StrataLogWalk *
strata_log_walk_begin(StrataStore *store, Relation storage, int shard,
					  const StrataLogPoint *from, uint32 until_generation)
{
	StrataLogWalk *walk = palloc(sizeof(StrataLogWalk));

	Assert(shard >= 0 && shard < STRATA_MAX_SHARDS);
	walk_init(walk, storage, shard, from, until_generation);
	return walk;
}

void
strata_log_walk_on_page(StrataLogWalk *walk, StrataLogPageCallback callback, void *arg)
{
	walk->on_page = callback;
	walk->on_page_arg = arg;
}

uint64
strata_log_walk_bytes(StrataLogWalk *walk)
{
	return walk->bytes;
}

void
strata_log_walk_point(StrataLogWalk *walk, StrataLogPoint *point)
{
	*point = walk->point;
}

void
strata_log_walk_end(StrataLogWalk *walk)
{
	if (walk->assembled != NULL)
		pfree(walk->assembled);
	pfree(walk);
}

/*
 * Copy the page the walk stands on, and check that it is the one expected and
 * that the walk's offset is a place where entries may start.
 */
static void
walk_load(StrataLogWalk *walk)
{
	StrataLogPoint *point = &walk->point;
	StrataLogPage *header = strata_page_log(walk->copy.data);
	Buffer		buffer;
	Page		page;

	CHECK_FOR_INTERRUPTS();

	buffer = log_page_read(walk->storage, walk->shard, &point->page);
	page = BufferGetPage(buffer);
	walk->lower = ((PageHeader) page)->pd_lower;
	if (walk->lower >= STRATA_LOG_PAGE_START)
		memcpy(walk->copy.data, page, walk->lower);
	UnlockReleaseBuffer(buffer);
	walk->bytes += BLCKSZ;

	if (walk->lower < STRATA_LOG_PAGE_START || walk->lower != MAXALIGN(walk->lower))
		walk_damaged(walk, "page has an impossible length");
	if (header->shard != (uint32) walk->shard)
		walk_damaged(walk, "page belongs to another shard");
	if (point->generation == 0)
	{
		point->generation = header->generation;
		point->ordinal = header->ordinal;
	}
	if (header->generation != point->generation || header->ordinal != point->ordinal)
		walk_damaged(walk, psprintf("page is number %u of generation %u, expected was number %u of generation %u",
									header->ordinal, header->generation,
									point->ordinal, point->generation));
	if (header->ordinal == 0 && header->continuation != 0)
		walk_damaged(walk, "an entry continues over the start of a generation");
	if ((header->flags & STRATA_LOG_PAGE_CLOSED) != 0 && header->next.owner == 0)
		walk_damaged(walk, "page is closed but has no successor");
	if ((header->flags & STRATA_LOG_PAGE_ORPHAN) != 0 && point->offset == STRATA_LOG_PAGE_START)
		point->offset += MAXALIGN((uint32) header->continuation);
	if (point->offset != MAXALIGN(point->offset) ||
		point->offset < STRATA_LOG_PAGE_START + MAXALIGN((uint32) header->continuation) ||
		point->offset > walk->lower)
		walk_damaged(walk, "no entry can start there");
	walk->loaded = true;

	if (walk->on_page != NULL &&
		(walk->reported.owner != point->page.owner || walk->reported.block != point->page.block))
	{
		walk->reported = point->page;
		walk->on_page(&point->page, header, walk->on_page_arg);
	}
}

/* Step from the page in the copy to the one it names as next. */
static void
walk_go_on(StrataLogWalk *walk)
{
	StrataLogPage *header = strata_page_log(walk->copy.data);
	StrataLogPoint *point = &walk->point;

	point->page = header->next;
	if (header->flags & STRATA_LOG_PAGE_CLOSED)
	{
		point->generation = header->generation + 1;
		point->ordinal = 0;
	}
	else
		point->ordinal = header->ordinal + 1;
	point->offset = STRATA_LOG_PAGE_START;
	walk->loaded = false;
}

/*
 * Collect the entry that starts at the walk's offset and continues on the
 * next page or two.  Leaves the walk on the last of them, after the entry.
 */
static const StrataEntryHeader *
walk_assemble(StrataLogWalk *walk)
{
	StrataLogPage *header = strata_page_log(walk->copy.data);
	StrataEntryHeader *entry;
	uint32		done = walk->lower - walk->point.offset;

	if (walk->lower != BLCKSZ - STRATA_PAGE_SPECIAL_SIZE)
		walk_damaged(walk, "entry ends with the page's data");
	if (walk->assembled == NULL)
		walk->assembled = MemoryContextAlloc(walk->mcxt, STRATA_MAX_ENTRY_SIZE);
	entry = (StrataEntryHeader *) walk->assembled;
	memcpy(entry, walk->copy.data + walk->point.offset, done);

	while (done < entry->length)
	{
		uint32		part = Min(entry->length - done, STRATA_LOG_PAGE_CAPACITY);

		if (header->next.owner == 0 || (header->flags & STRATA_LOG_PAGE_CLOSED) != 0)
			walk_damaged(walk, "entry has no continuation");
		walk_go_on(walk);
		walk->point.offset = STRATA_LOG_PAGE_START + MAXALIGN(part);
		walk_load(walk);
		if (header->continuation != part || (header->flags & STRATA_LOG_PAGE_ORPHAN) != 0)
			walk_damaged(walk, "continuation of an entry has another length");
		memcpy(walk->assembled + done, walk->copy.data + STRATA_LOG_PAGE_START, part);
		done += part;
	}
	return entry;
}

/*
 * The entry that starts at the walk's offset of the loaded page; the walk then
 * stands behind it.
 */
static const StrataEntryHeader *
walk_parse(StrataLogWalk *walk)
{
	const StrataEntryHeader *entry;
	StrataLogPoint start = walk->point;
	const char *fault;

	if (walk->lower - start.offset < sizeof(StrataEntryHeader))
		walk_damaged(walk, "entry header is cut off");
	entry = (const StrataEntryHeader *) (walk->copy.data + start.offset);
	fault = strata_entry_check_header(entry);
	if (fault != NULL)
		walk_damaged(walk, fault);

	if (entry->length <= walk->lower - start.offset)
		walk->point.offset += MAXALIGN(entry->length);
	else
		entry = walk_assemble(walk);

	fault = strata_entry_check(entry, entry->length);
	if (fault != NULL)
		log_damaged(walk->storage, walk->shard, start.page.block, start.offset, fault);
	return entry;
}

bool
strata_log_walk_next(StrataLogWalk *walk, StrataLogEntry *entry)
{
	StrataLogPoint *point = &walk->point;

	for (;;)
	{
		StrataLogPage *header = strata_page_log(walk->copy.data);

		if (!walk->loaded)
		{
			if (point->page.owner == 0)
			{
				StrataShardData shard;

				if (!strata_shard_read(walk->storage, walk->shard, &shard) ||
					shard.log_start.owner == 0)
					return false;
				point->page = shard.log_start;
			}
			walk_load(walk);
		}

		if (point->offset < walk->lower)
		{
			entry->position.generation = point->generation;
			entry->position.ordinal = point->ordinal;
			entry->position.offset = point->offset;
			entry->page = point->page;
			entry->header = walk_parse(walk);
			return true;
		}

		if (header->next.owner == 0 ||
			(walk->until_generation != 0 &&
			 (header->flags & STRATA_LOG_PAGE_CLOSED) != 0 &&
			 header->generation >= walk->until_generation))
		{
			/* Whoever asks again wants to know what came meanwhile. */
			walk->loaded = false;
			return false;
		}
		walk_go_on(walk);
	}
}

bool
strata_log_start(Relation storage, int shard, const StrataShardState *state,
				 StrataLogPoint *point)
{
	StrataShardData data;

	memset(point, 0, sizeof(*point));
	point->offset = STRATA_LOG_PAGE_START;
	if (state != NULL)
	{
		point->generation = state->merged_through + 1;
		if (state->first_pending.owner != 0)
		{
			point->page = state->first_pending;
			return true;
		}
	}
	if (!strata_shard_read(storage, shard, &data))
		return false;
	point->page = data.log_start;
	return point->page.owner != 0;
}

StrataEntryHeader *
strata_log_read_entry(StrataStore *store, Relation storage, int shard,
					  const StrataPageRef *page, uint32 offset)
{
	StrataLogWalk walk;
	StrataLogPoint point;
	const StrataEntryHeader *entry;
	StrataEntryHeader *copy;

	memset(&point, 0, sizeof(point));
	point.page = *page;
	point.offset = offset;
	walk_init(&walk, storage, shard, &point, 0);
	walk_load(&walk);
	entry = walk_parse(&walk);
	if (walk.assembled != NULL)
		return (StrataEntryHeader *) walk.assembled;
	copy = palloc(entry->length);
	memcpy(copy, entry, entry->length);
	return copy;
}

/* ---- generations ---- */

/* Copy the log header of a page. */
static void
copy_header(Relation storage, int shard, const StrataPageRef *ref, StrataLogPage *header)
{
	Buffer		buffer = log_page_read(storage, shard, ref);
	Page		page = BufferGetPage(buffer);
	bool		sound = ((PageHeader) page)->pd_lower >= STRATA_LOG_PAGE_START;

	*header = *strata_page_log(page);
	UnlockReleaseBuffer(buffer);
	if (!sound)
		log_damaged(storage, shard, ref->block, 0, "page has an impossible length");
	if (header->shard != (uint32) shard)
		log_damaged(storage, shard, ref->block, 0, "page belongs to another shard");
}

/*
 * Copy the log header of a shard's tail page; false when there is no log.  The
 * tail may be rolled, and its generation be sealed, merged and freed, between
 * our two looks: then look again.
 */
static bool
copy_tail_header(Relation storage, int shard, StrataShardData *data, StrataLogPage *header)
{
	StrataPageRef missed = {0};

	for (;;)
	{
		Buffer		buffer;
		bool		sound;

		CHECK_FOR_INTERRUPTS();
		if (!strata_shard_read(storage, shard, data) || data->tail.owner == 0)
			return false;
		buffer = strata_page_try_read(storage, data->tail.block, STRATA_PAGE_LOG,
									  data->tail.owner, BUFFER_LOCK_SHARE, NULL);
		if (BufferIsValid(buffer))
		{
			Page		page = BufferGetPage(buffer);

			sound = ((PageHeader) page)->pd_lower >= STRATA_LOG_PAGE_START;
			*header = *strata_page_log(page);
			UnlockReleaseBuffer(buffer);
			if (!sound || header->shard != (uint32) shard)
				log_damaged(storage, shard, data->tail.block, 0,
							"page is not one of this log");
			return true;
		}
		if (missed.owner == data->tail.owner && missed.block == data->tail.block)
			strata_page_mismatch(storage, data->tail.block, "the end of a log");
		missed = data->tail;
	}
}

/*
 * Fill in a generation from its first page.  False when it is the active one
 * and holds nothing, or was sealed while we looked (*again is set then).
 */
static bool
describe_generation(Relation storage, int shard, const StrataPageRef *first, uint32 number,
					StrataGeneration *out, bool *again)
{
	StrataLogPage header;

	*again = false;
	copy_header(storage, shard, first, &header);
	if (header.ordinal != 0 || (number != 0 && header.generation != number))
		log_damaged(storage, shard, first->block, 0,
					psprintf("page is number %u of generation %u, expected was the first of generation %u",
							 header.ordinal, header.generation, number));

	memset(out, 0, sizeof(*out));
	out->shard = shard;
	out->number = header.generation;
	out->first = *first;
	out->opened_at = header.opened_at;
	if (header.sealed_at != 0)
	{
		out->sealed = true;
		out->rows = header.generation_rows;
		out->bytes = header.generation_bytes;
		out->last = header.last;
		out->next = header.next_generation;
		out->sealed_at = header.sealed_at;
		if (out->next.owner == 0)
			log_damaged(storage, shard, first->block, 0, "sealed generation has no successor");
	}
	else
	{
		StrataShardData data;
		StrataLogPage tail;

		if (!copy_tail_header(storage, shard, &data, &tail))
			log_damaged(storage, shard, first->block, 0, "shard has no log");
		if (tail.generation != out->number)
		{
			if (tail.generation < out->number)
				log_damaged(storage, shard, first->block, 0, "generation is newer than the log's end");
			*again = true;
			return false;
		}
		out->rows = tail.rows_before + tail.rows;
		out->bytes = tail.bytes_before + tail.bytes;
		out->last = data.tail;
		if (out->bytes == 0)
			return false;
	}
	return true;
}

List *
strata_log_generations(Relation storage, int shard, const StrataShardState *state, int max)
{
	List	   *generations = NIL;
	StrataLogPoint point;
	StrataPageRef first;
	uint32		number;
	bool		looked_again = false;

	if (!strata_log_start(storage, shard, state, &point))
		return NIL;
	first = point.page;
	number = point.generation;

	while (max <= 0 || list_length(generations) < max)
	{
		StrataGeneration generation;
		StrataGeneration *copy;
		bool		again;

		CHECK_FOR_INTERRUPTS();
		if (!describe_generation(storage, shard, &first, number, &generation, &again))
		{
			if (!again)
				break;

			/* The record that sealed it wrote the summary, too. */
			if (looked_again)
				log_damaged(storage, shard, first.block, 0, "sealed generation has no summary");
			looked_again = true;
			continue;
		}
		looked_again = false;
		copy = palloc(sizeof(*copy));
		*copy = generation;
		generations = lappend(generations, copy);
		if (!generation.sealed)
			break;
		first = generation.next;
		number = generation.number + 1;
	}
	return generations;
}

void
strata_log_totals(Relation storage, int nshards, uint64 *rows, uint64 *bytes,
				  uint32 *active_generation)
{
	*rows = 0;
	*bytes = 0;
	for (int shard = 0; shard < nshards; shard++)
	{
		StrataShardData data;
		StrataLogPage tail;

		if (copy_tail_header(storage, shard, &data, &tail))
		{
			*rows += data.rows + tail.rows;
			*bytes += data.bytes + tail.bytes;
			active_generation[shard] = data.active_generation;
		}
		else if (strata_shard_read(storage, shard, &data))
		{
			/* Nothing since the store was made or truncated. */
			*rows += data.rows;
			*bytes += data.bytes;
			active_generation[shard] = data.active_generation;
		}
		else
			active_generation[shard] = 0;
	}
}
