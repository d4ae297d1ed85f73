/*-------------------------------------------------------------------------
 *
 * shorten.c
 *	  Moving what lies at the end of a file into free space before it, so that
 *	  the next sweep can cut the end off.
 *
 * Extents are taken lowest first, so a store that is written to drifts to the
 * front by itself.  One that has become quiet stays where it is: a single row
 * group, dictionary or log page at the end keeps all the free space before it.
 *
 * The plan walks from the end of the file down, over free runs and over what
 * can be moved, as long as there is room for it further ahead, and stops at the
 * first block that is in use and cannot be moved, or where the file would have
 * no more than a little slack.  It counts only if a sweep could then truncate.
 *
 * When what lies last fits none of the free runs though there is enough free in
 * all, runs are joined: the things between some of them are moved behind, and
 * come back with the next plans as the then last things.  Taken is the cheapest
 * stretch that makes a run long enough or, in a file of few row groups, all of
 * the end of the file.  This counts only if the plan after it would, and if it
 * moves no more than twice what that gains, or little.
 *
 * So there is an end to it: moves go strictly down, and what goes up first goes
 * for the file to be shorter in the end.
 *
 *	row group	is copied byte for byte and keeps its number: key index and
 *				deletes stay as they are, only its manifest row changes
 *	dictionary	likewise, and keeps its id, which is the owner on its pages
 *	log			of a shard with nothing pending: the empty active generation is
 *				closed, the next one starts further ahead, and merged_through
 *				follows, as nothing was in it
 *
 * Nothing changes for a reader: a snapshot that does not see the pass reads the
 * old extents, which sweep gives back when no such snapshot is left.
 *
 * Memory: a run of pages, and about 24 bytes for each thing that may be moved.
 *
 * Locks and crash windows: those of a compaction (compact.c), whose transaction
 * this is a part of.  A log that was moved stays moved if that fails; the empty
 * generation is then merged like any other.
 *
 * IDENTIFICATION
 *	  src/merge/shorten.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/merge.h"

#include "log/append.h"
#include "log/walk.h"
#include "merge/progress.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/metapage.h"

#include "miscadmin.h"
#include "utils/rel.h"

/*
 * The file is not cut closer than to a part more than what is used: to get the
 * last free blocks would take moving everything.
 */
#define SHORTEN_SLACK_FRACTION	16
#define SHORTEN_SLACK_MIN		128

/* Blocks that the new end of a log needs at least. */
#define SHORTEN_TAIL_BLOCKS		8

/* Blocks that may be moved to join runs, however little is gained. */
#define SHORTEN_JOIN_BLOCKS		(32 * 1024 * 1024 / BLCKSZ)

/* Bytes copied at a time. */
#define SHORTEN_PIECE			((Size) STRATA_WRITE_PAGES * STRATA_PAGE_CAPACITY)

typedef enum ObstacleKind
{
	OBSTACLE_GONE,				/* free when the pass has committed */
	OBSTACLE_GROUP,				/* index: in the manifest */
	OBSTACLE_DICTIONARY,		/* index: in the plan's list */
	OBSTACLE_TAIL				/* index: the shard */
} ObstacleKind;

typedef struct Obstacle
{
	BlockNumber block;
	uint32		nblocks;
	ObstacleKind kind;
	int			index;
} Obstacle;

struct StrataShorten
{
	BlockNumber limit;			/* the file is to end there, or somewhat later */
	BlockNumber behind;			/* things go there or behind; 0: ahead of where
								 * they are */
	StrataDictionaryRef *dictionaries;
	int			nobstacles;
	Obstacle   *obstacles;		/* from the end of the file down */
	int			nmoves;
	Obstacle   *moves;
};

/* A stretch of blocks that are free or can be moved. */
typedef struct Stretch
{
	int			first;			/* index in the list of pieces */
	int			last;
	uint32		used;
} Stretch;

static void
add_obstacle(StrataShorten *plan, int *max, ObstacleKind kind, int index,
			 BlockNumber block, uint32 nblocks)
{
	if (plan->nobstacles == *max)
	{
		*max *= 2;
		plan->obstacles = repalloc_huge(plan->obstacles, (Size) *max * sizeof(Obstacle));
	}
	plan->obstacles[plan->nobstacles++] = (Obstacle){block, nblocks, kind, index};
}

