/*-------------------------------------------------------------------------
 *
 * collation.c
 *	  Does a collation still sort as it did?
 *
 * The order of a key index is that of its collations when it was built, which
 * an update of the operating system may change.  PostgreSQL records versions
 * per collation (and per database for the default one), not per index; what is
 * recorded there is taken for what the indexes were built with, as core's own
 * advice to the administrator is: rebuild, then refresh the recorded version.
 *
 * IDENTIFICATION
 *	  src/base/collation.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/collation.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/syscache.h"

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
bool
strata_collation_trusted(const char *index, Oid collation)
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
						index, get_collation_name(collation)),
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
