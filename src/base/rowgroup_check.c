/*-------------------------------------------------------------------------
 *
 * rowgroup_check.c
 *	  Is everything in a row group what it should be?
 *
 * For verify and repair: every page, frame, checksum and bound, and each
 * column's zone map against the column's values.  A wrong zone map damages no
 * row, but hides rows from whoever looks for them.
 *
 * The zone map that queries use is the manifest's.  It must be the footer's,
 * byte for byte; that one has a checksum, so its values are safe to hand to type
 * code, and is compared with every value of the row group.  Where it says
 * nothing to a query (another type or collation by now, or another version of
 * that), nothing is compared.
 *
 * Comparison functions are the type's code: the caller has become the table's
 * owner.
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/rowgroup_reader.h"
#include "base/zones.h"
#include "storage/extent.h"
#include "storage/salvage.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---- zone maps ---- */

/* The zone map of a column, and what was seen of its values so far. */
typedef struct CheckZone
{
	StrataZone	zone;			/* known: false: nothing to be compared */
	StrataZoneBuilder order;
	bool		seen_null;
	bool		seen_min;
	bool		seen_max;
	const char *what;			/* that is not so of a row, the first one */
	uint32		row;
	MemoryContext mcxt;			/* what type code allocates */
} CheckZone;

/*
 * The column whose zone map in b is not as in a; 0: the whole is another.
 * Both are zone maps as serialised, and differ.
 */
static AttrNumber
zones_difference(const char *a, Size a_length, const char *b, Size b_length)
{
	Size		common = Min(a_length, b_length);
	Size		at = 0;
	Size		values;
	StrataZonesHeader header;

	while (at < common && a[at] == b[at])
		at++;
	if (a_length < sizeof(header) || at < sizeof(header))
		return 0;
	memcpy(&header, a, sizeof(header));
	values = sizeof(header) + header.count * sizeof(StrataZoneEntry);
	for (int i = 0; i < header.count && values <= a_length; i++)
	{
		Size		place = sizeof(header) + i * sizeof(StrataZoneEntry);
		StrataZoneEntry entry;

		memcpy(&entry, a + place, sizeof(entry));
		values += (Size) entry.min_length + entry.max_length;
		if ((at >= place && at < place + sizeof(entry)) ||
			(at >= values - entry.min_length - entry.max_length && at < values))
			return entry.attnum;
	}
	return 0;
}

/* NULL, or how the manifest's zone maps are not those of the footer. */
static char *
check_listed_zones(StrataGroupReader *reader, const bytea *listed)
{
	const StrataFooter *footer = reader->footer;
	const char *bytes = listed != NULL ? VARDATA_ANY(listed) : NULL;
	Size		length = listed != NULL ? VARSIZE_ANY_EXHDR(listed) : 0;
	AttrNumber	attnum;

	if (length == footer->zones_length &&
		(length == 0 || memcmp(bytes, footer->zones, length) == 0))
		return NULL;
	attnum = length > 0 ? zones_difference(footer->zones, footer->zones_length, bytes, length) : 0;
	if (attnum == 0)
		return psprintf("%s of relation \"%s\": zone maps in the manifest are not those of its footer",
						reader->object, RelationGetRelationName(reader->storage));
	return psprintf("%s of relation \"%s\": zone map of column %d in the manifest is not that of its footer",
					reader->object, RelationGetRelationName(reader->storage), attnum);
}

/* Get ready to look at the values of a column. */
static void
zone_begin(CheckZone *check, StrataGroupReader *reader, const bytea *zones,
		   const StrataFooterColumn *column)
{
	TupleDesc	desc = reader->store->desc;
	Form_pg_attribute att;

	memset(check, 0, sizeof(*check));
	if (column->attnum > desc->natts)
		return;
	att = TupleDescAttr(desc, column->attnum - 1);
	if (att->attisdropped || column->typid != att->atttypid ||
		column->type.attlen != att->attlen || column->type.byval != att->attbyval ||
		column->type.align != att->attalign)
		return;
	strata_zone_get(reader->store, zones, column->attnum, &check->zone);
	strata_zone_begin(&check->order, att);
	check->mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata zone map check",
										ALLOCSET_SMALL_SIZES);
}

