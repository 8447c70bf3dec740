/* registry.c: the public calls that register, change and forget regions. */
#include "api/api_int.h"
#include <errno.h>

static int check_name(const struct belay *b, const char *name)
{
        if (!b)
                return err_set(-EINVAL, "the context is NULL; did belay_open fail?");
        int rc = engine_here(b->engine);
        if (rc)
                return rc;
        return name ? 0 : err_set(-EINVAL, "the name of the region is NULL");
}

int registry_find(struct belay *b, const char *name, struct region **out)
{
        char shown[64];
        int rc = check_name(b, name);
        if (rc)
                return rc;
        *out = region_find(&b->regions, name);
        return *out ? 0
                    : err_set(-ENOENT, "there is no region '%s'",
                              printable(name, shown, sizeof(shown)));
}

static int find(struct belay *b, const char *name, bool owned, struct region **out)
{
        struct region *r;
        int rc = registry_find(b, name, &r);
        if (rc)
                return rc;
        if (r->owned != owned)
                return err_set(-EINVAL, "region '%s' is %s", r->desc.name,
                               owned ? "attached memory: use belay_move and belay_detach"
                                     : "allocated by Belay: use belay_resize and belay_free");
        *out = r;
        return 0;
}

/* The place in a global array: one box, or several. */
static int translate_boxes(const struct belay_desc *in, struct region_desc *out)
{
        if (!(in->flags & BELAY_GLOBAL))
                return in->box_count || in->global_ndims
                               ? err_set(-EINVAL, "region '%s': boxes need the flag BELAY_GLOBAL",
                                         in->name)
                               : 0;
        out->global_ndims = in->global_ndims ? in->global_ndims : in->ndims;
        if (out->global_ndims > BELAY_MAX_DIMS)
                return err_set(-EINVAL, "region '%s': %u global dimensions; it must be 1 to %d",
                               in->name, out->global_ndims, BELAY_MAX_DIMS);
        memcpy(out->global_dims, in->global_dims, out->global_ndims * sizeof(in->dims[0]));
        out->box_count = in->box_count ? in->box_count : 1;
        if (in->box_count && !in->boxes)
                return err_set(-EINVAL, "region '%s': there are no boxes", in->name);
        if (in->box_count) {
                _Static_assert(sizeof(struct belay_box) == sizeof(struct box), "the same");
                out->box = *(const struct box *)&in->boxes[0];
                out->more = in->box_count > 1 ? (const struct box *)&in->boxes[1] : NULL;
                return 0;
        }
        if (out->global_ndims != in->ndims)
                return err_set(-EINVAL, "region '%s': one box has the dimensions of its region",
                               in->name);
        memcpy(out->box.start, in->global_start, in->ndims * sizeof(in->dims[0]));
        memcpy(out->box.dims, in->dims, in->ndims * sizeof(in->dims[0]));
        return 0;
}

int registry_describe(const struct belay *b, const struct belay_desc *given,
                      struct region_desc *out)
{
        struct belay_desc desc;
        const struct belay_desc *in = &desc;
        int rc = check_name(b, given ? given->name : NULL);
        if (rc == 0)
                rc = name_check(given->name);
        if (rc == 0)
                rc = sized_take(&desc, given, sizeof(desc),
                                offsetof(struct belay_desc, global_ndims), given->name);
        if (rc)
                return rc;
        if (in->flags & ~(BELAY_GLOBAL | BELAY_UNTRACKED | BELAY_CHUNK) || in->reserved)
                return err_set(-EINVAL,
                               "region '%s': flags or reserved are not as this library knows them",
                               in->name);
        if (in->ndims < 1 || in->ndims > BELAY_MAX_DIMS)
                return err_set(-EINVAL, "region '%s': %u dimensions; it must be 1 to %d", in->name,
                               in->ndims, BELAY_MAX_DIMS);
        uint32_t own = in->type == BELAY_RAW ? 1 : type_bytes(in->type);
        *out = (struct region_desc){
                .type = in->type,
                .element_bytes = in->element_bytes ? in->element_bytes : own,
                .block_bytes =
                        in->block_bytes ? in->block_bytes : (uint32_t)b->options.number[OPT_BLOCK],
                .hash = (uint32_t)b->options.number[OPT_HASH] + HASH_XXH3,
                .ndims = in->ndims,
        };
        memcpy(out->name, in->name, strlen(in->name) + 1);
        memcpy(out->dims, in->dims, in->ndims * sizeof(in->dims[0]));
        return translate_boxes(in, out);
}

