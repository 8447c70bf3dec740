/* upkeep.c: between commits.
 *
 *   look      A region that is watched page by page costs its program a fault for the first write to
 *             each page, 1.3 µs: four times what the write costs if all are written. The kernel is
 *             asked about a few pages every few milliseconds. If too many of them were written, the
 *             watch is lifted in the middle of the epoch, and the region is dense.
 *             Whether a dense region is still written all over is not known before a commit has
 *             compared its content, and it is watched only from the commit after that. So late in
 *             the epoch a few words of it are compared with what the last commit captured. If they
 *             are the same, the next commit watches it already.
 *   collapse  A region that a commit found dense is put into huge pages, one after the other, with
 *             pauses: the kernel holds up every fault of the process meanwhile.
 *
 * Huge pages take no memory that the program did not have: only those are collapsed of which every
 * small page is there, belongs to this process alone (not to a child as well) and is written to. The
 * kernel itself refuses holes in memory that is registered with a userfaultfd, as dense regions are.
 *
 * Nobody waits for this but calls that need the regions, and those for one step: a huge page, or as
 * much memory to be lifted. No lock is held. */
#include "engine/upkeep.h"
#include <errno.h>

/* Less is not worth a look: its faults cost a few milliseconds. */
#define LEAST_LOOK_BYTES (UINT64_C(16) << 20)
/* … nor two huge pages, which is less than the freeze stages. */
#define LEAST_COLLAPSE_BYTES (UINT64_C(4) << 20)
/* A look costs 50 µs for each region. */
#define LOOK_NS     UINT64_C(4000000)
#define LOOKS       64u  /* in an epoch as long as the last one; later ones are farther apart */
#define LOOK_SHARE  100u /* … and this many times as long as a look takes                     */
#define PLACES      64u  /* of a region that a look is at …                                   */
#define PLACE_PAGES 16u  /* … of so many pages                                                */
/* Lifted at once: 0.3 ms. */
#define LIFT_BYTES (UINT64_C(16) << 20)
/* Between two huge pages, a part of what the last one took: most of that is not under the lock. */
#define PAUSE_PART    4u
#define MOST_FAILURES 4u /* of a pass, then it ends */
#define MOST_PAUSE    6u /* two to that many commits between two passes */

static bool must_stop(const struct upkeep *u)
{
        return atomic_load(u->stop);
}

/* ---- looking ---- */

static bool is_looked_at(const struct region *r)
{
        const struct watch *w = r->watch;
        return w && w->ops == &tracker_scan && !w->fixed && !unit_notes(w)->fresh &&
               w->span.high - w->span.low >= LEAST_LOOK_BYTES &&
               unit_notes(w)->density.doubts < MOST_DOUBTS;
}

/* Pages of a place that were written since they are watched; -1 if they are not. */
static int written_pages(struct upkeep *u, struct watch *w, uintptr_t low)
{
        uint64_t unit = (low - w->span.start) / w->span.unit_bytes;
        uint64_t pages = 0;
        if (atomic_load(&w->span.written[unit]))
                return -1;
        int n = w->ops->written(u->tracker, w, low, low + PLACE_PAGES * PLAT_PAGE);
        for (int i = 0; i < n; i++)
                pages += (u->tracker->ranges[i].end - u->tracker->ranges[i].start) / PLAT_PAGE;
        return n < 0 ? -1 : (int)pages;
}

/* Written pages for which it is not worth to watch the others. So many that they cannot be copied at
 * the freeze, or clearly more than a quarter, up to which their units would be (patch.c); but not
 * before what was spent on them shows that there will be more. */
static uint64_t too_many(const struct upkeep *u, const struct watch *w)
{
        uint64_t pages = (w->span.high - w->span.low) / PLAT_PAGE;
        uint64_t copied = u->options->copy_bytes / 4 * 3 / PLAT_PAGE;
        uint64_t least = min_u64(max_u64(pages / 16, copied), pages * 3 / 8);
        return min_u64(least << unit_notes(w)->density.doubts, pages);
}

/* By evenly spaced places, other ones each time. */
static bool is_written_all_over(struct upkeep *u, struct region *r)
{
        struct watch *w = r->watch;
        const struct span *s = &w->span;
        uint64_t step = (s->high - s->low) / PLAT_PAGE / PLACES;
        uint64_t shift = u->looks * UINT64_C(7) * PLACE_PAGES % (step - PLACE_PAGES + 1);
        uint64_t watched = 0;
        uint64_t written = 0;
        for (uint64_t i = 0; i < PLACES; i++) {
                int pages = written_pages(u, w, s->low + (i * step + shift) * PLAT_PAGE);
                watched += pages >= 0;
                written += pages > 0 ? (uint64_t)pages : 0;
        }
        watched *= PLACE_PAGES;
        /* What is not compared will be stored in full, and nothing would find out that it was
         * called dense in error. */
        if (!region_notes(r)->compared)
                return written * 4 >= watched * 3 &&
                       watched * 4 >= UINT64_C(3) * PLACES * PLACE_PAGES;
        return watched * 4 >= PLACES * PLACE_PAGES &&
               written * step * PLACES >= watched * too_many(u, w);
}

