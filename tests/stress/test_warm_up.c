/* Space ahead of need: it comes, it stays within its bounds, it is given back, and nothing goes wrong
 * where it fails or is interrupted. With pools on a small file system in memory, in a mount
 * namespace that ends with the test.
 *
 * timeout: 180
 * builds: normal asan tsan */
#define _GNU_SOURCE
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define MIB   (UINT64_C(1) << 20)
#define BYTES (48 * MIB)

static char disk[4096], pool[4200], filler[4200];
static struct plat_calls table;
static uint64_t free_bytes, resident_bytes;

static void mount_disk(const char *size)
{
        CHECK_EQ(mount("belay-test", disk, "tmpfs", 0, size), 0);
}

static void unmount_disk(void)
{
        CHECK_EQ(umount(disk), 0);
}

static void unmount_at_exit(void)
{
        (void)umount2(disk, MNT_DETACH);
}

static uint64_t file_bytes(void)
{
        struct stat st;
        return stat(pool, &st) ? 0 : (uint64_t)st.st_size;
}

static uint64_t ahead(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        return s.pool_ahead;
}

static void sleep_ms(uint64_t ms)
{
        plat_system.sleep_ns(ms * 1000000);
}

/* Until the file has at least so many bytes; they come by themselves. */
static void await_bytes(uint64_t bytes)
{
        for (int i = 0; i < 20000 && file_bytes() < bytes; i++)
                sleep_ms(1);
        if (file_bytes() < bytes)
                check_failed(__FILE__, __LINE__, "the pool has %llu bytes, not %llu",
                             (unsigned long long)file_bytes(), (unsigned long long)bytes);
}

static void await_less(uint64_t bytes)
{
        for (int i = 0; i < 20000 && file_bytes() > bytes; i++)
                sleep_ms(1);
        CHECK(file_bytes() <= bytes);
}

/* Until it has not changed for a while. */
static uint64_t settle(void)
{
        uint64_t before = UINT64_MAX;
        for (int same = 0; same < 20; sleep_ms(20)) {
                same = file_bytes() == before ? same + 1 : 0;
                before = file_bytes();
        }
        return before;
}

static struct belay *open_pool(const char *more)
{
        char options[256];
        snprintf(options, sizeof(options), "policy=adaptive unit=64KiB copy_buffer=1MiB %s", more);
        return stress_open(pool, options);
}

static uint8_t *state;

static struct belay *open_attached(const char *more, uint64_t seed)
{
        struct belay *b = open_pool(more);
        stress_fill(state, BYTES, seed);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, state), 0);
        return b;
}

static void save(struct belay *b, uint64_t seed)
{
        stress_fill(state, BYTES, seed);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, pool, "x", state, BYTES);
}

/* ---- what it does ---- */

/* Before the first version its space; after each that of the next, until old ones leave. */
static void test_ahead(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        await_bytes(BYTES);
        CHECK(settle() < BYTES + BYTES / 4);
        CHECK(ahead(b) > BYTES / 2);
        save(b, 2);
        await_bytes(2 * BYTES);
        CHECK(settle() < 2 * BYTES + BYTES / 2);
        /* A pool that has two versions has the space of three. */
        save(b, 3);
        await_bytes(3 * BYTES);
        save(b, 4);
        uint64_t whole = settle();
        for (uint64_t i = 5; i < 9; i++)
                save(b, i);
        CHECK(settle() <= whole + MIB);
        CHECK(whole < 3 * BYTES + BYTES / 2);
        stress_close(&b);
        b = open_attached("", 9);
        CHECK_EQ(belay_restart(b), 1);
        save(b, 10);
        stress_close(&b);
        unmount_disk();
}

/* One version, and the program ends: nothing is left of what was ahead. */
static void test_given_back(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        await_bytes(BYTES);
        save(b, 2);
        await_bytes(BYTES + 20 * MIB);
        stress_close(&b);
        CHECK(file_bytes() < BYTES + BYTES / 4);
        CHECK_EQ(unlink(pool), 0);
        /* None at all. */
        b = open_attached("", 1);
        await_bytes(BYTES / 2);
        stress_close(&b);
        CHECK(file_bytes() < MIB);
        unmount_disk();
}

/* What a second version shows not to be needed goes back while the program runs. */
static void test_few_changes(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        save(b, 2);
        await_bytes(2 * BYTES);
        for (uint64_t i = 0; i < 8; i++) {
                state[i * 4096] ^= 1;
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, pool, "x", state, BYTES);
        }
        await_less(BYTES + BYTES / 2 + 20 * MIB);
        stress_close(&b);
        unmount_disk();
}

static void test_off(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("warm_up=no", 1);
        sleep_ms(100);
        CHECK(file_bytes() < MIB);
        save(b, 2);
        CHECK_EQ(ahead(b), 0);
        sleep_ms(100);
        CHECK(file_bytes() < BYTES + BYTES / 4);
        stress_close(&b);
        unmount_disk();
}

/* ---- its bounds ---- */

static uint64_t told_resident(void)
{
        return __atomic_load_n(&resident_bytes, __ATOMIC_SEQ_CST);
}

