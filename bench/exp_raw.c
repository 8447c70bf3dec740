/* exp_raw.c: what a synchronous checkpoint and a restart cost beside the plain way to move the same
 * bytes.
 *
 * For the file media the plain way is a loop of 16 MiB writes with fdatasync at the end, over a
 * file that exists (the pool reuses its slots, so this is like for like), and a loop of 16 MiB
 * reads, both through the page cache, as a program without a library would do it. For the mapped
 * media it is memcpy to memory that has been touched before.
 *
 * The state is one region in which every block changes between two checkpoints. Writes start from
 * steady state: as many untimed checkpoints as make every slot a reused one. A restart starts
 * from a pool opened just before, into memory that has been touched, as the plain read does. Files
 * on disk are dropped from the page cache before a cold read, and what came back is compared. */
#include "exp.h"
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

/* Two versions are kept by default and a third is being written; one more, since the pool grows in
 * steps and its next version begins in what the last step left over. */
#define STEADY_CHECKPOINTS 4

struct raw {
        struct bench *b;
        const char *media; /* "file" or "mapped" */
        uint64_t bytes;
        uint64_t seed; /* of what the data holds */
        uint64_t pool_seed, plain_seed;
        uint8_t *data; /* the region, and the buffer of the plain loops */
        uint8_t *copy; /* memcpy's other end                            */
        struct belay *context;
        struct bench_row *open_row;
        char pool[BENCH_PATH_BYTES], plain[BENCH_PATH_BYTES], fresh[BENCH_PATH_BYTES];
};

static int belay_failed(const char *what)
{
        return bench_fail("%s: %s", what, belay_error());
}

/* ---- what is timed, and what goes before and after --------------------------------------------
 */

static int change_data(void *arg)
{
        struct raw *r = arg;
        bench_fill(r->data, r->bytes, ++r->seed);
        return 0;
}

static int checkpoint(void *arg)
{
        struct raw *r = arg;
        return belay_checkpoint(r->context) ? belay_failed("checkpoint") : 0;
}

/* A benchmark that saved nothing because nothing had changed would look splendid. */
static int checkpoint_was_full(void *arg)
{
        struct raw *r = arg;
        struct belay_stats s = {.size = sizeof(s)};
        if (belay_stats(r->context, &s))
                return belay_failed("stats");
        r->pool_seed = r->seed;
        return s.last_data == r->bytes ? 0 : bench_fail("a checkpoint did not write all data");
}

static int plain_write(void *arg)
{
        struct raw *r = arg;
        r->plain_seed = r->seed;
        return bench_write_plain(r->plain, r->data, r->bytes);
}

static int prepare_fresh(void *arg)
{
        struct raw *r = arg;
        change_data(r);
        return bench_create(r->fresh);
}

static int fresh_write(void *arg)
{
        struct raw *r = arg;
        return bench_write_plain(r->fresh, r->data, r->bytes);
}

static int copy_out(void *arg)
{
        struct raw *r = arg;
        memcpy(r->copy, r->data, r->bytes);
        return 0;
}

static int copy_in(void *arg)
{
        struct raw *r = arg;
        memcpy(r->data, r->copy, r->bytes);
        return 0;
}

static int open_context(struct raw *r)
{
        struct belay_config *config = NULL;
        int rc = belay_config_new(&config);
        if (rc == 0)
                rc = belay_config_set(config, "pool", r->pool);
        if (rc == 0)
                rc = belay_config_set(config, "policy", "sync");
        if (rc == 0)
                rc = belay_config_set(config, "media", r->media);
        double start = bench_now();
        if (rc == 0)
                rc = belay_open(config, &r->context);
        if (rc == 0 && r->open_row)
                bench_sample(r->open_row, (bench_now() - start) * 1e3);
        belay_config_delete(&config);
        if (rc == 0)
                rc = belay_attach(r->context, "data", BELAY_U64, r->bytes / sizeof(uint64_t),
                                  r->data);
        return rc ? belay_failed("open") : 0;
}

static int prepare_restart(void *arg)
{
        struct raw *r = arg;
        if (belay_close(&r->context))
                return belay_failed("close");
        memset(r->data, 0, r->bytes);
        int rc = bench_drop_cache(r->pool);
        return rc ? rc : open_context(r);
}

static int restart(void *arg)
{
        struct raw *r = arg;
        return belay_restart(r->context) == 1 ? 0 : belay_failed("restart");
}

static int check_restart(void *arg)
{
        struct raw *r = arg;
        return bench_check(r->data, r->bytes, r->pool_seed);
}

static int prepare_cold(void *arg)
{
        struct raw *r = arg;
        memset(r->data, 0, r->bytes);
        return bench_drop_cache(r->plain);
}

static int prepare_warm(void *arg)
{
        struct raw *r = arg;
        memset(r->data, 0, r->bytes);
        return 0; /* the cold read before it has filled the page cache */
}

static int plain_read(void *arg)
{
        struct raw *r = arg;
        return bench_read_plain(r->plain, r->data, r->bytes);
}

