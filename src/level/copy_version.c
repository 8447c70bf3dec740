/* copy_version.c: a version of one pool made in another, with the blocks that changed.
 *
 *   regions    of which no leaf changed are carried over from the version before
 *   leaves     that lie where they lay in the version before did not change: they are not read
 *   blocks     of other leaves are compared by place or by hash; those that differ are read,
 *              verified and put, with the hash by which they were verified
 *
 * Blocks without a hash can be compared by their place alone. Where the version before is not known
 * all of them are read. */
#include "level/level_int.h"
#include <errno.h>

struct copying {
        const struct copy_request *q;
        struct draft *d;
        uint32_t number;                 /* of the region, in the draft   */
        const struct stored_region *old; /* … in the version before, or NULL */
        int64_t old_at;                  /* its position there            */
        bool old_is_base;
        bool hashed; /* its blocks have hashes, by which the reader verifies them */
        struct leaf_entry now[LEAF_ENTRIES], before[LEAF_ENTRIES];
};

static bool same_ref(struct object_ref a, struct object_ref b)
{
        return a.offset == b.offset && hash_equal(a.checksum, b.checksum);
}

/* Nothing of it has changed, not even its description. */
static bool unchanged(const struct stored_region *a, const struct stored_region *b)
{
        if (!region_desc_same(&a->desc, &b->desc))
                return false;
        for (uint64_t i = 0; i < region_leaves(&a->desc); i++)
                if (!same_ref(stored_leaf(a, i), stored_leaf(b, i)))
                        return false;
        return true;
}

/* Declares the regions that the draft cannot simply carry over. numbers[i] is UINT32_MAX for
 * those. */
static int declare(struct copying *c, uint32_t *numbers)
{
        const struct copy_request *q = c->q;
        const struct version *v = q->version;
        const struct version *before = c->old_is_base ? q->before : NULL;
        for (uint32_t i = 0; i < v->region_count; i++) {
                const struct stored_region *r = v->regions[i];
                int64_t at = before ? version_find(before, r->desc.name) : -1;
                numbers[i] = UINT32_MAX;
                if (at >= 0 && unchanged(r, before->regions[at]))
                        continue;
                int rc = draft_region(c->d, &r->desc, true, &numbers[i]);
                if (rc)
                        return rc;
        }
        if (!before)
                return 0;
        draft_carry(c->d);
        for (uint32_t i = 0; i < before->region_count; i++)
                if (version_find(v, before->regions[i]->desc.name) < 0)
                        draft_leave_out(c->d, before->regions[i]->desc.name);
        return 0;
}

static int on_block(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        struct copying *c = arg;
        if (!data)
                return err_code();
        if (atomic_load(c->q->stop))
                return -ECANCELED;
        int rc = draft_make_room(c->d, bytes);
        if (rc == 0)
                rc = c->hashed ? draft_put_hashed(c->d, c->number, block, data,
                                                  c->now[block % LEAF_ENTRIES].hash)
                               : draft_put(c->d, c->number, block, data);
        return rc < 0 ? rc : 0;
}

/* `to` has the block already, as its version before. */
static bool has_block(const struct copying *c, uint64_t block, uint32_t i, bool know_before)
{
        const struct leaf_entry *now = &c->now[i];
        if (know_before && now->offset == c->before[i].offset &&
            hash_equal(now->hash, c->before[i].hash))
                return true;
        return draft_base_has(c->d, c->number, block, now);
}

/* The leaf of the version before, if it has the same blocks and can still be read: it may be leaving
 * the pool. */
static bool read_before(struct copying *c, const struct region_desc *d, uint64_t leaf)
{
        if (!c->old || !c->old_is_base || leaf >= region_leaves(&c->old->desc) ||
            c->old->desc.block_bytes != d->block_bytes || c->old->desc.hash != d->hash ||
            leaf_entries(&c->old->desc, leaf) != leaf_entries(d, leaf))
                return false;
        return pool_read_leaf(c->q->from, c->q->before, (uint32_t)c->old_at, leaf, c->before) == 0;
}

