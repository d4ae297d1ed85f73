/*-------------------------------------------------------------------------
 *
 * pause.h
 *	  Named pause points for tests.
 *
 * STRATA_PAUSE("name") compiles to nothing unless STRATA_TEST_PAUSES is
 * defined (make PAUSES=1; ./test/run does, packages and benchmarks do not).
 * With it, a point is armed while the file strata.pause/<name> exists in the
 * data directory.  The file's text says what happens to whoever gets there:
 *
 *	wait		wait until the file is gone (does not check for interrupts, so
 *				it may stand where a page lock is held)
 *	hold		the same for whoever comes first; others pass by
 *	hang		as wait, but let interrupts through
 *	error		ereport(ERROR), then the point disarms itself
 *	kill		SIGKILL the own process (the postmaster restarts the cluster)
 *	segv		abort with SIGSEGV
 *	sleep N		sleep N milliseconds
 *
 * What a point is for is told where it stands; grep -rn STRATA_PAUSE src finds them.
 *
 * IDENTIFICATION
 *	  src/pause.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_PAUSE_H
#define STRATA_PAUSE_H

#ifdef STRATA_TEST_PAUSES
extern void strata_pause(const char *name);
#define STRATA_PAUSE(name)	strata_pause(name)
#else
#define STRATA_PAUSE(name)	((void) 0)
#endif

#endif							/* STRATA_PAUSE_H */
