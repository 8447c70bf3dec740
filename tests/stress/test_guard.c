/* The fault handler and the flusher at the places where they meet: the last piece of a region that
 * two threads protect, a unit that is being copied while its neighbours are opened, the end of a
 * wait, and the pockets for copies. Where a thread would have to be slow at one instruction, the test
 * does that thread's work. */
#include "base/base.h"
#include "engine/engine_int.h"
#include "stress.h"
#include <errno.h>
#include <pthread.h>

#define MIB (UINT64_C(1) << 20)

static struct span *first_span(struct belay *b)
{
        return &stress_engine(b)->regions->list[0]->watch->span;
}

static uint32_t kind_of(const struct span *s, uint64_t u)
{
        return atomic_load(&s->state[u]) & UNIT_KIND;
}

/* ---- protection ------------------------------------------------------------------------------ */

/* From 64 MiB on two threads protect a region in pieces of 16 MiB; the last one is shorter. The
 * flusher reaches it last. */
static void test_tail(void)
{
        static const char *const trackers[] = {"uffd", "scan"};
        const uint64_t bytes = 69 * MIB + 5000;
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++) {
                char options[128];
                const char *path = stress_pool("tail");
                snprintf(options, sizeof(options),
                         "tracker=%s policy=async unit=256KiB rate=400MiB media=file", trackers[t]);
                struct belay *b = stress_open(path, options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, bytes);
                CHECK(m != NULL);
                for (uint64_t round = 0; round < 2; round++) {
                        for (uint64_t at = 0; at < bytes; at += 512)
                                stress_poke(m, at, (uint8_t)(at / 512 + round));
                        uint8_t *frozen = stress_copy(m, bytes);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        for (uint64_t back = 1; back < 22 * MIB; back += 4096 * 3)
                                stress_poke(m, bytes - back, (uint8_t)~m[bytes - back]);
                        stress_exact(b, path, "x", frozen, bytes);
                        free(frozen);
                }
                stress_close(&b);
        }
}

/* ---- a unit that is being copied --------------------------------------------------------------
 */

/* More than the gather buffers hold: what lies there is captured. */
#define UNITS      256u
#define UNIT       (64u << 10)
#define IN_COPYING 200u

struct writer {
        uint8_t *at;
        _Atomic bool written;
};

static void *write_once(void *arg)
{
        struct writer *w = arg;
        stress_poke(w->at, 0, (uint8_t) ~*w->at);
        atomic_store(&w->written, true);
        return NULL;
}

static bool all_but_one_done(const struct span *s)
{
        for (uint64_t u = 0; u < s->units; u++)
                if (u != IN_COPYING && kind_of(s, u) != UNIT_DONE)
                        return false;
        return true;
}

/* The test is the thread that copies a unit, and takes its time. The flusher captures all others
 * meanwhile and opens them in runs; then another thread writes to that unit. The pages of it must
 * still be protected. False if the flusher was faster. */
static bool copy_slowly(struct belay *b, uint8_t *m)
{
        struct guard *g = &stress_engine(b)->tracker.guard;
        struct span *s = first_span(b);
        struct writer w = {.at = m + IN_COPYING * UNIT + UNIT / 2};
        pthread_t thread;
        if (!unit_claim(s, IN_COPYING))
                return false;
        while (!all_but_one_done(s))
                usleep(1000);
        usleep(20000); /* the last run is opened after its last unit is done */
        CHECK_EQ(pthread_create(&thread, NULL, write_once, &w), 0);
        while (!atomic_load(&w.written) && !(atomic_load(&s->state[IN_COPYING]) & UNIT_WAITED))
                usleep(1000);
        int64_t pocket = pocket_take(g);
        CHECK(pocket >= 0);
        unit_copy(s, IN_COPYING, (uint32_t)pocket);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        return true;
}

static void test_copied_slowly(void)
{
        /* Trapped by mprotect, and by userfaultfd in long runs; in both the region is written all
         * over, and the flusher knows when. */
        static const char *const ways[] = {"policy=async probe_mask=uffd_sigbus", "policy=async",
                                           "policy=adaptive copy_ahead=no"};
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
                char options[160];
                const char *path = stress_pool("busy");
                snprintf(options, sizeof(options),
                         "%s tracker=scan unit=64KiB copy_buffer=1MiB rate=128MiB media=file",
                         ways[i]);
                struct belay *b = stress_open(path, options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
                CHECK(m != NULL);
                int copied = 0;
                for (uint64_t round = 0; round < 50 && copied < 2; round++) {
                        stress_fill(m, UNITS * UNIT, round);
                        uint8_t *frozen = stress_copy(m, UNITS * UNIT);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        copied += round > 1 && copy_slowly(b, m);
                        for (uint64_t u = 0; u < UNITS; u++)
                                stress_poke(m, u * UNIT, (uint8_t)~m[u * UNIT]);
                        stress_exact(b, path, "x", frozen, UNITS * UNIT);
                        free(frozen);
                }
                CHECK_EQ(copied, 2);
                stress_close(&b);
        }
}

