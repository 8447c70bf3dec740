/* One version in the space of one: a new one that fails leaves none, and the pool says which was
 * lost. It never passes for the old one. */
#include "stress.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (UINT64_C(4) << 20)

static void test_space(void)
{
        char path[4096];
        struct belay_stats s = {.size = sizeof(s)};
        snprintf(path, sizeof(path), "%s", stress_pool("replace"));
        /* Two versions would not fit. */
        struct belay *b = stress_open(path, "policy=adaptive replace=yes limit=5MiB");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        for (uint64_t i = 0; i < 5; i++) {
                stress_fill(p, BYTES, i);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
        }
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.pool_bytes <= UINT64_C(5) << 20);
        p[0]++;
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_failure(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("replace_failure"));
        struct belay *b = stress_open(path, "policy=sync replace=yes limit=5MiB");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        stress_fill(p, BYTES, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        uint8_t *more = belay_alloc(b, "more", BELAY_U8, BYTES);
        stress_fill(more, BYTES, 2);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_EQ(belay_restart(b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "version 1 was replaced");
        CHECK_EQ(belay_free(b, "more"), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

/* A number that cannot be costs nothing. */
static void test_number(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("replace_number"));
        struct belay *b = stress_open(path, "replace=yes");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        stress_fill(p, BYTES, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_next_version(b, 1), 0);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "have been used");
        memset(p, 0, BYTES);
        CHECK_EQ(belay_restart(b), 1);
        stress_compare(path, 1, "x", p, BYTES);
        CHECK_EQ(belay_next_version(b, 7), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_version(b), 7);
        CHECK_EQ(belay_close(&b), 0);
}

/* Writes version after version, each filled with its number, until it is killed. */
static void write_for_ever(const char *path)
{
        struct belay *b = stress_open(path, "policy=adaptive replace=yes rate=64MiB");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        for (int i = 1;; i++) {
                memset(p, i, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
}

static void test_killed(void)
{
        int lost = 0;
        for (int round = 0; round < 12; round++) {
                char path[4096];
                snprintf(path, sizeof(path), "%s", stress_pool("replace_killed"));
                (void)fflush(stdout);
                pid_t pid = fork();
                CHECK(pid >= 0);
                if (pid == 0)
                        write_for_ever(path);
                usleep(100000 + (unsigned)round * 13000);
                CHECK_EQ(kill(pid, SIGKILL), 0);
                CHECK_EQ(waitpid(pid, NULL, 0), pid);
                struct belay *b = stress_open(path, "policy=sync");
                uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
                int rc = belay_restart(b);
                CHECK(rc == 1 || rc == 0 || rc == BELAY_E_DATA);
                lost += rc == BELAY_E_DATA;
                if (rc == BELAY_E_DATA)
                        CHECK_HAS(belay_error(), "was replaced");
                for (uint64_t i = 0; rc == 1 && i < BYTES; i++)
                        CHECK(p[i] == (uint8_t)belay_version(b));
                CHECK_EQ(belay_close(&b), 0);
        }
        printf("  lost in %d of 12 crashes, and never wrong\n", lost);
}

int main(void)
{
        RUN(test_space);
        RUN(test_failure);
        RUN(test_number);
        RUN(test_killed);
        return 0;
}
