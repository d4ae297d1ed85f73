/*-------------------------------------------------------------------------
 *
 * ddl.h
 *	  Making, changing and dropping stores: what the event triggers call.
 *	  Used by this layer only.
 *
 * IDENTIFICATION
 *	  src/manifest/ddl.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_DDL_H
#define STRATA_DDL_H

#include "manifest/catalog.h"
#include "manifest/lifecycle.h"

#include "nodes/parsenodes.h"
#include "tcop/deparse_utility.h"

/* create.c */

/* Attribute numbers of the key that options name, 42703 if one is not there. */
extern int	strata_resolve_key(TupleDesc desc, const StrataOptions *options,
							   const char *relname, AttrNumber *attnums);
/* What CREATE FOREIGN TABLE asks for; the table is locked exclusively. */
extern void strata_store_create(Oid ftrelid);
/*
 * Drop storage relation and manifest rows.  Takes AccessExclusiveLock.  What
 * depends on the storage (anybody may use its row type) goes with CASCADE only.
 */
extern void strata_store_drop(Oid ftrelid, Oid storage, DropBehavior behavior);
/* 42501 unless the current user may create something in a tablespace. */
extern void strata_check_tablespace_rights(Oid tablespace);

/* layers.c */

/*
 * Check a table over a layer: its columns are found in the store's table by
 * name, with the same types.  Tie it to the store, and qualify its name.
 */
extern void strata_layer_check(Oid ftrelid, const StrataOptions *options);
/* Untie a table from all stores but one. */
extern void strata_layer_untie(Oid ftrelid, Oid except);
/* A store, or a schema with stores, got another name: so do its layer tables' options. */
extern void strata_layers_follow(Oid store);
extern void strata_layers_follow_schema(Oid schema);

/* checks.c; each raises what core raises for a heap */

/* What the subcommands (CollectedCommand *) of ALTER TABLE demand of rows. */
extern void strata_check_altered(List *commands);
/* A relation was created: as a partition, it makes the default one smaller. */
extern void strata_check_new_partition(Oid partition);
/* ALTER DOMAIN.  Takes ShareLock on the tables that use it. */
extern void strata_check_domain(Oid domain, const AlterDomainStmt *stmt);
/*
 * A row type got a column of another type.  Core refuses that while a table
 * stores values of the row type, but does not know that foreign tables can.
 */
extern void strata_check_rowtype(Oid relid);

/* alter.c */

/*
 * Bring the store of a table that ALTER may have changed up to date, or refuse
 * the change.  renamed: the command was a RENAME.
 */
extern void strata_store_follow(Oid ftrelid, bool renamed);

#endif							/* STRATA_DDL_H */
