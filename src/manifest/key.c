/*-------------------------------------------------------------------------
 *
 * key.c
 *	  The key of a store: hashing, comparing and placing of key values.
 *
 * Everything here follows from the default B-tree and hash operator classes of
 * a column's type.  The hash family has to contain the B-tree equality, so
 * that two keys that are equal to the operator have one hash, whatever their
 * bytes (1.0 and 1.00).
 *
 * Key hashes are on disk, in front of log entries and in row groups, and
 * decide the shard a key lives in.  PostgreSQL keeps a type's standard hash
 * function stable for as long as hash indexes survive pg_upgrade; what is
 * built on it here must never change within a format version: the rule that
 * combines columns and the one that picks a shard.
 *
 * IDENTIFICATION
 *	  src/manifest/key.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/key.h"

#include "access/detoast.h"
#include "access/hash.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/typcache.h"

/* Longest rendering of one value in a message. */
#define DESCRIBE_MAX_VALUE	100

static void key_column_init(StrataKey *key, int i, Form_pg_attribute att,
							MemoryContext mcxt);

/*
 * Look up what is needed to hash and compare one column.
 */
static void
key_column_init(StrataKey *key, int i, Form_pg_attribute att, MemoryContext mcxt)
{
	Oid			type = getBaseType(att->atttypid);
	Oid			btree;
	Oid			hash;
	Oid			input;
	Oid			hash_input;
	Oid			equality;
	Oid			proc;
	TypeCacheEntry *typentry;

	btree = GetDefaultOpClass(type, BTREE_AM_OID);
	hash = GetDefaultOpClass(type, HASH_AM_OID);
	if (!OidIsValid(btree) || !OidIsValid(hash))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("column \"%s\" of type %s cannot be part of a key",
						NameStr(att->attname), format_type_be(att->atttypid)),
				 errdetail("Type %s has no default operator class for access method \"%s\".",
						   format_type_be(type), OidIsValid(btree) ? "hash" : "btree"),
				 errhint("Use a column of a type such as text, uuid, bigint or timestamptz.")));

	/* Arrays and ranges have them for elements that cannot be hashed, too. */
	typentry = lookup_type_cache(type, TYPECACHE_CMP_PROC | TYPECACHE_HASH_PROC);
	if (!OidIsValid(typentry->cmp_proc) || !OidIsValid(typentry->hash_proc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("column \"%s\" of type %s cannot be part of a key",
						NameStr(att->attname), format_type_be(att->atttypid)),
				 errdetail("Its elements have no default operator class for access method \"%s\".",
						   OidIsValid(typentry->cmp_proc) ? "hash" : "btree"),
				 errhint("Use a column of a type such as text, uuid, bigint or timestamptz.")));

	/*
	 * Types of users and extensions can lose their operator classes, or be
	 * dropped by CASCADE together with the storage's column.
	 */
	if (type >= FirstUnpinnedObjectId ||
		btree >= FirstUnpinnedObjectId || hash >= FirstUnpinnedObjectId)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of type %s cannot be part of a key",
						NameStr(att->attname), format_type_be(att->atttypid)),
				 errdetail("Only built-in types can."),
				 errhint("Use a column of a type such as text, uuid, bigint or timestamptz.")));

	/* Bytes decide whether two keys can be equal in more places than one. */
	if (OidIsValid(att->attcollation) &&
		!get_collation_isdeterministic(att->attcollation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" with nondeterministic collation \"%s\" cannot be part of a key",
						NameStr(att->attname), get_collation_name(att->attcollation)),
				 errhint("Use a deterministic collation.")));

	key->attnum[i] = att->attnum;
	key->type[i] = type;
	key->collation[i] = att->attcollation;
	key->btree_opclass[i] = btree;
	key->btree_opfamily[i] = get_opclass_family(btree);
	key->hash_opfamily[i] = get_opclass_family(hash);
	input = get_opclass_input_type(btree);
	hash_input = get_opclass_input_type(hash);

	equality = get_opfamily_member(key->btree_opfamily[i], input, input, BTEqualStrategyNumber);
	if (!OidIsValid(equality) ||
		get_op_opfamily_strategy(equality, key->hash_opfamily[i]) != HTEqualStrategyNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("column \"%s\" of type %s cannot be part of a key",
						NameStr(att->attname), format_type_be(att->atttypid)),
				 errdetail("The equality of its B-tree operator class is not in its hash operator class.")));

	fmgr_info_cxt(get_opcode(equality), &key->eq_proc[i], mcxt);

	proc = get_opfamily_proc(key->btree_opfamily[i], input, input, BTORDER_PROC);
	if (!OidIsValid(proc))
		elog(ERROR, "missing support function %d for type %u in operator family %u",
			 BTORDER_PROC, input, key->btree_opfamily[i]);
	fmgr_info_cxt(proc, &key->cmp_proc[i], mcxt);

	proc = get_opfamily_proc(key->hash_opfamily[i], hash_input, hash_input, HASHSTANDARD_PROC);
	if (!OidIsValid(proc))
		elog(ERROR, "missing support function %d for type %u in operator family %u",
			 HASHSTANDARD_PROC, hash_input, key->hash_opfamily[i]);
	fmgr_info_cxt(proc, &key->hash_proc[i], mcxt);
}

