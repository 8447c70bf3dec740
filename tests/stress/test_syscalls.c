/* System calls write into regions while a commit runs: they work as if nothing were protected, and
 * the version still holds the bytes of the freeze.
 *
 * timeout: 300 */
#include "base/base.h"
#include "stress.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

/* Each call gets fresh units: PLACE bytes apart, spread over the region. */
#define BYTES  (32u << 20)
#define PLACE  (384u << 10)
#define LARGE  (200u << 10)
#define STREAM (60u << 10)

static uint8_t *region, *shadow;
static uint64_t place, calls;
static char data_path[4096];
static uint8_t *data; /* what is in that file */
static int data_fd;

/* Descending from the end: the flusher without history goes up. Not aligned to anything. */
static void *at(uint64_t bytes)
{
        place = place < PLACE + 4096 ? BYTES - PLACE : place - PLACE;
        CHECK(bytes < PLACE - 4096);
        calls++;
        return region + place + 4096 - 8;
}

#define AT(type) ((type *)at(sizeof(type)))

static void test_files(void)
{
        uint8_t *p = at(LARGE);
        CHECK_EQ(lseek(data_fd, 0, SEEK_SET), 0);
        CHECK_EQ(read(data_fd, p, LARGE), LARGE);
        CHECK_MEM(p, data, LARGE);
        p = at(100);
        CHECK_EQ(read(data_fd, p, 100), 100);
        CHECK_MEM(p, data + LARGE, 100);
        p = at(LARGE);
        CHECK_EQ(pread(data_fd, p, LARGE, 7), LARGE);
        CHECK_MEM(p, data + 7, LARGE);
        p = at(LARGE);
        CHECK_EQ(pread64(data_fd, p, LARGE, 9), LARGE);
        CHECK_MEM(p, data + 9, LARGE);
        for (int i = 0; i < 3; i++) {
                struct iovec v[2] = {{at(LARGE), LARGE}, {at(5000), 5000}};
                CHECK_EQ(lseek(data_fd, 0, SEEK_SET), 0);
                ssize_t n = i == 0   ? readv(data_fd, v, 2)
                            : i == 1 ? preadv(data_fd, v, 2, 0)
                                     : preadv64(data_fd, v, 2, 0);
                CHECK_EQ(n, LARGE + 5000);
                CHECK_MEM(v[0].iov_base, data, LARGE);
                CHECK_MEM(v[1].iov_base, data + LARGE, 5000);
        }
        /* The kernel's to report, whatever is wrong with it. */
        struct iovec *volatile bad = (struct iovec *)16;
        CHECK_EQ(readv(data_fd, bad, 2), -1);
        CHECK_EQ(errno, EFAULT);
        CHECK_EQ(preadv(data_fd, bad, 2, 0), -1);
        CHECK_EQ(errno, EFAULT);
        CHECK_EQ(recvmsg(data_fd, (struct msghdr *)16, 0), -1);
        struct iovec to = {at(LARGE), LARGE};
        struct iovec from = {data, LARGE};
        CHECK_EQ(process_vm_readv(getpid(), &to, 1, &from, 1, 0), LARGE);
        CHECK_MEM(to.iov_base, data, LARGE);
}

static void test_streams(void)
{
        static char lines[] = "one\ntwo\nthree\n";
        FILE *f = fopen(data_path, "r");
        CHECK(f != NULL);
        uint8_t *p = at(LARGE);
        CHECK_EQ(fread(p, 10, LARGE / 10, f), LARGE / 10);
        CHECK_MEM(p, data, LARGE);
        p = at(LARGE);
        CHECK_EQ(fread_unlocked(p, 1, 100000, f), 100000);
        CHECK_MEM(p, data + LARGE, 100000);
        fclose(f);
        FILE *one = fmemopen(lines, sizeof(lines) - 1, "r");
        CHECK(one != NULL);
        char *line = at(64);
        CHECK(fgets(line, 64, one) == line);
        CHECK_STR(line, "one\n");
        fclose(one);
        FILE *two = fmemopen(lines, sizeof(lines) - 1, "r");
        CHECK(two != NULL);
        char **text = AT(char *);
        size_t *room = AT(size_t);
        *text = NULL;
        *room = 0;
        CHECK_EQ(getline(text, room, two), 4);
        CHECK_EQ(getdelim(text, room, 'o', two), 3);
        CHECK_STR(*text, "two");
        free(*text);
        fclose(two);
}

