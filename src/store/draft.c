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
 *     superblock.
 *  4. If the fate of a superblock write is unknown, the slots of the old and of the new list stay
 *     taken until a superblock with the old list has been written over it (pool_settle): the good
 *     one is never at risk.
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

int draft_begin(struct pool *p, struct draft **out)
{
        if (p->options.readonly)
                return err_set(-EROFS, "pool '%s' is open for reading only", p->label);
        if (p->media->lost)
                return err_set(BELAY_E_BROKEN, "pool '%s': close and open it again", p->label);
        if (p->draft)
                return err_set(-EBUSY, "pool '%s': a version is already being written", p->label);
        /* Neither may wrap: the old superblock would pass for the newer one. `pool_settle`,
         * `listing_make_room`, `announce_number` and `listing_add` add one each. */
        if (p->super.generation > UINT64_MAX - 4 || p->super.next_version == UINT64_MAX)
                return err_set(-EOVERFLOW, "pool '%s' has no version numbers left", p->label);
        int rc = pool_present(p);
        if (rc == 0)
                rc = pool_settle(p);
        if (rc == 0)
                rc = listing_make_room(p);
        if (rc)
                return rc;
        struct draft *d = p->idle ? p->idle : budget_alloc(p->budget, sizeof(*d), "the draft");
        if (!d)
                return -ENOMEM;
        p->idle = NULL;
        p->space.crumbs = 0;
        d->p = p;
        p->draft = d;
        d->base = newest_usable(p);
        d->v = version_new(p);
        rc = d->v ? draft_take_none(d) : -ENOMEM;
        if (rc) {
                draft_abort(&d);
                return rc;
        }
        d->v->number = p->super.next_version;
        d->v->place = p->super.place;
        *out = d;
        return 0;
}

static bool same_entries(const struct leaf *a, const struct leaf *b)
{
        for (uint32_t i = 0; i < a->count; i++)
                if (a->entries[i].offset != b->entries[i].offset)
                        return false;
        return true;
}

/* Every block of the region was put or kept. */
static int check_seen(const struct draft *d, const struct draft_region *own)
{
        uint64_t blocks = region_blocks(own->desc);
        for (uint64_t i = 0; i < blocks; i += 64) {
                uint64_t missing = ~d->seen[own->first_word + i / 64];
                if (blocks - i < 64)
                        missing &= (UINT64_C(1) << (blocks - i)) - 1;
                if (missing)
                        return err_set(
                                BELAY_E_BROKEN, "region '%s', block %llu was never written",
                                own->desc->name,
                                (unsigned long long)(i + (uint64_t)__builtin_ctzll(missing)));
        }
        return 0;
}

/* A leaf of the draft's own that came out as the old one gives way to it. */
static int finish_leaf(struct draft *d, struct draft_region *own, uint64_t i)
{
        struct leaf **at = &d->leaves[own->first_leaf + i];
        struct leaf *l = *at;
        const struct stored_region *old = own->old;
        struct leaf *before = old && i < region_leaves(&old->desc) ? old->leaves[i] : NULL;
        if (before && leaf_fits(before, own->desc, i) && same_entries(l, before)) {
                leaf_release(d->p, l);
                *at = before;
                return 0;
        }
        uint32_t bytes = leaf_length(l->count);
        void *buf;
        int rc = writer_stage(d->p, bytes, &buf);
        if (rc)
                return rc;
        l->ref.checksum = leaf_encode(buf, own->desc, i, d->v->number, l->entries);
        l->ref.offset = writer_keep(d->p, bytes);
        return 0;
}

#define PIECES 512u

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
 * Catalogs and manifest in one piece: they are small. */
static int put_aside(struct draft *d, struct put_aside *a)
{
        uint64_t leaf = div_up(leaf_length(LEAF_ENTRIES), SLOT_BYTES);
        uint64_t leaves = d->leaf_count;
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < d->region_count; i++)
                bytes += record_bytes(d->regions[i].desc) + CATALOG_REF_BYTES;
        uint64_t slots = div_up(bytes, SLOT_BYTES) + div_up(d->region_count, CATALOG_REGIONS) + 2;
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
        uint64_t left = compact_limit(d);
        if (left == 0)
                return 0;
        struct put_aside *aside = budget_alloc(p->budget, sizeof(*aside), "the slots in use");
        if (!aside || put_aside(d, aside))
                left = 0; /* another time */
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && left && i < d->region_count; i++)
                rc = compact_region(d, i, &left);
        if (aside)
                give_back(p, aside);
        budget_free(p->budget, aside);
        return rc == -ENOSPC ? 0 : rc;
}

