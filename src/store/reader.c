/* reader.c: reads regions back: several large transfers in flight, every block verified.
 *
 * A piece is a run of blocks that follow each other in the region and in the file. Direct I/O reads
 * it into a gather buffer, which is free while no draft exists: those are in huge pages, and
 * reading there and copying takes less time than reading into the program's scattered pages. Other
 * media read it straight to its destination. Pieces finish in the order they were begun, so callers
 * see ascending blocks. */
#include "store/store_int.h"
#include <errno.h>

struct piece {
        uint64_t first; /* block */
        uint32_t count;
        uint64_t offset; /* of the first block in the file */
        uint32_t bytes;  /* of all blocks                  */
        uint32_t skew;   /* of the first block in buf      */
        uint8_t *buf;
        bool zeros; /* nothing is read                */
        bool done;
        int result;
        struct hash128 hash[LEAF_ENTRIES];
};

struct reader {
        struct pool *p;
        const struct stored_region *region;
        uint64_t version;
        uint64_t first, end; /* blocks wanted: first … end - 1 */
        uint8_t *to;         /* place of the first one         */
        block_fn fn;
        void *arg;
        uint32_t head, tail; /* pieces in flight: head … tail - 1 */
        struct piece pieces[IO_DEPTH];
        struct leaf_entry entries[LEAF_ENTRIES];
};

static int deliver(struct reader *r, uint64_t block, const uint8_t *data, struct hash128 expected,
                   int result)
{
        const struct region_desc *d = &r->region->desc;
        uint32_t bytes = block_length(d, block);
        bool good = result == 0 && hash_equal(hash_block(d->hash, data, bytes), expected);
        if (!good) {
                int rc = err_set(BELAY_E_DATA,
                                 "version %llu, region '%s', block %llu of pool '%s': %s",
                                 (unsigned long long)r->version, d->name, (unsigned long long)block,
                                 r->p->label, result ? code_text(result) : "its checksum is wrong");
                return r->fn ? r->fn(r->arg, block, NULL, bytes) : rc;
        }
        uint8_t *place = r->to ? r->to + (block - r->first) * d->block_bytes : NULL;
        if (place && place != data)
                memcpy(place, data, bytes);
        return r->fn ? r->fn(r->arg, block, data, bytes) : 0;
}

/* Never written: what blocks of zeros are handed out from. */
static uint8_t zeros[MAX_BLOCK_BYTES];

/* Memory that is zero is left as it is: what was never touched takes no pages. */
static int deliver_zeros(struct reader *r, const struct piece *q)
{
        const struct region_desc *d = &r->region->desc;
        for (uint32_t i = 0; i < q->count; i++) {
                uint64_t block = q->first + i;
                uint32_t bytes = block_length(d, block);
                uint8_t *place = r->to ? r->to + (block - r->first) * d->block_bytes : NULL;
                if (place && !block_is_zero(place, bytes))
                        memset(place, 0, bytes);
                int rc = r->fn ? r->fn(r->arg, block, zeros, bytes) : 0;
                if (rc)
                        return rc;
        }
        return 0;
}

/* After a failed transfer: block by block, so that one bad sector costs one block. */
static int deliver_singly(struct reader *r, struct piece *q)
{
        uint64_t offset = q->offset;
        uint8_t *buf = r->p->scratch;
        for (uint32_t i = 0; i < q->count; i++) {
                uint32_t bytes = block_length(&r->region->desc, q->first + i);
                int result = media_read_now(r->p->media, buf, bytes, offset);
                int rc = deliver(r, q->first + i, buf, q->hash[i], result);
                if (rc)
                        return rc;
                offset += bytes;
        }
        return 0;
}

static int await(struct reader *r, struct piece *q)
{
        while (!q->done) {
                uint32_t tag;
                int result;
                int rc = r->p->media->ops->wait(r->p->media, &tag, &result);
                if (rc) {
                        return err_set(
                                BELAY_E_BROKEN,
                                "pool '%s': the state of its reads is unknown (%s); close it",
                                r->p->label, code_text(rc));
                }
                r->pieces[tag].done = true;
                r->pieces[tag].result = result;
        }
        return 0;
}

static int finish_one(struct reader *r)
{
        struct piece *q = &r->pieces[r->head++ % IO_DEPTH];
        int rc = await(r, q);
        if (rc)
                return rc;
        if (q->zeros)
                return deliver_zeros(r, q);
        if (q->result)
                return deliver_singly(r, q);
        const uint8_t *data = q->buf + q->skew;
        for (uint32_t i = 0; i < q->count; i++) {
                rc = deliver(r, q->first + i, data, q->hash[i], 0);
                if (rc)
                        return rc;
                data += block_length(&r->region->desc, q->first + i);
        }
        return 0;
}

static int begin_piece(struct reader *r, struct piece *q, uint32_t tag)
{
        struct media *m = r->p->media;
        uint64_t start = q->offset / m->align * m->align;
        uint64_t end = align_up(q->offset + q->bytes, m->align);
        uint8_t *place = r->to ? r->to + (q->first - r->first) * r->region->desc.block_bytes : NULL;
        bool straight = place && m->align == 1;
        q->skew = (uint32_t)(q->offset - start);
        q->buf = straight ? place : r->p->writer.chunks[tag].buf;
        q->result = 0;
        q->done = q->zeros;
        if (q->zeros)
                return 0;
        int rc = m->ops->read(m, q->buf, (uint32_t)(end - start), start, tag);
        if (rc) {
                q->done = true;
                q->result = rc;
        }
        return 0;
}

