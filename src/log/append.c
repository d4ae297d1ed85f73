/*-------------------------------------------------------------------------
 *
 * append.c
 *	  Translates "append this entry", "take an extent" and "seal" into changes
 *	  of log pages, each of them one WAL record.
 *
 * Records:
 *
 *	append		the tail page alone, when the entry fits there
 *	link		shard page, old tail, one or two new pages: an entry that does
 *				not fit.  What of it fits the old tail may start there; the
 *				rest continues on the new pages, the last of which becomes the
 *				tail.  Without an entry: a full tail is rolled.
 *	extent		tail page and spare page: the blocks leave the spare page with
 *				the entry that names them, so they are never without owner
 *	seal		shard page, first page of the generation (its summary), old
 *				tail (CLOSED), first page of the next generation
 *	prepare		shard page and spare page: the next tail extent
 *
 * Locks: the tail page's exclusive content lock orders the appends of a shard.
 * Appends that fit read the shard page in share mode and let it go before they
 * lock the tail, so that the shard page is locked exclusively only for a link,
 * a seal or a prepared extent.  Between the two the tail may have moved:
 * whoever finds CLOSED, a next pointer or a foreign page goes through the
 * shard page, whose lock keeps the tail in place.  Order: shard page,
 * generation's first page, tail, new pages, spare page.
 *
 * Under page locks nothing is waited for and no file is extended: new pages
 * come from an extent that the shard page names already.  When it names none
 * with enough pages left, all locks are released, the next extent is prepared,
 * and the append starts over; normally it was prepared after a link that left
 * few pages.
 *
 * Crash windows: none within a record.  Between records: an extent prepared
 * but not used is named by the shard page; a tail rolled for an entry that
 * never came is an empty page; a generation over its limit that nobody sealed
 * is sealed by the next append to it.
 *
 * Invariants:
 *
 *	- All pages of a record stay locked until it is inserted.
 *	- An entry counts (rows, bytes) on the page it starts on.  The shard page's
 *	  totals are those of all pages before the tail, so the totals of a shard
 *	  are its shard page's plus its tail's.
 *	- The first entry of a generation starts on the generation's first page.
 *	- No record carries an entry of an xid that replay would not learn of
 *	  (see with_covering_xid).
 *
 * IDENTIFICATION
 *	  src/log/append.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/append.h"
#include "log/tail.h"

#include "pause.h"
#include "storage/extent.h"
#include "storage/metapage.h"
#include "storage/subtransaction.h"

#include "access/generic_xlog.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/*
 * An entry is cut over pages only when at least so much of it can go on the
 * first: reading a cut one costs a copy.
 */
#define SPLIT_MIN_BYTES			256

typedef enum AppendResult
{
	APPEND_DONE,
	APPEND_NOT_HERE,			/* not with the tail page alone */
	APPEND_NO_EXTENT			/* prepare an extent, then try again */
} AppendResult;

typedef struct AppendRequest
{
	StrataStore *store;
	Relation	storage;
	int			shard;

	/* an entry */
	const StrataEntryHeader *entry;
	uint64		stored_bytes;

	/* or an extent */
	FullTransactionId fxid;
	CommandId	cid;
	uint32		nblocks;
	StrataExtent extent;

	/* what came of it */
	StrataPosition position;
	uint64		generation_rows;
	uint64		generation_bytes;
	bool		want_extent;	/* few pages are left, none prepared */
} AppendRequest;

StrataLogAppended strata_log_appended_hook = NULL;

static void start_entry(AppendRequest *request, Page page);
static void put_bytes(Page page, const void *data, Size length);
static void append_entry(AppendRequest *request);
static AppendResult append_on_tail(AppendRequest *request, const StrataShardData *shard);
static AppendResult append_linking(AppendRequest *request);
static void put_on_tail(AppendRequest *request, Buffer tail);
static void append_extent(AppendRequest *request);
static AppendResult try_append_extent(AppendRequest *request, const StrataShardData *shard);
static bool seal_generation(Relation storage, int shard, uint32 expected, bool empty,
							uint32 *generation, StrataPageRef *next);