static struct belay_desc flat(const char *name, enum belay_type type, uint64_t count)
{
        return (struct belay_desc){.size = sizeof(struct belay_desc),
                                   .name = name,
                                   .type = type,
                                   .ndims = 1,
                                   .dims = {count}};
}

/* From here on its writes are tracked. */
static int watch_new(struct belay *b, const struct belay_desc *desc, struct region *r)
{
        r->untracked = (desc->flags & BELAY_UNTRACKED) != 0;
        r->chunk = (desc->flags & BELAY_CHUNK) != 0;
        int rc = engine_watch(b->engine, r);
        if (rc) {
                region_remove(&b->regions, r);
                region_delete(&b->budget, r);
        }
        engine_resume(b->engine);
        return rc;
}

static void *allocate(struct belay *b, const struct belay_desc *desc)
{
        struct region_desc d;
        struct region *r;
        if (registry_describe(b, desc, &d))
                return NULL;
        engine_pause(b->engine);
        int rc = region_alloc(&b->regions, &d, &r);
        if (rc == 0)
                return watch_new(b, desc, r) ? NULL : r->ptr;
        engine_resume(b->engine);
        return NULL;
}

void *belay_alloc_desc(struct belay *b, const struct belay_desc *desc)
{
        return call_end_pointer(b, allocate(b, desc));
}

void *belay_alloc(struct belay *b, const char *name, enum belay_type type, uint64_t count)
{
        struct belay_desc desc = flat(name, type, count);
        return belay_alloc_desc(b, &desc);
}

static int attach(struct belay *b, const struct belay_desc *desc, void *ptr)
{
        struct region_desc d;
        struct region *r;
        int rc = registry_describe(b, desc, &d);
        if (rc)
                return rc;
        engine_pause(b->engine);
        rc = region_attach(&b->regions, &d, ptr, &r);
        if (rc == 0)
                return watch_new(b, desc, r);
        engine_resume(b->engine);
        return rc;
}

int belay_attach_desc(struct belay *b, const struct belay_desc *desc, void *ptr)
{
        return call_end(b, attach(b, desc, ptr));
}

int belay_attach(struct belay *b, const char *name, enum belay_type type, uint64_t count, void *ptr)
{
        struct belay_desc desc = flat(name, type, count);
        return belay_attach_desc(b, &desc, ptr);
}

/* A watch that cannot be made anew for lack of memory is made at the next checkpoint. */
static int reshape_first(struct belay *b, struct region **region, uint64_t count, void *ptr)
{
        uint64_t dims[BELAY_MAX_DIMS];
        memcpy(dims, (*region)->desc.dims, sizeof(dims));
        dims[0] = count;
        engine_pause(b->engine);
        struct region *r = engine_release(b->engine, *region);
        int rc = region_reshape(&b->regions, r, dims, ptr);
        if (!r->lazy)
                lazy_forget(&b->lazy[b->lazy_now], r->desc.name);
        context_sweep(b);
        (void)engine_watch(b->engine, r);
        engine_resume(b->engine);
        *region = r;
        return rc;
}

static void forget(struct belay *b, struct region *r)
{
        engine_pause(b->engine);
        lazy_forget(&b->lazy[b->lazy_now], r->desc.name);
        region_remove(&b->regions, r);
        engine_discard(b->engine, r);
        context_sweep(b);
        engine_resume(b->engine);
}

void *belay_resize(struct belay *b, const char *name, uint64_t count)
{
        struct region *r;
        bool failed = find(b, name, true, &r) || reshape_first(b, &r, count, NULL);
        return call_end_pointer(b, failed ? NULL : r->ptr);
}

