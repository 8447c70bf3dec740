/* system.c: the real call table. Each function is one system call with errno turned into a result,
 * plus the retries the kernel asks for (EINTR). */
#include "plat/plat_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* linux/magic.h values, so that no kernel header is needed. */
#define FS_TMPFS     0x01021994
#define FS_RAMFS     0x858458f6
#define FS_HUGETLBFS 0x958458f6
/* linux/stat.h, since 5.8. */
#define ATTRIBUTE_DAX 0x00200000

/* fork() copies these pointers; a child that calls belay on its parent's context is outside the
 * contract. */
const struct plat_calls *plat = &plat_system;
void (*plat_point_hook)(const char *name);
bool plat_before_libc;

static int result(int rc)
{
        return rc < 0 ? -errno : rc;
}

static void *sys_alloc(size_t bytes)
{
        void *p = NULL;
        if (bytes < PLAT_PAGE)
                return calloc(1, bytes ? bytes : 1);
        if (posix_memalign(&p, PLAT_PAGE, bytes))
                return NULL;
        return memset(p, 0, bytes);
}

static void sys_release(void *p)
{
        free(p);
}

/* 0, 1 and 2 are the program's, also when it has closed them: what it prints then must not be
 * written into a pool. */
int above_standard(int fd)
{
        if (fd < 0 || fd > 2)
                return fd;
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        int error = errno;
        (void)close(fd);
        errno = error;
        return moved;
}

static int sys_openat(int dir, const char *name, int flags, unsigned mode)
{
        int fd;
        do
                fd = openat(dir, name, flags, mode);
        while (fd < 0 && errno == EINTR);
        return result(above_standard(fd));
}

/* Linux releases the descriptor even when close reports EINTR, so it is never repeated. */
static int sys_close(int fd)
{
        return result(close(fd));
}

/* A kernel that does not know the attribute does not set it. */
static bool is_dax(int fd)
{
        struct statx sx;
        return statx(fd, "", AT_EMPTY_PATH, 0, &sx) == 0 && (sx.stx_attributes & ATTRIBUTE_DAX);
}

static int sys_fstat(int fd, struct plat_stat *out)
{
        struct stat st;
        struct statfs fs;
        if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
                return -errno;
        unsigned long kind = (unsigned long)fs.f_type & 0xffffffffUL;
        *out = (struct plat_stat){
                .bytes = (uint64_t)st.st_size,
                .allocated = (uint64_t)st.st_blocks * 512,
                .room = fs.f_blocks ? (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize : UINT64_MAX,
                .device = st.st_dev,
                .inode = st.st_ino,
                .mode = st.st_mode & 07777,
                .own = st.st_uid == geteuid(),
                .regular = S_ISREG(st.st_mode),
                .in_memory = kind == FS_TMPFS || kind == FS_RAMFS || kind == FS_HUGETLBFS,
                .dax = is_dax(fd),
        };
        return 0;
}

static int sys_where(int fd, int dir, const char *name, uint64_t *bytes)
{
        struct stat own;
        struct stat named;
        if (fstat(fd, &own) < 0)
                return -errno;
        *bytes = (uint64_t)own.st_size;
        if (own.st_nlink == 0)
                return PLAT_DELETED;
        if (!name)
                return PLAT_HERE;
        if (fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? PLAT_NOTHING : -errno;
        return own.st_dev == named.st_dev && own.st_ino == named.st_ino ? PLAT_HERE : PLAT_ANOTHER;
}

static int sys_ftruncate(int fd, uint64_t bytes)
{
        return result(ftruncate(fd, (off_t)bytes));
}

static int sys_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        int rc;
        do
                rc = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
        while (rc < 0 && errno == EINTR);
        return result(rc);
}

static int64_t sys_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        ssize_t n;
        do
                n = pread(fd, buf, bytes, (off_t)offset);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static int64_t sys_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        ssize_t n;
        do
                n = pwrite(fd, buf, bytes, (off_t)offset);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

/* A failed sync is never repeated: the kernel may have dropped the dirty pages and a second call
 * would report success for data that is gone. */
static int sys_fdatasync(int fd)
{
        return result(fdatasync(fd));
}

static int sys_fsync(int fd)
{
        return result(fsync(fd));
}

static int sys_flock(int fd)
{
        int rc;
        do
                rc = flock(fd, LOCK_EX | LOCK_NB);
        while (rc < 0 && errno == EINTR);
        return result(rc);
}

static int sys_lock_byte(int fd, uint64_t offset, enum plat_lock how)
{
        static const short types[] = {F_UNLCK, F_RDLCK, F_WRLCK};
        struct flock lock = {
                .l_type = types[how], .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
        int rc;
        do
                rc = fcntl(fd, F_OFD_SETLK, &lock);
        while (rc < 0 && errno == EINTR);
        if (rc < 0 && errno == EACCES) /* POSIX allows both for "locked by somebody else" */
                return -EAGAIN;
        return result(rc);
}

/* flock does not tell its owner; /proc/locks does: "1: FLOCK ADVISORY WRITE 1234 fe:01:5678 0 EOF".
 */
static int sys_lock_owner(int fd)
{
        struct stat st;
        if (fstat(fd, &st) < 0)
                return 0;
        FILE *f = fopen("/proc/locks", "re");
        if (!f)
                return 0;
        char line[256];
        int owner = 0;
        while (!owner && fgets(line, sizeof(line), f)) {
                int pid;
                unsigned major;
                unsigned minor;
                unsigned long long inode;
                if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major, &minor,
                           &inode) == 4 &&
                    inode == st.st_ino && makedev(major, minor) == st.st_dev)
                        owner = pid;
        }
        (void)fclose(f);
        return owner;
}

