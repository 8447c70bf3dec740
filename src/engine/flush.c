/* flush.c: the flusher: captures every unit of the commit, in the order of Algorithm 3 and 4: what
 * a thread waits for, then copies (their slots are needed), then the plan; and lets the program
 * write behind it.
 *
 * The deadlock rule: a program thread may wait for a unit while it holds any lock of its own. From
 * the freeze to the last capture nothing here allocates, locks or calls foreign code: raw system
 * calls, memcpy and the pool's own writer. */
#include "engine/engine_int.h"

/* Opening a run costs a system call and a TLB shootdown (10 µs with a second thread): not for less
 * than this. */
#define OPEN_BYTES (UINT64_C(256) << 10)

struct cursor {
        uint64_t at;     /* next position in the plan         */
        uint64_t left;   /* units of the plan not yet staged  */
        uint64_t newest; /* last fault that was followed      */
};

/* Puts a unit whose memory the flusher has claimed. */
static int stage_claimed(struct engine *e, uint32_t region, uint64_t u)
{
        struct watch *w = e->regions->list[region]->watch;
        int rc = put_unit(e, region, u, (const uint8_t *)unit_begin(&w->span, u));
        unit_finish(&w->span, u, UNIT_DONE);
        if (rc == 1)
                w->hot[u] = 0;
        return rc < 0 ? rc : 0;
}

static int stage_copy(struct engine *e, uint32_t span, uint64_t u, uint32_t slot)
{
        struct guard *g = &e->tracker.guard;
        uint32_t region = e->region_of[span];
        int rc = put_unit(e, region, u, g->slots + slot * g->slot_bytes);
        atomic_store(&e->regions->list[region]->watch->span.state[u], UNIT_DONE);
        slot_give(g, slot);
        return rc < 0 ? rc : 0;
}

/* A unit some thread waits for. */
static bool next_waited(struct engine *e, uint32_t *region, uint64_t *unit)
{
        struct guard *g = &e->tracker.guard;
        for (uint32_t i = 0; i < WAITED_RING; i++) {
                if (atomic_load_explicit(&g->waited[i], memory_order_relaxed) == 0)
                        continue;
                uint64_t id = atomic_exchange(&g->waited[i], 0);
                if (id == 0)
                        continue;
                *region = e->region_of[(id - 1) >> 32];
                *unit = (uint32_t)(id - 1);
                if (unit_claim(&e->regions->list[*region]->watch->span, *unit))
                        return true;
        }
        return false;
}

/* The program's newest fault tells where it is: go on from there, so that an epoch that began in
 * the middle of an iteration is flushed in step with the program. */
static void follow(struct engine *e, struct cursor *c)
{
        uint64_t newest = atomic_load(&e->tracker.guard.newest);
        if (!e->options.follow || e->options.policy != POLICY_ADAPTIVE || newest == c->newest ||
            newest == 0)
                return;
        c->newest = newest;
        struct watch *w = e->regions->list[e->region_of[(newest - 1) >> 32]]->watch;
        uint64_t u = (uint32_t)(newest - 1);
        if (w->last_access[u] != ACCESS_NONE && w->mode[u] != MODE_KEEP)
                c->at = w->place[u] + 1;
}

static bool next_planned(struct engine *e, struct cursor *c, uint32_t *region, uint64_t *unit)
{
        follow(e, c);
        for (uint64_t tried = 0; tried < e->plan_count; tried++) {
                const struct target *t = &e->plan[c->at++ % e->plan_count];
                if (!unit_claim(&e->regions->list[t->region]->watch->span, t->unit))
                        continue;
                *region = t->region;
                *unit = t->unit;
                return true;
        }
        return false;
}

/* Lets writes through to a run of captured units, and begins to watch it for the next epoch. Units
 * that are written in every epoch are not watched: they are called written, which saves the program
 * a fault per page. */
static void call_written(struct watch *w, uint64_t first, uint64_t count)
{
        for (uint64_t u = first; u < first + count; u++)
                atomic_store(&w->span.written[u], 1);
}

/* What cannot be watched (no mappings left) counts as written. */
static void arm(struct engine *e, struct watch *w, uint64_t first, uint64_t count)
{
        if (w->ops->arm(&e->tracker, w, first, count))
                call_written(w, first, count);
}

static void open_run(struct engine *e, struct watch *w, uint64_t first, uint64_t count)
{
        for (uint64_t u = first; u < first + count;) {
                bool hot = w->hot[u] >= 2;
                uint64_t end = u;
                while (end < first + count && (w->hot[end] >= 2) == hot)
                        end++;
                if (hot)
                        call_written(w, u, end - u);
                if (!hot)
                        arm(e, w, u, end - u);
                u = end;
        }
        if (!units_open(&w->span, first, count))
                atomic_store(&w->span.stuck, true);
        memset(w->mode + first, MODE_OPENED, count);
}

static bool can_open(const struct watch *w, uint64_t u)
{
        return w->mode[u] == MODE_FLUSH &&
               (atomic_load(&w->span.state[u]) & UNIT_KIND) == UNIT_DONE;
}

