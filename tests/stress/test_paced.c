/* Memory that stands for slower memory: nobody is faster than it would be. How much slower things
 * are than asked for is not looked at.
 *
 * builds: normal asan tsan */
#include "stress.h"
#include <time.h>

#define BYTES (UINT64_C(8) << 20)

static double now(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds until two contexts have saved BYTES each, at the same time. */
static double save_two(const char *options)
{
        struct belay *b[2];
        for (int i = 0; i < 2; i++) {
                char path[4096];
                snprintf(path, sizeof(path), "%s", stress_pool(i ? "paced_b" : "paced_a"));
                b[i] = stress_open(path, options);
                stress_fill(belay_alloc(b[i], "x", BELAY_U8, BYTES), BYTES, (uint64_t)i);
        }
        double start = now();
        for (int i = 0; i < 2; i++)
                CHECK_EQ(belay_checkpoint(b[i]), 0);
        for (int i = 0; i < 2; i++)
                CHECK_EQ(belay_wait(b[i], 0, BELAY_FOREVER), 0);
        double seconds = now() - start;
        for (int i = 0; i < 2; i++)
                stress_close(&b[i]);
        printf("  %s: %.2f s\n", options, seconds);
        return seconds;
}

static void test_paced(void)
{
        CHECK(save_two("policy=async media=mapped rate=64MiB") >= 0.12);
        CHECK(save_two("policy=async media=mapped device_rate=64MiB") >= 0.24);
        CHECK(save_two("policy=async media=file device_rate=64MiB") >= 0.24);
        /* In pieces of 64 KiB. */
        CHECK(save_two("policy=async media=mapped latency=2ms") >= 0.24);
}

int main(void)
{
        RUN(test_paced);
        return 0;
}