static uint64_t told_free(void)
{
        return free_bytes;
}

static uint64_t small_machine(void)
{
        return 32 * MIB;
}

static void pretend(uint64_t resident, uint64_t free)
{
        table = plat_system;
        resident_bytes = resident;
        free_bytes = free;
        table.memory_resident = told_resident;
        table.memory_free = told_free;
        table.memory_bytes = small_machine;
        plat = &table;
}

/* Memory that was never touched has no space made for it; it follows as it is. */
static void test_sparse(void)
{
        mount_disk("size=1g");
        pretend(0, 1024 * MIB);
        struct belay *b = open_pool("memory=256MiB");
        uint8_t *p = belay_alloc(b, "zeros", BELAY_U8, 20 * 1024 * MIB);
        CHECK(p != NULL);
        sleep_ms(200);
        CHECK(file_bytes() < 2 * MIB);
        __atomic_store_n(&resident_bytes, 40 * MIB, __ATOMIC_SEQ_CST);
        await_bytes(18 * MIB); /* it is told the same, though the pool itself is in memory now */
        CHECK(settle() < 48 * MIB);
        CHECK_EQ(belay_free(b, "zeros"), 0);
        stress_close(&b);
        plat = &plat_system;
        unmount_disk();
}

/* No more than half of what is free, of memory … */
static void test_memory(void)
{
        mount_disk("size=1g");
        pretend(1024 * MIB, 21 * MIB);
        struct belay *b = open_attached("memory=64MiB", 1);
        await_bytes(8 * MIB);
        /* 1 MiB is reserved; the file grows, and what is free is told to be the same, so that each
         * look allows for what is ahead already. */
        CHECK(settle() <= 21 * MIB);
        save(b, 2);
        save(b, 3);
        stress_close(&b);
        pretend(1024 * MIB, 0);
        b = open_attached("memory=64MiB", 4);
        sleep_ms(100);
        save(b, 5);
        CHECK_EQ(ahead(b), 0);
        stress_close(&b);
        plat = &plat_system;
        unmount_disk();
}

/* … of the file system, and the limit. */
static void test_limits(void)
{
        mount_disk("size=60m");
        struct belay *b = open_attached("versions=1", 1);
        await_bytes(16 * MIB);
        CHECK(settle() <= 31 * MIB);
        save(b, 2);
        stress_close(&b);
        unmount_disk();
        mount_disk("size=1g");
        b = open_attached("limit=64MiB versions=1", 1);
        await_bytes(BYTES);
        save(b, 2);
        (void)settle();
        CHECK(file_bytes() <= 64 * MIB);
        stress_fill(state, BYTES, 3);
        int rc = belay_checkpoint(b);
        if (rc == 0)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "limit");
        CHECK(file_bytes() <= 64 * MIB);
        stress_close(&b);
        unmount_disk();
}

/* The file system is full when the space ahead is wanted: no error, and the first version says
 * what is wrong, as ever; with room again everything is well. */
static void test_full(void)
{
        static const uint8_t block[65536] = {1};
        mount_disk("size=64m");
        int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        struct belay *b = open_attached("versions=1", 1);
        while (write(fd, block, sizeof(block)) > 0)
                continue;
        CHECK_EQ(errno, ENOSPC);
        int rc = belay_checkpoint(b);
        if (rc == 0)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "No space left on device");
        CHECK_EQ(close(fd), 0);
        CHECK_EQ(unlink(filler), 0);
        save(b, 2);
        stress_close(&b);
        unmount_disk();
}

/* A job with a memory limit: what is ahead never comes near it. With control groups of version 1 or
 * 2 that this process may make. */
static bool write_text(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        if (fd >= 0)
                CHECK_EQ(close(fd), 0);
        return done;
}

static void in_group(const char *group, const char *limit)
{
        char path[512];
        char text[32];
        snprintf(path, sizeof(path), "%s/cgroup.procs", group);
        snprintf(text, sizeof(text), "%d", (int)getpid());
        if (!write_text(path, text))
                _exit(77);
        snprintf(path, sizeof(path), "%s/%s", group, limit);
        if (!write_text(path, "100663296")) /* 96 MiB */
                _exit(77);
        /* 48 MiB of its own, and 96 more would be wanted. */
        uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        stress_fill(p, BYTES, 1);
        struct belay *b = open_pool("versions=1 memory=24MiB");
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, p), 0);
        sleep_ms(300);
        uint64_t bytes = settle();
        printf("  %llu MiB ahead of 96, with 48 in use\n", (unsigned long long)(bytes / MIB));
        fflush(stdout);
        CHECK(bytes >= 4 * MIB && bytes <= 24 * MIB);
        CHECK_EQ(belay_close(&b), 0);
        _exit(0);
}

static void test_group(void)
{
        static const struct {
                const char *mount, *limit;
        } kinds[] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                     {"/sys/fs/cgroup", "memory.max"},
                     {"/sys/fs/cgroup/unified", "memory.max"}};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
        return; /* their shadow memory counts, too */
