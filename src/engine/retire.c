/* retire.c: regions that leave, move or change their size while a commit needs them.
 *
 * The program does not wait for the commit. The flusher goes on with the region as it was: it is
 * retired, out of the registry, and deleted when the commit has ended. What becomes of its memory:
 *
 *   allocated by Belay, and freed    stays as it is until the region is deleted
 *   attached, or to be resized       belongs to the program again when the call returns: what the
 *                                    version still needs of it is copied first, to a shadow
 *
 *     PENDING ──► BUSY ── the caller copies the unit ──► SHADOW ── the flusher stages it ──► DONE
 *
 *   Then, with the steps stopped, the watch gets the tracker `gone`, which touches nothing: the
 *   pages are open, and nothing traps. A block of copied pages that is not staged yet takes its
 *   other pages from the version before (patch.c).
 *
 * Steps. Between the freeze and the last capture the flusher touches memory of regions in steps
 * only, and it does not wait for the medium in a step (draft_make_room comes before it; a page that
 * the program wrote too early is read back in one, a block at a time). Who changes what the flusher
 * reads stops the steps. That must be short and must not depend on the flusher: meanwhile nothing
 * is allocated, and no signal is taken, since a handler of the program's may write to a page that
 * only the flusher can open.
 *
 * If the budget has no room for the shadow, the caller waits for the commit after all. */
#include "engine/engine_int.h"

/* What the flusher sleeps without looking whether it may go on; it is woken. */
#define STOPPED_NS UINT64_C(1000000)

struct shadow {
        uint32_t *unit_at; /* per unit: number of its copy, if it has one */
        uint8_t *units;
        uint32_t unit_count;
};

/* ---- steps ---- */

enum { NOT_WANTED, WANTED, WAITED }; /* … and the flusher waits */

/* The mutex is not fair: without `wanted` a flusher that never waits would hardly let anybody
 * in. */
void step_begin(struct engine *e)
{
        uint32_t wanted;
        while ((wanted = atomic_load(&e->steps_wanted)) != NOT_WANTED)
                if (wanted == WAITED ||
                    atomic_compare_exchange_strong(&e->steps_wanted, &wanted, WAITED))
                        (void)raw_futex_wait(&e->steps_wanted, WAITED, STOPPED_NS);
        pthread_mutex_lock(&e->steps);
}

void step_end(struct engine *e)
{
        pthread_mutex_unlock(&e->steps);
}

/* No signal is taken until the steps go on. */
static uint64_t stop_steps(struct engine *e)
{
        uint64_t mask = raw_block_signals();
        atomic_store(&e->steps_wanted, WANTED);
        pthread_mutex_lock(&e->steps);
        return mask;
}

static void let_steps(struct engine *e, uint64_t mask)
{
        pthread_mutex_unlock(&e->steps);
        if (atomic_exchange(&e->steps_wanted, NOT_WANTED) == WAITED)
                (void)raw_futex_wake(&e->steps_wanted, 1);
        raw_restore_signals(mask);
}

/* ---- the shadow ---- */

