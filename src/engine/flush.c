/* flush.c: the flusher: captures every unit of the commit, in the order of Algorithm 3 and 4: what
 * a thread waits for, then copies (their slots are needed), then the plan; and lets the program
 * write behind it. Policy async is what the paper compares with: what a thread waits for, then by
 * address, copies in their turn.
 *
 * The deadlock rule: a program thread may wait for a unit while it holds any lock of its own. From
 * the freeze to the last capture nothing here allocates or calls foreign code: raw system calls,
 * memcpy and the pool's own writer. The one lock that is taken, in each step, is never held by
 * anybody who may wait for a unit (retire.c). */
#include "engine/engine_int.h"

/* Opening a run costs a system call and a TLB shootdown (10 µs with a second thread): not for less
 * than this. */
#define OPEN_BYTES (UINT64_C(1024) << 10)
/* Where the boundaries of units are not those of huge pages, every run splits two of them. */
#define OPEN_BYTES_SPLITTING (UINT64_C(32) << 20)

struct cursor {
        uint64_t at;     /* next position in the plan         */
        uint64_t left;   /* units of the plan not yet staged  */
        uint64_t newest; /* last fault that was followed      */
};

/* What cannot be watched (no mappings left) counts as written. */
static void arm(struct engine *e, struct watch *w, uint64_t first, uint64_t count)
{
        if (w->ops->arm(&e->tracker, w, first, count))
                units_written(&w->span, first, count);
}

/* Written in every epoch, as far as is known. The first write to a page that is watched costs 1.3
 * µs, and a huge page its unity: a region that is new, or in huge pages, is not watched until it
 * proves unchanged. */
static bool is_hot(const struct engine *e, const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = w->notes;
        if (e->options.precopy != PRECOPY_OFF || by_pages(e))
                return false;
        return n->rest[u] > 0 || n->hot[u] >= (w->huge || n->fresh ? 1 : 2);
}

/* Units that are written in every epoch are not watched: they are called written, which saves the
 * program a fault per page. */
void watch_run(struct engine *e, struct watch *w, uint64_t first, uint64_t count)
{
        for (uint64_t u = first; u < first + count;) {
                bool hot = is_hot(e, w, u);
                uint64_t end = u;
                while (end < first + count && is_hot(e, w, end) == hot)
                        end++;
                if (hot)
                        units_written(&w->span, u, end - u);
                if (!hot)
                        arm(e, w, u, end - u);
                u = end;
        }
}

/* Puts a unit whose memory the flusher has claimed. With policy sync nothing is protected, and it
 * is watched from before it is read on: what a thread or a device writes meanwhile is then in this
 * version or in the next. */
static int stage_claimed(struct engine *e, uint32_t region, uint64_t u)
{
        struct watch *w = e->part[region]->watch;
        const struct unit_notes *n = w->notes;
        bool shadow = (atomic_load(&w->span.state[u]) & UNIT_KIND) == UNIT_SHADOW;
        if (e->options.policy == POLICY_SYNC && n->look[u] == LOOK_NONE)
                watch_run(e, w, u, 1);
        const uint8_t *content =
                shadow ? shadow_unit(w, u) : (const uint8_t *)unit_begin(&w->span, u);
        int rc = put_unit(e, region, u, content);
        unseen_remember(w, u, content);
        unit_finish(&w->span, u, UNIT_DONE);
        return rc;
}

/* Copied ahead, without a fault: if the program has not come yet, the copy was not needed; else it
 * has spared the first write one in the handler. */
static void judge_ahead(struct engine *e, struct watch *w, uint64_t u, const uint8_t *copy)
{
        struct span *s = &w->span;
        uint8_t none = ACCESS_NONE;
        if (w->ops == &tracker_gone || atomic_load(&s->access[u]) != ACCESS_NONE)
                return;
        if (program_equal(copy, (const void *)unit_begin(s, u), unit_length(s, u)))
                e->epoch.ahead_missed++;
        else
                (void)atomic_compare_exchange_strong(&s->access[u], &none, ACCESS_COW);
}

