/* test_growth.c: the pool stays small under steady work.
 *
 * K versions are retained and one more is written beside them, so at most (K + 1) × live bytes are
 * ever in use, metadata (24 bytes per block, one manifest) aside. The file may be 1.3 times as
 * large and 2 MiB more. Blocks smaller than a slot keep all of it until they are moved: they get
 * twice the live bytes more, and 4 MiB. */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <stdbool.h>

enum { LIVE = 6 << 20, ROUNDS = 120 };

struct course {
        const char *name;
        unsigned keep, block;
        unsigned share; /* of each round: one block in so many changes       */
        bool settles;   /* … one in so many changes no more, the others do   */
};

/* Blocks that settle one by one are the worst for small blocks: each keeps a slot of its own, in
 * which all others have moved on. */
static void scribble(struct test_random *r, uint8_t *p, const struct course *c)
{
        static uint8_t settled[LIVE / 128];
        for (uint64_t at = 0; at < LIVE; at += c->block) {
                bool one = test_random_below(r, c->share) == 0;
                uint8_t *rests = &settled[at / c->block];
                *rests = c->settles && (*rests || one);
                if (c->settles ? !*rests : one)
                        p[at + test_random_below(r, c->block)]++;
        }
}

static void run(const struct course *c, uint64_t seed)
{
        struct test_random r = {seed};
        struct belay_config *config = NULL;
        struct belay *b = NULL;
        char path[4200];
        char text[32];
        uint64_t most = 0;
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        CHECK_EQ(belay_config_new(&config), 0);
        CHECK_EQ(belay_config_set(config, "pool", path), 0);
        snprintf(text, sizeof(text), "%u", c->keep);
        CHECK_EQ(belay_config_set(config, "versions", text), 0);
        snprintf(text, sizeof(text), "%u", c->block);
        CHECK_EQ(belay_config_set(config, "block", text), 0);
        if (belay_open(config, &b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        uint8_t *p = belay_alloc(b, "live", BELAY_U8, LIVE);
        CHECK(p != NULL);
        for (int i = 0; i < ROUNDS; i++) {
                struct belay_stats s = {.size = sizeof(s)};
                scribble(&r, p, c);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
                most = s.pool_bytes;
        }
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&config);
        unlink(path);
        uint64_t bound = (uint64_t)(c->keep + 1) * LIVE / 10 * 13 + (2u << 20);
        if (c->block < 4096)
                bound += 2u * LIVE + (4u << 20);
        printf("  %s: %llu bytes, bound %llu\n", c->name, (unsigned long long)most,
               (unsigned long long)bound);
        CHECK(most <= bound);
}

int main(void)
{
        static const struct course courses[] = {
                {"everything changes", 2, 16384, 1, false},
                {"half changes", 2, 16384, 2, false},
                {"a tenth changes", 2, 16384, 10, false},
                {"one version, a tenth", 1, 4096, 10, false},
                {"four versions, a third", 4, 65536, 3, false},
                {"small blocks, a tenth", 2, 512, 10, false},
                {"smallest blocks, a third", 2, 128, 3, false},
                {"small blocks, a thousandth", 2, 1024, 1000, false},
                {"small blocks settle", 2, 512, 8, true},
                {"smallest blocks settle", 2, 128, 32, true}};
        const char *text = getenv("TEST_SEED");
        uint64_t seed = text && *text ? strtoull(text, NULL, 10) : test_seed_of_time();
        test_env_clean();
        printf("seed %llu\n", (unsigned long long)seed);
        for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); i++)
                run(&courses[i], seed + i);
        return 0;
}
