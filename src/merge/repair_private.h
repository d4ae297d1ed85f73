/*-------------------------------------------------------------------------
 *
 * repair_private.h
 *	  What the files of repair share.
 *
 *	repair.c			driver, rows of the result, the log
 *	repair_groups.c		row groups: what of them is lost; those of the base
 *	repair_pending.c	row groups of the log
 *
 * IDENTIFICATION
 *	  src/merge/repair_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_REPAIR_PRIVATE_H
#define STRATA_REPAIR_PRIVATE_H

#include "merge/merge.h"

#include "log/repair.h"

#include "nodes/execnodes.h"

typedef struct StrataRepair
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
	bool		dry_run;
	bool		pass_begun;		/* logged as M */
	Bitmapset  *columns;		/* all of the table's */
	Bitmapset  *key_columns;
	BlockNumber nblocks;		/* of the file, before any space was taken */
	const char *shard_problems[STRATA_MAX_SHARDS];	/* as log/repair.h has them */
	List	   *pending;		/* of StrataLogGroup *, as the log has them */
	List	   *lost_keys;		/* of StrataRepairLostKey *, of pending row groups */
	StrataPassRecord record;
	MemoryContext mcxt;

	ReturnSetInfo *result;
	uint64		nlosses;
} StrataRepair;

/* One row of the result; what is not known is null. */
typedef struct StrataRepairLoss
{
	const char *kind;
	BlockNumber block;			/* InvalidBlockNumber: none */
	int			shard;			/* -1: of no log */
	uint32		generation;
	int64		page;			/* -1: none */
	int64		entry;			/* offset on the page, -1: none */
	uint32		row_group;		/* 0: none */
	int64		rows;			/* -1: not known */
	const char *first_key;
	const char *last_key;
	int64		bytes;			/* -1: not known */
	const char *problem;
	const char *action;
} StrataRepairLoss;

#define STRATA_REPAIR_NO_LOSS \
	{ \
		.block = InvalidBlockNumber, .shard = -1, .page = -1, .entry = -1, .rows = -1, .bytes = -1 \
	}

/* Add a row to the result, and unless this is a dry run to the server log. */
extern void strata_repair_loss(StrataRepair *repair, const StrataRepairLoss *loss);

/* Before the manifest is changed: log the transaction as M, once. */
extern void strata_repair_begin_pass(StrataRepair *repair);

/* StrataPassTick */
extern void strata_repair_tick(void *arg);

/* ---- row groups (repair_groups.c) ---- */

static inline bool
strata_repair_bit(const uint8 *bitmap, uint32 row)
{
	return bitmap != NULL && (bitmap[row >> 3] & (1 << (row & 7))) != 0;
}

/* Is a row, which counts, lost? */
static inline bool
strata_repair_row_lost(const StrataGroupDamage *damage, uint32 row)
{
	return damage->unreadable || strata_repair_bit(damage->lost, row);
}

/*
 * Look at a row group; base is its place in the manifest (NULL: of the log),
 * counts whether its rows do.  False: sound.  Else loss has all but kind and
 * action, and is yet to be told.
 */
extern bool strata_repair_examine(StrataRepair *repair, const StrataGroupRef *ref,
								  const StrataRowGroup *base, bool counts,
								  StrataGroupDamage *damage, StrataRepairLoss *loss);

/*
 * Call add with each row of a damaged row group that counts and can be read.
 */
typedef void (*StrataRepairAddRow)(void *arg, const Datum *values, const bool *isnull, uint32 hash);

extern void strata_repair_salvage(StrataRepair *repair, const StrataGroupRef *ref,
								  const StrataGroupDamage *damage,
								  const StrataRowGroup *base,
								  StrataRepairAddRow add, void *arg);

/* Row groups of the base, and dictionaries. */
extern void strata_repair_base(StrataRepair *repair);

/* ---- row groups of the log (repair_pending.c) ---- */

extern void strata_repair_pending_group(StrataRepair *repair, const StrataLogGroup *group);

/*
 * See to it that no older version of a lost row of a pending row group counts,
 * where its key is known and no newer version does.
 */
extern void strata_repair_hide_older(StrataRepair *repair);

#endif							/* STRATA_REPAIR_PRIVATE_H */
