/* Regions come, leave, move and change their size while a version is being flushed: no call waits
 * for it, the memory belongs to the program at once, and the version is that of the freeze.
 *
 * timeout: 120 */
#include "base/base.h"
#include "plat/plat.h"
#include "store/store.h"
#include "stress.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define MIB     (1u << 20)
#define BALLAST (12 * MIB) /* more than the writer takes in before it waits for the medium */
#define BYTES   (1 * MIB + 5000)
#define UNIT    (64u << 10)
#define BLOCK   (16u << 10)

static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};
static const char *const policies[] = {"async", "adaptive"};
static char path[4096];

static struct belay *open_slow(const char *tracker, const char *policy, const char *more)
{
        char options[256];
        snprintf(path, sizeof(path), "%s", stress_pool("registration"));
        snprintf(options, sizeof(options),
                 "tracker=%s policy=%s unit=64KiB copy_buffer=256KiB rate=20MiB %s", tracker,
                 policy, more);
        return stress_open(path, options);
}

static uint8_t *map(uint64_t bytes, uint64_t seed)
{
        uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        stress_fill(p, bytes, seed);
        return p;
}

/* Has the version the region at all? */
static bool stored(uint64_t version, const char *name)
{
        struct budget budget = {.limit = 256 << 20};
        struct pool_options o = {
                .path = path, .readonly = true, .io = IO_PWRITE, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_find_version(p, version);
        CHECK(v != NULL);
        bool is = version_find(v, name) >= 0;
        CHECK_EQ(pool_close(&p), 0);
        return is;
}

static void still_flushing(struct belay *b, const char *call)
{
        if (stress_state(b) != BELAY_FLUSHING)
                check_failed(__FILE__, __LINE__, "%s waited for the commit", call);
}

/* ---- each call ---------------------------------------------------------------------------------
 */

static void each_call(const char *tracker, const char *policy)
{
        struct belay *b = open_slow(tracker, policy, "");
        uint8_t *ballast = belay_alloc(b, "ballast", BELAY_U8, BALLAST);
        stress_fill(ballast, BALLAST, 1);
        uint8_t *freed = belay_alloc(b, "freed", BELAY_U8, BYTES);
        uint8_t *grows = belay_alloc(b, "grows", BELAY_U8, BYTES);
        uint8_t *shrinks = belay_alloc(b, "shrinks", BELAY_U8, BYTES);
        uint8_t *gone = map(BYTES, 2);
        uint8_t *here = map(BYTES, 3);
        uint8_t *there = map(BYTES, 4);
        stress_fill(freed, BYTES, 5);
        stress_fill(grows, BYTES, 6);
        stress_fill(shrinks, BYTES, 7);
        CHECK_EQ(belay_attach(b, "gone", BELAY_U8, BYTES - 100, gone + 100), 0);
        CHECK_EQ(belay_attach(b, "moves", BELAY_U8, BYTES, here), 0);
        uint8_t *f_freed = stress_copy(freed, BYTES);
        uint8_t *f_grows = stress_copy(grows, BYTES);
        uint8_t *f_shrinks = stress_copy(shrinks, BYTES);
        uint8_t *f_gone = stress_copy(gone + 100, BYTES - 100);
        uint8_t *f_moves = stress_copy(here, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        uint64_t version = belay_version(b);

        CHECK_EQ(belay_free(b, "freed"), 0);
        still_flushing(b, "belay_free");
        CHECK_EQ(belay_detach(b, "gone"), 0);
        CHECK_EQ(munmap(gone, BYTES), 0);
        still_flushing(b, "belay_detach");
        CHECK_EQ(belay_move(b, "moves", BYTES, there), 0);
        memset(here, 0xdd, BYTES);
        CHECK_EQ(munmap(here, BYTES), 0);
        still_flushing(b, "belay_move");
        grows = belay_resize(b, "grows", 3 * BYTES);
        CHECK(grows != NULL);
        CHECK_MEM(grows, f_grows, BYTES);
        memset(grows, 0xee, 3 * BYTES);
        still_flushing(b, "belay_resize");
        shrinks = belay_resize(b, "shrinks", 5000);
        CHECK(shrinks != NULL);
        memset(shrinks, 0xef, 5000);
        /* The same name again, with other memory, and one that comes and goes. */
        uint8_t *again = map(2 * BYTES, 8);
        CHECK_EQ(belay_attach(b, "gone", BELAY_U8, 2 * BYTES, again), 0);
        uint8_t *fresh = belay_alloc(b, "freed", BELAY_U8, BYTES / 2);
        CHECK(fresh != NULL);
        stress_fill(fresh, BYTES / 2, 9);
        CHECK(belay_alloc(b, "brief", BELAY_U8, BYTES) != NULL);
        CHECK_EQ(belay_free(b, "brief"), 0);
        CHECK_EQ(belay_detach(b, "moves"), 0); /* it is not in the commit any more */
        memset(there, 0xdc, BYTES);
        still_flushing(b, "a new region");

        stress_exact(b, path, "freed", f_freed, BYTES);
        stress_compare(path, version, "gone", f_gone, BYTES - 100);
        stress_compare(path, version, "moves", f_moves, BYTES);
        stress_compare(path, version, "grows", f_grows, BYTES);
        stress_compare(path, version, "shrinks", f_shrinks, BYTES);
        stress_compare(path, version, "ballast", ballast, BALLAST);
        CHECK(!stored(version, "brief"));
        /* The next one has what is there now. */
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "gone", again, 2 * BYTES);
        version = belay_version(b);
        stress_compare(path, version, "freed", fresh, BYTES / 2);
        stress_compare(path, version, "grows", grows, 3 * BYTES);
        stress_compare(path, version, "shrinks", shrinks, 5000);
        CHECK(!stored(version, "moves") && !stored(version, "brief"));
        CHECK_EQ(belay_close(&b), 0);
        munmap(again, 2 * BYTES);
        munmap(there, BYTES);
        free(f_freed);
        free(f_grows);
        free(f_shrinks);
        free(f_gone);
        free(f_moves);
}

static void test_each_call(void)
{
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++)
                for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
                        printf("  %s %s\n", trackers[t], policies[p]);
                        each_call(trackers[t], policies[p]);
                }
}

