/* level_int.h: between the files of level. */
#ifndef BELAY_LEVEL_INT_H
#define BELAY_LEVEL_INT_H

#include "level/level.h"

/* level_pool.c: the pool as a level. Closing the level closes the pool. */
int level_pool_open(struct pool *pool, struct budget *budget, struct level **out);

/* level_copy.c: a second pool in the directory `dir`. `pool` is the first, which is open. */
int level_copy_open(struct pool *pool, const struct level_options *o, struct level **out);

/* copy_version.c: makes the version in another pool, from what that pool has already and the blocks
 * that it does not. */
struct copy_request {
        struct pool *from, *to;
        struct reader *reader;         /* of `from`, for more than what has its place */
        const struct version *version; /* of `from` */
        bool same_number;              /* else the next one of `to` */
        /* The version that `to` has as its newest, as it is in the pool that `from` reads. Its
         * slots have not been used again: what lies where it lay did not change. NULL: not known,
         * then content is compared by hash. */
        const struct version *before;
        const _Atomic bool *stop; /* give up, with -ECANCELED */
};
int copy_version(const struct copy_request *q, struct draft_result *out);

/* A reader for all versions of the pool; what is damaged is fetched from the other levels. */
int level_reader_new(struct level *l, struct pool *pool, bool placed);

/* events.c. An empty port: none. */
void events_open(struct events *e, const char *port, const struct pool *pool);
void events_send(const struct events *e, enum event_kind kind, uint64_t version, int code);
void events_close(struct events *e);

/* Is it the same version in both places? */
bool same_version(const struct version *a, const struct version *b);

#endif
