/*-------------------------------------------------------------------------
 *
 * columns.c
 *	  The column signature of a store, and missing values.
 *
 * Stored rows are sequences of values by attribute number; which type a value
 * has is known from the foreign table alone.  The store row therefore records
 * type and typmod of each column the stored rows were written with, so that
 * bytes are never read as another type after a change that no event trigger
 * reported.  Collations are not part of it: they do not change how a value is
 * stored, and the oids of those that are not built in do not survive
 * pg_upgrade.  (Key columns' collations are compared with those of the storage
 * relation's columns, which do.)
 *
 * Missing values: for each added column with a default, in attribute order,
 *
 *	uint16 attribute number, uint16 zero, uint32 length, value
 *
 * where value is the bytes of a flat datum, varlena with their 4-byte header.
 *
 * IDENTIFICATION
 *	  src/manifest/columns.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "manifest/columns.h"

#include "access/tupmacs.h"
#include "commands/typecmds.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

typedef struct MissingHeader
{
	uint16		attnum;
	uint16		unused;
	uint32		length;
} MissingHeader;

StrataColumn *
strata_columns_of(TupleDesc desc)
{
	StrataColumn *columns = palloc0(Max(desc->natts, 1) * sizeof(StrataColumn));

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		columns[i].type = att->atttypid;
		columns[i].typmod = att->atttypmod;
	}
	return columns;
}

bool
strata_columns_match(const StrataStoreRow *row, TupleDesc desc)
{
	if (row->ncolumns != desc->natts)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
		{
			if (OidIsValid(row->columns[i].type))
				return false;
		}
		else if (row->columns[i].type != att->atttypid ||
				 row->columns[i].typmod != att->atttypmod)
			return false;
	}
	return true;
}

/*
 * Ask the planner for the assignment cast and see whether anything is left of
 * it, as ALTER TABLE does to decide whether a heap has to be rewritten.
 */
bool
strata_column_compatible(Oid from, int32 from_typmod, Oid to, int32 to_typmod, Oid collation)
{
	Node	   *expr;

	if (from == to && from_typmod == to_typmod)
		return true;

	expr = (Node *) makeVar(1, 1, from, from_typmod, collation, 0);
	expr = coerce_to_target_type(NULL, expr, from, to, to_typmod,
								 COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	if (expr == NULL)
		return false;
	expr = (Node *) expression_planner((Expr *) expr);

	for (;;)
	{
		if (IsA(expr, Var))
			return true;
		if (IsA(expr, RelabelType))
			expr = (Node *) ((RelabelType *) expr)->arg;
		else if (IsA(expr, CoerceToDomain) &&
				 !DomainHasConstraints(((CoerceToDomain *) expr)->resulttype))
			expr = (Node *) ((CoerceToDomain *) expr)->arg;
		else
			return false;
	}
}

bytea *
strata_missing_encode(TupleDesc desc, const bool *has, const Datum *values)
{
	StringInfoData buf;
	bytea	   *result;

	initStringInfo(&buf);
	appendStringInfoSpaces(&buf, VARHDRSZ);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		MissingHeader header = {0};
		Datum		value = values[i];
		char		byval[sizeof(Datum)] = {0};
		const char *data;

		if (!has[i] || att->attisdropped)
			continue;

		if (att->attbyval)
		{
			store_att_byval(byval, value, att->attlen);
			data = byval;
			header.length = att->attlen;
		}
		else if (att->attlen == -1)
		{
			/* flat, whatever it is now; detoasting expands a short header */
			data = (const char *) PG_DETOAST_DATUM(value);
			header.length = VARSIZE_ANY(data);
		}
		else
		{
			data = DatumGetPointer(value);
			header.length = (uint32) datumGetSize(value, false, att->attlen);
		}

		header.attnum = (uint16) (i + 1);
		appendBinaryStringInfo(&buf, (const char *) &header, sizeof(header));
		appendBinaryStringInfo(&buf, data, header.length);
	}

	if (buf.len == VARHDRSZ)
		return NULL;
	result = (bytea *) buf.data;
	SET_VARSIZE(result, buf.len);
	return result;
}

static void
check_missing(bool sound)
{
	if (!sound)
		strata_table_corrupted(STRATA_TABLE_STORE, "missing values are malformed");
}

void
strata_missing_decode(const bytea *missing, TupleDesc desc, bool *has, Datum *values)
{
	const char *data;
	Size		left;
	int			previous = 0;

	memset(has, 0, sizeof(bool) * desc->natts);
	memset(values, 0, sizeof(Datum) * desc->natts);
	if (missing == NULL)
		return;

	data = VARDATA(missing);
	left = VARSIZE(missing) - VARHDRSZ;
	while (left > 0)
	{
		MissingHeader header;
		Form_pg_attribute att;
		char	   *copy;

		check_missing(left >= sizeof(header));
		memcpy(&header, data, sizeof(header));
		data += sizeof(header);
		left -= sizeof(header);
		check_missing(header.length <= left && header.length > 0 &&
					  header.attnum > previous && header.attnum <= desc->natts);
		previous = header.attnum;
		att = TupleDescAttr(desc, header.attnum - 1);

		if (!att->attisdropped)
		{
			/* palloc aligns for any type; the bytes here do not */
			copy = palloc(header.length);
			memcpy(copy, data, header.length);
			if (att->attlen > 0)
				check_missing(header.length == (uint32) att->attlen);
			else if (att->attlen == -1)
				check_missing(header.length >= VARHDRSZ && VARATT_IS_4B_U(copy) &&
							  VARSIZE(copy) == header.length);
			else
				check_missing(memchr(copy, '\0', header.length) == copy + header.length - 1);

			has[header.attnum - 1] = true;
			values[header.attnum - 1] = fetch_att(copy, att->attbyval, att->attlen);
			if (att->attbyval)
				pfree(copy);
		}
		data += header.length;
		left -= header.length;
	}
}
