/*-------------------------------------------------------------------------
 *
 * catalog_rows.c
 *	  What the rows of the manifest tables say.
 *
 * Translates between rows and the structs of catalog.h.  A superuser can write
 * these tables, and a backup may be damaged: every row is checked when it is
 * decoded, so that what leaves this file stays within the limits of strata.h
 * and within its own length.
 *
 * Locks and snapshots: see catalog.c.
 *
 * IDENTIFICATION
 *	  src/manifest/catalog_rows.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/catalog_private.h"
#include "storage/extent.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

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

StaticAssertDecl(PASS_NATTS <= STRATA_MAX_TABLE_NATTS, "a manifest table has too many columns");

const StrataTableDef strata_table_defs[STRATA_NTABLES] = {
	[STRATA_TABLE_STORE] = {"store", "store_pkey", STORE_NATTS, {OIDOID, OIDOID, INT4OID, INT4OID, INT2ARRAYOID, BYTEAOID, BYTEAOID}},
	[STRATA_TABLE_SHARD] = {"shard", "shard_pkey", SHARD_NATTS, {OIDOID, INT4OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID}},
	[STRATA_TABLE_ROW_GROUP] = {"row_group", "row_group_pkey", GROUP_NATTS, {OIDOID, INT8OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, BYTEAOID}},
	[STRATA_TABLE_DICTIONARY] = {"dictionary", "dictionary_pkey", DICTIONARY_NATTS, {OIDOID, INT8OID, INT4OID, INT2OID, INT8OID, INT8OID, INT8OID, INT8OID}},
	[STRATA_TABLE_DELETES] = {"deletes", "deletes_pkey", DELETES_NATTS, {OIDOID, INT8OID, INT4OID, INT4OID, INT8OID, BYTEAOID}},
	[STRATA_TABLE_PASS] = {"pass", "pass_pkey", PASS_NATTS, {OIDOID, INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, BOOLOID, INT8OID, INT8OID, INT8OID, INT8OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID}}};

/* ---- decoding ---- */

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

	strata_table_deform(STRATA_TABLE_STORE, rel, tuple, values, isnull, STORE_MISSING);
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

	strata_table_deform(STRATA_TABLE_SHARD, rel, tuple, values, isnull, -1);
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

	strata_table_deform(STRATA_TABLE_ROW_GROUP, rel, tuple, values, isnull, GROUP_ZONES);
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

	strata_table_deform(STRATA_TABLE_DICTIONARY, rel, tuple, values, isnull, -1);
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

	strata_table_deform(STRATA_TABLE_DELETES, rel, tuple, values, isnull, -1);
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

	strata_table_deform(STRATA_TABLE_PASS, rel, tuple, values, isnull, -1);
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
	strata_table_scan_begin_keys(&scan, STRATA_TABLE_STORE, AccessShareLock, &key, 1, NULL,
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

	strata_table_scan_begin_keys(&scan, STRATA_TABLE_STORE, AccessShareLock, NULL, 0, NULL,
								 strata_table_defs[STRATA_TABLE_STORE].index);
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
	strata_table_insert(STRATA_TABLE_STORE, values, isnull);
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
	strata_table_update(&scan, values, isnull);
}

/* ---- other writing ---- */

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
	strata_table_insert(STRATA_TABLE_SHARD, values, isnull);
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
	strata_table_update(&scan, values, isnull);
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
	strata_table_insert(STRATA_TABLE_ROW_GROUP, values, isnull);
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
	strata_table_insert(STRATA_TABLE_DICTIONARY, values, isnull);
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
	strata_table_insert(STRATA_TABLE_DELETES, values, isnull);
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
	strata_table_insert(STRATA_TABLE_PASS, values, isnull);
}
