/* freeze.c: the part of a checkpoint the program waits for: find what changed, decide how each unit
 * is captured, protect what is flushed later.
 *
 *   KEEP    not written since the version before, which has it: nothing to do
 *   PATCH   few of its pages were written: only those count (patch.c)
 *   DIRECT  staged right here: it cannot be protected (edges, small or untracked regions), or is
 *           too little to be worth it
 *   FLUSH   protected, and captured by the flusher or, if the program is faster, by the fault
 *           handler */
#include "engine/engine_int.h"
#include <errno.h>

/* Up to this much is staged at the freeze: it costs less than its protection and its faults
 * would. */
#define DIRECT_BYTES (UINT64_C(2) << 20)
/* More runs than this are protected as one: a system call each, and mappings are split no further
 * than needed. */
#define MAX_RUNS 256u
/* What one thread protects at a time when two do it. */
#define SHARE_BYTES (UINT64_C(16) << 20)
/* … and looks at for written pages: 20 µs. */
#define SCAN_BYTES (UINT64_C(64) << 20)
/* Most bytes copied ahead of the program at the freeze: a millisecond. */
#define AHEAD_BYTES (UINT64_C(4) << 20)

/* A unit with few changes may be worth being watched page by page. If it was, and was written all
 * over with what it held before, it rests for a while, longer every time: each look costs the
 * program a fault per page. */
static void consider_watching(struct watch *w, uint64_t u, bool few_changes)
{
        struct unit_notes *n = w->notes;
        if (!few_changes) {
                n->tried[u] = n->rest[u] = 0;
        } else if (w->pages[u] > 0) {
                n->tried[u] = (uint8_t)min_u64(n->tried[u] + 1u, 4);
                n->rest[u] = (uint8_t)(4u << n->tried[u]);
        } else if (n->rest[u] > 0) {
                n->rest[u]--;
        } else {
                n->hot[u] = 0;
        }
}

int put_unit(struct engine *e, uint32_t region, uint64_t unit, const uint8_t *from)
{
        const struct region *r = e->part[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        uint64_t first = unit * per_unit;
        uint64_t end = min_u64(first + per_unit, region_blocks(&r->desc));
        uint64_t changed = 0;
        bool same = r->watch->notes->look[unit] == LOOK_SAME;
        int kept = by_pages(e) ? pages_keep(e, region, unit) : 0;
        if (kept < 0)
                return kept;
        for (uint64_t block = first; same && block < end; block++) {
                int rc = draft_put_same(e->draft, e->part_first + region, block);
                if (rc)
                        return rc;
        }
        for (uint64_t block = first; !same && block < end; block++) {
                if (kept && draft_has(e->draft, e->part_first + region, block))
                        continue;
                int rc = draft_put(e->draft, e->part_first + region, block,
                                   from + (block - first) * r->desc.block_bytes);
                if (rc < 0)
                        return rc;
                changed += rc == 0;
        }
        consider_watching(r->watch, unit, changed * 2 <= end - first);
        return 0;
}

/* The version before has the first so many units of the region, block by block. */
static uint64_t units_to_keep(const struct engine *e, uint32_t region)
{
        const struct region *r = e->part[region];
        uint64_t per_unit = r->watch->span.unit_bytes / r->desc.block_bytes;
        uint64_t blocks = draft_can_keep(e->draft, e->part_first + region);
        return blocks == region_blocks(&r->desc) ? r->watch->span.units : blocks / per_unit;
}

bool unit_is_whole(const struct span *s, uint64_t u)
{
        return unit_begin(s, u) >= s->low && unit_begin(s, u) + unit_length(s, u) <= s->high;
}

int describe(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count && !e->early.draft; i++) {
                struct region *r = e->part[i];
                struct region_desc desc = r->desc;
                uint32_t number;
                bool share = differ_shares(e, r, &desc.hash);
                int rc = draft_region(e->draft, &desc, share, &number);
                if (rc)
                        return rc;
                e->part_first = i == 0 ? number : e->part_first;
                r->notes->shares = draft_compares(e->draft, number);
                r->notes->compared = r->notes->shares && !by_pages(e);
                if (by_pages(e))
                        draft_write_all(e->draft, number);
        }
        return draft_ready(e->draft, plat->wall_ns());
}

