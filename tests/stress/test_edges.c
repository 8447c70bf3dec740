/* Arrays at any address, of any size, side by side as malloc gives them: what a region shares a page
 * with is not its own, and is written while the region is being committed. Every version is that of
 * its freeze, under every way to track, to compare and to copy early; and only what changed is
 * written.
 *
 * timeout: 240
 * builds: normal asan tsan */
#include "stress.h"
#include <sys/mman.h>
#include <time.h>

#define ARRAYS   14u
#define VERSIONS 14u
#define PAGE     4096u
#define GAP      16u /* malloc's header, as it were */

static const uint32_t sizes[ARRAYS] = {100,       4096,   5000,  16400,  20480, 24576,  40000,
                                       64u << 10, 100000, 65537, 262144, 4095,  700001, 8192 + 1};

struct many {
        struct belay *b;
        char path[4096];
        uint8_t *memory, *p[ARRAYS], *frozen[ARRAYS];
        bool attached[ARRAYS];
        uint64_t bytes, seed;
};

static uint64_t next(struct many *m)
{
        m->seed = m->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return m->seed >> 33;
}

static const char *name_of(uint32_t i)
{
        static char name[16];
        snprintf(name, sizeof(name), "a%u", i);
        return name;
}

static void attach(struct many *m, uint32_t i)
{
        CHECK_EQ(belay_attach(m->b, name_of(i), BELAY_U8, sizes[i], m->p[i]), 0);
        m->attached[i] = true;
}

static void begin(struct many *m, const char *options)
{
        uint64_t at = 2064;
        *m = (struct many){.seed = 7};
        for (uint32_t i = 0; i < ARRAYS; i++)
                m->bytes += sizes[i] + 2u * GAP;
        m->bytes += 2 * PAGE;
        snprintf(m->path, sizeof(m->path), "%s", stress_pool("edges"));
        m->memory =
                mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(m->memory != MAP_FAILED);
        stress_fill(m->memory, m->bytes, 3);
        m->b = stress_open(m->path, options);
        for (uint32_t i = 0; i < ARRAYS; i++) {
                m->p[i] = m->memory + at;
                at += (sizes[i] + GAP + 15) / 16 * 16;
                m->frozen[i] = malloc(sizes[i]);
                attach(m, i);
        }
}

static void end(struct many *m)
{
        stress_close(&m->b);
        for (uint32_t i = 0; i < ARRAYS; i++)
                free(m->frozen[i]);
        CHECK_EQ(munmap(m->memory, m->bytes), 0);
}

static void poke(struct many *m, uint32_t i, uint64_t at)
{
        stress_poke(m->p[i], at, (uint8_t)next(m));
}

/* The first and the last bytes, some pages, everything, nothing. */
static void change(struct many *m, uint32_t i, uint64_t how)
{
        if (how % 5 == 1)
                poke(m, i, next(m) % (sizes[i] < 64 ? sizes[i] : 64));
        if (how % 5 == 2)
                poke(m, i, sizes[i] - 1 - next(m) % (sizes[i] < 20 ? sizes[i] : 20));
        for (int k = 0; how % 5 == 3 && k < 3; k++)
                poke(m, i, next(m) % sizes[i]);
        for (uint64_t at = 0; how % 5 == 4 && at < sizes[i]; at += 512)
                poke(m, i, at);
}

static void freeze(struct many *m)
{
        for (uint32_t i = 0; i < ARRAYS; i++)
                memcpy(m->frozen[i], m->p[i], sizes[i]);
        CHECK_EQ(belay_checkpoint(m->b), 0);
}

/* During the commit: the ends of all arrays, to something else, and of some back again. */
static void disturb(struct many *m)
{
        for (uint32_t i = 0; i < ARRAYS; i++) {
                uint64_t last = sizes[i] - 1;
                stress_poke(m->p[i], 0, m->frozen[i][0] ^ 0x55u);
                stress_poke(m->p[i], last, m->frozen[i][last] ^ 0xaau);
                if (next(m) % 3 == 0) {
                        stress_poke(m->p[i], 0, m->frozen[i][0]);
                        stress_poke(m->p[i], last, m->frozen[i][last]);
                }
                change(m, i, next(m));
        }
}

static void compare(struct many *m)
{
        uint64_t version = belay_version(m->b);
        CHECK_EQ(belay_wait(m->b, version, BELAY_FOREVER), 0);
        for (uint32_t i = 0; i < ARRAYS; i++)
                if (m->attached[i])
                        stress_compare(m->path, version, name_of(i), m->frozen[i], sizes[i]);
}

