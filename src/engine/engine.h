/* engine: turns the state of the regions into a version. In this form it stops the program
 * meanwhile (policy `sync`); the draft it drives takes blocks in any order, so other policies
 * change only this module. */
#ifndef BELAY_ENGINE_H
#define BELAY_ENGINE_H

#include "mem/mem.h"
#include "store/store.h"

/* Writes all regions as the next version. On failure the version does not exist:
 * BELAY_E_CHECKPOINT, or BELAY_E_BROKEN if the pool cannot be written any more. */
int engine_checkpoint(struct pool *pool, const struct regions *regions, struct draft_result *out);

#endif
