/* The program's own handlers and masks for SIGSEGV and SIGBUS, set while a commit runs: its writes
 * to regions go on, and it sees what it set.
 *
 * timeout: 120 */
#include "stress.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES (6u << 20)
#define SLOW  "policy=adaptive unit=64KiB rate=48MiB "

static const char *const trackers[] = {"tracker=scan", "tracker=uffd", "tracker=mprotect"};
static const char *const buffers[] = {"copy_buffer=0", "copy_buffer=256KiB"};

struct world {
        struct belay *b;
        char path[4096];
        uint8_t *memory, *frozen;
};

static void begin(struct world *w, int tracker, int buffer)
{
        char options[256];
        snprintf(w->path, sizeof(w->path), "%s", stress_pool("pool"));
        snprintf(options, sizeof(options), SLOW "%s %s", trackers[tracker], buffers[buffer]);
        w->b = stress_open(w->path, options);
        w->memory = belay_alloc(w->b, "x", BELAY_U8, BYTES);
        CHECK(w->memory != NULL);
        stress_fill(w->memory, BYTES, 1);
        w->frozen = stress_copy(w->memory, BYTES);
        CHECK_EQ(belay_checkpoint(w->b), 0);
}

/* From the end: the flusher without history goes up. */
static void write_from(const struct world *w, uint64_t from)
{
        for (uint64_t at = BYTES; at > from; at -= 4096)
                stress_poke(w->memory, at - 1, (uint8_t)(at >> 12));
}

static void write_all(const struct world *w)
{
        write_from(w, 0);
}

static void end(struct world *w)
{
        stress_exact(w->b, w->path, "x", w->frozen, BYTES);
        CHECK_EQ(belay_checkpoint(w->b), 0);
        stress_exact(w->b, w->path, "x", w->memory, BYTES);
        CHECK_EQ(belay_close(&w->b), 0);
        free(w->frozen);
}

static bool in_time = true; /* the commit must outlast what happens during it */

static void for_all(void (*during)(const struct world *w))
{
        for (int t = 0; t < 3; t++)
                for (int k = 0; k < 2; k++) {
                        struct world w = {.b = NULL};
                        begin(&w, t, k);
                        during(&w);
                        if (in_time)
                                CHECK_EQ(stress_state(w.b), BELAY_FLUSHING);
                        end(&w);
                }
}

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
        stress_poke(w->memory, BYTES - 1, 1);
        CHECK_EQ(jumps, 0);
        fault_on_purpose();
        CHECK(term_blocked);
        set_both(jump_too, jump_out);
        CHECK(signal(SIGSEGV, jump_out) == jump_too);
        CHECK(signal(SIGBUS, jump_out) == jump_too);
        stress_poke(w->memory, BYTES - (1 << 20), 1);
        fault_on_purpose();
        CHECK(!term_blocked);
        jumps = 0;
        write_all(w);
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
        for_all(handlers);
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
        begin(&w, 2, 1);
        CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
        struct sigaction a = {.sa_handler = jump_out};
        CHECK_EQ(direct(SIGSEGV, &a, NULL), 0);
        CHECK_EQ(belay_checkpoint(w.b), 0);
        jumps = 0;
        write_all(&w);
        CHECK_EQ(jumps, 0);
        fault_on_purpose();
        CHECK(signal(SIGSEGV, SIG_DFL) == jump_out);
        end(&w);
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
                write_from(w, BYTES - (1 << 16) * (uint64_t)(i + 1));
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
        in_time = false;
        for_all(change_and_fork);
        in_time = true;
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
        write_all(w);
        (void)signal(SIGSEGV, SIG_DFL);
}

static void test_vfork(void)
{
        for_all(borrow);
}

/* The default action is still taken. */
static void test_default(void)
{
        struct world w = {.b = NULL};
        begin(&w, 0, 1);
        pid_t pid = fork();
        if (pid == 0) {
                set_both(jump_out, SIG_DFL);
                CHECK(signal(SIGSEGV, SIG_DFL) == jump_out);
                *(volatile char *)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) =
                        1;
                _exit(0);
        }
        CHECK_EQ(stress_reap(pid), 1000 + SIGSEGV);
        end(&w);
}

/* ---- masks -------------------------------------------------------------------------------------
 */

static void *write_in_thread(void *arg)
{
        sigset_t now;
        CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
        CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGTERM));
        write_all(arg);
        return NULL;
}

static void *write_end_in_thread(void *arg)
{
        write_from(arg, BYTES - (1 << 20));
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
        for_all(masks);
}

/* Blocks what it is told to past the library: 8 bytes, as the kernel wants it. */
static void block_directly(int a, int b)
{
        uint64_t set = UINT64_C(1) << (a - 1) | UINT64_C(1) << (b - 1);
        CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof(set)), 0);
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
        write_all(w);
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
                write_all(d->world);
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
                w.b = stress_open(w.path, SLOW "tracker=auto");
                belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
                if (numbers[i] == SIGTERM)
                        CHECK_STR(warning, "");
                else
                        CHECK_HAS(warning, "1 of the program's threads block SIGSEGV or SIGBUS");
                w.memory = belay_alloc(w.b, "x", BELAY_U8, BYTES);
                stress_fill(w.memory, BYTES, 1);
                w.frozen = stress_copy(w.memory, BYTES);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                d.world = &w;
                pthread_barrier_wait(&d.barrier);
                CHECK_EQ(pthread_join(thread, NULL), 0);
                CHECK_EQ(stress_state(w.b), BELAY_FLUSHING);
                end(&w);
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
        begin(&w, 0, 0);
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
        end(&w);
}

/* Memory that cannot be read any more raises the signal of a trapped page for ever: it is the
 * program's, who gets it. */
static void test_unreadable(void)
{
        for (int t = 0; t < 3; t++) {
                char options[128];
                int fd = memfd_create("state", 0);
                CHECK_EQ(ftruncate(fd, BYTES), 0);
                uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
                CHECK(p != MAP_FAILED);
                stress_fill(p, BYTES, 1);
                snprintf(options, sizeof(options), "policy=adaptive unit=64KiB %s", trackers[t]);
                struct belay *b = stress_open(stress_pool("unreadable"), options);
                CHECK_EQ(belay_attach(b, "x", BELAY_U8, BYTES, p), 0);
                for (int i = 0; i < 3; i++) {
                        CHECK_EQ(belay_checkpoint(b), 0);
                        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                }
                CHECK(signal(SIGBUS, jump_out) == SIG_DFL);
                CHECK_EQ(ftruncate(fd, BYTES / 2), 0);
                jumps = 0;
                if (sigsetjmp(escape, 1) == 0)
                        stress_poke(p, BYTES - 1, 1);
                CHECK_EQ(jumps, 1);
                CHECK_EQ(ftruncate(fd, BYTES), 0);
                CHECK(signal(SIGBUS, SIG_DFL) == jump_out);
                CHECK_EQ(belay_detach(b, "x"), 0);
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(munmap(p, BYTES), 0);
                CHECK_EQ(close(fd), 0);
        }
}

int main(int argc, char **argv)
{
        self = argv[0];
        /* A sanitizer has its own. */
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        if (argc > 1) {
                for_all(inherited);
                return 0;
        }
        RUN(test_handlers);
        RUN(test_change_and_fork);
        RUN(test_past_the_library);
        RUN(test_vfork);
        RUN(test_default);
        RUN(test_unreadable);
        RUN(test_masks);
        RUN(test_inherited);
        RUN(test_deaf);
        RUN(test_deaf_refused);
        return 0;
}
