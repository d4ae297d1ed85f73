/*-------------------------------------------------------------------------
 *
 * options.c
 *	  Table options of strata foreign tables and the GUCs that are their
 *	  defaults.
 *
 * One table names every option with its type, range and default.  The
 * validator, the parser and the GUC definitions all read it, so that an
 * option and its GUC accept the same values with the same units: sizes are
 * bytes unless a unit is given, times seconds.
 *
 * The validator sees names and values only.  Whether a key column exists is
 * checked where the columns are known, when the store is made or changed
 * (lifecycle.c).
 *
 * Parsed options contain GUC values.  Whoever keeps them compares
 * strata_gucs_changed, which counts changes of those GUCs.
 *
 * IDENTIFICATION
 *	  src/manifest/options.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "manifest/options.h"

#include "compat.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "nodes/value.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(strata_validator);

/* Sizes beyond this are not exact in a double, nor of any use. */
#define MAX_BYTES		((double) ((int64) 1 << 50))

#define KILOBYTE		1024.0
#define MEGABYTE		(1024.0 * 1024.0)
#define GIGABYTE		(1024.0 * 1024.0 * 1024.0)

typedef enum OptionType
{
	OPTION_INT,					/* int */
	OPTION_SECONDS,				/* int, with time units */
	OPTION_COUNT,				/* int64 */
	OPTION_BYTES,				/* int64, with memory units */
	OPTION_BOOL,
	OPTION_ON_DUPLICATE,
	OPTION_KEY,					/* column names */
	OPTION_STORE,				/* name of a table */
	OPTION_LAYER
} OptionType;

typedef struct OptionDef
{
	const char *name;
	OptionType	type;
	Size		offset;			/* in StrataOptions */
	double		min;
	double		max;
	double		boot;			/* built-in default */
	const char *description;	/* of the GUC; NULL: there is none */
	double	   *bytes;			/* value of the GUC of a size */
	GucShowHook show;			/* how it is shown */
} OptionDef;

/*
 * GUCs that are sizes are doubles, as an int ends at 2 GB.  A double is shown
 * with six digits unless one does it oneself.
 */
static double row_group_bytes;
static double generation_max_bytes;
static double merge_max_bytes;

static const char *
show_bytes(double value)
{
	static char buf[32];
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
	int64		number = (int64) rint(value);
	int			unit = 0;

	while (number != 0 && number % 1024 == 0 && unit < (int) lengthof(units) - 1)
	{
		number /= 1024;
		unit++;
	}
	snprintf(buf, sizeof(buf), INT64_FORMAT "%s", number, units[unit]);
	return buf;
}

static const char *
show_row_group_bytes(void)
{
	return show_bytes(row_group_bytes);
}

static const char *
show_generation_max_bytes(void)
{
	return show_bytes(generation_max_bytes);
}

static const char *
show_merge_max_bytes(void)
{
	return show_bytes(merge_max_bytes);
}

static const OptionDef option_defs[] = {
	{"key", OPTION_KEY, offsetof(StrataOptions, key), 0, 0, 0, NULL, NULL, NULL},
	{"shards", OPTION_INT, offsetof(StrataOptions, shards),
		1, STRATA_MAX_SHARDS, 1,
	"Number of append logs of a new store.", NULL, NULL},
	{"on_duplicate", OPTION_ON_DUPLICATE, offsetof(StrataOptions, on_duplicate),
		0, 0, STRATA_ON_DUPLICATE_REPLACE,
	"What an inserted row does to an existing one with its key.", NULL, NULL},
	{"compression_level", OPTION_INT, offsetof(StrataOptions, compression_level),
		1, 22, 1,
	"zstd compression level of appended data.", NULL, NULL},
	{"row_group_rows", OPTION_INT, offsetof(StrataOptions, row_group_rows),
		1, STRATA_MAX_GROUP_ROWS, STRATA_MAX_GROUP_ROWS,
	"Largest number of rows in a row group.", NULL, NULL},
	{"row_group_bytes", OPTION_BYTES, offsetof(StrataOptions, row_group_bytes),
		KILOBYTE, GIGABYTE, 16 * MEGABYTE,
	"Size of a row group before compression.",
	&row_group_bytes, show_row_group_bytes},
	{"generation_max_bytes", OPTION_BYTES, offsetof(StrataOptions, generation_max_bytes),
		1, MAX_BYTES, 8 * MEGABYTE,
	"Stored size at which a generation is sealed.",
	&generation_max_bytes, show_generation_max_bytes},
	{"generation_max_rows", OPTION_COUNT, offsetof(StrataOptions, generation_max_rows),
		1, INT_MAX, 65536,
	"Number of rows at which a generation is sealed.", NULL, NULL},
	{"merge_after_generations", OPTION_INT, offsetof(StrataOptions, merge_after_generations),
		0, INT_MAX, 8,
	"Number of sealed generations that starts a merge; 0 turns this trigger off.", NULL, NULL},
	{"merge_interval", OPTION_SECONDS, offsetof(StrataOptions, merge_interval),
		0, INT_MAX, 60,
	"Time after which pending rows are merged; 0 turns this trigger off.", NULL, NULL},
	{"merge_max_generations", OPTION_INT, offsetof(StrataOptions, merge_max_generations),
		0, INT_MAX, 8,
	"Largest number of generations that a pass merges; 0 is no limit.", NULL, NULL},
	{"merge_max_bytes", OPTION_BYTES, offsetof(StrataOptions, merge_max_bytes),
		0, MAX_BYTES, GIGABYTE,
	"Stored size of the generations that a pass merges; 0 is no limit.",
	&merge_max_bytes, show_merge_max_bytes},
	{"auto_merge", OPTION_BOOL, offsetof(StrataOptions, auto_merge),
		0, 1, 1,
	"Merges pending rows in the background.", NULL, NULL},
	{"store", OPTION_STORE, offsetof(StrataOptions, store), 0, 0, 0, NULL, NULL, NULL},
	{"layer", OPTION_LAYER, offsetof(StrataOptions, layer), 0, 0, 0, NULL, NULL, NULL}};

