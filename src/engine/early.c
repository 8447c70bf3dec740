/* early.c: pre-copy. Between two checkpoints the flusher puts units into the draft of the next
 * version already, and watches them from before they are read on. At the freeze those that were not
 * written since are in the version; the others are captured as ever. So a forecast that fails costs
 * a copy, and nothing else.
 *
 *   published ─► look … look ─► begin a draft ─► copy, look … copy, look ─► freeze ─► published
 *                                    │                                         ▲
 *                                    └── regions change: drop the draft ───────┘ without it
 *
 * A look tells which regions were modified since the last one. There are LOOKS of them in an
 * interval, so that the numbers of modifications compare. A chunk costs one fault for each look
 * that finds it modified; in any other region a look watches nothing anew, since that would cost a
 * fault for each unit or page of it, and only what was copied and is written then counts as
 * modified.
 *
 * All calls of the program's that need the pool or change the registry stop this first
 * (engine_idle, engine_pause), and engine_resume lets it go on. */
#include "engine/engine_int.h"

#define LOOKS       32u
#define CLOSER      8u                /* looks when a last modification is waited for */
#define LEAST_NS    UINT64_C(500000)  /* from one look to the next … */
#define LEAST_TIMES 2u                /* … and this many times as long as it took */
#define PATIENCE_NS UINT64_C(5000000) /* no longer asleep without looking whether to stop */

static bool hushed(const struct engine *e)
{
        return atomic_load(&e->early.hush);
}

static uint64_t since(const struct engine *e)
{
        return plat->now_ns() - e->early.begun_ns;
}

/* An interval that turns out longer has no more looks for that. */
static uint64_t step_ns(const struct engine *e)
{
        uint64_t now = since(e);
        uint64_t interval = e->early.interval_ns;
        return max_u64((now > 2 * interval ? now : interval) / LOOKS, LEAST_NS);
}

/* What is not hushed is the flusher's; else the rest is not even looked at. */
bool early_wanted(const struct engine *e)
{
        if (hushed(e))
                return false;
        return e->options.precopy != PRECOPY_OFF && e->early.interval_ns != 0 && !e->open &&
               !e->early.failed;
}

uint64_t early_next_ns(const struct engine *e)
{
        return e->early.next_ns;
}

/* ---- looking ---- */

/* What was copied and is written now has to be copied again. */
static void call_modified(struct engine *e, struct watch *w, uint64_t u)
{
        struct unit_notes *n = w->notes;
        w->dirty[u] = 1;
        e->early.missed += n->early[u];
        n->put_again = n->put_again || n->early[u];
        n->early[u] = 0;
}

/* Does the kernel write to it, too? It may be doing so: then nothing may be protected, and a device
 * may write after the kernel has marked the page. */
static bool is_foreign(const struct watch *w)
{
        return atomic_load(&w->span.foreign);
}

/* No mappings are left: it would be copied in vain, look for look. */
static void cannot_watch(struct engine *e, struct watch *w)
{
        units_written(&w->span, 0, w->span.units);
        e->early.failed = true;
}

/* With no handler at work: one that is just about to open a page would open what is protected
 * here. */
static bool look_at_faults(struct engine *e, struct watch *w, bool again)
{
        const struct unit_notes *n = w->notes;
        bool modified = false;
        guard_hold(&e->tracker.guard);
        if (is_foreign(w)) {
                guard_release(&e->tracker.guard);
                return false;
        }
        for (uint64_t u = 0; u < w->span.units; u++)
                if (atomic_exchange(&w->span.written[u], 0)) {
                        modified |= w->span.whole || n->early[u];
                        call_modified(e, w, u);
                }
        if (((modified && w->span.whole) || again) && w->ops->arm(&e->tracker, w, 0, w->span.units))
                cannot_watch(e, w);
        guard_release(&e->tracker.guard);
        return modified;
}

