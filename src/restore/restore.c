/* restore.c: the newest version that can be restored, placed into the regions.
 *
 * Order of business for one candidate: does it fit the regions (nothing touched); optionally, is
 * every block intact (nothing touched); then resize where allowed, and place block by block, each
 * verified; a damaged block is fetched from another level. A candidate that turns out to be damaged
 * is marked so, and the same version is tried in the next level, then the next older one. */
#include "restore/restore_int.h"
#include <errno.h>

struct old_dims {
        uint64_t dims[BELAY_MAX_DIMS];
};

/* What one attempt works on. */
struct attempt {
        struct levels *levels;
        struct placed at;
        struct regions *regions;
        const struct restore_request *q;
        struct match *match;
        bool *touched;
};

static int verify(struct attempt *a)
{
        const struct version *v = a->at.version;
        for (uint32_t i = 0; i < v->region_count; i++) {
                if (!region_find(a->regions, v->regions[i]->desc.name))
                        continue;
                int rc = placed_read_region(&a->at, i, NULL);
                if (rc)
                        return rc;
        }
        return 0;
}

/* Gives regions the stored dims: all that grow, or all that shrink, up to the region `end` of the
 * version. */
static int reshape(const struct version *v, struct regions *regions, bool grow, uint32_t *end)
{
        for (*end = 0; *end < v->region_count; (*end)++) {
                const struct region_desc *stored = &v->regions[*end]->desc;
                struct region *r = region_find(regions, stored->name);
                if (!r || !match_needs_resize(r, stored) || (stored->bytes > r->desc.bytes) != grow)
                        continue;
                int rc = region_reshape(regions, r, stored->dims, NULL);
                if (rc)
                        return rc;
        }
        return 0;
}

/* Growing can fail for lack of memory and keeps content; shrinking cannot fail and loses content.
 * So regions grow first, and when that fails those that have grown shrink back: nothing has
 * changed. */
static int resize(const struct version *v, struct regions *regions, struct old_dims *before)
{
        uint32_t end;
        for (uint32_t i = 0; i < regions->count; i++)
                memcpy(before[i].dims, regions->list[i]->desc.dims, sizeof(before[i].dims));
        int rc = reshape(v, regions, true, &end);
        if (rc == 0)
                return reshape(v, regions, false, &end);
        struct err_kept kept;
        err_keep(&kept);
        for (uint32_t i = 0; i < regions->count; i++)
                if (regions->list[i]->owned)
                        (void)region_reshape(regions, regions->list[i], before[i].dims, NULL);
        (void)err_give_back(&kept);
        return rc;
}

static int resize_all(const struct version *v, struct regions *regions)
{
        uint64_t bytes = max_u64(regions->count, 1) * sizeof(struct old_dims);
        struct old_dims *before = budget_alloc(regions->budget, bytes, "the restart");
        if (!before)
                return -ENOMEM;
        int rc = resize(v, regions, before);
        budget_free(regions->budget, before);
        return rc;
}

/* Memory that the library mapped itself can be the pool's; the program's own has to be written. */
static int place_region(struct attempt *a, uint32_t i, struct region *r)
{
        const struct version *v = a->at.version;
        struct pool *pool = a->levels->pool;
        if (a->q->how == RESTART_EAGER || !r->owned || a->at.level != a->levels->list[0] ||
            !pool_is_mapped(pool) || v->regions[i]->desc.bytes == 0)
                return placed_read_region(&a->at, i, r->ptr);
        r->lazy = true;
        return lazy_place(a->q->lazy, pool, a->at.level->reader, v, i, r->ptr);
}

static int place(struct attempt *a)
{
        const struct version *v = a->at.version;
        for (uint32_t i = 0; i < v->region_count; i++) {
                struct region *r = region_find(a->regions, v->regions[i]->desc.name);
                if (!r)
                        continue;
                *a->touched = true;
                int rc = place_region(a, i, r);
                if (rc)
                        return rc;
        }
        return 0;
}

static void mark_damaged(struct attempt *a, const char *text)
{
        a->at.level->ops->mark_damaged(a->at.level, a->at.version, text);
}

static void say_where_from(const struct attempt *a)
{
        if (a->at.level != a->levels->list[0])
                log_emit(BELAY_LOG_WARN,
                         "version %llu was restored from the %s: the pool does not have it intact",
                         (unsigned long long)a->at.version->number, a->at.level->ops->name);
}

static int restore_one(struct attempt *a)
{
        const struct version *v = a->at.version;
        int rc = match_version(v, a->regions, a->q->flags, a->match);
        if (rc == 0 && a->q->verify_first)
                rc = verify(a);
        if (rc == 0 && (a->q->flags & BELAY_RESIZE))
                rc = resize_all(v, a->regions);
        if (rc == 0)
                rc = place(a);
        if (rc == 0)
                say_where_from(a);
        else if (rc == BELAY_E_DATA)
                mark_damaged(a, err_text());
        return rc;
}

/* What is left to say when no version could be placed. */
static int give_up(bool touched, uint64_t asked)
{
        const char *state = touched ? "the content of the regions is undefined"
                                    : "the regions were not touched";
        if (asked)
                return err_wrap(BELAY_E_DATA, "version %llu is damaged, %s",
                                (unsigned long long)asked, state);
        return err_wrap(BELAY_E_DATA, "no version is intact, %s", state);
}

/* The version in the level it was found in, then in those behind it. BELAY_E_DATA if none has it
 * intact. */
