/* draft_regions.c: the regions of a version under construction, and their leaves.
 *
 * A region of the version before (the base) comes with its description and its leaves. A leaf is
 * copied when the first of its blocks changes: so a version costs what changed, not what there is.
 * Which blocks were put or kept is known by a bit each, and all of them must be. */
#include "store/store_int.h"
#include <errno.h>

/* Room for `count` elements of `bytes` each in an array of the draft's, which stays for the next
 * one. */
static int make_room(struct draft *d, void *array, uint64_t *capacity, uint64_t count,
                     uint64_t bytes)
{
        void **at = array;
        if (count <= *capacity)
                return 0;
        uint64_t room = max_u64(count + count / 2, 64);
        void *p = budget_resize(d->p->budget, *at, room * bytes, "the draft");
        if (!p)
                return -ENOMEM;
        *at = p;
        *capacity = room;
        return 0;
}

/* ---- regions --------------------------------------------------------------------------------- */

/* No region of the base has a successor yet. */
int draft_take_none(struct draft *d)
{
        uint64_t count = d->base ? d->base->region_count : 0;
        int rc = make_room(d, &d->taken, &d->taken_capacity, count, sizeof(*d->taken));
        if (rc == 0 && count)
                memset(d->taken, 0, count * sizeof(*d->taken));
        return rc;
}

/* Where a name that the base does not have is in d->names, or would be. */
static uint32_t *name_place(const struct draft *d, const char *name)
{
        uint64_t at = hash_name(name) & (d->name_capacity - 1);
        while (d->names[at] && strcmp(d->regions[d->names[at] - 1].desc->name, name) != 0)
                at = (at + 1) & (d->name_capacity - 1);
        return &d->names[at];
}

static int add_name(struct draft *d, uint32_t number)
{
        if (2 * (d->name_count + 1) > d->name_capacity) {
                uint64_t capacity = max_u64(2 * d->name_capacity, 64);
                uint32_t *names =
                        budget_alloc(d->p->budget, capacity * sizeof(*names), "the draft");
                if (!names)
                        return -ENOMEM;
                uint32_t *before = d->names;
                uint64_t count = d->name_capacity;
                d->names = names;
                d->name_capacity = capacity;
                for (uint64_t i = 0; i < count; i++)
                        if (before[i])
                                *name_place(d, d->regions[before[i] - 1].desc->name) = before[i];
                budget_free(d->p->budget, before);
        }
        *name_place(d, d->regions[number].desc->name) = number + 1;
        d->name_count++;
        return 0;
}

bool draft_knows(const struct draft *d, const char *name)
{
        int64_t at = d->base ? version_find(d->base, name) : -1;
        if (at >= 0)
                return d->taken[at] != 0 && d->taken[at] != LEFT_OUT;
        return d->name_count && *name_place(d, name) != 0;
}

static bool can_share(const struct stored_region *r, const struct region_desc *desc)
{
        return r->desc.block_bytes == desc->block_bytes && r->desc.hash == desc->hash;
}

/* A region that was away for a version is still known from the one before. */
static void find_old(const struct draft *d, const struct region_desc *desc,
                     struct draft_region *own)
{
        const struct pool *p = d->p;
        own->in_base =
                own->base_at != NO_POSITION && can_share(d->base->regions[own->base_at], desc);
        if (own->in_base)
                own->old = d->base->regions[own->base_at];
        for (uint32_t i = p->version_count; i > 0 && !own->old; i--) {
                const struct version *v = p->versions[i - 1];
                int64_t at = v != d->base && version_usable(v) ? version_find(v, desc->name) : -1;
                if (at >= 0 && can_share(v->regions[at], desc))
                        own->old = v->regions[at];
        }
}

/* Leaves that a shared one may have to be cloned to. */
static void count_shared(struct draft *d, const struct leaf *l)
{
        d->shared[l->class]++;
}

