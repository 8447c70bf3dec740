/* steps.h: the flusher goes in steps, and who changes what it reads stops them.
 *
 * Between the freeze and the last capture the flusher touches memory of regions, or their watches,
 * in a step only, and it does not wait for the medium in one (draft_make_room comes before it; a
 * page that the program wrote too early is read back in one, a block at a time). Who stops the
 * steps must be quick and must not depend on the flusher: meanwhile nothing is allocated, and no
 * signal is taken, since a handler of the program's may write to a page that only the flusher can
 * open. */
#ifndef BELAY_STEPS_H
#define BELAY_STEPS_H

#include "plat/plat.h"
#include <pthread.h>

struct steps {
        pthread_mutex_t mutex;
        _Atomic uint32_t wanted; /* by others: the flusher lets them in first */
};
void steps_init(struct steps *s);
void steps_destroy(struct steps *s);

void step_begin(struct steps *s);
void step_end(struct steps *s);

/* No signal is taken until the steps go on. Returns the mask of signals of before. */
uint64_t steps_stop(struct steps *s);
void steps_go_on(struct steps *s, uint64_t mask);

#endif
