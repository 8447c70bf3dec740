/* faults.c: SIGSEGV and SIGBUS: ours are resolved, others go to whoever handled them before.
 *
 * One registration per process, shared by all contexts. A program may install its own handler
 * later; faults_catch is called at every freeze and puts ours back in front of it. Part of the
 * signal zone. */
#include "plat/plat.h"
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

static bool (*resolve)(uintptr_t address);
static struct sigaction previous[2]; /* SIGSEGV, SIGBUS */

static void on_fault(int number, siginfo_t *info, void *context)
{
        int kept = errno;
        /* SEGV_ACCERR: protection; SIGBUS with BUS_ADRERR: userfaultfd. Others are not about a
         * write to our pages. */
        bool possible = number == SIGBUS || info->si_code == SEGV_ACCERR;
        if (possible && resolve((uintptr_t)info->si_addr)) {
                errno = kept;
                return;
        }
        errno = kept;
        /* What comes now is the program's: with the signals it had. */
        const ucontext_t *interrupted = context;
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&interrupted->uc_sigmask, 0,
                       sizeof(uint64_t), 0, 0);
        const struct sigaction *old = &previous[number == SIGBUS];
        if (old->sa_flags & SA_SIGINFO) {
                old->sa_sigaction(number, info, context);
        } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
                old->sa_handler(number);
        } else {
                /* The default action: it happens when the instruction is repeated. */
                struct sigaction none = {.sa_handler = SIG_DFL};
                (void)sigaction(number, &none, NULL);
        }
}

static int install(int number, struct sigaction *old)
{
        struct sigaction now;
        if (sigaction(number, NULL, &now) < 0)
                return -errno;
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
                return 0;
        struct sigaction ours = {.sa_sigaction = on_fault};
        /* No other handler may interrupt ours: one that writes to the unit its own thread is just
         * copying would wait for itself. The two themselves stay open (NODEFER): a chained handler
         * may fault on our pages in turn. ONSTACK: programs that watch for stack overflow have an
         * alternate stack and need it. */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
        sigfillset(&ours.sa_mask);
        sigdelset(&ours.sa_mask, SIGSEGV);
        sigdelset(&ours.sa_mask, SIGBUS);
        *old = now;
        return sigaction(number, &ours, NULL) < 0 ? -errno : 0;
}

int faults_catch(bool (*fn)(uintptr_t address))
{
        resolve = fn;
        int rc = install(SIGSEGV, &previous[0]);
        return rc ? rc : install(SIGBUS, &previous[1]);
}
