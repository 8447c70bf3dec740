/* When a checkpoint is due, with times that the test makes up. */
#include "check.h"
#include "policy/policy.h"

#define S       UINT64_C(1000000000)
#define PERCENT S

static struct interval made(uint64_t interval, uint64_t wall, uint64_t margin, uint64_t overhead)
{
        struct interval_options o = {.interval_ns = interval,
                                     .wall_ns = wall,
                                     .wall_margin_ns = margin,
                                     .overhead = overhead};
        struct interval i;
        interval_init(&i, &o, 1000 * S, 1005 * S);
        return i;
}

static void checkpoint(struct interval *i, uint64_t now, uint64_t blocked, uint64_t commit)
{
        interval_began(i, now);
        interval_ended(i, blocked);
        interval_published(i, commit, 0);
}

static void test_nothing_asked(void)
{
        struct interval i = made(0, 0, 60 * S, 0);
        CHECK_EQ(interval_due(&i, 1005 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, UINT64_MAX), TRIGGER_NONE);
        CHECK_EQ(interval_least(&i), 0);
        checkpoint(&i, 2000 * S, 50 * S, 100 * S);
        CHECK_EQ(interval_due(&i, UINT64_MAX), TRIGGER_NONE);
        CHECK_STR(trigger_text(TRIGGER_NONE), "");
}

static void test_interval(void)
{
        struct interval i = made(10 * S, 0, 0, 0);
        CHECK_EQ(interval_due(&i, 1015 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1015 * S), TRIGGER_INTERVAL);
        /* It stays due until a checkpoint begins; from there the next period runs. */
        CHECK_EQ(interval_due(&i, 1030 * S), TRIGGER_INTERVAL);
        checkpoint(&i, 1030 * S, 4 * S, 4 * S);
        CHECK_EQ(interval_due(&i, 1040 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1040 * S), TRIGGER_INTERVAL);
        interval_fresh(&i, 1041 * S);
        CHECK_EQ(interval_due(&i, 1050 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1051 * S), TRIGGER_INTERVAL);
        /* A clock that seems to run backwards is no reason. */
        CHECK_EQ(interval_due(&i, 5), TRIGGER_NONE);
        CHECK_STR(trigger_text(TRIGGER_INTERVAL), "interval");
}

static void test_failed_counts(void)
{
        struct interval i = made(10 * S, 0, 0, 0);
        interval_began(&i, 1015 * S);
        interval_ended(&i, S);
        CHECK_EQ(interval_due(&i, 1016 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1025 * S), TRIGGER_INTERVAL);
}

static void test_wall_clock(void)
{
        struct interval i = made(0, 100 * S, 20 * S, 0);
        CHECK_EQ(interval_due(&i, 1080 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1080 * S), TRIGGER_WALL);
        checkpoint(&i, 1081 * S, S, S);
        CHECK_EQ(interval_due(&i, 1099 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 5000 * S), TRIGGER_NONE);
}

static void test_wall_clock_margin_grows(void)
{
        struct interval i = made(0, 100 * S, 20 * S, 0);
        checkpoint(&i, 1010 * S, S, 15 * S);
        CHECK_EQ(interval_due(&i, 1070 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1070 * S), TRIGGER_WALL);
        /* More margin than there is time: at once. */
        i = made(0, 100 * S, 200 * S, 0);
        CHECK_EQ(interval_due(&i, 1005 * S), TRIGGER_WALL);
}

static void test_wall_clock_is_the_last(void)
{
        struct interval i = made(10 * S, 100 * S, 20 * S, 0);
        checkpoint(&i, 1079 * S, S, S);
        CHECK_EQ(interval_due(&i, 1080 * S), TRIGGER_WALL);
        /* One that the program took by itself inside the margin serves as well. */
        checkpoint(&i, 1080 * S, S, S);
        CHECK_EQ(interval_due(&i, 1095 * S), TRIGGER_NONE);
        i.requested = true;
        CHECK_EQ(interval_due(&i, 1095 * S), TRIGGER_REQUEST);
}

static void test_overhead_alone(void)
{
        struct interval i = made(0, 0, 0, 2 * PERCENT);
        CHECK_EQ(interval_due(&i, 1006 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1015 * S), TRIGGER_OVERHEAD);
        checkpoint(&i, 1015 * S, S, 3 * S);
        CHECK_EQ(interval_least(&i), 50 * S);
        CHECK_EQ(interval_due(&i, 1065 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1065 * S), TRIGGER_OVERHEAD);
        /* Waits after the return count; the commit is a lower bound. */
        interval_published(&i, 3 * S, S);
        CHECK_EQ(interval_least(&i), 100 * S);
        checkpoint(&i, 1200 * S, 0, 7 * S);
        CHECK_EQ(interval_least(&i), 7 * S);
}