static void open_behind(struct engine *e, uint32_t region, uint64_t u)
{
        struct watch *w = e->regions->list[region]->watch;
        if (!e->options.open_behind || w->ops->needs_faults || e->options.policy == POLICY_SYNC)
                return;
        uint64_t first = u;
        uint64_t end = u + 1;
        while (first > 0 && can_open(w, first - 1))
                first--;
        while (end < w->span.units && can_open(w, end))
                end++;
        if ((end - first) * w->span.unit_bytes >= OPEN_BYTES)
                open_run(e, w, first, end - first);
}

/* Where faults are how writes are noticed, captured units stay protected until they are written.
 * With policy sync nothing was protected yet. */
static void watch_by_faults(struct engine *e, struct watch *w)
{
        if (atomic_load(&w->span.stuck))
                span_open(&w->span);
        if (e->options.policy != POLICY_SYNC)
                return;
        for (uint64_t u = 0; u < w->span.units;) {
                uint64_t end = u;
                while (end < w->span.units && can_open(w, end))
                        end++;
                if (end > u)
                        arm(e, w, u, end - u);
                u = max_u64(end, u + 1);
        }
}

/* After the last capture: everything that is still protected is opened. */
static void open_span(struct engine *e, struct watch *w)
{
        for (uint64_t u = 0; u < w->span.units;) {
                uint64_t end = u;
                while (end < w->span.units && can_open(w, end))
                        end++;
                if (end > u)
                        open_run(e, w, u, end - u);
                u = max_u64(end, u + 1);
        }
        /* Clean units between dirty ones may have been protected with them; and single openings may
         * have failed for lack of mappings. One call for all of it joins the pieces again. */
        (void)units_open(&w->span, 0, w->span.units);
        atomic_store(&w->span.stuck, false);
}

static void open_rest(struct engine *e)
{
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct watch *w = e->regions->list[i]->watch;
                if (!w->ops->traps)
                        continue;
                if (w->ops->needs_faults)
                        watch_by_faults(e, w);
                else
                        open_span(e, w);
        }
}

static void keep_clean(struct engine *e)
{
        for (uint32_t i = 0; i < e->regions->count; i++) {
                const struct region *r = e->regions->list[i];
                uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
                for (uint64_t block = 0; block < region_blocks(&r->desc); block++)
                        if (r->watch->mode[block / per_unit] == MODE_KEEP)
                                draft_keep(e->draft, i, block);
        }
}

static int flush_one(struct engine *e, struct cursor *c)
{
        uint32_t region;
        uint32_t span;
        uint32_t slot;
        uint64_t unit;
        if (next_waited(e, &region, &unit)) {
                c->left--;
                return stage_claimed(e, region, unit);
        }
        if (copied_take(&e->tracker.guard, &span, &unit, &slot)) {
                c->left--;
                return stage_copy(e, span, unit, slot);
        }
        if (next_planned(e, c, &region, &unit)) {
                c->left--;
                int rc = stage_claimed(e, region, unit);
                if (rc == 0)
                        open_behind(e, region, unit);
                return rc;
        }
        /* A thread is just copying the last ones. */
        plat->sleep_ns(20000);
        return 0;
}

/* Units of the plan that are still to come; those that could not be protected were staged at the
 * freeze. */
static uint64_t unstaged(const struct engine *e)
{
        uint64_t count = 0;
        for (uint64_t i = 0; i < e->plan_count; i++)
                count += e->regions->list[e->plan[i].region]->watch->mode[e->plan[i].unit] !=
                         MODE_DIRECT;
        return count;
}

int flush(struct engine *e)
{
        struct cursor c = {.left = unstaged(e)};
        order_plan(e);
        while (c.left > 0) {
                int rc = flush_one(e, &c);
                if (rc)
                        return rc;
        }
        open_rest(e);
        keep_clean(e);
        return 0;
}

/* Takes back every slot. A thread says that it has copied before it hands the copy over: until no
 * slot is out, one may still come, and in the next commit it would pass for a copy of that one. */
static void await_copies(struct guard *g)
{
        uint32_t span;
        uint32_t slot;
        uint64_t unit;
        while (atomic_load(&g->slots_used) != 0)
                if (copied_take(g, &span, &unit, &slot))
                        slot_give(g, slot);
                else
                        plat->sleep_ns(20000);
}

void flush_abandon(struct engine *e)
{
        struct guard *g = &e->tracker.guard;
        for (uint64_t i = 0; i < e->plan_count; i++) {
                struct watch *w = e->regions->list[e->plan[i].region]->watch;
                if (unit_claim(&w->span, e->plan[i].unit))
                        unit_finish(&w->span, e->plan[i].unit, UNIT_DONE);
        }
        /* Threads that were copying finish within a copy's time; their slots come back through the
         * stack. */
        for (uint64_t i = 0; i < e->plan_count; i++) {
                struct watch *w = e->regions->list[e->plan[i].region]->watch;
                while ((atomic_load(&w->span.state[e->plan[i].unit]) & UNIT_KIND) == UNIT_BUSY)
                        plat->sleep_ns(20000);
        }
        await_copies(g);
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct watch *w = e->regions->list[i]->watch;
                if (!w->ops->traps)
                        continue;
                span_open(&w->span);
        }
}
