/* wrap_transfer.c: calls that fill buffers of the program. */
#include "wrap/wrap_int.h"
#include <dirent.h>

static bool small(void *buf, size_t n)
{
        return n <= BOUNCE_BYTES && wrap_covers(buf, n);
}

static void deliver(void *to, const void *from, ssize_t n, size_t room)
{
        if (n > 0)
                memcpy(to, from, min_u64((uint64_t)n, room));
}

/* ---- files -------------------------------------------------------------------------------------
 */

ssize_t read(int fd, void *buf, size_t n)
{
        ssize_t r;
        if (!wrap_active())
                return NEXT(read)(fd, buf, n);
        if (small(buf, n)) {
                uint8_t bounce[BOUNCE_BYTES];
                r = NEXT(read)(fd, bounce, n);
                deliver(buf, bounce, r, n);
                return r;
        }
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(read)(fd, buf, n), wrap_force(buf, n));
        return r;
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
        ssize_t r;
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(pread)(fd, buf, n, at), wrap_force(buf, n));
        return r;
}

__typeof__(pread) own_pread __attribute__((alias("pread")));

ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
        ssize_t r;
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(pread64)(fd, buf, n, at), wrap_force(buf, n));
        return r;
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
        ssize_t r;
        (void)wrap_admit_vector(iov, (size_t)count, false);
        WRAP_REPEAT(r, NEXT(readv)(fd, iov, count), wrap_admit_vector(iov, (size_t)count, true));
        return r;
}

ssize_t preadv(int fd, const struct iovec *iov, int count, off_t at)
{
        ssize_t r;
        (void)wrap_admit_vector(iov, (size_t)count, false);
        WRAP_REPEAT(r, NEXT(preadv)(fd, iov, count, at),
                    wrap_admit_vector(iov, (size_t)count, true));
        return r;
}

ssize_t preadv64(int fd, const struct iovec *iov, int count, off64_t at)
{
        ssize_t r;
        (void)wrap_admit_vector(iov, (size_t)count, false);
        WRAP_REPEAT(r, NEXT(preadv64)(fd, iov, count, at),
                    wrap_admit_vector(iov, (size_t)count, true));
        return r;
}

ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t at, int flags)
{
        ssize_t r;
        (void)wrap_admit_vector(iov, (size_t)count, false);
        WRAP_REPEAT(r, NEXT(preadv2)(fd, iov, count, at, flags),
                    wrap_admit_vector(iov, (size_t)count, true));
        return r;
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int count, off64_t at, int flags)
{
        ssize_t r;
        (void)wrap_admit_vector(iov, (size_t)count, false);
        WRAP_REPEAT(r, NEXT(preadv64v2)(fd, iov, count, at, flags),
                    wrap_admit_vector(iov, (size_t)count, true));
        return r;
}

ssize_t getdents64(int fd, void *buf, size_t n)
{
        ssize_t r;
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(getdents64)(fd, buf, n), wrap_force(buf, n));
        return r;
}

ssize_t getrandom(void *buf, size_t n, unsigned flags)
{
        ssize_t r;
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(getrandom)(buf, n, flags), wrap_force(buf, n));
        return r;
}

int getentropy(void *buf, size_t n)
{
        int r;
        (void)wrap_admit(buf, n);
        WRAP_REPEAT(r, NEXT(getentropy)(buf, n), wrap_force(buf, n));
        return r;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals,
                         const struct iovec *remote, unsigned long remotes, unsigned long flags)
{
        ssize_t r;
        (void)wrap_admit_vector(local, locals, false);
        WRAP_REPEAT(r, NEXT(process_vm_readv)(pid, local, locals, remote, remotes, flags),
                    wrap_admit_vector(local, locals, true));
        return r;
}

/* ---- streams -----------------------------------------------------------------------------------
 */

typedef size_t stream_read(void *restrict, size_t, size_t, FILE *restrict);

/* What a stream delivers past its own buffer is read straight into the program's. After an EFAULT
 * the stream is in error, and goes on where it stopped. */
static size_t read_stream(stream_read *next, void *p, size_t size, size_t n, FILE *f)
{
        size_t bytes;
        if (!wrap_active() || size == 0 || __builtin_mul_overflow(size, n, &bytes) ||
            !wrap_admit(p, bytes))
                return next(p, size, n, f);
        size_t done = 0;
        for (int i = 0; i < WRAP_TRIES; i++) {
                int kept = errno;
                bool failed = ferror(f) != 0;
                errno = 0;
                done += next((uint8_t *)p + done, 1, bytes - done, f);
                bool again = done < bytes && !failed && errno == EFAULT && ferror(f);
                errno = errno ? errno : kept;
                if (!again)
                        break;
                clearerr(f);
                errno = kept;
                (void)wrap_force((uint8_t *)p + done, bytes - done);
        }
        return done / size;
}

