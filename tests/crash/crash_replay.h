/* crash_replay.h: every disk that a crash may leave behind, from the log of one run.
 *
 * A crash point is a prefix of the log. What ended before the last barrier is on the disk. Each
 * later write is there, is not there, or is there in part; each later change of size or name has
 * happened or not.
 *
 *      … write  write ║ write₁  size₂  write₃ ↯
 *      durable ───────┘ └── any subset; the last write torn; sectors of all of them at random
 *
 * All subsets are tried while they are few, seeded random ones when they are many.
 *
 * With the option copy both pools are laid out, each as it may have been at that moment, and
 * crash_levels.h judges them together.
 *
 * Stores into persistent memory are lines that survive one by one, or do not (crash_lines.h). */
#ifndef TESTS_CRASH_REPLAY_H
#define TESTS_CRASH_REPLAY_H

#include "crash_plat.h"
#include "crash_verify.h"

struct sweep {
        const struct setup *setup;
        const struct crash_log *log;
        struct snapshot *const *states;
        unsigned keep;
        unsigned without_barrier; /* pretends that barrier 1 or 2 of each commit is not there; 0:
                                     all are */
        const char *dir; /* the images are laid out here; empty                                  */
        uint64_t seed;
        unsigned go_on_every; /* every n-th image is also written to */
        unsigned lines;       /* how many of many pending lines are tried alone and missing alone */
        /* Leaves this event out (its number + 1; 0: none), looks only at what may come of that,
         * until two more versions have returned, and ends with the first image that is not exact.
         */
        size_t without;

        uint64_t points, images, gone_on, returned;
        uint64_t verdicts[VERDICTS];
        char first[2048]; /* the first image that is not exact */
};
void sweep_run(struct sweep *s);

/* ---- recorded runs -------------------------------------------------------------------------- */

struct recording {
        struct crash_log log;
        struct snapshot **states; /* by version number */
        unsigned steps;
};
/* Runs `steps` steps of the subject with a checkpoint after each, reopening the pool now and then,
 * in an empty directory, which is empty again afterwards. With a copy every other step waits for
 * it; between those, it is written beside the next checkpoint. In persistent memory, versions are
 * also begun and aborted, and in a pool with a limit some fail for lack of space. */
void record_run(struct recording *r, const struct setup *setup, const char *dir, uint64_t seed,
                unsigned steps);
void recording_clear(struct recording *r);

#endif