/* ---- what first writes meet --------------------------------------------------------------------
 */

static void write_all(uint8_t *m, uint64_t seed)
{
        for (uint64_t u = 0; u < UNITS; u++)
                if (u != IN_COPYING)
                        stress_fill(m + u * UNIT, UNIT, seed * UNITS + u);
}

/* One epoch in which all units but one are written, all before the commit ends, or all after it.
 * False if that one unit, which keeps the commit from ending, was captured too soon. */
static bool write_epoch(struct belay *b, uint8_t *m, uint64_t seed, bool during)
{
        struct guard *g = &stress_engine(b)->tracker.guard;
        struct span *s = first_span(b);
        stress_fill(m + IN_COPYING * UNIT, UNIT, seed); /* after the commit before */
        CHECK_EQ(belay_checkpoint(b), 0);
        bool held = unit_claim(s, IN_COPYING);
        while (held && !all_but_one_done(s))
                usleep(1000);
        if (held && during)
                write_all(m, seed);
        if (held) {
                atomic_store(&s->access[IN_COPYING], ACCESS_COW);
                unit_copy(s, IN_COPYING, (uint32_t)pocket_take(g));
        }
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        if (!held || !during)
                write_all(m, seed);
        return held;
}

/* What was captured and is written before the commit ends counts as avoided, whether or not a fault
 * told of it. In the steady state most units are opened behind the flusher, and not watched. */
static void test_counts(void)
{
        static const char *const ways[] = {
                "policy=async probe_mask=uffd_sigbus", "policy=async", "policy=adaptive",
                "policy=adaptive copy_ahead=no open_behind=no", "policy=async tracker=mprotect"};
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
                char options[160];
                snprintf(options, sizeof(options),
                         "unit=64KiB copy_buffer=1MiB rate=128MiB media=file %s", ways[i]);
                struct belay *b = stress_open(stress_pool("counts"), options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
                int seen[2] = {0};
                bool before = false; /* the epoch before: known, and all was written after it */
                bool after = false;
                for (uint64_t round = 1; round < 60 && (seen[0] < 2 || seen[1] < 4); round++) {
                        struct belay_stats s = {.size = sizeof(s)};
                        bool during = round % 3 != 0;
                        bool held = write_epoch(b, m, round, during);
                        CHECK_EQ(belay_stats(b, &s), 0);
                        uint64_t met = s.last_waits + s.last_cows + s.last_avoided + s.last_ahead -
                                       s.last_ahead_missed;
                        printf("  %s, %s: %llu waits, %llu copies, %llu ahead, %llu avoided; "
                               "before: %llu after\n",
                               ways[i], during ? "during" : "after",
                               (unsigned long long)s.last_waits, (unsigned long long)s.last_cows,
                               (unsigned long long)(s.last_ahead - s.last_ahead_missed),
                               (unsigned long long)s.last_avoided,
                               (unsigned long long)s.last_after);
                        if (before)
                                CHECK_EQ(s.last_after, after ? UNITS - 1 : 0);
                        if (held)
                                CHECK_EQ(met, during ? UNITS - 1 : 0);
                        seen[during] += held;
                        before = held;
                        after = !during;
                }
                CHECK(seen[0] >= 2 && seen[1] >= 4);
                stress_close(&b);
        }
}

/* The same of units that did not have to be captured, in more places than the kernel tells at
 * once. */
