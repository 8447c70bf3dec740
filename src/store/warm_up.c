/* warm_up.c: space ahead of need, for a pool in memory.
 *
 * The first store to a page of such a file costs as much as several checkpoints of it: the kernel
 * finds memory, clears it, and maps it. Done within a commit, the first versions of a pool took four
 * times as long as later ones. So a thread does it before.
 *
 *     file     | in use | free |······ ahead of need ······|            of this process alone
 *              0               taken                       ahead        limit
 *
 * How much. Before the first version: what its regions have, but no more than the program has in
 * memory, and it follows as that grows: regions of zeros take no space. Once a version is published:
 * as much as that one wrote, for the next; not earlier, since the commit needs the processor more.
 * So a program that takes one checkpoint pays for one, and one that goes on has the space of a
 * version in advance, until old versions leave theirs.
 *
 * Guarantees
 *  1. What is ahead is never more than half of the memory that would be free without it, nor of the
 *     file system, nor beyond the pool's limit; some of the machine's memory stays free.
 *  2. A failure is nobody's: the space then comes when it is needed, as without this thread.
 *  3. The pool knows nothing of what is ahead until a growth takes it; closing gives it back. After
 *     a crash the file is longer than the pool, as after any growth.
 *  4. No step begins while the program waits for a freeze, which needs both cores and the mappings.
 *  5. The thread takes no lock that anybody holds while a program thread waits, and allocates
 *     nothing. It ends when the pool is closed. */
#include "store/store_int.h"
#include <errno.h>
#include <time.h>

/* Less than this comes within a few milliseconds when it is needed. */
#define LEAST_BYTES (UINT64_C(16) << 20)
/* Looks at what the program has in memory: at first after this time, at last … */
#define SOON_NS  UINT64_C(5000000)
#define LATER_NS UINT64_C(500000000)
/* … and at whether the program is still waiting for a freeze. */
#define HELD_NS UINT64_C(200000)
/* This part of the machine's memory stays free, or an eighth of what is. */
#define RESERVED 32u

static bool warms(const struct pool *p)
{
        const struct media *m = p->media;
        return p->options.warm_up && p->warm.ready && m->ops->warm && m->reserve && m->in_memory;
}

void warm_up_init(struct pool *p)
{
        struct warm_up *w = &p->warm;
        pthread_condattr_t attr;
        if (p->options.readonly || !p->options.warm_up)
                return;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&w->changed, &attr);
        pthread_condattr_destroy(&attr);
        pthread_mutex_init(&w->lock, NULL);
        w->ready = true;
}

