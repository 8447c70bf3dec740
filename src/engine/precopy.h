/* precopy.h: what the flusher does between commits: copy units before the checkpoint. */
#ifndef BELAY_PRECOPY_H
#define BELAY_PRECOPY_H

#include "engine/commit.h"

struct precopy {
        const struct engine_options *options; /* the engine's, like the next three */
        struct tracker *tracker;
        struct commit *commit; /* whose draft and part it uses, if `draft` */
        struct regions *regions;
        _Atomic bool stop;     /* it has to stop, and not to begin                       */
        bool at_work;          /* under the workers' lock                                */
        bool draft;            /* it puts into the commit's draft; the part is all of the regions */
        bool dropped;          /* another was, in this interval                          */
        bool any;              /* units have been put early                              */
        bool paused;           /* the registry is being changed. Under the lock          */
        bool failed;           /* not before the next version is published               */
        uint64_t begun_ns;     /* the interval began                                     */
        uint64_t interval_ns;  /* how long it will be; 0: not known                      */
        uint64_t threshold_ns; /* when to begin, since begun_ns                          */
        uint64_t next_ns;      /* the next look                                          */
        uint64_t free_ns;      /* with a rate: when more may be written                  */
        uint64_t busy_ns;      /* in this interval                                       */
        uint64_t missed;       /* units copied in vain, in this interval                 */
        double ns_per_byte;
};

/* May the flusher pre-copy now, and when is the next step? The lock is held. */
bool precopy_wanted(const struct precopy *p);
uint64_t precopy_next_ns(const struct precopy *p);
/* By the flusher, between commits. The lock is not held. */
void precopy_step(struct precopy *p);

/* An interval begins. The lock is held, and the workers are notified afterwards. */
void precopy_begin_interval(struct precopy *p);
/* A checkpoint begins: the interval is over. */
void precopy_end_interval(struct precopy *p);
/* A version is published. */
void precopy_learn(struct precopy *p);

/* The draft that was begun early is no good any more. The flusher must be idle. */
void precopy_drop(struct precopy *p);
/* … and is gone already. */
void precopy_forget(struct precopy *p);

/* Around finding what was written, at the freeze. */
void precopy_before_collect(struct watch *w);
void precopy_after_collect(struct precopy *p, struct watch *w);

#endif
