/* world.h: a region whose commit is under way, for tests of what a program does meanwhile. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include "stress.h"

#define WORLD_BYTES (6u << 20)
#define WORLD_SLOW  "policy=adaptive unit=64KiB rate=48MiB "

extern const char *const world_trackers[3];

struct world {
        struct belay *b;
        char path[4096];
        uint8_t *memory, *frozen; /* the region, and what it held at the freeze */
};

/* Opens a pool, fills a region and freezes it; buffer: 0 none for copies, 1 a small one. */
void world_begin(struct world *w, int tracker, int buffer);
/* The version holds the bytes of the freeze, and the next one those of now. */
void world_end(struct world *w);
/* Writes to each page behind `from`, from the end: the flusher without history goes up. */
void world_write_from(const struct world *w, uint64_t from);
void world_write_all(const struct world *w);
/* Runs `during` with every tracker, with and without a buffer. The commit must outlast it, unless
 * world_in_time is false. */
extern bool world_in_time;
void world_for_all(void (*during)(const struct world *w));

#endif