static int write_leaves(struct draft *d)
{
        for (uint32_t i = 0; i < d->region_count; i++) {
                struct draft_region *own = &d->regions[i];
                int rc = check_seen(d, own);
                for (uint64_t j = 0; rc == 0 && own->own_leaves && j < region_leaves(own->desc);
                     j++)
                        if (draft_owns(d, own, j))
                                rc = finish_leaf(d, own, j);
                if (rc)
                        return rc;
        }
        return 0;
}

/* If the superblock that lists the version is lost, the other one knows its number: it can be told,
 * and is not used again. */
static int announce_number(struct draft *d)
{
        struct pool *p = d->p;
        if (d->v->number == p->super.next_version)
                return 0;
        p->super.next_version = d->v->number;
        p->doubtful = true;
        return pool_settle(p);
}

static int publish(struct draft *d)
{
        struct pool *p = d->p;
        uint64_t start = plat->now_ns();
        int rc = bring_along(d);
        if (rc == 0)
                rc = write_leaves(d);
        if (rc == 0)
                rc = draft_list_regions(d);
        if (rc == 0)
                rc = draft_write_catalogs(d);
        plat_point("pool.manifest");
        if (rc == 0)
                rc = draft_write_manifest(d);
        if (rc == 0)
                rc = writer_drain(p);
        uint64_t drained = plat->now_ns();
        d->result.drain_ns = drained - start;
        d->result.wait_ns = p->writer.wait_ns;
        d->result.submit_ns = p->writer.submit_ns;
        if (rc == 0)
                rc = pool_unharmed(p);
        if (rc == 0)
                rc = announce_number(d);
        if (rc)
                return rc;
        plat_point("pool.barrier_data");
        rc = p->media->ops->barrier(p->media);
        if (rc)
                return err_set(rc, "flush of pool '%s': %s", p->label, code_text(rc));
        d->result.version = d->v->number;
        d->result.written_bytes = p->writer.written + SUPER_BYTES;
        rc = listing_add(d);
        d->result.fixed_ns = plat->now_ns() - drained;
        plat_point("pool.published");
        return rc;
}

static void release_region(struct draft *d, struct draft_region *own)
{
        for (uint64_t j = 0; own->own_leaves && j < region_leaves(own->desc); j++)
                if (draft_owns(d, own, j))
                        leaf_release(d->p, d->leaves[own->first_leaf + j]);
        region_release(d->p, own->made);
}

static void free_draft(struct draft *d)
{
        struct budget *budget = d->p->budget;
        budget_free(budget, d->regions);
        budget_free(budget, d->leaves);
        budget_free(budget, d->seen);
        budget_free(budget, d->taken);
        budget_free(budget, d->names);
        budget_free(budget, d);
}

/* Its memory is for the next one, unless it failed: that may have been for lack of memory, and the
 * next one begins with all there is. */
static void discard(struct draft **draft, bool keep)
{
        struct draft *d = *draft;
        struct pool *p = d->p;
        *draft = NULL;
        /* Before the versions that they may refer to. */
        for (uint32_t i = 0; i < d->region_count; i++)
                release_region(d, &d->regions[i]);
        version_delete(p, d->v);
        p->draft = NULL;
        p->writer.written = 0;
        p->writer.wait_ns = 0;
        p->writer.submit_ns = 0;
        if (!keep) {
                free_draft(d);
                pool_drop_spares(p);
                return;
        }
        if (d->name_count)
                memset(d->names, 0, d->name_capacity * sizeof(*d->names));
        struct draft clean = {.regions = d->regions,
                              .region_capacity = d->region_capacity,
                              .leaves = d->leaves,
                              .leaf_capacity = d->leaf_capacity,
                              .seen = d->seen,
                              .word_capacity = d->word_capacity,
                              .taken = d->taken,
                              .taken_capacity = d->taken_capacity,
                              .names = d->names,
                              .name_capacity = d->name_capacity};
        *d = clean;
        p->idle = d;
}

void draft_forget(struct pool *p)
{
        if (p->idle) {
                p->idle->p = p;
                free_draft(p->idle);
        }
        p->idle = NULL;
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
                discard(draft, true);
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
        discard(draft, false);
}