/* ---- patches -----------------------------------------------------------------------------------
 */

#define PATCHED (16 * MIB)

/* Page number `page` of every so many bytes. */
static void write_pages(uint8_t *m, uint64_t bytes, unsigned page, uint64_t every, int seed)
{
        for (uint64_t at = page * 4096u; at < bytes; at += every)
                memset(m + at + 100, seed, 200);
}

/* Pages that were written are copied at the freeze, the rest of their blocks is not. When the
 * region leaves, the program has written to that rest, too. */
static void patches(const char *policy, bool detach)
{
        struct belay_stats s = {.size = sizeof(s)};
        struct belay *b = open_slow("scan", policy, "copy_buffer=16MiB rate=20MiB");
        uint8_t *m = map(PATCHED, 1);
        CHECK_EQ(belay_attach(b, "data", BELAY_U8, PATCHED, m), 0);
        /* Until the pages are known one by one. */
        for (int i = 0; s.last_patches < PATCHED / UNIT - 8; i++) {
                CHECK(i < 8);
                write_pages(m, PATCHED, 0, UNIT, i + 2);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
        }
        write_pages(m, PATCHED, 0, BLOCK, 77);
        uint8_t *frozen = stress_copy(m, PATCHED);
        CHECK_EQ(belay_checkpoint(b), 0);
        uint64_t version = belay_version(b);
        write_pages(m + PATCHED / 2, PATCHED / 2, 1, BLOCK, 78);
        uint8_t *there = map(PATCHED, 2);
        CHECK_EQ(detach ? belay_detach(b, "data") : belay_move(b, "data", PATCHED, there), 0);
        memset(m, 0xcc, PATCHED);
        CHECK_EQ(munmap(m, PATCHED), 0);
        still_flushing(b, detach ? "belay_detach" : "belay_move");
        stress_exact(b, path, "data", frozen, PATCHED);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(s.version, version);
        CHECK(s.last_patches >= PATCHED / BLOCK - 8);
        CHECK_EQ(belay_close(&b), 0);
        munmap(there, PATCHED);
        free(frozen);
}

