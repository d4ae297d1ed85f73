/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *	  Event triggers: which commands concern a store, and what they may not do.
 *
 * on_ddl_command_end looks at what a command created or altered: new foreign
 * tables of ours get a store, changed ones are followed, storage relations
 * are not to be altered.  ALTER TABLE on a partitioned table or a parent
 * changes its children without listing them, so their inheritors are looked at.
 * Last, the rows there are have to satisfy what the command demands (checks.c).
 *
 * on_sql_drop looks at what went: the store of a dropped foreign table goes in
 * the same transaction; the store follows when a column went; a key column must
 * not be dropped without its table, nor anything of a storage relation without
 * its foreign table.
 *
 * Both are ENABLE ALWAYS, work under any search_path and session role, check
 * no privileges (core did) and do nothing during a binary upgrade.  They call
 * the functions that list the command's objects directly, not through SPI.
 *
 * What happens while event triggers do not fire (single-user mode) is noticed
 * later: a table without store says so when it is opened, changed columns
 * likewise, and strata.drop_orphans() removes stores without table.
 *
 * IDENTIFICATION
 *	  src/manifest/lifecycle.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/ddl.h"

#include "access/htup_details.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "tcop/cmdtag.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(strata_on_ddl_command_end);
PG_FUNCTION_INFO_V1(strata_on_sql_drop);
PG_FUNCTION_INFO_V1(strata_drop_orphans);

/* Columns of pg_event_trigger_ddl_commands() that are used. */
#define DDL_CLASSID			1
#define DDL_OBJID			2
#define DDL_COMMAND			9

/* Columns of pg_event_trigger_dropped_objects() that are used. */
#define DROPPED_CLASSID		1
#define DROPPED_OBJID		2
#define DROPPED_OBJSUBID	3
#define DROPPED_TYPE		7
#define DROPPED_SCHEMA		8
#define DROPPED_IDENTITY	10

/* What a command created or altered. */
typedef struct Collected
{
	List	   *relids;
	List	   *types;
	List	   *commands;		/* CollectedCommand *, owned by core */
} Collected;

/* A relation, or a column of one, that a command dropped. */
typedef struct Dropped
{
	Oid			relid;
	int			attnum;			/* 0: the relation */
	bool		of_schema;		/* an index in our schema */
	char	   *identity;
} Dropped;

typedef void (*ObjectCallback)(TupleTableSlot *slot, void *arg);

/*
 * Call one of core's functions that list a command's objects.
 */
static void
for_each_object(Oid function, ObjectCallback callback, void *arg)
{
	LOCAL_FCINFO(fcinfo, 0);
	FmgrInfo	flinfo;
	ReturnSetInfo rsinfo = {0};
	TupleTableSlot *slot;

	rsinfo.type = T_ReturnSetInfo;
	rsinfo.econtext = CreateStandaloneExprContext();
	rsinfo.allowedModes = SFRM_Materialize;
	rsinfo.returnMode = SFRM_ValuePerCall;

	fmgr_info(function, &flinfo);
	InitFunctionCallInfoData(*fcinfo, &flinfo, 0, InvalidOid, NULL, (Node *) &rsinfo);
	(void) FunctionCallInvoke(fcinfo);
	if (rsinfo.returnMode != SFRM_Materialize || rsinfo.setResult == NULL)
		elog(ERROR, "function %u did not return a set", function);

	slot = MakeSingleTupleTableSlot(rsinfo.setDesc, &TTSOpsMinimalTuple);
	while (tuplestore_gettupleslot(rsinfo.setResult, true, false, slot))
		callback(slot, arg);
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(rsinfo.setResult);
	FreeExprContext(rsinfo.econtext, true);
}

static Oid
slot_oid(TupleTableSlot *slot, int column)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);

	return isnull ? InvalidOid : DatumGetObjectId(value);
}

static char *
slot_text(TupleTableSlot *slot, int column)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/* Our own scripts may do as they like. */
static bool
in_own_script(void)
{
	return creating_extension &&
		CurrentExtensionObject == get_extension_oid(STRATA_SCHEMA, true);
}

