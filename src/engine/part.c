/* part.c: the regions of a version that are frozen together, as the draft knows them. */
#include "engine/commit.h"
#include "engine/cost.h"
#include <errno.h>

int part_make_room(struct commit *c, uint32_t count)
{
        struct commit_part *p = &c->part;
        if (count <= p->capacity)
                return 0;
        uint32_t capacity = max_u64(count + count / 4, 16) & UINT32_MAX;
        void *list = budget_resize(c->options->budget, p->list, capacity * sizeof(*p->list),
                                   "the region table");
        if (!list)
                return -ENOMEM;
        p->list = list;
        p->capacity = capacity;
        return 0;
}

int part_take_all(struct commit *c, const struct regions *regions)
{
        int rc = part_make_room(c, regions->count);
        for (uint32_t i = 0; rc == 0 && i < regions->count; i++)
                c->part.list[i] = regions->list[i];
        c->part.count = rc ? 0 : regions->count;
        return rc;
}

int part_describe(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct region *r = c->part.list[i];
                struct region_desc desc = r->desc;
                uint32_t number;
                bool share = cost_shares(c->options, r, &desc.hash);
                int rc = draft_region(c->draft, &desc, share, &number);
                if (rc)
                        return rc;
                c->part.first = i == 0 ? number : c->part.first;
                region_notes(r)->shares = draft_compares(c->draft, number);
                region_notes(r)->compared = region_notes(r)->shares && !by_pages(c->options);
                if (by_pages(c->options))
                        draft_write_all(c->draft, number);
        }
        return draft_ready(c->draft, plat->wall_ns());
}

void commit_destroy(struct commit *c)
{
        struct budget *budget = c->options->budget;
        budget_free(budget, c->part.list);
        budget_free(budget, c->plan.list);
        budget_free(budget, c->patches.list);
        budget_free(budget, c->patches.block);
        budget_free(budget, c->packs.list);
        budget_free(budget, c->neighbours.watches);
        budget_free(budget, c->neighbours.regions);
        budget_free(budget, c->neighbours.offset);
        budget_free(budget, c->packs.memory);
        budget_free(budget, c->captured.list);
}
