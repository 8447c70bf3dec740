/* A commit fails while copies of units wait for the flusher: none of them passes for a copy of the
 * next commit, and every pocket of the copy buffer is free again.
 *
 * builds: normal asan tsan */
#include "base/base.h"
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#define BYTES   (UINT64_C(6) << 20)
#define UNIT    (UINT64_C(64) << 10)
#define POCKETS 16

static struct plat_calls table;
static _Atomic bool waits;
static _Atomic bool full; /* the pool cannot grow, once writes need not wait */

/* The flusher is here and captures nothing as long as `waits`. */
static int64_t pwrite_later(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        while (waits)
                plat_system.sleep_ns(100000);
        return plat_system.pwrite(fd, buf, bytes, offset);
}

static int fallocate_or_not(int fd, uint64_t offset, uint64_t bytes)
{
        return full && !waits ? -ENOSPC : plat_system.fallocate(fd, offset, bytes);
}

static int ftruncate_or_not(int fd, uint64_t bytes)
{
        return full && !waits ? -ENOSPC : plat_system.ftruncate(fd, bytes);
}

/* Freezes, and writes to units from `first` on. The flusher comes to units at the beginning and to
 * those that were written in the last epoch, and stops when it has 1 MiB to write: it does not
 * reach these ones, so each takes a pocket. */
static uint8_t *begin(struct belay *b, uint8_t *m, uint64_t seed, uint64_t first, uint64_t units,
                      bool fails)
{
        stress_fill(m, BYTES, seed);
        uint8_t *frozen = stress_copy(m, BYTES);
        full = fails;
        waits = true;
        CHECK_EQ(belay_checkpoint(b), 0);
        for (uint64_t u = first; u < first + units; u++)
                stress_poke(m, u * UNIT, (uint8_t)~m[u * UNIT]);
        waits = false;
        return frozen;
}

static uint64_t copies(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        return s.last_cows;
}

static void run(const char *policy, const char *tracker)
{
        char options[256];
        const char *path = stress_pool("abandon");
        snprintf(options, sizeof(options),
                 "policy=%s tracker=%s unit=64KiB copy_buffer=1MiB copy_ahead=no follow=no "
                 "media=file io=pwrite",
                 policy, tracker);
        struct belay *b = stress_open(path, options);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
        CHECK(m != NULL);
        /* The space for the first version is taken in advance. */
        stress_fill(m, BYTES, 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", m, BYTES);
        free(begin(b, m, 1, 40, POCKETS / 2, true));
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "cannot grow");
        /* All pockets are needed, or this thread would wait for the flusher, and that for this
         * thread. */
        uint8_t *frozen = begin(b, m, 2, 64, POCKETS, false);
        stress_exact(b, path, "x", frozen, BYTES);
        CHECK_EQ(copies(b), POCKETS);
        free(frozen);
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        static const char *const trackers[] = {"scan", "uffd", "mprotect"};
        table = plat_system;
        table.pwrite = pwrite_later;
        table.fallocate = fallocate_or_not;
        table.ftruncate = ftruncate_or_not;
        plat = &table;
        for (size_t i = 0; i < ARRAY_LEN(trackers); i++) {
                run("adaptive", trackers[i]);
                run("async", trackers[i]);
        }
        return 0;
}
