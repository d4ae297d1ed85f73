/*-------------------------------------------------------------------------
 *
 * truncate.c
 *	  TRUNCATE of a strata foreign table.
 *
 * The storage relation gets a new file, which starts as an empty store whose
 * counters (owner ids, row group and generation numbers, totals) continue
 * from the old file's: nothing that refers to the old file can be mistaken for
 * a reference to the new one.  Order: file, metapage and shard pages, manifest,
 * index.  Everything but the file's pages is transactional by itself, and the
 * file is made and removed with the transaction, so a crash or a rollback at
 * any step leaves the old file and the old manifest.
 *
 * A snapshot taken before sees the old shard rows, whose incarnation is not
 * that of the new file, and therefore nothing merged; see manifest.c.
 *
 * Locks: AccessExclusiveLock on the foreign table (the caller's), then on the
 * storage, which keeps passes, appenders and readers out.
 *
 * IDENTIFICATION
 *	  src/manifest/truncate.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "pause.h"
#include "manifest/lifecycle.h"
#include "manifest/manifest.h"
#include "storage/extent.h"
#include "storage/metapage.h"
#include "storage/relation_am.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/tablecmds.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/relcache.h"

void
strata_store_truncate(Oid ftrelid)
{
	StrataStore *store = strata_store_open(ftrelid);
	Relation	storage = strata_storage_open(store, AccessExclusiveLock);
	StrataMetaData meta;
	StrataShardData old[STRATA_MAX_SHARDS];
	StrataShardState states[STRATA_MAX_SHARDS] = {0};
	StrataSpareData *spare;
	bool		save_own = strata_own_ddl;

	/* A table over one layer may be being read. */
	CheckTableNotInUse(storage, "TRUNCATE");
	CheckTableForSerializableConflictIn(storage);

	/* Never written to: there is nothing to get rid of. */
	if (!strata_meta_read(storage, &meta))
	{
		strata_manifest_check_made(store, storage, NULL);
		table_close(storage, NoLock);
		strata_store_close(store);
		return;
	}

	spare = strata_spare_read(storage);
	for (int shard = 0; shard < store->nshards; shard++)
	{
		if (!strata_shard_read(storage, shard, &old[shard]))
			elog(ERROR, "shard %d of %s vanished", shard, store->name);
	}

	PG_TRY();
	{
		strata_own_ddl = true;
		strata_set_new_file(storage, storage->rd_rel->relpersistence);
		STRATA_PAUSE("manifest-truncate-new-file");
		strata_store_reinitialize(storage, &meta, old, spare->next_owner,
								  GetTopFullTransactionId());
		STRATA_PAUSE("manifest-truncate-initialized");

		for (int shard = 0; shard < store->nshards; shard++)
		{
			StrataShardData now;

			/* What is pending starts with the new file's first generation. */
			if (!strata_shard_read(storage, shard, &now))
				elog(ERROR, "shard %d of %s vanished", shard, store->name);
			states[shard].merged_through = now.active_generation - 1;
			states[shard].rows = now.rows;
			states[shard].bytes = now.bytes;
		}
		if (!strata_meta_read(storage, &meta))
			elog(ERROR, "metapage of %s vanished", store->name);
		strata_manifest_truncate(store, meta.incarnation, states);
		CacheInvalidateRelcacheByRelid(ftrelid);
		CommandCounterIncrement();
		STRATA_PAUSE("manifest-truncate-manifest");

		strata_reindex_relation(RelationGetRelid(storage));
	}
	PG_FINALLY();
	{
		strata_own_ddl = save_own;
	}
	PG_END_TRY();

	table_close(storage, NoLock);
	strata_store_close(store);
}
