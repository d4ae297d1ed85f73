/*-------------------------------------------------------------------------
 *
 * memtable.c
 *	  Rows of one command on their way into the log.
 *
 * Translates the rows that a command puts one by one into few entries.  A
 * memtable is known by storage relation, subtransaction and command id; all
 * ModifyTables of the command share it, so that they see each other's rows in
 * put order.
 *
 * What is flushed carries the full xid and the command id that the memtable
 * was made for, whoever causes the flush: a trigger or function that reads the
 * table does so in a command, maybe a subtransaction, of its own.  Locks and
 * pins taken meanwhile belong to the statement's resource owner, since a key
 * lock has to live as long as the row that it was taken for.  A flush that
 * fails may have appended some of its rows, and if a subtransaction swallows
 * the error, their transaction could commit half a statement; so the memtable
 * keeps the error and raises it again at the statement's next step.
 *
 * Memory: a memtable is flushed when it has row_group_bytes of raw data over
 * all shards, row_group_rows rows in one shard, or has grown much larger than
 * its data; all memtables of the backend together (one for each partition that
 * a command loads) are kept under a limit by flushing the largest.
 *
 * A crash at any point leaves entries of a transaction that never committed,
 * and extents that such entries name.
 *
 * IDENTIFICATION
 *	  src/log/memtable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/memtable_internal.h"

#include "access/xact.h"
#include "log/conflict_check.h"
#include "miscadmin.h"
#include "pause.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Arrays and allocation overhead may take this much more than the raw data. */
#define MEMORY_FACTOR		4

/* All memtables of a backend together, unless row groups are larger. */
#define TOTAL_MEMORY_MAX	((Size) 64 * 1024 * 1024)

static StrataMemtable *memtables = NULL;
static Size total_memory = 0;

static void raise_kept_error(StrataMemtable *memtable) pg_attribute_noreturn();
static void drop_memtable(StrataMemtable *memtable);
static void keep_row(StrataMemtable *memtable, StrataMemShard *shard, StrataMemRow *row,
					 StrataMemRow *old, const Datum *keyvalues);
static void flush_if_full(StrataMemtable *memtable, const StrataMemShard *shard);
static void flush_memtable(StrataMemtable *memtable);

/* ----------------------------------------------------------------
 *		Life of a memtable
 * ----------------------------------------------------------------
 */

StrataMemtable *
strata_memtable_begin(StrataStore *store, Relation storage, CommandId cid)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	StrataMemtable *memtable;
	MemoryContext mcxt;
	MemoryContext oldcxt;
	int			natts = store->desc->natts;

	/* What earlier commands put comes before what this one will put. */
	strata_memtable_flush(RelationGetRelid(storage), cid);

	for (memtable = memtables; memtable != NULL; memtable = memtable->next)
	{
		if (memtable->storage == RelationGetRelid(storage) &&
			memtable->cid == cid && memtable->subid == subid)
		{
			memtable->refcount++;
			return memtable;
		}
	}

	mcxt = AllocSetContextCreate(TopTransactionContext, "strata memtable",
								 ALLOCSET_DEFAULT_SIZES);
	oldcxt = MemoryContextSwitchTo(mcxt);
	memtable = palloc0(sizeof(StrataMemtable));
	memtable->storage = RelationGetRelid(storage);
	memtable->subid = subid;
	memtable->cid = cid;
	memtable->owner = CurrentResourceOwner;
	memtable->userid = GetUserId();
	memtable->refcount = 1;
	memtable->mcxt = mcxt;
	memtable->row_mcxt = GenerationContextCreate(mcxt, "strata memtable rows",
												 ALLOCSET_DEFAULT_MINSIZE,
												 ALLOCSET_DEFAULT_INITSIZE,
												 1024 * 1024);
	memtable->temp_mcxt = AllocSetContextCreate(mcxt, "strata memtable work",
												ALLOCSET_DEFAULT_SIZES);
	memtable->work_values = palloc(natts * sizeof(Datum));
	memtable->work_sizes = palloc(natts * sizeof(Size));

	/* a reference of its own: it may outlive the ModifyTable that made it */
	memtable->store = strata_store_open(store->ftrelid);
	memtable->relname = get_rel_name(store->ftrelid);
	MemoryContextSwitchTo(oldcxt);

	memtable->next = memtables;
	memtables = memtable;
	return memtable;
}

