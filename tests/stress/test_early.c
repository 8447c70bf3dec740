/* Pre-copy: whatever was copied early, and whatever the program did meanwhile, a version is the
 * state at its freeze.
 *
 * builds: normal asan tsan */
#include "base/base.h"
#include "engine/engine_int.h"
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BYTES (UINT64_C(2) << 20)
#define SETS  4

static const char *const names[SETS] = {"once", "early", "hot", "still"};
static const char *const forms[] = {"immediate", "delayed", "predicted"};
static const char *const ways[] = {
        "policy=sync tracker=scan media=mapped",
        "policy=sync tracker=mprotect media=file",
        "policy=adaptive tracker=scan rate=400MiB",
        "policy=async tracker=uffd rate=400MiB",
        "policy=adaptive tracker=mprotect precopy_rate=100MiB",
};

struct world {
        struct belay *b;
        char path[4096];
        uint32_t flags;
        uint8_t *set[SETS], *frozen[SETS];
        uint64_t early, missed;
};

static void rest(long ms)
{
        struct timespec t = {0, ms * 1000000};
        nanosleep(&t, NULL);
}

static void make_set(struct world *w, int i)
{
        struct belay_desc d = {.size = sizeof(d),
                               .name = names[i],
                               .type = BELAY_U8,
                               .ndims = 1,
                               .dims = {BYTES},
                               .flags = w->flags};
        w->set[i] = belay_alloc_desc(w->b, &d);
        CHECK(w->set[i] != NULL);
        stress_fill(w->set[i], BYTES, (uint64_t)i);
}

static void begin(struct world *w, const char *way, const char *form, uint32_t flags)
{
        char options[256];
        *w = (struct world){.flags = flags};
        /* ThreadSanitizer cannot see that a ring is gone when another is mapped in its place. */
        snprintf(options, sizeof(options), "unit=64KiB copy_buffer=256KiB precopy=%s %s%s", form,
                 way, STRESS_TSAN ? " io=pwrite" : "");
        snprintf(w->path, sizeof(w->path), "%s", stress_pool("early"));
        w->b = stress_open(w->path, options);
        for (int i = 0; i < SETS; i++)
                make_set(w, i);
}

static void end(struct world *w)
{
        stress_close(&w->b);
        for (int i = 0; i < SETS; i++)
                free(w->frozen[i]);
}

static void checkpoint(struct world *w)
{
        for (int i = 0; i < SETS; i++) {
                free(w->frozen[i]);
                w->frozen[i] = stress_copy(w->set[i], BYTES);
        }
        CHECK_EQ(belay_checkpoint(w->b), 0);
}

static void compare(struct world *w)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        for (int i = 0; i < SETS; i++)
                stress_compare(w->path, belay_version(w->b), names[i], w->frozen[i], BYTES);
        CHECK_EQ(belay_stats(w->b, &s), 0);
        w->early += s.last_early;
        w->missed += s.last_early_missed;
}

/* One interval: "early" is written in its first third, "hot" all the time, here and there. */
STRESS_PROGRAM static void compute(struct world *w, uint64_t seed)
{
        for (uint64_t step = 0; step < 24; step++) {
                if (step < 8)
                        stress_fill(w->set[1] + step * (BYTES / 8), BYTES / 8, seed * 100 + step);
                for (uint64_t k = 0; k < 16; k++)
                        stress_poke(w->set[2], (seed * 7919 + step * 104729 + k * 131071) % BYTES,
                                    (uint8_t)(seed + step + k));
                rest(1);
        }
}

/* All of a set is in the draft of the next version, or that has failed for too long. */
STRESS_PROGRAM static void await_early(struct world *w, int set)
{
        const struct region *r = region_find(stress_engine(w->b)->regions, names[set]);
        uint64_t missing = 1;
        for (int ms = 0; ms < 20000 && missing > 0; ms++) {
                missing = 0;
                /* A chunk that was written again is in the draft until a look finds that out. */
                const struct span *s = &r->watch->span;
                for (uint64_t u = 0; u < s->units; u++)
                        missing += !((volatile uint8_t *)unit_notes(r->watch)->early)[u] ||
                                   (s->whole && atomic_load(&s->written[u]));
                rest(1);
        }
}

