/*-------------------------------------------------------------------------
 *
 * checks.c
 *	  What a command demands of rows that are stored already.
 *
 * ALTER TABLE scans a heap when it makes a column NOT NULL, adds or validates
 * a CHECK constraint, attaches a partition or makes a default partition
 * smaller; ALTER DOMAIN scans the tables that use the domain.  Core leaves
 * foreign tables out of all of these, yet plans as if the rows had passed.
 * So the scan is made here, at the end of the command, in its transaction.
 *
 * What was demanded is taken from the subcommands that core collected for
 * event triggers, by the object that each of them is about.  Inheritors are
 * not all collected, so they are looked for; whether a demand holds for one of
 * them (ONLY, NO INHERIT, NOT VALID) is read from its catalog entries.
 *
 * Locks: the command holds on each of the tables what keeps rows that violate
 * the demand from coming in meanwhile.  Inheritors that it had no reason to
 * look at, since the demand is nothing new to them, may be here too, so all are
 * opened under AccessShareLock.  ALTER DOMAIN takes ShareLock here.
 *
 * IDENTIFICATION
 *	  src/manifest/checks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "manifest/ddl.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "partitioning/partdesc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

StrataCheckRows strata_check_rows_hook = NULL;

/* The demands on one foreign table. */
typedef struct TableChecks
{
	Oid			relid;
	List	   *checks;			/* StrataRowCheck * */
} TableChecks;

/* ---- running them ---- */

static void
add_check(List **tables, Oid relid, const StrataRowCheck *check)
{
	TableChecks *table = NULL;
	StrataRowCheck *copy = palloc(sizeof(StrataRowCheck));
	ListCell   *lc;

	foreach (lc, *tables)
	{
		table = lfirst(lc);
		if (table->relid == relid)
			break;
		table = NULL;
	}
	if (table == NULL)
	{
		table = palloc0(sizeof(TableChecks));
		table->relid = relid;
		*tables = lappend(*tables, table);
	}
	*copy = *check;
	table->checks = lappend(table->checks, copy);
}

static void
raise_violation(Relation rel, const StrataRowCheck *check)
{
	const char *relname = RelationGetRelationName(rel);
	const char *column = "";

	if (check->attnum > 0)
		column = NameStr(TupleDescAttr(RelationGetDescr(rel), check->attnum - 1)->attname);

	/* in core's words */
	switch (check->kind)
	{
		case STRATA_CHECK_NOT_NULL:
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of relation \"%s\" contains null values", column, relname),
					 errtablecol(rel, check->attnum)));
			break;
		case STRATA_CHECK_CONSTRAINT:
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("check constraint \"%s\" of relation \"%s\" is violated by some row",
							check->name, relname),
					 errtableconstraint(rel, check->name)));
			break;
		case STRATA_CHECK_PARTITION:
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("partition constraint of relation \"%s\" is violated by some row", relname),
					 errtable(rel)));
			break;
		case STRATA_CHECK_DEFAULT_PARTITION:
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("updated partition constraint for default partition \"%s\" would be violated by some row",
							relname),
					 errtable(rel)));
			break;
		case STRATA_CHECK_EXPRESSION:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot change the expression of column \"%s\" of foreign table \"%s\" that has rows",
							column, relname),
					 errdetail("Stored rows would have to be rewritten."),
					 errhint("Create a new table, copy the rows with INSERT INTO ... SELECT, drop this one and rename the new one."),
					 errtablecol(rel, check->attnum)));
			break;
		case STRATA_CHECK_DOMAIN_NOT_NULL:
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column \"%s\" of table \"%s\" contains null values", column, relname),
					 errtablecol(rel, check->attnum)));
			break;
		case STRATA_CHECK_DOMAIN:
			ereport(ERROR,
					(errcode(ERRCODE_CHECK_VIOLATION),
					 errmsg("column \"%s\" of table \"%s\" contains values that violate the new constraint",
							column, relname),
					 errtablecol(rel, check->attnum)));
			break;
	}
}

/* Do the valid CHECK constraints of a table say that a column is not null? */
static bool
not_null_is_implied(Relation rel, AttrNumber attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);
	TupleConstr *constr = desc->constr;
	NullTest   *test = makeNode(NullTest);
	List	   *given = NIL;

	for (int i = 0; constr != NULL && i < constr->num_check; i++)
	{
		Node	   *expr;

		if (!constr->check[i].ccvalid)
			continue;
		expr = eval_const_expressions(NULL, stringToNode(constr->check[i].ccbin));
		expr = (Node *) canonicalize_qual((Expr *) expr, true);
		given = list_concat(given, make_ands_implicit((Expr *) expr));
	}

	test->arg = (Expr *) makeVar(1, attnum, att->atttypid, att->atttypmod, att->attcollation, 0);
	test->nulltesttype = IS_NOT_NULL;
	test->location = -1;
	return predicate_implied_by(list_make1(test), given, true);
}

