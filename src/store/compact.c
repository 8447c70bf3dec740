/* compact.c: blocks smaller than a slot share slots, and one that lives on keeps the whole slot.
 * When that has made the pool much larger than what it holds, a version does not share such blocks
 * but brings them along: they are written again, close together, and the old slots are free once no
 * version needs them. A little with each version, so that no commit takes much longer for it. */
#include "store/store_int.h"

/* Up to so many times its data a pool may occupy before anything is moved: two versions that share
 * nothing. */
#define ENOUGH      2u
#define SLACK_BYTES (UINT64_C(4) << 20)
/* Moved with one version: this part of its data, but not less than that. */
#define PART        8u
#define LEAST_BYTES (UINT64_C(1) << 20)

struct compaction {
        struct pool *p;
        uint8_t *blocks;    /* per slot: blocks of the new version in it */
        uint64_t read_slot; /* what p->scratch holds                     */
        uint64_t left;      /* bytes that may still be moved             */
};

static bool is_small(const struct region_desc *d)
{
        return d->block_bytes < SLOT_BYTES;
}

static void count_blocks(struct compaction *c, const struct stored_region *r)
{
        for (uint64_t j = 0; j < region_leaves(&r->desc); j++)
                for (uint32_t i = 0; i < r->leaves[j]->count; i++)
                        c->blocks[r->leaves[j]->entries[i].offset / SLOT_BYTES]++;
}

/* Half of the slot or less is of use. */
static bool is_sparse(const struct compaction *c, const struct region_desc *d, uint64_t offset)
{
        return c->blocks[offset / SLOT_BYTES] * 2u <= SLOT_BYTES / d->block_bytes;
}

static int read_slot(struct compaction *c, uint64_t slot)
{
        if (slot == c->read_slot)
                return 0;
        c->read_slot = 0;
        int rc = media_read_now(c->p->media, c->p->scratch, SLOT_BYTES, slot * SLOT_BYTES);
        if (rc == 0)
                c->read_slot = slot;
        return rc;
}

/* What cannot be read, or is not right, stays where it is: verify will find it there. */
static int move_block(struct compaction *c, const struct region_desc *d, struct leaf *l, uint32_t i)
{
        struct leaf_entry e = l->entries[i];
        uint32_t bytes = leaf_block_bytes(l, i);
        void *to;
        if (read_slot(c, e.offset / SLOT_BYTES))
                return 0;
        const uint8_t *from = c->p->scratch + e.offset % SLOT_BYTES;
        if (!hash_equal(hash_block(d->hash, from, bytes), e.hash))
                return 0;
        int rc = writer_stage(c->p, bytes, &to);
        if (rc)
                return rc;
        memcpy(to, from, bytes);
        e.offset = writer_keep(c->p, bytes);
        leaf_set(c->p, l, i, e);
        c->left -= min_u64(c->left, bytes);
        return 0;
}

/* What this version wrote itself is on its way: it cannot be read, and lies close together anyway.
 */
static int move_region(struct compaction *c, const struct stored_region *r,
                       const struct stored_region *old)
{
        for (uint64_t j = 0; c->left && j < region_leaves(&r->desc); j++) {
                struct leaf *l = r->leaves[j];
                const struct leaf *before = j < region_leaves(&old->desc) ? old->leaves[j] : NULL;
                for (uint32_t i = 0; before && c->left && i < min_u64(l->count, before->count); i++)
                        if (l->entries[i].offset == before->entries[i].offset &&
                            is_sparse(c, &r->desc, l->entries[i].offset)) {
                                int rc = move_block(c, &r->desc, l, i);
                                if (rc)
                                        return rc;
                        }
        }
        return 0;
}

int compact(struct pool *p, const struct version *v, uint32_t region,
            const struct stored_region *old, uint64_t *left)
{
        const struct stored_region *r = &v->regions[region];
        if (!old || !is_small(&r->desc) || *left == 0)
                return 0;
        struct compaction c = {.p = p, .left = *left};
        c.blocks = budget_alloc(p->budget, p->space.slots, "the slots in use");
        if (!c.blocks)
                return 0; /* another time */
        count_blocks(&c, r);
        int rc = move_region(&c, r, old);
        budget_free(p->budget, c.blocks);
        *left = c.left;
        return rc;
}

uint64_t compact_limit(const struct pool *p, const struct version *v)
{
        uint64_t used = (p->space.slots - p->space.free) * SLOT_BYTES;
        bool small = false;
        for (uint32_t i = 0; i < v->region_count; i++)
                small = small || is_small(&v->regions[i].desc);
        if (!small || used <= ENOUGH * v->data_bytes + SLACK_BYTES)
                return 0;
        return max_u64(v->data_bytes / PART, LEAST_BYTES);
}
