/*-------------------------------------------------------------------------
 *
 * catalog.c
 *	  Low-level access to the manifest tables in schema strata.
 *
 * The tables are plain heap tables, so MVCC, crash safety, replication and
 * backup of what they say are PostgreSQL's own.  They are read by scans of
 * their primary keys under the snapshot the caller names, never through SPI.
 * None of this checks privileges: nobody but strata's own code has any on
 * them, and what is read is filtered where it is shown.
 *
 * What is written says nothing to logical decoding: a publication FOR ALL
 * TABLES has these tables, whose rows would tell a subscriber the zone maps of
 * tables that are not published, or break it.  So rows are inserted without
 * their contents for decoding, deleted without a replica identity, and never
 * updated.
 *
 * Locks: readers hold AccessShareLock, writers RowExclusiveLock, to the end of
 * the scan or of the transaction.  Who may write a store's rows is decided by
 * the locks named in manifest.h.
 *
 * A superuser can write these tables, and a backup may be damaged: every row
 * is checked when it is decoded, so that what leaves this file stays within
 * the limits of strata.h and within its own length.
 *
 * IDENTIFICATION
 *	  src/manifest/catalog.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog.h"
#include "storage/extent.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(strata_manifest_guard);

/* Columns from 0, as in the extension's script; dropped ones do not count. */
enum
{
	STORE_FOREIGN_TABLE,
	STORE_STORAGE,
	STORE_INCARNATION,
	STORE_SHARDS,
	STORE_KEY,
	STORE_COLUMNS,
	STORE_MISSING,
	STORE_NATTS
};

enum
{
	SHARD_STORE,
	SHARD_SHARD,
	SHARD_INCARNATION,
	SHARD_MERGED_THROUGH,
	SHARD_FIRST_BLOCK,
	SHARD_FIRST_OWNER,
	SHARD_ROWS,
	SHARD_BYTES,
	SHARD_NATTS
};

enum
{
	GROUP_STORE,
	GROUP_NUMBER,
	GROUP_INCARNATION,
	GROUP_FIRST_BLOCK,
	GROUP_BLOCKS,
	GROUP_OWNER,
	GROUP_LENGTH,
	GROUP_RAW_BYTES,
	GROUP_ROWS,
	GROUP_ZONES,
	GROUP_NATTS
};

enum
{
	DICTIONARY_STORE,
	DICTIONARY_ID,
	DICTIONARY_INCARNATION,
	DICTIONARY_ATTNUM,
	DICTIONARY_FIRST_BLOCK,
	DICTIONARY_BLOCKS,
	DICTIONARY_OWNER,
	DICTIONARY_LENGTH,
	DICTIONARY_NATTS
};

enum
{
	DELETES_STORE,
	DELETES_ID,
	DELETES_SEQ,
	DELETES_INCARNATION,
	DELETES_N,
	DELETES_TIDS,
	DELETES_NATTS
};

enum
{
	PASS_STORE,
	PASS_ID,
	PASS_WHAT,
	PASS_GENERATIONS_MERGED,
	PASS_GENERATIONS_LEFT,
	PASS_ROWS_READ,
	PASS_ROWS_INSERTED,
	PASS_ROWS_REPLACED,
	PASS_ROWS_DELETED,
	PASS_ROWS_ABORTED,
	PASS_ROW_GROUPS_WRITTEN,
	PASS_ROW_GROUPS_ADOPTED,
	PASS_INDEX_PROBES,
	PASS_INDEX_BUILT,
	PASS_BASE_BYTES_READ,
	PASS_BYTES_READ,
	PASS_BYTES_WRITTEN,
	PASS_PEAK_MEMORY,
	PASS_INCARNATION,
	PASS_BASE_GROUPS,
	PASS_BASE_ROWS,
	PASS_BASE_RAW_BYTES,
	PASS_BASE_BYTES,
	PASS_STARTED,
	PASS_ENDED,
	PASS_NATTS
};

#define MAX_TABLE_NATTS		PASS_NATTS

/*
 * Columns in their order.  Between them a table may have dropped ones, as when
 * a later version of the extension had added one and was taken back.
 */
typedef struct TableDef
{
	const char *name;
	const char *index;
	int			natts;
	Oid			types[MAX_TABLE_NATTS];
} TableDef;

