/*-------------------------------------------------------------------------
 *
 * repair.c
 *	  strata.repair: tell what of a store cannot be read, and set it aside.
 *
 * One row per loss, found by the checks that verify uses:
 *
 *	log				log/repair.c: entries, pages, links between them
 *	pending row group	of the log: its entry names a new row group that holds
 *				the rows which can be read
 *	row group		of the base: rows that can be read go into new row groups,
 *				as in a compaction, and the old one out of the manifest; so does
 *				one of which only a zone map is wrong
 *	dictionary		goes out of the manifest; rows compressed with it are lost
 *				with their row groups
 *	spare page, shard page	made anew, when they cannot be read or do not agree
 *				with the rest: what they say is also on other pages
 *
 * A row is lost when a column of it is: it is never given back with another
 * value in its place.  Nor does the version before it come back: deletes stay,
 * and for rows of a pending row group whose keys can be read, tombstones are
 * appended unless a newer version is there.  Only where the key is not known (a
 * damaged entry, page or key column in the log) the version before counts
 * again.
 *
 * What cannot be repaired is told, too, with action 'none': the metapage and the
 * manifest itself.
 *
 * Locks: a dry run has those of verify.  Else nobody is let in:
 * AccessExclusiveLock on the foreign table, the pass lock, AccessExclusiveLock
 * on the storage relation, in this order.
 *
 * Crash windows: the base changes as in a compaction, with the commit.  The log
 * is changed page by page after that, whatever becomes of the transaction, so
 * every loss is in the server log as well.  A reader keeps copies of entries
 * until the commit tells it that they changed; hence no transaction block.
 *
 * IDENTIFICATION
 *	  src/merge/repair.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/repair_private.h"

#include "pause.h"
#include "storage/extent.h"
#include "storage/locks.h"
#include "storage/metapage.h"
#include "storage/salvage.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(strata_repair);

enum
{
	LOSS_KIND,
	LOSS_STORAGE,
	LOSS_BLOCK,
	LOSS_SHARD,
	LOSS_GENERATION,
	LOSS_PAGE,
	LOSS_ENTRY,
	LOSS_ROW_GROUP,
	LOSS_ROWS,
	LOSS_FIRST_KEY,
	LOSS_LAST_KEY,
	LOSS_BYTES,
	LOSS_PROBLEM,
	LOSS_ACTION,
	LOSS_NCOLUMNS
};

static void
set_int(Datum *values, bool *isnull, int column, bool known, int64 value)
{
	isnull[column] = !known;
	values[column] = column == LOSS_SHARD || column == LOSS_ENTRY ?
						 Int32GetDatum((int32) value) :
						 Int64GetDatum(value);
}

static void
set_text(Datum *values, bool *isnull, int column, const char *value)
{
	isnull[column] = value == NULL;
	values[column] = value != NULL ? CStringGetTextDatum(value) : (Datum) 0;
}

/* Where it is, and how much, for the server log: no keys there. */
static char *
describe_loss(StrataRepair *repair, const StrataRepairLoss *loss)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "Relation \"%s\"", RelationGetRelationName(repair->storage));
	if (loss->block != InvalidBlockNumber)
		appendStringInfo(&buf, ", block %u", loss->block);
	if (loss->shard >= 0)
		appendStringInfo(&buf, ", shard %d, generation %u", loss->shard, loss->generation);
	if (loss->page >= 0)
		appendStringInfo(&buf, ", page " INT64_FORMAT, loss->page);
	if (loss->entry >= 0)
		appendStringInfo(&buf, ", entry " INT64_FORMAT, loss->entry);
	if (loss->row_group > 0)
		appendStringInfo(&buf, ", row group %u", loss->row_group);
	if (loss->rows >= 0)
		appendStringInfo(&buf, "; " INT64_FORMAT " rows lost", loss->rows);
	else
		appendStringInfoString(&buf, "; number of rows lost not known");
	return buf.data;
}

