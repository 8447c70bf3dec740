/* stats_file.c: one line of JSON per version, appended to the file of the option `stats_file`.
 *
 * A line is one write at the end of the file, so several processes may share it. A write that fails
 * is logged once; a line that got there in part is ended before the next. */
#include "api/api_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 4096

#define FIELD(name)                                                                                \
        {                                                                                          \
#name, offsetof(struct belay_stats, name)                                          \
        }
/* Those of `last_` describe one version and are left out for one that failed. */
static const struct {
        const char *key;
        size_t offset;
} fields[] = {
        FIELD(checkpoints),       FIELD(checkpoints_failed), FIELD(restarts),
        FIELD(regions),           FIELD(region_bytes),       FIELD(total_written),
        FIELD(pool_bytes),        FIELD(pool_used),          FIELD(memory_bytes),
        FIELD(memory_peak),       FIELD(memory_budget),      FIELD(last_blocked_ns),
        FIELD(last_commit_ns),    FIELD(last_wait_ns),       FIELD(last_written),
        FIELD(last_data),         FIELD(last_unchanged),     FIELD(last_units),
        FIELD(last_dirty),        FIELD(last_direct),        FIELD(last_ahead),
        FIELD(last_ahead_missed), FIELD(last_patches),       FIELD(last_waits),
        FIELD(last_cows),         FIELD(last_avoided),       FIELD(last_after),
        FIELD(last_faults),       FIELD(last_scanned),       FIELD(last_copied),
        FIELD(last_copy_peak),    FIELD(last_compared),      FIELD(last_predicted_ns),
        FIELD(last_full_ns),      FIELD(last_early),         FIELD(last_early_missed),
        FIELD(last_zeros),        FIELD(copy_version),       FIELD(copy_taken),
        FIELD(copy_failed),       FIELD(copy_written),       FIELD(copy_data),
        FIELD(pool_ahead),
};
/* size and version are no fields; a new field of belay_stats must be added above. */
_Static_assert(sizeof(struct belay_stats) == sizeof(size_t) + (ARRAY_LEN(fields) + 1) * 8,
               "the table of fields is not complete");

/* The option may name a pool by mistake: this context's or that of another one. */
static bool is_pool(const char *path)
{
        int fd = plat->openat(PLAT_CWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
        bool pool = fd >= 0 && pool_recognize(fd);
        if (fd >= 0)
                (void)plat->close(fd);
        return pool;
}

void stats_file_open(struct stats_file *f, const char *path)
{
        f->fd = -1;
        if (path[0] == '\0')
                return;
        if (is_pool(path)) {
                log_emit(BELAY_LOG_WARN, "statistics are not written to '%s': it is a pool", path);
                return;
        }
        /* O_NONBLOCK: a FIFO without a reader must not hold the program up; it is refused below. */
        int fd = plat->openat(PLAT_CWD, path,
                              O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                              0600);
        struct plat_stat st;
        int rc = fd < 0 ? fd : plat->fstat(fd, &st);
        if (rc >= 0 && !st.regular)
                rc = -EINVAL;
        if (rc >= 0) {
                f->fd = fd;
                return;
        }
        char shown[200];
        log_emit(BELAY_LOG_WARN, "statistics cannot be written to '%s': %s",
                 printable(path, shown, sizeof(shown)), code_text(rc));
        if (fd >= 0)
                (void)plat->close(fd);
}

struct line {
        char text[LINE_BYTES];
        size_t used;
};

PRINTF_LIKE(2, 3) static void put(struct line *l, const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(l->text + l->used, sizeof(l->text) - l->used, fmt, args);
        va_end(args);
        l->used += n > 0 ? min_u64((uint64_t)n, sizeof(l->text) - 1 - l->used) : 0;
}

static void put_number(struct line *l, const char *key, uint64_t value)
{
        put(l, "\"%s\":%llu,", key, (unsigned long long)value);
}

/* Texts of errors may hold a path, and so any byte: what is not plain ASCII becomes '?'. */
static void put_text(struct line *l, const char *key, const char *value)
{
        put(l, "\"%s\":\"", key);
        for (const char *p = value; *p != '\0' && l->used + 4 < sizeof(l->text) / 2; p++) {
                if (*p == '"' || *p == '\\')
                        l->text[l->used++] = '\\';
                l->text[l->used++] = (char)(*p < ' ' || *p > '~' ? '?' : *p);
        }
        put(l, "\",");
}

static void fill(struct line *l, const struct belay_stats *stats, const struct version_status *s,
                 const char *trigger)
{
        bool published = s->state == STATE_PUBLISHED;
        put(l, "{");
        put_number(l, "time_ns", plat->wall_ns());
        put_number(l, "pid", (uint64_t)plat->process_id());
        put_number(l, "version", s->version);
        put_text(l, "state", published ? "published" : "failed");
        put_text(l, "trigger", trigger);
        if (!published)
                put_text(l, "error", s->text);
        for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
                uint64_t value;
                if (!published && strncmp(fields[i].key, "last_", 5) == 0)
                        continue;
                memcpy(&value, (const char *)stats + fields[i].offset, sizeof(value));
                put_number(l, fields[i].key, value);
        }
        /* The last comma. */
        l->used--;
        put(l, "}\n");
}

void stats_file_add(struct stats_file *f, const struct belay_stats *stats,
                    const struct version_status *s, const char *trigger)
{
        struct line l = {.used = 0};
        if (f->fd < 0)
                return;
        if (f->torn)
                l.text[l.used++] = '\n';
        fill(&l, stats, s, trigger);
        int64_t n = plat->append(f->fd, l.text, l.used);
        if (n == (int64_t)l.used) {
                f->torn = false;
                return;
        }
        f->torn = f->torn || n > 0;
        if (!f->complained)
                log_emit(BELAY_LOG_WARN, "statistics cannot be written: %s",
                         code_text(n < 0 ? (int)n : -ENOSPC));
        f->complained = true;
}

void stats_file_close(struct stats_file *f)
{
        if (f->fd >= 0)
                (void)plat->close(f->fd);
        f->fd = -1;
}
