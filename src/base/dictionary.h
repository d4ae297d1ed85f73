/*-------------------------------------------------------------------------
 *
 * dictionary.h
 *	  zstd dictionaries: what the vectors of a wide column have in common, kept
 *	  once for many row groups.
 *
 * A dictionary is an immutable object of the store: StrataDictionaryHeader and
 * the bytes that zstd takes for a dictionary, in an extent of its own whose
 * owner id is the dictionary's id.  A row group's footer names the id for each
 * column that used one; a row of strata.dictionary says where it is.  Passes
 * make and use them, loads do not.  It lives until TRUNCATE or DROP.
 *
 *	dictionary.c		reading, checking, the backend's cache
 *	dictionary_train.c	making and using them in a pass
 *
 * IDENTIFICATION
 *	  src/base/dictionary.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_DICTIONARY_H
#define STRATA_DICTIONARY_H

#include "base/cache.h"
#include "base/rowgroup.h"
#include "manifest/manifest.h"

/* "STRD" on a little-endian machine */
#define STRATA_DICTIONARY_MAGIC		0x44525453u

/* Content is never longer. */
#define STRATA_DICTIONARY_MAX		(128 * 1024)

typedef struct StrataDictionaryHeader
{
	uint32		magic;
	uint32		crc;			/* CRC-32C of this struct without crc, and of
								 * the content */
	uint32		version;		/* STRATA_ROW_GROUP_VERSION */
	uint32		length;			/* of the content, which follows */
	uint64		id;
	uint32		raw;			/* vectors it was tried on when it was made: */
	uint32		stored;			/* their bytes, and those compressed with it */
	int16		attnum;
	uint16		unused1;
	uint32		unused2;
} StrataDictionaryHeader;

extern uint32 strata_dictionary_crc(const StrataDictionaryHeader *header, const char *content);

/*
 * Read and check a dictionary; XX001 naming relation and dictionary when
 * anything is wrong.  Returns the content, palloc'd.
 */
extern char *strata_dictionary_read(Relation storage, const StrataDictionaryRef *ref,
									StrataDictionaryHeader *header);

/*
 * The dictionary that a row group names, from the backend's cache or from
 * disk.  The caller unpins it.
 */
extern StrataCacheEntry *strata_dictionary_pin(StrataStore *store, Relation storage, uint64 id,
											   AttrNumber attnum);
extern const struct ZSTD_DDict_s *strata_dictionary_get(StrataCacheEntry *entry);

/* ---- passes ---- */

/*
 * The dictionaries a pass compresses with: the newest of each column, of a
 * few columns.  Lives in CurrentMemoryContext, and so does the memory that
 * zstd allocates for them.  manifest is what the pass started from, level what
 * it compresses with.
 */
typedef struct StrataDictionaries StrataDictionaries;

extern StrataDictionaries *strata_dictionaries_begin(StrataStore *store, Relation storage,
													 const StrataManifest *manifest,
													 int level);

/* Have a writer just begun use them. */
extern void strata_dictionaries_use(StrataDictionaries *dictionaries, StrataGroupWriter *writer);

/*
 * Look at a row group of length bytes that has been finished, and make
 * dictionaries for the next ones where that pays.  tick is called while most
 * memory is in use.
 * Returns the bytes written.  The writer's own dictionaries may be gone
 * afterwards: it must not be added to.
 */
extern uint64 strata_dictionaries_learn(StrataDictionaries *dictionaries,
										StrataGroupWriter *writer, uint64 length,
										void (*tick)(void *arg), void *arg);

#endif							/* STRATA_DICTIONARY_H */
