/* restore.c: the newest version that can be restored, placed into the regions.
 *
 * Order of business for one candidate: does it fit the regions (nothing touched); optionally, is
 * every block intact (nothing touched); then resize where allowed, and place block by block, each
 * verified. A candidate that turns out to be damaged is marked so, and the next older one is tried.
 */
#include "restore/restore_int.h"
#include <errno.h>

struct old_dims {
        uint64_t dims[BELAY_MAX_DIMS];
};

static int verify(struct pool *pool, const struct version *v, const struct regions *regions)
{
        for (uint32_t i = 0; i < v->region_count; i++) {
                if (!region_find(regions, v->regions[i]->desc.name))
                        continue;
                int rc = pool_read_region(pool, v, i, NULL, NULL, NULL);
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
static int place_region(struct pool *pool, const struct version *v, uint32_t i, struct region *r,
                        const struct restore_request *q)
{
        if (q->how == RESTART_EAGER || !r->owned || !pool_is_mapped(pool) ||
            v->regions[i]->desc.bytes == 0)
                return pool_read_region(pool, v, i, r->ptr, NULL, NULL);
        r->lazy = true;
        return lazy_place(q->lazy, pool, v, i, r->ptr);
}

static int place(struct pool *pool, const struct version *v, const struct regions *regions,
                 const struct restore_request *q, bool *touched)
{
        for (uint32_t i = 0; i < v->region_count; i++) {
                struct region *r = region_find(regions, v->regions[i]->desc.name);
                if (!r)
                        continue;
                *touched = true;
                int rc = place_region(pool, v, i, r, q);
                if (rc)
                        return rc;
        }
        return 0;
}

static int restore_one(struct pool *pool, const struct version *v, struct regions *regions,
                       const struct restore_request *q, struct match *match, bool *touched)
{
        int rc = match_version(v, regions, q->flags, match);
        if (rc == 0 && q->verify_first)
                rc = verify(pool, v, regions);
        if (rc == 0 && (q->flags & BELAY_RESIZE))
                rc = resize_all(v, regions);
        if (rc == 0)
                rc = place(pool, v, regions, q, touched);
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

static int restore_asked(struct pool *pool, struct regions *regions,
                         const struct restore_request *q, struct match *match, bool *touched)
{
        struct version *v = pool_find_version(pool, q->version);
        if (!v)
                return err_set(-ENOENT, "the pool has no version %llu",
                               (unsigned long long)q->version);
        if (v->unreadable)
                return err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                               (unsigned long long)v->number, v->damage);
        int rc = restore_one(pool, v, regions, q, match, touched);
        if (rc == 0)
                return 1;
        if (rc != BELAY_E_DATA)
                return *touched ? give_up(true, q->version) : rc;
        pool_mark_damaged(pool, v, err_text());
        return give_up(*touched, q->version);
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

int restore_version(struct pool *pool, struct regions *regions, const struct restore_request *q,
                    struct match *match, bool *touched)
{
        match_clear(match);
        *touched = false;
        if (q->version)
                return restore_asked(pool, regions, q, match, touched);
        for (uint32_t i = pool_version_count(pool); i > 0; i--) {
                struct version *v = pool_version(pool, i - 1);
                if (!version_usable(v)) {
                        (void)err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                                      (unsigned long long)v->number, v->damage);
                        log_emit(BELAY_LOG_WARN, "%s", err_text());
                        continue;
                }
                int rc = restore_one(pool, v, regions, q, match, touched);
                if (rc == 0)
                        return 1;
                /* A version that was passed over as damaged must not hide behind the misfit of an
                 * older one once memory has been touched. */
                if (rc != BELAY_E_DATA)
                        return *touched ? give_up(true, 0) : rc;
                pool_mark_damaged(pool, v, err_text());
        }
        return pool_version_count(pool) ? give_up(*touched, 0) : nothing(pool);
}

static int verify_all(struct pool *pool, const struct version *v)
{
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < v->region_count; i++)
                rc = pool_read_region(pool, v, i, NULL, NULL, NULL);
        return rc;
}

int restore_choose(struct pool *pool, bool verify, const struct version **out)
{
        *out = NULL;
        for (uint32_t i = pool_version_count(pool); i > 0; i--) {
                struct version *v = pool_version(pool, i - 1);
                if (!version_usable(v)) {
                        (void)err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                                      (unsigned long long)v->number, v->damage);
                        continue;
                }
                int rc = verify ? verify_all(pool, v) : 0;
                if (rc == 0)
                        *out = v;
                if (rc != BELAY_E_DATA)
                        return rc;
                pool_mark_damaged(pool, v, err_text()); /* which logs it */
        }
        return pool_version_count(pool) ? give_up(false, 0) : nothing(pool);
}

int restore_region(struct pool *pool, const struct version *v, struct region *r,
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
        int rc = place_region(pool, v, (uint32_t)at, r, request);
        return rc ? rc : 1;
}
