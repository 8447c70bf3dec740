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
        struct draft *d;
        struct pool *p;
        uint8_t *blocks;    /* per slot: blocks of the new version in it */
        uint64_t read_slot; /* what p->scratch holds                     */
        uint64_t left;      /* bytes that may still be moved             */
};

static bool is_small(const struct region_desc *d)
{
        return d->block_bytes < SLOT_BYTES;
}

static void count_blocks(struct compaction *c, const struct draft_region *own)
{
        for (uint64_t j = 0; j < region_leaves(own->desc); j++) {
                const struct leaf *l = c->d->leaves[own->first_leaf + j];
                for (uint32_t i = 0; i < l->count; i++)
                        c->blocks[l->entries[i].offset / SLOT_BYTES]++;
        }
}

/* Half of the slot or less is of use. */
static bool is_sparse(const struct compaction *c, const struct region_desc *d, uint64_t offset)
{
        return offset && c->blocks[offset / SLOT_BYTES] * 2u <= SLOT_BYTES / d->block_bytes;
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
static int move_block(struct compaction *c, uint32_t region, uint64_t leaf, uint32_t i)
{
        const struct draft_region *own = &c->d->regions[region];
        const struct region_desc *d = own->desc;
        struct leaf *l = c->d->leaves[own->first_leaf + leaf];
        struct leaf_entry e = l->entries[i];
        uint32_t bytes = leaf_block_bytes(l, i);
        void *to;
        if (read_slot(c, e.offset / SLOT_BYTES))
                return 0;
        const uint8_t *from = c->p->scratch + e.offset % SLOT_BYTES;
        if (!hash_equal(hash_block(d->hash, from, bytes), e.hash))
                return 0;
        int rc = draft_own_leaf(c->d, region, leaf, &l);
        if (rc == 0)
                rc = writer_stage(c->p, bytes, &to);
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
static int move_region(struct compaction *c, uint32_t region)
{
        const struct draft_region *own = &c->d->regions[region];
        const struct stored_region *old = own->old;
        uint64_t leaves = min_u64(region_leaves(own->desc), region_leaves(&old->desc));
        for (uint64_t j = 0; c->left && j < leaves; j++) {
                const struct leaf *before = old->leaves[j];
                uint32_t count = leaf_entries(own->desc, j);
                for (uint32_t i = 0; c->left && i < min_u64(count, before->count); i++) {
                        const struct leaf *l = c->d->leaves[own->first_leaf + j];
                        if (l->entries[i].offset != before->entries[i].offset ||
                            !is_sparse(c, own->desc, l->entries[i].offset))
                                continue;
                        int rc = move_block(c, region, j, i);
                        if (rc)
                                return rc;
                }
        }
        return 0;
}

int compact_region(struct draft *d, uint32_t region, uint64_t *left)
{
        const struct draft_region *own = &d->regions[region];
        if (!own->old || !is_small(own->desc) || *left == 0)
                return 0;
        struct compaction c = {.d = d, .p = d->p, .left = *left};
        c.blocks = budget_alloc(d->p->budget, d->p->space.slots, "the slots in use");
        if (!c.blocks)
                return 0; /* another time */
        count_blocks(&c, own);
        int rc = move_region(&c, region);
        budget_free(d->p->budget, c.blocks);
        *left = c.left;
        return rc;
}

uint64_t compact_limit(const struct draft *d)
{
        const struct space *s = &d->p->space;
        uint64_t used = (s->slots - s->free) * SLOT_BYTES;
        uint64_t data = 0;
        bool small = false;
        for (uint32_t i = 0; i < d->region_count; i++) {
                small = small || is_small(d->regions[i].desc);
                data += d->regions[i].desc->bytes;
        }
        uint64_t most = ENOUGH * data + SLACK_BYTES;
        /* Where the pool may not grow, before free space is torn to single slots: a leaf needs
         * several in a row. */
        if (d->p->options.limit_bytes)
                most = min_u64(most, d->p->options.limit_bytes / 4 * 3);
        if (!small || used <= most)
                return 0;
        return max_u64(data / PART, LEAST_BYTES);
}
