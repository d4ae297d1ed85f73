/*-------------------------------------------------------------------------
 *
 * dictionary.c
 *	  Reading zstd dictionaries.
 *
 * Translates an id that a row group's footer names into what zstd decompresses
 * with.  Those are kept in the backend's cache (cache.c) beside footers and
 * vectors and count with all the memory that zstd took for them; a reader pins
 * what it uses.
 *
 * Everything is checked before use: the manifest row when it is decoded, the
 * pages by their owner, then magic, checksum, version, and only then the rest
 * against what was asked for.  The content itself zstd checks.
 *
 * Locks: none of ours.  That a dictionary's row and extent stay while somebody
 * reads a row group that names it is manifest.h's promise.
 *
 * IDENTIFICATION
 *	  src/base/dictionary.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/codec.h"
#include "base/dictionary.h"
#include "storage/extent.h"

#include "utils/rel.h"

/* What a cache entry holds. */
typedef struct CachedDictionary
{
	struct ZSTD_DDict_s *dictionary;
	AttrNumber	attnum;
} CachedDictionary;

static void corrupt(Relation storage, uint64 id, const char *what) pg_attribute_noreturn();

static void
corrupt(Relation storage, uint64 id, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("dictionary " UINT64_FORMAT " of relation \"%s\" is corrupted",
					id, RelationGetRelationName(storage)),
			 errdetail("Found %s.", what)));
}

uint32
strata_dictionary_crc(const StrataDictionaryHeader *header, const char *content)
{
	StrataDictionaryHeader copy = *header;
	pg_crc32c	crc;

	copy.crc = 0;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &copy, sizeof(copy));
	COMP_CRC32C(crc, content, header->length);
	FIN_CRC32C(crc);
	return crc;
}

char *
strata_dictionary_read(Relation storage, const StrataDictionaryRef *ref,
					   StrataDictionaryHeader *header)
{
	uint64		id = ref->extent.owner;
	char		object[48];
	char	   *content;

	if (ref->length <= sizeof(*header) ||
		ref->length > sizeof(*header) + STRATA_DICTIONARY_MAX ||
		ref->length > (uint64) ref->extent.nblocks * STRATA_PAGE_CAPACITY)
		corrupt(storage, id, "an impossible length");

	snprintf(object, sizeof(object), "dictionary " UINT64_FORMAT, id);
	strata_extent_read(storage, &ref->extent, 0, sizeof(*header), header, NULL, object);
	if (header->magic != STRATA_DICTIONARY_MAGIC)
		corrupt(storage, id, "no dictionary header");
	if (header->length != ref->length - sizeof(*header))
		corrupt(storage, id, "another length than recorded");
	content = palloc(header->length);
	strata_extent_read(storage, &ref->extent, sizeof(*header), header->length, content, NULL,
					   object);
	if (strata_dictionary_crc(header, content) != header->crc)
		corrupt(storage, id, "the wrong checksum");
	if (header->version != STRATA_ROW_GROUP_VERSION)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("dictionary " UINT64_FORMAT " of relation \"%s\" has format version %u, this version of strata reads version %u",
						id, RelationGetRelationName(storage), header->version,
						STRATA_ROW_GROUP_VERSION)));
	if (header->id != id)
		corrupt(storage, id, "another id than recorded");
	if (header->attnum != ref->attnum)
		corrupt(storage, id, "another column than recorded");
	return content;
}

/* StrataCacheEntry.destroy */
static void
destroy(void *payload)
{
	CachedDictionary *cached = payload;

	if (cached->dictionary != NULL)
		strata_ddict_free(cached->dictionary);
}

StrataCacheEntry *
strata_dictionary_pin(StrataStore *store, Relation storage, uint64 id, AttrNumber attnum)
{
	StrataCacheKey key = {
		.relid = RelationGetRelid(storage),
		.filenode = storage->rd_rel->relfilenode,
		.owner = id,
		.vector = 0,
		.attnum = -1};
	StrataCacheEntry *entry = strata_cache_lookup(&key);
	CachedDictionary *cached;
	AttrNumber	of;

	if (entry == NULL)
	{
		StrataDictionaryRef ref;
		StrataDictionaryHeader header;
		char	   *content;
		Size		size = 0;

		if (!strata_manifest_dictionary(store->ftrelid, id, &ref))
			corrupt(storage, id, "no row of it in the manifest");
		content = strata_dictionary_read(storage, &ref, &header);
		entry = strata_cache_alloc(sizeof(CachedDictionary));
		cached = (CachedDictionary *) STRATA_CACHE_PAYLOAD(entry);
		cached->attnum = header.attnum;
		cached->dictionary = strata_ddict_create(content, header.length, &size);
		entry->destroy = destroy;
		entry->size += size;
		if (cached->dictionary == NULL)
		{
			strata_cache_unpin(entry);
			corrupt(storage, id, "content that zstd refuses");
		}
		strata_cache_insert(entry, &key);
		pfree(content);
	}

	cached = (CachedDictionary *) STRATA_CACHE_PAYLOAD(entry);
	of = cached->attnum;
	if (of != attnum)
	{
		strata_cache_unpin(entry);
		corrupt(storage, id, psprintf("column %d where column %d names it", of, attnum));
	}
	return entry;
}

const struct ZSTD_DDict_s *
strata_dictionary_get(StrataCacheEntry *entry)
{
	return ((CachedDictionary *) STRATA_CACHE_PAYLOAD(entry))->dictionary;
}
