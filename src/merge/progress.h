/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  How far the pass of this backend is, for others to look at.
 *
 * A background worker points strata_progress at its place in shared memory;
 * elsewhere it is NULL and nothing is told.  Only its backend writes, and
 * whoever reads may see numbers of different moments.
 *
 * IDENTIFICATION
 *	  src/merge/progress.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PROGRESS_H
#define STRATA_PROGRESS_H

#include "postgres.h"

#include "port/atomics.h"

typedef enum StrataPhase
{
	STRATA_PHASE_NONE,
	STRATA_PHASE_CHOOSE,
	STRATA_PHASE_WAIT,			/* for memory */
	STRATA_PHASE_READ,
	STRATA_PHASE_WRITE,
	STRATA_PHASE_INDEX
} StrataPhase;

typedef struct StrataProgress
{
	pg_atomic_uint32 phase;
	pg_atomic_uint32 planned;	/* generations, or row groups */
	pg_atomic_uint32 done;
	pg_atomic_uint64 bytes_planned;
	pg_atomic_uint64 bytes_done;
} StrataProgress;

extern StrataProgress *strata_progress;

static inline void
strata_progress_phase(StrataPhase phase)
{
	if (strata_progress != NULL)
		pg_atomic_write_u32(&strata_progress->phase, (uint32) phase);
}

static inline void
strata_progress_start(StrataPhase phase, uint32 planned, uint64 bytes)
{
	if (strata_progress == NULL)
		return;
	pg_atomic_write_u32(&strata_progress->phase, (uint32) phase);
	pg_atomic_write_u32(&strata_progress->planned, planned);
	pg_atomic_write_u32(&strata_progress->done, 0);
	pg_atomic_write_u64(&strata_progress->bytes_planned, bytes);
	pg_atomic_write_u64(&strata_progress->bytes_done, 0);
}

static inline void
strata_progress_done(uint32 n, uint64 bytes)
{
	if (strata_progress == NULL)
		return;
	pg_atomic_fetch_add_u32(&strata_progress->done, (int32) n);
	pg_atomic_fetch_add_u64(&strata_progress->bytes_done, (int64) bytes);
}

#endif							/* STRATA_PROGRESS_H */
