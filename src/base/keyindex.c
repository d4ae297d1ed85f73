/*-------------------------------------------------------------------------
 *
 * keyindex.c
 *	  The key index: nbtree over the base rows' keys with synthetic TIDs.
 *
 * The index is an ordinary B-tree on the storage relation's columns, which are
 * the key's columns in key order.  Its TIDs name (row group, row) instead of a
 * place in a file.  nbtree takes any TID; only bitmap scans would not, and
 * core plans no scan of a storage relation.  So all access is by
 * index_getnext_tid.
 *
 * Locks: the caller holds a lock on the storage relation, which keeps indexes
 * from being dropped (that takes AccessExclusiveLock on it).  TIDs are added
 * and removed by passes and sweep only, one at a time under the lock that
 * passes take.  Between two TIDs a scan holds no page: one that does makes
 * sweep, which must have each leaf page to itself, wait as long as a cursor
 * stays idle, and fail when the cursor's own session calls it.
 *
 * Invariants: every live base row is in every index that is valid.  A TID may
 * be removed while a reader holds it: row group numbers are never reused, so
 * the reader finds a row group that its snapshot sees, or none.
 *
 * An index is trusted only while its collations sort as they did when their
 * versions were recorded in the catalog.
 *
 * IDENTIFICATION
 *	  src/base/keyindex.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/keyindex.h"

#include "base/collation.h"
#include "compat.h"
#include "manifest/lifecycle.h"
#include "storage/conflict.h"
#include "storage/metapage.h"
#include "storage/relation_am.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* ---- finding ---- */

typedef struct KeyIndexState
{
	Oid			usable;			/* valid, ready, right columns */
	List	   *unusable;		/* others */
} KeyIndexState;

static bool is_btree(Oid indexrelid);
static bool is_usable(Oid indexrelid, int natts);
static void look_at_indexes(Relation storage, KeyIndexState *state);

static bool
is_btree(Oid indexrelid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(indexrelid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == BTREE_AM_OID;
	ReleaseSysCache(tuple);
	return result;
}

/* Is this a complete B-tree over all key columns in order? */
static bool
is_usable(Oid indexrelid, int natts)
{
	HeapTuple	tuple;
	Form_pg_index form;
	bool		usable;

	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(indexrelid));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_index) GETSTRUCT(tuple);
	usable = form->indisvalid && form->indisready && form->indislive &&
		form->indnkeyatts == natts && form->indnatts == natts &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
		is_btree(indexrelid);
	for (int i = 0; usable && i < natts; i++)
		usable = form->indkey.values[i] == i + 1;
	ReleaseSysCache(tuple);
	return usable;
}

static void
look_at_indexes(Relation storage, KeyIndexState *state)
{
	List	   *indexes = RelationGetIndexList(storage);
	ListCell   *lc;

	state->usable = InvalidOid;
	state->unusable = NIL;
	foreach (lc, indexes)
	{
		Oid			index = lfirst_oid(lc);

		/* The list is sorted, so that everybody picks the same one. */
		if (!OidIsValid(state->usable) &&
			is_usable(index, RelationGetNumberOfAttributes(storage)))
			state->usable = index;
		else
			state->unusable = lappend_oid(state->unusable, index);
	}
	list_free(indexes);
}

/* jsonb sorts strings by the database's collation. */
bool
strata_keyindex_order_known(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		is_jsonb = att->atttypid == JSONBOID || att->atttypid == JSONBARRAYOID;

		if (!strata_collation_trusted(RelationGetRelationName(rel),
									  is_jsonb ? DEFAULT_COLLATION_OID : att->attcollation))
			return false;
	}
	return true;
}

Oid
strata_keyindex_find(Relation storage, bool *present)
{
	KeyIndexState state;
	Relation	index;

	look_at_indexes(storage, &state);
	*present = OidIsValid(state.usable) || state.unusable != NIL;
	list_free(state.unusable);
	if (!OidIsValid(state.usable))
		return InvalidOid;

	index = index_open(state.usable, AccessShareLock);
	if (!strata_keyindex_order_known(index))
		state.usable = InvalidOid;
	index_close(index, NoLock);
	return state.usable;
}

