/* SIGSEGV and SIGBUS blocked in every way a program has, while a commit runs: its writes to regions
 * go on, and it sees what it asked for.
 *
 * timeout: 240 */
#include "plat/plat.h"
#include "world.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void *write_in_thread(void *arg)
{
        sigset_t now;
        CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGTERM));
        world_write_all(arg);
        return NULL;
}

static void *write_end_in_thread(void *arg)
{
        world_write_from(arg, WORLD_BYTES - (1 << 20));
        return NULL;
}

/* As programs do that want one thread for all signals. */
static void masks(const struct world *w)
{
        sigset_t all;
        sigset_t before;
        sigset_t now;
        pthread_t thread;
        pthread_attr_t attr;
        struct world copy = *w;
        sigfillset(&all);
        pthread_attr_init(&attr);
        CHECK_EQ(pthread_attr_setsigmask_np(&attr, &all), 0);
        CHECK_EQ(pthread_create(&thread, &attr, write_end_in_thread, &copy), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        pthread_attr_destroy(&attr);
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
        CHECK(!sigismember(&before, SIGSEGV) && !sigismember(&before, SIGTERM));
        CHECK_EQ(pthread_create(&thread, NULL, write_in_thread, &copy), 0);
        stress_poke(w->memory, 5, 5);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGBUS));
        CHECK(sigismember(&now, SIGTERM));
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGTERM));
}

static void test_masks(void)
{
        world_for_all(masks);
}

/* ---- as BSD and System V have it ---------------------------------------------------------------
 */

static uint64_t pokes;

/* The first write to a unit; ends the process if its signal is blocked. */
static void poke(const struct world *w)
{
        pokes++;
        stress_poke(w->memory, WORLD_BYTES - 1 - pokes * (64 << 10), 7);
}

static const struct world *handler_world;

static void poke_in_handler(int number)
{
        (void)number;
        poke(handler_world);
}

/* Headers hide the one of BSD behind the one of System V. */
int bsd_sigpause(int mask) __asm__("sigpause");
__typeof__(signal) bsd_signal;

#define bit(number) (1 << ((number)-1)) /* as BSD has it */
#define BOTH        (bit(SIGSEGV) | bit(SIGBUS))

static void old_masks(const struct world *w)
{
        pokes = 0;
        handler_world = w;
        CHECK_EQ(sigsetmask(-1) & BOTH, 0);
        poke(w);
        CHECK_EQ(sigblock(0) & BOTH, BOTH);
        CHECK_EQ(sigsetmask(0) & BOTH, BOTH);
        CHECK_EQ(sigblock(0), 0);
        CHECK_EQ(sigblock(BOTH | bit(SIGTERM)), 0);
        poke(w);
        CHECK_EQ(sigblock(0), BOTH | bit(SIGTERM));
        CHECK_EQ(sigrelse(SIGBUS), 0);
        CHECK_EQ(sigblock(0), bit(SIGSEGV) | bit(SIGTERM));
        CHECK_EQ(sigsetmask(0), bit(SIGSEGV) | bit(SIGTERM));
        CHECK_EQ(sighold(SIGSEGV), 0);
        CHECK_EQ(sighold(SIGBUS), 0);
        poke(w);
        CHECK_EQ(sigblock(0), BOTH);
        CHECK(sighold(4711) < 0 && sigrelse(4711) < 0);
        CHECK_EQ(sigsetmask(0), BOTH);
        CHECK(sigset(SIGSEGV, SIG_HOLD) == SIG_DFL);
        CHECK(sigset(SIGBUS, SIG_HOLD) == SIG_DFL);
        CHECK(sigset(SIGBUS, SIG_HOLD) == SIG_HOLD);
        poke(w);
        CHECK_EQ(sigblock(0), BOTH);
        CHECK(sigset(SIGSEGV, poke_in_handler) == SIG_HOLD);
        CHECK(sigset(SIGSEGV, SIG_DFL) == poke_in_handler);
        CHECK(sigset(SIGBUS, SIG_DFL) == SIG_HOLD);
        CHECK_EQ(sigblock(0), 0);
        /* A fault whose signal is ignored ends the process too. */
        CHECK_EQ(sigignore(SIGSEGV), 0);
        CHECK_EQ(sigignore(SIGBUS), 0);
        poke(w);
        CHECK(bsd_signal(SIGSEGV, SIG_DFL) == SIG_IGN);
        CHECK(ssignal(SIGBUS, SIG_DFL) == SIG_IGN);
        CHECK(sysv_signal(SIGSEGV, SIG_DFL) == SIG_DFL);
        poke(w);
        /* A handler has the mask of the call that it interrupts. */
        CHECK(signal(SIGUSR1, poke_in_handler) != SIG_ERR);
        CHECK_EQ(sigblock(bit(SIGUSR1)), 0);
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK(bsd_sigpause(BOTH) < 0 && errno == EINTR);
        CHECK_EQ(raise(SIGUSR1), 0);
        CHECK(sigpause(SIGUSR1) < 0 && errno == EINTR);
        CHECK_EQ(pokes, 8);
        CHECK_EQ(sigsetmask(0), bit(SIGUSR1));
        CHECK(signal(SIGUSR1, SIG_DFL) == poke_in_handler);
}