void
strata_repair_loss(StrataRepair *repair, const StrataRepairLoss *loss)
{
	Datum		values[LOSS_NCOLUMNS];
	bool		isnull[LOSS_NCOLUMNS] = {0};

	set_text(values, isnull, LOSS_KIND, loss->kind);
	values[LOSS_STORAGE] = ObjectIdGetDatum(RelationGetRelid(repair->storage));
	set_int(values, isnull, LOSS_BLOCK, loss->block != InvalidBlockNumber, loss->block);
	set_int(values, isnull, LOSS_SHARD, loss->shard >= 0, loss->shard);
	set_int(values, isnull, LOSS_GENERATION, loss->generation > 0, loss->generation);
	set_int(values, isnull, LOSS_PAGE, loss->page >= 0, loss->page);
	set_int(values, isnull, LOSS_ENTRY, loss->entry >= 0, loss->entry);
	set_int(values, isnull, LOSS_ROW_GROUP, loss->row_group > 0, loss->row_group);
	set_int(values, isnull, LOSS_ROWS, loss->rows >= 0, loss->rows);
	set_text(values, isnull, LOSS_FIRST_KEY, loss->first_key);
	set_text(values, isnull, LOSS_LAST_KEY, loss->last_key);
	set_int(values, isnull, LOSS_BYTES, loss->bytes >= 0, loss->bytes);
	set_text(values, isnull, LOSS_PROBLEM, loss->problem);
	set_text(values, isnull, LOSS_ACTION, loss->action);
	tuplestore_putvalues(repair->result->setResult, repair->result->setDesc, values, isnull);
	repair->nlosses++;
	repair->record.rows_deleted += Max(loss->rows, 0);

	if (!repair->dry_run)
		ereport(LOG,
				(errmsg("strata: repair of %s: %s, %s: %s", repair->store->name, loss->kind,
						loss->action, loss->problem),
				 errdetail_internal("%s", describe_loss(repair, loss))));
}

/* Before the manifest is changed for the first time. */
void
strata_repair_begin_pass(StrataRepair *repair)
{
	if (repair->pass_begun)
		return;
	strata_meta_begin_pass(repair->storage, GetTopFullTransactionId());
	strata_manifest_start_record(repair->manifest, &repair->record);
	repair->pass_begun = true;
}

/* StrataPassTick */
void
strata_repair_tick(void *arg)
{
	CHECK_FOR_INTERRUPTS();
}

/* ---- the log ---- */

/* StrataLogRepair.loss */
static void
report_log_loss(const StrataLogLoss *from, void *arg)
{
	static const char *const kinds[] = {
		[STRATA_LOSS_ENTRY] = "log entry",
		[STRATA_LOSS_PAGES] = "log pages",
		[STRATA_LOSS_PAGE] = "log page",
		[STRATA_LOSS_LINK] = "log link",
		[STRATA_LOSS_SHARD] = "shard page"};
	static const char *const actions[] = {
		[STRATA_LOSS_ENTRY] = "set aside",
		[STRATA_LOSS_PAGES] = "set aside",
		[STRATA_LOSS_PAGE] = "rewritten",
		[STRATA_LOSS_LINK] = "rewritten",
		[STRATA_LOSS_SHARD] = "rewritten"};
	StrataRepairLoss		loss = STRATA_REPAIR_NO_LOSS;

	loss.kind = kinds[from->kind];
	loss.block = from->block;
	loss.shard = from->shard;
	loss.generation = from->generation;
	if (from->kind != STRATA_LOSS_SHARD)
		loss.page = from->ordinal;
	if (from->kind == STRATA_LOSS_ENTRY)
		loss.entry = from->offset;
	loss.rows = from->rows;
	loss.bytes = from->bytes;
	loss.problem = from->problem;
	loss.action = actions[from->kind];
	strata_repair_loss((StrataRepair *) arg, &loss);
}

/* StrataLogRepair.group */
static void
note_pending_group(const StrataLogGroup *group, void *arg)
{
	StrataRepair	   *repair = (StrataRepair *) arg;
	MemoryContext old_mcxt = MemoryContextSwitchTo(repair->mcxt);
	StrataLogGroup *copy = palloc(sizeof(StrataLogGroup));

	*copy = *group;
	repair->pending = lappend(repair->pending, copy);
	MemoryContextSwitchTo(old_mcxt);
}

