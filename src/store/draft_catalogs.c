/* draft_catalogs.c: the list of a version's regions, at publication.
 *
 * A version takes over the catalogs of the one before it (the base) as they are, wherever nothing
 * in them changed. A catalog with a region that changed or left is made anew from the others; new
 * regions come at the end. So the order of regions is that of their first version. When many have
 * left, catalogs are half empty, and all are made anew. */
#include "store/store_int.h"
#include <errno.h>

/* ---- regions --------------------------------------------------------------------------------- */

static bool same_leaves(const struct draft *d, const struct draft_region *own)
{
        uint64_t count = region_leaves(own->desc);
        return !own->made &&
               (!own->own_leaves || memcmp(d->leaves + own->first_leaf, own->old->leaves,
                                           count * sizeof(struct leaf *)) == 0);
}

/* The region as the version will have it: the old one, or `made` with its leaves. From here on the
 * draft has no leaves of its own in it. */
static int finish_region(struct draft *d, struct draft_region *own)
{
        if (same_leaves(d, own)) {
                own->own_leaves = false;
                return 0;
        }
        if (!own->made)
                own->made = region_new(d->p, own->desc);
        if (!own->made)
                return -ENOMEM;
        for (uint64_t j = 0; j < region_leaves(own->desc); j++) {
                struct leaf *l = d->leaves[own->first_leaf + j];
                l->refs += !draft_owns(d, own, j);
                own->made->leaves[j] = l;
        }
        own->own_leaves = false;
        return 0;
}

static struct stored_region *result_of(const struct draft_region *own)
{
        /* The version refers to it, and that may write its count. */
        return own->made ? own->made : (struct stored_region *)(uintptr_t)own->old;
}

/* What becomes of a region of the base; NULL if it leaves. */
static struct stored_region *successor(struct draft *d, uint32_t position)
{
        uint32_t taken = d->taken[position];
        if (taken && taken != LEFT_OUT)
                return result_of(&d->regions[taken - 1]);
        if (taken || !d->carries)
                return NULL;
        d->result.unchanged_bytes += d->base->regions[position]->desc.bytes;
        return d->base->regions[position];
}

/* Does nobody know of the regions in the catalog? Then all of them are carried. */
static bool is_carried(const struct draft *d, const struct catalog *c, uint32_t first)
{
        uint64_t bytes = c->count * sizeof(*d->taken);
        const uint8_t *taken = (const uint8_t *)(d->taken + first);
        return d->carries && skip_zeros(taken, 0, bytes) == bytes;
}

/* ---- catalogs -------------------------------------------------------------------------------- */

struct listing {
        struct draft *d;
        struct version *v;
        uint64_t capacity; /* of v->catalogs */
        bool same_names;   /* as in the base, in the same order */
        bool torn;         /* a catalog has become too large    */
};

static int add_catalog(struct listing *l, struct catalog *c)
{
        struct version *v = l->v;
        if (!c)
                return -ENOMEM;
        if (v->catalog_count == l->capacity) {
                uint64_t capacity = max_u64(2 * l->capacity, 16);
                void *p = budget_resize(l->d->p->budget, v->catalogs, capacity * sizeof(void *),
                                        "the region table");
                if (!p) {
                        catalog_release(l->d->p, c);
                        return -ENOMEM;
                }
                v->catalogs = p;
                l->capacity = capacity;
        }
        v->catalogs[v->catalog_count++] = c;
        return 0;
}

