/* exp_small_change.c: costs that follow the change.
 *
 *   one word      of a state of 256 MiB and of one sixteen times as large is changed: how long the
 *                 call blocks, beside the kernel's bare scan of the same memory, and when the
 *                 version is durable
 *   one of many   one word in one of 100 000 regions: what is written
 *   sparse        1000 words written in an empty region of 2 GiB: what is stored, and what is
 *                 resident after a restart
 *
 * All sizes are fixed; --bytes makes them smaller, and the promises are then not those of the
 * names. */
#include "exp.h"
#include "plat/plat.h"
#include "work.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGER  16u
#define SETTLE  6 /* checkpoints until the tracker knows that little is written */
#define WORDS   1000u
#define REGIONS 100000u

static uint64_t next(uint64_t *seed)
{
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return *seed >> 16;
}

/* ---- one word -------------------------------------------------------------------------------- */

struct state {
        uint64_t bytes, seed;
        uint64_t *p;
        struct belay *context;
        struct bench_row *blocked, *durable, *scan;
};

static int open_state(struct state *s, struct bench *b, const char *dir, const char *medium,
                      const char *name)
{
        char pool[BENCH_PATH_BYTES + 16];
        struct bench_row **rows[] = {&s->blocked, &s->durable, &s->scan};
        static const char *const names[] = {"blocked", "until durable", "bare scan"};
        for (int i = 0; i < 3; i++) {
                *rows[i] = bench_row(b, names[i], "ms");
                bench_param_text(*rows[i], "pool", medium);
                bench_param_bytes(*rows[i], "bytes", s->bytes);
        }
        snprintf(pool, sizeof(pool), "%s/%s", dir, name);
        s->p = bench_memory(s->bytes);
        int rc = s->p ? work_open(pool, "", &s->context) : -1;
        if (rc)
                return rc;
        bench_fill(s->p, s->bytes, 1);
        if (belay_attach(s->context, "state", BELAY_U64, s->bytes / 8, s->p))
                return work_failed("attach");
        return 0;
}

static void close_state(struct state *s)
{
        (void)belay_close(&s->context);
        bench_memory_free(s->p, s->bytes);
}

