/* Threads may have stacks of 16 KiB (PTHREAD_STACK_MIN): every public call works there. And how
 * much of a painted stack each one uses is measured in a thread with a large one; TEST_STACK=1
 * shows it. A sanitizer's frames are larger.
 *
 * builds: normal */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <belay/nvm.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

#define LARGE   (128u << 10)
#define PAINT   0xa7
#define REGIONS 300u
#define SMALL   5000u
#define BIG     (24u << 20) /* more than one leaf */
/* Of 16 KiB libc takes some 3: the thread's descriptor, thread-local variables, its own frames. And
 * a write fault needs room for the kernel's frame, 2.7 KiB with AVX-512, wherever it happens. */
#define MOST (11u << 10)

static const char *const *options;
static bool large;
static uint8_t *stack;
static size_t most;
static const char *most_name;

/* Everything below the caller's frame, but for what this function needs itself. */
__attribute__((noinline)) static void paint(void)
{
        uintptr_t end = (uintptr_t)__builtin_frame_address(0) - 512;
        for (volatile uint8_t *p = stack; (uintptr_t)p < end; p++)
                *p = PAINT;
}

__attribute__((noinline)) static void measure(const char *name)
{
        size_t at = 0;
        while (stack[at] == PAINT)
                at++;
        size_t used = (uintptr_t)__builtin_frame_address(0) - (uintptr_t)stack - at;
        if (large && getenv("TEST_STACK"))
                printf("  %6zu %s\n", used, name);
        if (used > most) {
                most = used;
                most_name = name;
        }
        if (large && used > MOST)
                check_failed(__FILE__, __LINE__, "%s uses %zu bytes of stack", name, used);
}

#define USES(call)                                                                                 \
        do {                                                                                       \
                if (large)                                                                         \
                        paint();                                                                   \
                call;                                                                              \
                if (large)                                                                         \
                        measure(#call);                                                            \
        } while (0)

static char pool_path[4096], stats_path[4096];
static struct belay *b;
static struct belay_config *c;

static void set_options(void)
{
        USES(CHECK_EQ(belay_config_new(&c), 0));
        USES(CHECK_EQ(belay_config_set(c, "pool", pool_path), 0));
        USES(CHECK_EQ(belay_config_set(c, "stats_file", stats_path), 0));
        for (const char *const *o = options; o[0]; o += 2)
                USES(CHECK_EQ(belay_config_set(c, o[0], o[1]), 0));
        USES(CHECK(belay_config_set(c, "nonsense", "1") < 0));
}

static void add_regions(void)
{
        static uint8_t own[SMALL];
        static char name[32];
        uint8_t *p;
        for (unsigned i = 0; i < REGIONS; i++) {
                snprintf(name, sizeof(name), "region-%u", i);
                USES(CHECK(belay_alloc(b, name, BELAY_U8, SMALL) != NULL));
        }
        USES(CHECK((p = belay_alloc(b, "big", BELAY_U8, BIG)) != NULL));
        USES(memset(p, 1, BIG));
        USES(CHECK_EQ(belay_attach(b, "own", BELAY_U8, SMALL, own), 0));
        USES(CHECK(belay_alloc(b, "big", BELAY_U8, 1) == NULL));
}

static void take_versions(void)
{
        static struct belay_status status = {.size = sizeof(status)};
        static struct belay_stats stats = {.size = sizeof(stats)};
        uint8_t *p = belay_ptr(b, "big");
        for (int i = 0; i < 4; i++) {
                USES(CHECK_EQ(belay_checkpoint(b), 0));
                USES(memset(p + i * 4096 * 3, i + 2, BIG / 2)); /* faults */
                USES(CHECK_EQ(belay_status(b, 0, &status), 0));
                USES(CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0));
                USES(CHECK_EQ(belay_stats(b, &stats), 0));
                USES(CHECK(belay_should_checkpoint(b) >= 0));
        }
        USES(CHECK_EQ(belay_begin(b), 0));
        USES(CHECK_EQ(belay_add(b, "big"), 0));
        USES(CHECK_EQ(belay_end(b), 0));
        USES(CHECK_EQ(belay_begin(b), 0));
        USES(CHECK_EQ(belay_abort(b), 0));
        USES(CHECK(belay_resize(b, "region-7", 3 * SMALL) != NULL));
        USES(CHECK_EQ(belay_free(b, "region-8"), 0));
        USES(CHECK_EQ(belay_checkpoint(b), 0));
}

static void restart(void)
{
        static struct belay_report report = {.size = sizeof(report)};
        static struct belay_desc desc = {.size = sizeof(desc)};
        static char value[4096];
        USES(CHECK_EQ(belay_restart_version(
                              b, 0, BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED | BELAY_RESIZE),
                      1));
        USES(CHECK_EQ(belay_restart_report(b, &report), 0));
        USES(CHECK_EQ(belay_stored(b, "big", &desc), 0));
        USES(CHECK_EQ(belay_get(b, "pool", value, sizeof(value)), 0));
        USES(CHECK(belay_restart_version(b, 4711, 0) < 0));
        USES(CHECK(belay_error()[0] != '\0'));
}