/* ---- ddl_command_end ---- */

static void
collect_command(TupleTableSlot *slot, void *arg)
{
	Collected  *collected = arg;
	Oid			classid = slot_oid(slot, DDL_CLASSID);
	Oid			objid = slot_oid(slot, DDL_OBJID);
	bool		isnull;
	Datum		command = slot_getattr(slot, DDL_COMMAND, &isnull);

	if (classid == RelationRelationId && OidIsValid(objid))
		collected->relids = list_append_unique_oid(collected->relids, objid);
	if (classid == TypeRelationId && OidIsValid(objid))
		collected->types = list_append_unique_oid(collected->types, objid);
	if (!isnull)
		collected->commands = lappend(collected->commands, DatumGetPointer(command));
}

/* Moving a storage relation to another tablespace is harmless. */
static bool
is_harmless(Node *parsetree)
{
	ListCell   *lc;

	if (IsA(parsetree, AlterTableMoveAllStmt))
		return true;
	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach (lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype != AT_SetTableSpace)
			return false;
	}
	return true;
}

static void
refuse_storage(Oid relid, Oid storage)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot alter \"%s\"", get_rel_name(relid)),
			 errdetail("Relation \"%s\" holds the storage of a strata foreign table.",
					   get_rel_name(storage)),
			 errhint("Alter the foreign table, or use the functions in schema \"%s\".",
					 STRATA_SCHEMA)));
}

/* Storage cannot be a parent: the parents (RangeVar *) that a command names. */
static void
refuse_inheritors(List *parents)
{
	ListCell   *lc;

	foreach (lc, parents)
	{
		Oid			parent = RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true);

		if (OidIsValid(parent) && OidIsValid(strata_store_of_storage(parent)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot inherit from \"%s\"", get_rel_name(parent)),
					 errdetail("It holds the storage of a strata foreign table."),
					 errhint("Inherit from a heap table, which the foreign table may inherit from, too.")));
	}
}

static List *
added_parents(Node *parsetree)
{
	List	   *parents = NIL;
	ListCell   *lc;

	/* also what CREATE FOREIGN TABLE begins with */
	if (IsA(parsetree, CreateStmt) || IsA(parsetree, CreateForeignTableStmt))
		return ((CreateStmt *) parsetree)->inhRelations;
	if (!IsA(parsetree, AlterTableStmt))
		return NIL;
	foreach (lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		AlterTableCmd *command = lfirst_node(AlterTableCmd, lc);

		if (command->subtype == AT_AddInherit)
			parents = lappend(parents, command->def);
	}
	return parents;
}

static bool
changes_column_type(Node *parsetree)
{
	ListCell   *lc;

	if (!IsA(parsetree, AlterTableStmt))
		return false;
	foreach (lc, ((AlterTableStmt *) parsetree)->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_AlterColumnType)
			return true;
	}
	return false;
}

static void
follow_relation(Oid relid, bool created, bool renamed, bool retyped)
{
	ListCell   *lc;
	List	   *relids;

	if (created)
	{
		StrataOptions *options;

		if (!strata_is_foreign_table(relid))
			return;
		options = strata_options_get(relid);
		if (options->layer != STRATA_LAYER_ALL)
			strata_layer_check(relid, options);
		else
			strata_store_create(relid);
		return;
	}

	relids = find_all_inheritors(relid, NoLock, NULL);
	foreach (lc, relids)
	{
		Oid			child = lfirst_oid(lc);

		if (retyped)
			strata_check_rowtype(child);
		if (strata_is_foreign_table(child))
			strata_store_follow(child, renamed);
	}
}

