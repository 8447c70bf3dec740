/* advise_words.c: the answer of belay advise interval, as text and as JSON. */
#include "advise.h"
#include <math.h>

static const struct {
        const char *text, *key;
} parts[PARTS] = {
        [PART_COMPUTE] = {"computing", "compute"},
        [PART_LOCAL] = {"local checkpoints", "local"},
        [PART_REMOTE] = {"remote checkpoints", "remote"},
        [PART_RESTART_LOCAL] = {"local restarts", "restart_local"},
        [PART_RESTART_REMOTE] = {"remote restarts", "restart_remote"},
        [PART_AGAIN_LOCAL] = {"work done again after local failures", "again_local"},
        [PART_AGAIN_REMOTE] = {"work done again after remote failures", "again_remote"},
};

/* ---- other models ---------------------------------------------------------------------------- */

enum model { MODEL_OURS, MODEL_EQ1, MODEL_YOUNG, MODEL_DALY, MODELS };
static const struct {
        const char *text, *key;
} models[MODELS] = {
        [MODEL_OURS] = {"this model", "belay"},
        [MODEL_EQ1] = {"NVM-checkpoints, equation 1", "equation_1"},
        [MODEL_YOUNG] = {"Young, each level alone", "young"},
        [MODEL_DALY] = {"Daly, each level alone", "daly"},
};

/* What a model would advise. False if it has no answer. */
static bool chosen_by(enum model model, const struct advice *v, struct multilevel *m)
{
        *m = v->choice;
        if (model == MODEL_EQ1)
                return multilevel_best(m, eq1_total);
        if (model != MODEL_OURS)
                multilevel_alone(m, model == MODEL_YOUNG ? young_interval : daly_interval);
        return !multilevel_wrong(m);
}