void
strata_key_init(StrataKey *key, TupleDesc desc, const AttrNumber *attnums, int natts,
				MemoryContext mcxt)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(mcxt);

	memset(key, 0, sizeof(StrataKey));
	Assert(natts <= INDEX_MAX_KEYS);
	key->natts = natts;
	key->desc = CreateTemplateTupleDesc(natts);

	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute att;

		if (attnums[i] < 1 || attnums[i] > desc->natts ||
			TupleDescAttr(desc, attnums[i] - 1)->attisdropped)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("key column %d does not exist", attnums[i])));
		att = TupleDescAttr(desc, attnums[i] - 1);
		key_column_init(key, i, att, mcxt);

		/* A longer varchar(n) or numeric(p) must not touch the storage. */
		TupleDescInitEntry(key->desc, i + 1, NameStr(att->attname), key->type[i], -1, 0);
		TupleDescInitEntryCollation(key->desc, i + 1, key->collation[i]);
		if (!att->attbyval && key->work_mcxt == NULL)
			key->work_mcxt = AllocSetContextCreate(mcxt, "strata key", ALLOCSET_SMALL_SIZES);
	}

	MemoryContextSwitchTo(oldcontext);
}

uint32
strata_key_hash_combine(uint32 hash, uint32 column_hash)
{
	hash ^= column_hash + 0x9e3779b9 + (hash << 6) + (hash >> 2);
	return hash;
}

/*
 * Some functions leave a detoasted copy of what they are given (hash_numeric):
 * an index calls them in a context for one row, and so do we.
 */
static inline MemoryContext
begin_work(const StrataKey *key)
{
	return key->work_mcxt != NULL ? MemoryContextSwitchTo(key->work_mcxt) : NULL;
}

static inline void
end_work(const StrataKey *key, MemoryContext old)
{
	if (key->work_mcxt != NULL)
	{
		MemoryContextSwitchTo(old);
		MemoryContextReset(key->work_mcxt);
	}
}

/* The hash of the columns before i, with that of column i. */
static inline uint32
add_column_hash(const StrataKey *key, uint32 hash, int i, Datum value)
{
	uint32		column_hash;

	column_hash = DatumGetUInt32(FunctionCall1Coll((FmgrInfo *) &key->hash_proc[i],
												   key->collation[i], value));
	return strata_key_hash_combine(hash, column_hash);
}

uint32
strata_key_hash(const StrataKey *key, const Datum *values)
{
	MemoryContext old = begin_work(key);
	uint32		hash = 0;

	for (int i = 0; i < key->natts; i++)
		hash = add_column_hash(key, hash, i, values[i]);
	end_work(key, old);
	return hash;
}

uint32
strata_key_prefix_hash(const StrataKey *key, uint32 combined, int ncolumns)
{
	return ncolumns < key->natts ? strata_key_hash_combine(combined, (uint32) ncolumns) : combined;
}

void
strata_key_prefix_hashes(const StrataKey *key, const Datum *values, uint32 *hashes)
{
	MemoryContext old = begin_work(key);
	uint32		hash = 0;

	for (int i = 0; i < key->natts; i++)
	{
		hash = add_column_hash(key, hash, i, values[i]);
		hashes[i] = strata_key_prefix_hash(key, hash, i + 1);
	}
	end_work(key, old);
}

RegProcedure
strata_key_hash_function(const StrataKey *key, int column, Oid op, Oid type)
{
	if (get_op_opfamily_strategy(op, key->hash_opfamily[column]) != HTEqualStrategyNumber)
		return InvalidOid;
	return get_opfamily_proc(key->hash_opfamily[column], type, type, HASHSTANDARD_PROC);
}

