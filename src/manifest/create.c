/*-------------------------------------------------------------------------
 *
 * create.c
 *	  Making and dropping the store of a foreign table.
 *
 * A store is a storage relation, its key index, a store row and a shard row
 * for each shard, all made in the transaction of CREATE FOREIGN TABLE and
 * dropped in that of whatever drops the foreign table.  Catalog changes and
 * manifest rows roll back by themselves, files by PostgreSQL's pending
 * deletes, so there is no crash window of our own.
 *
 * The storage relation belongs to the owner of the extension, is a member of
 * the extension (so pg_dump leaves it out and pg_upgrade carries it) and has
 * no dependency on the foreign table: a member that depended on it would make
 * DROP FOREIGN TABLE ... CASCADE take the whole extension along.  It is found
 * by the oid in the store row, never by its name.
 *
 * No privileges are checked here.  Who may create the foreign table was
 * decided by core: USAGE on the server, CREATE on the schema.
 *
 * Locks: AccessExclusiveLock on the foreign table is the caller's, taken
 * first; the storage is locked after it.
 *
 * IDENTIFICATION
 *	  src/manifest/create.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "pause.h"
#include "manifest/columns.h"
#include "manifest/ddl.h"
#include "storage/relation_am.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/heap.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

static Oid	storage_create(Oid ftrelid, const StrataKey *key);
static void storage_create_index(Oid ftrelid, Oid storage, const StrataKey *key);

/* The owner of everything of ours: that of the manifest. */
static Oid
manifest_owner(Oid schema)
{
	Oid			relid = get_relname_relid(strata_table_name(STRATA_TABLE_STORE), schema);
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "manifest of strata is missing");
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* Everybody may use the database's own tablespace. */
void
strata_check_tablespace_rights(Oid tablespace)
{
	AclResult	result;

	if (!OidIsValid(tablespace) || tablespace == MyDatabaseTableSpace)
		return;
	result = pg_tablespace_aclcheck(tablespace, GetUserId(), ACL_CREATE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_TABLESPACE, get_tablespace_name(tablespace));
}

/* default_tablespace, which the creator must be allowed to use. */
static Oid
choose_tablespace(void)
{
	Oid			tablespace = GetDefaultTablespace(RELPERSISTENCE_PERMANENT, false);

	strata_check_tablespace_rights(tablespace);
	return tablespace;
}

/*
 * Make the storage relation, as if our extension's script were doing it, even
 * while another extension's script is.
 */
static Oid
storage_create(Oid ftrelid, const StrataKey *key)
{
	Oid			schema = get_namespace_oid(STRATA_SCHEMA, false);
	char	   *name = psprintf("s%u", ftrelid);
	List	   *options = list_make1(makeDefElem("parallel_workers", (Node *) makeInteger(0), -1));
	Datum		reloptions = transformRelOptions((Datum) 0, options, NULL, NULL, false, false);
	Oid			tablespace = choose_tablespace();
	bool		save_creating = creating_extension;
	Oid			save_object = CurrentExtensionObject;
	bool		save_own = strata_own_ddl;
	Oid			storage;

	if (OidIsValid(get_relname_relid(name, schema)))
		name = ChooseRelationName(name, NULL, "storage", schema, false);

	PG_TRY();
	{
		creating_extension = true;
		CurrentExtensionObject = get_extension_oid(STRATA_SCHEMA, false);
		strata_own_ddl = true;
		storage = heap_create_with_catalog(name, schema, tablespace,
										   InvalidOid, InvalidOid, InvalidOid,
										   manifest_owner(schema), strata_storage_am_oid(),
										   key->desc, NIL,
										   RELKIND_RELATION, RELPERSISTENCE_PERMANENT,
										   false, false, ONCOMMIT_NOOP, reloptions,
										   false, true, true, InvalidOid, NULL);
	}
	PG_FINALLY();
	{
		creating_extension = save_creating;
		CurrentExtensionObject = save_object;
		strata_own_ddl = save_own;
	}
	PG_END_TRY();

	CommandCounterIncrement();
	strata_forget_collations(storage);
	return storage;
}

/*
 * The foreign table's columns depend on their collations; the storage must
 * not, too, or dropping a schema that holds both would want to drop a part of
 * the storage by itself.
 */
void
strata_forget_collations(Oid relid)
{
	deleteDependencyRecordsForClass(RelationRelationId, relid, CollationRelationId,
									DEPENDENCY_NORMAL);
}

static void
storage_create_index(Oid ftrelid, Oid storage, const StrataKey *key)
{
	Relation	rel = table_open(storage, ShareLock);
	IndexInfo  *info = strata_make_index_info(key->natts);
	List	   *names = NIL;
	int16		coloptions[INDEX_MAX_KEYS] = {0};
	char	   *name = psprintf("s%u_key", ftrelid);
	Oid			index;

	for (int i = 0; i < key->natts; i++)
	{
		info->ii_IndexAttrNumbers[i] = i + 1;
		names = lappend(names, NameStr(TupleDescAttr(key->desc, i)->attname));
	}
	if (OidIsValid(get_relname_relid(name, RelationGetNamespace(rel))))
		name = ChooseRelationName(name, NULL, "key", RelationGetNamespace(rel), false);

	index = strata_index_create(rel, name, info, names, key->collation, key->btree_opclass,
								coloptions);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	strata_forget_collations(index);
}