static const TableDef table_defs[STRATA_NTABLES] = {
	[STRATA_TABLE_STORE] = {"store", "store_pkey", STORE_NATTS, {OIDOID, OIDOID, INT4OID, INT4OID, INT2ARRAYOID, BYTEAOID, BYTEAOID}},
	[STRATA_TABLE_SHARD] = {"shard", "shard_pkey", SHARD_NATTS, {OIDOID, INT4OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID}},
	[STRATA_TABLE_ROW_GROUP] = {"row_group", "row_group_pkey", GROUP_NATTS, {OIDOID, INT8OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, BYTEAOID}},
	[STRATA_TABLE_DICTIONARY] = {"dictionary", "dictionary_pkey", DICTIONARY_NATTS, {OIDOID, INT8OID, INT4OID, INT2OID, INT8OID, INT8OID, INT8OID, INT8OID}},
	[STRATA_TABLE_DELETES] = {"deletes", "deletes_pkey", DELETES_NATTS, {OIDOID, INT8OID, INT4OID, INT4OID, INT8OID, BYTEAOID}},
	[STRATA_TABLE_PASS] = {"pass", "pass_pkey", PASS_NATTS, {OIDOID, INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, BOOLOID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}}};

static Oid	relation_oid(const char *name);
static Relation open_table(StrataTable table, LOCKMODE lockmode);
static void deform(StrataTable table, Relation rel, HeapTuple tuple, Datum *values,
				   bool *isnull, int nullable);
static void insert_row(StrataTable table, Datum *values, bool *isnull);

const char *
strata_table_name(StrataTable table)
{
	return table_defs[table].name;
}

void
strata_table_corrupted(StrataTable table, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("table %s.%s holds an invalid row: %s",
					STRATA_SCHEMA, table_defs[table].name, what),
			 errhint("The manifest cannot be made anew: restore the table from a backup.")));
}

/* A relation of ours, by name. */
static Oid
relation_oid(const char *name)
{
	Oid			schema = get_namespace_oid(STRATA_SCHEMA, true);
	Oid			relid = InvalidOid;

	if (OidIsValid(schema))
		relid = get_relname_relid(name, schema);
	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relation %s.%s does not exist", STRATA_SCHEMA, name),
				 errhint("CREATE EXTENSION strata makes it.")));
	return relid;
}

static Relation
open_table(StrataTable table, LOCKMODE lockmode)
{
	const TableDef *def = &table_defs[table];
	Relation	rel = table_open(relation_oid(def->name), lockmode);
	TupleDesc	desc = RelationGetDescr(rel);
	int			natts = 0;
	bool		same = true;

	for (int i = 0; i < desc->natts && same; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		same = natts < def->natts && att->atttypid == def->types[natts];
		natts++;
	}
	if (!same || natts < def->natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table %s.%s does not have the columns that this version of the library expects",
						STRATA_SCHEMA, def->name),
				 errhint("ALTER EXTENSION strata UPDATE may be needed.")));
	return rel;
}

/* ---- scans ---- */

static void
scan_begin(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
		   ScanKey keys, int nkeys, Snapshot snapshot, const char *index)
{
	scan->table = table;
	scan->lockmode = lockmode;
	scan->direction = ForwardScanDirection;
	scan->rel = open_table(table, lockmode);
	scan->index = index_open(relation_oid(index), AccessShareLock);
	scan->scan = systable_beginscan_ordered(scan->rel, scan->index, snapshot, nkeys, keys);
}

void
strata_table_scan_begin(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
						Oid store, Snapshot snapshot)
{
	ScanKeyData key;

	/* The first column of every table is the store. */
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	scan_begin(scan, table, lockmode, &key, 1, snapshot, table_defs[table].index);
}

void
strata_table_scan_begin_at(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
						   Oid store, int64 second, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	if (table_defs[table].types[1] == INT4OID)
		ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ,
					Int32GetDatum((int32) second));
	else
		ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(second));
	scan_begin(scan, table, lockmode, keys, 2, snapshot, table_defs[table].index);
}

void
strata_table_scan_begin_after(StrataTableScan *scan, StrataTable table, LOCKMODE lockmode,
							  Oid store, int64 second, Snapshot snapshot)
{
	ScanKeyData keys[2];

	Assert(table_defs[table].types[1] == INT8OID);
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(store));
	ScanKeyInit(&keys[1], 2, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(second));
	scan_begin(scan, table, lockmode, keys, 2, snapshot, table_defs[table].index);
}

HeapTuple
strata_table_scan_next(StrataTableScan *scan)
{
	CHECK_FOR_INTERRUPTS();
	return systable_getnext_ordered(scan->scan, scan->direction);
}