int64
strata_keyindex_total_size(Relation storage)
{
	int64		size = DatumGetInt64(DirectFunctionCall1(pg_table_size,
														 ObjectIdGetDatum(RelationGetRelid(storage))));
	ListCell   *lc;

	foreach (lc, RelationGetIndexList(storage))
	{
		Oid			index = lfirst_oid(lc);
		Datum		index_size;

		if (!ConditionalLockRelationOid(index, AccessShareLock))
			continue;
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(index)))
		{
			index_size = DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(index));
			size += DatumGetInt64(index_size);
		}
		UnlockRelationOid(index, AccessShareLock);
	}
	return size;
}

/* ---- reading ---- */

/*
 * Nothing of a snapshot matters to an index scan that fetches no rows but its
 * kind: MVCC means that the scan may go on from a page which it let go.
 */
static SnapshotData probe_snapshot = {.snapshot_type = SNAPSHOT_MVCC};

static ItemPointer next_tid(IndexScanDesc scan, ScanDirection direction);

/*
 * The next TID of a scan, which then holds no page.  nbtree copies all that it
 * wants of a page when it gets there, and goes on without the page as well as
 * with it.  It keeps a pin when tuples are asked for, because the usual reader
 * of those believes a visibility map instead of looking at the row, and when
 * there is no WAL, because it then cannot tell whether the page changed before
 * it marks entries as dead.  We ask the manifest, and mark none.
 */
static ItemPointer
next_tid(IndexScanDesc scan, ScanDirection direction)
{
	ItemPointer tid;

	CHECK_FOR_INTERRUPTS();
	tid = index_getnext_tid(scan, direction);
	BTScanPosUnpinIfPinned(((BTScanOpaque) scan->opaque)->currPos);
	return tid;
}

/* ---- probing ---- */

struct StrataIndexProbe
{
	Relation	storage;
	Relation	index;
	int			natts;
	RegProcedure eqproc[INDEX_MAX_KEYS];	/* for values of the key's own types */
	Oid			subtype[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];	/* initialised where sk_attno is set */
	IndexScanDesc scans[INDEX_MAX_KEYS];	/* by number of keys - 1 */
	IndexScanDesc current;
	uint64		count;
	MemoryContext mcxt;
};

StrataIndexProbe *
strata_keyindex_probe_begin(StrataStore *store, Relation storage, Oid index)
{
	StrataIndexProbe *probe = palloc0(sizeof(StrataIndexProbe));

	probe->storage = storage;
	probe->index = index_open(index, AccessShareLock);
	probe->natts = IndexRelationGetNumberOfKeyAttributes(probe->index);
	probe->mcxt = CurrentMemoryContext;

	for (int i = 0; i < probe->natts; i++)
	{
		Oid			type = probe->index->rd_opcintype[i];
		Oid			family = probe->index->rd_opfamily[i];
		Oid			equality = get_opfamily_member(family, type, type, BTEqualStrategyNumber);

		if (!OidIsValid(equality))
			elog(ERROR, "no equality operator for type %u in operator family %u", type, family);
		probe->eqproc[i] = get_opcode(equality);
		probe->subtype[i] = type;
	}
	return probe;
}

bool
strata_keyindex_probe(StrataIndexProbe *probe, const Datum *values, ItemPointer tid)
{
	return strata_keyindex_probe_with(probe, probe->natts, probe->eqproc, probe->subtype,
									  values, tid);
}

bool
strata_keyindex_probe_with(StrataIndexProbe *probe, int nkeys, const RegProcedure *eqproc,
						   const Oid *subtype, const Datum *values, ItemPointer tid)
{
	MemoryContext old = MemoryContextSwitchTo(probe->mcxt);

	Assert(nkeys > 0 && nkeys <= probe->natts);

	for (int i = 0; i < nkeys; i++)
	{
		ScanKey		key = &probe->keys[i];

		/* Looking up a function costs more than a probe of a cached page. */
		if (key->sk_attno == 0 || key->sk_func.fn_oid != eqproc[i] ||
			key->sk_subtype != subtype[i])
			ScanKeyEntryInitialize(key, 0, i + 1, BTEqualStrategyNumber, subtype[i],
								   probe->index->rd_indcollation[i], eqproc[i], values[i]);
		else
			key->sk_argument = values[i];
	}

	if (probe->scans[nkeys - 1] == NULL)
		probe->scans[nkeys - 1] = strata_index_beginscan(probe->storage, probe->index,
														 &probe_snapshot, nkeys);
	MemoryContextSwitchTo(old);

	probe->current = probe->scans[nkeys - 1];
	index_rescan(probe->current, probe->keys, nkeys, NULL, 0);
	probe->count++;
	return strata_keyindex_probe_next(probe, tid);
}

