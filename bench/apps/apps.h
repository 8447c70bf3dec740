/* apps.h: small programs whose state changes as that of the applications does on which differential
 * checkpointing was measured (LULESH, xPic, Heat2D). Ranks are parts of one process.
 *
 * A program is a list of data sets and a step. After a step a set may have another size or be
 * elsewhere: whoever saves it compares. One thread. */
#ifndef BELAY_BENCH_APPS_H
#define BELAY_BENCH_APPS_H

#include "../bench.h"

#define APP_NAME_BYTES 24

struct app_set {
        char name[APP_NAME_BYTES];
        void *p;
        uint64_t bytes; /* a multiple of 8 */
};

struct app {
        struct app_set *sets;
        unsigned count;
        uint64_t steps;   /* done */
        uint64_t changes; /* … of app_change_all */
        uint8_t added;    /* … by these */
        void (*step)(struct app *a);
        void (*end)(struct app *a);
        void *own;
};

/* ---- the programs: 0, or -1 with a message; app_delete accepts what is left of a failure --------
 */

/* A blast from one corner of a cube of gas at rest, in 4 x 4 x 4 ranks with one data set each. What
 * the front has not reached does not change, but for the messages that every rank writes for its
 * neighbours. `reach` is the radius of the blast at the beginning, as a part of the cube's side:
 * 0.2 is most of the first rank, 0.6 a good part of many. */
int app_blast(struct app *a, uint64_t bytes, double reach);

/* Particles in a field: position and velocity change at every step, mass, charge and number do
 * not. A data set is one quantity of all particles of a rank. Some particles pass to the next rank
 * at each step, so that every set changes its size. */
enum particle_layout {
        PARTICLES_SMALL, /* 40 ranks, 320 sets; half of the state changes */
        PARTICLES_LARGE  /* 1 rank, 8 sets; five eighths change           */
};
/* `serialised`: the sets are copied to one buffer after each step, and that is the only set. */
int app_particles(struct app *a, uint64_t bytes, enum particle_layout layout, bool serialised);

/* Heat on a plate in 16 ranks, slabs of rows. `share` of the rows are not in equilibrium; all
 * others are written at every step with the temperature that they have. */
int app_heat(struct app *a, uint64_t bytes, double share);

/* ---- all of them ----------------------------------------------------------------------------- */

void app_step(struct app *a);
void app_delete(struct app *a);
uint64_t app_bytes(const struct app *a); /* of all sets, now */
/* Changes the state everywhere, by the last bits of one number in each page. */
void app_change_all(struct app *a);
/* Takes these changes back, if no step was done in between. */
void app_change_back(struct app *a);

/* ---- for the programs' own files --------------------------------------------------------------
 */

/* Room for `count` sets, and memory for the program's own struct. */
int app_new(struct app *a, unsigned count, uint64_t own_bytes);

#endif
