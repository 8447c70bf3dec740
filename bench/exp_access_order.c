/* exp_access_order.c: a program that writes every byte of its state in each iteration, piece by
 * piece in some order, and is checkpointed every tenth iteration, on storage so slow that a flush
 * lasts longer than an iteration (Figure 2 of the AI-Ckpt paper).
 *
 * `async` and `adaptive` are as in the paper, over pieces of one unit instead of one page: copied
 * or waited for in the fault handler; `adaptive` goes by time alone. `paper` is the paper's in
 * everything: page by page, protected by mprotect, in the order of its Algorithm 4. `adaptive+` has
 * everything on that goes beyond it. The pool has been used before, so that no run pays for its
 * growth.
 *
 * The time is that of the whole program, until its last version is complete. The increase is three
 * times what the median checkpoint of a round costs: its call, and what the DISTURBED iterations
 * after it take longer than the calm ones of the same run. From one run to the next, and from one
 * iteration to the next, the speed of a shared machine changes by more than is to be measured; so
 * the policies, which lie close together, run several times in a round, in turn. What is far from a
 * checkpoint tells nothing about it: only the first run of each is as long as the paper's, for its
 * time; the others have as many checkpoints, half as far apart. */
#include "exp.h"
#include "walk.h"
#include "work.h"
#include <stdlib.h>
#include <string.h>

#define ITERATIONS     39u
#define INTERVAL       10u
#define SHORT_INTERVAL 5u
#define DISTURBED      2u /* iterations after a checkpoint: the flush ends in the second */
/* A flush lasts as long as so many iterations. The program writes all of its state in each, so the
 * first one after a checkpoint cannot end before all but the copy buffer is flushed, in whatever
 * order: of what a synchronous write costs, no order saves more than one iteration and the buffer,
 * 1 / FLUSH_ITERATIONS + 1 / 16. */
#define FLUSH_ITERATIONS 1.25

#define CHECKPOINTS (ITERATIONS / INTERVAL)
#define REPEATS     3u /* of the policies, which lie close together */
#define CLOSE       4u

enum config { NONE, SYNC, ASYNC, ADAPTIVE, PAPER, PLUS, FORK, CONFIGS };

static const char *const config_names[CONFIGS] = {"no checkpoint", "sync",      "async", "adaptive",
                                                  "paper",         "adaptive+", "fork"};
/* Behind what all have in common. */
#define OF_UNITS ",unit=256KiB,copy_ahead=no,open_behind=no,follow=no"
static const char *const config_options[CONFIGS] = {
        [SYNC] = "policy=sync" OF_UNITS,
        [ASYNC] = "policy=async" OF_UNITS,
        [ADAPTIVE] = "policy=adaptive,order=time" OF_UNITS,
        [PAPER] = "policy=adaptive,order=paper,tracker=mprotect,unit=4KiB,block=4KiB,"
                  "copy_ahead=no,open_behind=no,follow=no",
        [PLUS] = "policy=adaptive,unit=256KiB",
};

struct order {
        struct bench *b;
        struct walk walk;
        uint64_t rate; /* of the storage, bytes per second */
        const char *pattern;
        uint64_t buffer_bytes; /* for copies */
        char pool[BENCH_PATH_BYTES], plain[BENCH_PATH_BYTES];
        double cost[CONFIGS][REPEATS * CHECKPOINTS]; /* of the checkpoints of this round */
        unsigned cost_count[CONFIGS];
        bool whole[CONFIGS]; /* the next run has all iterations */
        struct bench_row *time[CONFIGS], *increase[CONFIGS], *waits[CONFIGS], *copies[CONFIGS],
                *avoided[CONFIGS];
};

static void iterate(struct order *a)
{
        walk_pieces(&a->walk, 0, a->walk.pieces);
}

static struct saver make_saver(struct order *a, enum config config)
{
        enum save_kind kind = config == NONE ? SAVE_NONE : config == FORK ? SAVE_FORK : SAVE_BELAY;
        struct saver s = {.kind = kind, .path = a->pool, .rate = a->rate};
        s.parts[0] = (struct work_part){a->walk.data, a->walk.bytes};
        s.part_count = 1;
        if (config == FORK)
                s.path = a->plain;
        return s;
}

/* The paper's library knows the order of the first writes from the allocation on; here a first
 * checkpoint, which is not measured, tells it. */
