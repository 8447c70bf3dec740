/* wrap_wait.c: calls that make something or wait for something. What they did would be lost with an
 * EFAULT, and they may sleep through a freeze: results come by way of the stack where they are
 * small. */
#include "wrap/wrap_int.h"

int pipe(int fds[2])
{
        int local[2] = {-1, -1};
        if (!wrap_covers(fds, sizeof(local)))
                return NEXT(pipe)(fds);
        int r = NEXT(pipe)(local);
        if (r == 0)
                memcpy(fds, local, sizeof(local));
        return r;
}

int pipe2(int fds[2], int flags)
{
        int local[2] = {-1, -1};
        if (!wrap_covers(fds, sizeof(local)))
                return NEXT(pipe2)(fds, flags);
        int r = NEXT(pipe2)(local, flags);
        if (r == 0)
                memcpy(fds, local, sizeof(local));
        return r;
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
        int local[2] = {-1, -1};
        if (!wrap_covers(fds, sizeof(local)))
                return NEXT(socketpair)(domain, type, protocol, fds);
        int r = NEXT(socketpair)(domain, type, protocol, local);
        if (r == 0)
                memcpy(fds, local, sizeof(local));
        return r;
}

/* ---- children ----------------------------------------------------------------------------------
 */

/* libc's other two are this one. */
static pid_t reap(pid_t pid, int *status, int options, struct rusage *usage)
{
        __typeof__(&(wait4)) next = NEXT(wait4);
        int local = 0;
        struct rusage used = {.ru_maxrss = 0};
        pid_t r = next(pid, &local, options, &used);
        if (r > 0 && status)
                *status = local;
        if (r > 0 && usage)
                *usage = used;
        return r;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
        return wrap_covers(status, sizeof(*status)) ? reap(pid, status, options, NULL)
                                                    : NEXT(waitpid)(pid, status, options);
}

pid_t wait(int *status)
{
        return wrap_covers(status, sizeof(*status)) ? reap(-1, status, 0, NULL)
                                                    : NEXT(wait)(status);
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
        if (!wrap_covers(status, sizeof(*status)) && !wrap_covers(usage, sizeof(*usage)))
                return NEXT(wait4)(pid, status, options, usage);
        return reap(pid, status, options, usage);
}

int waitid(idtype_t kind, id_t id, siginfo_t *info, int options)
{
        siginfo_t local;
        if (!wrap_covers(info, sizeof(local)))
                return NEXT(waitid)(kind, id, info, options);
        local = *info;
        int r = NEXT(waitid)(kind, id, &local, options);
        if (r == 0)
                *info = local;
        return r;
}

/* ---- descriptors -------------------------------------------------------------------------------
 */

/* poll writes nothing but revents, and may be asked again. */
int poll(struct pollfd *fds, nfds_t n, int timeout)
{
        int r;
        (void)wrap_admit(fds, n * sizeof(*fds));
        WRAP_REPEAT(r, NEXT(poll)(fds, n, timeout), wrap_force(fds, n * sizeof(*fds)));
        return r;
}

int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
        sigset_t room;
        int r;
        mask = wrap_unblock(mask, &room);
        (void)wrap_admit(fds, n * sizeof(*fds));
        WRAP_REPEAT(r, NEXT(ppoll)(fds, n, timeout, mask), wrap_force(fds, n * sizeof(*fds)));
        return r;
}

struct sets {
        fd_set *from[3], *use[3], local[3];
};

/* The kernel writes one set after the other; a second call would begin with the results of the
 * first. Sets larger than usual are admitted where they are. */
static void sets_begin(struct sets *s, int n, fd_set *in, fd_set *out, fd_set *except)
{
        fd_set *all[3] = {in, out, except};
        size_t bytes = n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
        for (int i = 0; i < 3; i++) {
                s->from[i] = s->use[i] = all[i];
                if (!wrap_covers(all[i], bytes))
                        continue;
                if (bytes <= sizeof(fd_set)) {
                        memcpy(&s->local[i], all[i], bytes);
                        s->use[i] = &s->local[i];
                } else {
                        (void)wrap_admit(all[i], bytes);
                }
        }
}

