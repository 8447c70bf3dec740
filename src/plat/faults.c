/* faults.c: SIGSEGV and SIGBUS: ours are resolved, others go to whoever handled them before.
 *
 * One registration per process, shared by all contexts. A program may install its own handler
 * later; faults_catch is called at every freeze and puts ours back in front of it. That handler may
 * pass on what it does not know to the one it found, which is ours: so ours comes back as another
 * function, each with the one handler it is in front of, and the chain has an end:
 *
 *      kernel ─► entry 1 ─► the program's, installed later ─► entry 0 ─► the program's first
 *
 * Part of the signal zone. */
#include "plat/plat.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ENTRIES 8u

static _Atomic(bool (*)(uintptr_t address, bool bus)) resolve;
/* Who comes after an entry: written before the entry is installed, never changed. SIGSEGV, SIGBUS.
 */
static struct sigaction after[2][ENTRIES];
static unsigned used[2];

/* The default action of a fault happens when the instruction is repeated; a signal that somebody
 * sent is sent again. */
static void act_as_default(int number, const siginfo_t *info)
{
        struct sigaction none = {.sa_handler = SIG_DFL};
        (void)sigaction(number, &none, NULL);
        if (info->si_code <= 0)
                (void)raw_call(SYS_tgkill, raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0),
                               raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0), number, 0, 0, 0);
}

static void on_fault(unsigned entry, int number, siginfo_t *info, void *context)
{
        int kept = errno;
        bool bus = number == SIGBUS;
        /* SEGV_ACCERR: protection; SIGBUS with BUS_ADRERR: userfaultfd. Others are not about a
         * write to our pages. */
        bool possible = info->si_code == (bus ? BUS_ADRERR : SEGV_ACCERR);
        if (possible && atomic_load(&resolve)((uintptr_t)info->si_addr, bus)) {
                errno = kept;
                return;
        }
        errno = kept;
        /* What comes now is the program's: with the signals it had. */
        const ucontext_t *interrupted = context;
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&interrupted->uc_sigmask, 0,
                       sizeof(uint64_t), 0, 0);
        const struct sigaction *old = &after[bus][entry];
        if (old->sa_flags & SA_SIGINFO)
                old->sa_sigaction(number, info, context);
        else if (old->sa_handler == SIG_IGN && info->si_code <= 0)
                return;
        else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
                old->sa_handler(number);
        else
                act_as_default(number, info);
}

#define ENTRY(n)                                                                                   \
        static void entry_##n(int number, siginfo_t *info, void *context)                          \
        {                                                                                          \
                on_fault(n, number, info, context);                                                \
        }
/* The formatter takes the macro for a declaration. */
/* clang-format off */
ENTRY(0)
ENTRY(1)
ENTRY(2)
ENTRY(3)
ENTRY(4)
ENTRY(5)
ENTRY(6)
ENTRY(7)
/* clang-format on */

static void (*const entries[ENTRIES])(int, siginfo_t *, void *) = {
        entry_0, entry_1, entry_2, entry_3, entry_4, entry_5, entry_6, entry_7};

static bool is_ours(const struct sigaction *a)
{
        for (unsigned i = 0; (a->sa_flags & SA_SIGINFO) && i < ENTRIES; i++)
                if (a->sa_sigaction == entries[i])
                        return true;
        return false;
}

/* The entry that was in front of this handler before, or a new one. */
static int entry_for(int bus, const struct sigaction *now)
{
        for (unsigned i = 0; i < used[bus]; i++)
                if (after[bus][i].sa_sigaction == now->sa_sigaction &&
                    after[bus][i].sa_flags == now->sa_flags)
                        return (int)i;
        if (used[bus] == ENTRIES)
                return -EMFILE;
        after[bus][used[bus]] = *now;
        return (int)used[bus]++;
}

static int install(int number)
{
        struct sigaction now;
        if (sigaction(number, NULL, &now) < 0)
                return -errno;
        if (is_ours(&now))
                return 0;
        int entry = entry_for(number == SIGBUS, &now);
        if (entry < 0)
                return entry;
        struct sigaction ours = {.sa_sigaction = entries[entry]};
        /* No other handler may interrupt ours: one that writes to the unit its own thread is just
         * copying would wait for itself. The two themselves stay open (NODEFER): a chained handler
         * may fault on our pages in turn. ONSTACK: programs that watch for stack overflow have an
         * alternate stack and need it. */
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
        sigfillset(&ours.sa_mask);
        sigdelset(&ours.sa_mask, SIGSEGV);
        sigdelset(&ours.sa_mask, SIGBUS);
        return sigaction(number, &ours, NULL) < 0 ? -errno : 0;
}

int faults_catch(bool (*fn)(uintptr_t address, bool bus))
{
        atomic_store(&resolve, fn);
        int rc = install(SIGSEGV);
        return rc ? rc : install(SIGBUS);
}
