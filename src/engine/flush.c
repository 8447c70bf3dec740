/* flush.c: the flusher: captures every unit of the commit, in the order of Algorithm 3 and 4: what
 * a thread waits for, then copies (their pockets are needed), then the plan; and lets the program
 * write behind it. Policy async is what the paper compares with: what a thread waits for, then by
 * address, copies in their turn.
 *
 * The deadlock rule: a program thread may wait for a unit while it holds any lock of its own. From
 * the freeze to the last capture nothing here allocates or calls foreign code: raw system calls,
 * memcpy and the pool's own writer. The one lock that is taken, in each step, is never held by
 * anybody who may wait for a unit (steps.h). */
#include "engine/commit.h"

struct cursor {
        uint64_t at;     /* next position in the plan         */
        uint64_t left;   /* units of the plan not yet staged  */
        uint64_t newest; /* last fault that was followed      */
};

/* Puts a unit whose memory the flusher has claimed. With policy sync nothing is protected, and it
 * is watched from before it is read on: what a thread or a device writes meanwhile is then in this
 * version or in the next. */
static int stage_claimed(struct commit *c, uint32_t region, uint64_t u)
{
        struct watch *w = c->part.list[region]->watch;
        const struct unit_notes *n = unit_notes(w);
        bool shadow = (atomic_load(&w->span.state[u]) & UNIT_KIND) == UNIT_SHADOW;
        if (c->options->policy == POLICY_SYNC && n->content[u] == CONTENT_UNKNOWN)
                rewatch_units(c, w, u, 1);
        const uint8_t *content =
                shadow ? shadow_unit(w, u) : (const uint8_t *)unit_begin(&w->span, u);
        int rc = put_unit(c, region, u, content);
        unseen_remember(w, u, content);
        unit_finish(&w->span, u, UNIT_DONE);
        return rc;
}

/* Copied ahead, without a fault: if the program has not come yet, the copy was not needed; else it
 * has spared the first write one in the handler. */
static void judge_ahead(struct commit *c, struct watch *w, uint64_t u, const uint8_t *copy)
{
        struct span *s = &w->span;
        uint8_t none = ACCESS_NONE;
        if (w->ops == &tracker_gone || atomic_load(&s->access[u]) != ACCESS_NONE)
                return;
        if (program_equal(copy, (const void *)unit_begin(s, u), unit_length(s, u)))
                c->epoch.ahead_missed++;
        else
                (void)atomic_compare_exchange_strong(&s->access[u], &none, ACCESS_COW);
}

static int stage_copy(struct commit *c, uint32_t region, uint64_t u, uint32_t pocket)
{
        struct guard *g = &c->tracker->guard;
        struct watch *w = c->part.list[region]->watch;
        struct span *s = &w->span;
        const uint8_t *copy = g->pockets + pocket * g->pocket_bytes;
        tsan_read(copy, unit_length(s, u));
        judge_ahead(c, w, u, copy);
        int rc = put_unit(c, region, u, copy);
        unseen_remember(w, u, copy);
        atomic_store(&s->state[u], UNIT_DONE);
        pocket_give(g, pocket);
        return rc;
}

/* A unit some thread waits for. */
static bool next_waited(struct commit *c, uint32_t *region, uint64_t *unit)
{
        struct guard *g = &c->tracker->guard;
        for (uint32_t i = 0; i < WAITED_RING; i++) {
                if (atomic_load_explicit(&g->waited[i], memory_order_relaxed) == 0)
                        continue;
                uint64_t id = atomic_exchange(&g->waited[i], 0);
                if (id == 0)
                        continue;
                *region = (uint32_t)((id - 1) >> 32);
                *unit = (uint32_t)(id - 1);
                if (*region < c->part.count &&
                    unit_claim(&c->part.list[*region]->watch->span, *unit))
                        return true;
        }
        return false;
}

/* The program's newest fault tells where it is: go on from there, so that an epoch that began in
 * the middle of an iteration is flushed in step with the program. */