/*
 * Rows written or deleted keep their table's lock to the end of the
 * transaction, as rows of a user's table do.
 */
void
strata_table_scan_end(StrataTableScan *scan)
{
	systable_endscan_ordered(scan->scan);
	index_close(scan->index, AccessShareLock);
	table_close(scan->rel, scan->lockmode == AccessShareLock ? AccessShareLock : NoLock);
}

Buffer
strata_table_scan_buffer(StrataTableScan *scan)
{
	TupleTableSlot *slot = scan->scan->slot;

	Assert(TTS_IS_BUFFERTUPLE(slot));
	return ((BufferHeapTupleTableSlot *) slot)->buffer;
}

/* ---- decoding ---- */

/*
 * Take a row apart.  Only the column nullable (or none, -1) may be null.
 */
static void
deform(StrataTable table, Relation rel, HeapTuple tuple, Datum *values, bool *isnull,
	   int nullable)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			natts = table_defs[table].natts;

	if (desc->natts == natts)
		heap_deform_tuple(tuple, desc, values, isnull);
	else
	{
		Datum	   *all_values = palloc(desc->natts * sizeof(Datum));
		bool	   *all_isnull = palloc(desc->natts * sizeof(bool));

		heap_deform_tuple(tuple, desc, all_values, all_isnull);
		for (int i = 0, n = 0; n < natts; i++)
		{
			if (TupleDescAttr(desc, i)->attisdropped)
				continue;
			values[n] = all_values[i];
			isnull[n++] = all_isnull[i];
		}
		pfree(all_values);
		pfree(all_isnull);
	}

	for (int i = 0; i < natts; i++)
	{
		if (isnull[i] && i != nullable)
			strata_table_corrupted(table, "a column is null");
	}
}

static uint64
decode_number(StrataTable table, Datum value, int64 min, int64 max, const char *what)
{
	int64		number = DatumGetInt64(value);

	if (number < min || number > max)
		strata_table_corrupted(table, psprintf("%s " INT64_FORMAT " is out of range",
											   what, number));
	return (uint64) number;
}

static uint32
decode_incarnation(StrataTable table, Datum value)
{
	int32		number = DatumGetInt32(value);

	if (number < 1)
		strata_table_corrupted(table, psprintf("incarnation %d is out of range", number));
	return (uint32) number;
}

static void
decode_extent(StrataTable table, Datum block, Datum blocks, Datum owner, Datum length,
			  StrataExtent *extent, uint64 *bytes)
{
	extent->owner = decode_number(table, owner, 1, (int64) STRATA_MAX_OWNER, "owner");
	extent->block = (BlockNumber) decode_number(table, block, 0, STRATA_MAX_BLOCK, "block");
	extent->nblocks = (uint32) decode_number(table, blocks, 1,
											 (int64) STRATA_MAX_BLOCK - extent->block,
											 "number of blocks");
	*bytes = decode_number(table, length, 1,
						   (int64) extent->nblocks * STRATA_PAGE_CAPACITY, "length");
}

void
strata_decode_store(Relation rel, HeapTuple tuple, StrataStoreRow *row)
{
	Datum		values[STORE_NATTS];
	bool		isnull[STORE_NATTS];
	ArrayType  *key;
	bytea	   *columns;

	deform(STRATA_TABLE_STORE, rel, tuple, values, isnull, STORE_MISSING);
	memset(row, 0, sizeof(StrataStoreRow));
	row->foreign_table = DatumGetObjectId(values[STORE_FOREIGN_TABLE]);
	row->storage = DatumGetObjectId(values[STORE_STORAGE]);
	row->incarnation = decode_incarnation(STRATA_TABLE_STORE, values[STORE_INCARNATION]);
	row->shards = DatumGetInt32(values[STORE_SHARDS]);
	if (row->shards < 1 || row->shards > STRATA_MAX_SHARDS)
		strata_table_corrupted(STRATA_TABLE_STORE, "number of shards is out of range");

	key = DatumGetArrayTypeP(values[STORE_KEY]);
	if (ARR_ELEMTYPE(key) != INT2OID || ARR_HASNULL(key) || ARR_NDIM(key) > 1)
		strata_table_corrupted(STRATA_TABLE_STORE, "key is not a list of attribute numbers");
	row->nkeys = ARR_NDIM(key) == 0 ? 0 : ARR_DIMS(key)[0];
	if (row->nkeys > INDEX_MAX_KEYS)
		strata_table_corrupted(STRATA_TABLE_STORE, "key has too many columns");
	for (int i = 0; i < row->nkeys; i++)
	{
		row->key[i] = ((int16 *) ARR_DATA_PTR(key))[i];
		if (row->key[i] < 1 || row->key[i] > MaxHeapAttributeNumber)
			strata_table_corrupted(STRATA_TABLE_STORE, "key column is out of range");
	}

	columns = DatumGetByteaPCopy(values[STORE_COLUMNS]);
	if (VARSIZE(columns) - VARHDRSZ > MaxHeapAttributeNumber * sizeof(StrataColumn) ||
		(VARSIZE(columns) - VARHDRSZ) % sizeof(StrataColumn) != 0)
		strata_table_corrupted(STRATA_TABLE_STORE, "column signature has a wrong length");
	row->ncolumns = (int) ((VARSIZE(columns) - VARHDRSZ) / sizeof(StrataColumn));
	row->columns = palloc(Max(row->ncolumns, 1) * sizeof(StrataColumn));
	memcpy(row->columns, VARDATA(columns), row->ncolumns * sizeof(StrataColumn));
	pfree(columns);

	if (!isnull[STORE_MISSING])
		row->missing = DatumGetByteaPCopy(values[STORE_MISSING]);
}

