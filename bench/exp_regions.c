/* exp_regions.c: the processor time one region costs when there are a thousand, ten thousand or a
 * hundred thousand of them: to attach and detach it, in a checkpoint in which all have changed
 * (until it is published), in a restart, and to add it to a checkpoint in pieces. The regions are
 * small; the pool is in memory. And one nvchkptid among 40 and among 4000 variables, until it is
 * published. */
#include "exp.h"
#include "work.h"
#include <belay/nvm.h>
#include <stdlib.h>
#include <time.h>

#define REGION_BYTES 512u
#define ADDED        1000u /* regions that are added one by one */
#define NAME_BYTES   16u

enum { FEW, SOME, MANY, SIZES };
enum { ATTACH, CHECKPOINT, RESTART, ADD, DETACH, CALLS };
static const char *const calls[CALLS] = {"attach", "checkpoint", "restart", "add", "detach"};

struct set {
        struct bench *b;
        uint32_t count[SIZES];
        uint8_t *data;
        char (*names)[NAME_BYTES];
        char pool[BENCH_PATH_BYTES];
        struct bench_row *rows[CALLS][SIZES], *growth[CALLS];
        double us[CALLS][SIZES]; /* of this round */
        struct bench_row *one[2];
        double one_us[2];
};

/* Processor time of all threads: the loops over many regions take longer than the machine leaves
 * one program alone, those over few do not. Nothing here waits for a medium. */
static double cost(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int attach(struct set *s, struct belay *c, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                if (belay_attach(c, s->names[i], BELAY_U8, REGION_BYTES,
                                 s->data + (uint64_t)i * REGION_BYTES))
                        return work_failed("attach");
        return 0;
}

static void change(struct set *s, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                s->data[(uint64_t)i * REGION_BYTES]++;
}

static int checkpoint(struct belay *c)
{
        return belay_checkpoint(c) || belay_wait(c, 0, BELAY_FOREVER) ? work_failed("checkpoint")
                                                                      : 0;
}

/* A restart that brings back what was changed since. */
static int restart(struct set *s, struct belay *c, uint32_t count, double *seconds)
{
        uint8_t before = s->data[(uint64_t)(count - 1) * REGION_BYTES];
        change(s, count);
        double start = cost();
        if (belay_restart(c) != 1)
                return work_failed("restart");
        *seconds = cost() - start;
        return s->data[(uint64_t)(count - 1) * REGION_BYTES] == before
                       ? 0
                       : bench_fail("a restart did not bring a region back");
}

static int add(struct set *s, struct belay *c, double *seconds)
{
        if (belay_begin(c))
                return work_failed("begin");
        double start = cost();
        for (uint32_t i = 0; i < s->count[FEW] && i < ADDED; i++)
                if (belay_add(c, s->names[i]))
                        return work_failed("add");
        *seconds = cost() - start;
        return belay_abort(c) ? work_failed("abort") : 0;
}

static int detach(struct set *s, struct belay *c, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                if (belay_detach(c, s->names[i]))
                        return work_failed("detach");
        return 0;
}

static int measure(struct set *s, struct belay *c, unsigned size, double us[CALLS])
{
        uint32_t count = s->count[size];
        double seconds[CALLS] = {0};
        double start = cost();
        int rc = attach(s, c, count);
        seconds[ATTACH] = cost() - start;
        for (int i = 0; rc == 0 && i < 2; i++) { /* the first makes the pool grow */
                change(s, count);
                start = cost();
                rc = checkpoint(c);
                seconds[CHECKPOINT] = cost() - start;
        }
        if (rc == 0)
                rc = restart(s, c, count, &seconds[RESTART]);
        if (rc == 0)
                rc = checkpoint(c);
        if (rc == 0)
                rc = add(s, c, &seconds[ADD]);
        start = cost();
        if (rc == 0)
                rc = detach(s, c, count);
        seconds[DETACH] = cost() - start;
        uint32_t added = s->count[FEW] < ADDED ? s->count[FEW] : ADDED;
        for (unsigned i = 0; i < CALLS; i++)
                us[i] = seconds[i] * 1e6 / (i == ADD ? added : count);
        return rc;
}

static int run_once(struct set *s, unsigned size, double us[CALLS])
{
        struct belay *c;
        (void)remove(s->pool);
        int rc = work_open(s->pool, "", &c);
        if (rc)
                return rc;
        rc = measure(s, c, size, us);
        int second = belay_close(&c) ? work_failed("close") : 0;
        return rc ? rc : second;
}

/* Few regions are over in a moment: they are measured several times in a round. */
static int run_size(struct set *s, unsigned size)
{
        enum { MOST = 9 };
        static const unsigned times[SIZES] = {MOST, 3, 1};
        double us[CALLS][MOST];
        int rc = 0;
        for (unsigned n = 0; rc == 0 && n < times[size]; n++) {
                double one[CALLS] = {0};
                rc = run_once(s, size, one);
                for (unsigned i = 0; i < CALLS; i++)
                        us[i][n] = one[i];
        }
        for (unsigned i = 0; rc == 0 && i < CALLS; i++) {
                s->us[i][size] = work_median(us[i], times[size]);
                bench_sample(s->rows[i][size], s->us[i][size]);
        }
        return rc;
}

/* The variables of nvm.h belong to one context of the process, which the environment describes. */
static int run_variables(struct set *s, uint32_t count, unsigned which)
{
        enum { REPEAT = 8 };
        uint64_t id = 0;
        uint8_t *p = NULL;
        int rc = 0;
        (void)remove(s->pool);
        (void)setenv("BELAY_POOL", s->pool, 1);
        for (uint32_t i = 0; rc == 0 && i < count; i++) {
                id = genid(s->names[i]);
                p = id ? nvalloc(id, REGION_BYTES, 1) : NULL;
                rc = p ? 0 : work_failed("nvalloc");
        }
        if (rc == 0 && (nvchkptall() || belay_wait(nvcontext(), 0, BELAY_FOREVER)))
                rc = work_failed("nvchkptall");
        double start = cost();
        for (int i = 0; rc == 0 && i < REPEAT; i++) {
                p[0]++;
                if (nvchkptid(id) || belay_wait(nvcontext(), 0, BELAY_FOREVER))
                        rc = work_failed("nvchkptid");
        }
        s->one_us[which] = (cost() - start) * 1e6 / REPEAT;
        bench_sample(s->one[which], s->one_us[which]);
        int second = nvclose() ? work_failed("nvclose") : 0;
        (void)unsetenv("BELAY_POOL");
        return rc ? rc : second;
}

static int run_round(struct set *s)
{
        static const uint32_t variables[2] = {40, 4000};
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SIZES; i++)
                rc = run_size(s, i);
        for (unsigned i = 0; rc == 0 && i < 2; i++)
                rc = run_variables(s, variables[i], i);
        for (unsigned i = 0; rc == 0 && i < CALLS; i++)
                bench_sample(s->growth[i], s->us[i][MANY] / s->us[i][FEW]);
        return rc;
}

