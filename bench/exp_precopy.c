/* exp_precopy.c: programs with the chunk sizes of Table IV of the NVM-checkpoints paper, on memory
 * that a core can write at 2000 … 200 MB/s (Figures 7 and 8): the checkpoint that does nothing
 * before it is called, and pre-copy: immediate (CPC), delayed (DCPC), delayed with prediction
 * (DCPCP).
 *
 * An interval has PHASES phases of computing. A chunk is modified in the phases that its kind says:
 * once, early, in the middle, or hot until the end. The increase is over the same program without
 * checkpoints, run in the same round; of both, the median interval counts. */
#include "exp.h"
#include "work.h"
#include <stdlib.h>
#include <string.h>

#define PHASES    20u
#define LEARNED   3u /* intervals before the time begins */
#define INTERVALS 5u
#define MOST      32u
/* At 400 MB/s a checkpoint takes 15 % of an interval, as in the paper. */
#define REFERENCE 400e6
#define SHARE     0.15

enum form { NOTHING, NONE, CPC, DCPC, DCPCP, FORMS };
static const char *const names[FORMS] = {"no checkpoint", "none", "CPC", "DCPC", "DCPCP"};
static const char *const words[FORMS] = {"", "off", "immediate", "delayed", "predicted"};

/* When a chunk is modified. */
enum kind { ONCE, EARLY, MIDDLE, HOT };

/* Chunks of a size class: how many, how large relative to others, and which of them are what. */
struct class
{
        unsigned count;
        double weight;
        enum kind kinds[4]; /* in turn */
};
struct app {
        const char *name;
        struct class classes[4];
};
/* Shares of the size classes 0.5-1, 10-20, 50-100 and over 100 MB in the number of chunks. */
static const struct app apps[] = {
        {"LAMMPS-like",
         {{5, 0.75, {HOT, EARLY, EARLY, MIDDLE}},
          {0, 15, {EARLY}},
          {6, 75, {EARLY, MIDDLE, EARLY, HOT}},
          {8, 125, {EARLY, EARLY, MIDDLE, HOT}}}},
        {"GTC-like",
         {{10, 0.75, {HOT, MIDDLE, EARLY, EARLY}},
          {2, 15, {EARLY, MIDDLE}},
          {0, 75, {EARLY}},
          {10, 125, {EARLY, ONCE, MIDDLE, EARLY}}}},
        {"CM1-like",
         {{8, 0.75, {HOT, EARLY, MIDDLE, EARLY}},
          {0, 15, {EARLY}},
          {11, 75, {HOT, MIDDLE, HOT, EARLY}},
          {1, 125, {HOT}}}},
};
#define APPS (sizeof(apps) / sizeof(apps[0]))

struct chunk {
        char name[16];
        uint8_t *p;
        uint64_t bytes;
        enum kind kind;
};

struct precopy {
        struct bench *b;
        uint64_t bytes;
        uint64_t turns; /* of spin in a phase */
        struct chunk chunks[MOST];
        unsigned count;
        char pool[BENCH_PATH_BYTES];
        struct bench_row *time[FORMS], *increase[FORMS], *blocked[FORMS], *copied[FORMS];
};

static void plan_chunks(struct precopy *v, const struct app *app)
{
        double sum = 0;
        for (int c = 0; c < 4; c++)
                sum += app->classes[c].count * app->classes[c].weight;
        v->count = 0;
        for (int c = 0; c < 4; c++)
                for (unsigned i = 0; i < app->classes[c].count; i++) {
                        struct chunk *k = &v->chunks[v->count++];
                        double bytes = (double)v->bytes * app->classes[c].weight / sum;
                        *k = (struct chunk){.kind = app->classes[c].kinds[i % 4]};
                        k->bytes = ((uint64_t)bytes / 4096 + 1) * 4096;
                        snprintf(k->name, sizeof(k->name), "chunk%u", v->count);
                }
}

static bool modifies(enum kind kind, unsigned phase)
{
        switch (kind) {
        case ONCE:
                return false;
        case EARLY:
                return phase < 4;
        case MIDDLE:
                return phase >= 4 && phase < 9;
        default:
                return phase % 2 == 1;
        }
}

/* Computing that touches no memory. */
static void spin(uint64_t turns)
{
        static volatile uint64_t sink;
        uint64_t x = sink + 1;
        for (uint64_t i = 0; i < turns; i++)
                x = x * 6364136223846793005u + 1442695040888963407u;
        sink = x;
}

/* Turns of spin in a second, the best of some tries. */
static double turns_per_second(void)
{
        double best = 0;
        for (int i = 0; i < 20; i++) {
                double start = bench_now();
                spin(2000000);
                double rate = 2000000 / (bench_now() - start);
                best = rate > best ? rate : best;
        }
        return best;
}

/* Always the same work: what a fault takes comes on top of it. */
static void compute(struct precopy *v, unsigned phase)
{
        for (unsigned i = 0; i < v->count; i++)
                for (uint64_t at = 0; modifies(v->chunks[i].kind, phase) && at < v->chunks[i].bytes;
                     at += 64)
                        v->chunks[i].p[at]++;
        spin(v->turns);
}

static int register_chunks(struct precopy *v, struct belay *c)
{
        for (unsigned i = 0; i < v->count; i++) {
                struct chunk *k = &v->chunks[i];
                struct belay_desc d = {.size = sizeof(d),
                                       .name = k->name,
                                       .type = BELAY_U8,
                                       .ndims = 1,
                                       .dims = {k->bytes},
                                       .flags = BELAY_CHUNK};
                k->p = belay_alloc_desc(c, &d);
                if (!k->p)
                        return work_failed(k->name);
                bench_fill(k->p, k->bytes, i);
        }
        return 0;
}

