/* ranges.c: what is read of a version: bytes, blocks, maps, places.
 *
 * Guarantee: a call that succeeds has read from a version that was listed when all was read
 * (docs/format.md §10). What a call that fails has delivered counts for nothing. */
#include "read/read_int.h"
#include <errno.h>

/* Between the two calls the versions stay in memory, and the reader is this call's. */
static int begin(struct belay_reader *r)
{
        if (r->busy)
                return err_set(-EBUSY, "the reader is reading already: open another one");
        int rc = 0;
        if (!r->reader) {
                struct reader_needs needs = {.largest = UINT64_MAX};
                rc = reader_new(r->pool, &needs, &r->reader);
        }
        r->busy = rc == 0;
        return rc;
}

static int end(struct belay_reader *r, const struct version *v, int rc)
{
        r->busy = false;
        return read_confirm(r, v, rc);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A part of one block. */
struct part {
        uint8_t *to;
        uint64_t skip, bytes;
};

static int copy_part(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        const struct part *p = arg;
        (void)block;
        (void)bytes;
        if (!data)
                return BELAY_E_DATA; /* the text is there */
        memcpy(p->to, (const uint8_t *)data + p->skip, p->bytes);
        return 0;
}

static int read_bytes(struct belay_reader *r, const struct version *v, uint32_t region,
                      uint64_t offset, uint64_t bytes, uint8_t *to)
{
        const struct region_desc *d = &v->regions[region]->desc;
        uint64_t size = d->block_bytes;
        while (bytes) {
                uint64_t block = offset / size;
                uint64_t skip = offset % size;
                /* Whole blocks, of which the last one of a region may be short. */
                uint64_t whole = skip ? 0 : bytes / size;
                if (!skip && offset + bytes == d->bytes)
                        whole = div_up(bytes, size);
                uint64_t n = whole ? min_u64(bytes, whole * size) : min_u64(bytes, size - skip);
                struct part part = {to, skip, n};
                int rc = whole ? reader_read_blocks(r->reader, v, region, block, whole, to, NULL,
                                                    NULL)
                               : reader_read_blocks(r->reader, v, region, block, 1, NULL, copy_part,
                                                    &part);
                if (rc)
                        return rc;
                offset += n;
                bytes -= n;
                to += n;
        }
        return 0;
}

int belay_read(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t offset,
               uint64_t bytes, void *to)
{
        struct version *v;
        int rc = read_region(r, version, region, &v);
        if (rc)
                return read_end(rc);
        const struct region_desc *d = &v->regions[region]->desc;
        if (offset > d->bytes || bytes > d->bytes - offset || (bytes && !to))
                return read_end(err_set(
                        -EINVAL, "belay_read: region '%s' has %llu bytes, not %llu from %llu on",
                        d->name, (unsigned long long)d->bytes, (unsigned long long)bytes,
                        (unsigned long long)offset));
        rc = begin(r);
        return read_end(rc ? rc : end(r, v, read_bytes(r, v, region, offset, bytes, to)));
}

/* ---- blocks ---------------------------------------------------------------------------------- */

struct telling {
        belay_block_fn fn;
        void *arg;
        int result;                  /* of fn, if that ended the reading             */
        char damage[ERR_TEXT_BYTES]; /* the callback may make calls that fail in turn */
};

static int tell(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        struct telling *t = arg;
        struct belay_read_block b = {.size = sizeof(b),
                                     .block = block,
                                     .data = data,
                                     .damage = t->damage,
                                     .bytes = bytes};
        t->damage[0] = '\0';
        if (!data)
                memcpy(t->damage, err_text(), sizeof(t->damage));
        t->result = t->fn(t->arg, &b);
        return t->result;
}

int belay_read_blocks(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t first,
                      uint64_t count, belay_block_fn fn, void *arg)
{
        struct version *v;
        int rc = read_region(r, version, region, &v);
        if (rc)
                return read_end(rc);
        uint64_t blocks = region_blocks(&v->regions[region]->desc);
        if (first > blocks || (count > blocks - first && count != UINT64_MAX) || !fn)
                return read_end(err_set(-EINVAL,
                                        "belay_read_blocks: region '%s' has %llu blocks, or there "
                                        "is nobody to call",
                                        v->regions[region]->desc.name, (unsigned long long)blocks));
        rc = begin(r);
        if (rc)
                return read_end(rc);
        struct telling t = {.fn = fn, .arg = arg};
        rc = reader_read_blocks(r->reader, v, region, first, min_u64(count, blocks - first), NULL,
                                tell, &t);
        if (t.result) {
                r->busy = false;
                return t.result;
        }
        return read_end(end(r, v, rc));
}

/* ---- maps and places ------------------------------------------------------------------------- */

/* Entries `first` to `first + count` - 1, of one leaf. */
static int give_entries(struct belay_reader *r, const struct version *v, uint32_t region,
                        uint64_t first, uint64_t count, struct belay_read_entry *out)
{
        const struct region_desc *d = &v->regions[region]->desc;
        struct leaf_entry entries[LEAF_ENTRIES];
        int rc = pool_read_leaf(r->pool, v, region, first / LEAF_ENTRIES, entries);
        for (uint64_t i = 0; rc == 0 && i < count; i++) {
                const struct leaf_entry *e = &entries[(first + i) % LEAF_ENTRIES];
                out[i] = (struct belay_read_entry){.offset = e->offset,
                                                   .hash = {e->hash.lo, e->hash.hi},
                                                   .bytes = block_length(d, first + i)};
        }
        return rc;
}

int belay_read_map(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t first,
                   uint64_t count, struct belay_read_entry *out)
{
        struct version *v;
        int rc = read_region(r, version, region, &v);
        if (rc)
                return read_end(rc);
        uint64_t blocks = region_blocks(&v->regions[region]->desc);
        if (first > blocks || count > blocks - first || (count && !out))
                return read_end(err_set(-EINVAL, "belay_read_map: region '%s' has %llu blocks",
                                        v->regions[region]->desc.name, (unsigned long long)blocks));
        for (uint64_t at = 0; at < count && rc == 0;) {
                uint64_t n = min_u64(count - at, LEAF_ENTRIES - (first + at) % LEAF_ENTRIES);
                rc = give_entries(r, v, region, first + at, n, out + at);
                at += n;
        }
        return read_end(read_confirm(r, v, rc));
}

/* One leaf and its blocks. */
static int tell_leaf(struct belay_reader *r, const struct version *v, uint32_t region,
                     uint64_t leaf, belay_place_fn fn, void *arg)
{
        const struct stored_region *s = v->regions[region];
        struct leaf_entry entries[LEAF_ENTRIES];
        if (pool_read_leaf(r->pool, v, region, leaf, entries))
                return 0;
        uint32_t count = leaf_entries(&s->desc, leaf);
        struct belay_read_place place = {.size = sizeof(place),
                                         .object = BELAY_OBJECT_LEAF,
                                         .region = region,
                                         .number = leaf,
                                         .offset = stored_leaf(s, leaf).offset,
                                         .bytes = leaf_length(count),
                                         .first = leaf * LEAF_ENTRIES,
                                         .count = count};
        int rc = fn(arg, &place);
        for (uint32_t i = 0; i < count && rc == 0; i++) {
                uint64_t block = leaf * LEAF_ENTRIES + i;
                if (entries[i].offset == 0)
                        continue;
                place = (struct belay_read_place){.size = sizeof(place),
                                                  .object = BELAY_OBJECT_BLOCK,
                                                  .region = region,
                                                  .number = block,
                                                  .offset = entries[i].offset,
                                                  .bytes = block_length(&s->desc, block),
                                                  .first = block,
                                                  .count = 1};
                rc = fn(arg, &place);
        }
        return rc;
}

static int tell_places(struct belay_reader *r, const struct version *v, belay_place_fn fn,
                       void *arg)
{
        struct belay_read_place place = {.size = sizeof(place),
                                         .object = BELAY_OBJECT_MANIFEST,
                                         .offset = v->manifest.offset,
                                         .bytes = v->manifest_bytes};
        int rc = fn(arg, &place);
        for (uint32_t i = 0; i < v->catalog_count && rc == 0; i++) {
                struct catalog_ref c = version_catalog(v, i);
                place = (struct belay_read_place){.size = sizeof(place),
                                                  .object = BELAY_OBJECT_CATALOG,
                                                  .number = i,
                                                  .offset = c.ref.offset,
                                                  .bytes = c.bytes};
                if (c.ref.offset) /* a manifest of format 1 has none */
                        rc = fn(arg, &place);
        }
        for (uint32_t i = 0; i < v->region_count; i++)
                for (uint64_t leaf = 0; leaf < region_leaves(&v->regions[i]->desc) && rc == 0;
                     leaf++)
                        rc = tell_leaf(r, v, i, leaf, fn, arg);
        return rc;
}

int belay_read_places(struct belay_reader *r, uint64_t version, belay_place_fn fn, void *arg)
{
        struct version *v;
        int rc = read_version(r, version, &v);
        if (rc == 0 && v->unreadable)
                rc = err_set(BELAY_E_DATA, "version %llu is damaged: %s",
                             (unsigned long long)v->number, v->damage);
        if (rc == 0 && !fn)
                rc = err_set(-EINVAL, "belay_read_places: there is nobody to call");
        if (rc == 0 && r->busy)
                rc = err_set(-EBUSY, "the reader is reading already: open another one");
        if (rc)
                return read_end(rc);
        r->busy = true;
        rc = tell_places(r, v, fn, arg);
        if (rc) {
                r->busy = false;
                return rc;
        }
        return read_end(end(r, v, 0));
}
