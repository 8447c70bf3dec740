/* pool.c: opening and closing. Draft, reader and writer do the rest.
 *
 * Guarantees
 *  1. A pool appears under its name complete, or not at all (create).
 *  2. A file that is not a pool, is newer, is reached through a symbolic link, belongs to another
 * user or is in use is not changed.
 *  3. If a listed version cannot be read, its slots are unknown: then no slot that exists at open
 * is written, unless the user chose to drop damaged versions. */
#include "store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* ---- path ---------------------------------------------------------------------------------- */

/* Error texts are bounded and must have room for the reason. Control characters would reach
 * terminals and logs. */
static void label_path(const char *path, char *label, size_t bytes)
{
        size_t length = strlen(path);
        if (length < bytes) {
                printable(path, label, bytes);
                return;
        }
        snprintf(label, bytes, "…%s", path + length - (bytes - sizeof("…")));
        printable(label, label, bytes);
}

struct place {
        int dir;
        const char *name;
};

/* The directory is opened once and everything else is relative to it: the file that is checked is
 * the file that is used, and a path of the full length the system allows has room for the temporary
 * name. */
static int place_open(const char *path, struct place *out)
{
        char label[200];
        label_path(path, label, sizeof(label));
        const char *slash = strrchr(path, '/');
        size_t n = slash ? (size_t)(slash - path) : 0;
        size_t most = sizeof(((struct pool *)NULL)->path) - 1;
        if (strlen(path) > most)
                return err_set(-ENAMETOOLONG, "the path of the pool is longer than %zu bytes",
                               most);
        out->name = slash ? slash + 1 : path;
        if (out->name[0] == '\0' || strcmp(out->name, ".") == 0 || strcmp(out->name, "..") == 0)
                return err_set(-EISDIR, "the path of the pool '%s' names a directory", label);
        char *parent = plat->alloc(n + 1);
        if (!parent)
                return err_set(-ENOMEM, "no memory for the path of the pool '%s'", label);
        memcpy(parent, path, n);
        const char *dir = !slash ? "." : n == 0 ? "/" : parent;
        out->dir = plat->openat(PLAT_CWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        if (out->dir == -EACCES) /* a directory that may be searched but not listed */
                out->dir = plat->openat(PLAT_CWD, dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        plat->release(parent);
        if (out->dir < 0)
                return err_set(out->dir, "directory of pool '%s': %s", label, code_text(out->dir));
        return 0;
}

static int open_error(const char *path, int rc)
{
        if (rc == -ELOOP)
                return err_set(rc,
                               "pool '%s' is a symbolic link; Belay does not follow it, give the "
                               "real path",
                               path);
        return err_set(rc, "pool '%s': %s", path, code_text(rc));
}

/* ---- creation ------------------------------------------------------------------------------ */

static int write_first(int fd)
{
        struct first { /* too large for a stack */
                struct superblock s;
                uint8_t slots[FIRST_SLOT * SLOT_BYTES];
        } *f = plat->alloc(sizeof(*f));
        if (!f)
                return -ENOMEM;
        f->s = (struct superblock){.generation = 1,
                                   .pool_bytes = sizeof(f->slots),
                                   .next_version = 1,
                                   .created_ns = plat->wall_ns()};
        int rc = plat->random(f->s.pool_id, sizeof(f->s.pool_id));
        if (rc == 0) {
                superblock_encode(&f->s, f->slots);
                rc = plat_write_full(fd, f->slots, sizeof(f->slots), 0);
        }
        plat->release(f);
        return rc ? rc : plat->fsync(fd);
}

/* Is the file under this name the one that fd is? */
static bool still_named(int dir, const char *name, int fd)
{
        struct plat_stat a;
        struct plat_stat b;
        int again = plat->openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (again < 0)
                return false;
        bool same = plat->fstat(fd, &a) == 0 && plat->fstat(again, &b) == 0 &&
                    a.device == b.device && a.inode == b.inode;
        (void)plat->close(again);
        return same;
}

/* A private file under a name derived from the pool's, so that a creation cut short leaves at most
 * one file, which the next creation removes. Returns the descriptor, locked. */
static int open_fresh(int dir, const char *temporary)
{
        for (int attempt = 0; attempt < 8; attempt++) {
                int fd = plat->openat(dir, temporary,
                                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
                if (fd >= 0) {
                        int rc = plat->flock(fd);
                        if (rc == 0 && still_named(dir, temporary, fd))
                                return fd;
                        (void)plat->close(fd);
                        if (rc && rc != -EWOULDBLOCK)
                                return rc;
                        continue; /* another creation took it for a left-over */
                }
                if (fd != -EEXIST)
                        return fd;
                int old = plat->openat(dir, temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
                if (old == -ENOENT)
                        continue;
                if (old < 0)
                        return old;
                int rc = plat->flock(old);
                if (rc == 0)
                        rc = plat->unlink(dir, temporary);
                (void)plat->close(old);
                if (rc && rc != -ENOENT)
                        return rc == -EWOULDBLOCK ? -EBUSY : rc;
        }
        return -EBUSY;
}

/* 0, or -EEXIST if another process made the pool meanwhile. */
static int create(const char *path, const struct place *at)
{
        char temporary[64];
        snprintf(temporary, sizeof(temporary), ".belay-%016llx.new",
                 (unsigned long long)hash_name(at->name));
        int fd = plat->file_limit() < FIRST_SLOT * SLOT_BYTES ? -EFBIG
                                                              : open_fresh(at->dir, temporary);
        if (fd < 0)
                return err_set(fd, "pool '%s' cannot be created: %s", path, code_text(fd));
        int rc = write_first(fd);
        plat_point("pool.create_rename");
        if (rc == 0)
                rc = plat->rename_new(at->dir, temporary, at->name);
        if (rc)
                (void)plat->unlink(at->dir, temporary);
        else
                rc = plat->fsync(at->dir);
        if (rc ==
            -EBADF) /* opened by path only; its entry becomes durable with the first barrier */
                rc = 0;
        int closed = plat->close(fd);
        rc = rc ? rc : closed;
        if (rc)
                return err_set(rc, "pool '%s' cannot be created: %s", path, code_text(rc));
        log_emit(BELAY_LOG_INFO, "created pool '%s'", path);
        return 0;
}

/* ---- opening the file ------------------------------------------------------------------------ */

static int check_file(const char *path, const struct plat_stat *st, bool readonly)
{
        if (!st->regular)
                return err_set(BELAY_E_FORMAT, "pool '%s' is not a regular file", path);
        if (readonly)
                return 0;
        if (!st->own)
                return err_set(-EPERM,
                               "pool '%s' belongs to another user; use a pool of your own or "
                               "change its owner",
                               path);
        if (st->mode & 022)
                log_emit(BELAY_LOG_WARN, "pool '%s' can be written by other users (mode %04o)",
                         path, st->mode);
        return 0;
}

static int lock_pool(const char *path, int fd)
{
        int rc = plat->flock(fd);
        if (rc == 0)
                return 0;
        if (rc != -EWOULDBLOCK)
                return err_set(rc, "pool '%s' cannot be locked: %s", path, code_text(rc));
        int owner = plat->lock_owner(fd);
        if (owner > 0)
                return err_set(-EBUSY,
                               "pool '%s' is in use by process %d; end it or choose another pool",
                               path, owner);
        return err_set(-EBUSY,
                       "pool '%s' is in use by another process or context; choose another pool",
                       path);
}

static int open_file(const char *path, const struct place *at, bool readonly, int *out)
{
        int flags = (readonly ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
        int fd = plat->openat(at->dir, at->name, flags, 0);
        if (fd == -ENOENT && !readonly) {
                int rc = create(path, at);
                if (rc && rc != -EEXIST)
                        return rc;
                fd = plat->openat(at->dir, at->name, flags, 0);
        }
        if (fd < 0)
                return open_error(path, fd);
        *out = fd;
        return 0;
}

/* A second descriptor that bypasses the page cache, or the same one where that is not possible. The
 * first one stays for the lock and for reading small metadata. */
static int open_direct(const struct place *at, const struct media *m, const struct pool_options *o)
{
        if (o->direct == SWITCH_OFF || (o->probes && o->probes[PROBE_O_DIRECT].masked))
                return -EINVAL;
        int fd = plat->openat(at->dir, at->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_DIRECT, 0);
        if (fd < 0)
                return fd;
        struct plat_stat a = {.bytes = 0};
        struct plat_stat b = {.bytes = 0};
        int rc = plat->fstat(m->fd, &a);
        if (rc == 0)
                rc = plat->fstat(fd, &b);
        if (rc == 0 && (a.device != b.device || a.inode != b.inode))
                rc = -ESTALE;
        if (rc == 0) {
                /* By effect: some file systems accept the flag and refuse the transfer. */
                void *page = plat->alloc(PLAT_PAGE);
                int64_t n = page ? plat->pread(fd, page, PLAT_PAGE, 0) : -ENOMEM;
                plat->release(page);
                rc = n < 0 ? (int)n : 0;
        }
        if (rc) {
                (void)plat->close(fd);
                return rc;
        }
        return fd;
}

static int open_media(struct pool *p, const struct place *at, int fd, const struct plat_stat *st)
{
        const struct pool_options *o = &p->options;
        struct media m = {
                .budget = p->budget, .fd = fd, .io_fd = fd, .bytes = st->bytes, .align = 1};
        m.reserve = !o->probes || probe_has(o->probes, PROBE_FALLOCATE);
        bool pmem = st->dax && (!o->probes || probe_has(o->probes, PROBE_PMEM));
        bool mapped =
                o->media == MEDIA_MAPPED || (o->media == MEDIA_AUTO && (st->in_memory || pmem));
        if (mapped && !o->readonly)
                return media_mapped_new(m, o, &p->media);
        if (!o->readonly) {
                int direct = open_direct(at, &m, o);
                if (direct >= 0) {
                        m.io_fd = direct;
                        m.align = SLOT_BYTES;
                } else if (o->direct == SWITCH_ON) {
                        (void)media_close_fds(&m);
                        return err_set(direct,
                                       "option direct is on, and pool '%s' cannot be opened so: %s",
                                       p->label, code_text(direct));
                }
        }
        return media_file_new(m, o, &p->media);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* Reads both superblocks and takes the newer valid one. */
int superblocks_read(struct pool *p, struct superblock *out, uint32_t *at)
{
        bool found = false;
        int worst = BELAY_E_FORMAT;
        /* Both too large for a stack. */
        uint8_t *buf = p->scratch;
        struct superblock *s = (void *)(p->scratch + SUPER_BYTES);
        for (uint32_t i = 0; i < 2; i++) {
                memset(buf, 0, SUPER_BYTES);
                int rc = media_read_now(p->media, buf, SUPER_BYTES, (uint64_t)i * SUPER_BYTES);
                if (rc) { /* the file is long enough, so this is no end of it */
                        /* It may be the newer one, and readable the next time. Going on with the
                         * other would let versions be overwritten that are not lost. */
                        int code = err_set(rc, "superblock %u of pool '%s' cannot be read: %s", i,
                                           p->label, code_text(rc));
                        if (!p->options.readonly && p->options.damaged == DAMAGED_KEEP)
                                return code;
                        worst = rc;
                } else {
                        rc = superblock_decode(buf, s);
                }
                bool marked = memcmp(buf, "BLYSUPER", 8) == 0;
                snprintf(p->super_state[i], sizeof(p->super_state[i]), "%s", rc ? err_text() : "");
                if (rc == BELAY_E_FORMAT && marked)
                        return err_wrap(rc, "pool '%s'", p->label);
                if (rc == BELAY_E_DATA && marked)
                        worst = rc;
                if (rc == 0 && (!found || s->generation > out->generation)) {
                        *out = *s;
                        *at = i;
                        found = true;
                }
        }
        if (found)
                return 0;
        if (worst == BELAY_E_FORMAT)
                return err_set(worst, "file '%s' is not a Belay pool; it was not changed",
                               p->label);
        return err_set(worst, "pool '%s': both superblocks are damaged (%s); it was not changed",
                       p->label, p->super_state[0]);
}

/* Slots that a version of unknown extent may use: all that existed when it was first found so. */
static void hold_unknown(struct pool *p)
{
        uint64_t end = p->space.slots * SLOT_BYTES;
        p->held_bytes = p->super.held_bytes ? min_u64(p->super.held_bytes, end) : end;
        space_ref(&p->space, 0, p->held_bytes);
        log_emit(BELAY_LOG_WARN,
                 "pool '%s' is damaged; %llu bytes of it are kept as they are. Set the option "
                 "damaged to drop to let "
                 "damaged versions go",
                 p->label, (unsigned long long)p->held_bytes);
}

static int load_versions(struct pool *p)
{
        bool unknown = pool_readable_bytes(p) < p->super.pool_bytes;
        for (uint32_t i = 0; i < p->super.version_count; i++) {
                struct version *before =
                        p->version_count ? p->versions[p->version_count - 1] : NULL;
                struct version *v;
                int rc = version_load(p, &p->super.versions[i], before, &v);
                if (rc)
                        return rc;
                p->versions[p->version_count++] = v;
                if (v->unreadable) {
                        unknown = true;
                        log_emit(BELAY_LOG_WARN, "pool '%s': version %llu is damaged: %s", p->label,
                                 (unsigned long long)v->number, v->damage);
                }
        }
        if (unknown && !p->options.readonly && p->options.damaged == DAMAGED_KEEP)
                hold_unknown(p);
        return 0;
}

uint64_t pool_readable_bytes(const struct pool *p)
{
        return min_u64(p->super.pool_bytes, p->media->bytes);
}

/* A sparse copy has holes, also where blocks of zeros are stored; a store into one on a full disk
 * would be a fault. Asking the file system to back what it has backed already would take time in
 * proportion to the pool, so it is asked only when there are holes. */
static int back_holes(struct pool *p)
{
        struct plat_stat st;
        struct media *m = p->media;
        int rc = m->ops->back ? plat->fstat(m->fd, &st) : 0;
        if (rc == 0 && (!m->ops->back || st.allocated >= m->bytes))
                return 0;
        if (rc == 0)
                rc = m->ops->back(m);
        return rc ? err_set(rc, "pool '%s' has holes that cannot be filled: %s", p->label,
                            code_text(rc))
                  : 0;
}

/* The size of a pool in use is taken after its superblocks: a writer first grows the file and then
 * lists what lies there. Taken before, the size could be too small for a version that is listed. */
static int take_size(struct pool *p)
{
        struct plat_stat st;
        if (!p->options.readonly)
                return 0; /* locked: it has not changed since it was opened */
        int rc = plat->fstat(p->media->fd, &st);
        if (rc)
                return err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        p->media->bytes = st.bytes;
        return 0;
}

static int load(struct pool *p)
{
        p->scratch = budget_alloc(p->budget, CHUNK_BYTES, "the pool");
        if (!p->scratch)
                return -ENOMEM;
        int rc = superblocks_read_both(p, &p->super, &p->super_at);
        if (rc == 0)
                rc = take_size(p);
        if (rc == 0)
                rc = writer_init(p);
        if (rc == 0)
                rc = device_open(p);
        if (rc == 0)
                rc = reader_init(p);
        if (rc)
                return rc;
        if (!p->options.readonly) {
                p->space.budget = p->budget;
                rc = space_extend(&p->space, div_up(p->media->bytes, SLOT_BYTES));
                if (rc)
                        return rc;
                /* A file that ends within a slot: what lies there counts, and nothing is written
                 * there. */
                if (p->media->bytes % SLOT_BYTES)
                        space_ref(&p->space, p->media->bytes, 1);
                space_ref(&p->space, 0, FIRST_SLOT * SLOT_BYTES);
        }
        /* What a process that was killed had written and not flushed must not be built upon: a
         * crash could still take it back, after slots that only the older superblock lists have
         * been written. */
        if (!p->options.readonly) {
                rc = p->media->ops->barrier(p->media);
                if (rc)
                        return err_set(rc, "flush of pool '%s': %s", p->label, code_text(rc));
        }
        rc = load_versions(p);
        return rc || p->options.readonly ? rc : back_holes(p);
}

/* A writer that publishes hundreds of versions a second loses this race to a reader within a few
 * tries. */
#define LOAD_ATTEMPTS 100

static void unload(struct pool *p)
{
        while (p->version_count)
                version_delete(p, p->versions[--p->version_count]);
        writer_delete(p);
        device_close(p);
        memset(&p->writer, 0, sizeof(p->writer));
        budget_free(p->budget, p->scratch);
        budget_free(p->budget, p->reader);
        p->scratch = NULL;
        p->reader = NULL;
}

/* A reader beside a live writer may meet a list that is just being replaced; the next try sees the
 * new one. */
static int load_steady(struct pool *p)
{
        for (int attempt = 0; attempt < LOAD_ATTEMPTS; attempt++) {
                int rc = load(p);
                bool damaged = rc == BELAY_E_DATA;
                for (uint32_t i = 0; i < p->version_count; i++)
                        damaged |= p->versions[i]->unreadable;
                if (!damaged || !p->options.readonly || !superblocks_changed(p))
                        return rc;
                unload(p);
        }
        return err_set(-EAGAIN, "pool '%s' changes faster than it can be read; try again",
                       p->label);
}

/* ---- the pool ----------------------------------------------------------------------------------
 */

static int open_at(struct pool *p, const struct place *at)
{
        struct plat_stat st;
        int fd = -1;
        int rc = open_file(p->label, at, p->options.readonly, &fd);
        if (rc)
                return rc;
        rc = plat->fstat(fd, &st);
        if (rc)
                rc = err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        if (rc == 0)
                rc = check_file(p->label, &st, p->options.readonly);
        if (rc == 0 && !p->options.readonly)
                rc = lock_pool(p->label, fd);
        /* Only now is the size certain: until the lock was held another process could grow the
         * file. */
        if (rc == 0) {
                rc = plat->fstat(fd, &st);
                if (rc)
                        rc = err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        }
        if (rc == 0 && !p->options.readonly && st.bytes > plat->file_limit())
                rc = err_set(-EFBIG, "pool '%s' is larger than this process may write (ulimit -f)",
                             p->label);
        if (rc == 0 && st.bytes < FIRST_SLOT * SLOT_BYTES)
                rc = err_set(BELAY_E_FORMAT,
                             "file '%s' has %llu bytes and is not a Belay pool, or is cut off; it "
                             "was not changed",
                             p->label, (unsigned long long)st.bytes);
        if (rc) {
                (void)plat->close(fd);
                return rc;
        }
        rc = open_media(p, at, fd, &st);
        if (rc == 0)
                rc = load_steady(p);
        /* A creation that was cut short may not have made the name durable. */
        if (rc == 0 && !p->options.readonly && p->super.generation == 1) {
                rc = plat->fsync(at->dir);
                rc = rc == -EBADF ? 0 : rc;
                if (rc)
                        rc = err_set(rc, "flush of the directory of pool '%s': %s", p->label,
                                     code_text(rc));
        }
        if (rc == 0 && !p->options.readonly)
                plat_close_in_children(p->media->fd, p->media->io_fd);
        return rc;
}

int pool_open(const struct pool_options *o, struct pool **out)
{
        struct place at;
        int rc = place_open(o->path, &at);
        if (rc)
                return rc;
        struct pool *p = budget_alloc(o->budget, sizeof(*p), "the pool");
        if (!p) {
                (void)plat->close(at.dir);
                return -ENOMEM;
        }
        memcpy(p->path, o->path, strlen(o->path) + 1);
        label_path(p->path, p->label, sizeof(p->label));
        p->options = *o;
        p->options.path = p->path;
        p->budget = o->budget;
        rc = open_at(p, &at);
        p->options.probes = NULL;
        (void)plat->close(at.dir);
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                (void)pool_close(&p);
                (void)err_give_back(&kept);
                return rc;
        }
        *out = p;
        return 0;
}

int pool_close(struct pool **pool)
{
        struct pool *p = *pool;
        *pool = NULL;
        if (!p)
                return 0;
        draft_abort(&p->draft);
        /* A version that was reported as failed should not appear after all; if this fails too, it
         * may. */
        if (p->limbo && !p->media->lost)
                (void)pool_settle(p);
        if (p->media)
                plat_forget_descriptors(p->media->fd, p->media->io_fd);
        while (p->version_count)
                version_delete(p, p->versions[--p->version_count]);
        version_delete(p, p->limbo);
        draft_forget(p);
        pool_drop_spares(p);
        int rc = p->media ? p->media->ops->close(p->media) : 0;
        writer_delete(p);
        device_close(p);
        if (p->space.budget)
                space_delete(&p->space);
        budget_free(p->budget, p->scratch);
        budget_free(p->budget, p->reader);
        if (rc)
                rc = err_set(rc, "close of pool '%s': %s", p->label, code_text(rc));
        budget_free(p->budget, p);
        return rc;
}

uint32_t pool_version_count(const struct pool *p)
{
        return p->version_count;
}

struct version *pool_version(const struct pool *p, uint32_t i)
{
        return p->versions[i];
}

struct version *pool_find_version(const struct pool *p, uint64_t number)
{
        for (uint32_t i = 0; i < p->version_count; i++)
                if (p->versions[i]->number == number)
                        return p->versions[i];
        return NULL;
}

void pool_mark_damaged(struct pool *p, struct version *v, const char *damage)
{
        v->flags |= VERSION_DAMAGED;
        printable(damage, v->damage, sizeof(v->damage));
        log_emit(BELAY_LOG_WARN, "pool '%s': version %llu is damaged: %s", p->label,
                 (unsigned long long)v->number, v->damage);
}

uint64_t pool_lost(const struct pool *p)
{
        return p->version_count == 0 ? p->super.next_version - 1 : 0;
}

bool pool_overlaps(const struct pool *p)
{
        return p->media->overlaps || pool_is_paced(p);
}

void pool_info(const struct pool *p, struct pool_info *out)
{
        *out = (struct pool_info){
                .path = p->path,
                .media = p->media->description,
                .file_bytes = p->media->bytes,
                .pool_bytes = p->super.pool_bytes,
                .used_bytes = (p->space.slots - p->space.free) * SLOT_BYTES,
                .generation = p->super.generation,
                .created_ns = p->super.created_ns,
                .newest = p->version_count ? p->versions[p->version_count - 1]->number : 0,
        };
        memcpy(out->id, p->super.pool_id, sizeof(out->id));
        memcpy(out->superblock, p->super_state, sizeof(out->superblock));
}
