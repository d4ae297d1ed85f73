/*-------------------------------------------------------------------------
 *
 * catalog.h
 *	  Low-level access to the manifest tables: finding, scanning, writing and
 *	  checking rows.  Used by this layer only.
 *
 * IDENTIFICATION
 *	  src/manifest/catalog.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CATALOG_H
#define STRATA_CATALOG_H

#include "manifest/manifest.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/sdir.h"
#include "catalog/objectaddress.h"

typedef enum StrataTable
{
	STRATA_TABLE_STORE,
	STRATA_TABLE_SHARD,
	STRATA_TABLE_ROW_GROUP,
	STRATA_TABLE_DICTIONARY,
	STRATA_TABLE_DELETES,
	STRATA_TABLE_PASS
} StrataTable;

#define STRATA_NTABLES		(STRATA_TABLE_PASS + 1)

/* What a store row says of one column, by attribute number; on disk. */
typedef struct StrataColumn
{
	Oid			type;			/* InvalidOid: dropped */
	int32		typmod;
} StrataColumn;

typedef struct StrataStoreRow
{
	Oid			foreign_table;
	Oid			storage;
	uint32		incarnation;
	int			shards;
	int			nkeys;
	AttrNumber	key[INDEX_MAX_KEYS];
	int			ncolumns;
	StrataColumn *columns;		/* palloc'd */
	bytea	   *missing;		/* palloc'd, may be NULL */
} StrataStoreRow;

typedef struct StrataShardRow
{
	int			shard;
	uint32		incarnation;
	StrataShardState state;
} StrataShardRow;

typedef struct StrataGroupRow
{
	uint32		number;
	uint32		incarnation;
	StrataGroupRef ref;
	bytea	   *zones;			/* as stored, maybe toasted; may be NULL */
} StrataGroupRow;

typedef struct StrataDictionaryRow
{
	uint32		incarnation;
	StrataDictionaryRef ref;
} StrataDictionaryRow;

typedef struct StrataDeletesRow
{
	uint64		pass;			/* full xid */
	int			seq;
	uint32		incarnation;
	uint64		ntids;
	bytea	   *tids;			/* as stored, maybe toasted */
} StrataDeletesRow;

typedef struct StrataPassRow
{
	int64		id;
	bool		merge;			/* else it removed row groups */
	uint32		incarnation;
	int64		base_groups;	/* of the base table after it */
	int64		base_rows;
	int64		base_raw_bytes;
	int64		base_bytes;
} StrataPassRow;

/* Name of a table, for messages. */
extern const char *strata_table_name(StrataTable table);

/* ---- scans ---- */

/*
 * A scan of a store's rows in the order of the primary key.  snapshot NULL is
 * the catalog snapshot: whatever is committed now, and own changes.
 */
typedef struct StrataTableScan
{
	StrataTable table;
	Relation	rel;
	Relation	index;
	SysScanDesc scan;
	ScanDirection direction;
	LOCKMODE	lockmode;
} StrataTableScan;

extern void strata_table_scan_begin(StrataTableScan *scan, StrataTable table,
									LOCKMODE lockmode, Oid store, Snapshot snapshot);
/* The same for rows whose second key column has the given value. */
extern void strata_table_scan_begin_at(StrataTableScan *scan, StrataTable table,
									   LOCKMODE lockmode, Oid store, int64 second,
									   Snapshot snapshot);
/* The same for rows whose second key column, an int8, is greater than the value. */
extern void strata_table_scan_begin_after(StrataTableScan *scan, StrataTable table,
										  LOCKMODE lockmode, Oid store, int64 second,
										  Snapshot snapshot);
extern HeapTuple strata_table_scan_next(StrataTableScan *scan);
extern void strata_table_scan_end(StrataTableScan *scan);

/* Buffer that holds the tuple just returned. */
extern Buffer strata_table_scan_buffer(StrataTableScan *scan);

/* ---- decoding; what cannot be raises XX001 ---- */

extern void strata_decode_store(Relation rel, HeapTuple tuple, StrataStoreRow *row);
extern void strata_decode_shard(Relation rel, HeapTuple tuple, StrataShardRow *row);
extern void strata_decode_group(Relation rel, HeapTuple tuple, StrataGroupRow *row);
extern void strata_decode_dictionary(Relation rel, HeapTuple tuple, StrataDictionaryRow *row);
extern void strata_decode_deletes(Relation rel, HeapTuple tuple, StrataDeletesRow *row);
extern void strata_decode_pass(Relation rel, HeapTuple tuple, StrataPassRow *row);
extern void strata_table_corrupted(StrataTable table, const char *what) pg_attribute_noreturn();

/* ---- store rows ---- */

/* False when there is no such row. */
extern bool strata_store_row_read(Oid ftrelid, StrataStoreRow *row);
extern Oid	strata_store_row_of_storage(Oid storage);
extern void strata_store_row_insert(const StrataStoreRow *row);
extern void strata_store_row_update(const StrataStoreRow *row);

/* ---- other writing ---- */

extern void strata_shard_row_insert(Oid ftrelid, const StrataShardRow *row);
extern void strata_shard_row_update(Oid ftrelid, const StrataShardRow *row);
extern void strata_group_row_insert(Oid ftrelid, const StrataGroupRow *row);
extern void strata_dictionary_row_insert(Oid ftrelid, const StrataDictionaryRow *row);
extern void strata_deletes_row_insert(Oid ftrelid, const StrataDeletesRow *row);
extern void strata_pass_row_insert(Oid ftrelid, int64 id, const StrataPassRecord *record);

/* Delete a store's rows from a table, as the catalog snapshot sees them. */
extern void strata_table_delete(StrataTable table, Oid ftrelid);

#endif							/* STRATA_CATALOG_H */
