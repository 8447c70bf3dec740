/* cmd_stats.c: belay stats: what checkpoints cost, from a file of the option stats_file.
 *
 * Each line is one flat JSON object of numbers and texts. A line that is not (torn by a full disk,
 * or written by something else) is counted and passed over. */
#include "cli.h"
#include <errno.h>
#include <stdlib.h>

enum field {
        VERSION,
        BLOCKED,
        COMMIT,
        WAITED,
        WRITTEN,
        UNCHANGED,
        UNITS,
        DIRTY,
        AHEAD,
        WAITS,
        COWS,
        AVOIDED,
        AFTER,
        COPY_PEAK,
        FIELDS
};
static const char *const keys[FIELDS] = {
        "version",        "last_blocked_ns", "last_commit_ns", "last_wait_ns",  "last_written",
        "last_unchanged", "last_units",      "last_dirty",     "last_ahead",    "last_waits",
        "last_cows",      "last_avoided",    "last_after",     "last_copy_peak"};

struct epoch {
        char *line; /* as it is in the file */
        bool published;
        char trigger[16];
        uint64_t value[FIELDS];
};
struct epochs {
        struct epoch *list;
        size_t count, capacity, foreign;
};

/* ---- reading ------------------------------------------------------------------------------- */

static const char *skip_space(const char *p)
{
        return p + strspn(p, " \r\n");
}

/* The string that begins at p, without its quotes and cut to the room; NULL if there is none. */
static const char *take_string(const char *p, char *out, size_t room)
{
        size_t n = 0;
        if (*p != '"')
                return NULL;
        for (p++; *p != '"';) {
                /* The library writes no other escapes. */
                if (*p == '\\' && p[1] != '"' && p[1] != '\\')
                        return NULL;
                p += *p == '\\';
                size_t length = safe_length(p);
                if (length == 0)
                        return NULL;
                if (n + length < room) {
                        memcpy(out + n, p, length);
                        n += length;
                }
                p += length;
        }
        out[n] = '\0';
        return p + 1;
}

static void keep_text(struct epoch *e, const char *key, const char *value)
{
        if (strcmp(key, "state") == 0)
                e->published = strcmp(value, "published") == 0;
        else if (strcmp(key, "trigger") == 0)
                snprintf(e->trigger, sizeof(e->trigger), "%s", value);
}

static const char *take_number(struct epoch *e, const char *key, const char *p)
{
        char *end;
        if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
                return NULL;
        errno = 0;
        unsigned long long n = strtoull(p, &end, 10);
        if (errno)
                return NULL;
        for (unsigned i = 0; i < FIELDS; i++)
                if (strcmp(keys[i], key) == 0)
                        e->value[i] = n;
        return end;
}

/* Whether the line is a flat object. */
static bool parse(const char *p, struct epoch *e)
{
        p = skip_space(p);
        if (*p++ != '{')
                return false;
        for (bool more = true; more; p++) {
                char key[64];
                char text[64];
                p = take_string(skip_space(p), key, sizeof(key));
                p = p ? skip_space(p) : NULL;
                if (!p || *p != ':')
                        return false;
                p = skip_space(p + 1);
                if (*p == '"') {
                        p = take_string(p, text, sizeof(text));
                        keep_text(e, key, p ? text : "");
                } else {
                        p = take_number(e, key, p);
                }
                p = p ? skip_space(p) : NULL;
                if (!p || (*p != ',' && *p != '}'))
                        return false;
                more = *p == ',';
        }
        return *skip_space(p) == '\0';
}

static void add_line(struct epochs *all, char *line, size_t bytes)
{
        struct epoch e = {.line = NULL};
        if (strlen(line) != bytes || !parse(line, &e)) {
                all->foreign += *skip_space(line) != '\0';
                return;
        }
        if (all->count == all->capacity) {
                all->capacity = all->capacity ? 2 * all->capacity : 64;
                all->list = must_resize(all->list, all->capacity * sizeof(*all->list));
        }
        line[strcspn(line, "\r\n")] = '\0';
        e.line = must_alloc(bytes + 1);
        memcpy(e.line, line, strlen(line) + 1);
        all->list[all->count++] = e;
}

static enum status load(const char *path, struct epochs *all)
{
        FILE *f = fopen(path, "re");
        if (!f)
                return complain("'%s': %s", path, code_text(-errno));
        char *line = NULL;
        size_t room = 0;
        ssize_t n;
        errno = 0;
        while ((n = getline(&line, &room, f)) >= 0)
                add_line(all, line, (size_t)n);
        int rc = ferror(f) ? -errno : 0;
        free(line);
        (void)fclose(f);
        return rc ? complain("'%s': %s", path, code_text(rc)) : FINE;
}

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
        static const char *const heads[] = {"version", "state",   "trigger", "blocked",
                                            "commit",  "waited",  "written", "unchanged",
                                            "units",   "dirty",   "ahead",   "waits",
                                            "copies",  "avoided", "after",   "copy peak"};
        struct table t;
        table_begin(&t, "rllrrrrrrrrrrrrr");
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
        enum status status = load(path, &all);
        if (status == FINE && all.count == 0 && all.foreign)
                status = complain("'%s' is no file of statistics (option stats_file)", path);
        else if (status == FINE && all.foreign) {
                (void)complain("'%s': %zu lines are no statistics and were passed over", path,
                               all.foreign);
                status = FOUND;
        }
        if (status != TROUBLE) {
                sum_up(&all, &s);
                if (a->given[ARG_JSON])
                        print_json(path, &all, &s);
                else
                        print_table(path, &all, &s);
        }
        for (size_t i = 0; i < all.count; i++)
                free(all.list[i].line);
        free(all.list);
        return status;
}

const struct command cmd_stats = {
        .name = "stats",
        .usage = "FILE [--json]",
        .summary = "what checkpoints cost, from a file of the option stats_file",
        .help = "Shows one row per checkpoint and a summary. Times: blocked inside the call, from "
                "the freeze to\n"
                "the publication, and waited for units afterwards. Counts are units: all, maybe "
                "changed, copied\n"
                "ahead of the program, and first writes by what they met (wait, copy, avoided, "
                "after the commit).",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .run = run,
};
