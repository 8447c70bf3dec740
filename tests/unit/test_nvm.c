/* The calls of nvm.h: what a program finds again after it was started anew. A run is a child
 * process, which ends without a word. */
#include "check.h"
#include "test_env.h"
#include <belay/nvm.h>
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 300000u

static char pool[4096];

static void begin_pool(const char *name)
{
        const char *dir = getenv("TEST_DIR");
        snprintf(pool, sizeof(pool), "%s/%s.pool", dir ? dir : "/tmp", name);
        (void)unlink(pool);
        CHECK_EQ(setenv("BELAY_POOL", pool, 1), 0);
}

/* One life of the program. */
static void live(void (*life)(void))
{
        (void)fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                life();
                CHECK_EQ(belay_wait(nvcontext(), 0, BELAY_FOREVER), 0);
                _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void first_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        double *m = nv2dalloc(20, 30);
        CHECK(a && b && m);
        CHECK_EQ(a[0], 0);
        for (uint32_t step = 1; step <= 5; step++) {
                memset(a, (int)step, BYTES);
                memset(b, (int)step * 2, BYTES);
                m[20 * 29 + 19] = step;
                CHECK_EQ(nvchkptall(), 0);
        }
        memset(a, 99, BYTES); /* lost */
}

/* Restarts, and checkpoints before all variables have been allocated. */
static void second_life(void)
{
        CHECK_EQ(nvsize(genid("a")), BYTES);
        CHECK_EQ(nvsize(genid("nobody")), 0);
        CHECK(nvalloc(genid("a"), BYTES + 1, 1) == NULL);
        CHECK_HAS(belay_error(), "300000 bytes");
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        CHECK(a != NULL);
        CHECK_EQ(a[BYTES - 1], 5);
        a[7] = 77;
        for (int i = 0; i < 4; i++) { /* more than the pool keeps */
                a[8]++;
                CHECK_EQ(nvchkptall(), 0);
        }
        double *m = nv2dalloc(20, 30);
        CHECK(m && m[20 * 29 + 19] == 5);
        m[0] = 1;
}

/* One variable alone: the others stay as they were, also in the pool. */
static void third_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        double *m = nv2dalloc(20, 30);
        CHECK(a && b && m);
        CHECK_EQ(a[7], 77);
        CHECK_EQ(a[8], 9);
        CHECK_EQ(b[BYTES - 1], 10);
        CHECK(m[0] == 0);
        a[0] = 1;
        b[0] = 2;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        a[0] = 3;
        b[1] = 4;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        CHECK_EQ(nvchkptid(genid("nobody")), -ENOENT);
        CHECK_EQ(nvchkptid(0), -EINVAL);
}

static void fourth_life(void)
{
        uint8_t *a = nvalloc(genid("a"), BYTES, 1);
        uint8_t *b = nvalloc(genid("b"), BYTES, 1);
        CHECK_EQ(a[0], 5); /* not checkpointed since the second life */
        CHECK_EQ(b[0], 2);
        CHECK_EQ(b[1], 4);
        /* What is changed but was not captured is still known to be changed. */
        a[9] = 9;
        CHECK_EQ(nvchkptid(genid("b")), 0);
        CHECK_EQ(nvchkptall(), 0);
        a = nvrealloc(genid("a"), a, 2 * BYTES);
        CHECK(a && a[9] == 9 && a[2 * BYTES - 1] == 0);
        CHECK(nvrealloc(genid("a"), b, BYTES) == NULL);
        CHECK_EQ(nvdelete(genid("b")), 0);
        CHECK_EQ(nvdelete(genid("b")), -ENOENT);
        /* Deleted is deleted, though the newest version has it. */
        CHECK_EQ(nvsize(genid("b")), 0);
        b = nvalloc(genid("b"), BYTES, 1);
        CHECK(b && b[0] == 0 && b[1] == 0);
        CHECK_EQ(nvdelete(genid("b")), 0);
        static uint8_t own[5000];
        memset(own, 42, sizeof(own));
        CHECK_EQ(nvattach(genid("own"), own, sizeof(own)), 0);
        CHECK_EQ(nvchkptall(), 0);
}

static void fifth_life(void)
{
        CHECK_EQ(nvsize(genid("b")), 0);
        CHECK_EQ(nvsize(genid("a")), 2 * BYTES);
        uint8_t *a = nvalloc(genid("a"), 2 * BYTES, 1);
        uint8_t *fresh = nvalloc(genid("own"), 5000, 0);
        CHECK_EQ(a[9], 9);
        CHECK(fresh && fresh[0] == 0);
        CHECK_EQ(nvclose(), 0);
        CHECK_EQ(nvclose(), 0);
        uint8_t *again = nvalloc(genid("own"), 5000, 1);
        CHECK(again && again[4999] == 42);
}

static void test_lives(void)
{
        static const char *const ways[] = {"sync", "adaptive"};
        static const char *const restarts[] = {"eager", "lazy", "lazy+verify"};
        CHECK_EQ(setenv("BELAY_MEDIA", "mapped", 1), 0);
        for (int i = 0; i < 2; i++)
                for (int k = 0; k < 3; k++) {
                        CHECK_EQ(setenv("BELAY_POLICY", ways[i], 1), 0);
                        CHECK_EQ(setenv("BELAY_RESTART", restarts[k], 1), 0);
                        begin_pool("nvm");
                        live(first_life);
                        live(second_life);
                        live(third_life);
                        live(fourth_life);
                        live(fifth_life);
                }
}

/* While the next version is being copied early, the pool can be asked all the same, and nothing
 * passes for damaged. */
static void test_precopy(void)
{
        begin_pool("nvm_precopy");
        CHECK_EQ(setenv("BELAY_PRECOPY", "immediate", 1), 0);
        uint8_t *a = nvalloc(genid("a"), 4 << 20, 0);
        CHECK(a != NULL);
        for (int i = 0; i < 6; i++) {
                memset(a, i + 1, 4 << 20);
                CHECK_EQ(nvchkptall(), 0);
                usleep(5000);
                memset(a, i + 100, 4 << 20);
                usleep(5000);
                CHECK_EQ(nvsize(genid("a")), 4 << 20);
        }
        uint8_t *late = nvalloc(genid("late"), 1000, 1);
        CHECK(late && late[0] == 0);
        CHECK_EQ(belay_restart(nvcontext()), BELAY_E_MISMATCH); /* "late" is not in it */
        CHECK_EQ(nvclose(), 0);
        CHECK_EQ(unsetenv("BELAY_PRECOPY"), 0);
}

static void test_mistakes(void)
{
        begin_pool("nvm_mistakes");
        CHECK_EQ(genid(NULL), 0);
        CHECK_EQ(genid(""), 0);
        CHECK(nvalloc(0, 10, 1) == NULL);
        CHECK_HAS(belay_error(), "genid");
        CHECK(genid("x") == genid("x") && genid("x") != genid("y"));
        CHECK(nvalloc(genid("x"), 10, 1) != NULL);
        CHECK(nvalloc(genid("x"), 10, 1) == NULL);
        CHECK(nv2dalloc_id(genid("y"), 2, 2, 0, 1) == NULL);
        CHECK(nvcontext() != NULL);
        CHECK_EQ(nvclose(), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_lives);
        RUN(test_precopy);
        RUN(test_mistakes);
        return 0;
}