static void run(const char *way, const char *form, uint32_t flags)
{
        struct world w;
        begin(&w, way, form, flags);
        for (uint64_t i = 0; i < (STRESS_TSAN ? 2 : 6); i++) {
                checkpoint(&w);
                compute(&w, i); /* while it is flushed, and when it is */
                compare(&w);
                compute(&w, i + 50);
        }
        uint64_t by_chance = w.early;
        /* An interval that does not end before its last modification has been copied. */
        checkpoint(&w);
        compare(&w);
        compute(&w, 200);
        await_early(&w, 1);
        w.early = 0;
        checkpoint(&w);
        compare(&w);
        printf("  %s, %s%s: %llu units early, and %llu, %llu in vain\n", way, form,
               flags ? ", chunks" : "", (unsigned long long)by_chance, (unsigned long long)w.early,
               (unsigned long long)w.missed);
        CHECK(w.early >= BYTES / (64u << 10));
        end(&w);
}

static void test_exact(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++)
                for (size_t f = 0; f < ARRAY_LEN(forms); f++)
                        for (uint32_t flags = 0; flags <= BELAY_CHUNK; flags += BELAY_CHUNK)
                                run(ways[k], forms[f], flags);
}

/* Regions come, go and change their size between checkpoints, and so do checkpoints in pieces and
 * restarts. */
static void test_changes(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w;
                begin(&w, ways[k], "immediate", BELAY_CHUNK);
                for (uint64_t i = 0; i < 8; i++) {
                        checkpoint(&w);
                        compare(&w);
                        compute(&w, i);
                        if (i % 4 == 0) {
                                CHECK_EQ(belay_free(w.b, names[0]), 0);
                                make_set(&w, 0);
                        } else if (i % 4 == 1) {
                                w.set[1] = belay_resize(w.b, names[1], 2 * BYTES);
                                w.set[1] = belay_resize(w.b, names[1], BYTES);
                        } else if (i % 4 == 2) {
                                CHECK_EQ(belay_begin(w.b), 0);
                                CHECK_EQ(belay_add(w.b, names[2]), 0);
                                CHECK_EQ(belay_abort(w.b), 0);
                        } else {
                                CHECK_EQ(belay_restart(w.b), 1);
                                CHECK(memcmp(w.set[1], w.frozen[1], BYTES) == 0);
                        }
                        compute(&w, i + 9);
                }
                end(&w);
        }
}

/* The first write opens all of a chunk: one fault between two looks, not one for each unit. */
static void test_chunk(void)
{
        struct world w;
        struct belay_stats s = {.size = sizeof(s)};
        begin(&w, "policy=sync tracker=scan", "off", BELAY_CHUNK);
        for (uint64_t i = 0; i < 4; i++) {
                checkpoint(&w);
                compare(&w);
                stress_poke(w.set[1], i * 70000, (uint8_t)(i + 1));
        }
        checkpoint(&w);
        compare(&w);
        CHECK_EQ(belay_stats(w.b, &s), 0);
        /* All units of the one set count as changed, those of the others do not. */
        CHECK_EQ(s.last_dirty, BYTES / (64u << 10));
        CHECK(s.last_data < BYTES / 4);
        end(&w);
}

/* The pool is full when something is to be copied early: that comes to nothing, the checkpoint says
 * what is wrong, and when there is less to write it succeeds. */
static void test_full(void)
{
        for (uint32_t flags = 0; flags <= BELAY_CHUNK; flags += BELAY_CHUNK) {
                struct world w;
                begin(&w, "policy=sync tracker=scan limit=16MiB", "immediate", flags);
                for (int i = 0; i < 2; i++) {
                        checkpoint(&w);
                        compare(&w);
                        compute(&w, 1);
                }
                for (int i = 0; i < SETS; i++)
                        stress_fill(w.set[i], BYTES, (uint64_t)i + 500);
                rest(50);
                for (int i = 0; i < SETS; i++)
                        stress_fill(w.set[i], BYTES, (uint64_t)i + 600);
                CHECK_EQ(belay_checkpoint(w.b), BELAY_E_CHECKPOINT);
                rest(50);
                for (int i = 0; i < SETS; i++)
                        memcpy(w.set[i], w.frozen[i], BYTES);
                w.set[1][5]++;
                checkpoint(&w);
                compare(&w);
                end(&w);
        }
}

