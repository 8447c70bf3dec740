/* The model of two levels of checkpoints: its limits, its optimum, what it refuses. That it is
 * right is checked by test_multilevel_simulated.c. */
#include "check.h"
#include "policy/policy.h"
#include <math.h>

static const struct multilevel usual = {.compute = 1e6,
                                        .interval = 600,
                                        .every = 10,
                                        .local_cost = 6,
                                        .remote_cost = 40,
                                        .restart_local = 20,
                                        .restart_remote = 240,
                                        .mtbf_local = 21600,
                                        .mtbf_remote = 864000};

static bool near(double a, double b, double share)
{
        bool is = fabs(a - b) <= share * fabs(b);
        if (!is)
                printf("%.17g is not near %.17g\n", a, b);
        return is;
}

static void test_no_failures(void)
{
        struct multilevel m = usual;
        m.mtbf_local = INFINITY;
        m.mtbf_remote = INFINITY;
        double total = 1e6 / 6000 * (10 * 606 + 40);
        CHECK(near(multilevel_total(&m), total, 1e-12));
        CHECK(near(eq1_total(&m), total, 1e-12));
        /* The limit is approached, not jumped to. */
        m.mtbf_local = 1e18;
        CHECK(near(multilevel_total(&m), total, 1e-9));
        m.mtbf_remote = 1e18;
        CHECK(near(multilevel_total(&m), total, 1e-9));
        CHECK(!multilevel_best(&(struct multilevel){.compute = 1,
                                                    .local_cost = 1,
                                                    .mtbf_local = INFINITY,
                                                    .mtbf_remote = INFINITY},
                               multilevel_total));
}

/* One level: Daly's expectation, with each kind of failure alone. */
static void test_one_level(void)
{
        struct multilevel m = usual;
        m.every = 1;
        m.remote_cost = 0;
        double daly = exp(20.0 / 21600) * 21600 * expm1(606.0 / 21600) * 1e6 / 600;
        m.mtbf_remote = INFINITY;
        CHECK(near(multilevel_total(&m), daly, 1e-12));
        m.mtbf_remote = 1e15;
        CHECK(near(multilevel_total(&m), daly, 1e-8));
        m.mtbf_local = INFINITY;
        m.mtbf_remote = 21600;
        m.restart_remote = 20;
        CHECK(near(multilevel_total(&m), daly, 1e-12));
        /* If both restarts are alike and nothing but one stage can be lost, only the sum of the
         * rates counts. */
        m.mtbf_local = 43200;
        m.mtbf_remote = 43200;
        CHECK(near(multilevel_total(&m), daly, 1e-12));
}

/* The terms as they are printed, by hand. */
static void test_equation_1(void)
{
        const struct multilevel *m = &usual;
        CHECK(near(eq1_local(m), 1e6 / 600 * 6, 1e-12));
        CHECK(near(eq1_remote(m), 1e6 / 6000 * 40, 1e-12));
        CHECK(near(eq1_lost_local(m), 1e6 / 21600 * (20 + 606.0 / 2), 1e-12));
        double total = eq1_total(m);
        CHECK(near(eq1_lost_remote(m, total), total / 864000 * (240 + 10 * 606.0 / 2), 1e-12));
        CHECK(near(total,
                   1e6 + eq1_local(m) + eq1_remote(m) + eq1_lost_local(m) +
                           eq1_lost_remote(m, total),
                   1e-12));
        /* N_lcl as printed is that of one checkpoint per failure. */
        struct multilevel printed = usual;
        printed.interval = printed.mtbf_local;
        CHECK(near(eq1_local(&printed), 1e6 / 21600 * 6, 1e-12));
        /* Remote failures that come faster than they are repaired. */
        printed.mtbf_remote = 100;
        CHECK(isinf(eq1_total(&printed)));
}

static void test_parts(void)
{
        double share[PARTS];
        double sum = 0;
        multilevel_parts(&usual, share);
        for (unsigned i = 0; i < PARTS; i++) {
                CHECK(share[i] > 0 && share[i] < 1);
                sum += share[i];
        }
        CHECK(near(sum, 1, 1e-12));
        CHECK(near(share[PART_COMPUTE], multilevel_efficiency(&usual), 1e-12));
        struct multilevel m = usual;
        m.mtbf_remote = INFINITY;
        multilevel_parts(&m, share);
        CHECK(share[PART_RESTART_REMOTE] == 0 && share[PART_AGAIN_REMOTE] < 1e-12);
        m.mtbf_local = INFINITY;
        multilevel_parts(&m, share);
        CHECK(share[PART_RESTART_LOCAL] == 0 && share[PART_AGAIN_LOCAL] == 0);
        CHECK(near(share[PART_REMOTE], 40.0 / 6100, 1e-12));
}

