/* exp_epochs.c: checkpoints that do not line up with iterations. The program of access-order is
 * checkpointed in the middle of an iteration, each time at another place of it: what it writes
 * first after a checkpoint is then not what it wrote first after the one before, although the order
 * is the same. Measured is how long the program waits for units, with option `follow` on and
 * off, with epochs that line up and with those that do not. */
#include "exp.h"
#include "walk.h"
#include "work.h"
#include <stdlib.h>

#define CHECKPOINTS      6u
#define FLUSH_ITERATIONS 1.25
#define PIECE_SECONDS    5e-4
/* Iterations from one checkpoint to the next: with .62 the places lie far apart (golden section).
 */
#define ALIGNED    2.0
#define MISALIGNED 2.62

enum config { ASYNC, PLAIN, FOLLOW, CONFIGS };
static const char *const config_names[CONFIGS] = {"async", "adaptive", "adaptive, follow"};
static const char *const config_options[CONFIGS] = {"policy=async", "policy=adaptive,follow=no",
                                                    "policy=adaptive,follow=yes"};

struct epochs {
        struct bench *b;
        struct walk walk;
        uint64_t rate;
        bool aligned;
        char group[32];
        char pool[BENCH_PATH_BYTES];
        struct bench_row *waited[CONFIGS], *units[CONFIGS];
};

static int run(struct epochs *a, enum config config)
{
        char options[192];
        snprintf(options, sizeof(options), "%s,media=file,unit=256KiB,copy_buffer=%llu",
                 config_options[config], (unsigned long long)(a->walk.bytes / 16));
        struct saver s = {.kind = SAVE_BELAY, .path = a->pool, .options = options, .rate = a->rate};
        s.parts[0] = (struct work_part){a->walk.data, a->walk.bytes};
        s.part_count = 1;
        uint64_t step = (uint64_t)((double)a->walk.pieces * (a->aligned ? ALIGNED : MISALIGNED));
        uint64_t at = 0;
        int rc = saver_open(&s);
        /* The first two, which tell the order, are not measured. */
        for (unsigned i = 0; rc == 0 && i < CHECKPOINTS + 2; i++, at += step) {
                walk_paced(&a->walk, at, step, PIECE_SECONDS);
                if (i == 2) {
                        rc = saver_wait(&s);
                        saver_reset(&s);
                }
                if (rc == 0)
                        rc = saver_save(&s);
        }
        if (rc == 0) {
                walk_paced(&a->walk, at, step, PIECE_SECONDS);
                rc = saver_wait(&s);
        }
        bench_sample(a->waited[config], (double)s.wait_ns / 1e6 / CHECKPOINTS);
        bench_sample(a->units[config], (double)s.waits / CHECKPOINTS);
        int second = saver_close(&s);
        return rc ? rc : second;
}

static struct bench_row *row(struct epochs *a, enum config config, enum walk_order order,
                             const char *figure, const char *unit)
{
        struct bench_row *row = bench_row(a->b, config_names[config], unit);
        bench_param_text(row, "pattern", walk_order_names[order]);
        bench_param_text(row, "epochs", a->aligned ? "aligned" : "misaligned");
        bench_param_text(row, "figure", figure);
        return row;
}

static int run_group(struct epochs *a, enum walk_order order, bool aligned)
{
        char name[64];
        a->aligned = aligned;
        for (enum config c = ASYNC; c < CONFIGS; c++) {
                a->waited[c] = row(a, c, order, "waited", "ms");
                a->units[c] = row(a, c, order, "waits", "units");
        }
        double started = bench_now();
        int rc = 0;
        for (unsigned i = 0; rc == 0 && bench_more(a->b, i, started); i++)
                for (unsigned k = 0; rc == 0 && k < CONFIGS; k++)
                        rc = run(a, (enum config)((k + i) % CONFIGS));
        snprintf(a->group, sizeof(a->group), "%s_%s", walk_order_names[order],
                 aligned ? "aligned" : "misaligned");
        snprintf(name, sizeof(name), "%s.follow_over_not", a->group);
        bench_ratio_most(a->b, name, a->waited[FOLLOW], a->waited[PLAIN], 0);
        snprintf(name, sizeof(name), "%s.adaptive_over_async", a->group);
        bench_ratio_most(a->b, name, a->waited[PLAIN], a->waited[ASYNC], 0);
        return rc;
}

/* Of storage that takes FLUSH_ITERATIONS for all of the state. */
static uint64_t iteration_rate(struct walk *w)
{
        double start = bench_now();
        walk_paced(w, 0, w->pieces, PIECE_SECONDS);
        return (uint64_t)((double)w->bytes / (bench_now() - start) / FLUSH_ITERATIONS);
}

int exp_epochs(struct bench *b)
{
        static const enum walk_order orders[] = {ASCENDING, RANDOM};
        const struct bench_options *o = bench_options(b);
        struct epochs *a = calloc(1, sizeof(*a));
        if (!a)
                return bench_fail("no memory");
        a->b = b;
        snprintf(a->pool, sizeof(a->pool), "%s/pool", o->memory_dir);
        int rc = walk_new(&a->walk, o->bytes ? o->bytes : o->quick ? 32 * MIB : 128 * MIB);
        for (unsigned i = 0; rc == 0 && i < 2; i++) {
                walk_set_order(&a->walk, orders[i]);
                a->rate = iteration_rate(&a->walk);
                rc = run_group(a, orders[i], true);
                if (rc == 0)
                        rc = run_group(a, orders[i], false);
        }
        walk_delete(&a->walk);
        free(a);
        return rc;
}