static void test_overhead_stretches_interval(void)
{
        struct interval i = made(10 * S, 0, 0, 5 * PERCENT);
        CHECK_EQ(interval_due(&i, 1015 * S), TRIGGER_INTERVAL);
        checkpoint(&i, 1015 * S, S, S);
        CHECK_EQ(interval_due(&i, 1034 * S), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1035 * S), TRIGGER_INTERVAL);
        checkpoint(&i, 1035 * S, S / 100, S);
        CHECK_EQ(interval_due(&i, 1045 * S - 1), TRIGGER_NONE);
        CHECK_EQ(interval_due(&i, 1045 * S), TRIGGER_INTERVAL);
}

static void test_overhead_extremes(void)
{
        struct interval i = made(0, 0, 0, 1);
        checkpoint(&i, 1015 * S, 100000 * S, 0);
        CHECK(interval_least(&i) == UINT64_MAX);
        i = made(0, 0, 0, 100 * PERCENT);
        checkpoint(&i, 1015 * S, 3 * S, 0);
        CHECK_EQ(interval_least(&i), 3 * S);
}

static void test_requests_and_signals(void)
{
        struct interval i = made(10 * S, 0, 0, 0);
        i.signalled = true;
        CHECK_EQ(interval_due(&i, 1006 * S), TRIGGER_SIGNAL);
        i.requested = true;
        CHECK_EQ(interval_due(&i, 1006 * S), TRIGGER_REQUEST);
        CHECK_EQ(interval_due(&i, 1106 * S), TRIGGER_REQUEST);
        interval_began(&i, 1107 * S);
        CHECK_EQ(interval_due(&i, 1107 * S), TRIGGER_NONE);
}

static bool near(double a, double b)
{
        return a - b < 1e-9 && b - a < 1e-9;
}

/* The paper's own numbers: 16 KiB blocks, MD5. */
static void test_diff_equations(void)
{
        struct diff_costs c = {.hash = 3.92e-5, .write = 1.35e-3};
        double ratio = c.hash / c.write;
        CHECK(ratio > 0.029 && ratio < 0.0291);
        CHECK(near(diff_saving(100, 40, &c), 60 * c.write));
        CHECK(near(diff_overhead(100, 40, &c), 140 * c.hash));
        CHECK(near(diff_cost(0.4, &c),
                   (diff_overhead(100, 40, &c) - diff_saving(100, 40, &c)) / 100));
        CHECK(near(diff_relative(0.4, &c), diff_cost(0.4, &c) / c.write));
        /* LULESH at 3 %: "about 94 %"; xPic A at 50 %: "about 46 %". */
        CHECK(diff_relative(0.03, &c) > -0.945 && diff_relative(0.03, &c) < -0.935);
        CHECK(diff_relative(0.5, &c) > -0.46 && diff_relative(0.5, &c) < -0.45);
        CHECK(near(diff_cost(diff_threshold(&c), &c), 0));
        CHECK(near(diff_relative(1, &c), 2 * ratio));
        struct diff_costs none = {.hash = 0};
        CHECK(near(diff_threshold(&none), 0));
}

static struct diff_work work_of(double total, double touched, double changed)
{
        struct diff_work w = {.total = 0};
        struct diff_region r = {total, touched, changed, .compared = true, .hashed = true};
        diff_add(&w, &r);
        return w;
}

static void test_diff_time(void)
{
        struct diff_costs c = {
                .hash = 2, .copy = 1, .first_copy = 3, .rehash = 1, .write = 10, .fixed = 100};
        struct diff_work with = work_of(80, 50, 20);
        struct diff_work without = diff_without(80, true);
        CHECK(near(diff_time(&with, &c), 100 + 50 * 2 + 20 * 2 + 20 * 10));
        CHECK(near(diff_time(&without, &c), 100 + 80 * 4 + 80 * 10));
        c.overlaps = true;
        CHECK(near(diff_time(&with, &c), 100 + 200));
        with = work_of(80, 80, 1);
        CHECK(near(diff_time(&with, &c), 100 + 162));
        without = diff_without(80, false);
        c.overlaps = false;
        CHECK(near(diff_time(&without, &c), 100 + 80 * 13));
}