bool
strata_keyindex_probe_next(StrataIndexProbe *probe, ItemPointer tid)
{
	ItemPointer found = next_tid(probe->current, ForwardScanDirection);

	if (found == NULL)
		return false;
	*tid = *found;
	return true;
}

uint64
strata_keyindex_probe_count(StrataIndexProbe *probe)
{
	return probe->count;
}

void
strata_keyindex_probe_end(StrataIndexProbe *probe)
{
	for (int i = 0; i < probe->natts; i++)
	{
		if (probe->scans[i] != NULL)
			index_endscan(probe->scans[i]);
	}
	index_close(probe->index, NoLock);
	pfree(probe);
}

/* ---- ranges ---- */

struct StrataIndexRange
{
	Relation	index;
	IndexScanDesc scan;
	ScanDirection direction;
	ScanKeyData *keys;
	NameData   *names;			/* [natts], NULL: no key column is of type name */
};

/*
 * A value of type name is kept in a B-tree as a C string, without the zeros
 * that fill it up: whoever copied it as a name would take what lies behind.
 */
static bool
is_cut_name(Relation index, int i)
{
	return index->rd_opcintype[i] == NAMEOID &&
		TupleDescAttr(RelationGetDescr(index), i)->atttypid == CSTRINGOID;
}

StrataIndexRange *
strata_keyindex_range_begin(Relation storage, Oid index, const StrataBound *bounds, int nbounds,
							bool backward)
{
	StrataIndexRange *range = palloc0(sizeof(StrataIndexRange));

	range->index = index_open(index, AccessShareLock);
	range->direction = backward ? BackwardScanDirection : ForwardScanDirection;
	range->keys = palloc(Max(nbounds, 1) * sizeof(ScanKeyData));
	for (int i = 0; i < nbounds; i++)
		ScanKeyEntryInitialize(&range->keys[i], 0, (AttrNumber) (bounds[i].column + 1),
							   (StrategyNumber) bounds[i].strategy, bounds[i].subtype,
							   range->index->rd_indcollation[bounds[i].column],
							   bounds[i].proc, bounds[i].value);
	for (int i = 0; range->names == NULL && i < RelationGetNumberOfAttributes(range->index); i++)
	{
		if (is_cut_name(range->index, i))
			range->names = palloc(RelationGetNumberOfAttributes(range->index) * sizeof(NameData));
	}
	range->scan = strata_index_beginscan(storage, range->index, &probe_snapshot, nbounds);
	range->scan->xs_want_itup = true;
	index_rescan(range->scan, range->keys, nbounds, NULL, 0);
	return range;
}

bool
strata_keyindex_range_next(StrataIndexRange *range, Datum *keyvalues, ItemPointer tid)
{
	bool		isnull[INDEX_MAX_KEYS];
	ItemPointer found = next_tid(range->scan, range->direction);

	if (found == NULL)
		return false;
	*tid = *found;
	index_deform_tuple(range->scan->xs_itup, range->scan->xs_itupdesc, keyvalues, isnull);
	for (int i = 0; range->names != NULL && i < RelationGetNumberOfAttributes(range->index); i++)
	{
		if (!is_cut_name(range->index, i))
			continue;
		namestrcpy(&range->names[i], DatumGetCString(keyvalues[i]));
		keyvalues[i] = NameGetDatum(&range->names[i]);
	}
	return true;
}

void
strata_keyindex_range_end(StrataIndexRange *range)
{
	index_endscan(range->scan);
	index_close(range->index, NoLock);
	pfree(range->keys);
	if (range->names != NULL)
		pfree(range->names);
	pfree(range);
}

/* ---- inserting ---- */

static void form_key(IndexInfo *info, const Datum *keyvalues, int natts, Datum *values,
					 bool *isnull);

struct StrataIndexInserter
{
	Relation	storage;
	int			nindexes;
	Relation   *indexes;
	IndexInfo **infos;
	MemoryContext mcxt;			/* reset after each row */
};

