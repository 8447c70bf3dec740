/* exp_cow_size.c: run time of a stencil by size of the copy buffer, for the flush orders `async`
 * and `adaptive` (Figure 4 of the AI-Ckpt paper), on storage so slow that a flush lasts longer
 * than it takes the program to write all of its state again. The buffer is nothing, 1/256, 1/64,
 * 1/16, 1/4 and all of the state. Settings are the defaults but for the order. */
#include "exp.h"
#include "work.h"
#include <stdlib.h>

#define STEPS    50u
#define INTERVAL 10u /* even: the same grid is written next after every checkpoint */
#define SETTLE   4u  /* saves before the time begins: history, and a pool that has its size */
#define WORK     6u  /* so that the medium is the slow one, not the flusher */
#define CALM     6u  /* steps after a checkpoint, the flush is over */
/* A flush lasts as long as so many steps. Two of them write all of the state: what is left to the
 * order is what makes a difference. */
#define FLUSH_ITERATIONS 2.5
#define SIZES            6u

struct cow {
        struct bench *b;
        uint64_t bytes, rate, buffer[SIZES];
        struct stencil stencil;
        char pool[BENCH_PATH_BYTES];
        struct bench_row *none, *increase[2][SIZES]; /* async, adaptive */
};

static struct saver make_saver(struct cow *c, const char *options)
{
        struct saver s = {.kind = options ? SAVE_BELAY : SAVE_NONE,
                          .path = c->pool,
                          .options = options,
                          .rate = c->rate,
                          .part_count = 2};
        for (int k = 0; k < 2; k++)
                s.parts[k] = (struct work_part){(uint8_t *)c->stencil.grid[k], c->stencil.bytes};
        return s;
}

/* *calm: the time of the whole run without its checkpoints. */
static int run(struct cow *c, const char *options, double *seconds, double *calm)
{
        struct saver s = make_saver(c, options);
        c->stencil.step = 0;
        double times[STEPS];
        unsigned count = 0;
        int rc = saver_open(&s);
        for (unsigned i = 0; rc == 0 && i < SETTLE; i++) {
                rc = saver_save(&s);
                for (int k = 0; k < 4; k++)
                        stencil_step(&c->stencil);
                if (rc == 0)
                        rc = saver_wait(&s);
        }
        double start = bench_now();
        for (unsigned i = 1; rc == 0 && i <= STEPS; i++) {
                double begun = bench_now();
                stencil_step(&c->stencil);
                if ((i - 1) % INTERVAL >= CALM)
                        times[count++] = bench_now() - begun;
                if (i % INTERVAL == 0 && i < STEPS)
                        rc = saver_save(&s);
        }
        if (rc == 0)
                rc = saver_wait(&s);
        *seconds = bench_now() - start;
        *calm = work_median(times, count) * STEPS;
        int second = saver_close(&s);
        return rc ? rc : second;
}

static int run_round(struct cow *c)
{
        static const char *const policies[2] = {"async", "adaptive"};
        double seconds;
        double calm;
        int rc = run(c, NULL, &seconds, &calm);
        bench_sample(c->none, seconds * 1e3);
        for (unsigned i = 0; rc == 0 && i < SIZES; i++)
                for (unsigned k = 0; rc == 0 && k < 2; k++) {
                        char options[96];
                        snprintf(options, sizeof(options), "policy=%s,media=file,copy_buffer=%llu",
                                 policies[k], (unsigned long long)c->buffer[i]);
                        rc = run(c, options, &seconds, &calm);
                        bench_sample(c->increase[k][i], (seconds - calm) * 1e3);
                }
        return rc;
}

static int warm_up(struct cow *c)
{
        struct saver s = make_saver(c, "policy=sync,media=file");
        s.rate = 0;
        double least = 0;
        int rc = saver_open(&s);
        for (int i = 0; rc == 0 && i < 4; i++) {
                double start = bench_now();
                stencil_step(&c->stencil);
                stencil_step(&c->stencil);
                double seconds = (bench_now() - start) / 2;
                least = i == 0 || seconds < least ? seconds : least;
                rc = saver_save(&s);
        }
        int second = saver_close(&s);
        c->rate = (uint64_t)((double)c->bytes / (least * FLUSH_ITERATIONS));
        return rc ? rc : second;
}

static void make_rows(struct cow *c)
{
        c->none = bench_row(c->b, "no checkpoint, run time", "ms");
        bench_param_bytes(c->none, "rate", c->rate);
        for (unsigned i = 0; i < SIZES; i++)
                for (unsigned k = 0; k < 2; k++) {
                        c->increase[k][i] =
                                bench_row(c->b, k ? "adaptive, increase" : "async, increase", "ms");
                        bench_param_bytes(c->increase[k][i], "buffer", c->buffer[i]);
                }
}

static void make_ratios(struct cow *c)
{
        static const char *const names[SIZES] = {
                "adaptive_over_async_0",       "adaptive_over_async_256th",
                "adaptive_over_async_64th",    "adaptive_over_async_16th",
                "adaptive_over_async_quarter", "adaptive_over_async_all"};
        unsigned worst = 0;
        double most = 0;
        for (unsigned i = 0; i + 1 < SIZES; i++) {
                double r = bench_median_ratio(c->increase[1][i], c->increase[0][i]);
                if (i == 0 || r > most) {
                        most = r;
                        worst = i;
                }
        }
        bench_ratio_most(c->b, "worst_adaptive_over_async_to_64m", c->increase[1][worst],
                         c->increase[0][worst], 1);
        for (unsigned i = 0; i < SIZES; i++)
                bench_ratio_most(c->b, names[i], c->increase[1][i], c->increase[0][i], 0);
}

static int measure(struct cow *c)
{
        int rc = warm_up(c);
        if (rc)
                return rc;
        make_rows(c);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(c->b, i, started); i++)
                rc = run_round(c);
        if (rc == 0)
                make_ratios(c);
        return rc;
}

int exp_cow_size(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct cow *c = calloc(1, sizeof(*c));
        if (!c)
                return bench_fail("no memory");
        c->b = b;
        c->bytes = o->bytes ? o->bytes : o->quick ? 64 * MIB : 256 * MIB;
        for (unsigned i = 1; i < SIZES; i++)
                c->buffer[i] = c->bytes >> (2 * (SIZES - 1 - i));
        snprintf(c->pool, sizeof(c->pool), "%s/pool", o->memory_dir);
        int rc = stencil_new(&c->stencil, c->bytes);
        c->stencil.work = WORK;
        if (rc == 0)
                rc = measure(c);
        stencil_delete(&c->stencil);
        free(c);
        return rc;
}