/*
 * Can the rows be left alone, as those of a heap, since all that is demanded
 * is known already?  (Partition bounds that are known are not demanded.)
 */
static bool
is_implied(Relation rel, List *checks)
{
	ListCell   *lc;

	foreach (lc, checks)
	{
		const StrataRowCheck *check = lfirst(lc);

		if (check->kind != STRATA_CHECK_NOT_NULL || !not_null_is_implied(rel, check->attnum))
			return false;
	}
	return true;
}

static void
run_checks(List *tables)
{
	ListCell   *lc;

	foreach (lc, tables)
	{
		TableChecks *table = lfirst(lc);
		Relation	rel = try_relation_open(table->relid, AccessShareLock);
		const StrataRowCheck *violated = NULL;

		if (rel == NULL)
			continue;			/* one that the command left alone */
		if (!is_implied(rel, table->checks))
			violated = strata_check_rows_hook(rel, table->checks);
		if (violated != NULL)
			raise_violation(rel, violated);
		relation_close(rel, NoLock);
	}
}

/* ---- ALTER TABLE ---- */

static void
demand_not_null(List **tables, Oid relid, const char *column)
{
	StrataRowCheck check = {.kind = STRATA_CHECK_NOT_NULL};
	HeapTuple	tuple = SearchSysCacheAttName(relid, column);

	if (!HeapTupleIsValid(tuple))
		return;
	check.attnum = ((Form_pg_attribute) GETSTRUCT(tuple))->attnum;
	if (((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull &&
		strata_not_null_is_valid(relid, check.attnum))
		add_check(tables, relid, &check);
	ReleaseSysCache(tuple);
}

/*
 * The expression of a generated column has changed: there must be no rows that
 * have stored what the old one gave.  A virtual column is stored nowhere, and
 * its CHECK constraints keep core from changing it.
 */
static void
demand_expression(List **tables, Oid relid, const char *column)
{
	StrataRowCheck check = {.kind = STRATA_CHECK_EXPRESSION};
	HeapTuple	tuple = SearchSysCacheAttName(relid, column);

	if (!HeapTupleIsValid(tuple))
		return;
	check.attnum = ((Form_pg_attribute) GETSTRUCT(tuple))->attnum;
	if (!strata_column_is_virtual((Form_pg_attribute) GETSTRUCT(tuple)))
	{
		check.expr = makeBoolConst(false, false);
		add_check(tables, relid, &check);
	}
	else
		demand_not_null(tables, relid, column);
	ReleaseSysCache(tuple);
}

/* The expression of a constraint that is a CHECK and holds for all rows, or NULL. */
static Node *
valid_check(HeapTuple tuple)
{
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
	Datum		value;
	bool		isnull;

	if (form->contype != CONSTRAINT_CHECK || !form->convalidated)
		return NULL;
	value = SysCacheGetAttr(CONSTROID, tuple, Anum_pg_constraint_conbin, &isnull);
	if (isnull)
		elog(ERROR, "null conbin for constraint %u", form->oid);
	return stringToNode(TextDatumGetCString(value));
}

static void
demand_constraint(List **tables, Oid relid, const char *name)
{
	StrataRowCheck check = {.kind = STRATA_CHECK_CONSTRAINT, .name = pstrdup(name)};
	Oid			constraint = get_relation_constraint_oid(relid, name, true);
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		return;
	check.expr = valid_check(tuple);
	if (check.expr != NULL)
		add_check(tables, relid, &check);
	ReleaseSysCache(tuple);
}

static void
demand_bounds(List **tables, Oid relid, StrataCheckKind kind)
{
	StrataRowCheck check = {.kind = kind};
	Relation	rel;
	List	   *qual;

	/*
	 * Core lets go of the constraint of a default partition, but not of those
	 * of its partitions.
	 */
	CacheInvalidateRelcacheByRelid(relid);
	CommandCounterIncrement();

	rel = try_relation_open(relid, AccessShareLock);
	if (rel == NULL)
		return;
	qual = RelationGetPartitionQual(rel);
	if (qual != NIL && !PartConstraintImpliedByRelConstraint(rel, qual))
	{
		check.expr = (Node *) make_ands_explicit(copyObject(qual));
		add_check(tables, relid, &check);
	}
	relation_close(rel, NoLock);
}

/* Make a demand on each inheritor that has a store. */
static void
demand_of_all(List **tables, Oid relid, StrataCheckKind kind, const char *name)
{
	ListCell   *lc;

	foreach (lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Oid			child = lfirst_oid(lc);

		if (!strata_has_store(child))
			continue;
		if (kind == STRATA_CHECK_NOT_NULL)
			demand_not_null(tables, child, name);
		else if (kind == STRATA_CHECK_EXPRESSION)
			demand_expression(tables, child, name);
		else if (kind == STRATA_CHECK_CONSTRAINT)
			demand_constraint(tables, child, name);
		else
			demand_bounds(tables, child, kind);
	}
}

/* A partition has come: the rows that belong to it must not be in the default one. */
static void
demand_default(List **tables, Oid parent, Oid partition)
{
	Oid			other = get_default_partition_oid(parent);

	if (OidIsValid(other) && other != partition)
		demand_of_all(tables, other, STRATA_CHECK_DEFAULT_PARTITION, NULL);
}

static void
demand_subcommand(List **tables, Oid relid, const CollectedATSubcmd *subcmd)
{
	const ObjectAddress *address = &subcmd->address;
	AlterTableCmd *command = castNode(AlterTableCmd, subcmd->parsetree);

	if (command->subtype == AT_SetNotNull && address->classId == RelationRelationId && address->objectSubId > 0)
	{
		char	   *column = get_attname(address->objectId, address->objectSubId, true);

		if (column != NULL)
			demand_of_all(tables, address->objectId, STRATA_CHECK_NOT_NULL, column);
	}
	else if (strata_sets_expression(command) && address->classId == RelationRelationId && address->objectSubId > 0)
	{
		char	   *column = get_attname(address->objectId, address->objectSubId, true);

		if (column != NULL)
			demand_of_all(tables, address->objectId, STRATA_CHECK_EXPRESSION, column);
	}
	else if (command->subtype == AT_AttachPartition)
	{
		/* core gives no address; the command holds a lock on what it named */
		Oid			partition = RangeVarGetRelid(castNode(PartitionCmd, command->def)->name,
												 NoLock, true);

		if (!OidIsValid(partition) || !get_rel_relispartition(partition))
			return;
		demand_of_all(tables, partition, STRATA_CHECK_PARTITION, NULL);
		demand_default(tables, relid, partition);
	}
	else if (address->classId == ConstraintRelationId)
	{
		/* added, added again after ALTER TYPE, validated */
		HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(address->objectId));
		Form_pg_constraint form;
		AttrNumber	attnum;

		if (!HeapTupleIsValid(tuple))
			return;
		form = (Form_pg_constraint) GETSTRUCT(tuple);
		if (form->contype == CONSTRAINT_CHECK)
			demand_of_all(tables, form->conrelid, STRATA_CHECK_CONSTRAINT, NameStr(form->conname));
		else if ((attnum = strata_not_null_column(tuple)) != InvalidAttrNumber)
			demand_of_all(tables, form->conrelid, STRATA_CHECK_NOT_NULL,
						  get_attname(form->conrelid, attnum, false));
		ReleaseSysCache(tuple);
	}
}

void
strata_check_altered(List *commands)
{
	List	   *tables = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach (lc, commands)
	{
		const CollectedCommand *command = lfirst(lc);

		if (command->type != SCT_AlterTable)
			continue;
		foreach (lc2, command->d.alterTable.subcmds)
			demand_subcommand(&tables, command->d.alterTable.objectId, lfirst(lc2));
	}
	run_checks(tables);
}

void
strata_check_new_partition(Oid partition)
{
	List	   *tables = NIL;

	if (!get_rel_relispartition(partition))
		return;
	demand_default(&tables, get_partition_parent(partition, true), partition);
	run_checks(tables);
}

/* ---- types ---- */

static Oid
domain_base(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	Oid			base = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	if (((Form_pg_type) GETSTRUCT(tuple))->typtype == TYPTYPE_DOMAIN)
		base = ((Form_pg_type) GETSTRUCT(tuple))->typbasetype;
	ReleaseSysCache(tuple);
	return base;
}

/* Is a type the wanted one, or a domain over it? */
static bool
is_domain_over(Oid type, Oid wanted)
{
	while (OidIsValid(type) && type != wanted)
		type = domain_base(type);
	return OidIsValid(type);
}

/* Is a type the wanted one, or made of it in any way? */
static bool
type_contains(Oid type, Oid wanted)
{
	Oid			part;
	TupleDesc	desc;
	bool		found = false;

	check_stack_depth();
	if (type == wanted)
		return true;
	part = domain_base(type);
	if (!OidIsValid(part))
		part = get_element_type(type);
	if (!OidIsValid(part))
		part = get_range_subtype(type);
	if (!OidIsValid(part))
		part = get_multirange_range(type);
	if (OidIsValid(part))
		return type_contains(part, wanted);
	if (get_typtype(type) != TYPTYPE_COMPOSITE)
		return false;

	desc = lookup_rowtype_tupdesc(type, -1);
	for (int i = 0; !found && i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped)
			found = type_contains(TupleDescAttr(desc, i)->atttypid, wanted);
	}
	ReleaseTupleDesc(desc);
	return found;
}

