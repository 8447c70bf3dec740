/* model_main.h: runs the model over seeds; STEPS, FIXED and RANDOM say how much. TEST_SEED=n runs
 * that seed alone. */
#ifndef TESTS_MODEL_MAIN_H
#define TESTS_MODEL_MAIN_H

#include "model.h"

static char model_path_[4200];

/* Also after a failed check, which ends the process. */
static inline void model_remove_(void)
{
        unlink(model_path_);
}

/* Odd seeds on the disk, even ones in memory where a sync costs nothing. */
static inline const char *model_path(uint64_t seed)
{
        bool memory = seed % 2 == 0 && access("/dev/shm", W_OK) == 0;
        if (!model_path_[0])
                atexit(model_remove_);
        snprintf(model_path_, sizeof(model_path_), "%s/belay-model-%d.pool",
                 memory ? "/dev/shm" : test_dir(), (int)getpid());
        return model_path_;
}

static inline void model_run(uint64_t seed, uint64_t steps)
{
        static struct model m;
        printf("seed %llu, %llu steps\n", (unsigned long long)seed, (unsigned long long)steps);
        fflush(stdout);
        model_begin(&m, model_path(seed), seed);
        for (uint64_t i = 0; i < steps; i++)
                model_step(&m);
        printf("  %llu checkpoints (%llu refused for lack of space), %llu restarts (%llu refused), "
               "%llu reopened, %llu sweeps\n",
               (unsigned long long)m.count.checkpoints, (unsigned long long)m.count.failed,
               (unsigned long long)m.count.restarts, (unsigned long long)m.count.refused,
               (unsigned long long)m.count.reopened, (unsigned long long)m.count.sweeps);
        model_end(&m);
}

static inline int model_main(uint64_t fixed, uint64_t random, uint64_t steps)
{
        const char *seed = getenv("TEST_SEED");
        test_env_clean();
        if (seed && *seed) {
                model_run(strtoull(seed, NULL, 10), steps);
                return 0;
        }
        for (uint64_t i = 1; i <= fixed; i++)
                model_run(i, steps);
        uint64_t start = test_seed_of_time();
        for (uint64_t i = 0; i < random; i++)
                model_run(start + i, steps);
        return 0;
}

#endif