void
strata_decode_shard(Relation rel, HeapTuple tuple, StrataShardRow *row)
{
	Datum		values[SHARD_NATTS];
	bool		isnull[SHARD_NATTS];
	StrataShardState *state = &row->state;

	deform(STRATA_TABLE_SHARD, rel, tuple, values, isnull, -1);
	memset(row, 0, sizeof(StrataShardRow));
	row->shard = DatumGetInt32(values[SHARD_SHARD]);
	if (row->shard < 0 || row->shard >= STRATA_MAX_SHARDS)
		strata_table_corrupted(STRATA_TABLE_SHARD, "shard is out of range");
	row->incarnation = decode_incarnation(STRATA_TABLE_SHARD, values[SHARD_INCARNATION]);
	state->merged_through =
		(uint32) decode_number(STRATA_TABLE_SHARD, values[SHARD_MERGED_THROUGH],
							   0, STRATA_MAX_GENERATION, "generation");
	state->first_pending.block =
		(BlockNumber) decode_number(STRATA_TABLE_SHARD, values[SHARD_FIRST_BLOCK],
									0, STRATA_MAX_BLOCK, "block");
	state->first_pending.owner =
		decode_number(STRATA_TABLE_SHARD, values[SHARD_FIRST_OWNER],
					  0, (int64) STRATA_MAX_OWNER, "owner");
	state->rows = decode_number(STRATA_TABLE_SHARD, values[SHARD_ROWS], 0, PG_INT64_MAX, "rows");
	state->bytes = decode_number(STRATA_TABLE_SHARD, values[SHARD_BYTES], 0, PG_INT64_MAX, "bytes");
}

void
strata_decode_group(Relation rel, HeapTuple tuple, StrataGroupRow *row)
{
	Datum		values[GROUP_NATTS];
	bool		isnull[GROUP_NATTS];

	deform(STRATA_TABLE_ROW_GROUP, rel, tuple, values, isnull, GROUP_ZONES);
	memset(row, 0, sizeof(StrataGroupRow));
	row->number = (uint32) decode_number(STRATA_TABLE_ROW_GROUP, values[GROUP_NUMBER],
										 1, STRATA_MAX_ROW_GROUP, "number");
	row->incarnation = decode_incarnation(STRATA_TABLE_ROW_GROUP, values[GROUP_INCARNATION]);
	decode_extent(STRATA_TABLE_ROW_GROUP, values[GROUP_FIRST_BLOCK], values[GROUP_BLOCKS],
				  values[GROUP_OWNER], values[GROUP_LENGTH],
				  &row->ref.extent, &row->ref.length);
	row->ref.raw_bytes = decode_number(STRATA_TABLE_ROW_GROUP, values[GROUP_RAW_BYTES],
									   0, PG_INT64_MAX, "raw size");
	row->ref.rows = (uint32) DatumGetInt32(values[GROUP_ROWS]);
	if (row->ref.rows < 1 || row->ref.rows > STRATA_MAX_GROUP_ROWS)
		strata_table_corrupted(STRATA_TABLE_ROW_GROUP, "number of rows is out of range");
	if (!isnull[GROUP_ZONES])
		row->zones = (bytea *) DatumGetPointer(values[GROUP_ZONES]);
}

