/*-------------------------------------------------------------------------
 *
 * alter.c
 *	  Following changes of a foreign table, or refusing them.
 *
 * Core changes the columns of a foreign table without asking: nothing is
 * rewritten, no default is applied to rows that exist.  After each command
 * that may have done so the store row is compared with what the table looks
 * like now:
 *
 *	added columns		rows stored before show the default, evaluated once
 *						here; a volatile one cannot be, so it is refused unless
 *						the store is empty
 *	changed types		allowed when the stored bytes mean the same under the
 *						new type, or when there are none
 *	key, shards			immutable once anything was written; before that the
 *						store is made anew
 *	renamed columns		the option "key" names columns, so it follows
 *
 * Locks: the command holds AccessExclusiveLock on the foreign table for all
 * of these; the storage is locked likewise before the store row is changed, so
 * that a pass, which holds only that, never sees it change.
 *
 * IDENTIFICATION
 *	  src/manifest/alter.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "manifest/columns.h"
#include "manifest/ddl.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "commands/typecmds.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "rewrite/rewriteHandler.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

StrataLogIsEmpty strata_log_is_empty_hook = NULL;

#define COPY_HINT \
	"Create a new table, copy the rows with INSERT INTO ... SELECT, drop this one and rename the new one."

/* A store being compared with its table. */
StrataTableAltered strata_table_altered_hook = NULL;

typedef struct Follow
{
	Relation	rel;			/* foreign table */
	TupleDesc	desc;
	StrataOptions *options;
	StrataStoreRow row;			/* as recorded */
	Relation	storage;		/* NULL until it had to be locked */
	bool		emptiness_known;
	bool		empty;
	bool		rows_known;
	bool		rows;
} Follow;

PG_FUNCTION_INFO_V1(strata_record_columns);

static void
lock_storage(Follow *follow)
{
	if (follow->storage != NULL)
		return;
	follow->storage = try_relation_open(follow->row.storage, AccessExclusiveLock);
	if (follow->storage == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the storage of foreign table \"%s\" is missing",
						RelationGetRelationName(follow->rel)),
				 errhint("Drop and create the foreign table.")));
}

/*
 * Are there no rows for anybody to see, now or later?  Aborted ones count: a
 * TRUNCATE gets rid of them.
 */
static bool
store_is_empty(Follow *follow)
{
	StrataStore store = {0};
	StrataManifest *manifest;
	Snapshot	snapshot;

	if (follow->emptiness_known)
		return follow->empty;

	lock_storage(follow);
	if (RelationGetNumberOfBlocks(follow->storage) == 0)
		follow->empty = true;
	else
	{
		/* all that reading a manifest needs to know */
		store.ftrelid = follow->row.foreign_table;
		store.storage = follow->row.storage;
		store.nshards = follow->row.shards;
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		manifest = strata_manifest_get(&store, follow->storage, snapshot);
		follow->empty = manifest->ngroups == 0 &&
			strata_log_is_empty_hook(follow->storage, store.nshards, manifest);
		strata_manifest_release(manifest);
		UnregisterSnapshot(snapshot);
	}
	follow->emptiness_known = true;
	return follow->empty;
}

/* ---- key and shards ---- */

/* The option "key" for attribute numbers. */
static char *
key_option(TupleDesc desc, const AttrNumber *attnums, int nkeys)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < nkeys; i++)
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(desc, attnums[i] - 1)->attname)));
	return buf.data;
}

/* After a RENAME: make the option name the columns it named before. */
static void
rename_key(Follow *follow)
{
	ListCell   *lc;
	int			i = 0;
	bool		same = list_length(follow->options->key) == follow->row.nkeys;

	foreach (lc, follow->options->key)
	{
		if (!same)
			break;
		same = namestrcmp(&TupleDescAttr(follow->desc, follow->row.key[i++] - 1)->attname,
						  strVal(lfirst(lc))) == 0;
	}
	if (!same && follow->row.nkeys > 0)
		strata_options_set(follow->row.foreign_table, "key",
						   key_option(follow->desc, follow->row.key, follow->row.nkeys));
}

