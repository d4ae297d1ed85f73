/*-------------------------------------------------------------------------
 *
 * look.c
 *	  What is due in a store.
 *
 * There is no list of stores that want something, hence none that could miss
 * one: what is pending is read from the store itself.  That is a shard page, a
 * tail page and one generation's first page a shard, and the shard rows,
 * however large backlog and base are.
 *
 * Two triggers, either of which is enough, and each of which can be turned
 * off: so many sealed generations, or a generation, sealed or active, that was
 * opened (by its first entry) an interval ago.
 *
 * Locks: the caller's on the storage relation; page locks one at a time.
 *
 * IDENTIFICATION
 *	  src/worker/look.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "storage/metapage.h"

#include "catalog/pg_class.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/*
 * Compaction pays when so many small row groups became one, or so much of the
 * base is of deleted rows in sparse row groups.
 */
#define UPKEEP_SMALL_GROUPS		8
#define UPKEEP_DEAD_FRACTION	8

/* At so many times that much it does not wait for a sweep to free space. */
#define UPKEEP_URGENT			2

/* A look at the backlog within this time after the last one is the same look. */
#define LOOK_PAUSE_SEC			60

/* Shard states, and the sealed pending generations after them. */
static int
debt_states(StrataStore *store, Relation storage, StrataShardState *states)
{
	StrataMetaData meta;
	int			sealed = 0;

	if (!strata_meta_read(storage, &meta) ||
		meta.nshards != (uint32) store->nshards ||
		!strata_manifest_shards(store, meta.incarnation, states))
		return -1;
	for (int shard = 0; shard < store->nshards; shard++)
	{
		StrataShardData data;

		if (strata_shard_read(storage, shard, &data) &&
			data.active_generation > states[shard].merged_through + 1)
			sealed += (int) (data.active_generation - states[shard].merged_through - 1);
	}
	return sealed;
}

int
strata_debt_sealed(StrataStore *store, Relation storage)
{
	StrataShardState states[STRATA_MAX_SHARDS];

	return Max(debt_states(store, storage, states), 0);
}

void
strata_debt(StrataStore *store, Relation storage, TimestampTz now, StrataDebt *debt)
{
	const StrataOptions *options = store->options;
	TimestampTz interval = (TimestampTz) options->merge_interval * USECS_PER_SEC;
	StrataShardState states[STRATA_MAX_SHARDS];
	uint64		rows;
	uint64		bytes;
	uint32		active[STRATA_MAX_SHARDS];

	memset(debt, 0, sizeof(*debt));
	debt->store = store->ftrelid;
	debt->trigger = STRATA_TRIGGER_NONE;
	debt->due = STRATA_NEVER;
	debt->sealed = debt_states(store, storage, states);
	if (debt->sealed < 0)
	{
		debt->sealed = 0;
		return;
	}

	strata_log_totals(storage, store->nshards, &rows, &bytes, active);
	debt->bytes = (int64) bytes;
	for (int shard = 0; shard < store->nshards; shard++)
		debt->bytes -= (int64) states[shard].bytes;

	for (int shard = 0; shard < store->nshards; shard++)
	{
		List	   *generations = strata_log_generations(storage, shard, &states[shard], 1);
		StrataGeneration *oldest;
		StrataShardData data;

		if (generations == NIL)
			continue;
		oldest = (StrataGeneration *) linitial(generations);
		if (debt->oldest == 0 || oldest->opened_at < debt->oldest)
			debt->oldest = oldest->opened_at;

		/* The active generation, where it is not the oldest itself. */
		if (interval > 0 && oldest->sealed && strata_shard_read(storage, shard, &data))
		{
			StrataShardState active = states[shard];

			active.merged_through = data.active_generation - 1;
			active.first_pending = data.active_start;
			generations = strata_log_generations(storage, shard, &active, 1);
			oldest = generations != NIL ? (StrataGeneration *) linitial(generations) : NULL;
		}
		if (interval > 0 && oldest != NULL && !oldest->sealed &&
			oldest->opened_at + interval <= now)
			debt->seal = true;
	}

	if (debt->oldest != 0 && interval > 0)
		debt->due = debt->oldest + interval;
	if (!options->auto_merge)
	{
		debt->due = STRATA_NEVER;
		debt->seal = false;
	}
	else if (options->merge_after_generations > 0 &&
			 debt->sealed >= options->merge_after_generations)
		debt->trigger = STRATA_TRIGGER_COUNT;
	else if (debt->due <= now)
		debt->trigger = STRATA_TRIGGER_TIME;
}

bool
strata_debt_growth(const StrataDebt *debt, bool make, StrataGrowth *growth)
{
	StrataSharedStore *shared;
	TimestampTz now = GetCurrentTimestamp();

	memset(growth, 0, sizeof(*growth));
	if (strata_shared == NULL)
		return false;
	shared = strata_store_lock(debt->store, make);
	if (shared == NULL)
		return false;
	growth->since = shared->looked_at;
	if (shared->looked_at != 0)
		growth->bytes = debt->bytes - shared->looked_bytes;
	if (now - shared->looked_at > LOOK_PAUSE_SEC * USECS_PER_SEC)
	{
		shared->looked_at = now;
		shared->looked_bytes = debt->bytes;
	}
	strata_store_unlock();
	return true;
}

/* ---- upkeep ---- */

bool
strata_upkeep_sparse(const StrataManifest *manifest, const StrataCompactNeed *need)
{
	return need->sparse > 0 && need->dead_bytes > manifest->stored_bytes / UPKEEP_DEAD_FRACTION;
}

bool
strata_upkeep_compact(const StrataManifest *manifest, const StrataCompactNeed *need)
{
	return need->small + need->sparse >= UPKEEP_SMALL_GROUPS ||
		   strata_upkeep_sparse(manifest, need);
}

bool
strata_upkeep_urgent(const StrataManifest *manifest, const StrataCompactNeed *need)
{
	return need->small + need->sparse >= UPKEEP_URGENT * UPKEEP_SMALL_GROUPS ||
		   need->dead_bytes > UPKEEP_URGENT * manifest->stored_bytes / UPKEEP_DEAD_FRACTION;
}

void
strata_take_stock(StrataStore *store, Relation storage)
{
	StrataManifest *manifest = strata_manifest_get(store, storage, GetActiveSnapshot());
	StrataCompactNeed need;
	StrataSharedStore *shared;

	strata_compact_need(store, manifest, false, &need);
	shared = strata_store_lock(store->ftrelid, true);
	if (shared != NULL)
	{
		shared->compact_due = strata_upkeep_compact(manifest, &need);
		strata_store_unlock();
	}
	strata_manifest_release(manifest);
}