/*
 * Put a row's key columns in the order of an index.  Storage relations have no
 * other indexes than those over plain key columns; anything else was made
 * behind our back and would stay incomplete.
 */
static void
form_key(IndexInfo *info, const Datum *keyvalues, int natts, Datum *values, bool *isnull)
{
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		AttrNumber	attnum = info->ii_IndexAttrNumbers[i];

		if (attnum < 1 || attnum > natts)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("an index on the storage of a strata foreign table has a column that is no key column"),
					 errhint("Drop the index; strata makes its own.")));
		values[i] = keyvalues[attnum - 1];
		isnull[i] = false;
	}
}

StrataIndexInserter *
strata_keyindex_insert_begin(StrataStore *store, Relation storage)
{
	StrataIndexInserter *inserter = palloc0(sizeof(StrataIndexInserter));
	List	   *list = RelationGetIndexList(storage);
	ListCell   *lc;

	inserter->storage = storage;
	inserter->indexes = palloc(Max(1, list_length(list)) * sizeof(Relation));
	inserter->infos = palloc(Max(1, list_length(list)) * sizeof(IndexInfo *));
	inserter->mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata index insert",
										   ALLOCSET_DEFAULT_SIZES);

	/* Invalid ones, too: a REINDEX CONCURRENTLY may have left one half way. */
	foreach (lc, list)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);

		if (!index->rd_index->indisready)
		{
			index_close(index, NoLock);
			continue;
		}
		inserter->indexes[inserter->nindexes] = index;
		inserter->infos[inserter->nindexes] = BuildIndexInfo(index);
		inserter->nindexes++;
	}
	list_free(list);
	return inserter;
}

void
strata_keyindex_insert(StrataIndexInserter *inserter, const Datum *keyvalues,
					   uint32 group, uint32 row)
{
	int			natts = RelationGetNumberOfAttributes(inserter->storage);
	MemoryContext old = MemoryContextSwitchTo(inserter->mcxt);
	ItemPointerData tid;

	CHECK_FOR_INTERRUPTS();
	strata_base_tid(&tid, group, row);
	for (int i = 0; i < inserter->nindexes; i++)
	{
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		form_key(inserter->infos[i], keyvalues, natts, values, isnull);

		/*
		 * Never "unchanged": that would start bottom-up deletion, to which we
		 * have no answer.
		 */
		index_insert(inserter->indexes[i], values, isnull, &tid, inserter->storage,
					 UNIQUE_CHECK_NO, false, inserter->infos[i]);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(inserter->mcxt);
}

void
strata_keyindex_insert_end(StrataIndexInserter *inserter)
{
	for (int i = 0; i < inserter->nindexes; i++)
		index_close(inserter->indexes[i], NoLock);
	MemoryContextDelete(inserter->mcxt);
	pfree(inserter->indexes);
	pfree(inserter->infos);
	pfree(inserter);
}

/* ---- making and dropping ---- */

static void create_index(StrataStore *store, Relation storage);
static void drop_index(Oid index);
static void drop_unusable(Relation storage, List *indexes);

static void
create_index(StrataStore *store, Relation storage)
{
	const StrataKey *key = &store->key;
	IndexInfo  *info;
	List	   *columns = NIL;
	Oid			collations[INDEX_MAX_KEYS];
	Oid			opclasses[INDEX_MAX_KEYS];
	int16		options[INDEX_MAX_KEYS];
	char	   *name;
	char		prefix[NAMEDATALEN];
	Oid			index;

	info = strata_make_index_info(key->natts);
	for (int i = 0; i < key->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(storage), i);

		info->ii_IndexAttrNumbers[i] = i + 1;
		columns = lappend(columns, pstrdup(NameStr(attribute->attname)));
		collations[i] = attribute->attcollation;
		opclasses[i] = key->btree_opclass[i];
		options[i] = 0;
	}

	snprintf(prefix, sizeof(prefix), "s%u", store->ftrelid);
	name = ChooseRelationName(prefix, NULL, "key", RelationGetNamespace(storage), false);

	index = strata_index_create(storage, name, info, columns, collations, opclasses, options);
	CommandCounterIncrement();
	strata_forget_collations(index);
}

static void
drop_index(Oid index)
{
	ObjectAddress address;

	ObjectAddressSet(address, RelationRelationId, index);
	performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
}