static void with_covering_xid(uint64 fxid, void (*action)(AppendRequest *request),
							  AppendRequest *request);

/* Copy bytes to the end of the page's data; they fit. */
static void
put_bytes(Page page, const void *data, Size length)
{
	PageHeader	header = (PageHeader) page;
	char	   *dst = (char *) page + header->pd_lower;

	memcpy(dst, data, length);
	memset(dst + length, 0, MAXALIGN(length) - length);
	header->pd_lower += MAXALIGN(length);
}

/*
 * Count the request's entry on the page it is about to start on, and note its
 * position and what its generation then holds.
 */
static void
start_entry(AppendRequest *request, Page page)
{
	StrataLogPage *header = strata_page_log(page);

	request->position.generation = header->generation;
	request->position.ordinal = header->ordinal;
	request->position.offset = ((PageHeader) page)->pd_lower;

	/* A generation is as old as what it holds. */
	if (header->ordinal == 0 && header->bytes == 0)
		header->opened_at = GetCurrentTimestamp();
	header->rows += (uint64) request->entry->rows + request->entry->tombstones;
	header->bytes += request->stored_bytes;
	request->generation_rows = header->rows_before + header->rows;
	request->generation_bytes = header->bytes_before + header->bytes;
}

/* ---- entries ---- */

/* Put the whole entry on the tail page, which is locked and has room. */
static void
put_on_tail(AppendRequest *request, Buffer tail)
{
	GenericXLogState *record = GenericXLogStart(request->storage);
	Page		page = GenericXLogRegisterBuffer(record, tail, 0);

	start_entry(request, page);
	put_bytes(page, request->entry, request->entry->length);
	STRATA_PAUSE("log-append-before-record");
	GenericXLogFinish(record);
}

/*
 * The append that touches the tail page alone; shard is a copy of the shard
 * page that may be out of date by now.
 */
static AppendResult
append_on_tail(AppendRequest *request, const StrataShardData *shard)
{
	Buffer		tail;
	Page		page;

	if (shard->tail.owner == 0)
		return APPEND_NOT_HERE;
	tail = strata_page_try_read(request->storage, shard->tail.block, STRATA_PAGE_LOG,
								shard->tail.owner, BUFFER_LOCK_EXCLUSIVE, NULL);
	if (!BufferIsValid(tail))
		return APPEND_NOT_HERE;

	page = BufferGetPage(tail);
	if (!strata_tail_is_open(strata_page_log(page), request->shard) ||
		strata_tail_room(page) < request->entry->length)
	{
		UnlockReleaseBuffer(tail);
		return APPEND_NOT_HERE;
	}
	strata_tail_check(request->storage, page, shard->tail.block, request->shard);
	put_on_tail(request, tail);
	UnlockReleaseBuffer(tail);
	return APPEND_DONE;
}

/*
 * The append that goes through the shard page: new pages are linked, unless
 * there is room on the tail by now.  Without an entry, rolls the tail.
 */
