/* export_file.c: a file that appears under its name complete, or not at all: written under a
 * temporary name in the same directory, made durable, then renamed. An interrupt removes the
 * temporary file. A file that is a pool is not replaced, whoever may be using it. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)

static char *volatile unfinished; /* for the signal handler */

static void on_interrupt(int number)
{
        if (unfinished)
                (void)unlink(unfinished);
        (void)signal(number, SIG_DFL);
        (void)raise(number);
}

/* The user's wish to ignore a signal (nohup) is kept. */
static void catch_interrupts(void)
{
        static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
                if (signal(numbers[i], on_interrupt) == SIG_IGN)
                        (void)signal(numbers[i], SIG_IGN);
}

/* A pool may have several names, and may be in use under any of them: its content tells. */
static enum status check_replaced(const char *path)
{
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return complain("'%s' exists and cannot be read, so it may be a pool: %s", path,
                                code_text(-errno));
        bool pool = belay_reader_recognize(fd) > 0;
        (void)close(fd);
        return pool ? complain("'%s' is a Belay pool; it is not replaced, also with --force. Give "
                               "another name, or remove it",
                               path)
                    : FINE;
}

static enum status check_target(const struct outfile *o)
{
        struct stat st;
        if (lstat(o->path, &st) != 0)
                return errno == ENOENT ? FINE : complain("'%s': %s", o->path, code_text(-errno));
        if (!S_ISREG(st.st_mode))
                return complain("'%s' exists and is not a regular file; - is standard output",
                                o->path);
        if (!o->replace)
                return complain("'%s' exists; --force replaces it", o->path);
        return check_replaced(o->path);
}

enum status outfile_open(struct outfile *o)
{
        if (strcmp(o->path, "-") == 0) {
                o->file = stdout;
                return isatty(STDOUT_FILENO) == 1
                               ? complain("data is not written to a terminal; use -o FILE")
                               : FINE;
        }
        if (check_target(o) != FINE)
                return TROUBLE;
        const char *slash = strrchr(o->path, '/');
        int directory = slash ? (int)(slash - o->path) + 1 : 0;
        if (asprintf(&o->temporary, "%.*s.belay-export-XXXXXX", directory, o->path) < 0)
                exit(TROUBLE);
        int fd = mkostemp(o->temporary, O_CLOEXEC);
        if (fd < 0) {
                enum status status =
                        complain("'%s' cannot be written: %s", o->path, code_text(-errno));
                free(o->temporary);
                o->temporary = NULL;
                return status;
        }
        unfinished = o->temporary;
        catch_interrupts();
        o->file = fdopen(fd, "w");
        if (!o->file) {
                (void)close(fd);
                return complain("out of memory");
        }
        (void)setvbuf(o->file, NULL, _IOFBF, BUFFER_BYTES);
        return FINE;
}

static int publish(const struct outfile *o)
{
        if (o->replace)
                return rename(o->temporary, o->path) ? -errno : 0;
        return plat->rename_new(PLAT_CWD, o->temporary, o->path);
}

enum status outfile_commit(struct outfile *o)
{
        if (o->file == stdout)
                return fflush(stdout) ? TROUBLE : FINE; /* main says so */
        int rc = ferror(o->file) ? -EIO : 0;
        if (rc == 0 && (fflush(o->file) || fsync(fileno(o->file))))
                rc = -errno;
        if (fclose(o->file) && rc == 0)
                rc = -errno;
        o->file = NULL;
        /* A program may have made a pool of that name meanwhile. */
        if (rc == 0 && o->replace && check_target(o) != FINE)
                return TROUBLE;
        if (rc == 0)
                rc = publish(o);
        if (rc == -EEXIST)
                return complain("'%s' exists; --force replaces it", o->path);
        if (rc)
                return complain("'%s' cannot be written: %s", o->path, code_text(rc));
        unfinished = NULL;
        free(o->temporary);
        o->temporary = NULL;
        return FINE;
}

void outfile_discard(struct outfile *o)
{
        if (o->file && o->file != stdout)
                (void)fclose(o->file);
        o->file = NULL;
        if (o->temporary) {
                (void)unlink(o->temporary);
                unfinished = NULL;
                free(o->temporary);
                o->temporary = NULL;
        }
}
