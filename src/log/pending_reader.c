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

static void
open_slot(StrataPendingReader *reader, ReaderSlot *slot, int entry)
{
	StrataPending *pending = reader->pending;
	const StrataPendingEntry *known = pending_entry(pending, entry);
	MemoryContext old;

	if (slot->mcxt == NULL)
		slot->mcxt = AllocSetContextCreate(reader->mcxt, "strata pending entry",
										   ALLOCSET_DEFAULT_SIZES);
	slot->rows = known->rows;
	slot->keys = strata_pending_entry_keys(known);
	old = MemoryContextSwitchTo(slot->mcxt);
	if (known->type == STRATA_ENTRY_ROWS)
	{
		slot->header = strata_pending_read_entry(pending, entry);
		slot->decoder = strata_entry_decode(pending->store, slot->header);
		reader->bytes_read += slot->header->length;
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