/* The calls of the NVM paper, on the same pool. */
static void by_id(void)
{
        uint8_t *p;
        USES(CHECK((p = nvalloc(genid("variable"), SMALL, 1)) != NULL));
        USES(memset(p, 3, SMALL));
        USES(CHECK(nv2dalloc_id(genid("field"), 100, 100, 8, 1) != NULL));
        USES(CHECK_EQ(nvchkptid(genid("variable")), 0));
        USES(CHECK_EQ(nvchkptall(), 0));
        USES(CHECK(nvrealloc(genid("variable"), p, 2 * SMALL) != NULL));
        USES(CHECK_EQ(nvdelete(genid("field")), 0));
        USES(CHECK_EQ(nvclose(), 0));
        USES(CHECK_EQ(nvsize(genid("variable")), SMALL));
        USES(CHECK_EQ(nvclose(), 0));
}

/* Errors have texts, which take room too: the path of an error is the deepest. */
static void refused(void)
{
        uint8_t noise[64];
        int fd = open(pool_path, O_RDWR);
        memset(noise, 0x5a, sizeof(noise));
        for (int i = 0; i < 2; i++)
                CHECK_EQ(pwrite(fd, noise, sizeof(noise), i * 4096 + 512), sizeof(noise));
        close(fd);
        USES(CHECK(belay_open(c, &b) < 0));
        CHECK_HAS(belay_error(), "superblock");
}

static void *everything(void *arg)
{
        (void)arg;
        most = 0;
        set_options();
        USES(CHECK_EQ(belay_open(c, &b), 0));
        add_regions();
        take_versions();
        USES(CHECK_EQ(belay_detach(b, "own"), 0));
        USES(CHECK_EQ(belay_close(&b), 0));
        /* A pool with many regions, and with several versions. */
        USES(CHECK_EQ(belay_open(c, &b), 0));
        add_regions();
        restart();
        USES(memset(belay_ptr(b, "big"), 9, BIG)); /* of a lazy restart too */
        USES(CHECK_EQ(belay_checkpoint(b), 0));
        USES(CHECK_EQ(belay_close(&b), 0));
        refused();
        USES(belay_config_delete(&c));
        unlink(pool_path);
        by_id();
        return NULL;
}

static void run_in(size_t bytes)
{
        pthread_attr_t attr;
        pthread_t thread;
        large = bytes == LARGE;
        stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stack != MAP_FAILED);
        CHECK_EQ(pthread_attr_init(&attr), 0);
        CHECK_EQ(pthread_attr_setstack(&attr, stack, bytes), 0);
        CHECK_EQ(pthread_create(&thread, &attr, everything, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(pthread_attr_destroy(&attr), 0);
        CHECK_EQ(munmap(stack, bytes), 0);
        unlink(pool_path);
        unlink(stats_path);
        if (large)
                printf("  most: %zu bytes by %s\n", most, most_name);
        fflush(stdout);
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void run(const char *const *with)
{
        options = with;
        run_in((size_t)PTHREAD_STACK_MIN);
        run_in(LARGE);
}

static void test_file(void)
{
        run(OPTIONS("media", "file", "policy", "sync"));
        run(OPTIONS("media", "file", "policy", "adaptive", "io", "pwrite"));
}

static void test_mapped(void)
{
        run(OPTIONS("media", "mapped", "policy", "sync", "versions", "1"));
        run(OPTIONS("media", "mapped", "policy", "async", "restart", "lazy+verify"));
}

static void test_trackers(void)
{
        run(OPTIONS("policy", "adaptive", "tracker", "mprotect", "copy_buffer", "0"));
        run(OPTIONS("policy", "adaptive", "tracker", "uffd", "diff", "off"));
}

static void test_device(void)
{
        run(OPTIONS("policy", "sync", "media", "mapped", "device_rate", "10GiB"));
}

/* Options come from a file and the environment too, and messages go to the program. */
static void listen(void *arg, enum belay_log_level level, const char *text)
{
        *(size_t *)arg += strlen(text) + level;
}

int main(void)
{
        char path[4200];
        size_t heard = 0;
        test_env_clean();
        snprintf(pool_path, sizeof(pool_path), "%s/pool", test_dir());
        snprintf(stats_path, sizeof(stats_path), "%s/stats", test_dir());
        snprintf(path, sizeof(path), "%s/conf", test_dir());
        FILE *f = fopen(path, "w");
        CHECK(f && fprintf(f, "# options\nversions = 3\nstats_file = %s\n", stats_path) > 0);
        CHECK_EQ(fclose(f), 0);
        setenv("BELAY_CONF", path, 1);
        setenv("BELAY_POOL", pool_path, 1);
        belay_log_sink(listen, &heard, BELAY_LOG_DEBUG);
        RUN(test_file);
        RUN(test_mapped);
        RUN(test_trackers);
        RUN(test_device);
        return 0;
}