static void
repair_log(StrataRepair *repair)
{
	StrataManifest *manifest = repair->manifest;
	StrataLogRepair request = {
		.store = repair->store,
		.storage = repair->storage,
		.dry_run = repair->dry_run,
		.nblocks = repair->nblocks,
		.shard_problems = repair->shard_problems,
		.loss = report_log_loss,
		.group = note_pending_group,
		.arg = repair};
	ListCell   *lc;

	for (int shard = 0; shard < repair->store->nshards; shard++)
	{
		StrataPageRef start;

		if (strata_log_repair(&request, shard, &manifest->shards[shard], &start))
		{
			strata_repair_begin_pass(repair);
			manifest->shards[shard].first_pending = start;
			strata_manifest_set_shard(repair->store, shard, &manifest->shards[shard],
									  manifest->incarnation);
			CommandCounterIncrement();
		}
	}
	foreach (lc, repair->pending)
	{
		MemoryContext group_mcxt = AllocSetContextCreate(repair->mcxt, "strata repaired row group",
														 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old_mcxt = MemoryContextSwitchTo(group_mcxt);

		strata_repair_pending_group(repair, (StrataLogGroup *) lfirst(lc));
		MemoryContextSwitchTo(old_mcxt);
		MemoryContextDelete(group_mcxt);
	}
	strata_repair_hide_older(repair);
}

/* ---- driver ---- */

/* StrataAction: what everything else needs */
static void
read_manifest(void *arg)
{
	StrataRepair *repair = (StrataRepair *) arg;

	strata_manifest_check_made(repair->store, repair->storage, GetActiveSnapshot());
	repair->manifest = strata_manifest_get_uncached(repair->store, repair->storage,
													GetActiveSnapshot());
}

/* What is wrong with the spare page; NULL: nothing. */
typedef struct CheckSpare
{
	StrataRepair *repair;
	const char *problem;
} CheckSpare;

/* StrataBlockFaultCallback */
static void
note_block_fault(const StrataBlockFault *fault, void *arg)
{
	CheckSpare *check = (CheckSpare *) arg;
	const char **problem = &check->problem;

	if (!fault->spare && fault->shard < 0)
		return;
	if (!fault->spare)
		problem = &check->repair->shard_problems[fault->shard];
	if (*problem == NULL)
		*problem = psprintf("block %u %s", fault->block, fault->what);
}

/*
 * StrataAction: Giving out what belongs to somebody would be the end of that,
 * so a list that does not agree with everything else is worth nothing.
 */
static void
check_spare(void *arg)
{
	CheckSpare *check = (CheckSpare *) arg;
	StrataRepair *repair = check->repair;

	for (int round = 0; round < STRATA_BLOCK_ROUNDS; round++)
	{
		bool		found;

		check->problem = NULL;
		memset(repair->shard_problems, 0, sizeof(repair->shard_problems));
		strata_check_blocks(repair->store, repair->storage,
							strata_meta_horizon(repair->storage),
							note_block_fault, check);
		found = check->problem != NULL;
		for (int shard = 0; shard < repair->store->nshards; shard++)
			found = found || repair->shard_problems[shard] != NULL;
		if (!found || !repair->dry_run)
			break;
		pg_usleep(10000L);
		CHECK_FOR_INTERRUPTS();
	}
}

typedef struct ReadShardPage
{
	Relation	storage;
	int			shard;
	StrataShardData data;
	bool		exists;
} ReadShardPage;

/* StrataAction */
static void
read_shard_page(void *arg)
{
	ReadShardPage *read = (ReadShardPage *) arg;

	read->exists = strata_shard_read(read->storage, read->shard, &read->data);
}

/* Without the spare page no space can be taken, for what comes next either. */
static void
repair_spare_page(StrataRepair *repair)
{
	StrataRepairLoss loss = STRATA_REPAIR_NO_LOSS;
	CheckSpare	check = {.repair = repair};
	uint64		owner = 0;
	int			n;
	StrataDictionaryRef *refs;

	loss.problem = strata_attempt(check_spare, &check);
	if (loss.problem == NULL)
		loss.problem = check.problem;
	if (loss.problem == NULL)
		return;
	loss.kind = "spare page";
	loss.block = STRATA_SPARE_BLOCK;
	loss.rows = loss.bytes = 0;
	loss.action = "rewritten";
	strata_repair_loss(repair, &loss);
	if (repair->dry_run)
		return;

	for (int i = 0; i < repair->manifest->ngroups; i++)
		owner = Max(owner, repair->manifest->groups[i].ref.extent.owner);
	refs = strata_manifest_dictionaries(repair->store->ftrelid, repair->manifest->incarnation, &n);
	for (int i = 0; i < n; i++)
		owner = Max(owner, refs[i].extent.owner);
	for (int shard = 0; shard < repair->store->nshards; shard++)
	{
		ReadShardPage read = {.storage = repair->storage, .shard = shard};

		if (strata_attempt(read_shard_page, &read) != NULL || !read.exists)
			continue;
		owner = Max(owner, read.data.tail_extent.owner);
		owner = Max(owner, read.data.next_extent.owner);
	}
	strata_spare_rebuild(repair->storage, repair->store->nshards, owner);
}

static void
repair_store(StrataRepair *repair)
{
	StrataStore *store = repair->store;
	StrataRepairLoss		loss = STRATA_REPAIR_NO_LOSS;

	for (int i = 0; i < store->desc->natts; i++)
	{
		if (!TupleDescAttr(store->desc, i)->attisdropped)
			repair->columns = bms_add_member(repair->columns, i + 1);
	}
	for (int i = 0; i < store->key.natts; i++)
		repair->key_columns = bms_add_member(repair->key_columns, store->key.attnum[i]);

	loss.problem = strata_attempt(read_manifest, repair);
	if (loss.problem != NULL)
	{
		loss.kind = "store";
		loss.action = "none";
		strata_repair_loss(repair, &loss);
		return;
	}

	repair->nblocks = RelationGetNumberOfBlocks(repair->storage);
	repair_spare_page(repair);
	strata_repair_base(repair);
	repair_log(repair);
	if (repair->dry_run)
		return;

	if (repair->nlosses > 0)
	{
		strata_repair_begin_pass(repair);
		repair->record.ended = GetCurrentTimestamp();
		strata_manifest_add_pass(store, &repair->record);
	}
	/* Backends keep what they have read of the log. */
	CacheInvalidateRelcache(repair->storage);
	CommandCounterIncrement();
	STRATA_PAUSE("repair-before-commit");
}

/* A look at the store, with the locks of verify, as the owner like that. */
static void
repair_look(StrataRepair *repair, Oid relid)
{
	StrataCaller caller;

	strata_check_table_argument(relid, true, AccessShareLock);
	repair->store = strata_store_open(relid);
	(void) strata_lock(repair->store->storage, STRATA_LOCK_PASS, 0, ExclusiveLock, false);
	repair->storage = strata_storage_open(repair->store, RecoveryInProgress() ?
															 AccessShareLock :
															 ShareUpdateExclusiveLock);
	PushActiveSnapshot(GetLatestSnapshot());
	strata_become_owner(&caller, relid);
	repair_store(repair);
	strata_become_caller(&caller);
	PopActiveSnapshot();
	table_close(repair->storage, NoLock);
	strata_store_close(repair->store);
}

/* The same, changing it. */
static void
repair_change(StrataRepair *repair, Oid relid)
{
	StrataPassEnv env;
	Relation	table;

	if (IsTransactionBlock() || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("strata.repair() cannot change a table in a transaction block"),
				 errdetail("Not all of what it does can be rolled back."),
				 errhint("Call it by itself, or with dry_run => true.")));
	PreventCommandIfReadOnly("strata.repair()");
	PreventCommandDuringRecovery("strata.repair()");
	strata_check_table_argument(relid, true, AccessExclusiveLock);
	table = table_open(relid, NoLock);
	CheckTableNotInUse(table, "strata.repair()");
	table_close(table, NoLock);

	(void) strata_pass_enter(&env, relid, "strata.repair()", false);
	LockRelationOid(RelationGetRelid(env.storage), AccessExclusiveLock);
	repair->store = env.store;
	repair->storage = env.storage;
	repair->mcxt = env.mcxt;
	repair_store(repair);
	strata_pass_leave(&env);
}

/*
 * strata.repair(regclass, dry_run boolean): a row per loss.
 */
Datum
strata_repair(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);
	bool		dry_run = PG_ARGISNULL(1) || PG_GETARG_BOOL(1);
	StrataRepair		repair = {.dry_run = dry_run};
	MemoryContext old_mcxt;

	InitMaterializedSRF(fcinfo, 0);
	repair.result = (ReturnSetInfo *) fcinfo->resultinfo;
	repair.record.what = STRATA_PASS_REPAIR;
	repair.record.started = GetCurrentTimestamp();
	repair.mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata repair",
										ALLOCSET_DEFAULT_SIZES);
	old_mcxt = MemoryContextSwitchTo(repair.mcxt);
	if (dry_run)
		repair_look(&repair, relid);
	else
	{
		repair_change(&repair, relid);
		if (strata_pass_by_hand_hook != NULL)
			strata_pass_by_hand_hook(relid);
	}
	MemoryContextSwitchTo(old_mcxt);
	return (Datum) 0;
}