static int make_history(struct order *a, struct saver *s)
{
        iterate(a);
        int rc = saver_save(s);
        for (int i = 0; rc == 0 && i < 2; i++)
                iterate(a);
        if (rc == 0)
                rc = saver_wait(s);
        saver_reset(s);
        return rc;
}

/* A run, and what its checkpoints cost. */
struct costs {
        bool whole; /* the first run of each; others are shorter */
        double iteration[ITERATIONS], call[ITERATIONS];
};

static unsigned interval_of(const struct costs *c)
{
        return c->whole ? INTERVAL : SHORT_INTERVAL;
}

static unsigned iterations_of(const struct costs *c)
{
        return c->whole ? ITERATIONS : (CHECKPOINTS + 1) * SHORT_INTERVAL - 1;
}

static int compare(const void *a, const void *b)
{
        const double *x = a;
        const double *y = b;
        return (*x > *y) - (*x < *y);
}

/* What an iteration takes that no checkpoint disturbs: the lower quartile, since whatever else the
 * machine has to do only ever makes one longer. */
static double usual(const struct costs *c)
{
        double calm[ITERATIONS] = {0};
        unsigned count = 0;
        unsigned interval = interval_of(c);
        for (unsigned i = 0; i < iterations_of(c); i++)
                if (i < interval || i % interval >= DISTURBED)
                        calm[count++] = c->iteration[i];
        qsort(calm, count, sizeof(*calm), compare);
        return calm[count / 4];
}

static void note_costs(struct order *a, enum config config, const struct costs *c)
{
        for (unsigned i = interval_of(c); i < iterations_of(c); i += interval_of(c)) {
                double cost = c->call[i - 1];
                for (unsigned k = 0; k < DISTURBED; k++)
                        cost += c->iteration[i + k] - usual(c);
                a->cost[config][a->cost_count[config]++] = cost;
        }
}

static int run(struct order *a, enum config config)
{
        char options[256];
        struct costs costs = {.whole = a->whole[config]};
        struct saver s = make_saver(a, config);
        snprintf(options, sizeof(options), "media=file,copy_buffer=%llu,%s",
                 (unsigned long long)a->buffer_bytes,
                 config_options[config] ? config_options[config] : "");
        s.options = options;
        int rc = saver_open(&s);
        if (rc == 0)
                rc = make_history(a, &s);
        double start = bench_now();
        for (unsigned i = 0; rc == 0 && i < iterations_of(&costs); i++) {
                double begun = bench_now();
                iterate(a);
                double done = bench_now();
                costs.iteration[i] = done - begun;
                if ((i + 1) % interval_of(&costs) == 0)
                        rc = saver_save(&s);
                costs.call[i] = bench_now() - done;
        }
        if (rc == 0)
                rc = saver_wait(&s);
        if (costs.whole)
                bench_sample(a->time[config], (bench_now() - start) * 1e3);
        a->whole[config] = false;
        note_costs(a, config, &costs);
        int second = saver_close(&s);
        bench_sample(a->waits[config], (double)s.waits);
        bench_sample(a->copies[config], (double)s.cows);
        bench_sample(a->avoided[config], (double)s.avoided);
        return rc ? rc : second;
}

static int run_round(struct order *a)
{
        static const enum config close[CLOSE] = {ASYNC, ADAPTIVE, PAPER, PLUS};
        unsigned repeats = bench_options(a->b)->quick ? 1 : REPEATS;
        memset(a->cost_count, 0, sizeof(a->cost_count));
        int rc = a->whole[NONE] ? run(a, NONE) : 0;
        rc = rc ? rc : run(a, SYNC);
        rc = rc ? rc : run(a, FORK);
        for (unsigned i = 0; rc == 0 && i < repeats * CLOSE; i++)
                rc = run(a, close[(i + i / CLOSE) % CLOSE]);
        unsigned checkpoints = CHECKPOINTS;
        for (enum config c = SYNC; rc == 0 && c < CONFIGS; c++)
                bench_sample(a->increase[c],
                             work_median(a->cost[c], a->cost_count[c]) * checkpoints * 1e3);
        return rc;
}

static struct bench_row *row(struct order *a, const char *name, const char *figure,
                             const char *unit)
{
        struct bench_row *row = bench_row(a->b, name, unit);
        bench_param_text(row, "pattern", a->pattern);
        bench_param_text(row, "figure", figure);
        return row;
}

