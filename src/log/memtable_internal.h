/*-------------------------------------------------------------------------
 *
 * memtable_internal.h
 *	  What a memtable holds, for memtable.c, memtable_keys.c and memtable_flush.c.
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
	uint16		marks;			/* STRATA_ROW_... */
	bool		unique;			/* a live row is an error: judged when linked */
	bool		judged;			/* by what was linked before seen, it is none */
	bool		changes;		/* a row that was read: versions of others linked
								 * from seen on are an error */
	StrataPosition seen;
	int16		nvalues;
	Size		raw;			/* bytes of data, as row groups count */
	Size		memory;			/* all allocations */
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

/*
 * 23505, with the key if the statement's user may read it.  With storage, 40001
 * if a serializable transaction has read that there is none and that matters.
 */
extern void strata_memtable_raise_duplicate(StrataMemtable *memtable, Relation storage,
											const Datum *keyvalues) pg_attribute_noreturn();

/* Rows of one command are looked at with one manifest, of its snapshot. */
extern void strata_memtable_pin_manifest(StrataMemtable *memtable, StrataManifest *manifest);

/*
 * Lock the key if it has no row; as for a unique index, one that is there and
 * that nobody changes is one, whoever has locked it.
 */
extern bool strata_memtable_lock_if_free(StrataMemtable *memtable, uint32 hash,
										 Datum *keyvalues);

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
