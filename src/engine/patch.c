/* patch.c: units of which only a few pages were written. Those pages are copied at the freeze, and
 * nothing is protected: the program goes on without a fault, and the kernel may write too.
 *
 * A block of the version is made of its copied pages and, for the rest, of the program's memory. A
 * page that was not written since the version before is the same as there; should the program write
 * it before the flusher has read it, the tracker says so afterwards, and the page is taken from
 * that version instead. So the block is exact whatever the program does.
 *
 *   freeze   take: which pages were written, and watch them anew, in one step; then copy them
 *   flusher  read the block ─ lay the copies over it ─ was any other page written? ─► the old block
 *
 * Copies lie in pockets of the copy buffer, in order of address, and go back as they are used.
 *
 * With policy sync the program waits, and nothing is copied: the blocks that written pages lie in
 * are staged at once. */
#include "engine/commit.h"
#include <errno.h>

#define NO_BLOCK  UINT64_MAX
#define GAP_BYTES (UINT64_C(16) << 20)
/* What one thread copies at a time when two do it: 20 µs. */
#define COPY_PAGES UINT64_C(32)
/* Lines of the next page that are asked for while one is copied: the processor does not look ahead
 * from page to page. With more of them copying is slower. */
#define PREFETCHED 8u
#define LINE_BYTES 64u

static uint64_t pages_per_pocket(const struct commit *c)
{
        return c->tracker->guard.pocket_bytes / PLAT_PAGE;
}

/* Some pockets are left for units that are flushed. */
static uint64_t capacity(const struct commit *c)
{
        return c->tracker->guard.pocket_count * UINT64_C(3) / 4 * pages_per_pocket(c);
}

int patch_make_room(struct commit *c)
{
        uint64_t wanted = capacity(c);
        uint64_t block = 0;
        for (uint32_t i = 0; i < c->part.count; i++)
                block = max_u64(block, c->part.list[i]->desc.block_bytes);
        if (wanted > c->patches.capacity) {
                void *p = budget_resize(c->options->budget, c->patches.list,
                                        wanted * sizeof(*c->patches.list), "the copied pages");
                if (!p)
                        return -ENOMEM;
                c->patches.list = p;
                c->patches.capacity = wanted;
        }
        if (block > c->patches.block_capacity) {
                void *p = budget_resize(c->options->budget, c->patches.block, block, "a block");
                if (!p)
                        return -ENOMEM;
                c->patches.block = p;
                c->patches.block_capacity = block;
        }
        return 0;
}

void patch_remember_dirty(struct watch *w)
{
        struct unit_notes *n = unit_notes(w);
        memcpy(n->mode, w->dirty, w->span.units);
}

void patch_find_candidates(const struct commit *c, struct watch *w)
{
        struct unit_notes *n = unit_notes(w);
        /* When more pages than this were written, the unit is captured as a whole, and if that goes
         * on it is not watched any more: a fault per page costs more than to hash all of it. */
        uint64_t part = c->options->policy != POLICY_SYNC ? 4 : by_pages(c->options) ? 1 : 2;
        for (uint64_t u = 0; u < w->span.units; u++) {
                /* Known page by page: not from a commit that failed, nor by decree. */
                bool known = w->ops->take && !n->mode[u] && !atomic_load(&w->span.written[u]);
                uint64_t pages = unit_length(&w->span, u) / PLAT_PAGE;
                if (!known)
                        w->pages[u] = 0;
                n->mode[u] = known && w->pages[u] > 0 && w->pages[u] * part <= pages ? MODE_PATCH
                                                                                     : MODE_KEEP;
        }
}

bool patch_fits(const struct commit *c)
{
        uint64_t pages = 0;
        if (c->options->policy == POLICY_SYNC)
                return true;
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct watch *w = c->part.list[i]->watch;
                const struct unit_notes *n = unit_notes(w);
                uint64_t units = w->span.units;
                for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                        pages += n->mode[u] == MODE_PATCH ? w->pages[u] : 0;
        }
        return pages <= capacity(c);
}

/* ---- at the freeze ---- */

