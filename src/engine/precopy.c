/* precopy.c: pre-copy. Between two checkpoints the flusher puts units into the draft of the next
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
#include "engine/precopy.h"

#define LOOKS       32u
#define CLOSER      8u                /* looks when a last modification is waited for */
#define LEAST_NS    UINT64_C(500000)  /* from one look to the next … */
#define LEAST_TIMES 2u                /* … and this many times as long as it took */
#define PATIENCE_NS UINT64_C(5000000) /* no longer asleep without looking whether to stop */

static bool must_stop(const struct precopy *p)
{
        return atomic_load(&p->stop);
}

static uint64_t elapsed_ns(const struct precopy *p)
{
        return plat->now_ns() - p->begun_ns;
}

/* From one look to the next. An interval that takes more than twice as long as expected gets its
 * looks farther apart, not more of them. */
static uint64_t look_interval_ns(const struct precopy *p)
{
        uint64_t now = elapsed_ns(p);
        uint64_t interval = p->interval_ns;
        return max_u64((now > 2 * interval ? now : interval) / LOOKS, LEAST_NS);
}

/* `stop` comes first: while it is set, the other fields may be a program thread's. */
bool precopy_wanted(const struct precopy *p)
{
        if (must_stop(p))
                return false;
        return p->options->precopy != PRECOPY_OFF && p->interval_ns != 0 && !p->commit->open &&
               !p->failed;
}

uint64_t precopy_next_ns(const struct precopy *p)
{
        return p->next_ns;
}

/* ---- looking ---- */

/* The unit was written: if the draft has a copy of it already, it has to be copied again. */
static void call_modified(struct precopy *p, struct watch *w, uint64_t u)
{
        struct unit_notes *n = unit_notes(w);
        w->dirty[u] = 1;
        p->missed += n->early[u];
        n->put_again = n->put_again || n->early[u];
        n->early[u] = 0;
}

/* System calls write to the region, too, and one may be doing so now: then nothing may be
 * protected, and a device may write after the kernel has marked the page. */
static bool is_foreign(const struct watch *w)
{
        return atomic_load(&w->span.foreign);
}

/* The kernel has no mappings left. Pre-copy ends for this interval: what cannot be watched would be
 * copied in vain, look for look. */
static void cannot_watch(struct precopy *p, struct watch *w)
{
        units_written(&w->span, 0, w->span.units);
        p->failed = true;
}

/* The guard is shut: a handler that is just about to open a page would open what is protected
 * here. */
static bool look_at_faults(struct precopy *p, struct watch *w, bool again)
{
        const struct unit_notes *n = unit_notes(w);
        bool modified = false;
        guard_shut(&p->tracker->guard);
        if (is_foreign(w)) {
                guard_reopen(&p->tracker->guard);
                return false;
        }
        for (uint64_t u = 0; u < w->span.units; u++)
                if (atomic_exchange(&w->span.written[u], 0)) {
                        modified |= w->span.whole || n->early[u];
                        call_modified(p, w, u);
                }
        if (((modified && w->span.whole) || again) && w->ops->arm(p->tracker, w, 0, w->span.units))
                cannot_watch(p, w);
        guard_reopen(&p->tracker->guard);
        return modified;
}

static bool call_pages_modified(struct precopy *p, struct watch *w, int ranges)
{
        const struct unit_notes *n = unit_notes(w);
        const struct span *s = &w->span;
        bool missed = false;
        for (int i = 0; i < ranges; i++) {
                uint64_t low = max_u64(p->tracker->ranges[i].start, s->start);
                uint64_t high = min_u64(p->tracker->ranges[i].end, s->start + s->bytes);
                for (uint64_t u = (low - s->start) / s->unit_bytes;
                     low < high && u <= (high - 1 - s->start) / s->unit_bytes; u++) {
                        missed |= n->early[u] != 0;
                        call_modified(p, w, u);
                }
        }
        return missed;
}

