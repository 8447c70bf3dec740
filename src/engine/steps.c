/* steps.c: a mutex that lets in who asks, even if the flusher never waits. */
#include "engine/steps.h"

/* What the flusher sleeps without looking whether it may go on; it is woken. */
#define STOPPED_NS UINT64_C(1000000)

enum { NOT_WANTED, WANTED, WAITED }; /* … and the flusher waits */

void steps_init(struct steps *s)
{
        pthread_mutex_init(&s->mutex, NULL);
}

void steps_destroy(struct steps *s)
{
        pthread_mutex_destroy(&s->mutex);
}

/* The mutex is not fair: without `wanted` a flusher that never waits would hardly let anybody
 * in. */
void step_begin(struct steps *s)
{
        uint32_t wanted;
        while ((wanted = atomic_load(&s->wanted)) != NOT_WANTED)
                if (wanted == WAITED || atomic_compare_exchange_strong(&s->wanted, &wanted, WAITED))
                        (void)raw_futex_wait(&s->wanted, WAITED, STOPPED_NS);
        pthread_mutex_lock(&s->mutex);
}

void step_end(struct steps *s)
{
        pthread_mutex_unlock(&s->mutex);
}

uint64_t steps_stop(struct steps *s)
{
        uint64_t mask = raw_block_signals();
        atomic_store(&s->wanted, WANTED);
        pthread_mutex_lock(&s->mutex);
        return mask;
}

void steps_go_on(struct steps *s, uint64_t mask)
{
        pthread_mutex_unlock(&s->mutex);
        if (atomic_exchange(&s->wanted, NOT_WANTED) == WAITED)
                (void)raw_futex_wake(&s->wanted, 1);
        raw_restore_signals(mask);
}
