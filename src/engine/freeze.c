/* freeze.c: the part of a checkpoint the program waits for: find what changed, decide how each unit
 * is captured, protect what is flushed later.
 *
 *   KEEP    not written since the version before, which has it: nothing to do
 *   PATCH   few of its pages were written: only those count (patch.c)
 *   DIRECT  copied right here, or staged if there is no room for the copy (pack.c): it cannot be
 *           protected (small or untracked regions), or is too little to be worth it
 *   FLUSH   protected, and captured by the flusher or, if the program is faster, by the fault
 *           handler */
#include "engine/commit.h"
#include "engine/cost.h"
#include "engine/precopy.h"
#include <errno.h>

/* Up to this much is staged at the freeze: it costs less than its protection and its faults
 * would. */
#define DIRECT_BYTES (UINT64_C(2) << 20)
/* What one thread looks at for written pages when two do it: 20 µs. */
#define SCAN_BYTES (UINT64_C(64) << 20)
/* Regions whose edges one thread takes at a time when two do it. */
#define EDGES_PIECE UINT64_C(128)
/* Most bytes copied ahead of the program at the freeze: a millisecond. */
#define AHEAD_BYTES (UINT64_C(4) << 20)

/* The version before has the first so many units of the region, block by block. */
static uint64_t units_to_keep(const struct commit *c, uint32_t region)
{
        const struct region *r = c->part.list[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        uint64_t blocks = draft_can_keep(c->draft, c->part.first + region);
        return blocks == region_blocks(&r->desc) ? r->watch->span.units : blocks / per_unit;
}

/* Room for every unit and region; the flusher needs it and may not allocate. */
static int make_room(struct commit *c)
{
        uint64_t units = 0;
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct region *r = c->part.list[i];
                int rc = r->watch ? 0 : notes_watch(c->tracker, r);
                if (rc)
                        return rc;
                r->watch->span.early = c->options->precopy != PRECOPY_OFF;
                units += r->watch->span.units;
        }
        if (units > c->plan.capacity) {
                void *p = budget_resize(c->options->budget, c->plan.list,
                                        (units + units / 4) * sizeof(*c->plan.list),
                                        "the flush order");
                if (!p)
                        return -ENOMEM;
                c->plan.list = p;
                c->plan.capacity = units + units / 4;
        }
        uint32_t captured = c->captured.count + c->part.count;
        if (captured > c->captured.capacity) {
                void *p = budget_resize(c->options->budget, c->captured.list,
                                        UINT64_C(2) * captured * sizeof(*c->captured.list),
                                        "the region table");
                if (!p)
                        return -ENOMEM;
                c->captured.list = p;
                c->captured.capacity = captured * 2;
        }
        return neighbours_make_room(c);
}

struct scan {
        struct commit *c;
        const struct stretch *stretch;
        uint32_t parts;
};

static int scan_piece(void *arg, uint64_t piece)
{
        const struct scan *s = arg;
        return s->stretch->list[0]->ops->scan(s->c->tracker, s->stretch, (uint32_t)piece, s->parts);
}

/* Finds out which units were written. Two threads look at much memory faster than one. */
static int find_written(struct commit *c, const struct stretch *stretch)
{
        const struct tracker_ops *ops = stretch->list[0]->ops;
        uint64_t bytes = stretch->list[stretch->count - 1]->span.high - stretch->list[0]->span.low;
        uint32_t parts = (uint32_t)min_u64(bytes / SCAN_BYTES, SCAN_PARTS);
        struct scan s = {c, stretch, parts < 4 ? 1 : parts};
        struct shared_work work = {.run = scan_piece, .arg = &s, .pieces = s.parts};
        int rc = !ops->scan    ? 0
                 : s.parts > 1 ? workers_share(c->workers, &work)
                               : scan_piece(&s, 0);
        return rc ? rc : ops->collect(c->tracker, stretch, s.parts);
}

/* Nothing is known of units that were copied early. */
static int cannot_find(struct commit *c, uint32_t region, int rc)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                for (uint64_t u = 0; u < w->span.units; u++)
                        w->dirty[u] |= unit_notes(w)->early[u];
        }
        return err_set(rc, "region '%s': what was written cannot be found out: %s",
                       c->part.list[region]->desc.name, code_text(rc));
}

static int find_all_written(struct commit *c)
{
        int rc = 0;
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                patch_remember_dirty(w);
                precopy_before_collect(w);
                if (!w->ops->traps)
                        rc = find_written(c, &(struct stretch){&w, 1});
                if (rc)
                        return cannot_find(c, i, rc);
        }
        for (uint32_t i = 0; i < c->neighbours.count;) {
                struct stretch s = neighbours_near(c, i);
                rc = find_written(c, &s);
                if (rc)
                        return cannot_find(c, c->neighbours.regions[i], rc);
                i += s.count;
        }
        return 0;
}

