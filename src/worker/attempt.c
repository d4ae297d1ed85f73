/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  What workers were at when the server crashed.
 *
 * A pass that crashes the server takes shared memory with it, and with that
 * the failures of its store: made again at once it would do so again, and
 * again.  So a worker notes in a file what it is about to do, and takes the
 * note back when it is through, whatever came of it.  A note that is found
 * when shared memory is made is an attempt that crashed, or one that was under
 * way when something else did: both wait as after any failure.  The stores
 * that crashed stay in the file until one of their passes succeeds, so that
 * another crash meanwhile does not make their failures forgotten.
 *
 * The file is pg_stat_tmp/strata_attempts, since a base backup and pg_rewind
 * leave that directory out: what this server is at is no crash of the copy's.
 * It has fixed records, one of each worker's place and some of stores that
 * crashed.  A note is one write of 32 bytes into the kernel's cache, which
 * outlives every process; it is not flushed, since a crash of the machine is no
 * pass's doing.  Nothing depends on the file: where it cannot be written or
 * read, failures are forgotten.
 *
 * Locks: none.  A worker writes the record of its own place and takes out the
 * one of a store on which it holds what a pass holds; the launcher writes the
 * whole file, before the first worker starts.
 *
 * IDENTIFICATION
 *	  src/worker/attempt.c
 *
 *-------------------------------------------------------------------------
 */
#include "worker/worker.h"

#include "compat.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#define ATTEMPT_FILE			PG_STAT_TMP_DIR "/strata_attempts"
#define ATTEMPT_MAGIC			0x53744174

/* Stores that crashed, after the workers' places. */
#define ATTEMPT_CRASHED			64
#define ATTEMPT_RECORDS			(STRATA_MAX_WORKERS + ATTEMPT_CRASHED)

/* What has not been tried for so long is gone. */
#define ATTEMPT_MAX_SEC			(24 * 3600)

typedef struct AttemptRecord
{
	uint32		magic;			/* 0: no record */
	Oid			database;
	Oid			store;			/* foreign table */
	int32		task;
	int32		failures;		/* in a row; of a worker: before this one */
	pg_crc32c	crc;			/* of the rest */
	TimestampTz at;
} AttemptRecord;

static int	attempt_fd = -1;
static bool attempt_broken = false;

static pg_crc32c
record_crc(const AttemptRecord *record)
{
	AttemptRecord copy = *record;
	pg_crc32c	crc;

	copy.crc = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &copy, sizeof(copy));
	FIN_CRC32C(crc);
	return crc;
}

/* Said once; then this process goes on without. */
static void
file_broken(const char *what)
{
	if (!attempt_broken)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not %s file \"%s\": %m", what, ATTEMPT_FILE)));
	attempt_broken = true;
}

static bool
file_open(int flags)
{
	if (attempt_fd < 0 && !attempt_broken)
	{
		attempt_fd = BasicOpenFile(ATTEMPT_FILE, O_RDWR | PG_BINARY | flags);
		if (attempt_fd < 0)
			file_broken("open");
		else
			ReserveExternalFD();
	}
	return attempt_fd >= 0 && !attempt_broken;
}

static void
write_records(int first, AttemptRecord *records, int n)
{
	ssize_t		size = n * sizeof(AttemptRecord);

	for (int i = 0; i < n; i++)
	{
		if (records[i].magic != 0)
			records[i].crc = record_crc(&records[i]);
	}
	errno = 0;
	if (pg_pwrite(attempt_fd, records, size, first * sizeof(AttemptRecord)) != size)
	{
		/* As elsewhere: a short write without a reason is a full disk. */
		if (errno == 0)
			errno = ENOSPC;
		file_broken("write");
	}
}

void
strata_attempt_begin(int slot, Oid database, Oid store, StrataTask task, int failures)
{
	AttemptRecord record = {.magic = ATTEMPT_MAGIC, .database = database, .store = store, .task = task, .failures = failures, .at = GetCurrentTimestamp()};

	if (file_open(0))
		write_records(slot, &record, 1);
}

void
strata_attempt_end(int place)
{
	AttemptRecord record = {0};

	if (file_open(0))
		write_records(place, &record, 1);
}

/* All records, made free where they are not whole.  False: no file. */
static bool
read_records(AttemptRecord *records)
{
	ssize_t		size = ATTEMPT_RECORDS * sizeof(AttemptRecord);
	ssize_t		got;

	memset(records, 0, size);
	if (!file_open(O_CREAT))
		return false;
	got = pg_pread(attempt_fd, records, size, 0);
	if (got < 0)
	{
		file_broken("read");
		return false;
	}
	for (int i = 0; i < ATTEMPT_RECORDS; i++)
	{
		if ((ssize_t) ((i + 1) * sizeof(AttemptRecord)) > got ||
			records[i].magic != ATTEMPT_MAGIC ||
			records[i].crc != record_crc(&records[i]) ||
			records[i].failures < 0 ||
			records[i].task < 0 || records[i].task > STRATA_TASK_ANALYZE)
			memset(&records[i], 0, sizeof(AttemptRecord));
	}
	return true;
}

/* The store's failures are what they were, and one more for what crashed. */
static void
remember(const AttemptRecord *record, int place, bool crashed)
{
	StrataSharedStore *shared = strata_store_lock_of(record->database, record->store, true);
	TimestampTz pause = strata_worker_failure_pause(record->failures);

	if (shared != NULL)
	{
		shared->failures = record->failures;
		shared->failed += crashed ? 1 : 0;
		shared->failed_at = record->at;
		shared->failed_task = record->task;
		shared->next_try = record->at + pause;
		shared->crash_place = place;
		strlcpy(shared->sqlstate, unpack_sql_state(ERRCODE_CRASH_SHUTDOWN),
				sizeof(shared->sqlstate));
		snprintf(shared->error, STRATA_ERROR_SIZE, "the server crashed during the %s",
				 strata_task_name(record->task));
		strata_store_unlock();
	}
	if (crashed)
		ereport(LOG,
				(errmsg("strata: the server crashed during the %s of table with OID %u in database with OID %u (%d in a row), next try in %d s",
						strata_task_name(record->task), record->store, record->database,
						record->failures, (int) (pause / USECS_PER_SEC)),
				 errhint("If that was its doing, set the option auto_merge of the table to off, and report it.")));
}

bool
strata_attempt_recover(void)
{
	AttemptRecord found[ATTEMPT_RECORDS];
	AttemptRecord kept[ATTEMPT_RECORDS] = {0};
	TimestampTz now = GetCurrentTimestamp();
	int			ncrashed = 0;
	int			place = STRATA_MAX_WORKERS;

	if (!read_records(found))
		return false;

	/* Workers' places first: theirs is the latest that is known of a store. */
	for (int i = 0; i < ATTEMPT_RECORDS; i++)
	{
		AttemptRecord *record = &found[i];
		bool		crashed = i < STRATA_MAX_WORKERS;
		bool		known = false;

		if (record->magic == 0 || record->at > now ||
			record->at + ATTEMPT_MAX_SEC * USECS_PER_SEC < now)
			continue;
		for (int j = STRATA_MAX_WORKERS; j < place; j++)
			known |= kept[j].database == record->database && kept[j].store == record->store;
		if (known)
			continue;
		if (crashed)
		{
			record->failures++;
			record->at = now;
			ncrashed++;
		}
		remember(record, place < ATTEMPT_RECORDS ? place : 0, crashed);
		if (place < ATTEMPT_RECORDS)
			kept[place++] = *record;
	}
	write_records(0, kept, ATTEMPT_RECORDS);
	return ncrashed > 0;
}