/* What finding out costs at the least: the kernel walks the page table of the region. */
static int scan(struct state *s)
{
        static struct plat_range ranges[64];
        struct plat_track t = {-1, open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
        uint64_t at = (uintptr_t)s->p;
        if (t.pagemap < 0)
                return bench_fail("no /proc/self/pagemap");
        double start = bench_now();
        int n = track_scan(&t, s->p, s->bytes, false, &at, ranges, 64);
        bench_sample(s->scan, (bench_now() - start) * 1e3);
        close(t.pagemap);
        return n < 0 ? bench_fail("the kernel has no PAGEMAP_SCAN") : 0;
}

static int change_one(struct state *s, bool measure)
{
        struct belay_stats stats = {.size = sizeof(stats)};
        s->p[next(&s->seed) % (s->bytes / 8)]++;
        int rc = measure ? scan(s) : 0;
        if (rc)
                return rc;
        double start = bench_now();
        if (belay_checkpoint(s->context))
                return work_failed("checkpoint");
        double returned = bench_now();
        if (belay_wait(s->context, 0, BELAY_FOREVER))
                return work_failed("commit");
        double durable = bench_now();
        if (belay_stats(s->context, &stats))
                return work_failed("statistics");
        if (!measure)
                return 0;
        bench_sample(s->blocked, (returned - start) * 1e3);
        bench_sample(s->durable, (durable - start) * 1e3);
        return stats.last_data > 0 && stats.last_data <= 64 * KIB
                       ? 0
                       : bench_fail("one word changed and %llu bytes were written",
                                    (unsigned long long)stats.last_data);
}

/* Both sizes in turn. */
static int one_word(struct bench *b, const char *dir, const char *medium, struct state s[2])
{
        int rc = 0;
        for (int i = 0; rc == 0 && i < 2; i++) {
                rc = open_state(&s[i], b, dir, medium, i ? "large" : "small");
                for (int k = 0; rc == 0 && k < SETTLE; k++)
                        rc = change_one(&s[i], false);
        }
        double started = bench_now();
        for (unsigned round = 0; rc == 0 && bench_more(b, round, started); round++)
                for (int i = 0; rc == 0 && i < 2; i++)
                        rc = change_one(&s[i], true);
        close_state(&s[0]);
        close_state(&s[1]);
        return rc;
}

static int run_one_word(struct bench *b, uint64_t bytes)
{
        const struct bench_options *o = bench_options(b);
        struct state memory[2] = {{.bytes = bytes, .seed = 1}, {.bytes = LARGER * bytes}};
        struct state disk[2] = {{.bytes = bytes, .seed = 2}, {.bytes = LARGER * bytes}};
        int rc = one_word(b, o->memory_dir, "memory", memory);
        if (rc)
                return rc;
        bench_ratio_most(b, "one_word_4g_over_256m", memory[1].durable, memory[0].durable, 7);
        bench_ratio_most(b, "one_word_blocked_over_scan", memory[1].blocked, memory[1].scan, 1.5);
        rc = one_word(b, o->dir, "disk", disk);
        if (rc)
                return rc;
        bench_ratio_most(b, "disk.one_word_4g_over_256m", disk[1].durable, disk[0].durable, 7);
        bench_ratio_most(b, "disk.one_word_blocked_over_scan", disk[1].blocked, disk[1].scan, 1.5);
        return 0;
}

/* ---- one of many ----------------------------------------------------------------------------- */

static int attach_all(struct belay *c, uint64_t *p, uint32_t regions, uint64_t words)
{
        for (uint32_t i = 0; i < regions; i++) {
                char name[32];
                snprintf(name, sizeof(name), "array %u", i);
                if (belay_attach(c, name, BELAY_U64, words, p + i * words))
                        return work_failed("attach");
        }
        return 0;
}

static int run_one_of_many(struct bench *b, uint32_t regions)
{
        char pool[BENCH_PATH_BYTES + 16];
        const uint64_t words = 128;
        uint64_t bytes = regions * words * 8;
        struct belay *c = NULL;
        struct belay_stats s = {.size = sizeof(s)};
        struct bench_row *row = bench_row(b, "one of many regions", "bytes");
        bench_param_text(row, "pool", "memory");
        bench_param_bytes(row, "bytes", bytes);
        bench_param_number(row, "regions", regions);
        snprintf(pool, sizeof(pool), "%s/many", bench_options(b)->memory_dir);
        uint64_t *p = bench_memory(bytes);
        int rc = p ? work_open(pool, "", &c) : -1;
        if (rc == 0) {
                bench_fill(p, bytes, 2);
                rc = attach_all(c, p, regions, words);
        }
        uint64_t seed = 3;
        for (int i = 0; rc == 0 && i < 5; i++) {
                p[next(&seed) % (bytes / 8)]++;
                rc = work_checkpoint(c, &s);
                if (rc == 0 && i >= 2)
                        bench_sample(row, (double)s.last_written);
        }
        (void)belay_close(&c);
        bench_memory_free(p, bytes);
        bench_figure_most(b, "one_of_100k_written_bytes", row, 256.0 * 1024);
        return rc;
}

/* ---- sparse ---------------------------------------------------------------------------------- */

static uint64_t resident(void)
{
        unsigned long long size = 0;
        unsigned long long pages = 0;
        FILE *f = fopen("/proc/self/statm", "re");
        if (f && fscanf(f, "%llu %llu", &size, &pages) != 2)
                pages = 0;
        if (f)
                fclose(f);
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int store_sparse(const char *pool, uint64_t bytes, struct bench_row *stored)
{
        struct belay *c;
        struct belay_stats s = {.size = sizeof(s)};
        if (work_open(pool, "", &c))
                return -1;
        uint64_t *p = belay_alloc(c, "sparse", BELAY_U64, bytes / 8);
        uint64_t seed = 4;
        for (uint32_t i = 0; p && i < WORDS; i++)
                p[next(&seed) % (bytes / 8)] = i + 1;
        int rc = p ? work_checkpoint(c, &s) : work_failed("alloc");
        bench_sample(stored, (double)s.pool_used);
        return belay_close(&c) ? work_failed("close") : rc;
}

static int restore_sparse(const char *pool, uint64_t bytes, struct bench_row *held)
{
        struct belay *c;
        if (work_open(pool, "", &c))
                return -1;
        uint64_t *p = belay_alloc(c, "sparse", BELAY_U64, bytes / 8);
        uint64_t before = resident();
        if (!p || belay_restart(c) != 1)
                return work_failed("restart");
        uint64_t after = resident();
        bench_sample(held, after > before ? (double)(after - before) : 1);
        uint64_t *expected = bench_address_space(bytes);
        uint64_t seed = 4;
        for (uint32_t i = 0; expected && i < WORDS; i++)
                expected[next(&seed) % (bytes / 8)] = i + 1;
        int rc = !expected || memcmp(p, expected, bytes) != 0
                         ? bench_fail("what was restored is not what was stored")
                         : 0;
        bench_memory_free(expected, bytes);
        return belay_close(&c) ? work_failed("close") : rc;
}

static int run_sparse(struct bench *b, uint64_t bytes)
{
        char pool[BENCH_PATH_BYTES + 16];
        struct bench_row *stored = bench_row(b, "sparse, stored", "bytes");
        struct bench_row *held = bench_row(b, "sparse, resident", "bytes");
        bench_param_text(stored, "pool", "memory");
        bench_param_bytes(stored, "bytes", bytes);
        bench_param_text(held, "pool", "memory");
        bench_param_bytes(held, "bytes", bytes);
        snprintf(pool, sizeof(pool), "%s/sparse", bench_options(b)->memory_dir);
        int rc = store_sparse(pool, bytes, stored);
        if (rc == 0)
                rc = restore_sparse(pool, bytes, held);
        bench_figure_most(b, "sparse_stored_bytes", stored, 32.0 * 1024 * 1024);
        bench_figure_most(b, "sparse_resident_bytes", held, 32.0 * 1024 * 1024);
        return rc;
}

int exp_small_change(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        uint64_t bytes = o->bytes ? o->bytes : o->quick ? 16 * MIB : 256 * MIB;
        int rc = bench_has_room(o->memory_dir, 20 * bytes) && bench_has_room(o->dir, 20 * bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --dir and --memory-dir");
        if (rc == 0)
                rc = run_one_word(b, bytes);
        if (rc == 0)
                rc = run_one_of_many(b, o->bytes || o->quick ? REGIONS / 50 : REGIONS);
        if (rc == 0)
                rc = run_sparse(b, 8 * bytes);
        return rc;
}