static const struct config_enum_entry on_duplicate_values[] = {
	{"replace", STRATA_ON_DUPLICATE_REPLACE, false},
	{"error", STRATA_ON_DUPLICATE_ERROR, false},
	{"ignore", STRATA_ON_DUPLICATE_IGNORE, false},
	{NULL, 0, false}};

/* Values of the other GUCs that are defaults, by position in option_defs. */
static union
{
	int			i;
	bool		b;
}			guc_values[lengthof(option_defs)];

int			strata_cache_size = 64 * 1024;
bool		strata_index_before_merge = true;
uint64		strata_gucs_changed = 0;

static void
assign_int(int newval, void *extra)
{
	strata_gucs_changed++;
}

static void
assign_real(double newval, void *extra)
{
	strata_gucs_changed++;
}

static void
assign_bool(bool newval, void *extra)
{
	strata_gucs_changed++;
}

void
strata_define_gucs(void)
{
	for (int i = 0; i < (int) lengthof(option_defs); i++)
	{
		const OptionDef *def = &option_defs[i];
		char	   *name;

		if (def->description == NULL)
			continue;
		name = MemoryContextStrdup(TopMemoryContext, psprintf("strata.%s", def->name));

		switch (def->type)
		{
			case OPTION_INT:
			case OPTION_SECONDS:
			case OPTION_COUNT:
				DefineCustomIntVariable(name, def->description, NULL, &guc_values[i].i,
										(int) def->boot, (int) def->min, (int) def->max,
										PGC_USERSET,
										def->type == OPTION_SECONDS ? GUC_UNIT_S : 0,
										NULL, assign_int, NULL);
				break;
			case OPTION_BYTES:
				DefineCustomRealVariable(name, def->description, NULL, def->bytes,
										 def->boot, def->min, def->max,
										 PGC_USERSET, GUC_UNIT_BYTE,
										 NULL, assign_real, def->show);
				break;
			case OPTION_BOOL:
				DefineCustomBoolVariable(name, def->description, NULL, &guc_values[i].b,
										 def->boot != 0, PGC_USERSET, 0,
										 NULL, assign_bool, NULL);
				break;
			case OPTION_ON_DUPLICATE:
				DefineCustomEnumVariable(name, def->description, NULL, &guc_values[i].i,
										 (int) def->boot, on_duplicate_values,
										 PGC_USERSET, 0, NULL, assign_int, NULL);
				break;
			case OPTION_KEY:
			case OPTION_STORE:
			case OPTION_LAYER:
				break;
		}
	}

	DefineCustomIntVariable("strata.cache_size",
							"Memory of a session for decoded rows and keys.",
							NULL, &strata_cache_size,
							64 * 1024, 64, MAX_KILOBYTES,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata.index_before_merge",
							 "Builds a missing key index before a merge.",
							 "When off, a merge without key index reads the key columns of the whole base table.",
							 &strata_index_before_merge,
							 true, PGC_USERSET, 0, NULL, NULL, NULL);
}

static void invalid_value(const DefElem *elem, const char *detail,
						  const char *hint) pg_attribute_noreturn();

static void
invalid_value(const DefElem *elem, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"",
					elem->defname, defGetString((DefElem *) elem)),
			 detail ? errdetail_internal("%s", detail) : 0,
			 hint ? errhint("%s", hint) : 0));
}

