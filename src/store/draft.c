/* draft.c: a version under construction, and its publication.
 *
 *   begin ─► region × n ─► ready ─► put × n ─► publish ──► listed
 *     │          ▲           │        │           │
 *     │          └───────────┼────────┤           │
 *     └──────────────────────┴────────┴─► abort ◄─┘ (failure)
 *
 * Invariants
 *  1. No slot that the current superblock's list refers to is written.
 *  2. The superblock is written only after a barrier that covers all it refers to.
 *  3. Slots of versions that leave the list are freed only after the barrier that covers the
 * superblock.
 *  4. If the fate of a superblock write is unknown, the slots of the old and of the new list stay
 * taken until a superblock with the old list has been written over it (settle): the good one is
 * never at risk.
 *
 * Publication: blocks, leaves, manifest ─ barrier ─ superblock ─ barrier ─ free. */
#include "store/store_int.h"
#include <errno.h>

static const struct version *newest_usable(const struct pool *p)
{
        for (uint32_t i = p->version_count; i > 0; i--)
                if (version_usable(p->versions[i - 1]))
                        return p->versions[i - 1];
        return NULL;
}

static int write_superblock(struct pool *p, const struct superblock *s)
{
        superblock_encode(s, p->scratch);
        uint32_t at = 1 - p->super_at;
        plat_point("pool.superblock");
        int rc = media_write_now(p->media, p->scratch, SUPER_BYTES, (uint64_t)at * SUPER_BYTES);
        plat_point("pool.barrier_superblock");
        return rc ? rc : p->media->ops->barrier(p->media);
}

/* After a superblock write of unknown fate: makes the current list certain again, then lets go of
 * the version that may or may not have been listed. */
int pool_settle(struct pool *p)
{
        if (!p->limbo)
                return 0;
        struct superblock s = p->super;
        s.generation++;
        int rc = write_superblock(p, &s);
        if (rc)
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               code_text(rc));
        p->super = s;
        p->super_at = 1 - p->super_at;
        version_delete(p, p->limbo);
        p->limbo = NULL;
        return 0;
}

/* The only version makes room for the next. From here to its publication the pool has none, and
 * says so: an empty list, but numbers in use. */
static int give_up_versions(struct pool *p)
{
        struct superblock s = p->super;
        s.generation++;
        s.version_count = 0;
        s.held_bytes = 0;
        int rc = write_superblock(p, &s);
        /* A generation that may be on the medium is not used again. */
        p->super.generation = s.generation;
        if (rc)
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               code_text(rc));
        p->super = s;
        p->super_at = 1 - p->super_at;
        while (p->version_count)
                version_delete(p, p->versions[--p->version_count]);
        return 0;
}

/* A file may end within a slot: cut off, or left so by a crash during growth. What lies in that
 * slot counts, and pool bytes are whole slots, so the slot is completed before a superblock speaks
 * of it. */
static int complete_last_slot(struct pool *p)
{
        uint64_t bytes = align_up(p->media->bytes, SLOT_BYTES);
        if (bytes == p->media->bytes)
                return 0;
        int rc = bytes > plat->file_limit() ? -EFBIG : p->media->ops->grow(p->media, bytes);
        return rc ? err_set(rc, "pool '%s' cannot be filled up to %llu bytes: %s", p->label,
                            (unsigned long long)bytes, code_text(rc))
                  : 0;
}

int draft_begin(struct pool *p, struct draft **out)
{
        if (p->options.readonly)
                return err_set(-EROFS, "pool '%s' is open for reading only", p->label);
        if (p->media->lost)
                return err_set(BELAY_E_BROKEN, "pool '%s': close and open it again", p->label);
        if (p->draft)
                return err_set(-EBUSY, "pool '%s': a version is already being written", p->label);
        /* Neither may wrap: the old superblock would pass for the newer one. `settle` and `flip`
         * add one each. */
        if (p->super.generation >= UINT64_MAX - 1 || p->super.next_version == UINT64_MAX)
                return err_set(-EOVERFLOW, "pool '%s' has no version numbers left", p->label);
        int rc = pool_settle(p);
        if (rc == 0)
                rc = complete_last_slot(p);
        if (rc == 0 && p->options.replace && p->version_count)
                rc = give_up_versions(p);
        if (rc)
                return rc;
        struct draft *d = budget_alloc(p->budget, sizeof(*d), "the draft");
        if (!d)
                return -ENOMEM;
        d->p = p;
        p->draft = d;
        d->base = newest_usable(p);
        d->v = version_new(p, 0);
        if (!d->v) {
                draft_abort(&d);
                return -ENOMEM;
        }
        d->v->number = p->super.next_version;
        d->manifest_bytes = MANIFEST_HEAD_BYTES;
        *out = d;
        return 0;
}

