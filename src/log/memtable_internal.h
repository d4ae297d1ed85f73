/*-------------------------------------------------------------------------
 *
 * memtable_internal.h
 *	  What a memtable holds, for its files.
 *
 * IDENTIFICATION
 *	  src/log/memtable_internal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MEMTABLE_INTERNAL_H
#define STRATA_MEMTABLE_INTERNAL_H

#include "log/memtable.h"

#include "utils/resowner.h"

/*
 * A row or tombstone.  values (by attnum - 1, of a tombstone in key order),
 * isnull and small values follow in the same allocation.
 */
typedef struct StrataMemRow
{
	uint32		hash;
	uint32		index;			/* in its shard's array */
	bool		tombstone;
	bool		moved;			/* tombstone: the row went to another partition */
	bool		unique;			/* a live row is an error: judged when linked */
	bool		skips;			/* had one been seen, this row would not be here */
	bool		judged;			/* by what was linked before seen, it is none */
	bool		changes;		/* a row that was read: versions of others linked
								 * from seen on are an error */
	StrataPosition seen;
	struct StrataMemRow *next;	/* tombstone: like one of the key under which the
								 * row goes on, NULL if it does not */
	struct StrataMemRow *before;	/* tombstone that comes first: this command
									 * deleted the row that was there */
	int16		nvalues;
	Size		raw;			/* bytes of data, as row groups count; with next
								 * and before */
	Size		memory;			/* all allocations, likewise */
	Size		inline_size;	/* of this one */
	bool	   *isnull;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} StrataMemRow;

typedef struct StrataMemShard
{
	StrataMemRow **rows;		/* in put order */
	uint32		nrows;
	uint32		max_rows;
	Size		raw;
} StrataMemShard;

struct keyhash_hash;
typedef struct StrataMemtableLooks StrataMemtableLooks;

struct StrataMemtable
{
	/* identity */
	StrataMemtable *next;
	Oid			storage;
	SubTransactionId subid;
	CommandId	cid;
	FullTransactionId fxid;		/* invalid: no row was put yet */

	/* its command */
	StrataStore *store;
	char	   *relname;		/* for messages */
	ResourceOwner owner;		/* NULL: whatever is current */
	Oid			userid;			/* whose rights decide on showing keys */
	int			refcount;
	ErrorData  *error;			/* of a failed flush */
	bool		flushing;

	/* contents */
	StrataMemShard shards[STRATA_MAX_SHARDS];
	int			keyless_shard;
	Size		raw;
	Size		memory;
	uint64		nrows;
	uint64		nkeys_flushed;
	int			njudged;		/* keys judged when they were put */
	struct keyhash_hash *hash;	/* NULL: few rows */
	const Datum *probe_key;		/* key that is being looked for */

	/* what is pending for the command; pinned by the first look at a row */
	StrataManifest *manifest;
	StrataMemtableLooks *looks; /* NULL: nothing is open */

	/* working memory */
	MemoryContext mcxt;			/* this struct and all below */
	MemoryContext row_mcxt;		/* rows; reset by flushing */
	MemoryContext temp_mcxt;	/* detoasting, looking, flushing */
	Datum	   *work_values;	/* [natts] */
	Size	   *work_sizes;		/* [natts] */
	Datum		work_key[INDEX_MAX_KEYS];
};

/* The key of a row or tombstone, in key order. */
static inline void
strata_memrow_key(const StrataMemtable *memtable, const StrataMemRow *row, Datum *keyvalues)
{
	const StrataKey *key = &memtable->store->key;

	for (int i = 0; i < key->natts; i++)
		keyvalues[i] = row->values[row->tombstone ? i : key->attnum[i] - 1];
}

/* ---- memtable_rows.c ---- */

/*
 * Copy a row (or, with the key's desc, a tombstone's key) into the memtable,
 * everything detoasted: a stored value must not depend on another relation's
 * toast table, nor on memory of an expanded object.  Short headers stay.  It is
 * none of the memtable's rows until it is stored.
 */
extern StrataMemRow *strata_memrow_copy(StrataMemtable *memtable, TupleDesc desc,
										const Datum *values, const bool *isnull);

/* The row or tombstone of a key, NULL: none. */
extern StrataMemRow *strata_memrow_find(StrataMemtable *memtable, StrataMemShard *shard,
										uint32 hash, const Datum *keyvalues);

/*
 * Put row, which has these key values, in the place of old, which is freed, or,
 * without old, at the end.
 */
extern void strata_memrow_store(StrataMemtable *memtable, StrataMemShard *shard,
								StrataMemRow *row, StrataMemRow *old,
								const Datum *keyvalues);

/* Free all rows; the memtable is empty. */
extern void strata_memrow_forget_all(StrataMemtable *memtable);

/* ---- memtable_flush.c ---- */

/*
 * 23505, with the key if the statement's user may read it.  With storage, 40001
 * if a serializable transaction has read that there is none and that matters.
 */
extern void strata_memtable_raise_duplicate(StrataMemtable *memtable, Relation storage,
											const Datum *keyvalues) pg_attribute_noreturn();

/* Rows of one command are looked at with one manifest, of its snapshot. */
extern void strata_memtable_pin_manifest(StrataMemtable *memtable, StrataManifest *manifest);

/*
 * A serializable transaction writes a key: may it, after what others have read?
 * They have locked the key, a prefix of it or the relation (view_serializable.c).
 * To be asked after linking; where something is waited for, before that, too, so
 * that who has to fail does not wait for others, as on a heap.
 */
extern void strata_memtable_check_conflict_in(StrataMemtable *memtable, Relation storage,
											  uint32 hash, const Datum *keyvalues);

/*
 * Lock the key of a row that is to be put where none is.  One that is there is
 * an error; with skips, false.
 */
extern bool strata_memtable_lock_key(StrataMemtable *memtable, uint32 hash, Datum *keyvalues,
									 bool skips);

/*
 * Judge the key of a row that is being put: as with a unique index, a row that
 * is there is an error before anything else that the statement does after this
 * one.  Nothing is linked yet, so it is not the last word.  True when what was
 * linked before seen is settled; false when the base table was not looked at,
 * for want of a key index.
 */
extern bool strata_memtable_judge_key(StrataMemtable *memtable, uint32 hash, Datum *keyvalues,
									  StrataPosition *seen);

/* Close what looking at keys keeps open. */
extern void strata_memtable_end_looks(StrataMemtable *memtable);

/* Append everything to the log, judge it; the caller empties the memtable. */
extern void strata_memtable_append(StrataMemtable *memtable);

#endif							/* STRATA_MEMTABLE_INTERNAL_H */
