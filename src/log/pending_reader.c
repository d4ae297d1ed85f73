/*-------------------------------------------------------------------------
 *
 * pending_reader.c
 *	  Reading rows and keys of pending entries by (entry, row).
 *
 * A reader keeps the entries it read last: one when rows are read in order,
 * more when they are read as the hash chains lead.  An entry of rows is read
 * and decoded as a whole; of a row group only what is asked for is decoded.
 * Each kept entry has a memory context of its own.
 *
 * A reader in order also keeps a copy of the log page it is on: commits of
 * single rows put many entries on a page.  What a copy lacks, or what looks
 * wrong in it, is read through the walk, which checks everything and says
 * what is wrong.
 *
 * IDENTIFICATION
 *	  src/log/pending_reader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "storage/page.h"

#include "utils/memutils.h"

#define MAX_SLOTS	16

typedef struct ReaderSlot
{
	int			entry;			/* -1: empty */
	uint64		used;			/* when, in uses of the reader */
	uint32		rows;
	uint32		keys;			/* rows and tombstones */
	MemoryContext mcxt;
	StrataEntryHeader *header;	/* of ROWS, */
	StrataEntryDecoder *decoder;
	StrataGroupReader *group;	/* or a row group */
} ReaderSlot;

struct StrataPendingReader
{
	StrataPending *pending;
	const Bitmapset *needed;
	bool		sequential;
	MemoryContext mcxt;
	int			nslots;
	ReaderSlot *last;
	ReaderSlot	slots[MAX_SLOTS];
	uint64		clock;
	uint64		bytes_read;		/* of slots closed, and of entries of rows */
	uint64		bytes_decoded;

	/* the page of the last entry; of a reader in order */
	StrataPageRef page;			/* owner 0: none */
	uint32		page_lower;
	PGAlignedBlock *page_copy;
};

StrataPendingReader *
strata_pending_reader_begin(StrataPending *pending, const Bitmapset *needed, bool sequential)
{
	MemoryContext mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata pending reader",
											   ALLOCSET_SMALL_SIZES);
	StrataPendingReader *reader = MemoryContextAllocZero(mcxt, sizeof(StrataPendingReader));
	int			i;

	reader->pending = pending;
	reader->needed = needed;
	reader->sequential = sequential;
	reader->mcxt = mcxt;
	reader->nslots = sequential ? 1 : MAX_SLOTS;
	for (i = 0; i < reader->nslots; i++)
		reader->slots[i].entry = -1;
	reader->last = &reader->slots[0];
	return reader;
}

static void
close_slot(StrataPendingReader *reader, ReaderSlot *slot)
{
	if (slot->group)
	{
		uint64		read = 0;
		uint64		decoded = 0;

		strata_group_io(slot->group, &read, &decoded);
		reader->bytes_read += read;
		reader->bytes_decoded += decoded;
		strata_group_close(slot->group);
	}
	if (slot->decoder)
		strata_entry_decode_end(slot->decoder);
	slot->group = NULL;
	slot->decoder = NULL;
	slot->header = NULL;
	slot->entry = -1;
	if (slot->mcxt)
		MemoryContextReset(slot->mcxt);
}

/*
 * The entry in the copy of its page, or NULL when it is not all there.  Valid
 * until another entry is asked for.
 */
static StrataEntryHeader *
entry_on_page(StrataPendingReader *reader, const StrataPendingEntry *known)
{
	StrataEntryHeader *header;
	uint32		offset = known->position.offset;

	if (reader->page.owner != known->page.owner || reader->page.block != known->page.block ||
		reader->page_lower <= offset)
	{
		Relation	storage = reader->pending->storage;
		Buffer		buffer;

		reader->page.owner = 0;
		if (reader->page_copy == NULL)
			reader->page_copy = MemoryContextAlloc(reader->mcxt, sizeof(PGAlignedBlock));
		buffer = strata_page_try_read(storage, known->page.block, STRATA_PAGE_LOG,
									  known->page.owner, BUFFER_LOCK_SHARE, NULL);
		if (!BufferIsValid(buffer))
			return NULL;
		reader->page_lower = ((PageHeader) BufferGetPage(buffer))->pd_lower;
		memcpy(reader->page_copy->data, BufferGetPage(buffer), reader->page_lower);
		UnlockReleaseBuffer(buffer);
		reader->page = known->page;
		reader->bytes_read += BLCKSZ;
	}
	if (offset != MAXALIGN(offset) || offset < STRATA_LOG_PAGE_START ||
		reader->page_lower < sizeof(StrataEntryHeader) ||
		offset > reader->page_lower - sizeof(StrataEntryHeader))
		return NULL;
	header = (StrataEntryHeader *) (reader->page_copy->data + offset);
	if (header->length > reader->page_lower - offset ||
		strata_entry_check(header, reader->page_lower - offset) != NULL ||
		!strata_pending_same_entry(known, header))
		return NULL;
	return header;
}

