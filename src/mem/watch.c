/* watch.c: how regions are watched: each has a span of units, and a tracker that works there. */
#include "mem/mem_int.h"
#include <errno.h>

/* A watch with all its arrays, and the room for notes, in one piece: there may be very many small
 * ones.
 *
 *     struct watch │ notes, their arrays │ when_ns │ state │ pages │ access │ written │ dirty
 *                                        ◄──────────── UNIT_BYTES for each unit ────────────► */
#define UNIT_BYTES (8u + 4u + 4u + 1u + 1u + 1u)
/* Smaller regions are protected by one thread. */
#define DENSE_BYTES (UINT64_C(64) << 20)

static uint64_t arrays_at(const struct tracker *t, uint64_t units)
{
        return align_up(sizeof(struct watch) + t->room.bytes + units * t->room.unit_bytes, 8);
}

static uint64_t watch_bytes(const struct tracker *t, uint64_t units)
{
        return arrays_at(t, units) + units * UNIT_BYTES;
}

static struct watch *watch_new(struct tracker *t, const struct span *span)
{
        uint64_t n = max_u64(span->units, 1);
        struct watch *w = n == 1 ? shelf_take(&t->small_watches, "the unit table")
                                 : budget_alloc(t->budget, watch_bytes(t, n), "the unit table");
        if (!w)
                return NULL;
        uint8_t *p = (uint8_t *)w + arrays_at(t, n);
        w->span = *span;
        w->span.when_ns = (void *)p;
        w->span.state = (void *)(p + n * 8);
        w->pages = (void *)(p + n * 12);
        w->span.access = (void *)(p + n * 16);
        w->span.written = (void *)(p + n * 17);
        w->dirty = p + n * 18;
        memset(w->dirty, 1, n);
        return w;
}

/* What the C library keeps before memory that malloc got from the kernel, for it alone: the distance
 * to the beginning of the mapping, and its size with a mark in it. */
struct malloc_header {
        uint64_t before, size;
};
#define MALLOC_FLAGS   7u
#define MALLOC_MMAPPED 2u

/* Nothing but the array lies in its last page: malloc has mapped the pages for it. Where the array
 * is not from malloc, or malloc is another, there is something else before it. */
__attribute__((no_sanitize("address", "thread"))) static bool has_last_page(const struct region *r)
{
        uintptr_t start = (uintptr_t)r->ptr;
        const struct malloc_header *h = (const void *)(start - sizeof(*h));
        uintptr_t page = start - start % PLAT_PAGE;
        if (start % sizeof(*h) || start - page < sizeof(*h))
                return false;
        return (h->size & MALLOC_FLAGS) == MALLOC_MMAPPED &&
               start - sizeof(*h) - h->before == page &&
               start - sizeof(*h) + (h->size & ~(uint64_t)MALLOC_FLAGS) ==
                       align_up(start + r->desc.bytes, PLAT_PAGE);
}

static void place_span(struct tracker *t, const struct region *r, struct span *s)
{
        uintptr_t start = (uintptr_t)r->ptr;
        uintptr_t end = start + r->desc.bytes;
        s->guard = &t->guard;
        atomic_store(&s->uffd, -1);
        s->start = start;
        s->bytes = r->desc.bytes;
        s->unit_bytes = max_u64(t->unit_bytes, r->desc.block_bytes);
        s->units = div_up(s->bytes, s->unit_bytes);
        s->low = align_up(start, PLAT_PAGE);
        /* Behind memory that we or malloc mapped there is nothing else in its last page. */
        bool alone = r->owned || has_last_page(r);
        s->high = alone ? align_up(end, PLAT_PAGE) : end - end % PLAT_PAGE;
        if (s->high < s->low)
                s->high = s->low;
        atomic_store(&s->below, s->low);
}

/* A region the tracker cannot watch is still right: all of it counts as changed and is copied at
 * the freeze. */
static void weaken(struct watch *w, const struct region *r, int rc)
{
        w->ops = &tracker_hash;
        log_emit(BELAY_LOG_WARN,
                 "region '%s' cannot be tracked (%s): it is copied whole at every checkpoint",
                 r->desc.name, code_text(rc));
}

/* Up to this much in whole pages is cheaper to copy than to protect. */
#define SMALL_BYTES (UINT64_C(16) << 10)

/* Every kind of memory can be trapped with mprotect, also where a userfaultfd cannot watch it. */
static int add_or_trap(struct tracker *t, struct watch *w, const struct region *r)
{
        int rc = w->ops->add(t, w);
        if (rc == 0)
                return 0;
        log_emit(BELAY_LOG_INFO, "region '%s' has tracker mprotect, %s does not work there: %s",
                 r->desc.name, w->ops->name, code_text(rc));
        w->ops = &tracker_mprotect;
        w->span.always = true;
        return w->ops->add(t, w);
}

