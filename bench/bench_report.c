/* bench_report.c: the same figures as a table for people and as JSON for programs. */
#include "bench_int.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_KEYS 16

const char *bytes_text(uint64_t bytes, char *buf, size_t room)
{
        static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
        unsigned u = 0;
        while (bytes && bytes % 1024 == 0 && u + 1 < ARRAY_LEN(unit)) {
                bytes /= 1024;
                u++;
        }
        snprintf(buf, room, "%llu %s", (unsigned long long)bytes, unit[u]);
        return buf;
}

/* ---- table ----------------------------------------------------------------------------------- */

struct keys {
        const char *list[MAX_KEYS];
        unsigned count;
};

/* Rows of one experiment may have different parameters: each key is a column. */
static struct keys keys_of(const struct bench *b)
{
        struct keys keys = {.count = 0};
        for (unsigned i = 0; i < b->row_count; i++)
                for (unsigned k = 0; k < b->rows[i].param_count; k++) {
                        const char *key = b->rows[i].params[k].key;
                        unsigned at = 0;
                        while (at < keys.count && strcmp(keys.list[at], key) != 0)
                                at++;
                        if (at == keys.count && at < MAX_KEYS)
                                keys.list[keys.count++] = key;
                }
        return keys;
}

static const char *param_text(const struct bench_row *row, const char *key, char *buf, size_t room)
{
        for (unsigned k = 0; k < row->param_count; k++) {
                const struct param *p = &row->params[k];
                if (strcmp(p->key, key) != 0)
                        continue;
                if (!p->plain)
                        return p->text ? p->text : bytes_text(p->bytes, buf, room);
                snprintf(buf, room, "%llu", (unsigned long long)p->bytes);
                return buf;
        }
        return "";
}

static const char *number_text(double value, char *buf, size_t room)
{
        int digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
        snprintf(buf, room, "%.*f", digits, value);
        return buf;
}

static void table_row(const struct bench_row *row, const struct keys *keys, FILE *out)
{
        char a[32];
        char b[32];
        char c[32];
        fprintf(out, "%-24s", row->name);
        for (unsigned k = 0; k < keys->count; k++)
                fprintf(out, " %-9s", param_text(row, keys->list[k], a, sizeof(a)));
        struct spread s = spread_of(row->samples, row->sample_count);
        fprintf(out, " %8s %8s %8s  %-6s %6u", number_text(s.median, a, sizeof(a)),
                number_text(s.min, b, sizeof(b)), number_text(s.max, c, sizeof(c)), row->unit,
                row->sample_count);
        if (row->cpu_count)
                fprintf(out, " %9.2f", spread_of(row->cpu, row->cpu_count).median);
        fputc('\n', out);
}

/* What the rows of a line have in common: all parameters but the figure. */
static bool is_common(const struct param *p)
{
        return strcmp(p->key, "figure") != 0;
}

static void table_lines(const struct bench *b, FILE *out)
{
        char buf[32];
        for (unsigned i = 0; i < b->line_count; i++) {
                const struct line *l = &b->lines[i];
                const struct bench_row *row = l->rows[0];
                if (i == 0) {
                        fprintf(out, "\n%-24s", "medians beside each other");
                        for (unsigned k = 0; k < row->param_count; k++)
                                if (is_common(&row->params[k]))
                                        fprintf(out, " %-9s", row->params[k].key);
                        for (unsigned k = 0; k < l->count; k++)
                                fprintf(out, " %12s",
                                        param_text(l->rows[k], "figure", buf, sizeof(buf)));
                        fputc('\n', out);
                }
                fprintf(out, "%-24s", row->name);
                for (unsigned k = 0; k < row->param_count; k++)
                        if (is_common(&row->params[k]))
                                fprintf(out, " %-9s",
                                        param_text(row, row->params[k].key, buf, sizeof(buf)));
                for (unsigned k = 0; k < l->count; k++)
                        fprintf(out, " %10.1f %s", bench_median(l->rows[k]), row->unit);
                fputc('\n', out);
        }
}

