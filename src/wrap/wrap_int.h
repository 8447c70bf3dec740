/* wrap_int.h: what the wrappers share. See admit.c for how they work. */
#ifndef BELAY_WRAP_INT_H
#define BELAY_WRAP_INT_H

#include "mem/mem.h"
#include <aio.h>
#include <errno.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* Every name the library puts before libc's, but for second names of the same function.
 * scripts/wrapped_symbols.txt lists all. */
/* clang-format off */
#define WRAPPED(X) \
        X(read) X(pread) X(pread64) X(readv) X(preadv) X(preadv64) X(preadv2) X(preadv64v2) \
        X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(process_vm_readv) \
        X(msgrcv) X(mq_receive) X(mq_timedreceive) \
        X(fread) X(fread_unlocked) X(getrandom) X(getentropy) X(getdents64) \
        X(stat) X(lstat) X(fstat) X(fstatat) X(stat64) X(lstat64) X(fstat64) X(fstatat64) X(statx) \
        X(getsockopt) X(getsockname) X(getpeername) X(accept) X(accept4) \
        X(pipe) X(pipe2) X(socketpair) X(readlink) X(readlinkat) X(getcwd) \
        X(uname) X(times) X(getrusage) X(wait) X(waitpid) X(wait4) X(waitid) \
        X(poll) X(ppoll) X(select) X(pselect) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
        X(nanosleep) X(clock_nanosleep) \
        X(sigaction) X(signal) X(__sysv_signal) X(sigset) X(sigignore) \
        X(sigprocmask) X(pthread_sigmask) X(pthread_create) X(pthread_attr_setsigmask_np) X(sigsuspend) \
        X(sigblock) X(sigsetmask) X(sighold) X(sigrelse) X(sigpause) \
        X(setcontext) X(swapcontext) X(makecontext) \
        X(posix_spawn) X(posix_spawnp) X(syscall) \
        X(aio_read) X(aio_write) X(aio_fsync) X(aio_error) X(aio_return) X(aio_suspend) X(aio_cancel) X(lio_listio) \
        X(statfs) X(statfs64) X(fstatfs) X(fstatfs64) \
        X(getxattr) X(lgetxattr) X(fgetxattr) X(listxattr) X(llistxattr) X(flistxattr) \
        X(getrlimit) X(getrlimit64) X(prlimit) X(prlimit64) X(sysinfo) X(getgroups) \
        X(sched_getaffinity) X(pthread_getaffinity_np) X(pthread_getname_np) X(getresuid) X(getresgid) \
        X(getitimer) X(setitimer) X(timer_gettime) X(timer_settime) X(timerfd_gettime) X(timerfd_settime) \
        X(sigpending) X(sigwaitinfo) X(sigtimedwait) \
        X(madvise) X(mprotect) X(pkey_mprotect) \
        X(__read_chk) X(__pread_chk) X(__pread64_chk) X(__recv_chk) X(__recvfrom_chk) \
        X(__fread_chk) X(__fread_unlocked_chk) X(__readlink_chk) X(__readlinkat_chk) \
        X(__getcwd_chk) X(__poll_chk) X(__ppoll_chk)
/* clang-format on */

#define WRAPPED_ENUM(name) NEXT_##name,
enum next { WRAPPED(WRAPPED_ENUM) NEXT_COUNT };
#undef WRAPPED_ENUM

/* What a program compiled with _FORTIFY_SOURCE calls; no header declares them without it. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t n, size_t room, int flags,
                       __SOCKADDR_ARG addr, socklen_t *restrict length);
size_t __fread_chk(void *restrict p, size_t room, size_t size, size_t n, FILE *restrict f);
size_t __fread_unlocked_chk(void *restrict p, size_t room, size_t size, size_t n, FILE *restrict f);
ssize_t __readlink_chk(const char *restrict path, char *restrict buf, size_t n, size_t room);
ssize_t __readlinkat_chk(int dir, const char *restrict path, char *restrict buf, size_t n,
                         size_t room);
char *__getcwd_chk(char *buf, size_t n, size_t room);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                size_t room);

/* Unlike the wrappers, what follows stays inside the library. */
#pragma GCC visibility push(hidden)

extern _Atomic(void *) next_found[NEXT_COUNT];
/* Looks the next definition up and remembers it. */
void *next_find(enum next which);
static inline void *next_at(enum next which)
{
        void *p = atomic_load_explicit(&next_found[which], memory_order_relaxed);
        return p ? p : next_find(which);
}
/* The function of that name that the program would have called without us. */
#define NEXT(name) ((__typeof__(&(name)))next_at(NEXT_##name))