static void test_patches(void)
{
        patches("async", true);
        patches("adaptive", false);
}

/* ---- copied ahead -------------------------------------------------------------------------------
 */

/* Units that the program is expected to write soon are copied at the freeze. Their memory is gone
 * before the copies are staged. */
static void test_copied_ahead(void)
{
        struct belay_stats s = {.size = sizeof(s)};
        struct belay *b = open_slow("mprotect", "adaptive", "copy_buffer=4MiB rate=50MiB");
        uint8_t *m = map(BALLAST, 1);
        CHECK_EQ(belay_attach(b, "data", BELAY_U8, BALLAST, m), 0);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(belay_checkpoint(b), 0);
                for (uint64_t at = 0; at < BALLAST; at += 4096)
                        stress_poke(m, at, (uint8_t)i);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
        uint8_t *frozen = stress_copy(m, BALLAST);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_detach(b, "data"), 0);
        CHECK_EQ(munmap(m, BALLAST), 0);
        stress_exact(b, path, "data", frozen, BALLAST);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.last_ahead > 0);
        CHECK_EQ(belay_close(&b), 0);
        free(frozen);
}

/* ---- what is left -------------------------------------------------------------------------------
 */

static bool mapped(void *p)
{
        unsigned char in_core;
        return mincore(p, 4096, &in_core) == 0;
}

static uint64_t memory_of(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        return s.memory_bytes;
}

/* Memory that is freed during a commit is there until it has ended, and no longer; without a commit
 * it goes at once. Copies go with the commit. */
static void test_nothing_left(void)
{
        struct belay *b = open_slow("mprotect", "async", "rate=40MiB");
        uint8_t *ballast = belay_alloc(b, "ballast", BELAY_U8, BALLAST);
        uint64_t before = 0;
        uint8_t *m = map(4 * MIB, 1);
        for (int i = 0; i < 4; i++) {
                stress_fill(ballast, BALLAST, (uint64_t)i);
                uint8_t *freed = belay_alloc(b, "freed", BELAY_U8, 4 * MIB);
                uint8_t *later = belay_alloc(b, "later", BELAY_U8, 4 * MIB);
                CHECK_EQ(belay_attach(b, "gone", BELAY_U8, 4 * MIB, m), 0);
                stress_fill(freed, 4 * MIB, 2);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_free(b, "freed"), 0);
                CHECK_EQ(belay_detach(b, "gone"), 0);
                CHECK(stress_state(b) != BELAY_FLUSHING || mapped(freed));
                uint64_t now = memory_of(b);
                CHECK(!mapped(freed));
                /* From the third on the pool's own tables are as large as they get. */
                CHECK(i < 3 || now <= before);
                before = now;
                CHECK_EQ(belay_free(b, "later"), 0);
                CHECK(!mapped(later));
        }
        CHECK_EQ(belay_close(&b), 0);
        munmap(m, 4 * MIB);
}

/* ---- no room for copies -------------------------------------------------------------------------
 */

