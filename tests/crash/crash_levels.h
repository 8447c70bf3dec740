/* crash_levels.h: judges the two pools that a crash left of a program with the option copy.
 *
 *   each alone      lists complete versions only, the pool the old or the new one, the copy at least
 *                   what it was known to have
 *   both            restart gives the newest version of either, bit for bit
 *   one is missing  restart gives the newest version of the other
 *   a bad block     in the pool: restart gives what the copy has
 *   afterwards      a further checkpoint and its copy succeed, and both pools hold the same
 *
 * The first two for every disk, the others in turn. */
#ifndef TESTS_CRASH_LEVELS_H
#define TESTS_CRASH_LEVELS_H

#include "crash_verify.h"

struct two_pools {
        uint64_t last, next; /* of the pool, as in judge_pool                */
        uint64_t copied;     /* the copy had this version (0: none)          */
        uint64_t round;      /* says which of the judgements have their turn */
        bool go_on;
        void (*lay_out)(void *arg); /* makes both pools what the crash left of them */
        void *arg;
};

/* The judge's setup names the directory of the copy. */
enum verdict judge_levels(struct judge *j, const struct two_pools *two);

#endif