/* Finds all written pages and, if `again`, watches them anew. */
static int scan_pages(struct precopy *p, struct watch *w, bool again, bool *missed)
{
        const struct span *s = &w->span;
        uint64_t at = s->low;
        int n;
        do {
                n = again ? w->ops->take(p->tracker, s->low, s->high, &at)
                          : w->ops->written(p->tracker, w, at, s->high);
                *missed |= call_pages_modified(p, w, n);
                if (!again && n > 0)
                        at = p->tracker->ranges[n - 1].end;
        } while (n > 0 && at < s->high);
        for (uint64_t u = 0; again && u < s->units; u++)
                if (atomic_exchange(&w->span.written[u], 0))
                        call_modified(p, w, u);
        return n < 0 ? n : 0;
}

static bool look_at_pages(struct precopy *p, struct watch *w, bool again)
{
        struct unit_notes *n = unit_notes(w);
        bool missed = false;
        guard_shut(&p->tracker->guard);
        int rc = is_foreign(w) ? 0 : scan_pages(p, w, again, &missed);
        guard_reopen(&p->tracker->guard);
        if (rc) { /* it may have taken marks away */
                p->failed = true;
                memset(w->dirty, 1, w->span.units);
                memset(n->early, 0, w->span.units);
        }
        return missed;
}

/* What is put into the draft has the edges as they are taken here. */
static void look_at_edges(struct precopy *p, struct watch *w)
{
        edges_take(w);
        for (unsigned edge = EDGE_HEAD; edge <= EDGE_TAIL; edge++) {
                uint64_t u;
                uint64_t end;
                edges_units(w, edge, &u, &end);
                for (; u < end && (w->edges_changed & edge); u++)
                        call_modified(p, w, u);
        }
}

static bool can_watch(const struct region *r)
{
        return r->watch && r->watch->ops->traps;
}

/* Looks at all regions except `but`, which is just being copied. */
static void look_around(struct precopy *p, const struct watch *but)
{
        uint64_t now = elapsed_ns(p);
        for (uint32_t i = 0; i < p->regions->count && !must_stop(p); i++) {
                struct region *r = p->regions->list[i];
                if (!can_watch(r) || r->watch == but)
                        continue;
                bool modified = r->watch->ops->take ? look_at_pages(p, r->watch, false)
                                                    : look_at_faults(p, r->watch, false);
                if (modified)
                        forecast_modified(&unit_notes(r->watch)->forecast, now,
                                          look_interval_ns(p) / 2);
        }
}

/* Is the last write to some chunk near? Then looks come closer together. Only chunks are looked at
 * so closely: that costs a fault only if they are modified. */
static bool is_near(const struct precopy *p)
{
        bool predicts = p->options->precopy == PRECOPY_PREDICTED;
        for (uint32_t i = 0; predicts && i < p->regions->count; i++) {
                const struct watch *w = p->regions->list[i]->watch;
                if (w && w->span.whole && forecast_near(&unit_notes(w)->forecast) &&
                    elapsed_ns(p) >= p->threshold_ns)
                        return true;
        }
        return false;
}

/* One look falls on the time when copying begins. */
static uint64_t next_look_ns(const struct precopy *p)
{
        uint64_t now = plat->now_ns();
        uint64_t next = now + max_u64(look_interval_ns(p) / (is_near(p) ? CLOSER : 1), LEAST_NS);
        uint64_t threshold = p->begun_ns + p->threshold_ns;
        return threshold > now && p->options->precopy != PRECOPY_IMMEDIATE
                       ? min_u64(next, threshold)
                       : next;
}

/* Also called between two copies: where memory is slow, copying takes long, and what is modified
 * meanwhile has to be counted in its time. */
static void look_if_time(struct precopy *p, const struct watch *but)
{
        uint64_t start = plat->now_ns();
        if (start < p->next_ns)
                return;
        look_around(p, but);
        uint64_t now = plat->now_ns();
        p->next_ns = max_u64(next_look_ns(p), now + LEAST_TIMES * (now - start));
}

/* ---- copying ---- */

