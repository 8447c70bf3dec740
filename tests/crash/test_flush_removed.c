/* test_flush_removed.c: a test of the test. The sweep of test_lines.c, with one single event taken
 * out of the log, must find an image that does not restore: for every flush of every version, for
 * the fences around a superblock, and for what makes a growth durable.
 *
 * timeout: 240 */
#include "crash_replay.h"
#include "check.h"
#include "format/format.h"

#if defined(__SANITIZE_ADDRESS__)
#define STEPS 8
#else
#define STEPS 14
#endif

static char dir[4096];
static uint64_t seed;
static struct recording run;
static struct setup setup;
static unsigned keep;
static uint64_t images;

static void record(const char *versions, const char *limit)
{
        setup = (struct setup){.label = "persistent memory",
                               .media = "mapped",
                               .versions = versions,
                               .limit = limit,
                               .pmem = true};
        keep = (unsigned)strtoul(versions, NULL, 10);
        record_run(&run, &setup, dir, seed, STEPS);
}

static uint64_t verdicts_without(size_t event, uint64_t verdicts[VERDICTS])
{
        struct sweep s = {.setup = &setup,
                          .log = &run.log,
                          .states = run.states,
                          .keep = keep,
                          .dir = dir,
                          .seed = seed,
                          .go_on_every = 1000000,
                          .lines = 2,
                          .without = event + 1};
        sweep_run(&s);
        images += s.images;
        for (unsigned v = 0; v < VERDICTS; v++)
                verdicts[v] += s.verdicts[v];
        CHECK_EQ(s.verdicts[BLENDED], 0); /* checksums: what is lost is never taken for good */
        return s.images - s.verdicts[EXACT];
}

static void report(const char *what, unsigned count, const uint64_t verdicts[VERDICTS])
{
        printf("  %3u %s, each left out alone: %llu images, of which %llu older, %llu lost\n",
               count, what, (unsigned long long)images, (unsigned long long)verdicts[OLDER],
               (unsigned long long)verdicts[LOST]);
        images = 0;
}

static bool of_superblock(const struct crash_event *e)
{
        return e->offset < 2 * SUPER_BYTES;
}

/* Did the medium hold the very bytes already? A version that failed leaves them in free slots, and
 * the next one may write the same there. */
static bool was_there(size_t flush)
{
        const struct crash_event *store = &run.log.events[flush - 1];
        CHECK_EQ(store->kind, CRASH_STORE);
        for (size_t i = flush - 1; i > 0; i--) {
                const struct crash_event *e = &run.log.events[i - 1];
                if (e->kind != CRASH_STORE || e->offset >= store->offset + store->bytes ||
                    store->offset >= e->offset + e->bytes)
                        continue;
                return e->offset == store->offset && e->bytes == store->bytes &&
                       memcmp(e->data, store->data, e->bytes) == 0;
        }
        return false;
}

/* Of versions that came to be: what a failed one leaves does not matter. */
static void test_each_flush(void)
{
        uint64_t data[VERDICTS] = {0};
        uint64_t superblock[VERDICTS] = {0};
        unsigned count = 0;
        bool inside = false;
        for (size_t i = 0; i < run.log.count; i++) {
                const struct crash_event *e = &run.log.events[i];
                if (e->kind == CRASH_BEGIN || e->kind == CRASH_RETURNED)
                        inside = e->kind == CRASH_BEGIN;
                if (!inside || e->kind != CRASH_FLUSH || was_there(i))
                        continue;
                count++;
                if (!verdicts_without(i, of_superblock(e) ? superblock : data))
                        check_failed(__FILE__, __LINE__, "nobody misses flush %zu, of %llu at %llu",
                                     i, (unsigned long long)e->bytes,
                                     (unsigned long long)e->offset);
        }
        CHECK(count > 3 * STEPS);
        CHECK_EQ(data[OLDER], 0);
        CHECK_EQ(superblock[LOST], 0);
        for (unsigned v = 0; v < VERDICTS; v++)
                data[v] += superblock[v];
        report("flushes", count, data);
}

/* The fence before a superblock: it may be there before what it refers to. The one after it: the
 * checkpoint returns, and is not there afterwards. */
static void test_fences_of_superblocks(void)
{
        uint64_t before[VERDICTS] = {0};
        uint64_t after[VERDICTS] = {0};
        unsigned count = 0;
        size_t fence = 0;
        for (size_t i = 0; i < run.log.count; i++) {
                const struct crash_event *e = &run.log.events[i];
                if (e->kind == CRASH_FENCE)
                        fence = i;
                if (e->kind != CRASH_STORE || !of_superblock(e))
                        continue;
                CHECK(fence > 0);
                CHECK(verdicts_without(fence, before) > 0);
                CHECK_EQ(run.log.events[i + 2].kind, CRASH_FENCE);
                CHECK(verdicts_without(i + 2, after) > 0);
                count += 2;
        }
        CHECK_EQ(count, 2 * STEPS);
        CHECK_EQ(before[LOST], STEPS);
        CHECK_EQ(after[OLDER], STEPS);
        for (unsigned v = 0; v < VERDICTS; v++)
                before[v] += after[v];
        report("fences", count, before);
}

static void test_barriers_of_growth(void)
{
        uint64_t verdicts[VERDICTS] = {0};
        unsigned count = 0;
        bool changed = false;
        bool begun = false;
        for (size_t i = 0; i < run.log.count; i++) {
                const struct crash_event *e = &run.log.events[i];
                begun |= e->kind == CRASH_BEGIN;
                changed |= e->kind == CRASH_WRITE || e->kind == CRASH_SIZE;
                if (e->kind != CRASH_BARRIER)
                        continue;
                if (begun && changed) {
                        count++;
                        CHECK(verdicts_without(i, verdicts) > 0);
                }
                changed = false;
        }
        CHECK(count > 1);
        report("barriers after growth", count, verdicts);
}

int main(void)
{
        test_env_clean();
        seed = test_seed();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        /* One version is kept and there is room for little more than two: what one commit frees,
         * the next one uses. */
        record("1", "1000KiB");
        RUN(test_each_flush);
        RUN(test_fences_of_superblocks);
        recording_clear(&run);
        record("8", NULL);
        RUN(test_barriers_of_growth);
        recording_clear(&run);
        printf("the sweep notices each of them missing\n");
        return 0;
}