static void test_old_masks(void)
{
        world_for_all(old_masks);
}

/* ---- contexts ----------------------------------------------------------------------------------
 */

static ucontext_t first, second, third;
static int steps;

/* Everything that is lower on the stack than the caller is written over. */
__attribute__((noinline)) static void use_stack(void)
{
        volatile uint8_t room[4096];
        for (size_t i = 0; i < sizeof(room); i++)
                room[i] = 0xee;
}

static void in_second(int a, int b, int c, int d, int e, int f, int g)
{
        CHECK(a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7);
        poke(handler_world);
        steps++;
        CHECK_EQ(swapcontext(&second, &first), 0);
        poke(handler_world);
        steps++;
}

static void in_third(void)
{
        poke(handler_world);
        CHECK_EQ(steps, 2);
        steps = 100;
        CHECK_EQ(setcontext(&first), 0);
}

static void fill_context(ucontext_t *c, void *stack, size_t bytes)
{
        CHECK_EQ(getcontext(c), 0);
        sigfillset(&c->uc_sigmask);
        c->uc_stack.ss_sp = stack;
        c->uc_stack.ss_size = bytes;
        c->uc_link = NULL;
}

static void contexts(const struct world *w)
{
        const size_t bytes = 256 << 10;
        void *stack[2] = {malloc(bytes), malloc(bytes)};
        volatile int entered = 0;
        sigset_t now;
        pokes = 0;
        handler_world = w;
        CHECK_EQ(getcontext(&first), 0);
        if (++entered == 1) {
                sigfillset(&first.uc_sigmask);
                use_stack();
                CHECK_EQ(setcontext(&first), 0);
        }
        CHECK_EQ(entered, 2);
        poke(w);
        /* Seen as it was asked for. */
        CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGTERM));
        sigemptyset(&now);
        CHECK_EQ(sigprocmask(SIG_SETMASK, &now, NULL), 0);

        steps = 0;
        fill_context(&third, stack[1], bytes);
        makecontext(&third, in_third, 0);
        fill_context(&second, stack[0], bytes);
        second.uc_link = &third;
        makecontext(&second, (void (*)(void))in_second, 7, 1, 2, 3, 4, 5, 6, 7);
        CHECK_EQ(swapcontext(&first, &second), 0);
        /* Twice from here on: when the second context comes back, and when the third does. */
        use_stack();
        if (steps == 1) {
                poke(w);
                CHECK_EQ(setcontext(&second), 0);
        }
        CHECK_EQ(steps, 100);
        CHECK_EQ(pokes, 5);
        free(stack[0]);
        free(stack[1]);
        CHECK_EQ(sigprocmask(SIG_SETMASK, &now, NULL), 0);
}

__attribute__((unused)) static void test_contexts(void)
{
        world_for_all(contexts);
}

/* ---- processes and system calls ----------------------------------------------------------------
 */

extern char **environ;

