/* What stays in the pool besides the last versions: what a living reader has pinned, and the newest
 * confirmed one. A reader that dies delays nothing, and one that holds too much is named.
 * builds: normal asan tsan */
#include "api/api_int.h"
#include "stress.h"
#include "test_env.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define BYTES 100000u

static uint8_t data[BYTES];

static uint64_t checkpoint(struct belay *b)
{
        stress_fill(data, BYTES, belay_version(b) + 1);
        if (belay_checkpoint(b) || belay_wait(b, 0, BELAY_FOREVER))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        return belay_version(b);
}

static void check_version(const char *path, uint64_t version)
{
        uint8_t *expected = malloc(BYTES);
        stress_fill(expected, BYTES, version);
        stress_compare(path, version, "a", expected, BYTES);
        free(expected);
}

static bool lists(struct belay *b, uint64_t version)
{
        return pool_find_version(b->levels.pool, version) != NULL;
}

static struct pool *open_reader(const char *path, struct budget *budget)
{
        struct pool_options o = {.path = path, .readonly = true, .io = IO_PWRITE, .budget = budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        return p;
}

/* A process that pins the version, and says so. */
static int start_reader(const char *path, uint64_t version)
{
        int ready[2];
        char byte;
        CHECK_EQ(pipe(ready), 0);
        int pid = fork();
        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                struct budget budget = {.limit = 64 << 20};
                struct pool *p = open_reader(path, &budget);
                CHECK_EQ(pool_pin(p, version), 0);
                CHECK_EQ(write(ready[1], "x", 1), 1);
                for (;;)
                        pause();
        }
        (void)close(ready[1]);
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        (void)close(ready[0]);
        return pid;
}

static void end_reader(int pid)
{
        CHECK_EQ(kill(pid, SIGKILL), 0);
        CHECK_EQ(stress_reap(pid), 1000 + SIGKILL);
}

static struct belay *open_writer(const char *path, const char *options)
{
        struct belay *b = stress_open(path, options);
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, BYTES, data), 0);
        return b;
}

static void test_pinned(void)
{
        char path[512];
        snprintf(path, sizeof(path), "%s", stress_pool("pinned"));
        struct belay *b = open_writer(path, "versions=2");
        (void)checkpoint(b);
        (void)checkpoint(b);
        int pid = start_reader(path, 1);
        for (int i = 0; i < 10; i++)
                (void)checkpoint(b);
        CHECK(lists(b, 1) && lists(b, 11) && lists(b, 12) && !lists(b, 2) && !lists(b, 10));
        check_version(path, 1);
        end_reader(pid);
        (void)checkpoint(b);
        CHECK(!lists(b, 1));
        CHECK_EQ(belay_close(&b), 0);
}

/* Handles of one process are strangers; a pin ends with its handle, or when it was taken back as
 * often as it was taken. */
