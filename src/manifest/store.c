/*-------------------------------------------------------------------------
 *
 * store.c
 *	  What a backend knows of a store whatever its snapshot, and who may ask.
 *
 * A StrataStore is made from the store row, the foreign table's columns and
 * its options, and cached.  It goes stale when the foreign table's relcache
 * entry is invalidated (whoever writes a store row sees to that) or a GUC that
 * is an option's default changes; a stale one lives on until the last user
 * closes it.
 *
 * Locks: the caller holds a lock on the foreign table or on the storage
 * relation.  Either keeps the store row and the columns as they are: DDL that
 * changes what is read here takes AccessExclusiveLock on both before its
 * transaction can commit.  A merge pass holds the storage relation only, so
 * the foreign table's relcache entry is read without locking that.
 *
 * Pins are released with the memory context they were taken in, so that an
 * error needs no cleanup.
 *
 * IDENTIFICATION
 *	  src/manifest/store.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "manifest/columns.h"
#include "manifest/store.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#define STORE_CACHE_PRUNE_EVERY		64

typedef struct StoreEntry
{
	Oid			ftrelid;		/* hash key */
	StrataStore *store;			/* newest one, or NULL */
} StoreEntry;

/* One strata_store_open without its close. */
typedef struct StorePin
{
	dlist_node	link;			/* in the store's list; newest first */
	MemoryContext context;
	StrataStore *store;			/* NULL once closed */
	MemoryContextCallback callback;
} StorePin;

static HTAB *store_cache = NULL;

/* The store being read, and whether it was invalidated meanwhile. */
static Oid	store_making = InvalidOid;
static bool store_making_stale = false;

static void store_cache_init(void);
static void store_invalidate(Datum arg, Oid relid);
static void store_cache_prune(void);
static StrataStore *store_make(Oid ftrelid);
static void store_unpin(StorePin *pin);
static void store_pin_reset(void *arg);

static void
store_cache_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(StoreEntry);
	ctl.hcxt = CacheMemoryContext;
	store_cache = hash_create("strata stores", 32, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(store_invalidate, (Datum) 0);
}

/*
 * Relcache callback: mark, never free.  relid 0 stands for all relations.
 */
static void
store_invalidate(Datum arg, Oid relid)
{
	StoreEntry *entry;

	if (!OidIsValid(relid) || relid == store_making)
		store_making_stale = true;

	if (OidIsValid(relid))
	{
		entry = hash_search(store_cache, &relid, HASH_FIND, NULL);
		if (entry != NULL && entry->store != NULL)
			entry->store->valid = false;
	}
	else
	{
		HASH_SEQ_STATUS status;

		hash_seq_init(&status, store_cache);
		while ((entry = hash_seq_search(&status)) != NULL)
		{
			if (entry->store != NULL)
				entry->store->valid = false;
		}
	}
}

/*
 * Forget stores that went stale and are not used, dropped ones among them,
 * when there are many.
 */
static void
store_cache_prune(void)
{
	static int	builds = 0;
	HASH_SEQ_STATUS status;
	StoreEntry *entry;

	if (++builds % STORE_CACHE_PRUNE_EVERY != 0)
		return;
	hash_seq_init(&status, store_cache);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		StrataStore *store = entry->store;

		if (store != NULL && (store->valid || store->refcount > 0))
			continue;
		if (store != NULL)
			MemoryContextDelete(store->mcxt);
		(void) hash_search(store_cache, &entry->ftrelid, HASH_REMOVE, NULL);
	}
}

static void
missing_storage(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the storage of foreign table %s is missing", name),
			 errdetail("It was created while event triggers were off, or is a table over one layer of another one."),
			 errhint("Drop and create the foreign table.")));
}

/*
 * Read everything.  Allocates below CurrentMemoryContext until it is complete.
 */