/* Where every version is written in full, what does not change is copied early as well. */
static void test_in_full(void)
{
        static const char *const trackers[] = {"scan", "mprotect", "uffd"};
        for (int t = 0; t < 3; t++)
                for (uint32_t flags = 0; flags <= BELAY_CHUNK; flags += BELAY_CHUNK) {
                        struct world w;
                        struct belay_stats s = {.size = sizeof(s)};
                        char way[64];
                        snprintf(way, sizeof(way), "policy=sync diff=off tracker=%s", trackers[t]);
                        begin(&w, way, "immediate", flags);
                        for (int i = 0; i < 200 && s.last_early < SETS * BYTES / (64u << 10); i++) {
                                checkpoint(&w);
                                compare(&w);
                                CHECK_EQ(belay_stats(w.b, &s), 0);
                                stress_poke(w.set[i % SETS], 0, (uint8_t)i);
                                rest(20);
                        }
                        CHECK_EQ(s.last_early, SETS * BYTES / (64u << 10));
                        end(&w);
                }
}

/* A system call that is writing to a region is not disturbed: nothing is protected under it. */
static void test_system_calls(void)
{
        static const char *const trackers[] = {"scan", "mprotect", "uffd"};
        static uint8_t input[200000];
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("early_input"));
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        stress_fill(input, sizeof(input), 3);
        CHECK_EQ(write(fd, input, sizeof(input)), (ssize_t)sizeof(input));
        for (int t = 0; t < 3; t++)
                for (uint32_t flags = 0; flags <= BELAY_CHUNK; flags += BELAY_CHUNK) {
                        struct world w;
                        char way[64];
                        snprintf(way, sizeof(way), "policy=sync tracker=%s", trackers[t]);
                        begin(&w, way, "immediate", flags);
                        for (uint64_t i = 0; i < 8; i++) {
                                checkpoint(&w);
                                compare(&w);
                                for (uint64_t k = 0; k < 400; k++) {
                                        stress_poke(w.set[1], k * 5000, (uint8_t)(i + k));
                                        CHECK_EQ(pread(fd, w.set[2] + k, sizeof(input), 0),
                                                 (ssize_t)sizeof(input));
                                }
                                CHECK(memcmp(w.set[2] + 399, input, sizeof(input)) == 0);
                        }
                        checkpoint(&w);
                        compare(&w);
                        end(&w);
                }
        CHECK_EQ(close(fd), 0);
}

/* The kernel does not tell once what was written. That version fails, and the next is exact. */
static struct plat_calls calls;
static _Atomic int scans; /* the scan that fails; 0: none */

static int failing_ioctl(int fd, unsigned long request, void *arg)
{
        int n = atomic_load(&scans);
        if (n > 0 && atomic_fetch_sub(&scans, 1) == 1)
                return -ENOMEM;
        return plat_system.ioctl(fd, request, arg);
}

static void test_failed_scan(void)
{
        int failures = 0;
        calls = plat_system;
        calls.ioctl = failing_ioctl;
        plat = &calls;
        for (int n = 1; n <= 30; n++) {
                struct world w;
                begin(&w, "policy=sync tracker=scan", "immediate", 0);
                for (int i = 0; i < 3; i++) {
                        checkpoint(&w);
                        compare(&w);
                        compute(&w, (uint64_t)(n * 10 + i));
                }
                rest(10); /* copied early */
                atomic_store(&scans, n);
                bool failed = belay_checkpoint(w.b) != 0;
                failures += failed;
                atomic_store(&scans, 0);
                checkpoint(&w);
                compare(&w);
                end(&w);
        }
        plat = &plat_system;
        printf("  %d checkpoints failed\n", failures);
        CHECK(failures > 0);
}

/* Slow copying goes on for ever, and another region is modified again and again. Each look finds a
 * chunk modified and protects it anew; elsewhere that would cost a fault for every unit. */
static _Atomic bool pacing;
static _Atomic uintptr_t other; /* the region */
static _Atomic int protections; /* of it, while copying waits */

static void slow_sleep(uint64_t ns)
{
        atomic_store(&pacing, true);
        plat_system.sleep_ns(ns);
}

static int counted_mprotect(void *p, uint64_t bytes, bool writable)
{
        if ((uintptr_t)p == atomic_load(&other) && !writable && atomic_load(&pacing))
                atomic_fetch_add(&protections, 1);
        return plat_system.mprotect(p, bytes, writable);
}

/* Until it is protected `most` times, or for so long. */
static int count_protections(struct world *w, int most, int ms)
{
        atomic_store(&other, (uintptr_t)w->set[1]);
        atomic_store(&protections, 0);
        for (int i = 0; i < ms && atomic_load(&protections) < most; i++) {
                stress_poke(w->set[0], 0, (uint8_t)i);
                if (atomic_load(&pacing))
                        stress_poke(w->set[1], 0, (uint8_t)i);
                rest(1);
        }
        CHECK(atomic_load(&pacing));
        return atomic_load(&protections);
}

