/* bench_measure.c: rows, samples, rounds, ratios. */
#include "bench_int.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A set of alternatives gets this long. `raw --quick` has four sets and must end within 40 s on a
 * disk that is slower than memory by far. */
#define QUICK_SECONDS 3.0
#define FULL_SECONDS  20.0
#define LEAST_ROUNDS  3u
#define MOST_ROUNDS   31u

static double clock_seconds(clockid_t clock)
{
        struct timespec t;
        clock_gettime(clock, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void)
{
        return clock_seconds(CLOCK_MONOTONIC);
}

int bench_fail(const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        fputs("belay-bench: ", stderr);
        vfprintf(stderr, fmt, args);
        fputc('\n', stderr);
        va_end(args);
        return -1;
}

const struct bench_options *bench_options(const struct bench *b)
{
        return &b->options;
}

struct bench_row *bench_row(struct bench *b, const char *name, const char *unit)
{
        if (b->row_count == MAX_ROWS) {
                b->overflow = true;
                return NULL;
        }
        struct bench_row *row = &b->rows[b->row_count++];
        row->name = name;
        row->unit = unit;
        return row;
}

static void add_param(struct bench_row *row, struct param p)
{
        if (row && row->param_count < MAX_PARAMS)
                row->params[row->param_count++] = p;
}

void bench_param_text(struct bench_row *row, const char *key, const char *value)
{
        add_param(row, (struct param){.key = key, .text = value});
}

void bench_param_bytes(struct bench_row *row, const char *key, uint64_t bytes)
{
        add_param(row, (struct param){.key = key, .bytes = bytes});
}

void bench_param_number(struct bench_row *row, const char *key, uint64_t number)
{
        add_param(row, (struct param){.key = key, .bytes = number, .plain = true});
}

void bench_sample(struct bench_row *row, double value)
{
        if (row && row->sample_count < MAX_SAMPLES)
                row->samples[row->sample_count++] = value;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a;
        double y = *(const double *)b;
        return (x > y) - (x < y);
}

struct spread spread_of(const double *values, unsigned count)
{
        double sorted[MAX_SAMPLES];
        if (count == 0)
                return (struct spread){0, 0, 0};
        memcpy(sorted, values, count * sizeof(*values));
        qsort(sorted, count, sizeof(*sorted), compare);
        double middle = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
        return (struct spread){middle, sorted[0], sorted[count - 1]};
}

static unsigned ratios_of(const struct bench_row *over, const struct bench_row *under,
                          double values[MAX_SAMPLES])
{
        unsigned rounds = over->sample_count;
        if (under->sample_count < rounds)
                rounds = under->sample_count;
        /* Two counts of nothing are equal. */
        for (unsigned i = 0; i < rounds; i++)
                values[i] = over->samples[i] == under->samples[i]
                                    ? 1
                                    : over->samples[i] / under->samples[i];
        return rounds;
}

static void add_values(struct bench *b, const char *name, const double *values, unsigned rounds,
                       double wanted, bool most)
{
        if (b->ratio_count == MAX_RATIOS) {
                b->overflow = true;
                return;
        }
        struct ratio *r = &b->ratios[b->ratio_count++];
        snprintf(r->name, sizeof(r->name), "%s", name);
        r->value = spread_of(values, rounds);
        r->wanted = wanted;
        r->most = most;
}

static void add_ratio(struct bench *b, const char *name, const struct bench_row *over,
                      const struct bench_row *under, double wanted, bool most)
{
        if (!over || !under) {
                b->overflow = true;
                return;
        }
        double values[MAX_SAMPLES];
        add_values(b, name, values, ratios_of(over, under, values), wanted, most);
}

void bench_figure(struct bench *b, const char *name, const struct bench_row *row, double wanted)
{
        if (row)
                add_values(b, name, row->samples, row->sample_count, wanted, false);
}

void bench_figure_most(struct bench *b, const char *name, const struct bench_row *row,
                       double wanted)
{
        if (row)
                add_values(b, name, row->samples, row->sample_count, wanted, true);
}

void bench_beside(struct bench *b, struct bench_row *const *rows, unsigned count)
{
        bool fits = b->line_count < MAX_LINES && count <= MAX_BESIDE;
        for (unsigned i = 0; i < count; i++)
                fits = fits && rows[i];
        b->overflow |= !fits;
        if (!fits)
                return;
        struct line *l = &b->lines[b->line_count++];
        memcpy(l->rows, rows, count * sizeof(*rows));
        l->count = count;
}

void bench_ratio(struct bench *b, const char *name, const struct bench_row *over,
                 const struct bench_row *under, double wanted)
{
        add_ratio(b, name, over, under, wanted, false);
}

void bench_ratio_most(struct bench *b, const char *name, const struct bench_row *over,
                      const struct bench_row *under, double wanted)
{
        add_ratio(b, name, over, under, wanted, true);
}

double bench_median(const struct bench_row *row)
{
        return row ? spread_of(row->samples, row->sample_count).median : 0;
}

double bench_median_ratio(const struct bench_row *over, const struct bench_row *under)
{
        double values[MAX_SAMPLES] = {0};
        return over && under ? spread_of(values, ratios_of(over, under, values)).median : 0;
}

static int measure(const struct bench_case *c)
{
        int rc = c->prepare ? c->prepare(c->arg) : 0;
        if (rc)
                return rc;
        double cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        double start = bench_now();
        rc = c->run(c->arg);
        double seconds = bench_now() - start;
        cpu = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        if (rc == 0 && c->check)
                rc = c->check(c->arg);
        if (rc)
                return rc;
        if (c->bytes == 0) {
                bench_sample(c->row, seconds * 1e3);
                return 0;
        }
        bench_sample(c->row, (double)c->bytes / (double)MIB / seconds);
        if (c->row && c->row->cpu_count < MAX_SAMPLES)
                c->row->cpu[c->row->cpu_count++] = cpu / ((double)c->bytes / (double)GIB);
        return 0;
}

static void show_progress(const struct bench *b, unsigned round, const struct bench_row *row)
{
        if (!isatty(STDERR_FILENO))
                return;
        if (row)
                fprintf(stderr, "\r\033[K%s: round %u, %s", b->experiment->name, round + 1,
                        row->name);
        else
                fputs("\r\033[K", stderr);
}

bool bench_more(const struct bench *b, unsigned round, double started)
{
        double end = started + (b->options.quick ? QUICK_SECONDS : FULL_SECONDS);
        unsigned least = b->options.rounds ? b->options.rounds : LEAST_ROUNDS;
        unsigned most = b->options.rounds ? b->options.rounds : MOST_ROUNDS;
        /* A slow disk must not make a first impression last for minutes. */
        if (b->options.quick && !b->options.rounds)
                least = 1;
        return round < most && (round < least || bench_now() < end);
}

int bench_rounds(struct bench *b, const struct bench_case *cases, unsigned count)
{
        double started = bench_now();
        int rc = 0;
        for (unsigned i = 0; rc == 0 && bench_more(b, i, started); i++) {
                for (unsigned k = 0; rc == 0 && k < count; k++) {
                        show_progress(b, i, cases[k].row);
                        rc = measure(&cases[k]);
                }
        }
        show_progress(b, 0, NULL);
        return rc;
}
