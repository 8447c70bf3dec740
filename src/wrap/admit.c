/* admit.c: system calls that write into protected memory.
 *
 * The kernel answers a system call that would write to a protected page with EFAULT or a short
 * transfer instead of a signal. So the library defines the libc functions that hand buffers to the
 * kernel; the program's calls find ours first. There are three kinds of wrapper:
 *
 *   admit    transfers (read, recv, fread …): the buffer is opened as a write by the program would,
 *            then the call is made. A short transfer cannot happen that way, since only a
 * checkpoint closes it again: a region that a call writes to is not pre-copied (engine/precopy.c).
 *   repeat   calls that only look (stat, getcwd …): made at once; EFAULT has no effect but the
 *            number, so the buffer is opened and the call repeated. Costs nothing otherwise.
 *   bounce   calls whose effect would be lost with the result (accept, waitpid, small reads …): the
 *            kernel writes to the stack, the result is copied in user mode, where faults work.
 *
 * The same by number: wrap_syscall.c. Transfers by threads of libc: wrap_aio.c. Besides, calls that
 * would take our faults or our protection away: wrap_sigaction.c, wrap_sigmask.c, wrap_context.c,
 * wrap_map.c.
 *
 * Guarantees
 *  1. Without regions a wrapper costs one load and an indirect call.
 *  2. errno, cancellation and results are those of the wrapped function. A buffer that is in no
 *     span, a bad pointer among them, goes to the kernel as it is.
 *  3. Nothing here allocates, and no lock is held while a handler can run; a wrapper is as safe in
 * a signal handler as what it wraps.
 *  4. A thread waits for a unit with signals blocked, the two of the fault handler excepted: a
 *     handler that writes to the unit this very thread is copying would wait for itself.
 *
 * Left alone: calls that write in user mode anyway (clock_gettime, fgets, getline, scanf: these
 * copy from the stream's own buffer). What else is left alone, and what a program does about it, is
 * listed in belay(3), docs/man/belay.3.scd. */
#include "wrap/wrap_int.h"
#include <dlfcn.h>
#include <sys/syscall.h>

#define MAX_TRANSFER ((size_t)0x7ffff000) /* the kernel transfers no more in one call */

/* ---- the functions behind ours ----------------------------------------------------------------
 */

_Atomic(void *) next_found[NEXT_COUNT];

#define WRAPPED_NAME(name) #name,
static const char *const next_names[] = {WRAPPED(WRAPPED_NAME)};

/* A libc older than the function. */
static long absent(void)
{
        errno = ENOSYS;
        return -1;
}

/* Where libc comes before us nothing is behind us; then the first definition is meant, unless it is
 * our own. */
static void *first(const char *name)
{
        Dl_info own;
        Dl_info found;
        void *p = dlsym(RTLD_DEFAULT, name);
        bool foreign = p && dladdr(p, &found) && dladdr((void *)first, &own) &&
                       found.dli_fbase != own.dli_fbase;
        return foreign ? p : NULL;
}

void *next_find(enum next which)
{
        int kept = errno;
        void *p = dlsym(RTLD_NEXT, next_names[which]);
        if (!p)
                p = first(next_names[which]);
        if (!p)
                p = (void *)absent;
        atomic_store_explicit(&next_found[which], p, memory_order_relaxed);
        errno = kept;
        return p;
}

/* dlsym is not safe in a signal handler, so nothing is left to the first call. Constructors that
 * run before this one resolve what they use themselves. */
__attribute__((constructor)) static void find_all(void)
{
        for (enum next i = 0; i < NEXT_COUNT; i++)
                (void)next_at(i);
        plat_before_libc = dlsym(RTLD_DEFAULT, "pread") == (void *)own_pread;
#if !defined(__x86_64__)
        raw_syscall = NEXT(syscall);
#endif
        wrap_begin_handlers();
        wrap_unblock_inherited();
}

/* ---- spans -------------------------------------------------------------------------------------
 */

enum reach { OUTSIDE, READY, SHUT };

/* Outside commits a unit that was opened needs no second look, nor does a span that is not
 * protected then. But of a unit that shares a page with another, that page may not be open. */
