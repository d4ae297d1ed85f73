/*-------------------------------------------------------------------------
 *
 * relation_am.h
 *	  Table access method of storage relations.
 *
 * It keeps the relation's files and lets VACUUM, CLUSTER, REINDEX and ANALYZE
 * work; it refuses direct reads and writes (0A000).  What needs knowledge of
 * the layers above is called through StrataStorageHooks, filled by _PG_init.
 *
 * IDENTIFICATION
 *	  src/storage/relation_am.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_RELATION_AM_H
#define STRATA_RELATION_AM_H

#include "strata.h"

#include "access/tableam.h"
#include "commands/vacuum.h"
#include "nodes/execnodes.h"

typedef struct StrataStorageHooks
{
	/*
	 * Feed base rows to callback and return their number.  For an index build
	 * (snapshot NULL): every row of the file's incarnation whose manifest row
	 * is not dead to all, superseded or not.  For a check of an index against
	 * its table (amcheck's heapallindexed): the rows that snapshot sees, of
	 * which the index must have each; sweep removes TIDs of others.
	 */
	double (*index_build)(Relation storage, Relation index,
								IndexInfo *index_info, Snapshot snapshot,
								IndexBuildCallback callback, void *state);

	/* Freeze what can be frozen, vac_update_relstats.  Never assigns an xid. */
	void (*vacuum)(Relation storage, VacuumParams *params,
						   BufferAccessStrategy strategy);
} StrataStorageHooks;

extern StrataStorageHooks strata_storage_hooks;

/*
 * True while strata itself runs DDL on a storage relation (TRUNCATE's new
 * relfilenode, creation): the AM's set_new_filenode allows it.  Set and reset
 * with PG_TRY/PG_FINALLY.
 */
extern bool strata_own_ddl;

extern Oid	strata_storage_am_oid(void);
extern bool strata_is_storage_relation(Relation rel);

#endif							/* STRATA_RELATION_AM_H */
