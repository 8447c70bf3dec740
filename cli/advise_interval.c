/* advise_interval.c: belay advise interval: how often to checkpoint, locally and remotely. Takes
 * the inputs of the model from options, from a program's statistics and from a history of failures;
 * policy/ has the model. */
#include "advise.h"
#include <math.h>

/* Times that were given and not counted may well be wrong by this factor. */
#define GIVEN_WITHIN 2.0

/* The options that are times, in the order of enum arg_id. */
#define TIMES (ARG_MTBF_REMOTE - ARG_LOCAL_COST + 1)

static enum status take_time(const struct args *a, enum arg_id id, double *seconds)
{
        bool failures = id == ARG_MTBF_LOCAL || id == ARG_MTBF_REMOTE;
        uint64_t ns;
        if (failures && strcmp(a->value[id], "never") == 0) {
                *seconds = INFINITY;
                return FINE;
        }
        if (time_parse(a->value[id], &ns))
                return complain("%s is '%s'; it must be a time such as 30s, 6h or 20d%s",
                                arg_name(id), a->value[id], failures ? ", or never" : "");
        if (ns == 0 && (failures || id == ARG_LOCAL_COST))
                return complain("%s is '%s'; it must be more than 0%s", arg_name(id), a->value[id],
                                failures ? ". If there are no such failures: never" : "");
        *seconds = (double)ns / 1e9;
        return FINE;
}

static enum status take_times(const struct args *a, struct multilevel *m)
{
        double *const fields[TIMES] = {&m->local_cost,     &m->remote_cost, &m->restart_local,
                                       &m->restart_remote, &m->mtbf_local,  &m->mtbf_remote};
        enum status status = FINE;
        for (unsigned i = 0; i < TIMES && status == FINE; i++)
                if (a->given[ARG_LOCAL_COST + i])
                        status = take_time(a, (enum arg_id)(ARG_LOCAL_COST + i), fields[i]);
        return status;
}

/* What the program lost with each checkpoint: inside the call, and waiting for memory after it. A
 * restart is taken to read for as long as a commit writes. */
static enum status take_measured(const struct args *a, struct multilevel *m)
{
        struct epochs all = {.list = NULL};
        enum status status = epochs_load(a->words[1], &all);
        double cost = 0;
        double commit = 0;
        double count = 0;
        for (size_t i = 0; i < all.count; i++) {
                const uint64_t *v = all.list[i].value;
                if (!all.list[i].published)
                        continue;
                cost += (double)(v[BLOCKED] + v[WAITED]) / 1e9;
                commit += (double)v[COMMIT] / 1e9;
                count++;
        }
        epochs_clear(&all);
        if (status == TROUBLE)
                return status;
        if (!(cost > 0))
                return complain("'%s' has no published checkpoint whose cost was measured: give "
                                "--local-cost instead",
                                a->words[1]);
        m->local_cost = cost / count;
        if (!a->given[ARG_RESTART_LOCAL])
                m->restart_local = fmax(cost, commit) / count;
        return status;
}

static enum status take_costs(const struct args *a, struct multilevel *m)
{
        enum status status = FINE;
        if (a->count > 1 && a->given[ARG_LOCAL_COST])
                return complain("--local-cost and '%s' both say what a local checkpoint costs: "
                                "leave one out",
                                a->words[1]);
        if (a->count > 1)
                status = take_measured(a, m);
        else if (!a->given[ARG_LOCAL_COST])
                return complain("--local-cost is missing: give it, or a file of the option "
                                "stats_file");
        if (status == TROUBLE)
                return status;
        if (!a->given[ARG_REMOTE_COST] && !isinf(m->mtbf_remote))
                return complain("--remote-cost is missing: give what a remote checkpoint delays "
                                "the program, or --mtbf-remote never");
        /* As the paper assumes: a restart takes what a checkpoint takes. */
        if (!a->given[ARG_RESTART_LOCAL] && a->count == 1)
                m->restart_local = m->local_cost;
        if (!a->given[ARG_RESTART_REMOTE])
                m->restart_remote = fmax(m->remote_cost, m->restart_local);
        return status;
}

static struct mtbf counted(uint64_t seen, double seconds)
{
        double low;
        double high;
        failures_range(seen, &low, &high);
        return (struct mtbf){.likely = seconds / failures_expected(seen),
                             .least = seconds / high,
                             .most = low > 0 ? seconds / low : INFINITY,
                             .counted = true};
}

static struct mtbf given(double mtbf, double within)
{
        return (struct mtbf){.likely = mtbf, .least = mtbf / within, .most = mtbf * within};
}

static enum status take_failures(const struct args *a, struct advice *v)
{
        struct multilevel *m = &v->choice;
        bool history = a->given[ARG_FAILURES];
        enum status status = history ? failures_load(a->value[ARG_FAILURES], &v->history) : FINE;
        if (status != FINE)
                return status;
        for (enum arg_id i = ARG_MTBF_LOCAL; i <= ARG_MTBF_REMOTE; i++)
                if (!history && !a->given[i])
                        return complain("%s is missing: give it, or a history with --failures",
                                        arg_name(i));
        /* Beside a count, what was given is taken as it is. */
        double within = history ? 1 : GIVEN_WITHIN;
        v->local = a->given[ARG_MTBF_LOCAL] ? given(m->mtbf_local, within)
                                            : counted(v->history.local, v->history.seconds);
        v->remote = a->given[ARG_MTBF_REMOTE] ? given(m->mtbf_remote, within)
                                              : counted(v->history.remote, v->history.seconds);
        m->mtbf_local = v->local.likely;
        m->mtbf_remote = v->remote.likely;
        if (isinf(m->mtbf_local) && isinf(m->mtbf_remote))
                return complain("without failures no checkpoint is needed: --mtbf-local or "
                                "--mtbf-remote must be a time");
        return FINE;
}

struct what_if advice_if(const struct advice *v, enum advice_end end)
{
        struct multilevel m = v->choice;
        m.mtbf_local = end == END_OFTEN ? v->local.least : v->local.most;
        m.mtbf_remote = end == END_OFTEN ? v->remote.least : v->remote.most;
        struct what_if w = {.best = m, .advised = multilevel_efficiency(&m)};
        /* No failures at all: the longer, the better. What was advised stands for that. */
        if (!multilevel_best(&w.best, multilevel_total))
                w.best = m;
        w.efficiency = multilevel_efficiency(&w.best);
        return w;
}

static enum status advise(struct advice *v)
{
        if (!multilevel_best(&v->choice, multilevel_total))
                return complain("no interval helps: failures come faster than a checkpoint of %s "
                                "can be taken",
                                span_text(v->choice.local_cost).s);
        for (enum advice_end i = END_OFTEN; i < ENDS; i++) {
                struct what_if w = advice_if(v, i);
                v->range_costs = fmax(v->range_costs, 100 * (w.efficiency - w.advised));
        }
        return FINE;
}

enum status advise_interval(const struct args *a)
{
        struct advice v = {.choice = {.compute = 1}};
        if (a->count > 2)
                return complain("usage: belay advise interval [STATS-FILE] [OPTIONS] [--json]");
        enum status status = take_times(a, &v.choice);
        if (status == FINE)
                status = take_failures(a, &v);
        if (status == FINE)
                status = take_costs(a, &v.choice);
        if (status != TROUBLE)
                status = worse(status, advise(&v));
        if (status == TROUBLE)
                return status;
        if (a->given[ARG_JSON])
                advice_json(&v);
        else
                advice_print(&v);
        return status;
}