/* Would the blocks so far and one more of `bytes` still fit a gather buffer? */
static bool fits(const struct reader *r, const struct piece *q, uint32_t bytes)
{
        uint32_t align = r->p->media->align;
        uint64_t start = q->offset / align * align;
        return align_up(q->offset + q->bytes + bytes, align) - start <= CHUNK_BYTES;
}

/* The wanted blocks of a leaf, as positions in it: *begin … result - 1. */
static uint32_t wanted(const struct reader *r, uint64_t leaf, uint32_t *begin)
{
        uint64_t base = leaf * LEAF_ENTRIES;
        *begin = (uint32_t)(max_u64(r->first, base) - base);
        return (uint32_t)(min_u64(r->end, base + leaf_entries(&r->region->desc, leaf)) - base);
}

/* The blocks of the leaf from number i on that are read at once; returns the number after them. */
static uint32_t fill_piece(const struct reader *r, struct piece *q, uint64_t leaf, uint32_t i,
                           uint32_t count)
{
        q->first = leaf * LEAF_ENTRIES + i;
        q->offset = r->entries[i].offset;
        q->zeros = q->offset == 0;
        q->count = 0;
        q->bytes = 0;
        while (i < count && r->entries[i].offset == q->offset + q->bytes) {
                uint32_t bytes = block_length(&r->region->desc, q->first + q->count);
                if (q->count && !q->zeros && !fits(r, q, bytes))
                        break;
                q->hash[q->count++] = r->entries[i++].hash;
                q->bytes += q->zeros ? 0 : bytes;
        }
        return i;
}

static int read_leaf_blocks(struct reader *r, uint64_t leaf)
{
        uint32_t i;
        uint32_t count = wanted(r, leaf, &i);
        while (i < count) {
                if (r->tail - r->head == IO_DEPTH) {
                        int rc = finish_one(r);
                        if (rc)
                                return rc;
                }
                uint32_t tag = r->tail % IO_DEPTH;
                struct piece *q = &r->pieces[tag];
                i = fill_piece(r, q, leaf, i, count);
                r->tail++;
                int rc = begin_piece(r, q, tag);
                if (rc)
                        return rc;
        }
        return 0;
}

static int finish_all(struct reader *r)
{
        while (r->head != r->tail) {
                int rc = finish_one(r);
                if (rc)
                        return rc;
        }
        return 0;
}

/* A leaf that cannot be read: all its blocks are damaged, for the one reason that is this thread's
 * error now. What came before it is delivered first. */
static int lost_leaf(struct reader *r, uint64_t leaf)
{
        struct err_kept kept;
        err_keep(&kept);
        uint32_t i;
        uint32_t count = wanted(r, leaf, &i);
        int rc = finish_all(r);
        if (rc || !r->fn)
                return rc ? rc : err_give_back(&kept);
        for (; i < count; i++) {
                uint64_t block = leaf * LEAF_ENTRIES + i;
                (void)err_give_back(&kept);
                int end = r->fn(r->arg, block, NULL, block_length(&r->region->desc, block));
                if (end)
                        return end;
        }
        return 0;
}

static int read_all(struct reader *r, const struct version *v, uint32_t region)
{
        for (uint64_t leaf = r->first / LEAF_ENTRIES; leaf * LEAF_ENTRIES < r->end; leaf++) {
                int rc = pool_read_leaf(r->p, v, region, leaf, r->entries);
                rc = rc ? lost_leaf(r, leaf) : read_leaf_blocks(r, leaf);
                if (rc)
                        return rc;
        }
        return finish_all(r);
}

int pool_read_region(struct pool *p, const struct version *v, uint32_t region, void *to,
                     block_fn fn, void *arg)
{
        uint64_t count = region_blocks(&v->regions[region]->desc);
        return pool_read_blocks(p, v, region, 0, count, to, fn, arg);
}

int reader_init(struct pool *p)
{
        p->reader = budget_alloc(p->budget, sizeof(*p->reader), "the reader");
        return p->reader ? 0 : -ENOMEM;
}

int pool_read_blocks(struct pool *p, const struct version *v, uint32_t region, uint64_t first,
                     uint64_t count, void *to, block_fn fn, void *arg)
{
        if (p->media->lost || p->draft)
                return err_set(p->media->lost ? BELAY_E_BROKEN : -EBUSY,
                               "pool '%s' cannot be read now: %s", p->label,
                               p->media->lost ? "close and open it again"
                                              : "a version is being written");
        struct reader *r = p->reader;
        if (r->p)
                return err_set(-EBUSY, "pool '%s' is being read already", p->label);
        r->p = p;
        r->region = v->regions[region];
        r->version = v->number;
        r->first = first;
        r->end = first + count;
        r->to = to;
        r->fn = fn;
        r->arg = arg;
        int rc = read_all(r, v, region);
        /* Nothing may still be in flight to the caller's memory when this returns. */
        while (r->head != r->tail)
                if (await(r, &r->pieces[r->head++ % IO_DEPTH]))
                        break;
        r->head = r->tail = 0;
        r->p = NULL;
        return rc;
}

int pool_read_leaf(struct pool *p, const struct version *v, uint32_t region, uint64_t leaf,
                   struct leaf_entry entries[LEAF_ENTRIES])
{
        const struct stored_region *r = v->regions[region];
        if (r->leaves) {
                const struct leaf *l = r->leaves[leaf];
                memcpy(entries, l->entries, l->count * sizeof(l->entries[0]));
                return 0;
        }
        int rc = leaf_load(p, &r->desc, leaf, &r->refs[leaf], entries);
        return rc ? err_wrap(rc, "version %llu of pool '%s'", (unsigned long long)v->number,
                             p->label)
                  : 0;
}
