/* level_copy.c: the second level: a plain pool in another directory, on another file system, that
 * a thread keeps up with what is published. It survives the loss of the first.
 *
 *     published ─► wanted ─► the thread: open the pool for reading ─► copy_version ─► taken
 *                    ▲                                                    │
 *                    └───────────── a newer one meanwhile ────────────────┘
 *
 * Versions that are published while one is copied are passed over: the newest counts. The thread
 * reads the pool as any other process would, through its own descriptor, and never waits for the
 * engine, nor the engine for it. */
#include "level/level_int.h"
#include <errno.h>
#include <stdio.h>

struct level_copy {
        struct level level;
        struct budget *budget;
        const struct pool *first;    /* the first pool, of which only the file is used … */
        struct pool_options source;  /* … by opening it for reading                      */
        struct pool *pool;           /* the copy: the thread's, except while it is read    */
        struct pool *before;         /* the first pool as it was when `taken` was copied … */
        const struct version *taken; /* … and that version in it                           */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint64_t wanted;  /* newest version that was published                               */
        uint64_t tried;   /* … that the thread has dealt with                                */
        uint32_t readers; /* the thread keeps away from the copy                             */
        bool pins;        /* what is copied, and what was copied last, is pinned in the pool */
        bool at_work, stopping, running;
        _Atomic bool cancel;
        plat_thread thread;
        struct log_queue messages;
        struct level_facts facts;
};

/* In the list of a pool there is room for what the copy pins, besides the last versions and the
 * confirmed one; and for the pin of somebody else. */
#define MOST_VERSIONS (MAX_VERSIONS - 4)

