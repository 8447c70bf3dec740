/* version.c: versions in memory: loaded from a manifest, or built by a draft.
 *
 *     version ──► catalog ──► region ──► leaf ──► slots
 *        └── list of the same regions, index of their names
 *
 * Each arrow but the last is a counted reference, and versions share whatever did not change: a new
 * version costs what changed, and one that goes gives back what nobody else has. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

/* ---- index of names ------------------------------------------------------------------------ */

/* Open addressing, at most half full. */
struct name_index {
        uint32_t users;
        uint32_t mask;
        struct {
                uint32_t key;      /* the upper half of the hash */
                uint32_t position; /* + 1; 0: free               */
        } slots[];
};

static uint32_t index_room(uint32_t count)
{
        uint32_t room = 4;
        while (room < 2 * count)
                room *= 2;
        return room;
}

/* Where the name is, or would be. */
static uint32_t index_slot(const struct name_index *x, struct stored_region *const *regions,
                           const char *name)
{
        uint64_t hash = hash_name(name);
        uint32_t key = (uint32_t)(hash >> 32);
        uint32_t at = (uint32_t)hash & x->mask;
        while (x->slots[at].position &&
               (x->slots[at].key != key ||
                strcmp(regions[x->slots[at].position - 1]->desc.name, name) != 0))
                at = (at + 1) & x->mask;
        return at;
}

int version_index(struct pool *p, struct version *v)
{
        if (v->region_count == 0)
                return 0;
        uint32_t room = index_room(v->region_count);
        struct name_index *x = budget_alloc(p->budget, sizeof(*x) + room * sizeof(x->slots[0]),
                                            "the region table");
        if (!x)
                return -ENOMEM;
        x->users = 1;
        x->mask = room - 1;
        v->index = x;
        for (uint32_t i = 0; i < v->region_count; i++) {
                const char *name = v->regions[i]->desc.name;
                uint32_t at = index_slot(x, v->regions, name);
                if (x->slots[at].position)
                        return err_set(BELAY_E_DATA,
                                       "version %llu of pool '%s' has two regions '%s'",
                                       (unsigned long long)v->number, p->label, name);
                x->slots[at].key = (uint32_t)(hash_name(name) >> 32);
                x->slots[at].position = i + 1;
        }
        return 0;
}

void version_share_index(struct version *v, const struct version *from)
{
        v->index = from->index;
        if (v->index)
                v->index->users++;
}

int64_t version_find(const struct version *v, const char *name)
{
        if (!v->index)
                return -1;
        return (int64_t)v->index->slots[index_slot(v->index, v->regions, name)].position - 1;
}

/* ---- regions, catalogs, versions ------------------------------------------------------------- */

/* One piece of memory: the region, its leaves (or their references), its boxes. */
struct stored_region *region_new(struct pool *p, const struct region_desc *desc)
{
        uint64_t leaves = region_leaves(desc);
        uint64_t more = desc->box_count > 1 ? desc->box_count - 1 : 0;
        uint64_t each = p->options.readonly ? sizeof(struct object_ref) : sizeof(struct leaf *);
        struct stored_region *r = budget_alloc(
                p->budget, sizeof(*r) + leaves * each + more * sizeof(struct box), "a region");
        if (!r)
                return NULL;
        uint8_t *after = (uint8_t *)(r + 1);
        struct box *boxes = (struct box *)(after + leaves * each);
        r->desc = *desc;
        r->users = 1;
        if (p->options.readonly)
                r->refs = (struct object_ref *)after;
        else
                r->leaves = (struct leaf **)after;
        if (more && desc->more)
                memcpy(boxes, desc->more, more * sizeof(*boxes));
        r->desc.more = more ? boxes : NULL;
        return r;
}

void region_release(struct pool *p, struct stored_region *r)
{
        if (!r || --r->users > 0)
                return;
        for (uint64_t i = 0; r->leaves && i < region_leaves(&r->desc); i++)
                leaf_release(p, r->leaves[i]);
        budget_free(p->budget, r);
}

struct object_ref stored_leaf(const struct stored_region *r, uint64_t leaf)
{
        return r->leaves ? r->leaves[leaf]->ref : r->refs[leaf];
}

static struct catalog *catalog_room(struct pool *p, uint32_t count)
{
        struct catalog *c = budget_alloc(p->budget, sizeof(*c) + count * sizeof(c->regions[0]),
                                         "the region table");
        if (c)
                c->users = 1;
        return c;
}

static void catalog_add(struct catalog *c, struct stored_region *r)
{
        c->regions[c->count++] = r;
        c->data_bytes += r->desc.bytes;
        r->users++;
}

