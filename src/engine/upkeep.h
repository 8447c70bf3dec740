/* upkeep.h: what the flusher does for large regions between commits: those that turn out to be
 * written all over are not watched page by page any longer, and are put into huge pages. */
#ifndef BELAY_UPKEEP_H
#define BELAY_UPKEEP_H

#include "engine/commit.h"

struct upkeep {
        const struct engine_options *options; /* the engine's, like the next four */
        struct tracker *tracker;
        const struct regions *regions;
        const struct pool *pool;
        const _Atomic bool *stop; /* somebody needs the regions: not to begin, and to end soon */
        bool looking;             /* there may be regions to look at …      */
        bool collapsing;          /* … and to be put into huge pages        */
        uint32_t position;        /* in the registry: where the latter goes on */
        uint32_t looks;
        uint64_t begun_ns;             /* the time between commits began      */
        uint64_t idle_ns;              /* how long it was, last time          */
        uint64_t look_ns, collapse_ns; /* when the next step is due          */
};

/* When the next step is due, or NEVER_DUE. The lock is held. */
uint64_t upkeep_due_ns(const struct upkeep *u);
/* By the flusher, between commits. The lock is not held. */
void upkeep_step(struct upkeep *u);

/* After the last capture of a commit, when rewatch_adapt has chosen the trackers. */
void upkeep_consider(struct upkeep *u, struct commit *c);
/* A commit has ended, or there was none yet: the time in between begins. */
void upkeep_begin_interval(struct upkeep *u);

#endif
