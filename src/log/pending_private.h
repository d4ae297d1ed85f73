/*-------------------------------------------------------------------------
 *
 * pending_private.h
 *	  What the files of the pending-keys module share.
 *
 *	pending.c			the one rule for who wins
 *	pending_log.c		decoded entries of a store, kept from query to query
 *	pending_entries.c	reading entries from the log, and one of them again
 *	pending_keys.c		hash from key hash to (entry, row); sets of key hashes
 *						and of key copies
 *	pending_reader.c	reading rows and keys of entries
 *	pending_resolve.c	all losers at once
 *	pending_superseded.c	all superseded base rows at once
 *
 * IDENTIFICATION
 *	  src/log/pending_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PENDING_PRIVATE_H
#define STRATA_PENDING_PRIVATE_H

#include "compat.h"
#include "log/pending.h"

#include "lib/ilist.h"

/* ---- key table (pending_keys.c) ---- */

#define STRATA_NO_KEY	PG_UINT32_MAX

typedef struct StrataPendingKey
{
	uint32		hash;
	uint32		next;			/* older key of the bucket, or STRATA_NO_KEY */
	uint32		entry;
	uint16		row;			/* of a tombstone: rows of the entry + n */
	uint16		unused;
} StrataPendingKey;

/*
 * Keys are added in the order of their entries, so a bucket's chain, which
 * starts at the key added last, goes from newer to older versions.  dups lists
 * the keys added when one of the same hash was there: when it is empty, every
 * version is its key's only one, and nothing need be compared.
 */
typedef struct StrataKeyTable
{
	MemoryContext mcxt;
	StrataPendingKey *keys;
	uint32		nkeys;
	uint32		maxkeys;
	uint32	   *buckets;
	uint32		nbuckets;		/* a power of two */
	int			shift;			/* 32 - log2(nbuckets) */
	uint32	   *dups;
	uint32		ndups;
	uint32		maxdups;
} StrataKeyTable;

static inline uint32
strata_key_table_head(const StrataKeyTable *table, uint32 hash)
{
	return table->buckets[(hash * 2654435769u) >> table->shift];
}

/* For a hash to be looked up soon: buckets of a large table lie far apart. */
#define STRATA_PREFETCH		16

static inline void
strata_key_table_prefetch(const StrataKeyTable *table, uint32 hash)
{
#ifdef __GNUC__
	__builtin_prefetch(&table->buckets[(hash * 2654435769u) >> table->shift]);
#endif
}

extern StrataKeyTable *strata_key_table_create(MemoryContext mcxt, uint64 expected);
extern void strata_key_table_add(StrataKeyTable *table, uint32 hash, uint32 entry, uint32 row);
extern void strata_key_table_add_all(StrataKeyTable *table, const uint32 *hashes, uint32 n,
									 uint32 entry);
extern Size strata_key_table_memory(const StrataKeyTable *table);
extern void strata_key_table_free(StrataKeyTable *table);

/* what a table of nkeys keys takes, about */
extern uint64 strata_key_table_estimate(uint64 nkeys);

/* ---- key hashes alone (pending_keys.c) ---- */

typedef struct StrataHashSet StrataHashSet;

extern StrataHashSet *strata_hash_set_create(MemoryContext mcxt);
extern void strata_hash_set_add(StrataHashSet *set, uint32 hash);
extern bool strata_hash_set_has(const StrataHashSet *set, uint32 hash);

/* ---- copies of key values, found by hash and value (pending_keys.c) ---- */

typedef struct StrataKeySet StrataKeySet;

typedef struct StrataKeySetItem
{
	uint32		hash;
	uint32		next;
	uint32		entry;
	uint32		row;
} StrataKeySetItem;

extern StrataKeySet *strata_key_set_create(const StrataKey *key, Size budget);
/* False, nothing added, when the budget is used up (one always fits). */
extern bool strata_key_set_add(StrataKeySet *set, uint32 hash, const Datum *values,
							   uint32 entry, uint32 row);
extern StrataKeySetItem *strata_key_set_find(StrataKeySet *set, uint32 hash,
											 const Datum *values);
extern bool strata_key_set_has_hash(StrataKeySet *set, uint32 hash);
extern uint32 strata_key_set_count(StrataKeySet *set);
/* Puts the keys in order for strata_key_set_values. */
extern void strata_key_set_sort(StrataKeySet *set);
extern const Datum *strata_key_set_values(StrataKeySet *set, uint32 i);
extern void strata_key_set_reset(StrataKeySet *set);
extern void strata_key_set_free(StrataKeySet *set);

/* ---- entries (pending_log.c) ---- */

/*
 * The decoded entries of a store, from a point of each shard on.  Shared by
 * the handles of a backend.  The position of each shard's walk and the entries
 * read change together: broken is set while they do not.
 */