static void test_random(void)
{
        uint8_t *p = at(LARGE);
        memset(p, 0, 200);
        CHECK_EQ(getrandom(at(LARGE), 200, 0), 200);
        CHECK_EQ(getentropy(at(256), 256), 0);
        /* Beyond 256 bytes a signal or a completed request of the kernel's may cut it short. */
        for (size_t done = 0; done < LARGE;) {
                ssize_t n = getrandom(p + done, LARGE - done, 0);
                CHECK(n > 0);
                done += (size_t)n;
        }
        CHECK(p[LARGE - 1] || p[LARGE - 2] || p[LARGE - 3] || p[LARGE - 4]);
}

static void test_status(void)
{
        struct stat *s[4] = {AT(struct stat), AT(struct stat), AT(struct stat), AT(struct stat)};
        struct stat64 *l[4] = {AT(struct stat64), AT(struct stat64), AT(struct stat64),
                               AT(struct stat64)};
        struct statx *x = AT(struct statx);
        CHECK_EQ(stat(data_path, s[0]), 0);
        CHECK_EQ(lstat(data_path, s[1]), 0);
        CHECK_EQ(fstat(data_fd, s[2]), 0);
        CHECK_EQ(fstatat(AT_FDCWD, data_path, s[3], 0), 0);
        CHECK_EQ(stat64(data_path, l[0]), 0);
        CHECK_EQ(lstat64(data_path, l[1]), 0);
        CHECK_EQ(fstat64(data_fd, l[2]), 0);
        CHECK_EQ(fstatat64(AT_FDCWD, data_path, l[3], 0), 0);
        CHECK_EQ(statx(AT_FDCWD, data_path, 0, STATX_SIZE, x), 0);
        for (int i = 0; i < 4; i++) {
                CHECK_EQ(s[i]->st_size, 2 * LARGE);
                CHECK_EQ(l[i]->st_size, 2 * LARGE);
        }
        CHECK_EQ(x->stx_size, 2 * LARGE);
        struct utsname *u = AT(struct utsname);
        CHECK_EQ(uname(u), 0);
        CHECK_STR(u->sysname, "Linux");
        CHECK(times(AT(struct tms)) != (clock_t)-1);
        struct rusage *r = AT(struct rusage);
        CHECK_EQ(getrusage(RUSAGE_SELF, r), 0);
        CHECK(r->ru_maxrss > 1000);
        /* Errors are still errors. */
        CHECK(stat("/nonexistent", AT(struct stat)) < 0 && errno == ENOENT);
        CHECK(read(-1, at(LARGE), LARGE) < 0 && errno == EBADF);
        void *nowhere = (void *)16;
        __asm__("" : "+r"(nowhere));
        CHECK_EQ(lseek(data_fd, 0, SEEK_SET), 0);
        CHECK(read(data_fd, nowhere, 10) < 0 && errno == EFAULT);
        CHECK(pipe(nowhere) < 0 && errno == EFAULT);
}

