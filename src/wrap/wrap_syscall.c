/* wrap_syscall.c: syscall(2) with the numbers of calls that write to memory of the program, or set
 * a mask or a handler.
 *
 * The functions of libc with the same names are not called from here: they may be cancelled, and
 * some have other types than the kernel. A table says where each call writes. What is in a span
 * comes by way of the stack if it is small, so that nothing is lost if the state is frozen while
 * the call sleeps; what is large is admitted, and the call repeated after an EFAULT, as in
 * wrap_transfer.c.
 *
 * A number that is not in the table goes to libc as it is: the stub jumps there, with the stack of
 * the caller (which matters to the kinds of fork). */
#include "wrap/wrap_int.h"
#include <sys/syscall.h>

#define KERNEL_SET 8u /* bytes of a signal set of the kernel's */

/* How large an output is, and how much of it is there afterwards. */
enum extent {
        NONE,
        FIXED,   /* `bytes`; also read, or left alone                            */
        ARRAY,   /* `bytes` times argument `by`; also read                       */
        RESULT,  /* as ARRAY, of which `bytes` times the result are there        */
        LENGTH,  /* as many as the number that argument `by` points to           */
        BITS,    /* a set of as many descriptors as argument `by` says; also read */
        MESSAGE, /* a number, and then argument `by` bytes, as many as the result */
};

struct output {
        uint8_t extent, arg, by;
        uint16_t bytes;
};

/* The calls that are not about outputs alone. */
enum kind { OUTPUTS, VECTOR, RECEIVE, RECEIVE_MANY, PAGES, ADVICE, SIGMASK, SIGACTION };

struct rule {
        bool known;
        uint8_t kind;
        uint8_t mask;      /* the argument that is a set of signals, plus 1; its size follows  */
        uint8_t mask_pair; /* the same, of the argument that points to the set and its size    */
        struct output out[4];
};

/* clang-format off */
#define OUT(...)       {.known = true, .out = {__VA_ARGS__}}
#define FIX(arg, size) {FIXED, (arg), 0, (size)}
#define FILL(arg, by)  {RESULT, (arg), (by), 1}
#define OTHER(what)    {.known = true, .kind = (what)}

