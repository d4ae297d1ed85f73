/*-------------------------------------------------------------------------
 *
 * footer.c
 *	  Checking and decoding the footer of a row group.
 *
 * A decoded footer is one piece of memory, so that it can be cached.  After
 * strata_footer_decode has said nothing, these hold and readers rely on them:
 *	- columns are in the order of their attribute numbers, each valid;
 *	- the vectors of every column cover exactly the row group's rows;
 *	- every vector lies before the key hashes, and they before the footer.
 *
 * IDENTIFICATION
 *	  src/base/footer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/footer.h"

#include "access/htup_details.h"
#include "utils/memutils.h"

const char *
strata_trailer_check(const char *bytes, uint64 group_length, uint32 *footer_length)
{
	StrataGroupTrailer trailer;

	memcpy(&trailer, bytes, sizeof(trailer));
	if (trailer.magic != STRATA_GROUP_MAGIC)
		return "no row group trailer at its end";
	if (trailer.footer_length < sizeof(StrataGroupHeader) ||
		trailer.footer_length > MaxAllocSize / 2 ||
		trailer.footer_length > group_length - sizeof(trailer))
		return "an impossible footer length";
	*footer_length = trailer.footer_length;
	return NULL;
}

/* Where the parts are in footer's own memory. */
static Size
lay_out(StrataFooter *footer, const StrataGroupHeader *header, char *memory)
{
	Size		offset = MAXALIGN(sizeof(StrataFooter));
	Size		columns = offset;
	Size		offsets = columns + MAXALIGN(header->ncolumns * sizeof(StrataFooterColumn));
	Size		entries = offsets + header->nvectors * sizeof(uint64);
	Size		first_rows = entries + header->nvectors * sizeof(StrataVectorEntry);
	Size		zones = first_rows + header->nvectors * sizeof(uint32);

	if (footer != NULL)
	{
		footer->columns = (StrataFooterColumn *) (memory + columns);
		footer->offsets = (uint64 *) (memory + offsets);
		footer->entries = (StrataVectorEntry *) (memory + entries);
		footer->first_rows = (uint32 *) (memory + first_rows);
		footer->zones = memory + zones;
	}
	return zones + header->zones_length;
}

const char *
strata_footer_crc_check(const char *bytes, uint32 length, uint32 *version)
{
	StrataGroupTrailer trailer;
	pg_crc32c	stored_crc;
	pg_crc32c	crc;

	memcpy(&trailer, bytes + length, sizeof(trailer));
	stored_crc = trailer.crc;
	trailer.crc = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, bytes, length);
	COMP_CRC32C(crc, &trailer, sizeof(trailer));
	FIN_CRC32C(crc);
	if (!EQ_CRC32C(crc, stored_crc))
		return "a footer with the wrong checksum";
	*version = trailer.version;
	return NULL;
}

const char *
strata_footer_size(const char *bytes, uint32 length, uint64 group_length, uint32 rows,
				   Size *size)
{
	StrataGroupHeader header;

	memcpy(&header, bytes, sizeof(header));
	if (header.rows == 0 || header.rows > STRATA_MAX_GROUP_ROWS)
		return "an impossible number of rows";
	if (header.rows != rows)
		return "another number of rows than recorded";
	if (header.natts > MaxHeapAttributeNumber || header.ncolumns > header.natts)
		return "an impossible number of columns";
	if (header.nvectors > length / sizeof(StrataVectorEntry) || header.zones_length > length)
		return "more vectors or zone maps than bytes";
	if (length != sizeof(header) + header.ncolumns * sizeof(StrataColumnEntry) +
		header.nvectors * sizeof(StrataVectorEntry) + header.zones_length)
		return "a footer whose lengths disagree";
	if (header.hash_length != 0 && header.hash_length != header.rows * sizeof(uint32))
		return "key hashes of the wrong length";
	if (header.data_length > group_length ||
		header.data_length + header.hash_length + length + sizeof(StrataGroupTrailer) != group_length)
		return "another length than recorded";
	*size = lay_out(NULL, &header, NULL);
	return NULL;
}

