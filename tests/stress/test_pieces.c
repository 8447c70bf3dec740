/* A checkpoint that the program completes piece by piece.
 *
 * builds: normal asan tsan */
#include "base/base.h"
#include "stress.h"
#include <errno.h>

#define BYTES (3u << 20)
#define SETS  4

static const char *const names[SETS] = {"a", "b", "c", "d"};
static const char *const ways[] = {"policy=sync tracker=hash",
                                   "policy=sync tracker=mprotect",
                                   "policy=async tracker=scan rate=200MiB",
                                   "policy=adaptive tracker=scan rate=200MiB",
                                   "policy=adaptive tracker=uffd rate=200MiB",
                                   "policy=adaptive tracker=mprotect rate=200MiB"};

struct world {
        struct belay *b;
        char path[4096];
        uint8_t *set[SETS], *frozen[SETS];
};

static void begin(struct world *w, const char *way)
{
        char options[256];
        snprintf(options, sizeof(options), "unit=64KiB copy_buffer=256KiB %s", way);
        snprintf(w->path, sizeof(w->path), "%s", stress_pool("pieces"));
        w->b = stress_open(w->path, options);
        for (int i = 0; i < SETS; i++) {
                w->set[i] = belay_alloc(w->b, names[i], BELAY_U8, BYTES);
                w->frozen[i] = NULL;
                stress_fill(w->set[i], BYTES, (uint64_t)i);
        }
}

static void end(struct world *w)
{
        stress_close(&w->b);
        for (int i = 0; i < SETS; i++)
                free(w->frozen[i]);
}

static void freeze(struct world *w, int i)
{
        free(w->frozen[i]);
        w->frozen[i] = stress_copy(w->set[i], BYTES);
}

static void compare(struct world *w)
{
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        for (int i = 0; i < SETS; i++)
                stress_compare(w->path, belay_version(w->b), names[i], w->frozen[i], BYTES);
}

/* Two are added and changed at once, the others are taken at the end. */
static void one_version(struct world *w, uint64_t seed)
{
        CHECK_EQ(belay_begin(w->b), 0);
        for (int i = 0; i < 2; i++) {
                freeze(w, i);
                CHECK_EQ(belay_add(w->b, names[i]), 0);
                stress_fill(w->set[i], BYTES / 2, seed + 50);
                w->set[2][seed * 5000 % BYTES]++; /* not added yet */
        }
        freeze(w, 2);
        freeze(w, 3);
        CHECK_EQ(belay_end(w->b), 0);
        stress_fill(w->set[2], BYTES, seed + 90);
        w->set[1][BYTES - 1]++;
        compare(w);
}

static void test_versions(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w = {.b = NULL};
                printf("  %s\n", ways[k]);
                begin(&w, ways[k]);
                for (uint64_t i = 0; i < 3; i++) {
                        one_version(&w, i);
                        /* A whole one in between has what was changed since each was added. */
                        for (int s = 0; s < SETS; s++)
                                freeze(&w, s);
                        CHECK_EQ(belay_checkpoint(w.b), 0);
                        compare(&w);
                }
                end(&w);
        }
}

/* Aborted after any number of pieces: as if it had not been begun. */
static void test_abort(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w = {.b = NULL};
                begin(&w, ways[k]);
                for (int pieces = 0; pieces <= SETS; pieces++) {
                        struct belay_status s = {.size = sizeof(s)};
                        uint64_t before = belay_version(w.b);
                        CHECK_EQ(belay_begin(w.b), 0);
                        for (int i = 0; i < pieces; i++) {
                                CHECK_EQ(belay_add(w.b, names[i]), 0);
                                w.set[i][4096 * (uint64_t)(i + 1)] ^= 0xff;
                        }
                        CHECK_EQ(belay_abort(w.b), 0);
                        CHECK_EQ(belay_version(w.b), before);
                        CHECK_EQ(belay_status(w.b, 0, &s), 0);
                        CHECK(s.state != BELAY_FLUSHING);
                        for (int i = 0; i < SETS; i++)
                                freeze(&w, i);
                        CHECK_EQ(belay_checkpoint(w.b), 0);
                        compare(&w);
                }
                end(&w);
        }
}

