/* Restart without copying: what the program sees is the version, whatever happens to the pool, and
 * damage is found before anything is published.
 *
 * builds: normal asan tsan */
#include "api/api_int.h"
#include "base/base.h"
#include "plat/plat.h"
#include "restore/restore_int.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((UINT64_C(3) << 20) + 100)
#define SMALL 70000u

static const char *const ways[] = {"lazy", "lazy+verify"};
static const char *const policies[] = {"sync", "adaptive"};
static const char *policy;
static struct plat_calls calls;

struct world {
        struct belay *b;
        char path[4096];
        uint8_t *large, *small, *own;
        uint8_t *want_large, *want_small, *want_own;
};

static void register_all(struct world *w)
{
        struct belay_desc d = {.size = sizeof(d),
                               .name = "small",
                               .type = BELAY_U8,
                               .ndims = 1,
                               .dims = {SMALL},
                               .block_bytes = 512};
        w->large = belay_alloc(w->b, "large", BELAY_U8, BYTES);
        w->small = belay_alloc_desc(w->b, &d);
        CHECK(w->large && w->small);
        CHECK_EQ(belay_attach(w->b, "own", BELAY_U8, SMALL, w->own), 0);
}

static void remember(struct world *w)
{
        free(w->want_large);
        free(w->want_small);
        free(w->want_own);
        w->want_large = stress_copy(w->large, BYTES);
        w->want_small = stress_copy(w->small, SMALL);
        w->want_own = stress_copy(w->own, SMALL);
}

static void expect(const struct world *w)
{
        CHECK(memcmp(w->large, w->want_large, BYTES) == 0);
        CHECK(memcmp(w->small, w->want_small, SMALL) == 0);
        CHECK(memcmp(w->own, w->want_own, SMALL) == 0);
}

static void save(struct world *w)
{
        CHECK_EQ(belay_checkpoint(w->b), 0);
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
}

static void open_pool(struct world *w, const char *more)
{
        char options[256];
        snprintf(options, sizeof(options), "media=mapped block=4KiB policy=%s %s", policy, more);
        w->b = stress_open(w->path, options);
        memset(w->own, 0, SMALL);
        register_all(w);
}

/* A pool whose blocks lie scattered: a few change in every version. */
static void make_pool(struct world *w, const char *name)
{
        *w = (struct world){.b = NULL};
        w->own = malloc(SMALL);
        snprintf(w->path, sizeof(w->path), "%s", stress_pool(name));
        open_pool(w, "");
        stress_fill(w->large, BYTES, 1);
        stress_fill(w->small, SMALL, 2);
        stress_fill(w->own, SMALL, 3);
        for (uint64_t i = 0; i < 20; i++) {
                for (uint64_t k = 0; k < 5; k++)
                        w->large[(i * 77777 + k * 600011) % BYTES]++;
                w->small[i * 1000]++;
                remember(w);
                save(w);
        }
        CHECK_EQ(belay_close(&w->b), 0);
}

static void drop(struct world *w)
{
        CHECK_EQ(belay_close(&w->b), 0);
        free(w->own);
        free(w->want_large);
        free(w->want_small);
        free(w->want_own);
}

static void reopen(struct world *w, const char *way)
{
        char options[64];
        snprintf(options, sizeof(options), "restart=%s versions=1 damaged=drop", way);
        open_pool(w, options);
}

static void test_content(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w;
                make_pool(&w, "lazy");
                reopen(&w, ways[k]);
                CHECK_EQ(belay_restart(w.b), 1);
                expect(&w);
                drop(&w);
        }
}

/* The version that was restored leaves the pool, and every slot that is free is used again. What
 * the program has not written shows the old content all the same. */
static void test_slots_stay(void)
{
        /* In full: else later versions share the slots of what is not written. */
        static const char *const in_full[] = {"lazy diff=off", "lazy+verify diff=off", "lazy"};
        for (size_t k = 0; k < ARRAY_LEN(in_full); k++) {
                struct world w;
                make_pool(&w, "lazy_slots");
                reopen(&w, in_full[k]);
                CHECK_EQ(belay_restart(w.b), 1);
                for (uint64_t i = 0; i < 12; i++) {
                        /* The first half is written all over, the second is not even read. */
                        stress_fill(w.large, BYTES / 2, i + 100);
                        stress_fill(w.want_large, BYTES / 2, i + 100);
                        save(&w);
                }
                expect(&w);
                stress_compare(w.path, belay_version(w.b), "large", w.want_large, BYTES);
                drop(&w);
        }
}

