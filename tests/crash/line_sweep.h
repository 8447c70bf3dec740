/* line_sweep.h: runs in persistent memory, and all that the failing power may leave of each. */
#ifndef TESTS_LINE_SWEEP_H
#define TESTS_LINE_SWEEP_H

#include "crash_replay.h"

struct line_sweep {
        const char *dir; /* empty */
        uint64_t seed;
        unsigned steps;
        unsigned lines; /* tried alone and missing alone at each crash point; 0: every one */
        uint64_t points, images, gone_on;
};
/* One, two and three versions kept, little space and any amount of it. Ends the test with the first
 * image that does not restore exactly. */
void line_sweep_run(struct line_sweep *l);

#endif