static int take_edges(void *arg, uint64_t piece)
{
        const struct neighbours *n = arg;
        uint64_t end = min_u64((piece + 1) * EDGES_PIECE, n->count);
        for (uint64_t i = piece * EDGES_PIECE; i < end; i++)
                edges_take(n->watches[i]);
        return 0;
}

static void take_all_edges(struct commit *c)
{
        struct shared_work work = {.run = take_edges,
                                   .arg = &c->neighbours,
                                   .pieces = div_up(c->neighbours.count, EDGES_PIECE)};
        (void)workers_share_many(c->workers, &work);
}

static int collect(struct commit *c, struct precopy *p)
{
        order_judge(c);
        int rc = find_all_written(c);
        if (rc)
                return rc;
        take_all_edges(c);
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                struct unit_notes *n = unit_notes(w);
                c->epoch.scanned_bytes += w->ops->scans ? w->span.bytes : 0;
                patch_find_candidates(c, w);
                precopy_after_collect(p, w);
                order_begin_epoch(c, w);
                n->protected = false;
                n->captured = true;
                n->captured_at = c->captured.count;
                c->captured.list[c->captured.count++] = w;
                atomic_store(&w->span.part, i);
        }
        return 0;
}

/* Sets the mode of every unit; the plan gets those to be flushed. */
static void decide(struct commit *c)
{
        uint64_t bytes = 0;
        bool patch = patch_fits(c);
        c->plan.count = 0;
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                struct unit_notes *n = unit_notes(w);
                const struct span *s = &w->span;
                uint64_t kept = units_to_keep(c, i);
                c->epoch.units += s->units;
                for (uint64_t u = 0; u < s->units; u++) {
                        if (n->early[u]) {
                                n->mode[u] = MODE_EARLY;
                                continue;
                        }
                        if (!w->dirty[u] && u < kept) {
                                uint64_t next = skip_zeros(w->dirty, u, kept);
                                memset(n->mode + u, MODE_KEEP, next - u);
                                u = next - 1;
                                continue;
                        }
                        w->dirty[u] = 1;
                        c->epoch.dirty_units++;
                        if (patch && n->mode[u] == MODE_PATCH && u < kept)
                                continue;
                        n->mode[u] = w->ops->traps ? MODE_FLUSH : MODE_DIRECT;
                        if (by_pages(c->options))
                                pages_decide(c, i, u, u < kept);
                        if (n->mode[u] == MODE_DIRECT)
                                continue;
                        c->plan.list[c->plan.count++] = (struct target){i, (uint32_t)u, 0};
                        bytes += unit_length(s, u);
                }
        }
        if (bytes > DIRECT_BYTES || c->options->policy == POLICY_SYNC || by_pages(c->options))
                return;
        for (uint64_t i = 0; i < c->plan.count; i++)
                unit_notes(c->part.list[c->plan.list[i].region]->watch)
                        ->mode[c->plan.list[i].unit] = MODE_DIRECT;
        c->plan.count = 0;
}

static int put_direct(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                struct unit_notes *n = unit_notes(w);
                memset(n->content, CONTENT_UNKNOWN, w->span.units);
                if (!w->ops->traps)
                        compare_units(c, i, MODE_DIRECT, false);
                uint64_t units = w->span.units;
                for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++) {
                        if (n->mode[u] != MODE_DIRECT)
                                continue;
                        /* Watched from before it is read on, where that costs the program
                         * nothing. */
                        bool watched = w->ops->take && w->ops->arm(c->tracker, w, u, 1) == 0;
                        int rc = pack_or_put(c, i, u);
                        if (rc)
                                return rc;
                        if (!watched)
                                units_written(&w->span, u, 1);
                        c->epoch.direct_units++;
                }
        }
        return 0;
}

/* Brings the `count` smallest keys to the front of the plan. */
static void select_first(struct target *a, uint64_t length, uint64_t count)
{
        uint64_t low = 0;
        uint64_t high = length;
        while (high - low > 1 && count > low && count < high) {
                uint64_t pivot = a[low + (high - low) / 2].key;
                uint64_t i = low;
                uint64_t j = high - 1;
                for (;;) {
                        while (a[i].key < pivot)
                                i++;
                        while (a[j].key > pivot)
                                j--;
                        if (i >= j)
                                break;
                        struct target t = a[i];
                        a[i++] = a[j];
                        a[j--] = t;
                }
                if (count <= i)
                        high = i;
                else
                        low = i;
                if (high == length && i == low && low == 0)
                        break;
        }
}