/* Without memory for a copy the call waits for the commit: late, but right. */
static void test_no_room(void)
{
        struct belay *b = open_slow("mprotect", "async", "memory=16MiB rate=40MiB");
        uint8_t *ballast = belay_alloc(b, "ballast", BELAY_U8, BALLAST);
        stress_fill(ballast, BALLAST, 1);
        uint8_t *m = map(BALLAST, 2);
        CHECK_EQ(belay_attach(b, "data", BELAY_U8, BALLAST, m), 0);
        uint8_t *frozen = stress_copy(m, BALLAST);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_detach(b, "data"), 0);
        CHECK_EQ(munmap(m, BALLAST), 0);
        stress_exact(b, path, "data", frozen, BALLAST);
        CHECK_EQ(belay_close(&b), 0);
        free(frozen);
}

/* ---- in pieces ---------------------------------------------------------------------------------
 */

/* A region that was added, freed and made again is in the version as it was when it was added. */
static void test_pieces(void)
{
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++) {
                struct belay *b = open_slow(trackers[t], "adaptive", "rate=40MiB");
                uint8_t *ballast = belay_alloc(b, "ballast", BELAY_U8, BALLAST);
                uint8_t *late = belay_alloc(b, "late", BELAY_U8, BYTES);
                stress_fill(ballast, BALLAST, 1);
                stress_fill(late, BYTES, 2);
                CHECK_EQ(belay_begin(b), 0);
                CHECK_EQ(belay_add(b, "ballast"), 0);
                CHECK_EQ(belay_free(b, "ballast"), 0);
                /* It was freed in the middle of its capture; and then a part later. */
                uint8_t *m = map(4 * MIB, 3);
                uint8_t *frozen = stress_copy(m, 4 * MIB);
                CHECK_EQ(belay_attach(b, "m", BELAY_U8, 4 * MIB, m), 0);
                CHECK_EQ(belay_add(b, "m"), 0);
                CHECK_EQ(belay_add(b, "late"), 0);
                CHECK_EQ(belay_detach(b, "m"), 0);
                munmap(m, 4 * MIB);
                CHECK(belay_alloc(b, "m", BELAY_U8, BYTES) != NULL);
                late = belay_resize(b, "late", 3 * BYTES);
                CHECK(late != NULL);
                memset(late, 0x11, 3 * BYTES);
                uint8_t *again = belay_alloc(b, "ballast", BELAY_U8, 5000);
                CHECK(again != NULL);
                CHECK_EQ(belay_end(b), 0);
                stress_exact(b, path, "m", frozen, 4 * MIB);
                uint64_t version = belay_version(b);
                uint8_t *expected = malloc(BALLAST);
                stress_fill(expected, BALLAST, 1);
                stress_compare(path, version, "ballast", expected, BALLAST);
                stress_fill(expected, BYTES, 2);
                stress_compare(path, version, "late", expected, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "late", late, 3 * BYTES);
                stress_compare(path, belay_version(b), "ballast", again, 5000);
                CHECK_EQ(belay_close(&b), 0);
                free(expected);
                free(frozen);
        }
}

/* ---- signals -----------------------------------------------------------------------------------
 */

static uint8_t *_Atomic target;
static _Atomic uint32_t hits;

/* Writes to protected pages: to every unit of a region, be it the one that is leaving. */
STRESS_PROGRAM static void on_signal(int number)
{
        (void)number;
        uint8_t *p = atomic_load(&target);
        uint32_t n = atomic_fetch_add(&hits, 1);
        for (uint64_t at = n * 41u % UNIT; p && at < 8 * MIB; at += MIB)
                stress_poke(p, at, (uint8_t)n);
}

/* In the middle of the copy of a unit. */
static void signal_here(const char *point)
{
        if (strcmp(point, "retire.unit") == 0)
                CHECK_EQ(raise(SIGALRM), 0);
}

