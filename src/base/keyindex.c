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
 * passes take.
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
#include "catalog/pg_database.h"
#include "catalog/pg_index.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* ---- collation versions ---- */

/* What this session found out about a collation. */
typedef struct CollationCheck
{
	Oid			collation;
	bool		trusted;
} CollationCheck;

static CollationCheck *checked = NULL;
static int	nchecked = 0;

static void forget_collations(Datum arg, int cacheid, uint32 hashvalue);
static char *recorded_version(Oid collation, char *provider, char **locale);
static bool collation_trusted(Relation index, Oid collation);

/* ---- finding ---- */

typedef struct KeyIndexState
{
	Oid			usable;			/* valid, ready, right columns */
	List	   *unusable;		/* others */
} KeyIndexState;

static bool is_btree(Oid indexrelid);
static bool is_usable(Oid indexrelid, int natts);
static void look_at_indexes(Relation storage, KeyIndexState *state);

/*
 * A collation or the database was changed (REFRESH VERSION, for one): look
 * again.
 */
static void
forget_collations(Datum arg, int cacheid, uint32 hashvalue)
{
	nchecked = 0;
}

/*
 * The version that the catalog recorded for a collation, NULL when it keeps
 * none; what to compute the actual one from goes to provider and locale.
 */
static char *
recorded_version(Oid collation, char *provider, char **locale)
{
	HeapTuple	tuple;
	Datum		value;
	bool		isnull;
	char	   *version;

	*locale = NULL;
	if (collation == DEFAULT_COLLATION_OID)
	{
		Form_pg_database database;

		tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
		database = (Form_pg_database) GETSTRUCT(tuple);
		*provider = database->datlocprovider;
		value = SysCacheGetAttr(DATABASEOID, tuple,
								*provider == COLLPROVIDER_ICU ?
								Anum_pg_database_daticulocale : Anum_pg_database_datcollate,
								&isnull);
		if (!isnull)
			*locale = TextDatumGetCString(value);
		value = SysCacheGetAttr(DATABASEOID, tuple, Anum_pg_database_datcollversion, &isnull);
	}
	else
	{
		tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for collation %u", collation);
		*provider = ((Form_pg_collation) GETSTRUCT(tuple))->collprovider;
		value = SysCacheGetAttr(COLLOID, tuple,
								*provider == COLLPROVIDER_ICU ?
								Anum_pg_collation_colliculocale : Anum_pg_collation_collcollate,
								&isnull);
		if (!isnull)
			*locale = TextDatumGetCString(value);
		value = SysCacheGetAttr(COLLOID, tuple, Anum_pg_collation_collversion, &isnull);
	}
	version = isnull ? NULL : TextDatumGetCString(value);
	ReleaseSysCache(tuple);
	return version;
}

/*
 * Does the collation still sort as when its version was recorded?  Asked once
 * a session, with a warning when not.
 */
static bool
collation_trusted(Relation index, Oid collation)
{
	static bool registered = false;
	char	   *recorded;
	char	   *actual = NULL;
	char	   *locale;
	char		provider;
	bool		trusted;

	if (!OidIsValid(collation))
		return true;
	for (int i = 0; i < nchecked; i++)
	{
		if (checked[i].collation == collation)
			return checked[i].trusted;
	}

	if (!registered)
	{
		CacheRegisterSyscacheCallback(COLLOID, forget_collations, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, forget_collations, (Datum) 0);
		registered = true;
	}

	recorded = recorded_version(collation, &provider, &locale);
	if (recorded != NULL && locale != NULL)
		actual = get_collation_actual_version(provider, locale);
	trusted = recorded == NULL || (actual != NULL && strcmp(recorded, actual) == 0);

	if (!trusted)
		ereport(WARNING,
				(errcode(ERRCODE_COLLATION_MISMATCH),
				 errmsg("key index \"%s\" is not used because collation \"%s\" has changed",
						RelationGetRelationName(index), get_collation_name(collation)),
				 errdetail("The catalog recorded version %s, the operating system provides version %s.",
						   recorded, actual ? actual : "(none)"),
				 errhint("Rebuild the index with REINDEX, then use ALTER %s ... REFRESH %sVERSION.",
						 collation == DEFAULT_COLLATION_OID ? "DATABASE" : "COLLATION",
						 collation == DEFAULT_COLLATION_OID ? "COLLATION " : "")));

	if (checked == NULL)
		checked = MemoryContextAlloc(TopMemoryContext, sizeof(CollationCheck));
	else
		checked = repalloc(checked, (nchecked + 1) * sizeof(CollationCheck));
	checked[nchecked].collation = collation;
	checked[nchecked].trusted = trusted;
	nchecked++;
	return trusted;
}

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
	foreach(lc, indexes)
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
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (!collation_trusted(index, index->rd_indcollation[i]))
		{
			state.usable = InvalidOid;
			break;
		}
	}
	index_close(index, NoLock);
	return state.usable;
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

/*
 * nbtree decides by the kind of snapshot whether it keeps a leaf page pinned
 * between two TIDs, which would make sweep wait for an idle cursor.  Nothing
 * else of a snapshot matters to an index scan that fetches no rows, so this
 * one, which only has its kind, serves all probes.
 */
