/* diff = pages: what is stored is what was written to, block by block where the tracker knows pages
 * and unit by unit where it knows those, whether the content changed or not. The linker puts the
 * hash function below in front of the library's own, to see that nothing is hashed without
 * checksums.
 *
 * timeout: 300 */
#include "base/base.h"
#include "store/store.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <pthread.h>
#include <stdatomic.h>

#define PAGE  4096u
#define BLOCK (16u << 10)
#define UNIT  (64u << 10)
#define UNITS 96u
#define BYTES (UNITS * UNIT + 3 * BLOCK + 1000) /* the last unit and the last block are short */

static _Atomic uint64_t hashed;

struct hash128 __real_hash_block(uint32_t kind, const void *data, size_t bytes);
struct hash128 __wrap_hash_block(uint32_t kind, const void *data, size_t bytes);

struct hash128 __wrap_hash_block(uint32_t kind, const void *data, size_t bytes)
{
        atomic_fetch_add(&hashed, kind != HASH_NONE);
        return __real_hash_block(kind, data, bytes);
}

static const char *const trackers[] = {"scan", "uffd", "mprotect"};
static const char *const policies[] = {"sync", "async", "adaptive"};

struct world {
        char path[4096];
        struct belay *b;
        uint8_t *m, *frozen;
        uint64_t bytes, grain; /* what is stored at once: a block or a unit */
        uint8_t *written;      /* per grain, since the freeze               */
};

static void open_world(struct world *w, const char *tracker, const char *policy, const char *more)
{
        char options[256];
        snprintf(w->path, sizeof(w->path), "%s", stress_pool("pages"));
        snprintf(options, sizeof(options), "diff=pages unit=64KiB tracker=%s policy=%s %s", tracker,
                 policy, more);
        printf("  %s\n", options);
        w->b = stress_open(w->path, options);
        w->bytes = BYTES;
        w->m = belay_alloc(w->b, "x", BELAY_U8, w->bytes);
        w->frozen = malloc(w->bytes);
        w->grain = strcmp(tracker, "scan") == 0 || strcmp(tracker, "auto") == 0 ? BLOCK : UNIT;
        w->written = calloc(1, w->bytes / w->grain + 1);
        CHECK(w->m && w->frozen && w->written);
}

static void close_world(struct world *w)
{
        CHECK_EQ(belay_close(&w->b), 0);
        free(w->frozen);
        free(w->written);
}

/* Writes one byte to the page that holds `at`: the one that is there, or another. */
STRESS_PROGRAM static void touch(struct world *w, uint64_t at, bool change)
{
        uint8_t value = ((volatile uint8_t *)w->m)[at];
        ((volatile uint8_t *)w->m)[at] = (uint8_t)(value + change);
        w->written[at / w->grain] = 1;
}

/* What the next version has to store, and no more. */
static uint64_t expected(struct world *w)
{
        uint64_t sum = 0;
        for (uint64_t i = 0; i * w->grain < w->bytes; i++)
                sum += w->written[i] ? min_u64(w->grain, w->bytes - i * w->grain) : 0;
        memset(w->written, 0, w->bytes / w->grain + 1);
        return sum;
}

/* … if whole units are. */
static uint64_t in_units(const struct world *w)
{
        uint64_t sum = 0;
        for (uint64_t u = 0; u * UNIT < w->bytes; u++) {
                bool any = false;
                for (uint64_t at = u * UNIT; at < min_u64((u + 1) * UNIT, w->bytes); at += w->grain)
                        any |= w->written[at / w->grain] != 0;
                sum += any ? min_u64(UNIT, w->bytes - u * UNIT) : 0;
        }
        return sum;
}

static uint64_t freeze(struct world *w)
{
        uint64_t bytes = expected(w);
        memcpy(w->frozen, w->m, w->bytes);
        CHECK_EQ(belay_checkpoint(w->b), 0);
        return bytes;
}

static struct belay_stats settle(struct world *w)
{
        struct belay_stats s = {.size = sizeof(s)};
        stress_exact(w->b, w->path, "x", w->frozen, w->bytes);
        CHECK_EQ(belay_stats(w->b, &s), 0);
        CHECK_EQ(s.last_compared, 0);
        return s;
}

