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
 * Rows are kept as arrays of values and nulls, small values behind the arrays
 * in the same allocation, large ones in allocations of their own: no row is
 * ever one allocation.  A key is held once.
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

#include "access/detoast.h"
#include "access/xact.h"
#include "log/conflict_check.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Values up to this size are stored behind their row's arrays. */
#define INLINE_VALUE_MAX	8192

/* Rows of a shard among which a key is searched without a hash table. */
#define LINEAR_SEARCH_MAX	8

/* Arrays and allocation overhead may take this much more than the raw data. */
#define MEMORY_FACTOR		4

/* All memtables of a backend together, unless row groups are larger. */
#define TOTAL_MEMORY_MAX	((Size) 64 * 1024 * 1024)

typedef struct KeyHashEntry
{
	StrataMemRow *row;
	uint32		hash;
	char		status;
} KeyHashEntry;

static StrataMemtable *memtables = NULL;
static Size total_memory = 0;

static bool key_equals_row(StrataMemtable *memtable, const StrataMemRow *row,
						   const StrataMemRow *looked_for);

#define SH_PREFIX		keyhash
#define SH_ELEMENT_TYPE	KeyHashEntry
#define SH_KEY_TYPE		StrataMemRow *
#define SH_KEY			row
#define SH_SCOPE		static inline
#define SH_HASH_KEY(tb, key)	((key)->hash)
#define SH_EQUAL(tb, a, b)		key_equals_row((StrataMemtable *) (tb)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a)		((a)->hash)
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static void raise_kept_error(StrataMemtable *memtable) pg_attribute_noreturn();
static void drop_memtable(StrataMemtable *memtable);
static bool put_row(StrataMemtable *memtable, StrataOnDuplicate mode, Datum *values, bool *isnull,
					uint16 marks);
static StrataMemRow *find_row(StrataMemtable *memtable, StrataMemShard *shard, uint32 hash,
							  const Datum *keyvalues);
static StrataMemRow *copy_row(StrataMemtable *memtable, TupleDesc desc, const Datum *values,
							  const bool *isnull);
static void free_row(StrataMemtable *memtable, StrataMemRow *row);
static void store_row(StrataMemtable *memtable, StrataMemShard *shard, StrataMemRow *row,
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
strata_memtable_flush(Oid storage, CommandId cid)
{
	for (StrataMemtable *memtable = memtables; memtable != NULL; memtable = memtable->next)
	{
		if (memtable->storage == storage && memtable->cid != cid)
			flush_memtable(memtable);
	}
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
	return put_row(memtable, mode, values, isnull, 0);
}

static bool
put_row(StrataMemtable *memtable, StrataOnDuplicate mode,
		Datum *values, bool *isnull, uint16 marks)
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
		old = find_row(memtable, shard, hash, keyvalues);

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
				if (!strata_memtable_lock_if_free(memtable, hash, keyvalues))
					return false;

				/*
				 * Bulk loads of a table with on_duplicate 'error' lock no
				 * keys; one may have put the key since we looked.
				 */
				unique = store->options->on_duplicate == STRATA_ON_DUPLICATE_ERROR;
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

	row = copy_row(memtable, store->desc, values, isnull);
	row->hash = hash;
	row->unique = unique;
	row->judged = judged;
	row->seen = seen;
	row->marks = marks;
	if (old != NULL && old->tombstone)
		row->marks |= STRATA_ROW_BORN;
	store_row(memtable, shard, row, old, keyvalues);
	flush_if_full(memtable, shard);
	return true;
}

/* Put row or tombstone in the place of one that was read. */
static void
put_change(StrataMemtable *memtable, TupleDesc desc, const Datum *values, const bool *isnull,
		   const Datum *keyvalues, bool tombstone, uint16 marks,
		   StrataManifest *manifest, const StrataPosition *seen)
{
	StrataStore *store = memtable->store;
	uint32		hash = strata_key_hash(&store->key, keyvalues);
	StrataMemShard *shard = &memtable->shards[strata_key_shard(hash, store->nshards)];
	StrataMemRow *old;
	StrataMemRow *row;

	if (memtable->error != NULL)
		raise_kept_error(memtable);

	old = find_row(memtable, shard, hash, keyvalues);
	if (!FullTransactionIdIsValid(memtable->fxid))
		memtable->fxid = GetCurrentFullTransactionId();
	if (memtable->manifest == NULL)
		strata_memtable_pin_manifest(memtable, manifest);

	row = copy_row(memtable, desc, values, isnull);
	row->hash = hash;
	row->tombstone = tombstone;
	row->marks = marks;
	row->changes = true;
	row->seen = *seen;
	store_row(memtable, shard, row, old, keyvalues);
	flush_if_full(memtable, shard);
}

void
strata_memtable_put_version(StrataMemtable *memtable, Datum *values, bool *isnull,
							StrataManifest *manifest, const StrataPosition *seen)
{
	StrataStore *store = memtable->store;

	strata_key_extract(&store->key, values, isnull, memtable->work_key,
					   memtable->relname, store->desc);
	put_change(memtable, store->desc, values, isnull, memtable->work_key, false, 0, manifest, seen);
}