/* More failures, dearer checkpoints, slower restarts: never better. */
static void test_monotonic(void)
{
        for (int field = 0; field < 6; field++) {
                double before = 0;
                for (double factor = 0.01; factor < 200; factor *= 1.5) {
                        struct multilevel m = usual;
                        double *const costs[] = {&m.local_cost,    &m.remote_cost,
                                                 &m.restart_local, &m.restart_remote,
                                                 &m.mtbf_local,    &m.mtbf_remote};
                        *costs[field] *= field < 4 ? factor : 1 / factor;
                        double total = multilevel_total(&m);
                        CHECK(total > before);
                        before = total;
                        struct multilevel best = m;
                        CHECK(multilevel_best(&best, multilevel_total));
                        CHECK(multilevel_total(&best) <= total * (1 + 1e-12));
                }
        }
}

/* Without remote failures the best interval is Daly's, and for cheap checkpoints Young's. */
static void test_young_and_daly(void)
{
        double gap = 1;
        for (double cost = 0.1; cost > 1e-7; cost /= 10) {
                struct multilevel m = {.compute = 1,
                                       .local_cost = cost,
                                       .remote_cost = cost,
                                       .restart_local = 0.01,
                                       .restart_remote = 0.1,
                                       .mtbf_local = 1,
                                       .mtbf_remote = 1e12};
                CHECK(multilevel_best(&m, multilevel_total));
                CHECK(near(daly_interval(cost, 1), m.interval, 0.001));
                double young = fabs(young_interval(cost, 1) / m.interval - 1);
                CHECK(young < sqrt(cost) && young < gap);
                gap = young;
                m.mtbf_remote = INFINITY;
                CHECK(multilevel_best(&m, multilevel_total));
                CHECK(near(daly_interval(cost, 1), m.interval, 0.001));
        }
        CHECK(near(young_interval(8, 100), 40, 1e-12));
        CHECK(near(daly_interval(8, 100), 40 * (1 + 0.2 / 3 + 0.04 / 9) - 8, 1e-12));
        CHECK(daly_interval(300, 100) == 100);
}

/* No choice nearby, and none on a coarse grid, is better. */
static void check_best(struct multilevel m, double (*total)(const struct multilevel *m))
{
        CHECK(multilevel_best(&m, total));
        double best = total(&m) * (1 - 1e-12);
        struct multilevel other = m;
        for (double factor = 0.05; factor < 20; factor *= 1.1)
                for (double every = 1; every < 4 * m.every + 10; every += ceil(every / 20)) {
                        other.interval = m.interval * factor;
                        other.every = every;
                        CHECK(total(&other) >= best);
                }
        for (double every = fmax(1, m.every - 2); every <= m.every + 2; every++)
                for (double factor = 0.999; factor < 1.0011; factor += 0.0005) {
                        other.interval = m.interval * factor;
                        other.every = every;
                        CHECK(total(&other) >= best);
                }
}

static void test_optimum(void)
{
        struct multilevel m = usual;
        for (m.mtbf_local = 30; m.mtbf_local < 1e8; m.mtbf_local *= 7)
                for (m.mtbf_remote = 300; m.mtbf_remote < 1e9; m.mtbf_remote *= 11) {
                        check_best(m, multilevel_total);
                        /* Its total stays finite if a restart takes less than the failures are
                         * apart. */
                        if (m.mtbf_remote > 1000)
                                check_best(m, eq1_total);
                }
        /* A remote checkpoint for nothing comes each time. */
        m.remote_cost = 0;
        m.mtbf_remote = 1e6;
        CHECK(multilevel_best(&m, multilevel_total));
        CHECK(m.every == 1);
        /* All failures remote: what lies between remote checkpoints serves nothing. */
        m.remote_cost = 40;
        m.mtbf_local = INFINITY;
        CHECK(multilevel_best(&m, multilevel_total));
        CHECK(m.every == 1 && near(m.interval, daly_interval(46, 1e6), 0.001));
}