static void checkpoint(struct world *w)
{
        uint64_t bytes = freeze(w);
        struct belay_stats s = settle(w);
        CHECK_EQ(s.last_data, bytes);
        CHECK_EQ(s.last_unchanged, w->bytes - bytes);
}

/* The first version is complete. */
static void first(struct world *w)
{
        stress_fill(w->m, w->bytes, 1);
        memset(w->written, 1, w->bytes / w->grain + 1);
        checkpoint(w);
        checkpoint(w);
}

/* One page in each second unit; a third of each unit; a run of units; all of it; a third of each
 * second unit and the page that it shares with the unit before, where units are not aligned; the
 * last byte. */
#define PATTERNS 6u
static void write_pattern(struct world *w, unsigned pattern, bool change)
{
        switch (pattern) {
        case 0:
                for (uint64_t u = 0; u <= UNITS; u += 2)
                        touch(w, u * UNIT + u % 3 * BLOCK + 2 * PAGE + 17, change);
                break;
        case 1:
                for (uint64_t u = 0; u < UNITS; u++)
                        for (uint64_t page = 0; page < 6; page++)
                                touch(w, u * UNIT + (u + page) % 16 * PAGE, change);
                break;
        case 2:
                for (uint64_t at = 9 * UNIT + 5 * PAGE; at < 60 * UNIT; at += PAGE)
                        touch(w, at, change);
                break;
        case 3:
                for (uint64_t at = 0; at < w->bytes; at += PAGE)
                        touch(w, at, change);
                break;
        case 4:
                for (uint64_t u = 2; u < UNITS; u += 2) {
                        touch(w, u * UNIT - 1, change);
                        touch(w, u * UNIT, change);
                        for (uint64_t page = 8; page < 14; page++)
                                touch(w, u * UNIT + page * PAGE, change);
                }
                break;
        default:
                touch(w, w->bytes - 1, change);
                break;
        }
}

static void follow_writes(struct world *w)
{
        first(w);
        for (unsigned pattern = 0; pattern < PATTERNS; pattern++) {
                for (int i = 0; i < 3; i++) { /* what is written in every epoch is no exception */
                        write_pattern(w, pattern, i % 2);
                        checkpoint(w);
                }
                checkpoint(w);
        }
}

static void test_bytes_follow_writes(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p++) {
                        struct world w = {.b = NULL};
                        open_world(&w, trackers[t], policies[p], "");
                        uint64_t before = atomic_load(&hashed);
                        follow_writes(&w);
                        CHECK(atomic_load(&hashed) > before);
                        close_world(&w);
                }
}

static uint32_t stored_hash(const struct world *w)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {.path = w->path, .readonly = true, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_version(p, pool_version_count(p) - 1);
        uint32_t hash = v->regions[0]->desc.hash;
        CHECK_EQ(pool_close(&p), 0);
        return hash;
}

static void test_no_hashes(void)
{
        for (int i = 0; i < 3; i++) {
                struct world w = {.b = NULL};
                open_world(&w, trackers[i], policies[i], "checksum=no");
                atomic_store(&hashed, 0);
                follow_writes(&w);
                CHECK_EQ(atomic_load(&hashed), 0);
                CHECK_EQ(stored_hash(&w), HASH_NONE);
                close_world(&w);
        }
}

/* The program writes while the version is flushed: the version is that of the freeze, and what was
 * written is in the next. A write that had to be caught opens a unit, and all of that counts. */
static void write_meanwhile(const char *tracker, const char *policy, const char *more)
{
        struct world w = {.b = NULL};
        open_world(&w, tracker, policy, more);
        first(&w);
        for (unsigned i = 0; i < 8; i++) {
                write_pattern(&w, i % 4, true);
                uint64_t bytes = freeze(&w);
                write_pattern(&w, (i + 1) % 4, true);
                CHECK(settle(&w).last_data >= bytes);
        }
        uint64_t units = in_units(&w);
        uint64_t bytes = freeze(&w);
        struct belay_stats s = settle(&w);
        CHECK(s.last_data >= bytes && s.last_data <= units);
        checkpoint(&w);
        close_world(&w);
}

