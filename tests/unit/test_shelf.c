/* Pieces of one size: each is zeros and nobody else's, and all memory comes back. */
#include "check.h"
#include "plat/plat.h"
#include <errno.h>

#define PLACES 1000u
#define BYTES  100u

static uint8_t *held[PLACES];

static uint64_t next_random(void)
{
        static uint64_t seed = 11;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return seed >> 33;
}

static void check_filled(const uint8_t *p, uint8_t with)
{
        for (uint32_t i = 0; i < BYTES; i++)
                CHECK_EQ(p[i], with);
}

static void change(struct shelf *s, uint32_t i)
{
        if (held[i]) {
                check_filled(held[i], (uint8_t)(i % 251 + 1));
                shelf_give(s, held[i]);
                held[i] = NULL;
                return;
        }
        held[i] = shelf_take(s, "a piece");
        CHECK(held[i] != NULL);
        CHECK_EQ((uintptr_t)held[i] % 8, 0);
        check_filled(held[i], 0);
        memset(held[i], (int)(i % 251 + 1), BYTES);
}

static void test_churn(void)
{
        struct budget budget = {.limit = UINT64_C(1) << 30};
        struct shelf s;
        shelf_init(&s, &budget, BYTES);
        for (uint32_t i = 0; i < 50000; i++)
                change(&s, (uint32_t)(next_random() % PLACES));
        for (uint32_t i = 0; i < PLACES; i++)
                if (held[i])
                        change(&s, i);
        /* What is left is one board of 64 pieces at most. */
        CHECK(atomic_load(&budget.used) <= 64u * 256);
        shelf_close(&s);
        CHECK_EQ(atomic_load(&budget.used), 0);
}

/* A board that was full has room again, and is the one that is used. */
static void test_room_is_used(void)
{
        struct budget budget = {.limit = UINT64_C(1) << 30};
        struct shelf s;
        shelf_init(&s, &budget, BYTES);
        for (uint32_t i = 0; i < 128; i++)
                change(&s, i);
        uint64_t used = atomic_load(&budget.used);
        for (uint32_t i = 0; i < 128; i += 2)
                change(&s, i);
        for (uint32_t i = 0; i < 128; i += 2)
                change(&s, i);
        CHECK_EQ(atomic_load(&budget.used), used);
        for (uint32_t i = 0; i < 128; i++)
                change(&s, i);
        shelf_close(&s);
        CHECK_EQ(atomic_load(&budget.used), 0);
}

static void test_budget(void)
{
        struct budget budget = {.limit = 1000};
        struct shelf s;
        shelf_init(&s, &budget, BYTES);
        CHECK(shelf_take(&s, "a piece") == NULL);
        CHECK_EQ(err_code(), -ENOMEM);
        CHECK_HAS(err_text(), "a piece");
        shelf_close(&s);
}

int main(void)
{
        RUN(test_churn);
        RUN(test_room_is_used);
        RUN(test_budget);
        return 0;
}
