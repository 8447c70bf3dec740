/* workers.h: the engine's own threads, and the lock and condition under which they wait.
 *
 * A worker has a duty (to flush, to pre-copy), which one of them does at a time, and helps with
 * work that a caller shares. Today there is one worker, the flusher. */
#ifndef BELAY_WORKERS_H
#define BELAY_WORKERS_H

#include "plat/plat.h"
#include <pthread.h>

#define MOST_WORKERS 1u
/* Of duty.due_ns: there is nothing to do, and no time for it. */
#define NEVER_DUE UINT64_MAX

/* Both are called with the lock held; run gives it up while it works. */
struct duty {
        uint64_t (*due_ns)(void *arg); /* when it is to be run: 0: now; or NEVER_DUE */
        void (*run)(void *arg);
        void *arg;
};

/* Work cut into pieces, for the caller and for workers that are idle. */
struct shared_work {
        int (*run)(void *arg, uint64_t piece);
        void *arg;
        uint64_t pieces;
        _Atomic uint64_t next;
        _Atomic int failed; /* the first error */
};

struct workers {
        pthread_mutex_t lock;
        pthread_cond_t changed; /* anything that a thread may wait for under the lock */
        struct duty duty;
        bool on_duty;             /* one of them is               */
        struct shared_work *work; /* they may help with this …    */
        uint32_t helping;         /* … and so many are doing so   */
        bool stopping;
        plat_thread threads[MOST_WORKERS];
        uint32_t count;
        struct log_queue messages; /* theirs, for the program's threads */
};
void workers_init(struct workers *w, struct duty duty);
void workers_destroy(struct workers *w);
/* Makes sure that there is a worker. */
int workers_start(struct workers *w);
/* The duty must not be due any more. */
void workers_stop(struct workers *w);

void workers_lock(struct workers *w);
void workers_unlock(struct workers *w);
/* The lock is held: something that threads may wait for has changed. */
void workers_notify(struct workers *w);
/* The lock is held: waits for such a change, at most until `until_ns` (UINT64_MAX: for ever). */
int workers_wait(struct workers *w, uint64_t until_ns);

/* Returns when all pieces are done, with the first error. */
int workers_share(struct workers *w, struct shared_work *work);
/* The same; a few pieces are done by this thread alone. */
int workers_share_many(struct workers *w, struct shared_work *work);

#endif