static const struct rule rules[] = {
        [SYS_read] = OUT(FILL(1, 2)),
        [SYS_pread64] = OUT(FILL(1, 2)),
        [SYS_readv] = OTHER(VECTOR),
        [SYS_preadv] = OTHER(VECTOR),
        [SYS_preadv2] = OTHER(VECTOR),
        [SYS_process_vm_readv] = OTHER(VECTOR),
        [SYS_getrandom] = OUT(FILL(0, 1)),
        [SYS_getdents64] = OUT(FILL(1, 2)),
        [SYS_readlinkat] = OUT(FILL(2, 3)),
        [SYS_getcwd] = OUT(FILL(0, 1)),
        [SYS_getxattr] = OUT(FILL(2, 3)),
        [SYS_lgetxattr] = OUT(FILL(2, 3)),
        [SYS_fgetxattr] = OUT(FILL(2, 3)),
        [SYS_listxattr] = OUT(FILL(1, 2)),
        [SYS_llistxattr] = OUT(FILL(1, 2)),
        [SYS_flistxattr] = OUT(FILL(1, 2)),
        [SYS_sched_getaffinity] = OUT(FILL(2, 1)),
        [SYS_recvfrom] = OUT(FILL(1, 2), {LENGTH, 4, 5, 1}, FIX(5, sizeof(socklen_t))),
        [SYS_recvmsg] = OTHER(RECEIVE),
        [SYS_recvmmsg] = OTHER(RECEIVE_MANY),
        [SYS_msgrcv] = OUT({MESSAGE, 1, 2, 1}),
        [SYS_mq_timedreceive] = OUT(FILL(1, 2), FIX(3, sizeof(unsigned))),
        [SYS_getsockname] = OUT({LENGTH, 1, 2, 1}, FIX(2, sizeof(socklen_t))),
        [SYS_getpeername] = OUT({LENGTH, 1, 2, 1}, FIX(2, sizeof(socklen_t))),
        [SYS_accept] = OUT({LENGTH, 1, 2, 1}, FIX(2, sizeof(socklen_t))),
        [SYS_accept4] = OUT({LENGTH, 1, 2, 1}, FIX(2, sizeof(socklen_t))),
        [SYS_getsockopt] = OUT({LENGTH, 3, 4, 1}, FIX(4, sizeof(socklen_t))),
        [SYS_socketpair] = OUT(FIX(3, 2 * sizeof(int))),
        [SYS_pipe2] = OUT(FIX(0, 2 * sizeof(int))),
        [SYS_fstat] = OUT(FIX(1, sizeof(struct stat))),
        [SYS_newfstatat] = OUT(FIX(2, sizeof(struct stat))),
        [SYS_statx] = OUT(FIX(4, sizeof(struct statx))),
        [SYS_statfs] = OUT(FIX(1, sizeof(struct statfs))),
        [SYS_fstatfs] = OUT(FIX(1, sizeof(struct statfs))),
        [SYS_uname] = OUT(FIX(0, sizeof(struct utsname))),
        [SYS_times] = OUT(FIX(0, sizeof(struct tms))),
        [SYS_sysinfo] = OUT(FIX(0, sizeof(struct sysinfo))),
        [SYS_getrusage] = OUT(FIX(1, sizeof(struct rusage))),
        [SYS_getrlimit] = OUT(FIX(1, sizeof(struct rlimit))),
        [SYS_prlimit64] = OUT(FIX(3, sizeof(struct rlimit))),
        [SYS_getgroups] = OUT({RESULT, 1, 0, sizeof(gid_t)}),
        [SYS_getitimer] = OUT(FIX(1, sizeof(struct itimerval))),
        [SYS_setitimer] = OUT(FIX(2, sizeof(struct itimerval))),
        [SYS_timer_gettime] = OUT(FIX(1, sizeof(struct itimerspec))),
        [SYS_timer_settime] = OUT(FIX(3, sizeof(struct itimerspec))),
        [SYS_timerfd_gettime] = OUT(FIX(1, sizeof(struct itimerspec))),
        [SYS_timerfd_settime] = OUT(FIX(3, sizeof(struct itimerspec))),
        [SYS_clock_gettime] = OUT(FIX(1, sizeof(struct timespec))),
        [SYS_clock_getres] = OUT(FIX(1, sizeof(struct timespec))),
        [SYS_gettimeofday] = OUT(FIX(0, sizeof(struct timeval)), FIX(1, sizeof(struct timezone))),
        [SYS_getcpu] = OUT(FIX(0, sizeof(unsigned)), FIX(1, sizeof(unsigned))),
        [SYS_getresuid] = OUT(FIX(0, sizeof(uid_t)), FIX(1, sizeof(uid_t)), FIX(2, sizeof(uid_t))),
        [SYS_getresgid] = OUT(FIX(0, sizeof(gid_t)), FIX(1, sizeof(gid_t)), FIX(2, sizeof(gid_t))),
        [SYS_nanosleep] = OUT(FIX(1, sizeof(struct timespec))),
        [SYS_clock_nanosleep] = OUT(FIX(3, sizeof(struct timespec))),
        [SYS_wait4] = OUT(FIX(1, sizeof(int)), FIX(3, sizeof(struct rusage))),
        [SYS_waitid] = OUT(FIX(2, sizeof(siginfo_t)), FIX(4, sizeof(struct rusage))),
        [SYS_sendfile] = OUT(FIX(2, sizeof(off_t))),
        [SYS_splice] = OUT(FIX(1, sizeof(off_t)), FIX(3, sizeof(off_t))),
        [SYS_copy_file_range] = OUT(FIX(1, sizeof(off_t)), FIX(3, sizeof(off_t))),
        [SYS_ppoll] = {.known = true, .mask = 1 + 3,
                       .out = {{ARRAY, 0, 1, sizeof(struct pollfd)}, FIX(2, sizeof(struct timespec))}},
        [SYS_pselect6] = {.known = true, .mask_pair = 1 + 5,
                          .out = {{BITS, 1, 0, 1}, {BITS, 2, 0, 1}, {BITS, 3, 0, 1},
                                  FIX(4, sizeof(struct timespec))}},
        [SYS_epoll_pwait] = {.known = true, .mask = 1 + 4,
                             .out = {{RESULT, 1, 2, sizeof(struct epoll_event)}}},
#ifdef SYS_epoll_pwait2
        [SYS_epoll_pwait2] = {.known = true, .mask = 1 + 4,
                              .out = {{RESULT, 1, 2, sizeof(struct epoll_event)}}},
#endif
        [SYS_rt_sigsuspend] = {.known = true, .mask = 1 + 0},
        [SYS_rt_sigpending] = OUT(FIX(0, KERNEL_SET)),
        [SYS_rt_sigtimedwait] = OUT(FIX(1, sizeof(siginfo_t))),
        [SYS_rt_sigprocmask] = OTHER(SIGMASK),
        [SYS_rt_sigaction] = OTHER(SIGACTION),
        [SYS_mprotect] = OTHER(PAGES),
#ifdef SYS_pkey_mprotect
        [SYS_pkey_mprotect] = OTHER(PAGES),
#endif
        [SYS_madvise] = OTHER(ADVICE),
        /* Where newer names have not replaced them. */
#ifdef SYS_stat
        [SYS_stat] = OUT(FIX(1, sizeof(struct stat))),
        [SYS_lstat] = OUT(FIX(1, sizeof(struct stat))),
        [SYS_readlink] = OUT(FILL(1, 2)),
        [SYS_getdents] = OUT(FILL(1, 2)),
        [SYS_pipe] = OUT(FIX(0, 2 * sizeof(int))),
        [SYS_time] = OUT(FIX(0, sizeof(time_t))),
        [SYS_poll] = OUT({ARRAY, 0, 1, sizeof(struct pollfd)}),
        [SYS_select] = OUT({BITS, 1, 0, 1}, {BITS, 2, 0, 1}, {BITS, 3, 0, 1}, FIX(4, sizeof(struct timeval))),
        [SYS_epoll_wait] = OUT({RESULT, 1, 2, sizeof(struct epoll_event)}),
#endif
};
/* clang-format on */