int
strata_key_compare(const StrataKey *key, const Datum *a, const Datum *b)
{
	MemoryContext old = begin_work(key);
	int32		cmp = 0;

	for (int i = 0; i < key->natts && cmp == 0; i++)
		cmp = DatumGetInt32(FunctionCall2Coll((FmgrInfo *) &key->cmp_proc[i],
											  key->collation[i], a[i], b[i]));
	end_work(key, old);
	return cmp;
}

bool
strata_key_equal(const StrataKey *key, const Datum *a, const Datum *b)
{
	MemoryContext old = begin_work(key);
	bool		equal = true;

	for (int i = 0; i < key->natts && equal; i++)
		equal = DatumGetBool(FunctionCall2Coll((FmgrInfo *) &key->eq_proc[i],
											   key->collation[i], a[i], b[i]));
	end_work(key, old);
	return equal;
}

/*
 * Mix the hash once more, so that shards do not depend on how a type's hash
 * spreads its high bits, then scale it.
 */
int
strata_key_shard(uint32 hash, int nshards)
{
	if (nshards == 1)
		return 0;
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	hash ^= hash >> 16;
	return (int) (((uint64) hash * (uint64) nshards) >> 32);
}

/*
 * Bytes of a key as an index entry, uncompressed: a key is accepted or refused
 * whatever the compression of the day makes of it.
 */
static Size
key_size(const StrataKey *key, const Datum *values)
{
	Size		size = MAXALIGN(sizeof(IndexTupleData));

	for (int i = 0; i < key->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(key->desc, i);

		if (att->attlen > 0)
			size = att_align_nominal(size, att->attalign) + att->attlen;
		else if (att->attlen == -1)
		{
			Size		raw = toast_raw_datum_size(values[i]) - VARHDRSZ;

			if (raw + VARHDRSZ_SHORT <= VARATT_SHORT_MAX && att->attstorage != TYPSTORAGE_PLAIN)
				size += raw + VARHDRSZ_SHORT;
			else
				size = att_align_nominal(size, att->attalign) + raw + VARHDRSZ;
		}
		else
			size += strlen(DatumGetCString(values[i])) + 1;
	}
	return MAXALIGN(size);
}

void
strata_key_check_nulls(const StrataKey *key, const bool *isnull, const char *relname,
					   TupleDesc desc)
{
	for (int i = 0; i < key->natts; i++)
	{
		AttrNumber	attnum = key->attnum[i];

		if (isnull[attnum - 1])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("null value in key column \"%s\" of relation \"%s\"",
							NameStr(TupleDescAttr(desc, attnum - 1)->attname), relname)));
	}
}

void
strata_key_extract(const StrataKey *key, const Datum *values, const bool *isnull,
				   Datum *keyvalues, const char *relname, TupleDesc desc)
{
	strata_key_check_nulls(key, isnull, relname, desc);
	for (int i = 0; i < key->natts; i++)
		keyvalues[i] = values[key->attnum[i] - 1];

	if (key->natts > 0)
	{
		Size		size = key_size(key, keyvalues);

		if (size > STRATA_MAX_KEY_SIZE)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("key of %zu bytes is too large for relation \"%s\"",
							size, relname),
					 errdetail("A key cannot be larger than %d bytes.", STRATA_MAX_KEY_SIZE)));
	}
}

char *
strata_key_describe(const StrataKey *key, const Datum *values)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '(');
	for (int i = 0; i < key->natts; i++)
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(key->desc, i)->attname)));
	appendStringInfoString(&buf, ")=(");
	for (int i = 0; i < key->natts; i++)
	{
		Oid			output;
		bool		is_varlena;
		char	   *value;
		int			length;

		getTypeOutputInfo(key->type[i], &output, &is_varlena);
		value = OidOutputFunctionCall(output, values[i]);
		length = (int) strlen(value);
		if (i > 0)
			appendStringInfoString(&buf, ", ");
		if (length <= DESCRIBE_MAX_VALUE)
			appendStringInfoString(&buf, value);
		else
		{
			appendBinaryStringInfo(&buf, value,
								   pg_mbcliplen(value, length, DESCRIBE_MAX_VALUE));
			appendStringInfoString(&buf, "...");
		}
	}
	appendStringInfoChar(&buf, ')');
	return buf.data;
}
