/* Memory that is written all over gets huge pages by itself: with the same content, beside writes,
 * checkpoints, children and calls that change regions; none where the program has holes, where it
 * is sparse, where it is switched off or refused. And regions that turn dense in the middle of an
 * epoch are exact.
 *
 * timeout: 300
 * builds: normal asan tsan */
#include "engine/engine_int.h"
#include "stress.h"
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE    (UINT64_C(2) << 20)
#define BYTES   (16 * HUGE)
#define PAGE    UINT64_C(4096)
#define OPTIONS "policy=adaptive "

static void sleep_ms(long ms)
{
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static struct watch *watch_of(struct belay *b, const char *name)
{
        return region_find(stress_engine(b)->regions, name)->watch;
}

/* The flusher does nothing meanwhile. */
static bool is_dense(struct belay *b)
{
        engine_pause(stress_engine(b));
        bool dense = watch_of(b, "x")->ops == &tracker_dense;
        engine_resume(stress_engine(b));
        return dense;
}

static bool await_dense(struct belay *b, int tries)
{
        for (int i = 0; i < tries && !is_dense(b); i++)
                sleep_ms(10);
        return is_dense(b);
}

/* What /proc/self/smaps says of mappings with pages in [p, p + bytes). */
static uint64_t smaps(const char *field, const void *p, uint64_t bytes)
{
        char line[512];
        bool inside = false;
        uint64_t sum = 0;
        FILE *f = fopen("/proc/self/smaps", "re");
        CHECK(f != NULL);
        while (fgets(line, sizeof(line), f)) {
                unsigned long long a;
                unsigned long long z;
                if (sscanf(line, "%llx-%llx ", &a, &z) == 2)
                        inside = a < (uintptr_t)p + bytes && z > (uintptr_t)p;
                if (inside && strncmp(line, field, strlen(field)) == 0 &&
                    line[strlen(field)] == ':')
                        sum += strtoull(line + strlen(field) + 1, NULL, 10) << 10;
        }
        fclose(f);
        return sum;
}

static uint64_t in_huge_pages(const void *p, uint64_t bytes)
{
        return smaps("AnonHugePages", p, bytes);
}

/* The zero page, where memory was only read, is not counted. */
static uint64_t resident(const void *p, uint64_t bytes)
{
        return smaps("Rss", p, bytes);
}

static uint8_t *get(uint64_t bytes)
{
        uint8_t *p = aligned_alloc(HUGE, bytes);
        CHECK(p != NULL);
        return p;
}

/* Does this kernel do it, and does it leave it to us? */
static bool can_collapse(void)
{
        struct probe probes[PROBE_COUNT];
        uint8_t *p =
                mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint8_t *page = (uint8_t *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
        CHECK(p != MAP_FAILED);
        memset(page, 1, HUGE);
        bool small = in_huge_pages(page, HUGE) == 0;
        bool works = plat->madvise_collapse(page, HUGE) == 0;
        CHECK_EQ(probe_check("", probes), 0);
        CHECK_EQ(munmap(p, 2 * HUGE), 0);
        return small && works && probe_has(probes, PROBE_UFFD_WP_ASYNC) &&
               probe_has(probes, PROBE_PAGEMAP_SCAN) && probe_has(probes, PROBE_UFFD_SIGBUS);
}

static void write_all(struct belay *b, const char *path, uint8_t *p, uint64_t bytes, uint64_t round)
{
        stress_fill(p, bytes, round);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", p, bytes);
}

static uint8_t stirred;

/* In every second huge page the last small one is left alone, if there are holes. */
STRESS_PROGRAM static void stir(uint8_t *p, uint64_t bytes, bool holes)
{
        for (uint64_t at = 0; at < bytes; at += HUGE)
                for (uint64_t i = 0; i < HUGE - (holes && at % (2 * HUGE) ? PAGE : 0); i++)
                        p[at + i]++;
        stirred++;
}

/* Writes all of it, and checkpoints. Memory that the program does not write to for long is taken for
 * sparse, and not collapsed: there is more than one try. */
static bool await_huge(struct belay *b, const char *path, uint8_t *p, uint64_t wanted, bool holes)
{
        for (int round = 0; round < 30 && in_huge_pages(p, BYTES) < wanted; round++) {
                stir(p, BYTES, holes);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
                for (int i = 0; i < 20 && in_huge_pages(p, BYTES) < wanted; i++) {
                        stir(p, BYTES, holes);
                        sleep_ms(2);
                }
        }
        return in_huge_pages(p, BYTES) >= wanted;
}

/* Until no pass is under way. */
static void await_pass(struct belay *b)
{
        for (int i = 0; i < 400; i++) {
                stress_check_idle(b); /* the flusher waits for us, and goes on */
                engine_pause(stress_engine(b));
                bool collapsing = stress_engine(b)->upkeep.collapsing;
                engine_resume(stress_engine(b));
                if (!collapsing)
                        return;
                sleep_ms(10);
        }
        CHECK(!"the pass ends");
}

static void test_alloc(void)
{
        struct belay *b = stress_open(stress_pool("alloc"), OPTIONS);
        uint8_t *small = belay_alloc(b, "small", BELAY_U8, 100);
        uint8_t *large = belay_alloc(b, "large", BELAY_U8, 3 * HUGE + 5);
        CHECK(small && large);
        CHECK_EQ((uintptr_t)large % HUGE, 0);
        CHECK_EQ(resident(large, 3 * HUGE), 0);
        large[3 * HUGE + 4] = 7;
        large = belay_resize(b, "large", 9 * HUGE);
        CHECK(large && large[3 * HUGE + 4] == 7 && large[9 * HUGE - 1] == 0);
        CHECK(resident(large, 9 * HUGE) <= 4 * PAGE);
        stress_close(&b);
}

static void test_dense(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("dense"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        stress_fill(p, BYTES, 2);
        stirred = 0;
        CHECK(await_huge(b, path, p, BYTES * 3 / 4, false));
        uint8_t *copy = malloc(BYTES);
        stress_fill(copy, BYTES, 2);
        for (uint64_t i = 0; i < BYTES; i++)
                copy[i] = (uint8_t)(copy[i] + stirred);
        CHECK_MEM(p, copy, BYTES);
        free(copy);
        await_pass(b);
        /* And they stay: what a commit splits is not collapsed again and again. */
        for (uint64_t round = 3; round < 6; round++)
                write_all(b, path, p, BYTES, round);
        CHECK(in_huge_pages(p, BYTES) >= BYTES / 2);
        stress_close(&b);
}

/* What is new is taken for dense, but collapsed only when it proves to be. */
static void test_sparse(void)
{
        char path[4096];
        const uint64_t bytes = 128u << 20;
        snprintf(path, sizeof(path), "%s", stress_pool("sparse"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, bytes);
        uint64_t seed = 1;
        for (int i = 0; i < 1000; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                p[(seed >> 20) % bytes] = 1;
        }
        for (int round = 0; round < 5; round++) {
                p[round * 77777] = (uint8_t)(round + 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                sleep_ms(20);
        }
        CHECK_EQ(in_huge_pages(p, bytes), 0);
        CHECK(resident(p, bytes) <= 1010 * PAGE);
        stress_close(&b);
}

static void test_off(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("off"));
        struct belay *b = stress_open(path, OPTIONS "huge_pages=off");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        for (uint64_t round = 0; round < 4; round++) {
                write_all(b, path, p, BYTES, round);
                sleep_ms(50);
        }
        CHECK_EQ(in_huge_pages(p, BYTES), 0);
        stress_close(&b);
}

/* Every second huge page lacks one small one. */
static void test_holes(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("holes"));
        uint8_t *p = get(BYTES);
        struct belay *b = stress_open(path, OPTIONS);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, p), 0);
        for (uint64_t at = 0; at < BYTES; at += HUGE)
                stress_fill(p + at, HUGE - (at % (2 * HUGE) ? PAGE : 0), at);
        uint64_t before = resident(p, BYTES);
        CHECK(await_huge(b, path, p, BYTES / 4, true));
        await_pass(b);
        CHECK(in_huge_pages(p, BYTES) <= BYTES / 2);
        CHECK(resident(p, BYTES) <= before + before / 100);
        stress_close(&b);
        free(p);
}

/* The program does not want them there. */
static void test_refused(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("refused"));
        uint8_t *p = get(BYTES);
        CHECK_EQ(madvise(p, BYTES, MADV_NOHUGEPAGE), 0);
        struct belay *b = stress_open(path, OPTIONS);
        CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, p), 0);
        for (uint64_t round = 0; round < 30; round++) {
                write_all(b, path, p, BYTES, round);
                await_pass(b);
                if (unit_notes(watch_of(b, "x"))->density.refused)
                        break;
        }
        CHECK_EQ(in_huge_pages(p, BYTES), 0);
        CHECK(unit_notes(watch_of(b, "x"))->density.refused);
        stress_close(&b);
        free(p);
}