static void test_each_level_alone(void)
{
        struct multilevel m = usual;
        multilevel_alone(&m, young_interval);
        CHECK(near(m.interval, sqrt(2 * 6 * 21600.0), 1e-12));
        CHECK(m.every == round(sqrt(2 * 40 * 864000.0) / m.interval));
        m.mtbf_remote = INFINITY;
        multilevel_alone(&m, daly_interval);
        CHECK(m.every == MULTILEVEL_MOST_EVERY);
        m.mtbf_local = INFINITY;
        m.mtbf_remote = 864000;
        multilevel_alone(&m, young_interval);
        CHECK(m.every == 1 && near(m.interval, sqrt(2 * 46 * 864000.0), 1e-12));
}

static void check_refused(struct multilevel m, const char *part)
{
        CHECK_HAS(multilevel_wrong(&m), part);
        CHECK(isnan(multilevel_total(&m)) && isnan(multilevel_efficiency(&m)));
        CHECK(isnan(eq1_total(&m)));
        double share[PARTS];
        multilevel_parts(&m, share);
        CHECK(share[PART_COMPUTE] == 0);
}

static void test_refused(void)
{
        CHECK(!multilevel_wrong(&usual));
        const double none[] = {0, -1, NAN, -INFINITY};
        for (size_t i = 0; i < ARRAY_LEN(none); i++) {
                double x = none[i];
                struct multilevel m = usual;
                check_refused((m.compute = x, m), "computing");
                m = usual;
                check_refused((m.interval = x, m), "interval");
                m = usual;
                check_refused((m.every = x, m), "every 1st");
                m = usual;
                check_refused((m.local_cost = x, m), "local checkpoint");
                m = usual;
                check_refused((m.mtbf_local = x, m), "between failures");
                m = usual;
                check_refused((m.mtbf_remote = x, m), "between failures");
                CHECK(isnan(young_interval(x, 1)) && isnan(daly_interval(x, 1)));
                CHECK(isnan(young_interval(1, x)) && isnan(daly_interval(1, x)));
                m = usual;
                m.local_cost = x;
                CHECK(!multilevel_best(&m, multilevel_total));
                if (x == 0)
                        continue;
                m = usual;
                check_refused((m.remote_cost = x, m), "remote checkpoint");
                m = usual;
                check_refused((m.restart_local = x, m), "restart");
                m = usual;
                check_refused((m.restart_remote = x, m), "restart");
        }
        struct multilevel m = usual;
        check_refused((m.every = 1.5, m), "every 1st");
        m = usual;
        check_refused((m.local_cost = INFINITY, m), "local checkpoint");
}

/* A run that will not end in any time: no number, no NAN. */
static void test_hopeless(void)
{
        struct multilevel m = usual;
        m.mtbf_local = 0.001;
        CHECK(isinf(multilevel_total(&m)) && multilevel_efficiency(&m) == 0);
        CHECK(!multilevel_best(&m, multilevel_total));
        double share[PARTS];
        m = usual;
        m.mtbf_local = 0.001;
        multilevel_parts(&m, share);
        for (unsigned i = 0; i < PARTS; i++)
                CHECK(share[i] == 0);
}

/* Against tables of the exact Poisson limits. */
static void test_failures(void)
{
        static const struct {
                uint64_t seen;
                double low, high;
        } known[] = {{0, 0, 2.996},      {1, 0.0513, 4.744},  {2, 0.3554, 6.296},
                     {5, 1.970, 10.513}, {10, 5.425, 16.962}, {50, 38.965, 63.287}};
        for (size_t i = 0; i < ARRAY_LEN(known); i++) {
                double low;
                double high;
                failures_range(known[i].seen, &low, &high);
                CHECK(near(low, known[i].low, 0.001));
                CHECK(near(high, known[i].high, 0.001));
        }
        double low;
        double high;
        failures_range(5000, &low, &high);
        CHECK(low > 4850 && low < 4890 && high > 5110 && high < 5150);
        CHECK(near(failures_expected(0), log(2), 1e-9));
        CHECK(failures_expected(7) == 7);
}

int main(void)
{
        RUN(test_no_failures);
        RUN(test_one_level);
        RUN(test_equation_1);
        RUN(test_parts);
        RUN(test_monotonic);
        RUN(test_young_and_daly);
        RUN(test_optimum);
        RUN(test_each_level_alone);
        RUN(test_refused);
        RUN(test_hopeless);
        RUN(test_failures);
        return 0;
}