/* The next column from attnum on whose type contains the wanted one, or 0. */
static AttrNumber
column_that_contains(const StrataStoreRow *row, AttrNumber attnum, Oid wanted)
{
	for (; attnum <= row->ncolumns; attnum++)
	{
		Oid			type = row->columns[attnum - 1].type;

		if (OidIsValid(type) && type >= FirstNormalObjectId &&
			SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type)) &&
			type_contains(type, wanted))
			return attnum;
	}
	return 0;
}

void
strata_check_rowtype(Oid relid)
{
	Oid			rowtype = get_rel_type_id(relid);
	ListCell   *lc;

	if (!OidIsValid(rowtype))
		return;
	foreach (lc, strata_store_list())
	{
		StrataStoreRow row;

		if (strata_store_row_read(lfirst_oid(lc), &row) &&
			column_that_contains(&row, 1, rowtype) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot alter \"%s\" because foreign table \"%s\" stores values of its row type",
							get_rel_name(relid), get_rel_name(row.foreign_table))));
	}
}

/* What a domain demands of its values; attnum is left to be filled in. */
static List *
domain_checks(Oid domain, const AlterDomainStmt *stmt)
{
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *checks = NIL;

	/* from 17 on also as a constraint with a name */
	if (stmt->subtype == 'O' ||
		(stmt->subtype == 'C' && castNode(Constraint, stmt->def)->contype == CONSTR_NOTNULL))
	{
		StrataRowCheck *check = palloc0(sizeof(StrataRowCheck));

		check->kind = STRATA_CHECK_DOMAIN_NOT_NULL;
		return list_make1(check);
	}

	/*
	 * The values satisfy those constraints that were valid before, so it does
	 * no harm not to know which of them is new.
	 */
	rel = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_constraint_contypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(domain));
	scan = systable_beginscan(rel, ConstraintTypidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		StrataRowCheck *check = palloc0(sizeof(StrataRowCheck));

		check->kind = STRATA_CHECK_DOMAIN;
		check->expr = valid_check(tuple);
		if (check->expr != NULL)
			checks = lappend(checks, check);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return checks;
}