static void test_facts(void)
{
        struct statfs *f[2] = {AT(struct statfs), AT(struct statfs)};
        struct statfs64 *l[2] = {AT(struct statfs64), AT(struct statfs64)};
        CHECK_EQ(statfs(data_path, f[0]), 0);
        CHECK_EQ(fstatfs(data_fd, f[1]), 0);
        CHECK_EQ(statfs64(data_path, l[0]), 0);
        CHECK_EQ(fstatfs64(data_fd, l[1]), 0);
        for (int i = 0; i < 2; i++)
                CHECK(f[i]->f_bsize == f[0]->f_bsize && l[i]->f_bsize == f[0]->f_bsize);
        struct rlimit now;
        struct rlimit *limit[2] = {AT(struct rlimit), AT(struct rlimit)};
        CHECK_EQ(getrlimit(RLIMIT_STACK, &now), 0);
        CHECK_EQ(getrlimit(RLIMIT_STACK, limit[0]), 0);
        CHECK_EQ(prlimit(0, RLIMIT_STACK, &now, limit[1]), 0);
        CHECK(limit[0]->rlim_cur == now.rlim_cur && limit[1]->rlim_cur == now.rlim_cur);
        struct sysinfo *s = AT(struct sysinfo);
        CHECK_EQ(sysinfo(s), 0);
        CHECK(s->totalram > 0);
        gid_t *groups = at(64 * sizeof(gid_t));
        CHECK(getgroups(64, groups) >= 0 || errno == EINVAL);
        cpu_set_t *cpus = AT(cpu_set_t);
        CHECK_EQ(sched_getaffinity(0, sizeof(*cpus), cpus), 0);
        CHECK(CPU_COUNT(cpus) > 0);
        struct itimerval later = {.it_value.tv_sec = 100};
        struct itimerval *timer = AT(struct itimerval);
        CHECK_EQ(setitimer(ITIMER_REAL, &later, timer), 0);
        CHECK_EQ(timer->it_value.tv_sec, 0);
        timer = AT(struct itimerval);
        CHECK_EQ(getitimer(ITIMER_REAL, timer), 0);
        CHECK(timer->it_value.tv_sec >= 90);
        later.it_value.tv_sec = 0;
        CHECK_EQ(setitimer(ITIMER_REAL, &later, AT(struct itimerval)), 0);
        char *value = at(16);
        if (fsetxattr(data_fd, "user.t", "text", 4, 0) == 0) {
                CHECK_EQ(fgetxattr(data_fd, "user.t", value, 16), 4);
                CHECK_MEM(value, "text", 4);
                value = at(1000);
                CHECK(listxattr(data_path, value, 1000) >= 7);
        }
}

static void test_messages(void)
{
        sigset_t usr;
        sigset_t before;
        sigemptyset(&usr);
        sigaddset(&usr, SIGUSR2);
        CHECK_EQ(pthread_sigmask(SIG_BLOCK, &usr, &before), 0);
        CHECK_EQ(pthread_kill(pthread_self(), SIGUSR2), 0);
        sigset_t *pending = AT(sigset_t);
        CHECK_EQ(sigpending(pending), 0);
        CHECK(sigismember(pending, SIGUSR2));
        siginfo_t *info = AT(siginfo_t);
        CHECK_EQ(sigwaitinfo(&usr, info), SIGUSR2);
        CHECK_EQ(info->si_signo, SIGUSR2);
        CHECK_EQ(pthread_kill(pthread_self(), SIGUSR2), 0);
        info = AT(siginfo_t);
        CHECK_EQ(sigtimedwait(&usr, info, &(struct timespec){5, 0}), SIGUSR2);
        CHECK_EQ(info->si_signo, SIGUSR2);
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        int id = msgget(IPC_PRIVATE, 0600);
        for (size_t n = 100; id >= 0 && n <= 5000; n += 4900) {
                struct {
                        long type;
                        uint8_t text[5000];
                } out = {.type = 3};
                memcpy(out.text, data, n);
                CHECK_EQ(msgsnd(id, &out, n, 0), 0);
                long *in = at(sizeof(out));
                CHECK_EQ(msgrcv(id, in, n, 0, 0), n);
                CHECK_EQ(*in, 3);
                CHECK_MEM(in + 1, data, n);
        }
        if (id >= 0)
                CHECK_EQ(msgctl(id, IPC_RMID, NULL), 0);
        char name[64];
        snprintf(name, sizeof(name), "/belay-test-%d", (int)getpid());
        struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 100};
        mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
        for (int i = 0; queue != (mqd_t)-1 && i < 2; i++) {
                char *p = at(100);
                unsigned *priority = AT(unsigned);
                struct timespec until = {.tv_sec = time(NULL) + 60};
                CHECK_EQ(mq_send(queue, (char *)data, 50, 7), 0);
                CHECK_EQ(i ? mq_timedreceive(queue, p, 100, priority, &until)
                           : mq_receive(queue, p, 100, priority),
                         50);
                CHECK_MEM(p, data, 50);
                CHECK_EQ(*priority, 7);
        }
        if (queue != (mqd_t)-1) {
                CHECK_EQ(mq_close(queue), 0);
                CHECK_EQ(mq_unlink(name), 0);
        }
}

