/* crash_plat.c: the recording call table. */
#include "crash_plat.h"
#include "check.h"
#include <errno.h>
#include <fcntl.h>

#define MAX_FDS   1024
#define MAX_FILES 8
#define MAX_MAPS  8
#define MAX_TAGS  64
#define NOT_OURS  (-1)
#define DIRECTORY (-2)
#define IN_FLIGHT UINT64_MAX

static struct crash_log *log_;
static int file_of[MAX_FDS];
static uint64_t inode_of[MAX_FILES];
static uint64_t size_of[MAX_FILES];
static int file_count;
static struct {
        uint8_t *at;
        uint64_t bytes;
        int file;
        bool pmem;
} maps[MAX_MAPS];
/* Writes of the ring that nobody has waited for yet: event + 1, and the buffer they borrowed. */
static struct {
        size_t event;
        const void *buf;
} pending[MAX_TAGS];

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

static void append_name(enum crash_kind kind, int file, const char *from, const char *to)
{
        struct crash_event *e = append(kind, file);
        snprintf(e->name[0], sizeof(e->name[0]), "%s", from);
        snprintf(e->name[1], sizeof(e->name[1]), "%s", to);
}

void crash_mark(enum crash_kind kind, uint64_t number)
{
        append(kind, NOT_OURS)->number = number;
        if (kind == CRASH_BEGIN)
                log_->barriers = 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static int ours(int fd)
{
        return fd >= 0 && fd < MAX_FDS ? file_of[fd] : NOT_OURS;
}

static int rec_openat(int dir, const char *name, int flags, unsigned mode)
{
        int fd = plat_system.openat(dir, name, flags, mode);
        if (fd < 0)
                return fd;
        CHECK(fd < MAX_FDS);
        file_of[fd] = flags & O_DIRECTORY ? DIRECTORY : NOT_OURS;
        if (dir < 0 || ours(dir) != DIRECTORY)
                return fd;
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
                append_name(CRASH_CREATE, file, name, "");
        }
        file_of[fd] = file;
        return fd;
}

static int rec_close(int fd)
{
        if (fd >= 0 && fd < MAX_FDS)
                file_of[fd] = NOT_OURS;
        return plat_system.close(fd);
}

static int rec_ftruncate(int fd, uint64_t bytes)
{
        int rc = plat_system.ftruncate(fd, bytes);
        if (rc == 0 && ours(fd) >= 0)
                append_size(ours(fd), bytes);
        return rc;
}

static int rec_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        int rc = plat_system.fallocate(fd, offset, bytes);
        if (rc == 0 && ours(fd) >= 0 && offset + bytes > size_of[ours(fd)])
                append_size(ours(fd), offset + bytes);
        return rc;
}

static int64_t rec_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        int64_t n = plat_system.pwrite(fd, buf, bytes, offset);
        if (n > 0 && ours(fd) >= 0)
                append_write(ours(fd), buf, (uint64_t)n, offset);
        return n;
}

static int barrier(int fd)
{
        if (ours(fd) == DIRECTORY)
                append(CRASH_DIR_BARRIER, DIRECTORY);
        else if (ours(fd) >= 0)
                append(CRASH_BARRIER, ours(fd))->ordinal = ++log_->barriers;
        return 0;
}

static int rec_rename_new(int dir, const char *from, const char *to)
{
        int rc = plat_system.rename_new(dir, from, to);
        if (rc == 0)
                append_name(CRASH_RENAME, DIRECTORY, from, to);
        return rc;
}

static int rec_unlink(int dir, const char *name)
{
        int rc = plat_system.unlink(dir, name);
        if (rc == 0)
                append_name(CRASH_UNLINK, DIRECTORY, name, "");
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
        if (rc || ours(fd) < 0)
                return rc;
        int i = 0;
        while (maps[i].at)
                CHECK(++i < MAX_MAPS);
        maps[i].at = *out;
        maps[i].bytes = bytes;
        maps[i].file = ours(fd);
        maps[i].pmem = false;
        return 0;
}

