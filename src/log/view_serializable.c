/*-------------------------------------------------------------------------
 *
 * view_serializable.c
 *	  What a serializable transaction reads in a view, and whom it overtakes.
 *
 * Hashes stand for pages of the storage relation: that of a key, and that of the
 * values of its first columns, a prefix.  A lookup locks its key, a scan that is
 * bounded by = or = ANY on leading columns the prefixes that it asks for, every
 * other scan the relation.  Whoever writes a key checks all its prefixes, it,
 * and the relation (strata_memtable_check_conflict_in).
 *
 * An entry that the snapshot does not see, and that may hold something of what
 * is read, is a conflict out to its transaction.  The predicate lock comes first,
 * then the look at the log, as it is by then: what is linked before it is found,
 * whoever links later finds the lock when he checks, after linking.  The view's
 * end is older than the lock, so entries from there on count, too.
 *
 * Where keys or the relation are read, the rule for what counts meets the
 * entries and notes conflicts; what came after the end is looked at here.  One
 * that reads prefixes meets entries of any key, so it notes nothing, and all
 * entries are looked at here.  The keys of ROWS entries tell; a row group counts
 * without being read.  (The key that a row got by an UPDATE need not be looked
 * at in its tombstone: the same transaction has put the row there, or will, and
 * check it.)
 *
 * IDENTIFICATION
 *	  src/log/view_serializable.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "log/pending_private.h"
#include "log/view_private.h"

#include "access/stratnum.h"
#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

/*
 * So many prefixes are locked one by one; as many as core, by default, lets a
 * transaction have in a relation before it locks that.
 */
#define MAX_PREFIXES	31

typedef struct Prefixes
{
	int			ncolumns;		/* 0: there is no bound that could be used */
	int			n;
	uint32		hashes[MAX_PREFIXES];
} Prefixes;

static bool
is_serializable(StrataView *view)
{
	return IsolationIsSerializable() &&
		CheckForSerializableConflictOutNeeded(view->storage, view->snapshot);
}

/* ---- conflicts out ---- */

/* The top transaction of an entry that is not seen, if it can conflict with us. */
static TransactionId
conflicting_xid(StrataView *view, int index)
{
	const StrataPendingEntry *entry = strata_pending_entry(view->pending, index);
	TransactionId xid = XidFromFullTransactionId(FullTransactionIdFromU64(entry->fxid));
	StrataOutcome outcome;

	if (!CheckForSerializableConflictOutNeeded(view->storage, view->snapshot))
		return InvalidTransactionId;
	outcome = strata_xid_outcome(entry->fxid, entry->flags);
	if (outcome != STRATA_XID_RUNNING && outcome != STRATA_XID_COMMITTED)
		return InvalidTransactionId;
	if ((entry->flags & STRATA_ENTRY_FROZEN_MASK) != 0 ||
		TransactionIdPrecedes(xid, TransactionXmin))
		return InvalidTransactionId;
	xid = SubTransGetTopmostTransaction(xid);
	if (TransactionIdPrecedes(xid, TransactionXmin) ||
		TransactionIdEquals(xid, GetTopTransactionIdIfAny()))
		return InvalidTransactionId;
	return xid;
}

void
strata_view_conflict_out(StrataView *view, int index)
{
	TransactionId xid = conflicting_xid(view, index);

	if (TransactionIdIsValid(xid))
		CheckForSerializableConflictOut(view->storage, xid, view->snapshot);
}

/* Conflicts with all that was appended since the view was made. */
static void
note_later_entries(StrataView *view)
{
	int			nentries = strata_pending_nentries(view->pending);

	for (int i = view->end; i < nentries; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) strata_view_accepts(strata_pending_entry(view->pending, i), i, view);
	}
}

void
strata_view_read_key(StrataView *view, const uint32 *hash)
{
	if (!is_serializable(view))
		return;
	if (hash != NULL)
		PredicateLockPage(view->storage, *hash, view->snapshot);
	else
		PredicateLockRelation(view->storage, view->snapshot);
	strata_pending_extend(view->pending, view->manifest);
	/* a key is looked for among these, too */
	if (hash == NULL)
		note_later_entries(view);
}

/* ---- prefixes ---- */

/* What hashes the values of a bound as the key's own function does equal ones. */
static bool
hash_function(const StrataKey *key, const StrataBound *bound, FmgrInfo *hash_fn)
{
	int			column = bound->column;
	Oid			op;
	RegProcedure proc;

	op = get_opfamily_member(key->btree_opfamily[column],
							 get_opclass_input_type(key->btree_opclass[column]),
							 bound->subtype, BTEqualStrategyNumber);
	proc = OidIsValid(op) ? strata_key_hash_function(key, column, op, bound->subtype) : InvalidOid;
	if (!OidIsValid(proc))
		return false;
	fmgr_info(proc, hash_fn);
	return true;
}