static SnapshotData probe_snapshot = {.snapshot_type = SNAPSHOT_MVCC};

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
		probe->scans[nkeys - 1] = index_beginscan(probe->storage, probe->index,
												  &probe_snapshot, nkeys, 0);
	MemoryContextSwitchTo(old);

	probe->current = probe->scans[nkeys - 1];
	index_rescan(probe->current, probe->keys, nkeys, NULL, 0);
	probe->count++;
	return strata_keyindex_probe_next(probe, tid);
}

bool
strata_keyindex_probe_next(StrataIndexProbe *probe, ItemPointer tid)
{
	ItemPointer found;

	CHECK_FOR_INTERRUPTS();
	found = index_getnext_tid(probe->current, ForwardScanDirection);
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
	foreach(lc, list)
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

	info = makeIndexInfo(key->natts, key->natts, BTREE_AM_OID, NIL, NIL,
						 false, false, true, false);
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

	index_create(storage, name, InvalidOid, InvalidOid, InvalidOid, InvalidOid,
				 info, columns, BTREE_AM_OID, storage->rd_rel->reltablespace,
				 collations, opclasses, options, (Datum) 0, 0, 0, true, true, NULL);
	CommandCounterIncrement();
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
	foreach(lc, indexes)
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

	foreach(lc, indexes)
		drop_index(lfirst_oid(lc));
	list_free(indexes);
	return dropped;
}

/* ---- building ---- */

typedef struct BuildGroup
{
	uint32		number;
	StrataGroupRef ref;
} BuildGroup;

typedef struct BuildGroups
{
	int			n;
	int			size;
	BuildGroup *groups;
} BuildGroups;

static void collect_group(uint32 number, const StrataGroupRef *ref, void *arg);
static int	build_group_cmp(const void *a, const void *b);

static void
collect_group(uint32 number, const StrataGroupRef *ref, void *arg)
{
	BuildGroups *list = arg;

	/* Dictionaries are reported, too; they have no rows. */
	if (ref->rows == 0)
		return;
	if (list->n == list->size)
	{
		list->size *= 2;
		list->groups = repalloc_huge(list->groups, (Size) list->size * sizeof(BuildGroup));
	}
	list->groups[list->n].number = number;
	list->groups[list->n].ref = *ref;
	list->n++;
}

static int
build_group_cmp(const void *a, const void *b)
{
	const BuildGroup *x = a;
	const BuildGroup *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

double
strata_keyindex_build_scan(Relation storage, Relation index, struct IndexInfo *index_info,
						   IndexBuildCallback callback, void *state)
{
	Oid			ftrelid = strata_store_of_storage(RelationGetRelid(storage));
	int			natts = RelationGetNumberOfAttributes(storage);
	StrataMetaData meta;
	StrataStore *store;
	BuildGroups list;
	Bitmapset  *needed = NULL;
	MemoryContext group_context;
	MemoryContext row_context;
	MemoryContext old;
	double		rows = 0;

	if (!OidIsValid(ftrelid) || !strata_meta_read(storage, &meta))
		return 0;

	/* What the manifest lists is remembered first: reading takes long. */
	list.n = 0;
	list.size = 64;
	list.groups = palloc(list.size * sizeof(BuildGroup));
	strata_manifest_all_versions(ftrelid, meta.incarnation,
								 GetOldestNonRemovableTransactionId(storage),
								 collect_group, NULL, &list);
	qsort(list.groups, list.n, sizeof(BuildGroup), build_group_cmp);

	store = strata_store_open(ftrelid);
	for (int i = 0; i < store->key.natts; i++)
		needed = bms_add_member(needed, store->key.attnum[i]);

	group_context = AllocSetContextCreate(CurrentMemoryContext, "strata index build group",
										  ALLOCSET_DEFAULT_SIZES);
	row_context = AllocSetContextCreate(CurrentMemoryContext, "strata index build row",
										ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < list.n; i++)
	{
		StrataGroupReader *reader;
		uint32		nrows;

		/* A row group has one row for each version of its manifest row. */
		if (i > 0 && list.groups[i].number == list.groups[i - 1].number)
			continue;

		old = MemoryContextSwitchTo(group_context);
		reader = strata_group_open(store, storage, &list.groups[i].ref, needed, true);
		nrows = strata_group_rows(reader);

		MemoryContextSwitchTo(row_context);
		for (uint32 row = 0; row < nrows; row++)
		{
			Datum		keyvalues[INDEX_MAX_KEYS];
			Datum		values[INDEX_MAX_KEYS];
			bool		isnull[INDEX_MAX_KEYS];
			ItemPointerData tid;

			CHECK_FOR_INTERRUPTS();
			strata_group_fetch_key(reader, row, keyvalues);
			form_key(index_info, keyvalues, natts, values, isnull);
			strata_base_tid(&tid, list.groups[i].number, row);
			callback(index, &tid, values, isnull, true, state);
			rows++;
			MemoryContextReset(row_context);
		}
		MemoryContextSwitchTo(old);
		strata_group_close(reader);
		MemoryContextReset(group_context);
	}

	MemoryContextDelete(row_context);
	MemoryContextDelete(group_context);
	strata_store_close(store);
	bms_free(needed);
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

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), RowExclusiveLock);
		IndexVacuumInfo info;
		IndexBulkDeleteResult *result;

		if (index->rd_index->indisready)
		{
			memset(&info, 0, sizeof(info));
			info.index = index;
			info.estimated_count = true;
			info.message_level = DEBUG2;
			info.num_heap_tuples = index->rd_rel->reltuples;
			info.strategy = GetAccessStrategy(BAS_VACUUM);

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
