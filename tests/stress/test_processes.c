/* Forks, signals, kills, users: a commit in the middle of what programs do. */
#include "plat/plat.h"
#include "stress.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define BYTES (6u << 20)
#define SLOW  "policy=adaptive copy_buffer=256KiB rate=48MiB "

static const char *const trackers[] = {"tracker=scan", "tracker=uffd", "tracker=mprotect"};

static struct belay *open_slow(const char *path, int tracker)
{
        char options[256];
        snprintf(options, sizeof(options), SLOW "%s", trackers[tracker]);
        return stress_open(path, options);
}

/* Everything a child may not do gives an error; what it may do works. */
static void child(struct belay *b, uint8_t *m, int tracker)
{
        stress_fill(m, BYTES, 99);
        CHECK_EQ(belay_checkpoint(b), -EPERM);
        CHECK_HAS(belay_error(), "fork()");
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), -EPERM);
        CHECK(belay_alloc(b, "y", BELAY_U8, 1) == NULL);
        CHECK_EQ(belay_free(b, "x"), -EPERM);
        CHECK_EQ(belay_close(&b), -EPERM);
        /* Its own context is tracked like any other. */
        const char *path = stress_pool("child");
        struct belay *own = open_slow(path, tracker);
        uint8_t *y = belay_alloc(own, "y", BELAY_U8, BYTES);
        for (uint64_t round = 0; round < 2; round++) {
                stress_fill(y, BYTES, round);
                uint8_t *frozen = stress_copy(y, BYTES);
                CHECK_EQ(belay_checkpoint(own), 0);
                stress_fill(y, BYTES, 50);
                stress_exact(own, path, "y", frozen, BYTES);
        }
        CHECK_EQ(belay_close(&own), 0);
        _exit(0);
}

static void test_fork(void)
{
        for (int t = 0; t < 3; t++) {
                char path[4096]; /* the child asks for another one */
                snprintf(path, sizeof(path), "%s", stress_pool("fork"));
                struct belay *b = open_slow(path, t);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                for (uint64_t round = 0; round < 2; round++) {
                        stress_fill(m, BYTES, round);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        pid_t pid = fork();
                        if (pid == 0)
                                child(b, m, t);
                        stress_fill(m, BYTES, 70);
                        stress_exact(b, path, "x", frozen, BYTES);
                        CHECK_EQ(stress_reap(pid), 0);
                        free(frozen);
                }
                CHECK(belay_resize(b, "x", BYTES * 2) != NULL);
                CHECK_EQ(belay_close(&b), 0);
        }
}

/* No handler of pthread_atfork runs for these children; their writes wait for nobody all the same.
 */
static pid_t bare_fork(int kind)
{
        return kind ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : _Fork();
}

static void test_bare_fork(void)
{
        for (int t = 0; t < 6; t++) {
                const char *path = stress_pool("bare");
                struct belay *b = open_slow(path, t / 2);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                stress_fill(m, BYTES, 1);
                uint8_t *frozen = stress_copy(m, BYTES);
                CHECK_EQ(belay_checkpoint(b), 0);
                pid_t pid = bare_fork(t % 2);
                if (pid == 0) {
                        memset(m, 99, BYTES);
                        _exit(m[BYTES - 1] != 99);
                }
                stress_fill(m, BYTES, 70);
                stress_exact(b, path, "x", frozen, BYTES);
                CHECK_EQ(stress_reap(pid), 0);
                CHECK_EQ(belay_close(&b), 0);
                free(frozen);
        }
}

static sigjmp_buf escape;
static volatile sig_atomic_t seen[2];
static struct sigaction found[2];

static void jump_out(int number)
{
        seen[number == SIGBUS]++;
        siglongjmp(escape, 1);
}

/* Passes on what it does not know, as libraries do. */
static void pass_on(int number, siginfo_t *info, void *context)
{
        const struct sigaction *old = &found[number == SIGBUS];
        if (old->sa_flags & SA_SIGINFO)
                old->sa_sigaction(number, info, context);
        else
                old->sa_handler(number);
}

static void install(struct sigaction *old, bool passing)
{
        static const int numbers[] = {SIGSEGV, SIGBUS};
        struct sigaction a = {.sa_handler = jump_out};
        if (passing) {
                a.sa_sigaction = pass_on;
                a.sa_flags = SA_SIGINFO;
        }
        for (int i = 0; i < 2; i++)
                CHECK_EQ(sigaction(numbers[i], &a, &old[i]), 0);
}

/* A write to a read-only page, and one behind the end of a file, are the program's own faults. */
static void fault_on_purpose(void)
{
        volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        FILE *f = tmpfile();
        volatile char *file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
        seen[0] = seen[1] = 0;
        if (sigsetjmp(escape, 1) == 0)
                *page = 1;
        if (sigsetjmp(escape, 1) == 0)
                *file = 1;
        CHECK_EQ(seen[0], 1);
        CHECK_EQ(seen[1], 1);
        munmap((void *)(uintptr_t)page, 4096);
        munmap((void *)(uintptr_t)file, 4096);
        fclose(f);
}

