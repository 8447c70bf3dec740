/* test_barrier_removed.c: a test of the test. The sweep of test_sweep.c, with one of the two
 * barriers of each commit taken out of the log, must find disks that do not restore. Otherwise it
 * would prove nothing.
 *
 * timeout: 240
 * builds: normal
 * long: asan */
#include "crash_replay.h"
#include "check.h"

static char dir[4096];
static uint64_t seed;

static struct sweep sweep_without(const struct setup *setup, unsigned barrier)
{
        struct recording run;
        record_run(&run, setup, dir, seed, 14);
        struct sweep s = {.setup = setup,
                          .log = &run.log,
                          .states = run.states,
                          .keep = 1,
                          .without_barrier = barrier,
                          .dir = dir,
                          .seed = seed,
                          .go_on_every = 1000000};
        sweep_run(&s);
        recording_clear(&run);
        printf("  %-24s %5llu disks: %llu exact, %llu older, %llu lost, %llu blended\n",
               setup->label, (unsigned long long)s.images, (unsigned long long)s.verdicts[EXACT],
               (unsigned long long)s.verdicts[OLDER], (unsigned long long)s.verdicts[LOST],
               (unsigned long long)s.verdicts[BLENDED]);
        if (s.first[0])
                printf("    first: %s\n", s.first);
        return s;
}

/* One version is kept and the pool has room for little more than two: what one commit frees, the
 * next one uses. */
static struct setup tight(const struct setup *media)
{
        struct setup setup = *media;
        setup.versions = "1";
        setup.limit = "760KiB";
        return setup;
}

/* With all barriers the same runs are exact, so what follows is the barrier's doing. */
static void test_all_barriers(void)
{
        for (unsigned i = 0; i < media_setup_count(); i++) {
                struct setup setup = tight(&media_setups[i]);
                char path[4200];
                snprintf(path, sizeof(path), "%s/pool", dir);
                if (!setup_works(&setup, path))
                        continue;
                struct sweep s = sweep_without(&setup, 0);
                CHECK_EQ(s.verdicts[EXACT], s.images);
        }
}

/* The superblock may reach the disk before what it refers to: the new version is listed and is not
 * there. */
static void test_without_data_barrier(void)
{
        for (unsigned i = 0; i < media_setup_count(); i++) {
                struct setup setup = tight(&media_setups[i]);
                char path[4200];
                snprintf(path, sizeof(path), "%s/pool", dir);
                if (!setup_works(&setup, path))
                        continue;
                struct sweep s = sweep_without(&setup, 1);
                CHECK(s.verdicts[LOST] > 0);
                CHECK_EQ(s.verdicts[BLENDED],
                         0); /* checksums: lost is noticed, never taken for good */
        }
}

/* A checkpoint returns before its superblock is on the disk: the version may be missing afterwards.
 * And the slots of the version before are used again while the disk still lists it. */
static void test_without_superblock_barrier(void)
{
        uint64_t lost = 0;
        for (unsigned i = 0; i < media_setup_count(); i++) {
                struct setup setup = tight(&media_setups[i]);
                char path[4200];
                snprintf(path, sizeof(path), "%s/pool", dir);
                if (!setup_works(&setup, path))
                        continue;
                struct sweep s = sweep_without(&setup, 2);
                CHECK(s.verdicts[OLDER] > 0);
                CHECK_EQ(s.verdicts[BLENDED], 0);
                lost += s.verdicts[LOST];
        }
        CHECK(lost > 0);
}

int main(void)
{
        test_env_clean();
        seed = test_seed();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        RUN(test_all_barriers);
        RUN(test_without_data_barrier);
        RUN(test_without_superblock_barrier);
        printf("the sweep notices each of the two barriers missing\n");
        return 0;
}
