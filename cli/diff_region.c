/* diff_region.c: finds the elements in which two stored regions differ.
 *
 * With equal block sizes the maps are compared first and only blocks of different hash are read.
 * Otherwise both regions are read in step, in spans of the largest block size, which is a multiple
 * of every other. Memory is two spans, whatever the size of the region. Elements are counted byte
 * by byte in ascending order, so an element that crosses blocks counts once. */
#include "cli.h"
#include <errno.h>

struct walk {
        struct comparer *c;
        uint32_t region_a, region_b;
        const struct region_desc *a, *b;
        bool any;
        uint64_t last;  /* the last element counted  */
        uint64_t first; /* byte that differs first   */
        uint64_t differing;
};

static int read_span(const struct side *s, uint32_t region, uint64_t offset, uint64_t bytes,
                     uint8_t *to)
{
        uint32_t block = s->version->regions[region]->desc.block_bytes;
        return reader_read_blocks(s->source.reader, s->version, region, offset / block,
                                  div_up(bytes, block), to, NULL, NULL);
}

/* The span begins at byte `offset` of the region. */
static void count_differences(struct walk *w, uint64_t offset, uint64_t bytes)
{
        const uint8_t *a = w->c->buf_a;
        const uint8_t *b = w->c->buf_b;
        uint64_t size = w->a->element_bytes;
        for (uint64_t at = 0; at < bytes;) {
                uint64_t element = (offset + at) / size;
                uint64_t n = min_u64((element + 1) * size - offset, bytes) - at;
                if (memcmp(a + at, b + at, n) != 0 && (!w->any || element != w->last)) {
                        uint64_t byte = at;
                        while (a[byte] == b[byte])
                                byte++;
                        if (!w->any)
                                w->first = offset + byte;
                        w->any = true;
                        w->last = element;
                        w->differing++;
                }
                at += n;
        }
}

static int compare_span(struct walk *w, uint64_t offset, uint64_t bytes)
{
        int rc = read_span(w->c->a, w->region_a, offset, bytes, w->c->buf_a);
        if (rc == 0)
                rc = read_span(w->c->b, w->region_b, offset, bytes, w->c->buf_b);
        if (rc)
                return rc;
        if (memcmp(w->c->buf_a, w->c->buf_b, bytes) != 0)
                count_differences(w, offset, bytes);
        return 0;
}

static int compare_leaf(struct walk *w, uint64_t leaf)
{
        struct leaf_entry a[LEAF_ENTRIES];
        struct leaf_entry b[LEAF_ENTRIES];
        int rc = pool_read_leaf(w->c->a->source.pool, w->c->a->version, w->region_a, leaf, a);
        if (rc == 0)
                rc = pool_read_leaf(w->c->b->source.pool, w->c->b->version, w->region_b, leaf, b);
        if (rc)
                return rc;
        uint32_t count = leaf_entries(w->a, leaf);
        uint32_t most = MAX_BLOCK_BYTES / w->a->block_bytes;
        for (uint32_t i = 0; i < count;) {
                uint32_t run = 0;
                uint64_t bytes = 0;
                while (i + run < count && run < most &&
                       !hash_equal(a[i + run].hash, b[i + run].hash))
                        bytes += block_length(w->a, leaf * LEAF_ENTRIES + i + run++);
                if (run)
                        rc = compare_span(w, (leaf * LEAF_ENTRIES + i) * w->a->block_bytes, bytes);
                if (rc)
                        return rc;
                uint32_t step = run ? run : 1;
                for (uint32_t k = 0; k < step; k++)
                        progress_add(w->c->progress,
                                     block_length(w->a, leaf * LEAF_ENTRIES + i + k));
                i += step;
        }
        return 0;
}

static int compare_all(struct walk *w)
{
        int rc = 0;
        if (w->a->block_bytes == w->b->block_bytes && w->a->hash == w->b->hash &&
            w->a->hash != HASH_NONE) {
                for (uint64_t leaf = 0; leaf < region_leaves(w->a) && rc == 0; leaf++)
                        rc = compare_leaf(w, leaf);
                return rc;
        }
        for (uint64_t at = 0; at < w->a->bytes && rc == 0; at += MAX_BLOCK_BYTES) {
                uint64_t n = min_u64(MAX_BLOCK_BYTES, w->a->bytes - at);
                rc = compare_span(w, at, n);
                progress_add(w->c->progress, n);
        }
        return rc;
}

/* A few bytes of a region, wherever its blocks end. */
static int read_bytes(const struct side *s, uint32_t region, uint64_t offset, uint32_t bytes,
                      uint8_t *buf, uint8_t *out)
{
        uint32_t block = s->version->regions[region]->desc.block_bytes;
        for (uint32_t done = 0; done < bytes;) {
                uint64_t at = offset + done;
                int rc = read_span(s, region, at / block * block, 1, buf);
                if (rc)
                        return rc;
                uint32_t n = (uint32_t)min_u64(bytes - done, block - at % block);
                memcpy(out + done, buf + at % block, n);
                done += n;
        }
        return 0;
}

/* Values of the first differing element. Of a long raw element, the part that differs. */
static int read_values(struct walk *w, struct region_diff *out)
{
        uint8_t a[16] = {0};
        uint8_t b[16] = {0};
        uint64_t size = w->a->element_bytes;
        uint64_t within = w->first % size;
        out->element = w->first / size;
        out->byte = within < sizeof(a) ? 0 : within;
        uint32_t n = (uint32_t)min_u64(size - out->byte, sizeof(a));
        uint64_t offset = out->element * size + out->byte;
        int rc = read_bytes(w->c->a, w->region_a, offset, n, w->c->buf_a, a);
        if (rc == 0)
                rc = read_bytes(w->c->b, w->region_b, offset, n, w->c->buf_b, b);
        if (rc)
                return rc;
        out->a = value_text(w->a, a, n);
        out->b = value_text(w->b, b, n);
        return 0;
}

int compare_regions(struct comparer *c, uint32_t region_a, uint32_t region_b,
                    struct region_diff *out)
{
        struct walk w = {.c = c,
                         .region_a = region_a,
                         .region_b = region_b,
                         .a = &c->a->version->regions[region_a]->desc,
                         .b = &c->b->version->regions[region_b]->desc};
        *out = (struct region_diff){.differing = 0};
        int rc = compare_all(&w);
        out->differing = w.differing;
        if (rc == 0 && w.any)
                rc = read_values(&w, out);
        return rc;
}

void element_index(const struct region_desc *d, uint64_t element, uint64_t index[BELAY_MAX_DIMS])
{
        for (uint32_t i = d->ndims; i > 0; i--) {
                index[i - 1] = element % d->dims[i - 1];
                element /= d->dims[i - 1];
        }
}
