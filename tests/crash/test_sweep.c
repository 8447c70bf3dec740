/* test_sweep.c: whenever the machine stops, the pool holds the old or the new version, bit for bit.
 *
 * Records runs on every kind of media, with one, two and three versions kept and with a pool so
 * small that slots are used again soon, and replays every crash point of each (crash_replay.h). The
 * log begins before the pool exists: its creation is crashed too.
 *
 * timeout: 240 */
#include "crash_replay.h"
#include "check.h"

/* Sanitizers look for other mistakes than the sweep does: a part of it is enough for them. */
#if defined(__SANITIZE_ADDRESS__)
#define STEPS 8
#else
#define STEPS 24
#endif

static char dir[4096];
static uint64_t points, images;

static void sweep_media(const struct setup *media, uint64_t seed)
{
        static const char *const versions[] = {"1", "2", "3"};
        static const char *const limits[] = {"1000KiB", NULL, "1400KiB"};
        struct sweep total = {.points = 0};
        for (unsigned k = 0; k < 3; k++) {
                struct setup setup = *media;
                setup.versions = versions[k];
                setup.limit = limits[k];
                struct recording run;
                record_run(&run, &setup, dir, seed + k, STEPS);
                struct sweep s = {.setup = &setup,
                                  .log = &run.log,
                                  .states = run.states,
                                  .keep = k + 1,
                                  .dir = dir,
                                  .seed = seed + k,
                                  .go_on_every = 9};
                sweep_run(&s);
                if (s.first[0])
                        check_failed(__FILE__, __LINE__, "%s, versions=%s: %s", media->label,
                                     versions[k], s.first);
                total.points += s.points;
                total.images += s.images;
                total.gone_on += s.gone_on;
                recording_clear(&run);
        }
        printf("  %-24s %5llu crash points, %6llu disks, %5llu of them written to again\n",
               media->label, (unsigned long long)total.points, (unsigned long long)total.images,
               (unsigned long long)total.gone_on);
        fflush(stdout);
        points += total.points;
        images += total.images;
}

int main(void)
{
        char path[4200];
        test_env_clean();
        uint64_t seed = test_seed();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        snprintf(path, sizeof(path), "%s/pool", dir);
        for (unsigned i = 0; i < media_setup_count(); i++)
                if (setup_works(&media_setups[i], path))
                        sweep_media(&media_setups[i], seed);
        CHECK(points > STEPS * 100);
        printf("%llu crash points replayed as %llu disks: all restored exactly\n",
               (unsigned long long)points, (unsigned long long)images);
        return 0;
}
