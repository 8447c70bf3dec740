/* verify_overlap.c: do the objects of one version lie apart from each other? (format.md §7)
 *
 * The pool is divided into windows of 128 MiB; a window that holds objects has one bit per slot for
 * objects of whole slots, and one word per slot, bit by bit 64 bytes, only once a smaller object
 * lies in it. So memory is about 1/32768 of the pool for the usual block sizes, and comes from the
 * same budget as everything else. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

#define WINDOW_SLOTS 32768u

struct window {
        uint64_t whole[WINDOW_SLOTS / 64];
        uint64_t *parts; /* WINDOW_SLOTS words, or NULL */
};

struct map {
        struct budget *budget;
        struct window **windows;
        uint64_t count;
};

static struct window *window_at(struct map *m, uint64_t slot)
{
        struct window **w = &m->windows[slot / WINDOW_SLOTS];
        if (!*w)
                *w = budget_alloc(m->budget, sizeof(**w), "the check for overlaps");
        return *w;
}

/* Takes the bits `mask` of a slot; 1 if one of them was taken, -1 without memory. */
static int take_part(struct map *m, struct window *w, uint64_t slot, uint64_t mask)
{
        uint64_t i = slot % WINDOW_SLOTS;
        if (!w->parts)
                w->parts = budget_alloc(m->budget, WINDOW_SLOTS * sizeof(*w->parts),
                                        "the check for overlaps");
        if (!w->parts)
                return -1;
        bool taken = (w->whole[i / 64] >> (i % 64) & 1) || (w->parts[i] & mask);
        w->parts[i] |= mask;
        return taken;
}

static int take_whole(struct window *w, uint64_t slot)
{
        uint64_t i = slot % WINDOW_SLOTS;
        uint64_t bit = UINT64_C(1) << (i % 64);
        bool taken = (w->whole[i / 64] & bit) || (w->parts && w->parts[i]);
        w->whole[i / 64] |= bit;
        return taken;
}

/* The placement has been checked: it lies in the pool, small objects within one slot. */
static int take(struct map *m, uint64_t offset, uint64_t bytes)
{
        int taken = 0;
        uint64_t end = offset + bytes;
        while (offset < end && taken >= 0) {
                uint64_t slot = offset / SLOT_BYTES;
                uint64_t n = min_u64(end - offset, SLOT_BYTES);
                struct window *w = window_at(m, slot);
                if (!w)
                        return -1;
                uint64_t units = div_up(n, SMALL_ALIGN);
                uint64_t first = offset % SLOT_BYTES / SMALL_ALIGN;
                uint64_t mask = units == 64 ? UINT64_MAX : ((UINT64_C(1) << units) - 1) << first;
                int one = n == SLOT_BYTES ? take_whole(w, slot) : take_part(m, w, slot, mask);
                taken = one < 0 ? -1 : taken | one;
                offset += n;
        }
        return taken;
}

static void report(struct damages *d, const struct version *v, uint32_t region, uint64_t first,
                   uint64_t count, const char *what, uint64_t number)
{
        char *text;
        if (asprintf(&text,
                     "version %" PRIu64 ", region '%s', %s %" PRIu64 ": it overlaps another object",
                     v->number, v->regions[region]->desc.name, what, number) < 0)
                exit(TROUBLE);
        damages_add(d, (struct damage){v->number, region, first, count, text});
}

static int check_leaf(struct map *m, const struct source *s, const struct version *v,
                      uint32_t region, uint64_t leaf, struct damages *d)
{
        const struct stored_region *r = v->regions[region];
        struct leaf_entry entries[LEAF_ENTRIES];
        if (pool_read_leaf(s->pool, v, region, leaf, entries))
                return 0; /* reading its blocks will say so */
        uint32_t count = leaf_entries(&r->desc, leaf);
        uint64_t first = leaf * LEAF_ENTRIES;
        int taken = take(m, r->refs[leaf].offset, leaf_length(count));
        if (taken > 0)
                report(d, v, region, first, count, "leaf", leaf);
        for (uint32_t i = 0; i < count && taken >= 0; i++) {
                if (entries[i].offset == 0)
                        continue; /* zeros, which lie nowhere */
                taken = take(m, entries[i].offset, block_length(&r->desc, first + i));
                if (taken > 0)
                        report(d, v, region, first + i, 1, "block", first + i);
        }
        return taken < 0 ? -1 : 0;
}

static int check_all(struct map *m, const struct source *s, const struct version *v,
                     struct damages *d)
{
        if (take(m, v->manifest.offset, v->manifest_bytes) < 0)
                return -1;
        for (uint32_t i = 0; i < v->catalog_count; i++) {
                struct catalog_ref c = version_catalog(v, i);
                if (c.ref.offset && take(m, c.ref.offset, c.bytes) < 0)
                        return -1;
        }
        for (uint32_t i = 0; i < v->region_count; i++)
                for (uint64_t leaf = 0; leaf < region_leaves(&v->regions[i]->desc); leaf++)
                        if (check_leaf(m, s, v, i, leaf, d))
                                return -1;
        return 0;
}

enum status check_overlap(const struct source *s, const struct version *v, struct damages *d)
{
        struct pool_info info;
        struct budget budget = {.limit = s->budget.limit};
        pool_info(s->pool, &info);
        /* Nothing that could be read lies beyond the file. */
        uint64_t slots = div_up(min_u64(info.pool_bytes, info.file_bytes), SLOT_BYTES);
        struct map m = {.budget = &budget, .count = slots / WINDOW_SLOTS + 1};
        m.windows = budget_alloc(&budget, m.count * sizeof(*m.windows), "the check for overlaps");
        int rc = m.windows ? check_all(&m, s, v, d) : -1;
        for (uint64_t i = 0; m.windows && i < m.count; i++) {
                if (m.windows[i])
                        budget_free(&budget, m.windows[i]->parts);
                budget_free(&budget, m.windows[i]);
        }
        budget_free(&budget, m.windows);
        return rc ? complain("%s", err_text()) : FINE;
}
