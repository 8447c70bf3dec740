/* The program's own handlers for SIGSEGV and SIGBUS, set while a commit runs: its writes to regions
 * go on, and it sees what it set. Masks: test_masks.c.
 *
 * timeout: 120 */
#include "world.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- handlers ----------------------------------------------------------------------------------
 */

static sigjmp_buf escape;
static volatile sig_atomic_t jumps;
static volatile sig_atomic_t term_blocked;

static void jump_out(int number)
{
        sigset_t now;
        (void)number;
        jumps++;
        (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
        term_blocked = sigismember(&now, SIGTERM);
        siglongjmp(escape, 1);
}

static void jump_too(int number)
{
        jump_out(number);
}

/* A fault of the program's own reaches its handler, once. */
static void fault_on_purpose(void)
{
        volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        jumps = 0;
        if (sigsetjmp(escape, 1) == 0)
                *page = 1;
        CHECK_EQ(jumps, 1);
        munmap((void *)(uintptr_t)page, 4096);
}

static void set_both(void (*handler)(int), void (*before)(int))
{
        static const int numbers[] = {SIGSEGV, SIGBUS};
        for (int i = 0; i < 2; i++) {
                struct sigaction a = {.sa_handler = handler};
                struct sigaction old;
                sigaddset(&a.sa_mask, SIGTERM);
                sigaddset(&a.sa_mask, SIGSEGV);
                CHECK_EQ(sigaction(numbers[i], &a, &old), 0);
                CHECK(old.sa_handler == before);
                CHECK_EQ(sigaction(numbers[i], NULL, &old), 0);
                CHECK(old.sa_handler == handler && !(old.sa_flags & SA_SIGINFO));
                CHECK(sigismember(&old.sa_mask, SIGTERM) && sigismember(&old.sa_mask, SIGSEGV));
                CHECK(!sigismember(&old.sa_mask, SIGBUS));
        }
}

static void handlers(const struct world *w)
{
        jumps = 0;
        set_both(jump_out, SIG_DFL);
        stress_poke(w->memory, WORLD_BYTES - 1, 1);
        CHECK_EQ(jumps, 0);
        fault_on_purpose();
        CHECK(term_blocked);
        set_both(jump_too, jump_out);
        CHECK(signal(SIGSEGV, jump_out) == jump_too);
        CHECK(signal(SIGBUS, jump_out) == jump_too);
        stress_poke(w->memory, WORLD_BYTES - (1 << 20), 1);
        fault_on_purpose();
        CHECK(!term_blocked);
        jumps = 0;
        world_write_all(w);
        CHECK_EQ(jumps, 0);
        /* A handler for one time is used up by a fault of the program's, not by ours. */
        struct sigaction once = {.sa_handler = jump_out, .sa_flags = (int)SA_RESETHAND};
        struct sigaction now;
        CHECK_EQ(sigaction(SIGSEGV, &once, NULL), 0);
        fault_on_purpose();
        CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
        CHECK(now.sa_handler == SIG_DFL);
        CHECK(signal(SIGSEGV, SIG_DFL) == SIG_DFL);
        CHECK(signal(SIGBUS, SIG_DFL) == jump_out);
        CHECK(signal(SIGSEGV, SIG_ERR) == SIG_ERR);
}

static void test_handlers(void)
{
        world_for_all(handlers);
}

/* A handler that was set past the library is in front until the next freeze. */
static void test_past_the_library(void)
{
        void *libc = dlopen("libc.so.6", RTLD_LAZY);
        int (*direct)(int, const struct sigaction *, struct sigaction *);
        if (!libc)
                return;
        *(void **)&direct = dlsym(libc, "sigaction");
        struct world w = {.b = NULL};
        world_begin(&w, 2, 1);
        CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
        struct sigaction a = {.sa_handler = jump_out};
        CHECK_EQ(direct(SIGSEGV, &a, NULL), 0);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        jumps = 0;
        world_write_all(&w);
        CHECK_EQ(jumps, 0);
        fault_on_purpose();
        CHECK(signal(SIGSEGV, SIG_DFL) == jump_out);
        world_end(&w);
        dlclose(libc);
}

static _Atomic bool stop;

static void must_not_run(int number)
{
        (void)number;
        _exit(9);
}

static void *change_handlers(void *arg)
{
        (void)arg;
        while (!stop) {
                struct sigaction a = {.sa_handler = must_not_run};
                struct sigaction old;
                CHECK_EQ(sigaction(SIGSEGV, &a, &old), 0);
                CHECK(old.sa_handler == must_not_run || old.sa_handler == SIG_DFL);
                CHECK(signal(SIGBUS, must_not_run) != SIG_ERR);
        }
        return NULL;
}

/* Threads change handlers all the time; none of it is in the way of a fault of ours, nor of a child
 * that is forked while one of them is at it. */
static void change_and_fork(const struct world *w)
{
        pthread_t threads[2];
        stop = false;
        for (int i = 0; i < 2; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, change_handlers, NULL), 0);
        for (int i = 0; i < 20; i++) {
                world_write_from(w, WORLD_BYTES - (1 << 16) * (uint64_t)(i + 1));
                pid_t pid = fork();
                if (pid == 0) {
                        (void)alarm(20); /* the default action: 1000 + SIGALRM */
                        _exit(signal(SIGSEGV, SIG_DFL) == SIG_ERR);
                }
                CHECK_EQ(stress_reap(pid), 0);
        }
        stop = true;
        for (int i = 0; i < 2; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
}

static void test_change_and_fork(void)
{
        world_in_time = false;
        world_for_all(change_and_fork);
        world_in_time = true;
}

static void must_run(int number)
{
        (void)number;
}

/* What a child of vfork() does to its handlers is none of its parent's business. */
static void borrow(const struct world *w)
{
        struct sigaction now;
        CHECK(signal(SIGSEGV, must_run) != SIG_ERR);
        pid_t pid = vfork();
        if (pid == 0) {
                (void)signal(SIGSEGV, SIG_DFL);
                _exit(0);
        }
        CHECK_EQ(stress_reap(pid), 0);
        CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
        CHECK(now.sa_handler == must_run);
        world_write_all(w);
        (void)signal(SIGSEGV, SIG_DFL);
}

static void test_vfork(void)
{
        world_for_all(borrow);
}

/* The default action is still taken. */
static void test_default(void)
{
        struct world w = {.b = NULL};
        world_begin(&w, 0, 1);
        pid_t pid = fork();
        if (pid == 0) {
                set_both(jump_out, SIG_DFL);
                CHECK(signal(SIGSEGV, SIG_DFL) == jump_out);
                *(volatile char *)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) =
                        1;
                _exit(0);
        }
        CHECK_EQ(stress_reap(pid), 1000 + SIGSEGV);
        world_end(&w);
}

