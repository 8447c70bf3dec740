/* The model of what a commit takes: every term, with its sign, by itself and together, on media
 * that write while the next blocks are hashed and on media that do not. */
#include "base/base.h"
#include "check.h"
#include "policy/policy.h"

static bool near(double a, double b)
{
        double larger = a > b ? a : b;
        double apart = a > b ? a - b : b - a;
        return apart <= 1e-9 * (larger > 1 ? larger : 1);
}

#define CHECK_NEAR(a, b)                                                                           \
        do {                                                                                       \
                double check_a_ = (a), check_b_ = (b);                                             \
                if (!near(check_a_, check_b_))                                                     \
                        check_failed(__FILE__, __LINE__, "%s == %s: %.12g, %.12g", #a, #b,         \
                                     check_a_, check_b_);                                          \
        } while (0)

/* No sum of some of them is another one: a term that is missing, doubled or of the wrong sign gives
 * a number that no right one gives. */
static const struct diff_costs costs = {.hash = 1,
                                        .copy = 10,
                                        .first_copy = 100,
                                        .rehash = 1000,
                                        .submit = 10000,
                                        .write = 100000,
                                        .fixed = 1000000};

static double time_of(struct diff_work work, bool overlaps, double write)
{
        struct diff_costs c = costs;
        c.overlaps = overlaps;
        c.write = write;
        return diff_time(&work, &c);
}

static void test_time(void)
{
        struct diff_work all = {
                .compared = 2, .copied = 3, .first_copied = 4, .rehashed = 5, .written = 6};
        struct diff_work none = {.compared = 0};
        double cpu = 2 + 30 + 400 + 5000;
        for (int overlaps = 0; overlaps < 2; overlaps++)
                CHECK_NEAR(time_of(none, overlaps, costs.write), costs.fixed);
        /* One after the other; handing over is a part of the writing. */
        CHECK_NEAR(time_of(all, false, costs.write), costs.fixed + cpu + 6 * costs.write);
        /* At once: the slower one counts. Handing over is work of the processor. */
        CHECK_NEAR(time_of(all, true, costs.write), costs.fixed + 6 * costs.write);
        CHECK_NEAR(time_of(all, true, 1), costs.fixed + cpu + 6 * costs.submit);
        /* What makes the difference is the handing over alone: 6 bytes of 10905.33 against a
         * processor that is busy for 65432. */
        CHECK_NEAR(time_of(all, true, 10905), costs.fixed + cpu + 6 * costs.submit);
        CHECK_NEAR(time_of(all, true, 10906), costs.fixed + 6.0 * 10906);
}

/* Each kind of work by itself, on both kinds of media. */
static void test_terms(void)
{
        struct diff_work work[] = {{.compared = 7},
                                   {.copied = 7},
                                   {.first_copied = 7},
                                   {.rehashed = 7},
                                   {.written = 7}};
        double cost[] = {costs.hash, costs.copy, costs.first_copy, costs.rehash, costs.write};
        for (size_t i = 0; i < ARRAY_LEN(work); i++)
                for (int overlaps = 0; overlaps < 2; overlaps++)
                        CHECK_NEAR(time_of(work[i], overlaps, costs.write),
                                   costs.fixed + 7 * cost[i]);
        CHECK_NEAR(time_of(work[4], true, 0), costs.fixed + 7 * costs.submit);
        CHECK_NEAR(time_of(work[4], false, 0), costs.fixed);
}

#define MIB (1 << 20)

