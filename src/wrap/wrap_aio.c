/* wrap_aio.c: POSIX asynchronous I/O into regions, or with control blocks that are in regions.
 *
 * libc does these transfers in threads of its own, by calls that do not come by here, and stores
 * the outcome in the control block with all signals blocked: a protected buffer would give EFAULT,
 * a protected control block would end the process. And both may be protected at any time, by a
 * freeze that comes while a request is under way. So libc gets a control block and, for reading, a
 * buffer of ours, a shadow; the data moves to the program's buffer when the program asks how the
 * request ended (aio_error, aio_return, or lio_listio that waits). Before that it may not look at
 * the buffer anyway.
 *
 * A request that has nothing to do with a region is libc's alone.
 *
 * Shadows are in a list that only grows, so that aio_error, aio_return and aio_suspend are safe in
 * signal handlers; a shadow is used again after aio_return, or if the program starts another
 * request with the same control block. Its buffer is freed then. */
#include "wrap/wrap_int.h"

enum { SHADOW_FREE, SHADOW_BUSY, SHADOW_DELIVERING, SHADOW_DELIVERED };

struct shadow {
        struct shadow *next;
        _Atomic(struct aiocb *) program; /* whose shadow it is; NULL: nobody's */
        _Atomic int state;
        struct aiocb block; /* what libc knows */
        void *to, *buffer;  /* of the program, and its stand-in; NULL: none */
};

static _Atomic(struct shadow *) shadows;

static struct shadow *shadow_of(const struct aiocb *block)
{
        struct shadow *s = atomic_load(&shadows);
        while (s && atomic_load(&s->program) != block)
                s = s->next;
        return s;
}

/* Where there may be no block. */
static struct shadow *shadow_if(const struct aiocb *block)
{
        return block ? shadow_of(block) : NULL;
}

/* One that nobody uses, or a new one. */
static struct shadow *take_shadow(void)
{
        for (struct shadow *s = atomic_load(&shadows); s; s = s->next) {
                int none = SHADOW_FREE;
                if (atomic_compare_exchange_strong(&s->state, &none, SHADOW_BUSY))
                        return s;
        }
        struct shadow *s = plat->alloc(sizeof(*s));
        if (!s)
                return NULL;
        atomic_store(&s->state, SHADOW_BUSY);
        s->next = atomic_load(&shadows);
        while (!atomic_compare_exchange_weak(&shadows, &s->next, s))
                continue;
        return s;
}

static void give_back(struct shadow *s)
{
        atomic_store(&s->program, NULL);
        atomic_store(&s->state, SHADOW_FREE);
}

/* The program uses a block again without having asked for the result, which it may. If the request
 * has not ended, libc keeps the shadow for good. */
static void forget(const struct aiocb *block)
{
        struct shadow *s = shadow_of(block);
        if (!s)
                return;
        if (NEXT(aio_error)(&s->block) == EINPROGRESS)
                atomic_store(&s->program, NULL);
        else
                give_back(s);
}

/* The block that libc is to have for this request: the program's own if no region is concerned.
 * NULL: no memory. */
static struct aiocb *begin(struct aiocb *block, bool reads)
{
        forget(block);
        bool into = reads && wrap_covers((void *)(uintptr_t)block->aio_buf, block->aio_nbytes);
        if (!into && !wrap_covers(block, sizeof(*block)))
                return block;
        struct shadow *s = take_shadow();
        if (!s)
                return NULL;
        plat->release(s->buffer);
        s->block = *block;
        s->to = (void *)(uintptr_t)block->aio_buf;
        s->buffer = into ? plat->alloc(block->aio_nbytes) : NULL;
        if (into && !s->buffer) {
                give_back(s);
                return NULL;
        }
        if (into)
                s->block.aio_buf = s->buffer;
        atomic_store(&s->program, block);
        return &s->block;
}

/* A request that did not begin leaves nothing. */
static int begun(struct aiocb *block, int rc)
{
        struct shadow *s = rc ? shadow_if(block) : NULL;
        if (s)
                give_back(s);
        return rc;
}

static int no_memory(void)
{
        errno = EAGAIN;
        return -1;
}

int aio_read(struct aiocb *block)
{
        struct aiocb *use = begin(block, true);
        return use ? begun(block, NEXT(aio_read)(use)) : no_memory();
}