/* Follows a catalog of the base, whose first region is at `first` there. */
static int follow_catalog(struct listing *l, struct catalog *c, uint32_t first)
{
        struct version *v = l->v;
        struct stored_region **list = v->regions + v->region_count;
        uint32_t count = 0;
        bool same = c->place.ref.offset != 0; /* one of format 1 is nowhere yet */
        if (same && is_carried(l->d, c, first)) {
                memcpy(list, c->regions, c->count * sizeof(struct stored_region *));
                v->region_count += c->count;
                l->d->result.unchanged_bytes += c->data_bytes;
                c->users++;
                return add_catalog(l, c);
        }
        for (uint32_t i = 0; i < c->count; i++) {
                struct stored_region *r = successor(l->d, first + i);
                same = same && r == c->regions[i];
                l->same_names = l->same_names && r;
                if (r)
                        list[count++] = r;
        }
        v->region_count += count;
        if (count == 0)
                return 0;
        if (same) {
                c->users++;
                return add_catalog(l, c);
        }
        l->torn = l->torn || count > CATALOG_REGIONS ||
                  (count > 1 && catalog_bytes(list, count) > CHUNK_BYTES);
        return add_catalog(l, catalog_new(l->d->p, list, count));
}

/* How many of `count` regions go into one catalog. */
static uint32_t fill(struct stored_region *const *list, uint32_t count)
{
        uint64_t bytes = 0;
        uint32_t n = 0;
        while (n < count && n < CATALOG_REGIONS && (n == 0 || bytes < CATALOG_BYTES))
                bytes += record_bytes(&list[n++]->desc);
        return n;
}

/* Catalogs for the regions from `first` on. */
static int add_catalogs(struct listing *l, uint32_t first)
{
        struct version *v = l->v;
        while (first < v->region_count) {
                uint32_t n = fill(v->regions + first, v->region_count - first);
                int rc = add_catalog(l, catalog_new(l->d->p, v->regions + first, n));
                if (rc)
                        return rc;
                first += n;
        }
        return 0;
}

/* New regions join the last catalog, if there is room in it. */
static int add_new(struct listing *l)
{
        struct version *v = l->v;
        uint32_t first = v->region_count;
        for (uint32_t i = 0; i < l->d->region_count; i++)
                if (l->d->regions[i].base_at == NO_POSITION)
                        v->regions[v->region_count++] = result_of(&l->d->regions[i]);
        if (first == v->region_count)
                return 0;
        l->same_names = false;
        struct catalog *last = v->catalog_count ? v->catalogs[v->catalog_count - 1] : NULL;
        if (last && last->count < CATALOG_REGIONS &&
            catalog_bytes(last->regions, last->count) < CATALOG_BYTES) {
                v->catalog_count--;
                first -= last->count;
                /* Its regions stay: they are in the version it came from, or in the draft. */
                catalog_release(l->d->p, last);
        }
        return add_catalogs(l, first);
}

static int repack(struct listing *l)
{
        struct version *v = l->v;
        uint32_t old = v->catalog_count;
        int rc = add_catalogs(l, 0);
        for (uint32_t i = 0; i < old; i++)
                catalog_release(l->d->p, v->catalogs[i]);
        v->catalog_count -= old;
        memmove(v->catalogs, v->catalogs + old, v->catalog_count * sizeof(void *));
        return rc;
}

int draft_list_regions(struct draft *d)
{
        struct listing l = {.d = d, .v = d->v, .same_names = true};
        uint64_t base = d->base ? d->base->region_count : 0;
        uint64_t most = base + d->region_count;
        if (most > MAX_REGIONS && d->carries)
                return err_set(-EINVAL, "a version can have %u regions", MAX_REGIONS);
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < d->region_count; i++)
                rc = finish_region(d, &d->regions[i]);
        if (rc)
                return rc;
        d->v->regions =
                budget_alloc(d->p->budget, max_u64(most, 1) * sizeof(void *), "the region table");
        if (!d->v->regions)
                return -ENOMEM;
        uint32_t first = 0;
        for (uint32_t i = 0; rc == 0 && d->base && i < d->base->catalog_count; i++) {
                struct catalog *c = d->base->catalogs[i];
                rc = follow_catalog(&l, c, first);
                first += c->count;
        }
        if (rc == 0)
                rc = add_new(&l);
        uint64_t needed = div_up(d->v->region_count, CATALOG_REGIONS);
        if (rc == 0 && (l.torn || d->v->catalog_count > 8 + 2 * needed))
                rc = repack(&l);
        for (uint32_t i = 0; i < d->v->catalog_count; i++)
                d->v->data_bytes += d->v->catalogs[i]->data_bytes;
        if (rc == 0 && l.same_names && d->base)
                version_share_index(d->v, d->base);
        else if (rc == 0)
                rc = version_index(d->p, d->v);
        return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* An object on its way to the pool. It is gathered with others or, if it is larger than a buffer
 * for that, written by itself. */
