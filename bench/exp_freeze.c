/* exp_freeze.c: how long a checkpoint call keeps the program from running, for an exact
 * asynchronous snapshot with default settings, beside memcpy of the whole state, fork() and a
 * synchronous write.
 *
 * The state is one attached region in small pages, then in huge pages, then memory from
 * belay_alloc. Between two checkpoints the program writes a word of every page, or of every
 * hundredth, scattered. What is timed is the call alone; the commit is then waited for, so that
 * every freeze begins with an idle flusher, and the pool is in memory and in its steady state.
 * States of many arrays follow (freeze_many.c). */
#include "exp.h"
#include "work.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE               (4 * KIB)
#define HUGE_BYTES         (2 * MIB)
#define STEADY_CHECKPOINTS 6

struct freeze {
        struct bench *b;
        uint64_t bytes, seed;
        const char *pages, *dirt;
        unsigned every; /* a page in so many is written */
        uint8_t *data, *copy, *plain_copy;
        void *mapping;
        struct belay *context;
        pid_t child;
        char pool[BENCH_PATH_BYTES], plain[BENCH_PATH_BYTES];
};

/* Aligned to huge pages whichever kind is asked for. */
static uint8_t *get_memory(uint64_t bytes, bool huge, void **mapping)
{
        void *p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
                bench_fail("no memory: %s", strerror(errno));
                return NULL;
        }
        *mapping = p;
        uint8_t *data = (uint8_t *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
        if (madvise(data, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
                fprintf(stderr, "belay-bench: the kernel takes no advice on page size: %s\n",
                        strerror(errno));
        memset(data, 1, bytes);
        return data;
}

/* One page in `every`, at a place in its group that changes. */
static int change(void *arg)
{
        struct freeze *f = arg;
        uint64_t pages = f->bytes / PAGE;
        f->seed = f->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t s = f->seed;
        for (uint64_t i = 0; i < pages; i += f->every) {
                s = s * UINT64_C(6364136223846793005) + 1442695040888963407u;
                uint64_t page = i + (s >> 33) % f->every;
                uint64_t *word = (uint64_t *)(f->data + (page < pages ? page : i) * PAGE);
                word[(s >> 20) % (PAGE / sizeof(*word))] += s | 1;
        }
        return 0;
}

static int checkpoint(void *arg)
{
        struct freeze *f = arg;
        return belay_checkpoint(f->context) ? work_failed("checkpoint") : 0;
}

static int wait_commit(void *arg)
{
        struct freeze *f = arg;
        struct belay_stats s = {.size = sizeof(s)};
        if (belay_wait(f->context, 0, BELAY_FOREVER) || belay_stats(f->context, &s))
                return work_failed("commit");
        return s.last_data >= f->bytes / PAGE / f->every
                       ? 0
                       : bench_fail("a checkpoint did not write what changed");
}

static int copy_all(void *arg)
{
        struct freeze *f = arg;
        memcpy(f->copy, f->data, f->bytes);
        return 0;
}

static int fork_child(void *arg)
{
        struct freeze *f = arg;
        f->child = fork();
        if (f->child == 0)
                _exit(0);
        return f->child > 0 ? 0 : bench_fail("fork: %s", strerror(errno));
}

static int reap_child(void *arg)
{
        struct freeze *f = arg;
        return waitpid(f->child, NULL, 0) == f->child ? 0
                                                      : bench_fail("waitpid: %s", strerror(errno));
}

static int write_all(void *arg)
{
        struct freeze *f = arg;
        return bench_write_plain(f->plain, f->data, f->bytes);
}

static struct bench_row *row(struct freeze *f, const char *name)
{
        struct bench_row *row = bench_row(f->b, name, "ms");
        bench_param_text(row, "pages", f->pages);
        bench_param_text(row, "dirty", f->dirt);
        bench_param_bytes(row, "bytes", f->bytes);
        return row;
}

static int run_set(struct freeze *f, const char *field, double wanted)
{
        struct bench_case cases[] = {
                {row(f, "checkpoint"), change, checkpoint, wait_commit, f, 0},
                {row(f, "memcpy"), NULL, copy_all, NULL, f, 0},
        };
        /* Apart from the others: after a fork every page costs its first writer a fault, which
         * would make memcpy look slow. */
        struct bench_case others[] = {
                {row(f, "fork"), NULL, fork_child, reap_child, f, 0},
                {row(f, "synchronous write"), NULL, write_all, NULL, f, 0},
        };
        int rc = 0;
        unsigned every = f->every;
        for (int i = 0; rc == 0 && i < STEADY_CHECKPOINTS; i++) {
                f->every = i == 0 ? 1 : every; /* what the forks before left is undone */
                change(f);
                rc = checkpoint(f);
                if (rc == 0)
                        rc = wait_commit(f);
        }
        if (rc == 0)
                rc = bench_rounds(f->b, cases, 2);
        if (rc == 0)
                rc = bench_rounds(f->b, others, 2);
        if (rc == 0)
                bench_ratio_most(f->b, field, cases[0].row, cases[1].row, wanted);
        return rc;
}

static int run_pages(struct freeze *f, bool huge)
{
        void *copy_mapping = NULL;
        f->pages = huge ? "huge" : "4 KiB";
        f->data = get_memory(f->bytes, huge, &f->mapping);
        f->copy = f->data ? get_memory(f->bytes, huge, &copy_mapping) : NULL;
        int rc = f->copy ? work_open(f->pool, "", &f->context) : -1;
        if (rc == 0 && belay_attach(f->context, "data", BELAY_U64, f->bytes / 8, f->data))
                rc = work_failed("attach");
        f->dirt = "all";
        f->every = 1;
        if (rc == 0)
                rc = run_set(f, huge ? "blocked_over_memcpy_full_huge" : "blocked_over_memcpy_full",
                             huge ? 0.08 : 0.25);
        f->dirt = "1 %";
        f->every = 100;
        if (rc == 0)
                rc = run_set(f, huge ? "blocked_over_memcpy_1pct_huge" : "blocked_over_memcpy_1pct",
                             huge ? 0 : 0.05);
        if (belay_close(&f->context) && rc == 0)
                rc = work_failed("close");
        bench_memory_free(f->mapping, f->bytes + HUGE_BYTES);
        bench_memory_free(copy_mapping, f->bytes + HUGE_BYTES);
        f->mapping = NULL;
        return rc;
}

/* What the process has in huge pages. */
static uint64_t huge_bytes(void)
{
        char line[256];
        unsigned long long kib = 0;
        FILE *f = fopen("/proc/self/smaps_rollup", "re");
        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "AnonHugePages: %llu", &kib) == 1)
                        break;
        if (f)
                fclose(f);
        return kib * KIB;
}