size_t fread(void *restrict p, size_t size, size_t n, FILE *restrict f)
{
        return read_stream(NEXT(fread), p, size, n, f);
}

size_t(fread_unlocked)(void *restrict p, size_t size, size_t n, FILE *restrict f)
{
        return read_stream(NEXT(fread_unlocked), p, size, n, f);
}

/* ---- sockets -----------------------------------------------------------------------------------
 */

static ssize_t receive(int fd, void *buf, size_t n, int flags, struct sockaddr *addr,
                       socklen_t *length)
{
        uint8_t bounce[BOUNCE_BYTES];
        struct sockaddr_storage from;
        socklen_t room = addr && length ? *length : 0;
        socklen_t from_bytes = (socklen_t)min_u64(room, sizeof(from));
        bool stack = small(buf, n);
        ssize_t r;
        if (!stack)
                (void)wrap_admit(buf, n);
        WRAP_REPEAT(r,
                    NEXT(recvfrom)(fd, stack ? bounce : buf, n, flags,
                                   addr ? (struct sockaddr *)&from : NULL,
                                   addr && length ? &from_bytes : NULL),
                    !stack && wrap_force(buf, n));
        if (r < 0)
                return r;
        if (stack)
                deliver(buf, bounce, r, n);
        if (addr && length) {
                memcpy(addr, &from, min_u64(from_bytes, min_u64(room, sizeof(from))));
                *length = from_bytes;
        }
        return r;
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
        if (!wrap_covers(buf, n))
                return NEXT(recv)(fd, buf, n, flags);
        return receive(fd, buf, n, flags, NULL, NULL);
}

ssize_t recvfrom(int fd, void *restrict buf, size_t n, int flags, __SOCKADDR_ARG addr,
                 socklen_t *restrict length)
{
        struct sockaddr *to = addr.__sockaddr__;
        if (!wrap_covers(buf, n) && !wrap_covers(to, sizeof(struct sockaddr_storage)) &&
            !wrap_covers(length, sizeof(*length)))
                return NEXT(recvfrom)(fd, buf, n, flags, addr, length);
        return receive(fd, buf, n, flags, to, length);
}

static bool admit_message(const struct msghdr *message, bool force)
{
        struct msghdr m;
        if (!wrap_fetch(&m, message, sizeof(m)))
                return false;
        bool ours = wrap_admit_vector(m.msg_iov, m.msg_iovlen, force);
        ours |= force ? wrap_force(m.msg_name, m.msg_namelen)
                      : wrap_admit(m.msg_name, m.msg_namelen);
        ours |= force ? wrap_force(m.msg_control, m.msg_controllen)
                      : wrap_admit(m.msg_control, m.msg_controllen);
        return ours;
}

/* The kernel delivers the name and the control data after the message itself, and gives a message
 * up, or the control data without a word, where it cannot: both come by way of the stack. */
struct extras {
        uint8_t name[sizeof(struct sockaddr_storage)];
        uint8_t control[BOUNCE_BYTES / 2];
};

static void extras_begin(struct extras *x, struct msghdr *m)
{
        if (m->msg_namelen <= sizeof(x->name) && wrap_covers(m->msg_name, m->msg_namelen))
                m->msg_name = x->name;
        if (m->msg_controllen <= sizeof(x->control) && m->msg_controllen > 0 &&
            wrap_covers(m->msg_control, m->msg_controllen)) {
                /* Of some kinds of control data the kernel leaves padding as it was. */
                memcpy(x->control, m->msg_control, m->msg_controllen);
                m->msg_control = x->control;
        }
}

static void extras_end(const struct extras *x, const struct msghdr *used, struct msghdr *m)
{
        if (used->msg_name == x->name)
                memcpy(m->msg_name, x->name, min_u64(used->msg_namelen, m->msg_namelen));
        if (used->msg_control == x->control)
                memcpy(m->msg_control, x->control,
                       min_u64(used->msg_controllen, m->msg_controllen));
        m->msg_namelen = used->msg_namelen;
        m->msg_controllen = used->msg_controllen;
        m->msg_flags = used->msg_flags;
}

ssize_t wrap_receive(receive_call *next, int fd, struct msghdr *m, int flags)
{
        ssize_t r;
        struct msghdr used;
        struct extras x;
        if (!wrap_active() || !wrap_fetch(&used, m, sizeof(used)))
                return next(fd, m, flags);
        extras_begin(&x, &used);
        (void)admit_message(&used, false);
        WRAP_REPEAT(r, next(fd, &used, flags), admit_message(&used, true));
        if (r >= 0)
                extras_end(&x, &used, m);
        return r;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
        return wrap_receive(NEXT(recvmsg), fd, m, flags);
}

