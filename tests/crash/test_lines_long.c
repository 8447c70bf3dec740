/* test_lines_long.c: test_lines.c with every line missing alone, and with more runs.
 *
 * timeout: 3600
 * builds: normal */
#include "line_sweep.h"
#include "check.h"

int main(void)
{
        test_env_clean();
        struct line_sweep l = {.dir = test_dir(), .seed = test_seed(), .steps = 14, .lines = 0};
        line_sweep_run(&l);
        l.steps = 24;
        l.lines = 8;
        for (unsigned i = 0; i < 8; i++) {
                l.seed += 1000;
                line_sweep_run(&l);
        }
        printf("%llu crash points, %llu images: all restored exactly\n",
               (unsigned long long)l.points, (unsigned long long)l.images);
        return 0;
}