static int copy_leaf(struct copying *c, uint32_t region, uint64_t leaf, uint64_t can_keep)
{
        const struct copy_request *q = c->q;
        const struct stored_region *r = q->version->regions[region];
        uint64_t first = leaf * LEAF_ENTRIES;
        uint64_t count = leaf_entries(&r->desc, leaf);
        if (c->old && c->old_is_base && first + count <= can_keep &&
            leaf < region_leaves(&c->old->desc) &&
            same_ref(stored_leaf(r, leaf), stored_leaf(c->old, leaf))) {
                draft_keep(c->d, c->number, first, count);
                return 0;
        }
        int rc = pool_read_leaf(q->from, q->version, region, leaf, c->now);
        bool know = rc == 0 && read_before(c, &r->desc, leaf);
        for (uint64_t i = 0; rc == 0 && i < count;) {
                uint64_t end = i;
                bool has = first + i < can_keep && has_block(c, first + i, (uint32_t)i, know);
                while (end < count && (first + end < can_keep &&
                                       has_block(c, first + end, (uint32_t)end, know)) == has)
                        end++;
                if (has)
                        draft_keep(c->d, c->number, first + i, end - i);
                else
                        rc = reader_read_blocks(q->reader, q->version, region, first + i, end - i,
                                                NULL, on_block, c);
                i = end;
        }
        return rc;
}

static int copy_region(struct copying *c, uint32_t region)
{
        const struct region_desc *d = &c->q->version->regions[region]->desc;
        const struct version *before = c->q->before;
        c->old_at = before ? version_find(before, d->name) : -1;
        c->old = c->old_at < 0 ? NULL : before->regions[c->old_at];
        uint64_t can_keep = draft_can_keep(c->d, c->number);
        c->hashed = d->hash != HASH_NONE;
        int rc = 0;
        for (uint64_t i = 0; rc == 0 && i < region_leaves(d); i++)
                rc = atomic_load(c->q->stop) ? -ECANCELED : copy_leaf(c, region, i, can_keep);
        return rc;
}

/* What has no checksum is its content, and what looks damaged is so, only if the version was still
 * listed after it was read. */
static int check_listed(const struct copying *c, int rc)
{
        struct err_kept kept;
        err_keep(&kept);
        int listed = pool_lists(c->q->from, c->q->version);
        if (listed == 0)
                return err_set(-ESTALE, "version %llu left the pool while it was copied",
                               (unsigned long long)c->q->version->number);
        if (rc)
                return err_give_back(&kept);
        return listed < 0 ? listed : 0;
}

static int copy_all(struct copying *c, uint32_t *numbers)
{
        const struct version *v = c->q->version;
        int rc = declare(c, numbers);
        if (rc == 0)
                rc = draft_ready(c->d, v->frozen_ns);
        for (uint32_t i = 0; rc == 0 && i < v->region_count; i++) {
                c->number = numbers[i];
                if (c->number != UINT32_MAX)
                        rc = copy_region(c, i);
        }
        return rc && rc != BELAY_E_DATA ? rc : check_listed(c, rc);
}

int copy_version(const struct copy_request *q, struct draft_result *out)
{
        struct budget *budget = pool_budget(q->to);
        struct copying *c = budget_alloc(budget, sizeof(*c), "the copy");
        uint32_t *numbers = budget_alloc(
                budget, max_u64(q->version->region_count, 1) * sizeof(*numbers), "the copy");
        int rc = c && numbers ? 0 : -ENOMEM;
        if (rc == 0) {
                c->q = q;
                rc = draft_begin(q->to, &c->d);
        }
        if (rc == 0) {
                c->old_is_base = q->before && draft_base(c->d) == q->before->number;
                draft_set_place(c->d, &q->version->place);
                if (q->same_number)
                        rc = draft_copy_number(c->d, q->version->number);
                if (rc == 0)
                        rc = copy_all(c, numbers);
                if (rc == 0)
                        rc = draft_publish(&c->d, out);
                else
                        draft_abort(&c->d);
        }
        budget_free(budget, c);
        budget_free(budget, numbers);
        return rc;
}