static struct level_copy *of(const struct level *l)
{
        return (struct level_copy *)(uintptr_t)l;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Of those that the copy lists, the newest that it has complete. */
static uint64_t newest_complete(const struct pool *p)
{
        for (uint32_t i = pool_version_count(p); i > 0; i--)
                if (version_usable(pool_version(p, i - 1)))
                        return pool_version(p, i - 1)->number;
        return 0;
}

static void forget_before(struct level_copy *c)
{
        (void)pool_close(&c->before);
        c->taken = NULL;
}

/* Copies the newest usable version. 1: there is none that the copy does not have. */
static int take_newest(struct level_copy *c, struct pool *source, struct draft_result *result)
{
        const struct version *v = NULL;
        struct pool_info mine;
        struct pool_info theirs;
        pool_info(c->pool, &mine);
        pool_info(source, &theirs);
        pool_confirm(c->pool, theirs.confirmed);
        for (uint32_t i = pool_version_count(source); i > 0 && !v; i--)
                if (version_usable(pool_version(source, i - 1)))
                        v = pool_version(source, i - 1);
        if (!v || v->number <= newest_complete(c->pool))
                return 1;
        if (v->number <= mine.newest)
                return err_set(-EEXIST,
                               "it has that version, and damaged; the next one can be copied");
        /* So that it can be copied however fast others follow. Where it cannot be pinned (a file
         * system without locks, a number that is too high) it is copied without. */
        int rc = c->pins ? pool_pin(source, v->number) : 0;
        if (rc == -ESTALE)
                return rc;
        struct reader_needs needs = {.largest = v->data_bytes};
        struct reader *reader;
        rc = reader_new(source, &needs, &reader);
        if (rc)
                return rc;
        /* What lies where it lay is the same only while that version was listed. */
        bool know = c->taken && pool_lists(c->before, c->taken) == 1;
        struct copy_request q = {.from = source,
                                 .to = c->pool,
                                 .reader = reader,
                                 .version = v,
                                 .same_number = true,
                                 .before = know ? c->taken : NULL,
                                 .stop = &c->cancel};
        rc = copy_version(&q, result);
        reader_delete(&reader);
        if (rc)
                return rc;
        forget_before(c);
        c->before = source;
        c->taken = v;
        return 0;
}

static int copy_once(struct level_copy *c, struct draft_result *result)
{
        struct pool *source = NULL;
        int rc = pool_open_beside(c->first, &c->source, &source);
        if (rc == 0)
                rc = take_newest(c, source, result);
        if (source != c->before)
                (void)pool_close(&source);
        return rc;
}

/* The lock is held. The first of several failures is said in the log: a program may run for days
 * before it closes the context. */
static void note(struct level_copy *c, int rc, const struct draft_result *result)
{
        struct pool_info info;
        if (rc == 0) {
                c->facts.newest = result->version;
                c->facts.taken++;
                c->facts.written_bytes += result->written_bytes;
                c->facts.data_bytes += result->data_bytes;
                c->facts.text[0] = '\0';
        } else if (rc < 0 && rc != -ECANCELED) {
                bool again = c->facts.text[0] != '\0';
                c->facts.failed++;
                printable(err_text(), c->facts.text, sizeof(c->facts.text));
                pool_info(c->pool, &info);
                if (!again)
                        log_emit(BELAY_LOG_WARN, "the copy '%s' does not get version %llu: %s",
                                 info.path, (unsigned long long)c->wanted, c->facts.text);
        }
}

#define ATTEMPTS 8

/* The lock is held. A version that left the pool while it was copied is not missed: there is a
 * newer one. */
static void work(struct level_copy *c)
{
        uint64_t wanted = c->wanted;
        struct draft_result result = {.version = 0};
        c->at_work = true;
        pthread_mutex_unlock(&c->lock);
        int rc = -ESTALE;
        for (int i = 0; i < ATTEMPTS && (rc == -ESTALE || rc == -EAGAIN); i++)
                rc = copy_once(c, &result);
        /* While nothing is copied the pool does not keep an old version for the copy: where space is
         * scarce that would cost a checkpoint. */
        if (rc < 0 && rc != -ECANCELED) {
                struct err_kept kept;
                err_keep(&kept);
                forget_before(c);
                (void)err_give_back(&kept);
        }
        pthread_mutex_lock(&c->lock);
        note(c, rc, &result);
        c->at_work = false;
        c->tried = rc == -ECANCELED ? c->tried : max_u64(c->tried, wanted);
        pthread_cond_broadcast(&c->changed);
}

static void *run(void *arg)
{
        struct level_copy *c = arg;
        log_queue_use(&c->messages);
        pthread_mutex_lock(&c->lock);
        while (!c->stopping) {
                if (c->wanted > c->tried && c->readers == 0)
                        work(c);
                else
                        pthread_cond_wait(&c->changed, &c->lock);
        }
        pthread_mutex_unlock(&c->lock);
        return NULL;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void published(struct level *level, uint64_t version)
{
        struct level_copy *c = of(level);
        pthread_mutex_lock(&c->lock);
        c->wanted = max_u64(c->wanted, version);
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
}

/* The lock is held. */
static void await_idle(struct level_copy *c)
{
        while (c->at_work)
                pthread_cond_wait(&c->changed, &c->lock);
}

static void end_reading(struct level *level)
{
        struct level_copy *c = of(level);
        pthread_mutex_lock(&c->lock);
        c->readers--;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
}

/* What is being copied is given up: it is copied again afterwards. */
static int begin_reading(struct level *level, bool placed)
{
        struct level_copy *c = of(level);
        pthread_mutex_lock(&c->lock);
        c->readers++;
        atomic_store(&c->cancel, true);
        await_idle(c);
        atomic_store(&c->cancel, false);
        pthread_mutex_unlock(&c->lock);
        int rc = level_reader_new(level, c->pool, placed);
        if (rc)
                end_reading(level);
        return rc;
}

static uint32_t version_count(const struct level *l)
{
        return pool_version_count(of(l)->pool);
}

static struct version *version(const struct level *l, uint32_t i)
{
        return pool_version(of(l)->pool, i);
}

static int read_blocks(struct level *l, const struct version *v, uint32_t region, uint64_t first,
                       uint64_t count, void *to, block_fn fn, void *arg)
{
        return reader_read_blocks(l->reader, v, region, first, count, to, fn, arg);
}

static struct pool *pool_in(struct level *l)
{
        return of(l)->pool;
}

/* Without memory to remember it, the version is not to be shared with at all. */
static void avoid_block(struct level *l, struct version *v, uint32_t region, uint64_t block)
{
        if (pool_avoid_block(of(l)->pool, v, region, block))
                pool_mark_damaged(of(l)->pool, v, "a block of it is damaged");
}

static void mark_damaged(struct level *l, struct version *v, const char *text)
{
        pool_mark_damaged(of(l)->pool, v, text);
}

/* Waits for the thread to try the newest version that was published, also if it has failed to copy
 * it before: that may be long ago, and whatever was in the way gone. BELAY_E_LEVEL: the copy does
 * not have it. The log hears of it, too: programs seldom look at what closing returns. */
static int await_newest(struct level_copy *c)
{
        pthread_mutex_lock(&c->lock);
        if (c->facts.newest < c->wanted)
                c->tried = c->facts.newest;
        pthread_cond_broadcast(&c->changed);
        while (c->running && (c->at_work || c->wanted > c->tried))
                pthread_cond_wait(&c->changed, &c->lock);
        struct level_facts f = c->facts;
        uint64_t wanted = c->wanted;
        pthread_mutex_unlock(&c->lock);
        if (f.newest >= wanted)
                return 0;
        struct pool_info info;
        pool_info(c->pool, &info);
        int rc = err_set(BELAY_E_LEVEL, "the copy '%s' lacks version %llu: %s", info.path,
                         (unsigned long long)wanted,
                         f.text[0] ? f.text : "it is not intact in the pool");
        log_emit(BELAY_LOG_WARN, "%s", err_text());
        return rc;
}

static void facts(struct level *level, struct level_facts *out)
{
        struct level_copy *c = of(level);
        pthread_mutex_lock(&c->lock);
        *out = c->facts;
        pthread_mutex_unlock(&c->lock);
}

static int close_level(struct level **level)
{
        struct level_copy *c = of(*level);
        *level = NULL;
        struct err_kept kept = {.code = 0};
        int lacking = await_newest(c);
        if (lacking)
                err_keep(&kept);
        if (c->running) {
                pthread_mutex_lock(&c->lock);
                c->stopping = true;
                pthread_cond_broadcast(&c->changed);
                pthread_mutex_unlock(&c->lock);
                (void)plat->thread_join(c->thread);
        }
        forget_before(c);
        int rc = pool_close(&c->pool);
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
        log_deliver(&c->messages);
        log_queue_destroy(&c->messages);
        budget_free(c->budget, c);
        return lacking ? err_give_back(&kept) : rc;
}

static const struct level_ops ops = {
        .size = sizeof(struct level_ops),
        .name = "copy",
        .begin_reading = begin_reading,
        .end_reading = end_reading,
        .version_count = version_count,
        .version = version,
        .read_blocks = read_blocks,
        .pool = pool_in,
        .avoid_block = avoid_block,
        .mark_damaged = mark_damaged,
        .published = published,
        .facts = facts,
        .close = close_level,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* The copy has the name of the pool. */
static int copy_path(const char *dir, const char *pool, char *path, size_t bytes)
{
        const char *slash = strrchr(pool, '/');
        int n = snprintf(path, bytes, "%s/%s", dir, slash ? slash + 1 : pool);
        return n < 0 || (size_t)n >= bytes
                       ? err_set(-ENAMETOOLONG, "option copy: the path of the copy is too long")
                       : 0;
}

/* Both pools hold versions of the same data, which their common id says. A pool that is new, since
 * the old one was lost, becomes the one that the copy is of; also one that was just being made from
 * the copy when the machine stopped, and has a superblock that lists nothing. */
static int agree(struct pool *pool, struct level_copy *c, const char *path)
{
        struct pool_info first;
        struct pool_info copy;
        pool_info(pool, &first);
        pool_info(c->pool, &copy);
        if (memcmp(first.id, copy.id, sizeof(first.id)) == 0)
                return 0;
        if (copy.newest == 0)
                return pool_take_id(c->pool, first.id);
        if (first.newest == 0 && !first.lost_listed)
                return pool_take_id(pool, copy.id);
        return err_set(-EEXIST,
                       "option copy: '%s' has versions of another pool than '%s'; name another "
                       "directory, or move that file away",
                       path, first.path);
}

static int same_file_refused(const char *path, struct pool *pool, int rc)
{
        struct pool_info first;
        pool_info(pool, &first);
        return rc == -EBUSY
                       ? err_wrap(rc, "option copy: the copy of '%s' cannot be opened", first.path)
                       : err_wrap(rc, "option copy, '%s'", path);
}

int level_copy_open(struct pool *pool, const struct level_options *o, struct level **out)
{
        char path[4096];
        int rc = copy_path(o->copy, o->pool.path, path, sizeof(path));
        if (rc)
                return rc;
        struct level_copy *c = budget_alloc(o->pool.budget, sizeof(*c), "the levels");
        if (!c)
                return -ENOMEM;
        c->level.ops = &ops;
        log_queue_init(&c->messages);
        c->level.messages = &c->messages;
        c->budget = o->pool.budget;
        c->facts.name = ops.name;
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->changed, NULL);
        c->first = pool;
        c->source = o->pool;
        c->source.probes = NULL;
        /* A checkpoint must not fail for lack of space, or of room in the list. */
        c->pins = !o->pool.replace && o->pool.limit_bytes == 0 && o->pool.versions <= MOST_VERSIONS;
        struct pool_options copy = o->pool;
        copy.path = path;
        copy.replace = false;
        copy.rate = copy.device_rate = copy.latency_ns = 0;
        copy.media = 0;
        rc = pool_open(&copy, &c->pool);
        rc = rc ? same_file_refused(path, pool, rc) : agree(pool, c, path);
        struct level *level = &c->level;
        if (rc == 0) {
                struct pool_info first;
                struct pool_info info;
                pool_info(pool, &first);
                pool_info(c->pool, &info);
                c->facts.newest = newest_complete(c->pool);
                c->facts.next = info.next;
                c->wanted = first.newest;
                c->tried = c->facts.newest;
                rc = plat->thread_start(run, c, &c->thread);
                c->running = rc == 0;
                if (rc)
                        (void)err_set(rc, "the thread of option copy cannot be started: %s",
                                      code_text(rc));
        }
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                c->wanted = 0;
                (void)close_level(&level);
                return err_give_back(&kept);
        }
        *out = level;
        return 0;
}
