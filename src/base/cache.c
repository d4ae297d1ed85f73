/*-------------------------------------------------------------------------
 *
 * cache.c
 *	  A backend's cache of decoded footers and vectors of row groups.
 *
 * Row groups are immutable and an extent's owner id is never used again in
 * its file, so what is cached never goes stale: (relation, file, owner,
 * column, vector) names the same bytes for ever.  Only when relation oids and
 * file numbers wrap around could a name come back with another meaning;
 * therefore everything of a relation is dropped when its relcache entry is
 * invalidated, which dropping it does.
 *
 * Entries are pinned while a reader hands out pointers into them.  The least
 * recently used unpinned ones go when the cache exceeds strata.cache_size.
 * An entry no longer found by lookups lives until its last pin goes.  Pins
 * are the reader's business (it lets go of them in a reset callback of its
 * memory context), so nothing here needs a resource owner.
 *
 * IDENTIFICATION
 *	  src/base/cache.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cache.h"
#include "manifest/options.h"

#include "common/hashfn.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* An entry that would take more than this part of the cache is not kept. */
#define MAX_SHARE		8

typedef struct CacheSlot
{
	StrataCacheKey key;
	StrataCacheEntry *entry;
	char		status;
} CacheSlot;

#define SH_PREFIX		slots
#define SH_ELEMENT_TYPE	CacheSlot
#define SH_KEY_TYPE		StrataCacheKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, key) hash_bytes((const unsigned char *) &(key), sizeof(StrataCacheKey))
#define SH_EQUAL(tb, a, b) (memcmp(&(a), &(b), sizeof(StrataCacheKey)) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

bool		strata_cache_closed = false;

static MemoryContext cache_context = NULL;
static slots_hash *cache_slots = NULL;
static dlist_head cache_lru;	/* head: used last */
static Size cache_bytes = 0;	/* of linked entries */

static void
unlink_entry(StrataCacheEntry *entry)
{
	Assert(entry->linked);
	slots_delete(cache_slots, entry->key);
	dlist_delete(&entry->lru);
	cache_bytes -= entry->size;
	entry->linked = false;
	if (entry->pins == 0)
		pfree(entry);
}

/* Everything of relation relid, or of all (InvalidOid). */
static void
invalidate_relation(Datum arg, Oid relid)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &cache_lru)
	{
		StrataCacheEntry *entry = dlist_container(StrataCacheEntry, lru, iter.cur);

		if (relid == InvalidOid || entry->key.relid == relid)
			unlink_entry(entry);
	}
}

static void
initialize(void)
{
	if (cache_context == NULL)
		cache_context = AllocSetContextCreate(TopMemoryContext, "strata row group cache",
											  ALLOCSET_DEFAULT_SIZES);
	if (cache_slots == NULL)
	{
		dlist_init(&cache_lru);
		cache_slots = slots_create(cache_context, 256, NULL);
		CacheRegisterRelcacheCallback(invalidate_relation, (Datum) 0);
	}
}

StrataCacheEntry *
strata_cache_lookup(const StrataCacheKey *key)
{
	CacheSlot  *slot;

	if (cache_slots == NULL)
		return NULL;
	slot = slots_lookup(cache_slots, *key);
	if (slot == NULL)
		return NULL;
	slot->entry->pins++;
	dlist_move_head(&cache_lru, &slot->entry->lru);
	return slot->entry;
}

StrataCacheEntry *
strata_cache_alloc(Size payload)
{
	Size		size = MAXALIGN(sizeof(StrataCacheEntry)) + payload;
	StrataCacheEntry *entry;

	initialize();
	entry = MemoryContextAllocExtended(cache_context, size, MCXT_ALLOC_HUGE);
	memset(entry, 0, sizeof(*entry));
	entry->size = GetMemoryChunkSpace(entry);
	entry->pins = 1;
	return entry;
}

void
strata_cache_insert(StrataCacheEntry *entry, const StrataCacheKey *key)
{
	Size		limit = (Size) strata_cache_size * 1024;
	CacheSlot  *slot;
	bool		found;

	Assert(!entry->linked && entry->pins > 0);
	if (strata_cache_closed || entry->size > limit / MAX_SHARE)
		return;

	slot = slots_insert(cache_slots, *key, &found);
	if (found)
		return;					/* somebody below us was quicker */
	entry->key = *key;
	slot->entry = entry;
	entry->linked = true;
	dlist_push_head(&cache_lru, &entry->lru);
	cache_bytes += entry->size;

	if (cache_bytes > limit)
	{
		dlist_node *node = cache_lru.head.prev;

		while (cache_bytes > limit && node != &cache_lru.head)
		{
			StrataCacheEntry *old = dlist_container(StrataCacheEntry, lru, node);

			node = node->prev;
			if (old->pins == 0)
				unlink_entry(old);
		}
	}
}

void
strata_cache_unpin(StrataCacheEntry *entry)
{
	Assert(entry->pins > 0);
	if (--entry->pins == 0 && !entry->linked)
		pfree(entry);
}
