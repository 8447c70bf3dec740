/* leaf_map.c: leaves in memory and the references they hold on slots. */
#include "store/store_int.h"

static uint32_t tail_of(const struct region_desc *d, uint64_t leaf)
{
        return block_length(d, leaf * LEAF_ENTRIES + leaf_entries(d, leaf) - 1);
}

struct leaf *leaf_new(struct pool *p, const struct region_desc *d, uint64_t leaf)
{
        uint32_t count = leaf_entries(d, leaf);
        struct leaf *l = NULL;
        if (count == LEAF_ENTRIES && p->spare) {
                l = p->spare;
                p->spare = l->next;
                p->spare_count--;
                memset(l, 0, sizeof(*l) + count * sizeof(l->entries[0]));
        } else {
                l = budget_alloc(p->budget, sizeof(*l) + count * sizeof(l->entries[0]),
                                 "the block map");
        }
        if (l) {
                l->refs = 1;
                l->count = count;
                l->block_bytes = d->block_bytes;
                l->tail_bytes = tail_of(d, leaf);
        }
        return l;
}

static void keep_spare(struct pool *p, struct leaf *l)
{
        l->next = p->spare;
        p->spare = l;
        p->spare_count++;
}

void pool_drop_spares(struct pool *p)
{
        while (p->spare) {
                struct leaf *l = p->spare;
                p->spare = l->next;
                budget_free(p->budget, l);
        }
        p->spare_count = 0;
}

void leaf_release(struct pool *p, struct leaf *l)
{
        if (!l || --l->refs > 0)
                return;
        for (uint32_t i = 0; i < l->count; i++)
                if (l->entries[i].offset)
                        space_unref(&p->space, l->entries[i].offset, leaf_block_bytes(l, i));
        if (l->ref.offset)
                space_unref(&p->space, l->ref.offset, leaf_length(l->count));
        if (l->count == LEAF_ENTRIES)
                keep_spare(p, l);
        else
                budget_free(p->budget, l);
}

void leaf_set(struct pool *p, struct leaf *l, uint32_t i, struct leaf_entry e)
{
        if (l->entries[i].offset)
                space_unref(&p->space, l->entries[i].offset, leaf_block_bytes(l, i));
        l->entries[i] = e;
}

bool leaf_fits(const struct leaf *l, const struct region_desc *d, uint64_t leaf)
{
        return l->block_bytes == d->block_bytes && l->count == leaf_entries(d, leaf) &&
               l->tail_bytes == tail_of(d, leaf);
}