static int sys_rename_new(int dir, const char *from, const char *to)
{
        int rc = result(renameat2(dir, from, dir, to, RENAME_NOREPLACE));
        if (rc != -EINVAL && rc != -ENOSYS)
                return rc;
        /* Some network file systems lack the flag; a link never replaces a file either. */
        rc = result(linkat(dir, from, dir, to, 0));
        return rc ? rc : result(unlinkat(dir, from, 0));
}

static int sys_unlink(int dir, const char *name)
{
        return result(unlinkat(dir, name, 0));
}

static int64_t sys_append(int fd, const void *buf, size_t bytes)
{
        ssize_t n;
        do
                n = write(fd, buf, bytes);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

/* Addresses from a multiple of a huge page on, to be mapped over; NULL if there are none. */
static void *huge_addresses(uint64_t bytes)
{
        uint64_t whole = align_up(bytes, PLAT_PAGE) + PLAT_HUGE_PAGE;
        uint8_t *p =
                mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
                return NULL;
        uint64_t before = align_up((uintptr_t)p, PLAT_HUGE_PAGE) - (uintptr_t)p;
        if (before)
                (void)munmap(p, before);
        (void)munmap(p + before + align_up(bytes, PLAT_PAGE), PLAT_HUGE_PAGE - before);
        return p + before;
}

static int sys_mmap(int fd, uint64_t bytes, void **out)
{
        int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
        void *at = fd >= 0 && bytes >= PLAT_HUGE_PAGE ? huge_addresses(bytes) : NULL;
        void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags | (at ? MAP_FIXED : 0), fd, 0);
        if (p == MAP_FAILED) {
                int rc = -errno;
                if (at)
                        (void)munmap(at, bytes);
                return rc;
        }
        /* A mapping keeps the lock of its file, as a descriptor does: children get neither. */
        if (fd >= 0)
                (void)madvise(p, bytes, MADV_DONTFORK);
        *out = p;
        return 0;
}

static int sys_mremap(void *old, uint64_t old_bytes, uint64_t bytes, void **out)
{
        /* The addresses it leaves may be those that another thread gets: ThreadSanitizer follows
         * mmap and munmap, but not this. */
        static char addresses;
        tsan_release(&addresses);
        void *p = mremap(old, old_bytes, bytes, 0);
        bool huge = bytes >= PLAT_HUGE_PAGE && (uintptr_t)old % PLAT_HUGE_PAGE == 0;
        void *at = p == MAP_FAILED && huge ? huge_addresses(bytes) : NULL;
        if (p == MAP_FAILED)
                p = mremap(old, old_bytes, bytes, MREMAP_MAYMOVE | (at ? MREMAP_FIXED : 0), at);
        tsan_acquire(&addresses);
        if (p == MAP_FAILED) {
                int rc = -errno;
                if (at)
                        (void)munmap(at, bytes);
                return rc;
        }
        *out = p;
        return 0;
}

