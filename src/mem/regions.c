/* regions.c: the registry. Owned memory is mapped by page, never taken from malloc: later it is
 * protected page by page, and nothing of the program's may share those pages. */
#include "mem/mem.h"
#include <errno.h>
#include <stdio.h>

#define PIECE_BYTES (UINT64_C(2) << 20)
/* From this size on, memory begins at a multiple of a huge page. */
#define LARGE_BYTES (UINT64_C(2) * PLAT_HUGE_PAGE)

void regions_init(struct regions *r, struct budget *budget)
{
        *r = (struct regions){.budget = budget};
}

static void free_memory(struct region *region)
{
        if (region->owned && region->ptr)
                (void)plat->munmap(region->ptr, region->mapped_bytes);
        region->ptr = NULL;
}

void region_delete(struct budget *budget, struct region *region)
{
        free_memory(region);
        budget_free(budget, region->boxes);
        budget_free(budget, region);
}

void regions_clear(struct regions *r)
{
        for (uint32_t i = 0; i < r->count; i++)
                region_delete(r->budget, r->list[i]);
        budget_free(r->budget, r->list);
        budget_free(r->budget, r->index);
        regions_init(r, r->budget);
}

static size_t index_capacity(uint32_t capacity)
{
        return (size_t)capacity * 2;
}

struct region *region_find(const struct regions *r, const char *name)
{
        uint64_t key = hash_name(name);
        size_t at = 0;
        uint64_t i;
        while ((i = names_next(r->index, index_capacity(r->capacity), key, &at)) != NO_NAME)
                if (strcmp(r->list[i]->desc.name, name) == 0)
                        return r->list[i];
        return NULL;
}

static int make_room(struct regions *r)
{
        if (r->count < r->capacity)
                return 0;
        uint32_t capacity = r->capacity ? r->capacity * 2 : 16;
        if (capacity > MAX_REGIONS)
                return err_set(-ENOSPC, "a context can have %u regions", MAX_REGIONS);
        uint64_t bytes = index_capacity(capacity) * sizeof(*r->index);
        struct name_entry *index = budget_alloc(r->budget, bytes, "the region registry");
        void *list = index ? budget_resize(r->budget, r->list, capacity * sizeof(*r->list),
                                           "the region registry")
                           : NULL;
        if (!list) {
                budget_free(r->budget, index);
                return -ENOMEM;
        }
        budget_free(r->budget, r->index);
        r->list = list;
        r->index = index;
        r->capacity = capacity;
        names_clear(index, index_capacity(capacity));
        for (uint32_t i = 0; i < r->count; i++)
                names_put(index, index_capacity(capacity), r->list[i]->key, i);
        return 0;
}

/* There is room. */
static void add(struct regions *r, struct region *region)
{
        names_put(r->index, index_capacity(r->capacity), region->key, r->count);
        region->position = r->count;
        r->list[r->count++] = region;
        r->bytes += region->desc.bytes;
}

/* Of the description's boxes all but the first are borrowed. */
static int own_boxes(struct regions *r, struct region *region)
{
        struct region_desc *d = &region->desc;
        uint64_t bytes = d->box_count > 1 ? (d->box_count - 1) * sizeof(*d->more) : 0;
        if (bytes == 0)
                return 0;
        region->boxes = budget_alloc(r->budget, bytes, "the boxes of a region");
        if (!region->boxes)
                return -ENOMEM;
        memcpy(region->boxes, d->more, bytes);
        d->more = region->boxes;
        return 0;
}

struct region *region_make_room(const struct regions *r)
{
        return budget_alloc(r->budget, sizeof(struct region) + r->note_bytes, "a region");
}

static int new_region(struct regions *r, const struct region_desc *desc, struct region **out)
{
        int rc = name_check(desc->name);
        if (rc)
                return rc;
        if (region_find(r, desc->name))
                return err_set(-EEXIST, "a region '%s' is already registered; detach it first",
                               desc->name);
        struct region_desc checked = *desc;
        char who[BELAY_MAX_NAME + 16];
        snprintf(who, sizeof(who), "region '%s'", desc->name);
        rc = region_desc_check(&checked, who);
        if (rc == 0)
                rc = make_room(r);
        if (rc)
                return rc;
        struct region *region = region_make_room(r);
        if (!region)
                return -ENOMEM;
        region->desc = checked;
        region->key = hash_name(checked.name);
        rc = own_boxes(r, region);
        if (rc) {
                region_delete(r->budget, region);
                return rc;
        }
        *out = region;
        return 0;
}

/* A region of size 0 still gets a page, so that its address is valid and unique. */
static uint64_t pages_for(uint64_t bytes)
{
        return align_up(max_u64(bytes, 1), PLAT_PAGE);
}

/* So that the kernel can put it into huge pages, once it is there (upkeep.c): to ask for them here
 * would give 2 MiB for every word that is written in a large, sparse region. */
static int map_aligned(uint64_t bytes, void **out)
{
        void *p;
        int rc = plat->mmap(-1, bytes + PLAT_HUGE_PAGE, &p);
        if (rc)
                return rc;
        uint64_t before = align_up((uintptr_t)p, PLAT_HUGE_PAGE) - (uintptr_t)p;
        uint8_t *low = (uint8_t *)p + before;
        /* What cannot be given back is addresses, not memory. */
        if (before > 0)
                (void)plat->munmap(p, before);
        if (before < PLAT_HUGE_PAGE)
                (void)plat->munmap(low + bytes, PLAT_HUGE_PAGE - before);
        *out = low;
        return 0;
}

