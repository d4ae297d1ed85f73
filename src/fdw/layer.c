/*-------------------------------------------------------------------------
 *
 * layer.c
 *	  Foreign tables over one layer of another table's store:
 *	  OPTIONS (store 'rollouts', layer 'wal' | 'base').
 *
 * The store is found anew by every plan and every scan: by the dependency of
 * the layer table on it (manifest/layers.c), else by its name.  An unqualified
 * name is looked for beside the layer table first, then along the search path
 * (a dump runs with an empty one).  Columns are matched by name.
 * Who reads a layer table needs SELECT on the store's table as well, for the
 * layer table's owner may not be its owner.
 *
 * IDENTIFICATION
 *	  src/fdw/layer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fdw/scan.h"
#include "compat.h"
#include "manifest/lifecycle.h"

#include "catalog/namespace.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * The foreign table whose store a layer table reads, locked AccessShare.
 */
Oid
strata_layer_store(Oid layer_table, const StrataOptions *options)
{
	List	   *names = strata_name_list(options->store);
	Oid			store = strata_layer_depends_on(layer_table);

	if (!OidIsValid(store) && list_length(names) == 1)
		store = get_relname_relid(strVal(linitial(names)), get_rel_namespace(layer_table));
	if (OidIsValid(store))
	{
		LockRelationOid(store, AccessShareLock);
		/* dropped while we waited? */
		if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(store)))
		{
			UnlockRelationOid(store, AccessShareLock);
			store = InvalidOid;
		}
	}
	if (!OidIsValid(store))
		store = RangeVarGetRelid(makeRangeVarFromNameList(names), AccessShareLock, false);

	if (!strata_is_foreign_table(store) ||
		strata_options_get(store)->layer != STRATA_LAYER_ALL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table with a store of its own", options->store),
				 errdetail("Foreign table \"%s\" names it in its option \"store\".",
						   get_rel_name(layer_table))));

	return store;
}

void
strata_layer_check_rights(Oid store, Oid userid)
{
	AclResult	aclresult = pg_class_aclcheck(store, userid, ACL_SELECT);

	if (aclresult != ACLCHECK_OK)
		aclcheck_error(aclresult, OBJECT_FOREIGN_TABLE, get_rel_name(store));
}

/*
 * The store's attribute number of each column of a layer table; 0 for
 * dropped columns.
 */
AttrNumber *
strata_layer_map(Relation layer_table, const StrataStore *store)
{
	TupleDesc	desc = RelationGetDescr(layer_table);
	AttrNumber *map = palloc0(desc->natts * sizeof(AttrNumber));

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Form_pg_attribute found = NULL;

		if (att->attisdropped)
			continue;
		for (int j = 0; j < store->desc->natts && found == NULL; j++)
		{
			Form_pg_attribute candidate = TupleDescAttr(store->desc, j);

			if (!candidate->attisdropped &&
				strcmp(NameStr(candidate->attname), NameStr(att->attname)) == 0)
				found = candidate;
		}

		if (found == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of foreign table \"%s\" does not exist in %s",
							NameStr(att->attname), RelationGetRelationName(layer_table),
							store->name),
					 errhint("Columns of a table over one layer are matched by name.")));
		if (found->atttypid != att->atttypid ||
			(att->atttypmod != -1 && found->atttypmod != att->atttypmod) ||
			found->attcollation != att->attcollation)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("column \"%s\" of foreign table \"%s\" has type %s, but type %s in %s",
							NameStr(att->attname), RelationGetRelationName(layer_table),
							format_type_with_typemod(att->atttypid, att->atttypmod),
							format_type_with_typemod(found->atttypid, found->atttypmod),
							store->name),
					 errhint("Declare it with the same type and collation.")));
		map[i] = found->attnum;
	}

	return map;
}
