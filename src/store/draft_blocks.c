/* draft_blocks.c: the blocks of a version under construction: written, or shared with an earlier
 * version. See draft.c for the states. */
#include "store/store_int.h"
#include <errno.h>

/* The entry of an earlier version for this block, if that block has the same place and length, and
 * is not known to be damaged. */
static const struct leaf_entry *old_entry(const struct draft *d, uint32_t region, uint64_t block)
{
        const struct stored_region *old = d->regions[region].old;
        const struct region_desc *desc = d->regions[region].desc;
        if (!old || block >= region_blocks(&old->desc) ||
            block_length(&old->desc, block) != block_length(desc, block))
                return NULL;
        const struct leaf_entry *e =
                &old->leaves[block / LEAF_ENTRIES]->entries[block % LEAF_ENTRIES];
        return pool_avoids(d->p, e->offset) ? NULL : e;
}

uint64_t draft_can_keep(const struct draft *d, uint32_t region)
{
        const struct draft_region *own = &d->regions[region];
        if (!own->in_base)
                return 0;
        uint64_t blocks = min_u64(region_blocks(own->desc), region_blocks(&own->old->desc));
        /* Only the last block of a region may be short. */
        return blocks - (blocks && !old_entry(d, region, blocks - 1));
}

bool draft_base_has(const struct draft *d, uint32_t region, uint64_t block,
                    const struct leaf_entry *e)
{
        const struct leaf_entry *old = old_entry(d, region, block);
        if (!d->regions[region].in_base || !old || (old->offset == 0) != (e->offset == 0))
                return false;
        return e->offset == 0 ||
               (d->regions[region].desc->hash != HASH_NONE && hash_equal(old->hash, e->hash));
}

static void see(struct draft *d, const struct draft_region *own, uint64_t block)
{
        d->seen[own->first_word + block / 64] |= UINT64_C(1) << block % 64;
}

/* The entry is the version's, with its reference on the slots. */
static int set_entry(struct draft *d, uint32_t region, uint64_t block, struct leaf_entry e)
{
        struct leaf *l;
        int rc = draft_own_leaf(d, region, block / LEAF_ENTRIES, &l);
        if (rc == 0)
                leaf_set(d->p, l, (uint32_t)(block % LEAF_ENTRIES), e);
        return rc;
}

/* The block is as in the old version. Its leaf has the old entry from the beginning, unless the
 * block was put before and was different then. */
static int share(struct draft *d, uint32_t region, uint64_t block, const struct leaf_entry *old)
{
        struct draft_region *own = &d->regions[region];
        uint32_t bytes = block_length(own->desc, block);
        const struct leaf *l = d->leaves[own->first_leaf + block / LEAF_ENTRIES];
        see(d, own, block);
        d->result.unchanged_bytes += bytes;
        own->result.shared_blocks++;
        if (l->entries[block % LEAF_ENTRIES].offset == old->offset)
                return 0;
        entry_ref(&d->p->space, old, bytes);
        return set_entry(d, region, block, *old);
}

/* The entries are there already: only what is put changes them. */
void draft_keep(struct draft *d, uint32_t region, uint64_t first, uint64_t count)
{
        struct draft_region *own = &d->regions[region];
        uint64_t end = first + count;
        for (uint64_t b = first; b < end;) {
                uint64_t n = min_u64(64 - b % 64, end - b);
                uint64_t mask = n == 64 ? UINT64_MAX : ((UINT64_C(1) << n) - 1) << b % 64;
                d->seen[own->first_word + b / 64] |= mask;
                b += n;
        }
        own->result.shared_blocks += count;
        d->result.unchanged_bytes += min_u64(end * own->desc->block_bytes, own->desc->bytes) -
                                     first * own->desc->block_bytes;
}

int draft_make_room(struct draft *d, uint64_t bytes)
{
        return writer_make_room(d->p, bytes);
}

int draft_drain(struct draft *d)
{
        return writer_drain(d->p);
}

bool draft_has(const struct draft *d, uint32_t region, uint64_t block)
{
        return d->seen[d->regions[region].first_word + block / 64] >> block % 64 & 1;
}

int draft_read_old(struct draft *d, uint32_t region, uint64_t block, void *to)
{
        struct pool *p = d->p;
        const struct region_desc *desc = d->regions[region].desc;
        const struct leaf_entry *old = old_entry(d, region, block);
        uint32_t bytes = block_length(desc, block);
        if (old && old->offset == 0) {
                memset(to, 0, bytes);
                return 0;
        }
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
        bool equal = hash_equal(program_hash(hash, from, bytes), old->hash);
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
        program_copy(to, from, bytes);
        uint64_t copied = timed ? plat->now_ns() : 0;
        struct hash128 h = hash_block(hash, to, bytes);
        if (timed) {
                add_sample(&d->result.copy[compared], start, copied, bytes);
                if (hash != HASH_NONE)
                        add_sample(&d->result.rehash, copied, plat->now_ns(), bytes);
        }
        return h;
}

