/* advise_failures.c: files of --failures.
 *
 * A line is `TIME local|remote`, TIME in seconds since any epoch, or as an ISO 8601 date. The time
 * that was watched goes from the earliest line to the latest. `TIME start` and `TIME end` stand for
 * no failure and only stretch it; if the earliest line is a failure, watching began with it, and it
 * is not counted: a count over the time between two failures that includes both is one too high. */
#include "advise.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum event { EVENT_LOCAL, EVENT_REMOTE, EVENT_START, EVENT_END, EVENTS };

struct watch {
        double first, last;
        enum event opened_by;
        uint64_t lines, count[EVENTS];
};

/* All times as UTC: only differences count. */
static bool parse_date(const char *text, double *seconds)
{
        static const char *const forms[] = {"%Y-%m-%d",          "%Y-%m-%dT%H:%M",
                                            "%Y-%m-%d %H:%M",    "%Y-%m-%dT%H:%M:%S",
                                            "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"};
        for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
                struct tm tm = {.tm_mday = 1};
                const char *end = strptime(text, forms[i], &tm);
                if (end && *end == '\0') {
                        *seconds = (double)timegm(&tm);
                        return true;
                }
        }
        return false;
}

static bool parse_stamp(const char *text, double *seconds)
{
        char *end;
        double n = strtod(text, &end);
        if (end != text && *end == '\0' && isfinite(n)) {
                *seconds = n;
                return true;
        }
        return parse_date(text, seconds);
}

static bool parse_event(const char *word, enum event *out)
{
        static const char *const words[EVENTS] = {"local", "remote", "start", "end"};
        for (unsigned i = 0; i < EVENTS; i++)
                if (strcmp(word, words[i]) == 0) {
                        *out = (enum event)i;
                        return true;
                }
        return false;
}

/* The last word is the event, what stands before it the time. */
static bool parse_line(char *line, double *seconds, enum event *event)
{
        char *space = strrchr(line, ' ');
        if (!space || !parse_event(space + 1, event))
                return false;
        while (space > line && space[-1] == ' ')
                space--;
        *space = '\0';
        return parse_stamp(line, seconds);
}

static void add(struct watch *w, double seconds, enum event event)
{
        if (w->lines == 0 || seconds < w->first) {
                w->first = seconds;
                w->opened_by = event;
        }
        if (w->lines == 0 || seconds > w->last)
                w->last = seconds;
        w->lines++;
        w->count[event]++;
}

static void trim(char *line)
{
        line[strcspn(line, "#\r\n")] = '\0';
        for (char *p = line; *p != '\0'; p++)
                if (*p == '\t')
                        *p = ' ';
        size_t n = strlen(line);
        while (n > 0 && line[n - 1] == ' ')
                line[--n] = '\0';
        memmove(line, line + strspn(line, " "), n - strspn(line, " ") + 1);
}

static enum status take_line(const struct lines *l, size_t bytes, struct watch *w)
{
        double seconds;
        enum event event;
        bool text = strlen(l->line) == bytes;
        trim(l->line);
        if (text && l->line[0] == '\0')
                return FINE;
        if (!text || !parse_line(l->line, &seconds, &event))
                return complain("'%s', line %llu: expected a time in seconds or a date such as "
                                "2025-03-01T10:15:02, and local, remote, start or end",
                                l->path, (unsigned long long)l->number);
        add(w, seconds, event);
        return FINE;
}

enum status failures_load(const char *path, struct failures *out)
{
        struct lines l;
        struct watch w = {.lines = 0};
        size_t n = 1;
        enum status status = lines_open(&l, path);
        while (status == FINE && n > 0) {
                status = lines_next(&l, &n);
                if (status == FINE && n > 0)
                        status = take_line(&l, n, &w);
        }
        lines_close(&l);
        if (status != FINE)
                return status;
        if (!(w.last > w.first))
                return complain("'%s' covers no time: --failures needs two lines or more, at "
                                "different times",
                                path);
        if (!isfinite(w.last - w.first))
                return complain("'%s': its times lie too far apart", path);
        w.count[w.opened_by]--;
        *out = (struct failures){.local = w.count[EVENT_LOCAL],
                                 .remote = w.count[EVENT_REMOTE],
                                 .seconds = w.last - w.first};
        return FINE;
}