static bool call_pages_modified(struct engine *e, struct watch *w, int ranges)
{
        const struct unit_notes *n = w->notes;
        const struct span *s = &w->span;
        bool missed = false;
        for (int i = 0; i < ranges; i++) {
                uint64_t low = max_u64(e->tracker.ranges[i].start, s->start);
                uint64_t high = min_u64(e->tracker.ranges[i].end, s->start + s->bytes);
                for (uint64_t u = (low - s->start) / s->unit_bytes;
                     low < high && u <= (high - 1 - s->start) / s->unit_bytes; u++) {
                        missed |= n->early[u] != 0;
                        call_modified(e, w, u);
                }
        }
        return missed;
}

/* All written pages, which are watched anew if `again`; what is known of them then. */
static int scan_pages(struct engine *e, struct watch *w, bool again, bool *missed)
{
        const struct span *s = &w->span;
        uint64_t at = s->low;
        int n;
        do {
                n = again ? w->ops->take(&e->tracker, w, 0, s->units, &at)
                          : w->ops->written(&e->tracker, w, at, s->high);
                *missed |= call_pages_modified(e, w, n);
                if (!again && n > 0)
                        at = e->tracker.ranges[n - 1].end;
        } while (n > 0 && at < s->high);
        for (uint64_t u = 0; again && u < s->units; u++)
                if (atomic_exchange(&w->span.written[u], 0))
                        call_modified(e, w, u);
        return n < 0 ? n : 0;
}

static bool look_at_pages(struct engine *e, struct watch *w, bool again)
{
        struct unit_notes *n = w->notes;
        bool missed = false;
        guard_hold(&e->tracker.guard);
        int rc = is_foreign(w) ? 0 : scan_pages(e, w, again, &missed);
        guard_release(&e->tracker.guard);
        if (rc) { /* it may have taken marks away */
                e->early.failed = true;
                memset(w->dirty, 1, w->span.units);
                memset(n->early, 0, w->span.units);
        }
        return missed;
}

static bool can_watch(const struct region *r)
{
        return r->watch && r->watch->ops->traps;
}

/* At all but one that is just being copied, if any. */
static void look_around(struct engine *e, const struct watch *but)
{
        uint64_t now = since(e);
        for (uint32_t i = 0; i < e->regions->count && !hushed(e); i++) {
                struct region *r = e->regions->list[i];
                if (!can_watch(r) || r->watch == but)
                        continue;
                bool modified = r->watch->ops->take ? look_at_pages(e, r->watch, false)
                                                    : look_at_faults(e, r->watch, false);
                if (modified)
                        forecast_modified(&r->watch->notes->forecast, now, step_ns(e) / 2);
        }
}

/* Chunks can be looked at closely: it costs a fault only if they are modified. */
static bool is_near(const struct engine *e)
{
        bool predicts = e->options.precopy == PRECOPY_PREDICTED;
        for (uint32_t i = 0; predicts && i < e->regions->count; i++) {
                const struct watch *w = e->regions->list[i]->watch;
                if (w && w->span.whole && forecast_near(&w->notes->forecast) &&
                    since(e) >= e->early.threshold_ns)
                        return true;
        }
        return false;
}

/* One of them is when copying begins. */
static uint64_t next_look(const struct engine *e)
{
        const struct early *y = &e->early;
        uint64_t now = plat->now_ns();
        uint64_t next = now + max_u64(step_ns(e) / (is_near(e) ? CLOSER : 1), LEAST_NS);
        uint64_t threshold = y->begun_ns + y->threshold_ns;
        return threshold > now && e->options.precopy != PRECOPY_IMMEDIATE ? min_u64(next, threshold)
                                                                          : next;
}

/* Copying takes long where memory is slow, and looks come as often all the same: what is modified
 * meanwhile has to be counted. */
static void look_if_time(struct engine *e, const struct watch *but)
{
        uint64_t start = plat->now_ns();
        if (start < e->early.next_ns)
                return;
        look_around(e, but);
        uint64_t now = plat->now_ns();
        e->early.next_ns = max_u64(next_look(e), now + LEAST_TIMES * (now - start));
}

/* ---- copying ---- */

static int begin_draft(struct engine *e)
{
        int rc = draft_begin(e->pool, &e->draft);
        if (rc == 0)
                rc = part_all(e);
        if (rc == 0)
                rc = describe(e);
        if (rc) {
                draft_abort(&e->draft);
                return rc;
        }
        e->early.draft = true;
        return 0;
}