static void follow(struct commit *c, struct cursor *cursor)
{
        uint64_t newest = atomic_load(&c->tracker->guard.newest);
        if (!c->options->follow || c->options->policy != POLICY_ADAPTIVE ||
            newest == cursor->newest || newest == 0)
                return;
        cursor->newest = newest;
        uint32_t region = (uint32_t)((newest - 1) >> 32);
        if (region >= c->part.count)
                return;
        struct watch *w = c->part.list[region]->watch;
        const struct unit_notes *n = unit_notes(w);
        uint64_t u = (uint32_t)(newest - 1);
        if (n->last_access[u] != ACCESS_NONE && n->mode[u] != MODE_KEEP)
                cursor->at = n->place[u] + 1;
}

/* What is in a shadow is nobody else's. */
static bool claim(struct span *s, uint64_t u)
{
        return (atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_SHADOW || unit_claim(s, u);
}

static bool next_planned(struct commit *c, struct cursor *cursor, uint32_t *region, uint64_t *unit)
{
        follow(c, cursor);
        for (uint64_t tried = 0; tried < c->plan.count; tried++) {
                const struct target *t = &c->plan.list[cursor->at++ % c->plan.count];
                if (!claim(&c->part.list[t->region]->watch->span, t->unit))
                        continue;
                *region = t->region;
                *unit = t->unit;
                return true;
        }
        return false;
}

/* What a patched unit has besides the blocks of its written pages. */
static void keep_rest(struct commit *c, uint32_t number, uint64_t first, uint64_t end)
{
        for (uint64_t block = first; block < end; block++)
                if (!draft_has(c->draft, number, block))
                        draft_keep(c->draft, number, block, 1);
}

static void keep_clean(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct region *r = c->part.list[i];
                const struct watch *w = r->watch;
                const struct unit_notes *n = unit_notes(w);
                uint32_t number = c->part.first + i;
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
                                draft_keep(c->draft, number, first, last - first);
                        else if (n->mode[u] == MODE_PATCH)
                                keep_rest(c, number, first, last);
                        u = end;
                }
        }
}

/* The next unit by address, if it is a copy: 1 if it was staged, 0 if it is no copy. What was just
 * being copied when its turn came is found in another go. */
static int put_copy_in_turn(struct commit *c, struct cursor *cursor)
{
        cursor->at = cursor->at < c->plan.count ? cursor->at : 0;
        while (cursor->at < c->plan.count) {
                const struct target *t = &c->plan.list[cursor->at];
                const struct span *s = &c->part.list[t->region]->watch->span;
                uint32_t word = atomic_load(&s->state[t->unit]);
                if ((word & UNIT_KIND) == UNIT_COPIED) {
                        cursor->at++;
                        int rc = stage_copy(c, t->region, t->unit, word >> UNIT_POCKET_SHIFT);
                        return rc ? rc : 1;
                }
                if ((word & UNIT_KIND) != UNIT_DONE)
                        return 0;
                cursor->at++;
        }
        return 0;
}

static int put_newest_copy(struct commit *c, struct cursor *cursor)
{
        uint32_t region;
        uint32_t pocket;
        uint64_t unit;
        if (!copied_take(&c->tracker->guard, &region, &unit, &pocket))
                return 0;
        cursor->left--;
        int rc = stage_copy(c, region, unit, pocket);
        return rc ? rc : 1;
}

static int put_copy(struct commit *c, struct cursor *cursor)
{
        if (!c->tracker->guard.in_turn)
                return put_newest_copy(c, cursor);
        int rc = put_copy_in_turn(c, cursor);
        cursor->left -= rc > 0;
        return rc;
}

/* 0 if there was nothing to do, else 1. */
static int flush_step(struct commit *c, struct cursor *cursor)
{
        uint32_t region;
        uint64_t unit;
        if (next_waited(c, &region, &unit)) {
                cursor->left--;
                int rc = stage_claimed(c, region, unit);
                return rc ? rc : 1;
        }
        int copied = put_copy(c, cursor);
        if (copied)
                return copied;
        /* Before anything is opened and watched anew, which would take marks away that it needs. */
        int patched = patch_step(c);
        if (patched)
                return patched;
        if (next_planned(c, cursor, &region, &unit)) {
                cursor->left--;
                int rc = stage_claimed(c, region, unit);
                if (rc == 0)
                        opening_follow(c, region, unit);
                return rc ? rc : 1;
        }
        return 0;
}

