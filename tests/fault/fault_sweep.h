/* fault_sweep.h: runs one operation again and again, failing a different call each time.
 *
 * A mistake is reported and the sweep goes on, so that one run shows all of them. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include "fault_plat.h"
#include "subject.h"

#define VERSIONS 3 /* that the prepared pool has had; it keeps the last two */

/* One run of an operation. */
struct run {
        const struct setup *setup;
        struct fault_plan plan;
        bool goes_on; /* afterwards the same context is used further, else the pool is opened anew
                       */
        struct belay *b;
        struct subject s;
        struct arena arena;
        struct snapshot *attempt; /* the state that a checkpoint under fault tries to store */
        uint64_t mark[4];         /* for the operation's own use                            */
};

struct operation {
        const char *name;
        void (*prepare)(struct run *r); /* with calls that work */
        int (*act)(struct run *r);      /* one of them fails    */
        /* With calls that work again. Ends with r->b closed. */
        void (*judge)(struct run *r, int rc);
};

void sweep_prepare(const char *dir, uint64_t seed);
void sweep_operation(const struct setup *setup, const struct operation *op);
void sweep_done(void);
/* Notes a mistake, with the fault that led to it. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Mistakes so far, and faults injected. */
uint64_t sweep_complaints(void), sweep_faults(void);

/* ---- parts of operations -------------------------------------------------------------------- */

/* State of version 1 … VERSIONS of the prepared pool. */
const struct snapshot *prepared_state(uint64_t version);
/* The pool file: absent; or the prepared one. */
void pool_absent(void);
void pool_prepared(void);
void run_open(struct run *r);
/* The subject at this step, registered in r->b, in the state it has there. */
void run_subject(struct run *r, uint64_t step);
void run_close(struct run *r);
/* Opens the pool anew. Its newest version must be `a` or, unless sb is NULL, `b`, exact. Version 0,
 * state NULL: an empty pool. */
void verify_pool(const struct run *r, uint64_t a, const struct snapshot *sa, uint64_t b,
                 const struct snapshot *sb);
/* Version `version` must be there as well. */
void verify_version(const struct run *r, uint64_t version);

#endif
