/*-------------------------------------------------------------------------
 *
 * upkeep.c
 *	  What a worker does for a store besides merging: compaction, sweeps,
 *	  ANALYZE.
 *
 * Passes change a store, so upkeep follows a pass; what a pass took out of use
 * is counted in the store's shared state, and each kind of upkeep is done when
 * that pays: when it is a part of the whole, so that the cost per merged row is
 * bounded however large the store is.  What was cut off by its bound, and what
 * an old snapshot kept from being freed, make the store due again.
 *
 * A store that is written to makes use of its free space.  So a compaction waits
 * for what passes before it took out of use to be swept, and writes no more than
 * fits what is free; unless there is twice as much to gain as makes it due, since
 * it would wait as long as an old snapshot is there.  A store that has become
 * quiet is settled: compacted thoroughly, what lies at the file's end moved to
 * free space before it, swept whatever it frees, and so on until nothing is
 * gained any more.  When nothing comes of it though there is something to gain
 * (an old snapshot, readers that keep sweep from truncating), it is tried again
 * less and less often.
 *
 * A restart forgets all of that.  So the first round of each database looks at
 * the quiet stores themselves, and has those settled for which it pays; stores
 * of which something is pending are seen after their next merge.
 *
 * Each step is a transaction of its own (step.c), with the locks of what it
 * calls; none waits for a lock.
 *
 * IDENTIFICATION
 *	  src/worker/upkeep.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "storage/extent.h"
#include "storage/metapage.h"

#include "access/table.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * Sweep when so much has gone out of use, or so much of the relation; as soon as
 * the statements that ran during the pass are likely to have ended.
 */
#define SWEEP_MIN_BYTES			(4 * 1024 * 1024)
#define SWEEP_FRACTION			8
#define SWEEP_SOON_MSEC			250
#define SWEEP_PAUSE_SEC			10
#define SWEEP_PAUSE_MAX_SEC		600
#define SWEEP_PAUSE_FACTOR		20

/*
 * What a compaction writes fits a free run, of which a part is left to others,
 * or is so much of the file, in which then little else is unused: the next one
 * has the space of what this one takes out of use.
 */
#define COMPACT_GROWTH_FRACTION 8
#define COMPACT_ROOM_FRACTION	8

/*
 * Quiet is a store of which nothing was merged for merge_interval, but so long
 * at least and STRATA_SETTLE_QUIET_SEC at most.
 */
#define SETTLE_QUIET_MIN_SEC	5
#define SETTLE_PAUSE_MAX_SEC	600

/* After so many times in vain nothing is moved any more, only swept. */
#define SETTLE_TRIES			8

/* Sweep the key index, too, when so many of its entries are dead. */
#define SWEEP_TIDS_MIN			10000
#define SWEEP_TIDS_FRACTION		5

/* ANALYZE when so many rows have changed. */
#define ANALYZE_MIN_ROWS		1000
#define ANALYZE_FRACTION		5

/* Did the step that just ran get its locks? */
static bool pass_ran;

/*
 * When a store of which nothing is to be merged wants upkeep: the start of time
 * for at once, STRATA_NEVER for not at all.
 */
TimestampTz
strata_upkeep_at(const StrataSharedStore *shared)
{
	TimestampTz at = STRATA_NEVER;

	if (shared->compact_due)
		return 0;
	if (shared->settle_at != 0)
		at = shared->settle_at;
	if (shared->unswept_bytes >= STRATA_SWEEP_IDLE_BYTES)
		at = Min(at, shared->next_sweep);
	return at;
}

/* StrataWorkerStep: see what a merge left to be done. */
static void
step_stock(StrataDebt *debt)
{
	StrataStore *store;
	Relation	storage;

	if (!strata_worker_open_store(debt->store, AccessShareLock, &store, &storage))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	strata_take_stock(store, storage);
	PopActiveSnapshot();
	table_close(storage, NoLock);
	strata_store_close(store);
}

bool
strata_worker_take_stock(StrataDebt *debt)
{
	return strata_worker_run_step(STRATA_TASK_LOOK, debt, step_stock);
}

static StrataCompactRequest compact_request;
static StrataCompactResult compact_result;

/* StrataWorkerStep */
static void
step_compact(StrataDebt *debt)
{
	pass_ran = strata_compact_pass(debt->store, &compact_request, &compact_result);
}

static StrataSweepResult sweep_result;
static bool sweep_with_index;

