/*-------------------------------------------------------------------------
 *
 * layers.c
 *	  Tables over one layer of a store: what ties them to it.
 *
 * OPTIONS (store 'rollouts', layer 'wal' | 'base') names the store; a
 * dependency like that of a view on its table ties the two.  The dependency
 * decides which store is read, so that renaming it breaks nothing, not even a
 * reader that waits for the renaming to end.  The name is for people and for
 * dumps: it is kept qualified and follows the store to other names and schemas.
 *
 * A table made while no event trigger fired (pg_upgrade) has no dependency; its
 * store is found by name until an ALTER of the table adds the dependency.
 *
 * IDENTIFICATION
 *	  src/manifest/layers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/ddl.h"

#include "compat.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_inherits.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * The relations that a relation depends on (forward), or that depend on it,
 * each as a whole.
 */
static List *
related_relations(Oid relid, bool forward)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *result = NIL;

	ScanKeyInit(&keys[0],
				forward ? Anum_pg_depend_classid : Anum_pg_depend_refclassid,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1],
				forward ? Anum_pg_depend_objid : Anum_pg_depend_refobjid,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(depend, forward ? DependDependerIndexId : DependReferenceIndexId,
							  true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == RelationRelationId && form->objsubid == 0 &&
			form->refclassid == RelationRelationId && form->refobjsubid == 0 &&
			form->deptype == DEPENDENCY_NORMAL)
			result = lappend_oid(result, forward ? form->refobjid : form->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return result;
}

static bool
is_layer_table(Oid relid)
{
	return strata_is_foreign_table(relid) && !strata_has_store(relid) &&
		strata_options_get(relid)->layer != STRATA_LAYER_ALL;
}

/*
 * An inheritance parent is depended on likewise, so a table that has one goes
 * by the name.
 */
Oid
strata_layer_depends_on(Oid layer_table)
{
	Oid			store = InvalidOid;
	ListCell   *lc;

	if (has_superclass(layer_table))
		return InvalidOid;
	foreach (lc, related_relations(layer_table, true))
	{
		if (!strata_has_store(lfirst_oid(lc)))
			continue;
		if (OidIsValid(store))
			return InvalidOid;
		store = lfirst_oid(lc);
	}
	return store;
}

void
strata_layer_untie(Oid ftrelid, Oid except)
{
	ListCell   *lc;

	if (has_superclass(ftrelid))
		return;
	foreach (lc, related_relations(ftrelid, true))
	{
		if (lfirst_oid(lc) != except && strata_has_store(lfirst_oid(lc)))
			(void) deleteDependencyRecordsForSpecific(RelationRelationId, ftrelid,
													  DEPENDENCY_NORMAL,
													  RelationRelationId, lfirst_oid(lc));
	}
}

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

void
strata_layer_check(Oid ftrelid, const StrataOptions *options)
{
	Oid			store = strata_options_store(options, false);
	Relation	rel = relation_open(ftrelid, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	char	   *qualified;

	if (!strata_is_foreign_table(store) ||
		strata_options_get(store)->layer != STRATA_LAYER_ALL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("%s is not a strata foreign table with a store", options->store)));

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		AttrNumber	attnum;

		if (att->attisdropped)
			continue;
		attnum = get_attnum(store, NameStr(att->attname));
		if (attnum <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of foreign table \"%s\" does not exist in %s",
							NameStr(att->attname), RelationGetRelationName(rel),
							options->store)));
		if (get_atttype(store, attnum) != att->atttypid)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of foreign table \"%s\" has type %s, in %s it has type %s",
							NameStr(att->attname), RelationGetRelationName(rel),
							format_type_be(att->atttypid), options->store,
							format_type_be(get_atttype(store, attnum)))));
	}

	strata_layer_untie(ftrelid, store);
	if (!list_member_oid(related_relations(ftrelid, true), store))
	{
		ObjectAddress depender;
		ObjectAddress referenced;

		ObjectAddressSet(depender, RelationRelationId, ftrelid);
		ObjectAddressSet(referenced, RelationRelationId, store);
		recordDependencyOn(&depender, &referenced, DEPENDENCY_NORMAL);
	}

	qualified = qualified_name(store);
	if (strcmp(qualified, options->store) != 0)
		strata_options_set(ftrelid, "store", qualified);
	relation_close(rel, NoLock);
}

/* The relation that a qualified name stands for, whoever may look it up. */
static Oid
find_qualified(const char *name)
{
	List	   *names = strata_name_list(name);
	Oid			schema;

	if (list_length(names) != 2)
		return InvalidOid;
	schema = get_namespace_oid(strVal(linitial(names)), true);
	return OidIsValid(schema) ? get_relname_relid(strVal(lsecond(names)), schema) : InvalidOid;
}

void
strata_layers_follow(Oid store)
{
	ListCell   *lc;

	foreach (lc, related_relations(store, false))
	{
		Oid			layer_table = lfirst_oid(lc);
		StrataOptions *options;
		char	   *qualified;

		if (!is_layer_table(layer_table))
			continue;

		/* keeps other DDL away, not readers */
		LockRelationOid(layer_table, ShareUpdateExclusiveLock);
		if (!is_layer_table(layer_table))
			continue;
		options = strata_options_get(layer_table);
		qualified = qualified_name(store);

		/* one that only inherits from the store may read another */
		if (strcmp(qualified, options->store) != 0 &&
			!OidIsValid(find_qualified(options->store)))
			strata_options_set(layer_table, "store", qualified);
	}
}

void
strata_layers_follow_schema(Oid schema)
{
	ListCell   *lc;

	foreach (lc, strata_store_list())
	{
		if (get_rel_namespace(lfirst_oid(lc)) == schema)
			strata_layers_follow(lfirst_oid(lc));
	}
}
