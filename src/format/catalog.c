/* catalog.c: format.md §4, the records of regions; and those of format 1 (§11). */
#include "format/format_int.h"
#include <errno.h>
#include <stdio.h>

enum { AT_COUNT = 32, AT_VERSION = 40 };
enum { RECORD_HEAD = 40 };
#define RECORD_GLOBAL 1u

/* Of the numbers between the head and the name. */
static uint64_t shape_numbers(const struct region_desc *d)
{
        return d->ndims + d->global_ndims + UINT64_C(2) * d->global_ndims * d->box_count;
}

uint64_t record_bytes(const struct region_desc *d)
{
        return RECORD_HEAD + 8 * shape_numbers(d) + align_up(strlen(d->name), 8) +
               region_leaves(d) * ENTRY_BYTES;
}

static uint8_t *put_numbers(uint8_t *p, const uint64_t *numbers, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                put_u64(p + 8 * i, numbers[i]);
        return p + 8 * count;
}

static const uint8_t *get_numbers(const uint8_t *p, uint64_t *numbers, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                numbers[i] = get_u64(p + 8 * i);
        return p + 8 * count;
}

uint64_t record_put(uint8_t *out, uint64_t at, const struct region_desc *d, uint8_t **refs)
{
        uint8_t *p = out + at;
        uint64_t bytes = record_bytes(d);
        size_t name = strlen(d->name);
        put_u32(p, (uint32_t)bytes);
        put_u16(p + 4, (uint16_t)name);
        put_u16(p + 6, (uint16_t)d->type);
        put_u32(p + 8, d->element_bytes);
        put_u32(p + 12, d->block_bytes);
        p[16] = (uint8_t)d->ndims;
        p[17] = (uint8_t)d->hash;
        p[18] = d->box_count ? RECORD_GLOBAL : 0;
        p[19] = (uint8_t)d->global_ndims;
        put_u32(p + 20, d->box_count);
        put_u64(p + 24, d->bytes);
        put_u64(p + 32, region_leaves(d));
        p = put_numbers(p + RECORD_HEAD, d->dims, d->ndims);
        p = put_numbers(p, d->global_dims, d->global_ndims);
        for (uint32_t i = 0; i < d->box_count; i++) {
                p = put_numbers(p, region_box(d, i)->start, d->global_ndims);
                p = put_numbers(p, region_box(d, i)->dims, d->global_ndims);
        }
        memset(p, 0, align_up(name, 8));
        memcpy(p, d->name, name);
        *refs = p + align_up(name, 8);
        return at + bytes;
}

struct hash128 catalog_seal(uint8_t *out, uint64_t bytes, uint32_t regions, uint64_t version)
{
        memset(out, 0, CATALOG_HEAD_BYTES);
        put_u32(out + AT_COUNT, regions);
        put_u64(out + AT_VERSION, version);
        return header_seal(out, magic_catalog, (uint32_t)bytes);
}

int catalog_begin(struct record_cursor *c, const uint8_t *in, const struct catalog_ref *ref,
                  const char *what)
{
        int rc = header_check(in, ref->bytes, magic_catalog, what);
        if (rc)
                return rc;
        if (!hash_equal(hash_get(in + HEADER_SUM), ref->ref.checksum) ||
            get_u32(in + AT_COUNT) != ref->regions)
                return err_set(BELAY_E_DATA, "%s is not the one its manifest refers to", what);
        *c = (struct record_cursor){.in = in,
                                    .bytes = ref->bytes,
                                    .at = CATALOG_HEAD_BYTES,
                                    .count = ref->regions,
                                    .left = ref->regions,
                                    .what = what};
        return 0;
}

/* How many boxes in how many dimensions: format 1 has one, in as many as the region. */
static int get_counts(const uint8_t *p, bool flat, const char *who, struct region_desc *d)
{
        bool global = p[18] & RECORD_GLOBAL;
        if (flat) {
                d->global_ndims = global ? d->ndims : 0;
                d->box_count = global;
                return 0;
        }
        d->global_ndims = p[19];
        d->box_count = get_u32(p + 20);
        if (global ? d->global_ndims < 1 || d->global_ndims > BELAY_MAX_DIMS || d->box_count < 1 ||
                             d->box_count > MAX_BOXES
                   : d->global_ndims || d->box_count)
                return err_set(BELAY_E_DATA, "%s: its boxes are impossible", who);
        return 0;
}

