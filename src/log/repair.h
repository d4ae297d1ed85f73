/*-------------------------------------------------------------------------
 *
 * repair.h
 *	  Going through a damaged log, and setting aside what cannot be read.
 *
 * IDENTIFICATION
 *	  src/log/repair.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_LOG_REPAIR_H
#define STRATA_LOG_REPAIR_H

#include "log/walk.h"

typedef enum StrataLogLossKind
{
	STRATA_LOSS_ENTRY,			/* bytes from offset on, one entry or more */
	STRATA_LOSS_PAGES,			/* pages from this one on; links over them */
	STRATA_LOSS_PAGE,			/* a page that PostgreSQL refuses, but whose
								 * entries can all be read */
	STRATA_LOSS_LINK,			/* a reference from page to page */
	STRATA_LOSS_SHARD			/* the shard page */
} StrataLogLossKind;

typedef struct StrataLogLoss
{
	StrataLogLossKind kind;
	int			shard;
	uint32		generation;
	uint32		ordinal;		/* of the page in its generation */
	BlockNumber block;			/* InvalidBlockNumber: not known */
	uint32		offset;			/* ENTRY: where it starts */
	int64		rows;			/* rows and tombstones; -1: not known */
	int64		bytes;			/* of the log; -1: not known */
	const char *problem;
} StrataLogLoss;

/* Where a ROW_GROUP entry lies. */
typedef struct StrataLogGroup
{
	int			shard;
	uint32		generation;
	uint32		ordinal;
	StrataPageRef page;
	uint32		offset;
	uint64		fxid;
	uint16		flags;
	StrataGroupRef ref;
} StrataLogGroup;

typedef struct StrataLogRepair
{
	StrataStore *store;
	Relation	storage;
	bool		dry_run;
	BlockNumber nblocks;		/* of the file, before repair took space */
	const char *const *shard_problems;	/* by shard: what is wrong with the
										 * extents that its page names, or NULL */
	/* Called for what is damaged, and for each sound ROW_GROUP entry. */
	void (*loss)(const StrataLogLoss *loss, void *arg);
	void (*group)(const StrataLogGroup *group, void *arg);
	void	   *arg;
} StrataLogRepair;

/*
 * Go through the pending log of a shard from the state on.  Unless dry_run,
 * entries that cannot be read become LOST entries, and empty pages take the
 * place of missing ones, so that the log can be read from end to end.  Returns
 * true when the log then starts at *start.
 *
 * The caller holds the pass lock, and unless dry_run AccessExclusiveLock on
 * the storage relation.  What is written stays, whatever becomes of the
 * transaction.
 */
extern bool strata_log_repair(const StrataLogRepair *repair, int shard,
							  const StrataShardState *state, StrataPageRef *start);

/*
 * What is wrong with a shard page, by the pages of the log that it names; NULL:
 * nothing.  Raises an error when it cannot be read.  For verify and repair:
 * the caller holds the pass lock, writers may go on.
 */
extern const char *strata_log_check_shard(Relation storage, int shard,
										  const StrataShardState *state);

/*
 * What is wrong with the totals of a shard page, by what is merged and what is
 * pending; NULL: nothing, or not to be told for what else is wrong.  Raises an
 * error when the log cannot be read.  Callers as above.
 */
extern const char *strata_log_check_totals(Relation storage, int shard,
										   const StrataShardState *state);

/*
 * Have a ROW_GROUP entry name another row group of fewer rows (ref->lost says
 * how many fewer), or, without ref, make it a LOST entry.  Locks and rollback
 * as above.
 */
extern void strata_log_replace_group(Relation storage, const StrataLogGroup *group,
									 const StrataGroupRef *ref, uint16 natts);

#endif							/* STRATA_LOG_REPAIR_H */
