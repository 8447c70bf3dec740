/* forecast.c: when memory is copied before the checkpoint that needs it (NVM-checkpoints, section
 * IV).
 *
 * A chunk is copied when its last modification before the checkpoint is over. How often and until
 * when it was modified in the intervals before tells which one that is:
 *
 *     begin ─► modified × n ─► n as expected, or later than expected ─► over ─► copied
 *                   ▲                                                     │
 *                   └────────────── modified again: a miss ◄──────────────┘
 *
 * A miss costs a copy in vain, nothing else. */
#include "policy/policy.h"

/* Intervals for which a forecast holds that cannot be checked: nothing was copied. */
#define HELD 8u

uint64_t precopy_threshold(uint64_t interval_ns, double bytes, double ns_per_byte)
{
        double needed = bytes * ns_per_byte;
        return needed < (double)interval_ns ? interval_ns - (uint64_t)needed : 0;
}

void forecast_modified(struct forecast *f, uint64_t at_ns, uint64_t apart_ns)
{
        if (f->seen == 0 || at_ns - f->last_ns >= apart_ns)
                f->seen++;
        f->last_ns = at_ns;
}

bool forecast_near(const struct forecast *f)
{
        return f->known && f->expected > 0 && f->seen + 1 >= f->expected;
}

bool forecast_over(const struct forecast *f, uint64_t now_ns, uint64_t slack_ns)
{
        return f->known && (f->seen >= f->expected || now_ns > f->expected_ns + slack_ns);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
        return a > b ? a : b;
}

/* The worse of two intervals counts: what is copied in vain costs more than what is left over. */
void forecast_next(struct forecast *f, bool observed)
{
        if (!observed && f->known && f->held < HELD) {
                f->held++;
                f->seen = 0;
                return;
        }
        *f = (struct forecast){
                .known = true,
                .expected = larger(f->seen, f->before),
                .expected_ns = max_u64(f->last_ns, f->before_ns),
                .before = f->seen,
                .before_ns = f->last_ns,
        };
}