static int sys_mmap_over(int fd, uint64_t offset, void *at, uint64_t bytes)
{
        int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
        void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
        return p == MAP_FAILED ? -errno : 0;
}

static int sys_munmap(void *p, uint64_t bytes)
{
        return result(munmap(p, bytes));
}

/* Streaming stores leave the caches to the program and save reading the target: 1.4 times memcpy
 * page by page. Blocks begin at multiples of 64, so the head is always aligned. */
static void sys_store(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
        char *d = to;
        const char *s = from;
        if (((uintptr_t)d & 15) == 0) {
                for (; bytes >= 64; bytes -= 64, d += 64, s += 64) {
                        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
                        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
                        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
                        __m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));
                        _mm_stream_si128((__m128i *)(void *)d, a);
                        _mm_stream_si128((__m128i *)(void *)(d + 16), b);
                        _mm_stream_si128((__m128i *)(void *)(d + 32), c);
                        _mm_stream_si128((__m128i *)(void *)(d + 48), e);
                }
                _mm_sfence();
        }
        memcpy(d, s, bytes);
#else
        memcpy(to, from, bytes);
#endif
}

static int sys_mprotect(void *p, uint64_t bytes, bool writable)
{
        return (int)raw_mprotect((uintptr_t)p, bytes, writable); /* not the program's mprotect */
}