/* Each kind of work, by itself, takes what it costs, and more of it takes longer: whether the
 * medium works meanwhile or not. Handing over is part of writing, unless the medium works
 * meanwhile. */
static void test_diff_terms(void)
{
        struct diff_costs c = {.hash = 2,
                               .copy = 3,
                               .first_copy = 5,
                               .rehash = 7,
                               .submit = 11,
                               .write = 13,
                               .fixed = 17};
        for (int overlaps = 0; overlaps < 2; overlaps++) {
                c.overlaps = overlaps;
                struct diff_work none = {.total = 1};
                struct diff_work work[] = {{.compared = 1},
                                           {.copied = 1},
                                           {.first_copied = 1},
                                           {.rehashed = 1},
                                           {.written = 1}};
                const double takes[] = {c.hash, c.copy, c.first_copy, c.rehash, c.write};
                CHECK(near(diff_time(&none, &c), c.fixed));
                for (size_t i = 0; i < ARRAY_LEN(work); i++)
                        CHECK(near(diff_time(&work[i], &c), c.fixed + takes[i]));
        }
        /* The processor and the medium at once: the slower one counts, and handing over is work of
         * the processor. */
        struct diff_work w = {.compared = 4, .written = 1};
        CHECK(near(diff_time(&w, &c), c.fixed + 4 * c.hash + c.submit));
        w.compared = 0.5;
        CHECK(near(diff_time(&w, &c), c.fixed + c.write));
        c.submit = 14;
        CHECK(near(diff_time(&w, &c), c.fixed + 0.5 * c.hash + c.submit));
        c.overlaps = false;
        CHECK(near(diff_time(&w, &c), c.fixed + 0.5 * c.hash + c.write));
}

/* What is not hashed takes no time to hash: without checksums only what is compared is. */
static void test_diff_without_checksums(void)
{
        struct diff_work w = {.total = 0};
        struct diff_region compared = {100, 60, 20, .compared = true, .hashed = true};
        struct diff_region plain = {1000, 300, 300, .compared = false, .hashed = false};
        struct diff_costs c = {
                .hash = 2, .copy = 1, .first_copy = 3, .rehash = 9, .write = 10, .known = true};
        diff_add(&w, &plain);
        CHECK(near(w.rehashed, 0) && near(w.first_copied, 300) && near(w.written, 300));
        CHECK(near(diff_expect(MODEL_BELAY, &w, false, &c).time, 300 * 13));
        CHECK(near(diff_expect(MODEL_BELAY, &w, false, &c).full, 1000 * 13));
        CHECK(near(diff_expect(MODEL_BELAY, &w, true, &c).full, 1000 * 22));
        diff_add(&w, &compared);
        CHECK(near(w.rehashed, 20) && near(w.written, 320) && near(w.compared, 60));
        CHECK(near(w.total, 1100) && near(w.compared_total, 100));
        plain.hashed = true;
        diff_add(&w, &plain);
        CHECK(near(w.rehashed, 320));
}

/* The paper's model of a commit is its equations: S is equation 5, whatever was touched. */
static void test_diff_fti(void)
{
        struct diff_costs c = {.hash = 3.92e-5, .write = 1.35e-3, .rehash = 7, .known = true};
        for (double changed = 0; changed <= 100; changed += 10) {
                struct diff_work w = work_of(100, changed, changed);
                struct diff_times t = diff_expect(MODEL_FTI, &w, true, &c);
                CHECK(near(t.full, 100 * c.write));
                CHECK(near(t.time - t.full, 100 * diff_cost(changed / 100, &c)));
                CHECK(near(t.time / t.full - 1, diff_relative(changed / 100, &c)));
        }
        /* What is not compared is written in full and not hashed. */
        struct diff_work w = work_of(100, 50, 10);
        struct diff_region plain = {100, 30, 30, .compared = false, .hashed = true};
        diff_add(&w, &plain);
        struct diff_times t = diff_expect(MODEL_FTI, &w, true, &c);
        CHECK(near(t.full, 200 * c.write));
        CHECK(near(t.time, 110 * c.write + 110 * c.hash));
        /* All that was hashed was copied before: its time stands for the other. */
        struct diff_costs copies = {.rehash = c.hash, .write = c.write, .known = true};
        CHECK(near(diff_expect(MODEL_FTI, &w, true, &copies).time, t.time));
        /* Nothing is said before a write was measured. */
        c.write = 0;
        t = diff_expect(MODEL_FTI, &w, true, &c);
        CHECK(near(t.time, 0) && near(t.full, 0));
        c.write = 1;
        c.known = false;
        t = diff_expect(MODEL_FTI, &w, true, &c);
        CHECK(near(t.time, 0) && near(t.full, 0));
}