/* What a shard with nothing pending keeps for its log. */
static void
add_tail(StrataShorten *plan, int *max, Relation storage, const StrataManifest *manifest,
		 int shard)
{
	StrataShardData data;

	if (!strata_shard_read(storage, shard, &data) || data.tail.owner == 0 ||
		data.active_generation != manifest->shards[shard].merged_through + 1 ||
		strata_log_generations(storage, shard, &manifest->shards[shard], 1) != NIL)
		return;
	add_obstacle(plan, max, OBSTACLE_TAIL, shard, data.tail.block,
				 data.tail_extent.block + data.tail_extent.nblocks - data.tail.block);
	if (data.next_extent.owner != 0)
		add_obstacle(plan, max, OBSTACLE_TAIL, shard, data.next_extent.block,
					 data.next_extent.nblocks);
}

static int
obstacle_cmp(const void *a, const void *b)
{
	const Obstacle *x = a;
	const Obstacle *y = b;

	return x->block > y->block ? -1 : x->block < y->block;
}

/* All that is known to lie in the file, from its end down. */
static void
collect_obstacles(StrataShorten *plan, StrataStore *store, Relation storage,
				  const StrataManifest *manifest, const bool *gone)
{
	int			max = 64;
	int			ndictionaries;

	plan->obstacles = palloc(max * sizeof(Obstacle));
	for (int i = 0; i < manifest->ngroups; i++)
		add_obstacle(plan, &max, gone != NULL && gone[i] ? OBSTACLE_GONE : OBSTACLE_GROUP, i,
					 manifest->groups[i].ref.extent.block,
					 manifest->groups[i].ref.extent.nblocks);
	plan->dictionaries = strata_manifest_dictionaries(store->ftrelid, manifest->incarnation,
													  &ndictionaries);
	for (int i = 0; i < ndictionaries; i++)
		add_obstacle(plan, &max, OBSTACLE_DICTIONARY, i, plan->dictionaries[i].extent.block,
					 plan->dictionaries[i].extent.nblocks);
	for (int shard = 0; shard < manifest->nshards; shard++)
		add_tail(plan, &max, storage, manifest, shard);
	qsort(plan->obstacles, plan->nobstacles, sizeof(Obstacle), obstacle_cmp);
}

/*
 * Take what an obstacle needs off the lowest run that has it ahead of where it
 * is, as will happen when it is moved.  Returns where that ends, 0 for no room.
 */
static BlockNumber
find_room(StrataSpareData *spare, const Obstacle *obstacle)
{
	uint32		nblocks = obstacle->kind == OBSTACLE_TAIL ? SHORTEN_TAIL_BLOCKS : obstacle->nblocks;

	for (uint32 i = 0; i < spare->nruns; i++)
	{
		StrataSpareRun *run = &spare->runs[i];

		if (run->block + nblocks > obstacle->block)
			break;
		if (run->nblocks < nblocks)
			continue;
		run->block += nblocks;
		run->nblocks -= nblocks;
		return run->block;
	}
	return 0;
}

/*
 * Walk down from the end of a file of nblocks; returns where it could be cut,
 * and in *blocked the thing that there is no room for, if that ends the walk.
 * What is to be moved is added to the plan; uses up spare.
 */
static BlockNumber
walk_down(StrataShorten *plan, StrataSpareData *spare, const Obstacle *obstacles,
		  int nobstacles, BlockNumber nblocks, const Obstacle **blocked)
{
	BlockNumber end = nblocks;
	BlockNumber taken = 0;		/* end of the highest place taken */
	bool		tail_moved[STRATA_MAX_SHARDS] = {0};
	int			run = (int) spare->nruns - 1;

	*blocked = NULL;
	plan->nmoves = 0;
	for (int i = 0; end > Max(plan->limit, taken);)
	{
		const Obstacle *obstacle = i < nobstacles ? &obstacles[i] : NULL;

		CHECK_FOR_INTERRUPTS();
		if (run >= 0 && spare->runs[run].block + spare->runs[run].nblocks == end)
		{
			end = spare->runs[run--].block;
			continue;
		}
		if (obstacle == NULL || obstacle->block + obstacle->nblocks != end)
			break;
		if (obstacle->kind != OBSTACLE_GONE &&
			!(obstacle->kind == OBSTACLE_TAIL && tail_moved[obstacle->index]))
		{
			BlockNumber place = find_room(spare, obstacle);

			if (place == 0)
			{
				*blocked = obstacle;
				break;
			}
			taken = Max(taken, place);
			plan->moves[plan->nmoves++] = *obstacle;
			if (obstacle->kind == OBSTACLE_TAIL)
				tail_moved[obstacle->index] = true;
		}
		end = obstacle->block;
		i++;
	}
	return Max(end, taken);
}

/*
 * Find the stretch in which need blocks are free, with least in use between
 * them.  pieces: free runs (OBSTACLE_GONE) and what can be moved, upwards.
 */
