/* syscall() with numbers of calls that write to memory, and POSIX aio, into regions while a commit
 * runs: they work as if nothing were protected, and the version holds the bytes of the freeze.
 *
 * timeout: 240 */
#include "base/base.h"
#include "world.h"
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define LARGE (100u << 10)
#define PLACE (64u << 10)

static uint8_t *data; /* what is in the file */
static char data_path[4096];
static int data_fd;
static const struct world *world;
static uint64_t place;

/* Fresh units, from the end on; not aligned to anything, so it begins in the unit before. */
static void *at(uint64_t bytes)
{
        place -= (bytes / PLACE + 2) * PLACE;
        CHECK(place >= PLACE && place < WORLD_BYTES);
        return world->memory + place - 8;
}
#define AT(type) ((type *)at(sizeof(type)))

static void start(const struct world *w)
{
        world = w;
        place = WORLD_BYTES;
}

/* ---- syscall() ---------------------------------------------------------------------------------
 */

static void files(const struct world *w)
{
        start(w);
        uint8_t *p = at(LARGE);
        CHECK_EQ(lseek(data_fd, 0, SEEK_SET), 0);
        CHECK_EQ(syscall(SYS_read, data_fd, p, LARGE), LARGE);
        CHECK_MEM(p, data, LARGE);
        p = at(100);
        CHECK_EQ(syscall(SYS_read, data_fd, p, 100), 100);
        CHECK_MEM(p, data + LARGE, 100);
        p = at(LARGE);
        CHECK_EQ(syscall(SYS_pread64, data_fd, p, LARGE, 7), LARGE);
        CHECK_MEM(p, data + 7, LARGE);
        /* Only what was delivered changes. */
        p = at(2000);
        int ends[2];
        CHECK_EQ(pipe(ends), 0);
        CHECK_EQ(write(ends[1], "hello", 5), 5);
        CHECK_EQ(syscall(SYS_read, ends[0], p, 2000), 5);
        CHECK_MEM(p, "hello", 5);
        CHECK_MEM(p + 5, w->frozen + (p + 5 - w->memory), 1995);
        struct iovec *v = at(2 * sizeof(*v));
        v[0] = (struct iovec){at(LARGE), LARGE};
        v[1] = (struct iovec){at(5000), 5000};
        CHECK_EQ(syscall(SYS_preadv, data_fd, v, 2, 0, 0), LARGE + 5000);
        CHECK_MEM(v[0].iov_base, data, LARGE);
        CHECK_MEM(v[1].iov_base, data + LARGE, 5000);
        struct stat *s = AT(struct stat);
        CHECK_EQ(syscall(SYS_fstat, data_fd, s), 0);
        CHECK_EQ(s->st_size, 2 * LARGE);
        struct statx *x = AT(struct statx);
        CHECK_EQ(syscall(SYS_statx, AT_FDCWD, data_path, 0, STATX_SIZE, x), 0);
        CHECK_EQ(x->stx_size, 2 * LARGE);
        char *here = at(4096);
        char there[4096];
        CHECK(syscall(SYS_getcwd, here, 4096) > 0 && getcwd(there, sizeof(there)));
        CHECK_STR(here, there);
        off_t *from = AT(off_t);
        *from = 11;
        CHECK_EQ(syscall(SYS_sendfile, ends[1], data_fd, from, 100), 100);
        CHECK_EQ(*from, 111);
        CHECK_EQ(syscall(SYS_getrandom, at(LARGE), 64, 0), 64);
        /* Errors are still errors, and other numbers are libc's. */
        void *nowhere = (void *)16;
        CHECK(syscall(SYS_read, data_fd, nowhere, 10) < 0 && errno == EFAULT);
        CHECK(syscall(SYS_read, -1, at(100), 100) < 0 && errno == EBADF);
        CHECK(syscall(SYS_preadv, data_fd, nowhere, 2, 0, 0) < 0 && errno == EFAULT);
        CHECK_EQ(syscall(SYS_getpid), getpid());
        CHECK(syscall(100000) < 0 && errno == ENOSYS);
        CHECK(syscall(-1) < 0 && errno == ENOSYS);
        CHECK_EQ(syscall(SYS_madvise, w->memory + place - (1 << 20), 1 << 20, MADV_DONTNEED), 0);
        CHECK_EQ(w->memory[place - 1], 0);
        close(ends[0]);
        close(ends[1]);
}

static void on_alarm(int number)
{
        (void)number;
}

