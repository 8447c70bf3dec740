/* bench_int.h: the harness's own parts; experiments use bench.h. */
#ifndef BELAY_BENCH_INT_H
#define BELAY_BENCH_INT_H

#include "bench.h"

#define MAX_ROWS    320
#define MAX_PARAMS  6
#define MAX_ROUNDS  256
#define MAX_SAMPLES (3 * MAX_ROUNDS) /* some take several in a round */
#define MAX_RATIOS  128
#define MAX_LINES   64
#define MAX_BESIDE  4

struct param {
        const char *key;
        const char *text; /* NULL: a number */
        uint64_t bytes;
        bool plain; /* a number of no unit */
};

struct bench_row {
        const char *name, *unit;
        unsigned param_count, sample_count, cpu_count;
        struct param params[MAX_PARAMS];
        double samples[MAX_SAMPLES];
        double cpu[MAX_SAMPLES]; /* seconds per GiB */
};

struct spread {
        double median, min, max;
};

struct ratio {
        char name[64];
        struct spread value;
        double wanted;
        bool most; /* wanted is a maximum */
};

struct line {
        const struct bench_row *rows[MAX_BESIDE];
        unsigned count;
};

struct bench {
        const struct bench_experiment *experiment;
        struct bench_options options;
        double started;
        unsigned row_count, ratio_count, line_count;
        bool overflow; /* a row, a ratio or a line did not fit */
        struct bench_row rows[MAX_ROWS];
        struct ratio ratios[MAX_RATIOS];
        struct line lines[MAX_LINES];
};

struct spread spread_of(const double *values, unsigned count);

struct machine {
        char cpu[128], kernel[128], dir_fs[32], memory_fs[32];
        long cores;
        uint64_t memory_bytes;
};
void machine_describe(const struct bench_options *o, struct machine *out);
/* "256 MiB"; returns buf. */
const char *bytes_text(uint64_t bytes, char *buf, size_t room);

void report_table(const struct bench *b, FILE *out);
int report_json(const struct bench *b, const char *path);
/* Before measuring: could the report be written there? A pool is not replaced. */
int report_check(const char *path);

/* Makes a directory of ours inside `where`; its path replaces `where`. */
int scratch_make(char where[BENCH_PATH_BYTES]);
void scratch_remove(const char *dir);

#endif
