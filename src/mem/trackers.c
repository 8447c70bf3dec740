/* trackers.c: the four ways to know what was written.
 *
 *   scan      The kernel remembers written pages (asynchronous write protection), PAGEMAP_SCAN
 *             reads them; no fault costs more than 0.8 µs. For the time of a commit, mprotect
 *             traps writes to units that are not captured yet.
 *   uffd      userfaultfd write protection: a fault is a SIGBUS in the writing thread.
 *   mprotect  The same with mprotect and SIGSEGV. Works everywhere.
 *   hash      Nothing is known and nothing can be trapped: all is copied at the freeze, and the
 *             block hash finds the changes.
 *
 * dense is what scan turns to for a region that is written all over in every epoch: nothing needs
 * to be remembered then, and the kernel's faults, 1.3 µs a page, are spared. It traps as uffd does,
 * which several threads can do at once (mprotect has one lock for all), and only during a commit. */
#include "mem/mem_int.h"
#include <errno.h>

void units_pages(const struct watch *w, uint64_t first, uint64_t count, uintptr_t *low,
                 uintptr_t *high)
{
        const struct span *s = &w->span;
        *low = unit_begin(s, first);
        *high = unit_begin(s, first + count - 1) + unit_length(s, first + count - 1);
        *low = max_u64(*low - *low % PLAT_PAGE, s->low);
        *high = max_u64(min_u64(align_up(*high, PLAT_PAGE), s->high), *low);
}

/* Where faults are how writes are noticed. */
static int arm_by_protecting(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uintptr_t low;
        uintptr_t high;
        units_pages(w, first, count, &low, &high);
        return low < high ? w->ops->protect(t, low, high) : 0;
}

/* ---- mprotect ---- */

static int mprotect_open(struct tracker *t)
{
        (void)t;
        return 0;
}

static int nothing_to_add(struct tracker *t, struct watch *w)
{
        (void)t;
        (void)w;
        return 0;
}

static void make_writable(struct tracker *t, struct watch *w)
{
        (void)t;
        (void)plat->mprotect((void *)w->span.low, w->span.high - w->span.low, true);
}

static int collect_faults(struct tracker *t, const struct stretch *s, uint32_t parts)
{
        (void)t;
        (void)parts;
        for (uint32_t i = 0; i < s->count; i++) {
                struct watch *w = s->list[i];
                for (uint64_t u = 0; u < w->span.units; u++)
                        if (atomic_load(&w->span.written[u]))
                                w->dirty[u] = 1;
        }
        return 0;
}

static int mprotect_protect(struct tracker *t, uintptr_t low, uintptr_t high)
{
        (void)t;
        return plat->mprotect((void *)low, high - low, false);
}

static int arm_nothing(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        (void)t;
        (void)w;
        (void)first;
        (void)count;
        return 0;
}

const struct tracker_ops tracker_mprotect = {
        .size = sizeof(struct tracker_ops),
        .name = "mprotect",
        .traps = true,
        .needs_faults = true,
        .open = mprotect_open,
        .add = nothing_to_add,
        .remove = make_writable,
        .collect = collect_faults,
        .protect = mprotect_protect,
        .arm = arm_by_protecting,
};

/* ---- uffd ---- */

static int uffd_open(struct tracker *t)
{
        return track_open(&t->kernel, false);
}

/* The pages that the region has bytes in are [first_page, page_behind). */
static uintptr_t first_page(const struct span *s)
{
        return s->start - s->start % PLAT_PAGE;
}

static uintptr_t page_behind(const struct span *s)
{
        return align_up(s->start + s->bytes, PLAT_PAGE);
}

bool watches_adjoin(const struct watch *a, const struct watch *b)
{
        return a->ops == b->ops && a->joined && b->joined &&
               first_page(&b->span) <= page_behind(&a->span);
}

/* With the pages at its edges, which are never protected: so that the mappings of regions that share
 * a page stay one. Another tracker may have that page. */
static int add_pages(const struct plat_track *k, struct watch *w)
{
        const struct span *s = &w->span;
        uintptr_t low = first_page(s);
        w->joined = track_add(k, (void *)low, page_behind(s) - low) == 0;
        return w->joined ? 0 : track_add(k, (void *)s->low, s->high - s->low);
}