static void facts(const struct world *w)
{
        start(w);
        struct timespec *t = AT(struct timespec);
        CHECK_EQ(syscall(SYS_clock_gettime, CLOCK_REALTIME, t), 0);
        CHECK(t->tv_sec > 1000000);
        struct rlimit *limit = AT(struct rlimit);
        CHECK_EQ(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, limit), 0);
        CHECK(limit->rlim_cur > 0);
        unsigned long *cpus = at(128);
        CHECK(syscall(SYS_sched_getaffinity, 0, 128, cpus) > 0);
        CHECK(cpus[0] != 0);
        CHECK_EQ(signal(SIGALRM, on_alarm) == SIG_ERR, 0);
        /* Again and again: the first may come before the sleep. */
        struct itimerval soon = {.it_value.tv_usec = 2000, .it_interval.tv_usec = 2000};
        struct itimerval never = {.it_value.tv_usec = 0};
        struct itimerval *old = AT(struct itimerval);
        CHECK_EQ(syscall(SYS_setitimer, ITIMER_REAL, &soon, old), 0);
        CHECK_EQ(old->it_value.tv_sec, 0);
        t = AT(struct timespec);
        CHECK(syscall(SYS_nanosleep, &(struct timespec){9, 0}, t) < 0 && errno == EINTR);
        CHECK_EQ(t->tv_sec, 8);
        CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
        CHECK(signal(SIGALRM, SIG_DFL) == on_alarm);
        int *status = AT(int);
        struct rusage *usage = AT(struct rusage);
        pid_t pid = fork();
        if (pid == 0)
                _exit(3);
        CHECK_EQ(syscall(SYS_wait4, pid, status, 0, usage), pid);
        CHECK_EQ(WEXITSTATUS(*status), 3);
        uid_t *ids = at(sizeof(uid_t) * 3);
        CHECK_EQ(syscall(SYS_getresuid, ids, ids + 1, ids + 2), 0);
        CHECK_EQ(ids[2], getuid());
}

static void descriptors(const struct world *w)
{
        start(w);
        int *ends = at(8);
        CHECK_EQ(syscall(SYS_pipe2, ends, O_CLOEXEC), 0);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        struct pollfd *p = AT(struct pollfd);
        *p = (struct pollfd){.fd = ends[0], .events = POLLIN};
        CHECK_EQ(syscall(SYS_ppoll, p, 1, NULL, NULL, 0), 1);
        CHECK_EQ(p->revents, POLLIN);
        fd_set *set = AT(fd_set);
        struct timespec *left = AT(struct timespec);
        *left = (struct timespec){100, 0};
        FD_ZERO(set);
        FD_SET(ends[0], set);
        FD_SET(ends[1], set);
        CHECK_EQ(syscall(SYS_pselect6, ends[1] + 1, set, NULL, NULL, left, NULL), 1);
        CHECK(FD_ISSET(ends[0], set) && !FD_ISSET(ends[1], set));
        CHECK(left->tv_sec == 99 || left->tv_nsec == 0);
        int e = epoll_create1(0);
        struct epoll_event ask = {.events = EPOLLIN, .data.u64 = 42};
        CHECK_EQ(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &ask), 0);
        struct epoll_event *got = at(4 * sizeof(*got));
        CHECK_EQ(syscall(SYS_epoll_pwait, e, got, 4, 0, NULL, 0), 1);
        CHECK_EQ(got->data.u64, 42);
        int id = msgget(IPC_PRIVATE, 0600);
        for (size_t n = 100; id >= 0 && n <= 5000; n += 4900) {
                struct {
                        long type;
                        uint8_t text[5000];
                } out = {.type = 3};
                memcpy(out.text, data, n);
                CHECK_EQ(msgsnd(id, &out, n, 0), 0);
                long *in = at(sizeof(out));
                CHECK_EQ(syscall(SYS_msgrcv, id, in, n, 0, 0), n);
                CHECK_EQ(*in, 3);
                CHECK_MEM(in + 1, data, n);
        }
        if (id >= 0)
                CHECK_EQ(msgctl(id, IPC_RMID, NULL), 0);
        close(e);
        close(ends[0]);
        close(ends[1]);
}

/* ---- messages with names and control data ------------------------------------------------------
 */

static ssize_t by_libc(int fd, struct msghdr *m)
{
        return recvmsg(fd, m, 0);
}

static ssize_t by_number(int fd, struct msghdr *m)
{
        return syscall(SYS_recvmsg, fd, m, 0);
}

static ssize_t by_many(int fd, struct msghdr *m)
{
        struct mmsghdr *many = AT(struct mmsghdr);
        *many = (struct mmsghdr){.msg_hdr = *m};
        int n = recvmmsg(fd, many, 1, 0, NULL);
        *m = many->msg_hdr;
        return n == 1 ? (ssize_t)many->msg_len : -1;
}

/* The header, the vector, the name and the control data are all in the region. The kernel drops
 * control data that it cannot deliver without a word. */
