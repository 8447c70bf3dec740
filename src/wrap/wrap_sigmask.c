/* wrap_sigmask.c: no thread of the program blocks SIGSEGV or SIGBUS.
 *
 * A fault whose signal is blocked ends the process at once, and programs do block all signals in
 * their threads and handlers. So the two never get into a mask; what the program asked for is
 * remembered and reported. That begins when the library is loaded: a thread that was started before
 * the first region may write to it later, and its mask is out of reach then.
 *
 * What changes for the program: a SIGSEGV or SIGBUS sent by kill() cannot be held back or taken by
 * sigwait(), or by a signalfd.
 *
 * Where masks come from, and who keeps the two out:
 *
 *   pthread_sigmask, sigprocmask, sigblock, sigsetmask, sighold,      here
 *     sigset(SIG_HOLD), sigsuspend, sigpause
 *   ppoll, pselect, epoll_pwait, epoll_pwait2                         wrap_wait.c
 *   a new thread: its creator's mask, pthread_attr_setsigmask_np      here
 *   exec: the mask of the parent                                      here, when we are loaded
 *   the mask of a handler while it runs (sa_mask)                     wrap_sigaction.c
 *   setcontext, swapcontext, the end of a makecontext function        wrap_context.c
 *   siglongjmp: what sigsetjmp found                                  the two were not in it
 *   syscall() with the numbers of these                               wrap_syscall.c
 *   posix_spawn: libc blocks all signals while it stores the number   here
 *     of the child
 *   threads of libc's own (aio, timers, message queues)               they write to no region:
 *                                                                     wrap_aio.c
 *
 * Not covered: system calls that the program makes by its own instructions, past libc; a handler
 * that adds one of the two to the mask in the ucontext it was given, which takes effect when it
 * returns; a mask that is written into a context which is only reached by uc_link, after
 * makecontext. */
#include "wrap/wrap_int.h"
#include <sys/syscall.h>

/* The functions of BSD and System V are deprecated, and called all the same. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static _Thread_local unsigned asked __attribute__((tls_model("initial-exec")));

unsigned wrap_asked(const sigset_t *set)
{
        return (sigismember(set, SIGSEGV) == 1 ? ASKED_SEGV : 0) |
               (sigismember(set, SIGBUS) == 1 ? ASKED_BUS : 0);
}

void wrap_restore(sigset_t *set, unsigned bits)
{
        if (bits & ASKED_SEGV)
                (void)sigaddset(set, SIGSEGV);
        if (bits & ASKED_BUS)
                (void)sigaddset(set, SIGBUS);
}

const sigset_t *wrap_unblock(const sigset_t *set, sigset_t *room)
{
        if (!set || wrap_asked(set) == 0)
                return set;
        *room = *set;
        (void)sigdelset(room, SIGSEGV);
        (void)sigdelset(room, SIGBUS);
        return room;
}

/* The old set comes by way of the stack: the kernel changes the mask before it would find that it
 * cannot deliver. */
int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
        sigset_t room;
        sigset_t before;
        const sigset_t *use = how == SIG_UNBLOCK ? set : wrap_unblock(set, &room);
        unsigned bits = set ? wrap_asked(set) : 0;
        unsigned asked_before = asked;
        int rc = NEXT(pthread_sigmask)(how, use, &before);
        if (rc)
                return rc;
        if (set)
                asked = how == SIG_SETMASK ? bits : how == SIG_BLOCK ? asked | bits : asked & ~bits;
        if (old) {
                wrap_restore(&before, asked_before);
                *old = before;
        }
        return 0;
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
        int rc = pthread_sigmask(how, set, old);
        if (rc == 0)
                return 0;
        errno = rc;
        return -1;
}

void wrap_ask(unsigned bits)
{
        asked |= bits;
}