static void test_handlers(void)
{
        struct sigaction none[2];
        for (int t = 0; t < 3; t++) {
                const char *path = stress_pool("handlers");
                if (t == 0)
                        install(none, false);
                struct belay *b = open_slow(path, t);
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                fault_on_purpose();
                if (t == 0)
                        install(found, true); /* in front of ours, and calls it */
                for (uint64_t round = 0; round < 2; round++) {
                        stress_fill(m, BYTES, round);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        fault_on_purpose();
                        stress_fill(m, BYTES, 70);
                        fault_on_purpose();
                        stress_exact(b, path, "x", frozen, BYTES);
                        free(frozen);
                }
                CHECK_EQ(belay_close(&b), 0);
                fault_on_purpose();
        }
}

static _Atomic bool no_sync;

/* So that a commit does not end before the process does, however slow the process is. */
static int sync_or_never(int fd)
{
        while (no_sync)
                pause();
        return plat_system.fdatasync(fd);
}

/* Version 1 is published, version 2 is killed while it is flushed: version 1 comes back. */
static void test_kill(void)
{
        struct plat_calls table = plat_system;
        table.fdatasync = sync_or_never;
        for (int t = 0; t < 3; t++) {
                const char *path = stress_pool("kill");
                uint8_t *expected = malloc(BYTES);
                stress_fill(expected, BYTES, 1);
                pid_t pid = fork();
                if (pid == 0) {
                        plat = &table;
                        struct belay *b = open_slow(path, t);
                        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                        stress_fill(m, BYTES, 1);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                        stress_fill(m, BYTES, 2);
                        no_sync = true;
                        CHECK_EQ(belay_checkpoint(b), 0);
                        memset(m, 3, BYTES / 2);
                        CHECK_EQ(stress_state(b), BELAY_FLUSHING);
                        raise(SIGKILL);
                }
                CHECK_EQ(stress_reap(pid), 1000 + SIGKILL);
                stress_compare(path, 1, "x", expected, BYTES);
                free(expected);
        }
}

static void test_unprivileged(void)
{
        if (geteuid() != 0)
                return; /* all the tests are */
        char dir[4096];
        snprintf(dir, sizeof(dir), "%s/own", test_dir());
        CHECK_EQ(mkdir(dir, 0755), 0);
        CHECK_EQ(chown(dir, 65534, 65534), 0);
        CHECK_EQ(chmod(test_dir(), 0755), 0);
        const char *path = stress_pool("own/pool");
        pid_t pid = fork();
        if (pid == 0) {
                if (chdir(dir) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
                        _exit(77);
                struct belay *b = stress_open("pool", SLOW "tracker=auto");
                uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                for (uint64_t round = 0; round < 2; round++) {
                        stress_fill(m, BYTES, round);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_fill(m, BYTES, 70);
                        stress_exact(b, "pool", "x", frozen, BYTES);
                }
                CHECK_EQ(belay_close(&b), 0);
                _exit(0);
        }
        CHECK_EQ(stress_reap(pid), 0);
        (void)path;
}

/* No room for the second version: it fails with a text, the program goes on; once there is room the
 * next one is complete. */
static void test_full(void)
{
        for (int t = 0; t < 3; t++)
                for (int p = 0; p < 2; p++) {
                        char options[256];
                        const char *path = stress_pool("full");
                        snprintf(options, sizeof(options),
                                 "policy=%s copy_buffer=256KiB limit=16MiB versions=1 rate=200MiB "
                                 "%s",
                                 p ? "adaptive" : "async", trackers[t]);
                        struct belay *b = stress_open(path, options);
                        uint8_t *m = belay_alloc(b, "x", BELAY_U8, BYTES);
                        stress_fill(m, BYTES, 1);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_exact(b, path, "x", m, BYTES);
                        uint8_t *y = belay_alloc(b, "y", BELAY_U8, BYTES);
                        stress_fill(m, BYTES, 2);
                        stress_fill(y, BYTES, 3);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_fill(m, BYTES, 4);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), BELAY_E_CHECKPOINT);
                        CHECK(belay_error()[0] != '\0');
                        struct belay_status s = {.size = sizeof(s)};
                        CHECK_EQ(belay_status(b, 0, &s), 0);
                        CHECK_EQ(s.state, BELAY_FAILED);
                        CHECK_HAS(s.text, "no version was published");
                        CHECK_EQ(belay_free(b, "y"), 0);
                        uint8_t *frozen = stress_copy(m, BYTES);
                        CHECK_EQ(belay_checkpoint(b), 0);
                        stress_fill(m, BYTES, 5);
                        stress_exact(b, path, "x", frozen, BYTES);
                        CHECK_EQ(belay_close(&b), 0);
                        free(frozen);
                }
}

int main(void)
{
        RUN(test_full);
        RUN(test_kill);
        RUN(test_unprivileged);
        RUN(test_fork);
        RUN(test_bare_fork);
        RUN(test_handlers);
        return 0;
}
