/* exp_ramdisk.c: the same chunks checkpointed into a mapped pool, and written as a file to the same
 * memory file system (section IV of the NVM-checkpoints paper). All of them change every time.
 *
 * A file is written as checkpoint libraries do: a new one, chunk after chunk, renamed when it is
 * complete, and the one before the last is deleted. What overwriting one file would take is beside
 * it. Kernel calls are writes, as the kernel counts them, and page faults. */
#include "exp.h"
#include "work.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define CHUNKS 32u
#define SETTLE 4u /* checkpoints before the time begins */

enum way { PLAIN, CHECKED, NEW_FILE, OVERWRITTEN, WAYS };
static const char *const names[WAYS] = {"mapped pool", "mapped pool, checksums", "new file",
                                        "overwritten file"};
static const uint64_t sizes[] = {50, 100, 200, 300}; /* MiB */
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct ramdisk {
        struct bench *b;
        uint64_t bytes;
        uint8_t *chunk[CHUNKS];
        uint64_t step;
        struct belay *pool[2];
        char dir[BENCH_PATH_BYTES];
        struct bench_row *time[WAYS], *cpu[WAYS], *calls[WAYS];
};

static uint64_t chunk_bytes(const struct ramdisk *r)
{
        return r->bytes / CHUNKS;
}

/* Every block of every chunk differs from what it was. */
static void change(struct ramdisk *r)
{
        r->step++;
        for (unsigned i = 0; i < CHUNKS; i++)
                for (uint64_t at = 0; at < chunk_bytes(r); at += 512)
                        r->chunk[i][at] = (uint8_t)(r->chunk[i][at] + 1);
}

static int write_file(struct ramdisk *r, const char *path, bool fresh)
{
        int fd = open(path, O_WRONLY | O_CREAT | (fresh ? O_TRUNC : 0), 0600);
        if (fd < 0)
                return bench_fail("%s cannot be created", path);
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < CHUNKS; i++)
                for (uint64_t at = 0; rc == 0 && at < chunk_bytes(r);) {
                        ssize_t n = write(fd, r->chunk[i] + at, chunk_bytes(r) - at);
                        if (n <= 0)
                                rc = bench_fail("%s cannot be written", path);
                        at += n > 0 ? (uint64_t)n : 0;
                }
        if (rc == 0 && fsync(fd))
                rc = bench_fail("%s cannot be flushed", path);
        return close(fd) ? bench_fail("%s cannot be closed", path) : rc;
}

static int save_new(struct ramdisk *r)
{
        char part[BENCH_PATH_BYTES + 32];
        char path[BENCH_PATH_BYTES + 32];
        snprintf(part, sizeof(part), "%s/part", r->dir);
        snprintf(path, sizeof(path), "%s/checkpoint.%llu", r->dir, (unsigned long long)r->step % 2);
        int rc = write_file(r, part, true);
        return rc ? rc : rename(part, path) ? bench_fail("%s cannot be renamed", part) : 0;
}

static int save(struct ramdisk *r, enum way way)
{
        char path[BENCH_PATH_BYTES + 32];
        snprintf(path, sizeof(path), "%s/overwritten", r->dir);
        if (way == NEW_FILE)
                return save_new(r);
        if (way == OVERWRITTEN)
                return write_file(r, path, false);
        return belay_checkpoint(r->pool[way]) ? work_failed("checkpoint") : 0;
}

