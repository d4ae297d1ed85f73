/*-------------------------------------------------------------------------
 *
 * output.c
 *	  Rows that a pass puts into the base, as new row groups.
 *
 * A merge and a compaction write rows the same way: a row group is begun with
 * the first row, written and named in the manifest when it is full, and each
 * row's key and TID go to the superseding step, which adds them to the key
 * index in key order.
 *
 * Memory is one row group, in a context that is reset after each, and a few
 * dictionaries to compress it with (base/dictionary_train.c), in the pass's.
 *
 * Locks and crash windows: those of the pass (pass.c).  An extent that was
 * written and whose manifest row did not commit is found by sweep.
 *
 * IDENTIFICATION
 *	  src/merge/output.c
 *
 *-------------------------------------------------------------------------
 */
#include "merge/output.h"

#include "pause.h"
#include "storage/extent.h"
#include "storage/metapage.h"

#include <math.h>

#include "utils/memutils.h"

/* Passes compress better than loads. */
#define OUTPUT_COMPRESSION_LEVEL	3

/* zstd contexts and dictionaries, the sort of keys, decoded vectors of what is read. */
#define OUTPUT_FIXED_MEMORY			(16 * 1024 * 1024)

void
strata_output_begin(StrataOutput *output, StrataStore *store, Relation storage,
					const StrataManifest *manifest, StrataSupersede *supersede,
					uint64 rows, StrataPassRecord *record, StrataPassTick tick, void *arg)
{
	memset(output, 0, sizeof(*output));
	output->store = store;
	output->storage = storage;
	output->manifest = manifest;
	output->supersede = supersede;
	output->rows_left = rows;
	output->record = record;
	output->tick = tick;
	output->tick_arg = arg;
	output->pass_mcxt = CurrentMemoryContext;
	output->mcxt = AllocSetContextCreate(CurrentMemoryContext, "strata row group begun",
										 ALLOCSET_DEFAULT_SIZES);
}

/*
 * Write the row group begun, and name it in the manifest.
 */
static void
output_write_group(StrataOutput *output)
{
	StrataExtent extent;
	StrataGroupRef ref;
	bytea	   *zones = NULL;
	uint64		length;
	MemoryContext old_mcxt;

	if (output->writer == NULL)
		return;

	old_mcxt = MemoryContextSwitchTo(output->mcxt);

	length = strata_group_writer_finish(output->writer);
	output->tick(output->tick_arg);
	strata_extent_take(output->storage, strata_extent_blocks_for(length), &extent);
	strata_group_writer_write(output->writer, output->storage, &extent, &ref, &zones);
	STRATA_PAUSE("pass-group-written");
	strata_manifest_add_group(output->store, output->manifest->incarnation, output->number,
							  &ref, zones, output->record);
	length += strata_dictionaries_learn(output->dictionaries, output->writer, length,
										output->tick, output->tick_arg);
	strata_group_writer_end(output->writer);
	output->writer = NULL;
	output->record->row_groups_written++;
	output->record->bytes_written += length;

	MemoryContextSwitchTo(old_mcxt);
	MemoryContextReset(output->mcxt);
	output->tick(output->tick_arg);
}

/* Pick the key out of a row of the table. */
static void
output_row_key(StrataOutput *output, const Datum *values, const bool *isnull,
			   Datum *keyvalues)
{
	const StrataKey *key = &output->store->key;

	for (int i = 0; i < key->natts; i++)
	{
		int			attno = key->attnum[i] - 1;

		if (isnull[attno])
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("stored row of %s has a null key", output->store->name)));
		keyvalues[i] = values[attno];
	}
}

/*
 * Is the row group begun full, or has it got its share of the rows there are?
 * How many go into a full one is judged by those it has, so a share is at least
 * about half of that.
 */
static bool
output_is_full(const StrataOutput *output, uint32 rows)
{
	const StrataOptions *options = output->store->options;
	uint64		bytes = strata_group_writer_raw_bytes(output->writer);
	uint64		all = rows + output->rows_left;
	double		full;
	double		ngroups;

	if (rows >= (uint32) options->row_group_rows || bytes >= (uint64) options->row_group_bytes)
		return true;
	full = Min((double) options->row_group_rows,
			   (double) options->row_group_bytes / Max(bytes, 1) * rows);
	ngroups = ceil(all / full);
	return ngroups > 1 && rows * ngroups >= all;
}

/*
 * Add a row to the row group begun.
 */
void
strata_output_add(StrataOutput *output, const Datum *values, const bool *isnull,
				  uint32 hash)
{
	uint32		row;

	if (output->writer == NULL)
	{
		int			level = Max(output->store->options->compression_level,
								OUTPUT_COMPRESSION_LEVEL);
		MemoryContext old_mcxt = MemoryContextSwitchTo(output->pass_mcxt);

		if (output->dictionaries == NULL)
			output->dictionaries = strata_dictionaries_begin(output->store, output->storage,
															 output->manifest, level);
		MemoryContextSwitchTo(output->mcxt);
		output->writer = strata_group_writer_begin(output->store, level);
		strata_dictionaries_use(output->dictionaries, output->writer);
		output->number = strata_meta_take_row_groups(output->storage, 1);
		MemoryContextSwitchTo(old_mcxt);
	}

	row = strata_group_writer_rows(output->writer);
	strata_group_writer_add(output->writer, values, isnull, hash);

	if (output->supersede != NULL)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];

		output_row_key(output, values, isnull, keyvalues);
		strata_supersede_put(output->supersede, keyvalues, output->number, row);
	}

	if (output->rows_left > 0)
		output->rows_left--;
	if (output_is_full(output, row + 1))
		output_write_group(output);
}

void
strata_output_end(StrataOutput *output)
{
	output_write_group(output);
	MemoryContextDelete(output->mcxt);
}

/*
 * Rows are compressed vector by vector: at worst a row group does not get
 * smaller, and what is stored of it doubles in a growing buffer.
 */
uint64
strata_output_memory(const StrataStore *store)
{
	return OUTPUT_FIXED_MEMORY + 2 * (uint64) store->options->row_group_bytes;
}
