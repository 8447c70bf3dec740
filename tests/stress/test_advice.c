/* madvise() and mprotect() on regions, while a commit runs and between commits: they do what they
 * should, each version holds the bytes of its freeze, and the next one knows what changed.
 *
 * timeout: 120 */
#include "stress.h"
#include <errno.h>
#include <sys/mman.h>

#define BYTES (6u << 20)
#define SLOW  "policy=adaptive unit=64KiB rate=48MiB "

static const char *const trackers[] = {"tracker=scan", "tracker=uffd", "tracker=mprotect",
                                       "tracker=hash"};
static const char *const buffers[] = {"copy_buffer=0", "copy_buffer=256KiB"};

static struct belay *open_slow(const char *path, int tracker, int buffer)
{
        char options[256];
        snprintf(options, sizeof(options), SLOW "%s %s", trackers[tracker], buffers[buffer]);
        return stress_open(path, options);
}

static bool traps; /* the tracker protects memory */

/* Changes memory in a way that no fault tells of. */
typedef void change_fn(uint8_t *p, uint64_t bytes);

static void drop(uint8_t *p, uint64_t bytes)
{
        CHECK_EQ(madvise(p, bytes, MADV_DONTNEED), 0);
        CHECK_EQ(p[0] | p[bytes - 1], 0);
}

/* That the pages are gone at once is what the library makes of it; without it they stay until the
 * kernel needs them. */
static void drop_lazily(uint8_t *p, uint64_t bytes)
{
        CHECK_EQ(madvise(p, bytes, MADV_FREE), 0);
        if (traps)
                CHECK_EQ(p[0] | p[bytes - 1], 0);
}

static void unprotect_and_write(uint8_t *p, uint64_t bytes)
{
        CHECK_EQ(mprotect(p, bytes, PROT_READ | PROT_WRITE), 0);
        for (uint64_t at = bytes; at > 0; at -= 4096)
                stress_poke(p, at - 1, (uint8_t)~p[at - 1]);
}

static void unprotect_with_key(uint8_t *p, uint64_t bytes)
{
        CHECK_EQ(pkey_mprotect(p, bytes, PROT_READ | PROT_WRITE, -1), 0);
        stress_fill(p, bytes, 5);
}

static void commit_through(struct belay *b, const char *path, uint8_t *m, uint8_t *p,
                           uint64_t bytes, change_fn *change)
{
        stress_fill(m, BYTES, 1);
        uint8_t *frozen = stress_copy(m, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        change(p, bytes);
        if (traps && bytes < BYTES)
                CHECK_EQ(stress_state(b), BELAY_FLUSHING);
        stress_exact(b, path, "x", frozen, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", m, BYTES);
        free(frozen);
}

/* Twice without a change: now nothing is known to be written. */
static void change_between(struct belay *b, const char *path, uint8_t *m, uint8_t *p,
                           uint64_t bytes, change_fn *change)
{
        stress_fill(m, BYTES, 2);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
        change(p, bytes);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", m, BYTES);
}

static void for_all(change_fn *change)
{
        for (int t = 0; t < 4; t++)
                for (int k = 0; k < 2; k++) {
                        const char *path = stress_pool("pool");
                        struct belay *b = open_slow(path, t, k);
                        traps = t < 3;
                        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                        CHECK(m != NULL);
                        /* All of it, and pages that begin and end within units. */
                        commit_through(b, path, m, m, BYTES, change);
                        commit_through(b, path, m, m + BYTES - 300 * 4096, 260 * 4096, change);
                        change_between(b, path, m, m + BYTES - 300 * 4096, 260 * 4096, change);
                        stress_close(&b);
                }
}

static void test_drop(void)
{
        for_all(drop);
}

static void test_drop_lazily(void)
{
        for_all(drop_lazily);
}

static void test_unprotect(void)
{
        for_all(unprotect_and_write);
        for_all(unprotect_with_key);
}

/* MADV_REMOVE makes a hole in what is mapped. */
static void test_remove(void)
{
        for (int t = 0; t < 3; t++) {
                const char *path = stress_pool("pool");
                struct belay *b = open_slow(path, t, 1);
                uint8_t *m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                  -1, 0);
                CHECK(m != MAP_FAILED);
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
                stress_fill(m, BYTES, 1);
                uint8_t *frozen = stress_copy(m, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(madvise(m + BYTES / 2, BYTES / 4, MADV_REMOVE), 0);
                CHECK_EQ(m[BYTES / 2], 0);
                stress_exact(b, path, "x", frozen, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
                stress_close(&b);
                munmap(m, BYTES);
                free(frozen);
        }
}

/* Advice that changes nothing, memory that is no region, and errors. */
static void test_passed_on(void)
{
        const char *path = stress_pool("pool");
        struct belay *b = open_slow(path, 2, 1);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
        stress_fill(m, BYTES, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(madvise(m, BYTES, MADV_WILLNEED), 0);
        uint8_t *other =
                mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(other != MAP_FAILED);
        other[0] = 1;
        CHECK_EQ(madvise(other, 8192, MADV_DONTNEED), 0);
        CHECK_EQ(other[0], 0);
        CHECK(madvise(other + 1, 4096, MADV_DONTNEED) < 0 && errno == EINVAL);
        CHECK(madvise(other, 4096, -1) < 0 && errno == EINVAL);
        CHECK_EQ(mprotect(other, 4096, PROT_NONE), 0);
        CHECK(mprotect(other + 1, 4096, PROT_READ) < 0 && errno == EINVAL);
        munmap(other, 8192);
        stress_exact(b, path, "x", m, BYTES);
        stress_close(&b);
}

int main(void)
{
        RUN(test_drop);
        RUN(test_drop_lazily);
        RUN(test_unprotect);
        RUN(test_remove);
        RUN(test_passed_on);
        return 0;
}