void
strata_check_domain(Oid domain, const AlterDomainStmt *stmt)
{
	List	   *tables = NIL;
	List	   *checks;
	ListCell   *lc;
	ListCell   *lc2;

	/* SET NOT NULL, ADD and VALIDATE CONSTRAINT */
	if (stmt->subtype != 'O' && stmt->subtype != 'V' &&
		!(stmt->subtype == 'C' && !castNode(Constraint, stmt->def)->skip_validation))
		return;
	checks = domain_checks(domain, stmt);
	if (checks == NIL)
		return;

	foreach (lc, strata_store_list())
	{
		Oid			relid = lfirst_oid(lc);
		StrataStoreRow row;
		AttrNumber	attnum = 0;

		if (!strata_store_row_read(relid, &row) || column_that_contains(&row, 1, domain) == 0)
			continue;

		/* as it is once nobody can write to it */
		LockRelationOid(relid, ShareLock);
		if (!strata_store_row_read(relid, &row))
			continue;
		while ((attnum = column_that_contains(&row, attnum + 1, domain)) != 0)
		{
			if (!is_domain_over(row.columns[attnum - 1].type, domain))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot alter type \"%s\" because column \"%s.%s\" uses it",
								format_type_be(domain), get_rel_name(relid),
								get_attname(relid, attnum, false))));
			foreach (lc2, checks)
			{
				StrataRowCheck check = *(StrataRowCheck *) lfirst(lc2);

				check.attnum = attnum;
				add_check(&tables, relid, &check);
			}
		}
	}
	run_checks(tables);
}
