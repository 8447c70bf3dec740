/* exp_copy_level.c: a second pool that is kept up in the background (option copy).
 *
 *   bytes     what is written to the copy, for what changed: a tenth of the state in one piece, and
 *             one word in each of a hundredth of its blocks
 *   run time  of a stencil with the pool in memory and its copy on disk, beside a pool on disk
 *             alone: the increase per checkpoint, and how long the copy takes to follow */
#include "exp.h"
#include "work.h"
#include <stdlib.h>
#include <time.h>

#define BLOCK (16 * KIB)

static uint64_t next(uint64_t *seed)
{
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return *seed >> 16;
}

/* Waits until the copy has the newest version. */
static int follow(struct belay *c, struct belay_stats *s)
{
        for (;;) {
                s->size = sizeof(*s);
                if (belay_stats(c, s))
                        return work_failed("statistics");
                if (s->copy_failed)
                        return bench_fail("a version could not be copied");
                if (s->copy_version == s->version)
                        return 0;
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

struct state {
        uint64_t bytes, seed;
        uint8_t *p, *marks; /* of blocks */
        struct belay *context;
};

/* Both return the bytes of the blocks that changed. */
static uint64_t change_piece(struct state *s)
{
        uint64_t bytes = s->bytes / 10 / BLOCK * BLOCK;
        uint64_t at = next(&s->seed) % ((s->bytes - bytes) / BLOCK) * BLOCK;
        bench_fill(s->p + at, bytes, next(&s->seed));
        return bytes;
}

static uint64_t change_scattered(struct state *s)
{
        uint64_t blocks = s->bytes / BLOCK;
        uint64_t changed = 0;
        for (uint64_t i = 0; i < blocks; i++)
                s->marks[i] = 0;
        while (changed < blocks / 100) {
                uint64_t block = next(&s->seed) % blocks;
                if (s->marks[block])
                        continue;
                s->marks[block] = 1;
                s->p[block * BLOCK + next(&s->seed) % BLOCK]++;
                changed++;
        }
        return changed * BLOCK;
}

static int one_change(struct state *s, uint64_t (*change)(struct state *s), struct bench_row *row)
{
        struct belay_stats before;
        struct belay_stats after;
        int rc = follow(s->context, &before);
        if (rc)
                return rc;
        uint64_t changed = change(s);
        rc = work_checkpoint(s->context, &after);
        if (rc == 0)
                rc = follow(s->context, &after);
        if (rc == 0)
                bench_sample(row,
                             (double)(after.copy_written - before.copy_written) / (double)changed);
        return rc;
}

static int run_bytes(struct bench *b, uint64_t bytes)
{
        const struct bench_options *o = bench_options(b);
        char pool[BENCH_PATH_BYTES + 16];
        char options[BENCH_PATH_BYTES + 32];
        struct bench_row *piece = bench_row(b, "a tenth, one piece", "written/changed");
        struct bench_row *scattered = bench_row(b, "a hundredth, scattered", "written/changed");
        struct state s = {.bytes = bytes, .seed = 5, .p = bench_memory(bytes)};
        bench_param_bytes(piece, "bytes", bytes);
        bench_param_bytes(scattered, "bytes", bytes);
        s.marks = calloc(1, bytes / BLOCK + 1);
        snprintf(pool, sizeof(pool), "%s/pool", o->memory_dir);
        snprintf(options, sizeof(options), "copy=%s", o->dir);
        int rc = s.p && s.marks ? work_open(pool, options, &s.context) : -1;
        if (rc == 0) {
                bench_fill(s.p, bytes, 1);
                if (belay_attach(s.context, "state", BELAY_U8, bytes, s.p))
                        rc = work_failed("attach");
        }
        struct belay_stats stats;
        if (rc == 0)
                rc = work_checkpoint(s.context, &stats);
        for (unsigned i = 0; rc == 0 && i < 5; i++) {
                rc = one_change(&s, change_piece, piece);
                if (rc == 0)
                        rc = one_change(&s, change_scattered, scattered);
        }
        (void)belay_close(&s.context);
        bench_memory_free(s.p, bytes);
        free(s.marks);
        bench_figure_most(b, "bytes_over_changed", piece, 1.05);
        bench_figure_most(b, "bytes_over_changed_scattered", scattered, 1.2);
        return rc;
}

/* ---- run time -------------------------------------------------------------------------------- */

enum way { MEMORY, COPIED, DISK, WAYS };
static const char *const names[WAYS] = {"pool in memory", "pool in memory, copy on disk",
                                        "pool on disk"};

struct run {
        struct stencil stencil;
        char path[WAYS][BENCH_PATH_BYTES + 16];
        char options[WAYS][BENCH_PATH_BYTES + 64];
        struct bench_row *increase[WAYS], *behind;
};

static int follow_save(struct saver *s)
{
        struct belay_stats stats;
        return follow(s->context, &stats);
}

static int run_way(struct run *r, enum way way)
{
        struct saver s = {.kind = SAVE_BELAY, .path = r->path[way], .options = r->options[way]};
        struct stencil_times t = {0, 0};
        saver_take_stencil(&s, &r->stencil);
        int rc = saver_open(&s);
        if (rc == 0)
                rc = stencil_run(&r->stencil, &s, way == COPIED ? follow_save : NULL, &t);
        if (rc == 0 && way == COPIED) {
                double start = bench_now();
                rc = follow_save(&s);
                bench_sample(r->behind, (bench_now() - start) * 1e3);
        }
        if (rc == 0)
                bench_sample(r->increase[way], (t.seconds - t.calm) * 1e3 / STENCIL_SAVES);
        int second = saver_close(&s);
        return rc ? rc : second;
}

static int run_time(struct bench *b, uint64_t bytes)
{
        const struct bench_options *o = bench_options(b);
        struct run *r = calloc(1, sizeof(*r));
        if (!r)
                return bench_fail("no memory");
        for (enum way w = MEMORY; w < WAYS; w++) {
                snprintf(r->path[w], sizeof(r->path[w]), "%s/run%d",
                         w == DISK ? o->dir : o->memory_dir, (int)w);
                snprintf(r->options[w], sizeof(r->options[w]), "copy_buffer=%llu%s%s",
                         (unsigned long long)bytes, w == COPIED ? ",copy=" : "",
                         w == COPIED ? o->dir : "");
                r->increase[w] = bench_row(b, names[w], "ms");
                bench_param_bytes(r->increase[w], "bytes", bytes);
                bench_param_text(r->increase[w], "figure", "increase");
        }
        r->behind = bench_row(b, "copy complete after the run", "ms");
        bench_param_bytes(r->behind, "bytes", bytes);
        int rc = stencil_new(&r->stencil, bytes);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++)
                for (enum way w = MEMORY; rc == 0 && w < WAYS; w++)
                        rc = run_way(r, w);
        bench_ratio_most(b, "increase_copied_over_disk", r->increase[COPIED], r->increase[DISK], 0);
        bench_ratio_most(b, "increase_copied_over_memory", r->increase[COPIED], r->increase[MEMORY],
                         0);
        stencil_delete(&r->stencil);
        free(r);
        return rc;
}

int exp_copy_level(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        uint64_t bytes = o->bytes ? o->bytes : o->quick ? 64 * MIB : 256 * MIB;
        int rc = bench_has_room(o->memory_dir, 4 * bytes) && bench_has_room(o->dir, 8 * bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --dir and --memory-dir");
        if (rc == 0)
                rc = run_bytes(b, bytes);
        if (rc == 0)
                rc = run_time(b, bytes);
        return rc;
}
