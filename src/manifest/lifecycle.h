/*-------------------------------------------------------------------------
 *
 * lifecycle.h
 *	  Creation, alteration, truncation and removal of stores, driven by event
 *	  triggers and the FDW.
 *
 * IDENTIFICATION
 *	  src/manifest/lifecycle.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_LIFECYCLE_H
#define STRATA_LIFECYCLE_H

#include "manifest/manifest.h"
#include "manifest/store.h"

/*
 * TRUNCATE of the foreign table: new relfilenode, metapage with the next
 * incarnation, manifest, reindex.  Caller holds AccessExclusiveLock on the
 * foreign table; takes it on the storage.
 */
extern void strata_store_truncate(Oid ftrelid);

/* To be called for a new storage relation or key index: see create.c. */
extern void strata_forget_collations(Oid relid);

/* Drop stores whose foreign table is gone; returns how many there were. */
extern int	strata_store_drop_orphans(void);

/*
 * Does the log of a store hold no entry after what the manifest says is
 * merged?  Filled in by _PG_init: this layer does not know the log.
 */
typedef bool (*StrataLogIsEmpty)(Relation storage, int nshards,
								  const StrataManifest *manifest);
extern StrataLogIsEmpty strata_log_is_empty_hook;

#endif							/* STRATA_LIFECYCLE_H */
