/*-------------------------------------------------------------------------
 *
 * output.h
 *	  Rows that a pass puts into the base, as new row groups.
 *
 * IDENTIFICATION
 *	  src/merge/output.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_OUTPUT_H
#define STRATA_OUTPUT_H

#include "base/dictionary.h"
#include "merge/merge.h"

typedef struct StrataOutput
{
	StrataStore *store;
	Relation	storage;
	const StrataManifest *manifest;	/* what the pass started from */
	StrataSupersede *supersede; /* told of each row; may be NULL */
	StrataPassRecord *record;	/* row groups and bytes written */
	StrataPassTick tick;		/* called after each row group */
	void	   *tick_arg;

	StrataDictionaries *dictionaries;	/* NULL until a row group is begun */
	StrataGroupWriter *writer;	/* NULL: no row group begun */
	MemoryContext pass_mcxt;	/* the dictionaries' */
	MemoryContext mcxt;			/* the row group's */
	uint32		number;			/* of the row group begun */
	uint64		rows_left;		/* that will be added after those it has */
} StrataOutput;

/* rows: how many will be added in all, or at most. */
extern void strata_output_begin(StrataOutput *output, StrataStore *store, Relation storage,
								const StrataManifest *manifest, StrataSupersede *supersede,
								uint64 rows, StrataPassRecord *record, StrataPassTick tick,
								void *arg);
/* Add a row; hash is its key's, 0 in a keyless store. */
extern void strata_output_add(StrataOutput *output, const Datum *values, const bool *isnull,
							  uint32 hash);
/* Write what is left. */
extern void strata_output_end(StrataOutput *output);

/* What the row group being written, a sort of keys and reading may take; bytes. */
extern uint64 strata_output_memory(const StrataStore *store);

#endif							/* STRATA_OUTPUT_H */