static void sets_end(struct sets *s, int n, int r)
{
        size_t bytes = n > 0 ? ((size_t)n + 63) / 64 * 8 : 0;
        for (int i = 0; r >= 0 && i < 3; i++)
                if (s->use[i] != s->from[i])
                        memcpy(s->from[i], &s->local[i], bytes);
}

int select(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
           struct timeval *restrict timeout)
{
        if (!wrap_active())
                return NEXT(select)(n, in, out, except, timeout);
        struct sets s;
        sets_begin(&s, n, in, out, except);
        struct timeval left = {0, 0};
        bool stack = wrap_covers(timeout, sizeof(left));
        if (stack)
                left = *timeout;
        int r = NEXT(select)(n, s.use[0], s.use[1], s.use[2], stack ? &left : timeout);
        int kept = errno;
        sets_end(&s, n, r);
        if (stack)
                *timeout = left;
        errno = kept;
        return r;
}

int pselect(int n, fd_set *restrict in, fd_set *restrict out, fd_set *restrict except,
            const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
        sigset_t room;
        struct sets s;
        mask = wrap_unblock(mask, &room);
        sets_begin(&s, n, in, out, except);
        int r = NEXT(pselect)(n, s.use[0], s.use[1], s.use[2], timeout, mask);
        sets_end(&s, n, r);
        return r;
}

/* Events that could not be delivered stay ready (ep_send_events of the kernel). */
int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
        size_t bytes = n > 0 ? (size_t)n * sizeof(*events) : 0;
        int r;
        (void)wrap_admit(events, bytes);
        WRAP_REPEAT(r, NEXT(epoll_wait)(fd, events, n, timeout), wrap_force(events, bytes));
        return r;
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
        size_t bytes = n > 0 ? (size_t)n * sizeof(*events) : 0;
        sigset_t room;
        int r;
        mask = wrap_unblock(mask, &room);
        (void)wrap_admit(events, bytes);
        WRAP_REPEAT(r, NEXT(epoll_pwait)(fd, events, n, timeout, mask), wrap_force(events, bytes));
        return r;
}

int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
                 const sigset_t *mask)
{
        size_t bytes = n > 0 ? (size_t)n * sizeof(*events) : 0;
        sigset_t room;
        int r;
        mask = wrap_unblock(mask, &room);
        (void)wrap_admit(events, bytes);
        WRAP_REPEAT(r, NEXT(epoll_pwait2)(fd, events, n, timeout, mask), wrap_force(events, bytes));
        return r;
}

/* ---- time --------------------------------------------------------------------------------------
 */

int nanosleep(const struct timespec *time, struct timespec *left)
{
        struct timespec local;
        if (!wrap_covers(left, sizeof(local)))
                return NEXT(nanosleep)(time, left);
        int r = NEXT(nanosleep)(time, &local);
        if (r < 0 && errno == EINTR)
                *left = local;
        return r;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
        struct timespec local;
        if (!wrap_covers(left, sizeof(local)))
                return NEXT(clock_nanosleep)(clock, flags, time, left);
        int r = NEXT(clock_nanosleep)(clock, flags, time, &local);
        if (r == EINTR && !(flags & TIMER_ABSTIME))
                *left = local;
        return r;
}

/* ---- what _FORTIFY_SOURCE calls ----------------------------------------------------------------
 */

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
        return room / sizeof(*fds) < n ? NEXT(__poll_chk)(fds, n, timeout, room)
                                       : poll(fds, n, timeout);
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
                size_t room)
{
        return room / sizeof(*fds) < n ? NEXT(__ppoll_chk)(fds, n, timeout, mask, room)
                                       : ppoll(fds, n, timeout, mask);
}
