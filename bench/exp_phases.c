/* exp_phases.c: a program that swings between writing all of its state and writing little of it,
 * beside one that always does the one, or the other.
 *
 * An epoch is a number of iterations of one kind, and a checkpoint, which is flushed during the
 * next epoch. A dense iteration changes every word, a sparse one reads every word and changes one
 * page in PART. The increase is what an epoch takes longer than iterations of its kind do without a
 * context, which are measured in the same round. After every LENGTH epochs, which is a phase, all
 * programs wait for the last version, so that no epoch pays for one of the other kind.
 *
 * With huge_pages = off the same once more: what the program itself gains or loses by them. */
#include "exp.h"
#include "work.h"
#include <stdlib.h>

#define PAGE_WORDS 512u
#define PART       1024u
#define ITERATIONS 4u /* in an epoch */
#define LENGTH     4u /* epochs of a phase */
#define CYCLES     2u
#define SETTLE     12u /* epochs before the first that counts */
#define CALM       6u  /* iterations without a context */

enum kind { DENSE, SPARSE, KINDS };
static const char *const kind_names[KINDS] = {"dense", "sparse"};

/* Which kinds of epochs a program has. */
enum program { ALWAYS_DENSE, ALWAYS_SPARSE, PHASES, PROGRAMS };
static const char *const program_names[PROGRAMS] = {"always dense", "always sparse", "phases"};

enum pages { HUGE_AUTO, HUGE_OFF, WAYS };
static const char *const way_names[WAYS] = {"auto", "off"};

struct phases {
        struct bench *b;
        uint64_t bytes, words, seed, sum;
        uint64_t *p;
        struct belay *context;
        double calm[KINDS]; /* an iteration, in this round */
        struct bench_row *calm_row[KINDS], *time[WAYS][PROGRAMS][KINDS],
                *increase[WAYS][PROGRAMS][KINDS], *first[WAYS][KINDS];
        char pool[BENCH_PATH_BYTES + 16];
};

static void iterate(struct phases *s, enum kind kind)
{
        if (kind == DENSE) {
                for (uint64_t i = 0; i < s->words; i++)
                        s->p[i] = s->p[i] * 3 + i;
        } else {
                uint64_t sum = 0;
                for (uint64_t i = 0; i < s->words; i++)
                        sum += s->p[i];
                s->sum += sum;
                for (uint64_t i = 0; i + PART * PAGE_WORDS <= s->words; i += PART * PAGE_WORDS) {
                        s->seed = s->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                        s->p[i + (s->seed >> 33) % (PART * PAGE_WORDS)] += s->seed;
                }
        }
        __asm__ volatile("" ::: "memory");
}

static int run_epoch(struct phases *s, enum kind kind, double *seconds)
{
        double start = bench_now();
        for (unsigned i = 0; i < ITERATIONS; i++)
                iterate(s, kind);
        int rc = belay_checkpoint(s->context) ? work_failed("checkpoint") : 0;
        *seconds = bench_now() - start;
        return rc;
}

static enum kind kind_of(enum program program, unsigned epoch)
{
        if (program != PHASES)
                return program == ALWAYS_DENSE ? DENSE : SPARSE;
        return epoch / LENGTH % 2 ? SPARSE : DENSE;
}

struct sums {
        double seconds[KINDS], first[KINDS];
        unsigned epochs[KINDS], phases[KINDS];
};

/* The first phase of each kind is not counted: the program has just begun. */
static int run_epochs(struct phases *s, enum program program, struct sums *sums)
{
        unsigned settle = program == PHASES ? 2 * LENGTH : SETTLE;
        unsigned count = program == PHASES ? 2 * LENGTH * CYCLES : LENGTH * CYCLES;
        for (unsigned i = 0; i < settle + count; i++) {
                double seconds = 0;
                enum kind kind = kind_of(program, i);
                int rc = run_epoch(s, kind, &seconds);
                if (rc == 0 && (i + 1) % LENGTH == 0 && belay_wait(s->context, 0, BELAY_FOREVER))
                        rc = work_failed("commit");
                if (rc)
                        return rc;
                if (i < settle)
                        continue;
                sums->seconds[kind] += seconds;
                sums->epochs[kind]++;
                if (i % LENGTH == 0 && program == PHASES) {
                        sums->first[kind] += seconds;
                        sums->phases[kind]++;
                }
        }
        return 0;
}

static int run_program(struct phases *s, enum pages way, enum program program)
{
        struct sums sums = {.seconds = {0}};
        int rc = work_open(s->pool, way == HUGE_OFF ? "huge_pages=off" : "", &s->context);
        if (rc)
                return rc;
        s->p = belay_alloc(s->context, "state", BELAY_U64, s->words);
        rc = s->p ? 0 : work_failed("alloc");
        if (rc == 0) {
                bench_fill(s->p, s->bytes, 1);
                rc = run_epochs(s, program, &sums);
        }
        if (belay_close(&s->context) && rc == 0)
                rc = work_failed("close");
        for (enum kind k = DENSE; rc == 0 && k < KINDS; k++) {
                if (sums.epochs[k] == 0)
                        continue;
                double mean = sums.seconds[k] / sums.epochs[k];
                bench_sample(s->time[way][program][k], mean * 1e3);
                bench_sample(s->increase[way][program][k], (mean - ITERATIONS * s->calm[k]) * 1e3);
                if (sums.phases[k])
                        bench_sample(s->first[way][k], sums.first[k] / sums.phases[k] * 1e3);
        }
        return rc;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a;
        double y = *(const double *)b;
        return (x > y) - (x < y);
}