/* In pieces, which the kernel does beside other faults; the change of trackers alone keeps them
 * waiting, and finds nothing left to do then. Who needs the regions meanwhile gets them: the next
 * look goes on. */
static void lift(struct upkeep *u, struct region *r)
{
        struct watch *w = r->watch;
        uint64_t piece = max_u64(LIFT_BYTES / w->span.unit_bytes, 1);
        int rc = 0;
        unit_notes(w)->density.lifting = true;
        for (uint64_t first = 0; rc == 0 && first < w->span.units; first += piece) {
                if (must_stop(u))
                        return;
                rc = tracker_unarm(u->tracker, w, first, min_u64(piece, w->span.units - first));
        }
        unit_notes(w)->density.lifting = false;
        if (rc)
                return;
        tracker_change(u->tracker, r, &tracker_dense);
        unit_notes(w)->density.early = w->ops == &tracker_dense;
        log_emit(BELAY_LOG_DEBUG, "region '%s' is being written all over", r->desc.name);
}

/* The time between commits is half over, as far as the last one tells. */
static bool is_late(const struct upkeep *u)
{
        return plat->now_ns() - u->begun_ns >= u->idle_ns / 2;
}

static bool may_be_calm(const struct region *r)
{
        const struct watch *w = r->watch;
        return w && w->ops == &tracker_dense && w->span.high - w->span.low >= LEAST_LOOK_BYTES &&
               !unit_notes(w)->density.busy && unit_notes(w)->density.proven &&
               !unit_notes(w)->density.collapse && /* one thing at a time */
               unit_notes(w)->density.hasty < MOST_HASTE;
}

/* Nothing is watched yet: if it is written all over after all, that costs no fault. */
static void look_for_calm(struct upkeep *u, struct region *r)
{
        struct watch *w = r->watch;
        struct density *d = &unit_notes(w)->density;
        uint64_t places = min_u64(w->span.units, PLACES);
        uint64_t same = 0;
        for (uint64_t i = 0; i < places; i++)
                same += unseen_same(w, (i * w->span.units + u->looks % w->span.units) / places %
                                               w->span.units);
        d->busy = same * 2 < places;
        if (same * 8 < places * 7)
                return;
        tracker_change(u->tracker, r, &tracker_scan);
        d->calmed = true;
        d->collapse = false;
        diff_try(&region_notes(r)->choice);
        log_emit(BELAY_LOG_DEBUG, "region '%s' is hardly written any more", r->desc.name);
}

static void look_around(struct upkeep *u)
{
        uint64_t start = plat->now_ns();
        bool again = false;
        uint32_t i = 0;
        u->looks++;
        for (; i < u->regions->count && !must_stop(u); i++) {
                struct region *r = u->regions->list[i];
                bool calm = may_be_calm(r);
                if (!calm && !is_looked_at(r))
                        continue;
                again = true;
                if (calm && is_late(u))
                        look_for_calm(u, r);
                else if (!calm &&
                         (unit_notes(r->watch)->density.lifting || is_written_all_over(u, r)))
                        lift(u, r);
        }
        u->looking = again || i < u->regions->count; /* or some that it did not come to */
        uint64_t now = plat->now_ns();
        uint64_t apart = max_u64(u->idle_ns, now - u->begun_ns) / LOOKS;
        u->look_ns = now + max_u64(max_u64(apart, LOOK_NS), LOOK_SHARE * (now - start));
}

/* ---- huge pages ---- */

static bool is_mostly_huge(const struct upkeep *u, const struct watch *w)
{
        uintptr_t low = align_up(w->span.low, PLAT_HUGE_PAGE);
        uint64_t pages = (w->span.high - low) / PLAT_HUGE_PAGE;
        uint64_t places = min_u64(pages, PLACES);
        uint64_t huge = 0;
        for (uint64_t i = 0; i < places; i++)
                huge += track_is_huge(&u->tracker->kernel,
                                      low + i * pages / places * PLAT_HUGE_PAGE);
        return huge * 8 >= places * 7;
}

/* A pass over the region, unless one was made in vain not long ago: what is split in every commit,
 * or shared with a child, is not collapsed again and again. */
