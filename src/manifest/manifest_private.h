/*-------------------------------------------------------------------------
 *
 * manifest_private.h
 *	  What manifest.c (which manifest serves whom) and manifest_read.c (reading
 *	  the tables) share.
 *
 * IDENTIFICATION
 *	  src/manifest/manifest_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MANIFEST_PRIVATE_H
#define STRATA_MANIFEST_PRIVATE_H

#include "manifest/catalog.h"
#include "storage/metapage.h"

#include "utils/hsearch.h"

typedef struct PartialDeletes
{
	uint64		ntids;
	bytea	   *tids;
} PartialDeletes;

typedef struct StrataPartial
{
	HTAB	   *groups;			/* StrataRowGroup by number */
	int			uses;
	int			ndeletes;
	int			maxdeletes;
	PartialDeletes *deletes;
} StrataPartial;

/*
 * An empty manifest in a memory context of its own, below the current one
 * until somebody pins it.
 */
extern StrataManifest *strata_manifest_create(Relation storage, int nshards);

/* The manifest that snapshot sees, whole. */
extern StrataManifest *strata_manifest_read(StrataStore *store, Relation storage,
											const StrataMetaData *meta, Snapshot snapshot);

/* One for lookups; NULL when there are more deletes than it may keep. */
extern StrataManifest *strata_manifest_read_partial(StrataStore *store, Relation storage,
													const StrataMetaData *meta,
													Snapshot snapshot);

/*
 * Read the row groups and deletes that a complete manifest, new or of an
 * earlier pass, does not have yet.
 */
extern void strata_manifest_fill(StrataManifest *manifest, Oid ftrelid, Snapshot snapshot);

/*
 * The shard rows that snapshot (NULL: the newest) sees.  Returns how many
 * there are of that incarnation.
 */
extern int	strata_manifest_read_shards(Oid ftrelid, Snapshot snapshot, uint32 incarnation,
										int nshards, StrataShardState *shards);

/* The newest pass on record that snapshot sees; false when there is none. */
extern bool strata_manifest_newest_pass(Oid ftrelid, Snapshot snapshot, StrataPassRow *row);

/* Is all that passes after the given one did that they added? */
extern bool strata_manifest_only_added_since(Oid ftrelid, Snapshot snapshot, int64 since);

#endif							/* STRATA_MANIFEST_PRIVATE_H */
