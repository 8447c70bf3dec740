/* pages.c: increments by written pages (diff = pages), as in the AI-Ckpt paper: nothing is
 * compared. What the tracker does not report as written is kept from the version before, the rest
 * is stored.
 *
 *   scan             knows pages: the blocks that have a written page are stored
 *   uffd, mprotect   know units: all blocks of a written unit are
 *
 * patch.c stores the written blocks of units with few written pages, and with policy sync those of
 * all units. Here are the others, which are flushed. The flusher asks the kernel for the written
 * pages of a unit when it puts it. From the freeze to then the unit is protected, or captured by
 * the fault handler, so that no page is missing; a page written after the capture counts as well,
 * which costs a block and nothing else. */
#include "engine/commit.h"

void pages_decide(struct commit *c, uint32_t region, uint64_t unit, bool can_keep)
{
        struct watch *w = c->part.list[region]->watch;
        const struct unit_notes *n = unit_notes(w);
        /* What is staged by the freeze, or with policy sync, is watched anew before it is put. */
        if (n->mode[unit] != MODE_FLUSH || c->options->policy == POLICY_SYNC || !can_keep)
                w->pages[unit] = 0;
}

static void keep(struct commit *c, uint32_t region, uint64_t first, uint64_t end)
{
        if (first < end)
                draft_keep(c->draft, c->part.first + region, first, end - first);
}

/* A page that two units share may have been watched anew for the other one: it counts as written.
 * So the blocks of the unit that may be kept are those in [*low, *high), which ends with the region
 * where the edges are as they were. */
static void own_pages(const struct watch *w, uint64_t unit, uintptr_t *low, uintptr_t *high)
{
        const struct span *s = &w->span;
        *low = unit_begin(s, unit);
        *high = unit_begin(s, unit) + unit_length(s, unit);
        if (unit > 0 || (w->edges_changed & EDGE_HEAD))
                *low = align_up(*low, PLAT_PAGE);
        if (unit + 1 < s->units || (w->edges_changed & EDGE_TAIL))
                *high -= *high % PLAT_PAGE;
}

int pages_keep_unwritten(struct commit *c, uint32_t region, uint64_t unit)
{
        const struct region *r = c->part.list[region];
        struct watch *w = r->watch;
        uintptr_t low;
        uintptr_t high;
        own_pages(w, unit, &low, &high);
        if (!w->ops->written || w->pages[unit] == 0 ||
            w->pages[unit] >= div_up(unit_length(&w->span, unit), PLAT_PAGE) || low >= high)
                return 0;
        int n = w->ops->written(c->tracker, w, low, high);
        if (n < 0)
                return err_set(n, "region '%s': what was written cannot be found out: %s",
                               r->desc.name, code_text(n));
        uintptr_t start = (uintptr_t)r->ptr;
        uint64_t bytes = r->desc.block_bytes;
        uint64_t next = div_up(low - start, bytes);
        for (int i = 0; i < n; i++) {
                struct plat_range written = c->tracker->ranges[i];
                keep(c, region, next, (max_u64(written.start, low) - start) / bytes);
                next = max_u64(next, div_up(written.end - start, bytes));
        }
        bool last = high == start + r->desc.bytes;
        keep(c, region, next, last ? region_blocks(&r->desc) : (high - start) / bytes);
        return 1;
}
