/* media_mapped.c: the pool as mapped memory: tmpfs, persistent memory, or any file through the page
 * cache.
 *
 * Writes are stores. Every byte of the mapping is backed before it is stored to (media_extend), so
 * a full file system is an error and not a fault. Reads go through the file: the kernel reports an
 * I/O error there as a result, where a load would be a fault. A store for which the file has no
 * page after all, because somebody cut it off, is a failed write (faults_guard); the mapping is
 * made anew before the next version.
 *
 * Persistent memory
 *  1. A write is durable when it returns: copied, flushed and drained by the thread that stores. A
 *     drain counts for its own thread only, and the thread that publishes may be another one.
 *  2. So a barrier has nothing to do, except for what did not go through the mapping: the size and
 *     the blocks of the file after a growth, holes that were filled, and what a process had stored
 *     and not flushed when it was killed. For these it is an fdatasync.
 *  3. New blocks are written with zeros: the file system would commit its journal within the first
 *     fault of every page that is only reserved. They and the size of the file are durable before
 *     the first store to them. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

struct mapped_media {
        struct media m;
        uint8_t *map;
        uint64_t map_bytes;
        bool persistent; /* memory, reached by pmem                          */
        bool unsynced;   /* the file has changed otherwise than by the mapping */
        bool caught;     /* faults_catch_lost has been called                  */
        bool patched;    /* a part of the mapping is not the file any more     */
        struct plat_pmem pmem;
        bool active[TRANSFERS];
        int result[TRANSFERS];
};

static int mapped_write(struct media *m, const void *from, uint32_t bytes, uint64_t offset,
                        uint32_t tag)
{
        struct mapped_media *d = (struct mapped_media *)m;
        if (offset > d->map_bytes || bytes > d->map_bytes - offset)
                return -EINVAL;
        faults_guard(d->map + offset, bytes);
        if (d->persistent) {
                plat->pmem_store(&d->pmem, d->map + offset, from, bytes);
                plat->pmem_drain(&d->pmem);
        } else {
                plat->store(d->map + offset, from, bytes);
        }
        if (faults_unguard()) {
                int rc = media_measure(m);
                if (rc && rc != BELAY_E_DATA)
                        m->least = 0; /* nobody knows */
                d->patched = true;
        }
        d->active[tag] = true;
        d->result[tag] = d->patched ? BELAY_E_DATA : 0;
        return 0;
}

static int mapped_read(struct media *m, void *to, uint32_t bytes, uint64_t offset, uint32_t tag)
{
        struct mapped_media *d = (struct mapped_media *)m;
        d->active[tag] = true;
        d->result[tag] = media_read_now(m, to, bytes, offset);
        return 0;
}

static int mapped_wait(struct media *m, uint32_t *tag, int *result)
{
        struct mapped_media *d = (struct mapped_media *)m;
        for (uint32_t i = 0; i < TRANSFERS; i++) {
                if (!d->active[i])
                        continue;
                d->active[i] = false;
                *tag = i;
                *result = d->result[i];
                return 0;
        }
        return -ENOENT;
}

/* A mapping in pieces, one of them not the file's, cannot be enlarged: it is made anew. */
static int remap(struct mapped_media *d, uint64_t bytes)
{
        void *map;
        int rc = 0;
        if (d->map && !d->patched) {
                rc = plat->mremap(d->map, d->map_bytes, bytes, &map);
        } else {
                if (d->map)
                        (void)plat->munmap(d->map, d->map_bytes);
                d->map = NULL;
                d->map_bytes = 0;
                rc = d->persistent ? plat->pmem_map(d->m.fd, bytes, &d->pmem, &map)
                                   : plat->mmap(d->m.fd, bytes, &map);
        }
        if (rc)
                return rc;
        d->map = map;
        d->map_bytes = bytes;
        d->patched = false;
        return 0;
}

static int mapped_barrier(struct media *m)
{
        struct mapped_media *d = (struct mapped_media *)m;
        if (d->persistent && !d->unsynced)
                return 0;
        /* fdatasync also writes pages that were dirtied through a mapping; on tmpfs it costs
         * nothing. */
        int rc = plat->fdatasync(m->fd);
        if (rc == 0)
                d->unsynced = false;
        return rc;
}