/* Its first version has all of it. Two threads protect a dense region, and mprotect takes twice as
 * long: the first freeze would be slower than later ones. */
static bool begins_dense(struct tracker *t, struct watch *w)
{
        if (!t->dense_first || w->ops != &tracker_scan || t->trap.uffd < 0 ||
            w->span.high - w->span.low < DENSE_BYTES)
                return false;
        if (tracker_dense.add(t, w) == 0)
                return true;
        tracker_dense.remove(t, w); /* what was registered before it failed */
        return false;
}

int tracker_watch(struct tracker *t, struct region *r)
{
        struct span span = {.part = NO_PART};
        place_span(t, r, &span);
        struct watch *w = watch_new(t, &span);
        if (!w)
                return -ENOMEM;
        /* A fault for all of a chunk costs less than the kernel's for each of its pages. */
        w->ops = r->chunk && t->ops == &tracker_scan ? &tracker_mprotect : t->ops;
        w->span.always = w->ops->needs_faults;
        w->span.whole = r->chunk;
        /* The flusher takes watches away, too, but never the only one that counts here. */
        if (atomic_fetch_add(&t->watches, 1) == 0)
                t->largest_unit = 0;
        r->watch = w;
        uint64_t least = t->small ? PLAT_PAGE : SMALL_BYTES;
        if (r->untracked || w->span.high - w->span.low < least || !t->ops->traps) {
                w->ops = &tracker_hash;
                return 0;
        }
        int rc = edges_make_room(t, w);
        if (rc == 0)
                rc = spans_add(&w->span);
        if (rc == 0 && begins_dense(t, w))
                w->ops = &tracker_dense;
        else if (rc == 0)
                rc = add_or_trap(t, w, r);
        if (rc)
                weaken(w, r, rc);
        else
                t->largest_unit = max_u64(t->largest_unit, w->span.unit_bytes);
        return 0;
}

#define PROBED 16u

void tracker_find_huge(struct tracker *t, struct watch *w)
{
        uint64_t bytes = w->span.high - w->span.low;
        uint32_t huge = 0;
        for (uint32_t i = 0; bytes >= PLAT_HUGE_PAGE && i < PROBED; i++)
                huge += track_is_huge(&t->kernel, w->span.low + i * (bytes / PROBED));
        w->huge = huge > PROBED / 2;
}

static void take_off(struct watch *w)
{
        spans_remove(&w->span);
        spans_await_none(&w->span.inside);
}

/* A fault that is on its way finds another trap than the one it came from, and is repeated. The
 * kernel registers memory with one userfaultfd at a time, so the old way has to end first. */
void tracker_change(struct tracker *t, struct region *r, const struct tracker_ops *ops)
{
        struct watch *w = r->watch;
        units_written(&w->span, 0, w->span.units);
        /* Before and after: a fault on its way in between is repeated. */
        atomic_fetch_add(&span_changes, 1);
        w->ops->remove(t, w);
        atomic_fetch_add(&span_changes, 1);
        int rc = ops->add(t, w);
        if (rc == 0) {
                w->ops = ops;
                return;
        }
        /* A trap by userfaultfd works in anonymous memory and on tmpfs only; lazily restored
         * regions show files of any file system. */
        ops->remove(t, w); /* what was registered before it failed */
        w->fixed = true;
        log_emit(BELAY_LOG_DEBUG, "region '%s' stays with tracker %s, %s does not work there: %s",
                 r->desc.name, w->ops->name, ops->name, code_text(rc));
        rc = w->ops->add(t, w);
        if (rc) {
                take_off(w);
                weaken(w, r, rc);
        }
}

/* The pages are open before the span is gone, and the span before the kernel forgets the memory: a
 * fault that is on its way finds the one or the other, and is repeated. */
void tracker_leave(struct tracker *t, struct watch *w, const struct tracker_ops *ops)
{
        if (ops == &tracker_hash || ops == &tracker_gone)
                return;
        span_open(&w->span);
        atomic_store(&w->span.stuck, false);
        take_off(w);
        ops->remove(t, w);
}

void tracker_unwatch(struct tracker *t, struct region *r)
{
        struct watch *w = r->watch;
        if (!w)
                return;
        tracker_leave(t, w, w->ops);
        atomic_fetch_sub(&t->watches, 1);
        edges_give_back(t, w);
        if (w->span.units <= 1)
                shelf_give(&t->small_watches, w);
        else
                budget_free(t->budget, w);
        r->watch = NULL;
}

void watches_init(struct tracker *t)
{
        shelf_init(&t->small_watches, t->budget, watch_bytes(t, 1));
        edges_init(t);
}
