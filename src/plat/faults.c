/* faults.c: SIGSEGV and SIGBUS: ours are resolved, others go to whoever handled them before.
 *
 * One registration per process, shared by all contexts. A program that installs a handler later
 * comes here if the library stands before libc (src/wrap/): ours stays in front, and only what
 * comes after it changes. If it gets past that, faults_catch, called at every freeze, puts ours
 * back. The program's handler may pass on what it does not know to the one it found, which is ours
 * then: so ours comes back as another function, each with the one handler it is in front of, and
 * the chain has an end:
 *
 *      kernel ─► entry 1 ─► the program's, installed later ─► entry 0 ─► the program's first
 *
 * The chain is read and written under a lock that is held for a copy or a system call, with all
 * signals blocked: no handler runs in the thread that holds it.
 *
 * A thread that is storing into a mapped file says where (faults_guard). If the kernel has no page
 * for that place, because the file was cut off or its medium fails, the rest of the range becomes
 * memory of this process: the store goes on into it, and whoever stored learns that it is lost. No
 * jump out of the handler is needed, whatever code it is that stores (libpmem2's, too).
 *
 * Part of the signal zone. */
#include "plat/plat.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ENTRIES 8u

#define LOCK_NS 1000000u /* nobody wakes who waits for the lock */

sigaction_call *faults_sigaction = sigaction;

static _Atomic(bool (*)(uintptr_t address, bool bus)) resolve;
/* For SIGSEGV and SIGBUS: who comes after each entry. */
static struct sigaction after[2][ENTRIES];
static unsigned used[2];
static _Atomic uint32_t lock; /* the process of the thread that holds it; 0: free */

/* A child of fork() may find the lock of a thread that it does not have, with the parent's number
 * in it: that one it may take. */
static void lock_chain(uint64_t *signals)
{
        uint64_t all = UINT64_MAX;
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)signals, sizeof(all), 0,
                       0);
        uint32_t own = (uint32_t)raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
        uint32_t holder = 0;
        while (!atomic_compare_exchange_strong(&lock, &holder, own)) {
                if (holder != own)
                        continue;
                (void)raw_futex_wait(&lock, own, LOCK_NS);
                holder = 0;
        }
}

static void unlock_chain(const uint64_t *signals)
{
        atomic_store(&lock, 0);
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)signals, 0, sizeof(*signals), 0, 0);
}

static _Thread_local volatile struct {
        uintptr_t low, high; /* whole pages; 0, 0: nothing is guarded */
        bool lost;
} guarded EARLY;

void faults_guard(const void *p, uint64_t bytes)
{
        guarded.lost = false;
        guarded.low = (uintptr_t)p - (uintptr_t)p % PLAT_PAGE;
        guarded.high = align_up((uintptr_t)p + bytes, PLAT_PAGE);
        atomic_signal_fence(memory_order_seq_cst);
}

bool faults_unguard(void)
{
        atomic_signal_fence(memory_order_seq_cst);
        guarded.low = guarded.high = 0;
        return guarded.lost;
}

/* The file has nothing behind the first page that is missing, so all of the rest is replaced. */
static bool lose_store(uintptr_t address)
{
        uintptr_t page = address - address % PLAT_PAGE;
        if (page < guarded.low || page >= guarded.high)
                return false;
        long at = raw_call(SYS_mmap, (long)page, (long)(guarded.high - page),
                           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        guarded.lost = true;
        return at == (long)page;
}

/* The default action of a fault happens when the instruction is repeated; a signal that somebody
 * sent is sent again. */
static void act_as_default(int number, const siginfo_t *info)
{
        struct sigaction none = {.sa_handler = SIG_DFL};
        (void)faults_sigaction(number, &none, NULL);
        if (info->si_code <= 0)
                (void)raw_call(SYS_tgkill, raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0),
                               raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0), number, 0, 0, 0);
}

/* Who is to hear of a foreign fault now; the action of SA_RESETHAND is used up. */
static struct sigaction take_after(bool bus, unsigned entry)
{
        uint64_t signals;
        lock_chain(&signals);
        struct sigaction next = after[bus][entry];
        if (next.sa_flags & (int)SA_RESETHAND)
                after[bus][entry] = (struct sigaction){.sa_handler = SIG_DFL};
        unlock_chain(&signals);
        return next;
}

