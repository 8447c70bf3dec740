/* Arrays for which malloc has mapped pages: the last one is the array's alone, and arrays side by
 * side are protected in one go. Every version is that of its freeze, whatever is written meanwhile,
 * behind the arrays too. And what only looks like that is left alone: there the kernel may write.
 *
 * timeout: 120
 * builds: normal asan tsan */
#include "engine/engine_int.h"
#include "stress.h"
#include <errno.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC false
#else
#define OWN_MALLOC true
#endif

/* Past the C library, and so past whatever stands before it. */
static long raw_random(void *to, uint64_t bytes)
{
#if defined(__x86_64__)
        long rc = SYS_getrandom;
        __asm__ volatile("syscall"
                         : "+a"(rc)
                         : "D"(to), "S"(bytes), "d"(0)
                         : "rcx", "r11", "memory");
        return rc;
#else
        return syscall(SYS_getrandom, to, bytes, 0);
#endif
}

#define ARRAYS 12u
#define PAGE   4096u
#define FRONT  16u /* bytes of the page before the array */

static const char *name_of(uint32_t i)
{
        static char name[16];
        snprintf(name, sizeof(name), "m%u", i);
        return name;
}

static const struct span *span_of(struct belay *b, const char *name)
{
        return &region_find(stress_engine(b)->regions, name)->watch->span;
}

static bool has_last_page(const struct span *s)
{
        return s->high >= s->start + s->bytes;
}

/* As much again of the last page as malloc gives. */
static uint64_t behind(const uint8_t *p, uint64_t bytes)
{
        uint64_t usable = malloc_usable_size((void *)(uintptr_t)p);
        return OWN_MALLOC && usable > bytes ? usable - bytes : 0;
}

static void run(const char *options)
{
        uint8_t *p[ARRAYS];
        uint8_t *frozen[ARRAYS];
        uint64_t bytes[ARRAYS];
        char path[4096];
        snprintf(path, sizeof(path), "%s", stress_pool("malloc"));
        struct belay *b = stress_open(path, options);
        for (uint32_t i = 0; i < ARRAYS; i++) {
                bytes[i] = 140000 + 31000 * (uint64_t)i + i % 3;
                p[i] = i % 4 == 3 ? aligned_alloc(64, (bytes[i] + 63) / 64 * 64) : malloc(bytes[i]);
                frozen[i] = malloc(bytes[i]);
                CHECK(p[i] && frozen[i]);
                stress_fill(p[i], bytes[i], i);
                CHECK_EQ(belay_attach(b, name_of(i), BELAY_U8, bytes[i], p[i]), 0);
        }
        for (uint64_t v = 0; v < 10; v++) {
                for (uint32_t i = 0; i < ARRAYS; i++) {
                        if (v < 5 || (v + i) % 3 == 0)
                                stress_fill(p[i], bytes[i], v * ARRAYS + i);
                        stress_poke(p[i], bytes[i] - 1 - v, (uint8_t)(v + i));
                        memcpy(frozen[i], p[i], bytes[i]);
                }
                CHECK_EQ(belay_checkpoint(b), 0);
                uint64_t version = belay_version(b);
                for (uint32_t k = 0; k < ARRAYS; k++) {
                        uint32_t i = v % 2 ? k : ARRAYS - 1 - k;
                        uint64_t more = behind(p[i], bytes[i]);
                        if (more)
                                p[i][bytes[i] + more - 1]++;
                        stress_poke(p[i], bytes[i] - 1, (uint8_t)~frozen[i][bytes[i] - 1]);
                        stress_poke(p[i], 0, (uint8_t)~frozen[i][0]);
                        stress_poke(p[i], bytes[i] / 2, (uint8_t)~frozen[i][bytes[i] / 2]);
                }
                CHECK_EQ(belay_wait(b, version, BELAY_FOREVER), 0);
                for (uint32_t i = 0; i < ARRAYS; i++)
                        stress_compare(path, version, name_of(i), frozen[i], bytes[i]);
        }
        bool watched = !strstr(options, "tracker=hash");
        for (uint32_t i = 0; OWN_MALLOC && watched && i < ARRAYS; i++)
                CHECK(has_last_page(span_of(b, name_of(i))));
        stress_close(&b);
        for (uint32_t i = 0; i < ARRAYS; i++) {
                free(p[i]);
                free(frozen[i]);
        }
}

