/* failures.c: how many failures are to be expected, from how many were seen. Their number is taken
 * to have a Poisson distribution. */
#include "policy/policy.h"
#include <math.h>

#define TAIL 0.05 /* on either side of the range */

/* The chance of no more than `most` failures, if `expected` are expected. */
static double at_most(uint64_t most, double expected)
{
        double sum = 0;
        double log_term = -expected;
        for (uint64_t k = 0; k <= most; k++) {
                if (k > 0)
                        log_term += log(expected / (double)k);
                sum += exp(log_term);
        }
        return sum;
}

/* The expectation with which at_most(most, …) is `chance`; it falls with the expectation. */
static double expectation(uint64_t most, double chance)
{
        double low = 0;
        double high = 2 * (double)most + 10;
        for (int i = 0; i < 50; i++) {
                double middle = (low + high) / 2;
                if (at_most(most, middle) > chance)
                        low = middle;
                else
                        high = middle;
        }
        return (low + high) / 2;
}

void failures_range(uint64_t seen, double *low, double *high)
{
        *low = seen ? expectation(seen - 1, 1 - TAIL) : 0;
        *high = expectation(seen, TAIL);
}

double failures_expected(uint64_t seen)
{
        return seen ? (double)seen : expectation(0, 0.5);
}