static bool
find_stretch(const Obstacle *pieces, int npieces, uint32 need, Stretch *best)
{
	Stretch		now = {0};
	uint64		nfree = 0;

	best->used = PG_UINT32_MAX;
	for (int i = 0; i < npieces; i++)
	{
		if (i > 0 && pieces[i - 1].block + pieces[i - 1].nblocks != pieces[i].block)
		{
			now.first = i;
			now.used = 0;
			nfree = 0;
		}
		now.last = i;
		if (pieces[i].kind == OBSTACLE_GONE)
			nfree += pieces[i].nblocks;
		else
			now.used += pieces[i].nblocks;
		for (; now.first < i; now.first++)
		{
			const Obstacle *first = &pieces[now.first];

			if (first->kind != OBSTACLE_GONE)
				now.used -= first->nblocks;
			else if (nfree - first->nblocks >= need)
				nfree -= first->nblocks;
			else
				break;
		}
		if (nfree >= need && now.used < best->used)
			*best = now;
	}
	return best->used != PG_UINT32_MAX;
}

/*
 * The stretch at the end of the file, from its first free run on that is long
 * for what lies between it and the next.
 */
static bool
last_stretch(const Obstacle *pieces, int npieces, BlockNumber nblocks, Stretch *stretch)
{
	stretch->last = npieces - 1;
	stretch->used = 0;
	if (npieces == 0 || pieces[npieces - 1].block + pieces[npieces - 1].nblocks != nblocks)
		return false;
	for (stretch->first = npieces - 1; stretch->first > 0; stretch->first--)
	{
		const Obstacle *before = &pieces[stretch->first - 1];

		if (before->block + before->nblocks != pieces[stretch->first].block)
			break;
	}
	for (int i = stretch->first; i <= stretch->last;)
	{
		uint64		nfree = pieces[i].kind == OBSTACLE_GONE ? pieces[i++].nblocks : 0;
		uint64		used = 0;

		while (i <= stretch->last && pieces[i].kind != OBSTACLE_GONE)
			used += pieces[i++].nblocks;
		if (stretch->used == 0 && nfree < used / SHORTEN_SLACK_FRACTION)
			stretch->first = i;
		else
			stretch->used += used;
	}
	return stretch->used > 0;
}

/* Free runs and what can be moved behind, upwards. */
static Obstacle *
list_pieces(const StrataShorten *plan, const StrataSpareData *spare, int *npieces)
{
	Obstacle   *pieces = palloc((spare->nruns + (Size) plan->nobstacles) * sizeof(Obstacle));
	uint32		run = 0;

	*npieces = 0;
	for (int i = plan->nobstacles; i >= 0; i--)
	{
		const Obstacle *obstacle = i > 0 ? &plan->obstacles[i - 1] : NULL;

		for (; run < spare->nruns &&
			 (obstacle == NULL || spare->runs[run].block < obstacle->block);
			 run++)
			pieces[(*npieces)++] = (Obstacle){spare->runs[run].block, spare->runs[run].nblocks,
											   OBSTACLE_GONE, 0};
		if (obstacle != NULL && (obstacle->kind == OBSTACLE_GROUP ||
								 obstacle->kind == OBSTACLE_DICTIONARY))
			pieces[(*npieces)++] = *obstacle;
	}
	return pieces;
}

/*
 * Plan to move behind what is in use in a stretch, if the file can be shortened
 * by wanted blocks after that.
 */
