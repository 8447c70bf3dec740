/* exp_diff_apps.c: programs with and without differencing, and what the model says of them (tables
 * III, V and VI and figure 5 of the differential checkpointing paper).
 *
 * One state, three pools on disk: with diff = on and diff_model = belay or fti, and with diff =
 * off. S is what the commit takes with differencing over what it takes without, minus one: negative
 * is a gain. A model's S is made of the times that the library predicted by it for the same commit
 * with and without differencing; that of fti is equation 5. Rows of "100 %" change a number in
 * every page besides what the program does.
 *
 * Everything is done twice: on a disk that is held back to RATE, and on the disk as it is. What
 * there is to gain depends on how much faster memory is hashed than written. In the paper, on a
 * parallel file system, that was a factor of 34; a local disk may be as fast as the hash. So what
 * is to be reached is judged by the first, and the second is beside it. */
#include "exp.h"
#include "saved.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP      4u /* a pool has room for three versions */
#define SETTLE       2u
#define QUICK_ROUNDS 3u
#define FULL_ROUNDS  9u
#define POINTS       100.0
#define RATE         GIB /* per second */

enum program { BLAST, PARTICLES, HEAT };

struct app_case {
        const char *name, *changed; /* as the paper has it */
        enum program program;
        enum particle_layout layout;
        bool serialised, change_all;
        double part;       /* reach of the blast, share of hot rows */
        const char *field; /* of the summary, NULL: none */
        double wanted;
};

static const struct app_case cases[] = {
        {.name = "blast", .changed = "100 %", .program = BLAST, .part = 0.2, .change_all = true},
        {.name = "blast",
         .changed = "3 %",
         .program = BLAST,
         .part = 0.2,
         .field = "reduction_blast",
         .wanted = 0.62},
        {.name = "blast, later", .changed = "", .program = BLAST, .part = 0.6},
        {.name = "particles A",
         .changed = "100 %",
         .program = PARTICLES,
         .layout = PARTICLES_SMALL,
         .change_all = true},
        {.name = "particles A", .changed = "50 %", .program = PARTICLES, .layout = PARTICLES_SMALL},
        {.name = "particles B",
         .changed = "100 %",
         .program = PARTICLES,
         .layout = PARTICLES_LARGE,
         .change_all = true},
        {.name = "particles B", .changed = "62 %", .program = PARTICLES, .layout = PARTICLES_LARGE},
        {.name = "particles A, serialised",
         .changed = "100 %",
         .program = PARTICLES,
         .layout = PARTICLES_SMALL,
         .serialised = true,
         .change_all = true},
        {.name = "particles A, serialised",
         .changed = "50 %",
         .program = PARTICLES,
         .layout = PARTICLES_SMALL,
         .serialised = true},
        {.name = "particles B, serialised",
         .changed = "100 %",
         .program = PARTICLES,
         .layout = PARTICLES_LARGE,
         .serialised = true,
         .change_all = true},
        {.name = "particles B, serialised",
         .changed = "62 %",
         .program = PARTICLES,
         .layout = PARTICLES_LARGE,
         .serialised = true,
         .field = "reduction_particles",
         .wanted = 0.35},
        {.name = "heat", .changed = "100 %", .program = HEAT, .part = 1},
        {.name = "heat", .changed = "87 %", .program = HEAT, .part = 0.87},
        {.name = "heat", .changed = "71 %", .program = HEAT, .part = 0.71},
        {.name = "heat", .changed = "56 %", .program = HEAT, .part = 0.56},
        {.name = "heat",
         .changed = "40 %",
         .program = HEAT,
         .part = 0.4,
         .field = "reduction_heat_40",
         .wanted = 0.49},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

enum side { ON, FTI, OFF, SIDES };
enum figure { MEASURED, BELAY_MODEL, FTI_MODEL, FIGURES }; /* of S */

static const char *const side_options[SIDES] = {"diff=on,diff_model=belay",
                                                "diff=on,diff_model=fti", "diff=off"};
static const char *const side_names[SIDES] = {"belay", "fti", "off"};
static const char *const figure_names[FIGURES] = {"S measured", "S by belay", "S by fti"};

struct apps {
        struct bench *b;
        uint64_t bytes;
        unsigned rounds;
        struct app app;
        struct saved side[SIDES];
        uint64_t rate; /* 0: as it is */
        const char *storage;
        struct bench_row *commit[SIDES], *predicted[SIDES], *share, *s[FIGURES];
        struct bench_row *reduction[CASES];
        double error[FIGURES]; /* of the medians, in points; the worst case */
};

static int make_app(struct apps *v, const struct app_case *c)
{
        switch (c->program) {
        case BLAST:
                return app_blast(&v->app, v->bytes, c->part);
        case PARTICLES:
                return app_particles(&v->app, v->bytes, c->layout, c->serialised);
        default:
                return app_heat(&v->app, v->bytes, c->part);
        }
}

static void advance(struct apps *v, const struct app_case *c)
{
        app_step(&v->app);
        if (c->change_all)
                app_change_all(&v->app);
}

static int open_sides(struct apps *v)
{
        int rc = 0;
        for (enum side s = ON; rc == 0 && s < SIDES; s++) {
                char options[128];
                char pool[BENCH_PATH_BYTES + 8];
                snprintf(options, sizeof(options),
                         "policy=sync,media=file,block=16KiB,%s,rate=%llu", side_options[s],
                         (unsigned long long)v->rate);
                snprintf(pool, sizeof(pool), "%s/%s", bench_options(v->b)->dir, side_names[s]);
                rc = saved_open(&v->side[s], &v->app, pool, options);
        }
        return rc;
}

/* Every slot of all pools has been written: all of the state changes each time. */
static int warm_up(struct apps *v)
{
        struct belay_stats s;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < WARM_UP * SIDES; i++) {
                if (i % SIDES == 0)
                        app_change_all(&v->app);
                rc = saved_checkpoint(&v->side[i % SIDES], &v->app, &s);
        }
        app_change_back(&v->app);
        return rc;
}