void
strata_memtable_end(StrataMemtable *memtable)
{
	if (memtable->error != NULL)
		raise_kept_error(memtable);

	Assert(memtable->refcount > 0);
	if (memtable->refcount == 1)
	{
		flush_memtable(memtable);
		drop_memtable(memtable);
	}
	else
		memtable->refcount--;
}

void
strata_memtable_finish(StrataMemtable *memtable)
{
	flush_memtable(memtable);
}

void
strata_memtable_flush(Oid storage, CommandId cid)
{
	for (StrataMemtable *memtable = memtables; memtable != NULL; memtable = memtable->next)
	{
		if (memtable->storage == storage && memtable->cid != cid)
			flush_memtable(memtable);
	}
}

void
strata_memtable_flush_all(void)
{
	for (StrataMemtable *memtable = memtables; memtable != NULL; memtable = memtable->next)
		flush_memtable(memtable);
}

/* Take it off the list and free it.  Throws nothing. */
static void
drop_memtable(StrataMemtable *memtable)
{
	StrataMemtable **link = &memtables;

	while (*link != memtable)
		link = &(*link)->next;
	*link = memtable->next;
	total_memory -= memtable->memory;

	/* the context's reset callback closes the store */
	MemoryContextDelete(memtable->mcxt);
}

static void
raise_kept_error(StrataMemtable *memtable)
{
	ReThrowError(memtable->error);
}

/* ----------------------------------------------------------------
 *		Putting
 * ----------------------------------------------------------------
 */

bool
strata_memtable_put(StrataMemtable *memtable, StrataOnDuplicate mode,
					Datum *values, bool *isnull)
{
	StrataStore *store = memtable->store;
	Datum	   *keyvalues = memtable->work_key;
	StrataMemShard *shard;
	StrataMemRow *old = NULL;
	StrataMemRow *row;
	uint32		hash = 0;
	bool		unique = false;
	bool		judged = false;
	StrataPosition seen = {0};

	if (memtable->error != NULL)
		raise_kept_error(memtable);

	if (store->key.natts > 0)
	{
		strata_key_extract(&store->key, values, isnull, keyvalues,
						   memtable->relname, store->desc);
		hash = strata_key_hash(&store->key, keyvalues);
		shard = &memtable->shards[strata_key_shard(hash, store->nshards)];
		old = strata_memrow_find(memtable, shard, hash, keyvalues);

		if (mode == STRATA_ON_DUPLICATE_ERROR)
		{
			if (old != NULL && !old->tombstone)
				strata_memtable_raise_duplicate(memtable, NULL, keyvalues);
			/* what this command deleted itself is no duplicate */
			unique = (old == NULL);
			if (unique && memtable->njudged < STRATA_MAX_JUDGED_AT_ONCE)
				judged = strata_memtable_judge_key(memtable, hash, keyvalues, &seen);
		}
		else if (mode == STRATA_ON_DUPLICATE_IGNORE)
		{
			if (old != NULL && !old->tombstone)
				return false;
			if (old == NULL)
			{
				if (!strata_memtable_lock_key(memtable, hash, keyvalues, true))
					return false;

				/*
				 * Large inserts lock no keys; one may have put the key since
				 * we looked.
				 */
				unique = true;
			}
		}
	}
	else
		shard = &memtable->shards[memtable->keyless_shard];

	if (!FullTransactionIdIsValid(memtable->fxid))
	{
		memtable->fxid = GetCurrentFullTransactionId();
		if (store->key.natts == 0)
		{
			/* spread transactions, not rows: one entry a flush */
			memtable->keyless_shard = (int) (U64FromFullTransactionId(memtable->fxid) %
											 store->nshards);
			shard = &memtable->shards[memtable->keyless_shard];
		}
	}

	row = strata_memrow_copy(memtable, store->desc, values, isnull);
	row->hash = hash;
	row->unique = unique;
	row->skips = unique && mode == STRATA_ON_DUPLICATE_IGNORE;
	row->judged = judged;
	row->seen = seen;
	keep_row(memtable, shard, row, old, keyvalues);
	return true;
}

