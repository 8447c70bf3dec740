/* exp_warm_up.c: the first versions of a new pool.
 *
 *   versions  one region, all of it rewritten before each checkpoint: how long versions 1 to 5 take
 *             until they are durable, and how long they block the program, over the tenth; in memory
 *             and on disk, and in memory without the option warm_up. By the tenth the region is in
 *             huge pages, and the pool has nothing to do with that: so once more without them
 *   run time  of a stencil that takes three checkpoints in all, with a pool that is new: the
 *             increase per checkpoint over the same run without any
 *
 * Between the opening of the pool and its first version the program does what it does before every
 * other: it rewrites its region four times, about a second for 1 GiB. */
#include "exp.h"
#include "work.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSIONS 10u
#define EARLY    5u
#define REWRITES 4u

enum way { MEMORY, DISK, COLD, SMALL, WAYS };
static const char *const names[WAYS] = {"pool in memory", "pool on disk",
                                        "pool in memory, warm_up = no",
                                        "pool in memory, huge_pages = off"};
static const char *const fields[WAYS] = {"memory", "disk", "cold", "small_pages"};
static const char *const options[WAYS] = {"", "", "warm_up=no", "huge_pages=off"};

static int fresh_pool(const char *path)
{
        return unlink(path) && errno != ENOENT ? bench_fail("unlink %s: %s", path, strerror(errno))
                                               : 0;
}

/* ---- versions -------------------------------------------------------------------------------- */

struct first {
        uint64_t bytes, seed;
        uint8_t *p;
        char path[WAYS][BENCH_PATH_BYTES + 16];
        struct figures {
                struct bench_row *first, *later, *worst, *tenth;
        } durable[WAYS], blocked[WAYS];
};

static struct bench_row *row(struct bench *b, const struct first *f, enum way way,
                             const char *figure, const char *version)
{
        struct bench_row *r = bench_row(b, names[way], "ms");
        bench_param_bytes(r, "bytes", f->bytes);
        bench_param_text(r, "figure", figure);
        bench_param_text(r, "version", version);
        return r;
}

static struct figures figures_new(struct bench *b, const struct first *f, enum way way,
                                  const char *figure)
{
        return (struct figures){.first = row(b, f, way, figure, "1"),
                                .later = row(b, f, way, figure, "2 to 5, the worst"),
                                .worst = row(b, f, way, figure, "1 to 5, the worst"),
                                .tenth = row(b, f, way, figure, "10")};
}

static void note(struct figures *f, const double *ms)
{
        double later = 0;
        for (unsigned i = 1; i < EARLY; i++)
                later = ms[i] > later ? ms[i] : later;
        bench_sample(f->first, ms[0]);
        bench_sample(f->later, later);
        bench_sample(f->worst, later > ms[0] ? later : ms[0]);
        bench_sample(f->tenth, ms[VERSIONS - 1]);
}

static int one_version(struct belay *c, double *durable, double *blocked)
{
        double start = bench_now();
        if (belay_checkpoint(c))
                return work_failed("checkpoint");
        *blocked = (bench_now() - start) * 1e3;
        if (belay_wait(c, 0, BELAY_FOREVER))
                return work_failed("commit");
        *durable = (bench_now() - start) * 1e3;
        return 0;
}

static int run_way(struct first *f, enum way way)
{
        double durable[VERSIONS];
        double blocked[VERSIONS];
        struct belay *c = NULL;
        int rc = fresh_pool(f->path[way]);
        f->p = bench_memory(f->bytes); /* the last run's may be in huge pages */
        if (!f->p)
                return -1;
        if (rc == 0)
                rc = work_open(f->path[way], options[way], &c);
        if (rc == 0 && belay_attach(c, "state", BELAY_U8, f->bytes, f->p))
                rc = work_failed("attach");
        for (unsigned i = 0; rc == 0 && i < VERSIONS; i++) {
                for (unsigned k = 0; k < REWRITES; k++)
                        bench_fill(f->p, f->bytes, ++f->seed);
                rc = one_version(c, &durable[i], &blocked[i]);
        }
        if (belay_close(&c) && rc == 0)
                rc = work_failed("close");
        bench_memory_free(f->p, f->bytes);
        if (rc == 0) {
                note(&f->durable[way], durable);
                note(&f->blocked[way], blocked);
        }
        return rc ? rc : fresh_pool(f->path[way]);
}