int
strata_resolve_key(TupleDesc desc, const StrataOptions *options, const char *relname,
				   AttrNumber *attnums)
{
	ListCell   *lc;
	int			nkeys = 0;

	foreach (lc, options->key)
	{
		const char *name = strVal(lfirst(lc));
		AttrNumber	attnum = InvalidAttrNumber;

		for (int i = 0; i < desc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(desc, i);

			if (!att->attisdropped && namestrcmp(&att->attname, name) == 0)
			{
				if (strata_column_is_virtual(att))
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("key column \"%s\" of foreign table \"%s\" is a virtual generated column",
									name, relname),
							 errhint("Make it GENERATED ALWAYS AS (...) STORED.")));
				attnum = att->attnum;
			}
		}
		if (attnum == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("key column \"%s\" of foreign table \"%s\" does not exist",
							name, relname),
					 errhint("The option \"key\" is a list of column names separated by commas. As in SQL, names with upper-case letters or other characters need double quotes.")));
		attnums[nkeys++] = attnum;
	}
	return nkeys;
}

void
strata_store_create(Oid ftrelid)
{
	Relation	rel = relation_open(ftrelid, NoLock);
	TupleDesc	desc = RelationGetDescr(rel);
	StrataOptions *options = strata_options_get(ftrelid);
	StrataStoreRow row = {0};
	StrataKey	key;
	Oid			orphan;

	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("temporary foreign tables are not supported by strata")));

	/* A table dropped while event triggers were off may have had this oid. */
	orphan = strata_store_storage(ftrelid);
	if (OidIsValid(orphan))
		strata_store_drop(ftrelid, orphan, DROP_CASCADE);

	row.nkeys = strata_resolve_key(desc, options, RelationGetRelationName(rel), row.key);
	strata_key_init(&key, desc, row.key, row.nkeys, CurrentMemoryContext);

	row.foreign_table = ftrelid;
	row.storage = storage_create(ftrelid, &key);
	row.incarnation = 1;
	row.shards = options->shards;
	row.ncolumns = desc->natts;
	row.columns = strata_columns_of(desc);
	strata_store_row_insert(&row);
	for (int shard = 0; shard < row.shards; shard++)
	{
		StrataShardRow shard_row = {.shard = shard, .incarnation = row.incarnation};

		strata_shard_row_insert(ftrelid, &shard_row);
	}
	CacheInvalidateRelcache(rel);
	CommandCounterIncrement();
	STRATA_PAUSE("manifest-store-created");

	/* The build looks its store up. */
	if (row.nkeys > 0)
		storage_create_index(ftrelid, row.storage, &key);

	relation_close(rel, NoLock);
}

/* Tables with a store that have columns of this type. */
static List *
stores_using(Oid type, List *stores)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(TypeRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == RelationRelationId && form->objsubid != 0 && strata_has_store(form->objid))
			stores = list_append_unique_oid(stores, form->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return stores;
}

void
strata_store_drop(Oid ftrelid, Oid storage, DropBehavior behavior)
{
	ObjectAddress object;
	List	   *shrunk = NIL;
	ListCell   *lc;

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(storage)))
	{
		Oid			type = get_rel_type_id(storage);

		/*
		 * A member cannot be dropped but with its extension.  In
		 * later versions the types of a relation are members, too.
		 */
		deleteDependencyRecordsForClass(RelationRelationId, storage,
										ExtensionRelationId, DEPENDENCY_EXTENSION);
		deleteDependencyRecordsForClass(TypeRelationId, type,
										ExtensionRelationId, DEPENDENCY_EXTENSION);
		deleteDependencyRecordsForClass(TypeRelationId, get_array_type(type),
										ExtensionRelationId, DEPENDENCY_EXTENSION);
		CommandCounterIncrement();

		/* columns that go with it are in nobody's list of what was dropped */
		if (behavior == DROP_CASCADE)
			shrunk = stores_using(get_array_type(type), stores_using(type, NIL));

		ObjectAddressSet(object, RelationRelationId, storage);
		performDeletion(&object, behavior, PERFORM_DELETION_INTERNAL);
	}
	STRATA_PAUSE("manifest-storage-dropped");

	for (int table = 0; table < STRATA_NTABLES; table++)
		strata_table_delete((StrataTable) table, ftrelid);
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(ftrelid)))
		CacheInvalidateRelcacheByRelid(ftrelid);
	CommandCounterIncrement();

	foreach (lc, shrunk)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(lc))))
			strata_store_follow(lfirst_oid(lc), false);
	}
}
