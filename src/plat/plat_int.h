/* plat_int.h: between the files of plat. */
#ifndef BELAY_PLAT_INT_H
#define BELAY_PLAT_INT_H

#include "plat/plat.h"

int ring_system_new(unsigned depth, struct plat_ring **out);
int ring_system_push(struct plat_ring *ring, enum plat_io io, int fd, void *buf, uint32_t bytes,
                     uint64_t offset, uint32_t tag);
int ring_system_wait(struct plat_ring *ring, uint32_t *tag, int *result);
void ring_system_delete(struct plat_ring *ring);

#endif
