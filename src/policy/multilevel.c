/* multilevel.c: how long a run takes that checkpoints locally often and remotely now and then.
 *
 * Two models of the same run:
 *
 *   eq1_*         Kannan, Gavrilovska, Schwan, Milojicic, "Optimizing Checkpoints Using NVM as
 *                 Virtual Memory", section III. A failure costs half an interval or half a segment,
 *                 and no failure hits a restart: right as long as failures are rare.
 *   multilevel_*  the expectation itself, if local failures come with a constant rate a and remote
 *                 ones with b, at any time, λ = a + b in all.
 *
 * The second one, step by step. A segment is `every` stages of length w = I + t_lcl and one of
 * length o_rmt, at the end of which the remote checkpoint can be used. After a local failure and a
 * local restart the stage begins again, after a remote failure and a remote restart the segment. A
 * failed local restart is repeated, or becomes a remote one. A remote restart is repeated whatever
 * hits it: until it ends, the local checkpoints are not back.
 *
 * With A = a/λ, B = b/λ, p = exp(-λw), q = exp(-λ R_lcl), a stage is passed without a remote
 * failure with probability c. Either it succeeds, or a local failure and a local restart lead back
 * to its beginning, so that
 *
 *      c = p + (1-p) A r c     where r = q + (1-q) A r  is the chance of a local restart
 *      1/c = 1 + B (1/p - 1) / (B + qA)
 *
 * C, the product over all stages, is the chance to pass the segment. Remote failures have rate b
 * whatever goes on, so an attempt lasts (1-C)/b on average. There are 1/C attempts, and all but the
 * last are followed by a remote restart, which takes ρ = (exp(λ R_rmt) - 1)/λ with its repetitions:
 *
 *      E = (1/C - 1) (1/b + ρ)
 *
 * For b → 0 and every = 1 this is Daly's exp(R/M) M (exp((I + t)/M) - 1). */
#include "policy/policy.h"
#include <math.h>

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool is_length(double x)
{
        return x > 0 && isfinite(x);
}

static bool is_cost(double x)
{
        return x >= 0 && isfinite(x);
}

const char *multilevel_wrong(const struct multilevel *m)
{
        if (!is_length(m->compute))
                return "the computing time must be more than 0";
        if (!is_length(m->interval))
                return "the interval must be more than 0";
        if (!(m->every >= 1 && m->every <= MULTILEVEL_MOST_EVERY) || m->every != floor(m->every))
                return "a remote checkpoint must come with every 1st to 1048576th local one";
        /* With free checkpoints no interval would be best. */
        if (!is_length(m->local_cost))
                return "the cost of a local checkpoint must be more than 0";
        if (!is_cost(m->remote_cost))
                return "the cost of a remote checkpoint must be 0 or more";
        if (!is_cost(m->restart_local) || !is_cost(m->restart_remote))
                return "the time of a restart must be 0 or more";
        if (!(m->mtbf_local > 0) || !(m->mtbf_remote > 0))
                return "the time between failures must be more than 0";
        return NULL;
}

/* ---- the expectation ------------------------------------------------------------------------- */

struct rates {
        double local, remote, all;
        double ready; /* B + qA */
};

static struct rates rates_of(const struct multilevel *m)
{
        struct rates r = {.local = 1 / m->mtbf_local, .remote = 1 / m->mtbf_remote, .ready = 1};
        r.all = r.local + r.remote;
        if (r.all > 0)
                r.ready = (r.remote + r.local * exp(-r.all * m->restart_local)) / r.all;
        return r;
}

/* Expected time until a piece of this length succeeds that begins again after every failure. */
static double repeated(const struct rates *r, double length)
{
        return r->all > 0 ? expm1(r->all * length) / r->all : length;
}

/* (1/c - 1) / b of a stage. Stays finite for b → 0, and is then the time it takes. */
static double stage(const struct rates *r, double length)
{
        return length > 0 ? repeated(r, length) / r->ready : 0;
}

/* E, for one segment. */
static double segment(const struct multilevel *m, const struct rates *r)
{
        double local = stage(r, m->interval + m->local_cost);
        double remote = stage(r, m->remote_cost);
        if (r->remote == 0)
                return m->every * local + remote;
        double attempts = m->every * log1p(r->remote * local) + log1p(r->remote * remote);
        return expm1(attempts) * (1 / r->remote + repeated(r, m->restart_remote));
}

