/*-------------------------------------------------------------------------
 *
 * zones.c
 *	  Zone maps: minimum and maximum of each column of a row group.
 *
 * The order is that of the type's default B-tree operator class under the
 * column's collation, so NaN and infinities stand where that puts them, and a
 * zone map is ignored where the column's type or collation, or how that sorts,
 * is another by now.
 * A column gets no minimum and maximum when its type has no such order or one
 * that may change, or a value is longer than STRATA_ZONE_MAX_VALUE: a cut-off
 * value could be wrong under some collation, and comparing long values costs
 * more than it saves.
 *
 * Comparison functions are the type's code: the writer runs as whoever inserts
 * or as the table's owner.
 *
 * IDENTIFICATION
 *	  src/base/zones.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/collation.h"
#include "base/rowgroup.h"
#include "base/zones.h"

#include "catalog/pg_type.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* Built-in orders of by-value types that need no call. */
static StrataZoneOrder
order_of(Oid cmp_proc)
{
	switch (cmp_proc)
	{
		case F_BTBOOLCMP:
		case F_BTINT2CMP:
		case F_BTINT4CMP:
		case F_BTINT8CMP:
		case F_DATE_CMP:
		case F_TIME_CMP:
		case F_TIMESTAMP_CMP:
		case F_TIMESTAMPTZ_CMP:
		case F_CASH_CMP:
			return STRATA_ZONE_SIGNED;
		case F_BTOIDCMP:
		case F_BTCHARCMP:
			return STRATA_ZONE_UNSIGNED;
		case F_BTFLOAT4CMP:
			return STRATA_ZONE_FLOAT4;
		case F_BTFLOAT8CMP:
			return STRATA_ZONE_FLOAT8;
		default:
			return STRATA_ZONE_FUNCTION;
	}
}

/*
 * Will the values of this type keep their order as long as the column's
 * collation does?  Row types lose attributes; jsonb and ranges of text have
 * collations of their own, whose version nobody records.
 */
static bool
has_lasting_order(Oid typid)
{
	Oid			type = getBaseType(typid);
	Oid			range = type;
	Oid			element = get_base_element_type(type);

	if (OidIsValid(element))
		return has_lasting_order(element);
	if (type_is_multirange(type))
		range = get_multirange_range(type);
	if (type_is_range(range))
		return !OidIsValid(get_range_collation(range)) &&
			has_lasting_order(get_range_subtype(range));
	return type != JSONBOID && !type_is_rowtype(type);
}

void
strata_zone_begin(StrataZoneBuilder *zone, Form_pg_attribute att)
{
	TypeCacheEntry *typentry = lookup_type_cache(att->atttypid, TYPECACHE_CMP_PROC_FINFO);

	memset(zone, 0, sizeof(*zone));
	zone->type.attlen = att->attlen;
	zone->type.byval = att->attbyval;
	zone->type.align = att->attalign;
	zone->attnum = att->attnum;
	zone->typid = att->atttypid;
	zone->collation = att->attcollation;
	zone->cmp = &typentry->cmp_proc_finfo;
	if (!OidIsValid(typentry->cmp_proc) || !has_lasting_order(att->atttypid))
		zone->order = STRATA_ZONE_NONE;
	else if (att->attbyval)
		zone->order = order_of(typentry->cmp_proc);
	else
		zone->order = STRATA_ZONE_FUNCTION;
}

static inline int
compare(const StrataZoneBuilder *zone, Datum a, Datum b)
{
	switch (zone->order)
	{
		case STRATA_ZONE_SIGNED:
			return ((int64) a > (int64) b) - ((int64) a < (int64) b);
		case STRATA_ZONE_UNSIGNED:
			return ((uint64) a > (uint64) b) - ((uint64) a < (uint64) b);
		case STRATA_ZONE_FLOAT4:
			return float4_gt(DatumGetFloat4(a), DatumGetFloat4(b)) -
				float4_lt(DatumGetFloat4(a), DatumGetFloat4(b));
		case STRATA_ZONE_FLOAT8:
			return float8_gt(DatumGetFloat8(a), DatumGetFloat8(b)) -
				float8_lt(DatumGetFloat8(a), DatumGetFloat8(b));
		default:
			return DatumGetInt32(FunctionCall2Coll(zone->cmp, zone->collation, a, b));
	}
}

