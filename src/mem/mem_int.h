/* mem_int.h: between the files of mem. */
#ifndef BELAY_MEM_INT_H
#define BELAY_MEM_INT_H

#include "mem/mem.h"

/* The process-wide table of spans. -EBUSY if the pages already belong to another span. */
int spans_add(struct span *s);
void spans_remove(const struct span *s);
void spans_lock(void);
void spans_unlock(void);
/* Waits until no handler is counted there any more. */
void spans_await_none(const _Atomic uint32_t *count);
/* watch.c */
void watches_init(struct tracker *t);
/* edges.c: room for the copy of a region's edges. */
void edges_init(struct tracker *t);
void edges_close(struct tracker *t);
int edges_make_room(struct tracker *t, struct watch *w);
void edges_give_back(struct tracker *t, struct watch *w);
/* copies.c: the copy buffer. Nobody may have a part of it. */
void copies_free(struct tracker *t);

#endif
