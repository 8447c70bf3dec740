/* A region that cannot be protected, as when a process has too many mappings, is staged at the
 * freeze.
 *
 * builds: normal asan tsan */
#include "check.h"
#include "plat/plat.h"
#include <belay/belay.h>
#include <errno.h>

static struct plat_calls table;
static bool refuse;

static int mprotect_or_not(void *p, uint64_t bytes, bool writable)
{
        return refuse && !writable ? -ENOMEM : plat_system.mprotect(p, bytes, writable);
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
        plat = &table;
        run("scan");
        run("mprotect");
        return 0;
}
