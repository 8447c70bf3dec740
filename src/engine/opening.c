/* opening.c: captured units are opened, so that the program can write to them without a fault: in
 * long runs behind the flusher, and the rest after the last capture. */
#include "engine/commit.h"

/* Opening a run costs a system call and a TLB shootdown (10 µs with a second thread): not for less
 * than this. */
#define OPEN_BYTES (UINT64_C(1024) << 10)
/* Where the boundaries of units are not those of huge pages, every run splits two of them. */
#define OPEN_BYTES_SPLITTING (UINT64_C(32) << 20)

/* Lets writes through to a run of captured units. */
static void open_run(struct commit *c, struct watch *w, uint64_t first, uint64_t count)
{
        struct unit_notes *n = unit_notes(w);
        rewatch_units(c, w, first, count);
        if (n->runs)
                units_written(&w->span, first, count);
        if (!units_open(&w->span, first, count, w->ops->take != NULL))
                atomic_store(&w->span.stuck, true);
        memset(n->mode + first, MODE_OPENED, count);
}

static bool can_open(const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        return n->mode[u] == MODE_FLUSH &&
               (atomic_load(&w->span.state[u]) & UNIT_KIND) == UNIT_DONE;
}

/* Opening a part of a huge page splits it, and then every page of it costs what a small one does.
 * Leaves the units that make up whole huge pages; returns how many bytes are worth it. */
static uint64_t trim_to_huge(const struct span *s, uint64_t *first, uint64_t *end)
{
        uint64_t offset = s->start % PLAT_HUGE_PAGE;
        if (offset % s->unit_bytes)
                return OPEN_BYTES_SPLITTING;
        uint64_t before = (PLAT_HUGE_PAGE - offset) / s->unit_bytes; /* units up to the first one */
        uint64_t per_page = max_u64(PLAT_HUGE_PAGE / s->unit_bytes, 1);
        before %= per_page;
        *first = *first <= before ? before : before + align_up(*first - before, per_page);
        *end = *end < before ? before : before + (*end - before) / per_page * per_page;
        return PLAT_HUGE_PAGE;
}

/* With policy adaptive, a unit stays closed once, so that the fault tells when the program
 * comes. */
static bool opens_behind(const struct commit *c, const struct watch *w, uint64_t u)
{
        return can_open(w, u) && (c->options->policy != POLICY_ADAPTIVE || order_knows(w, u));
}

void opening_follow(struct commit *c, uint32_t region, uint64_t u)
{
        struct watch *w = c->part.list[region]->watch;
        const struct unit_notes *n = unit_notes(w);
        if (!c->options->open_behind || !w->ops->traps || w->ops->needs_faults ||
            c->options->policy == POLICY_SYNC)
                return;
        uint64_t first = u;
        uint64_t end = u;
        while (end < w->span.units && opens_behind(c, w, end))
                end++;
        while (end > u && first > 0 && opens_behind(c, w, first - 1))
                first--;
        uint64_t least = n->runs ? RUN_BYTES : OPEN_BYTES;
        if (w->huge)
                least = max_u64(least, trim_to_huge(&w->span, &first, &end));
        if (end > first && (end - first) * w->span.unit_bytes >= least)
                open_run(c, w, first, end - first);
}

/* After the last capture: everything that is still protected is opened. */
static void open_span(struct commit *c, struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units;) {
                uint64_t end = u;
                while (end < units && can_open(w, end))
                        end++;
                if (end > u)
                        open_run(c, w, u, end - u);
                u = max_u64(end, u + 1);
        }
        /* Clean units between dirty ones may have been protected with them; and single openings may
         * have failed for lack of mappings. One call for all of it joins the pieces again. */
        if (n->protected)
                (void)units_open(&w->span, 0, w->span.units, false);
        atomic_store(&w->span.stuck, false);
}

/* Most regions that are opened in one step: others wait for its end. */
#define MOST_TOGETHER 256u

static bool opens_together(const struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        return w->ops == &tracker_dense && n->protected;
}

/* Dense regions side by side, from number `first` on; returns the number behind them. */
static uint32_t open_neighbours(struct commit *c, uint32_t first)
{
        struct watch **list = c->neighbours.watches;
        uint32_t end = first;
        while (end < c->neighbours.count && end - first < MOST_TOGETHER &&
               opens_together(list[end]) &&
               (end == first || watches_adjoin(list[end - 1], list[end])))
                end++;
        if (end - first < 2 ||
            !span_open_pages(&list[first]->span, list[first]->span.low, list[end - 1]->span.high))
                return max_u64(end, first + 1) & UINT32_MAX;
        for (uint32_t i = first; i < end; i++) {
                struct unit_notes *n = unit_notes(list[i]);
                uint64_t units = list[i]->span.units;
                units_written(&list[i]->span, 0, units);
                for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                        n->mode[u] = n->mode[u] == MODE_FLUSH ? MODE_OPENED : n->mode[u];
                n->protected = i == first && atomic_load(&list[i]->span.below) < list[i]->span.low;
        }
        return end;
}

void opening_finish(struct commit *c)
{
        for (uint32_t i = 0; i < c->neighbours.count;) {
                step_begin(c->steps);
                i = open_neighbours(c, i);
                step_end(c->steps);
        }
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                step_begin(c->steps);
                /* Where faults are how writes are noticed, captured units stay protected until they
                 * are written. */
                if (w->ops->needs_faults && atomic_load(&w->span.stuck))
                        span_open(&w->span);
                else if (w->ops->traps && !w->ops->needs_faults &&
                         c->options->policy != POLICY_SYNC)
                        open_span(c, w);
                step_end(c->steps);
        }
}
