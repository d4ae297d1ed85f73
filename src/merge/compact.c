/*-------------------------------------------------------------------------
 *
 * compact.c
 *	  Compaction: few full row groups instead of many small or sparse ones.
 *
 * A compaction is a pass that folds no generation.  It takes the row groups
 * that are small (under a quarter of full size, by rows and by raw bytes) or
 * sparse (half of their rows deleted), writes their live rows into new ones,
 * adds the new TIDs to the key index and takes the old row groups out of the
 * manifest, all in one transaction.  Row groups of which every row is deleted
 * are not even read.
 *
 * Nothing changes for a reader.  A snapshot that does not see the compaction
 * still sees the old row groups: their blocks are given back by sweep only
 * when no snapshot is left that does, and TIDs of row groups that a reader's
 * manifest does not list are passed over, new ones by old snapshots and old
 * ones by new snapshots.  Pending versions hide base rows by key, so it does
 * not matter where a base row lies.
 *
 * A thorough one, of a store that is not written to, takes row groups of which a
 * tenth is deleted, too, and moves what lies at the end of the file into free
 * space before it (shorten.c), so that the next sweep can cut the end off.
 *
 * Bounded by the stored bytes of what is read, as a merge is, and a worker's by
 * those of what is written, too; one sparse row group or two are taken at least,
 * so that it gets on whatever the bound, unless it can wait.  Memory is that of
 * one row group.  A sparse row group of few huge rows is left alone until all of
 * them are deleted: copying one would take more memory than that.
 *
 * Locks: those of a pass, to the end of the transaction; gives way to DDL.
 *
 * Crash windows: those of a pass.  Until the commit the old row groups count
 * and the new ones are unreferenced extents, with TIDs that nobody follows.
 *
 * IDENTIFICATION
 *	  src/merge/compact.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "base/codec.h"
#include "merge/budget.h"
#include "merge/output.h"
#include "merge/progress.h"
#include "pause.h"
#include "storage/metapage.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/memutils.h"

/* Look around every so many rows. */
#define COMPACT_TICK_ROWS		256

/* Deletes of row groups that went are dropped when they are a part of all. */
#define COMPACT_FOLD_FRACTION	4

/*
 * Sparse row groups of more raw bytes than so many full ones hold rows too
 * large to be copied.
 */
#define COMPACT_MAX_FULL		2

/* Rows deleted of so many make a row group sparse. */
#define COMPACT_SPARSE			2
#define COMPACT_SPARSE_THOROUGH 10

typedef struct Compact
{
	StrataPassEnv *env;
	StrataPassRecord record;
	StrataCompactResult *result;
	bool		thorough;
	int64		max_bytes;		/* 0: no cap */
	int64		growth;			/* 0: no cap */
	bool		patient;		/* nothing rather than more than growth */
	bool	   *chosen;			/* by index in the manifest */
	uint64		bytes;			/* of the chosen ones that are read */
	uint64		live_bytes;		/* of these, of live rows */
	uint32		nread;
	uint32		nsparse;		/* of these */
	uint64		rows;			/* live ones of these */
	StrataShorten *plan;		/* NULL: nothing is moved */
	uint64		ticks;
} Compact;

/* A quarter of full size, as for adoption in a merge. */
static bool
is_small(const StrataStore *store, const StrataRowGroup *group)
{
	return group->ref.rows < (uint32) store->options->row_group_rows / 4 &&
		group->ref.raw_bytes < (uint64) store->options->row_group_bytes / 4;
}

static bool
is_dead(const StrataRowGroup *group)
{
	return group->ndeleted == group->ref.rows;
}

/* Can its live rows be copied within the memory of a row group? */
static bool
can_be_copied(const StrataStore *store, const StrataRowGroup *group)
{
	return is_dead(group) ||
		group->ref.raw_bytes <= COMPACT_MAX_FULL * (uint64) store->options->row_group_bytes;
}

static bool
is_sparse(const StrataStore *store, const StrataRowGroup *group, bool thorough)
{
	uint64		part = thorough ? COMPACT_SPARSE_THOROUGH : COMPACT_SPARSE;

	return part * group->ndeleted >= group->ref.rows && can_be_copied(store, group);
}

void
strata_compact_need(StrataStore *store, const StrataManifest *manifest, bool thorough,
					StrataCompactNeed *need)
{
	memset(need, 0, sizeof(*need));
	for (int i = 0; i < manifest->ngroups; i++)
	{
		const StrataRowGroup *group = &manifest->groups[i];
		bool		sparse = is_sparse(store, group, thorough);

		if (sparse)
			need->sparse++;
		else if (is_small(store, group))
			need->small++;
		if (thorough ? can_be_copied(store, group) : sparse)
			need->dead_bytes += (uint64) ((double) group->ref.length *
										  group->ndeleted / group->ref.rows);
	}
}

/* StrataPassTick */
static void
compact_tick(void *arg)
{
	Compact    *compact = (Compact *) arg;
	int64		memory = (int64) (MemoryContextMemAllocated(compact->env->mcxt, true) +
								  strata_codec_memory());

	CHECK_FOR_INTERRUPTS();
	strata_pass_give_way(compact->env->store);
	compact->result->peak_memory = Max(compact->result->peak_memory, memory);
}