static void test_names(void)
{
        char link[4200];
        snprintf(link, sizeof(link), "%s/link", test_dir());
        unlink(link);
        CHECK_EQ(symlink("target", link), 0);
        char *p = at(100);
        CHECK_EQ(readlink(link, p, 100), 6);
        CHECK_MEM(p, "target", 6);
        p = at(100);
        CHECK_EQ(readlinkat(AT_FDCWD, link, p, 100), 6);
        CHECK_MEM(p, "target", 6);
        char here[4096];
        p = at(4096);
        CHECK(getcwd(p, 4096) == p && getcwd(here, sizeof(here)) == here);
        CHECK_STR(p, here);
        int dir = open(test_dir(), O_RDONLY | O_DIRECTORY);
        struct dirent64 *d = at(4096);
        CHECK(getdents64(dir, d, 4096) > 0);
        CHECK(d->d_reclen > 0);
        close(dir);
}

static void send_and_receive(int kind)
{
        int *pair = at(8);
        CHECK_EQ(socketpair(AF_UNIX, kind, 0, pair), 0);
        uint8_t *p = at(STREAM);
        CHECK_EQ(send(pair[0], data, STREAM, 0), STREAM);
        CHECK_EQ(recv(pair[1], p, STREAM, MSG_WAITALL), STREAM);
        CHECK_MEM(p, data, STREAM);
        p = at(500);
        CHECK_EQ(send(pair[0], data, 500, 0), 500);
        CHECK_EQ(recv(pair[1], p, 500, 0), 500);
        CHECK_MEM(p, data, 500);
        p = at(5000);
        struct sockaddr_un *a = AT(struct sockaddr_un);
        socklen_t *n = AT(socklen_t);
        *n = sizeof(*a);
        CHECK_EQ(send(pair[0], data, 5000, 0), 5000);
        CHECK_EQ(recvfrom(pair[1], p, 5000, 0, (struct sockaddr *)a, n), 5000);
        CHECK_MEM(p, data, 5000);
        struct iovec *v = AT(struct iovec);
        *v = (struct iovec){at(5000), 5000};
        struct msghdr *m = AT(struct msghdr);
        *m = (struct msghdr){.msg_iov = v, .msg_iovlen = 1};
        CHECK_EQ(send(pair[0], data, 5000, 0), 5000);
        CHECK_EQ(recvmsg(pair[1], m, 0), 5000);
        CHECK_MEM(v->iov_base, data, 5000);
        struct iovec w = {at(3000), 3000};
        struct mmsghdr *mm = AT(struct mmsghdr);
        *mm = (struct mmsghdr){.msg_hdr = {.msg_iov = &w, .msg_iovlen = 1}};
        CHECK_EQ(send(pair[0], data, 3000, 0), 3000);
        CHECK_EQ(recvmmsg(pair[1], mm, 1, 0, NULL), 1);
        CHECK_EQ(mm->msg_len, 3000);
        CHECK_MEM(w.iov_base, data, 3000);
        int *type = AT(int);
        *n = sizeof(*type);
        CHECK_EQ(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, type, n), 0);
        CHECK_EQ(*type, kind);
        close(pair[0]);
        close(pair[1]);
}

