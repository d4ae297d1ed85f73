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

#include "compat.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "common/hashfn.h"
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
	uint32		version;
	char	   *recorded;		/* NULL: none */
	char	   *actual;			/* NULL: none */
	bool		trusted;
	bool		warned;
} CollationCheck;

static CollationCheck *checked = NULL;
static int	nchecked = 0;
static MemoryContext checked_mcxt = NULL;
static bool checks_stale = false;

static void forget_collations(Datum arg, int cacheid, uint32 hashvalue);
static char *recorded_version(Oid collation, char *provider, char **locale);
static CollationCheck *check_collation(Oid collation);

/*
 * A collation or the database was changed (REFRESH VERSION, for one): look
 * again.
 */
static void
forget_collations(Datum arg, int cacheid, uint32 hashvalue)
{
	checks_stale = true;
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
								*provider == COLLPROVIDER_LIBC ?
									Anum_pg_database_datcollate :
									strata_database_locale,
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
								*provider == COLLPROVIDER_LIBC ?
									Anum_pg_collation_collcollate :
									strata_collation_locale,
								&isnull);
		if (!isnull)
			*locale = TextDatumGetCString(value);
		value = SysCacheGetAttr(COLLOID, tuple, Anum_pg_collation_collversion, &isnull);
	}
	version = isnull ? NULL : TextDatumGetCString(value);
	ReleaseSysCache(tuple);
	return version;
}

/* Look a collation up, once a session and again when the catalog changes. */
static CollationCheck *
check_collation(Oid collation)
{
	CollationCheck *check;
	MemoryContext old;
	char	   *locale;
	char		provider;

	if (checked_mcxt == NULL)
	{
		checked_mcxt = AllocSetContextCreate(TopMemoryContext, "strata collations",
											 ALLOCSET_SMALL_SIZES);
		CacheRegisterSyscacheCallback(COLLOID, forget_collations, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, forget_collations, (Datum) 0);
	}
	if (checks_stale)
	{
		MemoryContextReset(checked_mcxt);
		checked = NULL;
		nchecked = 0;
		checks_stale = false;
	}
	for (int i = 0; i < nchecked; i++)
	{
		if (checked[i].collation == collation)
			return &checked[i];
	}

	old = MemoryContextSwitchTo(checked_mcxt);
	checked = checked == NULL ? palloc(sizeof(CollationCheck)) :
		repalloc(checked, (nchecked + 1) * sizeof(CollationCheck));
	check = &checked[nchecked];
	memset(check, 0, sizeof(*check));
	check->collation = collation;
	check->recorded = recorded_version(collation, &provider, &locale);
	if (locale != NULL)
		check->actual = get_collation_actual_version(provider, locale);
	check->trusted = check->recorded == NULL ||
		(check->actual != NULL && strcmp(check->recorded, check->actual) == 0);
	if (check->actual != NULL)
		check->version = DatumGetUInt32(hash_any((unsigned char *) check->actual,
												 strlen(check->actual)));
	nchecked++;
	MemoryContextSwitchTo(old);
	return check;
}

uint32
strata_collation_version(Oid collation)
{
	return OidIsValid(collation) ? check_collation(collation)->version : 0;
}

/*
 * Does the collation still sort as when its version was recorded?  Warns once
 * when not.
 */
bool
strata_collation_trusted(const char *index, Oid collation)
{
	CollationCheck *check;

	if (!OidIsValid(collation))
		return true;
	check = check_collation(collation);
	if (!check->trusted && !check->warned)
	{
		check->warned = true;
		ereport(WARNING,
				(errcode(ERRCODE_COLLATION_MISMATCH),
				 errmsg("key index \"%s\" is not used because collation \"%s\" has changed",
						index, get_collation_name(collation)),
				 errdetail("The catalog recorded version %s, the operating system provides version %s.",
						   check->recorded, check->actual ? check->actual : "(none)"),
				 errhint("Rebuild it with strata.drop_key_index and strata.create_key_index, then use ALTER %s ... REFRESH %sVERSION.",
						 collation == DEFAULT_COLLATION_OID ? "DATABASE" : "COLLATION",
						 collation == DEFAULT_COLLATION_OID ? "COLLATION " : "")));
	}
	return check->trusted;
}
