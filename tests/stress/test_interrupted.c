/* The program has no signals, so none of its system calls may be interrupted: an epoll_wait that
 * gives EINTR, or a read of /dev/urandom that stops early, would be the library's doing. io_uring
 * does that to threads that make a ring or submit to it. */
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <time.h>

#define BYTES   (16u << 20)
#define ROUNDS  8
#define WAIT_MS 5
#define LARGE   (256u << 10) /* the kernel looks for signals every 4096 bytes */

static int epoll, source;
static uint64_t interrupted, shortened;
static uint8_t *buffer;

static double now_ms(void)
{
        struct timespec t;
        CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &t), 0);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* What is left of a ring comes some 20 ms after it. */
static void use_kernel(double for_ms)
{
        double until = now_ms() + for_ms;
        do {
                struct epoll_event e;
                int n = epoll_wait(epoll, &e, 1, WAIT_MS);
                interrupted += n < 0 && errno == EINTR;
                shortened += read(source, buffer, LARGE) != LARGE;
        } while (now_ms() < until);
}

static void none_interrupted(const char *when)
{
        if (interrupted || shortened)
                check_failed(__FILE__, __LINE__, "%s: %llu interrupted, %llu cut short", when,
                             (unsigned long long)interrupted, (unsigned long long)shortened);
}

/* The comparison submits to a ring itself, and so has a process of its own. */
static void compare(const char *path, uint64_t version, const void *untracked, const void *tracked)
{
        pid_t pid = fork();
        if (pid == 0) {
                stress_compare(path, version, "untracked", untracked, BYTES);
                stress_compare(path, version, "tracked", tracked, BYTES);
                _exit(0);
        }
        CHECK_EQ(stress_reap(pid), 0);
}

static void run(const char *options)
{
        const char *path = stress_pool("pool");
        struct belay *b = stress_open(path, options);
        use_kernel(60);
        none_interrupted("after belay_open");
        /* Whole at every checkpoint, and staged by the thread of the program. */
        struct belay_desc d = {.size = sizeof(d),
                               .name = "untracked",
                               .type = BELAY_U8,
                               .ndims = 1,
                               .flags = BELAY_UNTRACKED,
                               .dims = {BYTES}};
        uint8_t *untracked = belay_alloc_desc(b, &d);
        uint8_t *tracked = belay_alloc(b, "tracked", BELAY_U8, BYTES);
        CHECK(untracked && tracked);
        struct belay_stats s = {.size = sizeof(s)};
        for (int i = 0; i < ROUNDS; i++) {
                stress_fill(untracked, BYTES, (uint64_t)i);
                stress_fill(tracked, i % 2 ? BYTES / 16 : BYTES, (uint64_t)i);
                CHECK_EQ(belay_checkpoint(b), 0);
                use_kernel(30);
                none_interrupted("after belay_checkpoint");
        }
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK(s.last_direct > 0);
        compare(path, belay_version(b), untracked, tracked);
        CHECK_EQ(belay_close(&b), 0);
        use_kernel(60);
        none_interrupted("after belay_close");
}

int main(void)
{
        struct belay_config *c;
        struct belay *b;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", stress_pool("probe")), 0);
        CHECK_EQ(belay_config_set(c, "media", "file"), 0);
        CHECK_EQ(belay_config_set(c, "io", "uring"), 0);
        epoll = epoll_create1(0);
        source = open("/dev/urandom", O_RDONLY);
        CHECK(epoll >= 0 && source >= 0 && (buffer = malloc(LARGE)) != NULL);
        if (belay_open(c, &b))
                skip(belay_error());
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&c);
        use_kernel(60);
        none_interrupted("after the first belay_open");
        run("media=file io=uring policy=async");
        run("media=file io=uring policy=adaptive copy_buffer=1MiB");
        run("media=file io=pwrite policy=async");
        free(buffer);
        return 0;
}