static void test_sockets(void)
{
        send_and_receive(SOCK_STREAM);
        send_and_receive(SOCK_DGRAM);
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        CHECK_EQ(bind(listener, (struct sockaddr *)&any, sizeof(any)), 0);
        CHECK_EQ(listen(listener, 4), 0);
        struct sockaddr_in *a = AT(struct sockaddr_in);
        socklen_t *n = AT(socklen_t);
        *n = sizeof(*a);
        CHECK_EQ(getsockname(listener, (struct sockaddr *)a, n), 0);
        CHECK(a->sin_port != 0 && *n == sizeof(*a));
        any.sin_port = a->sin_port;
        for (int i = 0; i < 2; i++) {
                int fd = socket(AF_INET, SOCK_STREAM, 0);
                CHECK_EQ(connect(fd, (struct sockaddr *)&any, sizeof(any)), 0);
                a = AT(struct sockaddr_in);
                n = AT(socklen_t);
                *n = sizeof(*a);
                int got = i ? accept4(listener, (struct sockaddr *)a, n, SOCK_CLOEXEC)
                            : accept(listener, (struct sockaddr *)a, n);
                CHECK(got >= 0 && a->sin_family == AF_INET && *n == sizeof(*a));
                a = AT(struct sockaddr_in);
                n = AT(socklen_t);
                *n = sizeof(*a);
                CHECK_EQ(getpeername(fd, (struct sockaddr *)a, n), 0);
                CHECK_EQ(a->sin_port, any.sin_port);
                close(got);
                close(fd);
        }
        close(listener);
}

static void test_descriptors(void)
{
        int *ends = at(8);
        CHECK_EQ(pipe(ends), 0);
        close(ends[0]);
        close(ends[1]);
        ends = at(8);
        CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
        CHECK_EQ(write(ends[1], "x", 1), 1);
        struct pollfd *p = AT(struct pollfd);
        *p = (struct pollfd){.fd = ends[0], .events = POLLIN};
        CHECK_EQ(poll(p, 1, 0), 1);
        CHECK_EQ(p->revents, POLLIN);
        p = AT(struct pollfd);
        *p = (struct pollfd){.fd = ends[0], .events = POLLIN};
        CHECK_EQ(ppoll(p, 1, &(struct timespec){0, 0}, NULL), 1);
        CHECK_EQ(p->revents, POLLIN);
        fd_set *set = AT(fd_set);
        struct timeval *t = AT(struct timeval);
        *t = (struct timeval){1, 0};
        FD_ZERO(set);
        FD_SET(ends[0], set);
        CHECK_EQ(select(ends[0] + 1, set, NULL, NULL, t), 1);
        CHECK(FD_ISSET(ends[0], set));
        CHECK_EQ(pselect(ends[0] + 1, set, NULL, NULL, &(struct timespec){0, 0}, NULL), 1);
        int e = epoll_create1(0);
        struct epoll_event ask = {.events = EPOLLIN, .data.u64 = 42};
        CHECK_EQ(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &ask), 0);
        struct epoll_event *got = AT(struct epoll_event);
        CHECK_EQ(epoll_wait(e, got, 1, 0), 1);
        CHECK_EQ(got->data.u64, 42);
        got = AT(struct epoll_event);
        CHECK(epoll_pwait2(e, got, 1, &(struct timespec){0, 0}, NULL) == 1 || errno == ENOSYS);
        close(e);
        close(ends[0]);
        close(ends[1]);
}

static pid_t child(int code)
{
        pid_t pid = fork();
        if (pid == 0) {
                /* The child's memory belongs to no commit; its calls work all the same. */
                bool good = pread(data_fd, region, 8192, 0) == 8192 &&
                            memcmp(region, data, 8192) == 0 &&
                            fstat(data_fd, (struct stat *)(void *)(region + (1 << 20))) == 0;
                _exit(good ? code : 99);
        }
        return pid;
}

