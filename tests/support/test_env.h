/* test_env.h: the environment a test begins with.
 *
 * Checkpoints are synchronous unless a test asks for something else: most tests are about what is
 * in the pool, and look at it when the call returns. tests/stress/ is about the other policies.
 *
 * The library reads every variable BELAY_<KEY> as an option and refuses unknown ones. A test sets
 * its options itself, so whatever the caller's environment holds must not reach the library. */
#ifndef TESTS_TEST_ENV_H
#define TESTS_TEST_ENV_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern char **environ;

static inline void test_env_clean(void)
{
        for (size_t i = 0; environ && environ[i];) {
                char name[128];
                size_t n = strcspn(environ[i], "=");
                if (strncmp(environ[i], "BELAY_", 6) != 0 || n >= sizeof(name)) {
                        i++;
                        continue;
                }
                memcpy(name, environ[i], n);
                name[n] = '\0';
                unsetenv(name);
                i = 0; /* the array has moved up */
        }
        setenv("BELAY_POLICY", "sync", 1);
}

/* A variable of the test runner, under its present or its former name. NULL if neither is set. */
static inline const char *test_env(const char *name)
{
        char former[64];
        char key[64];
        snprintf(key, sizeof(key), "TEST_%s", name);
        snprintf(former, sizeof(former), "BELAY_%s", name);
        const char *value = getenv(key);
        return value ? value : getenv(former);
}

/* Numbers that are the same on every machine for the same seed (splitmix64). */
struct test_random {
        uint64_t state;
};

static inline uint64_t test_random_next(struct test_random *r)
{
        uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

/* A number from 0 to below - 1; below > 0. */
static inline uint64_t test_random_below(struct test_random *r, uint64_t below)
{
        return test_random_next(r) % below;
}

static inline uint64_t test_seed_of_time(void)
{
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) % 1000000007u;
}

#endif
