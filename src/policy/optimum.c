/* optimum.c: the intervals that make a run shortest.
 *
 * For a given number of local checkpoints per remote one, the total is h(I)/I with h convex and
 * h(0) > 0, or for equation 1 such a function over one that falls linearly: it has one minimum, and
 * where it overflows to INFINITY it does so to the right of it. Golden section finds it. Over the
 * number of checkpoints it has one minimum for every I, too; powers of two are tried first, so that
 * nothing depends on that. */
#include "policy/policy.h"
#include <math.h>

typedef double total_fn(const struct multilevel *m);

#define GOLDEN 0.6180339887498949
#define STEPS  70 /* 0.618^70 · ln(1e14) is below 1e-12 */

/* The best interval lies between these multiples of the time between failures of any kind: it is
 * about sqrt(2 t M), and no more than M unless the checkpoints take longer than that. */
#define LEAST 1e-12
#define MOST  100.0

static double at(struct multilevel *m, total_fn *total, double log_interval)
{
        m->interval = exp(log_interval);
        return total(m);
}

/* Sets the interval; the least total. */
static double best_interval(struct multilevel *m, total_fn *total)
{
        double between = 1 / (1 / m->mtbf_local + 1 / m->mtbf_remote);
        double low = log(LEAST * between);
        double high = log(MOST * between);
        double left = high - GOLDEN * (high - low);
        double right = low + GOLDEN * (high - low);
        double left_total = at(m, total, left);
        double right_total = at(m, total, right);
        for (int i = 0; i < STEPS; i++) {
                if (left_total <= right_total) {
                        high = right;
                        right = left;
                        right_total = left_total;
                        left = high - GOLDEN * (high - low);
                        left_total = at(m, total, left);
                } else {
                        low = left;
                        left = right;
                        left_total = right_total;
                        right = low + GOLDEN * (high - low);
                        right_total = at(m, total, right);
                }
        }
        return at(m, total, (low + high) / 2);
}

static double with_every(struct multilevel *m, total_fn *total, double every)
{
        m->every = every;
        return best_interval(m, total);
}

static double best_power(struct multilevel *m, total_fn *total)
{
        double found = 1;
        double least = with_every(m, total, 1);
        for (uint32_t every = 2; every <= (uint32_t)MULTILEVEL_MOST_EVERY; every *= 2) {
                double t = with_every(m, total, every);
                if (t < least) {
                        least = t;
                        found = every;
                }
        }
        return found;
}

static void best_every(struct multilevel *m, total_fn *total)
{
        double power = best_power(m, total);
        double low = fmax(1, power / 2);
        double high = fmin(MULTILEVEL_MOST_EVERY, power * 2);
        while (high > low) {
                double middle = floor((low + high) / 2);
                if (with_every(m, total, middle) <= with_every(m, total, middle + 1))
                        high = middle;
                else
                        low = middle + 1;
        }
        (void)with_every(m, total, low);
}

bool multilevel_best(struct multilevel *m, double (*total)(const struct multilevel *m))
{
        m->interval = 1;
        m->every = 1;
        if (multilevel_wrong(m) || (isinf(m->mtbf_local) && isinf(m->mtbf_remote)))
                return false;
        best_every(m, total);
        return isfinite(total(m));
}

void multilevel_alone(struct multilevel *m, double (*formula)(double cost, double mtbf))
{
        m->every = 1;
        if (isinf(m->mtbf_local)) {
                m->interval = formula(m->local_cost + m->remote_cost, m->mtbf_remote);
                return;
        }
        m->interval = formula(m->local_cost, m->mtbf_local);
        /* A remote checkpoint that costs nothing comes with each local one. */
        if (m->remote_cost > 0)
                m->every =
                        fmin(MULTILEVEL_MOST_EVERY,
                             fmax(1, round(formula(m->remote_cost, m->mtbf_remote) / m->interval)));
}