static void on_alarm(int number)
{
        (void)number;
}

static void test_waits(void)
{
        int *status = AT(int);
        pid_t pid = child(3);
        CHECK_EQ(waitpid(pid, status, 0), pid);
        CHECK_EQ(WEXITSTATUS(*status), 3);
        status = AT(int);
        struct rusage *r = AT(struct rusage);
        pid = child(4);
        CHECK_EQ(wait4(pid, status, 0, r), pid);
        CHECK_EQ(WEXITSTATUS(*status), 4);
        siginfo_t *info = AT(siginfo_t);
        pid = child(5);
        CHECK_EQ(waitid(P_PID, (id_t)pid, info, WEXITED), 0);
        CHECK_EQ(info->si_status, 5);
        struct sigaction act = {.sa_handler = on_alarm};
        struct sigaction *old = AT(struct sigaction);
        CHECK_EQ(sigaction(SIGALRM, &act, old), 0);
        CHECK(old->sa_handler == SIG_DFL || old->sa_handler == on_alarm);
        struct timespec *left = AT(struct timespec);
        struct itimerval soon = {.it_value.tv_usec = 2000};
        CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
        CHECK(nanosleep(&(struct timespec){9, 0}, left) < 0 && errno == EINTR);
        CHECK_EQ(left->tv_sec, 8);
        left = AT(struct timespec);
        CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
        CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){9, 0}, left), EINTR);
        CHECK_EQ(left->tv_sec, 8);
}

static void on_user_signal(int number)
{
        (void)number;
        *(volatile uint8_t *)at(1) = 1; /* with a full sa_mask */
}

static void test_masks(void)
{
        sigset_t all;
        sigfillset(&all);
        sigset_t *old = AT(sigset_t);
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, old), 0);
        CHECK(!sigismember(old, SIGSEGV) && !sigismember(old, SIGTERM));
        *(volatile uint8_t *)at(1) = 1; /* would end the process if SIGSEGV were blocked */
        old = AT(sigset_t);
        CHECK_EQ(sigprocmask(SIG_SETMASK, NULL, old), 0);
        CHECK(sigismember(old, SIGSEGV) && sigismember(old, SIGBUS) && sigismember(old, SIGTERM));
        sigset_t none;
        sigemptyset(&none);
        CHECK_EQ(sigprocmask(SIG_SETMASK, &none, NULL), 0);
        CHECK(sigprocmask(77, &none, NULL) < 0 && errno == EINVAL);
        struct sigaction act = {.sa_handler = on_user_signal, .sa_mask = all};
        struct sigaction now;
        CHECK_EQ(sigaction(SIGUSR1, &act, NULL), 0);
        CHECK_EQ(sigaction(SIGUSR1, NULL, &now), 0);
        CHECK(sigismember(&now.sa_mask, SIGSEGV));
        CHECK_EQ(raise(SIGUSR1), 0);
}

/* ---- the frame ---------------------------------------------------------------------------------
 */

static void set(struct belay_config *c, const char *key, const char *value)
{
        if (belay_config_set(c, key, value))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
}

/* Calls that sleep through the freeze deliver afterwards. */
static int sleeping_pipe[2], sleeping_pair[2];

static void *read_pipe(void *to)
{
        CHECK_EQ(read(sleeping_pipe[0], to, 5000), 5000);
        return NULL;
}

static void *receive_datagram(void *to)
{
        CHECK_EQ(recv(sleeping_pair[1], to, 2000, 0), 2000);
        return NULL;
}