static void remove_pages(const struct plat_track *k, struct watch *w)
{
        const struct span *s = &w->span;
        uintptr_t low = first_page(s);
        uintptr_t high = page_behind(s);
        w->joined = false;
        if (track_remove(k, (void *)low, high - low) == 0)
                return;
        (void)track_remove(k, (void *)s->low, s->high - s->low);
        if (low < s->low)
                (void)track_remove(k, (void *)low, s->low - low);
        if (high > s->high)
                (void)track_remove(k, (void *)s->high, high - s->high);
}

static int kernel_add(struct tracker *t, struct watch *w)
{
        return add_pages(&t->kernel, w);
}

static void kernel_remove(struct tracker *t, struct watch *w)
{
        remove_pages(&t->kernel, w);
}

static int uffd_protect(struct tracker *t, uintptr_t low, uintptr_t high)
{
        return track_protect(&t->kernel, (void *)low, high - low, true);
}

static int uffd_add(struct tracker *t, struct watch *w)
{
        int rc = kernel_add(t, w);
        if (rc == 0)
                atomic_store(&w->span.uffd, t->kernel.uffd);
        return rc;
}

const struct tracker_ops tracker_uffd = {
        .size = sizeof(struct tracker_ops),
        .name = "uffd",
        .traps = true,
        .needs_faults = true,
        .shares = true,
        .open = uffd_open,
        .add = uffd_add,
        .remove = kernel_remove,
        .collect = collect_faults,
        .protect = uffd_protect,
        .arm = arm_by_protecting,
};

/* ---- scan ---- */

static int scan_open(struct tracker *t)
{
        t->ranges = budget_alloc(t->budget, SCAN_RANGES * sizeof(*t->ranges), "the page scanner");
        if (!t->ranges)
                return -ENOMEM;
        return track_open(&t->kernel, true);
}

static void scan_remove(struct tracker *t, struct watch *w)
{
        make_writable(t, w);
        kernel_remove(t, w);
}

/* A page that lies in two units counts in both. */
static void mark(struct watch *w, uint64_t from, uint64_t to)
{
        const struct span *s = &w->span;
        from = max_u64(from, s->low);
        to = min_u64(to, s->high);
        if (from >= to)
                return;
        uint64_t low = max_u64(from, s->start);
        uint64_t high = min_u64(to, s->start + s->bytes);
        uint64_t last = (high - 1 - s->start) / s->unit_bytes;
        for (uint64_t u = (low - s->start) / s->unit_bytes; u <= last; u++) {
                uint64_t begin = max_u64(unit_begin(s, u), from);
                uint64_t end = min_u64(unit_begin(s, u) + unit_length(s, u), to);
                w->pages[u] += (uint32_t)div_up(end - begin / PLAT_PAGE * PLAT_PAGE, PLAT_PAGE);
                w->dirty[u] = 1;
        }
}

/* The kernel takes 0.3 to 0.6 ms per GiB. Each part has a share of the ranges. */
static int scan_part(struct tracker *t, const struct stretch *s, uint32_t part, uint32_t parts)
{
        struct scan_part *p = &t->parts[part];
        uintptr_t low = s->list[0]->span.low;
        uint64_t pages = (s->list[s->count - 1]->span.high - low) / PLAT_PAGE;
        uint32_t room = SCAN_RANGES / parts;
        p->ranges = t->ranges + part * room;
        p->room = room;
        p->at = low + pages * part / parts * PLAT_PAGE;
        p->end = low + pages * (part + 1) / parts * PLAT_PAGE;
        p->count = 0;
        if (p->at < p->end)
                p->count = track_scan(&t->kernel, (void *)p->at, p->end - p->at, false, &p->at,
                                      p->ranges, room);
        return p->count < 0 ? p->count : 0;
}

/* `first`: the watches before it end before the range. */
static void mark_range(const struct stretch *s, uint32_t *first, const struct plat_range *range)
{
        while (*first < s->count && s->list[*first]->span.high <= range->start)
                ++*first;
        for (uint32_t i = *first; i < s->count && s->list[i]->span.low < range->end; i++)
                mark(s->list[i], range->start, range->end);
}

/* One part after the other, since a unit may lie in two. What did not fit is scanned here. */
static int scan_collect(struct tracker *t, const struct stretch *s, uint32_t parts)
{
        uint32_t first = 0;
        for (uint32_t i = 0; i < s->count; i++)
                memset(s->list[i]->pages, 0, s->list[i]->span.units * sizeof(*s->list[i]->pages));
        for (struct scan_part *p = t->parts; p < t->parts + parts; p++) {
                for (;;) {
                        for (int i = 0; i < p->count; i++)
                                mark_range(s, &first, &p->ranges[i]);
                        if (p->at >= p->end)
                                break;
                        p->count = track_scan(&t->kernel, (void *)p->at, p->end - p->at, false,
                                              &p->at, p->ranges, p->room);
                        if (p->count < 0)
                                return p->count;
                }
        }
        return collect_faults(t, s, parts);
}

