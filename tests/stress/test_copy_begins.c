/* A context whose copy is behind is opened: the thread of the copy begins at once, and what it does to
 * the copy is its own.
 *
 * builds: normal asan tsan */
#include "plat/plat.h"
#include "stress.h"
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct plat_calls table;

/* The thread has come far when the program goes on. */
static int start_and_wait(void *(*fn)(void *arg), void *arg, plat_thread *out)
{
        int rc = plat_system.thread_start(fn, arg, out);
        nanosleep(&(struct timespec){0, 300000000}, NULL);
        return rc;
}

static void test_behind(void)
{
        static uint8_t data[100000];
        char path[512];
        char dir[512];
        char options[600];
        snprintf(path, sizeof(path), "%s", stress_pool("behind"));
        snprintf(dir, sizeof(dir), "%s.d", path);
        snprintf(options, sizeof(options), "copy=%s policy=sync io=pwrite versions=1", dir);
        CHECK_EQ(mkdir(dir, 0700), 0);
        struct belay *b = stress_open(path, options);
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, sizeof(data), data), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        b = stress_open(path, "policy=sync io=pwrite versions=1"); /* without its copy */
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, sizeof(data), data), 0);
        for (int i = 0; i < 3; i++) {
                stress_fill(data, sizeof(data), (uint64_t)i);
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK_EQ(belay_close(&b), 0);
        table = plat_system;
        table.thread_start = start_and_wait;
        plat = &table;
        b = stress_open(path, options);
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, sizeof(data), data), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_version(b), 5);
        CHECK_EQ(belay_close(&b), 0);
        plat = &plat_system;
}

int main(void)
{
        RUN(test_behind);
        return 0;
}