/* What the zone map says of the value of a row that is not so, or NULL. */
static const char *
zone_check_value(CheckZone *check, Datum value, bool isnull)
{
	const StrataZone *zone = &check->zone;
	int			cmp;

	if (isnull)
	{
		check->seen_null = true;
		return zone->has_null ? NULL : "is null";
	}
	if (zone->all_null)
		return "is not null";
	if (check->order.order == STRATA_ZONE_NONE)
	{
		check->seen_min = check->seen_max = true;
		return NULL;
	}
	cmp = strata_zone_compare(&check->order, value, zone->min);
	if (cmp < 0)
		return "is less than its minimum";
	check->seen_min |= cmp == 0;
	cmp = strata_zone_compare(&check->order, value, zone->max);
	if (cmp > 0)
		return "is greater than its maximum";
	check->seen_max |= cmp == 0;
	return NULL;
}

/* Look at the values of a vector; first is its first row. */
static void
zone_check_vector(CheckZone *check, const StrataVector *vector, uint32 first)
{
	uint32		n = vector->mask == 0 ? 1 : vector->rows;
	MemoryContext old;

	if (!check->zone.known || check->what != NULL)
		return;
	old = MemoryContextSwitchTo(check->mcxt);
	for (uint32 i = 0; i < n && check->what == NULL; i++)
	{
		bool		isnull = vector->nulls != NULL && vector->nulls[i];

		/* Equal values of a vector are often one image. */
		if (i > 0 && !isnull && vector->values[i] == vector->values[i - 1] &&
			(vector->nulls == NULL || !vector->nulls[i - 1]))
			continue;
		check->row = first + i;
		check->what = zone_check_value(check, vector->values[i], isnull);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->mcxt);
}

/*
 * All values were looked at: NULL, or what is wrong with the zone map.  What it
 * says is exact, so one that says less hides nothing, but is not what was
 * written.
 */
static char *
zone_end(CheckZone *check, StrataGroupReader *reader, AttrNumber attnum)
{
	const StrataZone *zone = &check->zone;
	const char *what = NULL;

	if (check->what != NULL)
		what = psprintf("row %u %s", check->row, check->what);
	else if (zone->known && zone->has_null && !check->seen_null)
		what = "no row is null, although it says that some are";
	else if (zone->known && !zone->all_null && !check->seen_min)
		what = "no row has its minimum";
	else if (zone->known && !zone->all_null && !check->seen_max)
		what = "no row has its maximum";
	if (what == NULL)
		return NULL;
	return psprintf("%s of relation \"%s\": zone map of column %d: %s", reader->object,
					RelationGetRelationName(reader->storage), attnum, what);
}

/* ---- frames ---- */

/* The dictionary of a column, for strata_attempt. */
typedef struct PinDictionary
{
	StrataGroupReader *reader;
	const StrataFooterColumn *column;
} PinDictionary;

/* StrataAction */
static void
pin_dictionary(void *arg)
{
	PinDictionary *pin = arg;

	(void) strata_reader_dictionary(pin->reader, pin->column);
}

/* Is it a column of the table now, of its key? */
static bool
column_needed(StrataGroupReader *reader, AttrNumber attnum, bool *of_key)
{
	const StrataStore *store = reader->store;

	*of_key = false;
	for (int i = 0; i < store->key.natts; i++)
		*of_key = *of_key || store->key.attnum[i] == attnum;
	return attnum <= store->desc->natts && !TupleDescAttr(store->desc, attnum - 1)->attisdropped;
}

/* Keep the first problem there is. */
static void
note_problem(StrataGroupDamage *out, MemoryContext result_mcxt, const char *problem)
{
	if (problem != NULL && out->problem == NULL)
		out->problem = MemoryContextStrdup(result_mcxt, problem);
}

/*
 * Look at all vectors of a column, and unless zones is NULL at what these zone
 * maps say of it.
 */
