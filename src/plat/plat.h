/* plat: the one seam to the operating system.
 *
 * Every system call and every allocation of the library goes through the table `plat`. Tests
 * replace the pointer to fail the n-th call, to record writes, or to stop at a named point; nothing
 * else ever does. Functions return a value >= 0 or -errno; they set no error text, since only the
 * caller knows the object.
 */
#ifndef BELAY_PLAT_H
#define BELAY_PLAT_H

#include "base/base.h"

#define PLAT_PAGE      4096u
#define PLAT_HUGE_PAGE (2u << 20)

struct plat_stat {
        uint64_t bytes;
        uint64_t allocated; /* bytes that have a place on the medium */
        uint64_t room;      /* bytes that the file system has left; UINT64_MAX: it has no size */
        uint64_t device, inode;
        uint32_t mode;
        bool own; /* belongs to the user this process acts as */
        bool regular;
        bool in_memory; /* tmpfs, ramfs, hugetlbfs: stores are as fast as the medium gets */
        bool dax;       /* a mapping of the file is the medium itself: persistent memory   */
};

typedef unsigned long plat_thread; /* a pthread_t */
struct plat_ring;                  /* an io_uring */
enum plat_io { PLAT_READ, PLAT_WRITE };
enum plat_lock { PLAT_UNLOCK, PLAT_LOCK_SHARED, PLAT_LOCK_EXCLUSIVE };
enum plat_where { PLAT_HERE, PLAT_ANOTHER, PLAT_NOTHING, PLAT_DELETED };

/* How bytes get into persistent memory; from libpmem2. */
struct plat_pmem {
        void *(*copy)(void *to, const void *from, size_t bytes, unsigned flags);
        void (*drain)(void);
};

/* Another process of this machine, as datagrams see it. */
struct plat_peer {
        char name[108]; /* of its socket; begins with a zero byte */
        uint32_t bytes; /* of the name                            */
        int pid;        /* the kernel vouches for it              */
};
/* The peer with this name; 0 as pid. */
void peer_named(const char *name, struct plat_peer *out);

struct plat_calls {
        size_t size; /* sizeof(struct plat_calls) */

        void *(*alloc)(size_t bytes); /* zeroed and page-aligned from one page on, NULL when out of
                                         memory */
        void (*release)(void *p);

        /* Names are relative to the directory `dir`, PLAT_CWD for none. */
        int (*openat)(int dir, const char *name, int flags, unsigned mode);
        int (*close)(int fd);
        int (*fstat)(int fd, struct plat_stat *out);
        /* Is an open file still under its name, and how long is it? PLAT_HERE; PLAT_ANOTHER:
         * another file is; PLAT_NOTHING: none is; PLAT_DELETED: it has no name at all any more.
         * Without a name (NULL) only the last is looked for. */
        int (*where)(int fd, int dir, const char *name, uint64_t *bytes);
        int (*ftruncate)(int fd, uint64_t bytes);
        int (*fallocate)(int fd, uint64_t offset, uint64_t bytes);
        int64_t (*pread)(int fd, void *buf, size_t bytes, uint64_t offset);
        int64_t (*pwrite)(int fd, const void *buf, size_t bytes, uint64_t offset);
        int (*fdatasync)(int fd);
        int (*fsync)(int fd);
        int (*flock)(int fd);      /* exclusive, without waiting */
        int (*lock_owner)(int fd); /* pid of a process that holds the lock, 0 if unknown */
        /* Locks one byte of the file, which need not exist, or gives it back; never waits. The lock
         * belongs to what open() made: it ends with the last descriptor of that, and two of one
         * process are strangers. -EAGAIN if somebody else's lock stands against it. */
        int (*lock_byte)(int fd, uint64_t offset, enum plat_lock how);
        /* pid of a process with such a lock, 0 if unknown. Slow, for the text of an error. */
        int (*byte_holder)(int fd, uint64_t offset);
        int (*rename_new)(int dir, const char *from, const char *to); /* -EEXIST if `to` exists */
        int (*unlink)(int dir, const char *name);
        int64_t (*append)(int fd, const void *buf, size_t bytes); /* at the end of the file */

