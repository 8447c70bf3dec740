/* checkpoint.c: policy `sync`: freeze by not returning, flush in address order, publish. */
#include "engine/engine.h"

static int describe(struct draft *draft, const struct regions *regions)
{
        for (uint32_t i = 0; i < regions->count; i++) {
                int rc = draft_region(draft, &regions->list[i]->desc);
                if (rc)
                        return rc;
        }
        return draft_ready(draft, plat->wall_ns());
}

static int flush(struct draft *draft, const struct regions *regions)
{
        for (uint32_t i = 0; i < regions->count; i++) {
                const struct region *r = regions->list[i];
                for (uint64_t block = 0; block < region_blocks(&r->desc); block++) {
                        const uint8_t *from = (const uint8_t *)r->ptr + block * r->desc.block_bytes;
                        int rc = draft_put(draft, i, block, from);
                        if (rc)
                                return rc;
                }
        }
        return 0;
}

int engine_checkpoint(struct pool *pool, const struct regions *regions, struct draft_result *out)
{
        struct draft *draft = NULL;
        int rc = draft_begin(pool, regions->count, &draft);
        if (rc == 0)
                rc = describe(draft, regions);
        if (rc == 0)
                rc = flush(draft, regions);
        if (rc == 0)
                rc = draft_publish(&draft, out);
        else
                draft_abort(&draft);
        if (rc == 0 || rc == BELAY_E_BROKEN)
                return rc;
        return err_wrap(BELAY_E_CHECKPOINT, "no version was published, earlier ones are intact");
}