static int collapse_code;

static int collapse_fails(void *p, uint64_t bytes)
{
        (void)p;
        (void)bytes;
        return collapse_code;
}

/* No memory, a limit, a page in use: nothing is lost, and it is tried again later. */
static void test_failing(void)
{
        static const int codes[] = {-ENOMEM, -EBUSY, -EAGAIN};
        static struct plat_calls calls;
        calls = *plat;
        calls.madvise_collapse = collapse_fails;
        for (int i = 0; i < 3; i++) {
                char path[4096];
                const struct plat_calls *real = plat;
                snprintf(path, sizeof(path), "%s", stress_pool("failing"));
                collapse_code = codes[i];
                plat = &calls;
                struct belay *b = stress_open(path, OPTIONS);
                uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
                for (uint64_t round = 0; round < 3; round++)
                        write_all(b, path, p, BYTES, round);
                await_pass(b);
                CHECK_EQ(in_huge_pages(p, BYTES), 0);
                CHECK(!unit_notes(watch_of(b, "x"))->density.refused);
                stress_close(&b);
                plat = real;
        }
}

/* The program writes on while commits and passes run, a piece at a time. */
static void test_beside_writes(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("beside"));
        const uint64_t piece = 64u << 10;
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        uint8_t *expected = malloc(BYTES);
        stress_fill(expected, BYTES, 0);
        memcpy(p, expected, BYTES);
        for (uint64_t round = 1; round < 8; round++) {
                uint8_t *frozen = stress_copy(p, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                for (uint64_t at = 0; at < BYTES; at += piece) {
                        stress_fill(expected + at, piece, round * 1000 + at);
                        stress_fill(p + at, piece, round * 1000 + at);
                        if (at % HUGE == 0)
                                sleep_ms(2);
                }
                stress_exact(b, path, "x", frozen, BYTES);
                CHECK_MEM(p, expected, BYTES);
                free(frozen);
        }
        free(expected);
        stress_close(&b);
}