void
strata_memtable_put_tombstone(StrataMemtable *memtable, const Datum *keyvalues,
							  StrataManifest *manifest, const StrataPosition *seen, bool moved)
{
	bool		isnull[INDEX_MAX_KEYS] = {0};

	put_change(memtable, memtable->store->key.desc, keyvalues, isnull, keyvalues, true,
			   moved ? STRATA_ROW_MOVED : 0, manifest, seen);
}

void
strata_memtable_put_rekeyed(StrataMemtable *memtable, const Datum *oldkey,
							Datum *values, bool *isnull,
							StrataManifest *manifest, const StrataPosition *seen)
{
	bool		no_nulls[INDEX_MAX_KEYS] = {0};

	put_change(memtable, memtable->store->key.desc, oldkey, no_nulls, oldkey, true,
			   STRATA_ROW_REKEYED, manifest, seen);
	(void) put_row(memtable, STRATA_ON_DUPLICATE_ERROR, values, isnull, STRATA_ROW_REKEYED);
}

bool
strata_memtable_has_key(StrataMemtable *memtable, uint32 hash, const Datum *keyvalues)
{
	StrataMemShard *shard = &memtable->shards[strata_key_shard(hash, memtable->store->nshards)];

	if (memtable->error != NULL)
		raise_kept_error(memtable);
	return find_row(memtable, shard, hash, keyvalues) != NULL;
}

/* The key being looked for stands in probe_key; it is no row yet. */
static bool
key_equals_row(StrataMemtable *memtable, const StrataMemRow *row, const StrataMemRow *looked_for)
{
	Datum		keyvalues[INDEX_MAX_KEYS];

	strata_memrow_key(memtable, row, keyvalues);
	return strata_key_equal(&memtable->store->key, keyvalues, memtable->probe_key);
}

static StrataMemRow *
find_row(StrataMemtable *memtable, StrataMemShard *shard, uint32 hash, const Datum *keyvalues)
{
	memtable->probe_key = keyvalues;
	if (memtable->hash != NULL)
	{
		KeyHashEntry *entry = keyhash_lookup_hash(memtable->hash, NULL, hash);

		return entry != NULL ? entry->row : NULL;
	}

	for (uint32 i = 0; i < shard->nrows; i++)
	{
		StrataMemRow *row = shard->rows[i];

		if (row->hash == hash && key_equals_row(memtable, row, NULL))
			return row;
	}
	return NULL;
}

/*
 * Copy a row into the memtable, everything detoasted: a stored value must not
 * depend on another relation's toast table, nor on memory of an expanded
 * object.  Short headers stay.
 */
static StrataMemRow *
copy_row(StrataMemtable *memtable, TupleDesc desc, const Datum *values, const bool *isnull)
{
	int			natts = desc->natts;
	Datum	   *work = memtable->work_values;
	Size	   *sizes = memtable->work_sizes;
	Size		header_size = MAXALIGN(offsetof(StrataMemRow, values) +
									   natts * (sizeof(Datum) + sizeof(bool)));
	Size		size = header_size;
	Size		memory = 0;
	Size		raw = 0;
	bool		detoasted = false;
	StrataMemRow *row;
	char	   *data;

	/* How large is it?  Large values are copied, toasted ones fetched. */
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);
		Size		len;

		sizes[i] = 0;
		if (isnull[i] || attr->attisdropped)
			continue;
		work[i] = values[i];
		if (attr->attbyval)
		{
			raw += attr->attlen;
			continue;
		}

		if (attr->attlen == -1)
		{
			struct varlena *value = (struct varlena *) DatumGetPointer(values[i]);

			if (VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value))
			{
				MemoryContext oldcxt;
				bool		large = toast_raw_datum_size(values[i]) > INLINE_VALUE_MAX;

				oldcxt = MemoryContextSwitchTo(large ? memtable->row_mcxt : memtable->temp_mcxt);
				value = detoast_attr(value);
				MemoryContextSwitchTo(oldcxt);
				work[i] = PointerGetDatum(value);
				len = VARSIZE_ANY(value);
				raw += len;
				if (large)
					memory += GetMemoryChunkSpace(value);
				else
				{
					detoasted = true;
					sizes[i] = len;
					size += MAXALIGN(len);
				}
				continue;
			}
			len = VARSIZE_ANY(value);
		}
		else if (attr->attlen == -2)
			len = strlen(DatumGetCString(values[i])) + 1;
		else
			len = attr->attlen;

		raw += len;
		if (len > INLINE_VALUE_MAX)
		{
			char	   *copy = MemoryContextAlloc(memtable->row_mcxt, len);

			memcpy(copy, DatumGetPointer(values[i]), len);
			work[i] = PointerGetDatum(copy);
			memory += GetMemoryChunkSpace(copy);
		}
		else
		{
			sizes[i] = len;
			size += MAXALIGN(len);
		}
	}

	row = MemoryContextAlloc(memtable->row_mcxt, size);
	memset(row, 0, offsetof(StrataMemRow, values));
	row->nvalues = natts;
	row->raw = raw;
	row->memory = memory + GetMemoryChunkSpace(row);
	row->inline_size = size;
	row->isnull = (bool *) &row->values[natts];
	data = (char *) row + header_size;
	for (int i = 0; i < natts; i++)
	{
		row->isnull[i] = isnull[i] || TupleDescAttr(desc, i)->attisdropped;
		if (row->isnull[i])
			row->values[i] = (Datum) 0;
		else if (sizes[i] == 0)
			row->values[i] = work[i];
		else
		{
			memcpy(data, DatumGetPointer(work[i]), sizes[i]);
			row->values[i] = PointerGetDatum(data);
			data += MAXALIGN(sizes[i]);
		}
	}

	if (detoasted)
		MemoryContextReset(memtable->temp_mcxt);
	return row;
}