static void test_changes(void)
{
        struct world w;
        make_pool(&w, "lazy_changes");
        reopen(&w, "lazy");
        CHECK_EQ(belay_restart(w.b), 1);
        w.large = belay_resize(w.b, "large", 2 * BYTES);
        CHECK(w.large != NULL);
        expect(&w);
        for (uint64_t i = 0; i < BYTES; i++)
                CHECK(w.large[BYTES + i] == 0);
        CHECK_EQ(belay_free(w.b, "small"), 0);
        w.small = belay_alloc(w.b, "small", BELAY_U8, SMALL);
        memcpy(w.small, w.want_small, SMALL);
        for (uint64_t i = 0; i < 3; i++) {
                w.large[i]++;
                w.want_large[i]++;
                save(&w);
        }
        /* Again, over what is mapped. */
        w.large = belay_resize(w.b, "large", BYTES);
        w.small[5]++;
        CHECK_EQ(belay_restart_version(w.b, 0, BELAY_RESIZE), 1);
        w.large = belay_ptr(w.b, "large");
        expect(&w);
        w.large[9]++;
        CHECK_EQ(belay_restart(w.b), 1);
        expect(&w);
        drop(&w);
}

/* Flips a byte of a block, at the first place where the pool has it. */
static void damage(const struct world *w, const uint8_t *want)
{
        int fd = open(w->path, O_RDWR);
        uint8_t block[4096];
        for (off_t at = 0; pread(fd, block, sizeof(block), at) == sizeof(block); at += 4096)
                if (memcmp(block, want, sizeof(block)) == 0) {
                        block[77] ^= 1;
                        CHECK_EQ(pwrite(fd, block, sizeof(block), at), (ssize_t)sizeof(block));
                        CHECK_EQ(close(fd), 0);
                        return;
                }
        CHECK(!"the block is in the pool");
}

/* Only the newest version has the damaged block, which is mapped, not read; and of the program's
 * own memory one, which is read. */
static void make_damaged(struct world *w, const char *more, bool own)
{
        make_pool(w, "lazy_damage");
        open_pool(w, more);
        CHECK_EQ(belay_restart(w->b), 1);
        uint8_t *older = stress_copy(w->large, BYTES);
        uint8_t *older_own = stress_copy(w->own, SMALL);
        stress_fill(w->large + 100 * 4096, 300 * 4096, 77); /* in one piece */
        if (own)
                stress_fill(w->own, SMALL, 78);
        remember(w);
        save(w);
        CHECK_EQ(belay_close(&w->b), 0);
        damage(w, w->want_large + 200 * 4096);
        if (own)
                damage(w, w->want_own + 4096);
        free(w->want_large);
        free(w->want_own);
        w->want_large = older;
        w->want_own = older_own;
}

static uint64_t pool_used(struct world *w)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(w->b, &s), 0);
        return s.pool_used;
}

/* The pool gives back what only `large` had. */
static void free_large(struct world *w)
{
        CHECK_EQ(belay_free(w->b, "large"), 0);
        for (int i = 0; i < 3; i++)
                save(w);
        CHECK(pool_used(w) < BYTES / 2);
}

/* The newest version has laid `large` when it turns out that it cannot be read: what it laid is
 * neither verified any more nor held. */
static void test_rejected(void)
{
        for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                struct world w;
                make_damaged(&w, "", true);
                reopen(&w, ways[k]);
                CHECK_EQ(belay_restart(w.b), 1);
                expect(&w);
                CHECK_EQ(belay_free(w.b, "small"), 0);
                if (belay_checkpoint(w.b))
                        check_failed(__FILE__, __LINE__, "%s", belay_error());
                free_large(&w);
                drop(&w);
        }
}

static void test_free_while_verified(void)
{
        struct world w;
        make_pool(&w, "lazy_free");
        reopen(&w, "lazy+verify");
        CHECK_EQ(belay_restart(w.b), 1);
        free_large(&w);
        drop(&w);
}

/* An older version that is asked for is damaged, and nothing is touched: what is there is still not
 * to be published. */