static int make_place(struct draft *d)
{
        struct version *v = d->v;
        struct budget *budget = d->p->budget;
        if (v->region_count == MAX_REGIONS)
                return err_set(-EINVAL, "a version can have %u regions", MAX_REGIONS);
        if (v->region_count < d->capacity)
                return 0;
        uint64_t capacity = max_u64(UINT64_C(2) * d->capacity, 16);
        void *regions = budget_resize(budget, v->regions, capacity * sizeof(*v->regions),
                                      "the region table");
        if (regions)
                v->regions = regions;
        void *index =
                budget_resize(budget, v->index, capacity * sizeof(*v->index), "the region table");
        if (index)
                v->index = index;
        void *own = budget_resize(budget, d->regions, capacity * sizeof(*d->regions), "the draft");
        if (own)
                d->regions = own;
        if (!regions || !index || !own)
                return -ENOMEM;
        d->capacity = (uint32_t)capacity;
        return 0;
}

/* A region that was away for a version is still known from the one before. */
static void find_old(const struct draft *d, const struct region_desc *desc,
                     struct draft_region *own)
{
        const struct pool *p = d->p;
        for (uint32_t i = p->version_count; i > 0 && !own->old; i--) {
                const struct version *v = p->versions[i - 1];
                int64_t at = version_usable(v) ? version_find(v, desc->name) : -1;
                const struct stored_region *r = at >= 0 ? &v->regions[at] : NULL;
                if (!r || r->desc.block_bytes != desc->block_bytes || r->desc.hash != desc->hash)
                        continue;
                own->old = r;
                own->in_base = v == d->base;
        }
}

int draft_region(struct draft *d, const struct region_desc *desc, bool share, uint32_t *number)
{
        struct version *v = d->v;
        int rc = make_place(d);
        if (rc)
                return rc;
        struct stored_region *r = &v->regions[v->region_count];
        uint64_t leaves = max_u64(region_leaves(desc), 1);
        *r = (struct stored_region){.desc = *desc};
        r->leaves = budget_alloc(d->p->budget, leaves * sizeof(*r->leaves), "the block map");
        r->refs = budget_alloc(d->p->budget, leaves * sizeof(*r->refs), "the block map");
        if (!r->leaves || !r->refs) {
                budget_free(d->p->budget, r->leaves);
                budget_free(d->p->budget, r->refs);
                r->leaves = NULL;
                r->refs = NULL;
                return -ENOMEM;
        }
        struct draft_region *own = &d->regions[v->region_count];
        *own = (struct draft_region){.old = NULL};
        if (share)
                find_old(d, desc, own);
        *number = v->region_count++;
        v->data_bytes += desc->bytes;
        d->manifest_bytes += manifest_record_bytes(desc);
        if (d->manifest_bytes > MAX_MANIFEST_BYTES)
                return err_set(-EFBIG,
                               "the region table needs more than %llu bytes; use larger blocks",
                               (unsigned long long)MAX_MANIFEST_BYTES);
        return 0;
}

/* Every leaf may change, so one is made for each now: after this, writing needs no memory. Those
 * that turn out not to be needed are given back at publication. */
static int make_leaves(struct draft *d)
{
        for (uint32_t i = d->ready; i < d->v->region_count; i++) {
                struct stored_region *r = &d->v->regions[i];
                for (uint64_t j = 0; j < region_leaves(&r->desc); j++) {
                        r->leaves[j] = leaf_new(d->p, &r->desc, j);
                        if (!r->leaves[j])
                                return -ENOMEM;
                }
        }
        return 0;
}

/* A first version has a known size: one growth keeps the file in few extents. */
static void reserve_first(struct draft *d)
{
        struct pool *p = d->p;
        uint64_t bytes_more = 0;
        for (uint32_t i = d->ready; i < d->v->region_count; i++)
                bytes_more += d->v->regions[i].desc.bytes;
        uint64_t slots = div_up(bytes_more, SLOT_BYTES);
        slots += slots / 256 + div_up(d->manifest_bytes, SLOT_BYTES) + 64;
        uint64_t offset;
        uint64_t bytes;
        if (d->base || p->space.free >= slots)
                return;
        if (pool_take_slots(p, slots - p->space.free, slots - p->space.free, &offset, &bytes) == 0)
                space_unref(&p->space, offset, bytes);
        p->space.cursor = 0;
}