static int stage_copy(struct engine *e, uint32_t region, uint64_t u, uint32_t slot)
{
        struct guard *g = &e->tracker.guard;
        struct watch *w = e->part[region]->watch;
        struct span *s = &w->span;
        const uint8_t *copy = g->slots + slot * g->slot_bytes;
        tsan_read(copy, unit_length(s, u));
        judge_ahead(e, w, u, copy);
        int rc = put_unit(e, region, u, copy);
        unseen_remember(w, u, copy);
        atomic_store(&s->state[u], UNIT_DONE);
        slot_give(g, slot);
        return rc;
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
                *region = (uint32_t)((id - 1) >> 32);
                *unit = (uint32_t)(id - 1);
                if (*region < e->part_count && unit_claim(&e->part[*region]->watch->span, *unit))
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
        uint32_t region = (uint32_t)((newest - 1) >> 32);
        if (region >= e->part_count)
                return;
        struct watch *w = e->part[region]->watch;
        const struct unit_notes *n = w->notes;
        uint64_t u = (uint32_t)(newest - 1);
        if (n->last_access[u] != ACCESS_NONE && n->mode[u] != MODE_KEEP)
                c->at = n->place[u] + 1;
}

/* What is in a shadow is nobody else's. */
static bool claim(struct span *s, uint64_t u)
{
        return (atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_SHADOW || unit_claim(s, u);
}

static bool next_planned(struct engine *e, struct cursor *c, uint32_t *region, uint64_t *unit)
{
        follow(e, c);
        for (uint64_t tried = 0; tried < e->plan_count; tried++) {
                const struct target *t = &e->plan[c->at++ % e->plan_count];
                if (!claim(&e->part[t->region]->watch->span, t->unit))
                        continue;
                *region = t->region;
                *unit = t->unit;
                return true;
        }
        return false;
}

/* Lets writes through to a run of captured units. */
static void open_run(struct engine *e, struct watch *w, uint64_t first, uint64_t count)
{
        struct unit_notes *n = w->notes;
        watch_run(e, w, first, count);
        if (n->runs)
                units_written(&w->span, first, count);
        if (!units_open(&w->span, first, count, w->ops->take != NULL))
                atomic_store(&w->span.stuck, true);
        memset(n->mode + first, MODE_OPENED, count);
}

static bool can_open(const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = w->notes;
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
static bool opens_behind(const struct engine *e, const struct watch *w, uint64_t u)
{
        return can_open(w, u) && (e->options.policy != POLICY_ADAPTIVE || order_knows(w, u));
}

static void open_behind(struct engine *e, uint32_t region, uint64_t u)
{
        struct watch *w = e->part[region]->watch;
        const struct unit_notes *n = w->notes;
        if (!e->options.open_behind || !w->ops->traps || w->ops->needs_faults ||
            e->options.policy == POLICY_SYNC)
                return;
        uint64_t first = u;
        uint64_t end = u;
        while (end < w->span.units && opens_behind(e, w, end))
                end++;
        while (end > u && first > 0 && opens_behind(e, w, first - 1))
                first--;
        uint64_t least = n->runs ? RUN_BYTES : OPEN_BYTES;
        if (w->huge)
                least = max_u64(least, trim_to_huge(&w->span, &first, &end));
        if (end > first && (end - first) * w->span.unit_bytes >= least)
                open_run(e, w, first, end - first);
}

/* After the last capture: everything that is still protected is opened. */
static void open_span(struct engine *e, struct watch *w)
{
        const struct unit_notes *n = w->notes;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units;) {
                uint64_t end = u;
                while (end < units && can_open(w, end))
                        end++;
                if (end > u)
                        open_run(e, w, u, end - u);
                u = max_u64(end, u + 1);
        }
        /* Clean units between dirty ones may have been protected with them; and single openings may
         * have failed for lack of mappings. One call for all of it joins the pieces again. */
        if (n->protected)
                (void)units_open(&w->span, 0, w->span.units, false);
        atomic_store(&w->span.stuck, false);
}

static void open_rest(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                step_begin(e);
                /* Where faults are how writes are noticed, captured units stay protected until they
                 * are written. */
                if (w->ops->needs_faults && atomic_load(&w->span.stuck))
                        span_open(&w->span);
                else if (w->ops->traps && !w->ops->needs_faults && e->options.policy != POLICY_SYNC)
                        open_span(e, w);
                step_end(e);
        }
}