static void test_refused_stays_refused(void)
{
        struct world w;
        make_damaged(&w, "", false);
        open_pool(&w, "restart=lazy+verify");
        CHECK_EQ(belay_restart(w.b), 1);
        CHECK_EQ(belay_checkpoint(w.b), BELAY_E_DATA);
        struct version *older = pool_version(w.b->levels.pool, 0);
        older->unreadable = true;
        CHECK_EQ(belay_restart_version(w.b, older->number, 0), BELAY_E_DATA);
        older->unreadable = false;
        CHECK_EQ(belay_checkpoint(w.b), BELAY_E_DATA);
        CHECK_EQ(belay_restart(w.b), 1);
        expect(&w);
        save(&w);
        drop(&w);
}

static void test_damage(void)
{
        struct world w;
        make_damaged(&w, "", false);
        open_pool(&w, "restart=lazy+verify");
        CHECK_EQ(belay_restart(w.b), 1);
        w.large[1]++;
        CHECK_EQ(belay_checkpoint(w.b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "restart again");
        CHECK_EQ(belay_begin(w.b), BELAY_E_DATA);
        CHECK_EQ(belay_restart(w.b), 1);
        expect(&w);
        save(&w);
        drop(&w);
}

/* A restart from a version that does not have a region: that still shows the version before, which
 * leaves the list, and other content takes every slot that is free. */
static void test_left_out(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("lazy_left_out"));
        char options[128];
        snprintf(options, sizeof(options),
                 "media=mapped versions=2 diff=off policy=%s restart=lazy", policy);
        struct belay *b = stress_open(path, options);
        uint8_t *a = belay_alloc(b, "a", BELAY_U8, BYTES);
        stress_fill(a, BYTES, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        uint64_t without = belay_version(b);
        uint8_t *x = belay_alloc(b, "x", BELAY_U8, BYTES);
        stress_fill(x, BYTES, 2);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_restart(b), 1);
        uint8_t *want = stress_copy(x, BYTES);
        CHECK_EQ(belay_restart_version(b, without, BELAY_ALLOW_MISSING), 1);
        for (uint64_t i = 0; i < 6; i++) {
                stress_fill(a, BYTES, i + 10);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK(memcmp(x, want, BYTES) == 0);
        }
        free(want);
        CHECK_EQ(belay_close(&b), 0);
}

/* ---- trackers --------------------------------------------------------------------------------
 *
 * Memory that shows a file of a disk file system cannot be trapped with a userfaultfd, only watched
 * with one (Linux 6.18: the kernel refuses to register it for faults). On tmpfs it can; so one half
 * of the tests refuses it in the kernel's place. */

#define WIDE (UINT64_C(8) << 20)

static bool refusing;
static bool traps[1024]; /* by descriptor: a userfaultfd that reports faults */

static int refusing_ioctl(int fd, unsigned long request, void *arg)
{
        if (request == UFFDIO_API && fd < 1024)
                traps[fd] = (((struct uffdio_api *)arg)->features & UINT64_C(1) << 15) == 0;
        if (request == UFFDIO_REGISTER && refusing && fd < 1024 && traps[fd])
                return -EINVAL;
        return plat_system.ioctl(fd, request, arg);
}

static _Atomic unsigned warnings;

static void count_warnings(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        warnings += level <= BELAY_LOG_WARN;
        printf("  %s\n", text);
}

/* What is written all over after the restart, and during each commit, is neither lost nor copied as
 * a whole at the freeze. */
static void written_all_over(const char *tracker, bool refuse)
{
        char path[4096];
        char options[256];
        snprintf(path, sizeof(path), "%s", stress_pool("lazy_wide"));
        snprintf(options, sizeof(options),
                 "media=mapped restart=lazy policy=%s unit=64KiB tracker=%s",
                 strcmp(policy, "sync") == 0 ? "async" : policy, tracker);
        refusing = refuse;
        for (int run = 0; run < 2; run++) {
                struct belay *b = stress_open(path, options);
                uint8_t *x = belay_alloc(b, "x", BELAY_U8, WIDE);
                CHECK_EQ(belay_restart(b), run);
                for (uint64_t i = 0; i < 5; i++) {
                        struct belay_stats s = {.size = sizeof(s)};
                        stress_fill(x, WIDE, i);
                        uint8_t *frozen = stress_copy(x, WIDE);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        for (uint64_t at = 0; at < WIDE; at += 4096)
                                stress_poke(x, at, (uint8_t)~x[at]);
                        stress_exact(b, path, "x", frozen, WIDE);
                        free(frozen);
                        CHECK_EQ(belay_stats(b, &s), 0);
                        CHECK_EQ(s.last_direct, 0);
                }
                /* One page is found, and only that. */
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                stress_poke(x, WIDE / 2, (uint8_t)~x[WIDE / 2]);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", x, WIDE);
                CHECK_EQ(belay_close(&b), 0);
        }
        refusing = false;
}