/* Those of `old` that map the same blocks; the others are made when the draft is ready. */
static void share_leaves(struct draft *d, struct draft_region *own)
{
        uint64_t count = region_leaves(own->desc);
        uint64_t old = own->old ? region_leaves(&own->old->desc) : 0;
        for (uint64_t i = 0; i < count; i++) {
                struct leaf *l = i < old ? own->old->leaves[i] : NULL;
                bool fits = l && (!own->made || leaf_fits(l, own->desc, i));
                d->leaves[own->first_leaf + i] = fits ? l : NULL;
                own->own_leaves = own->own_leaves || !fits;
                if (fits)
                        count_shared(d, l);
        }
}

/* The description that the version before has, or one of the draft's own. */
static int describe(struct draft *d, const struct region_desc *desc, struct draft_region *own)
{
        if (own->old && region_desc_same(&own->old->desc, desc)) {
                own->desc = &own->old->desc;
                return 0;
        }
        if (record_bytes(desc) > MAX_MANIFEST_BYTES - CATALOG_HEAD_BYTES)
                return err_set(-EFBIG,
                               "the map of region '%s' needs more than %llu bytes; use larger "
                               "blocks",
                               desc->name, (unsigned long long)MAX_MANIFEST_BYTES);
        own->made = region_new(d->p, desc);
        if (!own->made)
                return -ENOMEM;
        own->desc = &own->made->desc;
        return 0;
}