int draft_ready(struct draft *d, uint64_t frozen_ns)
{
        d->v->frozen_ns = frozen_ns;
        int rc = make_leaves(d);
        if (rc)
                return rc;
        uint64_t room = align_up(d->manifest_bytes, SLOT_BYTES);
        uint8_t *manifest = budget_resize(d->p->budget, d->manifest, room, "the manifest");
        if (!manifest)
                return -ENOMEM;
        /* Its last slot is written as a whole. */
        memset(manifest + d->manifest_room, 0, room - d->manifest_room);
        d->manifest = manifest;
        d->manifest_room = room;
        reserve_first(d);
        d->ready = d->v->region_count;
        return 0;
}

bool draft_knows(const struct draft *d, const char *name)
{
        for (uint32_t i = 0; i < d->v->region_count; i++)
                if (strcmp(d->v->regions[i].desc.name, name) == 0)
                        return true;
        return false;
}

bool draft_compares(const struct draft *d, uint32_t region)
{
        return d->regions[region].old != NULL;
}

uint64_t draft_number(const struct draft *d)
{
        return d->v->number;
}

uint64_t draft_base(const struct draft *d)
{
        return d->base ? d->base->number : 0;
}

int draft_carry(struct draft *d, bool (*gone)(void *arg, const char *name), void *arg)
{
        uint32_t first = d->v->region_count;
        uint32_t number;
        int rc = 0;
        for (uint32_t i = 0; d->base && rc == 0 && i < d->base->region_count; i++) {
                const struct region_desc *desc = &d->base->regions[i].desc;
                if (!draft_knows(d, desc->name) && !gone(arg, desc->name))
                        rc = draft_region(d, desc, true, &number);
        }
        if (rc == 0)
                rc = draft_ready(d, d->v->frozen_ns);
        for (uint32_t i = first; rc == 0 && i < d->v->region_count; i++)
                for (uint64_t b = 0; b < region_blocks(&d->v->regions[i].desc); b++)
                        draft_keep(d, i, b);
        return rc;
}

static bool same_entries(const struct leaf *a, const struct leaf *b)
{
        for (uint32_t i = 0; i < a->count; i++)
                if (a->entries[i].offset != b->entries[i].offset)
                        return false;
        return true;
}

static int finish_leaf(struct draft *d, uint32_t region, uint64_t i)
{
        struct stored_region *r = &d->v->regions[region];
        struct leaf *l = r->leaves[i];
        for (uint32_t k = 0; k < l->count; k++)
                if (l->entries[k].offset == 0)
                        return err_set(BELAY_E_BROKEN, "region '%s', block %llu was never written",
                                       r->desc.name, (unsigned long long)(i * LEAF_ENTRIES + k));
        const struct stored_region *old = d->regions[region].old;
        struct leaf *before = old && i < region_leaves(&old->desc) ? old->leaves[i] : NULL;
        if (before && leaf_fits(before, &r->desc, i) && same_entries(l, before)) {
                leaf_release(d->p, l);
                before->refs++;
                r->leaves[i] = before;
                r->refs[i] = before->ref;
                return 0;
        }
        uint32_t bytes = leaf_length(l->count);
        void *buf;
        int rc = writer_stage(d->p, bytes, &buf);
        if (rc)
                return rc;
        l->ref.checksum = leaf_encode(buf, &r->desc, i, d->v->number, l->entries);
        l->ref.offset = writer_keep(d->p, bytes);
        r->refs[i] = l->ref;
        return 0;
}

#define PIECES 64u

/* What the version cannot do without: its map and its manifest. */
struct put_aside {
        uint64_t offset[PIECES], bytes[PIECES];
        uint32_t count;
};

static int take_aside(struct pool *p, uint64_t least, uint64_t most, struct put_aside *a)
{
        int rc = pool_take_slots(p, least, most, &a->offset[a->count], &a->bytes[a->count]);
        a->count += rc == 0;
        return rc;
}

/* The map in pieces that hold whole leaves: in one piece, torn free space would make the pool grow.
 */
