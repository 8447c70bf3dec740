/* exp_dynamic.c: data sets that change their size or place: is more written than what is new?
 *
 * What may be written of region data is the new content and one block for each edge that moved: the
 * block there holds old bytes and new ones, or fewer old ones. Metadata is counted apart. Then 1000
 * checkpoints of sets that grow at random: the pool stays one file, of a size that goes with that
 * of the live data, and each version that it keeps comes back as memory was. */
#include "exp.h"
#include "work.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK     (16 * KIB)
#define VERSIONS  2u
#define SETS      4u
#define MANY      1000u
#define FEW       250u /* --quick */
#define GROW_NAME "growing"

enum kind { GROW, SHRINK, MOVE, AGAIN, RANDOM, KINDS };
static const char *const kind_names[KINDS] = {"grows by 1 %", "shrinks by 1 %", "moves",
                                              "freed, allocated again", "grows at random"};

/* What the retained versions must be. */
struct kept {
        uint64_t version;
        uint8_t *copy[SETS];
        uint64_t bytes[SETS];
};

struct dynamic {
        struct bench *b;
        uint64_t bytes, seed;
        struct belay *context;
        struct kept kept[VERSIONS];
        char pool[BENCH_PATH_BYTES];
        struct bench_row *data[RANDOM], *allowed[RANDOM], *written[RANDOM], *ratio[KINDS];
        struct bench_row *worst, *files, *pool_over_live;
        double most[KINDS]; /* of the ratios */
};

static uint64_t next(struct dynamic *d)
{
        d->seed = d->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return d->seed >> 33;
}

static uint64_t whole_words(uint64_t bytes)
{
        return bytes / sizeof(uint64_t) * sizeof(uint64_t);
}

/* bench_fill leaves what is less than 64 bytes at the end. */
static void fill(struct dynamic *d, uint8_t *p, uint64_t bytes)
{
        bench_fill(p, bytes, next(d));
        for (uint64_t at = bytes / 64 * 64; at < bytes; at++)
                p[at] = (uint8_t)next(d);
}

static struct bench_row *row(struct dynamic *d, const char *name, const char *figure,
                             const char *unit)
{
        struct bench_row *row = bench_row(d->b, name, unit);
        bench_param_text(row, "figure", figure);
        return row;
}

static void make_rows(struct dynamic *d)
{
        for (enum kind k = GROW; k < RANDOM; k++) {
                d->data[k] = row(d, kind_names[k], "data written", "KiB");
                d->allowed[k] = row(d, kind_names[k], "new, with edges", "KiB");
                d->written[k] = row(d, kind_names[k], "all written", "KiB");
                d->ratio[k] = row(d, kind_names[k], "data over new", "");
        }
        d->ratio[RANDOM] = row(d, kind_names[RANDOM], "data over new", "");
        d->worst = row(d, "all", "data over new", "");
        d->files = row(d, kind_names[RANDOM], "files", "");
        d->pool_over_live = row(d, kind_names[RANDOM], "pool over live", "");
}

static int count_files(const char *dir)
{
        int count = 0;
        DIR *d = opendir(dir);
        if (!d)
                return 0;
        for (const struct dirent *e; (e = readdir(d));)
                count += e->d_name[0] != '.';
        closedir(d);
        return count;
}

static int open_pool(struct dynamic *d)
{
        return work_open(d->pool, "policy=sync,media=file,block=16KiB,versions=2,diff=on",
                         &d->context);
}

/* A checkpoint that may write `content` new bytes and a block for each edge. */
static int save(struct dynamic *d, enum kind kind, uint64_t content, unsigned edges,
                struct belay_stats *s)
{
        int rc = work_checkpoint(d->context, s);
        double allowed = (double)(content + edges * BLOCK);
        double ratio = (double)s->last_data / allowed;
        if (rc)
                return rc;
        d->most[kind] = ratio > d->most[kind] ? ratio : d->most[kind];
        if (kind == RANDOM)
                return 0;
        bench_sample(d->data[kind], (double)s->last_data / (double)KIB);
        bench_sample(d->allowed[kind], allowed / (double)KIB);
        bench_sample(d->written[kind], (double)s->last_written / (double)KIB);
        bench_sample(d->ratio[kind], ratio);
        return 0;
}

