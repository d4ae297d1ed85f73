/*-------------------------------------------------------------------------
 *
 * key.h
 *	  The key of a store: hashing, comparing and placing of key values.
 *
 * Key types are built in, with default B-tree and hash operator classes of
 * which the hash family contains the B-tree equality.  Two keys are equal
 * when the operator says so, never by bytes.
 *
 * IDENTIFICATION
 *	  src/manifest/key.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_KEY_H
#define STRATA_KEY_H

#include "strata.h"

#include "access/attnum.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "fmgr.h"

typedef struct StrataKey
{
	int			natts;			/* 0: keyless store */
	AttrNumber	attnum[INDEX_MAX_KEYS]; /* in the foreign table */
	Oid			type[INDEX_MAX_KEYS];	/* base type of a domain */
	Oid			collation[INDEX_MAX_KEYS];
	Oid			btree_opfamily[INDEX_MAX_KEYS];
	Oid			btree_opclass[INDEX_MAX_KEYS];
	Oid			hash_opfamily[INDEX_MAX_KEYS];
	FmgrInfo	hash_proc[INDEX_MAX_KEYS];	/* HASHSTANDARD_PROC */
	FmgrInfo	cmp_proc[INDEX_MAX_KEYS];	/* BTORDER_PROC */
	FmgrInfo	eq_proc[INDEX_MAX_KEYS];	/* B-tree equality */
	TupleDesc	desc;			/* key columns only, in key order */
	MemoryContext work_mcxt;	/* of hash and compare functions; NULL: they
								 * allocate nothing */
} StrataKey;

/*
 * Fill key for the named columns of a table description.  Raises 42703 for a
 * column that does not exist, 42704 / 0A000 for a type or collation that
 * cannot be a key, with what to do as hint.  Allocates in mcxt.
 */
extern void strata_key_init(StrataKey *key, TupleDesc desc,
							const AttrNumber *attnums, int natts,
							MemoryContext mcxt);

/*
 * values: the key's columns in key order, none null.  These four leave nothing
 * in the caller's memory context, whatever the type's functions do.
 */
extern uint32 strata_key_hash(const StrataKey *key, const Datum *values);

/*
 * hashes[i] stands for the values of the columns up to i, the last one, which is
 * strata_key_hash, for all.  Prefixes of different length have different ones.
 */
extern void strata_key_prefix_hashes(const StrataKey *key, const Datum *values,
									 uint32 *hashes /* [natts] */);

/*
 * For callers with other hash functions: columns are combined one by one from 0
 * on, what they make is the key's hash or, of fewer columns, stands for a prefix.
 */
extern uint32 strata_key_hash_combine(uint32 hash, uint32 column_hash);
extern uint32 strata_key_prefix_hash(const StrataKey *key, uint32 combined, int ncolumns);

/*
 * The function that hashes values of type as the key's own does those that they
 * are equal to by op, "column op value"; InvalidOid: there is none.
 */
extern RegProcedure strata_key_hash_function(const StrataKey *key, int column, Oid op, Oid type);

extern int	strata_key_compare(const StrataKey *key, const Datum *a, const Datum *b);
extern bool strata_key_equal(const StrataKey *key, const Datum *a, const Datum *b);

/* The shard a key lives in. */
extern int	strata_key_shard(uint32 hash, int nshards);

/* 23502 naming the column (and relname) when a key column of the row is null. */
extern void strata_key_check_nulls(const StrataKey *key, const bool *isnull,
								   const char *relname, TupleDesc desc);

/*
 * Pick the key columns out of a row of the foreign table; 23502 naming the
 * column (and relname) when one is null; 54000 when the key is larger than an
 * index entry can be.
 */
extern void strata_key_extract(const StrataKey *key, const Datum *values,
							   const bool *isnull, Datum *keyvalues,
							   const char *relname, TupleDesc desc);

/*
 * "(a, b)=(1, x)" for messages, palloc'd, long values cut off.  Whether the user
 * may see it is the caller's to know.
 */
extern char *strata_key_describe(const StrataKey *key, const Datum *values);

#endif							/* STRATA_KEY_H */