static bool
plan_joining(StrataShorten *plan, const StrataSpareData *spare, BlockNumber nblocks,
			 BlockNumber wanted, const Obstacle *pieces, const Stretch *stretch)
{
	int			last = stretch->last;
	BlockNumber first = pieces[stretch->first].block;
	BlockNumber end;
	Obstacle   *later = palloc((Size) plan->nobstacles * sizeof(Obstacle));
	StrataSpareData *joined = palloc0(STRATA_PAGE_CAPACITY);
	int			nlater = 0;
	BlockNumber cut = nblocks + stretch->used;
	const Obstacle *blocked;

	/* The end of the file is where things go. */
	while (last > stretch->first && pieces[last].kind == OBSTACLE_GONE &&
		   pieces[last].block + pieces[last].nblocks == nblocks)
		last--;
	end = pieces[last].block + pieces[last].nblocks;

	/* How things will lie then, at worst. */
	for (uint32 i = 0; i < spare->nruns; i++)
	{
		if (spare->runs[i].block == first)
			joined->runs[joined->nruns++] = (StrataSpareRun){first, end - first};
		else if (spare->runs[i].block < first || spare->runs[i].block >= end)
			joined->runs[joined->nruns++] = spare->runs[i];
	}
	for (int i = last; i >= stretch->first; i--)
	{
		if (pieces[i].kind == OBSTACLE_GONE)
			continue;
		cut -= pieces[i].nblocks;
		later[nlater] = pieces[i];
		later[nlater++].block = cut;
	}
	for (int i = 0; i < plan->nobstacles; i++)
	{
		if (plan->obstacles[i].block < first || plan->obstacles[i].block >= end)
			later[nlater++] = plan->obstacles[i];
	}
	cut = walk_down(plan, joined, later, nlater, nblocks + stretch->used, &blocked);
	if (cut > nblocks || nblocks - cut < wanted ||
		stretch->used > Max(2 * (nblocks - cut), SHORTEN_JOIN_BLOCKS))
		return false;

	/*
	 * The lowest first: should only a part be moved, it comes back further ahead
	 * than it was.
	 */
	plan->behind = end;
	plan->nmoves = 0;
	for (int i = stretch->first; i <= last; i++)
	{
		if (pieces[i].kind != OBSTACLE_GONE)
			plan->moves[plan->nmoves++] = pieces[i];
	}
	return true;
}

/* Plan to move logs ahead, which is cheap, so that they stand between no runs. */
static bool
plan_tails(StrataShorten *plan, const StrataSpareData *spare)
{
	StrataSpareData *copy = palloc(STRATA_PAGE_CAPACITY);
	bool		planned[STRATA_MAX_SHARDS] = {0};

	memcpy(copy, spare, STRATA_PAGE_CAPACITY);
	plan->nmoves = 0;
	for (int i = 0; i < plan->nobstacles; i++)
	{
		const Obstacle *obstacle = &plan->obstacles[i];

		if (obstacle->kind != OBSTACLE_TAIL || planned[obstacle->index] ||
			find_room(copy, obstacle) == 0)
			continue;
		planned[obstacle->index] = true;
		plan->moves[plan->nmoves++] = *obstacle;
	}
	return plan->nmoves > 0;
}

StrataShorten *
strata_shorten_plan(StrataStore *store, Relation storage, const StrataManifest *manifest,
					const bool *gone)
{
	StrataSpareData *spare = strata_spare_read(storage);
	BlockNumber nblocks = RelationGetNumberOfBlocks(storage);
	BlockNumber wanted = strata_sweep_tail_wanted(nblocks);
	BlockNumber used = nblocks;
	StrataSpareData *copy;
	StrataShorten *plan;
	const Obstacle *blocked;
	Obstacle   *pieces;
	int			npieces;
	Stretch		stretch;

	if (spare == NULL || !manifest->merged)
		return NULL;
	for (uint32 i = 0; i < spare->nruns; i++)
		used -= Min(used, spare->runs[i].nblocks);
	for (int i = 0; gone != NULL && i < manifest->ngroups; i++)
	{
		if (gone[i])
			used -= Min(used, manifest->groups[i].ref.extent.nblocks);
	}

	plan = palloc0(sizeof(StrataShorten));
	plan->limit = used + Max(used / SHORTEN_SLACK_FRACTION, SHORTEN_SLACK_MIN);
	if (plan->limit > nblocks || nblocks - plan->limit < wanted)
		return NULL;
	collect_obstacles(plan, store, storage, manifest, gone);
	plan->moves = palloc(Max(plan->nobstacles, 1) * sizeof(Obstacle));

	copy = palloc(STRATA_PAGE_CAPACITY);
	memcpy(copy, spare, STRATA_PAGE_CAPACITY);
	if (nblocks - walk_down(plan, copy, plan->obstacles, plan->nobstacles, nblocks, &blocked) >= wanted)
		return plan;
	if (blocked == NULL)
		return NULL;
	if (plan_tails(plan, spare))
		return plan;
	pieces = list_pieces(plan, spare, &npieces);
	if (find_stretch(pieces, npieces, blocked->nblocks, &stretch) &&
		plan_joining(plan, spare, nblocks, wanted, pieces, &stretch))
		return plan;
	if (last_stretch(pieces, npieces, nblocks, &stretch) &&
		plan_joining(plan, spare, nblocks, wanted, pieces, &stretch))
		return plan;
	return NULL;
}

int
strata_shorten_moves(const StrataShorten *plan)
{
	return plan->nmoves;
}

