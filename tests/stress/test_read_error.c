/* A block of the version before has to be read, and the read fails once. This version fails; the
 * one before is not damaged, and says so to nobody.
 *
 * builds: normal asan tsan */
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <stdatomic.h>

#define BYTES (UINT64_C(32) << 20)
#define UNIT  (64u << 10)

static struct plat_calls calls;
static _Atomic bool fails;

static int64_t failing_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        if (atomic_exchange(&fails, false))
                return -EIO;
        return plat_system.pread(fd, buf, bytes, offset);
}

/* One page of every unit. */
STRESS_PROGRAM static void write_pages(uint8_t *p, uint64_t page, uint8_t value)
{
        for (uint64_t at = page * 4096; at < BYTES; at += UNIT)
                stress_poke(p, at + 100, value);
}

static void save(struct belay *b)
{
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
}

/* Pages that were not written are written before the flusher has read their blocks. */
static bool fail_once(struct belay *b, uint8_t *p, uint8_t value)
{
        for (int i = 0; i < 3; i++) {
                write_pages(p, 0, (uint8_t)(value + i));
                save(b);
        }
        write_pages(p, 0, (uint8_t)(value + 9));
        atomic_store(&fails, true);
        CHECK_EQ(belay_checkpoint(b), 0);
        write_pages(p, 1, value);
        bool failed = belay_wait(b, 0, BELAY_FOREVER) == BELAY_E_CHECKPOINT;
        CHECK_EQ(failed, !atomic_exchange(&fails, false));
        return failed;
}

static void test_read_error(void)
{
        char path[4096];
        calls = plat_system;
        calls.pread = failing_pread;
        plat = &calls;
        snprintf(path, sizeof(path), "%s", stress_pool("read_error"));
        struct belay *b = stress_open(path, "tracker=scan policy=adaptive rate=32MiB unit=64KiB "
                                            "versions=1 media=file");
        uint8_t *p = belay_alloc(b, "data", BELAY_U8, BYTES);
        stress_fill(p, BYTES, 1);
        for (int i = 0; i < 3; i++) {
                write_pages(p, 0, (uint8_t)i);
                save(b);
        }
        bool failed = false;
        for (uint8_t i = 0; i < 5 && !failed; i++)
                failed = fail_once(b, p, (uint8_t)(i * 20));
        CHECK(failed);
        CHECK_EQ(belay_restart(b), 1);
        uint8_t *state = stress_copy(p, BYTES);
        save(b);
        stress_exact(b, path, "data", state, BYTES);
        free(state);
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        RUN(test_read_error);
        return 0;
}