static void test_diff_learn(void)
{
        struct diff_costs c = {.overlaps = true};
        struct diff_sample s = {.hash = {200, 1000},
                                .copy = {100, 1000},
                                .rehash = {50, 1000},
                                .flush_ns = 4e6,
                                .wait_ns = 3e6,
                                .written = 2 << 20,
                                .fixed_ns = 5000};
        diff_learn(&c, &s);
        CHECK(c.known && near(c.copy, 0.1) && near(c.hash, 0.2) && near(c.rehash, 0.05));
        CHECK(near(c.fixed, 5000) && near(c.first_copy, 0));
        CHECK(near(c.write, 4e6 / (2 << 20)));
        s.hash.ns = 600;
        diff_learn(&c, &s);
        CHECK(near(c.hash, 0.3));
        /* Nobody waited: the medium was not the slow one, and may be faster than that. */
        double before = c.write;
        s.wait_ns = 0;
        s.flush_ns = 8e6;
        diff_learn(&c, &s);
        CHECK(near(c.write, before));
        s.flush_ns = 2e6;
        diff_learn(&c, &s);
        CHECK(c.write < before && c.write > 2e6 / (2 << 20));
        /* Too little was written to say anything. */
        before = c.write;
        s.written = 1000;
        s.wait_ns = 2e6;
        diff_learn(&c, &s);
        CHECK(near(c.write, before));
}

static void outcome(struct diff_choice *d, uint64_t model, const struct diff_costs *c,
                    bool checksums, double changed, bool compared)
{
        struct diff_region r = {100, 100, changed, .compared = compared, .hashed = true};
        diff_outcome(d, model, &r, checksums, c);
}

/* What costs little more than writing everything is not given up. */
static void test_diff_choice(void)
{
        struct diff_costs c = {
                .hash = 5, .copy = 1, .first_copy = 1, .rehash = 5, .write = 10, .known = true};
        struct diff_choice d;
        diff_begin(&d);
        struct diff_costs cheap = c;
        cheap.hash = cheap.rehash = 1;
        for (int i = 0; i < 20; i++) {
                CHECK(diff_next(&d));
                outcome(&d, MODEL_BELAY, &cheap, true, 100, true);
        }
        /* What costs more, it is given up after two bad versions in a row, and tried again. */
        diff_begin(&d);
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 100, false); /* the first one */
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 100, true);
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 10, true); /* pays: 100 * 6 + 10 * 10 */
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 90, true);
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 90, true);
        unsigned off = 0;
        while (!diff_next(&d))
                off++;
        CHECK_EQ(off, 7);
        outcome(&d, MODEL_BELAY, &c, false, 100, false);
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 100, true); /* one bad version ends a trial */
        for (off = 0; !diff_next(&d); off++)
                ;
        CHECK_EQ(off, 15);
        outcome(&d, MODEL_BELAY, &c, false, 100, false);
        CHECK(diff_next(&d));
        outcome(&d, MODEL_BELAY, &c, false, 5, true);
        for (int i = 0; i < 20; i++) {
                CHECK(diff_next(&d));
                outcome(&d, MODEL_BELAY, &c, false, 5, true);
        }
}

/* How many versions in a row are compared, if so much changes in each. */
static unsigned compared_of(uint64_t model, const struct diff_costs *c, double changed)
{
        struct diff_choice d;
        unsigned n = 0;
        diff_begin(&d);
        while (n < 10 && diff_next(&d)) {
                outcome(&d, model, c, true, changed, true);
                n++;
        }
        return n;
}

/* The same costs, two models: by the paper's, a hash that is half as fast as the medium pays up to
 * a change of a third (equation 4); by ours further, since a full one is hashed as well.
 */
