/* media_mapped.c: the pool as mapped memory: tmpfs, persistent memory, or any file through the page
 * cache.
 *
 * Writes are stores. Every byte of the mapping is backed before it is stored to (media_extend), so
 * a full file system is an error and not a fault. Reads go through the file: the kernel reports an
 * I/O error there as a result, where a load would be a fault. A store for which the file has no
 * page after all, because somebody cut it off, is a failed write (faults_guard); the mapping is
 * made anew before the next version.
 *
 * Space ahead of need
 *  Where the file system is memory, another thread than the pool's extends the file and gives the
 *  mapping its pages before a growth asks for them (warm_up.c). The two meet in two locks: `work` is
 *  held by whoever extends or cuts the file or changes the mapping, which takes milliseconds, and
 *  `state` to read or change how far it is. So a growth that is ahead waits for nobody, and one that
 *  is not waits for the step that is being made, which may be just what it needs. The mapping is
 *  longer than the file where more is expected: it need not move then, and the thread that warms
 *  never moves it.
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

/* What the other thread extends the file by at a time: half a millisecond in huge pages, 2 in small
 * ones; and several times that where the machine's memory is used for the first time. */
#define STEP_BYTES (UINT64_C(4) << 20)
/* … and maps: whoever changes mappings, as fork() and the freeze do, waits for it. */
#define TOUCH_BYTES (UINT64_C(2) << 20)

/* Whether huge pages are had at all, and for less than small ones: a virtual machine may have to ask
 * its host for every page that is large and free, and has small ones at hand. */
struct paging {
        uint32_t failed;  /* steps in a row that got no huge pages     */
        uint32_t steps;   /* in all                                    */
        uint64_t cost[2]; /* ns per MiB, small and huge; 0: not known  */
};

struct mapped_media {
        struct media m;
        uint8_t *map;
        uint64_t map_bytes;
        bool persistent;      /* memory, reached by pmem                          */
        bool unsynced;        /* the file has changed otherwise than by the mapping */
        bool caught;          /* faults_catch_lost has been called                  */
        bool patched;         /* a part of the mapping is not the file any more     */
        struct paging paging; /* with `work` held */
        struct plat_pmem pmem;
        bool active[TRANSFERS];
        int result[TRANSFERS];
        pthread_mutex_t work, state; /* in this order */
        _Atomic uint32_t waiting;    /* for `work`: the pool's thread */
        struct ahead ahead;          /* under `state`; changed with `work` held, but for `taken` */
};

/* ---- transfers ---- */

