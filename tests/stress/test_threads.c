/* The calls that any thread may make at any time, made by several at once. What they must not do is
 * found by the sanitizers; what they must say is checked here.
 *
 * builds: normal asan tsan */
#include "base/base.h"
#include "stress.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define BYTES    (UINT64_C(256) << 10)
#define POLLERS  2
#define OPENERS  4
#define VERSIONS 40

static void fill(uint8_t *p, uint64_t seed)
{
        for (uint64_t i = 0; i < BYTES; i += 4096)
                stress_poke(p, i + seed % 4096, (uint8_t)(seed + 1));
}

static int state_of(struct belay *b, uint64_t version)
{
        struct belay_status s = {.size = sizeof(s)};
        CHECK_EQ(belay_status(b, version, &s), 0);
        CHECK(version == 0 || s.version == version);
        return s.state;
}

/* ---- the state of versions ---------------------------------------------------------------------
 */

struct poll {
        struct belay *b;
        _Atomic uint64_t frozen;    /* the newest version of which that is known … */
        _Atomic uint64_t published; /* … and that                                 */
        _Atomic bool stop;
        uint64_t kept; /* versions that the pool keeps at least */
};

static void *poll_states(void *arg)
{
        struct poll *p = arg;
        char value[64];
        while (!atomic_load(&p->stop)) {
                uint64_t published = atomic_load(&p->published);
                uint64_t first = published > p->kept ? published - p->kept : 0;
                for (uint64_t v = first; v <= published + 2; v++) {
                        int state = state_of(p->b, v);
                        CHECK(v == 0 || state != BELAY_FAILED);
                        /* It may have left the list only if newer ones came. */
                        if (v && v <= published && state != BELAY_PUBLISHED)
                                CHECK(atomic_load(&p->frozen) >= v + p->kept);
                        if (v > atomic_load(&p->frozen) + 1)
                                CHECK_EQ(state, BELAY_UNKNOWN);
                }
                CHECK_EQ(belay_get(p->b, "policy", value, sizeof(value)), 0);
        }
        return NULL;
}

static void poll_while(const char *options, uint64_t kept)
{
        pthread_t threads[POLLERS];
        const char *path = stress_pool("threads");
        struct poll p = {.b = stress_open(path, options), .kept = kept};
        uint8_t *m = belay_alloc(p.b, "x", BELAY_U8, BYTES);
        printf("  %s\n", options);
        for (int i = 0; i < POLLERS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, poll_states, &p), 0);
        for (uint64_t v = 1; v <= VERSIONS; v++) {
                fill(m, v);
                atomic_store(&p.frozen, v);
                CHECK_EQ(belay_checkpoint(p.b), 0);
                if (v % 3 == 0)
                        CHECK_EQ(belay_wait(p.b, v, BELAY_FOREVER), 0);
                atomic_store(&p.published, v % 3 ? v - 1 : v);
        }
        CHECK_EQ(belay_restart(p.b), 1);
        atomic_store(&p.stop, true);
        for (int i = 0; i < POLLERS; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(belay_close(&p.b), 0);
}

static void test_status(void)
{
        poll_while("policy=sync versions=1", 1);
        poll_while("policy=async versions=1", 1);
        poll_while("policy=adaptive versions=3", 3);
        poll_while("policy=sync replace=yes", 1);
        poll_while("policy=async replace=yes", 1);
        poll_while("policy=async versions=2 precopy=immediate", 2);
}

/* While a version is on its way, those before it are known, unless they were given up for it; those
 * that never were are not. */
static bool flush_slowly(const char *options, int before)
{
        struct belay *b = stress_open(stress_pool("flushing"), options);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
        fill(m, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 1, BELAY_FOREVER), 0);
        CHECK_EQ(state_of(b, 1), BELAY_PUBLISHED);
        for (uint64_t i = 0; i < BYTES; i++)
                stress_poke(m, i, (uint8_t)(i * 7));
        CHECK_EQ(belay_checkpoint(b), 0);
        int first = state_of(b, 1);
        int waited = belay_wait(b, 1, 0);
        int never = belay_wait(b, 99, 0);
        int unknown = state_of(b, 99);
        /* If it is still being flushed, it was all the time. */
        bool seen = state_of(b, 2) == BELAY_FLUSHING;
        CHECK_EQ(first, before);
        CHECK_EQ(waited, before == BELAY_PUBLISHED ? 0 : -ENOENT);
        CHECK_EQ(never, -ENOENT);
        CHECK_EQ(unknown, BELAY_UNKNOWN);
        CHECK_EQ(belay_wait(b, 2, BELAY_FOREVER), 0);
        CHECK_EQ(state_of(b, 1), before);
        CHECK_EQ(state_of(b, 0), BELAY_PUBLISHED);
        CHECK_EQ(belay_close(&b), 0);
        return seen;
}