/* Is the number of shards given, and not by default, another one? */
static bool
shards_changed(Follow *follow)
{
	ListCell   *lc;

	foreach (lc, GetForeignTable(follow->row.foreign_table)->options)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, "shards") == 0)
			return follow->options->shards != follow->row.shards;
	}
	return false;
}

/*
 * Does the key consist of other columns, or of columns of another type or
 * collation, than the storage relation has?
 */
static bool
key_changed(Follow *follow, const AttrNumber *attnums, int nkeys)
{
	if (nkeys != follow->row.nkeys)
		return true;
	for (int i = 0; i < nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(follow->desc, attnums[i] - 1);
		Form_pg_attribute stored;
		HeapTuple	tuple;
		bool		same;

		if (attnums[i] != follow->row.key[i])
			return true;
		tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(follow->row.storage),
								Int16GetDatum(i + 1));
		if (!HeapTupleIsValid(tuple))
			return true;
		stored = (Form_pg_attribute) GETSTRUCT(tuple);
		same = stored->atttypid == getBaseType(att->atttypid) &&
			stored->attcollation == att->attcollation;
		ReleaseSysCache(tuple);
		if (!same)
			return true;
	}
	return false;
}

/* ---- columns ---- */

/*
 * The commands that do what a change of a column's type would, or NULL where
 * that takes a new table: rows without a key cannot be updated, a column of
 * the key cannot be dropped, none can become a generated one where rows are,
 * and columns that plain inheritance brought are other tables' too.
 */
static char *
retype_commands(Follow *follow, Form_pg_attribute att, Oid stored_type)
{
	Oid			relid = follow->row.foreign_table;
	char	   *new_name = psprintf("%s_new", NameStr(att->attname));
	char	   *table;
	const char *alter = "ALTER FOREIGN TABLE";
	const char *column;
	char	   *type;
	char	   *value;

	if (follow->row.nkeys == 0 || att->attgenerated != '\0')
		return NULL;
	for (int i = 0; i < follow->row.nkeys; i++)
	{
		if (follow->row.key[i] == att->attnum)
			return NULL;
	}
	if (att->attinhcount > 0)
	{
		if (!follow->rel->rd_rel->relispartition)
			return NULL;
		relid = llast_oid(get_partition_ancestors(relid));
		alter = "ALTER TABLE";
	}
	for (int i = 1; strlen(new_name) >= NAMEDATALEN || get_attnum(relid, new_name) != InvalidAttrNumber; i++)
		new_name = psprintf("new_%d", i);

	table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									   get_rel_name(relid));
	column = quote_identifier(NameStr(att->attname));
	type = format_type_with_typemod(att->atttypid, att->atttypmod);

	/* an assignment does not cut what is too long, a cast does */
	value = psprintf("%s::%s", column, type);
	if (can_coerce_type(1, &stored_type, &att->atttypid, COERCION_ASSIGNMENT))
		value = pstrdup(column);
	return psprintf("%s %s ADD COLUMN %s %s; UPDATE %s SET %s = %s; %s %s DROP COLUMN %s; %s %s RENAME COLUMN %s TO %s;",
					alter, table, quote_identifier(new_name), type,
					table, quote_identifier(new_name), value,
					alter, table, column,
					alter, table, quote_identifier(new_name), column);
}

static void
refuse_type_change(Follow *follow, Form_pg_attribute att, Oid stored_type)
{
	char	   *commands = retype_commands(follow, att, stored_type);

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change the type of column \"%s\" of foreign table \"%s\" to %s",
					NameStr(att->attname), RelationGetRelationName(follow->rel),
					format_type_with_typemod(att->atttypid, att->atttypmod)),
			 errdetail("Stored rows would have to be rewritten."),
			 commands ? errhint("Put a new column in the place of the old one, and set its default and constraints again: %s", commands) :
			 errhint(COPY_HINT)));
}

/* Said of an added column whose value would differ from row to row. */
static const char *
added_column_hint(Follow *follow, Form_pg_attribute att)
{
	if (att->attgenerated != '\0' || follow->row.nkeys == 0)
		return COPY_HINT;
	if (att->attidentity != '\0')
		return "Add it as a plain column, fill it with UPDATE, and then SET NOT NULL and ADD GENERATED ... AS IDENTITY.";
	return "Add the column without a default, fill it with UPDATE, and SET DEFAULT for new rows afterwards.";
}