/* What a patched unit has besides the blocks of its written pages. */
static void keep_rest(struct engine *e, uint32_t number, uint64_t first, uint64_t end)
{
        for (uint64_t block = first; block < end; block++)
                if (!draft_has(e->draft, number, block))
                        draft_keep(e->draft, number, block, 1);
}

static void keep_clean(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                const struct region *r = e->part[i];
                const struct watch *w = r->watch;
                const struct unit_notes *n = w->notes;
                uint32_t number = e->part_first + i;
                uint64_t per_unit = w->span.unit_bytes / r->desc.block_bytes;
                for (uint64_t u = 0; u < w->span.units;) {
                        uint64_t end = u + 1;
                        if (n->mode[u] == MODE_KEEP)
                                end = skip_zeros(n->mode, u, w->span.units);
                        while (end < w->span.units && n->mode[end] == n->mode[u])
                                end++;
                        uint64_t first = u * per_unit;
                        uint64_t last = min_u64(end * per_unit, region_blocks(&r->desc));
                        if (n->mode[u] == MODE_KEEP)
                                draft_keep(e->draft, number, first, last - first);
                        else if (n->mode[u] == MODE_PATCH)
                                keep_rest(e, number, first, last);
                        u = end;
                }
        }
}

/* The next unit by address, if it is a copy: 1 if it was staged, 0 if it is no copy. What was just
 * being copied when its turn came is found in another go. */
static int put_copy_in_turn(struct engine *e, struct cursor *c)
{
        c->at = c->at < e->plan_count ? c->at : 0;
        while (c->at < e->plan_count) {
                const struct target *t = &e->plan[c->at];
                const struct span *s = &e->part[t->region]->watch->span;
                uint32_t word = atomic_load(&s->state[t->unit]);
                if ((word & UNIT_KIND) == UNIT_COPIED) {
                        c->at++;
                        int rc = stage_copy(e, t->region, t->unit, word >> UNIT_SLOT_SHIFT);
                        return rc ? rc : 1;
                }
                if ((word & UNIT_KIND) != UNIT_DONE)
                        return 0;
                c->at++;
        }
        return 0;
}

static int put_newest_copy(struct engine *e, struct cursor *c)
{
        uint32_t region;
        uint32_t slot;
        uint64_t unit;
        if (!copied_take(&e->tracker.guard, &region, &unit, &slot))
                return 0;
        c->left--;
        int rc = stage_copy(e, region, unit, slot);
        return rc ? rc : 1;
}

static int put_copy(struct engine *e, struct cursor *c)
{
        if (!e->tracker.guard.in_turn)
                return put_newest_copy(e, c);
        int rc = put_copy_in_turn(e, c);
        c->left -= rc > 0;
        return rc;
}

/* 0 if there was nothing to do, else 1. */
static int flush_step(struct engine *e, struct cursor *c)
{
        uint32_t region;
        uint64_t unit;
        if (next_waited(e, &region, &unit)) {
                c->left--;
                int rc = stage_claimed(e, region, unit);
                return rc ? rc : 1;
        }
        int copied = put_copy(e, c);
        if (copied)
                return copied;
        /* Before anything is opened and watched anew, which would take marks away that it needs. */
        int patched = patch_step(e);
        if (patched)
                return patched;
        if (next_planned(e, c, &region, &unit)) {
                c->left--;
                int rc = stage_claimed(e, region, unit);
                if (rc == 0)
                        open_behind(e, region, unit);
                return rc ? rc : 1;
        }
        return 0;
}

/* No unit is held, and nobody kept out, while the medium is waited for. */
static int flush_one(struct engine *e, struct cursor *c)
{
        int rc = draft_make_room(e->draft, e->tracker.guard.slot_bytes);
        if (rc)
                return rc;
        step_begin(e);
        rc = flush_step(e, c);
        step_end(e);
        /* A thread is just copying the last ones. */
        if (rc == 0)
                plat->sleep_ns(20000);
        return rc < 0 ? rc : 0;
}

