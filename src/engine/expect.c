/* expect.c: what the next versions will write, as far as the engine knows, for a pool that makes
 * space ahead of need.
 *
 *   first version     all regions; how much of them is in memory, the pool finds out
 *   published         as much as this one; or half of what was expected, if that is more: one version
 *                     with few changes is no reason to give all space back */
#include "engine/engine_int.h"

/* Very many regions are registered one by one: not every one of them is news. */
#define NEWS_BYTES (UINT64_C(4) << 20)

/* The copy buffer is touched when it is made: not within the first freeze, where that is the largest
 * part. If it cannot be had, the checkpoint says so. */
static void make_copies(struct engine *e)
{
        struct err_kept kept;
        if (e->options.policy == POLICY_SYNC)
                return;
        err_keep(&kept);
        (void)tracker_set_pockets(&e->tracker, e->options.copy_bytes);
        (void)err_give_back(&kept);
}

void expect_first(struct engine *e)
{
        uint64_t bytes = e->regions->bytes;
        uint64_t change = max_u64(bytes, e->expected) - min_u64(bytes, e->expected);
        if (e->outcome.published > 0 || change < NEWS_BYTES + e->expected / 16)
                return;
        e->expected = bytes;
        make_copies(e);
        struct expectation x = {.bytes = bytes, .resident = true};
        pool_expect(e->pool, &x);
        pool_warm_up(e->pool);
}

void expect_published(struct engine *e)
{
        uint64_t before = e->outcome.published ? e->expected / 2 : 0;
        e->expected = max_u64(e->commit.epoch.result.written_bytes, before);
        struct expectation x = {.bytes = e->expected};
        pool_expect(e->pool, &x);
}
