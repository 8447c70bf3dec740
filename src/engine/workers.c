/* workers.c: threads that wait, do their duty, and help. */
#include "engine/workers.h"
#include <time.h>

/* Fewer are done before another thread has woken up. */
#define MANY_PIECES 8u

void workers_init(struct workers *w, struct duty duty)
{
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&w->changed, &attr);
        pthread_condattr_destroy(&attr);
        pthread_mutex_init(&w->lock, NULL);
        log_queue_init(&w->messages);
        w->duty = duty;
}

void workers_destroy(struct workers *w)
{
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        log_deliver(&w->messages);
        log_queue_destroy(&w->messages);
}

void workers_lock(struct workers *w)
{
        pthread_mutex_lock(&w->lock);
}

void workers_unlock(struct workers *w)
{
        pthread_mutex_unlock(&w->lock);
}

void workers_notify(struct workers *w)
{
        pthread_cond_broadcast(&w->changed);
}

int workers_wait(struct workers *w, uint64_t until_ns)
{
        if (until_ns == UINT64_MAX)
                return -pthread_cond_wait(&w->changed, &w->lock);
        struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        return -pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

static void run_pieces(struct shared_work *work)
{
        uint64_t i;
        while ((i = atomic_fetch_add(&work->next, 1)) < work->pieces) {
                int none = 0;
                int rc = work->run(work->arg, i);
                if (rc)
                        atomic_compare_exchange_strong(&work->failed, &none, rc);
        }
}

/* The lock is held. */
static void run_shared_work(struct workers *w)
{
        struct shared_work *work = w->work;
        w->helping++;
        pthread_mutex_unlock(&w->lock);
        run_pieces(work);
        pthread_mutex_lock(&w->lock);
        w->helping--;
        w->work = NULL; /* no piece is left to begin with */
        workers_notify(w);
}

int workers_share(struct workers *w, struct shared_work *work)
{
        pthread_mutex_lock(&w->lock);
        w->work = work;
        workers_notify(w);
        pthread_mutex_unlock(&w->lock);
        run_pieces(work);
        pthread_mutex_lock(&w->lock);
        w->work = NULL;
        while (w->helping > 0)
                (void)workers_wait(w, UINT64_MAX);
        pthread_mutex_unlock(&w->lock);
        return atomic_load(&work->failed);
}

int workers_share_many(struct workers *w, struct shared_work *work)
{
        if (work->pieces >= MANY_PIECES)
                return workers_share(w, work);
        run_pieces(work);
        return atomic_load(&work->failed);
}

/* The lock is held. */
static void run_duty(struct workers *w)
{
        w->on_duty = true;
        w->duty.run(w->duty.arg);
        w->on_duty = false;
}

static void *worker(void *arg)
{
        struct workers *w = arg;
        log_queue_use(&w->messages);
        pthread_mutex_lock(&w->lock);
        for (;;) {
                if (w->work) {
                        run_shared_work(w);
                        continue;
                }
                uint64_t due_ns = w->on_duty ? NEVER_DUE : w->duty.due_ns(w->duty.arg);
                if (due_ns == 0 || (due_ns != NEVER_DUE && due_ns <= plat->now_ns()))
                        run_duty(w);
                else if (w->stopping)
                        break;
                else
                        (void)workers_wait(w, due_ns);
        }
        pthread_mutex_unlock(&w->lock);
        return NULL;
}

int workers_start(struct workers *w)
{
        if (w->count > 0)
                return 0;
        int rc = plat->thread_start(worker, w, &w->threads[0]);
        if (rc)
                return err_set(rc, "the flusher thread cannot be started: %s", code_text(rc));
        w->count = 1;
        return 0;
}

void workers_stop(struct workers *w)
{
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        workers_notify(w);
        pthread_mutex_unlock(&w->lock);
        while (w->count > 0)
                (void)plat->thread_join(w->threads[--w->count]);
}