static void test_diff_model_decides(void)
{
        struct diff_costs c = {.hash = 5, .rehash = 5, .write = 10, .known = true};
        CHECK(near(diff_threshold(&c), 1.0 / 3));
        CHECK_EQ(compared_of(MODEL_FTI, &c, 33), 10);
        CHECK_EQ(compared_of(MODEL_FTI, &c, 34), 2);
        CHECK_EQ(compared_of(MODEL_BELAY, &c, 34), 10);
        CHECK_EQ(compared_of(MODEL_BELAY, &c, 70), 10);
        CHECK_EQ(compared_of(MODEL_BELAY, &c, 80), 2);
        /* Without a measured write there is no decision. */
        c.write = 0;
        CHECK_EQ(compared_of(MODEL_FTI, &c, 100), 10);
}

/* With diff = on the choice is not asked, whatever it says: what changed is still noted, for the
 * prediction of the next version. */
static void test_diff_share_follows(void)
{
        struct diff_costs c = {.hash = 5, .rehash = 5, .write = 10, .known = true};
        struct diff_choice d;
        diff_begin(&d);
        for (int i = 0; i < 4; i++)
                outcome(&d, MODEL_FTI, &c, true, 100, true);
        CHECK(!d.on && near(d.share, 1) && near(d.same, 0));
        outcome(&d, MODEL_FTI, &c, true, 20, true);
        CHECK(near(d.share, 0.2) && near(d.same, 0.8));
        outcome(&d, MODEL_FTI, &c, true, 90, false);
        CHECK(near(d.share, 0.2));
}

static void test_precopy_threshold(void)
{
        /* 400 MB at 400 MB/s before a checkpoint every 40 s. */
        CHECK_EQ(precopy_threshold(40 * UINT64_C(1000000000), 400e6, 2.5),
                 39 * UINT64_C(1000000000));
        CHECK_EQ(precopy_threshold(1000, 2000, 1), 0);
        CHECK_EQ(precopy_threshold(1000, 0, 1), 1000);
        CHECK_EQ(precopy_threshold(0, 0, 0), 0);
}

/* One interval in which a chunk is modified at these times. */
static void observe(struct forecast *f, const uint64_t *times, unsigned count)
{
        for (unsigned i = 0; i < count; i++)
                forecast_modified(f, times[i], 10);
        forecast_next(f, true);
}

static void test_forecast(void)
{
        struct forecast f = {.known = false};
        const uint64_t three[] = {100, 200, 300};
        CHECK(!forecast_over(&f, 1000, 0)); /* nothing is known */
        observe(&f, three, 3);
        CHECK(!forecast_over(&f, 0, 50));
        for (unsigned i = 0; i < 3; i++) { /* by number */
                CHECK(!forecast_over(&f, three[i], 50));
                forecast_modified(&f, three[i], 10);
                forecast_modified(&f, three[i] + 5, 10); /* the same one */
        }
        CHECK(forecast_near(&f));
        CHECK(forecast_over(&f, 306, 50));
        forecast_next(&f, true);
        forecast_modified(&f, 100, 10); /* by time: two have become one */
        CHECK(!forecast_over(&f, 340, 50));
        CHECK(forecast_over(&f, 356, 50));
        /* The worse of two intervals counts. */
        forecast_next(&f, true);
        forecast_modified(&f, 100, 10);
        CHECK(!forecast_over(&f, 110, 50));
        forecast_next(&f, true);
        forecast_modified(&f, 100, 10);
        CHECK(forecast_over(&f, 110, 50));
}

/* What was not observed is believed for some intervals, and then tried again. */
static void test_forecast_unobserved(void)
{
        struct forecast f = {.known = false};
        const uint64_t late[] = {900};
        observe(&f, late, 1);
        unsigned held = 0;
        while (!forecast_over(&f, 500, 10) && held < 100) {
                forecast_next(&f, false);
                held++;
        }
        CHECK(held > 4 && held < 20);
}

int main(void)
{
        RUN(test_nothing_asked);
        RUN(test_interval);
        RUN(test_failed_counts);
        RUN(test_wall_clock);
        RUN(test_wall_clock_margin_grows);
        RUN(test_wall_clock_is_the_last);
        RUN(test_overhead_alone);
        RUN(test_overhead_stretches_interval);
        RUN(test_overhead_extremes);
        RUN(test_requests_and_signals);
        RUN(test_diff_equations);
        RUN(test_diff_time);
        RUN(test_diff_terms);
        RUN(test_diff_without_checksums);
        RUN(test_diff_fti);
        RUN(test_diff_learn);
        RUN(test_diff_choice);
        RUN(test_diff_model_decides);
        RUN(test_diff_share_follows);
        RUN(test_precopy_threshold);
        RUN(test_forecast);
        RUN(test_forecast_unobserved);
        return 0;
}
