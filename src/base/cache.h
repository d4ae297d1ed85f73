/*-------------------------------------------------------------------------
 *
 * cache.h
 *	  A backend's cache of decoded footers and vectors of row groups.
 *
 * IDENTIFICATION
 *	  src/base/cache.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_CACHE_H
#define STRATA_CACHE_H

#include "strata.h"

#include "lib/ilist.h"

/*
 * An owner id is never used again within a relation's file, so a key always
 * means the same bytes.  attnum 0 is the footer, -1 a dictionary.  No padding:
 * keys are hashed and compared as bytes.
 */
typedef struct StrataCacheKey
{
	Oid			relid;			/* storage relation */
	Oid			filenode;
	uint64		owner;			/* of the extent */
	uint32		vector;
	int32		attnum;
} StrataCacheKey;

/* Header of everything cached; the payload follows, MAXALIGNed. */
typedef struct StrataCacheEntry
{
	StrataCacheKey key;
	Size		size;			/* with this header and what it owns elsewhere */
	int			pins;
	bool		linked;			/* found by lookups */
	void (*destroy)(void *payload); /* before it is freed; NULL: nothing */
	dlist_node	lru;
} StrataCacheEntry;

#define STRATA_CACHE_PAYLOAD(entry) \
	((char *) (entry) + MAXALIGN(sizeof(StrataCacheEntry)))

/* Find and pin; NULL when not there. */
extern StrataCacheEntry *strata_cache_lookup(const StrataCacheKey *key);

/*
 * Memory for a new entry with a payload of that size, pinned once and known to
 * nobody else, until strata_cache_insert makes it known (or does not, when it
 * would take too much of the cache).
 */
extern StrataCacheEntry *strata_cache_alloc(Size payload);
extern void strata_cache_insert(StrataCacheEntry *entry, const StrataCacheKey *key);

/* It may go from now on; whoever pinned it no longer looks at it. */
extern void strata_cache_unpin(StrataCacheEntry *entry);

/*
 * While set nothing new is kept.  A pass reads each row group a few times and
 * never again: it shall neither push out what queries use nor take memory that
 * follows the backlog.  Whoever sets it resets it, errors or not.
 */
extern bool strata_cache_closed;

#endif							/* STRATA_CACHE_H */