static StrataStore *
store_make(Oid ftrelid)
{
	StrataStoreRow row;
	Relation	rel;
	MemoryContext mcxt;
	MemoryContext oldcontext;
	StrataStore *store;
	char	   *name;

	rel = RelationIdGetRelation(ftrelid);
	if (!RelationIsValid(rel))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("foreign table with OID %u does not exist", ftrelid)));
	name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));

	if (!strata_store_row_read(ftrelid, &row))
		missing_storage(name);
	if (!strata_columns_match(&row, RelationGetDescr(rel)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columns of foreign table %s were changed while event triggers were off",
						name),
				 errhint("SELECT strata.record_columns('%s') records the changes if the stored rows allow it.",
						 name)));

	mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata store",
								 ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(mcxt);

	store = palloc0(sizeof(StrataStore));
	store->mcxt = mcxt;
	store->ftrelid = ftrelid;
	store->storage = row.storage;
	store->nshards = row.shards;
	store->name = pstrdup(name);
	store->gucs = strata_gucs_changed;
	store->options = strata_options_get(ftrelid);
	store->desc = CreateTupleDescCopy(RelationGetDescr(rel));
	store->has_missing = palloc0(sizeof(bool) * Max(store->desc->natts, 1));
	store->missing = palloc0(sizeof(Datum) * Max(store->desc->natts, 1));
	strata_missing_decode(row.missing, store->desc, store->has_missing, store->missing);
	strata_key_init(&store->key, store->desc, row.key, row.nkeys, mcxt);
	dlist_init(&store->pins);
	store->cached = true;

	MemoryContextSwitchTo(oldcontext);
	RelationClose(rel);
	return store;
}

StrataStore *
strata_store_open(Oid ftrelid)
{
	StoreEntry *entry;
	StrataStore *store;
	StorePin   *pin;
	bool		found;

	if (store_cache == NULL)
		store_cache_init();

	entry = hash_search(store_cache, &ftrelid, HASH_FIND, NULL);
	store = entry != NULL ? entry->store : NULL;

	if (store == NULL || !store->valid || store->gucs != strata_gucs_changed)
	{
		StrataStore *old;

		/*
		 * An invalidation that arrives while the store is read is too early
		 * to find it.  What the caller's lock protects is right all the same;
		 * the next open reads names and options again.
		 */
		store_making = ftrelid;
		store_making_stale = false;
		store = store_make(ftrelid);
		store->valid = !store_making_stale;
		store_making = InvalidOid;

		store_cache_prune();
		entry = hash_search(store_cache, &ftrelid, HASH_ENTER, &found);
		old = found ? entry->store : NULL;
		entry->store = store;
		MemoryContextSetParent(store->mcxt, CacheMemoryContext);
		if (old != NULL)
		{
			old->valid = false;
			old->cached = false;
			if (old->refcount == 0)
				MemoryContextDelete(old->mcxt);
		}
	}

	pin = palloc(sizeof(StorePin));
	pin->context = CurrentMemoryContext;
	pin->store = store;
	pin->callback.func = store_pin_reset;
	pin->callback.arg = pin;
	dlist_push_head(&store->pins, &pin->link);
	store->refcount++;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &pin->callback);
	return store;
}

/*
 * Release one pin; free the store when it was the last and nobody can find the
 * store any more.
 */
static void
store_unpin(StorePin *pin)
{
	StrataStore *store = pin->store;

	pin->store = NULL;
	dlist_delete(&pin->link);
	Assert(store->refcount > 0);
	if (--store->refcount == 0 && !store->cached)
		MemoryContextDelete(store->mcxt);
}

static void
store_pin_reset(void *arg)
{
	StorePin   *pin = arg;

	if (pin->store != NULL)
		store_unpin(pin);
}

/*
 * The pin to release is the one of the current memory context, if there is
 * one, else the newest.  Its memory stays with its context.
 */
void
strata_store_close(StrataStore *store)
{
	StorePin   *pin = NULL;
	dlist_iter	iter;

	Assert(!dlist_is_empty(&store->pins));
	dlist_foreach(iter, &store->pins)
	{
		StorePin   *candidate = dlist_container(StorePin, link, iter.cur);

		if (pin == NULL || candidate->context == CurrentMemoryContext)
			pin = candidate;
		if (candidate->context == CurrentMemoryContext)
			break;
	}
	store_unpin(pin);
}