struct catalog *catalog_new(struct pool *p, struct stored_region *const *regions, uint32_t count)
{
        struct catalog *c = catalog_room(p, count);
        for (uint32_t i = 0; c && i < count; i++)
                catalog_add(c, regions[i]);
        return c;
}

void catalog_release(struct pool *p, struct catalog *c)
{
        if (!c || --c->users > 0)
                return;
        for (uint32_t i = 0; i < c->count; i++)
                region_release(p, c->regions[i]);
        if (c->place.ref.offset && p->space.refs)
                space_unref(&p->space, c->place.ref.offset, c->place.bytes);
        budget_free(p->budget, c);
}

uint64_t catalog_bytes(struct stored_region *const *regions, uint32_t count)
{
        uint64_t bytes = CATALOG_HEAD_BYTES;
        for (uint32_t i = 0; i < count; i++)
                bytes += record_bytes(&regions[i]->desc);
        return bytes;
}

struct catalog_ref version_catalog(const struct version *v, uint32_t i)
{
        return v->catalogs[i]->place;
}

struct version *version_new(struct pool *p)
{
        return budget_alloc(p->budget, sizeof(struct version), "the version table");
}

static void drop_regions(struct pool *p, struct version *v)
{
        for (uint32_t i = 0; i < v->catalog_count; i++)
                catalog_release(p, v->catalogs[i]);
        budget_free(p->budget, v->catalogs);
        budget_free(p->budget, v->regions);
        if (v->index && --v->index->users == 0)
                budget_free(p->budget, v->index);
        v->catalogs = NULL;
        v->regions = NULL;
        v->index = NULL;
        v->catalog_count = v->region_count = 0;
}

void version_delete(struct pool *p, struct version *v)
{
        if (!v)
                return;
        drop_regions(p, v);
        if (v->manifest.offset && p->space.refs && !v->unreadable)
                space_unref(&p->space, v->manifest.offset, v->manifest_bytes);
        budget_free(p->budget, v);
}

/* ---- loading: leaves ------------------------------------------------------------------------- */

int leaf_load(struct pool *p, const struct region_desc *d, uint64_t leaf,
              const struct object_ref *ref, uint8_t *room, struct leaf_entry *entries)
{
        uint32_t bytes = leaf_length(leaf_entries(d, leaf));
        uint64_t readable = pool_readable_bytes(p);
        if (!placement_legal(ref->offset, bytes, readable))
                return err_set(BELAY_E_DATA, "region '%s', leaf %llu lies outside the pool",
                               d->name, (unsigned long long)leaf);
        int rc = media_read_now(p->media, room, bytes, ref->offset);
        if (rc)
                return err_set(BELAY_E_DATA, "region '%s', leaf %llu cannot be read: %s", d->name,
                               (unsigned long long)leaf, code_text(rc));
        return leaf_decode(room, d, leaf, readable, ref->checksum, entries);
}

static void leaf_take_slots(struct pool *p, const struct leaf *l)
{
        for (uint32_t i = 0; i < l->count; i++)
                entry_ref(&p->space, &l->entries[i], leaf_block_bytes(l, i));
        space_ref(&p->space, l->ref.offset, leaf_length(l->count));
}

static bool same_ref(const struct object_ref *a, const struct object_ref *b)
{
        return a->offset == b->offset && hash_equal(a->checksum, b->checksum);
}

/* The leaf of `old` at the same place, if it is the very same one. */
static struct leaf *shared_leaf(const struct stored_region *old, const struct region_desc *d,
                                uint64_t leaf, const struct object_ref *ref)
{
        if (!old || leaf >= region_leaves(&old->desc) || !leaf_fits(old->leaves[leaf], d, leaf))
                return NULL;
        return same_ref(&old->leaves[leaf]->ref, ref) ? old->leaves[leaf] : NULL;
}

static int load_leaf(struct pool *p, const struct region_desc *d, uint64_t i,
                     const struct object_ref *ref, struct leaf **out)
{
        struct leaf *l = leaf_new(p, d, i);
        if (!l)
                return -ENOMEM;
        int rc = leaf_load(p, d, i, ref, p->scratch, l->entries);
        if (rc) {
                memset(l->entries, 0, l->count * sizeof(l->entries[0]));
                leaf_release(p, l);
                return rc;
        }
        l->ref = *ref;
        leaf_take_slots(p, l);
        *out = l;
        return 0;
}

/* ---- loading: regions and catalogs ----------------------------------------------------------- */

struct loading {
        struct pool *p;
        struct version *v;
        const struct version *before; /* NULL, or what is probably shared */
        uint32_t found;               /* catalogs of it that were met already */
};