/* Memory as the program has it, but without a context. */
static int run_calm(struct phases *s)
{
        s->p = bench_memory(s->bytes);
        if (!s->p)
                return -1;
        bench_fill(s->p, s->bytes, 1);
        for (enum kind k = DENSE; k < KINDS; k++) {
                double seconds[CALM];
                for (unsigned i = 0; i < CALM; i++) {
                        double start = bench_now();
                        iterate(s, k);
                        seconds[i] = bench_now() - start;
                }
                qsort(seconds, CALM, sizeof(*seconds), compare);
                s->calm[k] = seconds[CALM / 2];
                bench_sample(s->calm_row[k], s->calm[k] * ITERATIONS * 1e3);
        }
        bench_memory_free(s->p, s->bytes);
        return 0;
}

static struct bench_row *make_row(struct phases *s, const char *name, enum kind kind,
                                  const char *figure, const char *way)
{
        struct bench_row *row = bench_row(s->b, name, "ms");
        bench_param_text(row, "epochs", kind_names[kind]);
        bench_param_text(row, "figure", figure);
        if (way)
                bench_param_text(row, "huge_pages", way);
        bench_param_bytes(row, "bytes", s->bytes);
        return row;
}

static bool has(enum program program, enum kind kind)
{
        return program == PHASES || (program == ALWAYS_DENSE) == (kind == DENSE);
}

static void make_rows(struct phases *s)
{
        for (enum kind k = DENSE; k < KINDS; k++) {
                s->calm_row[k] = make_row(s, "no checkpoint", k, "epoch", NULL);
                for (enum pages w = HUGE_AUTO; w < WAYS; w++) {
                        for (enum program p = ALWAYS_DENSE; p < PROGRAMS; p++) {
                                if (!has(p, k))
                                        continue;
                                s->time[w][p][k] =
                                        make_row(s, program_names[p], k, "epoch", way_names[w]);
                                s->increase[w][p][k] =
                                        make_row(s, program_names[p], k, "increase", way_names[w]);
                        }
                        s->first[w][k] =
                                make_row(s, "phases", k, "first epoch of a phase", way_names[w]);
                }
        }
}

static void make_ratios(struct phases *s)
{
        struct bench *b = s->b;
        bench_ratio_most(b, "increase_over_dense", s->increase[HUGE_AUTO][PHASES][DENSE],
                         s->increase[HUGE_AUTO][ALWAYS_DENSE][DENSE], 1.5);
        bench_ratio_most(b, "sparse_over_sparse", s->time[HUGE_AUTO][PHASES][SPARSE],
                         s->time[HUGE_AUTO][ALWAYS_SPARSE][SPARSE], 1.3);
        bench_ratio_most(b, "dense_over_dense", s->time[HUGE_AUTO][PHASES][DENSE],
                         s->time[HUGE_AUTO][ALWAYS_DENSE][DENSE], 0);
        bench_ratio_most(b, "sparse_increase_over_sparse", s->increase[HUGE_AUTO][PHASES][SPARSE],
                         s->increase[HUGE_AUTO][ALWAYS_SPARSE][SPARSE], 0);
        bench_ratio_most(b, "first_dense_over_dense", s->first[HUGE_AUTO][DENSE],
                         s->time[HUGE_AUTO][ALWAYS_DENSE][DENSE], 0);
        bench_ratio_most(b, "first_sparse_over_sparse", s->first[HUGE_AUTO][SPARSE],
                         s->time[HUGE_AUTO][ALWAYS_SPARSE][SPARSE], 0);
        bench_ratio_most(b, "huge_over_small_dense", s->time[HUGE_AUTO][ALWAYS_DENSE][DENSE],
                         s->time[HUGE_OFF][ALWAYS_DENSE][DENSE], 0);
        bench_ratio_most(b, "huge_over_small_sparse", s->time[HUGE_AUTO][ALWAYS_SPARSE][SPARSE],
                         s->time[HUGE_OFF][ALWAYS_SPARSE][SPARSE], 0);
        bench_ratio_most(b, "huge_over_small_phases_dense", s->time[HUGE_AUTO][PHASES][DENSE],
                         s->time[HUGE_OFF][PHASES][DENSE], 0);
        bench_ratio_most(b, "huge_over_small_phases_sparse", s->time[HUGE_AUTO][PHASES][SPARSE],
                         s->time[HUGE_OFF][PHASES][SPARSE], 0);
}

int exp_phases(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct phases *s = calloc(1, sizeof(*s));
        if (!s)
                return bench_fail("no memory");
        s->b = b;
        s->bytes = (o->bytes ? o->bytes : o->quick ? 256 * MIB : GIB) / 8 * 8;
        s->words = s->bytes / 8;
        snprintf(s->pool, sizeof(s->pool), "%s/pool", o->memory_dir);
        int rc = bench_has_room(o->memory_dir, 4 * s->bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --memory-dir");
        make_rows(s);
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++) {
                rc = run_calm(s);
                for (enum program p = ALWAYS_DENSE; rc == 0 && p < PROGRAMS; p++)
                        for (unsigned k = 0; rc == 0 && k < WAYS; k++)
                                rc = run_program(s, (i + k) % 2 ? HUGE_OFF : HUGE_AUTO, p);
        }
        make_ratios(s);
        free(s);
        return rc;
}
