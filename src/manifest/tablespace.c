/*-------------------------------------------------------------------------
 *
 * tablespace.c
 *	  strata.set_tablespace(): the storage of a table goes elsewhere.
 *
 * ALTER FOREIGN TABLE ... SET TABLESPACE is refused by core, and the storage
 * relation and its key index, which could be moved, belong to the extension's
 * owner.  So this checks what ALTER TABLE checks, that the caller owns the
 * table and may create in the tablespace, and lets core move both: a new file,
 * written and logged, takes the place of the old one with the transaction.
 *
 * Locks: AccessExclusiveLock on the foreign table, then on the storage, as for
 * TRUNCATE, then on the index.
 *
 * IDENTIFICATION
 *	  src/manifest/tablespace.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pause.h"
#include "manifest/ddl.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "commands/event_trigger.h"
#include "commands/tablecmds.h"
#include "commands/tablespace.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/rel.h"
#include "utils/relcache.h"

PG_FUNCTION_INFO_V1(strata_set_tablespace);

static void
move(Oid relid, const char *tablespace)
{
	AlterTableCmd *command = makeNode(AlterTableCmd);

	command->subtype = AT_SetTableSpace;
	command->name = pstrdup(tablespace);
	AlterTableInternal(relid, list_make1(command), false);
	CommandCounterIncrement();
	STRATA_PAUSE("manifest-tablespace-moved");
}

/*
 * strata.set_tablespace(regclass, name)
 */
Datum
strata_set_tablespace(PG_FUNCTION_ARGS)
{
	Oid			ftrelid = strata_table_argument(fcinfo);
	const char *tablespace;
	Relation	rel;
	Relation	storage;
	StrataStore *store;
	List	   *indexes;
	Oid			save_userid;
	int			save_context;
	ListCell   *lc;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("tablespace must not be null")));
	tablespace = NameStr(*PG_GETARG_NAME(1));
	PreventCommandIfReadOnly("strata.set_tablespace()");
	PreventCommandDuringRecovery("strata.set_tablespace()");
	strata_check_table_argument(ftrelid, true, AccessExclusiveLock);
	strata_check_tablespace_rights(get_tablespace_oid(tablespace, false));

	rel = relation_open(ftrelid, NoLock);
	CheckTableNotInUse(rel, "strata.set_tablespace()");
	store = strata_store_open(ftrelid);
	storage = strata_storage_open(store, AccessExclusiveLock);
	CheckTableNotInUse(storage, "strata.set_tablespace()");
	indexes = RelationGetIndexList(storage);

	/*
	 * The caller need not own the storage.  Nothing but core's own code runs
	 * under this user.  What it does to hidden relations is no command that
	 * event triggers should hear of.
	 */
	GetUserIdAndSecContext(&save_userid, &save_context);
	EventTriggerInhibitCommandCollection();
	PG_TRY();
	{
		SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, save_context | SECURITY_LOCAL_USERID_CHANGE);
		table_close(storage, NoLock);
		move(store->storage, tablespace);
		foreach (lc, indexes)
			move(lfirst_oid(lc), tablespace);
	}
	PG_FINALLY();
	{
		SetUserIdAndSecContext(save_userid, save_context);
		EventTriggerUndoInhibitCommandCollection();
	}
	PG_END_TRY();

	strata_store_close(store);
	relation_close(rel, NoLock);
	PG_RETURN_VOID();
}
