/* A region that is restarted without copying is laid over the pool, and nothing else is: its last
 * block is shorter than the others, by whole pages, and what lies behind it in memory is not the
 * region's. */
#include "base/base.h"
#include "plat/plat.h"
#include "stress.h"

#define BYTES ((UINT64_C(3) << 20) + 100)

static struct plat_calls table;
static const uint8_t *region;
static unsigned laid;

static int map_within(int fd, uint64_t offset, void *at, uint64_t bytes)
{
        laid++;
        CHECK((uint8_t *)at >= region);
        CHECK((uint8_t *)at + bytes <= region + align_up(BYTES, PLAT_PAGE));
        return plat_system.mmap_over(fd, offset, at, bytes);
}

int main(void)
{
        const char *path = stress_pool("bounds");
        table = plat_system;
        table.mmap_over = map_within;
        plat = &table;
        for (int i = 0; i < 2; i++) {
                struct belay *b =
                        stress_open(path, "media=mapped block=64KiB policy=sync restart=lazy");
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                CHECK(m != NULL);
                region = m;
                CHECK_EQ(belay_restart(b), i);
                if (i == 0)
                        stress_fill(m, BYTES, 5);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
                CHECK_EQ(belay_close(&b), 0);
        }
        CHECK(laid > 0);
        return 0;
}
