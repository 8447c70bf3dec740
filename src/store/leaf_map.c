/* leaf_map.c: leaves in memory and the references they hold on slots.
 *
 * A leaf that is given back is kept for the next draft, which may not allocate once it has begun to
 * write: draft_ready makes sure that there are enough. Leaves are kept by the number of entries
 * they have room for, a power of two. */
#include "store/store_int.h"
#include <errno.h>

static uint32_t tail_of(const struct region_desc *d, uint64_t leaf)
{
        return block_length(d, leaf * LEAF_ENTRIES + leaf_entries(d, leaf) - 1);
}

uint32_t leaf_class(uint32_t entries)
{
        uint32_t class = 0;
        while ((1u << class) < entries)
                class ++;
        return class;
}

static struct leaf *allocate(struct pool *p, uint32_t class)
{
        struct leaf *l = budget_alloc(p->budget, sizeof(*l) + (sizeof(l->entries[0]) << class),
                                      "the block map");
        if (l)
                l->class = class;
        return l;
}

static void keep_spare(struct pool *p, struct leaf *l)
{
        l->next = p->spare[l->class];
        p->spare[l->class] = l;
        p->spare_count[l->class]++;
}

static struct leaf *take_spare(struct pool *p, uint32_t class)
{
        struct leaf *l = p->spare[class];
        if (l) {
                p->spare[class] = l->next;
                p->spare_count[class]--;
        }
        return l;
}

int leaf_reserve(struct pool *p, uint32_t class, uint64_t count)
{
        while (p->spare_count[class] < count) {
                struct leaf *l = allocate(p, class);
                if (!l)
                        return -ENOMEM;
                keep_spare(p, l);
        }
        return 0;
}

void pool_drop_spares(struct pool *p)
{
        for (uint32_t class = 0; class < LEAF_CLASSES; class ++) {
                struct leaf *l;
                while ((l = take_spare(p, class)))
                        budget_free(p->budget, l);
        }
}

struct leaf *leaf_new(struct pool *p, const struct region_desc *d, uint64_t leaf)
{
        uint32_t count = leaf_entries(d, leaf);
        uint32_t class = leaf_class(count);
        struct leaf *l = take_spare(p, class);
        if (!l)
                l = allocate(p, class);
        if (!l)
                return NULL;
        memset(l, 0, sizeof(*l) + count * sizeof(l->entries[0]));
        l->refs = 1;
        l->class = class;
        l->count = count;
        l->block_bytes = d->block_bytes;
        l->tail_bytes = tail_of(d, leaf);
        return l;
}

struct leaf *leaf_clone(struct pool *p, const struct leaf *from)
{
        struct leaf *l = take_spare(p, from->class);
        if (!l)
                return NULL;
        memcpy(l, from, sizeof(*l) + from->count * sizeof(l->entries[0]));
        l->refs = 1;
        l->ref = (struct object_ref){.offset = 0};
        for (uint32_t i = 0; i < l->count; i++)
                entry_ref(&p->space, &l->entries[i], leaf_block_bytes(l, i));
        return l;
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
        keep_spare(p, l);
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
