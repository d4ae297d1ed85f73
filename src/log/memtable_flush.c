/*-------------------------------------------------------------------------
 *
 * memtable_flush.c
 *	  From a memtable into the log.
 *
 * A flush locks the keys of a small statement, appends one entry for each
 * shard, then judges what has to be judged with all rows linked: conflicts of
 * serializable transactions, duplicates, and (where the snapshot is fixed)
 * versions that it does not see.  Of keys that were judged when their rows were
 * put, only what came since is looked at.
 *
 * Few or small rows become a ROWS entry, encoded before any page is locked.
 * More are written as a row group into an extent of their own, which an EXTENT
 * entry names before the first byte is written: whatever happens after that,
 * the extent is known to the log and goes with its generation.  A ROW_GROUP
 * entry links the finished group.  Tombstones are in ROWS entries only; that of
 * a row whose key the command has used again comes in an entry before.  Rows
 * whose keys the transaction had locked FOR UPDATE are in entries of their own,
 * which say so.
 *
 * A new version of a row that was read holds its key's lock, which keeps out
 * every writer but those that lock no keys.  Under READ COMMITTED, versions
 * that these linked between the look at the row and ours raise 40001; where
 * the snapshot is fixed, judging covers them.
 *
 * Crash windows: before the ROW_GROUP entry, an extent that no row group
 * entry names; after it, an entry of a transaction that did not commit.
 *
 * IDENTIFICATION
 *	  src/log/memtable_flush.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/memtable_internal.h"

#include "access/relation.h"
#include "access/xact.h"
#include "base/rowgroup.h"
#include "log/conflict_check.h"
#include "miscadmin.h"
#include "pause.h"
#include "storage/extent.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Raw size up to which compression may make a shard's rows fit two pages. */
#define TRY_ROWS_BYTES		(4 * STRATA_MAX_ENTRY_SIZE)

/* The row whose values these are. */
static inline StrataMemRow *
row_of(Datum *values)
{
	return (StrataMemRow *) ((char *) values - offsetof(StrataMemRow, values));
}

/* The rows of one appended entry, to be judged when all are linked. */
typedef struct Link
{
	StrataLogRow *rows;
	int			nrows;
	StrataPosition position;
} Link;

/* State of a flush. */
typedef struct Flush
{
	StrataMemtable *memtable;
	Relation	storage;
	List	   *links;
} Flush;

/* Which of the linked rows are judged. */
typedef enum JudgeWhich
{
	JUDGE_ALL,
	JUDGE_UNIQUE,				/* not judged yet */
	JUDGE_SINCE					/* looked at before */
} JudgeWhich;

static void lock_keys(Flush *flush);
static void flush_shard(Flush *flush, int shard);
static void flush_rows(Flush *flush, int shard, StrataLogRow *rows, int nrows, int ntombstones,
					   Size raw, uint16 flags);
static void append_rows(Flush *flush, int shard, StrataLogRow *rows, int nrows, bool group,
						uint16 flags);
static void add_link(Flush *flush, StrataLogRow *rows, int nrows, const StrataPosition *position);
static void raise_linked_duplicate(StrataMemtable *memtable, const StrataJudgeKey *keys, int nkeys,
								   const Datum *duplicate);
static void judge_links(Flush *flush);
static StrataJudgeKey *collect_keys(Flush *flush, JudgeWhich which, int *nkeys);

void
strata_memtable_append(StrataMemtable *memtable)
{
	Flush		flush = {0};

	flush.memtable = memtable;
	flush.storage = relation_open(memtable->storage, NoLock);
	if (memtable->store->key.natts > 0)
		lock_keys(&flush);

	for (int shard = 0; shard < memtable->store->nshards; shard++)
	{
		if (memtable->shards[shard].nrows > 0)
			flush_shard(&flush, shard);
	}
	STRATA_PAUSE("log-flush-linked");
	judge_links(&flush);
	relation_close(flush.storage, NoLock);
}

/*
 * A small statement locks its keys, so that it waits for whoever selected one
 * FOR UPDATE (and it replaces that row) or is about to put one if it is not
 * there.  A larger one is
 * ordered per key only, by position; where the snapshot is fixed, judging finds
 * versions that are not seen, but no locks.
 */
