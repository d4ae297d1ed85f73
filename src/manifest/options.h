/*-------------------------------------------------------------------------
 *
 * options.h
 *	  Table options of strata foreign tables and the GUCs that are their
 *	  defaults.
 *
 * IDENTIFICATION
 *	  src/manifest/options.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_OPTIONS_H
#define STRATA_OPTIONS_H

#include "strata.h"

#include "nodes/pg_list.h"

typedef enum StrataOnDuplicate
{
	STRATA_ON_DUPLICATE_REPLACE,
	STRATA_ON_DUPLICATE_ERROR,
	STRATA_ON_DUPLICATE_IGNORE
} StrataOnDuplicate;

typedef enum StrataLayer
{
	STRATA_LAYER_ALL,			/* an ordinary strata table */
	STRATA_LAYER_WAL,			/* OPTIONS (store ..., layer 'wal') */
	STRATA_LAYER_BASE
} StrataLayer;

/* Options of one table, GUC defaults filled in.  Sizes in bytes. */
typedef struct StrataOptions
{
	List	   *key;			/* column names (String *); NIL: keyless */
	int			shards;
	StrataOnDuplicate on_duplicate;
	int			compression_level;	/* of loads; passes use at least 3 */
	int			row_group_rows;
	int64		row_group_bytes;	/* raw */
	int64		generation_max_bytes;
	int64		generation_max_rows;
	int			merge_after_generations;	/* 0: trigger off */
	int			merge_interval; /* seconds; 0: trigger off */
	int			merge_max_generations;	/* 0: no cap */
	int64		merge_max_bytes;	/* 0: no cap */
	bool		auto_merge;

	/* layer tables */
	StrataLayer layer;
	char	   *store;			/* name of the store's foreign table, as given */
} StrataOptions;

/* GUCs that are no table option */
extern int	strata_cache_size;	/* kB */
extern bool strata_index_before_merge;

/* Counts changes of GUCs that are option defaults: what was parsed before is stale. */
extern uint64 strata_gucs_changed;

/* Define all GUCs (from _PG_init). */
extern void strata_define_gucs(void);

/* Options of foreign table ftrelid, palloc'd in the current context. */
extern StrataOptions *strata_options_get(Oid ftrelid);

/* The foreign table that the option "store" of a layer table names. */
extern Oid	strata_options_store(const StrataOptions *options, bool missing_ok);

/* Replace the value of an option that is set; the table is locked exclusively. */
extern void strata_options_set(Oid ftrelid, const char *name, const char *value);

/* Parse an option list (DefElem), filling in defaults; raises on bad values. */
extern StrataOptions *strata_options_parse(List *defelems);

#endif							/* STRATA_OPTIONS_H */