#endif
        mount_disk("size=1g");
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                char group[256];
                snprintf(group, sizeof(group), "%s/belay-test-%d", kinds[i].mount, (int)getpid());
                if (mkdir(group, 0700))
                        continue;
                fflush(stdout);
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0)
                        in_group(group, kinds[i].limit);
                int status = stress_reap(child);
                for (int k = 0; k < 100 && rmdir(group); k++)
                        sleep_ms(10);
                if (status != 77)
                        CHECK_EQ(status, 0);
                (void)unlink(pool);
        }
        unmount_disk();
}

/* ---- interrupted ---- */

/* Children of fork() while it is at work; they exit, and one tries to use the context. */
static void test_fork(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        for (int i = 0; i < 20; i++) {
                fflush(stdout);
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0) {
                        int rc = belay_checkpoint(b);
                        _exit(rc == -EPERM && belay_close(&b) == -EPERM ? 0 : 1);
                }
                CHECK_EQ(stress_reap(child), 0);
                if (i % 5 == 4)
                        save(b, (uint64_t)i);
        }
        stress_close(&b);
        unmount_disk();
}

/* Closed at any moment. */
static void test_close(void)
{
        mount_disk("size=1g");
        for (uint64_t i = 0; i < 30; i++) {
                struct belay *b = open_attached("", i);
                plat_system.sleep_ns(i % 10 * 500000);
                if (i % 3 == 0)
                        save(b, i + 100);
                stress_close(&b);
                CHECK_EQ(file_bytes() % 4096, 0);
                if (i % 5 == 4)
                        CHECK_EQ(unlink(pool), 0);
        }
        unmount_disk();
}

/* Killed at any moment, and opened again: the last version that was published is there, and the
 * longer file is used. */
static void test_kill(void)
{
        mount_disk("size=1g");
        volatile uint64_t *published =
                mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(published != MAP_FAILED);
        *published = 0;
        for (uint64_t i = 0; i < 20; i++) {
                fflush(stdout);
                pid_t child = fork();
                CHECK(child >= 0);
                if (child == 0) {
                        struct belay *b = open_attached("", 0);
                        int rc = belay_restart(b);
                        if (rc != (*published != 0) && rc != 1)
                                _exit(2);
                        for (uint64_t k = 0; k < 100; k++) {
                                stress_fill(state, BYTES, i * 1000 + k);
                                if (belay_checkpoint(b) || belay_wait(b, 0, BELAY_FOREVER))
                                        _exit(3);
                                *published = belay_version(b);
                        }
                        _exit(4);
                }
                plat_system.sleep_ns((STRESS_TSAN ? 200000000 : 20000000) + i * 25000000);
                CHECK_EQ(kill(child, SIGKILL), 0);
                CHECK_EQ(stress_reap(child), 1000 + SIGKILL);
        }
        struct belay *b = open_attached("", 0);
        int rc = belay_restart(b);
        CHECK_EQ(rc, *published != 0);
        CHECK(belay_version(b) >= *published);
        printf("  killed 20 times, %llu versions, %llu MiB\n", (unsigned long long)*published,
               (unsigned long long)(file_bytes() / MIB));
        CHECK(file_bytes() < 5 * BYTES);
        save(b, 77);
        stress_close(&b);
        unmount_disk();
}

/* Another program cuts the file off where it is ahead: the versions do not suffer. */
static void test_cut_off(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        await_bytes(BYTES);
        CHECK_EQ(truncate(pool, (off_t)(10 * MIB)), 0);
        save(b, 2);
        (void)settle();
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(truncate(pool, (off_t)s.pool_bytes), 0);
        save(b, 3);
        save(b, 4);
        save(b, 5);
        stress_close(&b);
        unmount_disk();
}

/* With the program's threads, regions that come and go, and commits one after the other. */
static void test_busy(void)
{
        mount_disk("size=1g");
        struct belay *b = open_attached("", 1);
        for (uint64_t i = 0; i < 12; i++) {
                char name[16];
                snprintf(name, sizeof(name), "more%d", (int)i);
                uint8_t *p = belay_alloc(b, name, BELAY_U8, 20 * MIB);
                CHECK(p != NULL);
                stress_fill(p, 20 * MIB, i);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_fill(state, BYTES / 2, i);
                if (i % 2)
                        CHECK_EQ(belay_free(b, name), 0);
        }
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        save(b, 99);
        stress_close(&b);
        unmount_disk();
}

int main(void)
{
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
                skip("mounting a file system is not allowed here");
        snprintf(disk, sizeof(disk), "%s/disk", test_dir());
        snprintf(pool, sizeof(pool), "%s/pool", disk);
        snprintf(filler, sizeof(filler), "%s/filler", disk);
        CHECK_EQ(mkdir(disk, 0700), 0);
        atexit(unmount_at_exit);
        state = malloc(BYTES);
        CHECK(state != NULL);
        RUN(test_ahead);
        RUN(test_given_back);
        RUN(test_few_changes);
        RUN(test_off);
        RUN(test_sparse);
        RUN(test_memory);
        RUN(test_limits);
        RUN(test_full);
        RUN(test_group);
        RUN(test_fork);
        RUN(test_close);
        RUN(test_kill);
        RUN(test_cut_off);
        RUN(test_busy);
        free(state);
        return 0;
}