/* One array leaves while the commit needs it, and comes back before the next. */
static void leave_and_return(struct many *m)
{
        uint32_t i = (uint32_t)(next(m) % ARRAYS);
        CHECK_EQ(belay_detach(m->b, name_of(i)), 0);
        stress_fill(m->p[i], sizes[i], next(m));
        compare(m);
        attach(m, i);
}

static void run(const char *options)
{
        struct many m;
        begin(&m, options);
        for (unsigned v = 0; v < VERSIONS; v++) {
                for (uint32_t i = 0; i < ARRAYS; i++)
                        change(&m, i, v < 4 ? 4 : next(&m));
                freeze(&m);
                disturb(&m);
                if (v % 5 == 4)
                        leave_and_return(&m);
                else
                        compare(&m);
                if (v == 8) { /* what was there before the restart must not count as known */
                        CHECK_EQ(belay_restart(m.b), 1);
                        for (uint32_t i = 0; i < ARRAYS; i++)
                                CHECK(memcmp(m.p[i], m.frozen[i], sizes[i]) == 0 || v % 5 == 4);
                }
                if (strstr(options, "precopy")) {
                        struct timespec t = {0, 15000000};
                        nanosleep(&t, NULL);
                }
        }
        end(&m);
}

static void test_all(void)
{
        static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};
        static const char *const ways[] = {
                "policy=adaptive rate=48MiB",
                "policy=adaptive rate=48MiB unit=16KiB copy_buffer=64KiB",
                "policy=async rate=48MiB copy_buffer=0",
                "policy=sync diff=on",
                "policy=adaptive diff=off rate=64MiB",
                "policy=adaptive diff=pages rate=64MiB unit=32KiB",
                "policy=sync diff=pages",
                "policy=adaptive precopy=immediate",
                "policy=adaptive precopy=immediate diff=off unit=64KiB",
                "policy=adaptive block=4KiB unit=4KiB versions=1 replace=yes",
        };
        for (int t = 0; t < 4; t++)
                for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                        char options[256];
                        if (strstr(ways[i], "pages") && t == 3)
                                continue;
                        snprintf(options, sizeof(options), "tracker=%s %s", trackers[t], ways[i]);
                        run(options);
                }
}

static struct belay_stats checkpoint(struct many *m)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_checkpoint(m->b), 0);
        CHECK_EQ(belay_wait(m->b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(m->b, &s), 0);
        return s;
}

/* What did not change is not written again, at the edges neither; a byte of an edge is one block. */
static void test_only_changes(void)
{
        static const char *const ways[] = {"diff=on", "diff=pages block=4KiB"};
        for (int i = 0; i < 2; i++) {
                struct many m;
                char options[128];
                snprintf(options, sizeof(options), "policy=adaptive tracker=scan %s", ways[i]);
                begin(&m, options);
                for (int k = 0; k < 3; k++)
                        (void)checkpoint(&m);
                CHECK(checkpoint(&m).last_data <= (i == 0 ? 0 : 64u << 10));
                poke(&m, 12, sizes[12] - 1);
                poke(&m, 10, 0);
                struct belay_stats s = checkpoint(&m);
                printf("  %s: %llu bytes for two of them\n", ways[i],
                       (unsigned long long)s.last_data);
                CHECK(s.last_data > 0 && s.last_data <= (i == 0 ? 32u << 10 : 96u << 10));
                end(&m);
        }
}

/* Arrays of many pages are not copied at the freeze, wherever they begin. */
static void test_protected(void)
{
        enum { COUNT = 64, BYTES = 100000 };
        static uint8_t arrays[COUNT][BYTES + GAP];
        struct belay *b = stress_open(stress_pool("protected"), "policy=adaptive diff=off");
        struct belay_stats s = {.size = sizeof(s)};
        for (uint32_t i = 0; i < COUNT; i++)
                CHECK_EQ(belay_attach(b, name_of(i), BELAY_U8, BYTES, arrays[i]), 0);
        stress_fill(arrays, sizeof(arrays), 9);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(s.last_units, COUNT);
        CHECK_EQ(s.last_direct, 0);
        stress_close(&b);
}

int main(void)
{
        RUN(test_all);
        RUN(test_only_changes);
        RUN(test_protected);
        return 0;
}