static void
lock_keys(Flush *flush)
{
	StrataMemtable *memtable = flush->memtable;
	StrataJudgeKey *keys;
	const Datum *duplicate;
	int			nkeys = 0;

	if (memtable->nkeys_flushed + memtable->nrows > STRATA_MAX_LOCKED_INSERT)
		return;

	keys = palloc0(memtable->nrows * sizeof(StrataJudgeKey));
	for (int shard = 0; shard < memtable->store->nshards; shard++)
	{
		for (uint32 i = 0; i < memtable->shards[shard].nrows; i++)
		{
			const StrataMemRow *row = memtable->shards[shard].rows[i];
			StrataJudgeKey *key = &keys[nkeys];

			/* those of rows that were read were locked then */
			if (row->changes)
				continue;
			nkeys++;
			key->hash = row->hash;
			key->unique = row->unique;
			if (row->unique)
			{
				key->values = palloc(memtable->store->key.natts * sizeof(Datum));
				strata_memrow_key(memtable, row, key->values);
			}
		}
	}
	if (nkeys == 0)
		return;
	duplicate = strata_lock_insert_keys(memtable->store, flush->storage, keys, nkeys);
	if (duplicate != NULL)
		strata_memtable_raise_duplicate(memtable, flush->storage, duplicate);
}

static void
fill_log_row(StrataLogRow *out, StrataMemRow *row)
{
	out->hash = row->hash;
	out->tombstone = row->tombstone;
	out->moved = row->moved;
	out->values = row->values;
	out->isnull = row->tombstone ? NULL : row->isnull;
	out->next_key = row->next != NULL ? row->next->values : NULL;
}

/* Append the tombstones whose keys have been used again. */
static void
append_tombstones_before(Flush *flush, int shard)
{
	StrataMemShard *mem = &flush->memtable->shards[shard];
	StrataLogRow *rows;
	int			n = 0;

	for (uint32 i = 0; i < mem->nrows; i++)
	{
		if (mem->rows[i]->before != NULL)
			n++;
	}
	if (n == 0)
		return;

	rows = palloc(n * sizeof(StrataLogRow));
	n = 0;
	for (uint32 i = 0; i < mem->nrows; i++)
	{
		if (mem->rows[i]->before != NULL)
			fill_log_row(&rows[n++], mem->rows[i]->before);
	}
	append_rows(flush, shard, rows, n, false, 0);
}

/* Append the rows of one shard. */
static void
flush_shard(Flush *flush, int shard)
{
	StrataMemtable *memtable = flush->memtable;
	StrataMemShard *mem = &memtable->shards[shard];
	StrataLogRow *rows;
	StrataLogRow *locked = NULL;
	int			nrows = 0;
	int			nlocked = 0;
	int			ntombstones = 0;
	Size		locked_raw = 0;

	append_tombstones_before(flush, shard);
	rows = palloc(mem->nrows * sizeof(StrataLogRow));
	for (uint32 i = 0; i < mem->nrows; i++)
	{
		StrataMemRow *row = mem->rows[i];

		if (!row->tombstone && strata_key_locked_for_update(memtable->storage, row->hash))
		{
			if (locked == NULL)
				locked = palloc((mem->nrows - i) * sizeof(StrataLogRow));
			fill_log_row(&locked[nlocked++], row);
			locked_raw += row->raw;
		}
		else if (row->tombstone)
			fill_log_row(&rows[mem->nrows - ++ntombstones], row);	/* from the back */
		else
			fill_log_row(&rows[nrows++], row);
	}

	if (nlocked > 0 && ntombstones > 0)
		memmove(&rows[nrows], &rows[mem->nrows - ntombstones], ntombstones * sizeof(StrataLogRow));
	flush_rows(flush, shard, rows, nrows, ntombstones, mem->raw - locked_raw, 0);
	flush_rows(flush, shard, locked, nlocked, 0, locked_raw, STRATA_ENTRY_LOCKED);
}

/*
 * Append rows, which tombstones follow, of so many bytes in all, as one entry
 * where that is possible.
 */
static void
flush_rows(Flush *flush, int shard, StrataLogRow *rows, int nrows, int ntombstones, Size raw,
		   uint16 flags)
{
	StrataMemtable *memtable = flush->memtable;
	int			n = nrows + ntombstones;

	if (n == 0)
		return;
	if (raw <= TRY_ROWS_BYTES && n <= STRATA_MAX_ENTRY_ROWS)
	{
		StrataEntryHeader *entry = strata_entry_encode_rows(memtable->store, memtable->fxid,
															memtable->cid, rows, n, flags);

		if (entry != NULL)
		{
			StrataPosition position = strata_log_append(memtable->store, flush->storage, shard,
														entry, entry->length);

			add_link(flush, rows, n, &position);
			pfree(entry);
			return;
		}
	}

	if (ntombstones > 0)
		append_rows(flush, shard, rows + nrows, ntombstones, false, 0);
	if (nrows > 0)
		append_rows(flush, shard, rows, nrows, true, flags);
}

