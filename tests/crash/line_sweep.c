/* line_sweep.c: see line_sweep.h. */
#include "line_sweep.h"
#include "check.h"

void line_sweep_run(struct line_sweep *l)
{
        static const struct {
                const char *versions, *limit;
        } runs[] = {{"1", "1000KiB"}, {"2", NULL}, {"3", "1400KiB"}};
        for (unsigned k = 0; k < 3; k++) {
                struct setup setup = {.label = "persistent memory",
                                      .media = "mapped",
                                      .versions = runs[k].versions,
                                      .limit = runs[k].limit,
                                      .pmem = true};
                struct recording run;
                record_run(&run, &setup, l->dir, l->seed + k, l->steps);
                struct sweep s = {.setup = &setup,
                                  .log = &run.log,
                                  .states = run.states,
                                  .keep = k + 1,
                                  .dir = l->dir,
                                  .seed = l->seed + k,
                                  .go_on_every = 9,
                                  .lines = l->lines};
                sweep_run(&s);
                if (s.first[0])
                        check_failed(__FILE__, __LINE__, "versions=%s: %s", setup.versions,
                                     s.first);
                printf("  %s kept, limit %-8s %5llu crash points, %6llu images, %5llu of them "
                       "written "
                       "to again\n",
                       setup.versions, setup.limit ? setup.limit : "none",
                       (unsigned long long)s.points, (unsigned long long)s.images,
                       (unsigned long long)s.gone_on);
                fflush(stdout);
                l->points += s.points;
                l->images += s.images;
                l->gone_on += s.gone_on;
                recording_clear(&run);
        }
}
