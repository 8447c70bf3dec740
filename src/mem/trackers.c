/* trackers.c: the four ways to know what was written.
 *
 *   scan      the kernel remembers written pages (asynchronous write protection), PAGEMAP_SCAN
 * reads them; no fault costs more than 0.8 µs. For the time of a commit, mprotect traps writes to
 * units that are not captured yet. uffd      userfaultfd write protection, a fault is a SIGBUS in
 * the writing thread. mprotect  the same with mprotect and SIGSEGV. Works everywhere. hash nothing
 * is known and nothing can be trapped: all is copied at the freeze, the block hash finds the
 * changes. */
#include "mem/mem_int.h"
#include <errno.h>

static void *unit_pages(const struct watch *w, uint64_t first, uint64_t count, uint64_t *bytes)
{
        const struct span *s = &w->span;
        uintptr_t low = unit_begin(s, first);
        uintptr_t high = unit_begin(s, first + count - 1) + unit_length(s, first + count - 1);
        low = max_u64(low - low % PLAT_PAGE, s->low);
        high = min_u64(align_up(high, PLAT_PAGE), s->high);
        *bytes = high > low ? high - low : 0;
        return (void *)low;
}

/* ---- mprotect ----------------------------------------------------------------------------------
 */

static int mprotect_open(struct tracker *t)
{
        t->guard.uffd = -1;
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

static int collect_faults(struct tracker *t, struct watch *w)
{
        (void)t;
        for (uint64_t u = 0; u < w->span.units; u++)
                if (atomic_load(&w->span.written[u]))
                        w->dirty[u] = 1;
        return 0;
}

static int mprotect_protect(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uint64_t bytes;
        void *p = unit_pages(w, first, count, &bytes);
        (void)t;
        return bytes ? plat->mprotect(p, bytes, false) : 0;
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
        .arm = mprotect_protect,
};

/* ---- uffd --------------------------------------------------------------------------------------
 */

static int uffd_open(struct tracker *t)
{
        int rc = track_open(&t->kernel, false);
        t->guard.uffd = t->kernel.uffd;
        return rc;
}

static int kernel_add(struct tracker *t, struct watch *w)
{
        return track_add(&t->kernel, (void *)w->span.low, w->span.high - w->span.low);
}

static void kernel_remove(struct tracker *t, struct watch *w)
{
        (void)track_remove(&t->kernel, (void *)w->span.low, w->span.high - w->span.low);
}

static int uffd_protect(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uint64_t bytes;
        void *p = unit_pages(w, first, count, &bytes);
        return bytes ? track_protect(&t->kernel, p, bytes, true) : 0;
}

const struct tracker_ops tracker_uffd = {
        .size = sizeof(struct tracker_ops),
        .name = "uffd",
        .traps = true,
        .needs_faults = true,
        .open = uffd_open,
        .add = kernel_add,
        .remove = kernel_remove,
        .collect = collect_faults,
        .protect = uffd_protect,
        .arm = uffd_protect,
};

/* ---- scan --------------------------------------------------------------------------------------
 */

static int scan_open(struct tracker *t)
{
        t->guard.uffd = -1;
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

static void mark(struct watch *w, uint64_t from, uint64_t to)
{
        const struct span *s = &w->span;
        from = max_u64(from, s->start);
        to = min_u64(to, s->start + s->bytes);
        if (from >= to)
                return;
        uint64_t last = (to - 1 - s->start) / s->unit_bytes;
        for (uint64_t u = (from - s->start) / s->unit_bytes; u <= last; u++)
                w->dirty[u] = 1;
}

static int scan_collect(struct tracker *t, struct watch *w)
{
        const struct span *s = &w->span;
        uint64_t at = s->low;
        w->written_pages = 0;
        while (at < s->high) {
                int n = track_scan(&t->kernel, (void *)s->low, s->high - s->low, false, &at,
                                   t->ranges, SCAN_RANGES);
                if (n < 0)
                        return n;
                for (int i = 0; i < n; i++) {
                        mark(w, t->ranges[i].start, t->ranges[i].end);
                        w->written_pages += (t->ranges[i].end - t->ranges[i].start) / PLAT_PAGE;
                }
        }
        return collect_faults(t, w);
}

/* Pages at both ends may hold bytes of neighbours that are armed already and written since:
 * resetting them would lose that write, so the neighbour is called written. */
static int scan_arm(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        uint64_t bytes;
        void *p = unit_pages(w, first, count, &bytes);
        if (bytes == 0)
                return 0;
        if (first > 0 && unit_begin(&w->span, first) % PLAT_PAGE)
                atomic_store(&w->span.written[first - 1], 1);
        if (first + count < w->span.units && unit_begin(&w->span, first + count) % PLAT_PAGE)
                atomic_store(&w->span.written[first + count], 1);
        return track_reset(&t->kernel, p, bytes);
}

const struct tracker_ops tracker_scan = {
        .size = sizeof(struct tracker_ops),
        .name = "scan",
        .traps = true,
        .needs_faults = false,
        .open = scan_open,
        .add = kernel_add,
        .remove = scan_remove,
        .collect = scan_collect,
        .protect = mprotect_protect,
        .arm = scan_arm,
};

/* ---- hash --------------------------------------------------------------------------------------
 */

static void remove_nothing(struct tracker *t, struct watch *w)
{
        (void)t;
        (void)w;
}

static int collect_all(struct tracker *t, struct watch *w)
{
        (void)t;
        memset(w->dirty, 1, w->span.units);
        return 0;
}

static int cannot_protect(struct tracker *t, struct watch *w, uint64_t first, uint64_t count)
{
        (void)t;
        (void)w;
        (void)first;
        (void)count;
        return -EOPNOTSUPP;
}

const struct tracker_ops tracker_hash = {
        .size = sizeof(struct tracker_ops),
        .name = "hash",
        .traps = false,
        .needs_faults = false,
        .open = mprotect_open,
        .add = nothing_to_add,
        .remove = remove_nothing,
        .collect = collect_all,
        .protect = cannot_protect,
        .arm = arm_nothing,
};

/* ---- choice ------------------------------------------------------------------------------------
 */

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
                 uint64_t unit_bytes, struct budget *budget)
{
        static const struct tracker_ops *const all[] = {&tracker_scan, &tracker_uffd,
                                                        &tracker_mprotect, &tracker_hash};
        *t = (struct tracker){.budget = budget, .unit_bytes = unit_bytes, .kernel = {-1, -1}};
        t->guard.forks = atomic_load(&guard_forks);
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
        if (rc == 0 && t->ops->traps && !plat_before_libc)
                log_emit(BELAY_LOG_WARN,
                         "libbelay.so does not come before libc: system calls that write to "
                         "regions may fail with EFAULT");
        if (rc == 0 && t->ops->traps)
                rc = faults_ready();
        return rc ? err_set(rc, "no tracker works here: %s", code_text(rc)) : 0;
}