static void receive(ssize_t (*call)(int, struct msghdr *), size_t bytes)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct sockaddr_in from;
        socklen_t length = sizeof(to);
        int in = socket(AF_INET, SOCK_DGRAM, 0);
        int out = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK_EQ(bind(in, (struct sockaddr *)&to, sizeof(to)), 0);
        CHECK_EQ(getsockname(in, (struct sockaddr *)&to, &length), 0);
        CHECK_EQ(connect(out, (struct sockaddr *)&to, sizeof(to)), 0);
        CHECK_EQ(getsockname(out, (struct sockaddr *)&from, &length), 0);
        CHECK_EQ(setsockopt(in, IPPROTO_IP, IP_PKTINFO, &(int){1}, sizeof(int)), 0);
        CHECK_EQ(send(out, data, bytes, 0), bytes);
        struct iovec *v = AT(struct iovec);
        *v = (struct iovec){at(bytes), bytes};
        struct sockaddr_in *name = AT(struct sockaddr_in);
        uint8_t *control = at(256);
        struct msghdr *m = AT(struct msghdr);
        *m = (struct msghdr){.msg_name = name,
                             .msg_namelen = sizeof(*name),
                             .msg_iov = v,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = 256};
        CHECK_EQ(call(in, m), bytes);
        CHECK_MEM(v->iov_base, data, bytes);
        CHECK_EQ(m->msg_namelen, sizeof(*name));
        CHECK(m->msg_name == name && m->msg_control == control && m->msg_iov == v);
        CHECK_EQ(name->sin_port, from.sin_port);
        CHECK_EQ(m->msg_flags & MSG_CTRUNC, 0);
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        CHECK(c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO);
        struct in_pktinfo info;
        memcpy(&info, CMSG_DATA(c), sizeof(info));
        CHECK_EQ(info.ipi_addr.s_addr, htonl(INADDR_LOOPBACK));
        close(in);
        close(out);
}

static void messages(const struct world *w)
{
        start(w);
        receive(by_many, 5000);
        receive(by_libc, 5000);
        receive(by_libc, 100);
        receive(by_number, 5000);
        receive(by_number, 100);
        int *pair = at(8);
        CHECK_EQ(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair), 0);
        CHECK_EQ(send(pair[0], data, 5000, 0), 5000);
        uint8_t *p = at(5000);
        socklen_t *length = AT(socklen_t);
        struct sockaddr_storage *name = AT(struct sockaddr_storage);
        *length = sizeof(*name);
        CHECK_EQ(syscall(SYS_recvfrom, pair[1], p, 5000, 0, name, length), 5000);
        CHECK_MEM(p, data, 5000);
        int *type = AT(int);
        *length = sizeof(*type);
        CHECK_EQ(syscall(SYS_getsockopt, pair[0], SOL_SOCKET, SO_TYPE, type, length), 0);
        CHECK_EQ(*type, SOCK_STREAM);
        close(pair[0]);
        close(pair[1]);
}

/* ---- asynchronous I/O --------------------------------------------------------------------------
 */

static void await_all(const struct aiocb *const *list, int n)
{
        for (int i = 0; i < n; i++)
                while (aio_error(list[i]) == EINPROGRESS)
                        CHECK(aio_suspend(list, n, NULL) == 0 || errno == EINTR);
}