/* Until all is in huge pages, or no more of it gets there. */
static int settle(struct freeze *f)
{
        uint64_t least = huge_bytes() + f->bytes / 16 * 15;
        uint64_t most = 0;
        int rc = 0;
        for (int i = 0, idle = 0; rc == 0 && i < 100 && idle < STEADY_CHECKPOINTS; i++, idle++) {
                change(f);
                rc = checkpoint(f);
                if (rc == 0)
                        rc = wait_commit(f);
                nanosleep(&(struct timespec){0, 250 * 1000 * 1000}, NULL);
                uint64_t now = huge_bytes();
                if (now > most && now < least)
                        idle = 0;
                most = now > most ? now : most;
        }
        return rc;
}

/* Memory from belay_alloc, as the library places it and puts it into huge pages by itself: after a
 * few checkpoints, and while the program does something else. */
static int run_alloc(struct freeze *f, const char *dir, const char *medium, const char *field)
{
        void *copy_mapping = NULL;
        f->pages = "alloc";
        f->dirt = "all";
        f->every = 1;
        if (!bench_has_room(dir, 4 * f->bytes))
                return bench_fail("no room for scratch files; see --dir and --memory-dir");
        snprintf(f->pool, sizeof(f->pool), "%s/alloc", dir);
        struct bench_case cases[] = {
                {row(f, "checkpoint"), change, checkpoint, wait_commit, f, 0},
                {row(f, "memcpy"), NULL, copy_all, NULL, f, 0},
        };
        for (int i = 0; i < 2; i++)
                bench_param_text(cases[i].row, "pool", medium);
        f->copy = get_memory(f->bytes, true, &copy_mapping);
        int rc = f->copy ? work_open(f->pool, "", &f->context) : -1;
        if (rc == 0) {
                f->data = belay_alloc(f->context, "data", BELAY_U64, f->bytes / 8);
                if (f->data)
                        memset(f->data, 1, f->bytes);
                else
                        rc = work_failed("alloc");
        }
        if (rc == 0)
                rc = settle(f);
        if (rc == 0)
                rc = bench_rounds(f->b, cases, 2);
        if (rc == 0)
                bench_ratio_most(f->b, field, cases[0].row, cases[1].row, 0.03);
        if (belay_close(&f->context) && rc == 0)
                rc = work_failed("close");
        bench_memory_free(copy_mapping, f->bytes + HUGE_BYTES);
        return rc;
}

int exp_freeze(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct freeze *f = calloc(1, sizeof(*f));
        if (!f)
                return bench_fail("no memory");
        f->b = b;
        f->bytes = o->bytes ? o->bytes : o->quick ? 256 * MIB : GIB;
        snprintf(f->pool, sizeof(f->pool), "%s/pool", o->memory_dir);
        snprintf(f->plain, sizeof(f->plain), "%s/plain", o->dir);
        int rc = bench_has_room(o->memory_dir, 4 * f->bytes) && bench_has_room(o->dir, f->bytes)
                         ? bench_create(f->plain)
                         : bench_fail("no room for scratch files; see --dir and --memory-dir");
        if (rc == 0)
                rc = run_pages(f, false);
        if (rc == 0)
                rc = run_pages(f, true);
        if (rc == 0)
                rc = run_alloc(f, o->memory_dir, "memory", "blocked_over_memcpy_alloc");
        if (rc == 0)
                rc = run_alloc(f, o->dir, "disk", "disk.blocked_over_memcpy_alloc");
        if (rc == 0)
                rc = freeze_many(b);
        free(f);
        return rc;
}