void
strata_decode_dictionary(Relation rel, HeapTuple tuple, StrataDictionaryRow *row)
{
	Datum		values[DICTIONARY_NATTS];
	bool		isnull[DICTIONARY_NATTS];

	deform(STRATA_TABLE_DICTIONARY, rel, tuple, values, isnull, -1);
	row->incarnation = decode_incarnation(STRATA_TABLE_DICTIONARY,
										  values[DICTIONARY_INCARNATION]);
	decode_extent(STRATA_TABLE_DICTIONARY, values[DICTIONARY_FIRST_BLOCK],
				  values[DICTIONARY_BLOCKS], values[DICTIONARY_OWNER],
				  values[DICTIONARY_LENGTH], &row->ref.extent, &row->ref.length);
	if (DatumGetInt64(values[DICTIONARY_ID]) != (int64) row->ref.extent.owner)
		strata_table_corrupted(STRATA_TABLE_DICTIONARY, "id is not the owner of the extent");
	row->ref.attnum = DatumGetInt16(values[DICTIONARY_ATTNUM]);
	if (row->ref.attnum < 1 || row->ref.attnum > MaxHeapAttributeNumber)
		strata_table_corrupted(STRATA_TABLE_DICTIONARY, "column is out of range");
}

void
strata_decode_deletes(Relation rel, HeapTuple tuple, StrataDeletesRow *row)
{
	Datum		values[DELETES_NATTS];
	bool		isnull[DELETES_NATTS];

	deform(STRATA_TABLE_DELETES, rel, tuple, values, isnull, -1);
	row->pass = decode_number(STRATA_TABLE_DELETES, values[DELETES_ID], 0, PG_INT64_MAX, "id");
	row->seq = DatumGetInt32(values[DELETES_SEQ]);
	row->incarnation = decode_incarnation(STRATA_TABLE_DELETES, values[DELETES_INCARNATION]);
	row->ntids = decode_number(STRATA_TABLE_DELETES, values[DELETES_N],
							   0, PG_INT64_MAX, "number of rows");
	row->tids = (bytea *) DatumGetPointer(values[DELETES_TIDS]);
}

void
strata_decode_pass(Relation rel, HeapTuple tuple, StrataPassRow *row)
{
	Datum		values[PASS_NATTS];
	bool		isnull[PASS_NATTS];
	text	   *what;

	deform(STRATA_TABLE_PASS, rel, tuple, values, isnull, -1);
	row->id = decode_number(STRATA_TABLE_PASS, values[PASS_ID], 1, PG_INT64_MAX, "id");
	what = DatumGetTextPP(values[PASS_WHAT]);
	row->merge = VARSIZE_ANY_EXHDR(what) == strlen(STRATA_PASS_MERGE) &&
		memcmp(VARDATA_ANY(what), STRATA_PASS_MERGE, strlen(STRATA_PASS_MERGE)) == 0;
	row->incarnation = decode_incarnation(STRATA_TABLE_PASS, values[PASS_INCARNATION]);
	row->base_groups = decode_number(STRATA_TABLE_PASS, values[PASS_BASE_GROUPS],
									 0, PG_INT64_MAX, "row groups");
	row->base_rows = decode_number(STRATA_TABLE_PASS, values[PASS_BASE_ROWS],
								   0, PG_INT64_MAX, "rows");
	row->base_raw_bytes = decode_number(STRATA_TABLE_PASS, values[PASS_BASE_RAW_BYTES],
										0, PG_INT64_MAX, "bytes");
	row->base_bytes = decode_number(STRATA_TABLE_PASS, values[PASS_BASE_BYTES],
									0, PG_INT64_MAX, "bytes");
}

/* ---- store rows ---- */

bool
strata_store_row_read(Oid ftrelid, StrataStoreRow *row)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin(&scan, STRATA_TABLE_STORE, AccessShareLock, ftrelid, NULL);
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
		strata_decode_store(scan.rel, tuple, row);
	strata_table_scan_end(&scan);
	return HeapTupleIsValid(tuple);
}

Oid
strata_store_row_of_storage(Oid storage)
{
	StrataTableScan scan;
	ScanKeyData key;
	HeapTuple	tuple;
	Oid			ftrelid = InvalidOid;

	ScanKeyInit(&key, STORE_STORAGE + 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(storage));
	scan_begin(&scan, STRATA_TABLE_STORE, AccessShareLock, &key, 1, NULL,
			   "store_storage_key");
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
	{
		StrataStoreRow row;

		strata_decode_store(scan.rel, tuple, &row);
		ftrelid = row.foreign_table;
	}
	strata_table_scan_end(&scan);
	return ftrelid;
}

