/* ring.c: io_uring through liburing, loaded at run time so that the library starts without it.
 * Only what liburing exports is looked up; what its header has inline is used directly. One thread
 * at a time. */
#include "plat/plat_int.h"
#include <errno.h>

#if BELAY_HAVE_LIBURING
#include <dlfcn.h>
#include <liburing.h>
#include <pthread.h>

struct plat_ring {
        struct io_uring ring;
        unsigned in_flight;
};

static struct {
        int (*queue_init)(unsigned entries, struct io_uring *ring, unsigned flags);
        void (*queue_exit)(struct io_uring *ring);
        int (*submit)(struct io_uring *ring);
        int (*submit_and_wait)(struct io_uring *ring, unsigned count);
        struct io_uring_sqe *(*get_sqe)(struct io_uring *ring);
} uring;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static int loaded = -ENOSYS;

/* POSIX guarantees the conversion of dlsym's result; ISO C has no syntax for it but a copy. */
static int lookup(void *library, const char *name, void *function)
{
        void *symbol = dlsym(library, name);
        memcpy(function, &symbol, sizeof(symbol));
        return symbol ? 0 : -ENOSYS;
}

static void load(void)
{
        void *library = dlopen("liburing.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return;
        if (lookup(library, "io_uring_queue_init", &uring.queue_init) ||
            lookup(library, "io_uring_queue_exit", &uring.queue_exit) ||
            lookup(library, "io_uring_submit", &uring.submit) ||
            lookup(library, "io_uring_submit_and_wait", &uring.submit_and_wait) ||
            lookup(library, "io_uring_get_sqe", &uring.get_sqe)) {
                (void)dlclose(library);
                return;
        }
        loaded = 0;
}

struct making {
        struct plat_ring *ring;
        unsigned depth;
        int rc;
};

static void *make_ring(void *arg)
{
        struct making *m = arg;
        m->rc = uring.queue_init(m->depth, &m->ring->ring, 0);
        return NULL;
}

/* The kernel keeps a list of the threads that made a ring or submitted to it, and wakes each of
 * them some 20 ms after the ring is gone, as a signal would: the program's epoll_wait gives EINTR,
 * its read of /dev/urandom stops at a multiple of 4096 bytes. A thread that has ended is not on the
 * list. So no thread of the program makes a ring. */
static int make_elsewhere(struct plat_ring *r, unsigned depth)
{
        struct making m = {r, depth, 0};
        pthread_t thread;
        int rc = pthread_create(&thread, NULL, make_ring, &m);
        if (rc)
                return -rc;
        (void)pthread_join(thread, NULL);
        return m.rc;
}

int ring_system_new(unsigned depth, struct plat_ring **out)
{
        pthread_once(&load_once, load);
        if (loaded)
                return loaded;
        struct plat_ring *r = plat->alloc(sizeof(*r));
        if (!r)
                return -ENOMEM;
        int rc = make_elsewhere(r, depth);
        if (rc < 0) {
                plat->release(r);
                return rc;
        }
        *out = r;
        return 0;
}

int ring_system_push(struct plat_ring *r, enum plat_io io, int fd, void *buf, uint32_t bytes,
                     uint64_t offset, uint32_t tag)
{
        struct io_uring_sqe *sqe = uring.get_sqe(&r->ring);
        if (!sqe)
                return -EBUSY;
        if (io == PLAT_WRITE)
                io_uring_prep_write(sqe, fd, buf, bytes, offset);
        else
                io_uring_prep_read(sqe, fd, buf, bytes, offset);
        io_uring_sqe_set_data64(sqe, tag);
        r->in_flight++;
        /* A failed submit leaves the entry in the ring: ring_wait submits it again, so it is still
         * in flight and its buffer still borrowed. */
        (void)uring.submit(&r->ring);
        return 0;
}

int ring_system_wait(struct plat_ring *r, uint32_t *tag, int *result)
{
        if (r->in_flight == 0)
                return -ENOENT;
        while (io_uring_cq_ready(&r->ring) == 0) {
                int rc = uring.submit_and_wait(&r->ring, 1);
                if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
                        return rc;
        }
        struct io_uring_cqe *cqe;
        unsigned head;
        io_uring_for_each_cqe(&r->ring, head, cqe)
        {
                *tag = (uint32_t)cqe->user_data;
                *result = cqe->res;
                break;
        }
        io_uring_cq_advance(&r->ring, 1);
        r->in_flight--;
        return 0;
}

void ring_system_delete(struct plat_ring *r)
{
        if (!r)
                return;
        uring.queue_exit(&r->ring);
        plat->release(r);
}

#else

int ring_system_new(unsigned depth, struct plat_ring **out)
{
        (void)depth;
        (void)out;
        return -ENOSYS;
}

int ring_system_push(struct plat_ring *r, enum plat_io io, int fd, void *buf, uint32_t bytes,
                     uint64_t offset, uint32_t tag)
{
        (void)r;
        (void)io;
        (void)fd;
        (void)buf;
        (void)bytes;
        (void)offset;
        (void)tag;
        return -ENOSYS;
}

int ring_system_wait(struct plat_ring *r, uint32_t *tag, int *result)
{
        (void)r;
        (void)tag;
        (void)result;
        return -ENOSYS;
}

void ring_system_delete(struct plat_ring *r)
{
        (void)r;
}

#endif
