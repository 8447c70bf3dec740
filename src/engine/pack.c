/* pack.c: units that are copied at the freeze, side by side, and put by the flusher: those of regions
 * that are too small to be protected or cannot be tracked, and of states that are too small to be
 * worth it. To copy is all that the program waits for: not for hashes, and not for the medium. What
 * there is no room for is put at once. */
#include "engine/commit.h"
#include <errno.h>

/* Most bytes that are copied in this way; more, if the copy buffer is larger. */
#define MOST_BYTES (UINT64_C(64) << 20)
/* Kept for regions that are tracked, and are not worth it for once. */
#define LEAST_BYTES (UINT64_C(2) << 20)

/* What may be copied: units and bytes. */
static void count(const struct commit *c, uint64_t *units, uint64_t *bytes)
{
        uint64_t tracked = 0;
        *units = *bytes = 0;
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct watch *w = c->part.list[i]->watch;
                *units += w->span.units;
                *(w->ops->traps ? &tracked : bytes) += w->span.bytes;
        }
        *bytes += min_u64(tracked, LEAST_BYTES);
        *bytes = min_u64(*bytes, max_u64(MOST_BYTES, c->options->copy_bytes));
}

static int make_list(struct commit *c, uint64_t units)
{
        if (units <= c->packs.capacity)
                return 0;
        units += units / 4;
        void *p = budget_resize(c->options->budget, c->packs.list, units * sizeof(*c->packs.list),
                                "the copied units");
        if (!p)
                return -ENOMEM;
        c->packs.list = p;
        c->packs.capacity = units;
        return 0;
}

int pack_make_room(struct commit *c)
{
        struct packs *p = &c->packs;
        struct err_kept kept;
        uint64_t units;
        uint64_t bytes;
        p->count = p->done = p->used = 0;
        count(c, &units, &bytes);
        if (c->options->policy == POLICY_SYNC || c->options->copy_bytes == 0)
                bytes = 0;
        if (bytes <= p->bytes)
                return make_list(c, bytes ? units : 0);
        budget_free(c->options->budget, p->memory);
        err_keep(&kept);
        p->memory = budget_alloc(c->options->budget, bytes, "copies of small regions");
        p->bytes = p->memory ? bytes : 0;
        (void)err_give_back(&kept);
        return make_list(c, units);
}

int pack_or_put(struct commit *c, uint32_t region, uint64_t unit)
{
        struct packs *p = &c->packs;
        const struct span *s = &c->part.list[region]->watch->span;
        const void *from = (const void *)unit_begin(s, unit);
        uint64_t bytes = unit_length(s, unit);
        if (p->count == p->capacity || bytes > p->bytes - p->used ||
            bytes > c->tracker->guard.pocket_bytes)
                return put_unit(c, region, unit, from);
        p->list[p->count++] = (struct packed){region, (uint32_t)unit, p->used};
        program_copy(p->memory + p->used, from, bytes);
        p->used += bytes;
        return 0;
}

int pack_step(struct commit *c)
{
        struct packs *p = &c->packs;
        if (p->done == p->count)
                return 0;
        const struct packed *one = &p->list[p->done++];
        int rc = put_unit(c, one->region, one->unit, p->memory + one->at);
        return rc ? rc : 1;
}

void pack_abandon(struct commit *c)
{
        c->packs.done = c->packs.count;
}