/* StrataWorkerStep */
static void
step_sweep(StrataDebt *debt)
{
	pass_ran = strata_sweep(debt->store, sweep_with_index, true, &sweep_result);
}

int64
strata_upkeep_unreferenced(StrataStore *store, Relation storage, const StrataManifest *manifest)
{
	int64		left = RelationGetNumberOfBlocks(storage);
	StrataDictionaryRef *dictionaries;
	int			n;

	left -= strata_spare_bytes(storage) / BLCKSZ + STRATA_FIRST_EXTENT_BLOCK(store->nshards);
	for (int i = 0; i < manifest->ngroups; i++)
		left -= manifest->groups[i].ref.extent.nblocks;
	dictionaries = strata_manifest_dictionaries(store->ftrelid, manifest->incarnation, &n);
	for (int i = 0; i < n; i++)
		left -= dictionaries[i].extent.nblocks;
	for (int shard = 0; shard < store->nshards; shard++)
	{
		StrataShardData data;

		if (strata_shard_read(storage, shard, &data))
			left -= (int64) data.tail_extent.nblocks + data.next_extent.nblocks;
	}
	return Max(left, 0) * BLCKSZ;
}

/*
 * What is thought to await a sweep can be no more than that: TRUNCATE and sweeps
 * by users do not tell.
 */
static void
correct_unswept(StrataStore *store, Relation storage, const StrataManifest *manifest)
{
	int64		most = strata_upkeep_unreferenced(store, storage, manifest);
	StrataSharedStore *shared = strata_store_lock(store->ftrelid, false);

	if (shared == NULL)
		return;
	/* Not 0: a sweep to cut off a free end may still be due. */
	shared->unswept_bytes = Min(shared->unswept_bytes, Max(most, 1));
	strata_store_unlock();
}

static bool store_seen;			/* else nothing else is known */
static int64 store_rows;
static int64 store_bytes;
static int64 store_unswept;		/* awaits a sweep */
static int64 store_growth;		/* that a compaction may write */
static int64 store_part;		/* that one may write while others append */
static bool store_patient;		/* a compaction can wait for space */
static bool store_passed;		/* nobody sees what the newest pass took out */
static bool store_unsettled;	/* apart from what is to be swept */
static int store_quiet_sec;

/*
 * How much a compaction may write: what fits free runs, in which a row group is
 * in one piece; or a part of the file, less what is free in it and what awaits a
 * sweep.  While the store is written to no more than that part in any case: as
 * long as the row groups read are there, too, appends have but what is left.
 */
static int64
growth_allowed(StrataStore *store, Relation storage, const StrataManifest *manifest)
{
	double		packed = manifest->raw_bytes > 0 ?
						 (double) manifest->stored_bytes / manifest->raw_bytes :
						 1.0;
	int64		full = (int64) (store->options->row_group_bytes * packed);
	int64		part = Max(store_bytes / COMPACT_GROWTH_FRACTION, full / 2);
	int64		room = strata_spare_room(storage, full);

	/* Appends take of it meanwhile, and how well rows compress is a guess. */
	room -= room / COMPACT_ROOM_FRACTION;

	store_part = part;
	return Max(room, part - strata_spare_bytes(storage) - store_unswept);
}

/* StrataWorkerStep: how large the store is, to weigh upkeep against. */
static void
step_size(StrataDebt *debt)
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
	StrataCompactNeed need;
	StrataMetaData meta;
	StrataSharedStore known;

	store_rows = store_growth = store_unswept = 0;
	store_patient = store_passed = false;
	store_quiet_sec = STRATA_SETTLE_QUIET_SEC;

	/* A store that is locked: nothing pays now, but it may after another look. */
	store_bytes = PG_INT64_MAX;
	store_unsettled = true;
	store_seen = strata_worker_open_store(debt->store, AccessShareLock, &store, &storage);
	if (!store_seen)
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	manifest = strata_manifest_get(store, storage, GetActiveSnapshot());
	store_rows = (int64) manifest->live_rows;
	store_bytes = (int64) RelationGetNumberOfBlocks(storage) * BLCKSZ;
	strata_compact_need(store, manifest, false, &need);
	store_patient = !strata_upkeep_urgent(manifest, &need);
	strata_compact_need(store, manifest, true, &need);
	store_unsettled = strata_upkeep_sparse(manifest, &need) ||
		strata_shorten_plan(store, storage, manifest, NULL) != NULL;
	if (store->options->merge_interval > 0)
		store_quiet_sec = Max(Min(store_quiet_sec, store->options->merge_interval),
							  SETTLE_QUIET_MIN_SEC);
	if (strata_store_look(debt->store, &known) && known.unswept_bytes >= STRATA_SWEEP_IDLE_BYTES)
		correct_unswept(store, storage, manifest);
	if (strata_store_look(debt->store, &known))
	{
		store_unswept = known.unswept_bytes;
		if (known.last_merge + store_quiet_sec * USECS_PER_SEC <= GetCurrentTimestamp())
			store_patient = false;
	}
	store_growth = growth_allowed(store, storage, manifest);
	store_passed = strata_meta_read(storage, &meta) &&
		FullTransactionIdPrecedes(strata_pass_xid(meta.newest_pass),
								  strata_full_xid(strata_meta_horizon(storage)));
	strata_manifest_release(manifest);
	PopActiveSnapshot();
	table_close(storage, NoLock);
	strata_store_close(store);
}

