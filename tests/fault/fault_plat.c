/* fault_plat.c: the faulty call table. */
#include "fault_plat.h"
#include "check.h"
#include <errno.h>

#define MAX_CALLS    65536
#define MAX_TAGS     64
#define MAX_TRANSFER (1u << 20)

static const struct {
        const char *name;
        unsigned count;
        struct fault_way ways[6];
} calls[FAULT_CALLS] = {
        [FAULT_ALLOC] = {"alloc", 1, {{"ENOMEM", -ENOMEM, false, false, false}}},
        [FAULT_OPENAT] = {"openat",
                          2,
                          {{"EMFILE", -EMFILE, false, false, false},
                           {"EACCES", -EACCES, false, false, false}}},
        [FAULT_CLOSE] = {"close", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_FSTAT] = {"fstat", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_WHERE] = {"where", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_FTRUNCATE] = {"ftruncate",
                             2,
                             {{"EIO", -EIO, false, false, false},
                              {"EFBIG", -EFBIG, false, false, false}}},
        [FAULT_FALLOCATE] = {"fallocate",
                             3,
                             {{"ENOSPC", -ENOSPC, false, false, false},
                              {"EIO", -EIO, false, false, false},
                              {"EOPNOTSUPP", -EOPNOTSUPP, false, false, true}}},
        [FAULT_PREAD] = {"pread",
                         2,
                         {{"EIO", -EIO, false, false, false}, {"half", 0, false, true, false}}},
        [FAULT_PWRITE] = {"pwrite",
                          3,
                          {{"EIO", -EIO, false, false, false},
                           {"ENOSPC", -ENOSPC, false, false, false},
                           {"half", 0, false, true, false}}},
        [FAULT_FDATASYNC] = {"fdatasync",
                             2,
                             {{"EIO", -EIO, false, false, false},
                              {"EDQUOT", -EDQUOT, false, false, false}}},
        [FAULT_FSYNC] = {"fsync", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_FLOCK] = {"flock",
                         2,
                         {{"ENOLCK", -ENOLCK, false, false, false},
                          {"EWOULDBLOCK", -EWOULDBLOCK, false, false, false}}},
        [FAULT_LOCK_BYTE] = {"lock_byte",
                             2,
                             {{"ENOLCK", -ENOLCK, false, false, false},
                              {"EAGAIN", -EAGAIN, false, false, false}}},
        [FAULT_RENAME] = {"rename", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_UNLINK] = {"unlink", 1, {{"EIO", -EIO, false, false, false}}},
        [FAULT_MMAP] = {"mmap", 1, {{"ENOMEM", -ENOMEM, false, false, false}}},
        [FAULT_MREMAP] = {"mremap", 1, {{"ENOMEM", -ENOMEM, false, false, false}}},
        [FAULT_MUNMAP] = {"munmap", 1, {{"ENOMEM", -ENOMEM, false, false, false}}},
        [FAULT_RING_NEW] = {"ring_new",
                            2,
                            {{"ENOMEM", -ENOMEM, false, false, false},
                             {"ENOSYS", -ENOSYS, false, false, false}}},
        [FAULT_RING_PUSH] = {"ring_push", 1, {{"EBUSY", -EBUSY, false, false, false}}},
        [FAULT_RING_WAIT] = {"ring_wait",
                             6,
                             {{"EIO", -EIO, true, false, false},
                              {"nothing", 0, true, false, false},
                              {"half", 0, true, true, false},
                              {"EAGAIN", -EAGAIN, true, false, true},
                              {"EINTR", -EINTR, true, false, true},
                              {"unknown", -EBADF, false, false, false}}},
        [FAULT_RANDOM] = {"random", 1, {{"EIO", -EIO, false, false, false}}},
};

static const struct plat_calls *base;
static struct plat_calls faulty;
static struct fault_plan plan;
static bool armed;
static uint64_t count, hits, live;
static enum fault_call first_kind;
static const struct fault_way *first;
static bool gets_over; /* the first failure cut a transfer where it can go on */
static uint8_t trace[MAX_CALLS];

/* ---- which call fails ------------------------------------------------------------------------ */

/* The way in which this call fails, NULL if it does not. */
static const struct fault_way *next_call(enum fault_call kind)
{
        if (!armed)
                return NULL;
        if (count < MAX_CALLS)
                trace[count] = (uint8_t)kind;
        count++;
        if (plan.at == 0 || count < plan.at || (plan.mode == FAULT_ONCE && count > plan.at))
                return NULL;
        if (count == plan.at)
                first_kind = kind;
        if (plan.mode == FAULT_KIND && kind != first_kind)
                return NULL;
        hits++;
        const struct fault_way *way = &calls[kind].ways[plan.way % calls[kind].count];
        if (!first)
                first = way;
        return way;
}