static void table_ratios(const struct bench *b, FILE *out)
{
        if (b->ratio_count == 0)
                return;
        fprintf(out, "\n%-34s %8s %8s %8s  %s\n", "ratio, round by round", "median", "min", "max",
                "wanted");
        for (unsigned i = 0; i < b->ratio_count; i++) {
                const struct ratio *r = &b->ratios[i];
                fprintf(out, "%-46s %8.3f %8.3f %8.3f", r->name, r->value.median, r->value.min,
                        r->value.max);
                if (r->wanted > 0)
                        fprintf(out, "  %s %.2f", r->most ? "<=" : ">=", r->wanted);
                fputc('\n', out);
        }
}

void report_table(const struct bench *b, FILE *out)
{
        struct machine m;
        char memory[32];
        machine_describe(&b->options, &m);
        fprintf(out, "%s: %s, %ld cores, %s, Linux %s, hash %s, disk %s, memory %s\n\n",
                b->experiment->name, m.cpu, m.cores,
                bytes_text(m.memory_bytes / MIB * MIB, memory, sizeof(memory)), m.kernel,
                hash_isa(), m.dir_fs, m.memory_fs);
        struct keys keys = keys_of(b);
        fprintf(out, "%-24s", "what");
        for (unsigned k = 0; k < keys.count; k++)
                fprintf(out, " %-9s", keys.list[k]);
        fprintf(out, " %8s %8s %8s  %-6s %6s %9s\n", "median", "min", "max", "unit", "rounds",
                "cpu s/GiB");
        for (unsigned i = 0; i < b->row_count; i++)
                table_row(&b->rows[i], &keys, out);
        table_lines(b, out);
        table_ratios(b, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_text(FILE *f, const char *text)
{
        fputc('"', f);
        for (const char *p = text; *p; p++) {
                if (*p == '"' || *p == '\\')
                        fprintf(f, "\\%c", *p);
                else if ((unsigned char)*p < 0x20)
                        fprintf(f, "\\u%04x", (unsigned)(unsigned char)*p);
                else
                        fputc(*p, f);
        }
        fputc('"', f);
}

/* JSON has no words for infinity and "not a number". */
static void json_number(FILE *f, double value)
{
        if (isfinite(value))
                fprintf(f, "%.6g", value);
        else
                fputs("null", f);
}

static void json_field(FILE *f, const char *key, double value)
{
        fputs(", ", f);
        json_text(f, key);
        fputs(": ", f);
        json_number(f, value);
}

static void json_param(FILE *f, const struct param *p)
{
        fputs(", ", f);
        json_text(f, p->key);
        fputs(": ", f);
        if (p->text)
                json_text(f, p->text);
        else
                fprintf(f, "%llu", (unsigned long long)p->bytes);
}

static void json_lines(FILE *f, const struct bench *b)
{
        char buf[32];
        if (b->line_count == 0)
                return;
        fputs("  \"beside\": [", f);
        for (unsigned i = 0; i < b->line_count; i++) {
                const struct line *l = &b->lines[i];
                fputs(i ? ",\n    {\"name\": " : "\n    {\"name\": ", f);
                json_text(f, l->rows[0]->name);
                for (unsigned k = 0; k < l->rows[0]->param_count; k++)
                        if (is_common(&l->rows[0]->params[k]))
                                json_param(f, &l->rows[0]->params[k]);
                for (unsigned k = 0; k < l->count; k++)
                        json_field(f, param_text(l->rows[k], "figure", buf, sizeof(buf)),
                                   bench_median(l->rows[k]));
                fputs("}", f);
        }
        fputs("\n  ],\n", f);
}

static void json_row(FILE *f, const struct bench_row *row)
{
        fputs("{\"name\": ", f);
        json_text(f, row->name);
        for (unsigned k = 0; k < row->param_count; k++)
                json_param(f, &row->params[k]);
        fputs(", \"unit\": ", f);
        json_text(f, row->unit);
        struct spread s = spread_of(row->samples, row->sample_count);
        json_field(f, "median", s.median);
        json_field(f, "min", s.min);
        json_field(f, "max", s.max);
        fprintf(f, ", \"rounds\": %u", row->sample_count);
        if (row->cpu_count)
                json_field(f, "cpu_s_per_gib", spread_of(row->cpu, row->cpu_count).median);
        fputs(", \"samples\": [", f);
        for (unsigned i = 0; i < row->sample_count; i++) {
                fputs(i ? ", " : "", f);
                json_number(f, row->samples[i]);
        }
        fputs("]}", f);
}

/* Length of the object's name in "object.field", 0 for a field of the summary itself. */
static size_t group_of(const char *name)
{
        const char *dot = strchr(name, '.');
        return dot ? (size_t)(dot - name) : 0;
}

static bool same_group(const char *a, const char *b)
{
        size_t group = group_of(a);
        return group == group_of(b) && memcmp(a, b, group) == 0;
}

static void json_ratio(FILE *f, const struct ratio *r, bool first)
{
        size_t group = group_of(r->name);
        const char *field = r->name + group + (group ? 1 : 0);
        fprintf(f, "%s\n    \"%s\": ", first ? "" : ",", field);
        json_number(f, r->value.median);
        fprintf(f, ", \"%s_spread\": [", field);
        json_number(f, r->value.min);
        fputs(", ", f);
        json_number(f, r->value.max);
        fputc(']', f);
}

/* All ratios of the object that number `first` is the first one of. */
static void json_group(FILE *f, const struct bench *b, unsigned first)
{
        for (unsigned i = first; i < b->ratio_count; i++)
                if (same_group(b->ratios[i].name, b->ratios[first].name))
                        json_ratio(f, &b->ratios[i], i == first);
}

/* A ratio may come between those of an object: each object is written once. */
static void json_summary(FILE *f, const struct bench *b)
{
        bool any = false;
        fputs("  \"summary\": {", f);
        for (unsigned i = 0; i < b->ratio_count; i++) {
                const char *name = b->ratios[i].name;
                unsigned before = 0;
                while (before < i && !same_group(b->ratios[before].name, name))
                        before++;
                if (before < i)
                        continue;
                fputs(any ? "," : "", f);
                if (group_of(name))
                        fprintf(f, "\n    \"%.*s\": {", (int)group_of(name), name);
                json_group(f, b, i);
                fputs(group_of(name) ? "}" : "", f);
                any = true;
        }
        fputs("\n  },\n", f);
}

static void json_machine(FILE *f, const struct bench *b)
{
        struct machine m;
        machine_describe(&b->options, &m);
        fputs("  \"machine\": {\"cpu\": ", f);
        json_text(f, m.cpu);
        fprintf(f, ", \"cores\": %ld, \"memory_bytes\": %llu, \"kernel\": ", m.cores,
                (unsigned long long)m.memory_bytes);
        json_text(f, m.kernel);
        fputs(", \"hash_isa\": ", f);
        json_text(f, hash_isa());
        fputs(", \"dir_fs\": ", f);
        json_text(f, m.dir_fs);
        fputs(", \"memory_dir_fs\": ", f);
        json_text(f, m.memory_fs);
        fputs("},\n", f);
}

static int file_error(const char *path)
{
        return bench_fail("%s: %s", path, strerror(errno));
}

int report_check(const char *path)
{
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : file_error(path);
        bool pool = pool_recognize(fd);
        close(fd);
        return pool ? bench_fail("%s is a Belay pool; it is not replaced by a report", path) : 0;
}

static int write_json(const struct bench *b, const char *path)
{
        FILE *f = fopen(path, "w");
        if (!f)
                return file_error(path);
        fputs("{\n  \"experiment\": ", f);
        json_text(f, b->experiment->name);
        fprintf(f, ",\n  \"quick\": %s,\n  \"version\": ", b->options.quick ? "true" : "false");
        json_text(f, belay_version_text());
        fputs(",\n", f);
        json_machine(f, b);
        json_summary(f, b);
        json_lines(f, b);
        fputs("  \"rows\": [", f);
        for (unsigned i = 0; i < b->row_count; i++) {
                fputs(i ? ",\n    " : "\n    ", f);
                json_row(f, &b->rows[i]);
        }
        fputs("\n  ]\n}\n", f);
        bool bad = ferror(f) != 0;
        bad |= fclose(f) != 0;
        return bad ? file_error(path) : 0;
}

/* A report that cannot be written leaves the one before as it was. What is no regular file
 * (/dev/stdout) is written as it is. */
int report_json(const struct bench *b, const char *path)
{
        char fresh[BENCH_PATH_BYTES];
        struct stat st;
        if (report_check(path))
                return -1;
        if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
                return write_json(b, path);
        if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
                return bench_fail("%s: the path is too long", path);
        int rc = write_json(b, fresh);
        if (rc == 0 && rename(fresh, path))
                rc = file_error(path);
        if (rc)
                (void)unlink(fresh);
        return rc;
}
