/* Every way to lose a write: shared pages at unit edges, each tracker, each fallback by mask, huge
 * pages, unaligned memory, two contexts over the same memory. What is stored is compared with the
 * state at the freeze.
 *
 * builds: normal asan tsan */
#include "api/api_int.h"
#include "stress.h"
#include <pthread.h>
#include <sys/mman.h>

#define UNIT  (64u << 10)
#define BYTES (6u << 20)

static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};
static const char *const policies[] = {"sync", "async", "adaptive"};

static struct belay *open_with(const char *path, const char *tracker, const char *policy)
{
        char options[256];
        snprintf(options, sizeof(options), "tracker=%s policy=%s unit=64KiB copy_buffer=256KiB",
                 tracker, policy);
        return stress_open(path, options);
}

/* After a full commit, a write in unit 10 opens it, and with it the pages it shares with units 9
 * and 11; their bytes in those pages are then written without a fault. */
static void shared_pages(const char *tracker, const char *policy)
{
        const char *path = stress_pool("edges");
        uint8_t *raw = calloc(1, BYTES + 8192);
        uint8_t *m = (uint8_t *)(((uintptr_t)raw + 4095) / 4096 * 4096) + 2000;
        struct belay *b = open_with(path, tracker, policy);
        stress_fill(m, BYTES, 1);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
        for (uint64_t round = 0; round < 3; round++) {
                /* Until every unit has been armed: dirty in one epoch, clean in the next. */
                for (int i = 0; i < 2; i++) {
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_exact(b, path, "x", m, BYTES);
                }
                stress_poke(m, 10 * UNIT + UNIT / 2, (uint8_t)(100 + round));
                stress_poke(m, 10 * UNIT - 1, (uint8_t)(110 + round));
                stress_poke(m, 11 * UNIT, (uint8_t)(120 + round));
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
                stress_fill(m, BYTES, 2 + round);
        }
        /* The same while the commit runs: all dirty, the flusher busy elsewhere. */
        CHECK_EQ(belay_checkpoint(b), 0);
        uint8_t *frozen = stress_copy(m, BYTES);
        for (uint64_t u = 2; u < BYTES / UNIT; u += 3) {
                stress_poke(m, u * UNIT + UNIT / 2, (uint8_t)u);
                stress_poke(m, u * UNIT - 1, (uint8_t)u);
                stress_poke(m, (u + 1) * UNIT, (uint8_t)u);
        }
        stress_exact(b, path, "x", frozen, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", m, BYTES);
        stress_close(&b);
        free(frozen);
        free(raw);
}

static void test_shared_pages(void)
{
        for (int t = 0; t < 4; t++)
                for (int p = 0; p < 3; p++)
                        shared_pages(trackers[t], policies[p]);
}

/* Writes the last byte of each unit once, in a page that it shares with the next. */
STRESS_PROGRAM static void *write_ends(void *arg)
{
        uint8_t *m = arg;
        for (uint64_t i = 0; i < BYTES / UNIT; i++) {
                uint64_t u = i * 37 % (BYTES / UNIT) + 1;
                ((volatile uint8_t *)m)[u * UNIT - 1]++;
                for (volatile int k = 0; k < 3000; k++)
                        continue;
        }
        return NULL;
}

/* A thread writes to shared pages while a checkpoint is taken, after the one unit was read and
 * before the other is watched: that is in the next version. */
static void shared_pages_meanwhile(const char *tracker, const char *policy, int rounds)
{
        const char *path = stress_pool("ends");
        uint8_t *raw = calloc(1, BYTES + 8192);
        uint8_t *m = (uint8_t *)(((uintptr_t)raw + 4095) / 4096 * 4096) + 2000;
        char options[256];
        snprintf(options, sizeof(options), "tracker=%s policy=%s unit=64KiB media=mapped", tracker,
                 policy);
        struct belay *b = stress_open(path, options);
        stress_fill(m, BYTES, 1);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
        for (int round = 0; round < rounds; round++) {
                pthread_t thread;
                for (uint64_t at = 0; at < BYTES; at += 4096)
                        stress_poke(m, at, (uint8_t)round);
                CHECK_EQ(pthread_create(&thread, NULL, write_ends, m), 0);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(pthread_join(thread, NULL), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
        }
        CHECK_EQ(belay_close(&b), 0);
        free(raw);
}

static void test_shared_pages_meanwhile(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 3; p++)
                        shared_pages_meanwhile(trackers[t], policies[p], p == 0 && t == 0 ? 60 : 5);
}

/* Fills, freezes, overwrites all during the commit, compares; twice. */
static void rewrite(struct belay *b, const char *path, uint8_t *m, uint64_t bytes)
{
        for (uint64_t round = 0; round < 3; round++) {
                stress_fill(m, bytes, 10 + round);
                uint8_t *frozen = stress_copy(m, bytes);
                CHECK_EQ(belay_checkpoint(b), 0);
                for (uint64_t at = 0; at < bytes; at += 4096)
                        stress_poke(m, bytes - 1 - at, (uint8_t)~m[bytes - 1 - at]);
                stress_exact(b, path, "x", frozen, bytes);
                free(frozen);
        }
}

static void test_masks(void)
{
        static const char *const masks[] = {
                "probe_mask=", "probe_mask=pagemap_scan", "probe_mask=uffd_wp_async",
                "probe_mask=uffd_wp_async,pagemap_scan,uffd_sigbus",
                "probe_mask=uffd_wp_async,pagemap_scan,uffd_sigbus,io_uring,o_direct,fallocate"};
        for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++)
                for (int p = 0; p < 3; p++) {
                        char options[256];
                        const char *path = stress_pool("mask");
                        snprintf(options, sizeof(options), "%s policy=%s rate=400MiB", masks[i],
                                 policies[p]);
                        struct belay *b = stress_open(path, options);
                        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                        CHECK(m != NULL);
                        if (p > 0)
                                rewrite(b, path, m, BYTES);
                        else
                                CHECK_EQ(belay_checkpoint(b), 0);
                        stress_close(&b);
                }
}

