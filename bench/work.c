/* work.c: a stencil program, and four ways to save its state: Belay, a forked child that writes, a
 * copy that a thread writes, and writing at once. */
#include "work.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES MIB /* between two looks at the clock */

int work_failed(const char *what)
{
        return bench_fail("%s: %s", what, belay_error());
}

static int set_options(struct belay_config *config, const char *options)
{
        char text[512];
        snprintf(text, sizeof(text), "%s", options);
        char *rest = text;
        for (char *item; (item = strsep(&rest, ",")) && *item;) {
                char *value = strchr(item, '=');
                if (!value)
                        return -EINVAL;
                *value++ = '\0';
                int rc = belay_config_set(config, item, value);
                if (rc)
                        return rc;
        }
        return 0;
}

int work_open(const char *pool, const char *options, struct belay **out)
{
        struct belay_config *config = NULL;
        int rc = belay_config_new(&config);
        if (rc == 0)
                rc = belay_config_set(config, "pool", pool);
        if (rc == 0)
                rc = set_options(config, options);
        if (rc == 0)
                rc = belay_open(config, out);
        belay_config_delete(&config);
        return rc ? work_failed("open") : 0;
}

int work_checkpoint(struct belay *context, struct belay_stats *out)
{
        *out = (struct belay_stats){.size = sizeof(*out)};
        if (belay_checkpoint(context) || belay_wait(context, 0, BELAY_FOREVER) ||
            belay_stats(context, out))
                return work_failed("checkpoint");
        return 0;
}

/* ---- plain writes ---------------------------------------------------------------------------- */

static void sleep_until(double when)
{
        double left = when - bench_now();
        if (left <= 0)
                return;
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        nanosleep(&t, NULL);
}

static int write_part(int fd, const struct work_part *part, uint64_t rate, double *due)
{
        for (uint64_t at = 0; at < part->bytes;) {
                uint64_t left = part->bytes - at;
                if (rate)
                        sleep_until(*due);
                ssize_t n = write(fd, part->p + at, left < PIECE_BYTES ? left : PIECE_BYTES);
                if (n < 0)
                        return bench_fail("write: %s", strerror(errno));
                if (rate)
                        *due += (double)n / (double)rate;
                at += (uint64_t)n;
        }
        return 0;
}

int work_write(const char *path, const struct work_part *parts, unsigned count, uint64_t rate)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
                return bench_fail("open %s: %s", path, strerror(errno));
        double due = bench_now();
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < count; i++)
                rc = write_part(fd, &parts[i], rate, &due);
        if (rc == 0 && fdatasync(fd))
                rc = bench_fail("fdatasync %s: %s", path, strerror(errno));
        if (rate)
                sleep_until(due);
        close(fd);
        return rc;
}

/* ---- savers ---------------------------------------------------------------------------------- */

void saver_reset(struct saver *s)
{
        s->waits = s->cows = s->avoided = s->faults = s->ahead = 0;
        s->blocked_ns = s->wait_ns = s->commit_ns = 0;
}

int saver_open(struct saver *s)
{
        static const char *const names[WORK_PARTS] = {"first", "second"};
        s->pending = false;
        s->child = 0;
        saver_reset(s);
        if (s->kind != SAVE_BELAY)
                return 0;
        char text[512];
        snprintf(text, sizeof(text), "%s,rate=%llu", s->options, (unsigned long long)s->rate);
        int rc = work_open(s->path, text, &s->context);
        for (unsigned i = 0; rc == 0 && i < s->part_count && i < WORK_PARTS; i++)
                if (belay_attach(s->context, names[i], BELAY_U64,
                                 s->parts[i].bytes / sizeof(uint64_t), s->parts[i].p))
                        rc = work_failed("attach");
        return rc;
}

static int end_belay(struct saver *s)
{
        struct belay_stats stats = {.size = sizeof(stats)};
        if (belay_wait(s->context, 0, BELAY_FOREVER) || belay_stats(s->context, &stats))
                return work_failed("commit");
        s->waits += stats.last_waits;
        s->cows += stats.last_cows;
        s->avoided += stats.last_avoided;
        s->faults += stats.last_faults;
        s->ahead += stats.last_ahead;
        s->blocked_ns += stats.last_blocked_ns;
        s->wait_ns += stats.last_wait_ns;
        s->commit_ns += stats.last_commit_ns;
        return 0;
}

static int end_child(struct saver *s)
{
        int status;
        while (waitpid(s->child, &status, 0) < 0)
                if (errno != EINTR)
                        return bench_fail("waitpid: %s", strerror(errno));
        return status == 0 ? 0 : bench_fail("the forked writer failed");
}

int saver_wait(struct saver *s)
{
        if (!s->pending)
                return 0;
        s->pending = false;
        switch (s->kind) {
        case SAVE_BELAY:
                return end_belay(s);
        case SAVE_FORK:
                return end_child(s);
        case SAVE_COPY:
                if (pthread_join(s->thread, NULL))
                        return bench_fail("pthread_join failed");
                return s->result;
        default:
                return 0;
        }
}

static int save_fork(struct saver *s)
{
        fflush(NULL);
        s->child = fork();
        if (s->child < 0)
                return bench_fail("fork: %s", strerror(errno));
        if (s->child == 0)
                _exit(work_write(s->path, s->parts, s->part_count, s->rate) ? 1 : 0);
        return 0;
}