static AppendResult
append_linking(AppendRequest *request)
{
	Relation	storage = request->storage;
	const StrataEntryHeader *entry = request->entry;
	Size		left = entry != NULL ? entry->length : 0;
	const char *data = (const char *) entry;
	Size		on_tail = 0;
	int			npages;
	StrataTailPlan	plan;
	Buffer		shard_buffer;
	Buffer		tail_buffer = InvalidBuffer;
	Buffer		buffers[STRATA_MAX_ENTRY_PAGES];
	GenericXLogState *record;
	StrataShardData *shard;
	StrataLogPage *previous = NULL;
	uint32		generation;
	uint32		ordinal = 0;

	shard_buffer = strata_tail_lock_shard(storage, request->shard);
	shard = strata_page_shard(BufferGetPage(shard_buffer));
	if (shard->tail.owner != 0)
	{
		Page		page;
		Size		room;

		tail_buffer = strata_tail_lock(storage, shard);
		page = BufferGetPage(tail_buffer);
		room = strata_tail_room(page);
		if (entry != NULL ? room >= left : room >= sizeof(StrataExtentEntry))
		{
			/* Somebody has rolled the tail meanwhile. */
			UnlockReleaseBuffer(shard_buffer);
			if (entry != NULL)
				put_on_tail(request, tail_buffer);
			UnlockReleaseBuffer(tail_buffer);
			return APPEND_DONE;
		}
		if (entry != NULL && room >= SPLIT_MIN_BYTES)
			on_tail = room;
	}

	npages = left - on_tail > STRATA_LOG_PAGE_CAPACITY ? 2 : 1;
	if (!strata_tail_plan(shard, npages, &plan))
	{
		if (BufferIsValid(tail_buffer))
			UnlockReleaseBuffer(tail_buffer);
		UnlockReleaseBuffer(shard_buffer);
		return APPEND_NO_EXTENT;
	}
	for (int i = 0; i < npages; i++)
		buffers[i] = strata_page_new(storage, plan.pages[i].block, NULL);

	record = GenericXLogStart(storage);
	shard = strata_page_shard(GenericXLogRegisterBuffer(record, shard_buffer, 0));
	generation = shard->active_generation;
	if (BufferIsValid(tail_buffer))
	{
		Page		page = GenericXLogRegisterBuffer(record, tail_buffer, 0);

		previous = strata_page_log(page);
		generation = previous->generation;
		ordinal = previous->ordinal + 1;
		if (on_tail > 0)
		{
			start_entry(request, page);
			put_bytes(page, data, on_tail);
			data += on_tail;
			left -= on_tail;
		}
	}
	else
	{
		shard->log_start = plan.pages[0];
		shard->active_start = plan.pages[0];
	}

	for (int i = 0; i < npages; i++)
	{
		Page		page = GenericXLogRegisterBuffer(record, buffers[i], GENERIC_XLOG_FULL_IMAGE);
		StrataLogPage *header = strata_tail_init_page(page, plan.pages[i].owner, request->shard,
											  generation, ordinal++);
		Size		part = Min(left, STRATA_LOG_PAGE_CAPACITY);

		if (previous != NULL)
		{
			previous->next = plan.pages[i];
			header->rows_before = previous->rows_before + previous->rows;
			header->bytes_before = previous->bytes_before + previous->bytes;
			shard->rows += previous->rows;
			shard->bytes += previous->bytes;
		}
		else
			header->opened_at = GetCurrentTimestamp();
		if (part > 0)
		{
			if (data == (const char *) entry)
				start_entry(request, page);
			else
				header->continuation = part;
			put_bytes(page, data, part);
			data += part;
			left -= part;
		}
		previous = header;
	}

	shard->tail = plan.pages[npages - 1];
	shard->tail_extent = plan.tail_extent;
	shard->next_extent = plan.next_extent;
	request->want_extent = strata_tail_runs_out(shard);

	STRATA_PAUSE("log-link-before-record");
	GenericXLogFinish(record);
	for (int i = npages - 1; i >= 0; i--)
		UnlockReleaseBuffer(buffers[i]);
	if (BufferIsValid(tail_buffer))
		UnlockReleaseBuffer(tail_buffer);
	UnlockReleaseBuffer(shard_buffer);
	STRATA_PAUSE("log-link-after-record");
	return APPEND_DONE;
}

static void
append_entry(AppendRequest *request)
{
	AppendResult result;

	do
	{
		StrataShardData shard;

		CHECK_FOR_INTERRUPTS();
		if (!strata_shard_read(request->storage, request->shard, &shard))
		{
			strata_store_initialize(request->storage, request->store->nshards);
			result = APPEND_NOT_HERE;
			continue;
		}
		STRATA_PAUSE("log-append-tail-known");
		result = append_on_tail(request, &shard);
		if (result == APPEND_NOT_HERE)
			result = append_linking(request);
		if (result == APPEND_NO_EXTENT)
			strata_tail_prepare(request->storage, request->shard);
	} while (result != APPEND_DONE);
	STRATA_PAUSE("log-append-after-record");

	if (request->want_extent)
		strata_tail_prepare(request->storage, request->shard);
}

