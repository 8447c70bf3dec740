/* model.h: the library beside a reference so simple that it is obviously right.
 *
 * The reference keeps, in plain arrays, what each registered region holds and what each retained
 * version held. Every operation is done on both; results, contents, lists and statistics must
 * agree.
 *
 *      model_begin ─► model_step × n ─► model_end */
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include "check.h"
#include "store/store.h"
#include "test_env.h"

#define MODEL_REGIONS  12u
#define MODEL_VERSIONS 4u
#define MODEL_GUARD    64u /* bytes before and behind attached memory that must stay as they are */

/* What a region is, apart from its content. */
struct model_shape {
        uint32_t type, element_bytes, ndims, block_bytes;
        uint64_t dims[2];
};

struct model_region {
        char name[32];
        bool registered, owned;
        struct model_shape shape;
        uint64_t bytes;
        uint8_t *ptr;    /* the program's memory                       */
        uint8_t *block;  /* attached memory, with its guards           */
        uint8_t *mirror; /* what `ptr` must hold                       */
};

struct model_stored {
        bool present;
        struct model_shape shape;
        uint64_t bytes;
        uint8_t *data;
};

struct model_version {
        uint64_t number;
        struct model_stored regions[MODEL_REGIONS];
};

struct model {
        struct test_random random;
        struct belay *b;
        char path[4200];
        uint64_t step;
        struct model_region regions[MODEL_REGIONS];
        struct model_version versions[MODEL_VERSIONS + 1]; /* ascending */
        uint32_t version_count;
        uint32_t keep;         /* option versions                               */
        bool limited;          /* this context has a size limit                 */
        uint64_t next_version; /* number of the next one                        */
        uint64_t current;      /* what belay_version must say                   */
        uint64_t checkpoints, failures, restarts;
        uint64_t peak_bytes; /* most that was ever in use, see model_space.c  */
        struct {
                uint64_t checkpoints, failed, restarts, refused, reopened, sweeps;
        } count;
};

void model_begin(struct model *m, const char *path, uint64_t seed);
void model_step(struct model *m);
void model_end(struct model *m);

/* ---- between the files of the model ---------------------------------------------------------- */

static inline uint64_t model_below(struct model *m, uint64_t n)
{
        return test_random_below(&m->random, n);
}
#define MODEL_FAIL(m, ...) model_fail((m), __FILE__, __LINE__, __VA_ARGS__)
__attribute__((noreturn, format(printf, 4, 5))) void
model_fail(const struct model *m, const char *file, int line, const char *fmt, ...);
/* rc must be `expected`. */
void model_result(const struct model *m, int rc, int expected, const char *what);

/* model_regions.c: what programs do with memory. */
/* A new shape, or half of the time the one it had before, so that versions and regions fit again.
 */
void model_shape(struct model *m, struct model_region *r);
void model_register(struct model *m, struct model_region *r);
void model_forget(struct model *m, struct model_region *r);
void model_reshape(struct model *m, struct model_region *r);
void model_write(struct model *m, struct model_region *r);
void model_misuse(struct model *m);
/* All memory holds what it should, guards included. */
void model_compare(const struct model *m);
void model_free_memory(struct model_region *r);
/* The memory of an owned region has moved or changed its size behind the model's back (restart with
 * resize). */
void model_adopt(struct model *m, struct model_region *r, const struct model_stored *s);
uint64_t model_shape_bytes(const struct model_shape *s);

/* model_versions.c: checkpoint, restart, open and close. */
void model_open(struct model *m);
void model_reopen(struct model *m);
void model_checkpoint(struct model *m);
void model_restart(struct model *m);
void model_drop_version(struct model_version *v);

/* model_space.c: statistics, and the pool seen by a second reader. */
void model_check_stats(struct model *m);
/* Before a checkpoint: notes how much may be in use while it runs. */
void model_note_peak(struct model *m);
void model_check_pool(struct model *m);

#endif
