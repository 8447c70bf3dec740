/* outcome.c: which versions there are, and what became of the last one. It never asks the pool,
 * which belongs to whoever commits. */
#include "engine/engine_int.h"
#include <errno.h>

void outcome_list_versions(struct outcome *o, struct pool *pool)
{
        o->listed_count = pool_version_count(pool);
        for (uint32_t i = 0; i < o->listed_count; i++)
                o->listed[i] = pool_version(pool, i)->number;
}

static bool is_listed(const struct outcome *o, uint64_t version)
{
        for (uint32_t i = 0; i < o->listed_count; i++)
                if (o->listed[i] == version)
                        return true;
        return false;
}

uint64_t engine_newest(struct engine *e)
{
        workers_lock(&e->workers);
        const struct outcome *o = &e->outcome;
        uint64_t newest = o->listed_count ? o->listed[o->listed_count - 1] : 0;
        newest = max_u64(newest, o->last.version);
        workers_unlock(&e->workers);
        return newest;
}

int engine_wait(struct engine *e, uint64_t version, uint64_t timeout_ns)
{
        int open = engine_whole(e);
        if (open)
                return open;
        uint64_t now = plat->now_ns();
        uint64_t until_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
        int rc = 0;
        workers_lock(&e->workers);
        while (rc == 0 && e->outcome.committing &&
               (version == 0 || version == e->outcome.last.version))
                rc = workers_wait(&e->workers, until_ns);
        struct version_status last = e->outcome.last;
        bool listed = is_listed(&e->outcome, version);
        workers_unlock(&e->workers);
        if (rc == -ETIMEDOUT)
                return err_set(rc, "version %llu is still being flushed",
                               (unsigned long long)last.version);
        if (last.state == STATE_FAILED && (version == 0 || version == last.version))
                return err_restore(last.code, last.text);
        if (version && version != last.version && !listed)
                return err_set(-ENOENT, "there is no version %llu", (unsigned long long)version);
        return rc;
}

void engine_status(struct engine *e, uint64_t version, struct version_status *out)
{
        workers_lock(&e->workers);
        if (version == 0 || version == e->outcome.last.version)
                *out = e->outcome.last;
        else
                *out = (struct version_status){.version = version, .state = STATE_PUBLISHED};
        /* Newer ones may have taken its place. */
        if (out->state == STATE_PUBLISHED && !is_listed(&e->outcome, out->version))
                out->state = STATE_NONE;
        workers_unlock(&e->workers);
}

void engine_stats(struct engine *e, struct epoch_stats *last, uint64_t *published, uint64_t *failed,
                  uint64_t *total_written)
{
        workers_lock(&e->workers);
        *last = e->outcome.stats;
        *published = e->outcome.published;
        *failed = e->outcome.failed;
        *total_written = e->outcome.total_written;
        workers_unlock(&e->workers);
}

void engine_pool_info(struct engine *e, struct pool_info *out)
{
        workers_lock(&e->workers);
        if (!e->outcome.committing && !e->precopy.at_work)
                pool_info(e->pool, &e->outcome.info);
        *out = e->outcome.info;
        workers_unlock(&e->workers);
}
