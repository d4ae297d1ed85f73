/*-------------------------------------------------------------------------
 *
 * subtransaction.c
 *	  Running something in a subtransaction of its own, and catching its error.
 *
 * IDENTIFICATION
 *	  src/storage/subtransaction.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/subtransaction.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

ErrorData *
strata_subtransaction(StrataAction action, void *arg)
{
	MemoryContext mcxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(mcxt);
	PG_TRY();
	{
		action(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(mcxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(mcxt);
	CurrentResourceOwner = owner;
	return error;
}
