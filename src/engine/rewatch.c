/* rewatch.c: which units are watched for the next epoch, and how.
 *
 * To watch a unit costs the program a fault for each page that it writes. So what is written in
 * every epoch is called written instead, and a region of which that is true nearly everywhere gets
 * a tracker that remembers nothing (tracker_dense). */
#include "engine/commit.h"

/* What cannot be watched (no mappings left) counts as written. */
static void arm(const struct commit *c, struct watch *w, uint64_t first, uint64_t count)
{
        if (w->ops->arm(c->tracker, w, first, count))
                units_written(&w->span, first, count);
}

/* Written in every epoch, as far as is known. The first write to a page that is watched costs 1.3
 * µs, and a huge page its unity: a region that is new, or in huge pages, is not watched until it
 * proves unchanged. */
static bool is_hot(const struct commit *c, const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        if (c->options->precopy != PRECOPY_OFF || by_pages(c->options))
                return false;
        return n->rest[u] > 0 || n->hot[u] >= (w->huge || n->fresh ? 1 : 2);
}

/* Units that are written in every epoch are not watched: they are called written, which saves the
 * program a fault per page. */
void rewatch_units(const struct commit *c, struct watch *w, uint64_t first, uint64_t count)
{
        for (uint64_t u = first; u < first + count;) {
                bool hot = is_hot(c, w, u);
                uint64_t end = u;
                while (end < first + count && is_hot(c, w, end) == hot)
                        end++;
                if (hot)
                        units_written(&w->span, u, end - u);
                if (!hot)
                        arm(c, w, u, end - u);
                u = end;
        }
}

/* A unit with few changes may be worth being watched page by page. If it was, and was written all
 * over with what it held before, it rests for a while, longer every time: each trial costs the
 * program a fault per page. */
void rewatch_consider(struct watch *w, uint64_t u, bool few_changes)
{
        struct unit_notes *n = unit_notes(w);
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

/* A region that is written all over in every epoch is dense; one that is no longer is scanned. */
void rewatch_adapt(struct commit *c)
{
        bool possible = c->options->policy != POLICY_SYNC && c->tracker->trap.uffd >= 0 &&
                        c->options->precopy == PRECOPY_OFF && !by_pages(c->options);
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct watch *w = c->part.list[i]->watch;
                struct unit_notes *n = unit_notes(w);
                uint64_t units = 0;
                uint64_t often = 0;
                for (uint64_t u = 0; u < w->span.units; u++) {
                        bool hot = n->hot[u] | n->rest[u];
                        units += hot;
                        often += hot && is_hot(c, w, u);
                }
                n->fresh = false;
                step_begin(c->steps);
                bool dense = w->ops == &tracker_scan && often * 4 >= w->span.units * 3;
                bool sparse = w->ops == &tracker_dense && units * 2 < w->span.units;
                bool changes = possible && !w->fixed && (dense || sparse);
                if (changes)
                        tracker_change(c->tracker, c->part.list[i],
                                       dense ? &tracker_dense : &tracker_scan);
                step_end(c->steps);
                if (changes)
                        log_emit(BELAY_LOG_DEBUG, "region '%s' is written %s",
                                 c->part.list[i]->desc.name, dense ? "all over" : "here and there");
        }
}
