/* bench_main.c: belay-bench: the experiments, the command line, and who cleans up.
 *
 * An experiment runs in a child process. The parent makes the scratch directories and removes them
 * when the child has ended, in whatever way that was: done, failed, interrupted or crashed. */
#include "bench_int.h"
#include "exp.h"
#include "base/base.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct bench_experiment experiments[] = {
        {"raw", "synchronous checkpoint and restart against plain writes, reads and memcpy",
         exp_raw},
        {"freeze", "time blocked in a checkpoint against memcpy, fork and a synchronous write",
         exp_freeze},
        {"access-order", "run time of a program that writes in some order while it is flushed",
         exp_access_order},
        {"epochs", "how long a program waits whose checkpoints do not line up with its iterations",
         exp_epochs},
        {"cow-size", "run time of a stencil by size of the copy buffer", exp_cow_size},
        {"overhead", "run time of a stencil against fork and memcpy with a background write",
         exp_overhead},
        {"diff-ratio", "a checkpoint by share of changed blocks against one written in full",
         exp_diff_ratio},
        {"diff-block-size", "commit time by size of block, for the same change", exp_diff_block},
        {"diff-apps", "small programs with and without differencing, and the model of it",
         exp_diff_apps},
        {"hash-collisions", "block hashes and checksums: changes that go unseen, and throughput",
         exp_collisions},
        {"dynamic", "data sets that grow, shrink, move and come anew: what is written for them",
         exp_dynamic},
        {"memory-vs-ramdisk", "a pool that is memory against files in memory", exp_ramdisk},
        {"precopy", "copying before the checkpoint, on slow memory", exp_precopy},
        {"lazy-restart", "restart by reading the pool in place against copying it", exp_lazy},
        {"small-change", "one word of a large state, one of many regions, a sparse region",
         exp_small_change},
        {"regions", "what a region costs among a thousand and among a hundred thousand",
         exp_regions},
        {"copy-level", "a second pool kept up in the background: what it writes, and costs",
         exp_copy_level},
        {"warm-up", "the first versions of a new pool against later ones", exp_warm_up},
        {"phases", "a program that swings between writing everything and writing little",
         exp_phases},
};

static volatile sig_atomic_t child;

static void list_experiments(FILE *out)
{
        fputs("usage: belay-bench EXPERIMENT|all [--json FILE] [--quick] [--dir DIR]\n"
              "                   [--memory-dir DIR] [--bytes SIZE] [--rounds N]\n\n"
              "experiments:\n",
              out);
        for (size_t i = 0; i < ARRAY_LEN(experiments); i++)
                fprintf(out, "  %-16s %s\n", experiments[i].name, experiments[i].help);
}

/* Whole numbers with an optional binary unit: 64, 64K, 64KiB. */
static int parse_size(const char *text, uint64_t *out)
{
        static const char units[] = "KMGT";
        char *end;
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (errno || end == text || text[0] == '-')
                return -1;
        unsigned shift = 0;
        const char *unit = *end ? strchr(units, *end) : NULL;
        if (unit) {
                shift = 10 * (unsigned)(unit - units + 1);
                end++;
                if (strcmp(end, "iB") == 0)
                        end += 2;
        }
        if (*end || n == 0 || n > (UINT64_MAX >> shift))
                return -1;
        *out = (uint64_t)n << shift;
        return 0;
}

static int set_dir(char to[BENCH_PATH_BYTES], const char *from)
{
        if (strlen(from) >= BENCH_PATH_BYTES)
                return bench_fail("%s: the path is too long", from);
        snprintf(to, BENCH_PATH_BYTES, "%s", from);
        return 0;
}

static int set_option(struct bench_options *o, int option, const char *value)
{
        uint64_t n;
        switch (option) {
        case 'q':
                o->quick = true;
                return 0;
        case 'j':
                o->json = value;
                return 0;
        case 'd':
                return set_dir(o->dir, value);
        case 'm':
                return set_dir(o->memory_dir, value);
        case 'b':
                /* A whole number of pages; experiments divide it further. */
                if (parse_size(value, &n) || n % (64 * KIB) != 0)
                        return bench_fail("--bytes %s: a multiple of 64KiB such as 256MiB", value);
                o->bytes = n;
                return 0;
        case 'r':
                if (parse_size(value, &n) || n > MAX_ROUNDS)
                        return bench_fail("--rounds %s: a number from 1 to %d", value, MAX_ROUNDS);
                o->rounds = (unsigned)n;
                return 0;
        default:
                return -1;
        }
}