static void test_arrays(void)
{
        CHECK(mallopt(M_MMAP_THRESHOLD, 128 << 10) == 1 || !OWN_MALLOC); /* and stays so */
        run("policy=adaptive rate=48MiB");
        run("policy=adaptive rate=48MiB tracker=uffd unit=64KiB");
        run("policy=async tracker=mprotect copy_buffer=0 rate=64MiB");
        run("policy=adaptive diff=pages unit=32KiB");
        run("policy=adaptive precopy=immediate");
        run("policy=sync");
}

/* ---- what only looks like it ---- */

struct header {
        uint64_t before, size;
};

/* An array of some pages and a half, `start` bytes into its first page, behind such a header. What
 * follows it in its last page is somebody else's. */
static void look_alike(uint64_t start, struct header h, bool alone)
{
        enum { PAGES = 100, BYTES = (PAGES - 1) * PAGE + PAGE / 2 };
        uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        uint8_t *p = memory + start;
        if (start >= sizeof(h))
                memcpy(p - sizeof(h), &h, sizeof(h));
        uint64_t bytes = BYTES - start;
        struct belay *b =
                stress_open(stress_pool("look_alike"), "policy=adaptive rate=8MiB diff=off");
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, bytes, p), 0);
        for (uint64_t v = 0; v < 5; v++) {
                stress_fill(p, bytes, v);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(has_last_page(span_of(b, "a")), alone);
                if (!alone)
                        CHECK_EQ(raw_random(p + bytes, PAGE / 2), PAGE / 2);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
        stress_close(&b);
        CHECK_EQ(munmap(memory, PAGES * PAGE), 0);
}

static void test_look_alikes(void)
{
        const uint64_t all = UINT64_C(100) * PAGE;
        look_alike(FRONT, (struct header){0, all | 2}, true);
        look_alike(64, (struct header){48, (all - 48) | 2}, true);
        look_alike(0, (struct header){0, 0}, false);
        look_alike(FRONT, (struct header){0, 0}, false);
        look_alike(FRONT, (struct header){0, all}, false);              /* of the heap         */
        look_alike(FRONT, (struct header){0, all | 3}, false);          /* … after another one */
        look_alike(FRONT, (struct header){0, (all + PAGE) | 2}, false); /* it goes on          */
        look_alike(FRONT, (struct header){0, (all - PAGE) | 2}, false);
        look_alike(FRONT, (struct header){PAGE, (all - PAGE) | 2}, false);
        look_alike(64, (struct header){0, all | 2}, false);
        look_alike(8, (struct header){0, all | 2}, false);
}

/* Between two arrays lies something that was never registered: the kernel may write there during a
 * commit of both, which are dense. */
static void test_between(void)
{
        enum { PAGES = 4600, BYTES = 640 * PAGE + 1000, GAP = 200, REST = 3200 * PAGE };
        uint8_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        uint8_t *p[2] = {memory + 2000, memory + 2000 + BYTES + GAP};
        struct belay *b = stress_open(stress_pool("between"),
                                      "policy=async copy_ahead=no rate=32MiB diff=off");
        for (uint32_t i = 0; i < 2; i++)
                CHECK_EQ(belay_attach(b, name_of(i), BELAY_U8, BYTES, p[i]), 0);
        /* Enough that two threads protect it, and arrays side by side with one call. */
        uint8_t *rest = memory + 1350 * PAGE;
        CHECK_EQ(belay_attach(b, "rest", BELAY_U8, REST, rest), 0);
        for (uint64_t v = 0; v < 6; v++) {
                stress_fill(rest, REST, v);
                stress_fill(p[0], BYTES, v);
                stress_fill(p[1], BYTES, v + 100);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(raw_random(p[0] + BYTES, GAP), GAP);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        }
        CHECK(region_find(stress_engine(b)->regions, name_of(0))->watch->ops == &tracker_dense);
        stress_close(&b);
        CHECK_EQ(munmap(memory, PAGES * PAGE), 0);
}

int main(void)
{
        RUN(test_arrays);
        RUN(test_look_alikes);
        RUN(test_between);
        return 0;
}