int draft_region(struct draft *d, const struct region_desc *desc, bool share, uint32_t *number)
{
        uint64_t leaves = region_leaves(desc);
        uint64_t words = div_up(region_blocks(desc), 64);
        uint64_t capacity = d->region_capacity;
        if (d->region_count == MAX_REGIONS)
                return err_set(-EINVAL, "a version can have %u regions", MAX_REGIONS);
        int rc = make_room(d, &d->regions, &capacity, d->region_count + UINT64_C(1),
                           sizeof(*d->regions));
        d->region_capacity = (uint32_t)capacity;
        if (rc == 0)
                rc = make_room(d, &d->leaves, &d->leaf_capacity, d->leaf_count + leaves,
                               sizeof(struct leaf *));
        if (rc == 0)
                rc = make_room(d, &d->seen, &d->word_capacity, d->word_count + words,
                               sizeof(*d->seen));
        if (rc)
                return rc;
        struct draft_region *own = &d->regions[d->region_count];
        int64_t at = d->base ? version_find(d->base, desc->name) : -1;
        *own = (struct draft_region){.first_leaf = d->leaf_count,
                                     .first_word = d->word_count,
                                     .base_at = at < 0 ? NO_POSITION : (uint32_t)at};
        if (share)
                find_old(d, desc, own);
        rc = describe(d, desc, own);
        if (rc)
                return rc;
        *number = d->region_count++;
        d->leaf_count += leaves;
        d->word_count += words;
        if (words)
                memset(d->seen + own->first_word, 0, words * sizeof(*d->seen));
        share_leaves(d, own);
        if (at >= 0)
                d->taken[at] = *number + 1;
        return at < 0 ? add_name(d, *number) : 0;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

bool draft_owns(const struct draft *d, const struct draft_region *own, uint64_t leaf)
{
        const struct stored_region *old = own->old;
        return own->own_leaves && (!old || leaf >= region_leaves(&old->desc) ||
                                   old->leaves[leaf] != d->leaves[own->first_leaf + leaf]);
}

/* A leaf of other length than the old one, with the blocks that both have. */
static struct leaf *make_leaf(struct draft *d, const struct draft_region *own, uint64_t i)
{
        struct leaf *l = leaf_new(d->p, own->desc, i);
        const struct stored_region *old = own->old;
        const struct leaf *from = old && i < region_leaves(&old->desc) ? old->leaves[i] : NULL;
        for (uint32_t k = 0; l && from && k < min_u64(l->count, from->count); k++) {
                if (leaf_block_bytes(l, k) != leaf_block_bytes(from, k))
                        continue;
                entry_ref(&d->p->space, &from->entries[k], leaf_block_bytes(l, k));
                l->entries[k] = from->entries[k];
        }
        return l;
}

/* After this, writing needs no memory: leaves that are not shared are there, and one to spare for
 * each that is. What the versions before have given back beyond that goes. */
static int make_leaves(struct draft *d)
{
        for (uint32_t i = d->ready; i < d->region_count; i++) {
                struct draft_region *own = &d->regions[i];
                for (uint64_t j = 0; own->own_leaves && j < region_leaves(own->desc); j++) {
                        struct leaf **at = &d->leaves[own->first_leaf + j];
                        if (!*at)
                                *at = make_leaf(d, own, j);
                        if (!*at)
                                return -ENOMEM;
                }
        }
        for (uint32_t class = 0; class < LEAF_CLASSES; class ++) {
                int rc = leaf_reserve(d->p, class, d->shared[class]);
                if (rc)
                        return rc;
        }
        return 0;
}

int draft_own_leaf(struct draft *d, uint32_t region, uint64_t leaf, struct leaf **out)
{
        struct draft_region *own = &d->regions[region];
        struct leaf **at = &d->leaves[own->first_leaf + leaf];
        if (!draft_owns(d, own, leaf)) {
                struct leaf *fresh = leaf_clone(d->p, *at);
                if (!fresh)
                        return err_set(BELAY_E_BROKEN, "region '%s': no leaf is left",
                                       own->desc->name);
                d->shared[fresh->class]--;
                own->own_leaves = true;
                *at = fresh;
        }
        *out = *at;
        return 0;
}

/* A first version has a known size: one growth keeps the file in few extents. In memory there are no
 * extents, and the program would wait for every page of it: there the space comes ahead of need, or
 * as it is written (warm_up.c). */
static void reserve_first(struct draft *d)
{
        struct pool *p = d->p;
        uint64_t bytes_more = 0;
        for (uint32_t i = d->ready; i < d->region_count; i++)
                bytes_more += d->regions[i].desc->bytes + record_bytes(d->regions[i].desc);
        uint64_t slots = div_up(bytes_more, SLOT_BYTES);
        slots += slots / 256 + 64;
        uint64_t offset;
        uint64_t bytes;
        if (d->base || p->media->in_memory || p->space.free >= slots)
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
        reserve_first(d);
        d->ready = d->region_count;
        return 0;
}

void draft_write_all(struct draft *d, uint32_t region)
{
        d->regions[region].write_all = true;
}

bool draft_compares(const struct draft *d, uint32_t region)
{
        return d->regions[region].old != NULL;
}

int draft_set_number(struct draft *d, uint64_t number)
{
        int rc = pool_check_number(d->p, number);
        if (rc == 0)
                d->v->number = number;
        return rc;
}

/* The next version of the pool may have a higher number: one that a damaged superblock may have
 * listed is not used again, except for the version that is meant. */
int draft_copy_number(struct draft *d, uint64_t number)
{
        const struct pool *p = d->p;
        uint64_t newest = p->version_count ? p->versions[p->version_count - 1]->number : 0;
        if (number <= newest || number == UINT64_MAX)
                return err_set(-EEXIST,
                               "version %llu cannot be copied to pool '%s', which has %llu",
                               (unsigned long long)number, p->label, (unsigned long long)newest);
        d->v->number = number;
        return 0;
}

uint64_t draft_number(const struct draft *d)
{
        return d->v->number;
}

uint64_t draft_base(const struct draft *d)
{
        return d->base ? d->base->number : 0;
}

void draft_set_place(struct draft *d, const struct job_place *place)
{
        d->v->place = *place;
}

void draft_carry(struct draft *d)
{
        d->carries = true;
}

void draft_leave_out(struct draft *d, const char *name)
{
        int64_t at = d->base ? version_find(d->base, name) : -1;
        if (at >= 0 && !d->taken[at])
                d->taken[at] = LEFT_OUT;
}