static int put_aside(struct draft *d, struct put_aside *a)
{
        uint64_t leaf = div_up(leaf_length(LEAF_ENTRIES), SLOT_BYTES);
        uint64_t slots = d->manifest_room / SLOT_BYTES;
        uint64_t leaves = 0;
        for (uint32_t i = 0; i < d->v->region_count; i++)
                leaves += region_leaves(&d->v->regions[i].desc);
        int rc = take_aside(d->p, slots, slots, a);
        uint64_t least = leaf * div_up(leaves, PIECES - 1);
        while (rc == 0 && leaves) {
                rc = take_aside(d->p, min_u64(least, leaves * leaf), leaves * leaf, a);
                if (rc == 0)
                        leaves -= a->bytes[a->count - 1] / SLOT_BYTES / leaf;
        }
        return rc;
}

static void give_back(struct pool *p, const struct put_aside *a)
{
        for (uint32_t i = 0; i < a->count; i++)
                space_unref(&p->space, a->offset[i], a->bytes[i]);
}

/* Small blocks move only as long as there is space for it. */
static int bring_along(struct draft *d)
{
        struct pool *p = d->p;
        uint64_t left = compact_limit(p, d->v);
        struct put_aside aside = {.count = 0};
        if (left == 0)
                return 0;
        if (put_aside(d, &aside))
                left = 0; /* another time */
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && left && i < d->v->region_count; i++)
                rc = compact(p, d->v, i, d->regions[i].old, &left);
        give_back(p, &aside);
        return rc == -ENOSPC ? 0 : rc;
}

static int write_map(struct draft *d)
{
        for (uint32_t i = 0; i < d->v->region_count; i++)
                for (uint64_t j = 0; j < region_leaves(&d->v->regions[i].desc); j++) {
                        int rc = finish_leaf(d, i, j);
                        if (rc)
                                return rc;
                }
        return 0;
}

/* Written apart from the gather buffers, since it may be larger than a chunk. Needs the writer
 * drained. */
static int write_manifest(struct draft *d)
{
        struct pool *p = d->p;
        struct version *v = d->v;
        struct manifest_head head = {.version = v->number,
                                     .time_ns = v->frozen_ns,
                                     .data_bytes = v->data_bytes,
                                     .region_count = v->region_count};
        memcpy(head.pool_id, p->super.pool_id, sizeof(head.pool_id));
        uint64_t at = MANIFEST_HEAD_BYTES;
        for (uint32_t i = 0; i < v->region_count; i++)
                at = manifest_put_region(d->manifest, at, &v->regions[i].desc, v->regions[i].refs);
        struct hash128 sum = manifest_seal(d->manifest, at, &head);
        uint64_t slots = d->manifest_room / SLOT_BYTES;
        uint64_t offset;
        uint64_t bytes;
        int rc = pool_take_slots(p, slots, slots, &offset, &bytes);
        if (rc)
                return rc;
        v->manifest = (struct object_ref){offset, sum};
        v->manifest_bytes = (uint32_t)at;
        rc = media_write_now(p->media, d->manifest, d->manifest_room, offset);
        p->writer.written += d->manifest_room;
        return rc ? err_set(rc, "write of the manifest to pool '%s': %s", p->label, code_text(rc))
                  : 0;
}

/* The new list: every kept damaged version, the newest undamaged ones, and the new one. keep[] gets
 * the versions that stay, in ascending order. */
static uint32_t choose_kept(const struct pool *p, struct version *keep[MAX_VERSIONS])
{
        uint32_t good = 0;
        uint32_t n = 0;
        struct version *down[MAX_VERSIONS];
        for (uint32_t i = p->version_count; i > 0 && n < MAX_VERSIONS - 1; i--) {
                struct version *v = p->versions[i - 1];
                bool stays = version_usable(v) ? good + 1 < p->options.versions
                                               : p->options.damaged == DAMAGED_KEEP;
                if (stays)
                        down[n++] = v;
                good += version_usable(v);
        }
        for (uint32_t i = 0; i < n; i++)
                keep[i] = down[n - 1 - i];
        return n;
}

static struct version_entry entry_of(const struct version *v)
{
        return (struct version_entry){v->number, v->manifest, v->manifest_bytes, v->flags,
                                      v->time_ns};
}

