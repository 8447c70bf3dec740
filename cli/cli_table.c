/* cli_table.c: aligned columns. Cells are kept until the end, since the widest one decides. */
#include "cli.h"
#include <stdarg.h>
#include <stdlib.h>

void table_begin(struct table *t, const char *align)
{
        *t = (struct table){.align = align, .columns = strlen(align)};
}

/* Replaces what may not be shown; the text only gets shorter. */
static void make_safe(char *text)
{
        char *to = text;
        for (const char *p = text; *p != '\0';) {
                size_t n = safe_length(p);
                if (n)
                        memmove(to, p, n);
                else
                        *to = '?';
                p += n ? n : 1;
                to += n ? n : 1;
        }
        *to = '\0';
}

void table_cell(struct table *t, const char *fmt, ...)
{
        if (t->count == t->capacity) {
                t->capacity = t->capacity ? 2 * t->capacity : 64;
                t->cells = must_resize(t->cells, t->capacity * sizeof(*t->cells));
        }
        va_list args;
        va_start(args, fmt);
        char *cell;
        if (vasprintf(&cell, fmt, args) < 0)
                exit(TROUBLE);
        va_end(args);
        make_safe(cell);
        t->cells[t->count++] = cell;
}

/* Characters, not bytes: continuation bytes take no column. */
static size_t width_of(const char *text)
{
        size_t n = 0;
        for (; *text != '\0'; text++)
                n += (*text & 0xc0) != 0x80;
        return n;
}

static void print_row(const struct table *t, char *const *row, const size_t *widths)
{
        for (size_t c = 0; c < t->columns; c++) {
                size_t pad = widths[c] - width_of(row[c]);
                bool last = c + 1 == t->columns;
                if (t->align[c] == 'r')
                        printf("%*s%s", (int)pad, "", row[c]);
                else
                        printf("%s%*s", row[c], last ? 0 : (int)pad, "");
                fputs(last ? "\n" : "  ", stdout);
        }
}

void table_end(struct table *t)
{
        size_t *widths = must_alloc(t->columns * sizeof(*widths));
        memset(widths, 0, t->columns * sizeof(*widths));
        for (size_t i = 0; i < t->count; i++) {
                size_t width = width_of(t->cells[i]);
                if (width > widths[i % t->columns])
                        widths[i % t->columns] = width;
        }
        for (size_t i = 0; i + t->columns <= t->count; i += t->columns)
                print_row(t, t->cells + i, widths);
        for (size_t i = 0; i < t->count; i++)
                free(t->cells[i]);
        free(widths);
        free(t->cells);
        *t = (struct table){.align = NULL};
}
