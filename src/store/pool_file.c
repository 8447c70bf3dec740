/* pool_file.c: the file of a pool: found, made and locked.
 *
 * Guarantees
 *  1. A pool appears under its name complete, or not at all (create).
 *  2. A file that is reached through a symbolic link, belongs to another user or is in use is not
 *     opened for writing. */
#include "store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* ---- path ---------------------------------------------------------------------------------- */

/* Error texts are bounded and must have room for the reason. Control characters would reach
 * terminals and logs. */
void place_label(const char *path, char *label, size_t bytes)
{
        size_t length = strlen(path);
        if (length < bytes) {
                printable(path, label, bytes);
                return;
        }
        snprintf(label, bytes, "…%s", path + length - (bytes - sizeof("…")));
        printable(label, label, bytes);
}

/* The directory is opened once and everything else is relative to it: the file that is checked is
 * the file that is used, and a path of the full length the system allows has room for the temporary
 * name. */
int place_open(const char *path, struct place *out)
{
        char label[200];
        place_label(path, label, sizeof(label));
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

/* A private file under a name derived from the pool's, so that a creation cut short leaves at most
 * one file, which the next creation removes. Returns the descriptor, locked. */
static int open_fresh(int dir, const char *temporary)
{
        for (int attempt = 0; attempt < 8; attempt++) {
                int fd = plat->openat(dir, temporary,
                                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
                if (fd >= 0) {
                        int rc = plat->flock(fd);
                        uint64_t bytes;
                        if (rc == 0 && plat->where(fd, dir, temporary, &bytes) == PLAT_HERE)
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

int pool_file_check(const char *path, const struct plat_stat *st, bool readonly)
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

int pool_file_lock(const char *path, int fd)
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

int pool_file_open(const char *path, const struct place *at, bool readonly, int *out)
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

static int check_same(int one, int two)
{
        struct plat_stat a = {.bytes = 0};
        struct plat_stat b = {.bytes = 0};
        int rc = plat->fstat(one, &a);
        if (rc == 0)
                rc = plat->fstat(two, &b);
        return rc ? rc : a.device == b.device && a.inode == b.inode ? 0 : -ESTALE;
}

int pool_file_open_again(const struct pool *p)
{
        int fd = plat->openat(p->place.dir, p->place.name,
                              O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
        int rc = fd < 0 ? fd : check_same(p->media->fd, fd);
        if (rc == 0)
                return fd;
        if (fd >= 0)
                (void)plat->close(fd);
        return rc;
}

/* The first descriptor stays for the lock and for reading small metadata. */
int pool_file_open_direct(const struct place *at, const struct media *m,
                          const struct pool_options *o)
{
        if (o->direct == SWITCH_OFF || (o->probes && o->probes[PROBE_O_DIRECT].masked))
                return -EINVAL;
        int fd = plat->openat(at->dir, at->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_DIRECT, 0);
        if (fd < 0)
                return fd;
        int rc = check_same(m->fd, fd);
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
