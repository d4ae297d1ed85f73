/*-------------------------------------------------------------------------
 *
 * store.h
 *	  What a backend knows of a store that does not depend on a snapshot:
 *	  its store row, columns, key and options.
 *
 * The store row is read with a catalog snapshot.  A StrataStore is cached per
 * backend and follows relcache invalidation of the foreign table: whoever
 * writes the store row calls CacheInvalidateRelcache on that.  An entry in
 * use (refcount held by strata_store_open) is never freed under its user.
 *
 * IDENTIFICATION
 *	  src/manifest/store.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_STORE_H
#define STRATA_STORE_H

#include "manifest/key.h"
#include "manifest/options.h"

#include "fmgr.h"
#include "lib/ilist.h"
#include "storage/lock.h"

#include "storage/lockdefs.h"

typedef struct StrataStore
{
	Oid			ftrelid;		/* foreign table */
	Oid			storage;		/* storage relation */
	int			nshards;
	char	   *name;			/* quoted, schema-qualified name for messages */
	StrataKey	key;
	StrataOptions *options;

	/*
	 * The foreign table's columns by attribute number (dropped ones included),
	 * and the values that rows stored before a column was added show for it.
	 * Stored rows carry the number of attributes they were written with.
	 */
	TupleDesc	desc;
	bool	   *has_missing;	/* [desc->natts]; false: NULL */
	Datum	   *missing;
	int			refcount;
	bool		valid;

	/* private to store.c */
	bool		cached;			/* strata_store_open can find it */
	uint64		gucs;			/* strata_gucs_changed when it was made */
	MemoryContext mcxt;
	dlist_head	pins;
} StrataStore;

/*
 * The store of a strata foreign table; the caller holds a lock on the foreign
 * table or on the storage relation.  Checks the column signature: 55000 with
 * a hint when the table was changed behind our back; 55000 "storage is
 * missing" when there is no store row.  Release with strata_store_close
 * (errors release by resource: a reset callback of CurrentMemoryContext).
 */
extern StrataStore *strata_store_open(Oid ftrelid);
extern void strata_store_close(StrataStore *store);

/* oid of the storage relation of ftrelid, InvalidOid when there is none. */
extern Oid	strata_store_storage(Oid ftrelid);

/* foreign table whose storage this is, InvalidOid when there is none. */
extern Oid	strata_store_of_storage(Oid storage);

/* The foreign tables of all stores in this database, by oid. */
extern List *strata_store_list(void);

/* True when relid is a foreign table of our foreign data wrapper. */
extern bool strata_is_foreign_table(Oid relid);

/* True when it has a store: no table over one layer of another's. */
extern bool strata_has_store(Oid relid);

/*
 * Open the storage relation of a store with lockmode, foreign table first by
 * the caller.  55000 when it is missing.
 */
extern Relation strata_storage_open(StrataStore *store, LOCKMODE lockmode);

/*
 * May the user see counts, sizes and states of a table (which is there)?  As
 * owner, with SELECT on it, or as a member of pg_read_all_stats.
 */
extern bool strata_may_watch(Oid ftrelid);

/* The table argument of a function that does something with it: 22004 for null. */
extern Oid	strata_table_argument(FunctionCallInfo fcinfo);

/*
 * Resolve the foreign table argument of an SQL function: checks that it is an
 * ordinary strata table (42809 else) and the caller's rights: owner or member
 * of it, or with owner = false strata_may_watch (42501).  Locks it with lockmode
 * (NoLock: not at all, for passes, which never open the foreign table).
 */
extern void strata_check_table_argument(Oid relid, bool owner, LOCKMODE lockmode);

/*
 * Fill in missing values after a stored row of stored_natts attributes has
 * been decoded into values/isnull.
 */
extern void strata_store_fill_missing(const StrataStore *store, int stored_natts,
									  Datum *values, bool *isnull);

#endif							/* STRATA_STORE_H */