static uint8_t *copy_of(const struct commit *c, uint64_t i)
{
        const struct guard *g = &c->tracker->guard;
        return g->pockets + c->patches.list[i].pocket * g->pocket_bytes +
               i % pages_per_pocket(c) * PLAT_PAGE;
}

/* The units that [low, high) lies in, [*first, *end). */
static void units_of(const struct span *s, uintptr_t low, uintptr_t high, uint64_t *first,
                     uint64_t *end)
{
        *first = (max_u64(low, s->start) - s->start) / s->unit_bytes;
        *end = (min_u64(high, s->start + s->bytes) - 1 - s->start) / s->unit_bytes + 1;
}

/* Pages may have been written since it was decided that their unit is clean. */
static void call_dirty(struct watch *w, uintptr_t low, uintptr_t high)
{
        struct unit_notes *n = unit_notes(w);
        uint64_t u;
        uint64_t end;
        for (units_of(&w->span, low, high, &u, &end); u < end; u++) {
                /* The mark of a page that it shares with another is gone. */
                if (n->mode[u] == MODE_EARLY)
                        atomic_store(&w->span.written[u], 1);
                if (n->mode[u] != MODE_KEEP)
                        continue;
                n->mode[u] = MODE_PATCH;
                w->dirty[u] = 1;
        }
}

/* There was no room for a page: its units are flushed as a whole. */
static void give_up(struct commit *c, uint32_t region, uintptr_t page)
{
        struct watch *w = c->part.list[region]->watch;
        struct unit_notes *n = unit_notes(w);
        uint64_t u;
        uint64_t end;
        for (units_of(&w->span, page, page + PLAT_PAGE, &u, &end); u < end; u++) {
                if (n->mode[u] == MODE_EARLY)
                        atomic_store(&w->span.written[u], 1);
                if (n->mode[u] != MODE_PATCH && n->mode[u] != MODE_KEEP)
                        continue;
                n->mode[u] = MODE_FLUSH;
                w->dirty[u] = 1;
                w->pages[u] = 0; /* some of its marks have been taken */
                c->plan.list[c->plan.count++] = (struct target){region, (uint32_t)u, 0};
        }
}

/* It is copied once all of them have been taken. */
static void note_page(struct commit *c, uint32_t region, uintptr_t page)
{
        uint64_t i = c->patches.count;
        int64_t pocket = 0;
        if (i < c->patches.capacity)
                pocket = i % pages_per_pocket(c) ? (int64_t)c->patches.list[i - 1].pocket
                                                 : pocket_take(&c->tracker->guard);
        if (i == c->patches.capacity || pocket < 0) {
                give_up(c, region, page);
                return;
        }
        c->patches.list[i] = (struct patch){page, region, (uint32_t)pocket};
        c->patches.count++;
        call_dirty(c->part.list[region]->watch, page, page + PLAT_PAGE);
}

static int copy_pages(void *arg, uint64_t piece)
{
        const struct commit *c = arg;
        uint64_t end = min_u64((piece + 1) * COPY_PAGES, c->patches.count);
        for (uint64_t i = piece * COPY_PAGES; i < end; i++) {
                const struct patch *p = &c->patches.list[i];
                const struct span *s = &c->part.list[p->region]->watch->span;
                uintptr_t low = max_u64(p->page, s->start);
                uintptr_t high = min_u64(p->page + PLAT_PAGE, s->start + s->bytes);
                for (unsigned k = 0; i + 1 < end && k < PREFETCHED; k++)
                        __builtin_prefetch((const void *)(p[1].page + k * LINE_BYTES));
                program_copy(copy_of(c, i) + (low - p->page), (const void *)low, high - low);
        }
        return 0;
}

static void copy_all_pages(struct commit *c)
{
        struct shared_work work = {
                .run = copy_pages, .arg = c, .pieces = div_up(c->patches.count, COPY_PAGES)};
        (void)workers_share_many(c->workers, &work);
}