static bool admit_messages(struct mmsghdr *list, unsigned n, struct timespec *timeout, bool force)
{
        bool ours =
                force ? wrap_force(list, n * sizeof(*list)) : wrap_admit(list, n * sizeof(*list));
        ours |= force ? wrap_force(timeout, sizeof(*timeout))
                      : wrap_admit(timeout, sizeof(*timeout));
        for (unsigned i = 0; i < n && i < 1024; i++)
                ours |= admit_message(&list[i].msg_hdr, force);
        return ours;
}

int wrap_receive_many(receive_many_call *next, int fd, struct mmsghdr *list, unsigned n, int flags,
                      struct timespec *timeout)
{
        int r;
        if (!wrap_active())
                return next(fd, list, n, flags, timeout);
        (void)admit_messages(list, n, timeout, false);
        WRAP_REPEAT(r, next(fd, list, n, flags, timeout), admit_messages(list, n, timeout, true));
        return r;
}

int recvmmsg(int fd, struct mmsghdr *list, unsigned n, int flags, struct timespec *timeout)
{
        return wrap_receive_many(NEXT(recvmmsg), fd, list, n, flags, timeout);
}

/* ---- messages ----------------------------------------------------------------------------------
 */

/* A message that was taken off its queue is gone. What is too large for the stack is admitted, and
 * lost if another thread freezes the state while this one waits. */
ssize_t msgrcv(int id, void *message, size_t n, long type, int flags)
{
        struct {
                long type;
                uint8_t text[BOUNCE_BYTES];
        } local;
        local.type = 0;
        size_t bytes = sizeof(long) + n;
        if (n > BOUNCE_BYTES || !wrap_covers(message, bytes)) {
                (void)wrap_admit(message, bytes);
                return NEXT(msgrcv)(id, message, n, type, flags);
        }
        ssize_t r = NEXT(msgrcv)(id, &local, n, type, flags);
        if (r >= 0)
                memcpy(message, &local, sizeof(long) + (size_t)r);
        return r;
}

static ssize_t receive_message(mqd_t queue, char *message, size_t n, unsigned *priority,
                               const struct timespec *until)
{
        char bounce[BOUNCE_BYTES];
        unsigned local = 0;
        bool stack = small(message, n);
        if (!stack)
                (void)wrap_admit(message, n);
        ssize_t r = until ? NEXT(mq_timedreceive)(queue, stack ? bounce : message, n, &local, until)
                          : NEXT(mq_receive)(queue, stack ? bounce : message, n, &local);
        if (stack)
                deliver(message, bounce, r, n);
        if (r >= 0 && priority)
                *priority = local;
        return r;
}

ssize_t mq_receive(mqd_t queue, char *message, size_t n, unsigned *priority)
{
        if (!wrap_covers(message, n) && !wrap_covers(priority, sizeof(*priority)))
                return NEXT(mq_receive)(queue, message, n, priority);
        return receive_message(queue, message, n, priority, NULL);
}

ssize_t mq_timedreceive(mqd_t queue, char *restrict message, size_t n, unsigned *restrict priority,
                        const struct timespec *restrict until)
{
        if (!wrap_covers(message, n) && !wrap_covers(priority, sizeof(*priority)))
                return NEXT(mq_timedreceive)(queue, message, n, priority, until);
        return receive_message(queue, message, n, priority, until);
}

/* ---- what _FORTIFY_SOURCE calls ----------------------------------------------------------------
 */

/* A buffer that is too small is the checking function's matter. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
        return n > room ? NEXT(__read_chk)(fd, buf, n, room) : read(fd, buf, n);
}

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room)
{
        return n > room ? NEXT(__pread_chk)(fd, buf, n, at, room) : pread(fd, buf, n, at);
}

ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room)
{
        return n > room ? NEXT(__pread64_chk)(fd, buf, n, at, room) : pread64(fd, buf, n, at);
}

ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
        return n > room ? NEXT(__recv_chk)(fd, buf, n, room, flags) : recv(fd, buf, n, flags);
}

ssize_t __recvfrom_chk(int fd, void *restrict buf, size_t n, size_t room, int flags,
                       __SOCKADDR_ARG addr, socklen_t *restrict length)
{
        return n > room ? NEXT(__recvfrom_chk)(fd, buf, n, room, flags, addr, length)
                        : recvfrom(fd, buf, n, flags, addr, length);
}

size_t __fread_chk(void *restrict p, size_t room, size_t size, size_t n, FILE *restrict f)
{
        size_t bytes;
        if (__builtin_mul_overflow(size, n, &bytes) || bytes > room)
                return NEXT(__fread_chk)(p, room, size, n, f);
        return read_stream(NEXT(fread), p, size, n, f);
}

size_t __fread_unlocked_chk(void *restrict p, size_t room, size_t size, size_t n, FILE *restrict f)
{
        size_t bytes;
        if (__builtin_mul_overflow(size, n, &bytes) || bytes > room)
                return NEXT(__fread_unlocked_chk)(p, room, size, n, f);
        return read_stream(NEXT(fread_unlocked), p, size, n, f);
}
