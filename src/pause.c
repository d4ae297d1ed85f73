/*-------------------------------------------------------------------------
 *
 * pause.c
 *	  Named pause points for tests.
 *
 * A point is armed by a file of its name in the data directory, so that a
 * test can arm it from outside, before the session exists and while it hangs.
 * Looking for a file at every point is slow; nothing of this is in a build
 * for use.
 *
 * IDENTIFICATION
 *	  src/pause.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pause.h"

#ifdef STRATA_TEST_PAUSES

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"

#define PAUSE_DIRECTORY		"strata.pause"
#define PAUSE_POLL_USEC		10000L

/*
 * Wait while the file is there; meanwhile <point>.reached says that we do, and
 * names the processes.
 */
static void
wait_for_removal(const char *file, const char *point, bool interruptible)
{
	char		reached[MAXPGPATH];
	FILE	   *mark;
	struct stat st;

	snprintf(reached, sizeof(reached), "%s.reached", point);
	mark = fopen(reached, "a");
	if (mark != NULL)
	{
		fprintf(mark, "%d\n", MyProcPid);
		fclose(mark);
	}
	while (stat(file, &st) == 0)
	{
		pg_usleep(PAUSE_POLL_USEC);
		if (interruptible)
			CHECK_FOR_INTERRUPTS();
	}
	(void) unlink(reached);
}

void
strata_pause(const char *name)
{
	char		path[MAXPGPATH];
	char		held[MAXPGPATH];
	char		action[64];
	FILE	   *file;
	int			milliseconds;

	/* System calls of our own: some points stand in critical sections. */
	snprintf(path, sizeof(path), "%s/%s", PAUSE_DIRECTORY, name);
	file = fopen(path, "r");
	if (file == NULL)
		return;
	if (fgets(action, sizeof(action), file) == NULL)
		action[0] = '\0';
	fclose(file);
	action[strcspn(action, "\r\n")] = '\0';

	if (strcmp(action, "wait") == 0)
		wait_for_removal(path, path, false);
	else if (strcmp(action, "hang") == 0)
		wait_for_removal(path, path, true);
	else if (strcmp(action, "hold") == 0)
	{
		/* renaming lets only one in */
		snprintf(held, sizeof(held), "%s.held", path);
		if (rename(path, held) == 0)
			wait_for_removal(held, path, false);
	}
	else if (strcmp(action, "error") == 0)
	{
		(void) unlink(path);
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("stopped at pause point \"%s\"", name)));
	}
	else if (strcmp(action, "kill") == 0)
	{
		(void) kill(MyProcPid, SIGKILL);
	}
	else if (strcmp(action, "segv") == 0)
	{
		(void) signal(SIGSEGV, SIG_DFL);
		(void) raise(SIGSEGV);
	}
	else if (sscanf(action, "sleep %d", &milliseconds) == 1)
	{
		for (; milliseconds > 0; milliseconds -= 10)
			pg_usleep(Min(milliseconds, 10) * 1000L);
	}
	else
		elog(WARNING, "unknown action \"%s\" at pause point \"%s\"", action, name);
}

#endif							/* STRATA_TEST_PAUSES */