/*
 * Are there rows for a snapshot taken now?  Deleted ones do not count, though
 * they may still be stored.  Asked when the store row has the new columns.
 */
static bool
has_rows(Follow *follow)
{
	StrataRowCheck none = {.kind = STRATA_CHECK_CONSTRAINT,
						   .expr = makeBoolConst(false, false)};

	if (!follow->rows_known)
	{
		follow->rows = strata_check_rows_hook(follow->rel, list_make1(&none)) != NULL;
		follow->rows_known = true;
	}
	return follow->rows;
}

/*
 * What rows stored before show for an added column.  True when that is not
 * NULL.  Raises an error for what cannot be one value for all of them, if
 * there are any.
 */
static bool
evaluate_default(Follow *follow, Form_pg_attribute att, Datum *value)
{
	Node	   *expr = build_column_default(follow->rel, att->attnum);
	EState	   *estate;
	ExprState  *state;
	Datum		result;
	bool		isnull = true;
	MemoryContext context = CurrentMemoryContext;

	/* computed when it is read; NOT NULL is checked like a constraint */
	if (strata_column_is_virtual(att))
		return false;

	if (expr == NULL && DomainHasConstraints(att->atttypid) && has_rows(follow))
	{
		/* the domain may refuse NULL */
		Oid			collation;
		int32		typmod = att->atttypmod;
		Oid			base = getBaseTypeAndTypmod(att->atttypid, &typmod);
		int16		length;
		bool		byval;

		collation = get_typcollation(base);
		get_typlenbyval(base, &length, &byval);
		expr = (Node *) makeConst(base, typmod, collation, length, (Datum) 0, true, byval);
		expr = coerce_to_target_type(NULL, expr, base, att->atttypid, att->atttypmod,
									 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
		if (expr == NULL)
			elog(ERROR, "failed to coerce base type to domain");
	}

	if (expr != NULL)
	{
		expr = (Node *) expression_planner((Expr *) expr);
		if (att->attgenerated != '\0' || contain_volatile_functions(expr))
		{
			if (!has_rows(follow))
				return false;
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot add column \"%s\" to foreign table \"%s\" that has rows",
							NameStr(att->attname), RelationGetRelationName(follow->rel)),
					 errdetail("Its value would differ from row to row, and stored rows are not rewritten."),
					 errhint("%s", added_column_hint(follow, att))));
		}

		PushActiveSnapshot(GetTransactionSnapshot());
		estate = CreateExecutorState();
		state = ExecInitExpr((Expr *) expr, NULL);
		result = ExecEvalExprSwitchContext(state, GetPerTupleExprContext(estate), &isnull);
		if (!isnull)
		{
			MemoryContext oldcontext = MemoryContextSwitchTo(context);

			*value = datumCopy(result, att->attbyval, att->attlen);
			MemoryContextSwitchTo(oldcontext);
		}
		FreeExecutorState(estate);
		PopActiveSnapshot();
	}

	if (isnull && att->attnotnull &&
		strata_not_null_is_valid(RelationGetRelid(follow->rel), att->attnum) && has_rows(follow))
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("column \"%s\" of relation \"%s\" contains null values",
						NameStr(att->attname), RelationGetRelationName(follow->rel)),
				 errdetail("Rows that exist have no value for the added column."),
				 errtablecol(follow->rel, att->attnum)));
	return !isnull;
}

/*
 * Record the columns as they are now, or refuse.
 */