static int mapped_grow(struct media *m, uint64_t bytes)
{
        struct mapped_media *d = (struct mapped_media *)m;
        int rc = 0;
        /* A file that was extended and then could not be mapped stays so; the next growth finds it.
         */
        if (bytes > m->bytes) {
                d->unsynced = true;
                rc = media_extend(m, bytes, true);
        }
        if (rc == 0 && d->persistent)
                rc = mapped_barrier(m);
        return rc ? rc : remap(d, m->bytes);
}

static int mapped_ready(struct media *m)
{
        struct mapped_media *d = (struct mapped_media *)m;
        /* If that fails, a file that is cut off ends the program. Where the program's sigaction()
         * comes to the library, once is enough. */
        if (!d->caught || !plat_before_libc)
                d->caught = faults_catch_lost() == 0;
        return d->patched ? remap(d, m->bytes) : 0;
}

static int mapped_close(struct media *m)
{
        struct mapped_media *d = (struct mapped_media *)m;
        int rc = d->map ? plat->munmap(d->map, d->map_bytes) : 0;
        int second = media_close_fds(m);
        budget_free(m->budget, d);
        return rc ? rc : second;
}

/* Every byte is written back as it is: zeros into holes, which then have a place. */
static int rewrite(struct media *m)
{
        uint64_t room = 16 * SLOT_BYTES;
        uint8_t *buf = budget_alloc(m->budget, room, "a buffer");
        int rc = buf ? 0 : -ENOMEM;
        for (uint64_t at = 0; at < m->bytes && rc == 0; at += room) {
                size_t n = (size_t)min_u64(room, m->bytes - at);
                rc = media_read_now(m, buf, n, at);
                if (rc == 0)
                        rc = plat_write_full(m->fd, buf, n, at);
        }
        budget_free(m->budget, buf);
        return rc;
}

static int mapped_back(struct media *m)
{
        ((struct mapped_media *)m)->unsynced = true;
        int rc = m->reserve ? plat->fallocate(m->fd, 0, m->bytes) : -EOPNOTSUPP;
        return rc == -EOPNOTSUPP || rc == -ENOSYS ? rewrite(m) : rc;
}

static const struct media_ops mapped_ops = {
        .size = sizeof(struct media_ops),
        .name = "mapped",
        .write = mapped_write,
        .read = mapped_read,
        .wait = mapped_wait,
        .ready = mapped_ready,
        .back = mapped_back,
        .grow = mapped_grow,
        .barrier = mapped_barrier,
        .close = mapped_close,
};

/* Where that is not possible, the pool is a file in the page cache. */
static void map_persistent(struct mapped_media *d, const struct pool_options *o)
{
        void *map;
        if (o->probes && o->probes[PROBE_PMEM].masked)
                return;
        int rc = plat->pmem_map(d->m.fd, d->m.bytes, &d->pmem, &map);
        if (rc == -ENOSYS)
                log_emit(BELAY_LOG_INFO,
                         "pool '%s' is in persistent memory, which needs libpmem2: it is used as a "
                         "file",
                         o->path);
        if (rc)
                return;
        d->map = map;
        d->map_bytes = d->m.bytes;
        d->persistent = true;
        d->m.reserve = false; /* blocks are written with zeros instead */
}

int media_mapped_new(struct media m, const struct pool_options *o, struct media **out)
{
        struct mapped_media *d = budget_alloc(m.budget, sizeof(*d), "the pool's mapped driver");
        if (!d) {
                (void)media_close_fds(&m);
                return -ENOMEM;
        }
        d->m = m;
        d->m.ops = &mapped_ops;
        d->m.align = 1;
        d->m.copies = true;
        d->m.gather_bytes = 64u << 10; /* stays in the second-level cache between hash and store */
        d->unsynced = true;            /* until the first barrier */
        map_persistent(d, o);
        snprintf(d->m.description, sizeof(d->m.description), "mapped%s",
                 d->persistent ? ", persistent memory" : "");
        int rc = d->map ? 0 : remap(d, d->m.bytes);
        if (rc) {
                (void)err_set(rc, "the pool cannot be mapped: %s", code_text(rc));
                (void)mapped_close(&d->m);
                return rc;
        }
        *out = &d->m;
        return 0;
}
