/* edges.c: the two ends of a region, as far as they share a page with other memory. Such a page is
 * never protected, and nothing tells that it was written. So these bytes, less than a page at each
 * end, are copied at every freeze, and compared with what they were at the one before; whatever is
 * read of them later comes from the copy.
 *
 *     ┆page    ┆page    ┆  …  ┆page    ┆page    ┆
 *         ├────┼────────┼─────┼────────┼───┤
 *         start low                 high   end       head: [start, low)   tail: [high, end)
 *
 * All that lies between them is pages of the region's own. */
#include "mem/mem_int.h"
#include <errno.h>

static uintptr_t end_of(const struct span *s)
{
        return s->start + s->bytes;
}

/* The last page of memory that we or malloc mapped holds nothing else. */
static uintptr_t tail_begin(const struct span *s)
{
        return min_u64(s->high, end_of(s));
}

static uint64_t head_bytes(const struct span *s)
{
        return s->low - s->start;
}

static uint64_t tail_bytes(const struct span *s)
{
        return end_of(s) - tail_begin(s);
}

static struct shelf *shelf_for(struct tracker *t, const struct span *s)
{
        return &t->edges[head_bytes(s) + tail_bytes(s) > PLAT_PAGE];
}

void edges_init(struct tracker *t)
{
        shelf_init(&t->edges[0], t->budget, PLAT_PAGE);
        shelf_init(&t->edges[1], t->budget, 2 * PLAT_PAGE);
}

void edges_close(struct tracker *t)
{
        shelf_close(&t->edges[0]);
        shelf_close(&t->edges[1]);
}

int edges_make_room(struct tracker *t, struct watch *w)
{
        if (head_bytes(&w->span) + tail_bytes(&w->span) == 0)
                return 0;
        w->edges = shelf_take(shelf_for(t, &w->span), "the ends of a region");
        return w->edges ? 0 : -ENOMEM;
}

void edges_give_back(struct tracker *t, struct watch *w)
{
        if (w->edges)
                shelf_give(shelf_for(t, &w->span), w->edges);
        w->edges = NULL;
}

void edges_units(const struct watch *w, unsigned edge, uint64_t *first, uint64_t *end)
{
        const struct span *s = &w->span;
        uint64_t low = edge == EDGE_HEAD ? 0 : tail_begin(s) - s->start;
        uint64_t high = edge == EDGE_HEAD ? head_bytes(s) : s->bytes;
        *first = low / s->unit_bytes;
        *end = low < high ? (high - 1) / s->unit_bytes + 1 : *first;
}

static void take(struct watch *w, unsigned edge, uint8_t *copy, uintptr_t from, uint64_t bytes)
{
        uint64_t u;
        uint64_t end;
        if (bytes == 0 || program_equal(copy, (const void *)from, bytes))
                return;
        program_copy(copy, (const void *)from, bytes);
        w->edges_changed |= (uint8_t)edge;
        for (edges_units(w, edge, &u, &end); u < end; u++) {
                w->dirty[u] = 1;
                w->pages[u]++;
        }
}

void edges_take(struct watch *w)
{
        const struct span *s = &w->span;
        w->edges_changed = 0;
        if (!w->edges)
                return;
        take(w, EDGE_HEAD, w->edges, s->start, head_bytes(s));
        take(w, EDGE_TAIL, w->edges + head_bytes(s), tail_begin(s), tail_bytes(s));
}

bool edges_meet(const struct watch *w, uintptr_t begin, uintptr_t end)
{
        return w->edges && (begin < w->span.low || end > tail_begin(&w->span));
}

/* The part of `edge`, which begins at `from`, that lies in [begin, end). */
static void lay_over(const uint8_t *edge, uintptr_t from, uint64_t bytes, uintptr_t begin,
                     uintptr_t end, uint8_t *copy)
{
        uintptr_t low = max_u64(from, begin);
        uintptr_t high = min_u64(from + bytes, end);
        if (low < high)
                memcpy(copy + (low - begin), edge + (low - from), high - low);
}

void edges_lay_over(const struct watch *w, uintptr_t begin, uintptr_t end, uint8_t *copy)
{
        const struct span *s = &w->span;
        if (!edges_meet(w, begin, end))
                return;
        lay_over(w->edges, s->start, head_bytes(s), begin, end, copy);
        lay_over(w->edges + head_bytes(s), tail_begin(s), tail_bytes(s), begin, end, copy);
}
