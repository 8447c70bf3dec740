/* levels.c: the list of levels: which of them has a version, and reading from the first that can. */
#include "level/level_int.h"
#include <errno.h>

/* The number alone could be that of another run. */
bool same_version(const struct version *a, const struct version *b)
{
        return a->number == b->number && a->frozen_ns == b->frozen_ns &&
               a->data_bytes == b->data_bytes && a->region_count == b->region_count;
}

/* A pool that was lost is made anew from what another level has. */
static int make_anew(struct levels *l)
{
        struct placed at;
        struct pool_info info;
        pool_info(l->pool, &info);
        if (l->count < 2 || info.newest || info.lost || pool_lost(l->pool))
                return 0;
        int rc = levels_begin_reading(l, false);
        for (uint64_t below = 0; rc == 0 && levels_newest(l, below, &at);) {
                below = at.version->number;
                if (!version_usable(at.version))
                        continue;
                rc = levels_bring_back(l, &at, true);
                if (rc == BELAY_E_DATA) {
                        at.level->ops->mark_damaged(at.level, at.version, err_text());
                        rc = 0;
                        continue;
                }
                break;
        }
        levels_end_reading(l);
        return rc;
}

/* Numbers go on where any level ends: one that has been lost in the pool is not used again. */
static int go_on(struct levels *l)
{
        int rc = 0;
        for (uint32_t i = 1; rc == 0 && i < l->count; i++) {
                struct level_facts f; /* its versions are those of its thread */
                l->list[i]->ops->facts(l->list[i], &f);
                rc = pool_number_from(l->pool, f.next);
        }
        return rc;
}

int levels_open(struct levels *l, const struct level_options *o)
{
        struct level *level = NULL;
        *l = (struct levels){.events = {.fd = -1}};
        int rc = pool_open(&o->pool, &l->pool);
        if (rc == BELAY_E_DATA && o->copy[0])
                return err_wrap(rc,
                                "the pool cannot be opened; to go on from its copy in '%s', "
                                "move it away",
                                o->copy);
        if (rc)
                return rc;
        rc = level_pool_open(l->pool, o->pool.budget, &level);
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                (void)pool_close(&l->pool);
                return err_give_back(&kept);
        }
        l->list[l->count++] = level;
        events_open(&l->events, o->events, l->pool);
        if (o->copy[0])
                rc = level_copy_open(l->pool, o, &level);
        if (rc == 0 && o->copy[0])
                l->list[l->count++] = level;
        if (rc == 0)
                rc = make_anew(l);
        if (rc == 0)
                rc = go_on(l);
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                (void)levels_close(l);
                return err_give_back(&kept);
        }
        return 0;
}

int levels_close(struct levels *l)
{
        int first = 0;
        struct err_kept kept = {.code = 0};
        /* Never opened: descriptor 0 of `events` would be the program's own. */
        if (!l->pool)
                return 0;
        /* Those behind read the pool: it goes last. */
        while (l->count > 0) {
                struct level **level = &l->list[--l->count];
                int rc = (*level)->ops->close(level);
                if (rc && !first) {
                        first = rc;
                        err_keep(&kept);
                }
        }
        events_close(&l->events);
        l->pool = NULL;
        return first ? err_give_back(&kept) : 0;
}

void levels_published(struct levels *l, uint64_t version)
{
        for (uint32_t i = 0; i < l->count; i++)
                if (l->list[i]->ops->published)
                        l->list[i]->ops->published(l->list[i], version);
        events_send(&l->events, EVENT_PUBLISHED, version, 0);
}

void levels_failed(struct levels *l, uint64_t version, int code)
{
        events_send(&l->events, EVENT_FAILED, version, code);
}

void levels_facts(struct levels *l, const char *name, struct level_facts *out)
{
        *out = (struct level_facts){.name = name};
        for (uint32_t i = 0; i < l->count; i++)
                if (strcmp(l->list[i]->ops->name, name) == 0)
                        l->list[i]->ops->facts(l->list[i], out);
}

void levels_messages(struct levels *l)
{
        for (uint32_t i = 0; i < l->count; i++)
                if (l->list[i]->messages)
                        log_deliver(l->list[i]->messages);
}

static uint64_t newest_usable(const struct level *level)
{
        for (uint32_t i = level->ops->version_count(level); i > 0; i--)
                if (version_usable(level->ops->version(level, i - 1)))
                        return level->ops->version(level, i - 1)->number;
        return 0;
}

/* A level that cannot be read, for lack of memory, is left out if the pool has all that it has. Else
 * a restart would take an older version for the newest one, or say that there is none. */
static int leave_out(const struct levels *l, struct level *level, int rc)
{
        struct level_facts f;
        level->ops->facts(level, &f);
        if (f.newest > newest_usable(l->list[0]))
                return err_wrap(rc,
                                "the %s has version %llu, which the pool has not, and cannot be "
                                "read",
                                level->ops->name, (unsigned long long)f.newest);
        log_emit(BELAY_LOG_WARN, "the %s cannot be read: %s", level->ops->name, err_text());
        return 0;
}

int levels_begin_reading(struct levels *l, bool placed)
{
        for (uint32_t i = 0; i < l->count; i++) {
                struct level *level = l->list[i];
                level->all = l;
                int rc = level->ops->begin_reading(level, placed);
                level->readable = rc == 0;
                if (rc && i > 0)
                        rc = leave_out(l, level, rc);
                if (rc)
                        return rc;
        }
        return 0;
}

