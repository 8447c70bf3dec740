/* wrap_facts.c: what the kernel knows about file systems, limits and the process. Repeated after an
 * EFAULT; where something is set at the same time, the old value comes by way of the stack. */
#include "wrap/wrap_int.h"

/* ---- file systems and attributes ---------------------------------------------------------------
 */

int statfs(const char *path, struct statfs *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(statfs)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int statfs64(const char *path, struct statfs64 *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(statfs64)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstatfs(int fd, struct statfs *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstatfs)(fd, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstatfs64(int fd, struct statfs64 *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstatfs64)(fd, out), wrap_force(out, sizeof(*out)));
        return r;
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(getxattr)(path, name, value, n), wrap_force(value, n));
        return r;
}

ssize_t lgetxattr(const char *path, const char *name, void *value, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(lgetxattr)(path, name, value, n), wrap_force(value, n));
        return r;
}

ssize_t fgetxattr(int fd, const char *name, void *value, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(fgetxattr)(fd, name, value, n), wrap_force(value, n));
        return r;
}

ssize_t listxattr(const char *path, char *list, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(listxattr)(path, list, n), wrap_force(list, n));
        return r;
}

ssize_t llistxattr(const char *path, char *list, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(llistxattr)(path, list, n), wrap_force(list, n));
        return r;
}

ssize_t flistxattr(int fd, char *list, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(flistxattr)(fd, list, n), wrap_force(list, n));
        return r;
}

/* ---- the process -------------------------------------------------------------------------------
 */

int getrlimit(__rlimit_resource_t what, struct rlimit *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(getrlimit)(what, out), wrap_force(out, sizeof(*out)));
        return r;
}

int getrlimit64(__rlimit_resource_t what, struct rlimit64 *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(getrlimit64)(what, out), wrap_force(out, sizeof(*out)));
        return r;
}

int prlimit(pid_t pid, __rlimit_resource_t what, const struct rlimit *fresh, struct rlimit *old)
{
        struct rlimit local;
        if (!wrap_covers(old, sizeof(local)))
                return NEXT(prlimit)(pid, what, fresh, old);
        int r = NEXT(prlimit)(pid, what, fresh, &local);
        if (r == 0)
                *old = local;
        return r;
}

int prlimit64(pid_t pid, __rlimit_resource_t what, const struct rlimit64 *fresh,
              struct rlimit64 *old)
{
        struct rlimit64 local;
        if (!wrap_covers(old, sizeof(local)))
                return NEXT(prlimit64)(pid, what, fresh, old);
        int r = NEXT(prlimit64)(pid, what, fresh, &local);
        if (r == 0)
                *old = local;
        return r;
}

int sysinfo(struct sysinfo *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(sysinfo)(out), wrap_force(out, sizeof(*out)));
        return r;
}

int getgroups(int n, gid_t *list)
{
        int r;
        size_t bytes = n > 0 ? (size_t)n * sizeof(*list) : 0;
        WRAP_REPEAT(r, NEXT(getgroups)(n, list), wrap_force(list, bytes));
        return r;
}

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(sched_getaffinity)(pid, bytes, out), wrap_force(out, bytes));
        return r;
}

int getresuid(uid_t *real, uid_t *effective, uid_t *saved)
{
        uid_t local[3];
        if (!wrap_active())
                return NEXT(getresuid)(real, effective, saved);
        int r = NEXT(getresuid)(&local[0], &local[1], &local[2]);
        if (r)
                return r;
        *real = local[0];
        *effective = local[1];
        *saved = local[2];
        return 0;
}

int getresgid(gid_t *real, gid_t *effective, gid_t *saved)
{
        gid_t local[3];
        if (!wrap_active())
                return NEXT(getresgid)(real, effective, saved);
        int r = NEXT(getresgid)(&local[0], &local[1], &local[2]);
        if (r)
                return r;
        *real = local[0];
        *effective = local[1];
        *saved = local[2];
        return 0;
}

/* These two give the number of the error. */
int pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *out)
{
        int r = NEXT(pthread_getaffinity_np)(thread, bytes, out);
        for (int i = 0; r == EFAULT && i < WRAP_TRIES && wrap_force(out, bytes); i++)
                r = NEXT(pthread_getaffinity_np)(thread, bytes, out);
        return r;
}

int pthread_getname_np(pthread_t thread, char *name, size_t n)
{
        int r = NEXT(pthread_getname_np)(thread, name, n);
        for (int i = 0; r == EFAULT && i < WRAP_TRIES && wrap_force(name, n); i++)
                r = NEXT(pthread_getname_np)(thread, name, n);
        return r;
}

/* ---- timers ------------------------------------------------------------------------------------
 */

int timer_gettime(timer_t timer, struct itimerspec *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(timer_gettime)(timer, out), wrap_force(out, sizeof(*out)));
        return r;
}

int timerfd_gettime(int fd, struct itimerspec *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(timerfd_gettime)(fd, out), wrap_force(out, sizeof(*out)));
        return r;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict fresh,
                  struct itimerspec *restrict old)
{
        struct itimerspec local;
        if (!wrap_covers(old, sizeof(local)))
                return NEXT(timer_settime)(timer, flags, fresh, old);
        int r = NEXT(timer_settime)(timer, flags, fresh, &local);
        if (r == 0)
                *old = local;
        return r;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *fresh, struct itimerspec *old)
{
        struct itimerspec local;
        if (!wrap_covers(old, sizeof(local)))
                return NEXT(timerfd_settime)(fd, flags, fresh, old);
        int r = NEXT(timerfd_settime)(fd, flags, fresh, &local);
        if (r == 0)
                *old = local;
        return r;
}

int getitimer(__itimer_which_t which, struct itimerval *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(getitimer)(which, out), wrap_force(out, sizeof(*out)));
        return r;
}

int setitimer(__itimer_which_t which, const struct itimerval *restrict fresh,
              struct itimerval *restrict old)
{
        struct itimerval local;
        if (!wrap_covers(old, sizeof(local)))
                return NEXT(setitimer)(which, fresh, old);
        int r = NEXT(setitimer)(which, fresh, &local);
        if (r == 0)
                *old = local;
        return r;
}

/* ---- signals -----------------------------------------------------------------------------------
 */

int sigpending(sigset_t *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(sigpending)(out), wrap_force(out, sizeof(*out)));
        return r;
}

/* A signal that was taken is gone. */
int sigwaitinfo(const sigset_t *restrict set, siginfo_t *restrict out)
{
        siginfo_t local;
        if (!wrap_covers(out, sizeof(local)))
                return NEXT(sigwaitinfo)(set, out);
        int r = NEXT(sigwaitinfo)(set, &local);
        if (r > 0)
                *out = local;
        return r;
}

int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict out,
                 const struct timespec *restrict timeout)
{
        siginfo_t local;
        if (!wrap_covers(out, sizeof(local)))
                return NEXT(sigtimedwait)(set, out, timeout);
        int r = NEXT(sigtimedwait)(set, &local, timeout);
        if (r > 0)
                *out = local;
        return r;
}
