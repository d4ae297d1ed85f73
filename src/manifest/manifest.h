/*-------------------------------------------------------------------------
 *
 * manifest.h
 *	  What a snapshot sees as merged: shard states, row groups, deletes.
 *
 * The manifest is a set of heap tables in schema strata, read by index scans
 * under the query's snapshot.  The row in strata.shard is the single fact
 * that makes everything consistent: a snapshot that sees merged_through = g
 * reads the row groups and deletes it can see, plus the generations after g.
 *
 * A backend keeps decoded manifests, keyed by the storage's relfilenode and
 * the pass they include.  The metapage's M and P, read after the snapshot was
 * taken, say which one serves: the one of M if the snapshot sees M, else the
 * one of P if it sees P, else the manifest is read under the snapshot and not
 * kept.  A transaction that is M itself bypasses the cache.
 *
 * Written only under the pass lock or AccessExclusiveLock on the storage.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MANIFEST_H
#define STRATA_MANIFEST_H

#include "manifest/store.h"

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "utils/snapshot.h"

typedef struct StrataShardState
{
	uint32		merged_through; /* newest merged generation, 0: none */
	StrataPageRef first_pending;	/* first page of the next one; owner 0:
									 * the shard page's log_start */
	uint64		rows;			/* totals through merged_through */
	uint64		bytes;
} StrataShardState;

typedef struct StrataRowGroup
{
	uint32		number;
	StrataGroupRef ref;
	uint32		ndeleted;
	uint8	   *deleted;		/* bitmap by row, NULL when ndeleted = 0 */
	bytea	   *zones;			/* zone maps as the row group writer made them */
} StrataRowGroup;

typedef struct StrataManifest
{
	Oid			storage;
	bool		merged;			/* false: snapshot sees nothing merged */
	bool		complete;		/* false: for lookups; of the rest only shards */
	uint32		incarnation;
	int			nshards;
	StrataShardState shards[STRATA_MAX_SHARDS];
	int			ngroups;
	StrataRowGroup *groups;		/* by number, ascending */
	uint64		live_rows;		/* rows minus deletes */
	uint64		raw_bytes;
	uint64		stored_bytes;
	int			ndeletes_rows;	/* rows in strata.deletes */
	uint64		deletes_bytes;
	int			refcount;
	MemoryContext mcxt;

	/* private to manifest.c */
	bool		cached;			/* on the backend's list, found by what follows */
	Oid			relfilenode;
	uint64		pass;			/* newest pass it includes */
	int64		pass_id;		/* its number in strata.pass, 0: no pass */
	int			maxgroups;
	struct StrataDeletesId *deletes;	/* [ndeletes_rows], those applied */
	int			maxdeletes;
	struct StrataPartial *partial;	/* when not complete */
	Size		memory;
	dlist_head	pins;
	dlist_node	link;
} StrataManifest;

/*
 * The manifest a snapshot sees.  storage is the opened storage relation.
 * Pinned until strata_manifest_release, and released by abort: pins belong to
 * CurrentMemoryContext (reset callback).
 */
extern StrataManifest *strata_manifest_get(StrataStore *store, Relation storage,
										   Snapshot snapshot);
extern void strata_manifest_release(StrataManifest *manifest);

/*
 * The same for a reader that needs single row groups, found with
 * strata_manifest_find_group: may not be complete.
 */
extern StrataManifest *strata_manifest_get_for_lookups(StrataStore *store, Relation storage,
													   Snapshot snapshot);

/* Pin one that is pinned a second time, for CurrentMemoryContext. */
extern StrataManifest *strata_manifest_pin(StrataManifest *manifest);

/* The same from the tables, whatever is cached (verify). */
extern StrataManifest *strata_manifest_get_uncached(StrataStore *store, Relation storage,
													Snapshot snapshot);

/*
 * Raise XX001 if there is no metapage although the manifest, as snapshot sees it
 * (NULL: as it is), has a row group.  Then the store was made, and its file has
 * lost the page, or all.
 */
extern void strata_manifest_check_made(StrataStore *store, Relation storage,
									   Snapshot snapshot);

/*
 * The row group of that number, NULL when snapshot, which the manifest was got
 * for, does not see it.  Of a manifest that is not complete its row is read;
 * what is returned then has no zone maps, and lives as long as the manifest.
 */
extern StrataRowGroup *strata_manifest_find_group(StrataManifest *manifest, StrataStore *store,
												  Snapshot snapshot, uint32 number);

/* Not complete, and asked for so many row groups that all had better be read. */
extern bool strata_manifest_outgrown(const StrataManifest *manifest);

/* The same as find_group, of a complete one, by binary search. */
extern StrataRowGroup *strata_manifest_group(StrataManifest *manifest, uint32 number);

static inline bool
strata_row_deleted(const StrataRowGroup *group, uint32 row)
{
	return group->deleted != NULL &&
		(group->deleted[row >> 3] & (1 << (row & 7))) != 0;
}

/* How much there is, by what a snapshot sees. */
typedef struct StrataManifestTotals
{
	uint64		merged_rows;	/* ever merged, as strata_log_totals counts */
	uint64		merged_bytes;
	uint64		groups;
	uint64		live_rows;
	uint64		raw_bytes;
	uint64		stored_bytes;
} StrataManifestTotals;

/* For the planner: costs the same however many row groups there are. */
extern void strata_manifest_totals(StrataStore *store, Relation storage, Snapshot snapshot,
								   StrataManifestTotals *totals);

/*
 * The newest committed shard states, without the rest of a manifest.  False
 * when they are not there for this incarnation.
 */