void levels_end_reading(struct levels *l)
{
        for (uint32_t i = 0; i < l->count; i++) {
                struct level *level = l->list[i];
                reader_delete(&level->reader);
                if (level->readable)
                        level->ops->end_reading(level);
                level->readable = false;
        }
}

static struct version *find_in(const struct level *level, uint64_t number)
{
        for (uint32_t i = 0; level->readable && i < level->ops->version_count(level); i++)
                if (level->ops->version(level, i)->number == number)
                        return level->ops->version(level, i);
        return NULL;
}

bool levels_find(const struct levels *l, uint64_t number, struct placed *out)
{
        struct placed found = {NULL, NULL};
        for (uint32_t i = 0; i < l->count; i++) {
                struct version *v = find_in(l->list[i], number);
                bool better = v && (!found.version ||
                                    (version_usable(v) && !version_usable(found.version)));
                if (better)
                        found = (struct placed){l->list[i], v};
        }
        if (found.version)
                *out = found;
        return found.version != NULL;
}

bool levels_newest(const struct levels *l, uint64_t below, struct placed *out)
{
        uint64_t newest = 0;
        for (uint32_t i = 0; i < l->count; i++) {
                const struct level *level = l->list[i];
                for (uint32_t k = 0; level->readable && k < level->ops->version_count(level); k++) {
                        uint64_t number = level->ops->version(level, k)->number;
                        if (number > newest && (below == 0 || number < below))
                                newest = number;
                }
        }
        return newest && levels_find(l, newest, out);
}

bool levels_next(const struct levels *l, struct placed *at)
{
        uint32_t i = 0;
        while (l->list[i] != at->level)
                i++;
        for (i++; i < l->count; i++) {
                struct version *v = find_in(l->list[i], at->version->number);
                if (!v || !version_usable(v))
                        continue;
                *at = (struct placed){l->list[i], v};
                return true;
        }
        return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Another level may have a block that is damaged in this one. */
static int fetch_from(struct level *level, const struct version *mine, const struct region_desc *d,
                      uint64_t block, void *to)
{
        const struct version *v = find_in(level, mine->number);
        int64_t at =
                v && version_usable(v) && same_version(v, mine) ? version_find(v, d->name) : -1;
        if (at < 0 || !region_desc_same(&v->regions[at]->desc, d))
                return -ENOENT;
        return level->ops->read_blocks(level, v, (uint32_t)at, block, 1, to, NULL, NULL);
}

static int fetch(void *arg, const struct version *v, const struct region_desc *d, uint64_t block,
                 struct hash128 expected, void *to, uint32_t bytes)
{
        struct level *here = arg;
        const struct levels *l = here->all;
        struct err_kept kept;
        err_keep(&kept);
        for (uint32_t i = 0; i < l->count; i++) {
                struct level *level = l->list[i];
                if (level == here || level->asked || !level->readable)
                        continue;
                here->asked = true; /* or two levels would ask each other for ever */
                int rc = fetch_from(level, v, d, block, to);
                here->asked = false;
                if (rc || !hash_equal(hash_block(d->hash, to, bytes), expected))
                        continue;
                log_emit(BELAY_LOG_WARN, "%s: it is taken from the %s", kept.text,
                         level->ops->name);
                struct version *mine = find_in(here, v->number);
                int64_t at = mine ? version_find(mine, d->name) : -1;
                if (at >= 0)
                        here->ops->avoid_block(here, mine, (uint32_t)at, block);
                return 0;
        }
        return err_give_back(&kept);
}

int level_reader_new(struct level *l, struct pool *pool, bool placed)
{
        struct reader_needs needs = {.placed = placed};
        for (uint32_t i = 0; i < pool_version_count(pool); i++) {
                const struct version *v = pool_version(pool, i);
                for (uint32_t k = 0; k < v->region_count; k++)
                        needs.largest = max_u64(needs.largest, v->regions[k]->desc.bytes);
        }
        int rc = reader_new(pool, &needs, &l->reader);
        if (rc == 0 && l->all->count > 1)
                reader_set_fetch(l->reader, fetch, l);
        return rc;
}

int placed_read_region(const struct placed *at, uint32_t region, void *to)
{
        uint64_t count = region_blocks(&at->version->regions[region]->desc);
        return at->level->ops->read_blocks(at->level, at->version, region, 0, count, to, NULL,
                                           NULL);
}

/* ---- back into the pool ---------------------------------------------------------------------- */

/* The pool that a level is made of. */
static struct pool *source_of(struct level *level)
{
        return level->ops->pool ? level->ops->pool(level) : NULL;
}

int levels_bring_back(struct levels *l, struct placed *at, bool same_number)
{
        static const _Atomic bool never = false;
        struct draft_result result;
        struct copy_request q = {.from = source_of(at->level),
                                 .to = l->pool,
                                 .reader = at->level->reader,
                                 .version = at->version,
                                 .same_number = same_number,
                                 .stop = &never};
        struct pool_info info = {.confirmed = 0};
        if (!q.from)
                return err_set(-EOPNOTSUPP, "the %s cannot give a version back to the pool",
                               at->level->ops->name);
        pool_info(q.from, &info);
        pool_confirm(l->pool, info.confirmed);
        int rc = copy_version(&q, &result);
        if (rc)
                return err_wrap(rc, "version %llu cannot be brought back from the %s",
                                (unsigned long long)at->version->number, at->level->ops->name);
        log_emit(BELAY_LOG_WARN,
                 "version %llu was brought back to the pool from the %s, as version %llu",
                 (unsigned long long)at->version->number, at->level->ops->name,
                 (unsigned long long)result.version);
        *at = (struct placed){l->list[0], pool_find_version(l->pool, result.version)};
        return 0;
}