static int begin_draft(struct precopy *p)
{
        int rc = draft_begin(p->commit->pool, &p->commit->draft);
        if (rc == 0)
                rc = part_take_all(p->commit, p->regions);
        if (rc == 0)
                rc = part_describe(p->commit);
        if (rc == 0)
                rc = patch_make_room(p->commit);
        if (rc) {
                draft_abort(&p->commit->draft);
                return rc;
        }
        p->draft = true;
        return 0;
}

/* With the option precopy_rate: sleeps until so many bytes may have been written. */
static void pace(struct precopy *p, const struct watch *w, uint64_t bytes)
{
        uint64_t rate = p->options->precopy_rate;
        if (rate == 0)
                return;
        p->free_ns = max_u64(p->free_ns, plat->now_ns()) + bytes * UINT64_C(1000000000) / rate;
        for (uint64_t now; !must_stop(p) && (now = plat->now_ns()) < p->free_ns;) {
                plat->sleep_ns(min_u64(p->free_ns - now, PATIENCE_NS));
                look_if_time(p, w);
        }
}

/* A unit that is put again gives its slots in the pool back: no write may be on its way there. */
static int await_writes(struct precopy *p, struct watch *w)
{
        bool again = unit_notes(w)->put_again;
        unit_notes(w)->put_again = false;
        return again ? draft_drain(p->commit->draft) : 0;
}

/* A unit that has not changed is copied, too, if the version does not share blocks with the one
 * before; but once an interval: not if a draft had to be dropped. */
static bool is_to_copy(const struct precopy *p, const struct region *r, uint64_t u)
{
        const struct watch *w = r->watch;
        const struct unit_notes *n = unit_notes(w);
        bool in_full = !region_notes(r)->shares && !p->dropped;
        return (w->dirty[u] || in_full) && !n->early[u];
}

static bool has_work(const struct precopy *p, const struct region *r)
{
        const struct watch *w = r->watch;
        const struct unit_notes *n = unit_notes(w);
        for (uint64_t u = 0; u < w->span.units; u++)
                if (is_to_copy(p, r, u) || (atomic_load(&w->span.written[u]) && !n->early[u]))
                        return true;
        return false;
}

static int copy_region(struct precopy *p, uint32_t i)
{
        struct watch *w = p->commit->part.list[i]->watch;
        struct unit_notes *n = unit_notes(w);
        if (!has_work(p, p->commit->part.list[i]))
                return 0;
        n->copied_early = true;
        /* Watched from before it is read on. */
        bool modified = w->ops->take ? look_at_pages(p, w, true) : look_at_faults(p, w, true);
        if (modified)
                forecast_modified(&n->forecast, elapsed_ns(p), look_interval_ns(p) / 2);
        if (is_foreign(w))
                return 0;
        look_at_edges(p, w);
        int rc = await_writes(p, w);
        for (uint64_t u = 0; rc == 0 && u < w->span.units && !must_stop(p) && !p->failed; u++) {
                if (!is_to_copy(p, p->commit->part.list[i], u))
                        continue;
                if (is_foreign(w) || (w->span.whole && atomic_load(&w->span.written[u])))
                        break; /* modified again */
                n->early[u] = 1;
                p->any = true;
                n->content[u] = CONTENT_UNKNOWN;
                w->pages[u] = 0;
                uint64_t start = plat->now_ns();
                rc = draft_make_room(p->commit->draft, w->span.unit_bytes);
                if (rc == 0)
                        rc = put_unit(p->commit, i, u, (const uint8_t *)unit_begin(&w->span, u));
                p->busy_ns += plat->now_ns() - start;
                look_if_time(p, w);
                pace(p, w, unit_length(&w->span, u));
        }
        return rc;
}

/* Is it time to copy this region? */
static bool is_due(const struct precopy *p, const struct region *r)
{
        if (!can_watch(r))
                return false;
        uint64_t now = elapsed_ns(p);
        if (p->options->precopy == PRECOPY_IMMEDIATE)
                return true;
        if (now < p->threshold_ns)
                return false;
        if (p->options->precopy == PRECOPY_DELAYED)
                return true;
        const struct forecast *f = &unit_notes(r->watch)->forecast;
        /* Wait one look before copying: a program that is in the middle of rewriting a chunk would
         * dirty the copy at once. */
        return forecast_over(f, now, 2 * look_interval_ns(p)) &&
               (f->seen == 0 || now - f->last_ns >= look_interval_ns(p) / CLOSER);
}