int
strata_zone_compare(const StrataZoneBuilder *zone, Datum a, Datum b)
{
	return compare(zone, a, b);
}

void
strata_zone_add_integers(StrataZoneBuilder *zone, const int64 *values, uint32 n)
{
	int64		min;
	int64		max;

	if (zone->order == STRATA_ZONE_NONE || n == 0)
		return;
	if (!zone->has_value)
	{
		zone->has_value = true;
		zone->min = zone->max = values[0];
	}
	min = zone->min;
	max = zone->max;
	switch (zone->order)
	{
		case STRATA_ZONE_SIGNED:
			for (uint32 i = 0; i < n; i++)
			{
				min = Min(min, values[i]);
				max = Max(max, values[i]);
			}
			break;
		case STRATA_ZONE_UNSIGNED:

			/*
			 * Sign extension keeps the unsigned order: the upper half of the
			 * range goes to the upper half of 64 bits.
			 */
			for (uint32 i = 0; i < n; i++)
			{
				min = (uint64) values[i] < (uint64) min ? values[i] : min;
				max = (uint64) values[i] > (uint64) max ? values[i] : max;
			}
			break;
		default:
			for (uint32 i = 0; i < n; i++)
			{
				if (i > 0 && values[i] == values[i - 1])
					continue;
				if (compare(zone, (Datum) values[i], (Datum) max) > 0)
					max = values[i];
				else if (compare(zone, (Datum) values[i], (Datum) min) < 0)
					min = values[i];
			}
			break;
	}
	zone->min = min;
	zone->max = max;
}

/* Length of an image; 0 when it is too long to be kept. */
static Size
image_length(const StrataColumnType *type, const char *image)
{
	Size		len;

	if (type->attlen > 0)
		len = type->attlen;
	else if (type->attlen == -1)
		len = VARSIZE_ANY(image);
	else
		len = strlen(image) + 1;
	return len <= STRATA_ZONE_MAX_VALUE ? len : 0;
}

void
strata_zone_add_image(StrataZoneBuilder *zone, const char *image)
{
	Size		len;

	if (zone->order == STRATA_ZONE_NONE)
		return;
	len = image_length(&zone->type, image);
	if (len == 0)
	{
		zone->order = STRATA_ZONE_NONE;
		return;
	}
	if (!zone->has_value)
	{
		zone->has_value = true;
		memcpy(zone->min_image.bytes, image, len);
		memcpy(zone->max_image.bytes, image, len);
	}
	else if (compare(zone, PointerGetDatum(image), PointerGetDatum(zone->max_image.bytes)) > 0)
		memcpy(zone->max_image.bytes, image, len);
	else if (compare(zone, PointerGetDatum(image), PointerGetDatum(zone->min_image.bytes)) < 0)
		memcpy(zone->min_image.bytes, image, len);
}

bool
strata_zones_serialize(const StrataZoneBuilder *const *zones, int n, StringInfo buf)
{
	StrataZonesHeader header = {.version = STRATA_ZONES_VERSION};
	int			start = buf->len;

	appendBinaryStringInfo(buf, (char *) &header, sizeof(header));
	for (int i = 0; i < n; i++)
	{
		const StrataZoneBuilder *zone = zones[i];
		StrataZoneEntry entry = {.attnum = zone->attnum};

		/* a column of nulls only says so whatever its type */
		if (zone->has_null && !zone->has_any)
			entry.flags = STRATA_ZONE_ALL_NULL | STRATA_ZONE_HAS_NULL;
		else if (zone->order == STRATA_ZONE_NONE)
			continue;
		else
		{
			entry.flags = zone->has_null ? STRATA_ZONE_HAS_NULL : 0;
			if (zone->type.byval)
				entry.min_length = entry.max_length = sizeof(int64);
			else
			{
				entry.min_length = image_length(&zone->type, zone->min_image.bytes);
				entry.max_length = image_length(&zone->type, zone->max_image.bytes);
			}
		}
		entry.type = zone->typid;
		entry.collation = zone->collation;
		entry.collation_version = strata_collation_version(zone->collation);
		appendBinaryStringInfo(buf, (char *) &entry, sizeof(entry));
		header.count++;
	}
	if (header.count == 0)
	{
		buf->len = start;
		return false;
	}
	memcpy(buf->data + start, &header, sizeof(header));

	for (int i = 0; i < header.count; i++)
	{
		const StrataZoneBuilder *zone = NULL;
		StrataZoneEntry entry;

		memcpy(&entry, buf->data + start + sizeof(header) + i * sizeof(entry), sizeof(entry));
		for (int j = 0; j < n && zone == NULL; j++)
		{
			if (zones[j]->attnum == entry.attnum)
				zone = zones[j];
		}
		appendBinaryStringInfo(buf, zone->type.byval ? (char *) &zone->min : zone->min_image.bytes, entry.min_length);
		appendBinaryStringInfo(buf, zone->type.byval ? (char *) &zone->max : zone->max_image.bytes, entry.max_length);
	}
	return true;
}