/* ---- one kind of change at a time ------------------------------------------------------------ */

static uint8_t *resize(struct dynamic *d, const char *name, uint64_t bytes)
{
        uint8_t *p = belay_resize(d->context, name, bytes / sizeof(uint64_t));
        if (!p)
                work_failed("resize");
        return p;
}

static int grow_and_shrink(struct dynamic *d, uint64_t *bytes)
{
        struct belay_stats s;
        uint64_t more = whole_words(*bytes / 100);
        uint8_t *p = resize(d, GROW_NAME, *bytes + more);
        if (!p)
                return -1;
        fill(d, p + *bytes, more);
        int rc = save(d, GROW, more, 1, &s);
        if (rc)
                return rc;
        /* Less than it grew by: over the rounds it gets larger. */
        *bytes += whole_words(more / 3);
        return resize(d, GROW_NAME, *bytes) ? save(d, SHRINK, 0, 1, &s) : -1;
}

/* The content goes along, but for one block. */
static int move(struct dynamic *d, uint8_t *to, const uint8_t *from)
{
        struct belay_stats s;
        memcpy(to, from, d->bytes);
        fill(d, to + next(d) % (d->bytes / BLOCK) * BLOCK, BLOCK);
        if (belay_move(d->context, "moving", d->bytes / sizeof(uint64_t), to))
                return work_failed("move");
        return save(d, MOVE, BLOCK, 0, &s);
}

static int allocate(struct dynamic *d, const char *name, uint64_t bytes)
{
        uint8_t *p = belay_alloc(d->context, name, BELAY_U64, bytes / sizeof(uint64_t));
        if (!p)
                return work_failed("alloc");
        fill(d, p, bytes);
        return 0;
}

static int again(struct dynamic *d)
{
        struct belay_stats s;
        if (belay_free(d->context, "again"))
                return work_failed("free");
        int rc = allocate(d, "again", d->bytes);
        return rc ? rc : save(d, AGAIN, d->bytes, 1, &s);
}

static int begin(struct dynamic *d, uint8_t *place)
{
        struct belay_stats s;
        fill(d, place, d->bytes);
        int rc = open_pool(d);
        if (rc == 0)
                rc = allocate(d, GROW_NAME, d->bytes);
        if (rc == 0)
                rc = allocate(d, "again", d->bytes);
        if (rc == 0 &&
            belay_attach(d->context, "moving", BELAY_U64, d->bytes / sizeof(uint64_t), place))
                rc = work_failed("attach");
        return rc ? rc : work_checkpoint(d->context, &s);
}

static int close_pool(struct dynamic *d, int rc)
{
        if (belay_close(&d->context) && rc == 0)
                rc = work_failed("close");
        remove(d->pool);
        return rc;
}

static int run_kinds(struct dynamic *d)
{
        uint8_t *place[2] = {bench_memory(d->bytes), bench_memory(d->bytes)};
        uint64_t bytes = d->bytes;
        int rc = place[0] && place[1] ? begin(d, place[0]) : -1;
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(d->b, i, started); i++) {
                rc = grow_and_shrink(d, &bytes);
                if (rc == 0)
                        rc = move(d, place[(i + 1) % 2], place[i % 2]);
                if (rc == 0)
                        rc = again(d);
        }
        rc = close_pool(d, rc);
        bench_memory_free(place[0], d->bytes);
        bench_memory_free(place[1], d->bytes);
        return rc;
}

/* ---- random growth --------------------------------------------------------------------------- */

static const char *const set_names[SETS] = {"a", "b", "c", "d"};

static int keep(struct dynamic *d, const uint64_t bytes[SETS])
{
        struct kept *k = &d->kept[belay_version(d->context) % VERSIONS];
        k->version = belay_version(d->context);
        for (unsigned i = 0; i < SETS; i++) {
                void *room = realloc(k->copy[i], bytes[i]);
                if (!room)
                        return bench_fail("no memory");
                k->copy[i] = room;
                k->bytes[i] = bytes[i];
                memcpy(room, belay_ptr(d->context, set_names[i]), bytes[i]);
        }
        return 0;
}