static const struct stored_region *region_before(const struct loading *l, const char *name)
{
        int64_t i = l->before && !l->before->unreadable ? version_find(l->before, name) : -1;
        return i < 0 ? NULL : l->before->regions[i];
}

static int load_leaves(struct loading *l, struct stored_region *r, const uint8_t *refs)
{
        const struct stored_region *old = region_before(l, r->desc.name);
        for (uint64_t i = 0; i < region_leaves(&r->desc); i++) {
                struct object_ref ref = ref_get(refs + i * ENTRY_BYTES);
                r->leaves[i] = shared_leaf(old, &r->desc, i, &ref);
                if (r->leaves[i]) {
                        r->leaves[i]->refs++;
                        continue;
                }
                int rc = load_leaf(l->p, &r->desc, i, &ref, &r->leaves[i]);
                if (rc)
                        return rc;
        }
        return 0;
}

static int load_region(struct loading *l, const struct region_desc *d, const uint8_t *refs,
                       const uint8_t *boxes, struct stored_region **out)
{
        struct stored_region *r = region_new(l->p, d);
        if (!r)
                return -ENOMEM;
        int rc = d->box_count > 1
                         ? boxes_get(&r->desc, boxes, (struct box *)(uintptr_t)r->desc.more)
                         : 0;
        for (uint64_t i = 0; r->refs && i < region_leaves(d); i++)
                r->refs[i] = ref_get(refs + i * ENTRY_BYTES);
        if (rc == 0 && r->leaves)
                rc = load_leaves(l, r, refs);
        if (rc) {
                region_release(l->p, r);
                return rc;
        }
        *out = r;
        return 0;
}

/* Adds the regions of a catalog, or of a manifest of format 1, to the version. */
static int load_records(struct loading *l, struct record_cursor *cursor, struct catalog_ref place)
{
        struct version *v = l->v;
        struct catalog *c = catalog_room(l->p, cursor->left);
        if (!c)
                return -ENOMEM;
        v->catalogs[v->catalog_count++] = c;
        struct region_desc d;
        const uint8_t *refs;
        const uint8_t *boxes;
        int rc;
        while ((rc = record_next(cursor, &d, &refs, &boxes)) == 1) {
                struct stored_region *r;
                rc = load_region(l, &d, refs, boxes, &r);
                if (rc)
                        return rc;
                catalog_add(c, r);
                region_release(l->p, r); /* it is the catalog's now */
                v->regions[v->region_count++] = r;
        }
        if (rc == 0 && place.ref.offset && l->p->space.refs)
                space_ref(&l->p->space, place.ref.offset, place.bytes);
        if (rc == 0)
                c->place = place;
        return rc;
}

/* The same catalog of the version before. Most come in the same order. */
static struct catalog *shared_catalog(struct loading *l, const struct catalog_ref *place)
{
        uint32_t count = l->before && !l->before->unreadable ? l->before->catalog_count : 0;
        for (uint32_t i = 0; i < count; i++) {
                uint32_t at = (l->found + i) % count;
                struct catalog *c = l->before->catalogs[at];
                if (same_ref(&c->place.ref, &place->ref) && c->place.bytes == place->bytes &&
                    c->count == place->regions) {
                        l->found = at + 1;
                        return c;
                }
        }
        return NULL;
}

static int load_catalog(struct loading *l, uint32_t i, const struct catalog_ref *place)
{
        struct pool *p = l->p;
        struct version *v = l->v;
        struct catalog *c = shared_catalog(l, place);
        if (c) {
                c->users++;
                v->catalogs[v->catalog_count++] = c;
                memcpy(v->regions + v->region_count, c->regions, c->count * sizeof(*v->regions));
                v->region_count += c->count;
                return 0;
        }
        char what[32];
        snprintf(what, sizeof(what), "catalog %u", i);
        uint8_t *buf = budget_alloc(p->budget, place->bytes, "the region table");
        if (!buf)
                return -ENOMEM;
        int rc = media_read_now(p->media, buf, place->bytes, place->ref.offset);
        if (rc)
                rc = err_set(BELAY_E_DATA, "%s cannot be read: %s", what, code_text(rc));
        struct record_cursor cursor;
        if (rc == 0)
                rc = catalog_begin(&cursor, buf, place, what);
        if (rc == 0)
                rc = load_records(l, &cursor, *place);
        budget_free(p->budget, buf);
        return rc;
}