/* StrataWorkerStep: as autovacuum would, if it looked at foreign tables. */
static void
step_analyze(StrataDebt *debt)
{
	char	   *name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(debt->store)),
												  get_rel_name(debt->store));
	StringInfoData command;

	/* ANALYZE would not wait either, but does not say that it did nothing. */
	pass_ran = ConditionalLockRelationOid(debt->store, ShareUpdateExclusiveLock);
	if (!pass_ran)
		return;
	initStringInfo(&command);
	appendStringInfo(&command, "ANALYZE (SKIP_LOCKED) %s", name);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (SPI_execute(command.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "ANALYZE failed");
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	PopActiveSnapshot();
}

static bool survey_pays;

/* StrataWorkerStep: is there something to gain? */
static void
step_survey(StrataDebt *debt)
{
	StrataStore *store;
	Relation	storage;

	pass_ran = strata_worker_open_store(debt->store, AccessShareLock, &store, &storage);
	if (!pass_ran)
	{
		strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);
		return;
	}
	if (store->options->auto_merge)
	{
		StrataManifest *manifest;
		StrataCompactNeed need;

		PushActiveSnapshot(GetTransactionSnapshot());
		manifest = strata_manifest_get(store, storage, GetActiveSnapshot());
		strata_compact_need(store, manifest, true, &need);
		survey_pays = manifest->merged &&
			(strata_upkeep_compact(manifest, &need) ||
			 strata_shorten_plan(store, storage, manifest, NULL) != NULL ||
			 strata_upkeep_unreferenced(store, storage, manifest) >= STRATA_SWEEP_IDLE_BYTES);
		strata_manifest_release(manifest);
		PopActiveSnapshot();
	}
	table_close(storage, NoLock);
	strata_store_close(store);
}

bool
strata_worker_survey(StrataDebt *debt)
{
	StrataSharedStore *shared;

	/* what holds for a store that was dropped just now: there is no step */
	pass_ran = true;
	survey_pays = false;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_survey) || !pass_ran)
		return false;
	if (!survey_pays)
		return true;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_size))
		return false;
	shared = strata_store_lock(debt->store, true);
	if (shared == NULL)
		return true;
	if (shared->last_merge == 0 && shared->settle_at == 0)
	{
		shared->settle_at = GetCurrentTimestamp() + store_quiet_sec * USECS_PER_SEC;
		shared->settled_bytes = store_bytes;
	}
	strata_store_unlock();
	return true;
}

/* What is worth a sweep while the store is written to. */
static int64
sweep_minimum(void)
{
	return Max(SWEEP_MIN_BYTES, store_bytes / SWEEP_FRACTION);
}

/*
 * Compact, unless that is to wait: what earlier turns took out of use is worth a
 * sweep, which could not free it yet, so the file would grow by what it has.
 */
