/* Threads write while commits run; what each version stores is compared with a copy made at its
 * freeze. First they write all over, then here and there, then all over again.
 *
 * timeout: 300
 * builds: normal asan tsan */
#include "stress.h"
#include "base/base.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 3 };
static int rounds = STRESS_TSAN ? 3 : 12; /* or as an argument says */
#define BYTES (12u << 20)

struct world {
        uint8_t *memory[3]; /* allocated, attached and unaligned, attached and small */
        uint64_t bytes[3];
        uint8_t *shadow[3];
        _Atomic bool stop, sparse;
        pthread_rwlock_t freeze; /* writers hold it shared; the freeze holds it alone */
        uint64_t seed;
};

static const char *const names[] = {"allocated", "unaligned", "small"};

static uint64_t next(uint64_t *s)
{
        *s ^= *s << 13;
        *s ^= *s >> 7;
        *s ^= *s << 17;
        return *s;
}

static void *writer(void *arg)
{
        struct world *w = arg;
        uint64_t s = w->seed ^ (uint64_t)(uintptr_t)&s;
        while (!atomic_load(&w->stop)) {
                bool sparse = atomic_load(&w->sparse);
                pthread_rwlock_rdlock(&w->freeze);
                for (int i = 0; i < (sparse ? 1 : 64); i++) {
                        uint64_t r = next(&s);
                        int k = (int)(r % 16 == 0 ? 2 : r % 4 == 0 ? 1 : 0);
                        uint64_t at = (r >> 8) % w->bytes[k];
                        uint64_t n = (r >> 40) % 300 + 1;
                        memset(w->memory[k] + at, (int)(r >> 56), min_u64(n, w->bytes[k] - at));
                }
                pthread_rwlock_unlock(&w->freeze);
                if (sparse)
                        usleep(300);
        }
        return NULL;
}

static void compare(const char *path, uint64_t version, const struct world *w)
{
        for (int k = 0; k < 3; k++)
                stress_compare(path, version, names[k], w->shadow[k], w->bytes[k]);
}

static void set(struct belay_config *c, const char *key, const char *value)
{
        if (belay_config_set(c, key, value))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
}

static _Atomic unsigned turned_dense, turned_back;

static void count_changes(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        turned_dense += strstr(text, "is written all over") != NULL;
        turned_back += strstr(text, "is written here and there") != NULL;
}

static void run(const char *tracker, const char *policy, const char *unit, const char *buffer,
                const char *behind, const char *order, uint64_t *patched)
{
        char path[4096];
        struct belay_config *c;
        struct belay *b;
        struct world w = {.bytes = {BYTES, 3u << 20, 5000},
                          .seed = 88172645463325252u,
                          /* else writers that never pause would keep the freeze out for ever */
                          .freeze = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        unlink(path);
        CHECK_EQ(belay_config_new(&c), 0);
        set(c, "pool", path);
        set(c, "tracker", tracker);
        set(c, "policy", policy);
        set(c, "unit", unit);
        set(c, "copy_buffer", buffer);
        set(c, "open_behind", behind);
        set(c, "order", order);
        set(c, "rate", "400MiB");
        CHECK_EQ(belay_open(c, &b), 0);
        uint8_t *raw = malloc((3u << 20) + 5000 + 200);
        w.memory[0] = belay_alloc(b, names[0], BELAY_U8, BYTES);
        w.memory[1] = raw + 100;
        w.memory[2] = raw + (3u << 20) + 150;
        for (int k = 1; k < 3; k++)
                CHECK_EQ(belay_attach(b, names[k], BELAY_U8, w.bytes[k], w.memory[k]), 0);
        for (int k = 0; k < 3; k++)
                w.shadow[k] = malloc(w.bytes[k]);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, writer, &w), 0);
        struct belay_stats s = {.size = sizeof(s)};
        uint64_t waits = 0, cows = 0, avoided = 0, faults = 0, patches = 0;
        for (int i = 0; i < rounds; i++) {
                atomic_store(&w.sparse, i > rounds / 3 && i < rounds - 2);
                pthread_rwlock_wrlock(&w.freeze);
                for (int k = 0; k < 3; k++)
                        memcpy(w.shadow[k], w.memory[k], w.bytes[k]);
                CHECK_EQ(belay_checkpoint(b), 0);
                pthread_rwlock_unlock(&w.freeze);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                compare(path, belay_version(b), &w);
                CHECK_EQ(belay_stats(b, &s), 0);
                waits += s.last_waits, cows += s.last_cows, avoided += s.last_avoided,
                        faults += s.last_faults, patches += s.last_patches;
        }
        atomic_store(&w.stop, true);
        for (int i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        printf("  %s %s unit %s buffer %s open_behind %s order %s: "
               "%llu faults, %llu waits, %llu copies, %llu avoided, %llu patches\n",
               tracker, policy, unit, buffer, behind, order, (unsigned long long)faults,
               (unsigned long long)waits, (unsigned long long)cows, (unsigned long long)avoided,
               (unsigned long long)patches);
        *patched += patches;
        stress_close(&b);
        belay_config_delete(&c);
        for (int k = 0; k < 3; k++)
                free(w.shadow[k]);
        free(raw);
}

int main(int argc, char **argv)
{
        rounds = argc > 1 ? atoi(argv[1]) : rounds;
        static const char *const trackers[] = {"scan", "mprotect", "uffd", "hash"};
        static const char *const policies[] = {"sync", "async", "adaptive"};
        uint64_t patched[ARRAY_LEN(trackers)] = {0};
        belay_log_sink(count_changes, NULL, BELAY_LOG_DEBUG);
        for (size_t t = 0; t < ARRAY_LEN(trackers); t++)
                for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
                        run(trackers[t], policies[p], "64KiB", "1MiB", "yes", "time", &patched[t]);
                        if (p == 0 || t == 3)
                                continue;
                        run(trackers[t], policies[p], "16KiB", "4MiB", "no", "time", &patched[t]);
                        if (STRESS_TSAN)
                                continue;
                        run(trackers[t], policies[p], "64KiB", "0", "yes", "time", &patched[t]);
                        run(trackers[t], policies[p], "256KiB", "64MiB", "yes", "time",
                            &patched[t]);
                        if (p == 2)
                                run(trackers[t], policies[p], "64KiB", "1MiB", "yes", "paper",
                                    &patched[t]);
                }
        if (rounds < 12)
                return 0;
        /* That the tests above met what they are for. Only the scanner knows single pages. */
        printf("  dense %u times, back %u times\n", turned_dense, turned_back);
        CHECK(patched[0] > 0 && patched[1] == 0 && patched[2] == 0 && patched[3] == 0);
        CHECK(turned_dense > 0 && turned_back > 0);
        return 0;
}