/* Everything of a record but its name, shape and references; `room` is what is left. */
static int record_head(const uint8_t *p, uint64_t room, bool flat, const char *who,
                       struct region_desc *d)
{
        if (room < RECORD_HEAD)
                return err_set(BELAY_E_DATA, "%s is cut off", who);
        *d = (struct region_desc){
                .type = get_u16(p + 6),
                .element_bytes = get_u32(p + 8),
                .block_bytes = get_u32(p + 12),
                .ndims = p[16],
                .hash = p[17],
        };
        uint32_t name = get_u16(p + 4);
        uint64_t leaves = get_u64(p + 32);
        if (p[17] >= HASH_KINDS)
                return err_set(BELAY_E_FORMAT, "%s: block hash %u is not known; use a newer Belay",
                               who, p[17]);
        if (d->ndims < 1 || d->ndims > BELAY_MAX_DIMS || name < 1 || name > BELAY_MAX_NAME ||
            leaves > room / ENTRY_BYTES)
                return err_set(BELAY_E_DATA, "%s: a count is impossible", who);
        int rc = get_counts(p, flat, who, d);
        if (rc)
                return rc;
        /* In format 1 the dims of the box are those of the region. */
        uint64_t numbers = shape_numbers(d) - (flat ? d->global_ndims : 0);
        uint64_t bytes = RECORD_HEAD + 8 * numbers + align_up(name, 8) + leaves * ENTRY_BYTES;
        if (get_u32(p) != bytes || bytes > room)
                return err_set(BELAY_E_DATA, "%s: its length is impossible", who);
        return 0;
}

static const uint8_t *get_box(const uint8_t *p, const struct region_desc *d, struct box *b)
{
        p = get_numbers(p, b->start, d->global_ndims);
        return get_numbers(p, b->dims, d->global_ndims);
}

/* Dims, global array and boxes; *boxes is where the second one is. */
static const uint8_t *get_shape(const uint8_t *p, bool flat, struct region_desc *d,
                                const uint8_t **boxes)
{
        p = get_numbers(p, d->dims, d->ndims);
        p = get_numbers(p, d->global_dims, d->global_ndims);
        *boxes = NULL;
        if (d->box_count == 0)
                return p;
        if (flat) {
                memcpy(d->box.dims, d->dims, sizeof(d->dims));
                return get_numbers(p, d->box.start, d->global_ndims);
        }
        *boxes = get_box(p, d, &d->box);
        return p + UINT64_C(16) * d->global_ndims * d->box_count;
}

int boxes_get(struct region_desc *out, const uint8_t *boxes, struct box *more)
{
        for (uint32_t i = 0; i + 1 < out->box_count; i++) {
                memset(&more[i], 0, sizeof(more[i]));
                boxes = get_box(boxes, out, &more[i]);
        }
        out->more = more;
        return region_desc_check(out, out->name) ? err_restore(BELAY_E_DATA, err_text()) : 0;
}

static int end(const struct record_cursor *c)
{
        if (c->at != c->bytes)
                return err_set(BELAY_E_DATA, "%s: %llu bytes follow the last region", c->what,
                               (unsigned long long)(c->bytes - c->at));
        return 0;
}

int record_next(struct record_cursor *c, struct region_desc *out, const uint8_t **leaf_refs,
                const uint8_t **boxes)
{
        char who[64];
        snprintf(who, sizeof(who), "%s: region %u", c->what, c->count - c->left);
        if (c->left == 0)
                return end(c);
        const uint8_t *p = c->in + c->at;
        struct region_desc d;
        int rc = record_head(p, c->bytes - c->at, c->flat, who, &d);
        if (rc)
                return rc;
        const uint8_t *q = get_shape(p + RECORD_HEAD, c->flat, &d, boxes);
        uint32_t name = get_u16(p + 4);
        memcpy(d.name, q, name);
        d.name[name] = '\0';
        if (strlen(d.name) != name || name_check(d.name))
                return err_set(BELAY_E_DATA, "%s: its name is not valid", who);
        if (region_desc_check(&d, who))
                return err_restore(BELAY_E_DATA, err_text());
        if (d.bytes != get_u64(p + 24) || region_leaves(&d) != get_u64(p + 32))
                return err_set(BELAY_E_DATA, "%s: size and shape do not agree", who);
        if (__builtin_add_overflow(c->sum, d.bytes, &c->sum))
                return err_set(BELAY_E_DATA, "%s: the regions do not add up", who);
        *leaf_refs = q + align_up(name, 8);
        c->at += get_u32(p);
        c->left--;
        *out = d;
        return 1;
}
