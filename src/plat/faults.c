/* faults.c: SIGSEGV and SIGBUS: ours are resolved, others go to whoever handled them before.
 *
 * One registration per process, shared by all contexts. A program may install its own handler
 * later; faults_catch is called at every freeze and puts ours back in front of it. Part of the
 * signal zone. */
#include "plat/plat.h"
#include <errno.h>
#include <signal.h>

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
        /* NODEFER: the chained handler may fault on our pages in turn. ONSTACK: programs that watch
         * for stack overflow have an alternate stack and need it. */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
        *old = now;
        return sigaction(number, &ours, NULL) < 0 ? -errno : 0;
}

int faults_catch(bool (*fn)(uintptr_t address))
{
        resolve = fn;
        int rc = install(SIGSEGV, &previous[0]);
        return rc ? rc : install(SIGBUS, &previous[1]);
}