static int scan_take(struct tracker *t, uintptr_t low, uintptr_t high, uint64_t *at)
{
        *at = max_u64(*at, low);
        if (*at >= high)
                return 0;
        return track_scan(&t->kernel, (void *)low, high - low, true, at, t->ranges, SCAN_RANGES);
}

static int scan_written(struct tracker *t, struct watch *w, uint64_t low, uint64_t high)
{
        uint64_t at = max_u64(low - low % PLAT_PAGE, w->span.low);
        uint64_t end = min_u64(align_up(high, PLAT_PAGE), w->span.high);
        if (at >= end)
                return 0;
        return track_scan(&t->kernel, (void *)at, end - at, false, &at, t->ranges, SCAN_RANGES);
}

/* A page that holds bytes of a unit that is being armed, and of `other`. Once both are captured the
 * page may be open and written: then its mark stays, and it counts as written in both. */
static int arm_shared(struct tracker *t, struct watch *w, uint64_t page, uint64_t other)
{
        struct plat_range range;
        uint64_t at = page;
        uint32_t kind = atomic_load(&w->span.state[other]) & UNIT_KIND;
        if (kind != UNIT_PENDING && kind != UNIT_BUSY)
                return 0;
        int n = track_scan(&t->kernel, (void *)page, PLAT_PAGE, true, &at, &range, 1);
        return n < 0 ? n : 0;
}

static int scan_arm(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uintptr_t low;
        uintptr_t high;
        int rc = 0;
        units_pages(w, first, count, &low, &high);
        if (low < high && first > 0 && unit_begin(&w->span, first) % PLAT_PAGE) {
                rc = arm_shared(t, w, low, first - 1);
                low += PLAT_PAGE;
        }
        if (rc == 0 && low < high && first + count < w->span.units &&
            unit_begin(&w->span, first + count) % PLAT_PAGE) {
                high -= PLAT_PAGE;
                rc = arm_shared(t, w, high, first + count);
        }
        return rc || low >= high ? rc : track_reset(&t->kernel, (void *)low, high - low);
}

int tracker_unarm(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uintptr_t low;
        uintptr_t high;
        units_pages(w, first, count, &low, &high);
        units_written(&w->span, first, count);
        return low < high ? track_protect(&t->kernel, (void *)low, high - low, false) : 0;
}

const struct tracker_ops tracker_scan = {
        .size = sizeof(struct tracker_ops),
        .name = "scan",
        .traps = true,
        .scans = true,
        .needs_faults = false,
        .open = scan_open,
        .add = kernel_add,
        .remove = scan_remove,
        .scan = scan_part,
        .collect = scan_collect,
        .take = scan_take,
        .written = scan_written,
        .protect = mprotect_protect,
        .arm = scan_arm,
};

/* ---- dense ---- */

static int dense_add(struct tracker *t, struct watch *w)
{
        int rc = add_pages(&t->trap, w);
        if (rc == 0)
                atomic_store(&w->span.uffd, t->trap.uffd);
        return rc;
}

static void dense_remove(struct tracker *t, struct watch *w)
{
        remove_pages(&t->trap, w);
        atomic_store(&w->span.uffd, -1);
}

static int collect_all(struct tracker *t, const struct stretch *s, uint32_t parts)
{
        (void)t;
        (void)parts;
        for (uint32_t i = 0; i < s->count; i++)
                memset(s->list[i]->dirty, 1, s->list[i]->span.units);
        return 0;
}

static int dense_protect(struct tracker *t, uintptr_t low, uintptr_t high)
{
        return track_protect(&t->trap, (void *)low, high - low, true);
}

const struct tracker_ops tracker_dense = {
        .size = sizeof(struct tracker_ops),
        .name = "dense",
        .traps = true,
        .needs_faults = false,
        .shares = true,
        .open = mprotect_open,
        .add = dense_add,
        .remove = dense_remove,
        .collect = collect_all,
        .protect = dense_protect,
        .arm = arm_nothing,
};

/* ---- hash ---- */

static void remove_nothing(struct tracker *t, struct watch *w)
{
        (void)t;
        (void)w;
}

static int cannot_protect(struct tracker *t, uintptr_t low, uintptr_t high)
{
        (void)t;
        (void)low;
        (void)high;
        return -EOPNOTSUPP;
}

