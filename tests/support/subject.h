/* subject.h: the program that crash and fault tests run Belay under.
 *
 * It has regions of every kind (small blocks, tail blocks, two leaves, a scalar, size zero) and a
 * step that changes, grows, shrinks, moves, attaches and detaches them. Its state is a function of
 * (seed, step) alone, so a test knows what a version must hold without having seen it written. */
#ifndef TESTS_SUBJECT_H
#define TESTS_SUBJECT_H

#include <belay/belay.h>
#include <stdbool.h>
#include <stdint.h>
#include "test_env.h"

/* ---- seeds --------------------------------------------------------------------------------- */

/* $TEST_SEED, or a fixed one; printed. */
uint64_t test_seed(void);

/* ---- opening a pool ------------------------------------------------------------------------ */

/* Options of a context; NULL leaves one at its default. */
struct setup {
        const char *label, *media, *io, *direct, *versions, *limit, *probe_mask;
        const char *copy;
        bool pmem; /* not an option: crash tests take the mapping for persistent memory */
};
int setup_open(const struct setup *setup, const char *path, struct belay **out);
/* The ways to write a pool, and their number. */
extern const struct setup media_setups[];
unsigned media_setup_count(void);
/* Can a pool at `path` be opened with this setup? Prints why not. Leaves no file. */
bool setup_works(const struct setup *setup, const char *path);

/* ---- the program --------------------------------------------------------------------------- */

struct item {
        const char *name;
        uint32_t type, element_bytes, block_bytes, ndims;
        uint64_t dims[2];
        bool owned; /* made by belay_alloc */
        bool present;
        uint8_t *mem;
};
uint64_t item_bytes(const struct item *it);
struct belay_desc item_desc(const struct item *it);

#define SUBJECT_ITEMS 10
struct subject {
        uint64_t seed, step;
        struct item items[SUBJECT_ITEMS];
};
/* Step 0: everything exists and has content, nothing is registered. */
void subject_init(struct subject *s, uint64_t seed);
/* Registers all regions in b. Owned memory is handed over: its content moves to what belay_alloc
 * gives. */
void subject_register(struct subject *s, struct belay *b);
/* One step, with the region calls it needs; without a context (b NULL) if there is none yet. */
void subject_step(struct subject *s, struct belay *b);
/* Before belay_close: takes the content of owned regions back into memory of its own. */
void subject_take_back(struct subject *s);
void subject_clear(struct subject *s);

/* ---- what a version must hold --------------------------------------------------------------- */

struct snapshot {
        unsigned count;
        struct item items[SUBJECT_ITEMS]; /* mem is a copy */
};
struct snapshot *subject_snapshot(const struct subject *s);
void snapshot_delete(struct snapshot *n);
/* NULL if the memory of s equals n, else the name of a region that does not. */
const char *snapshot_differs(const struct snapshot *n, const struct subject *s);

/* Memory to restart into: one region after the other, some of them page-aligned, filled with a
 * pattern. */
struct arena {
        uint8_t *mem;
        uint64_t bytes;
        const struct snapshot *shape;
        uint64_t at[SUBJECT_ITEMS];
};
/* Attaches regions of this shape in b, which has none. */
void arena_attach(struct arena *a, struct belay *b, const struct snapshot *shape);
void arena_detach(struct arena *a, struct belay *b);
/* NULL if the arena holds exactly n, else the name of a region that differs. */
const char *arena_differs(const struct arena *a, const struct snapshot *n);
/* Does it still hold the pattern? */
bool arena_untouched(const struct arena *a);
/* Changes some bytes of some regions. */
void arena_scribble(struct arena *a, uint64_t seed);
/* A snapshot of what it holds now. */
struct snapshot *arena_snapshot(const struct arena *a);
void arena_clear(struct arena *a);

#endif
