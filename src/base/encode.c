/*-------------------------------------------------------------------------
 *
 * encode.c
 *	  Encoding the values of one vector.
 *
 * Given values, this layer finds the smallest of the cheap encodings
 * (format.h).  Whether zstd then pays is the writer's question; since packed
 * bits hide repetition from zstd, a vector comes with an alternative whose
 * numbers take whole bytes where that differs.
 *
 * Results lie in the backend's scratch buffers until the next vector.
 *
 * IDENTIFICATION
 *	  src/base/encode.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/codec.h"

#include "port/pg_bitutils.h"

/* Distinct by-value values up to which a dictionary is considered. */
#define MAX_DISTINCT	256
#define DISTINCT_SLOTS	1024	/* of the hash table that finds them */

int
strata_width(uint64 value)
{
	int			width = value == 0 ? 0 : pg_leftmost_one_pos64(value) + 1;

	return width > 57 ? 64 : width;
}

Size
strata_packed_length(Size n, int width)
{
	return (n * (Size) width + 7) / 8;
}

/* The same width in whole bytes that decode fastest and compress best. */
static int
byte_width(int width)
{
	if (width == 0)
		return 0;
	if (width <= 8)
		return 8;
	if (width <= 16)
		return 16;
	return width <= 32 ? 32 : 64;
}

void
strata_pack(const uint64 *values, Size n, int width, char *dst)
{
	uint64		pending = 0;
	int			npending = 0;

	switch (width)
	{
		case 0:
			return;
		case 8:
			for (Size i = 0; i < n; i++)
				((uint8 *) dst)[i] = (uint8) values[i];
			return;
		case 16:
			for (Size i = 0; i < n; i++)
			{
				uint16		v = (uint16) values[i];

				memcpy(dst + i * sizeof(v), &v, sizeof(v));
			}
			return;
		case 32:
			for (Size i = 0; i < n; i++)
			{
				uint32		v = (uint32) values[i];

				memcpy(dst + i * sizeof(v), &v, sizeof(v));
			}
			return;
		case 64:
			memcpy(dst, values, n * sizeof(uint64));
			return;
		default:
			break;
	}

	/* fewer than 8 bits are ever left over, so 57 more always fit */
	for (Size i = 0; i < n; i++)
	{
		pending |= values[i] << npending;
		npending += width;
		while (npending >= 8)
		{
			*dst++ = (char) pending;
			pending >>= 8;
			npending -= 8;
		}
	}
	if (npending > 0)
		*dst = (char) pending;
}

static Size
bitmap_length(const uint8 *present, uint32 rows)
{
	return present == NULL ? 0 : TYPEALIGN(8, ((Size) rows + 7) / 8);
}

/* Start raw bytes with the null bitmap; returns where the body goes. */
static char *
put_bitmap(char *raw, const uint8 *present, uint32 rows)
{
	Size		len = bitmap_length(present, rows);

	if (len > 0)
	{
		Size		used = ((Size) rows + 7) / 8;

		memcpy(raw, present, used);
		memset(raw + used, 0, len - used);
	}
	return raw + len;
}

static inline uint32
distinct_slot(int64 value)
{
	return (uint32) (((uint64) value * UINT64CONST(0x9E3779B97F4A7C15)) >> 54);
}

StaticAssertDecl(DISTINCT_SLOTS == 1 << (64 - 54), "distinct_slot does not fit its table");

/*
 * Find the distinct values, in order of appearance, and the code of each
 * value.  Returns their number, or 0 when there are more than MAX_DISTINCT.
 */