static int parse(int argc, char **argv, struct bench_options *o)
{
        static const struct option table[] = {
                {"quick", no_argument, NULL, 'q'},
                {"json", required_argument, NULL, 'j'},
                {"dir", required_argument, NULL, 'd'},
                {"memory-dir", required_argument, NULL, 'm'},
                {"bytes", required_argument, NULL, 'b'},
                {"rounds", required_argument, NULL, 'r'},
                {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        int option;
        while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
                if (option == 'h') {
                        list_experiments(stdout);
                        exit(0);
                }
                if (set_option(o, option, optarg))
                        return -1;
        }
        return 0;
}

/* In the child. */
static int run_here(const struct bench_experiment *e, const struct bench_options *o)
{
        struct bench *b = calloc(1, sizeof(*b));
        if (!b)
                return bench_fail("no memory");
        b->experiment = e;
        b->options = *o;
        int rc = o->json ? report_check(o->json) : 0;
        if (rc == 0)
                rc = e->run(b);
        if (rc == 0 && b->overflow)
                rc = bench_fail("%s: more rows or ratios than the harness keeps", e->name);
        if (rc == 0) {
                report_table(b, stdout);
                if (fflush(stdout))
                        rc = bench_fail("stdout: %s", strerror(errno));
        }
        if (rc == 0 && o->json)
                rc = report_json(b, o->json);
        free(b);
        return rc;
}

static void pass_on(int sig)
{
        if (child > 0)
                kill((pid_t)child, sig);
}

/* Returns the child's wait status, or -1. */
static int run_child(const struct bench_experiment *e, const struct bench_options *o)
{
        pid_t parent = getpid();
        fflush(NULL);
        pid_t pid = fork();
        if (pid < 0)
                return bench_fail("fork: %s", strerror(errno));
        if (pid == 0) {
                /* No measurement outlives a parent that was killed. */
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                signal(SIGINT, SIG_DFL);
                signal(SIGTERM, SIG_DFL);
                signal(SIGHUP, SIG_DFL);
                int rc = getppid() == parent ? run_here(e, o) : -1;
                exit(rc ? 1 : 0);
        }
        child = pid;
        int status;
        pid_t done;
        do {
                done = waitpid(pid, &status, 0);
        } while (done < 0 && errno == EINTR);
        child = 0;
        return done < 0 ? -1 : status;
}

/* Returns an exit code; a signal that ended the child becomes 128 + its number. */
static int run_experiment(const struct bench_experiment *e, const struct bench_options *given)
{
        struct bench_options o = *given;
        if (scratch_make(o.dir))
                return 1;
        if (scratch_make(o.memory_dir)) {
                scratch_remove(o.dir);
                return 1;
        }
        int status = run_child(e, &o);
        scratch_remove(o.dir);
        scratch_remove(o.memory_dir);
        if (status < 0)
                return 1;
        if (WIFSIGNALED(status)) {
                bench_fail("%s: ended by signal %d", e->name, WTERMSIG(status));
                return 128 + WTERMSIG(status);
        }
        return WEXITSTATUS(status);
}

/* Each experiment in turn; --json then names a directory. */
static int run_all(const struct bench_options *o)
{
        if (o->json && mkdir(o->json, 0777) && errno != EEXIST) {
                bench_fail("%s: %s", o->json, strerror(errno));
                return 1;
        }
        int failed = 0;
        for (size_t i = 0; i < ARRAY_LEN(experiments); i++) {
                struct bench_options each = *o;
                char path[BENCH_PATH_BYTES];
                if (o->json) {
                        snprintf(path, sizeof(path), "%s/%s.json", o->json, experiments[i].name);
                        each.json = path;
                }
                if (i)
                        putchar('\n');
                int code = run_experiment(&experiments[i], &each);
                if (code >= 128)
                        return code;
                failed |= code;
        }
        return failed;
}

int main(int argc, char **argv)
{
        struct bench_options o = {.dir = ".", .memory_dir = "/dev/shm"};
        if (parse(argc, argv, &o))
                return 2;
        if (optind == argc) {
                list_experiments(stdout);
                return 0;
        }
        if (optind + 1 < argc) {
                list_experiments(stderr);
                return 2;
        }
        struct sigaction act = {.sa_handler = pass_on};
        sigaction(SIGINT, &act, NULL);
        sigaction(SIGTERM, &act, NULL);
        sigaction(SIGHUP, &act, NULL);
        const char *name = argv[optind];
        if (strcmp(name, "all") == 0)
                return run_all(&o);
        for (size_t i = 0; i < ARRAY_LEN(experiments); i++)
                if (strcmp(experiments[i].name, name) == 0)
                        return run_experiment(&experiments[i], &o);
        bench_fail("there is no experiment '%s'", name);
        list_experiments(stderr);
        return 2;
}