/* Block numbers [*first, *end) of the region that have bytes in [low, high). */
static void blocks_of(const struct region *r, uintptr_t low, uintptr_t high, uint64_t *first,
                      uint64_t *end)
{
        uintptr_t start = (uintptr_t)r->ptr;
        *first = (max_u64(low, start) - start) / r->desc.block_bytes;
        *end = (min_u64(high, start + r->desc.bytes) - 1 - start) / r->desc.block_bytes + 1;
}

static bool wants_block(const struct commit *c, uint32_t region, uint64_t block)
{
        const struct region *r = c->part.list[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        return unit_notes(r->watch)->mode[block / per_unit] == MODE_PATCH &&
               !draft_has(c->draft, c->part.first + region, block);
}

static int put_here(struct commit *c, uint32_t region, uint64_t block)
{
        const struct region *r = c->part.list[region];
        if (block == NO_BLOCK || !wants_block(c, region, block))
                return 0;
        int rc = put_block(c, region, block, (const uint8_t *)r->ptr + block * r->desc.block_bytes);
        return rc < 0 ? rc : 0;
}

/* Written pages [low, high), which are watched again, while the program waits. The last block
 * is kept back until it is certain that no more pages of it come: it is read after they are
 * watched. */
static int put_pages(struct commit *c, uint32_t region, uintptr_t low, uintptr_t high,
                     uint64_t *last)
{
        const struct region *r = c->part.list[region];
        uint64_t b;
        uint64_t end;
        int rc = 0;
        call_dirty(r->watch, low, high);
        for (blocks_of(r, low, high, &b, &end); rc == 0 && b < end; b++) {
                if (*last != b)
                        rc = put_here(c, region, *last);
                *last = b;
        }
        return rc;
}

static int take_pages(struct commit *c, uint32_t region, struct plat_range range, uint64_t *last)
{
        if (c->options->policy == POLICY_SYNC)
                return put_pages(c, region, range.start, range.end, last);
        for (uint64_t p = range.start; p < range.end; p += PLAT_PAGE)
                note_page(c, region, p);
        return 0;
}

/* A run of units in which nothing but patched and clean ones lie, from one region to another that
 * may be its neighbour. */
struct run {
        uint32_t from, to; /* numbers among the neighbours                    */
        uint64_t first;    /* unit of the first region …                      */
        uint64_t end;      /* … and behind the last unit, of the last region  */
};

/* Where its pages are taken to. */
struct taker {
        struct commit *c;
        const struct run *run;
        uint32_t at;   /* number of the region */
        uint64_t last; /* block that was not put yet, or NO_BLOCK */
};

static struct watch *watch_of(const struct taker *t)
{
        return t->c->neighbours.watches[t->at];
}

static uint32_t region_of(const struct taker *t)
{
        return t->c->neighbours.regions[t->at];
}

/* The units of the run in the region: [*first, *end). */
static void units_in(const struct taker *t, uint64_t *first, uint64_t *end)
{
        *first = t->at == t->run->from ? t->run->first : 0;
        *end = t->at == t->run->to ? t->run->end : watch_of(t)->span.units;
}

/* An edge that changed counts as a page. What goes into the block is the copy that was taken of it
 * before (edges_lay_over). */
static int take_edge(struct taker *t, uint8_t edge)
{
        const struct watch *w = watch_of(t);
        uint64_t first;
        uint64_t end;
        uint64_t u;
        uint64_t edge_end;
        if (!(w->edges_changed & edge))
                return 0;
        units_in(t, &first, &end);
        edges_units(w, edge, &u, &edge_end);
        if (edge_end <= first || u >= end)
                return 0;
        uintptr_t page = edge == EDGE_HEAD ? w->span.low - PLAT_PAGE : w->span.high;
        return take_pages(t->c, region_of(t), (struct plat_range){page, page + PLAT_PAGE, 0},
                          &t->last);
}

static int enter_region(struct taker *t, uint32_t at)
{
        t->at = at;
        t->last = NO_BLOCK;
        return take_edge(t, EDGE_HEAD);
}

static int leave_region(struct taker *t)
{
        int rc = take_edge(t, EDGE_TAIL);
        return rc ? rc : put_here(t->c, region_of(t), t->last);
}

static int next_region(struct taker *t)
{
        int rc = leave_region(t);
        return rc ? rc : enter_region(t, t->at + 1);
}

/* Pages between regions are nobody's. */
static int take_range(struct taker *t, struct plat_range range)
{
        int rc = 0;
        for (;;) {
                const struct span *s = &watch_of(t)->span;
                struct plat_range own = {max_u64(range.start, s->low), min_u64(range.end, s->high),
                                         0};
                if (own.start < own.end)
                        rc = take_pages(t->c, region_of(t), own, &t->last);
                if (rc || range.end <= s->high || t->at == t->run->to)
                        return rc;
                rc = next_region(t);
                if (rc)
                        return rc;
        }
}

static int take_run(struct commit *c, const struct run *run)
{
        struct taker t = {.c = c, .run = run};
        const struct span *a = &c->neighbours.watches[run->from]->span;
        const struct span *b = &c->neighbours.watches[run->to]->span;
        uintptr_t low = unit_begin(a, run->first);
        uintptr_t high = unit_begin(b, run->end - 1) + unit_length(b, run->end - 1);
        low = max_u64(low - low % PLAT_PAGE, a->low);
        high = min_u64(align_up(high, PLAT_PAGE), b->high);
        uint64_t at = 0;
        int n;
        int rc = enter_region(&t, run->from);
        do {
                n = watch_of(&t)->ops->take(c->tracker, low, high, &at);
                for (int i = 0; rc == 0 && i < n; i++)
                        rc = take_range(&t, c->tracker->ranges[i]);
        } while (rc == 0 && n > 0);
        if (n < 0)
                return err_set(n, "region '%s': what was written cannot be found out: %s",
                               c->part.list[region_of(&t)]->desc.name, code_text(n));
        while (rc == 0 && t.at < run->to)
                rc = next_region(&t);
        return rc ? rc : leave_region(&t);
}

static bool in_run(const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        return n->mode[u] == MODE_PATCH || n->mode[u] == MODE_KEEP;
}

/* How far a run goes that has got to `run->end`, a patched unit: clean units up to the next patched
 * one are part of it, unless they are many: the kernel walks them faster than it is asked twice, but
 * a look at all of a large region for one page of it costs as much as the scan before. */
static void extend_run(const struct commit *c, struct run *run, uint32_t stretch_end)
{
        uint32_t at = run->to;
        uint64_t u = run->end;
        uint64_t clean = 0;
        while (clean < GAP_BYTES) {
                const struct watch *w = c->neighbours.watches[at];
                if (u == w->span.units) {
                        if (++at == stretch_end)
                                return;
                        u = 0;
                        continue;
                }
                if (!in_run(w, u))
                        return;
                clean += unit_length(&w->span, u);
                if (unit_notes(w)->mode[u++] == MODE_PATCH) {
                        run->to = at;
                        run->end = u;
                        clean = 0;
                }
        }
}

/* The next patched unit from `unit` of neighbour `at` on; false if there is none up to `end`. */
static bool find_patched(const struct commit *c, uint32_t *at, uint64_t *unit, uint32_t end)
{
        for (; *at < end; ++*at, *unit = 0) {
                const struct watch *w = c->neighbours.watches[*at];
                const uint8_t *mode = unit_notes(w)->mode;
                const uint8_t *next = memchr(mode + *unit, MODE_PATCH, w->span.units - *unit);
                if (next) {
                        *unit = (uint64_t)(next - mode);
                        return true;
                }
        }
        return false;
}

static int take_stretch(struct commit *c, uint32_t at, uint32_t end)
{
        for (uint64_t u = 0; find_patched(c, &at, &u, end);) {
                struct run run = {.from = at, .to = at, .first = u, .end = u + 1};
                extend_run(c, &run, end);
                int rc = take_run(c, &run);
                if (rc)
                        return rc;
                at = run.to;
                u = run.end;
        }
        return 0;
}

int patch_take(struct commit *c)
{
        c->patches.count = c->patches.used = 0;
        for (uint32_t i = 0; i < c->neighbours.count;) {
                struct stretch s = neighbours_from(c, i);
                int rc = s.list[0]->ops->take ? take_stretch(c, i, i + s.count) : 0;
                if (rc)
                        return rc;
                i += s.count;
        }
        copy_all_pages(c);
        c->epoch.patches += c->patches.count;
        return 0;
}

/* ---- in the flusher ---- */

/* Lays the copies from number i on over c->patches.block, which stands for [begin, end) of the memory. */
static void overlay(struct commit *c, uint64_t i, uintptr_t begin, uintptr_t end)
{
        uint32_t region = c->patches.list[i].region;
        for (; i < c->patches.count && c->patches.list[i].region == region &&
               c->patches.list[i].page < end;
             i++) {
                uintptr_t low = max_u64(c->patches.list[i].page, begin);
                uintptr_t high = min_u64(c->patches.list[i].page + PLAT_PAGE, end);
                memcpy(c->patches.block + (low - begin),
                       copy_of(c, i) + (low - c->patches.list[i].page), high - low);
        }
}

/* Has a page of [begin, end) been written since the freeze that there is no copy of? */
static int lost_page(struct commit *c, uint64_t i, uintptr_t begin, uintptr_t end)
{
        struct watch *w = c->part.list[c->patches.list[i].region]->watch;
        int n = w->ops->written(c->tracker, w, begin, end);
        for (int k = 0; k < n; k++)
                for (uint64_t p = c->tracker->ranges[k].start; p < c->tracker->ranges[k].end;
                     p += PLAT_PAGE) {
                        uint64_t j = i;
                        while (j < c->patches.count && c->patches.list[j].page < p)
                                j++;
                        if (j == c->patches.count || c->patches.list[j].page != p)
                                return 1;
                }
        return n < 0 ? n : 0;
}

/* Block number `block`; copy number i is the first one that lies in it. Of memory that the program
 * has back, all of the pages may be lost. */
static int put_patched(struct commit *c, uint64_t i, uint64_t block)
{
        uint32_t region = c->patches.list[i].region;
        const struct region *r = c->part.list[region];
        uintptr_t begin = (uintptr_t)r->ptr + block * r->desc.block_bytes;
        uintptr_t end = begin + block_length(&r->desc, block);
        int lost = 1;
        if (r->watch->ops != &tracker_gone) {
                program_copy(c->patches.block, (const void *)begin, end - begin);
                lost = lost_page(c, i, begin, end);
        }
        if (lost < 0)
                return err_set(lost, "region '%s': what was written cannot be found out: %s",
                               r->desc.name, code_text(lost));
        int rc = lost ? draft_read_old(c->draft, c->part.first + region, block, c->patches.block)
                      : 0;
        if (rc)
                return rc;
        overlay(c, i, begin, end);
        edges_lay_over(r->watch, begin, end, c->patches.block);
        rc = draft_put(c->draft, c->part.first + region, block, c->patches.block);
        return rc < 0 ? rc : 0;
}

int patch_step(struct commit *c)
{
        if (c->patches.used == c->patches.count)
                return 0;
        uint64_t i = c->patches.used++;
        const struct patch *p = &c->patches.list[i];
        uint64_t b;
        uint64_t end;
        int rc = 0;
        for (blocks_of(c->part.list[p->region], p->page, p->page + PLAT_PAGE, &b, &end);
             rc == 0 && b < end; b++)
                if (wants_block(c, p->region, b))
                        rc = put_patched(c, i, b);
        if ((i + 1) % pages_per_pocket(c) == 0 || i + 1 == c->patches.count)
                pocket_give(&c->tracker->guard, p->pocket);
        return rc ? rc : 1;
}

void patch_abandon(struct commit *c)
{
        for (uint64_t i = c->patches.used; i < c->patches.count; i++)
                if ((i + 1) % pages_per_pocket(c) == 0 || i + 1 == c->patches.count)
                        pocket_give(&c->tracker->guard, c->patches.list[i].pocket);
        c->patches.used = c->patches.count;
}