/* Put row or tombstone, copied by strata_memrow_copy, in the place of one that was read. */
static void
put_change(StrataMemtable *memtable, StrataMemRow *row, const Datum *keyvalues,
		   StrataManifest *manifest, const StrataPosition *seen)
{
	StrataStore *store = memtable->store;
	uint32		hash = strata_key_hash(&store->key, keyvalues);
	StrataMemShard *shard = &memtable->shards[strata_key_shard(hash, store->nshards)];
	StrataMemRow *old = strata_memrow_find(memtable, shard, hash, keyvalues);

	if (!FullTransactionIdIsValid(memtable->fxid))
		memtable->fxid = GetCurrentFullTransactionId();
	if (memtable->manifest == NULL)
		strata_memtable_pin_manifest(memtable, manifest);

	row->hash = hash;
	row->changes = true;
	row->seen = *seen;
	keep_row(memtable, shard, row, old, keyvalues);
}

void
strata_memtable_put_version(StrataMemtable *memtable, Datum *values, bool *isnull,
							StrataManifest *manifest, const StrataPosition *seen)
{
	StrataStore *store = memtable->store;

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	strata_key_extract(&store->key, values, isnull, memtable->work_key,
					   memtable->relname, store->desc);
	put_change(memtable, strata_memrow_copy(memtable, store->desc, values, isnull), memtable->work_key,
			   manifest, seen);
}

/* A tombstone of this key. */
static StrataMemRow *
copy_key(StrataMemtable *memtable, const Datum *keyvalues)
{
	bool		isnull[INDEX_MAX_KEYS] = {0};
	StrataMemRow *row = strata_memrow_copy(memtable, memtable->store->key.desc, keyvalues, isnull);

	row->tombstone = true;
	return row;
}

void
strata_memtable_put_tombstone(StrataMemtable *memtable, const Datum *keyvalues,
							  StrataManifest *manifest, const StrataPosition *seen, bool moved)
{
	StrataMemRow *row;

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	row = copy_key(memtable, keyvalues);
	row->moved = moved;
	put_change(memtable, row, keyvalues, manifest, seen);
}

void
strata_memtable_put_rekeyed(StrataMemtable *memtable, const Datum *oldkey,
							Datum *values, bool *isnull,
							StrataManifest *manifest, const StrataPosition *seen)
{
	StrataStore *store = memtable->store;
	Datum	   *newkey = memtable->work_key;
	StrataMemRow *row;

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	strata_key_extract(&store->key, values, isnull, newkey, memtable->relname, store->desc);
	row = copy_key(memtable, oldkey);
	row->next = copy_key(memtable, newkey);
	row->raw += row->next->raw;
	row->memory += row->next->memory;
	put_change(memtable, row, oldkey, manifest, seen);
	(void) strata_memtable_put(memtable, STRATA_ON_DUPLICATE_ERROR, values, isnull);
}

bool
strata_memtable_has_key(StrataMemtable *memtable, uint32 hash, const Datum *keyvalues)
{
	StrataMemShard *shard = &memtable->shards[strata_key_shard(hash, memtable->store->nshards)];

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	return strata_memrow_find(memtable, shard, hash, keyvalues) != NULL;
}

/* Put row in the place of old, or at the end; then make room if need be. */
static void
keep_row(StrataMemtable *memtable, StrataMemShard *shard, StrataMemRow *row,
		 StrataMemRow *old, const Datum *keyvalues)
{
	Size		before = memtable->memory;

	strata_memrow_store(memtable, shard, row, old, keyvalues);
	total_memory += memtable->memory - before;
	flush_if_full(memtable, shard);
}

