/* outcome.h: what any thread may ask about versions. All of it under the workers' lock. */
#ifndef BELAY_OUTCOME_H
#define BELAY_OUTCOME_H

#include "engine/engine.h"

struct outcome {
        bool committing;
        struct version_status last;
        uint64_t listed[MAX_VERSIONS]; /* numbers of the versions that the pool has */
        uint32_t listed_count;
        struct epoch_stats stats; /* of the last version that was published */
        uint64_t published, failed, total_written;
        struct pool_info info;
};

/* The lock is held, and the pool is the caller's. */
void outcome_list_versions(struct outcome *o, struct pool *pool);

#endif
