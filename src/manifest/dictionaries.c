/*-------------------------------------------------------------------------
 *
 * dictionaries.c
 *	  Rows of strata.dictionary: where the zstd dictionaries of a store are.
 *
 * Every look uses the catalog snapshot.  See manifest.h for why that is right
 * for a reader whose own snapshot is older: a row goes only with TRUNCATE, DROP
 * or repair, which hold AccessExclusiveLock on the storage relation.
 *
 * Locks: AccessShareLock on the table; writers as in manifest_write.c.
 *
 * IDENTIFICATION
 *	  src/manifest/dictionaries.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pause.h"
#include "manifest/catalog.h"

#include "catalog/indexing.h"

bool
strata_manifest_dictionary(Oid ftrelid, uint64 id, StrataDictionaryRef *ref)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin_at(&scan, STRATA_TABLE_DICTIONARY, AccessShareLock, ftrelid,
							   (int64) id, NULL);
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
	{
		StrataDictionaryRow row;

		strata_decode_dictionary(scan.rel, tuple, &row);
		*ref = row.ref;
	}
	strata_table_scan_end(&scan);
	return HeapTupleIsValid(tuple);
}

StrataDictionaryRef *
strata_manifest_dictionaries(Oid ftrelid, uint32 incarnation, int *n)
{
	int			max = 16;
	StrataDictionaryRef *refs = palloc(max * sizeof(StrataDictionaryRef));
	StrataTableScan scan;
	HeapTuple	tuple;

	*n = 0;
	strata_table_scan_begin(&scan, STRATA_TABLE_DICTIONARY, AccessShareLock, ftrelid, NULL);
	while (HeapTupleIsValid(tuple = strata_table_scan_next(&scan)))
	{
		StrataDictionaryRow row;

		strata_decode_dictionary(scan.rel, tuple, &row);
		if (row.incarnation != incarnation)
			continue;
		if (*n == max)
		{
			max *= 2;
			refs = repalloc_huge(refs, (Size) max * sizeof(StrataDictionaryRef));
		}
		refs[(*n)++] = row.ref;
	}
	strata_table_scan_end(&scan);
	return refs;
}

void
strata_manifest_add_dictionary(StrataStore *store, uint32 incarnation,
							   const StrataDictionaryRef *ref)
{
	StrataDictionaryRow row = {.incarnation = incarnation, .ref = *ref};

	strata_dictionary_row_insert(store->ftrelid, &row);
	STRATA_PAUSE("manifest-dictionary-added");
}

void
strata_manifest_remove_dictionary(StrataStore *store, uint64 id)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin_at(&scan, STRATA_TABLE_DICTIONARY, RowExclusiveLock,
							   store->ftrelid, (int64) id, NULL);
	tuple = strata_table_scan_next(&scan);
	if (HeapTupleIsValid(tuple))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	strata_table_scan_end(&scan);
}

void
strata_manifest_move_dictionary(StrataStore *store, uint32 incarnation,
								const StrataDictionaryRef *ref)
{
	StrataTableScan scan;
	HeapTuple	tuple;

	strata_table_scan_begin_at(&scan, STRATA_TABLE_DICTIONARY, RowExclusiveLock, store->ftrelid,
							   (int64) ref->extent.owner, NULL);
	tuple = strata_table_scan_next(&scan);
	if (!HeapTupleIsValid(tuple))
		strata_table_corrupted(STRATA_TABLE_DICTIONARY, "a dictionary has no row");
	CatalogTupleDelete(scan.rel, &tuple->t_self);
	strata_table_scan_end(&scan);
	strata_manifest_add_dictionary(store, incarnation, ref);
}
