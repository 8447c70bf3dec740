/* test_full_disk.c: a disk that is really full. A small file system of its own is mounted for each
 * case, in a mount namespace that ends with the test; without the right to do so the test is
 * skipped. */
#include "subject.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define DISK    "size=4m"
#define LARGEST (3u << 20)
#define SMALL   400000u

static char disk[4096], pool[4200], filler[4200];
static uint8_t memory[LARGEST], copy[LARGEST];

/* With and without fallocate: reserved space, or space that runs out in the middle of a write. */
static const struct setup setups[] = {
        {.label = "file", .media = "file"},
        {.label = "file, pwrite", .media = "file", .io = "pwrite", .direct = "off"},
        {.label = "file, no fallocate", .media = "file", .probe_mask = "fallocate"},
        {.label = "file, pwrite, no fallocate",
         .media = "file",
         .io = "pwrite",
         .direct = "off",
         .probe_mask = "fallocate"},
        {.label = "mapped", .media = "mapped"},
        {.label = "mapped, no fallocate", .media = "mapped", .probe_mask = "fallocate"},
};

/* ---- the disk ------------------------------------------------------------------------------ */

static void mount_disk(void)
{
        CHECK(mount("belay-test", disk, "tmpfs", 0, DISK) == 0);
}

static void unmount_disk(void)
{
        CHECK(umount(disk) == 0);
}

/* After a failed check, so that the test's directory can be removed. */
static void unmount_at_exit(void)
{
        (void)umount2(disk, MNT_DETACH);
}

/* Uses all space but about `left` bytes. */
static void fill_disk(uint64_t left)
{
        static const uint8_t block[4096] = {1};
        int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        off_t bytes = 0;
        while (pwrite(fd, block, sizeof(block), bytes) == (ssize_t)sizeof(block))
                bytes += (off_t)sizeof(block);
        CHECK_EQ(errno, ENOSPC);
        CHECK((uint64_t)bytes >= left);
        CHECK(ftruncate(fd, bytes - (off_t)left) == 0);
        CHECK(close(fd) == 0);
}

static void free_disk(void)
{
        CHECK(unlink(filler) == 0);
}

/* ---- the program --------------------------------------------------------------------------- */

static void fill(uint64_t bytes, uint64_t seed)
{
        struct test_random rng = {seed};
        for (uint64_t i = 0; i < bytes; i++)
                memory[i] = (uint8_t)test_random_next(&rng);
        memcpy(copy, memory, bytes);
}

static struct belay *open_pool(const struct setup *setup)
{
        struct belay *b = NULL;
        if (setup_open(setup, pool, &b))
                check_failed(__FILE__, __LINE__, "%s: open: %s", setup->label, belay_error());
        return b;
}

static void check_restart(struct belay *b, uint64_t bytes, uint64_t seed)
{
        static uint8_t kept[LARGEST];
        memcpy(kept, memory, sizeof(kept));
        fill(bytes, seed);
        memset(memory, 0, sizeof(memory));
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, bytes, memory), 0);
        int rc = belay_restart(b);
        if (rc != 1)
                check_failed(__FILE__, __LINE__, "restart gives %d: %s", rc, belay_error());
        CHECK_MEM(memory, copy, bytes);
        CHECK_EQ(belay_detach(b, "memory"), 0);
        memcpy(memory, kept, sizeof(kept));
}

static void expect_full(struct belay *b)
{
        int rc = belay_checkpoint(b);
        if (rc != BELAY_E_CHECKPOINT)
                check_failed(__FILE__, __LINE__, "checkpoint on a full disk gives %d: %s", rc,
                             belay_error());
        CHECK_HAS(belay_error(), "No space left on device");
        CHECK_MEM(memory, copy, sizeof(copy));
}

/* Full, still full, then free: the context lives through it and stores again. */
static void full_and_free(const struct setup *setup, uint64_t left)
{
        mount_disk();
        struct belay *b = open_pool(setup);
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, SMALL, memory), 0);
        fill(SMALL, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        fill_disk(left);
        fill(LARGEST, 2);
        CHECK_EQ(belay_move(b, "memory", LARGEST, memory), 0);
        expect_full(b);
        expect_full(b);
        CHECK_EQ(belay_version(b), 1);
        /* A state that fits into what the pool has goes on being stored, where space could be
         * reserved. */
        CHECK_EQ(belay_move(b, "memory", 1000, memory), 0);
        bool sparse = setup->probe_mask && strcmp(setup->media, "file") == 0;
        if (belay_checkpoint(b) && !sparse)
                check_failed(__FILE__, __LINE__, "%s: %s", setup->label, belay_error());
        free_disk();
        CHECK_EQ(belay_move(b, "memory", LARGEST / 2, memory), 0);
        if (belay_checkpoint(b))
                check_failed(__FILE__, __LINE__, "%s: %s", setup->label, belay_error());
        CHECK_EQ(belay_close(&b), 0);
        b = open_pool(setup);
        check_restart(b, LARGEST / 2, 2);
        CHECK_EQ(belay_close(&b), 0);
        unmount_disk();
}