static void test_handles(void)
{
        char path[512];
        struct budget budget = {.limit = 64 << 20};
        snprintf(path, sizeof(path), "%s", stress_pool("handles"));
        struct belay *b = open_writer(path, "versions=1");
        (void)checkpoint(b);
        struct pool *one = open_reader(path, &budget);
        struct pool *two = open_reader(path, &budget);
        CHECK_EQ(pool_pin(one, 1), 0);
        CHECK_EQ(pool_pin(one, 1), 0);
        CHECK_EQ(pool_pin(two, 1), 0);
        (void)checkpoint(b);
        CHECK(lists(b, 1));
        pool_unpin(one, 1);
        CHECK_EQ(pool_close(&two), 0);
        (void)checkpoint(b);
        CHECK(lists(b, 1));
        pool_unpin(one, 1);
        (void)checkpoint(b);
        CHECK(!lists(b, 1));
        CHECK_EQ(pool_pin(one, 1), -ESTALE);
        CHECK_EQ(pool_close(&one), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* A child that was forked before the first pin has the file, too: it keeps nothing. */
static void test_child(void)
{
        char path[512];
        struct budget budget = {.limit = 64 << 20};
        snprintf(path, sizeof(path), "%s", stress_pool("child"));
        struct belay *b = open_writer(path, "versions=1");
        (void)checkpoint(b);
        struct pool *p = open_reader(path, &budget);
        int pid = fork();
        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        pause();
        }
        CHECK_EQ(pool_pin(p, 1), 0);
        (void)checkpoint(b);
        CHECK(lists(b, 1));
        CHECK_EQ(pool_close(&p), 0);
        (void)checkpoint(b);
        CHECK(!lists(b, 1));
        end_reader(pid);
        CHECK_EQ(belay_close(&b), 0);
}

static struct plat_calls locking;
static int refusals; /* of shared locks, from now on */

static int refuse(int fd, uint64_t offset, enum plat_lock how)
{
        return how == PLAT_LOCK_SHARED && refusals-- > 0 ? -EAGAIN
                                                         : plat_system.lock_byte(fd, offset, how);
}

/* A version is gone when it is not listed, not when somebody has a lock on its byte. */
static void test_seized(void)
{
        char path[512];
        struct budget budget = {.limit = 64 << 20};
        snprintf(path, sizeof(path), "%s", stress_pool("seized"));
        struct belay *b = open_writer(path, "versions=1");
        (void)checkpoint(b);
        struct pool *p = open_reader(path, &budget);
        locking = plat_system;
        locking.lock_byte = refuse;
        plat = &locking;
        refusals = 3;
        CHECK_EQ(pool_pin(p, 1), 0);
        pool_unpin(p, 1);
        refusals = 1000;
        CHECK_EQ(pool_pin(p, 1), -EAGAIN);
        CHECK_HAS(err_text(), "cannot be pinned");
        (void)checkpoint(b);
        refusals = 1000;
        CHECK_EQ(pool_pin(p, 1), -ESTALE);
        plat = &plat_system;
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* Pins one version after the other until nothing fits any more. */
static void test_limit(void)
{
        enum { READERS = 8 };
        char path[512];
        char process[32];
        int pids[READERS] = {0};
        int count = 0;
        int rc = 0;
        snprintf(path, sizeof(path), "%s", stress_pool("limit"));
        struct belay *b = open_writer(path, "versions=1 limit=600KiB");
        for (int i = 0; i < 5; i++)
                (void)checkpoint(b);
        while (rc == 0) {
                CHECK(count < READERS);
                pids[count++] = start_reader(path, belay_version(b));
                stress_fill(data, BYTES, belay_version(b) + 1);
                rc = belay_checkpoint(b);
                if (rc == 0)
                        rc = belay_wait(b, 0, BELAY_FOREVER);
        }
        CHECK(count > 1);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        snprintf(process, sizeof(process), "process %d ", pids[0]);
        CHECK_HAS(belay_error(), "limit");
        CHECK_HAS(belay_error(), process);
        for (int i = 0; i < count; i++)
                end_reader(pids[i]);
        (void)checkpoint(b);
        (void)checkpoint(b);
        CHECK_EQ(belay_close(&b), 0);
}

/* A reader of what stays anyway is not to blame. */
static void test_not_blamed(void)
{
        char path[512];
        snprintf(path, sizeof(path), "%s", stress_pool("not_blamed"));
        struct belay *b = open_writer(path, "versions=2 limit=300KiB");
        (void)checkpoint(b);
        (void)checkpoint(b);
        int newer = start_reader(path, 2);
        int older = start_reader(path, 1);
        stress_fill(data, BYTES, 3);
        int rc = belay_checkpoint(b);
        if (rc == 0)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "limit");
        CHECK(strstr(belay_error(), "process") == NULL);
        end_reader(newer);
        end_reader(older);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_most_versions(void)
{
        enum { READERS = 63 };
        char path[512];
        int pids[READERS];
        snprintf(path, sizeof(path), "%s", stress_pool("most"));
        struct belay *b = open_writer(path, "versions=1");
        for (int i = 0; i < READERS; i++) {
                uint64_t version = checkpoint(b);
                pids[i] = start_reader(path, version);
        }
        (void)checkpoint(b);
        int rc = belay_checkpoint(b);
        if (rc == 0)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "holds version");
        for (int i = 0; i < READERS; i++) {
                check_version(path, (uint64_t)i + 1);
                end_reader(pids[i]);
        }
        (void)checkpoint(b);
        CHECK_EQ(pool_version_count(b->levels.pool), 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_confirmed(void)
{
        char path[512];
        snprintf(path, sizeof(path), "%s", stress_pool("confirmed"));
        struct belay *b = open_writer(path, "versions=2");
        for (int i = 0; i < 3; i++)
                (void)checkpoint(b);
        CHECK_EQ(belay_confirm(b, 2), 0);
        for (int i = 0; i < 5; i++)
                (void)checkpoint(b);
        CHECK(lists(b, 2) && lists(b, 7) && lists(b, 8) && !lists(b, 3));
        CHECK_EQ(belay_close(&b), 0);
        b = open_writer(path, "versions=2");
        CHECK_EQ(belay_restart(b), 1);
        (void)checkpoint(b);
        CHECK(lists(b, 2)); /* it is in the pool itself */
        CHECK_EQ(belay_confirm(b, 9), 0);
        (void)checkpoint(b);
        (void)checkpoint(b);
        (void)checkpoint(b);
        CHECK(!lists(b, 2) && lists(b, 9));
        check_version(path, 9);
        CHECK_EQ(belay_close(&b), 0);
}

/* A version that does not exist cannot be confirmed; and whoever asks the store for it gets a pool
 * that can be read. */
static void test_confirmed_too_early(void)
{
        char path[512];
        snprintf(path, sizeof(path), "%s", stress_pool("early"));
        struct belay *b = open_writer(path, "versions=2");
        CHECK_EQ(belay_confirm(b, 1), -ENOENT);
        CHECK_HAS(belay_error(), "no version 1 yet");
        (void)checkpoint(b);
        CHECK_EQ(belay_confirm(b, 1), 0);
        CHECK_EQ(belay_confirm(b, 2), -ENOENT);
        CHECK_EQ(belay_confirm(b, UINT64_MAX), -ENOENT);
        (void)checkpoint(b);
        pool_confirm(b->levels.pool, 1000);
        (void)checkpoint(b);
        (void)checkpoint(b);
        CHECK_EQ(belay_close(&b), 0);
        b = open_writer(path, "versions=2");
        CHECK_EQ(belay_confirm(b, 4), 0); /* it is in the pool */
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 4);
        CHECK_EQ(belay_close(&b), 0);
}

static void numbers(const char *options)
{
        char path[512];
        snprintf(path, sizeof(path), "%s", stress_pool("numbers"));
        struct belay *b = open_writer(path, options);
        CHECK_EQ(belay_next_version(b, 100), 0);
        stress_fill(data, BYTES, 100);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 100, BELAY_FOREVER), 0);
        CHECK_EQ(belay_version(b), 100);
        CHECK_EQ(checkpoint(b), 101);
        CHECK_EQ(belay_next_version(b, 101), 0);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "have been used");
        CHECK_EQ(belay_next_version(b, 0), -EINVAL);
        CHECK_EQ(checkpoint(b), 102);
        check_version(path, 102);
        CHECK_EQ(belay_close(&b), 0);
        b = open_writer(path, options);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 102);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_numbers(void)
{
        numbers("policy=sync");
        numbers("policy=adaptive");
        numbers("precopy=immediate");
}

int main(void)
{
        RUN(test_pinned);
        RUN(test_handles);
        RUN(test_child);
        RUN(test_seized);
        RUN(test_limit);
        RUN(test_not_blamed);
        RUN(test_most_versions);
        RUN(test_confirmed);
        RUN(test_confirmed_too_early);
        RUN(test_numbers);
        return 0;
}
