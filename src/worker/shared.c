/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  What launcher, workers, writers and views know of each other.
 *
 * Shared memory exists when the library is preloaded.  It holds nothing that
 * matters after a restart: what is to be done is found in the stores
 * themselves, so a store that was restored, or written to before a crash, is
 * found like any other.  Only what was being done when the server crashed is
 * kept elsewhere (attempt.c).
 *
 *	databases	when each is to be visited next.  Atomics: a writer lowers the
 *				time with each generation that it fills, or once in an interval.
 *	workers		what runs.  Each place is written by the launcher while it is
 *				free and by its worker then.
 *	stores		failures, counters and due upkeep, by (database, foreign
 *				table).  When it is full, the one not used for longest is
 *				forgotten, failing ones last.
 *
 * Locks: one LWLock over workers and stores, held for copying only.
 *
 * IDENTIFICATION
 *	  src/worker/shared.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/shared.h"

#include "merge/budget.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

int			strata_max_workers = 2;
StrataShared *strata_shared = NULL;

static HTAB *stores = NULL;
static shmem_request_hook_type previous_request = NULL;
static shmem_startup_hook_type previous_startup = NULL;

void
strata_shared_define_gucs(void)
{
	DefineCustomIntVariable("strata.max_workers",
							"Number of background workers that merge at the same time.",
							"0 turns automatic merging off.",
							&strata_max_workers,
							2, 0, STRATA_MAX_WORKERS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

static void
shared_request(void)
{
	if (previous_request != NULL)
		previous_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(StrataShared)));
	RequestAddinShmemSpace(hash_estimate_size(STRATA_MAX_STORES, sizeof(StrataSharedStore)));
	RequestAddinShmemSpace(strata_budget_shmem_size());
	RequestNamedLWLockTranche("strata", 1);
}

static void
shared_startup(void)
{
	bool		found;
	HASHCTL		ctl;

	if (previous_startup != NULL)
		previous_startup();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	strata_shared = ShmemInitStruct("strata workers", sizeof(StrataShared), &found);
	if (!found)
	{
		memset(strata_shared, 0, sizeof(StrataShared));
		strata_shared->lock = &(GetNamedLWLockTranche("strata"))->lock;
		strata_shared->started = GetCurrentTimestamp();
		pg_atomic_init_u32(&strata_shared->crowded, 0);
		pg_atomic_init_u32(&strata_shared->refresh, 0);
		pg_atomic_init_u32(&strata_shared->shortage, 0);
		for (int i = 0; i < STRATA_MAX_DATABASES; i++)
		{
			pg_atomic_init_u32(&strata_shared->databases[i].oid, InvalidOid);
			pg_atomic_init_u64(&strata_shared->databases[i].next_visit, 0);
			pg_atomic_init_u32(&strata_shared->databases[i].refused, 0);
			pg_atomic_init_u32(&strata_shared->databases[i].surveyed, 0);
		}
		for (int i = 0; i < STRATA_MAX_WORKERS; i++)
		{
			StrataProgress *progress = &strata_shared->workers[i].progress;

			pg_atomic_init_u32(&progress->phase, STRATA_PHASE_NONE);
			pg_atomic_init_u32(&progress->planned, 0);
			pg_atomic_init_u32(&progress->done, 0);
			pg_atomic_init_u64(&progress->bytes_planned, 0);
			pg_atomic_init_u64(&progress->bytes_done, 0);
		}
	}
	ctl.keysize = sizeof(StrataStoreKey);
	ctl.entrysize = sizeof(StrataSharedStore);
	stores = ShmemInitHash("strata stores", STRATA_MAX_STORES, STRATA_MAX_STORES,
						   &ctl, HASH_ELEM | HASH_BLOBS);
	strata_budget_shmem_init();
	LWLockRelease(AddinShmemInitLock);
}

void
strata_shared_request(void)
{
	previous_request = shmem_request_hook;
	shmem_request_hook = shared_request;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = shared_startup;
}

StrataSharedDatabase *
strata_shared_database(Oid oid)
{
	if (strata_shared == NULL)
		return NULL;
	for (int i = 0; i < STRATA_MAX_DATABASES; i++)
	{
		if (pg_atomic_read_u32(&strata_shared->databases[i].oid) == oid)
			return &strata_shared->databases[i];
	}
	return NULL;
}