/* As a file system would cut a transfer: at a page where there is more than one. */
static uint64_t half_of(uint64_t bytes)
{
        gets_over |= hits == 1 && bytes >= 2 * PLAT_PAGE;
        return bytes >= 2 * PLAT_PAGE ? bytes / 2 / PLAT_PAGE * PLAT_PAGE : bytes / 2;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void *faulty_alloc(size_t bytes)
{
        if (next_call(FAULT_ALLOC))
                return NULL;
        void *p = base->alloc(bytes);
        live += p != NULL;
        return p;
}

static void faulty_release(void *p)
{
        live -= p != NULL;
        base->release(p);
}

static int faulty_openat(int dir, const char *name, int flags, unsigned mode)
{
        const struct fault_way *way = next_call(FAULT_OPENAT);
        return way ? way->code : base->openat(dir, name, flags, mode);
}

/* Linux closes the descriptor whatever close returns. */
static int faulty_close(int fd)
{
        const struct fault_way *way = next_call(FAULT_CLOSE);
        int rc = base->close(fd);
        return way ? way->code : rc;
}

static int faulty_fstat(int fd, struct plat_stat *out)
{
        const struct fault_way *way = next_call(FAULT_FSTAT);
        return way ? way->code : base->fstat(fd, out);
}

static int faulty_where(int fd, int dir, const char *name, uint64_t *bytes)
{
        const struct fault_way *way = next_call(FAULT_WHERE);
        return way ? way->code : base->where(fd, dir, name, bytes);
}

static int faulty_ftruncate(int fd, uint64_t bytes)
{
        const struct fault_way *way = next_call(FAULT_FTRUNCATE);
        return way ? way->code : base->ftruncate(fd, bytes);
}

static int faulty_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        const struct fault_way *way = next_call(FAULT_FALLOCATE);
        return way ? way->code : base->fallocate(fd, offset, bytes);
}

static int64_t faulty_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        const struct fault_way *way = next_call(FAULT_PREAD);
        if (way && !way->half)
                return way->code;
        return base->pread(fd, buf, way ? half_of(bytes) : bytes, offset);
}

static int64_t faulty_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        const struct fault_way *way = next_call(FAULT_PWRITE);
        if (way && !way->half)
                return way->code;
        return base->pwrite(fd, buf, way ? half_of(bytes) : bytes, offset);
}

static int faulty_fdatasync(int fd)
{
        const struct fault_way *way = next_call(FAULT_FDATASYNC);
        return way ? way->code : base->fdatasync(fd);
}

static int faulty_fsync(int fd)
{
        const struct fault_way *way = next_call(FAULT_FSYNC);
        return way ? way->code : base->fsync(fd);
}

static int faulty_flock(int fd)
{
        const struct fault_way *way = next_call(FAULT_FLOCK);
        return way ? way->code : base->flock(fd);
}

static int faulty_lock_byte(int fd, uint64_t offset, enum plat_lock how)
{
        const struct fault_way *way = next_call(FAULT_LOCK_BYTE);
        return way ? way->code : base->lock_byte(fd, offset, how);
}

static int faulty_rename_new(int dir, const char *from, const char *to)
{
        const struct fault_way *way = next_call(FAULT_RENAME);
        return way ? way->code : base->rename_new(dir, from, to);
}

static int faulty_unlink(int dir, const char *name)
{
        const struct fault_way *way = next_call(FAULT_UNLINK);
        return way ? way->code : base->unlink(dir, name);
}

static int faulty_mmap(int fd, uint64_t bytes, void **out)
{
        const struct fault_way *way = next_call(FAULT_MMAP);
        int rc = way ? way->code : base->mmap(fd, bytes, out);
        live += rc == 0;
        return rc;
}

static int faulty_mremap(void *old, uint64_t old_bytes, uint64_t bytes, void **out)
{
        const struct fault_way *way = next_call(FAULT_MREMAP);
        return way ? way->code : base->mremap(old, old_bytes, bytes, out);
}

/* It is done all the same: there is nothing a caller could do about it but not to fall over. */
static int faulty_munmap(void *p, uint64_t bytes)
{
        const struct fault_way *way = next_call(FAULT_MUNMAP);
        int rc = base->munmap(p, bytes);
        live -= rc == 0;
        return way ? way->code : rc;
}

static int faulty_ring_new(unsigned depth, struct plat_ring **out)
{
        const struct fault_way *way = next_call(FAULT_RING_NEW);
        int rc = way ? way->code : base->ring_new(depth, out);
        live += rc == 0;
        return rc;
}

static struct {
        enum plat_io io;
        int fd;
        uint8_t *buf;
        uint64_t offset;
} pushed[MAX_TAGS];