static void begin_counting(struct world *w, const char *way, uint32_t flags)
{
        calls = plat_system;
        calls.sleep_ns = slow_sleep;
        calls.mprotect = counted_mprotect;
        plat = &calls;
        begin(w, way, "immediate", flags);
        for (int i = 0; i < 3; i++) {
                checkpoint(w);
                compare(w);
                rest(2);
        }
        atomic_store(&pacing, false);
}

static void end_counting(struct world *w)
{
        checkpoint(w);
        compare(w);
        end(w);
        plat = &plat_system;
}

static void test_looks_while_copying(void)
{
        struct world w;
        begin_counting(&w, "policy=sync tracker=mprotect precopy_rate=1", BELAY_CHUNK);
        CHECK(count_protections(&w, 5, 20000) >= 5);
        end_counting(&w);
        begin_counting(&w, "policy=sync tracker=mprotect precopy_rate=1", 0);
        CHECK_EQ(count_protections(&w, 5, 300), 0);
        end_counting(&w);
}

/* A look protected a region, a transfer opened a part of it, and the checkpoint came before all was
 * copied: what is left is copied then, and counts as written; which does not mean that it is open.
 * A transfer from what is open into the rest would be cut short. */
static void test_transfers_after_looks(void)
{
        static uint8_t input[200000];
        static const char *const slow[] = {"policy=async tracker=mprotect diff=on precopy_rate=1",
                                           "policy=async tracker=uffd diff=on precopy_rate=1"};
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("early_input"));
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        stress_fill(input, sizeof(input), 3);
        CHECK_EQ(write(fd, input, sizeof(input)), (ssize_t)sizeof(input));
        for (int i = 0; i < 2; i++) {
                struct world w;
                begin_counting(&w, slow[i], 0);
                for (uint64_t at = 0; at < BYTES; at += 64u << 10)
                        stress_poke(w.set[0], at, 77);
                for (int ms = 0; ms < 20000 && !atomic_load(&pacing); ms++)
                        rest(1);
                CHECK_EQ(pread(fd, w.set[0] + 70000, 20000, 0), 20000);
                checkpoint(&w);
                compare(&w);
                CHECK_EQ(pread(fd, w.set[0] + 70000, sizeof(input), 0), (ssize_t)sizeof(input));
                end_counting(&w);
        }
        CHECK_EQ(close(fd), 0);
}

/* After a checkpoint in pieces that came to nothing, pre-copy goes on. */
static void test_abort(void)
{
        struct world w;
        begin_counting(&w, "policy=sync tracker=mprotect", BELAY_CHUNK);
        CHECK_EQ(belay_begin(w.b), 0);
        CHECK_EQ(belay_abort(w.b), 0);
        atomic_store(&pacing, true);
        CHECK(count_protections(&w, 1, 20000) >= 1);
        end_counting(&w);
}

/* What did not change is copied early once in an interval, however often regions come and go. */
static _Atomic uint64_t written;

static int64_t counted_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        atomic_fetch_add(&written, bytes);
        return plat_system.pwrite(fd, buf, bytes, offset);
}

static void test_dropped(void)
{
        struct world w;
        calls = plat_system;
        calls.pwrite = counted_pwrite;
        plat = &calls;
        begin(&w, "policy=sync diff=off media=file io=pwrite", "immediate", 0);
        for (int i = 0; i < 3; i++) {
                checkpoint(&w);
                compare(&w);
                rest(20);
        }
        checkpoint(&w);
        atomic_store(&written, 0);
        for (int i = 0; i < 20; i++) {
                rest(20);
                CHECK(belay_alloc(w.b, "for a moment", BELAY_U8, 100) != NULL);
                CHECK_EQ(belay_free(w.b, "for a moment"), 0);
        }
        uint64_t once = SETS * BYTES;
        printf("  %.1f times what there is\n", (double)atomic_load(&written) / (double)once);
        CHECK(atomic_load(&written) < 2 * once);
        checkpoint(&w);
        compare(&w);
        end(&w);
        plat = &plat_system;
}

int main(void)
{
        RUN(test_exact);
        RUN(test_changes);
        RUN(test_chunk);
        RUN(test_full);
        RUN(test_in_full);
        RUN(test_system_calls);
        RUN(test_failed_scan);
        RUN(test_looks_while_copying);
        RUN(test_transfers_after_looks);
        RUN(test_abort);
        RUN(test_dropped);
        return 0;
}
