/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  The keys of pending generations, and the one rule for who wins.
 *
 * Within a shard a later position beats an earlier one; pending beats base; a
 * tombstone hides the key.  A key lives in one shard, so this is a total
 * order of its versions.  Everything that must know which version of a key
 * counts asks this module: key lookup, scan, ANALYZE, verify, merge.
 *
 * StrataPending is the decoded list of entries of a range of generations with
 * a hash from key hash to (entry, row), newest first.  A backend keeps one per
 * store for its queries, extended as the log grows and dropped as it is
 * merged, within strata.cache_size; a merge pass makes one of its own for the
 * generations it folds.  It knows nothing of snapshots: who is asked for is
 * passed in as an acceptance rule.
 *
 * IDENTIFICATION
 *	  src/log/pending.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PENDING_H
#define STRATA_PENDING_H

#include "base/rowgroup.h"
#include "log/walk.h"
#include "log/visibility.h"

#include "storage/itemptr.h"

/* An entry as kept in memory.  EXTENT entries are not kept. */
typedef struct StrataPendingEntry
{
	uint64		fxid;
	uint32		cid;
	uint16		type;			/* ROWS or ROW_GROUP */
	uint16		flags;
	int			shard;
	StrataPosition position;
	StrataPageRef page;			/* the page it starts on */
	uint32		rows;
	uint32		tombstones;
	StrataGroupRef group;		/* ROW_GROUP */

	/* numbers of its rows and tombstones: first_key + row, over all entries */
	uint64		first_key;
	uint16		tid_first;		/* rows of entries before it on its page */
} StrataPendingEntry;

/* A key is named by (entry, row); tombstones are numbered after the rows. */
static inline uint32
strata_pending_entry_keys(const StrataPendingEntry *entry)
{
	return entry->rows + entry->tombstones;
}

typedef struct StrataPending StrataPending;

/* Entry index of a shard's later entries is always greater. */
extern int	strata_pending_nentries(const StrataPending *pending);
extern const StrataPendingEntry *strata_pending_entry(const StrataPending *pending, int entry);
extern uint64 strata_pending_bytes_read(const StrataPending *pending);

/*
 * Of a pass: entries of the given shard from a point on, through generation
 * last; add shard by shard, generation by generation.  Keys are indexed while
 * the table of them fits budget (0: whatever they take); the rule works within
 * as much.
 */
extern StrataPending *strata_pending_create(StrataStore *store, Relation storage,
											MemoryContext parent, Size budget);
extern void strata_pending_add(StrataPending *pending, int shard,
							   const StrataLogPoint *from, uint32 last);
extern void strata_pending_free(StrataPending *pending);

/*
 * The backend's own for a store, holding everything from the manifest's first
 * pending points to the log's end now, entries of aborted transactions left
 * out.  end receives the number of entries that belong to the caller's view:
 * those with an index >= end came later.
 *
 * What is returned is a handle of the caller's, in a child of
 * CurrentMemoryContext, on entries that other views of this backend may share;
 * it is released with that context at the latest.  It may hold more than the
 * manifest's generations: entries of generations <= merged_through of their
 * shard are in the view's base table, and the acceptance rule must refuse them.
 */
extern StrataPending *strata_pending_current(StrataStore *store, Relation storage,
											 const StrataManifest *manifest, int *end);
extern void strata_pending_unpin(StrataPending *pending);

/* Take in what was appended since; end of views already open stays theirs. */
extern void strata_pending_extend(StrataPending *pending, const StrataManifest *manifest);

/* Number of generations that entries of shard are known of beyond after. */
extern uint32 strata_pending_generations(const StrataPending *pending, int shard, uint32 after);

/* Acceptance rule: does this entry count? */
typedef bool (*StrataAccept)(const StrataPendingEntry *entry, int index, void *arg);