static uint32
find_distinct(const int64 *values, uint32 n, int64 *distinct, uint64 *codes)
{
	uint16		slots[DISTINCT_SLOTS];	/* code + 1, 0: free */
	uint32		ndistinct = 0;

	memset(slots, 0, sizeof(slots));
	for (uint32 i = 0; i < n; i++)
	{
		uint32		slot = distinct_slot(values[i]);

		while (slots[slot] != 0 && distinct[slots[slot] - 1] != values[i])
			slot = (slot + 1) % DISTINCT_SLOTS;
		if (slots[slot] == 0)
		{
			if (ndistinct == MAX_DISTINCT)
				return 0;
			distinct[ndistinct++] = values[i];
			slots[slot] = (uint16) ndistinct;
		}
		codes[i] = slots[slot] - 1;
	}
	return ndistinct;
}

static Size
encode_packed(char *raw, const uint8 *present, uint32 rows, int64 base, int64 step,
			  const uint64 *packed, Size npacked, int width)
{
	StrataPackedHeader header = {.base = base, .step = step, .width = width};
	char	   *body = put_bitmap(raw, present, rows);

	memcpy(body, &header, sizeof(header));
	body += sizeof(header);
	strata_pack(packed, npacked, width, body);
	return (body - raw) + strata_packed_length(npacked, width);
}

static Size
encode_codes(char *raw, const uint8 *present, uint32 rows, const void *values,
			 Size values_length, uint32 nvalues, const uint64 *codes, uint32 ncodes, int width)
{
	StrataDictHeader header = {
		.nvalues = nvalues,
		.width = width,
		.values_length = TYPEALIGN(8, values_length)};
	char	   *body = put_bitmap(raw, present, rows);

	memcpy(body, &header, sizeof(header));
	body += sizeof(header);
	memcpy(body, values, values_length);
	memset(body + values_length, 0, header.values_length - values_length);
	body += header.values_length;
	strata_pack(codes, ncodes, width, body);
	return (body - raw) + strata_packed_length(ncodes, width);
}

void
strata_encode_integers(const int64 *values, uint32 nvalues, const uint8 *present,
					   uint32 rows, StrataEncoded *out)
{
	uint64		packed[STRATA_VECTOR_ROWS];
	int64		distinct[MAX_DISTINCT];
	int64		min = PG_INT64_MAX;
	int64		max = PG_INT64_MIN;
	int64		min_step = PG_INT64_MAX;
	int64		max_step = PG_INT64_MIN;
	int			width;
	int			step_width = 64;
	Size		length;
	Size		overhead = bitmap_length(present, rows) + sizeof(StrataPackedHeader);

	Assert(nvalues > 0 && nvalues <= STRATA_VECTOR_ROWS);
	memset(out, 0, sizeof(*out));
	if (present != NULL)
		out->flags = STRATA_VECTOR_NULLS;
	out->raw = strata_scratch(STRATA_SCRATCH_RAW,
							  overhead + nvalues * sizeof(int64));

	for (uint32 i = 0; i < nvalues; i++)
	{
		min = Min(min, values[i]);
		max = Max(max, values[i]);
	}
	if (min == max && present == NULL)
	{
		out->encoding = STRATA_ENCODING_CONSTANT;
		memcpy(out->raw, values, sizeof(int64));
		out->raw_length = sizeof(int64);
		return;
	}
	width = strata_width((uint64) max - (uint64) min);
	length = strata_packed_length(nvalues, width);
	out->encoding = STRATA_ENCODING_FOR;

	/* Differences wrap around; decoding adds them up the same way. */
	if (nvalues >= 3 && width > 1)
	{
		for (uint32 i = 1; i < nvalues; i++)
		{
			int64		step = (int64) ((uint64) values[i] - (uint64) values[i - 1]);

			min_step = Min(min_step, step);
			max_step = Max(max_step, step);
		}
		step_width = strata_width((uint64) max_step - (uint64) min_step);
		if (strata_packed_length(nvalues - 1, step_width) < length - length / 8)
		{
			out->encoding = STRATA_ENCODING_DELTA;
			length = strata_packed_length(nvalues - 1, step_width);
		}
	}

	if (length > nvalues / 2)
	{
		uint32		ndistinct = find_distinct(values, nvalues, distinct, packed);

		if (ndistinct > 0)
		{
			int			code_width = strata_width(ndistinct - 1);
			Size		dict_length = ndistinct * sizeof(int64) +
				strata_packed_length(nvalues, code_width);

			if (dict_length < length - length / 4)
			{
				out->encoding = STRATA_ENCODING_DICTIONARY;
				out->raw_length = encode_codes(out->raw, present, rows, distinct,
											   ndistinct * sizeof(int64), ndistinct,
											   packed, nvalues, code_width);
				if (code_width != byte_width(code_width))
				{
					out->alternative = strata_scratch(STRATA_SCRATCH_PACKED,
													  out->raw_length + nvalues);
					out->alternative_length =
						encode_codes(out->alternative, present, rows, distinct,
									 ndistinct * sizeof(int64), ndistinct,
									 packed, nvalues, byte_width(code_width));
				}
				return;
			}
		}
	}

	if (out->encoding == STRATA_ENCODING_DELTA)
	{
		width = step_width;
		for (uint32 i = 1; i < nvalues; i++)
			packed[i - 1] = (uint64) values[i] - (uint64) values[i - 1] - (uint64) min_step;
		out->raw_length = encode_packed(out->raw, present, rows, values[0], min_step,
										packed, nvalues - 1, width);
	}
	else
	{
		for (uint32 i = 0; i < nvalues; i++)
			packed[i] = (uint64) values[i] - (uint64) min;
		out->raw_length = encode_packed(out->raw, present, rows, min, 0,
										packed, nvalues, width);
	}
	if (width != byte_width(width))
	{
		bool		delta = out->encoding == STRATA_ENCODING_DELTA;

		out->alternative = strata_scratch(STRATA_SCRATCH_PACKED,
										  overhead + nvalues * sizeof(int64));
		out->alternative_length =
			encode_packed(out->alternative, present, rows, delta ? values[0] : min,
						  delta ? min_step : 0, packed, delta ? nvalues - 1 : nvalues,
						  byte_width(width));
	}
}