/* Room for every unit and region; the flusher needs it and may not allocate. */
static int make_room(struct engine *e)
{
        uint64_t units = 0;
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct region *r = e->part[i];
                int rc = r->watch ? 0 : notes_watch(&e->tracker, r);
                if (rc)
                        return rc;
                r->watch->span.early = e->options.precopy != PRECOPY_OFF;
                units += r->watch->span.units;
        }
        if (units > e->plan_capacity) {
                void *p = budget_resize(e->options.budget, e->plan,
                                        (units + units / 4) * sizeof(*e->plan), "the flush order");
                if (!p)
                        return -ENOMEM;
                e->plan = p;
                e->plan_capacity = units + units / 4;
        }
        uint32_t captured = e->captured_count + e->part_count;
        if (captured > e->captured_capacity) {
                void *p = budget_resize(e->options.budget, e->captured,
                                        UINT64_C(2) * captured * sizeof(*e->captured),
                                        "the region table");
                if (!p)
                        return -ENOMEM;
                e->captured = p;
                e->captured_capacity = captured * 2;
        }
        return 0;
}

struct scan {
        struct engine *e;
        struct watch *w;
        uint32_t parts;
};

static int scan_piece(void *arg, uint64_t piece)
{
        const struct scan *s = arg;
        return s->w->ops->scan(&s->e->tracker, s->w, (uint32_t)piece, s->parts);
}

/* Finds out which units were written. Two threads look at much memory faster than one. */
static int find_written(struct engine *e, struct watch *w)
{
        uint32_t parts = (uint32_t)min_u64(w->span.bytes / SCAN_BYTES, SCAN_PARTS);
        struct scan s = {e, w, parts < 4 ? 1 : parts};
        struct shared_work work = {.run = scan_piece, .arg = &s, .pieces = s.parts};
        int rc = !w->ops->scan ? 0 : s.parts > 1 ? share_work(e, &work) : scan_piece(&s, 0);
        return rc ? rc : w->ops->collect(&e->tracker, w, s.parts);
}

static int collect(struct engine *e)
{
        order_judge(e);
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                patch_carry(w);
                early_before_collect(w);
                int rc = find_written(e, w);
                for (uint64_t u = 0; rc && u < w->span.units; u++)
                        w->dirty[u] |= n->early[u];
                if (rc)
                        return err_set(rc, "region '%s': what was written cannot be found out: %s",
                                       e->part[i]->desc.name, code_text(rc));
                e->epoch.scanned_bytes += w->ops->scans ? w->span.bytes : 0;
                patch_candidates(e, w);
                early_after_collect(e, w);
                order_begin_epoch(e, w);
                n->protected = false;
                n->captured = true;
                n->captured_at = e->captured_count;
                e->captured[e->captured_count++] = w;
                atomic_store(&w->span.part, i);
        }
        return 0;
}

/* Sets the mode of every unit; the plan gets those to be flushed. */
static void decide(struct engine *e)
{
        uint64_t bytes = 0;
        bool patch = patch_fits(e);
        e->plan_count = 0;
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                const struct span *s = &w->span;
                uint64_t kept = units_to_keep(e, i);
                e->epoch.units += s->units;
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
                        e->epoch.dirty_units++;
                        if (patch && n->mode[u] == MODE_PATCH && unit_is_whole(s, u) && u < kept)
                                continue;
                        n->mode[u] =
                                w->ops->traps && unit_is_whole(s, u) ? MODE_FLUSH : MODE_DIRECT;
                        if (by_pages(e))
                                pages_decide(e, i, u, u < kept);
                        if (n->mode[u] == MODE_DIRECT)
                                continue;
                        e->plan[e->plan_count++] = (struct target){i, (uint32_t)u, 0};
                        bytes += unit_length(s, u);
                }
        }
        if (bytes > DIRECT_BYTES || e->options.policy == POLICY_SYNC || by_pages(e))
                return;
        for (uint64_t i = 0; i < e->plan_count; i++)
                e->part[e->plan[i].region]->watch->notes->mode[e->plan[i].unit] = MODE_DIRECT;
        e->plan_count = 0;
}

