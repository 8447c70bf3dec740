/* Only what really changed is written, and all of it, however the change is found.
 *
 * builds: normal asan tsan */
#include "base/base.h"
#include "content.h"
#include "stress.h"

static const char *const trackers[] = {"hash", "scan", "uffd", "mprotect"};
static const char *const hashes[] = {"xxh3", "md5", "crc32"};

static void test_hashes(void)
{
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++)
                for (size_t h = 0; h < ARRAY_LEN(hashes); h++)
                        for (int sync = 0; sync < 2; sync++) {
                                char options[256];
                                snprintf(options, sizeof(options),
                                         "policy=%s tracker=%s hash=%s unit=16KiB",
                                         sync ? "sync" : "adaptive", trackers[t], hashes[h]);
                                printf("  %s\n", options);
                                struct content_result r = content_run(options);
                                CHECK_EQ(r.wrong, 0);
                                CHECK_EQ(r.excess, 0);
                        }
}

/* Everything is written every time. */
static void test_off(void)
{
        for (int sums = 0; sums < 2; sums++) {
                struct content_result r = content_run(sums ? "diff=off" : "diff=off checksum=no");
                CHECK_EQ(r.wrong, 0);
                CHECK(r.excess > 0);
        }
}

/* A version may have other hashes than the one before: it shares nothing with it. */
static void test_other_hash(void)
{
        const char *path = stress_pool("other");
        static uint8_t set[1 << 20];
        stress_fill(set, sizeof(set), 1);
        for (size_t h = 0; h < ARRAY_LEN(hashes); h++) {
                char options[64];
                struct belay_stats s = {.size = sizeof(s)};
                snprintf(options, sizeof(options), "policy=sync hash=%s", hashes[h]);
                struct belay *b = stress_open(path, options);
                CHECK_EQ(belay_attach(b, "set", BELAY_U8, sizeof(set), set), 0);
                CHECK_EQ(belay_restart(b), h > 0);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "set", set, sizeof(set));
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK_EQ(s.last_data, sizeof(set));
                CHECK_EQ(belay_close(&b), 0);
        }
}

/* Without checksums, comparing costs a hash: it stops where everything changes, and comes back. */
static void test_choice(void)
{
        enum { BYTES = 32 << 20 };
        const char *path = stress_pool("choice");
        uint8_t *set = malloc(BYTES);
        struct belay *b =
                stress_open(path, "policy=sync tracker=hash checksum=no hash=md5 media=mapped");
        CHECK_EQ(belay_attach(b, "set", BELAY_U8, BYTES, set), 0);
        unsigned compared = 0;
        unsigned not_compared = 0;
        for (uint64_t i = 0; i < 16; i++) {
                struct belay_stats s = {.size = sizeof(s)};
                stress_fill(set, BYTES, i);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK_EQ(s.last_data, BYTES);
                compared += s.last_compared > 0;
                not_compared += s.last_compared == 0 && i > 0;
                CHECK(i < 2 || s.last_full_ns > 0);
        }
        printf("  compared %u times, not %u times\n", compared, not_compared);
        CHECK(compared >= 2 && not_compared >= 8);
        stress_exact(b, path, "set", set, BYTES);
        CHECK_EQ(belay_close(&b), 0);
        free(set);
}

int main(void)
{
        RUN(test_hashes);
        RUN(test_off);
        RUN(test_other_hash);
        RUN(test_choice);
        return 0;
}
