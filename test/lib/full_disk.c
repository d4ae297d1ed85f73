/*
 * A disk that is full for some files, for tests: preloaded into a server, it
 * makes writes that would lengthen a file fail with ENOSPC, if the name of the
 * file (up to a segment's number) ends with a line of the file that the
 * environment variable STRATA_FULL_DISK names.  While that file is missing
 * there is space.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int
is_full(int fd, off_t end)
{
	const char *list = getenv("STRATA_FULL_DISK");
	int			saved = errno;
	int			full = 0;
	struct stat st;
	char		link[64];
	char		name[4096];
	char		line[4096];
	ssize_t		length;
	FILE	   *file;

	if (list == NULL || access(list, F_OK) != 0 || (file = fopen(list, "r")) == NULL)
	{
		errno = saved;
		return 0;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, name, sizeof(name) - 1);
	if (length > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && end > st.st_size)
	{
		name[length] = '\0';
		while (!full && fgets(line, sizeof(line), file) != NULL)
		{
			size_t		n = strcspn(line, "\n");

			full = n > 0 && (size_t) length >= n && strncmp(name + length - n, line, n) == 0;
		}
	}
	fclose(file);
	errno = full ? ENOSPC : saved;
	return full;
}

#define REAL(name)	static __typeof__(name) *real; \
	if (real == NULL) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

ssize_t
pwrite(int fd, const void *data, size_t n, off_t at)
{
	REAL(pwrite);
	return is_full(fd, at + n) ? -1 : real(fd, data, n, at);
}

ssize_t
pwrite64(int fd, const void *data, size_t n, off64_t at)
{
	REAL(pwrite64);
	return is_full(fd, at + n) ? -1 : real(fd, data, n, at);
}

static off_t
total(const struct iovec *iov, int n)
{
	off_t		sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t at)
{
	REAL(pwritev);
	return is_full(fd, at + total(iov, n)) ? -1 : real(fd, iov, n, at);
}

ssize_t
pwritev64(int fd, const struct iovec *iov, int n, off64_t at)
{
	REAL(pwritev64);
	return is_full(fd, at + total(iov, n)) ? -1 : real(fd, iov, n, at);
}

/* This one returns the error. */
int
posix_fallocate(int fd, off_t at, off_t n)
{
	REAL(posix_fallocate);
	return is_full(fd, at + n) ? ENOSPC : real(fd, at, n);
}

int
posix_fallocate64(int fd, off64_t at, off64_t n)
{
	REAL(posix_fallocate64);
	return is_full(fd, at + n) ? ENOSPC : real(fd, at, n);
}