List *
strata_store_list(void)
{
	StrataTableScan scan;
	List	   *list = NIL;
	HeapTuple	tuple;

	scan_begin(&scan, STRATA_TABLE_STORE, AccessShareLock, NULL, 0, NULL,
			   table_defs[STRATA_TABLE_STORE].index);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataStoreRow row;

		strata_decode_store(scan.rel, tuple, &row);
		list = lappend_oid(list, row.foreign_table);
	}
	strata_table_scan_end(&scan);
	return list;
}

static void
form_store(const StrataStoreRow *row, Datum *values, bool *isnull)
{
	Datum		key[INDEX_MAX_KEYS];
	Size		length = row->ncolumns * sizeof(StrataColumn);
	bytea	   *columns = palloc(VARHDRSZ + length);

	memset(isnull, 0, sizeof(bool) * STORE_NATTS);
	for (int i = 0; i < row->nkeys; i++)
		key[i] = Int16GetDatum(row->key[i]);
	SET_VARSIZE(columns, VARHDRSZ + length);
	memcpy(VARDATA(columns), row->columns, length);

	values[STORE_FOREIGN_TABLE] = ObjectIdGetDatum(row->foreign_table);
	values[STORE_STORAGE] = ObjectIdGetDatum(row->storage);
	values[STORE_INCARNATION] = Int32GetDatum((int32) row->incarnation);
	values[STORE_SHARDS] = Int32GetDatum(row->shards);
	values[STORE_KEY] = PointerGetDatum(construct_array(key, row->nkeys, INT2OID,
														sizeof(int16), true, TYPALIGN_SHORT));
	values[STORE_COLUMNS] = PointerGetDatum(columns);
	values[STORE_MISSING] = PointerGetDatum(row->missing);
	isnull[STORE_MISSING] = row->missing == NULL;
}

void
strata_store_row_insert(const StrataStoreRow *row)
{
	Datum		values[STORE_NATTS];
	bool		isnull[STORE_NATTS];

	form_store(row, values, isnull);
	insert_row(STRATA_TABLE_STORE, values, isnull);
}

/* The reverse of deform(). */
static HeapTuple
form_tuple(Relation rel, const Datum *values, const bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *all_values = palloc0(desc->natts * sizeof(Datum));
	bool	   *all_isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	for (int i = 0, n = 0; i < desc->natts; i++)
	{
		all_isnull[i] = TupleDescAttr(desc, i)->attisdropped || isnull[n];
		if (!TupleDescAttr(desc, i)->attisdropped)
			all_values[i] = values[n++];
	}
	tuple = heap_form_tuple(desc, all_values, all_isnull);
	pfree(all_values);
	pfree(all_isnull);
	return tuple;
}

/* Insert a tuple and its index entries, as CatalogTupleInsert does. */
static void
insert_tuple(Relation rel, HeapTuple tuple)
{
	CatalogIndexState indexes = CatalogOpenIndexes(rel);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);

	heap_insert(rel, tuple, GetCurrentCommandId(true), HEAP_INSERT_NO_LOGICAL, NULL);
	ExecStoreHeapTuple(tuple, slot, false);
	for (int i = 0; i < indexes->ri_NumIndices; i++)
	{
		Relation	index = indexes->ri_IndexRelationDescs[i];
		IndexInfo  *info = indexes->ri_IndexRelationInfo[i];
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		FormIndexDatum(info, slot, NULL, values, isnull);
		index_insert(index, values, isnull, &tuple->t_self, rel,
					 index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO,
					 false, info);
	}
	ExecDropSingleTupleTableSlot(slot);
	CatalogCloseIndexes(indexes);
}

/* Replace the one row of a scan. */
static void
update_row(StrataTableScan *scan, Datum *values, bool *isnull)
{
	HeapTuple	tuple = strata_table_scan_next(scan);

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("table %s.%s lacks a row", STRATA_SCHEMA,
						table_defs[scan->table].name)));
	CatalogTupleDelete(scan->rel, &tuple->t_self);
	tuple = form_tuple(scan->rel, values, isnull);
	insert_tuple(scan->rel, tuple);
	heap_freetuple(tuple);
	strata_table_scan_end(scan);
}