/*
 * Drop indexes that nobody can use, if readers can be locked out at this very
 * moment.  The lock is not kept to the end of the pass: readers look only at
 * the catalog rows of unusable indexes, and whoever would open one needs a
 * lock that conflicts with the caller's.
 */
static void
drop_unusable(Relation storage, List *indexes)
{
	bool		held = CheckRelationLockedByMe(storage, AccessExclusiveLock, false);
	ListCell   *lc;

	if (!held && !ConditionalLockRelation(storage, AccessExclusiveLock))
		return;
	foreach (lc, indexes)
		drop_index(lfirst_oid(lc));

	/* ours, and one for each index_drop */
	while (!held && CheckRelationLockedByMe(storage, AccessExclusiveLock, false))
		UnlockRelation(storage, AccessExclusiveLock);
}

bool
strata_keyindex_ensure(StrataStore *store, Relation storage)
{
	KeyIndexState state;
	bool		built = false;

	if (store->key.natts == 0)
		return false;

	look_at_indexes(storage, &state);
	if (!OidIsValid(state.usable))
	{
		create_index(store, storage);
		built = true;
	}
	if (state.unusable != NIL)
		drop_unusable(storage, state.unusable);
	list_free(state.unusable);
	return built;
}

bool
strata_keyindex_drop(StrataStore *store, Relation storage)
{
	List	   *indexes = RelationGetIndexList(storage);
	bool		dropped = indexes != NIL;
	ListCell   *lc;

	Assert(CheckRelationLockedByMe(storage, AccessExclusiveLock, true));

	foreach (lc, indexes)
		drop_index(lfirst_oid(lc));
	list_free(indexes);
	return dropped;
}

/* ---- building ---- */

typedef struct BuildGroup
{
	uint32		number;
	StrataGroupRef ref;
	const StrataRowGroup *seen; /* to tell deleted rows, NULL: feed all */
} BuildGroup;

typedef struct BuildGroups
{
	int			n;
	int			size;
	BuildGroup *groups;
} BuildGroups;

static void add_build_group(BuildGroups *list, uint32 number, const StrataGroupRef *ref,
							const StrataRowGroup *seen);
static void collect_group(uint32 number, const StrataGroupRef *ref, void *arg);
static int	build_group_cmp(const void *a, const void *b);
static double build_from_group(StrataStore *store, Relation storage, Relation index,
							   IndexInfo *info, const BuildGroup *group,
							   const Bitmapset *needed, IndexBuildCallback callback,
							   void *state);

static void
add_build_group(BuildGroups *list, uint32 number, const StrataGroupRef *ref,
				const StrataRowGroup *seen)
{
	if (list->n == list->size)
	{
		list->size = Max(64, list->size * 2);
		list->groups = list->groups == NULL ?
			palloc(list->size * sizeof(BuildGroup)) :
			repalloc_huge(list->groups, (Size) list->size * sizeof(BuildGroup));
	}
	list->groups[list->n].number = number;
	list->groups[list->n].ref = *ref;
	list->groups[list->n].seen = seen;
	list->n++;
}

static void
collect_group(uint32 number, const StrataGroupRef *ref, void *arg)
{
	/* Dictionaries are reported, too; they have no rows. */
	if (ref->rows > 0)
		add_build_group(arg, number, ref, NULL);
}