static int mapped_write(struct media *m, const void *from, uint32_t bytes, uint64_t offset,
                        uint32_t tag)
{
        struct mapped_media *d = (struct mapped_media *)m;
        uint64_t end = min_u64(m->bytes, d->map_bytes);
        if (offset > end || bytes > end - offset)
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

/* ---- growth, in the pool's thread ---- */

/* The mutex is not fair: the other thread looks at `waiting` before each of its steps. */
static void begin_work(struct mapped_media *d)
{
        atomic_fetch_add(&d->waiting, 1);
        pthread_mutex_lock(&d->work);
        atomic_fetch_sub(&d->waiting, 1);
}

static void end_work(struct mapped_media *d)
{
        pthread_mutex_unlock(&d->work);
}

static void mapped_ahead(struct media *m, struct ahead *out)
{
        struct mapped_media *d = (struct mapped_media *)m;
        pthread_mutex_lock(&d->state);
        *out = d->ahead;
        pthread_mutex_unlock(&d->state);
}

static void set_ahead(struct mapped_media *d, struct ahead a)
{
        pthread_mutex_lock(&d->state);
        d->ahead = a;
        pthread_mutex_unlock(&d->state);
}

/* A growth that is ahead. False if it is not, or somebody has cut it off. */
static bool take_ahead(struct mapped_media *d, uint64_t bytes)
{
        struct media *m = &d->m;
        struct plat_stat st;
        if (bytes <= m->bytes || bytes > d->map_bytes || d->patched)
                return false;
        pthread_mutex_lock(&d->state);
        bool taken = bytes <= d->ahead.bytes && m->bytes == d->ahead.taken;
        if (taken)
                d->ahead.taken = bytes;
        pthread_mutex_unlock(&d->state);
        if (!taken)
                return false;
        if (plat->fstat(m->fd, &st) || st.bytes < bytes) {
                pthread_mutex_lock(&d->state);
                d->ahead.taken = m->bytes;
                pthread_mutex_unlock(&d->state);
                return false;
        }
        m->bytes = bytes;
        return true;
}

/* A mapping in pieces, one of them not the file's, cannot be enlarged: it is made anew. So is one that
 * is too short to be where huge pages can be. */
static int remap(struct mapped_media *d, uint64_t bytes)
{
        void *map;
        int rc = 0;
        bool first_huge =
                d->m.in_memory && d->map_bytes < PLAT_HUGE_PAGE && bytes >= PLAT_HUGE_PAGE;
        if (d->map && !d->patched && !first_huge) {
                rc = plat->mremap(d->map, d->map_bytes, bytes, &map);
        } else {
                rc = d->persistent ? plat->pmem_map(d->m.fd, bytes, &d->pmem, &map)
                                   : plat->mmap(d->m.fd, bytes, &map);
                if (rc == 0 && d->map)
                        (void)plat->munmap(d->map, d->map_bytes);
        }
        if (rc)
                return rc;
        d->map = map;
        d->map_bytes = bytes;
        d->patched = false;
        if (d->m.in_memory)
                (void)plat->madvise_huge(map, bytes);
        return 0;
}

#define MOST_FAILED 4u
#define TRY_OTHER   16u /* steps; the other kind may be the cheaper one now */

static bool prefer_huge(const struct paging *p)
{
        bool huge = p->cost[1] == 0 || (p->cost[0] && p->cost[1] <= p->cost[0]);
        if (p->failed >= MOST_FAILED)
                return false;
        return p->steps % TRY_OTHER == TRY_OTHER - 1 ? !huge : huge;
}

static void note_cost(struct paging *p, bool huge, uint64_t bytes, uint64_t ns)
{
        uint64_t *cost = &p->cost[huge];
        uint64_t now = max_u64(ns / max_u64(bytes >> 20, 1), 1);
        if (bytes < STEP_BYTES / 2)
                return;
        *cost = *cost ? (*cost + now) / 2 : now;
        p->steps++;
}

/* Before [from, to) is reserved: huge pages, a sixth of the work where memory is at hand. The kernel
 * makes one of any 2 MiB that have a page, and maps it, also where it would not by itself (unless
 * the administrator denies it), so each gets its last page first. Whatever fails is left to the
 * reservation. With `work` held. */
static bool make_huge(struct mapped_media *d, uint64_t from, uint64_t to)
{
        from = align_up(from, PLAT_HUGE_PAGE);
        to = min_u64(to, d->map_bytes);
        to -= to % PLAT_HUGE_PAGE;
        if (from >= to || !prefer_huge(&d->paging) || (uintptr_t)d->map % PLAT_HUGE_PAGE)
                return false;
        int rc = 0;
        for (uint64_t at = from; rc == 0 && at < to; at += PLAT_HUGE_PAGE)
                rc = plat->fallocate(d->m.fd, at + PLAT_HUGE_PAGE - PLAT_PAGE, PLAT_PAGE);
        if (rc == 0)
                rc = plat->collapse(d->map + from, to - from);
        d->paging.failed = rc ? d->paging.failed + 1 : 0;
        return rc == 0;
}

/* Gives the mapping its pages: much less than a fault for each. Where the kernel cannot, they fault
 * as they are written. */
static int touch(struct mapped_media *d, uint64_t from, uint64_t to)
{
        int rc = 0;
        to = min_u64(to, d->map_bytes);
        for (from -= from % PLAT_PAGE; rc == 0 && from < to; from += TOUCH_BYTES)
                rc = plat->populate(d->map + from, min_u64(TOUCH_BYTES, to - from));
        return rc == -EFAULT ? rc : 0;
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

/* All that is ahead is the pool's then, or nothing of it if somebody has cut it off. */
static void take_all(struct mapped_media *d)
{
        struct media *m = &d->m;
        struct plat_stat st;
        struct ahead a;
        mapped_ahead(m, &a);
        if (a.bytes > m->bytes && plat->fstat(m->fd, &st) == 0 && st.bytes >= a.bytes)
                m->bytes = a.bytes;
}

/* With `work` held. */
static int grow_here(struct mapped_media *d, uint64_t bytes)
{
        struct media *m = &d->m;
        uint64_t before = m->bytes;
        uint64_t start = plat->now_ns();
        bool huge = false;
        int rc = 0;
        take_all(d);
        uint64_t from = m->bytes;
        if (bytes > d->map_bytes && m->in_memory && !d->patched)
                (void)remap(d, bytes);
        if (bytes > m->bytes && m->in_memory && m->reserve && media_measure(m) == 0)
                huge = make_huge(d, m->bytes, bytes);
        /* A file that was extended and then could not be mapped stays so; the next growth finds it.
         */
        if (bytes > m->bytes) {
                d->unsynced = true;
                rc = media_extend(m, bytes, true);
        }
        if (rc == 0 && d->persistent)
                rc = mapped_barrier(m);
        if (rc == 0 && (m->bytes > d->map_bytes || d->patched))
                rc = remap(d, m->bytes);
        if (rc == 0 && m->in_memory) {
                (void)touch(d, before, m->bytes);
                note_cost(&d->paging, huge, m->bytes - from, plat->now_ns() - start);
        }
        struct ahead a;
        mapped_ahead(m, &a);
        set_ahead(d, (struct ahead){m->bytes, m->bytes,
                                    a.touched >= before && rc == 0 ? m->bytes
                                                                   : min_u64(a.touched, before)});
        return rc;
}

static int mapped_grow(struct media *m, uint64_t bytes)
{
        struct mapped_media *d = (struct mapped_media *)m;
        if (take_ahead(d, bytes))
                return 0;
        begin_work(d);
        int rc = take_ahead(d, bytes) ? 0 : grow_here(d, bytes);
        end_work(d);
        return rc;
}

static void mapped_reach(struct media *m, uint64_t bytes)
{
        struct mapped_media *d = (struct mapped_media *)m;
        if (bytes <= d->map_bytes || d->patched)
                return;
        begin_work(d);
        (void)remap(d, bytes); /* without it the pages of a growth fault as they are written */
        end_work(d);
}

/* ---- ahead of need, in another thread ---- */

/* What is ahead is given back from `bytes` on. A file that somebody has cut off stays so. */
static void cut_off(struct mapped_media *d, uint64_t bytes)
{
        struct plat_stat st;
        if (plat->fstat(d->m.fd, &st) == 0 && st.bytes > bytes)
                (void)plat->ftruncate(d->m.fd, bytes);
}

/* With `work` held. The pages are there before the space counts. */
static int extend_ahead(struct mapped_media *d, struct ahead a, uint64_t to)
{
        struct plat_stat st;
        int rc = plat->fstat(d->m.fd, &st);
        if (rc == 0 && st.bytes < a.bytes)
                rc = BELAY_E_DATA; /* cut off: the pool's thread will find it */
        if (rc)
                return rc;
        uint64_t start = plat->now_ns();
        bool huge = make_huge(d, a.bytes, to);
        rc = plat->fallocate(d->m.fd, a.bytes, to - a.bytes);
        if (rc) {
                cut_off(d, a.bytes);
                return rc;
        }
        plat_point("pool.ahead");
        rc = touch(d, a.bytes, to);
        if (rc)
                return rc;
        note_cost(&d->paging, huge, to - a.bytes, plat->now_ns() - start);
        pthread_mutex_lock(&d->state);
        d->ahead.touched = d->ahead.touched == d->ahead.bytes ? to : d->ahead.touched;
        d->ahead.bytes = to;
        pthread_mutex_unlock(&d->state);
        return 0;
}

static int mapped_warm(struct media *m, uint64_t upto)
{
        struct mapped_media *d = (struct mapped_media *)m;
        struct ahead a;
        int rc = 0;
        while (atomic_load(&d->waiting))
                plat->sleep_ns(20000);
        pthread_mutex_lock(&d->work);
        mapped_ahead(m, &a);
        if (a.touched < a.bytes) {
                uint64_t to = min_u64(a.touched + STEP_BYTES, a.bytes);
                rc = touch(d, a.touched, to);
                a.touched = to;
                pthread_mutex_lock(&d->state);
                d->ahead.touched = to;
                pthread_mutex_unlock(&d->state);
        } else if (a.bytes < upto) {
                uint64_t to = a.bytes + STEP_BYTES;
                rc = extend_ahead(d, a, min_u64(upto, to - to % PLAT_HUGE_PAGE));
        }
        end_work(d);
        return rc ? rc : a.touched < a.bytes || a.bytes < upto;
}

static void mapped_cool(struct media *m, uint64_t keep)
{
        struct mapped_media *d = (struct mapped_media *)m;
        pthread_mutex_lock(&d->work);
        pthread_mutex_lock(&d->state);
        keep = max_u64(keep, d->ahead.taken);
        bool less = keep < d->ahead.bytes;
        if (less) {
                d->ahead.bytes = keep;
                d->ahead.touched = min_u64(d->ahead.touched, keep);
        }
        pthread_mutex_unlock(&d->state);
        if (less)
                cut_off(d, keep);
        end_work(d);
}

/* ---- the life of a mapping ---- */

static int mapped_ready(struct media *m)
{
        struct mapped_media *d = (struct mapped_media *)m;
        /* If that fails, a file that is cut off ends the program. Where the program's sigaction()
         * comes to the library, once is enough. */
        if (!d->caught || !plat_before_libc)
                d->caught = faults_catch_lost() == 0;
        if (!d->patched)
                return 0;
        begin_work(d);
        int rc = remap(d, m->bytes);
        end_work(d);
        return rc;
}

static int mapped_close(struct media *m)
{
        struct mapped_media *d = (struct mapped_media *)m;
        if (d->ahead.bytes > d->ahead.taken)
                cut_off(d, d->ahead.taken);
        int rc = d->map ? plat->munmap(d->map, d->map_bytes) : 0;
        pthread_mutex_destroy(&d->state);
        pthread_mutex_destroy(&d->work);
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
        .ahead = mapped_ahead,
        .reach = mapped_reach,
        .warm = mapped_warm,
        .cool = mapped_cool,
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
        pthread_mutex_init(&d->work, NULL);
        pthread_mutex_init(&d->state, NULL);
        d->ahead = (struct ahead){.bytes = m.bytes, .taken = m.bytes};
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
