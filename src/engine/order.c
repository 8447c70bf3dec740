/* order.c: in which order units are flushed: as the program wrote them first in the epoch before,
 * or in the last one that told something else.
 *
 * The paper (Algorithm 4) puts units whose first write had to wait before those that were copied,
 * and those before the ones that were flushed in time. What kind of write a unit meets depends on
 * the order before, though, so the order turns over from one epoch to the next. The time of the
 * write says the same and does not depend on it (docs/design/0005). The paper's order is kept to be
 * measured beside ours (option `order`): by class, then by time, of the epoch before and no other.
 *
 * The plan is sorted once per commit. What the program does during the commit overrides it unit by
 * unit (flush.c). Times are relative to the freeze, so epochs of different length compare. */
#include "engine/commit.h"

bool order_knows(const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        return n->last_access[u] != ACCESS_NONE && n->last_when_ns[u] != UNKNOWN_WHEN;
}

/* Smaller first: of the paper, the classes of Algorithm 4. Its "any remaining" are those written
 * after the commit, which the text puts last, and those of which nothing is known. */
static uint64_t class_of(const struct engine_options *o, uint8_t access)
{
        static const uint8_t paper[] = {[ACCESS_WAIT] = 0,
                                        [ACCESS_COW] = 1,
                                        [ACCESS_AVOIDED] = 2,
                                        [ACCESS_AFTER] = 3,
                                        [ACCESS_NONE] = 4};
        return o->order == ORDER_PAPER ? paper[access] : access == ACCESS_NONE;
}

static uint64_t key_of(const struct commit *c, const struct target *t, uint64_t index)
{
        const struct watch *w = c->part.list[t->region]->watch;
        const struct unit_notes *n = unit_notes(w);
        if (c->options->policy != POLICY_ADAPTIVE)
                return index;
        uint8_t access = n->last_access[t->unit];
        uint64_t when = access != ACCESS_NONE ? n->last_when_ns[t->unit] : 0;
        when += when == 0 || when == UNKNOWN_WHEN ? index : 0;
        return class_of(c->options, access) << 60 | (when & ((UINT64_C(1) << 60) - 1));
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
void order_sort(struct target *a, uint64_t count)
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

void order_set_keys(struct commit *c)
{
        for (uint64_t i = 0; i < c->plan.count; i++)
                c->plan.list[i].key = key_of(c, &c->plan.list[i], i);
}

void order_sort_plan(struct commit *c)
{
        if (c->options->policy == POLICY_ADAPTIVE)
                order_sort(c->plan.list, c->plan.count);
        for (uint64_t i = 0; i < c->plan.count; i++)
                unit_notes(c->part.list[c->plan.list[i].region]->watch)
                        ->place[c->plan.list[i].unit] = (uint32_t)i;
}

/* ---- what an epoch tells ----
 *
 * Where the flusher keeps ahead of the program, most units meet no fault, and only of a few it is
 * known when they were written in this epoch. Their times do not compare with those of the others,
 * from an earlier epoch: waits and copies have moved them. So as long as they came in the order
 * that was expected, all keep the times from which it was made. The paper has no such memory. */

struct agreement {
        uint64_t seen, known; /* units with a time of this epoch; of an earlier one */
        uint64_t same, other; /* pairs of units in the expected order; not          */
};

static bool compares(const struct watch *w, uint64_t u)
{
        return order_knows(w, u) && atomic_load(&w->span.when_ns[u]) != 0;
}

static void compare_pairs(struct agreement *a, const struct watch *w, uint64_t apart)
{
        const struct unit_notes *n = unit_notes(w);
        const struct span *s = &w->span;
        for (uint64_t u = 0; u + apart < s->units; u++) {
                if (!compares(w, u) || !compares(w, u + apart))
                        continue;
                bool before = n->last_when_ns[u] < n->last_when_ns[u + apart];
                bool same = before ==
                            (atomic_load(&s->when_ns[u]) < atomic_load(&s->when_ns[u + apart]));
                a->same += same;
                a->other += !same;
        }
}

void order_judge(struct commit *c)
{
        struct agreement a = {0};
        c->plan.order_holds = false;
        if (c->options->order == ORDER_PAPER)
                return;
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct watch *w = c->part.list[i]->watch;
                uint64_t seen = a.seen;
                for (uint64_t u = 0; u < w->span.units; u++) {
                        a.seen += atomic_load(&w->span.when_ns[u]) != 0;
                        a.known += order_knows(w, u);
                }
                if (a.seen > seen) {
                        compare_pairs(&a, w, w->span.units / 2 + 1);
                        compare_pairs(&a, w, w->span.units / 16 + 1);
                }
        }
        c->plan.order_holds = a.seen < a.known - a.known / 16 && a.other * 10 <= a.same;
}

void order_begin_epoch(struct commit *c, struct watch *w)
{
        struct unit_notes *n = unit_notes(w);
        struct span *s = &w->span;
        uint64_t before_ns = n->frozen_ns;
        if (before_ns == 0) /* a program that read its input into it */
                atomic_store(&s->foreign, false);
        n->frozen_ns = c->frozen_ns;
        for (uint64_t u = 0; u < s->units; u++) {
                uint8_t access = atomic_load(&s->access[u]);
                uint64_t when = atomic_load(&s->when_ns[u]);
                c->epoch.after += access == ACCESS_AFTER || (access == ACCESS_NONE && w->dirty[u]);
                if (access != ACCESS_NONE && when != 0) {
                        if (!c->plan.order_holds || !order_knows(w, u))
                                n->last_when_ns[u] = when > before_ns ? when - before_ns : 0;
                        n->last_access[u] = access;
                } else if (!w->dirty[u]) {
                        n->last_access[u] = ACCESS_NONE;
                } else if (n->last_access[u] == ACCESS_NONE || c->options->order == ORDER_PAPER) {
                        /* Written without a fault: after the commit, or behind the flusher. When is
                         * not known; what was known from earlier epochs stays, except with the
                         * paper's order. */
                        n->last_access[u] = access != ACCESS_NONE ? access : ACCESS_AFTER;
                        n->last_when_ns[u] = UNKNOWN_WHEN;
                }
                bool dense = w->dirty[u] && n->mode[u] != MODE_PATCH;
                n->hot[u] = dense ? (uint8_t)min_u64(n->hot[u] + 1u, 255) : 0;
                if (!dense)
                        n->tried[u] = n->rest[u] = 0;
                atomic_store_explicit(&s->access[u], ACCESS_NONE, memory_order_relaxed);
                atomic_store_explicit(&s->when_ns[u], 0, memory_order_relaxed);
                atomic_store_explicit(&s->written[u], 0, memory_order_relaxed);
                atomic_store_explicit(&s->state[u], UNIT_OPEN, memory_order_relaxed);
        }
}
