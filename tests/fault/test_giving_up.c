/* test_giving_up.c: with the option replace, old versions are given up before the new one is
 * written. If that fails they are still there; and those that are kept because they are damaged
 * stay, whatever happens. */
#include "subject.h"
#include "check.h"
#include "plat/plat.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>

#define BYTES (300u << 10)

static char pool[4200];
static uint8_t memory[BYTES];
static const struct setup setup = {.media = "file", .io = "pwrite", .direct = "off"};

static struct plat_calls failing;
static bool fail_superblock; /* its write has no effect and an error */
static unsigned fail_barrier, barriers;

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

static void fill(uint64_t n)
{
        struct test_random rng = {n};
        for (size_t i = 0; i < BYTES; i++)
                memory[i] = (uint8_t)test_random_next(&rng);
}

static bool holds(uint64_t n)
{
        static uint8_t copy[BYTES];
        memcpy(copy, memory, BYTES);
        fill(n);
        bool same = memcmp(copy, memory, BYTES) == 0;
        memcpy(memory, copy, BYTES);
        return same;
}

static struct belay *open_pool(const char *replace)
{
        struct belay *b = NULL;
        CHECK_EQ(setenv("BELAY_REPLACE", replace, 1), 0);
        if (setup_open(&setup, pool, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, BYTES, memory), 0);
        return b;
}

static void check_restart(struct belay *b, uint64_t version, uint64_t content)
{
        memset(memory, 0, BYTES);
        int rc = belay_restart(b);
        if (rc != 1)
                check_failed(__FILE__, __LINE__, "restart gives %d: %s", rc, belay_error());
        CHECK_EQ(belay_version(b), version);
        CHECK(holds(content));
}

/* The list without the old version does not reach the medium, or does and the barrier fails. Either
 * way the old version is whole: for this process, for the next one, and until the next version is
 * there. */
static void superblock_fails(bool barrier, bool goes_on)
{
        (void)unlink(pool);
        struct belay *b = open_pool("yes");
        fill(1);
        CHECK_EQ(belay_checkpoint(b), 0);
        fill(2);
        fail_superblock = !barrier;
        barriers = 0;
        fail_barrier = barrier; /* the first of the checkpoint */
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "Input/output error");
        fail_superblock = false;
        fail_barrier = 0;
        check_restart(b, 1, 1);
        if (goes_on) {
                fill(3);
                CHECK_EQ(belay_checkpoint(b), 0);
                uint64_t version = belay_version(b);
                CHECK(version > 1);
                check_restart(b, version, 3);
                CHECK_EQ(belay_close(&b), 0);
                b = open_pool("yes");
                check_restart(b, version, 3);
        } else {
                CHECK_EQ(belay_close(&b), 0);
                b = open_pool("yes");
                check_restart(b, 1, 1);
        }
        CHECK_EQ(belay_close(&b), 0);
}

static void test_superblock_fails(void)
{
        for (unsigned i = 0; i < 4; i++)
                superblock_fails(i & 1, i & 2);
}

static uint64_t manifest_of(uint64_t version)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {.path = pool, .readonly = true, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_find_version(p, version);
        CHECK(v);
        uint64_t offset = v->manifest.offset;
        CHECK_EQ(pool_close(&p), 0);
        return offset;
}

static void flip(uint64_t offset)
{
        uint8_t byte;
        int fd = open(pool, O_RDWR);
        CHECK(fd >= 0);
        CHECK_EQ(pread(fd, &byte, 1, (off_t)offset), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(fd, &byte, 1, (off_t)offset), 1);
        CHECK_EQ(close(fd), 0);
}

/* Is the version listed, and damaged? */
static void check_kept(uint64_t version)
{
        struct belay *b = open_pool("yes");
        int rc = belay_restart_version(b, version, 0);
        if (rc != BELAY_E_DATA)
                check_failed(__FILE__, __LINE__, "version %llu was to be kept: %d, %s",
                             (unsigned long long)version, rc, belay_error());
        CHECK_EQ(belay_close(&b), 0);
}

/* Version 1 is damaged and kept; 2 is good and makes room for 3, which fails or does not. Nothing
 * that version 1 may use is written to. */
static void test_damaged_are_kept(void)
{
        static uint8_t before[8u << 20];
        static uint8_t after[8u << 20];
        (void)unlink(pool);
        struct belay *b = open_pool("no");
        for (uint64_t n = 1; n <= 2; n++) {
                fill(n);
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK_EQ(belay_close(&b), 0);
        flip(manifest_of(1) + 100);
        int fd = open(pool, O_RDONLY);
        CHECK(fd >= 0);
        ssize_t bytes = pread(fd, before, sizeof(before), 0);
        CHECK(bytes > 0 && bytes < (ssize_t)sizeof(before));
        for (uint64_t n = 3; n <= 5; n++) {
                b = open_pool("yes");
                fill(n);
                fail_barrier = n == 4 ? 2 : 0; /* given up, then the data's barrier fails */
                barriers = n == 4 ? 0 : 100;
                CHECK_EQ(belay_checkpoint(b), n == 4 ? BELAY_E_CHECKPOINT : 0);
                fail_barrier = 0;
                CHECK_EQ(belay_close(&b), 0);
                check_kept(1);
        }
        CHECK_EQ(pread(fd, after, (size_t)bytes, 0), bytes);
        CHECK_MEM(before + 8192, after + 8192, (size_t)bytes - 8192);
        CHECK_EQ(close(fd), 0);
        b = open_pool("yes");
        check_restart(b, 4, 5); /* the number that failed was never listed */
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        test_env_clean();
        snprintf(pool, sizeof(pool), "%s/pool", test_dir());
        failing = plat_system;
        failing.pwrite = failing_pwrite;
        failing.fdatasync = failing_fdatasync;
        plat = &failing;
        RUN(test_superblock_fails);
        RUN(test_damaged_are_kept);
        return 0;
}