/* With a rate of its own: sleeps until so much may have been written. */
static void pace(struct engine *e, const struct watch *w, uint64_t bytes)
{
        uint64_t rate = e->options.precopy_rate;
        if (rate == 0)
                return;
        e->early.free_ns =
                max_u64(e->early.free_ns, plat->now_ns()) + bytes * UINT64_C(1000000000) / rate;
        for (uint64_t now; !hushed(e) && (now = plat->now_ns()) < e->early.free_ns;) {
                plat->sleep_ns(min_u64(e->early.free_ns - now, PATIENCE_NS));
                look_if_time(e, w);
        }
}

/* What is put again gives its slot back: nothing may be on its way there. */
static int settle(struct engine *e, struct watch *w)
{
        bool again = w->notes->put_again;
        w->notes->put_again = false;
        return again ? draft_settle(e->draft) : 0;
}

/* What has not changed is copied, too, where the version does not share it with the one before
 * (and so cannot take a changed page of it for the only one either: there is nothing to patch). But
 * once an interval: not if what was copied had to be dropped. The unit at either end of a region
 * may have neighbours: it waits for the checkpoint. */
static bool is_left(const struct engine *e, const struct region *r, uint64_t u)
{
        const struct watch *w = r->watch;
        const struct unit_notes *n = w->notes;
        bool in_full = !r->notes->shares && !e->early.dropped;
        return (w->dirty[u] || in_full) && !n->early[u] && unit_is_whole(&w->span, u);
}

static bool has_work(const struct engine *e, const struct region *r)
{
        const struct watch *w = r->watch;
        const struct unit_notes *n = w->notes;
        for (uint64_t u = 0; u < w->span.units; u++)
                if (is_left(e, r, u) || (atomic_load(&w->span.written[u]) && !n->early[u] &&
                                         unit_is_whole(&w->span, u)))
                        return true;
        return false;
}

static int copy_region(struct engine *e, uint32_t i)
{
        struct watch *w = e->part[i]->watch;
        struct unit_notes *n = w->notes;
        if (!has_work(e, e->part[i]))
                return 0;
        n->copied_early = true;
        /* Watched from before it is read on. */
        bool modified = w->ops->take ? look_at_pages(e, w, true) : look_at_faults(e, w, true);
        if (modified)
                forecast_modified(&n->forecast, since(e), step_ns(e) / 2);
        if (is_foreign(w))
                return 0;
        int rc = settle(e, w);
        for (uint64_t u = 0; rc == 0 && u < w->span.units && !hushed(e) && !e->early.failed; u++) {
                if (!is_left(e, e->part[i], u))
                        continue;
                if (is_foreign(w) || (w->span.whole && atomic_load(&w->span.written[u])))
                        break; /* modified again */
                n->early[u] = 1;
                e->early.any = true;
                n->look[u] = LOOK_NONE;
                w->pages[u] = 0;
                uint64_t start = plat->now_ns();
                rc = draft_make_room(e->draft, w->span.unit_bytes);
                if (rc == 0)
                        rc = put_unit(e, i, u, (const uint8_t *)unit_begin(&w->span, u));
                e->early.busy_ns += plat->now_ns() - start;
                look_if_time(e, w);
                pace(e, w, unit_length(&w->span, u));
        }
        return rc;
}

/* Is it time to copy this region? */
static bool is_due(const struct engine *e, const struct region *r)
{
        if (!can_watch(r))
                return false;
        uint64_t now = since(e);
        if (e->options.precopy == PRECOPY_IMMEDIATE)
                return true;
        if (now < e->early.threshold_ns)
                return false;
        if (e->options.precopy == PRECOPY_DELAYED)
                return true;
        const struct forecast *f = &r->watch->notes->forecast;
        /* It has been left alone for a moment: a modification takes its time. */
        return forecast_over(f, now, 2 * step_ns(e)) &&
               (f->seen == 0 || now - f->last_ns >= step_ns(e) / CLOSER);
}

