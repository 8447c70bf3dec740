/* wrap_sigmask.c: no thread of the program blocks SIGSEGV or SIGBUS.
 *
 * A fault whose signal is blocked ends the process at once, and programs do block all signals in
 * their threads and handlers. So the two never get into a mask; what the program asked for is
 * remembered and reported. That begins when the library is loaded: a thread that was started before
 * the first region may write to it later, and its mask is out of reach then.
 *
 * What changes for the program: a SIGSEGV or SIGBUS sent by kill() cannot be held back or taken by
 * sigwait(). */
#include "wrap/wrap_int.h"

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
