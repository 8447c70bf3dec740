/* compare.c: where the program waits for a region to be compared, two threads do it. Which units are
 * as they were is found out first; the rest of the way is one thread's.
 *
 * Nothing is changed but the notes about content: a block of an earlier version stays what it is. */
#include "engine/commit.h"

#define PIECE_BYTES (UINT64_C(1) << 20)
#define LEAST_BYTES (UINT64_C(8) << 20)

struct comparison {
        struct commit *c;
        uint32_t region;
        uint8_t mode; /* of the units that are meant */
        uint64_t piece_units;
};

static bool same_unit(const struct commit *c, uint32_t region, uint64_t u)
{
        const struct region *r = c->part.list[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        uint64_t end = min_u64((u + 1) * per_unit, region_blocks(&r->desc));
        for (uint64_t b = u * per_unit; b < end; b++)
                if (!draft_same(c->draft, c->part.first + region, b,
                                (const uint8_t *)r->ptr + b * r->desc.block_bytes))
                        return false;
        return true;
}

static int compare_piece(void *arg, uint64_t piece)
{
        const struct comparison *l = arg;
        struct watch *w = l->c->part.list[l->region]->watch;
        struct unit_notes *n = unit_notes(w);
        uint64_t end = min_u64((piece + 1) * l->piece_units, w->span.units);
        for (uint64_t u = piece * l->piece_units; u < end; u++) {
                uintptr_t begin = unit_begin(&w->span, u);
                /* Of an edge the copy counts, not what is there now. */
                if (n->mode[u] != l->mode || edges_meet(w, begin, begin + unit_length(&w->span, u)))
                        continue;
                n->content[u] = same_unit(l->c, l->region, u) ? CONTENT_SAME : CONTENT_CHANGED;
        }
        return 0;
}

/* It pays where most of what is compared is expected to be unchanged; the rest is hashed again. */
static bool worth_it(const struct region *r)
{
        return region_notes(r)->compared && region_notes(r)->choice.same > 0.5 &&
               r->desc.bytes >= LEAST_BYTES;
}

/* All of them before the first is read: two of them may lie in one page, and to watch the one takes
 * the mark of the other away. */
static void watch_all(struct commit *c, struct watch *w, uint8_t mode)
{
        const struct unit_notes *n = unit_notes(w);
        for (uint64_t u = 0; u < w->span.units;) {
                uint64_t end = u;
                while (end < w->span.units && n->mode[end] == mode)
                        end++;
                if (end > u)
                        rewatch_units(c, w, u, end - u);
                u = max_u64(end, u + 1);
        }
}

int compare_prepare(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++)
                if (worth_it(c->part.list[i]))
                        return workers_start(c->workers);
        return 0;
}

void compare_units(struct commit *c, uint32_t region, uint8_t mode, bool watch)
{
        struct region *r = c->part.list[region];
        memset(unit_notes(r->watch)->content, CONTENT_UNKNOWN, r->watch->span.units);
        if (!worth_it(r) || c->workers->count == 0)
                return;
        if (watch)
                watch_all(c, r->watch, mode);
        struct comparison l = {c, region, mode,
                               max_u64(PIECE_BYTES / r->watch->span.unit_bytes, 1)};
        struct shared_work work = {.run = compare_piece,
                                   .arg = &l,
                                   .pieces = div_up(r->watch->span.units, l.piece_units)};
        uint64_t start = plat->now_ns();
        (void)workers_share(c->workers, &work);
        c->compare_ns += plat->now_ns() - start;
        for (uint64_t u = 0; u < r->watch->span.units; u++)
                if (unit_notes(r->watch)->content[u] == CONTENT_SAME)
                        c->compare_bytes += unit_length(&r->watch->span, u);
}