static void test_mistakes(void)
{
        struct world w = {.b = NULL};
        begin(&w, ways[3]);
        CHECK_EQ(belay_add(w.b, "a"), -EINVAL);
        CHECK_EQ(belay_end(w.b), -EINVAL);
        CHECK_EQ(belay_abort(w.b), -EINVAL);
        CHECK_EQ(belay_begin(w.b), 0);
        CHECK_EQ(belay_begin(w.b), -EBUSY);
        CHECK_EQ(belay_checkpoint(w.b), -EBUSY);
        CHECK_HAS(belay_error(), "piece by piece");
        CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), -EBUSY);
        CHECK_EQ(belay_restart(w.b), -EBUSY);
        CHECK_EQ(belay_add(w.b, "nobody"), -ENOENT);
        CHECK_EQ(belay_add(w.b, NULL), -EINVAL);
        CHECK_EQ(belay_add(w.b, "a"), 0);
        CHECK_EQ(belay_add(w.b, "a"), -EEXIST);
        CHECK_EQ(belay_end(w.b), 0);
        CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_version(w.b), 1);
        /* Closed in the middle: the version before stays the newest. */
        CHECK_EQ(belay_begin(w.b), 0);
        CHECK_EQ(belay_add(w.b, "b"), 0);
        end(&w);
        w.b = stress_open(w.path, "policy=sync");
        for (int i = 0; i < SETS; i++)
                CHECK(belay_alloc(w.b, names[i], BELAY_U8, BYTES) != NULL);
        CHECK_EQ(belay_restart(w.b), 1);
        CHECK_EQ(belay_version(w.b), 1);
        stress_close(&w.b);
}

/* What becomes of a region after it was added does not concern the version. */
static void test_changed_regions(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w = {.b = NULL};
                begin(&w, ways[k]);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                for (int i = 0; i < SETS; i++) {
                        w.set[i][9]++;
                        freeze(&w, i);
                }
                CHECK_EQ(belay_begin(w.b), 0);
                for (int i = 0; i < 3; i++)
                        CHECK_EQ(belay_add(w.b, names[i]), 0);
                w.set[0] = belay_resize(w.b, "a", BYTES * 2);
                CHECK_EQ(belay_free(w.b, "b"), 0);
                CHECK_EQ(belay_free(w.b, "c"), 0);
                w.set[2] = belay_alloc(w.b, "c", BELAY_U8, BYTES);
                CHECK(belay_alloc(w.b, "late", BELAY_U8, 5000) != NULL);
                CHECK_EQ(belay_end(w.b), 0);
                compare(&w);
                static const uint8_t nothing[5000];
                stress_compare(w.path, belay_version(w.b), "late", nothing, sizeof(nothing));
                /* And the next version has all of it as it is now. */
                CHECK_EQ(belay_checkpoint(w.b), 0);
                stress_exact(w.b, w.path, "a", w.set[0], BYTES * 2);
                stress_exact(w.b, w.path, "c", w.set[2], BYTES);
                end(&w);
        }
}

/* No room in the middle: that version fails, earlier and later ones are complete. */
static void test_full(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                char way[256];
                struct world w = {.b = NULL};
                snprintf(way, sizeof(way), "%s versions=1 limit=18MiB", ways[k]);
                begin(&w, way);
                for (int i = 0; i < SETS; i++)
                        freeze(&w, i);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                compare(&w);
                for (int i = 0; i < SETS; i++)
                        stress_fill(w.set[i], BYTES, (uint64_t)i + 30);
                CHECK_EQ(belay_begin(w.b), 0);
                int rc = 0;
                for (int i = 0; rc == 0 && i < SETS; i++)
                        rc = belay_add(w.b, names[i]);
                int last = belay_end(w.b);
                CHECK(rc == BELAY_E_CHECKPOINT || last == BELAY_E_CHECKPOINT ||
                      belay_wait(w.b, 0, BELAY_FOREVER) == BELAY_E_CHECKPOINT);
                for (int i = 0; i < SETS; i++)
                        stress_compare(w.path, 1, names[i], w.frozen[i], BYTES);
                for (int i = 0; i < SETS; i++) { /* little is left to write */
                        memcpy(w.set[i], w.frozen[i], BYTES);
                        w.set[i][77]++;
                        freeze(&w, i);
                }
                CHECK_EQ(belay_checkpoint(w.b), 0);
                compare(&w);
                end(&w);
        }
}

int main(void)
{
        RUN(test_versions);
        RUN(test_abort);
        RUN(test_mistakes);
        RUN(test_changed_regions);
        RUN(test_full);
        return 0;
}
