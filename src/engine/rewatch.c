/* rewatch.c: which units are watched for the next epoch, and how.
 *
 * To watch a unit costs the program a fault for each page that it writes. So what is written in
 * every epoch is called written instead, and a region of which that is true nearly everywhere gets
 * a tracker that remembers nothing (tracker_dense). That is decided here, after a commit; upkeep.c
 * sees to regions that change in between. */
#include "engine/commit.h"

/* A dense phase of so many commits was worth a pass; else there is none in the next one before so
 * many commits for each turn. */
#define LASTING        32u
#define PAUSE_PER_TURN 4u
#define MOST_TURNS     8u

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

bool rewatch_knows_dense(const struct commit *c)
{
        return c->options->policy != POLICY_SYNC && c->tracker->trap.uffd >= 0 &&
               c->options->precopy == PRECOPY_OFF && !by_pages(c->options);
}

/* A dense phase that ended soon was not worth a pass over the memory, and the next one will not be:
 * it has to last longer before there is one. */
static void end_phase(struct density *d)
{
        d->turns = (uint8_t)(d->commits >= LASTING ? d->turns / 2
                                                   : min_u64(d->turns + 1u, MOST_TURNS));
        d->commits = d->passes = 0;
        d->collapse = false;
}

/* What the commit has shown: `was` and `is` dense. */
static void learn_density(struct region *r, bool fresh, bool was, bool is)
{
        struct watch *w = r->watch;
        struct density *d = &unit_notes(w)->density;
        if (was && d->early)
                d->doubts = is ? 0 : (uint8_t)min_u64(d->doubts + 1u, MOST_DOUBTS);
        if (d->calmed)
                d->hasty = is ? (uint8_t)min_u64(d->hasty + 1u, MOST_HASTE) : 0;
        if (d->calmed && !is)
                end_phase(d);
        d->early = d->calmed = d->lifting = false;
        /* What is new is taken for dense, which is no proof. */
        d->proven = is && (was || !fresh);
        /* Where content is not compared, nothing else would tell that it does not change any more. */
        if (was && !region_notes(r)->compared && d->same * 4 >= w->span.units * 3)
                diff_try(&region_notes(r)->choice);
        d->same = 0;
        if (is && !was)
                d->pause = d->turns * PAUSE_PER_TURN;
        if (is)
                d->commits = (uint8_t)min_u64(d->commits + 1u, 255);
        if (was && !is)
                end_phase(d);
}

/* A region that is written all over in every epoch is dense; one that is no longer is scanned. */
void rewatch_adapt(struct commit *c)
{
        bool possible = rewatch_knows_dense(c);
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
                bool fresh = n->fresh;
                n->fresh = false;
                step_begin(c->steps);
                bool was = w->ops == &tracker_dense;
                bool dense = w->ops == &tracker_scan && often * 4 >= w->span.units * 3;
                bool sparse = was && units * 2 < w->span.units;
                bool changes = possible && !w->fixed && (dense || sparse);
                if (changes)
                        tracker_change(c->tracker, c->part.list[i],
                                       dense ? &tracker_dense : &tracker_scan);
                if (w->span.units > 1) /* there may be very many others */
                        learn_density(c->part.list[i], fresh, was, w->ops == &tracker_dense);
                step_end(c->steps);
                if (changes)
                        log_emit(BELAY_LOG_DEBUG, "region '%s' is written %s",
                                 c->part.list[i]->desc.name, dense ? "all over" : "here and there");
        }
}