/* A handler that writes to a unit which its own thread is just copying would wait for ever. */
static void test_signals(void)
{
#ifdef __SANITIZE_THREAD__
        return; /* it blocks SIGSEGV and SIGBUS in handlers that it has put off */
#endif
        struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        CHECK_EQ(sigaction(SIGALRM, &act, NULL), 0);
        plat_point_hook = signal_here;
        for (size_t t = 0; t < 3; t++) {
                struct belay *b = open_slow(trackers[t], "adaptive", "unit=1MiB rate=60MiB");
                uint8_t *stays = belay_alloc(b, "stays", BELAY_U8, 8 * MIB);
                uint8_t *m = map(8 * MIB, 1);
                for (uint64_t i = 0; i < 2; i++) {
                        stress_fill(m, 8 * MIB, i);
                        stress_fill(stays, 8 * MIB, i + 10);
                        CHECK_EQ(belay_attach(b, "leaves", BELAY_U8, 8 * MIB, m), 0);
                        uint8_t *frozen = stress_copy(m, 8 * MIB);
                        uint8_t *kept = stress_copy(stays, 8 * MIB);
                        uint32_t before = atomic_load(&hits);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        atomic_store(&target, i % 2 ? stays : m);
                        CHECK_EQ(belay_detach(b, "leaves"), 0);
                        atomic_store(&target, NULL);
                        CHECK(atomic_load(&hits) > before);
                        stress_exact(b, path, "leaves", frozen, 8 * MIB);
                        stress_compare(path, belay_version(b), "stays", kept, 8 * MIB);
                        free(frozen);
                        free(kept);
                }
                CHECK_EQ(belay_close(&b), 0);
                munmap(m, 8 * MIB);
        }
        plat_point_hook = NULL;
}

/* ---- a storm against a model --------------------------------------------------------------------
 */

#define NAMES 12

struct thing {
        bool there, owned;
        uint8_t *memory;
        uint64_t bytes;
        bool frozen;   /* in the last version … */
        uint8_t *copy; /* … with this content   */
        uint64_t copy_bytes;
};

struct world {
        struct belay *b;
        struct thing things[NAMES];
        uint64_t seed;
        bool open; /* a checkpoint in pieces was begun */
        char options[128];
};

static uint64_t next_random(struct world *w, uint64_t below)
{
        w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
        return (w->seed >> 33) % below;
}

static const char *name_of(int i)
{
        static char name[16];
        snprintf(name, sizeof(name), "thing %d", i);
        return name;
}

/* Small ones, and those of many units: together more than is staged at the freeze, and more than
 * the writer takes in without waiting. All with odd sizes. */
static uint64_t any_size(struct world *w)
{
        return next_random(w, 3) == 0 ? 1 + next_random(w, 40 * 4096)
                                      : 1 + next_random(w, 48 * UNIT);
}

static void freeze_thing(struct thing *t)
{
        free(t->copy);
        t->frozen = true;
        t->copy = stress_copy(t->memory, t->bytes);
        t->copy_bytes = t->bytes;
}

static void freeze_all(struct world *w, bool pieces)
{
        for (int i = 0; i < NAMES; i++) {
                struct thing *t = &w->things[i];
                if (pieces && t->frozen)
                        continue;
                t->frozen = false;
                if (t->there)
                        freeze_thing(t);
        }
}

static void compare_all(struct world *w)
{
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        for (int i = 0; i < NAMES; i++) {
                const struct thing *t = &w->things[i];
                CHECK_EQ(stored(belay_version(w->b), name_of(i)), t->frozen);
                if (t->frozen)
                        stress_compare(path, belay_version(w->b), name_of(i), t->copy,
                                       t->copy_bytes);
        }
}

static void add_thing(struct world *w, int i)
{
        struct thing *t = &w->things[i];
        t->bytes = any_size(w);
        t->owned = next_random(w, 2);
        if (t->owned) {
                t->memory = belay_alloc(w->b, name_of(i), BELAY_U8, t->bytes);
                CHECK(t->memory != NULL);
                stress_fill(t->memory, t->bytes, w->seed);
        } else {
                t->memory = map(t->bytes, w->seed);
                CHECK_EQ(belay_attach(w->b, name_of(i), BELAY_U8, t->bytes, t->memory), 0);
        }
        t->there = true;
}