typedef struct CoveredAppend
{
	void (*action)(AppendRequest *request);
	AppendRequest *request;
} CoveredAppend;

/* StrataAction */
static void
append_with_new_xid(void *arg)
{
	CoveredAppend *covered = (CoveredAppend *) arg;

	(void) GetCurrentTransactionId();
	covered->action(covered->request);
}

/*
 * Run action so that its records carry an xid at least as new as fxid.
 *
 * A record names the xid of the current (sub)transaction, and replay learns
 * from that which xids have been given out.  An entry may be of another
 * subtransaction than the current one: were the current xid older, or none
 * assigned, then after a crash that xid could be given to a new transaction,
 * whose commit would make the lost transaction's entry count.
 */
static void
with_covering_xid(uint64 fxid, void (*action)(AppendRequest *request), AppendRequest *request)
{
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(fxid));
	CoveredAppend covered = {action, request};
	ErrorData  *error;

	/* The xid that is assigned here, if none was, is the newest. */
	if (!TransactionIdPrecedes(GetCurrentTransactionId(), xid))
	{
		action(request);
		return;
	}

	/* Only a subtransaction that begins now gets a newer xid. */
	error = strata_subtransaction(append_with_new_xid, &covered);
	if (error != NULL)
		ReThrowError(error);
}

StrataPosition
strata_log_append(StrataStore *store, Relation storage, int shard,
				  const StrataEntryHeader *entry, uint64 stored_bytes)
{
	const StrataOptions *options = store->options;
	AppendRequest request = {0};
	bool		sealed = false;

	if (shard < 0 || shard >= store->nshards)
		elog(ERROR, "invalid shard %d", shard);
	if (entry->length < sizeof(StrataEntryHeader) || entry->length > STRATA_MAX_ENTRY_SIZE)
		elog(ERROR, "invalid length %u of a log entry", entry->length);
	Assert(stored_bytes >= entry->length);

	request.store = store;
	request.storage = storage;
	request.shard = shard;
	request.entry = entry;
	request.stored_bytes = stored_bytes;
	with_covering_xid(entry->fxid, append_entry, &request);

	/*
	 * Everybody who finds the generation full tries to seal it, lest one that
	 * failed before it came to that leave it open; the first one does.
	 */
	if ((options->generation_max_bytes > 0 &&
		 request.generation_bytes >= (uint64) options->generation_max_bytes) ||
		(options->generation_max_rows > 0 &&
		 request.generation_rows >= (uint64) options->generation_max_rows))
		sealed = seal_generation(storage, shard, request.position.generation, false, NULL, NULL);
	if (strata_log_appended_hook != NULL)
		strata_log_appended_hook(store, sealed);
	return request.position;
}

/* ---- extents ---- */

/*
 * Take the extent and append its entry, if the tail has room and the spare
 * page a run as long.
 */
