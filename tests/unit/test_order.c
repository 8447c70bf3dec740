/* What an epoch tells about the order of writes: all of its times, or none, as long as they say the
 * same as those before. And the plan that follows from it, in our order and in the paper's. */
#include "check.h"
#include "engine/commit.h"
#include <stdlib.h>

#define UNITS 64u

/* One region, every unit dirty, with times of an epoch before: unit u at (u + 1) ms. */
struct world {
        struct engine_options options;
        struct commit c;
        struct region region, *part[1];
        struct watch w;
        struct unit_notes notes;
        _Atomic uint32_t state[UNITS];
        _Atomic uint8_t access[UNITS], written[UNITS];
        _Atomic uint64_t when[UNITS];
        uint8_t dirty[UNITS], last_access[UNITS], hot[UNITS], tried[UNITS], rest[UNITS],
                mode[UNITS];
        uint64_t last_when[UNITS];
        uint32_t place[UNITS];
        struct target plan[UNITS];
};

#define MS      UINT64_C(1000000)
#define FROZEN  (1000 * MS)
#define DELAYED (30 * MS)

static struct world *new_world(void)
{
        struct world *w = calloc(1, sizeof(*w));
        CHECK(w != NULL);
        w->w.span.units = UNITS;
        w->w.span.state = w->state;
        w->w.span.access = w->access;
        w->w.span.written = w->written;
        w->w.span.when_ns = w->when;
        w->w.dirty = w->dirty;
        CHECK(unit_notes(&w->w) == &w->notes);
        w->notes.last_access = w->last_access;
        w->notes.last_when_ns = w->last_when;
        w->notes.hot = w->hot;
        w->notes.tried = w->tried;
        w->notes.rest = w->rest;
        w->notes.mode = w->mode;
        w->notes.frozen_ns = FROZEN;
        w->region.watch = &w->w;
        w->part[0] = &w->region;
        w->c.options = &w->options;
        w->c.part.list = w->part;
        w->c.part.count = 1;
        w->c.frozen_ns = 2 * FROZEN;
        for (uint64_t u = 0; u < UNITS; u++) {
                w->dirty[u] = 1;
                w->last_access[u] = ACCESS_COW;
                w->last_when[u] = (u + 1) * MS;
        }
        return w;
}

static void see(struct world *w, uint64_t u, uint64_t when_ns)
{
        atomic_store(&w->access[u], ACCESS_COW);
        atomic_store(&w->when[u], FROZEN + when_ns);
}

static void next_epoch(struct world *w)
{
        order_judge(&w->c);
        order_begin_epoch(&w->c, &w->w);
}

/* Half of the units meet a fault, later than the time before, in the same order: what is known of
 * the others would not compare with theirs. */
static void test_some_as_expected(void)
{
        struct world *w = new_world();
        for (uint64_t u = UNITS / 2; u < UNITS; u++)
                see(w, u, (u + 1) * MS + DELAYED);
        next_epoch(w);
        for (uint64_t u = 0; u < UNITS; u++)
                CHECK_EQ(w->last_when[u], (u + 1) * MS);
        free(w);
}

/* In another order: they tell something. */
static void test_some_otherwise(void)
{
        struct world *w = new_world();
        for (uint64_t u = UNITS / 2; u < UNITS; u++)
                see(w, u, (UNITS - u) * MS);
        next_epoch(w);
        for (uint64_t u = 0; u < UNITS; u++)
                CHECK_EQ(w->last_when[u], (u < UNITS / 2 ? u + 1 : UNITS - u) * MS);
        free(w);
}

static void test_all(void)
{
        struct world *w = new_world();
        for (uint64_t u = 0; u < UNITS; u++)
                see(w, u, (u + 1) * MS + DELAYED);
        next_epoch(w);
        for (uint64_t u = 0; u < UNITS; u++)
                CHECK_EQ(w->last_when[u], (u + 1) * MS + DELAYED);
        free(w);
}

/* Of a unit that was not known before, the time is taken in any case. */
static void test_new(void)
{
        struct world *w = new_world();
        w->last_access[40] = ACCESS_NONE;
        for (uint64_t u = UNITS / 2; u < UNITS; u++)
                see(w, u, (u + 1) * MS + DELAYED);
        next_epoch(w);
        CHECK_EQ(w->last_when[40], 41 * MS + DELAYED);
        CHECK_EQ(w->last_when[41], 42 * MS);
        CHECK(order_knows(&w->w, 40));
        free(w);
}

static void plan_all(struct world *w)
{
        w->notes.place = w->place;
        w->c.plan.list = w->plan;
        w->c.plan.count = UNITS;
        w->options.policy = POLICY_ADAPTIVE;
        for (uint32_t u = 0; u < UNITS; u++)
                w->plan[u] = (struct target){.unit = u};
        order_set_keys(&w->c);
        order_sort_plan(&w->c);
}