static bool
compact_store(StrataDebt *debt, const char *name, bool thorough)
{
	const StrataCompactResult *result = &compact_result;
	StrataSharedStore *shared;

	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_size))
		return false;
	if (!thorough)
	{
		store_growth = Min(store_growth, store_part);
		if (store_patient && store_unswept - debt->fresh_bytes >= sweep_minimum())
		{
			ereport(DEBUG1,
					(errmsg_internal("strata: compaction of %s waits for a sweep", name)));
			strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);
			pass_ran = false;
			return true;
		}
	}
	compact_request = (StrataCompactRequest){.max_bytes = -1, .growth = Max(store_growth, 1)};
	compact_request.patient = !thorough && store_patient;
	compact_request.thorough = thorough;
	compact_request.nowait = true;
	if (!strata_worker_run_step(STRATA_TASK_COMPACT, debt, step_compact))
		return false;
	shared = strata_store_lock(debt->store, true);
	if (!pass_ran)
		strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);
	if (shared != NULL)
	{
		if (pass_ran)
			shared->compact_due = result->row_groups_left > 0;
		if (pass_ran && result->blocks_gone > 0)
		{
			shared->compactions++;
			shared->bytes_written += result->bytes_written;
			shared->busy_usec += result->ended - result->started;
			shared->unswept_bytes += result->blocks_gone * BLCKSZ;
			debt->fresh_bytes += result->blocks_gone * BLCKSZ;
			shared->dead_tids += result->rows_moved + result->rows_dropped;
		}
		strata_store_unlock();
	}
	if (pass_ran && result->blocks_gone > 0)
		ereport(LOG,
				(errmsg("strata: compacted " INT64_FORMAT " row groups of %s into " INT64_FORMAT
						": " INT64_FORMAT " rows moved, " INT64_FORMAT " dropped, " INT64_FORMAT
						" blocks out of use; " INT64_FORMAT " ms",
						result->row_groups_read, name, result->row_groups_written,
						result->rows_moved, result->rows_dropped, result->blocks_gone,
						(result->ended - result->started) / 1000)));
	return true;
}

static bool
sweep_store(StrataDebt *debt, const char *name)
{
	StrataSharedStore *shared;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz ended;

	if (!strata_worker_run_step(STRATA_TASK_SWEEP, debt, step_sweep))
		return false;
	if (!pass_ran)
		return true;
	ended = GetCurrentTimestamp();
	shared = strata_store_lock(debt->store, true);
	if (shared != NULL)
	{
		int64		freed = sweep_result.blocks_freed * BLCKSZ;

		/*
		 * What an old snapshot kept from being freed is due another time; the
		 * last pass's garbage still is for every statement that runs.  A little
		 * may be nothing but a bad estimate.
		 */
		if (freed >= shared->unswept_bytes / SWEEP_FRACTION)
			shared->vain_sweeps = 0;
		else
			shared->vain_sweeps++;
		shared->unswept_bytes -= freed;
		if (shared->unswept_bytes < STRATA_SWEEP_IDLE_BYTES)
		{
			shared->unswept_bytes = 0;
			shared->vain_sweeps = 0;
		}
		shared->next_sweep = ended +
			Max(shared->vain_sweeps == 0 ? SWEEP_SOON_MSEC * INT64CONST(1000) :
				strata_worker_backoff(shared->vain_sweeps, 1, SWEEP_PAUSE_MAX_SEC),
				(ended - started) * SWEEP_PAUSE_FACTOR);
		if (shared->unswept_bytes >= STRATA_SWEEP_IDLE_BYTES)
			strata_worker_note_due(shared->next_sweep);
		if (sweep_with_index)
			shared->dead_tids = 0;
		shared->sweeps++;
		shared->blocks_freed += sweep_result.blocks_freed;
		strata_store_unlock();
	}
	if (sweep_result.blocks_freed > 0 || sweep_result.blocks_truncated > 0 ||
		sweep_result.index_tids_removed > 0)
		ereport(LOG,
				(errmsg("strata: swept %s: " INT64_FORMAT " blocks freed, " INT64_FORMAT
						" truncated, " INT64_FORMAT " index entries removed; " INT64_FORMAT " ms",
						name, sweep_result.blocks_freed, sweep_result.blocks_truncated,
						sweep_result.index_tids_removed, (ended - started) / 1000)));
	return true;
}

/*
 * Is the space worth a sweep?  What this turn took out of use does not count as
 * long as somebody may see it: a sweep in vain would only put off the next.
 */
static bool
sweep_pays(const StrataSharedStore *known, const StrataDebt *debt, bool idle)
{
	int64		bytes = known->unswept_bytes - (store_passed ? 0 : debt->fresh_bytes);

	return known->next_sweep <= GetCurrentTimestamp() &&
		bytes >= (idle ? STRATA_SWEEP_IDLE_BYTES : sweep_minimum());
}