/* The first version finds the changes of the warm-up undone, and only after the second the model
 * knows what share of each set changes. */
static int settle(struct apps *v, const struct app_case *c)
{
        struct belay_stats s;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SETTLE * SIDES; i++) {
                if (i % SIDES == 0)
                        advance(v, c);
                rc = saved_checkpoint(&v->side[i % SIDES], &v->app, &s);
        }
        return rc;
}

/* S by the model of the side. */
static double predicted(const struct belay_stats *s)
{
        return (double)s->last_predicted_ns / (double)s->last_full_ns - 1;
}

static int run_round(struct apps *v, const struct app_case *c, unsigned round)
{
        struct belay_stats s[SIDES];
        advance(v, c);
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SIDES; i++) {
                enum side side = (i + round) % SIDES;
                rc = saved_checkpoint(&v->side[side], &v->app, &s[side]);
        }
        if (rc)
                return rc;
        bench_sample(v->commit[ON], (double)s[ON].last_commit_ns * 1e-6);
        bench_sample(v->commit[OFF], (double)s[OFF].last_commit_ns * 1e-6);
        bench_sample(v->predicted[ON], (double)s[ON].last_predicted_ns * 1e-6);
        bench_sample(v->predicted[FTI], (double)s[FTI].last_predicted_ns * 1e-6);
        bench_sample(v->predicted[OFF], (double)s[ON].last_full_ns * 1e-6);
        double measured = (double)s[ON].last_commit_ns / (double)s[OFF].last_commit_ns - 1;
        bench_sample(v->share, POINTS * (double)s[ON].last_data / (double)app_bytes(&v->app));
        bench_sample(v->s[MEASURED], POINTS * measured);
        bench_sample(v->s[BELAY_MODEL], POINTS * predicted(&s[ON]));
        bench_sample(v->s[FTI_MODEL], POINTS * predicted(&s[FTI]));
        bench_sample(v->reduction[c - cases], -measured);
        return 0;
}

