/* diff.c: does it pay to write only what changed?
 *
 * The equations are those of Keller and Bautista-Gomez, "Application-Level Differential
 * Checkpointing for HPC Applications with Dynamic Datasets", section VI. There everything is
 * hashed, what changed twice, and it is written while nothing else happens. Here only what the
 * tracker reports is hashed; the second hash, of the copy that is written, finds it in a cache and
 * is the checksum as well; and a medium may write while the next blocks are hashed. diff_time says
 * what that comes to. */
#include "policy/policy.h"

double diff_saving(double blocks, double changed, const struct diff_costs *c)
{
        return (blocks - changed) * c->write;
}

double diff_overhead(double blocks, double changed, const struct diff_costs *c)
{
        return (blocks + changed) * c->hash;
}

double diff_cost(double share, const struct diff_costs *c)
{
        return (c->hash - c->write) + share * (c->write + c->hash);
}

double diff_threshold(const struct diff_costs *c)
{
        return c->write + c->hash > 0 ? (c->write - c->hash) / (c->write + c->hash) : 0;
}

double diff_relative(double share, const struct diff_costs *c)
{
        double ratio = c->write > 0 ? c->hash / c->write : 0;
        return ratio - 1 + share * (ratio + 1);
}

/* ---- this system ------------------------------------------------------------------------------
 */

double diff_time(const struct diff_work *w, const struct diff_costs *c)
{
        double cpu = w->compared * c->hash + w->copied * c->copy + w->first_copied * c->first_copy +
                     w->rehashed * c->rehash;
        double medium = w->written * c->write;
        if (c->overlaps)
                cpu += w->written * c->submit;
        return c->fixed + (c->overlaps ? (cpu > medium ? cpu : medium) : cpu + medium);
}

struct diff_work diff_with(double touched, double changed)
{
        return (struct diff_work){
                .compared = touched, .copied = changed, .rehashed = changed, .written = changed};
}

struct diff_work diff_without(double total, bool checksums)
{
        return (struct diff_work){
                .first_copied = total, .rehashed = checksums ? total : 0, .written = total};
}

/* A new measurement counts for a quarter: one slow write does not turn the choice round. */
#define WEIGHT 0.25

static void learn(double *mean, double ns, double bytes)
{
        if (bytes > 0)
                *mean = *mean > 0 ? *mean + WEIGHT * (ns / bytes - *mean) : ns / bytes;
}

/* A medium that works by itself and kept nobody waiting could have been faster: then the time is no
 * more than a bound. */
static void learn_medium(struct diff_costs *c, const struct diff_sample *s)
{
        learn(&c->submit, s->submit_ns, s->written);
        bool busy = !c->overlaps || s->wait_ns > s->flush_ns / 10;
        double spent = c->overlaps ? s->flush_ns : s->submit_ns + s->wait_ns;
        if (busy || c->write == 0 || spent / s->written < c->write)
                learn(&c->write, spent, s->written);
}

void diff_learn(struct diff_costs *c, const struct diff_sample *s)
{
        learn(&c->hash, s->hash.ns, s->hash.bytes);
        learn(&c->copy, s->copy.ns, s->copy.bytes);
        learn(&c->first_copy, s->first_copy.ns, s->first_copy.bytes);
        learn(&c->rehash, s->rehash.ns, s->rehash.bytes);
        learn(&c->fixed, s->fixed_ns, 1);
        if (s->written >= DIFF_LEAST_BYTES)
                learn_medium(c, s);
        c->known = c->known || s->rehash.bytes > 0 || s->first_copy.bytes > 0;
}

/* ---- the choice --------------------------------------------------------------------------------
 */

#define MARGIN      0.10 /* less than that is no reason to write everything */
#define FIRST_PAUSE 8u
#define LAST_PAUSE  64u

void diff_begin(struct diff_choice *d)
{
        *d = (struct diff_choice){.on = true, .pause = FIRST_PAUSE, .share = 1};
}

bool diff_next(struct diff_choice *d)
{
        if (!d->on && --d->left == 0) {
                /* The first version of a trial has nothing to be compared with. */
                d->on = true;
                d->against = 0;
                d->trial = true;
        }
        return d->on;
}

void diff_outcome(struct diff_choice *d, const struct diff_costs *c, bool checksums, double total,
                  double touched, double changed, bool compared)
{
        if (!d->on || total <= 0 || !compared)
                return;
        struct diff_work with = diff_with(touched, changed);
        struct diff_work without = diff_without(total, checksums);
        double t = diff_time(&with, c);
        double full = diff_time(&without, c);
        d->share = changed / total;
        d->same = touched > 0 ? 1 - changed / touched : 0;
        if (t <= full * (1 + MARGIN)) {
                d->against = 0;
                d->pause = FIRST_PAUSE;
                d->trial = false;
                return;
        }
        /* Twice in a row, so that one busy step does not count. */
        if (!d->trial && ++d->against < 2)
                return;
        d->on = false;
        d->left = d->pause;
        d->pause = d->pause * 2 < LAST_PAUSE ? d->pause * 2 : LAST_PAUSE;
        d->trial = false;
}