static int sys_madvise_huge(void *p, uint64_t bytes)
{
        return result(madvise(p, bytes, MADV_HUGEPAGE));
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

/* Not by the program's madvise: nothing of the content changes. */
static int sys_madvise_collapse(void *p, uint64_t bytes)
{
        return (int)raw_call(SYS_madvise, (long)(uintptr_t)p, (long)bytes, MADV_COLLAPSE, 0, 0, 0);
}

static int sys_madvise_unused(void *p, uint64_t bytes)
{
        return result(madvise(p, bytes, MADV_DONTNEED));
}

/* Raw: neither is advice on the program's memory. The numbers are of Linux 5.14 and 6.1. */
static int sys_collapse(void *p, uint64_t bytes)
{
        static const long collapse = 25;
        return (int)raw_call(SYS_madvise, (long)(uintptr_t)p, (long)bytes, collapse, 0, 0, 0);
}

static int sys_populate(void *p, uint64_t bytes)
{
        static const long populate_write = 23;
        return (int)raw_call(SYS_madvise, (long)(uintptr_t)p, (long)bytes, populate_write, 0, 0, 0);
}

/* Without privileges only faults of user code may be handled, which is all that is wanted. */
static int sys_userfaultfd(void)
{
        return result((int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
}

static int sys_ioctl(int fd, unsigned long request, void *arg)
{
        return result(ioctl(fd, request, arg));
}

static int sys_thread_start(void *(*fn)(void *arg), void *arg, plat_thread *out)
{
        sigset_t all;
        sigset_t before;
        pthread_t thread;
        /* The program's signals are the program's threads' business; a fault is the thread's own.
         */
        sigfillset(&all);
        sigdelset(&all, SIGSEGV);
        sigdelset(&all, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int rc = pthread_create(&thread, NULL, fn, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (rc == 0)
                *out = thread;
        return -rc;
}

static int sys_thread_join(plat_thread thread)
{
        return -pthread_join(thread, NULL);
}

static void sys_sleep_ns(uint64_t ns)
{
        struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        while (nanosleep(&t, &t) < 0 && errno == EINTR)
                continue;
}

static uint64_t clock_ns(clockid_t clock)
{
        struct timespec t;
        if (clock_gettime(clock, &t) < 0)
                return 0;
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t sys_now_ns(void)
{
        return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t sys_wall_ns(void)
{
        return clock_ns(CLOCK_REALTIME);
}

static int sys_process_id(void)
{
        return getpid();
}

/* A process of another user exists too. */
static int sys_process_exists(int pid)
{
        return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

/* Field 22 of /proc/self/stat: clock ticks from boot to the start. The fields are counted from
 * behind the name, which may hold anything. */
static uint64_t sys_started_ns(void)
{
        uint64_t now = sys_now_ns();
        uint64_t since_boot = clock_ns(CLOCK_BOOTTIME);
        char text[1024];
        FILE *f = fopen("/proc/self/stat", "re");
        size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
        if (f)
                (void)fclose(f);
        text[n] = '\0';
        const char *p = strrchr(text, ')');
        for (int field = 2; p && field < 22; field++) {
                p = strchr(p, ' ');
                p = p ? p + 1 : NULL;
        }
        long ticks = sysconf(_SC_CLK_TCK);
        if (!p || ticks <= 0)
                return now;
        uint64_t started = strtoull(p, NULL, 10) * (UINT64_C(1000000000) / (uint64_t)ticks);
        uint64_t age = since_boot > started ? since_boot - started : 0;
        return now > age ? now - age : 0;
}

static int sys_random(void *buf, size_t bytes)
{
        size_t done = 0;
        while (done < bytes) {
                ssize_t n = getrandom((char *)buf + done, bytes - done, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                done += (size_t)n;
        }
        return 0;
}

static uint64_t sys_memory_bytes(void)
{
        long pages = sysconf(_SC_PHYS_PAGES);
        long page = sysconf(_SC_PAGESIZE);
        return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
}

static uint64_t sys_file_limit(void)
{
        struct rlimit limit;
        if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
                return UINT64_MAX;
        return limit.rlim_cur;
}

const struct plat_calls plat_system = {
        .size = sizeof(struct plat_calls),
        .alloc = sys_alloc,
        .release = sys_release,
        .openat = sys_openat,
        .close = sys_close,
        .fstat = sys_fstat,
        .where = sys_where,
        .ftruncate = sys_ftruncate,
        .fallocate = sys_fallocate,
        .pread = sys_pread,
        .pwrite = sys_pwrite,
        .fdatasync = sys_fdatasync,
        .fsync = sys_fsync,
        .flock = sys_flock,
        .lock_owner = sys_lock_owner,
        .lock_byte = sys_lock_byte,
        .byte_holder = lock_system_holder,
        .rename_new = sys_rename_new,
        .unlink = sys_unlink,
        .append = sys_append,
        .mmap = sys_mmap,
        .mremap = sys_mremap,
        .munmap = sys_munmap,
        .mmap_over = sys_mmap_over,
        .madvise_huge = sys_madvise_huge,
        .madvise_collapse = sys_madvise_collapse,
        .madvise_unused = sys_madvise_unused,
        .populate = sys_populate,
        .collapse = sys_collapse,
        .store = sys_store,
        .pmem_map = pmem_system_map,
        .pmem_store = pmem_system_store,
        .pmem_drain = pmem_system_drain,
        .ring_new = ring_system_new,
        .ring_push = ring_system_push,
        .ring_wait = ring_system_wait,
        .ring_delete = ring_system_delete,
        .mprotect = sys_mprotect,
        .userfaultfd = sys_userfaultfd,
        .ioctl = sys_ioctl,
        .thread_start = sys_thread_start,
        .thread_join = sys_thread_join,
        .port_open = port_system_open,
        .port_receive = port_system_receive,
        .port_send = port_system_send,
        .port_wait = port_system_wait,
        .signal_catch = signal_system_catch,
        .signal_release = signal_system_release,
        .signal_count = signal_system_count,
        .deaf_threads = deaf_system_threads,
        .process_id = sys_process_id,
        .process_exists = sys_process_exists,
        .started_ns = sys_started_ns,
        .sleep_ns = sys_sleep_ns,
        .now_ns = sys_now_ns,
        .wall_ns = sys_wall_ns,
        .random = sys_random,
        .memory_bytes = sys_memory_bytes,
        .memory_free = memory_system_free,
        .memory_resident = memory_system_resident,
        .file_limit = sys_file_limit,
};
