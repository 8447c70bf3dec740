/* cost.h: what comparing costs and saves, as measured and as expected of the version being made. */
#ifndef BELAY_COST_H
#define BELAY_COST_H

#include "engine/engine.h"
#include "policy/policy.h"

struct commit;

struct cost {
        struct diff_costs costs;   /* of what flusher and medium do, as measured */
        struct diff_work expected; /* of this version                            */
};

/* Does the region share blocks with the version before? Sets `hash`, by which they are hashed. */
bool cost_shares(const struct engine_options *o, struct region *r, uint32_t *hash);
/* When it is known what was touched: what will the commit take? */
void cost_predict(struct cost *cost, struct commit *c);
/* Before and after publication. */
void cost_count(struct cost *cost, struct commit *c);
void cost_learn(struct cost *cost, const struct commit *c);

#endif