Oid
strata_store_storage(Oid ftrelid)
{
	StrataStoreRow row;
	StoreEntry *entry = NULL;

	if (store_cache != NULL)
		entry = hash_search(store_cache, &ftrelid, HASH_FIND, NULL);
	if (entry != NULL && entry->store != NULL && entry->store->valid)
		return entry->store->storage;
	return strata_store_row_read(ftrelid, &row) ? row.storage : InvalidOid;
}

Oid
strata_store_of_storage(Oid storage)
{
	return strata_store_row_of_storage(storage);
}

/*
 * Ours is whatever has our handler, so that renaming the wrapper, or another
 * wrapper with the same handler, makes no difference.
 */
bool
strata_is_foreign_table(Oid relid)
{
	ForeignTable *table;
	ForeignServer *server;
	Oid			handler;

	if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE)
		return false;
	handler = LookupFuncName(list_make2(makeString(STRATA_SCHEMA), makeString("strata_handler")),
							 0, NULL, true);
	if (!OidIsValid(handler))
		return false;
	table = GetForeignTable(relid);
	server = GetForeignServer(table->serverid);
	return GetForeignDataWrapper(server->fdwid)->fdwhandler == handler;
}

bool
strata_has_store(Oid relid)
{
	StrataStoreRow row;

	return strata_is_foreign_table(relid) && strata_store_row_read(relid, &row);
}

/*
 * Open the storage relation and compare it with what the store row makes of
 * the key, so that neither is used with the other's types.
 */
Relation
strata_storage_open(StrataStore *store, LOCKMODE lockmode)
{
	Relation	storage = try_relation_open(store->storage, lockmode);
	TupleDesc	desc;
	bool		same;

	if (storage == NULL)
		missing_storage(store->name);

	desc = RelationGetDescr(storage);
	same = storage->rd_rel->relkind == RELKIND_RELATION &&
		desc->natts == store->key.natts;
	for (int i = 0; same && i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		same = !att->attisdropped &&
			att->atttypid == store->key.type[i] &&
			att->attcollation == store->key.collation[i];
	}
	if (!same)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("key of foreign table %s does not match its storage \"%s\"",
						store->name, RelationGetRelationName(storage))));
	return storage;
}

bool
strata_may_watch(Oid ftrelid)
{
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(ftrelid)) &&
		(pg_class_ownercheck(ftrelid, GetUserId()) ||
		 pg_class_aclcheck(ftrelid, GetUserId(), ACL_SELECT) == ACLCHECK_OK ||
		 has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS));
}

static void
check_table_rights(Oid relid, bool owner)
{
	AclResult	result;

	if (owner)
		result = pg_class_ownercheck(relid, GetUserId()) ? ACLCHECK_OK : ACLCHECK_NOT_OWNER;
	else
		result = strata_may_watch(relid) ? ACLCHECK_OK : ACLCHECK_NO_PRIV;
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FOREIGN_TABLE, get_rel_name(relid));
}

static void
check_table_kind(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!strata_is_foreign_table(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a strata foreign table", name),
				 get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
					 errhint("Name its partitions: pg_partition_tree() lists them.") :
					 0));
	if (strata_options_get(relid)->layer != STRATA_LAYER_ALL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("foreign table \"%s\" has no store of its own", name),
				 errhint("Use the table that its option \"store\" names.")));
}

Oid
strata_table_argument(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table must not be null")));
	return PG_GETARG_OID(0);
}

/*
 * Rights come before the lock: whoever has none shall not be able to stand in
 * others' way.  They are looked at again under it, as the table may have been
 * dropped or given away while we waited.
 */
void
strata_check_table_argument(Oid relid, bool owner, LOCKMODE lockmode)
{
	check_table_kind(relid);
	check_table_rights(relid, owner);
	if (lockmode == NoLock)
		return;
	LockRelationOid(relid, lockmode);
	check_table_kind(relid);
	check_table_rights(relid, owner);
}

void
strata_store_fill_missing(const StrataStore *store, int stored_natts,
						  Datum *values, bool *isnull)
{
	for (int i = stored_natts; i < store->desc->natts; i++)
	{
		values[i] = store->missing[i];
		isnull[i] = !store->has_missing[i];
	}
}
