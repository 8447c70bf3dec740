/* Blocks of zeros: they take no space in the pool and no memory after a restart, and what was zero
 * and is not any more, or the other way round, comes back exactly. */
#include "stress.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES (UINT64_C(2) << 20)
#define BLOCK 4096u

static uint64_t seed = 7;

static uint64_t draw(uint64_t below)
{
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return (seed >> 33) % below;
}

/* Some blocks become zero, some do not stay so; now and then all of it. */
static void change(uint8_t *p, int version)
{
        uint64_t blocks = BYTES / BLOCK;
        if (version % 7 == 5)
                memset(p, 0, BYTES);
        for (int k = 0; k < 40; k++) {
                uint8_t *at = p + draw(blocks) * BLOCK;
                switch (draw(3)) {
                case 0:
                        memset(at, 0, BLOCK);
                        break;
                case 1:
                        memset(at, 0, BLOCK);
                        at[draw(BLOCK)] = (uint8_t)(1 + draw(255)); /* a single byte is not */
                        break;
                default:
                        stress_fill(at, BLOCK, seed);
                }
        }
}

static void histories(const char *options)
{
        char path[4096];
        char all[256];
        snprintf(path, sizeof(path), "%s", stress_pool("zeros"));
        snprintf(all, sizeof(all), "block=4KiB versions=4 %s", options);
        printf("  %s\n", options);
        struct belay *b = stress_open(path, all);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        uint8_t *before[4] = {NULL};
        for (int v = 1; v <= 16; v++) {
                change(p, v);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
                free(before[v % 4]);
                before[v % 4] = stress_copy(p, BYTES);
                for (int old = v > 3 ? v - 3 : 1; old < v; old++)
                        stress_compare(path, (uint64_t)old, "x", before[old % 4], BYTES);
        }
        CHECK_EQ(belay_close(&b), 0);
        /* Into memory that is not zero, of every version. */
        b = stress_open(path, all);
        p = belay_alloc(b, "x", BELAY_U8, BYTES);
        for (uint64_t v = 16; v > 12; v--) {
                memset(p, 0xa5, BYTES);
                CHECK_EQ(belay_restart_version(b, v, 0), 1);
                CHECK_MEM(p, before[v % 4], BYTES);
        }
        /* And on from there. */
        change(p, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", p, BYTES);
        CHECK_EQ(belay_close(&b), 0);
        for (int i = 0; i < 4; i++)
                free(before[i]);
}

static void test_histories(void)
{
        static const char *const ways[] = {
                "policy=sync media=file",
                "policy=sync media=file checksum=no diff=off",
                "policy=sync media=mapped hash=crc32 tracker=hash",
                "policy=adaptive media=file unit=64KiB",
                "policy=async media=mapped tracker=mprotect unit=64KiB",
                "policy=adaptive media=mapped restart=lazy unit=64KiB",
                "policy=sync media=mapped restart=lazy+verify diff=off",
                "policy=sync media=file replace=no io=pwrite direct=off",
        };
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
                histories(ways[i]);
}

static uint64_t resident(void)
{
        unsigned long long size = 0;
        unsigned long long pages = 0;
        FILE *f = fopen("/proc/self/statm", "re");
        CHECK(f != NULL);
        CHECK_EQ(fscanf(f, "%llu %llu", &size, &pages), 2);
        fclose(f);
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#define LARGE (UINT64_C(512) << 20)
#define WORDS 100

/* One word in each of a hundred blocks. */
static void put_words(uint64_t *p)
{
        for (uint64_t i = 0; i < WORDS; i++)
                p[i * (LARGE / 8 / WORDS) + i % 512] = i + 1;
}

static void check_words(const uint64_t *p)
{
        uint64_t found = 0;
        for (uint64_t i = 0; i < LARGE / 8; i++)
                found += p[i] != 0;
        CHECK_EQ(found, WORDS);
        for (uint64_t i = 0; i < WORDS; i++)
                CHECK_EQ(p[i * (LARGE / 8 / WORDS) + i % 512], i + 1);
}

static void sparse(const char *options, bool attached)
{
        char path[4096];
        struct belay_stats s = {.size = sizeof(s)};
        snprintf(path, sizeof(path), "%s", stress_pool("sparse"));
        printf("  %s%s\n", options, attached ? ", attached" : "");
        struct belay *b = stress_open(path, options);
        uint64_t *p = belay_alloc(b, "x", BELAY_U64, LARGE / 8);
        CHECK(p != NULL);
        put_words(p);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.pool_used < UINT64_C(8) << 20);
        CHECK(s.last_data <= WORDS * UINT64_C(16384));
        CHECK_EQ(s.last_data + s.last_zeros, LARGE);
        CHECK_EQ(belay_close(&b), 0);
        b = stress_open(path, options);
        void *own = NULL;
        if (attached) {
                own = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                CHECK(own != MAP_FAILED);
                CHECK_EQ(belay_attach(b, "x", BELAY_U64, LARGE / 8, own), 0);
                p = own;
        } else {
                p = belay_alloc(b, "x", BELAY_U64, LARGE / 8);
        }
        uint64_t before = resident();
        CHECK_EQ(belay_restart(b), 1);
        uint64_t more = resident() - before;
        if (more > UINT64_C(32) << 20)
                check_failed(__FILE__, __LINE__, "%llu MiB are resident after the restart",
                             (unsigned long long)more >> 20);
        check_words(p);
        CHECK_EQ(belay_close(&b), 0);
        if (own)
                munmap(own, LARGE);
        unlink(path);
}

static void test_sparse(void)
{
        sparse("media=file", false);
        sparse("media=mapped", true);
        sparse("media=mapped restart=lazy", false);
}

int main(void)
{
        RUN(test_histories);
        RUN(test_sparse);
        return 0;
}