void
strata_store_row_update(const StrataStoreRow *row)
{
	StrataTableScan scan;
	Datum		values[STORE_NATTS];
	bool		isnull[STORE_NATTS];

	form_store(row, values, isnull);
	strata_table_scan_begin(&scan, STRATA_TABLE_STORE, RowExclusiveLock,
							row->foreign_table, NULL);
	update_row(&scan, values, isnull);
}

/* ---- other writing ---- */

/*
 * Trigger on the manifest tables: who has pg_write_all_data has no business
 * with bytes that this code trusts to be values of their types, and the initial
 * copy of a subscription to another server's with rows of that server's files.
 */
Datum
strata_manifest_guard(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called as a trigger")));
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table %s cannot be replicated",
						RelationGetRelationName(((TriggerData *) fcinfo->context)->tg_relation)),
				 errdetail("It describes files of this server."),
				 errhint("Publish tables by name or by schema instead of FOR ALL TABLES.")));
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s",
						RelationGetRelationName(((TriggerData *) fcinfo->context)->tg_relation)),
				 errdetail("Only strata itself changes its manifest.")));
	return PointerGetDatum(NULL);
}

static void
insert_row(StrataTable table, Datum *values, bool *isnull)
{
	Relation	rel = open_table(table, RowExclusiveLock);
	HeapTuple	tuple = form_tuple(rel, values, isnull);

	insert_tuple(rel, tuple);
	heap_freetuple(tuple);
	table_close(rel, NoLock);
}

static void
form_shard(Oid ftrelid, const StrataShardRow *row, Datum *values, bool *isnull)
{
	memset(isnull, 0, sizeof(bool) * SHARD_NATTS);
	values[SHARD_STORE] = ObjectIdGetDatum(ftrelid);
	values[SHARD_SHARD] = Int32GetDatum(row->shard);
	values[SHARD_INCARNATION] = Int32GetDatum((int32) row->incarnation);
	values[SHARD_MERGED_THROUGH] = Int64GetDatum((int64) row->state.merged_through);
	values[SHARD_FIRST_BLOCK] = Int64GetDatum(row->state.first_pending.owner == 0 ? 0 :
											  (int64) row->state.first_pending.block);
	values[SHARD_FIRST_OWNER] = Int64GetDatum((int64) row->state.first_pending.owner);
	values[SHARD_ROWS] = Int64GetDatum((int64) row->state.rows);
	values[SHARD_BYTES] = Int64GetDatum((int64) row->state.bytes);
}

void
strata_shard_row_insert(Oid ftrelid, const StrataShardRow *row)
{
	Datum		values[SHARD_NATTS];
	bool		isnull[SHARD_NATTS];

	form_shard(ftrelid, row, values, isnull);
	insert_row(STRATA_TABLE_SHARD, values, isnull);
}

void
strata_shard_row_update(Oid ftrelid, const StrataShardRow *row)
{
	StrataTableScan scan;
	Datum		values[SHARD_NATTS];
	bool		isnull[SHARD_NATTS];

	form_shard(ftrelid, row, values, isnull);
	strata_table_scan_begin_at(&scan, STRATA_TABLE_SHARD, RowExclusiveLock, ftrelid,
							   row->shard, NULL);
	update_row(&scan, values, isnull);
}

void
strata_group_row_insert(Oid ftrelid, const StrataGroupRow *row)
{
	Datum		values[GROUP_NATTS];
	bool		isnull[GROUP_NATTS] = {false};

	values[GROUP_STORE] = ObjectIdGetDatum(ftrelid);
	values[GROUP_NUMBER] = Int64GetDatum((int64) row->number);
	values[GROUP_INCARNATION] = Int32GetDatum((int32) row->incarnation);
	values[GROUP_FIRST_BLOCK] = Int64GetDatum((int64) row->ref.extent.block);
	values[GROUP_BLOCKS] = Int64GetDatum((int64) row->ref.extent.nblocks);
	values[GROUP_OWNER] = Int64GetDatum((int64) row->ref.extent.owner);
	values[GROUP_LENGTH] = Int64GetDatum((int64) row->ref.length);
	values[GROUP_RAW_BYTES] = Int64GetDatum((int64) row->ref.raw_bytes);
	values[GROUP_ROWS] = Int32GetDatum((int32) row->ref.rows);
	values[GROUP_ZONES] = PointerGetDatum(row->zones);
	isnull[GROUP_ZONES] = row->zones == NULL;
	insert_row(STRATA_TABLE_ROW_GROUP, values, isnull);
}