static double cpu_seconds(double *faults)
{
        struct rusage u;
        (void)getrusage(RUSAGE_SELF, &u);
        *faults = (double)u.ru_minflt;
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static double write_calls(void)
{
        unsigned long long calls = 0;
        FILE *f = fopen("/proc/self/io", "r");
        char line[128];
        while (f && fgets(line, sizeof(line), f))
                (void)sscanf(line, "syscw: %llu", &calls);
        if (f)
                (void)fclose(f);
        return (double)calls;
}

static int measure(struct ramdisk *r, enum way way)
{
        double faults[2];
        change(r);
        double calls = write_calls();
        double cpu = cpu_seconds(&faults[0]);
        double start = bench_now();
        int rc = save(r, way);
        bench_sample(r->time[way], (bench_now() - start) * 1e3);
        bench_sample(r->cpu[way], (cpu_seconds(&faults[1]) - cpu) * 1e3);
        bench_sample(r->calls[way], write_calls() - calls + faults[1] - faults[0]);
        return rc;
}

static int open_pools(struct ramdisk *r)
{
        static const char *const options[] = {"policy=sync,media=mapped,diff=off,checksum=no",
                                              "policy=sync,media=mapped,diff=off,checksum=yes"};
        for (int i = 0; i < 2; i++) {
                char path[BENCH_PATH_BYTES + 16];
                char name[16];
                snprintf(path, sizeof(path), "%s/pool%d", r->dir, i);
                (void)unlink(path);
                int rc = work_open(path, options[i], &r->pool[i]);
                for (unsigned k = 0; rc == 0 && k < CHUNKS; k++) {
                        snprintf(name, sizeof(name), "chunk%u", k);
                        if (belay_attach(r->pool[i], name, BELAY_U8, chunk_bytes(r), r->chunk[k]))
                                rc = work_failed("attach");
                }
                if (rc)
                        return rc;
        }
        return 0;
}

static void make_rows(struct ramdisk *r)
{
        for (enum way w = PLAIN; w < WAYS; w++) {
                struct bench_row *rows[] = {bench_row(r->b, names[w], "ms"),
                                            bench_row(r->b, names[w], "ms"),
                                            bench_row(r->b, names[w], "calls")};
                static const char *const figures[] = {"time", "cpu", "kernel"};
                for (int k = 0; k < 3; k++) {
                        bench_param_text(rows[k], "figure", figures[k]);
                        bench_param_bytes(rows[k], "bytes", r->bytes);
                }
                r->time[w] = rows[0];
                r->cpu[w] = rows[1];
                r->calls[w] = rows[2];
        }
}

static int run_size(struct ramdisk *r, uint64_t bytes)
{
        r->bytes = bytes;
        uint8_t *memory = bench_memory(bytes);
        if (!memory)
                return -1;
        bench_fill(memory, bytes, 1);
        for (unsigned i = 0; i < CHUNKS; i++)
                r->chunk[i] = memory + i * chunk_bytes(r);
        make_rows(r);
        int rc = open_pools(r);
        for (unsigned i = 0; rc == 0 && i < SETTLE; i++) {
                change(r);
                for (enum way w = PLAIN; rc == 0 && w < WAYS; w++)
                        rc = save(r, w);
        }
        double started = bench_now();
        for (unsigned i = 0; rc == 0 && bench_more(r->b, i, started); i++)
                for (enum way w = PLAIN; rc == 0 && w < WAYS; w++)
                        rc = measure(r, w);
        for (int i = 0; i < 2; i++)
                rc = belay_close(&r->pool[i]) && !rc ? work_failed("close") : rc;
        bench_memory_free(memory, bytes);
        return rc;
}

int exp_ramdisk(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct ramdisk r = {.b = b};
        snprintf(r.dir, sizeof(r.dir), "%s", o->memory_dir);
        int rc = 0;
        for (size_t i = o->quick ? SIZES - 1 : 0; rc == 0 && i < SIZES; i++)
                rc = run_size(&r, o->bytes ? o->bytes : sizes[i] * MIB);
        /* The rows of the last size. */
        bench_ratio(b, "speedup_300", r.time[NEW_FILE], r.time[PLAIN], 1.46);
        bench_ratio(b, "with_checksums.speedup_300", r.time[NEW_FILE], r.time[CHECKED], 0);
        bench_ratio(b, "overwritten.speedup_300", r.time[OVERWRITTEN], r.time[PLAIN], 0);
        return rc;
}
