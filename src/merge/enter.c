/*-------------------------------------------------------------------------
 *
 * enter.c
 *	  What every pass, merge or compaction, begins and ends with, and on whose
 *	  behalf type code runs.
 *
 * Locks, in this order: the store's pass lock, ShareUpdateExclusiveLock on the
 * storage relation, and only then a latest snapshot: whatever an earlier pass
 * committed is seen.  These two stay to the end of the transaction.
 *
 * The foreign table is not locked while a pass works, so that DDL gets to the
 * storage relation, where passes give way to it.  But a transaction that goes
 * on with the pass's locks may want the table next, and DDL that has it waits
 * for the storage.  So who may wait locks the table before these two, lets go
 * of it, and at the end of the pass has it again, or gives way.  Workers wait
 * for nothing, and commit.
 *
 * Type code (zone maps compare values, the index compares keys) runs as the
 * table's owner, in a security-restricted operation with a fixed search_path,
 * whoever merges or verifies.  An error restores all of that with the transaction.
 *
 * IDENTIFICATION
 *	  src/merge/enter.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "merge/progress.h"
#include "storage/locks.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

StrataProgress *strata_progress = NULL;

static Oid
table_owner(Oid ftrelid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(ftrelid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("foreign table with OID %u does not exist", ftrelid)));
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * Take pass lock and storage lock, and make sure that what they are taken on
 * is still the table's storage.
 */
static Oid
lock_storage(Oid ftrelid, bool nowait)
{
	for (;;)
	{
		Oid			storage = strata_store_storage(ftrelid);

		if (!OidIsValid(storage))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("storage of foreign table with OID %u is missing", ftrelid)));
		if (!strata_lock(storage, STRATA_LOCK_PASS, 0, ExclusiveLock, nowait))
			return InvalidOid;
		if (nowait)
		{
			if (!ConditionalLockRelationOid(storage, ShareUpdateExclusiveLock))
			{
				strata_unlock(storage, STRATA_LOCK_PASS, 0, ExclusiveLock);
				return InvalidOid;
			}
		}
		else
			LockRelationOid(storage, ShareUpdateExclusiveLock);

		if (strata_store_storage(ftrelid) == storage)
			return storage;

		/* Dropped while we waited. */
		UnlockRelationOid(storage, ShareUpdateExclusiveLock);
		strata_unlock(storage, STRATA_LOCK_PASS, 0, ExclusiveLock);
	}
}

void
strata_become_owner(StrataCaller *caller, Oid ftrelid)
{
	GetUserIdAndSecContext(&caller->userid, &caller->sec_context);
	SetUserIdAndSecContext(table_owner(ftrelid),
						   caller->sec_context | SECURITY_RESTRICTED_OPERATION);
	caller->guc_level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
}

void
strata_become_caller(const StrataCaller *caller)
{
	AtEOXact_GUC(false, caller->guc_level);
	SetUserIdAndSecContext(caller->userid, caller->sec_context);
}

Oid
strata_pass_lock(Oid ftrelid, bool nowait)
{
	Oid			storage;

	if (nowait)
		return lock_storage(ftrelid, true);
	for (;;)
	{
		LockRelationOid(ftrelid, AccessShareLock);
		storage = lock_storage(ftrelid, true);
		UnlockRelationOid(ftrelid, AccessShareLock);
		if (OidIsValid(storage))
			return storage;

		/*
		 * Who waits for another pass must not have the table: DDL would wait
		 * for him, and the pass not see that somebody waits.
		 */
		storage = lock_storage(ftrelid, false);
		UnlockRelationOid(storage, ShareUpdateExclusiveLock);
		strata_unlock(storage, STRATA_LOCK_PASS, 0, ExclusiveLock);
	}
}

void
strata_pass_lock_table(const StrataStore *store, const char *command)
{
	/*
	 * Refused where we hold a stronger lock and somebody waits for that.
	 * Outside a transaction block the command is mostly over here, and all its
	 * work would be lost; in a function that goes on with the table, the
	 * deadlock detector has to decide.
	 */
	if (ConditionalLockRelationOid(store->ftrelid, AccessShareLock) ||
		strata_relation_locked(store->ftrelid) || !IsTransactionBlock())
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("%s of %s gave way to another session", command, store->name),
			 errdetail("A command that needs the table for itself has it, or waits for it."),
			 errhint("Run it again later, or outside of a transaction block.")));
}

bool
strata_pass_enter(StrataPassEnv *env, Oid ftrelid, const char *command, bool nowait)
{
	Oid			storage;

	PreventCommandIfReadOnly(command);
	PreventCommandDuringRecovery(command);
	PreventCommandIfParallelMode(command);
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run in a transaction of isolation level %s", command,
						XactIsoLevel == XACT_SERIALIZABLE ? "SERIALIZABLE" : "REPEATABLE READ"),
				 errdetail("The transaction's snapshot does not see what it moves."),
				 errhint("Run it in a transaction of its own at READ COMMITTED.")));

	storage = strata_pass_lock(ftrelid, nowait);
	if (!OidIsValid(storage))
		return false;
	env->command = nowait ? NULL : command;
	strata_progress_start(STRATA_PHASE_CHOOSE, 0, 0);
	PushActiveSnapshot(GetLatestSnapshot());

	strata_become_owner(&env->caller, ftrelid);
	env->mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata merge pass",
									  ALLOCSET_DEFAULT_SIZES);
	env->old_mcxt = MemoryContextSwitchTo(env->mcxt);
	env->store = strata_store_open(ftrelid);
	env->storage = table_open(storage, NoLock);
	env->manifest = strata_manifest_get(env->store, env->storage, GetActiveSnapshot());
	return true;
}

void
strata_pass_leave(StrataPassEnv *env)
{
	if (env->command != NULL)
		strata_pass_lock_table(env->store, env->command);
	strata_manifest_release(env->manifest);
	table_close(env->storage, NoLock);
	strata_store_close(env->store);
	MemoryContextSwitchTo(env->old_mcxt);
	MemoryContextDelete(env->mcxt);

	strata_become_caller(&env->caller);
	PopActiveSnapshot();
	strata_progress_phase(STRATA_PHASE_NONE);
}