static void drop_thing(struct world *w, int i)
{
        struct thing *t = &w->things[i];
        if (t->owned) {
                CHECK_EQ(belay_free(w->b, name_of(i)), 0);
        } else {
                CHECK_EQ(belay_detach(w->b, name_of(i)), 0);
                memset(t->memory, 0xbb, t->bytes);
                munmap(t->memory, t->bytes);
        }
        t->there = false;
}

static void reshape_thing(struct world *w, int i)
{
        struct thing *t = &w->things[i];
        uint64_t bytes = any_size(w);
        uint64_t kept = bytes < t->bytes ? bytes : t->bytes;
        uint8_t *before = stress_copy(t->memory, kept);
        if (t->owned) {
                t->memory = belay_resize(w->b, name_of(i), bytes);
                CHECK(t->memory != NULL);
                CHECK_MEM(t->memory, before, kept);
        } else {
                uint8_t *fresh = map(bytes, w->seed);
                CHECK_EQ(belay_move(w->b, name_of(i), bytes, fresh), 0);
                munmap(t->memory, t->bytes);
                t->memory = fresh;
        }
        t->bytes = bytes;
        free(before);
}

/* A few bytes in a few places, or all of it. */
STRESS_PROGRAM static void write_thing(struct world *w, int i)
{
        struct thing *t = &w->things[i];
        if (next_random(w, 3) == 0)
                stress_fill(t->memory, t->bytes, w->seed);
        for (uint64_t n = next_random(w, 8); n > 0; n--)
                stress_poke(t->memory, next_random(w, t->bytes), (uint8_t)w->seed);
}

static void checkpoint(struct world *w)
{
        if (w->open) {
                freeze_all(w, true);
                CHECK_EQ(belay_end(w->b), 0);
                w->open = false;
        } else if (next_random(w, 3) == 0) {
                for (int i = 0; i < NAMES; i++)
                        w->things[i].frozen = false;
                CHECK_EQ(belay_begin(w->b), 0);
                w->open = true;
                return;
        } else {
                freeze_all(w, false);
                CHECK_EQ(belay_checkpoint(w->b), 0);
        }
}

/* The process is another one: nothing but the pool is left. */
static void restart(struct world *w)
{
        if (w->open)
                checkpoint(w);
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_close(&w->b), 0);
        w->b = stress_open(path, w->options);
        bool any = false;
        for (int i = 0; i < NAMES; i++) {
                struct thing *t = &w->things[i];
                if (t->there && !t->owned)
                        munmap(t->memory, t->bytes);
                t->there = t->frozen;
                t->bytes = t->copy_bytes;
                t->owned = true;
                any |= t->there;
                if (t->there)
                        t->memory = belay_alloc(w->b, name_of(i), BELAY_U8, t->bytes);
        }
        if (!any)
                return;
        CHECK_EQ(belay_restart(w->b), 1);
        for (int i = 0; i < NAMES; i++)
                if (w->things[i].there)
                        CHECK_MEM(w->things[i].memory, w->things[i].copy, w->things[i].bytes);
}

static void step(struct world *w)
{
        int i = (int)next_random(w, NAMES);
        struct thing *t = &w->things[i];
        uint64_t what = next_random(w, 100);
        if (what < 12)
                checkpoint(w);
        else if (what < 16 && !w->open)
                compare_all(w);
        else if (what < 17)
                restart(w);
        else if (!t->there)
                add_thing(w, i);
        else if (what < 35)
                drop_thing(w, i);
        else if (what < 50)
                reshape_thing(w, i);
        else if (what < 60 && w->open && !t->frozen) {
                freeze_thing(t);
                CHECK_EQ(belay_add(w->b, name_of(i)), 0);
        } else
                write_thing(w, i);
}