/* The kernel has no other mask than this, whoever sets it. */
long wrap_kernel_sigmask(int how, const uint64_t *set, uint64_t *old)
{
        uint64_t use = set ? *set & ~FAULT_SIGNALS : 0;
        uint64_t before = 0;
        unsigned asked_before = asked;
        sigset_t wide;
        long rc =
                NEXT(syscall)(SYS_rt_sigprocmask, how, set ? &use : NULL, &before, sizeof(before));
        if (rc)
                return rc;
        (void)sigemptyset(&wide);
        if (set) {
                memcpy(&wide, set, sizeof(*set));
                unsigned bits = wrap_asked(&wide);
                asked = how == SIG_SETMASK ? bits : how == SIG_BLOCK ? asked | bits : asked & ~bits;
        }
        if (old) {
                memcpy(&wide, &before, sizeof(before));
                wrap_restore(&wide, asked_before);
                memcpy(old, &wide, sizeof(*old));
        }
        return 0;
}

/* ---- as BSD and System V have it ---------------------------------------------------------------
 */

/* A mask as BSD has it: signals 1 to 32. */
static void widen(unsigned mask, sigset_t *out)
{
        unsigned long low = mask;
        (void)sigemptyset(out);
        memcpy(out, &low, sizeof(low));
}

static int change_low(int how, unsigned mask)
{
        sigset_t set;
        sigset_t old;
        unsigned low;
        widen(mask, &set);
        if (sigprocmask(how, &set, &old))
                return -1;
        memcpy(&low, &old, sizeof(low));
        return (int)low;
}

int sigblock(int mask)
{
        return change_low(SIG_BLOCK, (unsigned)mask);
}

int sigsetmask(int mask)
{
        return change_low(SIG_SETMASK, (unsigned)mask);
}

static int change_one(int how, int number)
{
        sigset_t one;
        (void)sigemptyset(&one);
        return sigaddset(&one, number) ? -1 : sigprocmask(how, &one, NULL);
}

int sighold(int number)
{
        return change_one(SIG_BLOCK, number);
}

int sigrelse(int number)
{
        return change_one(SIG_UNBLOCK, number);
}

/* The one of BSD, whose argument is a mask. Headers give the one of System V the name
 * __xpg_sigpause: that opens a signal, and blocks none. */
int bsd_sigpause(int mask) __asm__("sigpause");
int bsd_sigpause(int mask)
{
        sigset_t set;
        widen((unsigned)mask, &set);
        return sigsuspend(&set);
}

/* ---- threads and processes ---------------------------------------------------------------------
 */

/* The parent may have left the two blocked over exec. What it wanted is reported as the program's
 * own wish. */
void wrap_unblock_inherited(void)
{
        sigset_t now;
        if (NEXT(pthread_sigmask)(SIG_SETMASK, NULL, &now) == 0 && wrap_asked(&now))
                (void)pthread_sigmask(SIG_SETMASK, &now, NULL);
}

/* A thread inherits what its creator asked for. */
struct beginning {
        void *(*fn)(void *);
        void *arg;
        unsigned asked;
};

static void *begin_thread(void *arg)
{
        struct beginning b = *(struct beginning *)arg;
        plat->release(arg);
        asked = b.asked;
        return b.fn(b.arg);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr,
                   void *(*fn)(void *), void *restrict arg)
{
        if (asked == 0)
                return NEXT(pthread_create)(thread, attr, fn, arg);
        struct beginning *b = plat->alloc(sizeof(*b));
        if (!b)
                return EAGAIN;
        *b = (struct beginning){fn, arg, asked};
        int rc = NEXT(pthread_create)(thread, attr, begin_thread, b);
        if (rc)
                plat->release(b);
        return rc;
}

int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *set)
{
        sigset_t room;
        return NEXT(pthread_attr_setsigmask_np)(attr, wrap_unblock(set, &room));
}

int sigsuspend(const sigset_t *set)
{
        sigset_t room;
        return NEXT(sigsuspend)(wrap_unblock(set, &room));
}

/* The number of the child is stored with all signals blocked. */
int posix_spawn(pid_t *restrict pid, const char *restrict path,
                const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attr,
                char *const argv[restrict], char *const envp[restrict])
{
        pid_t local;
        int rc = NEXT(posix_spawn)(&local, path, actions, attr, argv, envp);
        if (rc == 0 && pid)
                *pid = local;
        return rc;
}

int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attr,
                 char *const argv[restrict], char *const envp[restrict])
{
        pid_t local;
        int rc = NEXT(posix_spawnp)(&local, file, actions, attr, argv, envp);
        if (rc == 0 && pid)
                *pid = local;
        return rc;
}
