/*-------------------------------------------------------------------------
 *
 * move.h
 *	  Rows that an UPDATE moves out of a strata partition.
 *
 * IDENTIFICATION
 *	  src/fdw/move.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRATA_MOVE_H
#define STRATA_MOVE_H

#include "nodes/execnodes.h"

/*
 * The new row in slot violates the bounds of source, whose old tuple slot has
 * the old row.  Raises 23514 when source is what the UPDATE names.  False when
 * a trigger wants the row to stay as it is.
 */
extern bool strata_move_begin(ModifyTableState *mtstate, ResultRelInfo *source,
							  TupleTableSlot *slot);

/*
 * The old row was deleted: insert the new one where it belongs.  Returns what
 * ExecForeignUpdate has to return then.
 */
extern TupleTableSlot *strata_move_end(ModifyTableState *mtstate, ResultRelInfo *source,
									   TupleTableSlot *slot, TupleTableSlot *planSlot);

#endif							/* STRATA_MOVE_H */
