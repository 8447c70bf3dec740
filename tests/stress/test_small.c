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

/* In a pool that may not grow, versions go on for longer than without moving (65), and one that
 * failed is not the end of it. */
static void test_limit(void)
{
        struct world w;
        int first = 0;
        int later = 0;
        begin(&w, "media=file versions=2 limit=24MiB");
        for (int v = 0; v < 100; v++) {
                change(&w, BYTES / 128 / 50);
                int rc = belay_checkpoint(w.b);
                CHECK(rc == 0 || rc == BELAY_E_CHECKPOINT);
                first = rc && !first ? v : first;
                later += rc == 0 && first;
        }
        printf("  the first that failed is %d, %d after it did not\n", first, later);
        CHECK(first == 0 || first >= 65);
        CHECK_EQ(belay_close(&w.b), 0);
}

int main(void)
{
        RUN(test_growth);
        RUN(test_limit);
        return 0;
}
