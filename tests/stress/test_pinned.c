/* Eight processes read and pin versions of a pool whose program checkpoints as fast as it can.
 * Every read is exact, or says that the version is gone. A reader that is killed while it holds a
 * pin leaves nothing behind. timeout: 240 */
#include "stress.h"
#include "test_env.h"
#include <belay/read.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define READERS  8
#define BLOCK    4096u
#define WORDS    (BLOCK / 8 * 200 + 13) /* the last block is short */
#define ROUND_NS UINT64_C(1000000000)

static struct shared {
        _Atomic bool stop;
        _Atomic uint64_t exact, gone, pinned;
} * shared;

/* Blocks change at every version, at every second one, or more seldom: versions share some. */
static uint64_t word_of(uint64_t version, uint64_t i)
{
        uint64_t every = 1 + i / (BLOCK / 8) % 5;
        uint64_t z = (version / every + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
        return z ^ z >> 29;
}

/* ---- a reader -------------------------------------------------------------------------------- */

static void check_words(const uint64_t *got, uint64_t version, uint64_t first, uint64_t count)
{
        for (uint64_t i = 0; i < count; i++)
                if (got[i] != word_of(version, first + i))
                        check_failed(__FILE__, __LINE__, "version %llu, word %llu is not its own",
                                     (unsigned long long)version, (unsigned long long)(first + i));
}

/* Reads all or a part of the version; false if it is gone. */
static bool read_some(struct belay_reader *r, uint64_t version, struct test_random *random)
{
        static uint64_t back[WORDS];
        struct belay_reader_region d = {.size = sizeof(d)};
        uint64_t first = test_random_below(random, 2) ? test_random_below(random, WORDS) : 0;
        uint64_t count = first ? 1 + test_random_below(random, WORDS - first) : WORDS;
        int rc = belay_reader_find(r, version, "x", &d);
        if (rc == 0)
                rc = belay_read(r, version, d.index, first * 8, count * 8, back);
        if (rc && rc != -ESTALE)
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        if (rc) {
                CHECK_HAS(belay_error(), "is gone");
                atomic_fetch_add(&shared->gone, 1);
                return false;
        }
        check_words(back, version, first, count);
        atomic_fetch_add(&shared->exact, 1);
        return true;
}

static void read_pinned(struct belay_reader *r, uint64_t version, struct test_random *random)
{
        int rc = belay_reader_pin(r, version);
        if (rc && rc != -ESTALE)
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        if (rc)
                return;
        atomic_fetch_add(&shared->pinned, 1);
        bool there = read_some(r, version, random);
        usleep((useconds_t)test_random_below(random, 5000));
        there = read_some(r, version, random) && there;
        CHECK(there); /* a version that was pinned is never gone */
        CHECK_EQ(belay_reader_unpin(r, version), 0);
}

__attribute__((noreturn)) static void be_reader(const char *path, uint64_t seed)
{
        struct test_random random = {.state = seed};
        struct belay_reader *r;
        int rc;
        while ((rc = belay_reader_open(path, NULL, &r)) == -EAGAIN)
                ;
        if (rc)
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        while (!atomic_load(&shared->stop)) {
                struct belay_reader_facts f = {.size = sizeof(f)};
                struct belay_reader_version v = {.size = sizeof(v)};
                rc = belay_reader_refresh(r);
                if (rc < 0 && rc != -EAGAIN)
                        check_failed(__FILE__, __LINE__, "%s", belay_error());
                CHECK_EQ(belay_reader_facts(r, &f), 0);
                if (f.version_count == 0)
                        continue;
                CHECK_EQ(belay_reader_version_at(
                                 r, (uint32_t)test_random_below(&random, f.version_count), &v),
                         0);
                if (v.state != BELAY_VERSION_GOOD)
                        check_failed(__FILE__, __LINE__, "version %llu: %s",
                                     (unsigned long long)v.number, v.damage);
                if (test_random_below(&random, 2))
                        read_pinned(r, v.number, &random);
                else
                        (void)read_some(r, v.number, &random);
        }
        CHECK_EQ(belay_reader_close(&r), 0);
        _exit(0);
}

static pid_t start_reader(const char *path, uint64_t seed)
{
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                be_reader(path, seed);
        return pid;
}

/* ---- the program ----------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void publish(struct belay *b, uint64_t *x, uint64_t version)
{
        for (uint64_t i = 0; i < WORDS; i++)
                x[i] = word_of(version, i);
        int rc = belay_checkpoint(b);
        if (rc)
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        CHECK_EQ(belay_version(b), version);
}

static void run(const char *name, const char *options)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool(name));
        struct belay *b = stress_open(path, options);
        uint64_t *x = belay_alloc(b, "x", BELAY_U64, WORDS);
        CHECK(x != NULL);
        memset(shared, 0, sizeof(*shared));
        uint64_t version = 1;
        publish(b, x, version++);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        pid_t readers[READERS];
        for (unsigned i = 0; i < READERS; i++)
                readers[i] = start_reader(path, 100 + i);
        uint64_t begin = now_ns();
        bool killed = false;
        while (now_ns() - begin < ROUND_NS) {
                publish(b, x, version++);
                if (!killed && now_ns() - begin > ROUND_NS / 2) {
                        CHECK_EQ(kill(readers[0], SIGKILL), 0);
                        CHECK_EQ(stress_reap(readers[0]), 1000 + SIGKILL);
                        readers[0] = start_reader(path, 999);
                        killed = true;
                }
        }
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        atomic_store(&shared->stop, true);
        for (unsigned i = 0; i < READERS; i++)
                CHECK_EQ(stress_reap(readers[i]), 0);
        CHECK_EQ(belay_close(&b), 0);
        printf("  %s: %llu versions, %llu exact, %llu gone, %llu pinned\n", options,
               (unsigned long long)version - 1, (unsigned long long)shared->exact,
               (unsigned long long)shared->gone, (unsigned long long)shared->pinned);
        CHECK(shared->exact > 0 && shared->pinned > 0);
}

static void test_readers_beside_writer(void)
{
        static const char *const settings[] = {
                "media=file versions=3 block=4096",
                "media=file versions=2 block=4096 hash=md5",
                "media=file versions=3 block=4096 hash=crc32",
                "media=file versions=3 block=4096 checksum=no",
                "media=file versions=2 block=4096 checksum=no diff=off",
                "media=file versions=1 block=4096 checksum=no diff=off io=pwrite direct=off",
                "media=mapped versions=3 block=4096 checksum=no diff=off",
        };
        for (unsigned i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
                run("pinned", settings[i]);
}

int main(void)
{
        test_env_clean();
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        CHECK(shared != MAP_FAILED);
        RUN(test_readers_beside_writer);
        return 0;
}
