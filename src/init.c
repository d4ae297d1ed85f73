/*-------------------------------------------------------------------------
 *
 * init.c
 *	  Loading of the library: GUCs, and what lower layers ask of higher ones.
 *
 * The library is loaded on demand (by the foreign data wrapper, the event
 * triggers or the access method's handler) or by shared_preload_libraries; all
 * of what is done here works in both cases.
 *
 * IDENTIFICATION
 *	  src/init.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/keyindex.h"
#include "compat.h"
#include "log/memtable.h"
#include "log/walk.h"
#include "manifest/lifecycle.h"
#include "manifest/options.h"
#include "merge/merge.h"
#include "storage/relation_am.h"

#include "fmgr.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

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
	strata_define_gucs();
	MarkGUCPrefixReserved("strata");

	strata_storage_hooks.index_build = strata_keyindex_build_scan;
	strata_storage_hooks.vacuum = strata_freeze;
	strata_log_is_empty_hook = log_is_empty;
	strata_memtable_init();
}
