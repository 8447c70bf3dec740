/* What opening a pool must do, and must not do to the program. */
#include "check.h"
#include "plat/plat.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char path[4096];
static uint64_t data[300000];

static int open_pool(const char *name, const char *media, struct belay **out)
{
        struct belay_config *c;
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", media), 0);
        CHECK_EQ(belay_config_set(c, "io", "pwrite"), 0);
        int rc = belay_open(c, out);
        belay_config_delete(&c);
        if (rc == 0)
                CHECK_EQ(belay_attach(*out, "data", BELAY_U64, ARRAY_LEN(data), data), 0);
        return rc;
}

static struct plat_calls table;
static int writes, barriers, early;

static int64_t count_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        writes++;
        early += barriers == 0;
        return plat_system.pwrite(fd, buf, bytes, offset);
}

static void count_store(void *to, const void *from, size_t bytes)
{
        writes++;
        early += barriers == 0;
        plat_system.store(to, from, bytes);
}

static int count_fdatasync(int fd)
{
        barriers++;
        return plat_system.fdatasync(fd);
}

/* A killed process may have written a superblock and not flushed it. Whoever builds on it flushes
 * it first. */
static void barrier_first(const char *media)
{
        struct belay *b;
        CHECK_EQ(open_pool(media, media, &b), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        table = plat_system;
        table.pwrite = count_pwrite;
        table.store = count_store;
        table.fdatasync = count_fdatasync;
        writes = barriers = early = 0;
        plat = &table;
        CHECK_EQ(open_pool(media, media, &b), 0);
        data[5]++;
        CHECK_EQ(belay_checkpoint(b), 0);
        plat = &plat_system;
        CHECK(writes > 0);
        CHECK_EQ(early, 0);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_barrier_first(void)
{
        barrier_first("file");
        barrier_first("mapped");
}

/* Beyond the limit a write would be SIGXFSZ. */
static void limited_child(const char *media)
{
        struct belay *b;
        struct rlimit limit = {1 << 20, 1 << 20};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        CHECK_EQ(open_pool("limited", media, &b), 0);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "ulimit -f");
        CHECK_EQ(belay_close(&b), 0);
        limit.rlim_cur = 4096;
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
        CHECK_EQ(open_pool("limited", media, &b), -EFBIG);
        CHECK_EQ(open_pool("none", media, &b), -EFBIG);
}

static void in_child(void (*fn)(const char *arg), const char *arg)
{
        int status;
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                fn(arg);
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
}

static void test_file_size_limit(void)
{
        in_child(limited_child, "file");
        CHECK_EQ(unlink(path) == 0 || errno == ENOENT, 1);
        in_child(limited_child, "mapped");
}

/* A helper that the program forked must not keep the pool locked after the program was killed. */
#define SHOWN (UINT64_C(1) << 20)

/* A region that shows pages of the pool. */
static void restart_lazily(struct belay *b)
{
        char line[8192];
        bool mapped = false;
        CHECK(belay_alloc(b, "shown", BELAY_U8, SHOWN) != NULL);
        CHECK_EQ(belay_restart(b), 1);
        FILE *f = fopen("/proc/self/maps", "r");
        CHECK(f != NULL);
        while (fgets(line, sizeof(line), f))
                mapped = mapped || strstr(line, "forked");
        CHECK_EQ(fclose(f), 0);
        CHECK(mapped);
}

static void lock_ends(const char *media, bool lazy)
{
        int pipes[2];
        struct belay *b;
        CHECK_EQ(pipe(pipes), 0);
        pid_t program = fork();
        CHECK(program >= 0);
        if (program == 0) {
                CHECK_EQ(open_pool("forked", media, &b), 0);
                if (lazy)
                        restart_lazily(b);
                pid_t helper = fork();
                if (helper == 0) { /* says so itself: only then has it closed what is not its own */
                        helper = getpid();
                        CHECK_EQ(write(pipes[1], &helper, sizeof(helper)), sizeof(helper));
                        pause();
                        _exit(0);
                }
                pause();
                _exit(0);
        }
        pid_t helper;
        CHECK_EQ(read(pipes[0], &helper, sizeof(helper)), sizeof(helper));
        CHECK_EQ(open_pool("forked", media, &b), -EBUSY);
        CHECK_EQ(kill(program, SIGKILL), 0);
        CHECK_EQ(waitpid(program, NULL, 0), program);
        int rc = open_pool("forked", media, &b);
        CHECK_EQ(kill(helper, SIGKILL), 0);
        CHECK_EQ(rc, 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(close(pipes[0]) | close(pipes[1]), 0);
}

static void test_lock_ends_with_the_process(void)
{
        struct belay *b;
        lock_ends("file", false);
        lock_ends("mapped", false);
        CHECK_EQ(open_pool("forked", "file", &b), 0);
        uint8_t *shown = belay_alloc(b, "shown", BELAY_U8, SHOWN);
        CHECK(shown != NULL);
        for (uint64_t i = 0; i < SHOWN; i++)
                shown[i] = (uint8_t)(i % 251);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(setenv("BELAY_RESTART", "lazy", 1), 0);
        lock_ends("mapped", true);
        CHECK_EQ(unsetenv("BELAY_RESTART"), 0);
}

static bool raced;

/* Between creation and lock of the temporary file another process takes it for a left-over and
 * makes its own. */
static int race_flock(int fd)
{
        if (!raced) {
                char command[5000];
                raced = true;
                snprintf(command, sizeof(command), "cd '%s' && rm .belay-*.new", test_dir());
                CHECK_EQ(system(command), 0);
        }
        return plat_system.flock(fd);
}

static void test_creation_race(void)
{
        struct belay *b;
        table = plat_system;
        table.flock = race_flock;
        plat = &table;
        int rc = open_pool("raced", "file", &b);
        plat = &plat_system;
        CHECK(raced);
        CHECK_EQ(rc, 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(open_pool("raced", "file", &b), 0);
        data[0] = 99;
        CHECK_EQ(belay_restart(b), 1);
        CHECK(data[0] != 99);
        CHECK_EQ(belay_close(&b), 0);
}

/* Processes that share a device book its time in a file of this name. If a pool has it, the
 * bookings would go into its superblock. */
static void test_pool_as_device(void)
{
        struct belay *b;
        CHECK_EQ(open_pool(".belay-device", "file", &b), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(setenv("BELAY_DEVICE_RATE", "1GiB", 1), 0);
        CHECK_EQ(open_pool(".belay-device", "file", &b), -EEXIST);
        CHECK_HAS(belay_error(), "option device_rate");
        CHECK_EQ(open_pool("beside", "file", &b), -EEXIST);
        CHECK_EQ(unsetenv("BELAY_DEVICE_RATE"), 0);
        CHECK_EQ(open_pool(".belay-device", "file", &b), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

int main(void)
{
        test_env_clean();
        for (uint64_t i = 0; i < ARRAY_LEN(data); i++)
                data[i] = i * 77;
        RUN(test_barrier_first);
        RUN(test_file_size_limit);
        RUN(test_lock_ends_with_the_process);
        RUN(test_creation_race);
        RUN(test_pool_as_device);
        return 0;
}