static void asynchronous(const struct world *w)
{
        start(w);
        /* Control block and buffer in the region. */
        struct aiocb *a = AT(struct aiocb);
        *a = (struct aiocb){.aio_fildes = data_fd, .aio_buf = at(LARGE), .aio_nbytes = LARGE};
        CHECK_EQ(aio_read(a), 0);
        await_all((const struct aiocb *const[]){a}, 1);
        CHECK_EQ(aio_error(a), 0);
        CHECK_EQ(aio_return(a), LARGE);
        CHECK_MEM((const void *)(uintptr_t)a->aio_buf, data, LARGE);
        /* The result is all that was asked for. */
        struct aiocb b = {.aio_fildes = data_fd, .aio_buf = at(100), .aio_nbytes = 100};
        for (b.aio_offset = 0; b.aio_offset < 3; b.aio_offset++) {
                CHECK_EQ(aio_read(&b), 0);
                await_all((const struct aiocb *const[]){&b}, 1);
                CHECK_EQ(aio_return(&b), 100);
                CHECK_MEM((const void *)(uintptr_t)b.aio_buf, data + b.aio_offset, 100);
        }
        b.aio_fildes = -1;
        CHECK(aio_read(&b) < 0 || (await_all((const struct aiocb *const[]){&b}, 1),
                                   aio_error(&b) == EBADF && aio_return(&b) == -1));
        /* Lists, with holes and with requests that have nothing to do with a region. */
        uint8_t own[64] = {0};
        char out[4200];
        snprintf(out, sizeof(out), "%s/out", test_dir());
        int fd = open(out, O_RDWR | O_CREAT | O_TRUNC, 0600);
        struct aiocb *c = at(4 * sizeof(*c));
        memset(c, 0, 4 * sizeof(*c));
        for (int i = 0; i < 3; i++)
                c[i] = (struct aiocb){.aio_fildes = data_fd,
                                      .aio_buf = i ? at(5000) : own,
                                      .aio_nbytes = i ? 5000 : sizeof(own),
                                      .aio_lio_opcode = LIO_READ,
                                      .aio_offset = i * 1000};
        c[3] = (struct aiocb){
                .aio_fildes = fd, .aio_buf = data, .aio_nbytes = 777, .aio_lio_opcode = LIO_WRITE};
        struct aiocb *list[5] = {&c[0], NULL, &c[1], &c[2], &c[3]};
        CHECK_EQ(lio_listio(LIO_WAIT, list, 5, NULL), 0);
        CHECK_MEM(own, data, sizeof(own));
        CHECK_MEM((const void *)(uintptr_t)c[1].aio_buf, data + 1000, 5000);
        CHECK_MEM((const void *)(uintptr_t)c[2].aio_buf, data + 2000, 5000);
        for (int i = 0; i < 4; i++) {
                CHECK_EQ(aio_error(&c[i]), 0);
                CHECK_EQ(aio_return(&c[i]), i == 0 ? sizeof(own) : i == 3 ? 777 : 5000);
        }
        CHECK_EQ(aio_fsync(O_SYNC, &c[3]), 0);
        await_all((const struct aiocb *const[]){&c[3]}, 1);
        CHECK_EQ(aio_return(&c[3]), 0);
        close(fd);
}

/* What is under way when the state is frozen arrives afterwards, and the helper threads of libc,
 * which block all signals, store nothing in a region. */
static void freeze_meanwhile(const struct world *w)
{
        int ends[2];
        start(w);
        CHECK_EQ(pipe(ends), 0);
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        struct aiocb *a = AT(struct aiocb);
        *a = (struct aiocb){.aio_fildes = ends[0], .aio_buf = at(5000), .aio_nbytes = 5000};
        CHECK_EQ(aio_read(a), 0);
        memcpy(w->frozen, w->memory, WORLD_BYTES);
        CHECK_EQ(belay_checkpoint(w->b), 0);
        CHECK_EQ(aio_error(a), EINPROGRESS);
        CHECK_EQ(write(ends[1], data, 5000), 5000);
        await_all((const struct aiocb *const[]){a}, 1);
        CHECK_EQ(aio_return(a), 5000);
        CHECK_MEM((const void *)(uintptr_t)a->aio_buf, data, 5000);
        close(ends[0]);
        close(ends[1]);
}

/* In a process of its own: libc keeps its helper threads for a second, and a context that traps
 * writes is not opened where a thread blocks the signals. */
static void in_child(void (*test)(const struct world *w))
{
        for (int i = 0; i < 6; i++) {
                pid_t pid = fork();
                if (pid == 0) {
                        struct world w = {.b = NULL};
                        world_begin(&w, i / 2, i % 2);
                        test(&w);
                        world_end(&w);
                        _exit(0);
                }
                CHECK_EQ(stress_reap(pid), 0);
        }
}

static void test_files(void)
{
        world_for_all(files);
}

static void test_facts(void)
{
        world_for_all(facts);
}

static void test_descriptors(void)
{
        world_for_all(descriptors);
}

static void test_messages(void)
{
        world_for_all(messages);
}

static void test_asynchronous(void)
{
        in_child(asynchronous);
}

static void test_freeze_meanwhile(void)
{
        in_child(freeze_meanwhile);
}

int main(void)
{
        data = malloc(2 * LARGE);
        for (uint32_t i = 0; i < 2 * LARGE; i++)
                data[i] = (uint8_t)(i * 2654435761u >> 13);
        snprintf(data_path, sizeof(data_path), "%s/data", test_dir());
        data_fd = open(data_path, O_RDWR | O_CREAT, 0600);
        CHECK_EQ(write(data_fd, data, 2 * LARGE), 2 * LARGE);
        world_in_time = false; /* a busy machine makes processes, sleeps and waits */
        RUN(test_files);
        RUN(test_facts);
        RUN(test_descriptors);
        RUN(test_messages);
        RUN(test_asynchronous);
        RUN(test_freeze_meanwhile);
        close(data_fd);
        free(data);
        return 0;
}
