/* cli_epochs.c: files of the option stats_file.
 *
 * Each line is one flat JSON object of numbers and texts. A line that is not (torn by a full disk,
 * or written by something else) is counted and passed over. */
#include "cli.h"
#include <errno.h>
#include <stdlib.h>

#define MOST_EPOCHS 1000000u /* some 200 bytes of memory each, and their lines */

static const char *const keys[FIELDS] = {
        "version",        "last_blocked_ns",   "last_commit_ns", "last_wait_ns",   "last_written",
        "last_unchanged", "last_units",        "last_dirty",     "last_ahead",     "last_waits",
        "last_cows",      "last_avoided",      "last_after",     "last_copy_peak", "last_data",
        "last_compared",  "last_predicted_ns", "last_full_ns"};

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

/* TROUBLE after a complaint. */
static enum status add_line(struct epochs *all, const char *path, char *line, size_t bytes)
{
        struct epoch e = {.line = NULL};
        if (strlen(line) != bytes || !parse(line, &e)) {
                all->foreign += *skip_space(line) != '\0' || line[0] == '\0';
                return FINE;
        }
        if (all->count == MOST_EPOCHS)
                return complain("'%s' has more than %u checkpoints; give a part of it, for "
                                "instance its last lines",
                                path, MOST_EPOCHS);
        if (all->count == all->capacity) {
                all->capacity = all->capacity ? 2 * all->capacity : 64;
                all->list = must_resize(all->list, all->capacity * sizeof(*all->list));
        }
        line[strcspn(line, "\r\n")] = '\0';
        e.line = must_alloc(strlen(line) + 1);
        memcpy(e.line, line, strlen(line) + 1);
        all->list[all->count++] = e;
        return FINE;
}

static enum status load(const char *path, struct epochs *all)
{
        struct lines l;
        size_t n = 1;
        enum status status = lines_open(&l, path);
        while (status == FINE && n > 0) {
                status = lines_next(&l, &n);
                if (status == FINE && n > 0)
                        status = add_line(all, path, l.line, n);
        }
        lines_close(&l);
        return status;
}

enum status epochs_load(const char *path, struct epochs *out)
{
        enum status status = load(path, out);
        if (status == FINE && out->count == 0 && out->foreign)
                return complain("'%s' is no file of statistics (option stats_file)", path);
        if (status != FINE || !out->foreign)
                return status;
        (void)complain("'%s': %zu lines are no statistics and were passed over", path,
                       out->foreign);
        return FOUND;
}

void epochs_clear(struct epochs *all)
{
        for (size_t i = 0; i < all->count; i++)
                free(all->list[i].line);
        free(all->list);
}