static void run_sleepers(struct belay *b, const char *path)
{
        uint8_t *to[2] = {region + BYTES - 100000, region + BYTES - 200000};
        pthread_t threads[2];
        CHECK_EQ(pipe(sleeping_pipe), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, sleeping_pair), 0);
        CHECK_EQ(pthread_create(&threads[0], NULL, read_pipe, to[0]), 0);
        CHECK_EQ(pthread_create(&threads[1], NULL, receive_datagram, to[1]), 0);
        CHECK_EQ(usleep(50000), 0);
        memset(region, 0xa5, BYTES);
        memcpy(shadow, region, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(write(sleeping_pipe[1], data, 5000), 5000);
        CHECK_EQ(send(sleeping_pair[0], data, 2000, 0), 2000);
        for (int i = 0; i < 2; i++)
                CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_MEM(to[0], data, 5000);
        CHECK_MEM(to[1], data, 2000);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        stress_compare(path, belay_version(b), "r", shadow, BYTES);
        for (int i = 0; i < 2; i++) {
                close(sleeping_pipe[i]);
                close(sleeping_pair[i]);
        }
}

static void run(const char *tracker, const char *buffer)
{
        static void (*const tests[])(void) = {
                test_files, test_streams,     test_random, test_status, test_names,   test_sockets,
                test_waits, test_descriptors, test_masks,  test_facts,  test_messages};
        char path[4096];
        struct belay_config *c;
        struct belay *b;
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        unlink(path);
        CHECK_EQ(belay_config_new(&c), 0);
        set(c, "pool", path);
        set(c, "tracker", tracker);
        set(c, "policy", "adaptive");
        set(c, "unit", "64KiB");
        set(c, "copy_buffer", buffer);
        set(c, "rate", "100MiB");
        if (belay_open(c, &b)) {
                printf("  %s: not here: %s\n", tracker, belay_error());
                belay_config_delete(&c);
                return;
        }
        region = belay_alloc(b, "r", BELAY_U8, BYTES);
        CHECK(region != NULL);
        uint64_t faults = 0;
        calls = 0;
        struct belay_stats s = {.size = sizeof(s)};
        uint64_t during = 0;
        for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
                for (uint32_t k = 0; k < BYTES; k += 512)
                        memset(region + k, (int)(k / 512 * 7 + i * 31 + 1), 512);
                memcpy(shadow, region, BYTES);
                place = BYTES;
                CHECK_EQ(belay_checkpoint(b), 0);
                tests[i]();
                struct belay_status status = {.size = sizeof(status)};
                CHECK_EQ(belay_status(b, 0, &status), 0);
                during += status.state == BELAY_FLUSHING;
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                stress_compare(path, belay_version(b), "r", shadow, BYTES);
                CHECK_EQ(belay_stats(b, &s), 0);
                faults += s.last_faults;
                /* Between commits too: some trackers keep memory protected. */
                tests[i]();
        }
        run_sleepers(b, path);
        printf("  %s buffer %s: %llu calls, %llu faults and admissions; %llu of %zu commits "
               "outlasted the calls\n",
               tracker, buffer, (unsigned long long)calls, (unsigned long long)faults,
               (unsigned long long)during, ARRAY_LEN(tests));
        fflush(stdout);
        CHECK(strcmp(tracker, "hash") == 0 || faults > 0);
        stress_close(&b);
        belay_config_delete(&c);
}

int main(void)
{
        static const char *const trackers[] = {"scan", "mprotect", "uffd", "hash"};
        shadow = malloc(BYTES);
        data = malloc(2 * LARGE);
        for (uint32_t i = 0; i < 2 * LARGE; i++)
                data[i] = (uint8_t)(i * 2654435761u >> 13);
        snprintf(data_path, sizeof(data_path), "%s/data", test_dir());
        data_fd = open(data_path, O_RDWR | O_CREAT, 0600);
        CHECK_EQ(write(data_fd, data, 2 * LARGE), 2 * LARGE);
        for (size_t i = 0; i < ARRAY_LEN(trackers); i++) {
                run(trackers[i], "0");
                run(trackers[i], "1MiB");
        }
        close(data_fd);
        free(data);
        free(shadow);
        return 0;
}
