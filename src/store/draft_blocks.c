/* draft_blocks.c: the blocks of a version under construction: written, or shared with an earlier
 * version. See draft.c for the states. */
#include "store/store_int.h"
#include <errno.h>

/* The entry of an earlier version for this block, if that block has the same place and length. */
static const struct leaf_entry *old_entry(const struct draft *d, uint32_t region, uint64_t block)
{
        const struct stored_region *old = d->regions[region].old;
        const struct region_desc *desc = &d->v->regions[region].desc;
        if (!old || block >= region_blocks(&old->desc) ||
            block_length(&old->desc, block) != block_length(desc, block))
                return NULL;
        return &old->leaves[block / LEAF_ENTRIES]->entries[block % LEAF_ENTRIES];
}

bool draft_can_keep(const struct draft *d, uint32_t region, uint64_t block)
{
        return d->regions[region].in_base && old_entry(d, region, block);
}

static void share(struct draft *d, uint32_t region, uint64_t block, const struct leaf_entry *old)
{
        struct stored_region *r = &d->v->regions[region];
        uint32_t bytes = block_length(&r->desc, block);
        space_ref(&d->p->space, old->offset, bytes);
        leaf_set(d->p, r->leaves[block / LEAF_ENTRIES], (uint32_t)(block % LEAF_ENTRIES), *old);
        d->result.unchanged_bytes += bytes;
        d->regions[region].result.shared_blocks++;
}

void draft_keep(struct draft *d, uint32_t region, uint64_t block)
{
        const struct leaf_entry *old = old_entry(d, region, block);
        if (old)
                share(d, region, block, old);
}

int draft_make_room(struct draft *d, uint64_t bytes)
{
        return writer_make_room(d->p, bytes);
}

int draft_settle(struct draft *d)
{
        return writer_drain(d->p);
}

bool draft_has(const struct draft *d, uint32_t region, uint64_t block)
{
        const struct leaf *l = d->v->regions[region].leaves[block / LEAF_ENTRIES];
        return l->entries[block % LEAF_ENTRIES].offset != 0;
}

int draft_read_old(struct draft *d, uint32_t region, uint64_t block, void *to)
{
        struct pool *p = d->p;
        const struct region_desc *desc = &d->v->regions[region].desc;
        const struct leaf_entry *old = old_entry(d, region, block);
        uint32_t bytes = block_length(desc, block);
        if (!old)
                return err_set(-EINVAL, "region '%s', block %llu is new", desc->name,
                               (unsigned long long)block);
        int rc = media_read_now(p->media, to, bytes, old->offset);
        if (rc == 0 && !hash_equal(hash_block(desc->hash, to, bytes), old->hash))
                rc = BELAY_E_DATA;
        if (rc == 0)
                return 0;
        rc = err_set(rc, "region '%s', block %llu of version %llu cannot be read: %s", desc->name,
                     (unsigned long long)block, (unsigned long long)d->base->number, code_text(rc));
        /* A read that failed may succeed the next time. Without a word to the log: this is the
         * flusher's way (engine/flush.c), and the failure of the commit says it. */
        struct version *base = pool_find_version(p, d->base->number);
        if (rc == BELAY_E_DATA) {
                base->flags |= VERSION_DAMAGED;
                printable(err_text(), base->damage, sizeof(base->damage));
        }
        return rc;
}

/* A block is timed every so many bytes. */
#define SAMPLE (UINT64_C(512) << 10)

static void add_sample(struct sample *s, uint64_t start_ns, uint64_t end_ns, uint32_t bytes)
{
        s->ns += end_ns - start_ns;
        s->bytes += bytes;
}

static bool time_this(struct draft *d, uint32_t bytes)
{
        d->unsampled += bytes;
        if (d->unsampled < SAMPLE)
                return false;
        d->unsampled = 0;
        return true;
}

/* Where the program has it: what is unchanged is not copied. Should it change meanwhile, the hash
 * is of what was read, and equal only if that was the old content. */
static bool same_in_place(struct draft *d, uint32_t hash, const struct leaf_entry *old,
                          const void *from, uint32_t bytes)
{
        bool timed = time_this(d, bytes);
        uint64_t start = timed ? plat->now_ns() : 0;
        bool equal = hash_equal(hash_block(hash, from, bytes), old->hash);
        if (timed)
                add_sample(&d->result.hash, start, plat->now_ns(), bytes);
        return equal;
}

/* The hash is of the copy, whatever happens to the original. */
static struct hash128 copy_and_hash(struct draft *d, uint32_t hash, void *to, const void *from,
                                    uint32_t bytes, bool compared)
{
        bool timed = time_this(d, bytes);
        uint64_t start = timed ? plat->now_ns() : 0;
        memcpy(to, from, bytes);
        uint64_t copied = timed ? plat->now_ns() : 0;
        struct hash128 h = hash_block(hash, to, bytes);
        if (timed) {
                add_sample(&d->result.copy[compared], start, copied, bytes);
                if (hash != HASH_NONE)
                        add_sample(&d->result.rehash, copied, plat->now_ns(), bytes);
        }
        return h;
}

/* A block is probably like the one before it. If that was unchanged, this one is looked at where it
 * is, and not copied if it is unchanged too; if not, it is copied at once, and hashed only once. */
int draft_put(struct draft *d, uint32_t region, uint64_t block, const void *from)
{
        struct stored_region *r = &d->v->regions[region];
        struct draft_region *own = &d->regions[region];
        uint32_t bytes = block_length(&r->desc, block);
        uint32_t hash = r->desc.hash;
        const struct leaf_entry *old = hash == HASH_NONE ? NULL : old_entry(d, region, block);
        bool look = old && !own->changing;
        void *copy;
        own->result.put_blocks++;
        if (look && same_in_place(d, hash, old, from, bytes)) {
                share(d, region, block, old);
                return 1;
        }
        int rc = writer_stage(d->p, bytes, &copy);
        if (rc)
                return rc;
        struct leaf_entry e = {0, copy_and_hash(d, hash, copy, from, bytes, look)};
        own->changing = !old || !hash_equal(old->hash, e.hash);
        if (!own->changing) {
                share(d, region, block, old);
                return 1;
        }
        e.offset = writer_keep(d->p, bytes);
        leaf_set(d->p, r->leaves[block / LEAF_ENTRIES], (uint32_t)(block % LEAF_ENTRIES), e);
        d->result.data_bytes += bytes;
        own->result.changed_blocks++;
        return 0;
}

bool draft_same(const struct draft *d, uint32_t region, uint64_t block, const void *from)
{
        const struct region_desc *desc = &d->v->regions[region].desc;
        const struct leaf_entry *old = old_entry(d, region, block);
        return old && desc->hash != HASH_NONE &&
               hash_equal(hash_block(desc->hash, from, block_length(desc, block)), old->hash);
}

void draft_put_same(struct draft *d, uint32_t region, uint64_t block)
{
        const struct leaf_entry *old = old_entry(d, region, block);
        if (!old)
                return;
        d->regions[region].result.put_blocks++;
        share(d, region, block, old);
}

struct region_result draft_region_result(const struct draft *d, uint32_t region)
{
        return d->regions[region].result;
}