/* A set grows by up to a 500th of its first size and one of its blocks changes. */
static int grow_set(struct dynamic *d, unsigned set, uint64_t *bytes)
{
        uint64_t more = whole_words(next(d) % (d->bytes / SETS / 500 + 64));
        uint8_t *p = resize(d, set_names[set], *bytes + more);
        if (!p)
                return -1;
        fill(d, p + *bytes, more);
        fill(d, p + next(d) % (*bytes / BLOCK) * BLOCK, BLOCK);
        *bytes += more;
        return 0;
}

static int grow_sets(struct dynamic *d, uint64_t bytes[SETS])
{
        struct belay_stats s;
        uint64_t content = 0;
        unsigned edges = 0;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SETS; i++) {
                if (next(d) % 2)
                        continue;
                content -= bytes[i];
                rc = grow_set(d, i, &bytes[i]);
                content += bytes[i] + BLOCK;
                edges++;
        }
        return rc || edges == 0 ? rc : save(d, RANDOM, content, edges, &s);
}

static int compare_sets(struct dynamic *d, const struct kept *k)
{
        if (belay_restart_version(d->context, k->version, BELAY_RESIZE) != 1)
                return work_failed("restart");
        for (unsigned i = 0; i < SETS; i++)
                if (memcmp(belay_ptr(d->context, set_names[i]), k->copy[i], k->bytes[i]) != 0)
                        return bench_fail("version %llu differs from what memory held in '%s'",
                                          (unsigned long long)k->version, set_names[i]);
        return 0;
}

/* In a context that knows the versions from the file alone. */
static int verify(struct dynamic *d)
{
        if (belay_close(&d->context))
                return work_failed("close");
        int rc = open_pool(d);
        for (unsigned i = 0; rc == 0 && i < SETS; i++)
                rc = allocate(d, set_names[i], d->bytes / SETS);
        for (unsigned i = 0; rc == 0 && i < VERSIONS; i++)
                rc = compare_sets(d, &d->kept[i]);
        return rc;
}

static int measure_pool(struct dynamic *d)
{
        struct belay_stats s = {.size = sizeof(s)};
        if (belay_stats(d->context, &s))
                return work_failed("stats");
        bench_sample(d->pool_over_live, (double)s.pool_bytes / (double)s.region_bytes);
        bench_sample(d->files, count_files(bench_options(d->b)->dir));
        bench_sample(d->ratio[RANDOM], d->most[RANDOM]);
        return 0;
}

static int run_random(struct dynamic *d)
{
        uint64_t bytes[SETS];
        unsigned count = bench_options(d->b)->quick ? FEW : MANY;
        struct belay_stats s;
        int rc = open_pool(d);
        for (unsigned i = 0; rc == 0 && i < SETS; i++) {
                bytes[i] = d->bytes / SETS;
                rc = allocate(d, set_names[i], bytes[i]);
        }
        if (rc == 0)
                rc = work_checkpoint(d->context, &s);
        for (unsigned i = 0; rc == 0 && i < count; i++) {
                rc = grow_sets(d, bytes);
                if (rc == 0 && i + 2 * VERSIONS + 8 > count)
                        rc = keep(d, bytes);
        }
        if (rc == 0)
                rc = measure_pool(d);
        if (rc == 0)
                rc = verify(d);
        return close_pool(d, rc);
}

static double most_of_all(const struct dynamic *d)
{
        double most = 0;
        for (enum kind k = GROW; k < KINDS; k++)
                most = d->most[k] > most ? d->most[k] : most;
        return most;
}

int exp_dynamic(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct dynamic *d = calloc(1, sizeof(*d));
        if (!d)
                return bench_fail("no memory");
        d->b = b;
        d->seed = 1;
        d->bytes = o->bytes ? o->bytes : 16 * MIB;
        snprintf(d->pool, sizeof(d->pool), "%s/pool", o->dir);
        make_rows(d);
        int rc = run_kinds(d);
        if (rc == 0)
                rc = run_random(d);
        if (rc == 0) {
                bench_sample(d->worst, most_of_all(d));
                bench_figure_most(b, "bytes_over_new_content", d->worst, 1);
                bench_figure_most(b, "pool_over_live", d->pool_over_live, 2.2);
        }
        for (unsigned i = 0; i < VERSIONS; i++)
                for (unsigned k = 0; k < SETS; k++)
                        free(d->kept[i].copy[k]);
        free(d);
        return rc;
}
