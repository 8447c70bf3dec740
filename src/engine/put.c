/* put.c: the blocks of a captured unit go into the draft. */
#include "engine/commit.h"

/* What is at the edges of the region may have been written since the freeze. */
int put_block(struct commit *c, uint32_t region, uint64_t block, const uint8_t *from)
{
        const struct region *r = c->part.list[region];
        uintptr_t begin = (uintptr_t)r->ptr + block * r->desc.block_bytes;
        uintptr_t end = begin + block_length(&r->desc, block);
        if (edges_meet(r->watch, begin, end)) {
                program_copy(c->patches.block, from, end - begin);
                edges_lay_over(r->watch, begin, end, c->patches.block);
                from = c->patches.block;
        }
        return draft_put(c->draft, c->part.first + region, block, from);
}

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
                int rc = put_block(c, region, block, from + (block - first) * r->desc.block_bytes);
                if (rc < 0)
                        return rc;
                changed += rc == 0;
        }
        rewatch_consider(r->watch, unit, changed * 2 <= end - first);
        return 0;
}
