/*-------------------------------------------------------------------------
 *
 * pending_resolve.h
 *	  What pending_resolve.c and pending_superseded.c share.
 *
 * IDENTIFICATION
 *	  src/log/pending_resolve.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PENDING_RESOLVE_H
#define STRATA_PENDING_RESOLVE_H

#include "log/pending_private.h"

typedef struct StrataResolve
{
	StrataPending *pending;
	StrataAccept accept;
	void	   *arg;
	int			nentries;		/* entries looked at: those there at the start */
	StrataKeyTable *table;		/* of the partition */
	uint32		part;			/* of hashes in the table */
	uint32		nparts;
	StrataPendingReader *reader;	/* keys, in order */
	Size		budget;
} StrataResolve;

typedef void (*StrataTableCallback)(StrataResolve *resolve, void *arg);

static inline bool
bit_get(const uint8 *bitmap, uint64 i)
{
	return (bitmap[i >> 3] & (1 << (i & 7))) != 0;
}

static inline void
bit_set(uint8 *bitmap, uint64 i)
{
	bitmap[i >> 3] |= 1 << (i & 7);
}

static inline void
bit_clear(uint8 *bitmap, uint64 i)
{
	bitmap[i >> 3] &= ~(1 << (i & 7));
}

static inline bool
resolve_accepts(StrataResolve *resolve, uint32 entry)
{
	return (int) entry < resolve->nentries &&
		resolve->accept(&resolve->pending->log->entries[entry], entry, resolve->arg);
}

static inline uint64
resolve_key_number(StrataResolve *resolve, const StrataPendingKey *key)
{
	return resolve->pending->log->entries[key->entry].first_key + key->row;
}

extern void strata_resolve_init(StrataResolve *resolve, StrataPending *pending,
								StrataAccept accept, void *arg);
extern void strata_resolve_end(StrataResolve *resolve);

/*
 * Call callback with a table of keys, or with one after the other that
 * together hold every accepted version.
 */
extern void strata_resolve_each_table(StrataResolve *resolve, StrataTableCallback callback,
									  void *arg);

#endif							/* STRATA_PENDING_RESOLVE_H */