/* A command on one relation, seen to the end but for the checks of its rows. */
static void
follow_command(Oid relid, EventTriggerData *trigger)
{
	Node	   *parsetree = trigger->parsetree;
	char		relkind = get_rel_relkind(relid);
	Oid			table = relid;

	if (relkind == '\0')
		return;					/* another trigger dropped it */
	refuse_inheritors(added_parents(parsetree));

	if (trigger->tag == CMDTAG_CREATE_TABLE || trigger->tag == CMDTAG_CREATE_SCHEMA)
	{
		strata_check_new_partition(relid);
		return;
	}

	if (relkind == RELKIND_INDEX)
		table = IndexGetRelation(relid, true);
	if (relkind == RELKIND_INDEX || relkind == RELKIND_RELATION)
	{
		Oid			storage_of = OidIsValid(table) ? strata_store_of_storage(table) : InvalidOid;

		if (OidIsValid(storage_of) && !is_harmless(parsetree))
			refuse_storage(relid, table);
	}

	if (relkind == RELKIND_FOREIGN_TABLE || relkind == RELKIND_RELATION ||
		relkind == RELKIND_PARTITIONED_TABLE || relkind == RELKIND_COMPOSITE_TYPE)
	{
		bool		created = relkind == RELKIND_FOREIGN_TABLE &&
			(trigger->tag == CMDTAG_CREATE_FOREIGN_TABLE ||
			 trigger->tag == CMDTAG_IMPORT_FOREIGN_SCHEMA);

		follow_relation(relid, created, IsA(parsetree, RenameStmt),
						changes_column_type(parsetree));
		if (created)
			strata_check_new_partition(relid);
	}

	if (relkind == RELKIND_FOREIGN_TABLE &&
		(IsA(parsetree, RenameStmt) || IsA(parsetree, AlterObjectSchemaStmt)))
		strata_layers_follow(relid);
}

Datum
strata_on_ddl_command_end(PG_FUNCTION_ARGS)
{
	EventTriggerData *trigger;
	Collected	collected = {0};
	ListCell   *lc;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called as an event trigger")));
	trigger = (EventTriggerData *) fcinfo->context;
	if (IsBinaryUpgrade || in_own_script())
		PG_RETURN_NULL();

	if (IsA(trigger->parsetree, RenameStmt) &&
		((RenameStmt *) trigger->parsetree)->renameType == OBJECT_SCHEMA)
	{
		if (strcmp(((RenameStmt *) trigger->parsetree)->subname, STRATA_SCHEMA) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot rename schema \"%s\"", STRATA_SCHEMA),
					 errdetail("Extension strata finds what it keeps there by the schema's name.")));
		strata_layers_follow_schema(get_namespace_oid(((RenameStmt *) trigger->parsetree)->newname,
													  true));
		PG_RETURN_NULL();
	}

	/* most tables are nobody's partition or child */
	if (IsA(trigger->parsetree, CreateStmt) && trigger->tag == CMDTAG_CREATE_TABLE &&
		((CreateStmt *) trigger->parsetree)->inhRelations == NIL)
		PG_RETURN_NULL();

	for_each_object(F_PG_EVENT_TRIGGER_DDL_COMMANDS, collect_command, &collected);
	foreach (lc, collected.relids)
		follow_command(lfirst_oid(lc), trigger);
	if (IsA(trigger->parsetree, AlterDomainStmt))
	{
		foreach (lc, collected.types)
			strata_check_domain(lfirst_oid(lc), (AlterDomainStmt *) trigger->parsetree);
	}
	else
		strata_check_altered(collected.commands);
	PG_RETURN_NULL();
}

/* ---- sql_drop ---- */

static void
collect_dropped(TupleTableSlot *slot, void *arg)
{
	List	  **list = arg;
	Dropped    *dropped;
	char	   *schema;
	char	   *type;
	bool		isnull;

	if (slot_oid(slot, DROPPED_CLASSID) != RelationRelationId)
		return;
	dropped = palloc0(sizeof(Dropped));
	dropped->relid = slot_oid(slot, DROPPED_OBJID);
	dropped->attnum = DatumGetInt32(slot_getattr(slot, DROPPED_OBJSUBID, &isnull));
	dropped->identity = slot_text(slot, DROPPED_IDENTITY);
	schema = slot_text(slot, DROPPED_SCHEMA);
	type = slot_text(slot, DROPPED_TYPE);
	dropped->of_schema = schema != NULL && type != NULL &&
		strcmp(schema, STRATA_SCHEMA) == 0 && strcmp(type, "index") == 0;
	*list = lappend(*list, dropped);
}

