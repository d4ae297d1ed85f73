/*-------------------------------------------------------------------------
 *
 * memtable_keys.c
 *	  What a memtable finds out about a key before a row of it is put.
 *
 * The new keys of a small statement are judged one by one, with the key index
 * kept open between them: opening it costs as much as looking.  It is closed
 * when the memtable is flushed, which every statement ends with, and belongs to
 * the statement's resource owner like all that a memtable takes.
 *
 * IDENTIFICATION
 *	  src/log/memtable_keys.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/memtable_internal.h"

#include "access/relation.h"
#include "access/xact.h"
#include "base/keyindex.h"
#include "log/conflict_check.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

struct StrataMemtableLooks
{
	Relation	storage;
	StrataIndexProbe *probe;	/* NULL: no rows in the base table */
	bool		base;			/* can it be looked at? */
};

void
strata_memtable_pin_manifest(StrataMemtable *memtable, StrataManifest *manifest)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(memtable->mcxt);

	memtable->manifest = strata_manifest_pin(manifest);
	MemoryContextSwitchTo(oldcxt);
}

void
strata_memtable_check_conflict_in(StrataMemtable *memtable, Relation storage, uint32 hash,
								  const Datum *keyvalues)
{
	const StrataKey *key = &memtable->store->key;
	uint32		hashes[INDEX_MAX_KEYS];

	if (!IsolationIsSerializable())
		return;
	if (key->natts > 1)
		strata_key_prefix_hashes(key, keyvalues, hashes);
	for (int i = 0; i < key->natts - 1; i++)
		CheckForSerializableConflictIn(storage, NULL, hashes[i]);
	CheckForSerializableConflictIn(storage, NULL, hash);
}

bool
strata_memtable_lock_key(StrataMemtable *memtable, uint32 hash, Datum *keyvalues, bool skips)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(memtable->temp_mcxt);
	Relation	storage = relation_open(memtable->storage, NoLock);
	StrataJudgeKey key = {.hash = hash, .unique = true, .skips = skips, .values = keyvalues};
	bool		exists;

	/* before it waits for what others put; they may still read until it is linked */
	if (!skips)
		strata_memtable_check_conflict_in(memtable, storage, hash, keyvalues);
	exists = strata_lock_new_key(memtable->store, storage, &key);
	if (exists && !skips)
		strata_memtable_raise_duplicate(memtable, storage, keyvalues);
	relation_close(storage, NoLock);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(memtable->temp_mcxt);
	return !exists;
}

void
strata_memtable_lock_new_key(StrataMemtable *memtable, Datum *keyvalues)
{
	(void) strata_memtable_lock_key(memtable, strata_key_hash(&memtable->store->key, keyvalues),
									keyvalues, false);
}

/* Open what looking at keys takes, for the statement. */
static void
begin_looks(StrataMemtable *memtable)
{
	StrataStore *store = memtable->store;
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext oldcxt = MemoryContextSwitchTo(memtable->mcxt);
	StrataMemtableLooks *looks = palloc0(sizeof(StrataMemtableLooks));

	/* once it is forgotten (strata_memtable_end_looks), nothing is open either */
	CurrentResourceOwner = memtable->owner;
	looks->storage = relation_open(memtable->storage, NoLock);
	looks->base = true;
	if (memtable->manifest == NULL)
		memtable->manifest = strata_manifest_get(store, looks->storage, GetActiveSnapshot());
	if (memtable->manifest->ngroups > 0)
	{
		bool		present;
		Oid			index = strata_keyindex_find(looks->storage, &present);

		looks->base = OidIsValid(index);
		if (looks->base)
			looks->probe = strata_keyindex_probe_begin(store, looks->storage, index);
	}
	memtable->looks = looks;
	CurrentResourceOwner = oldowner;
	MemoryContextSwitchTo(oldcxt);
}

void
strata_memtable_end_looks(StrataMemtable *memtable)
{
	StrataMemtableLooks *looks = memtable->looks;
	ResourceOwner oldowner = CurrentResourceOwner;

	if (looks == NULL)
		return;
	memtable->looks = NULL;

	/* without an owner, its statement was not ended in order: all is closed */
	if (memtable->owner == NULL)
		return;
	CurrentResourceOwner = memtable->owner;
	if (looks->probe != NULL)
		strata_keyindex_probe_end(looks->probe);
	relation_close(looks->storage, NoLock);
	CurrentResourceOwner = oldowner;
	pfree(looks);
}

bool
strata_memtable_judge_key(StrataMemtable *memtable, uint32 hash, Datum *keyvalues,
						  StrataPosition *seen)
{
	MemoryContext oldcxt;
	StrataJudgeKey key = {0};
	bool		duplicate;

	if (memtable->looks == NULL)
		begin_looks(memtable);

	strata_memtable_check_conflict_in(memtable, memtable->looks->storage, hash, keyvalues);
	oldcxt = MemoryContextSwitchTo(memtable->temp_mcxt);
	key.hash = hash;
	key.unique = true;
	key.values = keyvalues;
	duplicate = strata_judge_new_key(memtable->store, memtable->looks->storage,
									 memtable->manifest, memtable->looks->probe, &key);
	if (duplicate)
		strata_memtable_raise_duplicate(memtable, memtable->looks->storage, keyvalues);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(memtable->temp_mcxt);

	memtable->njudged++;
	*seen = key.seen;
	return memtable->looks->base;
}
