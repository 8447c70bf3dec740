/* ports.c: datagrams between processes of one machine, over abstract Unix sockets.
 *
 * An abstract name has no file that could be left behind or that the mode of a directory could
 * protect; so every datagram carries the credentials that the kernel vouches for, and those of
 * users who could not send this process a signal either are passed over. Nothing here ever waits
 * but port_wait, and descriptors are closed on exec. */
#include "plat/plat_int.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t fill_address(struct sockaddr_un *address, const char *name, size_t bytes)
{
        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(address->sun_path, name, bytes);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
}

void peer_named(const char *name, struct plat_peer *out)
{
        size_t n = min_u64(strlen(name), sizeof(out->name) - 1);
        *out = (struct plat_peer){.bytes = (uint32_t)n + 1};
        /* A leading zero byte makes the name abstract. */
        memcpy(out->name + 1, name, n);
}

int port_system_open(const struct plat_peer *as)
{
        int fd = above_standard(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd < 0)
                return -errno;
        struct sockaddr_un address;
        int on = 1;
        /* No name: the kernel chooses one. */
        socklen_t bytes = fill_address(&address, as ? as->name : "", as ? as->bytes : 0);
        if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
            bind(fd, (struct sockaddr *)&address, bytes) < 0) {
                int rc = -errno;
                (void)close(fd);
                return rc;
        }
        return fd;
}

/* The sender's credentials; false if there are none. */
static bool sender(struct msghdr *message, struct plat_peer *from)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
                struct ucred cred;
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
                        continue;
                memcpy(&cred, CMSG_DATA(c), sizeof(cred));
                from->pid = cred.pid;
                return cred.uid == 0 || cred.uid == getuid() || cred.uid == geteuid();
        }
        return false;
}

int64_t port_system_receive(int fd, void *buf, size_t bytes, struct plat_peer *from)
{
        /* Room for the credentials only: descriptors that somebody sends along are dropped by the
         * kernel. */
        union {
                struct cmsghdr align;
                char room[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct sockaddr_un address;
        struct iovec part = {buf, bytes};
        struct msghdr message = {.msg_name = &address,
                                 .msg_namelen = sizeof(address),
                                 .msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof(control)};
        ssize_t n;
        do
                n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        *from = (struct plat_peer){.bytes = 0};
        size_t head = offsetof(struct sockaddr_un, sun_path);
        if (message.msg_namelen > head && message.msg_namelen - head <= sizeof(from->name)) {
                from->bytes = (uint32_t)(message.msg_namelen - head);
                memcpy(from->name, address.sun_path, from->bytes);
        }
        return sender(&message, from) ? n : -EPERM;
}

int port_system_send(int fd, const struct plat_peer *to, const void *buf, size_t bytes)
{
        struct sockaddr_un address;
        socklen_t length = fill_address(&address, to->name, to->bytes);
        ssize_t n;
        do
                n = sendto(fd, buf, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
                           length);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : 0;
}

int port_system_wait(int fd, uint64_t timeout_ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, (int)min_u64(timeout_ms, INT32_MAX));
        return n < 0 && errno != EINTR ? -errno : n > 0;
}