static void *write_copy(void *arg)
{
        struct saver *s = arg;
        struct work_part whole = {s->copy, 0};
        for (unsigned i = 0; i < s->part_count; i++)
                whole.bytes += s->parts[i].bytes;
        s->result = work_write(s->path, &whole, 1, s->rate);
        return NULL;
}

static int save_copy(struct saver *s)
{
        uint8_t *to = s->copy;
        for (unsigned i = 0; i < s->part_count; i++) {
                memcpy(to, s->parts[i].p, s->parts[i].bytes);
                to += s->parts[i].bytes;
        }
        int code = pthread_create(&s->thread, NULL, write_copy, s);
        return code ? bench_fail("pthread_create: %s", strerror(code)) : 0;
}

int saver_save(struct saver *s)
{
        int rc = saver_wait(s);
        if (rc)
                return rc;
        s->pending = true;
        switch (s->kind) {
        case SAVE_BELAY:
                return belay_checkpoint(s->context) ? work_failed("checkpoint") : 0;
        case SAVE_FORK:
                return save_fork(s);
        case SAVE_COPY:
                return save_copy(s);
        case SAVE_WRITE:
                return work_write(s->path, s->parts, s->part_count, s->rate);
        default:
                return 0;
        }
}

int saver_close(struct saver *s)
{
        int rc = saver_wait(s);
        if (belay_close(&s->context) && rc == 0)
                rc = work_failed("close");
        return rc;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a;
        double y = *(const double *)b;
        return (x > y) - (x < y);
}

double work_median(double *values, unsigned count)
{
        qsort(values, count, sizeof(*values), compare);
        return values[count / 2];
}

/* ---- stencil --------------------------------------------------------------------------------- */

int stencil_new(struct stencil *s, uint64_t bytes)
{
        *s = (struct stencil){.columns = 1024, .bytes = bytes / 2, .work = 1};
        s->rows = s->bytes / (s->columns * sizeof(double));
        if (s->rows < 3) {
                s->columns = 64;
                s->rows = s->bytes / (s->columns * sizeof(double));
        }
        for (int k = 0; k < 2; k++) {
                s->grid[k] = bench_memory(s->bytes);
                if (!s->grid[k])
                        return -1;
                for (uint64_t i = 0; i < s->bytes / sizeof(double); i++)
                        s->grid[k][i] = (double)(i * 7919 % 10007);
        }
        return 0;
}

void stencil_delete(struct stencil *s)
{
        bench_memory_free(s->grid[0], s->bytes);
        bench_memory_free(s->grid[1], s->bytes);
}

void stencil_step(struct stencil *s)
{
        const double *from = s->grid[s->step % 2];
        double *to = s->grid[(s->step + 1) % 2];
        uint64_t n = s->columns;
        for (uint64_t i = 1; i + 1 < s->rows; i++)
                for (unsigned again = 0; again < s->work; again++) {
                        for (uint64_t k = i * n + 1; k < i * n + n - 1; k++)
                                to[k] = 0.2 * (from[k] + from[k - 1] + from[k + 1] + from[k - n] +
                                               from[k + n]) +
                                        0.001;
                        __asm__ volatile("" ::: "memory"); /* each time anew */
                }
        s->step++;
}

/* ---- a run of the stencil ---- */

#define INTERVAL 10u
#define STEPS    ((STENCIL_SAVES + 1) * INTERVAL)
#define FIRST    4u /* saves before the time begins; a pool has room for three */
#define CALM     6u /* steps after a checkpoint, the save is over */

void saver_take_stencil(struct saver *s, const struct stencil *stencil)
{
        s->part_count = 2;
        for (int k = 0; k < 2; k++)
                s->parts[k] = (struct work_part){(uint8_t *)stencil->grid[k], stencil->bytes};
}

static int save_first(struct stencil *stencil, struct saver *s, int (*saved)(struct saver *s))
{
        int rc = 0;
        stencil->step = 0;
        for (unsigned i = 0; rc == 0 && i < FIRST; i++) {
                rc = saver_save(s);
                stencil_step(stencil);
                stencil_step(stencil);
                if (rc == 0)
                        rc = saver_wait(s);
                if (rc == 0 && saved)
                        rc = saved(s);
        }
        return rc;
}

/* An interval without a save comes first and last. */
int stencil_run(struct stencil *stencil, struct saver *s, int (*saved)(struct saver *s),
                struct stencil_times *out)
{
        double times[STEPS] = {0};
        unsigned count = 0;
        int rc = save_first(stencil, s, saved);
        double start = bench_now();
        for (unsigned i = 1; rc == 0 && i <= STEPS; i++) {
                double begun = bench_now();
                stencil_step(stencil);
                if ((i - 1) % INTERVAL >= CALM)
                        times[count++] = bench_now() - begun;
                if (i % INTERVAL == 0 && i <= STENCIL_SAVES * INTERVAL)
                        rc = saver_save(s);
        }
        if (rc == 0)
                rc = saver_wait(s);
        out->seconds = bench_now() - start;
        out->calm = work_median(times, count) * STEPS;
        return rc;
}
