/* order.c: in which order units are flushed (Algorithm 4 of the AI-Ckpt paper, over units).
 *
 * What the order achieved once must not count against it: a unit that was flushed in time was not
 * met, and would come last the next time. So the worse of two epochs counts.
 *
 * The plan is sorted once per commit: units whose first write met the worst interference last time
 * come first, and among those the ones that were written earliest. What the program does during the
 * commit overrides it unit by unit (flush.c). Times are relative to the freeze, so epochs of
 * different length compare. */
#include "engine/engine_int.h"

static uint64_t class_of(uint8_t access)
{
        switch (access) {
        case ACCESS_WAIT:
                return 0;
        case ACCESS_COW:
                return 1;
        case ACCESS_AVOIDED:
                return 2;
        case ACCESS_AFTER:
                return 3;
        default:
                return 4;
        }
}

bool order_knows(const struct watch *w, uint64_t u)
{
        return w->last_access[u] != ACCESS_NONE && w->last_when_ns[u] != UNKNOWN_WHEN;
}

static uint64_t worst_class(const struct watch *w, uint64_t u)
{
        return min_u64(class_of(w->last_access[u]), class_of(w->earlier[u]));
}

static uint64_t key_of(const struct engine *e, const struct target *t, uint64_t index)
{
        const struct watch *w = e->part[t->region]->watch;
        if (e->options.policy != POLICY_ADAPTIVE)
                return index;
        /* Following the program needs one sequence, not one per class. */
        uint64_t class = e->options.follow ? (w->last_access[t->unit] == ACCESS_NONE)
                                           : worst_class(w, t->unit);
        uint64_t when = w->last_access[t->unit] == ACCESS_NONE ? 0 : w->last_when_ns[t->unit];
        when += when == 0 || when == UNKNOWN_WHEN ? index : 0;
        return class << 60 | (when & ((UINT64_C(1) << 60) - 1));
}

static void sift(struct target *a, uint64_t root, uint64_t count)
{
        struct target moved = a[root];
        for (uint64_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
                if (child + 1 < count && a[child + 1].key > a[child].key)
                        child++;
                if (a[child].key <= moved.key)
                        break;
                a[root] = a[child];
                root = child;
        }
        a[root] = moved;
}

/* Heap sort: in place, since the flusher may not allocate (libc's qsort does). */
static void sort(struct target *a, uint64_t count)
{
        for (uint64_t i = count / 2; i > 0; i--)
                sift(a, i - 1, count);
        for (uint64_t end = count; end > 1; end--) {
                struct target largest = a[0];
                a[0] = a[end - 1];
                a[end - 1] = largest;
                sift(a, 0, end - 1);
        }
}

void order_keys(struct engine *e)
{
        for (uint64_t i = 0; i < e->plan_count; i++)
                e->plan[i].key = key_of(e, &e->plan[i], i);
}

void order_plan(struct engine *e)
{
        if (e->options.policy == POLICY_ADAPTIVE)
                sort(e->plan, e->plan_count);
        for (uint64_t i = 0; i < e->plan_count; i++)
                e->part[e->plan[i].region]->watch->place[e->plan[i].unit] = (uint32_t)i;
}

void order_begin_epoch(struct engine *e, struct watch *w)
{
        struct span *s = &w->span;
        uint64_t before_ns = w->frozen_ns;
        w->frozen_ns = e->frozen_ns;
        for (uint64_t u = 0; u < s->units; u++) {
                uint8_t access = atomic_load(&s->access[u]);
                uint64_t when = atomic_load(&s->when_ns[u]);
                e->epoch.after += access == ACCESS_AFTER || (access == ACCESS_NONE && w->dirty[u]);
                w->earlier[u] = w->last_access[u];
                if (access != ACCESS_NONE && when != 0) {
                        w->last_access[u] = access;
                        w->last_when_ns[u] = when > before_ns ? when - before_ns : 0;
                } else if (!w->dirty[u]) {
                        w->last_access[u] = ACCESS_NONE;
                } else if (w->last_access[u] == ACCESS_NONE) {
                        /* Written without a fault: after the commit, or behind the flusher. When is
                         * not known; what was known from earlier epochs stays. */
                        w->last_access[u] = access != ACCESS_NONE ? access : ACCESS_AFTER;
                        w->last_when_ns[u] = UNKNOWN_WHEN;
                }
                bool dense = w->dirty[u] && w->mode[u] != MODE_PATCH;
                w->hot[u] = dense ? (uint8_t)min_u64(w->hot[u] + 1u, 255) : 0;
                if (!dense)
                        w->tried[u] = w->rest[u] = 0;
                atomic_store_explicit(&s->access[u], ACCESS_NONE, memory_order_relaxed);
                atomic_store_explicit(&s->when_ns[u], 0, memory_order_relaxed);
                atomic_store_explicit(&s->written[u], 0, memory_order_relaxed);
                atomic_store_explicit(&s->state[u], UNIT_OPEN, memory_order_relaxed);
        }
}