static void
open_slot(StrataPendingReader *reader, ReaderSlot *slot, int entry)
{
	StrataPending *pending = reader->pending;
	const StrataPendingEntry *known = pending_entry(pending, entry);
	MemoryContext old;

	if (slot->mcxt == NULL)
		slot->mcxt = AllocSetContextCreate(reader->mcxt, "strata pending entry",
										   ALLOCSET_DEFAULT_SIZES);
	slot->header = NULL;
	slot->decoder = NULL;
	slot->group = NULL;
	slot->rows = known->rows;
	slot->keys = strata_pending_entry_keys(known);
	old = MemoryContextSwitchTo(slot->mcxt);
	if (known->type == STRATA_ENTRY_ROWS)
	{
		if (reader->sequential)
			slot->header = entry_on_page(reader, known);
		if (slot->header == NULL)
		{
			slot->header = strata_pending_read_entry(pending, entry);
			reader->bytes_read += slot->header->length;
		}
		slot->decoder = strata_entry_decode(pending->store, slot->header);
		reader->bytes_decoded += slot->header->raw_length;
	}
	else
	{
		StrataGroupRef ref = known->group;

		slot->group = strata_group_open(pending->store, pending->storage, &ref,
										reader->needed, reader->sequential);
		if (strata_group_rows(slot->group) != slot->rows)
			strata_page_mismatch(pending->storage, ref.extent.block, "pending row group");
	}
	MemoryContextSwitchTo(old);
	slot->entry = entry;		/* last: an error leaves the slot empty */
}

static ReaderSlot *
find_slot(StrataPendingReader *reader, int entry)
{
	ReaderSlot *victim;
	int			i;

	reader->clock++;
	victim = &reader->slots[0];
	for (i = 0; i < reader->nslots; i++)
	{
		ReaderSlot *slot = &reader->slots[i];

		if (slot->entry == entry)
		{
			slot->used = reader->clock;
			reader->last = slot;
			return slot;
		}
		if (slot->entry < 0 ? victim->entry >= 0 :
			(victim->entry >= 0 && slot->used < victim->used))
			victim = slot;
	}
	if (victim->entry >= 0)
		close_slot(reader, victim);
	else if (victim->mcxt)
		MemoryContextReset(victim->mcxt);
	open_slot(reader, victim, entry);
	victim->used = reader->clock;
	reader->last = victim;
	return victim;
}

static inline ReaderSlot *
get_slot(StrataPendingReader *reader, int entry)
{
	if (likely(reader->last->entry == entry))
		return reader->last;
	return find_slot(reader, entry);
}

void
strata_pending_reader_row(StrataPendingReader *reader, int entry, uint32 row,
						  Datum *values, bool *isnull)
{
	ReaderSlot *slot = get_slot(reader, entry);

	Assert(row < slot->rows);
	if (slot->decoder)
		strata_entry_row(slot->decoder, row, values, isnull);
	else
		strata_group_fetch(slot->group, row, values, isnull);
}

void
strata_pending_reader_key(StrataPendingReader *reader, int entry, uint32 row, Datum *keyvalues)
{
	ReaderSlot *slot = get_slot(reader, entry);

	Assert(row < slot->keys);
	if (slot->decoder)
		strata_entry_key(slot->decoder, row, keyvalues);
	else
		strata_group_fetch_key(slot->group, row, keyvalues);
}

bool
strata_pending_reader_moved(StrataPendingReader *reader, int entry, uint32 row)
{
	ReaderSlot *slot = get_slot(reader, entry);

	return slot->decoder != NULL && strata_entry_moved(slot->decoder, row);
}

bool
strata_pending_reader_next_key(StrataPendingReader *reader, int entry, uint32 row,
							   Datum *keyvalues)
{
	ReaderSlot *slot = get_slot(reader, entry);

	return slot->decoder != NULL && strata_entry_next_key(slot->decoder, row, keyvalues);
}

uint32
strata_pending_reader_hash(StrataPendingReader *reader, int entry, uint32 row)
{
	StrataPendingLog *log = reader->pending->log;
	ReaderSlot *slot;

	if (log->keys)
		return log->keys->keys[log->entries[entry].first_key + row].hash;
	slot = get_slot(reader, entry);
	Assert(row < slot->keys);
	if (slot->decoder)
		return strata_entry_hashes(slot->header)[row];
	return strata_group_hashes(slot->group)[row];
}

void
strata_pending_reader_io(StrataPendingReader *reader, uint64 *bytes_read, uint64 *bytes_decoded)
{
	int			i;

	*bytes_read = reader->bytes_read;
	*bytes_decoded = reader->bytes_decoded;
	for (i = 0; i < reader->nslots; i++)
	{
		if (reader->slots[i].group)
		{
			uint64		read = 0;
			uint64		decoded = 0;

			strata_group_io(reader->slots[i].group, &read, &decoded);
			*bytes_read += read;
			*bytes_decoded += decoded;
		}
	}
}

void
strata_pending_reader_end(StrataPendingReader *reader)
{
	int			i;

	for (i = 0; i < reader->nslots; i++)
	{
		if (reader->slots[i].entry >= 0)
			close_slot(reader, &reader->slots[i]);
	}
	MemoryContextDelete(reader->mcxt);
}