/* Copy the bytes of an extent to one that was just taken. */
static void
copy_extent(Relation storage, const StrataExtent *from, uint64 length, const StrataExtent *to,
			const char *object, StrataPassTick tick, void *arg)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	StrataExtentWriter *writer = strata_extent_write_begin(storage, to);
	char	   *piece = palloc(SHORTEN_PIECE);

	for (uint64 done = 0; done < length;)
	{
		Size		part = Min(length - done, SHORTEN_PIECE);

		tick(arg);
		strata_extent_read(storage, from, done, part, piece, strategy, object);
		strata_extent_write(writer, piece, part);
		done += part;
	}
	strata_extent_write_end(writer);
	pfree(piece);
	FreeAccessStrategy(strategy);
	STRATA_PAUSE("shorten-copied");
}

/* Take the place for what lies in an extent. */
static bool
take_place(StrataShorten *plan, Relation storage, const StrataExtent *from, StrataExtent *to)
{
	if (plan->behind == 0)
		return strata_extent_take_before(storage, from->nblocks, from->block, to);
	strata_extent_take_behind(storage, from->nblocks, plan->behind, to);
	return true;
}

static bool
move_group(StrataShorten *plan, StrataPassEnv *env, StrataRowGroup *group,
		   StrataPassRecord *record, StrataPassTick tick, void *arg)
{
	StrataGroupRef ref = group->ref;
	char		object[32];

	if (!take_place(plan, env->storage, &group->ref.extent, &ref.extent))
		return false;
	snprintf(object, sizeof(object), "row group %u", group->number);
	copy_extent(env->storage, &group->ref.extent, ref.length, &ref.extent, object, tick, arg);
	strata_manifest_remove_group(env->store, group->number, record);
	strata_manifest_add_group(env->store, env->manifest->incarnation, group->number, &ref,
							  group->zones, record);
	return true;
}

static bool
move_dictionary(StrataShorten *plan, StrataPassEnv *env, const StrataDictionaryRef *from,
				StrataPassTick tick, void *arg)
{
	StrataDictionaryRef to = *from;
	char		object[48];

	if (!take_place(plan, env->storage, &from->extent, &to.extent))
		return false;
	to.extent.owner = from->extent.owner;
	snprintf(object, sizeof(object), "dictionary " UINT64_FORMAT, from->extent.owner);
	copy_extent(env->storage, &from->extent, to.length, &to.extent, object, tick, arg);
	strata_manifest_move_dictionary(env->store, env->manifest->incarnation, &to);
	return true;
}

static bool
move_tail(StrataPassEnv *env, int shard, BlockNumber block)
{
	StrataShardState state = env->manifest->shards[shard];
	uint32		generation;

	if (!strata_log_move_tail(env->storage, shard, block, &generation, &state.first_pending))
		return false;
	STRATA_PAUSE("shorten-tail-moved");

	/* What was closed is empty, and all before it is merged. */
	if (generation == state.merged_through + 1)
	{
		state.merged_through = generation;
		strata_manifest_set_shard(env->store, shard, &state, env->manifest->incarnation);
	}
	return true;
}

void
strata_shorten_move(StrataShorten *plan, StrataPassEnv *env, int64 max_bytes,
					StrataPassRecord *record, StrataPassTick tick, void *arg,
					StrataCompactResult *result)
{
	int64		bytes = 0;

	for (int i = 0; i < plan->nmoves; i++)
	{
		const Obstacle *obstacle = &plan->moves[i];
		StrataRowGroup *group = obstacle->kind == OBSTACLE_GROUP ?
									&env->manifest->groups[obstacle->index] :
									NULL;
		int64		length = group != NULL ? (int64) group->ref.length : 0;
		bool		moved;

		tick(arg);
		if (i > 0 && max_bytes > 0 && bytes + length > max_bytes)
		{
			for (; i < plan->nmoves; i++)
				result->row_groups_left += plan->moves[i].kind == OBSTACLE_GROUP;
			break;
		}
		if (obstacle->kind == OBSTACLE_GROUP)
			moved = move_group(plan, env, group, record, tick, arg);
		else if (obstacle->kind == OBSTACLE_DICTIONARY)
			moved = move_dictionary(plan, env, &plan->dictionaries[obstacle->index], tick, arg);
		else
			moved = move_tail(env, obstacle->index, obstacle->block);

		/* Others were faster with the space there: the rest would not help. */
		if (!moved)
			break;
		result->blocks_gone += obstacle->nblocks;
		if (group == NULL)
			continue;
		bytes += length;
		result->row_groups_read++;
		result->row_groups_written++;
		result->rows_moved += group->ref.rows - group->ndeleted;
		result->bytes_read += length;
		result->bytes_written += length;
		strata_progress_done(1, group->ref.length);
	}
}