static void
flush_if_full(StrataMemtable *memtable, const StrataMemShard *shard)
{
	StrataOptions *options = memtable->store->options;
	Size		group_bytes = (Size) options->row_group_bytes;
	uint32		group_rows = Min(options->row_group_rows, STRATA_MAX_GROUP_ROWS);

	if (memtable->raw >= group_bytes || shard->nrows >= group_rows ||
		memtable->memory >= Max(MEMORY_FACTOR * group_bytes, TOTAL_MEMORY_MAX / 4))
		flush_memtable(memtable);

	while (total_memory > Max(TOTAL_MEMORY_MAX, MEMORY_FACTOR * group_bytes))
	{
		StrataMemtable *largest = memtable;

		for (StrataMemtable *other = memtables; other != NULL; other = other->next)
		{
			if (other->memory > largest->memory)
				largest = other;
		}
		if (largest->nrows == 0)
			break;
		flush_memtable(largest);
	}
}

/* Append everything and empty the memtable; its command may go on putting. */
static void
flush_memtable(StrataMemtable *memtable)
{
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext oldcxt = CurrentMemoryContext;

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	strata_memtable_end_looks(memtable);
	if (memtable->nrows == 0)
		return;
	if (memtable->flushing)
		elog(ERROR, "memtable of relation %u is being flushed already", memtable->storage);

	PG_TRY();
	{
		memtable->flushing = true;
		if (memtable->owner != NULL)
			CurrentResourceOwner = memtable->owner;
		MemoryContextSwitchTo(memtable->temp_mcxt);
		strata_memtable_append(memtable);
	}
	PG_CATCH();
	{
		CurrentResourceOwner = oldowner;
		MemoryContextSwitchTo(memtable->mcxt);
		memtable->error = CopyErrorData();
		memtable->flushing = false;
		MemoryContextSwitchTo(oldcxt);
		PG_RE_THROW();
	}
	PG_END_TRY();

	CurrentResourceOwner = oldowner;
	MemoryContextSwitchTo(oldcxt);

	MemoryContextReset(memtable->temp_mcxt);
	memtable->nkeys_flushed += memtable->nrows;
	total_memory -= memtable->memory;
	strata_memrow_forget_all(memtable);
	memtable->flushing = false;
}

/* ----------------------------------------------------------------
 *		Transaction ends
 * ----------------------------------------------------------------
 */

/*
 * Every statement flushes its memtables when it ends, so what is left at the
 * end of a transaction belongs to statements that were not ended in order.
 */
static void
memtable_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			while (memtables != NULL)
			{
				memtables->owner = NULL;
				flush_memtable(memtables);
				drop_memtable(memtables);
			}
			break;
		case XACT_EVENT_ABORT:
			while (memtables != NULL)
				drop_memtable(memtables);
			strata_key_locks_reset();
			break;
		case XACT_EVENT_COMMIT:
			/* others see what a writer committed, but his locks are still there */
			if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
				STRATA_PAUSE("log-commit-over");
			/* FALLTHROUGH */
		case XACT_EVENT_PREPARE:
			strata_key_locks_reset();
			break;
		default:
			break;
	}
}

/* Throws nothing: a subtransaction that aborts must get to its end. */
static void
memtable_subxact_callback(SubXactEvent event, SubTransactionId subid,
						  SubTransactionId parent_subid, void *arg)
{
	StrataMemtable *memtable = memtables;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;

	while (memtable != NULL)
	{
		StrataMemtable *next = memtable->next;

		if (memtable->subid == subid)
		{
			if (event == SUBXACT_EVENT_ABORT_SUB)
				drop_memtable(memtable);
			else
			{
				memtable->subid = parent_subid;
				memtable->owner = NULL;
			}
		}
		memtable = next;
	}
}

void
strata_memtable_init(void)
{
	RegisterXactCallback(memtable_xact_callback, NULL);
	RegisterSubXactCallback(memtable_subxact_callback, NULL);
}