/* No unit is held, and nobody kept out, while the medium is waited for. */
static int flush_one(struct commit *c, struct cursor *cursor)
{
        int rc = draft_make_room(c->draft, c->tracker->guard.pocket_bytes);
        if (rc)
                return rc;
        step_begin(c->steps);
        rc = flush_step(c, cursor);
        step_end(c->steps);
        /* A thread is just copying the last ones. */
        if (rc == 0)
                plat->sleep_ns(20000);
        return rc < 0 ? rc : 0;
}

/* What nobody waits for: it was copied at the freeze. */
static int flush_copies(struct commit *c)
{
        int rc;
        do {
                rc = draft_make_room(c->draft, c->tracker->guard.pocket_bytes);
                if (rc)
                        return rc;
                step_begin(c->steps);
                rc = patch_step(c);
                if (rc == 0)
                        rc = pack_step(c);
                step_end(c->steps);
        } while (rc > 0);
        return rc;
}

int flush_part(struct commit *c)
{
        struct cursor cursor = {.left = c->plan.count};
        for (uint32_t i = 0; cursor.left > 0 && i < c->part.count; i++)
                tracker_find_huge(c->tracker, c->part.list[i]->watch);
        order_sort_plan(c);
        for (uint32_t i = 0; i < c->part.count && c->options->policy == POLICY_SYNC; i++)
                if (c->part.list[i]->watch->ops->traps)
                        compare_units(c, i, MODE_FLUSH, true);
        while (cursor.left > 0) {
                int rc = flush_one(c, &cursor);
                if (rc)
                        return rc;
        }
        int rc = flush_copies(c);
        if (rc)
                return rc;
        unseen_count(c);
        opening_finish(c);
        keep_clean(c);
        return 0;
}

/* Takes back every pocket. A thread says that it has copied before it hands the copy over: until no
 * pocket is out, one may still come, and in the next commit it would pass for a copy of that one. */
static void await_copies(struct guard *g)
{
        uint32_t region;
        uint32_t pocket;
        uint64_t unit;
        while (atomic_load(&g->pockets_used) != 0)
                if (copied_take(g, &region, &unit, &pocket))
                        pocket_give(g, pocket);
                else
                        plat->sleep_ns(20000);
}

void flush_abandon(struct commit *c)
{
        struct guard *g = &c->tracker->guard;
        for (uint64_t i = 0; i < c->plan.count; i++) {
                struct watch *w = c->part.list[c->plan.list[i].region]->watch;
                if (claim(&w->span, c->plan.list[i].unit))
                        unit_finish(&w->span, c->plan.list[i].unit, UNIT_DONE);
        }
        /* Threads that were copying finish within a copy's time; their pockets come back through the
         * stack. */
        for (uint64_t i = 0; i < c->plan.count; i++) {
                struct watch *w = c->part.list[c->plan.list[i].region]->watch;
                uint32_t word;
                while (((word = atomic_load(&w->span.state[c->plan.list[i].unit])) & UNIT_KIND) ==
                       UNIT_BUSY)
                        plat->sleep_ns(20000);
                if ((word & UNIT_KIND) == UNIT_SHADOW)
                        atomic_store(&w->span.state[c->plan.list[i].unit], UNIT_DONE);
                if (g->in_turn && (word & UNIT_KIND) == UNIT_COPIED) {
                        atomic_store(&w->span.state[c->plan.list[i].unit], UNIT_DONE);
                        pocket_give(g, word >> UNIT_POCKET_SHIFT);
                }
        }
        step_begin(c->steps);
        patch_abandon(c);
        pack_abandon(c);
        step_end(c->steps);
        await_copies(g);
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                step_begin(c->steps);
                if (w->ops->traps)
                        span_open(&w->span);
                step_end(c->steps);
        }
}
