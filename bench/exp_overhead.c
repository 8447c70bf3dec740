/* exp_overhead.c: what a checkpoint costs a stencil program in all, with the pool in memory and on
 * disk: the increase in run time per checkpoint, beside a synchronous write, memcpy with a write in
 * the background, and fork() with a write in the child.
 *
 * `belay` may use as much memory for copies as memcpy does, `belay, 5 %` a twentieth of it. Every
 * way has saved the state some times before the time begins: files and pools have their size, all
 * of their memory is mapped, buffers were touched. The time ends when the last version is complete.
 * The increase is over what the same run would have taken if all its steps had been like those in
 * which nothing was saved. */
#include "exp.h"
#include "work.h"
#include <stdlib.h>

enum way { NONE, OURS, OURS_5, WRITE, COPY, FORK, WAYS };

static const char *const names[WAYS] = {"no checkpoint",      "belay",
                                        "belay, 5 % memory",  "synchronous write",
                                        "memcpy, background", "fork"};

struct overhead {
        struct bench *b;
        uint64_t bytes;
        struct stencil stencil;
        uint8_t *copy;
        const char *place;
        char options[2][96];
        char pool[BENCH_PATH_BYTES], plain[BENCH_PATH_BYTES];
        struct bench_row *time, *increase[WAYS];
};

static struct saver make_saver(struct overhead *v, enum way way)
{
        static const enum save_kind kinds[WAYS] = {SAVE_NONE,  SAVE_BELAY, SAVE_BELAY,
                                                   SAVE_WRITE, SAVE_COPY,  SAVE_FORK};
        bool ours = kinds[way] == SAVE_BELAY;
        struct saver s = {.kind = kinds[way],
                          .path = ours ? v->pool : v->plain,
                          .options = v->options[way == OURS_5],
                          .copy = v->copy};
        saver_take_stencil(&s, &v->stencil);
        return s;
}

static int run(struct overhead *v, enum way way, struct stencil_times *times)
{
        struct saver s = make_saver(v, way);
        int rc = saver_open(&s);
        if (rc == 0)
                rc = stencil_run(&v->stencil, &s, NULL, times);
        int second = saver_close(&s);
        return rc ? rc : second;
}

static int run_round(struct overhead *v)
{
        for (enum way w = NONE; w < WAYS; w++) {
                struct stencil_times t;
                int rc = run(v, w, &t);
                if (rc)
                        return rc;
                if (w == NONE)
                        bench_sample(v->time, t.seconds * 1e3);
                else
                        bench_sample(v->increase[w], (t.seconds - t.calm) * 1e3 / STENCIL_SAVES);
        }
        return 0;
}

static int warm_up(struct overhead *v)
{
        struct saver s = make_saver(v, OURS);
        int rc = saver_open(&s);
        for (int i = 0; rc == 0 && i < 4; i++) {
                stencil_step(&v->stencil);
                stencil_step(&v->stencil);
                rc = saver_save(&s);
        }
        int second = saver_close(&s);
        rc = rc ? rc : second;
        return rc ? rc : work_write(v->plain, s.parts, s.part_count, 0);
}

static void ratio(struct overhead *v, const char *field, enum way over, enum way under,
                  double wanted)
{
        char name[64];
        snprintf(name, sizeof(name), "%s.%s", v->place, field);
        bench_ratio_most(v->b, name, v->increase[over], v->increase[under], wanted);
}

static int run_place(struct overhead *v, const char *place, const char *dir, double over_copy)
{
        v->place = place;
        snprintf(v->pool, sizeof(v->pool), "%s/pool", dir);
        snprintf(v->plain, sizeof(v->plain), "%s/plain", dir);
        v->time = bench_row(v->b, names[NONE], "ms");
        bench_param_text(v->time, "pool", place);
        bench_param_text(v->time, "figure", "run time");
        for (enum way w = OURS; w < WAYS; w++) {
                v->increase[w] = bench_row(v->b, names[w], "ms");
                bench_param_text(v->increase[w], "pool", place);
                bench_param_text(v->increase[w], "figure", "increase");
        }
        int rc = warm_up(v);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(v->b, i, started); i++)
                rc = run_round(v);
        ratio(v, "increase_over_fork", OURS, FORK, 1);
        ratio(v, "increase_over_memcpy_background", OURS, COPY, over_copy);
        ratio(v, "increase_over_write", OURS, WRITE, 0);
        ratio(v, "increase_5pct_over_fork", OURS_5, FORK, 0);
        ratio(v, "increase_5pct_over_memcpy_background", OURS_5, COPY, 0);
        remove(v->pool);
        remove(v->plain);
        return rc;
}

int exp_overhead(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct overhead *v = calloc(1, sizeof(*v));
        if (!v)
                return bench_fail("no memory");
        v->b = b;
        v->bytes = o->bytes ? o->bytes : o->quick ? 256 * MIB : 512 * MIB;
        for (int i = 0; i < 2; i++)
                snprintf(v->options[i], sizeof(v->options[i]), "policy=adaptive,copy_buffer=%llu",
                         (unsigned long long)(i ? v->bytes / 20 : v->bytes));
        int rc = stencil_new(&v->stencil, v->bytes);
        v->copy = bench_memory(v->bytes);
        if (!v->copy)
                rc = -1;
        if (rc == 0)
                rc = run_place(v, "memory", o->memory_dir, 1);
        if (rc == 0)
                rc = run_place(v, "disk", o->dir, 1.1);
        stencil_delete(&v->stencil);
        bench_memory_free(v->copy, v->bytes);
        free(v);
        return rc;
}
