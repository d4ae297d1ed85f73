/*-------------------------------------------------------------------------
 *
 * memtable.h
 *	  Rows of one command on their way into the log.
 *
 * A memtable belongs to one (store, xid, cid), shared by all ModifyTables of
 * the command, in put order: a row replaces an earlier one or a tombstone of
 * the same key.  It takes its xid when its first row is put and is flushed
 * under that xid and cid, whatever subtransaction or command is current: at
 * end of statement, when full, and before any other command's scan or write
 * of the same store in this transaction starts.  A failed flush marks the
 * memtable: the next put or the end of its statement raises the error again.
 * Rolled-back subtransactions take their memtables with them.
 *
 * A flush appends one entry per shard: ROWS when the rows encode to at most
 * two pages, else a row group in an extent of its own and a ROW_GROUP entry.
 *
 * IDENTIFICATION
 *	  src/log/memtable.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MEMTABLE_H
#define STRATA_MEMTABLE_H

#include "log/append.h"
#include "log/view.h"

#include "nodes/execnodes.h"

typedef struct StrataMemtable StrataMemtable;

/*
 * The memtable of the running command (cid as in estate->es_output_cid, in
 * COPY GetCurrentCommandId(true)); counted, release with strata_memtable_end.
 */
extern StrataMemtable *strata_memtable_begin(StrataStore *store, Relation storage,
											 CommandId cid);

/*
 * Put an inserted row.  values by attnum - 1; detoasted and copied here.  mode
 * REPLACE: newest wins.  ERROR: 23505 at once for a duplicate within the
 * memtable, and for the first STRATA_MAX_JUDGED_AT_ONCE keys of the command also
 * for one that is in the store (who is putting or deleting it is waited for);
 * the rest is judged at flush.  IGNORE: looks with the key locked,
 * and returns false when a live row with the key exists (nothing put, nothing
 * locked).
 * Raises 23502 for a null key.
 */
extern bool strata_memtable_put(StrataMemtable *memtable, StrataOnDuplicate mode,
								Datum *values, bool *isnull);

/*
 * Put a new version, or the tombstone, of a row that strata_row_lock found to
 * be the same as the one read.  manifest is the one it looked with, seen what
 * it said; versions linked between seen and ours by others raise 40001.
 * moved: the row goes to another partition, which whoever waits for it is told.
 */
extern void strata_memtable_put_version(StrataMemtable *memtable, Datum *values, bool *isnull,
										StrataManifest *manifest, const StrataPosition *seen);
extern void strata_memtable_put_tombstone(StrataMemtable *memtable, const Datum *keyvalues,
										  StrataManifest *manifest, const StrataPosition *seen,
										  bool moved);

/* Put a row with another key in the place of one that was read, likewise. */
extern void strata_memtable_put_rekeyed(StrataMemtable *memtable, const Datum *oldkey,
										Datum *values, bool *isnull,
										StrataManifest *manifest, const StrataPosition *seen);

/* Lock the key that an UPDATE is about to give a row; 23505 if it has one. */
extern void strata_memtable_lock_new_key(StrataMemtable *memtable, Datum *keyvalues);

/* Has the command put a row or tombstone of this key (and not flushed it)? */
extern bool strata_memtable_has_key(StrataMemtable *memtable, uint32 hash,
									const Datum *keyvalues);

/* The statement puts no more rows: flush. */
extern void strata_memtable_finish(StrataMemtable *memtable);

/* End of the statement: the last user's call flushes and frees. */
extern void strata_memtable_end(StrataMemtable *memtable);

/*
 * Flush every memtable of this store that belongs to another command than cid
 * (InvalidCommandId: all of them).  Called before a scan or write starts.
 */
extern void strata_memtable_flush(Oid storage, CommandId cid);

/* Flush every memtable of this session. */
extern void strata_memtable_flush_all(void);

/* Register transaction callbacks (from _PG_init). */
extern void strata_memtable_init(void);

#endif							/* STRATA_MEMTABLE_H */
