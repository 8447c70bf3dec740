/* wrap_query.c: calls that only look. EFAULT has no effect but the number: they are repeated. */
#include "wrap/wrap_int.h"

int stat(const char *restrict path, struct stat *restrict out)
{
        int r;
        WRAP_REPEAT(r, NEXT(stat)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int lstat(const char *restrict path, struct stat *restrict out)
{
        int r;
        WRAP_REPEAT(r, NEXT(lstat)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstat(int fd, struct stat *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstat)(fd, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstatat(int dir, const char *restrict path, struct stat *restrict out, int flags)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstatat)(dir, path, out, flags), wrap_force(out, sizeof(*out)));
        return r;
}

int stat64(const char *restrict path, struct stat64 *restrict out)
{
        int r;
        WRAP_REPEAT(r, NEXT(stat64)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int lstat64(const char *restrict path, struct stat64 *restrict out)
{
        int r;
        WRAP_REPEAT(r, NEXT(lstat64)(path, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstat64(int fd, struct stat64 *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstat64)(fd, out), wrap_force(out, sizeof(*out)));
        return r;
}

int fstatat64(int dir, const char *restrict path, struct stat64 *restrict out, int flags)
{
        int r;
        WRAP_REPEAT(r, NEXT(fstatat64)(dir, path, out, flags), wrap_force(out, sizeof(*out)));
        return r;
}

int statx(int dir, const char *restrict path, int flags, unsigned mask, struct statx *restrict out)
{
        int r;
        WRAP_REPEAT(r, NEXT(statx)(dir, path, flags, mask, out), wrap_force(out, sizeof(*out)));
        return r;
}

ssize_t readlink(const char *restrict path, char *restrict buf, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(readlink)(path, buf, n), wrap_force(buf, n));
        return r;
}

ssize_t readlinkat(int dir, const char *restrict path, char *restrict buf, size_t n)
{
        ssize_t r;
        WRAP_REPEAT(r, NEXT(readlinkat)(dir, path, buf, n), wrap_force(buf, n));
        return r;
}

char *getcwd(char *buf, size_t n)
{
        char *r = NEXT(getcwd)(buf, n);
        for (int i = 0; !r && buf && errno == EFAULT && i < WRAP_TRIES && wrap_force(buf, n); i++)
                r = NEXT(getcwd)(buf, n);
        return r;
}

int uname(struct utsname *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(uname)(out), wrap_force(out, sizeof(*out)));
        return r;
}

/* -1 is a number of ticks too, so libc reports no EFAULT here but passes the kernel's result on
 * after it has looked at the buffer itself. */
clock_t times(struct tms *out)
{
        struct tms local = {0};
        if (!wrap_covers(out, sizeof(*out)))
                return NEXT(times)(out);
        clock_t r = NEXT(times)(&local);
        *out = local;
        return r;
}

int getrusage(__rusage_who_t who, struct rusage *out)
{
        int r;
        WRAP_REPEAT(r, NEXT(getrusage)(who, out), wrap_force(out, sizeof(*out)));
        return r;
}

/* ---- sockets -----------------------------------------------------------------------------------
 */

/* Two of the results are in and out, and one may be written although the other fails: the length
 * goes through the stack. */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict length)
{
        int r;
        /* No option is longer; a length that cannot be read is the kernel's matter. */
        if (!length || (!wrap_covers(length, sizeof(*length)) && !wrap_covers(value, 256)))
                return NEXT(getsockopt)(fd, level, name, value, length);
        socklen_t bytes = *length;
        (void)wrap_admit(value, bytes);
        WRAP_REPEAT(r, NEXT(getsockopt)(fd, level, name, value, &bytes), wrap_force(value, bytes));
        if (r == 0)
                *length = bytes;
        return r;
}

typedef int name_call(int, __SOCKADDR_ARG, socklen_t *restrict);

static int get_name(name_call *next, int fd, struct sockaddr *addr, socklen_t *length)
{
        struct sockaddr_storage local;
        if (!addr || !length ||
            (!wrap_covers(addr, sizeof(local)) && !wrap_covers(length, sizeof(*length))))
                return next(fd, addr, length);
        socklen_t room = (socklen_t)min_u64(*length, sizeof(local));
        socklen_t bytes = room;
        int r = next(fd, (struct sockaddr *)&local, &bytes);
        if (r >= 0) {
                memcpy(addr, &local, min_u64(bytes, room));
                *length = bytes;
        }
        return r;
}

int getsockname(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length)
{
        return get_name(NEXT(getsockname), fd, addr.__sockaddr__, length);
}

int getpeername(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length)
{
        return get_name(NEXT(getpeername), fd, addr.__sockaddr__, length);
}

/* A connection whose address cannot be delivered is lost: bounced like the names. */
int accept(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length)
{
        return get_name(NEXT(accept), fd, addr.__sockaddr__, length);
}

int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict length, int flags)
{
        struct sockaddr_storage local;
        struct sockaddr *to = addr.__sockaddr__;
        if (!to || !length ||
            (!wrap_covers(to, sizeof(local)) && !wrap_covers(length, sizeof(*length))))
                return NEXT(accept4)(fd, addr, length, flags);
        socklen_t room = (socklen_t)min_u64(*length, sizeof(local));
        socklen_t bytes = room;
        int r = NEXT(accept4)(fd, (struct sockaddr *)&local, &bytes, flags);
        if (r >= 0) {
                memcpy(to, &local, min_u64(bytes, room));
                *length = bytes;
        }
        return r;
}

/* ---- what _FORTIFY_SOURCE calls ----------------------------------------------------------------
 */

ssize_t __readlink_chk(const char *restrict path, char *restrict buf, size_t n, size_t room)
{
        return n > room ? NEXT(__readlink_chk)(path, buf, n, room) : readlink(path, buf, n);
}

ssize_t __readlinkat_chk(int dir, const char *restrict path, char *restrict buf, size_t n,
                         size_t room)
{
        return n > room ? NEXT(__readlinkat_chk)(dir, path, buf, n, room)
                        : readlinkat(dir, path, buf, n);
}

char *__getcwd_chk(char *buf, size_t n, size_t room)
{
        return n > room ? NEXT(__getcwd_chk)(buf, n, room) : getcwd(buf, n);
}