/* How key values given by a query are compared with stored ones. */
typedef struct StrataKeyProbe
{
	const StrataKey *key;
	int			nkeys;			/* = key->natts for exact lookups */
	Datum	   *values;			/* of type subtype[] */
	Oid		   *subtype;		/* NULL: the key's own types */
	FmgrInfo   *eq;				/* NULL: the key's own equality; else
								 * eq(stored, given) */
	RegProcedure *eqproc;		/* NULL as eq */
	bool		has_hash;		/* false: operators not in the hash family;
								 * pending keys are compared one by one */
	uint32		hash;
} StrataKeyProbe;

extern bool strata_probe_matches(const StrataKeyProbe *probe, const Datum *stored);

typedef struct StrataVersion
{
	int			entry;
	uint32		row;			/* >= rows of the entry: a tombstone */
	bool		tombstone;
} StrataVersion;

/* The winner for a key among accepted entries; false when there is none. */
extern bool strata_pending_find(StrataPending *pending, const StrataKeyProbe *probe,
								StrataAccept accept, void *arg, StrataVersion *out);

/*
 * All of the key's versions in accepted entries, newest first, until visit
 * returns false.  It is called in a context that is soon reset.
 */
typedef bool (*StrataVisit)(const StrataVersion *version, void *arg);

extern void strata_pending_versions(StrataPending *pending, const StrataKeyProbe *probe,
									StrataAccept accept, void *accept_arg,
									StrataVisit visit, void *visit_arg);

/*
 * Is (entry, row) the winner of its key among accepted entries?  The rule must
 * give the same answers as long as the same arg is passed: a caller that asks
 * often has all losers found at once (strata_pending_losers).
 */
extern bool strata_pending_wins(StrataPending *pending, int entry, uint32 row,
								StrataAccept accept, void *arg);

/*
 * All losers at once: a bitmap by first_key + row with a bit for each accepted
 * version that a newer accepted one beats; NULL when there is none.  Hash
 * partitions keep it within hash_mem, whatever the backlog.  Belongs to
 * pending.
 */
extern const uint8 *strata_pending_losers(StrataPending *pending, StrataAccept accept, void *arg);

/* Does any accepted version of this base row's key exist (hash first)? */
extern bool strata_pending_hides(StrataPending *pending, uint32 hash,
								 StrataGroupReader *reader, uint32 row,
								 StrataAccept accept, void *arg);

/*
 * The same for many base rows: their keys are collected, then asked for all
 * at once, which reads the pending hashes once where they are not kept.
 */
typedef struct StrataHiddenRows StrataHiddenRows;

extern StrataHiddenRows *strata_hidden_rows_begin(StrataPending *pending);
/* Add the next row; rows are numbered from 0. */
extern void strata_hidden_rows_add(StrataHiddenRows *rows, uint32 hash,
								   const Datum *keyvalues);
/* Set hidden[n] for each; returns how many are. */
extern uint32 strata_hidden_rows_find(StrataHiddenRows *rows, StrataAccept accept, void *arg,
									  bool *hidden);
extern void strata_hidden_rows_end(StrataHiddenRows *rows);

/*
 * Reading rows of entries: keeps the last entry decoded / group opened.
 * needed as in strata_group_open.
 */
typedef struct StrataPendingReader StrataPendingReader;

extern StrataPendingReader *strata_pending_reader_begin(StrataPending *pending,
														const Bitmapset *needed,
														bool sequential);
extern void strata_pending_reader_row(StrataPendingReader *reader, int entry, uint32 row,
									  Datum *values, bool *isnull);
extern void strata_pending_reader_key(StrataPendingReader *reader, int entry, uint32 row,
									  Datum *keyvalues);
/* Of tombstones, as strata_entry_moved and strata_entry_next_key. */
extern bool strata_pending_reader_moved(StrataPendingReader *reader, int entry, uint32 row);
extern bool strata_pending_reader_next_key(StrataPendingReader *reader, int entry, uint32 row,
										   Datum *keyvalues);
extern uint32 strata_pending_reader_hash(StrataPendingReader *reader, int entry, uint32 row);
extern void strata_pending_reader_io(StrataPendingReader *reader, uint64 *bytes_read,
									 uint64 *bytes_decoded);
extern void strata_pending_reader_end(StrataPendingReader *reader);

#endif							/* STRATA_PENDING_H */