static int load_regions(struct loading *l, const uint8_t *manifest,
                        const struct manifest_head *head)
{
        struct version *v = l->v;
        uint64_t catalogs = head->flat ? 1 : head->catalog_count;
        v->regions = budget_alloc(l->p->budget, max_u64(head->region_count, 1) * sizeof(void *),
                                  "the region table");
        v->catalogs = budget_alloc(l->p->budget, max_u64(catalogs, 1) * sizeof(void *),
                                   "the region table");
        if (!v->regions || !v->catalogs)
                return -ENOMEM;
        int rc = 0;
        if (head->flat) {
                struct record_cursor cursor;
                records_of_manifest(&cursor, manifest, v->manifest_bytes, head);
                rc = load_records(l, &cursor, (struct catalog_ref){.bytes = 0});
        }
        for (uint32_t i = 0; rc == 0 && i < head->catalog_count; i++) {
                struct catalog_ref place = manifest_catalog(manifest, i);
                rc = load_catalog(l, i, &place);
        }
        uint64_t sum = 0;
        for (uint32_t i = 0; rc == 0 && i < v->catalog_count; i++)
                if (__builtin_add_overflow(sum, v->catalogs[i]->data_bytes, &sum))
                        rc = err_set(BELAY_E_DATA, "manifest: the regions do not add up");
        if (rc == 0 && sum != head->data_bytes)
                rc = err_set(BELAY_E_DATA, "manifest: the regions do not add up");
        return rc ? rc : version_index(l->p, v);
}

/* ---- loading: the version ---------------------------------------------------------------------
 */

static int check_head(const struct pool *p, const struct version_entry *e,
                      const struct manifest_head *h)
{
        if (memcmp(h->pool_id, p->super.pool_id, sizeof(h->pool_id)) != 0)
                return err_set(BELAY_E_DATA, "manifest belongs to another pool");
        if (h->version != e->version)
                return err_set(BELAY_E_DATA, "manifest is of version %llu",
                               (unsigned long long)h->version);
        return 0;
}

/* Header first: its length field must agree with the superblock before memory of that size is used.
 */
static int read_manifest(struct pool *p, const struct version_entry *e, uint8_t **out)
{
        if (e->manifest.offset + e->manifest_bytes > pool_readable_bytes(p))
                return err_set(BELAY_E_DATA, "manifest lies beyond the end of the file");
        uint8_t head[16];
        int rc = media_read_now(p->media, head, sizeof(head), e->manifest.offset);
        if (rc)
                return err_set(BELAY_E_DATA, "manifest cannot be read: %s", code_text(rc));
        if (get_u32(head + 12) != e->manifest_bytes)
                return err_set(BELAY_E_DATA,
                               "manifest has another length than the superblock says");
        uint8_t *buf = budget_alloc(p->budget, e->manifest_bytes, "a manifest");
        if (!buf)
                return -ENOMEM;
        rc = media_read_now(p->media, buf, e->manifest_bytes, e->manifest.offset);
        if (rc) {
                budget_free(p->budget, buf);
                return err_set(BELAY_E_DATA, "manifest cannot be read: %s", code_text(rc));
        }
        *out = buf;
        return 0;
}

static int load(struct loading *l, const struct version_entry *e)
{
        struct pool *p = l->p;
        struct version *v = l->v;
        struct manifest_head head = {.region_count = 0};
        uint8_t *manifest = NULL;
        int rc = read_manifest(p, e, &manifest);
        if (rc == 0)
                rc = manifest_decode(manifest, e->manifest_bytes, pool_readable_bytes(p), &head);
        if (rc == 0 && !hash_equal(ref_get(manifest + 8).checksum, e->manifest.checksum))
                rc = err_set(BELAY_E_DATA, "manifest is not the one the superblock refers to");
        if (rc == 0)
                rc = check_head(p, e, &head);
        v->frozen_ns = head.time_ns;
        v->data_bytes = head.data_bytes;
        v->place = head.place;
        if (rc == 0)
                rc = load_regions(l, manifest, &head);
        budget_free(p->budget, manifest);
        return rc;
}

int version_load(struct pool *p, const struct version_entry *e, const struct version *before,
                 struct version **out)
{
        struct version *v = version_new(p);
        if (!v)
                return -ENOMEM;
        v->number = e->version;
        v->time_ns = e->time_ns;
        v->manifest = e->manifest;
        v->manifest_bytes = e->manifest_bytes;
        v->flags = e->flags;
        v->unreadable = true; /* until everything is there */
        struct loading l = {p, v, before, 0};
        int rc = load(&l, e);
        if (rc == -ENOMEM) {
                version_delete(p, v);
                return rc;
        }
        if (rc) {
                drop_regions(p, v);
                printable(err_text(), v->damage, sizeof(v->damage));
        } else {
                v->unreadable = false;
                if (p->space.refs)
                        space_ref(&p->space, v->manifest.offset, v->manifest_bytes);
                if (v->flags & VERSION_DAMAGED)
                        printable("found damaged by an earlier run", v->damage, sizeof(v->damage));
        }
        *out = v;
        return 0;
}