static int
build_group_cmp(const void *a, const void *b)
{
	const BuildGroup *x = a;
	const BuildGroup *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Feed the rows of one row group; allocates in a context of its own. */
static double
build_from_group(StrataStore *store, Relation storage, Relation index, IndexInfo *info,
				 const BuildGroup *group, const Bitmapset *needed,
				 IndexBuildCallback callback, void *state)
{
	int			natts = RelationGetNumberOfAttributes(storage);
	MemoryContext group_context = AllocSetContextCreate(CurrentMemoryContext,
														"strata index build group",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext row_context = AllocSetContextCreate(group_context, "strata index build row",
													  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(group_context);
	StrataGroupReader *reader = strata_group_open(store, storage, &group->ref, needed, true);
	uint32		nrows = strata_group_rows(reader);
	double		fed = 0;

	MemoryContextSwitchTo(row_context);
	for (uint32 row = 0; row < nrows; row++)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		if (group->seen != NULL && strata_row_deleted(group->seen, row))
			continue;
		strata_group_fetch_key(reader, row, keyvalues);
		form_key(info, keyvalues, natts, values, isnull);
		strata_base_tid(&tid, group->number, row);
		callback(index, &tid, values, isnull, true, state);
		fed++;
		MemoryContextReset(row_context);
	}
	MemoryContextSwitchTo(old);
	strata_group_close(reader);
	MemoryContextDelete(group_context);
	return fed;
}

double
strata_keyindex_build_scan(Relation storage, Relation index, struct IndexInfo *index_info,
						   Snapshot snapshot, IndexBuildCallback callback, void *state)
{
	Oid			ftrelid = strata_store_of_storage(RelationGetRelid(storage));
	StrataMetaData meta;
	StrataStore *store;
	StrataManifest *manifest = NULL;
	Snapshot	latest = NULL;
	BuildGroups list = {0};
	Bitmapset  *needed = NULL;
	double		rows = 0;

	if (!OidIsValid(ftrelid) || !strata_meta_read(storage, &meta))
		return 0;
	store = strata_store_open(ftrelid);

	/* What the manifest lists is remembered first: reading takes long. */
	if (snapshot == NULL)
	{
		TransactionId horizon = strata_meta_horizon(storage);

		/*
		 * Who uses the new index misses what is left out here.  Nobody on
		 * this server wants it; a standby may have readers who do, and they
		 * must be gone when the index appears there.
		 */
		if (strata_manifest_all_versions(ftrelid, meta.incarnation, horizon, collect_group, NULL,
										 &list))
			strata_log_conflict(storage, horizon);
	}
	else
	{
		/* amcheck locks out passes before it asks for "any" row. */
		if (!IsMVCCSnapshot(snapshot))
			snapshot = latest = RegisterSnapshot(GetLatestSnapshot());
		manifest = strata_manifest_get(store, storage, snapshot);
		if (manifest->merged && manifest->incarnation == meta.incarnation)
		{
			for (int i = 0; i < manifest->ngroups; i++)
				add_build_group(&list, manifest->groups[i].number,
								&manifest->groups[i].ref, &manifest->groups[i]);
		}
	}
	if (list.n > 0)
		qsort(list.groups, list.n, sizeof(BuildGroup), build_group_cmp);

	for (int i = 0; i < store->key.natts; i++)
		needed = bms_add_member(needed, store->key.attnum[i]);
	for (int i = 0; i < list.n; i++)
	{
		/* A row group has one entry for each version of its manifest row. */
		if (i == 0 || list.groups[i].number != list.groups[i - 1].number)
			rows += build_from_group(store, storage, index, index_info, &list.groups[i],
									 needed, callback, state);
	}

	if (manifest != NULL)
		strata_manifest_release(manifest);
	if (latest != NULL)
		UnregisterSnapshot(latest);
	strata_store_close(store);
	bms_free(needed);
	if (list.groups != NULL)
		pfree(list.groups);
	return rows;
}

/* ---- removing ---- */

typedef struct BulkDelete
{
	StrataDeadTid dead;
	void	   *arg;
} BulkDelete;

static bool bulk_delete_callback(ItemPointer tid, void *state);

static bool
bulk_delete_callback(ItemPointer tid, void *state)
{
	BulkDelete *bulk = state;

	return bulk->dead(strata_tid_group(tid), strata_tid_row(tid), bulk->arg);
}

uint64
strata_keyindex_bulk_delete(Relation storage, StrataDeadTid dead, void *arg)
{
	List	   *indexes = RelationGetIndexList(storage);
	BulkDelete	bulk = {dead, arg};
	uint64		removed = 0;
	ListCell   *lc;

	foreach (lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);
		IndexVacuumInfo info;
		IndexBulkDeleteResult *result;

		if (index->rd_index->indisready)
		{
			strata_index_vacuum_info(&info, storage, index);
			result = index_bulk_delete(&info, NULL, bulk_delete_callback, &bulk);
			result = index_vacuum_cleanup(&info, result);
			if (result != NULL)
			{
				removed += (uint64) result->tuples_removed;
				pfree(result);
			}
			FreeAccessStrategy(info.strategy);
		}
		index_close(index, NoLock);
	}
	list_free(indexes);
	return removed;
}
