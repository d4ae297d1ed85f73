/*-------------------------------------------------------------------------
 *
 * import.c
 *	  IMPORT FOREIGN SCHEMA: a table over one layer for each store.
 *
 * The "foreign schemas" are the layers, wal and base.  Imported are the stores
 * that the caller may read, by the names and with the columns of their tables.
 * Names that are the same in several schemas are refused rather than chosen
 * from; the option "schema" says which schema is meant.
 *
 * Core runs the commands returned here with the caller's rights, under the
 * caller's search_path: everything in them is quoted and qualified.
 *
 * IDENTIFICATION
 *	  src/fdw/import.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "fdw/fdw.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

typedef struct ImportTable
{
	Oid			relid;
	char	   *schema;
	char	   *name;
} ImportTable;

static const char *
parse_layer(const ImportForeignSchemaStmt *stmt)
{
	if (strcmp(stmt->remote_schema, "wal") != 0 && strcmp(stmt->remote_schema, "base") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_SCHEMA_NOT_FOUND),
				 errmsg("schema \"%s\" is not a layer of strata tables", stmt->remote_schema),
				 errhint("The layers are wal and base.")));
	return stmt->remote_schema;
}

/* The schema whose stores are meant; InvalidOid: all schemas. */
static Oid
parse_schema(const ImportForeignSchemaStmt *stmt)
{
	Oid			schema = InvalidOid;
	ListCell   *lc;

	foreach (lc, stmt->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "schema") != 0)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 errhint("The only option of IMPORT FOREIGN SCHEMA is \"schema\".")));
		schema = get_namespace_oid(defGetString(def), false);
	}
	return schema;
}

/* The caller can name the table and read it. */
static bool
is_readable(Oid relid, Oid schema)
{
	return pg_namespace_aclcheck(schema, GetUserId(), ACL_USAGE) == ACLCHECK_OK &&
		pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
}

static int
compare_tables(const ListCell *a, const ListCell *b)
{
	const ImportTable *x = lfirst(a);
	const ImportTable *y = lfirst(b);
	int			result = strcmp(x->name, y->name);

	return result != 0 ? result : strcmp(x->schema, y->schema);
}

static List *
choose_tables(ImportForeignSchemaStmt *stmt)
{
	Oid			only = parse_schema(stmt);
	List	   *tables = NIL;
	const ImportTable *previous = NULL;
	ListCell   *lc;

	foreach (lc, strata_store_list())
	{
		ImportTable *table = palloc0(sizeof(ImportTable));
		Oid			schema;

		table->relid = lfirst_oid(lc);
		schema = get_rel_namespace(table->relid);
		table->name = get_rel_name(table->relid);
		table->schema = OidIsValid(schema) ? get_namespace_name(schema) : NULL;
		if (table->name == NULL || table->schema == NULL ||
			(OidIsValid(only) && schema != only) ||
			!strata_is_foreign_table(table->relid) ||
			!is_readable(table->relid, schema) ||
			!IsImportableForeignTable(table->name, stmt))
			continue;
		tables = lappend(tables, table);
	}
	list_sort(tables, compare_tables);

	foreach (lc, tables)
	{
		const ImportTable *table = lfirst(lc);

		if (previous != NULL && strcmp(previous->name, table->name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_TABLE),
					 errmsg("more than one strata table is named \"%s\"", table->name),
					 errdetail("There is one in schema \"%s\" and one in schema \"%s\".",
							   previous->schema, table->schema),
					 errhint("Import the tables of one schema with OPTIONS (schema '...'), or leave this one out with EXCEPT.")));
		previous = table;
	}
	return tables;
}

/* NULL when the table was dropped meanwhile. */
static char *
create_command(const ImportTable *table, const char *server, const char *layer)
{
	Relation	rel = try_relation_open(table->relid, AccessShareLock);
	StringInfoData buf;
	bool		first = true;

	if (rel == NULL)
		return NULL;

	initStringInfo(&buf);
	appendStringInfo(&buf, "CREATE FOREIGN TABLE %s (", quote_identifier(table->name));
	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);

		if (att->attisdropped)
			continue;
		appendStringInfo(&buf, "%s\n  %s %s", first ? "" : ",",
						 quote_identifier(NameStr(att->attname)),
						 format_type_extended(att->atttypid, att->atttypmod,
											  FORMAT_TYPE_TYPEMOD_GIVEN |
											  FORMAT_TYPE_FORCE_QUALIFY));
		if (OidIsValid(att->attcollation) &&
			att->attcollation != get_typcollation(att->atttypid))
			appendStringInfo(&buf, " COLLATE %s", generate_collation_name(att->attcollation));
		first = false;
	}
	appendStringInfo(&buf, "\n) SERVER %s OPTIONS (store %s, layer %s)",
					 quote_identifier(server),
					 quote_literal_cstr(quote_qualified_identifier(table->schema, table->name)),
					 quote_literal_cstr(layer));
	relation_close(rel, AccessShareLock);
	return buf.data;
}

List *
strataImportForeignSchema(ImportForeignSchemaStmt *stmt, Oid serverOid)
{
	const char *layer = parse_layer(stmt);
	const char *server = GetForeignServer(serverOid)->servername;
	List	   *commands = NIL;
	ListCell   *lc;

	foreach (lc, choose_tables(stmt))
	{
		char	   *command = create_command(lfirst(lc), server, layer);

		if (command != NULL)
			commands = lappend(commands, command);
	}
	return commands;
}