static int faulty_ring_push(struct plat_ring *ring, enum plat_io io, int fd, void *buf,
                            uint32_t bytes, uint64_t offset, uint32_t tag)
{
        const struct fault_way *way = next_call(FAULT_RING_PUSH);
        CHECK(tag < MAX_TAGS);
        pushed[tag].io = io;
        pushed[tag].fd = fd;
        pushed[tag].buf = buf;
        pushed[tag].offset = offset;
        return way ? way->code : base->ring_push(ring, io, fd, buf, bytes, offset, tag);
}

/* The kernel has transferred all of it. So that only half of it counts, what is behind that is
 * spoilt: a caller that does not go on from there is found out. */
static uint32_t spoil_half(uint32_t tag, uint32_t bytes)
{
        static uint8_t spoilt[MAX_TRANSFER] __attribute__((aligned(4096)));
        uint32_t half = (uint32_t)half_of(bytes);
        CHECK(bytes <= sizeof(spoilt));
        memset(spoilt, 0xee, bytes);
        if (pushed[tag].io == PLAT_READ) {
                memcpy(pushed[tag].buf + half, spoilt, bytes - half);
                return half;
        }
        uint64_t at = pushed[tag].offset + half;
        int64_t n = base->pwrite(pushed[tag].fd, spoilt, bytes - half, at);
        if (n == -EINVAL) /* direct: whole pages only, as it must be repeated */
                n = base->pwrite(pushed[tag].fd, spoilt, align_up(bytes - half, PLAT_PAGE),
                                 at / PLAT_PAGE * PLAT_PAGE) -
                    at % PLAT_PAGE;
        CHECK_EQ(n, bytes - half);
        return half;
}

static int faulty_ring_wait(struct plat_ring *ring, uint32_t *tag, int *result)
{
        const struct fault_way *way = next_call(FAULT_RING_WAIT);
        if (way && !way->result)
                return way->code;
        int rc = base->ring_wait(ring, tag, result);
        if (rc == 0 && way && *result > 0)
                *result = way->half ? (int)spoil_half(*tag, (uint32_t)*result) : way->code;
        return rc;
}

static void faulty_ring_delete(struct plat_ring *ring)
{
        live -= ring != NULL;
        base->ring_delete(ring);
}

static int faulty_random(void *buf, size_t bytes)
{
        const struct fault_way *way = next_call(FAULT_RANDOM);
        return way ? way->code : base->random(buf, bytes);
}

/* ---- on and off ---------------------------------------------------------------------------- */

void fault_watch(const struct plat_calls *over)
{
        base = over;
        faulty = *over;
        faulty.alloc = faulty_alloc;
        faulty.release = faulty_release;
        faulty.openat = faulty_openat;
        faulty.close = faulty_close;
        faulty.fstat = faulty_fstat;
        faulty.where = faulty_where;
        faulty.ftruncate = faulty_ftruncate;
        faulty.fallocate = faulty_fallocate;
        faulty.pread = faulty_pread;
        faulty.pwrite = faulty_pwrite;
        faulty.fdatasync = faulty_fdatasync;
        faulty.fsync = faulty_fsync;
        faulty.flock = faulty_flock;
        faulty.lock_byte = faulty_lock_byte;
        faulty.rename_new = faulty_rename_new;
        faulty.unlink = faulty_unlink;
        faulty.mmap = faulty_mmap;
        faulty.mremap = faulty_mremap;
        faulty.munmap = faulty_munmap;
        faulty.ring_new = faulty_ring_new;
        faulty.ring_push = faulty_ring_push;
        faulty.ring_wait = faulty_ring_wait;
        faulty.ring_delete = faulty_ring_delete;
        faulty.random = faulty_random;
        armed = false;
        plat = &faulty;
}

void fault_begin(const struct plat_calls *over, struct fault_plan p)
{
        fault_watch(over);
        plan = p;
        count = hits = 0;
        first = NULL;
        gets_over = false;
        armed = true;
}

void fault_end(void)
{
        armed = false;
}

/* ---- what happened ------------------------------------------------------------------------- */

uint64_t fault_count(void)
{
        return count;
}

uint64_t fault_hits(void)
{
        return hits;
}

uint64_t fault_live(void)
{
        return live;
}

enum fault_call fault_kind(uint64_t call)
{
        CHECK(call >= 1 && call <= count && call <= MAX_CALLS);
        return (enum fault_call)trace[call - 1];
}

const struct fault_way *fault_first(void)
{
        return first;
}

bool fault_soft(void)
{
        return first && (first->soft || gets_over);
}

unsigned fault_ways(enum fault_call call)
{
        return calls[call].count;
}

const struct fault_way *fault_way(enum fault_call call, unsigned way)
{
        return &calls[call].ways[way];
}

const char *fault_call_name(enum fault_call call)
{
        return calls[call].name;
}

const char *fault_mode_name(enum fault_mode mode)
{
        static const char *const names[FAULT_MODES] = {"once", "all of its kind", "all"};
        return names[mode];
}