/* The prefixes that all rows within bounds have, of as many columns as can be. */
static void
find_prefixes(const StrataKey *key, const StrataBound *bounds, int nbounds, Prefixes *result)
{
	uint32		combined[MAX_PREFIXES] = {0};
	int			column;

	result->n = 1;
	for (column = 0; column < nbounds && column < key->natts; column++)
	{
		const StrataBound *bound = &bounds[column];
		const Datum *values = bound->elements != NULL ? bound->elements : &bound->value;
		int			nvalues = bound->elements != NULL ? bound->nelements : 1;
		int			before = result->n;
		uint32		shorter[MAX_PREFIXES];
		FmgrInfo	hash_fn;

		Assert(nvalues > 0);
		/* a column that is equal to something has no other bound */
		if (bound->column != column || bound->strategy != BTEqualStrategyNumber ||
			nvalues > MAX_PREFIXES / before || !hash_function(key, bound, &hash_fn))
			break;
		memcpy(shorter, combined, sizeof(shorter));
		result->n = 0;
		for (int i = 0; i < nvalues; i++)
		{
			uint32		hash = DatumGetUInt32(FunctionCall1Coll(&hash_fn, key->collation[column],
																values[i]));

			for (int j = 0; j < before; j++)
				combined[result->n++] = strata_key_hash_combine(shorter[j], hash);
		}
	}
	result->ncolumns = column;
	for (int i = 0; i < result->n; i++)
		result->hashes[i] = strata_key_prefix_hash(key, combined[i], column);
}

static bool
has_hash(const Prefixes *prefixes, uint32 hash)
{
	for (int i = 0; i < prefixes->n; i++)
	{
		if (prefixes->hashes[i] == hash)
			return true;
	}
	return false;
}

/* May an entry hold a row or tombstone with one of the prefixes? */
static bool
may_hold(StrataPendingReader *reader, const StrataKey *key, const StrataPendingEntry *entry,
		 int index, const Prefixes *prefixes)
{
	uint32		nkeys = strata_pending_entry_keys(entry);

	if (entry->type != STRATA_ENTRY_ROWS)
		return true;
	for (uint32 row = 0; row < nkeys; row++)
	{
		Datum		keyvalues[INDEX_MAX_KEYS];
		uint32		hashes[INDEX_MAX_KEYS];

		strata_pending_reader_key(reader, index, row, keyvalues);
		strata_key_prefix_hashes(key, keyvalues, hashes);
		if (has_hash(prefixes, hashes[prefixes->ncolumns - 1]))
			return true;
	}
	return false;
}

/* Conflicts with whoever has written one of the prefixes. */
static void
note_prefixes(StrataView *view, const Prefixes *prefixes)
{
	int			nentries = strata_pending_nentries(view->pending);
	StrataPendingReader *reader = NULL;
	TransactionId noted = InvalidTransactionId;

	for (int i = 0; i < nentries; i++)
	{
		TransactionId xid;

		CHECK_FOR_INTERRUPTS();
		if (!strata_view_is_unseen(view, i))
			continue;
		xid = conflicting_xid(view, i);
		if (!TransactionIdIsValid(xid) || TransactionIdEquals(xid, noted))
			continue;
		if (reader == NULL)
			reader = strata_pending_reader_begin(view->pending, NULL, true);
		if (may_hold(reader, &view->store->key, strata_pending_entry(view->pending, i), i, prefixes))
		{
			CheckForSerializableConflictOut(view->storage, xid, view->snapshot);
			noted = xid;
		}
	}
	if (reader != NULL)
		strata_pending_reader_end(reader);
}

StrataAccept
strata_view_read(StrataView *view, const StrataBound *bounds, int nbounds)
{
	Prefixes	prefixes;

	if (!is_serializable(view))
		return strata_view_accepts;

	find_prefixes(&view->store->key, bounds, nbounds, &prefixes);
	if (prefixes.ncolumns == 0)
	{
		PredicateLockRelation(view->storage, view->snapshot);
		strata_pending_extend(view->pending, view->manifest);
		note_later_entries(view);
		return strata_view_accepts;
	}
	for (int i = 0; i < prefixes.n; i++)
		PredicateLockPage(view->storage, prefixes.hashes[i], view->snapshot);
	strata_pending_extend(view->pending, view->manifest);
	note_prefixes(view, &prefixes);
	return strata_view_accepts_silently;
}
