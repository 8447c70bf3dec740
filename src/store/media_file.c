/* media_file.c: the pool as a file: io_uring, or one call at a time where that is not to be had.
 *
 * Without a ring a transfer is done when it is begun, and wait only reports it: callers see one
 * behaviour.
 *
 * The end of a transfer interrupts the thread that submitted it to the ring, as a signal would: a
 * thread of the program would get EINTR from its own epoll_wait, or a short read of /dev/urandom.
 * So while `deferring`, which is when a thread of the program will go on before its transfers have
 * ended, nothing is submitted: the next caller after that, the flusher, submits. If one has to be
 * waited for meanwhile, it is done by a plain system call. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

#define MAX_RETRIES 1000u

struct request {
        enum plat_io io;
        uint8_t *buf;
        uint32_t bytes, done;
        uint64_t offset;
        bool active;
        bool deferred; /* begun, and not submitted yet */
        int result;    /* without a ring */
        uint32_t retries;
};

struct file_media {
        struct media m;
        struct plat_ring *ring; /* NULL: one call at a time */
        uint32_t deferred;      /* how many requests are */
        struct request requests[TRANSFERS];
};

/* A transfer may stop at any byte; the next one of a direct file must begin aligned, so it is
 * repeated from there. */
static uint32_t resume_at(const struct media *m, uint32_t done)
{
        return done / m->align * m->align;
}

static int transfer_now(struct file_media *f, struct request *r)
{
        while (r->done < r->bytes) {
                uint8_t *buf = r->buf + r->done;
                size_t bytes = r->bytes - r->done;
                uint64_t offset = r->offset + r->done;
                int64_t n = r->io == PLAT_WRITE ? plat->pwrite(f->m.io_fd, buf, bytes, offset)
                                                : plat->pread(f->m.io_fd, buf, bytes, offset);
                if (n < 0)
                        return (int)n;
                if (n == 0)
                        return r->io == PLAT_WRITE ? -EIO : -ENODATA;
                uint32_t next = r->done + (uint32_t)n;
                if (next == r->bytes)
                        return 0;
                next = resume_at(&f->m, next);
                if (next == r->done)
                        return -EIO;
                r->done = next;
        }
        return 0;
}

static int push(struct file_media *f, uint32_t tag)
{
        struct request *r = &f->requests[tag];
        return plat->ring_push(f->ring, r->io, f->m.io_fd, r->buf + r->done, r->bytes - r->done,
                               r->offset + r->done, tag);
}

/* What was begun while `deferring` is submitted. */
static int push_deferred(struct file_media *f)
{
        int rc = 0;
        for (uint32_t tag = 0; f->deferred && tag < TRANSFERS && rc == 0; tag++) {
                if (!f->requests[tag].deferred)
                        continue;
                rc = push(f, tag);
                if (rc)
                        break;
                f->requests[tag].deferred = false;
                f->deferred--;
        }
        return rc;
}

static int begin(struct media *m, enum plat_io io, void *buf, uint32_t bytes, uint64_t offset,
                 uint32_t tag)
{
        struct file_media *f = (struct file_media *)m;
        struct request *r = &f->requests[tag];
        *r = (struct request){
                .io = io, .buf = buf, .bytes = bytes, .offset = offset, .active = true};
        if (!f->ring) {
                r->result = transfer_now(f, r);
                return 0;
        }
        if (m->deferring) {
                r->deferred = true;
                f->deferred++;
                return 0;
        }
        int rc = push_deferred(f);
        if (rc == 0)
                rc = push(f, tag);
        if (rc)
                r->active = false;
        return rc;
}

static int file_write(struct media *m, const void *from, uint32_t bytes, uint64_t offset,
                      uint32_t tag)
{
        void *buf;
        memcpy(&buf, &from, sizeof(buf)); /* the request keeps one pointer for both directions */
        return begin(m, PLAT_WRITE, buf, bytes, offset, tag);
}

static int file_read(struct media *m, void *to, uint32_t bytes, uint64_t offset, uint32_t tag)
{
        return begin(m, PLAT_READ, to, bytes, offset, tag);
}