static bool find_many_marks(void)
{
        const uint64_t bytes = 36 * MIB;
        const uint64_t small = 8192;
        const uint64_t dirty = 3 * MIB / small;
        struct belay_stats s = {.size = sizeof(s)};
        struct belay *b = stress_open(stress_pool("marks"),
                                      "unit=8KiB block=4KiB copy_buffer=1MiB media=file "
                                      "tracker=scan probe_mask=uffd_sigbus");
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, bytes);
        for (int i = 0; i < 3; i++) { /* until all is watched */
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
        stress_fill(m, dirty * small, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        struct span *span = first_span(b);
        bool held = unit_claim(span, dirty - 1);
        for (uint64_t at = dirty * small; at < bytes; at += small)
                stress_poke(m, at, (uint8_t)(m[at] + 1));
        if (held)
                unit_finish(span, dirty - 1, UNIT_PENDING);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        if (held)
                CHECK_EQ(s.last_avoided, bytes / small - dirty);
        stress_close(&b);
        return held;
}

/* Until the flusher was held up. Each time anew: what was written before is not watched for a
 * while. */
static void test_many_marks(void)
{
        bool held = false;
        for (int round = 0; !held && round < 50; round++)
                held = find_many_marks();
        CHECK(held);
}

/* ---- waits ------------------------------------------------------------------------------------
 */

enum { THREADS = 3 };

struct shared {
        uint8_t *m;
        _Atomic uint64_t round;
        _Atomic bool stop;
};

/* Each unit is written by all threads, from the end on: the flusher comes from the other side. */
static void *write_backwards(void *arg)
{
        struct shared *w = arg;
        uint64_t seen = 0;
        while (!atomic_load(&w->stop)) {
                uint64_t round = atomic_load(&w->round);
                for (uint64_t u = UNITS; u > 0 && round != seen; u--)
                        stress_poke(w->m, (u - 1) * UNIT + 100, (uint8_t)round);
                if (round == seen)
                        usleep(200);
                seen = round;
        }
        return NULL;
}

/* A thread that waits for a unit is woken when it is captured. Its wait is bounded all the same,
 * and may just end by that when the unit is captured; not all waits do. */
static void test_wake_ups(void)
{
        static const char *const trackers[] = {"scan", "uffd", "mprotect"};
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++) {
                char options[128];
                const char *path = stress_pool("wake");
                snprintf(options, sizeof(options),
                         "tracker=%s policy=async unit=64KiB copy_buffer=0 rate=256MiB media=file",
                         trackers[t]);
                struct belay *b = stress_open(path, options);
                struct shared w = {.m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT)};
                struct belay_stats s = {.size = sizeof(s)};
                uint64_t waits = 0;
                pthread_t threads[THREADS];
                for (int i = 0; i < THREADS; i++)
                        CHECK_EQ(pthread_create(&threads[i], NULL, write_backwards, &w), 0);
                for (uint64_t round = 1; round < 200 && waits < 100; round++) {
                        for (uint64_t at = 0; at < UNITS * UNIT; at += 4096)
                                stress_poke(w.m, at, (uint8_t)(round + at / 4096));
                        CHECK_EQ(belay_checkpoint(b), 0);
                        atomic_store(&w.round, round);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                        CHECK_EQ(belay_stats(b, &s), 0);
                        waits += s.last_waits;
                }
                atomic_store(&w.stop, true);
                for (int i = 0; i < THREADS; i++)
                        CHECK_EQ(pthread_join(threads[i], NULL), 0);
                uint64_t lost = atomic_load(&stress_engine(b)->tracker.guard.lost);
                printf("  %s: %llu waits, %llu wake-ups lost\n", trackers[t],
                       (unsigned long long)waits, (unsigned long long)lost);
                CHECK(waits >= 100);
                CHECK(lost * 10 <= waits);
                stress_close(&b);
        }
}

/* What a thread waits for is flushed next, not when its turn comes. */
static void test_waited_first(void)
{
        static const char *const policies[] = {"async", "adaptive"};
        for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
                char options[128];
                snprintf(options, sizeof(options),
                         "policy=%s unit=64KiB copy_buffer=0 rate=16MiB media=file", policies[i]);
                struct belay *b = stress_open(stress_pool("waited"), options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
                stress_fill(m, UNITS * UNIT, 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_poke(m, UNITS * UNIT - 1, 7);
                uint64_t left = 0;
                for (uint64_t u = 0; u < UNITS; u++)
                        left += kind_of(first_span(b), u) == UNIT_PENDING;
                printf("  %s: %llu units are still to be flushed\n", policies[i],
                       (unsigned long long)left);
                CHECK(left > 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                stress_close(&b);
        }
}

/* ---- a commit that fails ------------------------------------------------------------------------
 */

static struct plat_calls calls;
static _Atomic bool failing;

static int64_t failing_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        return atomic_load(&failing) ? -EIO : plat_system.pwrite(fd, buf, bytes, offset);
}

/* Copies that were not written yet give their pockets back, and the next version is exact. */
static void test_failed_with_copies(void)
{
        static const char *const policies[] = {"async", "adaptive"};
        calls = plat_system;
        calls.pwrite = failing_pwrite;
        plat = &calls;
        for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
                char options[128];
                const char *path = stress_pool("failed");
                snprintf(options, sizeof(options),
                         "policy=%s unit=64KiB copy_buffer=1MiB rate=64MiB media=file io=pwrite",
                         policies[i]);
                struct belay *b = stress_open(path, options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
                stress_fill(m, UNITS * UNIT, 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                for (uint64_t u = UNITS; u > UNITS - 8; u--)
                        stress_poke(m, (u - 1) * UNIT, 7);
                atomic_store(&failing, true);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), BELAY_E_CHECKPOINT);
                stress_check_idle(b);
                atomic_store(&failing, false);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, UNITS * UNIT);
                stress_close(&b);
        }
        plat = &plat_system;
}