/* A number with an optional unit, as in postgresql.conf. */
static double
parse_number(const OptionDef *def, DefElem *elem)
{
	int			unit = 0;
	const char *hint = NULL;
	double		value;

	if (def->type == OPTION_BYTES)
		unit = GUC_UNIT_BYTE;
	else if (def->type == OPTION_SECONDS)
		unit = GUC_UNIT_S;

	if (!parse_real(defGetString(elem), &value, unit, &hint) || isnan(value))
		invalid_value(elem, NULL, hint);
	value = rint(value);
	if (value < def->min || value > def->max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value \"%s\" of option \"%s\" is out of range",
						defGetString(elem), elem->defname),
				 errdetail("It must be between %.0f and %.0f%s.", def->min, def->max,
						   unit == GUC_UNIT_BYTE ? " bytes" :
						   unit == GUC_UNIT_S    ? " seconds" :
												   "")));
	return value;
}

/* Column names separated by commas, quoted where SQL needs it. */
static List *
parse_key(DefElem *elem)
{
	List	   *names;
	List	   *key = NIL;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(defGetString(elem)), ',', &names) || names == NIL)
		invalid_value(elem, "It must be a list of column names separated by commas.", NULL);
	foreach (lc, names)
	{
		String	   *name = makeString(lfirst(lc));

		if (list_member(key, name))
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_COLUMN),
					 errmsg("column \"%s\" is in the key twice", strVal(name))));
		key = lappend(key, name);
	}
	if (list_length(key) > INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("a key cannot have more than %d columns", INDEX_MAX_KEYS)));
	return key;
}

static StrataOnDuplicate
parse_on_duplicate(DefElem *elem)
{
	const char *value = defGetString(elem);

	for (const struct config_enum_entry *entry = on_duplicate_values; entry->name; entry++)
	{
		if (pg_strcasecmp(entry->name, value) == 0)
			return (StrataOnDuplicate) entry->val;
	}
	invalid_value(elem, NULL, "Available values: replace, error, ignore.");
}

static StrataLayer
parse_layer(DefElem *elem)
{
	const char *value = defGetString(elem);

	if (pg_strcasecmp(value, "wal") == 0)
		return STRATA_LAYER_WAL;
	if (pg_strcasecmp(value, "base") == 0)
		return STRATA_LAYER_BASE;
	invalid_value(elem, NULL, "Available values: wal, base.");
}

/* The option whose name is nearest to a misspelt one, or NULL. */
static const char *
nearest_option(const char *name)
{
	const char *nearest = NULL;
	int			length = (int) strlen(name);
	int			best = Max(length / 2, 2) + 1;

	if (length > NAMEDATALEN)
		return NULL;
	for (int i = 0; i < (int) lengthof(option_defs); i++)
	{
		int			distance;

		distance = varstr_levenshtein_less_equal(name, length,
												 option_defs[i].name,
												 (int) strlen(option_defs[i].name),
												 1, 1, 1, best, true);
		if (distance < best)
		{
			best = distance;
			nearest = option_defs[i].name;
		}
	}
	return nearest;
}

static const OptionDef *
find_option(const char *name)
{
	const char *nearest;

	for (int i = 0; i < (int) lengthof(option_defs); i++)
	{
		if (strcmp(option_defs[i].name, name) == 0)
			return &option_defs[i];
	}

	nearest = nearest_option(name);
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 nearest ? errhint("Perhaps you meant the option \"%s\".", nearest) :
			 errhint("Valid options of a strata table are: key, shards, on_duplicate, "
					 "compression_level, row_group_rows, row_group_bytes, "
					 "generation_max_bytes, generation_max_rows, merge_after_generations, "
					 "merge_interval, merge_max_generations, merge_max_bytes, auto_merge, "
					 "store, layer.")));
	return NULL;				/* keep compiler quiet */
}

static void
set_default(StrataOptions *options, int i)
{
	void	   *field = (char *) options + option_defs[i].offset;

	switch (option_defs[i].type)
	{
		case OPTION_INT:
		case OPTION_SECONDS:
			*(int *) field = guc_values[i].i;
			break;
		case OPTION_COUNT:
			*(int64 *) field = guc_values[i].i;
			break;
		case OPTION_BYTES:
			*(int64 *) field = (int64) rint(*option_defs[i].bytes);
			break;
		case OPTION_BOOL:
			*(bool *) field = guc_values[i].b;
			break;
		case OPTION_ON_DUPLICATE:
			*(StrataOnDuplicate *) field = (StrataOnDuplicate) guc_values[i].i;
			break;
		case OPTION_KEY:
		case OPTION_STORE:
		case OPTION_LAYER:
			break;
	}
}

