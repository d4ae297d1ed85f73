/*-------------------------------------------------------------------------
 *
 * columns.h
 *	  The column signature of a store and the values that rows stored before a
 *	  column was added show for it.  Used by this layer only.
 *
 * IDENTIFICATION
 *	  src/manifest/columns.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_COLUMNS_H
#define STRATA_COLUMNS_H

#include "manifest/catalog.h"

#include "access/tupdesc.h"

/* The signature of a table's columns, palloc'd. */
extern StrataColumn *strata_columns_of(TupleDesc desc);

/* True when desc has exactly the columns that the store row knows. */
extern bool strata_columns_match(const StrataStoreRow *row, TupleDesc desc);

/*
 * True when values stored as type and typmod from can be read as type and
 * typmod to without looking at them.
 */
extern bool strata_column_compatible(Oid from, int32 from_typmod,
									 Oid to, int32 to_typmod, Oid collation);

/* Missing values as bytes; NULL when has is false throughout. */
extern bytea *strata_missing_encode(TupleDesc desc, const bool *has, const Datum *values);

/* The reverse; arrays of desc->natts, values allocated in the current context. */
extern void strata_missing_decode(const bytea *missing, TupleDesc desc,
								  bool *has, Datum *values);

#endif							/* STRATA_COLUMNS_H */
