/* test_growth.c: the pool stays small under steady work.
 *
 * K versions are retained and one more is written beside them, so at most (K + 1) × live bytes are
 * ever in use, metadata (24 bytes per block, one manifest) aside. The file may be 1.3 times as
 * large, see model_growth.c, and 2 MiB more. It is so for blocks of a slot and more; a smaller
 * block keeps its whole slot, which model_growth.c accounts for. */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>

enum { LIVE = 6 << 20, ROUNDS = 120 };

struct course {
        const char *name;
        unsigned keep, block;
        unsigned share; /* of each round: one block in so many changes */
};

static void scribble(struct test_random *r, uint8_t *p, const struct course *c)
{
        for (uint64_t at = 0; at < LIVE; at += c->block)
                if (test_random_below(r, c->share) == 0)
                        p[at + test_random_below(r, c->block)]++;
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
        printf("  %s: %llu bytes, bound %llu\n", c->name, (unsigned long long)most,
               (unsigned long long)bound);
        CHECK(most <= bound);
}

int main(void)
{
        static const struct course courses[] = {{"everything changes", 2, 16384, 1},
                                                {"half changes", 2, 16384, 2},
                                                {"a tenth changes", 2, 16384, 10},
                                                {"one version, a tenth", 1, 4096, 10},
                                                {"four versions, a third", 4, 65536, 3}};
        const char *text = getenv("TEST_SEED");
        uint64_t seed = text && *text ? strtoull(text, NULL, 10) : test_seed_of_time();
        test_env_clean();
        printf("seed %llu\n", (unsigned long long)seed);
        for (size_t i = 0; i < sizeof(courses) / sizeof(courses[0]); i++)
                run(&courses[i], seed + i);
        return 0;
}