StrataOptions *
strata_options_parse(List *defelems)
{
	StrataOptions *options = palloc0(sizeof(StrataOptions));
	const char *other = NULL;	/* an option that no layer table can have */
	ListCell   *lc;

	for (int i = 0; i < (int) lengthof(option_defs); i++)
		set_default(options, i);

	foreach (lc, defelems)
	{
		DefElem    *elem = lfirst_node(DefElem, lc);
		const OptionDef *def = find_option(elem->defname);
		void	   *field = (char *) options + def->offset;

		switch (def->type)
		{
			case OPTION_INT:
			case OPTION_SECONDS:
				*(int *) field = (int) parse_number(def, elem);
				break;
			case OPTION_COUNT:
			case OPTION_BYTES:
				*(int64 *) field = (int64) parse_number(def, elem);
				break;
			case OPTION_BOOL:
				if (!parse_bool(defGetString(elem), (bool *) field))
					invalid_value(elem, NULL, "Available values: on, off.");
				break;
			case OPTION_ON_DUPLICATE:
				*(StrataOnDuplicate *) field = parse_on_duplicate(elem);
				break;
			case OPTION_KEY:
				options->key = parse_key(elem);
				break;
			case OPTION_STORE:
				/* raises an error of its own for what is not a name */
				(void) strata_name_list(defGetString(elem));
				options->store = pstrdup(defGetString(elem));
				break;
			case OPTION_LAYER:
				options->layer = parse_layer(elem);
				break;
		}
		if (def->type != OPTION_STORE && def->type != OPTION_LAYER)
			other = def->name;
	}

	if ((options->store != NULL) != (options->layer != STRATA_LAYER_ALL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options \"store\" and \"layer\" belong together"),
				 errdetail("They make a read-only table over one layer of another strata table.")));
	if (options->store != NULL && other != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is not for a table over a layer of another one", other),
				 errhint("Set it on the table that the option \"store\" names.")));
	return options;
}

StrataOptions *
strata_options_get(Oid ftrelid)
{
	return strata_options_parse(GetForeignTable(ftrelid)->options);
}

Oid
strata_options_store(const StrataOptions *options, bool missing_ok)
{
	RangeVar   *name = makeRangeVarFromNameList(strata_name_list(options->store));

	return RangeVarGetRelid(name, NoLock, missing_ok);
}

/*
 * What ALTER FOREIGN TABLE ... OPTIONS (SET name 'value') does.
 */
void
strata_options_set(Oid ftrelid, const char *name, const char *value)
{
	Relation	rel = table_open(ForeignTableRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(FOREIGNTABLEREL, ObjectIdGetDatum(ftrelid));
	DefElem    *elem = makeDefElemExtended(NULL, pstrdup(name),
										   (Node *) makeString(pstrdup(value)),
										   DEFELEM_SET, -1);
	Datum		values[Natts_pg_foreign_table] = {0};
	bool		isnull[Natts_pg_foreign_table] = {0};
	bool		replace[Natts_pg_foreign_table] = {0};
	int			column = Anum_pg_foreign_table_ftoptions - 1;
	Datum		options;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for foreign table %u", ftrelid);
	options = SysCacheGetAttr(FOREIGNTABLEREL, tuple, Anum_pg_foreign_table_ftoptions,
							  &isnull[column]);
	values[column] = transformGenericOptions(ForeignTableRelationId,
											 isnull[column] ? (Datum) 0 : options,
											 list_make1(elem), InvalidOid);
	isnull[column] = false;
	replace[column] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, isnull, replace);
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
	table_close(rel, NoLock);
	CacheInvalidateRelcacheByRelid(ftrelid);
	CommandCounterIncrement();
}

/* What a second row with the same key does is no question without a key. */
static void
refuse_on_duplicate(List *elems)
{
	ListCell   *lc;

	foreach (lc, elems)
	{
		if (find_option(lfirst_node(DefElem, lc)->defname)->type == OPTION_ON_DUPLICATE)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"on_duplicate\" is for tables with a key"),
					 errdetail("Without the option \"key\" a table keeps every row."),
					 errhint("Name the columns that identify a row: OPTIONS (key 'column, ...').")));
	}
}

/*
 * Validator of the foreign data wrapper.  Only tables have options.
 */
Datum
strata_validator(PG_FUNCTION_ARGS)
{
	List	   *elems = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);

	if (catalog == ForeignTableRelationId)
	{
		/* not of tables that have it already: those can be used and dumped */
		if (strata_options_parse(elems)->key == NIL)
			refuse_on_duplicate(elems);
	}
	else if (elems != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", linitial_node(DefElem, elems)->defname),
				 errdetail("Only the foreign tables of strata have options.")));
	PG_RETURN_VOID();
}
