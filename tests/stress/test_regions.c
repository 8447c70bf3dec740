/* Regions that come, grow, move and go while a commit runs: the version holds the state at its
 * freeze, and the calls neither hang nor disturb it.
 *
 * builds: normal asan tsan */
#include "stress.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES (6u << 20)

static const char *const trackers[] = {"scan", "uffd", "mprotect", "hash"};

static struct belay *open_slow(const char *path, const char *tracker)
{
        char options[256];
        snprintf(options, sizeof(options),
                 "tracker=%s policy=adaptive copy_buffer=256KiB rate=64MiB", tracker);
        return stress_open(path, options);
}

static void add_many(struct belay *b, int round)
{
        for (int i = 0; i < 40; i++) {
                char name[32];
                snprintf(name, sizeof(name), "extra %d", i);
                if (round % 2)
                        CHECK_EQ(belay_free(b, name), 0);
                else
                        CHECK(belay_alloc(b, name, BELAY_U8, 4096u * (unsigned)(40 - i)) != NULL);
        }
}

/* One kind of change for each round, always just after a checkpoint. */
static void changes(const char *tracker)
{
        const char *path = stress_pool("regions");
        struct belay *b = open_slow(path, tracker);
        uint64_t bytes = BYTES;
        uint8_t *m = belay_alloc(b, "grows", BELAY_U8, bytes);
        uint8_t *here = aligned_alloc(4096, BYTES);
        uint8_t *there = aligned_alloc(4096, BYTES);
        CHECK_EQ(belay_attach(b, "moves", BELAY_U8, BYTES, here), 0);
        for (int round = 0; round < 6; round++) {
                stress_fill(m, bytes, (uint64_t)round);
                stress_fill(here, BYTES, 100 + (uint64_t)round);
                uint8_t *a = stress_copy(m, bytes);
                uint8_t *c = stress_copy(here, BYTES);
                uint64_t frozen = bytes;
                CHECK_EQ(belay_checkpoint(b), 0);
                add_many(b, round);
                bytes = round % 2 ? BYTES : BYTES * 2;
                m = belay_resize(b, "grows", bytes);
                CHECK(m != NULL);
                memset(m, 0xee, bytes);
                CHECK_EQ(belay_move(b, "moves", BYTES, there), 0);
                memset(here, 0xdd, BYTES);
                uint8_t *t = here;
                here = there;
                there = t;
                stress_exact(b, path, "grows", a, frozen);
                stress_exact(b, path, "moves", c, BYTES);
                free(a);
                free(c);
        }
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_free(b, "grows"), 0);
        CHECK_EQ(belay_detach(b, "moves"), 0);
        memset(here, 1, BYTES);
        stress_close(&b);
        free(here);
        free(there);
}

static void test_changes(void)
{
        for (int t = 0; t < 4; t++)
                changes(trackers[t]);
}

struct scribbler {
        uint8_t *memory;
        _Atomic bool stop;
};

static void *scribble(void *arg)
{
        struct scribbler *s = arg;
        for (uint32_t i = 1; !atomic_load(&s->stop); i++)
                stress_poke(s->memory, i * 40961u % BYTES, (uint8_t)i);
        return NULL;
}

/* Memory that is detached while threads write to it stays the program's: no fault is lost between
 * the page and the handler. */
static void test_detach_under_writers(void)
{
        for (int t = 0; t < 3; t++) {
                const char *path = stress_pool("detach");
                struct belay *b = open_slow(path, trackers[t]);
                struct scribbler s = {.memory = aligned_alloc(4096, BYTES)};
                pthread_t threads[3];
                stress_fill(s.memory, BYTES, 7);
                for (int i = 0; i < 3; i++)
                        CHECK_EQ(pthread_create(&threads[i], NULL, scribble, &s), 0);
                for (int i = 0; i < 8; i++) {
                        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, s.memory), 0);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        CHECK_EQ(belay_detach(b, "x"), 0);
                }
                atomic_store(&s.stop, true);
                for (int i = 0; i < 3; i++)
                        CHECK_EQ(pthread_join(threads[i], NULL), 0);
                stress_close(&b);
                free(s.memory);
        }
}