/* One column and its vectors; offset is where its chunk begins. */
static const char *
decode_column(const StrataColumnEntry *entry, uint64 offset, uint32 first_vector,
			  StrataFooter *footer, StrataFooterColumn *column)
{
	uint64		end = offset + entry->length;
	uint32		row = 0;

	column->type.attlen = entry->attlen;
	column->type.byval = entry->byval;
	column->type.align = entry->align;
	column->attnum = entry->attnum;
	column->typid = entry->type;
	column->first_vector = first_vector;
	column->nvectors = entry->nvectors;
	if (entry->byval > 1 || !strata_column_type_valid(&column->type))
		return "a column of an impossible type";
	column->dictionary = entry->dictionary;
	if (entry->dictionary != 0 &&
		(entry->dictionary > STRATA_MAX_OWNER || entry->attlen != -1))
		return "an impossible compression dictionary";

	for (uint32 i = first_vector; i < first_vector + entry->nvectors; i++)
	{
		const StrataVectorEntry *vector = &footer->entries[i];
		const char *what = strata_vector_entry_check(vector);

		if (what != NULL)
			return what;
		if ((vector->flags & STRATA_VECTOR_SHARED) != 0 && entry->dictionary == 0)
			return "a vector with a compression dictionary in a column without";
		if (vector->length > end - offset)
			return "a vector beyond its column";
		if (vector->rows > footer->rows - row)
			return "more rows in a column than in the row group";
		footer->offsets[i] = offset;
		footer->first_rows[i] = row;
		offset += vector->length;
		row += vector->rows;
	}
	if (offset != end)
		return "a column longer than its vectors";
	if (row != footer->rows)
		return "fewer rows in a column than in the row group";
	return NULL;
}

const char *
strata_footer_decode(const char *bytes, StrataFooter *footer)
{
	StrataGroupHeader header;
	uint64		offset = 0;
	uint32		vector = 0;

	memcpy(&header, bytes, sizeof(header));
	bytes += sizeof(header);

	lay_out(footer, &header, (char *) footer);
	footer->rows = header.rows;
	footer->natts = header.natts;
	footer->ncolumns = header.ncolumns;
	footer->nvectors = header.nvectors;
	footer->length = sizeof(header) + header.ncolumns * sizeof(StrataColumnEntry) +
		header.nvectors * sizeof(StrataVectorEntry) + header.zones_length +
		sizeof(StrataGroupTrailer);
	footer->hash_offset = header.data_length;
	footer->hash_length = header.hash_length;
	footer->hash_crc = header.hash_crc;
	footer->zones_length = header.zones_length;
	memcpy(footer->entries, bytes + header.ncolumns * sizeof(StrataColumnEntry),
		   header.nvectors * sizeof(StrataVectorEntry));
	memcpy(footer->zones,
		   bytes + header.ncolumns * sizeof(StrataColumnEntry) +
			   header.nvectors * sizeof(StrataVectorEntry),
		   header.zones_length);

	for (uint32 i = 0; i < header.ncolumns; i++)
	{
		StrataColumnEntry entry;
		const char *what;

		memcpy(&entry, bytes + i * sizeof(entry), sizeof(entry));
		if (entry.attnum < 1 || entry.attnum > (int) header.natts ||
			(i > 0 && entry.attnum <= footer->columns[i - 1].attnum))
			return "columns out of order";
		if (entry.nvectors > header.nvectors - vector ||
			entry.length > header.data_length - offset)
			return "a column beyond the row group";
		what = decode_column(&entry, offset, vector, footer, &footer->columns[i]);
		if (what != NULL)
			return what;
		offset += entry.length;
		vector += entry.nvectors;
	}
	if (offset != header.data_length || vector != header.nvectors)
		return "bytes that belong to no column";
	return NULL;
}

const StrataFooterColumn *
strata_footer_column(const StrataFooter *footer, AttrNumber attnum)
{
	uint32		low = 0;
	uint32		high = footer->ncolumns;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (footer->columns[middle].attnum < attnum)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < footer->ncolumns && footer->columns[low].attnum == attnum)
		return &footer->columns[low];
	return NULL;
}
