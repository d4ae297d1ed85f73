/*-------------------------------------------------------------------------
 *
 * init.c
 *	  Loading of the library: GUCs, and what lower layers ask of higher ones.
 *
 * The library is loaded on demand (by the foreign data wrapper, the event
 * triggers or the access method's handler) or by shared_preload_libraries.
 * Only in the latter case are there shared memory and a launcher; everything
 * else works in both.
 *
 * IDENTIFICATION
 *	  src/init.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/codec.h"
#include "base/keyindex.h"
#include "compat.h"
#include "fdw/fdw.h"
#include "log/memtable.h"
#include "log/walk.h"
#include "manifest/lifecycle.h"
#include "manifest/options.h"
#include "merge/budget.h"
#include "merge/merge.h"
#include "storage/relation_am.h"
#include "worker/worker.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

STRATA_MODULE_MAGIC;

void		_PG_init(void);

/* StrataLogIsEmpty: no shard has a generation that holds anything. */
static bool
log_is_empty(Relation storage, int nshards, const StrataManifest *manifest)
{
	for (int shard = 0; shard < nshards; shard++)
	{
		if (strata_log_generations(storage, shard, &manifest->shards[shard], 1) != NIL)
			return false;
	}
	return true;
}

void
_PG_init(void)
{
	strata_codec_check_library();

	strata_define_gucs();
	strata_budget_define_gucs();
	strata_shared_define_gucs();
	MarkGUCPrefixReserved("strata");

	strata_storage_hooks.index_build = strata_keyindex_build_scan;
	strata_storage_hooks.vacuum = strata_freeze;
	strata_log_is_empty_hook = log_is_empty;
	strata_check_rows_hook = strata_check_rows;

	strata_parallel_init();

	/* Called in the reverse order: the trigger sees what the memtable does. */
	strata_trigger_init();
	strata_memtable_init();
	strata_finish_init();

	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade)
	{
		strata_shared_request();
		strata_launcher_register();
	}
}
