/* crash_plat.c: the recording call table. */
#include "crash_plat.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#define MAX_FDS   1024
#define MAX_FILES 8
#define MAX_MAPS  8
#define MAX_TAGS  64
#define MAX_RINGS 8
#define MAX_DIRS  2
#define NOT_OURS  (-1)
#define DIRECTORY (-2) /* and below: the number of the directory is DIRECTORY - n */
#define IN_FLIGHT UINT64_MAX

static struct crash_log *log_;
/* Of all below and of the log. Recursive: recorded calls call each other. */
static pthread_mutex_t lock_;
static int file_of[MAX_FDS];
static uint64_t inode_of[MAX_FILES];
static uint64_t size_of[MAX_FILES];
static int file_count;
static uint64_t dir_inode[MAX_DIRS];
static int dir_count;
static struct {
        uint8_t *at;
        uint64_t bytes;
        int file;
        bool pmem;
} maps[MAX_MAPS];
/* Writes of a ring that nobody has waited for yet: event + 1, and the buffer they borrowed. */
static struct ring_writes {
        const struct plat_ring *ring;
        struct {
                size_t event;
                const void *buf;
        } pending[MAX_TAGS];
} rings[MAX_RINGS];

static void lock(void)
{
        CHECK_EQ(pthread_mutex_lock(&lock_), 0);
}

static void unlock(void)
{
        CHECK_EQ(pthread_mutex_unlock(&lock_), 0);
}

/* ---- the log ------------------------------------------------------------------------------- */

static struct crash_event *append(enum crash_kind kind, int file)
{
        if (log_->count == log_->capacity) {
                log_->capacity = log_->capacity ? log_->capacity * 2 : 256;
                log_->events = realloc(log_->events, log_->capacity * sizeof(*log_->events));
                CHECK(log_->events);
        }
        struct crash_event *e = &log_->events[log_->count++];
        memset(e, 0, sizeof(*e));
        e->kind = kind;
        e->file = file;
        e->begun = e->ended = ++log_->clock;
        return e;
}

static struct crash_event *append_write(int file, const void *from, uint64_t bytes, uint64_t offset)
{
        struct crash_event *e = append(CRASH_WRITE, file);
        e->data = malloc(bytes);
        CHECK(e->data);
        memcpy(e->data, from, bytes);
        e->bytes = bytes;
        e->offset = offset;
        if (offset + bytes > size_of[file])
                size_of[file] = offset + bytes;
        return e;
}

static void append_size(int file, uint64_t bytes)
{
        append(CRASH_SIZE, file)->bytes = bytes;
        size_of[file] = bytes;
}

static void append_name(enum crash_kind kind, int file, int dir, const char *from, const char *to)
{
        struct crash_event *e = append(kind, file);
        e->dir = dir;
        snprintf(e->name[0], sizeof(e->name[0]), "%s", from);
        snprintf(e->name[1], sizeof(e->name[1]), "%s", to);
}

void crash_mark(enum crash_kind kind, uint64_t number)
{
        lock();
        append(kind, NOT_OURS)->number = number;
        if (kind == CRASH_BEGIN)
                log_->barriers = 0;
        unlock();
}

/* ---- files --------------------------------------------------------------------------------- */

static int ours(int fd)
{
        return fd >= 0 && fd < MAX_FDS ? file_of[fd] : NOT_OURS;
}

/* The number of the directory, -1 if it is none. */
static int dir_of(int fd)
{
        return ours(fd) <= DIRECTORY ? DIRECTORY - ours(fd) : -1;
}

static int find_dir(int fd)
{
        struct plat_stat st;
        CHECK_EQ(plat_system.fstat(fd, &st), 0);
        int dir = 0;
        while (dir < dir_count && dir_inode[dir] != st.inode)
                dir++;
        if (dir == dir_count) {
                CHECK(dir < MAX_DIRS);
                dir_inode[dir_count++] = st.inode;
        }
        return dir;
}

static void note_opened(int dir, const char *name, int flags, int fd)
{
        CHECK(fd < MAX_FDS);
        file_of[fd] = flags & O_DIRECTORY ? DIRECTORY - find_dir(fd) : NOT_OURS;
        if (dir_of(dir) < 0)
                return;
        struct plat_stat st;
        CHECK_EQ(plat_system.fstat(fd, &st), 0);
        int file = 0;
        while (file < file_count && inode_of[file] != st.inode)
                file++;
        if (file == file_count) {
                CHECK(file < MAX_FILES);
                CHECK(flags & O_CREAT); /* recording begins with an empty directory */
                inode_of[file_count++] = st.inode;
                size_of[file] = 0;
                append_name(CRASH_CREATE, file, dir_of(dir), name, "");
        }
        file_of[fd] = file;
}