static long pass(long number, const long *a)
{
        return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- outputs -----------------------------------------------------------------------------------
 */

static void *pointer(long arg)
{
        return (void *)(uintptr_t)arg; /* NOLINT: that is what a system call is given */
}

static bool also_read(const struct output *o)
{
        return o->extent == FIXED || o->extent == ARRAY || o->extent == BITS;
}

/* How many bytes the kernel may write; what cannot be known is for the kernel to report. */
static size_t room(const struct output *o, const long *a)
{
        size_t n = (size_t)a[o->by];
        uint32_t length = 0;
        switch ((enum extent)o->extent) {
        case FIXED:
                return o->bytes;
        case ARRAY:
        case RESULT:
                return n > SIZE_MAX / 2 / o->bytes ? 0 : n * o->bytes;
        case LENGTH:
                return wrap_fetch(&length, pointer(a[o->by]), sizeof(length)) ? length : 0;
        case BITS:
                return (int)n > 0 ? (n + 63) / 64 * 8 : 0;
        case MESSAGE:
                return n > SIZE_MAX / 2 ? 0 : n + sizeof(long);
        default:
                return 0;
        }
}

/* How many bytes of it are there after the call. */
static size_t there(const struct output *o, const long *a, size_t bytes, long result)
{
        uint32_t length = 0;
        if (also_read(o))
                return bytes;
        if (result < 0)
                return 0;
        if (o->extent == RESULT)
                return min_u64((uint64_t)result * o->bytes, bytes);
        if (o->extent == MESSAGE)
                return min_u64((uint64_t)result + sizeof(long), bytes);
        return wrap_fetch(&length, pointer(a[o->by]), sizeof(length)) ? min_u64(length, bytes) : 0;
}

struct bounced {
        void *program[4]; /* NULL: not by way of the stack */
        size_t bytes[4];
        uint8_t buffer[BOUNCE_BYTES] __attribute__((aligned(16)));
};

/* What fits on the stack goes there, the rest is admitted: true if there is any of the latter. */
static bool outputs_begin(const struct rule *rule, struct bounced *b, long *a)
{
        size_t used = 0;
        bool admitted = false;
        long given[6];
        memcpy(given, a, sizeof(given));
        for (unsigned i = 0; i < 4; i++) {
                const struct output *o = &rule->out[i];
                void *p = pointer(given[o->arg]);
                size_t bytes = o->extent == NONE ? 0 : room(o, given);
                b->program[i] = NULL;
                if (!p || !wrap_covers(p, bytes))
                        continue;
                if (bytes > sizeof(b->buffer) - used) {
                        admitted |= wrap_admit(p, bytes);
                        continue;
                }
                uint8_t *to = b->buffer + used;
                if (also_read(o))
                        memcpy(to, p, bytes);
                b->program[i] = p;
                b->bytes[i] = bytes;
                used += align_up(bytes, 16);
                a[o->arg] = (long)to;
        }
        return admitted;
}

static void outputs_end(const struct rule *rule, const struct bounced *b, const long *a,
                        long result)
{
        int kept = errno;
        for (unsigned i = 0; i < 4; i++) {
                const struct output *o = &rule->out[i];
                if (b->program[i])
                        memcpy(b->program[i], pointer(a[o->arg]), there(o, a, b->bytes[i], result));
        }
        errno = kept;
}

static bool force_outputs(const struct rule *rule, const struct bounced *b, const long *a)
{
        bool ours = false;
        for (unsigned i = 0; i < 4; i++) {
                const struct output *o = &rule->out[i];
                if (o->extent != NONE && !b->program[i])
                        ours |= wrap_force(pointer(a[o->arg]), room(o, a));
        }
        return ours;
}

static long with_outputs(const struct rule *rule, long number, long *a)
{
        struct bounced b;
        long r;
        if (outputs_begin(rule, &b, a))
                WRAP_REPEAT(r, pass(number, a), force_outputs(rule, &b, a));
        else
                r = pass(number, a);
        outputs_end(rule, &b, a, r);
        return r;
}

/* ---- signals -----------------------------------------------------------------------------------
 */

/* A set for the time of the call, without the two. */
static bool take_out(long *arg, long size, uint64_t *set)
{
        if (!*arg || size != KERNEL_SET || !wrap_fetch(set, pointer(*arg), sizeof(*set)))
                return false;
        *set &= ~FAULT_SIGNALS;
        *arg = (long)set;
        return true;
}

static long set_mask(const long *a)
{
        uint64_t set;
        uint64_t old;
        if (a[3] != KERNEL_SET || (a[1] && !wrap_fetch(&set, pointer(a[1]), sizeof(set))))
                return pass(SYS_rt_sigprocmask, a);
        long r = wrap_kernel_sigmask((int)a[0], a[1] ? &set : NULL, &old);
        if (r == 0 && a[2])
                memcpy(pointer(a[2]), &old, sizeof(old));
        return r;
}

/* An action as the kernel has it. */
struct kernel_action {
        uintptr_t handler;
        unsigned long flags;
        uintptr_t restorer;
        uint64_t mask;
};
#define WITH_RESTORER 0x04000000u

static void from_kernel(const struct kernel_action *k, struct sigaction *out)
{
        *out = (struct sigaction){.sa_flags = (int)(k->flags & ~WITH_RESTORER)};
        memcpy(&out->sa_sigaction, &k->handler, sizeof(k->handler));
        memcpy(&out->sa_mask, &k->mask, sizeof(k->mask));
}

static void to_kernel(const struct sigaction *s, struct kernel_action *out)
{
        *out = (struct kernel_action){.flags = (unsigned)s->sa_flags};
        memcpy(&out->handler, &s->sa_sigaction, sizeof(out->handler));
        memcpy(&out->mask, &s->sa_mask, sizeof(out->mask));
}

/* Of the two signals, the actions are in faults.c; of others only the mask concerns us. */
static long set_action(const long *a)
{
        int number = (int)a[0];
        struct kernel_action fresh = {.mask = 0};
        struct sigaction act;
        struct sigaction old;
        if (a[3] != KERNEL_SET || (a[1] && !wrap_fetch(&fresh, pointer(a[1]), sizeof(fresh))))
                return pass(SYS_rt_sigaction, a);
        if (number == SIGSEGV || number == SIGBUS) {
                if (a[1])
                        from_kernel(&fresh, &act);
                if (sigaction(number, a[1] ? &act : NULL, &old))
                        return -1;
                to_kernel(&old, &fresh);
                if (a[2])
                        memcpy(pointer(a[2]), &fresh, sizeof(fresh));
                return 0;
        }
        fresh.mask &= ~FAULT_SIGNALS;
        long args[6] = {a[0], a[1] ? (long)&fresh : 0, a[2], a[3]};
        static const struct rule old_action = OUT(FIX(2, sizeof(struct kernel_action)));
        return with_outputs(&old_action, SYS_rt_sigaction, args);
}

/* ---- the call ----------------------------------------------------------------------------------
 */

static ssize_t receive_raw(int fd, struct msghdr *m, int flags)
{
        return NEXT(syscall)(SYS_recvmsg, fd, m, flags);
}

static int receive_many_raw(int fd, struct mmsghdr *list, unsigned n, int flags,
                            struct timespec *timeout)
{
        return (int)NEXT(syscall)(SYS_recvmmsg, fd, list, n, flags, timeout);
}

static long with_vector(long number, const long *a)
{
        long r;
        (void)wrap_admit_vector(pointer(a[1]), (size_t)a[2], false);
        WRAP_REPEAT(r, pass(number, a), wrap_admit_vector(pointer(a[1]), (size_t)a[2], true));
        return r;
}

static long with_mask(const struct rule *rule, long number, long *a)
{
        uint64_t set;
        long pair[2];
        unsigned at = rule->mask_pair - 1u;
        if (rule->mask)
                (void)take_out(&a[rule->mask - 1], a[rule->mask], &set);
        if (rule->mask_pair && a[at] && wrap_fetch(pair, pointer(a[at]), sizeof(pair)) &&
            take_out(&pair[0], pair[1], &set))
                a[at] = (long)pair;
        return with_outputs(rule, number, a);
}

static long handled(long number, long a, long b, long c, long d, long e, long f)
{
        long args[6] = {a, b, c, d, e, f};
        const struct rule *rule = &rules[number];
        switch ((enum kind)rule->kind) {
        case VECTOR:
                return with_vector(number, args);
        case RECEIVE:
                return wrap_receive(receive_raw, (int)a, pointer(b), (int)c);
        case RECEIVE_MANY:
                return wrap_receive_many(receive_many_raw, (int)a, pointer(b), (unsigned)c, (int)d,
                                         pointer(e));
        case PAGES:
                (void)wrap_admit_pages(pointer(a), (size_t)b);
                return pass(number, args);
        case ADVICE:
                args[2] = wrap_advice(pointer(a), (size_t)b, (int)c);
                return pass(number, args);
        case SIGMASK:
                return set_mask(args);
        case SIGACTION:
                return set_action(args);
        default:
                return with_mask(rule, number, args);
        }
}

/* Masks and handlers concern us from the beginning, the rest when there is a region. */
static bool is_handled(long number)
{
        const struct rule *r =
                number >= 0 && (size_t)number < ARRAY_LEN(rules) ? &rules[number] : NULL;
        return r && r->known &&
               (wrap_active() || r->mask || r->mask_pair || r->kind == SIGMASK ||
                r->kind == SIGACTION);
}

#if defined(__x86_64__)

/* `handled` finds its seven arguments where syscall has them. */
__attribute__((used)) static void *before_syscall(long number)
{
        return is_handled(number) ? (void *)handled : next_at(NEXT_syscall);
}

WRAP_STUB(syscall);

#else

#include <stdarg.h>

long syscall(long number, ...)
{
        long a[6];
        va_list list;
        va_start(list, number);
        for (unsigned i = 0; i < 6; i++)
                a[i] = va_arg(list, long);
        va_end(list);
        return is_handled(number) ? handled(number, a[0], a[1], a[2], a[3], a[4], a[5])
                                  : pass(number, a);
}

#endif