struct late {
        uint8_t *memory;
        uint64_t at;
};

static void *write_once(void *arg)
{
        struct late *l = arg;
        memset(l->memory + l->at, 0x5a, 4096);
        return NULL;
}

/* A thread that is born in the middle of a commit, for every few pages. */
static void test_late_threads(void)
{
        for (int t = 0; t < 4; t++) {
                const char *path = stress_pool("late");
                struct belay *b = open_slow(path, trackers[t]);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                for (uint64_t round = 0; round < 2; round++) {
                        pthread_t threads[64];
                        struct late late[64];
                        stress_fill(m, BYTES, round);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        for (uint64_t i = 0; i < 64; i++) {
                                late[i] = (struct late){m, (i * 37 % 64) * (BYTES / 64)};
                                CHECK_EQ(pthread_create(&threads[i], NULL, write_once, &late[i]),
                                         0);
                        }
                        for (int i = 0; i < 64; i++)
                                CHECK_EQ(pthread_join(threads[i], NULL), 0);
                        stress_exact(b, path, "x", frozen, BYTES);
                        free(frozen);
                }
                stress_close(&b);
        }
}

#define UNIT (64u << 10)

/* Memory that is touched here and there while it is watched becomes many mappings, which the kernel
 * does not resize as one. */
static void test_resize_in_parts(void)
{
        for (int t = 0; t < 4; t++) {
                char options[64];
                snprintf(options, sizeof(options), "tracker=%s unit=64KiB", trackers[t]);
                const char *path = stress_pool("parts");
                struct belay *b = stress_open(path, options);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, 90 * UNIT);
                CHECK_EQ(belay_checkpoint(b), 0);
                m[4 * UNIT] = 1;
                m[40 * UNIT] = 2;
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                m[7 * UNIT] = 3;
                m[60 * UNIT] = 4;
                static const unsigned sizes[] = {200, 70, 1000};
                for (int i = 0; i < 3; i++) {
                        m = belay_resize(b, "x", (uint64_t)sizes[i] * UNIT);
                        CHECK(m != NULL);
                        CHECK_EQ(m[4 * UNIT] + 10 * m[40 * UNIT] + 100 * m[7 * UNIT] +
                                         1000 * m[60 * UNIT],
                                 4321);
                        CHECK_EQ(m[sizes[i] * UNIT - 1], 0);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        m[(uint64_t)(sizes[i] / 2) * UNIT]++;
                        m[(uint64_t)(sizes[i] / 2) * UNIT]--;
                }
                uint8_t *frozen = stress_copy(m, 1000 * UNIT);
                stress_exact(b, path, "x", frozen, 1000 * UNIT);
                free(frozen);
                stress_close(&b);
        }
}

/* Units that are not whole pages: one that was opened opens a page of the next, too, and the kernel
 * writes all of the next all the same. */
static void test_transfers_beside(void)
{
        _Alignas(4096) static uint8_t memory[91 * UNIT];
        static uint8_t input[UNIT];
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("input"));
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        stress_fill(input, UNIT, 7);
        CHECK_EQ(write(fd, input, UNIT), UNIT);
        for (int t = 0; t < 4; t++) {
                char options[64];
                snprintf(options, sizeof(options), "tracker=%s policy=async unit=64KiB",
                         trackers[t]);
                struct belay *b = stress_open(stress_pool("beside"), options);
                uint8_t *m = memory + 1000;
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, 90 * UNIT, m), 0);
                memset(m, 1, 90 * UNIT);
                for (int i = 0; i < 3; i++) {
                        CHECK_EQ(belay_checkpoint(b), 0);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                        m[4 * UNIT + 5000]++;
                        CHECK_EQ(pread(fd, m + 5 * UNIT, UNIT - 8192, 0), UNIT - 8192);
                        CHECK(memcmp(m + 5 * UNIT, input, UNIT - 8192) == 0);
                }
                stress_close(&b);
        }
        CHECK_EQ(close(fd), 0);
}

int main(void)
{
        RUN(test_resize_in_parts);
        RUN(test_transfers_beside);
        RUN(test_changes);
        RUN(test_late_threads);
        RUN(test_detach_under_writers);
        return 0;
}
