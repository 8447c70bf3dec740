/* A region that cannot be protected, as when a process has too many mappings, is staged at the
 * freeze.
 *
 * builds: normal asan tsan */
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

static struct plat_calls table;
static bool refuse;

static int mprotect_or_not(void *p, uint64_t bytes, bool writable)
{
        return refuse && !writable ? -ENOMEM : plat_system.mprotect(p, bytes, writable);
}

static uintptr_t first_piece;

static int ioctl_or_not(int fd, unsigned long request, void *arg)
{
        const struct uffdio_writeprotect *w = arg;
        if (refuse && request == UFFDIO_WRITEPROTECT && w->range.start != first_piece)
                return -ENOMEM;
        return plat_system.ioctl(fd, request, arg);
}

/* Large enough that two threads protect it, in pieces of 16 MiB: the first piece can be protected,
 * others cannot. */
static void test_shared(void)
{
        const uint64_t bytes = UINT64_C(80) << 20;
        const char *path = stress_pool("shared");
        struct belay *b = stress_open(path, "tracker=uffd policy=adaptive rate=200MiB");
        struct belay_stats s = {.size = sizeof(s)};
        uint8_t *x = belay_alloc(b, "x", BELAY_U8, bytes);
        first_piece = (uintptr_t)x;
        for (int round = 0; round < 2; round++) {
                stress_fill(x, bytes, (uint64_t)round);
                uint8_t *frozen = stress_copy(x, bytes);
                refuse = round == 1;
                CHECK_EQ(belay_checkpoint(b), 0);
                refuse = false;
                memset(x, 0xee, bytes);
                stress_exact(b, path, "x", frozen, bytes);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK((s.last_direct > 0) == (round == 1));
                free(frozen);
        }
        CHECK_EQ(belay_close(&b), 0);
}

static void run(const char *tracker)
{
        enum { N = 1 << 20 };
        char path[4096];
        struct belay_config *c;
        struct belay *b;
        snprintf(path, sizeof(path), "%s/%s", test_dir(), tracker);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "tracker", tracker), 0);
        CHECK_EQ(belay_config_set(c, "policy", "adaptive"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        uint64_t *x = belay_alloc(b, "x", BELAY_U64, N);
        for (int round = 0; round < 6; round++) {
                for (uint64_t i = 0; i < N; i++)
                        x[i] = i * 3 + (uint64_t)round;
                refuse = round % 2 == 1;
                CHECK_EQ(belay_checkpoint(b), 0);
                memset(x, 0xee, N * sizeof(*x));
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_restart(b), 1);
                for (uint64_t i = 0; i < N; i++)
                        CHECK_EQ(x[i], i * 3 + (uint64_t)round);
        }
        refuse = false;
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&c);
}

int main(void)
{
        table = plat_system;
        table.mprotect = mprotect_or_not;
        table.ioctl = ioctl_or_not;
        plat = &table;
        run("scan");
        run("mprotect");
        RUN(test_shared);
        return 0;
}