static bool any_due(const struct precopy *p)
{
        for (uint32_t i = 0; i < p->regions->count; i++)
                if (is_due(p, p->regions->list[i]))
                        return true;
        return false;
}

static int copy_due(struct precopy *p)
{
        int rc = 0;
        if (!any_due(p))
                return 0;
        if (!p->draft)
                rc = begin_draft(p);
        for (uint32_t i = 0; rc == 0 && i < p->commit->part.count && !must_stop(p); i++)
                if (is_due(p, p->commit->part.list[i]))
                        rc = copy_region(p, i);
        return rc;
}

void precopy_step(struct precopy *p)
{
        look_if_time(p, NULL);
        int rc = copy_due(p);
        if (rc == 0 && !p->failed)
                return;
        /* The checkpoint will say what is wrong, if it still is. */
        precopy_drop(p);
        p->failed = true;
}

void precopy_drop(struct precopy *p)
{
        if (p->draft) {
                draft_abort(&p->commit->draft);
                p->dropped = true;
                p->commit->part.count = 0;
        }
        p->draft = false;
        precopy_forget(p);
}

void precopy_forget(struct precopy *p)
{
        for (uint32_t i = 0; p->any && i < p->regions->count; i++) {
                struct watch *w = p->regions->list[i]->watch;
                if (!w)
                        continue;
                memset(unit_notes(w)->early, 0, w->span.units);
                unit_notes(w)->put_again = false;
        }
        p->any = false;
}

/* ---- around a commit ---- */

/* The freeze then finds what was written since the last look. A unit that was copied and is not
 * among it is in the version. It stays dirty until that is published. */
void precopy_before_collect(struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->early, u, units)) < units; u++)
                w->dirty[u] = 0;
}

void precopy_after_collect(struct precopy *p, struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->early, u, units)) < units; u++) {
                if (w->dirty[u]) {
                        call_modified(p, w, u);
                        continue;
                }
                w->dirty[u] = 1;
                p->commit->epoch.early_units++;
        }
}

void precopy_begin_interval(struct precopy *p)
{
        p->draft = p->dropped = false;
        p->begun_ns = p->next_ns = plat->now_ns();
        atomic_store(&p->stop, p->paused);
}

void precopy_end_interval(struct precopy *p)
{
        uint64_t now = elapsed_ns(p);
        uint64_t before = p->interval_ns;
        if (p->options->precopy == PRECOPY_OFF || p->begun_ns == 0)
                return;
        p->interval_ns = before ? min_u64(before, now) / 2 + max_u64(before, now) / 2 : now;
        for (uint32_t i = 0; before && i < p->regions->count; i++) {
                struct watch *w = p->regions->list[i]->watch;
                if (!w)
                        continue;
                forecast_next(&unit_notes(w)->forecast,
                              w->span.whole || unit_notes(w)->copied_early);
                unit_notes(w)->copied_early = false;
        }
}

/* Intervals differ, so copying begins somewhat before the threshold. Where it is known which
 * modification is the last, that costs nothing. */
static uint64_t margin_ns(const struct precopy *p)
{
        unsigned looks = p->options->precopy == PRECOPY_PREDICTED ? 3 : 1;
        return looks * p->interval_ns / LOOKS;
}

/* What the version took is what the next will take. */
void precopy_learn(struct precopy *p)
{
        const struct draft_result *r = &p->commit->epoch.result;
        double ns = (double)(p->busy_ns + p->commit->epoch.flush_ns + r->drain_ns);
        if (r->data_bytes > 0)
                p->ns_per_byte = ns / (double)r->data_bytes;
        p->threshold_ns = precopy_threshold(p->interval_ns, (double)r->data_bytes, p->ns_per_byte);
        p->threshold_ns -= min_u64(p->threshold_ns, margin_ns(p));
        p->commit->epoch.early_missed = p->missed;
        p->busy_ns = p->missed = 0;
        p->draft = p->failed = false;
}