static double eq1_efficiency(const struct multilevel *m)
{
        return m->compute / eq1_total(m);
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *ordinal(double n)
{
        unsigned last = (unsigned)fmod(n, 100);
        if (last >= 11 && last <= 13)
                return "th";
        return last % 10 == 1 ? "st" : last % 10 == 2 ? "nd" : last % 10 == 3 ? "rd" : "th";
}

static bool no_remote(const struct multilevel *m)
{
        return isinf(m->mtbf_remote);
}

static void say_choice(const struct multilevel *m)
{
        double period = m->interval + m->local_cost;
        int digits = period >= 100 ? 0 : period >= 1 ? 1 : 6;
        say("Take a local checkpoint after %s of computing (interval = %.*fs).",
            span_text(m->interval).s, digits, period);
        if (no_remote(m))
                say("Remote checkpoints are not needed: nothing would ever be read from them.");
        else if (m->every == 1)
                say("Take each of them remotely as well.");
        else
                say("Take every %.0f%s of them remotely as well: one each %s.", m->every,
                    ordinal(m->every), span_text(multilevel_segment(m)).s);
        say("Then %.2f %% of the time is spent on computing.", 100 * multilevel_efficiency(m));
}

static void print_parts(const struct multilevel *m)
{
        double share[PARTS];
        struct table t;
        multilevel_parts(m, share);
        table_begin(&t, "lr");
        table_cell(&t, "time goes to");
        table_cell(&t, "share");
        for (unsigned i = 0; i < PARTS; i++) {
                table_cell(&t, "%s", parts[i].text);
                table_cell(&t, "%.2f %%", 100 * share[i]);
        }
        table_end(&t);
}

static void choice_cells(struct table *t, const struct multilevel *m)
{
        table_cell(t, "%s", span_text(m->interval).s);
        if (no_remote(m))
                table_cell(t, "never");
        else
                table_cell(t, "%.0f%s", m->every, ordinal(m->every));
        table_cell(t, "%.2f %%", 100 * multilevel_efficiency(m));
}

static void print_models(const struct advice *v)
{
        static const char *const heads[] = {"chosen by", "local", "remote every", "efficiency"};
        struct table t;
        table_begin(&t, "lrrr");
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
                table_cell(&t, "%s", heads[i]);
        for (enum model i = MODEL_OURS; i < MODELS; i++) {
                struct multilevel m;
                table_cell(&t, "%s", models[i].text);
                if (chosen_by(i, v, &m))
                        choice_cells(&t, &m);
                else
                        for (int k = 0; k < 3; k++)
                                table_cell(&t, "-");
        }
        table_end(&t);
        double eq1 = eq1_efficiency(&v->choice);
        if (eq1 > 0)
                say("The efficiency is this model's; equation 1 expects %.2f %% for the first row.",
                    100 * eq1);
        else
                say("The efficiency is this model's; equation 1 has no solution for the first "
                    "row.");
}

static void say_counted(const char *kind, uint64_t seen, const struct mtbf *b)
{
        if (!b->counted)
                return;
        say("%llu %s %s seen: one in %s, with 90 %% confidence in %s to %s.",
            (unsigned long long)seen, kind, seen == 1 ? "failure" : "failures",
            span_text(b->likely).s, span_text(b->least).s, span_text(b->most).s);
}

static void print_range(const struct advice *v)
{
        static const char *const given[ENDS] = {"twice as often", "half as often"};
        static const char *const counted[ENDS] = {"as often as they may", "as seldom as they may"};
        const char *const *ends = v->history.seconds > 0 ? counted : given;
        static const char *const heads[] = {"if failures come", "local MTBF",   "remote MTBF",
                                            "best local",       "remote every", "efficiency",
                                            "as advised"};
        struct table t;
        table_begin(&t, "lrrrrrr");
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
                table_cell(&t, "%s", heads[i]);
        for (enum advice_end i = END_OFTEN; i < ENDS; i++) {
                struct what_if w = advice_if(v, i);
                table_cell(&t, "%s", ends[i]);
                table_cell(&t, "%s", span_text(w.best.mtbf_local).s);
                table_cell(&t, "%s", span_text(w.best.mtbf_remote).s);
                choice_cells(&t, &w.best);
                table_cell(&t, "%.2f %%", 100 * w.advised);
        }
        table_end(&t);
        if (v->range_costs < 0.5)
                say("Within this range the advice costs at most %.2f points: it need not be more "
                    "exact.",
                    v->range_costs);
        else
                say("Within this range the advice costs up to %.2f points: it pays to know better "
                    "how often failures come.",
                    v->range_costs);
}

void advice_print(const struct advice *v)
{
        if (v->history.seconds > 0)
                say("The history covers %s.", span_text(v->history.seconds).s);
        say_counted("local", v->history.local, &v->local);
        say_counted("remote", v->history.remote, &v->remote);
        say_choice(&v->choice);
        say("%s", "");
        print_parts(&v->choice);
        say("%s", "");
        print_models(v);
        say("%s", "");
        print_range(v);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_choice(struct json *j, const struct multilevel *m)
{
        json_real(j, "interval_s", m->interval);
        json_real(j, "every", no_remote(m) ? INFINITY : m->every);
        json_real(j, "remote_interval_s", no_remote(m) ? INFINITY : multilevel_segment(m));
        json_real(j, "efficiency", multilevel_efficiency(m));
}

static void json_inputs(struct json *j, const struct advice *v)
{
        const struct multilevel *m = &v->choice;
        json_open(j, "inputs", '{');
        json_real(j, "local_cost_s", m->local_cost);
        json_real(j, "remote_cost_s", m->remote_cost);
        json_real(j, "restart_local_s", m->restart_local);
        json_real(j, "restart_remote_s", m->restart_remote);
        json_real(j, "mtbf_local_s", m->mtbf_local);
        json_real(j, "mtbf_remote_s", m->mtbf_remote);
        json_close(j, '}');
        if (!(v->history.seconds > 0))
                return;
        json_open(j, "history", '{');
        json_real(j, "seconds", v->history.seconds);
        json_number(j, "local", v->history.local);
        json_number(j, "remote", v->history.remote);
        json_close(j, '}');
}

static void json_models(struct json *j, const struct advice *v)
{
        json_open(j, "models", '[');
        for (enum model i = MODEL_OURS; i < MODELS; i++) {
                struct multilevel m;
                if (!chosen_by(i, v, &m))
                        continue;
                json_open(j, NULL, '{');
                json_text(j, "model", models[i].key);
                json_choice(j, &m);
                json_close(j, '}');
        }
        json_close(j, ']');
        json_real(j, "equation_1_efficiency", eq1_efficiency(&v->choice));
}

static void json_range(struct json *j, const struct advice *v)
{
        json_open(j, "range", '[');
        for (enum advice_end i = END_OFTEN; i < ENDS; i++) {
                struct what_if w = advice_if(v, i);
                json_open(j, NULL, '{');
                json_real(j, "mtbf_local_s", w.best.mtbf_local);
                json_real(j, "mtbf_remote_s", w.best.mtbf_remote);
                json_choice(j, &w.best);
                json_real(j, "efficiency_as_advised", w.advised);
                json_close(j, '}');
        }
        json_close(j, ']');
}

void advice_json(const struct advice *v)
{
        double share[PARTS];
        struct json j;
        multilevel_parts(&v->choice, share);
        json_begin(&j);
        json_inputs(&j, v);
        json_choice(&j, &v->choice);
        json_open(&j, "shares", '{');
        for (unsigned i = 0; i < PARTS; i++)
                json_real(&j, parts[i].key, share[i]);
        json_close(&j, '}');
        json_models(&j, v);
        json_range(&j, v);
        json_end(&j);
}
