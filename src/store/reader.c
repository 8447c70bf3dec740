/* reader.c: reads regions back: several large transfers in flight, every block verified.
 *
 * A reader has all it needs from the moment it is made: buffers, and in a pool opened for reading
 * only also a ring of its own. So a restart that has begun does not fail for lack of memory, and
 * readers of such a pool do not meet: one may read while the callback of another is running. In a
 * pool opened for writing the transfers go through the pool's own media, whose results come to
 * whoever waits: there one reader reads at a time, and none while a draft exists.
 *
 * A piece is a run of blocks that follow each other in the region and in the file. Direct I/O reads
 * it into a buffer of the reader: those are in huge pages, and reading there and copying takes less
 * time than reading into the program's scattered pages. Other media read it straight to its
 * destination. Pieces finish in the order they were begun, so callers see ascending blocks. */
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
        struct media *media; /* its own in a readonly pool, else the pool's  */
        uint8_t *buffers;    /* CHUNK_BYTES each, or NULL: see reader_needs  */
        uint32_t depth;      /* pieces in flight; as many as buffers, if any */
        fetch_fn fetch;      /* or NULL                                      */
        void *fetch_arg;
        bool busy;
        const struct version *v;
        const struct stored_region *region;
        uint64_t first, end; /* blocks wanted: first … end - 1 */
        uint8_t *to;         /* place of the first one         */
        block_fn fn;
        void *arg;
        uint32_t head, tail; /* pieces in flight: head … tail - 1 */
        struct piece pieces[IO_DEPTH];
        struct leaf_entry entries[LEAF_ENTRIES];
        uint8_t leaf[LEAF_HEADER_BYTES + LEAF_ENTRIES * ENTRY_BYTES];
};

/* ---- making one ------------------------------------------------------------------------------ */

/* As many as the largest region has use for; fewer if the budget has no room for them. */
static int make_buffers(struct reader *r, uint64_t largest)
{
        uint32_t count = (uint32_t)min_u64(IO_DEPTH, max_u64(1, div_up(largest, CHUNK_BYTES)));
        int rc = media_buffers_new(r->p->budget, count, "the buffers of a reader", &r->buffers);
        while (rc && count > 1) {
                count /= 2;
                rc = media_buffers_new(r->p->budget, count, "the buffers of a reader", &r->buffers);
        }
        r->depth = count;
        return rc;
}

static int make_media(struct reader *r)
{
        struct media *of = r->p->media;
        r->media = of;
        if (!r->p->options.readonly)
                return 0;
        struct media m = {.budget = r->p->budget,
                          .fd = of->fd,
                          .io_fd = of->io_fd,
                          .bytes = of->bytes,
                          .align = of->align,
                          .borrowed = true};
        struct pool_options o = {.io = of->overlaps ? IO_AUTO : IO_PWRITE};
        r->media = NULL;
        return media_file_new(m, &o, &r->media);
}

int reader_new(struct pool *p, const struct reader_needs *needs, struct reader **out)
{
        struct reader *r = budget_alloc(p->budget, sizeof(*r), "a reader");
        if (!r)
                return -ENOMEM;
        r->p = p;
        r->depth = IO_DEPTH;
        int rc = make_media(r);
        if (rc == 0 && !(needs->placed && r->media->align == 1))
                rc = make_buffers(r, needs->largest);
        if (rc) {
                reader_delete(&r);
                return rc;
        }
        *out = r;
        return 0;
}

void reader_delete(struct reader **reader)
{
        struct reader *r = *reader;
        *reader = NULL;
        if (!r)
                return;
        if (r->media && r->media != r->p->media)
                (void)r->media->ops->close(r->media);
        if (r->buffers)
                media_buffers_delete(r->p->budget, r->depth, r->buffers);
        budget_free(r->p->budget, r);
}

