/*-------------------------------------------------------------------------
 *
 * append.h
 *	  Appending to a shard's log: entries, extents, sealing.
 *
 * An append that fits the tail page touches that page alone.  One that does
 * not links up to two new pages in one record over shard page, old tail and
 * new pages, all locked until it is inserted.  The pages come from the tail
 * extent that the shard page names; the next one is prepared before it is
 * needed, never under a page lock.  An appender that finds CLOSED, a next
 * pointer or a foreign page after locking starts again at the shard page.
 *
 * Page locks in order: shard page, generation's first page (sealing), tail,
 * new pages, spare page, metapage.
 *
 * IDENTIFICATION
 *	  src/log/append.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_APPEND_H
#define STRATA_APPEND_H

#include "log/entry.h"

/*
 * Append one complete entry to a shard.  stored_bytes is what it counts
 * towards generation_max_bytes (its own length, for ROW_GROUP plus the
 * group's).  Initialises an empty store.  Seals the generation afterwards
 * when it went over the store's generation_max_bytes or _rows.  Returns the
 * entry's position.  The caller holds RowExclusiveLock on the storage and no
 * page; XX001 where the log's end is damaged.
 */
extern StrataPosition strata_log_append(StrataStore *store, Relation storage, int shard,
										const StrataEntryHeader *entry,
										uint64 stored_bytes);

/*
 * Called after an entry was appended, or with sealed after the transaction
 * closed a generation.  Filled in by _PG_init: this layer knows no workers.
 */
typedef void (*StrataLogAppended)(StrataStore *store, bool sealed);
extern StrataLogAppended strata_log_appended_hook;

/*
 * Take an extent for a bulk writer: one record changes the spare page and
 * appends an EXTENT entry, so that the extent frees itself when its
 * generation goes.  Extends the file when need be.  Locks as above.
 */
extern void strata_log_take_extent(StrataStore *store, Relation storage, int shard,
								   FullTransactionId fxid, CommandId cid,
								   uint32 nblocks, StrataExtent *out);

/*
 * Close the active generation of a shard and open the next.  False when it
 * holds no entry (nothing done); else *generation is the one closed.
 */
extern bool strata_log_seal(Relation storage, int shard, uint32 *generation);

/*
 * Let the log of a shard go on before block limit: the active generation, which
 * must hold no entry at all, is closed, and the next starts on an extent taken
 * there.  False when it holds something or there is no room; else *generation
 * is the one closed and *next the first page of the one opened.  What the
 * shard page had of tail extents is unreferenced afterwards.
 */
extern bool strata_log_move_tail(Relation storage, int shard, BlockNumber limit,
								 uint32 *generation, StrataPageRef *next);

#endif							/* STRATA_APPEND_H */