void
strata_dictionary_row_insert(Oid ftrelid, const StrataDictionaryRow *row)
{
	Datum		values[DICTIONARY_NATTS];
	bool		isnull[DICTIONARY_NATTS] = {false};
	const StrataDictionaryRef *ref = &row->ref;

	values[DICTIONARY_STORE] = ObjectIdGetDatum(ftrelid);
	values[DICTIONARY_ID] = Int64GetDatum((int64) ref->extent.owner);
	values[DICTIONARY_INCARNATION] = Int32GetDatum((int32) row->incarnation);
	values[DICTIONARY_ATTNUM] = Int16GetDatum(ref->attnum);
	values[DICTIONARY_FIRST_BLOCK] = Int64GetDatum((int64) ref->extent.block);
	values[DICTIONARY_BLOCKS] = Int64GetDatum((int64) ref->extent.nblocks);
	values[DICTIONARY_OWNER] = Int64GetDatum((int64) ref->extent.owner);
	values[DICTIONARY_LENGTH] = Int64GetDatum((int64) ref->length);
	insert_row(STRATA_TABLE_DICTIONARY, values, isnull);
}

void
strata_deletes_row_insert(Oid ftrelid, const StrataDeletesRow *row)
{
	Datum		values[DELETES_NATTS];
	bool		isnull[DELETES_NATTS] = {false};

	values[DELETES_STORE] = ObjectIdGetDatum(ftrelid);
	values[DELETES_ID] = Int64GetDatum((int64) row->pass);
	values[DELETES_SEQ] = Int32GetDatum(row->seq);
	values[DELETES_INCARNATION] = Int32GetDatum((int32) row->incarnation);
	values[DELETES_N] = Int64GetDatum((int64) row->ntids);
	values[DELETES_TIDS] = PointerGetDatum(row->tids);
	insert_row(STRATA_TABLE_DELETES, values, isnull);
}

void
strata_pass_row_insert(Oid ftrelid, int64 id, const StrataPassRecord *record)
{
	Datum		values[PASS_NATTS];
	bool		isnull[PASS_NATTS] = {false};

	values[PASS_STORE] = ObjectIdGetDatum(ftrelid);
	values[PASS_ID] = Int64GetDatum(id);
	values[PASS_WHAT] = CStringGetTextDatum(record->what);
	values[PASS_GENERATIONS_MERGED] = Int64GetDatum(record->generations_merged);
	values[PASS_GENERATIONS_LEFT] = Int64GetDatum(record->generations_left);
	values[PASS_ROWS_READ] = Int64GetDatum(record->rows_read);
	values[PASS_ROWS_INSERTED] = Int64GetDatum(record->rows_inserted);
	values[PASS_ROWS_REPLACED] = Int64GetDatum(record->rows_replaced);
	values[PASS_ROWS_DELETED] = Int64GetDatum(record->rows_deleted);
	values[PASS_ROWS_ABORTED] = Int64GetDatum(record->rows_aborted);
	values[PASS_ROW_GROUPS_WRITTEN] = Int64GetDatum(record->row_groups_written);
	values[PASS_ROW_GROUPS_ADOPTED] = Int64GetDatum(record->row_groups_adopted);
	values[PASS_INDEX_PROBES] = Int64GetDatum(record->index_probes);
	values[PASS_INDEX_BUILT] = BoolGetDatum(record->index_built);
	values[PASS_BASE_BYTES_READ] = Int64GetDatum(record->base_bytes_read);
	values[PASS_BYTES_READ] = Int64GetDatum(record->bytes_read);
	values[PASS_BYTES_WRITTEN] = Int64GetDatum(record->bytes_written);
	values[PASS_PEAK_MEMORY] = Int64GetDatum(record->peak_memory);
	values[PASS_INCARNATION] = Int32GetDatum((int32) record->incarnation);
	values[PASS_BASE_GROUPS] = Int64GetDatum(record->base_groups);
	values[PASS_BASE_ROWS] = Int64GetDatum(record->base_rows);
	values[PASS_BASE_RAW_BYTES] = Int64GetDatum(record->base_raw_bytes);
	values[PASS_BASE_BYTES] = Int64GetDatum(record->base_bytes);
	values[PASS_STARTED] = TimestampTzGetDatum(record->started);
	values[PASS_ENDED] = TimestampTzGetDatum(record->ended);
	insert_row(STRATA_TABLE_PASS, values, isnull);
}

void
strata_table_delete(StrataTable table, Oid ftrelid)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin(&scan, table, RowExclusiveLock, ftrelid, NULL);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	strata_table_scan_end(&scan);
}