static void spawned(const struct world *w)
{
        char *argv[] = {(char *)(uintptr_t) "true", NULL};
        pid_t *pid = (pid_t *)(void *)(w->memory + WORLD_BYTES - 64);
        CHECK_EQ(posix_spawnp(pid, "true", NULL, NULL, argv, environ), 0);
        CHECK_EQ(stress_reap(*pid), 0);
        pid = (pid_t *)(void *)(w->memory + WORLD_BYTES - (1 << 20));
        CHECK_EQ(posix_spawn(pid, "/nonexistent", NULL, NULL, argv, environ), ENOENT);
        CHECK_EQ(posix_spawnp(NULL, "true", NULL, NULL, argv, environ), 0);
        CHECK_EQ(stress_reap(-1), 0);
}

static void test_spawn(void)
{
        world_in_time = false; /* as fast as processes begin here */
        world_for_all(spawned);
        world_in_time = true;
}

static void by_number(const struct world *w)
{
        uint64_t all = UINT64_MAX;
        uint64_t both = UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1);
        uint64_t *old = (uint64_t *)(void *)(w->memory + WORLD_BYTES - 64);
        pokes = 2;
        handler_world = w;
        CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, old, 8), 0);
        CHECK_EQ(*old & both, 0);
        poke(w);
        CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &all, old, 8), 0);
        CHECK_EQ(*old & both, both);
        CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 7) < 0 && errno == EINVAL);
        CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 16, NULL, 8) < 0 && errno == EFAULT);
        /* What the kernel calls an action: handler, flags, restorer, mask. */
        uint64_t act[4] = {(uint64_t)(uintptr_t)poke_in_handler, 0, 0, UINT64_MAX};
        uint64_t *was = (uint64_t *)(void *)(w->memory + WORLD_BYTES - (1 << 20));
        CHECK_EQ(syscall(SYS_rt_sigaction, SIGSEGV, act, was, 8), 0);
        CHECK_EQ(was[0], 0);
        poke(w);
        struct sigaction now;
        CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
        CHECK(now.sa_handler == poke_in_handler);
        CHECK(signal(SIGSEGV, SIG_DFL) == poke_in_handler);
        /* The masks of calls that wait. */
        struct sigaction usr = {.sa_handler = poke_in_handler};
        sigset_t block;
        sigset_t before;
        sigemptyset(&block);
        sigaddset(&block, SIGUSR1);
        CHECK_EQ(sigaction(SIGUSR1, &usr, NULL), 0);
        CHECK_EQ(sigprocmask(SIG_BLOCK, &block, &before), 0);
        const struct {
                const uint64_t *set;
                size_t bytes;
        } pair = {&both, 8};
        for (int i = 0; i < 4; i++) {
                struct epoll_event e;
                int epoll = epoll_create1(0);
                CHECK_EQ(raise(SIGUSR1), 0);
                long r = i == 0   ? syscall(SYS_rt_sigsuspend, &both, 8)
                         : i == 1 ? syscall(SYS_ppoll, NULL, 0, NULL, &both, 8)
                         : i == 2 ? syscall(SYS_pselect6, 0, NULL, NULL, NULL, NULL, &pair)
                                  : syscall(SYS_epoll_pwait, epoll, &e, 1, -1, &both, 8);
                CHECK(r < 0 && errno == EINTR);
                close(epoll);
        }
        CHECK_EQ(pokes, 2 + 6);
        CHECK_EQ(sigprocmask(SIG_SETMASK, &before, NULL), 0);
        CHECK(signal(SIGUSR1, SIG_DFL) == poke_in_handler);
}

static void test_by_number(void)
{
        world_for_all(by_number);
}

/* ---- past the library --------------------------------------------------------------------------
 */

/* Blocks what it is told to past the library: 8 bytes, as the kernel wants it. */
static void block_directly(int a, int b)
{
        uint64_t set = UINT64_C(1) << (a - 1) | UINT64_C(1) << (b - 1);
        CHECK_EQ(raw_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof(set), 0, 0), 0);
}

static const char *self;

