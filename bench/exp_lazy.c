/* exp_lazy.c: how long a program is away after a restart: until its first iteration, which touches
 * one percent of its state, and until it has read and written all of it. Copied and verified before
 * (eager), read in the pool's own memory (lazy), and verified meanwhile (lazy+verify). */
#include "exp.h"
#include "work.h"

#define TOUCH (64 * KIB) /* the first iteration touches pieces of this size */

enum way { EAGER, LAZY, VERIFY, WAYS };
static const char *const names[WAYS] = {"eager", "lazy", "lazy+verify"};

struct lazy {
        struct bench *b;
        uint64_t bytes;
        char pool[BENCH_PATH_BYTES];
        struct bench_row *first[WAYS], *total[WAYS];
};

static int make_pool(struct lazy *l)
{
        struct belay *c;
        int rc = work_open(l->pool, "policy=sync,media=mapped", &c);
        if (rc)
                return rc;
        uint8_t *p = belay_alloc(c, "state", BELAY_U8, l->bytes);
        if (!p)
                return work_failed("state");
        bench_fill(p, l->bytes, 1);
        rc = belay_checkpoint(c) ? work_failed("checkpoint") : 0;
        int second = belay_close(&c) ? work_failed("close") : 0;
        return rc ? rc : second;
}

/* Reads and writes a byte of every cache line. */
static void touch(uint8_t *p, uint64_t bytes)
{
        for (uint64_t i = 0; i < bytes; i += 64)
                p[i]++;
}

static int run(struct lazy *l, enum way way)
{
        struct belay *c;
        char options[96];
        snprintf(options, sizeof(options), "policy=sync,media=mapped,restart=%s", names[way]);
        double start = bench_now();
        int rc = work_open(l->pool, options, &c);
        if (rc)
                return rc;
        uint8_t *p = belay_alloc(c, "state", BELAY_U8, l->bytes);
        if (!p || belay_restart(c) != 1)
                return work_failed("restart");
        for (uint64_t at = 0; at + TOUCH <= l->bytes; at += 100 * TOUCH)
                touch(p + at, TOUCH);
        double first = bench_now();
        touch(p, l->bytes);
        double total = bench_now();
        bench_sample(l->first[way], (first - start) * 1e3);
        bench_sample(l->total[way], (total - start) * 1e3);
        /* As it was, one more in every line, and another in those that were touched first. */
        for (uint64_t i = 0; i < l->bytes; i += 64)
                p[i] = (uint8_t)(p[i] - 1 -
                                 (i % (100 * TOUCH) < TOUCH &&
                                  i / TOUCH * TOUCH + TOUCH <= l->bytes));
        rc = bench_check(p, l->bytes, 1);
        int second = belay_close(&c) ? work_failed("close") : 0;
        return rc ? rc : second;
}

int exp_lazy(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct lazy l = {.b = b, .bytes = o->bytes ? o->bytes : o->quick ? 256 * MIB : GIB};
        snprintf(l.pool, sizeof(l.pool), "%s/pool", o->memory_dir);
        for (enum way w = EAGER; w < WAYS; w++) {
                l.first[w] = bench_row(b, names[w], "ms");
                bench_param_text(l.first[w], "until", "first iteration");
                l.total[w] = bench_row(b, names[w], "ms");
                bench_param_text(l.total[w], "until", "all touched");
        }
        int rc = make_pool(&l);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                for (enum way w = EAGER; rc == 0 && w < WAYS; w++)
                        rc = run(&l, w);
        bench_ratio_most(b, "first_iteration_over_eager", l.first[LAZY], l.first[EAGER], 0.05);
        bench_ratio_most(b, "total_over_eager", l.total[LAZY], l.total[EAGER], 1.15);
        bench_ratio_most(b, "verify.first_iteration_over_eager", l.first[VERIFY], l.first[EAGER],
                         0);
        bench_ratio_most(b, "verify.total_over_eager", l.total[VERIFY], l.total[EAGER], 0);
        return rc;
}
