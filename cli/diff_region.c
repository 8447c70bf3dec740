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
        const struct belay_reader_region *a, *b;
        bool any;
        uint64_t last;  /* the last element counted  */
        uint64_t first; /* byte that differs first   */
        uint64_t differing;
};

static int read_span(const struct side *s, const struct belay_reader_region *r, uint64_t offset,
                     uint64_t bytes, uint8_t *to)
{
        return belay_read(s->source.reader, r->version, r->index, offset, bytes, to);
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
        int rc = read_span(w->c->a, w->a, offset, bytes, w->c->buf_a);
        if (rc == 0)
                rc = read_span(w->c->b, w->b, offset, bytes, w->c->buf_b);
        if (rc)
                return rc;
        if (memcmp(w->c->buf_a, w->c->buf_b, bytes) != 0)
                count_differences(w, offset, bytes);
        return 0;
}

static bool same_hash(const struct belay_read_entry *a, const struct belay_read_entry *b)
{
        return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1];
}

/* A piece of the maps, from block `first` on. */
static int compare_maps(struct walk *w, uint64_t first)
{
        struct belay_read_entry a[BELAY_MAP_STEP];
        struct belay_read_entry b[BELAY_MAP_STEP];
        uint32_t count = (uint32_t)min_u64(BELAY_MAP_STEP, w->a->blocks - first);
        int rc =
                belay_read_map(w->c->a->source.reader, w->a->version, w->a->index, first, count, a);
        if (rc == 0)
                rc = belay_read_map(w->c->b->source.reader, w->b->version, w->b->index, first,
                                    count, b);
        if (rc)
                return rc;
        uint32_t most = BELAY_MAX_BLOCK / w->a->block_bytes;
        for (uint32_t i = 0; i < count;) {
                uint32_t run = 0;
                uint64_t bytes = 0;
                while (i + run < count && run < most && !same_hash(&a[i + run], &b[i + run]))
                        bytes += a[i + run++].bytes;
                if (run)
                        rc = compare_span(w, (first + i) * w->a->block_bytes, bytes);
                if (rc)
                        return rc;
                uint32_t step = run ? run : 1;
                for (uint32_t k = 0; k < step; k++)
                        progress_add(w->c->progress, a[i + k].bytes);
                i += step;
        }
        return 0;
}

static int compare_all(struct walk *w)
{
        int rc = 0;
        if (w->a->block_bytes == w->b->block_bytes && w->a->hash == w->b->hash &&
            w->a->hash != BELAY_HASH_NONE) {
                for (uint64_t at = 0; at < w->a->blocks && rc == 0; at += BELAY_MAP_STEP)
                        rc = compare_maps(w, at);
                return rc;
        }
        for (uint64_t at = 0; at < w->a->bytes && rc == 0; at += BELAY_MAX_BLOCK) {
                uint64_t n = min_u64(BELAY_MAX_BLOCK, w->a->bytes - at);
                rc = compare_span(w, at, n);
                progress_add(w->c->progress, n);
        }
        return rc;
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
        int rc = read_span(w->c->a, w->a, offset, n, a);
        if (rc == 0)
                rc = read_span(w->c->b, w->b, offset, n, b);
        if (rc)
                return rc;
        out->a = value_text(w->a, a, n);
        out->b = value_text(w->b, b, n);
        return 0;
}

int compare_regions(struct comparer *c, const struct belay_reader_region *a,
                    const struct belay_reader_region *b, struct region_diff *out)
{
        struct walk w = {.c = c, .a = a, .b = b};
        *out = (struct region_diff){.differing = 0};
        int rc = compare_all(&w);
        out->differing = w.differing;
        if (rc == 0 && w.any)
                rc = read_values(&w, out);
        return rc;
}

void element_index(const struct belay_reader_region *d, uint64_t element,
                   uint64_t index[BELAY_MAX_DIMS])
{
        for (uint32_t i = d->ndims; i > 0; i--) {
                index[i - 1] = element % d->dims[i - 1];
                element /= d->dims[i - 1];
        }
}
