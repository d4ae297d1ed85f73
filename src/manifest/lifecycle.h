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

/*
 * A table was altered, perhaps its options: what there is to do for it may
 * change with the commit.  Filled in by the worker layer.
 */
typedef void (*StrataTableAltered)(void);
extern StrataTableAltered strata_table_altered_hook;

/* Something that all rows of a table have to satisfy. */
typedef enum StrataCheckKind
{
	STRATA_CHECK_NOT_NULL,
	STRATA_CHECK_CONSTRAINT,
	STRATA_CHECK_PARTITION,
	STRATA_CHECK_DEFAULT_PARTITION,
	STRATA_CHECK_EXPRESSION,	/* no row: a generated column is stored */
	STRATA_CHECK_DOMAIN_NOT_NULL,
	STRATA_CHECK_DOMAIN
} StrataCheckKind;

typedef struct StrataRowCheck
{
	StrataCheckKind kind;
	AttrNumber	attnum;			/* NOT NULL, domains and expressions */
	char	   *name;			/* of a constraint */
	Node	   *expr;			/* not for NOT NULL; a domain's is over its VALUE */
} StrataRowCheck;

/*
 * The first of checks (StrataRowCheck *) that some row of a table violates, or
 * NULL.  Rows are those of the latest snapshot; the caller holds a lock on the
 * foreign table.  Filled in by _PG_init: this layer does not know how to scan.
 */
typedef const StrataRowCheck *(*StrataCheckRows)(Relation rel, List *checks);
extern StrataCheckRows strata_check_rows_hook;

/*
 * The store that a table over one layer is tied to; InvalidOid when only its
 * option "store" says (see layers.c).
 */
extern Oid	strata_layer_depends_on(Oid layer_table);

#endif							/* STRATA_LIFECYCLE_H */