        /* fd -1 maps fresh zeroed memory; else the file, shared, but not with children, and if it
         * is long enough for huge pages at an address that they need. mremap keeps to that. */
        int (*mmap)(int fd, uint64_t bytes, void **out);
        int (*mremap)(void *old, uint64_t old_bytes, uint64_t bytes, void **out); /* may move */
        int (*munmap)(void *p, uint64_t bytes);
        /* In place of what is at `at`: a part of a file, private to the process; fd -1: zeros. */
        int (*mmap_over)(int fd, uint64_t offset, void *at, uint64_t bytes);
        /* Fewer, larger pages for fresh memory; where the kernel does not give them nothing is
         * lost. */
        int (*madvise_huge)(void *p, uint64_t bytes);
        /* Small pages that are there are copied into huge ones, now. -EINVAL where that cannot be,
         * -EAGAIN, -EBUSY, -ENOMEM where it cannot be now. */
        int (*madvise_collapse)(void *p, uint64_t bytes);
        /* Gives the pages back; the mapping stays. */
        int (*madvise_unused)(void *p, uint64_t bytes);
        /* Gives every page of a shared mapping its memory, writable, so that a store there is no
         * fault. -EINVAL where the kernel cannot; -EFAULT where the file has no page, which is no
         * signal here. */
        int (*populate)(void *p, uint64_t bytes);
        /* Makes huge pages of a shared mapping of a file in memory, holes included; each of them
         * must have a page already. p and bytes are multiples of PLAT_HUGE_PAGE. */
        int (*collapse)(void *p, uint64_t bytes);
        /* Copies into mapped media, past the caches for large pieces. */
        void (*store)(void *to, const void *from, size_t bytes);

        /* Maps a file that is persistent memory, and finds how to store into it. -EOPNOTSUPP where
         * it is not, -ENOSYS where libpmem2 is missing. mremap and munmap as for mmap. */
        int (*pmem_map)(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out);
        /* Copies and flushes: durable, and before whatever is stored later, once the same thread
         * has drained. Neither allocates nor takes a lock. */
        void (*pmem_store)(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes);
        void (*pmem_drain)(const struct plat_pmem *pmem);

        /* -ENOSYS when io_uring is not to be had. A request's buffer is borrowed until ring_wait
         * returns its tag. */
        int (*ring_new)(unsigned depth, struct plat_ring **out);
        int (*ring_push)(struct plat_ring *ring, enum plat_io io, int fd, void *buf, uint32_t bytes,
                         uint64_t offset, uint32_t tag);
        int (*ring_wait)(struct plat_ring *ring, uint32_t *tag, int *result);
        void (*ring_delete)(struct plat_ring *ring);

        int (*mprotect)(void *p, uint64_t bytes, bool writable);
        int (*userfaultfd)(void); /* of this user's own memory and faults only */
        int (*ioctl)(int fd, unsigned long request, void *arg);
        int (*thread_start)(void *(*fn)(void *arg), void *arg, plat_thread *out);
        int (*thread_join)(plat_thread thread);

        /* Datagrams. Never wait, but for port_wait: 1 if there is something to receive. `as` NULL:
         * any name. port_receive: -EAGAIN if there is nothing, -EPERM for a datagram of somebody
         * who may not send this process signals; `from` is set then too. */
        int (*port_open)(const struct plat_peer *as);
        int64_t (*port_receive)(int fd, void *buf, size_t bytes, struct plat_peer *from);
        int (*port_send)(int fd, const struct plat_peer *to, const void *buf, size_t bytes);
        int (*port_wait)(int fd, uint64_t timeout_ms);

        /* Signals that are counted, by their place among the words of the option `signal`; the
         * handler before is called too. Each catch has its release. */
        int (*signal_catch)(unsigned kind);
        void (*signal_release)(unsigned kind);
        uint32_t (*signal_count)(unsigned kind);

        /* Threads of this process that block SIGSEGV or SIGBUS: how many. */
        int (*deaf_threads)(void);