/* Looks at one completion; true when the request is finished and *result is set. */
static bool complete(struct file_media *f, uint32_t tag, int n, int *result)
{
        struct request *r = &f->requests[tag];
        bool again = (n == -EINTR || n == -EAGAIN) && r->retries++ < MAX_RETRIES;
        if (n == 0)
                n = r->io == PLAT_WRITE ? -EIO : -ENODATA;
        if (n < 0 && !again) {
                *result = n;
                return true;
        }
        if (!again) {
                uint32_t next = r->done + (uint32_t)n;
                *result = 0;
                if (next >= r->bytes)
                        return true;
                if (resume_at(&f->m, next) == r->done) {
                        *result = -EIO;
                        return true;
                }
                r->done = resume_at(&f->m, next);
        }
        *result = push(f, tag);
        return *result != 0;
}

/* Does one of the deferred transfers here and now. */
static int do_deferred(struct file_media *f, uint32_t *tag, int *result)
{
        uint32_t at = 0;
        while (!f->requests[at].deferred)
                at++;
        struct request *r = &f->requests[at];
        *tag = at;
        *result = transfer_now(f, r);
        r->active = r->deferred = false;
        f->deferred--;
        return 0;
}

static int file_wait(struct media *m, uint32_t *tag, int *result)
{
        struct file_media *f = (struct file_media *)m;
        uint32_t active = 0;
        while (active < TRANSFERS && !f->requests[active].active)
                active++;
        if (active == TRANSFERS)
                return -ENOENT;
        if (!f->ring) {
                *tag = active;
                *result = f->requests[active].result;
                f->requests[active].active = false;
                return 0;
        }
        if (m->deferring && f->deferred)
                return do_deferred(f, tag, result);
        int rc = push_deferred(f);
        while (rc == 0) {
                uint32_t done;
                int n;
                rc = plat->ring_wait(f->ring, &done, &n);
                if (rc == 0 && done < TRANSFERS && f->requests[done].active &&
                    complete(f, done, n, result)) {
                        f->requests[done].active = false;
                        *tag = done;
                        return 0;
                }
        }
        m->lost = true;
        return rc;
}

static int file_grow(struct media *m, uint64_t bytes)
{
        return media_extend(m, bytes, false);
}

static int file_barrier(struct media *m)
{
        return plat->fdatasync(m->fd);
}

static int file_close(struct media *m)
{
        struct file_media *f = (struct file_media *)m;
        plat->ring_delete(f->ring);
        int rc = media_close_fds(m);
        budget_free(m->budget, f);
        return rc;
}

static const struct media_ops file_ops = {
        .size = sizeof(struct media_ops),
        .name = "file",
        .write = file_write,
        .read = file_read,
        .wait = file_wait,
        .grow = file_grow,
        .barrier = file_barrier,
        .close = file_close,
};

int media_file_new(struct media m, const struct pool_options *o, struct media **out)
{
        struct file_media *f = budget_alloc(m.budget, sizeof(*f), "the pool's file driver");
        if (!f) {
                (void)media_close_fds(&m);
                return -ENOMEM;
        }
        f->m = m;
        f->m.ops = &file_ops;
        f->m.gather_bytes = CHUNK_BYTES;
        int rc = -ENOSYS;
        if (o->io != IO_PWRITE && (!o->probes || probe_has(o->probes, PROBE_IO_URING)))
                rc = plat->ring_new(TRANSFERS, &f->ring);
        if (rc && o->io == IO_URING) {
                (void)err_set(rc, "option io is uring, and io_uring cannot be used here: %s",
                              code_text(rc));
                (void)file_close(&f->m);
                return rc;
        }
        if (rc)
                f->ring = NULL;
        f->m.overlaps = f->ring != NULL;
        snprintf(f->m.description, sizeof(f->m.description), "file, %s%s",
                 f->ring ? "io_uring" : "pwrite", m.align > 1 ? ", direct" : "");
        *out = &f->m;
        return 0;
}