/* What was written first is flushed first; what was not written comes last, in order of address. */
static void test_plan(void)
{
        struct world *w = new_world();
        for (uint32_t u = 0; u < UNITS; u++) {
                w->last_when[u] = (u * 37 % UNITS + 1) * MS;
                if (u % 8 == 0)
                        w->last_access[u] = ACCESS_NONE;
        }
        plan_all(w);
        for (uint32_t i = 0; i < UNITS; i++) {
                uint32_t u = w->plan[i].unit;
                CHECK_EQ(w->place[u], i);
                CHECK_EQ(u % 8 == 0, i >= UNITS - UNITS / 8);
                if (i > 0 && u % 8)
                        CHECK(w->last_when[u] > w->last_when[w->plan[i - 1].unit]);
                if (i > UNITS - UNITS / 8)
                        CHECK(u > w->plan[i - 1].unit);
        }
        free(w);
}

/* Algorithm 4: waited, copied, avoided, the rest; each by time. The times alone would say the
 * contrary: the rest was written first, what had to wait last. */
static void test_paper_classes(void)
{
        static const uint8_t in_order[] = {ACCESS_WAIT, ACCESS_COW, ACCESS_AVOIDED, ACCESS_AFTER};
        struct world *w = new_world();
        w->options.order = ORDER_PAPER;
        for (uint64_t u = 0; u < UNITS; u++) {
                uint64_t class = u * 7 % ARRAY_LEN(in_order);
                w->last_access[u] = in_order[class];
                w->last_when[u] = ((ARRAY_LEN(in_order) - class) * 100 + u * 37 % UNITS) * MS;
        }
        plan_all(w);
        for (uint32_t i = 0; i < UNITS; i++) {
                uint32_t u = w->plan[i].unit;
                CHECK_EQ(w->place[u], i);
                CHECK_EQ(w->last_access[u], in_order[i / (UNITS / ARRAY_LEN(in_order))]);
                if (i % (UNITS / ARRAY_LEN(in_order)))
                        CHECK(w->last_when[u] > w->last_when[w->plan[i - 1].unit]);
        }
        w->options.order = ORDER_TIME;
        plan_all(w);
        for (uint32_t i = 1; i < UNITS; i++)
                CHECK(w->last_when[w->plan[i].unit] > w->last_when[w->plan[i - 1].unit]);
        free(w);
}

/* Of a class, those whose time is not known come last, by address; of all, those of which nothing is
 * known. */
static void test_paper_unknown(void)
{
        struct world *w = new_world();
        w->options.order = ORDER_PAPER;
        for (uint64_t u = 0; u < UNITS; u++) {
                w->last_access[u] = u % 4 == 0   ? ACCESS_NONE
                                    : u % 4 == 1 ? ACCESS_AFTER
                                                 : ACCESS_AVOIDED;
                w->last_when[u] = u % 4 == 2 ? UNKNOWN_WHEN : (UNITS - u) * MS;
        }
        plan_all(w);
        static const uint32_t kinds[] = {3, 2, 1, 0};
        for (uint32_t i = 0; i < UNITS; i++) {
                uint32_t u = w->plan[i].unit;
                CHECK_EQ(u % 4, kinds[i / (UNITS / 4)]);
                if (i % (UNITS / 4))
                        CHECK_EQ(u > w->plan[i - 1].unit, u % 2 == 0);
        }
        free(w);
}

/* LastAT and LastIndex are those of the epoch before, also where the program came as expected, and
 * what it wrote after the commit is in no class of what it met before. */
static void test_paper_remembers_one_epoch(void)
{
        struct world *w = new_world();
        w->options.order = ORDER_PAPER;
        w->dirty[0] = 0;
        atomic_store(&w->access[1], ACCESS_AVOIDED);
        for (uint64_t u = UNITS / 2; u < UNITS; u++)
                see(w, u, (u + 1) * MS + DELAYED);
        atomic_store(&w->access[40], ACCESS_WAIT);
        next_epoch(w);
        CHECK_EQ(w->last_access[0], ACCESS_NONE);
        CHECK_EQ(w->last_access[1], ACCESS_AVOIDED);
        CHECK(!order_knows(&w->w, 1));
        for (uint64_t u = 2; u < UNITS / 2; u++) {
                CHECK_EQ(w->last_access[u], ACCESS_AFTER);
                CHECK(!order_knows(&w->w, u));
        }
        for (uint64_t u = UNITS / 2; u < UNITS; u++) {
                CHECK_EQ(w->last_access[u], u == 40 ? ACCESS_WAIT : ACCESS_COW);
                CHECK_EQ(w->last_when[u], (u + 1) * MS + DELAYED);
        }
        free(w);
}

int main(void)
{
        RUN(test_some_as_expected);
        RUN(test_some_otherwise);
        RUN(test_all);
        RUN(test_new);
        RUN(test_plan);
        RUN(test_paper_classes);
        RUN(test_paper_unknown);
        RUN(test_paper_remembers_one_epoch);
        return 0;
}
