/* watch_pool.c: watches a program that checkpoints: the smallest, largest and mean value of a
 * region of doubles, for every version as it appears.
 *
 *      reader [--pool FILE] [--region NAME] [--seconds N]
 *
 * The program goes on meanwhile, and gives old versions up. A version that is gone before it was
 * read is passed over; one that is being read is pinned, so that it stays until that is done. */
#include <belay/read.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct summary {
        double least, most, sum;
        uint64_t count;
};

static int fail(const char *what)
{
        fprintf(stderr, "reader: %s: %s\n", what, belay_error());
        return 1;
}

/* Blocks are powers of two of at least 128 bytes: no element crosses from one to the next. */
static int add_block(void *arg, const struct belay_read_block *b)
{
        struct summary *s = arg;
        if (!b->data)
                return BELAY_E_DATA;
        for (uint32_t at = 0; at + sizeof(double) <= b->bytes; at += sizeof(double)) {
                double value;
                memcpy(&value, (const char *)b->data + at, sizeof(value));
                s->least = value < s->least ? value : s->least;
                s->most = value > s->most ? value : s->most;
                s->sum += value;
                s->count++;
        }
        return 0;
}

/* 0, or why the version could not be read. */
static int summarize(struct belay_reader *r, uint64_t version, const char *name)
{
        struct belay_reader_region d = {.size = sizeof(d)};
        struct summary s = {.least = DBL_MAX, .most = -DBL_MAX};
        int rc = belay_reader_find(r, version, name, &d);
        if (rc == 0 && d.type != BELAY_F64) {
                fprintf(stderr, "reader: '%s' has elements of type %s, not f64\n", name,
                        belay_type_name(d.type));
                return -EINVAL;
        }
        if (rc == 0)
                rc = belay_read_blocks(r, version, d.index, 0, UINT64_MAX, add_block, &s);
        if (rc == 0 && s.count)
                printf("version %" PRIu64 ": %s is between %g and %g, on average %g\n", version,
                       name, s.least, s.most, s.sum / (double)s.count);
        return rc;
}

/* All versions after *seen. */
static int look(struct belay_reader *r, const char *name, uint64_t *seen)
{
        struct belay_reader_facts facts = {.size = sizeof(facts)};
        if (belay_reader_facts(r, &facts))
                return fail("the pool");
        for (uint32_t i = 0; i < facts.version_count; i++) {
                struct belay_reader_version v = {.size = sizeof(v)};
                if (belay_reader_version_at(r, i, &v))
                        return fail("a version");
                if (v.number <= *seen)
                        continue;
                *seen = v.number;
                int rc = belay_reader_pin(r, v.number);
                if (rc == 0) {
                        rc = summarize(r, v.number, name);
                        (void)belay_reader_unpin(r, v.number);
                }
                if (rc == -ESTALE)
                        printf("version %" PRIu64 " was gone already\n", v.number);
                else if (rc)
                        return fail(name);
        }
        return 0;
}

int main(int argc, char **argv)
{
        const char *pool = "belay.pool";
        const char *name = "plate";
        double seconds = 0;
        for (int i = 1; i < argc; i += 2) {
                const char *value = i + 1 < argc ? argv[i + 1] : NULL;
                if (value && strcmp(argv[i], "--pool") == 0)
                        pool = value;
                else if (value && strcmp(argv[i], "--region") == 0)
                        name = value;
                else if (value && strcmp(argv[i], "--seconds") == 0)
                        seconds = strtod(value, NULL);
                else {
                        fprintf(stderr,
                                "usage: reader [--pool FILE] [--region NAME] [--seconds N]\n");
                        return 2;
                }
        }
        struct belay_reader *r;
        uint64_t seen = 0;
        if (belay_reader_open(pool, NULL, &r))
                return fail(pool);
        time_t end = time(NULL) + (time_t)seconds;
        int status = look(r, name, &seen);
        while (status == 0 && time(NULL) < end) {
                struct timespec pause = {.tv_nsec = 50000000};
                (void)nanosleep(&pause, NULL);
                int changed = belay_reader_refresh(r);
                if (changed < 0 && changed != -EAGAIN)
                        status = fail(pool);
                else if (changed > 0)
                        status = look(r, name, &seen);
        }
        (void)belay_reader_close(&r);
        return status;
}