static bool
is_dropped(List *list, Oid relid)
{
	ListCell   *lc;

	foreach (lc, list)
	{
		Dropped    *dropped = lfirst(lc);

		if (dropped->relid == relid && dropped->attnum == 0)
			return true;
	}
	return false;
}

static void
refuse_drop_of_storage(const Dropped *dropped)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot drop %s because it belongs to the storage of a strata foreign table",
					dropped->identity),
			 errhint("Drop the foreign table. Its key index alone is dropped by strata.drop_key_index().")));
}

/*
 * A column went, its table did not.  True when it was a store's table.
 */
static bool
check_dropped_column(const Dropped *dropped)
{
	StrataStoreRow row;

	if (OidIsValid(strata_store_of_storage(dropped->relid)))
		refuse_drop_of_storage(dropped);
	if (!strata_store_row_read(dropped->relid, &row))
		return false;
	for (int i = 0; i < row.nkeys; i++)
	{
		if (row.key[i] == dropped->attnum)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop column %s because it is part of the key",
							dropped->identity),
					 errhint("Create a new table with another key, copy the rows with INSERT INTO ... SELECT, drop this one and rename the new one.")));
	}
	return true;
}

/* What the command says of what depends on its objects. */
static DropBehavior
drop_behavior(const Node *command)
{
	if (IsA(command, DropStmt))
		return ((const DropStmt *) command)->behavior;
	if (IsA(command, DropOwnedStmt))
		return ((const DropOwnedStmt *) command)->behavior;
	return DROP_CASCADE;
}

Datum
strata_on_sql_drop(PG_FUNCTION_ARGS)
{
	DropBehavior behavior;
	List	   *list = NIL;
	List	   *followed = NIL;
	ListCell   *lc;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called as an event trigger")));
	if (IsBinaryUpgrade || in_own_script())
		PG_RETURN_NULL();

	behavior = drop_behavior(((EventTriggerData *) fcinfo->context)->parsetree);
	for_each_object(F_PG_EVENT_TRIGGER_DROPPED_OBJECTS, collect_dropped, &list);

	/* Refuse before anything is dropped: columns, storage without its table. */
	foreach (lc, list)
	{
		Dropped    *dropped = lfirst(lc);
		Oid			ftrelid;

		if (dropped->attnum != 0)
		{
			if (!is_dropped(list, dropped->relid) && check_dropped_column(dropped))
				followed = list_append_unique_oid(followed, dropped->relid);
			continue;
		}
		ftrelid = strata_store_of_storage(dropped->relid);
		if (dropped->of_schema || (OidIsValid(ftrelid) && !is_dropped(list, ftrelid)))
			refuse_drop_of_storage(dropped);
	}

	foreach (lc, list)
	{
		Dropped    *dropped = lfirst(lc);
		StrataStoreRow row;

		if (dropped->attnum == 0 && strata_store_row_read(dropped->relid, &row))
			strata_store_drop(dropped->relid, row.storage, behavior);
	}

	/* DROP TYPE ... CASCADE is no DDL on the table that has the column. */
	foreach (lc, followed)
		strata_store_follow(lfirst_oid(lc), false);
	PG_RETURN_NULL();
}

/* ---- orphans ---- */

int
strata_store_drop_orphans(void)
{
	ListCell   *lc;
	int			count = 0;

	foreach (lc, strata_store_list())
	{
		Oid			ftrelid = lfirst_oid(lc);
		StrataStoreRow row;

		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(ftrelid)) ||
			!strata_store_row_read(ftrelid, &row))
			continue;
		strata_store_drop(ftrelid, row.storage, DROP_CASCADE);
		count++;
	}
	return count;
}

/*
 * strata.drop_orphans(): drop stores whose foreign table is gone.
 */
Datum
strata_drop_orphans(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("strata.drop_orphans()");
	PreventCommandDuringRecovery("strata.drop_orphans()");
	PG_RETURN_INT32(strata_store_drop_orphans());
}