static void test_huge_pages(void)
{
        uint64_t bytes = 8u << 20;
        for (int t = 0; t < 4; t++)
                for (int p = 1; p < 3; p++) {
                        const char *path = stress_pool("huge");
                        uint8_t *m = aligned_alloc(2u << 20, bytes);
                        CHECK(m != NULL);
                        (void)madvise(m, bytes, MADV_HUGEPAGE);
                        struct belay *b = open_with(path, trackers[t], policies[p]);
                        CHECK_EQ(belay_attach(b, "x", BELAY_U8, bytes, m), 0);
                        rewrite(b, path, m, bytes);
                        stress_close(&b);
                        free(m);
                }
}

static unsigned warnings;

static void count_warnings(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)text;
        warnings += level == BELAY_LOG_WARN;
}

/* The second context cannot track what the first one does: it says so, and both are exact. */
static void test_two_contexts(void)
{
        belay_log_sink(count_warnings, NULL, BELAY_LOG_WARN);
        for (int t = 0; t < 3; t++) {
                char first[4096];
                snprintf(first, sizeof(first), "%s", stress_pool("first"));
                const char *second = stress_pool("second");
                uint8_t *m = aligned_alloc(4096, BYTES);
                struct belay *a = open_with(first, trackers[t], "adaptive");
                struct belay *b = open_with(second, trackers[t], "adaptive");
                warnings = 0;
                CHECK_EQ(belay_attach(a, "x", BELAY_U8, BYTES, m), 0);
                CHECK_EQ(warnings, 0);
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES - UNIT, m + UNIT), 0);
                CHECK_EQ(warnings, 1);
                for (uint64_t round = 0; round < 3; round++) {
                        stress_fill(m, BYTES, round);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(a), 0);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        for (uint64_t at = 0; at < BYTES; at += 1000)
                                stress_poke(m, at, (uint8_t)~m[at]);
                        stress_exact(a, first, "x", frozen, BYTES);
                        stress_exact(b, second, "x", frozen + UNIT, BYTES - UNIT);
                        free(frozen);
                }
                stress_close(&a);
                stress_close(&b);
                free(m);
        }
        belay_log_sink(NULL, NULL, BELAY_LOG_ERROR);
}

/* The version that was published last is found damaged: the next is made from an older one, and
 * what changed since the damaged one is not all that it needs. */
static void test_other_base(void)
{
        for (int t = 0; t < 4; t++) {
                const char *path = stress_pool("base");
                uint8_t *m = aligned_alloc(4096, BYTES);
                char options[96];
                snprintf(options, sizeof(options), "tracker=%s policy=async unit=64KiB versions=8",
                         trackers[t]);
                struct belay *b = stress_open(path, options);
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
                stress_fill(m, BYTES, 1);
                for (uint64_t round = 0; round < 6; round++) {
                        if (round == 2) /* all is watched when it was found unchanged */
                                stress_fill(m, BYTES, 2);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_exact(b, path, "x", m, BYTES);
                }
                for (uint64_t v = belay_version(b) - 3; v <= belay_version(b); v++)
                        pool_mark_damaged(b->levels.pool, pool_find_version(b->levels.pool, v),
                                          "a test");
                stress_poke(m, BYTES / 2, (uint8_t)~m[BYTES / 2]);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
                stress_close(&b);
                free(m);
        }
}

int main(void)
{
        RUN(test_shared_pages);
        RUN(test_shared_pages_meanwhile);
        RUN(test_masks);
        RUN(test_huge_pages);
        RUN(test_two_contexts);
        RUN(test_other_base);
        return 0;
}
