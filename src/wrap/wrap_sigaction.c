/* wrap_sigaction.c: handlers of the program.
 *
 * A handler for SIGSEGV or SIGBUS that the program installs comes after ours (plat/faults.c); the
 * action it is told about is its own one before. The masks of all handlers are kept free of the two
 * (wrap_sigmask.c), and reported as they were asked for. */
#include "wrap/wrap_int.h"
#include <sys/syscall.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* sigset, sigignore */

static _Atomic uint8_t asked_in_handler[NSIG];

static _Atomic bool begun;
static _Atomic uint32_t owner, owner_family; /* the process whose handlers we know */

static uint32_t own_process(void)
{
        return (uint32_t)raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

/* A child of vfork() has handlers of its own, but its parent's memory: what it changes before it
 * executes another program must not be noted here. */
static bool borrowed(void)
{
        uint32_t family = atomic_load(guard_family);
        uint32_t process = own_process();
        if (process == atomic_load(&owner))
                return false;
        if (family == atomic_load(&owner_family))
                return true;
        atomic_store(&owner, process);
        atomic_store(&owner_family, family);
        return false;
}

/* The fault handler itself is installed past the wrapper. */
void wrap_begin_handlers(void)
{
        faults_sigaction = NEXT(sigaction);
        atomic_store(&owner, own_process());
        atomic_store(&owner_family, atomic_load(guard_family));
        atomic_store(&begun, true);
}

static bool is_fault(int number)
{
        return number == SIGSEGV || number == SIGBUS;
}

static int change(int number, const struct sigaction *act, struct sigaction *old)
{
        /* A sanitizer's run time calls this before our constructor has run. */
        if (!is_fault(number) || !atomic_load(&begun))
                return NEXT(sigaction)(number, act, old);
        int rc = faults_change(number, act, old);
        if (rc == 0)
                return 0;
        errno = -rc;
        return -1;
}

/* libc copies the old action in user mode, so its buffer needs no care. */
int sigaction(int number, const struct sigaction *restrict act, struct sigaction *restrict old)
{
        struct sigaction local;
        unsigned before = 0;
        unsigned bits = 0;
        bool valid = number > 0 && number < NSIG;
        if (atomic_load(&begun) && borrowed())
                return NEXT(sigaction)(number, act, old);
        if (valid)
                before = atomic_load(&asked_in_handler[number]);
        if (act) {
                local = *act;
                bits = wrap_asked(&local.sa_mask);
                (void)sigdelset(&local.sa_mask, SIGSEGV);
                (void)sigdelset(&local.sa_mask, SIGBUS);
        }
        int rc = change(number, act ? &local : NULL, old);
        if (rc || !valid)
                return rc;
        if (old)
                wrap_restore(&old->sa_mask, before);
        if (act)
                atomic_store(&asked_in_handler[number], (uint8_t)bits);
        return 0;
}

/* libc's own would go past sigaction above. Other signals have nothing of ours in their way, and
 * siginterrupt() has a say in them. */
static __sighandler_t set_handler(__typeof__(&signal) next, int number, __sighandler_t handler,
                                  int flags)
{
        struct sigaction old;
        struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
        if (!is_fault(number) || handler == SIG_ERR) {
                __sighandler_t before = next(number, handler);
                if (before != SIG_ERR)
                        atomic_store(&asked_in_handler[number], 0);
                return before;
        }
        (void)sigemptyset(&act.sa_mask);
        return sigaction(number, &act, &old) < 0 ? SIG_ERR : old.sa_handler;
}

/* ---- as BSD and System V have it ---------------------------------------------------------------
 */

__sighandler_t signal(int number, __sighandler_t handler)
{
        return set_handler(NEXT(signal), number, handler, SA_RESTART);
}

/* What signal() is in a program compiled for System V. */
__sighandler_t __sysv_signal(int number, __sighandler_t handler)
{
        return set_handler(NEXT(__sysv_signal), number, handler, (int)SA_RESETHAND | SA_NODEFER);
}

/* Second names of the two. */
__typeof__(signal) bsd_signal __attribute__((alias("signal"), copy(signal)));
__typeof__(signal) ssignal __attribute__((alias("signal"), copy(signal)));
__typeof__(__sysv_signal) sysv_signal __attribute__((alias("__sysv_signal"), copy(__sysv_signal)));

/* Blocks the signal, or sets its handler and lets it through. */
__sighandler_t sigset(int number, __sighandler_t handler)
{
        sigset_t one;
        sigset_t before;
        struct sigaction old;
        struct sigaction act = {.sa_handler = handler};
        bool hold = handler == SIG_HOLD;
        if (!is_fault(number) || handler == SIG_ERR) {
                __sighandler_t was = NEXT(sigset)(number, handler);
                if (was != SIG_ERR && !hold)
                        atomic_store(&asked_in_handler[number], 0);
                return was;
        }
        (void)sigemptyset(&act.sa_mask);
        (void)sigemptyset(&one);
        (void)sigaddset(&one, number);
        if (sigaction(number, hold ? NULL : &act, &old) < 0 ||
            sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &one, &before) < 0)
                return SIG_ERR;
        return sigismember(&before, number) ? SIG_HOLD : old.sa_handler;
}

int sigignore(int number)
{
        struct sigaction act = {.sa_handler = SIG_IGN};
        (void)sigemptyset(&act.sa_mask);
        return sigaction(number, &act, NULL);
}