static bool ready(const struct span *s, uintptr_t low, uintptr_t high)
{
        if (atomic_load(&s->guard->committing) || !guard_is_own(s->guard))
                return false;
        if (s->early && !atomic_load(&s->foreign))
                return false;
        if (!s->always)
                return true;
        if (s->start % PLAT_PAGE)
                return false;
        low = max_u64(low - low % PLAT_PAGE, s->start);
        high = min_u64(align_up(high, PLAT_PAGE), s->start + s->bytes);
        for (uint64_t u = (low - s->start) / s->unit_bytes; unit_begin(s, u) < high; u++)
                if (atomic_load_explicit(&s->written[u], memory_order_relaxed) != WRITTEN_OPEN)
                        return false;
        return true;
}

static enum reach reach_of(uintptr_t p, uint64_t bytes)
{
        enum reach found = OUTSIDE;
        atomic_fetch_add(&span_table_readers, 1);
        const struct span_table *t = atomic_load(&span_table_now);
        struct span_place at = span_find(t, p);
        const struct span *s;
        while (found != SHUT && (s = span_at(t, at)) && atomic_load(&s->below) < p + bytes) {
                found = ready(s, p, p + bytes) ? READY : SHUT;
                at = span_after(t, at);
        }
        atomic_fetch_sub(&span_table_readers, 1);
        return t == &span_table_away ? SHUT : found;
}

static size_t clip(const void *p, size_t bytes)
{
        return min_u64(min_u64(bytes, MAX_TRANSFER), UINTPTR_MAX - PLAT_PAGE - (uintptr_t)p);
}

bool wrap_covers(void *p, size_t bytes)
{
        bytes = wrap_active() ? clip(p, bytes) : 0;
        return bytes && reach_of((uintptr_t)p, bytes) != OUTSIDE;
}

static void open_pages(uintptr_t p, uint64_t bytes)
{
        uint64_t before = raw_block_signals();
        (void)guard_admit(p, bytes);
        raw_restore_signals(before);
}

bool wrap_admit(void *p, size_t bytes)
{
        bytes = wrap_active() ? clip(p, bytes) : 0;
        enum reach found = bytes ? reach_of((uintptr_t)p, bytes) : OUTSIDE;
        if (found == SHUT)
                open_pages((uintptr_t)p, bytes);
        return found != OUTSIDE;
}

bool wrap_force(void *p, size_t bytes)
{
        if (!wrap_covers(p, bytes))
                return false;
        open_pages((uintptr_t)p, clip(p, bytes));
        return true;
}

bool wrap_admit_pages(void *p, size_t bytes)
{
        uintptr_t at = (uintptr_t)p;
        bytes = wrap_active() ? min_u64(bytes, UINTPTR_MAX - PLAT_PAGE - at) : 0;
        if (bytes == 0 || reach_of(at, bytes) == OUTSIDE)
                return false;
        open_pages(at, bytes);
        return true;
}

bool wrap_fetch(void *to, const void *from, size_t bytes)
{
        struct iovec local = {to, bytes};
        struct iovec remote = {(void *)(uintptr_t)from, bytes};
        long n = raw_call(SYS_process_vm_readv, raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0),
                          (long)&local, 1, (long)&remote, 1, 0);
        if (n == -ENOSYS || n == -EPERM) /* a sandbox */
                memcpy(to, from, bytes);
        return n == -ENOSYS || n == -EPERM || n == (long)bytes;
}

bool wrap_admit_vector(const struct iovec *iov, size_t count, bool force)
{
        struct iovec some[16];
        bool ours = false;
        if (!wrap_active() || count > 1024)
                return false;
        for (size_t i = 0; i < count; i++) {
                size_t at = i % ARRAY_LEN(some);
                if (at == 0 &&
                    !wrap_fetch(some, iov + i, min_u64(count - i, ARRAY_LEN(some)) * sizeof(*iov)))
                        return false;
                ours |= force ? wrap_force(some[at].iov_base, some[at].iov_len)
                              : wrap_admit(some[at].iov_base, some[at].iov_len);
        }
        return ours;
}