/* What comes now is the program's: with the signals it had, and those its action blocks. Ours stay
 * open, a chained handler may fault on our pages in turn. */
static void set_signals(const ucontext_t *interrupted, const struct sigaction *next)
{
        uint64_t mask;
        uint64_t more;
        memcpy(&mask, &interrupted->uc_sigmask, sizeof(mask));
        memcpy(&more, &next->sa_mask, sizeof(more));
        mask |= more & ~FAULT_SIGNALS;
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask), 0, 0);
}

static void on_fault(unsigned entry, int number, siginfo_t *info, void *context)
{
        int kept = errno;
        bool bus = number == SIGBUS;
        /* SEGV_ACCERR: protection; SIGBUS with BUS_ADRERR: userfaultfd. Others are not about a
         * write to our pages. */
        bool possible = info->si_code == (bus ? BUS_ADRERR : SEGV_ACCERR);
        bool (*fn)(uintptr_t address, bool bus) = atomic_load(&resolve);
        if ((bus && info->si_code > 0 && lose_store((uintptr_t)info->si_addr)) ||
            (possible && fn && fn((uintptr_t)info->si_addr, bus))) {
                errno = kept;
                return;
        }
        errno = kept;
        struct sigaction next = take_after(bus, entry);
        set_signals(context, &next);
        if (next.sa_flags & SA_SIGINFO)
                next.sa_sigaction(number, info, context);
        else if (next.sa_handler == SIG_IGN && info->si_code <= 0)
                return;
        else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN)
                next.sa_handler(number);
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

/* Which of our entries it is; -1: none. */
static int entry_of(const struct sigaction *a)
{
        for (unsigned i = 0; (a->sa_flags & SA_SIGINFO) && i < ENTRIES; i++)
                if (a->sa_sigaction == entries[i])
                        return (int)i;
        return -1;
}

/* The entry that was in front of this handler before, or a new one. */
static int entry_for(bool bus, const struct sigaction *now)
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

static int install_locked(int number)
{
        struct sigaction now;
        if (faults_sigaction(number, NULL, &now) < 0)
                return -errno;
        if (entry_of(&now) >= 0)
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
        return faults_sigaction(number, &ours, NULL) < 0 ? -errno : 0;
}

static int install(int number)
{
        uint64_t signals;
        lock_chain(&signals);
        int rc = install_locked(number);
        unlock_chain(&signals);
        return rc;
}

int faults_catch(bool (*fn)(uintptr_t address, bool bus))
{
        atomic_store(&resolve, fn);
        int rc = install(SIGSEGV);
        return rc ? rc : install(SIGBUS);
}

/* Without the lock as long as there is nothing to do: one system call. */
int faults_catch_lost(void)
{
        struct sigaction now;
        if (faults_sigaction(SIGBUS, NULL, &now) == 0 && entry_of(&now) >= 0)
                return 0;
        return install(SIGBUS);
}

/* An action of ours that the program got hold of in some other way is not put behind itself. */
static int change_locked(int number, const struct sigaction *act, struct sigaction *old)
{
        if (faults_sigaction(number, NULL, old) < 0)
                return -errno;
        int entry = entry_of(old);
        if (entry < 0)
                return act && faults_sigaction(number, act, NULL) < 0 ? -errno : 0;
        struct sigaction *next = &after[number == SIGBUS][entry];
        *old = *next;
        if (act && entry_of(act) < 0)
                *next = *act;
        return 0;
}

/* Both arguments may be in memory that is protected, and under the lock no fault is resolved. */
int faults_change(int number, const struct sigaction *act, struct sigaction *old)
{
        uint64_t signals;
        struct sigaction fresh = {.sa_handler = SIG_DFL};
        struct sigaction before;
        if (act)
                fresh = *act;
        lock_chain(&signals);
        int rc = change_locked(number, act ? &fresh : NULL, &before);
        unlock_chain(&signals);
        if (rc == 0 && old)
                *old = before;
        return rc;
}