double multilevel_total(const struct multilevel *m)
{
        if (multilevel_wrong(m))
                return NAN;
        struct rates r = rates_of(m);
        return m->compute / (m->every * m->interval) * segment(m, &r);
}

double multilevel_efficiency(const struct multilevel *m)
{
        return m->compute / multilevel_total(m);
}

double multilevel_segment(const struct multilevel *m)
{
        return m->every * (m->interval + m->local_cost) + m->remote_cost;
}

/* How far a piece of this length had come on average when a failure ended it. */
static double progress(const struct rates *r, double length)
{
        double x = r->all * length;
        /* The difference below would be all rounding. */
        if (x < 1e-5)
                return length / 2;
        return 1 / r->all - length / expm1(x);
}

/* Failures have their rates whatever goes on, so the time in one state gives the number of failures
 * there, and that the time in the next. */
void multilevel_parts(const struct multilevel *m, double share[PARTS])
{
        for (unsigned i = 0; i < PARTS; i++)
                share[i] = 0;
        struct rates r = rates_of(m);
        double total = multilevel_wrong(m) ? NAN : segment(m, &r);
        if (!isfinite(total))
                return;
        double remote = r.remote * repeated(&r, m->restart_remote);
        double restart_remote = total * remote / (1 + remote);
        double tried = r.all > 0 ? -expm1(-r.all * m->restart_local) / r.all : 0;
        double restart_local = r.local * (total - restart_remote) * tried;
        double stages = total - restart_remote - restart_local;
        double last = repeated(&r, m->remote_cost);
        double again = r.local * ((stages - last) * progress(&r, m->interval + m->local_cost) +
                                  last * progress(&r, m->remote_cost));
        share[PART_COMPUTE] = m->every * m->interval / total;
        share[PART_LOCAL] = m->every * m->local_cost / total;
        share[PART_REMOTE] = m->remote_cost / total;
        share[PART_RESTART_LOCAL] = restart_local / total;
        share[PART_RESTART_REMOTE] = restart_remote / total;
        share[PART_AGAIN_LOCAL] = again / total;
        share[PART_AGAIN_REMOTE] = fmax(0, (stages - multilevel_segment(m) - again) / total);
}

/* ---- equation 1 ------------------------------------------------------------------------------ */

/* N_lcl. The paper prints T_compute / MTBF_lcl, one checkpoint per failure; that is the case
 * I = MTBF_lcl, and would leave no I to choose. */
static double checkpoints(const struct multilevel *m)
{
        return m->compute / m->interval;
}

double eq1_local(const struct multilevel *m)
{
        return multilevel_wrong(m) ? NAN : checkpoints(m) * m->local_cost;
}

double eq1_remote(const struct multilevel *m)
{
        return multilevel_wrong(m) ? NAN : checkpoints(m) / m->every * m->remote_cost;
}

double eq1_lost_local(const struct multilevel *m)
{
        double failures = m->compute / m->mtbf_local;
        return multilevel_wrong(m)
                       ? NAN
                       : failures * (m->restart_local + (m->interval + m->local_cost) / 2);
}

double eq1_lost_remote(const struct multilevel *m, double total)
{
        double failures = total / m->mtbf_remote;
        double again = m->every * (m->interval + m->local_cost) / 2;
        return multilevel_wrong(m) ? NAN : failures * (m->restart_remote + again);
}

/* F_rmt counts failures over T_total, which stands on both sides. If a failure takes as long as the
 * next one is away, there is no solution. */
double eq1_total(const struct multilevel *m)
{
        double rest = m->compute + eq1_local(m) + eq1_remote(m) + eq1_lost_local(m);
        double left = 1 - eq1_lost_remote(m, 1);
        return left <= 0 ? INFINITY : rest / left;
}

/* ---- one level ------------------------------------------------------------------------------- */

double young_interval(double cost, double mtbf)
{
        return is_length(cost) && mtbf > 0 ? sqrt(2 * cost * mtbf) : NAN;
}

/* Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps". */
double daly_interval(double cost, double mtbf)
{
        if (!is_length(cost) || !(mtbf > 0))
                return NAN;
        if (cost >= 2 * mtbf)
                return mtbf;
        double x = sqrt(cost / (2 * mtbf));
        return sqrt(2 * cost * mtbf) * (1 + x / 3 + x * x / 9) - cost;
}
