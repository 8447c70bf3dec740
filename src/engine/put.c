/* put.c: the blocks of a captured unit go into the draft. */
#include "engine/commit.h"

int put_unit(struct commit *c, uint32_t region, uint64_t unit, const uint8_t *from)
{
        const struct region *r = c->part.list[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        uint64_t first = unit * per_unit;
        uint64_t end = min_u64(first + per_unit, region_blocks(&r->desc));
        uint64_t changed = 0;
        bool same = unit_notes(r->watch)->content[unit] == CONTENT_SAME;
        int kept = by_pages(c->options) ? pages_keep_unwritten(c, region, unit) : 0;
        if (kept < 0)
                return kept;
        for (uint64_t block = first; same && block < end; block++) {
                int rc = draft_put_same(c->draft, c->part.first + region, block);
                if (rc)
                        return rc;
        }
        for (uint64_t block = first; !same && block < end; block++) {
                if (kept && draft_has(c->draft, c->part.first + region, block))
                        continue;
                int rc = draft_put(c->draft, c->part.first + region, block,
                                   from + (block - first) * r->desc.block_bytes);
                if (rc < 0)
                        return rc;
                changed += rc == 0;
        }
        rewatch_consider(r->watch, unit, changed * 2 <= end - first);
        return 0;
}
