/* verify_overlap.c: do the objects of one version lie apart from each other? (format.md §7)
 *
 * The pool is divided into windows of 128 MiB; a window that holds objects has one bit per slot for
 * objects of whole slots, and one word per slot, bit by bit 64 bytes, only once a smaller object
 * lies in it. So memory is about 1/32768 of the pool for the usual block sizes, and comes from the
 * same budget as everything else. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

#define SLOT_BYTES   4096u /* what a pool's space is given out in (format.md §1) …     */
#define SMALL_ALIGN  64u   /* … and where objects smaller than that begin within it */
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

struct checking {
        struct map map;
        const struct source *source;
        const struct belay_reader_version *v;
        struct damages *damages;
};

static void report(struct checking *c, const struct belay_read_place *p)
{
        char *text;
        struct belay_reader_region d = source_region(c->source, c->v, p->region);
        if (asprintf(&text,
                     "version %" PRIu64 ", region '%s', %s %" PRIu64 ": it overlaps another object",
                     c->v->number, d.name, p->object == BELAY_OBJECT_LEAF ? "leaf" : "block",
                     p->number) < 0)
                exit(TROUBLE);
        damages_add(c->damages, (struct damage){c->v->number, p->region, p->first, p->count, text});
}

/* 1 without memory. */
static int on_place(void *arg, const struct belay_read_place *p)
{
        struct checking *c = arg;
        int taken = take(&c->map, p->offset, p->bytes);
        if (taken > 0 && (p->object == BELAY_OBJECT_LEAF || p->object == BELAY_OBJECT_BLOCK))
                report(c, p);
        return taken < 0;
}

enum status check_overlap(const struct source *s, const struct belay_reader_version *v, bool named,
                          struct damages *d)
{
        struct belay_reader_facts facts = {.size = sizeof(facts)};
        struct budget budget = {.limit = s->memory_bytes};
        (void)belay_reader_facts(s->reader, &facts);
        /* Nothing that could be read lies beyond the file. */
        uint64_t slots = div_up(min_u64(facts.pool_bytes, facts.file_bytes), SLOT_BYTES);
        struct checking c = {.source = s, .v = v, .damages = d};
        struct map *m = &c.map;
        m->budget = &budget;
        m->count = slots / WINDOW_SLOTS + 1;
        m->windows =
                budget_alloc(&budget, m->count * sizeof(*m->windows), "the check for overlaps");
        int rc = m->windows ? belay_read_places(s->reader, v->number, on_place, &c) : 1;
        for (uint64_t i = 0; m->windows && i < m->count; i++) {
                if (m->windows[i])
                        budget_free(&budget, m->windows[i]->parts);
                budget_free(&budget, m->windows[i]);
        }
        budget_free(&budget, m->windows);
        if (rc > 0)
                return complain("%s", err_text());
        return rc ? source_failed(s, v, named, rc) : FINE;
}
