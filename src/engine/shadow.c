/* shadow.c: copies of what a commit still needs of memory that the program gets back.
 *
 *     PENDING ──► BUSY ── the caller copies the unit ──► SHADOW ── the flusher stages it ──► DONE
 *
 * Then, with the steps stopped, the watch gets the tracker `gone`, which touches nothing: the pages
 * are open, and nothing traps. A block of copied pages that is not staged yet takes its other pages
 * from the version before (patch.c). */
#include "engine/commit.h"

struct shadow {
        uint32_t *unit_at; /* per unit: number of its copy, if it has one */
        uint8_t *units;
        uint32_t unit_count;
};

void shadow_delete(struct budget *budget, struct watch *w)
{
        struct shadow *s = unit_notes(w)->shadow;
        if (!s)
                return;
        budget_free(budget, s->unit_at);
        budget_free(budget, s->units);
        budget_free(budget, s);
        unit_notes(w)->shadow = NULL;
}

/* Units that are not captured get fewer, never more. */
static uint64_t count_pending(const struct span *s)
{
        uint64_t count = 0;
        for (uint64_t u = 0; u < s->units; u++)
                count += (atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_PENDING;
        return count;
}

/* Room for all that may still be needed. */
static bool shadow_new(struct commit *c, struct watch *w)
{
        static const char what[] = "a copy of a region that leaves";
        struct budget *budget = c->options->budget;
        uint64_t units = count_pending(&w->span);
        if (units == 0)
                return true;
        struct shadow *s = budget_alloc(budget, sizeof(*s), what);
        if (!s)
                return false;
        unit_notes(w)->shadow = s;
        s->unit_at = budget_alloc(budget, w->span.units * sizeof(*s->unit_at), what);
        s->units = budget_alloc(budget, units * w->span.unit_bytes, what);
        if (s->unit_at && s->units)
                return true;
        shadow_delete(budget, w);
        return false;
}

/* The flusher may be putting the unit, a thread may be copying it: neither takes long. */
static void copy_unit(struct watch *w, uint64_t u)
{
        struct span *s = &w->span;
        struct shadow *shadow = unit_notes(w)->shadow;
        uint32_t kind;
        while ((kind = atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_PENDING ||
               kind == UNIT_BUSY) {
                if (!unit_claim(s, u)) {
                        plat->sleep_ns(1000);
                        continue;
                }
                plat_point("retire.unit");
                shadow->unit_at[u] = shadow->unit_count++;
                program_copy(shadow->units + shadow->unit_at[u] * s->unit_bytes,
                             (const void *)unit_begin(s, u), unit_length(s, u));
                unit_finish(s, u, UNIT_SHADOW);
        }
}

const uint8_t *shadow_unit(const struct watch *w, uint64_t u)
{
        const struct shadow *s = unit_notes(w)->shadow;
        return s->units + s->unit_at[u] * w->span.unit_bytes;
}

bool shadow_take(struct commit *c, struct region *r)
{
        struct watch *w = r->watch;
        const struct tracker_ops *ops = NULL;
        if (!shadow_new(c, w))
                return false;
        for (uint64_t u = 0; u < w->span.units; u++)
                copy_unit(w, u);
        uint64_t mask = steps_stop(c->steps);
        if (part_has(r)) {
                ops = w->ops;
                w->ops = &tracker_gone;
        }
        steps_go_on(c->steps, mask);
        if (ops)
                tracker_leave(c->tracker, w, ops);
        return true;
}