/* ---- memory for copies -------------------------------------------------------------------------
 */

/* On slow storage the flusher fills all gather buffers ahead: they are copies, and part of the
 * budget, whatever the size of the copy buffer. */
static void test_copy_peak(void)
{
        static const char *const buffers[] = {"0", "1MiB"};
        for (uint64_t i = 0; i < ARRAY_LEN(buffers); i++) {
                char options[128];
                struct belay_stats s = {.size = sizeof(s)};
                snprintf(options, sizeof(options),
                         "unit=64KiB copy_buffer=%s rate=64MiB media=file policy=async",
                         buffers[i]);
                struct belay *b = stress_open(stress_pool("peak"), options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
                stress_fill(m, UNITS * UNIT, 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                for (uint64_t u = UNITS; u > UNITS - 8; u--)
                        stress_poke(m, (u - 1) * UNIT, 7);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK(s.last_copy_peak >= 8 * MIB && s.last_copy_peak <= (8 + i) * MIB);
                CHECK(s.last_copied <= i * MIB);
                CHECK(s.memory_bytes >= (8 + i) * MIB);
                stress_close(&b);
        }
}

/* ---- pockets for copies -------------------------------------------------------------------------
 */

static uint64_t asked;

static int refusing_mmap(int fd, uint64_t bytes, void **out)
{
        (void)fd;
        (void)out;
        asked = bytes;
        return -ENOMEM;
}

/* The number of a pocket lies beside the state of a unit, in the same word. */
static void test_most_pockets(void)
{
        uint32_t word = UNIT_COPIED | (MOST_POCKETS - 1) << UNIT_POCKET_SHIFT;
        CHECK_EQ(word >> UNIT_POCKET_SHIFT, MOST_POCKETS - 1);
        CHECK_EQ(word & UNIT_KIND, UNIT_COPIED);
        struct budget budget = {.limit = UINT64_MAX / 2};
        struct tracker t = {.budget = &budget, .unit_bytes = 4096};
        calls = plat_system;
        calls.mmap = refusing_mmap;
        plat = &calls;
        CHECK_EQ(tracker_set_pockets(&t, UINT64_C(64) << 30), -ENOMEM);
        CHECK_EQ(asked, UINT64_C(64) << 30);
        CHECK_EQ(tracker_set_pockets(&t, (UINT64_C(64) << 30) + 4096), -ENOMEM);
        CHECK_EQ(asked / 4096, MOST_POCKETS);
        CHECK_EQ(tracker_set_pockets(&t, UINT64_C(1) << 56), -ENOMEM);
        CHECK_EQ(asked / 4096, MOST_POCKETS);
        plat = &plat_system;
        CHECK_EQ(budget.used, 0);
}

/* That the check of the free list sees what it is for. */
static void test_pockets_complete(void)
{
        struct budget budget = {.limit = MIB};
        struct tracker t = {.budget = &budget, .unit_bytes = 4096};
        CHECK_EQ(tracker_set_pockets(&t, 10 * 4096), 0);
        CHECK(pockets_complete(&t.guard));
        int64_t first = pocket_take(&t.guard);
        int64_t second = pocket_take(&t.guard);
        CHECK(!pockets_complete(&t.guard));
        pocket_give(&t.guard, (uint32_t)first);
        CHECK(!pockets_complete(&t.guard));
        pocket_give(&t.guard, (uint32_t)second);
        CHECK(pockets_complete(&t.guard));
        pocket_give(&t.guard, (uint32_t)second); /* twice */
        atomic_store(&t.guard.pockets_used, 0);
        CHECK(!pockets_complete(&t.guard));
        t.kernel = t.trap = (struct plat_track){-1, -1};
        tracker_close(&t);
}

int main(void)
{
        RUN(test_tail);
        RUN(test_copied_slowly);
        RUN(test_counts);
        RUN(test_many_marks);
        RUN(test_wake_ups);
        RUN(test_waited_first);
        RUN(test_failed_with_copies);
        RUN(test_copy_peak);
        RUN(test_most_pockets);
        RUN(test_pockets_complete);
        return 0;
}