static int put_direct(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                memset(n->look, LOOK_NONE, w->span.units);
                if (!w->ops->traps)
                        look(e, i, MODE_DIRECT, false);
                uint64_t units = w->span.units;
                for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++) {
                        if (n->mode[u] != MODE_DIRECT)
                                continue;
                        /* Watched from before it is read on, where that costs the program
                         * nothing. */
                        bool watched = w->ops->take && unit_is_whole(&w->span, u) &&
                                       w->ops->arm(&e->tracker, w, u, 1) == 0;
                        int rc = put_unit(e, i, u, (const uint8_t *)unit_begin(&w->span, u));
                        if (rc)
                                return rc;
                        if (!watched)
                                units_written(&w->span, u, 1);
                        e->epoch.direct_units++;
                }
        }
        return 0;
}

static uint64_t count_runs(const struct watch *w)
{
        const struct unit_notes *n = w->notes;
        uint64_t runs = 0;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                runs += n->mode[u] == MODE_FLUSH && (u == 0 || n->mode[u - 1] != MODE_FLUSH);
        return runs;
}

struct protection {
        struct engine *e;
        struct watch *w;
        uint64_t piece_units;
        bool between; /* what lies between the units to be flushed is protected with them */
};

/* The runs to be flushed in one piece of the region. */
static int protect_piece(void *arg, uint64_t piece)
{
        const struct protection *p = arg;
        const uint8_t *mode = p->w->notes->mode;
        uint64_t u = piece * p->piece_units;
        uint64_t end = min_u64(u + p->piece_units, p->w->span.units);
        while (u < end) {
                while (u < end && mode[u] != MODE_FLUSH)
                        u++;
                uint64_t last = u;
                while (last < end && (p->between || mode[last] == MODE_FLUSH))
                        last++;
                int rc = last > u ? p->w->ops->protect(&p->e->tracker, p->w, u, last - u) : 0;
                if (rc)
                        return rc;
                u = last;
        }
        return 0;
}

/* Protects all units to be flushed. Every page costs some 80 ns, so two threads do it where they
 * can. The kernel refuses when a process has too many mappings; what could not be protected is then
 * staged here and now. */
static int protect(struct engine *e, struct watch *w)
{
        struct unit_notes *n = w->notes;
        uint64_t units = w->span.units;
        uint64_t runs = count_runs(w);
        struct protection p = {e, w, units, runs > MAX_RUNS};
        n->protected = runs > 0;
        if (runs == 0)
                return 0;
        if (w->ops->shares)
                p.piece_units = max_u64(SHARE_BYTES / w->span.unit_bytes, 1);
        if (units < 4 * p.piece_units) {
                p.piece_units = units;
                return protect_piece(&p, 0);
        }
        struct shared_work work = {
                .run = protect_piece, .arg = &p, .pieces = div_up(units, p.piece_units)};
        return share_work(e, &work);
}

static void set_pending(struct watch *w)
{
        const struct unit_notes *n = w->notes;
        atomic_store(&w->span.stuck, false);
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                if (n->mode[u] == MODE_FLUSH)
                        atomic_store(&w->span.state[u], UNIT_PENDING);
}

/* The flusher counts the plan down to nothing: what is staged already must not be in it. */
static void drop_direct(struct engine *e)
{
        uint64_t kept = 0;
        for (uint64_t i = 0; i < e->plan_count; i++) {
                const struct target *t = &e->plan[i];
                if (e->part[t->region]->watch->notes->mode[t->unit] != MODE_DIRECT)
                        e->plan[kept++] = *t;
        }
        e->plan_count = kept;
}