/*
 * Is this row group beyond the bounds?  The first two are not beyond what is to
 * be read; nor the first one beyond what is to be written, or two small ones.
 */
static bool
out_of_bounds(const Compact *compact, const StrataRowGroup *group, uint64 live_bytes)
{
	if (compact->growth > 0 &&
		compact->live_bytes + live_bytes > (uint64) compact->growth &&
		(compact->patient || compact->nread > (compact->nsparse == 0)))
		return true;
	return compact->nread >= 2 && compact->max_bytes > 0 &&
		   compact->bytes + group->ref.length > (uint64) compact->max_bytes;
}

/*
 * Choose what is rewritten: dead row groups, which cost nothing, all of them;
 * then sparse and small ones, oldest first, as far as the bounds allow.  One
 * small row group alone is not worth it.
 */
static void
compact_choose(Compact *compact)
{
	StrataStore *store = compact->env->store;
	StrataManifest *manifest = compact->env->manifest;
	int			only = -1;

	compact->chosen = palloc0(sizeof(bool) * Max(manifest->ngroups, 1));

	for (int i = 0; i < manifest->ngroups; i++)
	{
		const StrataRowGroup *group = &manifest->groups[i];
		uint64		live_bytes;

		if (is_dead(group))
		{
			compact->chosen[i] = true;
			continue;
		}
		if (!is_sparse(store, group, compact->thorough) && !is_small(store, group))
			continue;
		live_bytes = (uint64) ((double) group->ref.length *
							   (group->ref.rows - group->ndeleted) / group->ref.rows);
		if (out_of_bounds(compact, group, live_bytes))
		{
			compact->result->row_groups_left++;
			continue;
		}
		compact->chosen[i] = true;
		compact->bytes += group->ref.length;
		compact->live_bytes += live_bytes;
		compact->nread++;
		compact->nsparse += is_sparse(store, group, compact->thorough);
		only = i;
	}

	if (compact->nread == 1 && !is_sparse(store, &manifest->groups[only], compact->thorough))
	{
		compact->chosen[only] = false;
		compact->nread = 0;
		compact->bytes = 0;
	}
	for (int i = 0; i < manifest->ngroups; i++)
	{
		if (!compact->chosen[i])
			continue;
		compact->result->row_groups_read++;
		compact->rows += manifest->groups[i].ref.rows - manifest->groups[i].ndeleted;
	}
}

/* Copy the live rows of one row group. */
static void
compact_group(Compact *compact, StrataOutput *output, const StrataRowGroup *group,
			  const Bitmapset *columns, MemoryContext group_mcxt)
{
	StrataPassEnv *env = compact->env;
	int			natts = env->store->desc->natts;
	MemoryContext old_mcxt = MemoryContextSwitchTo(group_mcxt);
	StrataGroupReader *reader = strata_group_open(env->store, env->storage, &group->ref,
												  columns, true);
	const uint32 *hashes = env->store->key.natts > 0 ? strata_group_hashes(reader) : NULL;
	Datum	   *values = palloc(sizeof(Datum) * natts);
	bool	   *isnull = palloc(sizeof(bool) * natts);
	uint64		bytes_read;
	uint64		bytes_decoded;

	for (uint32 row = 0; row < group->ref.rows; row++)
	{
		if (compact->ticks++ % COMPACT_TICK_ROWS == 0)
			compact_tick(compact);
		if (strata_row_deleted(group, row))
			continue;
		strata_group_fetch(reader, row, values, isnull);
		strata_output_add(output, values, isnull, hashes != NULL ? hashes[row] : 0);
		compact->result->rows_moved++;
	}
	strata_group_io(reader, &bytes_read, &bytes_decoded);
	compact->result->bytes_read += (int64) bytes_read;
	strata_group_close(reader);

	MemoryContextSwitchTo(old_mcxt);
	MemoryContextReset(group_mcxt);
	strata_progress_done(1, group->ref.length);
}

/* StrataSupersededRow: nothing is superseded by moving rows. */
static void
compact_superseded(uint32 group, uint32 row, bool tombstone, void *arg)
{
	elog(ERROR, "a compaction superseded row %u of row group %u", row, group);
}

/*
 * The manifest's side: the old row groups go, and their deletes when those
 * are worth the rewriting of all.
 */
static void
compact_flip(Compact *compact)
{
	StrataPassEnv *env = compact->env;
	StrataManifest *manifest = env->manifest;
	uint64		deleted = 0;
	uint64		deleted_gone = 0;

	for (int i = 0; i < manifest->ngroups; i++)
	{
		deleted += manifest->groups[i].ndeleted;
		if (!compact->chosen[i])
			continue;
		CHECK_FOR_INTERRUPTS();
		deleted_gone += manifest->groups[i].ndeleted;
		compact->result->blocks_gone += manifest->groups[i].ref.extent.nblocks;
		strata_manifest_remove_group(env->store, manifest->groups[i].number, &compact->record);
	}
	compact->result->rows_dropped = (int64) deleted_gone;
	if (deleted_gone > 0 && deleted_gone >= deleted / COMPACT_FOLD_FRACTION)
		strata_manifest_fold_deletes(env->store, manifest, compact->chosen);
}