static void
follow_columns(Follow *follow)
{
	TupleDesc	desc = follow->desc;
	StrataStoreRow row = follow->row;
	int			known = row.ncolumns;
	bool		empty;
	bool		found = false;
	bool	   *has = palloc0(sizeof(bool) * desc->natts);
	Datum	   *values = palloc0(sizeof(Datum) * desc->natts);

	if (desc->natts < row.ncolumns)
		elog(ERROR, "foreign table \"%s\" has lost columns", RelationGetRelationName(follow->rel));
	lock_storage(follow);

	for (int i = 0; i < row.ncolumns; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		StrataColumn *column = &row.columns[i];

		if (att->attisdropped || !OidIsValid(column->type))
			continue;
		if (!strata_column_compatible(column->type, column->typmod, att->atttypid,
									  att->atttypmod, att->attcollation) &&
			!store_is_empty(follow))
			refuse_type_change(follow, att, column->type);
	}

	empty = store_is_empty(follow);
	if (!empty)
		strata_missing_decode(row.missing, desc, has, values);
	row.missing = strata_missing_encode(desc, has, values);
	row.columns = strata_columns_of(desc);
	row.ncolumns = desc->natts;
	strata_store_row_update(&row);
	CacheInvalidateRelcache(follow->rel);
	CommandCounterIncrement();

	/* a default that cannot be evaluated is refused beside no rows, too */
	for (int i = known; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			has[i] = evaluate_default(follow, att, &values[i]);
		found |= has[i];
	}
	if (found && !empty)
	{
		row.missing = strata_missing_encode(desc, has, values);
		strata_store_row_update(&row);
		CacheInvalidateRelcache(follow->rel);
		CommandCounterIncrement();
	}
}

/* ---- the whole ---- */

/*
 * The storage is made anew, with what the options say now.  Possible only as
 * long as nobody ever wrote to it: what is in the file and in older versions
 * of the manifest belongs to the old key.
 */
static void
recreate(Follow *follow, const char *what)
{
	lock_storage(follow);
	if (RelationGetNumberOfBlocks(follow->storage) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the %s of foreign table \"%s\"",
						what, RelationGetRelationName(follow->rel)),
				 errdetail("It has been written to."),
				 errhint(COPY_HINT)));
	table_close(follow->storage, NoLock);
	follow->storage = NULL;
	strata_store_drop(follow->row.foreign_table, follow->row.storage, DROP_RESTRICT);
	strata_store_create(follow->row.foreign_table);
}

void
strata_store_follow(Oid ftrelid, bool renamed)
{
	Follow		follow = {0};
	AttrNumber	key[INDEX_MAX_KEYS];
	int			nkeys;

	follow.options = strata_options_get(ftrelid);
	if (!strata_store_row_read(ftrelid, &follow.row))
	{
		if (follow.options->layer != STRATA_LAYER_ALL)
			strata_layer_check(ftrelid, follow.options);
		else
		{
			strata_layer_untie(ftrelid, InvalidOid);
			strata_store_create(ftrelid);
		}
		return;
	}

	/*
	 * Not locked here: the command holds the lock it needs on each table that
	 * it changed, and those that it did not change are left alone below.
	 */
	follow.rel = RelationIdGetRelation(ftrelid);
	if (!RelationIsValid(follow.rel))
		return;
	follow.desc = RelationGetDescr(follow.rel);

	if (follow.options->layer != STRATA_LAYER_ALL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("foreign table \"%s\" has a store of its own",
						RelationGetRelationName(follow.rel)),
				 errhint("Create another foreign table with the options \"store\" and \"layer\".")));

	if (renamed)
		rename_key(&follow);
	else
	{
		nkeys = strata_resolve_key(follow.desc, follow.options,
								   RelationGetRelationName(follow.rel), key);
		if (key_changed(&follow, key, nkeys))
			recreate(&follow, "key");
		else if (shards_changed(&follow))
			recreate(&follow, "number of shards");
		else if (!strata_columns_match(&follow.row, follow.desc))
			follow_columns(&follow);
		if (strata_table_altered_hook != NULL)
			strata_table_altered_hook();
	}

	if (follow.storage != NULL)
		table_close(follow.storage, NoLock);
	RelationClose(follow.rel);
}

/*
 * strata.record_columns(regclass): what the event trigger would have done.
 */
Datum
strata_record_columns(PG_FUNCTION_ARGS)
{
	Oid			relid = strata_table_argument(fcinfo);

	PreventCommandIfReadOnly("strata.record_columns()");
	PreventCommandDuringRecovery("strata.record_columns()");
	strata_check_table_argument(relid, true, AccessExclusiveLock);
	strata_store_follow(relid, false);
	PG_RETURN_VOID();
}