static int rec_openat(int dir, const char *name, int flags, unsigned mode)
{
        int fd = plat_system.openat(dir, name, flags, mode);
        lock();
        if (fd >= 0)
                note_opened(dir, name, flags, fd);
        unlock();
        return fd;
}

static int rec_close(int fd)
{
        lock();
        if (fd >= 0 && fd < MAX_FDS)
                file_of[fd] = NOT_OURS;
        unlock();
        return plat_system.close(fd);
}

static int rec_ftruncate(int fd, uint64_t bytes)
{
        int rc = plat_system.ftruncate(fd, bytes);
        lock();
        if (rc == 0 && ours(fd) >= 0)
                append_size(ours(fd), bytes);
        unlock();
        return rc;
}

static int rec_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        int rc = plat_system.fallocate(fd, offset, bytes);
        lock();
        if (rc == 0 && ours(fd) >= 0 && offset + bytes > size_of[ours(fd)])
                append_size(ours(fd), offset + bytes);
        unlock();
        return rc;
}

static int64_t rec_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        int64_t n = plat_system.pwrite(fd, buf, bytes, offset);
        lock();
        if (n > 0 && ours(fd) >= 0)
                append_write(ours(fd), buf, (uint64_t)n, offset);
        unlock();
        return n;
}

static int barrier(int fd)
{
        lock();
        if (dir_of(fd) >= 0)
                append(CRASH_DIR_BARRIER, DIRECTORY)->dir = dir_of(fd);
        else if (ours(fd) >= 0)
                append(CRASH_BARRIER, ours(fd))->ordinal = ++log_->barriers;
        unlock();
        return 0;
}

static int rec_rename_new(int dir, const char *from, const char *to)
{
        int rc = plat_system.rename_new(dir, from, to);
        lock();
        if (rc == 0)
                append_name(CRASH_RENAME, DIRECTORY, dir_of(dir), from, to);
        unlock();
        return rc;
}

static int rec_unlink(int dir, const char *name)
{
        int rc = plat_system.unlink(dir, name);
        lock();
        if (rc == 0)
                append_name(CRASH_UNLINK, DIRECTORY, dir_of(dir), name, "");
        unlock();
        return rc;
}

/* ---- mappings ------------------------------------------------------------------------------ */

static int find_map(const void *p)
{
        for (int i = 0; i < MAX_MAPS; i++)
                if (maps[i].at && (const uint8_t *)p >= maps[i].at &&
                    (const uint8_t *)p < maps[i].at + maps[i].bytes)
                        return i;
        return -1;
}

static int rec_mmap(int fd, uint64_t bytes, void **out)
{
        int rc = plat_system.mmap(fd, bytes, out);
        lock();
        int i = 0;
        bool ours_here = rc == 0 && ours(fd) >= 0;
        while (ours_here && maps[i].at)
                CHECK(++i < MAX_MAPS);
        if (ours_here) {
                maps[i].at = *out;
                maps[i].bytes = bytes;
                maps[i].file = ours(fd);
                maps[i].pmem = false;
        }
        unlock();
        return rc;
}

/* A file like any other, taken for persistent memory; or no file is, wherever the test runs. */
static int rec_pmem_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out)
{
        (void)pmem;
        if (!log_->pmem)
                return -EOPNOTSUPP;
        lock();
        int rc = rec_mmap(fd, bytes, out);
        if (rc == 0)
                maps[find_map(*out)].pmem = true;
        unlock();
        return rc;
}

static int rec_mremap(void *old, uint64_t old_bytes, uint64_t bytes, void **out)
{
        lock();
        int i = find_map(old);
        int rc = plat_system.mremap(old, old_bytes, bytes, out);
        if (rc == 0 && i >= 0) {
                maps[i].at = *out;
                maps[i].bytes = bytes;
        }
        unlock();
        return rc;
}

static int rec_munmap(void *p, uint64_t bytes)
{
        lock();
        int i = find_map(p);
        if (i >= 0)
                maps[i].at = NULL;
        unlock();
        return plat_system.munmap(p, bytes);
}

static void rec_store(void *to, const void *from, size_t bytes)
{
        lock();
        int i = find_map(to);
        CHECK(i >= 0 && !maps[i].pmem);
        append_write(maps[i].file, from, bytes, (uint64_t)((uint8_t *)to - maps[i].at));
        unlock();
        plat_system.store(to, from, bytes);
}

/* libpmem2 flushes what it copies, line by line; here all of it is stored first. */
static void rec_pmem_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes)
{
        lock();
        int i = find_map(to);
        CHECK(i >= 0 && maps[i].pmem);
        (void)pmem;
        uint64_t offset = (uint64_t)((uint8_t *)to - maps[i].at);
        append_write(maps[i].file, from, bytes, offset)->kind = CRASH_STORE;
        struct crash_event *flush = append(CRASH_FLUSH, maps[i].file);
        flush->offset = offset;
        flush->bytes = bytes;
        unlock();
        memcpy(to, from, bytes);
}