static struct bench_row *row(struct apps *v, const struct app_case *c, const char *figure,
                             const char *unit)
{
        struct bench_row *row = bench_row(v->b, c->name, unit);
        bench_param_text(row, "storage", v->storage);
        bench_param_text(row, "changed", c->changed);
        bench_param_text(row, "figure", figure);
        bench_param_bytes(row, "bytes", v->bytes);
        return row;
}

static void make_rows(struct apps *v, const struct app_case *c)
{
        v->commit[ON] = row(v, c, "commit", "ms");
        v->commit[OFF] = row(v, c, "commit, full", "ms");
        v->predicted[ON] = row(v, c, "predicted", "ms");
        v->predicted[FTI] = row(v, c, "predicted by fti", "ms");
        v->predicted[OFF] = row(v, c, "predicted, full", "ms");
        v->share = row(v, c, "written", "%");
        for (enum figure f = MEASURED; f < FIGURES; f++)
                v->s[f] = row(v, c, figure_names[f], "%");
        v->reduction[c - cases] = c->field ? row(v, c, "reduction", "") : NULL;
}

static int run_case(struct apps *v, const struct app_case *c)
{
        make_rows(v, c);
        int rc = make_app(v, c);
        if (rc == 0)
                rc = open_sides(v);
        if (rc == 0)
                rc = warm_up(v);
        if (rc == 0)
                rc = settle(v, c);
        for (unsigned i = 0; rc == 0 && i < v->rounds; i++)
                rc = run_round(v, c, i);
        for (enum side s = ON; s < SIDES; s++)
                if (saved_close(&v->side[s]) && rc == 0)
                        rc = -1;
        app_delete(&v->app);
        for (enum figure f = BELAY_MODEL; f < FIGURES; f++)
                v->error[f] = fmax(v->error[f],
                                   fabs(bench_median(v->s[MEASURED]) - bench_median(v->s[f])));
        bench_beside(v->b, v->s, FIGURES);
        return rc;
}

/* Fields of the summary itself for the disk that is held back, of an object for the other. */
static const char *field(const struct apps *v, const char *name, char buf[64])
{
        snprintf(buf, 64, "%s%s", v->rate ? "" : "raw_disk.", name);
        return buf;
}

static struct bench_row *worst(struct apps *v, enum figure f, const char *figure)
{
        struct bench_row *row = bench_row(v->b, "all", "points");
        bench_param_text(row, "storage", v->storage);
        bench_param_text(row, "figure", figure);
        bench_sample(row, v->error[f]);
        return row;
}

static void summarise(struct apps *v)
{
        char name[64];
        bench_figure_most(v->b, field(v, "max_model_error_points", name),
                          worst(v, BELAY_MODEL, "model error"), v->rate ? 10 : 0);
        bench_figure_most(v->b, field(v, "max_fti_error_points", name),
                          worst(v, FTI_MODEL, "fti error"), 0);
        for (unsigned i = 0; i < CASES; i++)
                if (cases[i].field)
                        bench_figure(v->b, field(v, cases[i].field, name), v->reduction[i],
                                     v->rate ? cases[i].wanted : 0);
}

static int run_storage(struct apps *v, const char *storage, uint64_t rate)
{
        v->storage = storage;
        v->rate = rate;
        memset(v->error, 0, sizeof(v->error));
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < CASES; i++)
                rc = run_case(v, &cases[i]);
        if (rc == 0)
                summarise(v);
        return rc;
}

int exp_diff_apps(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct apps *v = calloc(1, sizeof(*v));
        if (!v)
                return bench_fail("no memory");
        v->b = b;
        v->bytes = o->bytes ? o->bytes : o->quick ? 64 * MIB : 256 * MIB;
        v->rounds = o->rounds ? o->rounds : o->quick ? QUICK_ROUNDS : FULL_ROUNDS;
        int rc = bench_has_room(o->dir, 15 * v->bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --dir");
        if (rc == 0)
                rc = run_storage(v, "held back", RATE);
        if (rc == 0)
                rc = run_storage(v, "disk", 0);
        free(v);
        return rc;
}