/* Rewrite what was chosen. */
static void
compact_rewrite(Compact *compact)
{
	StrataPassEnv *env = compact->env;
	StrataStore *store = env->store;
	StrataSupersede *supersede = NULL;
	StrataOutput output;
	Bitmapset  *columns = NULL;
	MemoryContext group_mcxt;
	bool		index_present = false;

	/* No index is probed: only the new TIDs are added, to every one. */
	if (store->key.natts > 0)
	{
		(void) strata_keyindex_find(env->storage, &index_present);
		if (index_present)
			supersede = strata_supersede_begin(store, env->storage, env->manifest, InvalidOid);
	}
	for (int i = 0; i < store->desc->natts; i++)
	{
		if (!TupleDescAttr(store->desc, i)->attisdropped)
			columns = bms_add_member(columns, i + 1);
	}

	strata_progress_phase(STRATA_PHASE_WRITE);
	strata_output_begin(&output, store, env->storage, env->manifest,
						supersede, compact->rows, &compact->record, compact_tick, compact);
	group_mcxt = AllocSetContextCreate(env->mcxt, "strata compacted row group",
									   ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < env->manifest->ngroups; i++)
	{
		if (compact->chosen[i] && !is_dead(&env->manifest->groups[i]))
			compact_group(compact, &output, &env->manifest->groups[i], columns, group_mcxt);
	}
	strata_output_end(&output);
	MemoryContextDelete(group_mcxt);
	STRATA_PAUSE("compact-written");

	strata_progress_phase(STRATA_PHASE_INDEX);
	if (supersede != NULL)
		strata_supersede_finish(supersede, compact_superseded, compact_tick, compact,
								&compact->record);

	STRATA_PAUSE("compact-before-manifest");
	compact_flip(compact);

	compact->result->row_groups_written = compact->record.row_groups_written;
	compact->result->bytes_written = compact->record.bytes_written;
}

/* StrataBudgetAction: everything after the choice. */
static void
compact_do(void *arg)
{
	Compact    *compact = (Compact *) arg;
	StrataShorten *plan = compact->plan;
	int64		max_bytes = compact->max_bytes;

	strata_meta_begin_pass(compact->env->storage, GetTopFullTransactionId());
	strata_manifest_start_record(compact->env->manifest, &compact->record);
	if (compact->result->row_groups_read > 0)
		compact_rewrite(compact);

	/* What is rewritten counts first. */
	if (max_bytes > 0 && compact->nread > 0)
	{
		max_bytes -= (int64) Min(compact->bytes, (uint64) max_bytes);
		if (max_bytes == 0)
			plan = NULL;
	}
	if (plan != NULL)
		strata_shorten_move(plan, compact->env, max_bytes, &compact->record, compact_tick,
							compact, compact->result);
	STRATA_PAUSE("compact-after-manifest");
}

bool
strata_compact_pass(Oid ftrelid, const StrataCompactRequest *request,
					StrataCompactResult *out)
{
	StrataPassEnv env;
	Compact    *compact;

	memset(out, 0, sizeof(*out));
	if (!strata_pass_enter(&env, ftrelid, "strata.compact()", request->nowait))
		return false;

	compact = palloc0(sizeof(Compact));
	compact->env = &env;
	compact->result = out;
	compact->thorough = request->thorough;
	compact->record.what = STRATA_PASS_COMPACT;
	compact->record.started = out->started = GetCurrentTimestamp();
	STRATA_PAUSE("compact-begin");

	compact->max_bytes = request->max_bytes < 0 ? env.store->options->merge_max_bytes :
												  request->max_bytes;
	compact->growth = request->growth;
	compact->patient = request->patient;
	compact_choose(compact);
	if (request->thorough)
		compact->plan = strata_shorten_plan(env.store, env.storage, env.manifest, compact->chosen);
	if (out->row_groups_read > 0 ||
		(compact->plan != NULL && strata_shorten_moves(compact->plan) > 0))
	{
		strata_progress_start(STRATA_PHASE_WAIT, (uint32) compact->nread, compact->bytes);
		strata_budget_run(strata_output_memory(env.store), compact_tick, compact_do, compact);

		compact->record.ended = GetCurrentTimestamp();
		compact->record.row_groups_written = out->row_groups_written;
		compact->record.bytes_written = out->bytes_written;
		compact->record.rows_read = out->rows_moved;
		compact->record.rows_deleted = out->rows_dropped;
		compact->record.bytes_read = out->bytes_read;
		compact->record.base_bytes_read = out->bytes_read;
		compact->record.peak_memory = out->peak_memory;
		strata_manifest_add_pass(env.store, &compact->record);
		CommandCounterIncrement();
		STRATA_PAUSE("compact-before-commit");
	}
	out->ended = GetCurrentTimestamp();

	strata_pass_leave(&env);
	return true;
}