void reader_set_fetch(struct reader *r, fetch_fn fetch, void *arg)
{
        r->fetch = fetch;
        r->fetch_arg = arg;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool right(const struct region_desc *d, const uint8_t *data, uint32_t bytes,
                  struct hash128 expected)
{
        return hash_equal(hash_block(d->hash, data, bytes), expected);
}

static int set_damaged(const struct reader *r, uint64_t block, int result)
{
        return err_set(BELAY_E_DATA, "version %llu, region '%s', block %llu of pool '%s': %s",
                       (unsigned long long)r->v->number, r->region->desc.name,
                       (unsigned long long)block, r->p->label,
                       result ? code_text(result) : "its checksum is wrong");
}

/* What is missing here may be had elsewhere; whoever has it says in the log what was wrong here. It
 * is checked as if it had been read here. */
static bool fetched(const struct reader *r, uint64_t block, uint8_t *to, struct hash128 expected,
                    int result)
{
        const struct region_desc *d = &r->region->desc;
        uint32_t bytes = block_length(d, block);
        if (!r->fetch)
                return false;
        (void)set_damaged(r, block, result);
        return r->fetch(r->fetch_arg, r->v, d, block, expected, to, bytes) == 0 &&
               right(d, to, bytes, expected);
}

/* `data` is the place of the block in the buffer or in the caller's memory; `result` that of the
 * transfer. */
static int deliver(struct reader *r, uint64_t block, uint8_t *data, struct hash128 expected,
                   int result)
{
        const struct region_desc *d = &r->region->desc;
        uint32_t bytes = block_length(d, block);
        bool good = result == 0 && right(d, data, bytes, expected);
        if (!good && !fetched(r, block, data, expected, result)) {
                int rc = set_damaged(r, block, result);
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
        uint64_t done = 0;
        for (uint32_t i = 0; i < q->count; i++) {
                uint8_t *data = q->buf + q->skew + done;
                uint32_t bytes = block_length(&r->region->desc, q->first + i);
                int result = media_read_now(r->media, data, bytes, q->offset + done);
                int rc = deliver(r, q->first + i, data, q->hash[i], result);
                if (rc)
                        return rc;
                done += bytes;
        }
        return 0;
}

static int await(struct reader *r, struct piece *q)
{
        while (!q->done) {
                uint32_t tag;
                int result;
                int rc = r->media->ops->wait(r->media, &tag, &result);
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
        struct piece *q = &r->pieces[r->head++ % r->depth];
        int rc = await(r, q);
        if (rc)
                return rc;
        if (q->zeros)
                return deliver_zeros(r, q);
        if (q->result)
                return deliver_singly(r, q);
        uint8_t *data = q->buf + q->skew;
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
        struct media *m = r->media;
        uint64_t start = q->offset / m->align * m->align;
        uint64_t end = align_up(q->offset + q->bytes, m->align);
        uint8_t *place = r->to ? r->to + (q->first - r->first) * r->region->desc.block_bytes : NULL;
        bool straight = place && m->align == 1;
        q->skew = (uint32_t)(q->offset - start);
        q->buf = straight ? place : r->buffers + (size_t)tag * CHUNK_BYTES;
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

/* Would the blocks so far and one more of `bytes` still fit a buffer? */
static bool fits(const struct reader *r, const struct piece *q, uint32_t bytes)
{
        uint32_t align = r->media->align;
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
                if (r->tail - r->head == r->depth) {
                        int rc = finish_one(r);
                        if (rc)
                                return rc;
                }
                uint32_t tag = r->tail % r->depth;
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

/* `room` is for the leaf as it is stored. */
static int entries_of(struct pool *p, const struct version *v, const struct stored_region *r,
                      uint64_t leaf, uint8_t *room, struct leaf_entry *entries)
{
        if (r->leaves) {
                const struct leaf *l = r->leaves[leaf];
                memcpy(entries, l->entries, l->count * sizeof(l->entries[0]));
                return 0;
        }
        /* Whatever is there instead of the leaf, in a pool of a known format it is damage. */
        if (leaf_load(p, &r->desc, leaf, &r->refs[leaf], room, entries))
                return err_wrap(BELAY_E_DATA, "version %llu of pool '%s'",
                                (unsigned long long)v->number, p->label);
        return 0;
}

static int read_all(struct reader *r)
{
        for (uint64_t leaf = r->first / LEAF_ENTRIES; leaf * LEAF_ENTRIES < r->end; leaf++) {
                int rc = entries_of(r->p, r->v, r->region, leaf, r->leaf, r->entries);
                rc = rc ? lost_leaf(r, leaf) : read_leaf_blocks(r, leaf);
                if (rc)
                        return rc;
        }
        return finish_all(r);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int begin(struct reader *r)
{
        struct pool *p = r->p;
        const char *why = NULL;
        if (r->media->lost)
                return err_set(BELAY_E_BROKEN,
                               "pool '%s' cannot be read now: close and open it again", p->label);
        if (p->draft)
                why = "a version is being written";
        else if (r->busy || p->reading)
                why = "it is being read already";
        if (why)
                return err_set(-EBUSY, "pool '%s' cannot be read now: %s", p->label, why);
        r->busy = true;
        p->reading = !p->options.readonly;
        return 0;
}

int reader_read_blocks(struct reader *r, const struct version *v, uint32_t region, uint64_t first,
                       uint64_t count, void *to, block_fn fn, void *arg)
{
        int rc = begin(r);
        if (rc)
                return rc;
        r->v = v;
        r->region = v->regions[region];
        r->first = first;
        r->end = first + count;
        r->to = to;
        r->fn = fn;
        r->arg = arg;
        rc = read_all(r);
        /* Nothing may still be in flight to the caller's memory when this returns. */
        while (r->head != r->tail)
                if (await(r, &r->pieces[r->head++ % r->depth]))
                        break;
        r->head = r->tail = 0;
        r->busy = r->p->reading = false;
        return rc;
}

int reader_read_region(struct reader *r, const struct version *v, uint32_t region, void *to,
                       block_fn fn, void *arg)
{
        uint64_t count = region_blocks(&v->regions[region]->desc);
        return reader_read_blocks(r, v, region, 0, count, to, fn, arg);
}

int pool_read_leaf(struct pool *p, const struct version *v, uint32_t region, uint64_t leaf,
                   struct leaf_entry entries[LEAF_ENTRIES])
{
        return entries_of(p, v, v->regions[region], leaf, p->scratch, entries);
}
