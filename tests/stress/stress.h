/* stress.h: contexts with options in one line, and the comparison that ends every commit. */
#ifndef TESTS_STRESS_H
#define TESTS_STRESS_H

#include "check.h"
#include <belay/belay.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;

/* Opens a context on `path`; options are "key=value key=value …". A check fails if that does. */
struct belay *stress_open(const char *path, const char *options);
/* <test directory>/<name>, removed if it exists. The text lives until the next call. */
const char *stress_pool(const char *name);
/* What version `version` of the pool stores under `name` is exactly `bytes` bytes at `expected`. */
void stress_compare(const char *path, uint64_t version, const char *name, const void *expected,
                    uint64_t bytes);
/* The newest version as the context tells it, after it is published. */
void stress_exact(struct belay *b, const char *path, const char *name, const void *expected,
                  uint64_t bytes);
/* Between commits: no copy is in use, and every pocket for one is in the free list. Threads may write
 * to regions meanwhile. Also done by stress_exact and stress_close. */
void stress_check_idle(struct belay *b);
/* The same, and closes the context. */
void stress_close(struct belay **b);
/* The engine of a context, for tests that look inside (engine/engine_int.h). */
struct engine *stress_engine(struct belay *b);
/* Different at every place and for every seed. */
void stress_fill(void *p, uint64_t bytes, uint64_t seed);
/* A copy, to be freed. */
void *stress_copy(const void *p, uint64_t bytes);
/* The state of the last version, BELAY_FLUSHING … */
int stress_state(struct belay *b);
/* Waits for a child and returns its exit status, or 1000 + the signal that ended it. */
int stress_reap(int pid);
/* Everything takes ten times as long. */
#if defined(__SANITIZE_THREAD__)
#define STRESS_TSAN true
#else
#define STRESS_TSAN false
#endif
/* Writes to regions by the program, which the kernel keeps apart from the flusher's reading:
 * nothing that ThreadSanitizer could see, and it would be busy with nothing else. */
#define STRESS_PROGRAM __attribute__((no_sanitize("thread")))
/* Writes one number to a unit in the middle of a page: the smallest write that faults. */
STRESS_PROGRAM static inline void stress_poke(uint8_t *p, uint64_t at, uint8_t value)
{
        ((volatile uint8_t *)p)[at] = value;
}

#endif