int belay_move(struct belay *b, const char *name, uint64_t count, void *ptr)
{
        struct region *r;
        int rc = find(b, name, false, &r);
        if (rc == 0)
                rc = reshape_first(b, &r, count, ptr);
        return call_end(b, rc);
}

int belay_detach(struct belay *b, const char *name)
{
        struct region *r;
        int rc = find(b, name, false, &r);
        if (rc == 0)
                forget(b, r);
        return call_end(b, rc);
}

int belay_free(struct belay *b, const char *name)
{
        struct region *r;
        int rc = find(b, name, true, &r);
        if (rc == 0)
                forget(b, r);
        return call_end(b, rc);
}

void *belay_ptr(struct belay *b, const char *name)
{
        struct region *r = NULL;
        int rc = check_name(b, name);
        if (rc == 0)
                r = region_find(&b->regions, name);
        (void)call_end(b, rc);
        return r ? r->ptr : NULL;
}

/* The newest usable version, wherever it is: what a restart takes first. NULL if there is none. */
static const struct version *newest_usable(struct belay *b)
{
        struct placed at;
        for (uint64_t below = 0; levels_newest(&b->levels, below, &at);) {
                if (version_usable(at.version))
                        return at.version;
                below = at.version->number;
        }
        return NULL;
}

/* What was found is not needed any more. */
static void end_stored(struct belay *b)
{
        levels_end_reading(&b->levels);
        engine_resume(b->engine);
}

/* The region in that version. It stays as it is until end_stored, if this succeeds. */
static int find_stored(struct belay *b, const char *name, const struct region_desc **out)
{
        int rc = check_name(b, name);
        if (rc)
                return rc;
        engine_idle(b->engine); /* also what it does between checkpoints: that may begin a draft */
        rc = levels_begin_reading(&b->levels, true);
        const struct version *v = rc ? NULL : newest_usable(b);
        int64_t at = v ? version_find(v, name) : -1;
        if (at >= 0) {
                *out = &v->regions[at]->desc;
                return 0;
        }
        end_stored(b);
        if (rc)
                return rc;
        char shown[64];
        return err_set(-ENOENT, "the newest version has no region '%s'",
                       printable(name, shown, sizeof(shown)));
}

static int stored(struct belay *b, const char *name, struct belay_desc *out)
{
        const struct region_desc *d;
        int rc = find_stored(b, name, &d);
        if (rc)
                return rc;
        struct belay_desc mine = {.type = d->type,
                                  .element_bytes = d->element_bytes,
                                  .ndims = d->ndims,
                                  .block_bytes = d->block_bytes,
                                  .flags = d->box_count ? BELAY_GLOBAL : 0,
                                  .global_ndims = d->global_ndims,
                                  .box_count = d->box_count};
        memcpy(mine.dims, d->dims, sizeof(mine.dims));
        memcpy(mine.global_dims, d->global_dims, sizeof(mine.global_dims));
        memcpy(mine.global_start, d->box.start, sizeof(mine.global_start));
        end_stored(b);
        return sized_give(out, &mine, sizeof(mine), "belay_stored");
}

static int stored_boxes(struct belay *b, const char *name, struct belay_box *out, uint32_t room)
{
        const struct region_desc *d;
        if (!out && room)
                return err_set(-EINVAL, "belay_stored_boxes: there is no place for the boxes");
        int rc = find_stored(b, name, &d);
        if (rc)
                return rc;
        for (uint32_t i = 0; i < min_u64(room, d->box_count); i++)
                memcpy(&out[i], region_box(d, i), sizeof(out[i]));
        int count = (int)d->box_count;
        end_stored(b);
        return count;
}

int belay_stored(struct belay *b, const char *name, struct belay_desc *out)
{
        return call_end(b, stored(b, name, out));
}

int belay_stored_boxes(struct belay *b, const char *name, struct belay_box *out, uint32_t room)
{
        return call_end(b, stored_boxes(b, name, out, room));
}
