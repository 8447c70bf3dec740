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

/* Without checksums, comparing costs a hash: it stops where everything changes, and comes back. A
 * version that is not compared is not hashed, and nothing is expected of it but a full one's time.
 */
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
        unsigned as_full = 0;
        for (uint64_t i = 0; i < 16; i++) {
                struct belay_stats s = {.size = sizeof(s)};
                stress_fill(set, BYTES, i);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK_EQ(s.last_data, BYTES);
                compared += s.last_compared > 0;
                not_compared += s.last_compared == 0 && i > 0;
                as_full += s.last_compared == 0 && s.last_predicted_ns == s.last_full_ns;
                CHECK(i < 2 || s.last_full_ns > 0);
        }
        printf("  compared %u times, not %u times\n", compared, not_compared);
        CHECK(compared >= 2 && not_compared >= 8);
        CHECK(as_full >= not_compared - 2); /* the first of a trial has hashes */
        stress_exact(b, path, "set", set, BYTES);
        CHECK_EQ(belay_close(&b), 0);
        free(set);
}

static uint64_t full_ns(struct belay *b, uint8_t *set, uint64_t bytes, uint64_t filled)
{
        struct belay_stats s = {.size = sizeof(s)};
        for (uint64_t i = 0; i < 3; i++) {
                memset(set, 0, bytes);
                stress_fill(set, filled, filled + i);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_stats(b, &s), 0);
                CHECK_EQ(s.last_data, filled);
        }
        return s.last_full_ns;
}

/* What is known to be zeros is not expected to be written. The model of the paper is the time of
 * writing alone, which one measurement changes by a quarter: less than the amount does. */
static void test_zeros_expected(void)
{
        enum { BYTES = 32 << 20 };
        uint8_t *set = malloc(BYTES);
        struct belay *b = stress_open(stress_pool("zeros_expected"),
                                      "policy=sync tracker=hash diff_model=fti media=mapped");
        CHECK_EQ(belay_attach(b, "set", BELAY_U8, BYTES, set), 0);
        uint64_t dense = full_ns(b, set, BYTES, BYTES);
        uint64_t sparse = full_ns(b, set, BYTES, BYTES / 32);
        printf("  full checkpoint expected to take %llu us, with 31/32 zeros %llu us\n",
               (unsigned long long)dense / 1000, (unsigned long long)sparse / 1000);
        CHECK(dense > 0 && sparse > 0 && sparse < dense / 4);
        CHECK_EQ(belay_close(&b), 0);
        free(set);
}

struct resized {
        const char *path;
        struct belay *b;
        uint8_t *set;
};

static uint64_t data_of(struct resized *t, uint64_t bytes)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_checkpoint(t->b), 0);
        stress_exact(t->b, t->path, "set", t->set, bytes);
        CHECK_EQ(belay_stats(t->b, &s), 0);
        CHECK_EQ(s.last_compared, 1);
        return s.last_data;
}

/* Registers a region of another size than the stored one, and lets the restart resize it. */
static void restart_resized(struct resized *t, const char *options, uint64_t registered)
{
        if (t->b)
                CHECK_EQ(belay_close(&t->b), 0);
        t->b = stress_open(t->path, options);
        t->set = belay_alloc(t->b, "set", BELAY_U8, registered);
        CHECK(t->set != NULL);
        CHECK_EQ(belay_restart_version(t->b, 0, BELAY_RESIZE), 1);
        t->set = belay_ptr(t->b, "set");
}

/* A region that got another size, by belay_resize or by a restart, is compared block by block with
 * the version before: only what is new or changed is written. */
static void check_resize(const char *options)
{
        enum { BLOCK = 4096, BYTES = 300 * BLOCK, MORE = 330 * BLOCK };
        struct resized t = {.path = stress_pool("resized")};
        printf("  %s\n", options);
        t.b = stress_open(t.path, options);
        t.set = belay_alloc(t.b, "set", BELAY_U8, BYTES);
        stress_fill(t.set, BYTES, 1);
        CHECK_EQ(belay_checkpoint(t.b), 0);
        t.set = belay_resize(t.b, "set", MORE);
        CHECK(data_of(&t, MORE) <= MORE - BYTES);
        t.set[7 * BLOCK]++;
        CHECK_EQ(data_of(&t, MORE), BLOCK);
        t.set = belay_resize(t.b, "set", BYTES + 100);
        CHECK(data_of(&t, BYTES + 100) <= 100);
        restart_resized(&t, options, 10);
        CHECK_EQ(data_of(&t, BYTES + 100), 0);
        restart_resized(&t, options, 4 * MORE);
        t.set[BYTES / 2]++;
        CHECK_EQ(data_of(&t, BYTES + 100), BLOCK);
        /* In the running program, from a version of another size. */
        t.set = belay_resize(t.b, "set", BYTES / 2);
        CHECK_EQ(data_of(&t, BYTES / 2), 0);
        CHECK_EQ(belay_restart_version(t.b, belay_version(t.b) - 1, BELAY_RESIZE), 1);
        t.set = belay_ptr(t.b, "set");
        CHECK(data_of(&t, BYTES + 100) <= BYTES / 2 + 100);
        CHECK_EQ(belay_close(&t.b), 0);
}

static void test_resize(void)
{
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++)
                for (int sync = 0; sync < 2; sync++) {
                        char options[256];
                        snprintf(options, sizeof(options),
                                 "block=4KiB unit=16KiB diff=on policy=%s tracker=%s",
                                 sync ? "sync" : "adaptive", trackers[t]);
                        check_resize(options);
                }
        check_resize("block=4KiB unit=16KiB media=mapped restart=lazy");
        check_resize("block=4KiB unit=16KiB media=mapped precopy=immediate");
        check_resize("block=4KiB unit=16KiB checksum=no diff=on");
}

int main(void)
{
        RUN(test_hashes);
        RUN(test_off);
        RUN(test_other_hash);
        RUN(test_choice);
        RUN(test_zeros_expected);
        RUN(test_resize);
        return 0;
}
