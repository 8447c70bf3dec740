/* test_limit.c: a pool that may not grow further. The version before stays, the program goes on,
 * and what fits again is stored again. */
#include "subject.h"
#include "check.h"
#include <errno.h>

#define LIMIT (1u << 20)

static char pool[4200];
static uint8_t *memory;
static uint8_t *copy;
#define LARGEST (3u << 20)

static void fill(uint64_t bytes, uint64_t seed)
{
        struct test_random rng = {seed};
        for (uint64_t i = 0; i < bytes; i++)
                memory[i] = (uint8_t)test_random_next(&rng);
        memcpy(copy, memory, bytes);
}

static uint64_t file_bytes(void)
{
        struct stat st;
        CHECK(stat(pool, &st) == 0);
        return (uint64_t)st.st_size;
}

static struct belay *open_limited(const struct setup *media, const char *limit)
{
        struct setup setup = *media;
        struct belay *b = NULL;
        setup.versions = "1";
        setup.limit = limit;
        if (setup_open(&setup, pool, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        return b;
}

static void check_restart(struct belay *b, uint64_t bytes, uint64_t version)
{
        memset(memory, 0, bytes);
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, bytes, memory), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), version);
        CHECK_MEM(memory, copy, bytes);
}

/* Too large and small enough in turn: a failed attempt gives all its slots back. */
static void too_large(const struct setup *media)
{
        const uint64_t small = 300000;
        struct belay_stats st = {.size = sizeof(st)};
        struct belay *b = open_limited(media, "1MiB");
        uint64_t used = 0;
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, small, memory), 0);
        for (unsigned i = 0; i < 12; i++) {
                fill(small, i);
                CHECK_EQ(belay_move(b, "memory", small, memory), 0);
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "%s, round %u: %s", media->label, i,
                                     belay_error());
                uint64_t version = belay_version(b);
                CHECK_EQ(belay_stats(b, &st), 0);
                CHECK(i == 0 || st.pool_used == used);
                used = st.pool_used;
                fill(LARGEST, 1000 + i);
                CHECK_EQ(belay_move(b, "memory", LARGEST, memory), 0);
                CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
                CHECK_HAS(belay_error(), "limit");
                CHECK_MEM(memory, copy, LARGEST);
                CHECK_EQ(belay_version(b), version);
                CHECK_EQ(belay_stats(b, &st), 0);
                CHECK_EQ(st.pool_used, used);
                CHECK_EQ(st.checkpoints_failed, i + 1);
                CHECK(file_bytes() <= LIMIT);
        }
        CHECK_EQ(belay_close(&b), 0);
        fill(small, 11);
        b = open_limited(media, "1MiB");
        check_restart(b, small, 12);
        CHECK_EQ(belay_close(&b), 0);
}

/* A limit below what the file already has forbids growth and nothing else. */
static void below_size(const struct setup *media)
{
        const uint64_t bytes = 200000;
        struct belay *b = open_limited(media, NULL);
        CHECK_EQ(belay_attach(b, "memory", BELAY_U8, bytes, memory), 0);
        fill(bytes, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        uint64_t size = file_bytes();
        b = open_limited(media, "64KiB");
        check_restart(b, bytes, 1);
        for (uint64_t i = 2; i < 6; i++) {
                fill(bytes, i);
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "%s: %s", media->label, belay_error());
        }
        CHECK_EQ(file_bytes(), size);
        CHECK_EQ(belay_detach(b, "memory"), 0);
        check_restart(b, bytes, 5);
        CHECK_EQ(belay_close(&b), 0);
}

static void each_media(void (*test)(const struct setup *media))
{
        for (unsigned i = 0; i < media_setup_count(); i++) {
                if (!setup_works(&media_setups[i], pool))
                        continue;
                test(&media_setups[i]);
                (void)unlink(pool);
        }
}

static void test_too_large(void)
{
        each_media(too_large);
}

static void test_below_size(void)
{
        each_media(below_size);
}

int main(void)
{
        test_env_clean();
        snprintf(pool, sizeof(pool), "%s/pool", test_dir());
        memory = malloc(LARGEST);
        copy = malloc(LARGEST);
        CHECK(memory && copy);
        RUN(test_too_large);
        RUN(test_below_size);
        free(memory);
        free(copy);
        return 0;
}
