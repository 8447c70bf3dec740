/* diff.c: does it pay to write only what changed?
 *
 * The equations are those of Keller and Bautista-Gomez, "Application-Level Differential
 * Checkpointing for HPC Applications with Dynamic Datasets", section VI. There everything is
 * hashed, what changed twice, and it is written while nothing else happens. Here only what the
 * tracker reports is hashed; the second hash, of the copy that is written, finds it in a cache and
 * is the checksum as well; and a medium may write while the next blocks are hashed. diff_time says
 * what that comes to. The option `diff_model` says which of the two decides. */
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

void diff_add(struct diff_work *w, const struct diff_region *r)
{
        double written = r->compared ? r->changed : r->touched;
        w->total += r->total;
        w->compared_total += r->compared ? r->total : 0;
        w->compared += r->compared ? r->touched : 0;
        w->copied += r->compared ? written : 0;
        w->first_copied += r->compared ? 0 : written;
        w->rehashed += r->hashed ? written : 0;
        w->written += written;
}

struct diff_work diff_without(double total, bool checksums)
{
        struct diff_work w = {.total = 0};
        struct diff_region r = {.total = total, .touched = total, .hashed = checksums};
        diff_add(&w, &r);
        return w;
}

/* T_0, the time of a full checkpoint, plus equation 2 minus equation 1. Regions that are not
 * compared are written in full. Where everything changes, blocks are hashed only as copies: that
 * time has to do. */
static struct diff_times expect_fti(const struct diff_work *w, const struct diff_costs *c)
{
        struct diff_costs own = {.hash = c->hash > 0 ? c->hash : c->rehash, .write = c->write};
        double full = w->total * own.write;
        double more = diff_overhead(w->compared_total, w->copied, &own) -
                      diff_saving(w->compared_total, w->copied, &own);
        return (struct diff_times){full + more, full};
}

struct diff_times diff_expect(uint64_t model, const struct diff_work *w, bool checksums,
                              const struct diff_costs *c)
{
        if (!c->known || (model == MODEL_FTI && c->write == 0))
                return (struct diff_times){0, 0};
        if (model == MODEL_FTI)
                return expect_fti(w, c);
        struct diff_work full = diff_without(w->total, checksums);
        return (struct diff_times){diff_time(w, c), diff_time(&full, c)};
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

#define MARGIN      0.10 /* less than that is no reason to write everything; FTI has none */
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

void diff_try(struct diff_choice *d)
{
        if (!d->on)
                d->left = 1;
}

void diff_saw_zeros(struct diff_choice *d, double total, double put, double zeros)
{
        if (total > 0)
                d->zeros = (d->zeros * (total - put) + zeros) / total;
}

void diff_outcome(struct diff_choice *d, uint64_t model, const struct diff_region *r,
                  bool checksums, const struct diff_costs *c)
{
        if (r->total <= 0 || !r->compared)
                return;
        d->share = r->changed / r->total;
        d->same = r->touched > 0 ? 1 - r->changed / r->touched : 0;
        if (!d->on) /* compared all the same: nobody asked */
                return;
        struct diff_work w = {.total = 0};
        diff_add(&w, r);
        struct diff_times t = diff_expect(model, &w, checksums, c);
        if (t.time <= t.full * (1 + (model == MODEL_FTI ? 0 : MARGIN))) {
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