/* A parent that blocks the two and calls exec. */
static void test_inherited(void)
{
        pid_t pid = fork();
        if (pid == 0) {
                block_directly(SIGSEGV, SIGBUS);
                execl(self, self, "inherited", (char *)NULL);
                _exit(3);
        }
        CHECK_EQ(stress_reap(pid), 0);
}

static void inherited(const struct world *w)
{
        sigset_t now;
        CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGBUS));
        world_write_all(w);
}

/* ---- deaf threads ------------------------------------------------------------------------------
 */

struct deaf {
        pthread_barrier_t barrier;
        const struct world *world;
        int number;
};

static void *deaf_thread(void *arg)
{
        struct deaf *d = arg;
        block_directly(d->number, d->number);
        pthread_barrier_wait(&d->barrier);
        pthread_barrier_wait(&d->barrier);
        if (d->world)
                world_write_all(d->world);
        return NULL;
}

static char warning[1024];

static void keep_warning(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        if (level == BELAY_LOG_WARN)
                snprintf(warning, sizeof(warning), "%s", text);
}

/* Nothing is trapped then, and the thread lives. */
static void test_deaf(void)
{
        static const int numbers[] = {SIGSEGV, SIGBUS, SIGTERM};
        for (int i = 0; i < 3; i++) {
                struct deaf d = {.number = numbers[i]};
                struct world w = {.b = NULL};
                pthread_t thread;
                pthread_barrier_init(&d.barrier, NULL, 2);
                CHECK_EQ(pthread_create(&thread, NULL, deaf_thread, &d), 0);
                pthread_barrier_wait(&d.barrier);
                warning[0] = '\0';
                belay_log_sink(keep_warning, NULL, BELAY_LOG_WARN);
                snprintf(w.path, sizeof(w.path), "%s", stress_pool("pool"));
                w.b = stress_open(w.path, WORLD_SLOW "tracker=auto");
                belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
                if (numbers[i] == SIGTERM)
                        CHECK_STR(warning, "");
                else
                        CHECK_HAS(warning, "1 of the program's threads block SIGSEGV or SIGBUS");
                w.memory = belay_alloc(w.b, "x", BELAY_U8, WORLD_BYTES);
                stress_fill(w.memory, WORLD_BYTES, 1);
                w.frozen = stress_copy(w.memory, WORLD_BYTES);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                d.world = &w;
                pthread_barrier_wait(&d.barrier);
                CHECK_EQ(pthread_join(thread, NULL), 0);
                CHECK_EQ(stress_state(w.b), BELAY_FLUSHING);
                world_end(&w);
                pthread_barrier_destroy(&d.barrier);
        }
}

/* The user chose the tracker: then it is an error. The library's own threads are not deaf. */
static void test_deaf_refused(void)
{
        struct deaf d = {.number = SIGSEGV};
        struct belay_config *c;
        struct belay *b;
        pthread_t thread;
        struct world w = {.b = NULL};
        world_begin(&w, 0, 0);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", stress_pool("second")), 0);
        CHECK_EQ(belay_config_set(c, "tracker", "mprotect"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        CHECK_EQ(belay_close(&b), 0);
        pthread_barrier_init(&d.barrier, NULL, 2);
        CHECK_EQ(pthread_create(&thread, NULL, deaf_thread, &d), 0);
        pthread_barrier_wait(&d.barrier);
        CHECK(belay_open(c, &b) < 0);
        CHECK_HAS(belay_error(), "1 of the program's threads block");
        pthread_barrier_wait(&d.barrier);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        pthread_barrier_destroy(&d.barrier);
        belay_config_delete(&c);
        world_end(&w);
}

int main(int argc, char **argv)
{
        self = argv[0];
        /* A sanitizer has its own. */
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        if (argc > 1) {
                world_for_all(inherited);
                return 0;
        }
        RUN(test_masks);
        RUN(test_old_masks);
#if !defined(__SANITIZE_ADDRESS__) /* its swapcontext cannot come back twice */
        RUN(test_contexts);
#endif
        RUN(test_spawn);
        RUN(test_by_number);
        RUN(test_inherited);
        RUN(test_deaf);
        RUN(test_deaf_refused);
        return 0;
}