static void make_rows(struct order *a)
{
        for (enum config c = NONE; c < CONFIGS; c++) {
                bool belay = c == ASYNC || c == ADAPTIVE || c == PAPER || c == PLUS;
                uint64_t unit = c == PAPER ? 4096 : WALK_PIECE;
                const char *name = config_names[c];
                a->time[c] = row(a, name, "run time", "ms");
                bench_param_bytes(a->time[c], "rate", a->rate);
                a->increase[c] = c == NONE ? NULL : row(a, name, "increase", "ms");
                a->waits[c] = belay ? row(a, name, "waits", "units") : NULL;
                a->copies[c] = belay ? row(a, name, "copies", "units") : NULL;
                a->avoided[c] = belay ? row(a, name, "avoided", "units") : NULL;
                bench_param_bytes(a->waits[c], "unit", unit);
                bench_param_bytes(a->copies[c], "unit", unit);
                bench_param_bytes(a->avoided[c], "unit", unit);
                a->whole[c] = true;
        }
}

static void ratio(struct order *a, const char *field, struct bench_row *const rows[CONFIGS],
                  enum config over, enum config under, double wanted)
{
        char name[64];
        snprintf(name, sizeof(name), "%s.%s", a->pattern, field);
        bench_ratio_most(a->b, name, rows[over], rows[under], wanted);
}

static int run_pattern(struct order *a, enum walk_order pattern)
{
        static const double over_async[WALK_ORDERS] = {1.05, 0.67, 0.5};
        a->pattern = walk_order_names[pattern];
        walk_set_order(&a->walk, pattern);
        a->rate = walk_rate(&a->walk, FLUSH_ITERATIONS);
        make_rows(a);
        double started = bench_now();
        int rc = 0;
        for (unsigned i = 0; rc == 0 && bench_more(a->b, i, started); i++)
                rc = run_round(a);
        ratio(a, "increase_adaptive_over_sync", a->increase, ADAPTIVE, SYNC, 0);
        ratio(a, "increase_adaptive_over_async", a->increase, ADAPTIVE, ASYNC, over_async[pattern]);
        ratio(a, "waits_adaptive_over_async", a->waits, ADAPTIVE, ASYNC,
              pattern == ASCENDING ? 0 : 0.5);
        ratio(a, "avoided_adaptive_over_async", a->avoided, ADAPTIVE, ASYNC, 0);
        ratio(a, "increase_paper_over_time", a->increase, PAPER, ADAPTIVE, 0);
        ratio(a, "increase_plus_over_adaptive", a->increase, PLUS, ADAPTIVE, 1);
        ratio(a, "increase_plus_over_fork", a->increase, PLUS, FORK, 0);
        return rc;
}

/* All slots of the pool and all of the plain file have been written once. */
static int warm_up(struct order *a)
{
        struct saver s = {.kind = SAVE_BELAY, .path = a->pool, .options = "policy=sync,media=file"};
        s.parts[0] = (struct work_part){a->walk.data, a->walk.bytes};
        s.part_count = 1;
        int rc = saver_open(&s);
        for (uint64_t i = 0; rc == 0 && i < 4; i++) {
                bench_fill(a->walk.data, a->walk.bytes, i);
                rc = saver_save(&s);
        }
        int second = saver_close(&s);
        rc = rc ? rc : second;
        return rc ? rc : work_write(a->plain, s.parts, 1, 0);
}

int exp_access_order(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct order *a = calloc(1, sizeof(*a));
        if (!a)
                return bench_fail("no memory");
        a->b = b;
        uint64_t bytes = o->bytes ? o->bytes : o->quick ? 32 * MIB : 256 * MIB;
        a->buffer_bytes = bytes / 16;
        snprintf(a->pool, sizeof(a->pool), "%s/pool", o->memory_dir);
        snprintf(a->plain, sizeof(a->plain), "%s/plain", o->memory_dir);
        int rc = walk_new(&a->walk, bytes);
        if (rc == 0)
                rc = warm_up(a);
        for (enum walk_order p = ASCENDING; rc == 0 && p < WALK_ORDERS; p++)
                rc = run_pattern(a, p);
        walk_delete(&a->walk);
        free(a);
        return rc;
}