static void test_written_all_over(void)
{
        static const char *const trackers[] = {"scan", "uffd", "mprotect"};
        calls = plat_system;
        calls.ioctl = refusing_ioctl;
        plat = &calls;
        belay_log_sink(count_warnings, NULL, BELAY_LOG_INFO);
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++)
                for (int refuse = 0; refuse < 2; refuse++)
                        written_all_over(trackers[t], refuse);
        CHECK_EQ(warnings, 0);
        belay_log_sink(NULL, NULL, BELAY_LOG_ERROR);
        plat = &plat_system;
}

/* Nothing intact is left: the program is told, and may then begin anew. */
static void test_nothing_left(void)
{
        struct world w;
        make_damaged(&w, "versions=1", false);
        open_pool(&w, "restart=lazy+verify versions=1");
        CHECK_EQ(belay_restart(w.b), 1);
        CHECK_EQ(belay_checkpoint(w.b), BELAY_E_DATA);
        CHECK_EQ(belay_checkpoint(w.b), BELAY_E_DATA);
        CHECK_EQ(belay_restart(w.b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "no version is intact");
        stress_fill(w.large, BYTES, 91);
        stress_fill(w.small, SMALL, 92);
        stress_fill(w.own, SMALL, 93);
        remember(&w);
        save(&w);
        stress_compare(w.path, belay_version(w.b), "large", w.want_large, BYTES);
        stress_compare(w.path, belay_version(w.b), "own", w.want_own, SMALL);
        drop(&w);
}

/* ---- the thread that verifies ------------------------------------------------------------------
 */

static _Atomic bool reading, grown, overlapped;

/* Reads until the holds have moved, or for a while. */
static int64_t slow_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        atomic_store(&reading, true);
        for (int ms = 0; ms < 200 && !atomic_load(&grown); ms++)
                plat_system.sleep_ns(1000000);
        int64_t n = plat_system.pread(fd, buf, bytes, offset);
        atomic_store(&reading, false);
        return n;
}

static void *watching_alloc(size_t bytes)
{
        if (atomic_load(&reading))
                atomic_store(&overlapped, true);
        atomic_store(&grown, true);
        return plat_system.alloc(bytes);
}

/* Room for more regions is made beside the thread that walks them. */
static void test_room_while_verified(void)
{
        struct world w;
        make_pool(&w, "lazy_room");
        open_pool(&w, "");
        struct pool *p = w.b->levels.pool;
        struct lazy l = {.budget = &w.b->budget};
        const struct version *v = pool_version(p, pool_version_count(p) - 1);
        uint8_t *to = mmap(NULL, BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
        int64_t at = version_find(v, "large");
        struct reader *r;
        struct reader_needs needs = {.largest = v->regions[at]->desc.bytes};
        CHECK_EQ(reader_new(p, &needs, &r), 0);
        CHECK_EQ(lazy_place(&l, p, r, v, (uint32_t)at, to), 0);
        reader_delete(&r);
        calls = plat_system;
        calls.pread = slow_pread;
        calls.alloc = watching_alloc;
        atomic_store(&grown, false);
        plat = &calls;
        lazy_verify(&l);
        for (int ms = 0; ms < 20000 && !atomic_load(&reading); ms++)
                usleep(1000);
        CHECK(atomic_load(&reading));
        CHECK_EQ(lazy_room(&l, 1000), 0);
        CHECK(!atomic_load(&overlapped));
        CHECK_EQ(lazy_await(&l, p), 0);
        plat = &plat_system;
        /* All of it was verified, before and after. */
        CHECK_EQ(l.at, 1);
        lazy_end(&l);
        munmap(to, BYTES + 4096);
        drop(&w);
}

int main(void)
{
        for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
                policy = policies[i];
                RUN(test_content);
                RUN(test_slots_stay);
                RUN(test_changes);
                RUN(test_damage);
                RUN(test_rejected);
                RUN(test_free_while_verified);
                RUN(test_refused_stays_refused);
                RUN(test_room_while_verified);
                RUN(test_left_out);
                RUN(test_written_all_over);
                RUN(test_nothing_left);
        }
        return 0;
}
