/* A page that two units share has one mark, which the kernel gives and takes: whoever takes it for
 * one unit must not lose what it says of the other. Here the page is written at the very moment
 * when that would happen.
 *
 * builds: normal asan tsan */
#include "plat/plat.h"
#include "stress.h"
#include <stdatomic.h>
#include <sys/ioctl.h>

#define UNIT  (64u << 10)
#define BYTES (6u << 20)

/* PAGEMAP_SCAN, as far as it is of interest here. */
struct scan {
        uint64_t size, flags, start, end, others[8];
};
#define SCAN_REQUEST _IOWR('f', 16, struct scan)
#define SCAN_RESET   1u

static struct plat_calls table;
static uint8_t *late;
static _Atomic unsigned resets;  /* scans that take marks, from the page of *late or the next on */
static _Atomic unsigned late_at; /* the one before which *late is written; 0: none */

/* A thread of the program, or a device, writes to *late just before marks are taken. */
static int ioctl_and_write(int fd, unsigned long request, void *arg)
{
        const struct scan *s = arg;
        uintptr_t page = (uintptr_t)late / 4096 * 4096;
        if (late_at && request == SCAN_REQUEST && s->flags & SCAN_RESET &&
            (s->start == page || s->start == page + 4096) && ++resets == late_at)
                ++*late;
        return plat_system.ioctl(fd, request, arg);
}

/* With policy sync a unit is watched from before it is read on. Here one is written after it was
 * read, in the page that it shares with the next one, when that is about to be watched: the write
 * must be in the next version all the same. */
static void test_write_between_units(void)
{
        const char *path = stress_pool("between");
        uint8_t *raw = calloc(1, BYTES + 8192);
        uint8_t *m = (uint8_t *)(((uintptr_t)raw + 4095) / 4096 * 4096) + 2000;
        struct belay *b = stress_open(path, "tracker=scan policy=sync unit=64KiB");
        stress_fill(m, BYTES, 1);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
        late = m + 6 * UNIT - 1;
        late_at = 2;
        resets = 0;
        /* Not watched as long as it is new. */
        for (int i = 0; i < 8 && resets < 2; i++) {
                resets = 0;
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK(resets >= 2);
        late_at = 0;
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", m, BYTES);
        CHECK_EQ(belay_close(&b), 0);
        free(raw);
}

/* The same with a unit that was copied before the freeze. The next one is patched: the freeze takes
 * the marks from their common page on. */
static void test_write_beside_early(void)
{
        const char *path = stress_pool("beside");
        uint8_t *raw = calloc(1, BYTES + 8192);
        uint8_t *m = (uint8_t *)(((uintptr_t)raw + 4095) / 4096 * 4096) + 2000;
        late = m + 6 * UNIT - 1;
        struct belay *b =
                stress_open(path, "tracker=scan policy=sync unit=64KiB precopy=immediate");
        struct belay_stats s = {.size = sizeof(s)};
        stress_fill(m, BYTES, 1);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, m), 0);
        bool met = false;
        for (unsigned i = 0; i < 200 && !met; i++) {
                stress_poke(m, 5 * UNIT + UNIT / 2, (uint8_t)i);
                usleep(1000 * (10 + i)); /* for it to be copied */
                stress_poke(m, 6 * UNIT + UNIT / 2, (uint8_t)i);
                resets = 0;
                late_at = 1;
                CHECK_EQ(belay_checkpoint(b), 0);
                late_at = 0;
                CHECK_EQ(belay_stats(b, &s), 0);
                met = resets > 0 && s.last_early > 0;
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", m, BYTES);
        }
        CHECK(met);
        CHECK_EQ(belay_close(&b), 0);
        free(raw);
}

int main(void)
{
        table = plat_system;
        table.ioctl = ioctl_and_write;
        plat = &table;
        RUN(test_write_between_units);
        RUN(test_write_beside_early);
        return 0;
}
