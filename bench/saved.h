/* saved.h: a mini-application and the contexts that save it: the same state, with different
 * options. */
#ifndef BELAY_BENCH_SAVED_H
#define BELAY_BENCH_SAVED_H

#include "apps/apps.h"
#include "work.h"

struct saved {
        struct belay *context;
        struct app_set *known; /* the sets as the context knows them */
        char pool[BENCH_PATH_BYTES];
};
/* A new pool, and all data sets of the program. Options as for work_open. */
int saved_open(struct saved *s, const struct app *a, const char *pool, const char *options);
/* Tells of sets that moved or changed their size, and takes a checkpoint. */
int saved_checkpoint(struct saved *s, const struct app *a, struct belay_stats *out);
/* Also removes the pool. Accepts what is left of a failure. */
int saved_close(struct saved *s);

#endif