static void storm(const char *options, uint64_t seed, int steps)
{
        struct world w = {.seed = seed};
        snprintf(path, sizeof(path), "%s", stress_pool("storm"));
        snprintf(w.options, sizeof(w.options), "unit=16KiB copy_buffer=128KiB %s", options);
        printf("  %s\n", options);
        fflush(stdout);
        w.b = stress_open(path, w.options);
        belay_alloc(w.b, "always", BELAY_U8, 1);
        CHECK_EQ(belay_free(w.b, "always"), 0);
        add_thing(&w, 0);
        freeze_all(&w, false);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        for (int i = 0; i < steps; i++)
                step(&w);
        if (w.open)
                checkpoint(&w);
        compare_all(&w);
        CHECK_EQ(belay_close(&w.b), 0);
        for (int i = 0; i < NAMES; i++) {
                if (w.things[i].there && !w.things[i].owned)
                        munmap(w.things[i].memory, w.things[i].bytes);
                free(w.things[i].copy);
        }
}

static void test_storm(void)
{
        static const char *const ways[] = {
                "tracker=scan policy=adaptive rate=100MiB",
                "tracker=scan policy=async rate=100MiB",
                "tracker=uffd policy=adaptive rate=100MiB",
                "tracker=uffd policy=async rate=100MiB",
                "tracker=mprotect policy=adaptive rate=100MiB",
                "tracker=mprotect policy=async rate=100MiB",
                "tracker=hash policy=async rate=100MiB",
                "tracker=scan policy=sync",
                "tracker=scan policy=adaptive precopy=immediate rate=100MiB",
                "tracker=mprotect policy=adaptive media=mapped restart=lazy+verify rate=100MiB",
        };
        int steps = getenv("TEST_SANITIZED") ? 100 : 200;
        for (size_t k = 0; k < ARRAY_LEN(ways); k++)
                storm(ways[k], 1000 + k, steps);
}

/* ---- many --------------------------------------------------------------------------------------
 */

#define MANY 20000u

static _Atomic uint64_t allocated;

static void *count_alloc(size_t bytes)
{
        atomic_fetch_add(&allocated, bytes);
        return plat_system.alloc(bytes);
}

/* Twenty thousand regions that are trapped come and go. What was copied whole for each of them,
 * tables and lists, was allocated anew: the sum of it tells. */
static void test_many(void)
{
        struct plat_calls calls = plat_system;
        calls.alloc = count_alloc;
        plat = &calls;
        snprintf(path, sizeof(path), "%s", stress_pool("many"));
        struct belay *b = stress_open(path, "tracker=mprotect unit=4KiB block=4KiB policy=async");
        uint8_t *m = map(MANY * 4096u, 1);
        char name[32];
        uint64_t before = atomic_load(&allocated);
        for (uint32_t i = 0; i < MANY; i++) {
                snprintf(name, sizeof(name), "%u", i * 7919 % MANY);
                CHECK_EQ(belay_attach(b, name, BELAY_U8, 4096, m + i * 7919u % MANY * 4096u), 0);
        }
        for (uint32_t i = 0; i < MANY; i++) {
                snprintf(name, sizeof(name), "%u", i * 104729u % MANY);
                CHECK_EQ(belay_detach(b, name), 0);
        }
        uint64_t each = (atomic_load(&allocated) - before) / (2 * MANY);
        printf("  %llu bytes allocated for each call\n", (unsigned long long)each);
        CHECK(each < 8192);
        CHECK_EQ(belay_close(&b), 0);
        munmap(m, MANY * 4096u);
        plat = &plat_system;
}

int main(void)
{
        RUN(test_many);
        RUN(test_each_call);
        RUN(test_patches);
        RUN(test_copied_ahead);
        RUN(test_nothing_left);
        RUN(test_no_room);
        RUN(test_pieces);
        RUN(test_signals);
        RUN(test_storm);
        return 0;
}
