/*-------------------------------------------------------------------------
 *
 * rowgroup_reader.h
 *	  What the two files that read row groups share.
 *
 *	rowgroup_reader.c	bytes in, rows out
 *	rowgroup_check.c	is everything in a row group what it should be?
 *
 * IDENTIFICATION
 *	  src/base/rowgroup_reader.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_ROWGROUP_READER_H
#define STRATA_ROWGROUP_READER_H

#include "base/cache.h"
#include "base/footer.h"
#include "base/rowgroup.h"

#include "storage/bufmgr.h"

/* A column that rows are read of. */
typedef struct StrataReaderSlot StrataReaderSlot;

struct StrataGroupReader
{
	MemoryContext mcxt;
	MemoryContextCallback callback;
	StrataStore *store;
	Relation	storage;
	StrataGroupRef ref;
	bool		sequential;
	bool		salvage;		/* pages may be damaged */
	BufferAccessStrategy strategy;
	StrataCacheEntry *footer_entry;
	const StrataFooter *footer;
	StrataCacheEntry **dictionaries;	/* pinned, by column of the footer; NULL:
										 * none was needed yet */
	int			nneeded;		/* slots of needed columns come first */
	int			nslots;
	StrataReaderSlot *slots;
	bool		fill_missing;
	bool		key_ready;
	int			key_slots[INDEX_MAX_KEYS];
	uint32	   *hashes;
	uint64		bytes_read;
	uint64		bytes_decoded;
	char		object[48];		/* for messages */
};

/*
 * A reader that knows where its row group is and nothing else; its footer is
 * then read past the cache (NULL, or what is wrong).
 */
extern StrataGroupReader *strata_reader_begin(StrataStore *store, Relation storage,
											  const StrataGroupRef *ref, bool sequential);
extern const char *strata_reader_footer(StrataGroupReader *reader);

/* False, in a salvage reader alone, when they cannot be read. */
extern bool strata_reader_bytes(StrataGroupReader *reader, uint64 offset, Size len, void *dst);

/* The zstd dictionary of a column, pinned for as long as the reader lives. */
struct ZSTD_DDict_s;
extern const struct ZSTD_DDict_s *strata_reader_dictionary(StrataGroupReader *reader,
														   const StrataFooterColumn *column);

/*
 * Read and decode a vector into memory of strata_vector_size bytes.  Returns
 * NULL, or what is wrong.
 */
extern const char *strata_reader_decode(StrataGroupReader *reader,
										const StrataFooterColumn *column, uint32 vector,
										StrataVector *out, char *memory);

#endif							/* STRATA_ROWGROUP_READER_H */
