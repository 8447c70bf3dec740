/* hold.c: memory that is the pool's. A region is laid over the program's memory as private mappings
 * of the pool file: reading needs no copy, and the first write to a page moves it to memory of its
 * own.
 *
 * A page that has not moved shows what its slot holds. So the slots stay as they are for as long as
 * there is a hold: it refers to the stored region, that to its leaves, and those to the slots,
 * whatever versions are listed.
 *
 * Blocks that lie too scattered are read instead: the kernel has a limit on mappings. */
#include "store/store_int.h"
#include <errno.h>
#include <stdio.h>

#define LEAST_RUN (UINT64_C(32) << 10)
#define MOST_MAPS 8192u

struct hold {
        struct pool *p;
        uint64_t version;
        struct stored_region *r;
};

bool pool_is_mapped(const struct pool *p)
{
        return strcmp(p->media->ops->name, "mapped") == 0;
}

static const struct leaf_entry *entry_of(const struct stored_region *r, uint64_t block)
{
        return &r->leaves[block / LEAF_ENTRIES]->entries[block % LEAF_ENTRIES];
}

/* Blocks from `first` on that follow each other in the file, or are zeros. */
static uint64_t run_length(const struct stored_region *r, uint64_t first)
{
        uint64_t blocks = region_blocks(&r->desc);
        uint64_t offset = entry_of(r, first)->offset;
        uint64_t step = offset ? r->desc.block_bytes : 0;
        uint64_t n = 1;
        while (first + n < blocks && entry_of(r, first + n)->offset == offset + n * step)
                n++;
        return n;
}

struct laying {
        struct pool *p;
        struct reader *reader;
        const struct version *v;
        uint32_t region;
        uint8_t *to;
        uint32_t *maps; /* of this restart, so far */
        uint64_t end;   /* of the file: a page behind it would be a fault */
        int fd;
};

/* Maps whole pages from the start of the run, or fresh ones for zeros; returns how many blocks that
 * were. */
static int map_run(struct laying *l, uint64_t first, uint64_t count, uint64_t *mapped)
{
        const struct stored_region *r = l->v->regions[l->region];
        uint64_t size = r->desc.block_bytes;
        uint64_t offset = entry_of(r, first)->offset;
        uint8_t *to = l->to + first * size;
        /* The last block may be shorter, and a page of it the next object's. */
        bool last = first + count == region_blocks(&r->desc);
        uint64_t bytes = (count - last) * size;
        *mapped = 0;
        bytes -= bytes % PLAT_PAGE;
        if (bytes < LEAST_RUN || *l->maps >= MOST_MAPS || (offset && offset + bytes > l->end) ||
            offset % PLAT_PAGE || (uintptr_t)to % PLAT_PAGE)
                return 0;
        int rc = plat->mmap_over(offset ? l->fd : -1, offset, to, bytes);
        if (rc == -ENOMEM) { /* the kernel has a limit, too */
                *l->maps = MOST_MAPS;
                return 0;
        }
        if (rc)
                return err_set(rc, "region '%s' cannot be mapped from pool '%s': %s", r->desc.name,
                               l->p->label, code_text(rc));
        ++*l->maps;
        *mapped = bytes / size;
        return 0;
}

static int lay(struct laying *l)
{
        const struct stored_region *r = l->v->regions[l->region];
        uint64_t blocks = region_blocks(&r->desc);
        for (uint64_t b = 0; b < blocks;) {
                uint64_t count = run_length(r, b);
                uint64_t mapped;
                int rc = map_run(l, b, count, &mapped);
                if (rc == 0 && mapped < count)
                        rc = reader_read_blocks(
                                l->reader, l->v, l->region, b + mapped, count - mapped,
                                l->to + (b + mapped) * r->desc.block_bytes, NULL, NULL);
                if (rc)
                        return rc;
                b += count;
        }
        return 0;
}

static int make_hold(struct pool *p, const struct version *v, uint32_t region, struct hold **out)
{
        struct hold *h = budget_alloc(p->budget, sizeof(*h), "the mapped region");
        if (!h)
                return -ENOMEM;
        *h = (struct hold){p, v->number, v->regions[region]};
        h->r->users++;
        p->holds++;
        *out = h;
        return 0;
}

int pool_map_region(struct pool *p, struct reader *reader, const struct version *v, uint32_t region,
                    void *to, uint32_t *maps, struct hold **out)
{
        struct plat_stat st;
        int rc = plat->fstat(p->media->fd, &st);
        if (rc)
                return err_set(rc, "pool '%s': %s", p->label, code_text(rc));
        rc = make_hold(p, v, region, out);
        if (rc)
                return rc;
        /* The program's memory is its children's, too, and a mapping keeps the lock of the file that
         * it is made of: so not of the one that is locked. */
        int again = pool_file_open_again(p);
        int fd = again >= 0 ? again : p->media->fd;
        struct laying l = {p, reader, v, region, to, maps, st.bytes, fd};
        rc = lay(&l);
        if (again >= 0)
                (void)plat->close(again);
        if (rc)
                hold_release(out);
        return rc;
}

void hold_release(struct hold **hold)
{
        struct hold *h = *hold;
        *hold = NULL;
        if (!h)
                return;
        region_release(h->p, h->r);
        h->p->holds--;
        budget_free(h->p->budget, h);
}

uint64_t hold_version(const struct hold *h)
{
        return h->version;
}

const char *hold_name(const struct hold *h)
{
        return h->r->desc.name;
}

int hold_check(const struct hold *h, uint64_t block, void *buf, char *text, size_t bytes)
{
        const struct region_desc *d = &h->r->desc;
        const struct leaf_entry *e = entry_of(h->r, block);
        uint32_t length = block_length(d, block);
        int rc = e->offset ? media_read_now(h->p->media, buf, length, e->offset) : 0;
        if (rc == 0 && (e->offset == 0 || hash_equal(hash_block(d->hash, buf, length), e->hash)))
                return 0;
        snprintf(text, bytes, "version %llu, region '%s', block %llu: %s",
                 (unsigned long long)h->version, d->name, (unsigned long long)block,
                 rc ? code_text(rc) : "its checksum is wrong");
        return BELAY_E_DATA;
}

uint64_t hold_blocks(const struct hold *h)
{
        return region_blocks(&h->r->desc);
}