static int map_memory(uint64_t bytes, void **out)
{
        if (bytes >= LARGE_BYTES && map_aligned(bytes, out) == 0)
                return 0;
        return plat->mmap(-1, bytes, out);
}

int region_alloc(struct regions *r, const struct region_desc *desc, struct region **out)
{
        struct region *region;
        int rc = new_region(r, desc, &region);
        if (rc)
                return rc;
        region->owned = true;
        region->mapped_bytes = pages_for(region->desc.bytes);
        rc = map_memory(region->mapped_bytes, &region->ptr);
        if (rc) {
                (void)err_set(rc, "region '%s' needs %llu bytes: %s", region->desc.name,
                              (unsigned long long)region->desc.bytes, code_text(rc));
                region_delete(r->budget, region);
                return rc;
        }
        add(r, region);
        *out = region;
        return 0;
}

int region_attach(struct regions *r, const struct region_desc *desc, void *ptr, struct region **out)
{
        struct region *region;
        int rc = new_region(r, desc, &region);
        if (rc)
                return rc;
        if (!ptr && region->desc.bytes) {
                rc = err_set(-EINVAL, "region '%s' cannot be attached at NULL", region->desc.name);
                region_delete(r->budget, region);
                return rc;
        }
        region->ptr = ptr;
        add(r, region);
        *out = region;
        return 0;
}

/* The last one takes its place. */
void region_remove(struct regions *r, struct region *region)
{
        size_t capacity = index_capacity(r->capacity);
        struct region *last = r->list[--r->count];
        names_take(r->index, capacity, region->key, region->position);
        if (last != region)
                names_move(r->index, capacity, last->key, r->count, region->position);
        r->list[region->position] = last;
        last->position = region->position;
        r->bytes -= region->desc.bytes;
}

void region_replace(struct regions *r, struct region *old, struct region *fresh)
{
        *fresh = *old;
        memcpy(fresh + 1, old + 1, r->note_bytes);
        old->owned = false;
        old->boxes = NULL;
        r->list[fresh->position] = fresh;
}

static bool is_zero(const uint8_t *page)
{
        return page[0] == 0 && memcmp(page, page + 1, PLAT_PAGE - 1) == 0;
}

/* Into fresh memory. What was never touched takes none there either, and what has been copied is
 * given back piece by piece: twice the memory may not be there. */
static void copy_memory(uint8_t *to, uint8_t *from, uint64_t bytes)
{
        for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
                uint64_t end = min_u64(at + PIECE_BYTES, bytes);
                for (uint64_t page = at; page < end; page += PLAT_PAGE)
                        if (!is_zero(from + page))
                                memcpy(to + page, from + page, PLAT_PAGE);
                (void)plat->madvise_unused(from + at, end - at);
        }
}

static int replace_memory(struct region *region, uint64_t bytes, void **out)
{
        int rc = map_memory(bytes, out);
        if (rc)
                return rc;
        copy_memory(*out, region->ptr, min_u64(bytes, region->mapped_bytes));
        (void)plat->munmap(region->ptr, region->mapped_bytes);
        return 0;
}

/* A mapping of several parts cannot be resized. Memory that is the pool's has many; and where some
 * pages were touched only after others had been protected, the kernel does not join them again. */
static int remap(struct region *region, uint64_t bytes)
{
        void *ptr;
        int rc = region->lazy ? -EFAULT
                              : plat->mremap(region->ptr, region->mapped_bytes, bytes, &ptr);
        if (rc == -EFAULT)
                rc = replace_memory(region, bytes, &ptr);
        if (rc)
                return rc;
        region->ptr = ptr;
        region->mapped_bytes = bytes;
        region->lazy = false;
        return 0;
}

static int resize_owned(struct region *region, const struct region_desc *next)
{
        uint64_t bytes = pages_for(next->bytes);
        uint64_t old_bytes = region->desc.bytes;
        uint64_t old_mapped = region->mapped_bytes;
        int rc = bytes != region->mapped_bytes ? remap(region, bytes) : 0;
        /* Shrinking never fails: what cannot be given back is kept. */
        if (rc && bytes > region->mapped_bytes)
                return err_set(rc, "region '%s' cannot have %llu bytes: %s", region->desc.name,
                               (unsigned long long)next->bytes, code_text(rc));
        /* What lies behind the old end in its last page was the program's to write; new elements
         * are zero. */
        if (next->bytes > old_bytes)
                memset((uint8_t *)region->ptr + old_bytes, 0,
                       (size_t)(min_u64(next->bytes, old_mapped) - old_bytes));
        return 0;
}

int region_reshape(struct regions *r, struct region *region, const uint64_t *dims, void *ptr)
{
        struct region_desc next = region->desc;
        memcpy(next.dims, dims, next.ndims * sizeof(*dims));
        /* The part of a global array that it is grows with it; where there are several, the
         * program has to say which. */
        if (next.box_count == 1 && next.global_ndims == next.ndims)
                memcpy(next.box.dims, next.dims, next.ndims * sizeof(*dims));
        char who[BELAY_MAX_NAME + 16];
        snprintf(who, sizeof(who), "region '%s'", next.name);
        int rc = region_desc_check(&next, who);
        if (rc)
                return rc;
        if (!region->owned && !ptr && next.bytes)
                return err_set(-EINVAL, "region '%s' cannot be at NULL", next.name);
        if (region->owned)
                rc = resize_owned(region, &next);
        else
                region->ptr = ptr;
        if (rc)
                return rc;
        r->bytes += next.bytes - region->desc.bytes;
        region->desc = next;
        return 0;
}
