/*-------------------------------------------------------------------------
 *
 * collation.h
 *	  Does a collation still sort as it did?
 *
 * IDENTIFICATION
 *	  src/base/collation.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_COLLATION_H
#define STRATA_COLLATION_H

#include "postgres.h"

/*
 * True unless the catalog recorded another version of the collation than the
 * operating system provides now.  Looked up once a session (and again when the
 * catalog changes), with a warning naming the index when it differs.
 */
extern bool strata_collation_trusted(const char *index, Oid collation);

/*
 * A number for how the collation sorts now: a hash of the version that the
 * operating system provides, 0 when it knows none (C, POSIX).  Whoever stores
 * something that rests on the order stores it along, and compares.
 */
extern uint32 strata_collation_version(Oid collation);

#endif							/* STRATA_COLLATION_H */