/*
 * Append rows as a row group of their own, or (tombstones) as ROWS entries, as
 * many as it takes.
 */
static void
append_rows(Flush *flush, int shard, StrataLogRow *rows, int nrows, bool group, uint16 flags)
{
	StrataMemtable *memtable = flush->memtable;
	StrataStore *store = memtable->store;
	StrataEntryHeader *entry = NULL;
	StrataPosition position;
	uint64		stored_bytes;

	CHECK_FOR_INTERRUPTS();

	if (!group)
	{
		if (nrows <= STRATA_MAX_ENTRY_ROWS)
			entry = strata_entry_encode_rows(store, memtable->fxid, memtable->cid, rows, nrows,
											 flags);
		if (entry == NULL)
		{
			if (nrows == 1)
				elog(ERROR, "a tombstone of relation %u does not fit an entry", memtable->storage);
			append_rows(flush, shard, rows, nrows / 2, false, flags);
			append_rows(flush, shard, rows + nrows / 2, nrows - nrows / 2, false, flags);
			return;
		}
		stored_bytes = entry->length;
	}
	else
	{
		StrataGroupWriter *writer;
		StrataExtent extent;
		StrataGroupRef ref;
		uint64		length;

		writer = strata_group_writer_begin(store, store->options->compression_level);
		for (int i = 0; i < nrows; i++)
		{
			CHECK_FOR_INTERRUPTS();
			strata_group_writer_add(writer, rows[i].values, rows[i].isnull, rows[i].hash);
		}
		length = strata_group_writer_finish(writer);
		STRATA_PAUSE("log-group-finished");
		strata_log_take_extent(store, flush->storage, shard, memtable->fxid, memtable->cid,
							   strata_extent_blocks_for(length), &extent);
		STRATA_PAUSE("log-group-taken");
		strata_group_writer_write(writer, flush->storage, &extent, &ref, NULL);
		strata_group_writer_end(writer);
		STRATA_PAUSE("log-group-written");
		entry = strata_entry_encode_group(memtable->fxid, memtable->cid, store->desc->natts, &ref,
										  flags);
		stored_bytes = entry->length + ref.length;
	}

	position = strata_log_append(store, flush->storage, shard, entry, stored_bytes);
	add_link(flush, rows, nrows, &position);
	pfree(entry);
}

static void
add_link(Flush *flush, StrataLogRow *rows, int nrows, const StrataPosition *position)
{
	Link	   *link = palloc(sizeof(Link));

	link->rows = rows;
	link->nrows = nrows;
	link->position = *position;
	flush->links = lappend(flush->links, link);
}

/*
 * The key of a linked row has a row before it.  One that was to be left out in
 * that case was not there when we looked: with another look, it would be.
 */
static void
raise_linked_duplicate(StrataMemtable *memtable, const StrataJudgeKey *keys, int nkeys,
					   const Datum *duplicate)
{
	for (int i = 0; i < nkeys; i++)
	{
		if (keys[i].values == duplicate && keys[i].skips)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update"),
					 errdetail("A statement that locks no keys has put a row of %s whose key this one had found free.",
							   memtable->store->name)));
	}
	strata_memtable_raise_duplicate(memtable, NULL, duplicate);
}

/*
 * What has to be asked after the rows are linked: whether a serializable
 * transaction has read that they were not there, and whether they were.
 * Somebody who looks after this sees our entries; somebody who looked before
 * has left a predicate lock, or an entry of his own.
 */