static void test_writes_meanwhile(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 1; p < 3; p++)
                        write_meanwhile(trackers[t], policies[p],
                                        p == 1 ? "rate=200MiB copy_buffer=1MiB"
                                               : "rate=200MiB checksum=no");
}

/* After a restart, a resize or a failed checkpoint nothing is known: all of it is stored once. */
static void again_from_nothing(const char *tracker, const char *policy)
{
        struct world w = {.b = NULL};
        open_world(&w, tracker, policy, "");
        first(&w);
        touch(&w, 5 * UNIT, true);
        checkpoint(&w);
        memset(w.m, 0, w.bytes);
        CHECK_EQ(belay_restart(w.b), 1);
        CHECK_MEM(w.m, w.frozen, w.bytes);
        memset(w.written, 1, w.bytes / w.grain + 1);
        checkpoint(&w);
        touch(&w, 7 * UNIT, false);
        checkpoint(&w);
        w.bytes -= 10 * UNIT;
        w.m = belay_resize(w.b, "x", w.bytes);
        CHECK(w.m != NULL);
        memset(w.written, 1, w.bytes / w.grain + 1);
        checkpoint(&w);
        touch(&w, 9 * UNIT, false);
        checkpoint(&w);
        /* In pieces, one of which is given up. */
        touch(&w, 11 * UNIT, true);
        CHECK_EQ(belay_begin(w.b), 0);
        CHECK_EQ(belay_add(w.b, "x"), 0);
        CHECK_EQ(belay_abort(w.b), 0);
        memcpy(w.frozen, w.m, w.bytes);
        CHECK_EQ(belay_begin(w.b), 0);
        CHECK_EQ(belay_add(w.b, "x"), 0);
        CHECK_EQ(belay_end(w.b), 0);
        CHECK(settle(&w).last_data >= expected(&w));
        checkpoint(&w);
        close_world(&w);
}

static void test_again_from_nothing(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p++)
                        again_from_nothing(trackers[t], policies[p]);
}

/* Pre-copy stores what was written before the checkpoint, and again what was written since. */
static void test_precopy(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p += 2) {
                        struct world w = {.b = NULL};
                        open_world(&w, trackers[t], policies[p], "precopy=immediate");
                        first(&w);
                        for (unsigned i = 0; i < 12; i++) {
                                write_pattern(&w, i % 4, i % 2);
                                usleep(2000);
                                touch(&w, i * UNIT, true);
                                uint64_t bytes = freeze(&w);
                                CHECK(settle(&w).last_data >= bytes);
                        }
                        checkpoint(&w);
                        close_world(&w);
                }
}

/* Policy sync by itself would take the tracker that notices nothing; a small region would not be
 * tracked. */
static void test_by_itself(void)
{
        struct world w = {.b = NULL};
        struct belay_stats s = {.size = sizeof(s)};
        open_world(&w, "auto", "sync", "");
        uint8_t *small = belay_alloc(w.b, "small", BELAY_U8, 3 * BLOCK);
        memset(small, 1, 3 * BLOCK);
        stress_fill(w.m, w.bytes, 1);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        CHECK_EQ(belay_stats(w.b, &s), 0);
        CHECK_EQ(s.last_data, 0);
        stress_poke(small, BLOCK + 5, 1);
        stress_poke(w.m, 8 * UNIT, w.m[8 * UNIT]);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        CHECK_EQ(belay_stats(w.b, &s), 0);
        CHECK(s.last_data == 2 * BLOCK || s.last_data == UNIT + 3 * BLOCK);
        stress_compare(w.path, belay_version(w.b), "small", small, 3 * BLOCK);
        close_world(&w);
}

