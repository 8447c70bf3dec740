/* manifest.c: format.md §4, the list of catalogs; and what format 1 had in its place (§11). */
#include "format/format_int.h"

enum { AT_ID = 32, AT_VERSION = 48, AT_TIME = 56, AT_DATA = 64, AT_COUNT = 72, AT_CATALOGS = 76 };
enum { AT_INCARNATION = 80, AT_RANK = 88, AT_MEMBERS = 92 };
/* The smallest record: one dimension, a name of one byte. */
#define LEAST_RECORD_BYTES (40u + 8 + 8)

struct object_ref ref_get(const uint8_t *in)
{
        return (struct object_ref){get_u64(in), hash_get(in + 8)};
}

void ref_put(uint8_t *out, struct object_ref ref)
{
        put_u64(out, ref.offset);
        hash_put(out + 8, ref.checksum);
}

void manifest_put_catalog(uint8_t *out, uint32_t i, const struct catalog_ref *t)
{
        uint8_t *p = out + manifest_bytes(i);
        ref_put(p, t->ref);
        put_u32(p + 24, t->bytes);
        put_u32(p + 28, t->regions);
}

struct catalog_ref manifest_catalog(const uint8_t *in, uint32_t i)
{
        const uint8_t *p = in + manifest_bytes(i);
        return (struct catalog_ref){ref_get(p), get_u32(p + 24), get_u32(p + 28)};
}

struct hash128 manifest_seal(uint8_t *out, const struct manifest_head *head)
{
        memset(out, 0, MANIFEST_HEAD_BYTES);
        memcpy(out + AT_ID, head->pool_id, sizeof(head->pool_id));
        put_u64(out + AT_VERSION, head->version);
        put_u64(out + AT_TIME, head->time_ns);
        put_u64(out + AT_DATA, head->data_bytes);
        put_u32(out + AT_COUNT, head->region_count);
        put_u32(out + AT_CATALOGS, head->catalog_count);
        put_u64(out + AT_INCARNATION, head->place.incarnation);
        put_u32(out + AT_RANK, head->place.rank);
        put_u32(out + AT_MEMBERS, head->place.members);
        return header_seal(out, magic_manifest, (uint32_t)manifest_bytes(head->catalog_count));
}

static int check_catalog(uint32_t i, const struct catalog_ref *t, uint64_t pool_bytes)
{
        if (t->bytes > MAX_MANIFEST_BYTES || t->bytes < CATALOG_HEAD_BYTES + LEAST_RECORD_BYTES ||
            !placement_legal(t->ref.offset, t->bytes, pool_bytes))
                return err_set(BELAY_E_DATA, "manifest: catalog %u lies outside the pool", i);
        /* Before anyone allocates for them. */
        if (t->regions == 0 || t->regions > (t->bytes - CATALOG_HEAD_BYTES) / LEAST_RECORD_BYTES)
                return err_set(BELAY_E_DATA, "manifest: %u regions do not fit catalog %u",
                               t->regions, i);
        return 0;
}

static int decode_catalogs(const uint8_t *in, uint64_t bytes, uint64_t pool_bytes,
                           struct manifest_head *h)
{
        uint64_t regions = 0;
        uint64_t all = 0; /* they lie apart */
        if (bytes < MANIFEST_HEAD_BYTES || get_u32(in + AT_CATALOGS) > MAX_REGIONS ||
            bytes != manifest_bytes(get_u32(in + AT_CATALOGS)))
                return err_set(BELAY_E_DATA, "manifest: its catalogs do not fit its %llu bytes",
                               (unsigned long long)bytes);
        h->catalog_count = get_u32(in + AT_CATALOGS);
        h->place = (struct job_place){get_u64(in + AT_INCARNATION), get_u32(in + AT_RANK),
                                      get_u32(in + AT_MEMBERS)};
        for (uint32_t i = 0; i < h->catalog_count; i++) {
                struct catalog_ref t = manifest_catalog(in, i);
                int rc = check_catalog(i, &t, pool_bytes);
                if (rc)
                        return rc;
                regions += t.regions;
                all += t.bytes;
        }
        if (all > pool_bytes)
                return err_set(BELAY_E_DATA, "manifest: its catalogs overlap each other");
        if (regions != h->region_count)
                return err_set(BELAY_E_DATA, "manifest: %u regions, and %llu in its catalogs",
                               h->region_count, (unsigned long long)regions);
        if (h->data_bytes / MOST_EXPANSION > pool_bytes)
                return err_set(BELAY_E_DATA, "manifest: more data than the pool can describe");
        return job_place_check(&h->place, "manifest");
}

static int decode_flat(uint64_t bytes, uint64_t pool_bytes, struct manifest_head *h)
{
        h->flat = true;
        /* Before anyone allocates for them. */
        if (h->region_count > (bytes - FLAT_HEAD_BYTES) / LEAST_RECORD_BYTES)
                return err_set(BELAY_E_DATA, "manifest: %u regions do not fit its %llu bytes",
                               h->region_count, (unsigned long long)bytes);
        if (h->data_bytes > pool_bytes)
                return err_set(BELAY_E_DATA, "manifest: more data than the pool has room for");
        return 0;
}

int manifest_decode(const uint8_t *in, uint64_t bytes, uint64_t pool_bytes,
                    struct manifest_head *out)
{
        int rc = header_check(in, bytes, magic_manifest, "manifest");
        if (rc)
                return rc;
        if (bytes < FLAT_HEAD_BYTES || bytes > MAX_MANIFEST_BYTES)
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
        rc = header_version(in) == 1 ? decode_flat(bytes, pool_bytes, &h)
                                     : decode_catalogs(in, bytes, pool_bytes, &h);
        if (rc)
                return rc;
        *out = h;
        return 0;
}

void records_of_manifest(struct record_cursor *c, const uint8_t *in, uint64_t bytes,
                         const struct manifest_head *head)
{
        *c = (struct record_cursor){.in = in,
                                    .bytes = bytes,
                                    .at = FLAT_HEAD_BYTES,
                                    .count = head->region_count,
                                    .left = head->region_count,
                                    .flat = true,
                                    .what = "manifest"};
}