void
strata_encode_images(const char *images, Size images_length, uint32 nimages,
					 const uint16 *codes, uint32 nvalues, const uint8 *present,
					 uint32 rows, StrataEncoded *out)
{
	uint64		packed[STRATA_VECTOR_ROWS];
	int			width;
	Size		overhead = bitmap_length(present, rows);

	Assert(nvalues > 0 && nvalues <= STRATA_VECTOR_ROWS);
	memset(out, 0, sizeof(*out));
	if (present != NULL)
		out->flags = STRATA_VECTOR_NULLS;

	if (codes == NULL || (nimages == 1 && present == NULL))
	{
		char	   *body;

		out->encoding = nimages == 1 && present == NULL ?
							STRATA_ENCODING_CONSTANT :
							STRATA_ENCODING_PLAIN;
		out->raw = strata_scratch(STRATA_SCRATCH_RAW, overhead + images_length);
		body = put_bitmap(out->raw, present, rows);
		memcpy(body, images, images_length);
		out->raw_length = overhead + images_length;
		return;
	}

	for (uint32 i = 0; i < nvalues; i++)
		packed[i] = codes[i];
	width = strata_width(nimages - 1);
	overhead += sizeof(StrataDictHeader) + 8;
	out->encoding = STRATA_ENCODING_DICTIONARY;
	out->raw = strata_scratch(STRATA_SCRATCH_RAW,
							  overhead + images_length + strata_packed_length(nvalues, width));
	out->raw_length = encode_codes(out->raw, present, rows, images, images_length, nimages,
								   packed, nvalues, width);
	if (width != byte_width(width))
	{
		out->alternative = strata_scratch(STRATA_SCRATCH_PACKED,
										  overhead + images_length +
										  strata_packed_length(nvalues, byte_width(width)));
		out->alternative_length = encode_codes(out->alternative, present, rows, images,
											   images_length, nimages, packed, nvalues,
											   byte_width(width));
	}
}