/* A file like any other, taken for persistent memory; or no file is, wherever the test runs. */
static int rec_pmem_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out)
{
        (void)pmem;
        if (!log_->pmem)
                return -EOPNOTSUPP;
        int rc = rec_mmap(fd, bytes, out);
        if (rc == 0)
                maps[find_map(*out)].pmem = true;
        return rc;
}

static int rec_mremap(void *old, uint64_t old_bytes, uint64_t bytes, void **out)
{
        int i = find_map(old);
        int rc = plat_system.mremap(old, old_bytes, bytes, out);
        if (rc == 0 && i >= 0) {
                maps[i].at = *out;
                maps[i].bytes = bytes;
        }
        return rc;
}

static int rec_munmap(void *p, uint64_t bytes)
{
        int i = find_map(p);
        if (i >= 0)
                maps[i].at = NULL;
        return plat_system.munmap(p, bytes);
}

static void rec_store(void *to, const void *from, size_t bytes)
{
        int i = find_map(to);
        CHECK(i >= 0 && !maps[i].pmem);
        append_write(maps[i].file, from, bytes, (uint64_t)((uint8_t *)to - maps[i].at));
        plat_system.store(to, from, bytes);
}

/* libpmem2 flushes what it copies, line by line; here all of it is stored first. */
static void rec_pmem_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes)
{
        int i = find_map(to);
        CHECK(i >= 0 && maps[i].pmem);
        (void)pmem;
        uint64_t offset = (uint64_t)((uint8_t *)to - maps[i].at);
        append_write(maps[i].file, from, bytes, offset)->kind = CRASH_STORE;
        struct crash_event *flush = append(CRASH_FLUSH, maps[i].file);
        flush->offset = offset;
        flush->bytes = bytes;
        memcpy(to, from, bytes);
}

static void rec_pmem_drain(const struct plat_pmem *pmem)
{
        (void)pmem;
        append(CRASH_FENCE, NOT_OURS);
}

/* ---- the ring ------------------------------------------------------------------------------ */

static int rec_ring_push(struct plat_ring *ring, enum plat_io io, int fd, void *buf, uint32_t bytes,
                         uint64_t offset, uint32_t tag)
{
        int rc = plat_system.ring_push(ring, io, fd, buf, bytes, offset, tag);
        CHECK(tag < MAX_TAGS);
        if (rc || io != PLAT_WRITE || ours(fd) < 0)
                return rc;
        CHECK(pending[tag].event == 0); /* one request for a tag at a time */
        append_write(ours(fd), buf, bytes, offset)->ended = IN_FLIGHT;
        pending[tag].event = log_->count;
        pending[tag].buf = buf;
        return 0;
}

static int rec_ring_wait(struct plat_ring *ring, uint32_t *tag, int *result)
{
        int rc = plat_system.ring_wait(ring, tag, result);
        if (rc || pending[*tag].event == 0)
                return rc;
        struct crash_event *e = &log_->events[pending[*tag].event - 1];
        /* The log has the bytes of the time of the push; the buffer was borrowed and must still
         * have them. */
        CHECK_MEM(pending[*tag].buf, e->data, e->bytes);
        CHECK_EQ(*result, e->bytes);
        e->ended = ++log_->clock;
        pending[*tag].event = 0;
        return 0;
}

/* ---- on and off ---------------------------------------------------------------------------- */

static struct plat_calls recording;

void crash_begin(struct crash_log *log)
{
        log_ = log;
        file_count = 0;
        for (int i = 0; i < MAX_FDS; i++)
                file_of[i] = NOT_OURS;
        memset(maps, 0, sizeof(maps));
        memset(pending, 0, sizeof(pending));
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
        recording.ring_push = rec_ring_push;
        recording.ring_wait = rec_ring_wait;
        plat = &recording;
}

void crash_end(void)
{
        plat = &plat_system;
}

void crash_log_clear(struct crash_log *log)
{
        for (size_t i = 0; i < log->count; i++)
                free(log->events[i].data);
        free(log->events);
        memset(log, 0, sizeof(*log));
}