static AppendResult
try_append_extent(AppendRequest *request, const StrataShardData *shard)
{
	Relation	storage = request->storage;
	StrataExtentEntry entry;
	Buffer		tail_buffer;
	Buffer		spare_buffer;
	GenericXLogState *record;
	Page		page;
	Page		spare_page;
	bool		taken;

	if (shard->tail.owner == 0)
		return APPEND_NOT_HERE;
	tail_buffer = strata_page_try_read(storage, shard->tail.block, STRATA_PAGE_LOG,
									   shard->tail.owner, BUFFER_LOCK_EXCLUSIVE, NULL);
	if (!BufferIsValid(tail_buffer))
		return APPEND_NOT_HERE;
	page = BufferGetPage(tail_buffer);
	if (!strata_tail_is_open(strata_page_log(page), request->shard) ||
		strata_tail_room(page) < sizeof(StrataExtentEntry))
	{
		UnlockReleaseBuffer(tail_buffer);
		return APPEND_NOT_HERE;
	}
	strata_tail_check(storage, page, shard->tail.block, request->shard);

	spare_buffer = strata_spare_lock(storage);
	record = GenericXLogStart(storage);
	page = GenericXLogRegisterBuffer(record, tail_buffer, 0);
	spare_page = GenericXLogRegisterBuffer(record, spare_buffer, 0);
	taken = strata_spare_take(spare_page, request->nblocks, InvalidBlockNumber,
							  &request->extent);
	if (taken)
	{
		strata_entry_fill_extent(&entry, request->fxid, request->cid, &request->extent);
		request->entry = &entry.header;
		request->stored_bytes = entry.header.length;
		start_entry(request, page);
		put_bytes(page, &entry, entry.header.length);
		request->entry = NULL;
		STRATA_PAUSE("log-extent-before-record");
		GenericXLogFinish(record);
	}
	else
		GenericXLogAbort(record);
	UnlockReleaseBuffer(spare_buffer);
	UnlockReleaseBuffer(tail_buffer);
	return taken ? APPEND_DONE : APPEND_NO_EXTENT;
}

static void
append_extent(AppendRequest *request)
{
	AppendResult result;

	do
	{
		StrataShardData shard;

		CHECK_FOR_INTERRUPTS();
		if (!strata_shard_read(request->storage, request->shard, &shard))
		{
			strata_store_initialize(request->storage, request->store->nshards);
			result = APPEND_NOT_HERE;
			continue;
		}
		result = try_append_extent(request, &shard);
		if (result == APPEND_NOT_HERE && append_linking(request) == APPEND_NO_EXTENT)
			strata_tail_prepare(request->storage, request->shard);
		else if (result == APPEND_NO_EXTENT)
			strata_extent_reserve(request->storage, request->nblocks);
	} while (result != APPEND_DONE);
	STRATA_PAUSE("log-extent-after-record");

	if (request->want_extent)
		strata_tail_prepare(request->storage, request->shard);
}

void
strata_log_take_extent(StrataStore *store, Relation storage, int shard, FullTransactionId fxid,
					   CommandId cid, uint32 nblocks, StrataExtent *out)
{
	AppendRequest request = {0};

	if (shard < 0 || shard >= store->nshards)
		elog(ERROR, "invalid shard %d", shard);

	request.store = store;
	request.storage = storage;
	request.shard = shard;
	request.fxid = fxid;
	request.cid = cid;
	request.nblocks = nblocks;
	with_covering_xid(U64FromFullTransactionId(fxid), append_extent, &request);
	*out = request.extent;
}

/* ---- sealing ---- */

/*
 * Close the active generation, if it is the expected one (0: whichever it is),
 * and open the next.  It must hold something; with empty it must not, and the
 * next one then starts on the extent prepared, which there must be.  *next
 * (NULL allowed) receives the next one's first page.
 */
