/* cmd_stats.c: belay stats: what checkpoints cost, from a file of the option stats_file. */
#include "cli.h"

/* ---- showing ------------------------------------------------------------------------------- */

struct summary {
        uint64_t published, failed, total[FIELDS], most[FIELDS];
};

static void sum_up(const struct epochs *all, struct summary *s)
{
        *s = (struct summary){.published = 0};
        for (size_t i = 0; i < all->count; i++) {
                const struct epoch *e = &all->list[i];
                s->published += e->published;
                s->failed += !e->published;
                for (unsigned k = 0; k < FIELDS && e->published; k++) {
                        s->total[k] += e->value[k];
                        s->most[k] = max_u64(s->most[k], e->value[k]);
                }
        }
}

static uint64_t mean(const struct summary *s, enum field k)
{
        return s->published ? s->total[k] / s->published : 0;
}

static void print_row(struct table *t, const struct epoch *e)
{
        static const enum field counts[] = {UNITS, DIRTY, AHEAD, WAITS, COWS, AVOIDED, AFTER};
        if (e->value[VERSION])
                table_cell(t, "%llu", (unsigned long long)e->value[VERSION]);
        else
                table_cell(t, "-");
        table_cell(t, "%s", e->published ? "published" : "FAILED");
        table_cell(t, "%s", e->trigger);
        for (unsigned k = BLOCKED; k <= WAITED; k++)
                table_cell(t, "%s", e->published ? duration_text(e->value[k]).s : "-");
        for (unsigned k = PREDICTED; k <= FULL; k++)
                table_cell(t, "%s",
                           e->published && e->value[k] ? duration_text(e->value[k]).s : "-");
        for (unsigned k = WRITTEN; k <= UNCHANGED; k++)
                table_cell(t, "%s", e->published ? size_text(e->value[k]).s : "-");
        for (unsigned k = 0; k < ARRAY_LEN(counts); k++)
                if (e->published)
                        table_cell(t, "%llu", (unsigned long long)e->value[counts[k]]);
                else
                        table_cell(t, "-");
        table_cell(t, "%s", e->published ? size_text(e->value[COPY_PEAK]).s : "-");
}

static void print_rows(const struct epochs *all)
{
        static const char *const heads[] = {
                "version",  "state",   "trigger", "blocked",   "commit", "waited",
                "expected", "in full", "written", "unchanged", "units",  "dirty",
                "ahead",    "waits",   "copies",  "avoided",   "after",  "copy peak"};
        struct table t;
        table_begin(&t, "rllrrrrrrrrrrrrrrr");
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
                table_cell(&t, "%s", heads[i]);
        for (size_t i = 0; i < all->count; i++)
                print_row(&t, &all->list[i]);
        table_end(&t);
}

static void print_table(const char *path, const struct epochs *all, const struct summary *s)
{
        if (all->count)
                print_rows(all);
        say("%s: %llu published, %llu failed", path, (unsigned long long)s->published,
            (unsigned long long)s->failed);
        if (!s->published)
                return;
        say("blocked  %s in sum, %s on average, %s at most", duration_text(s->total[BLOCKED]).s,
            duration_text(mean(s, BLOCKED)).s, duration_text(s->most[BLOCKED]).s);
        say("commit   %s on average, %s at most", duration_text(mean(s, COMMIT)).s,
            duration_text(s->most[COMMIT]).s);
        say("written  %s in sum, %s on average", size_text(s->total[WRITTEN]).s,
            size_text(mean(s, WRITTEN)).s);
}

/* The lines were parsed, so they can stand as they are. */
static void print_json(const char *path, const struct epochs *all, const struct summary *s)
{
        struct json j;
        json_begin(&j);
        json_text(&j, "file", path);
        json_open(&j, "epochs", '[');
        for (size_t i = 0; i < all->count; i++)
                json_line(&j, all->list[i].line);
        json_close(&j, ']');
        json_open(&j, "summary", '{');
        json_number(&j, "published", s->published);
        json_number(&j, "failed", s->failed);
        json_number(&j, "blocked_ns", s->total[BLOCKED]);
        json_number(&j, "blocked_ns_most", s->most[BLOCKED]);
        json_number(&j, "commit_ns_mean", mean(s, COMMIT));
        json_number(&j, "commit_ns_most", s->most[COMMIT]);
        json_number(&j, "written", s->total[WRITTEN]);
        json_close(&j, '}');
        json_end(&j);
}

static enum status run(const struct args *a)
{
        struct epochs all = {.list = NULL};
        struct summary s;
        const char *path = a->words[0];
        enum status status = epochs_load(path, &all);
        if (status != TROUBLE) {
                sum_up(&all, &s);
                if (a->given[ARG_JSON])
                        print_json(path, &all, &s);
                else
                        print_table(path, &all, &s);
        }
        epochs_clear(&all);
        return status;
}

const struct command cmd_stats = {
        .name = "stats",
        .usage = "FILE [--json]",
        .summary = "what checkpoints cost, from a file of the option stats_file",
        .help = "Shows one row per checkpoint and a summary. Times: blocked inside the call, from "
                "the freeze to\n"
                "the publication, waited for units afterwards, and how long the commit was "
                "expected "
                "to take, as\n"
                "it was and if all had been written in full. Counts are units: all, maybe changed, "
                "copied\n"
                "ahead of the program, and first writes by what they met (wait, copy, avoided, "
                "after the commit).",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .run = run,
};
