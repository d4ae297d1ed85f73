/*-------------------------------------------------------------------------
 *
 * deletes.h
 *	  Superseded base rows as bytes, in strata.deletes.  Used by this layer
 *	  only.
 *
 * IDENTIFICATION
 *	  src/manifest/deletes.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_DELETES_H
#define STRATA_DELETES_H

#include "strata.h"

/*
 * Encode a run of tids, which are sorted and encoded (number << 16 | row).
 * Takes as many of them as make a row of reasonable size; *used says how many.
 */
extern bytea *strata_deletes_encode(const uint64 *tids, uint64 ntids, uint64 *used);

/* Called for each pair, in order.  Malformed bytes raise XX001. */
typedef void (*StrataDeletesCallback)(uint32 number, uint32 row, void *arg);
extern void strata_deletes_decode(const bytea *bytes, uint64 ntids,
								  StrataDeletesCallback callback, void *arg);

#endif							/* STRATA_DELETES_H */
