/* freeze_many.c: the experiment `freeze` for a state of many arrays, as malloc gives them: each
 * begins 16 bytes into a page, and shares its first and its last page with other memory. Beside it,
 * a program with a few arrays that writes all of them in every step. */
#include "exp.h"
#include "work.h"
#include <stdlib.h>
#include <string.h>

#define PAGE               (4 * KIB)
#define STEADY_CHECKPOINTS 6

struct shape {
        const char *arrays;
        uint64_t count, bytes;
        double all, some;          /* most that is wanted; all written, 3 % written */
        const char *all_fields[2]; /* pool in memory, on disk                        */
        const char *some_fields[2];
};

#define FIELDS(name)                                                                               \
        {                                                                                          \
                "blocked_over_memcpy_" name, "disk.blocked_over_memcpy_" name                      \
        }
#define SHAPE(name) .all_fields = FIELDS(name), .some_fields = FIELDS(name "_3pct")

static const struct shape shapes[] = {
        {"512 x 512 KiB", 512, 512 * KIB, 0.25, 0.12, SHAPE("many_512k")},
        {"64 x 4 MiB", 64, 4 * MIB, 0.18, 0.05, SHAPE("many_4m")},
        {"4096 x 64 KiB", 4096, 64 * KIB, 0.45, 0.3, SHAPE("many_64k")},
        {"23 x 0.5 MB", 23, 500000, 0.3, 0, SHAPE("hydro")},
};

struct many {
        struct bench *b;
        const struct shape *shape;
        uint64_t count, seed;
        const char *place;
        unsigned every; /* a page in so many is written */
        uint8_t **arrays, **copies;
        struct belay *context;
        char pool[BENCH_PATH_BYTES];
};

/* One page in `every`, counted through all arrays, at a place in its group that changes. */
static int change(void *arg)
{
        struct many *m = arg;
        uint64_t per_array = m->shape->bytes / PAGE;
        uint64_t pages = m->count * per_array;
        for (uint64_t i = 0; i < pages; i += m->every) {
                m->seed = m->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                uint64_t page = i + (m->seed >> 33) % m->every;
                page = page < pages ? page : i;
                uint8_t *p = m->arrays[page / per_array] + page % per_array * PAGE;
                uint64_t *word = (uint64_t *)p + (m->seed >> 20) % (PAGE / sizeof(*word));
                *word += m->seed | 1;
        }
        return 0;
}

static int checkpoint(void *arg)
{
        struct many *m = arg;
        return belay_checkpoint(m->context) ? work_failed("checkpoint") : 0;
}

static int wait_commit(void *arg)
{
        struct many *m = arg;
        struct belay_stats s = {.size = sizeof(s)};
        if (belay_wait(m->context, 0, BELAY_FOREVER) || belay_stats(m->context, &s))
                return work_failed("commit");
        return s.last_data >= m->count * m->shape->bytes / m->every / 2
                       ? 0
                       : bench_fail("a checkpoint did not write what changed");
}

static int copy_all(void *arg)
{
        struct many *m = arg;
        for (uint64_t i = 0; i < m->count; i++)
                memcpy(m->copies[i], m->arrays[i], m->shape->bytes);
        return 0;
}

static struct bench_row *row(struct many *m, const char *name)
{
        struct bench_row *row = bench_row(m->b, name, "ms");
        bench_param_text(row, "arrays", m->shape->arrays);
        bench_param_text(row, "dirty", m->every == 1 ? "all" : "3 %");
        bench_param_text(row, "pool", m->place);
        return row;
}

static int run_set(struct many *m, const char *field, double wanted)
{
        struct bench_case cases[] = {
                {row(m, "checkpoint"), change, checkpoint, wait_commit, m, 0},
                {row(m, "memcpy"), NULL, copy_all, NULL, m, 0},
        };
        int rc = 0;
        for (int i = 0; rc == 0 && i < STEADY_CHECKPOINTS; i++) {
                change(m);
                rc = checkpoint(m);
                if (rc == 0)
                        rc = wait_commit(m);
        }
        if (rc == 0)
                rc = bench_rounds(m->b, cases, 2);
        if (rc == 0)
                bench_ratio_most(m->b, field, cases[0].row, cases[1].row, wanted);
        return rc;
}

static void free_arrays(uint8_t **arrays, uint64_t count)
{
        for (uint64_t i = 0; arrays && i < count; i++)
                free(arrays[i]);
        free(arrays);
}

static uint8_t **make_arrays(uint64_t count, uint64_t bytes)
{
        uint8_t **arrays = calloc(count, sizeof(*arrays));
        for (uint64_t i = 0; arrays && i < count; i++) {
                arrays[i] = malloc(bytes);
                if (!arrays[i]) {
                        free_arrays(arrays, count);
                        return NULL;
                }
                bench_fill(arrays[i], bytes, i);
        }
        return arrays;
}

static int open_pool(struct many *m, const char *dir)
{
        snprintf(m->pool, sizeof(m->pool), "%s/many", dir);
        int rc = work_open(m->pool, "", &m->context);
        for (uint64_t i = 0; rc == 0 && i < m->count; i++) {
                char name[32];
                snprintf(name, sizeof(name), "array/%llu", (unsigned long long)i);
                if (belay_attach(m->context, name, BELAY_U8, m->shape->bytes, m->arrays[i]))
                        rc = work_failed("attach");
        }
        return rc;
}

static int run_place(struct many *m, bool disk)
{
        const struct bench_options *o = bench_options(m->b);
        m->place = disk ? "disk" : "memory";
        int rc = open_pool(m, disk ? o->dir : o->memory_dir);
        m->every = 1;
        if (rc == 0)
                rc = run_set(m, m->shape->all_fields[disk], m->shape->all);
        m->every = 33;
        if (rc == 0 && m->shape->some > 0)
                rc = run_set(m, m->shape->some_fields[disk], m->shape->some);
        if (m->context && belay_close(&m->context) && rc == 0)
                rc = work_failed("close");
        (void)remove(m->pool);
        return rc;
}

/* With --quick there are fewer arrays, of the same size. */
int freeze_many(struct bench *b)
{
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < sizeof(shapes) / sizeof(shapes[0]); i++) {
                struct many m = {.b = b, .shape = &shapes[i], .seed = i, .count = shapes[i].count};
                if (bench_options(b)->quick && m.count > 64)
                        m.count /= 8;
                m.arrays = make_arrays(m.count, m.shape->bytes);
                m.copies = make_arrays(m.count, m.shape->bytes);
                rc = m.arrays && m.copies ? run_place(&m, false) : bench_fail("no memory");
                if (rc == 0)
                        rc = run_place(&m, true);
                free_arrays(m.arrays, m.count);
                free_arrays(m.copies, m.count);
        }
        return rc;
}