static int protect_or_put(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                if (!w->ops->traps)
                        continue;
                set_pending(w);
                int rc = protect(e, w);
                if (rc == 0)
                        continue;
                e->unprotected = e->part[i];
                e->unprotected_code = rc;
                span_open(&w->span);
                for (uint64_t u = 0; u < w->span.units; u++) {
                        if (!unit_claim(&w->span, u))
                                continue;
                        rc = put_unit(e, i, u, (const uint8_t *)unit_begin(&w->span, u));
                        unit_finish(&w->span, u, UNIT_DONE);
                        if (rc)
                                return rc;
                        n->mode[u] = MODE_DIRECT;
                        units_written(&w->span, u, 1);
                        e->epoch.direct_units++;
                }
        }
        drop_direct(e);
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
static void copy_ahead(struct engine *e)
{
        struct guard *g = &e->tracker.guard;
        if (!e->options.copy_ahead || e->options.policy != POLICY_ADAPTIVE || g->slot_count == 0 ||
            by_pages(e))
                return;
        uint64_t count = min_u64(g->slot_count / 2, AHEAD_BYTES / g->slot_bytes);
        count = min_u64(count, e->plan_count);
        select_first(e->plan, e->plan_count, count);
        for (uint64_t i = 0; i < count; i++) {
                struct target *t = &e->plan[i];
                struct watch *w = e->part[t->region]->watch;
                struct unit_notes *n = w->notes;
                if (!order_knows(w, t->unit) || n->last_access[t->unit] == ACCESS_AFTER)
                        continue;
                int64_t slot = slot_take(g);
                if (slot < 0)
                        return;
                atomic_store(&w->span.state[t->unit], UNIT_BUSY);
                unit_copy(&w->span, t->unit, (uint32_t)slot);
                n->mode[t->unit] = MODE_OPENED;
                units_written(&w->span, t->unit, 1);
                e->epoch.ahead_units++;
        }
}

/* Where nothing needs to be noticed unit by unit any more, captured units are opened in long runs,
 * also by the fault handler: each opening costs every running thread its TLB. */
static void choose_runs(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct watch *w = e->part[i]->watch;
                struct unit_notes *n = w->notes;
                bool runs = w->ops == &tracker_dense && e->options.open_behind;
                for (uint64_t u = 0; runs && u < w->span.units; u++)
                        runs = e->options.policy != POLICY_ADAPTIVE || n->mode[u] != MODE_FLUSH ||
                               order_knows(w, u);
                n->runs = runs;
                atomic_store(&w->span.run, runs ? RUN_BYTES / w->span.unit_bytes : 0);
        }
}

/* With no handler at work: what one has seen of a unit would not be true any more. Calls nothing of
 * the program's, whose threads may be waiting. */
static int freeze_held(struct engine *e)
{
        int rc = collect(e);
        if (rc)
                return rc;
        decide(e);
        differ_predict(e);
        e->tracker.guard.in_turn = e->options.policy == POLICY_ASYNC;
        guard_begin(&e->tracker.guard);
        /* In this order: what is staged is watched anew, and so may be a page that it shares with a
         * unit whose written pages are looked up here. */
        uint64_t start = plat->now_ns();
        rc = patch_take(e);
        if (rc == 0)
                rc = put_direct(e);
        e->epoch.flush_ns += plat->now_ns() - start;
        if (rc)
                return rc;
        order_keys(e);
        choose_runs(e);
        copy_ahead(e);
        if (e->options.policy == POLICY_SYNC) {
                for (uint32_t i = 0; i < e->part_count; i++)
                        set_pending(e->part[i]->watch);
                return 0;
        }
        return protect_or_put(e);
}

int freeze(struct engine *e)
{
        e->unprotected = NULL;
        int rc = describe(e);
        if (rc == 0)
                rc = make_room(e);
        if (rc == 0)
                rc = tracker_set_slots(
                        &e->tracker, e->options.policy == POLICY_SYNC ? 0 : e->options.copy_bytes);
        if (rc == 0)
                rc = patch_room(e);
        if (rc == 0)
                (void)look_ready(e);
        /* The medium is waited for before anybody has to wait for us. */
        if (rc == 0 && e->early.draft)
                rc = draft_settle(e->draft);
        if (rc == 0 && e->tracker.ops->traps)
                rc = faults_ready();
        if (rc)
                return rc;
        guard_hold(&e->tracker.guard);
        pool_defer(e->pool, e->options.policy != POLICY_SYNC);
        rc = freeze_held(e);
        pool_defer(e->pool, false);
        guard_release(&e->tracker.guard);
        if (e->unprotected)
                log_emit(BELAY_LOG_WARN,
                         "region '%s' cannot be protected (%s): it is copied at this checkpoint",
                         e->unprotected->desc.name, code_text(e->unprotected_code));
        return rc;
}