void
strata_shared_visit(StrataSharedDatabase *database, TimestampTz at)
{
	uint64		next = pg_atomic_read_u64(&database->next_visit);

	while ((TimestampTz) next > at)
	{
		if (pg_atomic_compare_exchange_u64(&database->next_visit, &next, (uint64) at))
		{
			strata_shared_wake();
			break;
		}
	}
}

void
strata_shared_wake(void)
{
	Latch	   *latch = strata_shared->launcher;

	/* It lies in shared memory that is never freed. */
	if (latch != NULL)
		SetLatch(latch);
}

/* ---- stores ---- */

/* Forget the store that was not used for longest. */
static void
forget_store(void)
{
	HASH_SEQ_STATUS status;
	StrataSharedStore *store;
	StrataSharedStore *oldest = NULL;

	hash_seq_init(&status, stores);
	while ((store = hash_seq_search(&status)) != NULL)
	{
		if (oldest == NULL ||
			(store->failures > 0) < (oldest->failures > 0) ||
			((store->failures > 0) == (oldest->failures > 0) &&
			 store->used_at < oldest->used_at))
			oldest = store;
	}
	if (oldest != NULL)
		(void) hash_search(stores, &oldest->key, HASH_REMOVE, NULL);
}

static StrataSharedStore *
find_store(Oid database, Oid store, bool make)
{
	StrataStoreKey key = {database, store};
	StrataSharedStore *entry;
	bool		found;

	if (stores == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(StrataStoreKey);
		ctl.entrysize = sizeof(StrataSharedStore);
		ctl.hcxt = TopMemoryContext;
		stores = hash_create("strata stores", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	entry = hash_search(stores, &key, HASH_FIND, NULL);
	if (entry != NULL || !make)
		return entry;
	if (hash_get_num_entries(stores) >= STRATA_MAX_STORES)
		forget_store();
	entry = hash_search(stores, &key, strata_shared != NULL ? HASH_ENTER_NULL : HASH_ENTER,
						&found);
	if (entry != NULL)
	{
		memset((char *) entry + sizeof(StrataStoreKey), 0,
			   sizeof(StrataSharedStore) - sizeof(StrataStoreKey));
		entry->used_at = GetCurrentTimestamp();
	}
	return entry;
}

StrataSharedStore *
strata_store_lock_of(Oid database, Oid store, bool make)
{
	StrataSharedStore *entry;

	if (strata_shared != NULL)
		LWLockAcquire(strata_shared->lock, LW_EXCLUSIVE);
	entry = find_store(database, store, make);
	if (entry == NULL)
	{
		if (strata_shared != NULL)
			LWLockRelease(strata_shared->lock);
		return NULL;
	}
	if (make)
		entry->used_at = GetCurrentTimestamp();
	return entry;
}

StrataSharedStore *
strata_store_lock(Oid store, bool make)
{
	return strata_store_lock_of(MyDatabaseId, store, make);
}

void
strata_store_unlock(void)
{
	if (strata_shared != NULL)
		LWLockRelease(strata_shared->lock);
}

bool
strata_store_look(Oid store, StrataSharedStore *copy)
{
	StrataSharedStore *entry;

	if (strata_shared != NULL)
		LWLockAcquire(strata_shared->lock, LW_SHARED);
	entry = find_store(MyDatabaseId, store, false);
	if (entry != NULL)
		*copy = *entry;
	if (strata_shared != NULL)
		LWLockRelease(strata_shared->lock);
	return entry != NULL;
}

int
strata_store_list_known(StrataSharedStore **copies)
{
	HASH_SEQ_STATUS status;
	StrataSharedStore *entry;
	int			n = 0;

	if (strata_shared == NULL)
		return 0;
	*copies = palloc(sizeof(StrataSharedStore) * STRATA_MAX_STORES);
	LWLockAcquire(strata_shared->lock, LW_SHARED);
	hash_seq_init(&status, stores);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.database == MyDatabaseId && n < STRATA_MAX_STORES)
			(*copies)[n++] = *entry;
	}
	LWLockRelease(strata_shared->lock);
	return n;
}
