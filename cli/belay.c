/* belay.c: the command `belay`: looks into pools without changing them, asks programs for
 * checkpoints. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct command *const commands[] = {
        &cmd_ls,         &cmd_show,  &cmd_verify, &cmd_diff,    &cmd_export,
        &cmd_checkpoint, &cmd_stats, &cmd_advise, &cmd_options, &cmd_probe};

static void print_usage(void)
{
        puts("usage: belay COMMAND [ARGUMENTS]\n\nLooks into Belay pools without changing them; "
             "asks programs "
             "for checkpoints.\n");
        for (size_t i = 0; i < ARRAY_LEN(commands); i++)
                printf("  %-10s  %s\n", commands[i]->name, commands[i]->summary);
        puts("  help        this text, or that of a command\n\n"
             "Every command takes --json and --help. Exit status: 0 fine, 1 damaged or different,\n"
             "2 the question could not be answered.");
}

static const struct command *find_command(const char *name)
{
        const char *names[ARRAY_LEN(commands) + 1];
        for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
                if (strcmp(commands[i]->name, name) == 0)
                        return commands[i];
                names[i] = commands[i]->name;
        }
        names[ARRAY_LEN(commands)] = "help";
        const char *meant = similar_word(name, names, ARRAY_LEN(names));
        if (meant)
                (void)complain("unknown command '%s'; did you mean '%s'?", name, meant);
        else
                (void)complain("unknown command '%s'; `belay help` lists them", name);
        return NULL;
}

static enum status help(int argc, char **argv)
{
        if (argc == 0) {
                print_usage();
                return FINE;
        }
        if (argc > 1)
                return complain("help takes the name of one command");
        const struct command *c = find_command(argv[0]);
        if (!c)
                return TROUBLE;
        args_describe(c);
        return FINE;
}

static enum status run(const struct command *c, int argc, char **argv)
{
        struct args a;
        enum status status = args_parse(c, argc, argv, &a);
        if (status == FINE) {
                if (a.given[ARG_HELP])
                        args_describe(c);
                else
                        status = c->run(&a);
        }
        args_delete(&a);
        return status;
}

static enum status dispatch(int argc, char **argv)
{
        if (argc < 2) {
                (void)complain("a command is missing; `belay help` lists them");
                return TROUBLE;
        }
        const char *name = argv[1];
        if (strcmp(name, "--version") == 0) {
                printf("belay %s\n", belay_version_text());
                return FINE;
        }
        if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
                return help(argc - 2, argv + 2);
        const struct command *c = find_command(name);
        return c ? run(c, argc - 2, argv + 2) : TROUBLE;
}

/* `belay ls a.pool >> a.pool`: by then the shell has opened it, but nothing is written yet. */
static bool is_pool(int fd)
{
        char name[32];
        struct stat st;
        if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
                return false;
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        int again = open(name, O_RDONLY | O_CLOEXEC); /* this one may be for writing only */
        bool pool = again >= 0 && belay_reader_recognize(again) > 0;
        if (again >= 0)
                (void)close(again);
        return pool;
}

/* A closed descriptor would be handed to the next file that is opened, and text would go there. */
static enum status check_descriptors(void)
{
        if (is_pool(STDERR_FILENO))
                return TROUBLE; /* there is no place to say so */
        if (is_pool(STDOUT_FILENO))
                return complain("standard output is a Belay pool; nothing was written to it");
        if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
                return complain("standard output is closed");
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
                        return TROUBLE;
        return FINE;
}

int main(int argc, char **argv)
{
        /* A reader that leaves shows as a failed write, and so as an exit status. */
        (void)signal(SIGPIPE, SIG_IGN);
        enum status status = check_descriptors();
        if (status != FINE)
                return (int)status;
        status = dispatch(argc, argv);
        errno = 0;
        bool failed = ferror(stdout) != 0;
        if (fclose(stdout) != 0 || failed)
                return (int)complain("the output could not be written: %s",
                                     errno ? code_text(-errno) : "an earlier write failed");
        return (int)status;
}