static void test_full_and_free(void)
{
        for (unsigned i = 0; i < sizeof(setups) / sizeof(setups[0]); i++)
                for (uint64_t left = 0; left < 1u << 20; left += 300000) {
                        full_and_free(&setups[i], left);
                }
}

/* The process ends while the disk is full: what was published is there, on the disk that is still
 * full. */
static void test_reopen_full(void)
{
        for (unsigned i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
                mount_disk();
                struct belay *b = open_pool(&setups[i]);
                CHECK_EQ(belay_attach(b, "memory", BELAY_U8, SMALL, memory), 0);
                fill(SMALL, 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                fill_disk(0);
                fill(LARGEST, 2);
                CHECK_EQ(belay_move(b, "memory", LARGEST, memory), 0);
                expect_full(b);
                CHECK_EQ(belay_close(&b), 0);
                b = open_pool(&setups[i]);
                check_restart(b, SMALL, 1);
                CHECK_EQ(belay_close(&b), 0);
                unmount_disk();
        }
}

/* A pool that cannot be created is not there, and neither is anything else. */
static void test_create_full(void)
{
        for (unsigned i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
                struct belay *b = NULL;
                mount_disk();
                fill_disk(0);
                int rc = setup_open(&setups[i], pool, &b);
                CHECK_EQ(rc, -ENOSPC);
                CHECK_HAS(belay_error(), "No space left on device");
                free_disk();
                CHECK(rmdir(disk) < 0 && errno == EBUSY);
                b = open_pool(&setups[i]);
                CHECK_EQ(belay_restart(b), 0);
                CHECK_EQ(belay_close(&b), 0);
                unmount_disk();
        }
}

/* A sparse pool on a full disk: a store into a hole would end the program with SIGBUS. It is an
 * error instead, and works once there is space. The child may not be ended by a signal. */
static void sparse_child(const struct setup *setup)
{
        struct belay *b = NULL;
        int rc = setup_open(setup, pool, &b);
        if (rc == 0) {
                fill(SMALL, 2);
                CHECK_EQ(belay_attach(b, "memory", BELAY_U8, SMALL, memory), 0);
                rc = belay_checkpoint(b);
                CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        }
        CHECK_HAS(belay_error(), "No space left on device");
        CHECK_EQ(belay_close(&b), 0);
}

static void sparse(const struct setup *writer, const struct setup *reader)
{
        mount_disk();
        struct belay *b = open_pool(writer);
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, SMALL, memory), 0);
        fill(SMALL, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        /* As a sparse copy would leave it: nothing behind what version 1 uses. */
        int fd = open(pool, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 104 * 4096, 1 << 20) == 0);
        CHECK(close(fd) == 0);
        fill_disk(0);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                sparse_child(reader);
                _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status))
                check_failed(__FILE__, __LINE__,
                             "%s: a checkpoint into a sparse pool ends with signal %d",
                             reader->label, WTERMSIG(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        free_disk();
        b = open_pool(reader);
        check_restart(b, SMALL, 1);
        CHECK_EQ(belay_close(&b), 0);
        unmount_disk();
}

static void test_sparse(void)
{
        sparse(&setups[0], &setups[4]);
}

static void test_sparse_without_fallocate(void)
{
        sparse(&setups[2], &setups[5]);
}

int main(void)
{
        test_env_clean();
        snprintf(disk, sizeof(disk), "%s/disk", test_dir());
        snprintf(pool, sizeof(pool), "%s/pool", disk);
        snprintf(filler, sizeof(filler), "%s/filler", disk);
        CHECK(mkdir(disk, 0700) == 0);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("belay-test", disk, "tmpfs", 0, DISK) < 0)
                skip("mounting a small file system is not allowed here");
        unmount_disk();
        CHECK(atexit(unmount_at_exit) == 0);
        RUN(test_full_and_free);
        RUN(test_reopen_full);
        RUN(test_create_full);
        RUN(test_sparse);
        RUN(test_sparse_without_fallocate);
        return 0;
}
