/*-------------------------------------------------------------------------
 *
 * zones.h
 *	  Building the zone maps of a row group.
 *
 * Serialised zone maps are a StrataZonesHeader, a StrataZoneEntry for each
 * column of which something is known, by attribute number, then the minimum
 * and maximum of each entry in turn: an int64 for by-value types, else the
 * value's image.  The same bytes stand in the row group's footer and in its
 * manifest row.
 *
 * IDENTIFICATION
 *	  src/base/zones.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ZONES_H
#define STRATA_ZONES_H

#include "base/codec.h"

#include "access/tupdesc.h"
#include "fmgr.h"
#include "lib/stringinfo.h"

#define STRATA_ZONES_VERSION	1

/* A column with a longer value has no minimum and maximum. */
#define STRATA_ZONE_MAX_VALUE	64

typedef struct StrataZonesHeader
{
	uint16		version;
	uint16		count;
} StrataZonesHeader;

#define STRATA_ZONE_ALL_NULL	0x01
#define STRATA_ZONE_HAS_NULL	0x02
#define STRATA_ZONE_FLAGS		0x03

typedef struct StrataZoneEntry
{
	int16		attnum;
	uint8		flags;
	uint8		unused;
	Oid			type;
	Oid			collation;
	uint32		collation_version;	/* how that sorted then */
	uint16		min_length;		/* 0 with ALL_NULL */
	uint16		max_length;
} StrataZoneEntry;

/* How the values of a by-value type are ordered. */
typedef enum StrataZoneOrder
{
	STRATA_ZONE_NONE,			/* no order, or a value was too long */
	STRATA_ZONE_SIGNED,
	STRATA_ZONE_UNSIGNED,
	STRATA_ZONE_FLOAT4,
	STRATA_ZONE_FLOAT8,
	STRATA_ZONE_FUNCTION		/* ask the operator class */
} StrataZoneOrder;

typedef struct StrataZoneBuilder
{
	StrataColumnType type;
	AttrNumber	attnum;
	Oid			typid;
	Oid			collation;
	StrataZoneOrder order;
	FmgrInfo   *cmp;
	bool		has_null;
	bool		has_any;		/* a value that is not null, ordered or not */
	bool		has_value;		/* min and max are set */
	int64		min;			/* by-value types */
	int64		max;
	union
	{
		char		bytes[STRATA_ZONE_MAX_VALUE];
		int64		align_int64;
		double		align_double;
	}			min_image, max_image;
} StrataZoneBuilder;

extern void strata_zone_begin(StrataZoneBuilder *zone, Form_pg_attribute att);
extern void strata_zone_add_integers(StrataZoneBuilder *zone, const int64 *values, uint32 n);
extern void strata_zone_add_image(StrataZoneBuilder *zone, const char *image);

/* Which of two values is first?  Not for a zone of order NONE. */
extern int	strata_zone_compare(const StrataZoneBuilder *zone, Datum a, Datum b);

/* Append the zone maps of n columns to buf; false when there is nothing to say. */
extern bool strata_zones_serialize(const StrataZoneBuilder *const *zones, int n,
								   StringInfo buf);

#endif							/* STRATA_ZONES_H */