static void test_status_while_flushing(void)
{
        while (!flush_slowly("policy=async rate=256KiB versions=2", BELAY_PUBLISHED))
                continue;
        while (!flush_slowly("policy=async rate=256KiB replace=yes", BELAY_UNKNOWN))
                continue;
}

/* ---- contexts of several threads ---------------------------------------------------------------
 */

static _Atomic unsigned messages;
static _Atomic bool opened;

static void count(void *arg, enum belay_log_level level, const char *text)
{
        CHECK(level <= BELAY_LOG_DEBUG && text && text[0]);
        atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

static void *change_sink(void *arg)
{
        for (int i = 0; !atomic_load(&opened); i++) {
                belay_log_sink(i % 2 ? count : NULL, &messages, BELAY_LOG_DEBUG);
                CHECK_HAS(belay_code_text(BELAY_E_DATA), "damaged");
                CHECK_STR(belay_code_text(-ENOENT), "No such file or directory");
                CHECK_STR(belay_version_text(), "0.1.0");
        }
        belay_log_sink(NULL, NULL, BELAY_LOG_ERROR);
        return arg;
}

/* liburing maps its rings behind ThreadSanitizer's back: a ring where another thread's was would
 * count as a race. */
#if defined(__SANITIZE_THREAD__)
#define IO " io=pwrite"
#else
#define IO ""
#endif

static void *open_and_close(void *arg)
{
        static const char *const options[] = {
                "policy=sync hash=crc32" IO,
                "policy=async hash=crc32" IO,
                "policy=adaptive hash=md5" IO,
                "policy=sync" IO,
        };
        unsigned number = *(unsigned *)arg;
        char path[4096];
        char name[32];
        char value[64];
        snprintf(path, sizeof(path), "%s/open-%u.pool", test_dir(), number);
        snprintf(name, sizeof(name), "nobody-%u", number);
        for (uint64_t i = 0; i < 6; i++) {
                struct belay *b = stress_open(path, options[number % 4]);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                CHECK_EQ(belay_restart(b), i > 0);
                fill(m, i);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_get(b, "hash", value, sizeof(value)), 0);
                /* The error is this thread's own. */
                CHECK_EQ(belay_detach(b, name), -ENOENT);
                CHECK_EQ(belay_error_code(), -ENOENT);
                CHECK_HAS(belay_error(), name);
                struct belay *second = NULL;
                struct belay_config *c;
                CHECK_EQ(belay_config_new(&c), 0);
                CHECK_EQ(belay_config_set(c, "pool", path), 0);
                CHECK_EQ(belay_open(c, &second), -EBUSY);
                belay_config_delete(&c);
                CHECK_EQ(belay_close(&b), 0);
        }
        return NULL;
}

static void test_open(void)
{
        pthread_t threads[OPENERS];
        pthread_t sink;
        unsigned numbers[OPENERS];
        (void)test_dir();
        CHECK_EQ(pthread_create(&sink, NULL, change_sink, NULL), 0);
        for (unsigned i = 0; i < OPENERS; i++) {
                numbers[i] = i;
                CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, &numbers[i]), 0);
        }
        for (int i = 0; i < OPENERS; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        atomic_store(&opened, true);
        CHECK_EQ(pthread_join(sink, NULL), 0);
}

/* What is made at the first use. */
static void *hash_once(void *arg)
{
        (void)pthread_barrier_wait(arg);
        for (uint32_t kind = HASH_XXH3; kind < HASH_KINDS; kind++) {
                struct hash128 h = hash_block(kind, "123456789", 9);
                CHECK(kind != HASH_CRC32 || h.lo == 0xcbf43926u);
        }
        return NULL;
}

static void test_first_hash(void)
{
        pthread_t threads[OPENERS];
        pthread_barrier_t all;
        CHECK_EQ(pthread_barrier_init(&all, NULL, OPENERS), 0);
        for (int i = 0; i < OPENERS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, hash_once, &all), 0);
        for (int i = 0; i < OPENERS; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
        RUN(test_first_hash);
        RUN(test_status);
        RUN(test_status_while_flushing);
        RUN(test_open);
        return 0;
}