static void
free_row(StrataMemtable *memtable, StrataMemRow *row)
{
	TupleDesc	desc = row->tombstone ? memtable->store->key.desc : memtable->store->desc;

	for (int i = 0; i < row->nvalues; i++)
	{
		char	   *value = DatumGetPointer(row->values[i]);

		if (!row->isnull[i] && !TupleDescAttr(desc, i)->attbyval &&
			(value < (char *) row || value >= (char *) row + row->inline_size))
			pfree(value);
	}
	pfree(row);
}

/* Put row in the place of old, or at the end. */
static void
store_row(StrataMemtable *memtable, StrataMemShard *shard, StrataMemRow *row,
		  StrataMemRow *old, const Datum *keyvalues)
{
	if (old != NULL)
	{
		/* what the first of them took the place of was looked at then */
		if (old->changes)
		{
			row->changes = true;
			row->seen = old->seen;
		}
		/* so is what it took the place of */
		if (!row->tombstone && !old->tombstone)
			row->marks |= old->marks;
		if (memtable->hash != NULL)
		{
			KeyHashEntry *entry;

			memtable->probe_key = keyvalues;
			entry = keyhash_lookup_hash(memtable->hash, NULL, row->hash);
			entry->row = row;
		}
		row->index = old->index;
		shard->rows[row->index] = row;
		shard->raw -= old->raw;
		memtable->raw -= old->raw;
		memtable->memory -= old->memory;
		total_memory -= old->memory;
		free_row(memtable, old);
	}
	else
	{
		if (shard->nrows == shard->max_rows)
		{
			uint32		max_rows = Max(LINEAR_SEARCH_MAX, shard->max_rows * 2);

			if (shard->rows == NULL)
				shard->rows = MemoryContextAlloc(memtable->mcxt, max_rows * sizeof(StrataMemRow *));
			else
				shard->rows = repalloc(shard->rows, max_rows * sizeof(StrataMemRow *));
			shard->max_rows = max_rows;
		}
		row->index = shard->nrows;
		shard->rows[shard->nrows++] = row;
		memtable->nrows++;

		if (memtable->store->key.natts > 0)
		{
			KeyHashEntry *entry;
			bool		found;

			if (memtable->hash != NULL)
			{
				memtable->probe_key = keyvalues;
				entry = keyhash_insert_hash(memtable->hash, NULL, row->hash, &found);
				Assert(!found);
				entry->row = row;
			}
			else if (shard->nrows > LINEAR_SEARCH_MAX)
			{
				Datum		key[INDEX_MAX_KEYS];

				memtable->hash = keyhash_create(memtable->mcxt, 64, memtable);
				memtable->probe_key = key;
				for (int s = 0; s < memtable->store->nshards; s++)
				{
					for (uint32 i = 0; i < memtable->shards[s].nrows; i++)
					{
						StrataMemRow *member = memtable->shards[s].rows[i];

						strata_memrow_key(memtable, member, key);
						entry = keyhash_insert_hash(memtable->hash, NULL, member->hash, &found);
						Assert(!found);
						entry->row = member;
					}
				}
			}
		}
	}

	shard->raw += row->raw;
	memtable->raw += row->raw;
	memtable->memory += row->memory;
	total_memory += row->memory;
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

	for (int shard = 0; shard < memtable->store->nshards; shard++)
	{
		StrataMemShard *mem = &memtable->shards[shard];

		if (mem->rows != NULL)
			pfree(mem->rows);
		memset(mem, 0, sizeof(StrataMemShard));
	}
	if (memtable->hash != NULL)
	{
		keyhash_destroy(memtable->hash);
		memtable->hash = NULL;
	}
	MemoryContextReset(memtable->temp_mcxt);
	MemoryContextReset(memtable->row_mcxt);
	memtable->nkeys_flushed += memtable->nrows;
	memtable->nrows = 0;
	memtable->raw = 0;
	total_memory -= memtable->memory;
	memtable->memory = 0;
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
