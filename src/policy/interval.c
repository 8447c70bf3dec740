/* interval.c: when the next checkpoint is due.
 *
 *  1. Requests and signals are served whatever the times say.
 *  2. The interval runs from the beginning of one checkpoint to that of the next, so that the time
 *     a checkpoint takes does not stretch it.
 *  3. With a cap of p percent and a checkpoint that blocked the program for c, the next one comes
 *     c · 100 / p later at the earliest: then c is p percent of that period. It also comes not
 *     before the last one could be published, since it would only wait for that. The cap stretches
 *     the interval; without an interval it alone sets the pace.
 *  4. The last checkpoint before the wall-clock limit is asked for when the margin is left, or
 *     twice what the last one took to be published if that is more. After it time asks for no
 * other.
 *  5. A failed checkpoint counts as one, or the program would do nothing but fail. */
#include "policy/policy.h"

/* Under a cap alone the first one is asked for after this time: what it costs is not known before,
 * and a program that has just begun has nothing to lose. */
#define FIRST_NS UINT64_C(10000000000)

#define HUNDRED_PERCENT UINT64_C(100000000000)

const char *trigger_text(enum trigger t)
{
        static const char *const text[] = {"",           "request",  "signal",
                                           "wall_clock", "interval", "overhead"};
        return text[t];
}

void interval_init(struct interval *i, const struct interval_options *o, uint64_t start_ns,
                   uint64_t now_ns)
{
        *i = (struct interval){.options = *o, .start_ns = start_ns, .since_ns = now_ns};
}

uint64_t interval_least(const struct interval *i)
{
        uint64_t cap = i->options.overhead;
        if (cap == 0)
                return 0;
        if (!i->known)
                return FIRST_NS;
        /* 128 bits: hours in ns times 1e11 do not fit into 64. */
        unsigned __int128 period = (unsigned __int128)i->cost_ns * HUNDRED_PERCENT / cap;
        uint64_t least = period > UINT64_MAX ? UINT64_MAX : (uint64_t)period;
        return max_u64(least, i->commit_ns);
}

/* Time since `then`; a clock that seems to run backwards gives 0. */
static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
        return now_ns > then_ns ? now_ns - then_ns : 0;
}

static bool wall_due(const struct interval *i, uint64_t now_ns)
{
        const struct interval_options *o = &i->options;
        if (o->wall_ns == 0)
                return false;
        uint64_t twice = i->commit_ns > UINT64_MAX / 2 ? UINT64_MAX : 2 * i->commit_ns;
        uint64_t margin = max_u64(o->wall_margin_ns, twice);
        uint64_t at = o->wall_ns > margin ? o->wall_ns - margin : 0;
        return since(now_ns, i->start_ns) >= at;
}

enum trigger interval_due(const struct interval *i, uint64_t now_ns)
{
        if (i->requested)
                return TRIGGER_REQUEST;
        if (i->signalled)
                return TRIGGER_SIGNAL;
        if (i->wall_done)
                return TRIGGER_NONE;
        if (wall_due(i, now_ns))
                return TRIGGER_WALL;
        uint64_t interval = i->options.interval_ns;
        uint64_t passed = since(now_ns, i->since_ns);
        /* With an interval the first one needs no measurement: the interval is a reason itself. */
        uint64_t least = interval && !i->known ? 0 : interval_least(i);
        if (interval)
                return passed >= interval && passed >= least ? TRIGGER_INTERVAL : TRIGGER_NONE;
        return i->options.overhead && passed >= least ? TRIGGER_OVERHEAD : TRIGGER_NONE;
}

void interval_began(struct interval *i, uint64_t now_ns)
{
        i->requested = false;
        i->signalled = false;
        i->wall_done = i->wall_done || wall_due(i, now_ns);
        i->since_ns = now_ns;
}

void interval_ended(struct interval *i, uint64_t blocked_ns)
{
        i->cost_ns = blocked_ns;
        i->known = true;
}

void interval_published(struct interval *i, uint64_t commit_ns, uint64_t wait_ns)
{
        i->commit_ns = commit_ns;
        i->cost_ns += wait_ns;
}

void interval_fresh(struct interval *i, uint64_t now_ns)
{
        i->since_ns = now_ns;
}