extern bool strata_manifest_shards(StrataStore *store, uint32 incarnation,
								   StrataShardState *shards);

/* ---- dictionaries ---- */

/*
 * A zstd dictionary of a column.  Its id is the owner id of its extent, so it
 * is given once in the life of a store, whatever became of the pass.
 */
typedef struct StrataDictionaryRef
{
	StrataExtent extent;
	uint64		length;
	AttrNumber	attnum;
} StrataDictionaryRef;

/*
 * A pass adds dictionaries in the transaction of the first row group that
 * names them or an earlier one, and only TRUNCATE, DROP and repair (one that
 * nobody can read) remove them, which no reader overlaps.  So these look at what
 * is committed now (and own changes): whoever sees a row group finds its
 * dictionary, however old its snapshot is.  False: there is none of that id.
 */
extern bool strata_manifest_dictionary(Oid ftrelid, uint64 id, StrataDictionaryRef *ref);

/* Those of an incarnation, oldest first; palloc'd. */
extern StrataDictionaryRef *strata_manifest_dictionaries(Oid ftrelid, uint32 incarnation, int *n);

/* ---- writing, by passes (own transaction sees it after a CCI) ---- */

#define STRATA_PASS_MERGE	"merge"		/* adds row groups and deletes */
#define STRATA_PASS_COMPACT "compact"	/* removes row groups, too */
#define STRATA_PASS_REPAIR	"repair"	/* likewise */

typedef struct StrataPassRecord
{
	const char *what;			/* one of these */
	int64		generations_merged;
	int64		generations_left;
	int64		bytes_merged;	/* of the generations; not on record */
	int64		bytes_adopted;	/* of row groups that stayed where they lay; likewise */
	int64		rows_read;
	int64		rows_inserted;
	int64		rows_replaced;
	int64		rows_deleted;
	int64		rows_aborted;
	int64		row_groups_written;
	int64		row_groups_adopted;
	int64		index_probes;
	bool		index_built;
	int64		base_bytes_read;
	int64		bytes_read;
	int64		bytes_written;
	int64		peak_memory;
	uint32		incarnation;
	int64		base_groups;	/* of the base table, in the end after the pass */
	int64		base_rows;
	int64		base_raw_bytes;
	int64		base_bytes;
	TimestampTz started;
	TimestampTz ended;
} StrataPassRecord;

extern void strata_manifest_set_shard(StrataStore *store, int shard,
									  const StrataShardState *state, uint32 incarnation);
extern void strata_manifest_add_group(StrataStore *store, uint32 incarnation,
									  uint32 number, const StrataGroupRef *ref,
									  bytea *zones, StrataPassRecord *record);
extern void strata_manifest_add_dictionary(StrataStore *store, uint32 incarnation,
										   const StrataDictionaryRef *ref);
/*
 * The dictionary of that id lies elsewhere now.  Its old extent stays as long
 * as a snapshot is left that may have looked it up before.
 */
extern void strata_manifest_move_dictionary(StrataStore *store, uint32 incarnation,
											const StrataDictionaryRef *ref);
extern void strata_manifest_remove_group(StrataStore *store, uint32 number,
										 StrataPassRecord *record);
/* Of a damaged one, by repair, which holds AccessExclusiveLock on the storage. */
extern void strata_manifest_remove_dictionary(StrataStore *store, uint64 id);

/* tids: sorted, encoded (number << 16 | row); one strata.deletes row. */
extern void strata_manifest_add_deletes(StrataStore *store, uint32 incarnation,
										const uint64 *tids, uint64 ntids);

/*
 * Replace all visible deletes rows by one, keeping only live groups' rows.
 * gone (may be NULL) says, by index in manifest, which groups go now.
 */
extern void strata_manifest_fold_deletes(StrataStore *store, StrataManifest *manifest,
										 const bool *gone);

/* The base table as a pass finds it; row groups added and removed count on. */
extern void strata_manifest_start_record(const StrataManifest *manifest,
										 StrataPassRecord *record);
extern void strata_manifest_add_pass(StrataStore *store, const StrataPassRecord *record);

/*
 * For sweep, freeze and index build: every manifest version of the store that
 * is not dead to everybody at horizon (SnapshotAny,
 * HeapTupleSatisfiesVacuum).  callback is called with each row group's ref and
 * number and each dictionary's extent (number and rows 0); shard_callback (may
 * be NULL) with each shard row version.  Rows of another incarnation than the
 * given one are passed over.  True when a row group's version was left out because it is dead: a reader on
 * a standby may still see it.
 */
typedef void (*StrataGroupVersionCallback)(uint32 number, const StrataGroupRef *ref, void *arg);
typedef void (*StrataShardVersionCallback)(int shard, const StrataShardState *state, void *arg);
extern bool strata_manifest_all_versions(Oid ftrelid, uint32 incarnation,
										 TransactionId horizon,
										 StrataGroupVersionCallback group_callback,
										 StrataShardVersionCallback shard_callback,
										 void *arg);

/*
 * Rows that every snapshot not older than horizon sees as deleted: callback is
 * called with each (row group, row), in order within a deletes row.  Caller
 * keeps passes out.
 */
typedef void (*StrataDeletedRowCallback)(uint32 number, uint32 row, void *arg);
extern void strata_manifest_deleted_for_all(Oid ftrelid, uint32 incarnation,
											TransactionId horizon,
											StrataDeletedRowCallback callback, void *arg);

/* After TRUNCATE: drop row groups and deletes, bump incarnation, keep shard numbers. */
extern void strata_manifest_truncate(StrataStore *store, uint32 incarnation,
									 const StrataShardState *shards);

#endif							/* STRATA_MANIFEST_H */
