/* bench.h: what an experiment needs: rows of samples, alternatives measured in turn, ratios,
 * scratch files.
 *
 * An experiment is a function in the table of bench_main.c. It makes rows, fills them by
 * bench_rounds (or bench_sample), and names the ratios that matter:
 *
 *      struct bench_row *ours = bench_row(b, "checkpoint", "MiB/s");
 *      struct bench_row *plain = bench_row(b, "plain write", "MiB/s");
 *      struct bench_case cases[] = {{.row = ours, .run = …}, {.row = plain, .run = …}};
 *      bench_rounds(b, cases, 2);
 *      bench_ratio(b, "write_ratio", ours, plain, 0.85);
 *
 * Functions return 0 or a negative number; the one that decides an error says why on stderr
 * (bench_fail), and the experiment ends. One thread. */
#ifndef BELAY_BENCH_H
#define BELAY_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_PATH_BYTES 4096
#define KIB              (UINT64_C(1) << 10)
#define MIB              (UINT64_C(1) << 20)
#define GIB              (UINT64_C(1) << 30)

struct bench_options {
        bool quick;                 /* a first impression within 40 s                       */
        uint64_t bytes;             /* size of the state; 0: what the experiment thinks fit */
        unsigned rounds;            /* 0: as many as fit the time                           */
        const char *json;           /* NULL: none                                           */
        char dir[BENCH_PATH_BYTES]; /* scratch directory on disk           */
        char memory_dir[BENCH_PATH_BYTES]; /* scratch directory in memory         */
};

struct bench;
struct bench_row;

struct bench_experiment {
        const char *name, *help;
        int (*run)(struct bench *b);
};

/* ---- rows and ratios ------------------------------------------------------------------------- */

const struct bench_options *bench_options(const struct bench *b);
/* Rows live as long as `b`. Texts are borrowed: use literals. NULL when there are too many. */
struct bench_row *bench_row(struct bench *b, const char *name, const char *unit);
/* Parameters: columns of the table, keys of the JSON object. `row` may be NULL. */
void bench_param_text(struct bench_row *row, const char *key, const char *value);
void bench_param_bytes(struct bench_row *row, const char *key, uint64_t bytes);
/* A plain number. */
void bench_param_number(struct bench_row *row, const char *key, uint64_t number);
void bench_sample(struct bench_row *row, double value);
/* `over` divided by `under`, round by round: noise that hits both in a round cancels. `wanted` is
 * shown beside it, 0 for none. */
void bench_ratio(struct bench *b, const char *name, const struct bench_row *over,
                 const struct bench_row *under, double wanted);
/* The same where smaller is better: `wanted` is a maximum. A name "a.b" is the field b of an object
 * a in the summary. */
void bench_ratio_most(struct bench *b, const char *name, const struct bench_row *over,
                      const struct bench_row *under, double wanted);
/* The samples of a row themselves, where they are ratios already; bench_figure_most where smaller
 * is better. */
void bench_figure(struct bench *b, const char *name, const struct bench_row *row, double wanted);
void bench_figure_most(struct bench *b, const char *name, const struct bench_row *row,
                       double wanted);
/* A line of a further table, in which the medians of rows that differ in their parameter `figure`
 * stand beside each other. */
void bench_beside(struct bench *b, struct bench_row *const *rows, unsigned count);
double bench_median(const struct bench_row *row);
double bench_median_ratio(const struct bench_row *over, const struct bench_row *under);

/* ---- measuring ------------------------------------------------------------------------------- */

/* One of the alternatives that are measured in turn. Only `run` is timed. */
struct bench_case {
        struct bench_row *row;
        int (*prepare)(void *arg); /* may be NULL */
        int (*run)(void *arg);
        int (*check)(void *arg); /* may be NULL: a fast wrong answer is no answer */
        void *arg;
        uint64_t bytes; /* moved by one run, the samples are MiB/s; 0: they are milliseconds */
};
/* Whether another round (0, 1, …) of a set that began at `started` is wanted: for experiments that
 * time for themselves. */
bool bench_more(const struct bench *b, unsigned round, double started);
/* A B C, A B C, …: at least three rounds, more while the time for them lasts. */
int bench_rounds(struct bench *b, const struct bench_case *cases, unsigned count);
double bench_now(void); /* seconds */
int bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- data and scratch files ------------------------------------------------------------------ */

/* Memory of the program, no page of it touched yet. NULL with a message if there is none. */
void *bench_address_space(uint64_t bytes);
/* The same, every page touched. */
void *bench_memory(uint64_t bytes);
void bench_memory_free(void *p, uint64_t bytes);
/* Bytes that do not compress and differ in every block from those of any other seed. */
void bench_fill(void *p, uint64_t bytes, uint64_t seed);
/* -1 with a message unless p holds what bench_fill wrote. */
int bench_check(const void *p, uint64_t bytes, uint64_t seed);
/* 16 MiB at a time. The write ends with fdatasync; the file must exist and keeps its size. */
int bench_write_plain(const char *path, const void *from, uint64_t bytes);
int bench_read_plain(const char *path, void *to, uint64_t bytes);
/* An empty file. */
int bench_create(const char *path);
/* Takes the file out of the page cache. */
int bench_drop_cache(const char *path);
/* True if `dir` has room for that much more. */
bool bench_has_room(const char *dir, uint64_t bytes);

#endif
