/* The table of spans: thousands of them come and go in any order; every address finds its own, and
 * none is lost when there is no memory for a new table. */
#include "check.h"
#include "mem/mem_int.h"
#include <errno.h>

#define PLACES 6000u
#define STRIDE 16384u
#define BASE   UINT64_C(0x100000000000)

static struct guard guard;
static struct span spans[PLACES];
static bool there[PLACES];
static uint32_t refuse; /* this many allocations from now on fail */

static void *alloc_some(size_t bytes)
{
        if (refuse > 0) {
                refuse--;
                return NULL;
        }
        return plat_system.alloc(bytes);
}

static uint64_t next_random(void)
{
        static uint64_t seed = 7;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return seed >> 33;
}

static const struct span *found(uint64_t address)
{
        const struct span_table *t = atomic_load(&span_table_now);
        const struct span *s = span_at(t, span_find(t, address));
        return s && s->low <= address ? s : NULL;
}

/* All in order, each where it belongs, and no chunk empty or too small beside another. */
static void check_all(uint32_t count)
{
        const struct span_table *t = atomic_load(&span_table_now);
        uint32_t seen = 0;
        struct span_place at = {0, 0};
        const struct span *before = NULL;
        for (const struct span *s; (s = span_at(t, at)); at = span_after(t, at)) {
                CHECK(!before || before->high <= s->low);
                CHECK(there[s - spans]);
                before = s;
                seen++;
        }
        CHECK_EQ(seen, count);
        CHECK(t->count <= 2 + count / 32);
}

static void change(uint32_t i, uint32_t *count)
{
        struct span *s = &spans[i];
        if (there[i]) {
                spans_remove(s);
                CHECK(found(s->low) == NULL);
                there[i] = false;
                --*count;
                return;
        }
        int rc = spans_add(s);
        if (rc) {
                CHECK_EQ(rc, -ENOMEM);
                CHECK(found(s->low) == NULL);
                return;
        }
        CHECK(found(s->low) == s && found(s->high - 1) == s);
        CHECK(found(s->low - 1) != s && found(s->high) != s);
        /* Any overlap is refused. */
        struct span other = *s;
        other.low = s->high - 4096;
        other.high = s->high + 4096;
        CHECK_EQ(spans_add(&other), -EBUSY);
        there[i] = true;
        ++*count;
}

static void churn(uint32_t steps, unsigned percent_failing)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < PLACES; i++)
                count += there[i];
        for (uint32_t step = 0; step < steps; step++) {
                uint32_t i = (uint32_t)(next_random() % PLACES);
                refuse = next_random() % 100 < percent_failing ? 1 + next_random() % 3 : 0;
                change(i, &count);
                refuse = 0;
        }
        check_all(count);
}

/* From one end to the other, and back. */
static void sweep(void)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < PLACES; i++)
                count += there[i];
        for (uint32_t i = 0; i < PLACES; i++)
                if (!there[i])
                        change(i, &count);
        check_all(PLACES);
        for (uint32_t i = 0; i < PLACES; i++)
                if (i % 300 != 0)
                        change(i, &count);
        check_all(PLACES / 300);
        for (uint32_t i = PLACES; i > 0; i--)
                if (!there[i - 1])
                        change(i - 1, &count);
        for (uint32_t i = PLACES; i > 0; i--)
                change(i - 1, &count);
        check_all(0);
}

int main(void)
{
        struct plat_calls calls = plat_system;
        calls.alloc = alloc_some;
        plat = &calls;
        for (uint32_t i = 0; i < PLACES; i++)
                spans[i] = (struct span){.guard = &guard,
                                         .low = BASE + (uint64_t)i * STRIDE,
                                         .high = BASE + (uint64_t)i * STRIDE + STRIDE / 2};
        RUN(sweep);
        churn(20000, 0);
        churn(20000, 30);
        RUN(sweep);
        plat = &plat_system;
        return 0;
}
