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

#include "manifest/store.h"

/*
 * TRUNCATE of the foreign table: new relfilenode, metapage with the next
 * incarnation, manifest, reindex.  Caller holds AccessExclusiveLock on the
 * foreign table; takes it on the storage.
 */
extern void strata_store_truncate(Oid ftrelid);

#endif							/* STRATA_LIFECYCLE_H */