        int (*process_id)(void);
        int (*process_exists)(int pid); /* 1, 0 */
        uint64_t (*started_ns)(void);   /* when this process began, on the clock of now_ns */
        void (*sleep_ns)(uint64_t ns);
        uint64_t (*now_ns)(void);  /* monotonic */
        uint64_t (*wall_ns)(void); /* since 1970 UTC */
        int (*random)(void *buf, size_t bytes);
        uint64_t (*memory_bytes)(void);    /* of the machine */
        uint64_t (*memory_free)(void);     /* that this process may still take; memory.c */
        uint64_t (*memory_resident)(void); /* that it has, mapped files included */
        uint64_t (*file_limit)(
                void); /* largest file this process may write; beyond it is a signal */
};
#define PLAT_CWD (-100) /* AT_FDCWD */

extern const struct plat_calls *plat;
extern const struct plat_calls plat_system; /* the real one */

/* The program's calls pass through src/wrap/: set there when the library is loaded. */
extern bool plat_before_libc;

/* A place in the commit where tests stop, kill or look. Free when no hook is set. */
extern void (*plat_point_hook)(const char *name);
static inline void plat_point(const char *name)
{
        if (plat_point_hook)
                plat_point_hook(name);
}

/* ---- budget: allocation with a hard limit ---------------------------------------------------- */

/* Counted atomically: the flusher gives back what a program thread took. */
struct budget {
        uint64_t limit;
        _Atomic uint64_t used, peak;
};
/* NULL when the limit or the machine's memory is exhausted, with text: `what` names the purpose. */
void *budget_alloc(struct budget *b, uint64_t bytes, const char *what);
/* Keeps the first min(old, new) bytes; NULL leaves the old one alone. `p` may be NULL. */
void *budget_resize(struct budget *b, void *p, uint64_t bytes, const char *what);
void budget_free(struct budget *b, void *p);
/* Memory that is not allocated through the budget but counts against it. */
int budget_charge(struct budget *b, uint64_t bytes, const char *what);
void budget_refund(struct budget *b, uint64_t bytes);

/* Pieces of one size, of which there may be very many. Any thread. All must have been given back
 * before the shelf is closed. */
struct shelf {
        struct budget *budget;
        uint64_t bytes; /* of a piece */
        struct board *with_room;
        pthread_mutex_t lock;
};
void shelf_init(struct shelf *s, struct budget *budget, uint64_t bytes);
void shelf_close(struct shelf *s);
/* A piece of zeros, aligned to 8; NULL as with budget_alloc. */
void *shelf_take(struct shelf *s, const char *what);
void shelf_give(struct shelf *s, void *p);

/* memory_free, with `root` before all names of files; for tests. */
uint64_t memory_free_below(const char *root);

/* ---- whole reads and writes ------------------------------------------------------------------ */

/* Loop over short transfers. plat_read_full returns the bytes read, fewer only at the end of the
 * file. */
int64_t plat_read_full(int fd, void *buf, size_t bytes, uint64_t offset);
int plat_write_full(int fd, const void *buf, size_t bytes, uint64_t offset);

/* ---- write tracking in the kernel ---------------------------------------------------------------
 */

/* A userfaultfd and /proc/self/pagemap. A range belongs to one userfaultfd only. */
struct plat_track {
        int uffd, pagemap;
};
struct plat_range {
        uint64_t start, end, categories;
};
/* async: the kernel lets a write through and remembers it. Otherwise a write to a protected page is
 * a SIGBUS in the writing thread. */
int track_open(struct plat_track *t, bool async);
void track_close(struct plat_track *t);
int track_add(const struct plat_track *t, const void *p, uint64_t bytes);
int track_remove(const struct plat_track *t, const void *p, uint64_t bytes);
/* Ranges of pages written since they were last reset, from *at on; *at becomes where to go on. With
 * reset they begin anew. Returns how many ranges were stored; the end is reached when *at is p +
 * bytes. */
int track_scan(const struct plat_track *t, const void *p, uint64_t bytes, bool reset, uint64_t *at,
               struct plat_range *ranges, uint32_t room);
