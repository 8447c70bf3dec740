/* exp_diff_block.c: commit time by block size, of the same change of the same state (table II of
 * the differential checkpointing paper).
 *
 * The state is that of the particle program with few large data sets, of which five eighths change.
 * Each block size has a pool of its own, on disk, and all save the same state in turn; so does one
 * without differencing. */
#include "exp.h"
#include "saved.h"
#include <stdlib.h>

#define SMALLEST_SHIFT 7u  /* 128 B */
#define LARGEST_SHIFT  20u /* 1 MiB */
#define SIZES          (LARGEST_SHIFT - SMALLEST_SHIFT + 1)
#define FULL           SIZES /* the side without differencing */
#define SIDES          (SIZES + 1)
#define WARM_UP        3u /* with one version kept, a pool has room for two */

struct blocks {
        struct bench *b;
        uint64_t bytes;
        struct app app;
        struct saved side[SIDES];
        struct bench_row *commit[SIDES], *share[SIZES], *gain[SIZES], *memory[SIZES];
};

static struct bench_row *row(struct blocks *k, unsigned side, const char *figure, const char *unit)
{
        struct bench_row *row = bench_row(k->b, side == FULL ? "full" : "differencing", unit);
        bench_param_bytes(row, "block",
                          side == FULL ? 16 * KIB : UINT64_C(1) << (SMALLEST_SHIFT + side));
        bench_param_text(row, "figure", figure);
        bench_param_bytes(row, "bytes", k->bytes);
        return row;
}

static void make_rows(struct blocks *k)
{
        for (unsigned i = 0; i < SIDES; i++)
                k->commit[i] = row(k, i, "commit", "ms");
        for (unsigned i = 0; i < SIZES; i++) {
                k->gain[i] = row(k, i, "commit over full - 1", "%");
                k->share[i] = row(k, i, "written", "%");
                k->memory[i] = row(k, i, "memory of the library", "MiB");
        }
}

static int open_side(struct blocks *k, unsigned side)
{
        char options[128];
        char pool[BENCH_PATH_BYTES + 16];
        unsigned shift = side == FULL ? 14 : SMALLEST_SHIFT + side;
        snprintf(options, sizeof(options), "policy=sync,media=file,versions=1,diff=%s,block=%llu",
                 side == FULL ? "off" : "on", 1ull << shift);
        snprintf(pool, sizeof(pool), "%s/pool%u", bench_options(k->b)->dir, side);
        return saved_open(&k->side[side], &k->app, pool, options);
}

static int warm_up(struct blocks *k)
{
        struct belay_stats s;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < WARM_UP; i++) {
                app_step(&k->app);
                app_change_all(&k->app);
                for (unsigned n = 0; rc == 0 && n < SIDES; n++)
                        rc = saved_checkpoint(&k->side[n], &k->app, &s);
        }
        return rc;
}

static void note(struct blocks *k, const struct belay_stats s[SIDES])
{
        for (unsigned i = 0; i < SIDES; i++)
                bench_sample(k->commit[i], (double)s[i].last_commit_ns * 1e-6);
        for (unsigned i = 0; i < SIZES; i++) {
                double over = (double)s[i].last_commit_ns / (double)s[FULL].last_commit_ns;
                bench_sample(k->gain[i], 100 * (over - 1));
                bench_sample(k->share[i],
                             100 * (double)s[i].last_data / (double)app_bytes(&k->app));
                bench_sample(k->memory[i], (double)s[i].memory_bytes / (double)MIB);
        }
}

static int run_round(struct blocks *k, unsigned round)
{
        struct belay_stats s[SIDES];
        app_step(&k->app);
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SIDES; i++) {
                unsigned side = (i + round) % SIDES;
                rc = saved_checkpoint(&k->side[side], &k->app, &s[side]);
        }
        if (rc == 0)
                note(k, s);
        return rc;
}

int exp_diff_block(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct blocks *k = calloc(1, sizeof(*k));
        if (!k)
                return bench_fail("no memory");
        k->b = b;
        k->bytes = o->bytes ? o->bytes : o->quick ? 64 * MIB : 256 * MIB;
        make_rows(k);
        int rc = bench_has_room(o->dir, 3 * SIDES * k->bytes)
                         ? app_particles(&k->app, k->bytes, PARTICLES_LARGE, false)
                         : bench_fail("no room for scratch files; see --dir");
        for (unsigned i = 0; rc == 0 && i < SIDES; i++)
                rc = open_side(k, i);
        if (rc == 0)
                rc = warm_up(k);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                rc = run_round(k, i);
        if (rc == 0)
                bench_ratio_most(b, "b512_over_b16k", k->commit[9 - SMALLEST_SHIFT],
                                 k->commit[14 - SMALLEST_SHIFT], 2);
        for (unsigned i = 0; i < SIDES; i++)
                if (saved_close(&k->side[i]))
                        rc = -1;
        app_delete(&k->app);
        free(k);
        return rc;
}
