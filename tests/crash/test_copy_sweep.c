/* test_copy_sweep.c: whenever the machine stops, the pool and its copy (option copy) together hold
 * the newest version that was published, and each of them alone holds only complete versions.
 *
 * Records runs in which the thread of the copy writes beside the program, with all events of both
 * files in one order, and replays every crash point (crash_replay.h) into both files; crash_levels.h
 * says what is looked at. Then the test is tested: with the barriers before, or those after, the
 * superblocks of the copy taken out of the log it must find disks that do not restore.
 *
 * timeout: 240
 * builds: normal
 * long: asan */
#include "crash_replay.h"
#include "check.h"
#include "format/format.h"
#include <sys/stat.h>

/* Sanitizers look for other mistakes than the sweep does: a part of it is enough for them. */
#if defined(__SANITIZE_ADDRESS__)
#define STEPS 3
#else
#define STEPS 6
#endif

static char dir[4096], copy[4200];
static uint64_t seed;

enum left_out { NOTHING, BEFORE_SUPERBLOCK, AFTER_SUPERBLOCK };

/* ---- a log without some barriers ------------------------------------------------------------- */

static int file_of_copy(const struct crash_log *log)
{
        for (size_t i = 0; i < log->count; i++)
                if (log->events[i].kind == CRASH_CREATE && log->events[i].dir == 1)
                        return log->events[i].file;
        check_failed(__FILE__, __LINE__, "the log has no copy");
        return -1;
}

static bool is_superblock(const struct crash_event *e)
{
        return e->kind == CRASH_WRITE && e->offset < UINT64_C(2) * SUPER_BYTES;
}

/* Takes the barriers of the copy between its data and a superblock out of the log, or those between
 * a superblock and what comes next; not those of its creation. */
static unsigned leave_out(struct crash_log *log, enum left_out what)
{
        int file = file_of_copy(log);
        struct crash_event *before = NULL;
        struct crash_event *barrier = NULL;
        unsigned count = 0;
        size_t first = 0;
        while (first < log->count && log->events[first].kind != CRASH_BEGIN)
                first++;
        for (size_t i = first; i < log->count; i++) {
                struct crash_event *e = &log->events[i];
                if (e->file != file || e->kind == CRASH_CREATE)
                        continue;
                bool is_barrier = e->kind == CRASH_BARRIER;
                struct crash_event *out = NULL;
                if (what == BEFORE_SUPERBLOCK && is_superblock(e))
                        out = barrier;
                if (what == AFTER_SUPERBLOCK && is_barrier && before && is_superblock(before))
                        out = e;
                if (out) {
                        out->kind = CRASH_LEFT_OUT;
                        count++;
                }
                barrier = is_barrier && !out ? e : NULL;
                before = e;
        }
        return count;
}

/* ---- one run --------------------------------------------------------------------------------- */

static struct sweep sweep(const struct setup *media, const char *versions, const char *limit,
                          unsigned steps, enum left_out what)
{
        struct setup setup = *media;
        setup.versions = versions;
        setup.limit = limit;
        setup.copy = copy;
        struct recording run;
        record_run(&run, &setup, dir, seed, steps);
        if (what != NOTHING)
                CHECK(leave_out(&run.log, what) >= steps / 2);
        struct sweep s = {.setup = &setup,
                          .log = &run.log,
                          .states = run.states,
                          .keep = (unsigned)atoi(versions),
                          .dir = dir,
                          .seed = seed,
                          .go_on_every = what == NOTHING ? 9 : 1000000};
        sweep_run(&s);
        recording_clear(&run);
        printf("  %-24s %5llu crash points, %5llu pairs of disks: %llu exact, %llu older, "
               "%llu lost, %llu blended\n",
               media->label, (unsigned long long)s.points, (unsigned long long)s.images,
               (unsigned long long)s.verdicts[EXACT], (unsigned long long)s.verdicts[OLDER],
               (unsigned long long)s.verdicts[LOST], (unsigned long long)s.verdicts[BLENDED]);
        if (s.first[0])
                printf("    first: %s\n", s.first);
        fflush(stdout);
        return s;
}

/* With a limit the copy pins nothing in the pool: it loses races against the program, and begins
 * again. */
static void test_sweep(void)
{
        static const char *const versions[] = {"2", "1", "1", "3", "2"};
        static const char *const limits[] = {NULL, "1000KiB", NULL, "1400KiB", NULL};
        char path[4200];
        snprintf(path, sizeof(path), "%s/pool", dir);
        for (unsigned i = 0; i < media_setup_count(); i++) {
                if (!setup_works(&media_setups[i], path))
                        continue;
                struct sweep s = sweep(&media_setups[i], versions[i], limits[i], STEPS, NOTHING);
                CHECK_EQ(s.verdicts[EXACT], s.images);
        }
}

static const struct setup plain = {
        .label = "file, pwrite", .media = "file", .io = "pwrite", .direct = "off"};

/* The copy may list a version that is not there. */
static void test_without_barrier_before(void)
{
        struct sweep s = sweep(&plain, "1", NULL, STEPS, BEFORE_SUPERBLOCK);
        CHECK(s.verdicts[LOST] > 0);
        CHECK_EQ(s.verdicts[BLENDED], 0); /* checksums: lost is noticed, never taken for good */
}

/* The copy may lack a version that it was said to have. */
static void test_without_barrier_after(void)
{
        struct sweep s = sweep(&plain, "1", NULL, STEPS, AFTER_SUPERBLOCK);
        CHECK(s.verdicts[OLDER] > 0);
        CHECK_EQ(s.verdicts[BLENDED], 0);
}

int main(void)
{
        test_env_clean();
        seed = test_seed();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        snprintf(copy, sizeof(copy), "%s/copy", dir);
        CHECK_EQ(mkdir(copy, 0700), 0);
        RUN(test_sweep);
        RUN(test_without_barrier_before);
        RUN(test_without_barrier_after);
        return 0;
}