static int check_plain(void *arg)
{
        struct raw *r = arg;
        return bench_check(r->data, r->bytes, r->plain_seed);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static struct bench_row *row(struct raw *r, const char *name, const char *unit)
{
        struct bench_row *row = bench_row(r->b, name, unit);
        bench_param_text(row, "media", r->media);
        bench_param_bytes(row, "bytes", r->bytes);
        return row;
}

/* Smaller sizes of a run with several carry theirs in MiB: write_ratio_file_256. */
static void ratio(struct raw *r, const char *what, const struct bench_row *over,
                  const struct bench_row *under, double wanted, bool largest)
{
        char name[64];
        int n = snprintf(name, sizeof(name), "%s_%s", what, r->media);
        if (!largest)
                snprintf(name + n, sizeof(name) - (size_t)n, "_%llu",
                         (unsigned long long)(r->bytes / MIB));
        bench_ratio(r->b, name, over, under, wanted);
}

static int steady_state(struct raw *r)
{
        int rc = open_context(r);
        for (int i = 0; rc == 0 && i < STEADY_CHECKPOINTS; i++) {
                change_data(r);
                rc = checkpoint(r);
        }
        if (rc == 0)
                rc = bench_create(r->plain);
        return rc ? rc : plain_write(r);
}

static int write_set(struct raw *r, bool mapped, bool largest)
{
        int rc = steady_state(r);
        if (rc)
                return rc;
        struct bench_case cases[] = {
                {row(r, "checkpoint", "MiB/s"), change_data, checkpoint, checkpoint_was_full, r,
                 r->bytes},
                {row(r, "plain overwrite", "MiB/s"), change_data, plain_write, NULL, r, r->bytes},
                {row(r, "plain write, new file", "MiB/s"), prepare_fresh, fresh_write, NULL, r,
                 r->bytes},
                {NULL, change_data, copy_out, NULL, r, r->bytes},
        };
        if (mapped)
                cases[3].row = row(r, "memcpy out", "MiB/s");
        rc = bench_rounds(r->b, cases, mapped ? 4 : 3);
        if (rc == 0 && mapped)
                ratio(r, "write_ratio", cases[0].row, cases[3].row, 0.4, largest);
        else if (rc == 0)
                ratio(r, "write_ratio", cases[0].row, cases[1].row, 0.85, largest);
        return rc;
}

static int read_set(struct raw *r, bool mapped, bool largest)
{
        struct bench_case cases[] = {
                {row(r, "restart", "MiB/s"), prepare_restart, restart, check_restart, r, r->bytes},
                {row(r, mapped ? "plain read" : "plain read, cold", "MiB/s"), prepare_cold,
                 plain_read, check_plain, r, r->bytes},
                {NULL, prepare_warm, mapped ? copy_in : plain_read, mapped ? NULL : check_plain, r,
                 r->bytes},
        };
        cases[2].row = row(r, mapped ? "memcpy in" : "plain read, warm", "MiB/s");
        r->open_row = row(r, "open", "ms");
        int rc = bench_rounds(r->b, cases, 3);
        r->open_row = NULL;
        if (rc == 0)
                ratio(r, "read_ratio", cases[0].row, cases[mapped ? 2 : 1].row, mapped ? 0 : 0.85,
                      largest);
        return rc;
}

static int run_media(struct raw *r, const char *dir, bool largest)
{
        bool mapped = strcmp(r->media, "mapped") == 0;
        snprintf(r->pool, sizeof(r->pool), "%s/pool", dir);
        snprintf(r->plain, sizeof(r->plain), "%s/plain", dir);
        snprintf(r->fresh, sizeof(r->fresh), "%s/fresh", dir);
        int rc = write_set(r, mapped, largest);
        if (rc == 0)
                rc = read_set(r, mapped, largest);
        if (belay_close(&r->context) && rc == 0)
                rc = belay_failed("close");
        remove(r->pool);
        remove(r->plain);
        remove(r->fresh);
        return rc;
}

static int run_size(struct bench *b, uint64_t bytes, bool largest)
{
        const struct bench_options *o = bench_options(b);
        struct raw *r = calloc(1, sizeof(*r));
        if (!r)
                return bench_fail("no memory");
        r->b = b;
        r->bytes = bytes;
        r->data = bench_memory(bytes);
        r->copy = bench_memory(bytes);
        int rc = r->data && r->copy ? 0 : -1;
        r->media = "file";
        if (rc == 0)
                rc = run_media(r, o->dir, largest);
        r->media = "mapped";
        if (rc == 0)
                rc = run_media(r, o->memory_dir, largest);
        bench_memory_free(r->copy, bytes);
        bench_memory_free(r->data, bytes);
        free(r);
        return rc;
}

/* Three versions in the pool, an eighth to grow, two plain files. */
static bool fits(const struct bench_options *o, uint64_t bytes)
{
        uint64_t needed = 6 * bytes;
        if (bench_has_room(o->dir, needed) && bench_has_room(o->memory_dir, needed))
                return true;
        fprintf(stderr,
                "belay-bench: %llu MiB are left out: there is no room for six times as much\n",
                (unsigned long long)(bytes / MIB));
        return false;
}

int exp_raw(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        uint64_t sizes[2] = {256 * MIB, GIB};
        unsigned count = o->quick ? 1 : 2;
        if (o->bytes) {
                sizes[0] = o->bytes;
                count = 1;
        }
        while (count > 0 && !fits(o, sizes[count - 1]))
                count--;
        if (count == 0)
                return bench_fail("no room for scratch files; see --dir and --memory-dir");
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < count; i++)
                rc = run_size(b, sizes[i], i + 1 == count);
        return rc;
}