/* As the functions of base.h for the program's memory. */
static bool program_is_zero(const void *from, uint32_t bytes)
{
        bool zero;
        tsan_unseen(zero = block_is_zero(from, bytes));
        return zero;
}

/* A block of zeros takes no place. */
static int put_zeros(struct draft *d, uint32_t region, uint64_t block, const struct leaf_entry *old)
{
        struct draft_region *own = &d->regions[region];
        own->result.zero_blocks++;
        own->changing = !old || old->offset != 0;
        if (!own->changing) {
                int rc = share(d, region, block, old);
                return rc ? rc : 1;
        }
        see(d, own, block);
        d->result.zero_bytes += block_length(own->desc, block);
        return set_entry(d, region, block, (struct leaf_entry){.offset = 0});
}

/* What was staged last is the block, and has this hash. */
static int keep_staged(struct draft *d, uint32_t region, uint64_t block, struct hash128 hash)
{
        struct draft_region *own = &d->regions[region];
        uint32_t bytes = block_length(own->desc, block);
        struct leaf_entry e = {writer_keep(d->p, bytes), hash};
        see(d, own, block);
        d->result.data_bytes += bytes;
        own->result.changed_blocks++;
        return set_entry(d, region, block, e);
}

/* A block is probably like the one before it. If that was unchanged, this one is looked at where it
 * is, and not copied if it is unchanged too; if not, it is copied at once, and hashed only once. */
int draft_put(struct draft *d, uint32_t region, uint64_t block, const void *from)
{
        struct draft_region *own = &d->regions[region];
        uint32_t bytes = block_length(own->desc, block);
        uint32_t hash = own->desc->hash;
        bool blind = hash == HASH_NONE || own->write_all;
        const struct leaf_entry *old = blind ? NULL : old_entry(d, region, block);
        void *copy;
        own->result.put_blocks++;
        if (program_is_zero(from, bytes))
                return put_zeros(d, region, block, old);
        bool compares = old && old->offset;
        bool in_place = compares && !own->changing;
        if (in_place && same_in_place(d, hash, old, from, bytes)) {
                int rc = share(d, region, block, old);
                return rc ? rc : 1;
        }
        int rc = writer_stage(d->p, bytes, &copy);
        if (rc)
                return rc;
        struct hash128 of_copy = copy_and_hash(d, hash, copy, from, bytes, in_place);
        own->changing = !compares || !hash_equal(old->hash, of_copy);
        if (!own->changing) {
                rc = share(d, region, block, old);
                return rc ? rc : 1;
        }
        return keep_staged(d, region, block, of_copy);
}

int draft_put_hashed(struct draft *d, uint32_t region, uint64_t block, const void *from,
                     struct hash128 hash)
{
        struct draft_region *own = &d->regions[region];
        uint32_t bytes = block_length(own->desc, block);
        const struct leaf_entry *old = own->write_all ? NULL : old_entry(d, region, block);
        void *copy;
        own->result.put_blocks++;
        if (block_is_zero(from, bytes))
                return put_zeros(d, region, block, old);
        own->changing = !old || old->offset == 0 || !hash_equal(old->hash, hash);
        if (!own->changing) {
                int rc = share(d, region, block, old);
                return rc ? rc : 1;
        }
        int rc = writer_stage(d->p, bytes, &copy);
        if (rc)
                return rc;
        memcpy(copy, from, bytes);
        return keep_staged(d, region, block, hash);
}

bool draft_same(const struct draft *d, uint32_t region, uint64_t block, const void *from)
{
        const struct region_desc *desc = d->regions[region].desc;
        const struct leaf_entry *old = old_entry(d, region, block);
        uint32_t bytes = block_length(desc, block);
        if (!old || desc->hash == HASH_NONE)
                return false;
        return old->offset ? hash_equal(program_hash(desc->hash, from, bytes), old->hash)
                           : program_is_zero(from, bytes);
}

int draft_put_same(struct draft *d, uint32_t region, uint64_t block)
{
        const struct leaf_entry *old = old_entry(d, region, block);
        if (!old)
                return err_set(BELAY_E_BROKEN, "region '%s', block %llu is new",
                               d->regions[region].desc->name, (unsigned long long)block);
        d->regions[region].result.put_blocks++;
        d->regions[region].result.zero_blocks += old->offset == 0;
        return share(d, region, block, old);
}

struct region_result draft_region_result(const struct draft *d, uint32_t region)
{
        return d->regions[region].result;
}
