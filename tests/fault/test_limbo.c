/* test_limbo.c: when the write of a superblock fails, nobody knows what the disk holds. Both
 * answers must be good, however many such failures follow each other.
 *
 * One version is kept and the pool is so small that the next attempt must use whatever slots are
 * free: if those of a version that the disk may list are among them, the pool is lost. */
#include "subject.h"
#include "check.h"
#include "plat/plat.h"
#include <errno.h>

#define BYTES (240u << 10)

static char pool[4200];
static uint8_t memory[BYTES];
static const struct setup setup = {
        .media = "file", .io = "pwrite", .direct = "off", .versions = "1", .limit = "760KiB"};

/* ---- a disk that fails at chosen places -------------------------------------------------------
 */

static struct plat_calls failing;
static bool fail_superblock;  /* its write has no effect and an error */
static unsigned fail_barrier; /* barrier 1 or 2 of the checkpoint; 0: none */
static unsigned barriers;

static int64_t failing_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        if (fail_superblock && offset < 8192)
                return -EIO;
        return plat_system.pwrite(fd, buf, bytes, offset);
}

static int failing_fdatasync(int fd)
{
        (void)fd;
        return ++barriers == fail_barrier ? -EIO : 0;
}

/* What the memory holds in attempt n. */
static void fill(unsigned n)
{
        struct test_random rng = {n};
        for (size_t i = 0; i < BYTES; i++)
                memory[i] = (uint8_t)test_random_next(&rng);
}

static int attempt(struct belay *b, unsigned n, bool superblock, unsigned barrier)
{
        fill(n);
        fail_superblock = superblock;
        fail_barrier = barrier;
        barriers = 0;
        int rc = belay_checkpoint(b);
        fail_superblock = false;
        fail_barrier = 0;
        return rc;
}

static struct belay *open_pool(void)
{
        struct belay *b = NULL;
        if (setup_open(&setup, pool, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, BYTES, memory), 0);
        return b;
}

/* The pool must restore, to what one of the attempts from `first` to `last` had. */
static void check_pool(unsigned first, unsigned last)
{
        static uint8_t found[BYTES];
        struct belay *b = open_pool();
        int rc = belay_restart(b);
        if (rc != 1)
                check_failed(__FILE__, __LINE__, "restart gives %d: %s", rc, belay_error());
        memcpy(found, memory, BYTES);
        for (unsigned n = first; n <= last; n++) {
                fill(n);
                if (memcmp(found, memory, BYTES) == 0) {
                        CHECK_EQ(belay_close(&b), 0);
                        return;
                }
        }
        check_failed(__FILE__, __LINE__, "version %llu is none of attempts %u to %u",
                     (unsigned long long)belay_version(b), first, last);
}

static void check_failure(int rc)
{
        CHECK(rc == BELAY_E_CHECKPOINT || rc == BELAY_E_BROKEN);
        CHECK_HAS(belay_error(), "Input/output error");
}

/* ---- tests --------------------------------------------------------------------------------- */

/* The number of a version that may be on the disk is not used again. */
static void test_one_failure(void)
{
        for (unsigned way = 0; way < 2; way++) {
                (void)unlink(pool);
                struct belay *b = open_pool();
                CHECK_EQ(attempt(b, 1, false, 0), 0);
                int rc = attempt(b, 2, way == 0, way == 0 ? 0 : 2);
                check_failure(rc);
                CHECK_EQ(belay_version(b), 1);
                if (rc == BELAY_E_CHECKPOINT) {
                        CHECK_EQ(attempt(b, 3, false, 0), 0);
                        CHECK_EQ(belay_version(b), 3);
                }
                CHECK_EQ(belay_close(&b), 0);
                if (rc == BELAY_E_CHECKPOINT)
                        check_pool(3, 3);
                else
                        check_pool(1, 2);
        }
}

/* 2: its superblock is on the disk, the barrier fails. 3: its superblock does not reach the disk.
 * 4: writes blocks and fails before it comes to the superblock. The disk lists 2. */
static void test_two_failures(void)
{
        (void)unlink(pool);
        struct belay *b = open_pool();
        CHECK_EQ(attempt(b, 1, false, 0), 0);
        check_failure(attempt(b, 2, false, 2));
        int rc = attempt(b, 3, true, 0);
        CHECK(rc == BELAY_E_CHECKPOINT || rc == BELAY_E_BROKEN);
        rc = attempt(b, 4, false, 1);
        CHECK(rc == BELAY_E_CHECKPOINT || rc == BELAY_E_BROKEN);
        CHECK_EQ(belay_close(&b), 0);
        check_pool(1, 3);
}

/* Failures of every kind in every order, then a crash. */
static void test_many_failures(void)
{
        unsigned orders = 1;
        for (unsigned i = 0; i < 5; i++)
                orders *= 3;
        for (unsigned order = 0; order < orders; order++) {
                (void)unlink(pool);
                struct belay *b = open_pool();
                CHECK_EQ(attempt(b, 1, false, 0), 0);
                unsigned o = order;
                for (unsigned n = 2; n < 7; n++, o /= 3)
                        CHECK(attempt(b, n, o % 3 == 0, o % 3) < 0);
                CHECK_EQ(belay_close(&b), 0);
                check_pool(1, 6);
        }
        printf("  %u orders of failures\n", orders);
}

int main(void)
{
        test_env_clean();
        snprintf(pool, sizeof(pool), "%s/pool", test_dir());
        failing = plat_system;
        failing.pwrite = failing_pwrite;
        failing.fdatasync = failing_fdatasync;
        plat = &failing;
        RUN(test_one_failure);
        RUN(test_two_failures);
        RUN(test_many_failures);
        return 0;
}