static void make_rows(struct set *s)
{
        for (unsigned i = 0; i < CALLS; i++)
                for (unsigned k = 0; k < SIZES; k++) {
                        s->rows[i][k] = bench_row(s->b, calls[i], "us");
                        bench_param_number(s->rows[i][k], "regions", s->count[k]);
                }
        for (unsigned i = 0; i < CALLS; i++) {
                s->growth[i] = bench_row(s->b, calls[i], "growth");
                bench_param_number(s->growth[i], "regions", s->count[MANY]);
        }
        for (unsigned i = 0; i < 2; i++) {
                s->one[i] = bench_row(s->b, "nvchkptid", "us");
                bench_param_number(s->one[i], "regions", i ? 4000 : 40);
        }
}

int exp_regions(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        uint64_t many = o->bytes ? o->bytes / REGION_BYTES : 100000;
        many = many < 4000 ? 4000 : many;
        struct set *s = calloc(1, sizeof(*s));
        if (!s)
                return bench_fail("no memory");
        s->b = b;
        s->count[FEW] = (uint32_t)(many / 100);
        s->count[SOME] = (uint32_t)(many / 10);
        s->count[MANY] = (uint32_t)many;
        s->data = bench_memory(many * REGION_BYTES);
        s->names = calloc(many, NAME_BYTES);
        snprintf(s->pool, sizeof(s->pool), "%s/pool", o->memory_dir);
        for (uint32_t i = 0; s->names && i < many; i++)
                snprintf(s->names[i], NAME_BYTES, "region %u", i);
        make_rows(s);
        int rc = s->data && s->names ? 0 : bench_fail("no memory");
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                rc = run_round(s);
        unsigned worst = ATTACH;
        for (unsigned i = 0; i < CALLS; i++)
                if (i != ADD && bench_median(s->growth[i]) > bench_median(s->growth[worst]))
                        worst = i;
        bench_figure_most(b, "worst_growth_1k_to_100k", s->growth[worst], 2);
        bench_figure_most(b, "add_growth_1k_to_100k", s->growth[ADD], 0);
        bench_ratio_most(b, "nvchkptid_4000_over_40", s->one[1], s->one[0], 0);
        if (s->data)
                bench_memory_free(s->data, many * REGION_BYTES);
        free(s->names);
        free(s);
        return rc;
}