bool
strata_sweep_ahead(StrataDebt *debt, const char *name)
{
	StrataSharedStore known;

	if (!strata_store_look(debt->store, &known) || known.unswept_bytes < SWEEP_MIN_BYTES ||
		known.next_sweep > GetCurrentTimestamp())
		return true;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_size))
		return false;
	sweep_with_index = false;
	return !sweep_pays(&known, debt, false) || sweep_store(debt, name);
}

/*
 * When to settle the store, or to go on with it.  idle: nothing was merged;
 * tried: it was just done, in vain unless gained or the file is smaller than it
 * was before.
 */
static void
note_settle(Oid ftrelid, bool idle, bool tried, bool gained)
{
	StrataSharedStore *shared = strata_store_lock(ftrelid, false);
	TimestampTz now = GetCurrentTimestamp();

	if (shared == NULL)
		return;
	if (!idle || gained || (tried && store_bytes < shared->settled_bytes))
		shared->vain_settles = 0;
	else if (tried && store_seen)
		shared->vain_settles++;
	if (!idle || (tried && store_bytes < shared->settled_bytes))
		shared->settled_bytes = store_bytes;
	shared->settle_at = 0;
	if (store_unsettled || shared->unswept_bytes > 0)
	{
		if (!store_seen)
			now += STRATA_WORKER_DELAY_SEC * USECS_PER_SEC;
		else if (shared->vain_settles > 0)
			now += strata_worker_backoff(shared->vain_settles, 1, SETTLE_PAUSE_MAX_SEC);
		shared->settle_at = Max(shared->last_merge + store_quiet_sec * USECS_PER_SEC, now);
		strata_worker_note_due(shared->settle_at);
	}
	strata_store_unlock();
}

/* Compact, sweep and analyze, each when it pays. */
bool
strata_keep_up(StrataDebt *debt, const char *name, bool idle, bool *more)
{
	StrataSharedStore known;
	bool		settle;
	bool		thorough;
	bool		due;
	bool		moved = false;
	bool		gained = false;

	*more = false;
	if (!strata_store_look(debt->store, &known))
		return true;
	settle = idle && known.settle_at != 0 && known.settle_at <= GetCurrentTimestamp();
	thorough = settle && known.vain_settles < SETTLE_TRIES;
	if (known.compact_due || thorough)
	{
		if (!strata_sweep_ahead(debt, name) || !compact_store(debt, name, thorough))
			return false;
		moved = pass_ran && compact_result.blocks_gone > 0;
		gained = moved && compact_result.rows_dropped > 0;
	}
	if (!strata_store_look(debt->store, &known))
		return true;
	due = known.compact_due && pass_ran;
	if (!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_size))
		return false;

	/* What comes next had better have the space of what this took out of use. */
	*more = due && moved && store_passed;
	if (due && !*more)
		strata_worker_note_due(GetCurrentTimestamp() + STRATA_WORKER_DELAY_SEC * USECS_PER_SEC);

	if (settle || sweep_pays(&known, debt, idle))
	{
		sweep_with_index = known.dead_tids >= SWEEP_TIDS_MIN &&
			known.dead_tids >= store_rows / SWEEP_TIDS_FRACTION;
		if (!sweep_store(debt, name) ||
			!strata_worker_run_step(STRATA_TASK_LOOK, debt, step_size))
			return false;
		gained |= pass_ran && !moved && sweep_result.blocks_freed > 0;
	}
	else if (known.unswept_bytes >= STRATA_SWEEP_IDLE_BYTES)
		strata_worker_note_due(Max(known.next_sweep,
								   GetCurrentTimestamp() +
									   (known.unswept_bytes >= sweep_minimum() ?
											SWEEP_SOON_MSEC * INT64CONST(1000) :
											SWEEP_PAUSE_SEC * USECS_PER_SEC)));

	if (known.changed_rows >= ANALYZE_MIN_ROWS + store_rows / ANALYZE_FRACTION)
	{
		StrataSharedStore *shared;

		if (!strata_worker_run_step(STRATA_TASK_ANALYZE, debt, step_analyze))
			return false;
		shared = pass_ran ? strata_store_lock(debt->store, true) : NULL;
		if (shared != NULL)
		{
			shared->changed_rows = 0;
			shared->analyzes++;
			strata_store_unlock();
		}
	}
	note_settle(debt->store, idle, settle, gained);
	return true;
}