static void rec_pmem_drain(const struct plat_pmem *pmem)
{
        (void)pmem;
        lock();
        append(CRASH_FENCE, NOT_OURS);
        unlock();
}

/* ---- the ring ------------------------------------------------------------------------------ */

static struct ring_writes *find_ring(const struct plat_ring *ring)
{
        int i = 0;
        while (i < MAX_RINGS && rings[i].ring != ring)
                i++;
        return i < MAX_RINGS ? &rings[i] : NULL;
}

static int rec_ring_new(uint32_t entries, struct plat_ring **out)
{
        int rc = plat_system.ring_new(entries, out);
        lock();
        if (rc == 0) {
                struct ring_writes *w = find_ring(NULL);
                CHECK(w);
                w->ring = *out;
        }
        unlock();
        return rc;
}

static void rec_ring_delete(struct plat_ring *ring)
{
        lock();
        struct ring_writes *w = ring ? find_ring(ring) : NULL;
        if (w)
                memset(w, 0, sizeof(*w));
        unlock();
        plat_system.ring_delete(ring);
}

static int rec_ring_push(struct plat_ring *ring, enum plat_io io, int fd, void *buf, uint32_t bytes,
                         uint64_t offset, uint32_t tag)
{
        int rc = plat_system.ring_push(ring, io, fd, buf, bytes, offset, tag);
        CHECK(tag < MAX_TAGS);
        lock();
        if (rc == 0 && io == PLAT_WRITE && ours(fd) >= 0) {
                struct ring_writes *w = find_ring(ring);
                CHECK(w && w->pending[tag].event == 0); /* one request for a tag at a time */
                append_write(ours(fd), buf, bytes, offset)->ended = IN_FLIGHT;
                w->pending[tag].event = log_->count;
                w->pending[tag].buf = buf;
        }
        unlock();
        return rc;
}

static int rec_ring_wait(struct plat_ring *ring, uint32_t *tag, int *result)
{
        int rc = plat_system.ring_wait(ring, tag, result);
        lock();
        struct ring_writes *w = find_ring(ring);
        if (rc == 0 && w && w->pending[*tag].event) {
                struct crash_event *e = &log_->events[w->pending[*tag].event - 1];
                /* The log has the bytes of the time of the push; the buffer was borrowed and must
                 * still have them. */
                CHECK_MEM(w->pending[*tag].buf, e->data, e->bytes);
                CHECK_EQ(*result, e->bytes);
                e->ended = ++log_->clock;
                w->pending[*tag].event = 0;
        }
        unlock();
        return rc;
}

/* ---- on and off ---------------------------------------------------------------------------- */

static struct plat_calls recording;

void crash_begin(struct crash_log *log)
{
        pthread_mutexattr_t recursive;
        CHECK_EQ(pthread_mutexattr_init(&recursive), 0);
        CHECK_EQ(pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE), 0);
        CHECK_EQ(pthread_mutex_init(&lock_, &recursive), 0);
        CHECK_EQ(pthread_mutexattr_destroy(&recursive), 0);
        log_ = log;
        file_count = dir_count = 0;
        for (int i = 0; i < MAX_FDS; i++)
                file_of[i] = NOT_OURS;
        memset(maps, 0, sizeof(maps));
        memset(rings, 0, sizeof(rings));
        recording = plat_system;
        recording.openat = rec_openat;
        recording.close = rec_close;
        recording.ftruncate = rec_ftruncate;
        recording.fallocate = rec_fallocate;
        recording.pwrite = rec_pwrite;
        recording.fdatasync = barrier;
        recording.fsync = barrier;
        recording.rename_new = rec_rename_new;
        recording.unlink = rec_unlink;
        recording.mmap = rec_mmap;
        recording.mremap = rec_mremap;
        recording.munmap = rec_munmap;
        recording.store = rec_store;
        recording.pmem_map = rec_pmem_map;
        recording.pmem_store = rec_pmem_store;
        recording.pmem_drain = rec_pmem_drain;
        recording.ring_new = rec_ring_new;
        recording.ring_delete = rec_ring_delete;
        recording.ring_push = rec_ring_push;
        recording.ring_wait = rec_ring_wait;
        plat = &recording;
}

void crash_end(void)
{
        plat = &plat_system;
        CHECK_EQ(pthread_mutex_destroy(&lock_), 0);
}

void crash_log_clear(struct crash_log *log)
{
        for (size_t i = 0; i < log->count; i++)
                free(log->events[i].data);
        free(log->events);
        memset(log, 0, sizeof(*log));
}