static bool any_due(const struct engine *e)
{
        for (uint32_t i = 0; i < e->regions->count; i++)
                if (is_due(e, e->regions->list[i]))
                        return true;
        return false;
}

static int copy_due(struct engine *e)
{
        int rc = 0;
        if (!any_due(e))
                return 0;
        if (!e->early.draft)
                rc = begin_draft(e);
        for (uint32_t i = 0; rc == 0 && i < e->part_count && !hushed(e); i++)
                if (is_due(e, e->part[i]))
                        rc = copy_region(e, i);
        return rc;
}

/* The flusher, between commits; the lock is not held. */
void early_step(struct engine *e)
{
        look_if_time(e, NULL);
        int rc = copy_due(e);
        if (rc == 0 && !e->early.failed)
                return;
        /* The checkpoint will say what is wrong, if it still is. */
        early_drop(e);
        e->early.failed = true;
}

void early_drop(struct engine *e)
{
        if (e->early.draft) {
                draft_abort(&e->draft);
                e->early.dropped = true;
                e->part_count = 0;
        }
        e->early.draft = false;
        early_forget(e);
}

void early_forget(struct engine *e)
{
        for (uint32_t i = 0; e->early.any && i < e->regions->count; i++) {
                struct watch *w = e->regions->list[i]->watch;
                if (!w)
                        continue;
                memset(w->notes->early, 0, w->span.units);
                w->notes->put_again = false;
        }
        e->early.any = false;
}

/* ---- around a commit ---- */

/* collect finds what was written since the last look: what the draft has and is not among it, it
 * has for good. It counts as changed since the version before until this one is published. */
void early_before_collect(struct watch *w)
{
        const struct unit_notes *n = w->notes;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->early, u, units)) < units; u++)
                w->dirty[u] = 0;
}

void early_after_collect(struct engine *e, struct watch *w)
{
        const struct unit_notes *n = w->notes;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->early, u, units)) < units; u++) {
                if (w->dirty[u]) {
                        call_modified(e, w, u);
                        continue;
                }
                w->dirty[u] = 1;
                e->epoch.early_units++;
        }
}

/* An interval begins. The lock is held. */
void early_begin(struct engine *e)
{
        e->early.draft = e->early.dropped = false;
        e->early.begun_ns = e->early.next_ns = plat->now_ns();
        atomic_store(&e->early.hush, e->early.paused);
        pthread_cond_broadcast(&e->changed);
}

/* A checkpoint begins: an interval is over. */
void early_interval(struct engine *e)
{
        uint64_t now = since(e);
        uint64_t before = e->early.interval_ns;
        if (e->options.precopy == PRECOPY_OFF || e->early.begun_ns == 0)
                return;
        e->early.interval_ns = before ? min_u64(before, now) / 2 + max_u64(before, now) / 2 : now;
        for (uint32_t i = 0; before && i < e->regions->count; i++) {
                struct watch *w = e->regions->list[i]->watch;
                if (!w)
                        continue;
                forecast_next(&w->notes->forecast, w->span.whole || w->notes->copied_early);
                w->notes->copied_early = false;
        }
}

/* No interval is quite like the one before. Where it is known which modification is the last, to
 * begin somewhat early costs nothing. */
static uint64_t margin_ns(const struct engine *e)
{
        unsigned looks = e->options.precopy == PRECOPY_PREDICTED ? 3 : 1;
        return looks * e->early.interval_ns / LOOKS;
}

/* A version is published. What it took is what the next will take. */
void early_learn(struct engine *e)
{
        const struct draft_result *r = &e->epoch.result;
        struct early *y = &e->early;
        double ns = (double)(y->busy_ns + e->epoch.flush_ns + r->drain_ns);
        if (r->data_bytes > 0)
                y->ns_per_byte = ns / (double)r->data_bytes;
        y->threshold_ns = precopy_threshold(y->interval_ns, (double)r->data_bytes, y->ns_per_byte);
        y->threshold_ns -= min_u64(y->threshold_ns, margin_ns(e));
        e->epoch.early_missed = y->missed;
        y->busy_ns = y->missed = 0;
        y->draft = y->failed = false;
}