static void begin_pass(struct upkeep *u, struct watch *w)
{
        struct density *d = &unit_notes(w)->density;
        if (!d->proven || d->refused || d->collapse ||
            w->span.high < align_up(w->span.low, PLAT_HUGE_PAGE) + LEAST_COLLAPSE_BYTES)
                return;
        if (d->pause > 0) {
                d->pause--;
                return;
        }
        if (is_mostly_huge(u, w))
                return;
        d->pause = (uint8_t)(1u << d->passes);
        d->passes = (uint8_t)min_u64(d->passes + 1u, MOST_PAUSE);
        d->collapse = true;
        d->failures = 0;
        d->collapse_at = align_up(w->span.low, PLAT_HUGE_PAGE);
}

/* The next huge page of the pass that is worth it; false at its end. */
static bool next_huge_page(struct upkeep *u, struct watch *w, uintptr_t *page)
{
        struct density *d = &unit_notes(w)->density;
        while (d->collapse_at + PLAT_HUGE_PAGE <= w->span.high && !must_stop(u)) {
                *page = d->collapse_at;
                if (!track_is_huge(&u->tracker->kernel, *page) &&
                    track_is_full(&u->tracker->kernel, *page))
                        return true;
                d->collapse_at += PLAT_HUGE_PAGE;
        }
        return false;
}

/* A page that somebody else is just using, or that has changed, is left; where there is no memory,
 * the pass ends. The kernel refuses the first ones where it does not collapse at all: memory for
 * which the program does not want it, or an old kernel. */
static void collapse_one(struct upkeep *u, struct watch *w)
{
        struct density *d = &unit_notes(w)->density;
        uintptr_t page;
        if (!next_huge_page(u, w, &page)) {
                d->collapse = must_stop(u);
                return;
        }
        int rc = plat->madvise_collapse((void *)page, PLAT_HUGE_PAGE);
        d->collapse_at = page + PLAT_HUGE_PAGE;
        if (rc == 0) {
                d->collapsed = true;
                return;
        }
        d->failures++;
        d->refused = rc == -EINVAL && !d->collapsed && d->failures >= MOST_FAILURES;
        if (rc == -ENOMEM || d->failures >= MOST_FAILURES)
                d->collapse = false;
}

static bool is_collapsed(const struct region *r)
{
        return r->watch && r->watch->ops == &tracker_dense &&
               unit_notes(r->watch)->density.collapse;
}

static void collapse_next(struct upkeep *u)
{
        uint64_t start = plat->now_ns();
        uint32_t tried = 0;
        /* The next version needs the space before it needs huge pages, and the program a core. */
        if (pool_is_warming(u->pool)) {
                u->collapse_ns = start + LOOK_NS;
                return;
        }
        while (tried < u->regions->count) {
                if (u->position >= u->regions->count)
                        u->position = 0;
                if (is_collapsed(u->regions->list[u->position]))
                        break;
                u->position++;
                tried++;
        }
        u->collapsing = tried < u->regions->count;
        if (u->collapsing)
                collapse_one(u, u->regions->list[u->position]->watch);
        uint64_t now = plat->now_ns();
        u->collapse_ns = now + (now - start) / PAUSE_PART;
}

/* ---- when ---- */

uint64_t upkeep_due_ns(const struct upkeep *u)
{
        uint64_t due = NEVER_DUE;
        if (must_stop(u))
                return NEVER_DUE;
        if (u->looking)
                due = u->look_ns;
        if (u->collapsing)
                due = min_u64(due, u->collapse_ns);
        return due;
}

void upkeep_step(struct upkeep *u)
{
        uint64_t now = plat->now_ns();
        if (u->looking && u->look_ns <= now)
                look_around(u);
        if (u->collapsing && u->collapse_ns <= now && !must_stop(u))
                collapse_next(u);
}

void upkeep_consider(struct upkeep *u, struct commit *c)
{
        if (!rewatch_knows_dense(c))
                return;
        u->idle_ns = c->frozen_ns > u->begun_ns ? c->frozen_ns - u->begun_ns : 0;
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct region *r = c->part.list[i];
                if (r->desc.bytes < LEAST_COLLAPSE_BYTES)
                        continue;
                step_begin(c->steps);
                unit_notes(r->watch)->density.busy = false;
                u->looking = u->looking || is_looked_at(r) || may_be_calm(r);
                if (c->options->huge_pages && r->watch->ops == &tracker_dense)
                        begin_pass(u, r->watch);
                u->collapsing = u->collapsing || is_collapsed(r);
                step_end(c->steps);
        }
}

void upkeep_begin_interval(struct upkeep *u)
{
        uint64_t now = plat->now_ns();
        u->begun_ns = now;
        u->look_ns = now + LOOK_NS;
        u->collapse_ns = now;
}