static void
corrupt(StrataStore *store, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("zone maps of a row group of foreign table %s are corrupted", store->name),
			 errdetail("Found %s.", what)));
}

/* A value at data, which must be a well-formed image of exactly len bytes. */
static bool
read_value(Form_pg_attribute att, const char *data, Size len, Datum *value)
{
	char	   *copy;

	if (att->attbyval)
	{
		int64		v;

		if (len != sizeof(v))
			return false;
		memcpy(&v, data, sizeof(v));
		*value = (Datum) v;
		return true;
	}
	if (len == 0 || len > STRATA_ZONE_MAX_VALUE)
		return false;
	copy = palloc(len);
	memcpy(copy, data, len);
	*value = PointerGetDatum(copy);
	if (att->attlen > 0)
		return len == (Size) att->attlen;
	if (att->attlen == -2)
		return strnlen(copy, len) == len - 1;
	if (VARATT_IS_1B(copy))
		return !VARATT_IS_1B_E(copy) && VARSIZE_1B(copy) == len;
	return len >= VARHDRSZ && VARATT_IS_4B_U(copy) && VARSIZE_4B(copy) == len;
}

void
strata_zone_get(StrataStore *store, const bytea *zones, AttrNumber attnum, StrataZone *zone)
{
	const char *data;
	Size		len;
	Size		offset;
	StrataZonesHeader header;
	Form_pg_attribute att;

	memset(zone, 0, sizeof(*zone));
	if (zones == NULL || attnum < 1 || attnum > store->desc->natts)
		return;
	data = VARDATA_ANY(zones);
	len = VARSIZE_ANY_EXHDR(zones);
	if (len < sizeof(header))
		corrupt(store, "no header");
	memcpy(&header, data, sizeof(header));
	if (header.version != STRATA_ZONES_VERSION)
		return;					/* says nothing to us */
	offset = sizeof(header) + header.count * sizeof(StrataZoneEntry);
	if (offset > len)
		corrupt(store, "more columns than bytes");

	att = TupleDescAttr(store->desc, attnum - 1);
	for (int i = 0; i < header.count; i++)
	{
		StrataZoneEntry entry;

		memcpy(&entry, data + sizeof(header) + i * sizeof(entry), sizeof(entry));
		if ((entry.flags & ~STRATA_ZONE_FLAGS) != 0)
			corrupt(store, "unknown flags");
		if ((Size) entry.min_length + entry.max_length > len - offset)
			corrupt(store, "a value beyond the end");
		if (entry.attnum != attnum)
		{
			offset += (Size) entry.min_length + entry.max_length;
			continue;
		}

		if (att->attisdropped || entry.type != att->atttypid ||
			entry.collation != att->attcollation ||
			entry.collation_version != strata_collation_version(entry.collation))
			return;
		if ((entry.flags & STRATA_ZONE_ALL_NULL) == 0 &&
			(!read_value(att, data + offset, entry.min_length, &zone->min) ||
			 !read_value(att, data + offset + entry.min_length, entry.max_length, &zone->max)))
			corrupt(store, "a malformed value");
		zone->known = true;
		zone->all_null = (entry.flags & STRATA_ZONE_ALL_NULL) != 0;
		zone->has_null = (entry.flags & STRATA_ZONE_HAS_NULL) != 0;
		zone->type = entry.type;
		zone->collation = entry.collation;
		return;
	}
}