/* A child has the memory of the moment it was made, whatever becomes of the parent's. */
static void test_fork(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("fork"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        uint8_t *expected = malloc(BYTES);
        write_all(b, path, p, BYTES, 0);
        for (uint64_t round = 1; round < 5; round++) {
                stress_fill(p, BYTES, round);
                stress_fill(expected, BYTES, round);
                int pid = fork();
                CHECK(pid >= 0);
                if (pid == 0) {
                        for (int i = 0; i < 10; i++) {
                                if (memcmp(p, expected, BYTES) != 0)
                                        _exit(1);
                                sleep_ms(10);
                        }
                        stress_fill(p, BYTES, 99);
                        _exit(0);
                }
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
                sleep_ms(30);
                CHECK_MEM(p, expected, BYTES);
                CHECK_EQ(stress_reap(pid), 0);
        }
        free(expected);
        stress_close(&b);
}

/* Regions come, grow and go while the flusher is at it. */
static void test_registry(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("registry"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        uint64_t bytes = BYTES;
        for (uint64_t round = 0; round < 12; round++) {
                uint8_t *other = get(BYTES / 2);
                CHECK_EQ(belay_attach(b, "y", BELAY_U8, BYTES / 2, other), 0);
                for (uint64_t k = 0; k < 3; k++) {
                        stress_fill(other, BYTES / 2, round + k);
                        write_all(b, path, p, bytes, round + 7 * k);
                }
                sleep_ms((long)round / 2);
                CHECK_EQ(belay_detach(b, "y"), 0);
                free(other);
                bytes = round % 2 ? BYTES : BYTES + 3 * HUGE;
                p = belay_resize(b, "x", bytes);
                CHECK(p != NULL);
        }
        stress_close(&b);
}

/* ---- watching ---- */

/* Until the region is scanned, and little is written. */
static void make_sparse(struct belay *b, const char *path, uint8_t *p)
{
        struct belay_stats s = {.size = sizeof(s)};
        for (uint64_t round = 0; round < 8; round++) {
                p[round * 5000]++;
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
        }
        CHECK(!is_dense(b));
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.last_data > 0 && s.last_data <= 32u << 10); /* a block */
}

/* From dense to sparse, in whatever pages it was: one word is one block. And back, in the middle of
 * an epoch. */
static void test_phases(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("phases"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        for (uint64_t cycle = 0; cycle < 3; cycle++) {
                for (uint64_t round = 0; round < 3; round++)
                        write_all(b, path, p, BYTES, 10 * cycle + round);
                /* Later phases would have to last longer than this one did. */
                CHECK(cycle > 0 || await_huge(b, path, p, BYTES / 2, false));
                make_sparse(b, path, p);
                stress_fill(p, BYTES / 2, cycle);
                CHECK(await_dense(b, 1000));
                stress_fill(p + BYTES / 2, BYTES / 2, cycle);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
                CHECK_EQ(unit_notes(watch_of(b, "x"))->density.doubts, 0);
        }
        stress_close(&b);
}

/* The first epoch is taken to be as long as the time before the first checkpoint: a region is not
 * called calm before the program could have come back to it. */
static void test_first_epoch(void)
{
        char path[4096];
        enum { LARGE = 64 << 20 };
        snprintf(path, sizeof(path), "%s", stress_pool("first_epoch"));
        struct belay *b = stress_open(path, OPTIONS "huge_pages=off");
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, LARGE);
        sleep_ms(2000);
        write_all(b, path, p, LARGE, 1);
        CHECK(is_dense(b));
        sleep_ms(300);
        CHECK(is_dense(b));
        /* But it is when nothing was written for that long. */
        for (int i = 0; i < 500 && is_dense(b); i++)
                sleep_ms(20);
        CHECK(!is_dense(b));
        stress_close(&b);
}

/* Somewhat more than three eighths are rewritten, which is called dense once, and not a second time. */
static void test_doubts(void)
{
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("doubts"));
        struct belay *b = stress_open(path, OPTIONS);
        uint8_t *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        write_all(b, path, p, BYTES, 0);
        for (uint64_t round = 0; round < 2; round++) {
                make_sparse(b, path, p);
                stress_fill(p, BYTES / 100 * 42, round + 50);
                CHECK_EQ(await_dense(b, round == 0 ? 1000 : 20), round == 0);
                CHECK_EQ(belay_checkpoint(b), 0);
                stress_exact(b, path, "x", p, BYTES);
                make_sparse(b, path, p);
                CHECK_EQ(unit_notes(watch_of(b, "x"))->density.doubts, 1);
        }
        stress_close(&b);
}

int main(void)
{
        RUN(test_alloc);
        if (!can_collapse()) {
                printf("the kernel does not put memory into huge pages for us\n");
                return 77;
        }
        RUN(test_dense);
        RUN(test_sparse);
        RUN(test_off);
        RUN(test_holes);
        RUN(test_refused);
        RUN(test_failing);
        RUN(test_beside_writes);
        RUN(test_fork);
        RUN(test_registry);
        RUN(test_phases);
        RUN(test_doubts);
        RUN(test_first_epoch);
        return 0;
}
