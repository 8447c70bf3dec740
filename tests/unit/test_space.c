/* Slots: taking, sharing, giving back, searching; and the memory budget. */
#include "check.h"
#include "store/store_int.h"
#include <errno.h>

static struct budget budget = {.limit = 1 << 20};

static void test_take(void)
{
        struct space s = {.budget = &budget};
        uint64_t slot;
        uint64_t count;
        CHECK_EQ(space_extend(&s, 10), 0);
        space_ref(&s, 0, 2 * SLOT_BYTES);
        CHECK_EQ(s.free, 8);
        CHECK(space_take(&s, 3, 5, &slot, &count));
        CHECK_EQ(slot, 2);
        CHECK_EQ(count, 5);
        CHECK(!space_take(&s, 4, 4, &slot, &count));
        CHECK(space_take(&s, 1, 9, &slot, &count));
        CHECK_EQ(slot, 7);
        CHECK_EQ(count, 3);
        CHECK_EQ(s.free, 0);
        /* A hole behind the cursor is found on the next round. */
        space_unref(&s, 3 * SLOT_BYTES, 2 * SLOT_BYTES);
        CHECK(!space_take(&s, 3, 3, &slot, &count));
        CHECK(space_take(&s, 2, 3, &slot, &count));
        CHECK_EQ(slot, 3);
        CHECK_EQ(count, 2);
        CHECK_EQ(space_extend(&s, 5000), 0);
        CHECK_EQ(s.free, 4990);
        CHECK(space_take(&s, 4990, 4990, &slot, &count));
        CHECK_EQ(slot, 10);
        space_delete(&s);
        CHECK_EQ(budget.used, 0);
}

/* What was looked for in vain is looked for again as soon as a run is long enough, in whatever
 * pieces it came back. */
static void test_scarce(void)
{
        struct space s = {.budget = &budget};
        uint64_t slot;
        uint64_t count;
        CHECK_EQ(space_extend(&s, 64), 0);
        CHECK(space_take(&s, 64, 64, &slot, &count));
        space_unref(&s, 10 * SLOT_BYTES, SLOT_BYTES);
        space_unref(&s, 20 * SLOT_BYTES, 3 * SLOT_BYTES);
        CHECK(!space_take(&s, 4, 4, &slot, &count));
        CHECK_EQ(s.scarce, 4);
        space_unref(&s, 30 * SLOT_BYTES, 3 * SLOT_BYTES);
        space_unref(&s, 12 * SLOT_BYTES, 2 * SLOT_BYTES);
        CHECK_EQ(s.scarce, 4);
        CHECK(!space_take(&s, 5, 5, &slot, &count));
        space_unref(&s, 11 * SLOT_BYTES, SLOT_BYTES);
        CHECK_EQ(s.scarce, 0);
        CHECK(space_take(&s, 4, 9, &slot, &count));
        CHECK_EQ(slot, 10);
        CHECK_EQ(count, 4);
        space_delete(&s);
}

/* A run that straddles the cursor is one run. */
static void test_straddle(void)
{
        struct space s = {.budget = &budget};
        uint64_t slot;
        uint64_t count;
        CHECK_EQ(space_extend(&s, 8), 0);
        CHECK(space_take(&s, 8, 8, &slot, &count));
        space_unref(&s, 3 * SLOT_BYTES, 2 * SLOT_BYTES);
        s.cursor = 4;
        CHECK(space_take(&s, 2, 2, &slot, &count));
        CHECK_EQ(slot, 3);
        space_delete(&s);
}

/* Small objects share a slot; it is free when the last one goes. */
static void test_share(void)
{
        struct space s = {.budget = &budget};
        CHECK_EQ(space_extend(&s, 4), 0);
        space_ref(&s, 2 * SLOT_BYTES, 128);
        space_ref(&s, 2 * SLOT_BYTES + 128, 128);
        space_ref(&s, 2 * SLOT_BYTES, 2 * SLOT_BYTES);
        CHECK_EQ(s.free, 2);
        space_unref(&s, 2 * SLOT_BYTES, 2 * SLOT_BYTES);
        CHECK_EQ(s.free, 3);
        space_unref(&s, 2 * SLOT_BYTES, 128);
        CHECK_EQ(s.free, 3);
        space_unref(&s, 2 * SLOT_BYTES + 128, 128);
        CHECK_EQ(s.free, 4);
        space_delete(&s);
}

static void test_budget(void)
{
        struct budget b = {.limit = 100000};
        CHECK(budget_alloc(&b, 200000, "a thing") == NULL);
        CHECK_HAS(err_text(), "a thing");
        CHECK_HAS(err_text(), "option memory");
        CHECK(budget_alloc(&b, UINT64_MAX, "a thing") == NULL);
        uint8_t *p = budget_alloc(&b, 8192, "a thing");
        CHECK(p != NULL);
        CHECK_EQ((uintptr_t)p % 4096, 0);
        CHECK_EQ(p[0] + p[8191], 0);
        p[5] = 7;
        p = budget_resize(&b, p, 20000, "a thing");
        CHECK_EQ(p[5], 7);
        CHECK(budget_resize(&b, p, 95000, "a thing") == NULL);
        CHECK_EQ(p[5], 7);
        void *small = budget_alloc(&b, 10, "a thing");
        CHECK_EQ((uintptr_t)small % 16, 0);
        budget_free(&b, small);
        budget_free(&b, p);
        budget_free(&b, NULL);
        CHECK_EQ(b.used, 0);
        CHECK(b.peak > 28000 && b.peak <= b.limit);
}

int main(void)
{
        RUN(test_take);
        RUN(test_scarce);
        RUN(test_straddle);
        RUN(test_share);
        RUN(test_budget);
        return 0;
}