/* Memory that does not begin and end with a page: the units at its ends are stored every time. */
static void test_unaligned(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p++) {
                        struct world w = {.b = NULL};
                        open_world(&w, trackers[t], policies[p], "");
                        uint8_t *raw = malloc(BYTES + 2 * PAGE);
                        CHECK_EQ(belay_free(w.b, "x"), 0);
                        w.m = raw + PAGE - (uintptr_t)raw % PAGE + 1000;
                        stress_fill(w.m, w.bytes, 1);
                        CHECK_EQ(belay_attach(w.b, "x", BELAY_U8, BYTES, w.m), 0);
                        (void)freeze(&w);
                        (void)settle(&w);
                        for (unsigned i = 0; i < 2 * PATTERNS; i++) {
                                write_pattern(&w, i % PATTERNS, true);
                                uint64_t bytes = freeze(&w);
                                if (i >= PATTERNS && p > 0)
                                        write_pattern(&w, (i + 1) % PATTERNS, true);
                                CHECK(settle(&w).last_data >= bytes);
                        }
                        (void)freeze(&w);
                        (void)settle(&w);
                        (void)freeze(&w);
                        CHECK(settle(&w).last_data <= 2 * UNIT);
                        CHECK_EQ(belay_close(&w.b), 0);
                        free(raw);
                        free(w.frozen);
                        free(w.written);
                }
}

struct writer {
        uint8_t *m;
        uint64_t seed;
        _Atomic bool stop;
};

/* Now single pages all over, now many pages of a few units. */
STRESS_PROGRAM static void *write_on(void *arg)
{
        struct writer *x = arg;
        while (!atomic_load(&x->stop)) {
                x->seed = x->seed * 6364136223846793005u + 1442695040888963407u;
                uint64_t at = (x->seed >> 20) % (BYTES - UNIT);
                uint64_t pages = x->seed >> 60 ? 1 : 12;
                for (uint64_t i = 0; i < pages; i++)
                        ((volatile uint8_t *)x->m)[at + i * PAGE]++;
                usleep(20);
        }
        return NULL;
}

/* A thread writes on through freezes and commits. No version is exact then, but nothing that it
 * wrote is forgotten: when it has stopped, the next version is. */
static void race(const char *tracker, const char *policy, const char *more, uint64_t skew)
{
        struct world w = {.b = NULL};
        pthread_t thread;
        open_world(&w, tracker, policy, more);
        CHECK_EQ(belay_free(w.b, "x"), 0);
        uint8_t *raw = malloc(BYTES + 2 * PAGE);
        w.m = raw + PAGE - (uintptr_t)raw % PAGE + skew;
        stress_fill(w.m, w.bytes, 1);
        CHECK_EQ(belay_attach(w.b, "x", BELAY_U8, BYTES, w.m), 0);
        for (unsigned round = 0; round < 3; round++) {
                struct writer x = {.m = w.m, .seed = round + 1};
                CHECK_EQ(pthread_create(&thread, NULL, write_on, &x), 0);
                for (unsigned i = 0; i < 6; i++) {
                        CHECK_EQ(belay_checkpoint(w.b), 0);
                        CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
                }
                CHECK_EQ(belay_checkpoint(w.b), 0);
                atomic_store(&x.stop, true);
                CHECK_EQ(pthread_join(thread, NULL), 0);
                CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
                (void)freeze(&w);
                (void)settle(&w);
        }
        CHECK_EQ(belay_close(&w.b), 0);
        free(raw);
        free(w.frozen);
        free(w.written);
}

static void test_race(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p++)
                        for (uint64_t skew = 0; skew < 3000; skew += 2000)
                                race(trackers[t], policies[p], "copy_buffer=1MiB media=mapped",
                                     skew);
}

static void test_refusal(void)
{
        struct belay_config *c;
        struct belay *b = NULL;
        bool had_input = fcntl(STDIN_FILENO, F_GETFD) >= 0;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", stress_pool("refused")), 0);
        CHECK_EQ(belay_config_set(c, "diff", "pages"), 0);
        CHECK_EQ(belay_config_set(c, "tracker", "hash"), 0);
        CHECK_EQ(belay_open(c, &b), -EINVAL);
        CHECK_HAS(belay_error(), "tracker = hash");
        CHECK(fcntl(STDIN_FILENO, F_GETFD) >= 0 || !had_input); /* it was closed once */
        belay_config_delete(&c);
}

int main(void)
{
        RUN(test_bytes_follow_writes);
        RUN(test_no_hashes);
        RUN(test_writes_meanwhile);
        RUN(test_again_from_nothing);
        RUN(test_precopy);
        RUN(test_by_itself);
        RUN(test_unaligned);
        RUN(test_race);
        RUN(test_refusal);
        return 0;
}
