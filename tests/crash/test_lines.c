/* test_lines.c: whenever the power fails, a pool in persistent memory holds the old or the new
 * version, bit for bit, whichever of the lines that were not durable yet have survived.
 *
 * timeout: 240 */
#include "line_sweep.h"
#include "check.h"

/* Sanitizers look for other mistakes than the sweep does. */
#if defined(__SANITIZE_ADDRESS__)
#define STEPS 6
#else
#define STEPS 16
#endif

int main(void)
{
        test_env_clean();
        struct line_sweep l = {.dir = test_dir(), .seed = test_seed(), .steps = STEPS, .lines = 3};
        line_sweep_run(&l);
        CHECK(l.points > STEPS * 30);
        printf("%llu crash points, %llu images: all restored exactly\n",
               (unsigned long long)l.points, (unsigned long long)l.images);
        return 0;
}