typedef struct StrataPendingLog
{
	/* backend's own: identity, in the registry */
	StrataFileId file;
	Oid			relid;
	dlist_node	lru;
	bool		registered;
	bool		stale;			/* relation was invalidated since */
	bool		broken;
	int			refcount;

	MemoryContext mcxt;
	int			nshards;
	bool		keyed;
	bool		skip_aborted;
	uint32		start[STRATA_MAX_SHARDS];	/* holds generations > start */
	uint32		trimmed[STRATA_MAX_SHARDS]; /* looked for merged ones up to */
	StrataLogPoint point[STRATA_MAX_SHARDS];
	uint32		last_generation[STRATA_MAX_SHARDS]; /* of entries */
	StrataPageRef last_page[STRATA_MAX_SHARDS]; /* page of the last entry, and */
	uint32		last_page_rows[STRATA_MAX_SHARDS];	/* rows of those on it */
	StrataPendingEntry *entries;
	int			nentries;
	int			maxentries;
	uint64		nkeys;			/* first_key of the next entry */
	StrataKeyTable *keys;		/* NULL: keyless, or over the memory limit */
} StrataPendingLog;

/*
 * A handle: the caller's store and relation, and what belongs to one user.
 */
struct StrataPending
{
	StrataPendingLog *log;
	StrataStore *store;
	Relation	storage;
	MemoryContext mcxt;			/* the handle's own */
	MemoryContextCallback callback;
	StrataPendingReader *reader;	/* of keys, own */
	StrataPendingReader *lent;	/* another one to read keys with, if set */
	uint64		bytes_read;		/* of walks and hashes */
	Size		budget;			/* of a pass, for keys; 0: not bounded here */

	/* losers found at once, for this rule */
	StrataAccept losers_accept;
	void	   *losers_arg;
	int			losers_entries;
	uint8	   *losers;
	uint64		nlosers;
	uint32		ncontested;		/* comparisons made one by one so far */
};

static inline const StrataPendingEntry *
pending_entry(const StrataPending *pending, int entry)
{
	return &pending->log->entries[entry];
}

static inline bool
pending_bit(const uint8 *bitmap, uint64 i)
{
	return bitmap != NULL && (bitmap[i >> 3] & (1 << (i & 7))) != 0;
}

/* ---- reading entries (pending_entries.c) ---- */

/*
 * Read a shard's log from *point on, which moves along, through generation last
 * (0: to its end), and add to *bytes_read.  limit (bytes, 0: none) is for the
 * table of keys: beyond it that is given up.  False: others use it, and reading
 * has stopped behind an entry.
 */
extern bool strata_pending_log_read(StrataPendingLog *log, StrataStore *store, Relation storage,
									int shard, StrataLogPoint *point, uint32 last, Size limit,
									uint64 *bytes_read);

/*
 * Take in what each shard's log has beyond what is kept.  False when the keys
 * would not fit the limit and others use them: the log is not to be used.
 */
extern bool strata_pending_log_extend(StrataPendingLog *log, StrataStore *store, Relation storage,
									  const StrataManifest *manifest, Size limit,
									  uint64 *bytes_read);

/*
 * Would the walk of a shard, for a view of this state, go on behind
 * generations that were never read?
 */
extern bool strata_pending_log_skips(const StrataPendingLog *log, int shard,
									 const StrataShardState *state);

/* A log entry read again and compared with what is known of it; palloc'd. */
extern StrataEntryHeader *strata_pending_read_entry(StrataPending *pending, int entry);

/* Is header that of the known entry? */
extern bool strata_pending_same_entry(const StrataPendingEntry *known,
									  const StrataEntryHeader *header);

/*
 * Read an entry's flags again, where freezing may have set one since, so that
 * nobody asks for an outcome that the server no longer keeps.
 */
extern void strata_pending_refresh_flags(StrataPending *pending, int entry);

/* What became of an entry's transaction by now. */
extern StrataOutcome strata_pending_outcome(StrataPending *pending, int entry);

/* Entries of a shard before this position are known, those from it on are not. */
extern StrataPosition strata_pending_known_end(const StrataPending *pending, int shard);

/*
 * Lend the rule a reader of pending to read keys with (NULL: no longer), so
 * that a lookup finds the entry decoded whose row it then reads.
 */
extern void strata_pending_lend_reader(StrataPending *pending, StrataPendingReader *reader);

/*
 * Key hashes of an entry's rows and tombstones, read again; palloc'd in
 * CurrentMemoryContext, which the caller resets.
 */
extern const uint32 *strata_pending_hashes(StrataPending *pending, int entry);

/* ---- superseded base rows (pending_superseded.c) ---- */

/* Called for base rows that an accepted pending key supersedes. */
typedef struct StrataSuperseded
{
	StrataManifest *manifest;
	const bool *skip;			/* [ngroups]; NULL: none */
	uint8	  **rows;			/* [ngroups], bitmap by row or NULL */
	uint64		count;
	uint64		index_probes;
	uint64		bytes_read;
	uint64		bytes_decoded;
} StrataSuperseded;

/*
 * Find the base rows (deleted ones aside) that accepted pending keys
 * supersede: by probing index with the keys in order, or by looking each base
 * row's key hash up, whichever is expected to cost less.  rows are allocated
 * in CurrentMemoryContext.
 */
extern void strata_pending_superseded(StrataPending *pending, StrataAccept accept, void *arg,
									  Oid index, StrataSuperseded *result);

#endif							/* STRATA_PENDING_PRIVATE_H */
