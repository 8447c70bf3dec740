/* manifest.c: format.md §4. */
#include "format/format_int.h"
#include <errno.h>
#include <stdio.h>

enum { AT_ID = 32, AT_VERSION = 48, AT_TIME = 56, AT_DATA = 64, AT_COUNT = 72 };
enum { RECORD_HEAD = 40 };
#define RECORD_GLOBAL 1u

static uint64_t record_bytes(uint32_t ndims, bool global, uint64_t name_length, uint64_t leaves)
{
        return RECORD_HEAD + 8u * ndims * (global ? 3u : 1u) + align_up(name_length, 8) +
               leaves * ENTRY_BYTES;
}

uint64_t manifest_record_bytes(const struct region_desc *d)
{
        return record_bytes(d->ndims, d->global, strlen(d->name), region_leaves(d));
}

static uint8_t *put_dims(uint8_t *p, const uint64_t *dims, uint32_t ndims)
{
        for (uint32_t i = 0; i < ndims; i++)
                put_u64(p + 8 * i, dims[i]);
        return p + 8 * ndims;
}

static const uint8_t *get_dims(const uint8_t *p, uint64_t *dims, uint32_t ndims)
{
        for (uint32_t i = 0; i < ndims; i++)
                dims[i] = get_u64(p + 8 * i);
        return p + 8 * ndims;
}

uint64_t manifest_put_region(uint8_t *out, uint64_t at, const struct region_desc *d,
                             const struct object_ref *leaves)
{
        uint8_t *p = out + at;
        uint64_t bytes = manifest_record_bytes(d);
        size_t name = strlen(d->name);
        memset(p, 0, RECORD_HEAD);
        put_u32(p, (uint32_t)bytes);
        put_u16(p + 4, (uint16_t)name);
        put_u16(p + 6, (uint16_t)d->type);
        put_u32(p + 8, d->element_bytes);
        put_u32(p + 12, d->block_bytes);
        p[16] = (uint8_t)d->ndims;
        p[17] = (uint8_t)d->hash;
        put_u16(p + 18, d->global ? RECORD_GLOBAL : 0);
        put_u64(p + 24, d->bytes);
        put_u64(p + 32, region_leaves(d));
        p = put_dims(p + RECORD_HEAD, d->dims, d->ndims);
        if (d->global) {
                p = put_dims(p, d->global_dims, d->ndims);
                p = put_dims(p, d->global_start, d->ndims);
        }
        memset(p, 0, align_up(name, 8));
        memcpy(p, d->name, name);
        p += align_up(name, 8);
        for (uint64_t i = 0; i < region_leaves(d); i++, p += ENTRY_BYTES) {
                put_u64(p, leaves[i].offset);
                hash_put(p + 8, leaves[i].checksum);
        }
        return at + bytes;
}

struct hash128 manifest_seal(uint8_t *out, uint64_t bytes, const struct manifest_head *head)
{
        memset(out, 0, MANIFEST_HEAD_BYTES);
        memcpy(out + AT_ID, head->pool_id, sizeof(head->pool_id));
        put_u64(out + AT_VERSION, head->version);
        put_u64(out + AT_TIME, head->time_ns);
        put_u64(out + AT_DATA, head->data_bytes);
        put_u32(out + AT_COUNT, head->region_count);
        return header_seal(out, magic_manifest, (uint32_t)bytes);
}

int manifest_decode(const uint8_t *in, uint64_t bytes, struct manifest_head *out)
{
        int rc = header_check(in, bytes, magic_manifest, "manifest");
        if (rc)
                return rc;
        if (bytes < MANIFEST_HEAD_BYTES || bytes > MAX_MANIFEST_BYTES)
                return err_set(BELAY_E_DATA, "manifest: %llu bytes are impossible",
                               (unsigned long long)bytes);
        struct manifest_head h = {
                .version = get_u64(in + AT_VERSION),
                .time_ns = get_u64(in + AT_TIME),
                .data_bytes = get_u64(in + AT_DATA),
                .region_count = get_u32(in + AT_COUNT),
        };
        memcpy(h.pool_id, in + AT_ID, sizeof(h.pool_id));
        if (h.region_count > MAX_REGIONS)
                return err_set(BELAY_E_DATA, "manifest: %u regions, at most %u are possible",
                               h.region_count, MAX_REGIONS);
        /* Before anyone allocates for them. */
        if (h.region_count > (bytes - MANIFEST_HEAD_BYTES) / record_bytes(1, false, 1, 0))
                return err_set(BELAY_E_DATA, "manifest: %u regions do not fit its %llu bytes",
                               h.region_count, (unsigned long long)bytes);
        *out = h;
        return 0;
}

void manifest_begin(struct manifest_cursor *c, const uint8_t *in, uint64_t bytes,
                    const struct manifest_head *head)
{
        *c = (struct manifest_cursor){in, bytes, MANIFEST_HEAD_BYTES, head->region_count, 0, *head};
}

/* Everything of a record but its name and references; `room` is what is left of the manifest. */
static int record_head(const uint8_t *p, uint64_t room, const char *who, struct region_desc *d)
{
        if (room < RECORD_HEAD)
                return err_set(BELAY_E_DATA, "%s is cut off", who);
        *d = (struct region_desc){
                .type = get_u16(p + 6),
                .element_bytes = get_u32(p + 8),
                .block_bytes = get_u32(p + 12),
                .ndims = p[16],
                .hash = p[17],
                .global = (get_u16(p + 18) & RECORD_GLOBAL) != 0,
        };
        uint32_t name = get_u16(p + 4);
        uint64_t leaves = get_u64(p + 32);
        if (p[17] >= HASH_KINDS)
                return err_set(BELAY_E_FORMAT, "%s: block hash %u is not known; use a newer Belay",
                               who, p[17]);
        if (d->ndims < 1 || d->ndims > BELAY_MAX_DIMS || name < 1 || name > BELAY_MAX_NAME ||
            leaves > room / ENTRY_BYTES)
                return err_set(BELAY_E_DATA, "%s: a count is impossible", who);
        uint64_t bytes = record_bytes(d->ndims, d->global, name, leaves);
        if (get_u32(p) != bytes || bytes > room)
                return err_set(BELAY_E_DATA, "%s: its length is impossible", who);
        return 0;
}

int manifest_next(struct manifest_cursor *c, struct region_desc *out, const uint8_t **leaf_refs)
{
        char who[64];
        snprintf(who, sizeof(who), "manifest: region %u", c->head.region_count - c->left);
        if (c->left == 0) {
                if (c->at != c->bytes)
                        return err_set(BELAY_E_DATA, "manifest: %llu bytes follow the last region",
                                       (unsigned long long)(c->bytes - c->at));
                if (c->sum != c->head.data_bytes)
                        return err_set(BELAY_E_DATA, "manifest: the regions do not add up");
                return 0;
        }
        const uint8_t *p = c->in + c->at;
        struct region_desc d;
        int rc = record_head(p, c->bytes - c->at, who, &d);
        if (rc)
                return rc;
        const uint8_t *q = get_dims(p + RECORD_HEAD, d.dims, d.ndims);
        if (d.global) {
                q = get_dims(q, d.global_dims, d.ndims);
                q = get_dims(q, d.global_start, d.ndims);
        }
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

struct object_ref ref_get(const uint8_t *in)
{
        return (struct object_ref){get_u64(in), hash_get(in + 8)};
}