struct object {
        uint8_t *buf;
        uint64_t bytes, offset;
        bool large;
};

static int object_begin(struct pool *p, uint64_t bytes, struct object *o)
{
        *o = (struct object){.bytes = bytes, .large = bytes > CHUNK_BYTES};
        if (!o->large) {
                int rc = writer_stage(p, (uint32_t)bytes, (void **)&o->buf);
                if (rc == 0)
                        o->offset = writer_keep(p, (uint32_t)bytes);
                return rc;
        }
        uint64_t slots = div_up(bytes, SLOT_BYTES);
        uint64_t taken;
        o->buf = budget_alloc(p->budget, slots * SLOT_BYTES, "the region table");
        if (!o->buf)
                return -ENOMEM;
        int rc = pool_take_slots(p, slots, slots, &o->offset, &taken);
        if (rc)
                budget_free(p->budget, o->buf);
        return rc;
}

static int object_end(struct pool *p, struct object *o, const char *what)
{
        if (!o->large)
                return 0;
        uint64_t whole = align_up(o->bytes, SLOT_BYTES);
        int rc = writer_drain(p);
        if (rc == 0) {
                rc = media_write_now(p->media, o->buf, whole, o->offset);
                if (rc)
                        rc = err_set(rc, "write of %s to pool '%s': %s", what, p->label,
                                     media_text(rc));
        }
        p->writer.written += whole;
        budget_free(p->budget, o->buf);
        return rc;
}

static int write_catalog(struct draft *d, struct catalog *c)
{
        struct pool *p = d->p;
        struct object o;
        int rc = object_begin(p, catalog_bytes(c->regions, c->count), &o);
        if (rc)
                return rc;
        uint64_t at = CATALOG_HEAD_BYTES;
        for (uint32_t i = 0; i < c->count; i++) {
                const struct stored_region *r = c->regions[i];
                uint8_t *refs;
                at = record_put(o.buf, at, &r->desc, &refs);
                for (uint64_t j = 0; j < region_leaves(&r->desc); j++)
                        ref_put(refs + j * ENTRY_BYTES, r->leaves[j]->ref);
        }
        struct hash128 sum = catalog_seal(o.buf, at, c->count, d->v->number);
        c->place = (struct catalog_ref){{o.offset, sum}, (uint32_t)at, c->count};
        return object_end(p, &o, "a catalog");
}

int draft_write_catalogs(struct draft *d)
{
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < d->v->catalog_count; i++)
                if (d->v->catalogs[i]->place.ref.offset == 0)
                        rc = write_catalog(d, d->v->catalogs[i]);
        return rc;
}

int draft_write_manifest(struct draft *d)
{
        struct pool *p = d->p;
        struct version *v = d->v;
        struct manifest_head head = {.version = v->number,
                                     .time_ns = v->frozen_ns,
                                     .data_bytes = v->data_bytes,
                                     .region_count = v->region_count,
                                     .catalog_count = v->catalog_count,
                                     .place = v->place};
        memcpy(head.pool_id, p->super.pool_id, sizeof(head.pool_id));
        struct object o;
        int rc = object_begin(p, manifest_bytes(v->catalog_count), &o);
        if (rc)
                return rc;
        for (uint32_t i = 0; i < v->catalog_count; i++)
                manifest_put_catalog(o.buf, i, &v->catalogs[i]->place);
        v->manifest = (struct object_ref){o.offset, manifest_seal(o.buf, &head)};
        v->manifest_bytes = (uint32_t)o.bytes;
        return object_end(p, &o, "the manifest");
}
