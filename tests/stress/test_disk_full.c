/* The disk is full in the middle of an asynchronous commit: the program runs on, the version is
 * abandoned with a cause, earlier ones are intact, and the next one is complete. On a small file
 * system of its own, in a mount namespace that ends with the test.
 *
 * timeout: 120
 * builds: normal asan tsan */
#define _GNU_SOURCE
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define BYTES (6u << 20)

static char disk[4096], pool[4200], filler[4200];

static void fill_disk(void)
{
        static const uint8_t block[4096] = {1};
        int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        while (write(fd, block, sizeof(block)) == (ssize_t)sizeof(block))
                continue;
        CHECK_EQ(errno, ENOSPC);
        CHECK_EQ(close(fd), 0);
}

static void unmount_at_exit(void)
{
        (void)umount2(disk, MNT_DETACH);
}

/* The version fails, at the freeze or later; either way with a code and a text, once. */
static void expect_failure(struct belay *b)
{
        int rc = belay_checkpoint(b);
        if (rc == 0)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "No space left on device");
        CHECK_EQ(stress_state(b), BELAY_FAILED);
}

static void run(const char *tracker, const char *media)
{
        char options[256];
        CHECK_EQ(mount("belay-test", disk, "tmpfs", 0, "size=20m"), 0);
        snprintf(options, sizeof(options),
                 "policy=adaptive tracker=%s media=%s unit=64KiB copy_buffer=512KiB rate=200MiB "
                 "versions=1",
                 tracker, media);
        struct belay *b = stress_open(pool, options);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
        CHECK(m != NULL);
        stress_fill(m, BYTES, 1);
        uint8_t *first = stress_copy(m, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, pool, "x", first, BYTES);
        uint64_t version = belay_version(b);
        fill_disk();
        for (uint64_t round = 0; round < 2; round++) {
                stress_fill(m, BYTES, 2 + round);
                uint8_t *now = stress_copy(m, BYTES);
                expect_failure(b);
                CHECK_MEM(m, now, BYTES);
                stress_fill(m, BYTES, 7); /* nothing is protected any more */
                stress_compare(pool, version, "x", first, BYTES);
                free(now);
        }
        CHECK_EQ(unlink(filler), 0);
        stress_fill(m, BYTES, 9);
        uint8_t *last = stress_copy(m, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_fill(m, BYTES, 10);
        stress_exact(b, pool, "x", last, BYTES);
        stress_close(&b);
        free(first);
        free(last);
        CHECK_EQ(umount(disk), 0);
}

int main(void)
{
        static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
                printf("mounting a file system is not allowed here\n");
                return 77;
        }
        snprintf(disk, sizeof(disk), "%s/disk", test_dir());
        snprintf(pool, sizeof(pool), "%s/pool", disk);
        snprintf(filler, sizeof(filler), "%s/filler", disk);
        CHECK_EQ(mkdir(disk, 0700), 0);
        atexit(unmount_at_exit);
        for (size_t t = 0; t < sizeof(trackers) / sizeof(trackers[0]); t++) {
                run(trackers[t], "file");
                run(trackers[t], "mapped");
        }
        return 0;
}