/* Frees what left the list. From here on the new list is the truth. */
static void adopt(struct pool *p, const struct superblock *s, struct version *fresh,
                  struct version *keep[MAX_VERSIONS], uint32_t kept)
{
        struct version *gone[MAX_VERSIONS];
        uint32_t gone_count = 0;
        for (uint32_t i = 0; i < p->version_count; i++) {
                bool stays = false;
                for (uint32_t k = 0; k < kept; k++)
                        stays |= keep[k] == p->versions[i];
                if (!stays)
                        gone[gone_count++] = p->versions[i];
        }
        memcpy(p->versions, keep, kept * sizeof(*keep));
        p->versions[kept] = fresh;
        p->version_count = kept + 1;
        p->super = *s;
        p->super_at = 1 - p->super_at;
        p->super_state[p->super_at][0] = '\0';
        for (uint32_t i = 0; i < gone_count; i++)
                version_delete(p, gone[i]);
}

static int flip(struct draft *d)
{
        struct pool *p = d->p;
        struct version *keep[MAX_VERSIONS];
        uint32_t kept = choose_kept(p, keep);
        d->v->time_ns = plat->wall_ns();
        struct superblock s = p->super;
        s.generation++;
        s.next_version = d->v->number + 1;
        s.pool_bytes = p->media->bytes;
        s.version_count = kept + 1;
        s.held_bytes = 0;
        for (uint32_t i = 0; i < kept; i++) {
                const struct version *v = keep[i];
                s.versions[i] = entry_of(v);
                if (!v->unreadable)
                        continue;
                /* Its entry stays legal, also when the file was cut off before its manifest. */
                s.pool_bytes = max_u64(
                        s.pool_bytes, align_up(v->manifest.offset + v->manifest_bytes, SLOT_BYTES));
                s.held_bytes = p->held_bytes;
        }
        s.versions[kept] = entry_of(d->v);
        int rc = write_superblock(p, &s);
        if (rc) {
                /* Old or new list: nobody knows which one the medium holds. Keep both alive
                 * (invariant 4); a number and a generation that may be on the medium are not used
                 * again. */
                p->limbo = d->v;
                d->v = NULL;
                p->super.next_version = s.next_version;
                p->super.generation = s.generation;
                return err_set(rc, "write of the superblock of pool '%s': %s", p->label,
                               code_text(rc));
        }
        adopt(p, &s, d->v, keep, kept);
        d->v = NULL;
        return 0;
}

static int publish(struct draft *d)
{
        struct pool *p = d->p;
        uint64_t start = plat->now_ns();
        int rc = bring_along(d);
        if (rc == 0)
                rc = write_map(d);
        if (rc == 0)
                rc = writer_drain(p);
        uint64_t drained = plat->now_ns();
        d->result.drain_ns = drained - start;
        d->result.wait_ns = p->writer.wait_ns;
        d->result.submit_ns = p->writer.submit_ns;
        if (rc == 0)
                rc = version_index(p, d->v);
        plat_point("pool.manifest");
        if (rc == 0)
                rc = write_manifest(d);
        if (rc)
                return rc;
        plat_point("pool.barrier_data");
        rc = p->media->ops->barrier(p->media);
        if (rc)
                return err_set(rc, "flush of pool '%s': %s", p->label, code_text(rc));
        d->result.version = d->v->number;
        d->result.written_bytes = p->writer.written + SUPER_BYTES;
        rc = flip(d);
        d->result.fixed_ns = plat->now_ns() - drained;
        plat_point("pool.published");
        return rc;
}

static void discard(struct draft **draft)
{
        struct draft *d = *draft;
        struct pool *p = d->p;
        *draft = NULL;
        version_delete(p, d->v);
        budget_free(p->budget, d->regions);
        budget_free(p->budget, d->manifest);
        p->draft = NULL;
        p->writer.written = 0;
        p->writer.wait_ns = 0;
        p->writer.submit_ns = 0;
        budget_free(p->budget, d);
}

int draft_publish(struct draft **draft, struct draft_result *out)
{
        struct pool *p = (*draft)->p;
        int rc = publish(*draft);
        if (rc && p->media->lost)
                rc = err_wrap(BELAY_E_BROKEN,
                              "the state of writes is unknown, close and open the pool again");
        if (rc == 0) {
                *out = (*draft)->result;
                discard(draft);
        } else {
                draft_abort(draft);
        }
        return rc;
}

void draft_abort(struct draft **draft)
{
        if (!*draft)
                return;
        struct pool *p = (*draft)->p;
        /* A cancel that fails leaves the pool broken: nothing will be written to the slots that go
         * back here. The caller's error is the one that counts. */
        struct err_kept kept;
        err_keep(&kept);
        (void)writer_cancel(p);
        (void)err_give_back(&kept);
        discard(draft);
        /* It may have failed for lack of memory; the next one begins with all there is. */
        pool_drop_spares(p);
}
