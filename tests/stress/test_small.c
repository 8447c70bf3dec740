/* Small blocks share slots: how much of a pool they leave unused, and that moving them together
 * does not take the space that a version needs. */
#include "stress.h"

#define BYTES (UINT64_C(8) << 20)

struct world {
        struct belay *b;
        uint8_t *p;
        uint64_t seed;
};

static void begin(struct world *w, const char *options)
{
        char path[4096];
        char all[256];
        snprintf(path, sizeof(path), "%s", stress_pool("small"));
        snprintf(all, sizeof(all), "policy=sync tracker=hash block=128 diff=on %s", options);
        *w = (struct world){.b = stress_open(path, all), .seed = 5};
        w->p = belay_alloc(w->b, "x", BELAY_U8, BYTES);
        stress_fill(w->p, BYTES, 1);
}

static void change(struct world *w, uint64_t blocks)
{
        for (uint64_t k = 0; k < blocks; k++) {
                w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
                w->p[(w->seed >> 33) % BYTES]++;
        }
}

static uint64_t used(struct world *w)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(w->b, &s), 0);
        return s.pool_used;
}

/* What few blocks of every unit take is what they are, not a slot for each unit. */
static void test_growth(void)
{
        static const char *const ways[] = {"media=file", "media=mapped", "media=file unit=2MiB"};
        for (int i = 0; i < 3; i++) {
                struct world w;
                begin(&w, ways[i]);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                uint64_t before = used(&w);
                for (int v = 0; v < 20; v++) {
                        change(&w, 128);
                        CHECK_EQ(belay_checkpoint(w.b), 0);
                }
                printf("  %s: %llu KiB more\n", ways[i],
                       (unsigned long long)(used(&w) - before) / 1024);
                CHECK(used(&w) - before < UINT64_C(2) << 20);
                CHECK_EQ(belay_close(&w.b), 0);
        }
}

/* Versions out of 100 that a pool which may not grow has room for. */
static int versions_in(const char *limit)
{
        struct world w;
        char options[64];
        int v = 0;
        snprintf(options, sizeof(options), "media=file versions=2 limit=%s", limit);
        begin(&w, options);
        for (; v < 100; v++) {
                change(&w, BYTES / 128 / 50);
                if (belay_checkpoint(w.b))
                        break;
        }
        printf("  %s: %d versions\n", limit, v);
        CHECK_EQ(belay_close(&w.b), 0);
        return v;
}

/* Without moving blocks together 24 MiB are full after 66 versions, and after 74 when that takes
 * the space that the version itself needs. With 23 MiB it runs out of space in version 53: then
 * blocks stay where they are, and the version succeeds. */
static void test_limit(void)
{
        CHECK_EQ(versions_in("24MiB"), 100);
        CHECK(versions_in("23MiB") > 60);
}

int main(void)
{
        RUN(test_growth);
        RUN(test_limit);
        return 0;
}