static bool
seal_generation(Relation storage, int shard, uint32 expected, bool empty,
				uint32 *generation, StrataPageRef *next)
{
	for (;;)
	{
		StrataShardData copy;
		Buffer		shard_buffer;
		Buffer		first_buffer = InvalidBuffer;
		Buffer		tail_buffer;
		Buffer		new_buffer;
		StrataShardData *data;
		StrataLogPage *first;
		StrataLogPage *tail;
		StrataTailPlan	plan;
		GenericXLogState *record;
		Page		page;
		TimestampTz now;
		bool		refused;
		bool		want_extent;

		CHECK_FOR_INTERRUPTS();
		if (!strata_shard_read(storage, shard, &copy) || copy.tail.owner == 0 ||
			(expected != 0 && copy.active_generation != expected))
			return false;
		if (copy.active_generation >= STRATA_MAX_GENERATION)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("relation \"%s\" has used up its generation numbers",
							RelationGetRelationName(storage)),
					 errhint("Dump the table and restore it into a new one.")));
		now = GetCurrentTimestamp();

		shard_buffer = strata_tail_lock_shard(storage, shard);
		data = strata_page_shard(BufferGetPage(shard_buffer));
		if (data->active_generation != copy.active_generation)
		{
			UnlockReleaseBuffer(shard_buffer);
			if (expected == 0)
				continue;
			return false;
		}
		if (data->active_start.block != data->tail.block)
		{
			first_buffer = strata_page_read(storage, data->active_start.block, STRATA_PAGE_LOG,
											data->active_start.owner, BUFFER_LOCK_EXCLUSIVE,
											NULL, "the start of a generation");
			first = strata_page_log(BufferGetPage(first_buffer));
			if (((PageHeader) BufferGetPage(first_buffer))->pd_lower < STRATA_LOG_PAGE_START ||
				first->shard != (uint32) shard || first->ordinal != 0 ||
				first->generation != data->active_generation || first->sealed_at != 0)
				strata_page_mismatch(storage, data->active_start.block,
									 "the start of a generation");
		}
		tail_buffer = strata_tail_lock(storage, data);
		tail = strata_page_log(BufferGetPage(tail_buffer));

		refused = (tail->bytes_before + tail->bytes == 0) != empty;
		if (refused || !(empty ? strata_tail_plan_over(data, &plan) : strata_tail_plan(data, 1, &plan)))
		{
			UnlockReleaseBuffer(tail_buffer);
			if (BufferIsValid(first_buffer))
				UnlockReleaseBuffer(first_buffer);
			UnlockReleaseBuffer(shard_buffer);
			if (refused || empty)
				return false;
			strata_tail_prepare(storage, shard);
			continue;
		}
		new_buffer = strata_page_new(storage, plan.pages[0].block, NULL);

		record = GenericXLogStart(storage);
		data = strata_page_shard(GenericXLogRegisterBuffer(record, shard_buffer, 0));
		first = NULL;
		if (BufferIsValid(first_buffer))
			first = strata_page_log(GenericXLogRegisterBuffer(record, first_buffer, 0));
		tail = strata_page_log(GenericXLogRegisterBuffer(record, tail_buffer, 0));
		if (first == NULL)
			first = tail;
		page = GenericXLogRegisterBuffer(record, new_buffer, GENERIC_XLOG_FULL_IMAGE);

		first->sealed_at = now;
		first->generation_rows = tail->rows_before + tail->rows;
		first->generation_bytes = tail->bytes_before + tail->bytes;
		first->last = data->tail;
		first->next_generation = plan.pages[0];

		tail->flags |= STRATA_LOG_PAGE_CLOSED;
		tail->next = plan.pages[0];

		strata_tail_init_page(page, plan.pages[0].owner, shard, data->active_generation + 1, 0)->opened_at = now;

		data->rows += tail->rows;
		data->bytes += tail->bytes;
		data->active_generation++;
		data->active_start = plan.pages[0];
		data->tail = plan.pages[0];
		data->tail_extent = plan.tail_extent;
		data->next_extent = plan.next_extent;
		want_extent = strata_tail_runs_out(data);

		STRATA_PAUSE("log-seal-before-record");
		GenericXLogFinish(record);
		UnlockReleaseBuffer(new_buffer);
		UnlockReleaseBuffer(tail_buffer);
		if (BufferIsValid(first_buffer))
			UnlockReleaseBuffer(first_buffer);
		UnlockReleaseBuffer(shard_buffer);
		STRATA_PAUSE("log-seal-after-record");

		if (generation != NULL)
			*generation = copy.active_generation;
		if (next != NULL)
			*next = plan.pages[0];
		if (want_extent)
			strata_tail_prepare(storage, shard);
		return true;
	}
}

bool
strata_log_seal(Relation storage, int shard, uint32 *generation)
{
	return seal_generation(storage, shard, 0, false, generation, NULL);
}

bool
strata_log_move_tail(Relation storage, int shard, BlockNumber limit, uint32 *generation,
					 StrataPageRef *next)
{
	return strata_tail_prepare_before(storage, shard, limit) &&
		seal_generation(storage, shard, 0, true, generation, next);
}