/* False as long as the process never had a region that traps writes. */
static inline bool wrap_active(void)
{
        return atomic_load_explicit(&span_table_now, memory_order_relaxed) != NULL;
}
/* Any byte of [p, p + bytes) is in a span. */
bool wrap_covers(void *p, size_t bytes);
/* Lets the kernel write to [p, p + bytes); true if any of it is in a span. */
bool wrap_admit(void *p, size_t bytes);
/* The same after an EFAULT, whatever the unit table says. errno is kept. */
bool wrap_force(void *p, size_t bytes);
/* For calls that are about whole pages, of any number; whatever the unit table says. */
bool wrap_admit_pages(void *p, size_t bytes);
/* Reads as the kernel would; false: a bad pointer, which is the kernel's to report. */
bool wrap_fetch(void *to, const void *from, size_t bytes);
bool wrap_admit_vector(const struct iovec *iov, size_t count, bool force);

/* Up to this much goes through the stack: a descriptor may be an eventfd, a terminal or a datagram
 * socket, which forget what they could not deliver. Threads may have stacks of 16 KiB. */
#define BOUNCE_BYTES 2048u

/* recvmsg and recvmmsg by way of `next`. */
typedef ssize_t receive_call(int fd, struct msghdr *m, int flags);
typedef int receive_many_call(int fd, struct mmsghdr *list, unsigned n, int flags,
                              struct timespec *timeout);
ssize_t wrap_receive(receive_call *next, int fd, struct msghdr *m, int flags);
int wrap_receive_many(receive_many_call *next, int fd, struct mmsghdr *list, unsigned n, int flags,
                      struct timespec *timeout);
/* madvise: the advice to give instead; pages that it drops count as written. */
int wrap_advice(void *p, size_t bytes, int advice);

/* A freeze of another thread may protect the buffer again between admission and the call: then the
 * kernel reports EFAULT, and nothing was transferred. More than a few freezes in a row cannot come
 * in between. */
#define WRAP_TRIES 8

/* Runs `call`, and again after each EFAULT that `readmit` explains. */
#define WRAP_REPEAT(result, call, readmit)                                                         \
        do {                                                                                       \
                (result) = (call);                                                                 \
                for (int try_ = 0; (result) < 0 && errno == EFAULT && try_ < WRAP_TRIES &&         \
                                   wrap_active() && (readmit);                                     \
                     try_++)                                                                       \
                        (result) = (call);                                                         \
        } while (0)

#if defined(__x86_64__)
/* A function that calls before_<name> with the same arguments and jumps to what that returns: it
 * finds the stack and the registers of arguments as they were. There may be any number of
 * arguments, also on the stack; rax belongs to them. */
#define WRAP_STUB(name)                                                                            \
        __asm__(".pushsection .text\n"                                                             \
                ".p2align 4\n"                                                                     \
                ".globl " #name "\n"                                                               \
                ".type " #name ", @function\n"                                                     \
                "" #name ":\n"                                                                     \
                ".cfi_startproc\n"                                                                 \
                "endbr64\n"                                                                        \
                "push %rdi\n"                                                                      \
                "push %rsi\n"                                                                      \
                "push %rdx\n"                                                                      \
                "push %rcx\n"                                                                      \
                "push %r8\n"                                                                       \
                "push %r9\n"                                                                       \
                "push %rax\n"                                                                      \
                ".cfi_adjust_cfa_offset 56\n"                                                      \
                "call before_" #name "\n"                                                          \
                "mov %rax, %r11\n"                                                                 \
                "pop %rax\n"                                                                       \
                "pop %r9\n"                                                                        \
                "pop %r8\n"                                                                        \
                "pop %rcx\n"                                                                       \
                "pop %rdx\n"                                                                       \
                "pop %rsi\n"                                                                       \
                "pop %rdi\n"                                                                       \
                ".cfi_adjust_cfa_offset -56\n"                                                     \
                "jmp *%r11\n"                                                                      \
                ".cfi_endproc\n"                                                                   \
                ".size " #name ", . - " #name "\n"                                                 \
                ".popsection\n")
#endif

/* A set without the signals our faults need; NULL stays NULL. */
const sigset_t *wrap_unblock(const sigset_t *set, sigset_t *room);
/* Which of the two a set has, and a set with them put back. */
enum { ASKED_SEGV = 1, ASKED_BUS = 2 };
unsigned wrap_asked(const sigset_t *set);
void wrap_restore(sigset_t *set, unsigned asked);
/* The calling thread is taken to have asked for these too. */
void wrap_ask(unsigned asked);
/* rt_sigprocmask of the kernel: its sets have 8 bytes. */
long wrap_kernel_sigmask(int how, const uint64_t *set, uint64_t *old);
/* Under a name that nobody can stand before. */
extern __typeof__(pread) own_pread;
/* When the library is loaded. */
void wrap_unblock_inherited(void);
void wrap_begin_handlers(void);

#pragma GCC visibility pop

#endif
