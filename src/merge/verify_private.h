/*-------------------------------------------------------------------------
 *
 * verify_private.h
 *	  What the files of verify share.
 *
 *	verify.c		driver; fixed pages, log, row groups, blocks
 *	verify_keys.c	base rows against each other and against the key index
 *
 * IDENTIFICATION
 *	  src/merge/verify_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_VERIFY_PRIVATE_H
#define STRATA_VERIFY_PRIVATE_H

#include "merge/merge.h"

#include "utils/tuplestore.h"

typedef struct StrataVerify
{
	StrataStore *store;
	Relation	storage;
	StrataManifest *manifest;
	bool		swept;			/* unreferenced blocks are faults */

	/* where faults go: one row each (object, problem) */
	Tuplestorestate *result;
	TupleDesc	desc;
	uint64		nfaults;
} StrataVerify;

extern void strata_verify_report(StrataVerify *verify, const char *object,
								 const char *problem);
#define strata_verify_fault(verify, object, ...) \
	strata_verify_report(verify, object, psprintf(__VA_ARGS__))

/*
 * Run a check in a subtransaction; an error it raises becomes a fault of
 * object, unless it says nothing about the store (cancelled, out of memory).
 */
typedef void (*StrataVerifyCheck)(StrataVerify *verify, void *arg);
extern void strata_verify_guard(StrataVerify *verify, const char *object,
								StrataVerifyCheck check, void *arg);

/* StrataVerifyCheck: keys of the base, and the key index. */
extern void strata_verify_keys(StrataVerify *verify, void *arg);

#endif							/* STRATA_VERIFY_PRIVATE_H */
