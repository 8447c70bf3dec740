/* raw.c: system calls for the signal zone: straight into the kernel, errno untouched. */
#include "plat/plat.h"
#include <errno.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(__x86_64__)
long (*raw_syscall)(long number, ...) = syscall;
#endif

long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
        long result;
        register long r10 __asm__("r10") = d;
        register long r8 __asm__("r8") = e;
        register long r9 __asm__("r9") = f;
        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
        return result;
#else
        int kept = errno;
        long result = raw_syscall(number, a, b, c, d, e, f);
        if (result == -1)
                result = -errno;
        errno = kept;
        return result;
#endif
}

long raw_futex_wait(const void *word, uint32_t expected, uint64_t timeout_ns)
{
        struct timespec t = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
        return raw_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, (long)expected, (long)&t, 0, 0);
}

long raw_futex_wake(const void *word, int count)
{
        return raw_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0);
}

long raw_mprotect(uintptr_t p, uint64_t bytes, bool writable)
{
        return raw_call(SYS_mprotect, (long)p, (long)bytes,
                        writable ? PROT_READ | PROT_WRITE : PROT_READ, 0, 0, 0);
}

long raw_ioctl(int fd, unsigned long request, void *arg)
{
        return raw_call(SYS_ioctl, fd, (long)request, (long)arg, 0, 0, 0);
}

uint64_t raw_block_signals(void)
{
        uint64_t mask = ~FAULT_SIGNALS;
        uint64_t before = 0;
        (void)raw_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&mask, (long)&before, sizeof(mask), 0,
                       0);
        return before;
}

void raw_restore_signals(uint64_t before)
{
        (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before), 0, 0);
}

uint64_t raw_now_ns(void)
{
        struct timespec t = {0, 0};
        (void)clock_gettime(CLOCK_MONOTONIC, &t); /* the vDSO: no system call, no lock */
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

long raw_unprotect(int uffd, uintptr_t p, uint64_t bytes)
{
        struct uffdio_writeprotect arg = {.range = {p, bytes}, .mode = 0};
        long rc;
        do
                rc = raw_ioctl(uffd, UFFDIO_WRITEPROTECT, &arg);
        while (rc == -EAGAIN);
        return rc;
}
