/* work.h: programs to be checkpointed, and the ways other than Belay's to save their state. */
#ifndef BELAY_BENCH_WORK_H
#define BELAY_BENCH_WORK_H

#include "bench.h"
#include <belay/belay.h>
#include <pthread.h>
#include <sys/types.h>

/* "policy=adaptive,unit=4KiB": opens `pool` with these options. */
int work_open(const char *pool, const char *options, struct belay **out);
int work_failed(const char *what); /* says belay_error(); -1 */
/* A checkpoint, its commit, and what is known of it then. */
int work_checkpoint(struct belay *context, struct belay_stats *out);

/* What saves the state of a program. */
enum save_kind { SAVE_NONE, SAVE_BELAY, SAVE_FORK, SAVE_COPY, SAVE_WRITE };

/* A part of the state. */
struct work_part {
        uint8_t *p;
        uint64_t bytes;
};
#define WORK_PARTS 2u

/* One way to save one state, during one run of the program. */
struct saver {
        enum save_kind kind;
        const char *options; /* SAVE_BELAY */
        const char *path;    /* the pool, or the plain file      */
        uint64_t rate;       /* bytes per second, 0: no limit    */
        uint8_t *copy;       /* SAVE_COPY: as large as the state */
        struct work_part parts[WORK_PARTS];
        unsigned part_count;
        /* Sums over the checkpoints of a run. */
        uint64_t waits, cows, avoided, faults, ahead, blocked_ns, wait_ns, commit_ns;
        /* Its own. */
        struct belay *context;
        pid_t child;
        pthread_t thread;
        bool has_thread, pending;
        int result; /* of the thread */
};
/* Opens the context and registers the parts; nothing to do for the others. */
int saver_open(struct saver *s);
/* Saves the state. Waits for the save before, as Belay's own call does. */
int saver_save(struct saver *s);
/* The sums begin anew. */
void saver_reset(struct saver *s);
/* Waits until the last save is complete. */
int saver_wait(struct saver *s);
int saver_close(struct saver *s);

/* Writes the parts over an existing file, at most `rate` bytes per second, with fdatasync. */
int work_write(const char *path, const struct work_part *parts, unsigned count, uint64_t rate);

/* Sorts them. */
double work_median(double *values, unsigned count);

/* Jacobi iteration on two grids that change roles: the state is both. */
struct stencil {
        uint64_t rows, columns;
        double *grid[2];
        uint64_t step;
        uint64_t bytes; /* of one grid */
        unsigned work;  /* how often a row is computed, 1 unless told: a program with more to do */
};
int stencil_new(struct stencil *s, uint64_t bytes);
void stencil_delete(struct stencil *s);
void stencil_step(struct stencil *s);
/* The state of a stencil, to be saved. */
void saver_take_stencil(struct saver *s, const struct stencil *stencil);

/* A run of the stencil in which its state is saved STENCIL_SAVES times. */
#define STENCIL_SAVES 2u
struct stencil_times {
        double seconds; /* until the last save was complete                                    */
        double calm;    /* the same run, if all its steps had been like those without a save   */
};
/* Some saves come first: files and pools have their size then. After each of them `saved` is
 * called, if it is not NULL. The saver is open, and stays so. */
int stencil_run(struct stencil *stencil, struct saver *s, int (*saved)(struct saver *s),
                struct stencil_times *out);

#endif