/* Is there a huge page at this address? */
bool track_is_huge(const struct plat_track *t, uintptr_t address);
/* Does the huge page at this address, a multiple of its size, consist of small ones that are all there,
 * private to this process and not protected? Then nothing is added if they become one. */
bool track_is_full(const struct plat_track *t, uintptr_t address);
/* Forgets that pages were written. */
int track_reset(const struct plat_track *t, const void *p, uint64_t bytes);
/* For a tracker that is not async. */
int track_protect(const struct plat_track *t, const void *p, uint64_t bytes, bool on);

/* ---- raw calls, for the signal zone -------------------------------------------------------------
 */

/* No libc, no errno, no locks: safe in a fault handler. Results are >= 0 or -errno. */
long raw_call(long number, long a, long b, long c, long d, long e, long f);
#if !defined(__x86_64__)
extern long (*raw_syscall)(long number, ...); /* libc's; src/wrap/ puts its own before it */
#endif
long raw_futex_wait(const void *word, uint32_t expected, uint64_t timeout_ns);
long raw_futex_wake(const void *word, int count);
long raw_mprotect(uintptr_t p, uint64_t bytes, bool writable);
long raw_ioctl(int fd, unsigned long request, void *arg);
/* No signal is taken by this thread but those of faults; returns what raw_restore_signals needs. */
uint64_t raw_block_signals(void);
void raw_restore_signals(uint64_t before);
uint64_t raw_now_ns(void);
/* Lets writes to pages through again that track_protect protected. */
long raw_unprotect(int uffd, uintptr_t p, uint64_t bytes);

/* Makes `resolve` the first to hear of write faults (SIGSEGV, or with `bus` SIGBUS): true means
 * that the write may be repeated. Others go to whoever handled them before. To be repeated now and
 * then, in case the program has installed a handler of its own. Not safe against itself: the caller
 * holds a lock.
 */
int faults_catch(bool (*resolve)(uintptr_t address, bool bus));
/* Between the two calls, stores of this thread to [p, p + bytes), a mapped file, do not end the
 * program where the file has no page; unguard is true if there were any: what was stored is lost
 * then, and the mapping shows memory of this process there. Needs faults_catch_lost, repeated now
 * and then as above; any thread. */
void faults_guard(const void *p, uint64_t bytes);
bool faults_unguard(void);
int faults_catch_lost(void);
/* sigaction() for SIGSEGV and SIGBUS as the program means it: about what comes after `resolve`.
 * Thread-safe, and safe in a signal handler. */
struct sigaction;
int faults_change(int number, const struct sigaction *act, struct sigaction *old);
/* How the action of the process itself is set; to be replaced where sigaction() leads to
 * faults_change. */
typedef int sigaction_call(int number, const struct sigaction *restrict act,
                           struct sigaction *restrict old);
extern sigaction_call *faults_sigaction;
/* The two, as the kernel writes a set of signals. */
#define FAULT_SIGNALS (UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGBUS - 1))

/* ---- children ----------------------------------------------------------------------------------
 */

/* A child of fork() shares descriptors, and with them locks that should end with its parent: these
 * are closed in it. */
void plat_close_in_children(int a, int b);
void plat_forget_descriptors(int a, int b);
/* A page of zeros that is empty again in every child with memory of its own; NULL: not to be had.
 */
void *plat_page_of_this_process(void);

/* ---- kernel probe ---------------------------------------------------------------------------- */

enum probe_id {
        PROBE_IO_URING,
        PROBE_O_DIRECT,
        PROBE_FALLOCATE,
        PROBE_UFFD_WP_ASYNC,
        PROBE_PAGEMAP_SCAN,
        PROBE_UFFD_SIGBUS,
        PROBE_PMEM,
        PROBE_COUNT
};
struct probe {
        const char *name, *help;
        bool present, masked;
};
/* Features found by effect, once per process; `mask` is a list of names, separated by commas, to be
 * reported as absent. -EINVAL for a name that does not exist. */
int probe_check(const char *mask, struct probe out[PROBE_COUNT]);
bool probe_has(const struct probe probes[PROBE_COUNT], enum probe_id id);

#endif
