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

/* create.c */

/* Attribute numbers of the key that options name, 42703 if one is not there. */
extern int	strata_resolve_key(TupleDesc desc, const StrataOptions *options,
							   const char *relname, AttrNumber *attnums);
/* What CREATE FOREIGN TABLE asks for; the table is locked exclusively. */
extern void strata_store_create(Oid ftrelid);
/* Drop storage relation and manifest rows.  Takes AccessExclusiveLock. */
extern void strata_store_drop(Oid ftrelid, Oid storage);
/* Check a table over a layer, and tie it to its store. */
extern void strata_layer_check(Oid ftrelid, const StrataOptions *options);

/* alter.c */

/*
 * Bring the store of a table that ALTER may have changed up to date, or refuse
 * the change.  renamed: the command was a RENAME.
 */
extern void strata_store_follow(Oid ftrelid, bool renamed);

#endif							/* STRATA_DDL_H */
