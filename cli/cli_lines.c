/* cli_lines.c: files of text that a command reads to its end: statistics, histories of failures.
 *
 * Any file may be named, also a pipe, a device or a hole of a terabyte, so what is read is bounded:
 * the length of a line and the length of the whole. */
#include "cli.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LINE_BYTES (64u << 10)  /* the library writes lines of 4 KiB at most */
#define MOST_BYTES (256u << 20) /* some 200 000 lines of statistics          */

static enum status too_large(const struct lines *l)
{
        return complain("'%s' is larger than %u MiB; give a part of it, for instance its last "
                        "lines",
                        l->path, MOST_BYTES >> 20);
}

enum status lines_open(struct lines *l, const char *path)
{
        struct stat st;
        *l = (struct lines){.path = path, .file = fopen(path, "re")};
        if (!l->file)
                return complain("'%s': %s", path, code_text(-errno));
        if (fstat(fileno(l->file), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > MOST_BYTES)
                return too_large(l);
        l->line = must_alloc(LINE_BYTES + 1);
        return FINE;
}

enum status lines_next(struct lines *l, size_t *bytes)
{
        size_t n = 0;
        int c = 0;
        errno = 0;
        while (n < LINE_BYTES && c != '\n' && (c = getc_unlocked(l->file)) != EOF)
                l->line[n++] = (char)c;
        if (c == EOF && ferror(l->file))
                return complain("'%s': %s", l->path, code_text(errno ? -errno : -EIO));
        l->line[n] = '\0';
        l->number += n > 0;
        l->bytes += n;
        *bytes = n;
        if (n == LINE_BYTES && c != '\n')
                return complain("'%s', line %llu: it is longer than %u bytes; this is no text file",
                                l->path, (unsigned long long)l->number, LINE_BYTES);
        return l->bytes > MOST_BYTES ? too_large(l) : FINE;
}

void lines_close(struct lines *l)
{
        if (l->file)
                (void)fclose(l->file);
        free(l->line);
}