int aio_write(struct aiocb *block)
{
        struct aiocb *use = begin(block, false);
        return use ? begun(block, NEXT(aio_write)(use)) : no_memory();
}

int aio_fsync(int how, struct aiocb *block)
{
        struct aiocb *use = begin(block, false);
        return use ? begun(block, NEXT(aio_fsync)(how, use)) : no_memory();
}

/* Moves what was read. Whoever else asks meanwhile, also a handler in the midst of it, hears that
 * the request is still under way. */
static int deliver(struct shadow *s)
{
        int error = NEXT(aio_error)(&s->block);
        int busy = SHADOW_BUSY;
        if (error == EINPROGRESS)
                return error;
        if (!atomic_compare_exchange_strong(&s->state, &busy, SHADOW_DELIVERING))
                return busy == SHADOW_DELIVERING ? EINPROGRESS : error;
        if (error == 0 && s->buffer) {
                ssize_t n = NEXT(aio_return)(&s->block); /* may be asked again */
                if (n > 0)
                        memcpy(s->to, s->buffer, min_u64((uint64_t)n, s->block.aio_nbytes));
        }
        atomic_store(&s->state, SHADOW_DELIVERED);
        return error;
}

int aio_error(const struct aiocb *block)
{
        struct shadow *s = shadow_of(block);
        return s ? deliver(s) : NEXT(aio_error)(block);
}

ssize_t aio_return(struct aiocb *block)
{
        struct shadow *s = shadow_of(block);
        if (!s)
                return NEXT(aio_return)(block);
        (void)deliver(s);
        ssize_t n = NEXT(aio_return)(&s->block);
        give_back(s);
        return n;
}

/* ---- several -----------------------------------------------------------------------------------
 */

int aio_suspend(const struct aiocb *const list[], int count, const struct timespec *timeout)
{
        if (!atomic_load(&shadows) || count <= 0)
                return NEXT(aio_suspend)(list, count, timeout);
        /* As libc does: this must work in a signal handler. */
        const struct aiocb **use = __builtin_alloca((size_t)count * sizeof(*use));
        for (int i = 0; i < count; i++) {
                struct shadow *s = shadow_if(list[i]);
                use[i] = s ? &s->block : list[i];
        }
        return NEXT(aio_suspend)(use, count, timeout);
}

int aio_cancel(int fd, struct aiocb *block)
{
        struct shadow *s = shadow_if(block);
        return NEXT(aio_cancel)(fd, s ? &s->block : block);
}

int lio_listio(int mode, struct aiocb *const list[restrict], int count,
               struct sigevent *restrict event)
{
        if ((!wrap_active() && !atomic_load(&shadows)) || count <= 0)
                return NEXT(lio_listio)(mode, list, count, event);
        struct aiocb **use = plat->alloc((size_t)count * sizeof(struct aiocb *));
        bool complete = use != NULL;
        for (int i = 0; complete && i < count; i++) {
                bool some = list[i] && list[i]->aio_lio_opcode != LIO_NOP;
                use[i] = some ? begin(list[i], list[i]->aio_lio_opcode == LIO_READ) : list[i];
                complete = !some || use[i];
        }
        for (int i = 0; !complete && i < count; i++)
                (void)begun(list[i], -1);
        int rc = complete ? NEXT(lio_listio)(mode, use, count, event) : no_memory();
        int kept = errno;
        for (int i = 0; mode == LIO_WAIT && i < count; i++)
                if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
                        (void)aio_error(list[i]);
        plat->release(use);
        errno = kept;
        return rc;
}

/* The same functions: a file position has 64 bits. */
#if __WORDSIZE == 64
#define SAME(name) __attribute__((alias(#name), copy(name)))
int aio_read64(struct aiocb64 *block) SAME(aio_read);
int aio_write64(struct aiocb64 *block) SAME(aio_write);
int aio_fsync64(int how, struct aiocb64 *block) SAME(aio_fsync);
int aio_error64(const struct aiocb64 *block) SAME(aio_error);
ssize_t aio_return64(struct aiocb64 *block) SAME(aio_return);
int aio_suspend64(const struct aiocb64 *const list[], int count, const struct timespec *timeout)
        SAME(aio_suspend);
int aio_cancel64(int fd, struct aiocb64 *block) SAME(aio_cancel);
int lio_listio64(int mode, struct aiocb64 *const list[], int count, struct sigevent *event)
        SAME(lio_listio);
#endif