static void
examine_column(StrataGroupReader *reader, const StrataFooterColumn *column, const bytea *zones,
			   StrataGroupDamage *out, MemoryContext result_mcxt)
{
	const StrataFooter *footer = reader->footer;
	PinDictionary pin = {.reader = reader, .column = column};
	char	   *no_dictionary = NULL;
	CheckZone	zone = {0};
	bool		all_read = true;

	if (column->dictionary != 0)
		no_dictionary = strata_attempt(pin_dictionary, &pin);
	if (zones != NULL)
		zone_begin(&zone, reader, zones, column);
	for (uint32 i = 0; i < column->nvectors; i++)
	{
		const StrataVectorEntry *entry = &footer->entries[column->first_vector + i];
		uint32		first = footer->first_rows[column->first_vector + i];
		StrataVector vector;
		char	   *memory;
		const char *what = NULL;
		bool		of_key;

		CHECK_FOR_INTERRUPTS();
		if (no_dictionary != NULL && (entry->flags & STRATA_VECTOR_SHARED) != 0)
			what = no_dictionary;
		else
		{
			/* Pages are known to be readable, or read around. */
			memory = MemoryContextAllocHuge(reader->mcxt,
											strata_vector_size(&column->type, entry));
			what = strata_reader_decode(reader, column, i, &vector, memory);
			if (what == NULL)
				zone_check_vector(&zone, &vector, first);
			else
				what = psprintf("%s: %s in vector %u of column %d", reader->object, what, i,
								column->attnum);
			pfree(memory);
		}
		if (what == NULL)
			continue;

		all_read = false;
		note_problem(out, result_mcxt, what);
		if (!column_needed(reader, column->attnum, &of_key))
			continue;
		for (int k = 0; k < (of_key ? 2 : 1); k++)
		{
			uint8	  **bitmap = k == 0 ? &out->lost : &out->key_lost;

			if (*bitmap == NULL)
				*bitmap = MemoryContextAllocZero(result_mcxt, (footer->rows + 7) / 8);
			for (uint32 row = first; row < first + entry->rows; row++)
				(*bitmap)[row >> 3] |= (uint8) (1 << (row & 7));
		}
	}
	if (all_read)
		note_problem(out, result_mcxt, zone_end(&zone, reader, column->attnum));
}

/* Does every page of a row group belong to it?  Note the first that does not. */
static void
examine_pages(StrataGroupReader *reader, uint32 nblocks, StrataGroupDamage *out,
			  MemoryContext result_mcxt)
{
	const StrataGroupRef *ref = &reader->ref;

	if (strata_extent_pages_sound(reader->storage, &ref->extent, ref->length, reader->strategy))
		return;
	for (uint32 i = 0; i < nblocks; i++)
	{
		StrataPageState state = strata_extent_page_state(reader->storage, &ref->extent,
														 ref->length, i, reader->strategy);

		if (state == STRATA_PAGE_SOUND)
			continue;
		reader->salvage = true;
		note_problem(out, result_mcxt,
					 psprintf(state == STRATA_PAGE_REFUSED ? "%s: block %u is not a valid page" :
															 "%s: block %u is not its own",
							  reader->object, ref->extent.block + i));
	}
}

void
strata_group_examine(StrataStore *store, Relation storage, const StrataGroupRef *ref,
					 const StrataRowGroup *base, bool counts, StrataGroupDamage *out)
{
	MemoryContext mcxt = CurrentMemoryContext;
	StrataGroupReader *reader = strata_reader_begin(store, storage, ref, true);
	MemoryContext old = MemoryContextSwitchTo(reader->mcxt);
	uint32		nblocks = strata_extent_blocks_for(ref->length);
	const bytea *zones = NULL;
	const char *what = NULL;

	memset(out, 0, sizeof(*out));

	/* Pages first: where all are sound, bytes are read the usual way. */
	if (nblocks > ref->extent.nblocks)
		what = "a length that does not fit its extent";
	else
		examine_pages(reader, nblocks, out, mcxt);

	if (what == NULL)
		what = strata_reader_footer(reader);
	out->unreadable = what != NULL;
	if (what == NULL && reader->footer->hash_length > 0)
	{
		uint32	   *hashes = palloc(reader->footer->hash_length);

		if (!strata_reader_bytes(reader, reader->footer->hash_offset, reader->footer->hash_length, hashes))
			what = "key hashes that cannot be read";
		else if (strata_crc(hashes, reader->footer->hash_length) != reader->footer->hash_crc)
			what = "key hashes with the wrong checksum";
	}
	if (what != NULL)
		note_problem(out, mcxt, psprintf("%s: %s", reader->object, what));

	if (!out->unreadable && base != NULL)
		note_problem(out, mcxt, check_listed_zones(reader, base->zones));
	if (!out->unreadable && counts)
		zones = strata_group_zones(reader);
	for (uint32 i = 0; !out->unreadable && i < reader->footer->ncolumns; i++)
		examine_column(reader, &reader->footer->columns[i], zones, out, mcxt);
	MemoryContextSwitchTo(old);
	strata_group_close(reader);
}

char *
strata_group_check(StrataStore *store, Relation storage, const StrataGroupRef *ref,
				   const StrataRowGroup *base, bool counts)
{
	StrataGroupDamage damage;

	strata_group_examine(store, storage, ref, base, counts, &damage);
	return damage.problem;
}
