/* policy: when to checkpoint. Pure decisions from times that the caller measured: no clock, no I/O.
 */
#ifndef BELAY_POLICY_H
#define BELAY_POLICY_H

#include "base/base.h"

/* Why a checkpoint is asked for, the most urgent first. */
enum trigger {
        TRIGGER_NONE,
        TRIGGER_REQUEST,  /* from outside: `belay checkpoint`       */
        TRIGGER_SIGNAL,   /* the option `signal`                    */
        TRIGGER_WALL,     /* the last one before the limit          */
        TRIGGER_INTERVAL, /* so much time has passed                */
        TRIGGER_OVERHEAD  /* the cap allows another one             */
};
/* A word, "" for TRIGGER_NONE. */
const char *trigger_text(enum trigger t);

struct interval_options {
        uint64_t interval_ns;    /* 0: none                              */
        uint64_t wall_ns;        /* after start_ns, 0: none              */
        uint64_t wall_margin_ns; /* before wall_ns, at least             */
        uint64_t overhead;       /* in 1e-9 of a percent, 0: none        */
};
struct interval {
        struct interval_options options;
        uint64_t start_ns;  /* from which wall_ns counts               */
        uint64_t since_ns;  /* the last checkpoint began, or the open  */
        uint64_t cost_ns;   /* the last one blocked the program        */
        uint64_t commit_ns; /* … and was published after               */
        bool known;         /* cost_ns was measured                    */
        bool wall_done;     /* the last one before the limit was taken */
        bool requested, signalled;
};
/* All times are of one monotonic clock. */
void interval_init(struct interval *i, const struct interval_options *o, uint64_t start_ns,
                   uint64_t now_ns);
/* Whether to checkpoint now, and why. Stays so until interval_began. */
enum trigger interval_due(const struct interval *i, uint64_t now_ns);
/* A checkpoint begins, for whatever reason: it serves all that were pending. */
void interval_began(struct interval *i, uint64_t now_ns);
/* It returned to the program; it counts whether it succeeded or not. */
void interval_ended(struct interval *i, uint64_t blocked_ns);
/* It was published: how long that took, and how long the program waited for it after its return. */
void interval_published(struct interval *i, uint64_t commit_ns, uint64_t wait_ns);
/* The state is as fresh as after a checkpoint (restart). */
void interval_fresh(struct interval *i, uint64_t now_ns);
/* The least time from one checkpoint to the next that keeps the cap; 0 without a cap. */
uint64_t interval_least(const struct interval *i);

#endif