/* Memory that cannot be read any more raises the signal of a trapped page for ever: it is the
 * program's, who gets it. */
static void test_unreadable(void)
{
        for (int t = 0; t < 3; t++) {
                char options[128];
                int fd = memfd_create("state", 0);
                CHECK_EQ(ftruncate(fd, WORLD_BYTES), 0);
                uint8_t *p = mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
                CHECK(p != MAP_FAILED);
                stress_fill(p, WORLD_BYTES, 1);
                snprintf(options, sizeof(options), "policy=adaptive unit=64KiB %s",
                         world_trackers[t]);
                struct belay *b = stress_open(stress_pool("unreadable"), options);
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, WORLD_BYTES, p), 0);
                for (int i = 0; i < 3; i++) {
                        CHECK_EQ(belay_checkpoint(b), 0);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                }
                CHECK(signal(SIGBUS, jump_out) == SIG_DFL);
                CHECK_EQ(ftruncate(fd, WORLD_BYTES / 2), 0);
                jumps = 0;
                if (sigsetjmp(escape, 1) == 0)
                        stress_poke(p, WORLD_BYTES - 1, 1);
                CHECK_EQ(jumps, 1);
                CHECK_EQ(ftruncate(fd, WORLD_BYTES), 0);
                CHECK(signal(SIGBUS, SIG_DFL) == jump_out);
                CHECK_EQ(belay_detach(b, "x"), 0);
                stress_close(&b);
                CHECK_EQ(munmap(p, WORLD_BYTES), 0);
                CHECK_EQ(close(fd), 0);
        }
}

int main(void)
{
        /* A sanitizer has its own. */
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        RUN(test_handlers);
        RUN(test_change_and_fork);
        RUN(test_past_the_library);
        RUN(test_vfork);
        RUN(test_default);
        RUN(test_unreadable);
        return 0;
}
