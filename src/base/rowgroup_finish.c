/*-------------------------------------------------------------------------
 *
 * rowgroup_finish.c
 *	  Finishing a row group: its footer, its bytes on disk, and a look at its
 *	  vectors for those who make dictionaries of them.
 *
 * Until strata_group_writer_write, everything is memory of the writer's own:
 * no locks, no crash window.
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_finish.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/rowgroup_writer.h"
#include "storage/extent.h"

#include "miscadmin.h"
#include "utils/memutils.h"

uint64
strata_group_writer_finish(StrataGroupWriter *writer)
{
	MemoryContext old = MemoryContextSwitchTo(writer->mcxt);
	StrataGroupHeader header = {0};
	StrataGroupTrailer trailer = {0};
	const StrataZoneBuilder **zones;
	pg_crc32c	crc;

	Assert(!writer->finished && writer->rows > 0);

	header.rows = writer->rows;
	header.natts = writer->store->desc->natts;
	header.ncolumns = writer->ncolumns;
	header.raw_bytes = writer->raw_bytes;
	for (int i = 0; i < writer->ncolumns; i++)
	{
		strata_writer_close_vector(writer, &writer->columns[i]);
		header.data_length += writer->columns[i].length;
		header.nvectors += writer->columns[i].nentries;
	}
	strata_scratch_trim();
	if (writer->keyed)
	{
		header.hash_length = writer->rows * sizeof(uint32);
		header.hash_crc = strata_crc(writer->hashes, header.hash_length);
	}

	initStringInfo(&writer->footer);
	appendBinaryStringInfo(&writer->footer, (char *) &header, sizeof(header));
	for (int i = 0; i < writer->ncolumns; i++)
	{
		const StrataColumnWriter *column = &writer->columns[i];
		StrataColumnEntry entry = {
			.length = column->length,
			.dictionary = column->dictionary_used ? column->dictionary_id : 0,
			.type = column->typid,
			.nvectors = column->nentries,
			.attnum = column->attnum,
			.attlen = column->type.attlen,
			.byval = column->type.byval,
			.align = column->type.align};

		appendBinaryStringInfo(&writer->footer, (char *) &entry, sizeof(entry));
	}
	for (int i = 0; i < writer->ncolumns; i++)
	{
		if (writer->columns[i].nentries > 0)
			appendBinaryStringInfo(&writer->footer, (char *) writer->columns[i].entries,
								   writer->columns[i].nentries * sizeof(StrataVectorEntry));
	}

	zones = palloc(Max(writer->ncolumns, 1) * sizeof(*zones));
	for (int i = 0; i < writer->ncolumns; i++)
		zones[i] = writer->columns[i].zone;
	writer->zones_offset = writer->footer.len;
	strata_zones_serialize(zones, writer->ncolumns, &writer->footer);
	writer->zones_length = writer->footer.len - writer->zones_offset;

	header.zones_length = writer->zones_length;
	memcpy(writer->footer.data, &header, sizeof(header));

	trailer.footer_length = writer->footer.len;
	trailer.version = STRATA_ROW_GROUP_VERSION;
	trailer.magic = STRATA_GROUP_MAGIC;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, writer->footer.data, writer->footer.len);
	COMP_CRC32C(crc, &trailer, sizeof(trailer));
	FIN_CRC32C(crc);
	trailer.crc = crc;
	appendBinaryStringInfo(&writer->footer, (char *) &trailer, sizeof(trailer));

	writer->length = header.data_length + header.hash_length + writer->footer.len;
	writer->finished = true;
	MemoryContextSwitchTo(old);
	return writer->length;
}

void
strata_group_writer_write(StrataGroupWriter *writer, Relation storage,
						  const StrataExtent *extent, StrataGroupRef *ref, bytea **zones)
{
	StrataExtentWriter *out;

	Assert(writer->finished);
	if (extent->nblocks < strata_extent_blocks_for(writer->length))
		elog(ERROR, "extent of %u blocks is too small for a row group of " UINT64_FORMAT " bytes",
			 extent->nblocks, writer->length);

	out = strata_extent_write_begin(storage, extent);
	for (int i = 0; i < writer->ncolumns; i++)
	{
		for (StrataChunk *chunk = writer->columns[i].first; chunk != NULL; chunk = chunk->next)
		{
			CHECK_FOR_INTERRUPTS();
			strata_extent_write(out, chunk->data, chunk->used);
		}
	}
	if (writer->keyed)
		strata_extent_write(out, writer->hashes, writer->rows * sizeof(uint32));
	strata_extent_write(out, writer->footer.data, writer->footer.len);
	strata_extent_write_end(out);

	memset(ref, 0, sizeof(*ref));
	ref->extent = *extent;
	ref->length = writer->length;
	ref->raw_bytes = writer->raw_bytes;
	ref->rows = writer->rows;

	if (zones != NULL)
	{
		*zones = NULL;
		if (writer->zones_length > 0)
		{
			*zones = palloc(VARHDRSZ + writer->zones_length);
			SET_VARSIZE(*zones, VARHDRSZ + writer->zones_length);
			memcpy(VARDATA(*zones), writer->footer.data + writer->zones_offset,
				   writer->zones_length);
		}
	}
}

void
strata_group_writer_end(StrataGroupWriter *writer)
{
	MemoryContextDelete(writer->mcxt);
}

int
strata_group_writer_columns(StrataGroupWriter *writer)
{
	return writer->ncolumns;
}

AttrNumber
strata_group_writer_vectors(StrataGroupWriter *writer, int i, int16 *attlen,
							StrataVectorCallback callback, void *arg)
{
	const StrataColumnWriter *column = &writer->columns[i];
	const StrataChunk *chunk = column->first;
	Size		offset = 0;

	Assert(writer->finished);
	*attlen = column->type.attlen;
	for (uint32 v = 0; callback != NULL && v < column->nentries; v++)
	{
		const StrataVectorEntry *entry = &column->entries[v];

		if (entry->length == 0)
			continue;
		while (offset == chunk->used)
		{
			chunk = chunk->next;
			offset = 0;
		}
		Assert(entry->length <= chunk->used - offset);
		callback(entry, chunk->data + offset, arg);
		offset += entry->length;
	}
	return column->attnum;
}
