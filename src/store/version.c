/* version.c: versions in memory: loaded from a manifest, or built by a draft. */
#include "store/store_int.h"
#include <errno.h>

struct version *version_new(struct pool *p, uint32_t regions)
{
        struct version *v = budget_alloc(p->budget, sizeof(*v), "the version table");
        if (!v)
                return NULL;
        uint64_t count = max_u64(regions, 1);
        v->regions = budget_alloc(p->budget, count * sizeof(*v->regions), "the region table");
        v->index = budget_alloc(p->budget, count * sizeof(*v->index), "the region table");
        if (!v->regions || !v->index) {
                version_delete(p, v);
                return NULL;
        }
        return v;
}

static void drop_regions(struct pool *p, struct version *v)
{
        for (uint32_t i = 0; v->regions && i < v->region_count; i++) {
                struct stored_region *r = &v->regions[i];
                for (uint64_t j = 0; r->leaves && j < region_leaves(&r->desc); j++)
                        leaf_release(p, r->leaves[j]);
                budget_free(p->budget, r->leaves);
                budget_free(p->budget, r->refs);
        }
        budget_free(p->budget, v->regions);
        budget_free(p->budget, v->index);
        v->regions = NULL;
        v->index = NULL;
        v->region_count = 0;
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

int version_index(struct pool *p, struct version *v)
{
        for (uint32_t i = 0; i < v->region_count; i++)
                v->index[i] = (struct name_slot){hash_name(v->regions[i].desc.name), i};
        names_sort(v->index, v->region_count);
        for (uint32_t i = 1; i < v->region_count; i++) {
                const struct name_slot *a = &v->index[i - 1];
                const struct name_slot *b = &v->index[i];
                const char *name = v->regions[b->position].desc.name;
                if (a->key == b->key && strcmp(v->regions[a->position].desc.name, name) == 0)
                        return err_set(BELAY_E_DATA,
                                       "version %llu of pool '%s' has two regions '%s'",
                                       (unsigned long long)v->number, p->label, name);
        }
        return 0;
}

int64_t version_find(const struct version *v, const char *name)
{
        uint64_t key = hash_name(name);
        for (size_t i = names_find(v->index, v->region_count, key);
             i < v->region_count && v->index[i].key == key; i++)
                if (strcmp(v->regions[v->index[i].position].desc.name, name) == 0)
                        return (int64_t)v->index[i].position;
        return -1;
}

int leaf_load(struct pool *p, const struct stored_region *r, uint64_t leaf,
              struct leaf_entry *entries)
{
        uint8_t buf[LEAF_HEADER_BYTES + LEAF_ENTRIES * ENTRY_BYTES];
        uint32_t bytes = leaf_length(leaf_entries(&r->desc, leaf));
        uint64_t readable = pool_readable_bytes(p);
        const struct object_ref *ref = &r->refs[leaf];
        if (!placement_legal(ref->offset, bytes, readable))
                return err_set(BELAY_E_DATA, "region '%s', leaf %llu lies outside the pool",
                               r->desc.name, (unsigned long long)leaf);
        int rc = media_read_now(p->media, buf, bytes, ref->offset);
        if (rc)
                return err_set(BELAY_E_DATA, "region '%s', leaf %llu cannot be read: %s",
                               r->desc.name, (unsigned long long)leaf, code_text(rc));
        return leaf_decode(buf, &r->desc, leaf, readable, ref->checksum, entries);
}

static void leaf_take_slots(struct pool *p, const struct leaf *l)
{
        for (uint32_t i = 0; i < l->count; i++)
                space_ref(&p->space, l->entries[i].offset, leaf_block_bytes(l, i));
        space_ref(&p->space, l->ref.offset, leaf_length(l->count));
}

/* The leaf of `before` at the same place, if it is the very same one. */
static struct leaf *shared_leaf(const struct version *before, const struct stored_region *r,
                                uint64_t leaf)
{
        int64_t i = before && !before->unreadable ? version_find(before, r->desc.name) : -1;
        if (i < 0)
                return NULL;
        const struct stored_region *old = &before->regions[i];
        if (leaf >= region_leaves(&old->desc) || !leaf_fits(old->leaves[leaf], &r->desc, leaf))
                return NULL;
        const struct object_ref *a = &old->leaves[leaf]->ref;
        const struct object_ref *b = &r->refs[leaf];
        return a->offset == b->offset && hash_equal(a->checksum, b->checksum) ? old->leaves[leaf]
                                                                              : NULL;
}

static int load_leaves(struct pool *p, struct stored_region *r, const struct version *before)
{
        uint64_t count = region_leaves(&r->desc);
        r->leaves =
                budget_alloc(p->budget, max_u64(count, 1) * sizeof(*r->leaves), "the block map");
        if (!r->leaves)
                return -ENOMEM;
        for (uint64_t i = 0; i < count; i++) {
                struct leaf *l = shared_leaf(before, r, i);
                if (l) {
                        l->refs++;
                        r->leaves[i] = l;
                        continue;
                }
                l = leaf_new(p, &r->desc, i);
                if (!l)
                        return -ENOMEM;
                int rc = leaf_load(p, r, i, l->entries);
                if (rc) {
                        memset(l->entries, 0, l->count * sizeof(l->entries[0]));
                        leaf_release(p, l);
                        return rc;
                }
                l->ref = r->refs[i];
                leaf_take_slots(p, l);
                r->leaves[i] = l;
        }
        return 0;
}

static int load_region(struct pool *p, struct version *v, const struct region_desc *d,
                       const uint8_t *refs, const struct version *before)
{
        struct stored_region *r = &v->regions[v->region_count];
        uint64_t count = region_leaves(d);
        r->refs = budget_alloc(p->budget, max_u64(count, 1) * sizeof(*r->refs), "the block map");
        if (!r->refs)
                return -ENOMEM;
        r->desc = *d;
        v->region_count++;
        for (uint64_t i = 0; i < count; i++)
                r->refs[i] = ref_get(refs + i * ENTRY_BYTES);
        return p->options.readonly ? 0 : load_leaves(p, r, before);
}

static int load_regions(struct pool *p, struct version *v, const uint8_t *manifest,
                        const struct manifest_head *head, const struct version *before)
{
        struct manifest_cursor cursor;
        struct region_desc d;
        const uint8_t *refs;
        int rc;
        manifest_begin(&cursor, manifest, v->manifest_bytes, head);
        while ((rc = manifest_next(&cursor, &d, &refs)) == 1) {
                rc = load_region(p, v, &d, refs, before);
                if (rc)
                        return rc;
        }
        return rc ? rc : version_index(p, v);
}

static int check_head(const struct pool *p, const struct version_entry *e,
                      const struct manifest_head *h)
{
        if (memcmp(h->pool_id, p->super.pool_id, sizeof(h->pool_id)) != 0)
                return err_set(BELAY_E_DATA, "manifest belongs to another pool");
        if (h->version != e->version)
                return err_set(BELAY_E_DATA, "manifest is of version %llu",
                               (unsigned long long)h->version);
        if (h->data_bytes > pool_readable_bytes(p))
                return err_set(BELAY_E_DATA, "manifest: more data than the pool has room for");
        return 0;
}

/* Header first: its length field must agree with the superblock before memory of that size is used.
 */
static int read_manifest(struct pool *p, const struct version_entry *e, uint8_t **out)
{
        if (e->manifest.offset + e->manifest_bytes > pool_readable_bytes(p))
                return err_set(BELAY_E_DATA, "manifest lies beyond the end of the file");
        uint8_t head[MANIFEST_HEAD_BYTES];
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

int version_load(struct pool *p, const struct version_entry *e, const struct version *before,
                 struct version **out)
{
        struct manifest_head head = {.region_count = 0};
        uint8_t *manifest = NULL;
        int rc = read_manifest(p, e, &manifest);
        if (rc == 0)
                rc = manifest_decode(manifest, e->manifest_bytes, &head);
        if (rc == 0 && !hash_equal(ref_get(manifest + 8).checksum, e->manifest.checksum))
                rc = err_set(BELAY_E_DATA, "manifest is not the one the superblock refers to");
        if (rc == 0)
                rc = check_head(p, e, &head);
        struct version *v = rc == -ENOMEM ? NULL : version_new(p, rc ? 0 : head.region_count);
        if (!v) {
                budget_free(p->budget, manifest);
                return -ENOMEM;
        }
        v->number = e->version;
        v->time_ns = e->time_ns;
        v->manifest = e->manifest;
        v->manifest_bytes = e->manifest_bytes;
        v->flags = e->flags;
        v->frozen_ns = head.time_ns;
        v->data_bytes = head.data_bytes;
        v->unreadable = true; /* until everything is there */
        if (rc == 0)
                rc = load_regions(p, v, manifest, &head, before);
        budget_free(p->budget, manifest);
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