static int restore_anywhere(struct attempt *a)
{
        int rc;
        do {
                const struct version *v = a->at.version;
                if (version_usable(v) || (a->q->version && !v->unreadable)) {
                        rc = restore_one(a);
                } else {
                        rc = err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                                     (unsigned long long)v->number, v->damage);
                        if (!a->q->version)
                                log_emit(BELAY_LOG_WARN, "%s", err_text());
                }
        } while (rc == BELAY_E_DATA && levels_next(a->levels, &a->at));
        return rc;
}

static int restore_asked(struct attempt *a)
{
        uint64_t number = a->q->version;
        if (!levels_find(a->levels, number, &a->at))
                return err_set(-ENOENT, "the pool has no version %llu", (unsigned long long)number);
        bool unreadable = a->at.version->unreadable;
        int rc = restore_anywhere(a);
        if (rc == 0)
                return 1;
        if (rc != BELAY_E_DATA)
                return *a->touched ? give_up(true, number) : rc;
        return unreadable ? rc : give_up(*a->touched, number);
}

/* No version: none yet, or one that was given up or was listed by a damaged superblock. */
static int nothing(const struct pool *pool)
{
        struct pool_info info;
        pool_info(pool, &info);
        uint64_t lost = pool_lost(pool);
        if (lost == 0 && info.lost_listed)
                return err_set(BELAY_E_DATA,
                               "version %llu is lost: the superblock that listed it is damaged "
                               "(%s%s); the regions were not touched",
                               (unsigned long long)info.lost, info.superblock[0],
                               info.superblock[1]);
        if (lost == 0)
                return 0;
        return err_set(BELAY_E_DATA,
                       "version %llu was replaced (option replace), and the one after it was not "
                       "completed: the pool has lost it; the regions were not touched",
                       (unsigned long long)lost);
}

static int restore_newest(struct attempt *a)
{
        bool any = false;
        for (uint64_t below = 0; levels_newest(a->levels, below, &a->at);) {
                any = true;
                below = a->at.version->number;
                int rc = restore_anywhere(a);
                if (rc == 0)
                        return 1;
                /* A version that was passed over as damaged must not hide behind the misfit of an
                 * older one once memory has been touched. */
                if (rc != BELAY_E_DATA)
                        return *a->touched ? give_up(true, 0) : rc;
        }
        return any ? give_up(*a->touched, 0) : nothing(a->levels->pool);
}

int restore_version(struct levels *levels, struct regions *regions, const struct restore_request *q,
                    struct match *match, bool *touched)
{
        struct attempt a = {
                .levels = levels, .regions = regions, .q = q, .match = match, .touched = touched};
        match_clear(match);
        *touched = false;
        int rc = levels_begin_reading(levels, !q->verify_first);
        if (rc == 0)
                rc = q->version ? restore_asked(&a) : restore_newest(&a);
        levels_end_reading(levels);
        return rc;
}

static int check_all(const struct placed *at)
{
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < at->version->region_count; i++)
                rc = placed_read_region(at, i, NULL);
        return rc;
}

/* The version in the first level that has it intact. */
static int choose_place(struct levels *levels, bool check, struct placed *at)
{
        int rc;
        do {
                rc = !version_usable(at->version)
                             ? err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                                       (unsigned long long)at->version->number, at->version->damage)
                     : check ? check_all(at)
                             : 0;
                if (rc == BELAY_E_DATA && version_usable(at->version))
                        at->level->ops->mark_damaged(at->level, at->version, err_text());
        } while (rc == BELAY_E_DATA && levels_next(levels, at));
        return rc;
}

static int choose(struct levels *levels, bool check, const struct version **out)
{
        struct placed at;
        bool any = false;
        for (uint64_t below = 0; levels_newest(levels, below, &at);) {
                any = true;
                below = at.version->number;
                int rc = choose_place(levels, check, &at);
                if (rc == 0 && at.level != levels->list[0])
                        rc = levels_bring_back(levels, &at, false);
                if (rc == 0)
                        *out = at.version;
                if (rc != BELAY_E_DATA)
                        return rc;
        }
        return any ? give_up(false, 0) : nothing(levels->pool);
}

int restore_choose(struct levels *levels, bool check, const struct version **out)
{
        *out = NULL;
        int rc = levels_begin_reading(levels, false);
        if (rc == 0)
                rc = choose(levels, check, out);
        levels_end_reading(levels);
        return rc;
}

int restore_region(struct levels *levels, const struct version *v, struct region *r,
                   const struct restore_request *request)
{
        int64_t at = v ? version_find(v, r->desc.name) : -1;
        if (at < 0)
                return 0;
        const struct region_desc *stored = &v->regions[at]->desc;
        if (match_needs_resize(r, stored) || stored->ndims != r->desc.ndims ||
            stored->element_bytes != r->desc.element_bytes)
                return err_set(BELAY_E_MISMATCH,
                               "version %llu has '%s' with %llu bytes, not %llu, or in another "
                               "shape",
                               (unsigned long long)v->number, r->desc.name,
                               (unsigned long long)stored->bytes,
                               (unsigned long long)r->desc.bytes);
        struct attempt a = {.levels = levels,
                            .at = {levels->list[0], pool_find_version(levels->pool, v->number)},
                            .q = request};
        int rc = levels_begin_reading(levels, true);
        if (rc == 0)
                rc = place_region(&a, (uint32_t)at, r);
        levels_end_reading(levels);
        return rc ? rc : 1;
}