const struct tracker_ops tracker_hash = {
        .size = sizeof(struct tracker_ops),
        .name = "hash",
        .traps = false,
        .scans = true,
        .needs_faults = false,
        .open = mprotect_open,
        .add = nothing_to_add,
        .remove = remove_nothing,
        .collect = collect_all,
        .protect = cannot_protect,
        .arm = arm_nothing,
};

/* ---- gone ---- */

static int cannot_collect(struct tracker *t, const struct stretch *s, uint32_t parts)
{
        (void)t;
        (void)parts;
        (void)s;
        return -ENXIO;
}

/* Of memory that is the program's again while a commit still has the region. */
const struct tracker_ops tracker_gone = {
        .size = sizeof(struct tracker_ops),
        .name = "gone",
        .traps = false,
        .scans = false,
        .needs_faults = false,
        .open = mprotect_open,
        .add = nothing_to_add,
        .remove = remove_nothing,
        .collect = cannot_collect,
        .protect = cannot_protect,
        .arm = arm_nothing,
};

/* ---- choice ---- */

static bool works(const struct tracker_ops *ops, const struct probe probes[PROBE_COUNT])
{
        if (ops == &tracker_scan)
                return probe_has(probes, PROBE_UFFD_WP_ASYNC) &&
                       probe_has(probes, PROBE_PAGEMAP_SCAN);
        return ops != &tracker_uffd || probe_has(probes, PROBE_UFFD_SIGBUS);
}

/* A write fault in a thread that blocks its signal would end the process, so nothing may be trapped
 * then. Threads that are started later are out of sight; where the library stands before libc they
 * cannot block the two. */
static int avoid_faults(uint64_t *wanted)
{
        static const char why[] = "of the program's threads block SIGSEGV or SIGBUS: a write to "
                                  "protected memory would end the process";
        int deaf = *wanted == TRACKER_HASH ? 0 : plat->deaf_threads();
        if (deaf <= 0)
                return 0;
        if (*wanted != TRACKER_AUTO)
                return err_set(-EOPNOTSUPP, "option tracker: %d %s", deaf, why);
        log_emit(BELAY_LOG_WARN, "%d %s; regions are copied whole at every checkpoint", deaf, why);
        *wanted = TRACKER_HASH;
        return 0;
}

int tracker_open(struct tracker *t, uint64_t wanted, const struct probe probes[PROBE_COUNT],
                 uint64_t unit_bytes, struct notes_room room, struct budget *budget)
{
        static const struct tracker_ops *const all[] = {&tracker_scan, &tracker_uffd,
                                                        &tracker_mprotect, &tracker_hash};
        *t = (struct tracker){.budget = budget,
                              .unit_bytes = unit_bytes,
                              .room = room,
                              .kernel = {-1, -1},
                              .trap = {-1, -1}};
        watches_init(t);
        t->guard.family = family_ready();
        int rc = avoid_faults(&wanted);
        if (rc)
                return rc;
        rc = -EOPNOTSUPP;
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                if (wanted != TRACKER_AUTO && wanted != TRACKER_SCAN + i)
                        continue;
                rc = works(all[i], probes) ? all[i]->open(t) : -EOPNOTSUPP;
                if (rc == 0) {
                        t->ops = all[i];
                        break;
                }
                track_close(&t->kernel);
                budget_free(budget, t->ranges);
                t->ranges = NULL;
                if (wanted == TRACKER_AUTO)
                        log_emit(BELAY_LOG_INFO, "tracker %s is not available here: %s",
                                 all[i]->name, code_text(rc));
                else
                        return err_set(rc, "option tracker is %s, and that does not work here: %s",
                                       all[i]->name, code_text(rc));
        }
        /* Without it there are no dense regions. */
        if (rc == 0 && t->ops == &tracker_scan && works(&tracker_uffd, probes))
                (void)track_open(&t->trap, false);
        if (rc == 0 && t->ops->traps && !plat_before_libc)
                log_emit(BELAY_LOG_WARN,
                         "libbelay.so does not come before libc: system calls that write to "
                         "regions may fail with EFAULT");
        if (rc == 0 && t->ops->traps)
                rc = faults_ready();
        return rc ? err_set(rc, "no tracker works here: %s", code_text(rc)) : 0;
}

void tracker_close(struct tracker *t)
{
        copies_free(t);
        track_close(&t->kernel);
        track_close(&t->trap);
        shelf_close(&t->small_watches);
        edges_close(t);
        budget_free(t->budget, t->ranges);
}