static void summarize(struct bench *b, const struct first *f)
{
        static char name[WAYS][3][48];
        for (enum way w = MEMORY; w < WAYS; w++) {
                snprintf(name[w][0], sizeof(name[w][0]), "%s_first_durable_over_tenth", fields[w]);
                snprintf(name[w][1], sizeof(name[w][1]), "%s_later_durable_over_tenth", fields[w]);
                snprintf(name[w][2], sizeof(name[w][2]), "%s_worst_blocked_over_tenth", fields[w]);
                bench_ratio_most(b, name[w][0], f->durable[w].first, f->durable[w].tenth,
                                 w == MEMORY ? 3 : 0);
                bench_ratio_most(b, name[w][1], f->durable[w].later, f->durable[w].tenth,
                                 w == MEMORY ? 1.5 : 0);
                bench_ratio_most(b, name[w][2], f->blocked[w].worst, f->blocked[w].tenth,
                                 w == MEMORY ? 2 : 0);
        }
}

static int run_versions(struct bench *b, uint64_t bytes)
{
        const struct bench_options *o = bench_options(b);
        struct first *f = calloc(1, sizeof(*f));
        if (!f)
                return bench_fail("no memory");
        f->bytes = bytes;
        for (enum way w = MEMORY; w < WAYS; w++) {
                snprintf(f->path[w], sizeof(f->path[w]), "%s/first",
                         w == DISK ? o->dir : o->memory_dir);
                f->durable[w] = figures_new(b, f, w, "until durable");
                f->blocked[w] = figures_new(b, f, w, "blocked");
        }
        int rc = 0;
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                for (enum way w = MEMORY; rc == 0 && w < WAYS; w++)
                        rc = run_way(f, w);
        if (rc == 0)
                summarize(b, f);
        free(f);
        return rc;
}

/* ---- run time -------------------------------------------------------------------------------- */

#define SAVES 3u
#define STEPS 10u /* before each, and after the last */

struct run {
        struct stencil stencil;
        char path[WAYS][BENCH_PATH_BYTES + 16];
        struct bench_row *increase[WAYS];
};

/* Seconds until all steps are done and the last save is complete. */
static int timed_run(struct run *r, struct saver *s, double *seconds)
{
        r->stencil.step = 0;
        double start = bench_now();
        int rc = saver_open(s);
        for (unsigned i = 1; rc == 0 && i <= (SAVES + 1) * STEPS; i++) {
                stencil_step(&r->stencil);
                if (i % STEPS == 0 && i <= SAVES * STEPS)
                        rc = saver_save(s);
        }
        int second = saver_close(s);
        *seconds = bench_now() - start;
        return rc ? rc : second;
}

static int run_round(struct run *r)
{
        double calm;
        struct saver none = {.kind = SAVE_NONE};
        int rc = timed_run(r, &none, &calm);
        for (enum way w = MEMORY; rc == 0 && w < WAYS; w++) {
                double seconds = 0;
                struct saver s = {.kind = SAVE_BELAY, .path = r->path[w], .options = options[w]};
                saver_take_stencil(&s, &r->stencil);
                rc = fresh_pool(r->path[w]);
                if (rc == 0)
                        rc = timed_run(r, &s, &seconds);
                if (rc == 0)
                        bench_sample(r->increase[w], (seconds - calm) * 1e3 / SAVES);
        }
        return rc;
}

static int run_time(struct bench *b, uint64_t bytes)
{
        const struct bench_options *o = bench_options(b);
        struct run *r = calloc(1, sizeof(*r));
        if (!r)
                return bench_fail("no memory");
        for (enum way w = MEMORY; w < WAYS; w++) {
                snprintf(r->path[w], sizeof(r->path[w]), "%s/three",
                         w == DISK ? o->dir : o->memory_dir);
                r->increase[w] = bench_row(b, names[w], "ms");
                bench_param_bytes(r->increase[w], "bytes", bytes);
                bench_param_text(r->increase[w], "figure", "increase, three checkpoints");
        }
        int rc = stencil_new(&r->stencil, bytes);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                rc = run_round(r);
        bench_ratio_most(b, "increase_of_three_memory_over_disk", r->increase[MEMORY],
                         r->increase[DISK], 0);
        bench_ratio_most(b, "increase_of_three_warm_over_cold", r->increase[MEMORY],
                         r->increase[COLD], 0);
        stencil_delete(&r->stencil);
        free(r);
        return rc;
}

int exp_warm_up(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        uint64_t bytes = o->bytes ? o->bytes : o->quick ? 256 * MIB : GIB;
        int rc = bench_has_room(o->memory_dir, 4 * bytes) && bench_has_room(o->dir, 4 * bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --dir and --memory-dir");
        if (rc == 0)
                rc = run_versions(b, bytes);
        if (rc == 0)
                rc = run_time(b, bytes);
        return rc;
}