static void shadow_delete(struct engine *e, struct watch *w)
{
        struct unit_notes *n = w->notes;
        struct budget *budget = e->options.budget;
        struct shadow *s = n->shadow;
        if (!s)
                return;
        budget_free(budget, s->unit_at);
        budget_free(budget, s->units);
        budget_free(budget, s);
        n->shadow = NULL;
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
static bool shadow_new(struct engine *e, struct watch *w)
{
        struct unit_notes *n = w->notes;
        static const char what[] = "a copy of a region that leaves";
        struct budget *budget = e->options.budget;
        uint64_t units = count_pending(&w->span);
        if (units == 0)
                return true;
        struct shadow *s = budget_alloc(budget, sizeof(*s), what);
        if (!s)
                return false;
        n->shadow = s;
        s->unit_at = budget_alloc(budget, w->span.units * sizeof(*s->unit_at), what);
        s->units = budget_alloc(budget, units * w->span.unit_bytes, what);
        if (s->unit_at && s->units)
                return true;
        shadow_delete(e, w);
        return false;
}

/* The flusher may be putting the unit, a thread may be copying it: neither takes long. */
static void copy_unit(struct watch *w, uint64_t u)
{
        struct span *s = &w->span;
        struct shadow *shadow = w->notes->shadow;
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
        const struct shadow *s = w->notes->shadow;
        return s->units + s->unit_at[u] * w->span.unit_bytes;
}

/* ---- leaving ---- */

/* Is it in the part that is being committed? With the steps stopped, or by who commits. */
static bool is_needed(const struct region *r)
{
        return r->watch && atomic_load(&r->watch->span.part) != NO_PART;
}

/* Copies what the commit still needs of the region's memory, and ends its use of it. False if there
 * is no room for that. The caller takes no signals. */
static bool take_shadow(struct engine *e, struct region *r)
{
        struct watch *w = r->watch;
        const struct tracker_ops *ops = NULL;
        if (!shadow_new(e, w))
                return false;
        for (uint64_t u = 0; u < w->span.units; u++)
                copy_unit(w, u);
        uint64_t mask = stop_steps(e);
        if (is_needed(r)) {
                ops = w->ops;
                w->ops = &tracker_gone;
        }
        let_steps(e, mask);
        if (ops)
                tracker_leave(&e->tracker, w, ops);
        return true;
}

/* The memory of the region is the program's when this returns. */
static void give_memory_back(struct engine *e, struct region *r)
{
        struct err_kept kept;
        if (!r->watch || e->alone)
                return;
        err_keep(&kept);
        uint64_t mask = raw_block_signals();
        bool copied = take_shadow(e, r);
        raw_restore_signals(mask);
        if (!copied)
                engine_idle(e);
        (void)err_give_back(&kept);
}

static void delete_watch(struct engine *e, struct region *r)
{
        if (r->watch)
                shadow_delete(e, r->watch);
        tracker_unwatch(&e->tracker, r);
}

static void delete_region(struct engine *e, struct region *r)
{
        delete_watch(e, r);
        region_delete(e->options.budget, r);
}

/* It is not clean when the version is published: it is not there any more. The steps are
 * stopped. */
static void leave_captured(struct engine *e, struct watch *w)
{
        struct unit_notes *n = w ? w->notes : NULL;
        if (!n || !n->captured)
                return;
        struct watch *last = e->captured[--e->captured_count];
        last->notes->captured_at = n->captured_at;
        e->captured[n->captured_at] = last;
        n->captured = false;
}

/* True if a commit has the region: it is deleted when that ends. `fresh`, if any, takes its place
 * in the registry then. */
static bool retire(struct engine *e, struct region *r, struct region *fresh)
{
        if (e->alone) {
                leave_captured(e, r->watch);
                return false;
        }
        uint64_t mask = stop_steps(e);
        leave_captured(e, r->watch);
        bool needed = is_needed(r);
        if (needed && fresh)
                region_replace(e->regions, r, fresh);
        if (needed) {
                r->notes->next = e->retired;
                e->retired = r;
        }
        let_steps(e, mask);
        return needed;
}

void engine_discard(struct engine *e, struct region *r)
{
        if (!r->owned)
                give_memory_back(e, r);
        if (!retire(e, r, NULL))
                delete_region(e, r);
}

struct region *engine_release(struct engine *e, struct region *r)
{
        struct err_kept error;
        give_memory_back(e, r);
        err_keep(&error);
        struct region *fresh = region_make_room(e->regions);
        if (!fresh)
                engine_idle(e);
        (void)err_give_back(&error);
        if (retire(e, r, fresh) && fresh) {
                fresh->watch = NULL;
                return fresh;
        }
        budget_free(e->options.budget, fresh);
        delete_watch(e, r);
        return r;
}

void retire_end(struct engine *e)
{
        step_begin(e);
        for (uint32_t i = 0; i < e->part_count; i++)
                if (e->part[i]->watch)
                        atomic_store(&e->part[i]->watch->span.part, NO_PART);
        e->part_count = 0;
        e->plan_count = 0;
        struct region *r = e->retired;
        e->retired = NULL;
        step_end(e);
        while (r) {
                struct region *next = r->notes->next;
                delete_region(e, r);
                r = next;
        }
}

int engine_watch(struct engine *e, struct region *r)
{
        int rc = notes_watch(&e->tracker, r);
        if (rc == 0)
                r->watch->span.early = e->options.precopy != PRECOPY_OFF;
        return rc;
}