static int interval(struct precopy *v, struct belay *c, bool saves, struct belay_stats *s)
{
        for (unsigned phase = 0; phase < PHASES; phase++)
                compute(v, phase);
        return saves ? work_checkpoint(c, s) : 0;
}

static int run(struct precopy *v, enum form form, uint64_t rate, double *seconds)
{
        char options[160];
        struct belay *c;
        struct belay_stats s = {.size = sizeof(s)};
        double blocked = 0;
        double copied = 0;
        (void)remove(v->pool);
        snprintf(options, sizeof(options),
                 "policy=sync,tracker=scan,media=mapped,diff=off,rate=%llu,precopy=%s",
                 (unsigned long long)rate, form == NOTHING ? "off" : words[form]);
        int rc = work_open(v->pool, options, &c);
        if (rc)
                return rc;
        rc = register_chunks(v, c);
        for (unsigned i = 0; rc == 0 && i < LEARNED; i++)
                rc = interval(v, c, form != NOTHING, &s);
        double times[INTERVALS] = {0};
        for (unsigned i = 0; rc == 0 && i < INTERVALS; i++) {
                double start = bench_now();
                rc = interval(v, c, form != NOTHING, &s);
                times[i] = bench_now() - start;
                blocked += (double)s.last_blocked_ns * 1e-6;
                copied += (double)s.last_data / MIB;
        }
        *seconds = rc ? 0 : work_median(times, INTERVALS) * INTERVALS;
        int second = belay_close(&c) ? work_failed("close") : 0;
        bench_sample(v->time[form], *seconds * 1e3);
        if (form != NOTHING) {
                bench_sample(v->blocked[form], blocked / INTERVALS);
                bench_sample(v->copied[form], copied / INTERVALS);
        }
        return rc ? rc : second;
}

/* All forms, there and back: the speed of a shared machine changes from one run to the next by more
 * than is to be measured, and in this order a steady change counts for all alike. */
static int run_round(struct precopy *v, uint64_t rate)
{
        double seconds[FORMS] = {0};
        for (unsigned i = 0; i < 2 * FORMS; i++) {
                enum form f = i < FORMS ? i : 2 * FORMS - 1 - i;
                double once;
                int rc = run(v, f, rate, &once);
                if (rc)
                        return rc;
                seconds[f] += once;
        }
        for (enum form f = NONE; f < FORMS; f++)
                bench_sample(v->increase[f], (seconds[f] / seconds[NOTHING] - 1) * 100);
        return 0;
}

static struct bench_row *row(struct precopy *v, const char *app, uint64_t rate, enum form f,
                             const char *figure, const char *unit)
{
        struct bench_row *r = bench_row(v->b, names[f], unit);
        bench_param_text(r, "program", app);
        bench_param_number(r, "MB/s", rate / 1000000);
        bench_param_text(r, "figure", figure);
        return r;
}

static int run_app(struct precopy *v, const struct app *app, uint64_t rate, double *worst)
{
        plan_chunks(v, app);
        for (enum form f = NOTHING; f < FORMS; f++) {
                v->time[f] = row(v, app->name, rate, f, "run time", "ms");
                if (f == NOTHING)
                        continue;
                v->increase[f] = row(v, app->name, rate, f, "increase", "%");
                v->blocked[f] = row(v, app->name, rate, f, "blocked", "ms");
                v->copied[f] = row(v, app->name, rate, f, "copied", "MiB");
        }
        int rc = 0;
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(v->b, i, started); i++)
                rc = run_round(v, rate);
        double more = bench_median(v->increase[DCPCP]) - bench_median(v->increase[CPC]);
        *worst = more > *worst ? more : *worst;
        if (rc == 0 && app == &apps[0] && rate == 400000000) {
                bench_ratio_most(v->b, "lammps_400_increase_dcpcp_over_none", v->increase[DCPCP],
                                 v->increase[NONE], 0.43);
                bench_ratio_most(v->b, "lammps_400_bytes_dcpcp_over_none", v->copied[DCPCP],
                                 v->copied[NONE], 1.05);
        }
        return rc;
}

int exp_precopy(struct bench *b)
{
        static const uint64_t rates[] = {400000000, 2000000000, 1000000000, 200000000};
        const struct bench_options *o = bench_options(b);
        struct precopy v = {.b = b, .bytes = o->bytes ? o->bytes : o->quick ? 8 * MIB : 16 * MIB};
        double worst = -100;
        snprintf(v.pool, sizeof(v.pool), "%s/pool", o->memory_dir);
        v.turns = (uint64_t)((double)v.bytes / REFERENCE / SHARE / PHASES * turns_per_second());
        int rc = 0;
        for (unsigned k = 0; k < (o->quick ? 1u : 4u); k++)
                for (size_t i = 0; rc == 0 && i < (o->quick ? 1u : APPS); i++)
                        rc = run_app(&v, &apps[i], rates[k], &worst);
        struct bench_row *most = bench_row(b, "DCPCP", "points");
        bench_param_text(most, "figure", "worst, over CPC");
        bench_sample(most, worst);
        bench_figure_most(b, "worst_dcpcp_minus_cpc_points", most, 2);
        return rc;
}