static int flush_patches(struct engine *e)
{
        int rc;
        do {
                rc = draft_make_room(e->draft, e->block_capacity);
                if (rc)
                        return rc;
                step_begin(e);
                rc = patch_step(e);
                step_end(e);
        } while (rc > 0);
        return rc;
}

/* A region that is written all over in every epoch is dense; one that is no longer is scanned. */
void flush_adapt(struct engine *e)
{
        bool possible = e->options.policy != POLICY_SYNC && e->tracker.trap.uffd >= 0 &&
                        e->options.precopy == PRECOPY_OFF && !by_pages(e);
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                uint64_t units = 0;
                uint64_t often = 0;
                for (uint64_t u = 0; u < w->span.units; u++) {
                        bool hot = n->hot[u] | n->rest[u];
                        units += hot;
                        often += hot && is_hot(e, w, u);
                }
                n->fresh = false;
                step_begin(e);
                bool dense = w->ops == &tracker_scan && often * 4 >= w->span.units * 3;
                bool sparse = w->ops == &tracker_dense && units * 2 < w->span.units;
                bool changes = possible && !w->fixed && (dense || sparse);
                if (changes)
                        tracker_change(&e->tracker, e->part[i],
                                       dense ? &tracker_dense : &tracker_scan);
                step_end(e);
                if (changes)
                        log_emit(BELAY_LOG_DEBUG, "region '%s' is written %s",
                                 e->part[i]->desc.name, dense ? "all over" : "here and there");
        }
}

int flush(struct engine *e)
{
        struct cursor c = {.left = e->plan_count};
        for (uint32_t i = 0; c.left > 0 && i < e->part_count; i++)
                tracker_look_at_pages(&e->tracker, e->part[i]->watch);
        order_plan(e);
        for (uint32_t i = 0; i < e->part_count && e->options.policy == POLICY_SYNC; i++)
                if (e->part[i]->watch->ops->traps)
                        look(e, i, MODE_FLUSH, true);
        while (c.left > 0) {
                int rc = flush_one(e, &c);
                if (rc)
                        return rc;
        }
        int rc = flush_patches(e);
        if (rc)
                return rc;
        unseen_count(e);
        open_rest(e);
        keep_clean(e);
        return 0;
}

/* Takes back every slot. A thread says that it has copied before it hands the copy over: until no
 * slot is out, one may still come, and in the next commit it would pass for a copy of that one. */
static void await_copies(struct guard *g)
{
        uint32_t region;
        uint32_t slot;
        uint64_t unit;
        while (atomic_load(&g->slots_used) != 0)
                if (copied_take(g, &region, &unit, &slot))
                        slot_give(g, slot);
                else
                        plat->sleep_ns(20000);
}

void flush_abandon(struct engine *e)
{
        struct guard *g = &e->tracker.guard;
        for (uint64_t i = 0; i < e->plan_count; i++) {
                struct watch *w = e->part[e->plan[i].region]->watch;
                if (claim(&w->span, e->plan[i].unit))
                        unit_finish(&w->span, e->plan[i].unit, UNIT_DONE);
        }
        /* Threads that were copying finish within a copy's time; their slots come back through the
         * stack. */
        for (uint64_t i = 0; i < e->plan_count; i++) {
                struct watch *w = e->part[e->plan[i].region]->watch;
                uint32_t word;
                while (((word = atomic_load(&w->span.state[e->plan[i].unit])) & UNIT_KIND) ==
                       UNIT_BUSY)
                        plat->sleep_ns(20000);
                if ((word & UNIT_KIND) == UNIT_SHADOW)
                        atomic_store(&w->span.state[e->plan[i].unit], UNIT_DONE);
                if (g->in_turn && (word & UNIT_KIND) == UNIT_COPIED) {
                        atomic_store(&w->span.state[e->plan[i].unit], UNIT_DONE);
                        slot_give(g, word >> UNIT_SLOT_SHIFT);
                }
        }
        step_begin(e);
        patch_abandon(e);
        step_end(e);
        await_copies(g);
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                step_begin(e);
                if (w->ops->traps)
                        span_open(&w->span);
                step_end(e);
        }
}