/* Units the program will write first, by what it did last time, are copied at memory speed instead
 * of being trapped one by one. They are not protected. */
static void copy_ahead(struct commit *c)
{
        struct guard *g = &c->tracker->guard;
        if (!c->options->copy_ahead || c->options->policy != POLICY_ADAPTIVE ||
            g->pocket_count == 0 || by_pages(c->options))
                return;
        uint64_t count = min_u64(g->pocket_count / 2, AHEAD_BYTES / g->pocket_bytes);
        count = min_u64(count, c->plan.count);
        select_first(c->plan.list, c->plan.count, count);
        for (uint64_t i = 0; i < count; i++) {
                struct target *t = &c->plan.list[i];
                struct watch *w = c->part.list[t->region]->watch;
                struct unit_notes *n = unit_notes(w);
                if (!order_knows(w, t->unit) || n->last_access[t->unit] == ACCESS_AFTER)
                        continue;
                int64_t pocket = pocket_take(g);
                if (pocket < 0)
                        return;
                atomic_store(&w->span.state[t->unit], UNIT_BUSY);
                unit_copy(&w->span, t->unit, (uint32_t)pocket);
                n->mode[t->unit] = MODE_OPENED;
                units_written(&w->span, t->unit, 1);
                c->epoch.ahead_units++;
        }
}

/* Where nothing needs to be noticed unit by unit any more, captured units are opened in long runs,
 * also by the fault handler: each opening costs every running thread its TLB. */
static void choose_runs(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                struct unit_notes *n = unit_notes(w);
                bool runs = w->ops == &tracker_dense && c->options->open_behind;
                for (uint64_t u = 0; runs && u < w->span.units; u++)
                        runs = c->options->policy != POLICY_ADAPTIVE || n->mode[u] != MODE_FLUSH ||
                               order_knows(w, u);
                n->runs = runs;
                atomic_store(&w->span.run, runs ? RUN_BYTES / w->span.unit_bytes : 0);
        }
}

/* With no handler at work: what one has seen of a unit would not be true any more. Calls nothing of
 * the program's, whose threads may be waiting. */
static int freeze_alone(struct commit *c, struct precopy *p, struct cost *cost)
{
        int rc = collect(c, p);
        if (rc)
                return rc;
        decide(c);
        cost_predict(cost, c);
        c->tracker->guard.in_turn = c->options->policy == POLICY_ASYNC;
        guard_begin(&c->tracker->guard);
        /* In this order: what is staged is watched anew, and so may be a page that it shares with a
         * unit whose written pages are looked up here. */
        uint64_t start = plat->now_ns();
        rc = patch_take(c);
        if (rc == 0)
                rc = put_direct(c);
        c->epoch.flush_ns += plat->now_ns() - start;
        if (rc)
                return rc;
        order_set_keys(c);
        choose_runs(c);
        copy_ahead(c);
        if (c->options->policy == POLICY_SYNC) {
                for (uint32_t i = 0; i < c->part.count; i++)
                        protect_set_pending(c->part.list[i]->watch);
                return 0;
        }
        return protect_or_put(c);
}

int freeze_part(struct commit *c, struct precopy *p, struct cost *cost)
{
        c->unprotected = NULL;
        int rc = p->draft ? draft_ready(c->draft, plat->wall_ns()) : part_describe(c);
        if (rc == 0)
                rc = make_room(c);
        if (rc == 0)
                rc = tracker_set_pockets(
                        c->tracker, c->options->policy == POLICY_SYNC ? 0 : c->options->copy_bytes);
        if (rc == 0)
                rc = patch_make_room(c);
        if (rc == 0)
                rc = pack_make_room(c);
        if (rc == 0)
                (void)compare_prepare(c);
        /* The medium is waited for before anybody has to wait for us. */
        if (rc == 0 && p->draft)
                rc = draft_drain(c->draft);
        if (rc == 0 && c->tracker->ops->traps)
                rc = faults_ready();
        if (rc)
                return rc;
        neighbours_find(c);
        guard_shut(&c->tracker->guard);
        pool_defer(c->pool, c->options->policy != POLICY_SYNC);
        rc = freeze_alone(c, p, cost);
        pool_defer(c->pool, false);
        guard_reopen(&c->tracker->guard);
        if (c->unprotected)
                log_emit(BELAY_LOG_WARN,
                         "region '%s' cannot be protected (%s): it is copied at this checkpoint",
                         c->unprotected->desc.name, code_text(c->unprotected_code));
        return rc;
}