void warm_up_close(struct pool *p)
{
        struct warm_up *w = &p->warm;
        if (!w->ready)
                return;
        pthread_mutex_lock(&w->lock);
        w->stopping = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        if (w->running)
                (void)plat->thread_join(w->thread);
        w->running = false;
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        w->ready = false;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* How long the file should be by what is expected. */
static uint64_t wanted(const struct warm_up *w, const struct ahead *a)
{
        uint64_t more = w->more;
        if (w->resident) {
                /* The pages that the mapping of the pool has are the process's, too. */
                uint64_t resident = plat->memory_resident();
                more = min_u64(more, resident - min_u64(resident, a->touched));
        }
        if (more == 0)
                return 0;
        /* The map, and what lies in pieces too short to be used. */
        more += more / 64 + CHUNK_BYTES;
        return min_u64(align_up(w->used + more, PLAT_HUGE_PAGE), w->limit) / SLOT_BYTES *
               SLOT_BYTES;
}

/* … and how long it may be by what is free. */
static uint64_t allowed(const struct pool *p, const struct ahead *a)
{
        struct plat_stat st;
        if (plat->fstat(p->media->fd, &st))
                return 0;
        uint64_t memory = plat->memory_free();
        memory -= min_u64(plat->memory_bytes() / RESERVED, memory / 8);
        uint64_t untaken = a->bytes - a->taken;
        uint64_t most = min_u64(memory, st.room);
        most = most > UINT64_MAX - untaken ? UINT64_MAX : most + untaken;
        return a->taken + most / 2 / PLAT_HUGE_PAGE * PLAT_HUGE_PAGE;
}

/* One step. True if another one is to follow at once. */
static bool work(struct pool *p, const struct warm_up *w)
{
        struct media *m = p->media;
        struct ahead a = media_ahead(m);
        uint64_t goal = min_u64(wanted(w, &a), allowed(p, &a));
        goal = max_u64(goal, a.taken);
        if (a.bytes > goal + LEAST_BYTES && !w->resident) {
                m->ops->cool(m, goal);
                return false;
        }
        if (goal <= a.bytes && a.touched >= a.bytes)
                return false;
        return m->ops->warm(m, goal) > 0;
}

/* The lock is held. Until it is told something new; if it has to follow what the program has in
 * memory, until the next look at that. */
static void wait_for_news(struct warm_up *w, uint64_t *look_ns)
{
        uint64_t told = w->told;
        uint64_t until_ns = plat->now_ns() + *look_ns;
        struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        int rc = 0;
        while (rc == 0 && !w->stopping && w->told == told)
                rc = w->resident ? pthread_cond_timedwait(&w->changed, &w->lock, &until)
                                 : pthread_cond_wait(&w->changed, &w->lock);
        *look_ns = w->told == told ? min_u64(2 * *look_ns, LATER_NS) : SOON_NS;
}

static void *run(void *arg)
{
        struct pool *p = arg;
        struct warm_up *w = &p->warm;
        uint64_t look_ns = SOON_NS;
        pthread_mutex_lock(&w->lock);
        while (!w->stopping) {
                struct warm_up now = {.used = w->used,
                                      .more = w->more,
                                      .limit = w->limit,
                                      .resident = w->resident};
                uint64_t told = w->told;
                pthread_mutex_unlock(&w->lock);
                while (atomic_load(&w->held))
                        plat->sleep_ns(HELD_NS);
                bool more = work(p, &now);
                pthread_mutex_lock(&w->lock);
                atomic_store(&w->busy, more || w->told != told);
                if (more)
                        look_ns = SOON_NS;
                else if (!w->stopping && w->told == told)
                        wait_for_news(w, &look_ns);
        }
        pthread_mutex_unlock(&w->lock);
        return NULL;
}

/* ---- what it is told ------------------------------------------------------------------------- */

void pool_expect(struct pool *p, const struct expectation *e)
{
        struct warm_up *w = &p->warm;
        if (!warms(p))
                return;
        uint64_t used = (p->space.slots - p->space.free) * SLOT_BYTES;
        uint64_t more = min_u64(e->bytes, MAX_POOL_BYTES);
        /* Old versions leave before the next is begun. */
        if (p->options.replace && !p->draft)
                used = min_u64(used, FIRST_SLOT * SLOT_BYTES);
        /* Small pools need no thread, and nothing of this. */
        if (more < LEAST_BYTES && !w->running)
                return;
        uint64_t limit = pool_byte_limit(p);
        /* Addresses cost nothing: enough for all versions at once. */
        uint64_t reach = min_u64(used + more * (p->options.versions + 2) + 2 * LEAST_BYTES, limit);
        p->media->ops->reach(p->media, align_up(reach, PLAT_HUGE_PAGE));
        pthread_mutex_lock(&w->lock);
        w->told++;
        atomic_store(&w->busy, w->running);
        w->used = used;
        w->more = more;
        w->limit = limit;
        w->resident = e->resident;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
}

void pool_warm_up(struct pool *p)
{
        struct warm_up *w = &p->warm;
        if (!warms(p) || w->running || w->told == 0)
                return;
        struct ahead a = media_ahead(p->media);
        if (w->used + w->more < max_u64(a.bytes, a.touched) + LEAST_BYTES &&
            a.bytes < a.touched + LEAST_BYTES)
                return;
        w->running = plat->thread_start(run, p, &w->thread) == 0;
}

bool pool_is_warming(const struct pool *p)
{
        return atomic_load(&p->warm.busy);
}