static void
judge_links(Flush *flush)
{
	StrataMemtable *memtable = flush->memtable;
	const StrataKey *key = &memtable->store->key;
	bool		validate = IsolationUsesXactSnapshot();
	int			nkeys;
	StrataJudgeKey *keys;
	const Datum *duplicate;
	ListCell   *lc;

	if (key->natts == 0)
	{
		CheckForSerializableConflictIn(flush->storage, NULL, InvalidBlockNumber);
		return;
	}

	if (IsolationIsSerializable())
	{
		foreach (lc, flush->links)
		{
			const Link *link = lfirst(lc);

			for (int i = 0; i < link->nrows; i++)
			{
				Datum		keyvalues[INDEX_MAX_KEYS];

				CHECK_FOR_INTERRUPTS();
				strata_memrow_key(memtable, row_of(link->rows[i].values), keyvalues);
				strata_memtable_check_conflict_in(memtable, flush->storage, link->rows[i].hash,
												  keyvalues);
			}
		}
	}

	keys = collect_keys(flush, validate ? JUDGE_ALL : JUDGE_UNIQUE, &nkeys);
	if (nkeys > 0)
	{
		duplicate = strata_judge_keys(memtable->store, flush->storage, keys, nkeys);
		if (duplicate != NULL)
			raise_linked_duplicate(memtable, keys, nkeys, duplicate);
	}

	if (!validate && memtable->manifest != NULL)
	{
		keys = collect_keys(flush, JUDGE_SINCE, &nkeys);
		if (nkeys > 0)
		{
			duplicate = strata_judge_since(memtable->store, flush->storage, memtable->manifest,
										   keys, nkeys);
			if (duplicate != NULL)
				strata_memtable_raise_duplicate(memtable, NULL, duplicate);
		}
	}
}

static bool
is_judged(const StrataMemRow *row, JudgeWhich which)
{
	switch (which)
	{
		case JUDGE_UNIQUE:
			return row->unique && !row->judged;
		case JUDGE_SINCE:
			return row->changes || row->judged;
		default:
			return true;
	}
}

/* The keys of the linked rows that are to be judged. */
static StrataJudgeKey *
collect_keys(Flush *flush, JudgeWhich which, int *nkeys)
{
	StrataMemtable *memtable = flush->memtable;
	int			natts = memtable->store->key.natts;
	uint64		n = 0;
	StrataJudgeKey *keys;
	Datum	   *keyvalues;
	ListCell   *lc;

	foreach (lc, flush->links)
	{
		const Link *link = lfirst(lc);

		for (int i = 0; i < link->nrows; i++)
		{
			if (is_judged(row_of(link->rows[i].values), which))
				n++;
		}
	}
	*nkeys = (int) n;
	if (n == 0)
		return NULL;

	keys = MemoryContextAllocHuge(CurrentMemoryContext, n * sizeof(StrataJudgeKey));
	keyvalues = MemoryContextAllocHuge(CurrentMemoryContext, n * natts * sizeof(Datum));
	n = 0;
	foreach (lc, flush->links)
	{
		const Link *link = lfirst(lc);

		for (int i = 0; i < link->nrows; i++)
		{
			const StrataMemRow *row = row_of(link->rows[i].values);
			StrataJudgeKey *out = &keys[n];

			if (!is_judged(row, which))
				continue;
			out->hash = row->hash;
			out->unique = row->unique;
			out->skips = row->skips;
			out->linked = true;
			out->position = link->position;
			out->seen = row->seen;
			out->values = &keyvalues[n * natts];
			strata_memrow_key(memtable, row, out->values);
			n++;
		}
	}
	return keys;
}

/*
 * As core words it for a unique index, with the key if the user may read it.
 * There is no constraint that could be named: the option that demands it is.
 */
void
strata_memtable_raise_duplicate(StrataMemtable *memtable, Relation storage,
								const Datum *keyvalues)
{
	StrataStore *store = memtable->store;
	bool		may_read;

	if (storage != NULL)
		strata_memtable_check_conflict_in(memtable, storage, strata_key_hash(&store->key, keyvalues),
										  keyvalues);

	may_read = pg_class_aclcheck(store->ftrelid, memtable->userid, ACL_SELECT) == ACLCHECK_OK;
	if (!may_read)
	{
		may_read = true;
		for (int i = 0; i < store->key.natts; i++)
		{
			if (pg_attribute_aclcheck(store->ftrelid, store->key.attnum[i], memtable->userid,
									  ACL_SELECT) != ACLCHECK_OK)
				may_read = false;
		}
	}

	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates the key of foreign table \"%s\"",
					memtable->relname),
			 may_read ? errdetail("Key %s already exists.",
								  strata_key_describe(&store->key, keyvalues)) :
						0,
			 err_generic_string(PG_DIAG_SCHEMA_NAME,
								get_namespace_name(get_rel_namespace(store->ftrelid))),
			 err_generic_string(PG_DIAG_TABLE_NAME, memtable->relname),
			 err_generic_string(PG_DIAG_CONSTRAINT_NAME, "key")));
}
