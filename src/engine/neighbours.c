/* neighbours.c: the tracked regions of the part in order of address. A program has many arrays side
 * by side, and the kernel looks at, protects and opens a stretch of them at the price of one. */
#include "engine/commit.h"
#include <errno.h>

int neighbours_make_room(struct commit *c)
{
        struct neighbours *n = &c->neighbours;
        uint32_t count = c->part.count;
        if (count <= n->capacity)
                return 0;
        uint64_t capacity = count + count / 4 + UINT64_C(16);
        void *watches = budget_resize(c->options->budget, n->watches,
                                      capacity * sizeof(*n->watches), "the region table");
        if (!watches)
                return -ENOMEM;
        n->watches = watches;
        void *regions = budget_resize(c->options->budget, n->regions,
                                      capacity * sizeof(*n->regions), "the region table");
        if (!regions)
                return -ENOMEM;
        n->regions = regions;
        void *offset = budget_resize(c->options->budget, n->offset, capacity * sizeof(*n->offset),
                                     "the region table");
        if (!offset)
                return -ENOMEM;
        n->offset = offset;
        n->capacity = (uint32_t)capacity;
        return 0;
}

/* Are these the tracked regions of the part, `tracked` of them, in order? Mostly they are: programs
 * register their arrays once. */
static bool holds(const struct commit *c, uint32_t tracked)
{
        const struct neighbours *n = &c->neighbours;
        uintptr_t before = 0;
        if (n->count != tracked)
                return false;
        for (uint32_t i = 0; i < n->count; i++) {
                const struct watch *w =
                        n->regions[i] < c->part.count ? c->part.list[n->regions[i]]->watch : NULL;
                if (!w || w != n->watches[i] || !w->ops->traps || w->span.low <= before)
                        return false;
                before = w->span.low;
        }
        return true;
}

/* There is room for all units of the part in its plan, which is not made yet. */
void neighbours_find(struct commit *c)
{
        struct neighbours *n = &c->neighbours;
        struct target *all = c->plan.list;
        uint32_t count = 0;
        for (uint32_t i = 0; i < c->part.count; i++)
                count += c->part.list[i]->watch->ops->traps;
        if (holds(c, count))
                return;
        n->count = 0;
        for (uint32_t i = 0; i < c->part.count; i++)
                if (c->part.list[i]->watch->ops->traps)
                        all[n->count++] = (struct target){i, 0, c->part.list[i]->watch->span.low};
        order_sort(all, n->count);
        for (uint32_t i = 0; i < n->count; i++) {
                n->regions[i] = all[i].region;
                n->watches[i] = c->part.list[all[i].region]->watch;
        }
}

struct stretch neighbours_from(const struct commit *c, uint32_t first)
{
        const struct neighbours *n = &c->neighbours;
        uint32_t end = first + 1;
        while (end < n->count && watches_adjoin(n->watches[end - 1], n->watches[end]))
                end++;
        return (struct stretch){n->watches + first, end - first};
}

/* A page takes the kernel 3 ns, a call a microsecond or two. */
#define NEAR_BYTES (UINT64_C(256) << 10)

struct stretch neighbours_near(const struct commit *c, uint32_t first)
{
        const struct neighbours *n = &c->neighbours;
        uint32_t end = first + 1;
        while (end < n->count && n->watches[end]->ops == n->watches[first]->ops &&
               n->watches[end]->span.low - n->watches[end - 1]->span.high <= NEAR_BYTES)
                end++;
        return (struct stretch){n->watches + first, end - first};
}
