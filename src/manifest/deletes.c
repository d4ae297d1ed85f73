/*-------------------------------------------------------------------------
 *
 * deletes.c
 *	  Superseded base rows as bytes.
 *
 * A row of strata.deletes holds a version byte and then, for each row group in
 * ascending order,
 *
 *	varint	difference to the row group number before (the first: to 0)
 *	varint	count of rows * 2, plus 1 when a bitmap follows
 *	either	count varints, each the distance to the row before minus 1 (the
 *			first: the row itself)
 *	or		varint number of bytes, then a bitmap of rows, lowest bit first
 *
 * whichever of the two is shorter.  Varints are base 128, lowest group first.
 *
 * IDENTIFICATION
 *	  src/manifest/deletes.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog.h"
#include "manifest/deletes.h"

#include "lib/stringinfo.h"
#include "port/pg_bitutils.h"

#define DELETES_VERSION		1

/* A row stops taking row groups when it is this long. */
#define DELETES_ROW_BYTES	(1024 * 1024)

typedef struct Reader
{
	const uint8 *next;
	const uint8 *end;
} Reader;

static void
put_varint(StringInfo buf, uint64 value)
{
	while (value >= 0x80)
	{
		appendStringInfoCharMacro(buf, (char) ((value & 0x7F) | 0x80));
		value >>= 7;
	}
	appendStringInfoCharMacro(buf, (char) value);
}

static void
malformed(void)
{
	strata_table_corrupted(STRATA_TABLE_DELETES, "deletes are malformed");
}

static uint64
get_varint(Reader *reader)
{
	uint64		value = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		uint8		byte;

		if (reader->next >= reader->end)
			malformed();
		byte = *reader->next++;
		value |= (uint64) (byte & 0x7F) << shift;
		if ((byte & 0x80) == 0)
			return value;
	}
	malformed();
	return 0;					/* keep compiler quiet */
}

/* The rows of one row group, as a list and as a bitmap; the shorter is kept. */
static void
put_rows(StringInfo buf, StringInfo list, const uint64 *tids, uint32 count)
{
	uint32		last = (uint32) (tids[count - 1] & 0xFFFF);
	uint32		nbytes = last / 8 + 1;
	int64		previous = -1;

	resetStringInfo(list);
	for (uint32 i = 0; i < count; i++)
	{
		int64		row = (int64) (tids[i] & 0xFFFF);

		put_varint(list, (uint64) (row - previous - 1));
		previous = row;
	}

	if ((uint32) list->len <= nbytes)
	{
		put_varint(buf, (uint64) count * 2);
		appendBinaryStringInfo(buf, list->data, list->len);
	}
	else
	{
		uint8	   *bitmap = palloc0(nbytes);

		for (uint32 i = 0; i < count; i++)
		{
			uint32		row = (uint32) (tids[i] & 0xFFFF);

			bitmap[row / 8] |= (uint8) (1 << (row % 8));
		}
		put_varint(buf, (uint64) count * 2 + 1);
		put_varint(buf, nbytes);
		appendBinaryStringInfo(buf, (char *) bitmap, nbytes);
		pfree(bitmap);
	}
}

bytea *
strata_deletes_encode(const uint64 *tids, uint64 ntids, uint64 *used)
{
	StringInfoData buf;
	StringInfoData list;
	uint64		previous = 0;
	uint64		i = 0;

	initStringInfo(&buf);
	initStringInfo(&list);
	appendStringInfoSpaces(&buf, VARHDRSZ);
	appendStringInfoChar(&buf, DELETES_VERSION);

	while (i < ntids && buf.len < DELETES_ROW_BYTES)
	{
		uint64		number = tids[i] >> 16;
		uint64		n = 1;

		/* There are fewer rows than 65,536 in a row group, each once. */
		while (i + n < ntids && tids[i + n] >> 16 == number)
		{
			Assert(tids[i + n] > tids[i + n - 1]);
			n++;
		}
		Assert(number > previous && n <= STRATA_MAX_GROUP_ROWS);
		put_varint(&buf, number - previous);
		put_rows(&buf, &list, &tids[i], (uint32) n);
		previous = number;
		i += n;
	}

	pfree(list.data);
	SET_VARSIZE(buf.data, buf.len);
	*used = i;
	return (bytea *) buf.data;
}

void
strata_deletes_decode(const bytea *bytes, uint64 ntids, StrataDeletesCallback callback,
					  void *arg)
{
	Reader		reader;
	uint64		number = 0;
	uint64		found = 0;

	reader.next = (const uint8 *) VARDATA_ANY(bytes);
	reader.end = reader.next + VARSIZE_ANY_EXHDR(bytes);
	if (reader.next >= reader.end || *reader.next++ != DELETES_VERSION)
		malformed();

	while (reader.next < reader.end)
	{
		uint64		step = get_varint(&reader);
		uint64		word = get_varint(&reader);
		uint64		count = word / 2;

		if (step == 0 || step > STRATA_MAX_ROW_GROUP - number ||
			count == 0 || count > STRATA_MAX_GROUP_ROWS)
			malformed();
		number += step;
		found += count;

		if (word % 2 == 0)
		{
			uint64		next_row = 0;

			for (uint64 i = 0; i < count; i++)
			{
				uint64		distance = get_varint(&reader);

				if (distance >= STRATA_MAX_GROUP_ROWS - next_row)
					malformed();
				callback((uint32) number, (uint32) (next_row + distance), arg);
				next_row += distance + 1;
			}
		}
		else
		{
			uint64		nbytes = get_varint(&reader);
			uint64		left = count;

			if (nbytes > (uint64) (reader.end - reader.next) ||
				nbytes > (STRATA_MAX_GROUP_ROWS + 7) / 8)
				malformed();
			for (uint64 i = 0; i < nbytes; i++)
			{
				uint8		byte = reader.next[i];

				while (byte != 0)
				{
					int			bit = pg_rightmost_one_pos32(byte);

					if (left-- == 0)
						malformed();
					callback((uint32) number, (uint32) (i * 8 + bit), arg);
					byte &= byte - 1;
				}
			}
			if (left != 0)
				malformed();
			reader.next += nbytes;
		}
	}
	if (found != ntids)
		malformed();
}
