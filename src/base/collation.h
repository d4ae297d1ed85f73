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

#endif							/* STRATA_COLLATION_H */
