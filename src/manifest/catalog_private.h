/*-------------------------------------------------------------------------
 *
 * catalog_private.h
 *	  What the files that access the manifest tables share.
 *
 *	catalog.c		finding, scanning and writing rows of any of them
 *	catalog_rows.c	what the rows of each say
 *
 * IDENTIFICATION
 *	  src/manifest/catalog_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CATALOG_PRIVATE_H
#define STRATA_CATALOG_PRIVATE_H

#include "manifest/catalog.h"

#include "access/skey.h"

/* Columns of the widest table. */
#define STRATA_MAX_TABLE_NATTS	25

/*
 * Columns in their order.  Between them a table may have dropped ones, as when
 * a later version of the extension had added one and was taken back.
 */
typedef struct StrataTableDef
{
	const char *name;
	const char *index;
	int			natts;
	Oid			types[STRATA_MAX_TABLE_NATTS];
} StrataTableDef;

extern const StrataTableDef strata_table_defs[STRATA_NTABLES];

/* A scan of the rows that keys, on columns of the table's named index, want. */
extern void strata_table_scan_begin_keys(StrataTableScan *scan, StrataTable table,
										 LOCKMODE lockmode, ScanKey keys, int nkeys,
										 Snapshot snapshot, const char *index);

/*
 * Take a row apart; values may point into it.  Only the column nullable (or
 * none, -1) may be null: XX001.
 */
extern void strata_table_deform(StrataTable table, Relation rel, HeapTuple tuple,
								Datum *values, bool *isnull, int nullable);

/* Add a row; RowExclusiveLock on the table to the end of the transaction. */
extern void strata_table_insert(StrataTable table, Datum *values, bool *isnull);

/* Replace the one row of a scan, and end that.  No row: XX001. */
extern void strata_table_update(StrataTableScan *scan, Datum *values, bool *isnull);

#endif							/* STRATA_CATALOG_PRIVATE_H */