/* What each of the measured times says, and nothing else. */
static void test_learn_each(void)
{
        struct diff_sample samples[] = {
                {.hash = {6, 2}}, {.copy = {6, 2}}, {.first_copy = {6, 2}}, {.rehash = {6, 2}}};
        for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
                struct diff_costs c = {.hash = 0};
                diff_learn(&c, &samples[i]);
                CHECK_NEAR(c.hash, i == 0 ? 3 : 0);
                CHECK_NEAR(c.copy, i == 1 ? 3 : 0);
                CHECK_NEAR(c.first_copy, i == 2 ? 3 : 0);
                CHECK_NEAR(c.rehash, i == 3 ? 3 : 0);
                CHECK_NEAR(c.submit + c.write + c.fixed, 0);
                CHECK(c.known == (i >= 2)); /* what every commit has to do was measured */
                /* The next one counts for a quarter, up or down. */
                diff_learn(&c, &samples[i]);
                CHECK_NEAR(c.hash + c.copy + c.first_copy + c.rehash, 3);
                struct diff_sample slower = {.hash = {i == 0 ? 14 : 0, i == 0 ? 2 : 0},
                                             .copy = {i == 1 ? 14 : 0, i == 1 ? 2 : 0},
                                             .first_copy = {i == 2 ? 14 : 0, i == 2 ? 2 : 0},
                                             .rehash = {i == 3 ? 14 : 0, i == 3 ? 2 : 0}};
                diff_learn(&c, &slower);
                CHECK_NEAR(c.hash + c.copy + c.first_copy + c.rehash, 4);
                diff_learn(&c, &samples[i]);
                CHECK_NEAR(c.hash + c.copy + c.first_copy + c.rehash, 3.75);
        }
        struct diff_costs c = {.hash = 0};
        struct diff_sample fixed = {.fixed_ns = 8};
        diff_learn(&c, &fixed);
        CHECK_NEAR(c.fixed, 8);
        fixed.fixed_ns = 16;
        diff_learn(&c, &fixed);
        CHECK_NEAR(c.fixed, 10);
}

/* A medium that is written while nothing else happens takes what handing over and waiting take. */
static void test_learn_in_turn(void)
{
        struct diff_costs c = {.overlaps = false};
        struct diff_sample s = {.submit_ns = 2.0 * MIB,
                                .wait_ns = 5.0 * MIB,
                                .flush_ns = 50.0 * MIB,
                                .written = MIB};
        diff_learn(&c, &s);
        CHECK_NEAR(c.submit, 2);
        CHECK_NEAR(c.write, 7);
        /* Slower than before is believed as well, although nobody waits for it. */
        s.submit_ns = 15.0 * MIB;
        s.wait_ns = 0;
        diff_learn(&c, &s);
        CHECK_NEAR(c.submit, 2 + 13 * 0.25);
        CHECK_NEAR(c.write, 9);
}

/* One that writes by itself was busy from the first block to the last, if it was waited for. */
static void test_learn_at_once(void)
{
        struct diff_costs c = {.overlaps = true};
        struct diff_sample s = {.submit_ns = 1.0 * MIB,
                                .wait_ns = 0.9 * MIB,
                                .flush_ns = 8.0 * MIB,
                                .written = MIB};
        diff_learn(&c, &s);
        CHECK_NEAR(c.submit, 1);
        CHECK_NEAR(c.write, 8); /* 0.9 of 8 is more than a tenth */
        s.flush_ns = 12.0 * MIB;
        s.wait_ns = 1.3 * MIB;
        diff_learn(&c, &s);
        CHECK_NEAR(c.write, 9);
        /* Not waited for: slower says nothing, faster is a bound. Handing over is learned anyway.
         */
        s.wait_ns = 1.1 * MIB;
        s.submit_ns = 5.0 * MIB;
        diff_learn(&c, &s);
        CHECK_NEAR(c.write, 9);
        CHECK_NEAR(c.submit, 2);
        s.wait_ns = 0;
        s.flush_ns = 5.0 * MIB;
        diff_learn(&c, &s);
        CHECK_NEAR(c.write, 8);
        /* Too little was written to tell. */
        s.written = MIB - 1;
        s.flush_ns = 1.0 * MIB;
        s.submit_ns = 100.0 * MIB;
        diff_learn(&c, &s);
        CHECK_NEAR(c.write, 8);
        CHECK_NEAR(c.submit, 2.75);
        /* The first measurement counts, whoever was the slow one. */
        struct diff_costs fresh = {.overlaps = true};
        struct diff_sample first = {.flush_ns = 4.0 * MIB, .written = MIB};
        diff_learn(&fresh, &first);
        CHECK_NEAR(fresh.write, 4);
}

int main(void)
{
        RUN(test_time);
        RUN(test_terms);
        RUN(test_learn_each);
        RUN(test_learn_in_turn);
        RUN(test_learn_at_once);
        return 0;
}
